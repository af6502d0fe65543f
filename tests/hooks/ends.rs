//! The end of a runtime whose goroutines switch with functions around each switch.

use common::bolt::bolted;
use common::child;
use common::gate::Gate;
use common::{PROCS, runtime, until, watched};
use gmp::{JoinHandle, time, yield_now};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Runs `f` in a process of its own, in which nothing is registered yet.
#[track_caller]
fn in_its_process(test: &str, f: impl Fn()) {
    if child::is_child() {
        f();
    } else {
        child::passes(test, &[]);
    }
}

/// Fails when a goroutine is left behind because the end of the runtime ends the wait of a destructor, which can't be unwound.
#[test]
fn a_destructor_that_parks_is_waited_for() {
    struct Parks {
        begins: Gate,
        ends: Gate,
    }

    impl Drop for Parks {
        fn drop(&mut self) {
            self.begins.open();
            time::sleep(50 * MS);
            self.ends.open();
        }
    }

    in_its_process("a_destructor_that_parks_is_waited_for", || {
        gmp::hooks::register(|| (), || ());
        for procs in PROCS {
            watched(procs, || {
                let rt = runtime(procs);
                let [begins, ends]: [Gate; 2] = Default::default();
                let parks = Parks { begins: begins.clone(), ends: ends.clone() };
                drop(rt.go(move || {
                    let _parks = parks;
                    std::panic::resume_unwind(Box::new("on purpose"));
                }));
                begins.pass();
                until(|| ends.is_open() || rt.dump().contains("[sleep"));
                let report = rt.shutdown(MINUTE);
                assert!(report.is_clean() && ends.is_open(), "{report:?}");
            });
        }
    });
}

/// Fails if a goroutine that is left behind, as it can't be unwound, is not suspended by the functions, or only after its
/// joiner has heard of the end.
#[test]
fn a_goroutine_that_is_left_behind_is_suspended_before_others_hear_of_it() {
    static LEFT: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);
    static SUSPENDS: AtomicUsize = AtomicUsize::new(0);
    static RESUMES: AtomicUsize = AtomicUsize::new(0);
    static LATE: AtomicUsize = AtomicUsize::new(0);

    fn is_the_one() -> bool {
        gmp::current().is_some_and(|g| g.name() == Some("left"))
    }

    fn suspend() {
        if is_the_one() {
            let is_finished = LEFT.lock().unwrap().as_ref().is_some_and(JoinHandle::is_finished);
            LATE.fetch_add(usize::from(is_finished), SeqCst);
            SUSPENDS.fetch_add(1, SeqCst);
        }
    }

    fn resume() {
        RESUMES.fetch_add(usize::from(is_the_one()), SeqCst);
    }

    in_its_process("a_goroutine_that_is_left_behind_is_suspended_before_others_hear_of_it", || {
        gmp::hooks::register(suspend, resume);
        for procs in PROCS {
            watched(procs, || {
                let rt = runtime(procs);
                SUSPENDS.store(0, SeqCst);
                RESUMES.store(0, SeqCst);
                let left = gmp::Builder::new().name("left");
                let left = rt.run(|| {
                    left.go(|| {
                        bolted(|| {
                            loop {
                                yield_now();
                            }
                        })
                    })
                });
                *LEFT.lock().unwrap() = Some(left.unwrap());
                until(|| SUSPENDS.load(SeqCst) > 0);
                assert_eq!(rt.shutdown(MINUTE).goroutines_left(), 1);
                assert_eq!(SUSPENDS.load(SeqCst), RESUMES.load(SeqCst) + 1);
                assert_eq!(LATE.load(SeqCst), 0);
                let left = LEFT.lock().unwrap().take().unwrap();
                assert!(left.join().unwrap_err().is_shutdown());
            });
        }
    });
}
