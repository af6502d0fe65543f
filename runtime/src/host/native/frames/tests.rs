//! Each row of the header's table, checked by a throw: in this process where the answer is yes, in a child that must abort
//! where the answer is no.

mod costs;
mod throws;

use super::rows::Rule;
use super::*;
use std::arch::naked_asm;
use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::time::Instant;

struct Thrown;

thread_local! {
    /// The mark of the innermost `catcher`.
    static MARK: Cell<*const ()> = const { Cell::new(ptr::null()) };
    /// Whether `leaf` throws after its look.
    static THROWS: Cell<bool> = const { Cell::new(false) };
    /// What the look answered to `leaf`.
    static SAID: Cell<Option<bool>> = const { Cell::new(None) };
}

/// The innermost function of each case.
#[inline(never)]
fn leaf() {
    let passes = may_unwind_to(MARK.get()).is_ok();
    SAID.set(Some(passes));
    if THROWS.get() {
        // The throw is like that of an interrupt.
        if passes {
            throw(Box::new(Thrown));
        }
        resume_unwind(Box::new(Thrown));
    }
}

/// Stands in for a goroutine's root. Returns what the look answered in `case`, and whether a throw arrived here.
#[inline(never)]
fn catcher(case: fn(), throws: bool) -> (bool, bool) {
    let mark = 0_u8;
    MARK.set((&raw const mark).cast());
    THROWS.set(throws);
    let caught = catch_unwind(AssertUnwindSafe(|| black_box(case)()));
    let arrived = caught.is_err_and(|payload| payload.is::<Thrown>());
    (SAID.take().expect("the case calls `leaf`"), arrived)
}

/// Calls `f` in a way that is opaque to the compiler, which must assume that the call can unwind.
fn call(f: fn()) {
    black_box(f)()
}

struct OnDrop(fn());

impl Drop for OnDrop {
    fn drop(&mut self) {
        call(self.0);
    }
}

fn nothing() {}

/// Returns a value with a destructor that the compiler can't remove.
fn live() -> OnDrop {
    black_box(OnDrop(nothing))
}

#[inline(never)]
fn with<T>(value: T, inner: impl FnOnce(&T)) {
    inner(&value);
    black_box(&value);
}

fn boxes_vectors_and_guards() {
    let mutex = Mutex::new(1);
    with(Box::new([7; 9]), |boxed| {
        with(vec![boxed.clone(), boxed.clone()], |vector| {
            with(mutex.lock(), |_guard| {
                let texts: Vec<String> = vector.iter().map(|numbers| format!("{numbers:?}")).collect();
                call(leaf);
                black_box(texts);
            });
        });
    });
}

fn recursion() {
    fn descend(depth: usize) -> usize {
        let (_live, boxed) = (live(), black_box(Box::new(depth)));
        if depth == 0 {
            call(leaf);
            return 0;
        }
        black_box(descend as fn(usize) -> usize)(depth - 1) + *boxed
    }
    assert_eq!(descend(300), 300 * 301 / 2);
}

fn a_catch_between_that_throws_again() {
    let _live = live();
    if let Err(payload) = catch_unwind(|| {
        let _live = live();
        call(leaf);
    }) {
        resume_unwind(payload);
    }
}

/// This case has calls that do not return, and landing pads, behind the catch.
fn a_catch_between_with_more_to_do() {
    let _live = live();
    let caught = catch_unwind(|| call(leaf));
    let numbers = black_box(vec![1, 2, 3]);
    let number = numbers[black_box(1)] + black_box(Some(2)).expect("a number");
    let _other = live();
    assert_eq!(number, black_box(4), "{numbers:?}");
    if let Err(payload) = caught {
        resume_unwind(payload);
    }
}

/// This case has a call of `panic_cannot_unwind`, though not for these values.
fn values_beside_a_catch() {
    let (_first, numbers) = (live(), black_box(vec![1, 2, 3]));
    assert!(catch_unwind(|| call(nothing)).is_ok());
    let _second = live();
    for number in &numbers {
        let _boxed = black_box(Box::new(*number));
        call(leaf);
        assert_eq!(numbers[black_box(0)], 1);
    }
}

