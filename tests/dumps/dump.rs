//! Dumps: `Runtime::dump`, `gmp::dump`, where each goroutine waits and for how long.

use common::child;
use common::dumps;
use common::loopback;
use common::{effort, everywhere, until};
use gmp::Runtime;
use gmp::chan::{Receiver, Sender, bounded};
use gmp::sync::{Barrier, Condvar, Event, Mutex, RwLock, Semaphore, WaitGroup};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// Returns the age that the dump gives to the goroutine that waits for an event.
fn age(dump: &str) -> Duration {
    let text = dump.split("[event, ").nth(1).unwrap_or_else(|| panic!("nobody waits: {dump}"));
    let (number, rest) = text.split_once(' ').expect("a number and a unit");
    let number = number.parse().expect("a number");
    if rest.starts_with("ms") { Duration::from_millis(number) } else { Duration::from_secs(number) }
}

/// Returns how much of its stack the goroutine of this name has touched, as the dump says.
fn touched(dump: &str, name: &str) -> Option<usize> {
    let line = dump.lines().find(|line| line.contains(&format!("'{name}' [event")))?;
    line.split_once(" touched")?.0.rsplit_once(' ')?.1.parse().ok()
}

/// Starts a goroutine that goes `bytes` deep, and then waits higher up.
fn waits(rt: &Runtime, name: &'static str, bytes: usize) -> (gmp::JoinHandle<()>, Arc<Event>) {
    #[inline(never)]
    fn deep(bytes: usize) {
        let frame = std::hint::black_box([1_u8; 1 << 10]);
        if bytes > frame.len() {
            deep(bytes - frame.len());
        }
        std::hint::black_box(frame);
    }
    let event = Arc::new(Event::new());
    let waits = Arc::clone(&event);
    let goroutine = rt.run(move || {
        let goes = move || {
            deep(bytes);
            waits.wait();
        };
        gmp::Builder::new().name(name).stack_size(256 << 10).go(goes).unwrap()
    });
    until(|| rt.dump().contains(&format!("'{name}' [event")));
    (goroutine, event)
}

/// Fails when the mark is the present depth, or that of the goroutine that had the stack before.
#[test]
fn what_was_touched_of_a_stack_is_told_when_it_is_asked_for() {
    let test = "what_was_touched_of_a_stack_is_told_when_it_is_asked_for";
    if !child::is_child() {
        child::passes(test, &[("GMPDEBUG", "stackuse=1")]);
        // Here the mark is not asked for.
        let rt = common::runtime(1);
        let (_waits, _event) = waits(&rt, "deep", 1 << 10);
        assert!(!rt.dump().contains("touched"));
        return;
    }
    let rt = common::runtime(1);
    let (deep, event) = waits(&rt, "deep", 40 << 10);
    let first = touched(&rt.dump(), "deep").expect("it is told");
    // In a debug build each frame is larger.
    assert!((40 << 10..256 << 10).contains(&first) && first.is_multiple_of(4096), "{first}");
    event.notify_one();
    deep.join().unwrap();
    // This goroutine has the same stack.
    let (_shallow, _event) = waits(&rt, "shallow", 0);
    let second = touched(&rt.dump(), "shallow").expect("it is told");
    assert!((4096..=24 << 10).contains(&second), "{second} after {first}");
}

