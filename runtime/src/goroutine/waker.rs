//! The wakers of [`block_on`](crate::block_on), by which futures wake the goroutine or thread that polls them: each points to a
//! counted cell (`wait/waker_cell.rs`).

use crate::host::Active;
use crate::prim::Arc;
use crate::wait::waker_cell::WakerCell;
use std::mem::ManuallyDrop;
use std::ptr;
use std::task::{RawWaker, RawWakerVTable, Waker};

/// The functions behind the wakers of cells. A static has one address, by which `will_wake` and `is_of_block_on` recognise such
/// wakers.
static FUNCTIONS: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);

/// # Safety
/// For this function and the next three: `cell` is the pointer of a waker, which counts as an owner of the cell.
unsafe fn clone(cell: *const ()) -> RawWaker {
    // SAFETY: by this function's contract the cell has an owner, and was made in an Arc.
    unsafe { Arc::increment_strong_count(cell.cast::<WakerCell<Active>>()) };
    RawWaker::new(cell, &FUNCTIONS)
}

unsafe fn wake(cell: *const ()) {
    // SAFETY: as for `clone`; the waker is gone with this call.
    unsafe { Arc::from_raw(cell.cast::<WakerCell<Active>>()) }.wake();
}

unsafe fn wake_by_ref(cell: *const ()) {
    // SAFETY: as for `clone`.
    unsafe { &*cell.cast::<WakerCell<Active>>() }.wake();
}

unsafe fn drop_waker(cell: *const ()) {
    // SAFETY: as for `wake`.
    drop(unsafe { Arc::from_raw(cell.cast::<WakerCell<Active>>()) });
}

/// Returns a waker of the cell that is not counted, and is valid as long as the caller holds the cell.
#[inline]
pub(crate) fn waker_of(cell: &Arc<WakerCell<Active>>) -> ManuallyDrop<Waker> {
    // SAFETY: the functions fulfil the contract of a waker's. The caller holds the cell, and this waker is never dropped, so it
    // never releases the cell.
    ManuallyDrop::new(unsafe { Waker::new(Arc::as_ptr(cell).cast(), &FUNCTIONS) })
}

/// Returns `true` if the waker belongs to a cell: then a wake is a plain ready.
#[inline]
pub(crate) fn is_of_block_on(waker: &Waker) -> bool {
    ptr::eq(waker.vtable(), &raw const FUNCTIONS)
}

/// Returns the cell behind a waker of `block_on`.
#[inline]
pub(crate) fn cell_of(waker: &Waker) -> Option<&WakerCell<Active>> {
    // SAFETY: by its functions the waker belongs to a cell, and either owns the cell or is outlived by an owner (`waker_of`).
    is_of_block_on(waker).then(|| unsafe { &*waker.data().cast::<WakerCell<Active>>() })
}
