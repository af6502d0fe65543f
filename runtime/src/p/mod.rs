//! P, the right to run goroutines: a token, and all data that the holding M can touch without a lock.
//!
//! ```text
//!                 acquirep                      (the M parks its goroutine and takes the next: no change)
//!      ┌──────┐ ────────────▶ ┌──────┐
//!      │ idle │               │ held │ ◀── an M that waits for it, or is being started, finds it in its assignment
//!      └──────┘ ◀──────────── └──────┘
//!                 releasep        │ the M does not come back to the runtime: a retaker takes it (`m/handoff.rs`)
//!                                 └──────▶ handed to another M, or idle
//! ```
//! A surplus P retires, until more Ps are wanted again (`sched/threads/procs.rs`).
//!
//! Invariants:
//! 1. A P is in exactly one of these places: in the idle set; retired; held by one M; in the `Assignment` of an M; with the M
//!    or retaker that is giving it away (`handoffp`; `parting_p`).
//! 2. An idle or retired P has an empty run queue, and an empty batch, until the runtime ends (`m_leaves`). Such a P can have
//!    timers: the M in the poller waits for those, too. Such a P can have jobs: every M that goes idle looks at those.
//! 3. The methods and fields marked *owner* are for the M that holds the P, between entering the runtime and leaving
//!    it (`m/mod.rs`). loom checks that: each of them touches the ghost.

pub(crate) mod batch;
pub(crate) mod jobs;
pub(crate) mod runq;

use crate::g::pool::FreeGs;
use crate::host::Host;
use crate::m::M;
use crate::m::apart::Sent;
use crate::m::handoff::HandoffWord;
use crate::p::batch::Batch;
use crate::p::jobs::Jobs;
use crate::p::runq::Runq;
use crate::prim::{
    Acquire, Arc, AtomicPtr, AtomicU32, AtomicU64, CachePadded, Ghost, Relaxed, Release, UnsafeCell, Weak,
    capacity,
};
use crate::runtime::policy::Policy;
use crate::sched::Sched;
use crate::sched::run::help::QueueAge;
use crate::sched::run::look::PollSchedule;
use crate::sched::timers::Timers;
use std::cell::Cell;
use std::ptr::null_mut;

/// How many goroutine numbers a P draws the first time (Go draws this many each time), and at most. Each batch is twice the
/// last one: a P that makes many goroutines seldom writes the word that all Ps write, and a P that makes few wastes few
/// numbers.
const ID_BATCH: u32 = 16;
const ID_BATCH_MOST: u32 = 4096;

/// The right to run goroutines.
pub(crate) struct P<H: Host> {
    pub(crate) id: u32,
    pub(crate) handoff: HandoffWord,
    /// The M that holds the P; null for none. For a retaker, which reads this after the word.
    holder: AtomicPtr<M<H>>,
    pub(crate) runq: Runq<H>,
    /// Counted: a callback's timer stays in the heap in which it was made, and can outlive the runtime.
    pub(crate) timers: Arc<Timers<H>>,
    /// Written by each owner at each of its operations: shows that there is exactly one owner at a time.
    pub(crate) owner: Ghost,
    /// Owner: Gs without a goroutine.
    pub(crate) free_gs: FreeGs<H>,
    /// Owner: stacks, and reservations of stacks.
    stack_cache: UnsafeCell<H::StackCache>,
    /// Owner: the next number of a goroutine, and how many numbers are left of the last batch.
    ids: Cell<(u64, u32)>,
    /// Owner: how many numbers the next batch has.
    id_batch: Cell<u32>,
    /// How many goroutines have run. Written by the owner.
    tick: AtomicU32,
    /// Goroutines of one class other than `Normal`; and the turns of the classes.
    pub(crate) batch: Batch<H>,
    /// Owner: the P's number, or, while there might be goroutines in the batch, a number that is greater than any P's.
    /// `find_runnable` compares this with `Sched::attention`.
    alert: Cell<u32>,
    /// Owner: when to look elsewhere.
    pub(crate) poll_schedule: PollSchedule,
    /// How long the goroutines in the queue wait.
    pub(crate) queue_age: QueueAge,
    /// Owner: how many of the goroutines that ran last, in a row, came from `runnext`.
    inherited: Cell<u32>,
    /// Owner: whether the owner has taken nothing from the global queue since it acquired the P.
    fresh: Cell<bool>,
    /// How often an owner has entered the kernel to wake an M, plus how often it has come back: odd while an owner is there.
    wakes: AtomicU32,
    /// Owner: the M that the owner has woken last.
    pub(crate) sent: Sent<H>,
    /// Owner: how often the owner took goroutines from another P's queue.
    #[cfg(gmp_policies)]
    pub(crate) thefts: AtomicU64,
    /// Work that forkers have put aside. Stays when the P changes hands, is idle or retires.
    pub(crate) jobs: CachePadded<Jobs<H>>,
}

