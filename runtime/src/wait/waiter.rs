//! A parker as it is represented in a queue, and how a parker is woken.
//!
//! A [`Waiter`] names a goroutine, a plain thread or a task together with the number of a wait. A waker that finds a Waiter in
//! a queue claims that wait; exactly one claim of a wait wins, and the winner must ready the parker. Only the winner may touch
//! the record's other fields, or a thread that holds the lock of the queue in which the record stands.
//!
//! The owner unlinks its records, or the waker that has claimed the wait does, before the waker readies the owner. So the owner
//! finds no record of its own in a queue when its call returns, and a record may lie on the owner's stack. What keeps the
//! memory behind a Waiter mapped: a G is type-stable as long as its pool lives (`g/mod.rs`, invariant 3), and a parked G's pool
//! lives; the parker of a thread or a task is counted. A claim under an old number fails and touches nothing else.
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
//! After the first three the wait is over. A time limit is a counterpart that leaves no trace: an owner that was readied and
//! finds nothing in the record was readied by the time limit.

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
pub(crate) use wait::{How, Opened, Wait, Woke};

/// Where a plain thread or a task waits: the claim word, and what is woken.
pub(crate) struct Parker<H: Host> {
    pub(super) word: StatusWord,
    bed: Bed<H>,
}

/// What waits in a parker.
enum Bed<H: Host> {
    /// A plain thread, which sleeps on the note.
    Thread(Note<H>),
    /// What polls a future.
    Task(task::Bed<H>),
}

impl<H: Host> Parker<H> {
    /// For a plain thread.
    pub(crate) fn new() -> Arc<Self> {
        Self::with(Bed::Thread(Note::new()))
    }

    /// For a task.
    pub(super) fn of_task(bed: task::Bed<H>) -> Arc<Self> {
        Self::with(Bed::Task(bed))
    }

    fn with(bed: Bed<H>) -> Arc<Self> {
        let word = StatusWord::new(Status::Idle);
        word.spawn();
        // Neither is ever in a run queue, and each counts as running from the start, also while asleep.
        let ran = word.run();
        debug_assert_eq!(ran, Run::Go);
        Arc::new(Parker { word, bed })
    }

    /// The note of a plain thread.
    fn note(&self) -> &Note<H> {
        match &self.bed {
            Bed::Thread(note) => note,
            Bed::Task(_) => unreachable!("note: a task does not sleep"),
        }
    }

    /// The bed of a task.
    pub(super) fn task(&self) -> &task::Bed<H> {
        match &self.bed {
            Bed::Task(bed) => bed,
            Bed::Thread(_) => unreachable!("task: a thread waits here"),
        }
    }

    /// Wakes the thread or the task.
    fn alarm(&self) {
        match &self.bed {
            Bed::Thread(note) => note.alarm(),
            Bed::Task(bed) => bed.alarm(),
        }
    }

    /// For the waits of the calling thread, which is no M's: the parker of the thread's outermost frame, or a new one.
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
    /// Returns `true` if the caller has won the right, and the duty, to call `ready`.
    #[must_use]
    #[inline]
    pub(crate) fn claim(&self) -> bool {
        match self {
            Waiter::G(g, number) => g.word.claim(*number),
            Waiter::Parker(parker, number) => parker.word.claim(*number),
        }
    }

    /// The goroutine, if the waiter is one.
    #[inline]
    pub(crate) fn g(&self) -> Option<GRef<H>> {
        match self {
            Waiter::G(g, _) => Some(*g),
            Waiter::Parker(..) => None,
        }
    }

