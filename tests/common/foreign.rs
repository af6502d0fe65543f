//! Tasks of another executor: their wakers are foreign to `gmp`, and are counted.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

struct Wakes {
    count: AtomicUsize,
    thread: Thread,
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.count.fetch_add(1, SeqCst);
        self.thread.unpark();
    }
}

/// A task that is polled by hand, on the thread that has made it.
pub struct Task(Arc<Wakes>);

impl Default for Task {
    fn default() -> Self {
        Task::new()
    }
}

impl Task {
    pub fn new() -> Self {
        Task(Arc::new(Wakes { count: AtomicUsize::new(0), thread: thread::current() }))
    }

    pub fn poll<F: Future + ?Sized>(&self, future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(&self.0))))
    }

    /// Returns how often the task was woken.
    pub fn wakes(&self) -> usize {
        self.0.count.load(SeqCst)
    }

    /// Returns `true` if a waker of the task is kept somewhere.
    pub fn is_known(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// Runs a future on the calling plain thread, which sleeps from one wake to the next, and polls for nothing else.
pub fn run<F: Future>(future: F) -> F::Output {
    let (task, mut future) = (Task::new(), pin!(future));
    let mut seen = 0;
    loop {
        if let Poll::Ready(output) = task.poll(future.as_mut()) {
            return output;
        }
        while task.wakes() == seen {
            thread::park();
        }
        seen = task.wakes();
    }
}