fn a_catch_that_has_ended() {
    let caught = catch_unwind(|| resume_unwind(Box::new(1)));
    assert!(caught.is_err());
    call(leaf);
}

fn a_drop_without_an_unwind() {
    let _in_drop = black_box(OnDrop(leaf));
}

fn a_boxed_closure() {
    let captured = live();
    let boxed: Box<dyn FnOnce()> = Box::new(move || {
        call(leaf);
        black_box(&captured);
    });
    black_box(boxed)();
}

fn an_iterator() {
    let done: Vec<usize> = (0..3).map(|n| (call(leaf), n).1).collect();
    assert_eq!(black_box(done).len(), 3);
}

fn an_unwinding_c_function() {
    extern "C-unwind" fn unwinding() {
        let _live = live();
        call(leaf);
    }
    black_box(unwinding as extern "C-unwind" fn())();
}

/// The comparison of `qsort`.
type Compare = unsafe extern "C-unwind" fn(*const c_void, *const c_void) -> c_int;

fn sort(compare: Compare) {
    unsafe extern "C-unwind" {
        fn qsort(base: *mut c_void, count: usize, size: usize, compare: Compare);
    }
    let _live = live();
    let mut numbers = vec![3_u32, 1, 2];
    // SAFETY: the call sorts the numbers.
    unsafe { qsort(numbers.as_mut_ptr().cast(), numbers.len(), 4, compare) };
    black_box(numbers);
}

fn through_c() {
    unsafe extern "C-unwind" fn compare(_: *const c_void, _: *const c_void) -> c_int {
        let _live = live();
        call(leaf);
        0
    }
    sort(compare);
}

const YES: &[(&str, fn())] = &[
    ("leaf", leaf),
    ("boxes_vectors_and_guards", boxes_vectors_and_guards),
    ("recursion", recursion),
    ("a_catch_between_that_throws_again", a_catch_between_that_throws_again),
    ("a_catch_between_with_more_to_do", a_catch_between_with_more_to_do),
    ("values_beside_a_catch", values_beside_a_catch),
    ("a_catch_that_has_ended", a_catch_that_has_ended),
    ("a_drop_without_an_unwind", a_drop_without_an_unwind),
    ("a_boxed_closure", a_boxed_closure),
    ("an_iterator", an_iterator),
    ("an_unwinding_c_function", an_unwinding_c_function),
    ("through_c", through_c),
    #[cfg(not(debug_assertions))]
    ("a_catcher_at_a_call_that_the_table_does_not_list", a_catcher_at_a_call_that_the_table_does_not_list),
];

/// Fails by an abort where the look wrongly says yes, and by a wrong answer where it wrongly says no: a goroutine would be
/// leaked without need.
#[test]
fn where_it_says_yes_a_throw_arrives() {
    for &(name, case) in YES {
        assert_eq!(catcher(case, false), (true, false), "{name}");
        assert_eq!(catcher(case, true), (true, true), "{name}");
    }
}

extern "C" fn without_live_values() {
    call(leaf);
}

extern "C" fn with_live_values() {
    let live = live();
    call(leaf);
    black_box(&live);
}

fn c_function() {
    black_box(without_live_values as extern "C" fn())();
}

fn c_function_with_live_values() {
    black_box(with_live_values as extern "C" fn())();
}

fn c_function_inlined_with_live_values() {
    let live = live();
    with_live_values();
    black_box(&live);
}

/// In release the closure's landing pads get the clauses of the catch around it.
fn c_function_inlined_into_a_catch() {
    let caught = catch_unwind(|| {
        call(nothing);
        with_live_values();
        call(nothing);
    });
    assert!(caught.is_ok());
}

fn a_drop_under_an_unwind() {
    let caught = catch_unwind(|| {
        let _in_drop = black_box(OnDrop(leaf));
        call(|| resume_unwind(Box::new(1)));
    });
    assert!(caught.is_err());
}

