//! A loaded object, and the parts of it that may be read: code, constants, and the words that the loader has bound.
//!
//! In a writable segment only the words that hold the loader's bindings are read, and the object says where these are: memory
//! that is read-only after the relocation (`PT_GNU_RELRO`), and the words of lazily bound functions (`.got.plt`). The program
//! may protect a variable at any time, and a read of it would end the process.

use super::tables::Function;
use crate::host::native::objects;
use std::ops::Range;

/// Returns where the distance at `at` leads, counted from its end.
///
/// # Safety
/// The four bytes there are readable.
pub(super) unsafe fn destination(at: usize) -> usize {
    // SAFETY: by this function's contract.
    let distance = unsafe { (at as *const i32).read_unaligned() };
    at.wrapping_add(4).wrapping_add_signed(distance as isize)
}

/// A loaded object: the program, or a library.
pub(super) struct Object {
    base: usize,
    /// The program headers, which lie in the object.
    headers: *const libc::Elf64_Phdr,
    count: usize,
    /// All segments of the object, and the memory between them.
    range: Range<usize>,
    /// The words of lazily bound functions.
    lazy: Range<usize>,
}

/// Tags of the dynamic section that `libc` does not name.
mod tag {
    pub(super) const NULL: u64 = 0;
    /// The bytes of the relocations that belong to the words below.
    pub(super) const PLTRELSZ: u64 = 2;
    /// Where the words of lazily bound functions lie.
    pub(super) const PLTGOT: u64 = 3;
}

/// Returns the places from `at` on that are `step` apart, up to the end of all addresses: any constant in a function's code may
/// be taken for the address of a table.
fn places(at: usize, step: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(at), move |at| at.checked_add(step))
}

fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// Reads a word of data, whatever it is for. AddressSanitizer, which would refuse the bytes between variables, does not see the
/// read.
///
/// # Safety
/// The word is mapped.
#[inline]
pub(super) unsafe fn peek(at: *const usize) -> usize {
    #[cfg(not(gmp_asan))]
    // SAFETY: by this function's contract.
    unsafe {
        at.read_volatile()
    }
    #[cfg(gmp_asan)]
    {
        let word;
        // SAFETY: by this function's contract.
        unsafe { std::arch::asm!("mov {}, [{}]", out(reg) word, in(reg) at, options(nostack, readonly)) };
        word
    }
}

impl Object {
    /// Returns the object that holds a function; `None` if the object's headers can't be read.
    pub(super) fn of(function: &Function) -> Option<Object> {
        let mut found = None;
        objects::show(|record| {
            let (base, headers) = (record.base(), record.headers());
            let (headers, count) = (headers.as_ptr(), headers.len());
            let mut object = Object { base, headers, count, range: 0..0, lazy: 0..0 };
            if !object.holds(function.start..function.end, libc::PF_R | libc::PF_X) {
                return false;
            }
            let segments = || object.segments().map(|(range, _)| range);
            let low = segments().map(|range| range.start).min();
            object.range = low.unwrap_or(0)..segments().map(|range| range.end).max().unwrap_or(0);
            object.lazy = object.find_lazy().unwrap_or(0..0);
            found = Some(object);
            true
        });
        found
    }

    /// Returns the object's parts of this type, with the rights of each.
    fn parts(&self, kind: u32) -> impl Iterator<Item = (Range<usize>, u32)> {
        // SAFETY: the headers are those of a loaded object: of one that the loader shows, or that has a function on
        // the caller's stack.
        objects::parts(self.base, unsafe { std::slice::from_raw_parts(self.headers, self.count) }, kind)
    }

    /// Returns the object's loaded segments, with their rights.
    fn segments(&self) -> impl Iterator<Item = (Range<usize>, u32)> {
        self.parts(libc::PT_LOAD)
    }

