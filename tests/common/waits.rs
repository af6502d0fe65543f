//! Whether a member of a crew waits.

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
