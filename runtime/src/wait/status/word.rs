//! The status word's bits, and the results of the transitions.

use crate::prim::hooks::*;

const STATUS: u64 = 0b111;
pub(super) const SCAN: u64 = 1 << 3;
pub(super) const DEFERRED: u64 = 1 << 4;
pub(super) const OPEN: u64 = 1 << 5;
pub(super) const CLAIMED: u64 = 1 << 6;
pub(super) const READY: u64 = 1 << 7;
pub(super) const NUDGED: u64 = 1 << 8;
pub(super) const REFUSED: u64 = 1 << 9;
pub(super) const KNOWN: u64 = 1 << 10;
pub(super) const SAVED: u64 = 1 << 11;
/// Claimed by the end of the runtime, for the owner itself.
pub(super) const CLAIMED_FOR_END: u64 = 1 << 12;
/// Claimed by the wait's own timer.
pub(super) const TIMED: u64 = 1 << 13;
pub(super) const NUMBER: u32 = 14;
/// The bits that a wait leaves in the word.
pub(super) const OF_A_WAIT: u64 =
    OPEN | CLAIMED | READY | NUDGED | REFUSED | KNOWN | SAVED | CLAIMED_FOR_END | TIMED;

/// What a G is doing. Go's names without the underscore.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Status {
    /// In the pool: no goroutine uses the G.
    Idle = 0,
    /// In a run queue, or on its way into one.
    Runnable = 1,
    /// On an M.
    Running = 2,
    /// Parked, until a waker readies it.
    Waiting = 3,
}

/// The number of one wait. Never used twice by the same word.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct WaitNumber(pub(super) u64);

impl WaitNumber {
    /// For a queue record made of atomics (pollDesc's).
    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }
    pub(crate) fn from_bits(bits: u64) -> Self {
        WaitNumber(bits)
    }
}

/// The value of the word at one moment.
#[derive(Copy, Clone, Eq, PartialEq)]
pub(super) struct Word(pub(super) u64);

impl Word {
    #[inline]
    pub(super) fn status(self) -> Status {
        match self.0 & STATUS {
            0 => Status::Idle,
            1 => Status::Runnable,
            2 => Status::Running,
            3 => Status::Waiting,
            other => unreachable!("status: no such status ({other})"),
        }
    }
    /// Returns `true` if the status is this one. Does not check that the word holds a valid status.
    #[inline(always)]
    pub(super) fn is(self, status: Status) -> bool {
        self.0 & STATUS == status as u64
    }
    /// Panics if `holds` is false. The text is made out of line, so that the word needs no place in the caller's frame.
    #[inline(always)]
    #[track_caller]
    pub(super) fn assert(self, holds: bool, what: &str) {
        if !holds {
            self.is_broken(what);
        }
    }
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn is_broken(self, what: &str) -> ! {
        panic!("{what} ({self:?})")
    }
    pub(super) fn has(self, bits: u64) -> bool {
        self.0 & bits == bits
    }
    pub(super) fn number(self) -> WaitNumber {
        WaitNumber(self.0 >> NUMBER)
    }
    /// Returns `true` if the wait is open and not yet claimed under `number`.
    pub(super) fn open(self, number: WaitNumber) -> bool {
        mutant!(ClaimAnyWait: let number = self.number());
        // One comparison.
        self.0 & (u64::MAX << NUMBER | OPEN | CLAIMED) == number.0 << NUMBER | OPEN
    }
    pub(super) fn with_status(self, status: Status) -> Word {
        Word(self.0 & !STATUS | status as u64)
    }
    pub(super) fn set(self, bits: u64) -> Word {
        Word(self.0 | bits)
    }
    pub(super) fn clear(self, bits: u64) -> Word {
        Word(self.0 & !bits)
    }
}

impl std::fmt::Debug for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} wait {}", self.status(), self.number().0)?;
        for (bit, name) in [
            (SCAN, "scan"),
            (DEFERRED, "deferred"),
            (OPEN, "open"),
            (CLAIMED, "claimed"),
            (READY, "ready"),
            (NUDGED, "nudged"),
            (REFUSED, "refused"),
            (KNOWN, "known"),
            (SAVED, "saved"),
            (CLAIMED_FOR_END, "claimed for the end"),
            (TIMED, "timed"),
        ] {
            if self.has(bit) {
                write!(f, " {name}")?;
            }
        }
        Ok(())
    }
}

/// The result of `run`.
#[derive(Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Run {
    /// This M alone runs the G now.
    Go,
    /// A dump holds the G; the holder queues the G again.
    Held,
}

/// The result of a `ready`, of a nudge, or of the end of a hold.
#[derive(Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Then {
    /// The word is Runnable now, and the caller has to queue the G.
    Queue,
    /// Nothing to do: the owner is awake, or another thread queues the owner.
    Leave,
}

/// The result of cancelling a park.
#[derive(Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum CancelPark {
    /// Running again: the M resumes the goroutine at once.
    Resume,
    /// A waker has claimed the wait, or a dump holds the G: the M takes other work.
    Gone,
}

/// What the ender of a runtime finds.
#[derive(Debug)]
#[must_use]
pub(crate) enum Doing {
    /// The goroutine has ended.
    Ended,
    /// The owner runs, or is about to.
    Runs,
    /// The owner sleeps in this wait, which is open.
    Sleeps(Asleep),
}

/// The word of an owner that sleeps, as the ender found it.
#[derive(Debug)]
pub(crate) struct Asleep(pub(super) Word);

/// Whether an owner that wanted to sleep on is asleep.
#[derive(Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Again {
    /// The word is Waiting.
    Asleep,
    /// A ready or nudge came meanwhile: the M resumes the goroutine at once.
    Awake,
}

/// Why an owner runs again.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Why {
    /// A waker has claimed and readied the wait: it is over.
    Readied,
    /// The commit hook refused. The wait is open.
    Refused,
    /// The owner was nudged. The wait is open.
    Nudged,
    /// The ender has claimed the wait because the runtime ends. No waker will ready the owner.
    ClaimedForEnd,
    /// Nothing has happened: a thread was woken for nothing. The wait is open.
    Nothing,
}
