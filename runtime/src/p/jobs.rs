//! The jobs of a P: work that goroutines have put aside there, for themselves and for Ms that have nothing else to do.
//!
//! A *job* is either a record on the stack of the goroutine that has forked it (`sched/run/jobs/record.rs`), which no goroutine
//! runs yet, or a goroutine (`go_lifo`). Each stands in a *slot*, a word that holds the job's address. The owner of the P puts
//! jobs in; any thread takes them out: the *forker*, which withdraws its own record; the owner, the newest first; a thief, the
//! oldest first.
//!
//! *The problem.* A record lives as long as its forker's frame. The forker may have parked meanwhile, and withdraw the record
//! on another P's M, in the middle of the other records there; a thief that has read the record's address may come late.
//!
//! *The obvious way* is the deque of Chase and Lev: what is taken is decided by the deque's ends. A record in the middle can't
//! be withdrawn there, and what an end names may be a frame that has gone.
//!
//! *Here* the slot decides, and the ends are hints:
//!
//! ```text
//!   owner                                          taker: forker, owner, thief
//!
//!   S1  bottom := bottom + 1                       X1  read the slot: a job's address
//!       slot := the job, by an exchange            X2  exchange: the slot is empty, if it holds that address still
//!   S2  SubmitFence                                X3  the job is the taker's: the record may be read
//! ```
//! **A slot is never followed before X2.** Slots are part of the P, which lives as long as the scheduler. An address that X1
//! has read may be out of date: its forker has withdrawn the record, and the frame has gone. Then X2 fails, unless a new record
//! was put in at the same address. In that case X2 takes the new record. X2 is an Acquire of the exchange at S1 that put that
//! record in, so the taker may read it. So a record is read only by a taker whose X2 has won, and the forker of that record
//! does not return before the taker has settled it.
//!
//! A forker's X2 expects its own record's address. The record lives until then, so no other has that address: X2 succeeds
//! exactly if the record has not been taken, wherever the forker runs by now, and whatever else stands in that slot.
//!
//! **No slot is forgotten.** All jobs stand at positions from `top` to `bottom`, which the owner alone moves: `bottom` down,
//! and `top` up, over empty slots only (O1, O2 below). A slot becomes full only by the owner's S1. So for a job that was put
//! in at a position, each later value of `top` is at most that position, and each later value of `bottom` is beyond it, until
//! the job is taken: a thread that reads the two after S1, in whatever order, finds the slot between them (`is_empty`). A range
//! that looks longer than the ring covers each slot once.
//!
//! ```text
//!    put in    O1 while the slot before bottom is empty: bottom -= 1
//!              O2 the ring is full?  while the slot at top is empty: top += 1;  full still: the caller has to do without
//!              S1, S2
//! ```
//! A forker that withdraws its record leaves `bottom` as it is, as it may not be the owner; the next S1 sees to that. So
//! an un-stolen fork costs two exchanges: one to put the record in, one to take it out.
//!
//! Jobs stay where they are when their P changes hands, is idle or retires: like timers, they are looked at wherever they
//! stand (`sched/run/jobs.rs`).
//!
//! Checked by `models/jobs_slots.rs`, and in the scheduler by `models/jobs.rs`, over rings of two.

use crate::g::GRef;
use crate::host::Host;
use crate::prim::SingleWriterFlag;
use crate::prim::capacity::JOBS;
use crate::prim::hooks::*;
use crate::prim::{Acquire, AtomicPtr, AtomicU32, Relaxed, Release};
use crate::sched::run::jobs::record::Job;
use std::cell::Cell;
use std::ptr::{NonNull, null_mut};

const _: () = assert!(JOBS.is_power_of_two(), "positions wrap only with a power of two");

/// In the address of a job that is a goroutine. Both kinds are aligned.
const GOROUTINE: usize = 1;

/// What stands in a slot.
pub(crate) enum Entry<H: Host> {
    /// The record of a fork.
    Job(NonNull<Job<H>>),
    /// A runnable goroutine.
    Goroutine(GRef<H>),
}

impl<H: Host> Copy for Entry<H> {}

impl<H: Host> Clone for Entry<H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: Host> Entry<H> {
    fn to_raw(self) -> *mut Job<H> {
        match self {
            Entry::Job(job) => job.as_ptr(),
            Entry::Goroutine(g) => g.to_raw().cast::<Job<H>>().map_addr(|address| address | GOROUTINE),
        }
    }

