//! Which functions lie at an address.

use crate::host::Symbol;

/// Calls `each` for the functions at the call before `pc`. Never called where no goroutine's frames can be read.
#[cfg(not(any(feature = "generator", not(target_arch = "x86_64"))))]
pub(super) fn of(pc: usize, each: &mut dyn FnMut(Symbol<'_>)) {
    // The resolver is std's, as a crate: given a return address, it resolves the instruction before.
    backtrace::resolve(std::ptr::without_provenance_mut(pc), |symbol| {
        let function = symbol.name().map(|name| format!("{name:#}"));
        let file = symbol.filename().map(std::path::Path::to_string_lossy);
        each(Symbol { function: function.as_deref(), file: file.as_deref(), line: symbol.lineno() });
    });
}

/// Never called in this build.
#[cfg(any(feature = "generator", not(target_arch = "x86_64")))]
pub(super) fn of(_pc: usize, _each: &mut dyn FnMut(Symbol<'_>)) {}
