//! A value and its watchers: each receiver sees the latest value, but not every value. tokio's `watch`, in blocking style.
//!
//! The value lies in an [`RwLock`](crate::sync::RwLock). A sender changes the value under that lock, and counts the change
//! under the channel's lock before it unlocks the value: so a receiver that reads the value reads the count that belongs to it.
//! A receiver keeps the count that it has seen last.
//!
//! Names and semantics are those of tokio 1's `sync::watch`, with these differences: the calls block, and each has a future
//! beside it ([`changed_async`](Receiver::changed_async), [`wait_for_async`](Receiver::wait_for_async),
//! [`closed_async`](Sender::closed_async)); [`borrow`](Receiver::borrow) parks where tokio's blocks its thread; waits can have
//! a limit, and there is [`close`](Sender::close). In a task of another executor `borrow` and `send` block the thread, as
//! tokio's do, while another thread or goroutine changes the value, or has a [`Ref`]. So a task must not keep a `Ref` across an
//! await. A receiver is an arm of a [`select!`](crate::select) by its [`bell`](Receiver::bell).
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

use crate::chan::several::{self, Bell, Deserted, Parties, Side, wait_for};
use crate::goroutine::own_frame::in_own_frame;
use crate::host::{Active, Clock};
use crate::impls::unwind_safe;
use crate::prim::Arc;
use crate::sync::RwLockReadGuard;
use crate::sync::wait_queue::Notified;
use futures::{Changed, Closed, WaitFor};
use gmp_timers::Nanos;
use shared::Shared;
use std::fmt;
use std::mem;
use std::ops::Deref;
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
#[must_use]
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

/// A half that sees the value. A clone has seen the same values as the original.
///
/// ```
/// use gmp::chan::watch;
///
/// let (level, mut seen) = watch::channel(0);
/// (1..=3).for_each(|n| level.send(n).unwrap());
/// // The receiver sees the last value, but not each one.
/// assert_eq!((seen.changed(), *seen.borrow_and_update()), (Ok(()), 3));
/// assert_eq!(seen.has_changed(), Ok(false));
/// ```
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
    bell: Option<Bell>,
}

