//! The frames that are known: how the walk goes on from a return address, and what a throw meets there.
//!
//! The unwinder finds the entry of each frame's function anew, and interprets the entry's instructions. That is most of a look,
//! and the result does not change: at one instruction a frame's rule is the same whenever the instruction is reached. So the
//! rules of simple frames, together with the look's findings about the call site, are kept in a table; a look walks by the
//! table alone as long as each frame is in it, and otherwise uses the unwinder.
//!
//! A frame is *simple* if its entry says this, and nothing else that the walk depends on:
//!
//! | what | the rule |
//! | --- | --- |
//! | the frame's upper end (CFA) | a fixed distance above rsp, or 16 above rbp, as in functions whose frames grow while they run |
//! | the return address | in the word below the upper end |
//! | the caller's rbp | in rbp still, or in the second word below the upper end |
//!
//! The upper end is the caller's rsp, unless the entry has a rule for rsp. So return address, rsp and rbp give those of
//! the caller, and nothing else is needed. All other frames (of signals, of variable size without rbp, with
//! expressions) are the unwinder's.
//!
//! *Only what was seen is kept.* A rule enters the table after a walk by the unwinder has got to the next frame, and only if
//! the unwinder found there the return address, rsp and rbp that the rule gives. The frame's code is in a loaded object: code
//! of a just-in-time compiler comes and goes without notice. The generation shows that an object was unloaded, as in
//! `verdicts.rs`. Beyond a frame that has no row nothing is learnt: that frame's upper end need not be the rsp of its caller.
//!
//! What a throw meets at a frame depends only on the return address, and on two things that the walk carries along: whether the
//! called frame catches, and whether a catcher beyond aborts. The table has the part that does not change. Only frames that may
//! pass are kept: a look that ends with a no was the unwinder's.
//!
//! Each entry is one word of a table like that of the verdicts (`sets.rs`). The address is found again from the number of
//! the set and the tag:
//!
//! ```text
//! set (8 bits) = low bits of the address ^ hash of the tag
//! word         = tag: the address's upper 39 bits | generation, 13 | size in 16 bytes, 9 | rbp is saved, 1 | passage, 2
//! ```
//! The size 0 means 16 above rbp; the greatest size says that the frame is not simple.

use super::object::{Object, peek};
use super::sets::Sets;
use super::tables::{Function, Rules};
use super::verdicts::{GENERATION_BITS, Generation};

/// What a throw meets at a frame that may let it pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meets {
    Nothing = 0,
    /// A call that is not listed: the throw passes if the called frame has caught.
    Unlisted = 1,
    /// A Catch that leads to no abort.
    Catch = 2,
    /// A Catch after which the function may abort.
    CatchThatAborts = 3,
}

const MEETS: [Meets; 4] = [Meets::Nothing, Meets::Unlisted, Meets::Catch, Meets::CatchThatAborts];

/// The place of a frame: an address within its call instruction, its lower end, and rbp there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) ip: usize,
    pub(super) low: usize,
    pub(super) rbp: usize,
}

/// The rule of a simple frame, and what a throw meets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// The distance from the lower end to the upper one, in units of 16 bytes; 0: the upper end is 16 above rbp.
    size: u16,
    saves_rbp: bool,
    pub(super) meets: Meets,
}

impl Row {
    /// Finds out the rule of the frame whose call is at `ip`. `None` if the frame is not simple, or belongs to no loaded
    /// object.
    fn find(ip: usize, meets: Meets) -> Option<Row> {
        let function = Function::at(ip)?;
        Object::of(&function)?;
        Row::at(ip, &function, meets)
    }

    /// Returns the rule at `ip`, which is within `function`; `None` if the frame is not simple.
    fn at(ip: usize, function: &Function, meets: Meets) -> Option<Row> {
        let rule = Rule::at(ip, function)?;
        let saves_rbp = match rule.rbp {
            Saved::Not => false,
            Saved::At(-16) => true,
            Saved::At(_) | Saved::Lost => return None,
        };
        let size = match rule.upper {
            (RBP, 16) => 0,
            (RSP, distance) if distance > 0 && distance % 16 == 0 => (distance / 16).try_into().ok()?,
            _ => return None,
        };
        (rule.returns == Saved::At(-8) && size < TOO_LARGE).then_some(Row { size, saves_rbp, meets })
    }

