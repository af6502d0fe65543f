//! Values that are nearly always dropped by mistake if they are unused: the compiler says so.

#![deny(unfulfilled_lint_expectations)]

use gmp::chan::{self, broadcast, watch};
use gmp::context::Context;
use gmp::net::{DialConfig, ListenConfig};
use gmp::sync::{Barrier, ErrGroup, Mutex, RwLock, Semaphore};
use std::sync::Arc;
use std::time::{Duration, Instant};

macro_rules! are_warned_of {
    ($($dropped:expr;)*) => {
        $(
            #[expect(unused_must_use, reason = "this is the property")]
            {
                $dropped;
            }
        )*
    };
}

/// Fails to compile when the compiler does not warn of one of these.
#[test]
fn values_that_must_be_used_are_warned_of() {
    const MS: Duration = Duration::from_millis(1);
    let (permits, mutex, lock) = (Semaphore::new(1), Arc::new(Mutex::new(0)), Arc::new(RwLock::new(0)));
    let (context, _cancel) = Context::background().with_cancel();
    let group = ErrGroup::<()>::new();
    are_warned_of! {
        gmp::Builder::new().name("a");
        DialConfig::new();
        ListenConfig::new().backlog(1);
        permits.try_acquire(1);
        mutex.try_lock();
        mutex.try_lock_arc_for(MS);
        lock.try_read_until(Instant::now());
        lock.try_upgradable_read();
        lock.try_write_arc();
        context.with_cancel();
        context.with_timeout(MS);
        context.with_deadline_cause(Instant::now(), "late");
        context.with_value(1);
        context.with_priority(gmp::Priority::Low);
        context.without_cancel();
        chan::bounded::<u32>(1);
        chan::unbounded::<u32>();
        chan::after(MS);
        chan::tick(MS);
        broadcast::channel::<u32>(1);
        watch::channel(1);
        group.wait_timeout(MS);
        Barrier::new(1).wait_timeout(MS);
        group.wait_async();
    }
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    unsafe {
        gmp::run(move || {
            are_warned_of! {
                group.try_go(|| Ok(()));
                gmp::go(|| ()).join_timeout(MS);
            }
        });
    }
}
