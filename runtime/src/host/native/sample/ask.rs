//! How a thread is asked where it is, by a signal, and where the handler puts the answer.
//!
//! A handler takes no lock and allocates nothing, and it may come at any time later, or never: the thread may have blocked the
//! signal. So the answers go into slots that are never freed. Each has a word with a thread's number and one of four states:
//!
//! ```text
//!            asker: ask                handler: take up           handler: answered
//!   Free ───────────────────▶ Asked ────────────────▶ Answering ────────────────────▶ Answered
//!    ▲ ▲                        │                                                        │
//!    │ └── asker: withdraw ─────┘                                                        │
//!    └──────────────────────────────── asker: read, or clear ────────────────────────────┘
//! ```
//! There is one asker at a time. It waits for a limited time, and then withdraws the question. A question that a handler
//! is about to answer can't be withdrawn: that slot stays out of use until the answer is there, which the next asker clears.
//!
//! A handler looks for a slot in which its own thread is asked, whatever sent the signal. One that comes too late finds
//! none, or the thread's next question, which is as good; and one on a thread that only has the number of the thread that was
//! meant answers for itself.
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
/// The thread's number stands above it.
const THREAD: u32 = 2;

/// Where one thread at a time is asked.
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

    /// The asker's: asks a thread. Returns `false` if the slot is still out of use. `clear`: for an answer that came too late.
    #[must_use]
    pub(crate) fn ask(&self, thread: u32, clear: impl FnOnce(&mut T)) -> bool {
        let _too_late = self.take(clear);
        // Relaxed: the asker alone writes a free slot.
        if self.word.load(Relaxed) != FREE {
            return false;
        }
        // Release: partner `answer`: what the asker did with the last sample is over.
        self.word.store(u64::from(thread) << THREAD | ASKED, Release.unless(AskRelaxed));
        true
    }

    /// The handler's, on the thread of this number: has `fill` write the answer, if the thread is asked here.
    pub(crate) fn answer(&self, thread: u32, fill: impl FnOnce(&mut T)) -> bool {
        let named = u64::from(thread) << THREAD;
        // Acquire: partner `ask`. Relaxed: it is asked elsewhere, or not at all.
        if self.word.compare_exchange(named | ASKED, named | ANSWERING, Acquire, Relaxed).is_err() {
            return false;
        }
        // SAFETY: invariant 1.
        self.sample.with_mut(|sample| fill(unsafe { &mut *sample }));
        // Release: partner `take`.
        self.word.store(named | ANSWERED, Release.unless(AnswerRelaxed));
        true
    }

    /// The asker's: reads the answer, if there is one, and frees the slot.
    pub(crate) fn take<R>(&self, read: impl FnOnce(&mut T) -> R) -> Option<R> {
        // Acquire: partner `answer`.
        if self.word.load(Acquire) & STATE != ANSWERED {
            return None;
        }
        // SAFETY: invariant 1.
        let answer = self.sample.with_mut(|sample| read(unsafe { &mut *sample }));
        // Relaxed: no handler takes up a free slot; `ask` publishes what was done.
        self.word.store(FREE, Relaxed);
        Some(answer)
    }

    /// The asker's: waits for no answer any more.
    pub(crate) fn withdraw(&self) {
        // Relaxed: the asker's own store, or a handler's, which is left alone.
        let seen = self.word.load(Relaxed);
        if seen & STATE != ASKED {
            return;
        }
        mutant!(WithdrawStores: return self.word.store(FREE, Relaxed));
        // Relaxed: nothing was written. A handler that was faster has the slot.
        let _faster = self.word.compare_exchange(seen, FREE, Relaxed, Relaxed);
    }
}
