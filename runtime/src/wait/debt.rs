//! What a goroutine owes to others while it is parked or about to run: the turn of a socket that it holds, its place in the
//! line for a lock, the lock that it was given there, or a message that it has promised. When its runtime ends, can't unwind
//! it, and never runs it again, somebody else pays, or it does so itself before it stays where it is.
//!
//! What is owed begins with a [`Debt`]. It is noted in the G by the goroutine itself, or by whoever has claimed its wait and
//! has not readied it yet; the goroutine takes it back when it runs. It lies on the goroutine's stack, or the goroutine
//! borrows it; one that never runs again never ends that borrow, and its stack is never freed.
//!
//! A G has room for one, that of the wait in which it is parked. What is owed through many waits is a [`Standing`] debt: a list
//! whose head lies in the goroutine's first frame. Only the goroutine changes the list.

use crate::g::GRef;
use crate::host::{Active, Host};
use crate::m::M;
use crate::prim::{AcqRel, AtomicPtr, Mutant, Relaxed, unless};
use std::cell::Cell;

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
        unless(Mutant::StandingDebtsForgotten, || Standing::settle_of(g));
    }
}

/// A debt that stands while its goroutine waits for other things. The first field of what is owed.
#[repr(C)]
pub(crate) struct Standing {
    debt: Debt,
    next: Cell<*const Standing>,
}

impl Standing {
    /// As [`Debt::new`].
    pub(crate) const fn new(pay: unsafe fn(*const Debt)) -> Self {
        Standing { debt: Debt::new(pay), next: Cell::new(std::ptr::null()) }
    }

    /// The list of the calling goroutine; `None` for a plain thread, which always runs.
    fn list<'a>() -> Option<&'a AtomicPtr<Standing>> {
        // The first frame outlives all that the goroutine does.
        M::<Active>::current().and_then(M::g)?.standing()
    }

    /// The caller owes this from here on.
    ///
    /// # Safety
    /// It is the first field of what `pay` expects, and stays where it is until it is taken back, or for good.
    pub(crate) unsafe fn note(this: *const Self) {
        if let Some(list) = Self::list() {
            // SAFETY: by this function's contract. Relaxed, both: the goroutine's own while it runs; its next park
            // publishes them.
            unsafe { (*this).next.set(list.load(Relaxed)) };
            list.store(this.cast_mut(), Relaxed);
        }
    }

    /// The caller, which has noted it, pays, or is about to.
    ///
    /// # Safety
    /// It is still there.
    pub(crate) unsafe fn take_back(this: *const Self) {
        let Some(list) = Self::list() else { return };
        // SAFETY: by this function's contract.
        let next = unsafe { (*this).next.get() };
        // Relaxed, as in `note`.
        let mut at = list.load(Relaxed).cast_const();
        if at == this {
            list.store(next.cast_mut(), Relaxed);
            return;
        }
        // SAFETY: what stands in the list stays there.
        while let Some(it) = unsafe { at.as_ref() } {
            if it.next.get() == this {
                it.next.set(next);
                return;
            }
            at = it.next.get();
        }
    }

    /// As [`Debt::settle_of`].
    fn settle_of<H: Host>(g: GRef<H>) {
        let Some(list) = g.standing() else { return };
        // AcqRel: as there.
        let mut at = list.swap(std::ptr::null_mut(), AcqRel).cast_const();
        // SAFETY: as there.
        while let Some(it) = unsafe { at.as_ref() } {
            // SAFETY: as there.
            unsafe { (it.debt.pay)(at.cast()) };
            at = it.next.get();
        }
    }
}
