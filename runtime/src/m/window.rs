//! Windows: being inside the runtime, as a value. A goroutine's call makes a window to enter, and drops it to leave.

use super::M;
use super::handoff::Entry;
use crate::g::GRef;
use crate::host::Host;
use crate::p::P;
use crate::sched::lasting::MRef;
use crate::sched::park::Yield;
use crate::sched::switch;
use std::marker::PhantomData;

/// The calling thread is inside the runtime, its M holds `p`, and it does not park before the drop, which leaves.
pub(crate) struct Inside<'a, H: Host> {
    pub(super) m: &'a M<H>,
    pub(crate) p: &'a P<H>,
    pub(super) leave: bool,
}

impl<H: Host> Drop for Inside<'_, H> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.leave {
            self.m.leave();
        }
    }
}

/// The calling goroutine is inside the runtime, and its M holds a P. The drop leaves.
pub(crate) struct Window<H: Host> {
    m: MRef<H>,
    /// The drop leaves on the thread that has entered.
    _of_this_thread: PhantomData<*const ()>,
}

impl<H: Host> Window<H> {
    /// Enters the runtime from a goroutine. Returns `None` on a thread that is no M. Can park the goroutine, if the M has lost
    /// its P meanwhile.
    #[inline(always)]
    pub(crate) fn enter() -> Option<Self> {
        let m = M::current()?;
        let m = if m.enter() { m } else { Self::reenter(m) };
        m.touch_p();
        Some(Window { m: MRef::of(m), _of_this_thread: PhantomData })
    }

    /// Enters from a goroutine whose M holds a P. Returns `None` otherwise. Never parks.
    #[inline]
    pub(crate) fn enter_with_p() -> Option<Self> {
        Self::enter_on(M::current()?)
    }

    /// As `enter_with_p`, for the goroutine that runs on `m`.
    #[inline]
    pub(crate) fn enter_on(m: &M<H>) -> Option<Self> {
        let inside = m.look_in()?;
        debug_assert!(inside.leave, "enter_with_p: called inside the runtime");
        let m = MRef::of(inside.m);
        std::mem::forget(inside);
        Some(Window { m, _of_this_thread: PhantomData })
    }

    #[cold]
    #[inline(never)]
    fn reenter(mut m: &M<H>) -> &M<H> {
        if m.g().is_none() {
            // If entries are quick, a debug build already finds this in `enter`.
            H::fatal("what may park was called on a thread of the runtime where no goroutine runs");
        }
        switch::refuse_in_hook(m, "what may park");
        loop {
            match m.settle() {
                Entry::In => return m,
                Entry::Lost => {
                    m.lose_p();
                    // An earlier wait of the same call might have called the functions already.
                    let calls = H::has_switch_hooks() && switch::is_here(m);
                    if calls {
                        m.leave();
                        switch::call_for_suspend::<H>();
                        m.stay_inside();
                    }
                    // SAFETY: this goroutine runs on `m`, and is inside the runtime.
                    unsafe { m.suspend(Yield::Return) };
                    if calls {
                        switch::call_for_resume::<H>();
                    }
                }
            }
            // The M that resumed this goroutine held a P, and left the runtime before the resume: enter like a new call.
            m = M::current().expect("reenter: a goroutine runs on an M");
            if m.enter() {
                return m;
            }
        }
    }

    pub(crate) fn m(&self) -> &M<H> {
        &self.m
    }

    /// Returns the P that the M holds.
    pub(crate) fn p<'a>(&self) -> &'a P<H> {
        self.m().p().expect("p: a window is open only with a P")
    }

    /// Returns the goroutine whose window this is.
    pub(crate) fn g(&self) -> GRef<H> {
        self.m().g().expect("g: a window is opened by a goroutine")
    }

    /// Turns the window into a switch away from the goroutine, which returns outside of any window.
    #[inline(always)]
    pub(crate) fn suspend(self, what: Yield) {
        let m = self.m;
        std::mem::forget(self);
        // SAFETY: a window is opened by the goroutine that runs on the M.
        unsafe { m.suspend(what) };
    }
}

impl<H: Host> Drop for Window<H> {
    #[inline(always)]
    fn drop(&mut self) {
        self.m().leave();
    }
}
