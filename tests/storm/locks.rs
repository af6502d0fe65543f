//! `gmp::sync`: no holder is inside a lock beside a holder that excludes it, nothing stays taken, and each count is exact.

use crate::worker::Worker;
use gmp::sync::{
    Barrier, Condvar, ErrGroup, Event, Mutex, MutexGuard, OnceLock, RwLock, RwLockUpgradableReadGuard,
    RwLockWriteGuard, Semaphore, SingleFlight, WaitGroup,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

const PERMITS: usize = 3;
const PARTIES: usize = 3;

pub struct Locks {
    mutex: Mutex<()>,
    in_mutex: AtomicI64,
    rwlock: RwLock<()>,
    readers: AtomicI64,
    upgradables: AtomicI64,
    writers: AtomicI64,
    semaphore: Semaphore,
    permits: AtomicI64,
    /// The tokens that were put there and not taken.
    stock: Mutex<i64>,
    stocked: Condvar,
    put: AtomicI64,
    barrier: Barrier,
    leaders: AtomicU64,
    others: AtomicU64,
    group: WaitGroup,
    event: Event,
    flight: SingleFlight<u64, u64>,
}

/// Adds to a count until it is dropped.
struct More<'a>(&'a AtomicI64, i64);

impl<'a> More<'a> {
    #[track_caller]
    fn of(count: &'a AtomicI64, more: i64, most: i64) -> Self {
        let now = count.fetch_add(more, SeqCst) + more;
        assert!(now <= most, "{now} within a lock, where at most {most} may be");
        More(count, more)
    }
}

impl Drop for More<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, SeqCst);
    }
}

impl Locks {
    pub fn new() -> Self {
        Locks {
            mutex: Mutex::new(()),
            in_mutex: AtomicI64::new(0),
            rwlock: RwLock::new(()),
            readers: AtomicI64::new(0),
            upgradables: AtomicI64::new(0),
            writers: AtomicI64::new(0),
            semaphore: Semaphore::new(PERMITS),
            permits: AtomicI64::new(0),
            stock: Mutex::new(0),
            stocked: Condvar::new(),
            put: AtomicI64::new(0),
            barrier: Barrier::new(PARTIES),
            leaders: AtomicU64::new(0),
            others: AtomicU64::new(0),
            group: WaitGroup::new(),
            event: Event::new(),
            flight: SingleFlight::new(),
        }
    }

    /// Asserts, when no worker uses the locks any more, that nothing stays taken and the counts are exact.
    #[track_caller]
    pub fn balance(&self) {
        assert!(self.mutex.try_lock().is_some(), "the mutex is still locked: {:?}", self.mutex);
        assert!(self.rwlock.try_write().is_some(), "the lock is still held: {:?}", self.rwlock);
        assert!(self.semaphore.try_acquire(PERMITS), "permits are missing: {:?}", self.semaphore);
        let stock = self.stock.try_lock().expect("the condition's mutex is free");
        assert_eq!(*stock, self.put.load(SeqCst), "what was put and not taken");
        let (leaders, others) = (self.leaders.load(SeqCst), self.others.load(SeqCst));
        assert_eq!(leaders * (PARTIES as u64 - 1), others, "the barrier opened {leaders} times");
        gmp::time::timeout(Duration::from_secs(30), || self.group.wait()).expect("all of the group are done");
    }
}

pub fn mutex(w: &mut Worker) {
    let world = Arc::clone(&w.world);
    let locks = &world.locks;
    let limit = w.random.micros(100);
    if w.random.one_in(3) {
        if let Some(_guard) = locks.mutex.try_lock_for(limit) {
            let _within = More::of(&locks.in_mutex, 1, 1);
            w.pause();
        }
    } else {
        w.ended(|w| {
            let _guard = locks.mutex.lock();
            let _within = More::of(&locks.in_mutex, 1, 1);
            w.pause();
        });
    }
}

