//! pollDesc's one-slot semaphore: how an event and the goroutine that waits for it meet without missing each other.
//!
//! A descriptor has one slot for each direction. A slot holds at most one event and at most one waiting *owner*: the
//! holder of that direction's I/O lock. This file has only the transitions, as functions of a snapshot; the runtime
//! owns the atomic word and applies them in a compare-and-exchange loop.
//!
//! ```text
//!                          clear
//!    ┌────────────────────────────────────────────────┐
//!    ▼                 unblock(Ready)                 │
//! ┌─────┐ ────────────────────────────────────────► ┌─┴─────┐
//! │     │                                           │       │
//! │     │  block: Announce  ┌──────┐ unblock(Ready) │       │
//! │ Nil │ ────────────────► │ Wait │ ─────────────► │ Ready │
//! │     │ ◄──────────────── └──┬───┘                │       │
//! │     │   unblock(Look)      │ commit(t)          │       │
//! │     │   leave              ▼                    │       │
//! │     │                 ┌──────────┐              │       │
//! │     │ ◄────────────── │ Token(t) │ ───────────► │       │
//! └─────┘ unblock(Look),  └──────────┘              └───────┘
//!         wakes t · leave(t)           unblock(Ready), wakes t
//! ```
//! Wait: the owner still runs. Token: the owner is parked. A transition without an arrow exchanges the word by the same value.
//!
//! | state    | `block` | `commit(t)`  | `unblock(Ready)` | `unblock(Look)` | `leave(t)`     | `clear` |
//! | -------- | ------- | ------------ | ---------------- | --------------- | -------------- | ------- |
//! | Nil      | Wait    | call off     | Ready            | Nil             | Nil, woken     | –       |
//! | Ready    | ready   | call off     | Ready            | Ready           | Ready, kept    | Nil     |
//! | Wait     | busy    | Token(t)     | Ready            | Nil             | Nil            | panics  |
//! | Token(t) | busy    | panics       | Ready, wake t    | Nil, wake t     | Nil            | panics  |
//!
//! The calls:
//! - The owner, before its system call: `clear`. After `EAGAIN`, or instead of a system call that cannot succeed:
//!   `block`; on Announce the owner looks at close, deadline and cancel, and then parks (or takes Wait back with
//!   `leave`).
//! - The M that parked the owner, in the commit hook, after the save: `commit`.
//! - The poller, for each event: `unblock(Cause::Ready)`. Close and a changed deadline:
//!   `unblock(Cause::Look)`.
//! - The owner, woken or called off: `leave`, which leaves an event in the slot. The owner then checks whether it may
//!   go on, and if so calls `clear` and makes its system call.
//!
//! Close against park: C1 mark closed · C2 exchange the slot by `unblock(Look)`. W1 exchange Nil by Wait · W2 read the mark ·
//! W3 commit. One of C2 and W1 comes first in the slot's order. If C2 comes first, W1 reads what C2 wrote and W2 sees the mark;
//! if W1 comes first, C2 meets Wait or Token, and the commit fails or the owner is woken. Hence invariant 2.
//!
//! Invariants:
//! 1. Only the owner moves a slot to Wait, Token or out of Ready; anyone may `unblock`.
//! 2. Every `unblock` exchanges the word by a read-modify-write, even if the value stays the same, so that the owner's next
//!    exchange sees what the caller wrote before (closed, deadline, sticky readiness). Go saves the store and relies on its
//!    sequentially consistent atomics; with acquire and release alone the owner could miss a close, or the end of file that
//!    came with an event on a slot already Ready.
//! 3. All exchanges are AcqRel, and their failures Acquire. A first look may be Relaxed: a stale Nil leaves
//!    Ready in the slot, which costs one more system call; anything else is corrected by the exchange.
//! 4. Ready outlives a wait that was given up (`leave`). Only `clear` consumes it, and the owner that calls `clear` then makes
//!    the system call even if its deadline has passed meanwhile: an edge is reported once.
//! 5. A ticket is in the slot from `commit` to the one transition that takes it out. Only the caller of that transition may
//!    wake the owner through the ticket, once. The claim decides whether the owner still waits.

use std::fmt;

/// Which parked owner a slot names: 62 bits that only the runtime understands.
///
/// A ticket should carry a wait number, so that the runtime can recognize a late wake through an old ticket.
///
/// ```
/// use gmp_netpoll::Ticket;
///
/// assert_eq!(Ticket::new(7).get(), 7);
/// assert!(std::panic::catch_unwind(|| Ticket::new(Ticket::MAX + 1)).is_err());
/// ```
#[derive(Copy, Clone, Eq, PartialEq, Hash)]
pub struct Ticket(u64);

