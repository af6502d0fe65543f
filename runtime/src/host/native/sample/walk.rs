//! The walk over a copied stack: by the unwind tables alone, which `gimli` reads.
//!
//! The process's own unwinder can't do this: it reads the stack at its own address. Each step finds the object that holds the
//! code, and reads its tables, while the loader's list of objects is locked: otherwise another thread might unload an object
//! that the asked thread has left meanwhile.
//!
//! The walk ends at the trampoline (`stack/switch.rs`), which has no caller. A frame of code without tables, as in musl, or of
//! code made at run time, is the last one that is shown; so is a frame beyond the copy.

use super::Registers;
use crate::host::Frames;
use crate::host::native::objects::{self, Record};
use crate::stack::switch;
use crate::stack::unwind::{_Unwind_Backtrace, _Unwind_GetIPInfo, Context, ENOUGH, ON};
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, EvaluationResult, Location, NativeEndian,
    Pointer, Register, RegisterRule, UnwindContext, UnwindExpression, Value,
};
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::slice;

/// The stack pointer's place among the registers.
pub(super) const SP: usize = 7;
/// The instruction pointer's place, where the tables have the return address.
const IP: usize = 16;

type Bytes<'a> = EndianSlice<'a, NativeEndian>;

/// How a walk ended.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Ended {
    /// At the goroutine's outermost frame, or when the list was full.
    Whole,
    /// At another frame without a caller: the goroutine was changing stacks.
    InSwitch,
    /// At a frame whose caller can't be found.
    Lost,
}

/// Reads the frames from `registers` outwards. `word` returns what the stack held at an address, as far as it was
/// copied.
pub(super) fn walk(
    mut registers: Registers,
    word: &dyn Fn(usize) -> Option<usize>,
    frames: &mut Frames,
) -> Ended {
    // An interrupted frame stands at an instruction, the others after a call. The list has all frames in the second form.
    let mut behind = 0;
    loop {
        let pc = registers[IP];
        if !frames.push(pc.wrapping_add(1 - behind)) {
            return Ended::Whole;
        }
        match step(pc - behind, &mut registers, word) {
            Some(Step::Called) => behind = 1,
            Some(Step::Interrupted) => behind = 0,
            Some(Step::Outermost(start)) if start == switch::trampoline as *const () as usize => {
                return Ended::Whole;
            }
            Some(Step::Outermost(_)) => return Ended::InSwitch,
            None => return Ended::Lost,
        }
        if registers[IP] < 2 {
            return Ended::Lost;
        }
    }
}

/// Reads the caller's frames, by the process's own unwinder.
#[inline(never)]
pub(in crate::host::native) fn walk_here(frames: &mut Frames) {
    extern "C" fn note(context: *mut Context, frames: *mut c_void) -> c_int {
        // SAFETY: `walk_here` passed the frames, and waits.
        let frames = unsafe { &mut *frames.cast::<Frames>() };
        // SAFETY: a context of the unwinder, within its callback.
        let pc = unsafe { _Unwind_GetIPInfo(context, &mut 0) };
        let goes_on = pc != 0 && frames.push(pc);
        if goes_on { ON } else { ENOUGH }
    }
    // SAFETY: `note` gets the frames, as it expects.
    unsafe { _Unwind_Backtrace(note, ptr::from_mut(frames).cast()) };
}

/// How a frame came after its caller's.
enum Step {
    /// The caller called it.
    Called,
    /// A signal interrupted the caller.
    Interrupted,
    /// The frame has no caller. The address is where its code starts.
    Outermost(usize),
}

/// Steps from the frame that stands in the code at `pc` to its caller.
fn step(pc: usize, registers: &mut Registers, word: &dyn Fn(usize) -> Option<usize>) -> Option<Step> {
    let mut step = None;
    objects::show(|object| {
        // SAFETY: the object stays loaded until this function returns.
        let Some(tables) = (unsafe { Tables::of(object, pc) }) else { return false };
        step = tables.and_then(|tables| tables.step(pc, registers, word));
        true
    });
    step
}

/// The unwind tables of a loaded object.
struct Tables<'a> {
    index: Bytes<'a>,
    index_at: usize,
    /// The loaded segment in which the tables lie.
    segment: Range<usize>,
}

