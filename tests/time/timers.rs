//! Timers: a callback is called once for each time that it was set and not stopped, in a goroutine of its own or on a callback
//! thread, and never early; a timer's channel gives its due time once.

use common::{PROCS, everywhere, runtime, until, watched};
use gmp::sync::{Event, Semaphore};
use gmp::time::{Ticker, Timer, after_func, sleep};
use gmp::{Runtime, go};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
/// How late a wake-up may be on a shared machine.
const LATE: Duration = Duration::from_secs(5);
/// The number of rounds of each race.
const ROUNDS: u32 = if cfg!(debug_assertions) { 2_000 } else { 20_000 };

/// The timer thread is one for all tests of this process: tests that look at it, and tests that use it, run one after the
/// other.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A count that a test can wait for.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn add(&self) {
        self.0.fetch_add(1, SeqCst);
    }
    fn get(&self) -> usize {
        self.0.load(SeqCst)
    }
    /// Waits until the count is `n`, and fails when it is more.
    #[track_caller]
    fn reaches(&self, n: usize) {
        until(|| self.get() >= n);
        assert_eq!(self.get(), n);
    }
}

/// Runs `body` in a goroutine, in a runtime of each size, and on a plain thread, where `body` gets `None`.
fn in_and_out(body: impl Fn(Option<usize>) + Send + Sync) {
    let _alone = alone();
    for procs in PROCS {
        watched(procs, || runtime(procs).run(|| body(Some(procs))));
    }
    watched(0, || body(None));
}

/// Returns how many threads of this process have this name.
pub(crate) fn threads_called(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc is mounted");
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|comm| comm.trim_end() == name).count()
}

/// Fails when a call is early, missing, repeated, or made on the stack of the thread that found the timer due.
#[test]
fn a_callback_is_called_once_in_a_goroutine_or_thread_of_its_own() {
    in_and_out(|inside| {
        let (seen, caller) = (Arc::new(Mutex::new(Vec::new())), thread::current().id());
        let me = gmp::current().map(|g| g.id());
        for n in 0..20 {
            let (dur, start, seen) = (n * MS / 4, Instant::now(), Arc::clone(&seen));
            drop(after_func(dur, move || {
                assert!(start.elapsed() >= dur, "called after {:?} instead of {dur:?}", start.elapsed());
                seen.lock().unwrap().push((gmp::current().map(|g| g.id()), thread::current().id()));
            }));
        }
        until(|| seen.lock().unwrap().len() == 20);
        sleep(2 * MS);
        let mut seen = std::mem::take(&mut *seen.lock().unwrap());
        assert_eq!(seen.len(), 20);
        assert!(seen.iter().all(|(g, _)| g.is_some() == inside.is_some()));
        if inside.is_some() {
            assert!(seen.iter().all(|(g, _)| *g != me));
            seen.sort_by_key(|(g, _)| g.map(|g| g.get()));
            seen.dedup_by_key(|(g, _)| *g);
        } else {
            assert!(seen.iter().all(|(_, thread)| *thread != caller));
        }
        assert_eq!(seen.len(), 20);
    });
}

/// Checks the table of the documentation. Fails when a call returns what did not happen.
#[test]
fn stop_and_reset_tell_whether_it_was_pending() {
    in_and_out(|_| {
        let count = Count::default();
        let counts = count.clone();
        let timer = after_func(HOUR, move || counts.add());
        assert!(timer.stop() && !timer.stop(), "stopped once");
        assert!(!timer.reset(HOUR) && timer.reset(HOUR), "set, and moved");
        assert!(timer.reset(Duration::ZERO), "moved to now");
        count.reaches(1);
        assert!(!timer.stop(), "it has fired");
        assert!(!timer.reset(MS), "set again");
        count.reaches(2);
        assert!(!timer.reset(HOUR) && timer.stop());
        assert!(!timer.reset(Duration::MAX) && timer.stop(), "beyond the clock");
        assert!(timer.receiver().try_recv().is_err());
        assert_eq!(count.get(), 2);
    });
}

