//! The unwinder, libgcc's or LLVM's, as the modules that walk over frames call it.

use std::ffi::{c_int, c_void};

/// A frame, as the unwinder shows it.
#[repr(C)]
pub(crate) struct Context {
    _opaque: [u8; 0],
}

/// Called for each frame; says whether the walk goes on.
pub(crate) type Each = extern "C" fn(*mut Context, *mut c_void) -> c_int;
/// `_URC_NO_REASON`: the walk goes on.
pub(crate) const ON: c_int = 0;
/// `_URC_NORMAL_STOP`: the walk ends, as with all values but `ON`.
pub(crate) const ENOUGH: c_int = 4;

// `C-unwind` although none of them throws: under LTO this declaration may hold for the whole program.
unsafe extern "C-unwind" {
    /// Walks the frames from the caller outwards.
    pub(crate) fn _Unwind_Backtrace(each: Each, arg: *mut c_void) -> c_int;
    /// Returns where the frame goes on; `before` says whether the frame stopped before that instruction rather than after a
    /// call.
    pub(crate) fn _Unwind_GetIPInfo(context: *mut Context, before: *mut c_int) -> usize;
}
