//! How goroutines learn that they should stop: [`Context`], [`Cancel`]; Go's package `context`.
//!
//! ```text
//!   background ── with_cancel ── with_timeout ── with_value ─ …      done: reaches everything to the right
//!        └─────── with_cancel                                              never anything to the left
//! ```
//! A context is two things: a *node* and a chain of *values*, newest first. A node is open until it is
//! done, once, with an error and a cause. Nodes form a tree: when a node is done, so are all nodes below it. A
//! context with one more value has the same node.
//!
//! A goroutine or thread that runs under a context ([`Context::run`]) is interrupted when the context is
//! done.

// Nodes: `tree.rs`. To run under a context: `run.rs`; what ends a wait: `wait/interrupt.rs`.
mod after;
mod deadline;
mod ended;
mod error;
mod run;
mod signals;
mod tree;
mod values;

use crate::chan::{self, Receiver};
use crate::goroutine::own_frame::in_own_frame;
use crate::goroutine::{self, Builder, JoinHandle};
use crate::impls::{opaque, unwind_safe};
pub use ended::Ended;
use error::cause_of;
pub use error::{Cause, ContextError};
pub use signals::with_signals;
pub(crate) use tree::interrupted;

use crate::host::Active;
use crate::m::M;
use crate::prim::Arc;
use crate::runtime::priority::Priority;
use after::AfterEnd;
use deadline::Deadline;
use std::error::Error;
use std::fmt;
use std::panic::Location;
use std::time::{Duration, Instant};
use tree::{Node, Verdict};
use values::Value;

/// The context under which a group of goroutines works: it can be cancelled, can have a deadline, and carries values. Clones
/// are the same context. Go's `context.Context`.
///
/// Contexts are derived from others. When a context is done, so are all contexts that were derived from it, in bounded stack
/// and in one pass; the contexts from which it was derived are not. A context without any handle left, its own or a derived
/// context's, leaves nothing behind, not even a timer.
///
/// A goroutine learns that a context is done from [`err`](Self::err), by waiting for [`done`](Self::done), or by
/// running under the context ([`run`](Self::run)), which ends its waits. Goroutines that such a goroutine starts do
/// not run under the context by themselves.
///
/// The order of an end: once [`err`](Self::err), or the error of a call, says that a context is done, its
/// [`done`](Self::done) is closed; once `done` is closed, `err` says why. The context itself is done first, the
/// contexts that were derived from it a moment later; when [`Cancel::cancel`] returns, all of them are done, even if
/// another canceller or a deadline has ended them. The functions of [`after_func`](Self::after_func) are started
/// after that, by the ender that came first: a canceller, before `cancel` returns, or the deadline's timer.
///
/// ```
/// use gmp::context::{Context, ContextError};
/// use std::time::Duration;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (ctx, cancel) = Context::background().with_cancel();
///         let worker = gmp::go(move || ctx.run(|| gmp::time::sleep(Duration::MAX)));
///         cancel.cancel();
///         assert_eq!(worker.join().unwrap(), Err(ContextError::Canceled));
///     })
/// }
/// ```
#[derive(Clone)]
pub struct Context {
    /// `None` if the context is never done.
    node: Option<Arc<Node>>,
    values: Option<Arc<Value>>,
}

impl Context {
    /// Returns the context from which others are derived: it is never done, and has no values.
    pub fn background() -> Self {
        Context { node: None, values: None }
    }

    fn derive(&self, deadline: Option<Deadline>, cause: Option<Cause>) -> (Context, Cancel) {
        let node = Node::derive(self.node.as_ref(), deadline, cause);
        (Context { node: Some(Arc::clone(&node)), values: self.values.clone() }, Cancel { node })
    }

    /// Derives a context that is done when cancelled, or when this one is done.
    ///
    /// ```
    /// use gmp::context::{Context, ContextError};
    ///
    /// let (all, stop_all) = Context::background().with_cancel();
    /// let (part, _stop_part) = all.with_cancel();
    /// stop_all.cancel();
    /// assert_eq!(part.err(), Some(ContextError::Canceled));
    /// ```
    #[must_use = "a context that is dropped ends nothing"]
    pub fn with_cancel(&self) -> (Context, Cancel) {
        self.derive(None, None)
    }

