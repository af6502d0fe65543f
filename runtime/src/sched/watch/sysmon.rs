//! The monitor: a thread without a P (Go's `sysmon`), the backstop of the poller and of all goroutines that wait for a P.
//!
//! * The monitor takes Ps from Ms that do not come back: `sched/threads/retake.rs`.
//! * An M that comes back from the poller takes a P and runs the goroutines that it found. Until that M, or another, goes idle
//!   again, no M waits in the poller. An M that runs one goroutine after another stands in for the poller at its visits, for
//!   descriptors and for timers in any heap (`sched/run/look.rs`); an M whose goroutine runs for long does not. So when a P is
//!   idle, no M is in the poller, and no M has polled for [`UNPOLLED_LIMIT`], the monitor wakes an M, which finds nothing to
//!   run and goes to the poller.
//! * If no P is idle, or there is no M (at `max_threads`, or because the kernel refuses a thread), a timer waits for the M that
//!   holds the timer's P. Every [`MONITOR_TICK`] the monitor fires the timers that are due, and polls if no M has polled and a
//!   descriptor is watched.
//! * After a refused thread the runtime asks for no thread during a pause. When the pause is over, and a P is idle, and work
//!   waits, the monitor asks for a thread: `sched/threads/newm.rs`.
//!
//! The monitor also brings the coarse time up to date (`coarse.rs`), looks whether all goroutines are asleep (`deadlock.rs`),
//! answers SIGQUIT (`quit.rs`), traces (`trace.rs`), gives stacks back (`trim.rs`), makes goroutines that found no stack ask
//! again (`sched/stacks.rs`), asks again for threads that make calls (`sched/calls.rs`) and follows the number of CPUs
//! (`sched/threads/procs.rs`). When all Ps were idle for some looks, and `deadlock.rs`, `trace.rs`, `trim.rs`,
//! `sched/stacks.rs` and `sched/calls.rs` no longer need the monitor, it sleeps for good; an M that takes a P out of the idle
//! list wakes the monitor. So an idle process makes no system call. In a model there is no monitor: it would hide wake-ups that
//! are missing elsewhere. The monitor's decision is a function of what it sees ([`Sight::decide`]); a model that is about the
//! monitor takes the monitor's single looks (`models/poll.rs`).

use crate::host::Host;
use crate::m::Assignment;
use crate::m::note::Note;
use crate::prim::hooks::*;
use crate::prim::{Arc, Relaxed};
use crate::sched::run::wake::Wake;
use crate::sched::stacks::StackWatch;
use crate::sched::threads::retake::Watch;
use crate::sched::watch::deadlock::DeadlockWatch;
use crate::sched::watch::trace::Trace;
use crate::sched::watch::trim::Trim;
use crate::sched::{Central, Sched};
use gmp_timers::Nanos;
use std::io;
use std::time::Duration;

/// How long the monitor leaves the poller, and timers that are due, alone while no P is idle. Go's time for a network that no M
/// polls.
const MONITOR_TICK: Duration = Duration::from_millis(10);
/// How long the poller can go unpolled while a P is idle.
const UNPOLLED_LIMIT: Duration = Duration::from_millis(2);
/// After this many looks at nothing but idle Ps the monitor sleeps without a limit.
const IDLE_TICKS: u32 = 5;
/// How long the runtime has lived when the monitor calls `Threads::settle`. A runtime that ends before that never calls it.
const SETTLE_AFTER: Duration = Duration::from_millis(1);
/// How often the monitor asks the machine for the number of Ps.
const PROCS_EVERY: Duration = Duration::from_secs(1);

/// What the monitor is doing, under the central lock. The monitor's alarm rings when the state becomes Called, and at SIGQUIT.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Monitor {
    /// The monitor looks every now and then, or there is none.
    Looking,
    /// The monitor sleeps until a P is taken, or until something else is due.
    Asleep,
    /// The monitor was woken, and has not looked since.
    Called,
}

/// How many Ps are idle.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Idle {
    All,
    Some,
    None,
}

