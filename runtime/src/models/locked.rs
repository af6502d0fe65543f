//! Bound goroutines, and threads that end: no M waits for a goroutine that another M has brought already, or that never comes.
//!
//! *The mutants* take out the looks of an M before it waits for its goroutine or ends, the wakes of that M, by the M that
//! brings a P and by the ender, StopmFence, and the looks at the queues when no other thread is allowed.

use super::caught;
use super::cover::{Handle, blocking_here, park_for_ever};
use crate::model::{Flag, Model, Mutant, Parked, Parts, Waiter, at_rest, done, park, runtime, together};
use crate::{JoinHandle, Runtime};
use crate::{go, lock_os_thread, yield_now};
use loom::sync::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// A place in which a goroutine waits, and a waker finds it.
#[derive(Clone, Default)]
struct Place(Arc<(Mutex<Option<Waiter>>, Condvar)>);

impl Place {
    /// Parks the calling goroutine here.
    fn park(&self) {
        let there = self.clone();
        let parked = park(move |waiter| {
            *there.0.0.lock().unwrap() = Some(waiter);
            there.0.1.notify_all();
            true
        });
        assert_eq!(parked, Parked::Readied);
    }

    /// Blocks the thread until a goroutine parks here.
    fn wait_on_thread(&self) {
        let mut place = self.0.0.lock().unwrap();
        while place.is_none() {
            place = self.0.1.wait(place).unwrap();
        }
    }

    /// Wakes the goroutine that parks here, now or later.
    fn wake(&self) {
        let mut place = self.0.0.lock().unwrap();
        let waiter = loop {
            match place.take() {
                Some(waiter) => break waiter,
                None => place = self.0.1.wait(place).unwrap(),
            }
        };
        drop(place);
        // At the end of the runtime the ender claims the wait.
        let _woken = waiter.wake();
    }
}

/// Locks the caller to its thread; fails if the caller is on another thread afterwards.
struct Own(loom::thread::ThreadId);

impl Own {
    fn lock() -> Self {
        lock_os_thread();
        Own(loom::thread::current().id())
    }

    fn check(&self) {
        assert_eq!(loom::thread::current().id(), self.0, "a bound goroutine has left its thread");
    }
}

/// A bound goroutine parks and is readied from outside at the same time. Fails by deadlock when its M falls asleep although the
/// goroutine was brought, or when that M is not woken; by an assertion when the other M runs the goroutine.
#[test]
fn a_bound_goroutine_that_is_readied_as_its_m_falls_asleep_runs() {
    Model::new().check("bound_ready_vs_sleep", || {
        let runtime = at_rest::<2>();
        let place = Place::default();
        let there = place.clone();
        let bound = runtime.go(move || {
            let own = Own::lock();
            there.park();
            own.check();
            done();
        });
        place.wake();
        bound.join().unwrap();
    });
}

/// As `a_bound_goroutine_that_is_readied_as_its_m_falls_asleep_runs`, with one P, which the bound goroutine's M has
/// to give away. Fails by deadlock when that M keeps the P.
#[test]
fn the_p_of_a_bound_goroutine_that_parks_goes_to_others() {
    Model::new().check("bound_gives_p", || {
        let runtime = runtime(1, 2);
        let place = Place::default();
        let there = place.clone();
        let bound = runtime.go(move || {
            let own = Own::lock();
            // This goroutine is the waker, and needs the P.
            let wakes = there.clone();
            drop(go(move || wakes.wake()));
            loom::explore();
            there.park();
            own.check();
            done();
        });
        bound.join().unwrap();
    });
}

/// A bound goroutine yields while another is queued. Fails by deadlock when one of the two is lost.
#[test]
fn a_bound_goroutine_that_yields_comes_back() {
    Model::new().check("bound_yield", || {
        let runtime = runtime(1, 2);
        let bound = runtime.go(move || {
            let own = Own::lock();
            let other = go(|| ());
            loom::explore();
            yield_now();
            own.check();
            other.join().unwrap();
            own.check();
            done();
        });
        bound.join().unwrap();
    });
}

