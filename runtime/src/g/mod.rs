//! G, a goroutine: the word, the stack, its closure, and how its end is joined.
//!
//! ```text
//!   pool ──▶ load the task ──▶ run queue ──▶ M: stack, run ──▶ outcome ──▶ M: stack back, done ──▶ pool
//!                 │                                              ▲
//!                 └────────────── JoinHandle ────────────────────┘ join: takes the outcome
//! ```
//!
//! Two parties hold a G: the runtime (`LIVE`) until the M has taken the stack back, and the handle (`HANDLE`) until the join or
//! the drop. Both bits are in `life`, with the bits by which the two communicate:
//!
//! | party | does | and then |
//! | --- | --- | --- |
//! | the goroutine, as its last act | sets OUTCOME, if the outcome has to be dropped | drops the outcome itself if HANDLE is gone |
//! | the handle, when dropped | drops the outcome if OUTCOME is set, then clears HANDLE | frees the G if LIVE is gone |
//! | the joiner, after its save | sets WAITER, unless DONE is set | sleeps; if DONE is set, takes the outcome |
//! | the M, after the last switch | sets DONE and clears LIVE; if there is a WAITER, only sets DONE | |
//! | the M, if there is a WAITER | wakes the joiner, then clears WAITER and LIVE | frees the G if HANDLE is gone |
//!
//! So the goroutine or the handle's owner, never the scheduler, drops the outcome, which can run the user's `drop`; and the
//! later of the two parties frees the G. The last party with a bit has the G to itself, and needs no exchange: joining a
//! goroutine that has already ended is a load.
//!
//! A joiner's record lies on the joiner's stack. A joiner that is interrupted takes the record back by clearing WAITER; if DONE
//! is set, the M is about to read the record, and the joiner waits until the M has cleared WAITER. Between the two the M makes
//! at most a failed claim, or the call of a hook (below), which does not block.
//!
//! In `mark_left` the ender takes the same steps as the M, with LEFT, but leaves LIVE to the M, which waits for the
//! ender.
//!
//! Instead of a record the handle's owner can leave an [`EndHook`], by the same steps: the party that would wake the joiner
//! calls the hook instead, which then belongs to that party. The owner takes the hook back as an interrupted joiner takes the
//! record back: so an owner that leaves another hook waits until the call of the first is over. Unlike a record, a hook
//! outlasts the handle: a WAITER without HANDLE is a hook.
//!
//! Thirteen further bits of `life` are the goroutine's class and its hint: `class.rs`.
//!
//! Checked by `models/join.rs`.
//!
//! Invariants:
//! 1. `next` belongs to the list in which the G stands, under that list's lock.
//! 2. `stack` belongs to the M that won `StatusWord::run`, until the same M stores a new status.
//! 3. A G's memory is never freed while its pool lives; the pool lives until it is closed *and* every G has come back
//!    (`pool.rs`). A goroutine that shutdown can't unwind and leaves parked keeps its G, and with it the pool.

pub(crate) mod list;
#[cfg(gmp_loom)]
mod mutants;
pub(crate) mod pool;
pub(crate) mod task;

mod root;

pub(crate) use root::{call_undisturbed, root};
mod class;
mod life;

use crate::g::pool::GPool;
use crate::g::task::Task;
use crate::host::{Host, Stack};
use crate::local::Locals;
use crate::prim::hooks::*;
use crate::prim::{
    Acquire, Arc, AtomicBool, AtomicPtr, AtomicU32, Ghost, Relaxed, Release, SingleWriterWord, UnsafeCell,
    Weak, prefetch_to_write, relax,
};
use crate::sched::Sched;
use crate::sched::park::{Commit, WaitReason};
use crate::sched::switch::{Duties, Switching};
use crate::sched::threads::locked::Ties;
use crate::wait::abandon::{AbandonHook, StandingHook};
use crate::wait::interrupt::{Frame, InterruptPolicy, OnInterrupt, PendingInterrupts, Throws};
use crate::wait::status::{Status, StatusWord};
use crate::wait::waiter::Waiter;
use gmp_timers::Nanos;
use life::{COUNTS, DONE, HANDLE, LIVE, WAITER};
pub(crate) use life::{
    End, Life, drop_handle, drop_unrun, finish, give_handle_back, look_for_drop, mark_left,
};
use std::cell::Cell;
use std::ops::Deref;
use std::panic::Location;
use std::ptr::NonNull;

