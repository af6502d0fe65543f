//! Handles: a join gives the value once, before the end and after it, from anywhere; a value that is never joined is dropped
//! once.

use common::probe::Probe;
use common::{child, everywhere, runtime, until};
use gmp::{Builder, JoinError, JoinHandle, Runtime, go, goexit, yield_now};
use std::hint::black_box;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// A value that does not fit into the goroutine's own space.
fn large(drops: &Arc<AtomicUsize>) -> (Probe, [u64; 20]) {
    (Probe(Arc::clone(drops)), [7; 20])
}

#[test]
fn join_gives_the_value() {
    everywhere(|rt| {
        assert_eq!(rt.go(|| 7).join().unwrap(), 7);
        rt.run(|| {
            let values: Vec<_> = (0..1000_u32).map(|n| go(move || n * 2)).collect();
            for (n, value) in (0..).zip(values) {
                assert_eq!(value.join().unwrap(), 2 * n);
            }
        });
    });
}

/// Fails when `?` can't turn a join error into an error of std, or loses what the error was.
#[test]
fn a_join_error_is_an_io_error() {
    everywhere(|rt| {
        let joined = |handle: JoinHandle<()>| -> std::io::Result<()> { Ok(handle.join()?) };
        let error = joined(rt.go(|| resume_unwind(Box::new("why")))).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::Other);
        assert_eq!(error.to_string(), "the goroutine panicked: why");
        assert!(error.into_inner().unwrap().downcast::<JoinError>().unwrap().is_panic());
        joined(rt.go(|| ())).unwrap();
    });
}

/// Fails when an error names another goroutine, whichever call returns it; when a payload is lost, or one is made up.
#[test]
fn a_join_error_names_its_goroutine_and_gives_its_payload() {
    type Ends = fn() -> u32;
    type Join = fn(JoinHandle<u32>) -> Result<u32, JoinError>;
    let ends: [(bool, Ends); 2] = [(true, || resume_unwind(Box::new("why"))), (false, || goexit())];
    everywhere(|rt| {
        rt.run(|| {
            for (panics, end) in ends {
                let joins: [Join; 3] = [
                    JoinHandle::join,
                    |mut handle| handle.join_timeout(Duration::MAX).unwrap(),
                    |handle| gmp::block_on(handle),
                ];
                let mut errors: Vec<_> = joins
                    .into_iter()
                    .map(|join| {
                        let handle = go(end);
                        (handle.id(), join(handle).unwrap_err())
                    })
                    .collect();
                gmp::scope(|s| {
                    let child = s.go(end);
                    errors.push((child.id(), child.join().unwrap_err()));
                });
                for (id, error) in errors {
                    assert_eq!(error.id(), id);
                    match error.try_into_panic() {
                        Ok(payload) => assert_eq!((payload.downcast_ref(), panics), (Some(&"why"), true)),
                        Err(error) => assert!(!panics && error.is_goexit() && error.id() == id),
                    }
                }
            }
        });
        let left = rt.go(|| gmp::time::sleep(Duration::MAX));
        let id = left.id();
        drop(rt);
        let error = left.join().unwrap_err().try_into_panic().unwrap_err();
        assert!(error.is_shutdown() && error.id() == id);
    });
}

/// Fails by a hang or a wrong value when the end of the goroutine and its joiner miss each other, on either side.
#[test]
fn join_works_before_and_after_the_end_on_goroutines_and_threads() {
    everywhere(|rt| {
        for round in 0..200_u32 {
            // A thread joins after the end.
            let ended = rt.go(move || round);
            until(|| ended.is_finished());
            assert_eq!(ended.join().unwrap(), round);
            // A thread joins before the end: the goroutine waits until this thread opens the gate.
            let gate = Arc::new(AtomicBool::new(false));
            let gated = rt.go({
                let gate = Arc::clone(&gate);
                move || until(|| gate.load(SeqCst))
            });
            thread::scope(|s| {
                let joiner = s.spawn(|| gated.join().unwrap());
                if round % 2 == 0 {
                    thread::yield_now();
                }
                gate.store(true, SeqCst);
                joiner.join().unwrap();
            });
            // A goroutine does the same.
            rt.run(|| {
                let ended = go(move || round);
                until(|| ended.is_finished());
                assert_eq!(ended.join().unwrap(), round);
                let yields = go(|| {
                    for _ in 0..3 {
                        yield_now();
                    }
                    5
                });
                assert_eq!(yields.join().unwrap(), 5);
            });
        }
    });
}

