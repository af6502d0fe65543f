//! Frames are walked in signal handlers, as profilers and crash reporters do, at whatever instruction the signal comes.

use common::child;
use gmp::{Runtime, chan, go, with_stack, yield_now};
use std::arch::asm;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// The longest walk of these programs has half as many frames.
const FRAMES: usize = 100;

unsafe extern "C" {
    fn _Unwind_Backtrace(each: extern "C" fn(*mut c_void, *mut c_void) -> c_int, arg: *mut c_void) -> c_int;
}

static SAMPLES: AtomicUsize = AtomicUsize::new(0);
/// Frames of all walks.
static WALKED: AtomicUsize = AtomicUsize::new(0);
/// How often the processor interrupts the thread that called `step`, before it lets the thread run.
static STEPS: AtomicUsize = AtomicUsize::new(0);
/// The bit of the flags register that demands an interrupt after each instruction.
const TRAP_FLAG: i64 = 1 << 8;
/// Walks that had not ended after `FRAMES` frames.
static ENDLESS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn each(_context: *mut c_void, count: *mut c_void) -> c_int {
    // SAFETY: `on_signal` has passed the pointer, and waits.
    let count = unsafe { &mut *count.cast::<usize>() };
    *count += 1;
    // Codes of the unwinder: to go on, or an end like any other.
    if *count < FRAMES { 0 } else { 4 }
}

extern "C" fn on_signal(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    let mut count = 0_usize;
    // SAFETY: `each` gets what it expects.
    unsafe { _Unwind_Backtrace(each, (&raw mut count).cast()) };
    SAMPLES.fetch_add(1, SeqCst);
    WALKED.fetch_add(count, SeqCst);
    ENDLESS.fetch_add(usize::from(count >= FRAMES), SeqCst);
    if STEPS.load(SeqCst) > 0 && STEPS.fetch_sub(1, SeqCst) == 1 {
        // SAFETY: with SA_SIGINFO the context is the kernel's; of the interrupted code's flags only the one that `step` has set
        // is cleared.
        unsafe {
            let context = &mut *context.cast::<libc::ucontext_t>();
            context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP_FLAG;
        }
    }
}

/// Makes a signal walk frames; `flags` are those of `sigaction`.
fn walk_at(signal: c_int, flags: c_int) {
    // SAFETY: the handler has the type that the flag tells; zeros are an empty mask.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = flags | libc::SA_RESTART | libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(signal, &action, ptr::null_mut()), 0);
    }
    // The first walk in a process binds symbols, on this thread's large stack.
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

fn runtime(procs: usize) -> Runtime {
    // SAFETY: no goroutine of these tests keeps a thread-bound value across a blocking call.
    unsafe { Runtime::builder().procs(procs).build() }.expect("a runtime starts")
}

/// How many instructions a part of a test has.
fn effort() -> usize {
    if cfg!(debug_assertions) { 30_000 } else { 15_000 }
}

/// Makes the processor interrupt this thread after each of `instructions` instructions.
#[inline(never)]
fn step(instructions: usize) {
    STEPS.store(instructions, SeqCst);
    // SAFETY: the code changes that flag alone. The signal that the processor then raises has a handler.
    unsafe { asm!("pushfq", "or qword ptr [rsp], {flag}", "popfq", flag = const TRAP_FLAG) };
}

/// Takes a sample after each instruction of a thread that begins, switches, dumps and ends goroutines, some of which go deep.
/// Fails by a fault in the walk, if the tables are wrong at an instruction of the switch; or by a walk without end.
#[test]
fn a_walk_ends_at_each_instruction_of_the_switch() {
    if !child::is_child() {
        let env = [("GMPDEBUG", "handoff=0"), ("RUST_BACKTRACE", "0")];
        child::passes("a_walk_ends_at_each_instruction_of_the_switch", &env);
        return;
    }
    walk_at(libc::SIGTRAP, libc::SA_ONSTACK);
    let rt = runtime(1);
    // After this, work that is done once in a process is done.
    let deep = || with_stack(64 << 10, || (0..3).for_each(|_| yield_now()));
    rt.run(|| go(deep).join()).unwrap();
    rt.run(move || {
        let before = SAMPLES.load(SeqCst);
        while SAMPLES.load(SeqCst) - before < effort() {
            step(2_000);
            let parked = go(deep);
            (0..8).for_each(|_| yield_now());
            parked.join().unwrap();
        }
    });
    // The plain thread reads a goroutine's frames, before it looks up their names.
    let (open, gate) = chan::bounded::<()>(0);
    let parked = rt.go(move || with_stack(64 << 10, || gate.recv().is_err()));
    while !rt.dump().contains("[chan receive") {
        std::thread::yield_now();
    }
    step(effort());
    assert!(rt.dump().contains("[chan receive"));
    drop(open);
    assert!(parked.join().unwrap());
    assert_eq!(ENDLESS.load(SeqCst), 0);
    let (walked, samples) = (WALKED.load(SeqCst), SAMPLES.load(SeqCst));
    assert!(walked >= 3 * samples, "{walked} frames in {samples} walks");
}

/// A handler takes samples as a sampling profiler does: on the goroutine's stack, or on a signal stack. Fails by a fault, or by
/// walks without end.
#[test]
fn fifty_thousand_samples_of_goroutines_that_switch() {
    // In each child; a debug build takes a tenth, as in all races.
    const ENOUGH: usize = if cfg!(debug_assertions) { 5_000 } else { 50_000 };
    if !child::is_child() {
        for (procs, on_stack) in [("1", "0"), ("2", "0"), ("4", "1")] {
            let env = [("PROCS", procs), ("ON_STACK", on_stack), ("RUST_BACKTRACE", "0")];
            child::passes("fifty_thousand_samples_of_goroutines_that_switch", &env);
        }
        return;
    }
    let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().unwrap();
    walk_at(libc::SIGPROF, if number("ON_STACK") == 1 { libc::SA_ONSTACK } else { 0 });
    let rt = runtime(number("PROCS"));
    rt.run(|| {
        let over = Arc::new(AtomicBool::new(false));
        let profiler = std::thread::spawn({
            let over = Arc::clone(&over);
            move || {
                // SAFETY: no pointers.
                let (own, process) = unsafe { (libc::gettid(), libc::getpid()) };
                while SAMPLES.load(SeqCst) < ENOUGH {
                    let threads = std::fs::read_dir("/proc/self/task").unwrap();
                    for thread in
                        threads.filter_map(|thread| thread.ok()?.file_name().to_str()?.parse::<c_int>().ok())
                    {
                        if thread != own {
                            // SAFETY: no pointers. A thread that has ended gets nothing.
                            unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGPROF) };
                        }
                    }
                }
                over.store(true, SeqCst);
            }
        });
        let switches = || {
            let over = Arc::clone(&over);
            move || {
                while !over.load(SeqCst) {
                    (0..50).for_each(|_| yield_now());
                    with_stack(64 << 10, yield_now);
                    go(|| ()).join().unwrap();
                }
            }
        };
        let all: Vec<_> = (0..20).map(|_| go(switches())).collect();
        all.into_iter().for_each(|each| each.join().unwrap());
        profiler.join().unwrap();
    });
    assert!(SAMPLES.load(SeqCst) >= ENOUGH);
    assert_eq!(ENDLESS.load(SeqCst), 0);
}
