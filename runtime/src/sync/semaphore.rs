//! A semaphore: a number of permits, granted in the order of the requests.
//!
//! Under one lock lie a queue of the requests that the capacity can meet, in order, and a queue for each size of requests for
//! more than the capacity, which wait for `add_permits` and hold no other request back. A record's size and the capacity say in
//! which queue the record is, and `add_permits` moves the records that the new capacity can meet, and looks at no other: each
//! record moves once at most. `close` notifies all waiters, and marks their records as closed.

mod err;
mod future;
mod permit;

pub(super) use future::Request;

pub use err::{AcquireContextError, AcquireError, AcquireTimeoutError, TryAcquireError};
pub use permit::{OwnedSemaphorePermit, SemaphorePermit};

use crate::context::{Context, ContextError, interrupted};
use crate::host::Active;
use crate::prim::hooks::*;
use crate::prim::{Mutex, Rank, const_fn};
use crate::sched::park::WaitReason;
use crate::sync::wait_queue::{HasWaitQueue, Left, Notified, Position, WaitQueue, wait_in};
use crate::wait::interrupt::{Interrupt, OnInterrupt};
use crate::wait::task::Readied;
use crate::wait::waiter::{How, Wait};
use gmp_timers::Nanos;
use std::cell::Cell;
use std::collections::{BTreeMap, btree_map};
use std::{fmt, iter, mem};

/// Grants permits, up to a capacity; a request can be for several at once.
///
/// Requests are met in the order in which they came: a large request at the head holds back the small ones behind, so
/// large requests do not starve. Goroutines and plain threads may be mixed. (The semantics of Go's
/// `golang.org/x/sync/semaphore`.)
///
/// [`acquire_guard`](Self::acquire_guard), and [`acquire_owned`](Self::acquire_owned) of an `Arc`, return a guard, whose drop
/// gives the permits back, also when its goroutine unwinds. [`acquire`](Self::acquire) returns no guard:
/// [`release`](Self::release) gives such permits back, on any thread, and if a goroutine unwinds in between, by a panic or by
/// the end of a [`Context`] under which it runs, they stay taken.
///
/// A semaphore that is [closed](Self::close) grants no more permits: requests for guards return an error, and
/// [`acquire`](Self::acquire), which returns no `Result`, panics.
///
/// ```
/// use gmp::{go, sync::Semaphore};
/// use std::sync::Arc;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let permits = Arc::new(Semaphore::new(2));
///         for request in 0..4 {
///             // Waits here while two requests are served.
///             let permit = permits.acquire_owned(1).unwrap();
///             go(move || {
///                 let _answer = request * 2;
///                 drop(permit);
///             });
///         }
///         let _all = permits.acquire_guard(2).unwrap();
///     })
/// }
/// ```
///
/// Without guards:
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
///                     // At most two at a time come here.
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
    state: Mutex<State>,
}

struct State {
    capacity: usize,
    free: usize,
    closed: bool,
    waiters: WaitQueue<Ask>,
    /// Requests for more than the capacity, by their size. Outside a critical section no queue is empty; but a queue may hold
    /// only records that can't be notified.
    too_large: BTreeMap<usize, WaitQueue<Ask>>,
    /// How many requests have joined a queue.
    asked: u64,
}

impl HasWaitQueue for State {
    type Want = Ask;
    fn waiters(&mut self, want: &Ask) -> &mut WaitQueue<Ask> {
        if want.permits > self.capacity {
            self.too_large.entry(want.permits).or_insert_with(WaitQueue::new)
        } else {
            &mut self.waiters
        }
    }
    fn settle(ask: &Ask, notified: bool) -> Readied<Active> {
        let granted = notified && !ask.closed.get();
        mutant!(SemaphoreLeftTakesARefusalForAGrant: let granted = notified);
        // SAFETY: the record's owner never runs again, and borrows the semaphore for good.
        let semaphore = unsafe { &*ask.semaphore };
        semaphore.put_back_what_fits(if granted { ask.permits } else { 0 }).ready_in_silence()
    }
}

struct Ask {
    semaphore: *const Semaphore,
    permits: usize,
    /// Requests have rising numbers.
    number: u64,
    /// The request was notified of the close, and has no permits. Written by the notifier.
    closed: Cell<bool>,
}

// SAFETY: the semaphore is Sync; the cell belongs to the notifier that has claimed the wait, and then to the waiter.
unsafe impl Send for Ask {}

