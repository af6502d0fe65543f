//! Whether the code leads from a landing pad to the end of the throw, or to `panic_cannot_unwind`.
//!
//! All jumps and branches are followed, and the code after each call, up to the point where the throw ends for this frame:
//!
//! | the code | means |
//! | --- | --- |
//! | calls `_Unwind_Resume` | the throw goes on to the next frame |
//! | calls the function in which each `catch_unwind` takes the payload out (`Landmarks::caught`), by name or in a register that holds it (`held.rs`) | the throw is caught; what follows is ordinary code |
//! | returns, traps, jumps to the beginning of another function | the throw was caught, in a way that is not known here |
//! | comes to a way to `panic_cannot_unwind` | the process ends |
//! | holds an instruction that is not known | not known |
//!
//! A call does not return if the code after it is a landing pad, which only an unwinding enters, or if the called function has
//! no landing pads and no `ret` can be reached in it. (A function with a landing pad may catch a throw, and return from there.)
//! The code after any other call that does not return is followed as well; that can only turn a yes into a no.
//!
//! A *computed jump* is followed if it is one of a `match`: the code loads a distance from a table, adds the table's address,
//! and jumps to the sum; or it jumps through a table of addresses. The jump may lead to each entry of each table that the
//! function names anywhere. The follower looks neither for the bound of the index nor for the table that belongs to the jump. A
//! table's entries lead into its function, so reading up to the first entry that does not finds all of them, and perhaps some
//! words after them; and the function's code holds the distance to each of its tables, as to all that it names. If the code
//! loads the table's address within sight of the jump, a table must be there, in memory that is never written. Every other
//! computed jump means no.
//!
//! A throw out of a call in the landing pad is not followed: a destructor that panics while another panic unwinds ends the
//! process by `panic_in_cleanup`, whatever the frame is.

use super::Landmarks;
use super::code::{Code, resume};
use super::held::Held;
use super::instruction::{Flow, decode};
use super::tables::Function;
use std::ops::Range;

/// A function of at most so many bytes is searched for a `ret`.
const SMALL: usize = 512;

/// How a throw leaves a landing pad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Certainly not to `panic_cannot_unwind`.
    Passes,
    /// To `panic_cannot_unwind`, or to an unknown place.
    Aborts,
}

/// What the follower does after an instruction.
pub(super) enum Step {
    On,
    Stop,
}

/// One instruction on the way.
pub(super) struct Place<'a> {
    pub(super) at: usize,
    pub(super) end: usize,
    pub(super) flow: Flow,
    /// The instructions before this one through which the processor certainly passes, in their order.
    before: &'a [usize],
}

/// The places to follow from, and those that were followed.
pub(super) struct Trace {
    code: Range<usize>,
    starts: Vec<usize>,
    /// A bit for each byte of the code.
    seen: Vec<u64>,
}

impl Trace {
    pub(super) fn new(code: Range<usize>, starts: Vec<usize>) -> Trace {
        let seen = vec![0; code.len().div_ceil(64)];
        Trace { code, starts, seen }
    }

