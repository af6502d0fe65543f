//! `RwLock`: upgradable and recursive reads; guards that own an `Arc`.

use crate::support::{cast, rounds, with_every_cast};
use common::{everywhere, until};
use gmp::go;
use gmp::sync::{
    ArcMutexGuard, ArcRwLockReadGuard, ArcRwLockUpgradableReadGuard, ArcRwLockWriteGuard, Mutex, RwLock,
    RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard,
};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// Fails by the sum when a writer comes between an upgradable read and its write; when a value is seen half written; or by a
/// hang.
#[test]
fn an_upgrade_writes_what_it_has_read() {
    with_every_cast(|rt, goroutines, threads| {
        let rounds = rounds(4_000);
        let shared = Arc::new(RwLock::new((0_usize, 0_usize)));
        let (theirs, gave_up) = (Arc::clone(&shared), Arc::new(AtomicUsize::new(0)));
        let gives_up = Arc::clone(&gave_up);
        cast(rt, goroutines, threads, move |number| {
            for round in 0..rounds {
                let bump = |value: &mut (usize, usize), from: usize| {
                    assert_eq!((value.0, value.1), (from, from), "somebody wrote in between");
                    value.0 += 1;
                    value.1 += 1;
                };
                match (round + number) % 6 {
                    0 | 1 => {
                        let looks = theirs.upgradable_read();
                        let from = looks.0;
                        if round % 16 == 0 {
                            gmp::yield_now();
                        }
                        let mut writes = RwLockUpgradableReadGuard::upgrade(looks);
                        bump(&mut writes, from);
                        if round % 3 == 0 {
                            let looks = RwLockWriteGuard::downgrade_to_upgradable(writes);
                            assert_eq!(looks.0, from + 1);
                            assert_eq!(RwLockUpgradableReadGuard::downgrade(looks).1, from + 1);
                        }
                    }
                    2 => {
                        let looks = theirs.upgradable_read();
                        let from = looks.0;
                        let limit = Duration::from_nanos((round * 7 % 3000) as u64);
                        match RwLockUpgradableReadGuard::try_upgrade_for(looks, limit) {
                            Ok(mut writes) => bump(&mut writes, from),
                            Err(looks) => {
                                assert_eq!(looks.0, from);
                                gives_up.fetch_add(1, SeqCst);
                            }
                        }
                    }
                    3 => {
                        let mut writes = theirs.write();
                        let from = writes.0;
                        bump(&mut writes, from);
                    }
                    _ => {
                        let outer = theirs.read();
                        if round % 16 == 0 {
                            gmp::yield_now();
                        }
                        let inner = theirs.read_recursive();
                        assert_eq!((outer.0, outer.1), (inner.1, inner.0));
                        gives_up.fetch_add(1, SeqCst);
                    }
                }
            }
        });
        assert_eq!(shared.read().0 + gave_up.load(SeqCst), (goroutines + threads) * rounds);
        assert!(!shared.is_locked());
    });
}

/// Fails when two upgradable reads, or a write and an upgradable read, hold the lock at once; or when no plain read can join
/// one.
#[test]
fn one_upgradable_read_beside_plain_ones() {
    let lock = RwLock::new(1);
    let looks = lock.upgradable_read();
    assert!(lock.try_upgradable_read().is_none() && lock.try_write().is_none());
    assert!(lock.try_upgradable_read_for(MS).is_none());
    assert!(lock.try_upgradable_read_until(Instant::now()).is_none());
    assert!(!lock.is_locked_exclusive() && lock.is_locked());
    let reads = lock.try_read().expect("a plain read");
    let looks = RwLockUpgradableReadGuard::try_upgrade(looks).expect_err("another reads");
    let looks =
        RwLockUpgradableReadGuard::try_upgrade_until(looks, Instant::now() + MS).expect_err("another reads");
    assert!(std::ptr::eq(RwLockUpgradableReadGuard::rwlock(&looks), &raw const lock));
    drop(reads);
    let mut writes = RwLockUpgradableReadGuard::try_upgrade(looks).expect("nobody else reads");
    *writes += 1;
    assert!(lock.try_read().is_none() && lock.try_read_recursive().is_none());
    assert!(
        lock.try_read_recursive_for(MS).is_none() && lock.try_read_recursive_until(Instant::now()).is_none()
    );
    let looks = RwLockWriteGuard::downgrade_to_upgradable(writes);
    assert!(lock.try_read().is_some() && lock.try_write().is_none());
    let reads = RwLockUpgradableReadGuard::downgrade(looks);
    let looks = lock.try_upgradable_read().expect("it is plain now");
    assert_eq!(format!("{reads:?} {looks} {looks:?}"), "2 2 2");
    drop((reads, looks));
    assert_eq!(*lock.try_write().expect("free"), 2);
}

