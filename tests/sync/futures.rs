//! The waits of `sync` as futures: tasks of any executor wait in the queues of goroutines and threads, and a grant to a future
//! is not lost when the future is dropped.

mod places;
mod wakers;

use common::crew::everyone;
use common::foreign::{Task, run};
use common::{everywhere, until, watched};
use gmp::block_on;
use gmp::chan::{Receiver, Sender, bounded};
use gmp::context::Context;
use gmp::sync::{
    ArcMutexGuard, Barrier, Condvar, ErrGroup, Event, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard,
    RwLockWriteGuard, Semaphore, SemaphorePermit, WaitGroup, futures,
};
use std::future::Future;
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::Mutex as StdMutex;
use std::task::{Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::thread;
use std::time::Duration;

type Boxed<F> = Pin<Box<F>>;
type Waits<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// One operation, with a function that makes it wait, and one that ends the wait.
struct Operation<W> {
    name: &'static str,
    /// Makes the object to wait for, and takes it, so that others wait.
    taken: fn() -> W,
    /// The operation. Its result is dropped at once.
    waits: for<'a> fn(&'a W) -> Waits<'a>,
    /// Ends the wait of one waiter.
    frees: fn(&W),
    /// Returns `true` if the object is whole again after this number of operations has ended.
    is_whole: fn(&W, ended: usize) -> bool,
}

impl<W> Operation<W> {
    /// Drops futures at each of their await points: unpolled, waiting, notified, and ended.
    fn check(&self) {
        for polls in 0..2 {
            let world = (self.taken)();
            let task = Task::new();
            let mut waits = (self.waits)(&world);
            (0..polls).for_each(|_| assert!(task.poll(waits.as_mut()).is_pending(), "{}", self.name));
            drop(waits);
            assert!(!task.is_known(), "{}: a dropped future leaves its waker", self.name);
            (self.frees)(&world);
            assert_eq!(task.wakes(), 0, "{}: a dropped future is woken", self.name);
            assert!((self.is_whole)(&world, 0), "{}: after {polls} polls", self.name);
        }

        let world = (self.taken)();
        let task = Task::new();
        let mut waits = (self.waits)(&world);
        assert!(task.poll(waits.as_mut()).is_pending());
        (self.frees)(&world);
        assert_eq!(task.wakes(), 1, "{}", self.name);
        drop(waits);
        assert!((self.is_whole)(&world, 0), "{}: lost with a notified future", self.name);

        // Polled without need, and by another task at last.
        let world = (self.taken)();
        let (first, last) = (Task::new(), Task::new());
        let mut waits = (self.waits)(&world);
        for task in [&first, &first, &last, &last] {
            assert!(task.poll(waits.as_mut()).is_pending(), "{}: ready early", self.name);
        }
        assert!(!first.is_known(), "{}: a waker that was replaced is kept", self.name);
        (self.frees)(&world);
        assert_eq!((first.wakes(), last.wakes()), (0, 1), "{}: which task is woken", self.name);
        assert!(first.poll(waits.as_mut()).is_ready(), "{}", self.name);
        drop(waits);
        assert!((self.is_whole)(&world, 1), "{}: after its end", self.name);

        // With another waiter behind.
        for notified in [false, true] {
            let world = (self.taken)();
            let (head, behind) = (Task::new(), Task::new());
            let (mut goes, mut stays) = ((self.waits)(&world), (self.waits)(&world));
            assert!(head.poll(goes.as_mut()).is_pending() && behind.poll(stays.as_mut()).is_pending());
            if notified {
                (self.frees)(&world);
                drop(goes);
            } else {
                drop(goes);
                (self.frees)(&world);
            }
            assert_eq!(behind.wakes(), 1, "{}: the one behind, {notified}", self.name);
            assert!(behind.poll(stays.as_mut()).is_ready(), "{}: the one behind, {notified}", self.name);
            drop(stays);
            assert!((self.is_whole)(&world, 1), "{}: after the one behind, {notified}", self.name);
        }
    }
}

/// Returns `true` if no request waits, and all permits are back.
fn has_all(permits: &Semaphore) -> bool {
    permits.available_permits() == 2 && waiting(permits) == 0
}

