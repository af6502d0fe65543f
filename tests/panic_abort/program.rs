//! A program with `panic = "abort"`, which nothing unwinds: `./test panic_abort` builds and runs it, as a test's own program
//! always unwinds. Fails by SIGABRT, by a hang, or by an assertion.

use gmp::sync::Event;
use gmp::{Runtime, go_abortable, time, yield_now};
use std::sync::Arc;
use std::time::Duration;

fn main() {
    if cfg!(not(panic = "abort")) {
        panic!("`./test panic_abort` builds this with panic = \"abort\"");
    }
    for procs in [1, 2] {
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        let runtime = unsafe { Runtime::builder().procs(procs).build() }.expect("a runtime starts");
        runtime.run(|| {
            // This goroutine has not begun: on one P it runs after its spawner.
            let (begins, abort) = go_abortable(|| 7);
            abort.abort();
            assert_eq!(begins.join().unwrap(), 7);

            // The abort does not end this goroutine's wait.
            let event = Arc::new(Event::new());
            let waits_for = Arc::clone(&event);
            let (waits, abort) = go_abortable(move || waits_for.wait());
            yield_now();
            abort.abort();
            yield_now();
            assert!(!waits.is_finished());
            event.notify_one();
            waits.join().unwrap();

            // This goroutine has ended before its abort.
            let (ended, abort) = go_abortable(|| 8);
            yield_now();
            while !ended.is_finished() {
                yield_now();
            }
            abort.abort();
            assert_eq!(ended.join().unwrap(), 8);
        });
        // A goroutine that had not begun would end without an unwinding.
        let begun = Arc::new(Event::new());
        let begins = Arc::clone(&begun);
        let sleeps = runtime.go(move || {
            begins.notify_one();
            time::sleep(Duration::MAX);
        });
        runtime.run(move || begun.wait());
        let report = runtime.shutdown(Duration::from_secs(20));
        assert_eq!((report.goroutines_left(), report.threads_left()), (1, 0), "{report:?}");
        assert!(sleeps.join().unwrap_err().is_shutdown());
    }
}
