//! M, an OS thread that runs goroutines while holding a P; and the window through which goroutines call the runtime.
//!
//! A retaker takes the P of an M whose goroutine blocks its thread, at any moment; the goroutine may call the runtime at
//! that moment, and touch what then belongs to another M. An exchange or a fence at each call would be most of the cost of
//! a channel operation. So a goroutine runs with `in_runtime = 0`, and every runtime call that touches P-local data stands
//! in a *window*:
//!
//! ```text
//!   M that enters                                  retaker
//!
//!   E1  `in_runtime` := 1                          R1  hand-off word: Idle → Requested
//!   E2  EntryBarrier                               R2  RetakeBarrier
//!   E3  the hand-off word as this M left it?       R3  `in_runtime` = 1?  withdraw;
//!       else `reenter`                                 else Requested → Taken; ceded meanwhile?  taken
//!
//!   leave: `in_runtime` := 0 (Release)
//! ```
//! One of the barriers comes first. If EntryBarrier does, R3 sees the M inside; if RetakeBarrier does, E3 sees the request:
//! then the M withdraws it, or cedes the P, as the request says (`handoff.rs`).
//! EntryBarrier is no instruction: the retaker pays for both, by `membarrier`. Where the kernel refuses that, each side
//! fences, and an entry takes the way through `settle`.
//!
//! A sandbox may begin to refuse `membarrier` at any moment. So each lease of a P has its own kind of entries, which the M
//! settles on acquiring the P and writes into the hand-off word (`handoff.rs`): quick ones as long as no `membarrier` was
//! refused. The retaker that meets the first refusal says so (`heavy_barrier_exists`); an M that acquires a P later fences. An
//! M that has acquired its P before still enters quickly, and may never enter again: the retaker has the thread of such an M
//! switched out, in which the thread passes a barrier (`Threads::slow_barrier`), once for each such lease.
//!
//! Windows do not nest, and no user code runs inside: no drop of a user's value, no closure, no waker, no
//! message expression. The scheduler's own stack (g0) is always inside: `execute` leaves just before it resumes
//! a goroutine, and a goroutine that parks enters and does not leave.
//!
//! Checked by `models/window.rs`.

pub(crate) mod apart;
mod bound;
pub(crate) mod handoff;
pub(crate) mod note;
mod window;

pub(crate) use bound::cpus_of_the_process;
pub(crate) use window::{Inside, Window};

use crate::g::{G, GRef};
use crate::host::Host;
use crate::m::apart::Apart;
use crate::m::bound::Bound;
use crate::m::handoff::{Entries, Entry, Lease};
use crate::m::note::Note;
use crate::p::P;
use crate::prim::hooks::*;
use crate::prim::{
    Acquire, AtomicI64, AtomicU32, Ordering, Relaxed, Release, SingleWriter, SingleWriterFlag, UnsafeCell,
    fence, light_barrier,
};
use crate::sched::Sched;
use crate::sched::park::Yield;
use crate::sched::run::globq::Dice;
use crate::sched::run::nap::Thefts;
use crate::sched::run::spree::Spree;
use crate::sched::switch;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// What a window costs is measured against a build without them, which has no hand-off: `--cfg gmp_no_windows`.
pub(crate) const WINDOWS: bool = !cfg!(gmp_no_windows);

const OUTSIDE: u32 = 0;
const INSIDE: u32 = 1;

