//! Runs mutants: the same model in a child process, with one line of the shipped code switched off.

use crate::model::Mutant;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A mutant whose model still runs after this much CPU time counts as not caught. The limit is on CPU time, since other
/// processes may use the machine meanwhile.
const CPU_LIMIT: Duration = Duration::from_secs(60);

/// Asserts that loom fails the model `test` of `module` for each mutant, and prints how it fails.
///
/// Fails if a mutant's child passes all executions, or does not finish in time: the model would not notice that the
/// line is missing.
pub fn assert_caught(module: &str, pairs: &[(Mutant, &str)]) {
    let module = module.split_once("::").expect("the crate's name stands before").1;
    let survivors: Vec<String> = pairs
        .iter()
        .filter_map(|&(mutant, test)| caught(mutant, &format!("{module}::{test}")).err())
        .collect();
    assert!(survivors.is_empty(), "not caught:\n{}", survivors.join("\n"));
}

/// Returns the CPU time that all threads of a process have used until now.
fn cpu_time(process: u32) -> Duration {
    // SAFETY: the call takes a number.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The third field begins behind the name, which can hold any characters; the two times are the 14th and the 15th field.
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    let ticks: f64 = fields.filter_map(|field| field.parse::<f64>().ok()).sum();
    Duration::from_secs_f64(ticks / ticks_per_second)
}

/// The most preemptions that a mutant needs. A model's own bound holds, too: a mutant that only a longer search would find does
/// not count as caught, since the everyday search has to fail when the line is deleted.
const MOST_PREEMPTIONS: u32 = 3;

/// Searches with one preemption more each time: most mutants fail with few, where the search is short.
fn caught(mutant: Mutant, test: &str) -> Result<(), String> {
    let start = Instant::now();
    for most in 0..=MOST_PREEMPTIONS {
        if let Some(text) = failure(mutant, test, most)? {
            let took = start.elapsed().as_secs_f64();
            let why = reason(&text)
                .ok_or_else(|| format!("{mutant:?}: {test} failed without saying why:\n{text}"))?;
            println!(
                "mutant {mutant:?}: caught by {test} in {took:.2} s, with at most {most} preemptions, {why}"
            );
            return Ok(());
        }
    }
    Err(format!("{mutant:?}: {test} passes without it"))
}

/// Returns what the model prints as it fails with at most `most` preemptions; `None` when it passes.
fn failure(mutant: Mutant, test: &str, most: u32) -> Result<Option<String>, String> {
    let mut child = Command::new(std::env::current_exe().expect("this test's own path"))
        .args(["--exact", test, "--nocapture"])
        .env("GMP_MUTANT", format!("{mutant:?}"))
        .env("GMP_LOOM_MOST", most.to_string())
        .env_remove("GMP_LOOM_FULL")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start a child process");
    let mut stderr = child.stderr.take().expect("the pipe that was asked for");
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _read = stderr.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait for the child") {
            break status;
        }
        if cpu_time(child.id()) > CPU_LIMIT {
            child.kill().expect("end the child");
            child.wait().expect("wait for the child");
            return Err(format!(
                "{mutant:?}: {test} with at most {most} preemptions was not through after {CPU_LIMIT:?} of CPU time"
            ));
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let text = reader.join().expect("read what the child said");
    Ok((!status.success()).then_some(text))
}

/// Returns the line of a failure that says what loom, or an assertion, has found.
fn reason(text: &str) -> Option<String> {
    const SIGNS: [&str; 4] = ["deadlock", "Causality violation", "assertion", "panicked at"];
    let sign = SIGNS.iter().find(|sign| text.contains(*sign))?;
    if *sign != "panicked at" {
        return Some((*sign).to_owned());
    }
    let mut lines = text.lines().skip_while(|line| !line.contains("panicked at"));
    lines.nth(1).map(|line| format!("\"{line}\""))
}
