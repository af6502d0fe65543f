//! Synchronization: locks, condition variables, counters, for goroutines and plain threads alike.
//!
//! A call that has to wait parks the goroutine, and the thread runs others; on a plain thread the call blocks the
//! thread. Goroutines and plain threads may share every type here. The names and signatures are those of `parking_lot`
//! ([`Mutex`], [`RwLock`], [`Condvar`]), of std ([`Once`], [`OnceLock`], [`LazyLock`], [`Barrier`]), or of Go's `sync`
//! and `x/sync`. Guards may be held across calls that park, and may be dropped on another thread.
//!
//! [`Mutex`] and [`RwLock`] are types of their own, as their waits may be ended from outside, and those of `lock_api`'s locks
//! must not; [`ReentrantMutex`] and [`FairMutex`] are `lock_api`'s over the locks in [`raw`]. `parking_lot`'s feature `serde`
//! is not here. [`Once`] is std's, and so are [`OnceState::is_poisoned`], which `parking_lot` calls `poisoned`, and what
//! `Debug` prints.
//!
//! A call that waits has a twin that a task of any executor can await: [`Mutex::lock_async`], say. [`futures`] has the
//! types that these twins return.
//!
//! A goroutine that its runtime leaves behind in a wait queue does not hold up the other waiters.

mod arc_guard;
mod barrier;
mod condvar;
mod err_group;
mod event;
pub mod futures;
mod guard;
mod lazy_lock;
mod mutex;
mod once;
mod once_lock;
mod pool;
#[cfg(not(gmp_loom))]
pub mod raw;
mod raw_mutex;
mod raw_rwlock;
mod rwlock;
mod semaphore;
mod single_flight;
mod token;
mod wait_group;
pub(crate) mod wait_queue;

pub use arc_guard::{ArcMutexGuard, ArcRwLockReadGuard, ArcRwLockUpgradableReadGuard, ArcRwLockWriteGuard};
pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use err_group::ErrGroup;
pub use event::Event;
pub use lazy_lock::LazyLock;
pub use mutex::{MappedMutexGuard, Mutex, MutexGuard};
pub use once::{Once, OnceState};
pub use once_lock::OnceLock;
pub use pool::Pool;
pub use rwlock::{
    MappedRwLockReadGuard, MappedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard,
    RwLockWriteGuard,
};
pub use semaphore::{
    AcquireContextError, AcquireError, AcquireTimeoutError, OwnedSemaphorePermit, Semaphore, SemaphorePermit,
    TryAcquireError,
};
pub use single_flight::SingleFlight;
pub(crate) use token::Token;
pub use wait_group::WaitGroup;

#[cfg(not(gmp_loom))]
pub use raw::types::{
    FairMutex, FairMutexGuard, MappedFairMutexGuard, MappedReentrantMutexGuard, ReentrantMutex,
    ReentrantMutexGuard,
};

use std::panic::{RefUnwindSafe, UnwindSafe};

/// For types that guard no data of the user's, which an unwinding could leave half changed.
macro_rules! unwind_safe {
    ($($name:ident),+) => {
        $(
            impl UnwindSafe for $name {}
            impl RefUnwindSafe for $name {}
        )+
    };
}

unwind_safe!(Barrier, Condvar, Event, Once, Semaphore, WaitGroup);
impl<E> UnwindSafe for ErrGroup<E> {}
impl<E> RefUnwindSafe for ErrGroup<E> {}
impl<T: UnwindSafe> UnwindSafe for OnceLock<T> {}
impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for OnceLock<T> {}
