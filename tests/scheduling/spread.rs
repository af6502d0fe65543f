//! Work that keeps its thread reaches all Ps.

use crate::measure::{Meeting, alone, median, percentile};
use common::child;
use common::{PROCS, runtime, until, watched};
use gmp::go;
use gmp::sync::Event;
use gmp::time::{sleep, sleep_until};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: u32 = 50;
/// By this the rest grows from round to round, so that the rounds meet the other threads at each step of going to sleep.
const REST: Duration = Duration::from_micros(10);

/// Returns how long the kernel itself takes until `size` threads run, when one of them wakes the others, which sleep, and keeps
/// its core.
fn waits_of_threads(size: usize, rest: Duration) -> Vec<Duration> {
    let meeting = Meeting::of(size);
    thread::scope(|s| {
        let wait = || {
            meeting.announce();
            while !meeting.has_begun() {
                thread::park();
            }
            meeting.attend();
        };
        let threads: Vec<_> = (1..size).map(|_| s.spawn(wait)).collect();
        until(|| meeting.is_awaited());
        thread::sleep(rest);
        meeting.begin();
        threads.iter().for_each(|thread| thread.thread().unpark());
        meeting.attend();
    });
    meeting.waits()
}

/// The same for goroutines that one of them starts.
fn waits_of_started(size: usize, rest: Duration) -> Vec<Duration> {
    let meeting = Meeting::of(size);
    sleep(rest);
    meeting.begin();
    let start = |_| {
        let meeting = Arc::clone(&meeting);
        go(move || meeting.attend())
    };
    let others: Vec<_> = (1..size).map(start).collect();
    meeting.attend();
    others.into_iter().for_each(|other| other.join().unwrap());
    meeting.waits()
}

/// The same for goroutines that are parked, and that one of them readies.
fn waits_of_readied(size: usize, rest: Duration) -> Vec<Duration> {
    let meeting = Meeting::of(size);
    let park = |_| {
        let (meeting, call) = (Arc::clone(&meeting), Arc::new(Event::new()));
        let called = Arc::clone(&call);
        let parked = go(move || {
            meeting.announce();
            called.wait();
            meeting.attend();
        });
        (parked, call)
    };
    let others: Vec<_> = (1..size).map(park).collect();
    until(|| meeting.is_awaited());
    sleep(rest);
    meeting.begin();
    others.iter().for_each(|(_, call)| call.notify_one());
    meeting.attend();
    others.into_iter().for_each(|(other, _)| other.join().unwrap());
    meeting.waits()
}

/// The same for goroutines that one look at the timers makes runnable, all of them at once.
fn waits_of_due(size: usize, rest: Duration) -> Vec<Duration> {
    let meeting = Meeting::of(size);
    let due = Instant::now() + Duration::from_millis(1) + rest;
    meeting.begin_at(due);
    let sleep = |_| {
        let meeting = Arc::clone(&meeting);
        go(move || {
            sleep_until(due);
            meeting.attend();
        })
    };
    let sleepers: Vec<_> = (0..size).map(sleep).collect();
    sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
    meeting.waits()
}

/// Fails by too small a count of threads when a P stays idle beside goroutines that wait for one; or by time when an M looks
/// for work only every now and then.
#[test]
fn a_goroutine_that_wakes_others_and_keeps_its_p_gets_all_ps_busy() {
    /// The time that the kernel's own choices may add: two of its time slices.
    const MARGIN: Duration = Duration::from_millis(6);
    let _alone = alone();
    for procs in [2, 4] {
        watched(procs, || {
            let rt = runtime(procs);
            let [mut kernel, mut started, mut readied, mut due] = [(); 4].map(|()| Vec::new());
            // The kinds take turns, so that the machine's other work meets them all.
            for round in 0..ROUNDS {
                let rest = round * REST;
                kernel.extend(waits_of_threads(procs, rest));
                started.extend(rt.run(|| waits_of_started(procs, rest)));
                readied.extend(rt.run(|| waits_of_readied(procs, rest)));
                due.extend(rt.run(|| waits_of_due(procs, rest)));
            }
            let usual = median(&kernel);
            println!("procs = {procs}: threads {usual:?}, p99 {:?}", percentile(&kernel, 99));
            for (how, ours) in [("started", started), ("readied", readied), ("due", due)] {
                println!("procs = {procs}: {how} {:?}, p99 {:?}", median(&ours), percentile(&ours, 99));
                assert!(median(&ours) <= 3 * usual + MARGIN, "{how}: {:?}, threads {usual:?}", median(&ours));
            }
        });
    }
}

/// As many goroutines as there are Ps wait, each on its thread, for all of them. Fails by a count when some never start, or
/// when more run at the same time than there are Ps. There is no hand-off, as a goroutine that loses its P runs on beside the
/// others.
#[test]
fn all_ps_run_something_and_no_more_than_all() {
    let _alone = alone();
    if !child::is_child() {
        child::passes("all_ps_run_something_and_no_more_than_all", &[("GMPDEBUG", "handoff=0")]);
        return;
    }
    for procs in PROCS.into_iter().filter(|procs| *procs > 1) {
        watched(procs, || {
            for round in 0..20 {
                let rt = runtime(procs);
                let meeting = Meeting::of(procs);
                meeting.begin();
                let [running, most] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
                let task = |attends: bool| {
                    let (meeting, running, most) =
                        (Arc::clone(&meeting), Arc::clone(&running), Arc::clone(&most));
                    move || {
                        most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                        if attends {
                            meeting.attend();
                        } else {
                            (0..1000).for_each(|_| std::hint::spin_loop());
                        }
                        running.fetch_sub(1, SeqCst);
                    }
                };
                // The tasks come from outside, or all into the queue of one P; the tasks that do not attend stand behind the
                // others.
                let tasks = (0..4 * procs).map(|number| task(number < procs));
                let tasks: Vec<_> = match round % 2 {
                    0 => tasks.map(|task| rt.go(task)).collect(),
                    _ => {
                        let tasks: Vec<_> = tasks.collect();
                        rt.go(|| tasks.into_iter().map(go).collect::<Vec<_>>()).join().unwrap()
                    }
                };
                tasks.into_iter().for_each(|task| task.join().unwrap());
                assert_eq!(meeting.waits().len(), procs - 1);
                assert_eq!(most.load(SeqCst), procs, "ran at the same time");
            }
        });
    }
}
