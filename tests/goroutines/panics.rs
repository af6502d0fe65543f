//! A panic ends its goroutine and nothing else, and its message names the goroutine. What fits on the default stack.

use common::child;
use common::{everywhere, runtime, until};
use gmp::{Builder, Runtime, go, yield_now};
use std::any::Any;
use std::net::ToSocketAddrs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

fn text(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().expect("a text")).to_owned(),
    }
}

/// Fails if other goroutines stop because a panic has ended its M, its P or its runtime.
#[test]
fn a_panic_ends_its_goroutine_alone() {
    everywhere(|rt| {
        let ended = Arc::new(AtomicUsize::new(0));
        rt.run(|| {
            let goroutines: Vec<_> = (0..600_usize)
                .map(|n| {
                    let ended = Arc::clone(&ended);
                    go(move || {
                        yield_now();
                        if n.is_multiple_of(3) {
                            resume_unwind(Box::new(n));
                        }
                        yield_now();
                        ended.fetch_add(1, SeqCst);
                        n
                    })
                })
                .collect();
            for (n, goroutine) in goroutines.into_iter().enumerate() {
                match goroutine.join() {
                    Ok(value) => assert_eq!((value, n % 3 != 0), (n, true)),
                    Err(error) => assert_eq!(error.into_panic().downcast_ref(), Some(&n)),
                }
            }
            assert_eq!(go(|| 1).join().unwrap(), 1);
        });
        assert_eq!(ended.load(SeqCst), 400);
    });
}

#[test]
fn join_tells_the_text_and_gives_the_payload() {
    everywhere(|rt| {
        let error = rt.go(|| panic!("no {}", 1 + 1)).join().unwrap_err();
        assert!(error.is_panic() && !error.is_shutdown());
        assert_eq!(error.to_string(), "the goroutine panicked: no 2");
        assert_eq!(format!("{error:?}"), "JoinError(the goroutine panicked: no 2)");
        assert_eq!(text(error.into_panic()), "no 2");
        let error = rt.go(|| panic!("plain")).join().unwrap_err();
        assert_eq!(error.to_string(), "the goroutine panicked: plain");
        let error = rt.go(|| resume_unwind(Box::new(5_u8))).join().unwrap_err();
        assert_eq!(error.to_string(), "the goroutine panicked");
        assert_eq!(error.into_panic().downcast_ref(), Some(&5_u8));
    });
}

/// Fails by a text that blames a panic that did not happen.
#[test]
fn the_end_of_a_runtime_is_no_panic() {
    everywhere(|rt| {
        let parked = rt.go(|| gmp::time::sleep(std::time::Duration::MAX));
        drop(rt);
        let error = parked.join().unwrap_err();
        assert!(error.is_shutdown() && !error.is_panic());
        assert_eq!(error.to_string(), "the runtime ended before the goroutine did");
        let refused = catch_unwind(AssertUnwindSafe(|| error.into_panic())).unwrap_err();
        assert_eq!(text(refused), "into_panic: the goroutine did not panic, its runtime ended");
    });
}

/// Fails if `run` returns, or if the runtime can't be used afterwards.
#[test]
fn a_panic_of_main_resumes_in_the_caller_of_run() {
    everywhere(|rt| {
        for _ in 0..20 {
            let caught = catch_unwind(|| rt.run(|| -> u32 { panic!("main {}", 3) }));
            assert_eq!(text(caught.unwrap_err()), "main 3");
            assert_eq!(rt.run(|| 4), 4);
        }
    });
    let caught = catch_unwind(|| {
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        unsafe { gmp::run(|| panic!("no runtime is left behind")) }
    });
    assert_eq!(text(caught.unwrap_err()), "no runtime is left behind");
}

#[test]
fn a_panic_is_caught_on_the_goroutine_if_it_asks() {
    everywhere(|rt| {
        rt.run(|| {
            for depth in 0..30 {
                let caught = catch_unwind(|| unwind_through(depth)).unwrap_err();
                assert_eq!(caught.downcast_ref(), Some(&depth));
                yield_now();
            }
        });
    });
}

