//! Sleeping: never early, in the order of the due times, and no M sleeps past a timer.

use common::{PROCS, everywhere, runtime, until, watched};
use gmp::go;
use gmp::time::{sleep, sleep_until};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
/// How late a wake-up may be on a shared machine.
const LATE: Duration = Duration::from_secs(5);

/// Fails by an early wake-up, as when a timer is rounded down, or is fired by a stale reading of the clock.
#[test]
fn a_sleep_is_never_shorter_than_asked_for() {
    everywhere(|rt| {
        rt.run(|| {
            let sleepers: Vec<_> = (0..400_u32)
                .map(|n| {
                    go(move || {
                        let dur = Duration::from_nanos(u64::from(n) * 37_119 % 9_000_000);
                        let start = Instant::now();
                        sleep(dur);
                        assert!(start.elapsed() >= dur, "slept {:?} instead of {dur:?}", start.elapsed());
                        let due = Instant::now() + dur;
                        sleep_until(due);
                        assert!(Instant::now() >= due);
                    })
                })
                .collect();
            sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
        });
    });
}

/// Fails by disorder when the heap gives out a later timer first. There is one P, so sleepers that are found due at once run in
/// the order in which they were readied. If the kernel keeps that P's thread from the core for long, the monitor serves some
/// sleepers, and others then overtake these; so one ordered round of several is enough.
#[test]
fn sleepers_wake_in_the_order_of_their_due_times() {
    let rt = runtime(1);
    let round = || {
        let order = Arc::new(Mutex::new(Vec::new()));
        rt.run(|| {
            // Far enough away that all goroutines sleep by then, even on a busy machine.
            let start = Instant::now() + 250 * MS;
            let sleepers: Vec<_> = (0..200_u32)
                .map(|n| {
                    let (order, rank) = (Arc::clone(&order), n * 83 % 200);
                    go(move || {
                        sleep_until(start + rank * MS / 4);
                        order.lock().unwrap().push(rank);
                    })
                })
                .collect();
            sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
        });
        order.lock().unwrap().clone()
    };
    let rounds: Vec<_> =
        (0..10).map(|_| round()).take_while(|order| *order != Vec::from_iter(0..200)).collect();
    assert!(rounds.len() < 10, "{:?}", rounds[0]);
}

/// Fails by a hang or a lost sleeper when one timer of many is dropped as the heap is rebuilt or cleaned.
#[test]
fn ten_thousand_sleepers_of_all_durations_wake() {
    everywhere(|rt| {
        rt.run(|| {
            let woken = Arc::new(AtomicUsize::new(0));
            let sleepers: Vec<_> = (0..10_000_u64)
                .map(|n| {
                    let woken = Arc::clone(&woken);
                    go(move || {
                        sleep(Duration::from_micros(n * 7_919 % 60_000));
                        woken.fetch_add(1, SeqCst);
                    })
                })
                .collect();
            sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
            assert_eq!(woken.load(SeqCst), 10_000);
        });
    });
}

/// Fails by a hang when a time that has passed is put into the heap while a poller waits for ever.
#[test]
fn nothing_to_wait_for_returns_at_once() {
    everywhere(|rt| {
        rt.run(|| {
            let start = Instant::now();
            for _ in 0..1000 {
                sleep(Duration::ZERO);
                sleep_until(start);
                sleep_until(start - Duration::from_secs(1));
            }
            assert!(start.elapsed() < LATE);
        });
    });
}

/// Fails by a panic, or when a sleep is over at once, because the sum of now and the duration wraps around.
#[test]
fn a_duration_beyond_the_clock_is_a_wait_without_an_end() {
    everywhere(|rt| {
        let ended = Arc::new(AtomicUsize::new(0));
        let started = Arc::new(AtomicUsize::new(0));
        let endless = [Duration::MAX, Duration::from_nanos(u64::MAX), Duration::from_secs(u64::MAX / 2)];
        for dur in endless {
            let (started, ended) = (Arc::clone(&started), Arc::clone(&ended));
            drop(rt.go(move || {
                started.fetch_add(1, SeqCst);
                sleep(dur);
                ended.fetch_add(1, SeqCst);
            }));
        }
        rt.run(|| {
            until(|| started.load(SeqCst) == endless.len());
            // A timer that is due soon passes those that are not.
            sleep(2 * MS);
        });
        assert_eq!(ended.load(SeqCst), 0);
        assert!(rt.shutdown(LATE).is_clean());
        assert_eq!(ended.load(SeqCst), 0);
    });
}

