//! `RuntimeBuilder::on_thread_start`: each thread that runs goroutines calls the function before its first goroutine, and drops
//! the result after its last one.

use common::child;
use common::{PROCS, until, watched};
use gmp::{Runtime, RuntimeBuilder, blocking, go, lock_os_thread, yield_now};
use std::cell::{Cell, RefCell};
use std::hint::spin_loop;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

thread_local! {
    static ENTERED: Cell<u32> = const { Cell::new(0) };
}

#[inline(never)]
fn entered() -> u32 {
    ENTERED.get()
}

#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Step {
    Enter,
    Leave,
}

/// What the threads have done, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(ThreadId, Step)>>>);

/// Not `Send`, like the guards of other libraries.
struct Guard {
    log: Log,
    thread: ThreadId,
    _of_the_thread: *const (),
}

impl Log {
    fn note(&self, step: Step) {
        self.0.lock().unwrap().push((thread::current().id(), step));
    }

    fn enter(&self) -> Guard {
        ENTERED.set(ENTERED.get() + 1);
        self.note(Step::Enter);
        Guard { log: self.clone(), thread: thread::current().id(), _of_the_thread: std::ptr::null() }
    }

    fn of(&self, thread: ThreadId) -> Vec<Step> {
        self.0.lock().unwrap().iter().filter(|(of, _)| *of == thread).map(|&(_, step)| step).collect()
    }

    fn threads(&self) -> Vec<ThreadId> {
        let log = self.0.lock().unwrap();
        log.iter().filter(|(_, step)| *step == Step::Enter).map(|&(thread, _)| thread).collect()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        assert_eq!(thread::current().id(), self.thread, "dropped on another thread");
        ENTERED.set(ENTERED.get() - 1);
        self.log.note(Step::Leave);
    }
}

fn build(builder: RuntimeBuilder) -> Runtime {
    // SAFETY: the goroutines keep nothing of a thread.
    unsafe { builder.build() }.expect("a runtime starts")
}

fn entering(procs: usize, log: &Log) -> RuntimeBuilder {
    let log = log.clone();
    Runtime::builder().procs(procs).on_thread_start(move || log.enter())
}

