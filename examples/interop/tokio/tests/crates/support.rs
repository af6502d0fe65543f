//! Processes for the cases, and shared code.

use gmp::Runtime;
use harness::{LIMIT, run};
use std::process::Command;
use std::sync::Arc;

/// The environment variable with the address of the peer that the parent has started. It is set in the child.
const PEER: &str = "GMP_INTEROP_PEER";

/// Returns the address of the parent's peer if this is the child, in which the test does its work.
pub fn peer_of_child() -> Option<String> {
    std::env::var(PEER).ok()
}

/// Runs `f` as the first goroutine of a runtime with a reactor, in a process for each number of Ps, and gives it the address of
/// the peer.
#[track_caller]
pub fn everywhere<F: FnOnce(String) + Send>(peer: &str, f: F) {
    if let Some(peer) = peer_of_child() {
        let builder = gmp_tokio::install(Runtime::builder()).expect("a reactor starts");
        // SAFETY: no goroutine keeps a value of its thread across a park, neither here nor, as far as we have looked, in these
        // crates: docs/async.md.
        let rt = unsafe { builder.build() }.expect("a runtime starts");
        rt.run(|| f(peer));
        assert!(rt.shutdown(LIMIT).is_clean());
        return;
    }
    let path = std::any::type_name::<F>();
    let test = path.split_once("::").and_then(|(_binary, name)| name.strip_suffix("::{{closure}}"));
    for procs in [1, 2, 4] {
        let mut command = Command::new(std::env::current_exe().expect("the test binary has a path"));
        command.args([test.expect("a closure of the test's own"), "--exact", "--nocapture"]);
        command.env(PEER, peer).env("GMPDEBUG", "migrate=1").env("GMPMAXPROCS", procs.to_string());
        let said = run(&mut command).good();
        assert!(said.contains("1 passed"), "with {procs} Ps: {said}");
    }
}

/// Runs `f` in `count` goroutines at once.
pub fn many<T: Send + 'static>(count: usize, f: impl Fn(usize) -> T + Send + Sync + 'static) -> Vec<T> {
    let f = Arc::new(f);
    let all: Vec<_> = (0..count)
        .map(|n| {
            let f = Arc::clone(&f);
            gmp::go(move || f(n))
        })
        .collect();
    all.into_iter().map(|one| one.join().expect("it does not panic")).collect()
}
