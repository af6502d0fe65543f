//! SIGQUIT: who prints the dump that it asks for.
//!
//! A signal handler may do next to nothing, and what it asks for must come while all Ms are stuck. So it wakes a monitor,
//! which has no P, runs no user's code and is always there: that of the oldest runtime (`sysmon.rs`).
//!
//! ```text
//!   handler:  R1 asked := true; it was? leave it to the kernel · R2 inside += 1, QuitAskFence ·
//!             R3 somebody stands there? wake that one · R4 inside -= 1 · nobody did? leave it to the kernel
//!   a runtime begins or ends, under the lock of their list:
//!             S1 the oldest's stands there, or nobody, QuitSetFence · S2 wait until inside = 0 ·
//!             S3 asked? wake the one that stands there
//!   any monitor, after each sleep:  M1 asked, and nobody answers yet? it does: ends the process after the dump, or goes on:
//!                                   M2 asked := false, print · M3 nobody answers · M1
//! ```
//! Invariants:
//! 1. Who stood there lives until S2 is over: QuitAskFence and QuitSetFence, each before the look at the other's word, see
//!    to it that the handler finds the new one, or S2 the handler. A handler needs no lock and ends by itself, also one that
//!    has interrupted the thread that waits in S2.
//! 2. No question is lost: R3 finds the new one, or S3 finds the question.
//! 3. A second SIGQUIT that comes before the first is taken up ends the process as if nobody had caught it, and so does a third
//!    one while the answer is printed: whatever hangs there, there is a way out.
//! 4. One monitor answers each question, and one at a time.
//!
//! Checked by `models/quit.rs` and `tests/dumps/sigquit.rs`.

use crate::prim::hooks::*;
use crate::prim::{AcqRel, Acquire, AtomicPtr, AtomicU32, Ordering, Relaxed, Release, fence, relax};

/// What became of a SIGQUIT.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Heard {
    /// Somebody will answer.
    Yes,
    /// Nobody is there, or the last one was not answered.
    No,
}

/// Somebody has asked, and nobody has begun to answer.
const ASKED: u32 = 1;
/// Somebody answers.
const TAKEN: u32 = 2;

/// Who answers; `T` is by what he is woken. One for the process.
pub(crate) struct Quit<T> {
    /// ASKED and TAKEN.
    word: AtomicU32,
    inside: AtomicU32,
    there: AtomicPtr<T>,
}

impl<T> Quit<T> {
    pub(crate) fn new() -> Self {
        Quit {
            word: AtomicU32::new(0),
            inside: AtomicU32::new(0),
            there: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// R1 to R4. Does what a signal handler may, as far as `wake` does.
    pub(crate) fn ask(&self, wake: impl FnOnce(&T)) -> Heard {
        // AcqRel: partner M1.
        if self.word.fetch_or(ASKED, AcqRel) & ASKED != 0 {
            return Heard::No;
        }
        // Relaxed: the fence orders it, and R4 is the one that says that it is over.
        self.inside.fetch_add(1, Relaxed);
        // QuitAskFence. SeqCst: a store to `inside`, then a load of `there`; partner: QuitSetFence.
        fence(Ordering::SeqCst.unless(QuitAskNoFence));
        // Acquire: partner S1: what stands there is whole.
        let there = self.there.load(Acquire);
        // SAFETY: invariant 1.
        let heard = unsafe { there.as_ref() }.map(wake);
        // Release: partner S2: it is not looked at any more.
        self.inside.fetch_sub(1, Release.unless(QuitLeaveRelaxed));
        if heard.is_some() { Heard::Yes } else { Heard::No }
    }

    /// S1 to S3: from here on `there` is woken, or nobody, and nobody else is. One caller at a time.
    ///
    /// # Safety
    /// What `there` points to lives until the end of the next call.
    pub(crate) unsafe fn set(&self, there: *const T, wake: impl FnOnce(&T)) {
        // Release: partner R3.
        self.there.store(there.cast_mut(), Release);
        // QuitSetFence. SeqCst: a store to `there`, then a load of `inside`; partner: QuitAskFence.
        fence(Ordering::SeqCst.unless(QuitSetNoFence));
        // Acquire: partner R4.
        while self.inside.load(Acquire) > 0 {
            relax();
        }
        // Relaxed: after the fence; the wake publishes nothing that M1 would not see.
        if self.word.load(Relaxed) & ASKED != 0
            // SAFETY: by this function's contract.
            && let Some(there) = unsafe { there.as_ref() }
        {
            mutant!(QuitSetForgets: return);
            wake(there);
        }
    }

    /// M1: true for the one who answers what was asked. He says `begin`, unless he ends the process, and then `end`.
    #[must_use]
    pub(crate) fn take(&self) -> bool {
        mutant!(QuitTakenByBoth: return self.word.load(Acquire) & ASKED != 0);
        // Acquire: partner R1. Relaxed: nothing was asked, or somebody answers, who will look again.
        self.word.compare_exchange(ASKED, ASKED | TAKEN, Acquire, Relaxed).is_ok()
    }

    /// M2: who answers may be asked again.
    pub(crate) fn begin(&self) {
        // Relaxed: a question that comes too early finds it asked, which invariant 3 allows.
        self.word.fetch_and(!ASKED, Relaxed);
    }

    /// M3: the answer is given, and the next one may be. Who says this takes once more: he has refused others meanwhile.
    pub(crate) fn end(&self) {
        // Release: the next answer comes after this one: partner M1 of the next.
        self.word.fetch_and(!TAKEN, Release);
    }
}
