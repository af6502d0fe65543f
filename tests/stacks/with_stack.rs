//! A function on a larger stack is part of its goroutine: it parks, moves, unwinds and ends like any other.

use common::child;
use common::{everywhere, runtime, until};
use gmp::context::{Context, ContextError};
use gmp::sync::Event;
use gmp::{chan, go, goexit, time::sleep, with_stack, yield_now};
use std::any::Any;
use std::cell::Cell;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Deeper than a goroutine's own 64 KiB allow.
const DEEP: u32 = 3000;
const MIB: usize = 1 << 20;
/// Room for `DEEP` frames, in a debug build too.
const LARGE: usize = 8 * MIB;

/// Goes down `depth` frames, calls `f` in the innermost, and adds up the values of the frames on the way back.
#[inline(never)]
fn descend(depth: u32, f: &mut dyn FnMut()) -> u64 {
    let kept = black_box([depth; 32]);
    if depth == 0 {
        f();
        return 0;
    }
    descend(depth - 1, f) + u64::from(kept[depth as usize % 32])
}

fn sum(depth: u32) -> u64 {
    u64::from(depth) * u64::from(depth + 1) / 2
}

fn text(payload: Box<dyn Any + Send>) -> String {
    (*payload.downcast::<&str>().expect("a text")).to_owned()
}

/// Returns how many bytes of the process are in memory.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Counts its drops.
struct Drops<'a>(&'a AtomicUsize);

impl Drop for Drops<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Fails by an overflow, or when the sum is not that of the values in the frames.
#[test]
fn it_goes_deep_and_parks_at_the_bottom() {
    everywhere(|rt| {
        let goroutines: Vec<_> = (0..20)
            .map(|_| {
                rt.go(|| {
                    with_stack(LARGE, || {
                        descend(DEEP, &mut || {
                            sleep(Duration::from_micros(100));
                            yield_now();
                        })
                    })
                })
            })
            .collect();
        goroutines.into_iter().for_each(|each| assert_eq!(each.join().unwrap(), sum(DEEP)));
    });
}

/// The same, but each park resumes on another thread.
#[test]
fn it_resumes_on_another_thread() {
    #[inline(never)]
    fn tid() -> i32 {
        // SAFETY: gettid has no preconditions.
        unsafe { libc::gettid() }
    }
    if !child::is_child() {
        child::passes("it_resumes_on_another_thread", &[("GMPDEBUG", "migrate=1")]);
        return;
    }
    let rt = runtime(2);
    let deep = || {
        let mut changes = 0;
        let parks = &mut || {
            for _ in 0..20 {
                let before = tid();
                yield_now();
                changes += u32::from(tid() != before);
            }
        };
        assert_eq!(with_stack(LARGE, || descend(DEEP, parks)), sum(DEEP));
        changes
    };
    let all: Vec<_> = (0..10).map(|_| rt.go(deep)).collect();
    let changes: u32 = all.into_iter().map(|each| each.join().unwrap()).sum();
    assert!(changes > 0, "nobody has moved");
}

/// The function takes and returns values that are bound to the caller: a borrow, a value that is neither `Send` nor `'static`,
/// a large one.
#[test]
fn what_it_takes_and_gives_need_not_be_send() {
    everywhere(|rt| {
        rt.run(|| {
            let (own, mut borrowed) = (Rc::new(Cell::new(1)), [0_u8; 300]);
            let given = with_stack(MIB, || {
                borrowed[299] = 7;
                own.set(2);
                (Rc::clone(&own), [own.get(); 500])
            });
            assert_eq!((own.get(), borrowed[299], given.1[499], Rc::strong_count(&own)), (2, 7, 2, 2));
        });
    });
}

/// Fails by another payload, when frames were not unwound, or when the caller's own stack can't be used afterwards.
#[test]
fn a_panic_passes_through_it() {
    everywhere(|rt| {
        let drops = Arc::new(AtomicUsize::new(0));
        let shared = Arc::clone(&drops);
        rt.run(move || {
            for turn in 1..=20 {
                let throw = || {
                    let _outside = Drops(&shared);
                    with_stack(LARGE, || {
                        let _inside = Drops(&shared);
                        descend(DEEP, &mut || {
                            yield_now();
                            resume_unwind(Box::new("from below"))
                        })
                    })
                };
                assert_eq!(text(catch_unwind(AssertUnwindSafe(throw)).unwrap_err()), "from below");
                assert_eq!(shared.load(SeqCst), 2 * turn);
                assert_eq!(with_stack(LARGE, || descend(DEEP, &mut || ())), sum(DEEP));
            }
        });
        let joined = rt.go(|| with_stack(MIB, || -> u32 { resume_unwind(Box::new("joined")) })).join();
        assert_eq!(text(joined.unwrap_err().into_panic()), "joined");
        // A panic that is caught inside goes no further.
        let inside = || with_stack(MIB, || catch_unwind(|| resume_unwind(Box::new("inside"))).is_err());
        assert!(rt.run(inside));
    });
}