    /// Returns the caller's place.
    ///
    /// # Safety
    /// The rule is that of the frame at `place`, which is on the calling thread's stack.
    #[inline]
    pub(super) unsafe fn caller_of(self, place: Place) -> Place {
        let upper = match self.size {
            0 => place.rbp.wrapping_add(16),
            size => place.low.wrapping_add(usize::from(size) * 16),
        };
        // SAFETY: by this function's contract both words lie in the frame.
        unsafe {
            let ip = peek((upper - 8) as *const usize).wrapping_sub(1);
            let rbp = if self.saves_rbp { peek((upper - 16) as *const usize) } else { place.rbp };
            Place { ip, low: upper, rbp }
        }
    }
}

const RBP: u64 = 6;
const RSP: u64 = 7;

/// Where the value of a register in the caller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Saved {
    /// In the register.
    Not,
    /// At this distance from the frame's upper end.
    At(i64),
    /// Nowhere: if this is the return address, the walk ends here.
    Lost,
}

/// The part of a function's entry for one instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// A register, and the distance from it to the frame's upper end.
    upper: (u64, i64),
    returns: Saved,
    rbp: Saved,
}

/// How deep an entry may nest remembered states; the compilers nest once.
const DEEPEST: usize = 4;

impl Rule {
    #[cfg(all(test, target_arch = "x86_64", not(feature = "generator")))]
    pub(super) fn of(ip: usize) -> Option<Rule> {
        Rule::at(ip, &Function::at(ip)?)
    }

    /// Interprets the entry's instructions. `None` for those that simple frames do not need.
    fn at(ip: usize, function: &Function) -> Option<Rule> {
        let rules = &function.rules;
        if rules.of_signal || !(function.start..function.end).contains(&ip) {
            return None;
        }
        let mut first = Rule { upper: (0, 0), returns: Saved::Not, rbp: Saved::Not };
        first.run(&rules.common, rules, None)?;
        let mut rule = first;
        rule.run(&rules.own, rules, Some((function.start, ip, first)))?;
        Some(rule)
    }

    /// `until`: the beginning of the function, the instruction in question, and the rule before the first one.
    fn run(
        &mut self,
        program: &std::ops::Range<*const u8>,
        rules: &Rules,
        until: Option<(usize, usize, Rule)>,
    ) -> Option<()> {
        let (mut at, mut remembered, mut deep) = (until.map_or(0, |(start, ..)| start), [*self; DEEPEST], 0);
        let mut next = super::tables::Reader(program.start);
        while next.0 < program.end {
            // SAFETY: the instructions of a loaded object's entry, as the unwinder reads them.
            unsafe {
                let code = next.take::<u8>();
                let low = u64::from(code & 0x3f);
                match (code >> 6, code) {
                    (1, _) => at = self.advance(at, low as usize, rules, until)?,
                    (2, _) => self.save(low, Some(next.uleb()), rules)?,
                    (3, _) => self.restore(low, until?.2, rules)?,
                    (_, 0x00) => {}
                    (_, 0x02) => at = self.advance(at, next.take::<u8>().into(), rules, until)?,
                    (_, 0x03) => at = self.advance(at, next.take::<u16>().into(), rules, until)?,
                    (_, 0x04) => at = self.advance(at, next.take::<u32>() as usize, rules, until)?,
                    (_, 0x05) => self.save(next.uleb() as u64, Some(next.uleb()), rules)?,
                    (_, 0x06) => self.restore(next.uleb() as u64, until?.2, rules)?,
                    // The switch of goroutines makes the walk end within it.
                    (_, 0x07) => self.set(next.uleb() as u64, Saved::Lost, rules)?,
                    (_, 0x08) => self.save(next.uleb() as u64, None, rules)?,
                    (_, 0x0a) => {
                        *remembered.get_mut(deep)? = *self;
                        deep += 1;
                    }
                    (_, 0x0b) => {
                        deep = deep.checked_sub(1)?;
                        *self = remembered[deep];
                    }
                    (_, 0x0c) => self.upper = (next.uleb() as u64, next.uleb() as i64),
                    (_, 0x0d) => self.upper.0 = next.uleb() as u64,
                    (_, 0x0e) => self.upper.1 = next.uleb() as i64,
                    // The size of pushed arguments, which a throw takes from the stack at a landing pad.
                    (_, 0x2e) => drop(next.uleb()),
                    _ => return None,
                }
            }
            if until.is_some_and(|(_, ip, _)| at > ip) {
                return Some(());
            }
        }
        Some(())
    }

