//! What mutants of the channels do where one line can't say it.

use crate::chan::state::RecordPtr;

/// `PromiseAskedTooEarly`: readies the sender that was asked for its message, before the receiver sleeps.
pub(super) fn ready_early(sender: Option<RecordPtr>) {
    if let Some(sender) = sender {
        // SAFETY: the sender is claimed, and sleeps until it is readied.
        unsafe { sender.as_ref() }.value.ready();
    }
}
