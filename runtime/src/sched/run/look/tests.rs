//! How often an M looks beyond its own queue: simulations of the schedule with a clock that the test sets.

use super::*;
use crate::sched::run::arrivals::Seen;

/// Runs a goroutine for `each` nanoseconds at each tick, and calls `looked` at each look.
fn run(
    poll_schedule: &PollSchedule,
    ticks: std::ops::Range<u32>,
    clock: &mut u64,
    each: u64,
    mut looked: impl FnMut(Due),
) {
    for tick in ticks {
        *clock += each;
        if poll_schedule.is_due(tick) {
            looked(poll_schedule.look(tick, 0, Some(|| Nanos::from_nanos(*clock))));
        }
    }
}

/// Fails when the clock is read for each short goroutine, or when there is no look between long ones.
#[test]
fn looks_around_come_as_often_as_they_should() {
    for (each, least, most) in [
        (50, 50_000, 60_000),
        (1_000, 50_000, 100_000),
        (10_000, 50_000, 80_000),
        (1_000_000, 1_000_000, 1_000_000),
    ] {
        let (poll_schedule, mut clock) = (PollSchedule::new(Policy::default()), 0);
        run(&poll_schedule, 1..1_000, &mut clock, each, |_| ());
        let (begin, mut looks) = (clock, 0);
        run(&poll_schedule, 1_000..11_000, &mut clock, each, |due| looks += u64::from(due.around.is_some()));
        let between = (clock - begin) / looks;
        assert!((least..=most).contains(&between), "{each} ns each: one in {between} ns");
    }
}

/// Fails when visits come at another tick than each 61st while goroutines are short, or when long goroutines do not bring the
/// visit forward, or put it off for ever.
#[test]
fn turns_come_by_count_and_by_time() {
    for (each, every) in [(50, 61), (7_000, 61), (100_000, 5), (250_000, 2), (10_000_000, 2)] {
        let (poll_schedule, mut clock) = (PollSchedule::new(Policy::default()), 0);
        run(&poll_schedule, 1..1_000, &mut clock, each, |_| ());
        let mut visits = 0;
        run(&poll_schedule, 1_000..1_000 + 610 * every, &mut clock, each, |due| {
            visits += u32::from(due.visit.is_some())
        });
        assert!(visits.abs_diff(610) <= 610 / 30, "{each} ns each: {visits} visits instead of 610");
    }
    let (poll_schedule, mut visits) = (PollSchedule::new(Policy::default()), 0);
    for tick in 1..=610 {
        if poll_schedule.is_due(tick) {
            visits += u32::from(poll_schedule.look(tick, 0, None::<fn() -> Nanos>).visit.is_some());
        }
    }
    assert_eq!(visits, 10, "without a clock");
}

/// Fails when visits take the goroutines in the global queue only one by one.
#[test]
fn one_visit_in_four_takes_a_share_and_each_of_long_goroutines() {
    for (each, shares) in [(50, 25), (1_000_000, 100)] {
        let (poll_schedule, mut clock, mut taken) = (PollSchedule::new(Policy::default()), 0, Vec::new());
        run(&poll_schedule, 1..10_000, &mut clock, each, |due| taken.extend(due.visit));
        let found = taken[20..120].iter().filter(|&&visit| visit == QueueVisit::Share).count();
        assert_eq!(found, shares, "{each} ns each");
    }
}

/// Fails when the pace for short goroutines lasts for more than [`CLOCK_EVERY`] long ones. Covers ticks that wrap.
#[test]
fn the_pace_follows_a_change() {
    const SHORT: u32 = 2_000;
    for begin in [1, u32::MAX - SHORT, u32::MAX - SHORT - CLOCK_EVERY / 2] {
        let (poll_schedule, mut clock) = (PollSchedule::new(Policy::default()), 0);
        for next in [&poll_schedule.next, &poll_schedule.clock] {
            next.set(begin);
        }
        poll_schedule.visit.set((begin, None));
        run(&poll_schedule, begin..begin + SHORT, &mut clock, 50, |_| ());
        assert_eq!(poll_schedule.every.get(), CLOCK_EVERY, "the pace for short goroutines");
        let mut looks = Vec::new();
        for number in 0..CLOCK_EVERY + 200 {
            clock += 100_000;
            let tick = begin.wrapping_add(SHORT + number);
            if poll_schedule.is_due(tick)
                && poll_schedule.look(tick, 0, Some(|| Nanos::from_nanos(clock))).around.is_some()
            {
                looks.push(number);
            }
        }
        assert!(looks[0] <= CLOCK_EVERY, "the first look after {} long goroutines", looks[0]);
        let last = looks.iter().filter(|&&number| number >= CLOCK_EVERY).count();
        assert!(last >= 195, "{last} looks at the last 200 long goroutines");
    }
}

