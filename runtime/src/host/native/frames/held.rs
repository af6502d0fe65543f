//! Which registers hold the function in which each `catch_unwind` takes the payload out.
//!
//! If a `catch_unwind` is in a loop, LLVM loads that function's address once, before the loop, and the landing pad calls a
//! register. Such a call counts as a catch if nothing else can be in that register:
//!
//! 1. The register is one of rbx, rbp, r12 to r15. The ABI makes each function restore these, so no call changes them; and the
//!    unwinder enters a landing pad with the values that they had in this frame at the call that throws.
//! 2. All code of the function that can be reached, from its beginning and from each landing pad, is followed. Each instruction
//!    there that names the register, in any part, is a load of that address, a call of the register, a push of it, or a pop
//!    after which only a straight way out of the function follows. No instruction writes r12 to r15 without naming them; only
//!    `leave` writes rbp so, and `cpuid` rbx: these two count as naming them. So the register holds that address, or what the
//!    function's caller had in the register.
//! 3. The function does not call the caller's value: no caller passes anything in these registers, and a compiler reads such a
//!    register before its first write only to save it.
//!
//! If an instruction, or the destination of a jump, is not known, no register is known.

use super::Landmarks;
use super::code::Code;
use super::flow::{Step, Trace};
use super::instruction::{Flow, decode, is_prefix};

const RBX: u8 = 3;
const RBP: u8 = 5;
/// The registers, by number.
const REGISTERS: [u8; 6] = [RBX, RBP, 12, 13, 14, 15];

/// For each of `REGISTERS`, whether it holds that function's address wherever it is called.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held([bool; REGISTERS.len()]);

/// What an instruction does to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// The instruction does not name the register.
    Nothing,
    Push,
    Pop,
    Call,
    /// `mov` into the register, from this distance behind the instruction.
    Load(i32),
    /// `lea` of an address at this distance behind the instruction.
    Address(i32),
    /// Another instruction that may write the register.
    Other,
}

/// Which of `REGISTERS` this instruction calls.
fn called(code: &[u8]) -> Option<usize> {
    let register = match code {
        [0x41, 0xff, modrm @ 0xd0..=0xd7, ..] => modrm & 7 | 8,
        [0xff, modrm @ 0xd0..=0xd7, ..] => modrm & 7,
        _ => return None,
    };
    REGISTERS.iter().position(|&other| other == register)
}

impl Held {
    /// For the function whose code this is. `pads` are all of its landing pads.
    pub(super) fn of(code: &Code, pads: &[usize], landmarks: &Landmarks) -> Held {
        let mut held = Held::default();
        let range = code.range();
        let calls_any = range.clone().any(|at| called(code.from(at)).is_some());
        if landmarks.caught == [0; 2] || !calls_any {
            return held;
        }
        let (mut tables, mut spoilt, mut loaded) = (None, [false; REGISTERS.len()], [false; REGISTERS.len()]);
        let starts = pads.iter().copied().chain([range.start]).collect();
        let done = Trace::new(range, starts).follow(code, |starts, place| {
            let bytes = &code.from(place.at)[..place.end - place.at];
            for (register, &number) in REGISTERS.iter().enumerate() {
                let is_sound = match Use::of(bytes, number) {
                    Use::Nothing | Use::Push | Use::Call => true,
                    Use::Pop => code.goes_straight_out(place.end),
                    Use::Load(distance) => {
                        let word = code.object.word(place.end.wrapping_add_signed(distance as isize));
                        loaded[register] = true;
                        word.is_some_and(|to| landmarks.caught.contains(&to))
                    }
                    Use::Address(distance) => {
                        let to = place.end.wrapping_add_signed(distance as isize);
                        loaded[register] = true;
                        landmarks.caught.contains(&to)
                    }
                    Use::Other => false,
                };
                spoilt[register] |= !is_sound;
            }
            code.stays_or_leaves_well(place.end, place.flow).then_some(())?;
            Some(match place.flow {
                Flow::Next | Flow::Branch(_) | Flow::Call => Step::On,
                Flow::Return | Flow::Trap | Flow::Jump(_) => Step::Stop,
                Flow::Computed => {
                    code.jumps_through_table(place).then_some(())?;
                    starts.extend_from_slice(tables.get_or_insert_with(|| code.tables()));
                    Step::Stop
                }
            })
        });
        if done.is_some() {
            held.0 = std::array::from_fn(|register| loaded[register] && !spoilt[register]);
        }
        held
    }

