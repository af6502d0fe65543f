//! What the process has allocated and not freed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

/// The system's allocator, counted.
struct Counting;

const SHARDS: usize = 64;

/// A cache line of its own for each, so that the count is not where all threads meet.
#[repr(align(64))]
struct Shard {
    bytes: AtomicIsize,
    blocks: AtomicIsize,
}

static LIVE: [Shard; SHARDS] =
    [const { Shard { bytes: AtomicIsize::new(0), blocks: AtomicIsize::new(0) } }; SHARDS];

fn count(at: *mut u8, bytes: isize, blocks: isize) {
    let shard = &LIVE[(at.addr() >> 10) % SHARDS];
    // Relaxed: read when nobody allocates.
    shard.bytes.fetch_add(bytes, Relaxed);
    shard.blocks.fetch_add(blocks, Relaxed);
}

// SAFETY: it is the system's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by this function's contract.
        let at = unsafe { System.alloc(layout) };
        if !at.is_null() {
            count(at, layout.size() as isize, 1);
        }
        at
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(at, -(layout.size() as isize), -1);
        // SAFETY: by this function's contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes and blocks.
pub fn live() -> (isize, isize) {
    LIVE.iter().fold((0, 0), |(bytes, blocks), shard| {
        (bytes + shard.bytes.load(Relaxed), blocks + shard.blocks.load(Relaxed))
    })
}

/// Bytes of memory that the process occupies.
pub fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: usize =
        text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("the second is a number");
    pages * 4096
}
