//! Channels in which each receiver sees each message: tokio's `broadcast`, in blocking style.
//!
//! A send puts its message at the tail of a ring of at most `capacity` messages; from a full ring the oldest message is
//! removed, and a receiver that has not seen that message *lags*: its next receive returns how many messages the receiver has
//! missed, and the receive after that continues with the oldest message in the ring. A message that all receivers have seen
//! leaves the ring at once. A receive clones the message without the channel's lock, under the message's own lock, and counts
//! the message as seen afterwards: after a clone that panics the same receiver gets the message again. The protocol is in
//! `broadcast/ring.rs`.
//!
//! Names and semantics are those of tokio 1's `sync::broadcast`, with these differences: the calls block, and each has a future
//! beside it ([`recv_async`](Receiver::recv_async), [`closed_async`](Sender::closed_async)); the capacity is used as given,
//! where tokio rounds it up to a power of two; a [`Receiver`] can be cloned; waits can have a limit, and there is
//! [`close`](Sender::close). A receiver is an arm of a [`select!`](crate::select) by its [`bell`](Receiver::bell).
//!
//! ```
//! use gmp::chan::broadcast;
//!
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! unsafe {
//!     gmp::run(|| {
//!         let (news, mut here) = broadcast::channel(16);
//!         let mut there = news.subscribe();
//!         let reader = gmp::go(move || (there.recv(), there.recv(), there.recv()));
//!         news.send("one").unwrap();
//!         news.send("two").unwrap();
//!         drop(news);
//!         assert_eq!(reader.join().unwrap(), (Ok("one"), Ok("two"), Err(broadcast::RecvError::Closed)));
//!         assert_eq!(here.recv(), Ok("one"));
//!     })
//! }
//! ```

mod err;
pub mod futures;
mod ring;

pub use err::{RecvError, RecvTimeoutError, SendError, TryRecvError};

use crate::chan::buffer::Buffer;
use crate::chan::several::{self, Bell, Bells, Deserted, Side, wait_for};
use crate::host::{Active, Clock};
use crate::impls::{opaque, unwind_safe};
use crate::prim::hooks::*;
use crate::prim::{Arc, Mutex, Rank};
use crate::sync;
use crate::sync::MutexGuard;
use crate::sync::wait_queue::Notified;
use futures::{Closed, Recv};
use gmp_timers::Nanos;
use ring::{Block, Found, Node, Seen, State};
use std::time::{Duration, Instant};

/// A message that was received already.
type Kept<T> = Arc<sync::Mutex<T>>;

struct Shared<T> {
    capacity: usize,
    state: Mutex<State<T>>,
    bells: Bells,
}

impl<T> Shared<T> {
    #[track_caller]
    fn new(capacity: usize, receivers: usize) -> Arc<Self> {
        assert!(capacity > 0, "broadcast: the capacity is 0");
        let state = State::new(capacity, receivers);
        Arc::new(Shared { capacity, state: Mutex::new(Rank::WaitQueue, state), bells: Bells::new() })
    }
}

/// Makes a channel in which a receiver can be up to `capacity` messages behind.
///
/// # Panics
/// If `capacity` is 0.
///
/// ```
/// use gmp::chan::broadcast::{self, RecvError};
///
/// let (sender, mut receiver) = broadcast::channel(2);
/// (1..=5).for_each(|n| assert_eq!(sender.send(n), Ok(1)));
/// assert_eq!(receiver.recv(), Err(RecvError::Lagged(3)));
/// assert_eq!((receiver.recv(), receiver.recv()), (Ok(4), Ok(5)));
/// ```
#[must_use]
#[track_caller]
pub fn channel<T: Clone>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Shared::new(capacity, 1);
    let receiver = Receiver { shared: Arc::clone(&shared), next: 0, block: None, kept: None, bell: None };
    (Sender { shared }, receiver)
}

