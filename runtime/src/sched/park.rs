//! Leaving an M: park, yield, end. What a goroutine says on giving the M back, and what the M does then.
//!
//! A parker that published its record and suspended itself after that could be readied in between, and run on a second M before
//! the context is saved. So the M publishes:
//!
//! ```text
//!   goroutine                        M, on its own stack
//!   open the wait, queue the record
//!   suspend ───── saved ──────────▶  K1 status := Waiting
//!                                    K2 arms the wait's timer; commit hook: publishes the record (unlocks its queue)
//!                                       Refuse: K3 status := Running, resume at once
//! ```
//! A goroutine that may be interrupted has two steps more: between K1 and K2 a look for an interrupt (`wait/interrupt.rs`),
//! after K2 the permission to nudge the goroutine. No nudge may wake the goroutine before K2 is over, as the hook writes down
//! where the wait's timer stands.
//!
//! K1 comes before K2: a waker that finds the record may ready the goroutine at once, on another M, and the context is saved by
//! then. The M moves the hook to the M's own stack before running the hook, and neither the hook nor the M touches the G after
//! the record was published, except for the G's word: the G may have run on and ended.
//!
//! Where the user has functions around each switch, a goroutine does K2 by itself, and suspends itself later: `switch.rs`.
//!
//! Checked by `models/park.rs`.

use crate::g::{self, GRef};
use crate::host::{EXIT, Host};
use crate::m::{M, Window};
use crate::prim::hooks::*;
use crate::sched::Sched;
use crate::sched::timers::Alarm;
use crate::wait::interrupt;
use crate::wait::status::{Again, CancelPark, Run, Then, WaitNumber};
use gmp_timers::Nanos;
use std::mem::ManuallyDrop;

/// Why a goroutine waits, for dumps. The texts are Go's where Go has the same reason.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
pub(crate) enum WaitReason {
    /// The goroutine does not wait.
    None,
    /// `JoinHandle::join`.
    Join,
    /// `time::sleep`.
    Sleep,
    /// A socket has nothing to read, or no connection to accept.
    IoRead,
    /// A socket takes no more, or is not connected yet.
    IoWrite,
    /// Another goroutine or thread is reading or writing the same socket.
    IoLock,
    /// The close of a socket waits for system calls that others make.
    IoClose,
    /// `sync::Event`.
    Event,
    /// `gmp::park`.
    Park,
    /// `gmp::block_on`: a future is pending.
    Future,
    /// A channel has no message.
    ChanReceive,
    /// A channel has no room.
    ChanSend,
    /// `select!`, or `chan::Select`.
    Select,
    /// A disabled channel, for ever.
    Never,
    /// `scope`, for its children.
    Scope,
    /// `join` and `fork_scope`, for a job that another has taken.
    Fork,
    /// `Runtime::run`, when the main goroutine has called `goexit`.
    Main,
    /// For nothing: the runtime ends, and the goroutine could not be unwound.
    End,
    /// `sync::Mutex`: a lock, or the second half of a wait in a Condvar.
    Mutex,
    /// `sync::RwLock`, a read.
    RwLockRead,
    /// `sync::RwLock`, a write.
    RwLockWrite,
    /// `sync::Condvar`.
    Condvar,
    /// `sync::Once` and what is built on that.
    Once,
    /// `sync::Barrier`.
    Barrier,
    /// `sync::WaitGroup`.
    WaitGroup,
    /// `sync::Semaphore`.
    Semaphore,
    /// As many file calls are under way as may be.
    FileLine,
    /// As many name look-ups are under way as may be.
    LookupLine,
    /// A user's own wait, through `gmp::model`.
    #[cfg(gmp_loom)]
    Model,
}

