//! `Mutex`.

use crate::support::{count, rounds, with_every_cast};
use common::gate::Gate;
use common::{PROCS, dumps, everywhere, runtime, until, watched};
use gmp::go;
use gmp::sync::{MappedMutexGuard, Mutex, MutexGuard};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// Fails by a wrong sum when two callers have the lock at once, or by a hang when a wake-up, or a waiter, is lost.
#[test]
fn one_at_a_time_has_the_value() {
    with_every_cast(|rt, goroutines, threads| {
        let shared = Arc::new(Mutex::new((0_usize, 0_usize)));
        let theirs = Arc::clone(&shared);
        let got = count(rt, (goroutines, threads), rounds(20_000), move |number, round| {
            let mut guard = theirs.lock();
            assert_eq!(guard.0, guard.1, "seen while another writes");
            guard.0 += 1;
            if (round + number) % 64 == 0 {
                // The lock is held across a park.
                gmp::yield_now();
            }
            guard.1 += 1;
            true
        });
        assert_eq!(shared.lock().0, got);
    });
}

/// Fails by a count when a call with a limit returns a lock that is held, or fails to return a free one; or by a hang when a
/// wake-up is lost with a waiter that has timed out.
#[test]
fn limits_beside_locks_lose_nothing() {
    with_every_cast(|rt, goroutines, threads| {
        let shared = Arc::new(Mutex::new(0));
        let theirs = Arc::clone(&shared);
        let got = count(rt, (goroutines, threads), rounds(5_000), move |number, round| {
            let guard = match (round + number) % 4 {
                0 => Some(theirs.lock()),
                1 => theirs.try_lock(),
                limit => theirs.try_lock_for(Duration::from_nanos((limit * round % 3000) as u64)),
            };
            let Some(mut guard) = guard else { return false };
            *guard += 1;
            if round % 16 == 0 {
                gmp::yield_now();
            }
            true
        });
        assert_eq!(*shared.lock(), got);
        assert!(!shared.is_locked());
    });
}

/// Fails by the time when a waiter never gets the lock because another goroutine takes the lock again as soon as it has
/// unlocked.
#[test]
fn a_waiter_is_not_starved_by_a_goroutine_that_hammers() {
    for procs in PROCS {
        watched(procs, || {
            let rt = runtime(procs);
            let (lock, stop) = (Arc::new(Mutex::new(())), Arc::new(AtomicBool::new(false)));
            let hammers: Vec<_> = (0..2)
                .map(|_| {
                    let (lock, stop) = (Arc::clone(&lock), Arc::clone(&stop));
                    rt.go(move || {
                        while !stop.load(SeqCst) {
                            let _guard = lock.lock();
                            let start = Instant::now();
                            while start.elapsed() < MS / 10 {
                                // With one P, each waiter gets a turn to fail, and to ask for a handover.
                                gmp::yield_now();
                            }
                        }
                    })
                })
                .collect();
            let waits = |lock: &Mutex<()>| {
                let mut worst = Duration::ZERO;
                for _ in 0..20 {
                    let start = Instant::now();
                    drop(lock.lock());
                    worst = worst.max(start.elapsed());
                }
                worst
            };
            let theirs = Arc::clone(&lock);
            let worst = rt.go(move || waits(&theirs)).join().unwrap().max(waits(&lock));
            stop.store(true, SeqCst);
            hammers.into_iter().for_each(|hammer| hammer.join().unwrap());
            assert!(worst < 1000 * MS, "waited {worst:?} at procs {procs}");
            println!("procs {procs}: waited {worst:?} at most");
        });
    }
}

/// Fails by a wrong result, or when a call returns too early or never.
#[test]
fn a_limit_is_kept() {
    everywhere(|rt| {
        let lock = Arc::new(Mutex::new(1));
        let guard = lock.lock();
        let tries = |lock: &Mutex<i32>| {
            let start = Instant::now();
            assert!(lock.try_lock().is_none());
            assert!(lock.try_lock_for(3 * MS).is_none());
            assert!(lock.try_lock_until(start + 6 * MS).is_none());
            assert!(start.elapsed() >= 6 * MS);
            assert!(lock.try_lock_for(Duration::ZERO).is_none());
            assert!(lock.try_lock_until(start).is_none());
        };
        let theirs = Arc::clone(&lock);
        rt.go(move || tries(&theirs)).join().unwrap();
        tries(&lock);
        drop(guard);
        assert_eq!(*lock.try_lock_for(Duration::MAX).unwrap(), 1);
        assert_eq!(*lock.try_lock_until(Instant::now()).unwrap(), 1);
    });
}

