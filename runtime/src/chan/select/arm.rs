//! One operation of a select, and what is left to do when it was chosen; for messages whose type only the channel's ends know.

use crate::chan::flow::{Chan, Promised, Raw, Taken};
use crate::chan::select::Intent;
use crate::chan::state::{Deal, Record, RecordPtr, State, Woken};
use crate::prim::MutexGuard;
use crate::queue::{Node, Queue};
use std::alloc::{self, Layout};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Messages up to this many bytes need no box.
const SPACE: usize = 32;

/// Where the message of an arm lies.
#[repr(C, align(16))]
struct Space(MaybeUninit<[u8; SPACE]>);

/// What a channel does with messages of its type.
pub(crate) struct Ops {
    layout: Layout,
    /// `Chan::take`.
    pub(super) take: unsafe fn(*const (), &mut State, *mut (), &mut Woken) -> Taken,
    drop: unsafe fn(*mut ()),
    pub(super) withdraw: unsafe fn(*const (), Promised),
}

impl<T> Chan<T> {
    pub(crate) const OPS: Ops = Ops {
        layout: Layout::new::<T>(),
        take: Self::take_erased,
        drop: Self::drop_erased,
        withdraw: Self::withdraw_erased,
    };

    /// # Safety
    /// `this` is a `Chan<T>`; else as `take`.
    unsafe fn take_erased(this: *const (), state: &mut State, slot: *mut (), woken: &mut Woken) -> Taken {
        // SAFETY: by this function's contract.
        unsafe { (*this.cast::<Self>()).take(state, slot.cast(), woken) }
    }

    /// # Safety
    /// A `T` lies there, which nobody uses afterwards.
    unsafe fn drop_erased(message: *mut ()) {
        // SAFETY: by this function's contract.
        unsafe { message.cast::<T>().drop_in_place() }
    }

    /// # Safety
    /// `this` is a `Chan<T>`.
    unsafe fn withdraw_erased(this: *const (), promised: Promised) {
        // SAFETY: by this function's contract.
        unsafe { (*this.cast::<Self>()).withdraw(promised) }
    }
}

#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Direction {
    Receive,
    Send,
}

/// What an arm does, on which channel.
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
}

/// One operation of a select, with what it needs while it waits.
pub struct Arm<'a> {
    pub(super) direction: Direction,
    pub(super) chan: Option<(&'a Raw, *const (), &'static Ops)>,
    space: Space,
    /// Where a message goes that does not fit into the space.
    boxed: Option<NonNull<u8>>,
    pub(super) record: Option<Node<Record>>,
    /// Whether the record keeps its place in the queue, after a promise that was withdrawn.
    pub(super) kept: bool,
    /// While the select holds the locks: the lock, in one arm of each channel, and what is under it.
    pub(super) guard: Option<MutexGuard<'a, State>>,
    pub(super) state: *mut State,
}

impl<'a> Arm<'a> {
    pub(crate) fn new(operation: Operation<'a>) -> Self {
        Arm {
            direction: operation.direction,
            chan: operation.chan,
            space: Space(MaybeUninit::uninit()),
            boxed: None,
            record: None,
            kept: false,
            guard: None,
            state: std::ptr::null_mut(),
        }
    }

    /// What tells its channel from others; null for none.
    pub(super) fn address(&self) -> *const () {
        self.chan.map_or(std::ptr::null(), |(_, chan, _)| chan)
    }

    /// When its channel is locked, beside others; those without one come first.
    pub(super) fn rank(&self) -> usize {
        self.chan.map_or(0, |(raw, chan, _)| raw.rank.of(chan))
    }

    /// Where a message is to go; null for a send, whose message is not there yet.
    pub(super) fn slot(&mut self) -> *mut () {
        let Some((_, _, ops)) = self.chan.filter(|_| self.direction == Direction::Receive) else {
            return std::ptr::null_mut();
        };
        if ops.layout.size() <= SPACE && ops.layout.align() <= align_of::<Space>() {
            return (&raw mut self.space).cast();
        }
        let boxed = *self.boxed.get_or_insert_with(|| {
            // SAFETY: it is larger than the space.
            let memory = unsafe { alloc::alloc(ops.layout) };
            NonNull::new(memory).unwrap_or_else(|| alloc::handle_alloc_error(ops.layout))
        });
        boxed.as_ptr().cast()
    }

    /// # Safety
    /// The caller holds the channel's lock, and has no other reference to its state.
    pub(super) unsafe fn state(&mut self) -> &mut State {
        debug_assert!(!self.state.is_null(), "state: the channel is not locked");
        // SAFETY: set by `lock_all`, and good as long as the locks are held.
        unsafe { &mut *self.state }
    }

