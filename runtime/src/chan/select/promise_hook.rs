//! The standing hook of a chosen send while the message is being evaluated: withdraws the promise if the runtime leaves
//! the goroutine behind meanwhile. The hook also keeps the limit of the select, for a send that has to wait after all.
//!
//! The hook lies in the select's space, which a send does not use otherwise, and which does not move while the
//! `Selected` is moved.

use crate::chan::select::Limit;
use crate::chan::select::erased::{Ops, Space};
use crate::chan::state::Promised;
use crate::wait::abandon::{AbandonHook, StandingHook};

/// The first field is the record in the list of the goroutine's hooks.
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
    /// Notes the limit, and, unless the channel is closed, the promise in the list of the goroutine's hooks.
    ///
    /// # Safety
    /// The space is valid for writes, and is not moved until `take_back`, or for good. `ops` are those of the channel, which
    /// lives as long.
    pub(super) unsafe fn note(
        space: *mut Space,
        chan: *const (),
        ops: &'static Ops,
        promised: Promised,
        limit: Limit,
    ) {
        let this = space.cast::<PromiseHook>();
        // SAFETY: by this function's contract; the assertion above says that the hook fits.
        unsafe {
            this.write(PromiseHook { hook: StandingHook::new(Self::run), chan, ops, promised, limit });
            if promised != Promised::Closed {
                StandingHook::note(this.cast());
            }
        }
    }

    /// Removes the promise from the hooks, before the promise is kept or withdrawn. Returns the limit; `None` if another
    /// goroutine has noted the promise, which stays with that goroutine: then the space must stay where it is for good.
    ///
    /// # Safety
    /// A promise was noted in `slot`.
    pub(super) unsafe fn take_back(slot: *const ()) -> Option<Limit> {
        let this = slot.cast::<PromiseHook>();
        // SAFETY: by this function's contract.
        unsafe {
            let may_go = (*this).promised == Promised::Closed || StandingHook::try_take_back(this.cast());
            may_go.then(|| (*this).limit)
        }
    }

    /// # Safety
    /// `hook` is the hook of a `PromiseHook` whose goroutine never runs again.
    unsafe fn run(hook: *const AbandonHook) {
        // SAFETY: by this function's contract. The goroutine borrows the channel for good; or the goroutine leaked the
        // operation, and then `Chan::drop_sender` keeps the channel.
        unsafe {
            let this = &*hook.cast::<Self>();
            (this.ops.withdraw)(this.chan, this.promised).ready_elsewhere();
        }
    }
}
