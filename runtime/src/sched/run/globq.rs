//! The global run queue: goroutines that were not submitted on an M, and those that do not fit into a P's ring.
//!
//! Goroutines that were readied from outside of all Ps stand in a queue of their own (`arrivals.rs`). An M that takes from both
//! queues takes one of the others before each arrival, and more if many of the others wait.
//!
//! Under the policy [`Random`](crate::policy::Policy::Random) Ms draw from the queue instead: the queue is a set, called a lot,
//! from which an M takes any goroutine next. Goroutines that have yielded go into the next lot, from which Ms draw when the
//! present lot is empty; so do all goroutines that come while there is a next lot. From then on the present lot only shrinks,
//! and no goroutine waits for more than two lots.

use crate::g::GRef;
use crate::g::list::GList;
use crate::host::Host;
use crate::p::runq::Runq;
use crate::prim::hooks::*;
use crate::prim::{AtomicU64, Relaxed};
use crate::runtime::policy::Policy;
use crate::sched::run::class_queues::ClassQueues;
use crate::sched::run::gqueue::GQueue;
use crate::sched::run::mail::Mail;

/// If each arrival spawns k goroutines, at most about k times this many wait.
const MANY: usize = 1 << 10;

/// An empty queue keeps memory for at most this many goroutines.
const KEPT: usize = 1 << 16;

/// The lengths, for readers without the lock: the lower half is the number of goroutines in the queue, the upper half that of
/// the goroutines in the mailboxes. Both are as at the last `publish`, which follows each change of the queue in the same
/// critical section. The highest bit says that there are `detours` (`classes.rs`), so that a goroutine that yields learns both
/// by one load; the bit below it says that there are arrivals.
pub(crate) struct GlobalLen(AtomicU64);

/// Where the count of the mailboxes begins.
const MAIL: u32 = 32;
/// Some goroutines are queued globally wherever they come from. Never cleared.
const DETOURS: u64 = 1 << 63;
/// There are arrivals.
const ARRIVALS: u64 = 1 << 62;

impl GlobalLen {
    pub(crate) fn new(detours: bool) -> Self {
        GlobalLen(AtomicU64::new(if detours { DETOURS } else { 0 }))
    }

    /// Notes that there are detours from now on. Under the lock.
    pub(crate) fn note_detours(&self) {
        // Relaxed: as in `for_all`. A reader that has learned of a goroutine with a class sees this.
        self.0.store(self.0.load(Relaxed) | DETOURS, Relaxed);
    }

    /// Returns what a goroutine that yields has to know. As exact as `for_all`.
    #[inline(always)]
    pub(crate) fn look(&self) -> Elsewhere {
        // Relaxed: as in `for_all`.
        Elsewhere(self.0.load(Relaxed))
    }

    /// Returns how many goroutines any P may run, without the arrivals. Exact under the lock; otherwise a hint.
    #[inline]
    pub(crate) fn for_all(&self) -> usize {
        // Relaxed: a hint; the queue itself decides, under the lock.
        self.0.load(Relaxed) as u32 as usize
    }

    /// Returns `true` if there is no goroutine: neither for all Ps, nor an arrival, nor in a mailbox. As exact as `for_all`.
    #[inline]
    pub(crate) fn is_zero(&self) -> bool {
        // Relaxed: as in `for_all`.
        self.0.load(Relaxed) & !DETOURS == 0
    }

    /// Returns `true` if there is a goroutine in the mailbox of any P. As exact as `for_all`.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        // Relaxed: as in `for_all`.
        (self.0.load(Relaxed) & !(DETOURS | ARRIVALS)) >> MAIL != 0
    }

    /// Returns `true` if there are arrivals. As exact as `for_all`.
    #[inline]
    pub(crate) fn has_arrivals(&self) -> bool {
        // Relaxed: as in `for_all`.
        self.0.load(Relaxed) & ARRIVALS != 0
    }

    /// Under the lock.
    #[inline]
    pub(crate) fn publish<H: Host>(&self, queue: &GlobalQueue<H>) {
        // Relaxed: as in `for_all`.
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

    /// Returns `true` if there are goroutines that any P may run.
    #[inline(always)]
    pub(crate) fn is_for_all(self) -> bool {
        self.0 as u32 != 0
    }
}

