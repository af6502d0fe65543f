//! What a function's code says: does a landing pad lead to `panic_cannot_unwind`?
//!
//! First, the function as a whole, undecoded. A way to another function, in x86-64 code of the usual models, is four bytes:
//! the distance from their end to it, to a word of the object's data that holds its address (GOT), or to a jump through
//! such a word (PLT). Each four bytes of the code are tried. Most functions have no way there: all their landing pads
//! pass.
//!
//! Those that have one need not use it after our landing pad. An inlined `catch_unwind` has one of its own, should the
//! payload's handling panic. So the code is followed from the pad on: all jumps and branches, and past each call, until it
//! returns, traps, or calls `_Unwind_Resume`. Past another call that does not return, it is followed into what happens to
//! lie there: that can only make a no of a yes.
//! What can't be followed (a computed jump, an instruction that is not known) means no, as does a way that is no plain
//! call: the address may be in a register by then.
//!
//! The verdicts are kept in a table of words, each at once (address of the function or pad, generation, kind), so it needs
//! neither lock nor order. An address may be used again after a `dlclose`: the generation is the count of those.

use super::Landmarks;
use super::instruction::{Flow, decode};
use super::tables::Function;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// What a function with a table, or a landing pad of it, is to a throw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It may call `panic_cannot_unwind`.
    Aborts = 0,
    /// Not this program's Rust, or not understood.
    Foreign = 1,
    /// It does not call `panic_cannot_unwind`.
    Passes = 2,
    /// A function that calls it somewhere: it depends on the landing pad.
    Depends = 3,
}

/// How many objects were unloaded in this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Generation(u64);

const GENERATION_BITS: u32 = 14;
const PLACES: usize = 512;
/// From the highest bits on: the address (0: free), the generation, the kind.
static KNOWN: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

impl Generation {
    pub(super) fn now() -> Generation {
        extern "C" fn first(info: *mut libc::dl_phdr_info, size: usize, count: *mut c_void) -> c_int {
            if size >= size_of::<libc::dl_phdr_info>() {
                // SAFETY: the loader's record is that long, and `now` waits for the count.
                unsafe { *count.cast::<u64>() = (*info).dlpi_subs };
            }
            1
        }
        let mut count = 0_u64;
        // SAFETY: `first` gets the count, as it expects.
        unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut count).cast()) };
        Generation(count % (1 << GENERATION_BITS))
    }

    /// The kind of the function that starts at `start` and is on the stack of the caller.
    pub(super) fn function(self, start: usize, landmarks: &Landmarks) -> Kind {
        self.known(start, || kind(start, landmarks))
    }

    /// The kind of a landing pad of a function that `Depends`.
    pub(super) fn pad(self, pad: usize, start: usize, landmarks: &Landmarks) -> Kind {
        self.known(pad, || {
            let code = Function::at(start).and_then(Code::of);
            let passes = code.is_some_and(|code| code.passes(pad, landmarks.cannot_unwind));
            if passes { Kind::Passes } else { Kind::Aborts }
        })
    }

    /// What is kept of an address, or is found out now.
    fn known(self, address: usize, find: impl FnOnce() -> Kind) -> Kind {
        let key = (address as u64) << GENERATION_BITS | self.0;
        let place = &KNOWN[address.wrapping_mul(0x9e37_79b9) >> 20 & (PLACES - 1)];
        // Relaxed: the word says all.
        let word = place.load(Relaxed);
        if word >> 2 == key {
            return [Kind::Aborts, Kind::Foreign, Kind::Passes, Kind::Depends][word as usize & 3];
        }
        let kind = find();
        // The key of an address beyond 2^48 loses bits.
        if address >> 48 == 0 {
            // Relaxed: as above.
            place.store(key << 2 | kind as u64, Relaxed);
        }
        kind
    }
}

/// The kind of the function that starts at `start`, found out anew.
#[cold]
pub(super) fn kind(start: usize, landmarks: &Landmarks) -> Kind {
    let Some(function) = Function::at(start) else { return Kind::Foreign };
    if function.personality != Some(landmarks.personality) || function.start != start {
        return Kind::Foreign;
    }
    Code::of(function).map_or(Kind::Aborts, |code| code.kind(landmarks.cannot_unwind))
}

