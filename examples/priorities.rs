//! Requests beside batch work: a High echo, Low pieces, and a Background cleaner, with classes and without.
//!
//! One goroutine answers requests of another one, each a message and its reply; four others compute, 20 µs between two yields;
//! one more cleans up when there is nothing else to do. With classes a request waits for the piece that runs; without, for a
//! piece of each of the other goroutines. The status is 1 if the cleaner ran although others were ready, or a request was lost.
//! `--requests N` makes the run longer. There is one P, so that only the scheduler decides the order.

use gmp::{Builder, Priority, chan};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const USAGE: &str = "priorities [--requests N]";
const PIECE: Duration = Duration::from_micros(20);
const WORKERS: usize = 4;

/// The results of a run.
struct Ran {
    p50: Duration,
    p99: Duration,
    pieces: usize,
    /// Whether the cleaner ran while the workers did.
    cleaned_early: bool,
}

fn run(requests: usize, [urgent, worker, cleaner]: [Priority; 3]) -> std::io::Result<Ran> {
    let of = |class| Builder::new().priority(class);
    let (stop, pieces) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let cleans = of(cleaner).name("cleaner").go(|| ())?;
    let mut workers = Vec::with_capacity(WORKERS);
    for _ in 0..WORKERS {
        let (stop, pieces) = (Arc::clone(&stop), Arc::clone(&pieces));
        workers.push(of(worker).name("worker").go(move || {
            while !stop.load(SeqCst) {
                let begun = Instant::now();
                while begun.elapsed() < PIECE {
                    std::hint::spin_loop();
                }
                pieces.fetch_add(1, SeqCst);
                gmp::yield_now();
            }
        })?);
    }
    let (ask, asked) = chan::bounded::<chan::Sender<()>>(0);
    let answers =
        of(urgent).name("answers").go(move || asked.iter().filter(|reply| reply.send(()).is_ok()).count())?;
    let asks = of(urgent).name("asks").go(move || {
        let mut times = Vec::with_capacity(requests);
        for _ in 0..requests {
            let (reply, answer) = chan::bounded(1);
            // The workers go on meanwhile.
            gmp::time::sleep(Duration::from_micros(100));
            let begun = Instant::now();
            if ask.send(reply).is_err() || answer.recv().is_err() {
                break;
            }
            times.push(begun.elapsed());
        }
        times
    })?;
    let mut times = asks.join().expect("it does not panic");
    let cleaned_early = cleans.is_finished();
    stop.store(true, SeqCst);
    for worker in workers {
        worker.join().expect("a worker does not panic");
    }
    cleans.join().expect("it does not panic");
    let answered = answers.join().expect("it does not panic");
    if answered != requests || times.len() != requests {
        return Err(std::io::Error::other(format!("{answered} of {requests} requests were answered")));
    }
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    Ok(Ran { p50: at(50), p99: at(99), pieces: pieces.load(SeqCst), cleaned_early })
}

fn both(requests: usize) -> std::io::Result<bool> {
    println!(
        "{requests} requests beside {WORKERS} goroutines that compute {PIECE:?} between two yields, procs 1"
    );
    let mut in_order = true;
    let classes = [Priority::High, Priority::Low, Priority::Background];
    for (title, classes) in [("all Normal", [Priority::Normal; 3]), ("High, Low, Background", classes)] {
        let Ran { p50, p99, pieces, cleaned_early } = run(requests, classes)?;
        let cleaner = if cleaned_early { "beside the others" } else { "when the others had ended" };
        println!(
            "{title}: a request took p50 {p50:.1?}, p99 {p99:.1?}; {pieces} pieces; the cleaner ran {cleaner}"
        );
        in_order &= !cleaned_early || classes[2] == Priority::Normal;
    }
    if !in_order {
        eprintln!("priorities: the Background goroutine ran although others were ready");
    }
    Ok(in_order)
}

fn parse() -> Result<usize, String> {
    let mut args = std::env::args().skip(1);
    let mut count = 1_000;
    while let Some(flag) = args.next() {
        if flag != "--requests" {
            return Err(format!("unknown argument {flag:?}; {USAGE}"));
        }
        let value = args.next().ok_or(USAGE)?;
        count = value
            .parse()
            .ok()
            .filter(|count| (1..=1_000_000).contains(count))
            .ok_or_else(|| format!("--requests: {value:?} is not a number from 1 to 1000000"))?;
    }
    Ok(count)
}

fn main() -> ExitCode {
    let count = match parse() {
        Ok(count) => count,
        Err(wrong) => {
            eprintln!("priorities: {wrong}");
            return ExitCode::from(2);
        }
    };
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let built = unsafe { gmp::Runtime::builder().procs(1).build() };
    match built.and_then(|runtime| runtime.run(|| both(count))) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(refused) => {
            eprintln!("priorities: {refused}");
            ExitCode::FAILURE
        }
    }
}
