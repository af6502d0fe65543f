//! The channel that is closed when a context is done.

use crate::chan::{self, Receiver};

/// Nobody sends on it, and only `close` closes it: not its users, and not the end of the context itself, which may go
/// without being done while somebody still waits.
pub(super) struct Done(Receiver<()>);

impl Done {
    pub(super) fn new() -> Self {
        Done(chan::signal())
    }

    pub(super) fn receiver(&self) -> &Receiver<()> {
        &self.0
    }

    pub(super) fn close(&self) {
        self.0.shut();
    }
}