/// A bound goroutine yields beside an idle P. At that moment its M finds another goroutine, which keeps its thread until the
/// bound one has run on. Fails by deadlock when only one M is woken for the two.
#[test]
fn a_bound_goroutine_that_yields_to_what_it_has_found_is_run_beside_it() {
    Model::new().preemptions(1).check("bound_yield_finds", || {
        let runtime = runtime(2, 3);
        let handle = Handle::of(&runtime);
        let bound = runtime.go(move || {
            let own = Own::lock();
            handle.await_poller();
            let ran_on = Flag::default();
            let waits = ran_on.clone();
            // As if the M that was woken for the goroutine had looked when the goroutine was out of the queue, and not in the
            // ring yet.
            handle.queue_globally_in_silence([handle.make(move || waits.wait_on_thread())]);
            handle.have_a_visit_come();
            loom::explore();
            yield_now();
            own.check();
            ran_on.raise();
            done();
        });
        bound.join().unwrap();
    });
}

/// A bound goroutine comes back without a P while the M that has the P goes idle. Fails by deadlock when the
/// goroutine is queued where no M looks, or its M is not woken.
#[test]
fn a_bound_goroutine_that_comes_back_without_a_p_is_brought_one() {
    Model::new().check("bound_come_back", || {
        let runtime = runtime(1, 2);
        let (away, there, go_on) = (Flag::default(), Flag::default(), Flag::default());
        let comes_back = runtime.go({
            let (away, there, go_on) = (away.clone(), there.clone(), go_on.clone());
            move || {
                let own = Own::lock();
                crate::blocking(|| {
                    away.raise();
                    there.wait_on_thread();
                    loom::explore();
                    go_on.raise();
                });
                own.check();
                done();
            }
        });
        let _last = runtime.go(move || {
            away.wait_on_thread();
            there.raise();
            go_on.wait_on_thread();
        });
        comes_back.join().unwrap();
    });
}

/// A bound goroutine comes back to an idle P, behind a goroutine in the global queue: with another M, which is summoned for the
/// queued goroutine, and without one. Fails by deadlock when the bound goroutine's M keeps the P, or is forgotten.
#[test]
fn a_bound_goroutine_that_comes_back_behind_others_is_run() {
    for threads in [1, 2] {
        Model::new().check("bound_behind_others", move || {
            let runtime = runtime(1, threads);
            let (handle, both) = (Handle::of(&runtime), Parts::of(2));
            let comes_back = runtime.go(move || {
                let (own, part) = (Own::lock(), both.clone());
                let other = crate::blocking(|| {
                    while threads > 1 && !handle.is_poller_occupied() {
                        loom::thread::yield_now();
                    }
                    loom::explore();
                    go(move || part.held())
                });
                own.check();
                both.held();
                other
            });
            let other = comes_back.join().unwrap();
            other.join().unwrap();
        });
    }
}

/// Another M finds a bound goroutine before the goroutine's own M has begun to wait for it. Fails by deadlock when the own
/// M does not see that the goroutine was brought.
#[test]
fn a_bound_goroutine_may_be_brought_before_its_m_waits() {
    Model::new().check("bound_brought_early", || {
        let runtime = runtime(2, 2);
        let place = Place::default();
        let there = place.clone();
        let parks = move || {
            let own = Own::lock();
            there.park();
            own.check();
            done();
        };
        let both = together(&runtime, [Box::new(parks), Box::new(move || place.wake())]);
        both.into_iter().for_each(|goroutine| goroutine.join().unwrap());
    });
}

/// The runtime ends as a bound goroutine parks. Fails by deadlock when the goroutine's M waits for it all the same.
#[test]
fn the_end_of_a_runtime_meets_an_m_that_begins_to_wait() {
    Model::new().check("end_vs_bound_park", || {
        let runtime = runtime(1, 1);
        let (locked, ready) = (Flag::default(), Flag::default());
        let (raised, go_on) = (locked.clone(), ready.clone());
        let bound = runtime.go(move || {
            lock_os_thread();
            raised.raise();
            go_on.wait_on_thread();
            park_for_ever();
        });
        locked.wait_on_thread();
        loom::explore();
        ready.raise();
        assert_eq!(super::cover::leave(runtime, Duration::from_secs(1)).threads_left(), 0);
        assert!(bound.join().is_err_and(|error| error.is_shutdown()));
        done();
    });
}