/// The half that sends, to all receivers. Clones send to the same channel; when the last one is dropped, the channel closes.
///
/// ```
/// use gmp::chan::broadcast;
///
/// let (sender, mut first) = broadcast::channel(4);
/// let mut second = sender.subscribe();
/// assert_eq!(sender.send("hello"), Ok(2));
/// assert_eq!((first.recv(), second.recv()), (Ok("hello"), Ok("hello")));
/// ```
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// A half that receives each message sent after its subscription. A clone has seen the same messages as the original.
///
/// ```
/// use gmp::chan::broadcast;
///
/// let (sender, mut first) = broadcast::channel(4);
/// sender.send(1).unwrap();
/// let mut copy = first.clone();
/// let mut later = sender.subscribe();
/// sender.send(2).unwrap();
/// assert_eq!((first.recv(), copy.recv(), later.recv()), (Ok(1), Ok(1), Ok(2)));
/// ```
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    next: u64,
    /// The block in which the receiver has last found a message.
    block: Option<Arc<Block<T>>>,
    /// A message that was received already, by a call that a panic of a `drop` has ended. Clones of the receiver share it.
    kept: Option<Kept<T>>,
    bell: Option<Bell>,
}

/// A message that was received and counted as seen, until the call returns it. A call that unwinds leaves it to the next call.
struct Keeps<'a, T> {
    kept: &'a mut Option<Kept<T>>,
    message: Option<T>,
}

impl<'a, T> Keeps<'a, T> {
    #[inline]
    fn new(kept: &'a mut Option<Kept<T>>, message: T) -> Self {
        Keeps { kept, message: Some(message) }
    }

    #[inline]
    fn give(mut self) -> T {
        self.message.take().expect("give: the message is there until then")
    }
}

impl<T> Drop for Keeps<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            *self.kept = Some(Arc::new(sync::Mutex::new(message)));
        }
    }
}

unwind_safe!([T] Sender<T>, [T] Receiver<T>);

impl<T> Sender<T> {
    /// Makes a channel without receivers; [`subscribe`](Self::subscribe) makes them.
    ///
    /// # Panics
    /// If `capacity` is 0.
    #[track_caller]
    pub fn new(capacity: usize) -> Self {
        Sender { shared: Shared::new(capacity, 0) }
    }

    /// Sends to all present receivers, and returns their number. Does not block: in a full channel the oldest message is
    /// removed, and is dropped here if no receiver holds it. If that `drop` panics, the panic propagates once `message` is
    /// sent.
    ///
    /// # Errors
    /// If there is no receiver, or the channel is closed. The error holds the message.
    pub fn send(&self, message: T) -> Result<usize, SendError<T>> {
        let mut notified = Notified::new();
        let mut state = self.shared.state.lock();
        if state.parties.is_deserted() {
            drop(state);
            return Err(SendError(message));
        }
        let receivers = state.parties.receivers;
        let oldest = (state.len() == self.shared.capacity).then(|| state.pop());
        state.put(message);
        let rings = state.parties.tell_receivers(&mut notified);
        drop(state);
        let oldest = oldest.as_ref().and_then(|(block, oldest)| block.node(*oldest));
        // Before the wakers of tasks are called, which may take long.
        oldest.inspect(|node| node.mark_gone());
        notified.ready();
        if rings {
            self.shared.bells.ring_all();
        }
        oldest.inspect(|node| node.clear());
        Ok(receivers)
    }

    /// Makes a receiver, which sees the messages that are sent from now on. Does not block.
    pub fn subscribe(&self) -> Receiver<T> {
        Receiver::subscribed(&self.shared)
    }

    /// Closes the channel: sends fail from then on, and receives fail once the receiver has seen all messages. Returns `false`
    /// if the channel was closed already. Does not block.
    pub fn close(&self) -> bool {
        several::close(&self.shared.state, &self.shared.bells)
    }

    /// Returns `true` if there is no receiver, or the channel is closed. Does not block.
    ///
    /// ```
    /// use gmp::chan::broadcast;
    ///
    /// let news = broadcast::Sender::<u32>::new(4);
    /// assert!(news.is_closed());
    /// let reader = news.subscribe();
    /// assert!(!news.is_closed());
    /// news.close();
    /// assert!(news.is_closed() && reader.is_closed());
    /// ```
    pub fn is_closed(&self) -> bool {
        self.shared.state.lock().parties.is_deserted()
    }

