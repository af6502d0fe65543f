//! One operation of a select.

use super::erased::{Boxed, Ops, Space};
use super::order::Link;
use super::selected::Chosen;
use super::{Found, Intent};
use crate::chan::flow::{Chan, Glance, Raw, Taken};
use crate::chan::state::{QueueState, Record, RecordPtr, State, WaitResult, Woken};
use crate::host::{Active, Clock};
use crate::prim::{MutexGuard, UnsafeCell};
use crate::wait::queue::{Node, Queue};
use gmp_timers::Nanos;
use std::alloc::Layout;
use std::ptr::NonNull;
use std::task::Waker;
use std::time::Instant;

#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Direction {
    Receive,
    Send,
}

impl Direction {
    /// Returns `true` if such an operation could complete now, on the channel of this state.
    #[inline(always)]
    pub(super) fn is_ready(self, state: &mut State) -> bool {
        match self {
            Direction::Receive => state.may_receive(),
            Direction::Send => state.may_send(),
        }
    }
}

/// A direction and a channel: the operation of an arm.
#[derive(Copy, Clone)]
pub(crate) struct Operation<'a> {
    direction: Direction,
    /// `None`: never ready.
    chan: Option<(&'a Raw, *const (), &'static Ops)>,
}

impl<'a> Operation<'a> {
    pub(crate) fn new<T>(direction: Direction, chan: Option<&'a Chan<T>>) -> Self {
        let chan = chan.map(|chan| (chan.raw(), (&raw const *chan).cast(), const { &Chan::<T>::OPS }));
        Operation { direction, chan }
    }

    /// Returns the place of the channel's lock in the order of locking; operations without a channel come first.
    #[inline(always)]
    pub(crate) fn place(&self) -> usize {
        self.chan.map_or(0, |(raw, ..)| raw.state.place())
    }

    /// Locks the channel, if the operation could complete now.
    #[inline]
    pub(crate) fn lock_if_ready(&self) -> Option<MutexGuard<'a, State>> {
        let (raw, ..) = self.chan?;
        let mut state = raw.state.lock();
        self.direction.is_ready(&mut state).then_some(state)
    }
}

/// One operation of a select, with its state during a wait.
pub struct Arm<'a> {
    pub(super) direction: Direction,
    pub(super) chan: Option<(&'a Raw, *const (), &'static Ops)>,
    /// Memory for a message that does not fit into the space.
    pub(super) boxed: Option<Boxed>,
    pub(super) record: Option<Node<Record>>,
    /// The arm whose channel is locked next.
    pub(super) next: usize,
    /// The lock of the channel while the select holds it, in one arm of each channel. A cell, as the goroutine may read the
    /// arms again while the commit hook of its park still takes the guards out.
    guard: UnsafeCell<Option<MutexGuard<'a, State>>>,
    pub(super) state: *mut State,
}

impl<'a> Arm<'a> {
    #[inline]
    pub(crate) fn new(operation: Operation<'a>) -> Self {
        Arm {
            direction: operation.direction,
            chan: operation.chan,
            boxed: None,
            record: None,
            next: 0,
            guard: UnsafeCell::new(None),
            state: std::ptr::null_mut(),
        }
    }

    /// Returns the address of the arm's channel; null for an arm without a channel.
    pub(super) fn address(&self) -> *const () {
        self.chan.map_or(std::ptr::null(), |(_, chan, _)| chan)
    }

    /// Locks the arm's channel, for all arms of the select with this channel.
    #[inline(always)]
    pub(super) fn hold(&self, raw: &'a Raw) -> *mut State {
        let lock = raw.state.lock();
        // SAFETY: the cell belongs to the goroutine: the commit hook of the last wait emptied the cell before it released the
        // lock, and the goroutine has that lock in the next round (see the header of `chan/select.rs`).
        self.guard.with_mut(|guard| unsafe { &raw mut **(*guard).insert(lock) })
    }

