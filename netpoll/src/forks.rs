//! Whether a poller is the parent's, of which a forked child has a copy.
//!
//! Parent and child share the epoll set, as they share each open file. If the child removes a descriptor from the epoll set,
//! the parent gets no more events for it.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Counted up in each forked child.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    // Relaxed: the child has this thread alone.
    FORKS.fetch_add(1, Relaxed);
}

/// The process that has made a poller.
pub(crate) struct Maker(u32);

impl Maker {
    pub(crate) fn this_process() -> Self {
        static HEARD: Once = Once::new();
        // Fails for want of memory alone; then a child is not told from its parent.
        // SAFETY: the function may be called in a child.
        HEARD.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) });
        Maker(FORKS.load(Relaxed))
    }

    pub(crate) fn is_this_process(&self) -> bool {
        self.0 == FORKS.load(Relaxed)
    }
}
