//! How a joiner learns of a goroutine's end: [`JoinHandle`], [`JoinError`].

use super::GoroutineId;
use crate::chan::{self, Receiver, Woken, limit_of};
use crate::g::task::Failure;
use crate::g::{self, End, EndHook, GRef, Life};
use crate::host::{Active, Clock};
use crate::prim::hooks::*;
use crate::sched::park::WaitReason;
use crate::wait::interrupt::{Interrupt, OnInterrupt};
use crate::wait::task::{self, Readied};
use crate::wait::waiter::{How, Wait, Woke};
use gmp_timers::Nanos;
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The right to wait for a goroutine's end and to take its value.
///
/// Dropping the handle detaches the goroutine, which runs on; the value is dropped at the goroutine's end, before the
/// goroutine's [variables](crate::local::Local). The handle is a future, too: an `async` function awaits it.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let worker = gmp::go(|| 6 * 7);
///         assert_eq!(worker.join().unwrap(), 42);
///
///         let fails = gmp::go(|| -> u32 { panic!("no answer") });
///         let panic = fails.join().unwrap_err().into_panic();
///         assert_eq!(panic.downcast_ref::<&str>(), Some(&"no answer"));
///     })
/// }
/// ```
pub struct JoinHandle<T> {
    g: GRef<Active>,
    value: PhantomData<fn() -> T>,
}

