//! One operation of a select, and the completion of a chosen operation. The type of the messages is erased: only the
//! sender and receiver know it.

use crate::chan::flow::{Chan, Glance, Raw, Taken};
use crate::chan::select::order::Link;
use crate::chan::select::promise_hook::PromiseHook;
use crate::chan::select::{Found, Intent, Limit};
use crate::chan::state::{Promised, QueueState, Record, RecordPtr, State, WaitResult, Woken};
use crate::chan::{Receiver, RecvError, SendError, Sender};
use crate::host::{Active, Clock};
use crate::prim::{MutexGuard, UnsafeCell};
use crate::wait::queue::{Node, Queue};
use gmp_timers::Nanos;
use std::alloc::{self, Layout};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;
use std::time::Instant;

/// Messages up to this many bytes need no box.
const SPACE: usize = 32;

/// Bytes for what a send has promised.
const ROOM: usize = 80;

/// Where a select keeps a received message that fits, or the hook of the promise of a chosen send.
#[repr(C, align(16))]
pub struct Space(MaybeUninit<[u8; ROOM]>);

impl Space {
    /// Without a message.
    #[inline]
    pub fn empty() -> Self {
        Space(MaybeUninit::uninit())
    }
}

/// A received message that needs no box, for as long as its select is not completed.
#[repr(C, align(16))]
pub(crate) struct Inline(MaybeUninit<[u8; SPACE]>);

impl Inline {
    /// Moves the first bytes of the space here: a message, or bytes that are not read.
    #[inline]
    pub(crate) fn out_of(space: &Space) -> Self {
        // SAFETY: the space is at least as large, and its bytes may be anything.
        Inline(unsafe { (&raw const space.0).cast::<MaybeUninit<[u8; SPACE]>>().read() })
    }

    #[inline]
    pub(crate) fn slot(&mut self) -> *mut () {
        (&raw mut self.0).cast()
    }
}

/// What a channel does with messages, by their type.
pub(crate) struct Ops {
    /// The layout of a box for a message; the size is never zero.
    layout: Layout,
    /// Set if a message needs no box.
    fits: bool,
    /// `Chan::take`.
    take: unsafe fn(*const (), &mut State, *mut (), &mut Woken) -> Taken,
    /// `Chan::take_at_once`.
    take_at_once: unsafe fn(*const (), &mut State, *mut (), &mut Woken) -> Taken,
    /// `Chan::take_message`.
    take_message: unsafe fn(*const (), *mut ()) -> bool,
    drop: unsafe fn(*mut ()),
    /// `Chan::withdraw`.
    pub(super) withdraw: unsafe fn(*const (), Promised),
}

/// The layout of a box for a `T`, of at least one byte: a zero-sized message may need more alignment than the space
/// has, and an allocation must not have size zero.
const fn layout_of_box<T>() -> Layout {
    let layout = Layout::new::<T>();
    // SAFETY: the alignment is that of a type, and one byte rounded up to the alignment does not overflow.
    if layout.size() > 0 { layout } else { unsafe { Layout::from_size_align_unchecked(1, layout.align()) } }
}

