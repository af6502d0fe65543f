//! Sizes that a model must shrink to reach what lies behind them.

use std::time::Duration;

/// Gs that a pool makes at a time.
pub(crate) const G_CHUNK: usize = if cfg!(gmp_loom) { 1 } else { 64 };
/// Gs that a P takes from the pool, and gives back to it, at a time.
pub(crate) const G_BATCH: usize = if cfg!(gmp_loom) { 1 } else { 32 };
/// Gs that the ring of a P holds, a power of two. Go's number.
pub(crate) const RUNQ: u32 = if cfg!(gmp_loom) { 4 } else { 256 };
/// The most Ps of a runtime.
pub(crate) const PROCS: usize = if cfg!(gmp_loom) { 4 } else { 1024 };
/// Whether an M that has just acquired a P takes one goroutine alone from the global queue. In a model it takes the
/// share at once: it may spin then while others stand in its ring.
pub(crate) const FIRST_ALONE: bool = !cfg!(gmp_loom);
/// How often a spinning M visits the other Ps, one time after the other. Go's number.
pub(crate) const STEAL_ROUNDS: u32 = if cfg!(gmp_loom) { 1 } else { 4 };
/// And at most, with pauses, while others' queues come and go.
pub(crate) const STEAL_ROUNDS_MOST: u32 = if cfg!(gmp_loom) { 1 } else { 32 };
/// How often a goroutine that wants a lock looks again before it stands in line. Go's number.
pub(crate) const LOCK_SPINS: usize = if cfg!(gmp_loom) { 0 } else { 4 };
/// A goroutine that has waited this long for a mutex is handed it. Go's number. In a model, whose clock stands still, one
/// that was woken in vain.
pub(crate) const STARVED: std::time::Duration =
    if cfg!(gmp_loom) { std::time::Duration::ZERO } else { std::time::Duration::from_millis(1) };
/// Parts of a `sync::Pool`. Ps with numbers that are equal modulo this share one.
pub(crate) const POOL_SHARDS: usize = if cfg!(gmp_loom) { 2 } else { 32 };
/// Whether a spinning M begins its rounds anywhere. A model's schedule is to depend on loom alone.
pub(crate) const RANDOM_VICTIMS: bool = !cfg!(gmp_loom);
/// So many goroutines in a row may come from `runnext`. Two that wake each other then share a P with the others
/// in the proportion of this number to one round of the queue.
pub(crate) const MAX_INHERITED: u32 = if cfg!(gmp_loom) { 2 } else { 16 };
/// So long a thread stays that has nothing to do. A model's threads stay.
pub(crate) const KEEP_ALIVE: Option<Duration> =
    if cfg!(gmp_loom) { None } else { Some(Duration::from_secs(10)) };
/// From one look at another P to the next. In a model, whose clock stands still, each time.
pub(crate) const LOOK_AROUND: Duration = Duration::from_micros(if cfg!(gmp_loom) { 0 } else { 50 });
/// No queue that is younger is helped. In a model every one that looks no younger than the own.
pub(crate) const HELP_FLOOR: Duration = Duration::from_micros(if cfg!(gmp_loom) { 0 } else { 200 });
/// The same where the kernel runs another of our Ms in place of the owner: longer than it does so at a time with
/// twice as many busy threads as CPUs, which is 4 ms.
pub(crate) const HELP_FLOOR_OFF: Duration = Duration::from_millis(if cfg!(gmp_loom) { 0 } else { 4 });
/// So long the timer thread waits for the next callback. A model's waits are not ended by time.
pub(crate) const LINGER: Duration = Duration::from_millis(if cfg!(gmp_loom) { 0 } else { 100 });
