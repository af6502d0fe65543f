//! The operation that a [`Select`](super::Select) has chosen, until completed.

use super::Home;
use crate::chan::select::{Inline, Selected, Space};
use crate::chan::{Receiver, RecvError, SendError, Sender};
use crate::host::{Active, Process};
use crate::impls::opaque;

/// Room for the promise of a send, in a box: its address stays the same while the [`SelectedOperation`] that owns the room is
/// moved.
pub(super) struct OwnSpace(pub(super) *mut Space);

impl OwnSpace {
    pub(super) fn new() -> Self {
        OwnSpace(Box::into_raw(Box::new(Space::empty())))
    }
}

impl Drop for OwnSpace {
    fn drop(&mut self) {
        // SAFETY: `new` made the pointer from a box, and only this drop takes the box back.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// A chosen operation, which must be completed by [`send`](Self::send) or [`recv`](Self::recv).
///
/// Dropping a `SelectedOperation` cancels the operation: a received message is dropped, a receiver that waits for this send
/// continues to wait. (A message is leaked instead if the operations were added in another goroutine or thread, or in several:
/// the message might belong there.) After the cancel the drop panics, unless the goroutine is unwinding already.
///
/// Only the goroutine that has chosen a send can complete or cancel it. In another goroutine, which may have got the operation
/// out of a `thread_local!`, [`send`](Self::send) panics, and a drop leaves the receiver waiting for the message, as if the
/// operation were forgotten.
///
/// ```
/// use gmp::chan::{self, Select};
///
/// let (sender, receiver) = chan::bounded(1);
/// let mut select = Select::new();
/// let send = select.send(&sender);
/// let chosen = select.select();
/// assert_eq!(chosen.index(), send);
/// chosen.send(&sender, "hello").unwrap();
/// assert_eq!(receiver.recv(), Ok("hello"));
/// ```
#[must_use = "a selected operation must be completed"]
pub struct SelectedOperation<'a> {
    pub(super) index: usize,
    pub(super) selected: Option<Selected<'a>>,
    /// The room in which the promise of a send was noted. Dropped after `selected`.
    pub(super) room: Option<OwnSpace>,
    /// A received message, if it needs no box.
    pub(super) message: Inline,
    /// The home of the select.
    pub(super) home: Home,
}

impl SelectedOperation<'_> {
    /// Returns the operation's number, which [`Select::send`](super::Select::send) or [`Select::recv`](super::Select::recv)
    /// returned.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Cancels the operation, as the unwinding of the message's expression does. For models, which a panic fails.
    #[cfg(gmp_loom)]
    pub fn withdraw(mut self) {
        self.cancel();
    }

    /// Takes the operation out, with its message's address set.
    #[inline]
    fn take(&mut self) -> Option<Selected<'_>> {
        let selected = self.selected.take()?;
        Some(selected.at(self.message.slot()))
    }

    /// Cancels the operation. Returns `true` if it was not completed before.
    fn cancel(&mut self) -> bool {
        let at_home = self.home == Home::here();
        let Some(mut selected) = self.take() else { return false };
        if !at_home {
            selected.forget_message();
        }
        let is_own = selected.cancel();
        drop(selected);
        if !is_own {
            self.leave_room();
        }
        true
    }

    /// Leaks the room of a send that another goroutine has chosen: that goroutine's list of hooks still refers to it.
    #[cold]
    fn leave_room(&mut self) {
        std::mem::forget(self.room.take());
    }

    /// Completes a send, through the sender with which the operation was added. Does not block, unless the receiver for which
    /// the send was chosen has left meanwhile, by its limit or its context: then the call waits for another receiver, until the
    /// limit of the select, or not at all after [`try_select`](super::Select::try_select).
    ///
    /// # Unwinds
    /// When that wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// If the channel is closed, or that limit has passed. The error holds the message.
    ///
    /// # Panics
    /// If another operation was chosen, or if another goroutine has chosen this one.
    #[track_caller]
    pub fn send<T>(mut self, sender: &Sender<T>, message: T) -> Result<(), SendError<T>> {
        // Before the operation is taken: a panic cancels by `self`, which knows whether a received message may be dropped here.
        self.selected.as_ref().expect("send: completed once").check_send(sender);
        let selected = self.take().expect("send: completed once");
        match selected.sends(sender, message) {
            Ok(sent) => sent,
            Err(_message) => {
                self.leave_room();
                panic!("send: the operation was chosen in another goroutine");
            }
        }
    }

    /// Completes a receive, through the receiver with which the operation was added. Does not block.
    ///
    /// # Errors
    /// If the channel is closed, and no message is left.
    ///
    /// # Panics
    /// If another operation was chosen.
    #[track_caller]
    pub fn recv<T>(mut self, receiver: &Receiver<T>) -> Result<T, RecvError> {
        // As in `send`.
        self.selected.as_ref().expect("recv: completed once").check_recv(receiver);
        let selected = self.take().expect("recv: completed once");
        // SAFETY: checked.
        unsafe { selected.received() }
    }
}

impl Drop for SelectedOperation<'_> {
    fn drop(&mut self) {
        if self.selected.is_some() && self.cancel() && !Active::is_panicking() {
            panic!("dropped `SelectedOperation` without completing the operation");
        }
    }
}

opaque!(SelectedOperation<'_>);
