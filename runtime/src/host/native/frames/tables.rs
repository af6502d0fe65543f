//! The compiler's tables: `.gcc_except_table` for call sites, `.eh_frame` for functions.
//!
//! ```text
//! .gcc_except_table:  u8 encoding of the pads' base, [base]         omitted: the function's start
//!                     u8 encoding of types, [uleb distance]         not needed: the sign of the type's number says all
//!                     u8 encoding of call sites, uleb length
//!                     call sites: start, length, pad (0: none), uleb action (0: Cleanup; else 1 + offset below)
//!                     actions: sleb type (0: Cleanup; > 0: Catch; < 0: Filter), sleb next
//! .eh_frame, CIE:     u32 length, u32 0, u8 version, "z…\0", uleb, sleb, register, uleb length of what follows:
//!                     for each letter: P: u8 encoding, personality · R: u8 encoding of the addresses · L: u8 encoding
//! .eh_frame, FDE:     u32 length, u32 distance back to the CIE, start, size
//! ```
//! From "DWARF Extensions" of the Linux Standard Base, and "Exception Handling ABI: level II" of the Itanium C++ ABI. This file
//! reads the forms that rustc and gcc write; any other form gives None, and None means no.

use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;

/// The first action of a call site, the one that Rust's personality acts upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The table lists no such call site: to the compiler, the call never unwinds.
    Unlisted,
    /// No landing pad.
    Nothing,
    Cleanup,
    Catch,
    Filter,
}

/// The parts of a value's encoding byte: how the value is written (low bits), what it counts from (high bits), and whether it
/// is the address of the value.
mod encoding {
    pub(super) const OMIT: u8 = 0xff;
    pub(super) const FORMAT: u8 = 0x0f;
    pub(super) const BASE: u8 = 0x70;
    pub(super) const FROM_HERE: u8 = 0x10;
    pub(super) const INDIRECT: u8 = 0x80;
}

/// Returns the action and landing pad of the call site that holds `ip`. `None` if the table is not understood.
///
/// # Safety
/// `table` is the table of the function that starts at `start`, of a personality that reads it as above.
pub(super) unsafe fn first_action(table: *const u8, start: usize, ip: usize) -> Option<(Action, usize)> {
    // SAFETY: by this function's contract.
    let mut sites = unsafe { Sites::of(table, start) }?;
    let Some(site) = sites.find(|site| site.code.contains(&ip)) else {
        return sites.were_all_read().then_some((Action::Unlisted, 0));
    };
    let action = match (site.pad, site.action) {
        (None, _) => Action::Nothing,
        (_, 0) => Action::Cleanup,
        // SAFETY: the site's action is there.
        (_, action) => match unsafe { Reader(sites.actions.wrapping_add(action - 1)).sleb() } {
            0 => Action::Cleanup,
            1.. => Action::Catch,
            _ => Action::Filter,
        },
    };
    Some((action, site.pad.unwrap_or(0)))
}

/// Returns all call sites of the table; none if the table is not understood.
///
/// # Safety
/// As of `first_action`; the contract also covers the use of the iterator.
pub(super) unsafe fn sites(table: *const u8, start: usize) -> impl Iterator<Item = Site> {
    // SAFETY: by this function's contract.
    unsafe { Sites::of(table, start) }.into_iter().flatten()
}

pub(super) struct Site {
    pub(super) code: Range<usize>,
    pub(super) pad: Option<usize>,
    action: usize,
}

/// The call sites of a table.
struct Sites {
    start: usize,
    encoding: u8,
    next: Reader,
    /// The actions, which begin where the sites end.
    actions: *const u8,
}

impl Sites {
    /// # Safety
    /// As of `first_action`; the contract also covers the use of the iterator.
    unsafe fn of(table: *const u8, start: usize) -> Option<Sites> {
        let mut next = Reader(table);
        // SAFETY: every read follows the layout that the contract promises.
        unsafe {
            if next.take::<u8>() != encoding::OMIT {
                // The landing pads are in a section of their own, where `code` does not look.
                return None;
            }
            if next.take::<u8>() != encoding::OMIT {
                next.uleb();
            }
            let encoding = next.take::<u8>();
            let length = next.uleb();
            let actions = next.0.wrapping_add(length);
            Some(Sites { start, encoding, next, actions })
        }
    }

    /// Returns `true` if the iterator has ended where the sites end, not at a site that it can't read.
    fn were_all_read(&self) -> bool {
        self.next.0 == self.actions
    }
}

impl Iterator for Sites {
    type Item = Site;

    fn next(&mut self) -> Option<Site> {
        if self.next.0 >= self.actions {
            return None;
        }
        // SAFETY: another site is here, in the layout that `of`'s caller promised.
        unsafe {
            let from = self.start.wrapping_add(self.next.offset(self.encoding)?);
            let to = from.wrapping_add(self.next.offset(self.encoding)?);
            let (pad, action) = (self.next.offset(self.encoding)?, self.next.uleb());
            let pad = (pad != 0).then(|| self.start.wrapping_add(pad));
            Some(Site { code: from..to, pad, action })
        }
    }
}

/// A function, as `.eh_frame` has it.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) personality: Option<usize>,
    pub(super) rules: Rules,
}

/// The parts of a function's entry that describe its frames, for `rows.rs`.
#[derive(Debug)]
pub(super) struct Rules {
    /// The units of the entry: bytes of code, and bytes of the frame.
    pub(super) code_unit: usize,
    pub(super) data_unit: i64,
    /// The number that stands for the return address in the entry.
    pub(super) returns: u64,
    /// The frame of a signal handler's caller.
    pub(super) of_signal: bool,
    /// The instructions that this entry shares with others, and its own.
    pub(super) common: Range<*const u8>,
    pub(super) own: Range<*const u8>,
}

