//! A recursive parser in goroutines, and an input that nests deeper than their stacks reach.
//!
//! cargo run --release --example overflow
//! cargo run --release --example overflow -- --on-its-own-stack
//!
//! fatal error: stack overflow in goroutine 5 'parser 3' (spawned at examples/overflow.rs:51:16)
//! its stack of 64 KiB is used up; for more: GMPSTACK in the environment, gmp::Builder::stack_size, RuntimeBuilder::stack_size,
//! or gmp::with_stack around what goes deep
//! its frames, innermost first; these commands name them:
//!
//! and SIGABRT is what the first ends with, in place of a bare SIGSEGV. The second parses the same on a stack of 32 MiB, which
//! `with_stack` takes for as long as the call lasts, while the other parsers keep their small ones:
//!
//! parser 0: 3 deep
//! parser 1: 1 deep
//! parser 2: 2 deep
//! parser 3: 40000 deep

use gmp::{Builder, with_stack};
use std::process::ExitCode;

const DEFAULT_DEPTH: usize = 40_000;
const LARGE: usize = 32 << 20;

/// How deep the brackets nest; a level of them is a frame. `rest` begins behind the bracket that opened this level.
fn depth(rest: &mut impl Iterator<Item = u8>) -> Result<usize, &'static str> {
    let mut deepest = 0;
    loop {
        match rest.next() {
            Some(b'(') => deepest = deepest.max(depth(rest)?),
            Some(b')') => return Ok(1 + deepest),
            Some(_) => {}
            None => return Err("a bracket is not closed"),
        }
    }
}

fn parse(text: &str) -> Result<usize, &'static str> {
    let mut bytes = text.bytes();
    match bytes.next() {
        Some(b'(') => depth(&mut bytes),
        _ => Err("it begins with no bracket"),
    }
}

fn run(deep: usize, on_its_own_stack: bool) {
    let nested = "(".repeat(deep) + &")".repeat(deep);
    let texts = ["(a (b c) (d (e)))".to_owned(), "(f g)".to_owned(), "(h (i) j)".to_owned(), nested];
    let parsers = texts.into_iter().enumerate().map(|(n, text)| {
        let parser = Builder::new().name(format!("parser {n}"));
        parser.go(move || match on_its_own_stack && text.len() > 1000 {
            true => with_stack(LARGE, || parse(&text)),
            false => parse(&text),
        })
    });
    let parsers: Vec<_> = parsers.collect::<Result<_, _>>().expect("there is memory for four stacks");
    for (n, parser) in parsers.into_iter().enumerate() {
        match parser.join().expect("a parser does not panic") {
            Ok(depth) => println!("parser {n}: {depth} deep"),
            Err(why) => println!("parser {n}: {why}"),
        }
    }
}

fn main() -> ExitCode {
    let (mut deep, mut on_its_own_stack) = (DEFAULT_DEPTH, false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.size_hint().0) {
            ("--on-its-own-stack", _) => on_its_own_stack = true,
            ("--depth", 1..) => {
                let value = args.next().unwrap_or_default();
                deep = match value.parse() {
                    Ok(deep @ 1..=100_000) => deep,
                    _ => {
                        eprintln!("overflow: --depth: {value:?} is not a number from 1 to 100000");
                        return ExitCode::from(2);
                    }
                }
            }
            _ => {
                eprintln!("overflow: {arg:?}; it takes --depth N and --on-its-own-stack");
                return ExitCode::from(2);
            }
        }
    }
    // SAFETY: no goroutine here keeps a thread-bound value across a call that may park.
    unsafe { gmp::run(|| run(deep, on_its_own_stack)) };
    ExitCode::SUCCESS
}
