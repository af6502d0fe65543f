//! The run queue of a P: a ring of goroutines, and `runnext`, the one that runs before them.
//!
//! One thread at a time is the *owner*, the M that holds the P; any other thread that takes from the queue is a *thief*. The
//! queue is Go's, except that the ring has two heads, as in the multi-thread scheduler of tokio. All positions count up freely
//! and wrap; the slot of a position is the position modulo the ring's size.
//!
//! ```text
//!            a thief copies these     these can be taken
//!    ··· │ ······················ │ ······················ │ free ···
//!        ▲ steal                  ▲ real                   ▲ tail
//! ```
//!
//! | heads | meaning | owner may | thief may |
//! | --- | --- | --- | --- |
//! | steal = real = tail | empty | push | look at runnext |
//! | steal = real ≠ tail | Gs wait | push, pop, give half away when full | claim |
//! | steal ≠ real | a thief is in the ring, or the owner picks | push while there is room, pop | nothing: `Refused::Busy` |
//!
//! ```text
//!    push      O1 read the heads · O2 write the slot · O3 tail += 1
//!    pop       one exchange: real += 1, and steal with it unless a thief is in the ring
//!    overflow  one exchange: steal and real += half; while a thief is in the ring only the new G goes
//!    turn      overflow, tail += half, overflow: the older half stays, behind the old tail (`spill_newer`)
//!    pick      the owner's own claim, up to the G that it wants; steal and real then are one more than before (`pick.rs`)
//!    steal     T1 read the heads · T2 read the tail · T3 exchange: real += n, the claim (`thief.rs`)
//!              T4 copy the slots · T5 exchange: steal = real, wherever pops have moved it, the release
//! ```
//! A slot is read after O3 and T2, and written again after T5 and O1. Each pair is a Release and an Acquire, so slots can be
//! plain memory. `runnext` changes only by exchanges: an exchange of the owner stores a G, one of the owner or of a thief
//! stores null.
//!
//! Invariants:
//! 1. steal ≤ real ≤ tail ≤ steal + size. The owner alone moves tail, and writes only slots from tail on.
//! 2. steal ≠ real exactly while a `Claim` (`thief.rs`) lives, or the owner picks; no other thread moves steal meanwhile.
//! 3. Heads never overtake a tail that is read after them: every exchange of the heads is a Release, and follows the store of
//!    the tail on which it relies; `claim` and `is_empty` read the heads by Acquire.
//! 4. The heads can't return to an old value under a thief's exchange, short of 2³² Gs between T1 and T3.
//!
//! Why not Go's single head, which a thief moves only *after* it has copied? The owner could then overwrite a slot while the
//! thief reads it, so slots would have to be atomics, and a copy could be in vain. The price of the claim: a thief that the
//! kernel preempts between T3 and T5 keeps other thieves out of this ring. That thief never blocks the owner, but the ring
//! gives no slot back meanwhile, and goroutines that do not fit go to the global queue one by one.
//!
//! Checked by `models/runq.rs`, over rings of four that begin just before their positions wrap, and, for `runnext` beside an M
//! that goes idle, by `models/submit_vs_idle.rs`.

mod head;
#[cfg(gmp_loom)]
mod mutants;

#[cfg(gmp_policies)]
mod locked;
mod pick;
mod thief;

use crate::g::list::GList;
use crate::g::{G, GRef};
use crate::host::Host;
use crate::prim::capacity::RUNQ;
use crate::prim::hooks::*;
use crate::prim::{Acquire, AtomicPtr, AtomicU32, AtomicU64, Relaxed, Release, UnsafeCell};
use crate::runtime::policy::Policy;
use head::Head;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

pub(crate) use pick::Picked;
pub(crate) use thief::StealNext;

const HALF: u32 = RUNQ / 2;
const _: () = assert!(RUNQ.is_power_of_two() && RUNQ >= 2, "positions wrap only with a power of two");

/// The run queue of a P. Its owner is the M that holds the P; a hand-over of the P orders one owner after another.
#[doc(alias = "runq")]
pub(crate) struct Runq<H: Host> {
    head: AtomicU64,
    /// Written by the owner only.
    tail: AtomicU32,
    /// In place of the ring.
    #[cfg(gmp_policies)]
    locked: Option<locked::Locked<H>>,
    /// How many Gs the ring can hold: its size, or zero if the policy keeps all Gs in the global queue.
    most: u32,
    /// Null for none.
    runnext: AtomicPtr<G<H>>,
    slots: [UnsafeCell<MaybeUninit<GRef<H>>>; RUNQ as usize],
}