/// Fails by a hang when a joiner is woken only if it has started the goroutine that it joins.
#[test]
fn a_handle_can_be_joined_wherever_it_was_sent() {
    everywhere(|rt| {
        let chain = (0..100).fold(rt.go(|| 0_u32), |last, _| rt.go(move || last.join().unwrap() + 1));
        assert_eq!(chain.join().unwrap(), 100);
        let from_thread = rt.go(|| 3);
        assert_eq!(thread::spawn(move || from_thread.join().unwrap()).join().unwrap(), 3);
        let other = runtime(2);
        let here = rt.go(|| 4);
        assert_eq!(other.run(move || here.join().unwrap()), 4);
    });
}

/// Fails if a goroutine ends with its handle.
#[test]
fn a_dropped_handle_detaches_the_goroutine() {
    everywhere(|rt| {
        let ended = Arc::new(AtomicUsize::new(0));
        for _ in 0..500 {
            let ended = Arc::clone(&ended);
            drop(rt.go(move || {
                yield_now();
                ended.fetch_add(1, SeqCst);
            }));
        }
        until(|| ended.load(SeqCst) == 500);
        until(|| rt.num_goroutines() == 0);
    });
}

#[test]
fn is_finished_tells_whether_join_would_wait() {
    everywhere(|rt| {
        let gate = Arc::new(AtomicBool::new(false));
        let gated = rt.go({
            let gate = Arc::clone(&gate);
            move || until(|| gate.load(SeqCst))
        });
        for _ in 0..100 {
            assert!(!gated.is_finished());
            thread::yield_now();
        }
        gate.store(true, SeqCst);
        until(|| gated.is_finished());
        assert!(gated.is_finished());
        gated.join().unwrap();
    });
}

/// Fails by a leak (too few drops) or by a second owner (too many).
#[test]
fn closures_and_values_are_dropped_once_by_their_last_owner() {
    everywhere(|rt| {
        let drops = Arc::new(AtomicUsize::new(0));
        let mut expected = 0;
        let mut dropped = |more: usize, path: &str| {
            expected += more;
            until(|| drops.load(SeqCst) >= expected);
            assert_eq!(drops.load(SeqCst), expected, "{path}");
        };
        for _ in 0..200 {
            // The captures are dropped with the closure, the value with the joiner's variable.
            let captured = large(&drops);
            let value = rt.go({
                let drops = Arc::clone(&drops);
                move || {
                    drop(captured);
                    large(&drops)
                }
            });
            let value = value.join().unwrap();
            dropped(1, "captured");
            drop(value);
            dropped(1, "joined");

            let small = Probe(Arc::clone(&drops));
            drop(rt.go(move || small).join());
            dropped(1, "joined, small");

            let captured = large(&drops);
            drop(rt.go(move || captured));
            dropped(1, "detached before the end, or after it");

            let captured = large(&drops);
            let ended = rt.go(move || captured);
            until(|| ended.is_finished());
            drop(ended);
            dropped(1, "detached after the end");

            let captured = large(&drops);
            let unwinds = rt.go(move || {
                let _captured = captured;
                resume_unwind(Box::new(0_u8));
            });
            assert!(unwinds.join().unwrap_err().is_panic());
            dropped(1, "panicked");

            let payload = Probe(Arc::clone(&drops));
            let unwinds = rt.go(move || resume_unwind(Box::new(payload)));
            drop(unwinds.join().unwrap_err());
            dropped(1, "a payload that was joined");

            let payload = Probe(Arc::clone(&drops));
            drop(rt.go(move || resume_unwind(Box::new(payload))));
            dropped(1, "a payload that nobody joined");
        }
    });
}

/// A thread drops the handle at the very moment at which the goroutine ends, and starts another goroutine in the same place.
/// Fails by a leak or a second drop.
#[test]
fn a_value_is_dropped_once_when_its_handle_goes_at_the_end() {
    everywhere(|rt| {
        let drops = Arc::new(AtomicUsize::new(0));
        thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    for round in 0..2000 {
                        let started = Arc::new(AtomicBool::new(false));
                        let probe = Probe(Arc::clone(&drops));
                        let handle = rt.go({
                            let started = Arc::clone(&started);
                            move || {
                                started.store(true, SeqCst);
                                probe
                            }
                        });
                        until(|| started.load(SeqCst));
                        for _ in 0..round % 50 {
                            std::hint::spin_loop();
                        }
                        drop(handle);
                        assert_eq!(rt.go(move || round).join().unwrap(), round);
                    }
                });
            }
        });
        until(|| drops.load(SeqCst) >= 6000 && rt.num_goroutines() == 0);
        assert_eq!(drops.load(SeqCst), 6000);
    });
}

