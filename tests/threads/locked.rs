//! `lock_os_thread`: a goroutine keeps its thread, no other goroutine gets that thread, and none hangs because of it.

use common::child;
use common::{PROCS, everywhere, other_threads_sleep, runtime, until, watched};
use gmp::net::TcpStream;
use gmp::sync::{Mutex, WaitGroup};
use gmp::time::sleep;
use gmp::{
    Priority, Runtime, blocking, chan, go, goexit, lock_os_thread, set_procs, unlock_os_thread, yield_now,
};
use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Returns the kernel's id of the calling thread.
#[inline(never)]
fn tid() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
}

fn is_alive(tid: i32) -> bool {
    Path::new(&format!("/proc/self/task/{tid}")).exists()
}

/// Parks the calling goroutine in several kinds of park.
fn all_parks(lock: &Mutex<u32>) {
    yield_now();
    sleep(MS / 10);
    let (sender, receiver) = chan::bounded(0);
    let echo = go(move || receiver.recv().unwrap());
    sender.send(3).unwrap();
    assert_eq!(echo.join().unwrap(), 3);
    *lock.lock() += 1;
    blocking(|| thread::sleep(MS / 10));
    let group = WaitGroup::new();
    group.go(yield_now);
    group.wait();
}

/// Fails when a locked goroutine changes its thread, or another goroutine runs on that thread.
#[test]
fn a_locked_goroutine_has_its_thread_for_itself() {
    everywhere(|rt| {
        rt.run(|| {
            let rounds = if cfg!(debug_assertions) { 10 } else { 30 };
            let (lock, taken) = (Arc::new(Mutex::new(0)), Arc::new(std::sync::Mutex::new(HashSet::new())));
            let locked: Vec<_> = (0..4)
                .map(|_| {
                    let (lock, taken) = (Arc::clone(&lock), Arc::clone(&taken));
                    go(move || {
                        lock_os_thread();
                        let own = tid();
                        assert!(taken.lock().unwrap().insert(own), "two have locked one thread");
                        for _ in 0..rounds {
                            all_parks(&lock);
                            assert_eq!(tid(), own);
                        }
                        taken.lock().unwrap().remove(&own);
                        unlock_os_thread();
                    })
                })
                .collect();
            let others: Vec<_> = (0..8)
                .map(|_| {
                    let (lock, taken) = (Arc::clone(&lock), Arc::clone(&taken));
                    go(move || {
                        for _ in 0..rounds {
                            all_parks(&lock);
                            assert!(!taken.lock().unwrap().contains(&tid()), "this thread is another's");
                        }
                    })
                })
                .collect();
            locked.into_iter().chain(others).for_each(|goroutine| goroutine.join().unwrap());
            assert_eq!(*lock.lock(), 12 * rounds);
        });
    });
}

/// Fails when one unlock undoes two locks, or when the last unlock undoes none. With `migrate=1` a goroutine that is not bound
/// changes its thread at each park.
#[test]
fn locks_nest() {
    if !child::is_child() {
        child::passes("locks_nest", &[("GMPDEBUG", "migrate=1")]);
        return;
    }
    let stays = || {
        let parks: [fn(); 3] = [yield_now, || sleep(MS / 10), || go(yield_now).join().unwrap()];
        parks.into_iter().all(|park| {
            let before = tid();
            park();
            before == tid()
        })
    };
    everywhere(|rt| {
        rt.run(|| {
            unlock_os_thread();
            assert!(!stays(), "an unlock without a lock has no effect");
            for round in 0..20 {
                (0..=round % 3).for_each(|_| lock_os_thread());
                for _ in 0..round % 3 {
                    unlock_os_thread();
                    assert!(stays());
                }
                assert!(stays());
                unlock_os_thread();
                (0..round % 2).for_each(|_| unlock_os_thread());
                assert!(!stays());
            }
        });
    });
}

