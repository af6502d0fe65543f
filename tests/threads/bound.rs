//! `RuntimeBuilder::cpu_sets`: a thread is confined to the CPUs of a P while it holds that P; every other thread keeps its own
//! CPUs.

use common::child;
use common::cpu::{confine, cpus};
use common::seccomp::refuse_below;
use common::{skipped, until, watched};
use gmp::process::Command;
use gmp::time::{after_func, sleep};
use gmp::{Runtime, RuntimeBuilder, blocking, go, lock_os_thread, unlock_os_thread, yield_now};
use std::fs;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Calls `test` with two CPUs. With only one CPU the test could not see a difference.
fn with_two_cpus(procs: usize, test: impl FnOnce(usize, usize)) {
    match cpus()[..] {
        [a, b, ..] => watched(procs, || test(a, b)),
        _ => skipped("there is one CPU"),
    }
}

fn bound<const N: usize>(sets: [&[usize]; N]) -> RuntimeBuilder {
    Runtime::builder().cpu_sets(sets.map(|set| set.iter().copied()))
}

fn build(builder: RuntimeBuilder) -> Runtime {
    // SAFETY: the goroutines keep nothing of a thread across a blocking call, but for those that are bound to theirs.
    unsafe { builder.build() }.unwrap()
}

/// Goroutines yield, sleep, join, and block their threads in marked calls, while threads come and go. Fails when a goroutine
/// has, after a park, CPUs that are neither those of a P nor those of the process; when no goroutine is seen on the CPUs of a
/// P; or when a thread without a P, or a thread that it starts, does not have all CPUs of the process.
#[test]
fn threads_with_a_p_have_its_cpus_and_others_have_their_own() {
    with_two_cpus(2, |a, b| {
        let all = cpus();
        let rt = build(bound([&[a], &[b]]).thread_keep_alive(2 * MS));
        assert_eq!(rt.procs(), 2, "as many as sets");
        let seen = Arc::new(AtomicUsize::new(0));
        let many: Vec<_> = (0..20)
            .map(|number| {
                let (all, seen) = (all.clone(), Arc::clone(&seen));
                rt.go(move || {
                    for round in 0..if cfg!(debug_assertions) { 10 } else { 40 } {
                        match (number + round) % 4 {
                            0 => yield_now(),
                            1 => sleep(MS / 10),
                            2 => blocking(|| {
                                assert_eq!(cpus(), all);
                                assert_eq!(thread::spawn(cpus).join().unwrap(), all);
                            }),
                            _ => go(yield_now).join().unwrap(),
                        }
                        // The goroutine has just parked; since then the monitor may have taken its P.
                        let may = cpus();
                        if may != all {
                            assert!(may == [a] || may == [b], "{may:?}");
                            seen.fetch_add(1, SeqCst);
                        }
                    }
                })
            })
            .collect();
        many.into_iter().for_each(|one| one.join().unwrap());
        // Whether goroutines are seen on both Ps depends on the machine: the M of one P may come too late each time.
        assert!(seen.load(SeqCst) > 0, "nobody was seen with a P");
        assert_eq!(cpus(), all, "of the thread that has built the runtime");
        assert!(rt.shutdown(Duration::from_secs(60)).refused().is_empty());
    });
}

/// The timer thread belongs to the whole process. Fails when a callback has the CPUs of the P whose goroutine started that
/// thread.
#[test]
fn callbacks_outside_of_runtimes_have_no_ps_cpus() {
    const TEST: &str = "callbacks_outside_of_runtimes_have_no_ps_cpus";
    if !child::is_child() {
        return drop(child::passes(TEST, &[]));
    }
    with_two_cpus(1, |_, b| {
        let (all, (tell, told)) = (cpus(), mpsc::channel());
        let mut timers = Vec::new();
        let rt = build(bound([&[b]]));
        // A plain thread makes the timer, so its callback belongs to no runtime; a goroutine sets it, while there is no timer
        // thread.
        let timer = after_func(HOUR, {
            let tell = tell.clone();
            move || tell.send(cpus()).unwrap()
        });
        assert!(timer.stop());
        until(|| !has_thread("gmp-timers"));
        timers.push(rt.run(move || {
            timer.reset(MS);
            timer
        }));
        assert_eq!(told.recv().unwrap(), all);
        timers.push(after_func(MS, move || tell.send(cpus()).unwrap()));
        assert_eq!(told.recv().unwrap(), all);
    });
}

