//! Ms and Ps: starting threads and ending them, binding them, and who gives a P away, takes it, or comes back without one.

pub(super) mod attach;
pub(super) mod blocking;
pub(crate) mod locked;
pub(crate) mod mexit;
pub(super) mod newm;
pub(crate) mod procs;
pub(super) mod ps;
pub(super) mod retake;
