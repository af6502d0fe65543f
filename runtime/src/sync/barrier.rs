//! A barrier: waiters continue together.
//!
//! A waiter is counted when it arrives; the waiter that arrives as the last of `size` opens the round, under the lock. A waiter
//! whose wait an interrupt has claimed still counts until the waiter has taken the lock. If the round is open by then, the
//! waiter continues as one of the `size`, and the interrupt is delivered at the waiter's next park. If the round is closed, the
//! waiter takes itself off the count and unwinds. So an open round releases exactly `size` waiters. The abandon hook of a
//! waiter that its runtime leaves behind takes that waiter off the count.
//!
//! A limit ends a wait as an interrupt does: the waiter leaves the count, or continues as one of the `size`. The obvious way is
//! Java's, where a waiter that gives up breaks the barrier for all. Here a waiter that is unwound, whose future is dropped, or
//! whose limit has passed leaves the others to wait for one more arrival; if none will come, the program has to end their
//! waits.
//!
//! Checked by `models/barrier.rs`.

use crate::host::{Active, Clock};
use crate::impls::opaque;
use crate::prim::hooks::*;
use crate::prim::{Mutex, Rank, const_fn};
use crate::sched::park::WaitReason;
use crate::sync::wait_queue::{Gone, HasWaitQueue, Left, Notified, Position, TaskIn, WaitQueue, wait_in};
use crate::wait::task::{Readied, TaskWait};
use crate::wait::waiter::{How, Wait};
use gmp_timers::Nanos;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Blocks waiters until `n` have come, and then releases all of them; any number of times. Signatures and behaviour are those
/// of `std::sync::Barrier`.
///
/// Goroutines and plain threads may be mixed. A waiter that is unwound out of [`wait`](Self::wait) no longer counts: in each
/// round exactly `n` waiters return, one of them as the leader. If the round opens before an interrupted waiter was taken off
/// the count, the waiter returns, and is interrupted at the next park. (A goroutine that its runtime leaves behind after the
/// round has opened counts as returned.)
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
    /// The number of waiters of this round that have arrived.
    arrived: usize,
    /// The number of this round.
    round: usize,
    waiters: WaitQueue<Membership>,
}

/// The membership of a waiter in a round, whose end the waiter waits for.
struct Membership {
    barrier: *const Barrier,
    round: usize,
}

// SAFETY: the barrier is Sync.
unsafe impl Send for Membership {}

impl State {
    /// Counts a waiter that arrives. Returns `true` if it is the last of `size`: then the round is open, and this call has
    /// notified the others.
    fn arrive(&mut self, size: usize, notified: &mut Notified<Membership>) -> bool {
        self.arrived += 1;
        let last = self.arrived >= size;
        if last {
            self.arrived = 0;
            self.round = self.round.wrapping_add(1);
            self.waiters.notify_all(notified);
        }
        last
    }

    /// Takes a waiter of `round` off the count, unless that round has opened. Returns `true` if the count has fallen.
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
    fn settle(membership: &Membership, _notified: bool) -> Readied<Active> {
        // SAFETY: the record's owner never runs again, and borrows the barrier for good.
        let barrier = unsafe { &*membership.barrier };
        mutant!(BarrierCountsTheLeft: return Readied::new());
        barrier.state.lock().leave(membership.round);
        Readied::new()
    }
}

/// The result of [`Barrier::wait`].
///
/// ```
/// use gmp::sync::Barrier;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let barrier = Barrier::new(3);
///         let leaders = gmp::scope(|scope| {
///             let waits = [(); 3].map(|()| scope.go(|| barrier.wait().is_leader()));
///             waits.map(|wait| wait.join().unwrap()).into_iter().filter(|leads| *leads).count()
///         });
///         assert_eq!(leaders, 1);
///     })
/// }
/// ```
#[derive(Debug)]
pub struct BarrierWaitResult {
    is_leader: bool,
}

impl BarrierWaitResult {
    /// Returns `true` for one waiter of each round: the last to arrive.
    pub fn is_leader(&self) -> bool {
        self.is_leader
    }
}

impl Barrier {
    const_fn! {
        /// Makes a barrier for rounds of `n` waiters. With 0, as with 1, `wait` never blocks.
        pub fn new(n: usize) -> Self {
            Barrier { size: n, state: Mutex::new(Rank::WaitQueue, State { arrived: 0, round: 0, waiters: WaitQueue::new() }) }
        }
    }

    /// Blocks the calling goroutine, or the plain thread, until `n` waiters have arrived.
    ///
    /// ```
    /// let barrier = gmp::sync::Barrier::new(2);
    /// std::thread::scope(|scope| {
    ///     let other = scope.spawn(|| barrier.wait().is_leader());
    ///     assert_ne!(barrier.wait().is_leader(), other.join().unwrap());
    /// });
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn wait(&self) -> BarrierWaitResult {
        self.wait_in(None).expect("wait: the round has opened, as there is no limit")
    }

