//! [`park`](crate::park) and [`Unparker`]: the building block of a wait in a program's own protocol.
//!
//! Each goroutine and each plain thread has one token (`sync/token.rs`), made when first needed. A goroutine keeps the token
//! among its `local!` variables, a plain thread in the host, so that models have a token for each of loom's threads.

use crate::host::{Active, Clock, Threads};
use crate::impls::{opaque, unwind_safe};
use crate::m::M;
use crate::prim::Arc;
use crate::sync::Token;
use std::any::Any;
use std::time::{Duration, Instant};

crate::local! {
    static TOKEN: Arc<Token> = Arc::new(Token::new());
}

/// Returns the caller's token.
#[track_caller]
fn token(call: &str) -> Arc<Token> {
    let token = if M::<Active>::current().and_then(M::g).is_some() {
        TOKEN.try_with(Arc::clone).ok()
    } else {
        let make = || -> Arc<dyn Any + Send + Sync> { Arc::new(Token::new()) };
        Active::thread_token(make).and_then(|token| token.downcast().ok())
    };
    match token {
        Some(token) => token,
        None => panic!("{call}: the goroutine or thread ends, and has dropped its token"),
    }
}

/// Blocks the calling goroutine, or the plain thread, until its token is there, and takes the token. Returns at once if the
/// token is there already. [`Unparker::unpark`] gives the token. Names and semantics are those of [`std::thread::park`].
///
/// There is at most one token for each goroutine and thread: two calls of `unpark` before a `park` end one `park`. A wait that
/// unwinds takes no token. There are no spurious wake-ups, but each owner of an [`Unparker`] may give the token for a reason of
/// its own, so a caller parks in a loop that checks the caller's condition. Writes before an `unpark` are visible after the
/// `park` that took its token.
///
/// `park` and `unpark` are in models as well (the module `model`, under the cfg `gmp_loom`), on goroutines and on
/// loom's threads: a protocol over `park` and loom's atomics is checked there, and ships with std's atomics.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering::{Acquire, Release}};
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let ready = Arc::new(AtomicBool::new(false));
///         let (theirs, waiter) = (Arc::clone(&ready), gmp::unparker());
///         gmp::go(move || {
///             theirs.store(true, Release);
///             waiter.unpark();
///         });
///         while !ready.load(Acquire) {
///             gmp::park();
///         }
///     })
/// }
/// ```
///
/// # Unwinds
/// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
///
/// # Panics
/// In a destructor of a `local!` or `thread_local!` variable that runs after the token was dropped. The same holds for the
/// other functions here.
#[track_caller]
#[doc(alias = "gopark")]
pub fn park() {
    token("park").park(None);
}

/// As [`park`], for at most `timeout`. Does not tell whether the token came: the caller checks the condition.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let begin = Instant::now();
/// gmp::park_timeout(Duration::from_millis(2));
/// assert!(begin.elapsed() >= Duration::from_millis(2));
/// gmp::unparker().unpark();
/// gmp::park_timeout(Duration::from_secs(3600));
/// ```
///
/// # Unwinds
/// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
///
/// # Panics
/// As [`park`].
#[track_caller]
pub fn park_timeout(timeout: Duration) {
    token("park_timeout").park(Some(Active::after(timeout)));
}

/// As [`park`], until `deadline` at most.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let deadline = Instant::now() + Duration::from_millis(2);
/// gmp::park_until(deadline);
/// assert!(Instant::now() >= deadline);
/// ```
///
/// # Unwinds
/// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
///
/// # Panics
/// As [`park`].
#[track_caller]
pub fn park_until(deadline: Instant) {
    token("park_until").park(Some(Active::nanos(deadline)));
}

/// Returns the [`Unparker`] of the calling goroutine, or the plain thread. Does not block.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let main = gmp::unparker();
///         gmp::go(move || main.unpark());
///         gmp::park();
///     })
/// }
/// ```
///
/// # Panics
/// As [`park`].
#[track_caller]
pub fn unparker() -> Unparker {
    Unparker(token("unparker"))
}

/// Gives a goroutine or plain thread its token, which ends its [`park`]; returned by [`unparker`]. An `Unparker` can be cloned
/// and sent; after the goroutine's end it does nothing.
///
/// ```
/// let (mine, clone) = (gmp::unparker(), gmp::unparker());
/// assert!(mine.same(&clone));
/// let theirs = std::thread::spawn(gmp::unparker).join().unwrap();
/// assert!(!mine.same(&theirs));
/// // That thread has ended: nothing happens.
/// theirs.unpark();
/// ```
#[derive(Clone)]
pub struct Unparker(Arc<Token>);

impl Unparker {
    /// Gives the token: the owner's present or next [`park`] ends. Does nothing if the token is there already. Does not block;
    /// can be called on goroutines and on plain threads.
    #[doc(alias = "goready")]
    pub fn unpark(&self) {
        self.0.unpark();
    }

    /// Returns `true` if both belong to the same goroutine or thread.
    pub fn same(&self, other: &Unparker) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

// An `Unparker` guards no user data that an unwinding could leave half changed.
unwind_safe!(Unparker);

opaque!(Unparker);
