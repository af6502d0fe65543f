//! Stand-ins for the modules that know where a goroutine's stack is and read its frames, for switches that give neither: with
//! the feature `generator`, and on architectures other than x86-64.

/// No thread is asked where it is.
pub(super) mod sample {
    use crate::host::{Answer, Frames};
    use std::ffi::c_int;

    #[derive(Debug)]
    pub(in super::super) struct OwnStack;

    impl OwnStack {
        pub(in super::super) const fn new() -> Self {
            OwnStack
        }

        pub(in super::super) fn begin(&self) {}
    }

    pub(in super::super) fn walk_here(_frames: &mut Frames) {}

    pub(in super::super) fn ask(_threads: &[u32], _heard: &mut dyn FnMut(usize, Answer)) {}

    pub(in super::super) fn signal() -> c_int {
        libc::SIGRTMIN() + 12
    }

    pub(in super::super) fn catch() -> Result<(), &'static str> {
        Err("no thread is asked")
    }
}

/// The crate `generator` reports an overflow itself.
pub(super) mod overflow {
    pub(in super::super) fn install() {}

    pub(in super::super) fn left() -> Option<usize> {
        None
    }
}

/// An inner generator is the second stack.
pub(super) mod segment {
    pub(in super::super) use crate::stack::switch::{call_on, least_left, stack_of};
    use std::io;

    pub(in super::super) fn prepare(_size: usize) {}

    pub(in super::super) fn call_on_stock(_size: usize, _f: &mut dyn FnMut()) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Every look returns an error, so nothing is thrown.
pub(super) mod throw {
    use std::any::Any;
    use std::panic::resume_unwind;

    pub(in super::super) fn prepare() {}

    pub(crate) fn throw<T: Any + Send>(payload: Box<T>) -> ! {
        resume_unwind(payload)
    }
}
