//! Park against ready: no ready is lost, no goroutine runs twice, and none runs before it was saved.
//!
//! *Modelled*: a goroutine or thread that parks, yields, or is refused its park; its wakers, on other Ms and threads; and dumps
//! that hold it. *Left out*: nudges, contexts and limits (`models/interrupt.rs`), and the end of the runtime
//! (`models/shutdown.rs`). *The mutants* take out the order of status and commit hook, the wait number of a claim, the marks on
//! a held goroutine, and the orderings of the status word. *Failures*: a lost ready is a deadlock; a goroutine that runs, or is
//! read, before it was saved is a causality violation.

use super::caught;
use super::cover::Handle;
use crate::model::{Flag, Model, Mutant, Parked, Parts, Waiter, at_rest, done, park, runtime};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::sync::{Condvar, Mutex};
use std::sync::Arc;

/// A value that a waker hands over between its claim and its ready.
struct Given(UnsafeCell<u32>);

// SAFETY: claim and ready order the accesses; loom checks that they do.
unsafe impl Send for Given {}
// SAFETY: as for `Send`.
unsafe impl Sync for Given {}

/// A place in which one goroutine waits, and another finds it.
#[derive(Clone)]
pub(super) struct Place(Arc<(Mutex<Option<Waiter>>, Condvar)>);

impl Place {
    pub(super) fn new() -> Self {
        Place(Arc::new((Mutex::new(None), Condvar::new())))
    }

    /// Parks the caller here, as in a channel: the waiter is queued under a lock, which the commit hook releases.
    pub(super) fn wait(&self) {
        let mut place = self.0.0.lock().unwrap();
        let parked = park(|waiter| {
            *place = Some(waiter);
            drop(place);
            self.0.1.notify_all();
            true
        });
        assert_eq!(parked, Parked::Readied);
    }

    /// Returns the waiter of the goroutine that waits here, once one does.
    pub(super) fn waiter(&self) -> Waiter {
        let mut place = self.0.0.lock().unwrap();
        loop {
            match place.take() {
                Some(waiter) => return waiter,
                None => place = self.0.1.wait(place).unwrap(),
            }
        }
    }
}

/// Fails by deadlock when the ready is lost, by a causality violation when the goroutine runs before the save.
#[test]
fn a_ready_right_after_the_commit_is_not_lost() {
    Model::new().check("park_vs_ready", || {
        let runtime = at_rest::<1>();
        let place = Place::new();
        let parker = runtime.go({
            let place = place.clone();
            move || place.wait()
        });
        assert!(place.waiter().wake());
        parker.join().unwrap();
        done();
    });
}

/// Two wakers claim the first of a goroutine's waits at once, and one of them its second. Fails when both win, when the late
/// one ends the second wait, or by deadlock when neither wins.
#[test]
fn of_two_readiers_one_wins_and_the_late_one_touches_no_later_wait() {
    Model::new().check("two_readiers", || {
        let runtime = runtime(1, 1);
        let waits = [Place::new(), Place::new()];
        let parker = runtime.go({
            let waits = waits.clone();
            move || waits.iter().for_each(Place::wait)
        });
        let first = waits[0].waiter();
        let won = Arc::new(AtomicU32::new(0));
        let claim = {
            let won = Arc::clone(&won);
            move |waiter: Waiter| {
                if waiter.wake() {
                    won.fetch_add(1, Relaxed);
                }
            }
        };
        let rival = loom::thread::spawn({
            let (first, claim) = (first.clone(), claim.clone());
            move || claim(first)
        });
        loom::explore();
        claim(first);
        // The second wait is claimed by this thread alone.
        assert!(waits[1].waiter().wake(), "the second wait was claimed under the first one's number");
        rival.join().unwrap();
        assert_eq!(won.load(Relaxed), 1);
        done();
        parker.join().unwrap();
    });
}

/// A ready meets a hold. Fails by deadlock when the hold swallows the ready, by a causality violation when the
/// goroutine does not see what the waker wrote.
#[test]
fn a_dump_holds_a_g_without_losing_its_ready() {
    Model::new().preemptions(2).check("dump_vs_ready", || {
        let runtime = runtime(1, 1);
        let place = Place::new();
        let (given, parts) = (Arc::new(Given(UnsafeCell::new(0))), Parts::of(2));
        let parker = runtime.go({
            let (place, given, parts) = (place.clone(), Arc::clone(&given), parts.clone());
            move || {
                place.wait();
                // SAFETY: read after the ready.
                assert_eq!(given.0.with(|given| unsafe { *given }), 1);
                parts.held();
            }
        });
        let waiter = place.waiter();
        let dumper = loom::thread::spawn({
            let handle = Handle::of(&runtime);
            move || {
                drop(handle.dump());
                parts.held();
            }
        });
        loom::explore();
        assert!(waiter.claim());
        // SAFETY: written before the ready.
        given.0.with_mut(|given| unsafe { *given = 1 });
        waiter.ready();
        parker.join().unwrap();
        dumper.join().unwrap();
    });
}

