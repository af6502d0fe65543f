//! Channels: goroutines and threads hand messages to each other, and wait for each other by doing so.
//!
//! Names, signatures and error types are crossbeam-channel 0.5's: a program written for that crate compiles after a change of
//! the `use` lines. Where the semantics of the two differ, they are Go's: a channel is first in, first out, for messages and
//! for waiters; a waiting receiver is handed the message directly; [`select!`](crate::select) chooses one of the ready arms,
//! each equally likely while no other thread changes them; and channels have [`close`](Sender::close).
//!
//! * [`bounded(0)`](bounded) has no buffer: a send and a receive meet. [`bounded(n)`](bounded) holds `n` messages,
//!   [`unbounded`] any number. [`after`], [`at`] and [`tick`] make timer channels, which send the time, [`never()`] and
//!   [`never_sender`] disabled arms of a select.
//! * Both halves can be cloned: a channel can have many senders and many receivers. When the last sender is dropped the channel
//!   closes: messages in the buffer can still be received, then receives fail. When the last receiver is dropped the channel
//!   closes too, and messages in the buffer are dropped.
//! * In [`broadcast`] each receiver sees each message, in [`watch`] the last value: tokio's channels, in blocking style.
//! * A call that blocks parks the goroutine, and the thread runs others; on a plain thread the call blocks the thread.
//!   Goroutines and plain threads may share a channel.
//! * [`recv_async`](Receiver::recv_async) and [`send_async`](Sender::send_async) are futures for tasks of any executor, which
//!   wait in the same queues; streams and sinks are made of [`PollReceiver`] and [`PollSender`]. [`broadcast`] and [`watch`]
//!   have futures as well; [`futures`] has the types of this module's futures.
//!
//! No message is lost or dropped twice: an operation that fails gives the message back, and an operation whose goroutine is
//! unwound drops it. If several messages are dropped with their channel and the `drop` of some panics, all are dropped, and the
//! first of these panics is resumed. A message that was handed to a goroutine is lost with that goroutine if the runtime ends
//! before the goroutine has run again.
//!
//! ```
//! use gmp::{chan, go};
//!
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! let sum = unsafe {
//!     gmp::run(|| {
//!         let (numbers, squares) = (chan::bounded(0), chan::bounded(0));
//!         for _ in 0..4 {
//!             let (numbers, squares) = (numbers.1.clone(), squares.0.clone());
//!             go(move || numbers.iter().for_each(|n: u64| squares.send(n * n).unwrap()));
//!         }
//!         drop(squares.0);
//!         go(move || (1..=10).for_each(|n| numbers.0.send(n).unwrap()));
//!         squares.1.iter().take(10).sum::<u64>()
//!     })
//! };
//! assert_eq!(sum, 385);
//! ```

pub mod broadcast;
mod buffer;
mod dynamic;
mod ends;
mod err;
pub(crate) mod flow;
mod future;
pub mod futures;
mod iter;
mod macros;
mod select;
mod several;
mod state;
pub mod watch;

pub use crate::{select, select_biased};
pub use dynamic::{Select, SelectedOperation};
pub use ends::{Receiver, Sender};
pub use err::{
    ReadyTimeoutError, RecvError, RecvTimeoutError, SelectTimeoutError, SendError, SendTimeoutError,
    TryReadyError, TryRecvError, TrySelectError, TrySendError,
};
pub use future::{PollReceiver, PollSender};
pub use iter::{IntoIter, Iter, TryIter};
#[doc(hidden)]
pub use macros::internal;

use crate::chan::flow::{Owned, Room};
pub(crate) use crate::chan::state::{Tick, Woken};
use crate::host::{Active, Clock};
use gmp_timers::Nanos;
use std::time::{Duration, Instant};

#[track_caller]
fn pair<T>(room: Room, closable: bool) -> (Sender<T>, Receiver<T>) {
    let [ours, theirs] = Owned::pair(room, closable).map(Some);
    (Sender { chan: ours }, Receiver { chan: theirs })
}

/// Makes a channel with a buffer for `capacity` messages. With 0 the channel has no buffer, and each send waits for a
/// receive.
///
/// # Panics
/// If there is no memory for the buffer, which is allocated at once, and lives until the last half of either kind is dropped.
///
/// ```
/// let (sender, receiver) = gmp::chan::bounded(1);
/// sender.send("hello").unwrap();
/// assert!(sender.try_send("world").unwrap_err().is_full());
/// assert_eq!(receiver.recv(), Ok("hello"));
/// ```
#[must_use]
#[doc(alias = "make")]
#[track_caller]
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    pair(Room::Fixed(capacity), true)
}