    /// Blocks the calling goroutine, or the plain thread, until there is no receiver, or the channel is closed.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn closed(&self) {
        several::wait_deserted(&self.shared.state);
    }

    /// As [`closed`](Self::closed), as a future, whose polls do not block: any task may poll it, on goroutines
    /// ([`block_on`](crate::block_on)) and under other executors. The future waits from its first poll on, and can be dropped
    /// at any time. Polled again after its end, the future looks again.
    ///
    /// ```
    /// use gmp::chan::broadcast;
    ///
    /// let (news, reader) = broadcast::channel::<u32>(4);
    /// let other = std::thread::spawn(move || drop(reader));
    /// gmp::block_on(news.closed_async());
    /// other.join().unwrap();
    /// ```
    pub fn closed_async(&self) -> Closed<'_, T> {
        Closed::new(self, Deserted::new())
    }

    /// Returns the number of receivers at this moment.
    pub fn receiver_count(&self) -> usize {
        self.shared.state.lock().parties.receivers
    }

    /// Returns the number of senders at this moment.
    pub fn sender_count(&self) -> usize {
        self.shared.state.lock().parties.senders
    }

    /// Returns the number of messages that some receiver has not seen.
    pub fn len(&self) -> usize {
        self.shared.state.lock().len()
    }

    /// Returns `true` if all receivers have seen all messages.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `true` if both send to the same channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        drop(several::join(&self.shared.state, Side::Senders));
        Sender { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        several::sender_goes(&self.shared.state, &self.shared.bells);
    }
}

impl<T> Receiver<T> {
    fn subscribed(shared: &Arc<Shared<T>>) -> Self {
        let next = several::join(&shared.state, Side::Receivers).tail();
        Receiver { shared: Arc::clone(shared), next, block: None, kept: None, bell: None }
    }

    /// Makes a receiver, which sees the messages that are sent from now on. Does not block.
    pub fn resubscribe(&self) -> Self {
        Self::subscribed(&self.shared)
    }

    /// Returns the number of messages that were sent and that this receiver has not seen, including those that it has missed.
    pub fn len(&self) -> usize {
        let unseen = self.shared.state.lock().tail() - self.next;
        usize::try_from(unseen).unwrap_or(usize::MAX) + usize::from(self.kept.is_some())
    }

    /// Returns `true` if this receiver has seen all messages.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `true` if the channel is closed; messages may be left.
    pub fn is_closed(&self) -> bool {
        self.shared.state.lock().parties.closed
    }

    /// Returns the number of senders at this moment.
    pub fn sender_count(&self) -> usize {
        self.shared.state.lock().parties.senders
    }

    /// Returns the number of receivers at this moment.
    pub fn receiver_count(&self) -> usize {
        self.shared.state.lock().parties.receivers
    }

    /// Returns `true` if both receive from the same channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns a channel that has a message when there may be something to receive, and is closed with this one: an arm of
    /// [`select!`](crate::select), after which [`try_recv`](Self::try_recv) receives. The bell may also ring for a message that
    /// was received already. Does not block.
    ///
    /// ```
    /// use gmp::chan::{self, broadcast::{self, TryRecvError}};
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (news, mut reader) = broadcast::channel(16);
    ///         let (_sender, work) = chan::bounded::<()>(0);
    ///         gmp::go(move || (0..3).try_for_each(|n| news.send(n).map(drop)));
    ///         let (bell, mut seen) = (reader.bell(), Vec::new());
    ///         loop {
    ///             gmp::select! {
    ///                 recv(work) -> _ => unreachable!(),
    ///                 recv(bell) -> _ => match reader.try_recv() {
    ///                     Ok(n) => seen.push(n),
    ///                     Err(TryRecvError::Closed) => break,
    ///                     Err(_) => {}
    ///                 },
    ///             }
    ///         }
    ///         assert_eq!(seen, [0, 1, 2]);
    ///     })
    /// }
    /// ```
    pub fn bell(&mut self) -> crate::chan::Receiver<()> {
        let (next, kept) = (self.next, self.kept.is_some());
        self.shared.bells.bell(&mut self.bell, &self.shared.state, |state| kept || state.tail() > next)
    }

