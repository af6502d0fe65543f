//! A pipeline: a source, several workers that share its lines (fan-out), one collector of their results (fan-in).
//!
//! cargo run --release --example pipeline
//!
//! 200000 lines, 4 workers: 1800000 words, 10 different
//! gopher 180000, channel 180000, select 180000, ..
//! shares of the workers: 27.0 % 29.3 % 21.8 % 21.9 %
//!
//! Each stage is a function that takes receivers and returns one; a stage ends when its input does, so dropping the source's
//! sender ends all of them in order. The program makes the words, so it knows their numbers: the status is 1 if a sum is wrong.

use gmp::chan::{self, Receiver};
use std::collections::BTreeMap;
use std::process::ExitCode;

const LINES: usize = 200_000;
const WORKERS: usize = 4;
const WORDS: [&str; 10] =
    ["gopher", "channel", "select", "park", "ready", "steal", "spin", "wake", "timer", "poller"];

type Counts = BTreeMap<&'static str, u64>;

/// Makes lines that each lack one of the words, in turn.
fn lines(count: usize) -> Receiver<Vec<&'static str>> {
    let (out, lines) = chan::bounded(64);
    gmp::go(move || {
        for number in 0..count {
            let line = (0..WORDS.len()).filter(|&word| word != number % WORDS.len()).map(|word| WORDS[word]);
            if out.send(line.collect()).is_err() {
                return;
            }
        }
    });
    lines
}

/// One worker: counts the words of the lines that it gets, and sends the counts now and then.
fn count(lines: Receiver<Vec<&'static str>>) -> Receiver<(u64, Counts)> {
    let (out, counts) = chan::bounded(4);
    gmp::go(move || {
        let (mut seen, mut words) = (0, Counts::new());
        for line in &lines {
            seen += 1;
            line.into_iter().for_each(|word| *words.entry(word).or_default() += 1);
            if seen == 1000 && out.send((std::mem::take(&mut seen), std::mem::take(&mut words))).is_err() {
                return;
            }
        }
        let _the_collector_is_gone = out.send((seen, words));
    });
    counts
}

/// Fan-in: passes on the messages of all inputs, each with the number of its input.
fn merge<T: Send + 'static>(inputs: Vec<Receiver<T>>) -> Receiver<(usize, T)> {
    let (out, merged) = chan::bounded(0);
    for (number, input) in inputs.into_iter().enumerate() {
        let out = out.clone();
        gmp::go(move || {
            let _the_collector_is_gone = input.iter().try_for_each(|item| out.send((number, item)));
        });
    }
    merged
}

fn pipeline() -> Result<(), String> {
    let lines = lines(LINES);
    let workers = (0..WORKERS).map(|_| count(lines.clone())).collect();
    let (mut shares, mut total) = ([0; WORKERS], Counts::new());
    for (worker, (seen, words)) in merge(workers) {
        shares[worker] += seen;
        words.into_iter().for_each(|(word, times)| *total.entry(word).or_default() += times);
    }

    let words: u64 = total.values().sum();
    println!("{LINES} lines, {WORKERS} workers: {words} words, {} different", total.len());
    let shown: Vec<_> = WORDS[..3].iter().map(|word| format!("{word} {}", total[word])).collect();
    println!("{}, ..", shown.join(", "));
    let percent = shares.map(|share| format!("{:.1} %", 100.0 * share as f64 / LINES as f64));
    println!("shares of the workers: {}", percent.join(" "));

    let each = (LINES - LINES / WORDS.len()) as u64;
    let right: Counts = WORDS.into_iter().map(|word| (word, each)).collect();
    if total != right || shares.iter().sum::<u64>() != LINES as u64 {
        return Err(format!("counted {total:?} in {shares:?} lines, not {each} of each"));
    }
    Ok(())
}

fn main() -> ExitCode {
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call (see `gmp::migration`).
    match unsafe { gmp::run(pipeline) } {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("pipeline: {wrong}");
            ExitCode::FAILURE
        }
    }
}
