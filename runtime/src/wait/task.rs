//! A task as a waiter: what polls a future, the third kind beside goroutines and plain threads.
//!
//! A future that waits stands in a queue as a goroutine does, by a Waiter: the parker of a task has the claim word, and in
//! place of the note a *waker*, the one of the last poll. The parker is the future's own, and a wait begins in the poll that
//! finds nothing to take, and may last over many polls:
//!
//! ```text
//!   future                                              notifier
//!
//!   F1  poll: open a wait, keep the waker,              R1  claim the wait, under the queue's lock
//!       queue the record, let the lock go: Pending      R2  READY (Release)
//!   F2  poll again: keep the new waker,                 R3  take the waker, call it
//!       then READY?  the wait is over
//!   F3  drop: claim the wait; won: leave the queue
//!                             lost: until READY
//! ```
//! *No wake is lost.* The waker lies under a lock of its own. Of F2 and R3 one has that lock first: R3 after F2 takes the new
//! waker; R3 before F2 was preceded by R2, and F2 sees READY.
//!
//! *The record.* It lies in the pinned future. A notifier touches it from R1, where the queue's lock keeps it, to R2; and F3
//! and F2 let it go only when they have claimed the wait, or have seen READY. A notifier takes few steps from R1 to R2, so F3
//! yields meanwhile. A queue whose notifier does more between the two (a promise of a `select!`) has F3 wait in another way,
//! and says how.
//!
//! A notifier that has claimed several waits takes the step R2 for all of them before R3 for the first ([`Readied`]): the waker
//! of one may drop the future of another, whose F3 would wait on the thread that is to take R2.
//!
//! *What a dropped future was notified of* is passed on by F3's caller: `leave` tells whether F3 has won or lost.
//!
//! A waker is foreign code, which may take locks of its own, and panic. It is called with none of our locks held, outside of
//! windows, and never on an M's own stack: where a task is readied there, a goroutine of the library calls the waker
//! ([`wake`]). A waker of [`block_on`](crate::block_on) is known by its table, and is a plain ready, which may be done anywhere.
//!
//! No interrupt ends a wait inside a waker, though its caller may run under a context that is done. An interrupt might unwind
//! the waker from the lock of its executor's queue: then the task would not be queued, and no other call would come. The
//! caller itself is not blocking, and goes on afterwards.
//!
//! Checked by `models/task.rs`.

use crate::g::call_undisturbed;
use crate::g::list::GList;
use crate::goroutine::waker::is_of_block_on;
use crate::host::Host;
use crate::m::M;
use crate::prim::hooks::*;
use crate::prim::{Arc, Ghost, Mutex, Rank, UnsafeCell, assert_none_held, relax};
use crate::sched::run::wake::queue_readied;
use crate::wait::status::{WaitNumber, Why};
use crate::wait::waiter::{Parker, Waiter};
use std::task::Waker;

mod found;

pub(crate) use found::{Discarded, FoundTasks, wake_aside};

/// Where the waker of a task stands.
pub(super) struct Bed<H: Host> {
    waker: Mutex<Option<Waker>>,
    /// In a list of `Readied`. Of the notifier that has claimed the parker's one wait.
    next: UnsafeCell<Option<Arc<Parker<H>>>>,
    /// Touched by a notifier before R2, and by the future when the record is its own again; for loom.
    record: Ghost,
}

// SAFETY: a lock; one notifier touches `next`; the ghost holds nothing, and loom checks which threads touch it.
unsafe impl<H: Host> Sync for Bed<H> {}

impl<H: Host> Bed<H> {
    pub(super) fn new(waker: &Waker) -> Self {
        let waker = Mutex::new(Rank::TaskWaker, Some(waker.clone()));
        Bed { waker, next: UnsafeCell::new(None), record: Ghost::new() }
    }

    /// The caller's use of the record comes before, or after, that of another thread.
    #[inline(always)]
    pub(super) fn touch(&self) {
        self.record.touch();
    }

