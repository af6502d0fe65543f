//! Taking a P from an M that does not come back (Go's `retake`): nothing that a goroutine does stalls the others.
//!
//! The monitor looks at every P that is held. It judges a *stay*: one goroutine, on one M, since the look that first saw it.
//! A stay goes on as long as the hand-off word and the P's tick are unchanged.
//!
//! | the stay | and | then |
//! | --- | --- | --- |
//! | blocks its thread | others wait | the P is taken at this look |
//! | blocks its thread, for [`TIME_SLICE`] | no goroutine waits | the P is taken: the P is to be idle, and the process as well |
//! | runs, for [`TIME_SLICE`] | others wait | the P is taken, unless the kernel lets the thread wait |
//! | runs on a surplus P (`procs.rs`) | | the P is taken at this look |
//! | anything else | | nothing |
//!
//! Others *wait* in three cases: a goroutine stands in the P's own queue, in the global queue, in a mailbox, or in the batch or
//! the queue of a class above `Background`; or a job of another goroutine than the running one stands on the P
//! (`sched/run/jobs.rs`); or the runtime ends, as the ender waits then. A job of the running goroutine, and a goroutine of
//! `Background`, count only if the thread is blocked, or if the kernel says at a look after a time slice that the thread waits:
//! a thread that sleeps again and again is found so.
//!
//! A thread *blocks* when it has used no CPU since the last look, and the kernel says that it waits for something. The first
//! alone is not enough: where there are more threads than cores, a thread that the kernel has preempted makes no progress for
//! milliseconds either. The kernel says so in a file, which the monitor reads only where others wait, or a stay has lasted for
//! a time slice. So a thread that blocks while others wait keeps the P for two looks at most: 10 ms, twice [`SLOWEST`]. A
//! thread of which the file can't be read keeps the P for [`STARVED_LIMIT`], like one that the kernel keeps from running.
//!
//! A goroutine may enter the runtime while the monitor takes its P. Before its stay is a time slice old it keeps the P: it was
//! blocked, and is back. After that, when others wait, or on a surplus P, it has no claim to the P, blocked or not: the monitor
//! *demands* that P, and the goroutine gives it up on entering (`m/handoff.rs`): else one that enters again and again would
//! never be found away. A demand is in vain if the M was inside all the time; then the next eight looks come at once. A demand
//! ends before a visit (`host/native/barrier.rs`), which may last for long: no M could use a P that is ceded meanwhile.
//!
//! The goroutine goes on, on its thread and without a P. Calls that never park go on too, as from a plain thread; the next
//! one that may park comes back for a P (`blocking.rs`), and so does a spawn after many others (`run/spree.rs`). How the P is
//! taken from an M that may be entering the runtime at the same moment is R1 to R3 of `m/mod.rs`; the monitor alone does it,
//! so there is one retaker at a time.
//!
//! A P for which goroutines wait is taken only for an M that can have it. When there may be no more threads the operator
//! is told, once, and the stay goes on. A P for which no goroutine waits needs no M, and becomes idle.
//!
//! Checked by `models/window.rs`; what is decided by times, by the tests below.

use crate::host::Host;
use crate::m::M;
use crate::m::handoff::{Ask, Entries, Judged};
use crate::p::P;
use crate::prim::hooks::*;
use crate::prim::{Ordering, fence};
use crate::sched::watch::told::Refusal;
use crate::sched::{Central, Sched};
use gmp_timers::Nanos;
use std::ptr::NonNull;
use std::time::Duration;

