//! Goroutines: their names, numbers, stacks and turns. Each runs once and ends once.

use common::child;
use common::probe::Probe;
use common::{everywhere, runtime, until};
use gmp::{Builder, current, go, num_goroutines, yield_now};
use std::collections::HashSet;
use std::hint::black_box;
use std::io::ErrorKind;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

#[inline(never)]
fn thread_id() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
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

/// Touches about `bytes` bytes of stack, a kilobyte in each frame.
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

/// A frame is larger in a debug build; half of each kilobyte is left for that.
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
fn num_goroutines_does_not_count_ended_goroutines() {
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

/// Fails when a part of the library counts as a goroutine: the ticks of timer channels, the deadline of a context, the poller,
/// the threads.
#[test]
fn num_goroutines_counts_goroutines_alone() {
    everywhere(|rt| {
        rt.run(|| {
            let ticker = gmp::time::Ticker::new(Duration::from_micros(200));
            let (context, _cancel) =
                gmp::context::Context::background().with_timeout(Duration::from_millis(2));
            let listener = gmp::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_deadline(Some(Instant::now() + Duration::from_millis(1))).unwrap();
            assert!(listener.accept().is_err());
            for _ in 0..20 {
                ticker.receiver().recv().unwrap();
                assert_eq!(num_goroutines(), 1);
            }
            assert!(context.done().recv().is_err());
            gmp::blocking(|| assert_eq!(num_goroutines(), 1));
            gmp::chan::after(Duration::from_millis(1)).recv().unwrap();
            assert_eq!(num_goroutines(), 1);
        });
        assert_eq!(rt.num_goroutines(), 0);
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
            let place = format!("tests/goroutines/spawn.rs:{line}:");
            assert!(stderr.contains(&place), "{place} is not in {stderr}");
            let text = format!(
                "{call}: not called on a goroutine; from a thread use gmp::run, Runtime::go or Handle::go"
            );
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

/// Fails by a lost or doubled goroutine, or by memory when stacks are not reused.
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

/// Fails by a fault when a stack is smaller than was asked for, or when two goroutines have one stack.
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

/// Fails by a hang when Ms do not share the run queue. As the movers end one after another, a P runs out of them, and its M
/// takes a mover that began on another thread. There is nothing to take only if the movers of all Ps end at once; then the next
/// round tries again.
#[test]
fn a_goroutine_goes_on_on_another_thread() {
    const TURNS: usize = 1_000;
    everywhere(|rt| {
        if rt.procs() == 1 {
            return;
        }
        let moved = Arc::new(AtomicBool::new(false));
        rt.run(|| {
            while !moved.load(SeqCst) {
                let movers: Vec<_> = (0..rt.procs() + 1)
                    .map(|nth| {
                        let moved = Arc::clone(&moved);
                        go(move || {
                            let born_on = thread_id();
                            for _ in 0..TURNS * (nth + 1) {
                                yield_now();
                                if thread_id() != born_on {
                                    return moved.store(true, SeqCst);
                                }
                            }
                        })
                    })
                    .collect();
                movers.into_iter().for_each(|mover| mover.join().unwrap());
            }
        });
    });
}

/// Fails by a corrupted value when the switch does not save a register.
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

/// Fails by a hang when the wait in `run` blocks the thread of a goroutine instead of parking the goroutine, or when the other
/// runtime readies it in its own queue.
#[test]
fn a_goroutine_runs_another_runtime() {
    everywhere(|outer| {
        let inner = runtime(outer.procs());
        let (inner, outer_ref) = (&inner, &outer);
        for _ in 0..100 {
            // The runs nest there and back, deeper than either runtime has threads.
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
        // A goroutine may run its own runtime.
        assert_eq!(outer.run(|| outer_ref.run(|| outer_ref.run(|| 6))), 6);
    });
}

#[test]
fn debug_formats_tell_ids_and_counts() {
    let rt = runtime(3);
    assert_eq!(format!("{rt:?}"), "Runtime { procs: 3, goroutines: 0, .. }");
    let me = rt.run(|| format!("{:?}", current().unwrap()));
    assert!(me.contains("main"), "{me}");
}
