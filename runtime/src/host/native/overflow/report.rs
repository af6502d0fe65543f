//! The report of an overflow, and the end of the process.
//!
//! R1 the first thread to overflow goes on, others wait for the end · R2 faults from here on end the process at once · R3
//! the message, in one write · R4 the frames · R5 SIGABRT, by its default action.
//!
//! R4 may fault: the unwinder follows what it finds. R4 does not run if it could wait for a lock: glibc's `_dl_find_object`
//! (2.35) finds an object without a lock, and without that function the report has only the address of the fault. Nor does R4
//! run if the signal stack is too small. The frames are printed as commands of `addr2line`, whose addresses count from the
//! beginning of the object. The report finds that object by `_dl_find_object`, or else among those that were loaded when the
//! handler was installed.
//!
//! Standard error may be a pipe whose reader is late. The report waits for `NOBODY_READS` in total.

use super::{Fault, Runs, exchange};
use crate::host::handler::action;
use crate::host::native::mask::unblock;
use crate::host::native::objects;
use crate::host::native::stderr::{NOBODY_READS, has_room};
use crate::stack::pool::Bytes;
use crate::stack::unwind::{_Unwind_Backtrace, _Unwind_GetIPInfo, Context, ON};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt::{self, Write};
use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// How many frames are printed from either end of the stack.
const INNERMOST: usize = 32;
const OUTERMOST: usize = 8;
/// With less of the signal stack left, the walk over the frames does not begin. The walk takes 1.6 KB, and more for the
/// functions that it calls.
const WALK: usize = 3 << 10;

/// The thread that reports; 0 for none.
static TELLER: AtomicI32 = AtomicI32::new(0);

pub(super) fn prepare() {
    if find_object().is_none() {
        OBJECTS.get_or_init(loaded);
    }
}

pub(super) fn tell_and_abort(fault: &Fault, runs: &Runs) -> ! {
    // SAFETY: the call only returns a number.
    let own = unsafe { libc::gettid() };
    // Relaxed: one thread wins the exchange, which orders nothing.
    if TELLER.compare_exchange(0, own, Relaxed, Relaxed).is_err_and(|teller| teller != own) {
        wait_for_the_end();
    }
    take_over_faults();
    let mut to = Stderr::new();
    let _infallible = tell(&mut to, fault, runs);
    to.flush();
    abort()
}

fn tell(to: &mut Stderr, fault: &Fault, runs: &Runs) -> fmt::Result {
    match runs.g {
        Some(g) => g.with_birth(|birth| {
            write!(to, "fatal error: stack overflow in goroutine {}", g.id())?;
            if let Some(name) = &birth.name {
                write!(to, " '{name}'")?;
            }
            writeln!(to, " (spawned at {})", birth.site)
        })?,
        None => writeln!(to, "fatal error: stack overflow on a plain thread, in gmp::with_stack")?,
    }
    let size = Bytes(runs.stack.top - runs.stack.bottom);
    if runs.is_segment {
        writeln!(to, "the {size} of its gmp::with_stack are used up; ask there for more")?;
    } else {
        writeln!(
            to,
            "its stack of {size} is used up; for more: GMPSTACK in the environment, gmp::Builder::stack_size, RuntimeBuilder::stack_size, or gmp::with_stack around what goes deep"
        )?;
    }
    to.flush();
    tell_frames(to, fault)
}

/// R2: from here on a fault of another thread makes that thread wait; a fault of the reporting thread ends the process, with
/// what was reported so far.
fn take_over_faults() {
    let second = action(on_second_fault as *const () as usize, libc::SA_ONSTACK | libc::SA_NODEFER);
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        exchange(signal, Some(&second));
        unblock(signal);
    }
}

extern "C" fn on_second_fault(_signal: c_int) {
    // SAFETY: the call only returns a number.
    match TELLER.load(Relaxed) == unsafe { libc::gettid() } {
        true => abort(),
        false => wait_for_the_end(),
    }
}

fn wait_for_the_end() -> ! {
    loop {
        // SAFETY: no preconditions.
        unsafe { libc::pause() };
    }
}

/// R5. Not `std::process::abort`: here it would first call the program's own handler of SIGABRT.
fn abort() -> ! {
    exchange(libc::SIGABRT, Some(&action(libc::SIG_DFL, 0)));
    unblock(libc::SIGABRT);
    // SAFETY: no pointers; the second does not return.
    unsafe {
        libc::raise(libc::SIGABRT);
        libc::_exit(128 + libc::SIGABRT)
    }
}

