//! A goroutine that can't be unwound continues to wait, and never silently: the runtime counts it, and reports it with the
//! frame that is to blame.

use common::child;
use common::everywhere;
use gmp::context::{Context, ContextError};
use gmp::sync::Event;
use gmp::{Runtime, time};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const SHUTDOWN_LIMIT: Duration = Duration::from_secs(20);

/// A panic that reaches this function ends the process.
extern "C" fn lets_no_panic_out() {
    time::sleep(Duration::from_millis(50));
}

fn waits_below_c() {
    black_box(lets_no_panic_out as extern "C" fn())();
}

/// Runs `f` under a context that is done.
fn under_a_done_context(f: impl FnOnce()) -> Result<(), ContextError> {
    let (ctx, cancel) = Context::background().with_cancel();
    cancel.cancel();
    ctx.run(f)
}

/// Makes `waits` waits below a function of C outlive their context.
fn outlive(rt: &Runtime, waits: usize) {
    for _ in 0..waits {
        assert_eq!(rt.run(|| under_a_done_context(waits_below_c)), Ok(()));
    }
}

/// Fails by another count, or by a report that is not clean, though all goroutines have ended.
#[test]
fn each_is_counted_in_the_report() {
    everywhere(|rt| {
        outlive(&rt, 3);
        let ended = rt.run(|| under_a_done_context(|| Event::new().wait()));
        assert_eq!(ended, Err(ContextError::Canceled));
        let report = rt.shutdown(SHUTDOWN_LIMIT);
        assert_eq!((report.unwinds_refused(), report.is_clean()), (3, true), "{report:?}");
    });
}

/// Fails by a count of zero: goroutines that the end of a runtime leaves behind are counted, too.
#[test]
fn the_end_of_a_runtime_counts() {
    extern "C" fn for_good() {
        Event::new().wait();
    }
    everywhere(|rt| {
        let begun = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&begun);
        rt.go(move || {
            begins.store(true, SeqCst);
            black_box(for_good as extern "C" fn())();
        });
        common::until(|| begun.load(SeqCst));
        let report = rt.shutdown(SHUTDOWN_LIMIT);
        assert_eq!((report.unwinds_refused(), report.goroutines_left()), (1, 1), "{report:?}");
    });
}

fn told(stderr: &str) -> Vec<&str> {
    stderr.lines().filter(|line| line.contains("waits on after the end of its context")).collect()
}

/// Fails by silence, by a line without the function, or by more than one.
#[test]
fn the_first_is_told_with_its_frame() {
    if child::is_child() {
        return everywhere(|rt| outlive(&rt, 2));
    }
    let stderr = child::passes("the_first_is_told_with_its_frame", &[]);
    let told = told(&stderr);
    assert_eq!(told.len(), 1, "{stderr}");
    assert!(told[0].starts_with("gmp: goroutine "), "{stderr}");
    assert!(told[0].contains("a panic might end the process in `"), "{stderr}");
    assert!(told[0].contains("lets_no_panic_out"), "{stderr}");
    assert!(
        told[0].contains("at 0x") && told[0].ends_with("GMPDEBUG=refusals=all tells each of these"),
        "{stderr}"
    );
}

/// Fails by fewer lines than there are refusals.
#[test]
fn the_knob_tells_each() {
    if child::is_child() {
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        let rt = unsafe { Runtime::builder().procs(2).stack_size(64 << 10).build() }.expect("a runtime");
        outlive(&rt, 3);
        assert_eq!(rt.shutdown(SHUTDOWN_LIMIT).unwinds_refused(), 3);
        return;
    }
    let stderr = child::passes("the_knob_tells_each", &[("GMPDEBUG", "refusals=all")]);
    let told = told(&stderr);
    assert_eq!(told.len(), 3, "{stderr}");
    assert!(told.iter().all(|line| line.contains("lets_no_panic_out")), "{stderr}");
}

