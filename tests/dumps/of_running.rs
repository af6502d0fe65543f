//! Dumps of goroutines that run: for ever, or in a call that blocks their thread.

use common::{child, mask};
use common::{everywhere, until};
use gmp::{Builder, Runtime, chan, go, with_stack, yield_now};
use std::ffi::c_int;
use std::hint::{black_box, spin_loop};
use std::io::Read;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The signal by which a dump interrupts threads, as the documentation names it.
fn signal() -> c_int {
    libc::SIGRTMIN() + 12
}

/// Spawns a goroutine with a name, from any thread.
#[track_caller]
fn spawn(rt: &Runtime, name: &'static str, f: impl FnOnce() + Send + 'static) -> gmp::JoinHandle<()> {
    rt.run(move || Builder::new().name(name).go(f)).unwrap()
}

/// Returns the paragraph of the goroutine with this name, if there is one.
fn of<'a>(dump: &'a str, name: &str) -> Option<&'a str> {
    let mut paragraphs = dump.split("\n\n");
    paragraphs.find(|text| text.lines().next().is_some_and(|head| head.contains(&format!("'{name}'"))))
}

/// Returns the functions of a paragraph, innermost first, without paths and types, and without the paragraph's head and end.
fn functions(paragraph: &str) -> Vec<&str> {
    let lines = paragraph.lines().skip(1).take_while(|line| !line.starts_with("created at "));
    let frames = lines.filter(|line| !line.starts_with('\t') && !line.starts_with("    "));
    frames.map(name_of).collect()
}

/// Returns the name without the path before it. Some builds name the types after the function, or in the path.
fn name_of(frame: &str) -> &str {
    let mut depth = 0_i32;
    let outside = frame.split_inclusive(['<', '>']).filter_map(|part| {
        let is_outside = depth == 0;
        depth += match part.as_bytes() {
            [.., b'-', b'>'] => 0,
            [.., b'<'] => 1,
            [.., b'>'] => -1,
            _ => 0,
        };
        is_outside.then_some(part.trim_end_matches('<'))
    });
    outside.flat_map(|part| part.split("::")).filter(|segment| !segment.is_empty()).last().unwrap_or(frame)
}

#[test]
fn a_frame_is_known_by_its_functions_name() {
    for (frame, name) in [
        ("asks", "asks"),
        ("gmp::sched::watch::dump::<impl gmp::sched::Sched<H>>::dump", "dump"),
        ("gmp::with_stack<fn(u8) -> u8, u8>", "with_stack"),
        ("<a::B as c::D<e>>::f", "f"),
        ("a::b::{closure#0}", "{closure#0}"),
    ] {
        assert_eq!(name_of(frame), name);
    }
}

/// Dumps until the goroutine of this name runs in this function, and returns its paragraph.
#[track_caller]
fn runs_in(rt: &Runtime, name: &str, function: &str) -> String {
    let mut last = String::new();
    until(|| {
        last = rt.dump();
        of(&last, name).is_some_and(|text| {
            text.lines().next().is_some_and(|head| head.ends_with("[running]:"))
                && functions(text).contains(&function)
        })
    });
    of(&last, name).expect("it was there").to_owned()
}

#[inline(never)]
fn spins(over: &AtomicBool) {
    while !over.load(SeqCst) {
        spin_loop();
    }
    black_box(over);
}

#[inline(never)]
fn hangs_in_a_lock(lock: &Mutex<()>) {
    drop(black_box(lock.lock()));
    black_box(lock);
}

static INTERRUPTED: AtomicUsize = AtomicUsize::new(0);

#[inline(never)]
fn sleeps_in_the_kernel(over: &AtomicBool) {
    let pause = libc::timespec { tv_sec: 3600, tv_nsec: 0 };
    while !over.load(SeqCst) {
        // SAFETY: it reads what we pass.
        let rest = unsafe { libc::nanosleep(&pause, ptr::null_mut()) };
        INTERRUPTED.fetch_add(usize::from(rest != 0), SeqCst);
    }
    black_box(over);
}

