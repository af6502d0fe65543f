//! How many Ps there are: a change of the number under load loses no goroutine, and the number holds.

use common::child;
use common::{PROCS, runtime, until, watched};
use gmp::chan::bounded;
use gmp::net::{TcpListener, TcpStream};
use gmp::time::{Ticker, after_func, sleep};
use gmp::{Runtime, go, yield_now};
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

fn flips() -> usize {
    let few = if cfg!(debug_assertions) { 300 } else { 2000 };
    few * common::effort().max(1) as usize
}

/// Returns the number of Ps at a step of a storm; the numbers go from one end to the other, and all over.
fn next_procs(step: usize) -> usize {
    [1, 8, 1, 8, 2, 5, 1, 3, 8, 4][step % 10]
}

fn add_one(to: &AtomicUsize) {
    to.fetch_add(1, SeqCst);
}

#[test]
fn what_was_set_is_told_on_goroutines_and_threads() {
    for start in PROCS {
        watched(start, || {
            let rt = runtime(start);
            let mut before = start;
            for procs in [3, 1, 8, 8, 2, 1024, 1] {
                assert_eq!(rt.set_procs(procs), before);
                assert_eq!((rt.procs(), rt.run(gmp::procs)), (procs, procs));
                assert_eq!(rt.run(move || gmp::set_procs(procs + 1 - procs / 1024)), procs);
                before = procs + 1 - procs / 1024;
            }
        });
    }
}

#[test]
fn a_number_out_of_range_is_refused_with_the_limits() {
    let text = |f: &dyn Fn() -> usize| {
        let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("it panics");
        payload.downcast_ref::<String>().expect("with a text").clone()
    };
    let rt = runtime(2);
    assert_eq!(text(&|| rt.set_procs(0)), "set_procs: 0 is not within 1..=1024");
    assert_eq!(text(&|| rt.set_procs(1025)), "set_procs: 1025 is not within 1..=1024");
    let inside = rt.go(|| gmp::set_procs(0)).join().unwrap_err().into_panic();
    assert_eq!(inside.downcast_ref::<String>().unwrap(), "set_procs: 0 is not within 1..=1024");
    assert_eq!(
        text(&|| gmp::set_procs(1)),
        "set_procs: not called on a goroutine; from a thread use Runtime::set_procs"
    );
    assert_eq!(rt.procs(), 2);
}

/// Blocks the thread until all members are there. The wait does not call the runtime, so each member needs a P of its own.
fn attend(meeting: &Barrier) {
    meeting.wait();
}

/// Fails by a hang when some of the queued goroutines get no P, although there are enough Ps now.
#[test]
fn after_growing_as_many_run_at_the_same_time() {
    child::without_retakes("after_growing_as_many_run_at_the_same_time", || {
        for start in [1, 2, 4] {
            for procs in PROCS.into_iter().filter(|&procs| procs > start) {
                for round in 0..20 {
                    watched(procs, || {
                        let rt = runtime(start);
                        let meeting = Arc::new(Barrier::new(procs));
                        let member = || {
                            let meeting = Arc::clone(&meeting);
                            move || attend(&meeting)
                        };
                        let members: Vec<_> = if round % 2 == 0 {
                            // A thread sets the number, while some members wait on their Ps for the others.
                            let members = (0..procs).map(|_| rt.go(member())).collect();
                            assert_eq!(rt.set_procs(procs), start);
                            members
                        } else {
                            // A goroutine, which is one of the members, sets the number, with the others in the queue of its P.
                            let (first, others) =
                                (member(), (1..procs).map(|_| member()).collect::<Vec<_>>());
                            rt.run(|| {
                                let members: Vec<_> = others.into_iter().map(go).collect();
                                assert_eq!(gmp::set_procs(procs), start);
                                first();
                                members
                            })
                        };
                        members.into_iter().for_each(|member| member.join().unwrap());
                    });
                }
            }
        }
    });
}

/// Goroutines that run for a moment at a time, and how many ran at once.
struct Busy {
    over: AtomicBool,
    running: AtomicUsize,
    most: AtomicUsize,
    turns: Vec<AtomicUsize>,
}