    /// # Safety
    /// `raw` is of `to_raw`, and the caller has taken it out of its slot.
    unsafe fn from_raw(raw: NonNull<Job<H>>) -> Self {
        if raw.addr().get() & GOROUTINE == 0 {
            return Entry::Job(raw);
        }
        // SAFETY: by this function's contract.
        Entry::Goroutine(unsafe {
            GRef::from_raw(raw.as_ptr().map_addr(|address| address & !GOROUTINE).cast())
        })
    }
}

/// A place for one job; null for none.
pub(crate) struct Slot<H: Host>(AtomicPtr<Job<H>>);

impl<H: Host> Slot<H> {
    fn is_empty(&self) -> bool {
        // Relaxed: only compared; `Jobs::is_empty` says what orders this.
        self.0.load(Relaxed).is_null()
    }

    /// X1 to X3, for a taker that has no other claim to the job than being first.
    fn take(&self) -> Option<Entry<H>> {
        // Relaxed: the value is only compared, until the exchange has it.
        let seen = self.0.load(Relaxed);
        mutant!(JobTakenByItsLook: let seen = self.0.load(Acquire));
        let seen = NonNull::new(seen)?;
        // Acquire: partner the exchange of `put_in`, the last one. Release: that the taker has said that it starts a job,
        // partner the failure of `withdraw`.
        let ordering = both(Acquire.unless(JobTakeLooksRelaxed), Release.unless(JobTakeRelaxed));
        mutant!(JobTakenByItsLook: let ordering = Release);
        self.0.compare_exchange(seen.as_ptr(), null_mut(), ordering, Relaxed).ok()?;
        // SAFETY: put there by `put_in`, and taken out by this exchange alone.
        Some(unsafe { Entry::from_raw(seen) })
    }

    /// X1 to X3, for the forker of `job`, which was put in here. Any thread. Returns `true` if the record was not taken.
    #[inline]
    #[must_use]
    pub(crate) fn withdraw(&self, job: NonNull<Job<H>>) -> bool {
        mutant!(JobWithdrawnByPlace: return !self.0.swap(null_mut(), Relaxed).is_null());
        // Relaxed: the forker wrote the record, and the next one is put in by a Release of its own. Acquire: partner
        // the exchange of `take`.
        let taken = Acquire.unless(JobWithdrawLooksRelaxed);
        self.0.compare_exchange(job.as_ptr(), null_mut(), Relaxed, taken).is_ok()
    }
}

/// The jobs of a P, whose owner is the M that holds the P; a hand-over of the P orders one owner after another.
pub(crate) struct Jobs<H: Host> {
    /// No job stands before this position. Written by the owner.
    top: AtomicU32,
    /// No job stands at this position, or behind it. Written by the owner.
    bottom: AtomicU32,
    /// Owner: how many jobs there is room for: none until the first one is to be put in.
    most: Cell<u32>,
    /// Owner: the owner has come to its own jobs since the last visit.
    came: Cell<bool>,
    /// The P's tick at which the oldest job was put in, or another one. Written by the owner.
    since: AtomicU32,
    /// Boxed, as a runtime may be built on a small stack.
    slots: Box<[Slot<H>; JOBS as usize]>,
    /// The job that was put in last is that of a forker below `Normal`. Written by the owner.
    lower: SingleWriterFlag,
}

impl<H: Host> Jobs<H> {
    pub(crate) fn new() -> Self {
        let [top, bottom, since] = [(); 3].map(|()| AtomicU32::new(0));
        let slots = std::iter::repeat_with(|| Slot(AtomicPtr::new(null_mut())));
        let slots: Box<[_]> = slots.take(JOBS as usize).collect();
        let slots = slots.try_into().unwrap_or_else(|_| unreachable!("new: there are so many"));
        Jobs {
            top,
            bottom,
            most: Cell::new(0),
            came: Cell::new(false),
            since,
            slots,
            lower: SingleWriterFlag::new(false),
        }
    }

    fn slot(&self, at: u32) -> &Slot<H> {
        &self.slots[(at % JOBS) as usize]
    }

    /// Owner: the P is about to have its first job. Returns `false` if there was one before.
    pub(crate) fn open(&self) -> bool {
        self.most.replace(JOBS) == 0
    }

    /// Owner: the next job that is put in is one below `Normal`, or is not.
    pub(crate) fn note_class(&self, is_lower: bool) {
        self.lower.set(is_lower);
    }