    /// F2. Wakers are cloned and dropped outside of the lock.
    fn keep(&self, waker: &Waker) {
        if self.waker.lock().as_ref().is_some_and(|kept| kept.will_wake(waker)) {
            return;
        }
        let fresh = Some(waker.clone());
        let old = std::mem::replace(&mut *self.waker.lock(), fresh);
        discard::<H>(old);
    }

    fn take(&self) -> Option<Waker> {
        self.waker.lock().take()
    }

    /// The wait is over. A copy of the Waiter may outlive it, and is dropped where no foreign code may run.
    fn forget_waker(&self) {
        discard::<H>(self.take());
    }

    /// R3.
    pub(super) fn alarm(&self) {
        if let Some(waker) = self.take() {
            wake::<H>(waker);
        }
    }
}

impl<H: Host> Drop for Bed<H> {
    fn drop(&mut self) {
        self.forget_waker();
    }
}

/// Drops a waker, which is foreign code. A panic of it ends here, as in `call`: the caller goes on, and takes its record out of
/// the queue, say.
pub(crate) fn discard<H: Host>(waker: Option<Waker>) {
    if let Some(waker) = waker {
        call_foreign::<H>(waker, drop);
    }
}

/// A waker of `block_on` neither waits nor panics, and may be called and dropped where others may not.
fn call_foreign<H: Host>(waker: Waker, f: fn(Waker)) {
    if is_of_block_on(&waker) {
        return f(waker);
    }
    call_undisturbed::<H>(move || f(waker));
}

/// What a notifier of several has readied: goroutines that are to be queued, all at once, and tasks whose wakers are to be
/// called after that.
#[must_use]
pub(crate) struct Readied<H: Host> {
    /// The last one.
    tasks: Option<Arc<Parker<H>>>,
    goroutines: GList<H>,
}

impl<H: Host> Readied<H> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Readied { tasks: None, goroutines: GList::new() }
    }

    /// Appends a task, whose one wait the caller has claimed.
    pub(super) fn push(&mut self, parker: Arc<Parker<H>>) {
        // SAFETY: the parker has one wait, and this notifier has claimed it.
        parker.task().next.with_mut(|next| unsafe { *next = self.tasks.take() });
        self.tasks = Some(parker);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_none() && self.goroutines.is_empty()
    }

    /// For goroutines that were readied; each stands in this list alone.
    #[inline]
    pub(super) fn goroutines(&mut self) -> &mut GList<H> {
        &mut self.goroutines
    }

    /// Queues the goroutines. After the locks, and before anything that may park.
    #[inline]
    pub(crate) fn queue(&mut self) {
        if !self.goroutines.is_empty() {
            queue_readied(std::mem::replace(&mut self.goroutines, GList::new()));
        }
    }

    /// Queues the goroutines, and calls the wakers. After the locks.
    #[inline]
    pub(crate) fn call_wakers(mut self) {
        self.queue();
        if self.tasks.is_some() {
            self.call_all(wake::<H>);
        }
    }

    /// As `call_wakers`, for a caller whose own wait is open: a waker that waits would open the thread's next one.
    #[inline]
    pub(crate) fn call_wakers_elsewhere(mut self) {
        self.queue();
        if self.tasks.is_some() {
            self.call_all(wake_elsewhere::<H>);
        }
    }

    #[cold]
    fn call_all(self, wake: fn(Waker)) {
        let (mut last, mut first) = (self.tasks, None);
        let after = |parker: &Arc<Parker<H>>, next| {
            // SAFETY: as in `push`.
            parker.task().next.with_mut(|place| std::mem::replace(unsafe { &mut *place }, next))
        };
        while let Some(parker) = last {
            last = after(&parker, first);
            first = Some(parker);
        }
        while let Some(parker) = first {
            first = after(&parker, None);
            parker.task().take().into_iter().for_each(wake);
        }
    }
}

