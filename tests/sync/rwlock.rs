//! `RwLock`.

use crate::support::{count, rounds, with_every_cast};
use common::{PROCS, everywhere, runtime, until, watched};
use gmp::sync::{MappedRwLockReadGuard, MappedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// Fails by a value seen half-written, by a wrong sum, or by a hang.
#[test]
fn readers_see_what_writers_have_finished() {
    with_every_cast(|rt, goroutines, threads| {
        let shared = Arc::new(RwLock::new((0, 0)));
        let theirs = Arc::clone(&shared);
        let written = count(rt, (goroutines, threads), rounds(10_000), move |number, round| {
            let nanos = Duration::from_nanos((round * 7 % 2000) as u64);
            let guard = match (round + number) % 8 {
                0 => Some(theirs.write()),
                1 => theirs.try_write(),
                2 => theirs.try_write_for(nanos),
                other => {
                    let guard = match other {
                        3 => theirs.try_read(),
                        4 => theirs.try_read_for(nanos),
                        _ => Some(theirs.read()),
                    };
                    let Some(guard) = guard else { return false };
                    let before = *guard;
                    assert_eq!(before.0, before.1, "seen while another writes");
                    if round % 32 == 0 {
                        gmp::yield_now();
                    }
                    assert_eq!(*guard, before, "written while this one reads");
                    return false;
                }
            };
            let Some(mut guard) = guard else { return false };
            guard.0 += 1;
            if round % 32 == 0 {
                gmp::yield_now();
            }
            guard.1 += 1;
            if round % 3 == 0 {
                let guard = RwLockWriteGuard::downgrade(guard);
                assert_eq!(guard.0, guard.1);
            }
            true
        });
        assert_eq!(shared.read().0, written);
        assert!(!shared.is_locked());
    });
}

/// Waits until `asks`, which tries to lock and unlocks, is refused: then a waiter is queued.
fn until_refused<T>(mut asks: impl FnMut() -> Option<T>) {
    until(|| asks().is_none());
}

/// Fails by a result when a reader overtakes a writer that waits.
#[test]
fn a_waiting_writer_holds_back_new_readers() {
    everywhere(|rt| {
        let lock = Arc::new(RwLock::new(0));
        let reads = lock.read();
        let theirs = Arc::clone(&lock);
        let writer = rt.go(move || *theirs.write() = 1);
        until_refused(|| lock.try_read());
        let theirs = Arc::clone(&lock);
        let reader = rt.go(move || *theirs.read());
        drop(reads);
        writer.join().unwrap();
        assert_eq!(reader.join().unwrap(), 1, "the reader came before the writer that waited");
    });
}

/// Fails by a hang when the readers that the writer held back sleep on after the writer has timed out.
#[test]
fn a_writer_that_times_out_releases_the_readers_it_held_back() {
    everywhere(|rt| {
        let lock = Arc::new(RwLock::new(0));
        let reads = lock.read();
        // On a busy machine the writer may time out before this thread has seen it wait.
        let writer = loop {
            let theirs = Arc::clone(&lock);
            let writer = rt.go(move || theirs.try_write_for(20 * MS).is_some());
            let mut waits = false;
            until(|| {
                waits = lock.try_read().is_none();
                waits || writer.is_finished()
            });
            if waits {
                break writer;
            }
        };
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let theirs = Arc::clone(&lock);
                rt.go(move || *theirs.read())
            })
            .collect();
        let theirs = Arc::clone(&lock);
        let thread = std::thread::spawn(move || *theirs.read());
        readers.into_iter().for_each(|reader| assert_eq!(reader.join().unwrap(), 0));
        thread.join().unwrap();
        assert!(!writer.join().unwrap());
        drop(reads);
        assert!(lock.try_write().is_some());
    });
}

