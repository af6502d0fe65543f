//! A function around a switch that makes a forbidden call ends the process, at once, with a text that says so; allowed calls
//! work.

use common::child;
use common::{runtime, until};
use gmp::sync::{Event, Mutex};
use gmp::{chan, go, time, yield_now};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

const CASE: &str = "GMP_TEST_CASE";
const MS: Duration = Duration::from_millis(1);

/// The refused calls, by name; each runs in a function for suspend, and in one for resume.
const PARKS: [(&str, fn()); 9] = [
    ("receives", || assert!(chan::never::<()>().recv().is_err())),
    ("sleeps", || time::sleep(MS)),
    ("yields", yield_now),
    ("waits for an event", || Event::new().wait()),
    ("joins", || go(yield_now).join().unwrap()),
    ("waits below a catch", || drop(catch_unwind(AssertUnwindSafe(|| Event::new().wait())))),
    ("locks what is held", || {
        let mutex = Mutex::new(0);
        let _held = mutex.lock();
        *mutex.lock() += 1;
    }),
    // The call would not have to wait, but it takes the place in which the wait that has begun keeps its hook.
    ("sends a datagram", || {
        let socket = gmp::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
    }),
    ("binds itself to the thread", gmp::lock_os_thread),
];

fn stderr_of(test: &str, case: &str) -> String {
    let output = child::run(test, &[(CASE, case)]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{case}: {}\n{stderr}", output.status);
    stderr
}

fn register(resumes: bool, f: fn()) {
    if resumes { gmp::hooks::register(|| (), f) } else { gmp::hooks::register(f, || ()) }
}

/// Fails by a hang, or a broken runtime, if a function may park; or if the text does not say what to do.
#[test]
fn what_parks_in_a_function_ends_the_process_with_a_text_that_says_what_to_do() {
    const TEST: &str = "what_parks_in_a_function_ends_the_process_with_a_text_that_says_what_to_do";
    if child::is_child() {
        let case = std::env::var(CASE).unwrap();
        let (when, what) = case.split_once(' ').unwrap();
        let &(_, parks) = PARKS.iter().find(|(name, _)| *name == what).unwrap();
        register(when == "resume", parks);
        runtime(2).run(|| {
            time::sleep(MS);
            go(|| time::sleep(MS)).join().unwrap();
        });
        return;
    }
    for (name, _) in PARKS {
        for when in ["suspend", "resume"] {
            let stderr = stderr_of(TEST, &format!("{when} {name}"));
            let call = if name.starts_with("binds") { "lock_os_thread" } else { "what may park" };
            let text =
                format!("fatal error: a function of gmp::hooks has called {call}, in the middle of a switch");
            assert!(
                stderr.contains(&text) && stderr.contains("have it use try_lock"),
                "{when} {name}: {stderr}"
            );
        }
    }
}

/// A payload with which a function panics.
struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("in the drop of the payload");
    }
}

/// Fails if a panic is lost, or goes on through the middle of a wait: out of the function, or out of the drop of the payload.
#[test]
fn a_panic_in_a_function_ends_the_process_with_a_text_that_names_it() {
    const TEST: &str = "a_panic_in_a_function_ends_the_process_with_a_text_that_names_it";
    const CASES: [(&str, fn()); 4] = [
        ("panics", || panic!("on purpose")),
        ("panics in a drop of what it panics with", || std::panic::panic_any(PanicsInDrop)),
        ("exits", || gmp::goexit()),
        ("unwinds", || std::panic::resume_unwind(Box::new(1))),
    ];
    if child::is_child() {
        let case = std::env::var(CASE).unwrap();
        let (when, what) = case.split_once(' ').unwrap();
        let &(_, f) = CASES.iter().find(|(name, _)| *name == what).unwrap();
        register(when == "resume", f);
        return runtime(2).run(|| time::sleep(MS));
    }
    for (name, _) in CASES {
        for when in ["suspend", "resume"] {
            let stderr = stderr_of(TEST, &format!("{when} {name}"));
            let text = format!("fatal error: a function of gmp::hooks for {when} has panicked or unwound");
            assert!(stderr.contains(&text), "{when} {name}: {stderr}");
            assert!(name != "panics" || stderr.contains("on purpose"), "{when} {name}: {stderr}");
        }
    }
}

/// In a function a branch stays with its forker, and the end of the runtime does not unwind the forker there. Fails when the
/// process ends with a text.
#[test]
fn a_fork_scope_in_a_function_is_no_place_to_unwind() {
    const TEST: &str = "a_fork_scope_in_a_function_is_no_place_to_unwind";
    if !child::is_child() {
        child::passes(TEST, &[]);
        return;
    }
    static RAN: AtomicU32 = AtomicU32::new(0);
    register(true, || {
        gmp::fork_scope(|s| {
            s.fork(|| {
                RAN.fetch_add(1, SeqCst);
            });
        });
    });
    let rt = runtime(2);
    drop(rt.go(|| Event::new().wait()));
    until(|| rt.dump().contains("[event"));
    let before = RAN.load(SeqCst);
    let report = rt.shutdown(Duration::from_secs(20));
    assert!(report.is_clean(), "{report:?}");
    assert!(RAN.load(SeqCst) > before);
}

/// Fails if a call that never parks is refused in a function, has no effect, or loses the P.
#[test]
fn what_never_parks_may_be_called() {
    const TEST: &str = "what_never_parks_may_be_called";
    if !child::is_child() {
        child::passes(TEST, &[("GMPDEBUG", "migrate=1")]);
        child::passes(TEST, &[]);
        return;
    }
    static STARTED: AtomicU32 = AtomicU32::new(0);
    static ENDED: AtomicU32 = AtomicU32::new(0);
    let (sender, receiver) = chan::unbounded();
    let (mutex, event) = (Arc::new(Mutex::new(0)), Arc::new(Event::new()));
    let calls = {
        let (mutex, event) = (Arc::clone(&mutex), Arc::clone(&event));
        move || {
            if gmp::current().is_some_and(|g| g.name() == Some("started there")) {
                return;
            }
            STARTED.fetch_add(1, SeqCst);
            let started = gmp::Builder::new().name("started there").go(|| {
                yield_now();
                ENDED.fetch_add(1, SeqCst);
            });
            drop(started);
            sender.try_send(()).unwrap();
            if let Some(mut held) = mutex.try_lock() {
                *held += 1;
            }
            event.notify_one();
            gmp::blocking(|| assert!(gmp::num_goroutines() > 0));
            gmp::with_stack(32 << 10, || assert!(gmp::procs() > 0));
        }
    };
    gmp::hooks::register(calls.clone(), calls);
    for procs in common::PROCS {
        let rt = runtime(procs);
        rt.run(|| {
            (0..10).map(|_| go(|| (0..10).for_each(|_| yield_now()))).for_each(|one| one.join().unwrap())
        });
        common::until(|| ENDED.load(SeqCst) == STARTED.load(SeqCst));
    }
    let started = STARTED.load(SeqCst);
    assert!(started >= 600, "{started}");
    assert_eq!(receiver.try_iter().count(), started as usize);
    assert!(*mutex.lock() > 0);
    event.wait();
}
