//! Spawn bursts: a spawner that has lost its P takes an idle one.
//!
//! *The problem.* A goroutine that spawns many others, and neither parks nor yields, keeps its P for a time slice; then the
//! monitor takes the P for goroutines that wait, and the spawner goes on without a P (`threads/retake.rs`). Without a P the
//! spawner takes one lock for each G and another for each goroutine that it queues. The other Ms finish the spawned goroutines
//! quickly and fall asleep, so nearly every spawn pays a futex call that wakes an M.
//!
//! *The obvious way* is that the spawner waits for a P, like a call that parks. But a spawn does not park: a goroutine may keep
//! a value that is bound to its thread across a spawn.
//!
//! *Here* a spawner that has lost its P takes an idle one, in the critical section in which it finds the global queue empty: if
//! goroutines were there, an M would have been summoned for them, and would come in vain. An idle P has nothing to do, except
//! perhaps jobs (`p/jobs.rs`); and in the new lease the monitor judges the spawner like any other goroutine, and takes the P
//! again after a time slice in which others waited.
//!
//! A spawner takes an idle P after [`BURST`] spawns without a P within [`BURST_WITHIN`], if the next spawn follows within the
//! same time. A goroutine that spawns only now and then goes on without a P, and an M runs at once each goroutine that it
//! spawns. A goroutine that has *given* its P away (`threads/blocking.rs`, `threads/blockers.rs`) is about to block, and takes
//! none.
//!
//! Checked by `models/spawn_burst.rs`.

use crate::host::Host;
use crate::m::{Inside, M};
use crate::prim::capacity::{BURST, BURST_WITHIN};
use crate::prim::event;
use crate::prim::hooks::*;
use crate::sched::Sched;
use gmp_timers::Nanos;
use std::cell::Cell;

/// The spawns of a goroutine without a P since it lost its P. Only the M's own thread uses this.
pub(crate) struct SpawnBurst {
    /// How many more spawns make a long row; `None`: the P was given away. Not read while the M holds a P.
    left: Cell<Option<u32>>,
    /// When the row began, or, in a long row, the time of the last spawn.
    since: Cell<Nanos>,
}

impl SpawnBurst {
    pub(crate) fn new() -> Self {
        SpawnBurst { left: Cell::new(None), since: Cell::new(Nanos::ZERO) }
    }

    /// Called when the P was taken away.
    pub(crate) fn begin(&self) {
        self.left.set(Some(BURST));
    }

    /// Called when the P was given away.
    pub(crate) fn end(&self) {
        self.left.set(None);
    }

    /// Notes a spawn without a P. Returns `true` if the goroutine has made many spawns recently.
    fn spawns(&self, now: impl Fn() -> Nanos) -> bool {
        let Some(left) = self.left.get() else { return false };
        if left == 0 {
            let now = now();
            let goes_on = now.saturating_since(self.since.replace(now)) < BURST_WITHIN;
            self.left.set(Some(if goes_on { 0 } else { BURST }));
            return goes_on;
        }
        if left == BURST {
            self.since.set(now());
        }
        let lasts = left > 1 || now().saturating_since(self.since.get()) < BURST_WITHIN;
        self.left.set(Some(if lasts { left - 1 } else { BURST }));
        false
    }
}

/// Called by a goroutine that is about to block its thread, and has no P to give away: spawns in that call take no P. Does
/// nothing on a plain thread.
pub(crate) fn goes_on_without_p<H: Host>() {
    if let Some(m) = M::<H>::current() {
        m.spawn_burst.end();
    }
}

impl<H: Host> Sched<H> {
    /// For a goroutine that spawns on `m`, which has no P: enters the runtime with an idle P, if the spawner is to have one.
    #[cold]
    #[inline(never)]
    pub(crate) fn come_back_to_spawn<'m>(&self, m: &'m M<H>) -> Option<Inside<'m, H>> {
        if !m.is_outside_without_p() || !m.spawn_burst.spawns(H::now) {
            return None;
        }
        let others_wait = !self.globq_len.is_zero();
        mutant!(SpawnerOvertakes: let others_wait = false);
        if others_wait || self.census.read().npidle() == 0 {
            return None;
        }
        let g = m.g()?;
        m.enter_with(|| {
            let mut central = self.central.lock();
            let goes_first = self.goes_first(&central, g) && !self.is_stopping();
            mutant!(SpawnerOvertakes: let goes_first = true);
            if !goes_first {
                return None;
            }
            let p = self.pidleget_or(&mut central, m.last_p())?;
            event(format_args!("{g:?} goes on with an idle P"));
            Some(p)
        })
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;
    use crate::host::Active;
    use crate::{Runtime, go};

    /// Fails if a goroutine that spawns now and then counts as one that spawns many, even after it has spawned many; or if a
    /// goroutine that was never without a P does.
    #[test]
    fn a_burst_is_many_spawns_within_a_short_time() {
        let (burst, clock) = (SpawnBurst::new(), Cell::new(0));
        let spawn = |each: u64| {
            clock.set(clock.get() + each);
            burst.spawns(|| Nanos::from_nanos(clock.get()))
        };
        assert!(!(0..3 * BURST).any(|_| spawn(100)));
        burst.begin();
        assert!(!(0..3 * BURST).any(|_| spawn(20_000)));
        assert_eq!((0..3 * BURST).filter(|_| spawn(100)).count() as u32, 2 * BURST);
        assert!(!spawn(2_000_000));
        assert_eq!((0..3 * BURST).filter(|_| spawn(100)).count() as u32, 2 * BURST);
        burst.begin();
        assert!(!spawn(100));
        burst.end();
        assert!(!(0..3 * BURST).any(|_| spawn(100)));
    }

    fn has_p() -> bool {
        M::<Active>::current().is_some_and(|m| m.p().is_some())
    }

    /// Spawns goroutines until the caller has lost its P, and no other goroutine waits.
    fn spawn_until_the_p_is_lost(handle: &crate::Handle) {
        while has_p() {
            drop(go(|| ()));
        }
        while handle.num_goroutines() > 1 {
            std::hint::spin_loop();
        }
    }

    /// Spawns this often, a few at a time, so that a P is idle now and then. Returns `true` as soon as the caller has a P.
    fn comes_back(handle: &crate::Handle, tries: u32) -> bool {
        (0..tries).any(|_| {
            (0..4 * BURST).for_each(|_| drop(go(|| ())));
            let came = has_p();
            while !came && handle.num_goroutines() > 1 {
                std::hint::spin_loop();
            }
            came
        })
    }

    /// Fails if a spawner that has lost its P takes no idle P, or if a spawner in a call that blocks its thread takes one.
    #[test]
    fn a_spawner_comes_back_to_an_idle_p() {
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        let runtime = unsafe { Runtime::builder().procs(2).build() }.unwrap();
        let handle = runtime.handle();
        let [in_a_call, after] = runtime.run(move || {
            spawn_until_the_p_is_lost(&handle);
            let in_a_call = crate::blocking(|| comes_back(&handle, 100));
            crate::yield_now();
            spawn_until_the_p_is_lost(&handle);
            [in_a_call, comes_back(&handle, 10_000)]
        });
        assert!(!in_a_call && after, "{in_a_call} {after}");
    }
}
