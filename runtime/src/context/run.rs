//! Running under a context: `Context::run`.
//!
//! The runner stands in the node's list of dependents, with a [`Frame`] on its stack, which is the innermost one of its
//! goroutine, or plain thread, meanwhile. Who ends the node, or one above it, nudges it; a wait of the runner then looks at
//! the frames and unwinds to here (`wait/interrupt.rs`).
//!
//! ```text
//!   R1 in the list, unless the node is done · R2 the frame is the innermost · f · R3 it is not · R4 out of the list
//! ```
//! A node that is done before R1 needs nobody to be nudged: each wait of `f` looks when it begins.
//!
//! A thread has one parker for all its waits under a frame, as the node must know it before there is a wait; nested
//! frames share the outermost one's.

use super::ContextError;
use super::tree::{Dependent, DependentNode, Node};
use crate::g::GRef;
use crate::host::{Active, Host};
use crate::m::M;
use crate::prim::Arc;
use crate::wait::interrupt::{Frame, Interrupt, Thrown};
use crate::wait::queue;
use crate::wait::waiter::{Parker, Runner};
use std::cell::Cell;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};

/// Who runs under a context.
enum Who {
    G(GRef<Active>),
    /// Holds the parker that the frame names.
    Thread(Arc<Parker<Active>>),
}

impl Who {
    fn calls() -> Self {
        match M::<Active>::current().and_then(M::g) {
            Some(g) => Who::G(g),
            None => Who::Thread(Parker::of_thread()),
        }
    }

    fn runner(&self) -> Runner<Active> {
        match self {
            Who::G(g) => Runner::G(*g),
            Who::Thread(parker) => Runner::Thread(Arc::clone(parker)),
        }
    }

    fn parker(&self) -> *const () {
        match self {
            Who::G(_) => ptr::null(),
            Who::Thread(parker) => Arc::as_ptr(parker).cast(),
        }
    }

    fn frame(&self) -> *const Frame {
        match self {
            Who::G(g) => g.frame.get(),
            Who::Thread(_) => Active::thread_frame(),
        }
    }

    fn frame_for(&self, node: &Node, mark: *const ()) -> Frame {
        Frame {
            done: node.done_word(),
            outer: self.frame(),
            mark,
            thrown: Cell::new(0),
            parker: self.parker(),
        }
    }

    fn set_frame(&self, frame: *const Frame) {
        match self {
            Who::G(g) => g.frame.set(frame),
            Who::Thread(_) => Active::set_thread_frame(frame),
        }
    }
}

pub(super) fn run<F, T>(node: &Arc<Node>, f: F) -> Result<T, ContextError>
where
    F: FnOnce() -> T,
{
    let (mut f, mut value) = (Some(f), None);
    run_erased(node, &mut || value = f.take().map(|f| f()))?;
    Ok(value.expect("run: the closure was called"))
}

/// Runs `f` with the node among those that interrupt it, and catches nothing: for a call of the library that hears of an
/// interrupt by [`OnInterrupt::Returning`](crate::wait::interrupt::OnInterrupt).
pub(super) fn under<T>(node: &Arc<Node>, f: impl FnOnce() -> T) -> T {
    let who = Who::calls();
    let frame = who.frame_for(node, ptr::null());
    let place = queue::Node::new(Dependent::Runner(who.runner()));
    // SAFETY: both stay here until it is dropped.
    let _entered = unsafe { Entered::new(node, &who, &frame, &place) };
    f()
}

/// Never inlined, and what it calls is opaque: nothing of the user's shares the frame that catches.
#[inline(never)]
fn run_erased(node: &Arc<Node>, f: &mut dyn FnMut()) -> Result<(), ContextError> {
    let who = Who::calls();
    let mark = 0_u8;
    let frame = who.frame_for(node, (&raw const mark).cast());
    let place = queue::Node::new(Dependent::Runner(who.runner()));
    // SAFETY: both stay here until it is dropped.
    let entered = unsafe { Entered::new(node, &who, &frame, &place) };
    let f = black_box(f);
    let caught = catch_unwind(AssertUnwindSafe(f));
    drop(entered);
    let Err(payload) = caught else { return Ok(()) };
    let target = Interrupt::Context(NonNull::from(&frame));
    match (payload.downcast_ref::<Thrown>(), node.err()) {
        // One of an earlier run, that somebody has kept, may have the same name; then this node is most likely open.
        (Some(thrown), Some(error)) if thrown.target == target => Err(error),
        _ => resume_unwind(payload),
    }
}

/// R1 to R4.
struct Entered<'a> {
    /// Held here: when the runtime leaves this goroutine behind, its place in the list stays.
    node: Arc<Node>,
    who: &'a Who,
    outer: *const Frame,
    in_list: Option<NonNull<DependentNode>>,
}

impl<'a> Entered<'a> {
    /// # Safety
    /// Frame and place stay where they are until this was dropped.
    unsafe fn new(node: &Arc<Node>, who: &'a Who, frame: &Frame, place: &DependentNode) -> Self {
        let in_list = NonNull::from(place);
        // SAFETY: it is removed in `drop`.
        let added = node.may_end() && unsafe { node.add(in_list) }.is_ok();
        who.set_frame(&raw const *frame);
        Entered { node: Arc::clone(node), who, outer: frame.outer, in_list: added.then_some(in_list) }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.who.set_frame(self.outer);
        if let Some(in_list) = self.in_list {
            // SAFETY: it stands there, or an end has taken it out.
            unsafe { self.node.remove(in_list) };
        }
    }
}