/// Fails when a slice does not end after [`LONGEST_SLICE`], also if a look has found another goroutine meanwhile; or ends
/// although the ring has had a turn in that time, or no goroutine from `runnext` has run.
#[test]
fn a_slice_ends_by_time() {
    const LONG: u64 = LONGEST_SLICE.as_nanos() as u64;
    for begin in [100, u32::MAX] {
        let poll_schedule = PollSchedule::new(Policy::default());
        let is_long = |head: u32, inherited: u32, at: u64| {
            poll_schedule.slice_is_long(begin.wrapping_add(head), inherited, Nanos::from_nanos(at))
        };
        assert!(!is_long(1, 0, 0));
        assert!(!is_long(2, 0, LONG), "one goroutine of the ring after the other");
        assert!(!is_long(2, 1, 2 * LONG - 1));
        assert!(!is_long(2, 1, 2 * LONG - 1), "a visit has found a goroutine");
        assert!(is_long(2, 3, 2 * LONG), "three of a slice have run since its first look");
        assert!(!is_long(3, 2, 4 * LONG), "the ring has had a turn");
        assert!(!is_long(3, 2, 6 * LONG), "only goroutines that looks have found have run since");
        assert!(is_long(3, 3, 6 * LONG));
        poll_schedule.begin_lease();
        assert!(!is_long(3, 4, 8 * LONG), "no goroutine of the slice ran between two leases");
    }
}

/// Fails when more than one in [`SLEEPER_EVERY`] goroutines is a sleeper that goes first, or when a sleeper goes before
/// sleepers that were due earlier. Covers ticks that wrap.
#[test]
fn a_sleeper_goes_first_now_and_then() {
    for begin in [1, u32::MAX - 100, i32::MAX as u32 - 100] {
        let (poll_schedule, at) =
            (PollSchedule::new(Policy::default()), |tick: u32| begin.wrapping_add(tick));
        poll_schedule.sleepers.set(begin);
        let first = |ticks: std::ops::Range<u32>| {
            ticks.filter(|tick| poll_schedule.sleeper_goes_first(at(*tick))).collect::<Vec<_>>()
        };
        assert_eq!(first(0..40), [0, SLEEPER_EVERY, 2 * SLEEPER_EVERY]);
        poll_schedule.sleepers_are_queued(at(40), 100, Nanos::ZERO);
        poll_schedule.sleepers_are_queued(at(41), 3, Nanos::ZERO);
        assert_eq!(first(41..150), [140]);
        // Much later, and no sleeper has run meanwhile.
        let (much_later, looks) = (1_u32 << 31, 1_u32 << 20);
        for tick in (150..much_later).step_by(looks as usize) {
            poll_schedule.look(at(tick), 0, None::<fn() -> Nanos>);
        }
        assert_eq!(first(much_later..much_later + 2), [much_later]);
    }
}