#[test]
fn on_a_plain_thread_it_does_nothing() {
    unlock_os_thread();
    lock_os_thread();
    lock_os_thread();
    assert!(thread::spawn(lock_os_thread).join().is_ok());
}

/// Fails when the thread of a goroutine that ended locked lives on, in whichever way the goroutine ended; or by a hang when the
/// thread takes its P along.
#[test]
fn a_goroutine_that_ends_locked_takes_its_thread_with_it() {
    everywhere(|rt| {
        for way in 0..12 {
            let locked = rt.go(move || {
                lock_os_thread();
                lock_os_thread();
                unlock_os_thread();
                match way % 4 {
                    0 => sleep(MS),
                    1 => goexit(),
                    2 => resume_unwind(Box::new(tid())),
                    _ => {}
                }
                tid()
            });
            let (sender, receiver) = chan::bounded(1);
            // This goroutine tells its thread even though it ends by `goexit`.
            let known = rt.go(move || {
                lock_os_thread();
                sender.send(tid()).unwrap();
                goexit()
            });
            let ended = [
                match locked.join() {
                    Ok(tid) => tid,
                    Err(error) if error.is_panic() => *error.into_panic().downcast().unwrap(),
                    Err(_) => 0,
                },
                receiver.recv().unwrap(),
            ];
            assert!(known.join().unwrap_err().is_goexit());
            let start = Instant::now();
            for tid in ended {
                while is_alive(tid) {
                    assert!(start.elapsed() < 5 * SECOND, "thread {tid} is still there");
                    thread::yield_now();
                }
            }
        }
        // How long the end of the thread takes: one of 20 tries has to be quick, as the machine may have other things to do.
        let quick = (0..20).any(|_| {
            let tid = rt.go(|| {
                lock_os_thread();
                tid()
            });
            let tid = tid.join().unwrap();
            let start = Instant::now();
            while is_alive(tid) {
                thread::yield_now();
            }
            start.elapsed() < 100 * MS
        });
        assert!(quick, "it takes longer than 100 ms");
        assert!(rt.shutdown(20 * SECOND).is_clean());
    });
}

/// Fails if another goroutine sees a change that a goroutine has made to its thread: here, a thread-local.
#[test]
fn a_change_to_a_thread_is_seen_by_no_other_goroutine() {
    thread_local! { static MARK: AtomicBool = const { AtomicBool::new(false) } }
    #[inline(never)]
    fn mark() -> bool {
        MARK.with(|mark| mark.swap(true, SeqCst))
    }
    #[inline(never)]
    fn is_marked() -> bool {
        MARK.with(|mark| mark.load(SeqCst))
    }
    everywhere(|rt| {
        let all: Vec<_> = (0..200)
            .map(|n| {
                rt.go(move || {
                    if n % 4 == 0 {
                        lock_os_thread();
                        assert!(!mark());
                    }
                    yield_now();
                    assert_eq!(is_marked(), n % 4 == 0);
                })
            })
            .collect();
        all.into_iter().for_each(|goroutine| goroutine.join().unwrap());
    });
}

/// Fails by a hang when, at the limit of threads, no M can bring a locked goroutine to its own M.
#[test]
fn at_the_limit_of_threads_runnable_goroutines_run() {
    for (procs, threads) in [(1, 1), (2, 1), (1, 2), (2, 2), (4, 3)] {
        watched(procs, || {
            // SAFETY: the goroutines keep nothing of a thread.
            let rt = unsafe { Runtime::builder().procs(procs).max_threads(threads).build() }.unwrap();
            let locked: Vec<_> = (0..threads)
                .map(|_| {
                    rt.go(move || {
                        lock_os_thread();
                        for _ in 0..20 {
                            sleep(MS / 10);
                            yield_now();
                            blocking(|| ());
                        }
                        // While all threads are locked, no other goroutine runs; from here on the others do.
                        unlock_os_thread();
                    })
                })
                .collect();
            let others: Vec<_> = (0..10).map(|n| rt.go(move || (yield_now(), n).1)).collect();
            locked.into_iter().for_each(|goroutine| goroutine.join().unwrap());
            assert_eq!(others.into_iter().map(|other| other.join().unwrap()).sum::<i32>(), 45);
            assert!(rt.shutdown(20 * SECOND).is_clean());
        });
    }
}

