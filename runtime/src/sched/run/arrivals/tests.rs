//! The turns of arrivals and rings: simulations with queues and clocks, and the counts of an owner in a runtime.

use super::*;
use crate::g::{Birth, drop_handle};
use crate::host::{Active, Clock};
use crate::prim::capacity;
use crate::runtime::policy::Policy;
use crate::sched::run::look::{PollSchedule, nanos};
use crate::sched::run::place::Place;
use crate::{Runtime, blocking, go, go_fair, lock_os_thread, yield_now};
use std::panic::Location;
use std::sync::mpsc::channel;
use std::thread;

/// How long one goroutine of each kind runs, in nanoseconds: one of the ring, an arrival, and one that a visit takes. A visit
/// always finds a goroutine, unless `visit` is zero.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    ring: u64,
    arrival: u64,
    visit: u64,
}

/// How long the goroutines of each kind have run in all, how many goroutines of the ring have run, and how often the M has
/// looked around.
#[derive(Debug, Default)]
struct Ran {
    ring: u64,
    arrivals: u64,
    visits: u64,
    turns: u64,
    arounds: u64,
}

/// Simulates an owner whose ring never ends. `comes` says whether an arrival waits at a time, and takes it.
fn play(lengths: Lengths, ticks: u32, mut comes: impl FnMut(u64) -> bool) -> Ran {
    let (schedule, mut clock, mut ran) = (PollSchedule::new(Policy::default()), 0, Ran::default());
    let arrivals = &schedule.arrivals;
    for tick in 1..=ticks {
        let (mut of_visit, mut of_arrivals) = (false, false);
        let seen = |now| Seen { tick, now, waiting: 100, round: 100, queued: 0 };
        if schedule.is_due(tick) {
            let due = schedule.look(tick, 0, Some(|| Nanos::from_nanos(clock)));
            let during_turn = arrivals.have_their_turn();
            of_visit = due.visit.is_some() && lengths.visit > 0;
            if let Some(seen) = due.now.map(seen).filter(|&seen| !of_visit && arrivals.may_go_first(seen)) {
                of_arrivals = comes(clock);
                if of_arrivals {
                    arrivals.go_first(seen);
                } else {
                    arrivals.end_turn(seen);
                }
            }
            if arrivals.have_their_turn() {
                schedule.arrival_runs(tick);
            }
            let finds = of_visit || of_arrivals;
            ran.arounds += u64::from(due.around.is_some() && (!finds || during_turn && !of_visit));
            if due.around.is_some() && finds {
                schedule.look_again(tick);
            }
        }
        let (kind, long) = match (of_visit, of_arrivals) {
            (true, _) => (&mut ran.visits, lengths.visit),
            (false, true) => (&mut ran.arrivals, lengths.arrival),
            (false, false) => {
                ran.turns += 1;
                (&mut ran.ring, lengths.ring)
            }
        };
        *kind += long;
        clock += long;
    }
    ran
}

const LENGTHS: [u64; 5] = [100, 2_000, 20_000, 100_000, 10_000_000];

/// Fails when arrivals, of which there are always more, take more than half of the time, or far less.
#[test]
fn arrivals_take_half_of_the_time_at_most() {
    for ring in LENGTHS {
        for arrival in LENGTHS {
            let lengths = Lengths { ring, arrival, visit: 0 };
            let ran = play(lengths, 100_000, |_| true);
            let ahead = nanos(TURN) + arrival;
            assert!(ran.arrivals <= ran.ring + ahead, "{lengths:?}: {ran:?}");
            // A goroutine of the ring that takes longer than the turn still runs to its end.
            let share = nanos(TURN).max(arrival) as f64 / (nanos(TURN).max(arrival) + ring) as f64;
            assert!(ran.arrivals as f64 > 0.8 * share * ran.ring as f64, "{lengths:?}: {ran:?}");
        }
    }
}