impl Tables<'_> {
    /// Returns the tables of this object, if it holds `pc`; `Some(None)` if it has none.
    ///
    /// # Safety
    /// The object stays loaded.
    unsafe fn of(object: &Record, pc: usize) -> Option<Option<Self>> {
        let segments = || object.parts(libc::PT_LOAD);
        segments().find(|(code, rights)| rights & libc::PF_X != 0 && code.contains(&pc))?;
        let tables = || {
            let (index, _) = object.parts(libc::PT_GNU_EH_FRAME).next()?;
            let (segment, _) = segments().find(|(segment, rights)| {
                rights & libc::PF_R != 0 && segment.start <= index.start && index.end <= segment.end
            })?;
            // SAFETY: a part of a loaded segment that can be read.
            let bytes = unsafe { slice::from_raw_parts(index.start as *const u8, index.len()) };
            Some(Tables { index: EndianSlice::new(bytes, NativeEndian), index_at: index.start, segment })
        };
        Some(tables())
    }

    fn step(
        &self,
        pc: usize,
        registers: &mut Registers,
        word: &dyn Fn(usize) -> Option<usize>,
    ) -> Option<Step> {
        let bases = BaseAddresses::default().set_eh_frame_hdr(self.index_at as u64);
        let index = EhFrameHdr::from(self.index).parse(&bases, size_of::<usize>() as u8).ok()?;
        let Pointer::Direct(entries_at) = index.eh_frame_ptr() else { return None };
        let entries_at = entries_at as usize;
        if !self.segment.contains(&entries_at) {
            return None;
        }
        // SAFETY: the bytes from there to the end of a loaded segment that can be read.
        let bytes = unsafe { slice::from_raw_parts(entries_at as *const u8, self.segment.end - entries_at) };
        let entries = EhFrame::from(EndianSlice::new(bytes, NativeEndian));
        let bases = bases.set_eh_frame(entries_at as u64);
        let entry = index.table()?.fde_for_address(
            &entries,
            &bases,
            pc as u64,
            gimli::UnwindSection::cie_from_offset,
        );
        let entry = entry.ok()?;
        let mut context = UnwindContext::new();
        let row = entry.unwind_info_for_address(&entries, &bases, &mut context, pc as u64).ok()?;
        let before = *registers;
        let evaluate = |expression: &UnwindExpression<usize>, first| {
            let code = expression.get(&entries).ok()?;
            evaluate(code.evaluation(entry.cie().encoding()), first, &before, word)
        };
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                before.get(usize::from(register.0))?.wrapping_add_signed(*offset as isize)
            }
            CfaRule::Expression(expression) => evaluate(expression, None)?,
        };
        registers[SP] = cfa;
        for (number, value) in registers.iter_mut().enumerate() {
            *value = match row.register(Register(number as u16)) {
                Some(RegisterRule::Offset(offset)) => word(cfa.wrapping_add_signed(offset as isize))?,
                Some(RegisterRule::ValOffset(offset)) => cfa.wrapping_add_signed(offset as isize),
                Some(RegisterRule::Register(other)) => *before.get(usize::from(other.0))?,
                Some(RegisterRule::Expression(place)) => word(evaluate(&place, Some(cfa))?)?,
                Some(RegisterRule::ValExpression(value)) => evaluate(&value, Some(cfa))?,
                Some(RegisterRule::Undefined) | None if number == IP => {
                    return Some(Step::Outermost(entry.initial_address() as usize));
                }
                // The register has the caller's value: registers that a call preserves are unchanged, and none of the others is
                // needed.
                Some(RegisterRule::Undefined | RegisterRule::SameValue) | None => continue,
                Some(_) => return None,
            };
        }
        Some(if entry.is_signal_trampoline() { Step::Interrupted } else { Step::Called })
    }
}

/// Returns the value of an expression, which begins with `first` if that is given.
fn evaluate(
    mut evaluation: gimli::Evaluation<Bytes<'_>>,
    first: Option<usize>,
    registers: &Registers,
    word: &dyn Fn(usize) -> Option<usize>,
) -> Option<usize> {
    const MOST: u32 = 1000;
    evaluation.set_max_iterations(MOST);
    if let Some(first) = first {
        evaluation.set_initial_value(first as u64);
    }
    let generic = |value: usize| Value::Generic(value as u64);
    let mut state = evaluation.evaluate().ok()?;
    loop {
        state = match state {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                evaluation.resume_with_memory(generic(word(address as usize)?)).ok()?
            }
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = registers.get(usize::from(register.0))?;
                evaluation.resume_with_register(generic(*value)).ok()?
            }
            _ => return None,
        };
    }
    match evaluation.as_result() {
        [piece] => match piece.location {
            Location::Address { address } => Some(address as usize),
            _ => None,
        },
        _ => None,
    }
}
