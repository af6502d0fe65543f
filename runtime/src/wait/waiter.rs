//! Waiters: how a parker is represented in a queue, and how it is woken.
//!
//! A [`Waiter`] names a goroutine, a plain thread or a task together with the number of a wait. A waker that finds a Waiter in
//! a queue claims that wait; exactly one claim of a wait wins, and a waker that has won must ready the parker. (The owner can
//! win, too; then no waker readies it.) Only the winner, or a thread that holds the lock of the queue in which the record
//! stands, touches the record's other fields.
//!
//! Each record is unlinked by the owner, or by the waker that has claimed the wait, before that waker readies the owner. So
//! when the owner's call returns, no record of the owner is left in a queue, and a record can lie on the owner's stack. The
//! memory behind a Waiter stays mapped: a G is type-stable as long as its pool lives (`g/mod.rs`, invariant 3), and the pool of
//! a parked G lives; the parker of a thread or a task is counted. A claim under an old number fails and touches nothing else.
//!
//! A [`Wait`] is the owner's side: it opens the wait, gives out the Waiter, and blocks the caller, a goroutine or a
//! thread (a task does not block: `wait/task.rs`):
//!
//! ```text
//! let mut wait = Wait::begin();        // the number is drawn
//! let mut queue = lock.lock();         // … the lock is held …
//! queue.push(wait.waiter());
//! match wait.park(how, move || { drop(queue); Commit::Park }) {   // the M unlocks, after the save
//!     Woke::Readied => ..              // claimed: by a counterpart, whose record says so, or by the time limit
//!     Woke::Refused => ..              // the hook refused: the wait was not published, it is over
//!     Woke::Interrupted(why) => ..     // claimed by the owner itself: leave the queues, then throw, or return
//!     Woke::Nudged => ..               // only with `How::looking`: look; then `park_again`, or `claim` and leave
//! }
//! ```
//! After the first three the wait is over. A time limit is a counterpart that leaves no trace: if an owner was readied and
//! finds nothing in the record, the time limit has readied it.

mod wait;

use crate::g::GRef;
use crate::g::list::GList;
use crate::host::Host;
use crate::m::note::Note;
use crate::prim::hooks::*;
use crate::prim::{Arc, assert_none_held};
use crate::sched::Sched;
use crate::sched::run::wake;
use crate::wait::interrupt::Frame;
use crate::wait::status::{Run, Status, StatusWord, Then, WaitNumber};
use crate::wait::task::{self, Readied};
use std::task::Waker;
pub(crate) use wait::{How, Opened, Wait, Woke};

/// A plain thread or a task that waits: the claim word, and the wakee.
pub(crate) struct Parker<H: Host> {
    pub(super) word: StatusWord,
    wakee: Wakee<H>,
}

/// What a waker wakes.
enum Wakee<H: Host> {
    /// A plain thread, which sleeps on the note.
    Thread(Note<H>),
    /// A task, which polls a future.
    Task(task::Wakee<H>),
}

impl<H: Host> Parker<H> {
    /// For a plain thread.
    pub(crate) fn new() -> Arc<Self> {
        Self::with(Wakee::Thread(Note::new()))
    }

    /// For a task.
    pub(super) fn of_task(wakee: task::Wakee<H>) -> Arc<Self> {
        Self::with(Wakee::Task(wakee))
    }

    fn with(wakee: Wakee<H>) -> Arc<Self> {
        let word = StatusWord::new(Status::Idle);
        word.spawn();
        // A thread or a task is never in a run queue, and counts as running from the start, even while it sleeps.
        let ran = word.run();
        debug_assert_eq!(ran, Run::Go);
        Arc::new(Parker { word, wakee })
    }

    /// Returns the note of a plain thread.
    fn note(&self) -> &Note<H> {
        match &self.wakee {
            Wakee::Thread(note) => note,
            Wakee::Task(_) => unreachable!("note: a task does not sleep"),
        }
    }

    /// Returns the wakee of a task.
    pub(super) fn task(&self) -> &task::Wakee<H> {
        match &self.wakee {
            Wakee::Task(wakee) => wakee,
            Wakee::Thread(_) => unreachable!("task: a thread waits here"),
        }
    }

    /// Wakes the thread or the task.
    fn alarm(&self) {
        self.alarm_by(task::wake::<H>);
    }

    /// As `alarm`; `wake` calls the waker of a task.
    #[inline(always)]
    fn alarm_by(&self, wake: fn(Waker)) {
        match &self.wakee {
            Wakee::Thread(note) => note.alarm(),
            Wakee::Task(wakee) => wakee.alarm_by(wake),
        }
    }