/// A timer that is about to be due is stopped or reset. Fails when the callback fires more or less often than the results of
/// the calls say.
#[test]
fn a_call_that_races_with_stop_or_reset_happens_as_often_as_they_said() {
    in_and_out(|inside| {
        let rounds = if inside.is_some() { ROUNDS } else { ROUNDS / 20 };
        let (mut stopped, mut moved) = (0, 0);
        for round in 0..rounds {
            let count = Count::default();
            let counts = count.clone();
            let timer =
                after_func(Duration::from_nanos(u64::from(round) * 7_919 % 20_000), move || counts.add());
            let now = Instant::now();
            while now.elapsed() < Duration::from_nanos(u64::from(round) * 104_729 % 40_000) {
                std::hint::spin_loop();
            }
            if round % 3 != 0 {
                gmp::yield_now();
            }
            let mut expected = 1;
            if round % 2 == 0 && !timer.reset(Duration::from_micros(u64::from(round) % 10)) {
                expected += 1;
            } else {
                moved += 1;
            }
            if timer.stop() {
                expected -= 1;
                stopped += 1;
            }
            count.reaches(expected);
            drop(timer);
            // A call that is under way holds the other reference.
            until(|| Arc::strong_count(&count.0) == 1);
            assert_eq!(count.get(), expected);
        }
        println!("{inside:?}: of {rounds} {stopped} were stopped, {moved} moved");
    });
}

/// The same for several goroutines and threads at once, on one timer.
#[test]
fn each_caller_that_sets_or_stops_a_shared_timer_is_told_the_truth() {
    let _alone = alone();
    everywhere(|rt| {
        let count = Count::default();
        let counts = count.clone();
        let timer = Arc::new(rt.run(move || after_func(HOUR, move || counts.add())));
        // The times that the timer was set, and the times that a setting was taken back, by a reset or a stop.
        let (settings, taken_back) = (Count::default(), Count::default());
        settings.add();
        let work = |seed: u32| {
            let (timer, settings, taken_back) = (Arc::clone(&timer), settings.clone(), taken_back.clone());
            move || {
                for round in 0..ROUNDS / 4 {
                    let was_set = if (round + seed).is_multiple_of(3) {
                        timer.stop()
                    } else {
                        settings.add();
                        timer.reset(Duration::from_micros(u64::from(round * seed) % 30))
                    };
                    if was_set {
                        taken_back.add();
                    }
                    if round % 8 == 0 {
                        gmp::yield_now();
                    }
                }
            }
        };
        let goroutines: Vec<_> = (1..4).map(|seed| rt.go(work(seed))).collect();
        thread::scope(|s| {
            s.spawn(work(5));
            s.spawn(work(7));
        });
        goroutines.into_iter().for_each(|one| one.join().unwrap());
        if timer.stop() {
            taken_back.add();
        }
        count.reaches(settings.get() - taken_back.get());
        drop(timer);
        until(|| Arc::strong_count(&count.0) == 1);
        assert_eq!(count.get(), settings.get() - taken_back.get());
        println!("{} fired of {}", count.get(), settings.get());
    });
}

/// Fails by a callback that is early, late by seconds, or missing.
#[test]
fn ten_thousand_callbacks_at_random_times_are_called() {
    let _alone = alone();
    everywhere(|rt| {
        let (count, early) = (Count::default(), Count::default());
        let latest = Arc::new(Mutex::new(Duration::ZERO));
        rt.run(|| {
            for n in 0..10_000_u64 {
                let (count, early, latest) = (count.clone(), early.clone(), Arc::clone(&latest));
                let due = Instant::now() + Duration::from_micros(n * 7_919 % 100_000);
                drop(after_func(due - Instant::now(), move || {
                    match Instant::now().checked_duration_since(due) {
                        Some(late) => {
                            let mut latest = latest.lock().unwrap();
                            *latest = late.max(*latest);
                        }
                        None => early.add(),
                    }
                    count.add();
                }));
            }
            count.reaches(10_000);
        });
        assert_eq!(early.get(), 0, "came early");
        assert!(*latest.lock().unwrap() < LATE);
    });
}

/// Fails by a hang when the callback is lost with its runtime, or stays in a heap that no thread serves.
#[test]
fn callbacks_outlive_their_runtime() {
    let _alone = alone();
    everywhere(|rt| {
        let (count, outside) = (Count::default(), Count::default());
        let timers: Vec<_> = rt.run(|| {
            (0..20_u32)
                .map(|n| {
                    let (count, outside) = (count.clone(), outside.clone());
                    let call = move || {
                        if gmp::current().is_none() {
                            outside.add();
                        }
                        count.add();
                    };
                    // Now, in a moment, and in an hour.
                    after_func(if n % 4 == 3 { HOUR } else { n % 4 * 10 * MS }, call)
                })
                .collect()
        });
        // A sleep is left in the heap as well, and no thread wakes its goroutine.
        drop(rt.go(|| sleep(15 * MS)));
        drop(rt);
        count.reaches(15);
        assert!(timers[3].stop() && timers[7].reset(MS));
        count.reaches(16);
        assert!(!timers[7].reset(HOUR) && timers[7].stop());
        assert!(outside.get() >= 1);
        for timer in [11, 15, 19] {
            assert!(timers[timer].stop());
        }
        assert!(!timers[0].reset(MS));
        count.reaches(17);
    });
}