    /// The queue in which it waits.
    pub(super) fn queue<'s>(&self, state: &'s mut State, intent: Intent) -> &'s mut Queue<Record> {
        match (intent, self.direction) {
            (Intent::Operate, Direction::Receive) => &mut state.receivers,
            (Intent::Operate, Direction::Send) => &mut state.senders,
            (Intent::Watch, Direction::Receive) => &mut state.receive_watchers,
            (Intent::Watch, Direction::Send) => &mut state.send_watchers,
        }
    }

    pub(super) fn deal(&self) -> Deal {
        self.record.as_ref().map_or(Deal::Open, |record| record.value.deal())
    }

    pub(super) fn node(&self) -> Option<RecordPtr> {
        self.record.as_ref().map(NonNull::from)
    }

    /// Takes its record out of the queue, if it stands there.
    pub(super) fn leave(&self, intent: Intent) {
        if let (Some((raw, ..)), Some(node)) = (self.chan, self.node()) {
            let mut state = raw.state.lock();
            // SAFETY: it stands there, or in none.
            unsafe { self.queue(&mut state, intent).remove(node) };
        }
    }
}

impl Drop for Arm<'_> {
    fn drop(&mut self) {
        if let (Some(boxed), Some((_, _, ops))) = (self.boxed, self.chan) {
            // SAFETY: made by `slot` with this layout; what it held was moved out by `Selected`, with the box.
            unsafe { alloc::dealloc(boxed.as_ptr(), ops.layout) };
        }
    }
}

/// What has become of the chosen arm.
pub(crate) enum Chosen {
    /// The message lies in the arm's slot.
    Received,
    /// Nothing is left to receive.
    Drained,
    /// A send, whose message is still to come.
    Sends(Promised),
}

/// A chosen arm, whose operation is to be completed.
pub(crate) struct Selected<'a> {
    pub(crate) index: usize,
    chan: *const (),
    ops: &'static Ops,
    chosen: Option<Chosen>,
    space: Space,
    boxed: Option<NonNull<u8>>,
    channel: PhantomData<&'a ()>,
}

impl<'a> Selected<'a> {
    pub(super) fn new(arm: &mut Arm<'a>, index: usize, chosen: Chosen) -> Self {
        let (_, chan, ops) = arm.chan.expect("select: a disabled arm is never ready");
        let space = std::mem::replace(&mut arm.space, Space(MaybeUninit::uninit()));
        let boxed = arm.boxed.take();
        Selected { index, chan, ops, chosen: Some(chosen), space, boxed, channel: PhantomData }
    }

    fn slot(&mut self) -> *mut () {
        match self.boxed {
            Some(boxed) => boxed.as_ptr().cast(),
            None => (&raw mut self.space).cast(),
        }
    }

    /// Completes a receive; `None`: the channel is closed and drained.
    #[track_caller]
    pub(crate) fn recv<T>(mut self, chan: Option<&Chan<T>>) -> Option<T> {
        let same = chan.is_some_and(|chan| std::ptr::eq((&raw const *chan).cast(), self.chan));
        assert!(same, "passed a receiver that wasn't selected");
        match self.chosen.take() {
            // SAFETY: the message lies there, of the type of this channel; it is moved out once.
            Some(Chosen::Received) => Some(unsafe { self.slot().cast::<T>().read() }),
            Some(Chosen::Drained) => None,
            chosen => {
                self.chosen = chosen;
                panic!("passed a receiver, but a send was selected")
            }
        }
    }

    /// Completes a send; gives the message back when the channel is closed.
    #[track_caller]
    pub(crate) fn send<T>(mut self, chan: Option<&Chan<T>>, message: T) -> Result<(), T> {
        let same = chan.filter(|chan| std::ptr::eq((&raw const **chan).cast(), self.chan));
        let chan = same.expect("passed a sender that wasn't selected");
        match self.chosen.take() {
            Some(Chosen::Sends(promised)) => chan.fulfil(promised, message),
            chosen => {
                self.chosen = chosen;
                panic!("passed a sender, but a receive was selected")
            }
        }
    }
}

impl Drop for Selected<'_> {
    fn drop(&mut self) {
        match self.chosen.take() {
            // SAFETY: the message lies there and was not moved.
            Some(Chosen::Received) => unsafe { (self.ops.drop)(self.slot()) },
            // SAFETY: `chan` is of this type, and outlives its borrow.
            Some(Chosen::Sends(promised)) => unsafe { (self.ops.withdraw)(self.chan, promised) },
            Some(Chosen::Drained) | None => {}
        }
        if let Some(boxed) = self.boxed {
            // SAFETY: made by the arm with this layout; the message was moved out or dropped.
            unsafe { alloc::dealloc(boxed.as_ptr(), self.ops.layout) };
        }
    }
}