/// Fails when a goroutine has no frames, or no name, or those of another.
#[test]
fn a_goroutine_that_spins_or_hangs_in_a_foreign_call_is_shown_with_its_name_and_calls() {
    everywhere(|rt| {
        let (over, lock) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(())));
        let held = lock.lock().unwrap();
        let mut all = Vec::new();
        let own = Arc::clone(&over);
        all.push(spawn(&rt, "sleeps", move || sleeps_in_the_kernel(&own)));
        let own = Arc::clone(&lock);
        all.push(spawn(&rt, "locks", move || hangs_in_a_lock(&own)));
        let own = Arc::clone(&over);
        all.push(spawn(&rt, "spins", move || spins(&own)));
        let own = Arc::clone(&over);
        all.push(spawn(&rt, "spins elsewhere", move || {
            with_stack(64 << 10, || with_stack(32 << 10, || spins(&own)))
        }));
        for (name, function) in [
            ("sleeps", "sleeps_in_the_kernel"),
            ("locks", "hangs_in_a_lock"),
            ("spins", "spins"),
            ("spins elsewhere", "spins"),
        ] {
            let text = runs_in(&rt, name, function);
            let last = functions(&text).into_iter().next_back();
            assert!(last.is_some_and(|last| last.starts_with('{')), "the outer end is missing: {text}");
            assert!(text.contains("\ncreated at tests/dumps/of_running.rs:"), "{text}");
            for machinery in ["trampoline", "/stack/switch", "/sched/run/schedule", "/task.rs"] {
                assert!(!text.contains(machinery), "{machinery} is shown: {text}");
            }
        }
        // The library's call that the user wrote stands between two functions of the user's.
        let text = runs_in(&rt, "spins elsewhere", "spins");
        assert_eq!(
            functions(&text).iter().filter(|function| **function == "with_stack").count(),
            2,
            "{text}"
        );
        over.store(true, SeqCst);
        drop(held);
        // A signal wakes a sleeping thread.
        until(|| !rt.dump().contains("sleeps_in_the_kernel"));
        all.into_iter().for_each(|each| each.join().unwrap());
    });
}

#[inline(never)]
fn asks(rt: &Runtime) -> String {
    black_box(rt.dump())
}

/// Fails when the goroutine that asks is not shown where it asks, or when more than the call is shown.
#[test]
fn the_goroutine_that_asks_is_shown_where_it_asks() {
    everywhere(|rt| {
        let dump = rt.run(|| asks(&rt));
        let text =
            dump.split("\n\n").find(|text| text.contains("[running]:\n")).unwrap_or_else(|| panic!("{dump}"));
        assert_eq!(functions(text)[..2], ["dump", "asks"], "{dump}");
    });
}

/// Fails by a crash, by a hang (also when none is ever seen to run), or by frames that no goroutine has: a thread is
/// interrupted at whatever instruction, while its goroutine begins, switches, goes deep or ends.
#[test]
fn ten_thousand_dumps_of_goroutines_that_switch() {
    // For all sizes together; a debug build makes a tenth, as in all races.
    const DUMPS: usize = if cfg!(debug_assertions) { 1_000 } else { 10_000 };
    everywhere(|rt| {
        let over = Arc::new(AtomicBool::new(false));
        let storm = |_| {
            let over = Arc::clone(&over);
            rt.go(move || switches(&over))
        };
        let all: Vec<_> = (0..4).map(storm).collect();
        let (mut seen, mut dumps) = (0, 0);
        // Most goroutines have switched before their thread is asked; beside other work all of some hundreds had.
        while dumps < DUMPS / common::PROCS.len() || seen == 0 {
            dumps += 1;
            let dump = rt.dump();
            for text in dump.split("\n\n").filter(|text| text.contains("[running]:\n")) {
                let functions = functions(text);
                let [outer, inner] = ["switches", "begins_and_ends"].map(|name| functions.contains(&name));
                assert!(!(outer && inner), "calls of two goroutines: {text} of {dump}");
                // A goroutine that begins or ends has no frame of the user's.
                seen += usize::from(outer || inner);
            }
        }
        over.store(true, SeqCst);
        all.into_iter().for_each(|each| each.join().unwrap());
    });
}

