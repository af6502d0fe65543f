//! The operating system: Linux threads, stacks, the context switch, the clock, the poller.
//!
//! Below the line: what stands here decides nothing. Everything that depends on an OS or a CPU is in this folder
//! and in `gmp_netpoll::Poller`.

mod clock;
mod current;
mod hook;
mod thread;

#[cfg(not(any(feature = "generator", not(target_arch = "x86_64"))))]
mod stack;
#[cfg(any(feature = "generator", not(target_arch = "x86_64")))]
#[path = "generator.rs"]
mod switch;
#[cfg(not(any(feature = "generator", not(target_arch = "x86_64"))))]
mod switch;

use crate::g::{self, GRef};
use crate::host::{Broken, Host, PollWait, Stack};
use crate::m::{M, Window};
use crate::prim::AtomicU32;
use crate::sched::park::Yield;
use gmp_netpoll::{Events, Key, Poller, Readiness, Timeout, Woken};
use gmp_timers::Nanos;
use std::cell::RefCell;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{BorrowedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use switch::{Coro, End, Home};

#[cfg(not(any(feature = "generator", not(target_arch = "x86_64"))))]
pub(crate) use stack::{MAX_STACK, MIN_STACK, StackPool};
#[cfg(any(feature = "generator", not(target_arch = "x86_64")))]
pub(crate) use switch::{MAX_STACK, MIN_STACK, StackPool};

/// Writes a line to standard error, if anybody reads it. `eprintln!` would panic where nobody does.
fn say(what: std::fmt::Arguments<'_>) {
    let _nobody_listens = writeln!(io::stderr(), "{what}");
}

/// Descriptors that one look at the poller reports at most.
const EVENTS: usize = 128;

/// The operating system, as one runtime sees it.
pub(crate) struct Native {
    clock: clock::Clock,
    poller: Poller,
    stacks: StackPool,
}

/// What an M keeps for the host.
pub(crate) struct Local {
    home: Home,
    events: RefCell<Events>,
}

impl Default for Local {
    fn default() -> Self {
        Local { home: Home::new(), events: RefCell::new(Events::with_capacity(EVENTS)) }
    }
}

impl Native {
    /// # Errors
    /// When the kernel refuses the poller's descriptors.
    pub(crate) fn new() -> io::Result<Self> {
        hook::install();
        Ok(Native { clock: clock::Clock::new(), poller: Poller::new()?, stacks: StackPool::new(None) })
    }
}

impl Host for Native {
    type Stack = NativeStack;
    type Bed = ();
    type Local = Local;
    type Thread = std::thread::JoinHandle<()>;
    const MONITORED: bool = true;

    #[inline]
    fn now(&self) -> Nanos {
        self.clock.now()
    }

    fn nanos(&self, at: Instant) -> Nanos {
        self.clock.nanos(at)
    }

    fn start(&self, name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Self::Thread> {
        thread::start(name, body)
    }

    fn join(thread: Self::Thread) {
        // Its body ends the process rather than unwind.
        let _ended = thread.join();
    }

    fn sleep((): &(), word: &AtomicU32, expected: u32, limit: Option<Duration>) {
        thread::futex_wait(word, expected, limit);
    }

    fn wake((): &(), word: &AtomicU32) {
        thread::futex_wake(word);
    }

    #[inline(always)]
    fn current() -> *const M<Self> {
        current::get().cast()
    }

    fn set_current(m: *const M<Self>) {
        current::set(m.cast());
    }

    fn catch(f: impl FnOnce()) -> std::thread::Result<()> {
        catch_unwind(AssertUnwindSafe(f))
    }

    fn warn(what: &str) {
        say(format_args!("gmp: {what}"));
    }

    fn fatal(why: &str) -> ! {
        say(format_args!("fatal error: {why}"));
        std::process::abort()
    }

    fn poll(
        &self,
        local: &Local,
        wait: PollWait,
        mut found: impl FnMut(Key, Readiness),
    ) -> io::Result<Broken> {
        let mut events = local.events.borrow_mut();
        let timeout = match wait {
            PollWait::Never => Timeout::Zero,
            PollWait::For(limit) => Timeout::After(limit),
            PollWait::Forever => Timeout::Forever,
        };
        let woken = self.poller.wait(&mut events, timeout)?;
        for event in events.iter() {
            found(event.key, event.readiness);
        }
        Ok(match woken {
            Woken::Yes => Broken::Yes,
            Woken::No => Broken::No,
        })
    }

    fn break_poll(&self) {
        // The eventfd takes 2^64 - 2 wakes without anybody looking; nothing else can fail.
        self.poller.wake().expect("break_poll: the poller's eventfd is not writable");
    }

    fn watch(&self, fd: RawFd, key: Key) -> io::Result<()> {
        // SAFETY: the socket that asks owns the descriptor and outlives the call.
        self.poller.add(unsafe { BorrowedFd::borrow_raw(fd) }, key)
    }

    fn unwatch(&self, fd: RawFd) -> io::Result<()> {
        // SAFETY: as in `watch`.
        self.poller.remove(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    fn new_stack(&self, size: usize, g: GRef<Self>) -> io::Result<NativeStack> {
        Ok(NativeStack { coro: Coro::new(&self.stacks, size, entry)?, first: Some(g) })
    }

    fn retire(&self, stack: NativeStack) {
        stack.coro.retire(&self.stacks);
    }

    #[inline(always)]
    unsafe fn suspend(m: &M<Self>, what: Yield) {
        let what = ManuallyDrop::new(what);
        let home: *const Home = &raw const m.local.home;
        // SAFETY: the caller runs on `m`. The M reads `what` once, before anybody can resume this goroutine, and
        // nothing here uses `m` afterwards.
        unsafe { switch::suspend(home, (&raw const what).expose_provenance()) };
    }
}

/// A goroutine's stack.
pub(crate) struct NativeStack {
    coro: Coro,
    /// The goroutine, until its first resume.
    first: Option<GRef<Native>>,
}

// SAFETY: a suspended stack belongs to whoever holds this value; what its frames may keep across a switch is the
// contract of `gmp::migration`, under which the runtime was started.
unsafe impl Send for NativeStack {}

impl Stack<Native> for NativeStack {
    #[inline(always)]
    unsafe fn resume(&mut self, m: &M<Native>) -> Yield {
        let word = match self.first.take() {
            Some(g) => g.to_raw().expose_provenance(),
            None => 0,
        };
        // SAFETY: the caller won the right to run this goroutine, which has not ended, on `m`.
        let said = unsafe { self.coro.resume(&m.local.home, word) };
        if said == 0 {
            return Yield::Exit;
        }
        // SAFETY: `suspend` left a `Yield` there, on the stack that has just been saved, and does not touch it.
        unsafe { std::ptr::with_exposed_provenance::<Yield>(said).read() }
    }

    fn depth(&self) -> Option<usize> {
        self.coro.depth()
    }
}

/// The first code on a goroutine's stack, and the last.
unsafe extern "C" fn entry(word: usize) -> End {
    // SAFETY: `resume` passed the goroutine, whose M holds it.
    let g = unsafe { GRef::<Native>::from_raw(std::ptr::with_exposed_provenance_mut(word)) };
    g::root(g);
    // The end is inside the runtime, like a park.
    let window = Window::<Native>::enter().expect("entry: a goroutine runs on an M");
    let home = &raw const window.m().local.home;
    std::mem::forget(window);
    End { home, word: 0 }
}