/// Fails when a park notes a time from before its M fell asleep, or when the age of a wait that continues starts again.
#[test]
fn a_wait_is_as_old_as_it_is() {
    everywhere(|rt| {
        let (event, back) = (Arc::new(Event::new()), Arc::new(Event::new()));
        let waiter = rt.go({
            let (event, back) = (Arc::clone(&event), Arc::clone(&back));
            move || {
                event.wait();
                back.notify_one();
                event.wait();
            }
        });
        until(|| rt.dump().contains("[event, "));
        let begun = Instant::now();
        // The runtime falls asleep, and so does its monitor.
        thread::sleep(Duration::from_millis(300));
        let dumped = age(&rt.dump());
        assert!(dumped >= Duration::from_millis(280), "{dumped:?} after {:?}", begun.elapsed());
        // The goroutine parks again.
        let again = Instant::now();
        event.notify_one();
        back.wait();
        until(|| rt.dump().contains("[event, "));
        let dumped = age(&rt.dump());
        let most = again.elapsed() + Duration::from_millis(100);
        assert!(dumped <= most, "{dumped:?} instead of at most {most:?}");
        event.notify_one();
        waiter.join().unwrap();
    });
}

/// Fails when the coarse time is not updated while a goroutine works on and on.
#[test]
fn a_wait_that_begins_in_the_middle_of_work_is_young() {
    everywhere(|rt| {
        let begin = Instant::now();
        let event = Arc::new(Event::new());
        let waits = Arc::clone(&event);
        let seen = &rt;
        let (waiter, dumped, most) = rt.run(move || {
            while begin.elapsed() < Duration::from_millis(200) {
                gmp::yield_now();
            }
            let parked = Instant::now();
            let waiter = gmp::go(move || waits.wait());
            until(|| seen.dump().contains("[event, "));
            (waiter, age(&seen.dump()), parked.elapsed() + Duration::from_millis(100))
        });
        assert!(dumped <= most, "{dumped:?} instead of at most {most:?}");
        event.notify_one();
        waiter.join().unwrap();
    });
}

#[test]
fn one_goroutine_is_no_goroutines() {
    // SAFETY: nothing here is bound to a thread.
    let rt = unsafe { gmp::Runtime::builder().procs(1).build() }.unwrap();
    let text = rt.run({
        let rt = &rt;
        move || rt.dump()
    });
    assert!(text.starts_with("1 goroutine, running\n"), "{text}");
    let event = Arc::new(Event::new());
    let waits = Arc::clone(&event);
    let waiter = rt.go(move || waits.wait());
    until(|| rt.dump().starts_with("1 goroutine, not running\n\ngoroutine "));
    event.notify_one();
    waiter.join().unwrap();
}

/// Fails when a runtime is missing in the dump of all.
#[test]
fn a_dump_of_all_names_each_runtime() {
    // SAFETY: nothing here is bound to a thread.
    let start = || unsafe { gmp::Runtime::builder().procs(2).build() }.unwrap();
    let (first, second) = (start(), start());
    let named = |rt: &gmp::Runtime, name: &'static str| {
        let event = Arc::new(Event::new());
        let waits = Arc::clone(&event);
        let waiter = rt.run(move || gmp::Builder::new().name(name).go(move || waits.wait())).unwrap();
        (event, waiter)
    };
    let waiters = [named(&first, "of the first"), named(&second, "of the second")];
    until(|| {
        let text = gmp::dump();
        text.contains("'of the first' [event, ") && text.contains("'of the second' [event, ")
    });
    // Other tests of this process have runtimes of their own.
    assert!(gmp::dump().starts_with("runtime 1 of "));
    for (event, waiter) in waiters {
        event.notify_one();
        waiter.join().unwrap();
    }
    drop(first);
    assert!(!gmp::dump().contains("of the first"));
}

/// Returns how many goroutines wait for an event.
fn waiters(rt: &gmp::Runtime) -> usize {
    dumps::read(&rt.dump()).iter().filter(|g| g.1.starts_with("event")).count()
}

/// Returns the paragraph of the first goroutine, or group of goroutines, in `state`.
fn paragraph<'a>(dump: &'a str, state: &str) -> &'a str {
    let mut paragraphs = dump.split("\n\n");
    let head = |text: &&str| text.lines().next().is_some_and(|line| line.contains(&format!(" [{state}")));
    paragraphs.find(head).unwrap_or_else(|| panic!("nobody is in {state}: {dump}"))
}

