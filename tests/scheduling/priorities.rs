//! Classes of goroutines: which class goes first, which class does not starve, and which operations know a class.

use crate::measure::{LOOK, SLICE, alone, is_quiet, is_quiet_on, median, percentile, spin_for};
use common::cpu::{confine, cpus};
use common::gate::Gate;
use common::policies::policies;
use common::within::within;
use common::{child, until, watched};
use gmp::context::Context;
use gmp::net::{TcpListener, TcpStream};
use gmp::policy::{Policy, WorkStealing};
use gmp::sync::{Event, Mutex as GMutex, WaitGroup};
use gmp::time::sleep;
use gmp::{Builder, JoinHandle, Priority, Runtime, chan, go, priority, yield_now};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const CLASSES: [Priority; 4] = [Priority::High, Priority::Normal, Priority::Low, Priority::Background];

fn runtime_under(policy: impl Into<Policy>, procs: usize) -> Runtime {
    // SAFETY: no goroutine of these tests keeps a thread-bound value across a blocking call.
    unsafe { Runtime::builder().procs(procs).stack_size(64 << 10).policy(policy).build() }
        .expect("a runtime starts")
}

fn stealing(procs: usize) -> Runtime {
    runtime_under(WorkStealing::new(), procs)
}

fn spawn<T: Send + 'static>(class: Priority, f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().priority(class).go(f).expect("there is room for a stack")
}

fn join_all(all: impl IntoIterator<Item = JoinHandle<()>>) {
    all.into_iter().for_each(|one| one.join().unwrap());
}

/// The order in which goroutines have run.
#[derive(Clone, Default)]
struct Order(Arc<Mutex<Vec<(Priority, usize)>>>);

impl Order {
    /// Returns the body of a goroutine, which notes `class` and `n`.
    fn noting(&self, class: Priority, n: usize) -> impl FnOnce() + Send + 'static {
        let this = self.clone();
        move || this.0.lock().unwrap().push((class, n))
    }

    fn taken(&self) -> Vec<(Priority, usize)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// On one P, under every policy, main starts goroutines of all classes in an order that is not that of the classes. Fails when
/// a lower class goes before a higher one, or a younger goroutine before an older one of its class; the policy decides the
/// order within `Normal`.
#[test]
fn the_higher_class_goes_first_and_the_older_one_in_a_class() {
    // Main is to keep the P until all goroutines are queued.
    child::in_order("the_higher_class_goes_first_and_the_older_one_in_a_class", || {
        let _alone = alone();
        order_of_classes();
    });
}

fn order_of_classes() {
    const EACH: usize = 40;
    for policy in policies() {
        watched(1, || {
            let order = Order::default();
            let noted = order.clone();
            // SAFETY: as in `runtime_under`.
            let rt =
                unsafe { Runtime::builder().procs(1).policy(policy).low_share(u32::MAX).build() }.unwrap();
            rt.run(move || {
                let classes = [Priority::Low, Priority::Background, Priority::Normal, Priority::High];
                let all = (0..EACH).flat_map(|n| classes.map(|class| spawn(class, noted.noting(class, n))));
                join_all(Vec::from_iter(all));
            });
            let ran = order.taken();
            let of = |class| Vec::from_iter(ran.iter().filter(|it| it.0 == class).map(|it| it.1));
            for class in [Priority::High, Priority::Low, Priority::Background] {
                assert_eq!(of(class), Vec::from_iter(0..EACH), "{policy}, {class}");
            }
            let classes = Vec::from_iter(ran.iter().map(|it| it.0));
            assert_eq!(classes, Vec::from_iter(CLASSES.iter().flat_map(|&class| [class; EACH])), "{policy}");
        });
    }
}

/// A High goroutine comes when 10,000 Low ones are queued on all Ps. Fails when in the median more of these run before it than
/// one running piece on each P. A goroutine submits it, which has a P to itself until it waits, or a foreign thread does.
#[test]
fn a_high_goroutine_behind_10000_low_ones_runs_after_at_most_one_slice_a_p() {
    let _alone = alone();
    let submitters = [("a goroutine", false), ("a thread", true)];
    for (procs, (by, is_thread)) in [1, 2, 4].into_iter().flat_map(|procs| submitters.map(|by| (procs, by))) {
        watched(procs, || {
            let all_between = low_begun_before_each_high(&stealing(procs), is_thread);
            // The maximum is not judged: where the kernel takes a thread off its CPU in between, the other Ps go on for
            // milliseconds.
            let (p50, most) = (median(&all_between), all_between.iter().max().expect("some"));
            println!(
                "procs {procs}: {p50} Low ones, at most {most}, began between a High one's submission by {by} and its run"
            );
            let most = if is_quiet_on(procs) { procs } else { 2 * procs };
            assert!(p50 <= most, "procs {procs}, by {by}: {all_between:?}");
        });
    }
}

