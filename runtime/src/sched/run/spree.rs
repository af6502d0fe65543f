//! A spawner that has lost its P, and takes an idle one.
//!
//! *The problem.* A goroutine that spawns many others, and neither parks nor yields, keeps its P for a time slice; then the
//! monitor takes the P for those that wait, and the spawner goes on without one (`threads/retake.rs`). Without a P the spawner
//! takes one lock for each G and one for each goroutine that it queues. The Ms finish one spawner's goroutines quickly and fall
//! asleep, so nearly every spawn pays the futex call that wakes one.
//!
//! *The obvious way* is to have the spawner wait for a P, as a call does that parks. But a spawn does not park: a goroutine may
//! keep a value that is bound to its thread across it.
//!
//! *Here* a spawner that has lost its P takes one that is idle, in the critical section in which it finds nothing in the global
//! queue: for goroutines there an M was summoned, which would come in vain. A P that is idle has nothing to do; and in the new
//! lease the monitor judges the spawner as any other goroutine, and takes the P again after a time slice in which others
//! wait.
//!
//! A spawner takes an idle P after [`SPREE`] spawns without a P within [`SPREE_WITHIN`], if the next spawn follows within the
//! same time. A goroutine that spawns only now and then goes on without a P, and an M runs at once what it spawns. A goroutine
//! that has *given* its P away (`threads/blocking.rs`, `threads/callers.rs`) takes none: it is about to block.
//!
//! Checked by `models/spree.rs`.

use crate::host::Host;
use crate::m::{Inside, M};
use crate::prim::capacity::{SPREE, SPREE_WITHIN};
use crate::prim::event;
use crate::prim::hooks::*;
use crate::sched::Sched;
use gmp_timers::Nanos;
use std::cell::Cell;

/// What a goroutine without a P has spawned since it lost its P. The M's own.
pub(crate) struct Spree {
    /// How many are left until they are many in a row; `None`: the P was given away. Not read while the M has a P.
    left: Cell<Option<u32>>,
    /// When the row began, or when the last one of a long row was spawned.
    since: Cell<Nanos>,
}

impl Spree {
    pub(crate) fn new() -> Self {
        Spree { left: Cell::new(None), since: Cell::new(Nanos::ZERO) }
    }

    /// The P was taken away.
    pub(crate) fn begin(&self) {
        self.left.set(Some(SPREE));
    }

    /// The P was given away.
    pub(crate) fn end(&self) {
        self.left.set(None);
    }

    /// The goroutine spawns one without a P. Returns `true` if it has spawned many of late.
    fn spawns(&self, now: impl Fn() -> Nanos) -> bool {
        let Some(left) = self.left.get() else { return false };
        if left == 0 {
            let now = now();
            let goes_on = now.saturating_since(self.since.replace(now)) < SPREE_WITHIN;
            self.left.set(Some(if goes_on { 0 } else { SPREE }));
            return goes_on;
        }
        if left == SPREE {
            self.since.set(now());
        }
        let lasts = left > 1 || now().saturating_since(self.since.get()) < SPREE_WITHIN;
        self.left.set(Some(if lasts { left - 1 } else { SPREE }));
        false
    }
}

/// Called by a goroutine that is about to block its thread, and has no P to give away: the goroutine takes none for what it
/// spawns in that call. Does nothing on a plain thread.
pub(crate) fn goes_on_without_p<H: Host>() {
    if let Some(m) = M::<H>::current() {
        m.spree.end();
    }
}

impl<H: Host> Sched<H> {
    /// A goroutine spawns on `m`, which had no P to enter with. Enters with an idle P, if the spawner is to have one.
    #[cold]
    #[inline(never)]
    pub(crate) fn come_back_to_spawn<'m>(&self, m: &'m M<H>) -> Option<Inside<'m, H>> {
        if !m.is_outside_without_p() || !m.spree.spawns(H::now) {
            return None;
        }
        let others_wait = !self.globrunq_is_empty();
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

    /// Fails where a goroutine that spawns now and then counts as one that spawns many, also after it has spawned many; or
    /// where a goroutine that was never without a P does.
    #[test]
    fn a_spree_is_many_spawns_within_a_short_time() {
        let (spree, clock) = (Spree::new(), Cell::new(0));
        let spawn = |each: u64| {
            clock.set(clock.get() + each);
            spree.spawns(|| Nanos::from_nanos(clock.get()))
        };
        assert!(!(0..3 * SPREE).any(|_| spawn(100)));
        spree.begin();
        assert!(!(0..3 * SPREE).any(|_| spawn(20_000)));
        assert_eq!((0..3 * SPREE).filter(|_| spawn(100)).count() as u32, 2 * SPREE);
        assert!(!spawn(2_000_000));
        assert_eq!((0..3 * SPREE).filter(|_| spawn(100)).count() as u32, 2 * SPREE);
        spree.begin();
        assert!(!spawn(100));
        spree.end();
        assert!(!(0..3 * SPREE).any(|_| spawn(100)));
    }

    fn has_p() -> bool {
        M::<Active>::current().is_some_and(|m| m.p().is_some())
    }

    /// Spawns goroutines until the caller has lost its P, and no other waits.
    fn spawn_until_the_p_is_lost(handle: &crate::Handle) {
        while has_p() {
            drop(go(|| ()));
        }
        while handle.num_goroutines() > 1 {
            std::hint::spin_loop();
        }
    }

    /// Spawns so often, a few at a time, so that a P is idle now and then. Returns `true` as soon as the caller has a P.
    fn comes_back(handle: &crate::Handle, tries: u32) -> bool {
        (0..tries).any(|_| {
            (0..4 * SPREE).for_each(|_| drop(go(|| ())));
            let came = has_p();
            while !came && handle.num_goroutines() > 1 {
                std::hint::spin_loop();
            }
            came
        })
    }

    /// Fails where a spawner that has lost its P takes no idle one; or where one does so that is in a call which blocks its
    /// thread.
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
