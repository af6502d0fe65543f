//! Runtimes that begin and end, at once and one after the other.

use crate::support::{Probe, Random, join_all, pair, rounds};
use common::child;
use common::{PROCS, runtime, until, watched};
use gmp::sync::Event;
use gmp::time::sleep;
use gmp::{Runtime, go};
use std::fs;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// Fails by a hang of the shutdown, or when a goroutine is neither run nor dropped, or both.
#[test]
fn a_shutdown_meets_goroutines_that_start_others() {
    for procs in PROCS {
        watched(procs, || {
            let mut random = Random::new(procs);
            for _ in 0..rounds(300) {
                let rt = runtime(procs);
                let [made, dropped] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
                for _ in 0..3 {
                    drop(rt.go(link(Arc::clone(&made), Arc::clone(&dropped))));
                }
                random.pause(20_000);
                let clean = rt.shutdown_timeout(Duration::from_secs(30));
                assert!(clean, "nobody parks");
                assert_eq!(dropped.load(SeqCst), made.load(SeqCst));
            }
        });
    }
}

/// Returns the code of a goroutine that starts the next one of its kind, and so on until the runtime takes no more.
fn link(made: Arc<AtomicUsize>, dropped: Arc<AtomicUsize>) -> Box<dyn FnOnce() + Send> {
    made.fetch_add(1, SeqCst);
    let probe = Probe(dropped);
    Box::new(move || {
        drop(go(link(made, Arc::clone(&probe.0))));
        drop(probe);
    })
}

/// Fails by a hang or a crash when an effect of one runtime reaches another, or outlives its own.
#[test]
fn runtimes_come_and_go_while_others_work() {
    let works = |rt: &Runtime, seed| {
        rt.run(|| {
            let (mut near, mut far) = pair();
            let echo = go(move || {
                let mut byte = [0];
                while far.read(&mut byte).unwrap() == 1 {
                    far.write_all(&byte).unwrap();
                }
            });
            let sleeper = go(move || sleep(Duration::from_micros(Random::new(seed).below(100))));
            for _ in 0..5 {
                near.write_all(&[2]).unwrap();
                near.read_exact(&mut [0]).unwrap();
            }
            drop(near);
            sleeper.join().unwrap();
            echo.join().unwrap();
        });
    };
    for procs in PROCS {
        watched(procs, || {
            let lasting = runtime(procs);
            thread::scope(|s| {
                for seed in 0..3 {
                    let (lasting, works) = (&lasting, &works);
                    s.spawn(move || {
                        for round in 0..rounds(80) {
                            let passing = runtime(1 + round % procs);
                            works(&passing, seed * 1000 + round);
                            works(lasting, round);
                            // A goroutine of the lasting runtime joins one of the passing runtime, which ends meanwhile.
                            let value = passing.go(move || round);
                            let joined = lasting.go(move || value.join());
                            drop(passing);
                            match joined.join().unwrap() {
                                Ok(value) => assert_eq!(value, round),
                                Err(error) => assert!(error.is_shutdown()),
                            }
                        }
                    });
                }
            });
            assert!(lasting.shutdown_timeout(Duration::from_secs(30)));
        });
    }
}

/// A short life on all Ps: more goroutines than one queue holds, sleepers, sockets, and some that wake each other.
fn a_life(rt: &Runtime, writes: bool) {
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = || {
        let ran = Arc::clone(&ran);
        move || {
            ran.fetch_add(1, SeqCst);
        }
    };
    rt.run(|| {
        let burst: Vec<_> = (0..300).map(|_| go(counted())).collect();
        let sleepers: Vec<_> = (0..10).map(|n| go(move || sleep(Duration::from_micros(10 * n)))).collect();
        let events = Arc::new([Event::new(), Event::new()]);
        let players = [0, 1].map(|me| {
            let events = Arc::clone(&events);
            go(move || {
                for round in 0..50 {
                    // The first player begins without a wait.
                    if round + me > 0 {
                        events[me].wait();
                    }
                    events[1 - me].notify_one();
                }
            })
        });
        let (mut near, mut far) = pair();
        let reader = go(move || far.read(&mut [0]).unwrap());
        if writes {
            near.write_all(&[1]).unwrap();
        }
        drop(near);
        assert_eq!(reader.join().unwrap(), usize::from(writes));
        join_all(burst.into_iter().chain(sleepers).chain(players));
    });
    let outside: Vec<_> = (0..20).map(|_| rt.go(counted())).collect();
    join_all(outside);
    assert_eq!(ran.load(SeqCst), 320);
}

fn entries(folder: &str) -> usize {
    fs::read_dir(folder).expect("/proc is mounted").count()
}

/// Returns how many threads and descriptors the process has.
fn resources() -> [usize; 2] {
    ["/proc/self/task", "/proc/self/fd"].map(entries)
}

/// Waits until the resources are those of before: a thread that was joined stays in /proc for some 100 µs.
#[track_caller]
fn comes_back_to(before: [usize; 2]) {
    let start = Instant::now();
    until(|| {
        let now = resources();
        assert!(start.elapsed() < Duration::from_secs(10), "{now:?} threads and descriptors, not {before:?}");
        now == before
    });
}

/// Fails by one thread or descriptor more than before, when a thread was started, or given a P, while its runtime ended.
#[test]
fn runtimes_at_once_and_in_turn_leave_nothing_behind() {
    if !child::is_child() {
        child::passes("runtimes_at_once_and_in_turn_leave_nothing_behind", &[]);
        return;
    }
    a_life(&runtime(2), true);
    for procs in PROCS {
        let before = resources();
        watched(procs, || {
            let mut random = Random::new(procs);
            for round in 0..rounds(300) {
                let rt = runtime(procs);
                match round % 4 {
                    0 => a_life(&rt, round % 8 == 0),
                    // The runtime ends at any step of its beginning.
                    1 => random.pause(30_000),
                    // The runtime ends while it works, with goroutines in each of the places in which they can be.
                    2 => {
                        for _ in 0..50 {
                            drop(rt.go(|| sleep(Duration::from_micros(20))));
                            drop(rt.go(|| join_all((0..10).map(|_| go(|| ())))));
                        }
                        random.pause(30_000);
                    }
                    _ => drop(rt.go(|| Event::new().wait())),
                }
                if round % 2 == 0 {
                    drop(rt);
                } else {
                    let left = rt.shutdown(Duration::from_secs(30)).threads_left();
                    assert_eq!(left, 0, "threads were left");
                }
            }
        });
        comes_back_to(before);
        watched(procs, || {
            thread::scope(|s| {
                for seed in 0..4 {
                    s.spawn(move || {
                        for round in 0..rounds(100) {
                            a_life(&runtime(1 + (seed + round) % procs), round % 2 == 0);
                        }
                    });
                }
            });
            let all: Vec<_> = (0..8).map(|_| runtime(procs)).collect();
            all.iter().enumerate().for_each(|(seed, rt)| a_life(rt, seed % 2 == 0));
        });
        comes_back_to(before);
    }
}
