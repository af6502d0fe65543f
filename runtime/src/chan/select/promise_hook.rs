//! What a chosen send has promised, as long as its message is being evaluated: for whoever withdraws it, should its goroutine
//! be left behind by its runtime meanwhile, and with the limit of its select, for a send that has to wait after all.
//!
//! It lies in the select's space, which a send does not use otherwise: there it stays, while what was selected is moved.

use crate::chan::select::Limit;
use crate::chan::select::arm::{Ops, Space};
use crate::chan::state::Promised;
use crate::wait::abandon::{AbandonHook, StandingHook};

/// The first field is what the list of the goroutine's hooks names.
#[repr(C)]
pub(super) struct PromiseHook {
    hook: StandingHook,
    chan: *const (),
    ops: &'static Ops,
    promised: Promised,
    limit: Limit,
}

const _: () = assert!(
    size_of::<PromiseHook>() <= size_of::<Space>() && align_of::<PromiseHook>() <= align_of::<Space>()
);

impl PromiseHook {
    /// Notes what was promised; whatever that is, the limit.
    ///
    /// # Safety
    /// The space is good for writes, and stays where it is until `take_back`, or for good. The channel is one of these `ops`,
    /// and is there as long.
    pub(super) unsafe fn note(
        space: *mut Space,
        chan: *const (),
        ops: &'static Ops,
        promised: Promised,
        limit: Limit,
    ) {
        let this = space.cast::<PromiseHook>();
        // SAFETY: by this function's contract; it fits, see above.
        unsafe {
            this.write(PromiseHook { hook: StandingHook::new(Self::run), chan, ops, promised, limit });
            if promised != Promised::Closed {
                StandingHook::note(this.cast());
            }
        }
    }

    /// The promise is about to be kept or withdrawn. Gives the limit.
    ///
    /// # Safety
    /// One was noted there by the calling goroutine or thread.
    pub(super) unsafe fn take_back(slot: *const ()) -> Limit {
        let this = slot.cast::<PromiseHook>();
        // SAFETY: by this function's contract.
        unsafe {
            if (*this).promised != Promised::Closed {
                StandingHook::take_back(this.cast());
            }
            (*this).limit
        }
    }

    /// # Safety
    /// `hook` is that of a `PromiseHook` whose goroutine never runs again.
    unsafe fn run(hook: *const AbandonHook) {
        // SAFETY: by this function's contract. The goroutine has the channel borrowed for good; or it has forgotten that,
        // and the channel stays (`Chan::drop_sender`).
        unsafe {
            let this = &*hook.cast::<Self>();
            (this.ops.withdraw)(this.chan, this.promised);
        }
    }
}
