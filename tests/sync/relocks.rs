//! Guards let others in meanwhile, on a goroutine whose context then ends: nothing ends the following wait for the lock, so the
//! guard has its lock again. The same for waits through the traits of `lock_api`, which nothing ends at all.

use common::gate::Gate;
use common::{dumps, everywhere, until};
use gmp::Runtime;
use gmp::context::Context;
use gmp::sync::raw::{RawFairMutex, RawMutex, RawRwLock};
use gmp::sync::{
    ArcMutexGuard, ArcRwLockReadGuard, ArcRwLockUpgradableReadGuard, ArcRwLockWriteGuard, Mutex, MutexGuard,
    RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

/// Lets others in while the first function runs, has a guard again, and then calls the second function.
type Keeps<L> = fn(&Arc<L>, &dyn Fn(), &dyn Fn());

/// A lock, and a function that tells whether it is held.
struct Lock<L> {
    lock: Arc<L>,
    /// Holds the lock exclusively while the function runs.
    has: fn(&L, &dyn Fn()),
    is_free: fn(&L) -> bool,
}

impl<L: Send + Sync + 'static> Lock<L> {
    /// Holds the lock while a goroutine has to lock again, and the goroutine's context ends.
    fn check(&self, rt: &Runtime, keeps: &[(&'static str, Keeps<L>)]) {
        for &(name, keeps) in keeps {
            let (lock, is_free) = (Arc::clone(&self.lock), self.is_free);
            let [begun, over]: [Gate; 2] = Default::default();
            let (begins, ends) = (begun.clone(), over.clone());
            let (context, cancel) = Context::background().with_cancel();
            let waiter = rt.go(move || {
                let within = || {
                    begins.open();
                    ends.pass();
                };
                context.run(|| keeps(&lock, &within, &|| assert!(!is_free(&lock), "{name}")))
            });
            begun.pass();
            (self.has)(&self.lock, &|| {
                over.open();
                turns(rt);
                cancel.cancel();
                turns(rt);
                assert!(!waiter.is_finished(), "{name}: the wait was ended");
                assert!(!is_free(&self.lock), "{name}: a guard has let go of what it had not");
            });
            let _ended = waiter.join().unwrap();
            assert!(is_free(&self.lock), "{name}: a guard keeps the lock");
        }
    }
}

/// Lets the other goroutines run.
fn turns(rt: &Runtime) {
    rt.run(|| (0..50).for_each(|_| gmp::yield_now()));
}

/// How a guard lets others in.
macro_rules! lets_in {
    ($take:ident, $guard:ident, $unlocked:ident) => {
        (stringify!($guard), |lock, within, again| {
            let mut guard = lock.$take();
            $guard::$unlocked(&mut guard, within);
            again();
        })
    };
}

/// How a lock is taken with a limit.
macro_rules! waits {
    ($take:ident, $limit:expr) => {
        (stringify!($take), |lock, within, again| {
            within();
            let guard = lock.$take($limit);
            assert!(guard.is_some());
            again();
        })
    };
}

/// Fails when the lock is free although there is a guard, or is held without a guard; or by an abort.
#[test]
fn a_context_does_not_end_the_wait_behind_unlocked() {
    everywhere(|rt| {
        let mutex = Lock {
            lock: Arc::new(Mutex::new(())),
            has: |lock, f| {
                let _guard = lock.lock();
                f();
            },
            is_free: |lock| lock.try_lock().is_some(),
        };
        let keeps: [(&'static str, Keeps<Mutex<()>>); 4] = [
            lets_in!(lock, MutexGuard, unlocked),
            lets_in!(lock, MutexGuard, unlocked_fair),
            lets_in!(lock_arc, ArcMutexGuard, unlocked),
            lets_in!(lock_arc, ArcMutexGuard, unlocked_fair),
        ];
        mutex.check(&rt, &keeps);
        let rwlock = Lock {
            lock: Arc::new(RwLock::new(())),
            has: |lock, f| {
                let _guard = lock.write();
                f();
            },
            is_free: |lock| lock.try_write().is_some(),
        };
        let keeps: [(&'static str, Keeps<RwLock<()>>); 6] = [
            lets_in!(read, RwLockReadGuard, unlocked),
            lets_in!(write, RwLockWriteGuard, unlocked),
            lets_in!(upgradable_read, RwLockUpgradableReadGuard, unlocked),
            lets_in!(read_arc, ArcRwLockReadGuard, unlocked),
            lets_in!(write_arc, ArcRwLockWriteGuard, unlocked),
            lets_in!(upgradable_read_arc, ArcRwLockUpgradableReadGuard, unlocked),
        ];
        rwlock.check(&rt, &keeps);
    });
}

/// Fails by the count when a context ends the wait behind the waiter that a bump lets in.
#[test]
fn a_context_does_not_end_the_wait_behind_a_bump() {
    type Bumps = fn(&Arc<Mutex<u32>>, &dyn Fn());
    let bumps: [Bumps; 2] = [
        |lock, queued| {
            let mut guard = lock.lock();
            queued();
            MutexGuard::bump(&mut guard);
            *guard += 1;
        },
        |lock, queued| {
            let mut guard = lock.lock_arc();
            queued();
            ArcMutexGuard::bump(&mut guard);
            *guard += 1;
        },
    ];
    everywhere(|rt| {
        for bumps in bumps {
            let lock = Arc::new(Mutex::new(0));
            let [begun, queued, taken, over]: [Gate; 4] = Default::default();
            let (theirs, begins, waits) = (Arc::clone(&lock), begun.clone(), queued.clone());
            let (context, cancel) = Context::background().with_cancel();
            let first = rt.go(move || {
                let meets = || {
                    begins.open();
                    waits.pass();
                };
                context.run(|| bumps(&theirs, &meets))
            });
            begun.pass();
            let (theirs, takes, ends) = (Arc::clone(&lock), taken.clone(), over.clone());
            let second = rt.go(move || {
                let _guard = theirs.lock();
                takes.open();
                ends.pass();
            });
            let id = second.id().get();
            until(|| dumps::read(&rt.dump()).iter().any(|g| g.0 == id && g.1.starts_with("sync.Mutex.Lock")));
            queued.open();
            taken.pass();
            turns(&rt);
            cancel.cancel();
            turns(&rt);
            assert!(!first.is_finished() && lock.is_locked());
            over.open();
            second.join().unwrap();
            let _ended = first.join().unwrap();
            assert_eq!(*lock.try_lock().expect("both have let go"), 1);
        }
    });
}

/// Fails by an abort when a wait through `lock_api` unwinds out of a destructor; or when a wait ends early.
#[test]
fn a_context_ends_no_wait_by_the_traits_of_lock_api() {
    use lock_api::{
        MutexGuard, RawMutexFair, RawMutexTimed, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard,
    };
    type Many = lock_api::RwLock<RawRwLock, ()>;

    fn mutex<R>(rt: &Runtime)
    where
        R: RawMutexFair + RawMutexTimed<Duration = Duration, Instant = Instant> + Send + Sync + 'static,
    {
        let mutex = Lock {
            lock: Arc::new(lock_api::Mutex::<R, ()>::new(())),
            has: |lock, f| {
                let _guard = lock.lock();
                f();
            },
            is_free: |lock| lock.try_lock().is_some(),
        };
        let keeps: [(&'static str, Keeps<lock_api::Mutex<R, ()>>); 4] = [
            lets_in!(lock, MutexGuard, unlocked),
            lets_in!(lock, MutexGuard, unlocked_fair),
            waits!(try_lock_for, HOUR),
            waits!(try_lock_until, Instant::now() + HOUR),
        ];
        mutex.check(rt, &keeps);
    }

    everywhere(|rt| {
        mutex::<RawMutex>(&rt);
        mutex::<RawFairMutex>(&rt);
        let rwlock = Lock {
            lock: Arc::new(Many::new(())),
            has: |lock, f| {
                let _guard = lock.write();
                f();
            },
            is_free: |lock| lock.try_write().is_some(),
        };
        let keeps: [(&'static str, Keeps<Many>); 9] = [
            lets_in!(read, RwLockReadGuard, unlocked),
            lets_in!(write, RwLockWriteGuard, unlocked),
            lets_in!(upgradable_read, RwLockUpgradableReadGuard, unlocked),
            waits!(try_read_for, HOUR),
            waits!(try_write_for, HOUR),
            waits!(try_upgradable_read_for, HOUR),
            waits!(try_read_until, Instant::now() + HOUR),
            waits!(try_write_until, Instant::now() + HOUR),
            waits!(try_upgradable_read_until, Instant::now() + HOUR),
        ];
        rwlock.check(&rt, &keeps);
    });
}