fn a_deep_drop_under_an_unwind() {
    fn in_depth() {
        let _live = live();
        recursion();
    }
    let caught = catch_unwind(|| {
        let _in_drop = [black_box(OnDrop(in_depth)), live()];
        call(|| resume_unwind(Box::new(1)));
    });
    assert!(caught.is_err());
}

fn through_c_to_a_c_function() {
    unsafe extern "C" fn compare(_: *const c_void, _: *const c_void) -> c_int {
        call(leaf);
        0
    }
    // SAFETY: the type allows an unwind, and this function never unwinds.
    sort(unsafe { std::mem::transmute::<unsafe extern "C" fn(_, _) -> _, Compare>(compare) });
}

fn through_c_to_a_c_function_with_live_values() {
    unsafe extern "C" fn compare(_: *const c_void, _: *const c_void) -> c_int {
        let _live = live();
        call(leaf);
        0
    }
    // SAFETY: the type allows an unwind, and this function never unwinds.
    sort(unsafe { std::mem::transmute::<unsafe extern "C" fn(_, _) -> _, Compare>(compare) });
}

/// A function that calls its argument, with a personality and a table of call sites.
macro_rules! function_with_table {
    ($name:ident, $personality:literal, $sites:literal) => {
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $name(_f: extern "C-unwind" fn()) {
            naked_asm!(
                ".cfi_startproc",
                concat!(".cfi_personality 0x9b, .Lpersonality_", stringify!($name)),
                concat!(".cfi_lsda 0x1b, .Ltable_", stringify!($name)),
                "push rbp",
                ".cfi_def_cfa_offset 16",
                "call rdi",
                "pop rbp",
                ".cfi_def_cfa_offset 8",
                "ret",
                ".cfi_endproc",
                // The personality has a section of its own: the linker tells CIEs apart by the section of their personality.
                concat!(".pushsection .data.rel.local.", stringify!($name), ",\"aw\""),
                ".balign 8",
                concat!(".Lpersonality_", stringify!($name), ": .quad ", $personality),
                ".popsection",
                ".pushsection .gcc_except_table.frames_test,\"a\"",
                concat!(".Ltable_", stringify!($name), ": .byte 0xff, 0xff, 0x01, ", $sites),
                ".popsection",
            )
        }
    };
}

extern "C-unwind" fn unwinding_leaf() {
    call(leaf);
}

/// In release builds a function has such a table if it calls a function that is declared `extern "C"`.
fn a_call_that_the_table_does_not_list() {
    function_with_table!(lists_nothing, "rust_eh_personality", "0");
    // SAFETY: the function calls its argument, on an aligned stack.
    unsafe { lists_nothing(unwinding_leaf) };
}

/// This case has a catcher that never throws, like std's `__rust_try` where that is not inlined, and a caller that throws again
/// elsewhere. The catch must be in the called frame itself, as in optimised builds.
#[cfg(not(debug_assertions))]
fn a_catcher_at_a_call_that_the_table_does_not_list() {
    extern "C-unwind" fn catches() {
        let _kept = catch_unwind(|| call(leaf)).map_err(std::mem::forget);
    }
    function_with_table!(lists_no_catcher, "rust_eh_personality", "0");
    // SAFETY: the function calls its argument, on an aligned stack.
    unsafe { lists_no_catcher(catches) };
    if THROWS.get() {
        resume_unwind(Box::new(Thrown));
    }
}

fn code_without_tables() {
    #[unsafe(naked)]
    unsafe extern "C-unwind" fn bare(_f: extern "C-unwind" fn()) {
        naked_asm!("push rbp", "call rdi", "pop rbp", "ret")
    }
    // SAFETY: the function calls its argument, on an aligned stack.
    unsafe { bare(unwinding_leaf) };
}

