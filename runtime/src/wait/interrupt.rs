//! Ending a wait from outside: which waits can be interrupted, what interrupts them, and how an interrupted wait unwinds.
//!
//! A goroutine, or a plain thread, is interrupted by a context under which it runs (`Context::run`); a goroutine also by its
//! own `goexit`, and by the end of the runtime (`sched/stop.rs`, which has a protocol of its own). Each `run` puts a [`Frame`]
//! on the stack; the innermost frame whose context is done is the target.
//!
//! ```text
//!   canceller                                      M that parks a goroutine
//!
//!   C1  the context is done                        P1  the goroutine is saved, and Waiting
//!   C2  CancelFence                                P2  ParkFence
//!   C3  nudge each goroutine and thread            P3  is a context done?  nudge the goroutine,
//!       that runs under the context                    after the commit hook
//! ```
//! One of the fences comes first. If CancelFence comes first, P3 sees C1; if ParkFence comes first, C3 finds the goroutine
//! Waiting. A goroutine that was nudged *looks*: it judges whether an unwinding can pass its frames, claims its own wait by the
//! same CAS as any waker, leaves the queues, and throws. If a waker was faster, the wait ends as if nothing had happened. A
//! goroutine that can't be unwound sleeps on, and *masks* that frame, and those around it, until the wait ends.
//!
//! An M that nudges at P3 resumes the goroutine at once. *The obvious way* is to queue the goroutine, as C3 does. But then a
//! goroutine earlier in the queue can end the wait before the interrupted goroutine looks. Of two goroutines that wake each
//! other, each would do that every time, and with one queue and one P neither would ever be unwound.
//!
//! The payload is a [`Thrown`]. After a look it is thrown by forced unwinding (`host/native/frames/throw.rs`), and without a
//! look by `resume_unwind` (`throw_unseen`): destructors run, but no panic hook does. The frame for which the payload is meant
//! catches it; other catchers pass it on, if they ask [`is_interrupt`]. A goroutine that catches the payload and does not pass
//! it on is unwound again at its next park, three times in all.
//!
//! Checked by `models/interrupt.rs`; `models/policy.rs` checks that the M resumes the goroutine at P3.

use crate::g::GRef;
use crate::host::{Bar, Host};
use crate::m::M;
use crate::prim::hooks::*;
use crate::prim::{Acquire, AtomicU32, Ordering, SingleWriterByte, fence};
use crate::sched::Sched;
use crate::wait::waiter::Wait;
use std::any::Any;
use std::cell::Cell;
use std::panic::resume_unwind;
use std::ptr::NonNull;

/// How often an interrupt is thrown at a goroutine that catches it.
const THROWS: u8 = 3;
/// Instead of that count, in the G: the goroutine is already ending.
const ENDS: u8 = u8::MAX;

/// A call of `Context::run`, on the stack of the goroutine or thread that made it.
pub(crate) struct Frame {
    /// Not zero: the context is done.
    pub(crate) done: NonNull<AtomicU32>,
    /// The next outer frame; null for none.
    pub(crate) outer: *const Frame,
    /// An address in the frame of the function that catches, or of its caller.
    pub(crate) mark: *const (),
    pub(crate) thrown: Cell<u8>,
    /// For a plain thread: the parker of all the thread's waits under this frame, counted by `run`. Null for a goroutine.
    pub(crate) parker: *const (),
}

impl Frame {
    fn is_done(&self) -> bool {
        // Acquire: all that came before the cancel: partner C1 of `context/tree.rs`. SAFETY: `run` keeps the context as long as
        // the frame.
        unsafe { self.done.as_ref() }.load(Acquire.unless(DoneRelaxed)) != 0
    }
}

/// What interrupts a wait.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Interrupt {
    /// The goroutine has called `goexit`. A wait finds this if the goroutine has caught the payload that `goexit` threw.
    Exit,
    /// The context of this frame is done.
    Context(NonNull<Frame>),
    /// The goroutine's runtime ends; see `sched/stop.rs`.
    Shutdown,
}