/// Returns how a request without a time limit waits.
fn how(ends: OnInterrupt) -> How {
    How::new(WaitReason::Semaphore).ends(ends)
}

/// Why a request was not met.
enum Refused {
    Closed,
    /// The time limit came first.
    Late,
    Interrupted(Interrupt),
}

impl State {
    /// Takes `permits`, if they are free and no waiter is overtaken.
    fn take(&mut self, permits: usize) -> bool {
        let takes = !self.closed && self.free >= permits && self.waiters.first().is_none();
        if takes {
            self.free -= permits;
        }
        takes
    }

    /// Makes the request of a caller that is about to wait.
    fn ask(&mut self, semaphore: &Semaphore, permits: usize) -> Ask {
        self.asked += 1;
        Ask { semaphore, permits, number: self.asked, closed: Cell::new(false) }
    }

    /// A request for `permits` has left its queue: grants the requests that this one held back.
    fn let_go(&mut self, permits: usize, notified: &mut Notified<Ask>) {
        if let btree_map::Entry::Occupied(queue) = self.too_large.entry(permits)
            && queue.get().is_empty()
        {
            queue.remove();
        }
        self.grant(notified);
    }

    /// Returns how many requests wait, including those for more than the capacity.
    fn waiting(&self) -> usize {
        self.waiters.len() + self.too_large.values().map(WaitQueue::len).sum::<usize>()
    }

