//! Which goroutine runs next: oneTBB's rules for a worker that has finished a task, one by one; `go_fair` beside goroutines
//! that keep every P; hints that name a P.

use crate::measure::{LOOK, SLICE, alone, is_quiet, is_quiet_on, median, spin_for};
use common::policies::policies;
use common::{child, runtime, until, watched};
use gmp::policy::{Policy, WorkStealing};
use gmp::sync::WaitGroup;
use gmp::{Affinity, Builder, JoinHandle, Runtime, chan, go, go_fair, yield_now, yield_to};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Starts a runtime with rings, whatever `GMPDEBUG` says.
fn stealing(procs: usize) -> Runtime {
    runtime_under(WorkStealing::new(), procs)
}

fn runtime_under(policy: impl Into<Policy>, procs: usize) -> Runtime {
    // SAFETY: no goroutine of these tests keeps a thread-bound value across a blocking call.
    unsafe { Runtime::builder().procs(procs).stack_size(64 << 10).policy(policy).build() }
        .expect("a runtime starts")
}

/// The order in which goroutines have run.
#[derive(Clone, Default)]
struct Order(Arc<Mutex<Vec<String>>>);

impl Order {
    fn note(&self, who: impl Into<String>) {
        self.0.lock().unwrap().push(who.into());
    }

    /// Returns the body of a goroutine, which notes `who`.
    fn noting(&self, who: impl Into<String>) -> impl FnOnce() + Send + 'static {
        let (this, who) = (self.clone(), who.into());
        move || this.note(who)
    }

    fn so_far(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Fails unless `second` came right after `first`.
    #[track_caller]
    fn assert_next(&self, first: &str, second: &str) {
        let all = self.so_far();
        let at =
            |who| all.iter().position(|it| it == who).unwrap_or_else(|| panic!("{who} is not in {all:?}"));
        assert_eq!(at(second), at(first) + 1, "{second} is to come right after {first}: {all:?}");
    }
}

fn join_all(all: impl IntoIterator<Item = JoinHandle<()>>) {
    all.into_iter().for_each(|one| one.join().unwrap());
}

/// Runs `body` on one P, without timers, helpers or other Ms.
fn on_one_p(body: impl FnOnce(&Order) + Send + 'static) {
    on_one_p_under(WorkStealing::new(), body);
}

fn on_one_p_under(policy: WorkStealing, body: impl FnOnce(&Order) + Send + 'static) {
    watched(1, || {
        let order = Order::default();
        runtime_under(policy, 1).run(move || body(&order));
    });
}

/// Returns a policy for each kind of queue that a P can have: the queue under a lock exists under the cfg `gmp_policies` only.
fn kinds_of_queues() -> Vec<WorkStealing> {
    let ring = WorkStealing::new();
    #[cfg(gmp_policies)]
    return vec![ring, ring.mutex_queue()];
    #[cfg(not(gmp_policies))]
    vec![ring]
}

/// Rule 1, bypass: the goroutine that is named runs next. Fails when a goroutine before it in the queue, or the one in
/// `runnext`, does.
#[test]
fn bypass_the_named_goroutine_runs_next() {
    child::in_order("bypass_the_named_goroutine_runs_next", yields_to_a_named_goroutine);
}

fn yields_to_a_named_goroutine() {
    let _alone = alone();
    for (policy, named) in kinds_of_queues().into_iter().flat_map(|policy| [0, 7, 99].map(|at| (policy, at)))
    {
        on_one_p_under(policy, move |order| {
            let all = Vec::from_iter((0..100).map(|n| go(order.noting(n.to_string()))));
            order.note("caller");
            yield_to(&all[named]);
            join_all(all);
            order.assert_next("caller", &named.to_string());
            // The other goroutines keep their order; the last one stood before them, and went to the end.
            let mut rest = Vec::from_iter(order.so_far().into_iter().skip(2));
            let last = if named == 99 { None } else { rest.pop() };
            assert!(last.is_none_or(|last| last == "99"), "{rest:?}");
            assert!(rest.is_sorted_by_key(|who| who.parse::<u32>().unwrap()), "{rest:?}");
        });
    }
}

/// Fails when no M looks in the mailbox for the goroutine that is named.
#[test]
fn bypass_one_in_the_mailbox_runs_next() {
    child::in_order("bypass_one_in_the_mailbox_runs_next", one_in_the_mailbox);
}

