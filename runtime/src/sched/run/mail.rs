//! Mailboxes: goroutines that are to run on a certain P, because their data lies in the cache of the core under it.
//!
//! *The problem.* A spawner names a P ([`Affinity`](crate::Affinity)), whose owner is to run the goroutine before the owner
//! looks for work elsewhere. But the owner might be busy for long, or the P might be idle; then other Ms have to run the
//! goroutine, and no M may sleep while the goroutine waits.
//!
//! *The obvious way*, oneTBB's, puts the goroutine into two queues, the spawner's own and the mailbox. The two takers compete
//! for a claim, and the loser finds an empty proxy. That costs a word in each goroutine, a look by each owner, and one more
//! queue to check wherever an M looks for the last time before it sleeps.
//!
//! *Here* a goroutine stands in the mailbox alone, and the mailboxes are a part of the global queue: under that queue's lock,
//! counted by that queue's `is_empty`, and in the word that an M reads anyway before it takes that lock. So a program without
//! hints pays nothing, and each proof about the global queue covers the mailboxes: an M that goes idle looks there in the
//! critical section of I1 (`spin.rs`), the monitor retakes Ps for goroutines that stand there, and the judge of a deadlock
//! counts them.
//!
//! | taker | of which mail | when |
//! | --- | --- | --- |
//! | an owner | its own, the oldest | its ring is empty, or at a visit; before the rest of the global queue; but after [`IN_A_ROW`] mailed goroutines, one of that rest |
//! | a summoned M | | it takes an idle P that has mail, if there is one |
//! | an M that has found nothing in its queue, in the global queue, and in the rings of others | of the next P in number | after a moment in which the owner can come ([`ROUNDS`]) |
//! | `set_procs`, for a P that is surplus from then on | all of it goes to the end of the global queue | in the section that changes the number |
//! | a thread that finds no M for an idle P, at `max_threads` or after a refused thread | of all idle Ps, as `set_procs` does | in the section that has looked for an M |
//! | the ender | all | when it takes the queued goroutines |
//!
//! *A thief waits a moment first.* The owner of a mailbox might be about to look: it is being woken, or is finishing a
//! goroutine. A few microseconds of waiting can save moving the data to another core. A P whose owner does not come loses its
//! mail, one goroutine at a time.
//!
//! *A hint for a goroutine that lives* ([`JoinHandle::set_affinity`](crate::JoinHandle::set_affinity)) is in the G
//! (`g/class.rs`), and counts wherever the goroutine is queued. On the P that the hint names the goroutine is queued as any
//! other. On any other P, or on a thread without a P, `detours` send the goroutine into the global queue, like a goroutine of a
//! class; `classes.rs` argues why no wake-up is lost there. `GlobalQueue::push` puts the goroutine into the mailbox. So the
//! goroutine is in one queue only, and the M that takes it out of there, under the lock, has it alone. An M might mail a
//! goroutine that has just yielded there, or that this M has found in the poller. Then the M wakes another M instead of running
//! the goroutine itself: the named P is to have the first chance.
//!
//! Invariants: only Ps in use, those with a number below `Central::procs`, have mail: the section that makes a P surplus moves
//! its mail, and from then on hints that name the P are ignored (`hinted`). A goroutine that is bound to an M
//! (`threads/locked.rs`) is not mailed: `rescue` would have to look for it in one more place.
//!
//! Checked by `models/mail.rs`. The tests below check the order.

use crate::g::GRef;
use crate::host::Host;
use crate::p::P;
use crate::prim::hooks::*;
use crate::prim::{Relaxed, capacity, event, pause};
use crate::sched::lasting::PRef;
use crate::sched::run::classes::BY_HINT;
use crate::sched::run::gqueue::GQueue;
use crate::sched::{Central, Sched};

/// After this many mailed goroutines an owner takes one that any P may run: otherwise a goroutine that mails others to its own
/// P, each of which does the same, would keep the rest of the global queue waiting for ever.
const IN_A_ROW: u32 = 4;
/// An empty mailbox keeps memory for at most this many goroutines.
const KEPT: usize = 1 << 12;
/// How many goroutines of the mail `take_this` looks through, under the lock: as many as a ring has.
const LOOKED_THROUGH: usize = capacity::RUNQ as usize;
/// How often a thief looks whether another M has taken the mail, before it takes some.
const ROUNDS: usize = capacity::MAIL_ROUNDS;

