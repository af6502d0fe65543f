//! The locks, and the one order in which a thread takes them.
//!
//! *Problem.* Two threads that hold one lock each and ask for the other's wait for ever. *Rule.* Each lock has a [`Rank`], and
//! a thread that holds locks asks only for one of a higher rank. Of two ranks, [`Rank::is_taken_together`], a thread may hold
//! several locks, taken in the order of their [`place`](Mutex::place). A lock's place is its address; in models, whose
//! addresses differ from one execution to the next, the number in which it was made. *Proof.* Ranks and places together are a
//! total order. In a circle of threads that wait for each other, the thread that holds the greatest lock would have asked for a
//! smaller one.
//!
//! *Check.* In debug builds and in models each thread counts the locks that it holds, and an acquisition against the order
//! panics before it waits: in the first run that takes the locks so, not only in the run where both threads meet.
//! [`assert_none_held`] is the other half of the rule: no lock is held across a switch of stacks, except a lock that a commit
//! hook, which runs on the same thread, releases. Release builds have none of this: a lock is that of `store_lock.rs`.
//!
//! A goroutine may park while it holds a lock of another kind: a type of `sync`, an I/O lock, the lock of `SingleFlight`.

use super::plain;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// What a lock protects. Outermost first: a thread that holds a lock asks only for locks further down in this list.
#[derive(Copy, Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[cfg_attr(
    any(gmp_loom, feature = "generator", not(target_arch = "x86_64")),
    allow(dead_code, reason = "locks of the native host, and of its own switch")
)]
#[repr(u8)]
pub(crate) enum Rank {
    /// A node in the tree of contexts: `context/tree.rs`. The node's channel is closed under this lock.
    Context,
    /// The bells of a channel with many receivers: `chan/several.rs`.
    Bells,
    /// A channel's state: `chan/state.rs`. A select holds those of all its arms.
    Channel,
    /// A condition variable's queue: `sync/condvar.rs`. The mutex is unlocked under this lock.
    Condvar,
    /// The queue of any other type of `sync`: `sync/wait_queue.rs`.
    WaitQueue,
    /// The living children of a scope: `goroutine/scope.rs`.
    Scope,
    /// The calls that block a thread: `runtime/lines.rs`.
    LineCallers,
    /// The state that the two directions of a copy share: `os/io/copy/bidirectional.rs`.
    Copies,
    /// The semaphore that limits a group: `sync/err_group.rs`.
    ErrGroup,
    /// The functions that the threads of a runtime call first: `runtime/thread_start.rs`.
    ThreadStarts,
    /// A part of a `sync::Pool`.
    PoolShard,
    /// The queue of an I/O lock: `net/io_lock.rs`.
    IoLock,
    /// The pollers that know a socket: `net/socket.rs`. The socket's descriptor is registered under this lock.
    Registrations,
    /// The context that ends the waits for a name at the next change of a socket: `net/socket/present.rs`.
    PresentContext,
    /// The closer that waits for a socket's last user: `net/fd.rs`.
    Closer,
    /// Whether a wait for a descriptor has been committed: `net/desc.rs`.
    Gate,
    /// The runtimes of the process: `sched/watch/deadlock.rs`.
    Runtimes,
    /// The timer thread's work: `sched/timers/timer_thread.rs`.
    TimerThread,
    /// A scheduler's central lock: `sched/mod.rs`. The judge of a deadlock holds those of all runtimes.
    Central,
    /// The queue of a P, in the bench of policies: `p/runq/locked.rs`.
    #[cfg(gmp_policies)]
    LockedQueue,
    /// The timers of a P, or of no runtime: `sched/timers/heap.rs`.
    Timers,
    /// The descriptors for which the poller's keys stand: `sched/poll/table.rs`.
    PollTable,
    /// A runtime's Gs: `g/pool.rs`.
    GPool,
    /// The host's stacks: `stack/pool/mod.rs`.
    Stacks,
    /// The data for debuggers: `host/native/debugger.rs`.
    Debugger,
    /// The CPUs of a thread, which are set under this lock: `m/bound.rs`.
    Bound,
    /// Whether an M sleeps on its note: `m/apart.rs`. The CPUs of the M's thread are set under this lock.
    Apart,
    /// The state of a thread as the kernel reports it: `host/native/watch.rs`.
    ThreadWatch,
    /// The right to ask threads for their frames: `host/native/sample/mod.rs`.
    Asker,
    /// The waker of a task that waits: `wait/task.rs`.
    TaskWaker,
}

impl Rank {
    /// Returns `true` if a thread may hold several locks of the rank.
    #[cfg(any(debug_assertions, gmp_loom))]
    fn is_taken_together(self) -> bool {
        matches!(self, Rank::Channel | Rank::Central)
    }
}