/// A goroutine's name. A thin pointer, because most goroutines have no name.
pub(crate) type Name = Arc<Box<str>>;

/// The spawner's settings for a goroutine.
pub(crate) struct Birth {
    pub(crate) name: Option<Name>,
    /// In bytes.
    pub(crate) stack_size: u32,
    pub(crate) site: &'static Location<'static>,
}

/// The function that the end of a goroutine calls, instead of waking a joiner. The first field of the value that was left at
/// the G.
#[repr(C)]
pub(crate) struct EndHook {
    run: unsafe fn(*const EndHook),
}

/// The bit that marks a pointer to a hook instead of a record.
const IS_HOOK: usize = 1;

impl EndHook {
    /// Makes a hook. `run` owns the value at the pointer, is called once, without any lock, and must not block.
    pub(crate) fn new(run: unsafe fn(*const EndHook)) -> Self {
        EndHook { run }
    }

    /// # Safety
    /// The hook belongs to the caller, which gives it up.
    pub(crate) unsafe fn run(this: *const EndHook) {
        // SAFETY: by this function's contract.
        unsafe { ((*this).run)(this) }
    }
}

/// Data that a goroutine needs only while running: in the frame of `root`, on the goroutine's own stack, because the spawn
/// touches the memory of a G.
#[repr(C)]
pub(crate) struct Base {
    /// For the host; null at first. This frame catches a payload that is thrown at the goroutine.
    pub(crate) mark: Cell<*const ()>,
    /// The `local!` variables; empty until the first is used.
    pub(crate) locals: Locals,
    /// The hooks that outlast a wait; null for none.
    standing_hooks: AtomicPtr<StandingHook>,
    /// Where the goroutine stands between the functions around its switches.
    switching: Switching,
}

/// A goroutine.
///
/// In this order, the fields that an M touches for a run, or a waker for a `ready`, lie in one cache line; with those for a
/// park they lie in two, and all fields in three. A join of a goroutine that has ended touches the first line, and the outcome.
#[repr(C, align(64))]
pub(crate) struct G<H: Host> {
    pub(crate) word: StatusWord,
    /// The stack, from the first run to the end. By this cell loom checks that no G runs on two Ms, and that no G is resumed
    /// before it was saved.
    pub(crate) stack: UnsafeCell<Option<H::Stack>>,
    pool: Cell<Option<NonNull<GPool<H>>>>,
    life: AtomicU32,
    /// Which Ms can run the goroutine.
    pub(crate) ties: Ties,
    /// How the wait in which the goroutine is parked takes an interrupt.
    pub(crate) interrupt_policy: InterruptPolicy,
    pub(crate) reason: Cell<WaitReason>,
    /// The goroutine has called `goexit`.
    pub(crate) exits: Cell<bool>,
    /// How often an interrupt was thrown at the goroutine, for `goexit` or because the runtime ends.
    pub(crate) throws: Throws,
    /// The runtime has ended, and the goroutine will not run again.
    left: AtomicBool,
    /// The innermost frame of `Context::run`; null for none.
    pub(crate) frame: Cell<*const Frame>,
    next: UnsafeCell<Option<GRef<H>>>,
    /// For loom, which checks that only one thread at a time puts the G into a list or the global queue, or takes it out.
    pub(crate) place: Ghost,
    /// The runtime's coarse time at the last park.
    pub(crate) since: Cell<Nanos>,
    pub(crate) id: SingleWriterWord,
    /// Null before the first run and after the last.
    base: Cell<*const Base>,
    /// The joiner's record, or a hook, while WAITER is set in `life`; before that, the cell belongs to the handle.
    joiner: UnsafeCell<*const Waiter<H>>,
    pub(crate) birth: UnsafeCell<Option<Birth>>,
    pub(crate) task: Task,
    /// The abandon hook, null for none: the ender runs the hook if the runtime ends first. Written by the goroutine, or by the
    /// waker that has claimed the wait.
    pub(crate) on_abandon: AtomicPtr<AbandonHook>,
}

