//! M, an OS thread that runs goroutines while holding a P; and the window through which goroutines call the runtime.
//!
//! A retaker can take the P of an M at any moment, if the M's goroutine blocks its thread or runs for too long. At that moment
//! the goroutine might call the runtime, and touch data that from then on belong to another M. An exchange or a fence at each
//! call would be most of the cost of a channel operation. So a goroutine runs with `in_runtime = 0`, and every runtime call
//! that touches P-local data is made in a *window*:
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
//! One of the barriers comes first. If EntryBarrier comes first, R3 sees the M inside. If RetakeBarrier comes first, E3 sees
//! the retaker's word: then the M withdraws a request, or cedes the P on a demand (`handoff.rs`). EntryBarrier is no
//! instruction: the retaker executes `membarrier`, which is a barrier on both sides. If the kernel refuses `membarrier`, each
//! side executes a fence, and an entry goes through `settle`.
//!
//! A sandbox can begin to refuse `membarrier` at any moment. So each lease of a P has its own kind of entry, `Quick` or
//! `Fenced`. The M chooses the kind when it acquires the P, and writes it into the hand-off word (`handoff.rs`): `Quick` while
//! no `membarrier` was refused. After the first refusal `heavy_barrier_exists` returns `false`, and an M that acquires a P from
//! then on enters with a fence. An M that acquired its P before the refusal still enters quickly, or might never enter again.
//! For each such lease the retaker makes sure that the M's thread was switched out, which is a barrier for that thread
//! (`Threads::slow_barrier`).
//!
//! Windows do not nest, and no user code runs inside a window: no drop of a user's value, no closure, no waker, no message
//! expression. The scheduler's own stack (g0) is always inside: `Sched::resume` leaves just before it switches to a goroutine,
//! and a goroutine that parks enters, and does not leave before it switches.
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
use crate::sched::lasting::PRef;
use crate::sched::park::Yield;
use crate::sched::run::globq::Dice;
use crate::sched::run::nap::Thefts;
use crate::sched::run::spawn_burst::SpawnBurst;
use crate::sched::switch;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

const OUTSIDE: u32 = 0;
const INSIDE: u32 = 1;

/// An OS thread of the runtime. Lives as long as the scheduler, so that a retaker can read the M at any time; the M's thread
/// can end before that, and the M then gets another one (`sched/threads/mexit.rs`).
#[repr(align(128))]
pub(crate) struct M<H: Host> {
    in_runtime: AtomicU32,
    /// The host's number of the thread; 0 before the thread runs.
    thread: AtomicU32,
    pub(crate) id: u32,
    sched: NonNull<Sched<H>>,
    p: SingleWriter<P<H>>,
    /// The P that was given up or lost last: that P's queue and data might still be in this core's cache.
    last_p: Cell<Option<PRef<H>>>,
    /// The lease with which a window compares the P's hand-off word. `None` if the M has no P, if entries are `Fenced`, or
    /// while the goroutine calls functions of `gmp::hooks`: then each entry goes through `settle`.
    quick: Cell<Option<Lease>>,
    /// The lease of the P that the M acquired last; meaningless while the M holds no P.
    lease: Cell<Option<Lease>>,
    g: SingleWriter<G<H>>,
    /// Spawns of a goroutine that runs without a P, which was taken from its M.
    pub(crate) spawn_burst: SpawnBurst,
    /// The M counts in `nmspinning`. A summoned M counts from its summons on, and sets this when it takes the assignment.
    pub(crate) spinning: SingleWriterFlag,
    /// The M is on its way for the blockers.
    pub(crate) sent_for_blockers: Cell<bool>,
    /// State of `random`.
    dice: Cell<u32>,
    /// The results of the M's thefts.
    pub(crate) thefts: Thefts,
    /// The M looks for no more work, and the thread ends.
    pub(crate) ends: Cell<bool>,
    /// The P that the M held when a goroutine ended and took the thread along. The M gives that P away as its last act.
    pub(crate) parting_p: Cell<Option<PRef<H>>>,
    /// How many threads have been this M and left. Under the central lock.
    pub(crate) life: Cell<u32>,
    /// The thread, put here by its starter. Under the central lock.
    pub(crate) handle: Cell<Option<H::Thread>>,
    /// Goroutines that were made on this M, less those that ended here.
    live: AtomicI64,
    /// The thread sleeps here when it has no work. `assignment` is what a waker has left for the M: written before the note's
    /// wake, or the poller's break, and read after the sleep.
    pub(crate) note: Note<H>,
    assignment: UnsafeCell<Option<Assignment<H>>>,
    /// The CPUs of the thread, if Ps are bound to CPUs.
    bound: Bound,
    /// The CPU that an owner has forbidden the thread.
    apart: Apart,
    pub(crate) local: H::Local,
}