impl Ticket {
    /// The largest value a ticket can carry.
    pub const MAX: u64 = u64::MAX >> TAG_BITS;

    /// Makes a ticket from a value of 62 bits.
    ///
    /// # Panics
    /// If `value` is larger than [`Ticket::MAX`].
    #[inline]
    #[track_caller]
    pub const fn new(value: u64) -> Self {
        assert!(value <= Self::MAX, "Ticket::new: the value has more than 62 bits");
        Self(value)
    }

    /// Returns the value from which the ticket was made.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({})", self.0)
    }
}

const TAG_BITS: u32 = 2;
const TAG: u64 = (1 << TAG_BITS) - 1;
const NIL: u64 = 0;
const READY: u64 = 1;
const WAIT: u64 = 2;
const TOKEN: u64 = 3;

/// A snapshot of one direction's slot.
///
/// ```
/// use gmp_netpoll::{Block, Cause, Commit, Slot, Ticket, Unblock};
///
/// // An owner finds no event, announces its wait, and is parked.
/// let Block::Announce(slot) = Slot::NIL.block() else { unreachable!() };
/// let Commit::Park(slot) = slot.commit(Ticket::new(7)) else { unreachable!() };
/// // The poller delivers an event: the owner behind the ticket is to be woken.
/// let Unblock::Wake(slot, ticket) = slot.unblock(Cause::Ready) else { unreachable!() };
/// assert_eq!(ticket, Ticket::new(7));
/// // The next owner finds the event.
/// assert_eq!(slot.block(), Block::Ready);
/// ```
#[doc(alias = "pollDesc")]
#[derive(Copy, Clone, Eq, PartialEq)]
pub struct Slot(u64);

#[derive(Copy, Clone, Eq, PartialEq)]
enum State {
    Nil,
    Ready,
    Wait,
    Token(Ticket),
}

/// Why [`Slot::unblock`] is called.
///
/// ```
/// use gmp_netpoll::{Cause, Slot, Unblock};
///
/// // An event stays for the next owner, a change does not: the owner reads it before each wait.
/// assert_ne!(Slot::NIL.unblock(Cause::Ready), Unblock::Store(Slot::NIL));
/// assert_eq!(Slot::NIL.unblock(Cause::Look), Unblock::Store(Slot::NIL));
/// ```
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Cause {
    /// The descriptor became ready (Go's `ioready = true`).
    Ready,
    /// A change other than readiness (a close, a deadline set or moved), which the owner must read.
    Look,
}

/// The result of [`Slot::block`].
///
/// ```
/// use gmp_netpoll::{Block, Cause, Slot, Unblock};
///
/// let Block::Announce(waiting) = Slot::NIL.block() else { unreachable!() };
/// assert_eq!(waiting.block(), Block::Busy);
/// let Unblock::Store(ready) = waiting.unblock(Cause::Ready) else { unreachable!() };
/// assert_eq!(ready.block(), Block::Ready);
/// ```
#[must_use]
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Block {
    /// There is an event, which stays for [`Slot::clear`], before the system call.
    Ready,
    /// There is no event. Exchange the word by this one, read close and deadline, then park.
    Announce(Slot),
    /// Another owner waits here already: the caller does not hold the I/O lock.
    Busy,
}

/// The result of [`Slot::commit`].
///
/// ```
/// use gmp_netpoll::{Block, Cause, Commit, Slot, Ticket, Unblock};
///
/// let Block::Announce(waiting) = Slot::NIL.block() else { unreachable!() };
/// let Unblock::Store(ready) = waiting.unblock(Cause::Ready) else { unreachable!() };
/// // The event came between the announcement and the save.
/// assert_eq!(ready.commit(Ticket::new(7)), Commit::CallOff);
/// ```
#[must_use]
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Commit {
    /// Exchange the word by this one; once that succeeded the owner is parked and may be woken at any moment.
    Park(Slot),
    /// An event or a [`Cause::Look`] came: the park is called off, and the owner runs on and leaves.
    CallOff,
}

/// The action that is left to the caller of [`Slot::unblock`]. In both cases the word is exchanged, even for the same value
/// (invariant 2).
///
/// ```
/// use gmp_netpoll::{Block, Cause, Commit, Slot, Ticket, Unblock};
///
/// let Block::Announce(waiting) = Slot::NIL.block() else { unreachable!() };
/// assert_eq!(waiting.unblock(Cause::Look), Unblock::Store(Slot::NIL));
/// let Commit::Park(parked) = waiting.commit(Ticket::new(7)) else { unreachable!() };
/// assert_eq!(parked.unblock(Cause::Look), Unblock::Wake(Slot::NIL, Ticket::new(7)));
/// ```
#[must_use]
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Unblock {
    /// Exchange the word by this one. No owner is parked.
    Store(Slot),
    /// Exchange the word by this one, then claim and ready the owner behind the ticket.
    Wake(Slot, Ticket),
}