const LOW: usize = 10_000;
const HIGH: usize = 20;

/// Returns for each High goroutine how many of 10,000 queued Low ones begin between its submission and its run.
fn low_begun_before_each_high(rt: &Runtime, by_a_thread: bool) -> Vec<usize> {
    let mut all_between = Vec::with_capacity(HIGH);
    // The kernel may keep the thread from its CPU for as long as the Low ones last.
    for _ in 0..50 {
        let ran = Arc::new(AtomicUsize::new(0));
        let low = rt.run(|| {
            let all = Vec::from_iter((0..LOW).map(|_| {
                let ran = Arc::clone(&ran);
                spawn(Priority::Low, move || {
                    ran.fetch_add(1, SeqCst);
                    spin_for(Duration::from_micros(10));
                })
            }));
            // Until all Ps run Low goroutines.
            until_yielding(|| ran.load(SeqCst) > 100);
            if !by_a_thread {
                submit_high_goroutines(&ran, &mut all_between, &rt.handle());
            }
            all
        });
        if by_a_thread {
            submit_high_goroutines(&ran, &mut all_between, &rt.handle());
        }
        join_all(low);
        if all_between.len() == HIGH {
            break;
        }
    }
    all_between
}

fn submit_high_goroutines(ran: &Arc<AtomicUsize>, all_between: &mut Vec<usize>, rt: &gmp::Handle) {
    while all_between.len() < HIGH {
        let high = Builder::new().priority(Priority::High);
        let (before, ran) = (ran.load(SeqCst), Arc::clone(ran));
        let seen = high.go_in(rt, move || ran.load(SeqCst)).unwrap().join().unwrap();
        if seen == LOW {
            break;
        }
        all_between.push(seen - before);
    }
}

fn until_yielding(reached: impl Fn() -> bool) {
    while !reached() {
        yield_now();
    }
}

/// Two Normal goroutines are always ready, and Low ones, too. Fails when the Low ones have no turn, or more than their share.
#[test]
fn low_goroutines_are_not_starved_and_have_their_share() {
    let _alone = alone();
    for share in [3, 10, 61] {
        watched(1, || {
            // SAFETY: as in `runtime_under`.
            let rt =
                unsafe { Runtime::builder().procs(1).low_share(share).policy(WorkStealing::new()).build() }
                    .unwrap();
            let turns = Arc::new([const { AtomicUsize::new(0) }; 2]);
            let stop = Arc::new(AtomicBool::new(false));
            rt.run(|| {
                let yields = |class, at: usize| {
                    let (turns, stop) = (Arc::clone(&turns), Arc::clone(&stop));
                    spawn(class, move || {
                        while !stop.load(SeqCst) {
                            turns[at].fetch_add(1, SeqCst);
                            yield_now();
                        }
                    })
                };
                let low = [(); 3].map(|()| yields(Priority::Low, 1));
                let normal = [(); 2].map(|()| yields(Priority::Normal, 0));
                until_yielding(|| turns[1].load(SeqCst) >= 200);
                stop.store(true, SeqCst);
                join_all(low.into_iter().chain(normal));
            });
            let [normal, low] = [0, 1].map(|at| turns[at].load(SeqCst));
            println!("share 1 in {share}: {low} turns of Low beside {normal} of two Normal ones and main");
            // Main yields beside the two, about as often as each of them.
            let all = normal + normal / 2 + low;
            assert!(low * share as usize * 2 >= all && low * share as usize <= 2 * all, "{low} of {all}");
        });
    }
}

