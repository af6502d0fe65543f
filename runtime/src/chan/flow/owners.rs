//! The memory of a channel: its *ends* (senders and receivers), how the last end of a kind closes the channel, and how the very
//! last end frees it.
//!
//! *The obvious way* is an `Arc`, beside a count of senders and one of receivers: two exchanges for a clone, two for a drop.
//! *Here* both counts lie in one word, and the channel exists as long as one of them is not zero.
//!
//! ```text
//!   an end is dropped: others of its kind are left?    D1  one less
//!                      the last sender                 D2  lock: close · D3 one less: the other count is zero? free
//!                      the last receiver               D0  no sender is left? free, without the lock
//!                                                      D2  lock: close, empty the buffer · D3
//! ```
//! Only an end can make another end of its kind, so the last end of a kind stays the last. That end is counted until D3, so the
//! channel exists until then.
//!
//! *A sender whose promise was leaked* (by `std::mem::forget` of an operation that borrows the sender): the last sender stays
//! counted, so the channel leaks as well. The goroutine that leaked the promise still names the channel in an abandon hook,
//! which withdraws the promise if the goroutine never runs again.
//!
//! The slots of a bounded channel's buffer lie behind the channel, in the same allocation.
//!
//! Invariants:
//! 1. An end that reads 1 as the count of that end's kind is the only end of the kind, and stays the only one.
//! 2. So a receiver that is the last one, and sees no sender, is alone with the channel.
//! 3. A count never runs into the other half of the word: a clone that finds more than 2^31 ends of its kind, most of which
//!    must have been leaked, ends the process.
//!
//! Checked by `models/chan.rs`.

use super::Chan;
use crate::chan::buffer::Buffer;
use crate::chan::state::{Tick, Woken};
use crate::prim::hooks::*;
use crate::prim::{Acquire, AtomicU64, Relaxed, Release, UnsafeCell};
use std::alloc::{self, Layout};
use std::ops::Deref;
use std::ptr::NonNull;

/// A kind of end, as the unit of its count.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[repr(u64)]
pub(crate) enum Party {
    Sender = 1,
    Receiver = 1 << 32,
}

impl Party {
    fn count(self, owners: u64) -> u32 {
        (owners / self as u64) as u32
    }
}

/// The number of ends of each kind.
pub(crate) struct Owners(AtomicU64, Used);

/// For loom: read by each end that has used the channel, written by the end that frees it.
type Used = UnsafeCell<()>;

impl Owners {
    pub(super) fn new(senders: u32, receivers: u32) -> Self {
        Owners(AtomicU64::new(u64::from(senders) | u64::from(receivers) << 32), Used::new(()))
    }
}

/// A channel that an end owns. The ends count themselves.
pub(crate) struct Owned<T>(NonNull<Chan<T>>);

impl<T> Deref for Owned<T> {
    type Target = Chan<T>;

    #[inline(always)]
    fn deref(&self) -> &Chan<T> {
        // SAFETY: an end that is counted has this pointer, so the channel exists.
        unsafe { self.0.as_ref() }
    }
}

/// The number of messages that a channel has room for.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Room {
    /// This many, in slots that lie behind the channel.
    Fixed(usize),
    /// Any number, in a buffer that grows; senders see this capacity.
    Grows(usize),
}

impl Room {
    /// Returns the capacity, and the number of slots that lie behind the channel.
    fn sizes(self) -> (usize, usize) {
        match self {
            Room::Fixed(room) => (room, room),
            Room::Grows(capacity) => (capacity, 0),
        }
    }
}

/// Returns the layout of a channel with `slots` slots behind it, and their offset if they take memory.
fn layout<T>(slots: usize) -> Option<(Layout, Option<usize>)> {
    let chan = Layout::new::<Chan<T>>();
    if slots == 0 || size_of::<T>() == 0 {
        // Without the alignment of a message, which may be large.
        return Some((chan, None));
    }
    let (whole, at) = chan.extend(Layout::array::<T>(slots).ok()?).ok()?;
    Some((whole, Some(at)))
}