// SAFETY: every field is an atomic, or has one owner at a time by the invariants of the module's header.
unsafe impl<H: Host> Send for G<H> {}
// SAFETY: as for `Send`.
unsafe impl<H: Host> Sync for G<H> {}

/// A pointer to a G. Copies are free; the memory stays a G as long as the pool lives (invariant 3), and a holder of a GRef
/// has a party's bit, is under a queue's lock, or has claimed the G's wait.
pub(crate) struct GRef<H: Host>(NonNull<G<H>>);

impl<H: Host> Clone for GRef<H> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<H: Host> Copy for GRef<H> {}
impl<H: Host> PartialEq for GRef<H> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
// SAFETY: a GRef is a shared reference to a G, which is Sync.
unsafe impl<H: Host> Send for GRef<H> {}
// SAFETY: as for `Send`.
unsafe impl<H: Host> Sync for GRef<H> {}

impl<H: Host> Deref for GRef<H> {
    type Target = G<H>;
    #[inline(always)]
    fn deref(&self) -> &G<H> {
        // SAFETY: the type's contract.
        unsafe { self.0.as_ref() }
    }
}

impl<H: Host> std::fmt::Debug for GRef<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "G{}", self.id.get())
    }
}

impl<H: Host> GRef<H> {
    pub(crate) fn new(g: &G<H>) -> Self {
        GRef(NonNull::from(g))
    }

    /// Returns a GRef to the G of an M, which is alive as long as the M has it.
    #[inline(always)]
    pub(crate) fn of(g: NonNull<G<H>>) -> Self {
        GRef(g)
    }

    #[inline(always)]
    pub(crate) fn get(self) -> NonNull<G<H>> {
        self.0
    }

    /// Returns the goroutine's part of `sched/switch.rs`; `None` before the run and after. For the goroutine.
    pub(crate) fn switching<'a>(self) -> Option<&'a Switching> {
        // SAFETY: the frame is there as long as `base` names it, and the goroutine that asks stands above that frame.
        unsafe { self.base.get().as_ref() }.map(|base| &base.switching)
    }

    pub(crate) fn to_raw(self) -> *mut G<H> {
        self.0.as_ptr()
    }

    /// Prefetches all cache lines of the G, for writing.
    #[inline(always)]
    pub(crate) fn fetch(self) {
        const LINE: usize = 64;
        (0..size_of::<G<H>>())
            .step_by(LINE)
            .for_each(|at| prefetch_to_write(self.0.as_ptr().wrapping_byte_add(at)));
    }

    /// Prefetches the innermost frames of the goroutine.
    ///
    /// # Safety
    /// The caller has claimed the goroutine's wait, has found the goroutine saved, and has not queued it yet.
    #[inline(always)]
    pub(crate) unsafe fn fetch_frames(self) {
        // SAFETY: by this function's contract no M resumes the goroutine meanwhile.
        if let Some(stack) = self.stack.with(|stack| unsafe { (*stack).as_ref() }) {
            stack.coro().fetch();
        }
    }

    /// # Safety
    /// `raw` came from `to_raw`, and the type's contract holds again.
    pub(crate) unsafe fn from_raw(raw: *mut G<H>) -> Self {
        // SAFETY: by this function's contract.
        GRef(unsafe { NonNull::new_unchecked(raw) })
    }
}

