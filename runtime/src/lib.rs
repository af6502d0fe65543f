//! Go's scheduler as a Rust library: goroutines with their own stacks, blocking code, no `async`.
//!
//! Goroutines (G) run on OS threads (M) that must hold a processor (P). A goroutine that waits for a socket, for
//! a time, or for another goroutine parks; its thread runs others meanwhile.
//!
//! ```
//! use gmp::{go, time};
//! use std::time::Duration;
//!
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call (see `gmp::migration`).
//! unsafe {
//!     gmp::run(|| {
//!         let sleepers: Vec<_> = (1..=100)
//!             .map(|n| {
//!                 go(move || {
//!                     time::sleep(Duration::from_millis(10));
//!                     n
//!                 })
//!             })
//!             .collect();
//!         // All of them slept at the same time.
//!         let sum: u32 = sleepers.into_iter().map(|sleeper| sleeper.join().unwrap()).sum();
//!         assert_eq!(sum, 5050);
//!     })
//! }
//! ```
//!
//! Starting a runtime is `unsafe`, once per program; everything else is safe to call. What is promised in return
//! stands in [`migration`].
//!
//! # Blocking calls
//!
//! What blocks the *goroutine* here parks it, and its thread runs others. What blocks the *thread*, `std::fs`, a lock
//! of std, a loop that never yields, keeps its P meanwhile: with as many of them as there are Ps nobody else runs.
//! [`blocking`] gives the P away for as long as such a call takes:
//!
//! ```
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! let text = unsafe { gmp::run(|| gmp::blocking(|| std::fs::read_to_string("/proc/self/comm"))) };
//! assert!(text.is_ok());
//! ```
//!
//! # From Go's names to files
//!
//! | Go | here |
//! | --- | --- |
//! | `g`, `_Grunnable` …, `casgstatus`, `_Gscan` | `g.rs`, `status.rs` |
//! | `m`, `p`, `note` | `m.rs`, `p.rs`, `note.rs` |
//! | `getg`, `acquirem`, `releasem` | `native/current.rs`, `m.rs` (`Window`, `Inside`) |
//! | `acquirep`, `releasep`, `wirep`, `_Pidle`, `_Prunning` | `m.rs`, `p.rs` |
//! | `runqput`, `runqputbatch`, `runqget`, `runqgrab`, `runqsteal`, `runqempty`, `runnext` | `runq.rs` |
//! | `gList`, `gQueue` | `glist.rs` |
//! | `gfget`, `gfput`, `malg`, `allgs`, `p.gFree` | `gpool.rs` |
//! | `goidcache`, `schedtick` | `p.rs` |
//! | `schedule`, `findRunnable`, `execute`, `mstart`, `gosched_m` | `sched/schedule.rs` |
//! | `gopark`, `park_m`, `unlockf`, `goexit0`, `Gosched`, `mcall` | `sched/park.rs`, `goroutine.rs` |
//! | `ready`, `goready`, `wakep`, `startm`, `injectglist` | `sched/wake.rs` |
//! | `resetspinning`, `becomeSpinning`, `checkRunqsNoP`, the "delicate dance" | `sched/spin.rs` |
//! | `sched.nmspinning`, `sched.npidle` | `sched/census.rs`; `needspinning`: not needed, see `sched/wake.rs` |
//! | `stealWork`, `cheaprand` | `sched/steal.rs`, `m.rs` |
//! | `newproc`, `newproc1`, `globrunqput`, `globrunqputbatch`, `globrunqget` | `sched/inject.rs` |
//! | `pidleput`, `pidleget`, `mput`, `mget`, `stopm`, `idlepMask`, `timerpMask`, `pMask` | `sched/idle.rs`, `sched/mask.rs` |
//! | `newm`, `newosproc`, `allm`, `mexit` | `sched/newm.rs`, `native/thread.rs`, `sched/stop.rs` |
//! | `handoffp`, `entersyscallblock`, `exitsyscall`, `exitsyscall0` | `sched/blocking.rs` |
//! | `retake`, `preemptone` | `handoff.rs`: the word is there, its retaker only in the model yet |
//! | `netpoll`, `netpollBreak`, `netpollopen`, `sched.lastpoll`, `sched.pollUntil` | `sched/poll.rs`, the crate `gmp-netpoll` |
//! | `pollDesc`, `netpollblock`, `netpollunblock` | `net/desc.rs`, `gmp_netpoll::Slot` |
//! | `fdMutex` | `net/turn.rs` |
//! | `timers`, `timeSleep`, `checkTimers`, `timeSleepUntil`, `wakeNetPoller` | `sched/timers.rs`, `sched/poll.rs`, the crate `gmp-timers` |
//! | `sysmon` | `sched/sysmon.rs` |
//! | `traceback`, `gcount` | `sched/dump.rs`, `sched/mod.rs` |
//! | `gogo`, `mcall`, `systemstack` | `native/switch.rs` |
//! | `stackalloc`, `stackfree`, `stackpool` | `native/stack.rs`, `sched/stacks.rs` |
//!
//! Not here, as it belongs to Go's garbage collector, compiler or tracer: `stopTheWorld`, write barriers, `gcController`,
//! stack growth, `trace*`.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "gmp runs on Linux only: its poller is epoll, its notes are futexes. Other systems need a `native/` and a poller of their own."
);
#[cfg(not(target_pointer_width = "64"))]
compile_error!("gmp needs 64-bit pointers: a goroutine's stack is a range of a large address space.");
#[cfg(all(feature = "loom-suite", not(gmp_loom)))]
compile_error!("the cfg gmp_loom is missing: run `cargo loom` without a RUSTFLAGS in the environment.");
#[cfg(all(feature = "generator", gmp_loom))]
compile_error!("the model can't run on the `generator` backend: loom's own threads are generators.");

mod g;
mod glist;
mod goroutine;
mod gpool;
mod handoff;
mod host;
#[cfg(gmp_loom)]
#[doc(hidden)]
pub mod internals;
mod m;
pub mod migration;
#[cfg(gmp_loom)]
pub mod model;
#[cfg(not(gmp_loom))]
mod native;
pub mod net;
mod note;
mod p;
mod prim;
mod runq;
mod runtime;
mod sched;
mod status;
pub mod sync;
mod task;
pub mod time;
mod waiter;

pub use goroutine::{
    Builder, Goroutine, GoroutineId, JoinError, JoinHandle, blocking, current, go, num_goroutines, procs,
    yield_now,
};
pub use runtime::{Report, Runtime, RuntimeBuilder, run};

/// The README's program, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