unwind_safe!([T] Sender<T>, [T] Receiver<T>);

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
    /// Returns `true` if the receiver that made this guard had not seen the value. Returns `false` for a sender's guard.
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

    /// Replaces the value, if there is a receiver, and drops the previous one. Blocks the calling goroutine, or the plain
    /// thread, while a [`Ref`] exists.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind). Then nothing is changed.
    ///
    /// # Errors
    /// If there is no receiver, or the channel is closed, before the call or while it waits. The error holds the value.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.is_closed() {
            return Err(SendError(value));
        }
        let mut guard = self.shared.value.write();
        let Some(told) = self.shared.count(Parties::is_deserted) else { return Err(SendError(value)) };
        let before = mem::replace(&mut *guard, value);
        self.shared.let_go(guard, told);
        drop(before);
        Ok(())
    }

    /// Replaces the value, also without a receiver, and returns the previous one. Blocks the calling goroutine, or the plain
    /// thread, while a [`Ref`] exists. On a channel that was [closed](Self::close) the receivers are not told.
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
        let told = self.shared.count(|parties| parties.closed);
        let before = mem::replace(&mut *guard, value);
        if let Some(told) = told {
            self.shared.let_go(guard, told);
        }
        before
    }

    /// Changes the value in place, and tells the receivers. Blocks as [`send`](Self::send) does. A panic of `modify`
    /// propagates; its changes up to then stay, and the receivers are not told. The receivers are also not told if the channel
    /// was [closed](Self::close) before the call, or by the time that `modify` returns.
    ///
    /// # Unwinds
    /// As [`send`](Self::send).
    pub fn send_modify(&self, modify: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            modify(value);
            true
        });
    }

    /// As [`send_modify`](Self::send_modify), but tells the receivers only if `modify` returns `true`, and the channel is not
    /// closed. Returns the result of `modify`.
    ///
    /// # Unwinds
    /// As [`send`](Self::send).
    pub fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        let mut guard = self.shared.value.write();
        let modified = in_own_frame(|| modify(&mut guard));
        if modified && let Some(told) = self.shared.count(|parties| parties.closed) {
            self.shared.let_go(guard, told);
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

    /// Closes the channel: sends fail from then on, and so do the waits of receivers that have seen the last value. Returns
    /// `false` if the channel was closed already. Does not block.
    ///
    /// A [`send`](Self::send) that waits for a [`Ref`] fails as well. [`send_replace`](Self::send_replace),
    /// [`send_modify`](Self::send_modify) and [`send_if_modified`](Self::send_if_modified) still change the value, which
    /// [`Receiver::borrow`] shows; no receiver is told of the change, and the value does not count as unseen. So a receiver
    /// that was told the end is never told of a later change.
    ///
    /// ```
    /// use gmp::chan::watch;
    ///
    /// let (level, mut seen) = watch::channel(1);
    /// level.close();
    /// assert_eq!(level.send(2), Err(watch::SendError(2)));
    /// level.send_modify(|level| *level = 3);
    /// assert_eq!((seen.changed(), *seen.borrow()), (Err(watch::RecvError), 3));
    /// ```
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
        several::wait_deserted(&self.shared.state);
    }

    /// As [`closed`](Self::closed), as a future, whose polls do not block: any task may poll it, on goroutines
    /// ([`block_on`](crate::block_on)) and under other executors. The future waits from its first poll on, and can be dropped
    /// at any time. Polled again after its end, the future looks again.
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

    /// Returns `true` if both change the same value.
    pub fn same_channel(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

/// Does the same as [`Sender::new`] with the default value.
impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Sender::new(T::default())
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
    /// Returns the value, without counting it as seen. Blocks the calling goroutine, or the plain thread, while a sender
    /// changes the value, or waits to change it: so a caller that holds another [`Ref`] of this channel may wait for itself.
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
        let seen = self.shared.see(self.bell.as_ref(), &mut self.seen, None);
        seen.expect("borrow_and_update: there is no limit")
    }

    /// Returns `true` if the value was changed since this receiver last saw it. Does not block.
    ///
    /// # Errors
    /// If the channel is closed, whether or not this receiver has seen the last value: [`borrow`](Self::borrow) tells that.
    pub fn has_changed(&self) -> Result<bool, RecvError> {
        let state = self.shared.state.lock();
        if state.parties.closed { Err(RecvError) } else { Ok(state.version != self.seen) }
    }

    /// Blocks the calling goroutine, or the plain thread, until the value was changed since this receiver last saw it, and
    /// counts the present value as seen.
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
    /// If the channel is closed, and the receiver has seen the last value. All later calls fail, too, unless the receiver
    /// [marks](Self::mark_changed) the value.
    pub fn changed(&mut self) -> Result<(), RecvError> {
        self.changed_in(None).map_err(|_| RecvError)
    }

    /// As [`changed`](Self::changed), as a future, whose polls do not block: any task may poll it, on goroutines
    /// ([`block_on`](crate::block_on)) and under other executors. The future waits from its first poll on, in one queue with
    /// the receivers that block. No runtime is needed. Polled again after its end, the future waits for another change.
    ///
    /// *Cancel safety*: a future that is dropped before it was ready has seen no change; the next call of this receiver reports
    /// the change.
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
    /// The output is an error if the channel is closed, and the receiver has seen the last value.
    pub fn changed_async(&mut self) -> Changed<'_, T> {
        Changed::new(self)
    }

    /// As [`changed`](Self::changed), for at most `timeout`.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As `changed`, or if the time has passed.
    pub fn changed_timeout(&mut self, timeout: Duration) -> Result<(), RecvTimeoutError> {
        self.changed_in(Some(Active::after(timeout)))
    }

    /// As [`changed`](Self::changed), until `deadline` at most.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As `changed`, or if the time has passed.
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

    /// Blocks the calling goroutine, or the plain thread, until `is_right` returns `true` for a value, and returns that value,
    /// which counts as seen. `is_right` is called first with the present value, seen or not. A panic of `is_right` propagates.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// If the channel is closed, and `is_right` returns `false` for the last value.
    ///
    /// ```
    /// let (sender, mut receiver) = gmp::chan::watch::channel(1);
    /// sender.send(5).unwrap();
    /// assert_eq!(*receiver.wait_for(|n| *n > 3).unwrap(), 5);
    /// drop(sender);
    /// assert!(receiver.wait_for(|n| *n > 5).is_err());
    /// ```
    pub fn wait_for(&mut self, is_right: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, RecvError> {
        self.wait_for_in(is_right, None).map_err(|_| RecvError)
    }

    /// As [`wait_for`](Self::wait_for), for at most `timeout` in all, which includes the time in which a sender changes the
    /// value. `is_right` itself has no limit, and is called first with the present value, however short the time, unless a
    /// sender is just changing it. The limit also holds where nothing can be unwound.
    ///
    /// ```
    /// use gmp::chan::watch::{self, RecvTimeoutError};
    /// use std::time::Duration;
    ///
    /// let (sender, mut receiver) = watch::channel(1);
    /// let late = receiver.wait_for_timeout(|n| *n > 3, Duration::from_millis(1));
    /// assert_eq!(late.map(|n| *n), Err(RecvTimeoutError::Timeout));
    /// std::thread::spawn(move || sender.send(5));
    /// assert_eq!(*receiver.wait_for_timeout(|n| *n > 3, Duration::from_secs(60)).unwrap(), 5);
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As `wait_for`, or if the time has passed. Values for which `is_right` was called count as seen.
    pub fn wait_for_timeout(
        &mut self,
        is_right: impl FnMut(&T) -> bool,
        timeout: Duration,
    ) -> Result<Ref<'_, T>, RecvTimeoutError> {
        self.wait_for_in(is_right, Some(Active::after(timeout)))
    }

    /// As [`wait_for_timeout`](Self::wait_for_timeout), until `deadline` at most.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`wait_for_timeout`](Self::wait_for_timeout).
    pub fn wait_for_deadline(
        &mut self,
        is_right: impl FnMut(&T) -> bool,
        deadline: Instant,
    ) -> Result<Ref<'_, T>, RecvTimeoutError> {
        self.wait_for_in(is_right, Some(Active::nanos(deadline)))
    }

    fn wait_for_in(
        &mut self,
        mut is_right: impl FnMut(&T) -> bool,
        until: Option<Nanos>,
    ) -> Result<Ref<'_, T>, RecvTimeoutError> {
        loop {
            let value = self.shared.see(self.bell.as_ref(), &mut self.seen, until);
            let value = value.ok_or(RecvTimeoutError::Timeout)?;
            if in_own_frame(|| is_right(&value)) {
                return Ok(value);
            }
            drop(value);
            let seen = self.seen;
            let found =
                wait_for(&self.shared.state, Side::Receivers, until, |state| state.changed_since(seen));
            found.ok_or(RecvTimeoutError::Timeout)?.map_err(|RecvError| RecvTimeoutError::Closed)?;
        }
    }

    /// As [`wait_for`](Self::wait_for), as a future, whose polls do not block: any task may poll it, like the future of
    /// [`changed_async`](Self::changed_async). The polls call `is_right`. Polled again after its end, the future begins again,
    /// with the present value.
    ///
    /// *Cancel safety*: values for which `is_right` was called count as seen, as with [`wait_for`](Self::wait_for); a value
    /// that the future has not come to does not.
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
    /// The output is an error if the channel is closed, and `is_right` returns `false` for the last value.
    pub fn wait_for_async<F: FnMut(&T) -> bool>(&mut self, is_right: F) -> WaitFor<'_, T, F> {
        WaitFor::new(self, is_right)
    }

    /// Counts the present value as not seen: the next [`changed`](Self::changed) returns at once, also on a closed channel, and
    /// the [`bell`](Self::bell) rings.
    pub fn mark_changed(&mut self) {
        // A count that the value never has.
        self.seen = u64::MAX;
        self.shared.bells.ring(self.bell.as_ref());
    }

    /// Counts the present value as seen.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.shared.state.lock().version;
    }

    /// Returns `true` if the channel is closed: no further change will be told. Does not block.
    ///
    /// ```
    /// use gmp::chan::watch;
    ///
    /// let (level, seen) = watch::channel(1);
    /// assert!(!seen.is_closed());
    /// drop(level);
    /// assert!(seen.is_closed());
    /// assert_eq!(*seen.borrow(), 1);
    /// ```
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

    /// Returns `true` if both watch the same value.
    pub fn same_channel(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns a channel that has a message when the value may have changed, and is closed with this one: an arm of
    /// [`select!`](crate::select), after which [`borrow_and_update`](Self::borrow_and_update) returns the value. The bell may
    /// also ring for a value that this receiver has seen. Does not block.
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
