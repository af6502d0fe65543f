//! Promises whose receiver, sender or channel goes before the message has come.

use super::promises::{SHORT_LIMIT, WAYS, Way, call_off, end_of_kept, in_suspense, promise, waiting};
use common::child;
use common::crew::{Member, everyone, on_thread};
use common::gate::Gate;
use common::{PROCS, runtime, until, watched};
use gmp::chan::{Receiver, RecvError, Select, SendError, TryRecvError, TrySendError, bounded, unbounded};
use gmp::context::Context;
use gmp::{Runtime, select};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

/// Makes a goroutine of this runtime do this, and returns when that goroutine waits.
fn wait_on(rt: &Runtime, f: impl FnOnce() + Send + 'static) {
    Member::Goroutine(rt, rt.go(f)).until_it_waits();
}

/// A runtime with a goroutine that waits for a message.
fn with_a_receiver(procs: usize, r: &Receiver<u32>, way: Way) -> Runtime {
    let (rt, r) = (runtime(procs), r.clone());
    wait_on(&rt, move || unreachable!("{:?}", way(&r)));
    rt
}

/// Takes every P of a runtime, and keeps it from all goroutines until the gate is open; in a process without retakes.
fn keep_all(rt: &Runtime, procs: usize, gate: &Gate) {
    let kept = Arc::new(AtomicUsize::new(0));
    for _ in 0..procs {
        let (kept, gate) = (Arc::clone(&kept), gate.clone());
        drop(rt.go(move || {
            kept.fetch_add(1, SeqCst);
            while !gate.is_open() {
                thread::yield_now();
            }
        }));
    }
    until(|| kept.load(SeqCst) == procs);
}

/// Fails if the message is lost: the receiver that was put back will never look for it.
#[test]
fn a_receiver_that_is_put_back_after_the_end_of_its_runtime_gets_nothing() {
    for procs in PROCS {
        watched(procs, || {
            for way in WAYS {
                let (s, r) = bounded(0);
                let rt = with_a_receiver(procs, &r, way);
                let promise = promise(&s);
                // Its wait is claimed, so the runtime would wait for it.
                rt.shutdown(SHORT_LIMIT);
                call_off(promise);
                assert_eq!(s.try_send(5), Err(TrySendError::Full(5)));
            }
        });
    }
}

/// Fails by a hang when the message is handed to a goroutine that was left behind, and the present waiter gets none.
#[test]
fn a_promise_to_a_left_receiver_is_kept_with_another() {
    everyone(|crew| {
        for (procs, way) in [(1, WAYS[0]), (2, WAYS[1])] {
            let (s, r) = bounded(0);
            let rt = with_a_receiver(procs, &r, way);
            let mut receiver = None;
            in_suspense(
                crew,
                &s,
                || {
                    // The receiver's wait is claimed, as above.
                    rt.shutdown(SHORT_LIMIT);
                    receiver = Some(waiting(crew, move || way(&r)));
                },
                |promise, s| promise.send(s, 5).unwrap(),
            );
            assert_eq!(receiver.unwrap().join(), Ok(5));
        }
    });
}

/// A select waits to send, a receiver claims it, and the select does not run again before its runtime ends. Fails by a hang:
/// the receiver waits for its message.
#[test]
fn the_end_of_a_runtime_tells_the_receiver_of_a_select_that_was_chosen_and_has_not_run() {
    child::without_retakes(
        "the_end_of_a_runtime_tells_the_receiver_of_a_select_that_was_chosen_and_has_not_run",
        || {
            everyone(|crew| {
                for procs in [1, 2] {
                    let (rt, gate, (s, r)) = (runtime(procs), Gate::default(), bounded(0));
                    let theirs = s.clone();
                    wait_on(&rt, move || select! { send(theirs, 1) -> _ => {} });
                    keep_all(&rt, procs, &gate);
                    let receiver = waiting(crew, move || r.recv());
                    end_of_kept(rt, &gate, false);
                    assert_eq!(s.send(2), Ok(()));
                    assert_eq!(receiver.join(), Ok(2));
                }
            });
        },
    );
}

/// A thread tries to receive from such a select, and gives up before the select has run. Fails by a hang of the thread, or if
/// the end of the runtime looks for the thread, which has gone.
#[test]
fn a_select_that_was_chosen_may_be_left_behind_after_its_receiver_has_gone() {
    child::without_retakes("a_select_that_was_chosen_may_be_left_behind_after_its_receiver_has_gone", || {
        for procs in PROCS {
            watched(procs, || {
                let (rt, gate, (s, r)) = (runtime(procs), Gate::default(), bounded(0));
                let theirs = s.clone();
                wait_on(&rt, move || select! { send(theirs, 1) -> _ => {} });
                keep_all(&rt, procs, &gate);
                let theirs = r.clone();
                assert_eq!(on_thread(move || theirs.try_recv()).join(), Err(TryRecvError::Empty));
                end_of_kept(rt, &gate, false);
                assert_eq!(s.try_send(2), Err(TrySendError::Full(2)));
                drop(r);
            });
        }
    });
}

