//! The jobs of a P: work that goroutines have put aside, for themselves and for Ms that have nothing else to do.
//!
//! A *job* is either a record on the stack of the goroutine that has forked it (`sched/run/jobs/record.rs`), for which there is
//! no goroutine yet, or a goroutine (`go_lifo`). Each stands in a *slot*, a word that holds the job's address. The owner of the
//! P puts jobs in; any thread takes them out: the *forker*, which withdraws its own record; the owner, the newest first; a
//! thief, the oldest first.
//!
//! *The problem.* A record lives as long as its forker's frame. The forker can have parked meanwhile, and then withdraws the
//! record on another P's M, from between other records; a thief that has read the record's address can come late.
//!
//! *The obvious way* is the deque of Chase and Lev, whose ends decide which job is taken. There a forker can't withdraw a
//! record from the middle, and an end might name a frame that has gone.
//!
//! *Here* the slot decides who has a job, and the ends are hints:
//!
//! ```text
//!   owner                                          taker: forker, owner, thief
//!
//!   S1  bottom := bottom + 1                       X1  read the slot: a job's address
//!       slot := the job, by an exchange            X2  exchange: empties the slot, if it still holds that address
//!   S2  SubmitFence                                X3  the job is the taker's, which may read the record
//! ```
//! **A slot is never followed before X2.** Slots are part of the P, which lives as long as the scheduler. The address that X1
//! has read might be out of date: the forker has withdrawn the record, and the frame has gone. Then X2 fails, unless a new
//! record was put in at the same address. In that case X2 takes the new record. X2 is an Acquire of the exchange at S1 that put
//! that record in, so the taker may read it. The taker reads the record through the pointer that X2 returns: for Rust, the
//! pointer that X1 has read leads to the frame that has gone, though the address is the same. So only a taker whose X2 has won
//! reads a record, and the forker of that record does not return before the taker has settled it.
//!
//! A forker's X2 expects its own record's address. The record lives until then, so no other record has that address: X2
//! succeeds exactly if the record has not been taken, wherever the forker runs by now, and whatever stands in that slot.
//!
//! **No slot is forgotten.** All jobs stand at positions from `top` to `bottom`, which only the owner moves: `bottom` down, and
//! `top` up, only over empty slots (O1, O2 below). A slot becomes full only by the owner's S1. So for a job that was put in at
//! a position, each later value of `top` is at most that position, and each later value of `bottom` is beyond it, until the job
//! is taken: a thread that reads both after S1, in either order, finds the slot between them (`is_empty`). If a range looks
//! longer than the ring, it covers each slot once.
//!
//! ```text
//!    put in    O1 while the slot before bottom is empty: bottom -= 1
//!              O2 the ring is full?  while the slot at top is empty: top += 1;  still full: there is no room for the job
//!              S1, S2
//! ```
//! A forker that withdraws its record leaves `bottom` as it is, because it might not be the owner; O1 before the next S1 moves
//! `bottom`. So a fork that is not stolen costs two exchanges: one to put the record in, one to take it out.
//!
//! Jobs stay where they are when their P changes hands, is idle or retires: like timers, Ms look at them wherever they stand
//! (`sched/run/jobs.rs`).
//!
//! Checked by `models/jobs_slots.rs`, and in the scheduler by `models/jobs.rs`, over rings of two.

use crate::g::GRef;
use crate::host::Host;
use crate::prim::capacity::JOBS;
use crate::prim::hooks::*;
use crate::prim::{Acquire, AtomicPtr, AtomicU32, Relaxed, Release, SingleWriterFlag, SingleWriterWord};
use crate::runtime::priority::Priority;
use crate::sched::run::jobs::record::Job;
use std::cell::Cell;
use std::ptr::{NonNull, null_mut};

const _: () = assert!(JOBS.is_power_of_two(), "positions wrap only with a power of two");

/// In `since`: no goroutine that runs now has put the oldest job in. Greater than each tick.
const OTHERS: u64 = u64::MAX;

/// This bit is set in the address of a job that is a goroutine. The addresses of both kinds are aligned.
const GOROUTINE: usize = 1;

/// A job in a slot.
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
    /// `raw` came from `to_raw`, and the caller has taken it out of its slot.
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

    /// X1 to X3, for a taker that takes whatever job stands in the slot.
    fn take(&self) -> Option<Entry<H>> {
        // Relaxed: the value is only compared before the exchange succeeds.
        let seen = self.0.load(Relaxed);
        mutant!(JobTakenByItsLook: let seen = self.0.load(Acquire));
        if seen.is_null() {
            return None;
        }
        // Acquire: partner the last exchange of `put_in`. Release: publishes that the taker is starting a job; partner the
        // failure of `withdraw`.
        let ordering = both(Acquire.unless(JobTakeLooksRelaxed), Release.unless(JobTakeRelaxed));
        mutant!(JobTakenByItsLook: let ordering = Release);
        let taken = self.0.compare_exchange(seen, null_mut(), ordering, Relaxed).ok()?;
        // Not `seen`, which has the same address: that pointer may lead to a record that has gone. SAFETY: `put_in` has put the
        // pointer there, and puts no null in; only this exchange has taken the pointer out.
        Some(unsafe { Entry::from_raw(NonNull::new_unchecked(taken)) })
    }

    /// X1 to X3, for the forker of `job`, which was put in here. Any thread. Returns `true` if no other thread has taken the
    /// record.
    #[inline]
    #[must_use]
    pub(crate) fn withdraw(&self, job: NonNull<Job<H>>) -> bool {
        mutant!(JobWithdrawnByPlace: return !self.0.swap(null_mut(), Relaxed).is_null());
        // Relaxed: the forker wrote the record itself, and the next record is put in by a Release of its own. Acquire: partner
        // the exchange of `take`.
        let taken = Acquire.unless(JobWithdrawLooksRelaxed);
        self.0.compare_exchange(job.as_ptr(), null_mut(), Relaxed, taken).is_ok()
    }
}