/// How long a goroutine may keep the P while others wait: Go's 10 ms, less the time until another runs there. As a stay is
/// known only from the first look that saw it, the time counts from the look before that one: a goroutine may be younger by one
/// pause, and no goroutine waits longer.
const TIME_SLICE: Duration = Duration::from_micros(9_800);
/// A thread that has used so little of a CPU in a slice was kept from the CPU by other threads, and another thread in its
/// place would be as well.
const HARDLY: Duration = Duration::from_micros(600);
/// How long that is an excuse. The goroutine that waits for the P may be the one for which those other threads wait.
const STARVED_LIMIT: Duration = Duration::from_millis(40);
/// How soon after a look that took a P, or has found a thread waiting in the kernel while others wait for the P, or has
/// demanded a P in vain, the next one comes.
const AT_ONCE: Duration = Duration::from_micros(50);
/// How long looks go on at that pace after one that took a P, and how often for a P that was demanded in vain.
const HOT: u32 = 8;
/// The longest pause. At this pace, looks at Ps that are all at work cost some 0.3 to 0.6 % of a core.
pub(crate) const SLOWEST: Duration = Duration::from_millis(5);

/// A stay, as the monitor knows it.
#[derive(Copy, Clone, Debug)]
struct Stay {
    judged: Judged,
    tick: u32,
    /// The look before the one that first saw the stay.
    since: Nanos,
    /// What the thread had used of a CPU at the last look that asked.
    cpu: Option<Duration>,
    /// What the thread had used at the first of these looks.
    cpu_first: Option<Duration>,
    /// The thread was found waiting in the kernel.
    suspect: bool,
    /// So often the P was demanded in vain.
    demands: u32,
}

impl Stay {
    /// The P was demanded, and stays: the M was inside the runtime all the time, or there was no barrier.
    fn demanded_in_vain(&mut self) -> Found {
        self.demands = self.demands.saturating_add(1);
        Found::Awaited { closer: self.demands <= HOT, left: Duration::ZERO }
    }
}

/// What the monitor remembers between two looks.
pub(crate) struct Watch {
    stays: Vec<Option<Stay>>,
    last_look: Nanos,
    pause: Duration,
    /// So many more looks at once.
    hot: u32,
}

/// What a look at a P came to.
enum Found {
    Nothing,
    /// The P was taken.
    Taken,
    /// The P is to be taken at a later look, if that finds the same stay. `closer`: the thread may be blocked, which the next
    /// look is to see, or the P was demanded in vain. `left`: so much of the slice; zero: it is over, and `closer` alone says
    /// whether the next look is to come at once.
    Awaited {
        closer: bool,
        left: Duration,
    },
}

/// What a look at all Ps came to.
#[derive(Copy, Clone, Debug, Default)]
struct Seen {
    took: bool,
    closer: bool,
    next_due: Option<Duration>,
}

/// What a look saw of a stay.
#[derive(Copy, Clone, Debug)]
struct Look {
    ran: Duration,
    waits: bool,
    state: State,
}

/// What the M's thread did since the last look.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum State {
    /// The thread waited for something in the kernel.
    Blocked,
    /// The thread was runnable, and hardly got a CPU.
    Starved,
    Running,
}

impl Look {
    /// Returns `true` if the P is to be taken: the table of the module's header.
    fn is_to_go(self) -> bool {
        match self.state {
            State::Blocked => self.waits || self.ran >= TIME_SLICE,
            State::Running => self.waits && self.ran >= TIME_SLICE,
            State::Starved => self.waits && self.ran >= STARVED_LIMIT,
        }
    }
}

impl Watch {
    pub(crate) fn new(now: Nanos) -> Self {
        Watch { stays: Vec::new(), last_look: now, pause: SLOWEST, hot: 0 }
    }

    /// Returns when a stay that is new at this look can have begun. The monitor may have slept for long before the
    /// look.
    fn since(&self, now: Nanos) -> Nanos {
        self.last_look.max(Nanos::from_nanos(now.as_nanos().saturating_sub(SLOWEST.as_nanos() as u64)))
    }

    /// Returns when to look again: at once while there are Ps to take, then ever later, and when a stay for which others wait
    /// has had a time slice.
    fn settle_pause(&mut self, seen: Seen) -> Duration {
        if seen.took {
            self.hot = HOT;
        }
        self.pause = if self.hot > 0 || seen.closer { AT_ONCE } else { (self.pause * 2).min(SLOWEST) };
        self.hot = self.hot.saturating_sub(1);
        seen.next_due.map_or(self.pause, |due| self.pause.min(due.max(AT_ONCE)))
    }
}