/// Fails when Normal ones starve beside High ones that are always ready.
#[test]
fn normal_goroutines_have_a_share_beside_high_ones() {
    let _alone = alone();
    watched(1, || {
        stealing(1).run(|| {
            let stop = Arc::new(AtomicBool::new(false));
            let high = [(); 2].map(|()| {
                let stop = Arc::clone(&stop);
                spawn(Priority::High, move || until_yielding(|| stop.load(SeqCst)))
            });
            let low = spawn(Priority::Low, || ());
            (0..100).for_each(|_| yield_now());
            low.join().unwrap();
            stop.store(true, SeqCst);
            join_all(high);
        });
    });
}

/// Fails when Normal ones in the global queue have more than their share beside High ones whose pieces are long.
#[test]
fn visits_give_normal_goroutines_no_turns_beside_high_ones() {
    const PIECE: Duration = Duration::from_micros(300);
    const PIECES: usize = 200;
    let _alone = alone();
    watched(1, || {
        let rt = stealing(1);
        rt.run(|| {
            let ran = Arc::new(AtomicUsize::new(0));
            let normal: Vec<_> = (0..1000)
                .map(|_| {
                    let ran = Arc::clone(&ran);
                    gmp::go_fair(move || {
                        ran.fetch_add(1, SeqCst);
                    })
                })
                .collect();
            let high = [(); 2].map(|()| {
                let ran = Arc::clone(&ran);
                spawn(Priority::High, move || {
                    let before = ran.load(SeqCst);
                    for _ in 0..PIECES / 2 {
                        let begun = Instant::now();
                        while begun.elapsed() < PIECE {}
                        yield_now();
                    }
                    ran.load(SeqCst) - before
                })
            });
            for high in high {
                let beside = high.join().unwrap();
                assert!(beside <= 2 * PIECES / 61 + 2, "{beside} Normal ones beside {PIECES} High pieces");
            }
            join_all(normal);
        });
    });
}

/// Fails when a Background goroutine runs although others are ready, or never runs.
#[test]
fn background_goroutines_run_only_when_nothing_else_does() {
    // If the kernel let a thread wait and the monitor took its P, the thread's goroutine would run on beside the one that has
    // the P then.
    child::without_retakes("background_goroutines_run_only_when_nothing_else_does", || {
        let _alone = alone();
        background_runs_last();
    });
}

fn background_runs_last() {
    watched(1, || {
        stealing(1).run(|| {
            let background = spawn(Priority::Background, || ());
            let low = spawn(Priority::Low, move || (0..1000).for_each(|_| yield_now()));
            for _ in 0..10_000 {
                yield_now();
                assert!(!background.is_finished(), "it ran beside main");
            }
            until_yielding(|| low.is_finished());
            assert!(!background.is_finished(), "it ran beside the Low one");
            low.join().unwrap();
            background.join().unwrap();
        });
    });
}

/// A Background goroutine forks, and in its own branch waits for a Normal one, which computes. Fails when the other branch
/// begins meanwhile, on the P that the monitor has taken from the Normal one.
#[test]
fn a_branch_in_the_background_takes_no_p_from_a_busy_goroutine() {
    watched(1, || {
        stealing(1).run(|| {
            let forker = spawn(Priority::Background, || {
                let begun = Arc::new(AtomicBool::new(false));
                let seen = Arc::clone(&begun);
                let computes = move || {
                    spin_for(5 * SLICE);
                    seen.load(SeqCst)
                };
                gmp::join(|| go(computes).join().unwrap(), || begun.store(true, SeqCst)).0
            });
            assert!(!forker.join().unwrap(), "it was begun beside the Normal one");
        });
    });
}

#[test]
fn a_context_gives_its_class_to_what_it_starts() {
    common::everywhere(|rt| {
        rt.run(|| {
            let (low, _cancel) = Context::background().with_priority(Priority::Low).with_cancel();
            let of = |context: &Context| context.go(|| (priority(), go(priority).join().unwrap()));
            assert_eq!(of(&low).join().unwrap(), Ok((Priority::Low, Priority::Normal)));
            assert_eq!(of(&low.with_value(1).without_cancel()).join().unwrap().unwrap().0, Priority::Low);
            let high = low.with_priority(Priority::High);
            assert_eq!(of(&high).join().unwrap().unwrap().0, Priority::High);
            assert_eq!((high.priority(), low.priority()), (Some(Priority::High), Some(Priority::Low)));
            let normal = low.with_priority(Priority::Normal);
            assert_eq!(of(&normal).join().unwrap().unwrap().0, Priority::Normal);
            assert_eq!(Context::background().priority(), None);
        });
    });
}

