//! The destructors of `thread_local!`s are code of the program, and run after their thread has left the runtime.

use super::{HOUR, MS};
use common::{everywhere, gate::Gate, until};
use gmp::{Report, Runtime, go, lock_os_thread};
use std::cell::RefCell;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Much longer than the short limits of this file, even on a shared machine.
const PROMPT: Duration = Duration::from_secs(30);

/// A destructor that takes a lock, the lock, and gates for the destructor's begin and end.
#[derive(Clone, Default)]
struct Slow {
    begun: Gate,
    lock: Arc<Mutex<()>>,
    over: Gate,
}

/// Its drop is the destructor.
struct OnDrop(Slow);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.begun.open();
        drop(self.0.lock.lock().unwrap());
        self.0.over.open();
    }
}

thread_local! {
    static OF_THREAD: RefCell<Option<OnDrop>> = const { RefCell::new(None) };
}

/// Leaves the destructor with the thread of a goroutine.
fn leave_with_a_thread(rt: &Runtime, slow: &Slow) {
    let on_drop = OnDrop(slow.clone());
    rt.go(move || OF_THREAD.set(Some(on_drop))).join().unwrap();
}

/// The caller has the lock for which the destructor waits. Fails by a hang, or when the thread counts as gone.
#[test]
fn shutdown_waits_for_them_only_so_long() {
    everywhere(|rt| {
        let slow = Slow::default();
        leave_with_a_thread(&rt, &slow);
        let held = slow.lock.lock().unwrap();
        let begun = Instant::now();
        let report = rt.shutdown(100 * MS);
        assert!((100 * MS..PROMPT).contains(&begun.elapsed()));
        // On a busy machine a thread that has nothing to do may be late as well.
        assert!(report.threads_left() >= 1 && !report.is_clean(), "{report:?}");
        assert_eq!(report.goroutines_left(), 0);
        drop(held);
        until(|| slow.over.is_open());
    });
}

/// Fails when a shutdown does not wait, or is not clean.
#[test]
fn a_thread_that_ends_in_time_is_waited_for() {
    everywhere(|rt| {
        let slow = Slow::default();
        leave_with_a_thread(&rt, &slow);
        thread::scope(|scope| {
            let (begun, over) = (slow.begun.clone(), slow.over.clone());
            let held = slow.lock.lock().unwrap();
            let ends = scope.spawn(move || {
                let report = rt.shutdown(HOUR);
                (report, over.is_open())
            });
            begun.pass();
            drop(held);
            let (report, over) = ends.join().unwrap();
            assert!(report.is_clean() && over, "{report:?}");
        });
    });
}

/// A thread that ends joins those that have ended before. Fails by a hang when the second thread waits for the destructor of
/// the first.
#[test]
fn a_thread_that_ends_is_not_kept_by_anothers_destructors() {
    everywhere(|rt| {
        let slow = Slow::default();
        let held = slow.lock.lock().unwrap();
        let ends_with_its_thread = |on_drop: Option<OnDrop>| {
            let tid = rt.go(move || {
                let bound = go(move || {
                    lock_os_thread();
                    OF_THREAD.set(on_drop);
                    // SAFETY: no preconditions.
                    unsafe { libc::gettid() }
                });
                bound.join().unwrap()
            });
            tid.join().unwrap()
        };
        ends_with_its_thread(Some(OnDrop(slow.clone())));
        slow.begun.pass();
        let second = ends_with_its_thread(None);
        until(|| !Path::new(&format!("/proc/self/task/{second}")).exists());
        let report = rt.shutdown(100 * MS);
        assert!(report.threads_left() >= 1, "{report:?}");
        drop(held);
        until(|| slow.over.is_open());
    });
}

/// Its drop ends a runtime on one of the runtime's own threads, which has left the runtime.
struct Ends(Option<Runtime>, Sender<(Report, Duration)>);

impl Drop for Ends {
    fn drop(&mut self) {
        let (begun, rt) = (Instant::now(), self.0.take().expect("it is dropped once"));
        let report = rt.shutdown(2 * PROMPT);
        self.1.send((report, begun.elapsed())).unwrap();
    }
}

thread_local! {
    static ENDS: RefCell<Option<Ends>> = const { RefCell::new(None) };
}

/// Fails by the time when the thread waits for its own end, for the whole limit; or when the thread counts as gone.
#[test]
fn a_thread_that_ends_its_own_runtime_does_not_wait_for_itself() {
    everywhere(|rt| {
        let (tell, told) = channel();
        let handle = rt.handle();
        let ends = Ends(Some(rt), tell);
        let bound = handle.go(move || {
            lock_os_thread();
            ENDS.set(Some(ends));
        });
        bound.unwrap().join().unwrap();
        let (report, took) = told.recv().unwrap();
        assert!(took < PROMPT, "{took:?}");
        assert_eq!((report.goroutines_left(), report.threads_left()), (0, 1));
    });
}
