//! The buffer of a channel: messages that were sent and not received yet, in a ring that has a fixed size or grows and
//! shrinks.

use crate::host::{Active, Process};
use std::collections::VecDeque;
use std::mem::needs_drop;
use std::panic::resume_unwind;

/// A growing buffer keeps at least this capacity, in messages.
const KEEP: usize = 64;

/// A first-in, first-out queue, used under the channel's lock.
pub(crate) struct Buffer<T> {
    ring: VecDeque<T>,
    grows: bool,
}

impl<T> Buffer<T> {
    /// Makes a buffer of `capacity` messages; allocates the whole buffer at once.
    #[track_caller]
    pub(crate) fn fixed(capacity: usize) -> Self {
        let mut ring = VecDeque::new();
        if ring.try_reserve_exact(capacity).is_err() {
            panic!("bounded: no memory for a buffer of {capacity} messages of {} bytes", size_of::<T>());
        }
        Buffer { ring, grows: false }
    }

    /// Makes a buffer that grows and shrinks as needed.
    pub(crate) fn growing() -> Self {
        Buffer { ring: VecDeque::new(), grows: true }
    }

    #[inline]
    pub(crate) fn push(&mut self, message: T) {
        self.ring.push_back(message);
    }

    /// As `push`. Not inlined, so that the other one is.
    #[cold]
    #[inline(never)]
    pub(crate) fn push_seldom(&mut self, message: T) {
        self.push(message);
    }

    pub(crate) fn contains(&self, message: &T) -> bool
    where
        T: PartialEq,
    {
        self.ring.contains(message)
    }

    /// Moves the first message into `slot`, if there is one.
    ///
    /// # Safety
    /// `slot` is valid for a write of a `T`.
    #[inline]
    pub(crate) unsafe fn pop(&mut self, slot: *mut T) {
        if let Some(message) = self.ring.pop_front() {
            // SAFETY: by this function's contract.
            unsafe { slot.write(message) };
        }
        // Halves the ring when less than an eighth of it is in use: the memory that a burst has taken is given back, at
        // a constant amortised cost for each message.
        if self.grows && self.ring.capacity() > KEEP && self.ring.len() < self.ring.capacity() / 8 {
            self.shrink();
        }
    }

    /// As `pop`. Not inlined, so that the other one is.
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
    fn shrink(&mut self) {
        self.ring.shrink_to((self.ring.capacity() / 2).max(KEEP));
    }

    /// Drops all messages, even if the `drop` of one unwinds; the first of these unwindings is resumed afterwards.
    /// (With `VecDeque`'s own `drop` a second unwinding would end the process.)
    #[cold]
    fn drop_all(&mut self) {
        let mut first = None;
        while !self.ring.is_empty() {
            let dropped = Active::catch(|| while self.ring.pop_front().is_some() {});
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
        if needs_drop::<T>() && !self.ring.is_empty() {
            self.drop_all();
        }
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    fn pop<T>(buffer: &mut Buffer<T>) -> Option<T> {
        let mut slot = std::mem::MaybeUninit::uninit();
        let there = !buffer.ring.is_empty();
        // SAFETY: the slot is good for a `T`, and holds one if there was one.
        unsafe {
            buffer.pop(slot.as_mut_ptr());
            there.then(|| slot.assume_init())
        }
    }

    /// Fails if a burst keeps the memory, or the order is lost when the memory is given back.
    #[test]
    fn a_burst_gives_its_memory_back() {
        let mut buffer = Buffer::growing();
        (0..100_000).for_each(|number| buffer.push(number));
        assert!(buffer.ring.capacity() >= 100_000);
        assert!((0..100_000).all(|number| pop(&mut buffer) == Some(number)));
        assert_eq!(pop(&mut buffer), None);
        assert!(buffer.ring.capacity() <= 2 * KEEP, "{} are kept", buffer.ring.capacity());
    }

    #[test]
    fn a_fixed_buffer_has_its_memory_from_the_start() {
        let mut buffer = Buffer::fixed(1000);
        let before = buffer.ring.capacity();
        (0..1000).for_each(|number| buffer.push(number));
        while pop(&mut buffer).is_some() {}
        assert_eq!(buffer.ring.capacity(), before);
    }

    #[test]
    #[should_panic(expected = "bounded: no memory for a buffer of 9223372036854775807 messages of 8 bytes")]
    fn a_buffer_that_cannot_be_is_refused_with_a_text() {
        drop(Buffer::<u64>::fixed(isize::MAX as usize));
    }
}
