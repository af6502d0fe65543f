//! `SingleFlight`.

use crate::support::{cast, rounds, with_every_cast};
use common::gate::Gate;
use common::{dumps, everywhere, until};
use gmp::context::{Context, ContextError};
use gmp::sync::SingleFlight;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// Fails by a count when two callers work at the same key at once, or by a hang.
#[test]
fn one_at_a_time_works_at_a_key() {
    with_every_cast(|rt, goroutines, threads| {
        let rounds = rounds(3_000);
        let shared = Arc::new((SingleFlight::new(), [const { AtomicUsize::new(0) }; 3]));
        let theirs = Arc::clone(&shared);
        cast(rt, goroutines, threads, move |number| {
            let (flights, busy) = &*theirs;
            for round in 0..rounds {
                let key = (round + number) % 3;
                let (value, _shared) = flights.work(&key, || {
                    assert_eq!(busy[key].fetch_add(1, SeqCst), 0, "two at once");
                    gmp::yield_now();
                    busy[key].fetch_sub(1, SeqCst);
                    key
                });
                assert_eq!(value, key);
            }
        });
    });
}

/// Fails to compile when a look-up needs an owned key; or by a second call for a key that is used in two forms.
#[test]
fn a_key_is_asked_for_in_a_borrowed_form() {
    everywhere(|rt| {
        let flights = Arc::new(SingleFlight::<String, u32>::new());
        let (begun, gate) = (Arc::new(AtomicBool::new(false)), Gate::default());
        let (theirs, begins, opens) = (Arc::clone(&flights), Arc::clone(&begun), gate.clone());
        let first = rt.go(move || {
            theirs.work("a key", || {
                begins.store(true, SeqCst);
                opens.pass();
                1
            })
        });
        until(|| begun.load(SeqCst));
        let theirs = Arc::clone(&flights);
        let second = rt.go(move || theirs.work(&"a key".to_owned(), || 2));
        until(|| second.is_finished() || waits(&rt, second.id().get()));
        assert_eq!(flights.work("another", || 3), (3, false));
        flights.forget("another");
        gate.open();
        assert_eq!((first.join().unwrap(), second.join().unwrap()), ((1, true), (1, true)));
        // A slice stands for a `Vec`, a path for a `PathBuf`.
        assert_eq!(SingleFlight::<Vec<u8>, _>::new().work(&b"key"[..], || 4).0, 4);
        assert_eq!(SingleFlight::<std::path::PathBuf, _>::new().work(std::path::Path::new("/"), || 5).0, 5);
    });
}

/// Returns `true` if the goroutine waits for the call of another goroutine.
fn waits(rt: &gmp::Runtime, id: u64) -> bool {
    let dump = rt.dump();
    dumps::read(&dump).iter().any(|g| g.0 == id && g.1.starts_with("sync.Once"))
}

/// Makes a goroutine work, and three others call meanwhile. Returns how all of them end.
fn ends<T: Send + 'static>(
    rt: &gmp::Runtime,
    flights: &Arc<SingleFlight<u8, u32>>,
    work: impl FnOnce() -> u32 + Send + 'static,
    end: impl Fn(Result<(u32, bool), gmp::JoinError>) -> T,
) -> (T, Vec<T>) {
    let (begun, gate) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (theirs, begins, opens) = (Arc::clone(flights), Arc::clone(&begun), Arc::clone(&gate));
    let first = rt.go(move || {
        theirs.work(&1, || {
            begins.store(true, SeqCst);
            until(|| opens.load(SeqCst));
            work()
        })
    });
    until(|| begun.load(SeqCst));
    let others: Vec<_> = (0..3)
        .map(|_| {
            let theirs = Arc::clone(flights);
            rt.go(move || theirs.work(&1, || 99))
        })
        .collect();
    // A caller that works itself does not wait.
    until(|| others.iter().all(|other| other.is_finished() || waits(rt, other.id().get())));
    gate.store(true, SeqCst);
    (end(first.join()), others.into_iter().map(|other| end(other.join())).collect())
}