/// A goroutine that the end of a context has woken is queued for a P when its runtime ends. Fails if the goroutine's wait is
/// still open, and a message is lost in it.
#[test]
fn a_receiver_that_was_interrupted_and_has_not_run_when_its_runtime_ends_gets_nothing() {
    child::without_retakes(
        "a_receiver_that_was_interrupted_and_has_not_run_when_its_runtime_ends_gets_nothing",
        || {
            for (procs, in_time) in PROCS.into_iter().flat_map(|procs| [(procs, true), (procs, false)]) {
                watched(procs, || {
                    for way in WAYS {
                        let (rt, gate, (s, r)) = (runtime(procs), Gate::default(), bounded(0));
                        let (ctx, cancel) = Context::background().with_cancel();
                        let theirs = r.clone();
                        wait_on(&rt, move || {
                            let _it_has_run_after_all = ctx.run(|| way(&theirs));
                        });
                        keep_all(&rt, procs, &gate);
                        cancel.cancel();
                        end_of_kept(rt, &gate, in_time);
                        assert_eq!(s.try_send(5), Err(TrySendError::Full(5)));
                    }
                });
            }
        },
    );
}

/// The only sender of a reply comes in a message whose last receiver goes while that message is evaluated. Fails when the send
/// succeeds: the message, with the reply that its sender waits for, would stay in the channel for ever.
#[test]
fn a_message_comes_back_when_the_last_receiver_has_gone() {
    everyone(|crew| {
        for (dynamic, closes) in [(false, false), (false, true), (true, false), (true, true)] {
            for (work, jobs) in [bounded(1), bounded(4), unbounded()] {
                let (promised, gone) = (Gate::default(), Gate::default());
                let asks = crew.go({
                    let (promised, gone) = (promised.clone(), gone.clone());
                    move || {
                        let (reply, answer) = bounded::<()>(1);
                        let meanwhile = || {
                            promised.open();
                            gone.pass();
                        };
                        let sent = if dynamic {
                            let mut select = Select::new();
                            select.send(&work);
                            let promise = select.select();
                            meanwhile();
                            promise.send(&work, reply)
                        } else {
                            select! { send(work, { meanwhile(); reply }) -> sent => sent }
                        };
                        let SendError(reply) = sent.unwrap_err();
                        assert_eq!((work.len(), work.try_send(reply).is_err()), (0, true));
                        answer.recv()
                    }
                });
                promised.pass();
                let last = jobs.clone();
                drop(jobs);
                assert!(!closes || last.close());
                drop(last);
                gone.open();
                assert_eq!(asks.join(), Err(RecvError));
            }
        }
    });
}

/// Fails by an error or a hang when a close that leaves a receiver ends a promise.
#[test]
fn a_promise_to_a_closed_channel_is_kept_as_long_as_a_receiver_is_there() {
    everyone(|crew| {
        for (s, r) in [bounded(1), unbounded()] {
            let other = r.clone();
            let sent = in_suspense(
                crew,
                &s,
                || {
                    assert!(s.close());
                    drop(other);
                },
                |promise, s| promise.send(s, 7),
            );
            assert_eq!((sent, r.recv(), r.recv()), (Ok(()), Ok(7), Err(RecvError)));
        }
    });
}

/// A value whose drop counts, and panics unless the thread is panicking already.
struct Bad(Arc<AtomicUsize>);

impl Drop for Bad {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
        if !thread::panicking() {
            resume_unwind(Box::new("bad"));
        }
    }
}

/// Drops a value that holds a `Bad`. Returns the number of drops until then.
fn drop_bad<T>(drops: &Arc<AtomicUsize>, bad: T) -> usize {
    let unwound = catch_unwind(AssertUnwindSafe(|| drop(bad)));
    assert_eq!(unwound.unwrap_err().downcast_ref(), Some(&"bad"));
    drops.load(SeqCst)
}

/// Fails if a message whose drop panics is dropped twice, keeps others from being dropped, or breaks the channel.
#[test]
fn a_drop_that_panics_is_survived_where_a_channel_drops_a_message() {
    everyone(|crew| {
        crew.run(|| {
            let drops = Arc::new(AtomicUsize::new(0));
            let bad = || Bad(Arc::clone(&drops));
            let (s, r) = bounded(3);
            (0..3).for_each(|_| assert!(s.send(bad()).is_ok()));
            assert_eq!(drop_bad(&drops, r), 3, "the last receiver takes what is left with it");
            let given_back = s.try_send(bad());
            assert!(given_back.is_err());
            assert_eq!(drop_bad(&drops, given_back), 4);

            let (s, r) = bounded(3);
            assert!(s.send(bad()).is_ok());
            let mut select = Select::new();
            select.recv(&r);
            assert_eq!(drop_bad(&drops, select.select()), 5, "it was received, and not taken");
            assert!(s.send(bad()).is_ok());
            let got = r.try_recv();
            assert!(got.is_ok() && r.is_empty());
            assert_eq!(drop_bad(&drops, got), 6);
            drop((s, r));
            assert_eq!(drops.load(SeqCst), 6);
        });
    });
}
