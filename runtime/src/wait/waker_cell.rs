//! How a future's waker meets the goroutine, or thread, that polls the future (`goroutine/block_on.rs`).
//!
//! A waker may be called at any time, by any thread: beside the poll, when the owner sleeps, when the owner has long gone on
//! to other waits, and when the owner's runtime has ended. So a waker holds no Waiter; it holds a counted *cell*, in which the
//! owner leaves the Waiter of the one wait that may be ended by a wake:
//!
//! ```text
//!   owner                                          waker
//!   W1  take: the word := 0                        N1  the word |= NOTIFIED
//!   W2  poll; ready: done                          N2  was it PARKED alone?  read the Waiter, claim its wait
//!   W3  NOTIFIED?  from W1, after others ran           won: ready
//!   W4  open a wait, write the Waiter                  lost: the word &= ¬PARKED
//!   W5  after the save: 0 → PARKED, else refuse
//!   W6  readied: from W1
//!       interrupted: take PARKED out, or wait
//!       until the waker has taken it out
//! ```
//! | word | meaning |
//! | --- | --- |
//! | 0 | the owner polls, or uses the cell for no wait, and no wake has come |
//! | NOTIFIED | a wake has come, which the next poll answers |
//! | PARKED | the owner sleeps, and the first waker is to claim the wait |
//! | PARKED and NOTIFIED | one waker claims the wait, or has claimed it |
//!
//! *No wake is lost*: N1 before W5 has W3 or W5 see NOTIFIED; N1 after W5 finds PARKED. A wake is answered by a poll that
//! begins after N1, and sees what the waker wrote before that.
//!
//! *No wake ends another wait*: only the waker that finds PARKED alone reads the Waiter, and PARKED is there only while the
//! owner is in W5 and W6, in the wait whose number the Waiter has. From N1 to the end of N2 the owner does not leave W6: the
//! claim was won, so the owner sleeps until the ready; or the claim was lost, to the owner's own, and the owner waits for the
//! waker to take PARKED out, which is two steps away. So the goroutine has not ended, and its G stays mapped. A late wake
//! leaves NOTIFIED in the cell: the next future that uses the cell may be polled once more for it.
//!
//! An owner that its runtime leaves behind never leaves W6; a wake then loses the claim, and touches nothing else.
//!
//! Checked by `models/block_on.rs`.

use crate::host::Host;
use crate::prim::hooks::*;
use crate::prim::{Acquire, AtomicU32, Relaxed, Release, UnsafeCell, relax};
use crate::sched::park::{Commit, WaitReason};
use crate::wait::interrupt::Interrupt;
use crate::wait::waiter::{How, Wait, Waiter, Woke};

const NOTIFIED: u32 = 1;
const PARKED: u32 = 2;

/// What wakers hold of the goroutine or thread that polls a future.
pub(crate) struct WakerCell<H: Host> {
    word: AtomicU32,
    /// Written by the owner before PARKED; read by the waker that has found PARKED alone.
    waiter: UnsafeCell<Option<Waiter<H>>>,
}

// SAFETY: the word says which thread may touch the Waiter, which is Send.
unsafe impl<H: Host> Send for WakerCell<H> {}
// SAFETY: as for `Send`.
unsafe impl<H: Host> Sync for WakerCell<H> {}

impl<H: Host> WakerCell<H> {
    pub(crate) fn new() -> Self {
        WakerCell { word: AtomicU32::new(0), waiter: UnsafeCell::new(None) }
    }

    /// W1, by the owner. Takes the wakes so far, which the poll that follows answers.
    #[inline]
    pub(crate) fn take(&self) {
        // Relaxed: of a wake that is not seen here W3 or W5 sees the mark.
        if self.word.load(Relaxed) != 0 {
            // Acquire: what the wakers wrote before N1, their partner, is seen by the poll. The end of N2 is the
            // other partner: the Waiter was read before that, and is written after this.
            self.word.swap(0, Acquire.unless(WakerTakeRelaxed));
        }
    }

    /// W3, by the owner.
    #[inline]
    pub(crate) fn is_notified(&self) -> bool {
        // Relaxed: `take` acquires what came with the mark.
        self.word.load(Relaxed) & NOTIFIED != 0
    }

    /// W4 to W6, by the owner: blocks the caller until a wake, which `take` takes. An interrupt is returned when no waker
    /// will touch the Waiter any more.
    pub(crate) fn wait(&self) -> Result<(), Interrupt> {
        let mut wait = Wait::<H>::begin();
        // SAFETY: without PARKED no waker reads the Waiter.
        self.waiter.with_mut(|slot| unsafe { *slot = Some(wait.waiter()) });
        let woke = wait.park(How::new(WaitReason::Future), || {
            // Release: the Waiter goes to the waker that finds PARKED: partner N1. Relaxed: as in `is_notified`.
            let parked = self.word.compare_exchange(0, PARKED, Release.unless(WakerParkRelaxed), Relaxed);
            mutant!(WakerParksBlindly: { self.word.store(PARKED, Release); return Commit::Park });
            if parked.is_ok() { Commit::Park } else { Commit::Refuse }
        });
        match woke {
            Woke::Interrupted(interrupt) => {
                self.leave();
                Err(interrupt)
            }
            Woke::Readied | Woke::Refused | Woke::Nudged => Ok(()),
        }
    }

    /// The owner has claimed its own wait.
    #[cold]
    fn leave(&self) {
        mutant!(WakerLeavesParked: return);
        // Relaxed: no waker has read the Waiter.
        if self.word.compare_exchange(PARKED, 0, Relaxed, Relaxed).is_ok() {
            return;
        }
        mutant!(WakerLeavesBesideTheClaim: return);
        // Relaxed: the waker has left NOTIFIED, too, and `take`, which comes before the next Waiter is written, acquires both.
        while self.word.load(Relaxed) & PARKED != 0 {
            relax();
        }
    }

    /// N1 and N2, by any thread at any time.
    #[inline]
    pub(crate) fn wake(&self) {
        self.wake_by(|waiter| waiter.ready());
    }

    /// As `wake`, for a waker that readies what it has claimed by itself.
    #[inline]
    pub(crate) fn wake_by(&self, ready: impl FnOnce(&Waiter<H>)) {
        // Acquire: the Waiter: partner W5. Release: what the waker wrote goes to the poll: partner `take`.
        let ordering = both(Acquire.unless(WakerFindsRelaxed), Release.unless(WakerWakesRelaxed));
        mutant!(WakerLooksFirst: keep early = self.word.load(Acquire));
        let found = self.word.fetch_or(NOTIFIED, ordering);
        mutant!(WakerLooksFirst: let found = early.unwrap_or(found));
        mutant!(WakerActsUnasked: if found & NOTIFIED == 0 { return self.end_wait(ready) });
        if found == PARKED {
            self.end_wait(ready);
        }
    }

    /// N2.
    #[inline]
    fn end_wait(&self, ready: impl FnOnce(&Waiter<H>)) {
        // SAFETY: this waker has found PARKED alone, so the owner is in W6, and writes the Waiter only after that.
        let waiter =
            self.waiter.with(|slot| unsafe { (*slot).clone() }).expect("wake: PARKED comes after the Waiter");
        if waiter.claim() {
            // The owner may begin its next wait from here on: W1 clears PARKED.
            ready(&waiter);
        } else {
            mutant!(WakerKeepsParked: return);
            // Release: the Waiter was read: partner `take`.
            self.word.fetch_and(!PARKED, Release.unless(WakerLosesRelaxed));
        }
    }
}
