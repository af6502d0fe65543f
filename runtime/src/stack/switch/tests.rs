//! The switch by itself: the registers, unwinding over a switch, and backtraces.

use super::*;
use crate::stack::End;
use crate::stack::pool::GUARD;
use crate::stack::tests::{child, end, is_child, leave, resume_from, started};
use std::backtrace::Backtrace;
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::panic::{self, AssertUnwindSafe};
use std::thread;

/// Fails by a wrong word: a word is lost or late, or was changed through a register that the switch did not keep.
#[test]
fn words_pass_both_ways_and_the_last_one_too() {
    extern "C" fn echo(mut home: usize) -> End {
        for i in 0..1000 {
            home = leave(home, i * 3);
        }
        end(home, usize::MAX)
    }
    let (pool, homes) = (StackPool::new(None, GUARD), [const { Home::new() }; 7]);
    let mut coro = started(&pool, 0, echo).unwrap();
    for i in 0..1000 {
        assert_eq!(resume_from(&mut coro, &homes[i % 7]), i * 3);
    }
    assert_eq!(resume_from(&mut coro, &homes[3]), usize::MAX);
    coro.retire(&pool, &mut StackCache::default());
}

struct CountDrop<'a>(&'a Cell<usize>);

impl Drop for CountDrop<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// Suspends once in the deepest of `depth` frames, each of which holds floats, and then unwinds or returns through all of them.
#[inline(never)]
fn descend(home: &Cell<usize>, drops: &Cell<usize>, depth: usize, unwind: bool) -> f64 {
    let _drop = CountDrop(drops);
    let floats: [f64; 8] = black_box(std::array::from_fn(|i| (depth * 8 + i) as f64 / 3.0));
    let (a, b) = (floats[0] * 1.5, floats[7].sqrt());
    let below = if depth > 0 {
        descend(home, drops, depth - 1, unwind)
    } else {
        home.set(leave(home.get(), 1));
        if unwind {
            panic::resume_unwind(Box::new(depth));
        }
        0.0
    };
    below + a * b + floats.iter().sum::<f64>()
}

/// Fails by a wrong sum, a missed destructor or a crash: some state of a suspended goroutine stayed with the thread.
#[test]
fn a_goroutine_resumed_on_100_threads_keeps_its_floats_its_frames_and_its_unwinding() {
    extern "C" fn wander(home: usize) -> End {
        let (home, drops) = (Cell::new(home), Cell::new(0));
        let expected = expected_sum();
        for i in 0..100 {
            let (unwind, before) = (i % 3 == 0, drops.get());
            let run = || descend(&home, &drops, 60, unwind);
            match panic::catch_unwind(AssertUnwindSafe(run)) {
                Ok(sum) => assert_eq!((sum, unwind), (expected, false)),
                Err(payload) => assert_eq!((payload.downcast_ref(), unwind), (Some(&0_usize), true)),
            }
            assert_eq!(drops.get() - before, 61);
        }
        end(home.get(), 0)
    }
    fn expected_sum() -> f64 {
        (0..=60).fold(0.0, |below, depth| {
            let floats: [f64; 8] = std::array::from_fn(|i| (depth * 8 + i) as f64 / 3.0);
            below + floats[0] * 1.5 * floats[7].sqrt() + floats.iter().sum::<f64>()
        })
    }
    let pool = StackPool::new(None, GUARD);
    let mut coro = started(&pool, 64 << 10, wander).unwrap();
    let home = Home::new();
    assert_eq!(resume_from(&mut coro, &home), 1);
    for i in 1..=100 {
        let run = || resume_from(&mut coro, &Home::new());
        let word = thread::scope(|scope| scope.spawn(run).join().unwrap());
        assert_eq!(word, usize::from(i < 100));
    }
    coro.retire(&pool, &mut StackCache::default());
}

