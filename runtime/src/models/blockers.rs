//! A goroutine that is about to block while others wait for its P continues on an M without a P: each call is made, whatever
//! the other Ms do meanwhile, and at the limit of threads, too.

use super::caught;
use super::cover::{Handle, blocking_here};
use super::summons::runtime_whose_third_thread_waits;
use crate::model::{Flag, Model, Mutant, done, fall_asleep, refuse_threads, runtime};
use crate::sync::Once;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A goroutine blocks while another goroutine stands in the queue of the same P; if a second thread is allowed, the call lasts
/// until that goroutine has run. Fails by deadlock when the call is left to an M that does not come.
fn blocks_beside_another(max_threads: usize) {
    let runtime = runtime(1, max_threads);
    let blocks = runtime.go(move || {
        let ran = Flag::default();
        let raised = ran.clone();
        drop(crate::go(move || raised.raise()));
        loom::explore();
        crate::blocking(|| {
            if max_threads > 1 {
                ran.wait_on_thread()
            }
        });
        done();
    });
    blocks.join().unwrap();
}

#[test]
fn a_call_is_made_beside_the_goroutine_for_which_it_waits() {
    Model::new().preemptions(2).check("call_beside", || blocks_beside_another(3));
}

/// With one thread, the call blocks that thread.
#[test]
fn a_call_at_the_limit_of_threads_is_made() {
    Model::new().check("call_at_the_limit", || blocks_beside_another(1));
}

/// The thread for the blocker is refused. Then the blocker stands in the global queue, and its call blocks the only M. So the
/// call does not wait for another goroutine here.
#[test]
fn a_call_for_which_the_thread_is_refused_is_made() {
    Model::new().preemptions(2).check("call_refused", || {
        let runtime = runtime(1, 3);
        let blocks = runtime.go(move || {
            drop(crate::go(|| ()));
            refuse_threads();
            loom::explore();
            crate::blocking(|| ());
            done();
        });
        blocks.join().unwrap();
    });
}

/// Two goroutines block, one of them until the other's call is made; one M was sent for both. Fails by deadlock when that M
/// takes the first blocker and sends no other M, or when it still counts as on its way after it has looked.
#[test]
fn the_m_that_takes_a_blocker_sends_one_for_the_next() {
    Model::new().preemptions(2).check("two_calls", || two_calls(4));
}

/// As `the_m_that_takes_a_blocker_sends_one_for_the_next`, with a thread for one call only. The M that makes that call sends
/// the other blocker back to the global queue. By then the M with the P may have gone idle, and into the poller. Fails by
/// deadlock when no M looks at the global queue then.
#[test]
fn the_m_that_takes_a_blocker_looks_for_a_p_for_the_next() {
    Model::new().preemptions(2).check("two_calls_at_the_limit", || two_calls(2));
}

fn two_calls(max_threads: usize) {
    let runtime = runtime(1, max_threads);
    let made = Flag::default();
    let spawner = runtime.go(move || {
        let raised = made.clone();
        // This goroutine stands in the queue behind the next one, so that the next one, too, has another goroutine beside it.
        drop(crate::go(|| ()));
        drop(crate::go(move || crate::blocking(|| raised.raise())));
        loom::explore();
        crate::blocking(|| made.wait_on_thread());
        done();
    });
    spawner.join().unwrap();
}

/// An M that looks for work leaves a goroutine in another P's ring to the owner of that P, idles its own P, and is sent for a
/// blocker just then. The owner's next goroutine keeps its thread until the goroutine in the ring has run, and so does the
/// call. Fails by deadlock when no M comes for the goroutine in the ring: the M that is sent for the blocker has seen that
/// goroutine, and can't come.
#[test]
fn an_m_that_is_sent_leaves_no_work_beside_an_idle_p() {
    Model::new().with_refusals(1).preemptions(1).check("sent_beside_work", || {
        let runtime = runtime(2, 3);
        let handle = Handle::of(&runtime);
        let [there, queued, go_on, ran]: [Flag; 4] = Default::default();
        let blocks = runtime.go({
            let [there, queued, go_on] = [&there, &queued, &go_on].map(Flag::clone);
            move || {
                there.wait_on_thread();
                let [raised, waited] = [&ran, &ran].map(Flag::clone);
                drop(crate::go(move || raised.raise()));
                queued.raise();
                go_on.wait_on_thread();
                handle.queue_next_in_silence(handle.make(move || waited.wait_on_thread()));
                crate::blocking(|| ran.wait_on_thread());
                done();
            }
        });
        let handle = Handle::of(&runtime);
        let idles = runtime.go(move || {
            // A third M is in the poller, so that this one is to stand by on its note.
            blocking_here(|| handle.await_poller());
            there.raise();
            queued.wait_on_thread();
            loom::explore();
            go_on.raise();
        });
        blocks.join().unwrap();
        idles.join().unwrap();
    });
}

