//! The loaded objects, as the loader lists them: the program, and its libraries.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;

/// The loader's record of an object, which stays loaded as long as the record is shown.
pub(super) struct Record {
    info: *const libc::dl_phdr_info,
    /// The record's bytes: those of an older loader are fewer.
    bytes: usize,
}

/// Shows each loaded object to `each`, until `each` returns `true`. The loader's list is locked meanwhile.
pub(super) fn show<F: FnMut(&Record) -> bool>(mut each: F) {
    extern "C" fn one<F: FnMut(&Record) -> bool>(
        info: *mut libc::dl_phdr_info,
        bytes: usize,
        each: *mut c_void,
    ) -> c_int {
        // SAFETY: `show` passed the function, and waits.
        let each = unsafe { &mut *each.cast::<F>() };
        each(&Record { info, bytes }).into()
    }
    // SAFETY: `one` gets the function, as it expects.
    unsafe { libc::dl_iterate_phdr(Some(one::<F>), (&raw mut each).cast()) };
}

impl Record {
    /// Returns where the object begins in memory.
    pub(super) fn base(&self) -> usize {
        // SAFETY: the loader's record, which has this field from the first on, here and in the next two functions.
        unsafe { (*self.info).dlpi_addr as usize }
    }

    pub(super) fn headers(&self) -> &[libc::Elf64_Phdr] {
        // SAFETY: as in `base`; so many headers are there, of an object that stays loaded.
        unsafe {
            let (headers, count) = ((*self.info).dlpi_phdr, (*self.info).dlpi_phnum);
            if headers.is_null() { &[] } else { std::slice::from_raw_parts(headers, count.into()) }
        }
    }

    /// Returns the file's name; the program itself has none.
    pub(super) fn name(&self) -> &CStr {
        // SAFETY: as in `base`; the loader's text ends with a zero, and stays as long as the object is loaded.
        unsafe {
            let name = (*self.info).dlpi_name;
            if name.is_null() { c"" } else { CStr::from_ptr(name) }
        }
    }

    /// Returns how many objects were unloaded in this process, as far as the loader counts them.
    pub(super) fn unloads(&self) -> u64 {
        // SAFETY: the record is long enough.
        if self.bytes < size_of::<libc::dl_phdr_info>() { 0 } else { unsafe { (*self.info).dlpi_subs } }
    }

    /// Returns the object's parts of this type, with the rights of each.
    pub(super) fn parts(&self, kind: u32) -> impl Iterator<Item = (Range<usize>, u32)> {
        parts(self.base(), self.headers(), kind)
    }
}

/// Returns the parts of this type of an object with this base and these headers, with the rights of each.
pub(super) fn parts(
    base: usize,
    headers: &[libc::Elf64_Phdr],
    kind: u32,
) -> impl Iterator<Item = (Range<usize>, u32)> {
    headers.iter().filter(move |header| header.p_type == kind).map(move |header| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        (start..start.wrapping_add(header.p_memsz as usize), header.p_flags)
    })
}