/// What the monitor sees at one look, under the central lock.
#[derive(Copy, Clone, Debug)]
struct Sight {
    stops: bool,
    /// The monitor was called since its last look.
    called: bool,
    idle: Idle,
    /// An M is in the poller, or on its way back.
    polling: bool,
    /// For how long no M has polled; an M that polls also serves timers.
    unpolled: Duration,
    /// How many looks in a row, before this one, saw nothing but idle Ps and an M in the poller.
    idle_ticks: u32,
    /// Work waits that a pause after a refused thread may have kept waiting, and the pause is over.
    kept_waiting: bool,
}

/// What the monitor decides to do.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Decision {
    Nothing,
    /// An M is to go to the poller, or to work that waits.
    Send,
    /// The monitor serves timers itself.
    Serve,
    Sleep,
    End,
}

impl Sight {
    /// Returns how many idle looks there were in a row, including this one.
    fn idle_ticks(self) -> u32 {
        let before = if self.called { 0 } else { self.idle_ticks };
        // Zero while no M is in the poller: perhaps no M could be sent, because as many threads as are allowed wait for their
        // goroutines.
        if self.idle == Idle::All && self.polling { before + 1 } else { 0 }
    }

    fn decide(self) -> Decision {
        if self.stops {
            Decision::End
        } else if self.idle_ticks() >= IDLE_TICKS {
            Decision::Sleep
        } else if self.idle == Idle::None {
            Decision::Serve
        } else if !self.polling && (self.unpolled >= UNPOLLED_LIMIT).unless(MonitorSendsNobody)
            || self.kept_waiting
        {
            Decision::Send
        } else {
            Decision::Nothing
        }
    }

    /// Returns how soon the monitor looks again, at the latest: in time to send an M.
    fn pause(self) -> Duration {
        if self.idle != Idle::None && !self.polling { UNPOLLED_LIMIT } else { Duration::MAX }
    }
}

/// The duty that one look has found.
enum Duty<H: Host> {
    Nothing,
    /// Wake an M, which goes to the poller, or to work that waits.
    Wake(Wake<H>),
    /// There is no M for that: the monitor fires timers, and polls if no M has polled since its last look.
    Serve,
    /// The monitor is not needed before this rest ends (`None`: it never ends), or a P is taken.
    Sleep(Option<Duration>),
    End,
}

impl<H: Host> Central<H> {
    /// Wakes the monitor because a P was taken: the monitor is to watch the M that holds it.
    pub(crate) fn watch_again(&mut self, monitor: &Note<H>) {
        if self.monitor == Monitor::Asleep {
            self.call_monitor(monitor);
        }
    }

    /// Ends the monitor's sleep, once.
    pub(crate) fn call_monitor(&mut self, monitor: &Note<H>) {
        if H::MONITORED && self.monitor != Monitor::Called {
            self.monitor = Monitor::Called;
            monitor.alarm();
        }
    }
}

impl<H: Host> Sched<H> {
    /// Starts the monitor's thread, in a host that has one.
    pub(crate) fn start_monitor(&self) -> io::Result<()> {
        if !H::MONITORED {
            return Ok(());
        }
        let this = self.arc().expect("start_monitor: its caller holds the scheduler");
        self.central.lock().alive += 1;
        match H::start("gmp-sysmon", move || this.monitor()) {
            Ok(thread) => {
                self.central.lock().monitor_thread = Some(thread);
                Ok(())
            }
            Err(refused) => {
                self.thread_left();
                Err(io::Error::new(refused.kind(), format!("cannot start the runtime's monitor: {refused}")))
            }
        }
    }