impl<T> Chan<T> {
    pub(crate) const OPS: Ops = Ops {
        layout: layout_of_box::<T>(),
        fits: size_of::<T>() <= SPACE && align_of::<T>() <= align_of::<Space>(),
        take: Self::take_erased,
        take_at_once: Self::take_at_once_erased,
        take_message: Self::take_message_erased,
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
    /// As `take_erased`.
    unsafe fn take_at_once_erased(
        this: *const (),
        state: &mut State,
        slot: *mut (),
        woken: &mut Woken,
    ) -> Taken {
        // SAFETY: by this function's contract.
        unsafe { (*this.cast::<Self>()).take_at_once(state, slot.cast(), woken) }
    }

    /// # Safety
    /// `this` is a `Chan<T>`; else as `take_message`.
    unsafe fn take_message_erased(this: *const (), slot: *mut ()) -> bool {
        // SAFETY: by this function's contract.
        unsafe { (*this.cast::<Self>()).take_message(slot.cast()) }
    }

    /// # Safety
    /// A `T` lies at `message`, and is not used afterwards.
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

/// Memory for a message that does not fit into the space. Dropping the box does not drop the message.
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

    /// The place of the channel's lock in the order of locking; operations without a channel come first.
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

/// One operation of a select, with what the operation needs during a wait.
pub struct Arm<'a> {
    pub(super) direction: Direction,
    pub(super) chan: Option<(&'a Raw, *const (), &'static Ops)>,
    /// Memory for a message that does not fit into the space.
    pub(super) boxed: Option<Boxed>,
    pub(super) record: Option<Node<Record>>,
    /// The arm whose channel is locked next.
    pub(super) next: usize,
    /// The lock of the channel, while the select holds it, in one arm of each channel. A cell, as the goroutine may
    /// read the arms again while the commit hook of the park still takes the guards out.
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

    /// The address of the arm's channel; null for an arm without a channel.
    pub(super) fn address(&self) -> *const () {
        self.chan.map_or(std::ptr::null(), |(_, chan, _)| chan)
    }

    /// Locks the arm's channel, for all arms of the select with this channel.
    #[inline(always)]
    pub(super) fn hold(&mut self, raw: &'a Raw) -> *mut State {
        let lock = raw.state.lock();
        // SAFETY: the cell is the goroutine's own: the commit hook of the last wait has emptied the cell before
        // releasing the lock, and the goroutine, in the next round, has that lock (see the header of `chan/select.rs`).
        self.guard.with_mut(|guard| unsafe { &raw mut **(*guard).insert(lock) })
    }

    /// Takes the guard out, if this arm has one.
    ///
    /// # Safety
    /// The caller releases the locks: the goroutine does, or, when the goroutine parks, the commit hook.
    #[inline(always)]
    pub(super) unsafe fn let_go(&self) -> Option<MutexGuard<'a, State>> {
        // SAFETY: from `hold` on the cell is the caller's, until the last lock is free. A goroutine that was woken
        // meanwhile reads other fields of the arm, and touches this cell next in `hold`.
        self.guard.with_mut(|guard| unsafe { (*guard).take() })
    }

    /// Where a received message goes; null for a send, whose message is not evaluated yet.
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

    /// What a look without the lock says of a receive; that of a send is unclear. An arm without a channel has nothing.
    #[inline(always)]
    pub(super) fn glance(&self) -> Glance {
        match (self.direction, self.chan) {
            (Direction::Receive, Some((raw, ..))) => raw.glance(),
            (Direction::Receive, None) => Glance::Nothing,
            (Direction::Send, _) => Glance::Unclear,
        }
    }