    /// Returns the place to which the entry goes on.
    fn advance(
        &self,
        at: usize,
        units: usize,
        rules: &Rules,
        until: Option<(usize, usize, Rule)>,
    ) -> Option<usize> {
        until?;
        at.checked_add(units.checked_mul(rules.code_unit)?)
    }

    fn save(&mut self, register: u64, units: Option<usize>, rules: &Rules) -> Option<()> {
        let saved = units.map_or(Saved::Not, |units| Saved::At((units as i64).wrapping_mul(rules.data_unit)));
        self.set(register, saved, rules)
    }

    fn restore(&mut self, register: u64, first: Rule, rules: &Rules) -> Option<()> {
        let saved = if register == rules.returns { first.returns } else { first.rbp };
        self.set(register, saved, rules)
    }

    /// Returns `None` for rsp: then the frame's upper end is not the caller's rsp.
    fn set(&mut self, register: u64, saved: Saved, rules: &Rules) -> Option<()> {
        if register == rules.returns {
            self.returns = saved;
        } else if register == RBP {
            self.rbp = saved;
        }
        (register != RSP).then_some(())
    }
}

const MEETS_BITS: u32 = 2;
const SIZE_BITS: u32 = 9;
/// The first bit of the generation.
const GENERATION_AT: u32 = MEETS_BITS + 1 + SIZE_BITS;
const TAG_AT: u32 = GENERATION_AT + GENERATION_BITS;
const SETS: usize = 256;
const SET_BITS: u32 = Sets::<SETS>::BITS;
/// What stands for the size of a frame that is not simple.
const TOO_LARGE: u16 = (1 << SIZE_BITS) - 1;
const NOT_SIMPLE: u64 = (TOO_LARGE as u64) << (MEETS_BITS + 1);

struct Rows(Sets<SETS>);

/// The rows of this process.
static KNOWN: Rows = Rows::new();

/// What is known of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    NotSimple,
    Is(Row),
}

impl Rows {
    const fn new() -> Rows {
        Rows(Sets::new())
    }

    /// Returns the number of an address's set, and the upper bits of its word.
    #[inline]
    fn place(generation: Generation, ip: usize) -> (u64, u64) {
        let tag = ip as u64 >> SET_BITS;
        let set = (ip as u64 ^ Sets::<SETS>::hash(tag)) % SETS as u64;
        (set, (tag << GENERATION_BITS | generation.number()) << GENERATION_AT)
    }

    #[inline]
    fn get(&self, generation: Generation, ip: usize) -> Known {
        if !generation.keeps() {
            return Known::Nothing;
        }
        let (set, upper) = Rows::place(generation, ip);
        let is_it = |word| word >> GENERATION_AT == upper >> GENERATION_AT && word != 0;
        let Some(word) = self.0.find(set, is_it).filter(|_| has_room(ip)) else {
            return Known::Nothing;
        };
        let size = (word >> (MEETS_BITS + 1)) as u16 & TOO_LARGE;
        if size == TOO_LARGE {
            return Known::NotSimple;
        }
        let saves_rbp = word >> MEETS_BITS & 1 != 0;
        Known::Is(Row { size, saves_rbp, meets: MEETS[word as usize & ((1 << MEETS_BITS) - 1)] })
    }

    fn keep(&self, generation: Generation, ip: usize, row: Option<Row>) {
        if !generation.keeps() || !has_room(ip) || self.get(generation, ip) != Known::Nothing {
            return;
        }
        let (set, upper) = Rows::place(generation, ip);
        let lower = row.map_or(NOT_SIMPLE, |row| {
            u64::from(row.size) << (MEETS_BITS + 1)
                | u64::from(row.saves_rbp) << MEETS_BITS
                | row.meets as u64
        });
        self.0.keep(set, upper | lower);
    }
}

