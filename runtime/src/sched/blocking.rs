//! Giving a P away and coming back without one: a goroutine goes on, on its thread, while another M has its P.
//!
//! ```text
//!                 entersyscallblock                            exitsyscall (its next call that may park)
//!   with a P ─────────────────────────▶ without one ───────────────────────▶ with the P it had, or an idle one
//!                 or a retaker          │                                └──▶ none is idle: the global queue; the M
//!                                       │                                     stands by
//!                                       └ calls that never park go on, as from a plain thread
//! ```
//! A P that is given away goes to another M when there is work in its queue or in the global one, and when nobody is
//! in the poller; else it is idle, and as everybody who makes a P idle its giver looks once more (I1 to I3 of
//! `wake.rs`).
//!
//! Coming back, the look for an idle P and the put into the global queue are one critical section: who gives a P up
//! after it finds the goroutine there.
//!
//! Checked by `tests/loom_window.rs`.

use crate::g::GRef;
use crate::host::Host;
use crate::m::{M, Spinning, Window};
use crate::p::P;
use crate::prim::{Mutant, Ordering, event, fence, mutated, unless};
use crate::sched::Sched;
use crate::sched::poll::Poller;
use std::ptr::NonNull;

impl<H: Host> Sched<H> {
    /// The calling goroutine goes on without a P.
    pub(crate) fn entersyscallblock(&self, window: &Window<H>) {
        let p = window.m().release();
        event(format_args!("{:?} gives its P away", window.g()));
        self.handoffp(p);
    }

    /// The calling goroutine is about to block its thread in a call that never parks: gives its P away, if it has one. A
    /// plain thread has none.
    pub(crate) fn step_aside() {
        if let Some(window) = Window::<H>::enter_with_p() {
            window.m().sched().entersyscallblock(&window);
        }
    }

    /// Has somebody take a P that the caller has given up, or taken from its M; or makes it idle.
    pub(crate) fn handoffp(&self, p: NonNull<P<H>>) {
        // SAFETY: Ps live as long as their scheduler.
        let queue = &unsafe { p.as_ref() }.runq;
        let mut central = self.central.lock();
        if self.is_to_retire(p) {
            self.retire(&mut central, p);
            drop(central);
            // What stood in its queue; and somebody is to go to the poller, if nobody is there.
            unless(Mutant::HandOffRetiresQuietly, || self.wakep());
            return;
        }
        let works = !queue.is_empty() && !mutated(Mutant::HandOffSkipsQueue) || !central.globq.is_empty();
        if (works || central.poller == Poller::Nobody) && !self.is_stopping() {
            let spinning = if works { Spinning::No } else { Spinning::Yes };
            if spinning == Spinning::Yes {
                self.census.begin_spinning();
            }
            let wake = self.startm(&mut central, p, spinning);
            if wake.is_none() && works {
                return self.warn_at_the_limit(central);
            }
            drop(central);
            self.start_woken(wake);
            return;
        }
        if self.is_stopping() {
            queue.drain(|g| central.globq.push(g));
            self.publish_len(&central);
        }
        self.pidleput(&mut central, p);
        // In the lock: whoever takes the P is to find it counted.
        unless(Mutant::HandOffCountsLate, || self.census.give_up(false));
        drop(central);
        if mutated(Mutant::HandOffCountsLate) {
            self.census.give_up(false);
        }
        // I2, as in `go_idle`.
        unless(Mutant::HandOffNoFence, || fence(Ordering::SeqCst));
        if self.work_somewhere(&self.idle_mask) && !mutated(Mutant::HandOffNoRecheck) {
            self.wakep();
        }
    }

    /// The M that runs `g` has lost its P, or has given it away: takes the one that it had, or another idle one, or
    /// queues `g` for the Ms that have one. True: `g` goes on at once.
    #[doc(alias = "exitsyscall0")]
    pub(crate) fn exitsyscall(&self, m: &M<H>, g: GRef<H>) -> bool {
        let mut central = self.central.lock();
        if let Some(p) = self.pidleget_or(&mut central, m.last_p()) {
            drop(central);
            m.acquire(p);
            return true;
        }
        if mutated(Mutant::ExitInTwoSections) {
            drop(central);
            central = self.central.lock();
        }
        event(format_args!("queues {g:?}, which comes back without a P"));
        g.word.requeue();
        central.globq.push(g);
        self.publish_len(&central);
        false
    }
}
