#![cfg(not(gmp_loom))]
//! What the runtime asks of the allocator, and what it keeps. Each test has a process to itself, as all of it is counted.

mod channels;
mod futures;
mod selects;
mod steady;
mod timers;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};

/// The system's allocator, counted.
struct Counting;

/// Allocations so far.
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
/// Bytes in use.
static BYTES: AtomicIsize = AtomicIsize::new(0);
/// Allocations of no size, for which an allocator may do anything.
static EMPTY: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: the system's allocator serves each call.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        BYTES.fetch_add(layout.size() as isize, Relaxed);
        EMPTY.fetch_add(usize::from(layout.size() == 0), Relaxed);
        // SAFETY: by this function's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as isize, Relaxed);
        // SAFETY: by this function's contract.
        unsafe { System.dealloc(at, layout) }
    }
}
