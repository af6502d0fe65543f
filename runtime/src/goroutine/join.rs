//! How a joiner learns of a goroutine's end: [`JoinHandle`], [`JoinError`].

use super::GoroutineId;
use crate::chan::{self, Receiver, Woken};
use crate::g::task::Failure;
use crate::g::{self, End, EndHook, GRef, Life};
use crate::host::{Active, Clock};
use crate::prim::hooks::*;
use crate::sched::park::WaitReason;
use crate::wait::interrupt::{Interrupt, OnInterrupt};
use crate::wait::task;
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

// SAFETY: the handle gives the joiner a `T` that another thread may have made, so `T` must be Send.
unsafe impl<T: Send> Send for JoinHandle<T> {}
// SAFETY: a shared reference gives no access to the `T`.
unsafe impl<T: Send> Sync for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    /// Returns the handle of a goroutine that was just made, whose value is a `T`.
    pub(crate) fn of(g: GRef<Active>) -> Self {
        JoinHandle { g, value: PhantomData }
    }

    /// Waits until the goroutine has ended, and returns the goroutine's value. Blocks the calling goroutine, or the plain
    /// thread. After `join` [`num_goroutines`](crate::num_goroutines) no longer counts the goroutine.
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
        let id = self.id();
        let this = ManuallyDrop::new(self);
        let outcome = match end {
            // SAFETY: the goroutine has ended and left an `Outcome<T>`; the handle's right to the outcome is used here, once,
            // and `give_handle_back` is told of that.
            End::Ended => unsafe { this.g.task.outcome::<T>() },
            End::Left => Err(Failure::Shutdown),
        };
        g::give_handle_back(this.g, end == End::Ended, life);
        match outcome {
            Ok(value) => Ok(value),
            Err(failure) => Err(JoinError::of(failure, id)),
        }
    }

    /// As [`join`](Self::join), for at most `timeout`. Returns `None` if the time has passed; the goroutine runs on. The handle
    /// stays, and the next call waits anew.
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
    /// As [`join`](Self::join). Each later call returns again that the runtime ended before the goroutine did.
    ///
    /// # Panics
    /// If an earlier call has taken the value, or the error of a goroutine that has ended; `join` panics then, too.
    #[must_use = "`None` says that the goroutine goes on, and `Some` how it has ended"]
    #[track_caller]
    pub fn join_timeout(&mut self, timeout: Duration) -> Option<Result<T, JoinError>> {
        if !self.is_finished() {
            self.await_hook(Some(Active::after(timeout)));
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
    #[must_use = "`None` says that the goroutine goes on, and `Some` how it has ended"]
    #[track_caller]
    pub fn join_deadline(&mut self, deadline: Instant) -> Option<Result<T, JoinError>> {
        if !self.is_finished() {
            self.await_hook(Some(Active::nanos(deadline)));
        }
        self.take()
    }

    /// Takes the outcome, if there is one, and leaves a mark that it was taken.
    #[track_caller]
    fn take(&mut self) -> Option<Result<T, JoinError>> {
        let outcome = match self.g.life().end()? {
            // SAFETY: the goroutine has ended and left an `Outcome<T>`, and the handle has the right to the outcome. The space
            // is empty in between, and a `Failure::Taken` needs no drop.
            End::Ended => unsafe {
                let outcome = self.g.task.outcome::<T>();
                self.g.task.fail(Failure::Taken);
                outcome
            },
            End::Left => Err(Failure::Shutdown),
        };
        Some(match outcome {
            Ok(value) => Ok(value),
            Err(failure) => Err(JoinError::of(failure, self.id())),
        })
    }

    /// Returns a channel that is closed when the goroutine has ended, and on which no message is sent: an arm of a
    /// [`select!`](crate::select) that waits for the end. Once the channel is closed, [`join`](Self::join) does not block.
    /// Blocks only for the moment in which the goroutine's end closes the channel of an earlier call. Each call returns a
    /// receiver of the same channel, or of one that is closed already.
    ///
    /// The receiver may outlive the handle. A goroutine whose handle is dropped runs on, and its end closes the channel. A
    /// later `join` of this goroutine waits for the channel; a dump still shows that wait as "join".
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

    /// As `done`, for an owner of the handle that does not wait meanwhile.
    #[cold]
    pub(crate) fn announce(&self) -> Receiver<()> {
        let mut announcement = self.take_announcement();
        let done = announcement.done.get_or_insert_with(chan::signal).clone();
        if let Err(announcement) = self.leave(announcement) {
            unless!(EndHookForgotten, announcement.act());
        }
        done
    }

    /// Takes back the hook that an earlier call has left, or makes another. For an owner of the handle that does not wait
    /// meanwhile.
    fn take_announcement(&self) -> Box<Announcement> {
        let life = self.g.life();
        // While the end calls the hook, it reads the cell in which the next hook is to be left: `take_hook_back` waits for
        // that. Then the channel of this hook is closed before that of the next one.
        let left = life.has_hook_or_calls();
        mutant!(HookWrittenAtTheEnd: let left = life.has_hook());
        let hook = left.then(|| self.g.take_hook_back()).flatten();
        // SAFETY: the hook is an `Announcement` out of a box, and belongs to this caller.
        hook.map_or_else(Announcement::new, |hook| unsafe { Announcement::of(hook) })
    }

    /// Leaves the hook for the end of the goroutine. If the goroutine has ended, returns the hook to the caller, which acts in
    /// the end's place.
    fn leave(&self, announcement: Box<Announcement>) -> Result<(), Box<Announcement>> {
        let hook = announcement.leak();
        if self.g.leave_hook(hook, self.g.life()) {
            return Ok(());
        }
        // SAFETY: `leak` has made the hook, which still belongs to this caller.
        Err(unsafe { Announcement::of(hook) })
    }

    /// The handle is dropped: the end of the goroutine wakes no joiner.
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
                    // If both goroutines end with their runtime, the caller is unwound and gets no outcome.
                    life if why != Interrupt::Shutdown && life.end().is_some() => life,
                    _ => why.throw::<Active>(),
                },
                _ => g.life(),
            };
        }
        (life.end().expect("wait: woken before the goroutine ended"), life)
    }

    /// As `wait`, by the channel of `done`, which takes the joiner's place: such a wait has no limit, and unwinds.
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
/// threads and under other executors; a poll does not block, and the task that has polled last is woken. The output is what
/// [`join`](JoinHandle::join) returns; an error if the runtime ends first.
///
/// The future is the handle itself. `handle.await` consumes the handle, and dropping that future detaches the goroutine. `(&mut
/// handle).await` keeps the handle: if that future is dropped, as in a `select!` of futures, only the borrow ends, and the
/// handle can be awaited or joined later.
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
        // Foreign code clones the waker, and might panic. So the clone comes before the hook is taken back, which may have a
        // channel to close.
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

