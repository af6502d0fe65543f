//! Finding out where a thread that runs a goroutine is: a signal interrupts the thread, and the handler answers.
//!
//! ```text
//!   dump                                           handler, on the thread that is asked
//!
//!   A1  the handler is ours, or there was none:    H1  take up the slot
//!       install it                                 H2  which goroutine?  copy the registers and the stack
//!   A2  ask in a slot                              H3  answered; wake the dump
//!   A3  tgkill, unless the last one is pending
//!       there yet (`unanswered.rs`)
//!   A4  wait, at most `LIMIT`
//!   A5  walk over the copied stack (`walk.rs`),
//!       and free the slot
//! ```
//! A handler interrupts code at any instruction; that code may hold any lock, and may be in the middle of any allocation. So
//! the handler does not unwind, since an unwinder may lock and allocate, and reads only its own thread's state: it copies, by a
//! loop of ours, up to [`ROOM`] bytes of the stack. The dump walks over the copy after the thread has gone on: a wrong step
//! there, as unwind tables may be wrong, costs some frames but can't harm the process.
//!
//! Which goroutine: while the interrupted code is on the thread's own stack, it is the scheduler's, and the goroutine that the
//! M shows may be another M's by now. On other stacks the code is the M's goroutine's, or that of a handler on the signal
//! stack, which may have interrupted either: then nothing is known. The handler copies only from the goroutine's own stack, and
//! from stacks that the goroutine has entered by `with_stack`, since it does not know where other stacks end.
//!
//! The signal is [`signal`], SIGRTMIN + 12, of which no other use is known: the C library keeps the signals below SIGRTMIN;
//! .NET, D's runtime and some garbage collectors take the first ones above SIGRTMIN, other programs the ones next to SIGRTMAX,
//! or SIGURG, SIGPROF and SIGPWR. If the program has set an action for this signal, that action stays. `SA_RESTART` is set, so
//! most system calls go on; the documentation of `dump` says which do not.
//!
//! Ms let the signal through even if the program blocks all signals (`host/native/mask.rs`). If a thread blocks the signal
//! later, it stays pending there, and no other one is sent. If the thread lets it through much later, the handler finds no
//! question, and does nothing: for that the handler stays installed.
//!
//! Invariants: one asker at a time (`ask.rs`). Slots, their room, and the handler live as long as the process.

mod ask;
mod unanswered;
mod walk;

use super::{Native, overflow, segment, thread};
use crate::g::{GRef, Name};
use crate::host::handler::{action, exchange, keeping_errno};
use crate::host::{Answer, Asked, Frames, Stacks};
use crate::m::M;
use crate::prim::{Mutex, Rank};
use ask::Slot;
use std::arch::asm;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::iter;
use std::ops::Range;
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};
use unanswered::{Sent, Unanswered};
use walk::Ended;

pub(super) use walk::walk_here;

/// How long the asker waits for each thread.
const LIMIT: Duration = Duration::from_millis(100);
/// How long the asker waits for all threads; after this it asks no more of them.
const LIMIT_OF_ALL: Duration = Duration::from_secs(1);
/// How many threads are asked at the same time.
const SLOTS: usize = 16;
/// How many bytes of stacks are copied at most, for each slot. A stack of the default size fits.
const ROOM: usize = 64 << 10;
/// Parts of a copy, innermost first: the stacks of a goroutine, each of which has called the next inner one.
const PARTS: usize = 4;
/// How far below its stack pointer a function may keep data.
const RED_ZONE: usize = 128;
/// The room for what may lie below a `Segment` on the same stack: the frames of `call_on` and `cross`.
const BELOW_SEGMENT: usize = 2 << 10;

const NO_SIGNAL: &str = "SIGRTMIN+12 can't be caught";
const TAKEN: &str = "SIGRTMIN+12 is the program's";
const NO_MEMORY: &str = "no memory for its stack";
const NO_ANSWER: &str = "its thread did not answer in 100 ms";
const NOT_ASKED: &str = "its thread was not asked, for want of time";
const IN_HANDLER: &str = "in a signal handler";
const ELSEWHERE: &str = "on a stack of its own";

