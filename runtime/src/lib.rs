//! Go's scheduler as a Rust library: goroutines with their own stacks, blocking code, no `async`.
//!
//! Goroutines (G) run on OS threads (M) that must hold a processor (P). A goroutine that waits for a socket, for
//! a time, or for another goroutine parks; its thread runs others meanwhile.
//!
//! ```
//! use gmp::{go, time};
//! use std::time::Duration;
//!
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call (see `gmp::migration`).
//! unsafe {
//!     gmp::run(|| {
//!         let sleepers: Vec<_> = (1..=100)
//!             .map(|n| {
//!                 go(move || {
//!                     time::sleep(Duration::from_millis(10));
//!                     n
//!                 })
//!             })
//!             .collect();
//!         // All of them slept at the same time.
//!         let sum: u32 = sleepers.into_iter().map(|sleeper| sleeper.join().unwrap()).sum();
//!         assert_eq!(sum, 5050);
//!     })
//! }
//! ```
//!
//! With the feature `macros` an attribute does the same, with the same promise: `#[gmp::main(unsafe)]` before `fn main`, and
//! `#[gmp::test(unsafe)]` before a test.
//!
//! Starting a runtime is `unsafe`, once per program; what goroutines call is safe. The last section says why.
//!
//! # Start
//!
//! [`run`] starts a runtime, runs its first goroutine, and ends with it. [`go`] starts another goroutine, and
//! [`JoinHandle::join`] waits for its value, or for a [`JoinError`], which says why there is none: a panic (`is_panic`), a
//! [`goexit`] (`is_goexit`), an abort (`is_aborted`), or the end of the runtime (`is_shutdown`). `go` panics when its caller is
//! not a goroutine or when no stack can be allocated; [`Builder::go`] returns the latter as an error. [`scope`] starts
//! goroutines that borrow, [`Builder`] gives a goroutine a name or a stack size. A program that has a `main` of its own, or
//! several runtimes, keeps a [`Runtime`], which a plain thread may use as well; any other thread starts goroutines by a
//! [`Handle`].
//!
//! The scheduler's defaults are right for most programs; the following calls change them. [`join`] and [`fork_scope`] run
//! branches of a computation on other threads that have nothing to do, [`go_lifo`] starts the goroutines of a tree.
//! [`go_fair`], [`Builder::affinity`], [`JoinHandle::set_affinity`] and [`yield_to`] say where a goroutine stands and which one
//! runs next; a [`Priority`] says which one goes first. [`RuntimeBuilder::cpu_sets`] binds Ps to CPUs, [`policy`] has other
//! schedulers. `docs/choosing.md` says what each of these is for, and what it costs.
//!
//! ```
//! let mut words = vec!["to", "be", "or", "not"];
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! unsafe {
//!     gmp::run(|| {
//!         let (first, second) = words.split_at_mut(2);
//!         // Both borrow; the scope ends when both have.
//!         gmp::scope(|scope| {
//!             scope.go(|| first.sort());
//!             scope.go(|| second.sort());
//!         });
//!     })
//! }
//! assert_eq!(words, ["be", "to", "not", "or"]);
//! ```
//!
//! # Wait
//!
//! A call of this library that waits parks the *goroutine*, and its thread runs others. The types of [`sync`] have the names of
//! std, `parking_lot` and Go, and a guard may be held across a wait. A call that blocks the *thread* (`std::fs`, a name
//! look-up, a lock of std) stalls no other goroutine either: within milliseconds the runtime notices, and another thread takes
//! the P. The same goes for a goroutine that runs on and on: after 5 to 10 ms in which others waited (up to 40 ms where the
//! machine has more busy threads than CPUs) it goes on without a P, as one thread of the process among others, until its next
//! call that may park. Such a goroutine still uses a core: the number of Ps bounds how many goroutines run by turns, not how
//! many threads compute. [`blocking`] announces the call, which the runtime would otherwise notice only while the call lasts.
//!
//! ```
//! use gmp::sync::{Mutex, WaitGroup};
//! use std::sync::Arc;
//!
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! unsafe {
//!     gmp::run(|| {
//!         let (total, tasks) = (Arc::new(Mutex::new(0)), WaitGroup::new());
//!         for file in ["/proc/self/comm", "/proc/self/stat"] {
//!             let total = Arc::clone(&total);
//!             tasks.go(move || {
//!                 let text = gmp::blocking(|| std::fs::read(file)).unwrap();
//!                 *total.lock() += text.len();
//!             });
//!         }
//!         tasks.wait();
//!         assert!(*total.lock() > 0);
//!     })
//! }
//! ```
//!
//! # Channels
//!
//! [`chan`] has crossbeam-channel's names, with `close` in addition. [`select!`] waits for the first of several
//! operations.
//!
//! ```
//! use gmp::{chan, select};
//! use std::time::Duration;
//!
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! let sum = unsafe {
//!     gmp::run(|| {
//!         let (sender, numbers) = chan::bounded(2);
//!         gmp::go(move || (1..=4).try_for_each(|n| sender.send(n)));
//!         let (mut sum, limit) = (0, chan::after(Duration::from_secs(60)));
//!         loop {
//!             select! {
//!                 recv(numbers) -> number => match number {
//!                     Ok(number) => sum += number,
//!                     // The sender was dropped.
//!                     Err(_) => break sum,
//!                 },
//!                 recv(limit) -> _ => panic!("too late"),
//!             }
//!         }
//!     })
//! };
//! assert_eq!(sum, 10);
//! ```
//!
//! # Sockets
//!
//! [`net`] has std's names and signatures, `Read` and `Write`. A deadline can be moved, and a socket closed, while other
//! goroutines wait for it.
//!
//! ```
//! use gmp::net::{TcpListener, TcpStream};
//! use std::io::{Read, Write};
//!
//! # fn main() -> std::io::Result<()> {
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! unsafe {
//!     gmp::run(|| {
//!         let listener = TcpListener::bind("127.0.0.1:0")?;
//!         let address = listener.local_addr()?;
//!         let server = gmp::go(move || listener.accept()?.0.write_all(b"hello"));
//!         let mut text = String::new();
//!         TcpStream::connect(address)?.read_to_string(&mut text)?;
//!         assert_eq!(text, "hello");
//!         server.join().expect("the server does not panic")
//!     })
//! }
//! # }
//! ```
//!
//! With the feature `net-config` there are `net::ListenConfig` and `net::DialConfig` for options that are set before a
//! socket listens or connects.
//!
//! # Files, processes, signals
//!
//! [`fs`], [`process`] and [`io`] have std's names as well. A wait for a child, its output, or standard input parks; a call
//! that waits for a disk takes a thread, and the number of such threads is bounded. A server learns by [`signal::notify`] or
//! [`context::with_signals`] that it should stop.
//!
//! ```
//! use gmp::context::{self, Context};
//! use gmp::process::Command;
//! use gmp::signal::{SIGINT, SIGTERM};
//! use std::time::Duration;
//!
//! # fn main() -> std::io::Result<()> {
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! unsafe {
//!     gmp::run(|| {
//!         let (stop, _cancel) = context::with_signals(&Context::background(), &[SIGINT, SIGTERM])?;
//!         let worker = stop.go(|| gmp::time::sleep(Duration::MAX));
//!         // Ctrl-C, or somebody's `kill`.
//!         Command::new("kill").args(["-TERM", &std::process::id().to_string()]).status()?;
//!         assert!(worker.join().unwrap().is_err());
//!         Ok(())
//!     })
//! }
//! # }
//! ```
//!
//! # Time
//!
//! [`time::sleep`] parks; [`time::Timer`], [`time::Ticker`], [`chan::after`] and [`chan::tick`] report the time through a
//! channel; [`time::timeout`] ends the waits of a function after a given time.
//!
//! ```
//! use gmp::{chan, context::ContextError, time};
//! use std::time::Duration;
//!
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! unsafe {
//!     gmp::run(|| {
//!         let (_sender, nothing) = chan::bounded::<()>(0);
//!         let ended = time::timeout(Duration::from_millis(5), || nothing.recv());
//!         assert_eq!(ended, Err(ContextError::DeadlineExceeded));
//!     })
//! }
//! ```
//!
//! # Ending
//!
//! A goroutine ends when its function returns, panics, or calls [`goexit`]. From outside, a goroutine can be ended only while
//! it waits: a [`context::Context`] that it [runs](context::Context::run) under ends this library's waits in it, by unwinding
//! or, in a call that returns an [`io::Error`](std::io::Error), by an error. When [`run`] returns, the remaining goroutines are
//! unwound in the same way, and their destructors run: [`Runtime::shutdown_timeout`] says which ones can't be unwound. A wait
//! inside std or C is not ended.
//!
//! ```
//! use gmp::context::{Context, ContextError};
//! use gmp::sync::Event;
//!
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! unsafe {
//!     gmp::run(|| {
//!         let (context, cancel) = Context::background().with_cancel();
//!         let worker = gmp::go(move || context.run(|| Event::new().wait()));
//!         cancel.cancel();
//!         assert_eq!(worker.join().unwrap(), Err(ContextError::Canceled));
//!     })
//! }
//! ```
//!
//! When a program hangs, or is slow:
//!
//! * A program whose goroutines are all asleep is ended, after a dump of what each of them waits for: [`run`] says
//!   when.
//! * [`dump`] returns the same text at any time, on any thread, with the calls that led to each wait, or where a goroutine
//!   runs or hangs; `kill -QUIT` prints it from outside, and ends the process. A release build shows all of these calls with
//!   `debug = "line-tables-only"` in its profile; without it those that were inlined are missing.
//! * A sampling profiler or a crash reporter may walk frames in its signal handler, by the unwind tables and at any
//!   instruction. A walk ends at the goroutine's first frame: the thread's own frames are on another stack. Where the
//!   signal meets the context switch, the walk has only one frame. A handler that was installed without `SA_ONSTACK`
//!   runs on the goroutine's own stack, and needs room there. Two kinds of walks fail, as in any program: by an
//!   unwinder that locks the list of loaded objects (glibc before 2.35, musl), and along frame pointers where the
//!   program is compiled without them.
//! * [`Handle::load`] returns numbers for gauges: threads, idle Ps, goroutines that wait for their turn.
//! * `GMPDEBUG=schedtrace=1000` in the environment prints a line about the scheduler every second; `migrate=1` shows a breach
//!   of the contract; `panic=abort` ends the process at the first panic. [`RuntimeBuilder`] has the table of all knobs.
//!
//! # The contract
//!
//! A goroutine can resume on another thread after each call that parks, and Rust has no trait for "my stack may move to another
//! thread". So starting a runtime is `unsafe`, and so is [`Runtime::run_locked`]. [`migration`] says what the caller promises,
//! with examples: nothing that belongs to a thread is kept across a call that may park; a function that uses a `thread_local!`
//! does not also park; unsafe code expects that such a call may unwind; the floating-point control registers stay as they were;
//! and no function of C has a frame that is larger than the guard. [`lock_os_thread`] binds a goroutine to its thread while it
//! has to keep such a value.
//!
//! # Coming from Go
//!
//! | Go | here | not the same |
//! | --- | --- | --- |
//! | `func main()` | [`run`], `unsafe` once: see [`migration`] | the other goroutines end with it: those that are parked are unwound, and their destructors run; see [`Runtime::shutdown_timeout`] |
//! | `go f(x)` | [`go`]`(move \|\| f(x))` | gives a [`JoinHandle`]; a panic stays in its goroutine, `join` gives it |
//! | `make(chan T)`, `make(chan T, n)` | [`chan::bounded`]`(0)`, `bounded(n)`, [`chan::unbounded`] | two halves that can be cloned |
//! | `c <- v`, `<-c`, `v, ok := <-c`, `range c` | `s.send(v)`, `r.recv()`, `for v in r` | a send on a closed channel is an `Err` with the value, not a panic |
//! | `close(c)` | `s.close()`; or drop the last sender | a second close gives false |
//! | `select { … }`, `default`, a nil channel | [`select!`], `default`, [`chan::never`], [`chan::never_sender`] | the message of a send is evaluated after the send was chosen; without arms it panics, [`chan::never`]`().recv()` waits for ever |
//! | `time.After`, `time.Tick`, `time.NewTimer`, `time.AfterFunc` | [`chan::after`], [`chan::tick`], [`time::Timer`], [`time::Ticker`], [`time::after_func`] | |
//! | `sync.Mutex`, `RWMutex`, `Cond`, `Once`, `WaitGroup`, `Pool` | [`sync`], the value inside the lock | `WaitGroup::go` counts down also when its function panics |
//! | `golang.org/x/sync`: `errgroup`, `semaphore`, `singleflight` | [`sync::ErrGroup`], [`sync::Semaphore`], [`sync::SingleFlight`] | |
//! | `context.Context` as first argument | [`context::Context`]; [`run`](context::Context::run) makes every wait inside end with it | |
//! | `net.Dial`, `net.LookupHost`, `SetDeadline`, `Close` | [`net`], std's names, [`net::lookup`], `set_deadline`, `close` | TCP_NODELAY is off, as with std; Go sets it |
//! | `io.Copy`, `os.Pipe`, `os.Stdin` | [`io::copy`], or std's; [`io::copy_bidirectional`]; [`io::pipe`], [`io::stdin`] | in place of `io.Pipe`, in memory, a channel |
//! | `exec.Command`, `exec.CommandContext` | [`process::Command`]; its wait inside [`run`](context::Context::run), with [`kill_on_drop`](process::Command::kill_on_drop); `WaitDelay` is [`wait_delay`](process::Command::wait_delay) | without `kill_on_drop` the child goes on when the context is done; a `WaitDelay` of zero is no `wait_delay` |
//! | `signal.Notify`, `signal.NotifyContext` | [`signal::notify`], [`context::with_signals`] | when nobody listens any more, the signal has its earlier action again |
//! | `runtime.Gosched`, `Goexit`, `NumGoroutine`, `GOMAXPROCS` | [`yield_now`], [`goexit`], [`num_goroutines`], [`procs`] and [`set_procs`], the variable `GMPMAXPROCS` | reading and setting are two calls; 0 is refused, Go takes it as a query; it does not stop the world; a quota is rounded down |
//! | `GODEBUG`: `schedtrace`, `scheddetail` | `GMPDEBUG`, see [`RuntimeBuilder`] | an unknown knob is an error |
//! | "all goroutines are asleep - deadlock!"; the dump of SIGQUIT | the same, see [`run`]; [`dump`] | the first only if the process has no threads of its own; a dump lists goroutines that are alike together, and interrupts a running one by SIGRTMIN+12 |
//! | `runtime.LockOSThread`, `UnlockOSThread`; in `init`, for the first thread | [`lock_os_thread`], [`unlock_os_thread`]; [`Runtime::run_locked`] | |
//! | stacks that grow; "stack overflow" | 64 KiB (256 KiB in a debug build), or [`Builder::stack_size`], or the variable `GMPSTACK`; [`with_stack`] for what goes deep | the end of a stack ends the process, with the goroutine's name |
//! | goroutine-local storage | [`local!`] | Go has none |
//!
//! # Coming from std's threads
//!
//! Code whose row says "the same" needs only a changed `use` line. Code that keeps std's type continues to work, and a wait in
//! it takes a thread.
//!
//! | std | here | to change beside the `use` line |
//! | --- | --- | --- |
//! | `fn main` | [`run`], or `#[gmp::main(unsafe)]` | see [`migration`] |
//! | `std::net`, `std::os::unix::net` | [`net`], [`net::unix`] | the same; there is no `set_nonblocking`; an expired limit is `TimedOut`, where std's sockets say `WouldBlock`; [`net::lookup`] in place of `to_socket_addrs` |
//! | `std::fs`, `std::os::unix::fs` | [`fs`], [`fs::unix`] | the same |
//! | `std::process::{Command, Child, Stdio}` | [`process`] | the same; `exit`, `abort` and `id` are std's |
//! | `std::io::{stdin, pipe}`, their types | [`io`] | the same; `Read`, `Write`, `BufReader` and `stdout` are std's |
//! | `thread::spawn`, `Builder::spawn`, `thread::scope` and its `spawn` | [`go`], [`Builder::go`], [`scope`], [`Scope::go`] | `spawn` is `go`; `name("x".into())` is `name("x")`; a panic's payload is in the [`JoinError`]; a stack has 64 KiB, see [`with_stack`] |
//! | `thread::sleep`, `yield_now`, `park`, `unpark` | [`time::sleep`], [`yield_now`], [`park`], [`Unparker`] | |
//! | `thread::current()` | [`current`] | an `Option`: a plain thread is no goroutine |
//! | `mpsc::channel()`, `mpsc::sync_channel(n)` | [`chan::unbounded`], [`chan::bounded`] | both senders are a [`chan::Sender`]; the errors have std's names, but for [`chan::SendTimeoutError`], which is new |
//! | `Mutex`, `RwLock` | [`sync`] | no `.unwrap()`: there is no poison. std's lock may stay if no goroutine parks while holding it; a std lock that is held across a call that may park breaks the [contract](migration) |
//! | `Condvar` | [`sync::Condvar`] | the guard is passed by `&mut`: `wait(&mut guard)`; `wait_timeout_while` is `wait_while_for` |
//! | `Barrier`, `Once`, `OnceLock`, `LazyLock` | [`sync`] | the same |
//! | `Arc`, atomics | std's | |
//! | `thread_local!` | [`local!`] | |
//!
//! # Coming from tokio, or from threads and crossbeam
//!
//! | there | here |
//! | --- | --- |
//! | `#[tokio::main] async fn main()` | `fn main() { unsafe { gmp::run(\|\| …) } }`; with the feature `macros` `#[gmp::main(unsafe)]` and `#[gmp::test(unsafe)]` |
//! | `tokio::runtime::Handle::current()` | [`handle`], [`Runtime::handle`]: a [`Handle`] |
//! | `tokio::spawn(async { … })`, `std::thread::spawn` | [`go`]; no `async`, no `.await`: a call that waits parks |
//! | `Handle::block_on`, `pollster::block_on`, `.await` | [`block_on`], which parks the goroutine until any [`Future`] is ready |
//! | `.await` on a channel, a lock, a permit, a timer, a task's end | the blocking call; and for tasks of any executor `recv_async`, `send_async`, `lock_async`, `acquire_async`, [`time::sleep_async`], a [`JoinHandle`] is a future |
//! | reqwest, sqlx, tonic; hyper; `Stream`, `Sink`; `tracing` | the packages `gmp-tokio`, `gmp-hyper`, `gmp-futures`, `gmp-tracing` |
//! | `JoinHandle::abort`, `AbortHandle` | [`go_abortable`], [`Handle::go_abortable`], [`AbortHandle`]; any goroutine as an arm of a select: [`JoinHandle::done`] |
//! | `spawn_blocking`, `block_in_place` | [`blocking`], on the caller's own stack: no `Send`, no `'static` |
//! | `std::thread::scope`, `JoinSet` | [`scope`], [`sync::ErrGroup`] |
//! | `rayon::join`, `rayon::scope` | [`join`], [`fork_scope`] |
//! | `tokio::select!` | [`select!`] over channels; nothing is dropped half done. Over other futures: tokio's, in [`block_on`] |
//! | `tokio::time::timeout(d, future)` | [`time::timeout`]`(d, f)`, or `with_timeout` and [`run`](context::Context::run) |
//! | the builder's `on_thread_start`, `on_thread_stop` | [`RuntimeBuilder::on_thread_start`], and the drop of what it returns |
//! | `CancellationToken`, `cancelled()`, `drop_guard()` | [`context::Context`], [`ended`](context::Context::ended), [`drop_guard`](context::Cancel::drop_guard) |
//! | `crossbeam_channel` | [`chan`]: change the `use` line |
//! | `parking_lot`, `tokio::sync` | [`sync`]: parking_lot's names, [`sync::raw`] for `lock_api`; a guard may be held across a wait |
//! | `tokio::sync`'s `mpsc` and `oneshot`, `Notify` | [`chan::bounded`], [`chan::unbounded`]; [`sync::Event`] |
//! | `tokio::sync`'s `broadcast` and `watch` | [`chan::broadcast`], [`chan::watch`]; an arm of a [`select!`] by their `bell` |
//! | `tokio::sync::Semaphore`: `acquire`, `acquire_owned`, `SemaphorePermit` | [`sync::Semaphore::acquire_guard`], `acquire_owned`, [`sync::SemaphorePermit`]; `acquire` has no guard |
//! | `thread_local!`, `task_local!` | [`local!`] |
//! | `std::net`, `tokio::net` | [`net`], with `Read` and `Write` |

// Items that models lack (`sync::raw`) have no page to link to.
#![cfg_attr(gmp_loom, allow(rustdoc::broken_intra_doc_links))]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "gmp runs on Linux only: its poller is epoll, its notes are futexes. Other systems need a `host/native/` and a poller of their own."
);
#[cfg(not(target_pointer_width = "64"))]
compile_error!("gmp needs 64-bit pointers: a goroutine's stack is a range of a large address space.");
#[cfg(all(feature = "loom-suite", not(gmp_loom)))]
compile_error!("the cfg gmp_loom is missing: run `cargo loom` without a RUSTFLAGS in the environment.");
#[cfg(all(feature = "generator", gmp_loom))]
compile_error!("the model can't run on the `generator` backend: loom's own threads are generators.");

#[cfg(all(gmp_bench, not(gmp_loom)))]
#[doc(hidden)]
pub mod bench;
pub mod chan;
pub mod context;
mod g;
mod goroutine;
mod host;
mod impls;
mod m;
#[cfg(all(test, gmp_loom))]
mod models;
pub mod net;
mod os;
mod p;
mod prim;
mod runtime;
mod sched;
mod stack;
pub mod sync;
pub mod time;
mod wait;

#[cfg(feature = "macros")]
pub use gmp_macros::{main, test};
pub use goroutine::block_on::block_on;
pub use goroutine::fork::{ForkScope, fork_scope, go_lifo, join};
pub use goroutine::hooks;
pub use goroutine::local;
pub use goroutine::migration;
pub use goroutine::park::{Unparker, park, park_timeout, park_until, unparker};
pub use goroutine::scope::{Scope, ScopedJoinHandle, scope};
pub use goroutine::thread::{lock_os_thread, unlock_os_thread};
pub use goroutine::with_stack::with_stack;
pub use goroutine::{
    AbortHandle, Affinity, Builder, Goroutine, GoroutineId, JoinError, JoinHandle, blocking, current, go,
    go_abortable, go_fair, goexit, handle, num_goroutines, priority, procs, set_priority, set_procs,
    yield_now, yield_to,
};
#[cfg(gmp_loom)]
pub use host::model;
pub use os::{fs, io, process, signal};
pub use runtime::load::Load;
pub use runtime::policy;
pub use runtime::priority::{ClassLoad, Priority};
pub use runtime::{Handle, Refused, Report, Runtime, RuntimeBuilder, dump, run};
pub use wait::interrupt::is_interrupt;

/// The README's program, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
