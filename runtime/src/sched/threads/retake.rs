//! Taking a P from an M that does not come back (Go's `retake`): nothing that a goroutine does stalls the others.
//!
//! The monitor looks at every P that is held, and judges a *stay*: the time that one goroutine has spent on one M since the
//! look that first saw it there. A stay goes on as long as the hand-off word and the P's tick are unchanged.
//!
//! | the stay | and | then |
//! | --- | --- | --- |
//! | blocks its thread | others wait | the P is taken at this look |
//! | blocks its thread, for [`TIME_SLICE`] | no goroutine waits | the P is taken, so that the P, and the process, are idle |
//! | runs, for [`TIME_SLICE`] | others wait | the P is taken, unless the kernel keeps the thread off its CPU |
//! | runs on a surplus P (`procs.rs`) | | the P is taken at this look |
//! | anything else | | nothing |
//!
//! Others *wait* in these cases:
//!
//! * a goroutine stands in the P's own queue, in the global queue, in a mailbox, or in the batch or the queue of a class above
//!   `Background`;
//! * a job above `Background` stands on the P and belongs to another goroutine than the running one: so does each job that
//!   stood there when the running goroutine came to the P without a tick (`M::acquire_for_own`);
//! * a job above `Background` stands on a P that has retired (`sched/run/jobs.rs`): that job has no owner to come to it, and an
//!   M whose goroutine runs on looks for none;
//! * the runtime ends: then the ender waits.
//!
//! A job of the running goroutine, and a goroutine or a job of `Background`, count only if the thread is blocked, or if the
//! kernel says, at a look after a time slice, that the thread waits in the kernel. The look after a time slice finds a thread
//! that sleeps again and again.
//!
//! A thread *blocks* when it has used no CPU since the last look, and the kernel says that it waits for something. The first
//! condition alone is not enough: with more threads than cores, a thread that the kernel has preempted makes no progress for
//! milliseconds either. The monitor reads the second condition from a file of the kernel's, and only if others wait, or a stay
//! has lasted for a time slice. So a thread that blocks while others wait keeps the P for two looks at most: 10 ms, twice
//! [`SLOWEST`]. If the monitor can't read a thread's file, that thread keeps the P for [`STARVED_LIMIT`], like a thread that
//! the kernel keeps from running.
//!
//! A goroutine can enter the runtime while the monitor takes its P. If the stay is younger than a time slice, the M keeps the
//! P: the goroutine was blocked, and is back. When the stay is a time slice old and others wait, or when the P is surplus, the
//! monitor *demands* the P: the M cedes it on entering (`m/handoff.rs`). Without demands the monitor might never find an M
//! outside the runtime if the goroutine enters again and again. A demand fails if the M was inside all the time, or if there
//! was no barrier. After each of a stay's first eight failed demands the next look comes at once. Before the substitute for
//! `membarrier` (`host/native/barrier.rs`), which can take long, the retaker turns its demand into a request: otherwise no M
//! could use a P that was ceded meanwhile.
//!
//! The goroutine goes on, on its thread and without a P. Calls that never park work as from a plain thread; the goroutine's
//! next call that can park comes back for a P (`blocking.rs`), and so does a spawn after many others (`run/spawn_burst.rs`). R1
//! to R3 of `m/mod.rs` take the P from an M that might be entering the runtime at the same moment; only the monitor does this,
//! so there is one retaker at a time.
//!
//! The monitor takes a P for which goroutines wait only if there is an M for that P. If `max_threads` allows no further M, the
//! monitor reports that once, and the stay goes on. A P for which no goroutine waits needs no M, and becomes idle.
//!
//! Checked by `models/window.rs`. The tests below check the decisions by time.

use crate::host::Host;
use crate::m::M;
use crate::m::handoff::{Ask, Entries, Lease};
use crate::p::P;
use crate::prim::hooks::*;
use crate::prim::{Ordering, fence};
use crate::sched::lasting::PRef;
use crate::sched::run::jobs::LeftJobs;
use crate::sched::watch::told::Refusal;
use crate::sched::{Central, Sched};
use gmp_timers::Nanos;
use std::time::Duration;

/// How long a goroutine keeps the P while others wait: Go's 10 ms, less the time until another goroutine runs on that P. The
/// monitor knows a stay only from the first look that saw it, so it counts from the look before that one. So a goroutine can be
/// younger than its stay, by one pause at most, and no goroutine waits longer.
const TIME_SLICE: Duration = Duration::from_micros(9_800);
/// A thread that has used less CPU time than this in a slice was kept from the CPU by other threads, and another thread in its
/// place would be as well.
const HARDLY: Duration = Duration::from_micros(600);
/// How long a thread that was kept from the CPU keeps its P. Those other threads might be waiting for the goroutine that waits
/// for the P.
const STARVED_LIMIT: Duration = Duration::from_millis(40);
/// How soon the next look comes after a look that took a P, that found a thread waiting in the kernel while others wait for the
/// P, or that demanded a P in vain.
const AT_ONCE: Duration = Duration::from_micros(50);
/// How many looks come at that pace after a look that took a P, and how many for a P that was demanded in vain.
const HOT: u32 = 8;
/// The longest pause. At this pace, the looks cost some 0.3 to 0.6 % of a core if all Ps are at work.
const SLOWEST: Duration = Duration::from_millis(5);