impl<H: Host> G<H> {
    pub(crate) fn new() -> Self {
        G {
            word: StatusWord::new(Status::Idle),
            next: UnsafeCell::new(None),
            place: Ghost::new(),
            stack: UnsafeCell::new(None),
            reason: Cell::new(WaitReason::None),
            since: Cell::new(Nanos::ZERO),
            frame: Cell::new(std::ptr::null()),
            exits: Cell::new(false),
            throws: Throws::new(),
            base: Cell::new(std::ptr::null()),
            interrupt_policy: InterruptPolicy::new(),
            ties: Ties::new(),
            task: Task::new(),
            life: AtomicU32::new(0),
            joiner: UnsafeCell::new(std::ptr::null()),
            pool: Cell::new(None),
            on_abandon: AtomicPtr::new(std::ptr::null_mut()),
            left: AtomicBool::new(false),
            id: SingleWriterWord::new(0),
            birth: UnsafeCell::new(None),
        }
    }

    /// Sets the pool to which this G's memory belongs; called once.
    pub(crate) fn belongs_to(&self, pool: NonNull<GPool<H>>) {
        self.pool.set(Some(pool));
    }

    /// Prepares a G out of the pool for a goroutine, with both parties alive. `set_birth` follows.
    pub(crate) fn begin(&self, id: u64, counts: bool, wanders: bool) {
        self.id.set(id);
        self.ties.begin(wanders);
        self.reason.set(WaitReason::None);
        self.exits.set(false);
        self.throws.begin();
        // Relaxed: the caller has the G to itself, see below.
        self.left.store(false, Relaxed);
        // Relaxed: a word by itself, which publishes no other memory. The G is published by `StatusWord::spawn`.
        let counts = if counts { COUNTS } else { 0 };
        self.life.store(HANDLE | LIVE | counts, Relaxed);
    }

    /// Called after `begin`. The caller has not queued the goroutine yet.
    #[inline(always)]
    pub(crate) fn set_birth(&self, birth: Birth) {
        // SAFETY: the caller has taken the G out of the pool, and has the only pointer to it. In the pool a G has no birth
        // (`finish`), so none is overwritten.
        self.birth.with_mut(|slot| unsafe { slot.write(Some(birth)) });
    }

    /// Called after `begin` if there is no handle. The caller has not queued the goroutine yet.
    pub(crate) fn begin_detached(&self) {
        // Relaxed: as in `begin`.
        self.life.store(self.life.load(Relaxed) & !HANDLE, Relaxed);
    }

    /// Returns `true` if `num_goroutines` counts this goroutine: then the goroutine is none of the library's own.
    pub(crate) fn counts(&self) -> bool {
        // Relaxed: unchanged since `begin`, for a holder of a party's bit.
        self.life.load(Relaxed) & COUNTS != 0
    }

    /// Returns `true` if the goroutine has begun and not ended.
    pub(crate) fn is_live(&self) -> bool {
        // Acquire: partner `finish`: a reader that sees the end sees the goroutines that the ended one has woken. A reader that
        // finds the goroutine live then reads the word, which by then might be that of the G's next goroutine.
        self.life.load(Acquire.unless(LiveLooksRelaxed)) & LIVE != 0
    }

    /// Marks the goroutine as left: the runtime has ended, and no M will run it again.
    pub(crate) fn leave(&self) {
        // Relaxed: a call after the end of the runtime sees the store; a call beside that end guesses.
        self.left.store(true, Relaxed);
    }

    /// Returns `true` if the goroutine is known not to run again.
    pub(crate) fn is_left(&self) -> bool {
        // Relaxed: partner `leave`, beside which the answer is a guess.
        self.left.load(Relaxed)
    }

    /// Returns `true` if the goroutine is parked for a descriptor or a future, or was when it last parked: an event from
    /// outside might wake it. The caller knows that no M runs the goroutine.
    pub(crate) fn waits_for_io(&self) -> bool {
        matches!(self.reason.get(), WaitReason::IoRead | WaitReason::IoWrite | WaitReason::Future)
    }

    pub(crate) fn next(&self) -> Option<GRef<H>> {
        // SAFETY: invariant 1.
        self.next.with(|next| unsafe { *next })
    }

    pub(crate) fn set_next(&self, g: Option<GRef<H>>) {
        self.place.touch();
        // SAFETY: invariant 1.
        self.next.with_mut(|next| unsafe { *next = g });
    }

