//! The reaper: a thread that waits for the children whose [`Child`](super::Child) was dropped before they had ended.
//!
//! The thread is started with the first such child, and ends with the last one. It waits in `poll(2)` for their pidfds, and for
//! an eventfd by which a dropper announces another child. A child without a pidfd gets a thread of its own.
//!
//! A pidfd stays readable, and the status may not be there yet: a tracer has the child until it lets go. The reaper looks again
//! after a pause then, and does not wait for that pidfd any more, as its wait would end at once, over and over. A child whose
//! status other code has taken is forgotten.
//!
//! A child whose thread can't be started stays a zombie after its end; the operator is told once. If it has a pidfd, it stays
//! in the list, and the next child that is dropped has the reaper started again, for both.

use super::child::Process;
use super::outcome::Outcome;
use crate::host::{Active, Threads};
use crate::net::sys;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// The milliseconds from one look at children whose status is late to the next.
const PAUSE: libc::c_int = 500;

/// A child that was dropped.
struct Orphan {
    outcome: Outcome,
    ends: OwnedFd,
    /// Whether the pidfd has told of the end, and there was no status.
    late: bool,
}

impl Orphan {
    /// Returns `true` while there may be a status to come.
    fn is_owed(&mut self) -> bool {
        matches!(self.outcome.ask(Some(self.ends.as_fd())), Ok(None))
    }
}

/// The children that the thread has not taken over yet, and how it is told of them.
struct Orphans {
    new: Vec<Orphan>,
    /// `None` while there is no thread.
    bell: Option<OwnedFd>,
}

static ORPHANS: Mutex<Orphans> = Mutex::new(Orphans { new: Vec::new(), bell: None });

fn orphans() -> MutexGuard<'static, Orphans> {
    // Nothing panics under it.
    ORPHANS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has a thread wait for `process`.
pub(super) fn adopt(process: Process) {
    let mut outcome = process.outcome;
    let Ok(ends) = process.ends else {
        if let Err(refused) = spawn("gmp-reap-one", move || drop(outcome.wait(None))) {
            tell(&refused);
        }
        return;
    };
    let mut orphans = orphans();
    orphans.new.push(Orphan { outcome, ends: ends.into_inner(), late: false });
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
    spawn("gmp-reaper", move || reap(rings))?;
    Ok(bell)
}

/// Says, once in the process, that there are children for which no call waits.
#[cold]
fn tell(refused: &io::Error) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        let text = "gmp: no thread can be started that waits for dropped child processes: they stay zombies";
        // A failure of this write can't be told anywhere.
        let _unheard = writeln!(io::stderr(), "{text}: {refused}");
    });
}

/// Starts a thread with a small stack.
fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let (builder, announced) = Active::announce(name, Some(64 << 10))?;
    let _goes_on = builder.spawn(move || {
        drop(announced);
        body();
    })?;
    Ok(())
}

/// Waits for all orphans; `bell` is open until this ends.
fn reap(bell: i32) {
    let mut waiting = Vec::new();
    loop {
        let mut orphans = orphans();
        waiting.append(&mut orphans.new);
        waiting.retain_mut(Orphan::is_owed);
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
        if polled > 0 {
            // The next look finds the status of each that has told of its end, or the status is late.
            for (orphan, entry) in waiting.iter_mut().zip(&entries) {
                orphan.late |= entry.revents != 0;
            }
        } else if polled < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            // The kernel has no memory for it, or allows fewer descriptors than there are: one after the other.
            let Orphan { mut outcome, ends, .. } = waiting.swap_remove(0);
            let _status = outcome.wait(Some(ends.as_fd()));
        }
        sys::drain(bell);
    }
}