/// The runtime ends as a bound goroutine is brought to its M. Fails by deadlock when that M was not told of the end, or
/// when the finder does not see that the M has gone.
#[test]
fn the_end_of_a_runtime_meets_a_bound_goroutine_on_its_way() {
    Model::new().check("end_vs_bring", || {
        let runtime = runtime(1, 2);
        let place = Place::default();
        let there = place.clone();
        let bound = runtime.go(move || {
            lock_os_thread();
            there.park();
        });
        place.wait_on_thread();
        while !Handle::of(&runtime).is_poller_occupied() {
            loom::thread::yield_now();
        }
        loom::explore();
        place.wake();
        assert_eq!(super::cover::leave(runtime, Duration::from_secs(1)).threads_left(), 0);
        let _ended_or_left = bound.join();
        done();
    });
}

/// The only thread that the limit allows waits for its bound goroutine, which is readied from outside. Fails by deadlock when
/// that thread sleeps on: no other M can bring the goroutine.
#[test]
fn a_bound_goroutine_needs_no_other_thread() {
    Model::new().check("bound_rescued", || {
        let runtime = at_rest::<1>();
        let place = Place::default();
        let there = place.clone();
        let bound = runtime.go(move || {
            let own = Own::lock();
            there.park();
            own.check();
            // Now a goroutine stands in the queue.
            drop(go(|| ()));
            yield_now();
            own.check();
            done();
        });
        place.wake();
        bound.join().unwrap();
    });
}

/// A bound goroutine parks in `place`. Once it has been readied it keeps its thread until `ran` is raised. Returns when it has
/// parked, and an M is in the poller.
fn bound_in_place(runtime: &Runtime, place: &Place, ran: &Flag) -> JoinHandle<()> {
    let (there, ran) = (place.clone(), ran.clone());
    let bound = runtime.go(move || {
        let own = Own::lock();
        there.park();
        own.check();
        ran.wait_on_thread();
        done();
    });
    place.wait_on_thread();
    while !Handle::of(runtime).is_poller_occupied() {
        loom::thread::yield_now();
    }
    bound
}

/// All three threads that the limit allows are taken: one waits for its bound goroutine, one blocks without its P, which is
/// idle beside a goroutine in the global queue, and the last one brings the bound goroutine the other P. Fails by deadlock when
/// that last M then sleeps: no M runs the goroutine for which the bound one waits.
#[test]
fn at_the_limit_an_m_that_brings_a_bound_goroutine_sees_the_global_queue() {
    Model::new().preemptions(1).check("bringer_at_limit", || {
        let runtime = runtime(2, 3);
        let (place, ran, alone) = (Place::default(), Flag::default(), Flag::default());
        let bound = bound_in_place(&runtime, &place, &ran);
        let begun = Flag::default();
        let _wakes = runtime.go({
            let (begun, alone) = (begun.clone(), alone.clone());
            move || {
                begun.raise();
                alone.wait_on_thread();
                loom::explore();
                place.wake();
            }
        });
        begun.wait_on_thread();
        let _blocks = runtime.go(move || {
            let raised = ran.clone();
            drop(go(move || raised.raise()));
            crate::blocking(|| {
                alone.raise();
                ran.wait_on_thread();
            });
        });
        bound.join().unwrap();
    });
}

/// The only M that could run another goroutine brings a bound one the P in whose ring that goroutine stands, while the other
/// P is idle. Fails by deadlock when the M then sleeps: the bound goroutine waits for the other one.
#[test]
fn at_the_limit_an_m_that_brings_a_bound_goroutine_sees_the_ring() {
    Model::new().preemptions(1).check("bringer_gives_ring", || {
        let runtime = runtime(2, 2);
        let (place, ran) = (Place::default(), Flag::default());
        let bound = bound_in_place(&runtime, &place, &ran);
        let _wakes = runtime.go(move || {
            loom::explore();
            drop(go(move || ran.raise()));
            place.wake();
        });
        bound.join().unwrap();
    });
}

