//! Giving a goroutine a class: at its spawn, through its handle, and by itself.

use super::{Builder, JoinHandle, here};
use crate::host::Active;
use crate::m::M;
use crate::runtime::priority::Priority;

impl Builder {
    /// Sets the goroutine's class. A class other than `Normal` overrides [`fair`](Self::fair) and [`affinity`](Self::affinity):
    /// whenever the goroutine is ready, it stands in the queue of its class, which all Ps share. That costs the lock of that
    /// queue, where a `Normal` goroutine is put into a ring without a lock.
    ///
    /// ```
    /// use gmp::{Builder, Priority};
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let cleans = Builder::new().name("cleans up").priority(Priority::Background).go(gmp::priority);
    ///         assert_eq!(cleans.unwrap().join().unwrap(), Priority::Background);
    ///     })
    /// }
    /// ```
    pub fn priority(mut self, class: Priority) -> Self {
        self.class = class;
        self
    }

    /// Sets the goroutine's class to the current class of the caller: `priority(gmp::priority())`. Without this call a
    /// goroutine inherits no class.
    ///
    /// ```
    /// use gmp::{Builder, Priority};
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let classes = || {
    ///             let other = gmp::go(gmp::priority);
    ///             let same = Builder::new().inherit_priority().go(gmp::priority).unwrap();
    ///             (other.join().unwrap(), same.join().unwrap())
    ///         };
    ///         let low = Builder::new().priority(Priority::Low).go(classes).unwrap();
    ///         assert_eq!(low.join().unwrap(), (Priority::Normal, Priority::Low));
    ///     })
    /// }
    /// ```
    pub fn inherit_priority(self) -> Self {
        self.priority(priority())
    }
}

impl<T> JoinHandle<T> {
    /// Changes the goroutine's class. Returns `false` if the goroutine or its runtime has ended. Does not block.
    ///
    /// The class takes effect when the goroutine is next queued: a goroutine that is queued already keeps its place until it
    /// runs.
    ///
    /// ```
    /// use gmp::Priority;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (sender, receiver) = gmp::chan::bounded::<()>(0);
    ///         let worker = gmp::go(move || {
    ///             receiver.recv().unwrap();
    ///             gmp::priority()
    ///         });
    ///         assert!(worker.set_priority(Priority::High));
    ///         sender.send(()).unwrap();
    ///         assert_eq!(worker.join().unwrap(), Priority::High);
    ///     })
    /// }
    /// ```
    pub fn set_priority(&self, class: Priority) -> bool {
        let Some(sched) = self.g().home().upgrade() else { return false };
        if class != Priority::Normal {
            sched.use_classes();
        }
        self.g().set_class(class)
    }
}

/// Returns the class of the calling goroutine; [`Normal`](Priority::Normal) on a plain thread.
///
/// ```
/// assert_eq!(gmp::priority(), gmp::Priority::Normal);
/// ```
pub fn priority() -> Priority {
    M::<Active>::current().and_then(M::g).map_or(Priority::Normal, |g| g.class())
}

/// Changes the class of the calling goroutine, and returns the previous class. The change takes effect the next time that the
/// goroutine yields or parks. Does not block.
///
/// ```
/// use gmp::Priority;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         assert_eq!(gmp::set_priority(Priority::Low), Priority::Normal);
///         gmp::yield_now();
///         assert_eq!(gmp::set_priority(Priority::Normal), Priority::Low);
///     })
/// }
/// ```
///
/// # Panics
/// Outside of a goroutine.
#[track_caller]
pub fn set_priority(class: Priority) -> Priority {
    let sched = here("set_priority", "JoinHandle::set_priority");
    if class != Priority::Normal {
        sched.use_classes();
    }
    let g = M::<Active>::current().and_then(M::g).expect("set_priority: on a goroutine");
    let before = g.class();
    let _lives = g.set_class(class);
    before
}