/// The result of [`Slot::leave`].
///
/// ```
/// use gmp_netpoll::{Block, Cause, Commit, Leave, Slot, Ticket, Unblock};
///
/// let ticket = Ticket::new(7);
/// let Block::Announce(waiting) = Slot::NIL.block() else { unreachable!() };
/// let Commit::Park(parked) = waiting.commit(ticket) else { unreachable!() };
/// assert_eq!(parked.leave(ticket), Leave::Withdraw(Slot::NIL));
/// let Unblock::Wake(ready, _) = parked.unblock(Cause::Ready) else { unreachable!() };
/// assert_eq!(ready.leave(ticket), Leave::Kept);
/// ```
#[must_use]
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Leave {
    /// The owner still waits. Exchange the word by this one, which ends the wait.
    Withdraw(Slot),
    /// An event ended the wait; the event stays in the slot for the next system call.
    Kept,
    /// A [`Cause::Look`] ended the wait; the slot is empty.
    Gone,
}

impl Slot {
    /// No event and no owner: the first state of a slot.
    pub const NIL: Slot = Slot(NIL);
    const READY: Slot = Slot(READY);
    const WAIT: Slot = Slot(WAIT);

    /// Returns the snapshot that the word `bits` holds.
    ///
    /// # Panics
    /// If no slot can have these bits.
    #[inline]
    #[track_caller]
    pub fn from_bits(bits: u64) -> Self {
        assert!(bits <= TOKEN || bits & TAG == TOKEN, "Slot::from_bits: corrupted pollDesc ({bits:#x})");
        Self(bits)
    }

    /// Returns the word that holds this snapshot.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    #[inline]
    const fn state(self) -> State {
        match self.0 & TAG {
            NIL => State::Nil,
            READY => State::Ready,
            WAIT => State::Wait,
            _ => State::Token(Ticket(self.0 >> TAG_BITS)),
        }
    }

    /// Called by an owner that is about to wait: finds an event that is already there, or announces the wait.
    #[doc(alias = "netpollblock")]
    #[inline]
    pub fn block(self) -> Block {
        match self.state() {
            State::Nil => Block::Announce(Self::WAIT),
            State::Ready => Block::Ready,
            State::Wait | State::Token(_) => Block::Busy,
        }
    }

    /// Returns `true` if an owner has announced a wait, or is parked.
    #[inline]
    pub fn is_awaited(self) -> bool {
        matches!(self.state(), State::Wait | State::Token(_))
    }

    /// Called when the announced owner is saved: puts its ticket into the slot, unless an event came in between.
    ///
    /// # Panics
    /// If another ticket is in the slot: two owners share one I/O lock.
    #[doc(alias = "netpollblockcommit")]
    #[inline]
    #[track_caller]
    pub fn commit(self, ticket: Ticket) -> Commit {
        match self.state() {
            State::Wait => Commit::Park(Self(ticket.0 << TAG_BITS | TOKEN)),
            State::Nil | State::Ready => Commit::CallOff,
            State::Token(_) => panic!("commit: an owner is parked here already ({self:?}, {ticket:?})"),
        }
    }

    /// Delivers an event or a change. Any thread may call it.
    #[doc(alias = "netpollunblock")]
    #[inline]
    pub fn unblock(self, cause: Cause) -> Unblock {
        let after = match (cause, self.state()) {
            // A change does not overwrite an event that is not consumed yet.
            (Cause::Ready, _) | (Cause::Look, State::Ready) => Self::READY,
            (Cause::Look, _) => Self::NIL,
        };
        match self.state() {
            State::Token(ticket) => Unblock::Wake(after, ticket),
            State::Nil | State::Ready | State::Wait => Unblock::Store(after),
        }
    }

    /// Called by an owner that runs again: it was woken or called off, or it gives up its wait (timeout, cancel, shutdown). An
    /// event that has come meanwhile stays.
    ///
    /// # Panics
    /// If the ticket in the slot is not `ticket`: two owners share one I/O lock.
    #[inline]
    #[track_caller]
    pub fn leave(self, ticket: Ticket) -> Leave {
        match self.state() {
            State::Nil => Leave::Gone,
            State::Ready => Leave::Kept,
            State::Wait => Leave::Withdraw(Self::NIL),
            State::Token(found) => {
                assert!(found == ticket, "leave: another owner is parked here ({self:?}, {ticket:?})");
                Leave::Withdraw(Self::NIL)
            }
        }
    }