/// One arrival becomes ready again soon after it has run, as for a client that asks again once it has its answer. Fails when
/// this arrival takes more than half of the time.
#[test]
fn an_arrival_that_comes_back_at_once_takes_half_of_the_time_at_most() {
    for ring in LENGTHS {
        for arrival in LENGTHS {
            let (lengths, mut ready) = (Lengths { ring, arrival, visit: 0 }, 0);
            let ran = play(lengths, 100_000, |clock| {
                let comes = clock >= ready;
                if comes {
                    ready = clock + arrival + 20_000;
                }
                comes
            });
            assert!(ran.arrivals <= ran.ring + nanos(TURN) + arrival, "{lengths:?}: {ran:?}");
            assert!(ran.arrivals > 0, "{lengths:?}");
        }
    }
}

/// A client asks again some time after its answer, so that in each turn of the ring one goroutine runs. Fails when the M looks
/// around far less often than with the ring's goroutines alone.
#[test]
fn arrivals_do_not_keep_an_m_from_looking_around() {
    for (ring, arrival, apart) in
        [(100_000, 20_000, 50_000), (50_000, 20_000, 20_000), (1_000_000, 100_000, 0), (2_000, 100_000, 0)]
    {
        let (lengths, mut ready) = (Lengths { ring, arrival, visit: 0 }, 0);
        let ran = play(lengths, 100_000, |clock| {
            let comes = clock >= ready;
            if comes {
                ready = clock + arrival + apart;
            }
            comes
        });
        let least = ran.ring / ring.max(nanos(capacity::LOOK_AROUND)) / 3;
        assert!(ran.arounds >= least, "{lengths:?}, {apart}: {ran:?}");
    }
}

/// Fails when arrivals get no turn while visits always find other goroutines, or when the ring gets no turn between two visits.
#[test]
fn what_visits_find_keeps_neither_arrivals_nor_the_ring_back() {
    for ring in [2_000, 100_000, 600_000] {
        for visit in [100_000, 1_000_000, 5_000_000] {
            for (arrival, apart) in [(10_000, 900_000), (100_000, 0), (1_000_000, 20_000)] {
                let (lengths, mut ready, mut came) = (Lengths { ring, arrival, visit }, 0, 0);
                let ran = play(lengths, 100_000, |clock| {
                    let comes = clock >= ready;
                    if comes {
                        ready = clock + arrival + apart;
                        came += 1;
                    }
                    comes
                });
                assert!(came > 100, "{lengths:?}, {apart}: {came}, {ran:?}");
                assert!(ran.turns >= ran.visits / visit - 1, "{lengths:?}, {apart}: {ran:?}");
            }
        }
    }
}

/// Fails when an arrival that comes now and then waits for more than one goroutine, or for longer than the time between two
/// looks.
#[test]
fn an_arrival_waits_for_one_goroutine_or_a_moment() {
    for ring in LENGTHS {
        let (every, mut next, mut waits) = (10 * ring.max(100_000), 0, Vec::new());
        play(Lengths { ring, arrival: 10_000, visit: 0 }, 400_000, |clock| {
            let came = clock >= next;
            if came {
                waits.push(clock - next);
                next += every;
            }
            came
        });
        let most = ring.max(2 * nanos(capacity::LOOK_AROUND)) + ring;
        assert!(waits.len() > 20, "{ring}: {} waits", waits.len());
        // When the first arrivals come, the schedule has no pace yet.
        let longest = *waits[3..].iter().max().expect("there are as many");
        assert!(longest <= most, "beside {ring}: {longest} instead of {most}");
    }
}

