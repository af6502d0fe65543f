//! Ending a wait from outside: who may be interrupted, by what, and how it unwinds.
//!
//! A goroutine, or a plain thread, is interrupted by a context under which it runs (`Context::run`), or by its own
//! `goexit`. Each `run` puts a [`Frame`] on the stack; the innermost one whose context is done counts.
//!
//! ```text
//!   cancel:  C1 the context is done · C2 fence · C3 nudge whoever runs under it
//!   park:    K1 saved and Waiting   · K2 fence · K3 is a context done?  nudge itself, after the commit hook
//! ```
//! One of the fences comes first: C3 finds the owner Waiting, or K3 sees C1. An owner that was nudged looks: it judges
//! whether it may be unwound, claims its own wait by the same CAS as any counterpart, leaves its queues, and throws. A
//! counterpart that was faster has the wait end as if nothing had happened. Where it may not be unwound it sleeps on,
//! and is *deaf* to that frame, and to those around it, until the wait ends.
//!
//! What is thrown is a [`Thrown`], by `resume_unwind`: no panic hook runs, destructors do. The frame for which it is meant
//! catches it; others pass it on. Who catches it for good is thrown at again at its next park, three times.

use crate::g::GRef;
use crate::host::Host;
use crate::m::M;
use crate::prim::{Acquire, AtomicU32, Mutant, Ordering, fence, unless};
use std::cell::Cell;
use std::panic::resume_unwind;
use std::ptr::NonNull;

/// How often a goroutine that catches what is thrown at it is thrown at again.
const THROWS: u8 = 3;

/// `Context::run`, on the stack of whoever runs under it.
pub(crate) struct Frame {
    /// Not zero: the context is done.
    pub(crate) done: NonNull<AtomicU32>,
    /// The next one outwards; null for none.
    pub(crate) outer: *const Frame,
    /// An address of the function that catches.
    pub(crate) mark: *const (),
    pub(crate) thrown: Cell<u8>,
    /// A plain thread's: the parker of all its waits under this frame, counted by `run`. Null for a goroutine.
    pub(crate) parker: *const (),
}

impl Frame {
    fn is_done(&self) -> bool {
        // Acquire: what came before the cancel.
        // SAFETY: `run` keeps its context as long as its frame.
        unsafe { self.done.as_ref() }.load(Acquire) != 0
    }
}

/// What interrupts a wait.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Interrupt {
    /// The goroutine was told to end, and somebody caught that.
    Exit,
    /// The context of this frame is done.
    Context(NonNull<Frame>),
}

/// The payload of an unwinding that is no panic.
pub(crate) struct Thrown {
    pub(crate) target: Interrupt,
}

// SAFETY: the target is a name; it is followed only by the frame itself, which compares it with its own address.
unsafe impl Send for Thrown {}

/// How a wait takes an interrupt.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Ends {
    /// By unwinding, where the stack may be unwound.
    Unwinding,
    /// By an error that the call returns.
    Returning,
    /// Not at all.
    Never,
}

/// The innermost frame that is done, if the waiter is not deaf to it.
pub(crate) fn first_done(mut frame: *const Frame, deaf_to: *const Frame) -> Option<NonNull<Frame>> {
    while frame != deaf_to {
        // SAFETY: frames leave the chain before they go.
        let it = unsafe { frame.as_ref() }?;
        if it.is_done() {
            return NonNull::new(frame.cast_mut());
        }
        frame = it.outer;
    }
    None
}

/// K2 and K3, on the M, with the goroutine saved and its wait not yet published.
pub(crate) fn is_interrupted<H: Host>(g: GRef<H>) -> bool {
    if g.exits.get() {
        return true;
    }
    // SeqCst: the store of Waiting, then a load of `done`; partner: C2.
    unless(Mutant::InterruptParkNoFence, || fence(Ordering::SeqCst));
    let mut seen = false;
    unless(Mutant::InterruptNotSeen, || seen = first_done(g.frame.get(), std::ptr::null()).is_some());
    seen
}

/// C2: between the store of `done` and the look at who runs under the context.
pub(crate) fn cancel_fence() {
    // SeqCst: partner K2.
    unless(Mutant::InterruptCancelNoFence, || fence(Ordering::SeqCst));
}

impl Interrupt {
    /// Whether what is thrown is certain to arrive, and worth another try. Called where it would be thrown.
    fn may_throw<H: Host>(self) -> bool {
        let (mark, thrown) = match self {
            Interrupt::Exit => match M::<H>::current().and_then(M::g) {
                Some(g) => (g.task.mark.get(), g.thrown.get()),
                None => return false,
            },
            // SAFETY: the caller runs under the frame.
            Interrupt::Context(frame) => unsafe { (frame.as_ref().mark, frame.as_ref().thrown.get()) },
        };
        thrown < THROWS && H::may_unwind_to(mark)
    }

    /// Unwinds to where this is caught. The caller has left all queues.
    pub(crate) fn throw<H: Host>(self) -> ! {
        match self {
            Interrupt::Exit => {
                let g = M::<H>::current().and_then(M::g).expect("throw: a goroutine exits");
                g.thrown.set(g.thrown.get() + 1);
            }
            Interrupt::Context(frame) => {
                // SAFETY: as in `may_throw`.
                let thrown = unsafe { &frame.as_ref().thrown };
                thrown.set(thrown.get() + 1);
            }
        }
        resume_unwind(Box::new(Thrown { target: self }))
    }
}

/// What a waiter looks at: its innermost frame, and whether it exits.
#[derive(Copy, Clone)]
pub(crate) struct Outlook {
    pub(crate) frame: *const Frame,
    pub(crate) exits: bool,
}

impl Outlook {
    /// Whether a wait that ends like this has anything to heed.
    #[inline]
    pub(crate) fn heeds<H: Host>(self, ends: Ends) -> bool {
        (self.exits || !self.frame.is_null()) && ends != Ends::Never && !H::is_panicking()
    }

    /// What the wait is to end by, if there is anything to which the waiter is not deaf. Else it is deaf from here on.
    pub(crate) fn interrupt<H: Host>(self, ends: Ends, deaf: &mut Deaf) -> Option<Interrupt> {
        if self.exits && !deaf.to_exit {
            if Interrupt::Exit.may_throw::<H>() {
                return Some(Interrupt::Exit);
            }
            deaf.to_exit = true;
        }
        let frame = first_done(self.frame, deaf.to_frame)?;
        let interrupt = Interrupt::Context(frame);
        if ends == Ends::Returning || interrupt.may_throw::<H>() {
            return Some(interrupt);
        }
        deaf.to_frame = frame.as_ptr();
        None
    }
}

/// What a wait can't be ended by.
pub(crate) struct Deaf {
    to_frame: *const Frame,
    to_exit: bool,
}

impl Deaf {
    pub(crate) fn new() -> Self {
        Deaf { to_frame: std::ptr::null(), to_exit: false }
    }
}
