//! `sync::RwLock`: readers together, a writer alone, and each waiter that was held back goes on.

use super::caught;
use crate::context::Context;
use crate::model::{Model, Mutant, at_rest, done};
use crate::sync::{RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard};
use loom::thread;
use std::sync::Arc;
use std::time::Duration;

/// Shorter than any wait of a model.
const AT_ONCE: Duration = Duration::from_nanos(1);

/// Fails by a causality violation when the reader reads while the writer writes, or does not see what was written.
#[test]
fn a_reader_and_a_writer() {
    Model::new().preemptions(4).check("rwlock_two", || {
        let lock = Arc::new(RwLock::new(0));
        let theirs = Arc::clone(&lock);
        let writer = thread::spawn(move || *theirs.write() += 1);
        let seen = *lock.read();
        writer.join().unwrap();
        assert!(seen <= *lock.read());
    });
}

/// Fails by deadlock when the last reader forgets the writer, by a causality violation when the writer comes in before one of
/// the readers has left.
#[test]
fn a_writer_comes_after_two_readers() {
    Model::new().check("rwlock_three", || {
        let lock = Arc::new(RwLock::new(0));
        let theirs = Arc::clone(&lock);
        let reader = thread::spawn(move || *theirs.read());
        let theirs = Arc::clone(&lock);
        let writer = thread::spawn(move || *theirs.write() = 1);
        let _seen = *lock.read();
        reader.join().unwrap();
        writer.join().unwrap();
        assert_eq!(*lock.read(), 1);
    });
}

/// Fails by a value, or by deadlock: a writer comes in between, or the reader that waited is forgotten.
#[test]
fn a_downgrade_keeps_writers_out_and_lets_readers_in() {
    Model::new().check("rwlock_downgrade", || {
        let lock = Arc::new(RwLock::new(0));
        let mut guard = lock.write();
        let theirs = Arc::clone(&lock);
        let reader = thread::spawn(move || *theirs.read());
        let theirs = Arc::clone(&lock);
        let writer = thread::spawn(move || *theirs.write() += 2);
        *guard = 1;
        let guard = RwLockWriteGuard::downgrade(guard);
        assert_eq!(*guard, 1);
        drop(guard);
        assert!(reader.join().unwrap() > 0);
        writer.join().unwrap();
        assert_eq!(*lock.read(), 3);
    });
}

/// A writer gives up while a reader waits behind it, and another one reads on. Fails by deadlock when the waiting
/// reader is not let in.
#[test]
fn a_writer_that_times_out_lets_the_reader_go_on() {
    Model::new().check("rwlock_limit", || {
        let runtime = at_rest::<1>();
        let lock = Arc::new(RwLock::new(0));
        let reads = lock.read();
        let theirs = Arc::clone(&lock);
        let writer = runtime.go(move || theirs.try_write_for(AT_ONCE).is_some());
        let theirs = Arc::clone(&lock);
        let reader = thread::spawn(move || *theirs.read());
        assert_eq!(reader.join().unwrap(), 0);
        assert!(!writer.join().unwrap());
        drop(reads);
        done();
    });
}

/// As `a_writer_that_times_out_lets_the_reader_go_on`, and the writer is unwound. Fails by deadlock.
#[test]
fn a_writer_that_is_interrupted_lets_the_reader_go_on() {
    Model::new().check("rwlock_interrupt", || {
        let runtime = at_rest::<1>();
        let lock = Arc::new(RwLock::new(0));
        let (context, cancel) = Context::background().with_cancel();
        let reads = lock.read();
        let theirs = Arc::clone(&lock);
        let writer = runtime.go(move || context.run(|| drop(theirs.write())).is_ok());
        let theirs = Arc::clone(&lock);
        let reader = thread::spawn(move || *theirs.read());
        cancel.cancel();
        assert_eq!(reader.join().unwrap(), 0);
        assert!(!writer.join().unwrap());
        drop(reads);
        done();
    });
}