    /// For a wait of the calling thread, which is no M: returns the parker of the thread's `Context::run` frame, if there is
    /// one, or a new parker.
    pub(crate) fn of_thread() -> Arc<Self> {
        // SAFETY: `Context::run` takes the frame out of the chain before the frame goes.
        match unsafe { H::thread_frame().cast::<Frame>().as_ref() } {
            None => Parker::new(),
            Some(frame) => {
                let parker = frame.parker.cast::<Self>();
                // SAFETY: `run` made the pointer from an Arc that it holds as long as the frame.
                unsafe {
                    Arc::increment_strong_count(parker);
                    Arc::from_raw(parker)
                }
            }
        }
    }
}

/// A parker, and the number of one wait.
pub(crate) enum Waiter<H: Host> {
    /// A goroutine.
    G(GRef<H>, WaitNumber),
    /// A thread outside of any runtime, or a task.
    Parker(Arc<Parker<H>>, WaitNumber),
}

impl<H: Host> Clone for Waiter<H> {
    fn clone(&self) -> Self {
        match self {
            Waiter::G(g, number) => Waiter::G(*g, *number),
            Waiter::Parker(parker, number) => Waiter::Parker(Arc::clone(parker), *number),
        }
    }
}

impl<H: Host> Waiter<H> {
    /// Returns `true` if the caller has won the right, and the duty, to ready the owner (`claimed`).
    #[must_use]
    #[inline]
    pub(crate) fn claim(&self) -> bool {
        match self {
            Waiter::G(g, number) => g.word.claim(*number),
            Waiter::Parker(parker, number) => parker.word.claim(*number),
        }
    }

    /// Returns the goroutine, if the waiter is one.
    #[inline]
    pub(crate) fn g(&self) -> Option<GRef<H>> {
        match self {
            Waiter::G(g, _) => Some(*g),
            Waiter::Parker(..) => None,
        }
    }

    /// Returns `true` if a claim would succeed now.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Waiter::G(g, number) => g.word.is_open(*number),
            Waiter::Parker(parker, number) => parker.word.is_open(*number),
        }
    }

    /// Returns `true` if the owner will not run again, because the runtime has ended.
    pub(crate) fn is_left(&self) -> bool {
        match self {
            Waiter::G(g, _) => g.is_left(),
            Waiter::Parker(..) => false,
        }
    }

    /// Returns the owner, after a won `claim`. The caller readies the owner without the Waiter, which can lie in the owner's
    /// own record.
    #[inline(always)]
    pub(crate) fn claimed(&self) -> Claimed<H> {
        match self {
            Waiter::G(g, _) => Claimed::G(*g),
            Waiter::Parker(parker, _) => Claimed::Parker(counted(parker)),
        }
    }

    /// Claims and readies. Returns `false` if another waker was first. The Waiter is the caller's own copy.
    pub(crate) fn wake(&self) -> bool {
        let won = self.claim();
        if won {
            self.claimed().ready();
        }
        won
    }

    /// As `wake`, for a task whose timer is due.
    pub(crate) fn wake_from_timer(&self) {
        if self.claim() {
            self.claimed().ready_by(task::wake_from_timer::<H>);
        }
    }

    /// Returns a copy that outlives the queue's lock, which the caller holds.
    pub(crate) fn upgrade(&self) -> UpgradedWaiter<H> {
        let home = match self {
            Waiter::G(g, _) => g.home().upgrade(),
            Waiter::Parker(..) => None,
        };
        UpgradedWaiter { waiter: self.clone(), home }
    }

    /// Makes the owner look again, as a timer is due; the wait goes on. The Waiter is the caller's own copy.
    pub(crate) fn nudge(&self) {
        self.nudge_by(task::wake_from_timer::<H>);
    }

    /// As `nudge`; `wake_task` calls the waker of a task. The Waiter is the caller's own copy, or stands in a locked queue.
    fn nudge_by(&self, wake_task: fn(Waker)) {
        match self {
            Waiter::G(g, number) => wake::nudge(*g, *number),
            Waiter::Parker(parker, number) => {
                let parker = Arc::clone(parker);
                let then = parker.word.nudge(*number);
                debug_assert_eq!(then, Then::Leave, "a parker is in no run queue");
                parker.alarm_by(wake_task);
            }
        }
    }
}

