//! `sync::RwLock`: readers together, a writer alone, and each waiter that was held back goes on.
//!
//! *The mutants* take out the orderings of the word, each rule about which holders may be let in beside which others, and each
//! step by which a waiter that gives up, or is left behind, lets others in.

use super::caught;
use super::task::{Foreign, poll, run};
use crate::context::Context;
use crate::model::{Model, Mutant, at_rest, done, runtime};
use crate::sync::{RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard};
use loom::thread;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Shorter than any wait of a model.
const AT_ONCE: Duration = Duration::from_nanos(1);

/// Starts another thread, which calls `does` with the lock.
fn beside<R: 'static>(
    lock: &Arc<RwLock<u32>>,
    does: impl FnOnce(&RwLock<u32>) -> R + 'static,
) -> thread::JoinHandle<R> {
    let theirs = Arc::clone(lock);
    thread::spawn(move || does(&theirs))
}

/// Fails by a causality violation when the reader reads while the writer writes, or does not see what was written.
#[test]
fn a_reader_and_a_writer() {
    Model::new().preemptions(4).check("rwlock_two", || {
        let lock = Arc::new(RwLock::new(0));
        let writer = beside(&lock, |lock| *lock.write() += 1);
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
        let reader = beside(&lock, |lock| *lock.read());
        let writer = beside(&lock, |lock| *lock.write() = 1);
        let _seen = *lock.read();
        reader.join().unwrap();
        writer.join().unwrap();
        assert_eq!(*lock.read(), 1);
    });
}

/// A reader waits for a writer, behind which another writer may wait. Fails by deadlock when the reader tries although the
/// second writer waits, by a causality violation when the reader reads without a grant.
#[test]
fn a_reader_and_two_writers() {
    Model::new().check("rwlock_try", || {
        let lock = Arc::new(RwLock::new(0));
        let mut first = lock.write();
        let second = beside(&lock, |lock| *lock.write() += 2);
        let reader = beside(&lock, |lock| *lock.read());
        *first += 1;
        drop(first);
        second.join().unwrap();
        assert!([1, 3].contains(&reader.join().unwrap()));
        assert_eq!(*lock.read(), 3);
    });
}

/// Fails by a value when a writer comes in between, by deadlock when the reader that waited is forgotten.
#[test]
fn a_downgrade_keeps_writers_out_and_lets_readers_in() {
    Model::new().check("rwlock_downgrade", || {
        let lock = Arc::new(RwLock::new(0));
        let mut guard = lock.write();
        let reader = beside(&lock, |lock| *lock.read());
        let writer = beside(&lock, |lock| *lock.write() += 2);
        *guard = 1;
        let guard = RwLockWriteGuard::downgrade(guard);
        assert_eq!(*guard, 1);
        drop(guard);
        assert!(reader.join().unwrap() > 0);
        writer.join().unwrap();
        assert_eq!(*lock.read(), 3);
    });
}

/// A goroutine calls `waits`, which its limit ends, while a reader waits behind it, and another reader keeps the lock. Fails by
/// deadlock when the waiting reader is not let in.
fn one_times_out(name: &'static str, waits: fn(&RwLock<u32>) -> bool) {
    Model::new().preemptions_by_default(1).check(name, move || {
        let runtime = at_rest::<1>();
        let lock = Arc::new(RwLock::new(0));
        let reads = lock.read();
        let theirs = Arc::clone(&lock);
        let waiter = runtime.go(move || waits(&theirs));
        let reader = beside(&lock, |lock| *lock.read());
        assert_eq!(reader.join().unwrap(), 0);
        assert!(!waiter.join().unwrap());
        drop(reads);
        drop(lock.write());
        done();
    });
}

#[test]
fn a_writer_that_times_out_lets_the_reader_go_on() {
    one_times_out("rwlock_limit", |lock| lock.try_write_for(AT_ONCE).is_some());
}

#[test]
fn an_upgrade_that_times_out_lets_the_reader_go_on() {
    one_times_out("rwlock_upgrade_limit", |lock| {
        RwLockUpgradableReadGuard::try_upgrade_for(lock.upgradable_read(), AT_ONCE).is_ok()
    });
}