#[inline(never)]
fn begins_and_ends() {
    yield_now();
    black_box(());
}

#[inline(never)]
fn switches(over: &AtomicBool) {
    let (to, from) = chan::bounded::<u32>(1);
    while !over.load(SeqCst) {
        (0..20).for_each(|_| yield_now());
        with_stack(32 << 10, yield_now);
        let child = go(begins_and_ends);
        to.send(1).unwrap();
        from.recv().unwrap();
        child.join().unwrap();
    }
    black_box(over);
}

/// Fails when a thread is interrupted although that is switched off, or the goroutine is not shown.
#[test]
fn with_the_knob_no_thread_is_interrupted() {
    let name = "with_the_knob_no_thread_is_interrupted";
    if !child::is_child() {
        child::passes(name, &[("GMPDEBUG", "dumpsignal=0")]);
        return;
    }
    let rt = common::runtime(2);
    static OVER: AtomicBool = AtomicBool::new(false);
    let _sleeper = spawn(&rt, "sleeps", || sleeps_in_the_kernel(&OVER));
    let spinner = spawn(&rt, "spins", || spins(&OVER));
    until(|| rt.dump().contains("2 goroutines [running]: "));
    for _ in 0..100 {
        assert!(!rt.dump().contains("sleeps_in_the_kernel"));
    }
    assert_eq!(INTERRUPTED.load(SeqCst), 0);
    assert_eq!(disposition(), libc::SIG_DFL);
    OVER.store(true, SeqCst);
    spinner.join().unwrap();
}

/// Returns what the signal does now.
fn disposition() -> libc::sighandler_t {
    // SAFETY: plain data, for which zero is a value, and which the kernel writes.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal(), ptr::null(), &raw mut now), 0);
        now.sa_sigaction
    }
}

#[inline(never)]
fn blocks_the_signal(phase: &AtomicU32) {
    mask::change(libc::SIG_BLOCK, &[signal()]);
    phase.store(1, SeqCst);
    while phase.load(SeqCst) == 1 {
        spin_loop();
    }
    mask::change(libc::SIG_UNBLOCK, &[signal()]);
    phase.store(3, SeqCst);
    while phase.load(SeqCst) == 3 {
        spin_loop();
    }
    black_box(phase);
}

/// Fails by a hang, or when the dump does not say that nothing is known; when a late answer does harm, or prevents the next
/// one.
#[test]
fn a_thread_that_does_not_answer_is_told_and_its_late_answer_is_ignored() {
    everywhere(|rt| {
        let phase = Arc::new(AtomicU32::new(0));
        let own = Arc::clone(&phase);
        let deaf = spawn(&rt, "deaf", move || blocks_the_signal(&own));
        until(|| phase.load(SeqCst) == 1);
        for _ in 0..5 {
            let dump = rt.dump();
            assert!(dump.contains(" [running, its thread did not answer in 100 ms]:\n"), "{dump}");
            assert!(!dump.contains("blocks_the_signal"), "{dump}");
        }
        phase.store(2, SeqCst);
        until(|| phase.load(SeqCst) == 3);
        runs_in(&rt, "deaf", "blocks_the_signal");
        phase.store(4, SeqCst);
        deaf.join().unwrap();
    });
}

