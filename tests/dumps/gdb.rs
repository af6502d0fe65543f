//! `tools/gmp-gdb.py`: the stack of a parked goroutine in gdb.

use common::child;
use gmp::sync::Event;
use std::process::Command;
use std::sync::Arc;

#[inline(never)]
fn outer_of_the_user(event: &Event) {
    inner_of_the_user(event);
    std::hint::black_box(());
}

#[inline(never)]
fn inner_of_the_user(event: &Event) {
    event.wait();
    std::hint::black_box(());
}

/// One goroutine waits in a function of the user; then gdb gets control.
fn parked() {
    // SAFETY: nothing here is bound to a thread.
    let rt = unsafe { gmp::Runtime::builder().procs(2).build() }.unwrap();
    let event = Arc::new(Event::new());
    let waits = Arc::clone(&event);
    let waiter =
        rt.run(move || gmp::Builder::new().name("patient").go(move || outer_of_the_user(&waits))).unwrap();
    while !rt.dump().contains("'patient' [event, ") {
        std::thread::yield_now();
    }
    // SAFETY: gdb stops the process there, and ends it.
    unsafe { libc::raise(libc::SIGTRAP) };
    event.notify_one();
    waiter.join().unwrap();
}

/// Fails if the goroutine, its wait, or one of the functions under which it waits is not shown, or only once.
#[test]
fn gdb_shows_the_stack_of_a_parked_goroutine() {
    if child::is_child() {
        return parked();
    }
    if Command::new("gdb").arg("--version").output().is_err() {
        return common::skipped("gdb is not there");
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tools/gmp-gdb.py");
    let mut gdb = Command::new("gdb");
    gdb.env(child::CHILD, "1").args(["-nx", "-batch", "-iex", "set debuginfod enabled off", "-x", script]);
    for command in ["run", "info goroutines", "goroutine all bt", "goroutine all bt", "kill"] {
        gdb.args(["-ex", command]);
    }
    gdb.arg("--args").arg(std::env::current_exe().unwrap());
    gdb.args([&child::full_name("gdb_shows_the_stack_of_a_parked_goroutine"), "--exact", "--nocapture"]);
    let output = gdb.output().unwrap();
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    if ["ptrace: ", "Could not trace the inferior"].iter().any(|refused| text.contains(refused)) {
        return common::skipped(format_args!("no process may be traced here\n{text}"));
    }
    let count = |what: &str| text.matches(what).count();
    assert_eq!(count("'patient' [waiting, event]\n"), 3, "{text}");
    assert_eq!((count("inner_of_the_user"), count("outer_of_the_user")), (2, 2), "{text}");
}
