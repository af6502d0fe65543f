//! The channel that is closed when a context is done.

use crate::chan::{self, Receiver, Woken};

/// No message is sent on the channel, and only `close` closes it: users can't, and the drop of the context does not, for a
/// context may be dropped undone while a receiver still waits.
pub(super) struct Done(Receiver<()>);

impl Done {
    pub(super) fn new() -> Self {
        Done(chan::signal())
    }

    pub(super) fn receiver(&self) -> &Receiver<()> {
        &self.0
    }

    /// The caller readies those that are woken, without a lock.
    pub(super) fn close(&self, woken: &mut Woken) {
        self.0.shut_and_tell(woken);
    }
}