impl WaitReason {
    /// For dumps.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            WaitReason::None => "running",
            WaitReason::Join => "join",
            WaitReason::Sleep => "sleep",
            WaitReason::IoRead => "IO wait, read",
            WaitReason::IoWrite => "IO wait, write",
            WaitReason::IoLock => "IO wait, turn",
            WaitReason::IoClose => "IO wait, close",
            WaitReason::Event => "event",
            WaitReason::Park => "park",
            WaitReason::Future => "future",
            WaitReason::ChanReceive => "chan receive",
            WaitReason::ChanSend => "chan send",
            WaitReason::Select => "select",
            WaitReason::Never => "chan receive (never)",
            WaitReason::Scope => "scope",
            WaitReason::Fork => "fork",
            WaitReason::Main => "main goroutine has exited",
            WaitReason::End => "left by the end of its runtime",
            WaitReason::Mutex => "sync.Mutex.Lock",
            WaitReason::RwLockRead => "sync.RWMutex.RLock",
            WaitReason::RwLockWrite => "sync.RWMutex.Lock",
            WaitReason::Condvar => "sync.Cond.Wait",
            WaitReason::Once => "sync.Once.Do",
            WaitReason::Barrier => "barrier",
            WaitReason::WaitGroup => "sync.WaitGroup.Wait",
            WaitReason::Semaphore => "semacquire",
            WaitReason::FileLine => "file call, in line",
            WaitReason::LookupLine => "name look-up, in line",
            #[cfg(gmp_loom)]
            WaitReason::Model => "model",
        }
    }
}

/// The commit hook's answer.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Commit {
    /// The wait is published: sleep.
    Park,
    /// What the caller waits for has come: go on.
    Refuse,
}

/// The commit hook, with the type erased: a closure on the goroutine's stack that the M moves out and calls.
pub(crate) struct Hook {
    closure: *const (),
    call: unsafe fn(*const ()) -> Commit,
}

impl Hook {
    /// `closure` is not used otherwise, and stays where it is until the hook is called.
    pub(crate) fn new<F: FnOnce() -> Commit>(closure: &ManuallyDrop<F>) -> Self {
        Hook { closure: (&raw const *closure).cast(), call: Self::call_moved::<F> }
    }

    /// # Safety
    /// `closure` points to an `F` that is not used, or dropped, afterwards.
    unsafe fn call_moved<F: FnOnce() -> Commit>(closure: *const ()) -> Commit {
        // SAFETY: by this function's contract. The closure is moved to this stack before it can publish anything.
        let closure = unsafe { closure.cast::<F>().read() };
        closure()
    }

    /// # Safety
    /// The goroutine that made the hook is suspended, or calls it itself in the frame in which the closure lies; and the hook
    /// is called once.
    pub(crate) unsafe fn call(self) -> Commit {
        // SAFETY: by this function's contract.
        unsafe { (self.call)(self.closure) }
    }
}

/// What a goroutine says to the M on leaving.
pub(crate) enum Yield {
    /// Sleep until readied.
    Park(WaitNumber, Hook),
    /// Sleep on.
    ParkAgain(WaitNumber),
    /// Run others first.
    Requeue,
    /// The M has lost the P meanwhile: take one, or wait for one.
    Return,
    /// The end. The stack is not needed any more.
    Exit,
    /// What is said seldom, so that the others are told apart by fewer comparisons.
    Seldom(Seldom),
}

/// See [`Yield::Seldom`].
pub(crate) enum Seldom {
    /// Go on: the goroutine has bound itself to this M. May be said without a P, and outside of the runtime.
    Tie,
    /// As `Requeue`, and before the others the goroutine at this address, which is only compared: `run/turn.rs`.
    Turn(*const ()),
    /// The goroutine is about to block its thread, and others wait for the P: another M is to go on with it, without a P.
    Call,
}

/// What a goroutine has said: a pointer to a `Yield` on the goroutine's own stack. Read by the M that acts on that.
#[must_use]
pub(crate) struct Said(usize);