/// Makes `goroutines` goroutines run at once, each on a thread of its own, and calls `f` meanwhile.
fn while_they_run(rt: &Runtime, goroutines: usize, f: impl FnOnce()) {
    let (run, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let all: Vec<_> = (0..goroutines)
        .map(|_| {
            let (run, over) = (Arc::clone(&run), Arc::clone(&over));
            rt.go(move || {
                run.fetch_add(1, SeqCst);
                blocking(|| {
                    while !over.load(SeqCst) {
                        thread::yield_now();
                    }
                });
            })
        })
        .collect();
    until(|| run.load(SeqCst) == goroutines);
    f();
    over.store(true, SeqCst);
    all.into_iter().for_each(|one| one.join().unwrap());
}

/// Fails when the operator is told that all threads are in use while one of them is still in the function, or is not told
/// later, when all are in use.
#[test]
fn a_thread_that_is_starting_is_not_in_use() {
    const NAME: &str = "a_thread_that_is_starting_is_not_in_use";
    const TOLD: &str = "gmp: all threads that a runtime may have are in use";
    const BEGINS: &str = "the third thread begins";
    if !child::is_child() {
        let said = child::passes(NAME, &[]);
        let told: Vec<_> = said.lines().filter(|line| line.contains(TOLD) || *line == BEGINS).collect();
        assert!(told.len() == 2 && told[0] == BEGINS, "{said}");
        return;
    }
    watched(3, || {
        let (starts, goes_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let builder = Runtime::builder().procs(3).max_threads(3).on_thread_start({
            let (starts, goes_on) = (Arc::clone(&starts), Arc::clone(&goes_on));
            move || {
                if starts.fetch_add(1, SeqCst) == 2 {
                    while !goes_on.load(SeqCst) {
                        thread::yield_now();
                    }
                    eprintln!("{BEGINS}");
                }
            }
        });
        let rt = build(builder);
        for _ in 0..50 {
            // The last goroutine waits for a thread.
            while_they_run(&rt, 2, || drop(rt.go(|| ())));
        }
        assert_eq!(starts.load(SeqCst), 3);
        goes_on.store(true, SeqCst);
        while_they_run(&rt, 3, || drop(rt.go(|| ())));
    });
}

/// Fails when a goroutine runs on a thread that has not called the function, when a thread calls it twice, or when a guard is
/// not dropped, or is dropped on another thread.
#[test]
fn every_thread_calls_it_once_before_goroutines_and_drops_the_guard_after_them() {
    for procs in PROCS {
        watched(procs, || {
            let log = Log::default();
            let rt = build(entering(procs, &log));
            rt.run(|| {
                // So many goroutines block at once that other threads take over.
                let together = Arc::new(Barrier::new(8));
                let all: Vec<_> = (0..8)
                    .map(|n| {
                        let together = Arc::clone(&together);
                        go(move || {
                            assert_eq!(entered(), 1);
                            if n % 2 == 0 {
                                blocking(|| together.wait())
                            } else {
                                together.wait()
                            };
                            assert_eq!(entered(), 1);
                            for _ in 0..100 {
                                yield_now();
                                assert_eq!(entered(), 1);
                            }
                        })
                    })
                    .collect();
                all.into_iter().for_each(|one| one.join().unwrap());
            });
            assert!(rt.shutdown_timeout(MINUTE));
            let threads = log.threads();
            assert!(threads.len() >= 8, "eight blocked at once, on {} threads", threads.len());
            for thread in threads {
                assert_eq!(log.of(thread), [Step::Enter, Step::Leave]);
            }
            assert_eq!(entered(), 0, "the caller is no thread of the runtime");
        });
    }
}

/// Fails when the thread of `run_locked` has no guard during the call, or keeps it after the call, whether the goroutine
/// returns or panics.
#[test]
fn the_thread_of_run_locked_has_the_guard_as_long_as_the_call_lasts() {
    for procs in PROCS {
        watched(procs, || {
            let (log, here) = (Log::default(), thread::current().id());
            let rt = build(entering(procs, &log));
            let locked = |panics: bool| {
                // SAFETY: nothing of a thread is kept.
                unsafe {
                    rt.run_locked(|| {
                        assert_eq!((thread::current().id(), entered()), (here, 1));
                        yield_now();
                        assert_eq!((thread::current().id(), entered()), (here, 1));
                        assert!(!panics, "as asked");
                    })
                }
            };
            locked(false);
            assert_eq!((entered(), log.of(here)), (0, vec![Step::Enter, Step::Leave]));
            assert!(catch_unwind(AssertUnwindSafe(|| locked(true))).is_err());
            assert_eq!((entered(), log.of(here).len()), (0, 4));
        });
    }
}

/// Fails by a hang when a thread that ends with its locked goroutine keeps the guard.
#[test]
fn a_thread_that_ends_with_its_goroutine_drops_the_guard() {
    for procs in PROCS {
        watched(procs, || {
            let log = Log::default();
            let rt = build(entering(procs, &log));
            let thread = rt.go(|| {
                lock_os_thread();
                thread::current().id()
            });
            let thread = thread.join().unwrap();
            until(|| log.of(thread) == [Step::Enter, Step::Leave]);
            assert_eq!(rt.run(entered), 1);
        });
    }
}

/// Fails when the order is another, or when one of several functions is forgotten.
#[test]
fn several_functions_are_called_in_order_and_their_guards_dropped_in_the_opposite_one() {
    struct Noted(&'static str, Arc<Mutex<Vec<&'static str>>>);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.1.lock().unwrap().push(self.0);
        }
    }
    let order = Arc::new(Mutex::new(Vec::new()));
    let noted = |begin, end| {
        let order = Arc::clone(&order);
        move || {
            order.lock().unwrap().push(begin);
            Noted(end, Arc::clone(&order))
        }
    };
    let builder = Runtime::builder().procs(1).on_thread_start(noted("a", "not a"));
    let rt = build(builder.on_thread_start(|| ()).on_thread_start(noted("b", "not b")));
    // SAFETY: nothing of a thread is kept.
    unsafe { rt.run_locked(|| order.lock().unwrap().clear()) };
    assert_eq!(order.lock().unwrap()[..2], ["not b", "not a"]);
    order.lock().unwrap().clear();
    // SAFETY: as above.
    unsafe { rt.run_locked(|| ()) };
    assert_eq!(*order.lock().unwrap(), ["a", "b", "not b", "not a"]);
}

