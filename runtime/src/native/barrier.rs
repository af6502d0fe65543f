//! `membarrier`: a full barrier on every running thread of the process, asked for by one of them.
//!
//! It makes a plain store and a load enough on the side that runs all the time (`m.rs`). A process registers once for the
//! expedited form (Linux 4.14), which interrupts only the CPUs that run its threads. Sandboxes may refuse it, from the
//! beginning or from any moment on; then it is not tried again.
//!
//! What takes its place for threads that count on it already: a thread that is switched out passes a full barrier. So a thread
//! that visits each CPU on which another may run has had that one switched out, or found it not running.

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn membarrier(command: libc::c_int) -> io::Result<()> {
    // SAFETY: takes no pointers.
    match unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The process is registered, and no barrier was refused.
static EXISTS: AtomicBool = AtomicBool::new(false);

/// Registers the process, before its first M enters a window.
pub(crate) fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let registered = membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED).is_ok();
        // Relaxed: as in `exists`; `Once` tells whoever comes later.
        EXISTS.store(registered, Relaxed);
    });
}

/// Whether the kernel has it for us, as far as is known.
#[inline]
pub(crate) fn exists() -> bool {
    // Relaxed: an M that reads an old answer says so in the hand-off word.
    EXISTS.load(Relaxed)
}

/// Has all threads pass a full barrier.
pub(crate) fn heavy() -> io::Result<()> {
    // Relaxed: as in `exists`.
    membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED).inspect_err(|_| EXISTS.store(false, Relaxed))
}

/// Has `thread` pass a full barrier, by a visit to each CPU on which it may run. False: the kernel does not let the caller go
/// there. The caller comes back to the CPUs that it may run on now.
///
/// A change of that thread's CPUs meanwhile, or of the CPU that it runs on, is a switch as well.
pub(crate) fn visit_cpus_of(thread: u32) -> bool {
    let (Ok(own), Ok(others)) = (affinity(0), affinity(thread as libc::pid_t)) else { return false };
    let all_seen = (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the number is below the set's size.
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &others) })
        .all(|cpu| {
            // SAFETY: a set of bits, for which zeros are no CPU.
            let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
            // SAFETY: as above.
            unsafe { libc::CPU_SET(cpu, &mut one) };
            // The calling thread runs there when this returns.
            set_affinity(&one)
        });
    // What it was is allowed again; if it is not, the program has meanwhile said something else.
    let _restored = set_affinity(&own);
    all_seen
}

fn affinity(thread: libc::pid_t) -> io::Result<libc::cpu_set_t> {
    // SAFETY: as above.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: it writes the set that we pass.
    match unsafe { libc::sched_getaffinity(thread, size_of_val(&set), &mut set) } {
        0 => Ok(set),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The calling thread's.
fn set_affinity(set: &libc::cpu_set_t) -> bool {
    // SAFETY: it reads the set that we pass.
    unsafe { libc::sched_setaffinity(0, size_of_val(set), set) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;

    #[test]
    fn it_works_here_or_says_that_it_does_not() {
        register();
        assert_eq!(heavy().is_ok(), exists());
    }

    /// Fails where a thread that only computes is not switched out, or the visitor stays where it came last.
    #[test]
    fn a_thread_that_computes_is_switched_out_by_visits() {
        let (over, (say, hear)) = (AtomicBool::new(false), channel());
        thread::scope(|s| {
            s.spawn(|| {
                // SAFETY: gettid has no preconditions.
                say.send(unsafe { libc::gettid() }).unwrap();
                while !over.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let thread = hear.recv().unwrap();
            let switches = || -> u64 {
                let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
                let counts = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
                counts.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum()
            };
            let mine = affinity(0).unwrap();
            for _ in 0..20 {
                let before = switches();
                assert!(visit_cpus_of(thread as u32));
                assert!(switches() > before);
            }
            // SAFETY: two sets.
            assert!(unsafe { libc::CPU_EQUAL(&mine, &affinity(0).unwrap()) });
            over.store(true, Relaxed);
        });
        assert!(!visit_cpus_of(u32::MAX >> 1), "of a thread that is not there");
    }
}
