//! The throw that a look has allowed: its effect on the frames on its way, and the state that it must leave, as a panic does.

use super::super::throw::{Stop, prepare, throw_to};
use super::*;
use std::any::Any;

thread_local! {
    /// How often the personality of `counted` was asked in the search phase, and in the cleanup phase.
    static ASKED: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// Calls its argument, with `count` as personality.
#[unsafe(naked)]
unsafe extern "C-unwind" fn counted(_f: extern "C-unwind" fn()) {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_personality 0x9b, {personality}",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        "call rdi",
        "pop rbp",
        ".cfi_def_cfa_offset 8",
        "ret",
        ".cfi_endproc",
        personality = sym COUNT,
    )
}

type Personality = extern "C" fn(c_int, c_int, u64, *mut c_void, *mut Context) -> c_int;
static COUNT: Personality = count;

extern "C" fn count(_: c_int, actions: c_int, _: u64, _: *mut c_void, _: *mut Context) -> c_int {
    /// `_URC_CONTINUE_UNWIND`
    const GOES_ON: c_int = 8;
    let (searched, cleaned) = ASKED.get();
    ASKED.set(if actions & 1 != 0 { (searched + 1, cleaned) } else { (searched, cleaned + 1) });
    GOES_ON
}

/// Returns what `f` throws through `counted`, and how often the frame was asked.
fn asked(f: extern "C-unwind" fn()) -> (Box<dyn Any + Send>, (u32, u32)) {
    prepare();
    ASKED.set((0, 0));
    // SAFETY: the function calls its argument, on an aligned stack.
    let caught = catch_unwind(|| unsafe { counted(black_box(f)) });
    (caught.expect_err("f throws"), ASKED.get())
}

/// Fails if the throw has a search phase, in which each frame is read once more.
#[test]
fn each_frame_is_asked_once() {
    extern "C-unwind" fn throws() {
        throw(Box::new(7_u8))
    }
    extern "C-unwind" fn panics() {
        resume_unwind(Box::new(7_u8))
    }
    let (payload, asked_by_throw) = asked(throws);
    assert_eq!((payload.downcast_ref::<u8>(), asked_by_throw), (Some(&7), (0, 1)));
    let (payload, asked_by_panic) = asked(panics);
    assert_eq!((payload.downcast_ref::<u8>(), asked_by_panic), (Some(&7), (1, 1)));
}

/// Fails by an abort, if the throw does not arrive, or if there was no search phase.
#[test]
fn where_the_unwinder_refuses_the_throw_is_a_plain_one() {
    extern "C-unwind" fn throws() {
        extern "C" fn refuse(
            _: c_int,
            _: c_int,
            _: u64,
            _: *mut c_void,
            _: *mut Context,
            asked: *mut c_void,
        ) -> c_int {
            // SAFETY: this is the counter of `throws`, which waits.
            unsafe { *asked.cast::<u32>() += 1 };
            ENOUGH
        }
        static TIMES: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let stop: Stop = refuse;
        throw_to(Box::new("plain"), stop, TIMES.as_ptr().cast())
    }
    let (payload, asked) = asked(throws);
    assert_eq!((payload.downcast_ref::<&str>(), asked), (Some(&"plain"), (1, 1)));
    assert!(!std::thread::panicking());
}

/// Fails if the count of panics, or the payload, differs from that after a panic, or if a value is dropped twice or never.
#[test]
fn destructors_catches_and_panics_are_as_under_a_panic() {
    struct Payload(std::sync::Arc<()>);
    struct Notes(&'static Cell<u32>, u32);
    impl Drop for Notes {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            // A panic and a throw begin and end in this destructor.
            assert!(catch_unwind(|| call(|| resume_unwind(Box::new(1)))).is_err());
            assert!(catch_unwind(|| call(|| throw(Box::new(2)))).is_err());
            assert!(std::thread::panicking());
            self.0.set(self.0.get() * 10 + self.1);
        }
    }
    prepare();
    let dropped: &'static Cell<u32> = Box::leak(Box::new(Cell::new(0)));
    let alive = std::sync::Arc::new(());
    // These values are in registers that the callee keeps, where a landing pad finds them.
    let numbers = black_box([11_usize, 12, 13, 14, 15, 16]);
    let [a, b, c, d, e, f] = numbers;
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _outer = Notes(dropped, 1);
        let inner = catch_unwind(AssertUnwindSafe(|| {
            let (_inner, payload) = (Notes(dropped, 2), Payload(alive.clone()));
            black_box(|payload| throw(Box::new(payload)))(payload)
        }));
        assert!(!std::thread::panicking());
        let payload: Box<dyn Any + Send> = match inner {
            Err(payload) => payload,
            Ok(()) => unreachable!("it throws"),
        };
        assert_eq!(std::sync::Arc::strong_count(&alive), 2);
        let _last = Notes(dropped, 3);
        // This throw is the user's, and so a plain one; the throw in the destructor of `_last` is not.
        resume_unwind(payload)
    }));
    assert_eq!([a, b, c, d, e, f], black_box(numbers));
    assert_eq!(dropped.get(), 231);
    assert!(!std::thread::panicking());
    let payload = caught.expect_err("it throws again");
    assert!(std::sync::Arc::ptr_eq(
        &payload.downcast::<Payload>().unwrap_or_else(|_| panic!("another")).0,
        &alive
    ));
    assert_eq!(std::sync::Arc::strong_count(&alive), 1);
}

/// Fails if each throw leaves an allocation in the frames that it gives up: the payload in std's frames, if std did not take it
/// out of them. The test has a process of its own, because it counts all of the process's memory.
#[test]
#[cfg(all(target_env = "gnu", not(gmp_asan)))]
fn throws_leave_no_allocation() {
    const TIMES: usize = 1000;
    /// The least memory that malloc takes for an allocation.
    const LEAST: usize = 32;
    if std::env::var_os(CASE).is_none() {
        let output = alone(module_path!(), "throws_leave_no_allocation", "counts");
        assert!(output.status.success(), "{output:?}");
        return;
    }
    fn throws(number: usize) {
        throw(Box::new([number; 20]))
    }
    let grows = |each: &mut dyn FnMut(usize)| {
        // SAFETY: always sound.
        let in_use = || unsafe { libc::mallinfo2() }.uordblks;
        let before = in_use();
        (0..TIMES).for_each(each);
        in_use().saturating_sub(before)
    };
    prepare();
    let throws = grows(&mut |number| {
        let caught = catch_unwind(|| black_box(throws as fn(usize))(number));
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&[number; 20]));
    });
    // Some memory counts as in use without being leaked: a few blocks that malloc keeps for the next allocations, and memory of
    // the thread that waits for this test.
    assert!(throws < TIMES * LEAST / 4, "{throws} bytes");
    let mut kept = Vec::with_capacity(TIMES);
    let keeps = grows(&mut |_| kept.push(black_box(Box::new(0_u8))));
    assert!(keeps > TIMES * LEAST * 3 / 4, "{keeps} bytes");
}
