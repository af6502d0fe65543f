//! Deadlock reports when the program asks for them; `tests/reports.rs` has those by default.

use crate::support::{MS, PROCS, build, installed, is_child, outcome};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;
use tokio::time::sleep;

/// Longer than the runtime looks for a deadlock.
const LONG: Duration = Duration::from_millis(1300);

/// Fails if a goroutine that tokio will wake is taken for one that waits for ever.
#[test]
fn a_wait_for_tokio_is_no_deadlock() {
    for procs in PROCS {
        let output = outcome(procs, "deadlock=always", || {
            build(installed()).run(|| {
                gmp::block_on(sleep(LONG));
                gmp_tokio::run(sleep(LONG));
            });
        });
        let Some(output) = output else { return };
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
    }
}

/// Fails if there are no reports at all: when asked to, gmp reports a goroutine that waits for ever beside a reactor.
#[test]
fn a_goroutine_that_waits_for_ever_is_reported_if_asked_for() {
    for procs in PROCS {
        let output = outcome(procs, "deadlock=always", || {
            build(installed()).run(|| {
                gmp::block_on(sleep(MS));
                let (_sender, receiver) = gmp::chan::bounded::<()>(0);
                receiver.recv().unwrap();
            });
        });
        let Some(output) = output else { return };
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("all goroutines are asleep"), "{}: {stderr}", output.status);
        assert!(!output.status.success() && output.status.signal().is_none(), "{}", output.status);
    }
    assert!(!is_child());
}
