//! How a close, or a new write deadline, ends a wait that is in no queue of the socket: the wait of a goroutine that is about
//! to look a name up, for a permit of its runtime's look-ups (`runtime/lines.rs`).
//!
//! The goroutine waits there under a context, which the next such change ends. All goroutines that wait for a name for this
//! socket share the context.
//!
//! ```text
//!   goroutine                                      closer, or setter of a deadline
//!
//!   N1  lock: the present context; or make one     M1  the mark: closed, or the deadline
//!   N2  `look`                                     M2  lock: take the context out; after the lock: end it
//!   N3  wait under the context; ended?  from N1
//! ```
//! Either N1 or M2 has the lock first: N2 sees M1, or M2 ends the context of N1.

use crate::context::{Cancel, Context};
use crate::prim::{Mutex, Rank};

pub(super) struct Present(Mutex<Option<Box<(Context, Cancel)>>>);

impl Present {
    pub(super) fn new() -> Self {
        Present(Mutex::new(Rank::PresentContext, None))
    }

    /// N1.
    #[cold]
    pub(super) fn context(&self) -> Context {
        let fresh = Box::new(Context::background().with_cancel());
        self.0.lock().get_or_insert(fresh).0.clone()
    }

    /// M2.
    #[inline]
    pub(super) fn end(&self) {
        let ended = self.0.lock().take();
        if let Some(ended) = ended {
            ended.1.cancel();
        }
    }
}
