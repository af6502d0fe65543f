//! The completion of a chosen operation. Only the sender or receiver that completes it knows the type of the message.

use super::Limit;
use super::arm::Arm;
use super::erased::{Boxed, Ops, Space};
use super::promise_hook::PromiseHook;
use crate::chan::flow::Chan;
use crate::chan::state::Promised;
use crate::chan::{Receiver, RecvError, SendError, Sender};
use crate::host::{Active, Process};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

/// The commitment of the chosen arm.
pub(crate) enum Chosen {
    /// A receive: the message lies in the arm's slot.
    Received,
    /// A receive: the channel is closed, and no message is left.
    Drained,
    /// A send, whose message is still to come.
    Sends(Promised),
}

/// A chosen arm, whose operation the caller has to complete. Dropping it cancels the operation.
pub struct Selected<'a> {
    index: usize,
    chan: *const (),
    ops: &'static Ops,
    chosen: Option<Chosen>,
    /// The place of a received message; for a send, the space with the hook of the promise.
    slot: *mut (),
    /// Freed after the `Drop` of `Selected`, even if the `drop` of the message in the box panics.
    _boxed: Option<Boxed>,
    channel: PhantomData<&'a mut Space>,
}

impl<'a> Selected<'a> {
    /// The index that stands for no arm: the limit has passed.
    pub const NONE: usize = usize::MAX;

    /// # Safety
    /// If `chosen` is `Received`, a message of the arm's channel lies in the arm's slot, which is the arm's box or this space.
    /// If `chosen` is `Sends`, the promise was noted in the space. The space is borrowed for `'a`.
    #[inline]
    pub(super) unsafe fn new(arm: &mut Arm<'a>, space: *mut Space, index: usize, chosen: Chosen) -> Self {
        let (_, chan, ops) = arm.chan.expect("select: a disabled arm is never ready");
        // SAFETY: by this function's contract.
        unsafe { Self::of((chan, ops), arm.boxed.take(), space, index, chosen) }
    }