/// What the first call instruction from `pad` on calls, in the same function.
pub(super) fn first_call(pad: usize, function: Function) -> Option<usize> {
    let code = Code::of(function)?;
    (pad..code.function.end).find_map(|at| {
        let target = match code.from(at) {
            [0xe8, _, _, _, _, ..] => code.object.through_stub(destination(at + 1)),
            [0xff, 0x15, _, _, _, _, ..] => code.object.word(destination(at + 2)),
            _ => None,
        }?;
        // It may be a part of another instruction.
        Function::at(target).is_some_and(|called| called.start == target).then_some(target)
    })
}

/// Where the distance at `at` leads, counted from its end.
fn destination(at: usize) -> usize {
    // SAFETY: all callers read readable code.
    let distance = unsafe { (at as *const i32).read_unaligned() };
    at.wrapping_add(4).wrapping_add_signed(distance as isize)
}

// As std declares it. With `extern "C"` the compiler believed that it never unwinds, also where it calls it for the
// landing pads of this crate (of the whole program under LTO), and left these calls out of the tables: each throw aborted.
unsafe extern "C-unwind" {
    fn _Unwind_Resume(exception: *mut c_void) -> !;
}

/// The readable code of a function.
struct Code {
    function: Function,
    object: Object,
}

impl Code {
    fn of(function: Function) -> Option<Code> {
        Some(Code { object: Object::of(&function)?, function })
    }

    /// The code from an address in the function on.
    fn from(&self, at: usize) -> &[u8] {
        // SAFETY: `Object::of` found the function's code readable; `at` is within.
        unsafe { std::slice::from_raw_parts(at as *const u8, self.function.end - at) }
    }

