//! Parts that watch a runtime from outside of its goroutines: the monitor, deadlocks, dumps, traces, SIGQUIT, the goroutines
//! for which the end waits, stacks that go back to the system, and refusals of the system.

mod coarse;
pub(crate) mod deadlock;
pub(crate) mod dump;
pub(crate) mod ending;
#[cfg_attr(gmp_loom, allow(dead_code, reason = "the models alone use it"))]
pub(crate) mod quit;
pub(super) mod sysmon;
pub(crate) mod told;
pub(super) mod trace;
pub(super) mod trim;