impl Busy {
    fn start(rt: &Runtime, size: usize) -> (Arc<Self>, Vec<gmp::JoinHandle<()>>) {
        let [running, most] = [(); 2].map(|()| AtomicUsize::new(0));
        let turns = (0..size).map(|_| AtomicUsize::new(0)).collect();
        let busy = Arc::new(Busy { over: AtomicBool::new(false), running, most, turns });
        let member = |number: usize| {
            let busy = Arc::clone(&busy);
            rt.go(move || {
                while !busy.over.load(SeqCst) {
                    busy.most.fetch_max(busy.running.fetch_add(1, SeqCst) + 1, SeqCst);
                    (0..200).for_each(|_| std::hint::spin_loop());
                    busy.running.fetch_sub(1, SeqCst);
                    busy.turns[number].fetch_add(1, SeqCst);
                    yield_now();
                }
            })
        };
        let members = (0..size).map(member).collect();
        (busy, members)
    }

    /// Waits until each goroutine has been through the scheduler `often` times more.
    fn pass(&self, often: usize) {
        let before: Vec<_> = self.turns.iter().map(|turns| turns.load(SeqCst)).collect();
        let passed = |(turns, before): (&AtomicUsize, &usize)| turns.load(SeqCst) >= before + often;
        until(|| self.turns.iter().zip(&before).all(passed));
    }
}

/// Fails by a hang when, for good, more goroutines run at the same time than there are Ps; or when a goroutine in the queue of
/// a P that retired never runs. (More may run for a slice: the kernel may preempt a thread that has just looked whether its P
/// is surplus.)
#[test]
fn after_shrinking_no_more_run_at_the_same_time() {
    child::without_retakes("after_shrinking_no_more_run_at_the_same_time", || {
        for start in PROCS {
            watched(start, || {
                let rt = runtime(start);
                let (busy, members) = Busy::start(&rt, 3 * start + 5);
                for (step, procs) in [start, start.div_ceil(2), 1, 8, 3, 1].into_iter().enumerate() {
                    match step % 2 {
                        0 => rt.set_procs(procs),
                        // A goroutine sets the number, and its own P may be surplus then.
                        _ => rt.run(move || gmp::set_procs(procs)),
                    };
                    until(|| {
                        busy.pass(2);
                        busy.most.store(0, SeqCst);
                        busy.pass(20);
                        busy.most.load(SeqCst) <= procs
                    });
                }
                busy.over.store(true, SeqCst);
                members.into_iter().for_each(|member| member.join().unwrap());
            });
        }
    });
}

/// Fails by a hang when a goroutine keeps a surplus P, and the goroutines that it has started stay in that P's queue.
#[test]
fn what_stands_behind_a_goroutine_on_a_surplus_p_is_run() {
    child::without_retakes("what_stands_behind_a_goroutine_on_a_surplus_p_is_run", || {
        for procs in PROCS.into_iter().filter(|&procs| procs > 1) {
            watched(procs, || {
                for _ in 0..20 {
                    let rt = runtime(procs);
                    let meeting = Arc::new(Barrier::new(procs));
                    let keep = || {
                        let meeting = Arc::clone(&meeting);
                        rt.go(move || {
                            attend(&meeting);
                            // All members but one are on a P that becomes surplus now.
                            gmp::set_procs(1);
                            let ran = Arc::new(AtomicUsize::new(0));
                            let child = || {
                                let ran = Arc::clone(&ran);
                                go(move || add_one(&ran))
                            };
                            let children = [child(), child(), child()];
                            (0..1000).for_each(|_| std::hint::spin_loop());
                            children.into_iter().for_each(|child| child.join().unwrap());
                            assert_eq!(ran.load(SeqCst), 3);
                        })
                    };
                    let keepers: Vec<_> = (0..procs).map(|_| keep()).collect();
                    keepers.into_iter().for_each(|keeper| keeper.join().unwrap());
                }
            });
        }
    });
}