/// The mark is in a function that calls no `catch_unwind`, on a thread that has none either.
fn no_catcher() {
    extern "C-unwind" fn body(throws: *mut c_void) -> *mut c_void {
        let mark = 0_u8;
        MARK.set((&raw const mark).cast());
        THROWS.set(!throws.is_null());
        call(leaf);
        if SAID.take() == Some(false) { ptr::null_mut() } else { ptr::dangling_mut() }
    }
    let throws = if THROWS.get() { ptr::dangling_mut() } else { ptr::null_mut() };
    let (mut thread, mut answer) = (0, ptr::dangling_mut());
    type Body = extern "C" fn(*mut c_void) -> *mut c_void;
    // SAFETY: the two types have the same arguments, and C calls the function.
    let body: Body = unsafe { std::mem::transmute(body as extern "C-unwind" fn(*mut c_void) -> *mut c_void) };
    // SAFETY: the thread is joined, and its answer is a word.
    let done = unsafe {
        (
            libc::pthread_create(&mut thread, ptr::null(), body, throws),
            libc::pthread_join(thread, &mut answer),
        )
    };
    assert_eq!(done, (0, 0));
    SAID.set(Some(!answer.is_null()));
}

const NO: &[(&str, fn())] = &[
    ("c_function", c_function),
    ("c_function_with_live_values", c_function_with_live_values),
    ("c_function_inlined_with_live_values", c_function_inlined_with_live_values),
    ("c_function_inlined_into_a_catch", c_function_inlined_into_a_catch),
    ("a_drop_under_an_unwind", a_drop_under_an_unwind),
    ("a_deep_drop_under_an_unwind", a_deep_drop_under_an_unwind),
    ("through_c_to_a_c_function", through_c_to_a_c_function),
    ("through_c_to_a_c_function_with_live_values", through_c_to_a_c_function_with_live_values),
    ("a_call_that_the_table_does_not_list", a_call_that_the_table_does_not_list),
    ("code_without_tables", code_without_tables),
    ("no_catcher", no_catcher),
];

const CASE: &str = "GMP_TEST_CASE";

/// Runs only the test of this name, in a process that sees this case.
fn alone(module: &str, test: &str, case: &str) -> Output {
    let path = format!("{}::{test}", module.split_once("::").unwrap().1);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&path, "--exact", "--nocapture", "--test-threads=1"]).env(CASE, case);
    command.output().unwrap()
}

/// Runs the test as `alone` does, and asserts that the process, which throws in this case, aborts.
#[track_caller]
fn aborts_in_child(test: &str, case: &str) {
    let output = alone(module_path!(), test, case);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{case}: {output:?}");
}

fn find(cases: &'static [(&str, fn())], name: &str) -> fn() {
    cases.iter().find(|(known, _)| *known == name).expect("a case").1
}

/// Fails if the look says yes, or if a child does not abort: then a no was not needed.
#[test]
fn where_it_says_no_a_throw_aborts() {
    if let Some(name) = std::env::var_os(CASE) {
        catcher(find(NO, name.to_str().unwrap()), true);
        return;
    }
    for &(name, case) in NO {
        assert_eq!(catcher(case, false), (false, false), "{name}");
        aborts_in_child("where_it_says_no_a_throw_aborts", name);
    }
}

/// Returns `true` if a throw ends here.
#[inline(never)]
fn catch() -> bool {
    catch_unwind(|| call(leaf)).is_err()
}

/// A callback of C that lets no panic out.
fn a_c_function_that_catches() {
    extern "C" fn catches() {
        let _live = live();
        assert_eq!(catch(), THROWS.get());
    }
    black_box(catches as extern "C" fn())();
}

fn a_drop_under_an_unwind_that_catches() {
    fn catches() {
        assert_eq!(catch(), THROWS.get());
    }
    let caught = catch_unwind(|| {
        let _in_drop = black_box(OnDrop(catches));
        call(|| resume_unwind(Box::new(1)));
    });
    assert!(caught.is_err());
}

/// The function's table lists the call, without a landing pad, for the personality of C.
fn a_table_of_c() {
    function_with_table!(of_c, "__gcc_personality_v0", "4, 0, 64, 0, 0");
    // SAFETY: the function calls its argument, on an aligned stack.
    unsafe { of_c(unwinding_leaf) };
}

/// Does the same as `a_table_of_c` with Rust's personality, for comparison.
fn a_table_of_rust() {
    function_with_table!(of_rust, "rust_eh_personality", "4, 0, 64, 0, 0");
    // SAFETY: the function calls its argument, on an aligned stack.
    unsafe { of_rust(unwinding_leaf) };
}