/// Fails when a turn of the arrivals, or of the ring, does not end: after its time, when no arrival waits, after a long pause,
/// or when the ring has no goroutines of its own.
#[test]
fn turns_end() {
    let arrivals = Arrivals::new();
    let at = |micros: u64| Nanos::from_nanos(1_000_000_000 + 1_000 * micros);
    let seen = |micros| Seen { tick: 7, now: at(micros), waiting: 9, round: 9, queued: 9 };
    let may = |micros| arrivals.may_go_first(seen(micros));
    assert!(may(0));
    arrivals.go_first(seen(0));
    arrivals.go_first(seen(100));
    assert!(arrivals.have_their_turn() && may(499));
    assert!(!may(600), "the ring's turn begins");
    assert!(!arrivals.have_their_turn() && !may(1_199));
    assert!(may(1_200));
    arrivals.go_first(seen(1_200));
    arrivals.end_turn(seen(1_250));
    assert!(!may(1_299) && may(1_300), "none waited");
    arrivals.go_first(seen(1_300));
    assert!(!may(3_600_000_000), "an hour");
    assert!(may(3_600_100_000));
    arrivals.go_first(seen(3_600_100_000));
    arrivals.have_no_ring(seen(3_600_200_000));
    assert!(!arrivals.have_their_turn() && may(3_600_200_000));
}

/// Fails when arrivals go first although they have added too many goroutines, or do not go first although these are gone or a
/// round is over, or when the ring's own goroutines count. Covers ticks that wrap.
#[test]
fn arrivals_that_have_added_too_many_wait_for_a_round_at_most() {
    let arrivals = Arrivals::new();
    let seen = |tick: u32, millis: u64, waiting: usize| Seen {
        tick: (u32::MAX - 100).wrapping_add(tick),
        now: Nanos::from_nanos(1_000_000 * millis),
        waiting,
        round: waiting,
        queued: waiting as u32,
    };
    let may = |tick, millis, waiting| arrivals.may_go_first(seen(tick, millis, waiting));
    // The ring itself has added these goroutines.
    assert!(may(0, 0, 3 * MOST_ADDED));
    arrivals.go_first(seen(0, 0, 10));
    arrivals.end_turn(seen(1, 0, 10 + MOST_ADDED));
    assert!(may(2, 1, 5 * MOST_ADDED));
    arrivals.go_first(seen(2, 1, 20 + MOST_ADDED));
    arrivals.end_turn(seen(3, 1, 50 + MOST_ADDED));
    assert!(!may(4, 2, 50 + MOST_ADDED) && !may(5, 3, 90 + MOST_ADDED), "30 too many");
    assert!(!may(6, 4, 21 + MOST_ADDED) && !may(7, 5, 30 + MOST_ADDED) && may(8, 6, 20 + MOST_ADDED));
    // All of them have run within a round.
    let most = MOST_ADDED as u32;
    arrivals.go_first(seen(9, 7, 20 + MOST_ADDED));
    arrivals.end_turn(seen(10, 7, 60 + MOST_ADDED));
    assert!(!may(69 + most, 8, 60 + MOST_ADDED) && may(70 + most, 9, 60 + MOST_ADDED));
    arrivals.go_first(seen(71 + most, 10, 60 + MOST_ADDED));
    arrivals.end_turn(seen(72 + most, 10, 90 + MOST_ADDED));
    assert!(may(73 + most, 11, 90 + MOST_ADDED), "30 since then");
    // The debt is at most the number of goroutines that wait.
    arrivals.go_first(seen(80, 12, 0));
    arrivals.end_turn(seen(81, 12, 2 * MOST_ADDED));
    assert!(!may(82, 13, 2 * MOST_ADDED));
    arrivals.go_first(seen(83, 13, MOST_ADDED));
    arrivals.end_turn(seen(84, 13, MOST_ADDED));
    assert!(may(85, 14, MOST_ADDED));
}