/// Fails by a count in the trace when one of two goroutines that never call the runtime keeps a surplus P, though no goroutine
/// waits for one: of the three Ps that there are afterwards only one is then idle.
#[test]
fn a_goroutine_that_keeps_a_surplus_p_loses_it() {
    const TEST: &str = "a_goroutine_that_keeps_a_surplus_p_loses_it";
    if !child::is_child() {
        let trace = child::passes(TEST, &[("GMPDEBUG", "schedtrace=50")]);
        return assert!(trace.contains("gomaxprocs=3 idleprocs=2 "), "{trace}");
    }
    let rt = runtime(2);
    let (meeting, over) = (Arc::new(Barrier::new(3)), Arc::new(AtomicBool::new(false)));
    let spin = || {
        let (meeting, over) = (Arc::clone(&meeting), Arc::clone(&over));
        rt.go(move || {
            attend(&meeting);
            while !over.load(SeqCst) {
                std::hint::spin_loop();
            }
        })
    };
    let spinning = [spin(), spin()];
    attend(&meeting);
    rt.set_procs(1);
    thread::sleep(500 * MS);
    rt.set_procs(3);
    thread::sleep(500 * MS);
    over.store(true, SeqCst);
    spinning.into_iter().for_each(|one| one.join().unwrap());
}

/// Fails by a growing count when goroutines that are bound to their threads, and yield, stay on surplus Ps, though no M looks
/// for work there.
#[test]
fn locked_goroutines_that_yield_give_a_surplus_p_up() {
    child::without_retakes("locked_goroutines_that_yield_give_a_surplus_p_up", || {
        watched(2, || {
            let rt = runtime(2);
            let (over, running) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
            let together = Arc::new(AtomicUsize::new(0));
            let work = || {
                let (over, running) = (Arc::clone(&over), Arc::clone(&running));
                let together = Arc::clone(&together);
                rt.go(move || {
                    gmp::lock_os_thread();
                    while !over.load(SeqCst) {
                        together.fetch_add(running.fetch_add(1, SeqCst), SeqCst);
                        (0..1000).for_each(|_| std::hint::spin_loop());
                        running.fetch_sub(1, SeqCst);
                        yield_now();
                    }
                })
            };
            let working = [work(), work()];
            until(|| together.load(SeqCst) > 0);
            rt.set_procs(1);
            // A goroutine whose thread the kernel preempts may reach its next yield late.
            let quiet = || {
                let before = together.load(SeqCst);
                thread::sleep(100 * MS);
                together.load(SeqCst) == before
            };
            assert!((0..50).any(|_| quiet()), "both go on");
            assert!(quiet() || quiet(), "and again");
            over.store(true, SeqCst);
            working.into_iter().for_each(|one| one.join().unwrap());
        });
    });
}

/// Returns how long the other P takes to run many goroutines that are queued behind one that spins.
fn helped_after(rt: &Runtime) -> Duration {
    let (over, ran) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let ended = Arc::clone(&over);
    let busy = rt.go(move || {
        while !ended.load(SeqCst) {
            yield_now();
        }
    });
    let took = rt.go(move || {
        let mut took = Duration::ZERO;
        for _ in 0..10 {
            ran.store(0, SeqCst);
            for _ in 0..64 {
                let ran = Arc::clone(&ran);
                drop(go(move || add_one(&ran)));
            }
            let start = Instant::now();
            while ran.load(SeqCst) < 64 {
                std::hint::spin_loop();
            }
            took += start.elapsed();
        }
        took
    });
    let took = took.join().unwrap();
    over.store(true, SeqCst);
    busy.join().unwrap();
    took
}

/// Fails by minutes when the helper looks at the many Ps that are no longer in use, and only once in a thousand times at the
/// busy P.
#[test]
fn helpers_pass_over_ps_that_went() {
    child::without_retakes("helpers_pass_over_ps_that_went", || {
        watched(1024, || {
            let as_soon = || {
                let usual = helped_after(&runtime(2));
                let rt = runtime(1024);
                rt.set_procs(2);
                let shrunk = helped_after(&rt);
                println!("two Ps: {usual:?}; two that are left: {shrunk:?}");
                shrunk < 4 * usual + 100 * MS
            };
            assert!((0..5).any(|_| as_soon()), "those that are left help each other less");
        });
    });
}