/// Registers in DWARF's numbering: the general ones, and the instruction pointer.
pub(super) type Registers = [usize; 17];

const IN_ORDER: [c_int; 17] = [
    libc::REG_RAX,
    libc::REG_RDX,
    libc::REG_RCX,
    libc::REG_RBX,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_RBP,
    libc::REG_RSP,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
    libc::REG_RIP,
];

/// The handler's finding.
enum Said {
    Nothing,
    /// The thread is on its own stack, or has no goroutine.
    Between,
    InHandler,
    Elsewhere,
    In {
        id: u64,
        name: Option<Name>,
        site: &'static Location<'static>,
    },
}

/// A handler's answer.
struct Sample {
    said: Said,
    registers: Registers,
    /// The addresses of the copied parts; `room` has the bytes of each part, one part after the other.
    parts: [Range<usize>; PARTS],
    room: NonNull<[u8; ROOM]>,
}

// SAFETY: the room is the sample's alone; a name may go to any thread.
unsafe impl Send for Sample {}

/// For an M: where its thread's own stack lies.
#[derive(Debug)]
pub(super) struct OwnStack(Cell<(usize, usize)>);

impl OwnStack {
    pub(super) const fn new() -> Self {
        OwnStack(Cell::new(EVERYWHERE))
    }

    /// The calling thread begins to be the M's.
    pub(super) fn begin(&self) {
        self.0.set(own_stack().unwrap_or(EVERYWHERE));
    }

    fn holds(&self, address: usize) -> bool {
        let (from, to) = self.0.get();
        (from..to).contains(&address)
    }
}

/// The range for a thread whose stack is not known: no frames of its goroutines are shown.
const EVERYWHERE: (usize, usize) = (0, usize::MAX);

fn own_stack() -> Option<(usize, usize)> {
    let (mut at, mut bytes) = (ptr::null_mut(), 0);
    // SAFETY: the first call makes what the other calls read and destroy; they write to the variables that we pass.
    unsafe {
        let mut attributes = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) != 0 {
            return None;
        }
        let told = libc::pthread_attr_getstack(&raw const attributes, &raw mut at, &raw mut bytes);
        libc::pthread_attr_destroy(&raw mut attributes);
        (told == 0).then(|| (at.addr(), at.addr() + bytes))
    }
}

/// The signal by which threads are asked.
pub(super) fn signal() -> c_int {
    libc::SIGRTMIN() + 12
}

/// The slots. Made by the first dump that asks and has memory for them, before the handler is installed.
static ASKED: OnceLock<Vec<Slot<Sample>>> = OnceLock::new();
/// Counts answers, for a dump that waits for one.
static ANSWERS: AtomicU32 = AtomicU32::new(0);

/// Returns the slots, for the only asker, or `None` if there is no memory for them now.
fn slots() -> Option<&'static [Slot<Sample>]> {
    if let Some(slots) = ASKED.get() {
        return Some(slots);
    }
    let room = Native::map(SLOTS * ROOM)?.cast::<[u8; ROOM]>();
    let slot = |at| {
        // SAFETY: as many were mapped.
        let room = unsafe { room.add(at) };
        let parts = [const { 0..0 }; PARTS];
        Slot::new(Sample { said: Said::Nothing, registers: [0; 17], parts, room })
    };
    Some(ASKED.get_or_init(|| (0..SLOTS).map(slot).collect()))
}

/// A1. Checked each time: the program may have set an action for the signal since. Looks first, so that an action that is there
/// already is never replaced.
pub(super) fn catch() -> Result<(), &'static str> {
    let exchange = |next| exchange(signal(), next).map_err(|_refused| NO_SIGNAL);
    let handler = on_signal as *const () as usize;
    match exchange(None)?.sa_sigaction {
        ours if ours == handler => return Ok(()),
        libc::SIG_DFL => {}
        _ => return Err(TAKEN),
    }
    let ours = action(handler, libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART);
    let before = exchange(Some(&ours))?;
    if ![libc::SIG_DFL, handler].contains(&before.sa_sigaction) {
        // Another thread has set an action since the look.
        _ = exchange(Some(&before));
        return Err(TAKEN);
    }
    Ok(())
}

