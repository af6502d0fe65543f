//! The line between the scheduler and the world: everything that the code above asks of an operating system.
//!
//! Above the line there are no threads, clocks, statics, thread-locals or random sources; below it there are no
//! decisions. [`Host`] is the list of what crosses, [`Stack`] the part of it that runs a goroutine. The
//! scheduler is written for any `H: Host`; the public types are bound to [`Active`], which is the operating
//! system, or, under the cfg `gmp_loom`, the model of it.
//!
//! Every failure of the world is a value that comes up through here.

#[cfg(gmp_loom)]
pub mod model;
#[cfg(not(gmp_loom))]
pub(crate) mod native;

use crate::g::pool::GPool;
use crate::g::{G, GRef, Name};
use crate::m::M;
use crate::m::note::Note;
use crate::prim::AtomicU32;
use crate::sched::park::Yield;
use crate::sched::timers::timer_thread::TimerThread;
use crate::sched::watch::deadlock::Runtimes;
use crate::sched::watch::quit::Quit;
use crate::wait::interrupt::Frame;
use gmp_netpoll::{Key, Readiness};
use gmp_timers::Nanos;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::panic::Location;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// The host that the public types run on.
#[cfg(not(gmp_loom))]
pub(crate) type Active = crate::host::native::Native;
/// The host that the public types run on.
#[cfg(gmp_loom)]
pub(crate) type Active = crate::model::ModelHost;

#[cfg(not(gmp_loom))]
pub(crate) use crate::host::native::{GUARD, MAX_GUARD, MAX_STACK, MIN_STACK};
#[cfg(gmp_loom)]
pub(crate) use crate::model::{GUARD, MAX_GUARD, MAX_STACK, MIN_STACK};

/// The world of one runtime, whose goroutines have so many bytes of stacks at most.
pub(crate) fn active(max_stack_bytes: Option<usize>, guard: usize) -> io::Result<Active> {
    Active::new(max_stack_bytes, guard)
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

/// Whether an M goes without a descriptor, since there are too few of them.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Lack {
    /// It does.
    Yes,
    /// It has one, or needs none.
    No,
}

/// Why an unwinding is not certain to arrive.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Bar {
    pub(crate) why: &'static str,
    /// The frame that is to blame, if one is: the address at which its call returns.
    pub(crate) frame: Option<usize>,
}

impl Bar {
    pub(crate) const NO_CATCHER: Bar = Bar { why: "no function that catches a panic was found", frame: None };
}