    /// Returns `true` if this instruction calls a register that holds the address.
    pub(super) fn is_called(self, code: &[u8]) -> bool {
        called(code).is_some_and(|register| self.0[register])
    }
}

impl Code {
    /// Returns `true` if the code from `at` on leaves the function without a call, a branch, or a jump within.
    fn goes_straight_out(&self, mut at: usize) -> bool {
        while self.range().contains(&at) {
            let Some((length, flow)) = decode(self.from(at)) else { return false };
            at += length;
            match flow {
                Flow::Next => {}
                Flow::Return => return true,
                Flow::Jump(distance) => {
                    return !self.range().contains(&at.wrapping_add_signed(distance as isize));
                }
                Flow::Call | Flow::Branch(_) | Flow::Computed | Flow::Trap => return false,
            }
        }
        false
    }
}

impl Use {
    /// Returns what the instruction at the beginning of `code` does to `register`, one of `REGISTERS`.
    fn of(code: &[u8], register: u8) -> Use {
        let (low, is_low) = (register & 7, register < 8);
        // The prefixes by which an instruction with one operand, and one with two, name the register.
        let (short, wide): (&[u8], u8) = if is_low { (&[], 0x48) } else { (&[0x41], 0x4c) };
        match code.strip_prefix(short) {
            Some(&[opcode]) if opcode == 0x50 | low => return Use::Push,
            Some(&[opcode]) if opcode == 0x58 | low => return Use::Pop,
            Some(&[0xff, modrm]) if modrm == 0xd0 | low => return Use::Call,
            _ => {}
        }
        if let [rex, opcode @ (0x8b | 0x8d), modrm, distance @ ..] = code
            && (*rex, *modrm) == (wide, 5 | low << 3)
            && let Ok(distance) = distance.try_into()
        {
            let distance = i32::from_le_bytes(distance);
            return if *opcode == 0x8b { Use::Load(distance) } else { Use::Address(distance) };
        }
        let names = match is_low {
            true => may_name_low(code, register),
            false => Names::of(code).is_none_or(|names| names.contain(register)),
        };
        if names { Use::Other } else { Use::Nothing }
    }
}

fn without_prefixes(code: &[u8]) -> &[u8] {
    &code[code.iter().take_while(|&&byte| is_prefix(byte)).count()..]
}

/// Returns `true` if an instruction may write `register`, rbx or rbp, or names it. An opcode that is not decoded here counts as
/// doing so.
fn may_name_low(code: &[u8], register: u8) -> bool {
    let code = without_prefixes(code);
    let (rex, code) = match *code {
        [rex @ 0x40..=0x4f, ref rest @ ..] => (Some(rex), rest),
        _ => (None, code),
    };
    Low { register, rex }.may_be_named(code)
}

/// One of rbx and rbp, and the REX prefix of the instruction that may name the register.
struct Low {
    register: u8,
    rex: Option<u8>,
}

impl Low {
    fn bits(&self) -> u8 {
        self.rex.unwrap_or(0)
    }

    /// Returns `true` if a field of three bits, extended by `bit` of the prefix, names the register.
    fn is(&self, field: u8, bit: u8, is_byte: bool) -> bool {
        // In an operand of one byte without the prefix, 4 to 7 stand for the second bytes of rax, rcx, rdx and rbx.
        let number = if is_byte && self.rex.is_none() { field & 3 } else { field };
        bit == 0 && number == self.register
    }

