//! Crates for [tokio](https://docs.rs/tokio) in goroutines of gmp: call `reqwest`, `sqlx` or a client of `tonic` like a
//! function, and the goroutine parks meanwhile.
//!
//! A future of such a crate needs two things: a thread that polls it, and tokio's reactor, which drives its sockets and timers.
//! [`install`] starts a reactor, a runtime of tokio on threads of its own, beside the runtime of gmp that will be built, and
//! makes each thread of that runtime enter the reactor's context. From then on every goroutine, on any thread, has all that
//! tokio looks for in its thread.
//!
//! ```
//! use std::time::Duration;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use tokio::net::{TcpListener, TcpStream};
//!
//! let builder = gmp_tokio::install(gmp::Runtime::builder())?;
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! let runtime = unsafe { builder.build()? };
//! runtime.run(|| -> std::io::Result<()> {
//!     // Made and polled by the reactor, like any task of tokio.
//!     let listener = gmp_tokio::run(TcpListener::bind("127.0.0.1:0"))?;
//!     let addr = listener.local_addr()?;
//!     let server = gmp::go(move || -> std::io::Result<()> {
//!         // Polled here, so it may borrow.
//!         let (mut stream, _) = gmp::block_on(listener.accept())?;
//!         gmp::block_on(stream.write_all(b"hello"))
//!     });
//!     let said = gmp_tokio::run(async move {
//!         let mut said = String::new();
//!         let reading = async { TcpStream::connect(addr).await?.read_to_string(&mut said).await };
//!         tokio::time::timeout(Duration::from_secs(60), reading).await??;
//!         std::io::Result::Ok(said)
//!     })?;
//!     assert_eq!(said, "hello");
//!     server.join().unwrap()
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! With the attribute of gmp's feature `macros`:
//!
//! ```
//! use std::time::Duration;
//!
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! #[gmp::main(unsafe, on_thread_start = gmp_tokio::reactor())]
//! fn main() {
//!     gmp::block_on(tokio::time::sleep(Duration::from_millis(1)));
//! }
//! ```
//!
//! # Two ways in
//!
//! * [`run`], the usual one: the future is a task of the reactor, and the goroutine waits for its end. The reactor's threads
//!   poll the future, as usual in tokio; the goroutine is woken once. The future is `Send + 'static`.
//! * [`gmp::block_on`]: the goroutine polls the future, on its own stack, each time the reactor wakes it. The future may borrow
//!   and need not be `Send`. Each wait is a wake from another thread, and a poll runs on the goroutine's stack, which does not
//!   grow.
//!
//! # What a poll may do
//!
//! In a future that [`gmp::block_on`] polls, a poll may do all that a goroutine may do: park, nest another `block_on` or
//! [`run`], start goroutines. But tokio itself puts a value into the thread while it polls some futures, and takes it out after
//! the poll; a poll that parks inside one of these goes on on another thread, and leaves that value behind:
//!
//! * a value of `tokio::task_local!`, inside its `scope`;
//! * a `LocalSet`, inside its `run_until`;
//! * the mark that a runtime is entered, inside [`Handle::block_on`](tokio::runtime::Handle::block_on);
//! * the budget by which tasks let others run, inside a task of a `LocalSet` and of
//!   [`Handle::block_on`](tokio::runtime::Handle::block_on). Elsewhere a goroutine has no budget: [`gmp::block_on`] sets none.
//!
//! So make no call of gmp that parks inside these; `await` tokio's futures there. A `LocalSet`, polled by [`gmp::block_on`],
//! belongs to one thread even between polls, and needs a goroutine that [has locked itself](gmp::lock_os_thread) to its thread,
//! from before the set is made until after it is dropped.
//!
//! **An [`EnterGuard`](tokio::runtime::EnterGuard) of your own must not be kept across a call that parks.** Such a guard breaks
//! the contract of [`gmp::migration`]: the thread on which it was made stays in that runtime, and its drop on another thread
//! panics. Call [`Handle::spawn`](tokio::runtime::Handle::spawn) instead, or make a runtime of gmp that uses that runtime of
//! tokio, by [`Reactor::new`].
//!
//! # In a task of tokio
//!
//! A task runs on a thread of the reactor, where there is no goroutine: a call that would park blocks that thread, and with it
//! the tasks in its queue. So a task awaits the futures of gmp: `recv_async` and `send_async` of its channels,
//! [`broadcast`](gmp::chan::broadcast::Receiver::recv_async)'s as well, [`watch`](gmp::chan::watch::Receiver::changed_async)'s
//! `changed_async`, `lock_async`, `acquire_async`, [`sleep_async`](gmp::time::sleep_async),
//! [`Context::ended`](gmp::context::Context::ended), a [`JoinHandle`](gmp::JoinHandle). Calls without a future go into
//! [`block_in_place`](tokio::task::block_in_place) or [`spawn_blocking`](tokio::task::spawn_blocking): `gmp::select!`,
//! `Condvar`, files, `gmp::block_on`. `try_send`, `try_recv`, and other calls that do not block, need nothing of that, and
//! neither does `send` into an unbounded channel.
//!
//! [`gmp::go`] needs a runtime in which to start the goroutine, and panics in a task; take
//! [`Runtime::handle`](gmp::Runtime::handle) along, or [`gmp::handle`] of a goroutine: `handle.go(f)?.await`.
//!
//! [`run`] works in a task, by `block_in_place`.
//!
//! # Sockets of gmp
//!
//! [`GmpIo`] gives a stream of [`gmp::net`] tokio's traits, for code that takes [`AsyncRead`](tokio::io::AsyncRead) and
//! [`AsyncWrite`](tokio::io::AsyncWrite): codecs, `tokio::io::copy`, TLS, clients that are given their connection. A goroutine
//! polls it by [`gmp::block_on`], without a reactor and without another thread.
//!
//! # Reports of a deadlock
//!
//! A goroutine that waits in [`run`] or [`gmp::block_on`] waits for something from outside, and as long as a goroutine does so,
//! no deadlock is reported. If none does, the reactor's threads may still wake any goroutine, for instance by a channel, and
//! gmp can't know whether they will: tokio says how many tasks live, but neither which closures of
//! [`spawn_blocking`](tokio::task::spawn_blocking) run, nor for which task a socket or a timer is armed. The reactor's threads
//! are foreign to gmp, and beside foreign threads no deadlock is reported at all, from the start of the reactor until its
//! threads have ended; from then on deadlocks are reported as before.
//!
//! With `GMPDEBUG=deadlock=always` gmp does not look at other threads. A goroutine that waits in [`run`] or [`gmp::block_on`]
//! is no deadlock then either; but a goroutine that waits in a *channel* for a task of tokio counts as waiting for ever: the
//! process ends, with a wrong report. Wait by [`run`] there, or by `gmp::block_on(receiver.recv_async())`.