// SAFETY: a GRef may go to any thread; the module's header says which thread touches which slot when.
unsafe impl<H: Host> Send for Runq<H> {}
// SAFETY: as for `Send`.
unsafe impl<H: Host> Sync for Runq<H> {}

impl<H: Host> Runq<H> {
    /// Returns an empty queue. If the policy keeps all Gs in the global queue, each push finds the ring full.
    pub(crate) fn new(policy: Policy) -> Self {
        Runq {
            most: if policy.has_one_queue() { 0 } else { RUNQ },
            #[cfg(gmp_policies)]
            locked: policy.has_locked_queues().then(locked::Locked::new),
            ..Self::starting_at(0)
        }
    }

    /// Returns an empty queue, whose first G will be at position `start`.
    pub(crate) fn starting_at(start: u32) -> Self {
        Runq {
            most: RUNQ,
            #[cfg(gmp_policies)]
            locked: None,
            head: AtomicU64::new(Head::new(start, start).0),
            tail: AtomicU32::new(start),
            runnext: AtomicPtr::new(null_mut()),
            slots: std::array::from_fn(|_| UnsafeCell::new(MaybeUninit::uninit())),
        }
    }

    /// Returns about how many goroutines are in the ring.
    pub(crate) fn len(&self) -> u32 {
        #[cfg(gmp_policies)]
        if let Some(locked) = &self.locked {
            return locked.len();
        }
        // Relaxed: a hint. Heads newer than the tail count as an empty ring, older ones at most as a full one.
        let (head, tail) = (Head(self.head.load(Relaxed)), self.tail.load(Relaxed));
        (tail.wrapping_sub(head.real()) as i32).clamp(0, RUNQ as i32) as u32
    }

    /// Owner only. Makes `g` the next to run; the G that was in `runnext` goes to the tail of the ring. If that G does not fit,
    /// returns it, for [`spill`](Self::spill) under the central lock.
    ///
    /// Between the two steps the displaced G is in neither place, and a thief can take `g`: then the queue seems empty until
    /// this returns. After that the owner looks for an M to wake.
    ///
    /// `fence` is SubmitFence (`sched/run/wake.rs`). The last store that queues a G is an exchange, of `runnext` or of the
    /// tail, and `fence` follows at once: so it costs nothing on x86, where an exchange is a fence. If the tail were stored
    /// after the fence, an M that goes idle could see neither `g`, which a thief has run, nor the displaced G, while the owner
    /// sees no idle P.
    #[must_use]
    #[inline]
    #[doc(alias = "runqput")]
    pub(crate) fn push_next(&self, g: GRef<H>, fence: impl FnOnce()) -> Option<GRef<H>> {
        // Release: publishes the contents of the G to `steal_next`, the partner.
        let displaced = self.runnext.swap(g.to_raw(), Release.unless(RunnextPutRelaxed));
        if displaced.is_null() {
            fence();
            return None;
        }
        // SAFETY: put there by an earlier `push_next`, and taken out by this exchange alone.
        let displaced = unsafe { GRef::from_raw(displaced) };
        mutant!(DisplacedAfterFence: fence(); return self.push(displaced));
        let full = self.push_by(displaced, |tail| {
            // Release: as in `publish`, with the same partner.
            self.tail.swap(tail, Release.unless(DisplacedTailRelaxed));
        });
        fence();
        full
    }

    /// Owner only. As `push_next` for each G of the list, in order, by one exchange of `runnext` and one of the tail. There is
    /// room for all.
    pub(crate) fn push_next_each(&self, list: &mut GList<H>, fence: impl FnOnce()) {
        #[cfg(gmp_policies)]
        if let Some(locked) = &self.locked {
            locked.push_from(|| list.pop());
            locked.fence();
            return fence();
        }
        let (count, Some(last)) = (list.len(), list.last()) else { return };
        // Release: as in `push_next`, with the same partner. From here on `last` can run, and this thread no longer reads it.
        let displaced = self.runnext.swap(last.to_raw(), Release.unless(NextEachPutRelaxed));
        let mut end = self.owners_tail();
        let mut put = |g| {
            // SAFETY: the owner's call, and the slot is free: there is room for as many as the list has.
            unsafe { self.write(end, g) };
            end = end.wrapping_add(1);
        };
        if !displaced.is_null() {
            // SAFETY: as in `push_next`.
            put(unsafe { GRef::from_raw(displaced) });
        }
        (1..count).filter_map(|_| list.pop()).for_each(put);
        *list = GList::new();
        // Release: as in `publish`, with the same partner.
        self.tail.swap(end, Release.unless(NextEachTailRelaxed));
        fence();
    }

