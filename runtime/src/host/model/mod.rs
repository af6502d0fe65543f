//! The host of the models: loom's threads under the shipped scheduler. Present under the cfg `gmp_loom` only.
//!
//! Everything above the line is the code that ships; goroutines run on real stacks, switched by the real
//! assembly, inside loom's threads. Only the world is played:
//!
//! * a thread is a loom thread; the M of a thread is a `loom::thread_local!`, set when the M starts;
//! * a note's sleep state is a mutex and a condition variable; a timed sleep lasts until it is ended;
//! * the poller is a list of posted events and one break, which the first M that looks takes, as in the kernel. A
//!   wait of less than [`LONG`] is over at once, and the clock has then moved on by that time; a longer wait lasts
//!   until an event is posted. So a break that is missing is a deadlock.
//!
//! A panic in a goroutine is a failed model: loom reports a deadlock, or two accesses that nothing orders, by a panic
//! wherever it finds them. The host carries the panic to the M and raises it again there.
//!
//! No model sees real thread-locals (all Ms share one OS thread), the panic count of a thread, or time.
//!
//! # A model of your own
//!
//! A model is a test that loom runs once for each schedule that matters. The model fails in the first schedule in
//! which anything panics, all threads wait for ever, or two accesses to a `loom::cell::UnsafeCell` are ordered by
//! nothing; the events of that schedule are printed before the panic's message.
//!
//! ```ignore
//! use gmp::model::{Model, at_rest, done};
//!
//! #[test]
//! fn what_a_goroutine_returns_is_joined() {
//!     Model::new().check("what_a_goroutine_returns_is_joined", || {
//!         let runtime = at_rest::<1>();
//!         assert_eq!(runtime.go(|| 1).join().unwrap(), 1);
//!         done();
//!     });
//! }
//! ```
//! **Running it.** The file begins with `#![cfg(gmp_loom)]`, and the build sets that cfg: here by `cargo loom`, an alias
//! in `.cargo/config.toml`; elsewhere by `RUSTFLAGS="--cfg gmp_loom" cargo test --release --target-dir target/loom --test
//! 'loom_*'`. For a crate of your own, `docs/models.md` has the `Cargo.toml` and the files; `./test outside` builds those
//! very lines. `tests/loom_user.rs` is a whole example: a mailbox, and how loom finds the wake-up that a wrong version of
//! the mailbox loses.
//!
//! **What a model may use.** All of gmp: [`go`](crate::go), [`JoinHandle::join`](crate::JoinHandle::join),
//! [`yield_now`](crate::yield_now), [`blocking`](crate::blocking), `sync`, `time::sleep`. Build the code to be checked from
//! loom's atomics, cells, `Mutex` and `Condvar`, and from [`park`] and [`Waiter`]: std's are invisible to loom, and a thread
//! that blocks in one of these blocks the whole model. Wait for a condition in a `Condvar` or a [`Flag`], never in a loop that
//! does not yield. [`gmp::park`](crate::park) and [`gmp::Unparker`](crate::Unparker) are in both builds, so a protocol over
//! them ships as it was checked. Schedules must depend on loom alone: no clock, no addresses, no randomness, no hash map.
//!
//! **Its size.** loom has five threads: the model's own, and up to four more for Ms and for those that the model
//! starts. `procs(1).max_threads(1)` is the smallest runtime. Two threads that race over some twenty steps are a few
//! hundred executions; a third multiplies that by a hundred. [`Model::check`] prints the number; a sudden fall means
//! that the model has gone blind.
//!
//! **The stage.** The search begins where the race begins: [`at_rest`] returns a runtime whose Ms sleep; [`runtime`] returns a
//! runtime that starts unsearched, until `loom::explore()`; [`together`] and [`together_with_us`] make goroutines begin at one
//! moment; [`done`] ends the search when the property has held, so that the end of the runtime costs nothing. Call `done` where
//! the property is known to have held, mostly in a goroutine, and with [`Parts`] in the last of several: after a join loom
//! would also search how the Ms go idle while the joiner is woken, up to a hundred times as many executions. The bound counts
//! preemptions, and the thread that runs first when the search begins needs none: let that be the thread that has to be early.
//! loom tries another order of two steps if it sees that both touch the same object, and remembers only one earlier access of
//! each object; a reader that comes first may hide behind the writer's own look. If loom does not find a mutant that it must
//! find, begin with the other thread.
//!
//! **What a model can't see.** Real thread-locals and time, as said above. A race on memory that is not in a loom cell passes.
//! loom does not let a store and a later load change places, as the machine does unless both sides have a `fence(SeqCst)`: loom
//! shows that such a fence is missing, but takes SeqCst *accesses* for AcqRel. Nor does loom satisfy a load before an earlier
//! load. So show, for each line that a protocol needs, that the model fails without that line.

pub use crate::prim::Mutant;
#[cfg(test)]
pub(crate) use barrier::switch_point;
pub use host::{Local, SleepState};
pub use schedule::note;
pub use search::{Model, grant_threads, have_cpus, refuse_threads};
#[cfg(test)]
pub(crate) use stack::reserved_stacks;
pub use stack::{ModelStack, StackCache, limit_stacks};
#[cfg(test)]
pub(crate) use stage::done_at_rest;
pub use stage::{Body, Flag, Parts, at_rest, done, fall_asleep, runtime, together, together_with_us};
pub use wait::{Parked, Waiter, park};
pub use world::{LONG, ModelHost, pass};

mod barrier;
mod host;
mod schedule;
mod search;
mod stack;
mod stage;
mod wait;
mod world;
