//! `membarrier`: a full barrier on every running thread of the process, asked for by one of them.
//!
//! It makes a plain store and a load enough on the side that runs all the time (`m.rs`). A process registers once for the
//! expedited form (Linux 4.14), which interrupts only the CPUs that run its threads. Sandboxes may refuse it, from the
//! beginning or from any moment on: from then on each M that acquires a P enters behind fences. A retaker still tries it for
//! an M that has held its P since before.
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
    affinity(thread as libc::pid_t).is_ok_and(|cpus| visit(&cpus, |_| ()))
}

/// Runs the calling thread on each of these CPUs, and calls `there` on it. False: it may not run on one of them.
fn visit(cpus: &libc::cpu_set_t, mut there: impl FnMut(usize)) -> bool {
    let Ok(own) = affinity(0) else { return false };
    let all_seen = (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the number is below the set's size.
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, cpus) })
        .all(|cpu| {
            // SAFETY: a set of bits, for which zeros are no CPU.
            let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
            // SAFETY: as above.
            unsafe { libc::CPU_SET(cpu, &mut one) };
            // The calling thread runs there when this returns.
            let arrived = set_affinity(&one);
            if arrived {
                there(cpu);
            }
            arrived
        });
    // Refused only if those CPUs are not the process's any more: then the kernel has chosen others.
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

    #[test]
    fn it_works_here_or_says_that_it_does_not() {
        register();
        assert_eq!(heavy().is_ok(), exists());
    }

    /// Fails where the visitor does not run on a CPU that it has visited, passes one over, or stays where it came last.
    #[test]
    fn each_cpu_is_visited_and_left() {
        let own = affinity(0).unwrap();
        let mut visited = Vec::new();
        assert!(visit(&own, |cpu| {
            // SAFETY: sched_getcpu has no preconditions.
            assert_eq!(unsafe { libc::sched_getcpu() }, cpu as libc::c_int);
            visited.push(cpu);
        }));
        // SAFETY: a set, and numbers below its size.
        assert_eq!(visited.len(), unsafe { libc::CPU_COUNT(&own) } as usize);
        // SAFETY: as above.
        assert!(visited.iter().all(|&cpu| unsafe { libc::CPU_ISSET(cpu, &own) }));
        // SAFETY: two sets.
        assert!(unsafe { libc::CPU_EQUAL(&own, &affinity(0).unwrap()) });
    }

    #[test]
    fn a_cpu_that_is_not_there_is_not_visited() {
        // SAFETY: a set of bits, for which zeros are no CPU.
        let mut none: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        let last = libc::CPU_SETSIZE as usize - 1;
        // SAFETY: the number is below the set's size.
        unsafe { libc::CPU_SET(last, &mut none) };
        assert!(!visit(&none, |cpu| unreachable!("on CPU {cpu}")));
        assert!(!visit_cpus_of(u32::MAX >> 1), "of a thread that is not there");
    }
}