    /// Takes the guard out, if this arm has one.
    ///
    /// # Safety
    /// The caller is the party that releases the locks: the goroutine, or, when the goroutine parks, its commit hook.
    #[inline(always)]
    pub(super) unsafe fn let_go(&self) -> Option<MutexGuard<'a, State>> {
        // SAFETY: from `hold` until the last lock is free the cell belongs to the caller. A goroutine that was woken meanwhile
        // reads other fields of the arm, and touches this cell next in `hold`.
        self.guard.with_mut(|guard| unsafe { (*guard).take() })
    }

    /// Returns the place for a received message; null for a send, whose message is not evaluated yet.
    #[inline]
    pub(super) fn slot(&mut self, space: *mut Space) -> *mut () {
        match (self.direction, self.chan) {
            (Direction::Receive, Some((_, _, ops))) if ops.fits => space.cast(),
            (Direction::Receive, Some((_, _, ops))) => self.boxed_slot(&ops.layout),
            _ => std::ptr::null_mut(),
        }
    }

    #[cold]
    fn boxed_slot(&mut self, layout: &'static Layout) -> *mut () {
        self.boxed.get_or_insert_with(|| Boxed::new(layout)).slot()
    }

    /// Returns the result of a look without the lock for a receive; `Unclear` for a send. An arm without a channel has nothing.
    #[inline(always)]
    pub(super) fn glance(&self) -> Glance {
        match (self.direction, self.chan) {
            (Direction::Receive, Some((raw, ..))) => raw.glance(),
            (Direction::Receive, None) => Glance::Nothing,
            (Direction::Send, _) => Glance::Unclear,
        }
    }

    /// Receives a message from the buffer of the arm's channel, which is not locked, if there is a message.
    #[inline(always)]
    pub(super) fn take_message(&mut self, space: *mut Space) -> bool {
        let Some((_, chan, ops)) = self.chan else { return false };
        let slot = self.slot(space);
        // SAFETY: `Operation::new` has put `chan` and `ops` of one `Chan<T>` together, and `slot` gave this arm's place: the
        // space of the select, which the caller keeps alive, or a box for a `T`.
        unsafe { (ops.take_message)(chan, slot) }
    }

    /// Returns `true` if the arm's operation could complete now. The channel is locked.
    #[inline(always)]
    pub(super) fn is_ready(&self) -> bool {
        // SAFETY: `Search` has set the pointer and holds the channel's lock, and there is no other reference to the state
        // meanwhile.
        self.direction.is_ready(unsafe { &mut *self.state })
    }

    /// As `is_ready`, for a receive that asks no sender for a message.
    pub(super) fn is_ready_at_once(&self) -> bool {
        // SAFETY: as in `is_ready`.
        let state = unsafe { &mut *self.state };
        match self.direction {
            Direction::Receive => state.may_receive_at_once(),
            Direction::Send => state.may_send(),
        }
    }

    /// As `take` with `Intent::Operate`; a receive asks no sender for a message.
    #[cold]
    pub(super) fn take_at_once(&mut self, space: *mut Space, woken: &mut Woken) -> Option<Chosen> {
        let (_, chan, ops) = self.chan?;
        // SAFETY: as in `take`.
        let state = unsafe { &mut *self.state };
        match self.direction {
            // SAFETY: as in `take`.
            Direction::Receive => match unsafe { (ops.take_at_once)(chan, state, self.slot(space), woken) } {
                Taken::Done => Some(Chosen::Received),
                Taken::Closed => Some(Chosen::Drained),
                Taken::Promise(_) | Taken::Nothing => None,
            },
            Direction::Send => state.promise(woken).map(Chosen::Sends),
        }
    }

    /// Takes the arm, if the arm is still ready. The channel is locked.
    #[inline(always)]
    pub(super) fn take(&mut self, space: *mut Space, intent: Intent, woken: &mut Woken) -> Option<Found> {
        let (_, chan, ops) = self.chan?;
        debug_assert!(!self.state.is_null(), "take: the channel is not locked");
        // SAFETY: `Search::lock` has set the pointer and holds the channel's lock, and there is no other reference to
        // the state.
        let state = unsafe { &mut *self.state };
        let chosen = match (intent, self.direction) {
            (Intent::Operate, Direction::Receive) => {
                // SAFETY: the channel is locked; the slot is valid for a write of a message of this channel.
                match unsafe { (ops.take)(chan, state, self.slot(space), woken) } {
                    Taken::Done => Chosen::Received,
                    Taken::Closed => Chosen::Drained,
                    Taken::Promise(sender) => return Some(Found::Promise(sender)),
                    Taken::Nothing => return None,
                }
            }
            (Intent::Operate, Direction::Send) => Chosen::Sends(state.promise(woken)?),
            (Intent::Watch, _) => Chosen::Drained,
        };
        Some(Found::Chosen(chosen))
    }

    /// Returns the queue in which the arm's record waits.
    pub(super) fn queue<'s>(&self, state: &'s mut State, intent: Intent) -> &'s mut Queue<Record> {
        match (intent, self.direction) {
            (Intent::Operate, Direction::Receive) => &mut state.receivers,
            (Intent::Operate, Direction::Send) => &mut state.senders,
            (Intent::Watch, Direction::Receive) => &mut state.receive_watchers,
            (Intent::Watch, Direction::Send) => &mut state.send_watchers,
        }
    }

    pub(super) fn wait_result(&self) -> WaitResult {
        self.record.as_ref().map_or(WaitResult::Open, |record| record.value.wait_result())
    }

    pub(super) fn node(&self) -> Option<RecordPtr> {
        self.record.as_ref().map(NonNull::from)
    }

    /// Gives up the place that the record of this receive keeps. Returns `true` if a sender has put a message into the slot
    /// since a promise was withdrawn.
    pub(super) fn leave_place(&self) -> bool {
        let (Some((raw, ..)), Some(node)) = (self.chan, self.node()) else { return false };
        let mut state = raw.state.lock();
        // SAFETY: the record stands in this queue, or in none.
        unsafe {
            state.receivers.remove(node);
            node.as_ref().value.queue_state() == QueueState::Served
        }
    }

    /// Returns the arm's record, as the record of a receiver that waits for its turn.
    fn waiting(&self, intent: Intent) -> Option<RecordPtr> {
        self.node().filter(|_| intent == Intent::Operate)
    }

    /// As `State::turn_of`, for the record that the arm has queued. The channel is not locked.
    pub(super) fn turn(&self, intent: Intent) -> Option<Nanos> {
        let (raw, ..) = self.chan.filter(|_| self.direction == Direction::Receive)?;
        raw.state.lock().turn_of(self.waiting(intent))
    }

    /// Takes the time that is due at `now`, if this arm has its turn. The arm's record stands in the queue of a channel that is
    /// not locked.
    pub(super) fn take_tick(&mut self, space: *mut Space, now: Nanos) -> bool {
        let slot = self.slot(space);
        let Some((raw, ..)) = self.chan else { return false };
        let Some(due) = raw.state.lock().take_tick(self.node(), now) else { return false };
        // SAFETY: only a channel of `Instant`s is a timer channel, and `slot` gave this arm's place.
        unsafe { slot.cast::<Instant>().write(Active::instant(due)) };
        true
    }

    /// As `leave`, for an arm that operates on a channel that may be a timer channel: gives the turn to the next receiver.
    /// `wake` calls the waker of a task.
    pub(super) fn leave_turn(&self, wake: fn(Waker)) {
        if let (Some((raw, ..)), Some(node), Direction::Receive) = (self.chan, self.node(), self.direction) {
            // SAFETY: the record belongs to this select, and stands in this queue, or in none.
            unsafe { raw.leave_turn(raw.state.lock(), node, wake) };
        } else {
            self.leave(Intent::Operate);
        }
    }

    /// Takes the arm's record out of the queue, if the record is there.
    pub(super) fn leave(&self, intent: Intent) {
        if let (Some((raw, ..)), Some(node)) = (self.chan, self.node()) {
            let mut state = raw.state.lock();
            // SAFETY: the record stands in this queue, or in none.
            unsafe { self.queue(&mut state, intent).remove(node) };
        }
    }
}

impl Link for Arm<'_> {
    /// Returns the place of the channel's lock in the order of locking; arms without a channel come first.
    #[inline(always)]
    fn place(&self) -> usize {
        self.chan.map_or(0, |(raw, ..)| raw.state.place())
    }

    #[inline(always)]
    fn next(&mut self) -> &mut usize {
        &mut self.next
    }
}
