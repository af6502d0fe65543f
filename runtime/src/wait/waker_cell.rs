//! How a future's waker meets the goroutine, or thread, that polls the future (`goroutine/block_on.rs`).
//!
//! A waker may be called at any time, by any thread: beside the poll, when the owner sleeps, when the owner has long gone on
//! to other waits, and when the owner's runtime has ended. So a waker holds no Waiter; it holds a counted *cell*, in which the
//! owner leaves the Waiter of the one wait that may be ended by a wake:
//!
//! ```text
//!   owner                                          waker
//!   W1  take: seen := the word                     N1  the word: count + 1, and PARKED becomes CLAIMED
//!   W2  poll; ready: done                          N2  was it PARKED?  read the Waiter, claim its wait
//!   W3  another word than seen?  from W1, after        won: ready
//!       others ran                                     lost: CLAIMED becomes AWAKE
//!   W4  open a wait, write the Waiter
//!   W5  after the save: seen → PARKED, else refuse
//!   W6  readied: from W1
//!       interrupted: PARKED becomes AWAKE, or wait
//!       until the waker has taken CLAIMED out
//! ```
//! The word has the number of wakes so far, and one of these states:
//!
//! | state | meaning |
//! | --- | --- |
//! | AWAKE | the owner polls, or uses the cell for no wait |
//! | PARKED | the owner sleeps, and the first waker is to claim the wait |
//! | CLAIMED | one waker claims the wait; or has claimed the last wait, which is over: then as AWAKE |
//!
//! The owner writes the word only at W5 and W6, where it sleeps. For a wake that comes earlier the owner needs no exchange: the
//! count says that there was a wake.
//!
//! *No wake is lost*: N1 before W5 has W3 or W5 find another count than W1 did; N1 after W5 finds PARKED. A wake is answered
//! by a poll that begins after N1, and sees what the waker wrote before that.
//!
//! *No wake ends another wait*: only the waker that finds PARKED reads the Waiter, and PARKED is there only while the
//! owner is in W5 and W6, in the wait whose number the Waiter has. From N1 to the end of N2 the owner does not leave W6: the
//! claim was won, so the owner sleeps until the ready; or the claim was lost, to the owner's own, and the owner waits for the
//! waker to take CLAIMED out, which is two steps away. So the goroutine has not ended, and its G stays mapped. A late wake
//! counts, and ends nothing: a future that uses the cell by then may be polled once more for it.
//!
//! An owner that its runtime leaves behind never leaves W6; a wake then loses the claim, and touches nothing else.
//!
//! Checked by `models/block_on.rs`.

use crate::host::Host;
use crate::prim::hooks::*;
use crate::prim::{Acquire, AtomicU64, Ghost, Relaxed, Release, UnsafeCell, relax};
use crate::sched::park::{Commit, WaitReason};
use crate::wait::interrupt::Interrupt;
use crate::wait::waiter::{How, Wait, Waiter, Woke};
use std::cell::Cell;

const PARKED: u64 = 1;
const CLAIMED: u64 = 2;
/// The bits of the state; none of them: AWAKE.
const STATE: u64 = PARKED | CLAIMED;
/// One wake. The count does not come round: that takes centuries.
const WAKE: u64 = 4;

/// The word as the owner has found it before a poll.
#[derive(Copy, Clone)]
pub(crate) struct Seen(u64);

impl Seen {
    /// The word while the owner sleeps that has seen this one.
    fn parked(self) -> u64 {
        self.0 & !STATE | PARKED
    }
}

/// What wakers hold of the goroutine or thread that polls a future.
pub(crate) struct WakerCell<H: Host> {
    word: AtomicU64,
    /// Written by the owner before PARKED; read by the waker that has found PARKED.
    waiter: UnsafeCell<Option<Waiter<H>>>,
    /// What the commit hook writes of the owner's frame; for loom, which checks that the owner does not run meanwhile.
    frame: Ghost,
}

// SAFETY: the word says which thread may touch the Waiter, which is Send.
unsafe impl<H: Host> Send for WakerCell<H> {}
// SAFETY: as for `Send`.
unsafe impl<H: Host> Sync for WakerCell<H> {}

impl<H: Host> WakerCell<H> {
    pub(crate) fn new() -> Self {
        WakerCell { word: AtomicU64::new(0), waiter: UnsafeCell::new(None), frame: Ghost::new() }
    }

