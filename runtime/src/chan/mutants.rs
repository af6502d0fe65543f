//! The parts of the channels' mutants that do not fit into one line.

use crate::chan::state::RecordPtr;

/// `PromiseAskedTooEarly`: readies the sender that was asked for its message, before the receiver sleeps.
pub(super) fn ready_early(sender: Option<RecordPtr>) {
    if let Some(sender) = sender {
        // SAFETY: the sender is claimed, and sleeps until it is readied.
        unsafe { sender.as_ref() }.value.claimed().ready();
    }
}