/// Fails when a backtrace ends at the edge of the second stack.
#[test]
fn a_backtrace_has_the_frames_of_both_stacks() {
    #[inline(never)]
    fn on_the_second() {
        panic!("with both");
    }
    #[inline(never)]
    fn on_the_first() {
        with_stack(MIB, || black_box(on_the_second)());
        black_box(());
    }
    if !child::is_child() {
        let stderr = child::passes("a_backtrace_has_the_frames_of_both_stacks", &[("RUST_BACKTRACE", "1")]);
        for part in [
            "with both",
            "on_the_second",
            "on_the_first",
            "goroutine 2 (spawned at tests/stacks/with_stack.rs",
        ] {
            assert!(stderr.contains(part), "{part} is not in {stderr}");
        }
        return;
    }
    assert!(runtime(2).run(|| go(black_box(on_the_first)).join()).unwrap_err().is_panic());
}

#[test]
fn goexit_passes_through_it() {
    everywhere(|rt| {
        let drops = Arc::new(AtomicUsize::new(0));
        for parks in [false, true] {
            let drops = Arc::clone(&drops);
            let ended = rt.go(move || {
                let _outside = Drops(&drops);
                with_stack(MIB, || {
                    let _inside = Drops(&drops);
                    if parks {
                        // The exit is caught here, and goes on at the next park.
                        assert!(catch_unwind(|| goexit()).is_err());
                        yield_now();
                        sleep(Duration::MAX);
                    }
                    goexit()
                })
            });
            let ended: gmp::JoinError = ended.join().map(|never: ()| never).unwrap_err();
            assert!(ended.is_goexit());
        }
        assert_eq!(drops.load(SeqCst), 4);
    });
}

/// Fails when a goroutine sleeps on because the look at the frames does not find the catcher, which lies on another stack than
/// the park, or takes another frame for the catcher.
#[test]
fn a_context_ends_it_wherever_run_is_called() {
    type Way = fn(&Context, &AtomicUsize) -> Result<(), ContextError>;
    fn park(drops: &AtomicUsize) {
        let _below = Drops(drops);
        descend(100, &mut || Event::new().wait());
    }
    const WAYS: [Way; 6] = [
        |ctx, drops| ctx.run(|| with_stack(MIB, || park(drops))),
        |ctx, drops| with_stack(MIB, || ctx.run(|| park(drops))),
        |ctx, drops| ctx.run(|| with_stack(MIB, || with_stack(4 * MIB, || park(drops)))),
        |ctx, drops| with_stack(MIB, || ctx.run(|| with_stack(MIB, || park(drops)))),
        |ctx, drops| {
            // The inner context is open; the throw passes its catcher on both stacks.
            let (open, _cancel) = Context::background().with_cancel();
            ctx.run(|| with_stack(MIB, || open.run(|| with_stack(MIB, || park(drops)))))?.map(|_: ()| ())
        },
        |ctx, drops| {
            let passes = || with_stack(MIB, || catch_unwind(AssertUnwindSafe(|| park(drops))));
            ctx.run(|| passes().unwrap_or_else(|payload| resume_unwind(payload)))
        },
    ];
    // Stacks of other sizes, from other slabs: each may lie above the other.
    everywhere(|rt| {
        for way in WAYS {
            for _ in 0..3 {
                let drops = Arc::new(AtomicUsize::new(0));
                let (ctx, cancel) = Context::background().with_cancel();
                let shared = Arc::clone(&drops);
                let parked = rt.go(move || {
                    let ended = way(&ctx, &shared);
                    // Nothing is left of the interrupt: this park is not interrupted.
                    sleep(Duration::from_micros(10));
                    ended
                });
                until(|| rt.dump().contains("[event"));
                cancel.cancel();
                assert_eq!(parked.join().unwrap(), Err(ContextError::Canceled));
                assert_eq!(drops.load(SeqCst), 1);
            }
        }
    });
}

#[test]
fn it_nests() {
    fn nest(levels: u32) -> u64 {
        if levels == 0 {
            return 0;
        }
        with_stack(MIB, || {
            let below = descend(500, &mut || yield_now()) - sum(500) + nest(levels - 1);
            yield_now();
            below + 1
        })
    }
    everywhere(|rt| assert_eq!(rt.run(|| nest(50)), 50));
    assert_eq!(nest(50), 50);
}