// SAFETY: the handle gives a `T`, which may be made on another thread, to the joiner: so `T` is to be Send.
unsafe impl<T: Send> Send for JoinHandle<T> {}
// SAFETY: through a shared reference nothing of `T` can be reached.
unsafe impl<T: Send> Sync for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    /// The handle's party of a goroutine that was just made, whose value is a `T`.
    pub(crate) fn of(g: GRef<Active>) -> Self {
        JoinHandle { g, value: PhantomData }
    }

    /// Waits until the goroutine has ended, and returns the goroutine's value. Blocks the calling goroutine, or the
    /// plain thread. After `join` the goroutine is not counted by [`num_goroutines`](crate::num_goroutines) any more.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// A [`JoinError`] if the goroutine panicked, called [`goexit`](crate::goexit), was
    /// [aborted](crate::AbortHandle::abort), or its runtime ended first. A goroutine that waits in `join` when its own runtime
    /// ends is unwound, and does not get the error.
    ///
    /// # Panics
    /// If [`join_timeout`](Self::join_timeout) or [`join_deadline`](Self::join_deadline) has taken the value, or the error of a
    /// goroutine that has ended.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let failing = gmp::go(|| -> u32 { std::panic::resume_unwind(Box::new("no")) });
    ///         let error = failing.join().unwrap_err();
    ///         assert!(error.is_panic());
    ///         assert_eq!(error.into_panic().downcast_ref(), Some(&"no"));
    ///     })
    /// }
    /// ```
    #[track_caller]
    pub fn join(self) -> Result<T, JoinError> {
        self.join_in(How::new(WaitReason::Join))
    }

    #[track_caller]
    pub(crate) fn join_in(self, how: How) -> Result<T, JoinError> {
        let (end, life) = self.wait(how);
        let this = ManuallyDrop::new(self);
        let outcome = match end {
            // SAFETY: the goroutine has ended and left an `Outcome<T>`; the handle's right to the outcome is used here,
            // once, and `give_handle_back` is told so.
            End::Ended => unsafe { this.g.task.outcome::<T>() },
            End::Left => Err(Failure::Shutdown),
        };
        g::give_handle_back(this.g, end == End::Ended, life);
        match outcome {
            Ok(value) => Ok(value),
            Err(failure) => Err(JoinError::of(failure)),
        }
    }

    /// As [`join`](Self::join), for at most `timeout`. Returns `None` if the time has passed; the goroutine goes on. The
    /// handle stays, and the next call waits anew.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (go_on, hears) = gmp::chan::bounded::<()>(0);
    ///         let mut worker = gmp::go(move || hears.recv().is_err());
    ///         assert!(worker.join_timeout(Duration::from_millis(1)).is_none());
    ///         drop(go_on);
    ///         assert!(worker.join_timeout(Duration::from_secs(60)).unwrap().unwrap());
    ///     })
    /// }
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind). The handle stays.
    ///
    /// # Errors
    /// As [`join`](Self::join). That the runtime ended before the goroutine did is returned again by each later call.
    ///
    /// # Panics
    /// If an earlier call has taken the value, or the error of a goroutine that has ended; so does `join` then.
    #[track_caller]
    pub fn join_timeout(&mut self, timeout: Duration) -> Option<Result<T, JoinError>> {
        if !self.is_finished() {
            self.await_hook(limit_of(timeout));
        }
        self.take()
    }

    /// As [`join_timeout`](Self::join_timeout), until `deadline` at most.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind). The handle stays.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    ///
    /// # Panics
    /// As [`join_timeout`](Self::join_timeout).
    #[track_caller]
    pub fn join_deadline(&mut self, deadline: Instant) -> Option<Result<T, JoinError>> {
        if !self.is_finished() {
            self.await_hook(Some(Active::nanos(deadline)));
        }
        self.take()
    }

    /// Takes the outcome, if there is one, and leaves in its place that it was taken.
    #[track_caller]
    fn take(&mut self) -> Option<Result<T, JoinError>> {
        let outcome = match self.g.life().end()? {
            // SAFETY: the goroutine has ended and left an `Outcome<T>`, and the handle has the right to the outcome. The
            // space is empty in between, and what is put there needs no drop that the other would not have needed.
            End::Ended => unsafe {
                let outcome = self.g.task.outcome::<T>();
                self.g.task.fail(Failure::Taken);
                outcome
            },
            End::Left => Err(Failure::Shutdown),
        };
        Some(match outcome {
            Ok(value) => Ok(value),
            Err(failure) => Err(JoinError::of(failure)),
        })
    }

    /// Returns a channel that is closed when the goroutine has ended, and on which no message is sent: an arm of a
    /// [`select!`](crate::select) that waits for the end. Once the channel is closed, [`join`](Self::join) does not block. Does
    /// not block, but for the moment in which the end closes the channel of an earlier call. Each call returns a receiver of
    /// the same channel, or of one that is closed already.
    ///
    /// The receiver may outlive the handle. A goroutine whose handle is dropped goes on, and its end closes the channel.
    /// A later `join` of this goroutine waits for the channel; a dump shows it as "join", as ever.
    ///
    /// ```
    /// use gmp::{chan, select};
    /// use std::time::Duration;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let answer = unsafe {
    ///     gmp::run(|| {
    ///         let mut worker = gmp::go(|| 6 * 7);
    ///         let stop = chan::after(Duration::from_secs(60));
    ///         select! {
    ///             recv(worker.done()) -> _ => worker.join().ok(),
    ///             recv(stop) -> _ => None,
    ///         }
    ///     })
    /// };
    /// assert_eq!(answer, Some(42));
    /// ```
    pub fn done(&mut self) -> Receiver<()> {
        self.announce()
    }

    /// `done`, for the handle's owner, which does not wait.
    #[cold]
    pub(crate) fn announce(&self) -> Receiver<()> {
        let mut announcement = self.take_announcement();
        let done = announcement.done.get_or_insert_with(chan::signal).clone();
        if let Err(announcement) = self.leave(announcement) {
            unless!(EndHookForgotten, announcement.act());
        }
        done
    }

    /// Takes the hook back that an earlier call has left, or makes another. For the handle's owner, which does not wait.
    fn take_announcement(&self) -> Box<Announcement> {
        let life = self.g.life();
        // While the end calls the hook it reads the cell, where the next one is to be left. Afterwards the hook's channel is
        // closed: before that of the next one.
        let left = life.has_hook_or_calls();
        mutant!(HookWrittenAtTheEnd: let left = life.has_hook());
        let hook = left.then(|| self.g.take_hook_back()).flatten();
        // SAFETY: the hook is an `Announcement` out of a box, and this caller's.
        hook.map_or_else(Announcement::new, |hook| unsafe { Announcement::of(hook) })
    }

    /// Leaves the hook for the end of the goroutine. If that has come the hook is the caller's again, which acts in its place.
    fn leave(&self, announcement: Box<Announcement>) -> Result<(), Box<Announcement>> {
        let hook = announcement.leak();
        if self.g.leave_hook(hook, self.g.life()) {
            return Ok(());
        }
        // SAFETY: `leak` has made the hook, which is still this caller's.
        Err(unsafe { Announcement::of(hook) })
    }

    /// The handle goes: no joiner is to be woken at the end of the goroutine.
    #[cold]
    fn forget_waker(&self) {
        mutant!(EndHookKeepsItsWaker: return);
        let mut announcement = self.take_announcement();
        let waker = announcement.waker.take();
        if announcement.done.is_some()
            && let Err(announcement) = self.leave(announcement)
        {
            announcement.act();
        }
        task::discard::<Active>(waker);
    }

    pub(crate) fn g(&self) -> GRef<Active> {
        self.g
    }

    /// Waits for the end, and leaves the outcome where it is. A caller that was unwound out of this does not wait
    /// again.
    pub(crate) fn wait(&self, how: How) -> (End, Life) {
        let mut life = self.g.life();
        if life.end().is_none() {
            if life.has_hook() {
                return self.wait_for_the_hook(how);
            }
            let mut wait = Wait::begin();
            let (g, record) = (self.g, wait.waiter());
            life = match wait.park(how, || g.wait_for_end(&raw const record, life)) {
                Woke::Interrupted(why) => match g.wait_no_more() {
                    // Where both end with their runtime, that is no news for the caller.
                    life if why != Interrupt::Shutdown && life.end().is_some() => life,
                    _ => why.throw::<Active>(),
                },
                _ => g.life(),
            };
        }
        (life.end().expect("wait: woken before the goroutine ended"), life)
    }

    /// As `wait`, where the channel of `done` stands in the joiner's place: the wait there has no limit, and unwinds.
    #[cold]
    fn wait_for_the_hook(&self, how: How) -> (End, Life) {
        debug_assert!(
            how.ends == OnInterrupt::Unwinding && how.until.is_none(),
            "wait_for_the_hook: it waits in one way, and not {:?} until {:?}",
            how.ends,
            how.until
        );
        self.await_hook(None);
        let life = self.g.life();
        (life.end().expect("wait: the channel was closed before the goroutine ended"), life)
    }

    /// Waits until the channel of `done` is closed, at most until `limit`.
    fn await_hook(&self, limit: Option<Nanos>) {
        self.announce().chan().expect("await_hook: a channel that ends").await_end(limit);
    }

    /// Returns `true` if `join` would return at once. Does not block.
    pub fn is_finished(&self) -> bool {
        self.g.life().end().is_some()
    }

    /// Returns the goroutine's number, unique within the runtime.
    pub fn id(&self) -> GoroutineId {
        GoroutineId(self.g.id())
    }
}