/// A writer's runtime ends, before or after the lock is granted to the writer. Fails by deadlock when others wait for
/// an abandoned writer.
#[test]
fn a_writer_that_is_left_holds_nobody_back() {
    Model::new().check("rwlock_left", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let lock = Arc::new(RwLock::new(0));
        let reads = lock.read();
        let theirs = Arc::clone(&lock);
        drop(runtime.go(move || *theirs.write() = 1));
        // This goroutine has the P once the first one has parked.
        runtime.go(|| ()).join().unwrap();
        loom::explore();
        let ends = thread::spawn(move || super::cover::leave(runtime, Duration::from_secs(1)));
        drop(reads);
        drop(lock.read());
        ends.join().unwrap();
        drop(lock.write());
        done();
    });
}

/// Fails by a causality violation when the upgrade does not see that the reader has gone, by deadlock when the reader forgets
/// the upgradable reader that waits, or by the value when a writer comes in between.
#[test]
fn an_upgrade_comes_after_the_readers_and_before_the_writer() {
    Model::new().check("rwlock_upgrade", || {
        let lock = Arc::new(RwLock::new(0));
        let looks = lock.upgradable_read();
        let theirs = Arc::clone(&lock);
        let reader = thread::spawn(move || *theirs.read());
        let theirs = Arc::clone(&lock);
        let writer = thread::spawn(move || *theirs.write() += 2);
        let seen = *looks;
        let mut writes = RwLockUpgradableReadGuard::upgrade(looks);
        assert_eq!(*writes, seen, "somebody wrote in between");
        *writes += 1;
        drop(writes);
        let read = reader.join().unwrap();
        writer.join().unwrap();
        assert!((0..=3).contains(&read));
        assert_eq!(*lock.read(), 3);
    });
}

/// A reader comes while an upgrade waits for another one. Fails by a causality violation when the last reader lets both in.
#[test]
fn an_upgrade_is_let_in_before_the_reader_that_waits() {
    Model::new().check("rwlock_upgrade_alone", || {
        let lock = Arc::new(RwLock::new(0));
        let reads = lock.read();
        let theirs = Arc::clone(&lock);
        let upgrader =
            thread::spawn(move || *RwLockUpgradableReadGuard::upgrade(theirs.upgradable_read()) += 1);
        let theirs = Arc::clone(&lock);
        let reader = thread::spawn(move || *theirs.read());
        assert_eq!(*reads, 0);
        drop(reads);
        upgrader.join().unwrap();
        assert!(reader.join().unwrap() <= 1);
        assert_eq!(*lock.read(), 1);
    });
}

/// An upgradable read becomes a plain one while another upgradable one waits and a reader leaves. Fails by deadlock when the
/// one that waits is forgotten.
#[test]
fn a_downgrade_of_an_upgradable_read_lets_the_next_one_in() {
    Model::new().check("rwlock_upgradable_downgrade", || {
        let lock = Arc::new(RwLock::new(0));
        let looks = lock.upgradable_read();
        let theirs = Arc::clone(&lock);
        let next = thread::spawn(move || *theirs.upgradable_read());
        let theirs = Arc::clone(&lock);
        let reader = thread::spawn(move || *theirs.read());
        let reads = RwLockUpgradableReadGuard::downgrade(looks);
        assert_eq!((next.join().unwrap(), reader.join().unwrap(), *reads), (0, 0, 0));
        drop(reads);
        *lock.write() = 1;
    });
}

/// Two upgradable reads, the first of which upgrades and writes. Fails by deadlock when the first one forgets the
/// second, or by a causality violation when a writer comes in before the first has ended.
#[test]
fn an_upgradable_read_lets_the_next_one_and_a_writer_go_on() {
    Model::new().check("rwlock_upgradable", || {
        let lock = Arc::new(RwLock::new(0));
        let theirs = Arc::clone(&lock);
        let other = thread::spawn(move || {
            let looks = theirs.upgradable_read();
            let seen = *looks;
            *RwLockUpgradableReadGuard::upgrade(looks) = seen + 1;
        });
        let theirs = Arc::clone(&lock);
        let writer = thread::spawn(move || *theirs.write() += 1);
        let _seen = *lock.upgradable_read();
        other.join().unwrap();
        writer.join().unwrap();
        assert_eq!(*lock.read(), 2);
    });
}