/// Fails by time when a callback waits for as long as callbacks of another heap set themselves again.
#[test]
fn callbacks_that_go_on_keep_no_other_from_its_time() {
    static TIMERS: OnceLock<Vec<Timer>> = OnceLock::new();
    static GOES_ON: AtomicBool = AtomicBool::new(true);
    let _alone = alone();
    let (rt, other) = (runtime(1), Count::default());
    let outlives = {
        let other = other.clone();
        rt.run(|| after_func(50 * MS, move || other.add()))
    };
    drop(rt);
    // Enough timers that one is always due: each firing starts a thread.
    let goes_on = |n: usize| {
        after_func(HOUR, move || {
            if GOES_ON.load(SeqCst) {
                TIMERS.get().unwrap()[n].reset(Duration::ZERO);
            }
        })
    };
    let timers = TIMERS.get_or_init(|| (0..1000).map(goes_on).collect());
    let start = Instant::now();
    for timer in timers {
        timer.reset(Duration::ZERO);
    }
    other.reaches(1);
    assert!(start.elapsed() < 2 * LATE, "{:?}", start.elapsed());
    GOES_ON.store(false, SeqCst);
    assert!(!outlives.stop());
    for timer in timers {
        timer.stop();
    }
}

/// The runtime ends while callbacks are due, are being set and fire. Fails when one is lost or called twice.
#[test]
fn each_callback_is_called_once_whenever_its_runtime_ends() {
    let _alone = alone();
    for procs in PROCS {
        watched(procs, || {
            for round in 0..ROUNDS / 40 {
                let (rt, count) = (runtime(procs), Count::default());
                let timers: Vec<_> = rt.run(|| {
                    (0..10)
                        .map(|n| {
                            let counts = count.clone();
                            let dur =
                                if n < 5 { Duration::from_micros(n * u64::from(round) % 200) } else { HOUR };
                            after_func(dur, move || counts.add())
                        })
                        .collect()
                });
                let setter = thread::spawn(move || {
                    timers[5..].iter().for_each(|timer| assert!(timer.reset(Duration::ZERO)));
                });
                if round % 2 == 0 {
                    thread::yield_now();
                }
                drop(rt);
                setter.join().unwrap();
                count.reaches(10);
                until(|| Arc::strong_count(&count.0) == 1);
                assert_eq!(count.get(), 10);
            }
        });
    }
}

/// Fails when the thread stays although there is nothing to wait for, when there is one for each timer, or when it does not
/// start again.
#[test]
fn the_timers_thread_is_there_as_long_as_a_timer_needs_it() {
    let _alone = alone();
    watched(0, || {
        for _ in 0..3 {
            until(|| threads_called("gmp-timers") == 0);
            let timer = after_func(HOUR, || ());
            let others: Vec<_> = (0..100).map(|_| after_func(HOUR, || ())).collect();
            until(|| threads_called("gmp-timers") == 1);
            assert!(timer.stop());
            drop(timer);
            thread::sleep(300 * MS);
            assert_eq!(threads_called("gmp-timers"), 1, "it was gone before the last timer");
            assert!(others.iter().all(Timer::stop));
            // The timers are stopped, not dropped.
            until(|| threads_called("gmp-timers") == 0);
            assert!(others.iter().all(|timer| !timer.reset(Duration::ZERO)));
            until(|| threads_called("gmp-timers") == 1);
            until(|| threads_called("gmp-timers") + threads_called("gmp-callback") == 0);
        }
    });
}

/// Fails when each timer starts a thread: one thread waits for the hour of all.
#[test]
fn a_plain_thread_that_sets_and_stops_one_timer_at_a_time_keeps_one_thread() {
    let _alone = alone();
    watched(0, || {
        for _ in 0..ROUNDS {
            assert!(after_func(HOUR, || ()).stop());
        }
        assert!(threads_called("gmp-timers") <= 1);
    });
}

/// Fails when a callback that panics ends its M, the timer thread, or another callback.
#[test]
fn a_callback_that_panics_harms_nobody() {
    in_and_out(|_| {
        let (count, dropped) = (Count::default(), Arc::new(()));
        let timers: Vec<_> = (0..20)
            .map(|n| {
                let (counts, held) = (count.clone(), Arc::clone(&dropped));
                after_func(MS, move || {
                    let _held = &held;
                    counts.add();
                    if n % 2 == 0 {
                        // Past the panic hook, which would print.
                        std::panic::resume_unwind(Box::new("a callback's own"));
                    }
                })
            })
            .collect();
        count.reaches(20);
        assert!(timers.iter().all(|timer| !timer.reset(MS)));
        count.reaches(40);
        drop(timers);
        until(|| Arc::strong_count(&dropped) == 1);
    });
}

