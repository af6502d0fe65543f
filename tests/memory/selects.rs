//! Selects and timers leave no memory behind: neither arms that lost, nor timers that were stopped.

use super::{ALLOCATIONS, BYTES, EMPTY};
use common::random::{Random, rounds};
use common::{PROCS, child, runtime, until, watched};
use gmp::chan::{Receiver, Select, Sender, bounded, never, unbounded};
use gmp::time::Timer;
use gmp::{go, select};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What pools and queues may keep for the next time, however often they were used.
const SLACK: isize = 64 << 10;

/// Does the work for a tenth of `times` first. Then does it for all of `times`, and counts the bytes that it leaves behind, and
/// its allocations for each time.
#[track_caller]
fn settles(what: &str, times: usize, most_allocations: f64, mut work: impl FnMut(usize)) {
    work(times / 10 + 1);
    let (live, allocations) = (BYTES.load(Relaxed), ALLOCATIONS.load(Relaxed));
    work(times);
    let each = (ALLOCATIONS.load(Relaxed) - allocations) as f64 / times as f64;
    // Memory of an ended goroutine or thread is freed a moment after its join.
    let mut looks = 0;
    until(|| {
        looks += 1;
        BYTES.load(Relaxed) - live < SLACK || looks > 10_000
    });
    let left = BYTES.load(Relaxed) - live;
    assert!(left < SLACK, "{what}: {left} bytes are left after {times} times, {each:.2} allocations each");
    // The runtime itself allocates now and then.
    assert!(each <= most_allocations + 0.01, "{what}: {each:.4} allocations each");
}

/// Returns how many rounds there are at each number of Ps, so that there are a million in all.
fn million() -> usize {
    rounds(1_000_000 / PROCS.len())
}

fn selects_that_do_not_wait(times: usize) {
    let ((s, r), (full, _rest)) = (unbounded(), bounded(1));
    full.send(0).unwrap();
    let idle = never::<usize>();
    for n in 0..times / 2 {
        select! { recv(r) -> _ => unreachable!(), send(full, n) -> _ => unreachable!(), default => {} }
        s.send(n).unwrap();
        select! {
            recv(r) -> got => assert_eq!(got, Ok(n)),
            recv(idle) -> _ => unreachable!(),
            send(full, n) -> _ => unreachable!(),
        }
    }
}

/// Two members take turns, and each time each of them leaves three queues in which it got nothing.
fn selects_that_wait(times: usize, silent: &[(Sender<usize>, Receiver<usize>)]) {
    fn play(times: usize, mine: &Receiver<usize>, theirs: &Sender<usize>, silent: &[Receiver<usize>]) {
        for n in 0..times {
            let [a, b, c] = silent else { unreachable!("there are three") };
            select! {
                recv(a) -> _ => unreachable!(),
                recv(mine) -> got => assert_eq!(got, Ok(n)),
                recv(b) -> _ => unreachable!(),
                recv(c) -> _ => unreachable!(),
            }
            select! { send(theirs, n) -> sent => sent.unwrap(), recv(a) -> _ => unreachable!() }
        }
    }
    let [(ping, pinged), (pong, ponged)] = [bounded(0), bounded(0)];
    let quiet: Vec<_> = silent.iter().map(|(_, r)| r.clone()).collect();
    let theirs = quiet.clone();
    let other = go(move || play(times / 4, &pinged, &pong, &theirs));
    for n in 0..times / 4 {
        ping.send(n).unwrap();
        let [a, b, c] = &quiet[..] else { unreachable!("there are three") };
        let mut select = Select::new();
        let answered = [a, b, &ponged, c].map(|r| select.recv(r))[2];
        let chosen = select.select();
        assert_eq!(chosen.index(), answered);
        assert_eq!(chosen.recv(&ponged), Ok(n));
    }
    other.join().unwrap();
}

