//! The kernel has no memory left for guards, so a goroutine that was accepted waits for a stack that comes back, or for memory.

use common::{child, gate::Gate, runtime, seccomp, until, watched};
use gmp::sync::Event;
use gmp::{Builder, JoinHandle, Runtime, chan};
use std::fs;
use std::io::ErrorKind::OutOfMemory;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

const STACK: usize = 64 << 10;
/// A slab is made with as many guards.
const STACKS: usize = 8;

/// A goroutine that has begun, and waits for its end.
struct Parked {
    end: Arc<Event>,
    handle: JoinHandle<()>,
}

impl Parked {
    /// Starts the goroutine from a plain thread, which leaves no P a reservation: a P takes as many stacks as it has
    /// reservations.
    fn begin(rt: &Runtime) -> Parked {
        let (begun, end) = (Gate::default(), Arc::new(Event::new()));
        let (begins, ends) = (begun.clone(), Arc::clone(&end));
        let handle = rt.go(move || {
            begins.open();
            ends.wait();
        });
        begun.pass();
        Parked { end, handle }
    }

    fn end(self) {
        self.end.notify_one();
        self.handle.join().unwrap();
    }
}

/// Waits until all Ms but `awake` sleep: then the other Ps are idle.
fn until_asleep_but(awake: usize) {
    // An M that sleeps for a lock is awake again before so many looks, which take a while.
    const LOOKS: usize = 5;
    until(|| {
        let first = sleepers();
        let still = || {
            thread::sleep(Duration::from_micros(50));
            sleepers() == first
        };
        first.0 == awake && (1..LOOKS).all(|_| still())
    });
}

/// Returns how many Ms are awake, and for each other M how often it has gone to sleep.
fn sleepers() -> (usize, Vec<String>) {
    let (mut awake, mut asleep) = (0, Vec::new());
    for thread in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let Ok(status) = fs::read_to_string(thread.path().join("status")) else { continue };
        let name = status.lines().next().and_then(|line| line.split_once("gmp-"));
        if name.is_none_or(|(_, number)| number.parse::<u32>().is_err()) {
            continue;
        }
        match status.contains("\nState:\tS") {
            false => awake += 1,
            true => {
                asleep.extend(status.lines().find(|line| line.starts_with("voluntary")).map(str::to_owned))
            }
        }
    }
    (awake, asleep)
}

/// Keeps its P from the first gate to the second, and parks then.
fn keep(turns: &chan::Receiver<[Gate; 2]>) {
    while let Ok([from, to]) = turns.recv() {
        from.open();
        while !to.is_open() {
            std::hint::spin_loop();
        }
    }
}

/// Fails when each goroutine that had to ask twice is counted twice, and in the end by a spawn that is refused for good.
#[test]
fn a_stack_that_is_asked_for_twice_counts_once() {
    if !child::is_child() {
        return drop(child::passes("a_stack_that_is_asked_for_twice_counts_once", &[]));
    }
    watched(2, || {
        let builder = Runtime::builder().procs(2).stack_size(STACK).max_stack_bytes(2 * STACKS * STACK);
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        let rt = unsafe { builder.build() }.unwrap();
        let (keeps, turns) = chan::bounded(0);
        let keeper = rt.go(move || keep(&turns));
        let parked: Vec<_> = (1..STACKS).map(|_| Parked::begin(&rt)).collect();
        seccomp::refuse(&[libc::SYS_madvise, libc::SYS_process_madvise], libc::ENOMEM);
        let asked_twice = parked.into_iter().map(|one| {
            // One goroutine ends on one P while the keeper has the other P. That P becomes idle, too, and is the first to be
            // taken. So the goroutine that begins next finds no stack there, has the idle P's cache emptied, and asks once
            // more.
            let [from, to] = [Gate::default(), Gate::default()];
            keeps.send([from.clone(), to.clone()]).unwrap();
            from.pass();
            one.end();
            until_asleep_but(1);
            to.open();
            until_asleep_but(0);
            Parked::begin(&rt)
        });
        let asked_twice: Vec<_> = asked_twice.collect();
        // These goroutines wait for a stack.
        let more: Vec<_> = (0..STACKS).map(|_| rt.go(|| ())).collect();
        let refused = catch_unwind(|| drop(rt.go(|| ())));
        assert!(refused.is_err(), "a goroutine more than the limit allows");
        drop(keeps);
        keeper.join().unwrap();
        asked_twice.into_iter().for_each(Parked::end);
        more.into_iter().for_each(|one| one.join().unwrap());
        for _ in 0..2 * STACKS {
            rt.go(|| ()).join().unwrap();
        }
    });
}

