//! Goroutines that may borrow: [`scope`] waits for all that were started in it.
//!
//! ```text
//!   child                                          parent
//!
//!   value, or panic                                body: returns, panics, exits, or is interrupted
//!   its value is dropped, or joined                waits until the count is zero
//!   counts down; the last one wakes the parent     continues as the body ended
//! ```
//! The count rises before the child is spawned, and falls when neither the closure nor the value of the child can touch what
//! the child borrows any more. So the value carries the child's share of the count ([`Counted`]): the count falls when the
//! goroutine or the owner of the handle has dropped the value, or when `join` or an await has handed it out.
//!
//! The parent's wait is never interrupted. When the runtime ends, children are unwound before the parent, which is unwound as
//! it comes out of the wait. A child that is left parked keeps its share of the count, and the parent, which belongs to the
//! same runtime, never resumes: what they borrow is never freed.

use crate::chan::Receiver;
use crate::goroutine::own_frame::{caught, throw_again};
use crate::goroutine::{self, Affinity, Builder, GoroutineId, JoinError, JoinHandle};
use crate::host::Active;
use crate::m::M;
use crate::prim::{Arc, AtomicBool, AtomicU32, Mutex, Rank, Relaxed, Weak};
use crate::runtime::priority::Priority;
use crate::sched::Sched;
use crate::sched::park::{Commit, WaitReason};
use crate::wait::interrupt::{self, OnInterrupt};
use crate::wait::waiter::{How, Wait, Waiter};
use std::fmt;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Runs `f`, which may start goroutines that borrow what lives longer than this call, and returns the value of `f` when
/// all of these goroutines have ended. [`std::thread::scope`] for goroutines. Blocks the goroutine.
///
/// The call waits for all of them however `f` ends: also if `f` panics, calls [`goexit`](crate::goexit), or is unwound by the
/// end of a [`Context`](crate::context::Context) that covers the call. That wait can't be interrupted. When the runtime ends,
/// the children are unwound before the calling goroutine; if a child can't be unwound, the parent isn't either.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let sum = unsafe {
///     gmp::run(|| {
///         let numbers = [1, 2, 3, 4];
///         gmp::scope(|s| {
///             let halves = numbers.chunks(2).map(|half| s.go(move || half.iter().sum::<i32>()));
///             halves.collect::<Vec<_>>().into_iter().map(|half| half.join().unwrap()).sum::<i32>()
///         })
///     })
/// };
/// assert_eq!(sum, 10);
/// ```
///
/// # Unwinds
/// When a wait of `f` is ended from outside, and when the runtime ends; see
/// [`migration`](crate::migration#what-may-unwind). In each case after all goroutines of the scope have ended.
///
/// # Panics
/// With the panic of `f`. If `f` did not panic: if a goroutine of the scope panicked and was not joined. Outside of a
/// goroutine.
#[track_caller]
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let Some(g) = M::<Active>::current().and_then(M::g) else {
        panic!("scope: not called on a goroutine; a thread has std::thread::scope, or Runtime::run");
    };
    let children = Arc::new(Children {
        sched: g.home().clone(),
        count: Mutex::new(Rank::Scope, Count { alive: 0, parent: None }),
        panicked: AtomicBool::new(false),
    });
    let scope = Scope { children: Arc::clone(&children), scope: PhantomData, env: PhantomData };
    let result = caught(|| f(&scope));
    children.wait();
    match result {
        Err(payload) => throw_again(payload),
        // Relaxed: set before the count fell to zero, which was read under the count's lock.
        Ok(_) if children.panicked.load(Relaxed) => panic!("a scoped goroutine panicked"),
        Ok(value) => {
            // The children may have been unwound, with work undone that the caller relies on.
            if Sched::<Active>::current().is_some_and(Sched::is_ending) {
                interrupt::end_here::<Active>();
            }
            value
        }
    }
}

