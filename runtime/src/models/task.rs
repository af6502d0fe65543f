//! Tasks that wait in the queues of goroutines and threads: a notifier beside the polls and the drop of a future.

use super::caught;
use crate::block_on;
use crate::chan::watch;
use crate::model::{Model, Mutant, at_rest, done};
use crate::sync::{Event, Semaphore};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// A waker of another executor, whose thread sleeps in `until_woken`. That thread has no spurious wake-ups, unlike one that
/// sleeps in loom's `Notify`: a poll for which no wake has asked would hide a lost wake.
pub(super) struct Foreign(Mutex<bool>, Condvar);

impl Foreign {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Foreign(Mutex::new(false), Condvar::new()))
    }

    pub(super) fn until_woken(&self) {
        let mut woken = self.0.lock().expect("no panic under a model's lock");
        while !std::mem::take(&mut *woken) {
            woken = self.1.wait(woken).expect("no panic under a model's lock");
        }
    }
}

impl Wake for Foreign {
    fn wake(self: Arc<Self>) {
        *self.0.lock().expect("no panic under a model's lock") = true;
        self.1.notify_one();
    }
}

pub(super) fn poll<F: Future>(future: Pin<&mut F>, task: &Arc<Foreign>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(task))))
}

/// Polls the future, each time after a wake, until it is ready.
pub(super) fn run<F: Future>(mut future: Pin<&mut F>, task: &Arc<Foreign>) -> F::Output {
    loop {
        match poll(future.as_mut(), task) {
            Poll::Ready(output) => return output,
            Poll::Pending => task.until_woken(),
        }
    }
}

/// Fails by deadlock when a notification beside the first poll does not wake the task.
#[test]
fn a_task_is_woken() {
    Model::new().check("task_woken", || {
        let event = Arc::new(Event::new());
        let theirs = Arc::clone(&event);
        let notifier = thread::spawn(move || theirs.notify_one());
        run(pin!(event.wait_async()), &Foreign::new());
        notifier.join().unwrap();
    });
}

/// A future is polled by one task, then by another. Fails by deadlock when a notification beside the second poll wakes the
/// first task alone.
#[test]
fn the_task_that_has_polled_last_is_woken() {
    Model::new().check("task_moved", || {
        let event = Arc::new(Event::new());
        let (first, second) = (Foreign::new(), Foreign::new());
        let mut waits = pin!(event.wait_async());
        assert!(poll(waits.as_mut(), &first).is_pending());
        let theirs = Arc::clone(&event);
        let notifier = thread::spawn(move || theirs.notify_one());
        run(waits, &second);
        notifier.join().unwrap();
    });
}

/// Fails by deadlock when the one notification is lost with a future that is dropped; by a causality violation when the record
/// is freed while the notifier reads it.
#[test]
fn a_future_that_is_dropped_takes_no_notification_with_it() {
    Model::new().check("task_dropped", || {
        let event = Arc::new(Event::new());
        {
            let mut waits = pin!(event.wait_async());
            assert!(poll(waits.as_mut(), &Foreign::new()).is_pending());
            let theirs = Arc::clone(&event);
            drop(thread::spawn(move || theirs.notify_one()));
        }
        event.wait();
    });
}

type Asks = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A waker that drops a future.
struct Drops(Mutex<Option<Asks>>);

impl Wake for Drops {
    fn wake(self: Arc<Self>) {
        let dropped = self.0.lock().expect("no panic under a model's lock").take();
        drop(dropped);
    }
}

/// One release grants two requests, and the waker of the first drops the second. Fails when the drop waits for ever, or by the
/// count.
#[test]
fn a_waker_may_drop_another_future_that_is_notified() {
    Model::new().check("task_drops_another", || {
        let permits = Arc::new(Semaphore::new(2));
        permits.acquire(2);
        let [first, second] = [(); 2].map(|()| {
            let asks = permits.acquire_owned_async(1);
            Box::pin(async { asks.await.expect("nobody closes it").forget() }) as Asks
        });
        let (mut first, drops) = (first, Arc::new(Drops(Mutex::new(None))));
        let waker = Waker::from(Arc::clone(&drops));
        let mut context = Context::from_waker(&waker);
        assert!(first.as_mut().poll(&mut context).is_pending());
        let mut second = second;
        assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        *drops.0.lock().expect("no panic under a model's lock") = Some(second);
        let theirs = Arc::clone(&permits);
        let releases = thread::spawn(move || theirs.release(2));
        while first.as_mut().poll(&mut context).is_pending() {
            thread::yield_now();
        }
        releases.join().unwrap();
        // The waker has not dropped the future if the first poll after the ready came before the waker's call.
        let left = drops.0.lock().expect("no panic under a model's lock").take();
        drop(left);
        assert_eq!(permits.available_permits(), 1);
    });
}

/// One change of a `watch` readies a task that waits to read the value and one that waits for the change; the waker of one of
/// them drops the future of the other. Fails when the drop waits for ever.
#[test]
fn a_readers_waker_may_drop_a_waiter_for_the_change() {
    Model::new().check("task_drops_a_watcher", || {
        let (sender, mut reads) = watch::channel(0);
        let mut waits = sender.subscribe();
        let mut change = Box::pin(async move {
            let _changed = waits.changed_async().await;
        }) as Asks;
        assert!(change.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let drops = Arc::new(Drops(Mutex::new(Some(change))));
        let waker = Waker::from(Arc::clone(&drops));
        let mut context = Context::from_waker(&waker);
        let mut read = Box::pin(reads.wait_for_async(|value| *value > 0));
        sender.send_modify(|value| {
            assert!(read.as_mut().poll(&mut context).is_pending());
            *value += 1;
        });
        assert!(drops.0.lock().expect("no panic under a model's lock").is_none());
        assert!(matches!(read.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
    });
}

/// One of two goroutines waits by a future. Fails by deadlock when a wake is lost on the way through both kinds of waiters.
#[test]
fn a_goroutine_that_polls_is_woken_by_one_that_notifies() {
    Model::new().check("task_on_goroutine", || {
        let runtime = at_rest::<1>();
        let (there, back) = (Arc::new(Event::new()), Arc::new(Event::new()));
        let (here, answers) = (Arc::clone(&there), Arc::clone(&back));
        let waits = runtime.go(move || {
            block_on(here.wait_async());
            answers.notify_one();
        });
        there.notify_one();
        back.wait();
        waits.join().unwrap();
        done();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::TaskLooksFirst, "the_task_that_has_polled_last_is_woken"),
            (Mutant::TaskKeepsTheOldWaker, "the_task_that_has_polled_last_is_woken"),
            (Mutant::TaskIsCalledEarly, "a_task_is_woken"),
            (Mutant::TaskIsCalledEarly, "a_goroutine_that_polls_is_woken_by_one_that_notifies"),
            (Mutant::TaskLeavesBesideTheReady, "a_future_that_is_dropped_takes_no_notification_with_it"),
            (Mutant::EventForgetsItsNotification, "a_future_that_is_dropped_takes_no_notification_with_it"),
            (Mutant::NotifiedCallsInBetween, "a_waker_may_drop_another_future_that_is_notified"),
            (Mutant::WatchCallsInBetween, "a_readers_waker_may_drop_a_waiter_for_the_change"),
        ],
    );
}