impl<H: Host> Sched<H> {
    /// One look at all Ps. Returns how long the next one may wait.
    pub(crate) fn retake_all(&self, watch: &mut Watch, now: Nanos) -> Duration {
        let mut stays = std::mem::take(&mut watch.stays);
        stays.resize(self.ps.len(), None);
        let mut seen = Seen::default();
        for (p, stay) in self.ps.iter().zip(&mut stays) {
            match self.look_at(p, stay, watch, now) {
                Found::Nothing => {}
                Found::Taken => {
                    *stay = None;
                    seen.took = true;
                }
                Found::Awaited { closer, left } => {
                    seen.closer |= closer;
                    if !left.is_zero() {
                        seen.next_due = Some(seen.next_due.map_or(left, |due| due.min(left)));
                    }
                }
            }
        }
        watch.stays = stays;
        watch.last_look = now;
        watch.settle_pause(seen)
    }

    fn look_at(&self, p: &P<H>, known: &mut Option<Stay>, watch: &Watch, now: Nanos) -> Found {
        let Some((judged, m)) = Self::judge(p) else {
            *known = None;
            return Found::Nothing;
        };
        let tick = p.tick();
        let works = self.has_work_for_now(p) || !self.globrunq_is_empty() || p.jobs.have_waited(tick);
        // The goroutine that runs comes to its jobs itself, unless its thread is blocked; and what stands in the background
        // waits for it until then.
        let unless_blocked = !works && (!p.jobs.is_empty() || self.has_background(p));
        // At the end of the runtime the ender waits; without its P a goroutine that runs on can be told (`watch/ending.rs`).
        let waits = works || self.is_ending();
        let stay = match known {
            Some(stay) if stay.judged == judged && stay.tick == tick => stay,
            _ => {
                // Asked at once: the next look is to judge this stay.
                let cpu = H::cpu_time(m.thread());
                let since = watch.since(now);
                *known = Some(Stay { judged, tick, since, cpu, cpu_first: cpu, suspect: false, demands: 0 });
                return if waits {
                    Found::Awaited { closer: false, left: TIME_SLICE }
                } else {
                    Found::Nothing
                };
            }
        };
        let ran = now.saturating_since(stay.since);
        let left = TIME_SLICE.saturating_sub(ran);
        // No M is to have the P after that.
        if self.is_to_retire(NonNull::from(p)) {
            let taken = self.retake(p, (judged, m), Ask::InAnyCase(tick));
            return if taken { Found::Taken } else { stay.demanded_in_vain() };
        }
        let overdue = waits && left.is_zero();
        // Inside the runtime no goroutine keeps the P, unless it is there at each look.
        if m.is_inside() && !overdue {
            return if waits { Found::Awaited { closer: false, left } } else { Found::Nothing };
        }
        if !waits && !unless_blocked && ran < TIME_SLICE {
            return Found::Nothing;
        }
        let state = self.state_of(m, stay);
        // One that sleeps again and again, for less than from look to look, is found to run, and asleep.
        let sleeps = || state == State::Blocked || ran >= TIME_SLICE && self.is_blocked(m);
        let waits = waits || unless_blocked && sleeps();
        let look = Look { ran, waits, state };
        // Without work the P is idle until this M, or another, comes back for it.
        let is_wanted = works || unless_blocked;
        if look.is_to_go() && (!is_wanted || self.can_hand_off()) {
            let ask = if overdue { Ask::InAnyCase(tick) } else { Ask::IfAway };
            if self.retake(p, (judged, m), ask) {
                return Found::Taken;
            }
            if overdue {
                return stay.demanded_in_vain();
            }
        }
        if !waits {
            return Found::Nothing;
        }
        let closer = !stay.suspect && self.is_blocked(m);
        stay.suspect |= closer;
        Found::Awaited { closer, left }
    }