    fn monitor(self: Arc<Self>) {
        let local = H::Local::default();
        let mut now = H::now();
        let (mut watch, mut polls) = (Watch::new(now), Polls { count: self.polls.load(Relaxed), since: now });
        let (mut idle_ticks, mut served, mut procs_read) = (0, now, now);
        let mut settles = (!H::is_settled()).then(|| now.saturating_add(SETTLE_AFTER));
        let (mut deadlock_watch, mut trace, mut trim) =
            (DeadlockWatch::default(), Trace::default(), Trim::new());
        let (mut stack_watch, mut call_watch) = (StackWatch::default(), StackWatch::default());
        loop {
            self.set_coarse_clock(now);
            self.answer_quit();
            let soon = [
                settles.map(|at| at.saturating_since(now)),
                self.watch_for_deadlock(&mut deadlock_watch, now),
                self.trace(&mut trace, now),
                self.trim(&mut trim, now),
                self.watch_stackless(&mut stack_watch, now),
                self.watch_calls(&mut call_watch, now),
            ];
            let rest = || match soon.into_iter().flatten().min() {
                None if self.is_watched(&deadlock_watch) => None,
                soon => Some(soon.unwrap_or(MONITOR_TICK)),
            };
            let takes = self.config.knobs.handoff;
            let pause = if takes { self.retake_all(&mut watch, now) } else { MONITOR_TICK };
            polls.look(self.polls.load(Relaxed), now);
            let (duty, pause) = self.duty(&mut idle_ticks, (now, polls.unpolled(now)), pause, rest);
            let pause = soon.into_iter().flatten().fold(pause, Duration::min);
            let serves = match duty {
                Duty::Nothing => false,
                Duty::Wake(wake) => {
                    self.start_woken(Some(wake));
                    // If no M has come since earlier wakes, the kernel refuses them their threads.
                    polls.unpolled(now) >= MONITOR_TICK
                }
                Duty::Serve => true,
                Duty::Sleep(rest) => {
                    let _woken = self.monitor_note.doze(rest.map(|rest| now.saturating_add(rest)));
                    // The sleep might have taken minutes.
                    now = H::now();
                    false
                }
                Duty::End => break,
            };
            if serves && now.saturating_since(served) >= MONITOR_TICK {
                served = now;
                let mut found = self.take_all_due();
                if polls.unpolled(now) >= MONITOR_TICK && self.nobody_polls() {
                    found.append(&mut self.poll_now(&local));
                    // The monitor's own poll does not count: only polls of Ms do.
                    polls.count = self.polls.load(Relaxed);
                }
                self.inject(found);
            }
            if now.saturating_since(procs_read) >= PROCS_EVERY {
                procs_read = now;
                self.reread_procs();
            }
            if settles.take_if(|at| now >= *at).is_some() {
                H::settle();
            }
            let _woken = self.monitor_note.doze(Some(H::after(pause)));
            now = H::now();
        }
        self.thread_left();
    }

    /// Returns the duty of this look, and how soon to look again: after `pause`, or earlier. `unpolled` is how long no M has
    /// polled. `rest` returns how long nothing else needs the monitor; `None` is for good.
    fn duty(
        &self,
        idle_ticks: &mut u32,
        (now, unpolled): (Nanos, Duration),
        pause: Duration,
        rest: impl FnOnce() -> Option<Duration>,
    ) -> (Duty<H>, Duration) {
        let mut central = self.central.lock();
        let kept_waiting =
            central.end_pause(now) && (!central.globq.is_empty() || self.work_somewhere(&self.idle_mask));
        let sight = Sight {
            stops: self.is_stopping(),
            called: central.monitor == Monitor::Called,
            idle: match central.idle.has_p() {
                false => Idle::None,
                true if self.all_idle(&central) => Idle::All,
                true => Idle::Some,
            },
            polling: !central.poller.is_empty(),
            unpolled,
            idle_ticks: *idle_ticks,
            kept_waiting,
        };
        let decision = sight.decide();
        *idle_ticks = sight.idle_ticks();
        central.monitor = if decision == Decision::Sleep { Monitor::Asleep } else { Monitor::Looking };
        let duty = match decision {
            Decision::Nothing => Duty::Nothing,
            Decision::Serve => Duty::Serve,
            Decision::End => Duty::End,
            Decision::Sleep => return (Duty::Sleep(rest()), Duration::ZERO),
            // If the claim fails, an M spins. That M goes to the poller if there is no work, and otherwise sends the next M
            // there.
            Decision::Send if !self.census.claim_spinning() => Duty::Nothing,
            Decision::Send => self.startm(&mut central, Assignment::Summons).map_or(Duty::Serve, Duty::Wake),
        };
        (duty, pause.min(sight.pause()))
    }

    /// For models: makes one look of the monitor, which has seen no M poll for `unpolled`.
    #[cfg(all(test, gmp_loom))]
    pub(crate) fn tick_as_monitor(&self, unpolled: Duration) {
        match self.duty(&mut 0, (H::now(), unpolled), MONITOR_TICK, || None).0 {
            Duty::Wake(wake) => self.start_woken(Some(wake)),
            Duty::Serve => self.inject(self.take_all_due()),
            Duty::Nothing | Duty::Sleep(_) | Duty::End => {}
        }
    }
}