    /// Returns `true` if all of `range` lies in one segment with these rights.
    fn holds(&self, range: Range<usize>, rights: u32) -> bool {
        self.segments().any(|(segment, has)| has & rights == rights && covers(&segment, &range))
    }

    /// Returns where the words of lazily bound functions lie, from the dynamic section: three words for the loader, and one
    /// for each relocation.
    fn find_lazy(&self) -> Option<Range<usize>> {
        let (dynamic, _) = self.parts(libc::PT_DYNAMIC).next()?;
        if !dynamic.start.is_multiple_of(8) || !self.holds(dynamic.clone(), libc::PF_R) {
            return None;
        }
        let (mut start, mut relocations) = (None, 0);
        for entry in dynamic.step_by(size_of::<[u64; 2]>()) {
            // SAFETY: an entry of the dynamic section of a loaded object, which the loader reads, too.
            let [tag, value] = unsafe { (entry as *const [u64; 2]).read_volatile() };
            match tag {
                tag::NULL => break,
                tag::PLTGOT => start = Some(value as usize),
                tag::PLTRELSZ => relocations = value as usize / size_of::<libc::Elf64_Rela>(),
                _ => {}
            }
        }
        // glibc has added the base to the value, other loaders have not.
        let start = start.map(|at| if self.range.contains(&at) { at } else { self.base.wrapping_add(at) })?;
        let end = start.checked_add((3 + relocations) * 8)?;
        (relocations > 0 && self.holds(start..end, libc::PF_R)).then_some(start..end)
    }

    /// Returns `true` if the loader has written these bytes, and they stay: they are no variable of the program.
    fn is_bound_by_loader(&self, range: &Range<usize>) -> bool {
        covers(&self.lazy, range) || self.parts(libc::PT_GNU_RELRO).any(|(relro, _)| covers(&relro, range))
    }

    /// Returns where the entries of the jump table at `at` lead, if there is a table. An entry is the distance from the table
    /// to a place in `code`.
    ///
    /// The table's length is not known. Entries are read as long as they lead into the code, or to its end, to which a compiler
    /// makes unused entries lead. The words after the table may be taken for more entries.
    pub(super) fn near_table(&self, at: usize, code: &Range<usize>) -> impl Iterator<Item = usize> {
        let entry = move |at: usize| {
            // SAFETY: `constant` has found that the entry lies in a segment that is readable and not writable.
            self.constant(at, 4).then(|| unsafe { (at as *const i32).read_unaligned() })
        };
        let code = code.start..=code.end;
        places(at, 4)
            .map_while(move |next| entry(next).map(|distance| at.wrapping_add_signed(distance as isize)))
            .take_while(move |to| code.contains(to))
    }

    /// Does the same as `near_table`, for a table of addresses, as in programs that are not position-independent.
    pub(super) fn far_table(&self, at: usize, code: &Range<usize>) -> impl Iterator<Item = usize> {
        let entry = move |at: usize| {
            // SAFETY: as in `near_table`.
            self.constant(at, 8).then(|| unsafe { (at as *const usize).read_unaligned() })
        };
        let code = code.start..=code.end;
        places(at, 8).map_while(entry).take_while(move |to| code.contains(to))
    }

    /// Returns `true` if an aligned constant of this size lies there.
    fn constant(&self, at: usize, size: usize) -> bool {
        let Some(end) = at.checked_add(size) else { return false };
        at.is_multiple_of(size)
            && self.holds(at..end, libc::PF_R)
            && !self.segments().any(|(segment, has)| has & libc::PF_W != 0 && segment.contains(&at))
    }

    /// Returns `true` if the address `to`, in a function's code, leads to `target`: directly, by a bound word, or by
    /// a stub.
    pub(super) fn leads(&self, to: usize, target: usize) -> bool {
        to == target
            || self.range.contains(&to) && (self.word(to) == Some(target) || self.stub_leads(to, target))
    }

