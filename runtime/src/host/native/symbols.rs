//! The functions at an address.
//!
//! With the feature `symbols` the functions are given with their lines. Without it the place is given as the file that was
//! loaded there and the offset in that file, as `addr2line -e FILE OFFSET` takes them: the resolver and the libraries under it
//! take a fifth of the time to compile a small program.
//!
//! The file is found, and its name copied, while the loader's list of objects is locked. No goroutine is stopped meanwhile, so
//! the goroutine whose frame it was may have left that code, and another thread might unload the file.

use crate::host::Symbol;

/// Calls `each` for the functions at the call before `pc`. Never called where no goroutine's frames can be read.
#[cfg(all(feature = "symbols", target_arch = "x86_64", not(feature = "generator")))]
pub(super) fn of(pc: usize, each: &mut dyn FnMut(Symbol<'_>)) {
    // The resolver is std's, as a crate: given a return address, it resolves the instruction before.
    backtrace::resolve(std::ptr::without_provenance_mut(pc), |symbol| {
        let function = symbol.name().map(|name| format!("{name:#}"));
        let file = symbol.filename().map(std::path::Path::to_string_lossy);
        each(Symbol { function: function.as_deref(), file: file.as_deref(), line: symbol.lineno() });
    });
}

/// Calls `each` for the place of the call before `pc` in the file that was loaded there, if one was.
#[cfg(not(all(feature = "symbols", target_arch = "x86_64", not(feature = "generator"))))]
pub(super) fn of(pc: usize, each: &mut dyn FnMut(Symbol<'_>)) {
    let call = pc.wrapping_sub(1);
    // Allocated beforehand: nothing is allocated under the loader's lock.
    let (mut base, mut name) = (None, Vec::with_capacity(libc::PATH_MAX as usize));
    super::objects::show(|object| {
        let is_there = object.parts(libc::PT_LOAD).any(|(segment, _)| segment.contains(&call));
        if is_there {
            base = Some(object.base());
            let text = object.name().to_bytes();
            name.extend_from_slice(&text[..text.len().min(name.capacity())]);
        }
        is_there
    });
    let Some(base) = base else { return };
    // The program itself has no name there.
    let own = if name.is_empty() { std::env::current_exe().ok() } else { None };
    let file = own.as_ref().map_or_else(|| String::from_utf8_lossy(&name), |path| path.to_string_lossy());
    let place = format!("{file}+{:#x}", call.wrapping_sub(base));
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
            let own = std::env::current_exe().unwrap();
            assert!(told.contains(&format!("`{}+0x", own.display())), "{told}");
        }
    }
}