/// A stay, as the monitor knows it.
#[derive(Copy, Clone, Debug)]
struct Stay {
    judged: Lease,
    tick: u32,
    /// The time of the look before the look that first saw the stay.
    since: Nanos,
    /// The CPU time that the thread had used at the last look that read it.
    cpu: Option<Duration>,
    /// The CPU time that the thread had used at the first of these looks.
    cpu_first: Option<Duration>,
    /// The thread was found waiting in the kernel.
    suspect: bool,
    /// How often in this stay a demand for the P has failed.
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
    /// How many more looks come at once.
    hot: u32,
    /// The jobs that stand on Ps that have retired, at this look.
    left_jobs: LeftJobs,
}

/// The result of a look at a P.
enum Found {
    Nothing,
    /// The P was taken.
    Taken,
    /// The P is to be taken at a later look, if that finds the same stay. `closer`: the next look is to come at once, because
    /// the thread might be blocked, or a demand has failed. `left`: the rest of the time slice. With a `left` of zero the slice
    /// is over, and `closer` alone decides when the next look comes.
    Awaited {
        closer: bool,
        left: Duration,
    },
}

/// The result of a look at all Ps.
#[derive(Copy, Clone, Debug, Default)]
struct Seen {
    took: bool,
    closer: bool,
    next_due: Option<Duration>,
}

/// Who might wait for the P of a stay, as a look sees it.
#[derive(Copy, Clone, Debug, Default)]
struct Others {
    /// A goroutine above `Background` stands in the P's own queue, or in one for all Ps.
    queued: bool,
    /// A job of another goroutine than the running one, above `Background`, stands on the P.
    jobs: bool,
    /// Such a job stands on a P that has retired.
    left_jobs: bool,
    /// A job of the running goroutine stands on the P, and that goroutine comes to the job itself; or a goroutine or a job of
    /// `Background` waits for the running one, also a job on a P that has retired.
    patient: bool,
    /// The runtime ends: the ender waits; and the operator can be told of a goroutine that runs on without its P
    /// (`watch/ending.rs`).
    ender: bool,
}

impl Others {
    fn are_urgent(self) -> bool {
        self.queued || self.jobs || self.left_jobs
    }

    /// Returns `true` if a goroutine, a job or the ender waits for the P, whatever the thread does.
    fn wait(self) -> bool {
        self.are_urgent() || self.ender
    }

    /// As `wait`, if the thread is blocked.
    fn wait_if_blocked(self) -> bool {
        self.wait() || self.patient
    }