    /// Grants requests at the head of the queue, as long as they fit.
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
            let state = State {
                capacity,
                free: capacity,
                closed: false,
                waiters: WaitQueue::new(),
                too_large: BTreeMap::new(),
                asked: 0,
            };
            Semaphore { state: Mutex::new(Rank::WaitQueue, state) }
        }
    }

    /// Takes `permits`, without a guard. Blocks the calling goroutine, or the plain thread, until they are free and all
    /// earlier requests have been met. A request for more than the capacity waits outside the queue until
    /// [`add_permits`](Self::add_permits) has made the capacity large enough, and then joins the queue at its end: it
    /// holds no other request back.
    ///
    /// ```
    /// use gmp::sync::Semaphore;
    ///
    /// let connections = Semaphore::new(3);
    /// connections.acquire(3);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| connections.release(2));
    ///     connections.acquire(1);
    /// });
    /// assert_eq!(connections.available_permits(), 1);
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Panics
    /// When the semaphore is [closed](Self::close), before the call or meanwhile.
    #[track_caller]
    pub fn acquire(&self, permits: usize) {
        assert!(self.acquire_open(permits).is_ok(), "acquire: the semaphore is closed");
    }

    /// As `acquire`, with an error for the close.
    fn acquire_open(&self, permits: usize) -> Result<(), AcquireError> {
        match self.acquire_in(permits, how(OnInterrupt::Unwinding)) {
            Ok(()) => Ok(()),
            Err(Refused::Interrupted(interrupt)) => interrupt.throw::<Active>(),
            Err(Refused::Closed | Refused::Late) => Err(AcquireError),
        }
    }

    /// As [`acquire`](Self::acquire), while `context` is not done: a cancel that comes before the permits wins. A context under
    /// which the caller runs ([`Context::run`]) ends the wait as well.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// The context's error; no permits were taken then.
    ///
    /// # Panics
    /// When the semaphore is [closed](Self::close), before the call or meanwhile.
    #[track_caller]
    pub fn acquire_ctx(&self, context: &Context, permits: usize) -> Result<(), ContextError> {
        self.acquire_under(context, permits).map_err(|error| match error {
            AcquireContextError::Context(error) => error,
            AcquireContextError::Closed => panic!("acquire_ctx: the semaphore is closed"),
        })
    }

    /// As `acquire_ctx`, with an error for the close.
    fn acquire_under(&self, context: &Context, permits: usize) -> Result<(), AcquireContextError> {
        if let Some(error) = context.err() {
            return Err(error.into());
        }
        context.under(|| match self.acquire_in(permits, how(OnInterrupt::Returning)) {
            Ok(()) => Ok(()),
            Err(Refused::Interrupted(interrupt)) => Err(interrupted::<Active>(interrupt).into()),
            Err(Refused::Closed | Refused::Late) => Err(AcquireContextError::Closed),
        })?;
        // A cancel only wakes the waiter, whose record stays in the queue until the waiter runs: permits may have
        // been granted in between.
        match context.err() {
            None => Ok(()),
            Some(error) => {
                unless!(SemaphoreKeepsTheGrant, self.put_back_what_fits(permits).ready());
                Err(error.into())
            }
        }
    }

    /// Takes `permits`, for which the caller waits as `how` says. When this returns an error, it has granted the requests that
    /// this one held back, as far as they fit.
    fn acquire_in(&self, permits: usize, how: How) -> Result<(), Refused> {
        if self.try_acquire(permits) {
            return Ok(());
        }
        let wait = Wait::begin();
        let mut state = self.state.lock();
        if state.closed || state.take(permits) {
            let closed = state.closed;
            drop(state);
            wait.withdraw();
            return if closed { Err(Refused::Closed) } else { Ok(()) };
        }
        let ask = state.ask(self, permits);
        match wait_in(wait, &self.state, state, (ask, Position::Back), how) {
            Ok(ask) if ask.closed.get() => Err(Refused::Closed),
            Ok(_granted) => Ok(()),
            Err(Left { mut state, by }) => {
                let mut notified = Notified::new();
                unless!(SemaphoreLeavesQuietly, state.let_go(permits, &mut notified));
                drop(state);
                notified.ready();
                Err(by.map_or(Refused::Late, Refused::Interrupted))
            }
        }
    }

    /// As [`acquire_guard`](Self::acquire_guard) for one permit of a semaphore that is never closed, at most until `until`.
    /// Dumps show `reason`.
    ///
    /// # Errors
    /// The interrupt that ended the wait; `None` if the time has passed.
    pub(crate) fn enter(
        &self,
        reason: WaitReason,
        until: Option<Nanos>,
    ) -> Result<SemaphorePermit<'_>, Option<Interrupt>> {
        match self.acquire_in(1, How::new(reason).ends(OnInterrupt::Returning).until(until)) {
            Ok(()) => Ok(self.guard(1)),
            Err(Refused::Interrupted(why)) => Err(Some(why)),
            Err(Refused::Late) => Err(None),
            Err(Refused::Closed) => unreachable!("enter: nobody closes it"),
        }
    }

    /// As `enter`, without waiting.
    pub(crate) fn try_enter(&self) -> Option<SemaphorePermit<'_>> {
        self.try_acquire(1).then(|| self.guard(1))
    }

    /// Returns how many permits are taken, and how many requests wait.
    pub(crate) fn tally(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.capacity - state.free, state.waiting())
    }

    /// Takes `permits`, without a guard, if they are free and no request waits. Returns `false` otherwise, and if the semaphore
    /// is closed. Does not block.
    #[must_use = "`false` says that no permits were taken"]
    pub fn try_acquire(&self, permits: usize) -> bool {
        self.state.lock().take(permits)
    }

    /// Gives `permits` back. Does not block. For permits that were taken without a guard, or whose guard was
    /// [forgotten](SemaphorePermit::forget).
    ///
    /// A `release` of permits that a guard still holds gives them back twice: not this call panics, but the drop of a guard
    /// might, when all permits are free. A request that was granted and is given up (a future that is dropped, a context that
    /// ends, a goroutine that its runtime leaves behind) does not panic then: it gives back only permits that are not free.
    ///
    /// # Panics
    /// If more permits would be free than the capacity; nothing has changed then.
    #[track_caller]
    pub fn release(&self, permits: usize) {
        let mut notified = Notified::new();
        let mut state = self.state.lock();
        let free = state.free.checked_add(permits).filter(|free| *free <= state.capacity);
        if let Some(free) = free {
            state.free = free;
            unless!(SemaphoreGrantsNobody, state.grant(&mut notified));
        }
        drop(state);
        notified.ready();
        assert!(free.is_some(), "release: {permits} permits, more than are held");
    }

    /// Gives back the permits that a request was granted and does not take, up to the capacity; the caller readies the waiters
    /// that were notified. If the program has already released some of these permits, a call of `release` or the drop of a
    /// guard panics, not this call: here the caller may be the end of a runtime.
    fn put_back_what_fits(&self, permits: usize) -> Notified<Ask> {
        let mut notified = Notified::new();
        let mut state = self.state.lock();
        state.free = state.free.saturating_add(permits).min(state.capacity);
        state.grant(&mut notified);
        drop(state);
        notified
    }

    /// Adds `permits`, which are free, to the capacity. Does not block. Requests for more than the old capacity that the new
    /// capacity can meet join the queue at its end, in the order in which they came.
    ///
    /// ```
    /// let permits = gmp::sync::Semaphore::new(1);
    /// let one = permits.acquire_guard(1).unwrap();
    /// assert!(permits.try_acquire_guard(2).is_err());
    /// permits.add_permits(2);
    /// assert_eq!(permits.available_permits(), 2);
    /// let two = permits.try_acquire_guard(2).unwrap();
    /// assert_eq!(one.num_permits() + two.num_permits(), 3);
    /// ```
    ///
    /// # Panics
    /// If the capacity would be more than a `usize` holds; nothing has changed then.
    #[track_caller]
    pub fn add_permits(&self, permits: usize) {
        let mut notified = Notified::new();
        let mut state = self.state.lock();
        let capacity = state.capacity.checked_add(permits);
        if let Some(capacity) = capacity {
            let State { waiters, too_large, .. } = &mut *state;
            let can_meet = |queue: &btree_map::OccupiedEntry<_, _>| *queue.key() <= capacity;
            let next = || too_large.first_entry().filter(can_meet).map(btree_map::OccupiedEntry::remove);
            waiters.append(iter::from_fn(next).collect(), |ask| ask.number);
            state.capacity = capacity;
            state.free += permits;
            state.grant(&mut notified);
        }
        drop(state);
        notified.ready();
        assert!(capacity.is_some(), "add_permits: {permits} more, and the capacity overflows");
    }

    /// Returns the number of permits that are free. Does not block. A waiting request may need more than that.
    pub fn available_permits(&self) -> usize {
        self.state.lock().free
    }

    /// Closes the semaphore: all waiting requests, and all later ones, are refused. Permits that are taken can still be given
    /// back, and guards dropped. Returns `true` if this call closed the semaphore, `false` if it was closed before. Does not
    /// block.
    ///
    /// ```
    /// use gmp::sync::{AcquireError, Semaphore};
    /// use std::sync::Arc;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let permits = Arc::new(Semaphore::new(1));
    ///         let held = permits.acquire_guard(1).unwrap();
    ///         let theirs = Arc::clone(&permits);
    ///         let waits = gmp::go(move || theirs.acquire_guard(1).map(drop));
    ///         permits.close();
    ///         assert_eq!(waits.join().unwrap(), Err(AcquireError));
    ///         drop(held);
    ///         assert!(permits.try_acquire_guard(1).unwrap_err().is_closed());
    ///     })
    /// }
    /// ```
    pub fn close(&self) -> bool {
        let mut notified = Notified::new();
        let mut state = self.state.lock();
        let closes = !mem::replace(&mut state.closed, true);
        let State { waiters, too_large, .. } = &mut *state;
        for queue in iter::once(waiters).chain(mem::take(too_large).values_mut()) {
            while let Some(record) = queue.notify(&mut notified) {
                record.want.closed.set(true);
            }
        }
        drop(state);
        notified.ready();
        closes
    }

    /// Returns `true` if the semaphore is closed. Does not block.
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The program's writer is called when the lock is free: the writer may use the semaphore, or park.
        let (capacity, free, waiting, closed) = {
            let state = self.state.lock();
            (state.capacity, state.free, state.waiting(), state.closed)
        };
        let mut it = f.debug_struct("Semaphore");
        it.field("capacity", &capacity).field("free", &free);
        it.field("waiting", &waiting).field("closed", &closed).finish()
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{self, Waker};
    use std::time::Duration;

    /// Fails when a request leaves the queue of its size behind: each size for which a caller has waited would take memory.
    #[test]
    fn a_size_for_which_nobody_waits_has_no_queue() {
        let semaphore = Semaphore::new(1);
        let sizes = || semaphore.state.lock().too_large.len();
        for permits in 2..10 {
            assert!(semaphore.acquire_guard_timeout(permits, Duration::from_millis(1)).is_err());
            assert_eq!(sizes(), 0, "a caller has given up");
        }
        {
            let (mut two, mut three) = (pin!(semaphore.acquire_async(2)), pin!(semaphore.acquire_async(3)));
            let poll = &mut task::Context::from_waker(Waker::noop());
            assert!(two.as_mut().poll(poll).is_pending() && three.as_mut().poll(poll).is_pending());
            assert_eq!(sizes(), 2);
            semaphore.add_permits(1);
            assert_eq!(sizes(), 1, "two have been granted");
        }
        assert_eq!(sizes(), 0, "a future was dropped");
    }
}
