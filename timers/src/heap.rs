//! The heap and its handles: what each call does to slots and entries. Their protocol: see the crate;
//! what happens to entries that are no longer true: `clean.rs`.

use crate::Nanos;
use crate::clean::{Front, Timer};
use crate::entries::{Entries, Entry};
use crate::slab::Slab;
use core::fmt;
use core::iter::FusedIterator;
use core::mem;
use core::num::NonZeroU32;

/// Names one timer of one [`Heap`]. A handle is valid until that timer fires or is removed, and *stale* from then on; a stale
/// handle does no harm.
///
/// A slot index and a generation that is counted for the whole heap: a stale handle could be mistaken for a later
/// timer only after 2^32 - 1 more inserts. In another heap a handle may name another timer, so a caller that moves timers
/// between heaps keeps the heap next to the handle.
///
/// 8 bytes, and so is `Option<Handle>`.
///
/// ```
/// use gmp_timers::{Heap, Nanos};
///
/// let mut timers = Heap::new();
/// let first = timers.insert(Nanos::from_nanos(10), "first");
/// assert_eq!(timers.remove(first), Some("first"));
/// // The handle is stale, also when the next timer has the same slot.
/// timers.insert(Nanos::from_nanos(20), "second");
/// assert_eq!(timers.remove(first), None);
/// ```
#[derive(Copy, Clone, Eq, PartialEq, Hash)]
pub struct Handle {
    slot: u32,
    generation: NonZeroU32,
}

/// As `slot#generation`.
impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({}#{})", self.slot, self.generation)
    }
}

/// A set of timers, each with a value of type `T`, which the heap returns when the timer is due.
///
/// Timers with equal due times come out in the order in which they were inserted or last reset.
///
/// ```
/// use gmp_timers::{Heap, Nanos};
///
/// let [early, late] = [10, 20].map(Nanos::from_nanos);
/// let mut timers = Heap::new();
/// timers.insert(late, "late");
/// timers.insert(early, "early");
/// assert_eq!(timers.next_due(), Some(early));
/// assert_eq!(timers.pop_due(early), Some((early, "early")));
/// assert_eq!(timers.pop_due(early), None);
/// assert_eq!(timers.pop_due(late), Some((late, "late")));
/// ```
///
/// # Costs
/// With n timers: [`insert`](Heap::insert), [`pop_due`](Heap::pop_due) and a [`reset`](Heap::reset) to earlier are
/// O(log n), the others O(1); an entry that a `remove` or `reset` left behind costs O(log n) more, once, if the entry
/// ever comes to the front. A single call may take longer: when there are more dead entries than timers, all of them
/// are thrown away in O(n), and `pop_due` files again all timers that were due by now and have been reset to later.
///
/// # Memory
/// 24 bytes for each entry, and for each timer 40 and `T`, rounded up to cache lines of 64 bytes, in blocks of 64. Nothing is
/// allocated while the number of timers stays about the same. After a burst the entries shrink with the number of timers, below
/// an eighth to double the need; a block is freed when its last timer goes; half a byte for each timer of the burst is freed
/// when the heap is empty. An empty heap keeps 3 KiB, one block and a directory of 2 KiB at most; a new one has allocated
/// nothing.
///
/// # Panics
/// Only `insert`, and only when 2^32 timers live.
pub struct Heap<T> {
    pub(crate) entries: Entries,
    pub(crate) timers: Slab<Timer<T>>,
    last_seq: u64,
    last_generation: NonZeroU32,
}

impl<T> Heap<T> {
    /// Makes a heap without timers. Allocates nothing.
    #[must_use]
    pub const fn new() -> Heap<T> {
        Heap { entries: Entries::new(), timers: Slab::new(), last_seq: 0, last_generation: NonZeroU32::MAX }
    }

    /// Returns the number of timers that were inserted and have neither fired nor been removed. O(1).
    #[must_use]
    pub fn len(&self) -> usize {
        self.timers.len()
    }