    pub(crate) fn id(&self) -> u64 {
        self.id.get()
    }

    /// Calls `f` with the spawner's settings.
    pub(crate) fn with_birth<R>(&self, f: impl FnOnce(&Birth) -> R) -> R {
        // SAFETY: the birth is written before the G is queued, and by the M after the last switch, never in between.
        self.birth
            .with(|birth| f(unsafe { (*birth).as_ref() }.expect("with_birth: the G holds no goroutine")))
    }

    /// Returns the list of the standing hooks; `None` before the first run and after the last. For the goroutine, or for the
    /// ender, if the goroutine will not run again.
    pub(crate) fn standing_hooks<'a>(&self) -> Option<&'a AtomicPtr<StandingHook>> {
        // SAFETY: the frame is there as long as `base` names it; the stack of a goroutine that is left is never freed.
        unsafe { self.base.get().as_ref() }.map(|base| &base.standing_hooks)
    }

    /// Returns the address of the word in the frame of `root`; null before and after the run.
    pub(crate) fn mark(&self) -> *const () {
        self.base.get().cast()
    }

    /// Returns the goroutine's variables. For the goroutine.
    pub(crate) fn locals(&self) -> &Locals {
        // SAFETY: only code that `root` calls asks for the variables, and the frame of `root` outlasts that code.
        unsafe { &(*self.base.get()).locals }
    }

    /// Returns what can interrupt the goroutine's waits. For the goroutine.
    #[inline]
    pub(crate) fn pending_interrupts(&self, duties: Duties) -> PendingInterrupts {
        let ends = !duties.are_none() && duties.ends() && !self.throws.are_over();
        PendingInterrupts { frame: self.frame.get(), exits: self.exits.get(), ends }
    }

    /// Returns `true` if nothing can interrupt the goroutine's waits now. For the goroutine.
    #[inline]
    pub(crate) fn has_no_interrupt(&self, duties: Duties) -> bool {
        duties.are_none() && self.frame.get().is_null() && !self.exits.get()
    }

    /// Returns how the wait takes an interrupt. For an ender that has found the goroutine asleep.
    pub(crate) fn ends(&self) -> OnInterrupt {
        match self.interrupt_policy.ends() {
            ends if ends.can_be_interrupted() && self.throws.are_over() => OnInterrupt::Never,
            ends => ends,
        }
    }

    fn pool(&self) -> &GPool<H> {
        let pool = self.pool.get().expect("pool: the G was never taken from one");
        // SAFETY: invariant 3: this G is out, so the pool lives.
        unsafe { pool.as_ref() }
    }

    /// Returns `true` if this is a goroutine of `sched`: each scheduler has one pool, whose address the scheduler and its Gs
    /// keep.
    #[inline(always)]
    pub(crate) fn is_of(&self, sched: &Sched<H>) -> bool {
        self.pool.get() == Some(sched.pool())
    }

    /// Returns the scheduler whose goroutine this is.
    pub(crate) fn home(&self) -> &Weak<Sched<H>> {
        self.pool().sched()
    }

    /// For the handle's owner: returns the life. If the life says that the goroutine has ended, the owner sees all that the
    /// goroutine did.
    #[inline]
    pub(crate) fn life(&self) -> Life {
        // Acquire: partners `finish` and `mark_left`.
        Life(self.life.load(Acquire.unless(JoinLooksRelaxed)))
    }