fn one_in_the_mailbox() {
    let _alone = alone();
    on_one_p(|order| {
        let here = Builder::new().affinity(Affinity::of_current());
        let mailed = ["first", "second"].map(|who| here.clone().go(order.noting(who)).unwrap());
        let in_the_ring = go(order.noting("in the ring"));
        order.note("caller");
        yield_to(&mailed[1]);
        join_all(mailed.into_iter().chain([in_the_ring]));
        order.assert_next("caller", "second");
    });
}

/// Two goroutines that yield to each other share one time slice. Fails when a third goroutine gets no turn, or hardly any.
#[test]
fn bypass_shares_a_slice_and_starves_nobody() {
    const TURNS: usize = 10_000;
    let _alone = alone();
    watched(1, || {
        let rt = stealing(1);
        let (stop, turns) = (Arc::new(AtomicBool::new(false)), Arc::new([const { AtomicUsize::new(0) }; 2]));
        rt.run(|| {
            let (hand_over, partner) = chan::bounded::<JoinHandle<()>>(1);
            let pair = |partner: chan::Receiver<JoinHandle<()>>| {
                let (stop, turns) = (Arc::clone(&stop), Arc::clone(&turns));
                move || {
                    let partner = partner.recv().expect("it is sent");
                    while !stop.load(SeqCst) {
                        turns[0].fetch_add(1, SeqCst);
                        yield_to(&partner);
                    }
                }
            };
            let (hand_over_too, partner_too) = chan::bounded(1);
            let [one, other] = [go(pair(partner)), go(pair(partner_too))];
            hand_over.send(other).unwrap();
            hand_over_too.send(one).unwrap();
            for _ in 0..TURNS {
                turns[1].fetch_add(1, SeqCst);
                yield_now();
            }
            stop.store(true, SeqCst);
        });
        let [pair, third] = [0, 1].map(|of| turns[of].load(SeqCst));
        println!("{third} turns beside {pair} of two that yield to each other");
        assert!(pair <= 40 * third, "{third} turns beside {pair}");
        assert!(pair >= 8 * third, "{third} turns beside {pair}: the two do not share a slice");
    });
}

/// If the goroutine can't be found at once, the call is a plain yield. Fails by a hang, a crash, or a lost turn.
#[test]
fn bypass_to_an_absent_goroutine_is_a_yield() {
    common::everywhere(|rt| {
        let elsewhere = runtime(1);
        rt.run(|| {
            let (_sender, never) = chan::bounded::<()>(0);
            let parked = go(move || assert!(never.recv_timeout(Duration::from_millis(1)).is_err()));
            let ended = go(|| ());
            until(|| ended.is_finished());
            let foreign = elsewhere.go(yield_now);
            let (own, me) = chan::bounded::<JoinHandle<()>>(1);
            let itself = go(move || {
                let me = me.recv().expect("it is sent");
                (0..100).for_each(|_| yield_to(&me));
            });
            own.send(itself).unwrap();
            let others = AtomicUsize::new(0);
            gmp::scope(|scope| {
                scope.go(|| others.fetch_add(1, SeqCst));
                for to in [&parked, &ended, &foreign] {
                    (0..100).for_each(|_| yield_to(to));
                }
            });
            assert_eq!(others.load(SeqCst), 1);
            join_all([parked, ended, foreign]);
        });
        let thread = rt.go(|| ());
        yield_to(&thread);
        thread.join().unwrap();
    });
}

/// Rule 2, successor: a goroutine that has waited for its last predecessor runs next. The last `done` readies it, or the end of
/// the goroutine that it joins, or an unbuffered hand-over; here `runnext` lets it run next. Fails when goroutines that were
/// queued before go first.
#[test]
fn successor_of_the_last_predecessor_runs_next() {
    child::in_order("successor_of_the_last_predecessor_runs_next", successors);
}