/// Standard error, by `write` and `poll` alone: a line is lost if the write fails.
struct Stderr {
    text: [u8; 512],
    len: usize,
    /// Until when the report waits for the reader, once the reader was late: the process ends all the same.
    until: Option<Instant>,
}

impl Stderr {
    fn new() -> Self {
        Stderr { text: [0; 512], len: 0, until: None }
    }

    fn flush(&mut self) {
        let until = || Instant::now() + NOBODY_READS;
        let mut rest = &self.text[..self.len];
        while !rest.is_empty() {
            if !has_room(Instant::now()) && !has_room(*self.until.get_or_insert_with(until)) {
                break;
            }
            // SAFETY: the text is ours.
            match unsafe { libc::write(libc::STDERR_FILENO, rest.as_ptr().cast(), rest.len()) } {
                written @ 1.. => rest = &rest[written as usize..],
                -1 => match io::Error::last_os_error().kind() {
                    // Another signal interrupted the write; the text is short.
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock if Instant::now() < *self.until.get_or_insert_with(until) => {}
                    _ => break,
                },
                _ => break,
            }
        }
        self.len = 0;
    }
}

impl fmt::Write for Stderr {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.len == self.text.len() {
                self.flush();
            }
            self.text[self.len] = byte;
            self.len += 1;
        }
        Ok(())
    }
}

/// R4.
fn tell_frames(to: &mut Stderr, fault: &Fault) -> fmt::Result {
    let mut frames =
        Frames { fault: fault.pc, begun: false, count: 0, last: [0; OUTERMOST], to, object: None };
    let here = ptr::from_ref(&frames).addr();
    if find_object().is_none() || here.wrapping_sub(fault.signal_stack) < WALK {
        write!(frames.to, "where it was:")?;
        frames.tell(fault.pc)?;
        return writeln!(frames.to);
    }
    write!(frames.to, "its frames, innermost first; these commands name them:")?;
    // SAFETY: `each` gets what it expects. The walk reads the stack and the tables of the code on it; if the walk
    // faults, `on_second_fault` ends the process.
    unsafe { _Unwind_Backtrace(each, (&raw mut frames).cast()) };
    frames.end()
}

extern "C" fn each(context: *mut Context, frames: *mut c_void) -> c_int {
    // SAFETY: `tell_frames` passed it, and waits.
    let frames = unsafe { &mut *frames.cast::<Frames<'_>>() };
    let mut before = 0;
    // SAFETY: a context of the unwinder, within its callback.
    let pc = unsafe { _Unwind_GetIPInfo(context, &mut before) };
    if pc != 0 {
        // `pc` is a return address: the call is before it.
        frames.add(pc - usize::from(before == 0));
    }
    ON
}

struct Frames<'a> {
    fault: usize,
    /// Whether the walk has got to the interrupted code.
    begun: bool,
    count: usize,
    /// The outermost frames so far, each at its number modulo `OUTERMOST`.
    last: [usize; OUTERMOST],
    to: &'a mut Stderr,
    /// The object of the line that is being written.
    object: Option<usize>,
}

impl Frames<'_> {
    fn add(&mut self, pc: usize) {
        if !self.begun && pc != self.fault {
            return;
        }
        self.begun = true;
        if self.count < INNERMOST {
            let _infallible = self.tell(pc);
        }
        self.last[self.count % OUTERMOST] = pc;
        self.count += 1;
    }

    fn end(&mut self) -> fmt::Result {
        if !self.begun {
            self.tell(self.fault)?;
        }
        let later = INNERMOST.max(self.count.saturating_sub(OUTERMOST))..self.count;
        let between = later.start.saturating_sub(INNERMOST);
        if between > 0 && !later.is_empty() {
            write!(self.to, "\n  ({between} more)")?;
            self.object = None;
        }
        for number in later {
            self.tell(self.last[number % OUTERMOST])?;
        }
        writeln!(self.to)
    }

    /// Writes an address, on the line of the object that holds it.
    fn tell(&mut self, pc: usize) -> fmt::Result {
        let Some(object) = Object::of(pc) else {
            self.object = None;
            return write!(self.to, "\n  at {pc:#x}");
        };
        if self.object != Some(object.base) {
            self.object = Some(object.base);
            self.to.write_str("\n  addr2line -Cfpie ")?;
            object.tell_path(self.to)?;
        }
        write!(self.to, " {:#x}", pc.wrapping_sub(object.base))
    }
}