#[inline(never)]
fn waits_in_the_innermost(event: &Event) {
    event.wait();
    std::hint::black_box(event);
}

#[inline(never)]
fn waits_below(event: &Event, depth: usize) {
    if depth == 0 {
        waits_in_the_innermost(event)
    } else {
        waits_below(event, depth - 1)
    }
    std::hint::black_box(depth);
}

/// Fails when a frame of the user is missing, or when a frame of the library's machinery is shown.
#[test]
fn a_trace_begins_at_the_call_that_waits_and_ends_at_the_users_first_function() {
    everywhere(|rt| {
        let event = Arc::new(Event::new());
        let waits = Arc::clone(&event);
        let waiter = rt.go(move || waits_below(&waits, 3));
        until(|| waiters(&rt) == 1);
        let dump = rt.dump();
        let trace = paragraph(&dump, "event");
        // Each build of the suite knows lines, but not each knows the paths of names.
        let lines: Vec<&str> = trace.lines().skip(1).collect();
        assert!(lines[1].contains("/sync/event.rs:"), "{dump}");
        let of_the_user =
            |line: &&&str| ["waits_in_the_innermost", "waits_below"].iter().any(|name| line.contains(name));
        let users: Vec<_> = lines.iter().filter(of_the_user).collect();
        assert_eq!(users.len(), 5, "{dump}");
        assert!(users[0].ends_with("waits_in_the_innermost"), "{dump}");
        assert!(trace.contains("\n\ttests/dumps/dump.rs:"), "{dump}");
        for machinery in ["gopark", "trampoline", "/host/", "/stack/", "/sched/", "/task.rs", "catch_unwind"]
        {
            assert!(!trace.contains(machinery), "{machinery} is shown: {dump}");
        }
        assert!(lines.last().unwrap().starts_with("created at tests/dumps/dump.rs:"), "{dump}");
        event.notify_one();
        waiter.join().unwrap();
    });
}

/// Starts a goroutine of this name, which waits in `f`.
fn waiting(rt: &Runtime, name: &'static str, f: impl FnOnce() + Send + 'static) {
    drop(rt.run(move || gmp::Builder::new().name(name).go(f)).unwrap());
}

/// Returns the place, below `runtime/src/`, of the innermost function that the goroutine of this name shows; `None` if it does
/// not wait yet.
#[track_caller]
fn innermost<'a>(dump: &'a str, name: &str) -> Option<&'a str> {
    let trace = dump.split("\n\n").find(|text| {
        let head = text.lines().next().unwrap_or_default();
        head.contains(&format!("'{name}' [")) && !head.contains("[run")
    })?;
    let mut places = trace.lines().filter_map(|line| line.strip_prefix('\t'));
    let first = places.next().unwrap_or_else(|| panic!("no place: {trace}"));
    let ours = |place: &str| place.rsplit_once("runtime/src/").map(|(_, ours)| ours.len());
    let called = first.rsplit_once("runtime/src/").unwrap_or_else(|| panic!("not the library's: {trace}")).1;
    assert!(places.clone().all(|place| ours(place).is_none()), "more than the call is shown: {trace}");
    assert!(
        places.any(|place| place.contains("tests/dumps/dump.rs")),
        "the user's function is not shown: {trace}"
    );
    called.split_once(':').map(|(file, _line)| file)
}

