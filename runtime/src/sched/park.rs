//! Leaving an M: park, yield, end. What a goroutine asks of the M when it gives the M back, and what the M then does.
//!
//! If a parker published its record and then suspended itself, a waker could ready the parker in between, and a second M could
//! run that goroutine before its context is saved. So the M publishes the record:
//!
//! ```text
//!   goroutine                        M, on its own stack
//!   open the wait, queue the record
//!   suspend ───── saved ──────────▶  K1 status := Waiting
//!                                    K2 arms the wait's timer; commit hook: publishes the record (unlocks its queue)
//!                                       Refuse: K3 status := Running, resume at once
//! ```
//! For a goroutine that can be interrupted the M takes two more steps: between K1 and K2 it looks for an interrupt
//! (`wait/interrupt.rs`), and after K2 it permits nudges (`make_known`). No nudge of an interrupter may wake the goroutine
//! before K2 is over, because K2 stores the place of the wait's timer.
//!
//! K2 arms the timer while the lock of the wait queue is still held. So `arm` sets no queued goroutine aside if the runtime
//! ends: the abandon hooks of queued goroutines take such locks. `arm` need not do that, because it queues no goroutine: the
//! submitter of a goroutine looks for the end of the runtime after SubmitFence, or else the ender sees that goroutine after
//! StopFence.
//!
//! K1 comes before K2: a waker that finds the record can ready the goroutine at once, for another M, and by then the context is
//! saved. The M moves the hook to its own stack before running the hook. After the record is published neither the hook nor the
//! M touches anything of the G but its status word: the goroutine might have run on and ended.
//!
//! If the user has registered functions around each switch, a goroutine does K2 by itself, and suspends itself later:
//! `switch.rs`.
//!
//! Checked by `models/park.rs`.

use crate::g::{self, GRef};
use crate::host::{EXIT, Host};
use crate::m::{M, Window};
use crate::prim::hooks::*;
use crate::sched::Sched;
use crate::sched::timers::WaitTimer;
use crate::wait::interrupt;
use crate::wait::status::{Again, CancelPark, Run, Then, WaitNumber};
use gmp_timers::Nanos;
use std::mem::ManuallyDrop;