/// Fails by silence: a plain thread has no runtime that could count.
#[test]
fn of_a_plain_thread_the_first_is_told() {
    if child::is_child() {
        assert_eq!(under_a_done_context(waits_below_c), Ok(()));
        return;
    }
    let stderr = child::passes("of_a_plain_thread_the_first_is_told", &[]);
    assert_eq!(told(&stderr).len(), 1, "{stderr}");
    assert!(told(&stderr)[0].starts_with("gmp: a thread waits on"), "{stderr}");
}

/// Goes down until no more than `left` bytes lie between this frame and `end`, and calls `f` there.
#[inline(never)]
fn deep(end: usize, left: usize, f: &dyn Fn()) {
    let frame = black_box([0_u8; 64]);
    if (&raw const frame).addr() > end + left {
        deep(end, left, f)
    } else {
        f()
    }
    black_box(&frame);
}

/// With little stack left, a wait outlives its context, below a function that a panic could not pass. Fails by a line about it:
/// the line is written on the rest of the stack, and may overflow that.
#[test]
fn a_wait_that_outlives_its_context_with_little_stack_left_is_counted_alone() {
    const NAME: &str = "a_wait_that_outlives_its_context_with_little_stack_left_is_counted_alone";
    extern "C" fn waits_deep() {
        let here = 0_u8;
        let top = TOP.load(SeqCst);
        assert!(top - (&raw const here).addr() < 2560, "the frames above are small");
        // 16 KiB less a page of the guard, and less than 2.5 KiB above this frame.
        let end = top - (12 << 10);
        deep(end, LEFT, &|| time::sleep(Duration::from_millis(5)));
    }
    if !child::is_child() {
        let stderr = child::passes(NAME, &[("GMPDEBUG", "refusals=all")]);
        assert_eq!(told(&stderr).len(), 0, "{stderr}");
        return;
    }
    everywhere(|rt| {
        rt.run(|| {
            let deep = gmp::Builder::new().stack_size(16 << 10).go(|| {
                let top = 0_u8;
                TOP.store((&raw const top).addr(), SeqCst);
                under_a_done_context(|| black_box(waits_deep as extern "C" fn())())
            });
            assert_eq!(deep.unwrap().join().unwrap(), Ok(()));
        });
        let report = rt.shutdown(SHUTDOWN_LIMIT);
        assert_eq!((report.unwinds_refused(), report.is_clean()), (1, true), "{report:?}");
    });
}

/// Fails by an overflow, in the child, when frames are looked at, or unwound, without the room for that. Fails by another count
/// when a wait is ended all the same.
#[test]
fn a_context_ends_no_wait_where_the_look_does_not_fit() {
    const NAME: &str = "a_context_ends_no_wait_where_the_look_does_not_fit";
    if !child::is_child() {
        let stderr = child::passes(NAME, &[("GMPDEBUG", "refusals=all")]);
        assert_eq!(told(&stderr).len(), 0, "{stderr}");
        return;
    }
    everywhere(|rt| {
        // A park takes more stack where nothing is optimised.
        let lefts = if cfg!(debug_assertions) { [6000, 7000, 8000] } else { [1500, 2000, 2500] };
        for left in lefts {
            let ended = rt.run(move || {
                let deep = gmp::Builder::new().stack_size(16 << 10).go(move || {
                    let top = 0_u8;
                    // 16 KiB less a page of the guard, and less than 2.5 KiB above this frame.
                    let end = (&raw const top).addr() + 2560 - (12 << 10);
                    under_a_done_context(|| deep(end, left, &|| time::sleep(Duration::from_millis(5))))
                });
                deep.unwrap().join().unwrap()
            });
            assert_eq!(ended, Ok(()), "{left} bytes are left");
        }
        let report = rt.shutdown(SHUTDOWN_LIMIT);
        assert_eq!((report.unwinds_refused(), report.is_clean()), (3, true), "{report:?}");
    });
}

