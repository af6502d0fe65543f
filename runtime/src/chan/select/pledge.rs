//! What a chosen send has promised, as long as its message is being evaluated: for whoever withdraws it, should its goroutine
//! be left behind by its runtime meanwhile, and with the limit of its select, for a send that has to wait after all.
//!
//! It lies in the select's space, which a send does not use otherwise: there it stays, while what was selected is moved.

use crate::chan::select::Limit;
use crate::chan::select::arm::{Ops, Space};
use crate::chan::state::Promised;
use crate::wait::debt::{Debt, Standing};

/// The first field is what the list of the goroutine's debts names.
#[repr(C)]
pub(super) struct Pledge {
    standing: Standing,
    chan: *const (),
    ops: &'static Ops,
    promised: Promised,
    limit: Limit,
}

const _: () =
    assert!(size_of::<Pledge>() <= size_of::<Space>() && align_of::<Pledge>() <= align_of::<Space>());

impl Pledge {
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
        let this = space.cast::<Pledge>();
        // SAFETY: by this function's contract; it fits, see above.
        unsafe {
            this.write(Pledge { standing: Standing::new(Self::pay), chan, ops, promised, limit });
            if promised != Promised::Closed {
                Standing::note(this.cast());
            }
        }
    }

    /// The promise is about to be kept or withdrawn. Gives the limit.
    ///
    /// # Safety
    /// One was noted there by the calling goroutine or thread.
    pub(super) unsafe fn take_back(slot: *const ()) -> Limit {
        let this = slot.cast::<Pledge>();
        // SAFETY: by this function's contract.
        unsafe {
            if (*this).promised != Promised::Closed {
                Standing::take_back(this.cast());
            }
            (*this).limit
        }
    }

    /// # Safety
    /// `debt` is that of a `Pledge` whose goroutine never runs again.
    unsafe fn pay(debt: *const Debt) {
        // SAFETY: by this function's contract. The goroutine has the channel borrowed for good; or it has forgotten that,
        // and the channel stays (`Chan::drop_sender`).
        unsafe {
            let this = &*debt.cast::<Self>();
            (this.ops.withdraw)(this.chan, this.promised);
        }
    }
}
