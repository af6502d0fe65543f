//! Goroutines that are bound to a thread.
//!
//! A goroutine is *bound* to an M while it has locked itself to its thread (`lock_os_thread`), while it unwinds (std counts
//! panics per thread), and, as main of `run_locked`, from its beginning to its end. Under `migrate=1` all other goroutines
//! *wander*: no M runs the same goroutine twice in a row, if another M is available.
//!
//! | `Tied` | which M runs the goroutine | the goroutine enters that state when |
//! | --- | --- | --- |
//! | Free | any M | it begins; or it leaves the M and has no reason left to be bound |
//! | Wanders | any M but the last one, if there is another | as Free, under `migrate=1` |
//! | Bound, to m | m | it locks itself (`Seldom::Tie`), or suspends itself on m while the thread panics |
//! | Attached, by m | m | it is main of `run_locked` |
//!
//! An M to which a goroutine is bound *attends* to that goroutine: the M runs no other. When the goroutine has left the M, the
//! M gives its P away, and waits for a finder: the M that takes the goroutine out of a queue and brings a P.
//!
//! ```text
//!   attending m                                   finder, an M with a P
//!     A1 saved, and published: parked, queued       F1 takes g out of a queue, and wins `run`
//!     A2 lock: assigned already?  take it            F2 lock: releases its P, assigns it to m
//!              else, it waits: `bound_ms`           F3 m in `bound_ms`?  take it out, and wake it
//!     A3 the P it had: `handoffp`                   F4 stands by, in the same lock, or takes an idle P (`mput`)
//!     A4 sleeps, takes the assignment, resumes g
//! ```
//! F1 can come as soon as A1 is done, so m might find an assignment while m still has a P. A2 and F2 are under the scheduler's
//! lock: so either F3 finds m waiting and wakes m, once, or A2 finds the assignment. The assignment also tells m that the
//! finder has won `run` for g: g is Running, in no queue, and m's alone.
//!
//! * *No goroutine is lost*: it is in a queue or a wait until F1, and m's from F2 on.
//! * *No P is lost*: F2 moves the P from one M to the other, and A3 gives a P away like any other.
//! * *No wake-up is lost*: the finder's P stays held, now by m, which looks at all queues when it gives the P up, in A3.
//!
//! **The end of the runtime** takes the Ms out of `bound_ms` under the lock and wakes them without an assignment, and they
//! leave. A finder that comes after that, at F2 under the same lock, finds the flag, and sets the goroutine aside.
//!
//! **At `max_threads`** there might be no M that could be the finder: all attend, or block. So a waker that finds no M for a P
//! (`startm`, `newm`) looks in the global queue for a goroutine whose M waits in `bound_ms`, and assigns the P to that M
//! (`rescue`). The P is idle again by then. A2 comes before A3, so `rescue` also finds an M that has just given the last P
//! away. The finder might have been the only M that could take an idle P, so it looks at the rings after F4 (`sleep_unless`).
//!
//! When a locked goroutine ends, its thread ends, too (`mexit`): no other goroutine is to see the changes that were made to
//! that thread.
//!
//! Invariants:
//! 1. The ties of a goroutine are written by the goroutine, or by the M that it has just left, before that M publishes it. An M
//!    that has won `run` can read them.
//! 2. An M in `bound_ms`, where its goroutine stands beside it, has no assignment and holds no P but the one for A3; the M is
//!    in no other list.
//!
//! Checked by `models/locked.rs`.

use crate::g::GRef;
use crate::host::{Host, Stack};
use crate::m::{Assignment, M};
use crate::prim::hooks::*;
use crate::prim::{assert_none_held, event};
use crate::sched::park::{Said, Seldom, Yield};
use crate::sched::run::look::First;
use crate::sched::run::wake::Wake;
use crate::sched::switch;
use crate::sched::{Central, Sched};
use crate::wait::interrupt::OnInterrupt;
use crate::wait::status::Run;
use std::cell::Cell;

/// Which Ms can run a goroutine.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Tied {
    /// Any M.
    Free,
    /// Any M but the last.
    Wanders,
    /// This M.
    Bound,
    /// This M, to the end: the goroutine is main of `run_locked`, on a thread of the program.
    Attached,
}

/// The ties of a goroutine to Ms. Bytes, because a G has no room for more; only the first byte is read often.
pub(crate) struct Ties {
    tied: Cell<Tied>,
    /// The number of the M to which the goroutine is bound, or of the M that is not to run it again.
    m: Cell<[u8; 4]>,
    /// How often the goroutine has locked itself to a thread, less the unlocks.
    locks: Cell<[u8; 2]>,
}