#[inline(never)]
fn unwind_through(frames: u32) {
    fn down(left: u32, payload: u32) {
        if left == 0 {
            resume_unwind(Box::new(payload));
        }
        down(left - 1, payload);
        // This call is not the last one of the function, so the frame stays.
        std::hint::black_box(left);
    }
    down(frames, frames);
}

/// Panics when it is dropped, and counts its drops.
struct Unwilling(Arc<AtomicUsize>);

impl Drop for Unwilling {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
        panic!("unwilling");
    }
}

/// Fails by the end of the process when the panic of a value without a joiner reaches the scheduler.
#[test]
fn a_panic_in_the_destructor_of_a_detached_value_ends_there() {
    everywhere(|rt| {
        let drops = Arc::new(AtomicUsize::new(0));
        for _ in 0..10 {
            // The goroutine ends after its handle has gone; else the owner of the handle would drop the value.
            let detached = Arc::new(AtomicBool::new(false));
            let (gate, value) = (Arc::clone(&detached), Unwilling(Arc::clone(&drops)));
            drop(rt.go(move || {
                until(|| gate.load(SeqCst));
                value
            }));
            let (gate, payload) = (Arc::clone(&detached), Unwilling(Arc::clone(&drops)));
            drop(rt.go(move || {
                until(|| gate.load(SeqCst));
                resume_unwind(Box::new(payload));
            }));
            detached.store(true, SeqCst);
        }
        until(|| drops.load(SeqCst) == 20 && rt.num_goroutines() == 0);
        // The owner of a handle gets the panic, as the drop of the handle drops the value.
        let value = Unwilling(Arc::clone(&drops));
        let ended = rt.go(move || value);
        until(|| ended.is_finished());
        let caught = catch_unwind(AssertUnwindSafe(|| drop(ended)));
        assert_eq!(text(caught.unwrap_err()), "unwilling");
        assert_eq!((drops.load(SeqCst), rt.num_goroutines()), (21, 0));
        assert_eq!(rt.run(|| 1), 1);
    });
}

/// Fails by a line that names only a thread, which ran a thousand other goroutines.
#[test]
fn the_hook_tells_which_goroutine_panicked() {
    if !child::is_child() {
        let stderr = child::passes("the_hook_tells_which_goroutine_panicked", &[("RUST_BACKTRACE", "0")]);
        let told = |part: &str| {
            let is = |line: &&str| {
                line.starts_with("goroutine ") && line.contains("(spawned at tests/goroutines/panics.rs:")
            };
            stderr.lines().filter(is).filter(|line| line.contains(part)).count()
        };
        assert_eq!(
            (told("'parser'"), told("")),
            (1, 2),
            "not once each, with and without a name, in {stderr}"
        );
        for message in ["bad input", "nobody joins this"] {
            assert_eq!(stderr.matches(message).count(), 1, "{message} is not once in {stderr}");
        }
        assert!(!stderr.contains("goroutine 1 "), "the caught panic of a plain thread is in {stderr}");
        return;
    }
    let rt = runtime(2);
    rt.run(|| {
        let named = Builder::new().name("parser").go(|| panic!("bad input")).unwrap();
        named.join().unwrap_err();
        let detached = go(|| panic!("nobody joins this"));
        until(|| detached.is_finished());
        drop(detached);
    });
    assert!(catch_unwind(|| panic!("of a thread")).is_err());
}

