//! Telling goroutines to stop: [`Context`], [`Cancel`]; Go's package `context`.
//!
//! ```text
//!   background ── with_cancel ── with_timeout ── with_value ─ …      done: reaches everything to the right
//!        └─────── with_cancel                                              never anything to the left
//! ```
//! A context is two things. A *node* (`tree.rs`), which is open until it is done, once, with an error and a cause; nodes
//! form a tree, and with one all below it are done. And a chain of *values*, newest first; a context with one value more
//! is the same node.
//!
//! Whoever runs under a context ([`Context::run`], `run.rs`) is interrupted when it is done: `wait/interrupt.rs`.

mod deadline;
mod done;
mod run;
mod tree;

use crate::chan::Receiver;
pub(crate) use tree::interrupted;

use crate::host::{Active, Host};
use crate::m::M;
use crate::prim::Arc;
use std::any::Any;
use std::error::Error;
use std::fmt;
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::{Duration, Instant};
use tree::{Deadline, Node, Verdict};

/// Why a context is done, in the caller's own terms.
pub type Cause = Arc<dyn Error + Send + Sync>;

/// What a group of goroutines works under: it can be cancelled, has a deadline, or carries values. Clones are the same
/// context. Go's `context.Context`.
///
/// Contexts are derived from others. When one is done, all that were derived from it are, in bounded stack and in one
/// pass; never the other way round. A context that nobody holds any more, itself or through a derived one, leaves nothing
/// behind, no timer either.
///
/// A goroutine learns of it by looking at [`err`](Self::err), by waiting for [`done`](Self::done), or by running under it
/// ([`run`](Self::run)): then its waits end. Goroutines that it starts do not run under it by themselves.
///
/// The order of an end: when [`err`](Self::err), or an error of a call, tells that a context is done, its
/// [`done`](Self::done) is closed; when `done` is closed, `err` tells why. The context itself comes first, those that were
/// derived from it a moment later; when [`Cancel::cancel`] returns, all of them are done, whoever has ended them. What was
/// asked for by [`after_func`](Self::after_func) is started after that, by whoever has ended the context first: a
/// canceller, before
/// `cancel` returns, or the deadline's timer.
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
    node: Arc<Node>,
    values: Option<Arc<Value>>,
}

/// One more value than the chain before.
struct Value {
    value: Box<dyn Any + Send + Sync>,
    older: Option<Arc<Value>>,
}

impl Drop for Value {
    fn drop(&mut self) {
        // Not by recursion: the chain may be long.
        let mut older = self.older.take();
        while let Some(it) = older {
            older = Arc::into_inner(it).and_then(|mut it| it.older.take());
        }
    }
}

/// A deadline that the user names.
fn named(deadline: Instant) -> Deadline {
    Deadline { at: Active::nanos(deadline), given: Some(deadline) }
}

/// A deadline counted from now.
fn counted(timeout: Duration) -> Deadline {
    Deadline { at: Active::now().saturating_add(timeout), given: None }
}

impl Context {
    /// Never done, without values: what others are derived from.
    pub fn background() -> Self {
        Context { node: Node::endless(), values: None }
    }

    fn with_node(&self, node: Arc<Node>) -> (Context, Cancel) {
        (Context { node: Arc::clone(&node), values: self.values.clone() }, Cancel { node })
    }

    /// A context that is done when it is cancelled, or this one is done.
    pub fn with_cancel(&self) -> (Context, Cancel) {
        self.with_node(Node::derive(&self.node, None, None))
    }

    /// A context that is done at `deadline`, when it is cancelled, or when this one is done: at once where that has passed. It
    /// holds a timer until then, none when this one's deadline is not later.
    pub fn with_deadline(&self, deadline: Instant) -> (Context, Cancel) {
        self.with_node(Node::derive(&self.node, Some(named(deadline)), None))
    }

    /// The same, with the [`cause`](Self::cause) for when the deadline passes.
    pub fn with_deadline_cause(&self, deadline: Instant, cause: impl Into<Cause>) -> (Context, Cancel) {
        self.with_node(Node::derive(&self.node, Some(named(deadline)), Some(cause.into())))
    }

    /// As [`with_deadline`](Self::with_deadline), counted from now.
    pub fn with_timeout(&self, timeout: Duration) -> (Context, Cancel) {
        self.with_node(Node::derive(&self.node, Some(counted(timeout)), None))
    }

