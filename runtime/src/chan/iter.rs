//! Messages as iterators.

use crate::chan::Receiver;
use crate::impls::opaque;

/// Receives until the channel is closed and drained; made by [`Receiver::iter`]. Each `next` blocks the goroutine, or the
/// plain thread.
///
/// ```
/// use gmp::chan;
///
/// let (sender, receiver) = chan::unbounded();
/// for n in 1..=3 {
///     sender.send(n).unwrap();
/// }
/// drop(sender);
/// assert_eq!(receiver.iter().sum::<i32>(), 6);
/// ```
pub struct Iter<'a, T> {
    receiver: &'a Receiver<T>,
}

/// Receives the messages that are there, and ends as soon as there is none; made by [`Receiver::try_iter`].
///
/// ```
/// use gmp::chan;
///
/// let (sender, receiver) = chan::unbounded();
/// sender.send(1).unwrap();
/// sender.send(2).unwrap();
/// // The channel is open, but the iteration ends.
/// assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [1, 2]);
/// ```
pub struct TryIter<'a, T> {
    receiver: &'a Receiver<T>,
}

/// As [`Iter`], but owns the receiver; made by `into_iter`.
///
/// ```
/// use gmp::chan;
///
/// let (sender, receiver) = chan::unbounded();
/// sender.send('a').unwrap();
/// drop(sender);
/// for letter in receiver {
///     assert_eq!(letter, 'a');
/// }
/// ```
pub struct IntoIter<T> {
    receiver: Receiver<T>,
}

impl<T> Receiver<T> {
    /// Receives until the channel is closed and drained. Each `next` blocks the goroutine, as [`recv`](Self::recv) does.
    ///
    /// # Unwinds
    /// When a wait of the iterator is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }

    /// Receives the messages that are there. Does not block, but for the exception that [`try_recv`](Self::try_recv)
    /// describes.
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter { receiver: self }
    }
}

impl<T> Iterator for Iter<'_, T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<T> std::iter::FusedIterator for Iter<'_, T> {}
impl<T> std::iter::FusedIterator for IntoIter<T> {}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;
    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;
    fn into_iter(self) -> IntoIter<T> {
        IntoIter { receiver: self }
    }
}

opaque!([T] Iter<'_, T>, [T] TryIter<'_, T>, [T] IntoIter<T>);
