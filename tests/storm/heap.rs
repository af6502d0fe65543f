//! The memory that the process has allocated and not freed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

/// The system's allocator, counted.
struct Counting;

const SHARDS: usize = 64;

/// Each shard has a cache line of its own, so that the count is not a place where all threads meet.
#[repr(align(64))]
struct Shard {
    bytes: AtomicIsize,
    blocks: AtomicIsize,
}

static LIVE: [Shard; SHARDS] =
    [const { Shard { bytes: AtomicIsize::new(0), blocks: AtomicIsize::new(0) } }; SHARDS];

fn count(at: *mut u8, bytes: isize, blocks: isize) {
    let shard = &LIVE[(at.addr() >> 10) % SHARDS];
    // Relaxed: the counts are read when no thread allocates.
    shard.bytes.fetch_add(bytes, Relaxed);
    shard.blocks.fetch_add(blocks, Relaxed);
}

// SAFETY: the system's allocator serves each call.
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

/// Returns the bytes and the blocks in use.
pub fn live() -> (isize, isize) {
    LIVE.iter().fold((0, 0), |(bytes, blocks), shard| {
        (bytes + shard.bytes.load(Relaxed), blocks + shard.blocks.load(Relaxed))
    })
}

/// glibc's arenas begin at multiples of this.
const ARENA: usize = 64 << 20;

/// Returns how many bytes of memory the process occupies outside of the allocator. How much free memory the allocator keeps
/// depends on which thread's arena has served which block.
pub fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/smaps").expect("/proc is mounted");
    let (mut bytes, mut counts) = (0, false);
    for line in text.lines() {
        let start = line.split_once('-').and_then(|(start, _)| usize::from_str_radix(start, 16).ok());
        if let Some(start) = start {
            counts = start % ARENA != 0 && !line.ends_with("[heap]");
        } else if let Some(size) = line.strip_prefix("Rss:").filter(|_| counts) {
            let kib = size.trim_end_matches("kB").trim();
            bytes += kib.parse::<usize>().expect("a size in KiB") << 10;
        }
    }
    bytes
}
