//! `block_on`: a waker beside the poll, the park, the interrupt and the end of the runtime, and a waker that comes late.
//!
//! *The mutants* take out the look of a parker at the count of wakes, the order of count and look in a waker, the wait of an
//! interrupted owner for a waker that reads its wait, and the orderings of the cell.

use super::caught;
use crate::Runtime;
use crate::block_on;
use crate::chan::bounded;
use crate::context::Context;
use crate::model::{Model, Mutant, at_rest, done, fall_asleep, runtime};
use crate::sync::Event;
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
use loom::thread;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// The flags for which a future waits. A flag orders nothing: the wake has to do that.
type Flags<const N: usize> = Arc<[AtomicBool; N]>;

fn flags<const N: usize>() -> Flags<N> {
    Arc::new(std::array::from_fn(|_| AtomicBool::new(false)))
}

/// Waits until the flags are set. `begin` gets the waker in the first poll.
fn wait_for<const N: usize>(flags: &Flags<N>, begin: impl FnOnce(&Waker)) {
    let mut begin = Some(begin);
    block_on(poll_fn(|cx| {
        if let Some(begin) = begin.take() {
            begin(cx.waker());
        }
        if flags.iter().all(|flag| flag.load(Relaxed)) { Poll::Ready(()) } else { Poll::Pending }
    }));
}

/// Runs a goroutine that waits for a thread; the thread wakes the goroutine once. loom's search begins in the first poll, and
/// ends when the goroutine has been woken.
fn wakes_once(runtime: &Runtime) {
    let set = flags::<1>();
    let waits = runtime.go(move || {
        let theirs = Arc::clone(&set);
        wait_for(&set, |waker| {
            let waker = waker.clone();
            loom::explore();
            drop(thread::spawn(move || {
                theirs[0].store(true, Relaxed);
                waker.wake();
            }));
        });
        done();
    });
    waits.join().unwrap();
}

/// A thread wakes the goroutine once, beside the end of the first poll, the park, or the sleep. Fails by deadlock when the
/// wake, or a write before it, is lost; by a causality violation when the waker reads the wait as it is written.
#[test]
fn a_wake_beside_the_park_is_not_lost() {
    Model::new().preemptions(4).check("block_on", || wakes_once(&runtime(1, 1)));
}

/// As `a_wake_beside_the_park_is_not_lost`, with an M that runs the goroutine as soon as it is woken. Fails by a causality
/// violation when the M that has published the wait still writes to the goroutine's frame.
#[test]
fn a_woken_owner_has_its_frame_for_itself() {
    Model::new().preemptions(3).check("block_on_two_ms", || {
        let runtime = runtime(2, 2);
        fall_asleep::<2>(&runtime);
        wakes_once(&runtime);
    });
}

/// As `a_wake_beside_the_park_is_not_lost`, on a plain thread, which sleeps.
#[test]
fn a_wake_beside_a_threads_sleep_is_not_lost() {
    Model::new().check("block_on_thread", || {
        let set = flags::<1>();
        let theirs = Arc::clone(&set);
        let mut waker_thread = None;
        wait_for(&set, |waker| {
            let waker = waker.clone();
            waker_thread = Some(thread::spawn(move || {
                theirs[0].store(true, Relaxed);
                waker.wake();
            }));
        });
        waker_thread.unwrap().join().unwrap();
    });
}

/// Two threads wake the goroutine, each for a flag of its own. Fails by deadlock when one wake swallows the other; by a
/// causality violation, or an assertion, when both act on the same wait.
#[test]
fn two_wakes_beside_each_other_are_both_answered() {
    Model::new().preemptions_by_default(1).check("block_on_two", || {
        let runtime = runtime(1, 1);
        let set = flags::<2>();
        let waits = runtime.go(move || {
            wait_for(&set, |waker| {
                loom::explore();
                for at in 0..2 {
                    let (theirs, waker) = (Arc::clone(&set), waker.clone());
                    drop(thread::spawn(move || {
                        theirs[at].store(true, Relaxed);
                        waker.wake();
                    }));
                }
            });
            done();
        });
        waits.join().unwrap();
    });
}

/// The waker of a call that has returned is called beside another wait of the same goroutine. Fails by the assertion when the
/// wake ends that wait, by deadlock when the wake swallows the notification.
#[test]
fn a_late_wake_ends_no_other_wait() {
    Model::new().preemptions(2).check("block_on_late", || {
        let runtime = at_rest::<1>();
        let (event, set) = (Arc::new(Event::new()), flags::<1>());
        let (theirs, sets) = (Arc::clone(&event), Arc::clone(&set));
        let waits = runtime.go(move || {
            let waker = block_on(poll_fn(|cx| Poll::Ready(cx.waker().clone())));
            drop(thread::spawn(move || waker.wake()));
            event.wait();
            assert!(set[0].load(Relaxed), "the late wake has ended another wait");
        });
        sets[0].store(true, Relaxed);
        theirs.notify_one();
        waits.join().unwrap();
        done();
    });
}

