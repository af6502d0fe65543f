//! A token goes around a ring of goroutines: each waits for it, counts a hop and hands it to the next.
//!
//! cargo run --release --example ring
//!
//! goroutines 1000, laps 1000, procs 2
//! 1000000 hops in 239.4ms, 239 ns a hop
//! threads 2: gmp-1 54.5 %, gmp-0 45.5 % of the hops; 707 changes
//!
//! Only the goroutine that has the token has something to do, so the time of a hop is the cost of a hand-over:
//! `Event::notify_one` readies the next goroutine, `Event::wait` parks this one. Any free thread goes on with the token. With
//! `-- --procs 1` there is no other thread, with `-- --procs 8` there are too many; `--goroutines N` and `--laps L` make it
//! longer. The token counts its hops, and every goroutine how often it had the token: the status is 1 if a sum is not
//! goroutines x laps.

use gmp::{Runtime, RuntimeBuilder, sync::Event};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Instant;

const USAGE: &str = "ring [--goroutines N] [--laps L] [--procs P]";
/// Before Linux 6.13 a process gets some 28,000 stacks.
const MOST_GOROUTINES: usize = 20_000;

/// The token is moved, not shared: the goroutine that has it counts without a lock.
#[derive(Default)]
struct Token {
    hops: usize,
    /// The threads on which the token has been, with the hops that it made there.
    threads: Vec<(String, usize)>,
    /// The last of these threads, and how often the thread changed.
    on: usize,
    changes: usize,
}

impl Token {
    /// Not inlined: it uses a thread-local, `thread::current`, and a function that does so must not park as well.
    #[inline(never)]
    fn hop(&mut self) {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("?");
        let here = self.threads.iter().position(|(known, _)| known == name).unwrap_or(self.threads.len());
        if here == self.threads.len() {
            self.threads.push((name.to_owned(), 0));
        }
        self.changes += usize::from(here != self.on);
        self.on = here;
        self.threads[here].1 += 1;
        self.hops += 1;
    }
}

/// Where a goroutine gets the token. The lock is free whenever it is taken: the event comes after it.
#[derive(Default)]
struct Place {
    slot: Mutex<Option<Token>>,
    filled: Event,
}

impl Place {
    fn put(&self, token: Token) {
        *self.slot.lock().expect("nobody panics") = Some(token);
        self.filled.notify_one();
    }

    fn take(&self) -> Token {
        self.filled.wait();
        self.slot.lock().expect("nobody panics").take().expect("it was put before the event")
    }
}

/// Sends the token around, and prints the result.
fn ring(runtime: &Runtime, goroutines: usize, laps: usize) -> Result<(), String> {
    let places: Arc<[Place]> = (0..goroutines).map(|_| Place::default()).collect();
    let pass_on = |me: usize| {
        let places = Arc::clone(&places);
        move || {
            let mut passed = 0;
            for _ in 0..laps {
                let mut token = places[me].take();
                token.hop();
                passed += 1;
                places[(me + 1) % places.len()].put(token);
            }
            passed
        }
    };
    let passing: Vec<_> = (0..goroutines).map(|me| runtime.go(pass_on(me))).collect();
    let start = Instant::now();
    places[0].put(Token::default());
    let passed: usize = passing.into_iter().map(|one| one.join().expect("nobody panics")).sum();
    let took = start.elapsed();
    // The last hop was to the first goroutine, which has ended: the event remembers it.
    let Token { hops, threads, changes, .. } = places[0].take();

    println!("goroutines {goroutines}, laps {laps}, procs {}", runtime.procs());
    println!("{hops} hops in {took:.1?}, {:.0} ns a hop", took.as_nanos() as f64 / hops as f64);
    let share = |(name, there)| format!("{name} {:.1} %", 100.0 * there as f64 / hops as f64);
    let shares: Vec<_> = threads.into_iter().map(share).collect();
    println!("threads {}: {} of the hops; {changes} changes", shares.len(), shares.join(", "));
    let right = goroutines * laps;
    if (hops, passed) != (right, right) {
        return Err(format!("the token counted {hops} hops and the goroutines {passed}, not {right}"));
    }
    Ok(())
}

fn options(mut args: impl Iterator<Item = String>) -> Result<(RuntimeBuilder, usize, usize), String> {
    let (mut runtime, mut goroutines, mut laps) = (Runtime::builder(), 1000, 1000);
    while let Some(flag) = args.next() {
        let mut number = |most| {
            let text = args.next().unwrap_or_default();
            let number = text.parse().ok().filter(|number| (1..=most).contains(number));
            number.ok_or_else(|| format!("{flag}: {text:?} is not a number from 1 to {most}"))
        };
        match flag.as_str() {
            "--goroutines" => goroutines = number(MOST_GOROUTINES)?,
            "--laps" => laps = number(1_000_000_000)?,
            "--procs" => runtime = runtime.procs(number(1024)?),
            unknown => return Err(format!("unknown argument {unknown:?}; {USAGE}")),
        }
    }
    Ok((runtime, goroutines, laps))
}

/// Returns what went wrong, with the exit status for it.
fn run() -> Result<(), (u8, String)> {
    let args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    let (runtime, goroutines, laps) = options(args).map_err(|wrong| (2, wrong))?;
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call (see `gmp::migration`).
    let runtime = unsafe { runtime.build() }.map_err(|refused| (1, refused.to_string()))?;
    ring(&runtime, goroutines, laps).map_err(|wrong| (1, wrong))
}

fn main() -> ExitCode {
    let Err((status, wrong)) = run() else { return ExitCode::SUCCESS };
    eprintln!("ring: {wrong}");
    ExitCode::from(status)
}