    /// Derives a context that is done at `deadline` (at once if that has passed), when cancelled, or when this one is
    /// done. Until then the derived context holds a timer, unless this one's deadline is not later.
    ///
    /// ```
    /// use gmp::context::{Context, ContextError};
    /// use std::time::{Duration, Instant};
    ///
    /// let (context, _cancel) = Context::background().with_deadline(Instant::now() + Duration::from_millis(2));
    /// assert!(context.done().recv().is_err());
    /// assert_eq!(context.err(), Some(ContextError::DeadlineExceeded));
    /// ```
    #[must_use = "a context that is dropped ends nothing"]
    pub fn with_deadline(&self, deadline: Instant) -> (Context, Cancel) {
        self.derive(Some(Deadline::named(deadline)), None)
    }

    /// As [`with_deadline`](Self::with_deadline), with the [`cause`](Self::cause) that the context has once the deadline has
    /// passed. [`Cancel::cancel_with`] says what can be a cause.
    #[must_use = "a context that is dropped ends nothing"]
    pub fn with_deadline_cause(
        &self,
        deadline: Instant,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> (Context, Cancel) {
        self.derive(Some(Deadline::named(deadline)), Some(cause_of(cause)))
    }

    /// As [`with_deadline`](Self::with_deadline), counted from now.
    ///
    /// ```
    /// use gmp::context::{Context, ContextError};
    /// use std::time::Duration;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (context, _cancel) = Context::background().with_timeout(Duration::from_millis(2));
    ///         let ended = context.run(|| gmp::time::sleep(Duration::MAX));
    ///         assert_eq!(ended, Err(ContextError::DeadlineExceeded));
    ///     })
    /// }
    /// ```
    #[must_use = "a context that is dropped ends nothing"]
    pub fn with_timeout(&self, timeout: Duration) -> (Context, Cancel) {
        self.derive(Some(Deadline::counted(timeout)), None)
    }

    /// As [`with_deadline_cause`](Self::with_deadline_cause), counted from now.
    #[must_use = "a context that is dropped ends nothing"]
    pub fn with_timeout_cause(
        &self,
        timeout: Duration,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> (Context, Cancel) {
        self.derive(Some(Deadline::counted(timeout)), Some(cause_of(cause)))
    }

    /// Derives a context with the same values and the same class that is never done.
    #[must_use = "the context that it is derived from stays as it is"]
    pub fn without_cancel(&self) -> Context {
        Context { node: None, values: self.values.clone() }
    }

    /// Returns why the context is done; `None` before the end. Once there is an error, [`done`](Self::done) is closed.
    /// Does not block.
    pub fn err(&self) -> Option<ContextError> {
        self.node.as_ref()?.err()
    }

    /// Returns the cause that was given when this context was ended, or the context above whose end reached this one; the
    /// [`ContextError`] itself if no cause was given. Returns `None` while the context is not done.
    pub fn cause(&self) -> Option<Cause> {
        self.node.as_ref()?.cause()
    }

    /// Returns a channel that is closed when the context is done, and on which no message is sent: a receive waits
    /// for the end. Once the channel is closed, [`err`](Self::err) says why. The first call makes the channel. Does
    /// not block.
    ///
    /// ```
    /// use gmp::context::Context;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (context, cancel) = Context::background().with_cancel();
    ///         let (_sender, work) = gmp::chan::bounded::<u32>(0);
    ///         let worker = gmp::go(move || {
    ///             gmp::select! {
    ///                 recv(work) -> _ => unreachable!(),
    ///                 recv(context.done()) -> _ => context.err().unwrap(),
    ///             }
    ///         });
    ///         cancel.cancel();
    ///         assert_eq!(worker.join().unwrap(), gmp::context::ContextError::Canceled);
    ///     })
    /// }
    /// ```
    pub fn done(&self) -> &Receiver<()> {
        const NEVER: &Receiver<()> = &chan::never();
        self.node.as_ref().map_or(NEVER, |node| node.receiver())
    }

    /// Waits for the end of the context, as a future, whose output is the error that [`err`](Self::err) returns from then on. A
    /// poll does not block: any task may poll the future, on goroutines ([`block_on`](crate::block_on)), on plain threads and
    /// under other executors, and the task that has polled last is woken. The future holds the context, and can be dropped at
    /// any time. The future of a context that is never done is never ready.
    ///
    /// ```
    /// use gmp::context::{Context, ContextError};
    ///
    /// let (context, cancel) = Context::background().with_cancel();
    /// let other = std::thread::spawn(move || cancel.cancel());
    /// assert_eq!(gmp::block_on(context.ended()), ContextError::Canceled);
    /// other.join().unwrap();
    /// ```
    pub fn ended(&self) -> Ended {
        Ended::new(self.node.clone())
    }

    /// Returns when the context is done at the latest: the earliest deadline among its own and those of the contexts above. The
    /// instant is the one given to [`with_deadline`](Self::with_deadline), or was computed from the timeout. Returns `None`
    /// without a deadline. Does not block.
    pub fn deadline(&self) -> Option<Instant> {
        self.node.as_ref()?.deadline()
    }

    /// Calls `f` when the context is done, or at once if the context is done already: in a new goroutine, in the runtime of the
    /// calling goroutine; or, if a plain thread calls this or that runtime has ended, on a thread of the library, which may
    /// call other functions before and after. Does not block.
    ///
    /// Dropping the handle does not stop the call. The handle holds the context; when the last handle of the context
    /// is dropped, so is `f`. For a context that is never done the returned handle alone keeps `f`.
    ///
    /// ```
    /// use gmp::{chan, context::Context};
    ///
    /// let (context, cancel) = Context::background().with_cancel();
    /// let (told, tells) = chan::unbounded();
    /// let _call = context.after_func(move || told.send("over").unwrap());
    /// cancel.cancel();
    /// assert_eq!(tells.recv(), Ok("over"));
    /// ```
    pub fn after_func(&self, f: impl FnOnce() + Send + 'static) -> AfterFunc {
        let home = M::<Active>::current().and_then(M::g).map(|g| g.home().clone());
        // If the context is never done, the handle keeps `f`.
        let node = self.node.clone().unwrap_or_else(Node::top);
        let key = node.call_when_done(AfterEnd { f: Box::new(f), home });
        AfterFunc { node, key }
    }

    /// Runs `f` under this context, on the calling goroutine or plain thread. Blocks as `f` does.
    ///
    /// Once the context is done, a call of `gmp` inside that parks, or is parked, unwinds to here: channels, locks, `join`,
    /// `sleep`; a call whose error can hold a [`ContextError`] returns that instead. The calls of [`net`](crate::net),
    /// [`fs`](crate::fs), [`io`](crate::io) and [`process`](crate::process) that return an [`io::Error`](std::io::Error) do so:
    /// the error has kind `TimedOut`, or `Other` for a cancel, with the [`ContextError`] inside, and `run` returns `Ok` with
    /// whatever `f` returns after that error. An event that came before the end counts: a wait that the event has already ended
    /// ends normally, and a call that does not have to wait is not affected.
    ///
    /// The context does not end waits of other libraries: a lock, channel, `join` or `sleep` of std or of another crate, a
    /// system call that blocks, a wait inside a C function. Nor does it end a computation. Such a call, and with it `run`,
    /// continues to its own end; the next wait of this library is unwound. A loop whose calls never have to wait, since its
    /// socket or channel always has something, is not ended either: it has to ask [`err`](Self::err) each time, as the
    /// iterators [`incoming`](crate::net::TcpListener::incoming) of listeners do. Nor does the context end a wait that would
    /// have to be unwound while a goroutine has less than 5 KiB of stack left, 8 KiB in a build with debug assertions.
    ///
    /// The unwinding is that of a panic, without the panic hook: destructors run. A `catch_unwind` of the caller on the way
    /// stops the unwinding; the next call that parks unwinds again, up to three unwindings in all, and from then on this `run`
    /// interrupts no wait. [`is_interrupt`](crate::is_interrupt) tells a catcher that the payload is not a panic's, and shows
    /// how to pass the payload on. The context does not interrupt while the thread panics, nor a [`scope`](crate::scope) that
    /// waits for its goroutines, nor [`Runtime::run`](crate::Runtime::run), nor where a panic could not pass: below a function
    /// of C, say, or anywhere in a build with `panic = "abort"` or on [the `generator`
    /// backend](crate::migration#the-generator-backend). There the wait continues to its own end. The first such wait in the
    /// process is reported on standard error with the frame that is to blame, if there is one, and the runtime's report counts
    /// all of them, see [`unwinds_refused`](crate::Report::unwinds_refused). Goroutines that `f` starts do not run under the
    /// context.
    ///
    /// Destructors that the unwinding runs may park: the goroutine then keeps the thread until the unwinding is over. A
    /// `LazyLock` or `Once` whose closure is unwound is poisoned, as by a panic.
    ///
    /// Put code that must run in any case, and that may wait (for a lock, say), after `run`: inside `f` it would be skipped
    /// with the rest of `f`, or be unwound itself.
    ///
    /// `run` can be nested. An interrupt unwinds to the innermost `run` whose context is done.
    ///
    /// ```
    /// use gmp::context::{Context, ContextError};
    /// use std::time::Duration;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (context, cancel) = Context::background().with_cancel();
    ///         let worker = gmp::go(move || context.run(|| gmp::time::sleep(Duration::MAX)));
    ///         cancel.cancel();
    ///         assert_eq!(worker.join().unwrap(), Err(ContextError::Canceled));
    ///     })
    /// }
    /// ```
    ///
    /// # Unwinds
    /// When a wait of `f` is ended from outside, except by this context; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// If `f` was unwound; the error is [`err`](Self::err). If `f` returns, the result is the value of `f`, whether or not the
    /// context is done.
    ///
    /// # Panics
    /// If `f` panics.
    pub fn run<F, T>(&self, f: F) -> Result<T, ContextError>
    where
        F: FnOnce() -> T,
    {
        match &self.node {
            None => Ok(in_own_frame(f)),
            Some(node) => run::run(node, f),
        }
    }

    /// Starts a goroutine that runs `f` under this context, as [`run`](Self::run) does, in the runtime of the calling
    /// goroutine, with the class that [`with_priority`](Self::with_priority) has given to this context. Does not block. For a
    /// goroutine with a name, or with a stack of its own size, give [`Builder::go`](crate::Builder::go) a closure that calls
    /// `run`; then [`Builder::priority`](crate::Builder::priority) sets the class.
    ///
    /// The value that [`join`](JoinHandle::join) returns is `run`'s result: the context's error if the context ended a wait of
    /// `f`. If the context is done already, `f` runs up to its first wait. Goroutines that `f` starts do not run under the
    /// context, unless `f` starts them by `go` of a context, too.
    ///
    /// ```
    /// use gmp::context::{Context, ContextError};
    /// use gmp::sync::Event;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (context, cancel) = Context::background().with_cancel();
    ///         let waits = context.go(|| Event::new().wait());
    ///         let counts = context.go(|| 6 * 7);
    ///         assert_eq!(counts.join().unwrap(), Ok(42));
    ///         cancel.cancel();
    ///         assert_eq!(waits.join().unwrap(), Err(ContextError::Canceled));
    ///     })
    /// }
    /// ```
    ///
    /// # Panics
    /// As [`go`](crate::go): outside of a goroutine, and when the goroutine can get no stack.
    #[track_caller]
    pub fn go<F, T>(&self, f: F) -> JoinHandle<Result<T, ContextError>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let context = self.clone();
        match self.priority().unwrap_or_default() {
            Priority::Normal => crate::go(move || context.run(f)),
            class => {
                let sched = goroutine::here("go", goroutine::FROM_A_THREAD);
                let asked = Builder::new().priority(class);
                let spawned = goroutine::spawn_in(sched, asked, Location::caller(), move || context.run(f));
                goroutine::accepted("go", spawned)
            }
        }
    }

    /// Calls `f`. The end of this context interrupts the waits of `f` that are
    /// [`OnInterrupt::Returning`](crate::wait::interrupt::OnInterrupt).
    pub(crate) fn under<T>(&self, f: impl FnOnce() -> T) -> T {
        match &self.node {
            None => f(),
            Some(node) => run::under(node, f),
        }
    }
}

/// Returns the [`background`](Context::background).
///
/// ```
/// use gmp::context::Context;
///
/// #[derive(Default)]
/// struct Request {
///     context: Context,
/// }
///
/// assert!(Request::default().context.err().is_none());
/// ```
impl Default for Context {
    fn default() -> Self {
        Self::background()
    }
}

unwind_safe!(Context);

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("err", &self.err())
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}