/// Fails by time when each submission at the limit of threads searches all queued goroutines for a locked one.
#[test]
fn beside_a_locked_goroutine_that_waits_a_submission_at_the_limit_is_as_cheap_as_ever() {
    watched(2, || {
        // SAFETY: the goroutines keep nothing of a thread.
        let rt = unsafe { Runtime::builder().procs(2).max_threads(2).build() }.unwrap();
        let (unlock, hears) = chan::bounded::<()>(0);
        let waits = rt.go(move || {
            lock_os_thread();
            assert!(hears.recv().is_err());
        });
        let (blocks, free) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let blocked = rt.go({
            let (blocks, free) = (Arc::clone(&blocks), Arc::clone(&free));
            move || {
                sleep(10 * MS);
                blocking(|| {
                    blocks.store(true, SeqCst);
                    while !free.load(SeqCst) {
                        thread::sleep(MS);
                    }
                });
            }
        });
        until(|| blocks.load(SeqCst));
        let start = Instant::now();
        let others: Vec<_> = (0..40_000).map(|_| rt.go(|| ())).collect();
        let took = start.elapsed();
        free.store(true, SeqCst);
        drop(unlock);
        [waits, blocked].into_iter().chain(others).for_each(|goroutine| goroutine.join().unwrap());
        assert!(took < 3 * SECOND, "{took:?}");
    });
}

/// Fails by a hang, or when a thread is left, because an M that waits for its goroutine is not told of the end.
#[test]
fn a_runtime_ends_while_goroutines_are_locked() {
    for procs in PROCS {
        for _ in 0..if cfg!(debug_assertions) { 20 } else { 100 } {
            watched(procs, || {
                let rt = runtime(procs);
                let away = Arc::new(AtomicUsize::new(0));
                let locked: Vec<_> = (0..6)
                    .map(|n| {
                        let away = Arc::clone(&away);
                        rt.go(move || {
                            lock_os_thread();
                            away.fetch_add(1, SeqCst);
                            match n % 3 {
                                0 => chan::never::<()>().recv().unwrap(),
                                1 => loop {
                                    yield_now();
                                },
                                _ => loop {
                                    sleep(MS / 20);
                                },
                            }
                        })
                    })
                    .collect();
                until(|| away.load(SeqCst) == 6);
                let report = rt.shutdown(20 * SECOND);
                assert!(report.is_clean(), "{report:?}");
                locked.into_iter().for_each(|goroutine| assert!(goroutine.join().unwrap_err().is_shutdown()));
            });
        }
    }
}

/// A dump holds a locked goroutine at the moment when it is to be brought to its M. Fails by a hang.
#[test]
fn dumps_do_not_disturb() {
    everywhere(|rt| {
        let stop = AtomicBool::new(false);
        thread::scope(|s| {
            s.spawn(|| {
                while !stop.load(SeqCst) {
                    assert!(rt.dump().contains("goroutine"));
                }
            });
            let pairs: Vec<_> = (0..4)
                .flat_map(|_| {
                    let ((to, from), (back, got)) = (chan::bounded::<u32>(0), chan::bounded(0));
                    let one = rt.go(move || {
                        lock_os_thread();
                        (0..200).for_each(|n| {
                            to.send(n).unwrap();
                            assert_eq!(got.recv(), Ok(n));
                        });
                    });
                    let other = rt.go(move || from.into_iter().for_each(|n| back.send(n).unwrap()));
                    [one, other]
                })
                .collect();
            pairs.into_iter().for_each(|goroutine| goroutine.join().unwrap());
            stop.store(true, SeqCst);
        });
    });
}