/// Each arrival spawns goroutines, which run once, into a queue of others that yield. Fails when the queue becomes longer and
/// longer.
#[test]
fn arrivals_that_spawn_do_not_make_a_queue_longer_and_longer() {
    const ARRIVAL: u64 = 2_000;
    for (crowd, adds, at_once) in [(1, 1, 300), (100, 2, 300), (100, 8, 10_000), (1_000, 2, 100)] {
        let (arrivals, mut clock, mut left, mut spawned) = (Arrivals::new(), 0, 0, 0);
        let mut queued = 0;
        let mut queue: std::collections::VecDeque<_> = std::iter::repeat_n(true, crowd).collect();
        let mut most = 0;
        for tick in 0..2_000_000 {
            let (now, waiting) = (Nanos::from_nanos(clock), queue.len());
            let seen = Seen { tick, now, waiting, round: waiting, queued };
            if arrivals.may_go_first(seen) {
                // `at_once` arrivals come after each turn of the ring.
                if left > 0 {
                    (left, clock, spawned) = (left - 1, clock + ARRIVAL, spawned + adds);
                    arrivals.go_first(seen);
                    queue.extend(std::iter::repeat_n(false, adds));
                    queued += adds as u32;
                    most = most.max(queue.len());
                    continue;
                }
                arrivals.end_turn(seen);
                left = at_once;
            }
            if queue.pop_front() == Some(true) {
                queue.push_back(true);
                queued += 1;
            }
            clock += 30_000;
        }
        let of_a_turn = adds * at_once.min((nanos(TURN) / ARRIVAL) as usize + 1);
        assert!(most <= crowd + MOST_ADDED + 2 * of_a_turn, "{crowd}, {adds}, {at_once}: {most}");
        assert!(spawned > 100_000, "{crowd}, {adds}, {at_once}: {spawned}");
    }
}

/// A plain thread, or another P, makes the global queue longer and longer; arrivals add nothing, or no more than [`MOST_ADDED`]
/// in all. Fails when a turn of the ring lasts longer than the arrivals' turn before it.
#[test]
fn what_others_add_is_no_debt_of_arrivals() {
    const ARRIVAL: u64 = 2_000;
    const RING: u64 = 10_000;
    for (each_milli, own) in [(0, 0), (10, 0), (400, 0), (400, 1), (100_000, 3)] {
        let (arrivals, mut clock, mut queued, mut turns, mut begins, mut ends) =
            (Arrivals::new(), 0, 0, 0, 0, 0);
        for tick in 0..100_000 {
            let waiting = 100_000 + (clock * each_milli / 1_000_000) as usize;
            let seen = Seen { tick, now: Nanos::from_nanos(clock), waiting, round: waiting, queued };
            if arrivals.may_go_first(seen) {
                if !arrivals.have_their_turn() {
                    let (turn, waited) = (ends - begins, clock - ends);
                    assert!(waited <= turn + RING, "{each_milli}, {own}: {waited} after {turn}");
                    (turns, begins) = (turns + 1, clock);
                    queued += own;
                }
                arrivals.go_first(seen);
                (clock, ends) = (clock + ARRIVAL, clock + ARRIVAL);
            } else {
                clock += RING;
            }
        }
        assert!(turns > 100, "{each_milli}, {own}: {turns}");
    }
}

/// Other threads make the queue longer all the time, and each turn of the arrivals adds a few goroutines. Fails when the
/// goroutines that the owner has queued count as a debt for longer than a round, or do not count.
#[test]
fn beside_what_others_add_a_debt_lasts_for_a_round() {
    const EACH: u32 = 300;
    const ROUND: u32 = 5_000;
    let (arrivals, mut queued, mut ticks) = (Arrivals::new(), 0, 0);
    let mut waits = Vec::new();
    for turn in 0..100 {
        let seen = |tick: u32, queued| {
            let now = Nanos::from_nanos(1_000_000 * u64::from(tick));
            Seen { tick, now, waiting: 1_000 * tick as usize, round: ROUND as usize, queued }
        };
        assert!(arrivals.may_go_first(seen(ticks, queued)), "turn {turn}");
        arrivals.go_first(seen(ticks, queued));
        (ticks, queued) = (ticks + 1, queued + EACH);
        arrivals.end_turn(seen(ticks, queued));
        let ended = ticks;
        while !arrivals.may_go_first(seen(ticks, queued)) && ticks - ended <= ROUND {
            ticks += 1;
        }
        waits.push(ticks - ended);
    }
    let rounds = waits.iter().filter(|&&wait| wait == ROUND).count();
    assert!(waits.iter().all(|&wait| wait == ROUND || wait <= 1), "{waits:?}");
    assert_eq!(rounds, 100 / (MOST_ADDED / EACH as usize + 1), "{waits:?}");
}