/// Fails when a dump shows the way from a call of the library to the switch, or hides the call.
#[test]
fn of_each_blocking_operation_the_call_is_shown_and_nothing_below_it() {
    let rt = common::runtime(2);
    let (full, receiver) = bounded(1);
    full.send(0).unwrap();
    let (_sender, empty) = bounded::<u32>(1);
    waiting(&rt, "send", move || assert!(full.send(1).is_ok()));
    let same = empty.clone();
    waiting(&rt, "receive", move || assert!(same.recv().is_err()));
    let same = empty.clone();
    waiting(&rt, "iterate", move || assert!(same.iter().next().is_none()));
    waiting(&rt, "select", move || gmp::select! { recv(empty) -> _ => {} });
    let (mutex, rwlock) = (Arc::new(Mutex::new(())), Arc::new(RwLock::new(())));
    std::mem::forget((mutex.lock(), rwlock.write()));
    waiting(&rt, "mutex", move || drop(mutex.lock()));
    let same = Arc::clone(&rwlock);
    waiting(&rt, "rwlock read", move || drop(same.read()));
    waiting(&rt, "rwlock write", move || drop(rwlock.write()));
    waiting(&rt, "condvar", || {
        let mutex = Mutex::new(());
        Condvar::new().wait(&mut mutex.lock());
    });
    waiting(&rt, "semaphore", || Semaphore::new(0).acquire(1));
    waiting(&rt, "event", || Event::new().wait());
    waiting(&rt, "barrier", || _ = Barrier::new(2).wait());
    waiting(&rt, "wait group", || {
        let group = WaitGroup::new();
        group.add(1);
        group.wait();
    });
    waiting(&rt, "sleep", || gmp::time::sleep(Duration::from_secs(3600)));
    waiting(&rt, "join", || gmp::go(|| Event::new().wait()).join().unwrap());
    waiting(&rt, "join behind done", || {
        let mut waits = gmp::go(|| Event::new().wait());
        drop(waits.done());
        waits.join().unwrap();
    });
    waiting(&rt, "join with a limit", || {
        let mut waits = gmp::go(|| Event::new().wait());
        waits.join_timeout(Duration::from_secs(3600)).unwrap().unwrap();
    });
    waiting(&rt, "scope", || gmp::scope(|s| drop(s.go(|| Event::new().wait()))));
    waiting(&rt, "accept", || drop(loopback::listen().0.accept()));
    waiting(&rt, "read", || {
        let (mut near, _far) = loopback::pair();
        drop(near.read(&mut [0]));
    });
    waiting(&rt, "write", || {
        let (mut near, _far) = loopback::pair();
        while near.write(&[0; 1 << 16]).is_ok() {}
    });
    waiting(&rt, "read exactly", || {
        let (mut near, _far) = loopback::pair();
        drop(near.read_exact(&mut [0; 8]));
    });
    let calls = [
        ("send", "chan/ends.rs"),
        ("receive", "chan/ends.rs"),
        ("iterate", "chan/iter.rs"),
        ("select", "chan/macros.rs"),
        ("mutex", "sync/mutex.rs"),
        ("rwlock read", "sync/rwlock.rs"),
        ("rwlock write", "sync/rwlock.rs"),
        ("condvar", "sync/condvar.rs"),
        ("semaphore", "sync/semaphore.rs"),
        ("event", "sync/event.rs"),
        ("barrier", "sync/barrier.rs"),
        ("wait group", "sync/wait_group.rs"),
        ("sleep", "time/mod.rs"),
        ("join", "goroutine/join.rs"),
        ("join behind done", "goroutine/join.rs"),
        ("join with a limit", "goroutine/join.rs"),
        ("scope", "goroutine/scope.rs"),
        ("accept", "net/tcp/listener.rs"),
        ("read", "net/methods.rs"),
        ("write", "net/methods.rs"),
        ("read exactly", "net/methods.rs"),
    ];
    for (name, file) in calls {
        let begun = Instant::now();
        until(|| {
            let dump = rt.dump();
            assert!(begun.elapsed() < Duration::from_secs(20), "{name} does not wait: {dump}");
            innermost(&dump, name).is_some()
        });
        let dump = rt.dump();
        assert_eq!(innermost(&dump, name), Some(file), "{name}: {dump}");
        let says_join = dump.contains(&format!("'{name}' [join"));
        assert_eq!(says_join, name.starts_with("join"), "{name}: {dump}");
    }
    // The goroutines are unwound before the channel's other end goes.
    drop(rt);
    drop(receiver);
}