/// The payload of an unwinding that is no panic.
pub(crate) struct Thrown {
    pub(crate) target: Interrupt,
}

/// Returns `true` if `payload`, which a `catch_unwind` has caught, is an interrupt and no panic: a
/// [`Context`](crate::context::Context) under which the goroutine or thread runs, [`goexit`](crate::goexit), or the end of the
/// runtime unwinds it. Does not block.
///
/// Code that catches panics to go on after them, or to end the process, has to call this first, and pass an interrupt on by
/// [`resume_unwind`](std::panic::resume_unwind). A loop that does not takes the interrupt of each wait for a panic: the
/// interrupt is thrown three times, and then the loop waits as if nothing had happened, or the runtime leaves the goroutine
/// behind.
///
/// Pass `&*payload` for the `Box` that `catch_unwind` returns: `&payload` refers to the `Box` itself, and the result is always
/// `false`.
///
/// ```
/// use gmp::chan::{RecvError, Receiver};
/// use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
/// use std::process::abort;
///
/// /// Does each job; after one that panics it tries the next one.
/// fn work(jobs: &Receiver<fn()>) {
///     loop {
///         let step = || {
///             let job = jobs.recv()?;
///             job();
///             Ok(())
///         };
///         match catch_unwind(AssertUnwindSafe(step)) {
///             Ok(Ok(())) => {}
///             Ok(Err(RecvError)) => return,
///             Err(payload) if gmp::is_interrupt(&*payload) => resume_unwind(payload),
///             Err(_) => eprintln!("a job has panicked"),
///         }
///     }
/// }
///
/// /// Ends the process when `f` panics. A guard whose `drop` asks `std::thread::panicking` can't tell: that is also `true`
/// /// while an interrupt unwinds.
/// fn must_not_panic<T>(f: impl FnOnce() -> T) -> T {
///     match catch_unwind(AssertUnwindSafe(f)) {
///         Ok(value) => value,
///         Err(payload) if gmp::is_interrupt(&*payload) => resume_unwind(payload),
///         Err(_) => abort(),
///     }
/// }
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (ctx, cancel) = gmp::context::Context::background().with_cancel();
///         let (_sender, jobs) = gmp::chan::unbounded();
///         let worker = gmp::go(move || ctx.run(|| must_not_panic(|| work(&jobs))));
///         cancel.cancel();
///         assert!(worker.join().unwrap().is_err());
///     })
/// }
/// ```
pub fn is_interrupt(payload: &(dyn Any + Send)) -> bool {
    payload.is::<Thrown>()
}

// SAFETY: the frame that catches only compares the address of the target, and does not follow it.
unsafe impl Send for Thrown {}

/// How a wait takes an interrupt.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum OnInterrupt {
    /// By unwinding, if the stack can be unwound.
    Unwinding,
    /// By an error that the call returns, or by unwinding if the call has no error for the interrupt.
    Returning,
    /// Not at all. The wait is short, or the goroutine unwinds already, or the goroutine waits for the main goroutine of
    /// another runtime. The ender waits for this goroutine, within the ender's time limit.
    Never,
    /// Not at all. The wait ends when other goroutines have ended, and the ender does not wait for this goroutine.
    WithOthers,
}

impl OnInterrupt {
    #[inline]
    pub(crate) fn can_be_interrupted(self) -> bool {
        matches!(self, OnInterrupt::Unwinding | OnInterrupt::Returning)
    }
}

/// How the wait in which a goroutine is parked takes an interrupt, in a byte of the G. Written by the goroutine, or by the M
/// that it has just left; read by that M, and by an ender that has found the goroutine asleep.
pub(crate) struct InterruptPolicy(SingleWriterByte);

impl InterruptPolicy {
    const LISTENS: u8 = 1 << 7;

    pub(crate) fn new() -> Self {
        InterruptPolicy(SingleWriterByte::new(OnInterrupt::Never as u8))
    }