/// Fails when arrivals that have added too many goroutines wait for all goroutines in the global queue, although other Ps take
/// from that queue, too.
#[test]
fn a_round_is_what_one_p_runs_of_the_global_queue() {
    assert_eq!(round_of(7, 21, 1), 28);
    let arrivals = Arrivals::new();
    let seen = |tick, global: usize| Seen {
        tick,
        now: Nanos::from_nanos(1_000_000 * u64::from(tick)),
        waiting: 10 + global,
        round: round_of(10, global, 20),
        queued: global as u32,
    };
    arrivals.go_first(seen(0, 10_000));
    arrivals.end_turn(seen(1, 19_790));
    assert!(!arrivals.may_go_first(seen(1_000, 19_790)) && arrivals.may_go_first(seen(1_001, 19_790)));
}

/// Spawns goroutines on one P, beside goroutines in the global queue that stand there as if a plain thread had spawned them;
/// each goroutine yields `times` times. Returns how many goroutines the owner has queued, and how many its positions show.
fn queue_on_one_p(handle: &crate::Handle, times: u32) -> (u32, u32) {
    const OWN: u32 = 600;
    const OTHERS: u32 = 300;
    let queued = || {
        let inside = M::<Active>::current().and_then(M::look_in).unwrap();
        inside.p.poll_schedule.arrivals.queued(inside.p.runq.ends().1)
    };
    let yields = move || (0..times).for_each(|_| yield_now());
    yield_now();
    let before = queued();
    // This goroutine sends the others itself: if it waited for a thread, it would lose its P.
    let sched = handle.sched("arrivals").unwrap();
    for _ in 0..OTHERS {
        let birth = Birth { name: None, stack_size: 1 << 16, site: Location::caller() };
        // SAFETY: the closure is 'static.
        let g = unsafe { sched.make(birth, yields) }.unwrap();
        drop_handle(g);
        sched.send(g, Place::Shared);
    }
    drop(sched);
    let mut all = OTHERS * times;
    for n in 0..OWN {
        drop(if n % 8 == 0 { go_fair(yields) } else { go(yields) });
        all += 1 + times;
    }
    while handle.num_goroutines() > 1 {
        if times > 0 {
            yield_now();
            all += 1;
        } else {
            // A yield would begin a round, in which visits take no share.
            crate::time::sleep(Duration::from_millis(1));
        }
    }
    (all, queued().wrapping_sub(before))
}

/// Fails when goroutines that come into a ring from elsewhere count as queued by its owner, or when those that the owner queues
/// globally do not. The monitor takes no P here: it would queue the ring's goroutines elsewhere.
#[test]
fn an_owner_counts_what_it_has_queued_itself() {
    let runtime = Runtime::builder().procs(1).build_where(|config| config.knobs.handoff = false).unwrap();
    let handle = runtime.handle();
    for times in [0, 2] {
        let (all, own) = runtime.run(|| queue_on_one_p(&handle, times));
        // One goroutine might stand in `runnext`, or have stood there.
        assert!(all.abs_diff(own) <= 1, "{times} times: {own} of {all}");
    }
}

