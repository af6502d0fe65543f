//! All storms mixed, in one runtime after the other: channels with messages whose drops panic, selects, contexts and limits
//! that end every kind of wait, goroutines in numbers that no ring holds, timers, sockets, plain threads, blocking calls,
//! locked threads, and runtimes that end in the middle of it. All that was made is counted, and so is all that is left.
//!
//! ```sh
//! cargo test --release --test storm                                        # the short form, some seconds; part of ./test
//! cargo test --release --test storm -- --procs 4 --seconds 600             # prints the seed that it took
//! cargo test --test storm -- --procs 4 --seconds 300 --seed 7 --only chan  # with debug assertions, and fewer operations
//! ```
//! A seed fixes what each worker tries, not the outcome: threads race as they please. `--only` takes the beginnings of
//! operations' names, with commas between; `--list` shows them. When a worker makes no progress for 60 s, the process prints
//! the seed, what was done, and what all goroutines wait for, and aborts.
//!
//! The storm runs without libtest, whose threads would be counted.
#![cfg_attr(gmp_loom, allow(dead_code, unused_imports))]

mod channels;
mod heap;
mod ledger;
mod lives;
mod locks;
mod odd;
mod round;
mod selects;
mod sockets;
mod timers;
mod watch;
mod worker;
mod world;

use common::random::Random;
use round::{Course, Plan};
use std::time::{Duration, Instant};

/// The numbers of Ps of the short form.
const PROCS: [usize; 4] = [1, 2, 4, 8];
const FIXED_SEEDS: [u64; 2] = [1, 2];

struct Args {
    procs: Option<usize>,
    seconds: Option<u64>,
    seed: Option<u64>,
    only: Vec<String>,
    /// The filters, as libtest takes them: this test runs if one of them is a part of its name.
    filters: Vec<String>,
    lists: bool,
}

impl Args {
    fn read() -> Self {
        let mut all = Args {
            procs: None,
            seconds: None,
            seed: None,
            only: Vec::new(),
            filters: Vec::new(),
            lists: false,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().unwrap_or_else(|| misuse(&format!("{arg}: a value is missing")));
            let number =
                |text: String| text.parse().unwrap_or_else(|_| misuse(&format!("{text:?} is no number")));
            match arg.as_str() {
                "--procs" => all.procs = Some(number(value()) as usize),
                "--seconds" => all.seconds = Some(number(value())),
                "--seed" => all.seed = Some(number(value())),
                "--only" => all.only = value().split(',').map(str::to_owned).collect(),
                "--list" => all.lists = true,
                // The arguments that `cargo test` hands to each of its targets.
                "--test-threads" | "--skip" | "--format" | "--color" => drop(value()),
                "--exact" | "--nocapture" | "--quiet" | "-q" | "--include-ignored" => {}
                flag if flag.starts_with('-') => misuse(&format!("unknown option {flag}")),
                _ => all.filters.push(arg),
            }
        }
        all
    }
}

fn misuse(text: &str) -> ! {
    eprintln!("storm: {text}\nstorm [--procs N] [--seconds N] [--seed N] [--only NAME,..] [--list]");
    std::process::exit(2);
}

fn main() {
    // The models have none of this.
    if cfg!(gmp_loom) {
        return;
    }
    let args = Args::read();
    if args.lists {
        return worker::OPERATIONS.iter().for_each(|operation| println!("{}", operation.name));
    }
    if !args.filters.is_empty() && !args.filters.iter().any(|filter| "storm".contains(filter.as_str())) {
        return;
    }
    let only = worker::chosen(&args.only).unwrap_or_else(|unknown| misuse(&unknown));
    let fresh = std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64 % 1_000_000_007);
    watch::start();
    let course = Course::new(only);
    match args.seconds {
        Some(seconds) => long(&course, args.procs.unwrap_or(2), seconds, args.seed.unwrap_or(fresh)),
        None => short(&course, args.procs, args.seed.unwrap_or(fresh)),
    }
    println!("\n{}", watch::counts());
    println!("storm: nothing lost, nobody hung, nothing left");
}

fn short(course: &Course, procs: Option<usize>, fresh: u64) {
    for procs in PROCS.into_iter().filter(|&each| procs.is_none_or(|only| only == each)) {
        for seed in FIXED_SEEDS.into_iter().chain([fresh]) {
            println!("storm --procs {procs} --seed {seed}");
            course.round(&Plan { procs, seed, length: Duration::from_millis(500) });
        }
    }
}

fn long(course: &Course, procs: usize, seconds: u64, seed: u64) {
    println!("storm --procs {procs} --seconds {seconds} --seed {seed}");
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut random = Random::of_seed(seed);
    while Instant::now() < end {
        let length = Duration::from_millis(300 + random.below(2500));
        course.round(&Plan { procs, seed: random.bits(), length });
    }
}