    /// Returns the word at `at`, if the loader has bound it.
    pub(super) fn word(&self, at: usize) -> Option<usize> {
        let word = at..at.checked_add(8)?;
        let is_bound = at.is_multiple_of(8)
            && self.holds(word.clone(), libc::PF_R | libc::PF_W)
            && self.is_bound_by_loader(&word);
        // SAFETY: the word lies in a segment of data, all of which is mapped, and in the loader's part of that
        // segment.
        is_bound.then(|| unsafe { peek(at as *const usize) })
    }

    /// Returns the bytes of the object's code at `at`.
    fn bytes(&self, at: usize) -> Option<[u8; 11]> {
        let is_code = self.holds(at..at.checked_add(11)?, libc::PF_R | libc::PF_X);
        // SAFETY: the bytes lie in a segment of readable code.
        is_code.then(|| unsafe { (at as *const [u8; 11]).read_unaligned() })
    }

    /// Returns the word through which the PLT's stub at `at` jumps, if there is a stub.
    fn stub(&self, at: usize) -> Option<usize> {
        let jump = match self.bytes(at)? {
            [0xff, 0x25, ..] => 2,
            [0xf2, 0xff, 0x25, ..] => 3,
            [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, ..] => 6,
            [0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, ..] => 7,
            _ => return None,
        };
        // SAFETY: `bytes` read them.
        Some(unsafe { destination(at + jump) })
    }

    /// Returns `true` if there is a stub at `at` that leads to `target`, or that is not bound yet, so its target is not known.
    /// Bytes that look like a stub, but whose word is no data, are no stub.
    fn stub_leads(&self, at: usize, target: usize) -> bool {
        let Some(to) = self.stub(at).and_then(|slot| self.word(slot)) else { return false };
        to == target || matches!(self.bytes(to), Some([0x68, ..] | [0xf3, 0x0f, 0x1e, 0xfa, 0x68, ..]))
    }

    /// Returns the function that a call to `at` calls: through a stub, or `at` itself.
    pub(super) fn through_stub(&self, at: usize) -> Option<usize> {
        match self.stub(at) {
            Some(slot) => self.word(slot),
            None => Some(at),
        }
    }
}

#[cfg(all(test, target_arch = "x86_64", not(feature = "generator")))]
mod tests {
    use super::*;

    /// The operand of an instruction, whose bytes look like a stub; a debug build had such bytes 8 bytes behind a
    /// distance.
    #[unsafe(naked)]
    extern "C" fn looks_like_a_stub() {
        std::arch::naked_asm!(".byte 0xff, 0x25, 0x00, 0x48, 0x8d, 0xbc, 0x24, 0xa8, 0x03, 0x00, 0x00", "ret")
    }

    /// Fails if these bytes count as a reference: a function with such bytes in reach would never be unwound.
    #[test]
    fn what_only_looks_like_a_stub_leads_nowhere() {
        let function =
            Function::at(Object::of as *const () as usize).expect("a function of this program has a table");
        let object = Object::of(&function).expect("its code is readable");
        let at = looks_like_a_stub as *const () as usize;
        assert!(object.stub(at).is_some(), "it does not look like one");
        assert!(!object.leads(at, Object::of as *const () as usize));
    }

    /// Fails, in a build that checks sums, by a panic in the unwinder's callback, which ends the process: the constant -1 of a
    /// function's code is looked at as if it were the address of a table.
    #[test]
    fn no_table_lies_at_the_end_of_all_addresses() {
        let function =
            Function::at(Object::of as *const () as usize).expect("a function of this program has a table");
        let object = Object::of(&function).expect("its code is readable");
        for at in [usize::MAX, usize::MAX - 3, usize::MAX - 7, 0] {
            let (near, far) =
                (object.near_table(at, &(0..usize::MAX)), object.far_table(at, &(0..usize::MAX)));
            assert_eq!((near.count(), far.count()), (0, 0), "{at:x}");
        }
    }
}
