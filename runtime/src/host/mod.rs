//! The line between the scheduler and the world: everything that the scheduler asks of an operating system, besides the atomics
//! and locks of `prim`.
//!
//! Above the line are the files that loom runs as they are (`CHECKED` in `tests/sources/facade.rs`): they name no threads,
//! clocks, statics, thread-locals or random sources. Below the line there are no decisions of the scheduler. [`Threads`],
//! [`Clock`], [`Poll`], [`Stacks`] and [`Process`] are the lists of what crosses, and know nothing of what stands above;
//! [`Host`] is their sum. The scheduler is written for any `H: Host`; the public types are bound to [`Active`], which is the
//! operating system, or, under the cfg `gmp_loom`, the model of an operating system.
//!
//! Below the line stand `native/` and `model/`, the halves of `prim` (`prim/native.rs` and `prim/beds.rs`, or `prim/model.rs`),
//! and `stack/`. So do `net/sys.rs` and `os/`, which make the system calls of the public types, and of which models run
//! `os/signal/pending.rs` alone.
//!
//! Every failure of the world is a value that comes up through these traits.

mod clock;
mod frames;
#[cfg(gmp_loom)]
pub mod model;
#[cfg(not(gmp_loom))]
pub(crate) mod native;
mod poll;
mod process;
mod stacks;
mod threads;

pub(crate) use clock::Clock;
pub(crate) use frames::Frames;
pub(crate) use poll::{Broken, Interest, Poll, PollWait};
pub(crate) use process::{Answer, Asked, Bar, Process, Symbol};
pub(crate) use stacks::{EXIT, Stack, Stacks};
pub(crate) use threads::{Interrupts, Lack, Threads};

use crate::sched::Shared;
use std::io;

/// What the scheduler asks of the world below: the sum of these traits. The process's one instance of the scheduler's
/// state (`Process::Shared`) is the scheduler's own type.
pub(crate) trait Host:
    Threads + Clock + Poll + Stacks + Process<Shared = Shared<Self>> + Send + Sync
{
}

/// The host that the public types run on.
#[cfg(not(gmp_loom))]
pub(crate) type Active = crate::host::native::Native;
/// The host that the public types run on.
#[cfg(gmp_loom)]
pub(crate) type Active = crate::model::ModelHost;

#[cfg(not(gmp_loom))]
pub(crate) use crate::host::native::{GUARD, MAX_GUARD, MAX_STACK, MIN_STACK};
#[cfg(gmp_loom)]
pub(crate) use crate::model::{GUARD, MAX_GUARD, MAX_STACK, MIN_STACK};

/// Returns the host of one runtime, whose goroutines together may use `max_stack_bytes` of stacks.
pub(crate) fn active(max_stack_bytes: Option<usize>, guard: usize) -> io::Result<Active> {
    Active::new(max_stack_bytes, guard)
}