/// Returns how many requests wait.
fn waiting(permits: &Semaphore) -> usize {
    let shown = format!("{permits:?}");
    let (_, count) = shown.split_once("waiting: ").unwrap();
    count.split(',').next().unwrap().parse().unwrap()
}

/// Fails by the count when a permit, a lock or a notification is lost with a dropped future, or comes twice; when a task is not
/// woken, or is woken without need.
#[test]
fn what_a_dropped_future_was_given_goes_to_the_next() {
    everyone(|crew| {
        crew.run(|| {
            let taken = || {
                let permits = Arc::new(Semaphore::new(2));
                permits.acquire(2);
                permits
            };
            let semaphore = Operation {
                name: "acquire_async",
                taken,
                waits: |permits| Box::pin(async { drop(permits.acquire_async(2).await.unwrap()) }),
                frees: |permits| permits.release(2),
                is_whole: |permits, _| has_all(permits),
            };
            semaphore.check();
            let waits: for<'a> fn(&'a Arc<Semaphore>) -> Waits<'a> =
                |permits| Box::pin(async { drop(permits.acquire_owned_async(1).await.unwrap()) });
            Operation { name: "acquire_owned_async", waits, ..semaphore }.check();

            let mutex = Operation {
                name: "lock_async",
                taken: || {
                    let lock = Arc::new(Mutex::new(()));
                    forget(lock.lock());
                    lock
                },
                waits: |lock| Box::pin(async { drop(lock.lock_async().await) }),
                // SAFETY: the guard of this lock was forgotten.
                frees: |lock| unsafe { lock.force_unlock() },
                is_whole: |lock, _| lock.try_lock().is_some(),
            };
            mutex.check();
            let waits: for<'a> fn(&'a Arc<Mutex<()>>) -> Waits<'a> =
                |lock| Box::pin(async { drop(lock.lock_arc_async().await) });
            Operation { name: "lock_arc_async", waits, ..mutex }.check();
            Operation {
                name: "lock_async, handed over",
                taken: || {
                    let lock = Arc::new(Mutex::new(()));
                    let guard = StdMutex::new(Some(lock.lock_arc()));
                    (lock, guard)
                },
                waits: |(lock, _)| Box::pin(async { drop(lock.lock_async().await) }),
                frees: |(_, guard)| ArcMutexGuard::unlock_fair(guard.lock().unwrap().take().unwrap()),
                is_whole: |(lock, _), _| lock.try_lock().is_some(),
            }
            .check();

            type Locks = for<'a> fn(&'a Arc<RwLock<()>>) -> Waits<'a>;
            const WAITS: [(&str, Locks); 5] = [
                ("read_async", |lock| Box::pin(async { drop(lock.read_async().await) })),
                ("write_async", |lock| Box::pin(async { drop(lock.write_async().await) })),
                ("upgradable_read_async", |lock| {
                    Box::pin(async { drop(lock.upgradable_read_async().await) })
                }),
                ("read_arc_async", |lock| Box::pin(async { drop(lock.read_arc_async().await) })),
                ("write_arc_async", |lock| Box::pin(async { drop(lock.write_arc_async().await) })),
            ];
            for (name, waits) in WAITS {
                Operation {
                    name,
                    taken: || {
                        let lock = Arc::new(RwLock::new(()));
                        forget(lock.write());
                        lock
                    },
                    waits,
                    // SAFETY: the guard of this lock was forgotten.
                    frees: |lock| unsafe { lock.force_unlock_write() },
                    is_whole: |lock, _| lock.try_write().is_some(),
                }
                .check();
            }

            Operation {
                name: "WaitGroup::wait_async",
                taken: || {
                    let tasks = WaitGroup::new();
                    tasks.add(1);
                    tasks
                },
                waits: |tasks| Box::pin(tasks.wait_async()),
                frees: WaitGroup::done,
                is_whole: |tasks, _| Task::new().poll(pin!(tasks.wait_async())).is_ready(),
            }
            .check();
            Operation {
                name: "OnceLock::wait_async",
                taken: OnceLock::new,
                waits: |cell| Box::pin(async { assert_eq!(cell.wait_async().await, &1) }),
                frees: |cell| cell.set(1).unwrap(),
                is_whole: |cell, _| cell.get() == Some(&1),
            }
            .check();
            Operation {
                name: "Event::wait_async",
                taken: Event::new,
                waits: |event| Box::pin(event.wait_async()),
                frees: Event::notify_one,
                is_whole: |event, ended| {
                    let left = Task::new().poll(pin!(event.wait_async())).is_ready();
                    left == (ended == 0)
                },
            }
            .check();
            Operation {
                name: "Context::ended",
                taken: || Context::background().with_cancel(),
                waits: |(context, _)| {
                    Box::pin(async {
                        let _error = context.ended().await;
                    })
                },
                frees: |(_, cancel)| cancel.cancel(),
                is_whole: |(context, _), _| context.err().is_some(),
            }
            .check();
        });
    });
}