fn successors() {
    let _alone = alone();
    type Waits = fn(Order) -> (JoinHandle<()>, Box<dyn FnOnce(&Order) + Send>);
    let by_done: Waits = |order| {
        let tasks = Arc::new(WaitGroup::new());
        tasks.add(1);
        let waits = Arc::clone(&tasks);
        let waiter = go(move || {
            waits.wait();
            order.note("successor");
        });
        (waiter, Box::new(move |_| tasks.done()))
    };
    let by_hand_over: Waits = |order| {
        let (sender, receiver) = chan::bounded(0);
        let waiter = go(move || {
            receiver.recv().unwrap();
            order.note("successor");
        });
        (waiter, Box::new(move |_| sender.send(()).unwrap()))
    };
    for waits in [by_done, by_hand_over] {
        on_one_p(move |order| {
            let (waiter, ends) = waits(order.clone());
            yield_now();
            let (predecessor, others) = (order.clone(), order.clone());
            let last = go(move || {
                ends(&predecessor);
                predecessor.note("predecessor");
            });
            let others = ["a", "b", "c"].map(|who| go(others.noting(who)));
            join_all(others.into_iter().chain([last, waiter]));
            order.assert_next("predecessor", "successor");
        });
    }
    on_one_p(|order| {
        let predecessor = go(order.noting("predecessor"));
        let joins = order.clone();
        let waiter = go(move || {
            predecessor.join().unwrap();
            joins.note("successor");
        });
        let others = ["a", "b", "c"].map(|who| go(order.noting(who)));
        // The waiter is to wait before its predecessor's turn comes.
        yield_to(&waiter);
        join_all(others.into_iter().chain([waiter]));
        order.assert_next("predecessor", "successor");
    });
}

/// Rule 4, affinity: a goroutine with affinity for the P goes before the global queue, though it came later; one of five turns
/// is left to the global queue. Fails by another order.
#[test]
fn affinity_goes_before_the_shared_queue() {
    child::in_order("affinity_goes_before_the_shared_queue", affinity_first);
}

fn affinity_first() {
    let _alone = alone();
    on_one_p(|order| {
        let here = Affinity::of_current();
        let shared = Vec::from_iter((0..2).map(|n| go_fair(order.noting(format!("shared {n}")))));
        let mailed = (0..7).map(|n| Builder::new().affinity(here).go(order.noting(n.to_string())).unwrap());
        join_all(Vec::from_iter(mailed).into_iter().chain(shared));
        assert_eq!(order.so_far(), ["0", "1", "2", "3", "shared 0", "4", "5", "6", "shared 1"]);
    });
}

/// Rule 5, the oldest of the shared queue. Fails by another order than that of the spawns.
#[test]
fn oldest_of_the_shared_queue_goes_first() {
    child::in_order("oldest_of_the_shared_queue_goes_first", oldest_of_the_shared_queue);
}

fn oldest_of_the_shared_queue() {
    let _alone = alone();
    on_one_p(|order| {
        let all = Vec::from_iter((0..100).map(|n| go_fair(order.noting(n.to_string()))));
        let favoured = go(order.noting("favoured"));
        join_all(all.into_iter().chain([favoured]));
        let expected =
            Vec::from_iter(["favoured".to_owned()].into_iter().chain((0..100).map(|n| n.to_string())));
        assert_eq!(order.so_far(), expected);
    });
}

/// Rule 6, the oldest of a victim. Fails when a thief begins with another goroutine than the oldest. If the kernel lets one of
/// the threads wait and its P is retaken, there are other orders: the rule is to be seen in one of some runs.
#[test]
fn oldest_of_a_victim_is_stolen_first() {
    let _alone = alone();
    let first_stolen = || {
        watched(2, || {
            let rt = stealing(2);
            rt.run(|| {
                let first = Arc::new(Mutex::new(None));
                let all = Vec::from_iter((0..8).map(|n| {
                    let first = Arc::clone(&first);
                    go(move || {
                        first.lock().unwrap().get_or_insert(n);
                    })
                }));
                stay_until(|| first.lock().unwrap().is_some());
                join_all(all);
                first.lock().unwrap().expect("it was seen")
            })
        })
    };
    let seen = Vec::from_iter((0..20).map(|_| first_stolen()));
    println!("first stolen of 8: {seen:?}");
    assert!(seen.contains(&0), "{seen:?}");
}