    /// Sets the policy. `listens`: an interrupt might be there already, or might come.
    #[inline(always)]
    pub(crate) fn set(&self, ends: OnInterrupt, listens: bool) {
        self.0.set(ends as u8 | if listens { Self::LISTENS } else { 0 });
    }

    #[inline(always)]
    pub(crate) fn listens(&self) -> bool {
        self.0.get() & Self::LISTENS != 0
    }

    pub(crate) fn ends(&self) -> OnInterrupt {
        let byte = self.0.get() & !Self::LISTENS;
        [OnInterrupt::Unwinding, OnInterrupt::Returning, OnInterrupt::Never, OnInterrupt::WithOthers]
            [usize::from(byte)]
    }
}

/// How often an interrupt was thrown at a goroutine, in a byte of the G. Written by the goroutine; also read by an ender that
/// has found the goroutine asleep.
pub(crate) struct Throws(SingleWriterByte);

impl Throws {
    pub(crate) fn new() -> Self {
        Throws(SingleWriterByte::new(0))
    }

    pub(crate) fn begin(&self) {
        self.0.set(0);
    }

    /// Called when the goroutine ends: from here on no interrupt ends the waits of its destructors.
    pub(crate) fn end(&self) {
        self.0.set(ENDS);
    }

    pub(crate) fn are_over(&self) -> bool {
        self.0.get() == ENDS
    }

    /// Counts a throw, no further than it matters: a goroutine that has caught many exits is not one that ends.
    fn count(&self) {
        let thrown = self.0.get();
        if thrown < THROWS {
            self.0.set(thrown + 1);
        }
    }
}

/// Returns the innermost frame whose context is done, if the waiter has not masked it.
pub(crate) fn first_done(mut frame: *const Frame, masked_from: *const Frame) -> Option<NonNull<Frame>> {
    while frame != masked_from {
        // SAFETY: `Context::run` takes the frame out of the chain before the frame goes.
        let it = unsafe { frame.as_ref() }?;
        if it.is_done() {
            return NonNull::new(frame.cast_mut());
        }
        mutant!(OuterFramesIgnored: return None);
        frame = it.outer;
    }
    None
}

/// ParkFence and P3, on the M, with the goroutine saved and the wait not yet published. Returns `true` if the goroutine is
/// interrupted. Partner: CancelFence.
pub(crate) fn is_interrupted<H: Host>(g: GRef<H>, ending: bool) -> bool {
    if g.exits.get() || ending {
        return true;
    }
    // SeqCst: the store of Waiting, then a load of `done`; partner: CancelFence.
    fence(Ordering::SeqCst.unless(ParkNoFence));
    mutant!(InterruptNotSeen: return false);
    first_done(g.frame.get(), std::ptr::null()).is_some()
}

/// CancelFence: between the store of `done` and the look at the goroutines under the context. Partner: ParkFence.
pub(crate) fn cancel_fence() {
    // SeqCst: partner ParkFence.
    fence(Ordering::SeqCst.unless(CancelNoFence));
}

impl Interrupt {
    /// Returns `true` if a throw of this interrupt is certain to arrive, and has not yet been caught too often. Called in a
    /// frame below that of the throw.
    pub(crate) fn may_throw<H: Host>(self) -> bool {
        let g = M::<H>::current().and_then(M::g);
        let (mark, thrown) = match (self, g) {
            (Interrupt::Exit | Interrupt::Shutdown, None) => return false,
            (Interrupt::Exit | Interrupt::Shutdown, Some(g)) => (g.mark(), g.throws.0.get()),
            // SAFETY: the caller runs under the frame.
            (Interrupt::Context(frame), _) => unsafe { (frame.as_ref().mark, frame.as_ref().thrown.get()) },
        };
        if thrown >= THROWS {
            return false;
        }
        if !has_room::<H>(self.room()) {
            // Only counted, because a report takes stack, too.
            if let Some(sched) = Sched::<H>::current() {
                sched.count_refusal();
            }
            return false;
        }
        let looked = H::may_unwind_to(mark);
        looked.inspect_err(|bar| self.is_refused::<H>(*bar)).is_ok()
    }