/// The owner of a wait that the caller has claimed. The caller has to ready the owner.
///
/// This is a value of its own, because the owner's frame, with the record and the Waiter in it, can end before the call that
/// readies the owner has returned. What a function has by reference has to stay until that function returns, because the
/// compiler may read it again at any time.
#[must_use]
pub(crate) enum Claimed<H: Host> {
    /// A goroutine.
    G(GRef<H>),
    /// A thread or a task, by a counted reference, because the thread or task might drop its own.
    Parker(Arc<Parker<H>>),
}

#[cold]
#[inline(never)]
fn counted<H: Host>(parker: &Arc<Parker<H>>) -> Arc<Parker<H>> {
    Arc::clone(parker)
}

impl<H: Host> Claimed<H> {
    /// Lets the owner go on. Only with no lock held, because a task's waker is foreign code.
    #[inline]
    pub(crate) fn ready(self) {
        self.ready_by(task::wake::<H>);
    }

    /// As `ready`; `wake_task` calls the waker of a task.
    #[inline]
    fn ready_by(self, wake_task: fn(Waker)) {
        assert_none_held();
        match self {
            Claimed::G(g) => wake::goready(g),
            Claimed::Parker(parker) => Self::alarm_parker(parker, wake_task),
        }
    }

    /// As `ready_by`, for a thread or a task.
    #[cold]
    #[inline(never)]
    fn alarm_parker(parker: Arc<Parker<H>>, wake_task: fn(Waker)) {
        mutant!(TaskIsCalledEarly: { parker.alarm_by(wake_task); Self::ready_parker(&parker); return });
        Self::ready_parker(&parker);
        parker.alarm_by(wake_task);
    }

    /// As `ready`, except that [`Readied::call_wakers`] queues the goroutine, or calls the waker of the task. For a notifier
    /// that readies several waiters; a task may be readied under a lock.
    #[inline]
    pub(crate) fn ready_with(self, readied: &mut Readied<H>) {
        match self {
            Claimed::G(g) => {
                assert_none_held();
                wake::goready_for(g, readied.goroutines());
            }
            Claimed::Parker(parker) => Self::ready_parker_with(parker, readied),
        }
    }

    /// As `ready_with`, for a thread or a task.
    #[cold]
    #[inline(never)]
    fn ready_parker_with(parker: Arc<Parker<H>>, readied: &mut Readied<H>) {
        Self::ready_parker(&parker);
        match parker.wakee {
            Wakee::Thread(_) => parker.alarm(),
            Wakee::Task(_) => readied.push(parker),
        }
    }

    /// Lets the thread, or the task, go on, which might still be asleep. The reference is the caller's own.
    fn ready_parker(parker: &Arc<Parker<H>>) {
        if let Wakee::Task(wakee) = &parker.wakee {
            wakee.touch();
        }
        let then = parker.word.ready();
        debug_assert_eq!(then, Then::Leave, "a parker is in no run queue");
    }
}

/// A copy of a Waiter that was found in a queue and not claimed, with a reference that keeps the word mapped after the parker
/// has gone on and ended.
pub(crate) struct UpgradedWaiter<H: Host> {
    waiter: Waiter<H>,
    home: Option<Arc<Sched<H>>>,
}

impl<H: Host> UpgradedWaiter<H> {
    /// Makes an owner that still waits look again.
    pub(crate) fn nudge(&self) {
        self.nudge_by(task::wake::<H>);
    }

    /// As `nudge`; `wake_task` calls the waker of a task.
    pub(crate) fn nudge_by(&self, wake_task: fn(Waker)) {
        match &self.waiter {
            // The runtime has ended: the goroutine was left behind, and never looks again.
            Waiter::G(..) if self.home.is_none() => {}
            waiter => waiter.nudge_by(wake_task),
        }
    }
}

/// A goroutine or thread that runs under a context.
pub(crate) enum Runner<H: Host> {
    /// A goroutine.
    G(GRef<H>),
    /// A thread outside of any runtime, by the parker of all the thread's waits meanwhile.
    Thread(Arc<Parker<H>>),
}

impl<H: Host> Runner<H> {
    /// C3 of `interrupt.rs`. The caller keeps the runner from leaving the context, and calls `queue_nudged` after its lock.
    pub(crate) fn nudge(&self, nudged: &mut GList<H>) {
        match self {
            Runner::G(g) => wake::nudge_any(*g, nudged),
            // Before it sleeps, the thread makes a look that comes after the last alarm.
            Runner::Thread(parker) => parker.alarm(),
        }
    }
}