/// Ends the context that was returned together with this handle, and all contexts derived from that one. Clones end the
/// same context; dropping them does nothing.
///
/// ```
/// use gmp::context::{Context, ContextError};
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (context, cancel) = Context::background().with_cancel();
///         assert!(context.err().is_none());
///         cancel.cancel();
///         assert_eq!(context.err(), Some(ContextError::Canceled));
///         assert!(context.done().recv().is_err());
///     })
/// }
/// ```
#[derive(Clone)]
pub struct Cancel {
    node: Arc<Node>,
}

impl Cancel {
    /// Ends the context by [`ContextError::Canceled`]; a context that is done keeps its error. Does not block, and can be
    /// called from anywhere. When the call returns, the context is done, and so are all contexts derived from it, even if
    /// another call, or a deadline, came first and has not finished.
    pub fn cancel(&self) {
        self.node.end(&Verdict { error: ContextError::Canceled, cause: None });
    }

    /// As [`cancel`](Self::cancel), with a [`cause`](Context::cause): a text, an error, or the cause of another
    /// context. `Cause::downcast_ref` finds an error by its type.
    ///
    /// ```
    /// use gmp::context::Context;
    /// use std::num::ParseIntError;
    ///
    /// let (context, cancel) = Context::background().with_cancel();
    /// cancel.cancel_with("the client is gone");
    /// let cause = context.cause().unwrap();
    /// assert_eq!(cause.to_string(), "the client is gone");
    ///
    /// let (context, cancel) = Context::background().with_cancel();
    /// cancel.cancel_with("x".parse::<u32>().unwrap_err());
    /// assert!(context.cause().unwrap().downcast_ref::<ParseIntError>().is_some());
    /// ```
    pub fn cancel_with(&self, cause: impl Into<Box<dyn Error + Send + Sync>>) {
        self.node.end(&Verdict { error: ContextError::Canceled, cause: Some(cause_of(cause)) });
    }