    /// Returns how many bytes of stack a look at the frames needs: with less, nothing is thrown.
    fn room(self) -> usize {
        match self {
            Interrupt::Shutdown => ROOM,
            // The program has asked for this interrupt, and is responsible for the stack of its destructors.
            Interrupt::Exit | Interrupt::Context(_) => ROOM_TO_LOOK,
        }
    }

    /// Called when nothing is thrown, because a throw might end the process. Counts the refusal, and reports it if there is
    /// stack for that: the first time in the process, or each time with the knob `refusals=all`.
    #[cold]
    #[inline(never)]
    fn is_refused<H: Host>(self, bar: Bar) {
        let sched = Sched::<H>::current();
        if let Some(sched) = sched {
            sched.count_refusal();
        }
        let g = M::<H>::current().and_then(M::g);
        // The report takes stack, too.
        if !has_room::<H>(ROOM) {
            return;
        }
        if H::is_first_refusal() || sched.is_some_and(|sched| sched.config.knobs.all_refusals) {
            self.tell_refused::<H>(g, bar);
        }
    }

    #[cold]
    #[inline(never)]
    fn tell_refused<H: Host>(self, g: Option<GRef<H>>, bar: Bar) {
        let who = g.map(|g| g.id());
        let what = match self {
            Interrupt::Exit => "goexit",
            Interrupt::Context(_) => "the end of its context",
            Interrupt::Shutdown => "the end of its runtime",
        };
        // Looking up names takes more stack than the caller might have.
        let text = H::with_room(|| refusal::<H>(who, what, bar, true));
        H::warn(&text.unwrap_or_else(|| refusal::<H>(who, what, bar, false)));
    }

    /// Unwinds to the frame that catches this interrupt. The caller has left all queues, and `may_throw` has returned `true`.
    /// Inlined, because the unwinder passes each frame on the way.
    #[inline(always)]
    pub(crate) fn throw<H: Host>(self) -> ! {
        H::throw(self.counted::<H>())
    }

    /// As `throw`, without a look before it: a frame that no panic may pass ends the process.
    #[inline(always)]
    pub(crate) fn throw_unseen<H: Host>(self) -> ! {
        resume_unwind(self.counted::<H>())
    }

    /// Counts a throw, and returns its payload.
    #[cold]
    #[inline(never)]
    fn counted<H: Host>(self) -> Box<Thrown> {
        match self {
            Interrupt::Exit | Interrupt::Shutdown => {
                let g = M::<H>::current().and_then(M::g).expect("throw: a goroutine is to end");
                g.throws.count();
            }
            Interrupt::Context(frame) => {
                // SAFETY: the caller runs under the frame.
                let thrown = unsafe { &frame.as_ref().thrown };
                thrown.set(thrown.get() + 1);
            }
        }
        Box::new(Thrown { target: self })
    }
}

/// Returns one line about a wait that goes on after `what`. If `named`, looks up the frame's function.
fn refusal<H: Host>(who: Option<u64>, what: &str, bar: Bar, named: bool) -> String {
    let who = who.map_or_else(|| "a thread".to_owned(), |id| format!("goroutine {id}"));
    let mut why = bar.why.to_owned();
    if let Some(pc) = bar.frame {
        let mut function = None;
        if named {
            // If functions were inlined, the innermost one, which has the call, comes first.
            H::symbols(pc, &mut |symbol| {
                function.get_or_insert_with(|| symbol.to_string());
            });
        }
        let function = function.unwrap_or_else(|| "a function".to_owned());
        why.push_str(&format!(" in {function}, at {pc:#x}"));
    }
    format!("{who} waits on after {what}: {why}; GMPDEBUG=refusals=all tells each of these")
}

