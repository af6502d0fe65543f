//! What a wait is made of: a status word, a handle to the parker, the queue of such handles, what ends a wait early, and what
//! is released for a parker that never returns.
//!
//! Channels, locks, sockets, timers and joins all park through [`waiter`]; none of them names the scheduler.

pub(crate) mod abandon;
pub(crate) mod interrupt;
pub(crate) mod queue;
pub(crate) mod status;
pub(crate) mod task;
pub(crate) mod waiter;
pub(crate) mod waker_cell;