/// For how long no M has polled, as far as the monitor knows.
struct Polls {
    count: u64,
    since: Nanos,
}

impl Polls {
    fn look(&mut self, count: u64, now: Nanos) {
        if count != self.count {
            *self = Polls { count, since: now };
        }
    }

    fn unpolled(&self, now: Nanos) -> Duration {
        now.saturating_since(self.since)
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    /// A P is idle, another is not, and no M has polled for a while.
    const UNSERVED: Sight = Sight {
        stops: false,
        called: false,
        idle: Idle::Some,
        polling: false,
        unpolled: UNPOLLED_LIMIT,
        idle_ticks: 0,
        kept_waiting: false,
    };
    const AT_REST: Sight = Sight { idle: Idle::All, polling: true, ..UNSERVED };

    /// Fails if a decision leaves descriptors or timers without an M, or wakes an idle process.
    #[test]
    fn what_is_seen_decides() {
        let just_polled = Duration::from_micros(1_999);
        for (sight, decision) in [
            (UNSERVED, Decision::Send),
            (Sight { unpolled: just_polled, ..UNSERVED }, Decision::Nothing),
            (Sight { polling: true, ..UNSERVED }, Decision::Nothing),
            (Sight { polling: true, unpolled: MONITOR_TICK, ..UNSERVED }, Decision::Nothing),
            (Sight { unpolled: just_polled, kept_waiting: true, ..UNSERVED }, Decision::Send),
            (Sight { idle: Idle::None, kept_waiting: true, ..UNSERVED }, Decision::Serve),
            // All Ps are idle, and the last to poll was an attached thread, or an M without a P.
            (Sight { idle: Idle::All, ..UNSERVED }, Decision::Send),
            (Sight { idle: Idle::All, idle_ticks: IDLE_TICKS, ..UNSERVED }, Decision::Send),
            (Sight { idle: Idle::None, ..UNSERVED }, Decision::Serve),
            (Sight { idle: Idle::None, unpolled: Duration::ZERO, ..UNSERVED }, Decision::Serve),
            (Sight { idle: Idle::None, polling: true, ..UNSERVED }, Decision::Serve),
            (Sight { idle: Idle::None, idle_ticks: IDLE_TICKS, ..UNSERVED }, Decision::Serve),
            (AT_REST, Decision::Nothing),
            (Sight { idle_ticks: IDLE_TICKS - 2, ..AT_REST }, Decision::Nothing),
            (Sight { idle_ticks: IDLE_TICKS - 1, ..AT_REST }, Decision::Sleep),
            (Sight { idle_ticks: IDLE_TICKS, called: true, ..AT_REST }, Decision::Nothing),
            (Sight { idle_ticks: IDLE_TICKS, unpolled: Duration::MAX, ..AT_REST }, Decision::Sleep),
            (Sight { stops: true, ..UNSERVED }, Decision::End),
            (Sight { stops: true, idle_ticks: IDLE_TICKS, ..AT_REST }, Decision::End),
        ] {
            assert_eq!(sight.decide(), decision, "{sight:?}");
        }
    }

    /// Fails if the monitor sleeps past the moment at which it has to send an M.
    #[test]
    fn it_looks_soon_while_no_m_is_in_the_poller_beside_an_idle_p() {
        assert_eq!(UNSERVED.pause(), UNPOLLED_LIMIT);
        for sight in [AT_REST, Sight { polling: true, ..UNSERVED }, Sight { idle: Idle::None, ..UNSERVED }] {
            assert_eq!(sight.pause(), Duration::MAX, "{sight:?}");
        }
    }

    #[test]
    fn idle_ticks_are_counted_in_a_row() {
        let third = Sight { idle_ticks: 2, ..AT_REST };
        assert_eq!(third.idle_ticks(), 3);
        assert_eq!(Sight { called: true, ..third }.idle_ticks(), 1);
        assert_eq!(Sight { polling: false, ..third }.idle_ticks(), 0);
        assert_eq!(Sight { idle: Idle::Some, ..third }.idle_ticks(), 0);
    }
}
