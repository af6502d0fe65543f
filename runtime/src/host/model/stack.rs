//! Real stacks, and how many of them a model has.

use super::host::Local;
use super::{ModelHost, schedule};
use crate::g::GRef;
use crate::host::{EXIT, Stack};
use crate::stack::switch::Coro;
use std::panic::resume_unwind;
use std::sync::OnceLock;

/// Leaves the host `count` stacks for the runtime from here on, besides those in use. `cached` says whether the Ps have caches
/// of them.
pub fn limit_stacks(runtime: &crate::Runtime, count: usize, cached: bool) {
    let host = &runtime.sched().host;
    host.world().stacks = count;
    host.caches_stacks.store(cached, std::sync::atomic::Ordering::Relaxed);
    host.short_of_stacks.store(true, std::sync::atomic::Ordering::Relaxed);
}

/// Returns how many goroutines have a stack, or will get one, as the runtime's host counts them.
#[cfg(test)]
pub(crate) fn reserved_stacks(sched: &crate::sched::Sched<ModelHost>) -> usize {
    sched.host.reserved.load(std::sync::atomic::Ordering::Relaxed)
}

/// A P's stacks.
#[derive(Default)]
pub struct StackCache {
    pub(super) real: crate::stack::pool::StackCache,
    /// If stacks are limited: how many of them this cache has.
    pub(super) spare: usize,
}

/// Stacks outlive an execution: the next one uses them again.
pub(super) fn stacks() -> &'static crate::stack::pool::StackPool {
    static STACKS: OnceLock<crate::stack::pool::StackPool> = OnceLock::new();
    STACKS.get_or_init(|| crate::stack::pool::StackPool::new(None, crate::stack::pool::GUARD))
}

/// A word that is neither `EXIT` nor a pointer to a `Yield`.
pub(super) const PANIC: usize = 1;

/// A real stack.
pub struct ModelStack {
    pub(super) coro: Coro,
}

// SAFETY: a suspended stack belongs to the owner of this value, on whichever thread.
unsafe impl Send for ModelStack {}

impl Stack<Local> for ModelStack {
    unsafe fn resume(&self, local: &Local, g: *mut ()) -> usize {
        let word = g.expose_provenance();
        // SAFETY: the scheduler resumes goroutines of its own.
        let g = unsafe { GRef::<ModelHost>::from_raw(g.cast()) };
        schedule::add(format_args!("resumes {g:?}"));
        // SAFETY: the caller won the right to run this goroutine, which has not ended, on the M of `local`.
        match unsafe { self.coro.resume(&local.home, word) } {
            EXIT => {
                schedule::add(format_args!("{g:?} has ended"));
                EXIT
            }
            PANIC => {
                let payload = local.panic.take().expect("resume: a panic has a payload");
                resume_unwind(payload)
            }
            said => {
                schedule::add(format_args!("{g:?} is saved"));
                said
            }
        }
    }

    #[inline(always)]
    fn coro(&self) -> &Coro {
        &self.coro
    }
}
