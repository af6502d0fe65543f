//! Which functions lie at an address.
//!
//! With the feature `symbols` the functions are told with their lines. Without it the place is told by the file that was loaded
//! there and the offset in that file, as `addr2line -e FILE OFFSET` takes them: the resolver and the libraries under it are a
//! fifth of what a small program takes to compile.

use crate::host::Symbol;

/// Calls `each` for the functions at the call before `pc`. Never called where no goroutine's frames can be read.
#[cfg(all(feature = "symbols", not(any(feature = "generator", not(target_arch = "x86_64")))))]
pub(super) fn of(pc: usize, each: &mut dyn FnMut(Symbol<'_>)) {
    // The resolver is std's, as a crate: given a return address, it resolves the instruction before.
    backtrace::resolve(std::ptr::without_provenance_mut(pc), |symbol| {
        let function = symbol.name().map(|name| format!("{name:#}"));
        let file = symbol.filename().map(std::path::Path::to_string_lossy);
        each(Symbol { function: function.as_deref(), file: file.as_deref(), line: symbol.lineno() });
    });
}

/// Calls `each` for the place of the call before `pc` in the file that was loaded there, if one was.
#[cfg(not(all(feature = "symbols", not(any(feature = "generator", not(target_arch = "x86_64"))))))]
pub(super) fn of(pc: usize, each: &mut dyn FnMut(Symbol<'_>)) {
    use std::ffi::CStr;
    use std::mem::MaybeUninit;

    let call = pc.wrapping_sub(1);
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: the call takes any address, and writes the record if it returns another number than 0.
    let is_there = unsafe { libc::dladdr(std::ptr::without_provenance(call), found.as_mut_ptr()) } != 0;
    if !is_there {
        return;
    }
    // SAFETY: the call has returned another number, and so has written the record.
    let found = unsafe { found.assume_init() };
    if found.dli_fname.is_null() {
        return;
    }
    // SAFETY: the loader has the name for as long as the file is loaded, and a file with a frame on a stack is.
    let file = unsafe { CStr::from_ptr(found.dli_fname) }.to_string_lossy();
    let place = format!("{file}+{:#x}", call.wrapping_sub(found.dli_fbase.addr()));
    each(Symbol { function: Some(&place), file: None, line: None });
}

#[cfg(test)]
mod tests {
    /// Fails when an address is told neither by the function there, with its line, nor by the program and the offset.
    #[test]
    fn an_address_is_told_by_its_function_or_by_its_place_in_the_program() {
        fn marked() -> usize {
            std::hint::black_box(line!()) as usize
        }
        let mut told = Vec::new();
        super::of((marked as fn() -> usize) as usize + 2, &mut |symbol| told.push(format!("{symbol}")));
        let told = told.concat();
        println!("{told}");
        if cfg!(all(feature = "symbols", not(feature = "generator"), target_arch = "x86_64")) {
            assert!(told.contains("marked`") && told.contains(file!()), "{told}");
        } else {
            assert!(told.contains("+0x"), "{told}");
        }
    }
}