/// The public part of the loader's record of an object.
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
}

/// `struct dl_find_object` of glibc.
#[repr(C)]
struct Found {
    flags: u64,
    start: *mut c_void,
    end: *mut c_void,
    link_map: *const LinkMap,
    eh_frame: *mut c_void,
    reserved: [u64; 7],
}

type FindObject = unsafe extern "C" fn(pc: *const c_void, found: *mut Found) -> c_int;

/// Returns glibc's function, if there is one.
fn find_object() -> Option<FindObject> {
    static FOUND: OnceLock<Option<FindObject>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: a name that ends with a zero.
        let there = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
        // SAFETY: the function of this name has this type.
        (!there.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, FindObject>(there) })
    })
}

/// The objects that were loaded when the handler was installed, if `_dl_find_object` does not exist.
static OBJECTS: OnceLock<Vec<Loaded>> = OnceLock::new();

/// An object's code, and its name, which outlives the object.
struct Loaded {
    code: Vec<Range<usize>>,
    base: usize,
    name: CString,
}

fn loaded() -> Vec<Loaded> {
    let mut all = Vec::new();
    objects::show(|object| {
        let code = object.parts(libc::PT_LOAD).filter(|(_, rights)| rights & libc::PF_X != 0);
        let code = code.map(|(range, _)| range).collect();
        all.push(Loaded { code, base: object.base(), name: object.name().to_owned() });
        false
    });
    all
}

struct Object {
    base: usize,
    name: *const c_char,
}

impl Object {
    fn of(pc: usize) -> Option<Object> {
        match find_object() {
            Some(find) => Object::found(find, pc),
            None => Object::among(OBJECTS.get()?, pc),
        }
    }

    fn among(objects: &[Loaded], pc: usize) -> Option<Object> {
        let object = objects.iter().find(|object| object.code.iter().any(|code| code.contains(&pc)))?;
        Some(Object { base: object.base, name: object.name.as_ptr() })
    }

    fn found(find: FindObject, pc: usize) -> Option<Object> {
        let null = ptr::null_mut();
        let mut found = Found {
            flags: 0,
            start: null,
            end: null,
            link_map: ptr::null(),
            eh_frame: null,
            reserved: [0; 7],
        };
        // SAFETY: the call writes the struct, which is as large as any version's.
        let done = unsafe { find(pc as *const c_void, &mut found) };
        // SAFETY: the record of an object that is loaded, as its code is running.
        let object = unsafe { found.link_map.as_ref() }.filter(|_| done == 0)?;
        Some(Object { base: object.base, name: object.name })
    }

    /// The program itself has no name.
    fn tell_path(&self, to: &mut Stderr) -> fmt::Result {
        let mut own = [0; 256];
        // SAFETY: a text that ends with a zero: the loader's, which stays as long as the object is loaded, or one of
        // `OBJECTS`.
        let name = unsafe { CStr::from_ptr(self.name) }.to_bytes();
        let path = if name.is_empty() {
            // SAFETY: the call writes at most so many bytes.
            let len =
                unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), own.as_mut_ptr().cast(), own.len()) };
            usize::try_from(len)
                .ok()
                .filter(|&len| len < own.len())
                .map_or(&b"/proc/self/exe"[..], |len| &own[..len])
        } else {
            name
        };
        path.utf8_chunks().try_for_each(|chunk| to.write_str(chunk.valid()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails where an object is not known, has no code, or has another base or name than the loader's.
    #[test]
    fn what_is_loaded_is_found_without_the_loader() {
        let objects = loaded();
        let code = [tell_and_abort as *const () as usize, libc::dl_iterate_phdr as *const () as usize];
        for pc in code {
            let own = Object::among(&objects, pc).expect("it is loaded");
            if let Some(find) = find_object() {
                let known = Object::found(find, pc).expect("it is loaded");
                // SAFETY: both stay.
                let names = [own.name, known.name].map(|name| unsafe { CStr::from_ptr(name) });
                assert_eq!((own.base, names[0]), (known.base, names[1]));
            }
        }
        assert!(Object::among(&objects, (&raw const objects).addr()).is_none(), "the stack is no object");
    }
}
