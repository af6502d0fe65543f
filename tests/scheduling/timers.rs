//! Sleeps: as exact as the kernel's own, in order, and never early.

use crate::measure::{Meeting, alone, median, percentile, spin_for};
use common::{other_threads_sleep, runtime, watched};
use gmp::net::TcpListener;
use gmp::time::{after_func, sleep, sleep_until};
use gmp::{go, yield_now};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// Returns by how much a hundred sleeps are too long. Fails when one is too short.
fn oversleeps(dur: Duration, sleep: impl Fn(Duration)) -> Vec<Duration> {
    let once = |_| {
        let start = Instant::now();
        sleep(dur);
        start.elapsed().checked_sub(dur).expect("a sleep ended early")
    };
    (0..100).map(once).collect()
}

/// Sleeps on the thread, by the kernel's own call.
fn clock_nanosleep(dur: Duration) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: dur.as_nanos() as libc::c_long };
    // SAFETY: the time is valid, and with the null pointer the kernel does not tell what is left.
    let refused =
        unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &raw const time, std::ptr::null_mut()) };
    assert_eq!(refused, 0);
}

/// Returns the oversleeps of a thread with the least slack.
fn oversleeps_of_a_thread(dur: Duration) -> Vec<Duration> {
    let exact = move || {
        // SAFETY: the call sets a number of this thread.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) }, 0);
        oversleeps(dur, clock_nanosleep)
    };
    thread::spawn(exact).join().unwrap()
}

/// Fails by an early end, or when times are rounded up to the kernel's ticks, or to a slack.
#[test]
fn a_sleep_is_as_exact_as_a_threads() {
    let _alone = alone();
    for procs in [1, 2, 4] {
        watched(procs, || {
            let rt = runtime(procs);
            for dur in [50, 200, 1000].map(Duration::from_micros) {
                // Beside other programs a try may be late; a fault of the runtime is there in each try.
                let is_exact = || {
                    let before = oversleeps_of_a_thread(dur);
                    let ours = rt.run(|| oversleeps(dur, sleep));
                    let after = oversleeps_of_a_thread(dur);
                    let kernel = median(&before).max(median(&after));
                    println!(
                        "procs = {procs}, {dur:?}: late by {:?}, p99 {:?}; a thread {kernel:?}",
                        median(&ours),
                        percentile(&ours, 99)
                    );
                    // The aim is 15 µs more than the kernel's.
                    median(&ours) <= kernel + Duration::from_micros(100)
                };
                assert!((0..5).any(|_| is_exact()), "procs = {procs}, {dur:?}: late, see above");
            }
        });
    }
}

/// Returns the timer slack of the calling thread.
fn slack() -> i32 {
    // SAFETY: the call reads a number of this thread.
    unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) }
}

/// Returns the timer slack of a child process, as the child says it.
fn slack_of_a_child() -> i32 {
    let child =
        std::process::Command::new("cat").arg("/proc/self/timerslack_ns").output().expect("cat starts");
    String::from_utf8(child.stdout).unwrap().trim().parse().expect("a number of nanoseconds")
}

/// Fails when a child process, a thread, or the thread of a callback inherits the slack that a wait of the runtime has set,
/// after waits of each length.
#[test]
fn what_a_goroutine_starts_has_the_slack_that_the_program_has() {
    let _alone = alone();
    let usual = thread::spawn(slack).join().unwrap();
    assert_eq!(slack_of_a_child(), usual);
    for procs in [1, 2] {
        watched(procs, move || {
            let rt = runtime(procs);
            let seen = rt.run(|| {
                let lengths = [1, 20, 50, 60, 1000, 5000].map(Duration::from_micros);
                let each = |dur| {
                    go(move || {
                        sleep(dur);
                        [slack(), slack_of_a_child(), thread::spawn(slack).join().unwrap()]
                    })
                };
                lengths.map(each).map(|slacks| slacks.join().unwrap())
            });
            assert_eq!(seen, [[usual; 3]; 6]);
        });
    }
    // Outside of a runtime the timer thread starts the callback's thread, after a wait of its own.
    sleep(20 * Duration::from_micros(1));
    let (tell, hear) = std::sync::mpsc::channel();
    let _call = after_func(MS, move || tell.send([slack(), slack_of_a_child()]).unwrap());
    assert_eq!(hear.recv().unwrap(), [usual; 2]);
    assert_eq!(slack(), usual);
}

/// The outcome of a round in which one goroutine yields and another, on the other P, is to wake.
#[derive(Debug, PartialEq)]
enum Round {
    /// The goroutine woke, after so many turns of the one that yields.
    Woke(usize),
    /// The goroutine did not wake, in [`TURNS`], and some other thread was about to do something, from which the machine may
    /// have kept it.
    Unknown,
    /// The goroutine did not wake, and all other threads slept until a thread would wake them.
    Forgotten,
}

/// So many turns have some sixteen visits, and take far less time than the monitor gives the M that is to poll.
const TURNS: usize = 1000;