impl Said {
    /// From the word that the goroutine passed to the switch: `EXIT`, or the exposed address of a `Yield`.
    #[inline(always)]
    pub(crate) fn of(word: usize) -> Self {
        Said(word)
    }

    /// # Safety
    /// The goroutine is still suspended, and has not run since.
    #[inline(always)]
    pub(crate) unsafe fn read(self) -> Yield {
        if self.0 == EXIT {
            return Yield::Exit;
        }
        // SAFETY: `M::suspend` left a `Yield` there and does not touch it; by this function's contract the stack is as it
        // was, and as `self` goes this is the only read.
        unsafe { std::ptr::with_exposed_provenance::<Yield>(self.0).read() }
    }
}

/// Notes for dumps why the calling goroutine waits, and since when.
#[inline(always)]
pub(crate) fn note<H: Host>(window: &Window<H>, reason: WaitReason) {
    let g = window.g();
    g.reason.set(reason);
    g.since.set(window.m().sched().coarse_now());
}

/// Parks the calling goroutine until the wait is readied or nudged, or `hook` refuses.
#[inline]
pub(crate) fn gopark<H: Host>(window: Window<H>, number: WaitNumber, reason: WaitReason, hook: Hook) {
    note(&window, reason);
    window.suspend(Yield::Park(number, hook));
}

/// As `gopark`, with a timer that claims the wait.
pub(crate) fn gopark_until<H: Host>(
    window: Window<H>,
    number: WaitNumber,
    reason: WaitReason,
    (due, alarm): (Nanos, *const Alarm<H>),
    commit: impl FnOnce() -> Commit,
) {
    let (g, p, sched) = (window.g(), window.p(), window.m().sched());
    let commit = ManuallyDrop::new(move || {
        // Before the rest is published: no waker but the timer may wake the goroutine until the timer's place is noted.
        sched.arm(p, alarm, due, (g, number));
        commit()
    });
    gopark(window, number, reason, Hook::new(&commit));
}

impl<H: Host> Sched<H> {
    /// K1 to K3. Returns `true` if the goroutine is to be resumed at once.
    #[inline(always)]
    pub(crate) fn park(&self, g: GRef<H>, number: WaitNumber, hook: Hook) -> bool {
        mutant!(ParkStatusAfterCommit: return self.park_after_the_hook(g, number, hook));
        let listens = g.interrupt_policy.listens();
        g.word.park(number);
        let interrupted = listens && interrupt::is_interrupted(g, self.is_ending());
        // For loom: the hook, which is moved from the goroutine's stack now, before it can publish anything.
        g.stack.with(|_| ());
        // SAFETY: `g` has just been saved by its suspend, and this is the only call.
        match unsafe { hook.call() } {
            Commit::Park => {
                let looks = listens && g.word.make_known(number, interrupted) == Then::Queue;
                mutant!(InterruptedIsQueued: if looks { self.submit(g); return false });
                // At once: see `wait/interrupt.rs`. A holder that came first queues the goroutine (`unhold`).
                looks && g.word.run() == Run::Go
            }
            Commit::Refuse => g.word.cancel_park(number) == CancelPark::Resume,
        }
    }

    /// The goroutine sleeps on in a wait that was published before. Returns `true` if the M is to resume `g` at once.
    pub(crate) fn park_again(&self, g: GRef<H>, number: WaitNumber) -> bool {
        g.word.park_again(number) == Again::Awake
    }

    /// The end of a goroutine, on the goroutine's M.
    #[inline(always)]
    pub(crate) fn goexit0(&self, m: &M<H>, g: GRef<H>) {
        m.set_g(None);
        // SAFETY: this M ran the goroutine, whose status is still Running.
        let stack = g.stack.with_mut(|stack| unsafe { (*stack).take() });
        self.retire_stack(m, stack.expect("exit: the goroutine has no stack"));
        g.word.finish();
        m.count_live(-i64::from(g.counts()));
        g::finish(g);
    }
}