    /// Returns `true` if an M is to have the P. Otherwise the P becomes idle, until the M that loses it or another one comes
    /// back for it.
    fn need_an_m(self) -> bool {
        self.are_urgent() || self.patient
    }
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
        Watch { stays: Vec::new(), last_look: now, pause: SLOWEST, hot: 0, left_jobs: LeftJobs::None }
    }

    /// Returns the earliest time at which a stay that is new at this look can have begun. The monitor might have slept for long
    /// before the look.
    fn since(&self, now: Nanos) -> Nanos {
        self.last_look.max(Nanos::from_nanos(now.as_nanos().saturating_sub(SLOWEST.as_nanos() as u64)))
    }

    /// Returns how soon to look again: at once while there are Ps to take, then after pauses that grow, and no later than when
    /// a stay for which others wait has lasted for a time slice.
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
    /// Looks once at all Ps. Returns how soon the next look has to come.
    pub(crate) fn retake_all(&self, watch: &mut Watch, now: Nanos) -> Duration {
        let mut stays = std::mem::take(&mut watch.stays);
        stays.resize(self.ps.len(), None);
        let mut seen = Seen::default();
        watch.left_jobs = self.jobs_of_the_retired();
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

    fn others(&self, p: &P<H>, tick: u32, left_jobs: LeftJobs) -> Others {
        Others {
            queued: self.has_work_for_now(p) || !self.globq_len.is_zero(),
            jobs: p.jobs.have_waited(tick),
            left_jobs: left_jobs == LeftJobs::Urgent,
            patient: !p.jobs.is_empty() || left_jobs == LeftJobs::Background || self.has_background(p),
            ender: self.is_ending(),
        }
    }

    fn look_at(&self, p: &P<H>, known: &mut Option<Stay>, watch: &Watch, now: Nanos) -> Found {
        let Some((judged, m)) = Self::judge(p) else {
            *known = None;
            return Found::Nothing;
        };
        let tick = p.tick();
        let others = self.others(p, tick, watch.left_jobs);
        let waits = others.wait();
        let stay = match known {
            Some(stay) if stay.judged == judged && stay.tick == tick => stay,
            _ => {
                // Read now, so that the next look can judge this stay.
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
        // No other M gets the P: the P retires.
        if self.is_to_retire(p) {
            let taken = self.retake(p, (judged, m), Ask::InAnyCase(tick));
            return if taken { Found::Taken } else { stay.demanded_in_vain() };
        }
        let overdue = waits && left.is_zero();
        // A goroutine inside the runtime does not keep the P for long, unless each look finds the goroutine there.
        if m.is_inside() && !overdue {
            return if waits { Found::Awaited { closer: false, left } } else { Found::Nothing };
        }
        if !others.wait_if_blocked() && ran < TIME_SLICE {
            return Found::Nothing;
        }
        let state = self.state_of(m, stay);
        // A thread whose sleeps are shorter than the time between two looks has used CPU at each look, but a look might find it
        // asleep.
        let sleeps = || state == State::Blocked || ran >= TIME_SLICE && self.is_blocked(m);
        let waits = waits || others.wait_if_blocked() && sleeps();
        let look = Look { ran, waits, state };
        if look.is_to_go() && (!others.need_an_m() || self.can_hand_off()) {
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

    /// Returns `true` if the M's thread is blocked. Returns `false` in doubt: then a blocked thread, which uses no CPU, is
    /// judged `Starved`, and keeps the P for [`STARVED_LIMIT`].
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

    /// Returns the M that holds the P, and the M's lease. If the P changes hands between the two reads, the retake fails.
    pub(crate) fn judge(p: &P<H>) -> Option<(Lease, &M<H>)> {
        let judged = p.handoff.judge();
        Some((judged, p.holder()?))
    }

    /// Takes `p` from `m`, the holder of the lease that was judged, and assigns `p` to another M, or makes `p` idle. Returns
    /// `false` if `m` is inside the runtime and has not ceded the P, if the P is in another lease by now, or if the barrier
    /// failed.
    pub(crate) fn retake(&self, p: &P<H>, (judged, m): (Lease, &M<H>), ask: Ask) -> bool {
        self.retake_behind(p, (judged, m), ask, |downgrade| self.barrier_with(m, judged, downgrade))
    }

    /// For models: as `retake`, with a call of `between` between R2 and R3.
    #[cfg(all(test, gmp_loom))]
    pub(crate) fn retake_and_pause(
        &self,
        p: &P<H>,
        (judged, m): (Lease, &M<H>),
        ask: Ask,
        between: impl FnOnce(),
    ) -> bool {
        self.retake_behind(p, (judged, m), ask, |downgrade| {
            let seen = self.barrier_with(m, judged, downgrade);
            between();
            seen
        })
    }

    fn retake_behind(
        &self,
        p: &P<H>,
        (judged, m): (Lease, &M<H>),
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
        self.handoffp(PRef::of(p));
        mutant!(RetakeGivesUpLate: relax(); p.handoff.give_up());
        true
    }

    /// RetakeBarrier, with the M of the lease that was judged. Returns `false` if the barrier failed: the P stays with the M.
    /// `downgrade` turns a demand into a request before the substitute for `membarrier`, which might wait long for a CPU.
    fn barrier_with(&self, m: &M<H>, judged: Lease, downgrade: &dyn Fn() -> bool) -> bool {
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
        mutant!(VisitDemands: let downgrade = &(|| true) as &dyn Fn() -> bool);
        if !downgrade() {
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

    /// Returns `true` if there is an M for a P that is taken. Otherwise tells the operator, once.
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
    /// Returns `true` if an M stands by, a new M is allowed, or an M waits for its bound goroutine.
    fn can_have_m(&self, max_threads: u32) -> bool {
        self.idle.has_m()
            || self.poller.blocked().is_some()
            || self.living() + self.asked_for < max_threads
            // The goroutine that waits for the P might be one that is bound to such an M.
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

    /// Fails if a waiter is not seen, and so waits for as long as the goroutine of the stay runs; if a goroutine loses its P to
    /// its own job, or to a goroutine of `Background`; or if a P is taken, and no M can come for those that wait.
    #[test]
    fn each_kind_of_waiter_for_a_p_is_seen() {
        const NOBODY: Others =
            Others { queued: false, jobs: false, left_jobs: false, patient: false, ender: false };
        const JOBS: Others = Others { jobs: true, patient: true, ..NOBODY };
        for (others, waits, waits_if_blocked, needs_an_m) in [
            (NOBODY, false, false, false),
            (Others { queued: true, ..NOBODY }, true, true, true),
            (JOBS, true, true, true),
            (Others { left_jobs: true, ..NOBODY }, true, true, true),
            (Others { patient: true, ..NOBODY }, false, true, true),
            (Others { ender: true, ..NOBODY }, true, true, false),
            (Others { ender: true, patient: true, ..NOBODY }, true, true, true),
            (Others { ender: true, ..JOBS }, true, true, true),
        ] {
            let seen = (others.wait(), others.wait_if_blocked(), others.need_an_m());
            assert_eq!(seen, (waits, waits_if_blocked, needs_an_m), "{others:?}");
        }
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
