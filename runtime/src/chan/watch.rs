//! A value and its watchers: each receiver sees the latest value, and not every value. tokio's `watch`, in blocking
//! style.
//!
//! The value lies in an [`RwLock`](crate::sync::RwLock). A sender changes the value under that lock, and counts the change
//! under the channel's lock before it lets the value go: a receiver that reads the value reads the count that belongs to it. A
//! receiver has the count that it has seen last.
//!
//! Names and semantics are those of tokio 1's `sync::watch`, with these differences: the calls block, and each has a
//! future beside it ([`changed_async`](Receiver::changed_async), [`wait_for_async`](Receiver::wait_for_async),
//! [`closed_async`](Sender::closed_async)); [`borrow`](Receiver::borrow) parks where tokio's blocks its thread; waits may
//! have a limit, and there is [`close`](Sender::close). In a task `borrow` and `send` block the thread, as tokio's do:
//! while another thread or goroutine changes the value, or has a [`Ref`]. So a task keeps no `Ref` across an await. A
//! receiver is an arm of a [`select!`](crate::select) by its [`bell`](Receiver::bell).
//!
//! ```
//! use gmp::chan::watch;
//!
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! unsafe {
//!     gmp::run(|| {
//!         let (level, mut seen) = watch::channel(0);
//!         let reader = gmp::go(move || {
//!             while seen.changed().is_ok() {
//!                 if *seen.borrow_and_update() == 3 {
//!                     return true;
//!                 }
//!             }
//!             false
//!         });
//!         (1..=3).for_each(|n| level.send(n).unwrap_or_default());
//!         assert!(reader.join().unwrap());
//!     })
//! }
//! ```

mod err;
pub mod futures;
mod shared;

pub use err::{RecvError, RecvTimeoutError, SendError};

use crate::chan::several::{self, Bell, Side, wait_for};
use crate::goroutine::own_frame::in_own_frame;
use crate::host::{Active, Clock};
use crate::prim::Arc;
use crate::sync::RwLockReadGuard;
use crate::sync::wait_queue::Notified;
use futures::{Changed, Closed, WaitFor};
use gmp_timers::Nanos;
use shared::Shared;
use std::fmt;
use std::mem;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::{Duration, Instant};

/// Makes a channel with a first value, which its receiver has seen.
///
/// ```
/// use gmp::chan::watch;
///
/// let (sender, mut receiver) = watch::channel("first");
/// assert!(!receiver.has_changed().unwrap());
/// sender.send("second").unwrap();
/// sender.send("third").unwrap();
/// assert_eq!((receiver.changed(), *receiver.borrow()), (Ok(()), "third"));
/// assert!(!receiver.has_changed().unwrap());
/// ```
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let shared = Shared::new(value, 1);
    (Sender { shared: Arc::clone(&shared) }, Receiver { shared, seen: 0, bell: None })
}

/// The half that changes the value. Clones change the same value; when the last one is dropped, the channel closes.
///
/// ```
/// use gmp::chan::watch;
///
/// let (level, seen) = watch::channel(1);
/// level.send_modify(|level| *level += 1);
/// assert_eq!(level.send_replace(7), 2);
/// assert_eq!(*seen.borrow(), 7);
/// ```
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// A half that sees the value. A clone has seen what the original has seen.
///
/// ```
/// use gmp::chan::watch;
///
/// let (level, mut seen) = watch::channel(0);
/// (1..=3).for_each(|n| level.send(n).unwrap());
/// // The last value is seen, and not each one.
/// assert_eq!((seen.changed(), *seen.borrow_and_update()), (Ok(()), 3));
/// assert_eq!(seen.has_changed(), Ok(false));
/// ```
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
    bell: Option<Bell>,
}

impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}
impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

/// A guard of the value, which does not change while the guard lives.
///
/// ```
/// use gmp::chan::watch;
///
/// let (level, mut seen) = watch::channel(0);
/// level.send(1).unwrap();
/// let value = seen.borrow_and_update();
/// assert!(value.has_changed());
/// assert_eq!(*value, 1);
/// ```
pub struct Ref<'a, T> {
    value: RwLockReadGuard<'a, T>,
    changed: bool,
}