    /// Owner only. Puts `g` at the tail of the ring. If the ring is full, returns `g`, for [`spill`](Self::spill).
    #[must_use]
    #[inline]
    pub(crate) fn push(&self, g: GRef<H>) -> Option<GRef<H>> {
        self.push_by(g, |tail| self.publish(tail))
    }

    #[inline(always)]
    fn push_by(&self, g: GRef<H>, publish: impl FnOnce(u32)) -> Option<GRef<H>> {
        #[cfg(gmp_policies)]
        if let Some(locked) = &self.locked {
            locked.push(g);
            return None;
        }
        let (head, tail) = (self.owners_head(), self.owners_tail());
        if tail.wrapping_sub(head.steal()) >= self.most {
            return Some(g);
        }
        // SAFETY: the owner's call, and the slot is free.
        unsafe { self.write(tail, g) };
        publish(tail.wrapping_add(1));
        None
    }

    /// Owner only. For a `g` that found the ring full: passes the ring's older half to `out`, in order, and then `g`; only `g`
    /// while a thief is in the ring.
    #[cold]
    #[doc(alias = "runqputslow")]
    pub(crate) fn spill(&self, g: GRef<H>, mut out: impl FnMut(GRef<H>)) {
        let head = self.owners_head();
        if self.owners_tail().wrapping_sub(head.steal()) == RUNQ
            && let Some(older) = self.take_out(head, HALF)
        {
            older.for_each(&mut out);
        }
        out(g);
    }

    /// As `spill`, with the newer half. If that half has gone, returns the position at which the ring began; the older half
    /// then begins one ring size later.
    ///
    /// The older half is taken out and appended, and then the newer half is taken out: there is no moment at which the
    /// ring seems empty. The slot behind the tail of a full ring is that of its head: no slot is written.
    #[must_use]
    #[cold]
    pub(crate) fn spill_newer(&self, g: GRef<H>, mut out: impl FnMut(GRef<H>)) -> Option<u32> {
        let (head, tail) = (self.owners_head(), self.owners_tail());
        let mut gone = None;
        if tail.wrapping_sub(head.steal()) == RUNQ && self.take_out(head, HALF).is_some() {
            unless!(RingTurnsLate, self.publish(tail.wrapping_add(HALF)));
            if let Some(newer) = self.take_out(head.taken(HALF), HALF) {
                newer.for_each(&mut out);
                gone = Some(head.real());
            }
            mutant!(RingTurnsLate: self.publish(tail.wrapping_add(HALF)));
        }
        out(g);
        gone
    }

    /// Owner only. Takes all Gs of the ring, in order. The caller goes through them once, before it queues anything else.
    /// Returns `None` while a thief is in the ring.
    #[cfg(not(gmp_policies))]
    #[must_use]
    pub(crate) fn take_all(&self) -> Option<impl Iterator<Item = GRef<H>>> {
        self.take_ring()
    }

    fn take_ring(&self) -> Option<impl Iterator<Item = GRef<H>>> {
        let head = self.owners_head();
        self.take_out(head, self.owners_tail().wrapping_sub(head.real()))
    }

    /// Owner only. Takes the first `n` Gs of the ring, which has at least that many; `head` is what the owner has read. Returns
    /// `None` if a thief is in the ring.
    #[inline]
    fn take_out(&self, head: Head, n: u32) -> Option<impl Iterator<Item = GRef<H>>> {
        if head.has_thief() {
            return None;
        }
        // Release: invariant 3; partners `claim` and `is_empty`. If the exchange fails, a thief has just come in.
        let ordering = Release.unless(RingSpillRelaxed);
        self.head.compare_exchange(head.0, head.taken(n).0, ordering, Relaxed).ok()?;
        // SAFETY: the first `n` Gs lie below the tail, so owners wrote them, and the exchange has taken them from the thieves.
        // This same owner writes the slots next.
        Some((0..n).map(move |at| unsafe { self.read(head.real().wrapping_add(at)) }))
    }

    /// Owner only. Moves as many Gs of `list` as there is room for to the tail of the ring, in order and in one publication;
    /// the others stay in the list.
    #[doc(alias = "runqputbatch")]
    pub(crate) fn push_batch(&self, list: &mut GList<H>) {
        self.push_from(|| list.pop());
    }

