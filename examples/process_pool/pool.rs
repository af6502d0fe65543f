//! The pool: a goroutine for each worker process, and the handling of jobs whose worker is lost.

use super::MOST_LINE;
use gmp::chan::Receiver;
use gmp::context::Context;
use gmp::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The argument that makes this program a worker.
pub const WORKER: &str = "--worker";
/// How long a worker may take to end by itself, once its input has ended.
const FAREWELL: Duration = Duration::from_millis(200);

pub struct Job {
    pub number: u64,
    pub text: String,
}

#[derive(Clone, Copy)]
pub struct Limits {
    pub tries: u32,
    pub time: Duration,
}

pub struct Pool {
    program: PathBuf,
    limits: Limits,
    /// When this is done, no more jobs begin.
    pub stop: Context,
    /// When this is done, jobs that have begun are given up.
    cut: Context,
    totals: Totals,
}

#[derive(Default)]
pub struct Totals {
    answered: AtomicU64,
    failed: AtomicU64,
    not_begun: AtomicU64,
    started: AtomicU64,
    lost: AtomicU64,
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [answered, failed, not_begun, started, lost] =
            [&self.answered, &self.failed, &self.not_begun, &self.started, &self.lost]
                .map(|count| count.load(Relaxed));
        write!(f, "{answered} answered, {failed} failed, {not_begun} not begun; ")?;
        write!(f, "{started} workers were started, {lost} were lost")
    }
}

/// Why a job has no answer.
enum Lost {
    /// No worker could be started.
    NoWorker(io::Error),
    /// The worker has ended, or has closed its pipes.
    Died(ExitStatus),
    /// The worker was killed.
    TooSlow(Duration),
    /// The answer was longer than a line may be.
    TooMuch,
    /// The pool stops.
    GivenUp,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lost::NoWorker(refused) => write!(f, "no worker can be started: {refused}"),
            Lost::Died(status) => write!(f, "the worker died by {status}"),
            Lost::TooSlow(limit) => write!(f, "killed after {limit:?}"),
            Lost::TooMuch => write!(f, "an answer of more than {MOST_LINE} bytes"),
            Lost::GivenUp => write!(f, "given up, the pool stops"),
        }
    }
}

impl Pool {
    pub fn new(limits: Limits, stop: Context, cut: Context) -> io::Result<Self> {
        Ok(Pool { program: std::env::current_exe()?, limits, stop, cut, totals: Totals::default() })
    }

    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Does jobs with one worker at a time. Runs in a goroutine of its own.
    pub fn work(&self, jobs: &Receiver<Job>) {
        let mut worker = None;
        for job in jobs {
            let mut tries = 0;
            let outcome = loop {
                if self.stop.err().is_some() {
                    break None;
                }
                tries += 1;
                match self.attempt(&mut worker, tries, &job) {
                    // These may go well with another worker. A job that was too slow once would be so again.
                    Err(Lost::Died(_) | Lost::NoWorker(_)) if tries < self.limits.tries => {}
                    outcome => break Some(outcome),
                }
            };
            match outcome {
                Some(Ok(answer)) => {
                    self.totals.answered.fetch_add(1, Relaxed);
                    println!("{}: {answer}", job.number);
                }
                Some(Err(lost)) => self.failed(&job, &lost, tries),
                None if tries > 0 => self.failed(&job, &Lost::GivenUp, tries),
                None => self.not_begun(&job),
            }
        }
        if let Some(worker) = worker {
            worker.dismiss();
        }
    }

    fn failed(&self, job: &Job, lost: &Lost, tries: u32) {
        self.totals.failed.fetch_add(1, Relaxed);
        println!("{}: failed: {lost}; {tries} tries", job.number);
    }

    pub fn not_begun(&self, job: &Job) {
        self.totals.not_begun.fetch_add(1, Relaxed);
        println!("{}: not begun, the pool stops", job.number);
    }

    /// Makes one try. `worker` is empty afterwards if the worker was lost.
    fn attempt(&self, worker: &mut Option<Worker>, attempt: u32, job: &Job) -> Result<String, Lost> {
        let mut one = match worker.take() {
            Some(one) => one,
            None => {
                let one = Worker::start(&self.program).map_err(Lost::NoWorker)?;
                self.totals.started.fetch_add(1, Relaxed);
                one
            }
        };
        let line = format!("{attempt} {}\n", job.text);
        let asked = self.cut.run(|| one.ask(&line, self.limits.time));
        match asked {
            Ok(Ok(answer)) => {
                *worker = Some(one);
                Ok(answer)
            }
            Ok(Err(error)) => {
                self.totals.lost.fetch_add(1, Relaxed);
                Err(match error.kind() {
                    _ if self.cut.err().is_some() => Lost::GivenUp,
                    ErrorKind::TimedOut => Lost::TooSlow(self.limits.time),
                    ErrorKind::InvalidData => Lost::TooMuch,
                    _ => one.status().map_or_else(Lost::NoWorker, Lost::Died),
                })
            }
            Err(_done) => {
                self.totals.lost.fetch_add(1, Relaxed);
                Err(Lost::GivenUp)
            }
        }
    }
}

/// A worker process. The drop kills and reaps it.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(program: &PathBuf) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.arg(WORKER).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        // A terminal's Ctrl-C is for the pool alone: workers may finish the jobs that they have begun.
        let mut child = command.process_group(0).spawn()?;
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Ok(Worker { child, input, output })
    }

    /// Blocks the goroutine until the worker has answered. After an error the worker can't be used.
    fn ask(&mut self, line: &str, limit: Duration) -> io::Result<String> {
        let until = Some(Instant::now() + limit);
        self.input.set_write_deadline(until)?;
        self.output.get_ref().set_read_deadline(until)?;
        self.input.write_all(line.as_bytes())?;
        let mut answer = Vec::new();
        (&mut self.output).take(MOST_LINE).read_until(b'\n', &mut answer)?;
        match answer.pop() {
            Some(b'\n') => String::from_utf8(answer).map_err(|_| ErrorKind::InvalidData.into()),
            Some(_) if answer.len() as u64 + 1 == MOST_LINE => Err(ErrorKind::InvalidData.into()),
            _ => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Returns how the worker has ended, after its pipes have. A worker that has closed them and lives on is killed.
    fn status(&mut self) -> io::Result<ExitStatus> {
        if let Ok(Some(status)) = self.child.wait_timeout(FAREWELL) {
            return Ok(status);
        }
        self.child.kill()?;
        self.child.wait()
    }

    /// Ends the worker's input, upon which the worker ends.
    fn dismiss(self) {
        let Worker { mut child, input, output } = self;
        drop(input);
        // The drop kills a worker that goes on.
        let _ended = child.wait_timeout(FAREWELL);
        drop(output);
    }
}
