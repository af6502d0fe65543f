//! The look at the frames: would a panic that is thrown here arrive at the goroutine's catcher?
//!
//! To end a goroutine from outside, the library throws where the goroutine is parked (`throw.rs`). The stack holds frames of
//! the user, of C, of other languages. Some frames abort the process when a panic reaches them; then the goroutine must not be
//! unwound. The obvious question, `panicking()`, errs on both sides: a `Drop` that runs under an unwind may catch what it
//! throws, and an `extern "C"` function aborts without any unwind before.
//!
//! The look walks the frames from its caller outwards, as the unwinder would. For each frame the look reads the exception
//! table's first action for the call site; Rust's personality acts upon nothing else:
//!
//! | what the frame shows | what a throw does there | answer |
//! | --- | --- | --- |
//! | no table, or a call site without a landing pad | passes | goes on |
//! | Cleanup | drops the frame's values and passes, or aborts after that: see below | goes on, if the code says so |
//! | Catch | ends there | goes on; the outermost one up to the mark is our catcher |
//! | Filter | aborts: an `extern "C"` function, or a drop under an unwind | no |
//! | a call site that the table does not list | aborts: for the compiler this call never throws | no; see below for a call of a catcher |
//! | a table of another personality (C++) | its own rules: `noexcept` above a destructor shows a Cleanup and aborts | no |
//! | a signal handler's caller | it was at no call | no |
//! | the walk ends below the mark | aborts: no frame catches | no |
//!
//! A Rust `extern "C"` function with a live value shows a Cleanup: its landing pad drops the value, and only then calls
//! `core::panicking::panic_cannot_unwind`. Inlined into a closure under a `catch_unwind`, the function even shows a Catch (the
//! caller's, whose clauses the inliner adds to every landing pad), and aborts all the same. So the look searches the code of
//! each function with a table, once, for a reference to `panic_cannot_unwind` (`code.rs`), and follows the code of a function
//! that has one from the landing pad on (`flow.rs`). Only our own catcher is exempt, since the code after its catch is ours:
//! the catcher calls the user's function through an opaque pointer, so none of the user's code is inlined there.
//!
//! A catcher of the user's on the way must not hide the frames beyond, since it may throw again. So all frames up to our own
//! catcher must pass. This refuses a callback of C that catches for itself (`extern "C"` around `catch_unwind`), in which a
//! throw would end. If that `catch_unwind` is inlined there, the frame shows only its Catch; the look refuses it for the calls
//! in it that must not unwind (`Kind::Mixed`).
//!
//! *A catcher that never throws.* If std's `__rust_try` is not inlined into `catch_unwind`, the compiler finds out that it
//! catches all, and does not list the call in the table of its caller. A throw ends in the called frame. The caller may throw
//! again, at another call: if its code refers to no `panic_cannot_unwind`, that throw passes. A catcher that is *declared* to
//! throw nothing, an `extern "C"` function, but does throw again, has a call that leads to `panic_cannot_unwind`, and is
//! `Mixed`.
//!
//! *Our catcher* is the outermost Catch in a frame that begins at or below the mark, which is the address of a local
//! variable of the function that calls `catch_unwind`. That call may be inlined there or not; either way the catching frame
//! is that function's or an inner one's. What that function's frame and the frames beyond it show does not matter.
//! Addresses are compared only on the stack on which the mark lies: a frame on another stack, of `with_stack`, is on the
//! way there (`segment.rs`).
//!
//! The look does not see: a destructor that panics or aborts by itself; what a C function would have cleaned up; a call to C
//! that was declared `extern "C"` and calls back to unwinding Rust (no panic may pass there either).
//!
//! In doubt the answer is no: for an unknown encoding, for code that is not mapped readable, for a landing pad in another
//! section than its function. The answer is always no with `panic = "abort"`, on the `generator` backend (whose stacks need not
//! have an end for the walk), and so on every architecture except x86-64.
//!
//! *A look that knows its way* does not need the unwinder: the findings about a call, and how the walk goes on from there, are
//! kept by the return address (`rows.rs`). Only a yes is found that way. If a frame is not known, or does not pass, the look
//! begins anew with the unwinder, so each no is the unwinder's; in debug builds each yes is, too. The throw (`throw.rs`) is
//! always the unwinder's, and takes far longer than such a look: a walk to the first landing pad, and from each pad on the way
//! another walk to the next. So a receive, a sleep and the wait for an event have nothing left to drop where they throw.
//!
//! The cost of a look, in time and in stack, is in `docs/performance.md`; the tests `cost_of_a_look` and
//! `stack_of_a_look` print it when each is run alone.
//!
//! No frame keeps a thread-bound value: the look does not park, and works on whichever thread runs the goroutine.

