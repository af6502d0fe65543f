//! SIGQUIT: which monitor answers the signal with the dump.
//!
//! A signal handler can do next to nothing: it can take no lock, so it can't print the dump. And the dump must come even if all
//! Ms are stuck, so no M can print it. The handler wakes the monitor of the oldest runtime: a monitor has no P, runs no user's
//! code and is always there (`sysmon.rs`). `there` names that monitor; a runtime can begin or end at that moment:
//!
//! ```text
//!   handler                                        thread that begins or ends a runtime,
//!                                                  under the lock of their list
//!
//!   R1  ASKED set already?  to the kernel;         S1  `there` := the oldest runtime's monitor, or none
//!       no: set it                                     QuitSetFence
//!   R2  `inside` += 1                              S2  wait until `inside` = 0
//!       QuitAskFence                               S3  ASKED?  wake the monitor that `there` names
//!   R3  does `there` name a monitor?  wake it
//!   R4  `inside` -= 1
//!       none was woken?  to the kernel
//!
//!   monitor, any, after each sleep
//!
//!   M1  ASKED, and not TAKEN?  set TAKEN, and answer: dump, and end the process; or go on:
//!   M2  clear ASKED, and print                     (print by a thread aside: `host/native/aside.rs`)
//!   M3  clear TAKEN, and M1 again                  (by that thread)
//! ```
//! If the process goes on, the monitor leaves the dump to a thread aside: making the dump can take long, and printing the dump
//! can wait for the reader of standard error, seconds for each piece. If there is no such thread, the monitor does both.
//!
//! Invariants:
//! 1. The monitor that `there` named lives until S2 is over: QuitAskFence and QuitSetFence each come before the load of the
//!    other side's word, so R3 finds the new monitor, or S2 finds the handler. A handler needs no lock and ends by itself, even
//!    if it has interrupted the thread that waits in S2.
//! 2. No question is lost: R3 finds the new monitor, or S3 finds the question.
//! 3. A SIGQUIT that finds ASKED set ends the process by the default action: a second one before the monitor clears ASKED (M2),
//!    and a third one while the answer to the first is printed. So there is a way out if anything hangs. The first process of a
//!    PID namespace has no default action, and exits with status 131.
//! 4. One monitor answers each question, and one at a time.
//!
//! Checked by `models/quit.rs` and `tests/dumps/sigquit.rs`.

use crate::prim::hooks::*;
use crate::prim::{AcqRel, Acquire, AtomicPtr, AtomicU32, Ordering, Relaxed, Release, fence, relax};

/// Whether a SIGQUIT has reached a monitor.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Heard {
    /// A monitor will answer.
    Yes,
    /// No monitor is there, or the last question was not answered.
    No,
}

/// A question that no monitor has begun to answer.
const ASKED: u32 = 1;
/// A monitor is answering.
const TAKEN: u32 = 2;

/// Which monitor answers; `T` wakes that monitor. The process has one value.
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

    /// R1 to R4. Can be called by a signal handler, if `wake` can.
    pub(crate) fn ask(&self, wake: impl FnOnce(&T)) -> Heard {
        // AcqRel: partner M1. No model has either half: a question brings no data, and the exchange continues the release
        // sequence of M3, which M1 acquires.
        if self.word.fetch_or(ASKED, AcqRel) & ASKED != 0 {
            return Heard::No;
        }
        // Relaxed: QuitAskFence orders the addition, and R4 publishes that the handler is done.
        self.inside.fetch_add(1, Relaxed);
        // QuitAskFence. SeqCst: a store to `inside`, then a load of `there`; partner: QuitSetFence.
        fence(Ordering::SeqCst.unless(QuitAskNoFence));
        // Acquire: partner S1: the monitor that `there` names is whole.
        let there = self.there.load(Acquire.unless(QuitAskRelaxed));
        // SAFETY: invariant 1.
        let heard = unsafe { there.as_ref() }.map(wake);
        // Release: partner S2: the handler no longer uses `there`.
        self.inside.fetch_sub(1, Release.unless(QuitLeaveRelaxed));
        if heard.is_some() { Heard::Yes } else { Heard::No }
    }

    /// S1 to S3: from here on a handler wakes `there`, or no monitor if `there` is null. One caller at a time.
    ///
    /// # Safety
    /// The value to which `there` points lives until the end of the next call.
    pub(crate) unsafe fn set(&self, there: *const T, wake: impl FnOnce(&T)) {
        // Release: partner R3.
        self.there.store(there.cast_mut(), Release.unless(QuitSetRelaxed));
        // QuitSetFence. SeqCst: a store to `there`, then a load of `inside`; partner: QuitAskFence.
        fence(Ordering::SeqCst.unless(QuitSetNoFence));
        // Acquire: partner R4.
        while self.inside.load(Acquire.unless(QuitWaitsRelaxed)) > 0 {
            relax();
        }
        // Relaxed: after the fence; M1 needs nothing that this load would acquire.
        if self.word.load(Relaxed) & ASKED != 0
            // SAFETY: by this function's contract.
            && let Some(there) = unsafe { there.as_ref() }
        {
            mutant!(QuitSetForgets: return);
            wake(there);
        }
    }

    /// M1. Returns `true` if the caller is to answer the question: then the caller ends the process, or lets any one thread
    /// call `begin`, and then `end`.
    #[must_use]
    pub(crate) fn take(&self) -> bool {
        mutant!(QuitTakenByBoth: return self.word.load(Acquire) & ASKED != 0);
        // Acquire: partner R1. Relaxed: nothing was asked, or another monitor answers, which looks again after M3.
        self.word.compare_exchange(ASKED, ASKED | TAKEN, Acquire.unless(QuitTakeRelaxed), Relaxed).is_ok()
    }

    /// M2: from here on the next question can come.
    pub(crate) fn begin(&self) {
        // Relaxed: a question that comes too early finds ASKED still set, which invariant 3 allows.
        self.word.fetch_and(!ASKED, Relaxed);
    }

    /// M3: the answer is given. The caller calls `take` once more: other monitors might have left it a question meanwhile.
    pub(crate) fn end(&self) {
        // Release: the next answer comes after this one: partner M1 of the next.
        self.word.fetch_and(!TAKEN, Release.unless(QuitEndRelaxed));
    }
}