/// An OS thread of the runtime. Lives as long as the scheduler, so that a retaker may read the M at any time; the M's thread
/// may end before that, and the M then gets another (`sched/threads/mexit.rs`).
#[repr(align(128))]
pub(crate) struct M<H: Host> {
    in_runtime: AtomicU32,
    /// The host's number of the thread; 0 before the thread runs.
    thread: AtomicU32,
    pub(crate) id: u32,
    sched: NonNull<Sched<H>>,
    p: SingleWriter<P<H>>,
    /// The P that was given up or lost last: that P's queue and data may still be in this core's cache.
    last_p: Cell<Option<NonNull<P<H>>>>,
    /// What a window compares with the P's word. `None` without a P; and where entries are `Fenced`, so that each entry is
    /// settled behind its fence.
    quick: Cell<Option<Lease>>,
    lease: Cell<Option<Lease>>,
    g: SingleWriter<G<H>>,
    /// What the goroutine spawns without a P, which was taken from it.
    pub(crate) spree: Spree,
    /// Set while the M counts in `nmspinning`.
    pub(crate) spinning: SingleWriterFlag,
    /// The M is on its way for the callers.
    pub(crate) sent_for_callers: Cell<bool>,
    /// State of `random`.
    dice: Cell<u32>,
    /// What became of its thefts.
    pub(crate) thefts: Thefts,
    /// The M looks for no more work, and the thread ends.
    pub(crate) ends: Cell<bool>,
    /// The P that the M held when a goroutine ended and took the thread along. The M gives that P away as its last act.
    pub(crate) parting_p: Cell<Option<NonNull<P<H>>>>,
    /// The thread is the program's; see `sched/threads/attach.rs`. The M's own.
    pub(crate) attached: Cell<bool>,
    /// How often the M got a thread and lost one. Under the scheduler's lock.
    pub(crate) life: Cell<u32>,
    /// The thread, put here by its starter. Under the scheduler's lock.
    pub(crate) handle: Cell<Option<H::Thread>>,
    /// Goroutines that were made on this M, less those that ended here.
    live: AtomicI64,
    /// Where the thread sleeps without work. `assignment` is what a waker has left for the M: written before the note's wake,
    /// or the poller's break, and read after the sleep.
    pub(crate) note: Note<H>,
    assignment: UnsafeCell<Option<Assignment<H>>>,
    /// The CPUs of the thread, where Ps are bound to CPUs.
    bound: Bound,
    /// The CPU that an owner has forbidden the thread.
    apart: Apart,
    pub(crate) local: H::Local,
}

/// What an M is woken, or started, with.
pub(crate) enum Assignment<H: Host> {
    /// A P with work.
    P(NonNull<P<H>>),
    /// A summons: the M counts in `nmspinning`, and is to come for an idle P.
    Summons,
    /// The M is to go on with a goroutine that is about to block its thread: `sched/threads/callers.rs`.
    Caller,
}

// SAFETY: `in_runtime` and `note` are made for sharing; `assignment` is ordered by the note, or the scheduler's lock; the
// cells belong to the M's own thread.
unsafe impl<H: Host> Send for M<H> {}
// SAFETY: as for `Send`.
unsafe impl<H: Host> Sync for M<H> {}

impl<H: Host> M<H> {
    pub(crate) fn new(id: u32, sched: &Sched<H>) -> Self {
        let drawn = sched.config.policy.seed().map_or(0, |seed| Dice::new(seed).next());
        M {
            in_runtime: AtomicU32::new(INSIDE),
            thread: AtomicU32::new(0),
            id,
            sched: NonNull::from(sched),
            p: SingleWriter::new(None),
            last_p: Cell::new(None),
            quick: Cell::new(None),
            lease: Cell::new(None),
            g: SingleWriter::new(None),
            spree: Spree::new(),
            spinning: SingleWriterFlag::new(false),
            sent_for_callers: Cell::new(false),
            thefts: Thefts::new(),
            // Odd, so never zero, and different for each M.
            dice: Cell::new((id.wrapping_mul(0x9e37_79b9) ^ drawn as u32) | 1),
            ends: Cell::new(false),
            parting_p: Cell::new(None),
            attached: Cell::new(false),
            life: Cell::new(0),
            handle: Cell::new(None),
            live: AtomicI64::new(0),
            note: Note::new(),
            assignment: UnsafeCell::new(None),
            bound: Bound::new(),
            apart: Apart::new(),
            local: H::Local::default(),
        }
    }

    /// The M of the calling thread; `None` where no goroutine runs. The caller has this M only until the next park:
    /// read what is needed and let go.
    #[inline(always)]
    pub(crate) fn current<'a>() -> Option<&'a M<H>> {
        // SAFETY: an M lives as long as the scheduler, which the thread of a current M keeps alive, and so does the
        // runtime of a running goroutine.
        unsafe { H::current().cast::<Self>().as_ref() }
    }

    /// Makes `m` the M of the calling thread; `None`: the thread is no M's any more.
    pub(crate) fn set_current(m: Option<&M<H>>) {
        let before = Self::current();
        let address = m.map_or(std::ptr::null(), |m| std::ptr::from_ref(m).cast());
        H::set_current(address, before.map(|before| &before.local), m.map(|m| &m.local));
    }