/// A wake comes beside the interrupt that ends the wait; another call with the same cell follows. Fails by a causality
/// violation when the waker still reads the wait that the owner has left; by deadlock when the second call's wake is lost, or
/// when the owner waits for a waker that is done.
#[test]
fn a_wake_beside_an_interrupt_ends_the_wait_once() {
    Model::new().preemptions(2).check("block_on_interrupt", || {
        let runtime = at_rest::<1>();
        let (context, cancel) = Context::background().with_cancel();
        let waits = runtime.go(move || {
            let set = flags::<1>();
            let waker = block_on(poll_fn(|cx| Poll::Ready(cx.waker().clone())));
            let (theirs, wakes) = (Arc::clone(&set), waker.clone());
            drop(thread::spawn(move || {
                wakes.wake_by_ref();
                theirs[0].store(true, Relaxed);
                wakes.wake();
            }));
            let ended = context.run(|| block_on(std::future::pending::<()>()));
            assert!(ended.is_err());
            wait_for(&set, |again| assert!(again.will_wake(&waker), "another cell"));
            done();
        });
        cancel.cancel();
        waits.join().unwrap();
    });
}

/// A value that the future holds.
struct Held(Arc<AtomicBool>);

impl Drop for Held {
    fn drop(&mut self) {
        assert!(!self.0.swap(true, Relaxed), "dropped twice");
    }
}

/// The runtime ends, and unwinds the goroutine, beside a wake by a thread. Fails by deadlock when both the wake and the
/// interrupt are lost, or by the report; by a causality violation when the waker reads a wait that is over; inside loom, which
/// finds no object there, when the waker claims a wait of a G that was freed.
#[test]
fn a_wake_beside_the_end_of_the_runtime_touches_nothing_that_has_gone() {
    Model::new().preemptions_by_default(1).check("block_on_shutdown", || {
        let runtime = runtime(1, 1);
        let (sends, waker) = bounded::<Waker>(1);
        let dropped = Arc::new(AtomicBool::new(false));
        let held = Held(Arc::clone(&dropped));
        let waits = runtime.go(move || {
            block_on(poll_fn(move |cx| {
                let _held = &held;
                let _full = sends.try_send(cx.waker().clone());
                Poll::<()>::Pending
            }));
        });
        let waker = waker.recv().unwrap();
        loom::explore();
        let wakes = thread::spawn(move || {
            waker.wake_by_ref();
            waker
        });
        let report = runtime.shutdown(Duration::from_secs(1));
        assert!(report.is_clean(), "{report:?}");
        assert!(waits.join().unwrap_err().is_shutdown());
        assert!(dropped.load(Relaxed));
        // This thread wakes once more, when nothing is left.
        wakes.join().unwrap().wake();
    });
}

/// The runtime ends without time, and leaves the goroutine behind, beside a wake. Fails when the waker makes the goroutine run
/// again, or by a causality violation.
#[test]
fn a_wake_of_a_goroutine_that_is_left_does_nothing() {
    Model::new().preemptions(2).check("block_on_left", || {
        let runtime = runtime(1, 1);
        let (sends, waker) = bounded::<Waker>(2);
        let waits = runtime.go(move || {
            block_on(poll_fn(move |cx| {
                let _full = sends.try_send(cx.waker().clone());
                Poll::<()>::Pending
            }));
        });
        let waker = waker.recv().unwrap();
        loom::explore();
        let wakes = thread::spawn(move || {
            waker.wake_by_ref();
            waker
        });
        let report = runtime.shutdown(Duration::ZERO);
        // None is left if the wake makes the goroutine look for interrupts between two polls.
        assert!(report.goroutines_left() <= 1);
        assert!(waits.join().unwrap_err().is_shutdown());
        // The waker is never dropped: the goroutine holds the cell for good, and so may this waker.
        std::mem::forget(wakes.join().unwrap());
    });
}

#[test]
fn mutants() {
    const PARK: &str = "a_wake_beside_the_park_is_not_lost";
    const INTERRUPT: &str = "a_wake_beside_an_interrupt_ends_the_wait_once";
    const END: &str = "a_wake_beside_the_end_of_the_runtime_touches_nothing_that_has_gone";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::WakerTakeRelaxed, PARK),
            (Mutant::WakerWakesRelaxed, PARK),
            (Mutant::WakerParkRelaxed, PARK),
            (Mutant::WakerFindsRelaxed, PARK),
            (Mutant::WakerParksBlindly, PARK),
            (Mutant::WakerNotesAPark, "a_woken_owner_has_its_frame_for_itself"),
            (Mutant::WakerLooksFirst, PARK),
            (Mutant::WakerParksBlindly, "a_wake_beside_a_threads_sleep_is_not_lost"),
            (Mutant::WakerActsUnasked, "a_late_wake_ends_no_other_wait"),
            (Mutant::WakerActsUnasked, "two_wakes_beside_each_other_are_both_answered"),
            (Mutant::WakerLeavesParked, INTERRUPT),
            (Mutant::WakerLeavesBesideTheClaim, INTERRUPT),
            (Mutant::WakerKeepsParked, INTERRUPT),
            (Mutant::WakerLosesRelaxed, INTERRUPT),
            (Mutant::WakerLeavesParked, END),
            (Mutant::WakerLeavesBesideTheClaim, END),
            (Mutant::WakerKeepsParked, END),
            (Mutant::CalledInTheDark, "a_wake_of_a_goroutine_that_is_left_does_nothing"),
            (Mutant::EndCallsInTheDark, "a_wake_of_a_goroutine_that_is_left_does_nothing"),
        ],
    );
}
