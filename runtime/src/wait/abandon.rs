//! Abandon hooks, which release the values of a goroutine that never runs again: an I/O lock that the goroutine holds, a place
//! in the wait queue of a lock, a lock that was handed over there, or a promised message. A runtime that ends abandons each
//! goroutine that it can't unwind. Then another thread runs the goroutine's *abandon hook*, or the goroutine runs the hook
//! itself before it stays parked for good. (A robust mutex is released likewise when its owner dies.)
//!
//! The value to be released begins with an [`AbandonHook`]. The goroutine, or a waker that has claimed the wait and not yet
//! readied the goroutine, stores the hook's address in the G. The goroutine takes the hook back when it runs. The hook lies on
//! the goroutine's stack, or the goroutine borrows it; a goroutine that never runs again never ends that borrow, and its stack
//! is never freed.
//!
//! A G has room for one hook, that of the wait in which it is parked. A value that outlasts a wait has a
//! [`StandingHook`], in a list whose head lies in the goroutine's first frame. Only the goroutine changes the list.
//!
//! So no other goroutine or thread can take a hook back: if the value were freed there, the list would keep a dangling address.
//! A `!Send` value that the user owns can still reach another goroutine, through a `thread_local!`. So the code that drops such
//! a value calls `try_take_back`, which fails on another goroutine, and then leaks the value. A value in a function's frame
//! stays with that goroutine: if the hook is not found, the process ends. A goroutine whose hooks were run never runs again,
//! and so takes none back.
//!
//! Checked by `models/event.rs`, `models/io_lock.rs`, `models/promise.rs` and `models/semaphore.rs`.

use crate::g::GRef;
use crate::host::{Active, Host, Process};
use crate::m::M;
use crate::prim::hooks::*;
use crate::prim::{AcqRel, AtomicPtr, Relaxed};
use std::cell::Cell;

/// The function that is called for an abandoned goroutine. The first field of the value to be released.
pub(crate) struct AbandonHook {
    run: unsafe fn(*const AbandonHook),
}

impl AbandonHook {
    /// Makes a hook. Any thread can call `run`, with a pointer to this value.
    pub(crate) const fn new(run: unsafe fn(*const AbandonHook)) -> Self {
        AbandonHook { run }
    }

    /// Runs the hooks of a goroutine that will not run again. The goroutine's wait is claimed, or the goroutine is in no queue
    /// from which an M takes; and no waker is between claim and `ready`.
    pub(crate) fn run_of<H: Host>(g: GRef<H>) {
        g.leave();
        // AcqRel: of several threads that find the goroutine abandoned, one runs the hook; each exchange is the partner of the
        // others. No model has the two orderings: any exchange has one winner, and the claim of the wait has acquired what the
        // goroutine wrote.
        let hook = g.on_abandon.swap(std::ptr::null_mut(), AcqRel);
        if !hook.is_null() {
            // SAFETY: the goroutine that has set the hook keeps the value there until the hook is taken away: see the module's
            // header.
            unsafe { ((*hook).run)(hook) };
        }
        unless!(StandingHooksForgotten, StandingHook::run_of(g));
    }
}

/// A hook that stays set while the goroutine waits in other waits. The first field of the value to be released.
#[repr(C)]
pub(crate) struct StandingHook {
    hook: AbandonHook,
    /// The next hook of the list, null at the end; `UNLISTED` in none.
    next: Cell<*const StandingHook>,
}

/// The `next` of a hook that is in no list.
const UNLISTED: *const StandingHook = std::ptr::without_provenance(1);

impl StandingHook {
    /// As [`AbandonHook::new`].
    pub(crate) const fn new(run: unsafe fn(*const AbandonHook)) -> Self {
        StandingHook { hook: AbandonHook::new(run), next: Cell::new(UNLISTED) }
    }