    /// Called by an owner that is about to make its system call, which will find what an earlier event reported: empties the
    /// slot. `None` if the slot is empty: then no exchange is needed. Never call this after the system call, which would drop
    /// an event that the system call has not seen.
    ///
    /// # Panics
    /// If an owner waits here: the caller does not hold the I/O lock.
    #[doc(alias = "netpollreset")]
    #[inline]
    #[track_caller]
    pub fn clear(self) -> Option<Slot> {
        match self.state() {
            State::Nil => None,
            State::Ready => Some(Self::NIL),
            State::Wait | State::Token(_) => panic!("clear: an owner waits here ({self:?})"),
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state() {
            State::Nil => f.write_str("Nil"),
            State::Ready => f.write_str("Ready"),
            State::Wait => f.write_str("Wait"),
            State::Token(ticket) => write!(f, "Token({})", ticket.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    const T: Ticket = Ticket::new(7);
    const TOKEN_T: Slot = Slot(7 << TAG_BITS | TOKEN);
    const ALL: [Slot; 4] = [Slot::NIL, Slot::READY, Slot::WAIT, TOKEN_T];

    /// `expected` stands in the order of `ALL`; `None` means that the transition panics there.
    fn row<R: PartialEq + fmt::Debug>(transition: fn(Slot) -> R, expected: [Option<R>; 4]) {
        for (slot, expected) in ALL.into_iter().zip(expected) {
            assert_eq!(catch_unwind(|| transition(slot)).ok(), expected, "from {slot:?}");
        }
    }

    #[test]
    fn block_finds_an_event_or_announces_the_wait() {
        row(Slot::block, [Block::Announce(Slot::WAIT), Block::Ready, Block::Busy, Block::Busy].map(Some));
    }

    #[test]
    fn commit_parks_only_what_is_still_announced() {
        let (off, park) = (Some(Commit::CallOff), Some(Commit::Park(TOKEN_T)));
        row(|slot| slot.commit(T), [off, off, park, None]);
    }

    #[test]
    fn an_event_always_leaves_ready_and_wakes_only_a_parked_owner() {
        let (store, wake) = (Unblock::Store(Slot::READY), Unblock::Wake(Slot::READY, T));
        row(|slot| slot.unblock(Cause::Ready), [store, store, store, wake].map(Some));
    }

    #[test]
    fn a_look_takes_every_wait_out_and_forgets_no_event() {
        let (nil, kept) = (Unblock::Store(Slot::NIL), Unblock::Store(Slot::READY));
        row(|slot| slot.unblock(Cause::Look), [nil, kept, nil, Unblock::Wake(Slot::NIL, T)].map(Some));
    }

    #[test]
    fn leave_withdraws_the_own_wait_and_keeps_an_event() {
        let withdraw = Leave::Withdraw(Slot::NIL);
        row(|slot| slot.leave(T), [Leave::Gone, Leave::Kept, withdraw, withdraw].map(Some));
        let [gone, kept, withdraw] = [Leave::Gone, Leave::Kept, withdraw].map(Some);
        row(|slot| slot.leave(Ticket::new(8)), [gone, kept, withdraw, None]);
    }

    #[test]
    fn clear_empties_what_only_an_owner_may_empty() {
        row(Slot::clear, [Some(None), Some(Some(Slot::NIL)), None, None]);
    }

    #[test]
    fn the_word_holds_every_state_and_the_widest_ticket() {
        for slot in ALL {
            assert_eq!(Slot::from_bits(slot.to_bits()), slot);
        }
        for value in [0, 1, Ticket::MAX] {
            let Commit::Park(slot) = Slot::WAIT.commit(Ticket::new(value)) else { panic!("not parked") };
            let back = Slot::from_bits(slot.to_bits()).unblock(Cause::Ready);
            assert_eq!(back, Unblock::Wake(Slot::READY, Ticket::new(value)));
        }
        assert!(catch_unwind(|| Ticket::new(Ticket::MAX + 1)).is_err());
        for bits in [4, 5, 6, u64::MAX - 1] {
            assert!(catch_unwind(|| Slot::from_bits(bits)).is_err(), "{bits} is no slot");
        }
    }

    #[test]
    fn debug_prints_the_state() {
        assert_eq!(format!("{ALL:?} {T:?}"), "[Nil, Ready, Wait, Token(7)] Ticket(7)");
    }
}