mod code;
mod flow;
mod held;
mod instruction;
mod object;
#[cfg(all(test, target_arch = "x86_64", not(feature = "generator")))]
mod pads;
mod rows;
mod sets;
mod tables;
#[cfg(all(test, target_arch = "x86_64", not(feature = "generator")))]
mod tests;
#[cfg(all(target_arch = "x86_64", not(feature = "generator")))]
mod throw;
mod verdicts;

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::OnceLock;

use super::segment;
#[cfg(any(feature = "generator", not(target_arch = "x86_64")))]
use super::without_frames::throw;
use crate::host::Bar;

use crate::stack::unwind::{_Unwind_Backtrace, _Unwind_GetIPInfo, Context, ENOUGH, Each, ON};
use code::Kind;
use rows::{Candidate, Meets, Place};
use tables::Action;
use verdicts::Generation;

// As in `unwind`.
unsafe extern "C-unwind" {
    fn _Unwind_GetCFA(context: *mut Context) -> usize;
    fn _Unwind_GetGR(context: *mut Context, register: c_int) -> usize;
    fn _Unwind_GetRegionStart(context: *mut Context) -> usize;
    fn _Unwind_GetLanguageSpecificData(context: *mut Context) -> *const u8;
}

/// Walks the frames from its caller outwards. The call is opaque: as far as the compiler knows, it may unwind. So
/// `ask_about_me` keeps its Filter, and the calls of the look are listed in the tables.
///
/// # Safety
/// `each` is called with `arg`, and a context that is valid during the call.
#[inline(always)]
unsafe fn walk(each: Each, arg: *mut c_void) {
    type Walk = unsafe extern "C-unwind" fn(Each, *mut c_void) -> c_int;
    // SAFETY: by this function's contract. The walk only reads, as a throw would; the walk ends at the outermost frame
    // of a goroutine's stack (switch.rs), or of a thread's.
    unsafe { black_box(_Unwind_Backtrace as Walk)(each, arg) };
}

const NEVER: Bar =
    Bar { why: "this build unwinds nothing (`panic = \"abort\"`, or the `generator` backend)", frame: None };

/// Whether the answer can be yes in this build.
pub(crate) const CAN_UNWIND: bool =
    !cfg!(any(panic = "abort", feature = "generator", not(target_arch = "x86_64")));

/// Returns `Ok` if a panic that the caller throws now, on this stack, certainly ends at the `catch_unwind` of the
/// function in which `mark` was taken, or at a catch on the way there.
///
/// The caller is at the place of the throw, or below it in functions of this library: the look sees each frame that the throw
/// leaves.
#[inline(never)]
pub(crate) fn may_unwind_to(mark: *const ()) -> Result<(), Bar> {
    if !CAN_UNWIND {
        return Err(NEVER);
    }
    let Some(landmarks) = landmarks() else { return Err(NEVER) };
    let here = here();
    let mut look = Look {
        mark: mark.addr(),
        stack: segment::stack_of(mark.addr()),
        landmarks,
        generation: Generation::now(),
        bar: None,
        path: Path { catcher: None, called_catches: false },
        arrives: false,
        frames: 0,
        learns: None,
        proved: false,
    };
    // SAFETY: the frame of this function, which stays until the look is over.
    let known = unsafe { look.knows_the_way(here) };
    // A debug build asks the unwinder all the same.
    if known && !cfg!(debug_assertions) {
        return Ok(());
    }
    // SAFETY: as above.
    look.learns = unsafe { Candidate::of(here, Some(Meets::Nothing), look.generation) };
    look.proved = look.generation.row(here.ip).is_some();
    // SAFETY: `judge` gets this look, which this walk alone uses.
    unsafe { walk(judge, (&raw mut look).cast()) };
    if known && !look.arrives {
        disagree();
    }
    match look.bar {
        _ if look.arrives => Ok(()),
        Some(frame) => Err(Bar { why: "a panic might end the process", frame: Some(frame) }),
        None => Err(Bar::NO_CATCHER),
    }
}

