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
//! Checked by `tests/loom_turn.rs`.

use crate::host::Host;
use crate::prim::{Acquire, AtomicU32, Mutant, Mutex, Relaxed, Release, mutated};
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
pub(crate) struct Holder<'a, H: Host>(&'a Turn<H>);

impl<H: Host> Turn<H> {
    pub(crate) fn new() -> Self {
        Turn { word: AtomicU32::new(FREE), line: Mutex::new(VecDeque::new()) }
    }

    /// Blocks the calling goroutine or thread until it has the turn.
    pub(crate) fn take(&self) -> Holder<'_, H> {
        // Acquire: what the last holder did in this direction.
        if self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            self.stand_in_line();
        }
        Holder(self)
    }

    #[cold]
    fn stand_in_line(&self) {
        let wait = Wait::begin();
        let mut line = self.line.lock();
        loop {
            // Under the lock the word leaves Queued only by us; Free and Held change without it.
            match self.word.compare_exchange(HELD, QUEUED, Relaxed, Relaxed) {
                Ok(_) | Err(QUEUED) => break,
                Err(_) => {
                    if self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok() {
                        drop(line);
                        wait.abandon();
                        return;
                    }
                }
            }
        }
        line.push_back(wait.waiter());
        let _handed = wait.park(WaitReason::IoTurn, move || {
            drop(line);
            Commit::Park
        });
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
        // Release: see `take`. With somebody claimed the turn is not free in between.
        self.word.store(
            match (&next, line.is_empty()) {
                (Some(_), false) => QUEUED,
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
}

impl<H: Host> Drop for Holder<'_, H> {
    fn drop(&mut self) {
        // Release: the next holder sees what was done in this direction.
        if self.0.word.compare_exchange(HELD, FREE, Release, Relaxed).is_err() {
            self.0.hand_over();
        }
    }
}
