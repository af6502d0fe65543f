//! Runs mutants: the same model in a child process, with one line of the shipped code switched off.

use gmp::model::Mutant;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A mutated model that is still running after so much CPU time has not been caught. Others may use the machine meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asserts that loom fails the model `test` of this file for each mutant, and prints how.
///
/// Fails if a mutant's child passes all executions, or is not through in time: the model would not notice that
/// line missing.
pub fn assert_caught(pairs: &[(Mutant, &str)]) {
    let survivors: Vec<String> =
        pairs.iter().filter_map(|&(mutant, test)| caught(mutant, test).err()).collect();
    assert!(survivors.is_empty(), "not caught:\n{}", survivors.join("\n"));
}

/// What all threads of a process have used until now.
fn cpu_time(process: u32) -> Duration {
    // SAFETY: it takes a number.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything: from the third field on, and these are the 14th and 15th.
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    let ticks: f64 = fields.filter_map(|field| field.parse::<f64>().ok()).sum();
    Duration::from_secs_f64(ticks / ticks_per_second)
}

fn caught(mutant: Mutant, test: &str) -> Result<(), String> {
    let start = Instant::now();
    let mut child = Command::new(std::env::current_exe().expect("this test's own path"))
        .args(["--exact", test, "--nocapture"])
        .env("GMP_MUTANT", format!("{mutant:?}"))
        // Three preemptions: some need them, and the others fail as soon.
        .env("GMP_LOOM_FULL", "1")
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
            break Some(status);
        }
        if cpu_time(child.id()) > PATIENCE {
            child.kill().expect("end the child");
            child.wait().expect("wait for the child");
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let text = reader.join().expect("read what the child said");
    let took = start.elapsed().as_secs_f64();
    match status {
        None => {
            Err(format!("{mutant:?}: {test} was not through after {PATIENCE:?} of CPU time, {took:.0} s"))
        }
        Some(status) if status.success() => Err(format!("{mutant:?}: {test} passes without it")),
        Some(_) => match reason(&text) {
            Some(why) => {
                println!("mutant {mutant:?}: caught by {test} in {took:.2} s, {why}");
                Ok(())
            }
            None => Err(format!("{mutant:?}: {test} failed without saying why:\n{text}")),
        },
    }
}

/// The line of a failure that says what loom, or an assertion, has found.
fn reason(text: &str) -> Option<String> {
    const SIGNS: [&str; 4] = ["deadlock", "Causality violation", "assertion", "panicked at"];
    let sign = SIGNS.iter().find(|sign| text.contains(*sign))?;
    if *sign != "panicked at" {
        return Some((*sign).to_owned());
    }
    let mut lines = text.lines().skip_while(|line| !line.contains("panicked at"));
    lines.nth(1).map(|line| format!("\"{line}\""))
}
