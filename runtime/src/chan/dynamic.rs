//! A select over operations that are known only at run time.

mod selected;

pub use selected::SelectedOperation;

use crate::chan::err::{ReadyTimeoutError, SelectTimeoutError, TryReadyError, TrySelectError};
use crate::chan::select::{
    self, Arm, Choice, Chosen, Direction, Found, Inline, Limit, Operation, Selected, Space,
};
use crate::chan::state::RecordPtr;
use crate::chan::{Receiver, Sender};
use crate::host::{Active, Clock, Threads};
use crate::impls::opaque;
use crate::m::M;
use selected::OwnSpace;
use std::time::{Duration, Instant};

/// A select over a list of operations that is built at run time. If the list is fixed, use [`select!`](crate::select).
///
/// [`send`](Self::send) and [`recv`](Self::recv) add operations and return their numbers. [`select`](Self::select) blocks the
/// goroutine, or the plain thread, until an operation is ready, chooses one of the ready operations with equal probability, and
/// returns a [`SelectedOperation`], which must be completed. [`ready`](Self::ready) returns the number of a ready operation,
/// and leaves the operation to the caller.
///
/// ```
/// use gmp::chan::{self, Select};
///
/// let (sender, receiver) = chan::bounded(1);
/// let other = chan::never::<u32>();
/// let mut select = Select::new();
/// let sends = select.send(&sender);
/// let receives = select.recv(&other);
/// let operation = select.select();
/// match operation.index() {
///     index if index == sends => operation.send(&sender, 7).unwrap(),
///     index if index == receives => drop(operation.recv(&other)),
///     _ => unreachable!(),
/// }
/// assert_eq!(receiver.recv(), Ok(7));
/// ```
///
/// A `Select` can be sent to another goroutine or thread, like crossbeam-channel's. The messages of its channels need not be
/// `Send`: if a message was received in another goroutine or thread than the one that added the operations, and its operation
/// is not completed, the message is never dropped.
///
/// ```
/// use gmp::chan::{self, Select};
///
/// let (sender, receiver) = chan::unbounded();
/// (0..3).for_each(|message| sender.send(message).unwrap());
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let mut select = Select::new();
///         select.recv(&receiver);
///         gmp::scope(|scope| {
///             for _ in 0..3 {
///                 let mut select = select.clone();
///                 let receiver = &receiver;
///                 scope.go(move || assert!(select.select().recv(receiver).is_ok()));
///             }
///         })
///     })
/// }
/// assert!(receiver.is_empty());
/// ```
#[doc(alias = "reflect.Select")]
pub struct Select<'a> {
    /// In the order in which they were added if that counts, otherwise in any order.
    operations: Vec<Added<'a>>,
    /// The number of the next operation.
    next: usize,
    choice: Choice,
    /// The goroutine or thread that added all operations.
    home: Home,
    /// Memory for the arms of a call. Always empty between two calls; without the lifetime `'a`, which the drop of a `Select`
    /// would otherwise have to respect.
    arms: Vec<Arm<'static>>,
}

// SAFETY: between two calls there are no arms. An operation is a reference to a channel's state, which a lock guards, and
// functions that move messages from slot to slot. A type that is not `Send` forbids another thread only to use a message as a
// value of that type. `recv` and `send` of a chosen operation do so, by a receiver or sender that this thread has, so the type
// is `Send`; and so does the drop of a message whose operation was not completed, which `SelectedOperation` does at `home`
// alone.
unsafe impl Send for Select<'_> {}
// SAFETY: as for `Send`; a shared reference can't choose an operation.
unsafe impl Sync for Select<'_> {}

/// An operation of a `Select`.
#[derive(Copy, Clone)]
struct Added<'a> {
    operation: Operation<'a>,
    number: usize,
    /// The operation that is tried in the turn with this place: the turns of all are a random order of the operations, which
    /// changes with each select.
    turn: usize,
}

/// The goroutine or thread that added operations.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Home {
    /// No operation was added yet.
    Nowhere,
    /// This goroutine, by its runtime's number in the process and its own number in the runtime: no other goroutine ever has
    /// both. A `Select` of the goroutine can outlive it, and its runtime, on the thread that has called `run_locked`.
    Goroutine(u64, u64),
    Thread(<Active as Threads>::ThreadId),
    /// Several of these.
    Several,
}

impl Home {
    #[inline]
    fn here() -> Self {
        let goroutine = |m: &M<Active>| Some(Home::Goroutine(m.sched().number, m.g()?.id()));
        M::current().and_then(goroutine).unwrap_or_else(|| Home::Thread(Active::thread_id()))
    }
}

impl<'a> Select<'a> {
    /// Makes a `Select` without operations.
    pub fn new() -> Self {
        Self::of(Choice::Uniform)
    }

    /// Makes a `Select` without operations, which chooses the first added of several ready operations.
    pub fn new_biased() -> Self {
        Self::of(Choice::InOrder)
    }