pub fn unlocked(w: &mut Worker) {
    let world = Arc::clone(&w.world);
    let locks = &world.locks;
    w.ended(|w| {
        let mut guard = locks.mutex.lock();
        MutexGuard::unlocked(&mut guard, || w.pause());
        drop(More::of(&locks.in_mutex, 1, 1));
        MutexGuard::bump(&mut guard);
        drop(More::of(&locks.in_mutex, 1, 1));
        MutexGuard::unlock_fair(guard);
    });
}

pub fn rwlock(w: &mut Worker) {
    let world = Arc::clone(&w.world);
    let locks = &world.locks;
    let (limit, none) = (w.random.micros(100), |count: &AtomicI64| assert_eq!(count.load(SeqCst), 0));
    w.ended(|w| match w.random.below(7) {
        0 => {
            let _guard = locks.rwlock.write();
            let _within = More::of(&locks.writers, 1, 1);
            none(&locks.readers);
            w.pause();
        }
        1 => {
            let Some(guard) = locks.rwlock.try_write_for(limit) else { return };
            {
                let _within = More::of(&locks.writers, 1, 1);
                none(&locks.readers);
            }
            let _guard = RwLockWriteGuard::downgrade(guard);
            let _within = More::of(&locks.readers, 1, i64::MAX);
            none(&locks.writers);
            w.pause();
        }
        3 => {
            let looks = locks.rwlock.upgradable_read();
            let one = More::of(&locks.upgradables, 1, 1);
            let within = More::of(&locks.readers, 1, i64::MAX);
            none(&locks.writers);
            w.pause();
            let again = (w.random.below(2) == 0).then(|| locks.rwlock.read_recursive());
            drop(again);
            drop((one, within));
            let Ok(guard) = RwLockUpgradableReadGuard::try_upgrade_for(looks, limit) else { return };
            let within = More::of(&locks.writers, 1, 1);
            none(&locks.readers);
            w.pause();
            drop(within);
            let _looks = RwLockWriteGuard::downgrade_to_upgradable(guard);
            let _one = More::of(&locks.upgradables, 1, 1);
            let _within = More::of(&locks.readers, 1, i64::MAX);
            none(&locks.writers);
        }
        4 => {
            let looks = locks.rwlock.upgradable_read();
            let _guard = RwLockUpgradableReadGuard::upgrade(looks);
            let _within = More::of(&locks.writers, 1, 1);
            none(&locks.readers);
        }
        2 => {
            let Some(_guard) = locks.rwlock.try_read_for(limit) else { return };
            let _within = More::of(&locks.readers, 1, i64::MAX);
            none(&locks.writers);
        }
        _ => {
            let _guard = locks.rwlock.read();
            let _within = More::of(&locks.readers, 1, i64::MAX);
            none(&locks.writers);
            w.pause();
        }
    });
}

/// Gives permits back.
struct Permits<'a>(&'a Semaphore, usize);

impl Drop for Permits<'_> {
    fn drop(&mut self) {
        self.0.release(self.1);
    }
}

pub fn semaphore(w: &mut Worker) {
    let world = Arc::clone(&w.world);
    let locks = &world.locks;
    let count = 1 + w.random.below(PERMITS as u64) as usize;
    let within = |w: &mut Worker| {
        let _permits = Permits(&locks.semaphore, count);
        let _within = More::of(&locks.permits, count as i64, PERMITS as i64);
        w.pause();
    };
    if w.random.one_in(2) {
        let (ctx, _cancel) = gmp::context::Context::background().with_timeout(w.random.micros(100));
        if locks.semaphore.acquire_ctx(&ctx, count).is_ok() {
            within(w);
        }
    } else {
        w.ended(|w| {
            locks.semaphore.acquire(count);
            within(w);
        });
    }
}

