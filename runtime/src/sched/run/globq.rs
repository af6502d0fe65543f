//! The global run queue: goroutines that were not submitted on an M, and those that do not fit into a P's ring.
//!
//! The obvious queue is a list through the Gs. An M that moves a hundred goroutines between a ring and such a list misses the
//! cache a hundred times each way, which was half of the cost of a yield among a thousand goroutines. So this queue is an array
//! of pointers, and touches no G. The array grows: queueing a goroutine may allocate, as spawning one may.
//!
//! Goroutines that were readied from outside of all Ps stand in an array of their own (`arrivals.rs`). An M that takes of both
//! takes one of the others before each arrival, and more where many of them wait.
//!
//! Under the policy [`Random`](crate::policy::Policy::Random) the queue is drawn from instead: the array is a lot of
//! which any goroutine may be the next. Goroutines that have yielded go into the next lot, which is drawn from when the
//! present lot is empty; and so do all goroutines that come while there is a next lot. From then on the present lot only
//! shrinks, and no goroutine waits for more than two lots.

use crate::g::GRef;
use crate::g::list::GList;
use crate::host::Host;
use crate::p::runq::Runq;
use crate::prim::hooks::*;
use crate::prim::{AtomicU64, Relaxed};
use crate::runtime::policy::Policy;
use crate::sched::run::class_queues::ClassQueues;
use crate::sched::run::mail::Mail;
use std::collections::VecDeque;

/// If each arrival spawns k goroutines, about k times this many wait at most.
const MANY: usize = 1 << 10;

/// An empty queue keeps memory for at most this many goroutines.
const KEPT: usize = 1 << 16;

/// How many goroutines stand in the queue, and how many of the mailboxes in the upper half: for readers without the lock, as
/// many as at the last `publish`, which follows each change of the queue in the same critical section. The highest bit says
/// that there are `detours` (`classes.rs`), so that a goroutine that yields asks for both at once; the bit below says that
/// there are arrivals.
pub(crate) struct GlobalLen(AtomicU64);

/// Where the count of the mailboxes begins.
const MAIL: u32 = 32;
/// Some goroutines are queued globally wherever they come from. Never taken back.
const DETOURS: u64 = 1 << 63;
/// There are arrivals.
const ARRIVALS: u64 = 1 << 62;

impl GlobalLen {
    pub(crate) fn new(detours: bool) -> Self {
        GlobalLen(AtomicU64::new(if detours { DETOURS } else { 0 }))
    }

    /// Under the lock: there are detours from now on.
    pub(crate) fn note_detours(&self) {
        // Relaxed: as in `read`. A reader that has learned of a goroutine with a class sees this.
        self.0.store(self.0.load(Relaxed) | DETOURS, Relaxed);
    }

    /// What a goroutine that yields has to know. As `read`.
    #[inline(always)]
    pub(crate) fn look(&self) -> Elsewhere {
        // Relaxed: as in `read`.
        Elsewhere(self.0.load(Relaxed))
    }

    /// Those that are for all, without the arrivals. Exact under the lock, else a hint.
    #[inline]
    pub(crate) fn read(&self) -> usize {
        // Relaxed: a hint; a decision is made by the queue itself, under the lock.
        self.0.load(Relaxed) as u32 as usize
    }

    /// Returns `true` if there is none: neither for all, nor an arrival, nor in a mailbox. As `read`.
    #[inline]
    pub(crate) fn is_zero(&self) -> bool {
        // Relaxed: as in `read`.
        self.0.load(Relaxed) & !DETOURS == 0
    }

    /// Returns `true` if there is one in a mailbox. As `read`.
    #[inline]
    pub(crate) fn counts_mail(&self) -> bool {
        // Relaxed: as in `read`.
        (self.0.load(Relaxed) & !(DETOURS | ARRIVALS)) >> MAIL != 0
    }

    /// Returns `true` if there are arrivals. As `read`.
    #[inline]
    pub(crate) fn has_arrivals(&self) -> bool {
        // Relaxed: as in `read`.
        self.0.load(Relaxed) & ARRIVALS != 0
    }

    /// Under the lock.
    #[inline]
    pub(crate) fn publish<H: Host>(&self, queue: &GlobalQueue<H>) {
        // Relaxed: as in `read`.
        let detours = self.0.load(Relaxed) & DETOURS;
        let arrivals = u64::from(!queue.arrivals.is_empty()) * ARRIVALS;
        self.0.store(queue.len() as u64 | (queue.mail.len() as u64) << MAIL | arrivals | detours, Relaxed);
    }
}

/// What [`GlobalLen::look`] has found beside the caller's ring.
#[derive(Copy, Clone)]
pub(crate) struct Elsewhere(u64);

impl Elsewhere {
    /// Returns `true` if no goroutine stands elsewhere, and there are no detours.
    #[inline(always)]
    pub(crate) fn is_nothing(self) -> bool {
        self.0 == 0
    }

