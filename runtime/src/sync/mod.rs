//! Synchronization: locks, condition variables, counters, for goroutines and plain threads alike.
//!
//! A call that has to wait parks the goroutine, and the thread runs others; on a plain thread the call blocks the
//! thread. Goroutines and plain threads may share every type here. The names and signatures are those of `parking_lot`
//! ([`Mutex`], [`RwLock`], [`Condvar`]), of std ([`Once`], [`OnceLock`], [`LazyLock`], [`Barrier`]), or of Go's `sync`
//! and `x/sync`. Guards may be held across calls that park, and may be dropped on another thread.
//!
//! [`Mutex`] and [`RwLock`] are types of their own, as their waits can be ended from outside, and those of `lock_api`'s locks
//! must not be; [`ReentrantMutex`] and [`FairMutex`] are `lock_api`'s over the locks in [`raw`]. `parking_lot`'s feature
//! `serde` is not here. [`Once`] follows std, and so do [`OnceState::is_poisoned`], which `parking_lot` calls `poisoned`, and
//! the text that `Debug` prints.
//!
//! # With a limit, and as a future
//!
//! Most calls that wait have variants with a limit, a duration or a point in time, and a variant that a task of any executor
//! can await; [`futures`] has the types that the latter return. The table has all of the waits:
//!
//! | the wait | with a limit | as a future |
//! | --- | --- | --- |
//! | [`Mutex::lock`], `lock_arc` | [`Mutex::try_lock_for`], `try_lock_until` and their like | [`Mutex::lock_async`], `lock_arc_async` |
//! | [`RwLock::read`], `write`, `upgradable_read`, `read_arc`, `write_arc` | [`RwLock::try_read_for`], `try_read_until` and their like | [`RwLock::read_async`] and its like |
//! | [`RwLock::upgradable_read_arc`], [`read_recursive`](RwLock::read_recursive), [`RwLockUpgradableReadGuard::upgrade`], `with_upgraded` | [`RwLockUpgradableReadGuard::try_upgrade_for`], `try_upgrade_until` and their like | – |
//! | [`Semaphore::acquire_guard`], `acquire_owned` | [`Semaphore::acquire_guard_timeout`], `acquire_guard_deadline` and their like | [`Semaphore::acquire_async`], `acquire_owned_async` |
//! | [`Semaphore::acquire`] | [`Semaphore::acquire_ctx`], by a context | [`Semaphore::acquire_async`], whose permit can be [forgotten](SemaphorePermit::forget) |
//! | [`Condvar::wait`], `wait_while` | [`Condvar::wait_for`], `wait_until`, `wait_while_for`, `wait_while_until` | – |
//! | [`Event::wait`], [`WaitGroup::wait`], [`ErrGroup::wait`], [`OnceLock::wait`], [`Barrier::wait`] | `wait_timeout`, `wait_deadline` of each | `wait_async` of each |
//! | [`Once::wait`], `wait_force` | –; a `OnceLock<()>` has | –; a `OnceLock<()>` has |
//! | calls that run their caller's closure, or wait for another caller's: [`Once::call_once`], [`OnceLock::set`], `get_or_init`, [`LazyLock::force`] and their like, [`SingleFlight::work`] | – | – |
//! | [`ErrGroup::go`] of a full group | –; [`try_go`](ErrGroup::try_go) does not wait | – |
//! | [`SingleFlight::forget`]; a guard that locks again (`bump`, `unlocked`) | – | – |
//! | the locks in [`raw`], and those made of them: [`FairMutex`], [`ReentrantMutex`] | `lock_api`'s `try_lock_for`, `try_lock_until` | – |
//!
//! A limit of these calls, and the drop of such a future, end a wait in every configuration.
//! [`time::timeout`](crate::time::timeout) and [`Context::run`](crate::context::Context::run) end any of the waits, except for
//! those of [`raw`], but by unwinding: so neither with `panic = "abort"` nor with the [`generator`
//! backend](crate::migration#the-generator-backend).
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

use crate::impls::unwind_safe;
use std::panic::{RefUnwindSafe, UnwindSafe};

unwind_safe!(Barrier, Condvar, [E] ErrGroup<E>, Event, Once, Semaphore, WaitGroup);
impl<T: UnwindSafe> UnwindSafe for OnceLock<T> {}
impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for OnceLock<T> {}