// SAFETY: the cells belong to the owner (invariant 3); the rest is Sync by itself.
unsafe impl<H: Host> Send for P<H> {}
// SAFETY: as for `Send`.
unsafe impl<H: Host> Sync for P<H> {}

impl<H: Host> P<H> {
    pub(crate) fn new(id: u32, sched: &Weak<Sched<H>>, policy: Policy) -> Self {
        P {
            id,
            handoff: HandoffWord::new(),
            holder: AtomicPtr::new(null_mut()),
            runq: Runq::new(policy),
            timers: Arc::new(Timers::of_p(id, sched)),
            owner: Ghost::new(),
            free_gs: FreeGs::new(),
            stack_cache: UnsafeCell::new(H::StackCache::default()),
            ids: Cell::new((0, 0)),
            id_batch: Cell::new(ID_BATCH),
            tick: AtomicU32::new(0),
            batch: Batch::new(),
            alert: Cell::new(id),
            poll_schedule: PollSchedule::new(policy),
            queue_age: QueueAge::new(),
            inherited: Cell::new(0),
            fresh: Cell::new(true),
            wakes: AtomicU32::new(0),
            sent: Sent::new(),
            #[cfg(gmp_policies)]
            thefts: AtomicU64::new(0),
            jobs: CachePadded::new(Jobs::new()),
        }
    }

    /// Calls `wake`, during which the owner, or the M that was the owner until just now, is in the kernel.
    pub(crate) fn while_waking(&self, wake: impl FnOnce()) {
        // Relaxed: a hint for thieves, ordered by nothing.
        self.wakes.fetch_add(1, Relaxed);
        wake();
        self.wakes.fetch_add(1, Relaxed);
    }

    /// For a thief: returns `true` if the owner is in the kernel to wake an M, perhaps that thief. A hint.
    pub(crate) fn is_waking(&self) -> bool {
        // Relaxed: a hint, which publishes no other memory.
        self.wakes.load(Relaxed) % 2 == 1
    }

    /// Owner: counts a theft from another P.
    #[cfg(gmp_policies)]
    pub(crate) fn count_theft(&self) {
        // Relaxed: a count.
        self.thefts.fetch_add(1, Relaxed);
    }

    /// Returns how often an owner woke an M.
    #[cfg(gmp_policies)]
    pub(crate) fn wakes(&self) -> u64 {
        u64::from(self.wakes.load(Relaxed) / 2)
    }

    /// For a thief: returns a number that changes when the owner runs a goroutine, goes to wake an M, or comes back from that.
    pub(crate) fn signs_of_life(&self) -> u32 {
        // Relaxed: a hint, which publishes no other memory.
        self.tick().wrapping_add(self.wakes.load(Relaxed))
    }

    /// Returns the M that holds the P, or held it when this was called.
    pub(crate) fn holder<'a>(&self) -> Option<&'a M<H>> {
        // SAFETY: Ms live as long as their scheduler, which outlives the use of its Ps.
        // Acquire: partner `set_holder`: an M that was made after the judged lease began is fully initialised. No model has
        // this Acquire: loom does not model memory that does not exist yet, and a model's retaker reads nothing of the M before
        // R1.
        unsafe { self.holder.load(Acquire).as_ref() }
    }

    /// For assertions: returns `true` if `m` holds the P, or, with `None`, if no M does.
    pub(crate) fn is_held_by(&self, m: Option<&M<H>>) -> bool {
        // Relaxed: an assertion must not order the accesses that it checks.
        std::ptr::eq(self.holder.load(Relaxed), m.map_or(null_mut(), |m| std::ptr::from_ref(m).cast_mut()))
    }

    /// Called by an M that acquires the P, before `take_up`, or gives it up, before `give_up`; also by a retaker.
    pub(crate) fn set_holder(&self, m: Option<&M<H>>) {
        let m = m.map_or(null_mut(), |m| std::ptr::from_ref(m).cast_mut());
        // Release: partner `holder`: an M that was just made is fully initialised.
        self.holder.store(m, Release);
    }