/// A P is idle, and there is no M for it. A goroutine readies a bound one: its M claims to spin, undoes the claim, brings the
/// bound goroutine the P, and stands by. Another goroutine has read the claim, and so has woken no M for the goroutine that it
/// has spawned. Fails by deadlock when the M that stands by does not see the spawned goroutine in the ring.
#[test]
fn at_the_limit_an_m_that_stands_by_sees_what_was_left_to_a_claim() {
    Model::new().preemptions(1).check("claim_undone_at_limit", || {
        let runtime = runtime(3, 3);
        let (place, ran) = (Place::default(), Flag::default());
        let bound = bound_in_place(&runtime, &place, &ran);
        let spawns = move || {
            let raised = ran.clone();
            drop(go(move || raised.raise()));
            ran.wait_on_thread();
        };
        let _both = together(&runtime, [Box::new(spawns), Box::new(move || place.wake())]);
        bound.join().unwrap();
    });
}

/// Fails by deadlock, or by an assertion, when the calling thread is not brought its main goroutine, or is not released.
#[test]
fn main_runs_locked_to_its_caller() {
    Model::new().check("run_locked", || {
        let runtime = at_rest::<1>();
        let caller = loom::thread::current().id();
        // SAFETY: the goroutines keep nothing of a thread.
        let sum = unsafe {
            runtime.run_locked(|| {
                let one = go(|| 1).join().unwrap();
                assert_eq!(loom::thread::current().id(), caller);
                one + 1
            })
        };
        assert_eq!(sum, 2);
        assert!(crate::current().is_none());
        done();
    });
}

/// A goroutine ends locked, and its thread with it, while another goroutine is submitted. Fails by deadlock when the P goes
/// with the thread, by an assertion when that thread runs the other goroutine.
#[test]
fn a_thread_that_ends_leaves_its_p() {
    Model::new().preemptions_by_default(1).check("end_locked", || {
        let runtime = at_rest::<1>();
        let ends = runtime.go(|| Own::lock().0);
        let other = runtime.go(|| loom::thread::current().id());
        let threads = [ends.join().unwrap(), other.join().unwrap()];
        done();
        assert_ne!(threads[0], threads[1], "a goroutine that ends locked takes its thread along");
    });
}

/// An M that is not needed ends while another M takes it to wake it. Fails by deadlock when the M that ends keeps the P that it
/// was given, or when that M can't be taken any more, but still counts as a thread, so that no other thread is started. The M
/// stands by because its goroutine came back without a P.
#[test]
fn an_m_that_was_just_taken_does_not_end() {
    Model::new().check("idle_end_vs_taken", || {
        loom::stop_exploring();
        let builder = Runtime::builder().procs(1).max_threads(2).thread_keep_alive(Duration::ZERO);
        // SAFETY: the goroutines keep nothing of a thread.
        let runtime = unsafe { builder.build() }.unwrap();
        let (away, there, go_on) = (Flag::default(), Flag::default(), Flag::default());
        let comes_back = runtime.go({
            let (away, there, go_on) = (away.clone(), there.clone(), go_on.clone());
            move || {
                crate::blocking(|| {
                    away.raise();
                    there.wait_on_thread();
                    loom::explore();
                    go_on.raise();
                });
                // The goroutine is on the other M now, unless that M has ended first.
                let ran = Flag::default();
                let raised = ran.clone();
                drop(go(move || raised.raise()));
                crate::blocking(|| ran.wait_on_thread());
                done();
            }
        });
        let _last = runtime.go(move || {
            away.wait_on_thread();
            there.raise();
            go_on.wait_on_thread();
        });
        comes_back.join().unwrap();
    });
}

