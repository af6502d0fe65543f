//! The poller: which M waits in it, what that M finds, and how another thread breaks the wait.
//!
//! At most one M blocks in the poller, without a P; busy Ms, and the monitor, only look. The blocked M's wait ends by a
//! descriptor, by the time of the earliest timer, or by a *break*:
//!
//! ```text
//!   Nobody ──(an M stands by)──▶ Blocked(m) ──(a break is sent: work, with an assignment; an earlier timer)──▶ Broken
//!      ▲                            │                                                                     │
//!      └───────────────── m comes back, for any reason ───────────────────────────────────────────────────┘
//! ```
//! The state changes under the central lock, so at most one break is sent. A break is an edge in the kernel, which the first M
//! that polls consumes. A busy M that consumes a break while another M is in the poller sends another break.
//!
//! A goroutine that goes to sleep can set a timer that is earlier than the end of the poller's wait. If the sleeper's M read
//! that end under the lock, each sleep would take the lock. So `poll_until` says, without the lock, until when the wait lasts:
//!
//! ```text
//!   M that saves a sleeper                         M that enters the poller
//!
//!   T1  insert the timer                           B1  `poll_until` := for ever
//!   T2  TimerFence                                 B2  IdleFence or SummonedInVainFence
//!   T3  `poll_until` later than the timer?         B3  look at every heap; `poll_until` := the earliest
//!       break the wait (under the lock)
//! ```
//! One of the fences comes first: B3 sees the timer, or T3 sees B1. B2 is IdleFence (`sched/run/wake.rs`), or
//! SummonedInVainFence of an M that was summoned in vain.
//!
//! If the kernel refuses every call that waits, or refuses a break, the poller's waits are short. A refused wait reports no
//! event: so after each refused wait the poller readies all goroutines that wait for a socket, and they make their system calls
//! again.
//!
//! Checked by `models/poll.rs`.

mod table;

use crate::g::list::GList;
use crate::host::Host;
use crate::m::M;
use crate::prim::hooks::*;
use crate::prim::{Ordering, Relaxed, Release, event, fence};
use crate::sched::lasting::MRef;
use crate::sched::watch::told::Refusal;
use crate::sched::{Central, Sched};
use crate::wait::task::Carried;
use gmp_netpoll::{Timeout, Woken};
use gmp_timers::Nanos;
use std::io;
use std::time::Duration;

pub(crate) use table::PollTable;

/// `poll_until` while no M waits: no timer is earlier than this.
pub(crate) const NO_POLLER: u64 = 0;
/// `poll_until` of a wait without a time limit.
const FOREVER: u64 = u64::MAX;

/// The length of a wait that no break can end, or that sees no event.
const BLIND: Duration = Duration::from_millis(1);

/// Which M is in the poller.
enum Poller<H: Host> {
    /// No M.
    Nobody,
    /// An M that waits, or is about to.
    Blocked(MRef<H>),
    /// An M that will come back soon, because its wait was broken.
    Broken,
}

/// The place of the M in the poller, under the central lock. Only this file fills and empties it, together with `poll_until`.
pub(crate) struct PollerSpot<H: Host>(Poller<H>);

impl<H: Host> PollerSpot<H> {
    pub(crate) fn new() -> Self {
        PollerSpot(Poller::Nobody)
    }

    /// Returns `true` if no M is there.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.0, Poller::Nobody)
    }

    /// Returns the M that waits, or is about to, if no break was sent to it.
    pub(crate) fn blocked(&self) -> Option<MRef<H>> {
        if let Poller::Blocked(m) = self.0 { Some(m) } else { None }
    }

    /// Returns `true` if an M is there that will come back soon, because its wait was broken.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self.0, Poller::Broken)
    }
}

impl<H: Host> Sched<H> {
    /// B1: `m` is the M that waits from here on. Under the lock.
    pub(crate) fn enter_poller(&self, m: &M<H>, central: &mut Central<H>) {
        central.poller.0 = Poller::Blocked(MRef::of(m));
        mutant!(PollerSaysNothing: return);
        // Relaxed: partner TimerFence, by B2.
        self.poll_until.store(FOREVER, Relaxed);
    }

    /// Takes the M out of the poller, before or after its wait. Under the lock.
    pub(crate) fn leave_poller(&self, central: &mut Central<H>) {
        central.poller.0 = Poller::Nobody;
        self.note_no_poller();
    }

    /// Marks the wait of the M in the poller as broken; the caller breaks it after the lock. Under the lock.
    pub(crate) fn expel_poller(&self, central: &mut Central<H>) {
        if central.poller.blocked().is_some() {
            central.poller.0 = Poller::Broken;
            self.note_no_poller();
        }
    }

    /// Under the lock.
    fn note_no_poller(&self) {
        // Release: partner `call_is_next`: a spinner that has seen the poller occupied under the lock, and so wakes no M (L3 of
        // `run/spin.rs`), has left the census.
        self.poll_until.store(NO_POLLER, Release);
    }