/// Fails when no M helps in any round, because a goroutine keeps a surplus P, and the goroutines behind it are in no queue at
/// which busy Ms look. Which of the two Ps retires is a matter of luck.
#[test]
fn a_surplus_p_that_is_kept_is_helped() {
    child::without_retakes("a_surplus_p_that_is_kept_is_helped", || {
        watched(2, || {
            let helped = (0..60).any(|_| {
                let rt = runtime(2);
                let over = Arc::new(AtomicBool::new(false));
                let ended = Arc::clone(&over);
                let busy = rt.go(move || {
                    while !ended.load(SeqCst) {
                        yield_now();
                    }
                });
                let helped = rt.go(|| {
                    let ran = Arc::new(AtomicUsize::new(0));
                    let child = || {
                        let ran = Arc::clone(&ran);
                        move || add_one(&ran)
                    };
                    gmp::set_procs(1);
                    (0..8).for_each(|_| drop(go(child())));
                    let start = Instant::now();
                    while ran.load(SeqCst) < 8 && start.elapsed() < 300 * MS {
                        std::hint::spin_loop();
                    }
                    ran.load(SeqCst) == 8
                });
                let helped = helped.join().unwrap();
                over.store(true, SeqCst);
                busy.join().unwrap();
                helped
            });
            assert!(helped, "nobody came");
        });
    });
}

/// Fails by a hang, or by lateness, when the timers of a retired P are forgotten, or wait for an M that looks every now and
/// then. The one P that is left is idle, busy with one goroutine, or busy with many that take turns.
#[test]
fn timers_of_ps_that_went_fire_in_time() {
    const LATE: Duration = Duration::from_millis(250);
    for busy in [0, 1, 50] {
        watched(8, || {
            let rt = runtime(8);
            let over = Arc::new(AtomicBool::new(false));
            let (ticks, fired) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let meeting = Arc::new(Barrier::new(8));
            // One goroutine on each P.
            let late: Vec<_> = (0..8)
                .map(|_| {
                    let (meeting, fired, ticks, over) =
                        (Arc::clone(&meeting), Arc::clone(&fired), Arc::clone(&ticks), Arc::clone(&over));
                    rt.go(move || {
                        gmp::blocking(|| attend(&meeting));
                        drop(after_func(30 * MS, move || add_one(&fired)));
                        let ticker = Ticker::new(5 * MS);
                        go(move || {
                            while !over.load(SeqCst) {
                                ticker.receiver().recv().unwrap();
                                ticks.fetch_add(1, SeqCst);
                            }
                        });
                        let start = Instant::now();
                        sleep(20 * MS);
                        start.elapsed().checked_sub(20 * MS).expect("a sleep ended early")
                    })
                })
                .collect();
            until(|| ticks.load(SeqCst) > 8);
            rt.set_procs(1);
            let turners: Vec<_> = (0..busy)
                .map(|_| {
                    let over = Arc::clone(&over);
                    rt.go(move || until(|| over.load(SeqCst)))
                })
                .collect();
            let late: Vec<_> = late.into_iter().map(|late| late.join().unwrap()).collect();
            let ticked = ticks.load(SeqCst);
            until(|| fired.load(SeqCst) == 8 && ticks.load(SeqCst) > ticked + 80);
            over.store(true, SeqCst);
            turners.into_iter().for_each(|turner| turner.join().unwrap());
            until(|| rt.num_goroutines() == 0);
            let worst = late.iter().max().unwrap();
            println!("{busy} busy: late by at most {worst:?}");
            assert!(*worst < LATE, "{busy} busy: late by {worst:?}");
        });
    }
}

/// Changes the number again and again, from a thread and from a goroutine at once, until `work` is done.
fn under_flips(rt: &Runtime, work: impl FnOnce()) {
    let over = Arc::new(AtomicBool::new(false));
    let flip = |seed: usize| {
        let over = Arc::clone(&over);
        move |set: &dyn Fn(usize) -> usize| {
            for step in seed.. {
                let before = set(next_procs(step));
                assert!((1..=8).contains(&before), "{before} procs");
                if over.load(SeqCst) {
                    return;
                }
                yield_now();
            }
        }
    };
    let (by_goroutine, by_thread) = (flip(3), flip(0));
    let goroutine = rt.go(move || by_goroutine(&gmp::set_procs));
    thread::scope(|s| {
        s.spawn(|| by_thread(&|procs| rt.set_procs(procs)));
        work();
        over.store(true, SeqCst);
    });
    goroutine.join().unwrap();
}

