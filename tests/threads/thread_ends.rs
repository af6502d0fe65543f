//! Threads that no goroutine needs for a while end, and others start when there is work again.

use common::child;
use common::{PROCS, everywhere, until, watched};
use gmp::{Runtime, blocking, go, lock_os_thread, time::sleep, yield_now};
use std::fs;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Returns how many threads of the process have a name that begins with `prefix`.
pub(super) fn threads(prefix: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("this process has threads");
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with(prefix)).count()
}

/// Waits for the end of threads. A thread that was joined stays in /proc until the kernel has removed it, which takes longer on
/// a busy machine. Fails by a hang.
fn all_go(prefix: &str) {
    until(|| threads(prefix) == 0);
}

fn builder(procs: usize, name: &str) -> gmp::RuntimeBuilder {
    Runtime::builder().procs(procs).thread_name(name)
}

fn build(builder: gmp::RuntimeBuilder) -> Runtime {
    // SAFETY: the goroutines keep nothing of a thread.
    unsafe { builder.build() }.expect("a runtime starts")
}

/// Makes `count` goroutines block their threads at the same time.
fn use_threads(rt: &Runtime, count: usize) {
    let together = Arc::new(Barrier::new(count));
    let blocked: Vec<_> = (0..count)
        .map(|_| {
            let together = Arc::clone(&together);
            rt.go(move || blocking(|| together.wait().is_leader()))
        })
        .collect();
    let leaders = blocked.into_iter().map(|one| one.join().unwrap());
    assert_eq!(leaders.filter(|&leader| leader).count(), 1);
}

/// Fails when threads stay, when the last one ends, or by a hang when a thread ends that was just given work.
#[test]
fn threads_that_nobody_needs_end_and_come_again() {
    for procs in PROCS {
        watched(procs, || {
            let name = format!("ends-{procs}-");
            let rt = build(builder(procs, &name).thread_keep_alive(20 * MS));
            for _ in 0..3 {
                use_threads(&rt, 30);
                until(|| threads(&name) == 1);
                thread::sleep(50 * MS);
                let left = threads(&name);
                assert!((1..3).contains(&left), "{left} threads: the one in the poller stays");
            }
            rt.run(|| sleep(MS));
            assert!(rt.shutdown(20 * SECOND).is_clean());
            all_go(&name);
        });
    }
}

/// Fails if a thread that will be needed again ends at once.
#[test]
fn threads_stay_for_a_while() {
    if !child::is_child() {
        child::passes("threads_stay_for_a_while", &[]);
        return;
    }
    everywhere(|rt| {
        use_threads(&rt, 10);
        // Some threads do not have their name yet.
        until(|| threads("gmp-") > 10);
        thread::sleep(50 * MS);
        assert!(threads("gmp-") > 10);
    });
}

/// Work comes at the moment when a thread ends, over and over. Fails by a hang, or a wrong count.
#[test]
fn work_that_comes_as_a_thread_ends_is_done() {
    for procs in PROCS {
        watched(procs, || {
            let rt = build(builder(procs, "races-").thread_keep_alive(Duration::from_micros(100)));
            let rounds = if cfg!(debug_assertions) { 300 } else { 1500 };
            let sum: usize = rt.run(move || {
                let workers: Vec<_> = (0..4)
                    .map(|n| {
                        go(move || {
                            for round in 0..rounds {
                                match (n + round) % 4 {
                                    0 => sleep(Duration::from_micros(100)),
                                    1 => blocking(|| thread::sleep(Duration::from_micros(50))),
                                    2 => yield_now(),
                                    _ => go(|| ()).join().unwrap(),
                                }
                            }
                            rounds
                        })
                    })
                    .collect();
                workers.into_iter().map(|worker| worker.join().unwrap()).sum()
            });
            assert_eq!(sum, 4 * rounds);
            assert!(rt.shutdown(20 * SECOND).is_clean());
        });
    }
}

/// Fails by a hang, or when threads are left.
#[test]
fn a_runtime_ends_while_its_threads_do() {
    if !child::is_child() {
        child::passes("a_runtime_ends_while_its_threads_do", &[]);
        return;
    }
    for round in 0..200 {
        watched(4, || {
            let rt = build(builder(4, "both-").thread_keep_alive(Duration::from_micros(round * 20)));
            use_threads(&rt, 8);
            let locked = rt.go(lock_os_thread);
            if round % 2 == 0 {
                thread::sleep(Duration::from_micros(round * 10));
            }
            assert!(rt.shutdown(20 * SECOND).threads_left() == 0);
            all_go("both-");
            drop(locked.join());
        });
    }
}

/// Fails by a hang when threads that have ended count, or when more threads than allowed are there and stay.
#[test]
fn the_limit_counts_living_threads() {
    watched(2, || {
        let rt = build(builder(2, "limit-").max_threads(4).thread_keep_alive(MS));
        for _ in 0..100 {
            let locked: Vec<_> = (0..3).map(|_| rt.go(|| (lock_os_thread(), sleep(MS / 10)).1)).collect();
            locked.into_iter().for_each(|one| one.join().unwrap());
            // An ended thread stays for a moment more.
            until(|| threads("limit-") <= 4);
        }
    });
}

/// Fails when a process whose threads have ended still makes system calls: it wakes up now and then.
#[test]
fn an_idle_runtime_sleeps_when_its_threads_have_ended() {
    if !child::is_child() {
        child::passes("an_idle_runtime_sleeps_when_its_threads_have_ended", &[]);
        return;
    }
    watched(4, || {
        let rt = build(builder(4, "idle-").thread_keep_alive(20 * MS));
        use_threads(&rt, 10);
        until(|| threads("idle-") == 1);
        let quiet = || {
            let before = switches();
            thread::sleep(300 * MS);
            switches() == before
        };
        let start = Instant::now();
        while !quiet() {
            assert!(start.elapsed() < 20 * SECOND, "somebody wakes up again and again");
        }
    });
}

/// Returns how often the runtime's threads have gone to sleep.
fn switches() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").expect("this process has threads");
    let statuses = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok());
    let ours = statuses
        .filter(|status| status.starts_with("Name:\tidle-") || status.starts_with("Name:\tgmp-sysmon"));
    ours.map(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.map_or(0, |count| count.trim().parse::<u64>().expect("a number"))
    })
    .sum()
}
