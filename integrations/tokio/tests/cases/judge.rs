//! What is reported when that is asked for; `tests/reports.rs` has what is by default.

use crate::support::{MS, PROCS, build, installed, is_child, outcome};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;
use tokio::time::sleep;

/// Longer than anybody looks for a deadlock.
const LONG: Duration = Duration::from_millis(1300);

/// Fails if a goroutine that waits for tokio, and whom tokio will wake, is taken for one that waits for ever.
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

/// Fails if the reports stop altogether: a goroutine that waits for ever beside a reactor is told, if that is asked for.
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
