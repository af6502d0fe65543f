//! The concurrent prime sieve: a chain of goroutines, one for each prime, each of which passes on the numbers that its prime
//! does not divide.
//!
//! cargo run --release --example sieve
//!
//! 2 3 5 7 11 13 17 19 23 29 .. 7919: 1000 primes
//! 1042172 messages in 0.20 s, 190 ns each; 1001 goroutines
//!
//! Channels without a buffer: each message is a meeting of two goroutines. `-- 200` asks for another number of primes. The
//! program compares the result with trial division: the status is 1 if they differ. When the receiver of the last prime is
//! dropped, its sender fails, ends, drops its own receiver, and so the chain ends from its end.

use gmp::chan::{self, Receiver, Sender};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Before Linux 6.13 a process gets some 28,000 stacks.
const MOST: usize = 20_000;

/// Sends 2, 3, 4, … until the receiver is gone.
fn numbers(out: &Sender<u64>) {
    let _nobody_listens = (2..).try_for_each(|number| out.send(number));
}

/// Passes on the numbers that `prime` does not divide. Returns how many numbers came.
fn filter(prime: u64, numbers: &Receiver<u64>, out: &Sender<u64>) -> u64 {
    let mut seen = 0;
    for number in numbers {
        seen += 1;
        if !number.is_multiple_of(prime) && out.send(number).is_err() {
            break;
        }
    }
    seen
}

/// Returns the first `count` primes, and how many messages that took.
fn sieve(count: usize) -> (Vec<u64>, u64) {
    let messages = Arc::new(AtomicU64::new(0));
    let (out, mut last) = chan::bounded(0);
    let mut chain = vec![gmp::go(move || numbers(&out))];
    let mut primes = Vec::new();
    for _ in 0..count {
        let prime = last.recv().expect("there is always another number");
        primes.push(prime);
        let (out, next) = chan::bounded(0);
        let (numbers, messages) = (std::mem::replace(&mut last, next), Arc::clone(&messages));
        chain.push(gmp::go(move || {
            messages.fetch_add(filter(prime, &numbers, &out), Relaxed);
        }));
    }
    drop(last);
    chain.into_iter().for_each(|link| link.join().expect("nobody panics"));
    (primes, messages.load(Relaxed) + count as u64)
}

fn is_prime(number: u64) -> bool {
    (2..).take_while(|divisor| divisor * divisor <= number).all(|divisor| !number.is_multiple_of(divisor))
}

fn run(count: usize) -> Result<(), String> {
    let start = Instant::now();
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call (see `gmp::migration`).
    let (primes, messages) = unsafe { gmp::run(|| sieve(count)) };
    let took = start.elapsed();

    let texts: Vec<_> = primes.iter().map(u64::to_string).collect();
    let (shown, more) = if count > 10 {
        (&texts[..10], format!(" .. {}", texts[count - 1]))
    } else {
        (&texts[..], String::new())
    };
    println!("{}{more}: {count} primes", shown.join(" "));
    let each = took.as_nanos() / u128::from(messages);
    println!("{messages} messages in {:.2} s, {each} ns each; {} goroutines", took.as_secs_f64(), count + 1);
    let right: Vec<_> = (2..).filter(|&number| is_prime(number)).take(count).collect();
    if primes == right { Ok(()) } else { Err("trial division finds other primes".to_owned()) }
}

fn main() -> ExitCode {
    let text = std::env::args().nth(1).unwrap_or_else(|| "1000".to_owned());
    let Some(count) = text.parse().ok().filter(|count| (1..=MOST).contains(count)) else {
        eprintln!("sieve: {text:?} is not a number from 1 to {MOST}");
        return ExitCode::from(2);
    };
    match run(count) {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("sieve: {wrong}");
            ExitCode::FAILURE
        }
    }
}
