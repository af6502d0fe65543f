//! The parts of a wait: a status word, a handle to the parker, the queue of such handles, the interrupts that end a wait early,
//! and the hooks that release things for a parker that never returns.
//!
//! Channels, locks, sockets, timers and joins all park through [`waiter`]. A commit hook (`sched/park.rs`) publishes their
//! handle when the parker's M has saved the goroutine.

pub(crate) mod abandon;
pub(crate) mod interrupt;
pub(crate) mod queue;
pub(crate) mod status;
pub(crate) mod task;
pub(crate) mod waiter;
pub(crate) mod waker_cell;
