//! M, an OS thread that runs goroutines while it holds a P; and the window through which they call the runtime.
//!
//! A goroutine runs with `in_runtime = 0`: then a retaker may take its M's P away. Every runtime call that
//! touches P-local data stands in a *window*:
//!
//! ```text
//!   enter:   E1 in_runtime := 1  · E2 barrier · E3 the hand-off word as we left it?  else `reenter`
//!   retaker: R1 Idle → Requested · R2 barrier · R3 in_runtime = 1?  yes: withdraw · no: Requested → Taken
//!   leave:   in_runtime := 0 (Release)
//! ```
//! One of the barriers comes first. If E2 does, R3 sees the M inside; if R2 does, E3 sees the request. The M's
//! barrier is none for the machine, a retaker pays for both.
//!
//! Windows do not nest, and no user code runs inside: no drop of a user's value, no closure, no waker, no
//! message expression. The scheduler's own stack (g0) is always inside: `execute` leaves just before it resumes
//! a goroutine, and a goroutine that parks enters and does not leave.
//!
//! Checked by `tests/loom_window.rs`.

use crate::g::GRef;
use crate::host::Host;
use crate::note::Note;
use crate::p::{Entry, P, Tenure};
use crate::prim::{AtomicU32, Mutant, Relaxed, Release, UnsafeCell, light_barrier, order, unless};
use crate::sched::Sched;
use crate::sched::park::Yield;
use std::cell::Cell;
use std::ptr::NonNull;

const OUTSIDE: u32 = 0;
const INSIDE: u32 = 1;

/// An OS thread of the runtime. Lives as long as its scheduler, so that a retaker may read it at any time.
#[repr(align(128))]
pub(crate) struct M<H: Host> {
    in_runtime: AtomicU32,
    pub(crate) id: u32,
    sched: NonNull<Sched<H>>,
    p: Cell<Option<NonNull<P>>>,
    tenure: Cell<Option<Tenure>>,
    g: Cell<Option<GRef<H>>>,
    /// Where the thread sleeps while it has nothing to do, and the P that whoever wakes it has left for it,
    /// written before the note's wake and read after its sleep.
    pub(crate) note: Note<H>,
    given: UnsafeCell<Option<NonNull<P>>>,
    tick: Cell<u32>,
    pub(crate) local: H::Local,
}

// SAFETY: `in_runtime` and `note` are made for sharing; `given` is ordered by the note; the cells belong to the
// M's own thread.
unsafe impl<H: Host> Send for M<H> {}
// SAFETY: as above.
unsafe impl<H: Host> Sync for M<H> {}

impl<H: Host> M<H> {
    pub(crate) fn new(id: u32, sched: &Sched<H>) -> Self {
        M {
            in_runtime: AtomicU32::new(INSIDE),
            id,
            sched: NonNull::from(sched),
            p: Cell::new(None),
            tenure: Cell::new(None),
            g: Cell::new(None),
            note: Note::new(),
            given: UnsafeCell::new(None),
            tick: Cell::new(0),
            local: H::Local::default(),
        }
    }

    /// The M of the calling thread; `None` where no goroutine runs. It is the caller's only until its next park:
    /// read what is needed and let go.
    #[inline(always)]
    pub(crate) fn current<'a>() -> Option<&'a M<H>> {
        // SAFETY: an M lives as long as its scheduler, which the thread of a current M keeps alive, and so does the
        // runtime of a running goroutine.
        unsafe { H::current().as_ref() }
    }

    pub(crate) fn sched<'a>(&self) -> &'a Sched<H> {
        // SAFETY: as in `current`.
        unsafe { self.sched.as_ref() }
    }

    /// Counts the M's turns at the run queue.
    pub(crate) fn next_tick(&self) -> u32 {
        let tick = self.tick.get().wrapping_add(1);
        self.tick.set(tick);
        tick
    }

    /// The goroutine that this M runs.
    pub(crate) fn g(&self) -> Option<GRef<H>> {
        self.g.get()
    }

    pub(crate) fn set_g(&self, g: Option<GRef<H>>) {
        self.g.set(g);
    }

    /// The P that this M holds, or held when it last looked.
    pub(crate) fn p(&self) -> Option<&P> {
        // SAFETY: Ps live as long as their scheduler.
        self.p.get().map(|p| unsafe { p.as_ref() })
    }

    /// Makes `p`, which the caller took out of the idle list or was given, this M's own.
    pub(crate) fn acquire(&self, p: NonNull<P>) {
        assert!(self.p.get().is_none(), "acquire: the M already holds a P");
        // SAFETY: as in `p`.
        let word = &unsafe { p.as_ref() }.handoff;
        self.tenure.set(Some(word.take_up()));
        self.p.set(Some(p));
        self.touch_p();
    }

