//! The process: unwinding through its code, reading it for a dump, reports to the operator, and its end.

use super::Frames;
use crate::prim::Arc;
use std::any::Any;
use std::fmt;
use std::panic::Location;
use std::ptr::NonNull;

/// The reason why an unwinding might not arrive.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Bar {
    pub(crate) why: &'static str,
    /// The frame that bars it, if one does: the address at which its call returns.
    pub(crate) frame: Option<usize>,
}

impl Bar {
    pub(crate) const NO_CATCHER: Bar = Bar { why: "no function that catches a panic was found", frame: None };
}

/// The answer of a thread that was asked where it is: the goroutine that it runs; or `None` if it is on its way into a
/// goroutine or out of one. An error says why there is no answer.
pub(crate) type Answer = Result<Option<Asked>, &'static str>;

/// An interrupted goroutine. Its name and spawn site were read by the handler, as the goroutine may have ended since.
pub(crate) struct Asked {
    pub(crate) id: u64,
    pub(crate) name: Option<Arc<Box<str>>>,
    pub(crate) site: &'static Location<'static>,
    pub(crate) frames: Frames,
}

/// A function that lies at an address, or was inlined there.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Symbol<'a> {
    /// The function with its path; `None` when only the address is known.
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

/// The process: its own state, and its view for debuggers, operators and the kernel.
pub(crate) trait Process: Sized {
    /// The type of which the scheduler keeps one value for the whole process.
    type Shared: 'static;
    /// Returns that value.
    fn shared() -> &'static Self::Shared;
    /// Returns `true` if `switch_hooks` is not null: one plain load.
    fn has_switch_hooks() -> bool;
    /// Returns the functions of `sched/switch.rs`, which the host keeps for the process; null for none.
    fn switch_hooks() -> *const ();
    /// Replaces `before` by `now`. Returns `false` if the current value was not `before`.
    fn set_switch_hooks(before: *const (), now: *const ()) -> bool;
    /// Returns the address of a handler by which SIGQUIT asks for a dump, as `shared` defines it; `None` without such a
    /// handler. A signal handler may call this.
    fn quit_handler() -> Option<usize>;
    /// Whether a runtime has a monitor.
    const MONITORED: bool;
    /// Whether the frames of running goroutines can be read: `frames_here`, `ask`.
    const SEES_RUNNING: bool;
    /// Returns `true` if the calling thread unwinds.
    fn is_panicking() -> bool;
    /// Returns the same as `is_panicking`, for an M on its own stack, which never changes threads. The call is cheap and
    /// inlined. Returns `false` in a model, whose threads share one count.
    fn unwinds() -> bool;
    /// Returns `Ok` if an unwinding that the caller begins is certain to arrive at the function in whose frame `mark`
    /// lies, without ending the process. In doubt, an error.
    fn may_unwind_to(mark: *const ()) -> Result<(), Bar>;
    /// Throws `payload`, and calls no panic hook. The caller is where `may_unwind_to` has returned `Ok`.
    fn throw<T: Any + Send>(payload: Box<T>) -> !;
    /// Returns `true` for the first call in the process.
    fn is_first_refusal() -> bool;
    /// Returns `true` if goroutines may be unwound at all. The answer never changes.
    fn can_unwind() -> bool;
    /// Runs a goroutine's code and stops a panic at its edge.
    fn catch(f: impl FnOnce()) -> std::thread::Result<()>;
    /// Calls `each` for the functions that the call with the return address `pc` has passed through: the inlined ones,
    /// innermost first, and then the function that holds the code. Does not call `each` if the functions are not known. Takes
    /// locks, memory, and more stack than a goroutine may have.
    fn symbols(pc: usize, each: &mut dyn FnMut(Symbol<'_>));
    /// Reads the caller's frames into `frames`.
    fn frames_here(frames: &mut Frames);
    /// Interrupts threads, by their numbers, and hands the answer of each to `heard`, with the thread's place in `threads`: all
    /// of them, in any order. Waits for each answer for a limited time. Takes locks, memory, and more stack than a goroutine
    /// may have; never called for the calling thread.
    fn ask(threads: &[u32], heard: &mut dyn FnMut(usize, Answer));
    /// Shows a debugger that `pool` has got a chunk of Gs, from `gs` on. Called under that pool's lock.
    fn show(_pool: *const (), _gs: NonNull<()>) {}
    /// Hides all that was shown of `pool`, which is about to be freed.
    fn hide(_pool: *const ()) {}
    /// Tells the operator, in one line. Never fails: standard error may be closed. Nor does this keep its caller, which may
    /// have a limit, or may be waited for: if nobody reads, the line is given up after 10 ms, and the next one says how many
    /// were.
    fn warn(what: &str);
    /// Writes `text`, unchanged, for the operator to read, as `warn` does.
    fn trace(text: &str);
    /// Writes `text`, unchanged, for which the operator has asked. Never fails, and waits some seconds for a reader.
    fn print(text: &str);
    /// Ends the process, after `text`, which says why: no goroutine will ever run again, or SIGQUIT has asked for the
    /// end.
    fn give_up(text: &str) -> !;
    /// Ends the process, which can't go on, after `why`.
    fn fatal(why: &str) -> !;
}
