//! The values of the process (`sched/process.rs`), its calls that are made aside (`aside.rs`), and the count of its starting
//! threads (`thread.rs`).
//!
//! A forked child that never calls exec has a copy of the parent's values, but neither the threads nor the runtimes that these
//! values describe: a timer that no runtime runs would wait for the parent's timer thread, and a call for the parent's thread
//! aside. So the child begins with new values. The copy stays, as the child's memory may refer to it.

use super::Native;
use super::aside::{self, Aside};
use crate::prim::capacity::LINGER;
use crate::sched::Shared;
use crate::sched::watch::deadlock::Runtimes;
use gmp_netpoll::ProcessMark;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicUsize};
use std::sync::{Mutex, PoisonError};

struct Values {
    shared: Shared<Native>,
    aside: Aside,
    /// How many threads are starting.
    starting: AtomicUsize,
    made_by: ProcessMark,
}

static VALUES: AtomicPtr<Values> = AtomicPtr::new(ptr::null_mut());

/// Returns the values if they were made in this process. A signal handler may call this.
#[inline]
fn made() -> Option<&'static Values> {
    // Acquire: partner `make`. SAFETY: null, or values that are never freed.
    let values = unsafe { VALUES.load(Acquire).as_ref() };
    values.filter(|values| values.made_by.is_of_this_process())
}

#[inline]
fn values() -> &'static Values {
    made().unwrap_or_else(make)
}

#[inline]
pub(super) fn shared() -> &'static Shared<Native> {
    &values().shared
}

/// Returns the values if they were made in this process. A signal handler may call this.
pub(super) fn shared_if_made() -> Option<&'static Shared<Native>> {
    made().map(|values| &values.shared)
}

pub(super) fn aside() -> &'static Aside {
    &values().aside
}

/// Returns the count of threads that are starting.
pub(super) fn starting() -> &'static AtomicUsize {
    &values().starting
}

#[cold]
fn make() -> &'static Values {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(made) = made() {
        return made;
    }
    // SAFETY: null, or values that are never freed. Relaxed: ordered by the lock, or copied from the parent.
    let parents = unsafe { VALUES.load(Relaxed).as_ref() };
    let values = Box::leak(Box::new(Values {
        shared: Shared::new(Some(Runtimes::default()), parents.map(|parents| &parents.shared)),
        aside: Aside::new(aside::PATIENCE, LINGER),
        starting: AtomicUsize::new(0),
        made_by: ProcessMark::of_this_process(),
    }));
    // Release: partner `made`.
    VALUES.store(values, Release);
    values
}
