//! A select over operations that are known only at run time.

use crate::chan::err::{ReadyTimeoutError, SelectTimeoutError, TryReadyError, TrySelectError};
use crate::chan::select::{self, Arm, Choice, Direction, Limit, Operation, Selected, Space};
use crate::chan::{Receiver, RecvError, SendError, Sender, limit_of};
use crate::host::{Active, Clock, Process};
use std::fmt;
use std::time::{Duration, Instant};

/// A select over a list of operations that is built at run time. Where the list is fixed, use
/// [`select!`](crate::select).
///
/// [`send`](Self::send) and [`recv`](Self::recv) add operations and return their numbers. [`select`](Self::select)
/// blocks the goroutine until an operation is ready, chooses one of the ready operations with equal probability, and
/// returns a [`SelectedOperation`], which must be completed. [`ready`](Self::ready) returns the number of a ready
/// operation, and leaves the operation to the caller.
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
/// A `Select` is neither `Send` nor `Sync`, while crossbeam-channel's is both. The messages of its channels need not be
/// `Send`, and [`select`](Self::select) takes the message of a receive out of the channel: on another thread, an
/// operation that is not completed would drop the message there. So each goroutine makes its own `Select`, of senders
/// and receivers that it borrows:
///
/// ```
/// use gmp::chan::{self, Select};
///
/// let (sender, receiver) = chan::unbounded();
/// (0..3).for_each(|message| sender.send(message).unwrap());
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         gmp::scope(|scope| {
///             for _ in 0..3 {
///                 scope.go(|| {
///                     let mut select = Select::new();
///                     select.recv(&receiver);
///                     assert!(select.select().recv(&receiver).is_ok());
///                 });
///             }
///         })
///     })
/// }
/// assert!(receiver.is_empty());
/// ```
#[derive(Clone)]
#[doc(alias = "reflect.Select")]
pub struct Select<'a> {
    /// A removed operation is `None`: the others keep their numbers.
    operations: Vec<Option<Operation<'a>>>,
    choice: Choice,
}

impl<'a> Select<'a> {
    /// Without operations.
    pub fn new() -> Self {
        Select { operations: Vec::new(), choice: Choice::Uniform }
    }

    /// Makes a `Select` without operations, which of several ready operations chooses the one that was added first.
    pub fn new_biased() -> Self {
        Select { operations: Vec::new(), choice: Choice::InOrder }
    }

    fn add(&mut self, operation: Operation<'a>) -> usize {
        self.operations.push(Some(operation));
        self.operations.len() - 1
    }

    /// Adds a send and returns the number of the operation. The message is needed only when the send is completed.
    pub fn send<T>(&mut self, sender: &'a Sender<T>) -> usize {
        self.add(Operation::new(Direction::Send, sender.chan()))
    }

    /// Adds a receive and returns the number of the operation.
    pub fn recv<T>(&mut self, receiver: &'a Receiver<T>) -> usize {
        self.add(Operation::new(Direction::Receive, receiver.chan()))
    }

    /// Removes an operation. The others keep their numbers.
    ///
    /// # Panics
    /// If no operation has this number.
    #[track_caller]
    pub fn remove(&mut self, index: usize) {
        let there = self.operations.get_mut(index).and_then(Option::take);
        assert!(there.is_some(), "remove: no operation has the number {index}");
    }

    #[track_caller]
    fn check(&self) {
        assert!(self.operations.iter().any(Option::is_some), "no operations have been added to `Select`");
    }

    /// Returns the arms for one call, and the numbers of their operations.
    fn arms(&self) -> (Vec<usize>, Vec<Arm<'a>>) {
        let there = self.operations.iter().enumerate();
        there.filter_map(|(number, operation)| Some((number, Arm::new((*operation)?)))).unzip()
    }

    fn run(&self, limit: Limit) -> Option<SelectedOperation<'a>> {
        let (numbers, mut arms) = self.arms();
        let space = OwnSpace::new();
        // SAFETY: `selected` is dropped before the space: here by the order of the locals, in a `SelectedOperation` by
        // the order of the fields. The space is a box, which does not move.
        let selected = select::select(unsafe { &mut *space.0 }, &mut arms, limit, self.choice);
        let index = *numbers.get(selected.index())?;
        Some(SelectedOperation { index, selected: Some(selected), _space: space })
    }

    fn watch(&self, limit: Limit) -> Option<usize> {
        let (numbers, mut arms) = self.arms();
        select::ready(&mut arms, limit, self.choice).map(|index| numbers[index])
    }

    /// Blocks the goroutine until an operation is ready, and chooses a ready one.
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
    /// No operation is ready, or none was added.
    pub fn try_select(&mut self) -> Result<SelectedOperation<'a>, TrySelectError> {
        self.run(Limit::Now).ok_or(TrySelectError)
    }

    /// As [`select`](Self::select), for at most `timeout`.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// `timeout` has passed. Without operations the call blocks for all of it.
    pub fn select_timeout(&mut self, timeout: Duration) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
        self.run(Limit::Until(limit_of(timeout))).ok_or(SelectTimeoutError)
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

    /// Blocks the goroutine until an operation could complete without waiting, and returns the operation's number.
    /// Another goroutine may complete its own operation before the caller tries this one.
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
    /// No operation could, or none was added.
    pub fn try_ready(&mut self) -> Result<usize, TryReadyError> {
        self.watch(Limit::Now).ok_or(TryReadyError)
    }

    /// As [`ready`](Self::ready), for at most `timeout`.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// `timeout` has passed. Without operations the call blocks for all of it.
    pub fn ready_timeout(&mut self, timeout: Duration) -> Result<usize, ReadyTimeoutError> {
        self.watch(Limit::Until(limit_of(timeout))).ok_or(ReadyTimeoutError)
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

impl Default for Select<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Select<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Select { .. }")
    }
}

