//! What `GMPDEBUG` does to a program.

use crate::Test;
use crate::parent::{Ended, PROCS, run};
use gmp::go;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::Duration;

pub const TESTS: &[Test] = &[
    ("a_trace_is_printed_in_gos_format", traces),
    ("a_trace_goes_on_while_nothing_happens", || {
        let ended = run("idle", 2, "schedtrace=50");
        assert!(ended.status.success(), "{ended:?}");
        let times: Vec<u64> = ended.stderr.lines().map(|line| Line::parse(line).time).collect();
        assert!(times.len() >= 3 && times[0] == 0, "{times:?}");
        // A line that comes late moves none of the others.
        let most = times.last().expect("there are some") / 50 + 2;
        assert!(times.len() as u64 <= most, "too often: {times:?}");
    }),
    ("a_detailed_trace_has_a_line_for_each_p_m_and_g", details),
    ("a_deadlock_is_found_beside_a_trace", || {
        let ended = run("nobody_sends", 2, "schedtrace=20,scheddetail=1");
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        assert!(ended.stderr.contains("all goroutines are asleep"), "{ended:?}");
    }),
    ("a_panic_ends_the_process_when_asked_to", || {
        for (child, name) in [("panics", "'worker' "), ("main_panics", "'main'")] {
            let ended = run(child, 2, "panic=abort");
            assert_eq!(ended.status.signal(), Some(libc::SIGABRT), "{ended:?}");
            let message = ended.stderr.find("on purpose").expect("the hook's message");
            let fatal = ended.stderr.find("fatal error: a panic has left goroutine").expect("the last word");
            assert!(message < fatal && ended.stderr.contains(name.trim()), "{ended:?}");
            assert!(!ended.stdout.contains("goes on"), "{ended:?}");
        }
    }),
    ("a_panic_that_was_caught_ends_nothing", || ends_well(&run("caught", 2, "panic=abort"))),
    ("exits_and_contexts_end_nothing", || ends_well(&run("interrupted", 2, "panic=abort"))),
    ("a_panic_stays_in_its_goroutine_otherwise", || {
        let ended = run("panics", 2, "");
        assert!(ended.status.success() && ended.stdout.contains("goes on"), "{ended:?}");
    }),
];

pub const CHILDREN: &[(&str, fn())] = &[
    ("works", || on_main(work)),
    ("idle", || on_main(|| gmp::time::sleep(Duration::from_millis(500)))),
    ("panics", || {
        on_main(|| {
            let worker = gmp::Builder::new().name("worker");
            let ended = worker.go(|| panic!("on purpose")).unwrap().join();
            assert!(ended.unwrap_err().is_panic());
            println!("goes on");
        });
    }),
    ("main_panics", || on_main(|| panic!("on purpose"))),
    ("caught", || {
        on_main(|| {
            let caught = go(|| std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(1))).is_err());
            assert!(caught.join().unwrap());
        });
    }),
    ("interrupted", || {
        on_main(|| {
            assert!(go(|| gmp::goexit()).join().unwrap_err().is_goexit());
            let (context, cancel) = gmp::context::Context::background().with_cancel();
            let waits = go(move || context.run(|| gmp::sync::Event::new().wait()));
            cancel.cancel();
            assert!(waits.join().unwrap().is_err());
        });
    }),
];

fn on_main(main: fn()) {
    // SAFETY: nothing here is bound to a thread.
    unsafe { gmp::run(main) }
}

#[track_caller]
fn ends_well(ended: &Ended) {
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
}

/// Some work of every kind: goroutines that run, wait, sleep and block their threads.
fn work() {
    let (sender, receiver) = gmp::chan::bounded::<()>(0);
    let waits = gmp::Builder::new().name("waits").go(move || receiver.recv().is_err()).unwrap();
    let blocks = go(|| gmp::blocking(|| thread::sleep(Duration::from_millis(300))));
    let until = std::time::Instant::now() + Duration::from_millis(300);
    while std::time::Instant::now() < until {
        let yields = (0..20).map(|_| go(gmp::yield_now));
        yields.collect::<Vec<_>>().into_iter().for_each(|each| each.join().unwrap());
    }
    drop(sender);
    assert!(waits.join().unwrap());
    blocks.join().unwrap();
}

/// The line that begins a trace.
#[derive(Debug)]
struct Line {
    time: u64,
    fields: BTreeMap<String, String>,
    runqs: Vec<u64>,
    ticks: Vec<u64>,
}

/// The first fields, in Go's order.
const FIELDS: [&str; 7] =
    ["gomaxprocs", "idleprocs", "threads", "spinningthreads", "needspinning", "idlethreads", "runqueue"];