/// Fails when each dump leaves another signal in the kernel's queue, which has a limit for each user; or when a thread that has
/// taken the signal without a handler is not asked again.
#[test]
fn one_signal_at_most_waits_for_a_thread_that_does_not_answer() {
    const DUMPS: usize = 12;
    let rt = common::runtime(2);
    let (phase, queued) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicUsize::new(0)));
    let own = (Arc::clone(&phase), Arc::clone(&queued));
    let deaf = spawn(&rt, "deaf", move || {
        let (phase, queued) = own;
        mask::change(libc::SIG_BLOCK, &[signal()]);
        phase.store(1, SeqCst);
        while phase.load(SeqCst) == 1 {
            spin_loop();
        }
        while mask::take(signal()) {
            queued.fetch_add(1, SeqCst);
        }
        blocks_the_signal(&phase);
    });
    until(|| phase.load(SeqCst) == 1);
    for _ in 0..DUMPS {
        let dump = rt.dump();
        assert!(dump.contains(" [running, its thread did not answer in 100 ms]:\n"), "{dump}");
    }
    phase.store(2, SeqCst);
    until(|| queued.load(SeqCst) > 0 && phase.load(SeqCst) == 1);
    assert_eq!(queued.load(SeqCst), 1);
    phase.store(2, SeqCst);
    until(|| phase.load(SeqCst) == 3);
    runs_in(&rt, "deaf", "blocks_the_signal");
    phase.store(4, SeqCst);
    deaf.join().unwrap();
}

/// Fails when a thread that can't be asked is taken for one that has ended.
#[test]
fn that_no_signal_can_be_queued_is_told() {
    let name = "that_no_signal_can_be_queued_is_told";
    if !child::is_child() {
        child::passes(name, &[]);
        return;
    }
    refuse_signals();
    let rt = common::runtime(2);
    static BEGUN: AtomicBool = AtomicBool::new(false);
    static OVER: AtomicBool = AtomicBool::new(false);
    let spinner = spawn(&rt, "spins", || {
        BEGUN.store(true, SeqCst);
        spins(&OVER);
    });
    until(|| BEGUN.load(SeqCst));
    let dump = rt.dump();
    let told = " [running, no signal can be queued for its thread (RLIMIT_SIGPENDING)]:\n";
    assert!(dump.contains(told), "{dump}");
    OVER.store(true, SeqCst);
    spinner.join().unwrap();
}

/// Fails when the dump meets more refusals than it asks threads at a time, and then says of the other threads that there was no
/// time to ask them.
#[test]
fn that_no_signal_can_be_queued_is_told_of_each() {
    const READERS: usize = 40;
    let name = "that_no_signal_can_be_queued_is_told_of_each";
    if !child::is_child() {
        child::passes(name, &[]);
        return;
    }
    refuse_signals();
    let rt = common::runtime(2);
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    let (reader, writer) = std::io::pipe().unwrap();
    let read = |_| {
        let mut reader = reader.try_clone().unwrap();
        rt.go(move || {
            BEGUN.fetch_add(1, SeqCst);
            reader.read(&mut [0]).unwrap()
        })
    };
    let all: Vec<_> = (0..READERS).map(read).collect();
    until(|| BEGUN.load(SeqCst) == READERS);
    let dump = rt.dump();
    let why = "no signal can be queued for its thread (RLIMIT_SIGPENDING)";
    assert!(dump.contains(&format!("\n{READERS} goroutines [running, {why}]: ")), "{dump}");
    assert!(!dump.contains("for want of time"), "{dump}");
    drop(writer);
    all.into_iter().for_each(|each| assert_eq!(each.join().unwrap(), 0));
}

/// From here on the kernel queues no signal for this process.
fn refuse_signals() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call reads what we pass.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, &raw const none) }, 0);
}