/// As `an_m_that_was_just_taken_does_not_end`, but the goroutine puts in a job, and wakes no M: as if the goroutine had found
/// the M that ends while that M still counted as a thread.
#[test]
fn an_m_that_ends_leaves_no_job() {
    Model::new().preemptions_by_default(1).check("idle_end_vs_job", || {
        loom::stop_exploring();
        let builder = Runtime::builder().procs(1).max_threads(2).thread_keep_alive(Duration::ZERO);
        // SAFETY: the goroutines keep nothing of a thread.
        let runtime = unsafe { builder.build() }.unwrap();
        let handle = Handle::of(&runtime);
        let (away, there, go_on) = (Flag::default(), Flag::default(), Flag::default());
        let comes_back = runtime.go({
            let (away, there, go_on) = (away.clone(), there.clone(), go_on.clone());
            move || {
                crate::blocking(|| {
                    away.raise();
                    there.wait_on_thread();
                    loom::explore();
                    go_on.raise();
                });
                yield_now();
                // The goroutine is on the other M now, unless that M has ended first.
                let ran = Flag::default();
                let raises = ran.clone();
                handle.put_job_in_silence(handle.make(move || raises.raise()));
                blocking_here(|| ran.wait_on_thread());
                done();
            }
        });
        let _last = runtime.go(move || {
            away.wait_on_thread();
            there.raise();
            go_on.wait_on_thread();
        });
        comes_back.join().unwrap();
    });
}

/// As `a_bound_goroutine_needs_no_other_thread`, while a dump reads the bound goroutine. Fails when the goroutine's M
/// is woken for it, and runs it, while the dump holds it.
#[test]
fn a_bound_goroutine_that_a_dump_holds_is_rescued_later() {
    Model::new().preemptions(2).check("bound_rescued_vs_dump", || {
        let runtime = runtime(1, 1);
        let place = Place::default();
        let there = place.clone();
        let bound = runtime.go(move || {
            let own = Own::lock();
            there.park();
            own.check();
            done();
        });
        place.wait_on_thread();
        let dumper = loom::thread::spawn({
            let handle = Handle::of(&runtime);
            move || drop(handle.dump())
        });
        loom::explore();
        place.wake();
        bound.join().unwrap();
        dumper.join().unwrap();
    });
}

#[test]
fn mutants() {
    let readied = "a_bound_goroutine_that_is_readied_as_its_m_falls_asleep_runs";
    let on_its_way = "the_end_of_a_runtime_meets_a_bound_goroutine_on_its_way";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::BoundRunsAnywhere, readied),
            (Mutant::BoundRunsAnywhere, "a_bound_goroutine_that_yields_comes_back"),
            (Mutant::BoundRunsAnywhere, "a_bound_goroutine_that_comes_back_behind_others_is_run"),
            (Mutant::BoundRunsAnywhere, "a_bound_goroutine_may_be_brought_before_its_m_waits"),
            (Mutant::BoundRunsAnywhere, "main_runs_locked_to_its_caller"),
            (Mutant::BoundNotWoken, readied),
            (
                Mutant::BoundOverlooksAssignment,
                "a_bound_goroutine_that_comes_back_without_a_p_is_brought_one",
            ),
            (Mutant::BoundKeepsItsP, "the_p_of_a_bound_goroutine_that_parks_goes_to_others"),
            (Mutant::BoundIgnoresTheEnd, "the_end_of_a_runtime_meets_an_m_that_begins_to_wait"),
            (Mutant::BoundBroughtAtTheEnd, on_its_way),
            (Mutant::StopForgetsTheBound, on_its_way),
            (Mutant::BoundNotRescued, "a_bound_goroutine_needs_no_other_thread"),
            (
                Mutant::BringerSkipsGlobal,
                "at_the_limit_an_m_that_brings_a_bound_goroutine_sees_the_global_queue",
            ),
            (Mutant::StopmSkipsRings, "at_the_limit_an_m_that_brings_a_bound_goroutine_sees_the_ring"),
            (Mutant::StopmNoFence, "at_the_limit_an_m_that_stands_by_sees_what_was_left_to_a_claim"),
            (Mutant::IdleEndsBlindly, "an_m_that_was_just_taken_does_not_end"),
            (Mutant::EndKeepsItsP, "a_thread_that_ends_leaves_its_p"),
            (Mutant::EndLooksAtNoQueue, "an_m_that_was_just_taken_does_not_end"),
            (Mutant::EndLooksAtNoJobs, "an_m_that_ends_leaves_no_job"),
            (
                Mutant::BoundYieldsInSilence,
                "a_bound_goroutine_that_yields_to_what_it_has_found_is_run_beside_it",
            ),
            (Mutant::BoundRescuedHeld, "a_bound_goroutine_that_a_dump_holds_is_rescued_later"),
        ],
    );
}
