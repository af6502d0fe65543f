//! Time that does not pass while others have the cores.

use std::time::Duration;

/// How long the calling thread has run.
pub fn thread_time() -> Duration {
    time_of(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// How long the threads of the process have run, all together.
pub fn process_time() -> Duration {
    time_of(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn time_of(clock: libc::clockid_t) -> Duration {
    // SAFETY: one valid `timespec`, written.
    unsafe {
        let mut spent: libc::timespec = std::mem::zeroed();
        assert_eq!(libc::clock_gettime(clock, &raw mut spent), 0);
        Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
    }
}