    /// Returns `true` if a claim would win now.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Waiter::G(g, number) => g.word.is_open(*number),
            Waiter::Parker(parker, number) => parker.word.is_open(*number),
        }
    }

    /// Returns `true` if the owner will not run again, as the runtime has ended.
    pub(crate) fn is_left(&self) -> bool {
        match self {
            Waiter::G(g, _) => g.is_left(),
            Waiter::Parker(..) => false,
        }
    }

    /// Lets the owner go on. Only after a won `claim`, and with no lock held, as a task's waker is foreign code. The Waiter
    /// may lie in the owner's own record, which may be gone when this returns.
    #[inline]
    pub(crate) fn ready(&self) {
        assert_none_held();
        match self {
            Waiter::G(g, _) => wake::goready(*g),
            Waiter::Parker(parker, _) => Self::alarm_parker(parker),
        }
    }

    /// As `ready`, for a thread or a task.
    #[cold]
    #[inline(never)]
    fn alarm_parker(parker: &Arc<Parker<H>>) {
        mutant!(TaskIsCalledEarly: { Arc::clone(parker).alarm(); Self::ready_parker(parker); return });
        Self::ready_parker(parker).alarm();
    }

    /// As `ready`, except that [`Readied::call_wakers`] queues the goroutine, or calls the waker of the task. For a notifier
    /// that readies several; a task may be readied under a lock.
    #[inline]
    pub(crate) fn ready_with(&self, readied: &mut Readied<H>) {
        match self {
            Waiter::G(g, _) => {
                assert_none_held();
                wake::goready_for(*g, readied.goroutines());
            }
            Waiter::Parker(parker, _) => Self::ready_parker_with(parker, readied),
        }
    }

    /// As `ready_with`, for a thread or a task.
    #[cold]
    #[inline(never)]
    fn ready_parker_with(parker: &Arc<Parker<H>>, readied: &mut Readied<H>) {
        let parker = Self::ready_parker(parker);
        match parker.bed {
            Bed::Thread(_) => parker.alarm(),
            Bed::Task(_) => readied.push(parker),
        }
    }

    /// Lets the thread, or the task, go on; it may be asleep still. Counted: it may drop its own reference.
    fn ready_parker(parker: &Arc<Parker<H>>) -> Arc<Parker<H>> {
        let parker = Arc::clone(parker);
        if let Bed::Task(bed) = &parker.bed {
            bed.touch();
        }
        let then = parker.word.ready();
        debug_assert_eq!(then, Then::Leave, "a parker is in no run queue");
        parker
    }

    /// Claims and readies. Returns `false` if another waker was first.
    pub(crate) fn wake(&self) -> bool {
        let won = self.claim();
        if won {
            self.ready();
        }
        won
    }

    /// Returns a copy that outlives the queue's lock, which the caller holds.
    pub(crate) fn upgrade(&self) -> UpgradedWaiter<H> {
        let home = match self {
            Waiter::G(g, _) => g.home().upgrade(),
            Waiter::Parker(..) => None,
        };
        UpgradedWaiter { waiter: self.clone(), home }
    }

    /// Has the owner look again; the wait goes on. The Waiter is the caller's own copy, or stands in a locked queue.
    pub(crate) fn nudge(&self) {
        match self {
            Waiter::G(g, number) => wake::nudge(*g, *number),
            Waiter::Parker(parker, number) => {
                let parker = Arc::clone(parker);
                let then = parker.word.nudge(*number);
                debug_assert_eq!(then, Then::Leave, "a parker is in no run queue");
                parker.alarm();
            }
        }
    }
}

/// A copy of a Waiter that was found in a queue and not claimed, with a reference that keeps the word mapped when the
/// parker has gone on and ended.
pub(crate) struct UpgradedWaiter<H: Host> {
    waiter: Waiter<H>,
    home: Option<Arc<Sched<H>>>,
}

impl<H: Host> UpgradedWaiter<H> {
    /// Has an owner that still waits look again.
    pub(crate) fn nudge(&self) {
        match &self.waiter {
            // The runtime is over: the goroutine was left, and looks at nothing any more.
            Waiter::G(..) if self.home.is_none() => {}
            waiter => waiter.nudge(),
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
    /// C3 of `interrupt.rs`. The caller keeps the runner from leaving, and calls `queue_nudged` after its lock.
    pub(crate) fn nudge(&self, nudged: &mut GList<H>) {
        match self {
            Runner::G(g) => wake::nudge_any(*g, nudged),
            // The thread sleeps only after a look that came after the last alarm.
            Runner::Thread(parker) => parker.alarm(),
        }
    }
}