/// Makes a channel that holds any number of messages. A send never blocks.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (sender, receiver) = gmp::chan::unbounded();
///         for n in 1..=3 {
///             // Never waits.
///             sender.send(n).unwrap();
///         }
///         drop(sender);
///         assert_eq!(receiver.iter().collect::<Vec<_>>(), [1, 2, 3]);
///     })
/// }
/// ```
#[must_use]
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    pair(Room::Grows(usize::MAX), true)
}

/// Makes a channel that never has a message and never closes: a receive blocks for ever. As an arm of a select the
/// receive is disabled.
///
/// ```
/// use gmp::chan;
///
/// let (sender, receiver) = chan::unbounded();
/// sender.send(1).unwrap();
/// let mut others = chan::never::<u32>();
/// gmp::select! {
///     recv(receiver) -> n => assert_eq!(n, Ok(1)),
///     recv(others) -> _ => unreachable!(),
/// }
/// // From here on there may be other messages.
/// others = receiver.clone();
/// sender.send(2).unwrap();
/// assert_eq!(others.recv(), Ok(2));
/// ```
#[doc(alias = "nil")]
pub const fn never<T>() -> Receiver<T> {
    Receiver { chan: None }
}

/// Makes a channel that no message can be sent to and that never closes: a send blocks for ever. As an arm of a select
/// the send is disabled.
///
/// ```
/// use gmp::chan;
///
/// let (numbers, receiver) = chan::bounded(1);
/// // Sends as long as the budget lasts.
/// for budget in [1, 0] {
///     let out = if budget > 0 { numbers.clone() } else { chan::never_sender() };
///     let sent = gmp::select! {
///         send(out, 7) -> _ => true,
///         default => false,
///     };
///     assert_eq!(sent, budget > 0);
/// }
/// assert_eq!(receiver.recv(), Ok(7));
/// ```
#[doc(alias = "nil")]
pub const fn never_sender<T>() -> Sender<T> {
    Sender { chan: None }
}

/// Makes a channel that has one message once `duration` has passed: the time at which the message was due. The
/// channel never closes.
///
/// While no receiver waits, the channel is in no timer heap, and costs only memory.
///
/// ```
/// use gmp::chan;
/// use std::time::Duration;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let late = chan::after(Duration::from_millis(2));
///         let (_sender, nothing) = chan::bounded::<()>(0);
///         gmp::select! {
///             recv(nothing) -> _ => unreachable!(),
///             recv(late) -> at => assert!(at.is_ok()),
///         }
///     })
/// }
/// ```
#[must_use]
#[doc(alias = "time.After")]
pub fn after(duration: Duration) -> Receiver<Instant> {
    clock(Active::after(duration), Duration::ZERO)
}

/// As [`after`], for a point in time, which is the message. If `when` has passed, the message is there at once. (The
/// message for a point more than a century before the process first read the clock is that first reading.)
///
/// ```
/// use gmp::chan;
/// use std::time::{Duration, Instant};
///
/// let when = Instant::now() + Duration::from_millis(2);
/// assert_eq!(chan::at(when).recv(), Ok(when));
/// assert!(Instant::now() >= when);
/// ```
#[must_use]
pub fn at(when: Instant) -> Receiver<Instant> {
    clock(Active::nanos(when), Duration::ZERO)
}

/// Makes a channel that has a message after each `duration`: the time at which the message was due. A late receiver misses the
/// messages in between, as with Go's; the next message is on the beat. The channel never closes.
///
/// Waiting receivers get the messages in turn. A receive that does not wait (`try_recv`, a `select!` with `default`,
/// [`Select::ready`]) finds a message only while no receiver waits. A future that was woken for a message keeps it for 10 ms.
///
/// With a duration of zero there is always a message.
///
/// ```
/// use std::time::Duration;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let ticks = gmp::chan::tick(Duration::from_millis(1));
///         let (first, second) = (ticks.recv().unwrap(), ticks.recv().unwrap());
///         assert!(first < second);
///     })
/// }
/// ```
#[must_use]
#[doc(alias = "time.Tick")]
pub fn tick(duration: Duration) -> Receiver<Instant> {
    // With one nanosecond, the clock's resolution, a message is always due.
    let period = duration.max(Duration::from_nanos(1));
    clock(Active::after(duration), period)
}

/// Makes a timer channel, which users can't close.
pub(crate) fn clock(due: Nanos, period: Duration) -> Receiver<Instant> {
    Receiver { chan: Some(Owned::for_receiver(1, Some(Tick { due: Some(due), period }))) }
}

/// Makes a channel for `Sender::send_absent`, which users can't close.
pub(crate) fn once_each<T>() -> (Sender<T>, Receiver<T>) {
    pair(Room::Grows(usize::MAX), false)
}

/// Makes a channel without messages, which only `shut_and_tell` closes.
pub(crate) fn signal() -> Receiver<()> {
    Receiver { chan: Some(Owned::for_receiver(0, None)) }
}
