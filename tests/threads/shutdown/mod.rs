//! The end of a runtime unwinds the goroutines that are parked.

mod destructors;
mod programs;
mod stays;
mod thread_locals;
mod told;
mod unrun;
mod waits;

use common::until;
use gmp::{JoinHandle, Report, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
/// Enough for goroutines with little to unwind, on a shared machine.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3600);

/// Counts beginnings and drops.
#[derive(Clone, Default)]
struct Counts {
    begun: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
    went_on: Arc<AtomicUsize>,
}

/// A value on the stack of a goroutine, which counts its drop.
struct Probe(Arc<AtomicUsize>);

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Counts {
    /// Starts a goroutine that parks in `f`, from which it is not to return.
    fn go<T>(&self, rt: &Runtime, f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<()> {
        let counts = self.clone();
        rt.go(move || {
            let _probe = counts.begin();
            let _value = f();
            counts.went_on.fetch_add(1, SeqCst);
        })
    }

    fn begin(&self) -> Probe {
        self.begun.fetch_add(1, SeqCst);
        Probe(Arc::clone(&self.dropped))
    }

    /// Waits until `expected` goroutines have begun, and all goroutines of the runtime are parked.
    fn all_begun(&self, rt: &Runtime, expected: usize) {
        until(|| self.begun.load(SeqCst) == expected);
        let parked = || {
            let dump = rt.dump();
            let none_runs =
                dump.starts_with("1 goroutine, not running") || dump.contains(" goroutines, 0 of them");
            none_runs && !dump.contains("[runnable")
        };
        until(parked);
    }

    /// Asserts that `expected` goroutines were unwound, and that none went on.
    #[track_caller]
    fn all_unwound(&self, expected: usize) {
        assert_eq!(self.went_on.load(SeqCst), 0, "a wait ended as if nothing had happened");
        assert_eq!((self.begun.load(SeqCst), self.dropped.load(SeqCst)), (expected, expected));
    }
}

/// Only the test's watchdog limits the time: thousands of goroutines take long on a shared machine.
#[track_caller]
fn ends_clean(rt: Runtime) {
    let report: Report = rt.shutdown(HOUR);
    assert!(report.is_clean(), "{report:?}");
}