    /// Owner only. As `push_batch`, for Gs that `next` returns one by one, as long as there is room.
    pub(crate) fn push_from(&self, mut next: impl FnMut() -> Option<GRef<H>>) {
        #[cfg(gmp_policies)]
        if let Some(locked) = &self.locked {
            return locked.push_from(next);
        }
        let (head, tail) = (self.owners_head(), self.owners_tail());
        let (mut end, limit) = (tail, head.steal().wrapping_add(self.most));
        while end != limit
            && let Some(g) = next()
        {
            // SAFETY: the owner's call, and the slot is free: `end` is below the limit.
            unsafe { self.write(end, g) };
            end = end.wrapping_add(1);
        }
        if end != tail {
            self.publish(end);
        }
    }

    /// Owner only. Returns for how many Gs there is room. Slots that a thief is copying do not count as room.
    pub(crate) fn room(&self) -> u32 {
        #[cfg(gmp_policies)]
        if let Some(locked) = &self.locked {
            // More than there can be goroutines.
            return u32::MAX >> locked.len().min(1);
        }
        let (head, tail) = (self.owners_head(), self.owners_tail());
        mutant!(RoomFromReal: return RUNQ - tail.wrapping_sub(head.real()));
        self.most - tail.wrapping_sub(head.steal())
    }

    /// Owner only. Puts all of `gs`, for which there is room, at the tail of the ring, in one publication.
    pub(crate) fn push_all(&self, gs: impl ExactSizeIterator<Item = GRef<H>>) {
        #[cfg(gmp_policies)]
        if let Some(locked) = &self.locked {
            let mut gs = gs;
            return locked.push_from(|| gs.next());
        }
        let (count, room, tail) = (gs.len() as u32, self.room(), self.owners_tail());
        assert!(count <= room, "push_all: no room for so many ({count}, {room})");
        for (at, g) in (0..count).zip(gs) {
            // SAFETY: the owner's call, and the slot is free: there is room.
            unsafe { self.write(tail.wrapping_add(at), g) };
        }
        self.publish(tail.wrapping_add(count));
    }

    /// Owner only: returns the positions of the next G to be popped, and of the next G to be pushed.
    pub(crate) fn ends(&self) -> (u32, u32) {
        #[cfg(gmp_policies)]
        if let Some(locked) = &self.locked {
            return locked.ends();
        }
        // Relaxed: for a count. A thief can move the head meanwhile, up to the tail.
        (Head(self.head.load(Relaxed)).real(), self.owners_tail())
    }

    /// Owner only. Takes runnext.
    #[inline]
    pub(crate) fn pop_next(&self) -> Option<GRef<H>> {
        // Relaxed: this owner has put the G there, or there is none.
        let next = self.runnext.load(Relaxed);
        if next.is_null() {
            return None;
        }
        mutant!(RunnextTakenByStore: return Some(self.take_next_by_a_store(next)));
        // Release: an M that sees the G gone in `is_empty`, its partner, sees in the ring what was pushed before. The exchange
        // fails when a thief has the G: the owner alone puts one there.
        let ordering = Release.unless(RunnextPopRelaxed);
        self.runnext.compare_exchange(next, null_mut(), ordering, Relaxed).ok()?;
        // SAFETY: put there by `push_next`, and taken out by this exchange alone.
        Some(unsafe { GRef::from_raw(next) })
    }

    /// Any thread: returns `true` if a G stands in runnext, which `len` does not count. A hint.
    pub(crate) fn has_next(&self) -> bool {
        // Relaxed: a hint.
        !self.runnext.load(Relaxed).is_null()
    }

    /// Owner only. Returns `true` if `is_it` returns `true` for the G in runnext. A hint, because a thief can take that G.
    pub(crate) fn is_next(&self, is_it: impl Fn(GRef<H>) -> bool) -> bool {
        // Relaxed: this owner has put the G there, or there is none.
        let next = self.runnext.load(Relaxed);
        // SAFETY: put there by `push_next`. Nothing is read of the G.
        !next.is_null() && is_it(unsafe { GRef::from_raw(next) })
    }