    /// Makes a guard whose drop [cancels](Self::cancel) the context: Go's `defer cancel()`. However a function ends, by a
    /// value, a `?`, a panic or an unwinding, its context is then done for the goroutines that work under it. Does not block.
    ///
    /// ```
    /// use gmp::context::{Context, ContextError};
    /// use std::time::Duration;
    ///
    /// fn first_answer() -> Result<u32, std::num::ParseIntError> {
    ///     let (context, cancel) = Context::background().with_cancel();
    ///     let _ends_with_this_call = cancel.drop_guard();
    ///     context.go(|| gmp::time::sleep(Duration::MAX));
    ///     "forty-two".parse()
    /// }
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         assert!(first_answer().is_err());
    ///         let (context, cancel) = Context::background().with_cancel();
    ///         drop(cancel.drop_guard());
    ///         assert_eq!(context.err(), Some(ContextError::Canceled));
    ///     })
    /// }
    /// ```
    #[doc(alias = "defer cancel")]
    pub fn drop_guard(self) -> DropGuard {
        DropGuard { cancel: Some(self) }
    }
}

unwind_safe!(Cancel);

/// Ends a context when dropped; made by [`Cancel::drop_guard`]. The drop does not block.
///
/// ```
/// use gmp::context::{Context, ContextError};
///
/// let (context, cancel) = Context::background().with_cancel();
/// let guard = cancel.drop_guard();
/// // All went well: the context outlives the guard.
/// let cancel = guard.disarm();
/// assert_eq!(context.err(), None);
/// cancel.cancel();
/// assert_eq!(context.err(), Some(ContextError::Canceled));
/// ```
#[derive(Debug)]
#[must_use = "a guard that is dropped at once cancels its context at once"]
pub struct DropGuard {
    /// `Some` until `disarm`.
    cancel: Option<Cancel>,
}