/// Each reader waits until all others read, too. Fails by a hang when after a writer only some of the waiting readers go on.
#[test]
fn after_a_writer_the_readers_that_waited_go_together() {
    everywhere(|rt| {
        const READERS: usize = 5;
        let (lock, inside) = (Arc::new(RwLock::new(())), Arc::new(AtomicUsize::new(0)));
        let writes = lock.write();
        let waiting = Arc::new(AtomicUsize::new(0));
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                let (lock, inside, waiting) = (Arc::clone(&lock), Arc::clone(&inside), Arc::clone(&waiting));
                rt.go(move || {
                    waiting.fetch_add(1, SeqCst);
                    let _reads = lock.read();
                    inside.fetch_add(1, SeqCst);
                    until(|| inside.load(SeqCst) == READERS);
                })
            })
            .collect();
        until(|| waiting.load(SeqCst) == READERS);
        drop(writes);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

/// A reader that waited holds nothing before it runs, so the next writer does not wait for the reader; but a reader that has
/// tried in vain is granted the lock. Fails when a try of a writer is refused too early, or succeeds too late. On a busy
/// machine a reader may come too late to wait, so one success in many rounds is enough.
#[test]
fn a_reader_tries_once_and_then_insists() {
    watched(1, || {
        let rt = runtime(1);
        let insisted = rt.go(|| {
            (0..100).any(|_| {
                let (lock, comes) = (Arc::new(RwLock::new(0)), Arc::new(AtomicBool::new(false)));
                let (theirs, says) = (Arc::clone(&lock), Arc::clone(&comes));
                let first = lock.write();
                let reader = gmp::go(move || {
                    says.store(true, SeqCst);
                    *theirs.read()
                });
                while !comes.load(SeqCst) {
                    gmp::yield_now();
                }
                drop(first);
                let second = lock.try_write();
                gmp::yield_now();
                let tried = second.is_some();
                drop(second);
                let insists = lock.try_write().is_none();
                assert_eq!(reader.join().unwrap(), 0);
                tried && insists
            })
        });
        assert!(insisted.join().unwrap(), "the reader has the lock before it runs, or never insists");
    });
}

/// Fails by the time when overlapping readers starve a writer, or when successive writers starve a reader.
#[test]
fn neither_side_starves() {
    for procs in PROCS {
        watched(procs, || {
            let rt = runtime(procs);
            for writers_hammer in [false, true] {
                let (lock, stop) = (Arc::new(RwLock::new(())), Arc::new(AtomicBool::new(false)));
                let hammers: Vec<_> = (0..3)
                    .map(|_| {
                        let (lock, stop) = (Arc::clone(&lock), Arc::clone(&stop));
                        rt.go(move || {
                            while !stop.load(SeqCst) {
                                let guards = (writers_hammer.then(|| lock.write()), ());
                                let reads = guards.0.is_none().then(|| lock.read());
                                gmp::yield_now();
                                drop((guards, reads));
                            }
                        })
                    })
                    .collect();
                let start = Instant::now();
                for _ in 0..20 {
                    if writers_hammer {
                        drop(lock.read());
                    } else {
                        drop(lock.write());
                    }
                }
                let took = start.elapsed();
                stop.store(true, SeqCst);
                hammers.into_iter().for_each(|hammer| hammer.join().unwrap());
                assert!(took < 2000 * MS, "20 locks took {took:?} at procs {procs}");
            }
        });
    }
}

/// Fails by a value when a writer gets in between.
#[test]
fn a_downgrade_lets_no_writer_in_between() {
    everywhere(|rt| {
        let lock = Arc::new(RwLock::new(0));
        let mut writes = lock.write();
        *writes = 1;
        let theirs = Arc::clone(&lock);
        let writer = rt.go(move || *theirs.write() = 2);
        let theirs = Arc::clone(&lock);
        let reader = rt.go(move || *theirs.read());
        let reads = RwLockWriteGuard::downgrade(writes);
        for _ in 0..100 {
            gmp::yield_now();
            assert_eq!(*reads, 1);
        }
        drop(reads);
        writer.join().unwrap();
        assert!(reader.join().unwrap() > 0);
        assert_eq!(*lock.read(), 2);
    });
}

fn assert_send_sync<T: Send + Sync>(_: &T) {}

/// Fails by the value, the error, or the lock when a refusal returns another guard, or ends the read or the write on the way.
#[test]
fn a_refused_part_gives_its_error_and_the_guard() {
    let lock = RwLock::new([Some(1_u8), None]);
    let state = || (lock.is_locked(), lock.is_locked_exclusive());
    let (whole, error) =
        RwLockReadGuard::try_map_or_err(lock.read(), |all| all[1].as_ref().ok_or("none")).unwrap_err();
    assert_eq!((*whole, error, state()), ([Some(1), None], "none", (true, false)));
    let part = RwLockReadGuard::try_map_or_err(whole, |all| all[0].as_ref().ok_or("none")).unwrap();
    let (part, error) =
        MappedRwLockReadGuard::try_map_or_err(part, |part| Err::<&u8, _>(*part + 1)).unwrap_err();
    assert_eq!((*part, error, state()), (1, 2, (true, false)));
    drop(
        MappedRwLockReadGuard::try_map_or_err(part, |part| Ok::<_, ()>(std::slice::from_ref(part))).unwrap(),
    );
    assert_eq!(state(), (false, false));

    let (whole, error) =
        RwLockWriteGuard::try_map_or_err(lock.write(), |all| all[1].as_mut().ok_or("none")).unwrap_err();
    assert_eq!((*whole, error, state()), ([Some(1), None], "none", (true, true)));
    let part = RwLockWriteGuard::try_map_or_err(whole, |all| all[0].as_mut().ok_or("none")).unwrap();
    let (mut part, error) = MappedRwLockWriteGuard::try_map_or_err(part, |part| {
        *part = 3;
        Err::<&mut u8, _>(*part + 1)
    })
    .unwrap_err();
    assert_eq!((*part, error, state()), (3, 4, (true, true)));
    *part = 5;
    drop(
        MappedRwLockWriteGuard::try_map_or_err(part, |part| Ok::<_, ()>(std::slice::from_mut(part))).unwrap(),
    );
    assert_eq!(state(), (false, false));
    assert_eq!(lock.into_inner(), [Some(5), None]);
}

/// Fails by the value, or when the lock stays held.
#[test]
fn guards_of_parts_unlock_the_whole() {
    let mut lock = RwLock::new((1, "two".to_owned()));
    assert_send_sync(&lock.read());
    assert_send_sync(&lock.write());
    let part = RwLockReadGuard::map(lock.read(), |whole| &whole.1);
    assert_send_sync(&part);
    let text = MappedRwLockReadGuard::map(part, |text| text.as_str());
    assert_eq!((&*text, lock.is_locked(), lock.is_locked_exclusive()), ("two", true, false));
    drop(text);
    assert!(!lock.is_locked());
    let part = RwLockWriteGuard::map(lock.write(), |whole| &mut whole.1);
    let mut text = MappedRwLockWriteGuard::map(part, |text| text);
    text.push('!');
    assert!(lock.is_locked_exclusive() && lock.try_read().is_none());
    assert_eq!(format!("{lock:?}"), "RwLock { data: <locked> }");
    drop(text);
    let whole = RwLockReadGuard::try_map(lock.read(), |_| None::<&i32>).unwrap_err();
    assert_eq!(*RwLockReadGuard::try_map(whole, |whole| Some(&whole.0)).unwrap(), 1);
    let whole = RwLockWriteGuard::try_map(lock.write(), |_| None::<&mut i32>).unwrap_err();
    *RwLockWriteGuard::try_map(whole, |whole| Some(&mut whole.0)).unwrap() = 4;
    lock.get_mut().1.push('?');
    std::mem::forget((lock.read(), lock.read()));
    // SAFETY: both guards were forgotten.
    unsafe {
        lock.force_unlock_read();
        lock.force_unlock_read();
    }
    std::mem::forget(lock.write());
    // SAFETY: the guard was forgotten.
    unsafe { lock.force_unlock_write() };
    assert_eq!(lock.into_inner(), (4, "two!?".to_owned()));
    let slice: Box<RwLock<[i32]>> = Box::new(RwLock::new([1, 2]));
    assert_eq!(slice.read().len(), 2);
}
