//! The wait for the lock as a future: the steps of `lock_slow`, a poll at a time.

use super::{Ask, RawMutex, STARVING, WOKEN, Waiters};
use crate::host::{Active, Clock};
use crate::prim::capacity;
use crate::prim::hooks::*;
use crate::sync::wait_queue::{Gone, Position, TaskIn};
use crate::wait::task::TaskWait;
use gmp_timers::Nanos;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A future that takes the lock.
pub(super) struct Locking<'a> {
    attempt: Attempt<'a>,
    task: TaskIn<Waiters>,
}

struct Attempt<'a> {
    mutex: &'a RawMutex,
    /// When the lock was found held for the first time.
    since: Option<Nanos>,
    /// WOKEN from a notification on until the future has the lock, or is queued again; else 0.
    woken: u32,
    starved: u32,
}

impl Attempt<'_> {
    /// Without a place in the queue: takes the lock if it is free.
    fn begin(&mut self) -> bool {
        if self.woken == 0 && self.mutex.try_lock() {
            return true;
        }
        self.since.get_or_insert_with(Active::now);
        false
    }

    /// The future was notified: returns `true` if it has the lock now.
    fn is_called(&mut self, ask: &Ask) -> bool {
        if ask.handed.get() || self.mutex.take(WOKEN) {
            return true;
        }
        self.woken = WOKEN;
        if Active::now().saturating_since(ask.since) >= capacity::STARVED {
            self.starved = STARVING;
        }
        false
    }
}

impl<'a> Locking<'a> {
    pub(super) fn new(mutex: &'a RawMutex) -> Self {
        Locking { attempt: Attempt { mutex, since: None, woken: 0, starved: 0 }, task: TaskIn::new() }
    }

    fn parts(self: Pin<&mut Self>) -> (&mut Attempt<'a>, Pin<&mut TaskIn<Waiters>>) {
        // SAFETY: `task` is pinned with the future; nothing moves it.
        unsafe {
            let this = self.get_unchecked_mut();
            (&mut this.attempt, Pin::new_unchecked(&mut this.task))
        }
    }
}

impl Future for Locking<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (attempt, mut task) = self.parts();
        let free = if task.is_waiting() {
            let Poll::Ready(ask) = task.as_mut().poll(cx) else { return Poll::Pending };
            attempt.is_called(&ask)
        } else {
            attempt.begin()
        };
        if free {
            attempt.woken = 0;
            return Poll::Ready(());
        }
        // Foreign code clones the waker, and may panic: the drop knows of the notification by `woken`.
        let wait = TaskWait::open(cx.waker());
        let mutex = attempt.mutex;
        let mut waiters = mutex.waiters.lock();
        let woken = std::mem::take(&mut attempt.woken);
        if mutex.join_queue(woken, attempt.starved) {
            drop(waiters);
            wait.withdraw();
            return Poll::Ready(());
        }
        let since = attempt.since.unwrap_or(Nanos::ZERO);
        let ask = Ask { mutex, since, handed: Cell::new(false) };
        let position = if woken == 0 { Position::Back } else { Position::Front };
        task.join(wait, &mut waiters, (ask, position));
        Poll::Pending
    }
}

impl Drop for Locking<'_> {
    fn drop(&mut self) {
        // SAFETY: the future is dropped where it was pinned, if it was polled, and is not moved any more.
        let (attempt, task) = unsafe { Pin::new_unchecked(self) }.parts();
        let mutex = attempt.mutex;
        match task.leave(&mutex.waiters) {
            None if attempt.woken == 0 => {}
            None => mutex.settle(false),
            Some(Gone::Notified(ask)) => unless!(MutexDropsTheCall, mutex.settle(ask.handed.get())),
            Some(Gone::Left(waiters)) => mutex.note_left(&waiters.0),
        }
    }
}
