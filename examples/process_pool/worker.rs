//! The worker process: a line in, a line out, until the end of its input. A plain program, which knows nothing of goroutines.

use std::io::{self, Write};
use std::process::{ExitCode, abort};
use std::thread;

pub fn main() -> ExitCode {
    let mut out = io::stdout();
    for line in io::stdin().lines().map_while(Result::ok) {
        // The number of the try comes before the job.
        let Some((attempt, job)) = line.split_once(' ') else { return ExitCode::from(2) };
        let answer = answer(attempt.parse().unwrap_or(1), job);
        if writeln!(out, "{answer}").and_then(|()| out.flush()).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn answer(attempt: u32, job: &str) -> String {
    match job.split_once(' ').unwrap_or((job, "")) {
        ("factor", number) => match number.parse() {
            Ok(number) => factors(number),
            Err(_) => format!("{number:?} is no number"),
        },
        ("upper", text) => text.to_uppercase(),
        ("die", before) if before.parse().is_ok_and(|before: u32| attempt < before) => abort(),
        ("die", _) => format!("survived at try {attempt}"),
        ("hang", _) => loop {
            thread::park();
        },
        (unknown, _) => format!("no job is called {unknown:?}"),
    }
}

fn factors(number: u64) -> String {
    let (mut rest, mut factors) = (number, Vec::new());
    let mut divisor = 2;
    while divisor <= rest / divisor {
        if rest.is_multiple_of(divisor) {
            rest /= divisor;
            factors.push(divisor.to_string());
        } else {
            divisor += 1;
        }
    }
    factors.push(rest.to_string());
    format!("{number} = {}", factors.join(" * "))
}