/// Fails when the threads have inherited the mask, and do not answer.
#[test]
fn goroutines_of_a_program_that_blocks_all_signals_are_shown() {
    let name = "goroutines_of_a_program_that_blocks_all_signals_are_shown";
    if !child::is_child() {
        child::passes(name, &[]);
        return;
    }
    mask::block_all();
    let rt = common::runtime(2);
    static OVER: AtomicBool = AtomicBool::new(false);
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    let spin = || {
        BEGUN.fetch_add(1, SeqCst);
        spins(&OVER);
    };
    // A busy machine may keep a thread from its answer now and then; a mask always does.
    let shows = |name: &str| {
        let shown = |dump: &str| of(dump, name).is_some_and(|text| functions(text).contains(&"spins"));
        (0..20).any(|_| shown(&rt.dump()))
    };
    let spinner = spawn(&rt, "spins", spin);
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let lent = || unsafe { rt.run_locked(spin) };
    thread::scope(|s| {
        s.spawn(lent);
        until(|| BEGUN.load(SeqCst) == 2);
        let shown = ["spins", "main"].map(shows);
        OVER.store(true, SeqCst);
        assert_eq!(shown, [true; 2]);
    });
    spinner.join().unwrap();
}

/// Fails when a thread lets a signal through that is the program's, or that no handler of the runtime takes: its default action
/// would end the program.
#[test]
fn what_the_runtime_does_not_need_stays_blocked() {
    let name = "what_the_runtime_does_not_need_stays_blocked";
    if !child::is_child() {
        for (taken, knobs) in [("0", ""), ("0", "dumpsignal=0"), ("1", "")] {
            child::passes(name, &[("TAKEN", taken), ("GMPDEBUG", knobs)]);
        }
        return;
    }
    let taken = std::env::var("TAKEN").unwrap() == "1";
    if taken {
        // SAFETY: the handler counts.
        unsafe { libc::signal(signal(), take as *const () as libc::sighandler_t) };
    }
    let before = disposition();
    mask::block_all();
    let mut expected = mask::blocked();
    let asks = !taken && !std::env::var("GMPDEBUG").unwrap().contains("dumpsignal=0");
    expected.retain(|&other| ![libc::SIGSEGV, libc::SIGBUS].contains(&other) && (other != signal() || !asks));
    let rt = common::runtime(2);
    assert_eq!(rt.run(mask::blocked), expected);
    assert_eq!(disposition() == before, !asks);
}

static TAKEN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn take(_signal: c_int) {
    TAKEN.fetch_add(1, SeqCst);
}

/// Fails when the program's handler is replaced, or called, or the dump does not say why it shows nothing.
#[test]
fn a_handler_of_the_program_is_left_alone() {
    let name = "a_handler_of_the_program_is_left_alone";
    if !child::is_child() {
        for younger in ["0", "1"] {
            child::passes(name, &[("YOUNGER", younger)]);
        }
        return;
    }
    let rt = common::runtime(2);
    static BEGUN: AtomicBool = AtomicBool::new(false);
    static OVER: AtomicBool = AtomicBool::new(false);
    let spinner = spawn(&rt, "spins", || {
        BEGUN.store(true, SeqCst);
        spins(&OVER);
    });
    // A dump would tell that, too, but it would set the handler of the runtime.
    until(|| BEGUN.load(SeqCst));
    let handler = take as *const () as libc::sighandler_t;
    if std::env::var("YOUNGER").unwrap() == "1" {
        runs_in(&rt, "spins", "spins");
        assert_ne!(disposition(), libc::SIG_DFL);
    }
    // SAFETY: the handler counts.
    unsafe { libc::signal(signal(), handler) };
    for _ in 0..10 {
        let dump = rt.dump();
        assert!(dump.contains(" [running, SIGRTMIN+12 is the program's]:\n"), "{dump}");
    }
    assert_eq!(disposition(), handler);
    assert_eq!(TAKEN.load(SeqCst), 0);
    OVER.store(true, SeqCst);
    spinner.join().unwrap();
}

static HANDLED: AtomicBool = AtomicBool::new(false);

#[inline(never)]
extern "C" fn hangs(signal: c_int) {
    spins(&HANDLED);
    black_box(signal);
}

