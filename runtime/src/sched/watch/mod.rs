//! What looks at a runtime from outside of its goroutines: the monitor, deadlocks, dumps, traces, SIGQUIT, what goes
//! back to the system, and what the system has refused.

pub(crate) mod deadlock;
pub(crate) mod dump;
// Under loom the models alone use it.
#[cfg_attr(gmp_loom, allow(dead_code))]
pub(crate) mod quit;
pub(super) mod sysmon;
pub(super) mod told;
pub(super) mod trace;
pub(super) mod trim;
