//! Who waits for the children that were dropped: one thread, as long as there are such children.
//!
//! The thread waits in `poll(2)` for the descriptors that tell of their ends, and for an eventfd by which another child is
//! announced. A child without such a descriptor gets a thread of its own.

use super::child::Process;
use crate::net::sys;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
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

/// Has somebody wait for `process`. Where no thread can be had the child stays a zombie when it has ended, as with std.
pub(super) fn adopt(process: Process) {
    let mut inner = process.inner;
    let Some(ends) = process.ends else {
        let _none_left = named("gmp-reap-one").spawn(move || inner.wait());
        return;
    };
    let mut orphans = orphans();
    orphans.new.push((inner, ends.into_inner()));
    match &orphans.bell {
        Some(bell) => sys::signal(bell.as_raw_fd()),
        None => {
            let Ok(bell) = sys::eventfd() else { return };
            let rings = bell.as_raw_fd();
            if named("gmp-reaper").spawn(move || reap(rings)).is_ok() {
                orphans.bell = Some(bell);
            }
        }
    }
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
            // Under the lock: who comes later finds no bell, and starts another thread.
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