/// The rows say yes, and the unwinder says no. Not inlined: a look must take little stack.
#[cold]
#[inline(never)]
fn disagree() -> ! {
    panic!("the rows of the frames lead to another answer than the unwinder")
}

/// Returns the place of the calling function.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn here() -> Place {
    let (ip, low, rbp);
    // SAFETY: registers are read. The address is that of the second instruction.
    unsafe {
        std::arch::asm!(
            "lea {ip}, [rip]",
            "mov {low}, rsp",
            "mov {rbp}, rbp",
            ip = out(reg) ip,
            low = out(reg) low,
            rbp = out(reg) rbp,
            options(nomem, nostack, preserves_flags),
        );
    }
    Place { ip, low, rbp }
}

/// Elsewhere every answer is no.
#[cfg(not(target_arch = "x86_64"))]
fn here() -> Place {
    Place { ip: 0, low: 0, rbp: 0 }
}

/// Makes a first look and a first throw while there is enough stack: the first walk in a process binds the unwinder's symbols,
/// which takes more stack than the look itself.
pub(crate) fn prepare() {
    let _no_mark = may_unwind_to(ptr::null());
    throw::prepare();
}

pub(crate) use throw::throw;

/// Addresses of this program's own Rust, with which those of the frames are compared.
#[derive(Clone, Copy, Debug)]
struct Landmarks {
    /// `rust_eh_personality`.
    personality: usize,
    /// `core::panicking::panic_cannot_unwind`.
    cannot_unwind: usize,
    /// The functions that take the payload out of a thrown exception; zeros if they are not known.
    caught: [usize; 2],
}

/// Returns `None` if this build does not look as expected: then every answer is no.
fn landmarks() -> Option<&'static Landmarks> {
    static FOUND: OnceLock<Option<Landmarks>> = OnceLock::new();
    FOUND.get_or_init(find_landmarks).as_ref()
}

fn find_landmarks() -> Option<Landmarks> {
    let mut probe = Probe { action: Action::Filter, found: None };
    ask_about_me(&mut probe);
    let (personality, cannot_unwind) = probe.found?;
    let found = Landmarks { personality, cannot_unwind, caught: [0; 2] };
    // If `code` did not find the reference in the probe, it would not find such references elsewhere. SAFETY: the table is not
    // read as long as `caught` is not known.
    let kind = unsafe { code::kind(ask_about_me as *const () as usize, ptr::null(), &found) };
    let mut probe = Probe { action: Action::Catch, found: None };
    ask_about_my_catch(&mut probe);
    let caught = probe.found.map_or([0; 2], |(_, first)| code::caught_in(first));
    (kind == Kind::Depends).then_some(Landmarks { caught, ..found })
}

struct Probe {
    /// The action that the probing function's call site must show.
    action: Action,
    /// The function's personality, and the first function that its landing pad calls.
    found: Option<(usize, usize)>,
}

/// An `extern "C"` function without live values around a call that may throw: the call site has a Filter, whose landing
/// pad calls `panic_cannot_unwind` and nothing else.
#[inline(never)]
extern "C" fn ask_about_me(probe: &mut Probe) {
    // SAFETY: `recognise` gets the probe, as it expects.
    unsafe { walk(recognise, ptr::from_mut(probe).cast()) };
}

/// A `catch_unwind` without live values around such a call. If `catch_unwind` is inlined, its landing pad takes the payload out
/// of the thrown exception, and does nothing else before. If it is not, as in debug builds, the call site shows nothing, and
/// nothing is needed.
#[inline(never)]
fn ask_about_my_catch(probe: &mut Probe) {
    let probe = AssertUnwindSafe(ptr::from_mut(probe));
    // SAFETY: `recognise` gets the probe, as it expects.
    drop(catch_unwind(move || unsafe { walk(recognise, { probe }.0.cast()) }));
}

