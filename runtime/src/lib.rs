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
//! Until the runtime hands such Ps on by itself, give that work to a second runtime and join it, which parks:
//!
//! ```
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! let (files, main) = unsafe { (gmp::Runtime::builder().build()?, gmp::Runtime::builder().build()?) };
//! let text = main.run(|| files.go(|| std::fs::read_to_string("/proc/self/comm")).join());
//! assert!(text.unwrap().is_ok());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # From Go's names to files
//!
//! | Go | here |
//! | --- | --- |
//! | `g`, `_Grunnable` …, `casgstatus`, `_Gscan` | `g.rs`, `status.rs` |
//! | `m`, `p`, `note` | `m.rs`, `p.rs`, `note.rs` |
//! | `gfget`, `gfput`, `allgs` | `gpool.rs` |
//! | `schedule`, `findRunnable`, `execute`, `mstart` | `sched/schedule.rs` |
//! | `gopark`, `unlockf`, `goexit0`, `Gosched` | `sched/park.rs` |
//! | `ready`, `goready`, `wakep` | `sched/wake.rs` |
//! | `newproc`, `globrunqput` | `sched/inject.rs`, `runq.rs` |
//! | `startm`, `stopm`, `newm`, `pidleput`, `pidleget`, `mput`, `mget` | `sched/idle.rs` |
//! | `netpoll`, `netpollBreak`, `netpollopen` | `sched/poll.rs`, the crate `gmp-netpoll` |
//! | `pollDesc`, `netpollblock`, `netpollunblock` | `net/desc.rs`, `gmp_netpoll::Slot` |
//! | `fdMutex` | `net/turn.rs` |
//! | `timers`, `timeSleep` | `sched/timers.rs`, the crate `gmp-timers` |
//! | `sysmon` | `sched/sysmon.rs` |
//! | `exitsyscall` | `sched/blocking.rs`, `m.rs` (`Window`) |
//! | `gogo`, `mcall` | `native/switch.rs` |
//! | `stackalloc`, `stackfree` | `native/stack.rs` |
//! | `getg` | `native/current.rs` |

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
mod goroutine;
mod gpool;
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
    Builder, Goroutine, GoroutineId, JoinError, JoinHandle, current, go, num_goroutines, procs, yield_now,
};
pub use runtime::{Report, Runtime, RuntimeBuilder, run};

/// The README's program, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
