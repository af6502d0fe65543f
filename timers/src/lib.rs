//! The timers of one processor: a 4-ary min-heap whose timers are stopped and moved in constant time.
//!
//! A timer is a due time and a value. The timer lives in a *slot* (`slab.rs`), and an *entry* (`entries.rs`: due time,
//! sequence number, slot) stands for the timer in the heap's array. The array is never searched: a stop empties the
//! slot and leaves the entry behind, a move to a later time is noted in the slot alone. Such entries are corrected when
//! they come to the front, or all at once when they are too many.
//!
//! A timer keeps the number of its entry, which decides what an entry means:
//!
//! | the slot of the entry | the entry is | when it comes to the front |
//! | --- | --- | --- |
//! | holds a timer with this number, not moved since | *true* | it is the earliest timer |
//! | holds a timer with this number, moved to a later time | *early* | it is filed again under the later time |
//! | holds a timer with another number, or none | *dead* | it is thrown away |
//!
//! Invariants:
//! 1. Each timer has exactly one entry that is true or early, and no entry is later than its timer's due time. So the front of
//!    the array is a lower bound of all due times.
//! 2. Sequence numbers are never used twice. So no dead entry comes to life when its slot is used again.
//! 3. There are at most as many dead entries as timers, or 64 if there are fewer timers. So memory and depth follow the number
//!    of timers.
//! 4. No timer, no entry. So `next_due` of an empty heap is `None`.
//!
//! A call that stops or moves the timer at the front cleans up behind it, [`CLEAN_BATCH`] entries at most; the rest waits for
//! the next call. The obvious way, to clean until the front is true, was rejected: if many connections move their deadlines to
//! a later time at every read, all entries but the front are early, and then one `reset` would file all of them again, with the
//! processor's timers locked. So `next_due` may be too early for its caller, whose `pop_due` then finds nothing, and cleans up
//! to that time.
//!
//! The crate has no clock, lock, thread, unsafe code or `std`: the caller brings the time and the lock.
//!
//! ```
//! use core::time::Duration;
//! use gmp_timers::{Heap, Nanos};
//!
//! let start = Nanos::from_nanos(0);
//! let mut timers = Heap::new();
//! let tea = timers.insert(start.saturating_add(Duration::from_secs(180)), "tea");
//! let egg = timers.insert(start.saturating_add(Duration::from_secs(300)), "egg");
//!
//! assert!(timers.reset(egg, start.saturating_add(Duration::from_secs(240))));
//! assert_eq!(timers.remove(tea), Some("tea"));
//! assert_eq!(timers.remove(tea), None);
//!
//! let due = timers.next_due().unwrap();
//! assert_eq!(due.saturating_since(start), Duration::from_secs(240));
//! assert_eq!(timers.pop_due(start), None);
//! assert_eq!(timers.pop_due(due), Some((due, "egg")));
//! assert!(timers.is_empty());
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod clean;
mod entries;
mod heap;
mod nanos;
mod slab;

pub use clean::CLEAN_BATCH;
pub use heap::{Drain, Handle, Heap};
pub use nanos::Nanos;
