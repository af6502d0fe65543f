//! `membarrier`: a full barrier on every running thread of the process, asked for by one of them.
//!
//! With `membarrier` a plain store and a load are enough on the side that runs often (`m/mod.rs`). A process registers once for
//! the expedited form (Linux 4.14), which interrupts only the CPUs that run the process's threads. A sandbox may refuse
//! `membarrier`, from the beginning or from any moment on: from then on each M that acquires a P enters behind fences. A
//! retaker still tries `membarrier` for an M that has held its P since before.
//!
//! *When `membarrier` is refused*, Ms that count on it already need a substitute: a thread that is switched out passes a full
//! barrier. So a visitor that has run on each CPU on which an M's thread may run has had that thread switched out, or has found
//! it not running.
//!
//! A visit may take for ever: threads of a real-time class may keep a CPU for which the visitor waits. The visitor can't leave
//! such a CPU out, as the M's thread may be the one that keeps the CPU, or may run there whenever it gets the CPU. So the
//! visitor is a thread of its own, for which the monitor waits up to a limit; after that there is no barrier, as if the visit
//! was refused. There is one visitor at a time: while it waits for a CPU no other visitor sets out, and no retaker waits.

use super::affinity;
use super::thread::spawn;
use crate::runtime::cpu_sets::{CPUS, CpuSet};
use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering, Ordering::Relaxed, fence};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

fn membarrier(command: libc::c_int) -> io::Result<()> {
    // SAFETY: takes no pointers.
    match unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The process is registered, and no barrier was refused so far.
static EXISTS: AtomicBool = AtomicBool::new(false);

/// Registers the process, before the first M of the process enters a window.
pub(crate) fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let registered = membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED).is_ok();
        // Relaxed: as in `exists`; `Once` orders the store for later calls.
        EXISTS.store(registered, Relaxed);
    });
}

/// Returns `true` if `membarrier` works in this process, as far as is known.
#[inline]
pub(crate) fn exists() -> bool {
    // Relaxed: an M that reads an old answer notes that answer in the hand-off word.
    EXISTS.load(Relaxed)
}

/// Makes all threads pass a full barrier.
pub(crate) fn heavy() -> io::Result<()> {
    // Relaxed: as in `exists`.
    membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED).inspect_err(|_| EXISTS.store(false, Relaxed))
}

/// Makes the calling thread pass a full fence, and all other running threads of the process a barrier. Returns `false` if the
/// kernel refuses the barrier. For a lock, for which a thread may sleep before the process has a runtime; the next retaker
/// finds and reports the refusal.
pub(crate) fn pass_by_all() -> bool {
    register();
    let passed = membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED).is_ok();
    // SeqCst: the caller's fence, even if the kernel has made none; the caller names its partner.
    fence(Ordering::SeqCst);
    passed
}

/// How long a visit to all CPUs may take. If each CPU is busy with threads of the visitor's class, the kernel makes the visitor
/// wait for some milliseconds at each.
const VISIT_LIMIT: Duration = Duration::from_millis(500);

/// Makes `thread` and the caller pass a full barrier, by a visit to each CPU on which `thread` may run. Returns `false` if the
/// kernel does not let a thread of the process go to one of these CPUs, or the visitor does not arrive in time.
///
/// If `thread`'s set of CPUs changes meanwhile, or it moves to another CPU, that is a switch as well.
pub(crate) fn visit_cpus_of(thread: u32) -> bool {
    static VISITS: Visits = Visits::new();
    let visit = move || affinity::get(thread).is_ok_and(|cpus| visit(&cpus, |_| ()));
    // SeqCst: orders what the caller did before; partner the switch of `thread` on its last CPU.
    fence(Ordering::SeqCst);
    let passed = VISITS.within(VISIT_LIMIT, visit);
    // SeqCst: orders what the caller does later; the same partner.
    fence(Ordering::SeqCst);
    passed
}

/// One visit at a time, each by a thread of its own.
struct Visits {
    under_way: AtomicBool,
}

impl Visits {
    const fn new() -> Self {
        Visits { under_way: AtomicBool::new(false) }
    }

    /// Returns what `visit` returns; `false` if that is not known within `limit`, if the last visitor has not come back, or
    /// if no thread can be started.
    fn within(&'static self, limit: Duration, visit: impl FnOnce() -> bool + Send + 'static) -> bool {
        // Relaxed, here and below: the flag publishes nothing.
        if self.under_way.swap(true, Relaxed) {
            return false;
        }
        let (tell, hear) = sync_channel(1);
        let visitor = move || {
            let passed = visit();
            // Before the answer is sent: a caller that has the answer may ask for the next visit at once.
            self.under_way.store(false, Relaxed);
            // The caller no longer listens after the limit.
            let _heard = tell.send(passed);
        };
        if spawn("gmp-visitor", None, visitor).is_err() {
            self.under_way.store(false, Relaxed);
            return false;
        }
        hear.recv_timeout(limit).unwrap_or(false)
    }
}

/// Runs the calling thread on each of these CPUs, and calls `there` on each. The thread stays on the last one.
/// Returns `false` if the thread may not run on one of them.
fn visit(cpus: &CpuSet, mut there: impl FnMut(usize)) -> bool {
    (0..CPUS).filter(|&cpu| cpus.has(cpu)).all(|cpu| {
        let mut one = CpuSet::EMPTY;
        one.add(cpu);
        // `set` returns when the calling thread runs on that CPU.
        let arrived = affinity::set(0, &one).is_ok();
        if arrived {
            there(cpu);
        }
        arrived
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_works_here_or_says_that_it_does_not() {
        register();
        assert_eq!(heavy().is_ok(), exists());
    }

    /// Fails where the visitor does not run on a CPU that it has visited, or passes one over, or where the caller's
    /// CPUs change.
    #[test]
    fn each_cpu_is_visited() {
        let own = affinity::get(0).unwrap();
        let visitor = std::thread::spawn(move || {
            let mut visited = Vec::new();
            assert!(visit(&own, |cpu| {
                // SAFETY: sched_getcpu has no preconditions.
                assert_eq!(unsafe { libc::sched_getcpu() }, cpu as libc::c_int);
                visited.push(cpu);
            }));
            visited
        });
        let visited = visitor.join().unwrap();
        assert!(visited.into_iter().eq((0..CPUS).filter(|&cpu| own.has(cpu))));
        assert!(visit_cpus_of(std::process::id()));
        assert_eq!(own, affinity::get(0).unwrap());
    }

    /// A visitor that a CPU does not let run waits as long as that lasts. Fails by a hang where the caller waits as
    /// long; fails where another visit begins meanwhile, or none can begin afterwards.
    #[test]
    fn a_visit_that_does_not_end_is_given_up() {
        static VISITS: Visits = Visits::new();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let stands_in_line = move || {
            ended.recv().unwrap();
            true
        };
        assert!(!VISITS.within(Duration::from_millis(1), stands_in_line));
        assert!(!VISITS.within(VISIT_LIMIT, || unreachable!("another visit is under way")));
        end.send(()).unwrap();
        while !VISITS.within(VISIT_LIMIT, || true) {
            std::thread::yield_now();
        }
        assert!(!VISITS.within(VISIT_LIMIT, || false));
    }

    #[test]
    fn a_cpu_that_is_not_there_is_not_visited() {
        let mut none = CpuSet::EMPTY;
        none.add(CPUS - 1);
        assert!(!visit(&none, |cpu| unreachable!("on CPU {cpu}")));
        assert!(!visit_cpus_of(u32::MAX >> 1), "of a thread that is not there");
    }
}
