//! `tools/gmp-gdb.py`: the stack of a parked goroutine in gdb.

use common::{child, until};
use gmp::sync::Event;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

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

/// A file call with this path takes until the lock is free.
struct Held(Arc<Mutex<()>>);

impl AsRef<Path> for Held {
    fn as_ref(&self) -> &Path {
        drop(self.0.lock());
        Path::new("/proc")
    }
}

/// One goroutine waits in a function of the user, and one of two that make a file call waits in line; then gdb gets control.
fn parked() {
    // SAFETY: nothing here is bound to a thread.
    let rt = unsafe { gmp::Runtime::builder().procs(2).max_file_calls(1).build() }.unwrap();
    let event = Arc::new(Event::new());
    let waits = Arc::clone(&event);
    let waiter =
        rt.run(move || gmp::Builder::new().name("patient").go(move || outer_of_the_user(&waits))).unwrap();
    let lock = Arc::new(Mutex::new(()));
    let held = lock.lock().unwrap();
    let call = || {
        let path = Held(Arc::clone(&lock));
        rt.run(|| gmp::Builder::new().name("reader").go(move || gmp::fs::exists(path))).unwrap()
    };
    let calls = [call(), call()];
    until(|| {
        let dump = rt.dump();
        dump.contains("'patient' [event, ") && dump.contains("'reader' [file call, in line, ")
    });
    // SAFETY: gdb stops the process there, and ends it.
    unsafe { libc::raise(libc::SIGTRAP) };
    drop(held);
    calls.into_iter().for_each(|call| assert!(call.join().unwrap().unwrap()));
    event.notify_one();
    waiter.join().unwrap();
}

/// Fails if a goroutine, its wait, or one of the functions under which it waits is not shown, or only once; or if a number
/// stands for a wait.
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
    // gdb would stop at the signals by which a dump asks threads.
    gdb.env("GMPDEBUG", "dumpsignal=0");
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
    assert_eq!(count("'reader' [waiting, file call, in line]\n"), 3, "{text}");
    assert_eq!((count("inner_of_the_user"), count("outer_of_the_user")), (2, 2), "{text}");
}