/// Fails if a queue keeps the places of arms that lost, or if a select costs more as more selects were before it.
fn selects() {
    let silent: Vec<_> = (0..3).map(|_| bounded(0)).collect();
    settles("selects that do not wait", million(), 2.0, selects_that_do_not_wait);
    settles("selects that wait", million(), 4.0, |times| selects_that_wait(times, &silent));
    settles("selects with a limit", million() / 100, 4.0, |times| {
        let mut random = Random::new(1);
        for _ in 0..times {
            random.pause(2);
            let limit = Duration::from_nanos(random.below(2000));
            select! { recv(silent[0].1) -> _ => unreachable!(), recv(silent[1].1) -> _ => unreachable!(), default(limit) => {} }
        }
    });
}

/// A message without a size that no space of a select is aligned for.
#[repr(align(64))]
struct Aligned;

/// Fails if the box of an arm that was chosen, or of one that lost, stays behind; or if a box has no size.
fn boxed_messages() {
    let (large, aligned) = (unbounded::<[usize; 9]>(), unbounded::<Aligned>());
    settles("selects with messages in boxes", million() / 10, 2.0, |times| {
        for n in 0..times {
            match n % 3 {
                0 => drop(large.0.send([n; 9])),
                1 => drop(aligned.0.send(Aligned)),
                _ => {}
            }
            select! {
                recv(large.1) -> got => assert_eq!((n % 3, got), (0, Ok([n; 9]))),
                recv(aligned.1) -> got => assert_eq!((n % 3, got.map(|got| (&raw const got).addr() % 64)), (1, Ok(0))),
                default(Duration::from_nanos(1)) => assert_eq!(n % 3, 2),
            }
        }
    });
    assert_eq!(EMPTY.load(Relaxed), 0, "allocations of no size");
}

/// A message that needs a box, and panics as it is dropped.
struct Reluctant([usize; 99]);

impl Drop for Reluctant {
    fn drop(&mut self) {
        resume_unwind(Box::new(self.0[0]));
    }
}

/// Fails if the box of a message whose `drop` panics as its receive is called off stays behind; or if that panic is lost.
fn boxed_messages_that_panic() {
    let (s, r) = unbounded();
    settles("receives of reluctant messages that are called off", million() / 100, 10.0, |times| {
        for n in 0..times {
            assert!(s.send(Reluctant([n; 99])).is_ok());
            let mut select = Select::new();
            select.recv(&r);
            let selected = select.select();
            let panics = catch_unwind(AssertUnwindSafe(|| drop(selected)));
            assert_eq!(panics.unwrap_err().downcast_ref(), Some(&n));
        }
    });
}

/// Fails if a stopped timer stays in a heap until its hour has come, or if a timer takes more than its own allocation.
fn timers() {
    const HOUR: Duration = Duration::from_secs(3600);
    settles("timers that are stopped", million(), 1.0, |times| {
        for _ in 0..times {
            assert!(Timer::new(HOUR).stop());
        }
    });
    settles("timers that are dropped", million(), 1.0, |times| {
        (0..times).for_each(|_| drop(Timer::new(HOUR)))
    });
    settles("one timer that is reset", million(), 0.0, |times| {
        let timer = Timer::new(HOUR);
        (0..times).for_each(|_| assert!(timer.reset(HOUR)));
    });
    settles("timers for which somebody waits a little", million() / 100, 4.0, |times| {
        for _ in 0..times {
            let timer = Timer::new(HOUR);
            select! { recv(timer.receiver()) -> _ => unreachable!(), default(Duration::from_nanos(500)) => {} }
            assert!(timer.stop());
        }
    });
}

/// Runs all that is counted, one after the other.
#[test]
fn selects_and_timers_leave_no_memory_behind() {
    if !child::is_child() {
        child::passes("selects_and_timers_leave_no_memory_behind", &[]);
        return;
    }
    for procs in PROCS {
        watched(procs, || {
            let rt = runtime(procs);
            rt.run(selects);
            rt.run(boxed_messages);
            rt.run(boxed_messages_that_panic);
            rt.run(timers);
        });
    }
}