    /// Gives this M back to the scheduler, which finds `what` as the result of the resume. Returns when the calling
    /// goroutine is resumed, perhaps on another M.
    ///
    /// # Safety
    /// The caller is a goroutine that runs on this M.
    #[inline(always)]
    pub(crate) unsafe fn suspend(&self, what: Yield) {
        let what = ManuallyDrop::new(what);
        // SAFETY: by this function's contract. The M reads `what` once, before another M can resume this goroutine, and
        // nothing here uses this M afterwards.
        unsafe { H::suspend(&self.local, (&raw const what).expose_provenance()) };
    }

    pub(crate) fn sched<'a>(&self) -> &'a Sched<H> {
        // SAFETY: the scheduler lives as long as its Ms are in use.
        unsafe { self.sched.as_ref() }
    }

    /// Returns a number without a pattern, for the order in which a thief visits its victims (Marsaglia's xorshift).
    #[doc(alias = "cheaprand")]
    pub(crate) fn random(&self) -> u32 {
        let mut x = self.dice.get();
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        self.dice.set(x);
        x
    }

    /// The M's own: counts goroutines that begin and end here.
    #[inline]
    pub(crate) fn count_live(&self, by: i64) {
        // Relaxed: one writer. A thread that learned of a goroutine's beginning or end sees it counted.
        self.live.store(self.live.load(Relaxed) + by, Relaxed);
    }

    /// This M's part of the goroutines; negative when others' ended here.
    pub(crate) fn live(&self) -> i64 {
        self.live.load(Relaxed)
    }

    /// The goroutine that this M runs.
    pub(crate) fn g(&self) -> Option<GRef<H>> {
        self.g.get().map(GRef::of)
    }

    pub(crate) fn set_g(&self, g: Option<GRef<H>>) {
        self.g.set_after(g.map(GRef::get));
    }

    /// For a trace, by any thread: the P that the M holds, or held at its last look.
    pub(crate) fn shown_p<'a>(&self) -> Option<&'a P<H>> {
        // SAFETY: Ps live as long as the scheduler, which outlives the use of Ms.
        self.p.peek().map(|p| unsafe { p.as_ref() })
    }

    /// By any thread: the goroutine that this M runs, or on whose word the M has just acted. Only to be compared. A reader that
    /// sees another goroutine than before sees what the M has done with the earlier one.
    pub(crate) fn shown_g(&self) -> Option<NonNull<G<H>>> {
        self.g.peek_after()
    }

    /// The P that this M holds, or held at its last look.
    #[inline(always)]
    pub(crate) fn p<'a>(&self) -> Option<&'a P<H>> {
        // SAFETY: Ps live as long as the scheduler, which outlives the use of Ms.
        self.p.get().map(|p| unsafe { p.as_ref() })
    }

    /// The P that this M held last.
    pub(crate) fn last_p(&self) -> Option<NonNull<P<H>>> {
        self.last_p.get()
    }

    /// Makes `p`, which the caller took out of the idle list or was given, this M's own.
    #[doc(alias = "acquirep")]
    pub(crate) fn acquire(&self, p: NonNull<P<H>>) {
        self.acquire_in_lock(p);
        self.go_where_the_p_belongs();
    }

    /// As `acquire`, for a caller that holds the scheduler's lock, and calls `go_where_the_p_belongs` after it.
    pub(crate) fn acquire_in_lock(&self, p: NonNull<P<H>>) {
        assert!(self.p.get().is_none(), "acquire: the M already holds a P");
        // SAFETY: Ps live as long as the scheduler, which outlives the use of Ms.
        let there = unsafe { p.as_ref() };
        debug_assert!(there.is_held_by(None), "acquire: {there:?} has an owner");
        there.set_holder(Some(self));
        // Asked only once: the word and this M have to agree.
        let entries = if H::heavy_barrier_exists() { Entries::Quick } else { Entries::Fenced };
        let lease = there.handoff.take_up(entries);
        self.lease.set(Some(lease));
        let is_quick = lease.entries() == Entries::Quick;
        mutant!(WindowStaysQuick: let is_quick = true);
        self.quick.set(is_quick.then_some(lease));
        self.p.set(Some(p));
        self.touch_p();
        // SAFETY: Ps live as long as the scheduler, which outlives the use of Ms.
        unsafe { p.as_ref() }.begin_lease();
    }

