//! Tasks as waiters. A task, which polls a future, is the third kind of waiter beside goroutines and plain threads.
//!
//! A future that waits is in a queue like a goroutine, as a Waiter. The parker of a task has a claim word, and instead of the
//! note a *waker*, that of the last poll. Each wait has a parker of its own. A wait begins in the poll that finds nothing to
//! take, and can last for many polls:
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
//! *No wake is lost.* The waker is protected by a lock of its own. Either F2 or R3 has that lock first: an R3 after F2 takes
//! the new waker; if R3 comes before F2, so did R2, and F2 sees READY.
//!
//! *The record.* The record lies in the pinned future. A notifier touches the record from R1, which is under the queue's lock,
//! to R2. F2 and F3 give the record up only when they have claimed the wait, or have seen READY. From R1 to R2 a notifier takes
//! few steps, so F3 just yields its thread until READY. If a notifier does more between the two (a promise of a `select!`), F3
//! waits in another way, which that queue's header describes.
//!
//! A notifier that has claimed several waits takes the step R2 for all of them before R3 for the first ([`Readied`]): the waker
//! of the first might drop the future of the second, and F3 of that future would wait for R2 on the very thread that has to do
//! R2.
//!
//! *A dropped future passes its notification on*: F3's caller does that, and `leave` returns whether F3 has won or lost.
//!
//! A waker is foreign code, which can take locks of its own, and panic. The library calls a waker with none of the library's
//! locks held, outside of windows, and never on an M's own stack: if a task is readied there, a goroutine of the library calls
//! the waker ([`wake`]), or a thread, for which the call might have to wait (`sched/calls.rs`). The library knows a waker of
//! [`block_on`](crate::block_on) by its table: that waker is a plain ready, which may be done anywhere.
//!
//! No interrupt ends a wait inside a waker, even if the waker's caller runs under a context that is done. An interrupt might
//! unwind the waker while it waits for the lock of its executor's queue: then the task would not be queued, and no other call
//! would come. The caller itself does not block, and goes on afterwards.
//!
//! Checked by `models/task.rs`.

use crate::g::call_undisturbed;
use crate::g::list::GList;
use crate::goroutine::waker::is_of_block_on;
use crate::host::Host;
use crate::m::M;
use crate::prim::hooks::*;
use crate::prim::{Arc, Ghost, Mutex, Rank, UnsafeCell, assert_none_held, relax};
use crate::sched::calls::{run_aside, run_aside_or_here};
use crate::sched::run::wake::queue_readied;
use crate::wait::status::{WaitNumber, Why};
use crate::wait::waiter::{Parker, Waiter};
use std::task::Waker;

mod found;

pub(crate) use found::{Carried, Discarded, FoundTasks, wake_aside};

/// Holds the waker of a task.
pub(super) struct Wakee<H: Host> {
    waker: Mutex<Option<Waker>>,
    /// The link in a list of `Readied`. Belongs to the notifier that has claimed the parker's only wait.
    next: UnsafeCell<Option<Arc<Parker<H>>>>,
    /// For loom: touched by a notifier before R2, and by the future when the record is its own again.
    record: Ghost,
}

// SAFETY: `waker` is a lock; one notifier touches `next`; the ghost holds nothing, and loom checks which threads touch it.
unsafe impl<H: Host> Sync for Wakee<H> {}

impl<H: Host> Wakee<H> {
    pub(super) fn new(waker: &Waker) -> Self {
        let waker = Mutex::new(Rank::TaskWaker, Some(waker.clone()));
        Wakee { waker, next: UnsafeCell::new(None), record: Ghost::new() }
    }

    /// For loom: the caller's use of the record comes before, or after, that of another thread.
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

    /// Drops the waker, because the wait is over. A copy of the Waiter can outlive the wait, and is dropped where no foreign
    /// code may run.
    fn forget_waker(&self) {
        discard::<H>(self.take());
    }

    /// R3, by `wake`.
    #[inline(always)]
    pub(super) fn alarm_by(&self, wake: fn(Waker)) {
        if let Some(waker) = self.take() {
            wake(waker);
        }
    }
}

impl<H: Host> Drop for Wakee<H> {
    fn drop(&mut self) {
        self.forget_waker();
    }
}

