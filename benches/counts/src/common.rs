//! What both programs have: an allocator that counts, and how they end.

use gmp::{JoinHandle, Runtime};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// std's allocator, which counts.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: each call goes to `System` as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise is the one that `System` wants.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs the workload, prints how often it has allocated, and ends the process.
pub fn run(runtime: &Runtime, work: fn(u64), n: u64) -> ! {
    runtime.run(|| work(n));
    println!("{}", ALLOCATIONS.load(Relaxed));
    // How a runtime ends depends on where its threads are at that moment.
    std::process::exit(0);
}

pub fn join(handles: impl IntoIterator<Item = JoinHandle<()>>) {
    handles.into_iter().for_each(|handle| handle.join().unwrap());
}

/// 0 + 1 + … below `n`.
pub fn sum_below(n: u64) -> u64 {
    n * (n - 1) / 2
}
