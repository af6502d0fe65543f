#![cfg(not(gmp_loom))]
//! Goroutines: their values, their handles, their stacks, and that each runs once and ends once.

#[path = "common/child.rs"]
mod child;
mod common;

use common::{everywhere, runtime, until};
use gmp::{Builder, JoinError, JoinHandle, Runtime, current, go, num_goroutines, yield_now};
use std::collections::HashSet;
use std::hint::black_box;
use std::io::ErrorKind;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

/// Counts its drops.
struct Probe(Arc<AtomicUsize>);

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// One that does not fit into the goroutine's own space.
fn large(drops: &Arc<AtomicUsize>) -> (Probe, [u64; 20]) {
    (Probe(Arc::clone(drops)), [7; 20])
}

#[inline(never)]
fn thread_id() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
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

/// Fails by a hang or a wrong value: the end of the goroutine and its joiner miss each other, on either side.
#[test]
fn join_works_before_and_after_the_end_on_goroutines_and_threads() {
    everywhere(|rt| {
        for round in 0..200_u32 {
            // After the end, from a thread.
            let ended = rt.go(move || round);
            until(|| ended.is_finished());
            assert_eq!(ended.join().unwrap(), round);
            // Before it, from a thread: the goroutine waits for one that this thread starts later.
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
            // The same from a goroutine.
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

/// Fails by a hang: a joiner is woken only when it is the goroutine that started the other.
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
fn closures_and_values_are_dropped_once_whoever_has_them_last() {
    everywhere(|rt| {
        let drops = Arc::new(AtomicUsize::new(0));
        let mut expected = 0;
        let mut dropped = |more: usize, path: &str| {
            expected += more;
            until(|| drops.load(SeqCst) >= expected);
            assert_eq!(drops.load(SeqCst), expected, "{path}");
        };
        for _ in 0..200 {
            // What the closure captured goes with the closure, its value with the joiner.
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

/// Fails by a leak or a second drop: the handle goes at the very moment at which the goroutine ends, and others
/// start new ones in the same place.
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
            // In a debug build each move of it is a copy on the stack.
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

#[test]
fn a_builder_gives_a_name_and_a_stack() {
    everywhere(|rt| {
        rt.run(|| {
            let named = Builder::new().name("worker é").stack_size(16 << 10).go(|| {
                let me = current().expect("on a goroutine");
                me.name().map(str::to_owned)
            });
            assert_eq!(named.unwrap().join().unwrap().as_deref(), Some("worker é"));
            assert_eq!(go(|| current().unwrap().name().map(str::to_owned)).join().unwrap(), None);
            for size in [16 << 10, (16 << 10) + 1, 100_000, 1 << 20, 64 << 20] {
                let fits = Builder::new().stack_size(size).go(move || use_stack(size - 8192));
                assert_eq!(fits.unwrap().join().unwrap(), (size - 8192) as u64 / 1024);
            }
        });
        assert_eq!(rt.run(|| current().unwrap().name().map(str::to_owned)).as_deref(), Some("main"));
    });
}

/// Touches about so many bytes of stack, a kilobyte in each frame.
#[inline(never)]
fn use_stack(bytes: usize) -> u64 {
    if bytes < 1024 {
        return 0;
    }
    let mut frame = [0_u8; 512];
    black_box(&mut frame)[bytes % 512] = 1;
    let deeper = use_stack_debug_frame(bytes);
    black_box(&frame);
    deeper + 1
}

/// A frame is larger in a debug build; half of it is left for that.
#[inline(never)]
fn use_stack_debug_frame(bytes: usize) -> u64 {
    use_stack(black_box(bytes) - 1024)
}

#[test]
fn a_stack_size_out_of_range_is_an_error_that_names_the_limits() {
    everywhere(|rt| {
        rt.run(|| {
            for size in [0, 1, (16 << 10) - 1, (64 << 20) + 1, usize::MAX] {
                let drops = Arc::new(AtomicUsize::new(0));
                let probe = Probe(Arc::clone(&drops));
                let refused = Builder::new().stack_size(size).go(move || drop(probe)).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::InvalidInput);
                let text = refused.to_string();
                assert_eq!(text, format!("stack_size: {size} is not within 16384..=67108864"));
                assert_eq!(drops.load(SeqCst), 1);
            }
            assert_eq!(num_goroutines(), 1);
        });
    });
}

#[test]
fn current_is_the_goroutine_that_asks() {
    assert!(current().is_none());
    everywhere(|rt| {
        assert!(current().is_none());
        let handle = rt.go(|| current().unwrap().id());
        let id = handle.id();
        assert_eq!(handle.join().unwrap(), id);
        rt.run(|| {
            let main = current().unwrap().id();
            assert!(thread::spawn(|| current().is_none()).join().unwrap());
            for _ in 0..50 {
                let handle = go(|| {
                    let before = current().unwrap().id();
                    yield_now();
                    (before, current().unwrap().id())
                });
                let id = handle.id();
                assert_eq!(handle.join().unwrap(), (id, id));
                assert_eq!(current().unwrap().id(), main);
            }
        });
    });
}

#[test]
fn ids_are_never_used_twice() {
    everywhere(|rt| {
        let mut seen = HashSet::new();
        for _ in 0..1000 {
            let first = rt.go(|| go(|| ()).join().unwrap());
            assert!(seen.insert(first.id()));
            first.join().unwrap();
        }
        let outside = runtime(1);
        assert!(outside.go(|| current().is_some()).join().unwrap());
    });
}

/// Fails if a goroutine counts after its join.
#[test]
fn num_goroutines_counts_who_has_not_ended() {
    assert_eq!(num_goroutines(), 0);
    everywhere(|rt| {
        assert_eq!((rt.num_goroutines(), num_goroutines()), (0, 0));
        rt.run(|| {
            assert_eq!(num_goroutines(), 1);
            let gate = Arc::new(AtomicBool::new(false));
            let gated: Vec<_> = (0..10)
                .map(|_| {
                    let gate = Arc::clone(&gate);
                    go(move || until(|| gate.load(SeqCst)))
                })
                .collect();
            assert_eq!(num_goroutines(), 11);
            gate.store(true, SeqCst);
            for (joined, goroutine) in (1..).zip(gated) {
                goroutine.join().unwrap();
                assert!(num_goroutines() <= 11 - joined);
            }
            assert_eq!(num_goroutines(), 1);
            for _ in 0..1000 {
                go(|| ()).join().unwrap();
                assert_eq!(num_goroutines(), 1);
            }
        });
        assert_eq!(rt.num_goroutines(), 0);
    });
}

/// Fails by one count running away: a yield goes on with the caller, or to the head of the queue.
#[test]
fn goroutines_that_yield_take_turns() {
    let rt = runtime(1);
    let counts = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
    rt.run(|| {
        let taking_turns = [0, 1].map(|me| {
            let counts = Arc::clone(&counts);
            go(move || {
                // Both have begun.
                counts[me].fetch_add(1, SeqCst);
                until(|| counts[1 - me].load(SeqCst) > 0);
                for _ in 0..1000 {
                    let [mine, other] = [me, 1 - me].map(|one| counts[one].load(SeqCst));
                    assert!(other >= 1000 || mine.abs_diff(other) <= 10, "{mine} and {other}");
                    counts[me].fetch_add(1, SeqCst);
                    yield_now();
                }
            })
        });
        taking_turns.into_iter().for_each(|one| one.join().unwrap());
    });
}

#[test]
fn procs_tells_the_number_of_ps() {
    assert_eq!(gmp::procs(), 0);
    for procs in common::PROCS {
        let rt = runtime(procs);
        assert_eq!((rt.procs(), rt.run(gmp::procs)), (procs, procs));
    }
}

/// Fails by a text that does not help, or by one that blames a line of the library.
#[test]
fn go_outside_of_a_goroutine_panics_at_the_callers_line() {
    let name = "go_outside_of_a_goroutine_panics_at_the_callers_line";
    if !child::is_child() {
        let stderr = child::passes(name, &[]);
        for (call, line) in [("go", LINE_OF_GO), ("Builder::go", LINE_OF_BUILDER)] {
            let place = format!("tests/goroutines.rs:{line}:");
            assert!(stderr.contains(&place), "{place} is not in {stderr}");
            let text = format!("{call}: not called on a goroutine; from a thread use Runtime::go");
            assert!(stderr.contains(&text), "{text} is not in {stderr}");
        }
        return;
    }
    let refused = catch_unwind(call_go).unwrap_err();
    assert!(refused.downcast_ref::<String>().is_some_and(|text| text.starts_with("go: ")));
    catch_unwind(call_builder).unwrap_err();
}

const LINE_OF_GO: u32 = line!() + 2;
fn call_go() {
    drop(go(|| ()));
}

const LINE_OF_BUILDER: u32 = line!() + 2;
fn call_builder() {
    drop(Builder::new().go(|| ()));
}

/// Fails by a lost or doubled goroutine, or by memory: stacks are not reused.
#[test]
fn a_hundred_thousand_goroutines_run_once_each() {
    everywhere(|rt| {
        let sum = Arc::new(AtomicUsize::new(0));
        rt.run(|| {
            for wave in 0..10 {
                let sums = (0..10_000).map(|n| {
                    let sum = Arc::clone(&sum);
                    go(move || {
                        sum.fetch_add(wave * 10_000 + n, SeqCst);
                    })
                });
                let handles: Vec<_> = sums.collect();
                handles.into_iter().for_each(|handle| handle.join().unwrap());
            }
        });
        assert_eq!(sum.load(SeqCst), 99_999 * 100_000 / 2);
    });
}

/// Fails by a fault: a stack smaller than was asked for, or two goroutines on one.
#[test]
fn deep_recursion_fits_within_the_stack() {
    everywhere(|rt| {
        rt.run(|| {
            let deep: Vec<_> = (0..8)
                .map(|_| {
                    let builder = Builder::new().stack_size(1 << 20);
                    let recursing = || (0..5).map(|_| (use_stack(900 << 10), yield_now()).0).sum::<u64>();
                    builder.go(recursing).unwrap()
                })
                .collect();
            for deep in deep {
                assert_eq!(deep.join().unwrap(), 5 * 900);
            }
            assert_eq!(go(|| use_stack(48 << 10)).join().unwrap(), 48);
        });
    });
}

/// Fails by a hang: Ms do not share the run queue.
#[test]
fn a_goroutine_goes_on_on_another_thread() {
    everywhere(|rt| {
        if rt.procs() == 1 {
            return;
        }
        let moved = Arc::new(AtomicBool::new(false));
        rt.run(|| {
            let movers: Vec<_> = (0..rt.procs() + 1)
                .map(|_| {
                    let moved = Arc::clone(&moved);
                    go(move || {
                        let born_on = thread_id();
                        until(|| {
                            if thread_id() != born_on {
                                moved.store(true, SeqCst);
                            }
                            moved.load(SeqCst)
                        });
                    })
                })
                .collect();
            movers.into_iter().for_each(|mover| mover.join().unwrap());
        });
    });
}

/// Fails by a corrupted value: a register that the switch does not save.
#[test]
fn what_a_goroutine_computes_survives_its_switches() {
    everywhere(|rt| {
        rt.run(|| {
            let computing: Vec<_> = (1..=20_u64)
                .map(|seed| {
                    go(move || {
                        let (mut float, mut int, mut wide) = (seed as f64, seed, u128::from(seed));
                        for step in 1..=2000_u64 {
                            float = float * 1.000_1 + step as f64 / 7.0;
                            int = int.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step);
                            wide = wide.wrapping_mul(0x1_0000_0000_01b3) ^ u128::from(int);
                            if step % 3 == seed % 3 {
                                yield_now();
                            }
                        }
                        (float.to_bits(), int, wide)
                    })
                })
                .collect();
            for (seed, computed) in (1..=20_u64).zip(computing) {
                let (mut float, mut int, mut wide) = (seed as f64, seed, u128::from(seed));
                for step in 1..=2000_u64 {
                    float = float * 1.000_1 + step as f64 / 7.0;
                    int = int.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step);
                    wide = wide.wrapping_mul(0x1_0000_0000_01b3) ^ u128::from(int);
                }
                assert_eq!(computed.join().unwrap(), (float.to_bits(), int, wide));
            }
        });
    });
}

#[test]
fn run_borrows_from_its_caller_and_gives_a_value_back() {
    everywhere(|rt| {
        let mut log = Vec::new();
        let text = String::from("borrowed");
        let back: &str = rt.run(|| {
            yield_now();
            log.push(text.len());
            &text[..3]
        });
        assert_eq!((back, log.as_slice()), ("bor", &[8][..]));
        // Again, and from several threads at once.
        let sum = AtomicUsize::new(0);
        thread::scope(|s| {
            for n in 0..8 {
                let (rt, sum) = (&rt, &sum);
                s.spawn(move || {
                    for _ in 0..50 {
                        rt.run(|| sum.fetch_add(n, SeqCst));
                    }
                });
            }
        });
        assert_eq!(sum.load(SeqCst), 50 * 28);
    });
}

/// Fails by a hang: the wait in `run` blocks the thread of a goroutine instead of parking it, or the other
/// runtime readies it in its own queue.
#[test]
fn a_goroutine_runs_another_runtime() {
    everywhere(|outer| {
        let inner = runtime(outer.procs());
        let (inner, outer_ref) = (&inner, &outer);
        for _ in 0..100 {
            // There and back: more depth than either has threads.
            let depth = outer.run(|| inner.run(|| outer_ref.run(|| inner.run(gmp::num_goroutines))));
            assert_eq!(depth, 2);
        }
        let made_inside = outer.run(|| {
            let made = runtime(2);
            let sum = made.run(|| (0..10).map(|n| go(move || n).join().unwrap()).sum::<u32>());
            drop(made);
            sum
        });
        assert_eq!(made_inside, 45);
        // A runtime that is run on its own goroutine.
        assert_eq!(outer.run(|| outer_ref.run(|| outer_ref.run(|| 6))), 6);
    });
}

/// Fails by a use after free: the handle's G goes with its runtime.
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
fn debug_formats_tell_ids_and_counts() {
    let rt = runtime(3);
    assert_eq!(format!("{rt:?}"), "Runtime { procs: 3, goroutines: 0, .. }");
    let me = rt.run(|| format!("{:?}", current().unwrap()));
    assert!(me.contains("main"), "{me}");
}

#[test]
fn handles_errors_and_runtimes_may_be_sent_and_shared() {
    fn shared<T: Send + Sync>() {}
    fn error<E: std::error::Error + Send + Sync + 'static>() {}
    shared::<Runtime>();
    shared::<gmp::RuntimeBuilder>();
    shared::<gmp::Report>();
    // The value is only sent.
    shared::<JoinHandle<std::cell::Cell<u32>>>();
    shared::<Builder>();
    shared::<gmp::Goroutine>();
    shared::<gmp::GoroutineId>();
    shared::<gmp::net::TcpListener>();
    shared::<gmp::net::TcpStream>();
    error::<JoinError>();
}
