//! pollDesc: where the poller's events for a descriptor meet the goroutine that waits for them.
//!
//! There is one for each descriptor and runtime. Each direction has one slot, whose states and transitions are
//! `gmp_netpoll::Slot`. This file has the atomic word, the loops around the word, and the owner for which the ticket in
//! the word stands:
//!
//! ```text
//!   owner (holds the direction's I/O lock)        poller
//!   O1 Nil → Wait                                 E1 word → Ready; a ticket was there?
//!   O2 owner, number := the waiting goroutine     E2   read owner, number … before the exchange
//!   O3 saved; commit hook: Wait → Token(ticket)   E3   claim (owner, number), ready
//! ```
//! An owner that runs again, for whatever reason, takes its ticket out of the slot, if still there, and leaves an event
//! in the slot: `clear` takes the event, right before the next system call. So an operation that gives up, at its
//! deadline or for an interrupt, loses no event, even if the event came first.
//!
//! A closer, or a setter of a deadline, wakes the owner by `look`: the closer or setter writes the mark (closed,
//! deadline), and then exchanges the slot. The owner announces itself in the slot, and then reads the mark. One of the
//! two exchanges comes first: either the owner sees the mark, or the closer finds the announcement.
//!
//! *A time limit that fires at once.* The wait's timer is armed before O3, and can ready the owner while the M that parked it
//! still has O3 to do. O3 would then put the ticket into the slot when the owner does not wait under that ticket any more, or
//! into the announcement of the owner's next wait. So in a wait with a limit the parking M holds the side's gate until O3 is
//! over, and the owner, when it runs again, first passes that gate.
//!
//! Each park on this slot has a new ticket. E2 reads `owner` and `number` before E1's exchange; if the exchange succeeds, the
//! slot still had the same ticket, so `owner` and `number` were not written in between. A claim under a wait number that is
//! over fails, and touches only the owner's status word, which stays mapped (`g/mod.rs`, invariant 3).
//!
//! `seen` keeps the events that are reported once only: the peer has closed, an error, urgent data (at whose mark a
//! read stops short). As long as none of them was seen, a read that filled less than its buffer has drained the
//! socket, and the next read may wait for an event before its system call.
//!
//! A task, which polls instead of waiting, has a word and a waker beside the slot: `desc/tasks.rs`.
//!
//! Checked by `models/polldesc.rs`.

use crate::g::list::GList;
use crate::g::{G, GRef};
use crate::host::{Host, Interest};
use crate::m::M;
use crate::prim::hooks::*;
use crate::prim::{
    Acquire, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ghost, Mutex, Rank, Relaxed, Release,
};
use crate::sched::park::{Commit, WaitReason};
use crate::wait::interrupt::{Interrupt, OnInterrupt};
use crate::wait::status::{Then, WaitNumber};
use crate::wait::waiter::{How, Wait, Woke};
use gmp_netpoll::{Block, Cause, Commit as SlotCommit, Leave, Readiness, Slot, Ticket, Unblock};
use gmp_timers::Nanos;
use std::task::Waker;

mod tasks;

pub(crate) use tasks::{Begun, Kept, Turn};
use tasks::{TaskWord, Wakers};

/// Fetches the frames of both goroutines, for a look that finds more than one. With a thousand connections, a goroutine's
/// frames have left the cache since its last event; a goroutine that is found alone is resumed at once, and fetches its frames
/// itself.
///
/// # Safety
/// As `GRef::fetch_frames`, of both.
#[inline(never)]
unsafe fn fetch_frames_of_both<H: Host>(first: GRef<H>, g: GRef<H>) {
    // SAFETY: by this function's contract. The frames of `first` are in the cache already when a third goroutine is found.
    unsafe {
        first.fetch_frames();
        g.fetch_frames();
    }
}

/// What a goroutine waits for.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Direction {
    /// Data, a connection to accept, the end of the stream.
    Read,
    /// Room to write, the end of connecting.
    Write,
}

/// How a wait on a descriptor ended.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Waited {
    /// An event came: the owner makes its system call.
    Ready,
    /// No event came: the owner checks whether the socket was closed, the deadline moved, or the time is over.
    Look,
    /// The owner was interrupted. An event that came meanwhile is still there.
    Interrupted(Interrupt),
}