/// Fails to compile, or by a hang, when a guard is bound to its thread.
#[test]
fn a_guard_may_be_dropped_on_another_thread() {
    static LOCK: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    everywhere(|rt| {
        let guard = LOCK.lock();
        std::thread::spawn(move || drop(guard)).join().unwrap();
        let guard = rt.go(|| LOCK.lock()).join().unwrap();
        assert!(LOCK.is_locked() && LOCK.try_lock().is_none());
        drop(guard);
        let waiter = rt.go(|| LOCK.lock().len());
        waiter.join().unwrap();
        assert!(!LOCK.is_locked());
    });
}

fn assert_send_sync<T: Send + Sync>(_: &T) {}

/// Fails by the value, the error, or the lock when a refusal returns only the error, or another guard, or unlocks on the way;
/// or when a closure that unwinds leaves the lock held.
#[test]
fn a_refused_part_gives_its_error_and_the_guard() {
    let lock = Mutex::new([Some(1_u8), None]);
    let (whole, error) =
        MutexGuard::try_map_or_err(lock.lock(), |all| all[1].as_mut().ok_or("none")).unwrap_err();
    assert_eq!((*whole, error, lock.is_locked()), ([Some(1), None], "none", true));
    let part = MutexGuard::try_map_or_err(whole, |all| all[0].as_mut().ok_or("none")).unwrap();
    let (mut part, error) = MappedMutexGuard::try_map_or_err(part, |part| {
        *part = 2;
        Err::<&mut u8, _>(*part + 1)
    })
    .unwrap_err();
    assert_eq!((*part, error, lock.is_locked()), (2, 3, true));
    *part = 4;
    let part =
        MappedMutexGuard::try_map_or_err(part, |part| Ok::<_, ()>(std::slice::from_mut(part))).unwrap();
    assert_eq!((&*part, lock.try_lock().is_none()), (&[4][..], true));
    drop(part);
    assert_eq!(*lock.try_lock().expect("unlocked by the part's guard"), [Some(4), None]);
    for mapped in [false, true] {
        let unwound = catch_unwind(AssertUnwindSafe(|| match mapped {
            false => drop(MutexGuard::try_map_or_err(lock.lock(), unwinds)),
            true => drop(MappedMutexGuard::try_map_or_err(MutexGuard::map(lock.lock(), |all| all), unwinds)),
        }));
        assert!(unwound.is_err() && !lock.is_locked(), "mapped: {mapped}");
    }
}

fn unwinds(_: &mut [Option<u8>; 2]) -> Result<&mut u8, ()> {
    resume_unwind(Box::new("no part"))
}