/// Fails by the leader, or by a hang, when a future counts that is dropped before its round opens, or when one does not count
/// that is dropped afterwards.
#[test]
fn a_barrier_counts_the_futures_that_wait_when_it_opens() {
    let (barrier, task) = (Barrier::new(2), Task::new());
    drop(barrier.wait_async());
    let mut first = Box::pin(barrier.wait_async());
    assert!(task.poll(first.as_mut()).is_pending());
    drop(first);
    let mut first = Box::pin(barrier.wait_async());
    assert!(task.poll(first.as_mut()).is_pending(), "one that has gone counts");
    assert_eq!(task.wakes(), 0);
    assert!(block_on(barrier.wait_async()).is_leader());
    assert_eq!(task.wakes(), 1);
    // The first future has counted, and is dropped.
    drop(first);
    let mut next = Box::pin(barrier.wait_async());
    assert!(task.poll(next.as_mut()).is_pending(), "the count goes on from the round before");
    let leads = barrier.wait();
    assert!(leads.is_leader());
    assert_eq!(format!("{leads:?}"), "BarrierWaitResult { is_leader: true }");
    assert!(matches!(task.poll(next.as_mut()), Poll::Ready(result) if !result.is_leader()));
}

/// Fails by the order when a task is served before earlier waiters, or after later ones.
#[test]
fn goroutines_threads_and_tasks_come_first_served() {
    const EACH: usize = 4;
    everywhere(|rt| {
        let (permits, order) = (Arc::new(Semaphore::new(1)), Arc::new(StdMutex::new(Vec::new())));
        permits.acquire(1);
        let (mut goroutines, mut threads) = (Vec::new(), Vec::new());
        for number in 0..5 * EACH {
            let (theirs, order) = (Arc::clone(&permits), Arc::clone(&order));
            let comes = move |permit: SemaphorePermit<'_>| {
                order.lock().unwrap().push(number);
                drop(permit);
            };
            match number % 5 {
                0 => goroutines.push(rt.go(move || comes(theirs.acquire_guard(1).unwrap()))),
                1 => threads.push(thread::spawn(move || comes(theirs.acquire_guard(1).unwrap()))),
                2 => goroutines.push(rt.go(move || comes(block_on(theirs.acquire_async(1)).unwrap()))),
                3 => threads.push(thread::spawn(move || comes(run(theirs.acquire_async(1)).unwrap()))),
                _ => threads.push(thread::spawn(move || comes(block_on(theirs.acquire_async(1)).unwrap()))),
            }
            until(|| waiting(&permits) == number + 1);
        }
        permits.release(1);
        goroutines.into_iter().for_each(|one| one.join().unwrap());
        threads.into_iter().for_each(|one| one.join().unwrap());
        assert_eq!(*order.lock().unwrap(), (0..5 * EACH).collect::<Vec<_>>());
    });
}

/// Fails by the count of wakes when a task that lost the lock to others again and again is not handed the lock, as a goroutine
/// is.
#[test]
fn a_task_that_is_starved_is_handed_the_lock() {
    let lock = Mutex::new(());
    let (mut waits, task) = (Box::pin(lock.lock_async()), Task::new());
    let held = lock.lock();
    assert!(task.poll(waits.as_mut()).is_pending());
    // By the clock, longer than the millisecond after which a waiter is starved.
    let begin = std::time::Instant::now();
    until(|| begin.elapsed() > Duration::from_millis(2));
    drop(held);
    let barges = lock.try_lock().expect("woken to try, and not polled yet");
    assert!(task.poll(waits.as_mut()).is_pending());
    drop(barges);
    assert!(lock.try_lock().is_none(), "the lock was let go instead of handed over");
    assert!(task.poll(waits.as_mut()).is_ready());
}