/// Fails when a class is lost in any kind of wait, or on the way back from a blocking call.
#[test]
fn a_class_stays_after_blocking_timers_and_sockets() {
    common::everywhere(|rt| {
        rt.run(|| {
            for class in CLASSES {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let address = listener.local_addr().unwrap();
                let echoes = spawn(class, move || {
                    let (mut stream, _) = listener.accept().unwrap();
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    stream.write_all(&byte).unwrap();
                    priority()
                });
                let asks = spawn(class, move || {
                    let mut stream = TcpStream::connect(address).unwrap();
                    sleep(Duration::from_millis(2));
                    gmp::blocking(|| std::thread::sleep(Duration::from_millis(1)));
                    yield_now();
                    stream.write_all(b"x").unwrap();
                    stream.read_exact(&mut [0]).unwrap();
                    priority()
                });
                assert_eq!([echoes.join().unwrap(), asks.join().unwrap()], [class; 2]);
            }
        });
    });
}

/// Sets the class of a goroutine that waits, is queued, runs, has ended, and whose G has another goroutine.
#[test]
fn a_class_is_changed_while_its_goroutine_lives() {
    common::everywhere(|rt| {
        rt.run(|| {
            let (wake, event) = (Arc::new(Event::new()), Arc::new(Event::new()));
            let waits = go({
                let (wake, event) = (Arc::clone(&wake), Arc::clone(&event));
                move || {
                    event.notify_one();
                    wake.wait();
                    let first = priority();
                    assert_eq!(gmp::set_priority(Priority::Background), first);
                    yield_now();
                    (first, priority())
                }
            });
            event.wait();
            assert!(waits.set_priority(Priority::Low));
            wake.notify_one();
            assert_eq!(waits.join().unwrap(), (Priority::Low, Priority::Background));
            let queued = go(priority);
            let _unless_it_has_run = queued.set_priority(Priority::High);
            let seen = queued.join().unwrap();
            assert!([Priority::High, Priority::Normal].contains(&seen), "{seen}");
            for _ in 0..1000 {
                let ends = spawn(Priority::Low, || ());
                until_yielding(|| ends.is_finished());
                assert!(!ends.set_priority(Priority::High), "it has ended");
                ends.join().unwrap();
                // The next goroutine gets the same G, most likely.
                assert_eq!(go(priority).join().unwrap(), Priority::Normal);
            }
        });
    });
}

/// Fails by a hang when a setter on another thread undoes the end of the goroutine, which comes at the same time; or when the
/// class is set after the end was seen, or gets into another goroutine.
#[test]
fn a_class_that_is_changed_beside_the_end_changes_nothing_else() {
    // The end may take as long as the kernel keeps its thread from a core.
    const SETTINGS: usize = 20_000;
    common::everywhere(|rt| {
        for n in within(Duration::from_millis(500), 2_000) {
            let [begun, sets]: [Gate; 2] = Default::default();
            let begins = [begun.clone(), sets.clone()];
            let ends = rt.go(move || {
                begins[0].open();
                // The goroutine ends at once: if it yielded, it would come back when the settings are over.
                while !begins[1].is_open() {
                    std::hint::spin_loop();
                }
                n
            });
            begun.pass();
            sets.open();
            for class in CLASSES.into_iter().cycle().take(SETTINGS) {
                let had_ended = ends.is_finished();
                let was_set = ends.set_priority(class);
                assert!(!(had_ended && was_set), "a class was given to a goroutine that has ended");
                if had_ended {
                    break;
                }
            }
            assert_eq!(ends.join().unwrap(), n);
        }
        assert!((0..100).all(|_| rt.go(priority).join().unwrap() == Priority::Normal));
    });
}