struct Side<H: Host> {
    slot: AtomicU64,
    owner: AtomicPtr<G<H>>,
    number: AtomicU64,
    ticket: AtomicU64,
    /// Held by a wait with a limit, from the arming of the timer to the end of O3.
    gate: Mutex<()>,
    /// Touched by O3, and by the owner that runs again; for loom, which checks that the two never overlap.
    committing: Ghost,
    tasks: TaskWord,
}

// SAFETY: atomics and a lock; the ghost holds nothing, and loom checks which threads touch it.
unsafe impl<H: Host> Sync for Side<H> {}

impl<H: Host> Side<H> {
    fn new() -> Self {
        Side {
            slot: AtomicU64::new(Slot::NIL.to_bits()),
            owner: AtomicPtr::new(std::ptr::null_mut()),
            number: AtomicU64::new(0),
            ticket: AtomicU64::new(0),
            gate: Mutex::new(Rank::Gate, ()),
            committing: Ghost::new(),
            tasks: TaskWord::new(),
        }
    }

    fn load(&self) -> Slot {
        // Relaxed: a first read; the exchange that follows corrects it.
        Slot::from_bits(self.slot.load(Relaxed))
    }

    /// Exchanges the word. The error is the current value.
    fn exchange(&self, from: Slot, to: Slot) -> Result<(), Slot> {
        // AcqRel, each exchange the partner of the others: what one side wrote before its exchange, the other side sees after
        // its own.
        let both = both(Acquire.unless(PollExchangeLooksRelaxed), Release.unless(PollExchangeRelaxed));
        // Acquire: likewise, with the same partners.
        let look = Acquire.unless(PollRetryRelaxed);
        match self.slot.compare_exchange(from.to_bits(), to.to_bits(), both, look) {
            Ok(_) => Ok(()),
            Err(now) => Err(Slot::from_bits(now)),
        }
    }