impl Line {
    #[track_caller]
    fn parse(line: &str) -> Line {
        let rest = line.strip_prefix("SCHED ").unwrap_or_else(|| panic!("{line:?}"));
        let (time, rest) = rest.split_once("ms: ").expect("a time");
        let (fields, lists) = match rest.split_once(" [ ") {
            None => (rest, ""),
            Some(halves) => halves,
        };
        let pairs = fields.split(' ').map(|pair| pair.split_once('=').expect("name=value"));
        let names: Vec<&str> = pairs.clone().map(|pair| pair.0).collect();
        assert_eq!(names[..7], FIELDS, "{line}");
        let (runqs, ticks) = lists.split_once("] schedticks=[ ").unwrap_or_default();
        let numbers = |text: &str| -> Vec<u64> {
            text.trim_end_matches(']')
                .split_whitespace()
                .map(|word| word.parse().expect("a number"))
                .collect()
        };
        Line {
            time: time.parse().expect("milliseconds"),
            fields: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            runqs: numbers(runqs),
            ticks: numbers(ticks),
        }
    }

    fn number(&self, name: &str) -> u64 {
        self.fields[name].parse().expect("a number")
    }
}

/// Fails when a field is missing, has another name, or has an impossible value.
fn traces() {
    for procs in PROCS {
        let ended = run("works", procs, "schedtrace=20");
        assert!(ended.status.success(), "{ended:?}");
        let lines: Vec<Line> = ended.stderr.lines().map(Line::parse).collect();
        assert!(lines.len() >= 5, "{lines:?}");
        assert_eq!(lines[0].time, 0);
        for line in &lines {
            let [procs, idle] = [procs as u64, line.number("idleprocs")];
            assert_eq!(line.number("gomaxprocs"), procs);
            assert!(idle <= procs && line.number("spinningthreads") <= procs, "{line:?}");
            assert!(line.number("idlethreads") < line.number("threads"), "{line:?}");
            assert_eq!([line.runqs.len(), line.ticks.len()], [procs as usize; 2], "{line:?}");
        }
        let ticks = |line: &Line| line.ticks.iter().sum::<u64>();
        assert!(ticks(lines.last().unwrap()) > ticks(&lines[0]), "no P has run anything: {lines:?}");
    }
}

fn details() {
    for procs in PROCS {
        let ended = run("works", procs, "schedtrace=20,scheddetail=1");
        assert!(ended.status.success(), "{ended:?}");
        let mut blocks: Vec<Vec<&str>> = Vec::new();
        for line in ended.stderr.lines() {
            match line.strip_prefix("  ") {
                None => blocks.push(vec![line]),
                Some(detail) => blocks.last_mut().expect("it begins with a line of its own").push(detail),
            }
        }
        assert!(blocks.len() >= 4, "{blocks:?}");
        let (mut waiting, mut held, mut whole) = (0, 0, false);
        for block in &blocks {
            let line = Line::parse(block[0]);
            for field in ["gcwaiting", "nmidlelocked", "stopwait", "sysmonwait"] {
                assert!(line.fields.contains_key(field), "{line:?}");
            }
            let of = |kind: char| -> Vec<(&str, &str)> {
                let of_kind = block[1..].iter().filter(|detail| detail.starts_with(kind));
                of_kind.map(|detail| detail.split_once(": ").expect("a name")).collect()
            };
            assert_eq!(of('P').len(), procs, "{block:?}");
            for (id, (name, fields)) in of('P').into_iter().enumerate() {
                assert_eq!(name, format!("P{id}"));
                names(fields, "status schedtick syscalltick m runqsize gfreecnt timerslen");
                held += usize::from(!fields.contains("m=nil"));
            }
            for (_, fields) in of('M') {
                names(fields, "p curg mallocing throwing preemptoff locks dying spinning blocked lockedg");
            }
            whole |= !of('M').is_empty() && !of('G').is_empty();
            for (_, fields) in of('G') {
                let (status, rest) = fields.split_once('(').expect("a status");
                assert!(["status=1", "status=2", "status=4"].contains(&status), "{fields}");
                let (reason, rest) = rest.split_once(") ").expect("a reason");
                names(rest, "m lockedm");
                waiting += usize::from(status == "status=4" && reason == "chan receive");
            }
        }
        assert!(whole && waiting > 0 && held > 0, "{waiting} waiting, {held} held: {blocks:?}");
    }
}

#[track_caller]
fn names(fields: &str, expected: &str) {
    let names: Vec<&str> = fields.split(' ').map(|pair| pair.split('=').next().unwrap_or_default()).collect();
    assert_eq!(names.join(" "), expected, "{fields}");
}
