//! Goroutines that move between the global queue and a P's ring.
//!
//! The lock protects the queue; its length is read without the lock, as a hint. Goroutines move from the global queue to a
//! ring, and an M that looks at the ring before such a move, and at the queue afterwards, sees them in neither: so an M that is
//! about to sleep first looks at the queue itself, under the lock (I1), and at the rings after that (I3).
//!
//! Goroutines move the other way when a ring is full (`spill`) and when a round ends. An M can look at the global queue before
//! such a move, and at the ring after it, when the goroutines that stayed in the ring have been taken out. That M sees the
//! moved goroutines in neither. The mover moves them under the lock. If I1 of that M comes after the move, I1 sees them. If I1
//! comes before the move, the census shows the mover an idle P, and S3 wakes an M. So S2 and S3 follow each such move, even if
//! no goroutine was submitted, because one only yields or goes from `runnext` to the end of the ring (`spill_and_wake`).
//!
//! Checked by `models/submit_vs_idle.rs` and `models/visits.rs`.

use crate::g::GRef;
use crate::g::list::GList;
use crate::host::Host;
use crate::p::P;
use crate::prim::event;
use crate::prim::hooks::*;
use crate::runtime::policy::Overflow;
use crate::sched::run::round::{Exchange, Take};
use crate::sched::{Central, Sched};

impl<H: Host> Sched<H> {
    /// S1 of a submission: puts `list` at the end of the global queue. The caller wakes an M.
    #[inline]
    #[doc(alias = "globrunqputbatch")]
    pub(crate) fn globrunqput(&self, list: GList<H>) {
        if !list.is_empty() {
            self.put_global(list);
        }
    }

    #[cold]
    fn put_global(&self, mut list: GList<H>) {
        let mut central = self.central.lock();
        event(format_args!("queues {list:?} globally"));
        central.globq.append(&mut list);
        self.publish_len(&central);
    }

    /// S1 of a submission: puts `list`, readied from outside of all Ps, at the end of the arrivals. The caller wakes an M.
    #[cold]
    pub(crate) fn put_arrivals(&self, mut list: GList<H>) {
        let mut central = self.central.lock();
        event(format_args!("queues {list:?} globally, as arrivals"));
        central.globq.append_arrivals(&mut list);
        self.publish_len(&central);
    }

    /// By the owner of `p`, for a `g` that found the ring full: moves half of the ring, and `g`, to the global queue; with
    /// `overflow=one` only `g`. In that case the present round goes on unchanged, and `g`, the youngest, is behind those that
    /// the round still has to exchange. Under a policy without rings `g` goes to the place of a goroutine that yields. The
    /// caller does S2 and S3.
    #[cold]
    #[inline(never)]
    pub(crate) fn spill(&self, p: &P<H>, g: GRef<H>) {
        self.spill_here(p, g);
    }

    /// As `spill`, compiled into each of its two callers, because under a policy with one queue each yield comes here.
    #[inline(always)]
    fn spill_here(&self, p: &P<H>, g: GRef<H>) {
        let mut central = self.central.lock();
        event(format_args!("queues {g:?} globally, and what {p:?} can't hold"));
        let policy = self.config.policy;
        if policy.has_one_queue() {
            central.globq.push_yielded(g);
        } else {
            let tail = p.runq.ends().1;
            let (round, out) = (&p.poll_schedule.round, |g| central.globq.push(g));
            if policy.stealing().overflow == Overflow::PutOne {
                central.globq.push(g);
            } else if !round.is_on() {
                p.runq.spill(g, out);
            } else if let Some(head) = p.runq.spill_newer(g, out) {
                round.keep_older_half(head);
            } else {
                round.take_in(p.runq.ends().1);
            }
            p.poll_schedule.arrivals.note_queued(p.runq.ends().1.wrapping_sub(tail), 1);
        }
        mutant!(SpillKeepsTheLength: return);
        self.publish_len(&central);
    }

    /// As `spill`, with S2 and S3, for a caller that has submitted no goroutine. Under a policy with one queue `g` only goes to
    /// the end of that queue, under the lock, where an M that gives up looks; so no M is woken.
    #[cold]
    #[inline(never)]
    pub(crate) fn spill_and_wake(&self, p: &P<H>, g: GRef<H>) {
        self.spill_here(p, g);
        mutant!(SpillWakesNobody: return);
        if !self.config.policy.has_one_queue() {
            self.wakep();
        }
    }