/// Returns what two dumps of the same program have in common: without times, places and paths.
fn shape(dump: &str) -> Vec<String> {
    let line = |line: &str| {
        if line.starts_with("created at ") {
            "created".to_owned()
        } else if let Some((head, rest)) = line.split_once(" [") {
            let (state, after) = rest.split_once(']').expect("a state in brackets");
            format!("{head} [{}]{after}", state.split(',').next().expect("a reason"))
        } else {
            // Without the types, which some builds name.
            let function = line.rsplit("::").next().expect("a line").split('<').next().expect("a name");
            if function.starts_with('{') { "a closure".to_owned() } else { function.to_owned() }
        }
    };
    let is_place = |line: &&str| line.starts_with('\t') || line.starts_with("    ");
    dump.trim_end().lines().filter(|text| !is_place(text)).map(line).collect()
}

#[inline(never)]
fn worker(from: &Receiver<u32>) {
    std::hint::black_box(from.recv().is_err());
}

/// Fails when the documentation shows something else than what a dump says.
#[test]
fn the_sample_in_the_documentation_is_what_a_dump_says() {
    let documented: String = include_str!("../../runtime/src/runtime/mod.rs")
        .lines()
        .skip_while(|line| !line.contains("/// ```text"))
        .skip(1)
        .take_while(|line| !line.contains("/// ```"))
        .map(|line| {
            line.trim_start()
                .strip_prefix("///")
                .expect("a line of it")
                .strip_prefix(' ')
                .unwrap_or("")
                .to_owned()
                + "\n"
        })
        .collect();
    assert!(documented.contains("[chan receive"), "another sample comes first: {documented}");
    let rt = common::runtime(1);
    let dump = rt.run({
        let rt = &rt;
        move || {
            let (_sender, from) = bounded::<u32>(1);
            for _ in 0..3 {
                let from = from.clone();
                drop(gmp::go(move || worker(&from)));
            }
            drop(gmp::Builder::new().name("waits").go(|| Event::new().wait()).unwrap());
            until(|| {
                rt.dump().matches("oroutine").count() == 4
                    && rt.dump().contains("[chan")
                    && rt.dump().contains("[event")
            });
            rt.dump()
        }
    });
    assert_eq!(shape(&dump), shape(&documented), "{dump}");
}

/// Fails when a trace grows with the stack, or loses its inner end.
#[test]
fn a_deep_trace_is_cut_at_its_outer_end() {
    everywhere(|rt| {
        let event = Arc::new(Event::new());
        let waits = Arc::clone(&event);
        let deep = rt.go(move || waits_below(&waits, 100));
        until(|| waiters(&rt) == 1);
        let dump = rt.dump();
        let trace = paragraph(&dump, "event");
        let shown = trace.matches("waits_below\n").count();
        assert!((40..64).contains(&shown), "{shown} frames: {dump}");
        assert!(trace.contains("waits_in_the_innermost\n") && trace.contains("\n...\ncreated at "), "{dump}");
        event.notify_one();
        deep.join().unwrap();
    });
}

/// Fails when goroutines that do the same are listed one by one, when one of them is missing, or when others are counted with
/// them.
#[test]
fn goroutines_that_do_the_same_at_the_same_place_are_one_group() {
    const ALIKE: usize = 500;
    everywhere(|rt| {
        let event = Arc::new(Event::new());
        let go = |waits: fn(&Event)| {
            let event = Arc::clone(&event);
            move || waits(&event)
        };
        let alike: Vec<_> = (0..ALIKE).map(|_| rt.go(go(waits_in_the_innermost))).collect();
        let others = [rt.go(go(|event| waits_below(event, 1))), rt.go(go(|event| waits_below(event, 2)))];
        until(|| waiters(&rt) == ALIKE + 2);
        let dump = rt.dump();
        let groups =
            dump.lines().filter(|line| line.contains("oroutine") && line.contains(" [event, ")).count();
        assert_eq!(groups, 3, "{dump}");
        assert!(dump.contains(&format!("\n{ALIKE} goroutines [event, ")), "{dump}");
        let told = dumps::read(&dump);
        assert!(
            alike.iter().all(|g| told.iter().filter(|told| told.0 == g.id().get()).count() == 1),
            "{dump}"
        );
        (0..ALIKE + 2).for_each(|_| event.notify_one());
        alike.into_iter().chain(others).for_each(|g| g.join().unwrap());
    });
}

