//! How a dump asks a thread, by a signal, where it is, and where the handler puts the answer.
//!
//! A handler must not take a lock or allocate, and may run at any time later, or never: the thread may have blocked the signal.
//! So the answers go into slots that are never freed. The word of a slot has a thread's number and one of four states:
//!
//! ```text
//!            asker: ask                handler: take up           handler: answered
//!   Free ───────────────────▶ Asked ────────────────▶ Answering ────────────────────▶ Answered
//!    ▲ ▲                        │                                                        │
//!    │ └── asker: withdraw ─────┘                                                        │
//!    └──────────────────────────────── asker: read, or clear ────────────────────────────┘
//! ```
//! There is one asker at a time. The asker waits for a limited time, and then withdraws the question. A question that a
//! handler is about to answer can't be withdrawn: that slot stays out of use until the answer is there, and the next asker
//! clears it.
//!
//! A handler looks for a slot in which its own thread is asked, whatever sent the signal. A handler that comes too late finds
//! no question, or the thread's next question, and answers that; a handler on a thread that has got the number of an ended
//! thread answers for its own thread.
//!
//! Invariants:
//! 1. The sample belongs to the handler while the slot is Answering, else to the asker.
//! 2. A handler writes to no slot but the one that it took up.
//!
//! Checked by `models/ask.rs`.

use crate::prim::hooks::*;
use crate::prim::{Acquire, AtomicU64, Relaxed, Release, UnsafeCell};

const FREE: u64 = 0;
const ASKED: u64 = 1;
const ANSWERING: u64 = 2;
const ANSWERED: u64 = 3;
const STATE: u64 = 0b11;
/// The bits from this one on are the thread's number.
const THREAD: u32 = 2;

/// A place in which one thread at a time is asked.
pub(crate) struct Slot<T> {
    word: AtomicU64,
    sample: UnsafeCell<T>,
}

// SAFETY: the sample has one owner at a time, by invariant 1.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T> Slot<T> {
    pub(crate) fn new(sample: T) -> Self {
        Slot { word: AtomicU64::new(FREE), sample: UnsafeCell::new(sample) }
    }

    /// Called by the asker: asks a thread. Returns `false` if the slot is still out of use. `clear` is called for an answer
    /// that came too late.
    #[must_use]
    pub(crate) fn ask(&self, thread: u32, clear: impl FnOnce(&mut T)) -> bool {
        let _too_late = self.take(clear);
        // Relaxed: the asker alone writes a free slot.
        if self.word.load(Relaxed) != FREE {
            return false;
        }
        // Release: partner `answer`. What the asker did with the last sample is over.
        self.word.store(u64::from(thread) << THREAD | ASKED, Release.unless(AskRelaxed));
        true
    }

    /// Called by the handler, on the thread of this number: calls `fill` to write the answer, if the thread is asked here.
    /// Returns `true` if so.
    pub(crate) fn answer(&self, thread: u32, fill: impl FnOnce(&mut T)) -> bool {
        let named = u64::from(thread) << THREAD;
        // Acquire: partner `ask`. Relaxed: the thread is asked elsewhere, or not at all.
        let acquire = Acquire.unless(AskLooksRelaxed);
        if self.word.compare_exchange(named | ASKED, named | ANSWERING, acquire, Relaxed).is_err() {
            return false;
        }
        // SAFETY: invariant 1.
        self.sample.with_mut(|sample| fill(unsafe { &mut *sample }));
        // Release: partner `take`.
        self.word.store(named | ANSWERED, Release.unless(AnswerRelaxed));
        true
    }

    /// Called by the asker: reads the answer, if there is one, and frees the slot.
    pub(crate) fn take<R>(&self, read: impl FnOnce(&mut T) -> R) -> Option<R> {
        // Acquire: partner `answer`.
        if self.word.load(Acquire.unless(AnswerLooksRelaxed)) & STATE != ANSWERED {
            return None;
        }
        // SAFETY: invariant 1.
        let answer = self.sample.with_mut(|sample| read(unsafe { &mut *sample }));
        // Relaxed: no handler takes up a free slot; the next `ask` publishes what the asker did.
        self.word.store(FREE, Relaxed);
        Some(answer)
    }

    /// Called by the asker: withdraws the question.
    pub(crate) fn withdraw(&self) {
        // Relaxed: the word is the asker's own store, or a handler's, and the asker leaves a handler's slot alone.
        let seen = self.word.load(Relaxed);
        if seen & STATE != ASKED {
            return;
        }
        mutant!(WithdrawStores: return self.word.store(FREE, Relaxed));
        // Relaxed: the asker has written nothing to publish. A handler that was faster owns the slot.
        let _faster = self.word.compare_exchange(seen, FREE, Relaxed, Relaxed);
    }
}