mod reactor;
mod stream;

pub use reactor::{Entered, Reactor};
pub use stream::{GmpIo, OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};

use gmp::RuntimeBuilder;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{JoinError, JoinHandle};

/// Starts a reactor, and makes each thread of the runtime that `builder` will build enter its context. The reactor ends with
/// that runtime: see [`Reactor`]. Does not block.
///
/// As long as the reactor's threads live, no deadlock of goroutines is reported in any runtime of the process, not even in one
/// that has nothing to do with tokio: [Reports of a deadlock](crate#reports-of-a-deadlock).
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let builder = gmp_tokio::install(gmp::Runtime::builder().procs(2))?;
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let runtime = unsafe { builder.build()? };
/// runtime.run(|| {
///     let start = Instant::now();
///     let sleeps: Vec<_> = (0..100)
///         .map(|_| gmp::go(|| gmp::block_on(tokio::time::sleep(Duration::from_millis(10)))))
///         .collect();
///     sleeps.into_iter().for_each(|one| one.join().unwrap());
///     assert!(start.elapsed() >= Duration::from_millis(10));
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Those of [`Reactor::start`].
pub fn install(builder: RuntimeBuilder) -> io::Result<RuntimeBuilder> {
    Ok(Reactor::start()?.install(builder))
}

/// Starts a reactor, and returns a function that enters its context, for an attribute of gmp's feature `macros`:
/// `#[gmp::main(unsafe, on_thread_start = gmp_tokio::reactor())]`. The reactor ends with that runtime. Does not block.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// #[gmp::test(unsafe, procs = 1, on_thread_start = gmp_tokio::reactor())]
/// fn a_task_is_spawned() {
///     assert_eq!(gmp::block_on(tokio::spawn(async { 4 })).unwrap(), 4);
/// }
/// # fn main() {}
/// ```
///
/// # Panics
/// If [`install`] would return an error: an attribute's runtime that can't start panics, too.
#[track_caller]
pub fn reactor() -> impl Fn() -> Entered + Send + Sync + 'static + use<> {
    match Reactor::start() {
        Ok(reactor) => reactor.entering(),
        Err(refused) => panic!("{refused}"),
    }
}

