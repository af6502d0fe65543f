//! A note: one thread sleeps on a note until one wake (Go's `note`).
//!
//! ```text
//!   sleeper                                        waker
//!
//!   N1  the word is not 0?  done                   W1  the word := 1 (Release)
//!   N2  sleep on the word while it is 0            W2  wake the thread that sleeps on the word
//!       N1 again
//! ```
//! The kernel compares the word with 0 and puts the thread to sleep in one step. So if W1 comes before N2, N2 returns at once;
//! if W1 comes after N2, the W2 that follows ends the sleep. Only the sleeper calls `clear`, between two uses.
//!
//! Waking is one-shot: a second `wake` before the next `clear` is a broken invariant and panics. A plain thread's note is an
//! alarm clock instead: it takes any number of `alarm`s, and after each alarm at least one `doze` returns, which takes all
//! alarms up to then. The protocol is here; only "sleep while the word is 0" and "wake" are the host's.
//!
//! Checked by `models/note.rs`; alarms also by `models/interrupt.rs`.

use crate::host::Host;
use crate::prim::hooks::*;
use crate::prim::{AcqRel, Acquire, AtomicU32, Relaxed, Release};
use gmp_timers::Nanos;

const CLEAR: u32 = 0;
const WOKEN: u32 = 1;

/// A place where one thread sleeps until one wake.
pub(crate) struct Note<H: Host> {
    word: AtomicU32,
    sleep_state: H::SleepState,
}

impl<H: Host> Note<H> {
    pub(crate) fn new() -> Self {
        Note { word: AtomicU32::new(CLEAR), sleep_state: H::SleepState::default() }
    }

    /// Makes the note ready for the next use. Only the sleeper calls this, awake.
    pub(crate) fn clear(&self) {
        // Relaxed: the next waker learns of the sleeper through a lock that is taken after this.
        self.word.store(CLEAR, Relaxed);
    }

    /// Blocks the thread until `wake` was called.
    pub(crate) fn sleep(&self) {
        // Acquire: all that the waker wrote before the wake: partner `wake`.
        while self.word.load(Acquire.unless(NoteSleepRelaxed)) == CLEAR {
            H::sleep(&self.sleep_state, &self.word, CLEAR, None);
        }
    }

    /// Blocks the thread until `wake` was called or `until` has come. Returns `false` if no `wake` was called.
    pub(crate) fn sleep_until(&self, until: Nanos) -> bool {
        loop {
            // Acquire: partner `wake`, as in `sleep`.
            if self.word.load(Acquire.unless(NoteSleepUntilRelaxed)) != CLEAR {
                return true;
            }
            let now = H::now();
            if now >= until {
                return false;
            }
            H::sleep(&self.sleep_state, &self.word, CLEAR, Some(until.saturating_since(now)));
        }
    }

    /// Ends the sleep, now or at its beginning.
    pub(crate) fn wake(&self) {
        mutant!(NoteWakeBeforeStore: H::wake(&self.sleep_state, &self.word));
        // Release: the sleeper sees what was written before the wake: partners `sleep` and `sleep_until`.
        let old = self.word.swap(WOKEN, Release.unless(NoteWakeRelaxed));
        assert!(old == CLEAR, "wake: the note was woken twice");
        mutant!(NoteWakeBeforeStore: return);
        H::wake(&self.sleep_state, &self.word);
    }

    /// Ends a `doze`, now or at its beginning. Can be called again before that, and by many threads.
    pub(crate) fn alarm(&self) {
        // AcqRel: each alarm also hands the sleeper all that was written before the earlier alarms: partners the other alarms,
        // and `doze`.
        if self.word.swap(WOKEN, AcqRel.unless(AlarmRelaxed)) == CLEAR {
            H::wake(&self.sleep_state, &self.word);
        }
    }

    /// Blocks the thread until an `alarm`, and takes that alarm. Returns `false` if `until` comes first.
    pub(crate) fn doze(&self, until: Option<Nanos>) -> bool {
        // Acquire: all that was written before the alarm: partner `alarm`.
        while self.word.swap(CLEAR, Acquire.unless(DozeRelaxed)) == CLEAR {
            let left = until.map(|until| until.saturating_since(H::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            H::sleep(&self.sleep_state, &self.word, CLEAR, left);
        }
        true
    }
}