    /// As `new`, for the parts of an arm.
    ///
    /// # Safety
    /// As `new`.
    #[inline(always)]
    pub(super) unsafe fn of(
        (chan, ops): (*const (), &'static Ops),
        boxed: Option<Boxed>,
        space: *mut Space,
        index: usize,
        chosen: Chosen,
    ) -> Self {
        let slot = boxed.as_ref().map_or(space.cast(), Boxed::slot);
        Selected { index, chan, ops, chosen: Some(chosen), slot, _boxed: boxed, channel: PhantomData }
    }

    /// For a select that `choose` has ended: notes the promise of a chosen send in `room`.
    ///
    /// # Safety
    /// As `new`, for a received message that lies in a box. If a message lies in the space, the caller passes its address to
    /// `at` later. `room` stays where it is until the `Selected` is dropped.
    #[inline]
    pub(crate) unsafe fn of_choice(
        arm: &mut Arm<'a>,
        room: *mut Space,
        chosen: Chosen,
        limit: Limit,
    ) -> Self {
        if let (Chosen::Sends(promised), Some((_, chan, ops))) = (&chosen, arm.chan) {
            // SAFETY: by this function's contract; the channel is borrowed for `'a`.
            unsafe { PromiseHook::note(room, chan, ops, *promised, limit) };
        }
        // SAFETY: by this function's contract.
        unsafe { Self::new(arm, room, 0, chosen) }
    }

    /// Says that the select's message, if it needs no box, now lies in `slot`.
    #[inline]
    pub(crate) fn at(mut self, slot: *mut ()) -> Self {
        if self._boxed.is_none() && matches!(self.chosen, Some(Chosen::Received)) {
            self.slot = slot;
        }
        self
    }

    /// Makes the drop leave a received message alone, which is then never dropped.
    #[inline]
    pub(crate) fn forget_message(&mut self) {
        if matches!(self.chosen, Some(Chosen::Received)) {
            self.chosen = None;
        }
    }

    /// Returns the value for no arm: the limit has passed.
    #[cold]
    pub(super) fn none() -> Self {
        let (chan, slot) = (std::ptr::null(), std::ptr::null_mut());
        let ops = const { &Chan::<()>::OPS };
        Selected { index: Self::NONE, chan, ops, chosen: None, slot, _boxed: None, channel: PhantomData }
    }

    /// Returns the number of the arm.
    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Panics unless a receive by this receiver was chosen.
    #[inline]
    #[track_caller]
    pub(crate) fn check_recv<T>(&self, receiver: &Receiver<T>) {
        let same = receiver.chan().is_some_and(|chan| std::ptr::eq((&raw const *chan).cast(), self.chan));
        assert!(same, "passed a receiver that wasn't selected");
        assert!(self.receives(), "passed a receiver, but a send was selected");
    }

    #[inline]
    fn receives(&self) -> bool {
        matches!(self.chosen, Some(Chosen::Received | Chosen::Drained))
    }

    /// Panics as `check_recv` does, and drops the selected operation.
    #[cold]
    #[track_caller]
    fn refuse<T>(self, receiver: &Receiver<T>) -> ! {
        self.check_recv(receiver);
        unreachable!("refuse: what passes `check_recv` is not refused")
    }

    /// # Safety
    /// `check_recv` has passed, with a receiver of a `T`.
    #[inline]
    pub(crate) unsafe fn received<T>(self) -> Result<T, RecvError> {
        // Not dropped: for a drop the compiler would keep a copy in memory.
        let selected = ManuallyDrop::new(self);
        let received = match selected.chosen {
            // SAFETY: by the contract of `new` a message of this channel, so a `T`, lies in the slot; nothing else uses this
            // `Selected`, so the message is moved out once.
            Some(Chosen::Received) => Ok(unsafe { selected.slot.cast::<T>().read() }),
            _ => Err(RecvError),
        };
        // SAFETY: as above, so the box is freed once.
        drop(unsafe { (&raw const selected._boxed).read() });
        received
    }

    /// Panics unless a send by this sender was chosen.
    #[inline]
    #[track_caller]
    pub(crate) fn check_send<T>(&self, sender: &Sender<T>) {
        let same = sender.chan().is_some_and(|chan| std::ptr::eq((&raw const *chan).cast(), self.chan));
        assert!(same, "passed a sender that wasn't selected");
        let sends = matches!(self.chosen, Some(Chosen::Sends(_)));
        assert!(sends, "passed a sender, but a receive was selected");
    }

    /// Sends by a sender that `check_send` has let pass. If another goroutine has chosen the send, gives the message back: the
    /// promise stays with that goroutine, and the room of the promise must never be freed.
    #[inline]
    #[track_caller]
    pub(crate) fn sends<T>(mut self, sender: &Sender<T>, message: T) -> Result<Result<(), SendError<T>>, T> {
        match (self.chosen.take(), sender.chan()) {
            (Some(Chosen::Sends(promised)), Some(chan)) => {
                // SAFETY: by the contract of `new`.
                let Some(limit) = (unsafe { PromiseHook::take_back(self.slot) }) else {
                    return Err(message);
                };
                Ok(chan.fulfil(promised, message, limit).map_err(SendError))
            }
            _ => unreachable!("send: a send by this sender was chosen"),
        }
    }

    /// Completes a receive.
    ///
    /// # Errors
    /// If the channel is closed, and no message is left.
    #[inline]
    #[track_caller]
    pub fn recv<T>(self, receiver: &Receiver<T>) -> Result<T, RecvError> {
        let chan = receiver.chan().map_or(std::ptr::null(), |chan| (&raw const *chan).cast());
        // Two nulls are equal if no arm was chosen (`none`): then `receives` is false.
        if chan != self.chan || !self.receives() {
            // Another function panics: to unwind this frame the compiler would keep a copy in memory.
            self.refuse(receiver);
        }
        // SAFETY: checked.
        unsafe { self.received() }
    }

    /// Completes a send.
    ///
    /// # Errors
    /// If the channel is closed. The error holds the message.
    #[track_caller]
    pub fn send<T>(self, sender: &Sender<T>, message: T) -> Result<(), SendError<T>> {
        self.check_send(sender);
        self.sends(sender, message).unwrap_or_else(|_message| is_anothers())
    }

    /// Cancels the operation. Returns `false` if another goroutine has chosen this send, as in `sends`.
    #[cold]
    pub(crate) fn cancel(&mut self) -> bool {
        match self.chosen.take() {
            // SAFETY: by the contract of `new` a message lies in the slot, and was not moved, as `chosen` was still
            // there.
            Some(Chosen::Received) => unsafe { (self.ops.drop)(self.slot) },
            // SAFETY: the promise was noted in the slot, by the contract of `new`; `ops` are those of `chan`, which
            // is borrowed for `'a`.
            Some(Chosen::Sends(promised)) => unsafe {
                if PromiseHook::take_back(self.slot).is_none() {
                    return false;
                }
                (self.ops.withdraw)(self.chan, promised).ready();
            },
            Some(Chosen::Drained) | None => {}
        }
        true
    }
}

/// The operation of a `select!` lies in a frame, which stays with its goroutine. This is not a panic, which would free the
/// space that the list of that goroutine refers to.
#[cold]
fn is_anothers() -> ! {
    Active::fatal("select!: the promise is not in the goroutine's list of hooks: it is another goroutine's")
}

impl Drop for Selected<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.chosen.is_some() && !self.cancel() {
            is_anothers();
        }
    }
}