/// What can interrupt a wait: the innermost frame, the goroutine's exit, and the end of the runtime.
#[derive(Copy, Clone)]
pub(crate) struct PendingInterrupts {
    pub(crate) frame: *const Frame,
    pub(crate) exits: bool,
    /// The runtime ends.
    pub(crate) ends: bool,
}

impl PendingInterrupts {
    /// Returns those of the calling plain thread.
    pub(crate) fn of_thread<H: Host>() -> Self {
        PendingInterrupts { frame: H::thread_frame().cast(), exits: false, ends: false }
    }

    /// Returns `true` if a wait with this policy has anything to listen for.
    #[inline]
    pub(crate) fn listens<H: Host>(self, ends: OnInterrupt) -> bool {
        (self.exits || !self.frame.is_null() || self.ends) && ends.can_be_interrupted() && !H::is_panicking()
    }

    /// Returns the interrupt by which the wait has to end, if the waiter has not masked that interrupt and a throw can pass.
    /// Masks an interrupt that can't be thrown.
    pub(crate) fn interrupt<H: Host>(self, ends: OnInterrupt, masked: &mut Masked) -> Option<Interrupt> {
        if self.exits && !masked.to_exit {
            if Interrupt::Exit.may_throw::<H>() {
                return Some(Interrupt::Exit);
            }
            masked.to_exit = true;
        }
        let frame = first_done(self.frame, masked.to_frame)?;
        let interrupt = Interrupt::Context(frame);
        if ends == OnInterrupt::Returning || interrupt.may_throw::<H>() {
            return Some(interrupt);
        }
        masked.to_frame = frame.as_ptr();
        None
    }
}

/// Bytes of stack that the look at the frames and a throw take, even the first time, and some for the destructors.
const ROOM: usize = 8 << 10;
/// As `ROOM`, without any for destructors. The unwinder goes on from each frame that has a destructor, on that frame's stack: a
/// stack that is lent for the look would not help the throw. The look takes most without optimisation.
const ROOM_TO_LOOK: usize = if cfg!(debug_assertions) { ROOM } else { 5 << 10 };

/// Returns `true` if `bytes` are left on each stack of the calling goroutine or thread: an interrupt unwinds the outer frames
/// on their own stacks.
fn has_room<H: Host>(bytes: usize) -> bool {
    let frame = 0_u8;
    H::least_left((&raw const frame).addr()) >= bytes
}

/// Called when the runtime of the calling goroutine ends, where the goroutine might have parked: unwinds the goroutine, or
/// keeps it parked for good. Returns if the goroutine is already unwinding or ending.
#[cold]
#[inline(never)]
pub(crate) fn end_here<H: Host>() {
    if H::is_panicking() || M::<H>::current().and_then(M::g).is_some_and(|g| g.throws.are_over()) {
        return;
    }
    if Interrupt::Shutdown.may_throw::<H>() {
        Interrupt::Shutdown.throw::<H>()
    }
    Wait::<H>::begin().stay()
}

/// While this value lives, no interrupt ends a wait of the caller, a goroutine or a plain thread. This is for destructors that
/// run because of an interrupt, before its throw: their waits go on, as in destructors that the unwinding runs.
pub(crate) struct Undisturbed<H: Host> {
    g: Option<GRef<H>>,
    frame: *const Frame,
    exits: bool,
    throws: u8,
}

impl<H: Host> Undisturbed<H> {
    pub(crate) fn begin() -> Self {
        // Inside the runtime there is no context to set aside. The caller might be in the commit hook of the goroutine that `m`
        // shows: then another M might already run that goroutine, and this thread must not touch it.
        let m = M::<H>::current().filter(|m| !m.is_inside());
        match m.and_then(M::g) {
            Some(g) => {
                let (frame, exits, throws) =
                    (g.frame.replace(std::ptr::null()), g.exits.replace(false), g.throws.0.get());
                // The ender waits for the goroutine, within its own limit.
                g.throws.end();
                Undisturbed { g: Some(g), frame, exits, throws }
            }
            None => {
                let frame = H::thread_frame().cast();
                H::set_thread_frame(std::ptr::null());
                Undisturbed { g: None, frame, exits: false, throws: 0 }
            }
        }
    }
}