    /// As [`wait`](Self::wait), for at most `timeout`. Returns `None` if the round has not opened by then: the caller no longer
    /// counts, and the others of the round wait for one more arrival, by any caller. The limit also holds where nothing can be
    /// unwound.
    ///
    /// ```
    /// use gmp::sync::Barrier;
    /// use std::time::Duration;
    ///
    /// let barrier = Barrier::new(2);
    /// assert!(barrier.wait_timeout(Duration::from_millis(1)).is_none());
    /// std::thread::scope(|scope| {
    ///     // Both come, and each is counted once.
    ///     let other = scope.spawn(|| barrier.wait().is_leader());
    ///     let mine = barrier.wait_timeout(Duration::from_secs(60)).unwrap();
    ///     assert_ne!(mine.is_leader(), other.join().unwrap());
    /// });
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[must_use = "`None` says that the round has not opened"]
    pub fn wait_timeout(&self, timeout: Duration) -> Option<BarrierWaitResult> {
        self.wait_in(Some(Active::after(timeout)))
    }

    /// As [`wait_timeout`](Self::wait_timeout), until `deadline` at most.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[must_use = "`None` says that the round has not opened"]
    pub fn wait_deadline(&self, deadline: Instant) -> Option<BarrierWaitResult> {
        self.wait_in(Some(Active::nanos(deadline)))
    }

    #[inline(always)]
    fn wait_in(&self, until: Option<Nanos>) -> Option<BarrierWaitResult> {
        let wait = Wait::begin();
        let mut notified = Notified::new();
        let mut state = self.state.lock();
        if state.arrive(self.size, &mut notified) {
            drop(state);
            wait.withdraw();
            notified.ready();
            return Some(BarrierWaitResult { is_leader: true });
        }
        let round = state.round;
        let place = (Membership { barrier: self, round }, Position::Back);
        match wait_in(wait, &self.state, state, place, How::new(WaitReason::Barrier).until(until)) {
            Ok(_membership) => Some(BarrierWaitResult { is_leader: false }),
            Err(Left { mut state, by }) => {
                if (!state.leave(round)).unless(BarrierUnwindsTheCounted) {
                    return Some(BarrierWaitResult { is_leader: false });
                }
                drop(state);
                if let Some(interrupt) = by {
                    interrupt.throw::<Active>();
                }
                None
            }
        }
    }
}

impl Barrier {
    /// As [`wait`](Self::wait), as a future, whose polls do not block: any task may poll it, on goroutines
    /// ([`block_on`](crate::block_on)), on plain threads and under other executors, and the task that has polled last is woken.
    ///
    /// The future arrives in its first poll. A future that is dropped before the round opens no longer counts; a future that is
    /// dropped after that has counted, whether or not it was polled again. Polled after its end, a future arrives once more.
    ///
    /// ```
    /// use gmp::sync::Barrier;
    /// use std::sync::Arc;
    ///
    /// let barrier = Arc::new(Barrier::new(2));
    /// let theirs = Arc::clone(&barrier);
    /// let other = std::thread::spawn(move || theirs.wait().is_leader());
    /// let leads = gmp::block_on(barrier.wait_async()).is_leader();
    /// assert_ne!(leads, other.join().unwrap());
    /// ```
    pub fn wait_async(&self) -> BarrierWait<'_> {
        BarrierWait { barrier: self, round: 0, task: TaskIn::new() }
    }
}

/// Waits for the end of a round, as a future; made by [`Barrier::wait_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct BarrierWait<'a> {
    barrier: &'a Barrier,
    /// The round, while the future waits.
    round: usize,
    task: TaskIn<State>,
}

impl<'a> BarrierWait<'a> {
    fn parts(self: Pin<&mut Self>) -> (&'a Barrier, &mut usize, Pin<&mut TaskIn<State>>) {
        // SAFETY: `task` is pinned with the future; nothing moves it.
        unsafe {
            let this = self.get_unchecked_mut();
            (this.barrier, &mut this.round, Pin::new_unchecked(&mut this.task))
        }
    }
}

impl Future for BarrierWait<'_> {
    type Output = BarrierWaitResult;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BarrierWaitResult> {
        let (barrier, round, task) = self.parts();
        if task.is_waiting() {
            return task.poll(cx).map(|_membership| BarrierWaitResult { is_leader: false });
        }
        let wait = TaskWait::open(cx.waker());
        let mut notified = Notified::new();
        let mut state = barrier.state.lock();
        if state.arrive(barrier.size, &mut notified) {
            drop(state);
            wait.withdraw();
            notified.ready();
            return Poll::Ready(BarrierWaitResult { is_leader: true });
        }
        *round = state.round;
        let membership = Membership { barrier, round: *round };
        task.join(wait, &mut state, (membership, Position::Back));
        Poll::Pending
    }
}

impl Drop for BarrierWait<'_> {
    fn drop(&mut self) {
        // SAFETY: the future is dropped where it was pinned, if polled, and is never moved again.
        let (barrier, round, task) = unsafe { Pin::new_unchecked(self) }.parts();
        if let Some(Gone::Left(mut state)) = task.leave(&barrier.state) {
            mutant!(BarrierDropsTheCounted: return);
            state.leave(*round);
        }
    }
}

opaque!(BarrierWait<'_>, Barrier);