    /// Where ways to `target` are in a part of the code.
    fn ways(&self, part: Range<usize>, target: usize) -> impl Iterator<Item = usize> {
        (part.start..part.end.saturating_sub(3)).filter(move |&at| self.object.leads(destination(at), target))
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

    /// Whether the code from `pad` on certainly does not come to `target`.
    fn passes(&self, pad: usize, target: usize) -> bool {
        const MOST: usize = 1000;
        let code = self.function.start..self.function.end;
        let mut starts = vec![pad];
        let mut next = 0;
        while let Some(&start) = starts.get(next) {
            next += 1;
            let mut at = start;
            while code.contains(&at) && (at == start || !starts.contains(&at)) {
                let Some((length, flow)) = decode(self.from(at)) else { return false };
                let end = at + length;
                if self.ways(at..end, target).next().is_some() || starts.len() > MOST {
                    return false;
                }
                if let Flow::Jump(distance) | Flow::Branch(distance) = flow {
                    let to = end.wrapping_add_signed(distance as isize);
                    if !starts.contains(&to) {
                        starts.push(to);
                    }
                }
                let resume = _Unwind_Resume as *const () as usize;
                let goes_on = match flow {
                    Flow::Next | Flow::Branch(_) => true,
                    Flow::Call => self.ways(at..end, resume).next().is_none(),
                    Flow::Jump(_) | Flow::End => false,
                };
                if !goes_on {
                    break;
                }
                at = end;
            }
        }
        true
    }
}

/// A loaded object: the program, or a library.
struct Object {
    base: usize,
    /// They lie in the object.
    headers: *const libc::Elf64_Phdr,
    count: usize,
    /// All its segments, and what lies between.
    range: Range<usize>,
}

/// A word of data, whatever it is. AddressSanitizer, which would refuse what lies between variables, does not see it.
///
/// # Safety
/// It is mapped.
#[inline]
unsafe fn peek(at: *const usize) -> usize {
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
    /// The object that holds a function. None if it can't be read there.
    fn of(function: &Function) -> Option<Object> {
        extern "C" fn each(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
            // SAFETY: `of` passed it, and waits; the record is the loader's.
            let (search, info) = unsafe { (&mut *search.cast::<Search>(), &*info) };
            let mut object = Object {
                base: info.dlpi_addr as usize,
                headers: info.dlpi_phdr,
                count: info.dlpi_phnum.into(),
                range: 0..0,
            };
            if !object.holds(search.code.clone(), libc::PF_R | libc::PF_X) {
                return 0;
            }
            let segments = || object.segments().map(|(range, _)| range);
            let low = segments().map(|range| range.start).min();
            object.range = low.unwrap_or(0)..segments().map(|range| range.end).max().unwrap_or(0);
            search.found = Some(object);
            1
        }
        struct Search {
            code: Range<usize>,
            found: Option<Object>,
        }
        let mut search = Search { code: function.start..function.end, found: None };
        // SAFETY: `each` gets the search, as it expects.
        unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut search).cast()) };
        search.found
    }

    /// Its loaded segments, with their rights.
    fn segments(&self) -> impl Iterator<Item = (Range<usize>, u32)> {
        // SAFETY: the headers are those of a loaded object: of one that the loader shows, or that has a function on
        // the caller's stack.
        let headers = unsafe { std::slice::from_raw_parts(self.headers, self.count) };
        headers.iter().filter(|header| header.p_type == libc::PT_LOAD).map(|header| {
            let start = self.base.wrapping_add(header.p_vaddr as usize);
            (start..start.wrapping_add(header.p_memsz as usize), header.p_flags)
        })
    }

    /// Whether all of `range` lies in one segment with these rights.
    fn holds(&self, range: Range<usize>, rights: u32) -> bool {
        self.segments().any(|(segment, has)| {
            has & rights == rights && segment.start <= range.start && range.end <= segment.end
        })
    }

    /// Whether the address `to`, in a function's code, is a way to `target`.
    fn leads(&self, to: usize, target: usize) -> bool {
        to == target
            || self.range.contains(&to) && (self.word(to) == Some(target) || self.stub_leads(to, target))
    }

    /// The word of the object's data at `at`.
    fn word(&self, at: usize) -> Option<usize> {
        let is_data = at.is_multiple_of(8) && self.holds(at..at.checked_add(8)?, libc::PF_R | libc::PF_W);
        // SAFETY: it lies in a segment of data, all of which is mapped, and the loader has written its words.
        is_data.then(|| unsafe { peek(at as *const usize) })
    }

    /// The bytes of the object's code at `at`.
    fn bytes(&self, at: usize) -> Option<[u8; 11]> {
        let is_code = self.holds(at..at.checked_add(11)?, libc::PF_R | libc::PF_X);
        // SAFETY: it lies in a segment of readable code.
        is_code.then(|| unsafe { (at as *const [u8; 11]).read_unaligned() })
    }

    /// The word through which a stub of the PLT jumps, if there is one at `at`.
    fn stub(&self, at: usize) -> Option<usize> {
        let jump = match self.bytes(at)? {
            [0xff, 0x25, ..] => 2,
            [0xf2, 0xff, 0x25, ..] => 3,
            [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, ..] => 6,
            [0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, ..] => 7,
            _ => return None,
        };
        Some(destination(at + jump))
    }

    /// Whether there is a stub that leads to `target`, or was not bound yet: then nobody knows. Bytes that look like a stub, but
    /// for a word that is no data, are none.
    fn stub_leads(&self, at: usize, target: usize) -> bool {
        let Some(to) = self.stub(at).and_then(|slot| self.word(slot)) else { return false };
        to == target || matches!(self.bytes(to), Some([0x68, ..] | [0xf3, 0x0f, 0x1e, 0xfa, 0x68, ..]))
    }

    /// What a call of `at` calls.
    fn through_stub(&self, at: usize) -> Option<usize> {
        match self.stub(at) {
            Some(slot) => self.word(slot),
            None => Some(at),
        }
    }
}

#[cfg(all(test, not(any(feature = "generator", not(target_arch = "x86_64")))))]
mod tests {
    use super::*;

    /// Bytes of an instruction's operand that look like a stub; a debug build had them 8 bytes behind such a distance.
    #[unsafe(naked)]
    extern "C" fn looks_like_a_stub() {
        std::arch::naked_asm!(".byte 0xff, 0x25, 0x00, 0x48, 0x8d, 0xbc, 0x24, 0xa8, 0x03, 0x00, 0x00", "ret")
    }

    /// Fails by a way: a function with such bytes in reach would never be unwound.
    #[test]
    fn what_only_looks_like_a_stub_leads_nowhere() {
        let function =
            Function::at(kind as *const () as usize).expect("a function of this program has a table");
        let object = Object::of(&function).expect("its code is readable");
        let at = looks_like_a_stub as *const () as usize;
        assert!(object.stub(at).is_some(), "it does not look like one");
        assert!(!object.leads(at, kind as *const () as usize));
    }
}
