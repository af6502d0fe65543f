//! A queue of jobs that plain threads use: priorities, retries, a limit of time for each try, and an abort by number.
//!
//! cargo run --release --example job_queue
//!
//! 100 jobs from a thread: 100 done
//! fails twice, 3 tries: Done
//! sleeps on, 2 tries of 5 ms: Late
//! behind two that wait, priorities 1, 5, 3; 3 is aborted: [5, 1] ran
//! the first of the two is aborted where it waits: Aborted
//!
//! The dispatcher takes a permit, which is a guard, before it chooses a job, and starts the job by `Builder::go_abortable`: an
//! abort by number finds the handle in a map. `time::timeout` ends a try; `watch` gives the outcome to all who ask, then or
//! later. The program checks its results: the status is 1 if one is wrong.

use gmp::chan::{self, watch};
use gmp::sync::{Condvar, Event, Mutex, OwnedSemaphorePermit, Semaphore};
use gmp::{AbortHandle, Builder, Handle, JoinError, Runtime, time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

const RUNNING_AT_A_TIME: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Done,
    Failed,
    Late,
    Panicked,
    Aborted,
}

struct Job {
    /// The highest goes first; among equal ones, the oldest.
    priority: i32,
    tries: u32,
    limit: Duration,
    work: Box<dyn Fn() -> Result<(), &'static str> + Send>,
}

fn job(work: impl Fn() -> Result<(), &'static str> + Send + 'static) -> Job {
    Job { priority: 0, tries: 1, limit: Duration::from_secs(60), work: Box::new(work) }
}

#[derive(Default)]
struct State {
    waiting: BTreeMap<(Reverse<i32>, usize), Job>,
    running: HashMap<usize, AbortHandle>,
    outcomes: Vec<watch::Sender<Option<Outcome>>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    more: Condvar,
}

impl Queue {
    /// Starts the dispatcher in the runtime of `handle`. The queue itself is used from any thread.
    fn start(handle: &Handle) -> io::Result<Arc<Queue>> {
        let queue = Arc::new(Queue::default());
        let dispatches = Arc::clone(&queue);
        // The end of the runtime ends the dispatcher where it waits.
        handle.go(move || dispatches.dispatch())?;
        Ok(queue)
    }

    fn submit(&self, job: Job) -> usize {
        let mut state = self.state.lock();
        let number = state.outcomes.len();
        state.outcomes.push(watch::Sender::new(None));
        state.waiting.insert((Reverse(job.priority), number), job);
        self.more.notify_one();
        number
    }

    fn wait(&self, number: usize) -> Option<Outcome> {
        let mut outcome = self.state.lock().outcomes.get(number)?.subscribe();
        *outcome.wait_for(|outcome| outcome.is_some()).ok()?
    }

    /// Ends a job where it waits, or takes it out of the queue. A job that computes goes on to its next wait.
    fn abort(&self, number: usize) {
        let mut state = self.state.lock();
        if let Some(running) = state.running.get(&number) {
            running.abort();
        } else if let Some(&key) = state.waiting.keys().find(|key| key.1 == number) {
            state.waiting.remove(&key);
            state.outcomes[number].send_replace(Some(Outcome::Aborted));
        }
    }

    fn dispatch(self: Arc<Self>) {
        let permits = Arc::new(Semaphore::new(RUNNING_AT_A_TIME));
        loop {
            // First, so that the job is chosen as late as possible.
            let permit = permits.acquire_owned(1).expect("nobody closes it");
            let mut state = self.state.lock();
            self.more.wait_while(&mut state, |state| state.waiting.is_empty());
            let ((_, number), job) = state.waiting.pop_first().expect("it was not empty");
            // Under the lock: an abort finds the job in one of the maps.
            if self.begin(&mut state, number, job, permit).is_err() {
                // There is no memory for a stack. The dispatcher goes on: there may be memory for the next job.
                if let Some(alone) = state.running.remove(&number) {
                    alone.abort();
                }
                state.outcomes[number].send_replace(Some(Outcome::Failed));
            }
        }
    }

