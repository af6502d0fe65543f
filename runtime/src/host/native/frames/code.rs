//! The look at a function's code: does a landing pad lead to `panic_cannot_unwind`?
//!
//! *First* the function as a whole is searched, undecoded. In x86-64 code of the usual models, a reference to another function
//! is four bytes: the distance from their end to that function, to a word that the loader has bound to the function (GOT), or
//! to a jump through such a word (PLT). Every four bytes of the code are tried. Most functions hold no such reference to
//! `panic_cannot_unwind`: all their landing pads pass.
//!
//! *Then*, in a function that holds such a reference, the code is followed from the landing pad on (`flow.rs`), as the pad need
//! not lead there: an inlined `catch_unwind` has such a reference of its own, for a payload whose handling panics. A reference
//! that is no plain call means no: the address may be in a register by then.
//!
//! *Inlining.* A function that must not unwind may be inlined beside other code. A throw that is caught there may be raised
//! again from within that function, so in such code a catch means no. A call whose landing pad leads to `panic_cannot_unwind`
//! marks such code, unless it is the call in which a `catch_unwind` takes the payload out.
//!
//! The verdicts are kept (`verdicts.rs`).

use super::Landmarks;
use super::flow::Way;
use super::held::Held;
use super::object::{Object, destination};
use super::tables::{self, Function};
use std::ffi::c_void;
use std::ops::Range;

/// What happens to a throw at a function with a table, or at one of its landing pads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The code may call `panic_cannot_unwind`.
    Aborts = 0,
    /// Not this program's Rust, or not understood.
    Foreign = 1,
    /// The code does not call `panic_cannot_unwind`.
    Passes = 2,
    /// The code calls `panic_cannot_unwind` somewhere: the landing pad decides.
    Depends = 3,
    /// As `Depends`, and code that must not unwind is inlined there.
    Mixed = 4,
}

/// Finds out the kind of the function that starts at `start`.
///
/// # Safety
/// `table` is the table of that function; if its personality is that of the landmarks, rustc made both.
#[cold]
pub(super) unsafe fn kind(start: usize, table: *const u8, landmarks: &Landmarks) -> Kind {
    let Some(function) = Function::at(start) else { return Kind::Foreign };
    if function.personality != Some(landmarks.personality) || function.start != start {
        return Kind::Foreign;
    }
    let Some(code) = Code::of(function) else { return Kind::Aborts };
    match code.kind(landmarks.cannot_unwind) {
        // SAFETY: by this function's contract.
        Kind::Depends if unsafe { code.is_mixed(table, landmarks) } => Kind::Mixed,
        kind => kind,
    }
}

/// Finds out the kind of a landing pad of a function that `Depends`, or is `Mixed`.
///
/// # Safety
/// As for `kind`.
#[cold]
pub(super) unsafe fn kind_of_pad(pad: usize, start: usize, table: *const u8, landmarks: &Landmarks) -> Kind {
    let Some(code) = Function::at(start).and_then(Code::of) else { return Kind::Aborts };
    // SAFETY: by this function's contract.
    let pads: Vec<usize> = unsafe { tables::sites(table, start) }.filter_map(|site| site.pad).collect();
    match code.way_from(pad, &pads, landmarks) {
        Way::Passes => Kind::Passes,
        Way::Aborts => Kind::Aborts,
    }
}

/// Returns what the first call instruction from `pad` on, in the same function, calls.
pub(super) fn first_call(pad: usize, function: Function) -> Option<usize> {
    let code = Code::of(function)?;
    (pad..code.function.end).find_map(|at| {
        let target = code.callee(at)?;
        // The address may be a part of another instruction.
        (code.begins_function(target) && !is_of_sanitizer(target)).then_some(target)
    })
}

/// Returns `true` for the function that AddressSanitizer makes each function call before one that does not return.
#[cfg(gmp_asan)]
fn is_of_sanitizer(target: usize) -> bool {
    unsafe extern "C" {
        fn __asan_handle_no_return();
    }
    target == __asan_handle_no_return as *const () as usize
}

#[cfg(not(gmp_asan))]
fn is_of_sanitizer(_target: usize) -> bool {
    false
}

/// Returns the functions that take the payload out of a thrown exception, if `first`, the first function that a `catch_unwind`
/// calls in its landing pad, is one. That is std's function, or the panic runtime's if std's was inlined there; in other
/// functions it may be either.
pub(super) fn caught_in(first: usize) -> [usize; 2] {
    /// The panic runtime compares an exception's class with these bytes.
    const CLASS: &[u8; 8] = b"MOZ\0RUST";
    let compares = |function: usize| {
        let code = Function::at(function).and_then(Code::of);
        code.is_some_and(|code| {
            code.from(code.function.start).windows(CLASS.len()).any(|bytes| bytes == CLASS)
        })
    };
    if compares(first) {
        return [first; 2];
    }
    match Function::at(first).and_then(|function| first_call(first, function)) {
        Some(second) if compares(second) => [first, second],
        _ => [0; 2],
    }
}