    #[inline(always)]
    pub(crate) fn has_detours(self) -> bool {
        self.0 & DETOURS != 0
    }

    /// Returns `true` if there are goroutines that are for all.
    #[inline(always)]
    pub(crate) fn is_for_all(self) -> bool {
        self.0 as u32 != 0
    }
}

/// First in, first out; or drawn. Under the scheduler's lock.
pub(crate) struct GlobalQueue<H: Host> {
    queue: VecDeque<GRef<H>>,
    lots: Option<Lots<H>>,
    /// Those that were readied from outside of all Ps: none where this is the only queue, or none is to go first.
    arrivals: VecDeque<GRef<H>>,
    arrivals_are_apart: bool,
    /// How many of the others were taken, where an arrival might have been, since one was.
    others: usize,
    /// Those that are to run on a certain P.
    pub(crate) mail: Mail<H>,
    /// Those of other classes than `Normal`.
    pub(crate) classes: ClassQueues<H>,
}

/// What a queue has from which goroutines are drawn.
struct Lots<H: Host> {
    dice: Dice,
    /// The next lot: those that have yielded since the last one began, and those that came after them.
    later: VecDeque<GRef<H>>,
}

/// A sequence of numbers without a pattern, the same for the same seed (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Dice(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `count`.
    fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.next()) * count as u128) >> 64) as usize
    }
}

impl<H: Host> GlobalQueue<H> {
    /// An empty queue, as the policy has it. `arrivals_go_first`: there is a clock for that.
    pub(crate) fn new(policy: Policy, arrivals_go_first: bool) -> Self {
        let lots = policy.seed().map(|seed| Lots { dice: Dice::new(seed), later: VecDeque::new() });
        GlobalQueue {
            queue: VecDeque::new(),
            lots,
            arrivals: VecDeque::new(),
            arrivals_are_apart: arrivals_go_first && !policy.has_one_queue(),
            others: 1,
            mail: Mail::new(),
            classes: ClassQueues::new(),
        }
    }

    /// Returns `true` if there is none, neither for all nor in a mailbox, nor of any class.
    pub(crate) fn is_empty(&self) -> bool {
        mutant!(MailUncounted: return self.len() == 0);
        self.has_no_normal() && self.classes.is_empty()
    }

    /// As `is_empty`, without the other classes.
    pub(crate) fn has_no_normal(&self) -> bool {
        let mut for_all = self.len();
        unless!(ArrivalsUnseen, for_all += self.arrivals.len());
        for_all == 0 && self.mail.is_empty()
    }

    /// How many are for all, with the arrivals.
    pub(crate) fn num_for_all(&self) -> usize {
        self.len() + self.arrivals.len()
    }

    /// How many are for all, the arrivals only if `arrivals_too`.
    pub(crate) fn num_of(&self, arrivals_too: bool) -> usize {
        if arrivals_too { self.num_for_all() } else { self.len() }
    }

    /// How many are for all, without the arrivals.
    pub(crate) fn len(&self) -> usize {
        self.queue.len() + self.lots.as_ref().map_or(0, |lots| lots.later.len())
    }

    /// Appends a G that stands in no queue: to the queue of its class, or the mailbox that its hint names.
    #[inline]
    pub(crate) fn push(&mut self, g: GRef<H>) {
        self.push_to(g, false);
    }

    /// As `push`, to the end of the arrivals if `arrives`, and those have a queue of their own.
    #[inline(always)]
    fn push_to(&mut self, g: GRef<H>, arrives: bool) {
        if self.classes.are_in_use().unless(PushForgetsTheClass) && self.classes.push(g) {
            return;
        }
        if self.mail.heeds_hints() && self.mail.put_by_hint(g) {
            return;
        }
        g.place.touch();
        let end = if arrives && self.arrivals_are_apart { &mut self.arrivals } else { self.end() };
        end.push_back(g);
    }

    /// Where the next G is put.
    #[inline]
    fn end(&mut self) -> &mut VecDeque<GRef<H>> {
        match &mut self.lots {
            Some(lots) if !lots.later.is_empty() => &mut lots.later,
            _ => &mut self.queue,
        }
    }

    /// Appends a G that lets all others go first: that is the end of the queue, or the next lot.
    pub(crate) fn push_yielded(&mut self, g: GRef<H>) {
        g.place.touch();
        self.lots.as_mut().map_or(&mut self.queue, |lots| &mut lots.later).push_back(g);
    }

    /// Appends all of a list.
    pub(crate) fn append(&mut self, list: &mut GList<H>) {
        while let Some(g) = list.pop() {
            self.push(g);
        }
    }

    /// As `append`, of a list that was readied from outside of all Ps.
    pub(crate) fn append_arrivals(&mut self, list: &mut GList<H>) {
        while let Some(g) = list.pop() {
            self.push_to(g, true);
        }
    }

