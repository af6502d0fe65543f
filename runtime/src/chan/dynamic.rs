//! A select over operations that are known only at run time.

use crate::chan::err::{ReadyTimeoutError, SelectTimeoutError, TryReadyError, TrySelectError};
use crate::chan::select::{self, Arm, Choice, Direction, Limit, Operation, Selected, Space};
use crate::chan::{Receiver, RecvError, SendError, Sender, limit_of};
use crate::host::{Active, Host};
use std::fmt;
use std::time::{Duration, Instant};

/// A list of operations, the first of which that is ready is to be taken. For a list that stands in the program there is
/// [`select!`](crate::select).
///
/// [`send`](Self::send) and [`recv`](Self::recv) add operations, and give their numbers. [`select`](Self::select) blocks
/// the goroutine until one of them is ready, chooses among those that are with equal probability, and gives a
/// [`SelectedOperation`], which must be completed. [`ready`](Self::ready) only tells which one is.
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
/// A `Select` is neither `Send` nor `Sync`; crossbeam-channel's is both. The messages of its channels need not be `Send`, and
/// [`select`](Self::select) takes the message of a receive out of its channel: on another thread, an operation that is not
/// completed would drop the message there. Each goroutine makes its own `Select` of ends that it borrows:
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
    /// Removed operations are `None`, and keep their numbers.
    operations: Vec<Option<Operation<'a>>>,
    choice: Choice,
}

impl<'a> Select<'a> {
    /// Without operations.
    pub fn new() -> Self {
        Select { operations: Vec::new(), choice: Choice::Uniform }
    }

    /// Without operations; of several that are ready it chooses the one that was added first.
    pub fn new_biased() -> Self {
        Select { operations: Vec::new(), choice: Choice::InOrder }
    }

    fn add(&mut self, operation: Operation<'a>) -> usize {
        self.operations.push(Some(operation));
        self.operations.len() - 1
    }

    /// Adds a send, and gives its number. The message is needed only to complete it.
    pub fn send<T>(&mut self, sender: &'a Sender<T>) -> usize {
        self.add(Operation::new(Direction::Send, sender.chan()))
    }

    /// Adds a receive, and gives its number.
    pub fn recv<T>(&mut self, receiver: &'a Receiver<T>) -> usize {
        self.add(Operation::new(Direction::Receive, receiver.chan()))
    }

    /// Takes an operation out. The others keep their numbers.
    ///
    /// # Panics
    /// If there is none with this number.
    #[track_caller]
    pub fn remove(&mut self, index: usize) {
        let there = self.operations.get_mut(index).and_then(Option::take);
        assert!(there.is_some(), "remove: no operation has the number {index}");
    }

    #[track_caller]
    fn check(&self) {
        assert!(self.operations.iter().any(Option::is_some), "no operations have been added to `Select`");
    }

    /// The operations for one call, and their numbers.
    fn arms(&self) -> (Vec<usize>, Vec<Arm<'a>>) {
        let there = self.operations.iter().enumerate();
        there.filter_map(|(number, operation)| Some((number, Arm::new((*operation)?)))).unzip()
    }