    /// By the owner of `p`: ends a round, see `round.rs`.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_round(&self, p: &P<H>) {
        p.owner.touch();
        let mut central = self.central.lock();
        let (ring, global) = (p.runq.len() as usize, central.globq.len());
        let take = self.take(global, &central);
        let moved = p.poll_schedule.round.exchange((ring, global), take, |Exchange { gives_all, takes }| {
            if gives_all {
                // With a thief in the ring the next look tries again.
                let Some(all) = p.runq.take_all() else { return false };
                central.globq.extend(all);
            }
            let takes = takes.min(p.runq.room() as usize);
            central.globq.move_to(&p.runq, takes);
            p.poll_schedule.arrivals.note_queued(takes as u32, 0);
            event(format_args!("ends a round of {p:?}: {gives_all}, takes {takes}"));
            true
        });
        if !moved {
            return;
        }
        p.poll_schedule.round.take_in(p.runq.ends().1);
        self.publish_len(&central);
        drop(central);
        // S2 and S3 for the goroutines that have moved: an M that gives up might have looked at the global queue before they
        // came there, and at the ring after they had left it, and found both empty.
        mutant!(RoundWakesNobody: return);
        self.wakep();
    }

    pub(crate) fn publish_len(&self, central: &Central<H>) {
        self.globq_len.publish(&central.globq);
        if central.globq.classes.are_in_use() {
            self.settle_attention(central);
        }
    }

    /// Takes the first goroutine of the mailbox of `p`, or of the global queue. Takes an arrival only if `arrivals_too`.
    #[doc(alias = "globrunqget")]
    pub(crate) fn globrunqget_one(&self, p: &P<H>, arrivals_too: bool) -> Option<GRef<H>> {
        if self.globq_len.is_zero() {
            return None;
        }
        p.owner.touch();
        let mut central = self.central.lock();
        let mailed = central.globq.mailed_to(p.id, arrivals_too);
        let first = mailed.or_else(|| central.globq.pop_of(arrivals_too));
        self.publish_len(&central);
        first
    }

    /// For the owner of `p`: takes the first of the arrivals.
    pub(crate) fn take_arrival(&self, p: &P<H>) -> Option<GRef<H>> {
        if !self.globq_len.has_arrivals() {
            return None;
        }
        p.owner.touch();
        let mut central = self.central.lock();
        let first = central.globq.pop_arrival();
        self.publish_len(&central);
        first
    }

    /// Takes the first goroutine of the mailbox of `p`. If there is none, takes the first of the global queue, an arrival only
    /// if `arrivals_too`, and puts the rest of the share of `p` into the queue of `p`; no arrival goes into a ring that is not
    /// empty. An M that has just acquired `p` gets only the first: that goroutine might block at once, and leave the others
    /// behind (`sched/threads/blocking.rs`).
    #[doc(alias = "globrunqgetbatch")]
    pub(crate) fn globrunqget(&self, p: &P<H>, arrivals_too: bool) -> Option<GRef<H>> {
        if self.globq_len.is_zero() {
            return None;
        }
        p.owner.touch();
        let mut central = self.central.lock();
        if let Some(mailed) = central.globq.mailed_to(p.id, arrivals_too) {
            self.publish_len(&central);
            return Some(mailed);
        }
        // Only one goroutine of the global queue at a time goes before the mail.
        let alone = p.take_fresh() || central.globq.mail.is_for(p.id);
        let ends = p.runq.ends();
        let of = central.globq.num_of(arrivals_too && ends.0 == ends.1);
        let share = if alone { 1 } else { self.take(of, &central).share };
        let first = central.globq.pop_of(arrivals_too);
        if share > 1 {
            self.fill_from_global(p, &mut central, share - 1);
        }
        p.poll_schedule.round.take_in(p.runq.ends().1);
        self.publish_len(&central);
        first
    }

    /// Puts `most` goroutines into the ring of `p`, or as many as there are. Arrivals go only into an empty ring, which then is
    /// a ring of arrivals.
    fn fill_from_global(&self, p: &P<H>, central: &mut Central<H>, mut most: usize) {
        let ends = p.runq.ends();
        let arrivals_too = ends.0 == ends.1;
        p.runq.push_from(|| {
            most = most.checked_sub(1)?;
            central.globq.pop_of(arrivals_too)
        });
        let (arrivals, filled) = (&p.poll_schedule.arrivals, p.runq.ends().1);
        if arrivals_too {
            arrivals.fill(ends, filled);
        } else {
            arrivals.note_queued(filled.wrapping_sub(ends.1), 0);
        }
    }

    /// Returns how many of `of` goroutines a P takes out of the global queue, at least one.
    fn take(&self, of: usize, central: &Central<H>) -> Take {
        Take::of(of, central.procs as usize, self.config.policy.stealing().global)
    }
}
