//! What a channel asks of the allocator: one block, for its ends, its state and its slots, which goes with the last end.

use super::{ALLOCATIONS, BYTES, EMPTY};
use common::child;
use gmp::chan::{bounded, unbounded};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::Relaxed;

/// Makes channels of each kind for this message, and drops them, with messages in them, in each order.
fn come_and_go<T>(message: impl Fn() -> T) {
    for room in [Some(0), Some(1), Some(5), None] {
        for sender_first in [true, false] {
            let (bytes, blocks) = (BYTES.load(Relaxed), ALLOCATIONS.load(Relaxed));
            let (s, r) = room.map_or_else(unbounded, bounded);
            let more = (s.clone(), r.clone());
            assert_eq!(ALLOCATIONS.load(Relaxed) - blocks, 1, "{room:?}");
            (0..room.unwrap_or(5)).for_each(|_| assert!(s.send(message()).is_ok()));
            drop(more);
            // The drop of a message may unwind.
            let _unwound = catch_unwind(AssertUnwindSafe(move || match sender_first {
                true => drop((s, r)),
                false => drop((r, s)),
            }));
            assert_eq!(BYTES.load(Relaxed), bytes, "{room:?}, the sender first: {sender_first}");
        }
    }
}

#[repr(align(256))]
struct Aligned {
    _bytes: [u8; 300],
}

#[repr(align(64))]
struct Nothing;

struct Bad {
    _owns: Box<u64>,
}

impl Drop for Bad {
    fn drop(&mut self) {
        resume_unwind(Box::new(()));
    }
}

/// Fails if a channel is made of more than one block, or a block stays: for all kinds of messages, whichever end is the last,
/// and also if the drop of a message unwinds.
#[test]
fn a_channel_is_one_block_that_goes_with_the_last_end() {
    if !child::is_child() {
        child::passes("a_channel_is_one_block_that_goes_with_the_last_end", &[]);
        return;
    }
    // Blocks that are made once, on the first unwinding of a process, are no channel's.
    drop(catch_unwind(AssertUnwindSafe(|| drop(Bad { _owns: Box::new(0) }))));
    come_and_go(|| 7_u64);
    come_and_go(|| Box::new(7_u64));
    come_and_go(|| Aligned { _bytes: [7; 300] });
    come_and_go(|| ());
    come_and_go(|| Nothing);
    come_and_go(|| Bad { _owns: Box::new(7) });
    assert_eq!(EMPTY.load(Relaxed), 0);
}
