//! The receivers of signals.

use super::number::Signal;
use super::registry::{Registration, listen};
use crate::chan::{self, RecvError, RecvTimeoutError, TryRecvError};
use crate::impls::opaque;
use std::io;
use std::time::{Duration, Instant};

/// Receives signals; made by [`notify`](super::notify). When the last receiver of a signal is dropped, the signal's own action
/// comes back.
///
/// A receiver is closed once [`ignore`](super::ignore) or [`reset`](super::reset) has left it without a signal: it returns the
/// signals that came before, and then errors.
///
/// ```
/// use gmp::signal::{self, SIGUSR2};
/// use gmp::{chan, select};
/// use std::time::Duration;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let signals = signal::notify(&[SIGUSR2]).unwrap();
///         libc::raise(libc::SIGUSR2);
///         select! {
///             recv(signals.receiver()) -> signal => assert_eq!(signal, Ok(SIGUSR2)),
///             recv(chan::after(Duration::from_secs(60))) -> _ => panic!("too late"),
///         }
///     })
/// }
/// ```
pub struct Receiver {
    // First: a channel without a receiver takes no signals.
    signals: chan::Receiver<Signal>,
    _registration: Registration,
}

impl Receiver {
    pub(super) fn new(signals: u64) -> io::Result<Self> {
        let (sender, receiver) = chan::once_each();
        let registration = listen(signals, move |signal| sender.send_absent(signal))?;
        Ok(Receiver { signals: receiver, _registration: registration })
    }

    /// Returns the channel, for an arm of a [`select!`](crate::select). Dropping the receiver closes clones of the channel,
    /// too.
    pub fn receiver(&self) -> &chan::Receiver<Signal> {
        &self.signals
    }

    /// Receives the next signal. Blocks the goroutine, or the plain thread.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// The receiver is closed, and no signal is left.
    pub fn recv(&self) -> Result<Signal, RecvError> {
        self.signals.recv()
    }

    /// Receives a signal that is there. Does not block.
    ///
    /// # Errors
    /// None is there. The error tells whether the receiver is closed.
    pub fn try_recv(&self) -> Result<Signal, TryRecvError> {
        self.signals.try_recv()
    }

    /// Receives as [`recv`](Self::recv), and waits for at most `timeout`.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// The time has passed, or the receiver is closed, and no signal is left.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Signal, RecvTimeoutError> {
        self.signals.recv_timeout(timeout)
    }

    /// Receives as [`recv`](Self::recv), and waits until `deadline` at most.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`recv_timeout`](Self::recv_timeout).
    pub fn recv_deadline(&self, deadline: Instant) -> Result<Signal, RecvTimeoutError> {
        self.signals.recv_deadline(deadline)
    }

    /// Receives until the receiver is closed. Each `next` blocks the goroutine, or the plain thread.
    ///
    /// # Unwinds
    /// When a wait of the iterator is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn iter(&self) -> chan::Iter<'_, Signal> {
        self.signals.iter()
    }

    /// Receives the signals that are there. Does not block.
    pub fn try_iter(&self) -> chan::TryIter<'_, Signal> {
        self.signals.try_iter()
    }
}

opaque!(Receiver);

impl<'a> IntoIterator for &'a Receiver {
    type Item = Signal;
    type IntoIter = chan::Iter<'a, Signal>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// An iterator like [`Receiver::iter`] that owns the receiver; made by `into_iter`.
///
/// ```
/// use gmp::signal::{self, SIGUSR1};
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let signals = signal::notify(&[SIGUSR1]).unwrap();
///         libc::raise(libc::SIGUSR1);
///         for signal in signals {
///             assert_eq!(signal, SIGUSR1);
///             signal::reset(&[SIGUSR1]).unwrap();
///         }
///     })
/// }
/// ```
pub struct IntoIter(Receiver);

opaque!(IntoIter);

impl Iterator for IntoIter {
    type Item = Signal;

    fn next(&mut self) -> Option<Signal> {
        self.0.recv().ok()
    }
}

impl IntoIterator for Receiver {
    type Item = Signal;
    type IntoIter = IntoIter;

    fn into_iter(self) -> IntoIter {
        IntoIter(self)
    }
}