/// Goroutines of all classes wait, yield, change their classes and wake each other while Ps come and go. Fails by a hang when
/// one is lost.
#[test]
fn none_is_lost_while_ps_come_and_go() {
    const ROUNDS: usize = 60;
    const EACH: usize = 64;
    let _alone = alone();
    for policy in policies() {
        watched(4, || {
            runtime_under(policy, 4).run(|| {
                for round in 0..ROUNDS {
                    gmp::set_procs(1 + round * 7 % 4);
                    let (sender, receiver) = chan::bounded::<usize>(round % 3);
                    let receivers = Vec::from_iter((0..EACH).map(|n| {
                        let receiver = receiver.clone();
                        spawn(CLASSES[n % 4], move || {
                            (n % 3..3).for_each(|_| yield_now());
                            if n % 5 == 0 {
                                gmp::set_priority(CLASSES[(n + round) % 4]);
                            }
                            receiver.recv().unwrap();
                        })
                    }));
                    let senders = Vec::from_iter((0..EACH).map(|n| {
                        let sender = sender.clone();
                        spawn(CLASSES[(n + round) % 4], move || {
                            if n % 16 == 0 {
                                gmp::blocking(yield_now);
                            }
                            sender.send(n).unwrap();
                        })
                    }));
                    for (n, one) in receivers.iter().enumerate() {
                        let _maybe = one.set_priority(CLASSES[(n * 3 + round) % 4]);
                    }
                    gmp::set_procs(1 + round * 5 % 4);
                    join_all(receivers.into_iter().chain(senders));
                }
            });
        });
    }
}

/// Fails when a goroutine in a queue of a class, or in a batch, is not told of the end, or when its closure is not dropped.
#[test]
fn what_is_left_in_the_queues_of_the_classes_is_told_of() {
    common::everywhere(|rt| {
        let dropped = Arc::new(());
        let (handles, seen) = std::sync::mpsc::channel();
        let keeps = Arc::clone(&dropped);
        let spawner = rt.go(move || {
            for n in 0..200 {
                let keeps = Arc::clone(&keeps);
                handles.send(spawn(CLASSES[n % 4], move || drop(keeps))).unwrap();
            }
        });
        let handles = Vec::from_iter(seen);
        rt.shutdown_timeout(Duration::ZERO);
        drop(spawner);
        for handle in handles {
            let _maybe = handle.set_priority(Priority::High);
            assert!(handle.join().map_or_else(|error| error.is_shutdown(), |()| true));
        }
        until(|| Arc::strong_count(&dropped) == 1);
    });
}

#[test]
fn a_dump_shows_the_class() {
    common::everywhere(|rt| {
        let (sender, receiver) = chan::bounded::<()>(0);
        let waits = rt.run(|| spawn(Priority::Background, move || assert!(receiver.recv().is_err())));
        until(|| rt.dump().contains("chan receive"));
        let dump = rt.dump();
        assert!(dump.contains("priority background"), "{dump}");
        drop(sender);
        waits.join().unwrap();
    });
}

/// Inversion: a High goroutine waits for a lock. The holder of the lock, a Low goroutine, is ready and stands behind 10,000
/// Normal ones. The lock knows no owner, so nothing raises the Low goroutine; its share bounds the wait. Fails by more turns of
/// Normal goroutines than twice that.
#[test]
fn inversion_is_bounded_by_the_low_share() {
    const NORMAL: usize = 10_000;
    const YIELDS: usize = 5;
    let _alone = alone();
    watched(1, || {
        let (turns, took) = stealing(1).run(|| {
            let (lock, locked) = (Arc::new(GMutex::new(())), Arc::new(Event::new()));
            let holds = spawn(Priority::Low, {
                let (lock, locked) = (Arc::clone(&lock), Arc::clone(&locked));
                move || {
                    let _guard = lock.lock();
                    locked.notify_one();
                    (0..YIELDS).for_each(|_| yield_now());
                }
            });
            locked.wait();
            let (stop, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
            let normal = Vec::from_iter((0..NORMAL).map(|_| {
                let (stop, turns) = (Arc::clone(&stop), Arc::clone(&turns));
                go(move || {
                    while !stop.load(SeqCst) {
                        turns.fetch_add(1, SeqCst);
                        yield_now();
                    }
                })
            }));
            let high = spawn(Priority::High, {
                let turns = Arc::clone(&turns);
                move || {
                    let (before, begun) = (turns.load(SeqCst), Instant::now());
                    drop(lock.lock());
                    (turns.load(SeqCst) - before, begun.elapsed())
                }
            });
            let waited = high.join().unwrap();
            stop.store(true, SeqCst);
            join_all(normal);
            holds.join().unwrap();
            waited
        });
        println!(
            "a High one waited {took:?} and {turns} turns of Normal ones for a Low one behind {NORMAL} of them"
        );
        assert!(turns <= 2 * 61 * (YIELDS + 1), "{turns}");
    });
}

/// Returns how long the echoes of a High goroutine take, as their client, a thread, sees it.
fn echo_times(rt: &Runtime, count: usize) -> Vec<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let echoes = rt
        .go(move || {
            spawn(Priority::High, move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut byte = [0];
                while stream.read(&mut byte).unwrap() == 1 {
                    stream.write_all(&byte).unwrap();
                }
            })
        })
        .join()
        .unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let times = Vec::from_iter((0..count).map(|_| {
        let begun = Instant::now();
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        let took = begun.elapsed();
        std::thread::sleep(Duration::from_micros(200));
        took
    }));
    drop(stream);
    echoes.join().unwrap();
    times
}