/// What the scheduler asks of the world below it.
pub(crate) trait Host: Sized + Send + Sync + 'static {
    /// A goroutine's stack with its suspended context.
    type Stack: Stack<Self>;
    /// Where the sleeper of a note lies, besides the note's word.
    type SleepState: Default + Send + Sync;
    /// What each M keeps for the host.
    type Local: Default;
    /// A started thread.
    type Thread: Send;
    /// The stacks that a P keeps. To be emptied into the host before it goes.
    type StackCache: Default + Send;
    /// Whether a runtime has a monitor.
    const MONITORED: bool;
    /// Whether the frames of goroutines that run can be had: `frames_here`, `ask`.
    const SEES_RUNNING: bool;

    /// The monotonic clock, the same for all runtimes and threads.
    fn now() -> Nanos;
    /// A time of std's on that clock.
    fn nanos(at: Instant) -> Nanos;
    /// A time of that clock as std's.
    fn instant(at: Nanos) -> Instant;

    /// A number without a pattern, for a choice between equals.
    fn random() -> u32;

    /// The CPU on which the calling thread runs, for now. Zero where it is not known.
    fn cpu() -> u32;
    /// A number for the last-level cache of a CPU. The same for all where it is not known.
    fn cache_of(cpu: u32) -> u32;
    /// How many threads of the process the machine runs at the same time; asked now and then, as it changes.
    fn parallelism() -> usize;

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

    /// The timer thread, which runs the callbacks that no runtime runs. One for the whole process.
    fn timer_thread() -> &'static TimerThread<Self>;

    /// The runtimes of the process, where they are looked at together.
    fn runtimes() -> Option<&'static Runtimes<Self>>;
    /// Which monitor answers SIGQUIT. One for the whole process.
    fn quit() -> &'static Quit<Note<Self>>;
    /// Has SIGQUIT ask `quit` from now on, unless the program has said what the signal does.
    fn catch_quit();
    /// How many threads the process has, if that can be known.
    fn threads() -> Option<u32>;

    /// The M of the calling thread, by value; null on a thread that is none.
    ///
    /// Never inlined into a function that also switches stacks in a way that lets the compiler keep the
    /// *address* of the thread-local: a goroutine may resume on another thread.
    fn current() -> *const M<Self>;
    /// Makes `m` the M of the calling thread.
    fn set_current(m: *const M<Self>);

    /// The innermost frame of `Context::run` of the calling thread, which is no M's; null for none.
    fn thread_frame() -> *const Frame;
    /// Makes `frame` the innermost frame of the calling thread.
    fn set_thread_frame(frame: *const Frame);
    /// Returns `true` if the calling thread unwinds.
    fn is_panicking() -> bool;
    /// As `is_panicking`, for an M that asks on its own stack, which never changes threads: cheap, and in line. `false` in a
    /// model, whose threads share one count.
    fn unwinds() -> bool;
    /// Returns `Ok` if an unwinding that the caller begins is certain to arrive at the function in whose frame `mark`
    /// lies, and not to end the process. In doubt, an error.
    fn may_unwind_to(mark: *const ()) -> Result<(), Bar>;
    /// Returns `true` for the first call in the process.
    fn is_first_refusal() -> bool;

    /// Returns `true` if goroutines may be unwound at all. Always the same answer.
    fn can_unwind() -> bool;

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

    /// Calls `each` for the functions that a call has passed through whose return address is `pc`: those that were inlined
    /// there, innermost first, and the one that stands in the code. For none when that is not known. Takes locks, memory, and
    /// more stack than a goroutine need have.
    fn symbols(pc: usize, each: &mut dyn FnMut(Symbol<'_>));
    /// Reads the frames of the caller into `frames`.
    fn frames_here(frames: &mut Frames);
    /// Interrupts threads, by their numbers, and hands to `heard` what each of them says of itself, with its place in
    /// `threads`: all of them, in any order. Each is waited for a limited time. Takes locks, memory, and more stack
    /// than a goroutine need have; never to be asked about the calling thread.
    fn ask(threads: &[u32], heard: &mut dyn FnMut(usize, Answer));
    /// Runs a goroutine's code and stops a panic at its edge.
    fn catch(f: impl FnOnce()) -> std::thread::Result<()>;
    /// Tells the operator, once and in one line. Never fails: standard error may be closed.
    fn warn(what: &str);
    /// Writes a text as it is for the operator to read. Never fails.
    fn print(text: &str);
    /// Ends the process, with a text that says why: no goroutine in it will ever run, or SIGQUIT has asked for that.
    fn give_up(text: &str) -> !;
    /// Ends the process: it can't go on.
    fn fatal(why: &str) -> !;

    /// Waits for descriptors to become ready, and hands each to `found`. An error: it can't wait for them, now or later.
    fn poll(
        &self,
        local: &Self::Local,
        wait: PollWait,
        found: impl FnMut(Key, Readiness),
    ) -> io::Result<Broken>;
    /// Ends the wait of the M that blocks in `poll`, now or when it begins. An error: the wait goes on.
    fn break_poll(&self) -> io::Result<()>;
    /// Has the poller watch a descriptor, edge-triggered, in both directions.
    fn watch(&self, fd: RawFd, key: Key) -> io::Result<()>;
    /// Ends the watch of a descriptor.
    fn unwatch(&self, fd: RawFd) -> io::Result<()>;

    /// Reserves a stack of at least `size` bytes; `cache`: the caller's P's, if it has one. An error says what limit was
    /// met.
    fn reserve_stack(&self, cache: Option<&mut Self::StackCache>, size: usize) -> io::Result<()>;
    /// A stack that was reserved, on which the root of a goroutine waits for its first resume.
    fn new_stack(&self, cache: &mut Self::StackCache, size: usize) -> io::Result<Self::Stack>;
    /// Takes the stack of a goroutine that has ended, and its reservation.
    fn retire(&self, cache: &mut Self::StackCache, stack: Self::Stack);
    /// Takes all that is in the cache. Returns `true` if a stack was there.
    fn empty(&self, cache: &mut Self::StackCache) -> bool;
    /// A period has passed: what was not needed in it may be trimmed. Returns `false` if nothing is left that could ever be.
    fn age_stacks(&self) -> bool;
    /// Trims some of that. Returns `false` if that was all.
    fn trim_some(&self) -> bool;
    /// Fresh memory for Gs, from a page's start. `None`: there is none, and the allocator is asked.
    fn map(_bytes: usize) -> Option<NonNull<u8>> {
        None
    }
    /// Gives such memory back.
    ///
    /// # Safety
    /// `map` has given it with this size, and nothing uses it any more.
    unsafe fn unmap(_at: NonNull<u8>, _bytes: usize) {}
    /// Shows a debugger that `pool` has got these Gs. Under that pool's lock.
    fn show(_pool: *const GPool<Self>, _gs: NonNull<[G<Self>]>) {}
    /// `pool` goes, with all that was shown of it.
    fn hide(_pool: *const GPool<Self>) {}
    /// Calls `f` on another stack, of at least `size` bytes: `here` is the world of the calling goroutine, `None` on a plain
    /// thread. An unwinding passes.
    fn call_on(here: Option<&Self>, size: usize, f: &mut dyn FnMut()) -> io::Result<()>;
    /// Among the stacks that `call_on` has put under the caller (`address` lies in the caller's frame): the free
    /// bytes of the fullest one, its guard page included, and the address at which the goroutine's own stack
    /// continues. `(usize::MAX, address)` if there are none.
    fn left_of_calls(address: usize) -> (usize, usize);
    /// Called on a goroutine's stack: gives the M back to its scheduler, which finds `what` as the result of
    /// its resume. Returns when the goroutine is resumed, perhaps on another M.
    ///
    /// # Safety
    /// The caller is a goroutine that runs on `m`, its current M.
    unsafe fn suspend(m: &M<Self>, what: Yield);
}

/// What a goroutine has said: a pointer to its own stack, where it lies. Read by the M that acts on it.
#[must_use]
pub(crate) struct Said(usize);

impl Said {
    /// It has ended.
    pub(crate) const EXIT: usize = 0;

    /// Of the word with which it switched: `EXIT`, or the exposed address of a `Yield`.
    #[inline(always)]
    pub(crate) fn of(word: usize) -> Self {
        Said(word)
    }

    /// # Safety
    /// The goroutine is suspended as it was when it said that.
    #[inline(always)]
    pub(crate) unsafe fn read(self) -> Yield {
        if self.0 == Self::EXIT {
            return Yield::Exit;
        }
        // SAFETY: `Host::suspend` left a `Yield` there and does not touch it; by this function's contract the stack is as it
        // was, and as `self` goes this is the only read.
        unsafe { std::ptr::with_exposed_provenance::<Yield>(self.0).read() }
    }
}

/// A goroutine's stack with its suspended context.
pub(crate) trait Stack<H: Host>: Send {
    /// Runs `g`, whose stack it is, on `m`, the M of the calling thread, until it yields.
    ///
    /// # Safety
    /// The caller won `StatusWord::run`, so that no other thread resumes or reads this stack; the goroutine has not
    /// ended.
    unsafe fn resume(&mut self, m: &M<H>, g: GRef<H>) -> Said;

    /// How many bytes of a suspended stack are in use, where the host knows.
    fn depth(&self) -> Option<usize>;

    /// Reads the frames of a suspended stack into `frames`, where the host can: none are there otherwise, nor before the
    /// first resume. Takes no lock and allocates nothing.
    ///
    /// # Safety
    /// The caller holds the goroutine, which is not resumed meanwhile.
    unsafe fn frames(&self, frames: &mut Frames);
}

/// Where the frames of a goroutine go on, innermost first.
pub(crate) struct Frames {
    pcs: [usize; Self::MOST],
    len: usize,
}

impl Frames {
    /// How many are kept, one more for the mark that there are more.
    const MOST: usize = 64;
    /// Stands behind those that are kept when there are more.
    pub(crate) const MORE: usize = 0;

    pub(crate) const fn new() -> Self {
        Frames { pcs: [0; Self::MOST], len: 0 }
    }

    /// Adds the next one. Returns `false` if no more are wanted.
    #[cfg(not(any(feature = "generator", not(target_arch = "x86_64"))))]
    pub(crate) fn push(&mut self, pc: usize) -> bool {
        let last = self.len + 1 == Self::MOST;
        self.pcs[self.len] = if last { Self::MORE } else { pc };
        self.len += 1;
        !last
    }

    pub(crate) fn pcs(&self) -> &[usize] {
        &self.pcs[..self.len]
    }
}

/// What a thread says of itself that was asked where it is: in which goroutine, or in none, as it is on its way into one or out
/// of one. An error: why it says nothing.
pub(crate) type Answer = Result<Option<Asked>, &'static str>;

/// A goroutine that was interrupted. Its name and spawn site were read there: it may have ended since.
pub(crate) struct Asked {
    pub(crate) id: u64,
    pub(crate) name: Option<Name>,
    pub(crate) site: &'static Location<'static>,
    pub(crate) frames: Frames,
}

/// A function that lies at an address, or was inlined there.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Symbol<'a> {
    /// With its path; `None` when there is an address only.
    pub(crate) function: Option<&'a str>,
    pub(crate) file: Option<&'a str>,
    pub(crate) line: Option<u32>,
}

/// The function, and its place in the source where that is known.
impl fmt::Display for Symbol<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.function.unwrap_or("?"))?;
        match (self.file, self.line) {
            (Some(file), Some(line)) => write!(f, " ({file}:{line})"),
            _ => Ok(()),
        }
    }
}
