//! The lines in which goroutines wait for their turn to block a thread.
//!
//! *Problem.* A file call or a name look-up takes a thread while it lasts. Ten thousand goroutines that read a slow disk would
//! take ten thousand threads.
//!
//! *Here* each runtime has a [`Line`] for each of the two kinds: a semaphore, whose permits are the calls that may be under
//! way. Further goroutines wait for a permit as at any semaphore, parked, in the order in which they came. A goroutine holds
//! its permit from before it gives its P away until it has a P again. So each thread that serves a call has a permit, and the M
//! that gives a permit back is there to run the goroutine that is granted it. If the permit were given back first, the next
//! call would start another thread while the last call's thread is still on its way back.
//!
//! A call within a call, by a destructor or an argument of the outer call, needs no second turn: goroutines that hold all turns
//! would wait for another turn for ever. The inner call blocks the thread of the outer call.
//!
//! A call that waits for another process, perhaps for ever, does not wait in line: such calls might take all permits, and the
//! call that would end them would wait behind them.

use crate::context::interrupted;
use crate::goroutine::blocking;
use crate::host::Active;
use crate::m::M;
use crate::prim::{Mutex, Rank};
use crate::sched::park::WaitReason;
use crate::sync::{Semaphore, SemaphorePermit};
use gmp_timers::Nanos;
use std::io;

/// A disk with a queue of commands works best with some tens of them, and few queues are much longer.
pub(crate) const MAX_FILE_CALLS: usize = 64;
/// Each look-up has a socket or two. With this bound a resolver that takes 10 ms answers 6,400 look-ups a second.
pub(crate) const MAX_LOOKUPS: usize = 64;

/// The lines of a runtime.
pub(crate) struct Lines {
    pub(crate) files: Line,
    pub(crate) lookups: Line,
}

impl Lines {
    pub(crate) fn new(max_file_calls: usize, max_lookups: usize) -> Self {
        Lines {
            files: Line::new(max_file_calls, WaitReason::FileLine, "file calls"),
            lookups: Line::new(max_lookups, WaitReason::LookupLine, "name look-ups"),
        }
    }

    /// Returns, for dumps, a text for each line that is not empty.
    pub(crate) fn tell(&self) -> Vec<String> {
        [&self.files, &self.lookups].into_iter().filter_map(Line::tell).collect()
    }
}

/// Goroutines that wait until fewer than `bound` calls of a kind are under way.
pub(crate) struct Line {
    bound: usize,
    permits: Semaphore,
    /// The goroutines that have a turn, by their numbers: at most `bound`.
    callers: Mutex<Vec<u64>>,
    reason: WaitReason,
    /// The name of the calls in dumps.
    calls: &'static str,
}

/// Waits in line, until the given time at most. After `Ok` the caller has the turn.
pub(crate) type WaitInLine<'a> = &'a mut dyn FnMut(Option<Nanos>) -> io::Result<()>;

/// The right to have a call under way.
pub(crate) struct Turn<'a> {
    // Dropped first, so that a goroutine among the callers has a turn.
    _caller: Option<Caller<'a>>,
    _permit: SemaphorePermit<'a>,
}

/// An entry for a goroutine that has a turn. The drop removes the entry.
struct Caller<'a>(&'a Line, u64);

impl<'a> Caller<'a> {
    fn enter(line: &'a Line, caller: u64) -> Self {
        line.callers.lock().push(caller);
        Caller(line, caller)
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        let mut callers = self.0.callers.lock();
        if let Some(at) = callers.iter().position(|&caller| caller == self.1) {
            callers.swap_remove(at);
        }
    }
}

impl Line {
    fn new(bound: usize, reason: WaitReason, calls: &'static str) -> Self {
        let callers = Mutex::new(Rank::LineCallers, Vec::new());
        Line { bound, permits: Semaphore::new(bound), callers, reason, calls }
    }

    /// Makes a call that blocks the thread, on the calling goroutine, when that goroutine has its turn. `call` may give the
    /// turn back early, for a part that may last for ever.
    ///
    /// # Errors
    /// Those of `call`; and the error of a context under which the caller runs, when the context ends the wait in line.
    pub(crate) fn call<'a, R>(
        &'a self,
        call: impl FnOnce(&mut Option<Turn<'a>>) -> io::Result<R>,
    ) -> io::Result<R> {
        self.call_behind(|wait| wait(None), call)
    }

    /// Does the same as `call`. If there is no turn yet, a call for which `is_out_of_line` returns `true` does not wait in
    /// line, and is made without a turn.
    ///
    /// # Errors
    /// As `call`.
    pub(crate) fn call_unless<'a, R>(
        &'a self,
        is_out_of_line: impl FnOnce() -> bool,
        call: impl FnOnce(&mut Option<Turn<'a>>) -> io::Result<R>,
    ) -> io::Result<R> {
        self.call_behind(|wait| if is_out_of_line() { Ok(()) } else { wait(None) }, call)
    }

    /// As `call`. If there is no turn yet, `waits` calls the function that it is given until the function returns `Ok`, or not
    /// at all for a call that needs no turn. The function waits in line, at most until the time that it is given.
    ///
    /// # Errors
    /// As `call`, and those of `waits`.
    pub(crate) fn call_behind<'a, R>(
        &'a self,
        waits: impl FnOnce(WaitInLine<'_>) -> io::Result<()>,
        call: impl FnOnce(&mut Option<Turn<'a>>) -> io::Result<R>,
    ) -> io::Result<R> {
        let caller = M::<Active>::current().and_then(M::g).map(|g| g.id.get());
        if caller.is_some_and(|caller| self.callers.lock().contains(&caller)) {
            return blocking(|| call(&mut None));
        }
        let mut permit = self.permits.try_enter();
        if permit.is_none() {
            waits(&mut |until| {
                permit = Some(self.permits.enter(self.reason, until).map_err(|ended| match ended {
                    Some(why) => interrupted::<Active>(why).into(),
                    None => self.too_late(),
                })?);
                Ok(())
            })?;
        }
        let mut turn = permit.map(|permit| Turn {
            _caller: caller.map(|caller| Caller::enter(self, caller)),
            _permit: permit,
        });
        // An unwind of `call` gives the turn back as well.
        blocking(|| call(&mut turn))
    }

    #[cold]
    fn too_late(&self) -> io::Error {
        let why = format!("the time limit has passed; as many {} as are allowed are under way", self.calls);
        io::Error::new(io::ErrorKind::TimedOut, why)
    }

    /// Returns how many calls are under way, and how many goroutines wait in line.
    pub(crate) fn tally(&self) -> (usize, usize) {
        self.permits.tally()
    }

    fn tell(&self) -> Option<String> {
        let (under_way, wait) = self.tally();
        let (calls, bound) = (self.calls, self.bound);
        (under_way + wait > 0)
            .then(|| format!("{calls}: {under_way} under way, of at most {bound}; {wait} wait in line"))
    }
}