/// In a fork-join tree the peak of live goroutines is O(width) with `go_fair`: all goroutines of a level are alive before the
/// first of the next level runs. (The tests of `goroutines::fork` check O(depth), with `go_lifo` and with `join`.) Fails when
/// fewer are alive than half of the last level has.
#[test]
fn breadth_first_peak_of_live_goroutines_is_the_width_with_go_fair() {
    const DEPTH: usize = 8;
    fn tree(depth: usize, peak: &Arc<AtomicUsize>) {
        peak.fetch_max(gmp::num_goroutines(), SeqCst);
        if depth > 0 {
            let children = [(); 2].map(|()| {
                let peak = Arc::clone(peak);
                go_fair(move || tree(depth - 1, &peak))
            });
            join_all(children);
        }
    }
    let _alone = alone();
    watched(1, || {
        let peak = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&peak);
        stealing(1).run(move || tree(DEPTH, &seen));
        let peak = peak.load(SeqCst);
        println!("go_fair: {peak} goroutines alive at once, of {} leaves", 1 << DEPTH);
        assert!(peak >= 1 << (DEPTH - 1), "{peak}");
    });
}

/// Keeps the P in user code until `reached` holds.
fn stay_until(reached: impl Fn() -> bool) {
    while !reached() {
        std::hint::spin_loop();
    }
}

/// Starts `count` goroutines that neither park nor yield until they are told to stop. All of them run when this returns.
fn hogs(rt: &Runtime, count: usize, stop: &Arc<AtomicBool>) -> Vec<JoinHandle<()>> {
    let begun = Arc::new(AtomicUsize::new(0));
    let all = (0..count).map(|_| {
        let (begun, stop) = (Arc::clone(&begun), Arc::clone(stop));
        rt.go(move || {
            begun.fetch_add(1, SeqCst);
            stay_until(|| stop.load(SeqCst));
        })
    });
    let all = Vec::from_iter(all);
    until(|| begun.load(SeqCst) == count);
    all
}

/// One goroutine, of `go_fair`, stands in the global queue, and every P is in user code that neither parks nor yields. Fails by
/// a hang. How long the goroutine waits is printed; in a quiet run it is at most a time slice, a look of the monitor, and 5 ms.
/// The hogs are started anew for each sample, as hogs from which a P was taken run on without one.
#[test]
fn go_fair_progresses_while_hogs_hold_every_p() {
    const ROOM: Duration = Duration::from_millis(5);
    let samples = if is_quiet() { 50 } else { 9 };
    let _alone = alone();
    for procs in [1, 2, 4] {
        watched(procs, || {
            let rt = runtime(procs);
            let mut waits = Vec::new();
            for _ in 0..samples {
                let stop = Arc::new(AtomicBool::new(false));
                // Hogs hold all Ps but one; the hog that asks holds the last one.
                let others = hogs(&rt, procs - 1, &stop);
                let waited = rt
                    .go(|| {
                        let (begun, waited) = (Instant::now(), Arc::new(Mutex::new(None)));
                        let shows = Arc::clone(&waited);
                        let fair = go_fair(move || *shows.lock().unwrap() = Some(begun.elapsed()));
                        stay_until(|| waited.lock().unwrap().is_some());
                        fair.join().unwrap();
                        waited.lock().unwrap().take()
                    })
                    .join()
                    .unwrap();
                waits.push(waited.expect("it has run"));
                stop.store(true, SeqCst);
                join_all(others);
            }
            let (p50, most) = (median(&waits), waits.iter().max().expect("some"));
            println!("go_fair beside hogs on {procs} Ps: p50 {p50:?}, at most {most:?}, of {samples}");
            assert!(!is_quiet_on(procs) || *most <= SLICE + LOOK + ROOM, "procs {procs}: {waits:?}");
        });
    }
}

/// Another goroutine keeps the only P while a goroutine spawns in a blocking call. Fails when a goroutine that it spawns
/// overtakes one that it has spawned before.
#[test]
fn what_is_spawned_without_a_p_runs_in_its_order() {
    let _alone = alone();
    on_one_p(|order| {
        let (keeps, over): (Arc<AtomicBool>, Arc<AtomicBool>) = Default::default();
        let (keeper_runs, ends) = (Arc::clone(&keeps), Arc::clone(&over));
        let keeper = go(move || {
            keeper_runs.store(true, SeqCst);
            stay_until(|| ends.load(SeqCst));
        });
        let spawned = gmp::blocking(|| {
            stay_until(|| keeps.load(SeqCst));
            let verbs = [go_fair, go, go_fair, gmp::go_lifo, go_fair, go, gmp::go_lifo];
            let spawned = Vec::from_iter((0..).zip(verbs).map(|(n, verb)| verb(order.noting(n.to_string()))));
            over.store(true, SeqCst);
            spawned
        });
        join_all(spawned.into_iter().chain([keeper]));
        let order = order.so_far();
        assert!(order.is_sorted_by_key(|who| who.parse::<u32>().unwrap()), "{order:?}");
    });
}