/// Fails when a report mixes two goroutines up: a number, a name, a place or a frame of the other one, or of the thread.
#[test]
fn number_name_site_and_frames_are_the_goroutines_own() {
    #[inline(never)]
    fn in_left() {
        panic!("of left");
    }
    #[inline(never)]
    fn in_right() {
        panic!("of right");
    }
    let test = "number_name_site_and_frames_are_the_goroutines_own";
    if !child::is_child() {
        let stderr = child::passes(test, &[("RUST_BACKTRACE", "full"), ("GMPDEBUG", "migrate=1")]);
        let (left, right) =
            stderr.split_once(" 'right' (spawned at tests/goroutines/panics.rs:").expect(&stderr);
        for (report, own, other) in [(left, "in_left", "in_right"), (right, "in_right", "in_left")] {
            assert!(report.contains(own) && !report.contains(other), "not the frames of {own}: {stderr}");
            assert!(!report.contains("mstart"), "frames of the thread: {stderr}");
        }
        let number = |name| {
            let line = stderr.lines().find_map(|line| line.strip_prefix(name)).expect(&stderr);
            line.trim_start_matches(" has number ").to_owned()
        };
        let announced =
            format!("goroutine {} 'left' (spawned at tests/goroutines/panics.rs:", number("left"));
        assert!(left.contains(&announced) && left.contains("of left"), "{stderr}");
        assert!(left.ends_with(&format!("goroutine {}", number("right"))), "{stderr}");
        assert!(right.contains("of right"), "{stderr}");
        return;
    }
    let rt = runtime(2);
    rt.run(|| {
        for (name, panics) in [("left", in_left as fn()), ("right", in_right as fn())] {
            let parks_and_panics = move || {
                yield_now();
                std::hint::black_box(panics)();
            };
            let goroutine = Builder::new().name(name).go(parks_and_panics).unwrap();
            let id = goroutine.id();
            assert_eq!(text(goroutine.join().unwrap_err().into_panic()), format!("of {name}"));
            eprintln!("{name} has number {id}");
        }
    });
}

/// Fails by a fault when a panic that prints its whole backtrace needs more than the default stack.
#[test]
fn a_panic_with_a_full_backtrace_fits_on_the_default_stack() {
    let name = "a_panic_with_a_full_backtrace_fits_on_the_default_stack";
    if !child::is_child() {
        let stderr = child::passes(name, &[("RUST_BACKTRACE", "full")]);
        for part in ["stack backtrace:", "deep down", "panic_below", "tests/goroutines/panics.rs"] {
            assert!(stderr.contains(part), "{part} is not in {stderr}");
        }
        return;
    }
    let rt = runtime(2);
    // The panic comes below some frames of the program, and its message needs an allocation.
    let error = rt.go(|| panic_below(10)).join().unwrap_err();
    assert_eq!(error.to_string(), "the goroutine panicked: deep down, 1.5 of 2.25");
    assert!(rt.go(|| panic_below(0)).join().unwrap_err().is_panic());
}

#[inline(never)]
fn panic_below(frames: u32) {
    if frames == 0 {
        panic!("deep down, {} of {:.2}", 1.5, 2.25_f64);
    }
    panic_below(frames - 1);
    std::hint::black_box(frames);
}

/// The two lines of a panic are not written at once. Fails when a line can't be assigned to one of several panics at the same
/// time.
#[test]
fn of_panics_at_the_same_time_each_line_says_whose_it_is() {
    const COUNT: usize = 40;
    let test = "of_panics_at_the_same_time_each_line_says_whose_it_is";
    if child::is_child() {
        let rt = runtime(4);
        let here = Arc::new(AtomicUsize::new(0));
        let panicking: Vec<_> = (0..COUNT)
            .map(|n| {
                let here = Arc::clone(&here);
                let panics = move || {
                    here.fetch_add(1, SeqCst);
                    until(|| here.load(SeqCst) == COUNT);
                    panic!("of number {n}");
                };
                rt.run(|| Builder::new().name(format!("number {n}")).go(panics).unwrap())
            })
            .collect();
        return panicking.into_iter().for_each(|one| assert!(one.join().unwrap_err().is_panic()));
    }
    let stderr = child::passes(test, &[("RUST_BACKTRACE", "0")]);
    // The name of the goroutine whose panic was told last on a thread, by the number of the thread.
    let mut told = std::collections::HashMap::new();
    let (mut lines, mut matched) = (stderr.lines(), 0);
    while let Some(line) = lines.next() {
        if let Some((goroutine, thread)) = line.split_once(", on thread ") {
            assert!(
                goroutine.starts_with("goroutine ")
                    && goroutine.contains(" panicked at tests/goroutines/panics.rs:")
            );
            let name = goroutine.split('\'').nth(1).expect(line).to_owned();
            told.insert(thread.trim_end_matches(':').to_owned(), name);
        } else if line.starts_with("thread '") {
            let thread = line.rsplit_once(" (").and_then(|(_, rest)| rest.split_once(')')).expect(line).0;
            let message = lines.next().expect(line);
            assert_eq!(message, format!("of {}", told[thread]), "{stderr}");
            matched += 1;
        }
    }
    assert_eq!(matched, COUNT, "{stderr}");
}