/// One wait of a future, from the poll that opens it to the poll, or the drop, that ends it. The wait ends when `is_over`
/// returns `true`, by `leave`, or by `withdraw`.
pub(crate) struct TaskWait<H: Host> {
    parker: Arc<Parker<H>>,
    number: WaitNumber,
}

impl<H: Host> TaskWait<H> {
    /// Opens a wait of the task with this waker. The caller queues the Waiter, or withdraws.
    pub(crate) fn open(waker: &Waker) -> Self {
        let parker = Parker::of_task(Bed::new(waker));
        let number = parker.word.begin_wait();
        TaskWait { parker, number }
    }

    /// The part of the record that notifiers claim.
    pub(crate) fn waiter(&self) -> Waiter<H> {
        Waiter::Parker(Arc::clone(&self.parker), self.number)
    }

    /// F2: keeps the waker of this poll. Returns `true` if a notifier has claimed the wait, and readied the task: the record
    /// is the future's again, and stands in no queue.
    pub(crate) fn is_over(&self, waker: &Waker) -> bool {
        mutant!(TaskLooksFirst: { let over = self.is_readied(); self.parker.task().keep(waker); return over });
        if self.is_readied() {
            return true;
        }
        unless!(TaskKeepsTheOldWaker, self.parker.task().keep(waker));
        let over = self.is_readied();
        if over {
            self.parker.task().forget_waker();
        }
        over
    }

    fn is_readied(&self) -> bool {
        let over = self.parker.word.why(self.number) == Why::Readied;
        if over {
            self.parker.task().touch();
        }
        over
    }

    /// F3: ends the wait. Returns `true` if no notifier has claimed it: then the caller takes the record out of the queue,
    /// under the queue's lock. Returns `false` if the future was notified.
    #[must_use]
    pub(crate) fn leave(&self) -> bool {
        if self.parker.word.claim(self.number) {
            self.parker.word.close_wait(self.number);
            self.parker.task().forget_waker();
            return true;
        }
        mutant!(TaskLeavesBesideTheReady: { self.parker.task().touch(); return false });
        while !self.is_readied() {
            relax();
        }
        false
    }

    /// Gives the wait up, unpublished.
    pub(crate) fn withdraw(&self) {
        self.parker.word.close_wait(self.number);
    }
}

/// Calls a waker, wherever the caller is; with none of our locks held.
pub(crate) fn wake<H: Host>(waker: Waker) {
    match M::<H>::current() {
        Some(m) if !is_of_block_on(&waker) && (m.is_inside() || m.g().is_none()) => {
            wake_on_goroutine(m, waker);
        }
        _ => call::<H>(waker),
    }
}

/// As `wake`; foreign code runs after this call, and not by this thread, unless there is neither a stack nor a thread for
/// that. Under no lock.
pub(crate) fn wake_elsewhere<H: Host>(waker: Waker) {
    if is_of_block_on(&waker) {
        return call::<H>(waker);
    }
    match M::<H>::current() {
        Some(m) => wake_on_goroutine(m, waker),
        None => H::run_aside(move || call::<H>(waker)),
    }
}

/// On an M: a goroutine of the library calls the waker; a thread, without a stack for that; and without that, too, the caller.
#[cold]
fn wake_on_goroutine<H: Host>(m: &M<H>, waker: Waker) {
    let sched = m.sched();
    if sched.is_ending() {
        // What is queued now may be set aside for long.
        return H::run_aside(move || call::<H>(waker));
    }
    if let Some(g) = found::caller_of(sched, waker).pop() {
        sched.submit_on(m, g);
    }
}

/// A panic of the waker's ends here: the panic hook has printed it, and the caller's own work goes on.
fn call<H: Host>(waker: Waker) {
    assert_none_held();
    call_foreign::<H>(waker, Waker::wake);
}
