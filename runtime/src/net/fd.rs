//! Who uses a socket's descriptor without its I/O locks, and how a close comes last.
//!
//! ```text
//!   word: closed bit · borrowed bit · count
//!   user:    U1 count += 1, unless closed · its system call · U2 count -= 1; closed, and the last?  wake the closer
//!   closer:  C1 closed := true · … · C4 the count is zero?  else wait
//! ```
//! A read or write does not count here: it holds its direction's I/O lock, and the closer waits for that (`io_lock.rs`). C4
//! stands under the lock where U2 looks for the closer, after it has counted: one of the two comes second, and knows.
//!
//! A descriptor that was lent out (`AsFd`) may be named by somebody as long as the socket lives. Its close replaces it by a
//! dead one, under the same number, so that nobody else gets that number meanwhile. The dead one is the process's, and is
//! made when a descriptor is lent out first: a close needs none then. Where it could not be made, then or later, the
//! descriptor stays open until the socket is dropped. So that the peer sees the end all the same, the connection is shut
//! down: unless it may have other descriptors, for which it is to go on.
//!
//! Invariants: one caller finds the bit unset and sets it; the descriptor is closed when the count is zero after that, and
//! nobody counts any more.
//!
//! Checked by `models/socket.rs`.

use crate::host::Active;
use crate::prim::hooks::*;
use crate::prim::{AcqRel, Acquire, AtomicU32, Mutex, Rank, Relaxed};
use crate::sched::park::{Commit, WaitReason};
use crate::wait::interrupt::OnInterrupt;
use crate::wait::waiter::{How, Wait, Waiter};

const CLOSED: u32 = 1 << 31;
const LENT: u32 = 1 << 30;

/// The word, and the closer.
pub(crate) struct Users {
    word: AtomicU32,
    closer: Mutex<Option<Waiter<Active>>>,
}

/// The descriptor stays open as long as this is there.
pub(crate) struct Use<'a>(&'a Users);

impl Users {
    pub(crate) fn new() -> Self {
        Users { word: AtomicU32::new(0), closer: Mutex::new(Rank::Closer, None) }
    }

    /// Returns `true` if a close has begun. For whoever comes after a fence or an exchange that is ordered with C1.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: it says what not to do any more.
        self.word.load(Relaxed) & CLOSED != 0
    }

    /// U1. `None`: it is closed.
    pub(crate) fn enter(&self) -> Option<Use<'_>> {
        let mut seen = self.word.load(Relaxed);
        while seen & CLOSED == 0 {
            // Relaxed: a count that keeps the descriptor; whoever has the socket sees it whole.
            match self.word.compare_exchange(seen, seen + 1, Relaxed, Relaxed) {
                Ok(_) => return Some(Use(self)),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// The descriptor is lent out, as long as the socket lives. By a user.
    pub(crate) fn lend(&self) {
        if self.word.load(Relaxed) & LENT == 0 {
            // Relaxed: before U2's Release.
            self.word.fetch_or(LENT, Relaxed);
        }
    }

    /// Returns `true` if it was. For the closer, after `wait_idle`.
    pub(crate) fn is_lent(&self) -> bool {
        self.word.load(Relaxed) & LENT != 0
    }

    /// C1. True for the one who closes. `socket_fence` follows.
    #[must_use]
    pub(crate) fn close(&self) -> bool {
        // AcqRel: partner U2, of those who have left, and of those who will.
        self.word.fetch_or(CLOSED, AcqRel) & CLOSED == 0
    }

    /// C4: blocks the closer until nobody is left.
    pub(crate) fn wait_idle(&self) {
        let mut wait = Wait::begin();
        let mut closer = self.closer.lock();
        // Acquire: their system calls are over: partner U2.
        if self.word.load(Acquire.unless(UsersIdleRelaxed)) & !LENT == CLOSED {
            drop(closer);
            return wait.withdraw();
        }
        *closer = Some(wait.waiter());
        let _last = wait.park(How::new(WaitReason::IoClose).ends(OnInterrupt::Never), move || {
            drop(closer);
            Commit::Park
        });
    }
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        // U2. Release: partner `wait_idle`. Acquire: partner U2 of the others, for all of which the last one speaks.
        let left = self.0.word.fetch_sub(1, AcqRel.unless(UsersLeaveRelaxed)) - 1;
        if (left & !LENT == CLOSED).unless(UsersLastIsSilent) {
            // Nobody counts any more, so there is one last.
            let closer = self.0.closer.lock().take();
            if let Some(closer) = closer {
                closer.wake();
            }
        }
    }
}