/// Defines a lock type over one of `plain`, with its rank.
macro_rules! ranked {
    ($(#[$doc:meta])* $mutex:ident, $(#[$guard_doc:meta])* $guard:ident, over $plain:path, $plain_guard:path) => {
        $(#[$doc])*
        pub(crate) struct $mutex<T> {
            tag: check::Tag,
            /// How often the lock was taken, for the bench of policies.
            #[cfg(gmp_policies)]
            taken: std::sync::atomic::AtomicU64,
            plain: $plain,
        }

        impl<T> $mutex<T> {
            #[inline(always)]
            pub(crate) fn lock(&self) -> $guard<'_, T> {
                let held = self.tag.take(self.place());
                // Relaxed: a count.
                #[cfg(gmp_policies)]
                self.taken.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                $guard { plain: self.plain.lock(), _held: held }
            }

            /// How often the lock was taken.
            #[cfg(gmp_policies)]
            #[allow(dead_code, reason = "of one of the types")]
            pub(crate) fn taken(&self) -> u64 {
                self.taken.load(std::sync::atomic::Ordering::Relaxed)
            }

            /// Returns the place of the lock among those of its rank.
            #[inline(always)]
            pub(crate) fn place(&self) -> usize {
                plain::Placed::place(&self.plain)
            }
        }

        impl<T> fmt::Debug for $mutex<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct("Mutex").finish_non_exhaustive()
            }
        }

        $(#[$guard_doc])*
        pub(crate) struct $guard<'a, T> {
            plain: $plain_guard,
            /// After the lock is released.
            _held: check::Held,
        }

        impl<T> Deref for $guard<'_, T> {
            type Target = T;

            #[inline(always)]
            fn deref(&self) -> &T {
                &self.plain
            }
        }

        impl<T> DerefMut for $guard<'_, T> {
            #[inline(always)]
            fn deref_mut(&mut self) -> &mut T {
                &mut self.plain
            }
        }
    };
}

ranked! {
    /// A lock that loom sees.
    Mutex,
    /// What the lock protects, until the lock is released.
    MutexGuard, over plain::Mutex<T>, plain::MutexGuard<'a, T>
}

#[cfg(not(gmp_loom))]
pub(crate) use Mutex as HostMutex;

#[cfg(gmp_loom)]
ranked! {
    /// A lock of the host's own, which outlives an execution: parking_lot's, in models.
    HostMutex,
    /// What the lock protects, until the lock is released.
    HostMutexGuard, over parking_lot::Mutex<T>, parking_lot::MutexGuard<'a, T>
}

impl<T> Mutex<T> {
    super::const_fn! {
        pub(crate) fn new(rank: Rank, value: T) -> Self {
            Mutex {
                tag: check::Tag::new(rank),
                #[cfg(gmp_policies)]
                taken: std::sync::atomic::AtomicU64::new(0),
                plain: plain::Mutex::new(value),
            }
        }
    }
}

#[cfg(gmp_loom)]
impl<T> HostMutex<T> {
    pub(crate) const fn new(rank: Rank, value: T) -> Self {
        HostMutex {
            tag: check::Tag::new(rank),
            #[cfg(gmp_policies)]
            taken: std::sync::atomic::AtomicU64::new(0),
            plain: parking_lot::Mutex::new(value),
        }
    }
}

#[cfg(any(debug_assertions, gmp_loom))]
pub(super) use check::Ranks;
pub(crate) use check::assert_none_held;

#[cfg(any(debug_assertions, gmp_loom))]
mod check {
    use super::{Rank, plain};
    use std::cell::Cell;

    const RANKS: usize = Rank::TaskWaker as usize + 1;
    const _: () = assert!(RANKS <= u64::BITS as usize, "a bit for each rank");

    /// The locks that a thread holds.
    pub(crate) struct Ranks {
        /// A bit for each rank of which the thread holds a lock: a search through `kinds` would be the dearest part of a debug
        /// build.
        held: Cell<u64>,
        kinds: [Cell<Kind>; RANKS],
    }

    /// The locks of one rank that a thread holds.
    #[derive(Copy, Clone)]
    struct Kind {
        /// Meaningless while `locks` is 0.
        rank: Rank,
        locks: u32,
        /// The greatest place of the locks taken since the thread last held no lock of this rank.
        last: usize,
    }

    impl Ranks {
        pub(crate) const fn new() -> Self {
            Ranks {
                held: Cell::new(0),
                kinds: [const { Cell::new(Kind { rank: Rank::Context, locks: 0, last: 0 }) }; RANKS],
            }
        }

        /// Returns the innermost rank of which the thread holds a lock.
        fn innermost(&self) -> Option<Kind> {
            let rank = self.held.get().checked_ilog2()?;
            Some(self.kinds[rank as usize].get())
        }