/// The space of a select, in a box: the address stays while the [`SelectedOperation`] that owns the space is moved.
struct OwnSpace(*mut Space);

impl OwnSpace {
    fn new() -> Self {
        OwnSpace(Box::into_raw(Box::new(Space::empty())))
    }
}

impl Drop for OwnSpace {
    fn drop(&mut self) {
        // SAFETY: `new` made the pointer from a box, and only this drop takes the box back.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// A chosen operation, which must be completed by [`send`](Self::send) or [`recv`](Self::recv).
///
/// Dropping a `SelectedOperation` cancels the operation: a received message is dropped, a receiver that waits for
/// this send goes on waiting. Then the drop panics, unless the goroutine is unwinding already.
///
/// ```
/// use gmp::chan::{self, Select};
///
/// let (sender, receiver) = chan::bounded(1);
/// let mut select = Select::new();
/// let send = select.send(&sender);
/// let chosen = select.select();
/// assert_eq!(chosen.index(), send);
/// chosen.send(&sender, "hello").unwrap();
/// assert_eq!(receiver.recv(), Ok("hello"));
/// ```
#[must_use = "a selected operation must be completed"]
pub struct SelectedOperation<'a> {
    index: usize,
    selected: Option<Selected<'a>>,
    _space: OwnSpace,
}

impl SelectedOperation<'_> {
    /// Returns the operation's number: the one that [`Select::send`] or [`Select::recv`] returned.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Cancels the operation, as the unwinding of the message's expression does. For models, which a panic fails.
    #[cfg(gmp_loom)]
    pub fn withdraw(mut self) {
        drop(self.selected.take());
    }

    /// Completes a send, through the sender with which the operation was added. Does not block, unless the receiver
    /// for which the send was chosen has left meanwhile, by its limit or its context: then the call waits for another
    /// receiver, until the limit of the select, and not at all after [`try_select`](Select::try_select).
    ///
    /// # Unwinds
    /// When that wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// The channel is closed, or that limit has passed. The error holds the message.
    ///
    /// # Panics
    /// If another operation was chosen.
    #[track_caller]
    pub fn send<T>(mut self, sender: &Sender<T>, message: T) -> Result<(), SendError<T>> {
        self.selected.take().expect("send: completed once").send(sender, message)
    }

    /// Completes a receive, through the receiver with which the operation was added. Does not block.
    ///
    /// # Errors
    /// The channel is closed, and no message is left.
    ///
    /// # Panics
    /// If another operation was chosen.
    #[track_caller]
    pub fn recv<T>(mut self, receiver: &Receiver<T>) -> Result<T, RecvError> {
        self.selected.take().expect("recv: completed once").recv(receiver)
    }
}

impl Drop for SelectedOperation<'_> {
    fn drop(&mut self) {
        if let Some(selected) = self.selected.take() {
            drop(selected);
            if !Active::is_panicking() {
                panic!("dropped `SelectedOperation` without completing the operation");
            }
        }
    }
}

impl fmt::Debug for SelectedOperation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("SelectedOperation { .. }")
    }
}
