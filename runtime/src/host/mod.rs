//! The line between the scheduler and the world: everything that the scheduler asks of an operating system, besides the atomics
//! and locks of `prim`.
//!
//! Above the line are the files that loom runs as they are (`CHECKED` in `tests/sources/facade.rs`): they name no threads,
//! clocks, statics, thread-locals or random sources. Below the line there are no decisions of the scheduler. [`Threads`],
//! [`Clock`], [`Poll`], [`Stacks`] and [`Process`] list the calls that cross the line, and know nothing of the code above;
//! [`Host`] is their sum. The scheduler is written for any `H: Host`; the public types are bound to [`Active`], which is the
//! operating system, or, under the cfg `gmp_loom`, the model of an operating system.
//!
//! Below the line are `native/` and `model/`, the halves of `prim` (`prim/native.rs` and `prim/buckets.rs`, or
//! `prim/model.rs`), and `stack/`. So are `net/sys.rs` and `os/`, which make the system calls of the public types; of these,
//! models run only `os/signal/pending.rs`.
//!
//! Every failure of the world is a value that comes up through these traits.

mod clock;
mod frames;
pub(crate) mod handler;
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
pub(crate) use poll::{Interest, Poll};
pub(crate) use process::{Answer, Asked, Bar, Process, Symbol};
pub(crate) use stacks::{EXIT, Stack, Stacks};
pub(crate) use threads::{Interrupts, Lack, Threads};

use crate::g::{self, GRef};
use crate::m::Window;
use crate::sched::Shared;
use crate::stack::End;
use crate::stack::switch::Home;

/// All calls of the scheduler to the world below: the sum of these traits. The process's one instance of the scheduler's state
/// (`Process::Shared`) is the scheduler's own type.
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

pub(crate) use crate::stack::pool::GUARD;
pub(crate) use crate::stack::{MAX_GUARD, MAX_STACK, MIN_STACK};

/// The first code on a goroutine's stack, and the last.
pub(crate) unsafe extern "C" fn entry<H: Host>(word: usize) -> End {
    Home::begun();
    // SAFETY: `resume` passed the goroutine, whose M holds it.
    let g = unsafe { GRef::<H>::from_raw(std::ptr::with_exposed_provenance_mut(word)) };
    g::root(g);
    // The end is inside the runtime, like a park.
    let window = Window::<H>::enter().expect("entry: a goroutine runs on an M");
    let home: &Home = window.m().local.as_ref();
    home.end();
    let home = &raw const *home;
    std::mem::forget(window);
    End { home, word: EXIT }
}