    fn of(choice: Choice) -> Self {
        Select { operations: Vec::new(), next: 0, choice, home: Home::Nowhere, arms: Vec::new() }
    }

    #[inline]
    fn add(&mut self, operation: Operation<'a>) -> usize {
        let (number, here) = (self.next, Home::here());
        if self.home != here {
            self.home = if self.home == Home::Nowhere { here } else { Home::Several };
        }
        self.operations.push(Added { operation, number, turn: self.operations.len() });
        self.next += 1;
        number
    }

    /// Adds a send and returns the operation's number. The message is needed only when the send is completed.
    pub fn send<T>(&mut self, sender: &'a Sender<T>) -> usize {
        self.add(Operation::new(Direction::Send, sender.chan()))
    }

    /// Adds a receive and returns the operation's number.
    pub fn recv<T>(&mut self, receiver: &'a Receiver<T>) -> usize {
        self.add(Operation::new(Direction::Receive, receiver.chan()))
    }

    /// Removes an operation. The others keep their numbers.
    ///
    /// # Panics
    /// If no operation has this number.
    #[track_caller]
    pub fn remove(&mut self, index: usize) {
        let place = self.operations.iter().position(|added| added.number == index);
        match (place, self.choice) {
            (Some(place), Choice::Uniform) => drop(self.operations.swap_remove(place)),
            (Some(place), Choice::InOrder) => drop(self.operations.remove(place)),
            (None, _) => panic!("remove: no operation has the number {index}"),
        }
        self.begin_turns();
    }

    /// Resets the turns: any order is as good as another.
    fn begin_turns(&mut self) {
        self.operations.iter_mut().enumerate().for_each(|(turn, added)| added.turn = turn);
    }

    /// Sorts the operations, unless their order counts, by the order of their channels' locks: then the arms need no sorting,
    /// in this call and the next ones.
    fn put_in_order(&mut self) {
        let place = |added: &Added<'a>| added.operation.place();
        if self.choice == Choice::Uniform && !self.operations.is_sorted_by_key(place) {
            self.operations.sort_unstable_by_key(place);
            self.begin_turns();
        }
    }

    #[track_caller]
    fn check(&self) {
        assert!(!self.operations.is_empty(), "no operations have been added to `Select`");
    }

    /// Calls `f` with an arm of each operation, in their order. The arms are gone afterwards, also if `f` unwinds.
    fn with_arms<R>(&mut self, f: impl FnOnce(&Self, &mut [Arm<'a>]) -> R) -> R {
        self.put_in_order();
        // SAFETY: the vector is empty, and the types differ only in a lifetime.
        let mut arms =
            unsafe { std::mem::transmute::<Vec<Arm<'static>>, Vec<Arm<'a>>>(std::mem::take(&mut self.arms)) };
        arms.extend(self.operations.iter().map(|added| Arm::new(added.operation)));
        let result = f(self, &mut arms);
        arms.clear();
        // SAFETY: the vector is empty, and the types differ only in a lifetime.
        self.arms = unsafe { std::mem::transmute::<Vec<Arm<'a>>, Vec<Arm<'static>>>(arms) };
        result
    }

    #[inline(always)]
    fn run(&mut self, limit: Limit) -> Option<SelectedOperation<'a>> {
        if self.choice == Choice::Uniform
            && let Some(operation) = self.run_in_turn(limit)
        {
            return Some(operation);
        }
        self.run_together(limit, None)
    }

    /// Locks all channels at once, and waits; if `claimed`, first asks the sender that this operation has claimed for its
    /// message.
    #[inline(never)]
    fn run_together(
        &mut self,
        limit: Limit,
        claimed: Option<(usize, RecordPtr)>,
    ) -> Option<SelectedOperation<'a>> {
        self.with_arms(|this, arms| {
            let mut space = Space::empty();
            let place = |number| this.operations.iter().position(|added| added.number == number);
            let claimed = claimed
                .map(|(number, sender)| (place(number).expect("run_together: it is one of these"), sender));
            let (index, chosen) = select::choose(&mut space, arms, claimed, limit, this.choice)?;
            // SAFETY: this arm was chosen, with this space.
            Some(unsafe {
                this.selected((this.operations[index].number, chosen), &mut arms[index], &space, limit)
            })
        })
    }