    /// Gives the P up. The caller puts it where others find it, after this.
    pub(crate) fn release(&self) -> NonNull<P> {
        self.touch_p();
        let p = self.p.take().expect("release: the M holds no P");
        // SAFETY: as in `p`.
        unsafe { p.as_ref() }.handoff.give_up();
        p
    }

    /// One operation of the P's owner, for the ghost.
    pub(crate) fn touch_p(&self) {
        if let Some(p) = self.p() {
            p.owner.touch();
        }
    }

    /// Leaves a P for an M that sleeps, or is about to, on its note. The caller wakes it after this.
    pub(crate) fn give(&self, p: Option<NonNull<P>>) {
        // SAFETY: the caller took this M out of the idle list, and the M reads it only after the wake.
        self.given.with_mut(|given| unsafe { *given = p });
    }

    /// What was left by whoever woke this M.
    pub(crate) fn take_given(&self) -> Option<NonNull<P>> {
        // SAFETY: the note's wake came after `give`, and its sleep before this.
        self.given.with_mut(|given| unsafe { (*given).take() })
    }

    /// The goroutine side begins: `execute`, just before a resume.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        // Release: a retaker that reads Outside sees all that was done to the P inside.
        self.in_runtime.store(OUTSIDE, order(Mutant::HandoffLeaveRelaxed, Release));
    }

    /// E1 to E3; false when the P may be lost.
    #[inline(always)]
    fn enter(&self) -> bool {
        debug_assert!(self.in_runtime.load(Relaxed) == OUTSIDE, "enter: windows do not nest");
        // Relaxed: E2 orders it before E3.
        self.in_runtime.store(INSIDE, Relaxed);
        unless(Mutant::HandoffNoLightBarrier, light_barrier);
        match (self.p.get(), self.tenure.get()) {
            // SAFETY: as in `p`.
            (Some(p), Some(tenure)) => unsafe { p.as_ref() }.handoff.is_held(tenure),
            _ => false,
        }
    }

    /// The rest of an entry that did not find the word as it had left it.
    #[cold]
    fn settle(&self) -> Entry {
        match (self.p(), self.tenure.get()) {
            (Some(p), Some(tenure)) => p.handoff.enter(tenure),
            _ => Entry::Lost,
        }
    }

    /// Forgets a P that was taken away.
    pub(crate) fn lose_p(&self) {
        self.p.set(None);
        self.tenure.set(None);
    }

    /// R3, for a retaker.
    #[cfg(gmp_loom)]
    pub(crate) fn is_inside(&self) -> bool {
        // Acquire: pairs with `leave`. Outside means that all which was done inside is seen.
        self.in_runtime.load(order(Mutant::HandoffLookRelaxed, crate::prim::Acquire)) == INSIDE
    }
}

/// The calling goroutine is inside the runtime, and its M holds a P. Dropping it leaves.
pub(crate) struct Window<H: Host> {
    m: NonNull<M<H>>,
}

impl<H: Host> Window<H> {
    /// Enters the runtime from a goroutine; `None` on any other thread. May park the goroutine, when its M has
    /// lost its P meanwhile.
    #[inline(always)]
    pub(crate) fn enter() -> Option<Self> {
        let m = M::current()?;
        let m = if m.enter() { m } else { Self::reenter(m) };
        m.touch_p();
        Some(Window { m: NonNull::from(m) })
    }

    #[cold]
    #[inline(never)]
    fn reenter(mut m: &M<H>) -> &M<H> {
        loop {
            match m.settle() {
                Entry::In => return m,
                Entry::Lost => {
                    m.lose_p();
                    // SAFETY: this goroutine runs on `m`, and is inside the runtime.
                    unsafe { H::suspend(m, Yield::Return) };
                }
            }
            // The M that resumed us held a P, and left the runtime for it: enter as a fresh call.
            m = M::current().expect("reenter: a goroutine runs on an M");
            if m.enter() {
                return m;
            }
        }
    }

    pub(crate) fn m(&self) -> &M<H> {
        // SAFETY: the goroutine does not leave its M while the window is open.
        unsafe { self.m.as_ref() }
    }

    /// The goroutine whose window this is.
    pub(crate) fn g(&self) -> GRef<H> {
        self.m().g().expect("g: a window is opened by a goroutine")
    }

    /// Turns the window into a switch away from the goroutine, which returns outside of any window.
    #[inline(always)]
    pub(crate) fn suspend(self, what: Yield) {
        let m = self.m;
        std::mem::forget(self);
        // SAFETY: a window is opened by the goroutine that runs on its M.
        unsafe { H::suspend(m.as_ref(), what) };
    }
}

impl<H: Host> Drop for Window<H> {
    #[inline(always)]
    fn drop(&mut self) {
        self.m().leave();
    }
}