/// The mail of all Ps. Under the central lock, in the global queue.
pub(crate) struct Mail<H: Host> {
    /// By the number of the P; as many as were needed so far.
    boxes: Vec<Mailbox<H>>,
    len: usize,
    /// Only hints that name a P with a number below this are heeded. Zero before the first hint is given, and under a policy
    /// with one queue.
    hinted: u32,
}

struct Mailbox<H: Host> {
    gs: GQueue<H, KEPT>,
    /// How many mailed goroutines the owner has taken since it took one that any P may run.
    row: u32,
}

impl<H: Host> Mail<H> {
    pub(crate) fn new() -> Self {
        Mail { boxes: Vec::new(), len: 0, hinted: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns `true` if there is mail for P number `p`.
    pub(crate) fn is_for(&self, p: u32) -> bool {
        self.boxes.get(p as usize).is_some_and(|of_p| !of_p.gs.is_empty())
    }

    #[inline]
    pub(crate) fn heeds_hints(&self) -> bool {
        self.hinted != 0
    }

    /// From now on heeds hints that name one of the first `ps` Ps. Called before a goroutine is first given a hint.
    fn heed_hints(&mut self, ps: u32) {
        self.hinted = ps;
    }

    /// Notes that there are `ps` Ps from now on.
    pub(crate) fn resize(&mut self, ps: u32) {
        if self.heeds_hints() {
            self.hinted = ps;
        }
    }

    /// Appends a G that stands in no queue to the mailbox that its hint names. Returns `false` if there is no such mailbox.
    #[cold]
    pub(crate) fn put_by_hint(&mut self, g: GRef<H>) -> bool {
        let Some(p) = g.hint().filter(|&p| p < self.hinted && !g.ties.is_bound()) else { return false };
        self.put(p, g);
        true
    }

    /// Appends a G that stands in no queue.
    pub(crate) fn put(&mut self, p: u32, g: GRef<H>) {
        let p = p as usize;
        if self.boxes.len() <= p {
            self.boxes.resize_with(p + 1, || Mailbox { gs: GQueue::new(), row: 0 });
        }
        self.boxes[p].gs.push(g);
        self.len += 1;
    }

    /// Takes the oldest goroutine for P number `p`, for its owner. Returns `None` if there is none. Also returns `None` after
    /// [`IN_A_ROW`] mailed goroutines if goroutines that any P may run wait: then one of those goes first.
    pub(crate) fn take_in_turn(&mut self, p: u32, others_wait: bool) -> Option<GRef<H>> {
        let of_p = self.boxes.get_mut(p as usize)?;
        if others_wait && of_p.row >= IN_A_ROW {
            of_p.row = 0;
            return None;
        }
        let g = self.take(p as usize)?;
        let row = &mut self.boxes[p as usize].row;
        *row = (*row + 1).min(IN_A_ROW);
        Some(g)
    }

    /// Takes the oldest goroutine for P number `p`, or, if there is none, for the next P that has mail.
    fn take_from(&mut self, p: u32) -> Option<GRef<H>> {
        let count = self.boxes.len();
        (0..count).find_map(|step| self.take((p as usize + step) % count))
    }

    fn take(&mut self, p: usize) -> Option<GRef<H>> {
        let g = self.boxes[p].gs.pop()?;
        self.len -= 1;
        Some(g)
    }

    /// Takes the goroutine for which `is_it` returns `true` out of the mail for P number `p`, if it stands among the first
    /// there.
    fn take_this(&mut self, p: u32, is_it: impl Fn(GRef<H>) -> bool) -> Option<GRef<H>> {
        let g = self.boxes.get_mut(p as usize)?.gs.take_this(LOOKED_THROUGH, is_it)?;
        self.len -= 1;
        Some(g)
    }

    /// Takes all mail for P number `p`.
    fn take_all(&mut self, p: u32) -> GQueue<H, KEPT> {
        let gone = self.boxes.get_mut(p as usize).map_or_else(GQueue::new, |of_p| of_p.gs.take_all());
        self.len -= gone.len();
        gone
    }

    /// Takes all mail for the Ps from number `p` on, in the order of their numbers.
    pub(crate) fn take_beyond(&mut self, p: u32) -> Vec<GRef<H>> {
        let first = (p as usize).min(self.boxes.len());
        let gone: Vec<_> = self.boxes.drain(first..).flat_map(|mailbox| mailbox.gs).collect();
        self.len -= gone.len();
        gone
    }
}

impl<H: Host> Sched<H> {
    /// Heeds the hints of live goroutines from now on. Any thread calls this before it first gives a goroutine a hint.
    pub(crate) fn use_hints(&self) {
        if self.detours.get() & BY_HINT != 0 || self.config.policy.has_one_queue() {
            return;
        }
        let mut central = self.central.lock();
        // At the end of the runtime no goroutine is mailed any more.
        if !self.is_stopping() {
            let procs = central.procs;
            central.globq.mail.heed_hints(procs);
            self.begin_detours(BY_HINT);
        }
    }

    /// Returns `true` if `g` has a hint that names a P in use other than `p`. For a caller that alone has `g`, and has found
    /// `detours`.
    pub(crate) fn is_away(&self, p: Option<&P<H>>, g: GRef<H>) -> bool {
        // Relaxed: a hint. The mailbox is chosen under the lock.
        let in_use = |hint: u32| hint < self.wanted.load(Relaxed) && p.is_none_or(|p| p.id != hint);
        self.detours.get() & BY_HINT != 0 && g.hint().is_some_and(in_use) && !g.ties.is_bound()
    }

    /// For the owner of `p`, which has found nothing in any ring: takes the oldest of a mailbox.
    #[cold]
    #[inline(never)]
    pub(crate) fn steal_mail(&self, p: &P<H>) -> Option<GRef<H>> {
        for () in std::iter::repeat_n((), ROUNDS) {
            if !self.globq_len.has_mail() || self.globq_len.for_all() > 0 || self.globq_len.has_arrivals() {
                return None;
            }
            pause();
        }
        if !self.globq_len.has_mail() {
            return None;
        }
        mutant!(MailNeverStolen: return None);
        p.owner.touch();
        let mut central = self.central.lock();
        let found = central.globq.mail.take_from(p.id);
        self.publish_len(&central);
        if let Some(g) = found {
            event(format_args!("takes {g:?} out of a mailbox"));
        }
        found
    }

    /// Takes an idle P that has mail; else the wanted P, if that is idle, or any other idle P.
    pub(crate) fn addressee_or(&self, central: &mut Central<H>, wanted: Option<PRef<H>>) -> Option<PRef<H>> {
        let wanted =
            if central.globq.mail.is_empty() { wanted } else { self.idle_addressee(central).or(wanted) };
        self.pidleget_or(central, wanted)
    }

    /// Returns an idle P that has mail.
    #[cold]
    fn idle_addressee(&self, central: &Central<H>) -> Option<PRef<H>> {
        central.idle.ps().copied().find(|p| central.globq.mail.is_for(p.id))
    }

    /// Moves the mail of all idle Ps to the end of the global queue, because there is no M for an idle P. Otherwise the mail
    /// would wait for an M that has nothing else to do, beside goroutines that are always ready.
    pub(crate) fn forward_mail_of_the_idle(&self, central: &mut Central<H>) {
        if central.globq.mail.is_empty() {
            return;
        }
        let idle: Vec<u32> = central.idle.ps().map(|p| p.id).collect();
        for p in idle {
            let all = central.globq.mail.take_all(p);
            central.globq.extend(all.into_iter());
        }
        self.publish_len(central);
    }

    /// For the owner of `p`: takes the goroutine for which `is_it` returns `true` out of its mailbox.
    pub(crate) fn take_mailed(&self, p: &P<H>, is_it: impl Fn(GRef<H>) -> bool) -> Option<GRef<H>> {
        if !self.globq_len.has_mail() {
            return None;
        }
        let mut central = self.central.lock();
        let found = central.globq.mail.take_this(p.id, is_it);
        self.publish_len(&central);
        found
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;
    use crate::g::G;
    use crate::host::Active;

    fn numbers(of: &[G<Active>], gs: impl IntoIterator<Item = GRef<Active>>) -> Vec<usize> {
        let number = |g: GRef<Active>| of.iter().position(|it| GRef::new(it) == g).expect("one of these");
        gs.into_iter().map(number).collect()
    }

    /// Fails when goroutines are taken in another order than that of the mail, when a thief takes the newest, or when the count
    /// is not that of the boxes.
    #[test]
    fn the_oldest_goes_first_to_its_owner_and_to_a_thief() {
        let gs: [G<Active>; 6] = std::array::from_fn(|_| G::new());
        let mut mail = Mail::new();
        for (p, g) in [0, 2, 0, 2, 5, 0].into_iter().zip(&gs) {
            mail.put(p, GRef::new(g));
        }
        assert!(mail.is_for(0) && !mail.is_for(1) && mail.is_for(5) && !mail.is_for(6));
        let own = std::array::from_fn::<_, 2, _>(|_| mail.take_in_turn(0, false).expect("there are three"));
        assert_eq!(numbers(&gs, own), [0, 2]);
        let stolen = std::array::from_fn::<_, 2, _>(|_| mail.take_from(1).expect("there are two for P2"));
        assert_eq!(numbers(&gs, stolen), [1, 3]);
        assert!(mail.take_this(0, |g| g == GRef::new(&gs[4])).is_none(), "it is for another P");
        assert_eq!(numbers(&gs, mail.take_this(5, |g| g == GRef::new(&gs[4]))), [4]);
        assert_eq!((numbers(&gs, mail.take_from(7)), mail.len()), (vec![5], 0));
        assert!(mail.take_from(0).is_none() && mail.take_in_turn(9, false).is_none());
    }

    /// Fails when the look for one goroutine, which is under the lock, is as long as the mail.
    #[test]
    fn a_goroutine_is_looked_for_among_the_first() {
        let gs = Vec::from_iter((0..=LOOKED_THROUGH).map(|_| G::<Active>::new()));
        let mut mail = Mail::new();
        gs.iter().for_each(|g| mail.put(0, GRef::new(g)));
        let mut take = |at: usize| mail.take_this(0, |g| g == GRef::new(&gs[at])).is_some();
        assert_eq!([LOOKED_THROUGH, LOOKED_THROUGH - 1, LOOKED_THROUGH].map(&mut take), [false, true, true]);
    }

    /// Fails when a mailbox keeps the memory of its longest mail.
    #[test]
    fn an_empty_mailbox_keeps_little() {
        let g = G::<Active>::new();
        let mut mail = Mail::new();
        (0..2 * KEPT).for_each(|_| mail.put(0, GRef::new(&g)));
        assert!((0..2 * KEPT).all(|_| mail.take(0).is_some()));
        assert!(mail.is_empty() && mail.boxes[0].gs.capacity() <= KEPT);
    }

    #[test]
    fn mail_for_ps_that_go_out_of_use_comes_out_in_order() {
        let gs: [G<Active>; 4] = std::array::from_fn(|_| G::new());
        let mut mail = Mail::new();
        for (p, g) in [3, 1, 3, 0].into_iter().zip(&gs) {
            mail.put(p, GRef::new(g));
        }
        assert_eq!((numbers(&gs, mail.take_beyond(1)), mail.len()), (vec![1, 0, 2], 1));
        assert!(mail.take_beyond(4).is_empty());
        assert_eq!((numbers(&gs, mail.take_beyond(0)), mail.len()), (vec![3], 0));
    }

    /// Fails when goroutines that mail others to their own P leave no turn to goroutines that any P may run.
    #[test]
    fn now_and_then_a_goroutine_for_all_ps_goes_first() {
        let gs: [G<Active>; 12] = std::array::from_fn(|_| G::new());
        let mut mail = Mail::new();
        gs.iter().for_each(|g| mail.put(0, GRef::new(g)));
        let mut turns =
            |others| -> Vec<_> { (0..6).map(|_| mail.take_in_turn(0, others).is_some()).collect() };
        assert_eq!(turns(true), [true, true, true, true, false, true]);
        assert_eq!(turns(false), [true; 6], "nobody else waits");
    }
}