/// The end of the goroutine as a future, which any task may poll, on goroutines ([`block_on`](crate::block_on)), on plain
/// threads and under other executors; a poll blocks nothing, and the task that has polled last is woken. The output is what
/// [`join`](JoinHandle::join) returns; when the runtime ends first, an error.
///
/// The future is the handle itself. `handle.await` consumes the handle, and a future that is dropped so detaches the
/// goroutine. `(&mut handle).await` keeps the handle: what is dropped there, as in a `select!` of futures, is the borrow
/// alone, and the handle may be awaited, or joined, later.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let answer = gmp::go(|| 6 * 7);
///         let panics = gmp::go(|| panic!("no answer"));
///         let (answer, panics) = gmp::block_on(async { (answer.await, panics.await) });
///         assert_eq!(answer.unwrap(), 42);
///         assert!(panics.unwrap_err().is_panic());
///     })
/// }
/// ```
///
/// # Panics
/// If an earlier poll was ready, or a call of [`join_timeout`](JoinHandle::join_timeout) has taken the outcome.
impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    #[track_caller]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(outcome) = this.take() {
            return Poll::Ready(outcome);
        }
        // Foreign code clones the waker, and may panic: before the hook is taken back, which may have a channel to close.
        let waker = cx.waker().clone();
        let mut announcement = this.take_announcement();
        mutant!(EndHookKeepsTheOldWaker: let waker = announcement.waker.take().unwrap_or(waker));
        let before = announcement.waker.replace(waker);
        let left = this.leave(announcement);
        task::discard::<Active>(before);
        let Err(mut announcement) = left else { return Poll::Pending };
        // The goroutine has ended meanwhile.
        task::discard::<Active>(announcement.waker.take());
        announcement.act();
        this.take().map_or(Poll::Pending, Poll::Ready)
    }
}

/// What the end of a goroutine does for those that wait by [`JoinHandle::done`], or by a future.
#[repr(C)]
struct Announcement {
    hook: EndHook,
    /// The channel of `done`, to be closed.
    done: Option<Receiver<()>>,
    /// The waker of the task that has polled last.
    waker: Option<Waker>,
}

impl Announcement {
    fn new() -> Box<Self> {
        Box::new(Announcement { hook: EndHook::new(Self::run), done: None, waker: None })
    }

    fn leak(self: Box<Self>) -> *const EndHook {
        Box::into_raw(self).cast_const().cast()
    }

    /// # Safety
    /// `leak` has made the hook, which is the caller's.
    unsafe fn of(hook: *const EndHook) -> Box<Self> {
        // SAFETY: by this function's contract.
        unsafe { Box::from_raw(hook.cast_mut().cast()) }
    }

