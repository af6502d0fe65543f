//! The order of grants to waiters: futures that have tried in vain keep their place, and requests that do not fit hold no other
//! back.

use super::*;
use common::{dumps, runtime};

/// Fails by the wakes, or when the lock is free at the end of the second write: the reader, which was woken too late the first
/// time, is then woken to try again, instead of being granted the lock.
#[test]
fn a_reading_task_that_came_too_late_is_granted_the_lock() {
    let lock = RwLock::new(());
    let (mut reads, task) = (Box::pin(lock.read_async()), Task::new());
    let first = lock.write();
    assert!(task.poll(reads.as_mut()).is_pending());
    drop(first);
    assert_eq!(task.wakes(), 1);
    let second = lock.try_write().expect("the reader is woken to try, and was not polled yet");
    assert!(task.poll(reads.as_mut()).is_pending());
    drop(second);
    assert_eq!(task.wakes(), 2);
    assert!(lock.try_write().is_none(), "the lock was let go in place of being granted");
    assert!(task.poll(reads.as_mut()).is_ready());
    assert!(!lock.is_locked());
}

/// Fails by the wakes when a waiter that came first and was woken in vain stands behind one that came later.
#[test]
fn a_task_that_came_too_late_for_a_mutex_keeps_its_place() {
    let lock = Mutex::new(());
    let (mut first, mut second) = (Box::pin(lock.lock_async()), Box::pin(lock.lock_async()));
    let (head, behind) = (Task::new(), Task::new());
    let held = lock.lock();
    assert!(head.poll(first.as_mut()).is_pending() && behind.poll(second.as_mut()).is_pending());
    drop(held);
    let barges = lock.try_lock().expect("the first is woken to try, and was not polled yet");
    assert!(head.poll(first.as_mut()).is_pending());
    drop(barges);
    assert_eq!((head.wakes(), behind.wakes()), (2, 0));
    drop((first, second));
    assert!(!lock.is_locked());
}

/// The same for goroutines. Fails by the order in which they get the lock.
#[test]
fn a_goroutine_that_came_too_late_for_a_mutex_keeps_its_place() {
    watched(1, || {
        let rt = runtime(1);
        let (lock, order) = (Arc::new(Mutex::new(())), Arc::new(StdMutex::new(Vec::new())));
        let (theirs, noted) = (Arc::clone(&lock), Arc::clone(&order));
        rt.run(move || {
            let parks = |waiter: &gmp::JoinHandle<()>| {
                let id = waiter.id().get();
                let waits = |g: &(u64, &str)| g.0 == id && g.1.starts_with("sync.Mutex.Lock");
                until(|| dumps::read(&gmp::dump()).iter().any(waits));
            };
            let held = theirs.lock();
            let waiters = [0, 1].map(|number| {
                let (lock, order) = (Arc::clone(&theirs), Arc::clone(&noted));
                let waiter = gmp::go(move || {
                    let _guard = lock.lock();
                    order.lock().unwrap().push(number);
                });
                parks(&waiter);
                waiter
            });
            drop(held);
            // The first goroutine is woken to try, and usually has not run yet.
            if let Some(barges) = theirs.try_lock() {
                parks(&waiters[0]);
                drop(barges);
            }
            waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        });
        assert_eq!(*order.lock().unwrap(), [0, 1]);
    });
}

/// Fails by the wakes when a notification of all waiters leaves a permit after their futures were dropped.
#[test]
fn what_all_were_notified_of_is_not_passed_on() {
    let (event, task) = (Event::new(), Task::new());
    let mut waits = [(); 2].map(|()| Box::pin(event.wait_async()));
    assert!(waits.iter_mut().all(|waits| task.poll(waits.as_mut()).is_pending()));
    event.notify_all();
    assert_eq!(task.wakes(), 2);
    drop(waits);
    assert!(task.poll(pin!(event.wait_async())).is_pending());
}

/// Fails by the wakes when a request that is still too large for the capacity keeps later requests from joining the queue, or
/// when these join the queue in another order than they came in.
#[test]
fn requests_that_fit_the_capacity_join_the_queue_in_their_order() {
    let permits = Semaphore::new(1);
    permits.acquire(1);
    let [large, first, second] = [(); 3].map(|()| Task::new());
    let mut asks = [3, 2, 2].map(|count| Box::pin(permits.acquire_async(count)));
    for (asks, task) in asks.iter_mut().zip([&large, &first, &second]) {
        assert!(task.poll(asks.as_mut()).is_pending());
    }
    permits.add_permits(1);
    permits.release(1);
    assert_eq!((large.wakes(), first.wakes(), second.wakes()), (0, 1, 0));
    drop(asks);
    assert_eq!(permits.available_permits(), 2);
}
