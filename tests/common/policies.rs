//! Every scheduling policy; under the cfg `gmp_policies` those with a queue under a lock, too.

use gmp::policy::{FromGlobal, Overflow, Policy, Steal, WorkStealing};

/// Each variant of work stealing, two other ticks, one queue, and a drawn order.
pub fn policies() -> Vec<Policy> {
    let mut all = vec![Policy::GlobalFifo, Policy::Random(1), Policy::Random(2)];
    all.extend([2, 997].map(|tick| Policy::from(WorkStealing::new().tick(tick))));
    for steal in [Steal::Half, Steal::One] {
        for overflow in [Overflow::PutHalf, Overflow::PutOne] {
            for global in [FromGlobal::Share, FromGlobal::One, FromGlobal::All] {
                all.push(WorkStealing::new().steal(steal).overflow(overflow).global(global).into());
            }
        }
    }
    #[cfg(gmp_policies)]
    for steal in [Steal::Half, Steal::One] {
        for global in [FromGlobal::One, FromGlobal::All] {
            all.push(WorkStealing::new().mutex_queue().steal(steal).global(global).into());
        }
    }
    all
}
