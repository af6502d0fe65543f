//! What is asked of the unwinder, libgcc's or LLVM's, by the modules that walk over frames.

use std::ffi::{c_int, c_void};

/// A frame, as the unwinder shows it.
#[repr(C)]
pub(crate) struct Context {
    _opaque: [u8; 0],
}

/// Is asked about each frame, and says whether the walk goes on.
pub(crate) type Each = extern "C" fn(*mut Context, *mut c_void) -> c_int;
/// `_URC_NO_REASON`: the walk goes on.
pub(crate) const ON: c_int = 0;
/// `_URC_NORMAL_STOP`: the walk ends, as with all values but `ON`.
pub(crate) const ENOUGH: c_int = 4;

// `C-unwind` although none of them throws: what is said here may hold for the whole program under LTO.
unsafe extern "C-unwind" {
    /// Walks the frames from the caller outwards.
    pub(crate) fn _Unwind_Backtrace(each: Each, arg: *mut c_void) -> c_int;
    /// Where the frame goes on; whether it stands before that instruction, and not behind a call.
    pub(crate) fn _Unwind_GetIPInfo(context: *mut Context, before: *mut c_int) -> usize;
}
