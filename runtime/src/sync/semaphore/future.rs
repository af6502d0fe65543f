//! Requests that futures make.
//!
//! A request joins the queue in the first poll that finds too few permits. The drop of a request that was granted gives the
//! permits back; the drop of any other request lets the requests proceed that it held back.

use super::{AcquireError, Semaphore, State};
use crate::prim::Arc;
use crate::prim::hooks::*;
use crate::sync::futures::{AcquireOwned, AcquirePermits};
use crate::sync::wait_queue::{Gone, Notified, Position, TaskIn};
use crate::wait::task::TaskWait;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The steps of a future that takes permits. All calls are for one semaphore, and `leave` comes before the drop.
pub(in crate::sync) struct Request {
    permits: usize,
    task: TaskIn<State>,
}

impl Request {
    fn new(permits: usize) -> Self {
        Request { permits, task: TaskIn::new() }
    }

    fn parts(self: Pin<&mut Self>) -> (usize, Pin<&mut TaskIn<State>>) {
        // SAFETY: `task` is pinned with the request; nothing moves it.
        unsafe {
            let this = self.get_unchecked_mut();
            (this.permits, Pin::new_unchecked(&mut this.task))
        }
    }

    /// Ready with the number of permits that were taken. The next poll after that begins anew.
    pub(in crate::sync) fn poll(
        self: Pin<&mut Self>,
        semaphore: &Semaphore,
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, AcquireError>> {
        let (permits, task) = self.parts();
        let answer = |closed: bool| Poll::Ready(if closed { Err(AcquireError) } else { Ok(permits) });
        if task.is_waiting() {
            return match task.poll(cx) {
                Poll::Ready(ask) => answer(ask.closed.get()),
                Poll::Pending => Poll::Pending,
            };
        }
        if semaphore.try_acquire(permits) {
            return answer(false);
        }
        let wait = TaskWait::open(cx.waker());
        let mut state = semaphore.state.lock();
        if state.closed || state.take(permits) {
            let closed = state.closed;
            drop(state);
            wait.withdraw();
            return answer(closed);
        }
        let ask = state.ask(semaphore, permits);
        task.join(wait, &mut state, (ask, Position::Back));
        Poll::Pending
    }

    /// Ends the request.
    pub(in crate::sync) fn leave(self: Pin<&mut Self>, semaphore: &Semaphore) {
        let (permits, task) = self.parts();
        match task.leave(&semaphore.state) {
            Some(Gone::Notified(ask)) if !ask.closed.get() => {
                unless!(SemaphoreDropsTheGrant, semaphore.put_back_what_fits(ask.permits).ready());
            }
            Some(Gone::Notified(_)) | None => {}
            Some(Gone::Left(mut state)) => {
                let mut notified = Notified::new();
                unless!(SemaphoreDropsQuietly, state.let_go(permits, &mut notified));
                drop(state);
                notified.ready();
            }
        }
    }
}

impl Semaphore {
    /// As [`acquire_guard`](Self::acquire_guard), as a future, whose polls do not block: any task may poll it, on goroutines
    /// ([`block_on`](crate::block_on)), on plain threads and under other executors, and the task that has polled last is woken.
    /// The request joins the queue, which it shares with goroutines and threads, in its first poll.
    ///
    /// The future can be dropped at any time: permits that it was granted meanwhile go to the next request, and a request that
    /// was not granted leaves the queue. A request that was granted, and is neither polled nor dropped, keeps its permits.
    ///
    /// ```
    /// use gmp::sync::Semaphore;
    ///
    /// let permits = Semaphore::new(2);
    /// let held = gmp::block_on(permits.acquire_async(2)).unwrap();
    /// assert_eq!(permits.available_permits(), 0);
    /// drop(held);
    /// permits.close();
    /// assert!(gmp::block_on(permits.acquire_async(1)).is_err());
    /// ```
    ///
    /// # Errors
    /// The output is an error if the semaphore is [closed](Self::close), before the first poll or meanwhile.
    pub fn acquire_async(&self, permits: usize) -> AcquirePermits<'_> {
        AcquirePermits::new(self, Request::new(permits))
    }

    /// As [`acquire_async`](Self::acquire_async), with a guard that holds the `Arc`. The future holds one, too, so it can be
    /// spawned.
    ///
    /// ```
    /// use gmp::sync::Semaphore;
    /// use std::sync::Arc;
    ///
    /// let permits = Arc::new(Semaphore::new(1));
    /// let request = permits.acquire_owned_async(1);
    /// let permit = std::thread::spawn(|| gmp::block_on(request)).join().unwrap().unwrap();
    /// assert_eq!(permit.semaphore().available_permits(), 0);
    /// ```
    ///
    /// # Errors
    /// The output is an error if the semaphore is [closed](Self::close), before the first poll or meanwhile.
    pub fn acquire_owned_async(self: &Arc<Self>, permits: usize) -> AcquireOwned {
        AcquireOwned::new(Arc::clone(self), Request::new(permits))
    }
}