    /// Returns `true` if the operands that begin with the ModRM byte name the register. `has_middle`: the middle
    /// field is an operand.
    fn is_operand(&self, operands: &[u8], is_byte: bool, has_middle: bool) -> bool {
        let Some(&modrm) = operands.first() else { return true };
        let bits = self.bits();
        let (mode, middle, low) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
        let named = match (mode, low, operands.get(1)) {
            (3, ..) => self.is(low, bits & 1, is_byte),
            (_, 4, None) => true,
            (_, 4, Some(sib)) => {
                // Mode 0 with 5 has no base; an index of 4 is none.
                let base = !(mode == 0 && sib & 7 == 5) && self.is(sib & 7, bits & 1, false);
                base || self.is(sib >> 3 & 7, bits >> 1 & 1, false)
            }
            // An address relative to the instruction.
            (0, 5, _) => false,
            _ => self.is(low, bits & 1, false),
        };
        named || has_middle && self.is(middle, bits >> 2 & 1, is_byte)
    }

    /// `code` begins with the opcode.
    fn may_be_named(&self, code: &[u8]) -> bool {
        match *code {
            [0x0f, ref rest @ ..] => self.may_be_named_by_two(rest),
            [0x62 | 0xc4 | 0xc5, ..] => true,
            // Arithmetic with two operands, or with a constant and rax.
            [opcode @ 0x00..=0x3f, ref rest @ ..] if opcode & 7 < 4 => {
                self.is_operand(rest, opcode & 1 == 0, true)
            }
            [0x00..=0x3f, ..] => false,
            [opcode @ (0x50..=0x5f | 0x90..=0x97), ..] => self.is(opcode & 7, self.bits() & 1, false),
            [opcode @ 0xb0..=0xb7, ..] => self.is(opcode & 7, self.bits() & 1, true),
            [opcode @ 0xb8..=0xbf, ..] => self.is(opcode & 7, self.bits() & 1, false),
            [0x63 | 0x69 | 0x6b | 0x85 | 0x87 | 0x89 | 0x8b | 0x8d, ref rest @ ..] => {
                self.is_operand(rest, false, true)
            }
            [0x84 | 0x86 | 0x88 | 0x8a, ref rest @ ..] => self.is_operand(rest, true, true),
            // The middle field belongs to the opcode.
            [0x80 | 0xc0 | 0xc6 | 0xd0 | 0xd2 | 0xf6 | 0xfe, ref rest @ ..] => {
                self.is_operand(rest, true, false)
            }
            [0x81 | 0x83 | 0xc1 | 0xc7 | 0xd1 | 0xd3 | 0xf7 | 0xff, ref rest @ ..] => {
                self.is_operand(rest, false, false)
            }
            // Constants pushed or tested with rax, jumps, calls, returns, string moves, widening rax, traps.
            [
                0x68 | 0x6a | 0xa8 | 0xa9 | 0x70..=0x7f | 0xe8 | 0xe9 | 0xeb | 0xc2 | 0xc3 | 0xcc | 0xf4,
                ..,
            ] => false,
            [0x98 | 0x99 | 0xa4..=0xa7 | 0xaa..=0xaf, ..] => false,
            _ => true,
        }
    }

    /// `code` begins with the second byte of a two-byte opcode, behind 0x0f.
    fn may_be_named_by_two(&self, code: &[u8]) -> bool {
        match *code {
            // Between vector registers, or from or to memory.
            [0x10 | 0x11 | 0x28 | 0x29 | 0x6f | 0x7f, ref rest @ ..] => self.is_operand(rest, false, false),
            // A move of a byte or word that is widened; a condition; a no-operation.
            [0xb6 | 0xbe, ref rest @ ..] => {
                self.is_operand(rest, true, true) || self.is_operand(rest, false, true)
            }
            [0xb7 | 0xbf | 0x40..=0x4f | 0xaf, ref rest @ ..] => self.is_operand(rest, false, true),
            [0x90..=0x9f, ref rest @ ..] => self.is_operand(rest, true, false),
            [0x1f, ..] | [0x0b] | [0x80..=0x8f, _, _, _, _] => false,
            // pmovmskb, and what works on vector registers alone.
            [0xd7, ref rest @ ..] => self.is_operand(rest, false, true),
            [0x54..=0x5f | 0x60..=0x6d | 0x74..=0x76 | 0xd4 | 0xdb | 0xeb | 0xef | 0xfe, ref rest @ ..] => {
                self.is_operand(rest, false, false)
            }
            _ => true,
        }
    }
}

