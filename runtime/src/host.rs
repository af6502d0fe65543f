//! The line between the scheduler and the world: everything that the code above asks of an operating system.
//!
//! Above the line there are no threads, clocks, statics, thread-locals or random sources; below it there are no
//! decisions. [`Host`] is the list of what crosses, [`Stack`] the part of it that runs a goroutine. The
//! scheduler is written for any `H: Host`; the public types are bound to [`Active`], which is the operating
//! system, or, under the cfg `gmp_loom`, the model of it.
//!
//! Every failure of the world is a value that comes up through here.

use crate::g::GRef;
use crate::m::M;
use crate::prim::AtomicU32;
use crate::sched::park::Yield;
use gmp_netpoll::{Key, Readiness};
use gmp_timers::Nanos;
use std::io;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// The host that the public types run on.
#[cfg(not(gmp_loom))]
pub(crate) type Active = crate::native::Native;
/// The host that the public types run on.
#[cfg(gmp_loom)]
pub(crate) type Active = crate::model::ModelHost;

#[cfg(gmp_loom)]
pub(crate) use crate::model::{MAX_STACK, MIN_STACK};
#[cfg(not(gmp_loom))]
pub(crate) use crate::native::{MAX_STACK, MIN_STACK};

/// The world of one runtime.
pub(crate) fn active() -> io::Result<Active> {
    Active::new()
}

/// How long a look at the poller may wait.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum PollWait {
    /// Only look.
    Never,
    /// Until something happens or this much time has passed.
    For(Duration),
    /// Until something happens.
    Forever,
}

/// Whether the poller's wait was broken from inside the runtime.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Broken {
    /// `break_poll` was called, and this look has swallowed it.
    Yes,
    /// It was not.
    No,
}

/// What the scheduler asks of the world below it.
pub(crate) trait Host: Sized + Send + Sync + 'static {
    /// A goroutine's stack with its suspended context.
    type Stack: Stack<Self>;
    /// Where the sleeper of a note lies, besides the note's word.
    type Bed: Default + Send + Sync;
    /// What each M keeps for the host.
    type Local: Default;
    /// A started thread.
    type Thread: Send;
    /// Whether a runtime has a monitor.
    const MONITORED: bool;

    /// The monotonic clock.
    fn now(&self) -> Nanos;
    /// A time of std's on that clock.
    fn nanos(&self, at: Instant) -> Nanos;

    /// Starts an OS thread.
    fn start(&self, name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Self::Thread>;
    /// Waits for the end of a thread whose body is about to return.
    fn join(thread: Self::Thread);
    /// Sleeps while `*word == expected`, at most for `limit`. May return early.
    fn sleep(bed: &Self::Bed, word: &AtomicU32, expected: u32, limit: Option<Duration>);
    /// Ends the sleep on `word`.
    fn wake(bed: &Self::Bed, word: &AtomicU32);

    /// The M of the calling thread, by value; null on a thread that is none.
    ///
    /// Never inlined into a function that also switches stacks in a way that lets the compiler keep the
    /// *address* of the thread-local: a goroutine may resume on another thread.
    fn current() -> *const M<Self>;
    /// Makes `m` the M of the calling thread.
    fn set_current(m: *const M<Self>);

    /// Runs a goroutine's code and stops a panic at its edge.
    fn catch(f: impl FnOnce()) -> std::thread::Result<()>;
    /// Tells the operator, once and in one line. Never fails: there may be nobody to hear it.
    fn warn(what: &str);
    /// Ends the process: it can't go on.
    fn fatal(why: &str) -> !;

    /// Waits for descriptors to become ready, and hands each to `found`.
    fn poll(
        &self,
        local: &Self::Local,
        wait: PollWait,
        found: impl FnMut(Key, Readiness),
    ) -> io::Result<Broken>;
    /// Ends the wait of whoever blocks in `poll`, now or when it begins.
    fn break_poll(&self);
    /// Has the poller watch a descriptor, edge-triggered, in both directions.
    fn watch(&self, fd: RawFd, key: Key) -> io::Result<()>;
    /// Ends that.
    fn unwatch(&self, fd: RawFd) -> io::Result<()>;

    /// A stack of at least `size` bytes on which the root of `g` waits for its first resume.
    fn new_stack(&self, size: usize, g: GRef<Self>) -> io::Result<Self::Stack>;
    /// Takes the stack of a goroutine that has ended.
    fn retire(&self, stack: Self::Stack);
    /// Called on a goroutine's stack: gives the M back to its scheduler, which finds `what` as the result of
    /// its resume. Returns when the goroutine is resumed, perhaps on another M.
    ///
    /// # Safety
    /// The caller is a goroutine that runs on `m`, its current M.
    unsafe fn suspend(m: &M<Self>, what: Yield);
}

/// A goroutine's stack with its suspended context.
pub(crate) trait Stack<H: Host>: Send {
    /// Runs the goroutine on `m`, the M of the calling thread, until it yields.
    ///
    /// # Safety
    /// The caller won `StatusWord::run`, so that nobody else resumes or reads this stack; the goroutine has not
    /// ended.
    unsafe fn resume(&mut self, m: &M<H>) -> Yield;

    /// How many bytes of a suspended stack are in use, where the host knows.
    fn depth(&self) -> Option<usize>;
}
