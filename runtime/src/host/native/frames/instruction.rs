//! How long an x86-64 instruction is, and where the processor goes after it. Nothing else is decoded.
//!
//! From the opcode maps of the "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2, appendix A. An
//! instruction that compilers do not write for programs (I/O ports, far jumps, moves to an absolute address) gives None.

/// Where control goes after an instruction. Distances count from the instruction's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Next,
    Call,
    /// Goes to one place.
    Jump(i32),
    /// Goes to that place or to the next instruction.
    Branch(i32),
    /// Goes to a place that a register or a word of memory holds.
    Computed,
    /// `ret`
    Return,
    /// An instruction beyond which the processor does not go.
    Trap,
}

/// Returns the length and the flow of the first instruction.
pub(super) fn decode(code: &[u8]) -> Option<(usize, Flow)> {
    let mut cursor = Cursor { code, at: 0, short: false, wide: false };
    let flow = cursor.instruction()?;
    (cursor.at <= code.len()).then_some((cursor.at, flow))
}

/// Returns `true` for a prefix other than REX.
pub(super) fn is_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3)
}

struct Cursor<'a> {
    code: &'a [u8],
    at: usize,
    /// Prefix 66: immediate operands have two bytes where they had four.
    short: bool,
    /// REX.W: the immediate operand of `mov` has eight bytes.
    wide: bool,
}