    /// Rings again if messages are left, as a receive was given up whose caller may have heard the bell.
    fn ring_for_the_rest(&self) {
        if self.bell.is_some() && !self.is_empty() {
            self.shared.bells.ring(self.bell.as_ref());
        }
    }

    /// Returns a clone of a message that an earlier call has kept, and that this receiver keeps no longer.
    #[cold]
    fn took_kept(&mut self, clone: T) -> T {
        let mut leaves = self.shared.bells.leaves(self.bell.as_ref());
        let keeps = Keeps::new(&mut self.kept, clone);
        drop(keeps.kept.take());
        let message = keeps.give();
        leaves.news = self.shared.state.lock().tail() > self.next;
        message
    }

    /// Receives a message that an earlier call has kept, if no clone of the receiver has it as well.
    fn take_kept_alone(&mut self) -> Option<T> {
        match Arc::try_unwrap(self.kept.take()?) {
            Ok(kept) => {
                let message = kept.into_inner();
                self.ring_for_the_rest();
                Some(message)
            }
            Err(kept) => {
                self.kept = Some(kept);
                None
            }
        }
    }
}

impl<T: Clone> Receiver<T> {
    /// Receives the next message. Blocks the calling goroutine, or the plain thread, until there is one that this receiver has
    /// not seen. A panic of the message's `clone` propagates, and the next call receives the message again.
    ///
    /// ```
    /// use gmp::chan::broadcast;
    ///
    /// let (sender, mut one) = broadcast::channel(16);
    /// let mut other = sender.subscribe();
    /// std::thread::spawn(move || sender.send("for both"));
    /// assert_eq!((one.recv(), other.recv()), (Ok("for both"), Ok("for both")));
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind). No message is lost.
    ///
    /// # Errors
    /// If the channel is closed, or this receiver has missed messages.
    pub fn recv(&mut self) -> Result<T, RecvError> {
        match self.recv_in(None) {
            Ok(message) => Ok(message),
            Err(RecvTimeoutError::Lagged(missed)) => Err(RecvError::Lagged(missed)),
            Err(RecvTimeoutError::Closed) => Err(RecvError::Closed),
            Err(RecvTimeoutError::Timeout) => unreachable!("recv: there is no limit"),
        }
    }

    /// As [`recv`](Self::recv), as a future, whose polls do not block: any task may poll it, on goroutines
    /// ([`block_on`](crate::block_on)) and under other executors. The future waits from its first poll on, in one queue with
    /// the receivers that block, for a message and for its turn to clone the message. No runtime is needed. Polled again after
    /// its end, the future receives the next message.
    ///
    /// *Cancel safety*: a future that is dropped before it was ready has seen no message; the next call of this receiver finds
    /// the message, unless the receiver lags by then. The same holds after a panic of the message's `clone`.
    ///
    /// ```
    /// use gmp::chan::broadcast::{self, RecvError};
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (news, mut reader) = broadcast::channel(16);
    ///         gmp::go(move || (1..=3).for_each(|n| drop(news.send(n))));
    ///         let sum = gmp::block_on(async {
    ///             let mut sum = 0;
    ///             loop {
    ///                 match reader.recv_async().await {
    ///                     Ok(n) => sum += n,
    ///                     Err(RecvError::Lagged(_)) => {}
    ///                     // The sender was dropped with its goroutine.
    ///                     Err(RecvError::Closed) => return sum,
    ///                 }
    ///             }
    ///         });
    ///         assert_eq!(sum, 6);
    ///     })
    /// }
    /// ```
    ///
    /// A future that has come to a message, and is neither polled nor dropped, holds up the other receivers of that message.
    ///
    /// # Errors
    /// The output is as that of [`recv`](Self::recv).
    pub fn recv_async(&mut self) -> Recv<'_, T> {
        Recv::new(self)
    }

    /// As [`recv`](Self::recv), for at most `timeout`. The limit holds for the wait for a message and for the wait for other
    /// receivers that clone the same message, but not for this receiver's own `clone`.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind). No message is lost.
    ///
    /// # Errors
    /// If the time has passed, the channel is closed, or this receiver has missed messages.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.recv_in(Some(Active::after(timeout)))
    }

    /// As [`recv_timeout`](Self::recv_timeout), until `deadline` at most.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind). No message is lost.
    ///
    /// # Errors
    /// As [`recv_timeout`](Self::recv_timeout).
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.recv_in(Some(Active::nanos(deadline)))
    }

    fn recv_in(&mut self, until: Option<Nanos>) -> Result<T, RecvTimeoutError> {
        if self.kept.is_some() {
            return self.take_kept(until).ok_or(RecvTimeoutError::Timeout);
        }
        loop {
            match self.take(until) {
                Taken::Message(message) => return Ok(message),
                Taken::Late => return Err(RecvTimeoutError::Timeout),
                Taken::Nothing => {}
            }
            let (next, has) = (&mut self.next, self.block.as_deref());
            match wait_for(&self.shared.state, Side::Receivers, until, |state| state.look(next, has)) {
                None => return Err(RecvTimeoutError::Timeout),
                Some(Found::Closed) => return Err(RecvTimeoutError::Closed),
                Some(Found::Lagged(missed)) => {
                    self.shared.bells.ring(self.bell.as_ref());
                    return Err(RecvTimeoutError::Lagged(missed));
                }
                Some(Found::Message(block)) => self.block = block.or_else(|| self.block.take()),
            }
        }
    }

    /// Receives the next message if there is one. Does not wait for a message. If several receivers clone the same
    /// message at this moment, the call waits for its turn: that blocks the goroutine, or the plain thread.
    ///
    /// # Unwinds
    /// When the wait for its turn is ended from outside; see [`migration`](crate::migration#what-may-unwind). No message is
    /// lost.
    ///
    /// # Errors
    /// If there is no message yet, the channel is closed, or this receiver has missed messages.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        if self.kept.is_some() {
            return Ok(self.take_kept(None).expect("try_recv: without a limit it comes"));
        }
        loop {
            match self.take(None) {
                Taken::Message(message) => return Ok(message),
                Taken::Late => unreachable!("try_recv: there is no limit"),
                Taken::Nothing => {}
            }
            let found = self.shared.state.lock().look(&mut self.next, self.block.as_deref());
            match found {
                None => return Err(TryRecvError::Empty),
                Some(Found::Closed) => return Err(TryRecvError::Closed),
                Some(Found::Lagged(missed)) => {
                    self.shared.bells.ring(self.bell.as_ref());
                    return Err(TryRecvError::Lagged(missed));
                }
                Some(Found::Message(block)) => self.block = block.or_else(|| self.block.take()),
            }
        }
    }

    /// Receives the next message, if it has come and is in the receiver's block. `until` limits the wait for other receivers
    /// that clone it.
    #[inline]
    fn take(&mut self, until: Option<Nanos>) -> Taken<T> {
        let Some(block) = &self.block else { return Taken::Nothing };
        let Some(node) = block.node(self.next).filter(|node| node.has_come()) else { return Taken::Nothing };
        let mut leaves = self.shared.bells.leaves(self.bell.as_ref());
        let Some(value) = node.value.lock_within(until) else { return Taken::Late };
        leaves.news = false;
        let sees = Sees {
            shared: &self.shared,
            bell: self.bell.as_ref(),
            kept: &mut self.kept,
            next: &mut self.next,
        };
        match sees.see(node, value) {
            Some(message) => Taken::Message(message),
            None => Taken::Nothing,
        }
    }

    /// Receives a message that an earlier call has kept; returns `None` if others still clone it at the limit.
    #[cold]
    fn take_kept(&mut self, until: Option<Nanos>) -> Option<T> {
        if let Some(message) = self.take_kept_alone() {
            return Some(message);
        }
        let kept = self.kept.as_ref().expect("take_kept: something is");
        let clone = self.clone_of(kept, until)?;
        Some(self.took_kept(clone))
    }

    /// Clones the message. A call that ends here leaves the message for the next one.
    #[inline]
    fn clone_of(&self, message: &Kept<T>, until: Option<Nanos>) -> Option<T> {
        let mut leaves = self.shared.bells.leaves(self.bell.as_ref());
        let clone = T::clone(&*message.lock_within(until)?);
        leaves.news = false;
        Some(clone)
    }
}