/// A number that no M has.
const NO_M: u32 = u32::MAX;

impl Ties {
    pub(crate) fn new() -> Self {
        Ties { tied: Cell::new(Tied::Free), m: Cell::new(NO_M.to_ne_bytes()), locks: Cell::new([0; 2]) }
    }

    /// For a goroutine that begins.
    pub(crate) fn begin(&self, wanders: bool) {
        self.set_locks(0);
        self.loosen(wanders, NO_M);
    }

    /// Before the first run: binds the goroutine to the M with this number, on a thread that is not the runtime's, until the
    /// goroutine ends.
    pub(crate) fn attach(&self, m: u32) {
        self.set(Tied::Attached, m);
    }

    /// Returns `true` if only some Ms may run the goroutine.
    #[inline(always)]
    pub(crate) fn are_some(&self) -> bool {
        self.tied.get() != Tied::Free
    }

    fn set(&self, tied: Tied, m: u32) {
        self.tied.set(tied);
        self.m.set(m.to_ne_bytes());
    }

    fn m(&self) -> u32 {
        u32::from_ne_bytes(self.m.get())
    }

    /// Returns `true` if only one M may run the goroutine. Like `are_some`, this is for an M that alone has the goroutine.
    pub(crate) fn is_bound(&self) -> bool {
        matches!(self.tied.get(), Tied::Bound | Tied::Attached)
    }

    fn bind(&self, m: u32) {
        if self.tied.get() != Tied::Attached {
            self.set(Tied::Bound, m);
        }
    }

    fn loosen(&self, wanders: bool, last: u32) {
        self.set(if wanders { Tied::Wanders } else { Tied::Free }, last);
    }

    fn locks(&self) -> u16 {
        u16::from_ne_bytes(self.locks.get())
    }

    fn set_locks(&self, locks: u16) {
        self.locks.set(locks.to_ne_bytes());
    }

    /// Returns `true` if the goroutine is to stay bound, as far as that does not depend on the thread.
    fn stay(&self) -> bool {
        self.locks() > 0 || self.tied.get() == Tied::Attached
    }
}

/// Binds the calling goroutine to its thread, and counts that; does nothing on a plain thread.
pub(crate) fn lock_thread<H: Host>() {
    let Some(m) = M::<H>::current() else { return };
    let Some(g) = m.g() else { return };
    g.ties.set_locks(g.ties.locks().checked_add(1).expect("lock_os_thread: locked 65,536 times"));
    if !g.ties.is_bound() {
        switch::refuse_in_hook(m, "lock_os_thread");
        g.ties.bind(m.id);
        // SAFETY: this goroutine runs on `m`, which resumes the goroutine at once and touches no P.
        unsafe { m.suspend(Yield::Seldom(Seldom::Tie)) };
    }
}

/// Takes one `lock_thread` back, if there is one. The M finds out when the goroutine next leaves the M.
pub(crate) fn unlock_thread<H: Host>() {
    if let Some(g) = M::<H>::current().and_then(M::g) {
        g.ties.set_locks(g.ties.locks().saturating_sub(1));
    }
}

impl<H: Host> Sched<H> {
    /// Runs `g`, which belongs to `m`, until `g` gives the M back. Returns what `g` asks for.
    #[inline(always)]
    pub(crate) fn resume(&self, m: &M<H>, g: GRef<H>) -> Said {
        let said = g.stack.with_mut(|stack| {
            // SAFETY: `m` has won `run`, or a finder that has won `run` has brought the goroutine to `m`, and the goroutine was
            // not published since: `m` alone has the stack (wait/status.rs, invariant 2), until a new status is stored.
            let stack = unsafe { (*stack).as_ref() }.expect("resume: a running G has a stack");
            m.leave();
            assert_none_held();
            // SAFETY: `m` alone has the stack, until a new status is stored; `m`'s thread runs this function.
            Said::of(unsafe { stack.resume(&m.local, g.to_raw().cast()) })
        });
        // For loom, which dates an access at its beginning: the goroutine has used the stack until here.
        g.stack.with_mut(|_| ());
        said
    }

    /// Returns `true` if `m`, which has won `run`, may run `g`, which is bound or wanders; otherwise another M has `g` now.
    #[cold]
    #[inline(never)]
    pub(crate) fn may_run(&self, m: &M<H>, g: GRef<H>) -> bool {
        if g.ties.is_bound() {
            mutant!(BoundRunsAnywhere: return true);
            self.startlockedm(m, g);
            return false;
        }
        // An M without a P keeps the goroutine that it runs, a blocker.
        if g.ties.m() == m.id && m.p().is_some() && self.send_on(m, g) {
            return false;
        }
        g.ties.set(Tied::Wanders, m.id);
        true
    }

