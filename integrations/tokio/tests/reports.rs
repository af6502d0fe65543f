//! When a deadlock is reported by default, beside a reactor and after it. This program has no test harness, because the
//! harness' threads might do anything, as those of a reactor may: beside them gmp reports no deadlock.

use gmp::chan::bounded;
use gmp::{Runtime, RuntimeBuilder};
use gmp_tokio::Reactor;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// The environment of a child names its case.
const CASE: &str = "GMP_TOKIO_REPORTS";
/// Longer than the runtime looks for a deadlock.
const LONG: Duration = Duration::from_millis(1300);
const MINUTE: Duration = Duration::from_secs(60);

/// A name, the body of a process, and whether a report ends that process.
type Case = (&'static str, fn(), bool);

const CASES: [Case; 4] = [
    ("without_a_reactor", without_a_reactor, true),
    ("after_a_reactor", after_a_reactor, true),
    ("beside_a_reactor", beside_a_reactor, false),
    ("beside_that_of_another_runtime", beside_that_of_another_runtime, false),
];

fn build(builder: RuntimeBuilder) -> Runtime {
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    unsafe { builder.procs(2).build() }.expect("a runtime starts")
}

/// Fails if this program would not be reported anyway.
fn without_a_reactor() {
    build(Runtime::builder()).run(|| {
        let (_sender, receiver) = bounded::<()>(0);
        receiver.recv().unwrap();
    });
}

/// Fails if reports stay off after the end of a reactor.
fn after_a_reactor() {
    let reactor = Reactor::start().unwrap();
    build(reactor.install(Runtime::builder())).run(|| gmp_tokio::run(sleep(Duration::from_millis(1))));
    assert!(reactor.end(MINUTE));
    without_a_reactor();
}

/// Fails if a goroutine that waits for a task, by a channel, is reported as waiting for ever.
fn beside_a_reactor() {
    build(gmp_tokio::install(Runtime::builder()).unwrap()).run(|| {
        let (sender, receiver) = bounded(0);
        tokio::spawn(async move {
            sleep(LONG).await;
            sender.try_send(4).unwrap();
        });
        assert_eq!(receiver.recv(), Ok(4));
    });
}

/// As above, in a runtime that does not know of the reactor.
fn beside_that_of_another_runtime() {
    let reactor = Reactor::start().unwrap();
    let (sender, receiver) = bounded(0);
    reactor.handle().spawn(async move {
        sleep(LONG).await;
        sender.try_send(4).unwrap();
    });
    assert_eq!(build(Runtime::builder()).run(move || receiver.recv()), Ok(4));
}

/// Waits for the end of a child, and kills a child that hangs.
fn ended(mut child: Child) -> (bool, String) {
    let start = Instant::now();
    // Read all the time: a child that finds the pipe full would wait.
    let mut stderr = child.stderr.take().expect("a pipe");
    let said = thread::spawn(move || {
        let mut said = Vec::new();
        stderr.read_to_end(&mut said).map(|_| said)
    });
    while child.try_wait().expect("it is our child").is_none() {
        if start.elapsed() > MINUTE {
            child.kill().expect("it is our child");
        }
        thread::sleep(Duration::from_millis(10));
    }
    let status = child.wait().expect("it is our child");
    let said = said.join().expect("no panic").expect("it is read");
    (status.success(), String::from_utf8_lossy(&said).into_owned())
}

fn main() {
    if let Ok(name) = std::env::var(CASE) {
        let (_, does, _) = CASES.into_iter().find(|case| case.0 == name).expect("a case");
        return does();
    }
    for (name, _, is_reported) in CASES {
        let mut command = Command::new(std::env::current_exe().expect("it has a path"));
        command.env(CASE, name).env_remove("GMPDEBUG").stdin(Stdio::null()).stderr(Stdio::piped());
        let (succeeds, stderr) = ended(command.spawn().expect("it starts"));
        let told = stderr.contains("all goroutines are asleep");
        assert_eq!((succeeds, told), (!is_reported, is_reported), "{name}: {stderr}");
        println!("test {name} ... ok");
    }
}