/// Returns `true` if the process has a thread of this name.
fn has_thread(name: &str) -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let named =
        |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.unwrap().path().join("comm"));
    tasks.map(named).any(|comm| comm.is_ok_and(|comm| comm.trim() == name))
}

/// A goroutine that does not yield loses its P to another goroutine. Fails when its thread stays on the CPUs of that P (by a
/// hang), or does not get the CPUs of the next P.
#[test]
fn a_hog_whose_p_is_taken_has_its_threads_cpus_until_it_has_a_p_again() {
    with_two_cpus(1, |a, _| {
        let all = cpus();
        let rt = build(bound([&[a]]));
        for blocks in [false, true] {
            let all = all.clone();
            rt.run(move || {
                assert_eq!(cpus(), [a]);
                let (ran, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
                let (runs, ends) = (Arc::clone(&ran), Arc::clone(&over));
                let waits = go(move || {
                    assert_eq!(cpus(), [a]);
                    runs.store(true, SeqCst);
                    while !ends.load(SeqCst) {
                        yield_now();
                    }
                });
                // The loop does not call the runtime, so the thread gets no P.
                while cpus() != all || !ran.load(SeqCst) {
                    if blocks {
                        thread::sleep(MS);
                    }
                }
                for _ in 0..100 {
                    yield_now();
                    let may = cpus();
                    assert!(may == [a] || may == all, "{may:?}");
                }
                over.store(true, SeqCst);
                waits.join().unwrap();
                // No other goroutine wants the P now.
                yield_now();
                assert_eq!(cpus(), [a]);
            });
        }
    });
}

/// Fails when the Ps beyond the number of sets do not take the sets in turn, from the first on, or when the Ps that remain
/// after others have retired are not those of the first sets.
#[test]
fn more_ps_than_sets_begin_again_with_the_first() {
    with_two_cpus(4, |a, b| {
        let rt = build(bound([&[a], &[b]]).procs(3));
        /// Returns the CPUs of `procs` goroutines that hold a P each, sorted.
        fn have(rt: &Runtime, procs: usize) -> Vec<Vec<usize>> {
            let there = Arc::new(AtomicUsize::new(0));
            let all: Vec<_> = (0..procs)
                .map(|_| {
                    let there = Arc::clone(&there);
                    rt.go(move || {
                        let may = cpus();
                        there.fetch_add(1, SeqCst);
                        while there.load(SeqCst) < procs {
                            std::hint::spin_loop();
                        }
                        may
                    })
                })
                .collect();
            let mut have: Vec<_> = all.into_iter().map(|one| one.join().unwrap()).collect();
            have.sort();
            have
        }
        // The monitor may give the last goroutine the P of one that waits.
        let mut low_first = [a, b];
        low_first.sort();
        let [x, y] = low_first.map(|cpu| vec![cpu]);
        let three = if a < b { [&x, &x, &y] } else { [&x, &y, &y] }.map(Vec::clone);
        until(|| have(&rt, 3) == three);
        rt.set_procs(4);
        until(|| have(&rt, 4) == [&x, &x, &y, &y].map(Vec::clone));
        rt.set_procs(1);
        rt.run(|| {
            yield_now();
            assert_eq!(cpus(), [a]);
        });
    });
}

/// Fails when a thread of the program comes back from `run_locked` with other CPUs than before, or does not have the CPUs of
/// its P meanwhile; or when guards are dropped on the CPUs of a P.
#[test]
fn a_thread_that_runs_a_goroutine_gets_its_own_back() {
    with_two_cpus(1, |a, b| {
        let all = cpus();
        let dropped = Arc::new(AtomicUsize::new(0));
        struct Looks(Vec<usize>, Arc<AtomicUsize>);
        impl Drop for Looks {
            fn drop(&mut self) {
                let wrong = cpus() != self.0;
                self.1.fetch_add(if wrong { 1_000_000 } else { 1 }, SeqCst);
            }
        }
        let counts = Arc::clone(&dropped);
        let rt = build(bound([&[a]]).on_thread_start(move || Looks(cpus(), Arc::clone(&counts))));
        for own in [all, vec![b]] {
            let (theirs, rt) = (own.clone(), &rt);
            thread::scope(|s| {
                s.spawn(move || {
                    confine(&own);
                    // SAFETY: the goroutines keep nothing of a thread across a blocking call.
                    unsafe {
                        rt.run_locked(|| {
                            assert_eq!(cpus(), [a]);
                            assert_eq!(blocking(cpus), theirs);
                            sleep(MS);
                            go(yield_now).join().unwrap();
                            assert_eq!(cpus(), [a]);
                        })
                    };
                    assert_eq!(cpus(), own);
                });
            });
        }
        assert!(rt.shutdown_timeout(Duration::from_secs(60)));
        let dropped = dropped.load(SeqCst);
        assert!((3..1000).contains(&dropped), "{dropped}");
    });
}

/// Fails when the runtime undoes a mask that the program has set, or goes on to leave a thread alone after the program has
/// restored the mask that it found.
#[test]
fn what_a_locked_goroutine_sets_stays_until_it_puts_back_what_it_found() {
    with_two_cpus(1, |a, b| {
        let all = cpus();
        let rt = build(bound([&[a]]));
        rt.go(move || {
            lock_os_thread();
            assert_eq!(cpus(), [a]);
            confine(&[b]);
            for _ in 0..20 {
                yield_now();
                assert_eq!(cpus(), [b]);
                sleep(MS / 10);
                assert_eq!(cpus(), [b]);
                assert_eq!(blocking(cpus), [b]);
                go(|| blocking(yield_now)).join().unwrap();
                assert_eq!(cpus(), [b]);
            }
            confine(&[a]);
            assert_eq!(blocking(cpus), all);
            assert_eq!(cpus(), [a]);
            unlock_os_thread();
        })
        .join()
        .unwrap();
    });
}

/// A goroutine replaces its process, as a server does that starts its next version. Fails when the program has the CPUs of the
/// P alone, and so for as long as it runs.
#[test]
fn a_program_that_takes_the_place_of_this_one_has_all_cpus() {
    let name = "a_program_that_takes_the_place_of_this_one_has_all_cpus";
    if child::is_child() {
        return with_two_cpus(1, |a, _| {
            let refused = build(bound([&[a]])).run(|| {
                assert_eq!(cpus(), [a]);
                Command::new("cat").arg("/proc/self/status").exec()
            });
            panic!("{refused}");
        });
    }
    with_two_cpus(1, |_, _| {
        let allowed = |status: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed:"));
            line.expect("the status has the CPUs").trim().to_owned()
        };
        let said = child::run(name, &[]).stdout;
        let own = fs::read_to_string("/proc/thread-self/status").unwrap();
        assert_eq!(allowed(&String::from_utf8_lossy(&said)), allowed(&own));
    });
}

