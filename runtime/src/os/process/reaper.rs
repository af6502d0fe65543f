//! The reaper: a thread that waits for the children whose [`Child`](super::Child) was dropped before they had ended.
//!
//! The thread is started with the first such child, and ends with the last one. The thread waits in `poll(2)` for the
//! children's pidfds, and for an eventfd by which a dropper announces another child. A child without a pidfd gets a thread of
//! its own.
//!
//! A pidfd that is readable stays so, but the status may not be there yet: a tracer keeps the child until it lets go. The
//! reaper then looks again after a pause, and no longer waits for that pidfd, since the wait would end at once, over and over.
//! The reaper forgets a child whose status other code has taken. If the kernel refuses `poll(2)`, the reaper looks at all
//! children after each pause.
//!
//! If no thread can be started for a child, the child stays a zombie after its end; a message says so, once. If the child has a
//! pidfd, it stays in the list, and the next child that is dropped starts the reaper for both.

use super::child::Process;
use super::outcome::Outcome;
use crate::host::{Active, Threads};
use crate::net::sys;
use gmp_netpoll::ProcessMark;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

/// The milliseconds from one look at children to the next, if the status of one is late, or the wait for them is refused.
const PAUSE: libc::c_int = 500;

/// A small stack, for a thread that waits.
const STACK: Option<usize> = Some(64 << 10);

/// A child that was dropped.
struct Orphan {
    outcome: Outcome,
    ends: OwnedFd,
    /// Whether the pidfd has reported the end, but there was no status.
    late: bool,
}

impl Orphan {
    /// Returns `true` while a status may still come.
    fn is_owed(&mut self) -> bool {
        matches!(self.outcome.ask(Some(self.ends.as_fd())), Ok(None))
    }
}

/// The children that the thread has not taken over yet, and the bell by which it learns of them.
struct Orphans {
    new: Vec<Orphan>,
    /// `None` while there is no thread.
    bell: Option<OwnedFd>,
}

impl Orphans {
    const NONE: Orphans = Orphans { new: Vec::new(), bell: None };
}

static ORPHANS: Mutex<Orphans> = Mutex::new(Orphans::NONE);
/// The process that has the thread.
static REAPER: ProcessMark = ProcessMark::none();

fn orphans() -> MutexGuard<'static, Orphans> {
    // No code panics under this lock.
    ORPHANS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a thread wait for `process`.
pub(super) fn adopt(process: Process) {
    let mut outcome = process.outcome;
    let Ok(ends) = process.ends else {
        if let Err(refused) = Active::spawn("gmp-reap-one", STACK, move || drop(outcome.wait(None))) {
            tell(&refused);
        }
        return;
    };
    // Not under the lock: this takes the descriptor out of its pollers, and may drop the last reference to a runtime.
    let ends = ends.into_inner();
    let mut orphans = orphans();
    // The thread, the bell and the children in the list are the parent's.
    if !REAPER.is_of_this_process() {
        *orphans = Orphans::NONE;
        REAPER.renew();
    }
    orphans.new.push(Orphan { outcome, ends, late: false });
    match &orphans.bell {
        Some(bell) => sys::signal(bell.as_raw_fd()),
        None => match start() {
            Ok(bell) => orphans.bell = Some(bell),
            Err(refused) => {
                drop(orphans);
                tell(&refused);
            }
        },
    }
}

/// Starts the reaper, and returns its eventfd.
fn start() -> io::Result<OwnedFd> {
    let bell = sys::eventfd()?;
    let rings = bell.as_raw_fd();
    Active::spawn("gmp-reaper", STACK, move || reap(rings))?;
    Ok(bell)
}

/// Says, once in the process, that there are children for which no thread waits.
#[cold]
fn tell(refused: &io::Error) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        let text = "gmp: no thread can be started that waits for dropped child processes: they stay zombies";
        // There is no place to report a failure of this write.
        let _unheard = writeln!(io::stderr(), "{text}: {refused}");
    });
}

/// Waits for all orphans; `bell` is open until this function returns.
fn reap(bell: i32) {
    let mut waiting = Vec::new();
    loop {
        let mut orphans = orphans();
        waiting.append(&mut orphans.new);
        if waiting.is_empty() {
            // Under the lock: a caller that comes later finds no bell, and starts another thread.
            orphans.bell = None;
            return;
        }
        drop(orphans);
        // poll(2) passes over negative numbers.
        let watched = |orphan: &Orphan| if orphan.late { -1 } else { orphan.ends.as_raw_fd() };
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut entries: Vec<_> = waiting.iter().map(|orphan| entry(watched(orphan))).collect();
        entries.push(entry(bell));
        let limit = if waiting.iter().any(|orphan| orphan.late) { PAUSE } else { -1 };
        // SAFETY: the entries live through the call.
        let polled = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, limit) };
        let is_refused = polled < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted;
        if is_refused {
            // The kernel has no memory for the wait, or allows fewer descriptors than there are (RLIMIT_NOFILE). A wait for one
            // of the children alone may take for ever.
            std::thread::sleep(Duration::from_millis(PAUSE as u64));
        }
        // After EINTR or a refusal each `revents` is zero.
        for (orphan, entry) in waiting.iter_mut().zip(&entries) {
            orphan.late |= entry.revents != 0;
        }
        // Only children whose end was reported are asked, since each question is a system call. Those whose status is not there
        // yet stay.
        waiting.retain_mut(|orphan| {
            let asks = orphan.late || is_refused;
            !asks || orphan.is_owed()
        });
        sys::drain(bell);
    }
}