/// What a woken or new M is to do.
pub(crate) enum Assignment<H: Host> {
    /// A P with work.
    P(PRef<H>),
    /// A summons: the M counts in `nmspinning`, and is to take an idle P.
    Summons,
    /// The M is to continue a goroutine that is about to block its thread: `sched/threads/blockers.rs`.
    Blocker,
}

// SAFETY: `in_runtime` and `note` are made for sharing; `assignment` is ordered by the note, or the central lock; the
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
            spawn_burst: SpawnBurst::new(),
            spinning: SingleWriterFlag::new(false),
            sent_for_blockers: Cell::new(false),
            thefts: Thefts::new(),
            // Odd, so never zero, and different for each M.
            dice: Cell::new((id.wrapping_mul(0x9e37_79b9) ^ drawn as u32) | 1),
            ends: Cell::new(false),
            parting_p: Cell::new(None),
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

    /// Returns the M of the calling thread; `None` if the thread is no M. A goroutine must not keep the reference beyond its
    /// next park, after which another M may run it.
    #[inline(always)]
    pub(crate) fn current<'a>() -> Option<&'a M<H>> {
        // SAFETY: an M lives as long as the scheduler, which the thread of a current M keeps alive, and so does the
        // runtime of a running goroutine.
        unsafe { H::current().cast::<Self>().as_ref() }
    }

    /// Makes `m` the M of the calling thread; with `None` the thread is no M any more.
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

    /// For the M's own thread: counts goroutines that begin and end here.
    #[inline]
    pub(crate) fn count_live(&self, by: i64) {
        // Relaxed: there is one writer. A thread that learned of a goroutine's beginning or end sees it counted.
        self.live.store(self.live.load(Relaxed) + by, Relaxed);
    }

    /// Returns this M's part of the number of goroutines; negative if more have ended here than were made here.
    pub(crate) fn live(&self) -> i64 {
        self.live.load(Relaxed)
    }

    /// Returns the goroutine that this M runs.
    pub(crate) fn g(&self) -> Option<GRef<H>> {
        self.g.own().map(GRef::of)
    }

    pub(crate) fn set_g(&self, g: Option<GRef<H>>) {
        self.g.set_after(g.map(GRef::get));
    }

    /// For a trace, by any thread: returns the P that the M holds, or held when it last looked.
    pub(crate) fn shown_p<'a>(&self) -> Option<&'a P<H>> {
        // SAFETY: Ps live as long as the scheduler, which outlives the use of Ms.
        self.p.peek().map(|p| unsafe { p.as_ref() })
    }

    /// By any thread: returns the goroutine that this M runs, or whose request the M has just carried out. Only to be compared.
    /// A reader that sees another goroutine than before sees what the M has done with the earlier one.
    pub(crate) fn shown_g(&self) -> Option<NonNull<G<H>>> {
        self.g.peek_after()
    }

    /// Returns the P that this M holds, or held when it last looked.
    #[inline(always)]
    pub(crate) fn p<'a>(&self) -> Option<&'a P<H>> {
        // SAFETY: Ps live as long as the scheduler, which outlives the use of Ms.
        self.p.own().map(|p| unsafe { p.as_ref() })
    }

    /// Returns the P that this M held last.
    pub(crate) fn last_p(&self) -> Option<PRef<H>> {
        self.last_p.get()
    }

    /// Acquires `p`, which the caller took out of the idle set, or which was assigned to this M.
    #[doc(alias = "acquirep")]
    pub(crate) fn acquire(&self, p: PRef<H>) {
        self.acquire_in_lock(p);
        self.go_where_the_p_belongs();
    }

    /// As `acquire`, for the goroutine that this M already runs, and goes on with. The monitor recognizes a goroutine by the
    /// P's tick, and this goroutine begins with none.
    pub(crate) fn acquire_for_own(&self, p: PRef<H>) {
        self.acquire(p);
        p.jobs.are_of_others();
    }

    /// As `acquire`, for a caller that holds the central lock, and calls `go_where_the_p_belongs` after it.
    pub(crate) fn acquire_in_lock(&self, p: PRef<H>) {
        assert!(self.p.own().is_none(), "acquire: the M already holds a P");
        debug_assert!(p.is_held_by(None), "acquire: {:?} has an owner", *p);
        p.set_holder(Some(self));
        // Read only once: the word and this M have to agree.
        let entries = if H::heavy_barrier_exists() { Entries::Quick } else { Entries::Fenced };
        let lease = p.handoff.take_up(entries);
        self.lease.set(Some(lease));
        let is_quick = lease.entries() == Entries::Quick;
        mutant!(WindowStaysQuick: let is_quick = true);
        self.quick.set(is_quick.then_some(lease));
        self.p.set(Some(NonNull::from(&*p)));
        self.touch_p();
        p.begin_lease();
    }

    /// Gives the P up. Afterwards the caller puts the P where other Ms find it.
    #[doc(alias = "releasep")]
    pub(crate) fn release(&self) -> PRef<H> {
        self.touch_p();
        let p = PRef::of(self.p().expect("release: the M holds no P"));
        self.p.set(None);
        self.spawn_burst.end();
        self.last_p.set(Some(p));
        self.quick.set(None);
        debug_assert!(p.is_held_by(Some(self)), "release: {:?} is another's", *p);
        p.set_holder(None);
        p.handoff.give_up();
        p
    }

    /// Notes an operation of the P's owner, for the ghost.
    #[inline(always)]
    pub(crate) fn touch_p(&self) {
        if let Some(p) = self.p() {
            p.owner.touch();
        }
    }

    /// Assigns work to an M that stands by or was not started yet, and has no assignment. The caller then wakes the M.
    pub(crate) fn assign(&self, assignment: Assignment<H>) {
        // SAFETY: the caller took this M out of those that stand by, and the M reads the assignment only after the
        // wake.
        self.assignment.with_mut(|slot| unsafe { *slot = Some(assignment) });
    }

    /// Returns `true` if an assignment was left. Under the central lock.
    pub(crate) fn is_assigned(&self) -> bool {
        // SAFETY: the caller holds the central lock, under which an M that attends gets its assignment.
        self.assignment.with(|slot| unsafe { (*slot).is_some() })
    }

    /// Returns `true` if the M, which is new, was summoned. For the M's own thread.
    pub(crate) fn is_summoned(&self) -> bool {
        // SAFETY: the start of the thread came after `assign`, and the M has not taken the assignment yet.
        self.assignment.with(|slot| matches!(unsafe { &*slot }, Some(Assignment::Summons)))
    }

    /// Takes back the assignment of an M whose thread did not start.
    pub(crate) fn take_back_assignment(&self) -> Option<Assignment<H>> {
        // SAFETY: no thread but the caller, which was to start the M's thread, knows the M.
        self.assignment.with_mut(|slot| unsafe { (*slot).take() })
    }

    /// Takes the assignment that the waker has left, and acts on it: acquires the P; or sets `spinning`, because a summoned M
    /// already counts in `nmspinning`; or notes that the M was sent for the blockers.
    pub(crate) fn take_assignment(&self) {
        self.take_assignment_in_lock();
        self.go_where_the_p_belongs();
    }

    /// As `take_assignment`, for a caller that holds the central lock, and calls `go_where_the_p_belongs` after it.
    pub(crate) fn take_assignment_in_lock(&self) {
        // SAFETY: the note's wake, or the central lock, orders this after `assign`.
        if let Some(assignment) = self.assignment.with_mut(|slot| unsafe { (*slot).take() }) {
            match assignment {
                Assignment::P(p) => self.acquire_in_lock(p),
                Assignment::Summons => self.spinning.set(true.unless(StartForgetsSpinning)),
                Assignment::Blocker => self.sent_for_blockers.set(true),
            }
        }
    }

    /// Ends a window, or, in `Sched::resume`, the M's time on its own stack: the goroutine's code runs next.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        // Release: a retaker that reads OUTSIDE in `is_inside`, the partner, sees all that was done to the P inside.
        self.in_runtime.store(OUTSIDE, Release.unless(WindowLeaveRelaxed));
    }

    /// For a goroutine whose M holds no P. The goroutine is about to suspend itself until its M has a P (the M's own stack is
    /// always inside), or to take an idle P.
    fn stay_inside(&self) {
        // Relaxed: without a P no retaker looks here. A retaker that finds this M as the holder of a P that the M acquires
        // next, by the Acquire in `holder`, sees the M inside: partner the Release of `set_holder`.
        self.in_runtime.store(INSIDE, Relaxed);
    }

    /// E1 to E3. Returns `false` if the P might be lost.
    #[inline(always)]
    fn enter(&self) -> bool {
        debug_assert!(self.in_runtime.load(Relaxed) == OUTSIDE, "enter: windows do not nest");
        // Relaxed: EntryBarrier orders the store before E3.
        self.in_runtime.store(INSIDE, Relaxed);
        // EntryBarrier. No instruction: the partner, RetakeBarrier, is a barrier for both sides.
        unless!(WindowNoEntryBarrier, light_barrier());
        match (self.p(), self.quick.get()) {
            (Some(p), Some(lease)) => p.handoff.is_held(lease),
            _ => false,
        }
    }

    /// The rest of an entry that found the word changed.
    #[cold]
    fn settle(&self) -> Entry {
        if self.quick.get().is_none() && self.p.own().is_some() {
            // EntryFence: needed if the partner, RetakeBarrier, is a fence of the retaker alone. Without a P the fence has no
            // meaning. SeqCst: a store to `in_runtime`, then a load of the word.
            fence(Ordering::SeqCst.unless(WindowNoEntryFence));
        }
        match (self.p(), self.lease.get()) {
            (Some(p), Some(lease)) => p.handoff.enter(lease, p.tick()),
            _ => Entry::Lost,
        }
    }

    /// Called before the goroutine calls functions of `gmp::hooks`: from here on each entry takes the slow path, and finds
    /// that.
    pub(crate) fn bar_windows(&self) {
        self.quick.set(None);
    }

    /// Returns `false` if the goroutine is in no function of `gmp::hooks`; `true` if it is, or might be.
    #[inline(always)]
    pub(crate) fn bars_windows(&self) -> bool {
        self.quick.get().is_none()
    }

    /// Called after the functions have returned. The P might be lost by now: the next entry finds that.
    pub(crate) fn admit_windows(&self) {
        let lease =
            self.lease.get().filter(|lease| self.p.own().is_some() && lease.entries() == Entries::Quick);
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
        if let Some(p) = self.p() {
            self.p.set(None);
            self.last_p.set(Some(PRef::of(p)));
            self.spawn_burst.begin();
        }
        self.quick.set(None);
    }

    /// Returns the M of the calling thread, if it belongs to `sched`.
    #[inline]
    pub(crate) fn current_of<'a>(sched: &Sched<H>) -> Option<&'a M<H>> {
        Self::current().filter(|m| std::ptr::eq(m.sched.as_ptr(), sched))
    }

    /// Enters for a call that never parks. Returns `None` if the M holds no P, or the goroutine is in a function of
    /// `gmp::hooks`: the call then goes on as a plain thread's would. On the M's own stack, and inside a window, the M is
    /// already inside.
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
    /// The M is inside before it has the P, because the retaker looks in that order.
    pub(crate) fn enter_with(&self, find: impl FnOnce() -> Option<PRef<H>>) -> Option<Inside<'_, H>> {
        unless!(SpawnerComesInLate, self.stay_inside());
        let found = find();
        if let Some(p) = found {
            self.acquire_for_own(p);
        } else {
            self.leave();
        }
        self.p().map(|p| Inside { m: self, p, leave: true })
    }

    /// Returns `true` if the caller is a goroutine outside of the runtime whose M has no P.
    pub(crate) fn is_outside_without_p(&self) -> bool {
        // Relaxed: the M's own word.
        self.in_runtime.load(Relaxed) == OUTSIDE && self.p.own().is_none() && !switch::is_in_hook(self)
    }

    /// Stores the host's number of the M's thread, which begins.
    pub(crate) fn set_thread(&self, number: u32) {
        // Relaxed: a retaker that finds this M as the holder of a P finds the number.
        self.thread.store(number, Relaxed);
    }

    /// Returns the host's number of the M's thread.
    pub(crate) fn thread(&self) -> u32 {
        self.thread.load(Relaxed)
    }

    /// R3, for a retaker: returns `true` if the M is inside the runtime.
    pub(crate) fn is_inside(&self) -> bool {
        // Acquire: partner `leave`. If the M is outside, the retaker sees all that the M did inside.
        self.in_runtime.load(Acquire.unless(WindowLookRelaxed)) == INSIDE
    }
}