/// A P retires on its way to the M of a locked goroutine, or while an M that attends to one holds it. Fails by a hang.
#[test]
fn ps_come_and_go_beside_locked_goroutines() {
    everywhere(|rt| {
        rt.run(|| {
            let (lock, stop) = (Arc::new(Mutex::new(0)), Arc::new(AtomicBool::new(false)));
            let turns = go({
                let stop = Arc::clone(&stop);
                move || {
                    for procs in [1, 3, 2, 5].into_iter().cycle() {
                        set_procs(procs);
                        sleep(MS / 4);
                        if stop.load(SeqCst) {
                            return;
                        }
                    }
                }
            });
            let all: Vec<_> = (0..8)
                .map(|n| {
                    let lock = Arc::clone(&lock);
                    go(move || {
                        if n % 2 == 0 {
                            lock_os_thread();
                        }
                        let own = tid();
                        for _ in 0..20 {
                            all_parks(&lock);
                            assert!(n % 2 != 0 || tid() == own);
                        }
                    })
                })
                .collect();
            all.into_iter().for_each(|goroutine| goroutine.join().unwrap());
            stop.store(true, SeqCst);
            turns.join().unwrap();
        });
    });
}

/// Fails by time when a goroutine that is alone gives its P away at each yield; and by a hang when its yields hold timers up.
#[test]
fn a_yield_of_a_lone_goroutine_goes_on_at_once() {
    everywhere(|rt| {
        rt.run(|| {
            let slept = go(|| sleep(5 * MS));
            lock_os_thread();
            until(|| slept.is_finished());
            let start = Instant::now();
            (0..100_000).for_each(|_| yield_now());
            // With two wake-ups of a thread for each yield the loop would take 2 s.
            assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
            unlock_os_thread();
        });
    });
}

/// Fails by a hang when a locked goroutine that yields all the time leaves a goroutine of a lower class no turn.
#[test]
fn a_yield_of_a_locked_goroutine_leaves_low_goroutines_their_turn() {
    watched(1, || {
        runtime(1).run(|| {
            let low = [Priority::Low, Priority::Low, Priority::High]
                .map(|class| gmp::Builder::new().priority(class).go(|| ()).unwrap());
            lock_os_thread();
            while !low.iter().all(|low| low.is_finished()) {
                yield_now();
            }
            // Background goroutines, which may wait for ever, do not slow the yields down.
            let background: Vec<_> = (0..32)
                .map(|_| gmp::Builder::new().priority(Priority::Background).go(|| ()).unwrap())
                .collect();
            let start = Instant::now();
            // With two wake-ups of a thread for each yield the loop would take 2 s.
            (0..100_000).for_each(|_| yield_now());
            assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
            unlock_os_thread();
            background.into_iter().for_each(|one| one.join().unwrap());
        });
    });
}

/// Fails when main runs on another thread, before or after any park, or releases the thread of its caller.
#[test]
fn main_runs_locked_to_the_calling_thread() {
    everywhere(|rt| {
        let lock = Mutex::new(0);
        let own = tid();
        for round in 0..5 {
            // SAFETY: the goroutines keep nothing of a thread.
            let got = unsafe {
                rt.run_locked(|| {
                    let others: Vec<_> = (0..8).map(|_| go(|| (sleep(MS), tid()).1)).collect();
                    for _ in 0..5 {
                        all_parks(&lock);
                        assert_eq!(tid(), own);
                        unlock_os_thread();
                    }
                    lock_os_thread();
                    others.into_iter().for_each(|other| assert_ne!(other.join().unwrap(), own));
                    round
                })
            };
            assert_eq!(got, round);
            assert!(gmp::current().is_none(), "it is a plain thread again");
        }
        assert_eq!(*lock.lock(), 25);
        // SAFETY: as above.
        let panics = || unsafe { rt.run_locked(|| -> () { resume_unwind(Box::new(own)) }) };
        let payload = catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&own));
        assert!(gmp::current().is_none());
        assert_eq!(rt.run(|| 1), 1);
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    let own = tid();
                    // SAFETY: as above.
                    unsafe { rt.run_locked(|| all_parks(&lock)) };
                    // SAFETY: as above.
                    assert_eq!(unsafe { rt.run_locked(|| (sleep(MS), tid()).1) }, own);
                });
            }
        });
        assert!(rt.shutdown(20 * SECOND).is_clean());
    });
}