    /// Empties the slot before a system call, which will find what the event reported.
    fn clear(&self) {
        let mut seen = self.load();
        if seen.is_awaited() {
            seen = self.forget_left(seen);
        }
        while let Some(empty) = seen.clear() {
            match self.exchange(seen, empty) {
                Ok(()) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// The caller has the I/O lock, and another goroutine's ticket stands in the slot: that goroutine was parked when
    /// the runtime of both began to end. Its I/O lock was passed on, and its wait can't be claimed any more.
    #[cold]
    fn forget_left(&self, seen: Slot) -> Slot {
        let ends = M::<H>::current().is_some_and(|m| m.sched().is_ending());
        assert!(ends, "wait: the caller does not hold the I/O lock ({seen:?})");
        let _changed = self.exchange(seen, Slot::NIL);
        self.load()
    }

    /// Calls `look` once the wait is announced; `look` returns until when to wait, or `None` if the owner must not
    /// wait.
    fn wait(&self, mut wait: Wait<H>, how: How, look: impl FnOnce() -> Option<Option<Nanos>>) -> Waited {
        let (g, number) = wait.goroutine().expect("wait: called on a goroutine");
        // Relaxed: only the owner writes the ticket; O3's exchange publishes it with the rest.
        let ticket = (self.ticket.load(Relaxed) + 1) & Ticket::MAX;
        self.ticket.store(ticket, Relaxed);
        let ticket = Ticket::new(ticket);
        // O1
        let mut seen = self.load();
        loop {
            let next = match seen.block() {
                // The event stays in the slot for `clear`, before the system call, as the operation may give up
                // instead.
                Block::Ready => {
                    mutant!(PollTakesTheEvent: { let _taken = self.exchange(seen, Slot::NIL); });
                    wait.withdraw();
                    return Waited::Ready;
                }
                Block::Announce(next) => next,
                Block::Busy => {
                    seen = self.forget_left(seen);
                    continue;
                }
            };
            match self.exchange(seen, next) {
                Ok(()) => break,
                Err(now) => seen = now,
            }
        }
        // After the announcement: `look` sees a change made before, and a change made later finds the announcement.
        let Some(until) = look() else {
            wait.withdraw();
            return self.leave(ticket);
        };
        // O2. Relaxed: O3's exchange publishes both.
        self.owner.store(g.to_raw(), Relaxed);
        self.number.store(number.to_bits(), Relaxed);
        let gate = until.is_some().then(|| self.gate.lock());
        let woke = wait.park(how.until(until), move || {
            let commit = self.commit(ticket);
            drop(gate);
            commit
        });
        if until.is_some().unless(PollNoGate) {
            drop(self.gate.lock());
        }
        self.committing.touch();
        let left = self.leave(ticket);
        match woke {
            // Woken by an event, by `look`, or by the time limit.
            Woke::Readied | Woke::Refused => left,
            Woke::Interrupted(why) => Waited::Interrupted(why),
            Woke::Nudged => unreachable!("wait: it does not ask for looks"),
        }
    }

    /// The owner runs again, for whatever reason: takes its ticket out of the slot, if still there, and leaves an event
    /// there.
    fn leave(&self, ticket: Ticket) -> Waited {
        // Relaxed, in `load`: what the waker wrote is seen after the fence of `Holder::go_on`.
        let mut seen = self.load();
        loop {
            match seen.leave(ticket) {
                Leave::Kept => {
                    mutant!(PollLeaveForgetsTheEvent: self.slot.store(Slot::NIL.to_bits(), Release); return Waited::Look);
                    return Waited::Ready;
                }
                Leave::Gone => return Waited::Look,
                Leave::Withdraw(next) => {
                    mutant!(PollLeavesItsTicket: return Waited::Look);
                    match self.exchange(seen, next) {
                        Ok(()) => return Waited::Look,
                        Err(now) => seen = now,
                    }
                }
            }
        }
    }

    /// O3, on the M, after the save.
    fn commit(&self, ticket: Ticket) -> Commit {
        self.committing.touch();
        let mut seen = self.load();
        loop {
            let next = match seen.commit(ticket) {
                SlotCommit::Park(next) => next,
                SlotCommit::CallOff => {
                    mutant!(PollCommitIgnored: return Commit::Park);
                    return Commit::Refuse;
                }
            };
            // Release: the owner and number, written in O2, are published to E2: partner `unblock`.
            let release = Release.unless(PollCommitRelaxed);
            match self.slot.compare_exchange(seen.to_bits(), next.to_bits(), release, Relaxed) {
                Ok(_) => return Commit::Park,
                Err(now) => seen = Slot::from_bits(now),
            }
        }
    }

    /// E1 to E3. Returns the owner if the claim was won, for the caller to queue.
    fn unblock(&self, cause: Cause) -> Option<GRef<H>> {
        // Acquire: partner O3, for E2.
        let mut seen = Slot::from_bits(self.slot.load(Acquire.unless(PollUnblockRelaxed)));
        loop {
            let (next, wake) = match seen.unblock(cause) {
                // The exchange is made even if the value stays, so that the owner's next exchange sees what the
                // caller wrote before.
                Unblock::Store(next) => {
                    mutant!(PollLookSparesTheExchange: if next == seen { return None });
                    (next, false)
                }
                Unblock::Wake(next, _) => (next, true),
            };
            // E2. Relaxed: ordered by the load that found the ticket, and validated by the exchange.
            let owner = self.owner.load(Relaxed);
            let number = WaitNumber::from_bits(self.number.load(Relaxed));
            match self.exchange(seen, next) {
                Ok(()) if wake => {
                    assert!(!owner.is_null(), "unblock: a ticket without an owner");
                    // SAFETY: `owner` was stored by the goroutine whose ticket this call has just taken out. That
                    // goroutine belongs to this poller's runtime, whose pool lives: the caller is an M of that runtime,
                    // or holds the scheduler.
                    let g = unsafe { GRef::from_raw(owner) };
                    return (g.word.claim(number) && g.word.ready() == Then::Queue).then_some(g);
                }
                Ok(()) => return None,
                Err(now) => seen = now,
            }
        }
    }
}

/// One descriptor in one runtime's poller.
#[doc(alias = "pollDesc")]
pub(crate) struct PollDesc<H: Host> {
    read: Side<H>,
    write: Side<H>,
    seen: AtomicU32,
    /// Whether the poller reports room to write. Written by the thread that registers the descriptor, and then under the
    /// lock of the socket's registrations.
    watches_writes: AtomicBool,
    /// The wakers of the tasks that wait, of both sides.
    wakers: Wakers,
}

impl<H: Host> PollDesc<H> {
    pub(crate) fn new() -> Self {
        let watches_writes = AtomicBool::new(true);
        PollDesc {
            read: Side::new(),
            write: Side::new(),
            seen: AtomicU32::new(0),
            watches_writes,
            wakers: tasks::no_wakers(),
        }
    }

    fn side(&self, direction: Direction) -> &Side<H> {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    /// Called before a system call in this direction: drops an event, as the call will find what that event reported.
    pub(crate) fn clear(&self, direction: Direction) {
        self.side(direction).clear();
    }

    /// Returns `true` if a short read proves the socket drained: no event was seen that is reported once only.
    pub(crate) fn may_trust_a_short_read(&self) -> bool {
        let seen = self.seen();
        mutant!(SocketTrustsAfterHup: return true);
        seen.short_read_drains()
    }

    /// Returns `true` if an event has reported the end of reads.
    pub(crate) fn has_told_of_an_end(&self) -> bool {
        self.seen().intersects(Readiness::READ_HUP | Readiness::HUP)
    }

    fn seen(&self) -> Readiness {
        // Relaxed: an event is in `seen` before it is in the slot. An owner that has taken the event out of the slot, by an
        // exchange that acquires it, sees the bits. An owner that has not taken it finds the event in the slot when it waits,
        // and makes the system call again. A task sees the bits by the Acquire of its T1, whose partner E4 comes after them.
        Readiness::from_bits(self.seen.load(Relaxed) as u8)
    }

    /// Parks the calling goroutine, the holder of this direction's I/O lock, until an event comes. `look`, called
    /// once the wait is announced, returns until when to park, or `None` for not at all.
    pub(crate) fn wait(
        &self,
        wait: Wait<H>,
        direction: Direction,
        look: impl FnOnce() -> Option<Option<Nanos>>,
    ) -> Waited {
        let reason = match direction {
            Direction::Read => WaitReason::IoRead,
            Direction::Write => WaitReason::IoWrite,
        };
        self.side(direction).wait(wait, How::new(reason).ends(OnInterrupt::Returning), look)
    }

    /// Delivers an event: appends the goroutines that are readied to `found`, and calls `tasks` with the wakers of tasks.
    #[inline(always)]
    pub(crate) fn unblock(&self, readiness: Readiness, found: &mut GList<H>, tasks: &mut impl FnMut(Waker)) {
        unless!(PollSeenLate, self.see(readiness));
        for (wakes, side) in [(readiness.wakes_reader(), &self.read), (readiness.wakes_writer(), &self.write)]
        {
            if !wakes {
                continue;
            }
            if let Some(g) = side.unblock(Cause::Ready) {
                if let Some(first) = found.first() {
                    // SAFETY: `found` was empty before this look. So both waits were claimed here, and `ready` has found the
                    // goroutines saved; the caller queues them.
                    unsafe { fetch_frames_of_both(first, g) };
                }
                found.push(g);
            }
            if side.tasks.is_used() {
                self.tell_task(side, tasks);
            }
        }
        mutant!(PollSeenLate: self.see(readiness));
    }

    fn see(&self, readiness: Readiness) {
        let sticky = readiness.sticky();
        if sticky != Readiness::EMPTY {
            // Relaxed: the slot's exchange, which follows, publishes the bits to an owner that takes this event.
            self.seen.fetch_or(u32::from(sticky.to_bits()), Relaxed);
        }
    }

    /// The socket was closed, or a deadline was moved. Returns an owner that this call has woken, for the caller to
    /// queue; the caller keeps the scheduler alive.
    pub(crate) fn look(&self, direction: Direction) -> Option<GRef<H>> {
        self.side(direction).unblock(Cause::Look)
    }

    /// Whether the poller reports room to write.
    #[inline]
    pub(crate) fn watches_writes(&self) -> bool {
        // Acquire: the poller watches for writes: partner `note_watched_writes`. No model has the two: they order a system
        // call, and the model's poller has a lock.
        self.watches_writes.load(Acquire)
    }

    /// The poller reports room to write from now on. Under the lock of the socket's registrations.
    pub(crate) fn note_watched_writes(&self) {
        // Release: partner `watches_writes`.
        self.watches_writes.store(true, Release);
    }

    /// Empties the pollDesc, which a runtime's poller is to watch: the old runtime, if there was one, is over. Returns the
    /// wakers that were left there, for the caller to drop outside of its locks.
    #[must_use]
    pub(crate) fn reset(&self, interest: Interest) -> [Option<Waker>; 2] {
        for side in [&self.read, &self.write] {
            // Relaxed: published with the place in the poller's table.
            side.slot.store(Slot::NIL.to_bits(), Relaxed);
        }
        self.seen.store(0, Relaxed);
        self.watches_writes.store(interest == Interest::Both, Relaxed);
        self.reset_tasks()
    }
}