    fn run(&self, limit: Limit) -> Option<SelectedOperation<'a>> {
        let (numbers, mut arms) = self.arms();
        let space = OwnSpace::new();
        // SAFETY: what was selected goes before the space, which stays where it is.
        let selected = select::select(unsafe { &mut *space.0 }, &mut arms, limit, self.choice);
        let index = *numbers.get(selected.index())?;
        Some(SelectedOperation { index, selected: Some(selected), _space: space })
    }

    fn watch(&self, limit: Limit) -> Option<usize> {
        let (numbers, mut arms) = self.arms();
        select::ready(&mut arms, limit, self.choice).map(|index| numbers[index])
    }

    /// Blocks the goroutine until an operation is ready, and chooses it.
    ///
    /// # Unwinds
    /// When its wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Panics
    /// Without operations.
    #[track_caller]
    pub fn select(&mut self) -> SelectedOperation<'a> {
        self.check();
        self.run(Limit::Until(None)).expect("select: without a limit it ends with an operation")
    }

    /// Chooses an operation that is ready now. Does not block, as [`Receiver::try_recv`].
    ///
    /// # Errors
    /// None is; also without operations.
    pub fn try_select(&mut self) -> Result<SelectedOperation<'a>, TrySelectError> {
        self.run(Limit::Now).ok_or(TrySelectError)
    }

    /// As [`select`](Self::select), for so long at most.
    ///
    /// # Unwinds
    /// When its wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// The time has passed; without operations after it.
    pub fn select_timeout(&mut self, timeout: Duration) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
        self.run(Limit::Until(limit_of(timeout))).ok_or(SelectTimeoutError)
    }

    /// As [`select`](Self::select), until then at most.
    ///
    /// # Unwinds
    /// When its wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`select_timeout`](Self::select_timeout).
    pub fn select_deadline(
        &mut self,
        deadline: Instant,
    ) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
        self.run(Limit::Until(Some(Active::nanos(deadline)))).ok_or(SelectTimeoutError)
    }

    /// Blocks the goroutine until an operation could go on, and gives its number. Another may be faster than whoever then
    /// tries it.
    ///
    /// # Unwinds
    /// When its wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Panics
    /// Without operations.
    #[track_caller]
    pub fn ready(&mut self) -> usize {
        self.check();
        self.watch(Limit::Until(None)).expect("ready: without a limit it ends with an operation")
    }

    /// The number of an operation that could go on now. Does not block.
    ///
    /// # Errors
    /// None could; also without operations.
    pub fn try_ready(&mut self) -> Result<usize, TryReadyError> {
        self.watch(Limit::Now).ok_or(TryReadyError)
    }

    /// As [`ready`](Self::ready), for so long at most.
    ///
    /// # Unwinds
    /// When its wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// The time has passed; without operations after it.
    pub fn ready_timeout(&mut self, timeout: Duration) -> Result<usize, ReadyTimeoutError> {
        self.watch(Limit::Until(limit_of(timeout))).ok_or(ReadyTimeoutError)
    }

    /// As [`ready`](Self::ready), until then at most.
    ///
    /// # Unwinds
    /// When its wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
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

/// A select's space that goes with what was selected, wherever that goes.
struct OwnSpace(*mut Space);

impl OwnSpace {
    fn new() -> Self {
        OwnSpace(Box::into_raw(Box::new(Space::empty())))
    }
}

impl Drop for OwnSpace {
    fn drop(&mut self) {
        // SAFETY: made by `new`.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// An operation that was chosen, and must be completed by [`send`](Self::send) or [`recv`](Self::recv).
///
/// Dropping it panics. While the goroutine unwinds, it calls the operation off instead: a received message is dropped, a
/// receiver that waits for this send goes on waiting.
#[must_use = "a selected operation must be completed"]
pub struct SelectedOperation<'a> {
    index: usize,
    selected: Option<Selected<'a>>,
    _space: OwnSpace,
}

impl SelectedOperation<'_> {
    /// Its number.
    pub fn index(&self) -> usize {
        self.index
    }

    /// For models, in which a panic fails the model: what the unwinding of a message does.
    #[cfg(gmp_loom)]
    pub fn withdraw(mut self) {
        drop(self.selected.take());
    }

    /// Completes a send, through the sender with which it was added. Does not block, unless the receiver for which it was
    /// chosen has gone meanwhile, by its limit or its context: then it waits for another one, until the limit of the
    /// select, and not at all after [`try_select`](Select::try_select).
    ///
    /// # Errors
    /// The channel is closed, or that limit has passed; with the message.
    ///
    /// # Panics
    /// When another operation was chosen.
    #[track_caller]
    pub fn send<T>(mut self, sender: &Sender<T>, message: T) -> Result<(), SendError<T>> {
        self.selected.take().expect("send: completed once").send(sender, message)
    }

    /// Completes a receive, through the receiver with which it was added. Does not block.
    ///
    /// # Errors
    /// The channel is closed, and no message is left.
    ///
    /// # Panics
    /// When another operation was chosen.
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
