//! What a goroutine owes to others while it is parked or about to run: the turn of a socket that it holds, its place in the
//! line for a lock, or the lock that it was given there. When its runtime ends, can't unwind it, and never runs it again,
//! somebody else pays, or it does so itself before it stays where it is.
//!
//! What is owed begins with a [`Debt`]. It is noted in the G by the goroutine itself, or by whoever has claimed its wait and
//! has not readied it yet; the goroutine takes it back when it runs. It lies on the goroutine's stack, or the goroutine
//! borrows it; one that never runs again never ends that borrow, and its stack is never freed.

use crate::g::GRef;
use crate::host::Host;
use crate::prim::AcqRel;

/// How it is paid. The first field of what is owed.
pub(crate) struct Debt {
    pay: unsafe fn(*const Debt),
}

impl Debt {
    /// `pay` is called with a pointer to this value, by any thread.
    pub(crate) const fn new(pay: unsafe fn(*const Debt)) -> Self {
        Debt { pay }
    }

    /// Pays what a goroutine owes that will not run again. Its wait is claimed, or it stands in no queue that
    /// anybody takes from.
    pub(crate) fn settle_of<H: Host>(g: GRef<H>) {
        g.leave();
        // AcqRel: of several who find the goroutine left, one pays.
        let debt = g.debt.swap(std::ptr::null_mut(), AcqRel);
        if !debt.is_null() {
            // SAFETY: it was noted as what it is, and is still there: see the module's header.
            unsafe { ((*debt).pay)(debt) };
        }
    }
}
