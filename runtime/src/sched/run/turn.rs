//! A turn that is given to one goroutine: `yield_to`.
//!
//! A goroutine that yields goes to the end of the ring, and the goroutines before it run first. `yield_to` names one of these
//! that is to go before the others, because it holds what the caller waits for, or takes what the caller has just made:
//!
//! ```text
//!   Y1  the caller goes to the end of the ring, as in any yield
//!   Y2  the one that is named stands in `runnext`? nothing is left to do
//!       in the ring? the owner picks it out (`p/runq/pick.rs`);  in this P's mailbox? takes it, under the lock
//!   Y3  it becomes `runnext`; the one that it displaces goes to the end of the ring
//! ```
//! A goroutine in `runnext` inherits the time slice of the goroutine that ran last, so two that yield to each other share one
//! slice, after which each goes to the end like any other (`runqget`). If the named goroutine stands on another P or in the
//! global queue, or waits or runs, Y1 is all that happens: the owner does not look for it there. So the look is bounded by the
//! length of the ring, and by as many goroutines of the mailbox.
//!
//! *A goroutine stands in one place*, and Y2 takes it from there as a thief would, by a claim. After Y1 the caller might run on
//! another M, and drop its handle to the named goroutine: then the G at that address might belong to another goroutine. So Y2
//! only compares the G's address with the addresses in the queue, and reads nothing through it.
//!
//! *Which M is woken.* As in any yield, this M takes a goroutine that was queued before, in exchange for the caller, so no M
//! has to be woken. Between Y2 and Y3 the picked goroutine is in no queue, and an M that gives up just then might find the
//! queue empty; but this M runs that goroutine next. S2 and S3 (`wake.rs`) follow if the ring was full at Y1 or at Y3
//! (`spill_and_wake`), and if the ring seemed empty for a moment (`Picked::hid`): the goroutines before the picked one might be
//! all that is left in the ring.
//!
//! Checked by `models/turn.rs`.

use crate::g::GRef;
use crate::host::Host;
use crate::m::M;
use crate::p::runq::Picked;
use crate::prim::event;
use crate::prim::hooks::*;
use crate::sched::Sched;

impl<H: Host> Sched<H> {
    /// Y1 to Y3, for `g`, which runs on `m` and yields to the goroutine at the address `to`.
    #[cold]
    #[inline(never)]
    pub(super) fn requeue_behind(&self, m: &M<H>, g: GRef<H>, to: *const ()) {
        self.requeue(m, g);
        let p = m.p().expect("requeue_behind: a goroutine yields inside the runtime");
        let is_it = |g: GRef<H>| std::ptr::eq(g.to_raw().cast_const().cast(), to);
        if is_it(g) || p.runq.is_next(is_it) {
            return;
        }
        let (first, hid) = match p.runq.pick(is_it) {
            Some(Picked { g, hid }) => (g, hid),
            None => match self.take_mailed(p, is_it) {
                Some(g) => (g, false),
                None => return,
            },
        };
        event(format_args!("gives its turn to {first:?}"));
        // Without a fence: either no M has to be woken, or `wakep` has the fence.
        if let Some(g) = p.runq.push_next(first, || ()) {
            self.spill_and_wake(p, g);
        }
        if hid {
            mutant!(PickWakesNobody: return);
            self.wakep();
        }
    }
}