/// Goes down until no more than `left` bytes lie above `bottom`, and panics there.
#[inline(never)]
fn panic_with_left(bottom: usize, left: usize) {
    let frame = std::hint::black_box([0_u8; 64]);
    match (&raw const frame).addr() - bottom {
        now if now <= left => panic!("{left} left"),
        _ => panic_with_left(bottom, left),
    }
    std::hint::black_box(&frame);
}

/// Returns how many bytes of a stack of `kib` KiB can be used at least.
const fn usable(kib: usize) -> usize {
    (kib - 6) << 10
}

/// Fails by SIGABRT when the backtrace needs more than is left of the goroutine's stack.
#[test]
fn a_panic_with_8_kib_left_stays_in_its_goroutine() {
    let test = "a_panic_with_8_kib_left_stays_in_its_goroutine";
    if !child::is_child() {
        for style in ["0", "1", "full"] {
            for with_stack in ["no", "yes"] {
                let stderr = child::passes(test, &[("RUST_BACKTRACE", style), ("WITH_STACK", with_stack)]);
                assert_eq!(stderr.contains("panic_with_left"), style != "0", "{stderr}");
                assert_eq!(stderr.matches(" left\n").count(), 10, "{stderr}");
            }
        }
        return;
    }
    let rt = runtime(2);
    for (size, lefts) in [(16, vec![8]), (64, vec![8, 12, 16, 20, 24, 32, 40, 50]), (1024, vec![8])] {
        for left in lefts {
            let panics = move || {
                let top = std::hint::black_box(0_u8);
                panic_with_left((&raw const top).addr() - usable(size), left << 10);
            };
            let small = Builder::new().stack_size(size << 10);
            let ended = match std::env::var("WITH_STACK").as_deref() {
                Ok("yes") => rt.go(move || gmp::with_stack(size << 10, panics)),
                _ => rt.run(|| small.go(panics)).unwrap(),
            };
            assert_eq!(text(ended.join().unwrap_err().into_panic()), format!("{} left", left << 10));
        }
    }
}

/// A panic that is to stay in the hook does so while this is locked.
static STAYS: Mutex<()> = Mutex::new(());
static IN_HOOK: AtomicUsize = AtomicUsize::new(0);

/// Fails by SIGABRT, or by silence, when there is no memory for a stack of the hook's own.
#[test]
fn a_panic_is_told_where_the_hook_gets_no_stack() {
    let test = "a_panic_is_told_where_the_hook_gets_no_stack";
    if !child::is_child() {
        let stderr = child::passes(test, &[("RUST_BACKTRACE", "0")]);
        let (little, much) = stderr.split_once("'much'").expect(&stderr);
        assert!(little.contains("'little' (spawned at tests/goroutines/panics.rs:"), "{stderr}");
        assert!(little.contains("\n8192 left\nthe panic hook was not run: "), "{stderr}");
        assert!(much.contains("\nthread 'gmp-"), "{stderr}");
        assert!(much.contains("\n49152 left\n") && !much.contains("was not run"), "{stderr}");
        return;
    }
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| match info.payload().downcast_ref() {
        Some(&"stays") => {
            IN_HOOK.fetch_add(1, SeqCst);
            drop(STAYS.lock());
        }
        _ => previous(info),
    }));
    let rt = runtime(1);
    // After this the runtime has stacks for the two goroutines.
    rt.run(|| ());
    // Goroutines that stay in the hook, on a thread each, take the stacks that are ready.
    let stays = STAYS.lock().unwrap();
    let in_hook = Vec::from_iter((0..20).map(|_| rt.go(|| panic!("stays"))));
    until(|| IN_HOOK.load(SeqCst) == in_hook.len());
    // After this there is a further thread, too.
    rt.run(|| ());
    without_stacks_for_threads(|| {
        for (name, left) in [("little", 8 << 10), ("much", 48 << 10)] {
            panics_with_left(&rt, name, left);
        }
    });
    drop(stays);
    in_hook.into_iter().for_each(|one| drop(one.join().unwrap_err()));
}