/// A thread is being started for a blocker, and waits in a function of the user's until the call is made. Fails by deadlock
/// when the M with the P, which goes to sleep on its note, leaves the blocker to that thread.
#[test]
fn an_m_that_stands_by_takes_the_blocker_of_an_m_that_is_being_started() {
    Model::new().preemptions(1).check("slow_start_for_a_blocker", || {
        let made = Flag::default();
        let runtime = runtime_whose_third_thread_waits(1, &made);
        let handle = Handle::of(&runtime);
        let blocks = runtime.go(move || {
            drop(crate::go(|| ()));
            // The second M makes this call. The first one goes to the poller, and the second one comes back for the P.
            crate::blocking(|| handle.await_poller());
            drop(crate::go(|| ()));
            loom::explore();
            crate::blocking(|| made.raise());
            done();
        });
        blocks.join().unwrap();
    });
}

/// A thread is being started for a blocker, which an M that came back has taken; that M sleeps on its note when the next
/// goroutine blocks. Fails by deadlock when the next blocker is left to the thread, which waits for that blocker's call.
#[test]
fn a_blocker_is_not_left_to_an_m_that_is_being_started_beside_a_sleeping_m() {
    Model::new().preemptions(1).check("slow_start_beside_a_sleeper", || {
        let made = Flag::default();
        let runtime = runtime_whose_third_thread_waits(1, &made);
        let handle = Handle::of(&runtime);
        let [inside, go_on, first]: [Flag; 3] = Default::default();
        let _comes_back = runtime.go({
            let (inside, go_on) = (inside.clone(), go_on.clone());
            move || {
                crate::blocking(|| {
                    inside.raise();
                    go_on.wait_on_thread();
                });
            }
        });
        let blocks = runtime.go(move || {
            inside.wait_on_thread();
            let raises = first.clone();
            drop(crate::go(move || crate::blocking(|| raises.raise())));
            crate::yield_now();
            go_on.raise();
            first.wait_on_thread();
            handle.await_m_on_note();
            drop(crate::go(|| ()));
            loom::explore();
            crate::blocking(|| made.raise());
            done();
        });
        blocks.join().unwrap();
    });
}

/// A goroutine becomes a blocker in the closure of a `Once`, as its runtime ends and leaves its goroutines. Fails by deadlock
/// when its joiner is not told, or the `Once` stays with it; and by an assertion when the M that is on its way stays.
#[test]
fn a_blocker_is_left_at_the_end() {
    Model::new().preemptions(2).check("blocker_at_the_end", || {
        let runtime = runtime(1, 3);
        let (begins, once) = (Flag::default(), Arc::new(Once::new()));
        let blocks = runtime.go({
            let (begins, once) = (begins.clone(), Arc::clone(&once));
            move || {
                once.call_once(|| {
                    let _other = crate::go(|| ());
                    begins.raise();
                    crate::blocking(|| ());
                    crate::yield_now();
                });
            }
        });
        begins.wait_on_thread();
        loom::explore();
        assert_eq!(super::cover::leave(runtime, SECOND).threads_left(), 0);
        drop(blocks.join());
        once.call_once_force(|_| ());
        done();
    });
}

/// An M is started for a blocker, and finds a job and an idle P. Fails by the assertion about the global queue's length, or by
/// deadlock, when that M puts the blocker there, and no M sees it.
#[test]
fn a_blocker_that_waits_for_a_job_is_not_forgotten() {
    Model::new().preemptions(1).check("blocker_beside_a_job", || {
        let runtime = runtime(2, 3);
        fall_asleep::<2>(&runtime);
        let handle = Handle::of(&runtime);
        let blocks = runtime.go(move || {
            handle.put_job_in_silence(handle.make(|| ()));
            handle.queue_in_silence([handle.make(|| ())]);
            loom::explore();
            crate::blocking(|| ());
            done();
        });
        blocks.join().unwrap();
    });
}

#[test]
fn mutants() {
    const BESIDE: &str = "a_call_is_made_beside_the_goroutine_for_which_it_waits";
    const TWO: &str = "the_m_that_takes_a_blocker_sends_one_for_the_next";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::StopForgetsTheBlockers, "a_blocker_is_left_at_the_end"),
            (Mutant::BlockerInTheQueueUnseen, "a_blocker_that_waits_for_a_job_is_not_forgotten"),
            (Mutant::BlockerWakesNobody, BESIDE),
            (
                Mutant::BlockerAwaitsTheStart,
                "a_blocker_is_not_left_to_an_m_that_is_being_started_beside_a_sleeping_m",
            ),
            (
                Mutant::SleeperLeavesTheBlockers,
                "an_m_that_stands_by_takes_the_blocker_of_an_m_that_is_being_started",
            ),
            (Mutant::BlockerQueuedAtTheLimit, "a_call_at_the_limit_of_threads_is_made"),
            (Mutant::BlockersStay, "a_call_for_which_the_thread_is_refused_is_made"),
            (Mutant::BlockerLeavesTheRest, TWO),
            (Mutant::BlockerCountedOnLate, TWO),
            (Mutant::BlockersGoBackUnseen, "the_m_that_takes_a_blocker_looks_for_a_p_for_the_next"),
            (Mutant::SentLeavesTheWork, "an_m_that_is_sent_leaves_no_work_beside_an_idle_p"),
        ],
    );
}