/// A High goroutine echoes beside Low goroutines that compute for 20 µs between yields, on one P. Where there are two CPUs the
/// P is bound to one, and the client to the other. In a quiet run p99 is at most that of an idle runtime and two pieces. It is
/// far more when an M looks at the poller too seldom.
#[test]
fn a_high_echo_beside_low_pieces_is_late_by_two_pieces() {
    let count = if is_quiet() { 5_000 } else { 1_000 };
    const PIECE: Duration = Duration::from_micros(20);
    let _alone = alone();
    watched(1, || {
        let all = cpus();
        let rt = match all[..] {
            [of_the_p, of_the_client, ..] => {
                let builder = Runtime::builder().procs(1).stack_size(64 << 10).cpu_sets([[of_the_p]]);
                // SAFETY: as in `runtime_under`.
                let rt = unsafe { builder.policy(WorkStealing::new()).build() }.expect("a runtime starts");
                confine(&[of_the_client]);
                rt
            }
            _ => stealing(1),
        };
        let idle = echo_times(&rt, count);
        let stop = Arc::new(AtomicBool::new(false));
        let low = rt.run(|| {
            Vec::from_iter((0..4).map(|_| {
                let stop = Arc::clone(&stop);
                spawn(Priority::Low, move || {
                    while !stop.load(SeqCst) {
                        spin_for(PIECE);
                        yield_now();
                    }
                })
            }))
        });
        let beside = echo_times(&rt, count);
        confine(&all);
        stop.store(true, SeqCst);
        join_all(low);
        let [idle50, idle99, low50, low99] =
            [(&idle, 50), (&idle, 99), (&beside, 50), (&beside, 99)].map(|(times, at)| percentile(times, at));
        println!(
            "a High echo: idle p50 {idle50:?}, p99 {idle99:?}; beside Low pieces of {PIECE:?} p50 {low50:?}, p99 {low99:?}"
        );
        assert!(!is_quiet() || low99 <= idle99 + 2 * PIECE, "p99 {low99:?}, idle {idle99:?}");
        assert!(low50 <= idle50 + 20 * PIECE, "p50 {low50:?}, idle {idle50:?}");
    });
}

