//! The code of mutants of the scheduler that does not fit in one line.

use crate::g::GRef;
use crate::host::Host;
use crate::m::M;
use crate::prim::MutexGuard;
use crate::sched::park::{Commit, Hook};
use crate::sched::{Central, Sched};
use crate::wait::status::{CancelPark, WaitNumber};

impl<H: Host> Sched<H> {
    /// `ParkStatusAfterCommit`: `park` with the commit hook first.
    pub(super) fn park_after_the_hook(&self, g: GRef<H>, number: WaitNumber, hook: Hook) -> bool {
        // SAFETY: `g` has just been saved by its suspend, and this is the only call.
        let commit = unsafe { hook.call() };
        g.word.park(number);
        commit == Commit::Refuse && g.word.cancel_park(number) == CancelPark::Resume
    }

    /// `BringerSkipsGlobal`: the rest of `startlockedm`, by an M that stands by without a look at the global queue.
    pub(super) fn stand_by_after_bringing(
        &self,
        m: &M<H>,
        mut central: MutexGuard<'_, Central<H>>,
        wakes: Option<&M<H>>,
    ) {
        central.idle.put_m(m);
        drop(central);
        if let Some(to) = wakes {
            to.note.wake();
        }
        self.sleep_unless(m, None);
    }
}
