//! Measures how long a ready goroutine waits until it runs, beside programs that never leave their Ps idle.
//!
//! cargo run --release --example fairness
//!
//! Three bystanders do next to nothing: each is readied every millisecond, by a thread outside the runtime (through the global
//! queue), by a timer, or by another goroutine (through its P's queue). Beside them runs one of the programs of the table, each
//! of which starves a goroutine under some scheduler: goroutines that wake each other and so hand a P to and fro, loops of
//! yields, chains and storms of new goroutines, timers that are always due. The program prints the longest delay of each
//! bystander, and the longest time for which the kernel kept one of so many busy threads waiting.
//!
//! The status is 1 if a delay was over 20 ms plus twice that gap, three times in a row: the programs' goroutines all run for
//! microseconds, so no goroutine has a reason to wait for long. `--millis N` runs each program for longer.

use gmp::sync::{Event, Mutex};
use gmp::time::sleep;
use gmp::{Runtime, chan, go, yield_now};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

const USAGE: &str = "fairness [--millis N]";
const MS: Duration = Duration::from_millis(1);
const SLACK: Duration = Duration::from_millis(20);
const ATTEMPTS: usize = 3;

/// The flag that ends a program's goroutines.
type Stop = Arc<AtomicBool>;
type Program = (&'static str, fn(&Runtime, &Stop));

const PROGRAMS: [Program; 11] = [
    ("nothing", |_, _| ()),
    ("a pair that wakes each other", |rt, stop| ring(rt, stop, 2)),
    ("16 pairs", |rt, stop| (0..16).for_each(|_| ring(rt, stop, 2))),
    ("a chain of 5 wakes", |rt, stop| ring(rt, stop, 5)),
    ("2 that yield", |rt, stop| yielding(rt, stop, 2)),
    ("1000 that yield", |rt, stop| yielding(rt, stop, 1000)),
    ("a busy channel", busy_channel),
    ("a mutex convoy", convoy),
    ("a storm of timers", timers),
    ("a chain of spawns", |rt, stop| drop(rt.go(successor(stop)))),
    ("a storm of spawns", spawners),
];

/// Each goroutine readies the next one and waits.
fn ring(rt: &Runtime, stop: &Stop, size: usize) {
    let events: Arc<[Event]> = (0..size).map(|_| Event::new()).collect();
    for me in 0..size {
        let (events, stop) = (Arc::clone(&events), Arc::clone(stop));
        drop(rt.go(move || {
            while !stop.load(SeqCst) {
                events[me].wait();
                events[(me + 1) % events.len()].notify_one();
            }
            // The next goroutine may be waiting for the last time.
            events[(me + 1) % events.len()].notify_one();
        }));
    }
    events[0].notify_one();
}

fn yielding(rt: &Runtime, stop: &Stop, count: usize) {
    for _ in 0..count {
        let stop = Arc::clone(stop);
        drop(rt.go(move || {
            while !stop.load(SeqCst) {
                yield_now();
            }
        }));
    }
}

/// The queue is never quite full and never quite empty.
fn busy_channel(rt: &Runtime, stop: &Stop) {
    let (sender, receiver) = chan::bounded::<u64>(64);
    for _ in 0..4 {
        let (sender, stop) = (sender.clone(), Arc::clone(stop));
        drop(rt.go(move || while !stop.load(SeqCst) && sender.send(1).is_ok() {}));
        let receiver = receiver.clone();
        drop(rt.go(move || receiver.iter().sum::<u64>()));
    }
}

/// All goroutines want the same lock, and its holder leaves its P.
fn convoy(rt: &Runtime, stop: &Stop) {
    let lock = Arc::new(Mutex::new(0_u64));
    for _ in 0..16 {
        let (lock, stop) = (Arc::clone(&lock), Arc::clone(stop));
        drop(rt.go(move || {
            while !stop.load(SeqCst) {
                let mut held = lock.lock();
                *held += 1;
                yield_now();
            }
        }));
    }
}

fn timers(rt: &Runtime, stop: &Stop) {
    for each in 0..500 {
        let stop = Arc::clone(stop);
        drop(rt.go(move || {
            while !stop.load(SeqCst) {
                sleep(Duration::from_micros(4 + each % 50 * 4));
            }
        }));
    }
}

/// Returns a goroutine's body that starts another goroutine like it, and ends.
fn successor(stop: &Stop) -> impl FnOnce() + Send + 'static {
    let stop = Arc::clone(stop);
    move || {
        if !stop.load(SeqCst) {
            drop(go(Box::new(successor(&stop)) as Box<dyn FnOnce() + Send>));
        }
    }
}

/// Two goroutines keep more goroutines alive than the queue of a P holds, and yield when there are as many.
fn spawners(rt: &Runtime, stop: &Stop) {
    let live = Arc::new(AtomicU64::new(0));
    for _ in 0..2 {
        let (live, stop) = (Arc::clone(&live), Arc::clone(stop));
        drop(rt.go(move || {
            while !stop.load(SeqCst) {
                if live.load(SeqCst) >= 1000 {
                    yield_now();
                    continue;
                }
                live.fetch_add(1, SeqCst);
                let ends = Arc::clone(&live);
                drop(go(move || ends.fetch_sub(1, SeqCst)));
            }
        }));
    }
}

/// The longest delay so far.
#[derive(Clone, Default)]
struct Longest(Arc<AtomicU64>);

impl Longest {
    fn note(&self, delay: Duration) {
        self.0.fetch_max(delay.as_nanos() as u64, SeqCst);
    }

    fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(SeqCst))
    }
}

/// A goroutine that is readied by a call, and when the call was made.
#[derive(Default)]
struct Bystander {
    call: Event,
    called: std::sync::Mutex<Option<Instant>>,
}

impl Bystander {
    fn start(rt: &Runtime, stop: &Stop, longest: &Longest) -> Arc<Self> {
        let this = Arc::new(Self::default());
        let (own, stop, longest) = (Arc::clone(&this), Arc::clone(stop), longest.clone());
        drop(rt.go(move || {
            loop {
                own.call.wait();
                let called = own.called.lock().expect("nobody panics").take();
                longest.note(called.map_or(Duration::ZERO, |at| at.elapsed()));
                if stop.load(SeqCst) {
                    return;
                }
            }
        }));
        this
    }

    /// Readies the goroutine, but not before it has answered the last call.
    fn call(&self) {
        let mut called = self.called.lock().expect("nobody panics");
        if called.is_none() {
            *called = Some(Instant::now());
            drop(called);
            self.call.notify_one();
        }
    }
}

/// Returns the longest delays of the bystanders readied by a thread, by a timer, and by a goroutine.
fn delays(procs: usize, program: fn(&Runtime, &Stop), time: Duration) -> Result<[Duration; 3], String> {
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call (see `gmp::migration`).
    let rt = unsafe { Runtime::builder().procs(procs).build() }.map_err(|refused| refused.to_string())?;
    let (stop, [by_thread, by_timer, by_goroutine]) = (Stop::default(), <[Longest; 3]>::default());
    program(&rt, &stop);
    let called = Bystander::start(&rt, &stop, &by_thread);
    let readied = Bystander::start(&rt, &stop, &by_goroutine);
    let (end, longest, start) = (Arc::clone(&stop), by_timer.clone(), Instant::now());
    drop(rt.go(move || {
        // New goroutines are readied by a thread.
        let mut due = start;
        loop {
            longest.note(due.elapsed());
            let last = end.load(SeqCst);
            readied.call();
            if last {
                return;
            }
            due = Instant::now() + MS;
            sleep(MS);
        }
    }));
    while start.elapsed() < time {
        called.call();
        thread::sleep(MS);
    }
    stop.store(true, SeqCst);
    called.call();
    let begun = Instant::now();
    while rt.num_goroutines() > 0 {
        if begun.elapsed() > Duration::from_secs(10) {
            return Err(format!("some goroutines do not end:\n{}", rt.dump()));
        }
        thread::sleep(MS);
    }
    Ok([by_thread, by_timer, by_goroutine].map(|longest| longest.get()))
}

/// Returns the longest time between two looks at the clock, in so many threads that do nothing else.
fn kernels_gap(threads: usize, time: Duration) -> Duration {
    let watch = || {
        let (start, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
        while start.elapsed() < time {
            let now = Instant::now();
            longest = longest.max(now - last);
            last = now;
        }
        longest
    };
    thread::scope(|s| {
        let watching: Vec<_> = (0..threads).map(|_| s.spawn(watch)).collect();
        watching.into_iter().map(|one| one.join().expect("nobody panics")).max().expect("there is one")
    })
}

/// Prints a line for each program. Returns the programs whose delays were too long.
fn table(time: Duration) -> Result<Vec<String>, String> {
    println!(
        "{:30} {:>5} {:>10} {:>10} {:>10} {:>12}",
        "longest delay, readied by", "procs", "a thread", "a timer", "goroutine", "kernel's gap"
    );
    let mut late = Vec::new();
    for (name, program) in PROGRAMS {
        for procs in [1, 2, 4] {
            let mut attempts = ATTEMPTS;
            let (delays, gap) = loop {
                attempts -= 1;
                let before = kernels_gap(procs, time);
                let delays = delays(procs, program, time)?;
                let gap = before.max(kernels_gap(procs, time));
                if attempts == 0 || delays.iter().all(|delay| *delay <= SLACK + 2 * gap) {
                    break (delays, gap);
                }
            };
            let [thread, timer, goroutine] = delays.map(|delay| format!("{delay:.1?}"));
            println!(
                "{name:30} {procs:>5} {thread:>10} {timer:>10} {goroutine:>10} {:>12}",
                format!("{gap:.1?}")
            );
            if delays.iter().any(|delay| *delay > SLACK + 2 * gap) {
                late.push(format!("{name}, procs {procs}"));
            }
        }
    }
    Ok(late)
}

fn millis(mut args: impl Iterator<Item = String>) -> Result<Duration, String> {
    let mut millis = 100;
    while let Some(flag) = args.next() {
        match flag.as_str() {
            "--millis" => {
                let text = args.next().unwrap_or_default();
                let number = text.parse().ok().filter(|number| (1..=60_000).contains(number));
                millis = number.ok_or_else(|| format!("{flag}: {text:?} is not a number from 1 to 60000"))?;
            }
            unknown => return Err(format!("unknown argument {unknown:?}; {USAGE}")),
        }
    }
    Ok(Duration::from_millis(millis))
}

fn main() -> ExitCode {
    let args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    let (status, wrong) = match millis(args).map(table) {
        Err(wrong) => (2, wrong),
        Ok(Err(wrong)) => (1, wrong),
        Ok(Ok(late)) if late.is_empty() => return ExitCode::SUCCESS,
        Ok(Ok(late)) => (1, format!("over {SLACK:?} and twice the kernel's gap: {}", late.join("; "))),
    };
    eprintln!("fairness: {wrong}");
    ExitCode::from(status)
}
