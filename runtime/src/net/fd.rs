//! The count of calls that use a socket's descriptor without an I/O lock, so that the closer closes the descriptor
//! after the last of them.
//!
//! ```text
//!   word: closed bit · borrowed bit · count
//!   user:    U1 count += 1, unless closed · its system call · U2 count -= 1; closed, and the last?  wake the closer
//!   closer:  C1 closed := true · … · C4 the count is zero?  else wait
//! ```
//! A read or write does not count here: each holds its direction's I/O lock, for which the closer waits (`io_lock.rs`). The
//! closer checks the count and registers its wait under a lock. A user that has counted down looks for the closer under the
//! same lock. So the second of the two sees what the first has done.
//!
//! A descriptor that was lent out (`AsFd`) may be in use by a borrower as long as the socket lives. The closer replaces such a
//! descriptor by a dead socket under the same number, so that the kernel does not give the number to another descriptor
//! meanwhile. The process has one dead socket, made at the first loan, so that a close needs no new descriptor. If the dead
//! socket could not be made, the descriptor stays open until the socket is dropped, and the closer shuts the connection down so
//! that the peer sees the end; unless the connection may have other descriptors, which must go on working. A function of the
//! program's, to which the socket's value was lent, may wait; while the function runs, a standing hook stands for U2 (`apart`).
//! So a goroutine that its runtime has left behind in such a function counts as such a borrower (`io_lock.rs`), and no longer
//! as a user, and no closer waits for a function that never returns.
//!
//! Invariants: exactly one closer finds the closed bit unset and sets it. The count does not grow after that, and the
//! descriptor is closed once the count is zero.
//!
//! Checked by `models/socket.rs`.

use crate::host::Active;
use crate::prim::hooks::*;
use crate::prim::{AcqRel, Acquire, AtomicU32, Mutex, Rank, Relaxed, Release};
use crate::sched::park::{Commit, WaitReason};
use crate::wait::abandon::{AbandonHook, StandingHook};
use crate::wait::interrupt::OnInterrupt;
use crate::wait::waiter::{How, Wait, Waiter};

const CLOSED: u32 = 1 << 31;
const LENT: u32 = 1 << 30;

/// The word, and the closer.
pub(crate) struct Users {
    word: AtomicU32,
    closer: Mutex<Option<Waiter<Active>>>,
}

/// A user of the descriptor, which stays open as long as this lives.
pub(crate) struct Use<'a>(&'a Users);

impl Users {
    pub(crate) fn new() -> Self {
        Users { word: AtomicU32::new(0), closer: Mutex::new(Rank::Closer, None) }
    }

    /// Returns `true` if a close has begun. The caller comes after a fence or an exchange that is ordered with C1.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: the bit only forbids; the caller reads nothing that the closer wrote before.
        self.word.load(Relaxed) & CLOSED != 0
    }

    /// U1. Returns `None` if the socket is closed.
    pub(crate) fn enter(&self) -> Option<Use<'_>> {
        let mut seen = self.word.load(Relaxed);
        while seen & CLOSED == 0 {
            // Relaxed: the count keeps the descriptor open; the caller sees the socket whole, having a reference.
            match self.word.compare_exchange(seen, seen + 1, Relaxed, Relaxed) {
                Ok(_) => return Some(Use(self)),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Notes that the descriptor is lent out for the rest of the socket's life. The caller is a user, or releases the I/O lock
    /// or the use of a goroutine that never runs again.
    pub(crate) fn lend(&self) {
        if self.word.load(Relaxed) & LENT == 0 {
            // Relaxed: before U2's Release, or that of the I/O lock.
            self.word.fetch_or(LENT, Relaxed);
        }
    }

    /// Returns `true` if the descriptor was lent out. For the closer, after `wait_idle`.
    pub(crate) fn is_lent(&self) -> bool {
        self.word.load(Relaxed) & LENT != 0
    }

    /// C1. Returns `true` for the first closer. `socket_fence` follows.
    #[must_use]
    pub(crate) fn close(&self) -> bool {
        // AcqRel: partner U2, of the users that have left, and of the users that will. No model has either half: this exchange
        // continues the release sequences of the users that have left, which `wait_idle` acquires; and a user that will leave
        // reads nothing of the closer's but the Waiter, under the lock.
        self.word.fetch_or(CLOSED, AcqRel) & CLOSED == 0
    }

    /// C4: blocks the closer until no user is left.
    pub(crate) fn wait_idle(&self) {
        let mut wait = Wait::begin();
        let mut closer = self.closer.lock();
        // Acquire: the users' system calls are over: partner U2.
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

impl Use<'_> {
    /// Calls `f`, a function of the program's, which may wait, and may lend what it is given. U2 comes after that.
    pub(crate) fn apart<R>(self, f: impl FnOnce() -> R) -> R {
        let stands = Stands { hook: StandingHook::new(Stands::give_up), open: self };
        // SAFETY: the hook is the first field of a `Stands`, as `Stands::give_up` expects; `stands` is dropped later.
        let _noted = unsafe { StandingHook::note_here((&raw const stands).cast()) };
        f()
    }

    /// U2.
    fn leave(&self) {
        // Release: partner `wait_idle`. Acquire: partner U2 of the other users, on whose behalf the last one wakes the closer.
        let ordering = both(Acquire.unless(UsersLastLooksRelaxed), Release.unless(UsersLeaveRelaxed));
        let left = self.0.word.fetch_sub(1, ordering) - 1;
        if (left & !LENT == CLOSED).unless(UsersLastIsSilent) {
            // No user counts up any more, so there is a last one.
            let closer = self.0.closer.lock().take();
            if let Some(closer) = closer {
                closer.wake();
            }
        }
    }
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Stands for a user that is in a function of the program's.
#[repr(C)]
struct Stands<'a> {
    hook: StandingHook,
    open: Use<'a>,
}

impl Stands<'_> {
    /// # Safety
    /// `hook` is that of a `Stands` whose goroutine never runs again.
    unsafe fn give_up(hook: *const AbandonHook) {
        mutant!(UsersLeftBehind: return);
        // SAFETY: by this function's contract: the frame that has the value stays, and never drops it.
        let it = unsafe { &*hook.cast::<Self>() };
        it.open.0.lend();
        it.open.leave();
    }
}