    /// As [`with_deadline_cause`](Self::with_deadline_cause), counted from now.
    pub fn with_timeout_cause(&self, timeout: Duration, cause: impl Into<Cause>) -> (Context, Cancel) {
        self.with_node(Node::derive(&self.node, Some(counted(timeout)), Some(cause.into())))
    }

    /// A context with one value more, to be asked for by its type. It is done when this one is.
    ///
    /// ```
    /// use gmp::context::Context;
    ///
    /// struct RequestId(u64);
    ///
    /// let ctx = Context::background().with_value(RequestId(7)).with_value("other");
    /// assert_eq!(ctx.value::<RequestId>().unwrap().0, 7);
    /// assert!(ctx.value::<u64>().is_none());
    /// ```
    pub fn with_value<T: Send + Sync + 'static>(&self, value: T) -> Context {
        let value = Value { value: Box::new(value), older: self.values.clone() };
        Context { node: Arc::clone(&self.node), values: Some(Arc::new(value)) }
    }

    /// The value of this type that was added last, by this context or one from which it was derived.
    pub fn value<T: Send + Sync + 'static>(&self) -> Option<&T> {
        let mut at = self.values.as_deref();
        while let Some(it) = at {
            if let Some(value) = it.value.downcast_ref() {
                return Some(value);
            }
            at = it.older.as_deref();
        }
        None
    }

    /// A context with the same values that is never done.
    pub fn without_cancel(&self) -> Context {
        Context { node: Node::endless(), values: self.values.clone() }
    }

    /// Why it is done; `None` as long as it is not. Once there is an error, [`done`](Self::done) is closed. Does not block.
    pub fn err(&self) -> Option<ContextError> {
        self.node.err()
    }

    /// The cause that was given when it, or the one that ended it, was ended; the [`ContextError`] itself where none was.
    /// `None` as long as it is not done.
    pub fn cause(&self) -> Option<Cause> {
        self.node.cause()
    }

    /// A channel that is closed when the context is done, and on which nothing is sent: waiting for it is waiting for
    /// that. Once it is closed, [`err`](Self::err) tells why. It is made by the first call. Does not block.
    pub fn done(&self) -> &Receiver<()> {
        self.node.receiver()
    }

    /// When it is done at the latest, if it has a deadline, or one from which it was derived: the instant that was given to
    /// [`with_deadline`](Self::with_deadline), unchanged, or the one that was counted from the timeout. Does not block.
    pub fn deadline(&self) -> Option<Instant> {
        self.node.deadline()
    }

    /// Has `f` called when the context is done, at once if it is: in a goroutine of its own, in the runtime of the calling
    /// goroutine; on a thread of its own when a plain thread calls this, or that runtime has ended. Does not block.
    ///
    /// Dropping the handle does not stop it. The handle holds the context; when nobody does any more, `f` is dropped.
    pub fn after_func(&self, f: impl FnOnce() + Send + 'static) -> AfterFunc {
        let home = M::<Active>::current().and_then(M::g).map(|g| g.home().clone());
        let key = self.node.call_when_done(tree::AfterEnd { f: Box::new(f), home });
        AfterFunc { node: Arc::clone(&self.node), key }
    }

    /// Runs `f` under this context, on the caller, a goroutine or a plain thread. Blocks what `f` blocks.
    ///
    /// Once the context is done, a call of `gmp` inside that parks, or is parked, unwinds to here: channels, locks, `join`,
    /// `sleep`; a call whose error can hold a [`ContextError`] returns that instead. Those of [`net`](crate::net) do: an
    /// [`io::Error`] of kind `TimedOut`, or `Other` for a cancel, with the [`ContextError`] inside, and `run` gives
    /// `Ok` of what `f` makes of it. What has happened by then counts: a
    /// wait that another has ended first ends normally, and a call that does not have to wait does what it does.
    ///
    /// It does not end a wait that is not this library's: a lock, channel, `join` or `sleep` of std's or of another crate's, a
    /// system call that blocks, a wait inside a function of C. It does not end a computation either. Such a call goes on
    /// until it returns by itself, and `run` with it; the next wait of this library is unwound. Nor does it end a wait that
    /// would have to be unwound where a goroutine has less than 5 KiB of its stack left, 8 KiB in a build with debug
    /// assertions.
    ///
    /// It unwinds as a panic does, without the panic hook: destructors run. A `catch_unwind` of the caller's on the way
    /// stops it; the next call that parks unwinds again, three times, and from then on this `run` interrupts nothing.
    /// [`is_interrupt`](crate::is_interrupt) tells such a catcher that what it has caught is no panic, and shows how it passes
    /// that on.
    /// It does not interrupt while the thread panics, nor a [`scope`](crate::scope) that waits for its goroutines, nor
    /// [`Runtime::run`](crate::Runtime::run), nor where a panic could not pass: below a function of C, say, or anywhere on
    /// [the `generator` backend](crate::migration#the-generator-backend). There the wait goes on until it ends by itself; the first
    /// one in the process is told on standard error with the frame that is to blame, if there is one, and the runtime's report
    /// counts them, see [`unwinds_refused`](crate::Report::unwinds_refused). Goroutines
    /// that `f` starts do not run under the context.
    ///
    /// Destructors that it runs may park: the goroutine then keeps its thread until the unwinding is over. A `LazyLock`
    /// or `Once` whose closure is unwound is poisoned, as by a panic.
    ///
    /// `run` may be nested. Each unwinds to itself, the innermost first whose context is done.
    ///
    /// # Unwinds
    /// When a wait of `f` is ended from outside, but by this context; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// `f` was unwound, with [`err`](Self::err). When `f` returns its value is given, whether the context is done or not.
    ///
    /// # Panics
    /// When `f` does.
    pub fn run<F, T>(&self, f: F) -> Result<T, ContextError>
    where
        F: FnOnce() -> T,
    {
        run::run(&self.node, f)
    }

    /// Calls `f`, whose waits hear of this context by [`OnInterrupt::Returning`](crate::wait::interrupt::OnInterrupt).
    pub(crate) fn under<T>(&self, f: impl FnOnce() -> T) -> T {
        run::under(&self.node, f)
    }
}