/// Fails by a panic when a wait of a plain thread looks for its goroutine.
#[test]
fn a_plain_thread_sleeps_itself() {
    let start = Instant::now();
    sleep(3 * MS);
    assert!(start.elapsed() >= 3 * MS);
    sleep_until(start + 6 * MS);
    assert!(start.elapsed() >= 6 * MS);
    sleep(Duration::ZERO);
    sleep_until(start);
}

/// Fails by lateness when the M that waits for the timer of an hour is not broken out of its wait, or when the break is lost
/// because another M takes it.
#[test]
fn an_earlier_timer_shortens_a_wait_that_has_begun() {
    everywhere(|rt| {
        drop(rt.go(|| sleep(Duration::from_secs(3600))));
        for _ in 0..50 {
            let start = Instant::now();
            // From outside, so that the runtime is idle in between.
            rt.run(|| sleep(MS));
            assert!(start.elapsed() < LATE);
        }
        // Each sleep is shorter than the one before, so each timer is the earliest when it is set.
        rt.run(|| {
            let start = Instant::now();
            let sleepers: Vec<_> = (1..=20).rev().map(|n| go(move || sleep(n * 2 * MS))).collect();
            sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
            assert!(start.elapsed() < LATE);
        });
    });
}

/// The only M waits for the timer, and is broken out of its wait to run a goroutine that spins. Fails by a hang when no M waits
/// for the timer any more, although a P is idle.
#[test]
fn an_idle_p_serves_a_timer_while_a_goroutine_spins() {
    for procs in PROCS.into_iter().filter(|procs| *procs > 1) {
        for round in 0..20 {
            watched(procs, || {
                let rt = runtime(procs);
                let stop = Arc::new(AtomicBool::new(false));
                // In most rounds the M already waits in the poller, here and below.
                std::thread::sleep(round % 5 * MS);
                let stopper = rt.go({
                    let stop = Arc::clone(&stop);
                    move || {
                        sleep(20 * MS);
                        stop.store(true, SeqCst);
                    }
                });
                std::thread::sleep(round % 5 * MS);
                let spinner = rt.go(move || {
                    while !stop.load(SeqCst) {
                        std::hint::spin_loop();
                    }
                });
                stopper.join().unwrap();
                spinner.join().unwrap();
            });
        }
    }
}

/// Blocks the thread for a millisecond, as the poller does between timers.
fn sleep_of_the_kernel() {
    let limit = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // SAFETY: no descriptors are given, the limit lives through the call, and a null mask leaves the signals alone.
    let ready = unsafe { libc::ppoll(std::ptr::null_mut(), 0, &raw const limit, std::ptr::null()) };
    assert_eq!(ready, 0);
}

/// Fails by lateness, compared with the kernel's own sleep, when timers are rounded to the kernel's ticks, or are served by a
/// poller that wakes by chance.
#[test]
fn a_short_sleep_is_short() {
    const SLEEPS: usize = 101;
    everywhere(|rt| {
        let overslept = |sleeps: fn()| {
            let start = Instant::now();
            sleeps();
            start.elapsed() - MS
        };
        let [mut kernel, mut ours] = [(); 2].map(|()| Vec::new());
        // The two sleeps alternate, so that the machine's other work delays both alike.
        for _ in 0..SLEEPS {
            kernel.push(overslept(sleep_of_the_kernel));
            ours.push(rt.run(|| overslept(|| sleep(MS))));
        }
        let [usual, ours] = [kernel, ours].map(|mut over| {
            over.sort();
            over[SLEEPS / 2]
        });
        println!("late by {ours:?}, the kernel by {usual:?}, in the median");
        assert!(
            ours <= 3 * usual + MS,
            "half of the sleeps were later than {ours:?}, the kernel's {usual:?}"
        );
    });
}