/// Fails by a hang when the second read waits for a writer that waits for the first; or by the order when an upgrade passes a
/// writer that waited and is not first.
#[test]
fn a_waiting_writer_is_passed_by_a_recursive_read_and_an_upgrade() {
    everywhere(|rt| {
        rt.run(|| {
            let lock = Arc::new(RwLock::new(Vec::new()));
            let (outer, looks) = (lock.read(), lock.upgradable_read());
            let theirs = Arc::clone(&lock);
            let writer = go(move || theirs.write().push("writer"));
            // The writer is queued once a try is refused.
            until(|| lock.try_read().is_none());
            drop((lock.read_recursive(), lock.try_read_recursive().expect("past the writer")));
            let theirs = Arc::clone(&lock);
            let reader = go(move || theirs.read().clone());
            drop(outer);
            RwLockUpgradableReadGuard::upgrade(looks).push("upgrade");
            assert_eq!(*writer.join().map(|()| lock.read()).unwrap(), ["upgrade", "writer"]);
            assert_eq!(reader.join().unwrap().first(), Some(&"upgrade"));
        });
    });
}

/// Fails by a hang, or when the lock is not free, because an `Arc` guard does not unlock on the thread that drops it; or when a
/// guard unlocks twice.
#[test]
fn guards_that_own_an_arc_unlock_where_they_are_dropped() {
    everywhere(|rt| {
        let lock = Arc::new(Mutex::new(0));
        let mut held = lock.lock_arc();
        assert!(lock.try_lock_arc().is_none() && lock.try_lock_arc_for(MS).is_none());
        assert!(lock.try_lock_arc_until(Instant::now()).is_none());
        *held += 1;
        rt.go(move || *held += 1).join().unwrap();
        let mut held = lock.try_lock_arc().expect("unlocked by the goroutine");
        ArcMutexGuard::unlocked(&mut held, || *lock.lock() += 1);
        ArcMutexGuard::unlocked_fair(&mut held, || assert!(!lock.is_locked()));
        ArcMutexGuard::bump(&mut held);
        assert!(Arc::ptr_eq(ArcMutexGuard::mutex(&held), &lock));
        assert_eq!(format!("{held:?} {held}"), "3 3");
        assert!(!ArcMutexGuard::into_arc(held).is_locked());
        ArcMutexGuard::unlock_fair(lock.lock_arc());
        assert!(!ArcMutexGuard::into_arc_fair(lock.lock_arc()).is_locked());
        assert_eq!(Arc::strong_count(&lock), 1);

        let lock = Arc::new(RwLock::new(0));
        let writes = lock.write_arc();
        assert!(lock.try_read_arc().is_none() && lock.try_read_arc_for(MS).is_none());
        assert!(lock.try_write_arc().is_none() && lock.try_write_arc_for(MS).is_none());
        assert!(
            lock.try_read_arc_until(Instant::now()).is_none()
                && lock.try_write_arc_until(Instant::now()).is_none()
        );
        assert!(lock.try_upgradable_read_arc_for(MS).is_none());
        assert!(lock.try_upgradable_read_arc_until(Instant::now()).is_none());
        let looks = ArcRwLockWriteGuard::downgrade_to_upgradable(writes);
        assert!(lock.try_write_arc().is_none() && lock.try_upgradable_read_arc().is_none());
        let writes = ArcRwLockUpgradableReadGuard::try_upgrade_for(looks, MS).expect("alone");
        let reads = ArcRwLockWriteGuard::downgrade(writes);
        let looks = lock.try_upgradable_read_arc_for(MS).expect("beside a reader");
        assert!(lock.try_upgradable_read_arc().is_none());
        let looks = ArcRwLockUpgradableReadGuard::try_upgrade(looks).expect_err("another reads");
        let looks = ArcRwLockUpgradableReadGuard::try_upgrade_for(looks, MS).expect_err("another reads");
        let looks = ArcRwLockUpgradableReadGuard::try_upgrade_until(looks, Instant::now())
            .expect_err("another reads");
        rt.go(move || drop(reads)).join().unwrap();
        let mut writes = ArcRwLockUpgradableReadGuard::upgrade(looks);
        *writes = 4;
        drop(writes);
        let reads = ArcRwLockUpgradableReadGuard::downgrade(lock.upgradable_read_arc());
        assert_eq!((*reads, *lock.read_arc(), lock.is_locked()), (4, 4, true));
        drop(reads);
        assert!(!lock.is_locked() && Arc::strong_count(&lock) == 1);
        // The guard is the last owner of its lock, and drops it.
        let alone = Arc::new(Mutex::new(Arc::clone(&lock))).lock_arc();
        drop(alone);
        assert_eq!(Arc::strong_count(&lock), 1);
    });
}