/// Fails when a callback runs on the M, or the timer thread, that found it due.
#[test]
fn a_callback_that_blocks_delays_no_other() {
    in_and_out(|_| {
        // A semaphore: an `Event` keeps only one notification, and some callbacks may not wait yet.
        let (goes_on, count) = (Arc::new(Semaphore::new(0)), Count::default());
        for _ in 0..10 {
            let (waits, counts) = (Arc::clone(&goes_on), count.clone());
            drop(after_func(MS, move || {
                waits.acquire(1);
                counts.add();
            }));
        }
        let other = Arc::new(Event::new());
        let fires = Arc::clone(&other);
        drop(after_func(5 * MS, move || fires.notify_one()));
        other.wait();
        assert_eq!(count.get(), 0);
        goes_on.add_permits(10);
        count.reaches(10);
    });
}

/// Fails by a hang when no M is told of a timer that is set by a setter without a P, or with a P of another runtime.
#[test]
fn a_timer_is_set_from_anywhere() {
    let _alone = alone();
    everywhere(|rt| {
        let (count, other) = (Count::default(), runtime(1));
        let counts = count.clone();
        let timer = Arc::new(rt.run(|| {
            after_func(HOUR, move || {
                assert!(gmp::current().is_some(), "in its runtime, whoever set it");
                counts.add();
            })
        }));
        let mut fired = 0;
        let mut again = |armed: bool| {
            assert_eq!(timer.stop(), armed);
            fired += 1;
        };
        for round in 0..200 {
            // In every fourth round the runtime has come to rest.
            if round % 4 == 0 {
                thread::sleep(MS);
            }
            again(round == 0);
            timer.reset(MS / 10);
            count.reaches(4 * round + 1);
            again(false);
            let set = Arc::clone(&timer);
            other.run(move || set.reset(MS / 10));
            count.reaches(4 * round + 2);
            again(false);
            let set = Arc::clone(&timer);
            rt.run(move || gmp::blocking(|| set.reset(Duration::ZERO)));
            count.reaches(4 * round + 3);
            again(false);
            let set = Arc::clone(&timer);
            rt.run(move || go(move || set.reset(MS / 10)).join().unwrap());
            count.reaches(4 * round + 4);
        }
        assert_eq!(fired, 800);
        // A timer that is made without a P.
        let made = Arc::new(Event::new());
        let fires = Arc::clone(&made);
        rt.run(move || gmp::blocking(move || drop(after_func(MS, move || fires.notify_one()))));
        made.wait();
    });
}

/// Fails by lateness when the P whose heap has the timer is busy, and no other M checks that heap.
#[test]
fn a_callback_is_called_while_its_own_p_is_busy() {
    for procs in PROCS.into_iter().filter(|procs| *procs > 1) {
        watched(procs, || {
            for _ in 0..20 {
                runtime(procs).run(|| {
                    let fired = Arc::new(AtomicBool::new(false));
                    let fires = Arc::clone(&fired);
                    drop(after_func(MS, move || fires.store(true, SeqCst)));
                    while !fired.load(SeqCst) {
                        std::hint::spin_loop();
                    }
                });
            }
        });
    }
}

/// Fails by a value that comes twice, early, or after the timer was stopped or moved.
#[test]
fn a_timers_channel_gives_the_due_time_once() {
    in_and_out(|_| {
        let timer = Timer::new(HOUR);
        assert!(timer.receiver().try_recv().is_err());
        let start = Instant::now();
        assert!(timer.reset(3 * MS));
        let due = timer.receiver().recv().unwrap();
        assert!(due >= start + 3 * MS && due <= Instant::now());
        assert!(timer.receiver().try_recv().is_err() && !timer.stop() && !timer.reset(MS));
        sleep(2 * MS);
        assert!(timer.stop(), "fired and not received");
        assert!(timer.receiver().try_recv().is_err() && !timer.reset(HOUR) && timer.reset(Duration::ZERO));
        assert!(timer.receiver().recv().is_ok());
        assert!(!timer.reset(HOUR));
        drop(timer);
    });
}