impl<T> Ref<'_, T> {
    /// Returns `true` if the receiver that made this had not seen the value. For a sender, `false`.
    pub fn has_changed(&self) -> bool {
        self.changed
    }
}

impl<T> Deref for Ref<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Sender<T> {
    /// Makes a channel without receivers; [`subscribe`](Self::subscribe) makes them.
    pub fn new(value: T) -> Self {
        Sender { shared: Shared::new(value, 0) }
    }

    /// Replaces the value, if there is a receiver, and drops the one before. Blocks the calling goroutine, or the plain
    /// thread, while a [`Ref`] is there.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind). Nothing is changed then.
    ///
    /// # Errors
    /// There is no receiver, or the channel is closed. The error holds the value.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.is_closed() {
            return Err(SendError(value));
        }
        drop(self.send_replace(value));
        Ok(())
    }

    /// Replaces the value, also without a receiver, and returns the one before. Blocks the calling goroutine, or the plain
    /// thread, while a [`Ref`] is there.
    ///
    /// # Unwinds
    /// As [`send`](Self::send).
    ///
    /// ```
    /// let sender = gmp::chan::watch::Sender::new(1);
    /// assert_eq!((sender.send_replace(2), *sender.borrow()), (1, 2));
    /// ```
    pub fn send_replace(&self, value: T) -> T {
        let mut guard = self.shared.value.write();
        let before = mem::replace(&mut *guard, value);
        self.shared.tell(guard);
        before
    }

    /// Changes the value in place, and tells the receivers. Blocks as [`send`](Self::send). A panic of `modify` goes on; what
    /// it has changed by then stays, and the receivers are not told.
    ///
    /// # Unwinds
    /// As [`send`](Self::send).
    pub fn send_modify(&self, modify: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            modify(value);
            true
        });
    }

    /// As [`send_modify`](Self::send_modify), but tells the receivers only if `modify` returns `true`. Returns the
    /// result of `modify`.
    ///
    /// # Unwinds
    /// As [`send`](Self::send).
    pub fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        let mut guard = self.shared.value.write();
        let modified = in_own_frame(|| modify(&mut guard));
        if modified {
            self.shared.tell(guard);
        }
        modified
    }

    /// Returns the value. Blocks the calling goroutine, or the plain thread, while a sender changes the value, or waits to
    /// change it: so a caller that holds another [`Ref`] of this channel may wait for itself.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref { value: self.shared.value.read(), changed: false }
    }

    /// Makes a receiver, which has seen the present value. Does not block.
    pub fn subscribe(&self) -> Receiver<T> {
        self.shared.subscribe()
    }

    /// Closes the channel: sends fail from then on, and receivers that have seen the last value. Returns `false` if the
    /// channel was closed already. Does not block.
    pub fn close(&self) -> bool {
        several::close(&self.shared.state, &self.shared.bells)
    }

    /// Returns `true` if there is no receiver, or the channel is closed.
    pub fn is_closed(&self) -> bool {
        self.shared.state.lock().parties.is_deserted()
    }

    /// Blocks the calling goroutine, or the plain thread, until there is no receiver, or the channel is closed.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn closed(&self) {
        wait_for(&self.shared.state, Side::Senders, None, |state| state.parties.is_deserted().then_some(()));
    }

    /// As [`closed`](Self::closed), as a future: blocks nothing, and may be polled by any task, on goroutines
    /// ([`block_on`](crate::block_on)) and under other executors. Waits from the first poll on, and may be dropped at any time.
    /// Polled again after its end it looks again.
    ///
    /// ```
    /// use gmp::chan::watch;
    ///
    /// let (level, seen) = watch::channel(0);
    /// let other = std::thread::spawn(move || drop(seen));
    /// gmp::block_on(level.closed_async());
    /// other.join().unwrap();
    /// ```
    pub fn closed_async(&self) -> Closed<'_, T> {
        Closed::new(self)
    }

    /// Returns the number of receivers at this moment.
    pub fn receiver_count(&self) -> usize {
        self.shared.state.lock().parties.receivers
    }

    /// Returns the number of senders at this moment.
    pub fn sender_count(&self) -> usize {
        self.shared.state.lock().parties.senders
    }

    /// Returns `true` if both change the same value.
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
    /// Returns the value, and does not count it as seen. Blocks the calling goroutine, or the plain thread, while a sender
    /// changes the value, or waits to change it: so a caller that holds another [`Ref`] of this channel may wait for
    /// itself.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn borrow(&self) -> Ref<'_, T> {
        let value = self.shared.value.read();
        let changed = self.shared.state.lock().version != self.seen;
        Ref { value, changed }
    }

    /// As [`borrow`](Self::borrow), and counts the value as seen.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        self.shared.see(self.bell.as_ref(), &mut self.seen)
    }

    /// Returns `true` if the value was changed since this receiver has seen it. Does not block.
    ///
    /// # Errors
    /// The channel is closed, whether this receiver has seen the last value or not: [`borrow`](Self::borrow) tells that.
    pub fn has_changed(&self) -> Result<bool, RecvError> {
        let state = self.shared.state.lock();
        if state.parties.closed { Err(RecvError) } else { Ok(state.version != self.seen) }
    }

    /// Blocks the calling goroutine, or the plain thread, until the value was changed since this receiver has seen it, and
    /// counts the present one as seen.
    ///
    /// ```
    /// let (config, mut receiver) = gmp::chan::watch::channel(1);
    /// std::thread::spawn(move || config.send(2));
    /// receiver.changed()?;
    /// assert_eq!(*receiver.borrow(), 2);
    /// # Ok::<(), gmp::chan::watch::RecvError>(())
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// The channel is closed, and the receiver has seen the last value.
    pub fn changed(&mut self) -> Result<(), RecvError> {
        self.changed_in(None).map_err(|_| RecvError)
    }

    /// As [`changed`](Self::changed), as a future: blocks nothing, and may be polled by any task, on goroutines
    /// ([`block_on`](crate::block_on)) and under other executors. Waits from the first poll on, in one queue with the
    /// receivers that block. No runtime is needed. Polled again after its end it waits for another change.
    ///
    /// *Cancel safety*: a future that is dropped before it was ready has seen no change; the next call of this receiver tells
    /// of it.
    ///
    /// ```
    /// use gmp::chan::watch;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (level, mut seen) = watch::channel(0);
    ///         gmp::go(move || (1..=3).for_each(|n| level.send(n).unwrap_or_default()));
    ///         gmp::block_on(async {
    ///             while seen.changed_async().await.is_ok() {}
    ///         });
    ///         assert_eq!(*seen.borrow(), 3);
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// The output: the channel is closed, and the receiver has seen the last value.
    pub fn changed_async(&mut self) -> Changed<'_, T> {
        Changed::new(self)
    }

    /// As [`changed`](Self::changed), for at most `timeout`.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As `changed`, or the time has passed.
    pub fn changed_timeout(&mut self, timeout: Duration) -> Result<(), RecvTimeoutError> {
        self.changed_in(Some(Active::now().saturating_add(timeout)))
    }

    /// As [`changed`](Self::changed), until `deadline` at most.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As `changed`, or the time has passed.
    pub fn changed_deadline(&mut self, deadline: Instant) -> Result<(), RecvTimeoutError> {
        self.changed_in(Some(Active::nanos(deadline)))
    }

    fn changed_in(&mut self, until: Option<Nanos>) -> Result<(), RecvTimeoutError> {
        let seen = self.seen;
        let found = wait_for(&self.shared.state, Side::Receivers, until, |state| state.changed_since(seen));
        let version = found.ok_or(RecvTimeoutError::Timeout)?;
        self.seen = version.map_err(|RecvError| RecvTimeoutError::Closed)?;
        Ok(())
    }

    /// Blocks the calling goroutine, or the plain thread, until `is_right` returns `true` for a value, and returns that
    /// value, which counts as seen. `is_right` is called first with the present value, seen or not. A panic of `is_right`
    /// goes on.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// The channel is closed, and the last value is not right.
    ///
    /// ```
    /// let (sender, mut receiver) = gmp::chan::watch::channel(1);
    /// sender.send(5).unwrap();
    /// assert_eq!(*receiver.wait_for(|n| *n > 3).unwrap(), 5);
    /// drop(sender);
    /// assert!(receiver.wait_for(|n| *n > 5).is_err());
    /// ```
    pub fn wait_for(&mut self, mut is_right: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, RecvError> {
        loop {
            let value = self.shared.see(self.bell.as_ref(), &mut self.seen);
            if in_own_frame(|| is_right(&value)) {
                return Ok(value);
            }
            drop(value);
            let seen = self.seen;
            wait_for(&self.shared.state, Side::Receivers, None, |state| state.changed_since(seen))
                .expect("wait_for: there is no limit")?;
        }
    }

    /// As [`wait_for`](Self::wait_for), as a future: blocks nothing, and may be polled by any task, as that of
    /// [`changed_async`](Self::changed_async). `is_right` is called in its polls. Polled again after its end it begins again, with
    /// the present value.
    ///
    /// *Cancel safety*: what `is_right` was asked about counts as seen, as with [`wait_for`](Self::wait_for); a value that the
    /// future has not come to, does not.
    ///
    /// ```
    /// use gmp::chan::watch;
    ///
    /// let (level, mut seen) = watch::channel(1);
    /// let other = std::thread::spawn(move || (2..=9).for_each(|n| level.send(n).unwrap_or_default()));
    /// assert!(*gmp::block_on(seen.wait_for_async(|n| *n > 3)).unwrap() > 3);
    /// other.join().unwrap();
    /// ```
    ///
    /// A future that was woken to read the value, and is neither polled nor dropped, may hold up the senders.
    ///
    /// # Errors
    /// The output: the channel is closed, and the last value is not right.
    pub fn wait_for_async<F: FnMut(&T) -> bool>(&mut self, is_right: F) -> WaitFor<'_, T, F> {
        WaitFor::new(self, is_right)
    }

    /// Counts the present value as not seen: the next [`changed`](Self::changed) returns at once, and the
    /// [`bell`](Self::bell) rings.
    pub fn mark_changed(&mut self) {
        // No count that the value has.
        self.seen = u64::MAX;
        self.shared.bells.ring(self.bell.as_ref());
    }

    /// Counts the present value as seen.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.shared.state.lock().version;
    }

    /// Returns `true` if both watch the same value.
    pub fn same_channel(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns a channel that has a message when the value may have changed, and is closed with this one: an arm of
    /// [`select!`](crate::select), after which [`borrow_and_update`](Self::borrow_and_update) tells. It may also ring for a
    /// value that this receiver has seen. Does not block.
    ///
    /// ```
    /// use gmp::chan::watch;
    /// use std::time::Duration;
    ///
    /// let (sender, mut receiver) = watch::channel(1);
    /// let bell = receiver.bell();
    /// sender.send(2).unwrap();
    /// gmp::select! {
    ///     recv(bell) -> _ => assert_eq!(*receiver.borrow_and_update(), 2),
    ///     default(Duration::from_secs(60)) => unreachable!(),
    /// }
    /// ```
    pub fn bell(&mut self) -> crate::chan::Receiver<()> {
        let seen = self.seen;
        self.shared.bells.bell(&mut self.bell, &self.shared.state, |state| state.version != seen)
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        drop(several::join(&self.shared.state, Side::Receivers));
        Receiver { shared: Arc::clone(&self.shared), seen: self.seen, bell: None }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut notified = Notified::new();
        self.shared.state.lock().parties.receiver_goes(&mut notified);
        notified.ready();
        self.shared.bells.remove(self.bell.take());
    }
}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("value", &self.shared.value).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("value", &self.shared.value).finish()
    }
}