/// A bound goroutine, which is itself the arrival that has its turn, yields while no other goroutine waits: its M looks
/// elsewhere only because of these yields. Fails when the turn goes on without end, and puts off visits all that time.
#[test]
fn a_turn_ends_beside_a_bound_goroutine_that_yields_alone() {
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let runtime = unsafe { Runtime::builder().procs(1).build() }.unwrap();
    let turn = |begins: bool| {
        let inside = M::<Active>::current().and_then(M::look_in)?;
        let (schedule, tick) = (&inside.p.poll_schedule, inside.p.tick());
        if begins {
            let seen = Seen { tick, now: Active::now(), waiting: 0, round: 0, queued: 0 };
            schedule.arrivals.go_first(seen);
            schedule.arrival_runs(tick);
        }
        Some(schedule.arrivals.have_their_turn())
    };
    // An attempt in which the monitor has taken the P shows nothing; ten such attempts in a row are no accident.
    let ends = runtime.run(|| {
        lock_os_thread();
        (0..10).any(|_| {
            yield_now();
            let began = turn(true);
            yield_now();
            let goes_on = turn(false);
            began == Some(true) && goes_on == Some(false)
        })
    });
    assert!(ends, "the turn goes on");
}

/// A bound goroutine begins a turn of the arrivals, and then blocks its thread, so another M takes the P, with a goroutine of
/// its ring. Fails when the other M begins anew, or does not end the turn at its time.
#[test]
fn a_turn_goes_on_and_ends_whichever_m_holds_the_p() {
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let runtime = unsafe { Runtime::builder().procs(1).build() }.unwrap();
    // The turn begins in the future, so that it lasts until it is looked at.
    let began = Active::now().saturating_add(Duration::from_secs(60));
    let seen =
        move |after| Seen { tick: 0, now: began.saturating_add(after), waiting: 0, round: 0, queued: 0 };
    let begins = move || {
        let inside = M::<Active>::current().and_then(M::look_in)?;
        let arrivals = &inside.p.poll_schedule.arrivals;
        arrivals.end_turn(seen(Duration::ZERO));
        arrivals.go_first(seen(Duration::ZERO));
        Some(thread::current().id())
    };
    let goes_on = move |before| {
        let Some(inside) = M::<Active>::current().and_then(M::look_in) else { return false };
        let arrivals = &inside.p.poll_schedule.arrivals;
        if !arrivals.have_their_turn() {
            return false;
        }
        assert_ne!(thread::current().id(), before);
        assert!(arrivals.may_go_first(seen(TURN - Duration::from_nanos(1))));
        assert!(!arrivals.may_go_first(seen(TURN)) && !arrivals.have_their_turn());
        assert!(!arrivals.may_go_first(seen(2 * TURN - Duration::from_nanos(1))));
        assert!(arrivals.may_go_first(seen(2 * TURN)));
        true
    };
    // A look for arrivals finds none, and so ends the turn: such an attempt shows nothing. Ten in a row are no accident.
    let ends = runtime.run(|| {
        // Otherwise the goroutine itself would go to another M to block.
        lock_os_thread();
        (0..10).any(|_| {
            yield_now();
            let (tells, told) = channel();
            let Some(before) = begins() else { return false };
            let other = go(move || tells.send(goes_on(before)).unwrap());
            let goes_on = blocking(|| told.recv().unwrap_or(false));
            other.join().unwrap();
            goes_on
        })
    });
    assert!(ends, "the turn has gone with the thread");
}

/// Fails when a ring with goroutines of its own is taken for a ring of arrivals, or the other way round.
#[test]
fn a_ring_is_one_of_arrivals_as_long_as_its_own_goroutines_add_none() {
    for at in [0, u32::MAX - 4] {
        let (arrivals, pos) = (Arrivals::new(), |n: u32| at.wrapping_add(n));
        let fill = |head, tail, by| arrivals.fill((pos(head), pos(tail)), pos(tail + by));
        assert!(arrivals.are_all((pos(3), pos(3))), "none");
        fill(3, 3, 5);
        fill(6, 8, 1);
        assert!(arrivals.are_all((pos(6), pos(9))));
        // A goroutine yields.
        assert!(!arrivals.are_all((pos(7), pos(10))));
        fill(7, 10, 4);
        assert!(!arrivals.are_all((pos(11), pos(14))), "it was no ring of arrivals before");
        fill(14, 14, 2);
        assert!(arrivals.are_all((pos(15), pos(16))));
    }
}