/// Fails when goroutines that are due wait for more turns, or for longer, than they should before they have a place in the
/// ring, or when the clock is read before each goroutine that no due goroutine may overtake.
#[test]
fn timers_wait_for_a_few_goroutines_while_sleepers_stand_in_the_ring() {
    let (poll_schedule, mut clock) = (PollSchedule::new(Policy::default()), 0);
    let (mut tick, mut last) = (u32::MAX - 100, u32::MAX - 100);
    for (each, ring, goroutines) in [
        (100, 256, capacity::TIMERS_EVERY),
        (100, 3, 3),
        (1_000_000, 256, 1),
        (3_000, 256, 4),
        (20_000, 256, 1),
    ] {
        let mut every = Vec::new();
        for _ in 0..200 {
            clock += each;
            tick = tick.wrapping_add(1);
            if !poll_schedule.timers_wait(tick) {
                every.push(tick.wrapping_sub(last));
                last = tick;
                poll_schedule.sleepers_are_queued(tick, ring, Nanos::from_nanos(clock));
            }
        }
        assert!(every.iter().all(|&every| every <= capacity::TIMERS_EVERY), "{each} ns each: {every:?}");
        assert!(every[10..].iter().all(|&every| every == goroutines), "{each} ns each: {every:?}");
    }
    poll_schedule.sleepers_are_queued(tick, 256, Nanos::from_nanos(clock));
    poll_schedule.begin_lease();
    assert!(
        !poll_schedule.timers_wait(tick),
        "what an owner has queued keeps no later owner from its timers"
    );
}

/// Fails when the clock is read for each goroutine while the earliest timer is far away, or when, at a steady pace, that timer
/// waits for more than the goroutine during which it became due.
#[test]
fn the_clock_is_read_often_when_the_time_of_a_timer_comes_near() {
    const LEFT: u64 = 1_000_000;
    for (each, every) in [(100, capacity::TIMERS_EVERY), (3_000, 4), (12_000, 1), (400_000, 1)] {
        let (poll_schedule, mut clock) = (PollSchedule::new(Policy::default()), LEFT);
        let (mut tick, due, mut looks) = (u32::MAX - 100, Nanos::from_nanos(2 * LEFT), 0);
        loop {
            clock += each;
            tick = tick.wrapping_add(1);
            if poll_schedule.timers_are_far(tick, due) {
                continue;
            }
            let now = Nanos::from_nanos(clock);
            if now >= due {
                break;
            }
            looks += 1;
            poll_schedule.none_is_due(tick, 8, now, due);
        }
        assert!(clock - 2 * LEFT < each, "{each} ns each: late by {} ns", clock - 2 * LEFT);
        let most = LEFT / each / u64::from(every) + 16;
        assert!(looks <= most, "{each} ns each: {looks} looks, and not {most}");
    }
}

/// Fails when goroutines that become longer all at once keep a timer waiting for more of them than the limit, or when a timer
/// that another owner has set, or that is earlier than the known ones, is taken for far away.
#[test]
fn what_was_far_away_may_be_near() {
    let (poll_schedule, mut clock, mut tick) = (PollSchedule::new(Policy::default()), 0, 0);
    let (far, earlier) = (Nanos::from_nanos(1 << 40), Nanos::from_nanos(1 << 39));
    let mut run = |each: u64, goroutines: u32| {
        let mut looks = 0;
        for _ in 0..goroutines {
            clock += each;
            tick += 1;
            if !poll_schedule.timers_are_far(tick, far) {
                looks += 1;
                poll_schedule.none_is_due(tick, 8, Nanos::from_nanos(clock), far);
            }
        }
        (looks, tick)
    };
    run(50, 1_000);
    let (looks, _) = run(1_000_000, 200);
    assert!(looks > 200 - capacity::TIMERS_EVERY, "{looks} looks at 200 long goroutines, after short ones");
    // At the tick after a look the timers count as far away.
    let tick = std::iter::repeat_with(|| run(50, 1))
        .skip(1_000)
        .find(|(looks, _)| *looks == 1)
        .map(|(_, tick)| tick + 1);
    let tick = tick.expect("there is a look now and then");
    assert!(poll_schedule.timers_are_far(tick, far));
    assert!(!poll_schedule.timers_are_far(tick, earlier), "a timer that was set since");
    poll_schedule.begin_lease();
    assert!(!poll_schedule.timers_are_far(tick, far), "another owner");
}