/// Fails when the function, or the drop, runs on a goroutine or in the middle of the scheduler: there a channel would park code
/// that is no goroutine, or break the runtime's state.
#[test]
fn the_function_and_the_drop_run_on_a_plain_thread() {
    struct Sends(gmp::chan::Sender<bool>);
    impl Drop for Sends {
        fn drop(&mut self) {
            self.0.send(gmp::current().is_none()).unwrap();
        }
    }
    for procs in PROCS {
        watched(procs, || {
            // The channel has no buffer: each send waits for the receiver, a thread.
            let (sender, receiver) = gmp::chan::bounded(0);
            let receives = thread::spawn(move || receiver.into_iter().collect::<Vec<_>>());
            let sends = sender.clone();
            let rt = build(Runtime::builder().procs(procs).on_thread_start(move || {
                sends.send(gmp::current().is_none()).unwrap();
                Sends(sends.clone())
            }));
            rt.run(|| (0..10).map(|_| go(yield_now)).for_each(|one| one.join().unwrap()));
            assert!(rt.shutdown_timeout(MINUTE));
            drop(sender);
            let seen = receives.join().unwrap();
            assert!(seen.len() >= 2 && seen.len().is_multiple_of(2), "{} times", seen.len());
            assert!(seen.into_iter().all(|plain| plain));
        });
    }
}

/// Fails when the runtime goes on without the function's work, or hangs, or when the text does not say whose fault it is.
#[test]
fn a_panic_of_the_function_ends_the_process_with_a_text_that_names_it() {
    const TEST: &str = "a_panic_of_the_function_ends_the_process_with_a_text_that_names_it";
    if child::is_child() {
        let rt = build(Runtime::builder().on_thread_start(|| panic!("no such context")));
        return rt.run(|| ());
    }
    let output = child::run(TEST, &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{stderr}");
    assert!(stderr.contains("no such context"), "{stderr}");
    assert!(
        stderr.contains("fatal error: a function of RuntimeBuilder::on_thread_start panicked"),
        "{stderr}"
    );
}

/// The payload panics in its own drop, before the text is written. Fails by a hang, or without the text.
#[test]
fn a_panic_whose_payload_panics_in_its_drop_ends_the_process_too() {
    const TEST: &str = "a_panic_whose_payload_panics_in_its_drop_ends_the_process_too";
    struct PanicsInDrop;
    impl Drop for PanicsInDrop {
        fn drop(&mut self) {
            panic!("in the drop of the payload");
        }
    }
    if child::is_child() {
        let rt = build(Runtime::builder().on_thread_start(|| std::panic::panic_any(PanicsInDrop)));
        return rt.run(|| ());
    }
    let output = child::run(TEST, &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{stderr}");
    assert!(
        stderr.contains("fatal error: a function of RuntimeBuilder::on_thread_start panicked"),
        "{stderr}"
    );
}

/// Fails if a panic of the function does not come out of `run_locked`, if the guards from before it are kept, or if the runtime
/// counts the goroutine for ever.
#[test]
fn a_panic_of_the_function_unwinds_run_locked() {
    thread_local! {
        static PANICS: Cell<bool> = const { Cell::new(false) };
    }
    let log = Log::default();
    let rt = build(entering(1, &log).on_thread_start(|| assert!(!PANICS.get(), "not on this thread")));
    PANICS.set(true);
    // SAFETY: nothing of a thread is kept.
    let locked = || catch_unwind(AssertUnwindSafe(|| unsafe { rt.run_locked(|| 1) }));
    assert!(locked().is_err());
    assert_eq!((entered(), rt.num_goroutines()), (0, 0));
    PANICS.set(false);
    assert_eq!(locked().unwrap(), 1);
}

/// Fails when a panic in the drop of one guard prevents the drop of another, ends the process, or keeps the runtime from
/// ending.
#[test]
fn a_panic_in_the_drop_of_a_guard_ends_there() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("in the drop of a guard, as a test asks for");
        }
    }
    let log = Log::default();
    let rt = build(entering(2, &log).on_thread_start(|| Panics));
    rt.run(|| ());
    assert!(rt.shutdown_timeout(MINUTE));
    for thread in log.threads() {
        assert_eq!(log.of(thread), [Step::Enter, Step::Leave]);
    }
}

