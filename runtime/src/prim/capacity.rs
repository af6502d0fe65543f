//! Constants that a model shrinks, to reach the states behind a limit.

use std::time::Duration;

/// Gs that a pool makes at a time.
pub(crate) const G_CHUNK: usize = if cfg!(gmp_loom) { 1 } else { 64 };
/// Gs that a P takes from the pool, and gives back to it, at a time.
pub(crate) const G_BATCH: usize = if cfg!(gmp_loom) { 1 } else { 32 };
/// Gs that the ring of a P holds, a power of two. Go's number.
pub(crate) const RUNQ: u32 = if cfg!(gmp_loom) { 4 } else { 256 };
/// Jobs that a P has room for, a power of two. A tree of forks puts aside one job a level.
pub(crate) const JOBS: u32 = if cfg!(gmp_loom) { 2 } else { 128 };
/// The most Ps of a runtime.
pub(crate) const PROCS: usize = if cfg!(gmp_loom) { 4 } else { 1024 };
/// Whether an M that has just acquired a P takes only one goroutine from the global queue. In a model the M takes the P's share
/// at once, since the M may spin then while other goroutines are in its ring.
pub(crate) const FIRST_ALONE: bool = !cfg!(gmp_loom);
/// How many rounds over the other Ps a spinning M makes. Go's number.
pub(crate) const STEAL_ROUNDS: u32 = if cfg!(gmp_loom) { 1 } else { 4 };
/// How many rounds that M makes at most, with pauses, while other Ms' queues change.
pub(crate) const STEAL_ROUNDS_MOST: u32 = if cfg!(gmp_loom) { 1 } else { 32 };
/// Whether a thief naps after short thefts. A model's Ms look at any time.
pub(crate) const NAPS: bool = !cfg!(gmp_loom);
/// How many goroutines run between two looks at the timers while sleepers are in the ring. A model's M looks before each.
pub(crate) const TIMERS_EVERY: u32 = if cfg!(gmp_loom) { 1 } else { 16 };
/// How often a thief looks whether the owner of a mailbox comes for its mail. A model's thief takes the mail at once.
pub(crate) const MAIL_ROUNDS: usize = if cfg!(gmp_loom) { 0 } else { 16 };
/// How often a locker looks again at a held lock before it joins the queue. Go's number.
pub(crate) const LOCK_SPINS: usize = if cfg!(gmp_loom) { 0 } else { 4 };
/// A waiter for a mutex that has waited this long is handed the lock. Go's number. In a model, whose clock stands still,
/// a waiter that was woken in vain.
pub(crate) const STARVED: Duration = Duration::from_millis(if cfg!(gmp_loom) { 0 } else { 1 });
/// Parts of a `sync::Pool`. Ps with numbers that are equal modulo this share one.
pub(crate) const POOL_SHARDS: usize = if cfg!(gmp_loom) { 2 } else { 32 };
/// Whether a spinning M begins its rounds at a random P. A model's schedule must depend on loom alone.
pub(crate) const RANDOM_VICTIMS: bool = !cfg!(gmp_loom);
/// How many goroutines of a class come into the batch of a P at a time, at most: few enough that the last of them does not wait
/// long while another P has nothing to do, and enough that the lock is seldom taken.
pub(crate) const CLASS_BATCH: usize = if cfg!(gmp_loom) { 2 } else { 16 };
/// How often an owner that runs goroutines below `Normal` looks beyond its P. In a model, whose clock stands still, each time.
pub(crate) const LOOK_BEYOND: Duration = Duration::from_micros(if cfg!(gmp_loom) { 0 } else { 20 });
/// How many goroutines in a row may come from `runnext`. Two goroutines that wake each other share a P with the others at most
/// in the proportion of this number to one round of the queue.
pub(crate) const MAX_INHERITED: u32 = if cfg!(gmp_loom) { 2 } else { 16 };
/// How often a future that was woken in its own poll is polled again without a turn for others, while none is seen to wait.
pub(crate) const POLLS_ALONE: u32 = if cfg!(gmp_loom) { 1 } else { 16 };
/// How long a thread without work stays. A model's threads stay for ever.
pub(crate) const KEEP_ALIVE: Option<Duration> =
    if cfg!(gmp_loom) { None } else { Some(Duration::from_secs(10)) };
/// The time from one look at another P to the next. In a model, whose clock stands still, an M looks each time.
pub(crate) const LOOK_AROUND: Duration = Duration::from_micros(if cfg!(gmp_loom) { 0 } else { 50 });
/// A queue that is younger gets no help. In a model an M helps every queue that looks no younger than its own.
pub(crate) const HELP_FLOOR: Duration = Duration::from_micros(if cfg!(gmp_loom) { 0 } else { 200 });
/// As `HELP_FLOOR`, if the kernel runs another of the runtime's Ms in place of the owner: longer than the kernel's slice, which
/// is 4 ms with twice as many busy threads as CPUs.
pub(crate) const HELP_FLOOR_OFF: Duration = Duration::from_millis(if cfg!(gmp_loom) { 0 } else { 4 });
/// How long the timer thread, and the last thread that calls foreign wakers, wait for another call before they end. A model's
/// waits are not ended by time.
pub(crate) const LINGER: Duration = Duration::from_millis(if cfg!(gmp_loom) { 0 } else { 100 });
/// How many threads there are at a time, at most, for the callbacks that no runtime runs.
pub(crate) const MOST_CALLBACK_THREADS: usize = if cfg!(gmp_loom) { 1 } else { 32 };
/// How many goroutines a spawner without a P spawns in a row before it takes an idle P.
pub(crate) const BURST: u32 = if cfg!(gmp_loom) { 0 } else { 64 };
/// How long these spawns may take, and how far apart the following ones may be.
pub(crate) const BURST_WITHIN: Duration =
    if cfg!(gmp_loom) { Duration::MAX } else { Duration::from_millis(1) };