/// Drops a waker, which is foreign code. A panic there ends here, as in `call`: the caller goes on, for example to take its
/// record out of the queue.
pub(crate) fn discard<H: Host>(waker: Option<Waker>) {
    if let Some(waker) = waker {
        call_foreign::<H>(waker, drop);
    }
}

/// Calls `f` with `waker`. A waker of `block_on` neither waits nor panics, and may be called and dropped where others may not.
fn call_foreign<H: Host>(waker: Waker, f: fn(Waker)) {
    if is_of_block_on(&waker) {
        return f(waker);
    }
    call_undisturbed::<H>(move || f(waker));
}

/// Waiters that a notifier of several has readied: goroutines that it queues, all at once, and tasks whose wakers it calls
/// after that.
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

    /// Appends a task, whose only wait the caller has claimed.
    pub(super) fn push(&mut self, parker: Arc<Parker<H>>) {
        // SAFETY: the parker has only one wait, and this notifier has claimed it.
        parker.task().next.with_mut(|next| unsafe { *next = self.tasks.take() });
        self.tasks = Some(parker);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_none() && self.goroutines.is_empty()
    }

    /// Returns the list for goroutines that were readied; each stands only in this list.
    #[inline]
    pub(super) fn goroutines(&mut self) -> &mut GList<H> {
        &mut self.goroutines
    }

    /// Queues the goroutines. After the locks, and before anything that can park.
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

    /// As `call_wakers`, for a caller whose own wait is open: a waker that waits would open another wait on this thread.
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
        let parker = Parker::of_task(Wakee::new(waker));
        let number = parker.word.begin_wait();
        TaskWait { parker, number }
    }

    /// Returns the part of the record that notifiers claim.
    pub(crate) fn waiter(&self) -> Waiter<H> {
        Waiter::Parker(Arc::clone(&self.parker), self.number)
    }

    /// F2: keeps the waker of this poll. Returns `true` if a notifier has claimed the wait, and readied the task: the record
    /// belongs to the future again, and stands in no queue.
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

/// Calls a waker, wherever the caller is. The caller holds none of the library's locks.
pub(crate) fn wake<H: Host>(waker: Waker) {
    match M::<H>::current() {
        Some(m) if !is_of_block_on(&waker) && (m.is_inside() || m.g().is_none()) => {
            wake_on_goroutine(m, waker);
        }
        _ => call::<H>(waker),
    }
}

/// As `wake`, but foreign code runs on another thread, or later. Under no lock.
pub(crate) fn wake_elsewhere<H: Host>(waker: Waker) {
    if is_of_block_on(&waker) {
        return call::<H>(waker);
    }
    match M::<H>::current() {
        Some(m) => wake_on_goroutine(m, waker),
        None => run_aside::<H>(move || call::<H>(waker)),
    }
}

/// As `wake`, for a callback of the library's own, on the stack of the M or thread that has popped its timer. For the timer
/// thread another thread calls foreign code, unless none can be had: all timers outside of runtimes would wait for that code,
/// which might wait for one of them.
pub(crate) fn wake_from_timer<H: Host>(waker: Waker) {
    mutant!(TimerThreadCallsWakers: return wake::<H>(waker));
    if M::<H>::current().is_some() || is_of_block_on(&waker) {
        return wake::<H>(waker);
    }
    run_aside_or_here::<H>(move || call::<H>(waker));
}

/// On an M: lets a goroutine of the library call the waker. If there is no stack for that goroutine, a thread calls the waker,
/// as soon as there is one.
#[cold]
fn wake_on_goroutine<H: Host>(m: &M<H>, waker: Waker) {
    let sched = m.sched();
    if sched.is_ending() {
        // A goroutine that is queued now might stay set aside for long.
        return run_aside::<H>(move || call::<H>(waker));
    }
    if let Some(g) = found::caller_of(sched, waker) {
        sched.submit_on(m, g);
    }
}

/// Calls a waker. A panic there ends here: the panic hook has printed the panic, and the caller's own work goes on.
fn call<H: Host>(waker: Waker) {
    assert_none_held();
    call_foreign::<H>(waker, Waker::wake);
}