/// Fails when a handler is taken for the goroutine, or when the walk does not get through a handler that runs on the
/// goroutine's stack.
#[test]
fn a_goroutine_that_hangs_in_a_signal_handler_is_told() {
    let name = "a_goroutine_that_hangs_in_a_signal_handler_is_told";
    if !child::is_child() {
        for on_stack in ["0", "1"] {
            child::passes(name, &[("ON_STACK", on_stack)]);
        }
        return;
    }
    let on_stack = std::env::var("ON_STACK").unwrap() == "1";
    // SAFETY: zeros are an empty mask; the handler has this type.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = hangs as *const () as usize;
        action.sa_flags = if on_stack { libc::SA_ONSTACK } else { 0 };
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut()), 0);
    }
    let rt = common::runtime(2);
    // SAFETY: no pointers.
    let raises = spawn(&rt, "raises", || assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0));
    if on_stack {
        until(|| rt.dump().contains(" [running, in a signal handler]:\n"));
    } else {
        let text = runs_in(&rt, "raises", "spins");
        let functions = functions(&text);
        assert!(functions.contains(&"hangs"), "{text}");
        assert!(functions.last().unwrap().starts_with('{'), "{text}");
    }
    HANDLED.store(true, SeqCst);
    raises.join().unwrap();
}

/// Fails when the dump waits for each thread in turn: 100 ms is for all that are asked together, and a second for all.
#[test]
fn many_that_do_not_answer_take_a_second_at_most() {
    const DEAF: usize = 40;
    let rt = common::runtime(2);
    let (over, deaf) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let all: Vec<_> = (0..DEAF)
        .map(|_| {
            let (over, deaf) = (Arc::clone(&over), Arc::clone(&deaf));
            rt.go(move || {
                mask::change(libc::SIG_BLOCK, &[signal()]);
                deaf.fetch_add(1, SeqCst);
                while !over.load(SeqCst) {
                    thread::sleep(Duration::from_millis(10));
                }
                mask::change(libc::SIG_UNBLOCK, &[signal()]);
            })
        })
        .collect();
    until(|| deaf.load(SeqCst) == DEAF);
    let begun = std::time::Instant::now();
    let dump = rt.dump();
    let took = begun.elapsed();
    assert!(
        dump.contains(&format!("\n{DEAF} goroutines [running, its thread did not answer in 100 ms]: ")),
        "{dump}"
    );
    // One after the other they would take four seconds.
    assert!(took < Duration::from_secs(3), "{took:?}");
    over.store(true, SeqCst);
    all.into_iter().for_each(|each| each.join().unwrap());
}

/// Fails by a hang when no later dump shows frames of running goroutines, as the first had no memory for them.
#[test]
fn a_dump_that_was_short_of_memory_spoils_no_other() {
    const NAME: &str = "a_dump_that_was_short_of_memory_spoils_no_other";
    if !child::is_child() {
        return drop(child::passes(NAME, &[]));
    }
    // With a second P another thread would perhaps be starting when the limit is set, and std ends the process where a
    // thread that has begun finds no memory.
    let rt = common::runtime(1);
    let over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&over);
    let begun = Arc::new(AtomicBool::new(false));
    let begins = Arc::clone(&begun);
    let spinner = spawn(&rt, "spins", move || {
        begins.store(true, SeqCst);
        spins(&ends);
    });
    until(|| begun.load(SeqCst));
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: it writes what is passed.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut before) }, 0);
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let set = |limit: &libc::rlimit| {
        // SAFETY: it reads what is passed.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, limit) }, 0);
    };
    // Less than the copies of stacks take.
    set(&libc::rlimit { rlim_cur: pages * 4096 + (512 << 10), ..before });
    let short = rt.dump();
    set(&before);
    assert!(short.contains("[running, no memory for its stack]"), "{short}");
    runs_in(&rt, "spins", "spins");
    over.store(true, SeqCst);
    spinner.join().unwrap();
}
