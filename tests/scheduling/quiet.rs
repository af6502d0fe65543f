//! An idle process makes no system call.

use crate::measure::{Meeting, alone, thread_id};
use common::child;
use common::{runtime, until, watched};
use gmp::net::TcpListener;
use gmp::sync::Event;
use gmp::time::{after_func, sleep};
use gmp::{Runtime, go, yield_now};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// The kernel's counts of a thread.
#[derive(Debug, Eq, PartialEq)]
struct Activity {
    name: String,
    /// How often the thread went to sleep.
    sleeps: u64,
    /// How often the kernel sent the thread off its core.
    preempted: u64,
    /// The thread's time on a core, in hundredths of a second.
    ticks: u64,
}

/// Returns the counts of every thread of this process but the calling one.
fn activity() -> BTreeMap<i32, Activity> {
    let tasks = fs::read_dir("/proc/self/task").expect("/proc is mounted");
    let ids = tasks.map(|task| task.unwrap().file_name().to_str().unwrap().parse::<i32>().unwrap());
    let of = |id: i32| {
        let read = |file| fs::read_to_string(format!("/proc/self/task/{id}/{file}"));
        let (status, stat) = (read("status").ok()?, read("stat").ok()?);
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_else(|| panic!("no {name} in {status}")).trim()
        };
        // The second field is a name in parentheses; utime and stime are the 14th and the 15th.
        let (_, after_name) = stat.rsplit_once(") ").expect("a name in parentheses");
        let ticks = after_name.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
        let number = |name| field(name).parse().unwrap();
        let (sleeps, preempted) = (number("voluntary_ctxt_switches"), number("nonvoluntary_ctxt_switches"));
        Some((id, Activity { name: field("Name").to_owned(), sleeps, preempted, ticks }))
    };
    // A thread that has ended since does not count.
    ids.filter(|id| *id != thread_id()).filter_map(of).collect()
}

/// Does work of all kinds on all Ps, and then none. A reader, a sleeper, a waiter, two goroutines that block their threads, and
/// callbacks that are far away are left.
fn work_and_rest(rt: &Runtime) {
    let procs = rt.procs();
    let meeting = Meeting::of(procs);
    meeting.begin();
    let attending: Vec<_> = (0..procs)
        .map(|_| {
            let meeting = Arc::clone(&meeting);
            rt.go(move || meeting.attend())
        })
        .collect();
    attending.into_iter().for_each(|one| one.join().unwrap());
    rt.run(|| {
        let busy: Vec<_> = (0..1000_u64)
            .map(|number| {
                go(move || {
                    sleep(Duration::from_micros(number % 50 * 100));
                    (0..10).for_each(|_| yield_now());
                })
            })
            .collect();
        busy.into_iter().for_each(|one| one.join().unwrap());
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    drop(rt.go(move || listener.accept().map(drop)));
    drop(rt.go(|| sleep(Duration::from_secs(3600))));
    drop(rt.go(|| Event::new().wait()));
    drop(rt.go(thread::park));
    drop(rt.go(|| gmp::blocking(thread::park)));
    rt.run(|| drop(after_func(Duration::from_secs(3600), || ())));
    // The timer thread is to be at rest, too.
    drop(after_func(Duration::from_secs(3600), || ()));
}

/// Fails when a thread goes to sleep once more, or is on a core, as a thread that polls every now and then does.
#[test]
fn an_idle_process_makes_no_system_call() {
    const QUIET: Duration = Duration::from_millis(1500);
    let _alone = alone();
    if !child::is_child() {
        child::passes("an_idle_process_makes_no_system_call", &[]);
        return;
    }
    let procs = 4;
    watched(procs, || {
        let rt = runtime(procs);
        work_and_rest(&rt);
        // The work that is left comes to an end: some last looks, and the trim of stacks, whose looks are a second apart.
        let start = Instant::now();
        until(|| {
            let before = activity();
            thread::sleep(Duration::from_millis(1300));
            let after = activity();
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "not at rest: {before:?}, a little later {after:?}"
            );
            before == after
        });
        println!("at rest after {:?}", start.elapsed());
        let before = activity();
        assert!(before.len() > procs, "the runtime's threads are among {before:?}");
        thread::sleep(QUIET);
        let after = activity();
        for (id, thread) in &after {
            assert_eq!(Some(thread), before.get(id), "not what it was {QUIET:?} before");
        }
        assert_eq!(before.len(), after.len());
    });
}

/// Returns how long the runtime's monitor has been on a core; `None` before that thread has its name.
fn monitor_time() -> Option<Duration> {
    let tasks = fs::read_dir("/proc/self/task").expect("/proc is mounted").map(|task| task.unwrap().path());
    let is_named =
        |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "gmp-sysmon\n");
    let stat = fs::read_to_string(tasks.into_iter().find(is_named)?.join("schedstat")).ok()?;
    Some(Duration::from_nanos(stat.split(' ').next()?.parse().ok()?))
}

/// Fails when the monitor looks too often, or does too much, while all Ps are busy and there is nothing to take: a look each
/// millisecond would be more. The best of several spans counts, as other processes make the same looks dearer.
#[test]
fn the_monitor_costs_little_while_all_ps_are_busy() {
    const SPAN: Duration = Duration::from_millis(500);
    // Half a percent is the aim on a quiet machine. A slow one, or one that others use too, takes several times that.
    let limit = if cfg!(debug_assertions) { 5.0 } else { 2.5 };
    let _alone = alone();
    if !child::is_child() {
        child::passes("the_monitor_costs_little_while_all_ps_are_busy", &[]);
        return;
    }
    for procs in [1, 2] {
        watched(procs, || {
            let rt = runtime(procs);
            let over = Arc::new(AtomicBool::new(false));
            // The queues of the Ps are never empty, and no goroutine stays on its P for long.
            let busy: Vec<_> = (0..8 * procs)
                .map(|_| {
                    let over = Arc::clone(&over);
                    rt.go(move || {
                        while !over.load(SeqCst) {
                            yield_now();
                        }
                    })
                })
                .collect();
            until(|| monitor_time().is_some());
            let span = || {
                let (before, start) = (monitor_time().unwrap(), Instant::now());
                thread::sleep(SPAN);
                100.0 * (monitor_time().unwrap() - before).as_secs_f64() / start.elapsed().as_secs_f64()
            };
            let spans: Vec<f64> = (0..10).map(|_| span()).take_while(|percent| *percent >= limit).collect();
            over.store(true, SeqCst);
            busy.into_iter().for_each(|one| one.join().unwrap());
            assert!(spans.len() < 10, "procs = {procs}: {spans:.2?} % of a core");
        });
    }
}