/// A goroutine parks, and goes on, while a dump reads it. Fails by a causality violation when the dump reads a stack
/// that is not saved, or that is in use.
#[test]
fn a_dump_reads_a_g_that_parks_only_when_it_is_saved() {
    Model::new().check("dump_vs_park", || {
        let runtime = runtime(1, 1);
        let place = Place::new();
        let begins = Flag::default();
        let parker = runtime.go({
            let (place, begins) = (place.clone(), begins.clone());
            move || {
                loom::explore();
                begins.raise();
                place.wait();
            }
        });
        begins.wait_on_thread();
        drop(Handle::of(&runtime).dump());
        assert!(place.waiter().wake());
        done();
        parker.join().unwrap();
    });
}

/// An M takes a goroutine that a dump holds from the global queue, so the dump has to queue the goroutine again. Fails by a
/// causality violation when the dump may queue the goroutine while the M still takes it out, by deadlock when the goroutine is
/// lost.
#[test]
fn a_g_that_is_held_when_its_turn_comes_is_run() {
    Model::new().check("dump_vs_run", || {
        let runtime = runtime(1, 1);
        // An M that is woken passes a fence, which would hide a missing one; an M that is at work does not.
        let (there, go_on) = (Flag::default(), Flag::default());
        drop(runtime.go({
            let (there, go_on) = (there.clone(), go_on.clone());
            move || {
                there.raise();
                go_on.wait_on_thread();
            }
        }));
        there.wait_on_thread();
        let queued = runtime.go(|| ());
        loom::explore();
        go_on.raise();
        drop(Handle::of(&runtime).dump());
        queued.join().unwrap();
        done();
    });
}

/// Fails by a causality violation when a dump reads a goroutine that is still being made.
#[test]
fn a_dump_reads_no_half_made_g() {
    Model::new().check("dump_vs_spawn", || {
        let runtime = at_rest::<1>();
        let both = Parts::of(2);
        let dumper = loom::thread::spawn({
            let (handle, both) = (Handle::of(&runtime), both.clone());
            move || {
                drop(handle.dump());
                both.held();
            }
        });
        let spawned = runtime.go(move || both.held());
        dumper.join().unwrap();
        spawned.join().unwrap();
    });
}

/// Fails by a causality violation when a G whose park was refused goes on while a dump reads its stack.
#[test]
fn a_refused_park_waits_for_a_dump() {
    Model::new().preemptions(3).check("dump_vs_refusal", || {
        let runtime = at_rest::<1>();
        let both = Parts::of(2);
        let refused = runtime.go({
            let both = both.clone();
            move || {
                let parked = park(|_| false);
                both.held();
                parked
            }
        });
        drop(Handle::of(&runtime).dump());
        both.held();
        assert_eq!(refused.join().unwrap(), Parked::Refused);
    });
}

/// As `a_refused_park_waits_for_a_dump`, with a second M, which runs the goroutine once the dump has let it go, while the first
/// M has other work. By then the first M is done with the hook, which lies on the goroutine's stack.
#[test]
fn a_refused_park_that_a_dump_has_queued_is_over_on_the_first_m() {
    Model::new().preemptions(2).check("dump_vs_refusal_elsewhere", || {
        let runtime = runtime(2, 2);
        let [there, begins, free, ended]: [Flag; 4] = Default::default();
        let _elsewhere = runtime.go({
            let (there, free) = (there.clone(), free.clone());
            move || {
                there.raise();
                free.wait_on_thread();
            }
        });
        let refused = runtime.go({
            let (begins, ended) = (begins.clone(), ended.clone());
            move || {
                there.wait_on_thread();
                drop(crate::go(move || ended.wait_on_thread()));
                loom::explore();
                begins.raise();
                assert_eq!(park(|_| false), Parked::Refused);
                done();
            }
        });
        begins.wait_on_thread();
        drop(Handle::of(&runtime).dump());
        free.raise();
        refused.join().unwrap();
        ended.raise();
    });
}

/// Fails by a causality violation when a dump reads the stack of a yielding goroutine before the goroutine is saved.
#[test]
fn a_dump_reads_a_yielding_g_only_when_it_is_saved() {
    Model::new().check("dump_vs_yield", || {
        let runtime = at_rest::<1>();
        let yields = runtime.go(crate::yield_now);
        drop(Handle::of(&runtime).dump());
        yields.join().unwrap();
        done();
    });
}

/// Fails by an assertion when a refused park leaves its wait open, or does not return.
#[test]
fn a_refused_park_goes_on_at_once() {
    Model::new().check("refused_park", || {
        let runtime = at_rest::<1>();
        assert_eq!(runtime.run(|| park(|_| false)), Parked::Refused);
        assert_eq!(park(|_| false), Parked::Refused);
        done();
    });
}

/// Fails by deadlock when a thread's ready is lost.
#[test]
fn a_plain_thread_parks_and_is_readied() {
    Model::new().unbounded().check("thread_park", || {
        let place = Place::new();
        let waker = loom::thread::spawn({
            let place = place.clone();
            move || assert!(place.waiter().wake())
        });
        place.wait();
        waker.join().unwrap();
    });
}