/// As `a_writer_that_times_out_lets_the_reader_go_on`, but the writer is unwound. Fails by deadlock.
#[test]
fn a_writer_that_is_interrupted_lets_the_reader_go_on() {
    Model::new().check("rwlock_interrupt", || {
        let runtime = runtime(1, 1);
        let lock = Arc::new(RwLock::new(0));
        let (context, cancel) = Context::background().with_cancel();
        let reads = lock.read();
        let theirs = Arc::clone(&lock);
        let writer = runtime.go(move || context.run(|| drop(theirs.write())).is_ok());
        // This goroutine has the P once the writer has parked.
        runtime.go(|| ()).join().unwrap();
        loom::explore();
        let reader = beside(&lock, |lock| *lock.read());
        cancel.cancel();
        assert_eq!(reader.join().unwrap(), 0);
        done();
        assert!(!writer.join().unwrap());
        drop(reads);
    });
}

/// The runtime of a goroutine that waits in `waits` ends, before or after the lock is granted to the goroutine. Fails by
/// deadlock when the reader, or `comes` at the end, waits for the abandoned goroutine.
fn one_is_left(name: &'static str, waits: fn(&RwLock<u32>), comes: fn(&RwLock<u32>)) {
    Model::new().check(name, move || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let lock = Arc::new(RwLock::new(0));
        let reads = lock.read();
        let theirs = Arc::clone(&lock);
        drop(runtime.go(move || waits(&theirs)));
        // This goroutine has the P once the first one has parked.
        runtime.go(|| ()).join().unwrap();
        loom::explore();
        let ends = thread::spawn(move || super::cover::leave(runtime, Duration::from_secs(1)));
        drop(reads);
        drop(lock.read());
        ends.join().unwrap();
        comes(&lock);
        done();
    });
}

#[test]
fn a_writer_that_is_left_holds_nobody_back() {
    one_is_left("rwlock_left", |lock| *lock.write() = 1, |lock| drop(lock.write()));
}

/// The runtime of a reader ends, before or after the reader is told to try. Fails when the reader gives back a lock that it
/// never had, or keeps the lock from others.
#[test]
fn a_reader_that_is_left_holds_nobody_back() {
    Model::new().check("rwlock_reader_left", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let lock = Arc::new(RwLock::new(0));
        let writes = lock.write();
        let theirs = Arc::clone(&lock);
        drop(runtime.go(move || drop(theirs.read())));
        // This goroutine has the P once the first one has parked.
        runtime.go(|| ()).join().unwrap();
        loom::explore();
        let ends = thread::spawn(move || super::cover::leave(runtime, Duration::from_secs(1)));
        drop(writes);
        ends.join().unwrap();
        drop(lock.write());
        done();
    });
}

/// The upgradable read may stay with its goroutine; the upgrade may not.
#[test]
fn an_upgrade_that_is_left_holds_no_reader_back() {
    let upgrades = |lock: &RwLock<u32>| *RwLockUpgradableReadGuard::upgrade(lock.upgradable_read()) = 1;
    one_is_left("rwlock_upgrade_left", upgrades, |lock| drop(lock.read()));
}

