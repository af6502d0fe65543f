//! The frame below the user's: the code that runs on a goroutine's own stack from the first instruction to the last.

use super::life::{HANDLE, OUTCOME};
use super::{Base, GRef};
use crate::g::task::{Aborted, Failure};
use crate::host::Host;
use crate::local::Locals;
use crate::prim::hooks::*;
use crate::prim::{AtomicPtr, Relaxed, Release};
use crate::sched::Sched;
use crate::sched::switch::Switching;
use crate::wait::interrupt::{Interrupt, Thrown, Undisturbed};
use std::any::Any;
use std::cell::Cell;

/// Runs `g` from the first instruction to the last, on `g`'s own stack.
pub(crate) fn root<H: Host>(g: GRef<H>) {
    let base = Base {
        mark: Cell::new(std::ptr::null()),
        locals: Locals::new(),
        standing_hooks: AtomicPtr::new(std::ptr::null_mut()),
        switching: Switching::new(),
    };
    g.base.set(&raw const base);
    let failure = if Sched::<H>::current().is_some_and(Sched::is_ending) {
        g.throws.end();
        // SAFETY: the spawner loaded the task, which did not run, and will not.
        drop_quietly::<H>(|| unsafe { g.task.discard() });
        Some(Failure::Shutdown)
    } else {
        run(g)
    };
    if let Some(Failure::Panic(_)) = failure
        && Sched::<H>::current().is_some_and(|sched| sched.config.knobs.panic_abort)
    {
        abort(g);
    }
    let to_drop = failure.is_some() || g.task.value_is_to_be_dropped();
    if let Some(failure) = failure {
        // SAFETY: `run` unwound, or the value is gone: the space is empty, and belongs to this goroutine.
        unsafe { g.task.fail(failure) };
    }
    // SAFETY: called once, when the handle is gone: then no other party has a right to the outcome.
    let forget = || drop_quietly::<H>(|| unsafe { g.task.forget() });
    let drop_locals = || base.locals.drop_all(|drop| drop_quietly::<H>(drop));
    // Release: publishes the outcome to the handle's `drop`: partners `look_for_drop` and `give_handle_back`. No Acquire: if
    // the handle is gone, there is nothing of it to see.
    let publish = || g.life.fetch_or(OUTCOME, Release.unless(OutcomeRelaxed));
    // Relaxed: if the handle is gone, there is nothing of it to see. HANDLE never comes back.
    if to_drop && g.life.load(Relaxed) & HANDLE == 0 {
        // There will be no joiner. Dropped first, so that the value's drop finds the goroutine's variables.
        forget();
        drop_locals();
    } else {
        drop_locals();
        if to_drop && publish() & HANDLE == 0 {
            // The handle went meanwhile. The value's drop can't use variables that are gone, but might have made others.
            forget();
            drop_locals();
        }
    }
    base.locals.free();
    g.base.set(std::ptr::null());
}

/// Runs the user's code. Returns why there is no value, if there is none.
fn run<H: Host>(g: GRef<H>) -> Option<Failure> {
    // SAFETY: the spawner loaded the task, and a goroutine runs once.
    let ran = H::catch(|| unsafe { g.task.run() });
    // From here on the goroutine ends, and destructors can park like any other code. No interrupt ends these waits.
    g.throws.end();
    match (ran, g.exits.replace(false)) {
        (Ok(()), false) => None,
        (Ok(()), true) => {
            // The user's code caught what was thrown, and returned. SAFETY: `run` has stored the value, which is this
            // goroutine's until published.
            drop_quietly::<H>(|| unsafe { g.task.forget() });
            Some(Failure::Goexit)
        }
        (Err(payload), exits) => Some(failure_of::<H>(payload, exits)),
    }
}

/// Ends the process, for `GMPDEBUG=panic=abort`. The panic's message was already printed.
#[cold]
fn abort<H: Host>(g: GRef<H>) -> ! {
    let name =
        g.with_birth(|birth| birth.name.as_deref().map(|name| format!(" '{name}'"))).unwrap_or_default();
    H::fatal(&format!("a panic has left goroutine {}{name}, and GMPDEBUG has panic=abort", g.id()))
}

/// Returns the failure for an unwinding that has arrived at `root`.
fn failure_of<H: Host>(payload: Box<dyn Any + Send>, exits: bool) -> Failure {
    match payload.downcast_ref::<Thrown>().map(|thrown| thrown.target) {
        Some(Interrupt::Exit) if exits => Failure::Goexit,
        Some(Interrupt::Shutdown) if Sched::<H>::current().is_some_and(Sched::is_ending) => Failure::Shutdown,
        _ if payload.is::<Aborted>() => Failure::Aborted,
        _ => Failure::Panic(payload),
    }
}

/// Calls foreign code in the middle of work that a goroutine, or a plain thread, does for others: calls a waker, or drops a
/// value. As `drop_quietly`; in addition no interrupt ends a wait of that code, as none does while a panic unwinds: otherwise
/// the code would leave its work half done, and the interrupt would be swallowed.
pub(crate) fn call_undisturbed<H: Host>(f: impl FnOnce()) {
    let _undisturbed = Undisturbed::<H>::begin();
    drop_quietly::<H>(f);
}

/// Drops an outcome or a variable that no one takes. A panic of the user's `drop` ends here: the panic hook has printed it, and
/// no joiner could get it.
fn drop_quietly<H: Host>(forget: impl FnOnce()) {
    if let Err(payload) = H::catch(forget) {
        // The payload's own drop might panic again, so the payload is leaked.
        std::mem::forget(payload);
    }
}