    /// Returns `true` if there is no timer. O(1).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.timers.len() == 0
    }

    /// Returns when to call [`pop_due`](Heap::pop_due) next; `None` if and only if there is no timer. O(1).
    ///
    /// Never later than the earliest timer. The result is the earliest timer's due time, except when more than
    /// [`CLEAN_BATCH`](crate::CLEAN_BATCH) entries of stopped or moved timers stood before that one; then the result may
    /// be earlier, and a `pop_due` at that time finds nothing and brings the front forward.
    #[must_use]
    #[doc(alias = "wakeTime")]
    pub fn next_due(&self) -> Option<Nanos> {
        self.entries.root().map(|root| root.due)
    }

    /// Adds a timer. O(log n); O(1) for a timer that is later than most.
    ///
    /// # Panics
    /// When 2^32 timers live.
    #[inline] // Without it the timer is built on the stack and copied.
    #[track_caller]
    pub fn insert(&mut self, due: Nanos, value: T) -> Handle {
        let seq = self.next_seq();
        let generation = self.last_generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        self.last_generation = generation;
        let timer = Timer { due, order: seq, filed_due: due, filed_seq: seq, generation, value };
        let slot = self.timers.insert(timer);
        self.entries.push(Entry { due, seq, slot });
        Handle { slot, generation }
    }

    /// Stops a timer and returns its value; `None` for a stale handle. O(1), and O(log n) for the earliest timer.
    pub fn remove(&mut self, handle: Handle) -> Option<T> {
        let is_it = |timer: &mut Timer<T>| timer.generation == handle.generation;
        let (filed_seq, value) =
            self.timers.remove_if(handle.slot, is_it, |timer| (timer.filed_seq, timer.value))?;
        self.unfile(filed_seq);
        Some(value)
    }

    /// Moves a timer to another due time, behind the timers that already have it. Returns `false` for a stale handle.
    ///
    /// To a later time O(1), as the new time is just noted, and O(log n) for the earliest timer. To an earlier time O(log n),
    /// or O(1) if the timer's entry, filed before a former reset, is still early enough.
    pub fn reset(&mut self, handle: Handle, due: Nanos) -> bool {
        let seq = self.next_seq();
        let timer = self.timers.get_mut(handle.slot).filter(|timer| timer.generation == handle.generation);
        let Some(timer) = timer else { return false };
        timer.due = due;
        timer.order = seq;
        if timer.filed_due <= due {
            let filed_seq = timer.filed_seq;
            self.clean_behind(filed_seq);
        } else {
            timer.filed_due = due;
            let old_seq = mem::replace(&mut timer.filed_seq, seq);
            // The new entry first: if the old entry was the front, it is the front no more, and nothing is cleaned in vain.
            self.entries.push(Entry { due, seq, slot: handle.slot });
            self.unfile(old_seq);
        }
        true
    }

    /// Takes the earliest timer, with its due time, if it is due at `now`. O(log n) amortised.
    ///
    /// ```
    /// use gmp_timers::{Heap, Nanos};
    ///
    /// let mut timers = Heap::new();
    /// for due in [30, 10, 20] {
    ///     timers.insert(Nanos::from_nanos(due), due);
    /// }
    /// let now = Nanos::from_nanos(20);
    /// assert_eq!(timers.pop_due(now).map(|(_, value)| value), Some(10));
    /// assert_eq!(timers.pop_due(now).map(|(_, value)| value), Some(20));
    /// assert_eq!(timers.pop_due(now), None);
    /// ```
    pub fn pop_due(&mut self, now: Nanos) -> Option<(Nanos, T)> {
        loop {
            let root = self.entries.root().filter(|root| root.due <= now)?;
            if self.settle(root) == Front::Corrected {
                continue;
            }
            let popped = self.timers.remove_if(root.slot, |_| true, |timer| (timer.due, timer.value))?;
            self.entries.pop_root();
            self.limit_dead();
            self.clean_up();
            return Some(popped);
        }
    }

    /// Takes all timers out, to insert them elsewhere or to drop them. O(1), and then O(log n) for each timer.
    ///
    /// The iterator gives (due time, value) in the order in which they would have fired, so insertion into another heap keeps
    /// the order. The iterator does not borrow this heap, which is empty and usable at once: two heaps with a lock each need
    /// never be locked together. Handles given out so far are stale.
    pub fn drain(&mut self) -> Drain<T> {
        // The counters stay: otherwise the handles of the timers that left would name new ones.
        let entries = mem::replace(&mut self.entries, Entries::new());
        let timers = mem::replace(&mut self.timers, Slab::new());
        Drain { left: Heap { entries, timers, ..*self } }
    }

    fn next_seq(&mut self) -> u64 {
        self.last_seq += 1;
        self.last_seq
    }
}

impl<T> Default for Heap<T> {
    fn default() -> Heap<T> {
        Heap::new()
    }
}

/// The numbers, not the timers: `T` need not be `Debug`.
impl<T> fmt::Debug for Heap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap")
            .field("timers", &self.len())
            .field("dead_entries", &(self.entries.len() - self.len()))
            .field("next_due", &self.next_due())
            .finish()
    }
}

/// The timers that [`Heap::drain`] took out. Timers that are not iterated over are dropped with the iterator.
///
/// ```
/// use gmp_timers::{Heap, Nanos};
///
/// let [early, late] = [10, 20].map(Nanos::from_nanos);
/// let (mut old, mut new) = (Heap::new(), Heap::new());
/// old.insert(late, "late");
/// old.insert(early, "early");
/// for (due, value) in old.drain() {
///     new.insert(due, value);
/// }
/// assert!(old.is_empty());
/// assert_eq!(new.pop_due(late), Some((early, "early")));
/// ```
pub struct Drain<T> {
    left: Heap<T>,
}

impl<T> Iterator for Drain<T> {
    type Item = (Nanos, T);

    fn next(&mut self) -> Option<(Nanos, T)> {
        self.left.pop_due(Nanos::MAX)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left.len(), Some(self.left.len()))
    }
}

impl<T> ExactSizeIterator for Drain<T> {}
impl<T> FusedIterator for Drain<T> {}

impl<T> fmt::Debug for Drain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain").field("timers", &self.left.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails by a panic, or by a handle of generation zero, when the count of generations starts again.
    #[test]
    fn generations_start_again_after_the_last() {
        let mut heap = Heap::new();
        heap.last_generation = NonZeroU32::new(u32::MAX - 1).unwrap();
        let last = heap.insert(Nanos::ZERO, 'a');
        assert_eq!((last.generation, heap.remove(last)), (NonZeroU32::MAX, Some('a')));
        let first = heap.insert(Nanos::ZERO, 'b');
        assert_eq!((first.generation, first.slot), (NonZeroU32::MIN, last.slot));
        assert_eq!((heap.remove(last), heap.remove(first)), (None, Some('b')));
    }
}