/// First in, first out; or drawn at random. Under the central lock.
pub(crate) struct GlobalQueue<H: Host> {
    queue: GQueue<H, KEPT>,
    lots: Option<Lots<H>>,
    /// Goroutines that were readied from outside of all Ps, or by timers beside a ring of long goroutines. Unused under a
    /// policy with one queue, and if arrivals do not go first.
    arrivals: GQueue<H, KEPT>,
    arrivals_are_apart: bool,
    /// How many of the others were taken, when an arrival could have been taken, since the last arrival.
    others: usize,
    /// Goroutines that are to run on a certain P.
    pub(crate) mail: Mail<H>,
    /// Goroutines of other classes than `Normal`.
    pub(crate) classes: ClassQueues<H>,
}

/// The further state of a queue from which goroutines are drawn.
struct Lots<H: Host> {
    dice: Dice,
    /// The next lot: goroutines that have yielded since the present lot began, and those that came after them.
    later: GQueue<H, KEPT>,
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

    /// Returns a number below `count`.
    fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.next()) * count as u128) >> 64) as usize
    }
}

impl<H: Host> GlobalQueue<H> {
    /// Returns an empty queue for the policy. `arrivals_go_first`: there is a clock for the turns of arrivals.
    pub(crate) fn new(policy: Policy, arrivals_go_first: bool) -> Self {
        let lots = policy.seed().map(|seed| Lots { dice: Dice::new(seed), later: GQueue::new() });
        GlobalQueue {
            queue: GQueue::new(),
            lots,
            arrivals: GQueue::new(),
            arrivals_are_apart: arrivals_go_first && !policy.has_one_queue(),
            others: 1,
            mail: Mail::new(),
            classes: ClassQueues::new(),
        }
    }

    /// Returns `true` if there is no goroutine: neither for all Ps, nor in a mailbox, nor of any class.
    pub(crate) fn is_empty(&self) -> bool {
        mutant!(MailUncounted: return self.len() == 0);
        self.has_no_normal() && self.classes.is_empty()
    }

    /// As `is_empty`, without the other classes.
    pub(crate) fn has_no_normal(&self) -> bool {
        self.num_of(true.unless(ArrivalsUnseen)) == 0 && self.mail.is_empty()
    }

    /// Returns how many goroutines there are, without the other classes.
    pub(crate) fn num_normal(&self) -> usize {
        self.num_of(true) + self.mail.len()
    }

    /// Returns how many goroutines any P may run; counts the arrivals only if `arrivals_too`.
    pub(crate) fn num_of(&self, arrivals_too: bool) -> usize {
        self.len() + if arrivals_too { self.arrivals.len() } else { 0 }
    }

    /// Returns how many goroutines any P may run, without the arrivals.
    pub(crate) fn len(&self) -> usize {
        self.queue.len() + self.lots.as_ref().map_or(0, |lots| lots.later.len())
    }

    /// Appends a G that stands in no queue: to the queue of its class, or the mailbox that its hint names.
    #[inline]
    pub(crate) fn push(&mut self, g: GRef<H>) {
        self.push_to(g, false);
    }

    /// As `push`; to the end of the arrivals if `arrives` is `true` and the arrivals have a queue of their own.
    #[inline(always)]
    fn push_to(&mut self, g: GRef<H>, arrives: bool) {
        if self.classes.are_in_use().unless(PushForgetsTheClass) && self.classes.push(g) {
            return;
        }
        if self.mail.heeds_hints() && self.mail.put_by_hint(g) {
            return;
        }
        let end = if arrives && self.arrivals_are_apart { &mut self.arrivals } else { self.end() };
        end.push(g);
    }