impl<T> Owned<T> {
    /// Makes a channel with one receiver, and one sender if `senders` is 1.
    ///
    /// # Panics
    /// If there is no memory for the slots.
    #[inline(always)]
    #[track_caller]
    fn new(room: Room, tick: Option<Tick>, closable: bool, senders: u32) -> Self {
        let (capacity, slots) = room.sizes();
        let Some((layout, at)) = layout::<T>(slots) else { no_memory::<T>(slots) };
        // SAFETY: the size of a channel is not zero.
        let Some(memory) = NonNull::new(unsafe { alloc::alloc(layout) }) else {
            if slots == 0 {
                alloc::handle_alloc_error(layout);
            }
            no_memory::<T>(slots)
        };
        let chan = memory.cast::<Chan<T>>();
        // SAFETY: the slots lie in the allocation, behind the channel, and live as long as the channel. The memory has the
        // layout of a channel, and no other thread has it yet.
        unsafe {
            let buffer = match room {
                Room::Fixed(slots) => {
                    Buffer::over(at.map_or(NonNull::dangling(), |at| memory.add(at).cast()), slots)
                }
                Room::Grows(_) => Buffer::growing(),
            };
            chan.write(Chan::new((capacity, slots), buffer, tick, closable, Owners::new(senders, 1)));
        }
        Owned(chan)
    }

    /// Makes a channel, and returns one value for each of the two ends.
    ///
    /// # Panics
    /// As `new`.
    #[track_caller]
    pub(crate) fn pair(room: Room, closable: bool) -> [Self; 2] {
        let owned = Self::new(room, None, closable, 1);
        [Owned(owned.0), owned]
    }

    /// Makes a channel that users can't close, for the only end, a receiver.
    pub(crate) fn for_receiver(capacity: usize, tick: Option<Tick>) -> Self {
        Self::new(Room::Grows(capacity), tick, false, 0)
    }

    /// Returns the number of ends of that kind.
    pub(crate) fn ends(&self, party: Party) -> usize {
        // Relaxed: the number is not evidence of anything that the other ends have done.
        party.count(self.owners.0.load(Relaxed)) as usize
    }

    /// Counts another end of the caller's kind, and returns the channel for it.
    #[inline]
    pub(crate) fn another(&self, party: Party) -> Self {
        // Relaxed: while the caller is counted, the channel exists, and no other end of its kind is the last.
        let before = self.owners.0.fetch_add(party as u64, Relaxed);
        if party.count(before) > u32::MAX / 2 {
            Self::too_many();
        }
        Owned(self.0)
    }

    /// Ends the process, as leaked ends would make the count overflow.
    #[cold]
    fn too_many() -> ! {
        std::process::abort()
    }

    /// Does D1 for all but the last end of a kind. For the last end, which stays counted, returns the counts.
    #[inline]
    fn leave(&self, party: Party) -> Option<u64> {
        // Acquire: sees what the ends that went earlier have done: partners D1 and D3.
        let look = Acquire.unless(LastEndLooksRelaxed);
        let mut owners = self.owners.0.load(look);
        while party.count(owners) > 1 {
            // For loom, as in `Last`.
            self.owners.1.with(|_| ());
            // D1. Release: publishes what this end has done to the last end, which closes and perhaps frees, and to a waiter
            // that is told of the close; partner `look`.
            let release = Release.unless(EndGoesRelaxed);
            match self.owners.0.compare_exchange_weak(owners, owners - party as u64, release, look) {
                Ok(_) => return None,
                Err(now) => owners = now,
            }
        }
        Some(owners)
    }

    /// Drops a sender; the last one closes the channel.
    #[inline]
    pub(crate) fn drop_sender(&self) {
        if self.leave(Party::Sender).is_some() {
            self.drop_last_sender();
        }
    }