/// Fails if `run_locked` returns the panic of a guard in place of its own result, drops the guards in another order, or ends
/// the process where its function has panicked as well.
#[test]
fn a_panic_in_the_drop_of_a_guard_leaves_the_result_of_run_locked_alone() {
    const TEST: &str = "a_panic_in_the_drop_of_a_guard_leaves_the_result_of_run_locked_alone";
    struct Notes(&'static str, Arc<Mutex<Vec<(ThreadId, &'static str)>>>);
    impl Drop for Notes {
        fn drop(&mut self) {
            self.1.lock().unwrap().push((thread::current().id(), self.0));
            assert_eq!(self.0, "first", "in the drop of a guard, as a test asks for");
        }
    }
    if !child::is_child() {
        child::passes(TEST, &[]);
        return;
    }
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut builder = Runtime::builder().procs(1);
    for name in ["first", "second", "third"] {
        let order = Arc::clone(&order);
        builder = builder.on_thread_start(move || Notes(name, Arc::clone(&order)));
    }
    let (rt, here) = (build(builder), thread::current().id());
    let dropped = || {
        let mut order = order.lock().unwrap();
        order.extract_if(.., |noted| noted.0 == here).map(|noted| noted.1).collect::<Vec<_>>()
    };
    // SAFETY: nothing of a thread is kept.
    let locked = |f: fn() -> u32| catch_unwind(AssertUnwindSafe(|| unsafe { rt.run_locked(f) }));
    assert_eq!(locked(|| 42).ok(), Some(42));
    assert_eq!(dropped(), ["third", "second", "first"]);
    let panicked = locked(|| panic!("as asked")).unwrap_err();
    assert_eq!(panicked.downcast_ref(), Some(&"as asked"));
    assert_eq!(dropped(), ["third", "second", "first"]);
}

/// Fails when the end of the runtime does not wait for the drops, so that a guard is still alive afterwards.
#[test]
fn the_end_of_the_runtime_waits_for_the_guards() {
    for procs in PROCS {
        watched(procs, || {
            struct Slow(Arc<Mutex<u32>>, RefCell<u32>);
            impl Drop for Slow {
                fn drop(&mut self) {
                    (0..1000).for_each(|_| thread::yield_now());
                    *self.0.lock().unwrap() -= *self.1.borrow();
                }
            }
            let alive = Arc::new(Mutex::new(0));
            let counted = Arc::clone(&alive);
            let rt = build(Runtime::builder().procs(procs).on_thread_start(move || {
                *counted.lock().unwrap() += 1;
                Slow(Arc::clone(&counted), RefCell::new(1))
            }));
            rt.run(|| (0..10).map(|_| go(yield_now)).for_each(|one| one.join().unwrap()));
            assert!(*alive.lock().unwrap() >= 1);
            assert!(rt.shutdown_timeout(MINUTE));
            assert_eq!(*alive.lock().unwrap(), 0);
        });
    }
}

/// Fails when the functions live as long as a thread that the end has left behind: that thread's last waker, of another
/// runtime, would drop them.
#[test]
fn the_end_of_the_runtime_drops_the_functions() {
    struct TellsWhere(Sender<ThreadId>);
    impl Drop for TellsWhere {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }
    let (tell, told) = channel();
    let (end, ends) = channel::<()>();
    let captured = TellsWhere(tell);
    let rt = build(Runtime::builder().procs(1).on_thread_start(move || {
        let _captured = &captured;
    }));
    let (begin, begun) = channel();
    drop(rt.go(move || {
        blocking(|| {
            begin.send(()).unwrap();
            let _ended = ends.recv();
        })
    }));
    begun.recv().unwrap();
    // After the shutdown no thread begins any more.
    assert!(rt.shutdown(Duration::from_millis(300)).threads_left() >= 1);
    assert_eq!(told.try_recv(), Ok(thread::current().id()));
    drop(end);
}

/// Fails by a hang when a submitted goroutine is left to a thread that is being started, although other threads sleep: the
/// goroutine waits as long as the user's function lasts, and here the function waits for the goroutine.
#[test]
fn a_thread_whose_function_takes_long_keeps_no_other_asleep() {
    // The thread is to be started for an idle P, and not for one that was taken from a thread.
    child::without_retakes("a_thread_whose_function_takes_long_keeps_no_other_asleep", || {
        watched(3, || {
            let begun = Arc::new(AtomicUsize::new(0));
            let (end, ended) = channel::<()>();
            let (begins, ended) = (Arc::clone(&begun), Mutex::new(ended));
            let rt = build(Runtime::builder().procs(3).on_thread_start(move || {
                if begins.fetch_add(1, SeqCst) == 2 {
                    ended.lock().unwrap().recv().unwrap();
                }
            }));
            let busy = Arc::new(AtomicBool::new(true));
            rt.run(|| {
                let is_busy = Arc::clone(&busy);
                let computes = go(move || {
                    while is_busy.load(SeqCst) {
                        spin_loop();
                    }
                });
                // While two threads work, the runtime starts a third one for new goroutines.
                until(|| {
                    drop(go(|| ()));
                    begun.load(SeqCst) == 3
                });
                busy.store(false, SeqCst);
                computes.join().unwrap();
            });
            // By one of these rounds the two threads have gone to sleep.
            (0..1000).for_each(|_| rt.go(|| ()).join().unwrap());
            end.send(()).unwrap();
            assert!(rt.shutdown_timeout(MINUTE));
        });
    });
}