    /// Gives the P up. The caller afterwards puts the P where others find it.
    #[doc(alias = "releasep")]
    pub(crate) fn release(&self) -> NonNull<P<H>> {
        self.touch_p();
        let p = self.p.take().expect("release: the M holds no P");
        self.spree.end();
        self.last_p.set(Some(p));
        self.quick.set(None);
        // SAFETY: Ps live as long as the scheduler, which outlives the use of Ms.
        let there = unsafe { p.as_ref() };
        debug_assert!(there.is_held_by(Some(self)), "release: {there:?} is another's");
        there.set_holder(None);
        there.handoff.give_up();
        p
    }

    /// One operation of the P's owner, for the ghost.
    #[inline(always)]
    pub(crate) fn touch_p(&self) {
        if let Some(p) = self.p() {
            p.owner.touch();
        }
    }

    /// Assigns work to an M that stands by or was not started yet; `None` when the runtime ends. The caller wakes the M
    /// after this.
    pub(crate) fn assign(&self, assignment: Option<Assignment<H>>) {
        // SAFETY: the caller took this M out of those that stand by, and the M reads the assignment only after the
        // wake.
        self.assignment.with_mut(|slot| unsafe { *slot = assignment });
    }

    /// Returns `true` if an assignment was left. Under the scheduler's lock.
    pub(crate) fn is_assigned(&self) -> bool {
        // SAFETY: the scheduler's lock, under which an M that attends is assigned.
        self.assignment.with(|slot| unsafe { (*slot).is_some() })
    }

    /// Returns `true` if the M, which is new, was summoned. For its thread.
    pub(crate) fn is_summoned(&self) -> bool {
        // SAFETY: the start of the thread came after `assign`, and the M has not taken the assignment yet.
        self.assignment.with(|slot| matches!(unsafe { &*slot }, Some(Assignment::Summons)))
    }

    /// Takes back the assignment of an M whose thread did not start.
    pub(crate) fn take_back_assignment(&self) -> Option<Assignment<H>> {
        // SAFETY: the caller, which was to start the M's thread, is alone with the M.
        self.assignment.with_mut(|slot| unsafe { (*slot).take() })
    }

    /// Takes the assignment that the waker has left, and acts on it: acquires the P, spins, or notes that the M was sent
    /// for the callers.
    pub(crate) fn take_assignment(&self) {
        self.take_assignment_in_lock();
        self.go_where_the_p_belongs();
    }

    /// As `take_assignment`, for a caller that holds the scheduler's lock, and calls `go_where_the_p_belongs` after it.
    pub(crate) fn take_assignment_in_lock(&self) {
        // SAFETY: the note's wake, or the scheduler's lock, came after `assign` and before this.
        if let Some(assignment) = self.assignment.with_mut(|slot| unsafe { (*slot).take() }) {
            match assignment {
                Assignment::P(p) => self.acquire_in_lock(p),
                Assignment::Summons => self.spinning.set(true.unless(StartForgetsSpinning)),
                Assignment::Caller => self.sent_for_callers.set(true),
            }
        }
    }

