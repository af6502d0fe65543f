//! Sorts numbers by sleeping: for each number a goroutine sleeps so many milliseconds, and the first to wake has the least
//! number.
//!
//! cargo run --release --example sleep_sort
//!
//! 0 3 7 7 19 19 25 42 54 61 88 100
//! overslept: p50 84.2µs, worst 101.9µs; a unit is 1ms
//! the order is right
//!
//! `-- 30 10 20` sorts other numbers, `-- --unit-us 100` is ten times as fast.
//!
//! Why the order is right: all sleep from one start, and no sleep is too short. Of two different numbers the larger one is due
//! at least a unit later; so the smaller one comes first, unless its goroutine oversleeps by as much as a unit. By how much it
//! oversleeps depends on the machine. (Goroutines that are due at one look at the timers are readied in order: `--unit-us 1`
//! comes out right more often than not, though nothing promises it. With `--unit-us 0` all are due at once, and only luck is
//! left.) The status is 1 if the order was wrong.

use gmp::{Runtime, time};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const USAGE: &str = "sleep_sort [--unit-us MICROSECONDS] [NUMBER ..]";
const NUMBERS: [u32; 12] = [42, 7, 19, 3, 88, 7, 61, 0, 25, 19, 100, 54];
const MOST_NUMBERS: usize = 10_000;
const LARGEST: u32 = 1_000_000;
/// How far ahead the start is: all goroutines exist by then.
const HEAD_START: Duration = Duration::from_millis(20);

/// The numbers that have come, in this order, and how late.
type Arrivals = Mutex<Vec<(u32, Duration)>>;

/// Notes the arrival and prints the number, under one lock: the order that is printed is the one that is checked. Not inlined:
/// the lock and the print use thread-locals, and a function that does so must not park as well.
#[inline(never)]
fn arrive(arrivals: &Arrivals, number: u32, due: Instant) {
    let mut arrivals = arrivals.lock().expect("nobody panics");
    arrivals.push((number, due.elapsed()));
    let mut stdout = io::stdout();
    let _it_is_only_a_show = write!(stdout, "{number} ").and_then(|()| stdout.flush());
}

/// Sorts, and prints the result.
fn sleep_sort(runtime: &Runtime, numbers: &[u32], unit: Duration) -> Result<(), String> {
    let arrivals = Arc::new(Arrivals::default());
    let start = Instant::now() + HEAD_START;
    let sleepers: Vec<_> = numbers
        .iter()
        .map(|&number| {
            let (arrivals, due) = (Arc::clone(&arrivals), start + number * unit);
            runtime.go(move || {
                time::sleep_until(due);
                arrive(&arrivals, number, due);
            })
        })
        .collect();
    sleepers.into_iter().for_each(|sleeper| sleeper.join().expect("nobody panics"));
    println!();

    let (came, mut late): (Vec<_>, Vec<_>) = arrivals.lock().expect("nobody panics").drain(..).unzip();
    late.sort();
    let [p50, worst] = [late[late.len() / 2], late[late.len() - 1]];
    println!("overslept: p50 {p50:.1?}, worst {worst:.1?}; a unit is {unit:?}");
    let mut sorted = numbers.to_vec();
    sorted.sort();
    if came != sorted {
        let early = came.windows(2).filter(|pair| pair[0] > pair[1]).count();
        return Err(format!("the order is wrong: {early} times a larger number came before a smaller one"));
    }
    println!("the order is right");
    Ok(())
}

fn number(text: &str, most: u32) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number <= most);
    number.ok_or_else(|| format!("{text:?} is not a number from 0 to {most}"))
}

fn options(mut args: impl Iterator<Item = String>) -> Result<(Vec<u32>, Duration), String> {
    let (mut numbers, mut unit) = (Vec::new(), 1000);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--unit-us" => {
                let text = args.next().unwrap_or_default();
                unit = number(&text, LARGEST).map_err(|wrong| format!("--unit-us: {wrong}"))?;
            }
            unknown if unknown.starts_with("--") => {
                return Err(format!("unknown argument {unknown:?}; {USAGE}"));
            }
            text => numbers.push(number(text, LARGEST)?),
        }
    }
    match numbers.len() {
        0 => numbers.extend(NUMBERS),
        1..=MOST_NUMBERS => {}
        more => return Err(format!("{more} numbers are more than {MOST_NUMBERS}")),
    }
    Ok((numbers, Duration::from_micros(unit.into())))
}

/// Returns what went wrong, with the exit status for it.
fn run() -> Result<(), (u8, String)> {
    let args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    let (numbers, unit) = options(args).map_err(|wrong| (2, wrong))?;
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call (see `gmp::migration`).
    let runtime = unsafe { Runtime::builder().build() }.map_err(|refused| (1, refused.to_string()))?;
    sleep_sort(&runtime, &numbers, unit).map_err(|wrong| (1, wrong))
}

fn main() -> ExitCode {
    let Err((status, wrong)) = run() else { return ExitCode::SUCCESS };
    eprintln!("sleep_sort: {wrong}");
    ExitCode::from(status)
}
