//! Running under a context: `Context::run`.
//!
//! The *runner* is the goroutine or plain thread that calls `run`. The runner stands in the node's list of dependents, and has
//! a [`Frame`] on its stack, the innermost of its frames while `f` runs. The ender of the node, or of a node above, nudges the
//! runner; a wait of the runner then finds the frame's node done, and unwinds to here (`wait/interrupt.rs`).
//!
//! ```text
//!   R1 enter the list, unless the node is done · R2 push the frame · f · R3 pop the frame · R4 leave the list
//! ```
//! If the node is done before R1, no nudge is needed: each wait of `f` checks the frames at its beginning.
//!
//! A plain thread has one parker for all waits under a frame, as the node must know the parker before there is a wait;
//! nested frames share the outermost frame's parker.

use super::ContextError;
use super::tree::{Dependent, DependentNode, Node};
use crate::host::{Active, Threads};
use crate::m::M;
use crate::prim::Arc;
use crate::wait::interrupt::{Frame, Interrupt, Thrown};
use crate::wait::queue;
use crate::wait::waiter::{Parker, Runner};
use std::any::Any;
use std::cell::Cell;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};

impl Clone for Runner<Active> {
    fn clone(&self) -> Self {
        match self {
            Runner::G(g) => Runner::G(*g),
            Runner::Thread(parker) => Runner::Thread(Arc::clone(parker)),
        }
    }
}

impl Runner<Active> {
    fn calls() -> Self {
        match M::<Active>::current().and_then(M::g) {
            Some(g) => Runner::G(g),
            None => Runner::Thread(Parker::of_thread()),
        }
    }

    /// Returns the parker that a frame of the runner names. The runner holds the parker.
    fn parker(&self) -> *const () {
        match self {
            Runner::G(_) => ptr::null(),
            Runner::Thread(parker) => Arc::as_ptr(parker).cast(),
        }
    }

    fn frame(&self) -> *const Frame {
        match self {
            Runner::G(g) => g.frame.get(),
            Runner::Thread(_) => Active::thread_frame().cast(),
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
            Runner::G(g) => g.frame.set(frame),
            Runner::Thread(_) => Active::set_thread_frame(frame.cast()),
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

/// Runs `f` under the node, and catches nothing: for a call of the library whose waits are
/// [`OnInterrupt::Returning`](crate::wait::interrupt::OnInterrupt).
pub(super) fn under<T>(node: &Arc<Node>, f: impl FnOnce() -> T) -> T {
    let who = Runner::calls();
    let frame = who.frame_for(node, ptr::null());
    let place = queue::Node::new(Dependent::Runner(who.clone()));
    // SAFETY: frame and place stay in this function's frame until the `Entered` is dropped.
    let _entered = unsafe { Entered::new(node, &who, &frame, &place) };
    f()
}

/// Never inlined, and the type of `f` is erased: no user code shares this frame, or the frame that catches.
#[inline(never)]
fn run_erased(node: &Arc<Node>, f: &mut dyn FnMut()) -> Result<(), ContextError> {
    let who = Runner::calls();
    let mark = 0_u8;
    let frame = who.frame_for(node, (&raw const mark).cast());
    let place = queue::Node::new(Dependent::Runner(who.clone()));
    // SAFETY: frame and place stay in this function's frame until the `Entered` is dropped.
    let entered = unsafe { Entered::new(node, &who, &frame, &place) };
    // By a pointer that the compiler can't see through: otherwise it may know that the callee catches, and leave the call out
    // of this function's table; the look takes such a call for one that must not throw (`host/native/frames`).
    let caught = black_box(caught as fn(&mut dyn FnMut()) -> Result<(), Box<dyn Any + Send>>)(f);
    drop(entered);
    let Err(payload) = caught else { return Ok(()) };
    let target = Interrupt::Context(NonNull::from(&frame));
    match (payload.downcast_ref::<Thrown>(), node.err()) {
        // A payload of an earlier run that the user has kept can name the same target; then this node is most likely open, and
        // the unwinding continues.
        (Some(thrown), Some(error)) if thrown.target == target => Err(error),
        _ => resume_unwind(payload),
    }
}

/// Never inlined: the unwinder reads the table and the rules of the frame that catches, which are short here.
#[inline(never)]
fn caught(f: &mut dyn FnMut()) -> Result<(), Box<dyn Any + Send>> {
    let f = black_box(f);
    catch_unwind(AssertUnwindSafe(f))
}

/// R1 to R4.
struct Entered<'a> {
    /// This field holds the node, which so lives as long as its list has this place, even if the runtime leaves this goroutine
    /// behind.
    node: Arc<Node>,
    who: &'a Runner<Active>,
    outer: *const Frame,
    in_list: Option<NonNull<DependentNode>>,
}

impl<'a> Entered<'a> {
    /// # Safety
    /// Frame and place stay where they are until the result is dropped.
    unsafe fn new(node: &Arc<Node>, who: &'a Runner<Active>, frame: &Frame, place: &DependentNode) -> Self {
        let in_list = NonNull::from(place);
        // SAFETY: `drop` removes the place from the list.
        let added = unsafe { node.add(in_list) }.is_ok();
        who.set_frame(&raw const *frame);
        Entered { node: Arc::clone(node), who, outer: frame.outer, in_list: added.then_some(in_list) }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.who.set_frame(self.outer);
        if let Some(in_list) = self.in_list {
            // SAFETY: the place stands in this list, or the ender has taken the place out.
            unsafe { self.node.remove(in_list) };
        }
    }
}
