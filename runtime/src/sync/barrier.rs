//! Going on together.
//!
//! A waiter is counted when it arrives, and opens the round under the lock as the last of `size`. A waiter that an
//! interrupt has claimed still counts until it has taken the lock: it finds its round open, and goes on as one of the
//! `size`, or closed, and then takes itself off the count and unwinds. So a round that opens lets exactly `size` go on.
//! What the interrupt asked for is asked again at the waiter's next park. A waiter that its runtime leaves behind is
//! taken off the count by whoever settles for it.
//!
//! Checked by `models/barrier.rs`.

use crate::host::Active;
use crate::prim::{Mutant, Mutex, Rank, const_fn, mutated, unless};
use crate::sched::park::WaitReason;
use crate::sync::wait_queue::{HasWaitQueue, Left, Notified, Position, WaitQueue, wait_in};
use crate::wait::waiter::{How, Wait};
use std::fmt;

/// Blocks those who come until there are `n`, and then lets all of them go on; any number of times. Signatures and behaviour
/// are those of `std::sync::Barrier`.
///
/// Goroutines and plain threads may be mixed. A waiter that is unwound out of [`wait`](Self::wait) does not count any more: of
/// each round exactly `n` waiters return, one of them as the leader. A waiter whose round opens before its interrupt has taken
/// it off the count returns, and is interrupted where it parks next. (A goroutine that its runtime leaves behind, after its
/// round has opened, counts as one that returned.)
///
/// ```
/// use gmp::{go, sync::Barrier};
/// use std::sync::Arc;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let barrier = Arc::new(Barrier::new(3));
///         let others = [(); 2].map(|()| {
///             let barrier = Arc::clone(&barrier);
///             go(move || barrier.wait().is_leader())
///         });
///         let mut leaders = usize::from(barrier.wait().is_leader());
///         for other in others {
///             leaders += usize::from(other.join().unwrap());
///         }
///         assert_eq!(leaders, 1);
///     })
/// }
/// ```
pub struct Barrier {
    size: usize,
    state: Mutex<State>,
}

struct State {
    /// How many of this round are there.
    arrived: usize,
    /// Which round this is.
    round: usize,
    waiters: WaitQueue<Membership>,
}

/// What one waits for: the end of this round.
struct Membership {
    barrier: *const Barrier,
    round: usize,
}

// SAFETY: the barrier is Sync.
unsafe impl Send for Membership {}

impl State {
    /// Takes a waiter of `round` off the count, unless that round has opened. Returns `true` if it was taken off.
    fn leave(&mut self, round: usize) -> bool {
        let closed = self.round == round;
        if closed {
            self.arrived -= 1;
        }
        closed
    }
}

impl HasWaitQueue for State {
    type Want = Membership;
    fn waiters(&mut self, _membership: &Membership) -> &mut WaitQueue<Membership> {
        &mut self.waiters
    }
    fn settle(membership: &Membership, _notified: bool) {
        // SAFETY: its owner is left as it is, in the middle of a borrow of the barrier.
        let barrier = unsafe { &*membership.barrier };
        unless(Mutant::BarrierCountsTheLeft, || {
            barrier.state.lock().leave(membership.round);
        });
    }
}

/// What [`Barrier::wait`] returns.
#[derive(Debug)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// Returns `true` for one of each round: the one that came last.
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl Barrier {
    const_fn! {
        /// For rounds of `n`. With 0, as with 1, nobody waits.
        pub fn new(n: usize) -> Self {
            Barrier { size: n, state: Mutex::new(Rank::WaitQueue, State { arrived: 0, round: 0, waiters: WaitQueue::new() }) }
        }
    }

    /// Blocks the calling goroutine, or the plain thread, until `n` have come.
    ///
    /// # Unwinds
    /// When its wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn wait(&self) -> BarrierWaitResult {
        let wait = Wait::begin();
        let mut state = self.state.lock();
        state.arrived += 1;
        if state.arrived >= self.size {
            let mut notified = Notified::new();
            state.arrived = 0;
            state.round = state.round.wrapping_add(1);
            state.waiters.notify_all(&mut notified);
            drop(state);
            wait.withdraw();
            notified.ready();
            return BarrierWaitResult(true);
        }
        let round = state.round;
        let membership = Membership { barrier: self, round };
        match wait_in(wait, &self.state, state, (membership, Position::Back), How::new(WaitReason::Barrier)) {
            Ok(_membership) => BarrierWaitResult(false),
            Err(Left { mut state, by }) => {
                if !state.leave(round) && !mutated(Mutant::BarrierUnwindsTheCounted) {
                    return BarrierWaitResult(false);
                }
                drop(state);
                by.expect("wait: a wait without a limit was called or interrupted").throw::<Active>()
            }
        }
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").finish_non_exhaustive()
    }
}