#[test]
fn main_runs_locked_beside_one_thread_of_the_runtime() {
    watched(1, || {
        // SAFETY: the goroutines keep nothing of a thread.
        let rt = unsafe { Runtime::builder().procs(1).max_threads(1).build() }.unwrap();
        // SAFETY: as above.
        let sum = unsafe {
            rt.run_locked(|| (0..100).map(|n| go(move || (yield_now(), n).1).join().unwrap()).sum::<i32>())
        };
        assert_eq!(sum, 4950);
    });
}

/// Every allowed thread waits for its goroutine. Fails by a hang when no M looks at the timer, or at the socket, for which the
/// goroutine waits.
#[test]
fn a_locked_goroutine_wakes_also_where_the_kernel_refuses_threads() {
    if !child::is_child() {
        child::passes("a_locked_goroutine_wakes_also_where_the_kernel_refuses_threads", &[]);
        return;
    }
    watched(1, || {
        let rt = runtime(1);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut theirs = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut ours = TcpStream::from(listener.accept().unwrap().0);
        rt.run(move || {
            refuse_threads();
            lock_os_thread();
            for _ in 0..3 {
                sleep(MS);
                ours.set_read_timeout(Some(20 * SECOND)).unwrap();
                theirs.write_all(b"x").unwrap();
                ours.read_exact(&mut [0]).unwrap();
            }
            ours.set_read_timeout(Some(MS)).unwrap();
            assert_eq!(ours.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
        });
        assert!(rt.shutdown(20 * SECOND).is_clean());
    });
}

/// Leaves no memory for another thread's stack, from here on. The process has only threads that will sleep.
fn refuse_threads() {
    // std ends the process where a thread that has begun finds no memory for its signal stack.
    until(other_threads_sleep);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let kib: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    let most = (kib + 1024) << 10;
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: reads one rlimit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    // libc may have kept the stack of a thread that has just ended.
    let stays = || {
        loop {
            thread::park();
        }
    };
    while thread::Builder::new().spawn(stays).is_ok() {}
}

/// Fails by a hang when the thread of the program counts as one of the runtime's, so that no thread may replace one that has
/// ended.
#[test]
fn main_on_the_first_thread_takes_no_thread_from_others() {
    for procs in PROCS {
        watched(procs, || {
            // SAFETY: only goroutines that are locked to their thread keep what is bound to it.
            let rt = unsafe { Runtime::builder().procs(procs).max_threads(1).build() }.unwrap();
            // SAFETY: as above.
            unsafe {
                rt.run_locked(|| {
                    go(lock_os_thread).join().unwrap();
                    assert_eq!(go(|| 3).join().unwrap(), 3);
                });
            }
        });
    }
}

/// A goroutine has no thread of its own to give. Fails when the panic lacks its text.
#[test]
fn a_goroutine_can_not_run_main_on_its_thread() {
    let (rt, other) = (Arc::new(runtime(2)), runtime(1));
    let inner = Arc::clone(&rt);
    // SAFETY: the goroutines keep nothing of a thread.
    let refused = other.go(move || unsafe { inner.run_locked(|| ()) }).join().unwrap_err();
    assert!(refused.to_string().contains("run_locked: called on a goroutine"), "{refused}");
}
