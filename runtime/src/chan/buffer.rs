//! The buffer of a channel: messages that were sent and not received yet, in a ring.
//!
//! The ring of a bounded channel lies behind the channel, in one allocation (`flow/owners.rs`). Messages that are granted to
//! tasks occupy no place (`flow/task.rs`), and may need a larger ring; an unbounded channel has a ring that grows and shrinks.
//! Such a ring has memory of its own.

use crate::host::{Active, Process};
use std::alloc::{self, Layout};
use std::mem::{ManuallyDrop, needs_drop};
use std::panic::resume_unwind;
use std::ptr::NonNull;

/// A growing buffer keeps at least this capacity, in messages.
const KEEP: usize = 64;
/// A ring in memory of its own has at least this many slots.
const LEAST: usize = 4;

/// The slots of a ring.
struct Slots<T> {
    at: NonNull<T>,
    /// The number of slots; `usize::MAX` for messages without a size.
    room: usize,
    /// Set if the slots are an allocation of their own.
    own: bool,
}

impl<T> Slots<T> {
    /// Allocates slots; allocates nothing if `room` is zero, or messages have no size.
    fn own(room: usize) -> Self {
        if size_of::<T>() == 0 {
            return Slots { at: NonNull::dangling(), room: usize::MAX, own: false };
        }
        if room == 0 {
            return Slots { at: NonNull::dangling(), room, own: false };
        }
        let layout = Self::layout(room);
        // SAFETY: neither the number of slots nor their size is zero.
        let memory = NonNull::new(unsafe { alloc::alloc(layout) });
        Slots { at: memory.unwrap_or_else(|| alloc::handle_alloc_error(layout)).cast(), room, own: true }
    }

    fn layout(room: usize) -> Layout {
        Layout::array::<T>(room).expect("layout: a ring that is larger than the address space")
    }

    /// Returns the slot with this number.
    ///
    /// # Safety
    /// `number` is less than `room`.
    #[inline(always)]
    unsafe fn slot(&self, number: usize) -> *mut T {
        // SAFETY: by this function's contract.
        unsafe { self.at.as_ptr().add(number) }
    }
}

impl<T> Drop for Slots<T> {
    #[inline]
    fn drop(&mut self) {
        if self.own {
            // SAFETY: `own` has allocated the slots with this layout.
            unsafe { alloc::dealloc(self.at.as_ptr().cast(), Self::layout(self.room)) };
        }
    }
}

/// A first-in, first-out queue, used under the channel's lock.
pub(crate) struct Buffer<T> {
    slots: Slots<T>,
    /// The slot of the first message; less than `room`, or zero.
    head: usize,
    /// At most `room`.
    len: usize,
    shrinks: bool,
}

impl<T> Buffer<T> {
    /// Makes a buffer over these slots.
    ///
    /// # Safety
    /// The slots are valid and not used otherwise as long as the buffer, or the buffer that takes its place, exists.
    pub(crate) unsafe fn over(at: NonNull<T>, room: usize) -> Self {
        debug_assert!(at.is_aligned(), "over: slots that are not aligned ({at:p})");
        let room = if size_of::<T>() == 0 { usize::MAX } else { room };
        Buffer { slots: Slots { at, room, own: false }, head: 0, len: 0, shrinks: false }
    }

    /// Makes a buffer that grows and shrinks as needed.
    pub(crate) fn growing() -> Self {
        Buffer { slots: Slots::own(0), head: 0, len: 0, shrinks: true }
    }

    /// Returns the number of the slot whose message has, or will have, `before` messages before it.
    #[inline(always)]
    fn place(&self, before: usize) -> usize {
        // No overflow: both are at most the number of slots, which lie in an allocation; no count of zero-sized messages comes
        // that far.
        let at = self.head + before;
        if at >= self.slots.room { at - self.slots.room } else { at }
    }

    /// As `push`, for a message by value.
    pub(crate) fn put(&mut self, message: T) {
        let message = ManuallyDrop::new(message);
        // SAFETY: the message is not used afterwards.
        unsafe { self.push(&raw const *message) };
    }

    /// Moves the message at `message` into the buffer.
    ///
    /// # Safety
    /// A message lies there, and belongs to the buffer from here on.
    #[inline]
    pub(crate) unsafe fn push(&mut self, message: *const T) {
        if self.len == self.slots.room {
            self.grow();
        }
        // SAFETY: the place is a free slot, as there are fewer messages than slots; the message by this function's contract.
        unsafe { self.slots.slot(self.place(self.len)).copy_from_nonoverlapping(message, 1) };
        self.len += 1;
    }