/// Does the same as `Process::ask`.
pub(super) fn ask(threads: &[u32], heard: &mut dyn FnMut(usize, Answer)) {
    static ASKER: Mutex<Unanswered> = Mutex::new(Rank::Asker, Unanswered::new());
    let mut unanswered = ASKER.lock();
    unanswered.forget_ended();
    let ready = slots().ok_or(NO_MEMORY).and_then(|slots| catch().map(|()| slots));
    let slots = match ready {
        Ok(slots) => slots,
        Err(why) => return (0..threads.len()).for_each(|at| heard(at, Err(why))),
    };
    let until_all = Instant::now() + LIMIT_OF_ALL;
    let mut rest = (0..threads.len()).peekable();
    // For each slot: which thread is asked there, and until when.
    let mut asked: [Option<(usize, Instant)>; SLOTS] = [None; SLOTS];
    loop {
        // Acquire: partner `on_signal`. An answer that the loop below does not see ends the wait.
        let answers = ANSWERS.load(Acquire);
        for (slot, asked) in slots.iter().zip(&mut asked) {
            if let Some((at, until)) = *asked {
                if let Some(answer) = slot.take(Sample::tell) {
                    *asked = None;
                    heard(at, answer);
                } else if until <= Instant::now() {
                    slot.withdraw();
                    unanswered.note(threads[at]);
                    *asked = None;
                    heard(at, Err(NO_ANSWER));
                }
            }
            // Repeated if the signal was not sent: then no answer comes, and the slot is free.
            while asked.is_none()
                && Instant::now() < until_all
                && let Some(&at) = rest.peek()
                && slot.ask(threads[at], Sample::clear)
            {
                rest.next();
                let answer = match unanswered.send(threads[at]) {
                    Sent::Yes => {
                        *asked = Some((at, Instant::now() + LIMIT));
                        break;
                    }
                    // The dump looks for its goroutine again.
                    Sent::Gone => Ok(None),
                    Sent::Refused(why) => Err(why),
                };
                slot.withdraw();
                heard(at, answer);
            }
        }
        let until = match asked.iter().flatten().map(|&(_, until)| until).min() {
            Some(first) => first,
            // In each slot a handler is about to answer, too late. The first handler that has answered wakes this thread.
            None if rest.peek().is_some() && Instant::now() < until_all => until_all,
            None => break,
        };
        thread::futex_wait(&ANSWERS, answers, Some(until.saturating_duration_since(Instant::now())));
    }
    rest.for_each(|at| heard(at, Err(NOT_ASKED)));
}

unsafe extern "C" fn on_signal(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(slots) = ASKED.get() else { return };
    // SAFETY: the kernel calls this as a handler with `SA_SIGINFO`.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    keeping_errno(|| {
        let own = super::watch::number();
        if slots.iter().any(|slot| slot.answer(own, |sample| sample.fill(context))) {
            // Release: partner `ask`.
            ANSWERS.fetch_add(1, Release);
            thread::futex_wake(&ANSWERS);
        }
    });
}

impl Sample {
    /// H2. Does only what a handler may.
    fn fill(&mut self, context: &libc::ucontext_t) {
        self.registers = IN_ORDER.map(|name| context.uc_mcontext.gregs[name as usize] as usize);
        self.parts = [const { 0..0 }; PARTS];
        let sp = self.registers[walk::SP];
        let alternate =
            context.uc_stack.ss_sp.addr()..context.uc_stack.ss_sp.addr() + context.uc_stack.ss_size;
        // Drops nothing: `clear` or `tell` has taken the last name.
        self.said = if alternate.contains(&sp) {
            Said::InHandler
        } else {
            match M::<Native>::current() {
                Some(m) if !m.local.own_stack.holds(sp) => match m.g() {
                    Some(g) => self.fill_from(g, sp),
                    None => Said::Between,
                },
                _ => Said::Between,
            }
        };
    }

