//! One direction of a socket belongs to one goroutine or thread at a time, in the order in which they came
//! (Go's fdMutex).
//!
//! ```text
//!   Free ⇄ Held ⇄ Queued        word: 0 · 1 · 2
//! ```
//! Free ⇄ Held is one exchange on either side. Whoever comes second locks the queue, moves Held to Queued and
//! stands in line; the holder, whose exchange Held → Free then fails, locks the queue too and hands the turn to
//! the first in line. The word never becomes Free while somebody stands in line, so nobody overtakes.
//!
//! A goroutine notes the turn that it holds in its G. When its runtime ends and leaves it parked in the middle of an
//! operation, the turn is given up for it, so that the socket lives on for others.
//!
//! Checked by `tests/loom_turn.rs`.

use crate::g::GRef;
use crate::host::Host;
use crate::m::M;
use crate::prim::{AcqRel, Acquire, AtomicU32, Mutant, Mutex, Relaxed, Release, mutated, order};
use crate::sched::park::{Commit, WaitReason};
use crate::waiter::{Wait, Waiter};
use std::collections::VecDeque;

const FREE: u32 = 0;
const HELD: u32 = 1;
const QUEUED: u32 = 2;

/// The turn of one direction.
pub(crate) struct Turn<H: Host> {
    word: AtomicU32,
    line: Mutex<VecDeque<Waiter<H>>>,
}

/// The caller has the turn; dropping it hands it on.
pub(crate) struct Holder<'a, H: Host> {
    turn: &'a Turn<H>,
    /// The goroutine that holds it, if it is one.
    g: Option<GRef<H>>,
}

impl<H: Host> Turn<H> {
    pub(crate) fn new() -> Self {
        Turn { word: AtomicU32::new(FREE), line: Mutex::new(VecDeque::new()) }
    }

    /// Blocks the calling goroutine or thread until it has the turn.
    pub(crate) fn take(&self) -> Holder<'_, H> {
        let g = M::current().and_then(M::g);
        // Acquire: what the last holder did in this direction.
        let acquire = order(Mutant::TurnTakeRelaxed, Acquire);
        let taken = self.word.compare_exchange(FREE, HELD, acquire, Relaxed).is_ok() || self.stand_in_line();
        if taken && let Some(g) = g {
            self.belongs_to(g);
        }
        Holder { turn: self, g }
    }

    /// Notes whose turn it is, for the end of the runtime.
    fn belongs_to(&self, g: GRef<H>) {
        // Relaxed: read with the goroutine's wait claimed, or by itself.
        g.turn.store((&raw const *self).cast_mut(), Relaxed);
    }

    /// True: the turn was free after all. False: it was handed over, and is noted.
    #[cold]
    fn stand_in_line(&self) -> bool {
        let wait = Wait::begin();
        let mut line = self.line.lock();
        loop {
            // Under the lock the word leaves Queued only by us; Free and Held change without it.
            match self.word.compare_exchange(HELD, QUEUED, Relaxed, Relaxed) {
                Ok(_) | Err(QUEUED) => break,
                Err(_) => {
                    let acquire = order(Mutant::TurnLateTakeRelaxed, Acquire);
                    if self.word.compare_exchange(FREE, HELD, acquire, Relaxed).is_ok() {
                        drop(line);
                        wait.withdraw();
                        return true;
                    }
                }
            }
        }
        line.push_back(wait.waiter());
        let _handed = wait.park(WaitReason::IoTurn, move || {
            drop(line);
            Commit::Park
        });
        false
    }

    #[cold]
    fn hand_over(&self) {
        let mut line = self.line.lock();
        let next = loop {
            match line.pop_front() {
                Some(first) if mutated(Mutant::TurnNoHandOver) => drop(first),
                Some(first) if first.claim() => break Some(first),
                Some(_gone) => {}
                None => break None,
            }
        };
        if let Some(Waiter::G(g, _)) = &next {
            self.belongs_to(*g);
        }
        // Release: see `take`. With somebody claimed the turn is not free in between.
        self.word.store(
            match (&next, line.is_empty()) {
                (Some(_), false) if !mutated(Mutant::TurnForgetsTheRest) => QUEUED,
                (Some(_), false) => HELD,
                (Some(_), true) => HELD,
                (None, _) => FREE,
            },
            Release,
        );
        drop(line);
        if let Some(next) = next {
            next.ready();
        }
    }

    fn pass(&self) {
        // Release: the next holder sees what was done in this direction.
        if self.word.compare_exchange(HELD, FREE, order(Mutant::TurnPassRelaxed, Release), Relaxed).is_err() {
            self.hand_over();
        }
    }

    /// Gives up what a goroutine holds that will not run again. Its wait is claimed, or it stands in no queue that
    /// anybody takes from.
    pub(crate) fn give_up_of(g: GRef<H>) {
        if mutated(Mutant::TurnLeftBehind) {
            return;
        }
        // AcqRel: of several who find the goroutine left, one gives its turn up.
        let held = g.turn.swap(std::ptr::null_mut(), AcqRel);
        // SAFETY: the turn lies in a socket that the goroutine borrows, and it is left in the middle of that
        // borrow, which therefore never ends.
        if let Some(turn) = unsafe { held.as_ref() } {
            turn.pass();
        }
    }
}

impl<H: Host> Drop for Holder<'_, H> {
    fn drop(&mut self) {
        if let Some(g) = self.g {
            // Relaxed: this goroutine runs, so nobody else looks.
            g.turn.store(std::ptr::null_mut(), Relaxed);
        }
        self.turn.pass();
    }
}