    /// As `push`. Not inlined, so that `push` is.
    ///
    /// # Safety
    /// As `push`.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn push_seldom(&mut self, message: *const T) {
        // SAFETY: by this function's contract.
        unsafe { self.push(message) };
    }

    pub(crate) fn contains(&self, message: &T) -> bool
    where
        T: PartialEq,
    {
        // SAFETY: a message lies in each of these slots.
        (0..self.len).any(|before| unsafe { *self.slots.slot(self.place(before)) == *message })
    }

    /// Moves the first message into `slot`, if there is one.
    ///
    /// # Safety
    /// `slot` is valid for a write of a `T`.
    #[inline]
    pub(crate) unsafe fn pop(&mut self, slot: *mut T) {
        if self.len == 0 {
            return;
        }
        // SAFETY: a message lies in the first slot, and belongs to the caller from here on; `slot` by this function's contract.
        unsafe { slot.copy_from_nonoverlapping(self.slots.slot(self.head), 1) };
        self.head = self.place(1);
        self.len -= 1;
        // Shrinks the ring when less than an eighth of it is in use: this gives the memory of a burst back, at a constant
        // amortised cost for each message.
        if self.shrinks && self.slots.room > KEEP && self.len < self.slots.room / 8 {
            self.shrink();
        }
    }

    /// As `pop`. Not inlined, so that `pop` is.
    ///
    /// # Safety
    /// As `pop`.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn pop_seldom(&mut self, slot: *mut T) {
        // SAFETY: by this function's contract.
        unsafe { self.pop(slot) };
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        self.move_to(self.slots.room.saturating_mul(2).max(LEAST));
    }

    #[cold]
    #[inline(never)]
    fn shrink(&mut self) {
        if size_of::<T>() > 0 {
            self.move_to((self.slots.room / 2).max(KEEP));
        }
    }

    /// Moves the messages into a ring of `room` slots, at least as many as there are messages.
    fn move_to(&mut self, room: usize) {
        let slots = Slots::<T>::own(room);
        let first = self.len.min(self.slots.room - self.head);
        // SAFETY: messages lie from the head to the end of the ring, and the rest from its beginning; the new ring has room for
        // all.
        unsafe {
            slots.slot(0).copy_from_nonoverlapping(self.slots.slot(self.head), first);
            slots.slot(first).copy_from_nonoverlapping(self.slots.slot(0), self.len - first);
        }
        self.slots = slots;
        self.head = 0;
    }

    /// Drops the first message.
    fn drop_first(&mut self) {
        let first = self.head;
        self.head = self.place(1);
        self.len -= 1;
        // SAFETY: a message lies in that slot, which no longer belongs to the buffer.
        unsafe { self.slots.slot(first).drop_in_place() };
    }

    /// Drops all messages, even if the `drop` of one unwinds; afterwards resumes the first of these unwindings. (In a loop of
    /// drops a second unwinding would end the process.)
    #[cold]
    fn drop_all(&mut self) {
        let mut first = None;
        while self.len > 0 {
            let dropped = Active::catch(|| {
                while self.len > 0 {
                    self.drop_first();
                }
            });
            match dropped {
                Err(payload) if first.is_none() => first = Some(payload),
                // Leaks the payload, whose `drop` could unwind too. The panic hook has reported this panic.
                Err(payload) => std::mem::forget(payload),
                Ok(()) => {}
            }
        }
        match first {
            // The caller is unwinding already: a second unwinding would end the process.
            Some(payload) if Active::is_panicking() => std::mem::forget(payload),
            Some(payload) => resume_unwind(payload),
            None => {}
        }
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        if needs_drop::<T>() && self.len > 0 {
            self.drop_all();
        }
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::mem::MaybeUninit;

    fn pop<T>(buffer: &mut Buffer<T>) -> Option<T> {
        let mut slot = MaybeUninit::uninit();
        let there = buffer.len > 0;
        // SAFETY: the slot is valid for a `T`, and holds one if there was a message.
        unsafe {
            buffer.pop(slot.as_mut_ptr());
            there.then(|| slot.assume_init())
        }
    }

    /// Fails if a burst keeps the memory, or the order is lost when the memory is given back.
    #[test]
    fn a_burst_gives_its_memory_back() {
        let mut buffer = Buffer::growing();
        (0..100_000).for_each(|number| buffer.put(number));
        assert!(buffer.slots.room >= 100_000);
        assert!((0..100_000).all(|number| pop(&mut buffer) == Some(number)));
        assert_eq!(pop(&mut buffer), None);
        assert!(buffer.slots.room <= 2 * KEEP, "{} are kept", buffer.slots.room);
    }

    /// Fails if the ring loses a message or the order, at whatever slot it begins, or when it is moved, also beyond the slots
    /// that it was given.
    #[test]
    fn a_ring_gives_out_what_came_in_whatever_its_room() {
        for room in 0..9 {
            let mut given: [MaybeUninit<Box<usize>>; 9] = [const { MaybeUninit::uninit() }; 9];
            // SAFETY: the slots outlive the buffer.
            let mut buffer = unsafe { Buffer::over(NonNull::from(&mut given).cast::<Box<usize>>(), room) };
            let mut expected = VecDeque::new();
            for step in 0..200 {
                // Most often one in, one out; now and then more than the room.
                let more = if step % 50 < 2 * room { 2 } else { 1 };
                for number in 0..more {
                    buffer.put(Box::new(3 * step + number));
                    expected.push_back(3 * step + number);
                }
                assert!(buffer.contains(&Box::new(3 * step)) && !buffer.contains(&Box::new(3 * step + 2)));
                while expected.len() > room.max(1) || step % 7 == 0 && !expected.is_empty() {
                    assert_eq!(pop(&mut buffer).map(|it| *it), expected.pop_front());
                }
            }
            assert_eq!(buffer.len, expected.len());
        }
    }

    /// Fails on an overflow, or on an allocation.
    #[test]
    fn messages_without_a_size_take_no_memory() {
        let mut buffer = Buffer::growing();
        (0..1_000).for_each(|_| buffer.put(()));
        assert!((0..1_000).all(|_| pop(&mut buffer).is_some()) && pop(&mut buffer).is_none());
        assert!(!buffer.slots.own);
    }
}