/// A scope, in which goroutines are started that may borrow values from outside of the scope; see [`scope`].
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let numbers = [1, 2, 3, 4];
///         let sum = gmp::scope(|scope| {
///             let halves = [&numbers[..2], &numbers[2..]];
///             halves.map(|half| scope.go(|| half.iter().sum::<i32>())).map(|half| half.join().unwrap())
///         });
///         assert_eq!(sum, [3, 7]);
///     })
/// }
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    children: Arc<Children>,
    /// Invariant, as in std: otherwise `'scope` could shrink, and a child could borrow from the scope's body.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a goroutine of this scope, in the scope's runtime. Does not block. Goroutines of the scope may start more.
    ///
    /// # Panics
    /// When the runtime of the scope has ended, which a plain thread that was handed the scope may find; when the goroutine can
    /// get no stack, as [`go`](crate::go).
    #[track_caller]
    pub fn go<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        goroutine::accepted("Scope::go", self.try_go(f))
    }

    /// As `go`, with an error where `go` panics; `f` is dropped then.
    #[track_caller]
    pub(crate) fn try_go<F, T>(&'scope self, f: F) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        self.start(Builder::default(), Location::caller(), f)
    }

    /// Starts the goroutine that the builder describes.
    pub(super) fn start<F, T>(
        &'scope self,
        asked: Builder,
        site: &'static Location<'static>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let Some(sched) = self.children.sched.upgrade() else {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the runtime of the scope has ended"));
        };
        self.children.count.lock().alive += 1;
        let fate = Arc::new(Fate(AtomicU32::new(0)));
        let child = ChildCount(Arc::clone(&self.children));
        let job = Job { f, child, fate: Arc::clone(&fate) };
        // SAFETY: what `f` and its value borrow outlives 'scope. That lifetime ends when the scope's body and the parent's wait
        // are over, and the wait ends only when the child was counted off, after `f` and the value are gone.
        let handle = unsafe { goroutine::spawn_in_unchecked(&sched, asked, site, move || job.run()) }?;
        Ok(ScopedJoinHandle {
            handle: Some(handle),
            fate,
            children: Arc::clone(&self.children),
            scope: PhantomData,
        })
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alive = self.children.count.lock().alive;
        f.debug_struct("Scope").field("alive", &alive).finish_non_exhaustive()
    }
}

/// The right to wait for a goroutine of a [`Scope`] and to take its value. Dropping the handle leaves both to the
/// scope.
///
/// The value may borrow what the scope's goroutines borrow, so the scope waits until the value is dropped or taken. If the
/// handle is forgotten ([`std::mem::forget`]), neither happens, and [`scope`] waits for ever.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let words = vec!["one".to_owned(), "two".to_owned()];
///         let lengths = gmp::scope(|scope| {
///             let counts = scope.go(|| words.iter().map(String::len).sum::<usize>());
///             let fails = scope.go(|| assert!(words.is_empty()));
///             assert!(fails.join().unwrap_err().is_panic());
///             counts.join().unwrap()
///         });
///         assert_eq!(lengths, 6);
///     })
/// }
/// ```
pub struct ScopedJoinHandle<'scope, T> {
    /// `Some` until a join, or a poll, has returned the outcome.
    handle: Option<JoinHandle<Counted<T>>>,
    fate: Arc<Fate>,
    children: Arc<Children>,
    scope: PhantomData<&'scope ()>,
}