// As std declares the function. With `extern "C"` the compiler would assume that it never unwinds, also in the calls that the
// compiler makes for the landing pads of this crate (of the whole program under LTO), and would leave these calls out of the
// tables: each throw would abort.
unsafe extern "C-unwind" {
    fn _Unwind_Resume(exception: *mut c_void) -> !;
}

pub(super) fn resume() -> usize {
    _Unwind_Resume as *const () as usize
}

/// The readable code of a function.
pub(super) struct Code {
    function: Function,
    pub(super) object: Object,
}

impl Code {
    pub(super) fn of(function: Function) -> Option<Code> {
        Some(Code { object: Object::of(&function)?, function })
    }

    pub(super) fn range(&self) -> Range<usize> {
        self.function.start..self.function.end
    }

    /// Returns the code from an address in the function on.
    pub(super) fn from(&self, at: usize) -> &[u8] {
        assert!(
            self.function.start <= at && at <= self.function.end,
            "from: {at:#x} is not in {:x?}",
            self.range()
        );
        // SAFETY: `Object::of` found the function's code readable; `at` is within.
        unsafe { std::slice::from_raw_parts(at as *const u8, self.function.end - at) }
    }

    /// Returns where the distance at `at` leads, counted from its end.
    pub(super) fn destination(&self, at: usize) -> usize {
        assert!(self.from(at).len() >= 4, "destination: {at:#x} is at the end of {:x?}", self.range());
        // SAFETY: the function's code is readable, and has four bytes there.
        unsafe { destination(at) }
    }

    /// Returns the places at which a part of the code refers to `target`.
    pub(super) fn ways(&self, part: Range<usize>, target: usize) -> impl Iterator<Item = usize> {
        (part.start..part.end.saturating_sub(3))
            .filter(move |&at| self.object.leads(self.destination(at), target))
    }

    /// Returns what the call instruction at `at` calls, if there is such an instruction and it names its target.
    pub(super) fn callee(&self, at: usize) -> Option<usize> {
        match self.from(at) {
            [0xe8, _, _, _, _, ..] => self.object.through_stub(self.destination(at + 1)),
            [0xff, 0x15, _, _, _, _, ..] => self.object.word(self.destination(at + 2)),
            // Prefixes, which fill the room of a longer form of the call.
            [0x66 | 0x67 | 0x48, 0xe8, _, _, _, _, ..] => self.object.through_stub(self.destination(at + 2)),
            _ => None,
        }
    }

    /// Returns `true` if a function begins at `at`, or a stub of one.
    pub(super) fn begins_function(&self, at: usize) -> bool {
        let begins = |at: usize| Function::at(at).is_some_and(|function| function.start == at);
        begins(at) || self.object.through_stub(at).is_some_and(|to| to != at && begins(to))
    }

    fn kind(&self, target: usize) -> Kind {
        let (start, end) = (self.function.start, self.function.end);
        self.ways(start..end, target).fold(Kind::Passes, |kind, at| {
            let is_call = match self.from(at.saturating_sub(2).max(start)) {
                [0xff, 0x15, ..] | [_, 0xe8, ..] => at >= start + 2,
                _ => false,
            };
            if is_call && kind != Kind::Aborts { Kind::Depends } else { Kind::Aborts }
        })
    }

    /// Returns `true` if code that must not unwind is inlined here. Returns `false` if the landmarks do not say how a throw is
    /// caught: each `catch_unwind` would look like such code.
    ///
    /// # Safety
    /// `table` is the table of the function, and rustc made both.
    unsafe fn is_mixed(&self, table: *const u8, landmarks: &Landmarks) -> bool {
        if landmarks.caught == [0; 2] {
            return false;
        }
        // SAFETY: by this function's contract.
        let sites = || unsafe { tables::sites(table, self.function.start) };
        let pads: Vec<usize> = sites().filter_map(|site| site.pad).collect();
        let held = Held::of(self, &pads, landmarks);
        sites().any(|site| {
            site.pad.is_some_and(|pad| {
                self.range().contains(&pad)
                    && self.calls_beside_caught(site.code, held, landmarks)
                    && self.way_from(pad, &pads, landmarks) == Way::Aborts
            })
        })
    }
}