/// Fails by a value or a result when the guard does not write, or does not continue to read afterwards; or by a hang.
#[test]
fn an_upgradable_read_writes_meanwhile() {
    macro_rules! writes {
        ($rt:ident, $($take:ident)*) => {$(
            let lock = Arc::new(RwLock::new(0));
            let mut looks = lock.$take();
            let reads_on = || !lock.is_locked_exclusive() && lock.try_upgradable_read().is_none();
            assert!(looks.with_upgraded(|value| {
                *value += 1;
                lock.is_locked_exclusive()
            }));
            assert!(reads_on());
            let reads = lock.read_arc();
            assert!(looks.try_with_upgraded(|value| *value = 9).is_none());
            assert!(looks.try_with_upgraded_for(MS, |value| *value = 9).is_none());
            assert!(looks.try_with_upgraded_until(Instant::now(), |value| *value = 9).is_none());
            // Once the upgrade waits, no other reader comes in.
            let theirs = Arc::clone(&lock);
            let reader = $rt.go(move || {
                until(|| theirs.try_read().is_none());
                *reads
            });
            looks.with_upgraded(|value| *value += 1);
            assert_eq!(reader.join().unwrap(), 1);
            assert_eq!(looks.try_with_upgraded(|value| *value + 1), Some(3));
            assert_eq!(looks.try_with_upgraded_for(MS, |value| *value + 2), Some(4));
            assert_eq!(looks.try_with_upgraded_until(Instant::now(), |value| *value + 3), Some(5));
            let panics = AssertUnwindSafe(|| looks.with_upgraded(|_| resume_unwind(Box::new("f"))));
            assert!(catch_unwind(panics).is_err() && reads_on());
            assert_eq!(*looks, 2);
        )*};
    }
    everywhere(|rt| {
        writes!(rt, upgradable_read upgradable_read_arc);
    });
}

/// Fails by a value or a result when no other member is let in meanwhile, or when the guard does not hold the lock afterwards;
/// or by a hang.
#[test]
fn each_guard_lets_others_in_meanwhile() {
    macro_rules! lets_in {
        ($rt:ident, $($guard:ident $take:ident)*) => {$(
            let lock = Arc::new(RwLock::new(0));
            let mut guard = lock.$take();
            let writes = || *lock.try_write().expect("unlocked meanwhile") += 1;
            $guard::unlocked(&mut guard, writes);
            assert!(*guard == 1 && lock.try_write().is_none());
            $guard::unlocked_fair(&mut guard, writes);
            assert!(*guard == 2 && lock.try_write().is_none());
            let panics = AssertUnwindSafe(|| $guard::unlocked(&mut guard, || resume_unwind(Box::new("f"))));
            assert!(catch_unwind(panics).is_err() && lock.try_write().is_none());
            let theirs = Arc::clone(&lock);
            let writer = $rt.go(move || *theirs.write() += 1);
            until(|| $rt.dump().contains("[sync.RWMutex.Lock"));
            $guard::bump(&mut guard);
            assert!(*guard == 3 && lock.try_write().is_none());
            writer.join().unwrap();
            $guard::unlock_fair(guard);
            assert!(!lock.is_locked() && Arc::strong_count(&lock) == 1);
        )*};
    }
    everywhere(|rt| {
        lets_in!(rt,
            RwLockReadGuard read RwLockUpgradableReadGuard upgradable_read RwLockWriteGuard write
            ArcRwLockReadGuard read_arc ArcRwLockUpgradableReadGuard upgradable_read_arc ArcRwLockWriteGuard write_arc);
    });
}

/// Fails when a try for a read is refused although no writer has the lock or waits for it.
#[test]
fn a_try_passes_upgradable_readers_that_wait() {
    everywhere(|rt| {
        let lock = Arc::new(RwLock::new(0));
        let first = lock.try_upgradable_read().expect("the lock is free");
        let theirs = Arc::clone(&lock);
        let second = rt.go(move || *theirs.upgradable_read());
        until(|| rt.dump().contains("[sync.RWMutex.RLock"));
        assert_eq!(lock.try_read().as_deref(), Some(&0));
        assert_eq!(lock.try_read_arc().as_deref(), Some(&0));
        let theirs = Arc::clone(&lock);
        let writer = rt.go(move || *theirs.write() = 1);
        until(|| rt.dump().contains("[sync.RWMutex.Lock"));
        assert!(lock.try_read().is_none(), "past a writer that waits");
        drop(first);
        second.join().unwrap();
        writer.join().unwrap();
        assert_eq!(lock.try_read().as_deref(), Some(&1));
    });
}