impl UnwindSafe for Context {}
impl RefUnwindSafe for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("err", &self.err())
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}

/// Ends the context with which it was made, and all that were derived from that. Clones are the same; dropping them does
/// nothing.
#[derive(Clone)]
pub struct Cancel {
    node: Arc<Node>,
}

impl Cancel {
    /// Ends the context by [`ContextError::Canceled`]; a context that is done keeps its error. Does not block, and may be
    /// called from anywhere. When it returns the context is done, and so are all that were derived from it, also where another
    /// call, or a deadline, came first and is still about it.
    pub fn cancel(&self) {
        self.node.end(&Verdict { error: ContextError::Canceled, cause: None });
    }

    /// The same, with the [`cause`](Context::cause).
    pub fn cancel_with(&self, cause: impl Into<Cause>) {
        self.node.end(&Verdict { error: ContextError::Canceled, cause: Some(cause.into()) });
    }
}

impl UnwindSafe for Cancel {}
impl RefUnwindSafe for Cancel {}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("err", &self.node.err()).finish_non_exhaustive()
    }
}

/// A call that waits for its context; made by [`Context::after_func`].
pub struct AfterFunc {
    node: Arc<Node>,
    /// None: it was started at once.
    key: Option<u64>,
}

impl AfterFunc {
    /// Takes the call back, and drops it. Returns `true` if this call did that; then it will never run. Returns `false` if it
    /// was started, or was stopped before, as Go's `stop` and [`Timer::stop`](crate::time::Timer::stop). Does not block.
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

impl fmt::Debug for AfterFunc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AfterFunc").finish_non_exhaustive()
    }
}

/// Why a context is done.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
pub enum ContextError {
    /// It was cancelled.
    Canceled,
    /// Its deadline has passed.
    DeadlineExceeded,
}

impl fmt::Display for ContextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ContextError::Canceled => "context canceled",
            ContextError::DeadlineExceeded => "context deadline exceeded",
        })
    }
}

impl Error for ContextError {}

/// `TimedOut` for a deadline. A cancel is `Other`: not `Interrupted`, after which std's helpers try again.
impl From<ContextError> for io::Error {
    fn from(error: ContextError) -> Self {
        let kind = match error {
            ContextError::Canceled => io::ErrorKind::Other,
            ContextError::DeadlineExceeded => io::ErrorKind::TimedOut,
        };
        io::Error::new(kind, error)
    }
}
