//! Tasks at a descriptor: a task polls a socket instead of waiting there. How the poller's events reach the task's waker.
//!
//! A task cannot hold the I/O lock from one poll to the next, so its operations take none: each makes its system call as a
//! user of the descriptor (`net/fd.rs`), beside a goroutine that may wait in the same direction, and leaves that
//! goroutine's slot alone. A direction has a word for tasks and the waker of the last task that found nothing:
//!
//! ```text
//!   task                                                poller, after E1 (`net/desc.rs`)
//!
//!   T0  at first: USED; exchange the slot; system call  E4  USED?  the word |= READY, &= ¬WAITS
//!   T1  READY?  take READY and DRAINED out, turn += 1   E5  WAITS was there?  take the waker, wake it after the
//!   T2  DRAINED, and no READY?  to T4                       table's lock
//!   T3  system call; short or EAGAIN, and the turn is
//!       as at T1: DRAINED
//!   T4  keep the waker
//!   T5  the word |= WAITS; READY was there, or another
//!       turn?  from T1, else Pending
//! ```
//! *No event is lost.* An event that comes after the T1 before a system call sets READY; T5 and E4 exchange one word, so T5
//! sees READY, or E4 sees WAITS and the waker of T4. Two tasks may be in one direction: the other task may have taken that
//! READY, and have left some of the data. Then T5 sees the other task's turn, and the task asks again. The data of an event
//! before T1 was in the kernel before the system call: E4's exchange released it to T1's. Programs without tasks pay for E4's
//! load alone. For that, the first task in a direction sets USED in the word, and exchanges the slot: if E1 comes first, the
//! system call after T0 sees what E1 reported; if T0 comes first, E4 sees USED.
//!
//! *Drained without asking*, as in `net/socket.rs`, and here after `EAGAIN` as well: a future is polled for many reasons, and
//! each poll of a silent socket would cost a system call. DRAINED says that the socket was seen empty (for writes: full) after
//! the T1 of the present turn; an event that came later has set READY. When one task has just seen the socket empty, another
//! task may take the READY of new bytes, and read some of them: the first task's DRAINED would be out of date. The other task
//! has begun another turn, so the first does not set DRAINED. The events in `seen` forbid trust in DRAINED, as they do in a
//! short read.
//!
//! *A goroutine and a task in one direction.* Each event goes to both: E1 fills the slot whatever stands in it, and E4
//! marks the word whether or not a waker is there. Neither takes the other's mark. `drained` and DRAINED say no more than
//! that the socket was empty at one moment, which other readers can't make untrue; and what has come after that moment is
//! in the slot, and in the word.
//!
//! *Close.* The closer waits for the users of the descriptor before it wakes the tasks that it finds here (`Socket::close`). So
//! either a task's waker was kept before that, and the closer wakes the task, or the task finds the socket closed.
//!
//! *The end of a runtime.* No M polls any more. The ender sets OVER in both words of every descriptor in the table, and wakes
//! the tasks there. A task that comes to T5 later sees OVER.
//!
//! A dropped future leaves its waker, for one wake that no task needs. Cloning or dropping a waker runs foreign code, which
//! may close the socket. So a poll does both outside of the lock, and while it is no user of the descriptor.
//!
//! Checked by `models/polltask.rs`.

use super::{Direction, PollDesc, Side};
use crate::host::Host;
use crate::prim::hooks::*;
use crate::prim::{AcqRel, Acquire, AtomicU32, Mutex, Rank, Relaxed, Release};
use std::task::Waker;

/// A task has made a system call in this direction: the poller marks its events.
const USED: u32 = 1;
/// An event has come since T1.
const READY: u32 = 2;
/// A system call has found the end of what there was, in this turn.
const DRAINED: u32 = 4;
/// A waker is kept, which the next event takes.
const WAITS: u32 = 8;
/// The runtime has ended: no event comes any more.
const OVER: u32 = 16;
/// Above the marks: how often READY was taken out.
const TURN: u32 = 32;

/// The turn in which a system call is made.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Turn(u32);

impl Turn {
    /// The turn of a descriptor whose watch has just begun.
    pub(crate) const FIRST: Turn = Turn(0);

    fn of(word: u32) -> Self {
        Turn(word / TURN)
    }
}

/// The outcome of T1 and T2.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Begun {
    /// No task was here before: the events are not marked.
    Unmarked,
    /// The task makes its system call.
    Call(Turn),
    /// The system call would find nothing.
    Wait(Turn),
    /// The runtime has ended.
    Over,
}

/// The outcome of T5.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Kept {
    /// The next event wakes the task.
    Pending,
    /// An event has come, and another task may have taken its mark: from T1.
    Again,
    /// The runtime has ended.
    Over,
}

/// One direction's word.
pub(super) struct TaskWord(AtomicU32);