    /// Tries the operations one by one, in a random order in which each is equally likely to be next: so each ready operation
    /// is equally likely to be found first. This can't tell that at some moment none is ready: for that, and to wait, all
    /// channels are locked.
    #[inline(always)]
    fn run_in_turn(&mut self, limit: Limit) -> Option<SelectedOperation<'a>> {
        let (mut space, count) = (Space::empty(), self.operations.len());
        for place in 0..count {
            let left = count - place;
            let mut turn = self.operations[place].turn;
            if left > 1 {
                // As in `Search::lock`.
                let other = place + ((u64::from(Active::random()) * left as u64) >> 32) as usize;
                turn = std::mem::replace(&mut self.operations[other].turn, turn);
                self.operations[place].turn = turn;
            }
            let Added { operation, number, .. } = self.operations[turn];
            let Some(state) = operation.lock_if_ready() else { continue };
            let mut arm = Arm::new(operation);
            match select::choose_one(&mut space, &mut arm, state) {
                None => {}
                Some(Found::Chosen(chosen)) => {
                    // SAFETY: `choose_one` has chosen this arm, with this space.
                    return Some(unsafe { self.selected((number, chosen), &mut arm, &space, limit) });
                }
                Some(Found::Promise(sender)) => return self.run_together(limit, Some((number, sender))),
            }
        }
        None
    }

    /// # Safety
    /// The arm was chosen, and its message, if it needs no box, lies in the space.
    #[inline]
    unsafe fn selected(
        &self,
        (index, chosen): (usize, Chosen),
        arm: &mut Arm<'a>,
        space: &Space,
        limit: Limit,
    ) -> SelectedOperation<'a> {
        let room = matches!(chosen, Chosen::Sends(_)).then(OwnSpace::new);
        let at = room.as_ref().map_or(std::ptr::null_mut(), |room| room.0);
        // SAFETY: by this function's contract. The room is a box, which does not move, and is dropped after the `Selected`, by
        // the order of the fields. The message is moved with the operation, which sets the message's address (`at`) before it
        // uses the message.
        let selected = unsafe { Selected::of_choice(arm, at, chosen, limit) };
        let message = Inline::out_of(space);
        SelectedOperation { index, selected: Some(selected), room, message, home: self.home }
    }

    fn watch(&mut self, limit: Limit) -> Option<usize> {
        self.with_arms(|this, arms| {
            let ready = select::ready(arms, limit, this.choice);
            ready.map(|index| this.operations[index].number)
        })
    }

    /// Blocks the goroutine, or the plain thread, until an operation is ready, and chooses a ready one.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Panics
    /// Without operations.
    #[track_caller]
    pub fn select(&mut self) -> SelectedOperation<'a> {
        self.check();
        self.run(Limit::Until(None)).expect("select: without a limit it ends with an operation")
    }

    /// Chooses an operation that is ready now. Does not block, but for the exception that [`Receiver::try_recv`]
    /// describes.
    ///
    /// # Errors
    /// If no operation is ready, or none was added.
    pub fn try_select(&mut self) -> Result<SelectedOperation<'a>, TrySelectError> {
        self.run(Limit::Now).ok_or(TrySelectError)
    }

    /// As [`select`](Self::select), for at most `timeout`.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// If `timeout` has passed. Without operations the call blocks for all of it.
    pub fn select_timeout(&mut self, timeout: Duration) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
        self.run(Limit::Until(Some(Active::after(timeout)))).ok_or(SelectTimeoutError)
    }

    /// As [`select`](Self::select), until `deadline` at most.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`select_timeout`](Self::select_timeout).
    pub fn select_deadline(
        &mut self,
        deadline: Instant,
    ) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
        self.run(Limit::Until(Some(Active::nanos(deadline)))).ok_or(SelectTimeoutError)
    }

    /// Blocks the goroutine, or the plain thread, until an operation could complete without waiting, and returns the
    /// operation's number. Another goroutine may complete its own operation before the caller tries this one.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Panics
    /// Without operations.
    #[track_caller]
    pub fn ready(&mut self) -> usize {
        self.check();
        self.watch(Limit::Until(None)).expect("ready: without a limit it ends with an operation")
    }

    /// Returns the number of an operation that could complete without waiting. Does not block.
    ///
    /// # Errors
    /// If no operation could, or none was added.
    pub fn try_ready(&mut self) -> Result<usize, TryReadyError> {
        self.watch(Limit::Now).ok_or(TryReadyError)
    }

    /// As [`ready`](Self::ready), for at most `timeout`.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// If `timeout` has passed. Without operations the call blocks for all of it.
    pub fn ready_timeout(&mut self, timeout: Duration) -> Result<usize, ReadyTimeoutError> {
        self.watch(Limit::Until(Some(Active::after(timeout)))).ok_or(ReadyTimeoutError)
    }

    /// As [`ready`](Self::ready), until `deadline` at most.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`ready_timeout`](Self::ready_timeout).
    pub fn ready_deadline(&mut self, deadline: Instant) -> Result<usize, ReadyTimeoutError> {
        self.watch(Limit::Until(Some(Active::nanos(deadline)))).ok_or(ReadyTimeoutError)
    }
}

impl Clone for Select<'_> {
    fn clone(&self) -> Self {
        let Select { next, choice, home, .. } = *self;
        Select { operations: self.operations.clone(), next, choice, home, arms: Vec::new() }
    }
}

impl Default for Select<'_> {
    fn default() -> Self {
        Self::new()
    }
}

opaque!(Select<'_>);