    fn begin(
        self: &Arc<Self>,
        state: &mut State,
        number: usize,
        job: Job,
        permit: OwnedSemaphorePermit,
    ) -> io::Result<()> {
        // Not `gmp::go_abortable`, which panics if a goroutine is refused.
        let (runs, abort) = Builder::new().go_abortable(move || tries(&job))?;
        state.running.insert(number, abort);
        let queue = Arc::clone(self);
        let waits = Builder::new().go(move || {
            let _permit = permit;
            let aborted =
                |error: JoinError| if error.is_aborted() { Outcome::Aborted } else { Outcome::Panicked };
            let outcome = runs.join().unwrap_or_else(aborted);
            let mut state = queue.state.lock();
            state.running.remove(&number);
            state.outcomes[number].send_replace(Some(outcome));
        });
        waits.map(drop)
    }
}

fn tries(job: &Job) -> Outcome {
    let mut outcome = Outcome::Failed;
    for n in 0..job.tries {
        if n > 0 {
            time::sleep(Duration::from_millis(1 << n.min(10)));
        }
        outcome = match time::timeout(job.limit, &job.work) {
            Ok(Ok(())) => return Outcome::Done,
            Ok(Err(_why)) => Outcome::Failed,
            Err(_late) => Outcome::Late,
        };
    }
    outcome
}

fn all() -> io::Result<bool> {
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call (see `gmp::migration`).
    let runtime = unsafe { Runtime::builder().build()? };
    let queue = Queue::start(&runtime.handle())?;

    let numbers = Vec::from_iter((0..100).map(|_| queue.submit(job(|| Ok(())))));
    let done = numbers.into_iter().filter(|&number| queue.wait(number) == Some(Outcome::Done)).count();
    println!("100 jobs from a thread: {done} done");

    let tried = AtomicU32::new(0);
    let fails_twice = move || if tried.fetch_add(1, SeqCst) == 2 { Ok(()) } else { Err("not yet") };
    let retried = queue.wait(queue.submit(Job { tries: 3, ..job(fails_twice) })).unwrap_or(Outcome::Failed);
    println!("fails twice, 3 tries: {retried:?}");

    let sleeps = Job {
        tries: 2,
        limit: Duration::from_millis(5),
        ..job(|| {
            time::sleep(Duration::MAX);
            Ok(())
        })
    };
    let late = queue.wait(queue.submit(sleeps)).unwrap_or(Outcome::Failed);
    println!("sleeps on, 2 tries of 5 ms: {late:?}");

    let (begun, begins) = chan::unbounded();
    let two = [(); RUNNING_AT_A_TIME].map(|()| {
        let begun = begun.clone();
        queue.submit(job(move || {
            begun.send(()).map_err(|_| "nobody hears")?;
            Event::new().wait();
            Ok(())
        }))
    });
    two.iter().for_each(|_| begins.recv().expect("both begin"));
    let order = Arc::new(Mutex::new(Vec::new()));
    let three = [1, 5, 3].map(|priority| {
        let order = Arc::clone(&order);
        queue.submit(Job {
            priority,
            ..job(move || {
                order.lock().push(priority);
                Ok(())
            })
        })
    });
    queue.abort(three[2]);
    queue.abort(two[0]);
    let aborted = queue.wait(two[0]).unwrap_or(Outcome::Failed);
    let ended = three.map(|number| queue.wait(number));
    let order = order.lock();
    println!("behind two that wait, priorities 1, 5, 3; 3 is aborted: {order:?} ran");
    println!("the first of the two is aborted where it waits: {aborted:?}");
    Ok(done == 100
        && (retried, late, aborted) == (Outcome::Done, Outcome::Late, Outcome::Aborted)
        && ended == [Outcome::Done, Outcome::Done, Outcome::Aborted].map(Some)
        && *order == [5, 1])
}

fn main() -> ExitCode {
    match all() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("job_queue: that was to come out otherwise");
            ExitCode::FAILURE
        }
        Err(refused) => {
            eprintln!("job_queue: {refused}");
            ExitCode::FAILURE
        }
    }
}
