//! The pool of processes as the world sees it: lines in, lines out, signals to it and to its workers.

use crate::program::Program;
use common::example::{LIMIT, example, refusal};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::process::{ChildStdin, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PROCS: [&str; 2] = ["1", "4"];

/// Starts the pool, and returns it with its input.
fn start(procs: &str, args: &[&str]) -> (Program, ChildStdin) {
    let mut command = example("process_pool");
    let mut pool = Program::start(command.args(args).env("GMPMAXPROCS", procs).stdin(Stdio::piped()));
    let input = pool.child.0.stdin.take().expect("piped");
    (pool, input)
}

/// Gives the pool the jobs and the end of the input; returns the answers by their numbers, and the totals.
#[track_caller]
fn run(procs: &str, args: &[&str], jobs: &str) -> (BTreeMap<u64, String>, String) {
    let (pool, mut input) = start(procs, args);
    input.write_all(jobs.as_bytes()).expect("it reads");
    drop(input);
    told(pool.end())
}

#[track_caller]
fn told(mut lines: Vec<String>) -> (BTreeMap<u64, String>, String) {
    let totals = lines.pop().expect("its totals");
    let answers = lines.iter().map(|line| {
        let (number, answer) = line.split_once(": ").unwrap_or_else(|| panic!("{line:?}"));
        (number.parse().expect("a number"), answer.to_owned())
    });
    let answers = BTreeMap::from_iter(answers);
    assert_eq!(answers.len(), lines.len(), "each job is told of once: {lines:?}");
    (answers, totals)
}

/// Returns the processes that the pool has started, without those that have ended.
fn workers(pool: &Program) -> Vec<libc::pid_t> {
    let parent = pool.id().to_string();
    let all = fs::read_dir("/proc")
        .expect("procfs")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<libc::pid_t>().ok());
    all.filter(|pid| {
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
        // The fields are the name in parentheses, the state and the parent.
        let mut fields = stat.rsplit_once(") ").expect("a name in parentheses").1.split(' ');
        fields.next() != Some("Z") && fields.next() == Some(&parent)
    })
    .collect()
}

/// Polls until `done` returns `true`: there is no event to wait for.
#[track_caller]
fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Fails when an answer is lost or is another job's, or when there are more workers than were asked for.
#[test]
fn each_job_has_its_answer() {
    for procs in PROCS {
        let jobs = Vec::from_iter((0..500).map(|n| format!("upper job {n}\n")));
        let (answers, totals) = run(procs, &["--workers", "3"], &jobs.concat());
        for (n, answer) in (0..500).zip(1..) {
            assert_eq!(answers[&answer], format!("JOB {n}"));
        }
        let (done, workers) = totals.split_once("; ").expect("two parts");
        assert_eq!(done, "500 answered, 0 failed, 0 not begun");
        assert!(
            ["1", "2", "3"]
                .map(|n| format!("{n} workers were started, 0 were lost"))
                .contains(&workers.to_owned())
        );

        let (answers, _) = run(procs, &[], "factor 91\r\nfactor 18446744073709551615\nfactor x\n\nwhat 1");
        let expected = [
            "91 = 7 * 13",
            "18446744073709551615 = 3 * 5 * 17 * 257 * 641 * 65537 * 6700417",
            "\"x\" is no number",
        ];
        let expected = expected.into_iter().chain(["no job is called \"\"", "no job is called \"what\""]);
        assert_eq!(Vec::from_iter(answers.into_values()), Vec::from_iter(expected));
    }
}

/// Fails when a job is lost with its worker, when a job is repeated for ever, or when another job suffers.
#[test]
fn a_worker_that_dies_is_replaced_and_its_job_repeated() {
    for procs in PROCS {
        let jobs = "die 2\nupper a\ndie 3\nupper b\ndie 9\nupper c\n";
        let (answers, totals) = run(procs, &["--workers", "2", "--tries", "3"], jobs);
        let died = &answers[&5];
        assert!(died.starts_with("failed: the worker died by signal: 6 (SIGABRT)"), "{died}");
        assert!(died.ends_with("; 3 tries"), "{died}");
        assert_eq!(
            [1, 2, 3, 4, 6].map(|n| answers[&n].as_str()),
            ["survived at try 2", "A", "survived at try 3", "B", "C"]
        );
        assert!(totals.starts_with("5 answered, 1 failed, 0 not begun; "), "{totals}");
        assert!(totals.ends_with(", 6 were lost"), "{totals}");
    }
}