    /// F2 to F4: hands `g`, and the P of `m`, to the M to which `g` is bound. Then `m` takes an idle P, if other goroutines
    /// wait.
    fn startlockedm(&self, m: &M<H>, g: GRef<H>) {
        debug_assert!(g.ties.m() != m.id, "startlockedm: an M looks for no work while it attends");
        let mut central = self.central.lock();
        if self.is_stopping().unless(BoundBroughtAtTheEnd) {
            // The goroutine's M has left, or is about to.
            g.word.requeue();
            central.globq.push(g);
            self.publish_len(&central);
            drop(central);
            return self.set_queued_aside();
        }
        event(format_args!("brings {g:?} to its M"));
        let assignment = Assignment::P(m.release());
        let to = central.ms[g.ties.m() as usize];
        let sleeps = central.bound_ms.take(to);
        to.assign(assignment);
        mutant!(BoundNotWoken: let sleeps = false);
        mutant!(BringerSkipsGlobal: return self.stand_by_after_bringing(m, central, sleeps.then_some(&*to)));
        let p = self.mput(m, &mut central);
        drop(central);
        if sleeps {
            to.note.wake();
        }
        self.sleep_unless(m, p);
    }

    /// Under `migrate=1`: makes another M run `g`, with the P of `m`. Returns `false` if there is no other M.
    fn send_on(&self, m: &M<H>, g: GRef<H>) -> bool {
        let mut central = self.central.lock();
        let another = central.idle.has_m() || central.poller.blocked().is_some() || self.may_start(&central);
        if !another || self.is_stopping() {
            return false;
        }
        let p = m.p().expect("send_on: an M runs goroutines with a P");
        g.word.requeue();
        // Without a fence: either only the M that gets the P is woken, or `wakep` has the fence.
        let mut spilled = false;
        if let Some(g) = p.runq.push_next(g, || ()) {
            p.runq.spill(g, |g| central.globq.push(g));
            p.poll_schedule.arrivals.note_queued(0, 1);
            spilled = true;
        }
        self.publish_len(&central);
        let wake = self.startm(&mut central, Assignment::P(m.release()));
        // Before the other M is started: if that fails, a waker finds `m`, or `m` has taken an idle P, and looks. The global
        // queue might have goroutines for which a thread was refused.
        let wakes = spilled || central.start_claims;
        let idle_p = self.mput(m, &mut central);
        drop(central);
        self.start_woken(wake);
        // This `wakep` is also needed for a claim that `m` has taken over from an M that is being started (K1 of `newm.rs`),
        // because `m` does not look at the rings. No model has a mutant of this, or of the look in `mput`: no model runs under
        // `migrate=1`.
        if wakes {
            self.wakep();
        }
        match idle_p {
            Some(_) => self.sleep_unless(m, idle_p),
            // Without a look at the rings (`sleep_unless`), which would see `g`, and wake `m` for it each time. Goroutines in a
            // ring have another M, as `g` has; or, if the thread was refused, they wait for the next M that comes.
            None => self.sleep_on_note(m),
        }
        true
    }

    /// Binds `g` to `m`, which runs `g` and no other goroutine until `g` is no longer bound, has ended, or is left behind by
    /// the end of the runtime. `said` is what `g` has just asked for. Returns what `g` asks for when it is no longer bound.
    #[cold]
    #[inline(never)]
    pub(crate) fn attend(&self, m: &M<H>, g: GRef<H>, mut said: Yield) -> Option<Yield> {
        g.ties.bind(m.id);
        loop {
            let goes_on = match said {
                Yield::Park(number, hook) => {
                    if H::unwinds() {
                        // The end of the runtime does not end this wait.
                        g.interrupt_policy.set(OnInterrupt::Never, false);
                    }
                    self.park(g, number, hook)
                }
                Yield::ParkAgain(number) => self.park_again(g, number),
                // The goroutine to which `g` gives its turn runs on another M.
                Yield::Requeue | Yield::Seldom(Seldom::Turn(_)) => self.yield_bound(m, g),
                Yield::Return => self.exitsyscall(m, g),
                // A bound goroutine is no blocker; a goroutine that unwinds makes its call here.
                Yield::Seldom(Seldom::Tie | Seldom::Call) => true,
                Yield::Exit => {
                    self.goexit0(m, g);
                    m.ends.set(true);
                    mutant!(EndKeepsItsP: return None);
                    m.parting_p.set(Some(m.release()));
                    return None;
                }
            };
            if !goes_on && !self.stoplockedm(m, g) {
                return None;
            }
            // SAFETY: `g` has just suspended itself with this word, and stays suspended until `m` resumes it.
            said = unsafe { self.resume(m, g).read() };
            if !g.ties.stay() && !H::unwinds() {
                g.ties.loosen(self.config.knobs.migrate, m.id);
                return Some(said);
            }
        }
    }