/// Fails when the previous hook is not run because plain threads have taken the stacks that are ready for it.
#[test]
fn stacks_of_plain_threads_are_none_of_the_hooks() {
    let test = "stacks_of_plain_threads_are_none_of_the_hooks";
    if !child::is_child() {
        let stderr = child::passes(test, &[("RUST_BACKTRACE", "0")]);
        assert!(stderr.contains("\nthread 'gmp-") && !stderr.contains("was not run"), "{stderr}");
        return;
    }
    let rt = runtime(1);
    // After this the runtime has stacks for the goroutines.
    rt.run(|| ());
    without_stacks_for_threads(|| panics_with_left(&rt, "little", 8 << 10));
}

/// Runs `f` while plain threads use all stacks that they can get, and no more can be mapped.
fn without_stacks_for_threads(f: impl FnOnce()) {
    let (begin, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let ready = Arc::new(AtomicUsize::new(0));
    let (inside, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let threads: Vec<_> = (0..40)
        .map(|_| {
            let (begin, over) = (Arc::clone(&begin), Arc::clone(&over));
            let (inside, refused) = (Arc::clone(&inside), Arc::clone(&refused));
            let ready = Arc::clone(&ready);
            std::thread::spawn(move || {
                ready.fetch_add(1, SeqCst);
                until(|| begin.load(SeqCst));
                let stays = || {
                    inside.fetch_add(1, SeqCst);
                    until(|| over.load(SeqCst));
                };
                if catch_unwind(AssertUnwindSafe(|| gmp::with_stack(256 << 10, stays))).is_err() {
                    refused.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    until(|| ready.load(SeqCst) == 40);
    let full = FullAddressSpace::begin();
    begin.store(true, SeqCst);
    until(|| inside.load(SeqCst) + refused.load(SeqCst) == 40);
    assert!(refused.load(SeqCst) > 0);
    f();
    drop(full);
    over.store(true, SeqCst);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A limit that leaves no room for stacks.
struct FullAddressSpace(libc::rlimit);

impl FullAddressSpace {
    fn begin() -> Self {
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the call writes the struct that is passed.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut before) }, 0);
        // The runtime leaves an eighth of the limit to other uses than stacks: so no stack fits, and the heap can grow.
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
        Self::set(&libc::rlimit { rlim_cur: pages * 4096 + (8 << 20), ..before });
        FullAddressSpace(before)
    }

    fn set(limit: &libc::rlimit) {
        // SAFETY: the call reads the struct that is passed.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, limit) }, 0);
    }
}

impl Drop for FullAddressSpace {
    fn drop(&mut self) {
        Self::set(&self.0);
    }
}

/// Runs a goroutine of this name that panics with `left` bytes left.
fn panics_with_left(rt: &Runtime, name: &'static str, left: usize) {
    let panics = move || {
        let top = std::hint::black_box(0_u8);
        panic_with_left((&raw const top).addr() - usable(64), left);
    };
    let ended = rt.run(|| Builder::new().name(name).go(panics).unwrap()).join();
    assert_eq!(text(ended.unwrap_err().into_panic()), format!("{left} left"));
}

/// Fails when the previous hook is not run because the hook's stacks were given up when a larger one was refused.
#[test]
fn a_stack_that_is_refused_costs_the_hook_none() {
    let test = "a_stack_that_is_refused_costs_the_hook_none";
    if !child::is_child() {
        let stderr = child::passes(test, &[("RUST_BACKTRACE", "0")]);
        assert!(stderr.contains("\nthread 'gmp-") && !stderr.contains("was not run"), "{stderr}");
        return;
    }
    let rt = runtime(1);
    // After this the runtime has stacks for the goroutines.
    rt.run(|| ());
    let full = FullAddressSpace::begin();
    assert!(catch_unwind(|| gmp::with_stack(64 << 20, || ())).is_err());
    panics_with_left(&rt, "little", 8 << 10);
    drop(full);
}

/// Fails by a fault.
#[test]
fn formatting_floats_fits_on_the_default_stack() {
    everywhere(|rt| {
        let formatted = rt.go(|| {
            let all = [0.1, 1e300, -2.5e-308, f64::MAX, f64::MIN_POSITIVE, 1.0 / 3.0];
            all.map(|float| format!("{float} {float:e} {float:.17} {float:?} {:+.3}", float as f32))
        });
        let formatted = formatted.join().unwrap();
        assert_eq!(formatted[0], "0.1 1e-1 0.10000000000000001 0.1 +0.100");
        assert!(formatted[3].len() > 300);
    });
}

/// Fails by a fault: the buffers of libc's resolver lie on the caller's stack.
#[test]
fn resolving_a_name_fits_on_the_default_stack() {
    everywhere(|rt| {
        let resolved = rt.go(|| {
            let localhost = "localhost:0".to_socket_addrs().expect("localhost resolves").count();
            // There is no such name: the resolver tries all its ways, and fails.
            let nowhere = "name.invalid:0".to_socket_addrs().map(Iterator::count);
            (localhost, nowhere.unwrap_or(0))
        });
        let (localhost, nowhere) = resolved.join().unwrap();
        assert!(localhost > 0 && nowhere == 0);
    });
}

/// Fails by a fault, or by a hang of the thread that waits for the child.
#[test]
fn running_a_command_fits_on_the_default_stack() {
    everywhere(|rt| {
        rt.run(|| {
            let said = go(|| Command::new("echo").args(["a", "b"]).env("X", "1").output());
            assert_eq!(said.join().unwrap().expect("echo runs").stdout, b"a b\n");
            // Goes the long way, through fork.
            let elsewhere = go(|| Command::new("pwd").current_dir("/").output());
            assert_eq!(elsewhere.join().unwrap().expect("pwd runs").stdout, b"/\n");
            let missing = go(|| Command::new("/no/such/program").output().map(drop));
            assert_eq!(missing.join().unwrap().unwrap_err().kind(), std::io::ErrorKind::NotFound);
        });
    });
}

/// Notes whether the thread panics, and then waits at the barrier, twice.
struct Asks(Arc<AtomicBool>, Option<Arc<Barrier>>);

impl Drop for Asks {
    fn drop(&mut self) {
        self.0.store(thread::panicking(), SeqCst);
        let waits = self.1.iter();
        waits.for_each(|both| {
            both.wait();
            both.wait();
        });
    }
}

/// The first runtime of the process is built in a panic hook. Fails when the thread does not count as panicking afterwards, or
/// does so for ever.
#[test]
fn a_runtime_that_is_built_in_a_panic_hook_leaves_the_panic_as_it_is() {
    const NAME: &str = "a_runtime_that_is_built_in_a_panic_hook_leaves_the_panic_as_it_is";
    if !child::is_child() {
        child::passes(NAME, &[]);
        return;
    }
    std::panic::set_hook(Box::new(|_info| assert_eq!(runtime(1).run(|| 6 * 7), 42)));
    let panics = Arc::new(AtomicBool::new(false));
    let asks = Asks(Arc::clone(&panics), None);
    let caught = catch_unwind(AssertUnwindSafe(move || {
        let _asks = asks;
        panic!("on purpose");
    }));
    assert!(caught.is_err() && panics.load(SeqCst), "the unwinding is one of a panic");
    assert!(!thread::panicking(), "it is over");
    // While any thread panics, std asks the count of each thread.
    let both = Arc::new(Barrier::new(2));
    let asks = Asks(panics, Some(Arc::clone(&both)));
    let other = thread::spawn(move || {
        let _asks = asks;
        panic!("on purpose");
    });
    both.wait();
    let panicking = thread::panicking();
    both.wait();
    assert!(other.join().is_err() && !panicking, "it is over for good");
}