/// Fails by a hang or a count when a goroutine is lost or run twice, whether a thread or a goroutine changes the number.
#[test]
fn a_storm_of_spawns_loses_nothing_while_the_number_changes() {
    for procs in PROCS {
        watched(procs, || {
            let rt = runtime(procs);
            let ran = Arc::new(AtomicUsize::new(0));
            under_flips(&rt, || {
                for _ in 0..flips() / 10 {
                    let parents: Vec<_> = (0..10)
                        .map(|_| {
                            let ran = Arc::clone(&ran);
                            rt.go(move || {
                                let children: Vec<_> = (0..10)
                                    .map(|_| {
                                        let ran = Arc::clone(&ran);
                                        go(move || add_one(&ran))
                                    })
                                    .collect();
                                children.into_iter().for_each(|child| child.join().unwrap());
                            })
                        })
                        .collect();
                    parents.into_iter().for_each(|parent| parent.join().unwrap());
                }
            });
            assert_eq!(ran.load(SeqCst), flips() / 10 * 100);
        });
    }
}

/// Fails by a hang, or by a sum, when a message, a sleeper, a goroutine in a blocking call, or a socket is forgotten.
#[test]
fn channels_timers_blocking_calls_and_sockets_go_on_while_the_number_changes() {
    for procs in PROCS {
        watched(procs, || {
            let rt = runtime(procs);
            let rounds = flips() / 4;
            under_flips(&rt, || {
                let mut all = Vec::new();
                for _ in 0..4 {
                    let (there, here) = bounded::<usize>(1);
                    all.push(rt.go(move || (0..rounds).for_each(|n| there.send(n).unwrap())));
                    all.push(
                        rt.go(move || assert_eq!(here.iter().sum::<usize>(), rounds * (rounds - 1) / 2)),
                    );
                    all.push(rt.go(move || (0..rounds / 10).for_each(|n| sleep(n as u32 % 4 * MS / 4))));
                    all.push(rt.go(move || {
                        (0..rounds / 10).for_each(|_| gmp::blocking(|| thread::sleep(MS / 10)));
                    }));
                }
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let addr = listener.local_addr().unwrap();
                all.push(rt.go(move || {
                    let (mut near, _) = listener.accept().unwrap();
                    let mut byte = [0];
                    while near.read(&mut byte).unwrap() == 1 {
                        near.write_all(&byte).unwrap();
                    }
                }));
                all.push(rt.go(move || {
                    let (mut far, mut byte) = (TcpStream::connect(addr).unwrap(), [0]);
                    for round in 0..rounds / 2 {
                        far.write_all(&[round as u8]).unwrap();
                        far.read_exact(&mut byte).unwrap();
                        assert_eq!(byte, [round as u8]);
                    }
                }));
                all.into_iter().for_each(|one| one.join().unwrap());
            });
            // After all this, eight Ps still run eight goroutines at the same time.
            let meeting = Barrier::new(8);
            rt.set_procs(8);
            rt.run(|| {
                gmp::scope(|s| {
                    (0..8).for_each(|_| drop(s.go(|| attend(&meeting))));
                });
            });
        });
    }
}

/// Fails by a hang, or by an unclean end.
#[test]
fn a_runtime_ends_while_the_number_changes() {
    for procs in PROCS {
        watched(procs, || {
            for round in 0..30 {
                let rt = runtime(procs);
                for seed in 0..3 {
                    drop(rt.go(move || {
                        for step in seed.. {
                            gmp::set_procs(next_procs(step));
                            yield_now();
                        }
                    }));
                }
                rt.run(move || sleep(round % 4 * MS / 4));
                // The goroutines are left where they yield; no thread stays.
                assert_eq!(rt.shutdown(Duration::from_secs(30)).threads_left(), 0);
            }
        });
    }
}