    /// The goroutine side begins: `execute`, just before a resume.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        if !WINDOWS {
            return;
        }
        // Release: a retaker that reads Outside, in `is_inside`, its partner, sees all that was done to the P inside.
        self.in_runtime.store(OUTSIDE, Release.unless(WindowLeaveRelaxed));
    }

    /// The goroutine holds no P, and is about to suspend itself for one, as the M's stack is always inside; or to take one.
    fn stay_inside(&self) {
        // Relaxed: without a P no retaker looks here. A retaker that finds this M as the holder of a P that it acquires next,
        // by Acquire in `holder`, sees that it is inside: partner the Release of `set_holder`.
        self.in_runtime.store(INSIDE, Relaxed);
    }

    /// E1 to E3. Returns `false` if the P may be lost.
    #[inline(always)]
    fn enter(&self) -> bool {
        if !WINDOWS {
            return self.p.get().is_some();
        }
        debug_assert!(self.in_runtime.load(Relaxed) == OUTSIDE, "enter: windows do not nest");
        // Relaxed: EntryBarrier orders the store before E3.
        self.in_runtime.store(INSIDE, Relaxed);
        // EntryBarrier. No instruction: the partner, RetakeBarrier, is one for both.
        unless!(WindowNoEntryBarrier, light_barrier());
        match (self.p.get(), self.quick.get()) {
            // SAFETY: Ps live as long as the scheduler, which outlives the use of Ms.
            (Some(p), Some(lease)) => unsafe { p.as_ref() }.handoff.is_held(lease),
            _ => false,
        }
    }

    /// The rest of an entry that found the word changed.
    #[cold]
    fn settle(&self) -> Entry {
        if self.quick.get().is_none() && self.p.get().is_some() {
            // EntryFence: where the partner, RetakeBarrier, is a fence of the retaker alone, and of no meaning without a P.
            // SeqCst: a store to `in_runtime`, then a load of the word.
            fence(Ordering::SeqCst.unless(WindowNoEntryFence));
        }
        match (self.p(), self.lease.get()) {
            (Some(p), Some(lease)) => p.handoff.enter(lease, p.tick()),
            _ => Entry::Lost,
        }
    }

    /// The goroutine calls functions of `gmp::hooks`: each entry takes the slow way from here on, and finds that.
    pub(crate) fn bar_windows(&self) {
        self.quick.set(None);
    }

    /// Returns `false` if the goroutine calls no function of `gmp::hooks`. `true` if it does, or may.
    #[inline(always)]
    pub(crate) fn bars_windows(&self) -> bool {
        self.quick.get().is_none()
    }

    /// The functions have returned. The P may be lost by now: the next entry finds that.
    pub(crate) fn admit_windows(&self) {
        let lease =
            self.lease.get().filter(|lease| self.p.get().is_some() && lease.entries() == Entries::Quick);
        self.quick.set(lease);
    }

    /// The rest of a look that found the word changed. Returns `true` if the M has no P for the caller.
    #[cold]
    fn looks_in_vain(&self) -> bool {
        if switch::is_in_hook(self) {
            return true;
        }
        let lost = self.settle() == Entry::Lost;
        if lost {
            self.lose_p();
        }
        lost
    }

    /// Forgets a P that was taken away.
    fn lose_p(&self) {
        if let Some(p) = self.p.take() {
            self.last_p.set(Some(p));
            self.spree.begin();
        }
        self.lease.set(None);
        self.quick.set(None);
    }

    /// The M of the calling thread, if that is one of `sched`.
    #[inline]
    pub(crate) fn current_of<'a>(sched: &Sched<H>) -> Option<&'a M<H>> {
        Self::current().filter(|m| std::ptr::eq(m.sched.as_ptr(), sched))
    }

    /// Enters for a call that never parks. Returns `None` if the M holds no P, or the goroutine is in a function of
    /// `gmp::hooks`: the call then goes on as a plain thread's would. On the M's own stack, and inside a window, the M is
    /// inside already.
    #[inline]
    pub(crate) fn look_in(&self) -> Option<Inside<'_, H>> {
        if self.in_runtime.load(Relaxed) == INSIDE {
            return self.p().map(|p| Inside { m: self, p, leave: false });
        }
        if !self.enter() && self.looks_in_vain() {
            self.leave();
            return None;
        }
        self.p().map(|p| Inside { m: self, p, leave: true })
    }

    /// For a goroutine that runs without a P, outside of the runtime: enters, with a P that `find` takes out of the idle ones.
    /// The M is inside before it has the P, as the retaker looks.
    pub(crate) fn enter_with(&self, find: impl FnOnce() -> Option<NonNull<P<H>>>) -> Option<Inside<'_, H>> {
        unless!(SpawnerComesInLate, self.stay_inside());
        let found = find();
        if let Some(p) = found {
            self.acquire(p);
        } else {
            self.leave();
        }
        self.p().map(|p| Inside { m: self, p, leave: true })
    }

    /// Returns `true` if a goroutine calls, outside of the runtime, whose M has no P.
    pub(crate) fn is_outside_without_p(&self) -> bool {
        // Relaxed: the M's own word.
        self.in_runtime.load(Relaxed) == OUTSIDE && self.p.get().is_none() && !switch::is_in_hook(self)
    }

    /// The M's thread begins.
    pub(crate) fn set_thread(&self, number: u32) {
        // Relaxed: a retaker that finds this M as the holder of a P finds the number.
        self.thread.store(number, Relaxed);
    }

    /// The host's number of the M's thread.
    pub(crate) fn thread(&self) -> u32 {
        self.thread.load(Relaxed)
    }

    /// R3, for a retaker: returns `true` if the M is inside the runtime.
    pub(crate) fn is_inside(&self) -> bool {
        // Acquire: partner `leave`. If the M is outside, the retaker sees all that the M did inside.
        self.in_runtime.load(Acquire.unless(WindowLookRelaxed)) == INSIDE
    }
}