    /// Returns the list of the calling goroutine; `None` for a plain thread, which always runs again.
    fn list<'a>() -> Option<&'a AtomicPtr<StandingHook>> {
        // The first frame outlives all that the goroutine does.
        M::<Active>::current().and_then(M::g)?.standing_hooks()
    }

    /// Sets the hook, which is run if the caller is abandoned after this.
    ///
    /// # Safety
    /// `this` is the first field of the value that `run` expects, and is not moved before `take_back`, or ever.
    pub(crate) unsafe fn note(this: *const Self) {
        if let Some(list) = Self::list() {
            // SAFETY: by this function's contract. Relaxed, both stores: only the goroutine reads them while it runs;
            // its next park publishes them.
            unsafe { (*this).next.set(list.load(Relaxed)) };
            list.store(this.cast_mut(), Relaxed);
        }
    }

    /// Does the same as `note`; the drop of the result takes the hook back.
    ///
    /// # Safety
    /// As `note`. The value still lives when the result is dropped.
    pub(crate) unsafe fn note_here(this: *const Self) -> NotedHere {
        // SAFETY: by this function's contract.
        unsafe { Self::note(this) };
        NotedHere(this)
    }

    /// Takes the hook out: the caller, which has set it, releases the value itself.
    ///
    /// # Safety
    /// The hook is still there.
    pub(crate) unsafe fn take_back(this: *const Self) {
        // SAFETY: by this function's contract.
        if !unsafe { Self::try_take_back(this) } {
            // Not a panic, which would free the frame that the list refers to.
            Active::fatal(
                "take_back: the hook is not in the goroutine's list: it was moved, or is another goroutine's",
            );
        }
    }

    /// As `take_back`, for a value that might have come to another goroutine or thread. Returns `false` there: the caller
    /// leaves the value as it is, and never frees the value, which stays in the list of the goroutine that has set the hook.
    ///
    /// # Safety
    /// The hook is still there.
    #[must_use]
    pub(crate) unsafe fn try_take_back(this: *const Self) -> bool {
        // SAFETY: by this function's contract.
        let next = unsafe { (*this).next.get() };
        let Some(list) = Self::list() else { return next == UNLISTED };
        // Relaxed, as in `note`.
        let first = list.load(Relaxed).cast_const();
        if first == this {
            list.store(next.cast_mut(), Relaxed);
            return true;
        }
        // SAFETY: by the contract of `note`, the hooks in the list are not moved.
        next == UNLISTED || unsafe { Self::unlink(first, this, next) }
    }

    /// Takes `this` out of the list that begins with `at`, if `this` stands behind `at`.
    ///
    /// # Safety
    /// The caller owns the list, whose hooks are still there.
    unsafe fn unlink(mut at: *const Self, this: *const Self, next: *const Self) -> bool {
        // SAFETY: by this function's contract.
        while let Some(it) = unsafe { at.as_ref() } {
            if it.next.get() == this {
                it.next.set(next);
                return true;
            }
            at = it.next.get();
        }
        false
    }

    /// As [`AbandonHook::run_of`].
    fn run_of<H: Host>(g: GRef<H>) {
        let Some(list) = g.standing_hooks() else { return };
        // AcqRel: of several threads that find the goroutine abandoned, one runs its hooks; each exchange is the partner of the
        // others. No model has the two orderings, as in `AbandonHook::run_of`.
        let mut at = list.swap(std::ptr::null_mut(), AcqRel).cast_const();
        // SAFETY: `note` was given hooks of this type, which are still there: see the module's header.
        unsafe {
            while let Some(it) = at.as_ref() {
                (it.hook.run)(at.cast());
                at = it.next.get();
            }
        }
    }
}

/// A hook that stands as long as this value lives.
#[must_use = "its drop takes the hook back"]
pub(crate) struct NotedHere(*const StandingHook);

impl Drop for NotedHere {
    fn drop(&mut self) {
        // SAFETY: by the contract of `note_here`.
        unsafe { StandingHook::take_back(self.0) };
    }
}