/// Futures are fields, with named types; each is polled again after its end. Fails to compile when a type has no name; or when
/// a poll after the end does not begin anew.
#[test]
fn futures_have_names() {
    struct Waits<'a> {
        locks: (Boxed<futures::Lock<'a, u32>>, Boxed<futures::LockArc<u32>>),
        reads: (Boxed<futures::Read<'a, u32>>, Boxed<futures::ReadArc<u32>>),
        upgradable: Boxed<futures::UpgradableRead<'a, u32>>,
        writes: (Boxed<futures::Write<'a, u32>>, Boxed<futures::WriteArc<u32>>),
        acquires: (Boxed<futures::AcquirePermits<'a>>, Boxed<futures::AcquireOwned>),
        others: (Boxed<futures::BarrierWait<'a>>, Boxed<futures::EventWait<'a>>),
        zero: Boxed<futures::WaitGroupWait>,
        ends: Boxed<futures::ErrGroupWait<()>>,
        value: Boxed<futures::OnceLockWait<'a, u32>>,
        ended: (Boxed<gmp::context::Ended>, Boxed<gmp::time::Timeout<gmp::time::Sleep>>),
    }
    fn ends_twice<F: Future>(mut future: Boxed<F>) {
        let task = Task::new();
        for _ in 0..2 {
            assert!(task.poll(future.as_mut()).is_ready());
        }
    }
    let (permits, mutex) = (Arc::new(Semaphore::new(1)), Arc::new(Mutex::new(0)));
    let (lock, barrier, event) = (Arc::new(RwLock::new(0)), Barrier::new(1), Event::new());
    let (context, cancel) = Context::background().with_cancel();
    let cell = OnceLock::from(7);
    let waits = Waits {
        locks: (Box::pin(mutex.lock_async()), Box::pin(mutex.lock_arc_async())),
        reads: (Box::pin(lock.read_async()), Box::pin(lock.read_arc_async())),
        upgradable: Box::pin(lock.upgradable_read_async()),
        writes: (Box::pin(lock.write_async()), Box::pin(lock.write_arc_async())),
        acquires: (Box::pin(permits.acquire_async(1)), Box::pin(permits.acquire_owned_async(1))),
        others: (Box::pin(barrier.wait_async()), Box::pin(event.wait_async())),
        zero: Box::pin(WaitGroup::new().wait_async()),
        ends: Box::pin(ErrGroup::new().wait_async()),
        value: Box::pin(cell.wait_async()),
        ended: (
            Box::pin(context.ended()),
            Box::pin(gmp::time::timeout_async(Duration::ZERO, gmp::time::sleep_async(Duration::ZERO))),
        ),
    };
    cancel.cancel();
    let Waits { locks, reads, upgradable, writes, acquires, mut others, zero, ends, value, ended } = waits;
    assert_eq!(format!("{ends:?} {value:?}"), "ErrGroupWait { .. } OnceLockWait { .. }");
    assert_eq!(format!("{locks:?} {reads:?}"), "(Lock { .. }, LockArc { .. }) (Read { .. }, ReadArc { .. })");
    assert_eq!(format!("{upgradable:?} {writes:?}"), "UpgradableRead { .. } (Write { .. }, WriteArc { .. })");
    assert_eq!(
        format!("{acquires:?} {others:?}"),
        "(AcquirePermits { .. }, AcquireOwned { .. }) (BarrierWait { .. }, EventWait { .. })"
    );
    assert_eq!(
        format!("{zero:?} {:?}", ended.0),
        "WaitGroupWait { group: WaitGroup { count: 0 }, .. } Ended { .. }"
    );
    assert!(format!("{:?}", ended.1).starts_with("Timeout { sleep: Sleep { "));
    ends_twice(locks.0);
    ends_twice(locks.1);
    ends_twice(reads.0);
    ends_twice(reads.1);
    ends_twice(upgradable);
    ends_twice(writes.0);
    ends_twice(writes.1);
    ends_twice(acquires.0);
    ends_twice(acquires.1);
    ends_twice(others.0);
    for _ in 0..2 {
        event.notify_one();
        block_on(others.1.as_mut());
    }
    ends_twice(zero);
    ends_twice(ends);
    ends_twice(value);
    ends_twice(ended.0);
    assert_eq!(block_on(ended.1), Ok(()));
    assert!(!mutex.is_locked() && !lock.is_locked() && permits.available_permits() == 1);
}

/// Compiles if the futures can be sent to other threads, and shared.
#[test]
fn futures_are_send() {
    fn goes<F: Future + Send + Sync>(_: F) {}
    let (permits, mutex) = (Arc::new(Semaphore::new(1)), Arc::new(Mutex::new(0)));
    let (lock, barrier, event) = (Arc::new(RwLock::new(0)), Barrier::new(1), Event::new());
    goes(permits.acquire_async(1));
    goes(permits.acquire_owned_async(1));
    goes(mutex.lock_async());
    goes(mutex.lock_arc_async());
    goes(lock.read_async());
    goes(lock.write_async());
    goes(lock.upgradable_read_async());
    goes(lock.read_arc_async());
    goes(lock.write_arc_async());
    goes(barrier.wait_async());
    goes(event.wait_async());
    goes(WaitGroup::new().wait_async());
    goes(ErrGroup::<u32>::new().wait_async());
    goes(OnceLock::<u32>::new().wait_async());
    goes(Context::background().ended());
    goes(gmp::time::sleep_async(Duration::ZERO));
}

/// The guards that the futures return are those of the locks. Fails when a lock is held that should be free, or is free that
/// should be held.
#[test]
fn guards_of_futures_unlock() {
    everyone(|crew| {
        crew.run(|| {
            block_on(async {
                let (mutex, lock) = (Mutex::new(1), RwLock::new(1));
                let guard = mutex.lock_async().await;
                assert!(mutex.is_locked());
                MutexGuard::unlock_fair(guard);
                let reads = lock.read_async().await;
                let also: RwLockReadGuard<'_, _> = lock.read_async().await;
                assert_eq!(*reads + *also, 2);
                drop((reads, also));
                *lock.write_async().await += *mutex.lock_async().await;
                let reads = RwLockWriteGuard::downgrade(lock.write_async().await);
                assert_eq!(*reads, 2);
                assert!(lock.try_write().is_none() && !mutex.is_locked());
            });
        });
    });
}

/// A runtime ends while its goroutines wait by futures, in front of others. Fails by a hang, or by the count, when a grant to
/// them, or a grant that they hold back, is lost with them.
#[test]
fn a_runtime_that_ends_leaves_what_its_futures_waited_for() {
    everywhere(|rt| {
        let permits = Arc::new(Semaphore::new(2));
        permits.acquire(1);
        for waiters in 1..4 {
            let theirs = Arc::clone(&permits);
            drop(rt.go(move || block_on(theirs.acquire_async(2)).map(drop)));
            until(|| waiting(&permits) == waiters);
        }
        let theirs = Arc::clone(&permits);
        let small = thread::spawn(move || run(theirs.acquire_owned_async(1)).map(drop));
        until(|| waiting(&permits) == 4);
        let report = rt.shutdown(Duration::from_secs(30));
        assert!(report.is_clean(), "{report:?}");
        small.join().unwrap().unwrap();
        permits.release(1);
        assert!(has_all(&permits));
    });
}

/// Fails by a hang, or by a result, when a close does not reach tasks.
#[test]
fn a_close_ends_the_requests_of_tasks() {
    let permits = Semaphore::new(1);
    let task = Task::new();
    let mut asks = [1, 2].map(|count| Box::pin(permits.acquire_async(count)));
    permits.acquire(1);
    assert!(asks.iter_mut().all(|asks| task.poll(asks.as_mut()).is_pending()));
    permits.close();
    assert_eq!(task.wakes(), 2);
    for asks in &mut asks[..1] {
        assert!(matches!(task.poll(asks.as_mut()), Poll::Ready(Err(_))));
    }
    // The other future is dropped after it was told of the close, and gives nothing back.
    drop(asks);
    assert_eq!(permits.available_permits(), 0);
    assert!(matches!(task.poll(pin!(permits.acquire_async(1))), Poll::Ready(Err(_))));
}