    /// Appends Gs that stand in no queue any more.
    pub(crate) fn extend(&mut self, gs: impl Iterator<Item = GRef<H>>) {
        self.end().extend(gs.map(Self::touched));
    }

    /// Asks for each G whether it stays, in the order of the queue.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(GRef<H>) -> bool) {
        let later = self.lots.as_mut().map(|lots| &mut lots.later);
        for queue in [&mut self.queue, &mut self.arrivals].into_iter().chain(later) {
            queue.retain(|&g| {
                g.place.touch();
                stays(g)
            });
        }
        Self::shrink(&mut self.queue);
        Self::shrink(&mut self.arrivals);
        self.classes.retain(stays);
    }

    /// Moves the `count` goroutines that have waited longest to the ring of the caller's P, which has room for them.
    pub(crate) fn move_to(&mut self, ring: &Runq<H>, count: usize) {
        ring.push_all(self.queue.drain(..count).map(Self::touched));
        Self::shrink(&mut self.queue);
    }

    /// `g`, whose queue changes here.
    fn touched(g: GRef<H>) -> GRef<H> {
        g.place.touch();
        g
    }

    fn shrink(queue: &mut VecDeque<GRef<H>>) {
        if queue.is_empty() && queue.capacity() > KEPT {
            *queue = VecDeque::new();
        }
    }

    /// Takes the G that the owner of P number `p` is to run before those that are for all, with the arrivals or without: from
    /// that P's mailbox.
    #[inline]
    pub(crate) fn mailed_to(&mut self, p: u32, arrivals_too: bool) -> Option<GRef<H>> {
        if self.mail.is_empty() {
            return None;
        }
        let others_wait = self.num_of(arrivals_too) > 0;
        self.mail.take_in_turn(p, others_wait)
    }

    /// Those that stand in the mailboxes of the Ps from number `p` on go to the end of the queue. Hints that name such a P have
    /// no effect from now on.
    pub(crate) fn forward_mail(&mut self, p: u32) {
        unless!(HintsOutliveTheirPs, self.mail.resize(p));
        for g in self.mail.take_beyond(p) {
            self.push(g);
        }
    }

    /// Takes the G that has waited longest of those that are for all; where arrivals and others wait, one of the others before
    /// each arrival, and one more for each [`MANY`] of the others.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<GRef<H>> {
        self.pop_of(true)
    }

    /// As `pop`; an arrival only if `arrivals_too`.
    #[inline]
    pub(crate) fn pop_of(&mut self, arrivals_too: bool) -> Option<GRef<H>> {
        if arrivals_too && self.is_arrivals_turn() {
            return self.pop_arrival();
        }
        let first = if self.lots.is_some() { self.draw() } else { self.queue.pop_front() }?;
        first.place.touch();
        Self::shrink(&mut self.queue);
        Some(first)
    }

    #[inline]
    fn is_arrivals_turn(&mut self) -> bool {
        if self.arrivals.is_empty() {
            return false;
        }
        // Where arrivals are apart there are no lots. With one arrival for each of the others a queue of what arrivals spawn,
        // several each, would become longer and longer.
        let is_theirs = self.queue.is_empty() || self.others > self.queue.len() / MANY;
        self.others = if is_theirs { 0 } else { self.others + 1 };
        is_theirs
    }

    /// Takes the arrival that has waited longest.
    #[inline]
    pub(crate) fn pop_arrival(&mut self) -> Option<GRef<H>> {
        let first = self.arrivals.pop_front()?;
        first.place.touch();
        Self::shrink(&mut self.arrivals);
        Some(first)
    }

    #[cold]
    fn draw(&mut self) -> Option<GRef<H>> {
        let lots = self.lots.as_mut()?;
        if self.queue.is_empty() {
            std::mem::swap(&mut self.queue, &mut lots.later);
        }
        if self.queue.is_empty() {
            return None;
        }
        self.queue.swap_remove_back(lots.dice.below(self.queue.len()))
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    /// Fails when a number is drawn too often, or never, or another seed draws the same ones.
    #[test]
    fn each_lot_is_drawn_as_often_as_another() {
        for count in [1, 2, 3, 7, 100] {
            let (mut dice, mut drawn) = (Dice::new(count as u64), vec![0; count]);
            (0..1000 * count).for_each(|_| drawn[dice.below(count)] += 1);
            assert!(drawn.iter().all(|&times| (850..1150).contains(&times)), "{drawn:?}");
        }
        let first = |seed| {
            (0..4)
                .map(|_| 0)
                .fold((Dice::new(seed), 0), |(mut dice, _), _: i32| {
                    let n = dice.next();
                    (dice, n)
                })
                .1
        };
        assert_eq!(first(7), first(7));
        assert_ne!(first(7), first(8));
    }
}
