//! What a thread of this process is doing, as another one sees it.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

/// The kernel's number of the calling thread.
pub(crate) fn number() -> u32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() as u32 }
}

/// How long a thread of this process has been on a CPU.
pub(crate) fn cpu_time(thread: u32) -> Option<Duration> {
    // The clock of a thread, as the kernel numbers them: the complement of the thread's number over three bits, which say
    // that it is one thread's (4) and counts what the scheduler counts (2).
    let clock = (!thread << 3 | 0b110) as libc::clockid_t;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    Some(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Whether a thread of this process waits for something in the kernel. One that waits only for a CPU does not.
pub(crate) fn is_blocked(thread: u32) -> bool {
    let mut text = [0; 512];
    // "running", or the number of the system call and its arguments, or -1 for a wait elsewhere: in a page fault.
    if let Some(said) = read(thread, "syscall", &mut text) {
        return !said.starts_with(b"running");
    }
    // The state is what follows the name, which is in parentheses and may contain some.
    let Some(said) = read(thread, "stat", &mut text) else { return false };
    let after_name = said.iter().rposition(|&byte| byte == b')').and_then(|at| said.get(at + 2));
    matches!(after_name, Some(b'S' | b'D'))
}

fn read<'a>(thread: u32, what: &str, into: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut file = File::open(format!("/proc/self/task/{thread}/{what}")).ok()?;
    let len = file.read(into).ok()?;
    Some(&into[..len])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::mpsc::channel;
    use std::thread;

    /// Until it is so: the test's own thread may be ahead of what it looks at.
    fn until(what: impl Fn() -> bool) {
        while !what() {
            thread::yield_now();
        }
    }

    #[test]
    fn a_thread_that_waits_is_blocked_and_uses_no_cpu() {
        let (say, hear) = channel();
        let (end, ended) = channel::<()>();
        let waits = thread::spawn(move || {
            say.send(number()).unwrap();
            ended.recv().unwrap_err();
        });
        let thread = hear.recv().unwrap();
        until(|| is_blocked(thread));
        let before = cpu_time(thread).unwrap();
        assert_eq!(cpu_time(thread).unwrap(), before);
        drop(end);
        waits.join().unwrap();
    }

    #[test]
    fn threads_that_run_or_would_run_are_not_blocked() {
        let end = AtomicBool::new(false);
        thread::scope(|s| {
            // More than there are CPUs, so that some of them only would.
            for _ in 0..2 * thread::available_parallelism().unwrap().get() {
                let (say, hear) = channel();
                s.spawn(|| {
                    let say = say;
                    say.send(number()).unwrap();
                    drop(say);
                    while !end.load(Relaxed) {
                        hint::spin_loop();
                    }
                });
                let thread = hear.recv().unwrap();
                // Disconnected when it has begun to spin.
                hear.recv().unwrap_err();
                let before = cpu_time(thread).unwrap();
                for _ in 0..100 {
                    assert!(!is_blocked(thread));
                }
                until(|| cpu_time(thread).unwrap() > before);
            }
            end.store(true, Relaxed);
        });
    }

    #[test]
    fn of_a_thread_that_is_not_there_nothing_is_known() {
        let gone = thread::spawn(number).join().unwrap();
        until(|| cpu_time(gone).is_none());
        assert!(!is_blocked(gone));
    }
}
