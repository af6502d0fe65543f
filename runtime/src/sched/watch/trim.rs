//! The memory of stacks that were not needed for a while goes back to the system, some seconds after the last work.
//!
//! ```text
//!   every PERIOD   A1 stacks in the caches of idle Ps go to the host · A2 the host ages its stacks (`stack/pool/trim.rs`)
//!   after that     the host trims cold stacks, a few at each look of the monitor
//! ```
//! A stack that a goroutine gave back becomes cold in the second period after that; a stack in use does not move.
//!
//! Only A1 touches state that Ms use. A stack cache belongs to the owner of its P; a P that is idle or retired has no owner,
//! and can't get one without the central lock, under which A1 is done. Checked by `models/trim.rs`.

use crate::host::Host;
use crate::prim::hooks::*;
use crate::sched::Sched;
use gmp_timers::Nanos;
use std::time::Duration;

/// How long a stack lies unused, at least, before it is cold.
const PERIOD: Duration = Duration::from_secs(1);
/// How long one look of the monitor trims, and how soon the next look comes if there is more to trim.
const STINT: Duration = Duration::from_millis(1);

/// The monitor's state of the trim.
pub(crate) struct Trim {
    /// When the period ends; `None` if nothing was left to trim.
    ends: Option<Nanos>,
    /// How many goroutines the Ps had run in all when the last period ended.
    ticks: u32,
    more: bool,
}

impl Trim {
    pub(crate) fn new() -> Self {
        Trim { ends: None, ticks: 0, more: false }
    }
}

impl<H: Host> Sched<H> {
    /// Makes one look. Returns how soon the next look is needed; `None`: not before an M has worked.
    pub(crate) fn trim(&self, trim: &mut Trim, now: Nanos) -> Option<Duration> {
        if trim.ends.is_none() && (self.census.read().nbusy() > 0 || self.ticks() != trim.ticks) {
            trim.ends = Some(now.saturating_add(PERIOD));
        }
        let ends = trim.ends?;
        if now >= ends {
            // Read before the caches are emptied: the next look notices if a P runs after this.
            trim.ticks = self.ticks();
            let idle = self.empty_idle_stack_caches();
            let left = self.host.age_stacks();
            trim.more = true;
            trim.ends = (left || !idle).then(|| now.saturating_add(PERIOD));
        }
        while trim.more {
            trim.more = self.host.trim_some();
            if trim.more && H::now().saturating_since(now) >= STINT {
                return Some(STINT);
            }
        }
        trim.ends.map(|ends| ends.saturating_since(now))
    }

    fn ticks(&self) -> u32 {
        self.ps.iter().fold(0, |sum, p| sum.wrapping_add(p.tick()))
    }

    /// A1. Returns `true` if all Ps are idle.
    pub(crate) fn empty_idle_stack_caches(&self) -> bool {
        let central = self.central.lock();
        for p in central.idle.ps().chain(&central.retired_ps) {
            p.with_stack_cache(|cache| self.host.empty(cache));
        }
        mutant!(TrimEmptiesBusyCaches: for p in self.ps.iter() { p.with_stack_cache(|cache| self.host.empty(cache)); });
        self.all_idle(&central)
    }
}