/// The wakers, of the reading and of the writing side.
pub(super) type Wakers = Mutex<[Option<Waker>; 2]>;

pub(super) fn no_wakers() -> Wakers {
    Mutex::new(Rank::TaskWaker, [None, None])
}

impl TaskWord {
    pub(super) fn new() -> Self {
        TaskWord(AtomicU32::new(0))
    }

    /// E4's load, after E1's exchange of the slot, whose partner is T0's.
    #[inline(always)]
    pub(super) fn is_used(&self) -> bool {
        // Relaxed: USED is in the word before T0's exchange, which E1 acquires if it comes second.
        self.0.load(Relaxed) != 0
    }

    /// E4. Returns `true` if a waker is to be taken.
    pub(super) fn mark(&self) -> bool {
        let mut seen = self.0.load(Relaxed);
        loop {
            let ready = READY;
            mutant!(TaskEventUnmarked: let ready = 0);
            // Release: what the event reports, and `seen`: partner T1. Acquire: the waker: partner T5. No model has this
            // Acquire, nor T5's orderings, for the lock of the wakers does the same: if E5 had that lock before T4, then this
            // exchange would come before T5, which would see READY or another turn; and after that T1 acquires.
            let ordering = both(Acquire, Release.unless(TaskMarksRelaxed));
            match self.0.compare_exchange(seen, (seen | ready) & !WAITS, ordering, Relaxed) {
                Ok(_) => return seen & WAITS != 0,
                Err(now) => seen = now,
            }
        }
    }

    /// T1 and T2. `may_trust` is called after the mark was read.
    #[inline]
    fn begin(&self, may_trust: impl Fn() -> bool) -> Begun {
        // Acquire: `seen`, which `may_trust` reads: partner E4, whose release sequence the exchanges of tasks continue. Another
        // task might have taken that event's mark, and have set DRAINED.
        let look = Acquire.unless(TaskLooksRelaxed).unless(TaskTrustsRelaxed);
        let mut seen = self.0.load(look);
        loop {
            if seen & OVER != 0 {
                return Begun::Over;
            }
            if seen & USED == 0 {
                return Begun::Unmarked;
            }
            if seen & READY == 0 {
                return match seen & DRAINED != 0 && may_trust() {
                    true => Begun::Wait(Turn::of(seen)),
                    false => Begun::Call(Turn::of(seen)),
                };
            }
            let next = (seen & !(READY | DRAINED)).wrapping_add(TURN);
            mutant!(TaskKeepsItsTurn: let next = seen & !(READY | DRAINED));
            // Acquire: what the event reports: partner E4.
            match self.0.compare_exchange(seen, next, Acquire.unless(TaskBeginsRelaxed), look) {
                Ok(_) => return Begun::Call(Turn::of(next)),
                Err(now) => seen = now,
            }
        }
    }