/// As `go_fair_progresses_while_hogs_hold_every_p`, for a goroutine in the mailbox of a P that a hog holds; and under each
/// policy.
#[test]
fn mail_for_a_p_that_a_hog_holds_is_run() {
    let _alone = alone();
    for policy in policies() {
        for procs in [1, 2] {
            watched(procs, || {
                let rt = runtime_under(policy, procs);
                let stop = Arc::new(AtomicBool::new(false));
                let others = hogs(&rt, procs - 1, &stop);
                let ran = rt.go(|| {
                    let ran = Arc::new(AtomicBool::new(false));
                    let raises = Arc::clone(&ran);
                    let here = Builder::new().affinity(Affinity::of_current());
                    let mailed = here.go(move || raises.store(true, SeqCst)).unwrap();
                    stay_until(|| ran.load(SeqCst));
                    mailed.join().unwrap();
                });
                ran.join().unwrap();
                stop.store(true, SeqCst);
                join_all(others);
            });
        }
    }
}

/// Fails when a goroutine is lost, or run twice, while Ps come and go.
#[test]
fn mail_is_run_whatever_becomes_of_its_p() {
    const ROUNDS: usize = 200;
    const EACH: usize = 20;
    let _alone = alone();
    for policy in policies() {
        watched(4, || {
            let rt = runtime_under(policy, 4);
            let ran = Arc::new(AtomicUsize::new(0));
            rt.run(|| {
                // These goroutines tell a hint for each P, if the machine lets them run at once.
                let mut places = vec![Affinity::default(), Affinity::of_current()];
                for piece in Vec::from_iter((0..16).map(|_| {
                    go(|| {
                        spin_for(Duration::from_micros(50));
                        Affinity::of_current()
                    })
                })) {
                    places.push(piece.join().unwrap());
                }
                for round in 0..ROUNDS {
                    gmp::set_procs(1 + round * 7 % 4);
                    let all = Vec::from_iter((0..EACH).map(|n| {
                        let ran = Arc::clone(&ran);
                        let to = Builder::new().affinity(places[(round + n) % places.len()]);
                        to.go(move || {
                            ran.fetch_add(1, SeqCst);
                        })
                        .unwrap()
                    }));
                    gmp::set_procs(1 + round * 5 % 4);
                    join_all(all);
                }
            });
            assert_eq!(ran.load(SeqCst), ROUNDS * EACH, "{policy}");
        });
    }
}

/// Two Ps are busy. Main yields on the first; a sender, on the other P if that has stolen it, wakes a goroutine whose handle
/// has the hint of the first. Fails when that goroutine has less than nine of ten turns on the first P, in each of ten runs;
/// one run is not enough, as a P whose thread the kernel lets wait loses its mail.
#[test]
fn affinity_of_a_handle_holds_for_each_turn() {
    const TURNS: usize = 500;
    let _alone = alone();
    let share = || {
        watched(2, || {
            stealing(2).run(|| {
                let (sender, work) = chan::unbounded::<()>();
                let (place, over) = (Affinity::of_current(), Arc::new(AtomicBool::new(false)));
                let ended = Arc::clone(&over);
                let keeper = go(move || {
                    let at_home = work.iter().filter(|()| Affinity::of_current() == place).count();
                    ended.store(true, SeqCst);
                    at_home
                });
                assert!(keeper.set_affinity(place));
                let busy = |over: &AtomicBool| {
                    while !over.load(SeqCst) {
                        spin_for(Duration::from_micros(20));
                        yield_now();
                    }
                };
                let ended = Arc::clone(&over);
                let sends = go(move || {
                    for _ in 0..TURNS {
                        sender.send(()).unwrap();
                        spin_for(Duration::from_micros(20));
                        yield_now();
                    }
                    drop(sender);
                    busy(&ended);
                    Affinity::of_current() != place
                });
                busy(&over);
                let at_home = keeper.join().unwrap();
                (sends.join().unwrap(), at_home * 100 / TURNS)
            })
        })
    };
    let seen = Vec::from_iter((0..10).map(|_| share()));
    println!(
        "whether the sender was on another P, and of each hundred turns those on the P of the hint: {seen:?}"
    );
    assert!(seen.iter().any(|&(_, share)| share >= 90), "{seen:?}");
}

