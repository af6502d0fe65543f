//! An M's way to the next goroutine: how a goroutine is made runnable, queued and found, and what an M does when there
//! is none.

pub(crate) mod arrivals;
pub(super) mod census;
pub(crate) mod class_queues;
pub(crate) mod classes;
pub(crate) mod globq;
pub(super) mod gqueue;
pub(crate) mod help;
pub(super) mod idle;
pub(super) mod idle_set;
pub(super) mod inject;
pub(crate) mod jobs;
pub(crate) mod look;
pub(crate) mod mail;
pub(super) mod mask;
pub(crate) mod nap;
pub(crate) mod place;
pub(super) mod round;
pub(super) mod schedule;
pub(super) mod spawn;
pub(crate) mod spawn_burst;
pub(super) mod spin;
pub(super) mod steal;
pub(super) mod turn;
pub(crate) mod wake;