    /// The end of T3.
    fn note_drained(&self, turn: Turn) {
        let mut seen = self.0.load(Relaxed);
        while Turn::of(seen) == turn && seen & DRAINED == 0 {
            // Relaxed: DRAINED speaks of the kernel's state, and of nothing in memory.
            match self.0.compare_exchange(seen, seen | DRAINED, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// T5. The waker is kept already.
    fn wait(&self, turn: Turn) -> Kept {
        let mut seen = self.0.load(Relaxed);
        loop {
            let drained = if Turn::of(seen) == turn { DRAINED } else { 0 };
            // Release: the waker: partner E4. Acquire: what the event reports, if it came first.
            match self.0.compare_exchange(seen, seen | WAITS | drained, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        mutant!(TaskDoesNotLookAgain: return Kept::Pending);
        match seen {
            seen if seen & OVER != 0 => Kept::Over,
            seen if seen & READY != 0 => Kept::Again,
            seen if (Turn::of(seen) != turn).unless(TaskWaitsInAnotherTurn) => Kept::Again,
            _ => Kept::Pending,
        }
    }
}

impl<H: Host> PollDesc<H> {
    /// T0, of a descriptor that no poller watches yet: its events are marked from the first on.
    pub(crate) fn mark_from_the_first(&self) {
        for side in [&self.read, &self.write] {
            // Relaxed: published with the place in the poller's table.
            side.tasks.0.store(USED, Relaxed);
        }
    }

    /// T0, of a descriptor that is watched already. The task makes its system call once more.
    #[cold]
    pub(crate) fn mark_from_now(&self, direction: Direction) {
        let side = self.side(direction);
        // Relaxed: before the exchange.
        side.tasks.0.fetch_or(USED, Relaxed);
        mutant!(TaskFirstUseUnordered: return);
        // AcqRel: partner E1: the second of the two sees what the first has done.
        let both = both(Acquire.unless(TaskFirstUseLooksRelaxed), Release.unless(TaskFirstUseRelaxed));
        side.slot.fetch_or(0, both);
    }

    /// T1 and T2.
    #[inline]
    pub(crate) fn begin_task(&self, direction: Direction) -> Begun {
        self.side(direction).tasks.begin(|| {
            mutant!(TaskTrustsAfterHup: return true);
            self.may_trust_a_short_read()
        })
    }

    /// The end of T3: a short read has drained the socket.
    #[inline]
    pub(crate) fn note_drained(&self, direction: Direction, turn: Turn) {
        self.side(direction).tasks.note_drained(turn);
    }

    /// Returns `true` if T4 has nothing to do, as this task's waker is kept already.
    pub(crate) fn keeps(&self, direction: Direction, waker: &Waker) -> bool {
        self.wakers.lock()[direction as usize].as_ref().is_some_and(|kept| kept.will_wake(waker))
    }

    /// T4. Returns the waker that was there before, for the caller to drop when the poll is no user of the descriptor.
    pub(crate) fn keep(&self, direction: Direction, waker: Waker) -> Option<Waker> {
        self.wakers.lock()[direction as usize].replace(waker)
    }

    /// T5, after `EAGAIN` in this turn.
    pub(crate) fn wait_as_task(&self, direction: Direction, turn: Turn) -> Kept {
        self.side(direction).tasks.wait(turn)
    }

    /// E4 and E5.
    #[cold]
    pub(super) fn tell_task(&self, side: &Side<H>, tasks: &mut impl FnMut(Waker)) {
        if side.tasks.mark() {
            mutant!(TaskWakerForgotten: return);
            let direction =
                if std::ptr::eq(side, &raw const self.read) { Direction::Read } else { Direction::Write };
            let waker = self.wakers.lock()[direction as usize].take();
            // Another event may have taken it.
            if let Some(waker) = waker {
                tasks(waker);
            }
        }
    }

    /// Under the lock of the poller's table: returns `true` if the next event wakes a task, or the waker of one that was
    /// dropped.
    pub(crate) fn keeps_a_waker(&self) -> bool {
        // Relaxed: E4 is under that lock; the caller says why no T5 comes beside it.
        [&self.read, &self.write].iter().any(|side| side.tasks.0.load(Relaxed) & WAITS != 0)
    }

    /// Returns the wakers of all tasks here, for the caller to call outside of its locks.
    pub(crate) fn take_wakers(&self) -> [Option<Waker>; 2] {
        std::mem::take(&mut *self.wakers.lock())
    }

    /// Sets OVER, as no M polls any more. Returns the wakers of the tasks that would wait for ever.
    pub(crate) fn end_for_tasks(&self) -> [Option<Waker>; 2] {
        for side in [&self.read, &self.write] {
            mutant!(TaskMissesTheEnd: continue);
            // AcqRel: the wakers: partner T5. No model has either half, for the lock of the wakers does the same, as in `mark`.
            side.tasks.0.fetch_or(OVER, AcqRel);
        }
        self.take_wakers()
    }

    /// Returns `true` if the runtime has ended.
    pub(crate) fn is_over(&self) -> bool {
        // Relaxed: a hint; T5 decides.
        self.read.tasks.0.load(Relaxed) & OVER != 0
    }

    /// Forgets for `reset` what is known of tasks. No task is in an operation here, as that task would hold the old runtime. A
    /// task that found OVER at T5 has left its waker, which is returned.
    #[must_use]
    pub(super) fn reset_tasks(&self) -> [Option<Waker>; 2] {
        for side in [&self.read, &self.write] {
            // Relaxed: published with the place in the poller's table.
            side.tasks.0.store(0, Relaxed);
        }
        self.take_wakers()
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;
    use crate::host::{Active, Interest};
    use std::sync::Arc;
    use std::task::Wake;

    /// Fails by a waker that the descriptor keeps for its next runtime, which would drop it under the table's lock.
    #[test]
    fn a_task_that_comes_after_the_end_leaves_no_waker_to_the_next_runtime() {
        struct Silent;
        impl Wake for Silent {
            fn wake(self: Arc<Self>) {}
        }
        let (desc, silent) = (PollDesc::<Active>::new(), Arc::new(Silent));
        let waker = Waker::from(Arc::clone(&silent));
        assert!(desc.end_for_tasks().into_iter().flatten().next().is_none());
        assert!(desc.keep(Direction::Read, waker.clone()).is_none());
        let kept = desc.wait_as_task(Direction::Read, Turn::FIRST);
        assert_eq!((kept, Arc::strong_count(&silent)), (Kept::Over, 3));
        let stale = desc.reset(Interest::Reads);
        assert_eq!(stale.into_iter().flatten().count(), 1);
        assert!(desc.end_for_tasks().into_iter().flatten().next().is_none());
        assert_eq!(Arc::strong_count(&silent), 2);
    }
}