/// As `a_context_ends_no_wait_where_the_look_does_not_fit`, on a plain thread, in `with_stack`.
#[test]
fn a_context_ends_no_wait_of_a_thread_where_the_look_does_not_fit() {
    const NAME: &str = "a_context_ends_no_wait_of_a_thread_where_the_look_does_not_fit";
    if !child::is_child() {
        let stderr = child::passes(NAME, &[]);
        assert_eq!(told(&stderr).len(), 0, "{stderr}");
        return;
    }
    let lefts = if cfg!(debug_assertions) { [6000, 7000, 8000] } else { [1500, 2000, 2500] };
    for left in lefts {
        let ended = under_a_done_context(|| {
            gmp::with_stack(16 << 10, || {
                let top = 0_u8;
                let end = (&raw const top).addr() + 2560 - (12 << 10);
                deep(end, left, &|| time::sleep(Duration::from_millis(5)));
            });
        });
        assert_eq!(ended, Ok(()), "{left} bytes are left");
    }
}

/// A stack is larger than requested, and a wait lies deeper than that size. Fails when the wait goes on.
#[test]
fn a_context_ends_a_wait_on_all_of_a_stack() {
    everywhere(|rt| {
        let ended = rt.run(|| {
            // The size is rounded up to a power of two: 64 KiB.
            let deeper = gmp::Builder::new().stack_size(33 << 10).go(|| {
                let top = 0_u8;
                let end = (&raw const top).addr() - (40 << 10);
                under_a_done_context(|| deep(end, 0, &|| Event::new().wait()))
            });
            deeper.unwrap().join().unwrap()
        });
        assert_eq!(ended, Err(ContextError::Canceled));
        assert_eq!(rt.shutdown(SHUTDOWN_LIMIT).unwinds_refused(), 0);
    });
}

/// With some more stack left the same wait is ended. Fails when the wait goes on.
#[test]
fn a_context_ends_a_wait_where_the_look_fits() {
    everywhere(|rt| {
        let ended = rt.run(|| {
            let deep = gmp::Builder::new().stack_size(32 << 10).go(|| {
                let top = 0_u8;
                // 32 KiB less a page of the guard, and less than 2.5 KiB above this frame.
                let end = (&raw const top).addr() + 2560 - (28 << 10);
                let left = if cfg!(debug_assertions) { 16_000 } else { 8000 };
                under_a_done_context(|| deep(end, left, &|| Event::new().wait()))
            });
            deep.unwrap().join().unwrap()
        });
        assert_eq!(ended, Err(ContextError::Canceled));
        assert_eq!(rt.shutdown(SHUTDOWN_LIMIT).unwinds_refused(), 0);
    });
}

/// An address near the upper end of the stack.
static TOP: AtomicUsize = AtomicUsize::new(0);
/// How much of the stack is left for a wait and the look at its frames.
const LEFT: usize = if cfg!(debug_assertions) { 10_000 } else { 6000 };

/// Fails by an overflow: a report about a goroutine that is left for want of stack must not use that stack.
#[test]
fn a_goroutine_with_little_stack_left_is_counted_alone() {
    const NAME: &str = "a_goroutine_with_little_stack_left_is_counted_alone";
    if !child::is_child() {
        child::passes(NAME, &[("GMPDEBUG", "refusals=all")]);
        return;
    }
    everywhere(|rt| {
        let begun = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&begun);
        rt.run(move || {
            let deep = gmp::Builder::new().stack_size(16 << 10).go(move || {
                let top = 0_u8;
                // 16 KiB less a page of the guard, and less than 2.5 KiB above this frame.
                let end = (&raw const top).addr() + 2560 - (12 << 10);
                // A park takes more stack where nothing is optimised.
                let left = if cfg!(debug_assertions) { 6500 } else { 600 };
                deep(end, left, &|| {
                    begins.store(true, SeqCst);
                    Event::new().wait();
                });
            });
            drop(deep.unwrap());
        });
        common::until(|| begun.load(SeqCst));
        let report = rt.shutdown(SHUTDOWN_LIMIT);
        assert_eq!((report.unwinds_refused(), report.goroutines_left()), (1, 1), "{report:?}");
    });
}
