//! A worker pool that gives up together: jobs over a channel, workers in an error group, a context that the first failure
//! ends.
//!
//! cargo run --release --example worker_pool
//!
//! 100 jobs, 4 workers: 100 done, sum 328350, in 26 ms
//! a job fails: "job 42 is damaged"; 43 jobs were done before, 0 workers are left
//! a deadline of 10 ms: context deadline exceeded; 36 jobs were done
//!
//! Each worker runs under the group's context (`Context::run`), so each of its waits, for a job or for the end of one, ends
//! when another worker has failed. The program checks its results: the status is 1 if one is wrong.

use gmp::chan::{self, Receiver};
use gmp::context::{Context, ContextError};
use gmp::sync::ErrGroup;
use gmp::time;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const JOBS: u64 = 100;
const WORKERS: usize = 4;

/// The workers' results.
#[derive(Default)]
struct Done {
    jobs: AtomicUsize,
    sum: AtomicU64,
    workers: AtomicUsize,
}

/// Counts a worker as long as it lives, however it ends.
struct Present(Arc<Done>);

impl Drop for Present {
    fn drop(&mut self) {
        self.0.workers.fetch_sub(1, SeqCst);
    }
}

/// One worker: a millisecond for each job.
fn work(jobs: &Receiver<u64>, done: &Done, damaged: Option<u64>) -> Result<(), String> {
    for job in jobs {
        time::sleep(Duration::from_millis(1));
        if damaged == Some(job) {
            return Err(format!("job {job} is damaged"));
        }
        done.sum.fetch_add(job * job, SeqCst);
        done.jobs.fetch_add(1, SeqCst);
    }
    Ok(())
}

/// Does all jobs, or as many as `context` and the damaged job allow.
fn pool(context: &Context, damaged: Option<u64>) -> (Result<(), String>, Arc<Done>) {
    let done = Arc::new(Done::default());
    let (group, context) = ErrGroup::with_context(context);
    let (out, jobs) = chan::bounded(0);
    for _ in 0..WORKERS {
        done.workers.fetch_add(1, SeqCst);
        let (present, jobs, context) = (Present(Arc::clone(&done)), jobs.clone(), context.clone());
        group.go(move || match context.run(|| work(&jobs, &present.0, damaged)) {
            Ok(result) => result,
            Err(interrupted) => Err(interrupted.to_string()),
        });
    }
    let handed_out = context.run(|| (0..JOBS).for_each(|job| out.send(job).expect("the workers are there")));
    // Dropping the sender ends the jobs. Not if the context is done: a worker that waits for a job must see that.
    let _sender = handed_out.is_err().then_some(out);
    (group.wait(), done)
}

fn all() -> Result<(), String> {
    let check = |what: bool, text: &str| if what { Ok(()) } else { Err(text.to_owned()) };
    let count = |done: &Done| done.jobs.load(SeqCst);

    let start = Instant::now();
    let (result, done) = pool(&Context::background(), None);
    let sum = done.sum.load(SeqCst);
    println!(
        "{JOBS} jobs, {WORKERS} workers: {} done, sum {sum}, in {} ms",
        count(&done),
        start.elapsed().as_millis()
    );
    check(
        result.is_ok() && count(&done) == JOBS as usize && sum == (0..JOBS).map(|job| job * job).sum(),
        "jobs are missing",
    )?;

    let (result, done) = pool(&Context::background(), Some(42));
    let left = done.workers.load(SeqCst);
    println!(
        "a job fails: {:?}; {} jobs were done before, {left} workers are left",
        result.clone().unwrap_err(),
        count(&done)
    );
    check(result == Err("job 42 is damaged".to_owned()) && left == 0, "the failure did not end the pool")?;
    // The other workers had one job in hand each, and go on until the failed one has reported its failure.
    check((42 - WORKERS..JOBS as usize).contains(&count(&done)), "the pool went on after the failure")?;

    let (context, _cancel) = Context::background().with_timeout(Duration::from_millis(10));
    let (result, done) = pool(&context, None);
    println!("a deadline of 10 ms: {}; {} jobs were done", result.clone().unwrap_err(), count(&done));
    check(result == Err(ContextError::DeadlineExceeded.to_string()), "the deadline did not end the pool")?;
    check(
        count(&done) < JOBS as usize && done.workers.load(SeqCst) == 0,
        "the pool went on after the deadline",
    )
}

fn main() -> ExitCode {
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call (see `gmp::migration`).
    match unsafe { gmp::run(all) } {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("worker_pool: {wrong}");
            ExitCode::FAILURE
        }
    }
}
