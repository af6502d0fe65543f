//! The wait for the lock as a future.

use super::{Ask, Kind, QUEUED, Queues, RawRwLock};
use crate::prim::hooks::*;
use crate::sync::wait_queue::{Gone, HasWaitQueue, Position, TaskIn};
use crate::wait::task::TaskWait;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A future that takes the lock.
pub(super) struct Locking<'a> {
    lock: &'a RawRwLock,
    kind: Kind,
    task: TaskIn<Queues>,
}

impl<'a> Locking<'a> {
    pub(super) fn new(lock: &'a RawRwLock, kind: Kind) -> Self {
        Locking { lock, kind, task: TaskIn::new() }
    }

    fn parts(self: Pin<&mut Self>) -> (&'a RawRwLock, Kind, Pin<&mut TaskIn<Queues>>) {
        // SAFETY: `task` is pinned with the future; nothing moves it.
        unsafe {
            let this = self.get_unchecked_mut();
            (this.lock, this.kind, Pin::new_unchecked(&mut this.task))
        }
    }
}

impl Future for Locking<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (lock, kind, task) = self.parts();
        if task.is_waiting() {
            return task.poll(cx).map(drop);
        }
        if lock.try_lock(kind) {
            return Poll::Ready(());
        }
        let wait = TaskWait::open(cx.waker());
        let mut queues = lock.queues.lock();
        if lock.take_or_mark(&mut queues, kind, QUEUED) {
            drop(queues);
            wait.withdraw();
            return Poll::Ready(());
        }
        task.join(wait, &mut queues, (Ask { lock, kind }, Position::Back));
        Poll::Pending
    }
}

impl Drop for Locking<'_> {
    fn drop(&mut self) {
        // SAFETY: the future is dropped where it was pinned, if it was polled, and is not moved any more.
        let (lock, _, task) = unsafe { Pin::new_unchecked(self) }.parts();
        match task.leave(&lock.queues) {
            None => {}
            Some(Gone::Notified(ask)) => unless!(RwLockDropsTheGrant, Queues::settle(&ask, true)),
            Some(Gone::Left(queues)) => {
                mutant!(RwLockDropsQuietly: return);
                lock.let_others_go(queues);
            }
        }
    }
}
