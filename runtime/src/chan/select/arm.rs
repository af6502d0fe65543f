//! One operation of a select, and what is left to do when it was chosen; for messages whose type only the channel's ends know.

use crate::chan::flow::{Chan, Raw, Taken};
use crate::chan::select::order::Link;
use crate::chan::select::promise_hook::PromiseHook;
use crate::chan::select::{Found, Intent};
use crate::chan::state::{Promised, Record, RecordPtr, State, WaitResult, Woken};
use crate::chan::{Receiver, RecvError, SendError, Sender};
use crate::prim::{MutexGuard, UnsafeCell};
use crate::wait::queue::{Node, Queue};
use std::alloc::{self, Layout};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Messages up to this many bytes need no box.
const SPACE: usize = 32;

/// Bytes for what a send has promised.
const ROOM: usize = 80;

/// Where the message of a select lies that fits, or what the chosen send has promised.
#[repr(C, align(16))]
pub struct Space(MaybeUninit<[u8; ROOM]>);

impl Space {
    /// Without a message.
    #[inline]
    pub fn empty() -> Self {
        Space(MaybeUninit::uninit())
    }
}

/// What a channel does with messages of its type.
pub(crate) struct Ops {
    /// Of a box for one; never empty.
    layout: Layout,
    /// Whether a message needs no box.
    fits: bool,
    /// `Chan::take`.
    take: unsafe fn(*const (), &mut State, *mut (), &mut Woken) -> Taken,
    drop: unsafe fn(*mut ()),
    /// `Chan::withdraw`.
    pub(super) withdraw: unsafe fn(*const (), Promised),
}

/// Never empty: a message without a size may be too well aligned for the space, and nothing of no size is to be allocated.
const fn layout_of_box<T>() -> Layout {
    let layout = Layout::new::<T>();
    // SAFETY: the alignment is a type's, of which one byte is no overflow.
    if layout.size() > 0 { layout } else { unsafe { Layout::from_size_align_unchecked(1, layout.align()) } }
}

