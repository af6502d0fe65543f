//! Leaving an M: park, yield, end. What a goroutine says when it gives its M back, and what the M does then.
//!
//! ```text
//!   goroutine                        M, on its own stack
//!   open the wait, queue the record
//!   suspend ───── saved ──────────▶  K1 status := Waiting
//!                                    K2 commit hook: publishes the record (unlocks its queue)
//!                                       Refuse: K3 status := Running, resume at once
//! ```
//! K1 before K2: whoever finds the record may ready the goroutine at once, on another M, and its context is
//! saved by then. The hook is moved to the M's stack before it runs, and neither it nor the M touches the G after
//! the record was published: the G may have run on and ended.
//!
//! Checked by `tests/loom_park.rs`.

use crate::g::{self, GRef};
use crate::host::Host;
use crate::m::{M, Window};
use crate::prim::{Mutant, mutated};
use crate::sched::Sched;
use crate::status::{CallOff, WaitNumber, Woke};
use std::mem::ManuallyDrop;

/// Why a goroutine waits, for dumps. The texts are Go's where Go has one.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum WaitReason {
    /// It does not.
    None,
    /// `JoinHandle::join`.
    Join,
    /// `time::sleep`.
    Sleep,
    /// A socket has nothing to read, or nobody to accept.
    IoRead,
    /// A socket takes no more, or is not connected yet.
    IoWrite,
    /// Another goroutine or thread is reading or writing the same socket.
    IoTurn,
    /// `sync::Event`.
    Event,
    /// A user's own wait, through `gmp::model`.
    #[cfg(gmp_loom)]
    Model,
}

impl WaitReason {
    /// For dumps.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            WaitReason::None => "running",
            WaitReason::Join => "join",
            WaitReason::Sleep => "sleep",
            WaitReason::IoRead => "IO wait, read",
            WaitReason::IoWrite => "IO wait, write",
            WaitReason::IoTurn => "IO wait, turn",
            WaitReason::Event => "event",
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

/// The commit hook, with its type erased: a closure on the goroutine's stack that the M moves out and calls.
pub(crate) struct Hook {
    closure: *const (),
    call: unsafe fn(*const ()) -> Commit,
}

impl Hook {
    fn new<F: FnOnce() -> Commit>(closure: &ManuallyDrop<F>) -> Self {
        Hook { closure: (&raw const *closure).cast(), call: Self::call_moved::<F> }
    }

    /// # Safety
    /// `closure` points to an `F` that nobody uses afterwards.
    unsafe fn call_moved<F: FnOnce() -> Commit>(closure: *const ()) -> Commit {
        // SAFETY: by this function's contract. It is moved to this stack before it can publish anything.
        let closure = unsafe { closure.cast::<F>().read() };
        closure()
    }

    /// # Safety
    /// The goroutine that made the hook is suspended, and the hook is called once.
    unsafe fn call(self) -> Commit {
        // SAFETY: by this function's contract.
        unsafe { (self.call)(self.closure) }
    }
}

/// What a goroutine says to the M it leaves.
pub(crate) enum Yield {
    /// Sleep until readied.
    Park(WaitNumber, Hook),
    /// Run others first.
    Requeue,
    /// The M has lost its P meanwhile: take one, or wait for one.
    Return,
    /// The end. The stack is not needed any more.
    Exit,
}

/// Parks the calling goroutine until its wait is readied, or `commit` refuses.
pub(crate) fn gopark<H: Host>(
    window: Window<H>,
    number: WaitNumber,
    reason: WaitReason,
    commit: impl FnOnce() -> Commit,
) -> Woke {
    let g = window.g();
    g.reason.set(reason);
    let commit = ManuallyDrop::new(commit);
    window.suspend(Yield::Park(number, Hook::new(&commit)));
    g.word.end_wait(number)
}

impl<H: Host> Sched<H> {
    /// K1 to K3. True: the goroutine is to be resumed at once.
    pub(crate) fn park(&self, g: GRef<H>, number: WaitNumber, hook: Hook) -> bool {
        if mutated(Mutant::ParkStatusAfterCommit) {
            // SAFETY: as below.
            let commit = unsafe { hook.call() };
            g.word.park(number);
            return commit == Commit::Refuse && g.word.call_off(number) == CallOff::Resume;
        }
        g.word.park(number);
        // SAFETY: `g` has just been saved by its suspend, and this is the only call.
        match unsafe { hook.call() } {
            Commit::Park => false,
            Commit::Refuse => {
                // For loom: until here the M read the hook, which lay on the goroutine's stack.
                g.stack.with(|_| ());
                g.word.call_off(number) == CallOff::Resume
            }
        }
    }

    /// The end of a goroutine, on its M.
    pub(crate) fn goexit0(&self, m: &M<H>, g: GRef<H>) {
        m.set_g(None);
        // SAFETY: this M ran the goroutine, and its status is still Running.
        let stack = g.stack.with_mut(|stack| unsafe { (*stack).take() });
        self.retire_stack(m, stack.expect("exit: the goroutine has no stack"));
        g.word.finish();
        m.count_live(-1);
        g::finish(g);
    }
}
