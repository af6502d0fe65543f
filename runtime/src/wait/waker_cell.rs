//! How a future's waker reaches the goroutine, or thread, that polls the future (`goroutine/block_on.rs`).
//!
//! Any thread can call a waker at any time: during the poll, while the owner sleeps, when the owner has long gone on to other
//! waits, and when the owner's runtime has ended. So a waker holds no Waiter; it holds a counted *cell*, in which the owner
//! leaves the Waiter of the only wait that a wake may end:
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
//! | PARKED | the owner sleeps, and the first waker has to claim the wait |
//! | CLAIMED | one waker is claiming the wait; or it has claimed the last wait, which is over: then as AWAKE |
//!
//! The owner writes the word only at W5 and W6, when it sleeps. If a wake comes before W5, the owner writes nothing: it sees
//! that the count has changed.
//!
//! *No wake is lost*: if N1 comes before W5, W3 or W5 finds another count than W1 did; if N1 comes after W5, N1 finds PARKED. A
//! poll that begins after N1 answers the wake, and sees what the waker wrote before N1.
//!
//! *No wake ends another wait*: only the waker that finds PARKED reads the Waiter, and PARKED is there only while the owner is
//! in W5 and W6, in the wait whose number the Waiter has. From N1 to the end of N2 the owner does not leave W6. If the waker
//! has won the claim, the owner sleeps until the ready. If the owner has claimed its wait itself, the waker has lost, and the
//! owner waits until the waker has taken CLAIMED out, at most two steps after N1. So the goroutine has not ended, and its G
//! stays mapped. A late wake counts, and ends nothing: a future that uses the cell at that time might be polled once more than
//! needed.
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
/// The bits of the state; with none of them the state is AWAKE.
const STATE: u64 = PARKED | CLAIMED;
/// One wake. The count does not wrap: that would take centuries.
const WAKE: u64 = 4;

/// The word as the owner has found it before a poll.
#[derive(Copy, Clone)]
pub(crate) struct Seen(u64);

impl Seen {
    /// Returns the word while an owner sleeps that has seen this word.
    fn parked(self) -> u64 {
        self.0 & !STATE | PARKED
    }
}

/// The cell through which wakers reach the goroutine or thread that polls a future.
pub(crate) struct WakerCell<H: Host> {
    word: AtomicU64,
    /// Written by the owner before PARKED; read by the waker that has found PARKED.
    waiter: UnsafeCell<Option<Waiter<H>>>,
    /// Stands for the commit hook's writes to the owner's frame; for loom, which checks that the owner does not run meanwhile.
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
        // Acquire: partner N1: the poll sees what the wakers wrote before; the exchanges of later wakers, and W5, continue
        // their release sequences. The other partner is the end of N2: the Waiter was read before that, and is written after
        // this.
        Seen(self.word.load(Acquire.unless(WakerTakeRelaxed)))
    }

    /// W3, by the owner.
    #[inline]
    pub(crate) fn is_notified(&self, seen: Seen) -> bool {
        // Relaxed: `take` acquires what the waker has published.
        self.word.load(Relaxed) != seen.0
    }

    /// W4 to W6, by the owner: blocks the caller until there is a wake that is not in `seen`; the caller then calls `take`.
    /// Returns an interrupt only when no waker will touch the Waiter any more.
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
            // After a successful exchange the owner can run at once, so the hook does not touch the owner's stack. A refusal
            // has published nothing: the owner runs only after this hook, because an ender that interrupts the owner waits for
            // the hook's end (E3 of `sched/stop.rs`).
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

    /// Takes PARKED back: the owner has claimed its own wait, in which it has slept.
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
        self.wake_by(|waiter| waiter.claimed().ready());
    }

    /// As `wake`, for a waker that readies what it has claimed by itself.
    #[inline]
    pub(crate) fn wake_by(&self, ready: impl FnOnce(&Waiter<H>)) {
        // Acquire: the Waiter: partner W5. Release: publishes what the waker wrote to the poll: partner `take`.
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
            // From here on the owner can begin its next wait: W5 goes on from CLAIMED as from AWAKE.
            ready(&waiter);
        } else {
            mutant!(WakerKeepsParked: return);
            // Release: the Waiter was read: partner `take`.
            self.word.fetch_and(!CLAIMED, Release.unless(WakerLosesRelaxed));
        }
    }
}
