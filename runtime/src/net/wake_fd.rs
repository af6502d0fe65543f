//! How a plain thread waits for a socket: `poll(2)` on the descriptor and on a *wake fd*, an eventfd by which a close, a
//! deadline that was moved, or the end of a Unix socket's writes ends the thread's wait.
//!
//! ```text
//!   thread:  B1 the wake fd is there · B2 SocketFence · B3 look · B4 poll both; wake fd readable?  drain it, and again from B3
//!   waker:   R1 change · R2 SocketFence · R3 a wake fd?  write to it
//! ```
//! One of the fences comes first: B3 sees the change, or R3 sees the wake fd, which stays readable until the thread drains
//! it. A direction's wake fd is made at the first wait of a thread, by the holder of the I/O lock, and used by holders only.

use crate::host::{Active, Clock, Threads};
use crate::net::io_lock::socket_fence;
use crate::net::{check_contexts, sys};
use crate::prim::{AtomicU32, Relaxed};
use gmp_timers::Nanos;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// The poll interval of a thread for which no wake fd could be made, or that runs under a context: the end of a
/// context writes to no wake fd.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The descriptor's number plus one; zero if there is none.
pub(crate) struct WakeFd(AtomicU32);

impl WakeFd {
    pub(crate) fn new() -> Self {
        WakeFd(AtomicU32::new(0))
    }

    fn fd(&self) -> Option<RawFd> {
        // Relaxed: a number only; the descriptor stays open until no thread can use it.
        self.0.load(Relaxed).checked_sub(1).map(|fd| fd as RawFd)
    }

    fn get(&self) -> Option<RawFd> {
        if let Some(fd) = self.fd() {
            return Some(fd);
        }
        let fd = sys::eventfd().ok()?.into_raw_fd();
        self.0.store(fd as u32 + 1, Relaxed);
        Some(fd)
    }

    /// R3, after the fence. The caller is the closer, or a user that keeps the descriptor open.
    pub(crate) fn wake(&self) {
        if let Some(fd) = self.fd() {
            sys::signal(fd);
        }
    }

    /// Closes the wake fd. No thread waits on it, or will.
    pub(crate) fn free(&self) {
        if let Some(fd) = self.0.swap(0, Relaxed).checked_sub(1) {
            // SAFETY: `get` made the descriptor, and the swap takes it once.
            drop(unsafe { OwnedFd::from_raw_fd(fd as RawFd) });
        }
    }

    /// Blocks the calling thread, which holds the I/O lock, until `socket`, if given, is ready for `events`, or `look`
    /// returns an error. May return early.
    pub(crate) fn wait(
        &self,
        socket: Option<BorrowedFd<'_>>,
        events: libc::c_short,
        look: impl Fn() -> io::Result<Option<Nanos>>,
    ) -> io::Result<()> {
        let wake_fd = self.get();
        socket_fence();
        loop {
            let mut until = look()?;
            check_contexts()?;
            if wake_fd.is_none() || !Active::thread_frame().is_null() {
                let next_poll = Active::after(POLL_INTERVAL);
                until = Some(until.map_or(next_poll, |until| until.min(next_poll)));
            }
            let limit = until.map(|until| until.saturating_since(Active::now()));
            let (ready, woken) = sys::poll(socket.map(|socket| socket.as_raw_fd()), events, wake_fd, limit)?;
            if woken && let Some(wake_fd) = wake_fd {
                sys::drain(wake_fd);
                // No model checks this fence: the model would have to imitate `poll(2)`. The kernel's lock of the eventfd
                // orders drain and write as well; the fence stays, as no document says so, and a drain is rare.
                socket_fence();
            }
            if ready {
                return Ok(());
            }
        }
    }
}

impl Drop for WakeFd {
    fn drop(&mut self) {
        self.free();
    }
}