    fn state_of(&self, m: &M<H>, stay: &mut Stay) -> State {
        let Some(cpu) = H::cpu_time(m.thread()) else { return State::Running };
        let first = *stay.cpu_first.get_or_insert(cpu);
        if stay.cpu.replace(cpu) == Some(cpu) && self.is_blocked(m) {
            State::Blocked
        } else if cpu.saturating_sub(first) < HARDLY {
            State::Starved
        } else {
            State::Running
        }
    }

    /// Returns `true` if the M's thread is blocked. In doubt the answer is `false`: then a thread that is blocked, as it uses
    /// no CPU, is judged `Starved`, and keeps the P for [`STARVED_LIMIT`].
    fn is_blocked(&self, m: &M<H>) -> bool {
        H::is_blocked(&m.local).unwrap_or_else(|refused| {
            let time = STARVED_LIMIT.as_millis();
            self.tell_refused(Refusal::Watch, || {
                format!(
                    "what a thread does can't be read in /proc ({refused}): a goroutine that blocks its thread keeps others \
                     waiting for {time} ms"
                )
            });
            false
        })
    }

    /// The M that has the P, and the M's lease. When the P changes hands between the two reads, the retake fails.
    pub(crate) fn judge(p: &P<H>) -> Option<(Judged, &M<H>)> {
        let judged = p.handoff.judge();
        Some((judged, p.holder()?))
    }

    /// Takes `p` from `m`, the holder of the lease that was judged, and has another M take `p`, or makes `p` idle. Returns
    /// `false` if `m` is inside the runtime and has not ceded the P, the P is in another lease by now, or the barrier could not
    /// be had.
    pub(crate) fn retake(&self, p: &P<H>, (judged, m): (Judged, &M<H>), ask: Ask) -> bool {
        self.retake_behind(p, (judged, m), ask, |relent| self.barrier_with(m, judged, relent))
    }

    /// For models: as `retake`, with a call of `between` between R2 and R3.
    #[cfg(all(test, gmp_loom))]
    pub(crate) fn retake_and_pause(
        &self,
        p: &P<H>,
        (judged, m): (Judged, &M<H>),
        ask: Ask,
        between: impl FnOnce(),
    ) -> bool {
        self.retake_behind(p, (judged, m), ask, |relent| {
            let seen = self.barrier_with(m, judged, relent);
            between();
            seen
        })
    }

    fn retake_behind(
        &self,
        p: &P<H>,
        (judged, m): (Judged, &M<H>),
        ask: Ask,
        barrier: impl FnOnce(&dyn Fn() -> bool) -> bool,
    ) -> bool {
        if !p.handoff.retake(judged, ask, barrier, || m.is_inside()) {
            return false;
        }
        p.owner.touch();
        p.set_holder(None);
        unless!(RetakeGivesUpLate, p.handoff.give_up());
        unless!(RetakeKeepsTheCpus, self.unbind_from(m, p.id, judged));
        mutant!(RetakeKeepsP: return true);
        self.handoffp(NonNull::from(p));
        mutant!(RetakeGivesUpLate: relax(); p.handoff.give_up());
        true
    }

    /// RetakeBarrier, with the M of the lease that was judged. Returns `false` if the barrier could not be had: the P stays
    /// with the M. A demand ends by `relent` before a visit, which may wait long for a CPU.
    fn barrier_with(&self, m: &M<H>, judged: Judged, relent: &dyn Fn() -> bool) -> bool {
        mutant!(WindowNoRetakeBarrier: return true);
        let entries = judged.entries();
        mutant!(RetakeTakesAllForFenced: let entries = Entries::Fenced);
        if entries == Entries::Fenced {
            // SeqCst: the request, then a load of `in_runtime`; partner: `settle` in `m/mod.rs`.
            fence(Ordering::SeqCst);
            return true;
        }
        let Err(refused) = H::heavy_barrier() else { return true };
        self.tell_refused(Refusal::Barrier, || {
            format!("membarrier is refused ({refused}): each entry into the runtime has a fence from now on")
        });
        mutant!(VisitDemands: let relent = &(|| true) as &dyn Fn() -> bool);
        if !relent() {
            // R3 finds the answer, and needs no barrier.
            return false;
        }
        let passed = H::slow_barrier(&m.local, m.thread());
        if !passed {
            self.tell_refused(Refusal::SlowBarrier, || {
                "a goroutine that has run since before membarrier was refused keeps its P until it calls the runtime: \
                 its thread can't be made to pass a barrier"
                    .to_owned()
            });
        }
        passed
    }

