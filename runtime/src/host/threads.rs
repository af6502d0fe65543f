//! Threads: starting them, having them sleep and wake, what each knows of itself, and barriers that reach all.

use crate::prim::{Arc, AtomicU32};
use std::any::Any;
use std::io;
use std::time::Duration;

/// Whether an M goes without a descriptor, since there are too few of them.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Lack {
    /// It does.
    Yes,
    /// It has one, or needs none.
    No,
}

/// The threads of the process.
pub(crate) trait Threads: Sized + 'static {
    /// What each M keeps for the host.
    type Local: Default;
    /// Where the sleeper of a note lies, besides the note's word.
    type SleepState: Default + Send + Sync;
    /// A started thread.
    type Thread: Send;
    /// A thread, unlike any other of the process, before or later.
    type ThreadId: Copy + Eq + Send + Sync + std::fmt::Debug;
    /// The calling thread.
    fn thread_id() -> Self::ThreadId;
    /// Starts an OS thread.
    fn start(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Self::Thread>;
    /// Waits for the end of a thread whose body is about to return.
    fn join(thread: Self::Thread);
    /// Runs `f` on a thread that is no runtime's, or here when there can be none.
    fn run_aside(f: impl FnOnce() + Send + 'static);
    /// Runs `f` where there is stack enough for everything, and waits for it; not at all when there is no such place.
    fn with_room<R: Send>(f: impl FnOnce() -> R + Send) -> Option<R>;
    /// Sleeps while `*word == expected`, at most for `limit`. May return early.
    fn sleep(sleep_state: &Self::SleepState, word: &AtomicU32, expected: u32, limit: Option<Duration>);
    /// Ends the sleep on `word`.
    fn wake(sleep_state: &Self::SleepState, word: &AtomicU32);
    /// How many threads the process has, if that can be known.
    fn threads() -> Option<u32>;
    /// What the calling thread was given with `set_current`, its M, by value; null on a thread that is none.
    ///
    /// Never inlined into a function that also switches stacks in a way that lets the compiler keep the
    /// *address* of the thread-local: a goroutine may resume on another thread.
    fn current() -> *const ();
    /// The calling thread is this M from now on, whose `Local` is `now`, and no longer the one whose `Local` is `before`;
    /// null, and `None`, for none.
    fn set_current(m: *const (), before: Option<&Self::Local>, now: Option<&Self::Local>);
    /// What the calling thread, which is no M's, was given with `set_thread_frame`; null before.
    fn thread_frame() -> *const ();
    /// Keeps an address for the calling thread: of its innermost frame of `Context::run`.
    fn set_thread_frame(frame: *const ());
    /// What the calling thread, which is no M's, keeps for its `park`: made by the first call. `None` when the thread ends, and
    /// has dropped it.
    fn thread_token(make: fn() -> Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn Any + Send + Sync>>;
    /// A number without a pattern, for a choice between equals.
    fn random() -> u32;
    /// The CPU on which the calling thread runs, for now. Zero where it is not known.
    fn cpu() -> u32;
    /// A number for the last-level cache of a CPU. The same for all where it is not known.
    fn cache_of(cpu: u32) -> u32;
    /// How many threads of the process the machine runs at the same time; asked now and then, as it changes.
    fn parallelism() -> usize;
    /// Returns `true` if Ms may count on `heavy_barrier` from now on. The answer changes to `false` once at most: when the
    /// first barrier was refused.
    fn heavy_barrier_exists() -> bool;
    /// Has every running thread of the process pass a full barrier. An error when that was refused: `heavy_barrier_exists`
    /// returns `false` from before this returns.
    fn heavy_barrier() -> io::Result<()>;
    /// Has the thread of one M pass a full barrier, and one itself: slowly, for Ms that have counted on `heavy_barrier`
    /// since before it was refused. Returns `false` if that can't be had, either.
    fn slow_barrier(local: &Self::Local, thread: u32) -> bool;
    /// The calling thread begins to be an M, whose `local` this is. Returns the number by which `cpu_time` knows it,
    /// and whether there are too few descriptors to keep one for `is_blocked`.
    fn thread_begins(local: &Self::Local) -> (u32, Lack);
    /// The M has no thread any more, or `is_blocked` is not to be asked about it. By any thread, more than once if need be.
    fn thread_ends(local: &Self::Local);
    /// How long a thread has used a CPU; `None` if that is not known.
    fn cpu_time(thread: u32) -> Option<Duration>;
    /// Returns `true` if the M's thread waits in the kernel, and not only for a CPU. By any thread. An error if that is not
    /// known.
    fn is_blocked(local: &Self::Local) -> io::Result<bool>;
}
