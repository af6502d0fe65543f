#![cfg(not(gmp_loom))]
//! Races, many times over: whoever waits is woken, and what was started runs or is dropped, once.
//!
//! `GMP_STRESS=20 cargo test --release --test stress` runs twenty times as many rounds; the default is 1.

mod common;

use common::{PROCS, effort, everywhere, runtime, until, watched};
use gmp::net::{TcpListener, TcpStream};
use gmp::time::sleep;
use gmp::{JoinHandle, Runtime, go, yield_now};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

/// So many rounds, or a multiple of them.
fn rounds(base: usize) -> usize {
    base * effort() as usize
}

/// xorshift64: the same pauses in every run, for what they are worth on a machine with others.
struct Random(u64);

impl Random {
    fn new(seed: usize) -> Self {
        Random(0x9E37_79B9_7F4A_7C15 ^ (seed as u64 + 1).wrapping_mul(0xD1B5_4A32_D192_ED03))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// Passes time and stays awake; more often a little than much.
    fn pause(&mut self, most: u64) {
        let most = 1 + self.below(most);
        for _ in 0..self.below(most) {
            std::hint::spin_loop();
        }
    }
}

/// Counts its drops.
struct Probe(Arc<AtomicUsize>);

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let near = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let far = listener.accept().expect("it is there").0;
    near.set_nodelay(true).and(far.set_nodelay(true)).expect("they are TCP streams");
    (near, far)
}

fn join_all<T>(handles: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    handles.into_iter().map(|handle| handle.join().expect("no panic")).collect()
}

/// Fails by a hang: a joiner parks at the moment at which the goroutine ends on another P.
#[test]
fn an_end_and_its_join_do_not_miss_each_other() {
    everywhere(|rt| {
        rt.run(|| {
            join_all((0..8).map(|seed| {
                go(move || {
                    let mut random = Random::new(seed);
                    for round in 0..rounds(4000) {
                        let mut theirs = Random::new(round);
                        let child = go(move || {
                            theirs.pause(300);
                            round
                        });
                        random.pause(300);
                        assert_eq!(child.join().unwrap(), round);
                    }
                })
            }))
        });
    });
}

