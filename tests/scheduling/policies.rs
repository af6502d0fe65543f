//! Properties of all scheduling policies, and the differences between them.

use crate::measure::alone;
use common::cpu::process_time;
use common::policies::policies;
use common::{PROCS, child, watched};
use gmp::policy::{Overflow, Policy, WorkStealing};
use gmp::sync::{Event, Mutex as GMutex, WaitGroup};
use gmp::time::sleep;
use gmp::{Runtime, chan, go, lock_os_thread, unlock_os_thread, yield_now};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// More than a ring holds, and less than twice as many.
const MANY: usize = 300;

fn runtime_under(policy: Policy, procs: usize) -> Runtime {
    // SAFETY: no goroutine of these tests keeps a thread-bound value across a blocking call.
    unsafe { Runtime::builder().procs(procs).stack_size(64 << 10).policy(policy).build() }
        .expect("a runtime starts")
}

/// Calls `property` for each policy, and prints the policy's name before, so that the message of a panic comes after it.
#[track_caller]
fn under_each(procs: usize, property: impl Fn(Policy, &Runtime)) {
    for policy in policies() {
        println!("{policy}, procs {procs}");
        watched(procs, || property(policy, &runtime_under(policy, procs)));
    }
}

/// The order in which goroutines have run.
#[derive(Clone, Default)]
struct Order(Arc<Mutex<Vec<usize>>>);

impl Order {
    fn note(&self, who: usize) {
        self.0.lock().unwrap().push(who);
    }