/// Fails by a crash or a hang in the unwinder, or by a trace that goes on above the trampoline.
#[test]
fn a_backtrace_ends_at_the_trampoline_and_a_panic_is_caught_inside() {
    extern "C" fn trace(home: usize) -> End {
        let text = Backtrace::force_capture().to_string();
        let home = leave(home, Box::into_raw(Box::new(text)).addr());
        let caught = panic::catch_unwind(|| panic!("with a backtrace"));
        end(home, usize::from(caught.is_err()))
    }
    if !is_child() {
        let output = child(module_path!(), "a_backtrace_ends_at_the_trampoline_and_a_panic_is_caught_inside")
            .env("RUST_BACKTRACE", "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("stack backtrace"), "{output:?}");
        return;
    }
    let pool = StackPool::new(None, GUARD);
    let mut coro = started(&pool, 64 << 10, trace).unwrap();
    let text = resume_from(&mut coro, &Home::new()) as *mut String;
    // SAFETY: `trace` made the pointer from a Box and keeps no copy.
    let text = unsafe { Box::from_raw(text) };
    let frames: Vec<&str> = text.lines().filter(|line| !line.trim().starts_with("at ")).collect();
    assert!(frames.iter().any(|frame| frame.contains("trace")), "{text}");
    assert!(frames.last().unwrap().contains("trampoline"), "{text}");
    assert_eq!(resume_from(&mut coro, &Home::new()), 1);
    coro.retire(&pool, &mut StackCache::default());
}

/// Fails if the child ends in another way: by a hang, an exit, or a write into the slot below.
#[test]
fn an_overflow_meets_the_guard_page() {
    #[inline(never)]
    fn exhaust(depth: usize) -> usize {
        let frame = black_box([depth; 64]);
        if black_box(false) { 0 } else { exhaust(depth + 1) + frame[depth % 64] }
    }
    extern "C" fn overflow(home: usize) -> End {
        end(home, exhaust(0))
    }
    if is_child() {
        let pool = StackPool::new(None, GUARD);
        let mut below = started(&pool, 64 << 10, overflow).unwrap();
        let mut coro = started(&pool, 64 << 10, overflow).unwrap();
        resume_from(&mut coro, &Home::new());
        resume_from(&mut below, &Home::new());
        return;
    }
    let output = child(module_path!(), "an_overflow_meets_the_guard_page")
        .env("RUST_BACKTRACE", "1")
        .output()
        .unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{output:?}");
}

/// Fails if the child ends in another way: a panic that unwinds into the trampoline has no frame to go to.
#[test]
fn a_panic_that_leaves_the_entry_aborts() {
    extern "C" fn throw(_home: usize) -> End {
        panic!("uncaught")
    }
    if is_child() {
        let mut coro = started(&StackPool::new(None, GUARD), 64 << 10, throw).unwrap();
        resume_from(&mut coro, &Home::new());
        return;
    }
    let output = child(module_path!(), "a_panic_that_leaves_the_entry_aborts")
        .env("RUST_BACKTRACE", "1")
        .output()
        .unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
}

extern "C" fn park_once(home: usize) -> End {
    let value = black_box(Cell::new(7));
    let home = leave(home, ptr::from_ref(&value).addr());
    end(home, value.get())
}

/// Fails by a fault or a wrong value: then the frame of a dropped goroutine was unmapped, or given to another goroutine.
#[test]
fn a_suspended_coro_that_is_dropped_leaks_its_stack() {
    let (pool, home) = (StackPool::new(None, GUARD), Home::new());
    let mut coro = started(&pool, 0, park_once).unwrap();
    let value = resume_from(&mut coro, &home) as *const usize;
    drop(coro);
    for _ in 0..100 {
        let mut other = started(&pool, 0, park_once).unwrap();
        resume_from(&mut other, &home);
        assert_eq!(resume_from(&mut other, &home), 7);
        other.retire(&pool, &mut StackCache::default());
    }
    drop(pool);
    // SAFETY: the frame of `park_once` was leaked with the stack.
    assert_eq!(unsafe { value.read_volatile() }, 7);
}

/// Fails if frames in use could be handed to the next goroutine.
#[test]
#[should_panic(expected = "Coro::retire: it is suspended")]
fn a_suspended_coro_cannot_be_retired() {
    let pool = StackPool::new(None, GUARD);
    let mut coro = started(&pool, 0, park_once).unwrap();
    resume_from(&mut coro, &Home::new());
    coro.retire(&pool, &mut StackCache::default());
}

/// Fails if parking costs more memory than needed: a second page of 4 KiB is touched.
#[test]
fn a_goroutine_that_parks_at_once_touches_one_page() {
    let pool = StackPool::new(None, GUARD);
    let mut coro = started(&pool, 64 << 10, park_once).unwrap();
    resume_from(&mut coro, &Home::new());
    let mut resident = [0_u8; 15];
    let bottom = coro.stack.top().wrapping_sub(resident.len() * 4096);
    // SAFETY: the call asks about the usable pages of a mapped stack, and writes a byte for each.
    let done = unsafe { libc::mincore(bottom.cast(), resident.len() * 4096, resident.as_mut_ptr()) };
    assert_eq!((done, resident.map(|page| page & 1)), (0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]));
}