/// The message of a call after an earlier one has returned the outcome.
const TAKEN: &str = "ScopedJoinHandle: an earlier join with a limit, or a poll, has taken the outcome";

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits until the goroutine has ended, and returns the goroutine's value. Blocks the calling goroutine, or the
    /// plain thread.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`JoinHandle::join`].
    ///
    /// # Panics
    /// If [`join_timeout`](Self::join_timeout), [`join_deadline`](Self::join_deadline) or a poll has returned the outcome.
    #[track_caller]
    pub fn join(mut self) -> Result<T, JoinError> {
        let handle = self.handle.take().expect(TAKEN);
        // If `join` unwinds, the drop of `left` marks a panic of the goroutine, if there is one, as unjoined.
        let left = Unjoined(&self.fate, &self.children);
        let result = handle.join();
        std::mem::forget(left);
        result.map(|counted| counted.value)
    }

    /// As [`join`](Self::join), for at most `timeout`. Returns `None` if the time has passed; the goroutine runs on. The handle
    /// stays, and the next call waits anew.
    ///
    /// A panic counts as joined once a call has returned it. A handle that is dropped after `None` leaves the goroutine, and
    /// its panic, to the scope.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (words, told) = (["one", "two"], gmp::sync::Event::new());
    ///         gmp::scope(|scope| {
    ///             let mut worker = scope.go(|| {
    ///                 told.wait();
    ///                 words.len()
    ///             });
    ///             assert!(worker.join_timeout(Duration::from_millis(1)).is_none());
    ///             told.notify_one();
    ///             assert_eq!(worker.join_timeout(Duration::from_secs(60)).unwrap().unwrap(), 2);
    ///         })
    ///     })
    /// }
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind). The handle stays.
    ///
    /// # Errors
    /// As [`JoinHandle::join`].
    ///
    /// # Panics
    /// As [`join`](Self::join).
    #[track_caller]
    #[must_use = "`None` says that the goroutine goes on, and `Some` how it has ended"]
    pub fn join_timeout(&mut self, timeout: Duration) -> Option<Result<T, JoinError>> {
        let outcome = self.handle_mut().join_timeout(timeout)?;
        Some(self.joined(outcome))
    }

    /// As [`join_timeout`](Self::join_timeout), until `deadline` at most.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind). The handle stays.
    ///
    /// # Errors
    /// As [`JoinHandle::join`].
    ///
    /// # Panics
    /// As [`join`](Self::join).
    #[track_caller]
    #[must_use = "`None` says that the goroutine goes on, and `Some` how it has ended"]
    pub fn join_deadline(&mut self, deadline: Instant) -> Option<Result<T, JoinError>> {
        let outcome = self.handle_mut().join_deadline(deadline)?;
        Some(self.joined(outcome))
    }

    /// Hands the outcome to the caller: the drop of this handle then tells the scope nothing.
    fn joined(&mut self, outcome: Result<Counted<T>, JoinError>) -> Result<T, JoinError> {
        self.handle = None;
        outcome.map(|counted| counted.value)
    }

    /// Returns a channel that is closed when the goroutine has ended, as [`JoinHandle::done`] does: an arm of a
    /// [`select!`](crate::select). Blocks only as that call does. The receiver may outlive the handle and the scope.
    ///
    /// ```
    /// use gmp::{chan, select};
    /// use std::time::Duration;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let words = ["one", "two"];
    ///         let count = gmp::scope(|scope| {
    ///             let mut worker = scope.go(|| words.len());
    ///             select! {
    ///                 recv(worker.done()) -> _ => worker.join().ok(),
    ///                 recv(chan::after(Duration::from_secs(60))) -> _ => None,
    ///             }
    ///         });
    ///         assert_eq!(count, Some(2));
    ///     })
    /// }
    /// ```
    ///
    /// # Panics
    /// As [`join`](Self::join).
    #[track_caller]
    pub fn done(&mut self) -> Receiver<()> {
        self.handle_mut().done()
    }

    /// Returns `true` if `join` would return at once, or if the outcome was returned already. Does not block.
    pub fn is_finished(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Returns the goroutine's number.
    ///
    /// # Panics
    /// As [`join`](Self::join).
    #[track_caller]
    pub fn id(&self) -> GoroutineId {
        self.handle.as_ref().expect(TAKEN).id()
    }

    /// Changes the goroutine's class, as [`JoinHandle::set_priority`] does. Does not block.
    pub fn set_priority(&self, class: Priority) -> bool {
        self.handle.as_ref().is_some_and(|handle| handle.set_priority(class))
    }

    /// Changes where the goroutine should run, as [`JoinHandle::set_affinity`] does. Does not block.
    pub fn set_affinity(&self, place: Affinity) -> bool {
        self.handle.as_ref().is_some_and(|handle| handle.set_affinity(place))
    }

    #[track_caller]
    fn handle_mut(&mut self) -> &mut JoinHandle<Counted<T>> {
        self.handle.as_mut().expect(TAKEN)
    }
}