    /// Returns `true` if the trace meets this instruction for the first time.
    fn is_new(&mut self, at: usize) -> bool {
        let at = at - self.code.start;
        let (word, bit) = (&mut self.seen[at / 64], 1 << (at % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Shows each instruction to `visit`, which may add places to follow from. Returns `None` if an instruction is not
    /// known, or `visit` gave up.
    pub(super) fn follow(
        mut self,
        code: &Code,
        mut visit: impl FnMut(&mut Vec<usize>, &Place<'_>) -> Option<Step>,
    ) -> Option<()> {
        let mut before = Vec::new();
        while let Some(start) = self.starts.pop() {
            let mut at = start;
            before.clear();
            while self.code.contains(&at) && self.is_new(at) {
                let (length, flow) = decode(code.from(at))?;
                let end = at + length;
                if let Flow::Jump(distance) | Flow::Branch(distance) = flow {
                    self.starts.push(end.wrapping_add_signed(distance as isize));
                }
                match visit(&mut self.starts, &Place { at, end, flow, before: &before })? {
                    Step::On => {}
                    Step::Stop => break,
                }
                before.push(at);
                at = end;
            }
        }
        Some(())
    }
}

impl Code {
    /// Returns how a throw leaves from `pad`. `pads` are all landing pads of the function that are known.
    pub(super) fn way_from(&self, pad: usize, pads: &[usize], landmarks: &Landmarks) -> Way {
        let held = Held::of(self, pads, landmarks);
        let mut tables = None;
        let trace = Trace::new(self.range(), vec![pad]);
        let done = trace.follow(self, |starts, place| {
            if self.ways(place.at..place.end, landmarks.cannot_unwind).next().is_some() {
                return None;
            }
            self.stays_or_leaves_well(place.end, place.flow).then_some(())?;
            Some(match place.flow {
                Flow::Next | Flow::Branch(_) => Step::On,
                Flow::Return | Flow::Trap | Flow::Jump(_) => Step::Stop,
                Flow::Call if self.ways(place.at..place.end, resume()).next().is_some() => Step::Stop,
                Flow::Call => {
                    let ends = pads.contains(&place.end)
                        || self.calls_caught(place.at, held, landmarks)
                        || self.callee(place.at).is_some_and(|to| self.never_returns(to));
                    if ends { Step::Stop } else { Step::On }
                }
                Flow::Computed => {
                    self.jumps_through_table(place).then_some(())?;
                    starts.extend_from_slice(tables.get_or_insert_with(|| self.tables()));
                    Step::Stop
                }
            })
        });
        if done.is_some() { Way::Passes } else { Way::Aborts }
    }

    /// Returns `true` if the instruction that ends at `end` is no jump or branch, or leads into the function or to the
    /// beginning of another one.
    pub(super) fn stays_or_leaves_well(&self, end: usize, flow: Flow) -> bool {
        let (Flow::Jump(distance) | Flow::Branch(distance)) = flow else { return true };
        let to = end.wrapping_add_signed(distance as isize);
        self.range().contains(&to) || self.begins_function(to)
    }

    /// Returns `true` if the instruction at `at` calls a function in which a throw is caught.
    fn calls_caught(&self, at: usize, held: Held, landmarks: &Landmarks) -> bool {
        let named = self.callee(at).is_some_and(|to| landmarks.caught.contains(&to));
        named || held.is_called(self.from(at))
    }

    /// Returns `true` if a call between these addresses calls a function other than those in which a throw is caught, or an
    /// unknown one.
    pub(super) fn calls_beside_caught(&self, site: Range<usize>, held: Held, landmarks: &Landmarks) -> bool {
        let mut at = site.start;
        while site.contains(&at) && self.range().contains(&at) {
            let Some((length, flow)) = decode(self.from(at)) else { return true };
            if flow == Flow::Call && !self.calls_caught(at, held, landmarks) {
                return true;
            }
            at += length;
        }
        false
    }

    /// Returns `true` if the function that begins at `target` has no landing pads, and no `ret` can be reached in it.
    fn never_returns(&self, target: usize) -> bool {
        let Some(function) = Function::at(target).filter(|function| function.start == target) else {
            return false;
        };
        // A function with landing pads names a personality.
        if function.personality.is_some() || function.end - function.start > SMALL {
            return false;
        }
        let Some(code) = Code::of(function) else { return false };
        let trace = Trace::new(code.range(), vec![target]);
        let done = trace.follow(&code, |_, place| {
            let leaves = match place.flow {
                Flow::Return | Flow::Computed => true,
                Flow::Jump(distance) | Flow::Branch(distance) => {
                    !code.range().contains(&place.end.wrapping_add_signed(distance as isize))
                }
                Flow::Next | Flow::Call | Flow::Trap => false,
            };
            let goes_on = matches!(place.flow, Flow::Next | Flow::Call | Flow::Branch(_));
            (!leaves).then_some(if goes_on { Step::On } else { Step::Stop })
        });
        done.is_some()
    }

    /// Returns `true` if this computed jump is one of a `match`.
    pub(super) fn jumps_through_table(&self, jump: &Place<'_>) -> bool {
        let code = &self.from(jump.at)[..jump.end - jump.at];
        // Without those that change the segment.
        let is_prefix = |byte: &&u8| matches!(byte, 0x2e | 0x3e | 0x40..=0x4f | 0x66 | 0x67 | 0xf2 | 0xf3);
        let prefixes = code.iter().take_while(is_prefix).count();
        match code[prefixes..] {
            // jmp [8 * index + table]
            [0xff, 0x24, scaled, a, b, c, d] if scaled & 0xc7 == 0xc5 => {
                let table = i32::from_le_bytes([a, b, c, d]) as usize;
                self.object.far_table(table, &self.range()).next().is_some()
            }
            // jmp register
            [0xff, register @ 0xe0..=0xe7] => {
                let extended = code[..prefixes].iter().any(|prefix| prefix & 0xf1 == 0x41);
                self.sum_of_table(register & 7 | u8::from(extended) << 3, jump.before)
            }
            _ => false,
        }
    }

    /// Returns `true` if the last value that the instructions put into the register is the sum of a table's address and one of
    /// its entries. If they load that address, a table must be there.
    fn sum_of_table(&self, register: u8, before: &[usize]) -> bool {
        let mut rest = before.iter().rev().map(|&at| Shape::of(self.from(at), at));
        let Some(other) = rest.by_ref().find_map(|shape| match shape {
            Some(Shape::Add { to, from }) if to == register => Some(from),
            _ => None,
        }) else {
            return false;
        };
        let Some(base) = rest.by_ref().find_map(|shape| match shape {
            Some(Shape::Entry { to, base })
                if [(register, other), (other, register)].contains(&(to, base)) =>
            {
                Some(base)
            }
            _ => None,
        }) else {
            return false;
        };
        let table = rest.find_map(|shape| match shape {
            Some(Shape::Address { to, address }) if to == base => Some(address),
            _ => None,
        });
        table.is_none_or(|table| self.object.near_table(table, &self.range()).next().is_some())
    }

    /// Returns the places to which the entries of all tables that the function names lead.
    pub(super) fn tables(&self) -> Vec<usize> {
        let code = self.range();
        let mut to = Vec::new();
        for at in code.start..code.end.saturating_sub(3) {
            let near = self.destination(at);
            if !code.contains(&near) {
                to.extend(self.object.near_table(near, &code));
            }
            let far = self.destination(at).wrapping_sub(at.wrapping_add(4));
            to.extend(self.object.far_table(far, &code));
        }
        to.sort_unstable();
        to.dedup();
        to
    }
}

/// The instructions that compute the address of a table's entry.
enum Shape {
    /// add to, from
    Add { to: u8, from: u8 },
    /// movsxd to, dword [base + 4 * index]
    Entry { to: u8, base: u8 },
    /// lea to, [rip + distance]
    Address { to: u8, address: usize },
}

impl Shape {
    /// Returns the shape of the first instruction of `code`, which is at `at`, if it has one of these.
    fn of(code: &[u8], at: usize) -> Option<Shape> {
        let &[rex @ 0x48..=0x4f, opcode, modrm, ..] = code else { return None };
        // The fields for the registers, each extended by its bit of the prefix.
        let middle = modrm >> 3 & 7 | (rex & 4) << 1;
        let low = |field: u8| field & 7 | (rex & 1) << 3;
        match (opcode, modrm >> 6, modrm & 7) {
            (0x01, 3, _) => Some(Shape::Add { to: low(modrm), from: middle }),
            (0x03, 3, _) => Some(Shape::Add { to: middle, from: low(modrm) }),
            (0x63, 0, 4) => match code.get(3)? {
                // Without a base, which is a table of another kind.
                sib if sib & 7 == 5 => None,
                sib => (sib >> 6 == 2).then_some(Shape::Entry { to: middle, base: low(*sib) }),
            },
            // rbp and r13 as base have a distance, of zero.
            (0x63, 1, 4) => match code.get(3..5)? {
                &[sib, 0] => (sib >> 6 == 2).then_some(Shape::Entry { to: middle, base: low(sib) }),
                _ => None,
            },
            (0x8d, 0, 5) => {
                let distance = i32::from_le_bytes(code.get(3..7)?.try_into().ok()?);
                Some(Shape::Address { to: middle, address: (at + 7).wrapping_add_signed(distance as isize) })
            }
            _ => None,
        }
    }
}