#[test]
fn large_and_aligned_closures_and_values_arrive_whole() {
    #[derive(Copy, Clone, Debug, PartialEq)]
    #[repr(align(128))]
    struct Wide([u8; 200]);
    everywhere(|rt| {
        rt.run(|| {
            // In a debug build each move of the array is a copy on the stack.
            let numbers: [u64; 300] = std::array::from_fn(|n| n as u64);
            let doubled = go(move || numbers.map(|n| 2 * n)).join().unwrap();
            assert!(doubled.iter().zip(&numbers).all(|(double, n)| *double == 2 * n));
            let wide = Wide(std::array::from_fn(|n| n as u8));
            let back = go(move || {
                let here = black_box(wide);
                assert_eq!((&raw const here).addr() % 128, 0);
                here
            });
            assert_eq!(back.join().unwrap(), wide);
            for len in 0..200_usize {
                let text = "x".repeat(len);
                assert_eq!(go(move || text + "y").join().unwrap().len(), len + 1);
            }
        });
    });
}

/// Fails by a use after free when the handle's G goes with its runtime.
#[test]
fn a_handle_outlives_its_runtime() {
    everywhere(|rt| {
        let drops = Arc::new(AtomicUsize::new(0));
        let value = |rt: &Runtime| {
            let probe = Probe(Arc::clone(&drops));
            rt.go(move || (probe, 9))
        };
        let [joined, dropped] = [value(&rt), value(&rt)];
        until(|| joined.is_finished() && dropped.is_finished());
        let parked = rt.go(|| gmp::time::sleep(Duration::from_secs(3600)));
        drop(rt);
        assert!(joined.is_finished() && parked.is_finished());
        assert_eq!(format!("{joined:?}"), format!("JoinHandle {{ id: {}, .. }}", joined.id()));
        assert_eq!(joined.join().unwrap().1, 9);
        assert_eq!(drops.load(SeqCst), 1);
        drop(dropped);
        assert_eq!(drops.load(SeqCst), 2);
        let error = parked.join().unwrap_err();
        assert!(error.is_shutdown() && !error.is_panic());
    });
}

#[test]
fn handles_errors_and_runtimes_may_be_sent_and_shared() {
    fn shared<T: Send + Sync>() {}
    fn error<E: std::error::Error + Send + Sync + 'static>() {}
    shared::<Runtime>();
    shared::<gmp::RuntimeBuilder>();
    shared::<gmp::Report>();
    // The value of a handle is only sent.
    shared::<JoinHandle<std::cell::Cell<u32>>>();
    shared::<Builder>();
    shared::<gmp::Goroutine>();
    shared::<gmp::GoroutineId>();
    shared::<gmp::net::TcpListener>();
    shared::<gmp::net::TcpStream>();
    error::<JoinError>();
}

/// A join after one that has taken the outcome panics with its caller's place. Fails by a place in the library.
#[test]
fn a_second_join_panics_where_it_is_called() {
    type Again = fn(JoinHandle<u32>);
    let again: [Again; 3] = [
        |taken| drop(taken.join()),
        |mut taken| drop(taken.join_timeout(Duration::ZERO)),
        |mut taken| drop(taken.join_deadline(Instant::now())),
    ];
    if child::is_child() {
        let rt = runtime(1);
        for join in again {
            let mut taken = rt.go(|| 7);
            assert_eq!(taken.join_timeout(Duration::MAX).unwrap().unwrap(), 7);
            assert!(rt.go(move || join(taken)).join().unwrap_err().is_panic());
        }
        return;
    }
    let stderr = child::passes("a_second_join_panics_where_it_is_called", &[("RUST_BACKTRACE", "0")]);
    let told = stderr.lines().filter(|line| line.starts_with("goroutine "));
    let here = told.filter(|line| line.contains(" panicked at tests/goroutines/handles.rs:"));
    assert_eq!(here.count(), again.len(), "{stderr}");
}
