//! How a signal gets from the handler to the thread that serves receivers.
//!
//! A handler must not take a lock or allocate, and it can interrupt any thread anywhere, also the thread that serves:
//!
//! ```text
//!   handler                                        the thread
//!
//!   H1  `came`: set the signal's bit               T1  doze until an alarm, and take the alarm
//!   H2  alarm                                      T2  `came` := none; deliver what was set
//! ```
//! The obvious way, a pipe to write to, costs descriptors, and a program that closes all descriptors takes these away and gives
//! their numbers to others.
//!
//! Invariant: after each H1 there is one T2 that finds the bit. The doze that takes H2's alarm, or the alarm of a later
//! handler, comes after H1, and T2 after that doze. Signals of one number between two T2 are one.
//!
//! Checked by `models/signal.rs`; with real signals by `tests/os/signal/`.

use crate::host::Active;
use crate::m::note::Note;
use crate::prim::hooks::*;
use crate::prim::{AtomicU64, Relaxed};

/// The signals that have come and are not delivered yet. One value for the process.
pub(crate) struct Pending {
    came: AtomicU64,
    note: Note<Active>,
}

impl Pending {
    pub(crate) fn new() -> Self {
        Pending { came: AtomicU64::new(0), note: Note::new() }
    }

    /// H1 and H2. Does what a signal handler may: atomics, and a futex wake.
    pub(crate) fn raise(&self, signals: u64) {
        mutant!(SignalAfterAlarm: self.note.alarm());
        // Relaxed: the alarm publishes the bit to the doze that takes it; partner: `wait`.
        self.came.fetch_or(signals, Relaxed);
        unless!(SignalAfterAlarm, self.note.alarm());
    }

    /// T1 and T2: blocks the thread until signals have come, or `stir` was called. Returns what has come.
    pub(crate) fn wait(&self) -> u64 {
        mutant!(SignalLookBeforeDoze: keep came = self.came.swap(0, Relaxed));
        self.note.doze(None);
        mutant!(SignalLookBeforeDoze: return came.unwrap_or(0));
        mutant!(SignalTakenInTwoSteps: keep came = self.came.load(Relaxed));
        mutant!(SignalTakenInTwoSteps: self.came.store(0, Relaxed));
        mutant!(SignalTakenInTwoSteps: return came.unwrap_or(0));
        // Relaxed: the doze has acquired what was written before the alarm.
        self.came.swap(0, Relaxed)
    }

    /// Ends a `wait`.
    pub(crate) fn stir(&self) {
        self.note.alarm();
    }

    /// Forgets that these signals have come.
    pub(crate) fn forget(&self, signals: u64) {
        // Relaxed: a signal that comes at this moment may be forgotten, or not.
        self.came.fetch_and(!signals, Relaxed);
    }
}
