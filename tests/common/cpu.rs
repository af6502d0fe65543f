//! CPU time, which does not pass while others have the cores; and the CPUs of a thread.

use std::time::Duration;

/// Returns how long the calling thread has run.
pub fn thread_time() -> Duration {
    time_of(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns how long the threads of the process have run, all together.
pub fn process_time() -> Duration {
    time_of(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Returns how long the calling thread runs in `f`.
pub fn cost(f: impl FnOnce()) -> Duration {
    let before = thread_time();
    f();
    thread_time() - before
}

fn time_of(clock: libc::clockid_t) -> Duration {
    // SAFETY: one valid `timespec`, written.
    unsafe {
        let mut spent: libc::timespec = std::mem::zeroed();
        assert_eq!(libc::clock_gettime(clock, &raw mut spent), 0);
        Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
    }
}

/// Returns the CPUs on which the calling thread may run.
#[inline(never)]
pub fn cpus() -> Vec<usize> {
    // SAFETY: a set of plain numbers, which the call fills, and numbers below its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &raw mut set), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

/// Sets the CPUs on which the calling thread may run, as the program's own code may.
#[inline(never)]
pub fn confine(cpus: &[usize]) {
    // SAFETY: a set of plain numbers, which the call reads, and numbers below its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.iter().for_each(|&cpu| libc::CPU_SET(cpu, &mut set));
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &raw const set), 0);
    }
}
