//! A lock with nearly as many readers as the count can hold.

use super::*;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::thread;

/// Returns a lock with so many readers that it lets just one more in.
fn nearly_full() -> RawRwLock {
    let lock = RawRwLock::new();
    lock.word.store(MANY - READER, Relaxed);
    lock
}

/// Makes all readers of a lock leave; the last one leaves by `unlock_read`. Waiters may be queued.
fn readers_leave(lock: &RawRwLock) {
    let readers = lock.word.load(Relaxed) & !(QUEUED | UPGRADABLE | WRITER);
    lock.word.fetch_sub(readers - READER, Relaxed);
    lock.unlock_read();
}

fn poll(waits: Pin<&mut Locking>, lock: &RawRwLock) -> Poll<()> {
    waits.poll(lock, &mut Context::from_waker(Waker::noop()))
}

/// Fails if the count exceeds its limit: it would wrap to 0 in the end, and a writer would get in beside readers. Also fails by
/// a panic.
#[test]
fn no_kind_of_reader_is_let_in_at_the_limit_of_the_count() {
    let lock = nearly_full();
    assert!(lock.try_lock(Kind::Upgradable));
    assert!(lock.try_lock(Kind::Read));
    // This reader needs no look at the count.
    lock.downgrade_upgradable();
    let full = MANY + READER;
    for kind in [Kind::Read, Kind::Recursive, Kind::Upgradable, Kind::Write] {
        assert!(!lock.try_lock(kind), "{kind:?}");
        assert!(!lock.try_lock_in_line(kind), "{kind:?}");
        assert!(!lock.lock_surely(kind, Some(Nanos::ZERO)), "{kind:?}");
        assert_eq!(lock.word.load(Relaxed), full, "{kind:?}");
    }
    lock.unlock_read();
    assert!(!lock.try_lock(Kind::Upgradable));
    lock.unlock_read();
    assert!(lock.try_lock(Kind::Upgradable));
}

/// Fails if the count exceeds its limit: then the waiter that leaves grants the lock to the other one.
#[test]
fn a_waiter_is_granted_nothing_at_the_limit_of_the_count() {
    for kind in [Kind::Read, Kind::Upgradable] {
        let lock = nearly_full();
        assert!(lock.try_lock(Kind::Read));
        let (mut leaves, mut stays) = (pin!(Locking::new(Kind::Read)), pin!(Locking::new(kind)));
        assert!(poll(leaves.as_mut(), &lock).is_pending());
        assert!(poll(stays.as_mut(), &lock).is_pending());
        leaves.as_mut().leave(&lock);
        assert!(poll(stays.as_mut(), &lock).is_pending(), "{kind:?}");
        assert_eq!(lock.word.load(Relaxed), MANY | QUEUED, "{kind:?}");
        readers_leave(&lock);
        assert!(poll(stays.as_mut(), &lock).is_ready(), "{kind:?}");
        match kind {
            Kind::Upgradable => lock.unlock_upgradable(),
            _ => lock.unlock_read(),
        }
        assert_eq!(lock.word.load(Relaxed), 0, "{kind:?}");
    }
}

/// Fails if the count exceeds its limit: then the lock is granted to more waiters at once than the count has room for.
#[test]
fn no_more_waiters_are_granted_the_lock_than_the_count_has_room_for() {
    let lock = nearly_full();
    let (mut writes, mut first, mut second) =
        (pin!(Locking::new(Kind::Write)), pin!(Locking::new(Kind::Read)), pin!(Locking::new(Kind::Read)));
    assert!(poll(writes.as_mut(), &lock).is_pending());
    assert!(poll(first.as_mut(), &lock).is_pending());
    assert!(poll(second.as_mut(), &lock).is_pending());
    // The readers behind the writer get the lock, as far as there is room.
    writes.as_mut().leave(&lock);
    assert!(poll(first.as_mut(), &lock).is_ready());
    assert!(poll(second.as_mut(), &lock).is_pending());
    assert_eq!(lock.word.load(Relaxed), MANY | QUEUED);
    readers_leave(&lock);
    assert!(poll(second.as_mut(), &lock).is_ready());
    assert_eq!(lock.word.load(Relaxed), READER);
}

/// Fails by a panic: the wait after `unlocked` would then leave a guard without its lock.
#[test]
fn a_reader_waits_at_the_limit_of_the_count() {
    let lock = nearly_full();
    assert!(lock.try_lock(Kind::Read));
    thread::scope(|scope| {
        let waits = scope.spawn(|| lock.lock_surely(Kind::Read, None));
        while lock.word.load(Relaxed) & QUEUED == 0 && !waits.is_finished() {
            thread::yield_now();
        }
        readers_leave(&lock);
        assert!(waits.join().unwrap());
    });
    assert_eq!(lock.word.load(Relaxed), READER);
}
