//! The wait for the lock as a future.

use super::{Ask, Kind, QUEUED, Queues, RawRwLock};
use crate::prim::hooks::*;
use crate::prim::note_contention;
use crate::sync::wait_queue::{Gone, HasWaitQueue, Position, TaskIn};
use crate::wait::task::TaskWait;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The steps of a future that takes the lock. All calls are for one lock, and `leave` comes before the drop.
pub(in crate::sync) struct Locking {
    kind: Kind,
    task: TaskIn<Queues>,
}

impl Locking {
    /// Makes the steps for `kind`, which is not `Upgrade`: the future would have to own that guard.
    pub(in crate::sync) fn new(kind: Kind) -> Self {
        Locking { kind, task: TaskIn::new() }
    }

    fn parts(self: Pin<&mut Self>) -> (Kind, Pin<&mut TaskIn<Queues>>) {
        // SAFETY: `task` is pinned with this; nothing moves it.
        unsafe {
            let this = self.get_unchecked_mut();
            (this.kind, Pin::new_unchecked(&mut this.task))
        }
    }

    /// Ready when the future has the lock. The next poll after that begins anew.
    pub(in crate::sync) fn poll(self: Pin<&mut Self>, lock: &RawRwLock, cx: &mut Context<'_>) -> Poll<()> {
        let (kind, mut task) = self.parts();
        let mut insists = false;
        if task.is_waiting() {
            match task.as_mut().poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(ask) if lock.has_or_takes(&ask) => return Poll::Ready(()),
                Poll::Ready(_tried_in_vain) => insists = true,
            }
        } else if lock.try_lock(kind) {
            return Poll::Ready(());
        }
        note_contention();
        let wait = TaskWait::open(cx.waker());
        let mut queues = lock.queues.lock();
        if lock.take_or_mark(&mut queues, kind, QUEUED) {
            drop(queues);
            wait.withdraw();
            return Poll::Ready(());
        }
        task.join(wait, &mut queues, (Ask::new(lock, kind, insists), Position::Back));
        Poll::Pending
    }

    /// Ends the wait. A lock that the future was granted goes to the next waiters.
    pub(in crate::sync) fn leave(self: Pin<&mut Self>, lock: &RawRwLock) {
        let (_, task) = self.parts();
        let settle = |ask| Queues::settle(&ask, true).call_wakers();
        match task.leave(&lock.queues) {
            None => {}
            Some(Gone::Notified(ask)) => unless!(RwLockDropsTheGrant, settle(ask)),
            Some(Gone::Left(queues)) => {
                mutant!(RwLockDropsQuietly: return);
                lock.granted_to_others(queues).ready();
            }
        }
    }
}