/// Fails if the look says yes: the code after the catch, or the way in which another language reads its table, is not known.
#[test]
fn in_doubt_it_says_no() {
    for case in [a_c_function_that_catches, a_drop_under_an_unwind_that_catches] {
        assert_eq!(catcher(case, false), (false, false));
        assert_eq!(catcher(case, true), (false, false));
    }
    assert_eq!(catcher(a_table_of_c, false), (false, false));
    assert_eq!(catcher(a_table_of_c, true), (false, true));
    assert_eq!(catcher(a_table_of_rust, true), (true, true));
}

/// Fails if the look says yes: the mark is on no frame of this stack that a walk from here would meet.
#[test]
fn a_mark_elsewhere_says_no() {
    let boxed = Box::new(0_u8);
    let below = {
        let local = 0_u8;
        (&raw const local).wrapping_sub(1 << 14).cast()
    };
    for mark in [ptr::null(), below, ptr::from_ref(&*boxed).cast(), usize::MAX as *const ()] {
        assert!(may_unwind_to(mark).is_err(), "{mark:p}");
    }
}

/// Fails if the function that the probe found is not the one that aborts.
#[test]
fn the_function_that_aborts_is_the_right_one() {
    extern "C" fn see(context: *mut Context, found: *mut c_void) -> c_int {
        // SAFETY: the hook passed the flag; the unwinder passed its context, which is valid within this callback.
        let (found, start) = unsafe { (&mut *found.cast::<bool>(), _Unwind_GetRegionStart(context)) };
        *found |= landmarks().is_some_and(|landmarks| landmarks.cannot_unwind == start);
        ON
    }
    if std::env::var_os(CASE).is_some() {
        std::panic::set_hook(Box::new(|_| {
            let mut found = false;
            // SAFETY: `see` gets the flag, as it expects.
            unsafe { walk(see, (&raw mut found).cast()) };
            if !found {
                std::process::exit(1);
            }
        }));
        THROWS.set(true);
        without_live_values();
        return;
    }
    aborts_in_child("the_function_that_aborts_is_the_right_one", "any");
}

/// Fails if the look errs only on a goroutine's stack, whose first frame, where the walk ends, is near the mark.
#[test]
fn it_works_on_a_goroutine_and_after_it_moved() {
    let body = || {
        for round in 0..20 {
            for &(name, case) in YES {
                assert_eq!(catcher(case, round % 2 == 0), (true, round % 2 == 0), "{name}");
            }
            for &(name, case) in NO {
                assert_eq!(catcher(case, false), (false, false), "{name}");
            }
            crate::time::sleep(std::time::Duration::from_micros(50));
        }
    };
    let size = 256 << 10;
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call: the cases use theirs between two sleeps.
    let runtime = unsafe { crate::Runtime::builder().procs(2).stack_size(size).build() }.unwrap();
    let goroutines: Vec<_> = (0..8).map(|_| runtime.go(body)).collect();
    for goroutine in goroutines {
        goroutine.join().unwrap();
    }
}

/// Fails in release builds if the look says no: the code behind our own catch, which the look can't follow, is no reason for a
/// no.
#[test]
fn our_own_catcher_may_do_anything_afterwards() {
    fn arm<const N: usize>() {
        black_box(N);
    }
    /// A function with an inlined catch, and a computed jump after the catch.
    #[inline(never)]
    fn catches(arms: usize) -> bool {
        let mark = 0_u8;
        MARK.set((&raw const mark).cast());
        let caught = catch_unwind(|| call(leaf));
        for n in 0..arms {
            match black_box(n) {
                0 => black_box(arm::<10>)(),
                1 => black_box(arm::<21>)(),
                2 => println!("{n}"),
                3 => black_box(arm::<43>)(),
                4 => call(nothing),
                5 => black_box(arm::<65>)(),
                _ => drop(live()),
            }
        }
        caught.is_err()
    }
    THROWS.set(true);
    assert!(catches(black_box(2)));
    assert_eq!(SAID.take(), Some(true));
}
