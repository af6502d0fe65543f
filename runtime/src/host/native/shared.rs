//! The values of the process (`sched/process.rs`), and its calls that are made aside (`aside.rs`).
//!
//! A forked child that never calls exec has a copy of the parent's values, but neither the threads nor the runtimes of which
//! they tell: a timer that no runtime runs would wait for the parent's timer thread, and a call for the parent's thread aside.
//! So the child begins with new values. The copy stays, as the child's memory may refer to it.

use super::aside::{self, Aside};
use super::{Native, thread};
use crate::sched::Shared;
use crate::sched::watch::deadlock::Runtimes;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr};
use std::sync::{Mutex, PoisonError};

struct Values {
    shared: Shared<Native>,
    aside: Aside,
}

static VALUES: AtomicPtr<Values> = AtomicPtr::new(ptr::null_mut());
/// Whether new values are to be made: before the first use, and in a forked child.
static ARE_OLD: AtomicBool = AtomicBool::new(true);

extern "C" fn in_child() {
    // Relaxed: the child has this thread alone.
    ARE_OLD.store(true, Relaxed);
    thread::forget_starts();
}

#[inline]
fn values() -> &'static Values {
    // Acquire: partner `make`.
    if ARE_OLD.load(Acquire) {
        make();
    }
    // SAFETY: there are values, as ARE_OLD says, and they are never freed. Relaxed: ordered by the load above.
    unsafe { &*VALUES.load(Relaxed) }
}

#[inline]
pub(super) fn shared() -> &'static Shared<Native> {
    &values().shared
}

/// Returns the values if they were made in this process. A signal handler may call this.
pub(super) fn shared_if_made() -> Option<&'static Shared<Native>> {
    // Acquire: partner `make`.
    (!ARE_OLD.load(Acquire)).then(shared)
}

pub(super) fn aside() -> &'static Aside {
    &values().aside
}

#[cold]
fn make() {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // Relaxed, here and below: ordered by the lock.
    if !ARE_OLD.load(Relaxed) {
        return;
    }
    // SAFETY: null, or values that are never freed.
    let before = unsafe { VALUES.load(Relaxed).as_ref() };
    if before.is_none() {
        // Refused for want of memory alone: then a forked child has the parent's values.
        // SAFETY: the function may be called in a child.
        let _refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
    let shared = Shared::new(Some(Runtimes::default()), before.map(|before| &before.shared));
    VALUES.store(Box::leak(Box::new(Values { shared, aside: Aside::new(aside::PATIENCE) })), Relaxed);
    // Release: partners `values` and `shared_if_made`.
    ARE_OLD.store(false, Release);
}