impl<T> Chan<T> {
    pub(crate) const OPS: Ops = Ops {
        layout: layout_of_box::<T>(),
        fits: size_of::<T>() <= SPACE && align_of::<T>() <= align_of::<Space>(),
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

/// Memory for a message that does not fit into the space; the message is others' business.
pub(super) struct Boxed {
    memory: NonNull<u8>,
    layout: &'static Layout,
}

impl Boxed {
    fn new(layout: &'static Layout) -> Self {
        // SAFETY: the layout of a box is never empty.
        let memory = NonNull::new(unsafe { alloc::alloc(*layout) });
        Boxed { memory: memory.unwrap_or_else(|| alloc::handle_alloc_error(*layout)), layout }
    }

    fn slot(&self) -> *mut () {
        self.memory.as_ptr().cast()
    }
}

impl Drop for Boxed {
    fn drop(&mut self) {
        // SAFETY: made by `new` with this layout.
        unsafe { alloc::dealloc(self.memory.as_ptr(), *self.layout) };
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
    /// Where a message goes that does not fit into the space.
    pub(super) boxed: Option<Boxed>,
    pub(super) record: Option<Node<Record>>,
    /// The arm whose channel is locked next.
    pub(super) next: usize,
    /// While the select holds the locks: the lock, in one arm of each channel, and what is under it. A cell: the goroutine may
    /// look at its arms already while the hook with which it has parked still empties them.
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

    /// What tells its channel from others; null for none.
    pub(super) fn address(&self) -> *const () {
        self.chan.map_or(std::ptr::null(), |(_, chan, _)| chan)
    }

    /// Locks its channel, for the whole select.
    #[inline(always)]
    pub(super) fn hold(&mut self, raw: &'a Raw) -> *mut State {
        let lock = raw.state.lock();
        // SAFETY: the goroutine's own, and the hook of its last wait has emptied it: only after that hook it has had each lock
        // once more, and is in the next round (see the header of `chan/select.rs`).
        self.guard.with_mut(|guard| unsafe { &raw mut **(*guard).insert(lock) })
    }

    /// Takes the lock out, if this arm has one.
    ///
    /// # Safety
    /// The caller unlocks all: the goroutine, or, when that parks, its commit hook.
    #[inline(always)]
    pub(super) unsafe fn let_go(&self) -> Option<MutexGuard<'a, State>> {
        // SAFETY: from `hold` on it is the caller's, until the last lock is free. A goroutine that was woken meanwhile
        // reads what else is in the arm, and comes to this cell again in `hold`.
        self.guard.with_mut(|guard| unsafe { (*guard).take() })
    }

    /// Where a message is to go; null for a send, whose message is not there yet.
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

    /// Whether it could go on now. Its channel is locked.
    #[inline(always)]
    pub(super) fn is_ready(&self) -> bool {
        // SAFETY: set by who has locked the channel, and nobody changes it meanwhile.
        let state = unsafe { &*self.state };
        match self.direction {
            Direction::Receive => state.may_receive(),
            Direction::Send => state.may_send(),
        }
    }

    /// Takes it, if it is still ready. Its channel is locked.
    #[inline(always)]
    pub(super) fn take(&mut self, space: *mut Space, intent: Intent, woken: &mut Woken) -> Option<Found> {
        let (_, chan, ops) = self.chan?;
        debug_assert!(!self.state.is_null(), "take: the channel is not locked");
        // SAFETY: set by who has locked the channel, and nobody else has a reference to it.
        let state = unsafe { &mut *self.state };
        let chosen = match (intent, self.direction) {
            (Intent::Operate, Direction::Receive) => {
                // SAFETY: locked; the slot is good for a message of this channel.
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

    /// The queue in which it waits.
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

    /// Takes its record out of the queue, if it stands there.
    pub(super) fn leave(&self, intent: Intent) {
        if let (Some((raw, ..)), Some(node)) = (self.chan, self.node()) {
            let mut state = raw.state.lock();
            // SAFETY: it stands there, or in none.
            unsafe { self.queue(&mut state, intent).remove(node) };
        }
    }
}

impl Link for Arm<'_> {
    /// When its channel is locked, beside others; those without one come first.
    #[inline(always)]
    fn place(&self) -> usize {
        self.chan.map_or(0, |(raw, ..)| raw.state.place())
    }

    #[inline(always)]
    fn next(&mut self) -> &mut usize {
        &mut self.next
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

/// A chosen arm, whose operation is to be completed. Dropping it calls the operation off.
pub struct Selected<'a> {
    index: usize,
    chan: *const (),
    ops: &'static Ops,
    chosen: Option<Chosen>,
    /// Where a message lies that was received.
    slot: *mut (),
    /// Goes last, and also where the `drop` of the message in it panics.
    _boxed: Option<Boxed>,
    channel: PhantomData<&'a mut Space>,
}

impl<'a> Selected<'a> {
    /// The number of no arm: the limit came first.
    pub const NONE: usize = usize::MAX;

    /// # Safety
    /// If it is `Received`, a message of the arm's channel lies in the arm's slot, which is the arm's box or this space. If it
    /// `Sends`, its promise was noted in the space. The space is there for `'a`.
    #[inline]
    pub(super) unsafe fn new(arm: &mut Arm<'a>, space: *mut Space, index: usize, chosen: Chosen) -> Self {
        let (_, chan, ops) = arm.chan.expect("select: a disabled arm is never ready");
        let boxed = arm.boxed.take();
        let slot = boxed.as_ref().map_or(space.cast(), Boxed::slot);
        Selected { index, chan, ops, chosen: Some(chosen), slot, _boxed: boxed, channel: PhantomData }
    }

    /// No arm.
    #[cold]
    pub(super) fn none() -> Self {
        let (chan, slot) = (std::ptr::null(), std::ptr::null_mut());
        let ops = const { &Chan::<()>::OPS };
        Selected { index: Self::NONE, chan, ops, chosen: None, slot, _boxed: None, channel: PhantomData }
    }

    /// The number of the arm.
    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Completes a receive.
    ///
    /// # Errors
    /// The channel is closed, and no message is left.
    #[inline]
    #[track_caller]
    pub fn recv<T>(mut self, receiver: &Receiver<T>) -> Result<T, RecvError> {
        let same = receiver.chan().is_some_and(|chan| std::ptr::eq((&raw const *chan).cast(), self.chan));
        assert!(same, "passed a receiver that wasn't selected");
        match self.chosen.take() {
            // SAFETY: the message lies there, of the type of this channel; it is moved out once.
            Some(Chosen::Received) => Ok(unsafe { self.slot.cast::<T>().read() }),
            Some(Chosen::Drained) => Err(RecvError),
            chosen => {
                self.chosen = chosen;
                panic!("passed a receiver, but a send was selected")
            }
        }
    }

    /// Completes a send.
    ///
    /// # Errors
    /// The channel is closed; with the message.
    #[track_caller]
    pub fn send<T>(mut self, sender: &Sender<T>, message: T) -> Result<(), SendError<T>> {
        let same = sender.chan().filter(|chan| std::ptr::eq((&raw const **chan).cast(), self.chan));
        let chan = same.expect("passed a sender that wasn't selected");
        match self.chosen.take() {
            Some(Chosen::Sends(promised)) => {
                // SAFETY: by the contract of `new`.
                let limit = unsafe { PromiseHook::take_back(self.slot) };
                chan.fulfil(promised, message, limit).map_err(SendError)
            }
            chosen => {
                self.chosen = chosen;
                panic!("passed a sender, but a receive was selected")
            }
        }
    }

    #[cold]
    fn cancel(&mut self) {
        match self.chosen.take() {
            // SAFETY: the message lies there and was not moved.
            Some(Chosen::Received) => unsafe { (self.ops.drop)(self.slot) },
            // SAFETY: as in `send`; `chan` is of this type, and outlives its borrow.
            Some(Chosen::Sends(promised)) => unsafe {
                PromiseHook::take_back(self.slot);
                (self.ops.withdraw)(self.chan, promised);
            },
            Some(Chosen::Drained) | None => {}
        }
    }
}

impl Drop for Selected<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.chosen.is_some() {
            self.cancel();
        }
    }
}
