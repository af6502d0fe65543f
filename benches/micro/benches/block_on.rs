//! What does a wait for a future cost beside the same wait for an `Event`?
//!
//! `ping-pong` hands a signal to and fro between two goroutines; one round is two waits and two wake-ups. A future of it has a
//! flag and its waker, which is known beforehand: to register a waker is a future's own affair. The figures are noisy; compare
//! the two that one run prints one after the other.

use criterion::{Criterion, criterion_group, criterion_main};
use gmp::chan::bounded;
use gmp::sync::Event;
use gmp::{block_on, go};
use gmp_benches::on_goroutine;
use std::future::{poll_fn, ready};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::task::{Poll, Waker};

/// What a future waits for: the flag, and the waker of the one goroutine that waits, which is the same in each poll.
struct Signal {
    set: AtomicBool,
    waker: Waker,
}

impl Signal {
    /// For a wait of the caller.
    fn new() -> Self {
        Signal { set: AtomicBool::new(false), waker: block_on(poll_fn(|cx| Poll::Ready(cx.waker().clone()))) }
    }

    fn wait(&self) {
        block_on(poll_fn(|cx| {
            if !self.set.load(Acquire) {
                debug_assert!(self.waker.will_wake(cx.waker()));
                return Poll::Pending;
            }
            self.set.store(false, Relaxed);
            Poll::Ready(())
        }));
    }

    fn notify(&self) {
        self.set.store(true, Release);
        self.waker.wake_by_ref();
    }
}

fn ping_pong<T: Send + Sync + 'static>(n: u64, new: fn() -> T, wait: fn(&T), notify: fn(&T)) {
    let pong = Arc::new(new());
    let (sends, made) = bounded(1);
    let answers = Arc::clone(&pong);
    let other = go(move || {
        let ping = Arc::new(new());
        sends.send(Arc::clone(&ping)).unwrap();
        for _ in 0..n {
            wait(&ping);
            notify(&answers);
        }
    });
    let ping = made.recv().unwrap();
    for _ in 0..n {
        notify(&ping);
        wait(&pong);
    }
    other.join().unwrap();
}

fn waits(criterion: &mut Criterion) {
    on_goroutine(criterion, "block_on: a ready future", 1, |n| {
        (0..n).for_each(|at| assert_eq!(block_on(ready(black_box(at))), at));
    });
    on_goroutine(criterion, "block_on: a wake in the poll", 1, |n| {
        let mut left = n;
        block_on(poll_fn(|cx| {
            left -= 1;
            if left == 0 {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
    });
    for procs in [1, 2] {
        on_goroutine(criterion, "ping-pong: Event", procs, |n| {
            ping_pong(n, Event::new, Event::wait, Event::notify_one);
        });
        on_goroutine(criterion, "ping-pong: block_on", procs, |n| {
            ping_pong(n, Signal::new, Signal::wait, Signal::notify);
        });
    }
}

criterion_group! { name = all; config = gmp_benches::criterion(); targets = waits }
criterion_main!(all);