/// Fails by a hang when a waiter is not told that the time was moved.
#[test]
fn a_waiter_for_a_timer_hears_of_its_reset() {
    let _alone = alone();
    everywhere(|rt| {
        let timer = Arc::new(Timer::new(HOUR));
        for _ in 0..100 {
            let waits = Arc::clone(&timer);
            let waiter = rt.go(move || waits.receiver().recv().is_ok());
            let outside = timer.receiver().clone();
            let thread = thread::spawn(move || outside.recv().is_ok());
            timer.reset(Duration::ZERO);
            // One value for one of the two waiters.
            until(|| waiter.is_finished() || thread.is_finished());
            timer.reset(MS / 10);
            assert!(waiter.join().unwrap() && thread.join().unwrap());
        }
    });
}

/// Fails by values off the grid of the period, or when values that were not received pile up.
#[test]
fn a_ticker_keeps_its_grid_and_one_value_at_most() {
    in_and_out(|_| {
        let period = 2 * MS;
        let ticker = Ticker::new(period);
        let first = ticker.receiver().recv().unwrap();
        let on_the_beat = |at: Instant| (at - first).as_nanos().is_multiple_of(period.as_nanos());
        sleep(9 * MS);
        let taken_after = Instant::now();
        let missed = ticker.receiver().try_recv().expect("one is due");
        assert!(missed > first && missed < taken_after && on_the_beat(missed), "{:?}", missed - first);
        let next = ticker.receiver().recv().unwrap();
        assert!(next > taken_after && on_the_beat(next), "{:?}", next - first);
        assert!(ticker.stop() && !ticker.stop() && ticker.receiver().try_recv().is_err());
        assert!(!ticker.reset(MS) && ticker.receiver().recv().is_ok() && ticker.reset(HOUR));
    });
}

#[test]
#[should_panic(expected = "Ticker::new: the period is zero")]
fn a_ticker_without_a_period_panics() {
    drop(Ticker::new(Duration::ZERO));
}

#[test]
#[should_panic(expected = "Ticker::reset: the period is zero")]
fn a_ticker_that_is_reset_to_no_period_panics() {
    Ticker::new(HOUR).reset(Duration::ZERO);
}

/// The closure may be dropped on the stack of the caller that stops and drops the timer, or in the goroutine of its last call;
/// nowhere else, and no later. Fails by a leak, or by a hang when the closure, whose drop sets a timer, is dropped under a
/// lock.
#[test]
fn the_closure_is_dropped_with_the_timer_or_after_its_last_call() {
    struct SetsATimer(Count);
    impl Drop for SetsATimer {
        fn drop(&mut self) {
            let counts = self.0.clone();
            drop(after_func(Duration::ZERO, move || counts.add()));
        }
    }
    in_and_out(|_| {
        let count = Count::default();
        for round in 1..=100 {
            let held = SetsATimer(count.clone());
            let timer = after_func(if round % 2 == 0 { HOUR } else { Duration::ZERO }, move || {
                let _held = &held;
            });
            if round % 2 == 0 {
                assert!(timer.stop());
                assert_eq!(count.get(), round - 1);
            }
            drop(timer);
            count.reaches(round);
        }
    });
}

fn one_runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| runtime(2))
}

/// Fails when a callback is called in another runtime than the one in which it was made.
#[test]
fn a_callback_made_by_a_callback_stays_in_the_runtime() {
    let event = Arc::new(Event::new());
    let ended = Arc::clone(&event);
    one_runtime().run(move || {
        drop(after_func(MS, move || {
            let ended = Arc::clone(&ended);
            assert_eq!(gmp::procs(), 2);
            drop(after_func(MS, move || {
                assert_eq!(gmp::procs(), 2);
                ended.notify_one();
            }));
        }));
        event.wait();
    });
}

/// Sends the name of the thread on which it is dropped.
struct Names(std::sync::mpsc::Sender<Option<String>>);

impl Drop for Names {
    fn drop(&mut self) {
        let _told = self.0.send(thread::current().name().map(str::to_owned));
    }
}

/// Fails if the timer thread drops the values of the user's closure: a `drop` that panics would end the process, and a `drop`
/// that blocks would hold up all other callbacks.
#[test]
fn the_timers_thread_drops_nothing_of_the_users() {
    let _alone = alone();
    let (says, hears) = std::sync::mpsc::channel();
    for _ in 0..ROUNDS {
        let names = Names(says.clone());
        drop(after_func(MS / 100, move || drop(names.0.clone())));
    }
    drop(says);
    let names: Vec<_> = hears.iter().collect();
    assert_eq!(names.len(), ROUNDS as usize);
    // A closure whose callback came before the drop of its handle is dropped on this thread.
    assert!(names.iter().all(|name| name.as_deref() != Some("gmp-timers")), "{names:?}");
}
