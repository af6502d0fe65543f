//! The number of Ps follows the machine until the program sets it.

use common::child;
use common::descriptors::all_descriptors;
use common::runtime;
use gmp::Runtime;
use gmp::time::sleep;
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// Returns the CPUs that the calling thread may use.
fn affinity() -> libc::cpu_set_t {
    // SAFETY: a set of plain numbers, filled by the call.
    unsafe {
        let mut set = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set), 0);
        set
    }
}

/// Confines all threads of the process, as `taskset --all-tasks` does.
fn confine(set: &libc::cpu_set_t) {
    confine_these(&threads(), set);
}

/// Returns all threads of the process.
fn threads() -> Vec<libc::pid_t> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc is mounted");
    tasks.map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
}

fn confine_these(threads: &[libc::pid_t], set: &libc::cpu_set_t) {
    for &id in threads {
        // SAFETY: `set` is a valid set. For a thread that has ended meanwhile the call fails, and nothing is lost.
        unsafe { libc::sched_setaffinity(id, size_of::<libc::cpu_set_t>(), set) };
    }
}

/// Returns a set with only the first CPU of `set`.
fn one_of(set: &libc::cpu_set_t) -> libc::cpu_set_t {
    // SAFETY: sets of plain numbers, and numbers below their size.
    unsafe {
        let first = (0..libc::CPU_SETSIZE as usize).find(|&cpu| libc::CPU_ISSET(cpu, set));
        let mut one = std::mem::zeroed();
        libc::CPU_SET(first.expect("there is a CPU"), &mut one);
        one
    }
}

/// Keeps the runtime awake until it has `procs` Ps, and returns `true`; or `false` if that takes longer than `limit`.
fn becomes(rt: &Runtime, procs: usize, limit: Duration) -> bool {
    let start = Instant::now();
    rt.run(|| {
        while gmp::procs() != procs {
            if start.elapsed() > limit {
                return false;
            }
            sleep(5 * MS);
        }
        true
    })
}

const SOME_SECONDS: Duration = Duration::from_secs(20);

/// Fails by time when the runtime keeps the number with which it began.
#[test]
fn the_number_follows_the_machine() {
    const TEST: &str = "the_number_follows_the_machine";
    if !child::is_child() {
        return drop(child::passes(TEST, &[]));
    }
    let all = affinity();
    let cpus = thread::available_parallelism().unwrap().get();
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let rt = unsafe { Runtime::builder().build() }.unwrap();
    assert_eq!(rt.procs(), cpus);
    for _ in 0..2 {
        confine(&one_of(&all));
        assert!(becomes(&rt, 1, SOME_SECONDS), "still {}", rt.procs());
        confine(&all);
        assert!(becomes(&rt, cpus, SOME_SECONDS), "still {}", rt.procs());
    }
}

/// Fails when the number rises while the quotas of the process can't be read: the process may have one CPU of many.
#[test]
fn the_number_does_not_rise_without_a_descriptor() {
    const TEST: &str = "the_number_does_not_rise_without_a_descriptor";
    if !child::is_child() {
        return drop(child::passes(TEST, &[]));
    }
    let all = affinity();
    let cpus = thread::available_parallelism().unwrap().get();
    // SAFETY: as above.
    let rt = unsafe { Runtime::builder().build() }.unwrap();
    // These changes start all threads that the runtime needs; from here on no thread needs a descriptor.
    confine(&one_of(&all));
    assert!(becomes(&rt, 1, SOME_SECONDS), "still {}", rt.procs());
    confine(&all);
    assert!(becomes(&rt, cpus, SOME_SECONDS), "still {}", rt.procs());
    let threads = threads();
    let full = all_descriptors();
    // The number falls all the same: the affinity is known without a descriptor.
    confine_these(&threads, &one_of(&all));
    assert!(becomes(&rt, 1, SOME_SECONDS), "still {}", rt.procs());
    confine_these(&threads, &all);
    if cpus > 1 {
        assert!(!becomes(&rt, cpus, Duration::from_millis(2500)), "it rose");
    }
    drop(full);
    assert!(becomes(&rt, cpus, SOME_SECONDS), "still {}", rt.procs());
}

/// Fails when the machine changes the number although the user has set it: by the builder, by the environment, by a call.
#[test]
fn a_number_that_was_set_by_hand_does_not_follow_the_machine() {
    const TEST: &str = "a_number_that_was_set_by_hand_does_not_follow_the_machine";
    if !child::is_child() {
        return drop(child::passes(TEST, &[("GMPMAXPROCS", "3")]));
    }
    let set_by_call = || {
        let rt = runtime(2);
        rt.set_procs(3);
        rt
    };
    // SAFETY: as above.
    let from_environment = || unsafe { Runtime::builder().build() }.unwrap();
    let runtimes = [runtime(3), from_environment(), set_by_call()];
    confine(&one_of(&affinity()));
    for rt in runtimes {
        assert_eq!(rt.procs(), 3);
        assert!(!becomes(&rt, 1, Duration::from_millis(2500)), "it followed");
        assert_eq!(rt.procs(), 3);
    }
}

/// Fails when a runtime goes on to follow the machine after a call has set the number.
#[test]
fn a_call_ends_the_following() {
    const TEST: &str = "a_call_ends_the_following";
    if !child::is_child() {
        return drop(child::passes(TEST, &[]));
    }
    // SAFETY: as above.
    let rt = unsafe { Runtime::builder().build() }.unwrap();
    let now = rt.procs();
    rt.set_procs(now + 1);
    confine(&one_of(&affinity()));
    assert!(!becomes(&rt, 1, Duration::from_millis(2500)), "it followed");
    assert_eq!(rt.procs(), now + 1);
}