    #[inline(never)]
    fn drop_last_sender(&self) {
        let mut woken = Woken::new();
        let mut state = self.lock();
        self.raw.has_more_to_see.set(true);
        state.close(&mut woken);
        let leaked = state.promises + state.reserved > 0;
        drop(state);
        // Declared before `ready`, so dropped after the wakers were called, which do not unwind.
        let _last = (!leaked).then(|| Last { chan: self.0, party: Party::Sender });
        woken.ready();
    }

    /// Drops a receiver; the last one closes the channel, and drops the messages that are left.
    #[inline]
    pub(crate) fn drop_receiver(&self) {
        if let Some(owners) = self.leave(Party::Receiver) {
            self.drop_last_receiver(owners);
        }
    }

    #[inline(never)]
    fn drop_last_receiver(&self, owners: u64) {
        // D0.
        if Party::Sender.count(owners) == 0 {
            // SAFETY: by invariant 2 the caller is alone with the channel, and gives it up.
            return unsafe { free(self.0) };
        }
        let _last = Last { chan: self.0, party: Party::Receiver };
        let mut woken = Woken::new();
        let mut state = self.lock();
        self.raw.has_more_to_see.set(true);
        state.close(&mut woken);
        self.raw.set_len(&mut state, 0);
        // L1.
        unless!(LastReceiverMarksLate, state.deserted = true);
        // Futures borrow a receiver, so futures that were granted a message must have been leaked.
        (state.granted, state.meets) = (0, state.capacity == 0);
        // SAFETY: the state is locked.
        let left =
            self.buffer.with_mut(|buffer| std::mem::replace(unsafe { &mut *buffer }, Buffer::growing()));
        drop(state);
        mutant!(LastReceiverMarksLate: self.lock().deserted = true);
        woken.ready();
        // Dropped without the lock, as a message's `drop` is user code, and before `_last`, with which the slots may go.
        drop(left);
    }
}

/// The last end of a kind, which is counted until this value is dropped.
struct Last<T> {
    chan: NonNull<Chan<T>>,
    party: Party,
}

impl<T> Drop for Last<T> {
    fn drop(&mut self) {
        let it = self.party as u64;
        // SAFETY: this end is counted, so the channel exists.
        let chan = unsafe { self.chan.as_ref() };
        // For loom: until here the end has used the channel.
        chan.owners.1.with(|_| ());
        // D3. Release: publishes what this end has done to the end that frees: partner `look`, and this subtraction by the last
        // end of the other kind. Acquire: the other half of that pair.
        let both = both(Acquire.unless(LastPartyFreesRelaxed), Release.unless(LastPartyGoesRelaxed));
        if chan.owners.0.fetch_sub(it, both) == it {
            // SAFETY: no end is left.
            unsafe { free(self.chan) };
        }
    }
}

/// # Safety
/// The caller is alone with the channel, and gives it up.
#[inline(never)]
unsafe fn free<T>(chan: NonNull<Chan<T>>) {
    /// The memory, which is freed even if the drop of a message unwinds.
    struct Memory(NonNull<u8>, Layout);

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: `Owned::new` has allocated it with this layout, and its contents were dropped.
            unsafe { alloc::dealloc(self.0.as_ptr(), self.1) };
        }
    }

    // SAFETY: by this function's contract.
    let slots = unsafe { chan.as_ref() }.slots;
    let (layout, _) = layout::<T>(slots).expect("free: the layout was one before");
    let _memory = Memory(chan.cast(), layout);
    // SAFETY: by this function's contract.
    unsafe {
        // For loom: no other end uses the channel.
        chan.as_ref().owners.1.with_mut(|_| ());
        chan.drop_in_place();
    }
}

#[cold]
#[track_caller]
fn no_memory<T>(slots: usize) -> ! {
    panic!("bounded: no memory for a buffer of {slots} messages of {} bytes", size_of::<T>());
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    #[test]
    #[should_panic(expected = "bounded: no memory for a buffer of 9223372036854775807 messages of 8 bytes")]
    fn a_buffer_that_cannot_be_is_refused_with_a_text() {
        drop(crate::chan::bounded::<u64>(isize::MAX as usize));
    }
}