        fn take(&self, rank: Rank, place: usize) {
            if let Some(held) = self.innermost() {
                let next = rank == held.rank && rank.is_taken_together() && place > held.last;
                assert!(
                    rank > held.rank || next,
                    "lock order: {rank:?} ({place:#x}) is asked for by a thread that holds {:?} ({:#x})",
                    held.rank,
                    held.last,
                );
            }
            let kind = &self.kinds[rank as usize];
            kind.set(Kind { rank, locks: kind.get().locks + 1, last: place });
            self.held.set(self.held.get() | 1 << rank as u64);
        }

        fn let_go(&self, rank: Rank) {
            let kind = &self.kinds[rank as usize];
            let locks = kind.get().locks - 1;
            kind.set(Kind { locks, ..kind.get() });
            if locks == 0 {
                self.held.set(self.held.get() & !(1 << rank as u64));
            }
        }
    }

    /// A lock's rank.
    pub(crate) struct Tag(Rank);

    impl Tag {
        pub(crate) const fn new(rank: Rank) -> Self {
            Tag(rank)
        }

        pub(crate) fn take(&self, place: usize) -> Held {
            plain::with_ranks(|ranks| ranks.take(self.0, place));
            Held(self.0)
        }
    }

    /// One lock, counted as held by the thread that took it.
    pub(crate) struct Held(Rank);

    impl Drop for Held {
        fn drop(&mut self) {
            plain::with_ranks(|ranks| ranks.let_go(self.0));
        }
    }

    /// Panics when the calling thread holds a lock.
    pub(crate) fn assert_none_held() {
        plain::with_ranks(|ranks| {
            let held = ranks.innermost().map(|kind| kind.rank);
            assert!(held.is_none(), "lock order: stacks are switched by a thread that holds {held:?}");
        });
    }
}

#[cfg(not(any(debug_assertions, gmp_loom)))]
mod check {
    use super::Rank;

    pub(crate) struct Tag;

    impl Tag {
        pub(crate) const fn new(_: Rank) -> Self {
            Tag
        }

        #[inline(always)]
        pub(crate) fn take(&self, _place: usize) -> Held {
            Held
        }
    }

    pub(crate) struct Held;

    #[inline(always)]
    pub(crate) fn assert_none_held() {}
}

#[cfg(all(test, not(gmp_loom), debug_assertions))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// The message of the panic of `f`.
    fn panic_of(f: impl FnOnce()) -> String {
        let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("it is against the order");
        *payload.downcast::<String>().expect("the panic has a formatted message")
    }

    /// Fails if a thread that holds an inner lock may ask for an outer one.
    #[test]
    fn against_the_order_of_ranks() {
        let (channel, central) = (Mutex::new(Rank::Channel, ()), Mutex::new(Rank::Central, ()));
        let outer = channel.lock();
        drop(central.lock());
        drop(outer);
        let _inner = central.lock();
        let message = panic_of(|| drop(channel.lock()));
        assert!(message.contains("Channel") && message.contains("Central"), "{message}");
    }

    /// Fails if two locks of one rank may be taken in an order that another thread may reverse, or if a rank of which
    /// one lock is held at a time allows two.
    #[test]
    fn against_the_order_within_a_rank() {
        let mut channels = [Mutex::new(Rank::Channel, ()), Mutex::new(Rank::Channel, ())];
        channels.sort_by_key(Mutex::place);
        let [first, second] = &channels;
        let both = [first.lock(), second.lock()];
        panic_of(|| drop(second.lock()));
        drop(both);
        let held = second.lock();
        panic_of(|| drop(first.lock()));
        drop(held);
        let heaps = [Mutex::new(Rank::Timers, ()), Mutex::new(Rank::Timers, ())];
        let _one = heaps[0].lock();
        panic_of(|| drop(heaps[1].lock()));
    }

    /// Fails if a lock that was released still counts as held, in whatever order the locks were released.
    #[test]
    fn what_is_let_go_is_held_no_more() {
        let (channel, central) = (Mutex::new(Rank::Channel, ()), Mutex::new(Rank::Central, ()));
        let (outer, inner) = (channel.lock(), central.lock());
        let message = panic_of(assert_none_held);
        assert!(message.contains("Central"), "{message}");
        drop(outer);
        drop(inner);
        assert_none_held();
        drop(channel.lock());
    }

    /// Fails if a lock that one thread holds counts for another.
    #[test]
    fn each_thread_has_its_own_ranks() {
        let (channel, central) = (Mutex::new(Rank::Channel, ()), Mutex::new(Rank::Central, ()));
        let _inner = central.lock();
        std::thread::scope(|s| drop(s.spawn(|| drop(channel.lock())).join()));
    }
}
