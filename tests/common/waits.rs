//! Whether a member of a crew, or every thread, waits.

use crate::crew::Member;
use crate::{dumps, until};
use std::fs;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

/// A thread that sleeps for, say, a lock of the allocator is awake again before so many looks, which take a while.
const LOOKS: usize = 5;
const BETWEEN_LOOKS: Duration = Duration::from_micros(50);

impl<T> Member<'_, T> {
    /// Waits until this member waits, or has ended: a short limit may pass before the wait is seen. The member must have just
    /// one wait ahead, and what it waits for must not come.
    pub fn until_it_waits(&self) {
        match self {
            Member::Goroutine(rt, handle) => {
                let id = handle.id().get();
                let awake = |state: &str| state.starts_with("running") || state.starts_with("runnable");
                until(|| {
                    handle.is_finished() || dumps::read(&rt.dump()).iter().any(|g| g.0 == id && !awake(g.1))
                });
            }
            Member::Thread(id, handle) => {
                until(|| {
                    if handle.is_finished() {
                        return true;
                    }
                    let first = asleep(id.load(SeqCst));
                    let still = || {
                        thread::sleep(BETWEEN_LOOKS);
                        asleep(id.load(SeqCst)) == first
                    };
                    first.is_some() && (1..LOOKS).all(|_| still())
                });
            }
        }
    }
}

/// Returns how often this thread has gone to sleep, if it sleeps.
fn asleep(thread: i32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?;
    let sleeps = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches:"))?;
    status.contains("\nState:\tS").then(|| sleeps.to_owned())
}

/// Returns `true` if all threads but the calling one wait for a futex: none is in the poller, about to run, or at its very
/// beginning. It may never be true under ThreadSanitizer, which has a thread of its own, and under an emulator.
pub fn other_threads_sleep() -> bool {
    // SAFETY: gettid has no preconditions.
    let own = unsafe { libc::gettid() }.to_string();
    let futex = format!("{} ", libc::SYS_futex);
    let sleeps = |task: std::io::Result<fs::DirEntry>| {
        let task = task.expect("a thread");
        // A thread that has ended counts as asleep.
        task.file_name().to_str() == Some(&own)
            || fs::read_to_string(task.path().join("syscall")).map_or(true, |says| says.starts_with(&futex))
    };
    fs::read_dir("/proc/self/task").expect("/proc is mounted").all(sleeps)
}
