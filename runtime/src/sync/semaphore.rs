//! A semaphore: a number of permits, granted in the order of the requests.

use crate::context::{Context, ContextError, interrupted};
use crate::host::Active;
use crate::prim::hooks::*;
use crate::prim::{Mutex, Rank, const_fn};
use crate::sched::park::{Commit, WaitReason};
use crate::sync::wait_queue::{HasWaitQueue, Left, Notified, Position, WaitQueue, wait_in};
use crate::wait::interrupt::{Interrupt, OnInterrupt};
use crate::wait::waiter::{How, Wait, Woke};
use std::fmt;

/// Grants permits, up to a capacity; a request may be for several at once.
///
/// Requests are met in the order in which they came: a large request at the head holds back the small ones behind, so
/// large requests do not starve. Goroutines and plain threads may be mixed. There are no guards: permits are given back
/// by [`release`](Self::release), on any thread. A goroutine that unwinds in between, by a panic or by the end of a
/// [`Context`] under which it runs, keeps its permits taken, unless one of its destructors releases them. (The
/// semantics of Go's `golang.org/x/sync/semaphore`.)
///
/// ```
/// use gmp::{go, sync::Semaphore};
/// use std::sync::Arc;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let permits = Arc::new(Semaphore::new(2));
///         let workers: Vec<_> = (0..4)
///             .map(|_| {
///                 let permits = Arc::clone(&permits);
///                 go(move || {
///                     permits.acquire(1);
///                     // No more than two at a time come here.
///                     permits.release(1);
///                 })
///             })
///             .collect();
///         workers.into_iter().for_each(|worker| worker.join().unwrap());
///         assert!(permits.try_acquire(2));
///     })
/// }
/// ```
pub struct Semaphore {
    capacity: usize,
    state: Mutex<State>,
}

struct State {
    free: usize,
    waiters: WaitQueue<Ask>,
}

impl HasWaitQueue for State {
    type Want = Ask;
    fn waiters(&mut self, _want: &Ask) -> &mut WaitQueue<Ask> {
        &mut self.waiters
    }
    fn settle(ask: &Ask, notified: bool) {
        // SAFETY: the record's owner never runs again, and borrows the semaphore for good.
        unsafe { &*ask.semaphore }.release(if notified { ask.permits } else { 0 });
    }
}

struct Ask {
    semaphore: *const Semaphore,
    permits: usize,
}

// SAFETY: the semaphore is Sync.
unsafe impl Send for Ask {}

impl State {
    /// Takes `permits`, if they are free and that overtakes no waiter.
    fn take(&mut self, permits: usize) -> bool {
        let takes = self.free >= permits && self.waiters.first().is_none();
        if takes {
            self.free -= permits;
        }
        takes
    }

    /// Grants the requests at the head of the queue, as long as they fit.
    fn grant(&mut self, notified: &mut Notified<Ask>) {
        let free = &mut self.free;
        while let Some(record) = self.waiters.notify_if(notified, |ask| ask.permits <= *free) {
            *free -= record.want.permits;
        }
    }
}

impl Semaphore {
    const_fn! {
        /// Makes a semaphore with `capacity` permits, all free.
        pub fn new(capacity: usize) -> Self {
            Semaphore { capacity, state: Mutex::new(Rank::WaitQueue, State { free: capacity, waiters: WaitQueue::new() }) }
        }
    }

    /// Takes `permits`. Blocks the calling goroutine, or the plain thread, until they are free and all earlier requests
    /// have been met. A request for more than the capacity waits outside the queue until an interrupt, and holds no
    /// other request back.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn acquire(&self, permits: usize) {
        if let Err(interrupt) = self.acquire_in(permits, OnInterrupt::Unwinding) {
            interrupt.throw::<Active>();
        }
    }

    /// As [`acquire`](Self::acquire), as long as `context` is not done: a cancel that comes before the permits wins.
    /// A context under which the caller runs ([`Context::run`]) ends the wait as well.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// The context's error; no permits were taken then.
    pub fn acquire_ctx(&self, context: &Context, permits: usize) -> Result<(), ContextError> {
        if let Some(error) = context.err() {
            return Err(error);
        }
        context.under(|| self.acquire_in(permits, OnInterrupt::Returning).map_err(interrupted::<Active>))?;
        // A cancel only wakes the waiter, whose record stays in the queue until the waiter runs: permits may have
        // been granted in between.
        match context.err() {
            None => Ok(()),
            Some(error) => {
                self.release(permits);
                Err(error)
            }
        }
    }

    /// Takes `permits`. The error is what interrupted the wait; by then the requests that this one held back have
    /// been granted, as far as they fit.
    pub(crate) fn acquire_in(&self, permits: usize, ends: OnInterrupt) -> Result<(), Interrupt> {
        if self.try_acquire(permits) {
            return Ok(());
        }
        let how = How::new(WaitReason::Semaphore).ends(ends);
        let mut wait = Wait::begin();
        if permits > self.capacity {
            return match wait.park(how, || Commit::Park) {
                Woke::Interrupted(interrupt) => Err(interrupt),
                woke => unreachable!("acquire: nobody knows of this wait ({woke:?})"),
            };
        }
        let mut state = self.state.lock();
        if state.take(permits) {
            drop(state);
            wait.withdraw();
            return Ok(());
        }
        let ask = Ask { semaphore: self, permits };
        match wait_in(wait, &self.state, state, (ask, Position::Back), how) {
            Ok(_granted) => Ok(()),
            Err(Left { mut state, by }) => {
                let mut notified = Notified::new();
                unless!(SemaphoreLeavesQuietly, state.grant(&mut notified));
                drop(state);
                notified.ready();
                Err(by.expect("acquire: a wait without a limit was called or interrupted"))
            }
        }
    }

    /// Takes `permits` if they are free and no request waits. Returns `false` otherwise. Does not block.
    pub fn try_acquire(&self, permits: usize) -> bool {
        self.state.lock().take(permits)
    }

    /// Gives `permits` back. Does not block.
    ///
    /// # Panics
    /// If more permits would be free than the capacity; nothing has changed then.
    #[track_caller]
    pub fn release(&self, permits: usize) {
        let mut notified = Notified::new();
        let mut state = self.state.lock();
        let free = state.free.checked_add(permits).filter(|free| *free <= self.capacity);
        if let Some(free) = free {
            state.free = free;
            unless!(SemaphoreGrantsNobody, state.grant(&mut notified));
        }
        drop(state);
        notified.ready();
        assert!(free.is_some(), "Semaphore: {permits} released, more than are held");
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        let mut it = f.debug_struct("Semaphore");
        it.field("capacity", &self.capacity).field("free", &state.free);
        it.field("waiting", &state.waiters.len()).finish()
    }
}