extern "C" fn recognise(context: *mut Context, probe: *mut c_void) -> c_int {
    // SAFETY: `ask_about_me` passed it, and waits.
    let probe = unsafe { &mut *probe.cast::<Probe>() };
    // SAFETY: a context of the unwinder, within its callback.
    probe.found = unsafe { Frame::of(context) }.filter(|frame| !frame.table.is_null()).and_then(|frame| {
        let function = tables::Function::at(frame.start)?;
        let personality = function.personality?;
        // SAFETY: the table of a function of ours, which rustc made.
        let (action, pad) = unsafe { tables::first_action(frame.table, frame.start, frame.ip) }?;
        let first = code::first_call(pad, function).filter(|_| action == probe.action)?;
        Some((personality, first))
    });
    // The first frame is that of the probing function, or what is called in it.
    ENOUGH
}

/// A frame with a table, as the unwinder shows it.
struct Frame {
    start: usize,
    /// The call instruction: an address within it.
    ip: usize,
    table: *const u8,
}

impl Frame {
    /// Returns `None` for a frame that stopped before an instruction, not after a call.
    ///
    /// # Safety
    /// Called within the unwinder's callback, with its context.
    unsafe fn of(context: *mut Context) -> Option<Frame> {
        let mut before = 0;
        // SAFETY: by this function's contract.
        let (ip, start, table) = unsafe {
            let ip = _Unwind_GetIPInfo(context, &mut before);
            (ip, _Unwind_GetRegionStart(context), _Unwind_GetLanguageSpecificData(context))
        };
        (before == 0).then_some(Frame { start, ip: ip.wrapping_sub(1), table })
    }
}

/// One walk.
struct Look<'a> {
    mark: usize,
    /// The stack on which the mark lies: the number that `stack_of` returns.
    stack: usize,
    landmarks: &'a Landmarks,
    generation: Generation,
    /// The first frame that does not pass. That matters if a Catch lies beyond, or if there is none.
    bar: Option<usize>,
    path: Path,
    /// The answer, when the walk has passed the mark.
    arrives: bool,
    /// How many frames the unwinder has shown.
    frames: usize,
    /// The row of the last frame, to be kept if the next frame is where the row has it.
    learns: Option<Candidate>,
    /// Whether the frames so far are where the rows have them. Beyond a frame that is not, the upper end of a called frame need
    /// not be the caller's rsp, which a row relies on.
    proved: bool,
}

/// The state that a walk carries from frame to frame.
struct Path {
    /// The outermost Catch so far: whether it leads to no abort, and its address.
    catcher: Option<(Meets, usize)>,
    /// Whether the last frame, which this one has called, is a Catch that leads to no abort.
    called_catches: bool,
}

impl Path {
    /// Goes on beyond a frame, whose call is at `at`. The error is the address of a frame that does not pass: this one, or a
    /// catcher of the user's on this side of it.
    #[inline]
    fn pass(&mut self, meets: Meets, at: usize) -> Result<(), usize> {
        let called_catches = std::mem::replace(&mut self.called_catches, meets == Meets::Catch);
        match (meets, self.catcher) {
            (Meets::Nothing, _) => {}
            (Meets::Unlisted, _) if called_catches => {}
            (Meets::Unlisted, _) => return Err(at),
            // The Catch that was taken for our catcher is a catcher on the way.
            (_, Some((Meets::CatchThatAborts, there))) => return Err(there),
            _ => self.catcher = Some((meets, at)),
        }
        Ok(())
    }
}

