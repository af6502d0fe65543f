//! A function that is called after the end of a context.

use crate::g::call_undisturbed;
use crate::goroutine;
use crate::host::{Active, Process};
use crate::prim::Weak;
use crate::sched::Sched;
use crate::sched::calls::run_aside_or_here;
use crate::sched::timers::timer_thread::Call;

/// A function that is called when a node is done, and the runtime for the call.
pub(super) struct AfterEnd {
    pub(super) f: Box<dyn FnOnce() + Send>,
    pub(super) home: Option<Weak<Sched<Active>>>,
}

impl AfterEnd {
    /// Starts the call. Called without a lock.
    pub(super) fn start(self) {
        let AfterEnd { f, home } = self;
        match home.and_then(|home| home.upgrade()) {
            Some(sched) if !sched.is_ending() => {
                let mut unrun = Unrun(Some(f));
                // If there is no stack for the goroutine, the drop of `unrun` leaves the function to a thread.
                drop(goroutine::spawn(&sched, goroutine::plain(&sched), move || {
                    if let Some(f) = unrun.0.take() {
                        f();
                    }
                }));
            }
            // A panic of the function stops there, and no interrupt ends its waits: this thread may run the function, in the
            // middle of ending a context.
            _ => run_aside_or_here::<Active>(move || call_undisturbed::<Active>(f)),
        }
    }
}

/// A call on the way to its goroutine. If the goroutine never runs, because the runtime ends or has no stack for it,
/// the drop leaves the call to the timer thread, as the ender of a runtime has no time to start threads.
struct Unrun(Option<Box<dyn FnOnce() + Send>>);

impl Drop for Unrun {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            Active::shared().timer_thread.leave(Call::Function(f));
        }
    }
}
