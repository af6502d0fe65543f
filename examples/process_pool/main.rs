//! A pool of worker processes: jobs by lines from standard input, answers by lines to standard output, in the order of their
//! ends.
//!
//! printf 'factor 91\ndie 2\nhang\nupper hello\n' | cargo run --release --example process_pool -- --limit-ms 300
//!
//! 1: 91 = 7 * 13
//! 4: HELLO
//! 2: survived at try 2
//! 3: failed: killed after 300ms; 1 tries
//! 3 answered, 1 failed, 0 not begun; 5 workers were started, 2 were lost
//!
//! A worker is another process of this program (`worker.rs`), so a job that crashes, or uses too much of anything, harms no
//! other job. A goroutine has a worker, talks to it through its pipes, and replaces it if it is lost (`pool.rs`).
//!
//! How it ends: at the end of the input the pool finishes all jobs. SIGINT or SIGTERM ends the reading; the pool waits a while
//! for jobs that have begun, and reports each job that was read.

mod pool;
mod worker;

use gmp::Runtime;
use gmp::chan::{self, Sender};
use gmp::context::{self, Context};
use gmp::select;
use gmp::signal::{SIGINT, SIGTERM};
use gmp::sync::WaitGroup;
use pool::{Job, Limits, Pool};
use std::io::{self, BufRead, BufReader, Read};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

const HELP: &str = "\
Has worker processes do jobs: a line of standard input each. Ctrl-C ends it.

process_pool [--workers N] [--tries N] [--limit-ms MS] [--grace-ms MS]

  --workers N       processes at once; default 4
  --tries N         how often a job is begun whose worker is lost; default 3
  --limit-ms MS     for one try; then its worker is killed, and the job has failed; default 10000
  --grace-ms MS     for the jobs that have begun, when a signal ends the pool; default 600
  --help            this

Jobs: `factor NUMBER`, `upper TEXT`; and, to see what the pool does: `die TRY` (before try TRY its worker dies), `hang`.

Status: 0; 1 when the input can't be read; 2 for a wrong argument.
";

/// Bytes of a line, in and out.
pub const MOST_LINE: u64 = 64 << 10;

struct Options {
    help: bool,
    workers: usize,
    limits: Limits,
    grace: Duration,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let limits = Limits { tries: 3, time: Duration::from_secs(10) };
        let mut options = Options { help: false, workers: 4, limits, grace: Duration::from_millis(600) };
        while let Some(flag) = args.next() {
            let mut number = |most: u32| {
                let text = args.next().ok_or(format!("{flag}: a value is missing"))?;
                text.parse::<u32>()
                    .ok()
                    .filter(|number| (1..=most).contains(number))
                    .ok_or_else(|| format!("{flag}: {text:?} is not a number from 1 to {most}"))
            };
            match flag.as_str() {
                "--help" | "-h" => options.help = true,
                "--workers" => options.workers = number(1000)? as usize,
                "--tries" => options.limits.tries = number(1000)?,
                "--limit-ms" => options.limits.time = Duration::from_millis(number(3_600_000)?.into()),
                "--grace-ms" => options.grace = Duration::from_millis(number(3_600_000)?.into()),
                unknown => return Err(format!("unknown argument {unknown:?}")),
            }
        }
        Ok(options)
    }
}

/// Reads jobs until the end of the input, or until `stop` is done: then the wait for input ends with an error, and a job for
/// which no worker is free is reported as not begun.
fn read_jobs(pool: &Pool, jobs: &Sender<Job>) -> io::Result<()> {
    let stop = &pool.stop;
    let mut input = BufReader::new(gmp::io::stdin());
    for number in 1.. {
        let mut line = Vec::new();
        let read = stop.run(|| (&mut input).take(MOST_LINE).read_until(b'\n', &mut line));
        match read {
            Ok(Ok(0)) | Err(_) => return Ok(()),
            Ok(Err(_)) if stop.err().is_some() => return Ok(()),
            Ok(Err(broken)) => return Err(broken),
            Ok(Ok(_)) => {}
        }
        if line.len() as u64 == MOST_LINE && !line.ends_with(b"\n") {
            return Err(io::Error::other(format!("line {number} has more than {MOST_LINE} bytes")));
        }
        let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
        let job = Job { number, text };
        select! {
            send(jobs, job) -> sent => sent.expect("the workers' goroutines hear until the sender is dropped"),
            recv(stop.done()) -> _ => pool.not_begun(&job),
        }
    }
    Ok(())
}

fn serve(options: &Options) -> io::Result<()> {
    let (cut, cut_off) = Context::background().with_cancel();
    let (stop, _cancel) = context::with_signals(&cut, &[SIGINT, SIGTERM])?;
    let pool = Arc::new(Pool::new(options.limits, stop, cut)?);
    // Without a buffer: a line is read when a worker is free for it.
    let (jobs, queue) = chan::bounded(0);
    let workers = WaitGroup::new();
    for _ in 0..options.workers {
        let (pool, queue) = (Arc::clone(&pool), queue.clone());
        workers.go(move || pool.work(&queue));
    }
    let read = read_jobs(&pool, &jobs);
    drop(jobs);

    // At the end of the input this waits for all jobs, unless a signal comes even now.
    let _stopped = pool.stop.run(|| workers.wait());
    let (grace, _cancel) = Context::background().with_timeout(options.grace);
    let _too_late = grace.run(|| workers.wait());
    cut_off.cancel_with("the pool stops");
    workers.wait();
    println!("{}", pool.totals());
    read
}

fn main() -> ExitCode {
    let args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    let args = Vec::from_iter(args);
    if args == [pool::WORKER] {
        return worker::main();
    }
    let options = match Options::parse(args.into_iter()) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("process_pool: {wrong}; --help tells which there are");
            return ExitCode::from(2);
        }
    };
    if options.help {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    // SAFETY: the goroutines of these files keep nothing of a thread across a call that parks.
    let runtime = unsafe { Runtime::builder().build() };
    match runtime.and_then(|runtime| runtime.run(move || serve(&options))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("process_pool: {wrong}");
            ExitCode::FAILURE
        }
    }
}