    /// Waits until there is something to do. `m` has entered the poller and passed IdleFence or SummonedInVainFence. `m`
    /// comes back with a P, or without one when all are held; the goroutines that `m` found are queued.
    pub(crate) fn block_in_poller(&self, m: &M<H>) {
        let until = self.earliest_timer();
        mutant!(PollerSkipsTimers: let until = None);
        if let Some(until) = until {
            // The exchange fails if the wait was already broken.
            let _broken = self.poll_until.compare_exchange(FOREVER, until.as_nanos(), Relaxed, Relaxed);
        }
        let wait = match until {
            None => Timeout::Forever,
            Some(due) => match due.saturating_since(H::now()) {
                left if left.is_zero() => Timeout::Zero,
                left => Timeout::After(left),
            },
        };
        let mut found = GList::new();
        let ended_it = self.poll(&m.local, wait, &mut found);
        event(format_args!("comes from the poller, broken: {ended_it:?}"));
        self.refresh_coarse_clock();

        let mut central = self.central.lock();
        // The state, not the reason for which the wait ended, decides whether there is an assignment: an event can have ended
        // the wait although a break was sent. Then that break ends the next wait of the poller at once.
        let was_broken = central.poller.is_broken();
        mutant!(AssignmentOnlyByBreak: let was_broken = was_broken && ended_it == Woken::Yes);
        self.leave_poller(&mut central);
        if was_broken {
            m.take_assignment_in_lock();
        }
        if m.p().is_none()
            && let Some(p) = self.addressee_or(&mut central, m.last_p())
        {
            m.acquire_in_lock(p);
        }
        drop(central);
        m.go_where_the_p_belongs();
        mutant!(PollResultsDropped: if m.p().is_none() { return });
        self.submit_found(m, found);
        if until.is_some().unless(PollerRunsNoTimers) {
            self.run_all_timers(m);
        }
    }

    /// Polls without waiting. For a busy M and the monitor, which queue the goroutines that this returns.
    #[must_use]
    pub(crate) fn poll_now(&self, local: &H::Local) -> GList<H> {
        let mut found = GList::new();
        if self.poll(local, Timeout::Zero, &mut found) == Woken::Yes {
            // The break was meant for the M that waits, if there is one.
            let waiting = !self.central.lock().poller.is_empty();
            if waiting {
                mutant!(SwallowedBreakKept: return found);
                self.break_poll();
            }
        }
        found
    }

    /// Returns `true` if no M waits in the poller, and a descriptor is watched: then the caller's poll is needed. A hint.
    #[inline]
    pub(crate) fn nobody_polls(&self) -> bool {
        self.descs.watches_any() && self.poll_until.load(Relaxed) == NO_POLLER
    }

    #[inline(always)]
    fn poll(&self, local: &H::Local, wait: Timeout, found: &mut GList<H>) -> Woken {
        let mut tasks = Carried::nothing();
        let mut take = |waker| tasks.push(self, waker);
        // The table is locked once for all events.
        let lock = || self.descs.lock();
        let polled = self.host.poll(local, self.within_reach(wait), lock, |entries, key, readiness| {
            entries.unblock(key, readiness, found, &mut take);
        });
        tasks.wake(self, found);
        // Relaxed: a hint for the monitor; two Ms that count at the same time might count only once.
        self.polls.store(self.polls.load(Relaxed).wrapping_add(1), Relaxed);
        match polled {
            Ok(broken) => broken,
            Err(refused) => self.poll_blindly(wait, found, &refused),
        }
    }

    /// Shortens a wait that can't be broken.
    fn within_reach(&self, wait: Timeout) -> Timeout {
        match wait {
            Timeout::After(limit) if self.was_refused(Refusal::Break) => Timeout::After(limit.min(BLIND)),
            Timeout::Forever if self.was_refused(Refusal::Break) => Timeout::After(BLIND),
            wait => wait,
        }
    }

    /// Waits although the kernel refuses every call by which a poller waits, because of a sandbox, or because the program has
    /// closed the epoll descriptor. Each goroutine that waits for a socket looks at that socket now and then instead. The sleep
    /// does not see a break, so it is short.
    #[cold]
    fn poll_blindly(&self, wait: Timeout, found: &mut GList<H>, refused: &io::Error) -> Woken {
        self.tell_refused(Refusal::Poll, || {
            format!("the poller does not work any more ({refused}): sockets are looked at every {BLIND:?}")
        });
        let pause = match wait {
            Timeout::Zero => Duration::ZERO,
            Timeout::After(limit) => limit.min(BLIND),
            Timeout::Forever => BLIND,
        };
        if !pause.is_zero() {
            H::rest(pause);
        }
        let mut tasks = Carried::nothing();
        self.descs.unblock_all(found, &mut |waker| tasks.push(self, waker));
        tasks.wake(self, found);
        Woken::No
    }

    /// Ends the wait of the M in the poller. If the kernel refuses that, the next waits are short.
    pub(crate) fn break_poll(&self) {
        if let Err(refused) = self.host.break_poll() {
            self.tell_refused(Refusal::Break, || {
                format!("a wait in the poller can't be ended ({refused}): what is submitted may wait for {BLIND:?}")
            });
        }
    }

    /// T2 and T3: a timer was inserted. Makes sure that the poller does not sleep past that timer.
    #[doc(alias = "wakeNetPoller")]
    pub(crate) fn wake_poller_before(&self, due: Nanos) {
        // TimerFence. SeqCst: a store to a heap's `earliest`, then a load of `poll_until`; partners: IdleFence in `go_idle` and
        // SummonedInVainFence.
        fence(Ordering::SeqCst.unless(TimerNoFence));
        if due.as_nanos() >= self.poll_until.load(Relaxed) {
            return;
        }
        let mut central = self.central.lock();
        if central.poller.blocked().is_some() {
            self.expel_poller(&mut central);
            drop(central);
            mutant!(TimerNoBreak: return);
            self.break_poll();
        }
    }
}
