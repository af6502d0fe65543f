//! The largest future or closure that can be passed to a call on a goroutine's stack.

use common::child;
use common::runtime;
use gmp::{block_on, blocking};
use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A stack of 64 KiB has room for two of them and for what the calls need, but not for three. A debug build copies more.
const SIZE: usize = if cfg!(debug_assertions) { 3 << 10 } else { 25 << 10 };

/// A future that is ready at its third poll.
struct Large {
    bytes: [u8; SIZE],
    polls: u32,
}

impl Future for Large {
    type Output = usize;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<usize> {
        self.polls += 1;
        if self.polls < 3 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.bytes.iter().map(|&byte| usize::from(byte)).sum())
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        black_box(&self.bytes);
    }
}

#[inline(never)]
fn awaits() -> usize {
    block_on(Large { bytes: [1; SIZE], polls: 0 })
}

#[inline(never)]
fn calls<const SIZE: usize>() -> usize {
    let bytes = black_box([1_u8; SIZE]);
    blocking(move || bytes.iter().map(|&byte| usize::from(byte)).sum())
}

/// The closures differ in size, as the compiler may elide one copy or the other.
const CALLS: [fn() -> usize; 8] = [
    calls::<SIZE>,
    calls::<{ SIZE - 1 }>,
    calls::<{ SIZE - 2 }>,
    calls::<{ SIZE - 3 }>,
    calls::<{ SIZE - 4 }>,
    calls::<{ SIZE - 5 }>,
    calls::<{ SIZE - 6 }>,
    calls::<{ SIZE - 7 }>,
];

/// Fails by SIGABRT, as the stack overflows, when the future is copied more often than into its place.
#[test]
fn a_future_is_moved_into_its_place_alone() {
    if !child::is_child() {
        return drop(child::passes("a_future_is_moved_into_its_place_alone", &[]));
    }
    assert_eq!(runtime(1).run(awaits), SIZE);
}

/// Fails by SIGABRT, as the stack overflows, when the closure is copied on its way to the frame that calls it.
#[test]
fn a_closure_is_called_where_it_lies() {
    if !child::is_child() {
        return drop(child::passes("a_closure_is_called_where_it_lies", &[]));
    }
    let runtime = runtime(1);
    for (less, calls) in CALLS.into_iter().enumerate() {
        assert_eq!(runtime.run(calls), SIZE - less);
    }
}