/// Fails by a hang, or by a worker that goes on.
#[test]
fn a_job_that_takes_too_long_is_told_so() {
    for procs in PROCS {
        let (answers, totals) = run(procs, &["--workers", "1", "--limit-ms", "1000"], "hang\nupper a\n");
        assert_eq!(answers[&1], "failed: killed after 1s; 1 tries");
        // A job's limit holds for a slow start of its worker, too.
        assert_eq!(
            (answers[&2].as_str(), totals.as_str()),
            ("A", "1 answered, 1 failed, 0 not begun; 2 workers were started, 1 were lost")
        );
    }
}

/// Fails when a job is lost with its worker, which another process has killed; or by a zombie.
#[test]
fn a_worker_that_is_killed_from_outside_is_replaced() {
    for procs in PROCS {
        let (pool, mut input) = start(procs, &["--workers", "1", "--tries", "2", "--grace-ms", "1"]);
        for job in ["upper a\n", "upper b\n"] {
            input.write_all(job.as_bytes()).expect("it reads");
            assert!([": A", ": B"].contains(&&pool.line()[1..]));
            let [worker] = workers(&pool)[..] else { panic!("one worker") };
            // SAFETY: the pool's child, which it has not reaped.
            assert_eq!(unsafe { libc::kill(worker, libc::SIGKILL) }, 0);
        }
        // The pool repeats a job if it learns from the pipe that the worker is dead.
        input.write_all(b"upper c\n").expect("it reads");
        assert_eq!(pool.line(), "3: C");
        drop(input);
        let (_, totals) = told(pool.end());
        assert_eq!(totals, "3 answered, 0 failed, 0 not begun; 3 workers were started, 2 were lost");
    }
}

/// Fails when a job that was read is not reported, when a worker is left, or when there is no end.
#[test]
fn a_signal_ends_the_pool_and_every_job_is_told_of() {
    for (procs, signal) in PROCS.into_iter().flat_map(|procs| [(procs, libc::SIGTERM), (procs, libc::SIGINT)])
    {
        let (pool, mut input) = start(procs, &["--workers", "2", "--grace-ms", "200"]);
        input.write_all(b"hang\nhang\nupper behind them\n").expect("it reads");
        eventually("both workers are there", || workers(&pool).len() == 2);
        let before = workers(&pool);
        pool.signal(signal);
        // The input stays open: the signal alone ends the reading.
        let (answers, totals) = told(pool.end());
        assert_eq!(
            answers.len() as u64,
            totals.split([' ', ';']).filter_map(|word| word.parse::<u64>().ok()).take(3).sum()
        );
        for answer in answers.values() {
            let told = ["failed: given up, the pool stops; 1 tries", "not begun, the pool stops"];
            assert!(told.contains(&answer.as_str()), "{answers:?}");
        }
        assert!(answers.len() >= 2, "{answers:?}");
        drop(input);
        let lives = |pid: &libc::pid_t| fs::metadata(format!("/proc/{pid}")).is_ok();
        eventually("the workers are gone", || !before.iter().any(lives));
    }
}

/// Fails when the pool does not wait for a job that has begun.
#[test]
fn a_job_that_has_begun_is_ended_before_the_pool() {
    for procs in PROCS {
        let (pool, mut input) =
            start(procs, &["--workers", "1", "--grace-ms", "60000", "--limit-ms", "60000"]);
        // Trial division by a hundred million numbers.
        input.write_all(b"factor 10000000000000061\n").expect("it reads");
        eventually("the worker is there", || workers(&pool).len() == 1);
        // The pool has taken the job when it starts a worker for it.
        pool.signal(libc::SIGTERM);
        let (answers, _) = told(pool.end());
        assert_eq!(answers[&1], "10000000000000061 = 10000000000000061");
    }
}

#[test]
fn what_the_pool_cannot_do_is_one_line_and_a_status() {
    for (args, word) in
        [(&["--workers", "0"][..], "1000"), (&["--tries"], "--tries"), (&["--loud"], "--loud")]
    {
        let line = refusal("process_pool", args, 2);
        assert!(line.contains(word), "{line}");
    }
}