    /// # Safety
    /// As [`EndHook::run`], for a hook that `leak` has made.
    unsafe fn run(hook: *const EndHook) {
        // SAFETY: by this function's contract.
        unsafe { Self::of(hook) }.act();
    }

    /// The goroutine has ended.
    fn act(self) {
        let Announcement { done, waker, .. } = self;
        let (mut woken, mut readied) = (Woken::new(), Readied::new());
        if let Some(done) = done {
            done.shut_and_tell(&mut woken);
        }
        woken.ready_with(&mut readied);
        readied.call_wakers_elsewhere();
        if let Some(waker) = waker {
            // Not by this thread: foreign code that polls the handle waits until this hook is over.
            unless!(EndHookWakesNoTask, task::wake_elsewhere::<Active>(waker));
        }
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        let life = g::look_for_drop(self.g);
        if life.has_hook() {
            self.forget_waker();
        }
        g::give_handle_back(self.g, false, life);
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("id", &self.g.id()).finish_non_exhaustive()
    }
}

/// Why [`JoinHandle::join`] returns no value.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let failing = gmp::go(|| { std::panic::resume_unwind(Box::new("no")) });
///         let leaving = gmp::go(|| { gmp::goexit() });
///         assert!(failing.join().unwrap_err().is_panic());
///         assert!(leaving.join().unwrap_err().is_goexit());
///     })
/// }
/// ```
pub struct JoinError(Failure);

// SAFETY: a `&JoinError` only tells the kind of the error; the panic's payload comes out by value alone.
unsafe impl Sync for JoinError {}

impl JoinError {
    #[track_caller]
    fn of(failure: Failure) -> Self {
        assert!(
            !matches!(failure, Failure::Taken),
            "join: an earlier join with a limit has taken the outcome"
        );
        JoinError(failure)
    }

    /// Returns `true` if the goroutine was [aborted](crate::AbortHandle::abort), and has ended because of that.
    pub fn is_aborted(&self) -> bool {
        matches!(self.0, Failure::Aborted)
    }

    /// Returns `true` if the goroutine panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self.0, Failure::Panic(_))
    }

    /// Returns `true` if the goroutine called [`goexit`](crate::goexit).
    pub fn is_goexit(&self) -> bool {
        matches!(self.0, Failure::Goexit)
    }

    /// Returns `true` if the runtime ended before the goroutine did: the goroutine never started, was unwound where it was
    /// parked, or was left there. This is known at the latest when the [shutdown](crate::Runtime::shutdown_timeout) has
    /// returned.
    pub fn is_shutdown(&self) -> bool {
        matches!(self.0, Failure::Shutdown)
    }

    /// Returns the panic's payload, for [`std::panic::resume_unwind`].
    ///
    /// # Panics
    /// If the goroutine did not panic.
    #[track_caller]
    pub fn into_panic(self) -> Box<dyn Any + Send> {
        match self.0 {
            Failure::Panic(payload) => payload,
            Failure::Goexit => panic!("into_panic: the goroutine did not panic, it called goexit"),
            Failure::Shutdown => panic!("into_panic: the goroutine did not panic, its runtime ended"),
            Failure::Aborted => panic!("into_panic: the goroutine did not panic, it was aborted"),
            Failure::Taken => unreachable!("into_panic: no error is made of this"),
        }
    }

    fn message(&self) -> Option<&str> {
        let Failure::Panic(payload) = &self.0 else { return None };
        payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0, self.message()) {
            (Failure::Shutdown, _) => f.write_str("the runtime ended before the goroutine did"),
            (Failure::Goexit, _) => f.write_str("the goroutine called goexit"),
            (Failure::Aborted, _) => f.write_str("the goroutine was aborted"),
            (Failure::Taken, _) => f.write_str("the value was taken"),
            (Failure::Panic(_), Some(message)) => write!(f, "the goroutine panicked: {message}"),
            (Failure::Panic(_), None) => f.write_str("the goroutine panicked"),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinError({self})")
    }
}

impl std::error::Error for JoinError {}

/// Of kind `Other`, with the [`JoinError`] inside.
///
/// ```
/// use std::{fs, io};
///
/// fn read() -> io::Result<String> {
///     gmp::go(|| fs::read_to_string("/proc/self/comm")).join()?
/// }
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// assert!(unsafe { gmp::run(read) }.is_ok());
/// ```
impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> Self {
        io::Error::other(error)
    }
}