/// The end of the goroutine as a future, as [`JoinHandle`]'s is. Dropping the handle leaves the goroutine to the scope.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let words = ["one", "three"];
///         let lengths = gmp::scope(|scope| {
///             let [first, second] = [0, 1].map(|at| scope.go({ let words = &words; move || words[at].len() }));
///             gmp::block_on(async { (first.await.unwrap(), second.await.unwrap()) })
///         });
///         assert_eq!(lengths, (3, 5));
///     })
/// }
/// ```
///
/// # Panics
/// If an earlier poll was ready, or a call of [`join_timeout`](ScopedJoinHandle::join_timeout) has returned the outcome.
impl<T> Future for ScopedJoinHandle<'_, T> {
    type Output = Result<T, JoinError>;

    #[track_caller]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let outcome = Pin::new(this.handle_mut()).poll(cx);
        outcome.map(|outcome| this.joined(outcome))
    }
}

impl<T> Drop for ScopedJoinHandle<'_, T> {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            let _unjoined = Unjoined(&self.fate, &self.children);
            drop(handle);
        }
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedJoinHandle").field("fate", &self.fate.0.load(Relaxed)).finish_non_exhaustive()
    }
}

/// The state that the scope and its goroutines share.
struct Children {
    sched: Weak<Sched<Active>>,
    count: Mutex<Count>,
    /// A goroutine has panicked, and will not be joined.
    panicked: AtomicBool,
}

struct Count {
    alive: usize,
    parent: Option<Waiter<Active>>,
}

impl Children {
    /// Blocks the parent until the count is zero.
    fn wait(&self) {
        loop {
            let mut wait = Wait::begin();
            let mut count = self.count.lock();
            if count.alive == 0 {
                drop(count);
                return wait.withdraw();
            }
            count.parent = Some(wait.waiter());
            let _down_to_zero =
                wait.park(How::new(WaitReason::Scope).ends(OnInterrupt::WithOthers), move || {
                    drop(count);
                    Commit::Park
                });
        }
    }
}

/// One child in the count. The drop counts down.
struct ChildCount(Arc<Children>);

impl Drop for ChildCount {
    fn drop(&mut self) {
        let mut count = self.0.count.lock();
        count.alive -= 1;
        let parent = if count.alive == 0 { count.parent.take() } else { None };
        drop(count);
        if let Some(parent) = parent {
            // This does nothing if the runtime has left the parent behind.
            parent.wake();
        }
    }
}

/// A value, and the child that is counted off once the value is gone. In this order.
struct Counted<T> {
    value: T,
    _count: ChildCount,
}

const PANICKED: u32 = 1;
const UNJOINED: u32 = 2;

/// Tells whether a goroutine has panicked, and whether the handle was dropped without a `join`. The caller of `add` that
/// completes the pair tells the scope.
struct Fate(AtomicU32);

impl Fate {
    fn add(&self, what: u32, children: &Children) {
        // Relaxed: of two `fetch_or`s of one word the later sees the earlier. The lock of the count publishes `panicked`.
        if (self.0.fetch_or(what, Relaxed) | what) == PANICKED | UNJOINED {
            children.panicked.store(true, Relaxed);
        }
    }
}

/// Its drop says that there will be no joiner.
struct Unjoined<'a>(&'a Fate, &'a Children);

impl Drop for Unjoined<'_> {
    fn drop(&mut self) {
        self.0.add(UNJOINED, self.1);
    }
}

/// The body of a scope's goroutine. A job that is dropped unrun is counted off when `f` is gone.
struct Job<F> {
    f: F,
    child: ChildCount,
    fate: Arc<Fate>,
}

impl<F> Job<F> {
    fn run<T>(self) -> Counted<T>
    where
        F: FnOnce() -> T,
    {
        let Job { f, child, fate } = self;
        match catch_unwind(AssertUnwindSafe(f)) {
            Ok(value) => Counted { value, _count: child },
            Err(payload) => {
                // A goexit is no panic.
                if !interrupt::is_interrupt(&*payload) {
                    fate.add(PANICKED, &child.0);
                }
                drop(child);
                resume_unwind(payload)
            }
        }
    }
}
