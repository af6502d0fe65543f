//! Coming back to the runtime without a P.

use crate::g::GRef;
use crate::host::Host;
use crate::m::M;
use crate::sched::Sched;

impl<H: Host> Sched<H> {
    /// The M that runs `g` has lost its P: takes an idle one, or queues `g` for the Ms that have one. True: `g`
    /// goes on at once.
    #[doc(alias = "exitsyscall0")]
    pub(crate) fn exitsyscall(&self, m: &M<H>, g: GRef<H>) -> bool {
        let mut central = self.central.lock();
        // Should the last P go idle after the put, this M finds it: it looks again before it sleeps (`stopm`).
        if let Some(p) = central.take_idle_p(&self.monitor_note) {
            drop(central);
            m.acquire(p);
            return true;
        }
        g.word.requeue();
        central.runq.push(g);
        false
    }
}

/// The other end: what a retaker does with a P that it has taken.
#[cfg(gmp_loom)]
impl<H: Host> Sched<H> {
    /// Makes the P idle, and has somebody take it when there is work.
    #[doc(alias = "handoffp")]
    pub(crate) fn hand_off(&self, p: std::ptr::NonNull<crate::p::P>) {
        // SAFETY: Ps live as long as their scheduler.
        let there = unsafe { p.as_ref() };
        there.owner.touch();
        there.handoff.give_up();
        let mut central = self.central.lock();
        central.idle_ps.push(p);
        let wake = if central.runq.is_empty() { None } else { self.wakep(&mut central) };
        drop(central);
        self.start_woken(wake);
    }
}