/// The jobs of a P. Their owner is the M that holds the P; a hand-over of the P orders one owner after another.
pub(crate) struct Jobs<H: Host> {
    /// No job stands before this position. Written by the owner.
    top: AtomicU32,
    /// No job stands at or behind this position. Written by the owner.
    bottom: AtomicU32,
    /// Owner: for how many jobs there is room: zero until the first job is put in.
    most: Cell<u32>,
    /// Owner: the owner has taken a job of its own since the last visit.
    came: Cell<bool>,
    /// The P's tick at which the oldest job was put in, or another tick; or `OTHERS`. Written by the owner.
    since: SingleWriterWord,
    /// Boxed, because a runtime can be built on a small stack.
    slots: Box<[Slot<H>; JOBS as usize]>,
    /// The last job that was put in, or for which there was no room, is that of a forker below `Normal`. Written by the owner.
    lower: SingleWriterFlag,
    /// All jobs are those of forkers of `Background`; or there is none. Written by the owner.
    background: SingleWriterFlag,
}

impl<H: Host> Jobs<H> {
    pub(crate) fn new() -> Self {
        let [top, bottom] = [(); 2].map(|()| AtomicU32::new(0));
        let slots = std::iter::repeat_with(|| Slot(AtomicPtr::new(null_mut())));
        let slots: Box<[_]> = slots.take(JOBS as usize).collect();
        let slots = slots.try_into().unwrap_or_else(|_| unreachable!("new: there are so many"));
        Jobs {
            top,
            bottom,
            most: Cell::new(0),
            came: Cell::new(false),
            since: SingleWriterWord::new(OTHERS),
            slots,
            lower: SingleWriterFlag::new(false),
            background: SingleWriterFlag::new(false),
        }
    }

    fn slot(&self, at: u32) -> &Slot<H> {
        &self.slots[(at % JOBS) as usize]
    }

    /// Owner: makes room for the P's first job. Returns `false` if there was room before.
    pub(crate) fn open(&self) -> bool {
        self.most.replace(JOBS) == 0
    }

    /// Owner: notes the class of the next job that is put in. Called for each job, once a goroutine of the runtime has had
    /// another class than `Normal`.
    pub(crate) fn note_class(&self, class: Priority) {
        self.lower.set(class < Priority::Normal);
        let of_background = class == Priority::Background;
        self.background.set(of_background && (self.background.own() || self.is_empty()));
    }

    /// Any thread: returns `true` if there are jobs, and the class of the newest is below `Normal`. A hint: that job might have
    /// been taken.
    pub(crate) fn are_lower(&self) -> bool {
        self.lower.peek() && !self.is_empty()
    }

    /// Owner: O1, O2, S1, and then `fence`, which is S2. `tick` is that of the P. Returns the slot; `None` if there is no room.
    ///
    /// The last store that puts a job in is an exchange, so that the fence costs nothing on x86, as in `Runq::push_next`.
    #[inline]
    pub(crate) fn put_in(&self, entry: Entry<H>, tick: u32, fence: impl FnOnce()) -> Option<&Slot<H>> {
        // Relaxed, both: only owners write the words; the hand-over of the P has published an earlier owner's values.
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
            Entry::Job(_) => self.since.set(tick.into()),
            // This goroutine waits for its turn.
            Entry::Goroutine(_) => self.since.set(OTHERS),
        }
        let slot = self.slot(bottom);
        // Relaxed: a hint, for readers that SubmitFence orders.
        self.bottom.store(bottom.wrapping_add(1), Relaxed);
        // Release: publishes the contents of the job to `take`, the partner.
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

    /// Any thread. Returns `false` if a job stands here that has not been taken, and that was put in before this call, by the
    /// order of a fence.
    pub(crate) fn is_empty(&self) -> bool {
        let (top, count) = self.range();
        count == 0 || (0..count).all(|at| self.slot(top.wrapping_add(at)).is_empty())
    }

    /// Owner: a goroutine that begins with no tick of the P runs on, or is brought to the owner: for the monitor no job here
    /// belongs to that goroutine. (The goroutine might come back to the P that it has left in its own branch. Then the monitor
    /// takes the job there for another goroutine's.)
    pub(crate) fn are_of_others(&self) {
        self.since.set(OTHERS);
    }

    /// For the monitor: returns `true` if a job stands here that does not belong to the goroutine that has run since `tick`,
    /// and that is not to wait in the background. A hint.
    pub(crate) fn have_waited(&self, tick: u32) -> bool {
        self.range().1 > 0 && self.since.get() != u64::from(tick) && self.stand_above_background()
    }

    /// Any thread: returns the negation of `is_empty`, but `false` if all jobs are those of forkers of `Background`.
    pub(crate) fn stand_above_background(&self) -> bool {
        !self.background.peek() && !self.is_empty()
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

    /// Owner, at a visit: takes the oldest job, if the owner has taken none since the last visit.
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