/// Fails when a goroutine with a hint is lost while Ps come and go and hints change, whether it yields, waits, sleeps or has a
/// class.
#[test]
fn affinity_of_a_handle_loses_no_goroutine_while_ps_come_and_go() {
    const ROUNDS: usize = 40;
    const EACH: usize = 48;
    let _alone = alone();
    for policy in policies() {
        watched(4, || {
            runtime_under(policy, 4).run(|| {
                let places = Arc::new(Mutex::new(vec![Affinity::default(), Affinity::of_current()]));
                for round in 0..ROUNDS {
                    gmp::set_procs(1 + round * 7 % 4);
                    let (sender, receiver) = chan::bounded::<usize>(round % 3);
                    let receivers = Vec::from_iter((0..EACH).map(|n| {
                        let (receiver, places) = (receiver.clone(), Arc::clone(&places));
                        go(move || {
                            (n % 3..3).for_each(|_| yield_now());
                            match n % 8 {
                                0 => gmp::time::sleep(Duration::from_micros(50)),
                                1 => drop(gmp::set_priority(gmp::Priority::Low)),
                                2 => gmp::blocking(|| ()),
                                3 => gmp::lock_os_thread(),
                                _ => places.lock().unwrap().push(Affinity::of_current()),
                            }
                            receiver.recv().unwrap();
                        })
                    }));
                    let hint = |n: usize, one: &JoinHandle<()>| {
                        let places = places.lock().unwrap();
                        let _unless_it_has_ended = one.set_affinity(places[(n * 3 + round) % places.len()]);
                    };
                    receivers.iter().enumerate().for_each(|(n, one)| hint(n, one));
                    let senders = Vec::from_iter((0..EACH).map(|n| {
                        let sender = sender.clone();
                        go(move || sender.send(n).unwrap())
                    }));
                    gmp::set_procs(1 + round * 5 % 4);
                    receivers.iter().enumerate().for_each(|(n, one)| hint(n + 1, one));
                    join_all(receivers.into_iter().chain(senders));
                    places.lock().unwrap().truncate(16);
                }
            });
        });
    }
}

/// Fails when a hint is given to a goroutine that has ended, or gets into the next goroutine of the same G.
#[test]
fn affinity_of_a_handle_ends_with_its_goroutine() {
    common::everywhere(|rt| {
        rt.run(|| {
            let here = Affinity::of_current();
            for n in 0..1000 {
                let ends = go(move || n);
                let _maybe = ends.set_affinity(here);
                until_yielding(|| ends.is_finished());
                assert!(!ends.set_affinity(here) && !ends.set_affinity(Affinity::default()), "it has ended");
                assert_eq!(ends.join().unwrap(), n);
            }
        });
    });
}

fn until_yielding(reached: impl Fn() -> bool) {
    while !reached() {
        yield_now();
    }
}

/// Fails when the joiner of a goroutine that is left in a mailbox is not told, or the closure of the goroutine is not dropped.
#[test]
fn mail_that_is_left_at_the_end_is_told_of() {
    common::everywhere(|rt| {
        let dropped = Arc::new(());
        let (handles, seen) = std::sync::mpsc::channel();
        let keeps = Arc::clone(&dropped);
        let spawner = rt.go(move || {
            for n in 0..100 {
                let keeps = Arc::clone(&keeps);
                let to = Builder::new().affinity(Affinity::of_current());
                let to = if n % 2 == 0 { to } else { to.fair() };
                handles.send(to.go(move || drop(keeps)).unwrap()).unwrap();
            }
        });
        let handles = Vec::from_iter(seen);
        let elsewhere = rt.run(Affinity::of_current);
        for handle in handles.iter().step_by(3) {
            let _unless_it_has_ended = handle.set_affinity(elsewhere);
        }
        rt.shutdown_timeout(Duration::ZERO);
        drop(spawner);
        for handle in handles {
            assert!(handle.join().map_or_else(|error| error.is_shutdown(), |()| true));
        }
        until(|| Arc::strong_count(&dropped) == 1);
    });
}