/// Fails when a runtime starts, or an error does not say what was requested.
#[test]
fn sets_that_cannot_be_had_are_refused_at_the_start() {
    with_two_cpus(1, |a, _| {
        let refusal = |builder: RuntimeBuilder| {
            // SAFETY: no goroutine runs.
            let refused = unsafe { builder.build() }.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
            refused.to_string()
        };
        assert_eq!(refusal(bound([])), "cpu_sets: there is no set");
        assert_eq!(refusal(bound([&[a], &[]])), "cpu_sets: set 1 is empty");
        assert_eq!(refusal(bound([&[a], &[a]]).procs(1)), "cpu_sets: there are 2 sets for 1 Ps");
        assert_eq!(
            refusal(bound([&[usize::MAX]])),
            format!("cpu_sets: CPU {} of set 0 is not within 0..=1023", usize::MAX)
        );
        // No machine that runs these tests has so many CPUs.
        let text = refusal(bound([&[a], &[1022, 1023]]));
        assert!(text.starts_with("cpu_sets: of set 1 (CPUs 1022-1023) the machine has no CPU"), "{text}");
        let text = refusal(bound([&[a, 1023]]));
        assert!(text.ends_with("the machine does not have, or the process may not use, CPUs 1023"), "{text}");
    });
}

/// The kernel refuses to write the CPUs of a thread into less room than all CPUs take that the machine may ever have. Fails by
/// an error of the builder.
#[test]
fn a_machine_may_have_thousands_of_cpus() {
    const NAME: &str = "a_machine_may_have_thousands_of_cpus";
    if !child::is_child() {
        child::passes(NAME, &[]);
        return;
    }
    let all = cpus();
    refuse_below(libc::SYS_sched_getaffinity, 1, 8192 / 8, libc::EINVAL);
    let rt = build(bound([&all[..1]]));
    rt.run(|| blocking(|| ()));
}
