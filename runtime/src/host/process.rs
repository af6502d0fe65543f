//! The process: unwinding through its code, what a dump reads of it, what an operator hears, and its end.

use super::Frames;
use crate::prim::Arc;
use std::fmt;
use std::panic::Location;
use std::ptr::NonNull;

/// Why an unwinding is not certain to arrive.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Bar {
    pub(crate) why: &'static str,
    /// The frame that is to blame, if one is: the address at which its call returns.
    pub(crate) frame: Option<usize>,
}

impl Bar {
    pub(crate) const NO_CATCHER: Bar = Bar { why: "no function that catches a panic was found", frame: None };
}

/// What a thread says of itself that was asked where it is: in which goroutine, or in none, as it is on its way into one or out
/// of one. An error: why it says nothing.
pub(crate) type Answer = Result<Option<Asked>, &'static str>;

/// A goroutine that was interrupted. Its name and spawn site were read there: it may have ended since.
pub(crate) struct Asked {
    pub(crate) id: u64,
    pub(crate) name: Option<Arc<Box<str>>>,
    pub(crate) site: &'static Location<'static>,
    pub(crate) frames: Frames,
}

/// A function that lies at an address, or was inlined there.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Symbol<'a> {
    /// With its path; `None` when there is an address only.
    pub(crate) function: Option<&'a str>,
    pub(crate) file: Option<&'a str>,
    pub(crate) line: Option<u32>,
}

/// The function, and its place in the source where that is known.
impl fmt::Display for Symbol<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.function.unwrap_or("?"))?;
        match (self.file, self.line) {
            (Some(file), Some(line)) => write!(f, " ({file}:{line})"),
            _ => Ok(()),
        }
    }
}

/// The process, as it is and as others see it.
pub(crate) trait Process: Sized {
    /// What the scheduler keeps once for the whole process.
    type Shared: 'static;
    /// Returns it.
    fn shared() -> &'static Self::Shared;
    /// Has SIGQUIT ask what `shared` has for it from now on, unless the program has said what the signal does.
    fn catch_quit();
    /// Whether a runtime has a monitor.
    const MONITORED: bool;
    /// Whether the frames of goroutines that run can be had: `frames_here`, `ask`.
    const SEES_RUNNING: bool;
    /// Returns `true` if the calling thread unwinds.
    fn is_panicking() -> bool;
    /// As `is_panicking`, for an M that asks on its own stack, which never changes threads: cheap, and in line. `false` in a
    /// model, whose threads share one count.
    fn unwinds() -> bool;
    /// Returns `Ok` if an unwinding that the caller begins is certain to arrive at the function in whose frame `mark`
    /// lies, and not to end the process. In doubt, an error.
    fn may_unwind_to(mark: *const ()) -> Result<(), Bar>;
    /// Returns `true` for the first call in the process.
    fn is_first_refusal() -> bool;
    /// Returns `true` if goroutines may be unwound at all. Always the same answer.
    fn can_unwind() -> bool;
    /// Runs a goroutine's code and stops a panic at its edge.
    fn catch(f: impl FnOnce()) -> std::thread::Result<()>;
    /// Calls `each` for the functions that a call has passed through whose return address is `pc`: those that were inlined
    /// there, innermost first, and the one that stands in the code. For none when that is not known. Takes locks, memory, and
    /// more stack than a goroutine need have.
    fn symbols(pc: usize, each: &mut dyn FnMut(Symbol<'_>));
    /// Reads the frames of the caller into `frames`.
    fn frames_here(frames: &mut Frames);
    /// Interrupts threads, by their numbers, and hands to `heard` what each of them says of itself, with its place in
    /// `threads`: all of them, in any order. Each is waited for a limited time. Takes locks, memory, and more stack
    /// than a goroutine need have; never to be asked about the calling thread.
    fn ask(threads: &[u32], heard: &mut dyn FnMut(usize, Answer));
    /// Shows a debugger that `pool` has got a chunk of Gs, from `gs` on. Under that pool's lock.
    fn show(_pool: *const (), _gs: NonNull<()>) {}
    /// `pool` goes, with all that was shown of it.
    fn hide(_pool: *const ()) {}
    /// Tells the operator, once and in one line. Never fails: standard error may be closed.
    fn warn(what: &str);
    /// Writes a text as it is for the operator to read. Never fails.
    fn print(text: &str);
    /// Ends the process, with a text that says why: no goroutine in it will ever run, or SIGQUIT has asked for that.
    fn give_up(text: &str) -> !;
    /// Ends the process: it can't go on.
    fn fatal(why: &str) -> !;
}
