//! The program's functions at the beginning and the end of each thread of a runtime: `RuntimeBuilder::on_thread_start`.
//!
//! ```text
//!   thread ── functions, in their order ── becomes an M ── no longer an M ── drops of the guards, last one first ── ends
//! ```
//! The functions, and the drops of their values, are user code, on the thread's own stack. So they run while the thread is no
//! M: to the library it is then a plain thread, which blocks where a goroutine would park. The thread counts in `alive` from
//! before the functions until after the drops, so that the end of the runtime waits for both.
//!
//! The ender drops the functions, once no further thread begins. The last owner of the scheduler may be a waker, on an M of
//! another runtime that has a goroutine of its own parked: no user code may run there.

use crate::g::call_undisturbed;
use crate::host::Host;
use crate::impls::unwind_safe;
use crate::prim::{Arc, Mutex, Rank};
use crate::sched::calls::run_aside;
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;

type Start = dyn Fn() -> Box<dyn Any> + Send + Sync;

/// The functions that each thread of a runtime calls when it begins.
#[derive(Clone, Default)]
pub(crate) struct ThreadStarts(Vec<Arc<Start>>);

/// The functions of a runtime, until its end.
pub(crate) struct UntilTheEnd(Mutex<ThreadStarts>);

/// The values of the functions. The drop, on the same thread, which is no longer an M, drops the last value first. A panic of a
/// guard's drop is printed by the hook, and stops there, also while another panic unwinds.
pub(crate) struct ThreadGuards<H: Host>(Vec<Box<dyn Any>>, PhantomData<fn(H)>);

impl ThreadStarts {
    /// Adds a function behind the others.
    pub(crate) fn push<T: 'static>(&mut self, f: impl Fn() -> T + Send + Sync + 'static) {
        self.0.push(Arc::new(move || Box::new(f())));
    }

    /// Calls the functions. If a function panics, unwinds with that panic, and drops the values of the functions before it.
    pub(crate) fn call<H: Host>(&self) -> ThreadGuards<H> {
        let mut guards = ThreadGuards(Vec::with_capacity(self.0.len()), PhantomData);
        self.0.iter().for_each(|start| guards.0.push(start()));
        guards
    }

    /// As `call`, on a thread of the runtime: goroutines rely on the functions, so a panic of one ends the process.
    pub(crate) fn call_on_m<H: Host>(&self) -> ThreadGuards<H> {
        let mut guards = None;
        if let Err(payload) = H::catch(|| guards = Some(self.call())) {
            // Forgotten, as its drop might unwind from here, before the process ends.
            std::mem::forget(payload);
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

    /// Drops the functions, when the end of the runtime is over.
    pub(crate) fn end<H: Host>(&self) {
        let starts = self.take();
        // Without the lock: the drops of the functions' captures are user code.
        call_undisturbed::<H>(|| drop(starts));
    }

    /// As `end`, but on another thread, for a caller that no M would resume after a park.
    pub(crate) fn end_aside<H: Host>(&self) {
        let starts = self.take();
        if !starts.0.is_empty() {
            run_aside::<H>(move || call_undisturbed::<H>(|| drop(starts)));
        }
    }

    fn take(&self) -> ThreadStarts {
        std::mem::take(&mut *self.0.lock())
    }
}

impl<H: Host> Drop for ThreadGuards<H> {
    fn drop(&mut self) {
        while let Some(guard) = self.0.pop() {
            call_undisturbed::<H>(|| drop(guard));
        }
    }
}

// The state in which a panic leaves a function is the function's responsibility: the next thread calls it all the same.
unwind_safe!(ThreadStarts);

impl fmt::Debug for ThreadStarts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} functions", self.0.len())
    }
}