/// The registers from r8 on that an instruction names, in any part; a vector register counts as the one of its number.
/// No instruction uses one of these without naming it. Such a name takes a bit of a prefix (REX, VEX, EVEX).
struct Names([Option<u8>; 4]);

impl Names {
    /// Returns `None` if the instruction is not known.
    fn of(code: &[u8]) -> Option<Names> {
        match *without_prefixes(code) {
            [rex @ 0x40..=0x4f, 0x0f, 0x38 | 0x3a, _, ref operands @ ..] => Names::by_modrm(rex, operands),
            [rex @ 0x40..=0x4f, 0x0f, opcode @ 0xc8..=0xcf, ..] => Some(Names::by_opcode(rex, opcode)),
            [rex @ 0x40..=0x4f, 0x0f, _, ref operands @ ..] => Names::by_modrm(rex, operands),
            [rex @ 0x40..=0x4f, opcode @ (0x50..=0x5f | 0x90..=0x97 | 0xb0..=0xbf), ..] => {
                Some(Names::by_opcode(rex, opcode))
            }
            // Some of these have no ModRM byte; then an operand or nothing follows, and only W of the prefix has a meaning.
            [0x40 | 0x48, ..] => Some(Names([None; 4])),
            [rex @ 0x41..=0x4f, _, ref operands @ ..] => Names::by_modrm(rex, operands),
            // The bits of a VEX prefix are inverted. The short form has only that of the middle field.
            [0xc5, bits, _, ref operands @ ..] => Names::by_vector(!bits >> 7 << 2, bits, operands),
            [0xc4, first, bits, _, ref operands @ ..] => Names::by_vector(!first >> 5, bits, operands),
            [0x62 | 0xc4 | 0xc5, ..] => None,
            _ => Some(Names([None; 4])),
        }
    }

    fn by_opcode(rex: u8, opcode: u8) -> Names {
        Names([extended(opcode, rex & 1), None, None, None])
    }

    fn by_modrm(rex: u8, operands: &[u8]) -> Option<Names> {
        let modrm = *operands.first()?;
        let has_index = modrm >> 6 != 3 && modrm & 7 == 4;
        let (low, index) = match has_index.then(|| operands.get(1)) {
            None => (modrm, None),
            Some(sib) => (*sib?, extended(*sib? >> 3, rex >> 1 & 1)),
        };
        Some(Names([extended(modrm >> 3, rex >> 2 & 1), extended(low, rex & 1), index, None]))
    }

    /// `bits` has the fourth register, inverted, from bit 3 on.
    fn by_vector(rex: u8, bits: u8, operands: &[u8]) -> Option<Names> {
        let mut names = Names::by_modrm(rex, operands)?;
        names.0[3] = Some(!bits >> 3 & 15);
        Some(names)
    }

    fn contain(&self, register: u8) -> bool {
        self.0.contains(&Some(register))
    }
}

