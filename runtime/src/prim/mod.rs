//! The facade: every atomic, fence, lock and shared cell of the runtime comes from here.
//!
//! Natively these are std's atomics, the lock of `store_lock.rs` and crossbeam-utils' padding; under the cfg `gmp_loom` they
//! are loom's, and loom then explores the very code that ships. Nothing above the host names `std::sync` or a clock;
//! `tests/sources/facade.rs` reads the files and fails for a file that does. That test lists the files that choose by the cfg:
//! this one, which chooses between `native.rs` and `model.rs`, a few beside it, and the hosts. A few other files have an item
//! that only the models use.
//!
//! The annotations of [`hooks`] are in shipped code to prove that loom finds each mutant.
//!
//! A [`Ghost`] is state for the proof alone: zero-sized natively, a checked cell under loom.

#[cfg(not(gmp_loom))]
mod buckets;
pub(crate) mod capacity;
pub(crate) mod hooks;
mod lock;
#[cfg(gmp_loom)]
mod model;
mod mutant;
#[cfg(not(gmp_loom))]
mod native;
mod single_writer;
#[cfg(any(not(gmp_loom), test))]
pub(crate) mod store_lock;

// The pool of stacks has such a lock, and there is no pool with the `generator` backend.
#[cfg_attr(any(feature = "generator", not(target_arch = "x86_64")), allow(unused_imports))]
pub(crate) use lock::HostMutex;
pub(crate) use lock::{Mutex, MutexGuard, Rank, assert_none_held};
#[cfg(gmp_loom)]
pub(crate) use model::*;
pub use mutant::Mutant;
#[cfg(not(gmp_loom))]
pub(crate) use native::*;
pub(crate) use single_writer::{SingleWriter, SingleWriterByte, SingleWriterFlag, SingleWriterWord};
pub(crate) use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};
/// std's `Arc` in both builds: it keeps handles alive, and no protocol relies on its ordering.
pub(crate) use std::sync::{Arc, Weak};

pub(crate) use crossbeam_utils::CachePadded;

/// Defines a constructor that is `const`, for statics; except in models, whose atomics and locks have no `const` constructor.
macro_rules! const_fn {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),*) -> $out:ty $body:block) => {
        #[cfg(not(gmp_loom))]
        $(#[$doc])*
        $vis const fn $name($($arg: $type),*) -> $out $body
        #[cfg(gmp_loom)]
        $(#[$doc])*
        $vis fn $name($($arg: $type),*) -> $out $body
    };
}
pub(crate) use const_fn;
