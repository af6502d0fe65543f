//! The reaper: a thread that waits for the children whose [`Child`](super::Child) was dropped before they had ended.
//!
//! The thread is started with the first such child, and ends with the last one. It waits in `poll(2)` for their pidfds, and for
//! an eventfd by which a dropper announces another child. A child without a pidfd gets a thread of its own.
//!
//! A child whose thread can't be started stays a zombie after its end; the operator is told once. If it has a pidfd, it stays
//! in the list, and the next child that is dropped has the reaper started again, for both.

use super::child::Process;
use crate::net::sys;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;

/// The children that the thread has not taken over yet, and how it is told of them.
struct Orphans {
    new: Vec<(process::Child, OwnedFd)>,
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
    let mut inner = process.inner;
    let Ok(ends) = process.ends else {
        if let Err(refused) = named("gmp-reap-one").spawn(move || inner.wait()) {
            tell(&refused);
        }
        return;
    };
    let mut orphans = orphans();
    orphans.new.push((inner, ends.into_inner()));
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
    named("gmp-reaper").spawn(move || reap(rings))?;
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

fn named(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.to_owned()).stack_size(64 << 10)
}

/// Waits for all orphans; `bell` is open until this ends.
fn reap(bell: i32) {
    let mut waiting = Vec::new();
    loop {
        let mut orphans = orphans();
        waiting.append(&mut orphans.new);
        waiting.retain_mut(|(child, _): &mut (process::Child, OwnedFd)| matches!(child.try_wait(), Ok(None)));
        if waiting.is_empty() {
            // Under the lock: a caller that comes later finds no bell, and starts another thread.
            orphans.bell = None;
            return;
        }
        drop(orphans);
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut entries: Vec<_> = waiting.iter().map(|(_, ends)| entry(ends.as_raw_fd())).collect();
        entries.push(entry(bell));
        // SAFETY: the entries live through the call.
        let polled = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, -1) };
        if polled < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            // The kernel has no memory for it, or allows fewer descriptors than there are: one after the other.
            let (mut child, _) = waiting.swap_remove(0);
            let _status = child.wait();
        }
        sys::drain(bell);
    }
}