    /// The interrupted code is the goroutine's.
    fn fill_from(&mut self, g: GRef<Native>, sp: usize) -> Said {
        if !self.copy_stacks(g, sp) {
            return Said::Elsewhere;
        }
        // SAFETY: the birth is written before the goroutine is queued, and by the M after its last switch, never
        // between.
        let birth =
            g.birth.with(|birth| unsafe { (*birth).as_ref() }.map(|birth| (birth.name.clone(), birth.site)));
        birth.map_or(Said::Between, |(name, site)| Said::In { id: g.id(), name, site })
    }

    /// Copies the stack that holds `sp`, from there on, and the next outer ones. Returns `false` if `sp` is on none of the
    /// goroutine's stacks.
    fn copy_stacks(&mut self, g: GRef<Native>, sp: usize) -> bool {
        let Some(own) = overflow::own_stack(Some(g)) else { return false };
        let (mut parts, mut room) = (0, 0);
        let mut from = None;
        // The chain is the goroutine's, which stands still.
        let stacks = segment::chain().map(|inner| (inner.extent, ptr::from_ref(inner).addr()));
        for (extent, outside) in stacks.chain(iter::once((own, 0))) {
            from = from.or_else(|| extent.holds(sp).then(|| sp.saturating_sub(RED_ZONE)));
            if let Some(low) = from
                && parts < PARTS
            {
                let low = low.max(extent.usable());
                let part = low..low + extent.top.saturating_sub(low).min(ROOM - room);
                // SAFETY: the part is the upper end of one of the goroutine's stacks, which is mapped, and so much room is
                // left.
                unsafe { copy(part.start, self.room.as_ptr().cast::<u8>().add(room), part.len()) };
                room += part.len();
                self.parts[parts] = part;
                parts += 1;
                // The place on the next stack where the goroutine's frames go on.
                from = Some(outside.saturating_sub(BELOW_SEGMENT));
            }
        }
        parts > 0
    }

    /// Drops an answer that came too late: its name may have to be freed.
    fn clear(&mut self) {
        self.said = Said::Nothing;
    }

    /// A5.
    fn tell(&mut self) -> Answer {
        match std::mem::replace(&mut self.said, Said::Nothing) {
            Said::Nothing | Said::Between => Ok(None),
            Said::InHandler => Err(IN_HANDLER),
            Said::Elsewhere => Err(ELSEWHERE),
            Said::In { id, name, site } => {
                let mut frames = Frames::new();
                match walk::walk(self.registers, &|at| self.word(at), &mut frames) {
                    Ended::InSwitch => Ok(None),
                    Ended::Whole => Ok(Some(Asked { id, name, site, frames })),
                    Ended::Lost => {
                        frames.push(Frames::MORE);
                        Ok(Some(Asked { id, name, site, frames }))
                    }
                }
            }
        }
    }

    /// Returns the word that was at this address.
    fn word(&self, at: usize) -> Option<usize> {
        let mut room = 0;
        for part in &self.parts {
            if part.contains(&at) && part.end - at >= size_of::<usize>() {
                let place = room + (at - part.start);
                // SAFETY: `copy_stacks` wrote it.
                return Some(unsafe { self.room.as_ptr().byte_add(place).cast::<usize>().read_unaligned() });
            }
            room += part.len();
        }
        None
    }
}

/// Copies the data on the interrupted code's stack, which are unaligned, partly never written, and of no concern to any
/// checker. So not by `memcpy`, which a sanitizer would intercept.
///
/// # Safety
/// So many bytes are mapped at `from`; those at `to` are ours.
unsafe fn copy(from: usize, to: *mut u8, bytes: usize) {
    // SAFETY: by this function's contract. The direction flag is clear.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}
