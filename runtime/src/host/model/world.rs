//! The world of a model: a clock that stands still, and a poller that is a list of posted events.

use crate::host::Interest;
use gmp_netpoll::{Key, Readiness};
use gmp_timers::Nanos;
use loom::sync::{Condvar, Mutex};
use std::io;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A timed wait in the poller of at least this length lasts until an event or a break ends it.
pub const LONG: Duration = Duration::from_secs(1000);

/// Moves the clock on by `time`, and tells no M.
pub fn pass(time: Duration) {
    let mut clock = CLOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    *clock = clock.saturating_add(time);
}

#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) broken: bool,
    /// Threads that block in the poller.
    pub(super) polling: usize,
    /// Those of them that were not woken yet.
    pub(super) dozing: usize,
    /// The descriptors that the poller watches; a model has one at most.
    pub(super) watched: Vec<(Key, Interest)>,
    /// All readiness that was ever posted for the watched descriptor.
    pub(super) level: Readiness,
    /// Whether only `level` says that there is room to write.
    pub(super) is_full: bool,
    pub(super) events: Vec<(Key, Readiness)>,
    /// If stacks are limited: how many no goroutine and no cache has.
    pub(super) stacks: usize,
}

/// The host of one runtime in a model.
#[derive(Debug)]
pub struct ModelHost {
    pub(super) world: Mutex<World>,
    pub(super) happened: Condvar,
    /// Whether stacks are limited. A model sets this before the search begins; loom does not see it.
    pub(super) short_of_stacks: std::sync::atomic::AtomicBool,
    /// Reservations of goroutines. loom does not see this field, nor the two around it.
    pub(super) reserved: std::sync::atomic::AtomicUsize,
    /// Whether a limited stack that comes back goes to a cache.
    pub(super) caches_stacks: std::sync::atomic::AtomicBool,
}

loom::lazy_static! {
    /// Stands still, except for timed waits in the poller.
    pub(super) static ref CLOCK: Mutex<Nanos> = Mutex::new(Nanos::ZERO);
}

/// Returns the start of the clock as std's `Instant`.
pub(super) fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

impl ModelHost {
    pub(crate) fn new(_max_stack_bytes: Option<usize>, _guard: usize) -> io::Result<Self> {
        Ok(ModelHost {
            world: Mutex::new(World::default()),
            happened: Condvar::new(),
            short_of_stacks: Default::default(),
            reserved: Default::default(),
            caches_stacks: Default::default(),
        })
    }

    pub(super) fn world(&self) -> loom::sync::MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn is_short_of_stacks(&self) -> bool {
        self.short_of_stacks.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns `true` if a thread blocks in the poller.
    pub(crate) fn is_poller_occupied(&self) -> bool {
        self.world().polling > 0
    }

    /// Plays the kernel, which reports the state of a newly watched descriptor at once. Unless a model has said otherwise,
    /// there is room to write.
    pub(super) fn report(&self, world: &mut World, key: Key) {
        let level = if world.is_full { world.level } else { world.level | Readiness::WRITABLE };
        let seen = world.seen(level);
        world.events.extend(seen.into_iter().filter(|&(watched, _)| watched == key));
        world.wakes_all();
        self.happened.notify_all();
    }

    /// Plays the kernel: there is no room to write until `happen` or `post` says so.
    #[cfg(test)]
    pub(crate) fn fill(&self) {
        self.world().is_full = true;
    }

    /// Plays the kernel: the descriptor has become ready. Returns what the poller sees of that.
    #[cfg(test)]
    pub(crate) fn happen(&self, readiness: Readiness) -> Vec<(Key, Readiness)> {
        super::schedule::add(format_args!("the kernel has {readiness:?}"));
        let mut world = self.world();
        world.level |= readiness;
        world.seen(readiness)
    }

    /// Does the same as `happen`, and leaves the event for the poller to find.
    #[cfg(test)]
    pub(crate) fn post(&self, readiness: Readiness) {
        super::schedule::add(format_args!("the kernel posts {readiness:?}"));
        let mut world = self.world();
        world.level |= readiness;
        let posted = world.seen(readiness);
        world.events.extend(posted);
        world.wakes_all();
        self.happened.notify_all();
    }
}

impl World {
    /// Called before all that wait in the poller are notified.
    pub(super) fn wakes_all(&mut self) {
        super::stage::are_woken(std::mem::take(&mut self.dozing));
    }

    /// Returns what the poller sees of `readiness`: no room to write if a descriptor is watched for reads.
    fn seen(&self, readiness: Readiness) -> Vec<(Key, Readiness)> {
        let both = readiness.to_bits();
        let reads = both & !Readiness::WRITABLE.to_bits();
        let bits = |interest| if interest == Interest::Both { both } else { reads };
        let seen = self.watched.iter().map(|&(key, interest)| (key, Readiness::from_bits(bits(interest))));
        seen.filter(|&(_, readiness)| readiness != Readiness::EMPTY).collect()
    }
}