/// Returns `true` if the address's tag has room in a word, as for all addresses in the user's half.
#[inline]
fn has_room(ip: usize) -> bool {
    ip >> (u64::BITS - TAG_AT + SET_BITS) == 0
}

impl Generation {
    /// Returns the row that is kept for the frame with this call, if there is one.
    #[inline]
    pub(super) fn row(self, ip: usize) -> Option<Row> {
        match KNOWN.get(self, ip) {
            Known::Is(row) => Some(row),
            Known::Nothing | Known::NotSimple => None,
        }
    }
}

/// A row that will be kept if the unwinder finds the caller where the row has it.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    ip: usize,
    row: Row,
    caller: Place,
}

impl Candidate {
    /// Makes the candidate for the frame at `place`, which the unwinder shows now. `meets` is `None` if the look must not pass
    /// the frame. Returns `None` if the frame can't be in the table, or is there already.
    ///
    /// # Safety
    /// The frame is on the calling thread's stack.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn of(place: Place, meets: Option<Meets>, generation: Generation) -> Option<Candidate> {
        if KNOWN.get(generation, place.ip) != Known::Nothing {
            return None;
        }
        // Not by closures: a look must take little stack, in debug builds as well.
        let row = match meets {
            Some(meets) => Row::find(place.ip, meets),
            None => None,
        };
        let Some(row) = row else {
            KNOWN.keep(generation, place.ip, None);
            return None;
        };
        // SAFETY: by this function's contract; the rule is the one that the unwinder reads, too.
        Some(Candidate { ip: place.ip, row, caller: unsafe { row.caller_of(place) } })
    }

    /// Keeps the row if `caller`, which the unwinder has found, is where the row has it. Returns `true` if so.
    pub(super) fn check(self, caller: Place, generation: Generation) -> bool {
        let is_right = self.caller == caller;
        KNOWN.keep(generation, self.ip, is_right.then_some(self.row));
        is_right
    }
}

#[cfg(test)]
mod tests {
    use super::super::sets::WAYS;
    use super::*;

    const ROW: Row = Row { size: 5, saves_rbp: true, meets: Meets::Catch };

    /// Fails by a row that belongs to another address, generation or size: the walk would leave the stack.
    #[test]
    fn each_address_has_its_own_row() {
        let (rows, generation) = (Rows::new(), Generation::numbered(3));
        // More than the table has places for.
        let addresses = || (0x5555_5555_4000..).step_by(7).take(1 << 13);
        for ip in addresses() {
            let row = Row { size: ip as u16 % TOO_LARGE, saves_rbp: ip & 1 != 0, meets: MEETS[ip % 4] };
            rows.keep(generation, ip, Some(row));
            assert_eq!(rows.get(generation, ip), Known::Is(row), "at {ip:#x}");
        }
        let mut kept = 0;
        for ip in addresses() {
            let row = Row { size: ip as u16 % TOO_LARGE, saves_rbp: ip & 1 != 0, meets: MEETS[ip % 4] };
            let known = rows.get(generation, ip);
            assert!(known == Known::Nothing || known == Known::Is(row), "at {ip:#x}: {known:?}");
            kept += usize::from(known != Known::Nothing);
            assert_eq!(rows.get(Generation::numbered(4), ip), Known::Nothing);
        }
        assert_eq!(kept, WAYS << SET_BITS);
    }

    /// Fails where the upper bits of an address are lost, or a frame that is not simple has a row.
    #[test]
    fn what_has_no_room_is_not_kept() {
        let (rows, generation) = (Rows::new(), Generation::numbered(0));
        rows.keep(generation, 1 << 47, Some(ROW));
        assert_eq!(rows.get(generation, 1 << 47), Known::Nothing);
        rows.keep(generation, (1 << 47) - 1, Some(ROW));
        assert_eq!(rows.get(generation, (1 << 47) - 1), Known::Is(ROW));
        rows.keep(generation, 0x1000, None);
        assert_eq!(rows.get(generation, 0x1000), Known::NotSimple);
    }
}