/// Fails by a hang: a turn is handed to somebody who is about to stand in line, or nobody.
#[test]
fn turns_of_a_socket_are_handed_on_under_contention() {
    everywhere(|rt| {
        let (near, mut far) = pair();
        let near = Arc::new(near);
        let writes = rounds(2000);
        let write = |seed| {
            let near = Arc::clone(&near);
            move || {
                let mut random = Random::new(seed);
                for _ in 0..writes {
                    assert_eq!((&*near).write(&[0; 3]).unwrap(), 3);
                    random.pause(200);
                }
            }
        };
        let goroutines: Vec<_> = (0..6).map(|seed| rt.go(write(seed))).collect();
        let threads: Vec<_> = (6..8).map(|seed| thread::spawn(write(seed))).collect();
        let all = 8 * writes * 3;
        rt.run(|| {
            let (mut total, mut buffer) = (0, [0; 100]);
            while total < all {
                total += far.read(&mut buffer).unwrap();
            }
        });
        join_all(goroutines);
        threads.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// Fails by a hang: an event comes while its reader is on the way to sleep, on another P than the poller's.
#[test]
fn readers_and_events_do_not_miss_each_other() {
    everywhere(|rt| {
        rt.run(|| {
            join_all((0..6).flat_map(|seed| {
                let (near, far) = pair();
                [(near, true), (far, false)].map(|(mut stream, mut mine)| {
                    go(move || {
                        let mut random = Random::new(seed * 2 + usize::from(mine));
                        for round in 0..rounds(2000) {
                            random.pause(400);
                            if mine {
                                stream.write_all(&(round as u32).to_ne_bytes()).unwrap();
                            } else {
                                let mut heard = [0; 4];
                                // Sometimes in two parts: the second read knows less.
                                let first = 1 + random.below(4) as usize;
                                stream.read_exact(&mut heard[..first]).unwrap();
                                stream.read_exact(&mut heard[first..]).unwrap();
                                assert_eq!(u32::from_ne_bytes(heard), round as u32);
                            }
                            mine = !mine;
                        }
                    })
                })
            }))
        });
    });
}

/// Fails by a hang: a goroutine is submitted from outside when the last M goes idle, or is on its way into the
/// poller, or out of it.
#[test]
fn a_submission_meets_a_runtime_that_is_just_going_idle() {
    everywhere(|rt| {
        thread::scope(|s| {
            for seed in 0..2 {
                let rt = &rt;
                s.spawn(move || {
                    let mut random = Random::new(seed);
                    for round in 0..rounds(4000) {
                        let submitted = rt.go(move || round);
                        random.pause(4000);
                        assert_eq!(submitted.join().unwrap(), round);
                        random.pause(4000);
                    }
                });
            }
        });
    });
}

/// The same with one submitter and nothing else that could repair a lost wake-up.
#[test]
fn a_single_submission_is_never_forgotten() {
    everywhere(|rt| {
        let mut random = Random::new(5);
        let ran = Arc::new(AtomicUsize::new(0));
        for round in 1..=rounds(10_000) {
            let count = Arc::clone(&ran);
            drop(rt.go(move || count.fetch_add(1, SeqCst)));
            until(|| ran.load(SeqCst) == round);
            random.pause(3000);
        }
    });
}

/// Fails by a hang: the poller sleeps past a timer that came while it was on its way, or a break is lost between
/// an M that looks and one that waits.
#[test]
fn timers_events_and_submissions_do_not_hide_each_other() {
    everywhere(|rt| {
        let (mut near, mut far) = pair();
        let pings = rounds(600);
        let server = rt.go(move || {
            let mut byte = [0];
            while near.read(&mut byte).unwrap() == 1 {
                near.write_all(&byte).unwrap();
            }
        });
        let client = rt.go(move || {
            let mut random = Random::new(1);
            for _ in 0..pings {
                far.write_all(&[1]).unwrap();
                far.read_exact(&mut [0]).unwrap();
                sleep(Duration::from_nanos(random.below(150_000)));
            }
        });
        let sleepers: Vec<_> = (2..8)
            .map(|seed| {
                rt.go(move || {
                    let mut random = Random::new(seed);
                    for _ in 0..rounds(600) {
                        sleep(Duration::from_nanos(random.below(300_000)));
                        random.pause(500);
                    }
                })
            })
            .collect();
        let mut random = Random::new(9);
        for round in 0..rounds(1000) {
            assert_eq!(rt.go(move || (yield_now(), round).1).join().unwrap(), round);
            random.pause(5000);
        }
        join_all(sleepers);
        client.join().unwrap();
        server.join().unwrap();
    });
}

/// Fails by a hang: the only timer is due while the M that would wait for it is elsewhere.
#[test]
fn a_single_sleeper_is_never_forgotten() {
    everywhere(|rt| {
        let mut random = Random::new(3);
        for _ in 0..rounds(4000) {
            let short = Duration::from_nanos(random.below(60_000));
            let sleeper = rt.go(move || sleep(short));
            random.pause(2000);
            sleeper.join().unwrap();
        }
    });
}

/// Fails by a lost or doubled goroutine.
#[test]
fn storms_of_spawns_from_threads_all_run() {
    everywhere(|rt| {
        let (ran, each) = (Arc::new(AtomicUsize::new(0)), rounds(5000));
        thread::scope(|s| {
            for seed in 0..4 {
                let (rt, ran) = (&rt, Arc::clone(&ran));
                s.spawn(move || {
                    let mut random = Random::new(seed);
                    for _ in 0..each {
                        let count = Arc::clone(&ran);
                        drop(rt.go(move || {
                            let again = Arc::clone(&count);
                            drop(go(move || again.fetch_add(1, SeqCst)));
                            count.fetch_add(1, SeqCst);
                        }));
                        if random.below(50) == 0 {
                            random.pause(2000);
                        }
                    }
                });
            }
        });
        until(|| ran.load(SeqCst) == 4 * each * 2 && rt.num_goroutines() == 0);
    });
}

/// Fails by a hang of the shutdown, by a goroutine that is neither run nor dropped, or by one that is both.
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

/// A goroutine's code that starts the next of its kind, and so on until the runtime takes no more.
fn link(made: Arc<AtomicUsize>, dropped: Arc<AtomicUsize>) -> Box<dyn FnOnce() + Send> {
    made.fetch_add(1, SeqCst);
    let probe = Probe(dropped);
    Box::new(move || {
        drop(go(link(made, Arc::clone(&probe.0))));
        drop(probe);
    })
}

/// Fails by a hang or a crash: what one runtime does is seen by another, or outlives its own.
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
                            // Joined from the other, and outlived.
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
