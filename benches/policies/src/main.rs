//! The nine variants of the fiber scheduler that the policies come from, on its five benchmarks. One of them is the default
//! here.
//!
//! Each benchmark has two forms. The *faithful* one does what the original does in each iteration: it asks the kernel to sleep
//! for 2 ns, which takes some 60 µs, so that its times are mostly those sleeps; with the slow thread, for a hundred times as
//! long a sleep. The *corrected* one computes instead, for 200 ns, or 100 µs on the slow thread, by a loop that is calibrated
//! at the start.
//!
//! A thread is a P here, as goroutines that block their thread lose their P only if others wait for it. For each run the
//! program prints the median time, and how often in the median run the lock of the global queue was taken (it is also that of
//! idle Ps and sleeping Ms), a queue was robbed, a task went on on another thread than before, and an M was woken.

mod tasks;

use gmp::policy::{FromGlobal, Overflow, Policy, Steal, WorkStealing};
use std::time::{Duration, Instant};
use tasks::{Bench, Work};

/// What one run took.
struct Run {
    time: Duration,
    locks: u64,
    steals: u64,
    migrations: u64,
    wakes: u64,
}

fn variants() -> Vec<(&'static str, Policy)> {
    let locked = |steal, global| WorkStealing::new().mutex_queue().steal(steal).global(global).into();
    let ring = |overflow, steal| WorkStealing::new().overflow(overflow).steal(steal).into();
    vec![
        ("GlobalFIFO", Policy::GlobalFifo),
        ("MutexQueue StealHalf GetAllFromGlob", locked(Steal::Half, FromGlobal::All)),
        ("MutexQueue StealOne GetAllFromGlob", locked(Steal::One, FromGlobal::All)),
        ("MutexQueue StealHalf GetOneFromGlob", locked(Steal::Half, FromGlobal::One)),
        ("MutexQueue StealOne GetOneFromGlob", locked(Steal::One, FromGlobal::One)),
        ("lock-free PutHalfToGlob StealHalf (default)", ring(Overflow::PutHalf, Steal::Half)),
        ("lock-free PutOneToGlob StealHalf", ring(Overflow::PutOne, Steal::Half)),
        ("lock-free PutHalfToGlob StealOne", ring(Overflow::PutHalf, Steal::One)),
        ("lock-free PutOneToGlob StealOne", ring(Overflow::PutOne, Steal::One)),
    ]
}

fn run(bench: Bench, work: Work, policy: Policy) -> Run {
    // SAFETY: no task keeps a thread-bound value across a blocking call.
    let runtime = unsafe { gmp::Runtime::builder().procs(bench.threads()).policy(policy).build() }
        .expect("a runtime starts");
    // The threads are there, and the stacks.
    bench.warm_up(&runtime);
    let before = gmp::bench::counters(&runtime);
    let begun = Instant::now();
    let migrations = bench.run(&runtime, work);
    let time = begun.elapsed();
    let [locks, steals, wakes] = std::array::from_fn(|at| gmp::bench::counters(&runtime)[at] - before[at]);
    Run { time, locks, steals, migrations, wakes }
}

fn main() {
    let [short, smoke] = ["--short", "--smoke"].map(|form| std::env::args().any(|arg| arg == form));
    let begun = Instant::now();
    let calibrated = Work::calibrate();
    println!("The spin of 200 ns is {} rounds of its loop.", calibrated.rounds());
    for bench in Bench::all() {
        for work in [calibrated.faithful(), calibrated] {
            if smoke && work.is_faithful() {
                continue;
            }
            let runs = match (short || smoke, work.is_faithful()) {
                (true, _) => 1,
                (false, true) => bench.faithful_runs(),
                (false, false) => 11,
            };
            println!("\n## {bench}, {work}, median of {runs}\n");
            println!("| policy | ms | locks | steals | migrations | wakes |");
            println!("| --- | ---: | ---: | ---: | ---: | ---: |");
            // Interleaved: what else the machine does meets all of them.
            let variants = variants();
            let mut all: Vec<Vec<Run>> = variants.iter().map(|_| Vec::new()).collect();
            for _ in 0..runs {
                for (at, (_, policy)) in variants.iter().enumerate() {
                    all[at].push(run(bench, work, *policy));
                }
            }
            for ((name, _), mut runs) in variants.into_iter().zip(all) {
                runs.sort_by_key(|run| run.time);
                let middle = runs.len() / 2;
                let Run { time, locks, steals, migrations, wakes } = &runs[middle];
                println!(
                    "| {name} | {:.2} | {locks} | {steals} | {migrations} | {wakes} |",
                    time.as_secs_f64() * 1e3
                );
            }
        }
    }
    println!("\n{:.0} s in all.", begun.elapsed().as_secs_f64());
}