    /// Owner only. Takes the G at the head of the ring.
    #[inline]
    #[doc(alias = "runqget")]
    pub(crate) fn pop(&self) -> Option<GRef<H>> {
        #[cfg(gmp_policies)]
        if let Some(locked) = &self.locked {
            return locked.pop();
        }
        let tail = self.owners_tail();
        // Relaxed: the owner wrote the slots, and with an out-of-date value the exchange fails. Such a value does not make the
        // ring look empty either: real never passes the tail.
        let mut head = Head(self.head.load(Relaxed));
        while head.real() != tail {
            let rest = head.taken(1).0;
            // Release: invariant 3; partner `claim`. `is_empty` is a partner as well: an M that sees the G gone there sees the
            // runnext that was put before.
            let ordering = Release.unless(RingPopRelaxed);
            mutant!(RingHeadStore: return Some(self.pop_by_a_store(head)));
            if let Err(now) = self.head.compare_exchange(head.0, rest, ordering, Relaxed) {
                head = Head(now);
                continue;
            }
            let after = head.real().wrapping_add(1);
            if after != tail {
                // SAFETY: `after` is below the tail, so an owner wrote the slot, and only owners write.
                unsafe { self.read(after) }.fetch();
            }
            // SAFETY: an owner wrote the slot, below the tail; the exchange has taken the G from the thieves, and
            // this same owner writes the slot next.
            return Some(unsafe { self.read(head.real()) });
        }
        None
    }

    /// Any thread. Returns `true` if at one moment during the call both the ring and `runnext` were empty; `false` if at one
    /// moment there was a G.
    ///
    /// The order of the three loads matters, because Gs move meanwhile. The heads are read before `runnext` because of a G that
    /// is put there before the ring's last G is popped. `runnext` is read before the tail because of a G that is displaced from
    /// there into the ring before the G that displaced it is popped. And real, read early, equals the tail, read late, only if
    /// the ring was empty all the time between, when `runnext` was read. (Go reads the tail before and after.)
    #[doc(alias = "runqempty")]
    pub(crate) fn is_empty(&self) -> bool {
        #[cfg(gmp_policies)]
        if let Some(locked) = &self.locked {
            // Acquire: as below, with the same partner.
            return locked.is_empty(|| self.runnext.load(Acquire).is_null());
        }
        mutant!(EmptyTailReadFirst: keep early = self.tail.load(Relaxed));
        // Acquire: partners the exchanges of `pop` and of `claim`.
        let head = Head(self.head.load(Acquire.unless(EmptyHeadRelaxed)));
        // Acquire: partner the exchange of `pop_next`. A thief's exchange of `runnext` need not be a Release: that thief has
        // found the ring empty.
        let next = self.runnext.load(Acquire.unless(EmptyNextRelaxed));
        // Relaxed: the two loads before order this one.
        let tail = self.tail.load(Relaxed);
        mutant!(EmptyTailReadFirst: let tail = early.unwrap_or(tail));
        mutant!(EmptyIgnoresRunnext: return head.real() == tail);
        head.real() == tail && next.is_null()
    }

    /// Returns the heads, for an owner that is about to write slots from the tail on.
    #[inline]
    fn owners_head(&self) -> Head {
        // Acquire: partner the end of a `Claim`, whose reads of the slots come before. The owner's exchanges since then
        // continue the release sequence of the claim.
        Head(self.head.load(Acquire.unless(RingPushHeadRelaxed)))
    }

    #[inline]
    fn owners_tail(&self) -> u32 {
        // Relaxed: only owners write the word; the hand-over of the P has published an earlier owner's value.
        self.tail.load(Relaxed)
    }

    /// O3, for all newly written slots below the new tail.
    #[inline]
    fn publish(&self, tail: u32) {
        // Release: partner the load of the tail in `claim`.
        self.tail.store(tail, Release.unless(RingTailStoreRelaxed));
    }

    fn slot(&self, at: u32) -> &UnsafeCell<MaybeUninit<GRef<H>>> {
        &self.slots[(at % RUNQ) as usize]
    }

    /// # Safety
    /// The caller is the owner; `at` is not below the tail, and below `owners_head().steal()` + the size.
    #[inline]
    unsafe fn write(&self, at: u32, g: GRef<H>) {
        // SAFETY: by this function's contract. A new thief reads only below the tail (`claim`); an earlier thief has read
        // before its release, which `owners_head` has acquired.
        self.slot(at).with_mut(|slot| unsafe { (*slot).write(g) });
    }

    /// # Safety
    /// The slot at `at` was written, and is not written again meanwhile.
    #[inline]
    unsafe fn read(&self, at: u32) -> GRef<H> {
        // SAFETY: by this function's contract.
        self.slot(at).with(|slot| unsafe { (*slot).assume_init() })
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests;