/// Runs a goroutine that yields while the time of another one, which sleeps on the other P, comes. A listener gives the M that
/// yields a poller to look at.
fn yields_beside_a_sleeper_of_another_p() -> Round {
    let rt = runtime(2);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    drop(rt.go(move || listener.accept().map(drop)));
    let (meeting, woken) = (Meeting::of(2), Arc::new(AtomicBool::new(false)));
    let (meets, wakes) = (Arc::clone(&meeting), Arc::clone(&woken));
    meeting.begin();
    let due = Instant::now() + 6 * MS;
    // Each goroutine is on an M of its own, so its timer is in a heap of its own.
    let sleeper = rt.go(move || {
        meets.attend();
        sleep_until(due);
        wakes.store(true, SeqCst);
    });
    let yields = rt.go(move || {
        meeting.attend();
        sleep_until(due - 3 * MS);
        while Instant::now() < due {
            yield_now();
        }
        let turns = (0..TURNS).find(|_| {
            yield_now();
            woken.load(SeqCst)
        });
        let forgotten = || other_threads_sleep() && !woken.load(SeqCst);
        turns.map_or_else(|| if forgotten() { Round::Forgotten } else { Round::Unknown }, Round::Woke)
    });
    let round = yields.join().unwrap();
    sleeper.join().unwrap();
    round
}

/// Fails when no M serves a timer in the heap of an idle P, because the only busy M, which yields, looks at the poller, so that
/// no other M is sent there. Only some rounds can fail, as it depends on which M came to wait in the poller.
#[test]
fn a_goroutine_that_yields_does_not_keep_timers_of_another_p_waiting() {
    let _alone = alone();
    watched(2, || {
        let rounds: Vec<_> = (0..100).map(|_| yields_beside_a_sleeper_of_another_p()).collect();
        println!("{rounds:?}");
        assert!(!rounds.contains(&Round::Forgotten), "{rounds:?}");
    });
}

/// Fails by lateness when the M in the poller waits for the long sleep, and is not told of the short one.
#[test]
fn a_short_sleep_is_short_while_an_m_waits_for_a_long_one() {
    /// In this time the M that has nothing to do comes to wait in the poller.
    const SETTLES: Duration = Duration::from_millis(15);
    let _alone = alone();
    for procs in [2, 4] {
        for busy in [false, true] {
            let late = watched(procs, || {
                let rt = runtime(procs);
                drop(rt.go(|| sleep(Duration::from_secs(3600))));
                let round = |_| {
                    rt.run(|| {
                        spin_for(SETTLES);
                        let over = Arc::new(AtomicBool::new(!busy));
                        let stop = Arc::clone(&over);
                        // This goroutine takes the P when the sleeper leaves it.
                        let keeps = go(move || {
                            while !stop.load(SeqCst) {
                                std::hint::spin_loop();
                            }
                        });
                        let start = Instant::now();
                        sleep(MS);
                        let slept = start.elapsed();
                        over.store(true, SeqCst);
                        keeps.join().unwrap();
                        slept.checked_sub(MS).expect("a sleep ended early")
                    })
                };
                (0..25).map(round).collect::<Vec<_>>()
            });
            println!(
                "procs = {procs}, busy = {busy}: late by {:?}, worst {:?}",
                median(&late),
                late.iter().max()
            );
            assert!(median(&late) < 4 * MS, "busy = {busy}: late by {:?}", median(&late));
        }
    }
}

const SLEEPERS: u64 = 1000;

/// Returns the due times of many sleepers in the order in which they woke, or `None` if not all had begun to sleep before the
/// first was due, `lead` after the beginning.
fn sleeps_in_order_of_waking(lead: Duration) -> Option<Vec<Instant>> {
    let woken = Arc::new(Mutex::new(Vec::new()));
    let in_time = runtime(1).run(|| {
        let start = Instant::now() + lead;
        let sleepers: Vec<_> = (0..SLEEPERS)
            .map(|number| {
                let woken = Arc::clone(&woken);
                // Anything within 80 ms.
                let scattered = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 80_000_000;
                let due = start + Duration::from_nanos(scattered);
                go(move || {
                    let begun = Instant::now();
                    sleep_until(due);
                    assert!(Instant::now() >= due, "a sleep ended early");
                    woken.lock().unwrap().push(due);
                    begun < start
                })
            })
            .collect();
        let in_time: Vec<_> = sleepers.into_iter().map(|sleeper| sleeper.join().unwrap()).collect();
        in_time.into_iter().all(|in_time| in_time)
    });
    let woken = std::mem::take(&mut *woken.lock().unwrap());
    assert_eq!(woken.len(), SLEEPERS as usize);
    in_time.then_some(woken)
}

/// Fails by a hang, by an early end, or by disorder when the heap gives out a later sleeper first. There is one P, so that
/// there is an order; sleepers that are due at the same look may change places.
#[test]
fn sleepers_with_random_times_all_wake_in_their_order() {
    const TOLERANCE: Duration = Duration::from_micros(200);
    let _alone = alone();
    watched(1, || {
        let mut leads = (0..).map(|attempt| 30 * MS * 2_u32.pow(attempt));
        let woken = leads.find_map(sleeps_in_order_of_waking).expect("it is tried again and again");
        // Sleepers that woke after one that was due that much later.
        let mut latest = woken[0];
        let passed = woken.iter().filter(|due| {
            latest = latest.max(**due);
            latest - **due > TOLERANCE
        });
        let passed = passed.count();
        println!("{passed} of {SLEEPERS} woke after somebody who was due {TOLERANCE:?} later");
        assert!(passed <= SLEEPERS as usize / 20, "{passed} woke after somebody who was due later");
    });
}