/// Fails by a hang when goroutines that found no stack only wait for one that comes back, while all goroutines that have one
/// are parked.
#[test]
fn a_goroutine_without_a_stack_asks_again_when_no_goroutine_ends() {
    const NAME: &str = "a_goroutine_without_a_stack_asks_again_when_no_goroutine_ends";
    if !child::is_child() {
        return drop(child::passes(NAME, &[]));
    }
    let short = Arc::new(AtomicBool::new(false));
    let is_short = Arc::clone(&short);
    let calls = [libc::SYS_madvise, libc::SYS_process_madvise];
    seccomp::refuse_while(calls, libc::ENOMEM, move || is_short.load(SeqCst));
    for procs in common::PROCS {
        watched(procs, || {
            let rt = runtime(procs);
            let first = Parked::begin(&rt);
            short.store(true, SeqCst);
            // More goroutines than there are guards.
            let begun: Vec<_> = (0..procs * 2 * STACKS).map(|_| Gate::default()).collect();
            let end = Arc::new(Event::new());
            let others = Vec::from_iter(begun.iter().map(|begun| {
                let (begins, ends) = (begun.clone(), Arc::clone(&end));
                rt.go(move || {
                    begins.open();
                    ends.wait();
                    // Wakes the next one.
                    ends.notify_one();
                })
            }));
            // Each goroutine has begun, or has been refused a stack twice.
            until_asleep_but(0);
            assert!(!begun.iter().all(Gate::is_open), "there were stacks for all");
            short.store(false, SeqCst);
            begun.iter().for_each(Gate::pass);
            end.notify_one();
            others.into_iter().for_each(|one| one.join().unwrap());
            first.end();
        });
    }
}

/// Fails by the end of the process because no goroutine has a stack, or because all are taken for asleep; and by a message at
/// each look, ten times a second. The `generator` backend asks the kernel at the first run; with the other backend the spawn is
/// refused.
#[test]
fn a_goroutine_that_was_accepted_waits_where_none_has_a_stack() {
    const NAME: &str = "a_goroutine_that_was_accepted_waits_where_none_has_a_stack";
    if !child::is_child() {
        // With this knob other threads than the runtime's do not count, so that the watch for deadlocks looks at the
        // goroutines.
        let told = child::passes(NAME, &[("GMPDEBUG", "deadlock=always")]);
        let times = |what: &str| told.matches(what).count();
        let rounds = times(ACCEPTED);
        assert_eq!(times("a goroutine waits for its stack"), rounds, "{told}");
        // The crate panics at its first refusal, for either goroutine.
        assert!(times("panicked at") <= 2 * rounds, "{told}");
        return;
    }
    /// No slot is larger, so the rest of the process asks for less.
    const LARGE: usize = 64 << 20;
    /// Time for some looks for stacks.
    const WHILE: Duration = Duration::from_millis(500);
    for procs in common::PROCS {
        watched(procs, || {
            // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
            let rt = unsafe { Runtime::builder().procs(procs).stack_size(LARGE).build() }.unwrap();
            // Waits until the runtime's threads are there.
            until_asleep_but(0);
            limit_address_space(Some(LARGE / 2));
            let accepted = Builder::new().go_in(&rt.handle(), || 1);
            let Ok(mut accepted) = accepted.inspect_err(|refused| assert_eq!(refused.kind(), OutOfMemory))
            else {
                limit_address_space(None);
                return;
            };
            eprintln!("{ACCEPTED}");
            thread::scope(|scope| {
                scope.spawn(|| {
                    assert!(accepted.join_timeout(WHILE).is_none(), "there was a stack");
                    limit_address_space(None);
                    assert_eq!(accepted.join().unwrap(), 1);
                });
                assert_eq!(rt.run(|| 2), 2);
            });
            let (so_far, handle) = (rt.refused(), rt.handle());
            assert!(so_far.stacks() > 0 && handle.refused().stacks() >= so_far.stacks());
            assert!(rt.shutdown(WHILE).refused().stacks() >= so_far.stacks());
            assert!(handle.refused().is_empty());
        });
    }
}

/// A line of the child, once a round.
const ACCEPTED: &str = "the goroutine was accepted";

/// Allows the process `more` bytes of address space, or as many as it may have.
fn limit_address_space(more: Option<usize>) {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let now = pages.split(' ').next().unwrap().parse::<usize>().unwrap() * 4096;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limits of this process alone.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_AS, &mut limit), 0);
        limit.rlim_cur = more.map_or(limit.rlim_max, |more| (now + more) as u64);
        assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &limit), 0);
    }
}