/// A High goroutine comes when Low goroutines that never yield hold all Ps. Fails by a hang. The median of the waits is
/// printed; in a quiet run it is at most a time slice and a look of the monitor. The hogs are started anew for each sample.
#[test]
fn a_high_goroutine_beside_low_hogs_waits_for_a_slice() {
    let samples = if is_quiet() { 50 } else { 5 };
    let _alone = alone();
    for procs in [1, 2] {
        watched(procs, || {
            let rt = stealing(procs);
            let waits = Vec::from_iter((0..samples).map(|_| {
                let (stop, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
                let low = rt.run(|| {
                    Vec::from_iter((0..procs).map(|_| {
                        let (stop, begun) = (Arc::clone(&stop), Arc::clone(&begun));
                        spawn(Priority::Low, move || {
                            begun.fetch_add(1, SeqCst);
                            while !stop.load(SeqCst) {
                                std::hint::spin_loop();
                            }
                        })
                    }))
                });
                until(|| begun.load(SeqCst) == procs);
                let (asked, handle) = (Instant::now(), rt.handle());
                let high = Builder::new().priority(Priority::High);
                let waited = high.go_in(&handle, move || asked.elapsed()).unwrap().join().unwrap();
                stop.store(true, SeqCst);
                join_all(low);
                waited
            }));
            let (p50, most) = (median(&waits), waits.iter().max().expect("some"));
            println!("a High one beside {procs} Low hogs waited p50 {p50:?}, at most {most:?}, of {samples}");
            assert!(!is_quiet_on(procs) || p50 <= SLICE + LOOK, "procs {procs}: {waits:?}");
        });
    }
}

/// Fails when a goroutine is counted in another class, twice, or not at all.
#[test]
fn class_load_counts_waiting_goroutines_and_turns() {
    // Main is to keep the P, so that all goroutines stay where they are.
    child::without_retakes("class_load_counts_waiting_goroutines_and_turns", || {
        let _alone = alone();
        loads_of_classes();
    });
}

fn loads_of_classes() {
    const TURNS: usize = 4;
    watched(1, || {
        let rt = stealing(1);
        let handle = rt.handle();
        let loads = |handle: &gmp::Handle| CLASSES.map(|class| handle.class_load(class));
        rt.run({
            let handle = handle.clone();
            move || {
                assert!(loads(&handle).iter().all(|load| load.waiting == 0 && load.turns.unwrap_or(0) == 0));
                let all = Vec::from_iter(CLASSES.into_iter().enumerate().flat_map(|(n, class)| {
                    (0..=n).map(move |_| spawn(class, || (1..TURNS).for_each(|_| yield_now())))
                }));
                let waiting = loads(&handle).map(|load| load.waiting);
                assert_eq!(waiting, [1, 2, 3, 4], "of {CLASSES:?}");
                join_all(all);
            }
        });
        let after = loads(&handle);
        assert_eq!(after.map(|load| load.waiting), [0; 4]);
        let turns = [1, 3, 4].map(|count| Some((count * TURNS) as u64));
        assert_eq!(after.map(|load| load.turns), [turns[0], None, turns[1], turns[2]]);
        rt.shutdown_timeout(Duration::ZERO);
        assert_eq!(handle.class_load(Priority::High).turns, Some(0), "the runtime has ended");
    });
}

/// Fails when a goroutine or a P is counted twice, or not at all.
#[test]
fn the_load_counts_goroutines_and_ps() {
    child::without_retakes("the_load_counts_goroutines_and_ps", || {
        let _alone = alone();
        load_of_a_runtime();
    });
}

fn load_of_a_runtime() {
    // More than the ring of a P has room for.
    const COUNT: usize = 400;
    watched(1, || {
        let rt = stealing(1);
        let handle = rt.handle();
        let at_rest = |load: gmp::Load| (load.goroutines, load.ready, load.idle_procs) == (0, 0, load.procs);
        until(|| at_rest(handle.load()));
        rt.run({
            let handle = handle.clone();
            move || {
                let numbers = || {
                    let load = handle.load();
                    (load.procs, load.idle_procs, load.goroutines, load.ready)
                };
                assert_eq!(numbers(), (1, 0, 1, 0));
                let all = Vec::from_iter((0..COUNT).map(|n| spawn(CLASSES[n % CLASSES.len()], || ())));
                assert_eq!(numbers(), (1, 0, 1 + COUNT, COUNT));
                join_all(all);
                assert_eq!(numbers(), (1, 0, 1, 0));
                gmp::set_procs(3);
                until(|| numbers() == (3, 2, 1, 0));
                assert!(handle.load().threads >= 2, "one that runs this, and the monitor");
            }
        });
        until(|| at_rest(handle.load()));
        rt.shutdown_timeout(Duration::ZERO);
        assert_eq!(handle.load(), gmp::Load::default(), "the runtime has ended");
    });
}

/// A goroutine starts goroutines of all classes in its own runtime and in another one. Fails by a hang when a runtime's classes
/// are another's.
#[test]
fn each_runtime_has_its_own_classes() {
    common::everywhere(|rt| {
        let other = stealing(1);
        let (tasks, ran) = (Arc::new(WaitGroup::new()), Arc::new(AtomicUsize::new(0)));
        tasks.add(8);
        let handle = other.handle();
        rt.run(|| {
            for class in CLASSES {
                for here in [true, false] {
                    let (tasks, ran) = (Arc::clone(&tasks), Arc::clone(&ran));
                    let f = move || {
                        ran.fetch_add(1, SeqCst);
                        tasks.done();
                    };
                    let builder = Builder::new().priority(class);
                    drop(if here { builder.go(f) } else { builder.go_in(&handle, f) }.unwrap());
                }
            }
            tasks.wait();
        });
        assert_eq!(ran.load(SeqCst), 8);
    });
}