    fn taken(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// YieldAndFairness: one P, two goroutines that yield 1000 times each. Fails when at any moment one is more than ten turns
/// ahead.
#[test]
fn yield_and_fairness_under_every_policy() {
    // If the kernel stopped a thread and the monitor took its P, both goroutines would run at once.
    child::without_retakes("yield_and_fairness_under_every_policy", yield_and_fairness);
}

fn yield_and_fairness() {
    const YIELDS: usize = 1000;
    under_each(1, |_, rt| {
        let turns = Arc::new([const { AtomicUsize::new(0) }; 2]);
        let both = [0, 1].map(|me| {
            let turns = Arc::clone(&turns);
            move || {
                let mut most = 0;
                for turn in 1..=YIELDS {
                    turns[me].store(turn, SeqCst);
                    most = most.max(turn.abs_diff(turns[1 - me].load(SeqCst)));
                    yield_now();
                }
                most
            }
        });
        let apart = rt.run(move || both.map(go).map(|one| one.join().unwrap()));
        assert!(apart.iter().all(|&most| most <= 10), "they are {apart:?} turns apart");
    });
}

/// A goroutine that is bound to its thread yields beside others, so often that some of its yields are visits. Fails when a
/// visit sends the first goroutine of the only queue to the queue's end.
#[test]
fn a_yield_of_a_bound_goroutine_keeps_the_order_of_the_only_queue() {
    child::without_retakes("a_yield_of_a_bound_goroutine_keeps_the_order_of_the_only_queue", || {
        watched(1, || {
            runtime_under(Policy::GlobalFifo, 1).run(|| {
                lock_os_thread();
                let order = Order::default();
                for round in 0..500 {
                    let noting = |who| {
                        let order = order.clone();
                        go(move || order.note(who))
                    };
                    let all: Vec<_> = (0..5).map(noting).collect();
                    yield_now();
                    all.into_iter().for_each(|one| one.join().unwrap());
                    assert_eq!(order.taken(), [0, 1, 2, 3, 4], "round {round}");
                }
                unlock_os_thread();
            });
        });
    });
}

/// A tree of goroutines, rings that overflow, locks, channels, timers, yields, and plain threads that submit. Fails when a
/// goroutine is lost, which ends as a hang, or is run twice.
#[test]
fn every_goroutine_runs_once_under_every_policy() {
    fn tree(depth: usize, ran: &Arc<AtomicUsize>) {
        ran.fetch_add(1, SeqCst);
        if depth > 0 {
            let [one, two] = [(); 2].map(|()| {
                let ran = Arc::clone(ran);
                go(move || tree(depth - 1, &ran))
            });
            one.join().unwrap();
            two.join().unwrap();
        }
    }
    for procs in PROCS {
        under_each(procs, |_, rt| {
            let ran = Arc::new(AtomicUsize::new(0));
            let sum = Arc::new(GMutex::new(0));
            thread::scope(|s| {
                for _ in 0..2 {
                    let (ran, sum) = (Arc::clone(&ran), Arc::clone(&sum));
                    s.spawn(move || {
                        let all: Vec<_> = (0..MANY)
                            .map(|who| {
                                let (ran, sum) = (Arc::clone(&ran), Arc::clone(&sum));
                                rt.go(move || {
                                    if who % 64 == 0 {
                                        sleep(Duration::from_micros(50));
                                    }
                                    let mut sum = sum.lock();
                                    if who % 3 == 0 {
                                        yield_now();
                                    }
                                    *sum += who;
                                    ran.fetch_add(1, SeqCst);
                                })
                            })
                            .collect();
                        all.into_iter().for_each(|one| one.join().unwrap());
                    });
                }
                let (ran, rt) = (Arc::clone(&ran), &rt);
                s.spawn(move || {
                    rt.run(|| {
                        tree(6, &ran);
                        let (done, (send, receive)) = (WaitGroup::new(), chan::bounded(3));
                        for who in 0..2 * MANY {
                            let (ran, send, done) = (Arc::clone(&ran), send.clone(), done.clone());
                            done.add(1);
                            drop(go(move || {
                                send.send(who).unwrap();
                                ran.fetch_add(1, SeqCst);
                                done.done();
                            }));
                        }
                        drop(send);
                        assert_eq!(receive.iter().sum::<usize>(), MANY * (2 * MANY - 1));
                        done.wait();
                    });
                });
            });
            assert_eq!(ran.load(SeqCst), 2 * MANY + 127 + 2 * MANY);
            assert_eq!(rt.run(|| *sum.lock()), MANY * (MANY - 1));
        });
    }
}

/// Two goroutines wake each other, and one yields, when the runtime ends. Fails by the time: if each of the two is woken before
/// it sees that it is interrupted, neither is ever unwound.
#[test]
fn a_pair_is_unwound_under_each_policy() {
    watched(1, || {
        for policy in policies() {
            for _ in 0..20 {
                let rt = runtime_under(policy, 1);
                let ((ping, pinged), (pong, ponged)) = (chan::bounded(0), chan::bounded(0));
                let (tell, begun) = std::sync::mpsc::channel();
                rt.go(move || while ping.send(()).is_ok() && ponged.recv().is_ok() {});
                rt.go(move || {
                    while pinged.recv().is_ok() && pong.send(()).is_ok() {
                        let _told = tell.send(());
                    }
                });
                rt.go(|| {
                    loop {
                        yield_now();
                    }
                });
                begun.recv().unwrap();
                let report = rt.shutdown(Duration::from_secs(3600));
                assert!(report.is_clean(), "{policy}: {report:?}");
            }
        }
    });
}

/// Each goroutine readies or spawns others, on one P. Fails when one runs before another that was ready earlier.
#[test]
fn under_global_fifo_the_order_is_that_of_becoming_ready() {
    let rt = runtime_under(Policy::GlobalFifo, 1);
    watched(1, || {
        let order = Order::default();
        let seen = order.clone();
        rt.run(move || {
            let calls: Arc<Vec<_>> = Arc::new((0..3).map(|_| Event::new()).collect());
            let mut all: Vec<_> = (0..3)
                .map(|who| {
                    let (calls, order) = (Arc::clone(&calls), seen.clone());
                    go(move || {
                        calls[who].wait();
                        order.note(who);
                    })
                })
                .collect();
            yield_now();
            let order = seen.clone();
            all.push(go(move || {
                order.note(10);
                yield_now();
                order.note(20);
            }));
            calls[2].notify_one();
            calls[0].notify_one();
            let order = seen.clone();
            all.push(go(move || order.note(11)));
            calls[1].notify_one();
            all.into_iter().for_each(|one| one.join().unwrap());
        });
        assert_eq!(order.taken(), [10, 2, 0, 11, 1, 20]);
    });
}

/// One goroutine spawns more goroutines than the ring holds, on one P. Fails when the wrong ones stay in the ring: the
/// goroutine that was spawned last runs first, as the next one, and the ring's first goroutine runs after it.
#[test]
fn what_an_overflow_leaves_in_the_ring_is_the_policys() {
    // A thread that took the P would begin with a look at the shared queue.
    child::in_order("what_an_overflow_leaves_in_the_ring_is_the_policys", what_an_overflow_leaves);
}

fn what_an_overflow_leaves() {
    for (overflow, first) in [(Overflow::PutOne, 0), (Overflow::PutHalf, 128)] {
        let rt = runtime_under(WorkStealing::new().overflow(overflow).into(), 1);
        watched(1, || {
            let order = Order::default();
            let seen = order.clone();
            rt.run(move || {
                let spawn = |who| {
                    let order = seen.clone();
                    go(move || order.note(who))
                };
                let all: Vec<_> = (0..MANY).map(spawn).collect();
                all.into_iter().for_each(|one| one.join().unwrap());
            });
            let order = order.taken();
            assert_eq!(order[..2], [MANY - 1, first], "{overflow:?}");
            assert_eq!(order.len(), MANY);
        });
    }
}

/// Runs a program whose order is not specified: spawns, wake-ups, yields. The program has no lock, as a lock is handed over
/// when a waiter has waited for a millisecond, and no select, as a select goes over its channels in the order of their
/// addresses.
fn drawn(seed: u64) -> Vec<usize> {
    let rt = runtime_under(Policy::Random(seed), 1);
    watched(1, || {
        let order = Order::default();
        let seen = order.clone();
        rt.run(move || {
            let ((send, receive), (other, others)) = (chan::bounded(2), chan::bounded(2));
            let all: Vec<_> = (0..20)
                .map(|who| {
                    let (order, send, other) = (seen.clone(), send.clone(), other.clone());
                    go(move || {
                        for step in 0..3 {
                            order.note(100 * step + who);
                            yield_now();
                            if who % 2 == 0 { send.send(who).unwrap() } else { other.send(who).unwrap() }
                        }
                    })
                })
                .collect();
            for _ in 0..30 {
                seen.note(1000 + receive.recv().unwrap());
                seen.note(2000 + others.recv().unwrap());
            }
            all.into_iter().for_each(|one| one.join().unwrap());
        });
        order.taken()
    })
}

/// Fails by a hang when two goroutines that wake each other keep a third one, which has yielded, from running.
#[test]
fn nobody_waits_for_ever_under_any_policy() {
    under_each(1, |_, rt| {
        watched(1, || {
            rt.run(|| {
                let over = Arc::new(AtomicUsize::new(0));
                let ((ping, pings), (pong, pongs)) = (chan::bounded(0), chan::bounded(0));
                let ends = Arc::clone(&over);
                let answers = go(move || pings.iter().for_each(|()| pong.send(()).unwrap()));
                let yields = go(move || {
                    yield_now();
                    ends.store(1, SeqCst);
                });
                while over.load(SeqCst) == 0 {
                    ping.send(()).unwrap();
                    pongs.recv().unwrap();
                }
                drop(ping);
                answers.join().unwrap();
                yields.join().unwrap();
            });
        });
    });
}

/// Fails when one seed gives two orders on one P, or two seeds give one order. In this process the monitor takes no P, as that
/// would depend on time.
#[test]
fn random_is_reproducible_by_its_seed_on_one_p() {
    const NAME: &str = "random_is_reproducible_by_its_seed_on_one_p";
    if !child::is_child() {
        let _alone = alone();
        child::passes(NAME, &[("GMPDEBUG", "handoff=0,helping=0")]);
        return;
    }
    let orders: Vec<_> = (0..8).map(drawn).collect();
    for (seed, order) in orders.iter().enumerate() {
        for _ in 0..4 {
            let again = drawn(seed as u64);
            let same = again.iter().zip(order).take_while(|(one, other)| one == other).count();
            assert_eq!(&again, order, "seed {seed}, from {same} on");
        }
        assert!(!orders[..seed].contains(order), "seed {seed} has the order of another");
    }
}

/// Fails when there is an order of three goroutines that no seed draws, or when one is drawn far too seldom.
#[test]
fn random_draws_every_order() {
    let mut drawn = std::collections::BTreeMap::<_, usize>::new();
    for seed in 0..240 {
        let rt = runtime_under(Policy::Random(seed), 1);
        let order = Order::default();
        let seen = order.clone();
        rt.run(move || {
            let all = [0, 1, 2].map(|who| {
                let order = seen.clone();
                go(move || order.note(who))
            });
            all.into_iter().for_each(|one| one.join().unwrap());
        });
        *drawn.entry(order.taken()).or_default() += 1;
    }
    assert!(drawn.len() == 6 && drawn.values().all(|&times| times >= 20), "{drawn:?}");
}

/// All Ms run the work that one goroutine has spawned: each of the spawned goroutines keeps its thread until as many run as
/// there are Ps. Fails by a hang when the spawner waits for ever.
#[test]
fn all_ps_run_something_under_every_policy() {
    for procs in [2, 4] {
        under_each(procs, |_, rt| {
            let running = Arc::new(AtomicUsize::new(0));
            rt.run(move || {
                let all: Vec<_> = (0..procs)
                    .map(|_| {
                        let running = Arc::clone(&running);
                        go(move || {
                            running.fetch_add(1, SeqCst);
                            while running.load(SeqCst) < procs {
                                thread::yield_now();
                            }
                        })
                    })
                    .collect();
                all.into_iter().for_each(|one| one.join().unwrap());
            });
        });
    }
}

/// Runtimes of all policies are idle for 500 ms. Fails when the whole process uses more than 5 ms of CPU time, three times in a
/// row. A thread that looks at something now and then would use as much.
#[test]
fn an_idle_runtime_of_500_ms_uses_about_no_cpu_under_every_policy() {
    if !child::is_child() {
        let _alone = alone();
        child::passes("an_idle_runtime_of_500_ms_uses_about_no_cpu_under_every_policy", &[]);
        return;
    }
    const IDLE: Duration = Duration::from_millis(500);
    let idle_time = || {
        let before = process_time();
        thread::sleep(IDLE);
        process_time() - before
    };
    // All runtimes at once: they are to be idle together, and the test is to be short.
    let runtimes = Vec::from_iter(policies().into_iter().map(|policy| {
        let rt = runtime_under(policy, 2);
        rt.run(|| {
            let all = Vec::from_iter((0..100).map(|_| go(|| (0..10).for_each(|_| yield_now()))));
            all.into_iter().for_each(|one| one.join().unwrap());
        });
        drop(rt.go(|| sleep(Duration::from_secs(3600))));
        (policy, rt)
    }));
    // Meanwhile threads that have just gone to rest take their last looks.
    thread::sleep(IDLE);
    let used = [(); 3].map(|()| idle_time());
    println!("{} idle runtimes used {used:?} of a CPU in {IDLE:?} each time", runtimes.len());
    assert!(used.iter().any(|used| *used <= Duration::from_millis(5)), "{used:?}");
    for (_, rt) in runtimes {
        let _has_a_sleeper = rt.shutdown_timeout(Duration::ZERO);
    }
}

/// The environment's policy holds for a builder that sets none. Fails by the order of work stealing, whose last spawned
/// goroutine runs first.
#[test]
fn the_environment_names_the_policy_of_a_silent_builder() {
    const NAME: &str = "the_environment_names_the_policy_of_a_silent_builder";
    if !child::is_child() {
        child::passes(NAME, &[("GMPDEBUG", "policy=fifo")]);
        return;
    }
    let order_of = |rt: Runtime| {
        let order = Order::default();
        let seen = order.clone();
        rt.run(move || {
            let all = [0, 1, 2].map(|who| {
                let order = seen.clone();
                go(move || order.note(who))
            });
            all.into_iter().for_each(|one| one.join().unwrap());
        });
        order.taken()
    };
    assert_eq!(order_of(common::runtime(1)), [0, 1, 2]);
    assert_eq!(order_of(runtime_under(Policy::default(), 1)), [2, 0, 1], "the builder's word counts");
}