    /// A2 to A4. Returns `false` if the runtime ends; then `g` is left behind.
    fn stoplockedm(&self, m: &M<H>, g: GRef<H>) -> bool {
        m.set_g(None);
        if !self.await_bound(m, g) {
            return false;
        }
        m.set_g(Some(g));
        true
    }

    /// Waits until a finder brings `m` the goroutine `g`, which is bound to `m`, with a P. Returns `false` if the runtime ends.
    pub(crate) fn await_bound(&self, m: &M<H>, g: GRef<H>) -> bool {
        let mut central = self.central.lock();
        let brought = m.is_assigned().unless(BoundOverlooksAssignment);
        if !brought {
            if self.is_stopping().unless(BoundIgnoresTheEnd) {
                return false;
            }
            central.bound_ms.enter(m, g);
        }
        event(format_args!("waits for its goroutine: {}", if brought { "it is there" } else { "sleeps" }));
        let p = m.p().map(|_| m.release());
        drop(central);
        mutant!(BoundKeepsItsP: let p = None);
        if let Some(p) = p {
            self.handoffp(p);
        }
        if !brought {
            m.note.sleep();
            m.note.clear();
            self.refresh_coarse_clock();
        }
        m.take_assignment();
        let Some(p) = m.p() else { return false };
        // `rescue` brings a P on which no tick has passed.
        p.jobs.are_of_others();
        true
    }

    /// Yields for `g`, which is bound to `m`. Returns `true` if the P's queue and the global queue are empty, no class has its
    /// turn, and `g` goes on. Returns `false` also on a surplus P, because `m`, which does not look for work, then gives the P
    /// up.
    fn yield_bound(&self, m: &M<H>, g: GRef<H>) -> bool {
        let p = m.p().expect("yield_bound: a goroutine yields inside the runtime");
        let tail = p.runq.ends().1;
        self.run_timers(m, p);
        let tick = p.next_tick();
        if p.poll_schedule.is_due(tick)
            && let Some(found) = self.look_elsewhere_when_due(m, p, tick, First::Queued)
            && let Some(found) = p.runq.push(found)
        {
            self.spill_and_wake(p, found);
        }
        // When the runtime ends, all Ps are surplus.
        let is_surplus = self.is_surplus(p).unless(YieldKeepsTheSurplus);
        let others = !p.runq.is_empty() || !self.globq_len.is_zero();
        if !others && !self.gives_way_to_a_class(p, g.class()) && !is_surplus {
            return true;
        }
        g.word.requeue();
        p.owner.touch();
        // A goroutine that was found here was to be run at once, so no M was woken for it; now `g` stands beside it.
        let found = p.runq.ends().1 != tail;
        mutant!(BoundYieldsInSilence: let found = false);
        if self.detours.get() != 0 && self.requeue_by_class(p, g) {
            return false;
        }
        if let Some(g) = p.runq.push(g) {
            self.spill_and_wake(p, g);
        } else if found {
            self.wakep();
        }
        false
    }

    /// Called when there is no M for an idle P. If a goroutine in the global queue is bound to an M that waits in `bound_ms`,
    /// takes the goroutine out, and assigns an idle P to that M.
    pub(crate) fn rescue(&self, central: &mut Central<H>) -> Option<Wake<H>> {
        mutant!(BoundNotRescued: return None);
        // At the limit each submitter comes here, so it searches the whole queue only if a bound goroutine is runnable.
        if !central.idle.has_p() || !central.bound_ms.any_is_runnable() {
            return None;
        }
        let (mut found, globq, bound_ms) = (None, &mut central.globq, &central.bound_ms);
        globq.retain(|g| match bound_ms.of(g).filter(|_| found.is_none()) {
            // If a dump holds the goroutine, the dump queues it again.
            Some(to) => {
                let goes = g.word.run() == Run::Go;
                mutant!(BoundRescuedHeld: let goes = true);
                found = goes.then_some(to);
                false
            }
            None => true,
        });
        self.publish_len(central);
        let to = found?;
        let _waited = central.bound_ms.take(to);
        let p = self.pidleget(central).expect("rescue: a P is idle, under the lock");
        to.assign(Assignment::P(p));
        Some(Wake::M(to))
    }
}
