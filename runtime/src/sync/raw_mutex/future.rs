//! The wait for the lock as a future: the steps of `lock_slow`, a poll at a time.

use super::{Ask, RawMutex, STARVING, WOKEN, Waiters};
use crate::host::{Active, Clock};
use crate::prim::hooks::*;
use crate::prim::{capacity, note_contention};
use crate::sync::wait_queue::{Gone, Position, TaskIn};
use crate::wait::task::TaskWait;
use gmp_timers::Nanos;
use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The steps of a future that takes the lock. All calls are for one mutex, and `leave` comes before the drop.
pub(in crate::sync) struct Locking {
    attempt: Attempt,
    task: TaskIn<Waiters>,
}

struct Attempt {
    /// When the lock was found held for the first time.
    since: Option<Nanos>,
    /// WOKEN from a notification until the future has the lock or is queued again; otherwise 0.
    woken: u32,
    starved: u32,
}

impl Attempt {
    fn new() -> Self {
        Attempt { since: None, woken: 0, starved: 0 }
    }

    /// For a future without a place in the queue: takes the lock if free.
    fn begin(&mut self, mutex: &RawMutex) -> bool {
        if self.woken == 0 && mutex.try_lock() {
            return true;
        }
        note_contention();
        self.since.get_or_insert_with(Active::now);
        false
    }

    /// For a future that was notified: returns `true` if the future has the lock now.
    fn is_called(&mut self, mutex: &RawMutex, ask: &Ask) -> bool {
        if ask.handed.get() || mutex.take(WOKEN) {
            return true;
        }
        self.woken = WOKEN;
        if Active::now().saturating_since(ask.since) >= capacity::STARVED {
            self.starved = STARVING;
        }
        false
    }
}

impl Locking {
    pub(in crate::sync) fn new() -> Self {
        Locking { attempt: Attempt::new(), task: TaskIn::new() }
    }

    fn parts(self: Pin<&mut Self>) -> (&mut Attempt, Pin<&mut TaskIn<Waiters>>) {
        // SAFETY: `task` is pinned with this; nothing moves it.
        unsafe {
            let this = self.get_unchecked_mut();
            (&mut this.attempt, Pin::new_unchecked(&mut this.task))
        }
    }

    /// Ready when the future has the lock. The next poll after that begins anew.
    pub(in crate::sync) fn poll(self: Pin<&mut Self>, mutex: &RawMutex, cx: &mut Context<'_>) -> Poll<()> {
        let (attempt, mut task) = self.parts();
        let free = if task.is_waiting() {
            let Poll::Ready(ask) = task.as_mut().poll(cx) else { return Poll::Pending };
            attempt.is_called(mutex, &ask)
        } else {
            attempt.begin(mutex)
        };
        if free {
            *attempt = Attempt::new();
            return Poll::Ready(());
        }
        // Foreign code clones the waker, and might panic: the drop then learns of the notification by `woken`.
        let wait = TaskWait::open(cx.waker());
        let mut waiters = mutex.waiters.lock();
        let woken = std::mem::take(&mut attempt.woken);
        if mutex.join_queue(woken, attempt.starved) {
            drop(waiters);
            wait.withdraw();
            *attempt = Attempt::new();
            return Poll::Ready(());
        }
        let since = attempt.since.unwrap_or(Nanos::ZERO);
        let ask = Ask { mutex, since, handed: Cell::new(false) };
        let position = if woken == 0 { Position::Back } else { Position::Front };
        task.join(wait, &mut waiters, (ask, position));
        Poll::Pending
    }

    /// Ends the wait. A lock or notification that the future was given goes to the next waiter.
    pub(in crate::sync) fn leave(self: Pin<&mut Self>, mutex: &RawMutex) {
        let (attempt, task) = self.parts();
        let settle = |handed| mutex.settle(handed).call_wakers();
        match task.leave(&mutex.waiters) {
            None if attempt.woken == 0 => {}
            None => settle(false),
            Some(Gone::Notified(ask)) => unless!(MutexDropsTheCall, settle(ask.handed.get())),
            Some(Gone::Left(waiters)) => mutex.note_left(&waiters.0),
        }
    }
}