    /// For the handle's owner, which has `seen` no end, and is about to wait, by a record that is not moved until there is an
    /// end or `wait_no_more` is called. This is the commit hook of that wait. A handle has only one such wait, without a time
    /// limit: a timer could end the wait before WAITER is set.
    pub(crate) fn wait_for_end(&self, record: *const Waiter<H>, seen: Life) -> Commit {
        debug_assert!(
            seen.0 & (WAITER | DONE) != WAITER | DONE,
            "wait_for_end: the end reads the cell, to call a hook"
        );
        // SAFETY: the cell belongs to the handle while WAITER is clear, and only the handle's owner sets WAITER.
        self.joiner.with_mut(|joiner| unsafe { *joiner = record });
        let Life(mut life) = seen;
        loop {
            if (life & DONE != 0).unless(JoinNoRecheck) {
                return Commit::Refuse;
            }
            // Release: publishes the record, and its address, to the M or ender that finds WAITER: partners `finish` and
            // `mark_left`. Relaxed on failure: a joiner that is refused looks once more.
            let release = Release.unless(JoinRelaxed);
            match self.life.compare_exchange(life, life | WAITER, release, Relaxed) {
                Ok(_) => return Commit::Park,
                Err(now) => life = now,
            }
        }
    }

    /// For the handle's owner, which was interrupted: takes the record back. Returns the life, as `life` does.
    pub(crate) fn wait_no_more(&self) -> Life {
        // Acquire: the M or ender that has found the record has finished reading it: partners the clears of WAITER in `finish`
        // and `mark_left`.
        let through = Acquire.unless(JoinEndsRelaxed);
        let mut life = self.life.load(through);
        while life & WAITER != 0 {
            if life & DONE != 0 {
                mutant!(JoinEndsEarly: break);
                relax();
                life = self.life.load(through);
            } else {
                // Relaxed: without DONE the record was not read.
                match self.life.compare_exchange(life, life & !WAITER, Relaxed, through) {
                    Ok(_) => break,
                    Err(now) => life = now,
                }
            }
        }
        // SAFETY: WAITER is clear, so the cell belongs to the handle.
        self.joiner.with_mut(|joiner| unsafe { *joiner = std::ptr::null() });
        Life(life)
    }

    /// For the handle's owner, which waits by no record and has left no hook: leaves a hook. `seen` is the `life` that the
    /// owner has read. Returns `false` if the goroutine has ended: then the hook still belongs to the caller.
    #[must_use]
    pub(crate) fn leave_hook(&self, hook: *const EndHook, seen: Life) -> bool {
        let tagged = hook.map_addr(|at| at | IS_HOOK).cast();
        matches!(self.wait_for_end(tagged, seen), Commit::Park)
    }

    /// For the handle's owner, which has left a hook: takes the hook back. Returns `None` if the hook was called, after that
    /// call is over.
    pub(crate) fn take_hook_back(&self) -> Option<*const EndHook> {
        // SAFETY: only the handle's owner writes the cell.
        let hook = self.joiner.with(|joiner| unsafe { *joiner });
        let ended = self.wait_no_more().end().is_some();
        (!ended).then(|| hook.map_addr(|at| at & !IS_HOOK).cast())
    }

    /// Wakes the joiner, or calls the hook. The caller has set DONE and found WAITER, and clears WAITER after this.
    fn tell(&self) {
        mutant!(JoinNoWake: return);
        mutant!(HookWrittenAtTheEnd: relax());
        // SAFETY: the record stays until the joiner is readied, or WAITER is clear.
        self.joiner.with(|record| unsafe {
            let record = *record;
            if record.addr() & IS_HOOK == 0 {
                if (*record).claim() {
                    (*record).claimed().ready();
                }
            } else {
                EndHook::run(record.map_addr(|at| at & !IS_HOOK).cast());
            }
        });
        // For loom, which dates an access at its beginning: the record was read until here.
        self.joiner.with(|_| ());
    }
}

// The stacks of the backend `generator` hold more.
#[cfg(all(test, target_arch = "x86_64", not(gmp_loom), not(feature = "generator")))]
mod tests {
    use super::*;
    use crate::host::Active;

    /// Fails if a G has grown: because Gs begin at multiples of 64 bytes, a million of them would take 64 MB more.
    #[test]
    fn a_g_is_three_cache_lines_and_runs_by_the_first() {
        assert!(size_of::<G<Active>>() <= 192, "{} bytes", size_of::<G<Active>>());
        assert!(std::mem::offset_of!(G<Active>, frame) < 64);
    }
}