/// Fails by the value when a mapped part is another part, or when its guard does not unlock.
#[test]
fn guards_of_parts_unlock_the_whole() {
    let mut lock = Mutex::new((1, "two".to_owned()));
    assert_send_sync(&lock.lock());
    let mut part = MutexGuard::map(lock.lock(), |whole| &mut whole.1);
    part.push('!');
    assert_send_sync(&part);
    assert!(lock.is_locked());
    let first = MappedMutexGuard::map(part, |text| text.as_mut_str());
    assert_eq!(&*first, "two!");
    drop(first);
    assert!(!lock.is_locked());
    MappedMutexGuard::unlock_fair(MutexGuard::map(lock.lock(), |whole| &mut whole.1));
    assert!(!lock.is_locked());
    let whole = MutexGuard::try_map(lock.lock(), |_whole| None::<&mut i32>).unwrap_err();
    assert_eq!(whole.0, 1);
    let part = MutexGuard::try_map(whole, |whole| Some(&mut whole.0)).unwrap();
    let part = MappedMutexGuard::try_map(part, |_part| None::<&mut i32>).unwrap_err();
    assert_eq!((format!("{part:?} {part}"), lock.is_locked()), ("1 1".to_owned(), true));
    assert_eq!(format!("{lock:?}"), "Mutex { data: <locked> }");
    drop(part);
    assert_eq!(format!("{lock:?}"), r#"Mutex { data: (1, "two!") }"#);
    lock.get_mut().0 = 5;
    assert_eq!(lock.into_inner().0, 5);
    // An unsized value.
    let slice: Box<Mutex<[i32]>> = Box::new(Mutex::new([1, 2, 3]));
    slice.lock()[1] = 7;
    assert_eq!(&*slice.lock(), [1, 7, 3]);
    assert_eq!((*Mutex::<i32>::default().lock(), *Mutex::from(3).lock()), (0, 3));
    let lock = Mutex::new(Cell::new(1));
    assert_eq!(MutexGuard::leak(lock.lock()).get_mut(), &1);
    assert!(lock.is_locked());
    // SAFETY: the guard was leaked, and the reference from it is not used any more.
    unsafe { lock.force_unlock() };
    // SAFETY: no caller has the lock.
    assert_eq!(unsafe { (*lock.data_ptr()).get() }, 1);
    assert!(lock.try_lock().is_some());
}

/// Fails by a panic, or a hang, when a panic with the lock held poisons the lock, or keeps it.
#[test]
fn nothing_poisons() {
    everywhere(|rt| {
        let lock = Arc::new(Mutex::new(1));
        let theirs = Arc::clone(&lock);
        let panics = rt.go(move || {
            let _guard = theirs.lock();
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(panics.join().is_err());
        assert_eq!(*lock.lock(), 1);
    });
}

/// Fails by a hang, or by the count, when `unlocked` does not let others in, or when a fair unlock does not hand over.
#[test]
fn unlocked_and_fair_unlocks_let_others_in() {
    everywhere(|rt| {
        rt.run(|| {
            let lock = Arc::new(Mutex::new(0));
            // Starts a goroutine that counts when it gets the lock, and keeps the lock until its gate is open. Returns when
            // that goroutine is queued.
            let comes = || {
                let (theirs, gate) = (Arc::clone(&lock), Gate::default());
                let opens = gate.clone();
                let other = go(move || {
                    let mut guard = theirs.lock();
                    *guard += 1;
                    opens.pass();
                });
                let id = other.id().get();
                let waits =
                    |dump: &str| dumps::read(dump).iter().any(|g| g.0 == id && g.1.starts_with("sync.Mutex"));
                until(|| waits(&rt.dump()));
                (other, gate)
            };
            let mut guard = lock.lock();
            let (other, gate) = comes();
            gate.open();
            MutexGuard::unlocked(&mut guard, || other.join().unwrap());
            assert_eq!(*guard, 1);
            MutexGuard::unlocked_fair(&mut guard, || assert!(!lock.is_locked(), "nobody waits"));
            assert!(lock.is_locked());
            let (other, gate) = comes();
            // Asserted after the gate is open: otherwise the end of a failed test would wait for the other goroutine.
            let handed_over = MutexGuard::unlocked_fair(&mut guard, || {
                let handed_over = lock.is_locked();
                gate.open();
                other.join().unwrap();
                handed_over
            });
            assert_eq!((handed_over, *guard), (true, 2));
            let (other, gate) = comes();
            gate.open();
            MutexGuard::bump(&mut guard);
            assert_eq!(*guard, 3);
            other.join().unwrap();
            let (other, gate) = comes();
            MutexGuard::unlock_fair(guard);
            let handed_over = lock.is_locked();
            gate.open();
            other.join().unwrap();
            assert!(handed_over && !lock.is_locked());
            let part = MutexGuard::map(lock.lock(), |count| count);
            let (other, gate) = comes();
            MappedMutexGuard::unlock_fair(part);
            let handed_over = lock.is_locked();
            gate.open();
            other.join().unwrap();
            assert!(handed_over && !lock.is_locked());
        });
    });
}

/// Fails if the lock is taken again while the goroutine unwinds: the goroutine would park then, could continue on another
/// thread, and leave both threads with a wrong count of panics.
#[test]
fn unlocked_locks_again_before_it_unwinds() {
    watched(2, || {
        let rt = runtime(2);
        rt.run(|| {
            let lock = Arc::new(Mutex::new(0));
            let unwinding = |number: u64| {
                let lock = Arc::clone(&lock);
                gmp::go(move || {
                    for _ in 0..20 {
                        let ended = gmp::time::timeout(Duration::from_micros(number * 10), || {
                            let mut guard = lock.lock();
                            MutexGuard::unlocked(&mut guard, || gmp::time::sleep(Duration::from_secs(3600)));
                        });
                        assert!(ended.is_err());
                        let guard = lock.lock();
                        gmp::time::sleep(Duration::from_micros(100));
                        drop(guard);
                    }
                })
            };
            let all: Vec<_> = (0..10).map(unwinding).collect();
            all.into_iter().for_each(|it| it.join().unwrap());
        });
        for _ in 0..50 {
            assert!(!rt.go(std::thread::panicking).join().unwrap());
        }
    });
}