impl<H: Host> Drop for Undisturbed<H> {
    fn drop(&mut self) {
        match self.g {
            Some(g) => {
                g.frame.set(self.frame);
                // A destructor might have called `goexit`.
                g.exits.set(g.exits.get() | self.exits);
                g.throws.0.set(self.throws);
            }
            None => H::set_thread_frame(self.frame.cast()),
        }
    }
}

/// Called between two polls of a future that was woken again: returns the interrupt that is due for the caller, if a throw can
/// pass. Returns `None` at once if no interrupt is due. Masks an interrupt that can't be thrown.
pub(crate) fn due<H: Host>(g: Option<GRef<H>>, masked: &mut Masked) -> Option<Interrupt> {
    let pending = match (g, Sched::<H>::current()) {
        (Some(g), Some(sched)) => g.pending_interrupts(sched.duties()),
        _ => PendingInterrupts::of_thread::<H>(),
    };
    if !pending.listens::<H>(OnInterrupt::Unwinding) {
        return None;
    }
    if pending.ends {
        if Interrupt::Shutdown.may_throw::<H>() {
            return Some(Interrupt::Shutdown);
        }
        Wait::<H>::begin().stay()
    }
    pending.interrupt::<H>(OnInterrupt::Unwinding, masked)
}

/// As `due`, for the calling goroutine or plain thread, outside of a wait.
#[cold]
pub(crate) fn due_here<H: Host>() -> Option<Interrupt> {
    due(M::<H>::current().and_then(M::g), &mut Masked::new())
}

/// Returns the frame of the innermost done context under which the calling goroutine, or plain thread, runs.
pub(crate) fn first_done_here<H: Host>() -> Option<NonNull<Frame>> {
    let frame = match M::<H>::current() {
        Some(m) => m.g().map_or(std::ptr::null(), |g| g.frame.get()),
        None => H::thread_frame().cast(),
    };
    first_done(frame, std::ptr::null())
}

/// Returns `true` if `due_here` is certain to find nothing.
pub(crate) fn is_none_due<H: Host>() -> bool {
    match M::<H>::current() {
        Some(m) => m.g().is_none_or(|g| g.has_no_interrupt(m.sched().duties())),
        None => H::thread_frame().is_null(),
    }
}

/// The interrupts that can't end a wait.
pub(crate) struct Masked {
    to_frame: *const Frame,
    to_exit: bool,
}

impl Masked {
    pub(crate) fn new() -> Self {
        Masked { to_frame: std::ptr::null(), to_exit: false }
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;
    use crate::Runtime;
    use crate::context::Context;
    use crate::host::Active;
    use crate::sched::park::{Commit, WaitReason};
    use crate::wait::waiter::{How, Woke};

    /// Fails when foreign code that runs in a commit hook sets aside, and puts back, the interrupts of the goroutine that was
    /// parked: by then another M might run that goroutine, which might have left the frame.
    #[test]
    fn what_covers_a_parked_goroutine_is_left_alone() {
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        let rt = unsafe { Runtime::builder().procs(1).build() }.unwrap();
        let ended = rt.run(|| {
            let (ctx, _cancel) = Context::background().with_cancel();
            let covers = || {
                let g = M::<Active>::current().and_then(M::g).unwrap();
                (g.frame.get(), g.throws.are_over())
            };
            ctx.run(|| {
                let (own, mut in_hook) = (covers(), None);
                let woke = Wait::<Active>::begin().park(How::new(WaitReason::Event), || {
                    let _undisturbed = Undisturbed::<Active>::begin();
                    in_hook = Some(covers());
                    Commit::Refuse
                });
                assert_eq!((woke, in_hook), (Woke::Refused, Some(own)));
                let _undisturbed = Undisturbed::<Active>::begin();
                assert_eq!(covers(), (std::ptr::null(), true));
            })
        });
        assert!(ended.is_ok());
    }
}
