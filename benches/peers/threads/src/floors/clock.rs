//! The monotonic clock in nanoseconds, and sleeps until a time of it: one system call each, without a look before it.

pub const MS: u64 = 1_000_000;

pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the struct.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub fn sleep_until(due: u64) {
    let time = libc::timespec { tv_sec: (due / 1_000_000_000) as i64, tv_nsec: (due % 1_000_000_000) as i64 };
    // SAFETY: the call reads the struct.
    let done = unsafe {
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &time, std::ptr::null_mut())
    };
    assert_eq!(done, 0, "clock_nanosleep");
}

/// A sleep where it is longer than what a sleep costs; else looks.
pub fn wait_until(due: u64) {
    const SHORT: u64 = 20_000;
    if due > now() + SHORT {
        sleep_until(due);
    }
    while now() < due {
        std::hint::spin_loop();
    }
}