impl DropGuard {
    /// Takes the guard apart, so that its drop no longer cancels. Returns the handle from which the guard was made.
    pub fn disarm(mut self) -> Cancel {
        self.cancel.take().expect("disarm: consumes the guard")
    }
}

impl Drop for DropGuard {
    fn drop(&mut self) {
        if let Some(cancel) = &self.cancel {
            cancel.cancel();
        }
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("err", &self.node.err()).finish_non_exhaustive()
    }
}

/// A call that waits for the end of a context; made by [`Context::after_func`].
///
/// ```
/// use gmp::context::Context;
///
/// let (context, cancel) = Context::background().with_cancel();
/// let call = context.after_func(|| unreachable!());
/// // The work is done: there is nothing to clean up when the context ends.
/// assert!(call.stop());
/// cancel.cancel();
/// ```
pub struct AfterFunc {
    node: Arc<Node>,
    /// `None` if the call was started at once.
    key: Option<u64>,
}

// Its only user data is the function, which another goroutine calls.
unwind_safe!(AfterFunc);

impl AfterFunc {
    /// Removes and drops the function. Returns `true` if this call of `stop` did so; then the function never runs. Returns
    /// `false` if the function was started or removed before, like Go's `stop` and [`Timer::stop`](crate::time::Timer::stop).
    /// Does not block.
    ///
    /// ```
    /// use gmp::context::Context;
    ///
    /// let (context, _cancel) = Context::background().with_cancel();
    /// let call = context.after_func(|| unreachable!());
    /// assert!(call.stop());
    /// assert!(!call.stop());
    /// ```
    pub fn stop(&self) -> bool {
        self.key.and_then(|key| self.node.take_back(key)).is_some()
    }
}

opaque!(AfterFunc);