/// Fails by the value, or by the flag, when a caller that comes meanwhile works itself, or the first caller is not told of the
/// others.
#[test]
fn callers_that_come_meanwhile_get_the_value() {
    everywhere(|rt| {
        let flights = Arc::new(SingleFlight::new());
        let (first, others) = ends(&rt, &flights, || 7, Result::unwrap);
        assert_eq!((first, others), ((7, true), vec![(7, true); 3]));
        // The next call is a new one.
        assert_eq!(flights.work(&1, || 8), (8, false));
    });
}

/// Fails when a caller that was unwound out of its wait counts as a caller that shares the value.
#[test]
fn an_unwound_caller_shares_nothing() {
    everywhere(|rt| {
        let flights = Arc::new(SingleFlight::new());
        let (begun, gate) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (theirs, begins, opens) = (Arc::clone(&flights), Arc::clone(&begun), Arc::clone(&gate));
        let first = rt.go(move || {
            theirs.work(&1, || {
                begins.store(true, SeqCst);
                until(|| opens.load(SeqCst));
                7
            })
        });
        until(|| begun.load(SeqCst));
        let (context, cancel) = Context::background().with_cancel();
        let theirs = Arc::clone(&flights);
        let second = rt.go(move || context.run(|| theirs.work(&1, || 8)));
        cancel.cancel();
        assert_eq!(second.join().unwrap(), Err(ContextError::Canceled));
        gate.store(true, SeqCst);
        assert_eq!(first.join().unwrap(), (7, false));
    });
}

/// Fails by a hang, or when a waiter goes on with another value, or with another panic.
#[test]
fn a_panic_reaches_all_waiters() {
    everywhere(|rt| {
        let flights = Arc::new(SingleFlight::new());
        let says = |end: Result<(u32, bool), gmp::JoinError>| match end {
            Ok(value) => Ok(value.0),
            Err(error) => Err(error.into_panic().downcast::<String>().map_or(String::new(), |text| *text)),
        };
        let (first, others) = ends(&rt, &flights, || resume_unwind(Box::new("on purpose")), says);
        assert!(first.is_err());
        assert_eq!(others, vec![Err("SingleFlight: the call panicked: on purpose".to_owned()); 3]);
        assert_eq!(flights.work(&1, || 8), (8, false));
    });
}

/// Fails when a caller after `forget` gets the old call's value.
#[test]
fn a_forgotten_call_is_not_joined() {
    everywhere(|rt| {
        let flights = Arc::new(SingleFlight::new());
        let (begun, gate) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (theirs, begins, opens) = (Arc::clone(&flights), Arc::clone(&begun), Arc::clone(&gate));
        let first = rt.go(move || {
            theirs.work(&"key", || {
                begins.store(true, SeqCst);
                until(|| opens.load(SeqCst));
                1
            })
        });
        until(|| begun.load(SeqCst));
        flights.forget(&"key");
        assert_eq!(flights.work(&"key", || 2), (2, false));
        gate.store(true, SeqCst);
        assert_eq!(first.join().unwrap(), (1, false));
    });
}

/// Fails by a value when the end of a forgotten call also removes the next one, and a third is made beside that.
#[test]
fn the_end_of_a_forgotten_call_leaves_the_next_one_alone() {
    everywhere(|rt| {
        let flights = Arc::new(SingleFlight::new());
        let works = |value: u32| {
            let [begun, gate]: [Gate; 2] = Default::default();
            let (theirs, begins, opens) = (Arc::clone(&flights), begun.clone(), gate.clone());
            let call = rt.go(move || {
                theirs.work(&"key", || {
                    begins.open();
                    opens.pass();
                    value
                })
            });
            begun.pass();
            (call, gate)
        };
        let (first, ends_first) = works(1);
        flights.forget(&"key");
        let (second, ends_second) = works(2);
        ends_first.open();
        assert_eq!(first.join().unwrap(), (1, false));
        let theirs = Arc::clone(&flights);
        let third = rt.go(move || theirs.work(&"key", || 3));
        let (id, parked) = (third.id().get(), |state: &str| !state.starts_with("run"));
        until(|| third.is_finished() || dumps::read(&rt.dump()).iter().any(|g| g.0 == id && parked(g.1)));
        ends_second.open();
        assert_eq!((second.join().unwrap(), third.join().unwrap()), ((2, true), (2, true)));
    });
}

