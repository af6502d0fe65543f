//! Dining philosophers: each needs the two forks beside it to eat, and none starves or waits for ever.
//!
//! cargo run --release --example philosophers
//!
//! 5 philosophers, 10000 meals each: 0.07 s
//! longest wait 4.1ms; gave up a fork that it had 526 times
//! nobody ever ate with a neighbour's fork
//!
//! A fork is a message in a channel with room for one: the philosopher that has received it has the fork. A philosopher takes
//! the fork that is there first, by `select!`; if the other one does not come within a moment, the philosopher puts the first
//! one back and tries again, so the circle in which all hold one fork and wait for the next does not last. Each philosopher
//! counts its meals, and each fork its users: the status is 1 if a fork was ever in two hands, or a meal is missing.

use gmp::chan::{self, Receiver, Sender};
use gmp::{scope, select};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const PHILOSOPHERS: usize = 5;
const MEALS: usize = 10_000;
/// How long a philosopher that holds one fork waits for the other.
const MOMENT: Duration = Duration::from_micros(50);

/// The report of a philosopher that has finished.
#[derive(Default)]
struct Report {
    meals: usize,
    gave_up: usize,
    longest: Duration,
}

/// A fork, and whether a philosopher eats with it.
struct Fork {
    put: Sender<()>,
    take: Receiver<()>,
    used: AtomicBool,
}

impl Fork {
    fn new() -> Self {
        let (put, take) = chan::bounded(1);
        put.send(()).expect("there is room for one");
        Fork { put, take, used: AtomicBool::new(false) }
    }

    fn put_back(&self) {
        self.put.try_send(()).expect("it was in one hand only");
    }

    fn pick_up(&self) -> bool {
        !self.used.swap(true, SeqCst)
    }
}

/// Eats all its meals.
fn dine(left: &Fork, right: &Fork) -> Result<Report, String> {
    let mut report = Report::default();
    for _ in 0..MEALS {
        let hungry = Instant::now();
        loop {
            let (mine, other) = select! {
                recv(left.take) -> _ => (left, right),
                recv(right.take) -> _ => (right, left),
            };
            if other.take.recv_timeout(MOMENT).is_ok() {
                break;
            }
            mine.put_back();
            report.gave_up += 1;
            gmp::yield_now();
        }
        report.longest = report.longest.max(hungry.elapsed());
        if !(left.pick_up() && right.pick_up()) {
            return Err("a fork is in two hands".to_owned());
        }
        // So that others run in the middle of the meal.
        gmp::yield_now();
        for fork in [left, right] {
            fork.used.store(false, SeqCst);
            fork.put_back();
        }
        report.meals += 1;
    }
    Ok(report)
}

fn table() -> Result<(), String> {
    let forks = [(); PHILOSOPHERS].map(|()| Fork::new());
    let start = Instant::now();
    let reports = scope(|s| {
        let dining: Vec<_> = (0..PHILOSOPHERS)
            .map(|seat| {
                s.go({
                    let forks = &forks;
                    move || dine(&forks[seat], &forks[(seat + 1) % PHILOSOPHERS])
                })
            })
            .collect();
        dining.into_iter().map(|one| one.join().expect("nobody panics")).collect::<Result<Vec<_>, _>>()
    })?;
    println!("{PHILOSOPHERS} philosophers, {MEALS} meals each: {:.2} s", start.elapsed().as_secs_f64());
    let longest = reports.iter().map(|report| report.longest).max().unwrap_or_default();
    let gave_up: usize = reports.iter().map(|report| report.gave_up).sum();
    println!("longest wait {longest:.1?}; gave up a fork that it had {gave_up} times");
    println!("nobody ever ate with a neighbour's fork");
    let meals: usize = reports.iter().map(|report| report.meals).sum();
    if meals == PHILOSOPHERS * MEALS { Ok(()) } else { Err(format!("{meals} meals were eaten")) }
}

fn main() -> ExitCode {
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call (see `gmp::migration`).
    match unsafe { gmp::run(table) } {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("philosophers: {wrong}");
            ExitCode::FAILURE
        }
    }
}