    /// W1, by the owner. Takes the wakes so far, which the poll that follows answers.
    #[inline]
    pub(crate) fn take(&self) -> Seen {
        // Acquire: what the wakers wrote before N1, their partner, is seen by the poll: the exchanges of later wakers, and W5,
        // go on from theirs. The end of N2 is the other partner: the Waiter was read before that, and is written after this.
        Seen(self.word.load(Acquire.unless(WakerTakeRelaxed)))
    }

    /// W3, by the owner.
    #[inline]
    pub(crate) fn is_notified(&self, seen: Seen) -> bool {
        // Relaxed: `take` acquires what came with the wake.
        self.word.load(Relaxed) != seen.0
    }

    /// W4 to W6, by the owner: blocks the caller until there is a wake that was not `seen`, and that `take` takes. An interrupt
    /// is returned when no waker will touch the Waiter any more.
    pub(crate) fn wait(&self, seen: Seen) -> Result<(), Interrupt> {
        let mut wait = Wait::<H>::begin();
        // SAFETY: without PARKED no waker reads the Waiter.
        self.waiter.with_mut(|slot| unsafe { *slot = Some(wait.waiter()) });
        let refused = Cell::new(false);
        let woke = wait.park(How::new(WaitReason::Future), || {
            // Release: the Waiter goes to the waker that finds PARKED: partner N1. Relaxed: as in `is_notified`.
            let release = Release.unless(WakerParkRelaxed);
            let parked = self.word.compare_exchange(seen.0, seen.parked(), release, Relaxed);
            mutant!(WakerParksBlindly: { self.word.store(seen.parked(), Release); return Commit::Park });
            // From a park on the owner may run: nothing of its stack is touched. A refusal has published nothing; an
            // ender that interrupts the owner then has waited for the end of this hook (E3 of `sched/stop.rs`).
            if parked.is_ok() {
                mutant!(WakerNotesAPark: self.frame.touch());
                return Commit::Park;
            }
            self.frame.touch();
            refused.set(true);
            Commit::Refuse
        });
        self.frame.touch();
        match woke {
            Woke::Interrupted(interrupt) => {
                if !refused.get() {
                    self.leave(seen);
                }
                Err(interrupt)
            }
            Woke::Readied | Woke::Refused | Woke::Nudged => Ok(()),
        }
    }

    /// The owner has claimed its own wait, in which it has slept.
    #[cold]
    fn leave(&self, seen: Seen) {
        mutant!(WakerLeavesParked: return);
        // Relaxed: no waker has read the Waiter.
        if self.word.compare_exchange(seen.parked(), seen.0 & !STATE, Relaxed, Relaxed).is_ok() {
            return;
        }
        mutant!(WakerLeavesBesideTheClaim: return);
        // Relaxed: `take`, which comes before the next Waiter is written, acquires what the waker has left.
        while self.word.load(Relaxed) & CLAIMED != 0 {
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
        let mut found = self.word.load(Relaxed);
        loop {
            let is_first = found & PARKED != 0;
            let next = (if is_first { found ^ STATE } else { found }) + WAKE;
            match self.word.compare_exchange_weak(found, next, ordering, Relaxed) {
                Ok(_) => break,
                Err(now) => found = now,
            }
        }
        mutant!(WakerLooksFirst: let found = early.unwrap_or(found));
        mutant!(WakerActsUnasked: return self.end_wait(ready));
        if found & PARKED != 0 {
            self.end_wait(ready);
        }
    }

    /// N2.
    #[inline]
    fn end_wait(&self, ready: impl FnOnce(&Waiter<H>)) {
        // SAFETY: this waker has found PARKED, so the owner is in W6, and writes the Waiter only after that.
        let waiter =
            self.waiter.with(|slot| unsafe { (*slot).clone() }).expect("wake: PARKED comes after the Waiter");
        if waiter.claim() {
            // The owner may begin its next wait from here on: W5 goes on from CLAIMED as from AWAKE.
            ready(&waiter);
        } else {
            mutant!(WakerKeepsParked: return);
            // Release: the Waiter was read: partner `take`.
            self.word.fetch_and(!CLAIMED, Release.unless(WakerLosesRelaxed));
        }
    }
}