/// What the end of a goroutine does for receivers of [`JoinHandle::done`], and for the task of a future.
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
    /// `leak` has made the hook, and the caller owns it.
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

    /// Closes the channel and wakes the task, once the goroutine has ended.
    fn act(self) {
        let Announcement { done, waker, .. } = self;
        if let Some(done) = done {
            let mut woken = Woken::new();
            done.shut_and_tell(&mut woken);
            woken.ready_elsewhere();
        }
        if let Some(waker) = waker {
            // Another thread calls the waker: foreign code in it that polls the handle waits until this hook is over.
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
pub struct JoinError {
    why: Failure,
    id: GoroutineId,
}

// SAFETY: a `&JoinError` gives a reference only to a payload that is a `&str` or a `String`, which are Sync: `message` asks for
// the type of the payload, which reads nothing of the payload. Any other payload leaves the error by value only.
unsafe impl Sync for JoinError {}

impl JoinError {
    #[track_caller]
    fn of(why: Failure, id: GoroutineId) -> Self {
        assert!(!matches!(why, Failure::Taken), "join: an earlier join with a limit has taken the outcome");
        JoinError { why, id }
    }

    /// Returns the number of the goroutine that has no value, unique within its runtime. This is the number of
    /// [`JoinHandle::id`](JoinHandle::id), which a [dump](crate::dump) and the message of the panic show, too.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let leaving = gmp::go(|| { gmp::goexit() });
    ///         let id = leaving.id();
    ///         assert_eq!(leaving.join().unwrap_err().id(), id);
    ///     })
    /// }
    /// ```
    pub fn id(&self) -> GoroutineId {
        self.id
    }

    /// Returns `true` if the goroutine was [aborted](crate::AbortHandle::abort), and has ended because of that.
    pub fn is_aborted(&self) -> bool {
        matches!(self.why, Failure::Aborted)
    }

    /// Returns `true` if the goroutine panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self.why, Failure::Panic(_))
    }

    /// Returns `true` if the goroutine called [`goexit`](crate::goexit).
    pub fn is_goexit(&self) -> bool {
        matches!(self.why, Failure::Goexit)
    }

    /// Returns `true` if the runtime ended before the goroutine did: the goroutine never started, was unwound where it was
    /// parked, or was left there. This is known at the latest when the [shutdown](crate::Runtime::shutdown_timeout) has
    /// returned.
    pub fn is_shutdown(&self) -> bool {
        matches!(self.why, Failure::Shutdown)
    }

    /// Returns the panic's payload, for [`std::panic::resume_unwind`].
    ///
    /// # Panics
    /// If the goroutine did not panic; [`try_into_panic`](Self::try_into_panic) returns the error then.
    #[track_caller]
    pub fn into_panic(self) -> Box<dyn Any + Send> {
        match self.why {
            Failure::Panic(payload) => payload,
            Failure::Goexit => panic!("into_panic: the goroutine did not panic, it called goexit"),
            Failure::Shutdown => panic!("into_panic: the goroutine did not panic, its runtime ended"),
            Failure::Aborted => panic!("into_panic: the goroutine did not panic, it was aborted"),
            Failure::Taken => unreachable!("into_panic: no error is made of this"),
        }
    }

    /// Returns the panic's payload, for [`std::panic::resume_unwind`].
    ///
    /// ```
    /// use std::panic::resume_unwind;
    ///
    /// /// Passes a panic on, and takes every other end for no value.
    /// fn value<T>(worker: gmp::JoinHandle<T>) -> Option<T> {
    ///     match worker.join().map_err(gmp::JoinError::try_into_panic) {
    ///         Ok(value) => Some(value),
    ///         Err(Ok(panic)) => resume_unwind(panic),
    ///         Err(Err(_ended_otherwise)) => None,
    ///     }
    /// }
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         assert_eq!(value(gmp::go(|| 42)), Some(42));
    ///         assert_eq!(value(gmp::go(|| -> u32 { gmp::goexit() })), None);
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// The error itself, if the goroutine did not panic.
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send>, JoinError> {
        match self.why {
            Failure::Panic(payload) => Ok(payload),
            why => Err(JoinError { why, ..self }),
        }
    }
}

/// Returns the text of a panic, if it has one.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Failure::Shutdown => f.write_str("the runtime ended before the goroutine did"),
            Failure::Goexit => f.write_str("the goroutine called goexit"),
            Failure::Aborted => f.write_str("the goroutine was aborted"),
            Failure::Taken => f.write_str("the value was taken"),
            Failure::Panic(payload) => match panic_text(&**payload) {
                Some(text) => write!(f, "the goroutine panicked: {text}"),
                None => f.write_str("the goroutine panicked"),
            },
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinError({self})")
    }
}

impl std::error::Error for JoinError {}

/// Makes an error of kind `Other`, with the [`JoinError`] inside.
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