/// The result of a receive without a look at the state.
enum Taken<T> {
    Message(T),
    /// Others still clone the message at the limit.
    Late,
    /// The receiver has to look.
    Nothing,
}

/// The parts of a receiver with which it sees a message, while a node of its block is borrowed.
struct Sees<'a, T> {
    shared: &'a Shared<T>,
    bell: Option<&'a Bell>,
    kept: &'a mut Option<Kept<T>>,
    next: &'a mut u64,
}

/// The lock of a node. At the drop, by a clone that panics, the message counts as not seen.
struct Turn<'a, T> {
    node: &'a Node<T>,
    value: Option<MutexGuard<'a, Option<T>>>,
}

impl<T> Turn<'_, T> {
    /// Unlocks, and counts the message as seen.
    #[inline]
    fn seen(mut self) -> Seen {
        mutant!(BroadcastSeenEarly: let seen = self.node.seen(); self.value = None; std::mem::forget(self); return seen);
        drop(self.value.take());
        self.node.seen()
    }
}

impl<T> Drop for Turn<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            drop(value);
            self.node.tidy();
        }
    }
}

impl<T: Clone> Sees<'_, T> {
    /// Clones the next message, whose node the caller has locked, and then counts the message as seen. Returns `None` if the
    /// message has been removed.
    #[inline]
    fn see(self, node: &Node<T>, value: MutexGuard<'_, Option<T>>) -> Option<T> {
        let mut leaves = self.shared.bells.leaves(self.bell);
        let turn = Turn { node, value: Some(value) };
        if node.is_gone() {
            leaves.news = false;
            return None;
        }
        let value = turn.value.as_ref().and_then(|value| value.as_ref());
        let clone = T::clone(value.expect("see: a message that has come, and has not gone, is there"));
        let keeps = Keeps::new(self.kept, clone);
        let seen = turn.seen();
        *self.next += 1;
        if seen == Seen::ByAll {
            self.shared.state.lock().pass_seen();
        }
        let clears = seen != Seen::ByMe;
        mutant!(BroadcastLastClearsNothing: let clears = seen == Seen::Removed);
        if clears {
            node.clear();
        }
        leaves.news = self.bell.is_some() && self.shared.state.lock().tail() > *self.next;
        Some(keeps.give())
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        let lags = several::join(&self.shared.state, Side::Receivers).add_receiver(self.next);
        // Without a block the clone looks in the state first: its next message might be between S3 and S4.
        let block = if lags.unless(BroadcastLaggardKeepsItsBlock) { None } else { self.block.clone() };
        let kept = self.kept.clone();
        Receiver { shared: Arc::clone(&self.shared), next: self.next, block, kept, bell: None }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut notified = Notified::new();
        let mut state = self.shared.state.lock();
        let seen = state.remove_receiver(self.next);
        state.parties.receiver_goes(&mut notified);
        drop(state);
        notified.ready();
        self.shared.bells.remove(self.bell.take());
        // The buffer drops all messages, even if the `drop` of one unwinds.
        let mut messages = Buffer::growing();
        seen.iter()
            .filter_map(|(block, number)| block.node(*number)?.take())
            .for_each(|message| messages.put(message));
    }
}

opaque!([T] Sender<T>, [T] Receiver<T>);