/// Fails when the pace of goroutines that have left the ring is taken for that of the long one which is left: a timer would be
/// late by several of its turns.
#[test]
fn the_pace_of_a_burst_ends_with_the_burst() {
    let (poll_schedule, far) = (PollSchedule::new(Policy::default()), Nanos::from_nanos(1 << 40));
    let (mut clock, mut tick, mut in_a_row) = (0, 0, 0);
    for _round in 0..10 {
        // A hundred short goroutines run and park; then a long one yields alone.
        for (left, each) in (1..=100).rev().map(|left| (left, 100)).chain([(1, 1_000_000); 20]) {
            tick += 1;
            if poll_schedule.timers_are_far(tick, far) {
                in_a_row += u32::from(each > 100);
            } else {
                in_a_row = 0;
                poll_schedule.none_is_due(tick, left, Nanos::from_nanos(clock), far);
            }
            assert!(in_a_row <= 1, "{in_a_row} long turns without a look");
            clock += each;
        }
    }
}

/// Fails when a ring that loses a goroutine now and then has the clock read for every second or third goroutine, as at the end
/// of a burst.
#[test]
fn a_ring_that_is_a_little_shorter_keeps_its_pace() {
    const GOROUTINES: u32 = 32_000;
    let (poll_schedule, far) = (PollSchedule::new(Policy::default()), Nanos::from_nanos(1 << 40));
    let rings = [3, 2, 2, 3, 3, 2, 3].into_iter().cycle();
    let mut reads = 0;
    for (tick, ring) in (1..=GOROUTINES).zip(rings) {
        if !poll_schedule.timers_are_far(tick, far) {
            reads += 1;
            poll_schedule.none_is_due(tick, ring, Nanos::from_nanos(u64::from(tick) * 100), far);
        }
    }
    assert!(reads <= GOROUTINES / capacity::TIMERS_EVERY + 10, "{reads} reads of the clock");
}

/// Fails when the time for which the P was idle counts as time of its goroutines: the pace would be that of long goroutines for
/// a while, or a visit would come early.
#[test]
fn a_sleep_makes_nobody_late() {
    let (poll_schedule, mut clock) = (PollSchedule::new(Policy::default()), 0);
    run(&poll_schedule, 1..1_000, &mut clock, 50, |_| ());
    assert_eq!(poll_schedule.every.get(), CLOCK_EVERY, "the pace for short goroutines");
    let mut before = poll_schedule.visit.get().0;
    clock += 1_000_000_000;
    poll_schedule.begin_lease();
    run(&poll_schedule, 1_000..2_000, &mut clock, 50, |due| {
        assert_eq!(poll_schedule.every.get(), CLOCK_EVERY);
        if due.visit.is_some() {
            let visit = poll_schedule.visit.get().0;
            assert_eq!(visit - std::mem::replace(&mut before, visit), poll_schedule.look_every);
        }
    });
}

/// Fails when sleepers stand among the arrivals beside a ring of short goroutines, or of a few, where that costs more than it
/// saves; or behind a turn of the ring that lasts longer than the ring's goroutines; or when they stand at the end of a long
/// ring. Covers ticks that wrap, and a lease in which the pace is not known yet.
#[test]
fn a_ring_is_long_if_its_goroutines_are() {
    let at = |micros: u64| Nanos::from_nanos(1_000 * micros);
    for begin in [1_000, u32::MAX - 1] {
        let poll_schedule = PollSchedule::new(Policy::default());
        // Four goroutines have run since the last look that found nothing due, for so long in all.
        let is_long =
            |ring, took: u64| poll_schedule.ring_is_long(begin.wrapping_add(4), ring, at(1_000 + took));
        assert!(!is_long(8, 400), "no look in this lease");
        poll_schedule.none_is_due(begin, 8, at(1_000), at(1_000_000));
        for (ring, took, long) in
            [(8, 44, true), (8, 40, false), (5, 44, true), (4, 44, false), (1, 204, true)]
        {
            assert_eq!(is_long(ring, took), long, "a ring of {ring}, {took} µs for four");
        }
        // An arrivals' turn of 600 µs ends now, and the ring has the next 600.
        let arrivals = &poll_schedule.arrivals;
        let seen = |micros| Seen { tick: begin, now: at(micros), waiting: 8, round: 8, queued: 0 };
        arrivals.go_first(seen(400));
        assert!(!arrivals.may_go_first(seen(1_000)));
        assert!(!is_long(8, 44), "the eight take 88 µs");
        assert!(is_long(8, 400), "the eight take 800 µs");
        poll_schedule.begin_lease();
        assert!(!is_long(8, 400), "another lease");
    }
}