/// Fails by a causality violation when the upgrade does not see that the reader has gone, by deadlock when the reader forgets
/// the upgradable reader that waits, or by the value when a writer comes in between.
#[test]
fn an_upgrade_comes_after_the_readers_and_before_the_writer() {
    Model::new().check("rwlock_upgrade", || {
        let lock = Arc::new(RwLock::new(0));
        let looks = lock.upgradable_read();
        let reader = beside(&lock, |lock| *lock.read());
        let writer = beside(&lock, |lock| *lock.write() += 2);
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

/// A reader comes while an upgrade waits for another reader. Fails by a causality violation when the last reader lets both in.
#[test]
fn an_upgrade_is_let_in_before_the_reader_that_waits() {
    Model::new().check("rwlock_upgrade_alone", || {
        let lock = Arc::new(RwLock::new(0));
        let reads = lock.read();
        let upgrader = beside(&lock, |lock| *RwLockUpgradableReadGuard::upgrade(lock.upgradable_read()) += 1);
        let reader = beside(&lock, |lock| *lock.read());
        assert_eq!(*reads, 0);
        drop(reads);
        upgrader.join().unwrap();
        assert!(reader.join().unwrap() <= 1);
        assert_eq!(*lock.read(), 1);
    });
}

/// An upgradable read becomes a plain one while another upgradable read waits and a reader leaves. Fails by deadlock when the
/// waiting read is forgotten.
#[test]
fn a_downgrade_of_an_upgradable_read_lets_the_next_one_in() {
    Model::new().check("rwlock_upgradable_downgrade", || {
        let lock = Arc::new(RwLock::new(0));
        let looks = lock.upgradable_read();
        let next = beside(&lock, |lock| *lock.upgradable_read());
        let reader = beside(&lock, |lock| *lock.read());
        let reads = RwLockUpgradableReadGuard::downgrade(looks);
        assert_eq!((next.join().unwrap(), reader.join().unwrap(), *reads), (0, 0, 0));
        drop(reads);
        *lock.write() = 1;
    });
}

/// Of two upgradable reads, one upgrades and writes. Fails by deadlock when the read that ends first forgets the other, or by a
/// causality violation when a writer comes in before the read has ended.
#[test]
fn an_upgradable_read_lets_the_next_one_and_a_writer_go_on() {
    Model::new().check("rwlock_upgradable", || {
        let lock = Arc::new(RwLock::new(0));
        let other = beside(&lock, |lock| {
            let looks = lock.upgradable_read();
            let seen = *looks;
            *RwLockUpgradableReadGuard::upgrade(looks) = seen + 1;
        });
        let writer = beside(&lock, |lock| *lock.write() += 1);
        let _seen = *lock.upgradable_read();
        other.join().unwrap();
        writer.join().unwrap();
        assert_eq!(*lock.read(), 2);
    });
}

/// A reader reads again while a writer waits, and another reader reads. Fails by deadlock when the second read waits for the
/// writer, by a causality violation when the writer is let in beside a reader.
#[test]
fn a_recursive_read_passes_the_writer_that_waits() {
    Model::new().check("rwlock_recursive", || {
        let lock = Arc::new(RwLock::new(0));
        let reads = lock.read();
        let writer = beside(&lock, |lock| *lock.write() = 1);
        let other = beside(&lock, |lock| *lock.read_recursive());
        assert_eq!(*reads, *lock.read_recursive());
        drop(reads);
        other.join().unwrap();
        writer.join().unwrap();
        assert_eq!(*lock.read(), 1);
    });
}

/// The future of a writer is dropped as it is granted the lock. Fails by deadlock when the dropped future keeps the lock.
#[test]
fn a_future_that_is_dropped_beside_its_grant_keeps_nothing() {
    Model::new().check("rwlock_task_granted", || {
        let lock = Arc::new(RwLock::new(0));
        let reads = lock.read_arc();
        let mut writes = Box::pin(lock.write_async());
        assert!(poll(writes.as_mut(), &Foreign::new()).is_pending());
        let ends = thread::spawn(move || drop(reads));
        drop(writes);
        let seen = *run(pin!(lock.read_async()), &Foreign::new());
        ends.join().unwrap();
        assert_eq!(seen, 0);
        assert!(!lock.is_locked());
    });
}

/// A future that waits to write holds a reader back, and is dropped. Fails by deadlock when the reader goes on waiting.
#[test]
fn a_writing_future_that_is_dropped_lets_readers_go() {
    Model::new().check("rwlock_task_dropped", || {
        let lock = Arc::new(RwLock::new(0));
        let reads = lock.read();
        let mut writes = Box::pin(lock.write_async());
        assert!(poll(writes.as_mut(), &Foreign::new()).is_pending());
        let reader = beside(&lock, |lock| *lock.read());
        drop(writes);
        assert_eq!(reader.join().unwrap(), 0);
        drop(reads);
    });
}

/// A writer leaves, while a reader and another writer wait. The reader goes first, and is unwound just as the lock is about to
/// be granted to it. Fails by deadlock when the lock is granted to neither of the two.
#[test]
fn a_reader_that_is_interrupted_beside_its_grant_lets_the_writer_go_on() {
    Model::new().check("rwlock_reader_interrupt", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let lock = Arc::new(RwLock::new(0));
        let (context, cancel) = Context::background().with_cancel();
        let writes = lock.write();
        let theirs = Arc::clone(&lock);
        let reader = runtime.go(move || context.run(|| *theirs.read()).is_ok());
        // This goroutine has the P once the first one has parked.
        runtime.go(|| ()).join().unwrap();
        let (mut next, task) = (Box::pin(lock.write_async()), Foreign::new());
        assert!(poll(next.as_mut(), &task).is_pending());
        loom::explore();
        let cuts = thread::spawn(move || cancel.cancel());
        drop(writes);
        *run(next.as_mut(), &task) += 1;
        cuts.join().unwrap();
        let _read = reader.join().unwrap();
        assert_eq!(*lock.read(), 1);
        done();
    });
}

/// As `a_reader_that_is_interrupted_beside_its_grant_lets_the_writer_go_on`, but the reader is a task that is dropped.
#[test]
fn a_reading_future_that_is_dropped_beside_its_grant_lets_the_writer_go_on() {
    Model::new().check("rwlock_reader_dropped", || {
        let lock = Arc::new(RwLock::new(0));
        let writes = lock.write_arc();
        let (mut reads, mut next) = (Box::pin(lock.read_async()), Box::pin(lock.write_async()));
        let task = Foreign::new();
        assert!(poll(reads.as_mut(), &Foreign::new()).is_pending());
        assert!(poll(next.as_mut(), &task).is_pending());
        let ends = thread::spawn(move || drop(writes));
        drop(reads);
        *run(next.as_mut(), &task) += 1;
        ends.join().unwrap();
        assert!(!lock.is_locked());
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::RwLockTakeRelaxed, "a_reader_and_a_writer"),
            (Mutant::RwLockRecheckRelaxed, "a_reader_and_a_writer"),
            (Mutant::RwLockTakeRelaxed, "a_downgrade_keeps_writers_out_and_lets_readers_in"),
            (Mutant::RwLockReadRelaxed, "a_reader_and_a_writer"),
            (Mutant::RwLockWriteRelaxed, "a_reader_and_a_writer"),
            (Mutant::RwLockWrittenRelaxed, "a_reader_and_two_writers"),
            (Mutant::RwLockGrantRelaxed, "a_writer_comes_after_two_readers"),
            (Mutant::RwLockLastReaderLeaves, "a_writer_comes_after_two_readers"),
            (Mutant::RwLockDropsTheGrant, "a_future_that_is_dropped_beside_its_grant_keeps_nothing"),
            (Mutant::RwLockDropsQuietly, "a_writing_future_that_is_dropped_lets_readers_go"),
            (Mutant::RwLockLeavesQuietly, "a_writer_that_times_out_lets_the_reader_go_on"),
            (
                Mutant::RwLockLeavesQuietly,
                "a_reader_that_is_interrupted_beside_its_grant_lets_the_writer_go_on",
            ),
            (Mutant::RwLockLeavesQuietly, "a_writer_that_is_interrupted_lets_the_reader_go_on"),
            (
                Mutant::RwLockDropsQuietly,
                "a_reading_future_that_is_dropped_beside_its_grant_lets_the_writer_go_on",
            ),
            (Mutant::RwLockUpgradeForgotten, "an_upgrade_comes_after_the_readers_and_before_the_writer"),
            (Mutant::RwLockLeftKeepsTheGrant, "an_upgrade_that_is_left_holds_no_reader_back"),
            (Mutant::RwLockUpgradableRelaxed, "an_upgradable_read_lets_the_next_one_and_a_writer_go_on"),
            (Mutant::RwLockUpgradableLeaves, "an_upgradable_read_lets_the_next_one_and_a_writer_go_on"),
            (Mutant::RwLockUpgradableLeaves, "a_downgrade_of_an_upgradable_read_lets_the_next_one_in"),
            (Mutant::RwLockReadsBesideUpgrade, "an_upgrade_is_let_in_before_the_reader_that_waits"),
            (Mutant::RwLockRecursiveBesideGrant, "a_recursive_read_passes_the_writer_that_waits"),
            (Mutant::RwLockTakesATryForAGrant, "a_reader_and_two_writers"),
            (Mutant::RwLockTakesATryForAGrant, "a_writer_that_is_left_holds_nobody_back"),
            (Mutant::RwLockReadersTryBesideAWriter, "a_reader_and_two_writers"),
            (Mutant::RwLockLeftTakesATryForAGrant, "a_reader_that_is_left_holds_nobody_back"),
        ],
    );
}
