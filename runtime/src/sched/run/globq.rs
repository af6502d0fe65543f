//! The global run queue: goroutines that were not submitted on an M, and those that do not fit into a P's ring.
//!
//! The obvious queue is a list through the Gs. An M that moves a hundred goroutines between a ring and such a list misses the
//! cache a hundred times each way, which was half of the cost of a yield among a thousand goroutines. So this queue is an array
//! of pointers, and touches no G. The array grows: queueing a goroutine may allocate, as spawning one may.
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
use crate::sched::run::class_queues::ClassQueues;
use crate::sched::run::mail::Mail;
use std::collections::VecDeque;

/// An empty queue keeps memory for at most this many goroutines.
const KEPT: usize = 1 << 16;

/// How many goroutines stand in the queue, and how many of the mailboxes in the upper half: for readers without the lock, as
/// many as at the last `publish`, which follows each change of the queue in the same critical section. The highest bit says
/// that there are `detours` (`classes.rs`), so that a goroutine that yields asks for both at once.
pub(crate) struct GlobalLen(AtomicU64);

/// Where the count of the mailboxes begins.
const MAIL: u32 = 32;
/// Some goroutines are queued globally wherever they come from. Never taken back.
const DETOURS: u64 = 1 << 63;

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

    /// Those that are for all. Exact under the lock, else a hint.
    #[inline]
    pub(crate) fn read(&self) -> usize {
        // Relaxed: a hint; a decision is made by the queue itself, under the lock.
        self.0.load(Relaxed) as u32 as usize
    }

    /// Returns `true` if there is none, neither for all nor in a mailbox. As `read`.
    #[inline]
    pub(crate) fn is_zero(&self) -> bool {
        // Relaxed: as in `read`.
        self.0.load(Relaxed) & !DETOURS == 0
    }

    /// Returns `true` if there is one in a mailbox. As `read`.
    #[inline]
    pub(crate) fn counts_mail(&self) -> bool {
        // Relaxed: as in `read`.
        (self.0.load(Relaxed) & !DETOURS) >> MAIL != 0
    }

    /// Under the lock.
    #[inline]
    pub(crate) fn publish<H: Host>(&self, queue: &GlobalQueue<H>) {
        // Relaxed: as in `read`.
        let detours = self.0.load(Relaxed) & DETOURS;
        self.0.store(queue.len() as u64 | (queue.mail.len() as u64) << MAIL | detours, Relaxed);
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
    /// An empty queue; with a seed, one that is drawn from.
    pub(crate) fn new(seed: Option<u64>) -> Self {
        let lots = seed.map(|seed| Lots { dice: Dice::new(seed), later: VecDeque::new() });
        GlobalQueue { queue: VecDeque::new(), lots, mail: Mail::new(), classes: ClassQueues::new() }
    }

    /// Returns `true` if there is none, neither for all nor in a mailbox, nor of any class.
    pub(crate) fn is_empty(&self) -> bool {
        mutant!(MailUncounted: return self.len() == 0);
        self.has_no_normal() && self.classes.is_empty()
    }

    /// As `is_empty`, without the other classes.
    pub(crate) fn has_no_normal(&self) -> bool {
        let for_all = self.len();
        for_all == 0 && self.mail.is_empty()
    }

    /// How many are for all.
    pub(crate) fn len(&self) -> usize {
        self.queue.len() + self.lots.as_ref().map_or(0, |lots| lots.later.len())
    }

    /// Appends a G that stands in no queue: to the queue of its class, or the mailbox that its hint names.
    #[inline]
    pub(crate) fn push(&mut self, g: GRef<H>) {
        if self.classes.are_in_use().unless(PushForgetsTheClass) && self.classes.push(g) {
            return;
        }
        if self.mail.heeds_hints() && self.mail.put_by_hint(g) {
            return;
        }
        g.place.touch();
        self.end().push_back(g);
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

    /// Appends Gs that stand in no queue any more.
    pub(crate) fn extend(&mut self, gs: impl Iterator<Item = GRef<H>>) {
        self.end().extend(gs.map(Self::touched));
    }

    /// Asks for each G whether it stays, in the order of the queue.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(GRef<H>) -> bool) {
        let later = self.lots.as_mut().map(|lots| &mut lots.later);
        for queue in std::iter::once(&mut self.queue).chain(later) {
            queue.retain(|&g| {
                g.place.touch();
                stays(g)
            });
        }
        self.shrink();
        self.classes.retain(stays);
    }

    /// Moves the `count` goroutines that have waited longest to the ring of the caller's P, which has room for them.
    pub(crate) fn move_to(&mut self, ring: &Runq<H>, count: usize) {
        ring.push_all(self.queue.drain(..count).map(Self::touched));
        self.shrink();
    }

    /// `g`, whose queue changes here.
    fn touched(g: GRef<H>) -> GRef<H> {
        g.place.touch();
        g
    }

    fn shrink(&mut self) {
        if self.queue.is_empty() && self.queue.capacity() > KEPT {
            self.queue = VecDeque::new();
        }
    }

    /// Takes the G that the owner of P number `p` is to run before those that are for all: from that P's mailbox.
    #[inline]
    pub(crate) fn mailed_to(&mut self, p: u32) -> Option<GRef<H>> {
        if self.mail.is_empty() {
            return None;
        }
        let for_all = self.len();
        let others_wait = for_all > 0;
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

    /// Takes the G that has waited longest, or one that is drawn.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<GRef<H>> {
        let first = if self.lots.is_some() { self.draw() } else { self.queue.pop_front() }?;
        first.place.touch();
        self.shrink();
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
