//! What the program has each thread of a runtime do at its beginning and its end: `RuntimeBuilder::on_thread_start`.
//!
//! ```text
//!   thread ── the functions, in their order ── is an M ── is an M no more ── the guards, the last one first ── ends
//! ```
//! The functions, and the drops of what they return, are user code, on the thread's own stack. So they run where the thread is
//! no M: to the library it is a plain thread there, which blocks where a goroutine would park. The thread counts in `alive`
//! from before the functions until after the drops, so that the end of the runtime waits for both.
//!
//! The ender drops the functions, when no thread begins any more. The last owner of the scheduler may be a waker, on an M of
//! another runtime, with a goroutine of that one parked: there no code of the user's may run.

use crate::g::call_undisturbed;
use crate::host::{Host, Process};
use crate::prim::{Arc, Mutex, Rank};
use std::any::Any;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

type Start = dyn Fn() -> Box<dyn Any> + Send + Sync;

/// The functions that each thread of a runtime calls when it begins.
#[derive(Clone, Default)]
pub(crate) struct ThreadStarts(Vec<Arc<Start>>);

/// The functions of a runtime, until its end.
pub(crate) struct UntilTheEnd(Mutex<ThreadStarts>);

/// What the functions have returned. The drop, on the same thread, drops the last one first.
pub(crate) struct ThreadGuards(Vec<Box<dyn Any>>);

impl ThreadStarts {
    /// Adds a function behind the others.
    pub(crate) fn push<T: 'static>(&mut self, f: impl Fn() -> T + Send + Sync + 'static) {
        self.0.push(Arc::new(move || Box::new(f())));
    }

    /// Calls the functions. Unwinds with the panic of one, and then drops what those before have returned.
    pub(crate) fn call(&self) -> ThreadGuards {
        let mut guards = ThreadGuards(Vec::with_capacity(self.0.len()));
        self.0.iter().for_each(|start| guards.0.push(start()));
        guards
    }

    /// As `call`, on a thread of the runtime's: goroutines rely on what the functions do, so a panic of one ends the process.
    pub(crate) fn call_on_m<H: Host>(&self) -> ThreadGuards {
        let mut guards = None;
        if H::catch(|| guards = Some(self.call())).is_err() {
            H::fatal(
                "a function of RuntimeBuilder::on_thread_start panicked, and its thread can run no goroutine without it",
            );
        }
        guards.expect("call_on_m: the functions have returned")
    }
}

impl UntilTheEnd {
    pub(crate) fn new(starts: ThreadStarts) -> Self {
        UntilTheEnd(Mutex::new(Rank::ThreadStarts, starts))
    }

    /// Returns the functions; none when the end of the runtime is over.
    pub(crate) fn get(&self) -> ThreadStarts {
        self.0.lock().clone()
    }

    /// Drops the functions. The end of the runtime is over.
    pub(crate) fn end<H: Host>(&self) {
        let starts = self.take();
        // Without the lock: what the functions have captured is the user's.
        call_undisturbed::<H>(|| drop(starts));
    }

    /// As `end`, for a caller that no M resumes: on another thread.
    pub(crate) fn end_aside<H: Host>(&self) {
        let starts = self.take();
        if !starts.0.is_empty() {
            H::run_aside(move || call_undisturbed::<H>(|| drop(starts)));
        }
    }

    fn take(&self) -> ThreadStarts {
        std::mem::take(&mut *self.0.lock())
    }
}

impl ThreadGuards {
    /// Drops the guards on a thread of the runtime's. A panic of a drop was printed by the hook, and ends there.
    pub(crate) fn drop_on_m<H: Process>(mut self) {
        while let Some(guard) = self.0.pop() {
            if let Err(payload) = H::catch(|| drop(guard)) {
                // The payload's own drop may panic again: leak the payload instead.
                std::mem::forget(payload);
            }
        }
    }
}

impl Drop for ThreadGuards {
    fn drop(&mut self) {
        while let Some(guard) = self.0.pop() {
            drop(guard);
        }
    }
}

// What a panic leaves of a function's own state is the function's affair: the next thread calls it all the same.
impl UnwindSafe for ThreadStarts {}
impl RefUnwindSafe for ThreadStarts {}

impl fmt::Debug for ThreadStarts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} functions", self.0.len())
    }
}
