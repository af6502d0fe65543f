//! `SingleFlight`.

use crate::support::{cast, rounds, with_every_cast};
use common::{everywhere, until};
use gmp::context::{Context, ContextError};
use gmp::sync::SingleFlight;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// Fails by a count: two work at the same key at once. Or by a hang.
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

/// How the goroutine that works, and three that come meanwhile, end.
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
    let came = Arc::new(AtomicUsize::new(0));
    let others: Vec<_> = (0..3)
        .map(|_| {
            let (theirs, came) = (Arc::clone(flights), Arc::clone(&came));
            rt.go(move || {
                came.fetch_add(1, SeqCst);
                theirs.work(&1, || 99)
            })
        })
        .collect();
    until(|| came.load(SeqCst) == 3);
    for _ in 0..100 {
        gmp::yield_now();
    }
    gate.store(true, SeqCst);
    (end(first.join()), others.into_iter().map(|other| end(other.join())).collect())
}

/// Fails by a value, or by what is said of it. One who comes too late works itself, which is right, too.
#[test]
fn those_who_come_meanwhile_get_the_value() {
    everywhere(|rt| {
        let flights = Arc::new(SingleFlight::new());
        let (first, others) = ends(&rt, &flights, || 7, Result::unwrap);
        let got = others.iter().filter(|other| **other == (7, true)).count();
        assert_eq!(first, (7, got > 0));
        assert!(others.iter().all(|other| *other == (7, true) || other.0 == 99), "{others:?}");
        // The next call is a new one.
        assert_eq!(flights.work(&1, || 8), (8, false));
    });
}

/// Fails when one that was unwound out of its wait counts as one that has got the value.
#[test]
fn one_that_has_gone_shares_nothing() {
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

/// Fails by a hang, or when one who waits goes on with no value.
#[test]
fn a_panic_reaches_all_who_wait() {
    everywhere(|rt| {
        let flights = Arc::new(SingleFlight::new());
        let says = |end: Result<(u32, bool), gmp::JoinError>| match end {
            Ok(value) => Ok(value.0),
            Err(error) => Err(error.into_panic().downcast::<String>().map_or(String::new(), |text| *text)),
        };
        let (first, others) = ends(&rt, &flights, || resume_unwind(Box::new("on purpose")), says);
        assert!(first.is_err());
        for other in others {
            match other {
                Ok(value) => assert_eq!(value, 99),
                Err(text) => assert_eq!(text, "SingleFlight: the call panicked: on purpose"),
            }
        }
        assert_eq!(flights.work(&1, || 8), (8, false));
    });
}

/// Fails by a value: who asks after `forget` gets the old call's.
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

/// A key whose hash panics when it is told to.
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

/// Fails if a call whose key panics as it is taken out gives its value to all later ones.
#[test]
fn a_call_that_is_over_gives_nothing_to_those_who_come_after_it() {
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

/// A value that panics when it is dropped on the thread that is told.
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

/// Fails by a hang: the call that was to take the place of one that is over stays in the map, and nobody works at it.
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