impl Cursor<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.code.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn skip(&mut self, bytes: usize) -> Option<Flow> {
        self.at += bytes;
        Some(Flow::Next)
    }

    fn short_distance(&mut self) -> Option<i32> {
        self.byte().map(|byte| i32::from(byte.cast_signed()))
    }

    fn distance(&mut self) -> Option<i32> {
        let bytes = self.code.get(self.at..self.at + 4)?;
        self.at += 4;
        Some(i32::from_le_bytes(bytes.try_into().ok()?))
    }

    /// Bytes of an immediate operand of the usual size.
    fn operand(&self) -> usize {
        if self.short { 2 } else { 4 }
    }

    /// Skips a ModRM byte with the bytes that belong to it, and an immediate operand. Returns the middle field.
    fn modrm(&mut self) -> Option<u8> {
        let modrm = self.byte()?;
        let (mode, low) = (modrm >> 6, modrm & 7);
        let base = if mode != 3 && low == 4 { self.byte()? & 7 } else { low };
        self.at += match (mode, base) {
            (0, 5) | (2, _) => 4,
            (1, _) => 1,
            _ => 0,
        };
        Some(modrm >> 3 & 7)
    }

    fn modrm_and(&mut self, immediate: usize) -> Option<Flow> {
        self.modrm()?;
        self.skip(immediate)
    }

    fn instruction(&mut self) -> Option<Flow> {
        let mut opcode = self.byte()?;
        while is_prefix(opcode) {
            self.short |= opcode == 0x66;
            opcode = self.byte()?;
        }
        if opcode & 0xf0 == 0x40 {
            self.wide = opcode & 8 != 0;
            opcode = self.byte()?;
        }
        match opcode {
            0x0f => self.two_bytes(),
            0xc5 => {
                self.byte()?;
                self.vector(1)
            }
            0xc4 => {
                let map = self.byte()? & 0x1f;
                self.byte()?;
                self.vector(map)
            }
            0x62 => {
                let map = self.byte()? & 7;
                self.skip(2);
                self.vector(map)
            }
            _ => self.one_byte(opcode),
        }
    }

    fn one_byte(&mut self, opcode: u8) -> Option<Flow> {
        match opcode {
            // Arithmetic: four forms with ModRM, two with a constant.
            0x00..=0x3f => match opcode & 7 {
                0..=3 => self.modrm_and(0),
                4 => self.skip(1),
                5 => self.skip(self.operand()),
                _ => None,
            },
            0x50..=0x5f
            | 0x90..=0x99
            | 0x9b..=0x9f
            | 0xa4..=0xa7
            | 0xaa..=0xaf
            | 0xc9
            | 0xf5
            | 0xf8..=0xfd => Some(Flow::Next),
            0x63 | 0x84..=0x8e | 0xd0..=0xd3 | 0xd8..=0xdf | 0xfe => self.modrm_and(0),
            // With another middle field the byte begins the prefix of AMD's XOP.
            0x8f => (self.modrm()? == 0).then_some(Flow::Next),
            0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 => self.modrm_and(1),
            0x69 | 0x81 => self.modrm_and(self.operand()),
            // With another middle field a transaction begins, which may go on elsewhere.
            0xc7 => match self.modrm()? {
                0 => self.skip(self.operand()),
                _ => None,
            },
            0x6a | 0xa8 | 0xb0..=0xb7 => self.skip(1),
            0x68 | 0xa9 => self.skip(self.operand()),
            0xb8..=0xbf => self.skip(if self.wide { 8 } else { self.operand() }),
            0x70..=0x7f | 0xe0..=0xe3 => self.short_distance().map(Flow::Branch),
            0xeb => self.short_distance().map(Flow::Jump),
            0xe9 => self.distance().map(Flow::Jump),
            0xe8 => self.distance().map(|_| Flow::Call),
            0xc2 => self.skip(2).map(|_| Flow::Return),
            0xc3 => Some(Flow::Return),
            0xcc | 0xf4 => Some(Flow::Trap),
            0xf6 | 0xf7 => {
                let has_constant = self.modrm()? < 2;
                let bytes = if opcode == 0xf6 { 1 } else { self.operand() };
                self.skip(if has_constant { bytes } else { 0 })
            }
            0xff => match self.modrm()? {
                0 | 1 | 6 => Some(Flow::Next),
                2 => Some(Flow::Call),
                4 => Some(Flow::Computed),
                // Far jumps and calls.
                _ => None,
            },
            _ => None,
        }
    }

    /// After 0f.
    fn two_bytes(&mut self) -> Option<Flow> {
        match self.byte()? {
            0x0b => Some(Flow::Trap),
            0x05 | 0x31 | 0x77 | 0xa2 | 0xc8..=0xcf => Some(Flow::Next),
            0x80..=0x8f => self.distance().map(Flow::Branch),
            0x38 => self.byte().and_then(|_| self.modrm_and(0)),
            0x3a => self.byte().and_then(|_| self.modrm_and(1)),
            0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => self.modrm_and(1),
            0x00..=0x03 | 0x0d | 0x10..=0x1f | 0x28..=0x2f | 0x40..=0x6f | 0x74..=0x76 | 0x7c..=0x7f => {
                self.modrm_and(0)
            }
            0x90..=0x9f | 0xa3 | 0xa5 | 0xab | 0xad..=0xb9 | 0xbb..=0xc1 | 0xc3 | 0xc7 | 0xd0..=0xff => {
                self.modrm_and(0)
            }
            _ => None,
        }
    }

    /// After a VEX or EVEX prefix.
    fn vector(&mut self, map: u8) -> Option<Flow> {
        match (map, self.byte()?) {
            // vzeroupper, vzeroall
            (1, 0x77) => Some(Flow::Next),
            (1, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) | (3, _) => self.modrm_and(1),
            (1 | 2 | 5 | 6, _) => self.modrm_and(0),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails by a wrong length, after which all that follows is misread.
    #[test]
    fn instructions_have_their_length_and_flow() {
        let cases: &[(&[u8], Flow)] = &[
            (&[0x90], Flow::Next),
            (&[0x41, 0x57], Flow::Next),
            (&[0x48, 0x89, 0xc7], Flow::Next),
            (&[0x48, 0x8b, 0x44, 0x24, 0x08], Flow::Next),
            (&[0x48, 0x8d, 0x05, 1, 2, 3, 4], Flow::Next),
            (&[0x48, 0x89, 0x84, 0x24, 1, 2, 3, 4], Flow::Next),
            (&[0x48, 0x8b, 0x04, 0xcd, 1, 2, 3, 4], Flow::Next),
            (&[0x48, 0x81, 0xec, 0, 1, 0, 0], Flow::Next),
            (&[0x66, 0x81, 0xf9, 1, 2], Flow::Next),
            (&[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8], Flow::Next),
            (&[0xb8, 1, 2, 3, 4], Flow::Next),
            (&[0x48, 0xc7, 0x04, 0x24, 1, 2, 3, 4], Flow::Next),
            (&[0xf7, 0xd8], Flow::Next),
            (&[0xf7, 0xc0, 1, 2, 3, 4], Flow::Next),
            (&[0xf6, 0x44, 0x24, 0x08, 0x01], Flow::Next),
            (&[0xf0, 0x48, 0x0f, 0xb1, 0x0e], Flow::Next),
            (&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], Flow::Next),
            (&[0x66, 0x0f, 0x6f, 0x05, 1, 2, 3, 4], Flow::Next),
            (&[0x66, 0x0f, 0x3a, 0x0f, 0xc1, 0x08], Flow::Next),
            (&[0xf3, 0x0f, 0x1e, 0xfa], Flow::Next),
            (&[0xc5, 0xf8, 0x77], Flow::Next),
            (&[0xc5, 0xf8, 0x10, 0x44, 0x24, 0x08], Flow::Next),
            (&[0xc4, 0xe3, 0x7d, 0x39, 0xc1, 0x01], Flow::Next),
            (&[0x62, 0xf1, 0x7c, 0x48, 0x10, 0x44, 0x24, 0x01], Flow::Next),
            (&[0x8f, 0x44, 0x24, 0x08], Flow::Next),
            (&[0xff, 0x15, 1, 2, 3, 4], Flow::Call),
            (&[0xff, 0xd0], Flow::Call),
            (&[0x67, 0xe8, 1, 2, 3, 4], Flow::Call),
            (&[0x66, 0x66, 0x48, 0xe8, 1, 2, 3, 4], Flow::Call),
            (&[0xeb, 0xfe], Flow::Jump(-2)),
            (&[0xe9, 0, 1, 0, 0], Flow::Jump(256)),
            (&[0x74, 0x10], Flow::Branch(16)),
            (&[0x0f, 0x85, 0xff, 0xff, 0xff, 0xff], Flow::Branch(-1)),
            (&[0xc3], Flow::Return),
            (&[0xc2, 8, 0], Flow::Return),
            (&[0x0f, 0x0b], Flow::Trap),
            (&[0xff, 0xe0], Flow::Computed),
            (&[0x41, 0xff, 0xe3], Flow::Computed),
            (&[0x3e, 0xff, 0xe0], Flow::Computed),
            (&[0xff, 0x25, 1, 2, 3, 4], Flow::Computed),
            (&[0xff, 0x24, 0xc5, 1, 2, 3, 4], Flow::Computed),
        ];
        for &(code, flow) in cases {
            let longer = [code, &[0; 8]].concat();
            assert_eq!(decode(&longer), Some((code.len(), flow)), "{code:02x?}");
            assert_eq!(decode(&code[..code.len() - 1]), None, "{code:02x?} without its end");
        }
        // A far jump, a far call; what programs do not hold; bextr of XOP; the beginning of a transaction.
        let unknown: &[&[u8]] =
            &[&[0xff, 0x28], &[0xff, 0x18], &[0x06], &[0x8f, 0xea, 0x78, 0x10], &[0xc7, 0xf8]];
        for &code in unknown {
            let longer = [code, &[0; 8][..]].concat();
            assert_eq!(decode(&longer), None, "{code:02x?}");
        }
    }
}
