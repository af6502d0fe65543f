//! An idle process makes no system call.

use crate::child;
use crate::common::{runtime, until, watched};
use crate::measure::{Meeting, alone, thread_id};
use gmp::net::TcpListener;
use gmp::sync::Event;
use gmp::time::sleep;
use gmp::{Runtime, go, yield_now};
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// What the kernel has counted of a thread.
#[derive(Debug, Eq, PartialEq)]
struct Activity {
    name: String,
    /// How often it went to sleep.
    sleeps: u64,
    /// How often it was sent off its core.
    preempted: u64,
    /// Hundredths of a second on a core.
    ticks: u64,
}

/// Of every thread of this process but the one that looks.
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
    // One that has ended since is none.
    ids.filter(|id| *id != thread_id()).filter_map(of).collect()
}

/// Work on all Ps, of all kinds, and then none: a reader, a sleeper and a waiter are left.
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
}

/// Fails by a thread that goes to sleep once more, or is on a core: a look every now and then, by anybody.
#[test]
fn an_idle_process_makes_no_system_call() {
    const QUIET: Duration = Duration::from_millis(1500);
    let _alone = alone();
    if !child::is_child() {
        child::passes("quiet::an_idle_process_makes_no_system_call", &[]);
        return;
    }
    let procs = 4;
    watched(procs, || {
        let rt = runtime(procs);
        work_and_rest(&rt);
        // The finite duties are some last looks.
        let start = Instant::now();
        until(|| {
            let before = activity();
            thread::sleep(Duration::from_millis(300));
            let after = activity();
            assert!(
                start.elapsed() < Duration::from_secs(5),
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