/// A reader reads again while a writer waits, and another reader beside. Fails by deadlock when the second read waits for
/// the writer, by a causality violation when the writer is let in beside a reader.
#[test]
fn a_recursive_read_passes_the_writer_that_waits() {
    Model::new().check("rwlock_recursive", || {
        let lock = Arc::new(RwLock::new(0));
        let reads = lock.read();
        let theirs = Arc::clone(&lock);
        let writer = thread::spawn(move || *theirs.write() = 1);
        let theirs = Arc::clone(&lock);
        let other = thread::spawn(move || *theirs.read_recursive());
        assert_eq!(*reads, *lock.read_recursive());
        drop(reads);
        other.join().unwrap();
        writer.join().unwrap();
        assert_eq!(*lock.read(), 1);
    });
}

/// The runtime of an upgradable reader ends while that reader waits for its upgrade, before or after the upgrade is granted.
/// Fails by deadlock when readers wait for the abandoned upgrade; that the upgradable read stays with its goroutine is no
/// failure.
#[test]
fn an_upgrade_that_is_left_holds_no_reader_back() {
    Model::new().check("rwlock_upgrade_left", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let lock = Arc::new(RwLock::new(0));
        let reads = lock.read();
        let theirs = Arc::clone(&lock);
        drop(runtime.go(move || *RwLockUpgradableReadGuard::upgrade(theirs.upgradable_read()) = 1));
        // This goroutine has the P once the first one has parked.
        runtime.go(|| ()).join().unwrap();
        loom::explore();
        let ends = thread::spawn(move || super::cover::leave(runtime, Duration::from_secs(1)));
        drop(reads);
        drop(lock.read());
        ends.join().unwrap();
        drop(lock.read());
        done();
    });
}

/// An upgrade gives up by its limit while a reader stands behind it. Fails by deadlock.
#[test]
fn an_upgrade_that_times_out_lets_the_reader_go_on() {
    Model::new().check("rwlock_upgrade_limit", || {
        let runtime = at_rest::<1>();
        let lock = Arc::new(RwLock::new(0));
        let reads = lock.read();
        let theirs = Arc::clone(&lock);
        let upgrader = runtime.go(move || {
            let looks = theirs.upgradable_read();
            RwLockUpgradableReadGuard::try_upgrade_for(looks, AT_ONCE).is_ok()
        });
        let theirs = Arc::clone(&lock);
        let reader = thread::spawn(move || *theirs.read());
        assert_eq!(reader.join().unwrap(), 0);
        assert!(!upgrader.join().unwrap());
        drop(reads);
        drop(lock.write());
        done();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::RwLockTakeRelaxed, "a_reader_and_a_writer"),
            (Mutant::RwLockReadRelaxed, "a_reader_and_a_writer"),
            (Mutant::RwLockWriteRelaxed, "a_reader_and_a_writer"),
            (Mutant::RwLockGrantRelaxed, "a_writer_comes_after_two_readers"),
            (Mutant::RwLockLastReaderLeaves, "a_writer_comes_after_two_readers"),
            (Mutant::RwLockLeavesQuietly, "a_writer_that_times_out_lets_the_reader_go_on"),
            (Mutant::RwLockUpgradeForgotten, "an_upgrade_comes_after_the_readers_and_before_the_writer"),
            (Mutant::RwLockLeftKeepsTheGrant, "an_upgrade_that_is_left_holds_no_reader_back"),
            (Mutant::RwLockUpgradableRelaxed, "an_upgradable_read_lets_the_next_one_and_a_writer_go_on"),
            (Mutant::RwLockUpgradableLeaves, "an_upgradable_read_lets_the_next_one_and_a_writer_go_on"),
            (Mutant::RwLockUpgradableLeaves, "a_downgrade_of_an_upgradable_read_lets_the_next_one_in"),
            (Mutant::RwLockReadsBesideUpgrade, "an_upgrade_is_let_in_before_the_reader_that_waits"),
            (Mutant::RwLockRecursiveBesideGrant, "a_recursive_read_passes_the_writer_that_waits"),
        ],
    );
}