    /// Returns `true` if an M can be had for a P that is taken. Else this is said, once.
    fn can_hand_off(&self) -> bool {
        let central = self.central.lock();
        let there_is = central.can_have_m(self.config.max_threads);
        if !there_is {
            self.warn_at_the_limit(central);
        }
        there_is
    }
}

impl<H: Host> Central<H> {
    /// Returns `true` if an M stands by, another one may be made, or one waits for a bound goroutine.
    fn can_have_m(&self, max_threads: u32) -> bool {
        self.idle.has_m()
            || self.poller.blocked().is_some()
            || self.living() + self.asked_for < max_threads
            // A goroutine that is bound to such an M may be what waits for the P.
            || !self.bound_ms.is_empty()
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(50);

    fn goes(state: State, ran: Duration, waits: bool) -> bool {
        Look { ran, waits, state }.is_to_go()
    }

    #[test]
    fn what_blocks_goes_at_once_when_others_wait_and_in_time_when_nobody_does() {
        assert!(goes(State::Blocked, SHORT, true));
        assert!(!goes(State::Blocked, SHORT, false));
        assert!(goes(State::Blocked, TIME_SLICE, false));
    }

    #[test]
    fn what_runs_goes_in_time_and_only_when_others_wait() {
        assert!(!goes(State::Running, TIME_SLICE - SHORT, true));
        assert!(goes(State::Running, TIME_SLICE, true));
        assert!(!goes(State::Running, TIME_SLICE * 100, false));
    }

    #[test]
    fn what_the_kernel_keeps_from_running_has_more_time() {
        assert!(!goes(State::Starved, TIME_SLICE, true));
        assert!(goes(State::Starved, STARVED_LIMIT, true));
        assert!(!goes(State::Starved, STARVED_LIMIT, false));
    }

    #[test]
    fn looks_come_at_once_while_they_take_something_and_then_ever_later() {
        let (took, nothing) = (Seen { took: true, ..Seen::default() }, Seen::default());
        let mut watch = Watch::new(Nanos::ZERO);
        assert_eq!(watch.settle_pause(nothing), SLOWEST);
        for _ in 0..3 {
            assert_eq!(watch.settle_pause(took), AT_ONCE);
        }
        for _ in 1..HOT {
            assert_eq!(watch.settle_pause(nothing), AT_ONCE);
        }
        assert_eq!(watch.settle_pause(nothing), AT_ONCE * 2);
        for _ in 0..8 {
            watch.settle_pause(nothing);
        }
        assert_eq!(watch.settle_pause(nothing), SLOWEST);
    }

    #[test]
    fn what_may_be_blocked_is_looked_at_closely_and_no_slice_is_missed() {
        let mut watch = Watch::new(Nanos::ZERO);
        let awaited = Seen { next_due: Some(TIME_SLICE), ..Seen::default() };
        assert_eq!(watch.settle_pause(Seen { closer: true, ..awaited }), AT_ONCE);
        assert_eq!(watch.settle_pause(awaited), AT_ONCE * 2);
        watch.pause = SLOWEST;
        let due = |nanos| Seen { next_due: Some(Duration::from_nanos(nanos)), ..awaited };
        assert_eq!(watch.settle_pause(due(1_000_000)), Duration::from_millis(1));
        assert_eq!(watch.settle_pause(due(1)), AT_ONCE);
    }
}