extern "C" fn judge(context: *mut Context, look: *mut c_void) -> c_int {
    /// The number of rbp.
    const RBP: c_int = 6;
    // SAFETY: `may_unwind_to` passed it, and waits.
    let look = unsafe { &mut *look.cast::<Look>() };
    // Here the CFA is the stack pointer within the frame: the frame's lower end, above which its local variables lie. SAFETY: a
    // context of the unwinder, within its callback.
    let (low, at, rbp) =
        unsafe { (_Unwind_GetCFA(context), _Unwind_GetIPInfo(context, &mut 0), _Unwind_GetGR(context, RBP)) };
    let place = Place { ip: at.wrapping_sub(1), low, rbp };
    look.frames += 1;
    // The first frame is that of `may_unwind_to`, at another instruction than `here`: its caller's is the next one.
    if look.frames > 1
        && let Some(learnt) = look.learns.take()
    {
        look.proved = learnt.check(place, look.generation);
    }
    if look.is_beyond(low) {
        look.arrives = look.path.catcher.is_some();
        return ENOUGH;
    }
    // SAFETY: a context of the unwinder, within its callback.
    let meets = look.meets(unsafe { Frame::of(context) });
    if look.frames > 1 && look.proved {
        // SAFETY: the unwinder shows the frame.
        look.learns = unsafe { Candidate::of(place, meets, look.generation) };
        look.proved = look.generation.row(place.ip).is_some();
    } else if look.frames == 1 && meets != Some(Meets::Nothing) {
        (look.learns, look.proved) = (None, false);
    }
    let catches = matches!(meets, Some(Meets::Catch | Meets::CatchThatAborts));
    match meets.map(|meets| look.path.pass(meets, at)) {
        Some(Ok(())) if catches && look.bar.is_some() => return ENOUGH,
        Some(Ok(())) => return ON,
        Some(Err(frame)) => look.bar.get_or_insert(frame),
        None => {
            look.path.called_catches = false;
            look.bar.get_or_insert(at)
        }
    };
    if catches { ENOUGH } else { ON }
}

impl Look<'_> {
    /// Returns `true` for a frame beyond the mark; `low` is the frame's lower end.
    #[inline]
    fn is_beyond(&self, low: usize) -> bool {
        low > self.mark && segment::stack_of(low) == self.stack
    }

    /// Returns `true` if all frames up to the mark are known, and the answer is yes.
    ///
    /// # Safety
    /// `place` is that of a frame of the calling thread's, which stays during the call.
    unsafe fn knows_the_way(&self, mut place: Place) -> bool {
        let mut path = Path { catcher: None, called_catches: false };
        while !self.is_beyond(place.low) {
            let Some(row) = self.generation.row(place.ip) else { return false };
            if path.pass(row.meets, place.ip).is_err() {
                return false;
            }
            // SAFETY: the row of this frame's call.
            place = unsafe { row.caller_of(place) };
        }
        path.catcher.is_some()
    }

    /// Returns what a throw meets at a frame; `None` if the throw does not pass there.
    fn meets(&self, frame: Option<Frame>) -> Option<Meets> {
        let frame = frame?;
        if frame.table.is_null() {
            return Some(Meets::Nothing);
        }
        // SAFETY: the unwinder gave the table of this function.
        let function = unsafe { self.generation.function(frame.start, frame.table, self.landmarks) };
        if function == Kind::Foreign {
            return None;
        }
        // SAFETY: the unwinder gave the table of this function, and its personality is ours: rustc made it.
        let (action, pad) = unsafe { tables::first_action(frame.table, frame.start, frame.ip) }?;
        let passes = || match function {
            // SAFETY: the table is this function's, and its personality is ours: rustc made it.
            Kind::Depends | Kind::Mixed => unsafe {
                self.generation.pad(pad, frame.start, frame.table, self.landmarks) == Kind::Passes
            },
            kind => kind == Kind::Passes,
        };
        match action {
            Action::Unlisted if function == Kind::Passes => Some(Meets::Unlisted),
            Action::Nothing => Some(Meets::Nothing),
            Action::Cleanup if passes() => Some(Meets::Nothing),
            Action::Unlisted | Action::Cleanup | Action::Filter => None,
            Action::Catch if function != Kind::Mixed && passes() => Some(Meets::Catch),
            Action::Catch => Some(Meets::CatchThatAborts),
        }
    }
}

#[cfg(all(test, any(feature = "generator", not(target_arch = "x86_64"))))]
mod tests {
    /// Fails by a yes: this build has not tried a throw.
    #[test]
    fn it_always_says_no() {
        super::prepare();
        let mark = 0_u8;
        let caught = std::panic::catch_unwind(|| {
            assert_eq!(super::may_unwind_to((&raw const mark).cast()), Err(super::NEVER));
        });
        assert!(caught.is_ok());
    }
}