/// A dump has found a goroutine that then ends, and the next goroutine gets its G before the dump looks at that G. Fails by a
/// causality violation.
#[test]
fn a_dump_that_knows_a_g_from_the_goroutine_before_reads_the_next() {
    Model::new().preemptions(2).check("dump_vs_reuse", || {
        let runtime = runtime(1, 1);
        let (begins, start) = (Flag::default(), Flag::default());
        let maker = runtime.go({
            let (begins, start) = (begins.clone(), start.clone());
            move || {
                drop(crate::go(|| ()));
                begins.raise();
                start.wait_on_thread();
                // The found goroutine ends meanwhile.
                crate::yield_now();
                drop(crate::go(|| ()));
                crate::yield_now();
            }
        });
        begins.wait_on_thread();
        loom::explore();
        start.raise();
        drop(Handle::of(&runtime).dump());
        done();
        maker.join().unwrap();
    });
}

/// Two dumps read one goroutine, which is woken meanwhile and goes on. Fails by a causality violation when the first dump lets
/// the goroutine go for both, or by an assertion of the word.
#[test]
fn two_dumps_hold_a_g_one_after_the_other() {
    Model::new().preemptions(1).check("dump_vs_dump", || {
        let runtime = runtime(1, 1);
        let place = Place::new();
        let parts = Parts::of(3);
        let parker = runtime.go({
            let (place, parts) = (place.clone(), parts.clone());
            move || {
                place.wait();
                parts.held();
            }
        });
        let waiter = place.waiter();
        let dumps = move |handle: Handle, parts: Parts| {
            drop(handle.dump());
            parts.held();
        };
        let other = loom::thread::spawn({
            let (handle, parts) = (Handle::of(&runtime), parts.clone());
            move || dumps(handle, parts)
        });
        loom::explore();
        assert!(waiter.wake());
        dumps(Handle::of(&runtime), parts);
        parker.join().unwrap();
        other.join().unwrap();
    });
}

/// A goroutine was deferred to one dump, and not to the next one. Fails when the second dump queues the goroutine again.
#[test]
fn what_a_dump_has_deferred_is_queued_once() {
    Model::new().preemptions(1).check("dump_after_dump", || {
        let runtime = runtime(1, 1);
        let place = Place::new();
        let parts = Parts::of(2);
        let parker = runtime.go({
            let (place, parts) = (place.clone(), parts.clone());
            move || {
                place.wait();
                crate::yield_now();
                parts.held();
            }
        });
        let waiter = place.waiter();
        let dumper = loom::thread::spawn({
            let handle = Handle::of(&runtime);
            move || {
                (0..2).for_each(|_| drop(handle.dump()));
                parts.held();
            }
        });
        loom::explore();
        assert!(waiter.wake());
        parker.join().unwrap();
        dumper.join().unwrap();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::ParkStatusAfterCommit, "a_ready_right_after_the_commit_is_not_lost"),
            (Mutant::ParkStatusRelaxed, "a_dump_reads_a_g_that_parks_only_when_it_is_saved"),
            (Mutant::ClaimAnyWait, "of_two_readiers_one_wins_and_the_late_one_touches_no_later_wait"),
            (Mutant::SpawnRelaxed, "a_dump_reads_no_half_made_g"),
            (Mutant::SpawnRelaxed, "a_dump_that_knows_a_g_from_the_goroutine_before_reads_the_next"),
            (Mutant::CancelParkIgnoresScan, "a_refused_park_waits_for_a_dump"),
            (Mutant::CancelParkWithoutAcquire, "a_refused_park_waits_for_a_dump"),
            (
                Mutant::CancelParkWithoutRelease,
                "a_refused_park_that_a_dump_has_queued_is_over_on_the_first_m",
            ),
            (Mutant::ReadyRelaxed, "a_dump_holds_a_g_without_losing_its_ready"),
            (Mutant::DumpLetsGoFirst, "a_dump_holds_a_g_without_losing_its_ready"),
            (Mutant::HoldRelaxed, "a_dump_reads_a_g_that_parks_only_when_it_is_saved"),
            (Mutant::RunWithoutAcquire, "a_dump_reads_a_yielding_g_only_when_it_is_saved"),
            (Mutant::UnholdWithoutAcquire, "a_g_that_is_held_when_its_turn_comes_is_run"),
            (Mutant::UnholdWithoutRelease, "a_dump_reads_a_yielding_g_only_when_it_is_saved"),
            (Mutant::RequeueRelaxed, "a_dump_reads_a_yielding_g_only_when_it_is_saved"),
            (Mutant::RunHeldWithoutRelease, "a_g_that_is_held_when_its_turn_comes_is_run"),
            (Mutant::ReadyIgnoresScan, "a_dump_holds_a_g_without_losing_its_ready"),
            (Mutant::HoldTwice, "two_dumps_hold_a_g_one_after_the_other"),
            (Mutant::UnholdKeepsDeferred, "what_a_dump_has_deferred_is_queued_once"),
        ],
    );
}
