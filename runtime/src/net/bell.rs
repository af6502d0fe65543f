//! How a plain thread waits for a socket: `poll(2)` on the descriptor and on a *bell*, an eventfd by which a close, or
//! a deadline that was moved, ends its wait.
//!
//! ```text
//!   thread:  B1 the bell is there · B2 fence · B3 look · B4 poll both; the bell rang?  empty it, and again from B3
//!   ringer:  R1 change · R2 fence · R3 a bell?  ring it
//! ```
//! One of the fences comes first: B3 sees the change, or R3 sees the bell, which stays rung until the thread empties it. A
//! direction's bell is made at the first wait of a thread, by the holder of the turn, and used by holders only.

use crate::context::interrupted;
use crate::host::{Active, Host};
use crate::net::sys;
use crate::net::turn::fence_look;
use crate::prim::{AtomicU32, Relaxed};
use crate::wait::interrupt::{Interrupt, first_done};
use gmp_timers::Nanos;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Looks so often when there is no descriptor for a bell, or under a context, whose end rings none.
const PATIENCE: Duration = Duration::from_millis(5);

/// The descriptor plus one; zero: there is none.
pub(crate) struct Bell(AtomicU32);

impl Bell {
    pub(crate) fn new() -> Self {
        Bell(AtomicU32::new(0))
    }

    fn fd(&self) -> Option<RawFd> {
        // Relaxed: a number. It stays open until nobody can use it.
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

    /// R3, after the fence. The caller keeps the socket from being closed, or closes it.
    pub(crate) fn ring(&self) {
        if let Some(fd) = self.fd() {
            sys::ring(fd);
        }
    }

    /// Nobody waits, or will. Gives the descriptor back.
    pub(crate) fn free(&self) {
        if let Some(fd) = self.0.swap(0, Relaxed).checked_sub(1) {
            // SAFETY: it was made by `get`, and is taken once.
            drop(unsafe { OwnedFd::from_raw_fd(fd as RawFd) });
        }
    }

    /// Blocks the calling thread, which holds the turn, until `socket` is ready for `events`, or `look` says no. May
    /// return early.
    pub(crate) fn wait(
        &self,
        socket: BorrowedFd<'_>,
        events: libc::c_short,
        look: impl Fn() -> io::Result<Option<Nanos>>,
    ) -> io::Result<()> {
        let bell = self.get();
        fence_look();
        loop {
            let mut until = look()?;
            let frame = Active::thread_frame();
            if let Some(done) = first_done(frame, std::ptr::null()) {
                return Err(interrupted::<Active>(Interrupt::Context(done)).into());
            }
            if bell.is_none() || !frame.is_null() {
                let soon = Active::now().saturating_add(PATIENCE);
                until = Some(until.map_or(soon, |until| until.min(soon)));
            }
            let limit = until.map(|until| until.saturating_since(Active::now()));
            let (ready, rang) = sys::poll(socket.as_raw_fd(), events, bell, limit)?;
            if rang && let Some(bell) = bell {
                sys::silence(bell);
                fence_look();
            }
            if ready {
                return Ok(());
            }
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.free();
    }
}