/// A key whose hash, for one number, waits for a gate, during which the map is locked.
#[derive(Clone)]
struct Slow(u32, Arc<[Gate; 2]>);

impl PartialEq for Slow {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Slow {}

impl std::hash::Hash for Slow {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        if self.0 == 2 {
            self.1[0].open();
            self.1[1].pass();
        }
        self.0.hash(state);
    }
}

/// Fails by a hang when the context that has ended a call also ends its last step, which waits for the map, and the call stays
/// there without an outcome.
#[test]
fn a_canceled_call_is_taken_out_while_others_look_up_keys() {
    everywhere(|rt| {
        let gates: Arc<[Gate; 2]> = Arc::default();
        let (flights, keys) = (Arc::new(SingleFlight::new()), [1, 2].map(|n| Slow(n, Arc::clone(&gates))));
        let (context, cancel) = Context::background().with_cancel();
        let (begun, theirs, [first, second]) = (Gate::default(), Arc::clone(&flights), keys.clone());
        let begins = begun.clone();
        let ended = rt.go(move || {
            context.run(|| {
                theirs.work(&first, || {
                    begins.open();
                    gmp::sync::Event::new().wait();
                    4
                })
            })
        });
        begun.pass();
        let theirs = Arc::clone(&flights);
        let looks_up = rt.go(move || theirs.work(&second, || 6));
        gates[0].pass();
        cancel.cancel();
        rt.run(|| (0..50).for_each(|_| gmp::yield_now()));
        gates[1].open();
        assert_eq!(ended.join().unwrap(), Err(ContextError::Canceled));
        assert_eq!(looks_up.join().unwrap(), (6, false));
        assert_eq!(flights.work(&keys[0], || 5), (5, false));
    });
}

/// A key whose hash panics when the trigger is set.
#[derive(Clone, PartialEq, Eq)]
struct Touchy(Arc<Trigger>);

#[derive(Default)]
struct Trigger(std::sync::atomic::AtomicBool);

impl PartialEq for Trigger {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Trigger {}

impl std::hash::Hash for Touchy {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        assert!(!self.0.0.swap(false, SeqCst), "touched");
        0_u8.hash(state);
    }
}

/// Fails if a call whose key panics while the call is removed gives its value to all later callers.
#[test]
fn a_call_that_is_over_gives_nothing_to_later_callers() {
    let (flights, key) = (SingleFlight::new(), Touchy(Arc::default()));
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        flights.work(&key, || {
            key.0.0.store(true, SeqCst);
            1
        })
    }));
    assert!(panics.is_err());
    assert_eq!(flights.work(&key, || 2), (2, false));
}

/// A value whose drop panics once after the flag is set.
struct Falls(Arc<AtomicBool>);

impl Clone for Falls {
    fn clone(&self) -> Self {
        Falls(Arc::clone(&self.0))
    }
}

impl Drop for Falls {
    fn drop(&mut self) {
        assert!(!self.0.swap(false, SeqCst), "on purpose");
    }
}

/// Fails by a hang when the call that replaces a finished one stays in the map without a caller that works at it.
#[test]
fn a_value_that_panics_as_it_makes_room_leaves_no_call_behind() {
    let (flights, key, falls) =
        (SingleFlight::new(), Touchy(Arc::default()), Arc::new(AtomicBool::new(false)));
    let caught = |work: &mut dyn FnMut() -> bool| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).map_err(|_panic| ())
    };
    let stays = caught(&mut || {
        let (_value, shared) = flights.work(&key, || {
            key.0.0.store(true, SeqCst);
            Falls(Arc::clone(&falls))
        });
        shared
    });
    assert_eq!(stays, Err(()), "the call is over, and in the map");
    falls.store(true, SeqCst);
    assert_eq!(caught(&mut || flights.work(&key, || Falls(Arc::clone(&falls))).1), Err(()));
    assert_eq!(caught(&mut || flights.work(&key, || Falls(Arc::clone(&falls))).1), Ok(false));
}