/// Declares `WaitReason`: each reason with its text.
macro_rules! reasons {
    ($($(#[doc = $doc:literal])* $(#[cfg($when:meta)])? $reason:ident = $text:literal,)*) => {
        /// Why a goroutine waits, for dumps. The texts are Go's where Go has the same reason.
        #[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
        pub(crate) enum WaitReason {
            $($(#[doc = $doc])* $(#[cfg($when)])? $reason,)*
        }

        impl WaitReason {
            /// The text of each reason, in the order of the enum; debuggers read this, too.
            pub(crate) const TEXTS: &[&str] = &[$($(#[cfg($when)])? $text,)*];
        }
    };
}

reasons! {
    /// The goroutine does not wait.
    None = "running",
    /// `JoinHandle::join`.
    Join = "join",
    /// `time::sleep`.
    Sleep = "sleep",
    /// A socket has nothing to read, or no connection to accept.
    IoRead = "IO wait, read",
    /// A socket takes no more, or is not connected yet.
    IoWrite = "IO wait, write",
    /// Another goroutine or thread is reading or writing the same socket.
    IoLock = "IO wait, turn",
    /// The close of a socket waits for system calls that others make.
    IoClose = "IO wait, close",
    /// `sync::Event`.
    Event = "event",
    /// `gmp::park`.
    Park = "park",
    /// `gmp::block_on`: a future is pending.
    Future = "future",
    /// A channel has no message.
    ChanReceive = "chan receive",
    /// A channel has no room.
    ChanSend = "chan send",
    /// `select!`, or `chan::Select`.
    Select = "select",
    /// A disabled channel, for ever.
    Never = "chan receive (never)",
    /// `scope`, for its children.
    Scope = "scope",
    /// `join` and `fork_scope`, for a job that another has taken.
    Fork = "fork",
    /// `Runtime::run`, when the main goroutine has called `goexit`.
    Main = "main goroutine has exited",
    /// For nothing: the runtime ends, and the goroutine could not be unwound.
    End = "left by the end of its runtime",
    /// `sync::Mutex`: a lock, or the second half of a wait in a Condvar.
    Mutex = "sync.Mutex.Lock",
    /// `sync::RwLock`, a read.
    RwLockRead = "sync.RWMutex.RLock",
    /// `sync::RwLock`, a write.
    RwLockWrite = "sync.RWMutex.Lock",
    /// `sync::Condvar`.
    Condvar = "sync.Cond.Wait",
    /// `sync::Once` and what is built on that.
    Once = "sync.Once.Do",
    /// `sync::Barrier`.
    Barrier = "barrier",
    /// `sync::WaitGroup`.
    WaitGroup = "sync.WaitGroup.Wait",
    /// `sync::Semaphore`.
    Semaphore = "semacquire",
    /// As many file calls are under way as may be.
    FileLine = "file call, in line",
    /// As many name look-ups are under way as may be.
    LookupLine = "name look-up, in line",
    /// A user's own wait, through `gmp::model`.
    #[cfg(gmp_loom)]
    Model = "model",
}

impl WaitReason {
    /// For dumps.
    pub(crate) fn as_str(self) -> &'static str {
        Self::TEXTS[self as usize]
    }
}

/// The commit hook's answer.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Commit {
    /// The wait is published: the goroutine sleeps.
    Park,
    /// The event for which the caller waits has come: the goroutine goes on.
    Refuse,
}

/// The commit hook, type-erased: a closure on the goroutine's stack, which the M moves out and calls.
pub(crate) struct Hook {
    closure: *const (),
    call: unsafe fn(*const ()) -> Commit,
}

impl Hook {
    /// Makes a hook of `closure`, which has no other use, and stays where it is until the hook is called.
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

/// What a goroutine asks of the M when it leaves the M.
pub(crate) enum Yield {
    /// Sleep until readied.
    Park(WaitNumber, Hook),
    /// Sleep on.
    ParkAgain(WaitNumber),
    /// Run others first.
    Requeue,
    /// The M has lost the P meanwhile: take a P, or wait for one.
    Return,
    /// The end. The stack is no longer needed.
    Exit,
    /// A rare request. Kept apart so that fewer comparisons tell the common ones apart.
    Seldom(Seldom),
}

/// See [`Yield::Seldom`].
pub(crate) enum Seldom {
    /// Go on: the goroutine has bound itself to this M. Allowed without a P, and outside of the runtime.
    Tie,
    /// As `Requeue`, and run the goroutine at this address before the others; the address is only compared: `run/turn.rs`.
    Turn(*const ()),
    /// The goroutine is about to block its thread, and others wait for the P: another M is to continue it, without a P.
    Call,
}

/// A goroutine's request: a pointer to a `Yield` on the goroutine's own stack. Read by the M that acts on it.
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
        // SAFETY: `M::suspend` left a `Yield` there and does not touch it; by this function's contract the stack is unchanged,
        // and this is the only read, because it consumes `self`.
        unsafe { std::ptr::with_exposed_provenance::<Yield>(self.0).read() }
    }
}

/// Records, for dumps, why the calling goroutine waits, and since when.
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
    (due, timer): (Nanos, *const WaitTimer<H>),
    commit: impl FnOnce() -> Commit,
) {
    let (g, p, sched) = (window.g(), window.p(), window.m().sched());
    let commit = ManuallyDrop::new(move || {
        // Before the rest of the wait is published: no waker but the timer can wake the goroutine until the timer's place is
        // noted.
        sched.arm(p, timer, due, (g, number));
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
                // The M resumes the goroutine at once: see `wait/interrupt.rs`. If a holder came first, the holder queues the
                // goroutine (`unhold`).
                looks && g.word.run() == Run::Go
            }
            Commit::Refuse => g.word.cancel_park(number) == CancelPark::Resume,
        }
    }

    /// Makes `g` sleep on in a wait that was already published. Returns `true` if the M is to resume `g` at once.
    pub(crate) fn park_again(&self, g: GRef<H>, number: WaitNumber) -> bool {
        g.word.park_again(number) == Again::Awake
    }

    /// Ends a goroutine, on its M.
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