/// Fails when a goroutine that has not begun is shown with frames, or running goroutines are not named.
#[test]
fn a_goroutine_that_never_ran_is_not_started_and_a_running_one_is_named() {
    // SAFETY: nothing here is bound to a thread.
    let rt = unsafe { gmp::Runtime::builder().procs(1).build() }.unwrap();
    let (dump, own, queued) = rt.run({
        let rt = &rt;
        move || {
            let queued = gmp::go(|| ());
            // The monitor does not take the only P from a goroutine that does not run for long.
            (rt.dump(), gmp::current().unwrap().id().get(), queued)
        }
    });
    let told = dumps::read(&dump);
    let does = |id| told.iter().find(|g| g.0 == id).map(|g| g.1);
    assert_eq!(does(own), Some("running"), "{dump}");
    if does(queued.id().get()) != Some("running") {
        assert_eq!(does(queued.id().get()), Some("runnable, not started"), "{dump}");
        assert!(paragraph(&dump, "runnable, not started").lines().nth(1).unwrap().starts_with("created at"));
    }
    queued.join().unwrap();
}

/// Fails by an overflow when names are looked up on the stack of the goroutine that asks.
#[test]
fn a_goroutine_on_the_smallest_stack_may_dump() {
    everywhere(|rt| {
        let small = rt.run(|| gmp::Builder::new().stack_size(16 << 10).go(gmp::dump)).unwrap();
        assert!(small.join().unwrap().contains("goroutine"));
    });
}

#[inline(never)]
fn passes_on(from: &Receiver<u32>, to: &Sender<u32>, depth: usize) -> bool {
    if depth > 0 {
        return std::hint::black_box(passes_on(from, to, depth - 1));
    }
    from.recv().and_then(|token| to.send(token).map_err(|_| gmp::chan::RecvError)).is_ok()
}

/// Fails by a crash in the unwinder, or by a trace without its function, when a stack is read while its goroutine runs.
#[test]
fn stacks_that_come_and_go_are_read_while_nobody_uses_them() {
    everywhere(|rt| {
        let (first, mut from) = bounded::<u32>(1);
        let mut ring = Vec::new();
        for depth in 0..7 {
            let (to, next) = bounded(1);
            let from = std::mem::replace(&mut from, next);
            ring.push(rt.go(move || while passes_on(&from, &to, depth) {}));
        }
        let last = first.clone();
        ring.push(rt.go(move || while passes_on(&from, &last, 7) {}));
        let over = Arc::new(AtomicBool::new(false));
        let births = rt.go({
            let over = Arc::clone(&over);
            move || {
                while !over.load(SeqCst) {
                    let children: Vec<_> = (0..8).map(|_| gmp::go(gmp::yield_now)).collect();
                    children.into_iter().for_each(|child| child.join().unwrap());
                }
            }
        });
        first.send(1).unwrap();
        for _ in 0..100 * effort() {
            let dump = rt.dump();
            for trace in dump.split("\n\n").filter(|text| text.contains(" [chan ")) {
                assert!(trace.contains("passes_on"), "{trace} of {dump}");
            }
        }
        over.store(true, SeqCst);
        births.join().unwrap();
        drop(first);
        // One goroutine keeps the token, so the ring ends with the runtime.
        drop(rt);
        drop(ring);
    });
}
