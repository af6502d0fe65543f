//! Ms and Ps: starting threads and ending them, binding goroutines to them, how many Ps there are, and what happens to the P
//! of an M that blocks.

pub(super) mod attach;
pub(super) mod blockers;
pub(super) mod blocking;
pub(super) mod bound;
pub(crate) mod locked;
pub(crate) mod mexit;
pub(super) mod newm;
pub(crate) mod procs;
pub(super) mod ps;
pub(super) mod retake;