/// Fails by a text that does not name what is wrong, or by an abort.
#[test]
fn a_size_out_of_range_is_a_panic_that_names_the_limits() {
    let refused = |size: usize| {
        let refused = catch_unwind(|| with_stack(size, || ())).unwrap_err();
        *refused.downcast::<String>().expect("a text")
    };
    let all = move || {
        for size in [0, 1, (16 << 10) - 1, (64 << 20) + 1, usize::MAX] {
            let limits = "is not within 16384..=67108864";
            assert_eq!(refused(size), format!("with_stack: stack_size: {size} {limits}"));
        }
        assert_eq!(with_stack(16 << 10, || with_stack(64 << 20, || 1)), 1);
    };
    all();
    runtime(1).run(all);
}

/// Fails when stacks do not come back: the process would hold a thousand more after each round.
#[test]
fn a_thousand_at_once_and_again() {
    if !child::is_child() {
        child::passes("a_thousand_at_once_and_again", &[]);
        return;
    }
    let rt = runtime(4);
    let round = || {
        let (open, gate) = chan::bounded::<()>(0);
        let inside = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> = (0..1000)
            .map(|_| {
                let (gate, inside) = (gate.clone(), Arc::clone(&inside));
                let parks = move || {
                    inside.fetch_add(1, SeqCst);
                    gate.recv().unwrap_err();
                };
                rt.go(move || with_stack(256 << 10, move || descend(300, &mut || parks())))
            })
            .collect();
        until(|| inside.load(SeqCst) == 1000);
        drop(open);
        all.into_iter().for_each(|each| assert_eq!(each.join().unwrap(), sum(300)));
    };
    round();
    let after_one = resident();
    (0..5).for_each(|_| round());
    // A round that found no stack of the round before would touch another 50 MB and more.
    assert!(resident() < after_one + (100 << 20), "{after_one} bytes, then {}", resident());
}

#[test]
fn a_plain_thread_may_use_it() {
    let deep = || {
        let (sender, receiver) = chan::bounded(0);
        let sends = std::thread::spawn(move || with_stack(MIB, || sender.send(sum(3)).unwrap()));
        let sum = with_stack(LARGE, || {
            // The thread blocks there.
            let three = receiver.recv().unwrap();
            descend(DEEP, &mut || yield_now()) + three
        });
        sends.join().unwrap();
        sum
    };
    assert_eq!(deep(), sum(DEEP) + 6);
    assert_eq!(std::thread::spawn(deep).join().unwrap(), sum(DEEP) + 6);
    let caught = catch_unwind(|| with_stack(MIB, || -> u8 { resume_unwind(Box::new("a thread's")) }));
    assert_eq!(text(caught.unwrap_err()), "a thread's");
    let (ctx, cancel) = Context::background().with_cancel();
    let cancels = std::thread::spawn(move || cancel.cancel());
    assert_eq!(ctx.run(|| with_stack(MIB, || Event::new().wait())), Err(ContextError::Canceled));
    cancels.join().unwrap();
}

/// Fails when a goroutine is left behind because the room on its stack was computed from the distance to another stack, most
/// often too small.
#[test]
fn the_end_of_a_runtime_unwinds_it() {
    everywhere(|rt| {
        let (drops, begun) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for size in [64 << 10, MIB, LARGE, 64 * MIB] {
            let (drops, begun) = (Arc::clone(&drops), Arc::clone(&begun));
            drop(rt.go(move || {
                let _own = Drops(&drops);
                with_stack(size, || {
                    let _second = Drops(&drops);
                    with_stack(MIB, || {
                        let _third = Drops(&drops);
                        begun.fetch_add(1, SeqCst);
                        Event::new().wait();
                    });
                });
            }));
        }
        until(|| begun.load(SeqCst) == 4);
        let report = rt.shutdown(Duration::from_secs(20));
        assert_eq!((report.goroutines_left(), drops.load(SeqCst)), (0, 12));
    });
}

/// Goes down until `used` bytes lie between `top` and its frame, and waits there.
#[cfg(not(gmp_asan))]
#[inline(never)]
fn waits_below(top: usize, used: usize, begun: &AtomicUsize) {
    let frame = black_box([0_u8; 128]);
    if top - (&raw const frame).addr() < used {
        waits_below(top, used, begun);
    } else {
        begun.fetch_add(1, SeqCst);
        Event::new().wait();
    }
    black_box(&frame);
}

/// A throw needs stack. Fails when a goroutine is unwound on a stack that is nearly full, as the room was computed from the
/// distance to another stack. With AddressSanitizer a wait takes more than the stack that is left here.
#[cfg(not(gmp_asan))]
#[test]
fn a_goroutine_on_a_nearly_full_stack_is_left() {
    everywhere(|rt| {
        let begun = Arc::new(AtomicUsize::new(0));
        for _ in 0..4 {
            let begun = Arc::clone(&begun);
            drop(rt.go(move || {
                with_stack(64 << 10, || {
                    let top = black_box(0_u8);
                    waits_below((&raw const top).addr(), 53 << 10, &begun);
                });
            }));
        }
        until(|| begun.load(SeqCst) == 4);
        let report = rt.shutdown(Duration::from_secs(20));
        assert_eq!(report.goroutines_left(), 4);
    });
}

