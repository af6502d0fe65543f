//! The time limit of the operations in one direction of a socket.
//!
//! There are two words for each direction: the deadline, a point in time; and the timeout, a length that counts from the
//! beginning of each operation. The earlier end counts. An operation reads the deadline before each system call, looks at the
//! timeout's end when a call would block, and at both after announcing a wait, and arms a timer for that wait only. So a
//! deadline ends calls, and a timeout ends waits alone, as in std: an operation that comes late to data that is there, as its
//! thread or its goroutine had to wait for a turn, gets the data. The setter of a deadline stores the new value, and then makes
//! all operations in that direction read the deadline again. A timeout counts for the operations that begin after it was set.

use crate::host::{Active, Clock};
use crate::prim::{AtomicU64, Relaxed};
use gmp_timers::Nanos;
use std::io;
use std::time::{Duration, Instant};

const NONE: u64 = u64::MAX;
const NEVER: Nanos = Nanos::from_nanos(NONE);

/// The limits of one direction. Relaxed everywhere: a fence, the slot's exchange or the queue's lock orders a setter
/// with the operations that wait.
pub(crate) struct Limit {
    deadline: AtomicU64,
    timeout: AtomicU64,
}

/// When the time of one operation is over; `NEVER` without an end.
#[derive(Copy, Clone)]
pub(crate) struct Begun {
    /// After this time no call is made.
    calls: Nanos,
    /// After this time the operation does not wait.
    waits: Nanos,
}

impl Begun {
    /// An operation whose time is over at `until`, and which makes no call then.
    pub(crate) fn until(until: Option<Nanos>) -> Self {
        let end = until.unwrap_or(NEVER);
        Begun { calls: end, waits: end }
    }

    /// The operation that ends with the earlier of two.
    pub(crate) fn and(self, other: Self) -> Self {
        Begun { calls: self.calls.min(other.calls), waits: self.waits.min(other.waits) }
    }

    /// The same operation, but no call is made after the end either.
    pub(crate) fn to_the_call(self) -> Self {
        Begun { calls: self.waits, ..self }
    }

    /// What bounds the calls of this operation.
    #[inline]
    pub(crate) fn of_calls(self) -> Self {
        Begun { waits: self.calls, ..self }
    }

    /// Returns an error if the operation may not wait any more.
    ///
    /// Returns `true` if calls and waits end only after this time.
    pub(crate) fn end_after(self, time: Nanos) -> bool {
        self.calls.min(self.waits) > time
    }

    /// # Errors
    /// `TimedOut`.
    #[inline]
    pub(crate) fn may_wait(self) -> io::Result<()> {
        if self.waits == NEVER || Active::now() < self.waits { Ok(()) } else { Err(timed_out()) }
    }
}

impl Limit {
    pub(crate) fn new() -> Self {
        Limit { deadline: AtomicU64::new(NONE), timeout: AtomicU64::new(NONE) }
    }

    pub(crate) fn set_deadline(&self, at: Option<Instant>) {
        let at = at.map_or(NONE, |at| Active::nanos(at).as_nanos().min(NONE - 1));
        self.deadline.store(at, Relaxed);
    }

    /// # Errors
    /// `InvalidInput` for a timeout of zero, as in std.
    pub(crate) fn set_timeout(&self, length: Option<Duration>) -> io::Result<()> {
        let length = match length {
            None => NONE,
            Some(Duration::ZERO) => return Err(no_zero()),
            // A length over 584 years counts as 584 years.
            Some(length) => u64::try_from(length.as_nanos()).unwrap_or(NONE).min(NONE - 1),
        };
        self.timeout.store(length, Relaxed);
        Ok(())
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        let length = self.timeout.load(Relaxed);
        (length != NONE).then(|| Duration::from_nanos(length))
    }

    /// Notes the beginning of an operation.
    #[inline]
    pub(crate) fn begin(&self) -> Begun {
        let length = self.timeout.load(Relaxed);
        let waits = if length == NONE { NEVER } else { Active::after(Duration::from_nanos(length)) };
        Begun { calls: NEVER, waits }
    }

    /// As `begin`, for an operation on another descriptor, which reads its own deadline and not this one: so the result
    /// includes this deadline.
    pub(crate) fn begin_elsewhere(&self) -> Begun {
        Begun::until(Some(Nanos::from_nanos(self.deadline.load(Relaxed)))).and(self.begin())
    }

    /// Returns until when the operation may last.
    ///
    /// # Errors
    /// `TimedOut` if that time has passed.
    #[inline]
    pub(crate) fn until(&self, begun: Begun) -> io::Result<Option<Nanos>> {
        let until = begun.waits.min(Nanos::from_nanos(self.deadline.load(Relaxed)));
        if until == NEVER {
            return Ok(None);
        }
        if Active::now() < until { Ok(Some(until)) } else { Err(timed_out()) }
    }
}

#[cold]
pub(crate) fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the deadline or timeout of this operation has passed")
}

#[cold]
pub(crate) fn no_zero() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a timeout of zero is not allowed; None is no limit")
}

/// Does the same as `no_zero`, for a dial, whose timeout is a plain `Duration`.
#[cold]
pub(crate) fn no_time_to_connect() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "connect: a timeout of zero leaves no time")
}