pub fn condvar(w: &mut Worker) {
    let world = Arc::clone(&w.world);
    let locks = &world.locks;
    let limit = w.random.micros(100);
    let puts = || {
        let mut stock = locks.stock.lock();
        *stock += 1;
        locks.put.fetch_add(1, SeqCst);
    };
    let takes = |mut stock: MutexGuard<'_, i64>| {
        assert!(*stock > 0, "taken from an empty stock");
        *stock -= 1;
        locks.put.fetch_sub(1, SeqCst);
    };
    match w.random.below(4) {
        0 => {
            w.ended(|_| puts());
            locks.stocked.notify_one();
        }
        1 => {
            w.ended(|_| puts());
            locks.stocked.notify_all();
        }
        2 => {
            w.ended(|_| {
                let mut stock = locks.stock.lock();
                if !locks.stocked.wait_while_for(&mut stock, |stock| *stock == 0, limit).timed_out() {
                    takes(stock);
                }
            });
        }
        _ => {
            w.ended(|_| {
                let mut stock = locks.stock.lock();
                while *stock == 0 {
                    locks.stocked.wait(&mut stock);
                }
                takes(stock);
            });
        }
    }
}

pub fn barrier(w: &mut Worker) {
    let world = Arc::clone(&w.world);
    let locks = &world.locks;
    w.ended(|_| {
        let count = if locks.barrier.wait().is_leader() { &locks.leaders } else { &locks.others };
        count.fetch_add(1, SeqCst);
    });
}

pub fn wait_group(w: &mut Worker) {
    let world = Arc::clone(&w.world);
    let group = &world.locks.group;
    struct Done<'a>(&'a WaitGroup);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.done();
        }
    }
    if w.random.one_in(2) {
        group.add(1);
        let _done = Done(group);
        w.pause();
    } else {
        w.ended(|_| group.wait());
    }
}

pub fn event(w: &mut Worker) {
    let world = Arc::clone(&w.world);
    let event = &world.locks.event;
    match w.random.below(3) {
        0 => event.notify_one(),
        1 => event.notify_all(),
        _ => drop(w.ended(|_| event.wait())),
    }
}

/// Several callers want one value. Each of them may be interrupted, also the one that makes the value; then another makes it.
pub fn once(w: &mut Worker) {
    let (lock, made) = (Arc::new(OnceLock::new()), Arc::new(AtomicU64::new(0)));
    let come = {
        let (lock, made) = (Arc::clone(&lock), Arc::clone(&made));
        move |pause: Duration| {
            *lock.get_or_init(|| {
                gmp::time::sleep(pause);
                made.fetch_add(1, SeqCst);
                7
            })
        }
    };
    for _ in 0..2 {
        let (come, limit, pause) = (come.clone(), w.random.micros(60), w.random.micros(40));
        w.meanwhile(move || {
            let _either_way = gmp::time::timeout(limit, || assert_eq!(come(pause), 7));
        });
    }
    let pause = w.random.micros(40);
    if let Some(value) = w.ended(|_| come(pause)) {
        assert_eq!((value, made.load(SeqCst)), (7, 1));
    }
    assert!(made.load(SeqCst) <= 1);
}

pub fn single_flight(w: &mut Worker) {
    let world = Arc::clone(&w.world);
    let flight = &world.locks.flight;
    let key = w.random.below(3);
    w.ended(|w| {
        let (value, _shared) = flight.work(&key, || {
            w.pause();
            2 * key
        });
        assert_eq!(value, 2 * key);
    });
}

/// At most two goroutines run at a time, and one of them may fail; the waiter gets its error.
pub fn err_group(w: &mut Worker) {
    if !w.is_goroutine() {
        return;
    }
    let (world, fails) = (Arc::clone(&w.world), w.random.one_in(3));
    let (pause, group) = (w.random.micros(40), ErrGroup::<u32>::with_limit(2));
    w.ended(|_| {
        for number in 0..6 {
            group.go(move || {
                gmp::time::sleep(pause);
                if fails && number == 3 { Err(9) } else { Ok(()) }
            });
        }
        let result = group.wait();
        // Goroutines that a runtime's end has unwound have not failed.
        if world.runtime().is_some() {
            assert_eq!(result, if fails { Err(9) } else { Ok(()) });
        }
    });
}