    /// Any thread: returns `true` if there are jobs, and the newest is one below `Normal`. A hint: newer ones may have
    /// been taken.
    pub(crate) fn are_lower(&self) -> bool {
        self.lower.get() && !self.is_empty()
    }

    /// Owner: O1, O2, S1, and then `fence`, which is S2. `tick` is the P's. Returns the slot; `None` if there is no room.
    ///
    /// The last store that puts a job in is an exchange, so that the fence costs nothing on x86, as in `Runq::push_next`.
    #[inline]
    pub(crate) fn put_in(&self, entry: Entry<H>, tick: u32, fence: impl FnOnce()) -> Option<&Slot<H>> {
        // Relaxed, both: the words are the owner's own; an earlier owner's values came with the P.
        let (top, mut bottom) = (self.top.load(Relaxed), self.bottom.load(Relaxed));
        while bottom != top && self.slot(bottom.wrapping_sub(1)).is_empty() {
            bottom = bottom.wrapping_sub(1);
        }
        mutant!(JobsTrimmedBlindly: let bottom = if bottom == top { bottom } else { bottom.wrapping_sub(1) });
        if bottom.wrapping_sub(top) >= self.most.get() && !self.make_room(bottom) {
            return None;
        }
        match entry {
            Entry::Job(_) if bottom != top => {}
            // Relaxed: for the monitor, which judges by times.
            Entry::Job(_) => self.since.store(tick, Relaxed),
            // Of no goroutine that runs now: it waits for its turn.
            Entry::Goroutine(_) => self.since.store(tick.wrapping_sub(1), Relaxed),
        }
        let slot = self.slot(bottom);
        // Relaxed: a hint, for readers that SubmitFence orders.
        self.bottom.store(bottom.wrapping_add(1), Relaxed);
        // Release: what the job holds is published to `take`, its partner.
        let before = slot.0.swap(entry.to_raw(), Release.unless(JobPutInRelaxed));
        debug_assert!(before.is_null(), "put_in: the slot at {bottom} is full");
        fence();
        Some(slot)
    }

    /// O2. Returns `true` if there is room now.
    #[cold]
    fn make_room(&self, bottom: u32) -> bool {
        let mut top = self.top.load(Relaxed);
        while top != bottom && self.slot(top).is_empty() {
            top = top.wrapping_add(1);
        }
        // Relaxed: as in `put_in`.
        self.top.store(top, Relaxed);
        bottom.wrapping_sub(top) < self.most.get()
    }

    /// Any thread: the first position, and how many positions there are.
    fn range(&self) -> (u32, u32) {
        // Relaxed, both: see the module's header. A top that is newer than the bottom is an empty range.
        let (top, bottom) = (self.top.load(Relaxed), self.bottom.load(Relaxed));
        (top, (bottom.wrapping_sub(top) as i32).clamp(0, JOBS as i32) as u32)
    }

    /// Any thread. Returns `false` if a job stands here that was put in before this call, in an order that a fence has made,
    /// and that has not been taken.
    pub(crate) fn is_empty(&self) -> bool {
        let (top, count) = self.range();
        count == 0 || (0..count).all(|at| self.slot(top.wrapping_add(at)).is_empty())
    }

    /// For the monitor: returns `true` if a job stands here that is not of the goroutine that has run since `tick`. A hint.
    pub(crate) fn have_waited(&self, tick: u32) -> bool {
        self.range().1 > 0 && self.since.load(Relaxed) != tick && !self.is_empty()
    }

    /// Any thread: takes the oldest job.
    pub(crate) fn take_oldest(&self) -> Option<Entry<H>> {
        let (top, count) = self.range();
        (0..count).find_map(|at| self.slot(top.wrapping_add(at)).take())
    }

    /// Owner: takes the newest job.
    pub(crate) fn take_own(&self) -> Option<Entry<H>> {
        let own = self.take_newest()?;
        self.came.set(true);
        Some(own)
    }

    /// Owner, at a visit: takes the oldest job, if the owner has come to none since the last visit.
    pub(crate) fn take_starving(&self) -> Option<Entry<H>> {
        if self.came.replace(false) { None } else { self.take_oldest() }
    }

    /// Any thread: takes the newest job.
    fn take_newest(&self) -> Option<Entry<H>> {
        let (top, count) = self.range();
        (0..count).rev().find_map(|at| self.slot(top.wrapping_add(at)).take())
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests;