    /// Receives a message of the buffer of the arm's channel, which is not locked, if there is one.
    #[inline(always)]
    pub(super) fn take_message(&mut self, space: *mut Space) -> bool {
        let slot = self.slot(space);
        let Some((_, chan, ops)) = self.chan else { return false };
        // SAFETY: `Operation::new` has put `chan` and `ops` of one `Chan<T>` together, and `slot` gave this arm's place: the
        // space of the select, which its caller keeps, or a box for a `T`.
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

    /// As `take`, with the operation; a receive asks no sender for a message.
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

    /// The queue in which the arm's record waits.
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

    /// Gives up the place that the record of this receive keeps. Returns `true` if a message was put into the slot since a
    /// promise was withdrawn.
    pub(super) fn leave_place(&self) -> bool {
        let (Some((raw, ..)), Some(node)) = (self.chan, self.node()) else { return false };
        let mut state = raw.state.lock();
        // SAFETY: the record stands in this queue, or in none.
        unsafe {
            state.receivers.remove(node);
            node.as_ref().value.queue_state() == QueueState::Served
        }
    }

    /// The arm's record, as that of a receiver that waits for its turn.
    fn waiting(&self, intent: Intent) -> Option<RecordPtr> {
        self.node().filter(|_| intent == Intent::Operate)
    }

    /// As `State::turn_of`, for the record that the arm has queued. The channel is not locked.
    pub(super) fn turn(&self, intent: Intent) -> Option<Nanos> {
        let (raw, ..) = self.chan.filter(|_| self.direction == Direction::Receive)?;
        raw.state.lock().turn_of(self.waiting(intent))
    }

    /// Takes the time that is due at `now`, if it is this arm's turn. The arm's record stands in the queue of a channel that is
    /// not locked.
    pub(super) fn take_tick(&mut self, space: *mut Space, now: Nanos) -> bool {
        let slot = self.slot(space);
        let Some((raw, ..)) = self.chan else { return false };
        let Some(due) = raw.state.lock().take_tick(self.node(), now) else { return false };
        // SAFETY: only a channel of `Instant`s tells the time, and `slot` gave this arm's place.
        unsafe { slot.cast::<Instant>().write(Active::instant(due)) };
        true
    }

    /// As `leave`, for an arm that operates, on a channel that may tell the time: the next receiver has its turn.
    pub(super) fn leave_turn(&self) {
        if let (Some((raw, ..)), Some(node), Direction::Receive) = (self.chan, self.node(), self.direction) {
            // SAFETY: the record is this select's, and stands in this queue, or in none.
            unsafe { raw.leave_turn(raw.state.lock(), node) };
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
    /// The place of the channel's lock in the order of locking; arms without a channel come first.
    #[inline(always)]
    fn place(&self) -> usize {
        self.chan.map_or(0, |(raw, ..)| raw.state.place())
    }

    #[inline(always)]
    fn next(&mut self) -> &mut usize {
        &mut self.next
    }
}

/// What the chosen arm has committed to.
pub(crate) enum Chosen {
    /// A receive: the message lies in the arm's slot.
    Received,
    /// A receive: the channel is closed, and no message is left.
    Drained,
    /// A send, whose message is still to come.
    Sends(Promised),
}

/// A chosen arm, whose operation is to be completed. Dropping it cancels the operation.
pub struct Selected<'a> {
    index: usize,
    chan: *const (),
    ops: &'static Ops,
    chosen: Option<Chosen>,
    /// Where a received message lies; for a send, the space with the hook of the promise.
    slot: *mut (),
    /// Freed after the `Drop` of `Selected`, even if the `drop` of the message in the box panics.
    _boxed: Option<Boxed>,
    channel: PhantomData<&'a mut Space>,
}

impl<'a> Selected<'a> {
    /// The index that stands for no arm: the limit has passed.
    pub const NONE: usize = usize::MAX;

    /// # Safety
    /// If `chosen` is `Received`, a message of the arm's channel lies in the arm's slot, which is the arm's box or
    /// this space. If it is `Sends`, the promise was noted in the space. The space is borrowed for `'a`.
    #[inline]
    pub(super) unsafe fn new(arm: &mut Arm<'a>, space: *mut Space, index: usize, chosen: Chosen) -> Self {
        let (_, chan, ops) = arm.chan.expect("select: a disabled arm is never ready");
        let boxed = arm.boxed.take();
        let slot = boxed.as_ref().map_or(space.cast(), Boxed::slot);
        Selected { index, chan, ops, chosen: Some(chosen), slot, _boxed: boxed, channel: PhantomData }
    }

    /// For a select that `choose` has ended: notes what a chosen send has promised, in `room`.
    ///
    /// # Safety
    /// As `new`, for a received message that lies in a box. Where a message lies in the space, the caller passes its
    /// address to `at` later. `room` stays where it is until the `Selected` is dropped.
    #[inline]
    pub(crate) unsafe fn of_choice(
        arm: &mut Arm<'a>,
        room: *mut Space,
        chosen: Chosen,
        limit: Limit,
    ) -> Self {
        if let (Chosen::Sends(promised), Some((_, chan, ops))) = (&chosen, arm.chan) {
            // SAFETY: by this function's contract; the channel is borrowed for `'a`.
            unsafe { PromiseHook::note(room, chan, ops, *promised, limit) };
        }
        // SAFETY: by this function's contract.
        unsafe { Self::new(arm, room, 0, chosen) }
    }

    /// The select's message, if it needs no box, lies in `slot` now.
    #[inline]
    pub(crate) fn at(mut self, slot: *mut ()) -> Self {
        if self._boxed.is_none() && matches!(self.chosen, Some(Chosen::Received)) {
            self.slot = slot;
        }
        self
    }

    /// Has the drop leave a received message alone, which is never dropped then.
    #[inline]
    pub(crate) fn forget_message(&mut self) {
        if matches!(self.chosen, Some(Chosen::Received)) {
            self.chosen = None;
        }
    }

    /// No arm was chosen: the limit has passed.
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

    /// Panics unless a receive by this receiver was chosen.
    #[inline]
    #[track_caller]
    pub(crate) fn check_recv<T>(&self, receiver: &Receiver<T>) {
        let same = receiver.chan().is_some_and(|chan| std::ptr::eq((&raw const *chan).cast(), self.chan));
        assert!(same, "passed a receiver that wasn't selected");
        assert!(self.receives(), "passed a receiver, but a send was selected");
    }

    #[inline]
    fn receives(&self) -> bool {
        matches!(self.chosen, Some(Chosen::Received | Chosen::Drained))
    }

    /// Panics as `check_recv` does, and drops what was selected.
    #[cold]
    #[track_caller]
    fn refuse<T>(self, receiver: &Receiver<T>) -> ! {
        self.check_recv(receiver);
        unreachable!("refuse: what passes `check_recv` is not refused")
    }

    /// # Safety
    /// `check_recv` has passed, with a receiver of a `T`.
    #[inline]
    pub(crate) unsafe fn received<T>(self) -> Result<T, RecvError> {
        // Not dropped: for a drop the compiler would keep a copy of it in memory.
        let selected = ManuallyDrop::new(self);
        let received = match selected.chosen {
            // SAFETY: by the contract of `new` a message of this channel, so a `T`, lies in the slot; nothing else is done
            // with this `Selected`, so it is moved out once.
            Some(Chosen::Received) => Ok(unsafe { selected.slot.cast::<T>().read() }),
            _ => Err(RecvError),
        };
        // SAFETY: as above, so the box is freed once.
        drop(unsafe { (&raw const selected._boxed).read() });
        received
    }

    /// Panics unless a send by this sender was chosen.
    #[inline]
    #[track_caller]
    pub(crate) fn check_send<T>(&self, sender: &Sender<T>) {
        let same = sender.chan().is_some_and(|chan| std::ptr::eq((&raw const *chan).cast(), self.chan));
        assert!(same, "passed a sender that wasn't selected");
        let sends = matches!(self.chosen, Some(Chosen::Sends(_)));
        assert!(sends, "passed a sender, but a receive was selected");
    }

    /// Sends by a sender that `check_send` has let pass.
    #[inline]
    #[track_caller]
    pub(crate) fn sends<T>(mut self, sender: &Sender<T>, message: T) -> Result<(), SendError<T>> {
        match (self.chosen.take(), sender.chan()) {
            (Some(Chosen::Sends(promised)), Some(chan)) => {
                // SAFETY: by the contract of `new`.
                let limit = unsafe { PromiseHook::take_back(self.slot) };
                chan.fulfil(promised, message, limit).map_err(SendError)
            }
            _ => unreachable!("send: a send by this sender was chosen"),
        }
    }

    /// As `sends`, for what may have come to another goroutine than the one that has chosen it: the message is given back
    /// there, the promise stays that goroutine's, and the room of the promise is not to be freed any more.
    #[inline]
    #[track_caller]
    pub(crate) fn sends_at_home<T>(
        mut self,
        sender: &Sender<T>,
        message: T,
    ) -> Result<Result<(), SendError<T>>, T> {
        match (self.chosen.take(), sender.chan()) {
            (Some(Chosen::Sends(promised)), Some(chan)) => {
                // SAFETY: by the contract of `new`.
                let Some(limit) = (unsafe { PromiseHook::try_take_back(self.slot) }) else {
                    return Err(message);
                };
                Ok(chan.fulfil(promised, message, limit).map_err(SendError))
            }
            _ => unreachable!("send: a send by this sender was chosen"),
        }
    }

    /// Completes a receive.
    ///
    /// # Errors
    /// The channel is closed, and no message is left.
    #[inline]
    #[track_caller]
    pub fn recv<T>(self, receiver: &Receiver<T>) -> Result<T, RecvError> {
        let chan = receiver.chan().map_or(std::ptr::null(), |chan| (&raw const *chan).cast());
        // Two nulls are equal where nothing was chosen (`none`): then `receives` is false.
        if chan != self.chan || !self.receives() {
            // The panic is another function's: to unwind this frame the compiler would keep a copy in memory.
            self.refuse(receiver);
        }
        // SAFETY: checked.
        unsafe { self.received() }
    }

    /// Completes a send.
    ///
    /// # Errors
    /// The channel is closed; with the message.
    #[track_caller]
    pub fn send<T>(self, sender: &Sender<T>, message: T) -> Result<(), SendError<T>> {
        self.check_send(sender);
        self.sends(sender, message)
    }

    /// Cancels the operation, as the drop does, if it is of the caller's goroutine. Returns `false` if another goroutine has
    /// chosen this send, as in `sends_at_home`.
    #[cold]
    pub(crate) fn cancel_at_home(mut self) -> bool {
        let Some(Chosen::Sends(promised)) = self.chosen else { return true };
        self.chosen = None;
        // SAFETY: by the contract of `new`; `ops` are those of `chan`, which is borrowed for `'a`.
        unsafe {
            let is_own = PromiseHook::try_take_back(self.slot).is_some();
            if is_own {
                (self.ops.withdraw)(self.chan, promised);
            }
            is_own
        }
    }

    #[cold]
    fn cancel(&mut self) {
        match self.chosen.take() {
            // SAFETY: by the contract of `new` a message lies in the slot, and was not moved, as `chosen` was still
            // there.
            Some(Chosen::Received) => unsafe { (self.ops.drop)(self.slot) },
            // SAFETY: the promise was noted in the slot, by the contract of `new`; `ops` are those of `chan`, which
            // is borrowed for `'a`.
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
