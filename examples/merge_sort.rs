//! Sorts numbers by merging, the two halves by `gmp::join`: in parallel if a thread has time, else one after the other.
//!
//! cargo run --release --example merge_sort
//!
//! 1000000 numbers, procs 2, cut-off 2000
//! sort 14.2ms, merge_sort 36.7ms; goroutines at once: 2
//! the order is right
//!
//! `sort` is std's, on one thread, and takes fewer steps; with `--procs 1` this program takes 67 ms. A fork that no M takes is
//! a call, so however many numbers there are, the number of goroutines stays small. `-- --numbers N`, `--procs P`, and
//! `--cut-off C`: std sorts parts of at most C numbers. The status is 1 if the order is not std's.

use gmp::Runtime;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

const USAGE: &str = "merge_sort [--numbers N] [--cut-off C] [--procs P]";
const MOST_NUMBERS: usize = 100_000_000;

/// The most goroutines that were seen at once, at the ends of sorts.
static MOST_SEEN: AtomicUsize = AtomicUsize::new(0);

/// Merges two sorted parts into `to`.
fn merge(left: &[u32], right: &[u32], to: &mut [u32]) {
    let (mut l, mut r) = (0, 0);
    for to in to {
        let left_first = r == right.len() || l < left.len() && left[l] <= right[r];
        let (from, at) = if left_first { (left, &mut l) } else { (right, &mut r) };
        *to = from[*at];
        *at += 1;
    }
}

/// Sorts `numbers`, with as much room in `spare`.
fn merge_sort(numbers: &mut [u32], spare: &mut [u32], cut_off: usize) {
    if numbers.len() <= cut_off {
        numbers.sort_unstable();
        MOST_SEEN.fetch_max(gmp::num_goroutines(), Relaxed);
        return;
    }
    let middle = numbers.len() / 2;
    let (left, right) = numbers.split_at_mut(middle);
    let (spare_left, spare_right) = spare.split_at_mut(middle);
    gmp::join(|| merge_sort(left, spare_left, cut_off), || merge_sort(right, spare_right, cut_off));
    merge(left, right, spare);
    numbers.copy_from_slice(spare);
}

/// Numbers without a pattern (Marsaglia's xorshift).
fn numbers(count: usize) -> Vec<u32> {
    let mut x = 0x9e37_79b9_u32;
    let next = || {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        x
    };
    std::iter::repeat_with(next).take(count).collect()
}

struct Args {
    numbers: usize,
    cut_off: usize,
    procs: Option<usize>,
}

fn args() -> Result<Args, String> {
    let mut args = Args { numbers: 1_000_000, cut_off: 2000, procs: None };
    let mut given = std::env::args().skip(1);
    while let Some(flag) = given.next() {
        let most = match flag.as_str() {
            "--numbers" | "--cut-off" => MOST_NUMBERS,
            "--procs" => 1024,
            _ => return Err(format!("{flag:?} is unknown: {USAGE}")),
        };
        let text = given.next().ok_or_else(|| format!("{flag} wants a number: {USAGE}"))?;
        let number = text.parse().ok().filter(|number| (1..=most).contains(number));
        let number = number.ok_or_else(|| format!("{flag}: {text:?} is not a number from 1 to {most}"))?;
        match flag.as_str() {
            "--numbers" => args.numbers = number,
            "--cut-off" => args.cut_off = number,
            _ => args.procs = Some(number),
        }
    }
    Ok(args)
}

fn main() -> ExitCode {
    let args = match args() {
        Ok(args) => args,
        Err(wrong) => {
            eprintln!("merge_sort: {wrong}");
            return ExitCode::from(2);
        }
    };
    let builder = args.procs.into_iter().fold(Runtime::builder(), |builder, procs| builder.procs(procs));
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let runtime = match unsafe { builder.build() } {
        Ok(runtime) => runtime,
        Err(refused) => {
            eprintln!("merge_sort: {refused}");
            return ExitCode::from(2);
        }
    };
    let mut sorted = numbers(args.numbers);
    let mut by_merging = sorted.clone();
    println!("{} numbers, procs {}, cut-off {}", args.numbers, runtime.run(gmp::procs), args.cut_off);
    let start = Instant::now();
    sorted.sort_unstable();
    let sort = start.elapsed();
    let mut spare = vec![0; args.numbers];
    let start = Instant::now();
    runtime.run(|| merge_sort(&mut by_merging, &mut spare, args.cut_off));
    let merging = start.elapsed();
    println!("sort {sort:.1?}, merge_sort {merging:.1?}; goroutines at once: {}", MOST_SEEN.load(Relaxed));
    if by_merging != sorted {
        eprintln!("merge_sort: the order is not std's");
        return ExitCode::from(1);
    }
    println!("the order is right");
    ExitCode::SUCCESS
}