/// The future of [`run`], as a task.
struct Task<T>(Option<JoinHandle<T>>);

impl<T> Future for Task<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let task = self.0.as_mut().expect("polled until it is ready, by run");
        let ended = std::task::ready!(Pin::new(task).poll(cx));
        self.0 = None;
        Poll::Ready(ended)
    }
}

/// Runs when the wait was ended from outside, before the stack unwinds; or when the calling task must not block, and unwinds.
impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
            if std::thread::panicking() {
                return;
            }
            // The outcome: a value that no caller takes, or a panic that was printed.
            let _ended = gmp::block_on(task);
        }
    }
}

/// Looks up the thread's context. Not inlined: the caller parks, and this function uses a thread-local.
#[inline(never)]
#[track_caller]
fn spawn<F>(future: F) -> Option<Task<F::Output>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let handle = Handle::try_current().ok()?;
    assert!(
        handle.runtime_flavor() != RuntimeFlavor::CurrentThread,
        "gmp_tokio::run: the runtime of tokio here is one of the current thread, and nobody would run the future while \
         this thread waits; await the future instead"
    );
    Some(Task(Some(handle.spawn(future))))
}

/// Runs a future as a task of the reactor, waits for its end, and returns its output. Parks the calling goroutine; blocks a
/// plain thread that is in the context of a runtime of tokio, and a task of tokio, by
/// [`block_in_place`](tokio::task::block_in_place).
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let runtime = unsafe { gmp_tokio::install(gmp::Runtime::builder())?.build()? };
/// let sum = runtime.run(|| {
///     gmp_tokio::run(async {
///         let (one, two) = tokio::join!(tokio::spawn(async { 1 }), tokio::spawn(async { 2 }));
///         one.unwrap() + two.unwrap()
///     })
/// });
/// assert_eq!(sum, 3);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Unwinds
/// When the wait is ended from outside; see [`migration`](gmp::migration#what-may-unwind). The task is aborted first, and its
/// future is dropped, on a thread of the reactor, before this call unwinds: the future's resources are released by then. A poll
/// of the task that is under way ends first, so a poll that never returns keeps the caller.
///
/// # Panics
/// With the payload of the future's panic, if the future panics. If the thread is in no context of tokio: the text says what to
/// add. If the runtime of tokio ends before the future is ready; a reactor does not end as long as goroutines of its runtimes
/// run. In the context of a runtime of the current thread, or in a `LocalSet`, where tokio does not allow blocking.
#[track_caller]
pub fn run<F>(future: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    if gmp::current().is_none()
        && Handle::try_current().is_ok_and(|it| it.runtime_flavor() != RuntimeFlavor::CurrentThread)
    {
        // Panics where blocking is forbidden, before the task is spawned.
        tokio::task::block_in_place(|| ());
    }
    let Some(task) = spawn(future) else {
        panic!(
            "gmp_tokio::run: there is no reactor here. Build the runtime from gmp_tokio::install(builder), or add \
             on_thread_start = gmp_tokio::reactor() to #[gmp::main(unsafe)]"
        );
    };
    let ended = if gmp::current().is_some() {
        gmp::block_on(task)
    } else {
        tokio::task::block_in_place(|| gmp::block_on(task))
    };
    match ended.map_err(JoinError::try_into_panic) {
        Ok(output) => output,
        Err(Ok(payload)) => std::panic::resume_unwind(payload),
        Err(Err(_)) => panic!("gmp_tokio::run: the runtime of tokio has ended before the future was ready"),
    }
}