    /// Returns the queue into which the next G goes.
    #[inline]
    fn end(&mut self) -> &mut GQueue<H, KEPT> {
        match &mut self.lots {
            Some(lots) if !lots.later.is_empty() => &mut lots.later,
            _ => &mut self.queue,
        }
    }

    /// Appends a G that lets all others go first: to the end of the queue, or to the next lot.
    pub(crate) fn push_yielded(&mut self, g: GRef<H>) {
        self.lots.as_mut().map_or(&mut self.queue, |lots| &mut lots.later).push(g);
    }

    /// Appends all Gs of a list.
    pub(crate) fn append(&mut self, list: &mut GList<H>) {
        while let Some(g) = list.pop() {
            self.push(g);
        }
    }

    /// As `append`, for a list of Gs that were readied from outside of all Ps.
    pub(crate) fn append_arrivals(&mut self, list: &mut GList<H>) {
        while let Some(g) = list.pop() {
            self.push_to(g, true);
        }
    }

    /// Appends Gs that no longer stand in a queue.
    pub(crate) fn extend(&mut self, gs: impl Iterator<Item = GRef<H>>) {
        self.end().extend(gs);
    }

    /// Keeps the Gs for which `stays` returns `true`. Asks in the order of the queue.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(GRef<H>) -> bool) {
        let later = self.lots.as_mut().map(|lots| &mut lots.later);
        for queue in [&mut self.queue, &mut self.arrivals].into_iter().chain(later) {
            queue.retain(&mut stays);
        }
        self.classes.retain(stays);
    }

    /// Moves the `count` goroutines that have waited longest to the ring of the caller's P, which has room for them.
    pub(crate) fn move_to(&mut self, ring: &Runq<H>, count: usize) {
        self.queue.move_to(ring, count);
    }

    /// Takes a G from the mailbox of P number `p`, if the P's owner is to run that before the Gs that any P may run.
    /// `arrivals_too`: these include the arrivals.
    #[inline]
    pub(crate) fn mailed_to(&mut self, p: u32, arrivals_too: bool) -> Option<GRef<H>> {
        if self.mail.is_empty() {
            return None;
        }
        let others_wait = self.num_of(arrivals_too) > 0;
        self.mail.take_in_turn(p, others_wait)
    }

    /// Moves the Gs in the mailboxes of the Ps from number `p` on to the end of the queue. From now on hints that name such a P
    /// have no effect.
    pub(crate) fn forward_mail(&mut self, p: u32) {
        unless!(HintsOutliveTheirPs, self.mail.resize(p));
        for g in self.mail.take_beyond(p) {
            self.push(g);
        }
    }

    /// Takes the oldest G that any P may run; an arrival only if `arrivals_too`. If both arrivals and others wait, one of the
    /// others goes before each arrival, and one more for each [`MANY`] of the others that wait.
    #[inline]
    pub(crate) fn pop_of(&mut self, arrivals_too: bool) -> Option<GRef<H>> {
        if arrivals_too && self.is_arrivals_turn() {
            return self.pop_arrival();
        }
        if self.lots.is_some() { self.draw() } else { self.queue.pop() }
    }

    #[inline]
    fn is_arrivals_turn(&mut self) -> bool {
        if self.arrivals.is_empty() {
            return false;
        }
        // A queue with separate arrivals has no lots. If arrivals and others simply alternated, and each arrival spawned
        // several goroutines, the queue of the others would grow without end.
        let is_theirs = self.queue.is_empty() || self.others > self.queue.len() / MANY;
        self.others = if is_theirs { 0 } else { self.others + 1 };
        is_theirs
    }

    /// Takes the arrival that has waited longest.
    #[inline]
    pub(crate) fn pop_arrival(&mut self) -> Option<GRef<H>> {
        self.arrivals.pop()
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
        self.queue.swap_remove(lots.dice.below(self.queue.len()))
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