/// What `_Unwind_Find_FDE` returns beside its result.
#[repr(C)]
struct Bases {
    text: *const c_void,
    data: *const c_void,
    function: *const c_void,
}

unsafe extern "C" {
    fn _Unwind_Find_FDE(pc: *const c_void, bases: *mut Bases) -> *const u8;
}

impl Function {
    /// Returns the function whose code is at `pc`. `None` if there is none, or its entry is not understood.
    pub(super) fn at(pc: usize) -> Option<Function> {
        let none = std::ptr::null();
        let mut bases = Bases { text: none, data: none, function: none };
        // SAFETY: the call reads the unwinder's own tables, and writes `bases`.
        let fde = unsafe { _Unwind_Find_FDE(pc as *const c_void, &mut bases) };
        if fde.is_null() {
            return None;
        }
        // SAFETY: an entry of a loaded object, with the layout above; it stays as long as its function is loaded.
        unsafe {
            let mut fde = Reader(fde);
            let own_end = fde.length()?;
            let field = fde.0;
            let distance = fde.take::<u32>();
            let mut cie = Reader(field.wrapping_sub(distance as usize));
            let common_end = cie.length()?;
            if cie.take::<u32>() != 0 {
                return None;
            }
            let version = cie.take::<u8>();
            let letters = CStr::from_ptr(cie.0.cast::<c_char>()).to_bytes();
            cie.0 = cie.0.wrapping_add(letters.len() + 1);
            let (code_unit, data_unit) = (cie.uleb(), cie.sleb());
            let returns = match version {
                1 => cie.take::<u8>().into(),
                3 => cie.uleb() as u64,
                _ => return None,
            };
            let (first, letters) = letters.split_first()?;
            if *first != b'z' {
                return None;
            }
            let augmented = cie.uleb();
            let common = cie.0.wrapping_add(augmented)..common_end;
            let (mut personality, mut addresses, mut of_signal) = (None, 0, false);
            for letter in letters {
                match letter {
                    b'P' => {
                        let encoding = cie.take::<u8>();
                        personality = Some(cie.pointer(encoding)?);
                    }
                    b'R' => addresses = cie.take::<u8>(),
                    b'L' => drop(cie.take::<u8>()),
                    b'S' => of_signal = true,
                    _ => return None,
                }
            }
            let start = fde.pointer(addresses)?;
            let size = fde.offset(addresses & encoding::FORMAT)?;
            let augmented = fde.uleb();
            let own = fde.0.wrapping_add(augmented)..own_end;
            let rules = Rules { code_unit, data_unit, returns, of_signal, common, own };
            Some(Function { start, end: start.checked_add(size)?, personality, rules })
        }
    }
}

/// The address of the next value.
#[derive(Clone, Copy)]
pub(super) struct Reader(pub(super) *const u8);

/// # Safety
/// Each method reads a value at the reader's address, which must be there.
impl Reader {
    pub(super) unsafe fn take<T: Copy>(&mut self) -> T {
        // SAFETY: by the contract of all these methods. Nothing in the tables is aligned.
        let value = unsafe { self.0.cast::<T>().read_unaligned() };
        self.0 = self.0.wrapping_add(size_of::<T>());
        value
    }

    /// Takes the length that an entry begins with, and returns where the entry ends. `None` if the entry is of the
    /// 64-bit form, which is not supported.
    unsafe fn length(&mut self) -> Option<*const u8> {
        // SAFETY: as in `take`.
        let length = unsafe { self.take::<u32>() };
        (length != u32::MAX).then(|| self.0.wrapping_add(length as usize))
    }

    unsafe fn leb(&mut self) -> (u64, u32, bool) {
        let (mut value, mut shift) = (0, 0);
        loop {
            // SAFETY: as in `take`.
            let byte = unsafe { self.take::<u8>() };
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            shift += 7;
            if byte & 0x80 == 0 {
                return (value, shift, byte & 0x40 != 0);
            }
        }
    }

    pub(super) unsafe fn uleb(&mut self) -> usize {
        // SAFETY: as in `take`.
        unsafe { self.leb() }.0 as usize
    }

    unsafe fn sleb(&mut self) -> i64 {
        // SAFETY: as in `take`.
        let (value, shift, negative) = unsafe { self.leb() };
        let sign = if negative { u64::MAX.checked_shl(shift).unwrap_or(0) } else { 0 };
        (value | sign) as i64
    }

    /// Takes a number in this format, without the base that it counts from.
    unsafe fn offset(&mut self, encoding: u8) -> Option<usize> {
        // SAFETY: as in `take`.
        unsafe {
            Some(match encoding {
                0x00 => self.take::<usize>(),
                0x01 => self.uleb(),
                0x02 => self.take::<u16>().into(),
                0x03 => self.take::<u32>() as usize,
                0x04 | 0x0c => self.take::<u64>() as usize,
                0x09 => self.sleb() as usize,
                0x0a => self.take::<i16>() as usize,
                0x0b => self.take::<i32>() as usize,
                _ => return None,
            })
        }
    }

    unsafe fn pointer(&mut self, encoding: u8) -> Option<usize> {
        let here = self.0.addr();
        // SAFETY: as in `take`.
        let value = unsafe { self.offset(encoding & encoding::FORMAT) }?;
        let value = match encoding & encoding::BASE {
            0 => value,
            encoding::FROM_HERE => here.wrapping_add(value),
            _ => return None,
        };
        if encoding & encoding::INDIRECT == 0 {
            return Some(value);
        }
        // SAFETY: the encoding says that the value lies there.
        Some(unsafe { (value as *const usize).read_unaligned() })
    }
}