/// Returns the register of a field, if the prefix extends the field.
fn extended(field: u8, bit: u8) -> Option<u8> {
    (bit == 1).then_some(field & 7 | 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails by an instruction that changes a register unseen.
    #[test]
    fn what_may_write_a_register_is_seen() {
        let cases: &[(&[u8], u8, Use)] = &[
            (&[0x41, 0x55], 13, Use::Push),
            (&[0x41, 0x5d], 13, Use::Pop),
            (&[0x5d], 13, Use::Nothing),
            (&[0x41, 0xff, 0xd5], 13, Use::Call),
            (&[0xff, 0xd5], 13, Use::Nothing),
            (&[0x4c, 0x8b, 0x2d, 1, 0, 0, 0], 13, Use::Load(1)),
            (&[0x4c, 0x8d, 0x2d, 1, 0, 0, 0], 13, Use::Address(1)),
            // mov r13d, [rip + 1]; movabs r13; mov r13d, 1; mov r13b, 1; xor r13d, r13d; inc r13
            (&[0x44, 0x8b, 0x2d, 1, 0, 0, 0], 13, Use::Other),
            (&[0x49, 0xbd, 0, 0, 0, 0, 0, 0, 0, 0], 13, Use::Other),
            (&[0x41, 0xbd, 1, 0, 0, 0], 13, Use::Other),
            (&[0x41, 0xb5, 1], 13, Use::Other),
            (&[0x45, 0x31, 0xed], 13, Use::Other),
            (&[0x49, 0xff, 0xc5], 13, Use::Other),
            // xchg r13, rax; bswap r13; pop by its long form; sete r13b; cmovne r13, rax; lea r13, [rsp + 8]
            (&[0x49, 0x95], 13, Use::Other),
            (&[0x49, 0x0f, 0xcd], 13, Use::Other),
            (&[0x41, 0x8f, 0xc5], 13, Use::Other),
            (&[0x41, 0x0f, 0x94, 0xc5], 13, Use::Other),
            (&[0x4c, 0x0f, 0x45, 0xe8], 13, Use::Other),
            (&[0x4c, 0x8d, 0x6c, 0x24, 8], 13, Use::Other),
            // popcnt r13, rax; crc32 r13d, al; xadd [rax], r13 with a lock
            (&[0xf3, 0x4c, 0x0f, 0xb8, 0xe8], 13, Use::Other),
            (&[0xf2, 0x44, 0x0f, 0x38, 0xf0, 0xe8], 13, Use::Other),
            (&[0xf0, 0x4c, 0x0f, 0xc1, 0x28], 13, Use::Other),
            // andn r13, rax, rcx; blsr r13, rax, which has it in the fourth place; mulx r13, rcx, rax; one of EVEX
            (&[0xc4, 0x62, 0xf8, 0xf2, 0xe9], 13, Use::Other),
            (&[0xc4, 0xe2, 0x90, 0xf3, 0xc8], 13, Use::Other),
            (&[0xc4, 0x62, 0xf3, 0xf6, 0xe8], 13, Use::Other),
            (&[0x62, 0xf1, 0x7c, 0x48, 0x10, 0x44, 0x24, 0x01], 13, Use::Other),
            // vmovups ymm0, [rsp + 8]; vpmovmskb r13d, xmm0; vpmovmskb eax, xmm0
            (&[0xc5, 0xfc, 0x10, 0x44, 0x24, 8], 13, Use::Nothing),
            (&[0xc5, 0x79, 0xd7, 0xe8], 13, Use::Other),
            (&[0xc5, 0xf9, 0xd7, 0xc0], 13, Use::Nothing),
            // mov [r13 + 8 * rax], rcx only reads it; r12 as a base; no prefix of an index.
            (&[0x49, 0x89, 0x4c, 0xc5, 0], 13, Use::Other),
            (&[0x49, 0x89, 0x0c, 0x24], 12, Use::Other),
            (&[0x48, 0x89, 0x4c, 0x24, 8], 12, Use::Nothing),
            // cdqe; call; mov rdi, rbp; mov r8, rbp; push r12
            (&[0x48, 0x98], 13, Use::Nothing),
            (&[0x48, 0xe8, 0x2d, 0x2d, 0x2d, 0x2d], 13, Use::Nothing),
            (&[0x48, 0x89, 0xef], 13, Use::Nothing),
            (&[0x49, 0x89, 0xe8], 13, Use::Nothing),
            (&[0x41, 0x54], 13, Use::Nothing),
        ];
        for &(code, register, expected) in cases {
            assert_eq!(Use::of(code, register), expected, "r{register} in {code:02x?}");
        }
    }

    /// Fails by an instruction that changes rbx or rbp unseen.
    #[test]
    fn what_may_write_a_register_without_a_prefix_is_seen() {
        let cases: &[(&[u8], [Use; 2])] = &[
            // push rbx; push rbp; push r13; pop rbx; pop rbp; pop r13
            (&[0x53], [Use::Push, Use::Nothing]),
            (&[0x55], [Use::Nothing, Use::Push]),
            (&[0x41, 0x55], [Use::Nothing, Use::Nothing]),
            (&[0x5b], [Use::Pop, Use::Nothing]),
            (&[0x5d], [Use::Nothing, Use::Pop]),
            (&[0x41, 0x5d], [Use::Nothing, Use::Nothing]),
            // call rbx; call rbp; call r13; call [rbx]; call [rip + 1]
            (&[0xff, 0xd3], [Use::Call, Use::Nothing]),
            (&[0xff, 0xd5], [Use::Nothing, Use::Call]),
            (&[0x41, 0xff, 0xd5], [Use::Nothing, Use::Nothing]),
            (&[0xff, 0x13], [Use::Other, Use::Nothing]),
            (&[0xff, 0x15, 1, 0, 0, 0], [Use::Nothing, Use::Nothing]),
            // mov rbx, [rip + 1]; mov rbp, [rip + 1]; lea rbp, [rip + 1]; mov ebp, [rip + 1]; mov r13, [rip + 1]
            (&[0x48, 0x8b, 0x1d, 1, 0, 0, 0], [Use::Load(1), Use::Nothing]),
            (&[0x48, 0x8b, 0x2d, 1, 0, 0, 0], [Use::Nothing, Use::Load(1)]),
            (&[0x48, 0x8d, 0x2d, 1, 0, 0, 0], [Use::Nothing, Use::Address(1)]),
            (&[0x8b, 0x2d, 1, 0, 0, 0], [Use::Nothing, Use::Other]),
            (&[0x4c, 0x8b, 0x2d, 1, 0, 0, 0], [Use::Nothing, Use::Nothing]),
            // mov rbp, rsp; mov rbx, rdi; mov rdi, rbx; mov r11, r13; leave; cpuid
            (&[0x48, 0x89, 0xe5], [Use::Nothing, Use::Other]),
            (&[0x48, 0x89, 0xfb], [Use::Other, Use::Nothing]),
            (&[0x48, 0x89, 0xdf], [Use::Other, Use::Nothing]),
            (&[0x4d, 0x89, 0xeb], [Use::Nothing, Use::Nothing]),
            (&[0xc9], [Use::Other, Use::Other]),
            (&[0x0f, 0xa2], [Use::Other, Use::Other]),
            // mov ebx, 1; mov ebp, 1; mov bl, 1; mov bh, 1; mov bpl, 1; mov ch, 1; mov r13d, 1
            (&[0xbb, 1, 0, 0, 0], [Use::Other, Use::Nothing]),
            (&[0xbd, 1, 0, 0, 0], [Use::Nothing, Use::Other]),
            (&[0xb3, 1], [Use::Other, Use::Nothing]),
            (&[0xb7, 1], [Use::Other, Use::Nothing]),
            (&[0x40, 0xb5, 1], [Use::Nothing, Use::Other]),
            (&[0xb5, 1], [Use::Nothing, Use::Nothing]),
            (&[0x41, 0xbd, 1, 0, 0, 0], [Use::Nothing, Use::Nothing]),
            // xor ebp, ebp; xor edi, edi; xchg rbx, rax; xchg rbp, rax; nop; bswap ebx
            (&[0x31, 0xed], [Use::Nothing, Use::Other]),
            (&[0x31, 0xff], [Use::Nothing, Use::Nothing]),
            (&[0x48, 0x93], [Use::Other, Use::Nothing]),
            (&[0x48, 0x95], [Use::Nothing, Use::Other]),
            (&[0x90], [Use::Nothing, Use::Nothing]),
            (&[0x0f, 0xcb], [Use::Other, Use::Other]),
            // mov bh, [rax]; mov [rax], bh; sete bl; sete bh; sete dil; movzx ebp, al; movzx eax, bh; movzx eax, word
            // [rbp + 1]
            (&[0x8a, 0x38], [Use::Other, Use::Nothing]),
            (&[0x88, 0x38], [Use::Other, Use::Nothing]),
            (&[0x0f, 0x94, 0xc3], [Use::Other, Use::Nothing]),
            (&[0x0f, 0x94, 0xc7], [Use::Other, Use::Nothing]),
            (&[0x40, 0x0f, 0x94, 0xc7], [Use::Nothing, Use::Nothing]),
            (&[0x0f, 0xb6, 0xe8], [Use::Nothing, Use::Other]),
            (&[0x0f, 0xb6, 0xc7], [Use::Other, Use::Nothing]),
            (&[0x0f, 0xb7, 0x45, 1], [Use::Nothing, Use::Other]),
            // sub rsp, 40; inc rbx; neg rbp; pop rbx and rbp by their long form; shl ebp, 1
            (&[0x48, 0x83, 0xec, 0x28], [Use::Nothing, Use::Nothing]),
            (&[0x48, 0xff, 0xc3], [Use::Other, Use::Nothing]),
            (&[0x48, 0xf7, 0xdd], [Use::Nothing, Use::Other]),
            (&[0x8f, 0xc3], [Use::Other, Use::Other]),
            (&[0xd1, 0xe5], [Use::Nothing, Use::Other]),
            // lea rax, [rbx + 8 * rbp]; mov rax, [rsp + 8]; mov rax, [8 * rbp + 1]; cmovne rbx, rax; imul ebp, eax, 3
            (&[0x48, 0x8d, 0x04, 0xeb], [Use::Other, Use::Other]),
            (&[0x48, 0x8b, 0x44, 0x24, 8], [Use::Nothing, Use::Nothing]),
            (&[0x48, 0x8b, 0x04, 0xed, 1, 0, 0, 0], [Use::Nothing, Use::Other]),
            (&[0x48, 0x0f, 0x45, 0xd8], [Use::Other, Use::Nothing]),
            (&[0x6b, 0xe8, 3], [Use::Nothing, Use::Other]),
            // movdqa xmm0, [rsp + 16]; movdqa xmm3, xmm5; pmovmskb ebp, xmm0; movq rbx, xmm0; movups [rbx], xmm1
            (&[0x66, 0x0f, 0x6f, 0x44, 0x24, 0x10], [Use::Nothing, Use::Nothing]),
            (&[0x66, 0x0f, 0x6f, 0xdd], [Use::Nothing, Use::Other]),
            (&[0x66, 0x0f, 0xd7, 0xe8], [Use::Nothing, Use::Other]),
            (&[0x66, 0x48, 0x0f, 0x7e, 0xc3], [Use::Other, Use::Other]),
            (&[0x0f, 0x11, 0x0b], [Use::Other, Use::Nothing]),
            // cmpxchg [rax], rbx with a lock; xadd; popcnt rbx, rax; andn ebx, eax, ecx
            (&[0xf0, 0x48, 0x0f, 0xb1, 0x18], [Use::Other, Use::Other]),
            (&[0xf3, 0x48, 0x0f, 0xb8, 0xd8], [Use::Other, Use::Other]),
            (&[0xc4, 0xe2, 0x78, 0xf2, 0xd9], [Use::Other, Use::Other]),
            // call; jmp; jne; ret
            (&[0xe8, 0xdb, 0xed, 0, 0], [Use::Nothing, Use::Nothing]),
            (&[0xeb, 0xed], [Use::Nothing, Use::Nothing]),
            (&[0x0f, 0x85, 0xdb, 0xed, 0, 0], [Use::Nothing, Use::Nothing]),
            (&[0xc3], [Use::Nothing, Use::Nothing]),
        ];
        for &(code, expected) in cases {
            assert_eq!([RBX, RBP].map(|register| Use::of(code, register)), expected, "{code:02x?}");
        }
    }
}