    /// Calls `f` with the stack cache. For the owner; for a holder of the central lock while the P is idle or retired;
    /// and for the drop of the scheduler.
    #[inline]
    pub(crate) fn with_stack_cache<R>(&self, f: impl FnOnce(&mut H::StackCache) -> R) -> R {
        // SAFETY: each of those three has the cache to itself; `f` is the host's, and asks for no cache.
        self.stack_cache.with_mut(|stack_cache| f(unsafe { &mut *stack_cache }))
    }

    /// Owner: ends the measurements of the last lease, because an M has acquired the P.
    pub(crate) fn begin_lease(&self) {
        self.poll_schedule.begin_lease();
        self.queue_age.begin_lease();
        self.fresh.set(true);
    }

    /// Owner: returns `true` once after the M has acquired this P, when it comes to the global queue for the first time.
    pub(crate) fn take_fresh(&self) -> bool {
        capacity::FIRST_ALONE && self.fresh.replace(false)
    }

    /// Owner: returns a number for a new goroutine, from a batch of the runtime's numbers (Go's `goidcache`).
    #[inline]
    pub(crate) fn next_id(&self, source: &AtomicU64) -> u64 {
        let (next, left) = match self.ids.get() {
            (_, 0) => {
                let batch = self.id_batch.get();
                self.id_batch.set((2 * batch).min(ID_BATCH_MOST));
                // Relaxed: a unique number, which orders nothing.
                (source.fetch_add(u64::from(batch), Relaxed), batch)
            }
            some => some,
        };
        self.ids.set((next + 1, left - 1));
        next
    }

    /// Owner: counts a goroutine that is to run (Go's `schedtick`), and returns the count.
    #[inline]
    pub(crate) fn next_tick(&self) -> u32 {
        self.owner.touch();
        // Relaxed: one writer at a time; other Ms take a change as a sign of life.
        let tick = self.tick.load(Relaxed).wrapping_add(1);
        self.tick.store(tick, Relaxed);
        tick
    }

    /// Returns how many goroutines have run so far: for the monitor and thieves, which check whether the owner makes progress.
    pub(crate) fn tick(&self) -> u32 {
        self.tick.load(Relaxed)
    }

    /// Owner: called before a goroutine from `runnext` runs within the slice of the last one. Returns `false` if the slice has
    /// ended ([`capacity::MAX_INHERITED`]); a new slice begins with the first goroutine of the queue.
    #[inline]
    pub(crate) fn inherit_slice(&self) -> bool {
        let inherited = self.inherited.get() + 1;
        let goes_on = inherited < capacity::MAX_INHERITED;
        self.inherited.set(if goes_on { inherited } else { 0 });
        goes_on
    }

    /// Owner: returns `true` if a goroutine stands in `runnext`, and `inherit_slice` will let it run.
    pub(crate) fn slice_goes_on(&self) -> bool {
        self.runq.has_next() && self.inherited.get() + 1 < capacity::MAX_INHERITED
    }

    /// Owner: returns the number that `find_runnable` compares with `Sched::attention`.
    #[inline(always)]
    pub(crate) fn alert(&self) -> u32 {
        self.alert.get()
    }

    /// Owner: called after the owner has changed the batch, or thieves might have.
    pub(crate) fn settle_alert(&self) {
        self.alert.set(if self.batch.is_empty() { self.id } else { u32::MAX });
    }

    /// Owner: returns how many goroutines from `runnext` have run in the slice.
    pub(crate) fn inherited(&self) -> u32 {
        self.inherited.get()
    }

    /// Owner: ends the slice before its count does: the goroutine in `runnext` goes to the end of the ring when its turn comes,
    /// and arrivals may go before it. If the look that ends the slice has found another goroutine to run first, a goroutine
    /// that this one readies goes to the end of the ring, too, as after the last goroutine of a slice.
    pub(crate) fn end_slice(&self) {
        self.inherited.set(capacity::MAX_INHERITED - 1);
    }

    /// Owner: begins a new slice, with a goroutine that does not come from `runnext`.
    #[inline]
    pub(crate) fn begin_slice(&self) {
        self.inherited.set(0);
    }
}

impl<H: Host> std::fmt::Debug for P<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "P{}", self.id)
    }
}