/// No monitor trims the stacks of plain threads. Fails when their memory is not given back.
#[test]
fn a_plain_thread_gives_large_stacks_back() {
    if !child::is_child() {
        child::passes("a_plain_thread_gives_large_stacks_back", &[]);
        return;
    }
    #[inline(never)]
    fn touch() -> usize {
        black_box([1_u8; 16 * MIB]);
        resident()
    }
    let resident_before = resident();
    let peak = with_stack(64 * MIB, touch);
    assert!(peak > resident_before + 16 * MIB, "{resident_before} bytes, then {peak}");
    assert!(resident() < resident_before + 8 * MIB, "{resident_before} bytes, then {}", resident());
}

/// No throw passes this function.
#[inline(never)]
extern "C" fn sleeps_for_good(place: &AtomicUsize) {
    let value = black_box(7_u8);
    place.store((&raw const value).addr(), SeqCst);
    Event::new().wait();
    black_box(value);
}

/// Fails by a fault when a stack of a goroutine that is left behind was unmapped or given to another.
#[test]
fn a_goroutine_that_is_left_behind_keeps_both_stacks() {
    everywhere(|rt| {
        static PLACE: AtomicUsize = AtomicUsize::new(0);
        PLACE.store(0, SeqCst);
        let parked = rt.go(|| with_stack(MIB, || sleeps_for_good(&PLACE)));
        until(|| PLACE.load(SeqCst) != 0);
        assert_eq!(rt.shutdown(Duration::from_secs(20)).threads_left(), 0);
        drop(parked);
        runtime(1).run(|| with_stack(LARGE, || descend(DEEP, &mut || ())));
        // SAFETY: the frame was leaked with its stack.
        assert_eq!(unsafe { (PLACE.load(SeqCst) as *const u8).read_volatile() }, 7);
    });
}

/// From here on the kernel installs no guard in this process, for want of memory.
fn refuse_guards() {
    const PROCESS_MADVISE: u32 = 440;
    const MADV_GUARD_INSTALL: u32 = 102;
    // The offsets at which a filter finds the number of the system call, and the lower half of its third argument.
    const NUMBER: u32 = 0;
    const THIRD: u32 = 32;
    let instruction = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |at| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    let skip_unless =
        |value, count| instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, count, value);
    let answer = |with| instruction(libc::BPF_RET | libc::BPF_K, 0, 0, with);
    let refused = libc::SECCOMP_RET_ERRNO | libc::ENOMEM as u32;
    let program = [
        load(NUMBER),
        skip_unless(PROCESS_MADVISE, 1),
        answer(refused),
        skip_unless(libc::SYS_madvise as u32, 3),
        load(THIRD),
        skip_unless(MADV_GUARD_INSTALL, 1),
        answer(refused),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the filter is read during the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let (mode, threads) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
        assert_eq!(libc::syscall(libc::SYS_seccomp, mode, threads, &raw const filter), 0);
    }
}

/// Calls itself `depth` times, each time on one more stack.
fn nest(size: usize, depth: usize) -> usize {
    if depth == 0 { 0 } else { 1 + with_stack(size, || nest(size, depth - 1)) }
}

/// Fails when a stack that the kernel refuses after its reservation counts as in use. Main keeps its P, though it takes long:
/// on another thread the first goroutines would end while main still starts others, and their stacks would be reserved again.
#[test]
fn what_is_refused_is_not_counted() {
    const STACK: usize = 64 << 10;
    const MOST: usize = 256;
    child::without_retakes("what_is_refused_is_not_counted", || {
        let builder = gmp::Runtime::builder().procs(1).stack_size(STACK).max_stack_bytes(MOST * STACK);
        // SAFETY: as in `common::runtime`.
        unsafe { builder.build() }.unwrap().run(|| {
            assert_eq!(nest(STACK, 10), 10);
            refuse_guards();
            std::panic::set_hook(Box::new(|_| ()));
            // More stacks than were given a guard at a time.
            let refused = (0..200).filter(|_| catch_unwind(|| nest(STACK, 100)).is_err()).count();
            drop(std::panic::take_hook());
            assert_eq!(refused, 200, "the kernel has guards all the same");
            // All stacks but main's are free. They are reserved, and their goroutines run one after the other.
            let started: Vec<_> = std::iter::from_fn(|| gmp::Builder::new().go(|| ()).ok()).collect();
            assert_eq!(started.len(), MOST - 1);
            started.into_iter().for_each(|one| one.join().unwrap());
        });
    });
}
