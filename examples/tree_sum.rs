//! Adds up the leaves of a binary tree in three ways: by `gmp::join`, by goroutines depth first, and breadth first.
//!
//! cargo run --release --example tree_sum
//!
//! depth 14, procs 2
//! join     16384 in 2.0ms, at most 5 goroutines at once
//! go_lifo  16384 in 8.7ms, at most 52 goroutines at once
//! go       16384 in 12.9ms, at most 6793 goroutines at once
//!
//! A goroutine for each node is expensive, while a fork that no M takes costs some nanoseconds. And among goroutines the order
//! matters: first in, first out, as with `go`, all nodes of a level are alive at once. `-- --depth D`, `-- --procs P`. The
//! status is 1 if a sum is wrong.

use gmp::{JoinHandle, Runtime, go, go_lifo, join, num_goroutines};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

const USAGE: &str = "tree_sum [--depth D] [--procs P]";
/// Before Linux 6.13 a process gets some 28,000 stacks.
const MOST_DEPTH: usize = 14;

/// The most goroutines that were seen at once.
static MOST_SEEN: AtomicUsize = AtomicUsize::new(0);

fn leaf() -> u64 {
    MOST_SEEN.fetch_max(num_goroutines(), Relaxed);
    1
}

fn by_joins(depth: usize) -> u64 {
    if depth == 0 {
        return leaf();
    }
    let (left, right) = join(|| by_joins(depth - 1), || by_joins(depth - 1));
    left + right
}

type Sum = fn(usize) -> u64;
type Start = fn(usize, Sum) -> JoinHandle<u64>;

fn by_goroutines(depth: usize, start: Start, child: Sum) -> u64 {
    if depth == 0 {
        return leaf();
    }
    let both = [(); 2].map(|()| start(depth - 1, child));
    both.map(|one| one.join().expect("a node does not panic")).iter().sum()
}

fn lifo(depth: usize) -> u64 {
    by_goroutines(depth, |depth, child| go_lifo(move || child(depth)), lifo)
}

fn fifo(depth: usize) -> u64 {
    by_goroutines(depth, |depth, child| go(move || child(depth)), fifo)
}

fn args() -> Result<(usize, Option<usize>), String> {
    let (mut depth, mut procs) = (MOST_DEPTH, None);
    let mut given = std::env::args().skip(1);
    while let Some(flag) = given.next() {
        let most = match flag.as_str() {
            "--depth" => MOST_DEPTH,
            "--procs" => 1024,
            _ => return Err(format!("{flag:?} is unknown: {USAGE}")),
        };
        let text = given.next().ok_or_else(|| format!("{flag} wants a number: {USAGE}"))?;
        let number = text.parse().ok().filter(|number| (1..=most).contains(number));
        let number = number.ok_or_else(|| format!("{flag}: {text:?} is not a number from 1 to {most}"))?;
        match flag.as_str() {
            "--depth" => depth = number,
            _ => procs = Some(number),
        }
    }
    Ok((depth, procs))
}

fn main() -> ExitCode {
    let (depth, procs) = match args() {
        Ok(args) => args,
        Err(wrong) => {
            eprintln!("tree_sum: {wrong}");
            return ExitCode::from(2);
        }
    };
    let builder = procs.into_iter().fold(Runtime::builder(), |builder, procs| builder.procs(procs));
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let runtime = match unsafe { builder.build() } {
        Ok(runtime) => runtime,
        Err(refused) => {
            eprintln!("tree_sum: {refused}");
            return ExitCode::from(2);
        }
    };
    println!("depth {depth}, procs {}", runtime.run(gmp::procs));
    let ways: [(&str, Sum); 3] = [("join", by_joins), ("go_lifo", lifo), ("go", fifo)];
    for (name, sum) in ways {
        MOST_SEEN.store(0, Relaxed);
        let start = Instant::now();
        let sum = runtime.run(move || sum(depth));
        let (took, most) = (start.elapsed(), MOST_SEEN.load(Relaxed));
        println!("{name:8} {sum} in {took:.1?}, at most {most} goroutines at once");
        if sum != 1 << depth {
            eprintln!("tree_sum: {name}: there are {} leaves", 1_u64 << depth);
            return ExitCode::from(1);
        }
    }
    ExitCode::SUCCESS
}
