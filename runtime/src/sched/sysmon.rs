//! The monitor: a thread without a P, the backstop of the poller (Go's `sysmon`).
//!
//! An M that comes back from the poller takes a P and runs what it found. Until it, or another, goes idle again,
//! nobody waits in the poller; when its goroutine runs for long, sockets and timers would wait for it although a P
//! is idle. And when no P is idle, timers wait for the M whose P has them. So the monitor looks:
//!
//! * a P is idle, nobody is in the poller, and nobody has polled since its last look, [`SOON`] ago: it wakes an M, which
//!   finds nothing to run and goes there;
//! * no P is idle, or no M can be had: every [`LOOK`] it fires the timers that are due, and polls if nobody else has.
//!
//! When all Ps were idle for some looks it sleeps for good; whoever takes a P out of the idle list wakes it. So an
//! idle process makes no system call. In a model there is no monitor: it would hide what is missing elsewhere.

use crate::host::Host;
use crate::m::Spinning;
use crate::note::Note;
use crate::prim::{Arc, Relaxed};
use crate::sched::poll::Poller;
use crate::sched::wake::Wake;
use crate::sched::{Central, Sched};
use std::io;
use std::time::Duration;

/// Between two looks otherwise. Go's for a network that nobody polls.
const LOOK: Duration = Duration::from_millis(10);
/// Between two looks while some Ps work and some are idle.
const SOON: Duration = Duration::from_millis(2);
/// So many looks at nothing but idle Ps, and the monitor sleeps for good.
const PATIENCE: u32 = 5;

/// What the monitor does, under the scheduler's lock. Its note is woken when the state becomes Called, and cleared
/// when that is over.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Monitor {
    /// It looks every now and then, or there is none.
    Looking,
    /// It sleeps until a P is taken.
    Asleep,
    /// It was woken, and has not looked since.
    Called,
}

/// What one look has found to do.
enum Duty<H: Host> {
    Nothing,
    /// Nobody is in the poller: an M is to go there.
    Wake(Wake<H>),
    /// No M can be had for it: fires timers, and looks at the poller if nobody did since the last look.
    Serve,
    SleepForGood,
    End,
}

impl<H: Host> Central<H> {
    /// A P was taken: somebody is to watch what is done with it.
    pub(crate) fn watch_again(&mut self, monitor: &Note<H>) {
        if self.monitor == Monitor::Asleep {
            self.call_monitor(monitor);
        }
    }

    /// Ends the monitor's sleep, once.
    pub(crate) fn call_monitor(&mut self, monitor: &Note<H>) {
        if H::MONITORED && self.monitor != Monitor::Called {
            self.monitor = Monitor::Called;
            monitor.wake();
        }
    }
}

impl<H: Host> Sched<H> {
    /// Starts the monitor's thread, in a host that has one.
    pub(crate) fn start_monitor(&self) -> io::Result<()> {
        if !H::MONITORED {
            return Ok(());
        }
        let this = self.arc().expect("start_monitor: whoever starts it holds its scheduler");
        self.central.lock().alive += 1;
        match self.host.start("gmp-sysmon", move || this.monitor()) {
            Ok(thread) => {
                self.central.lock().threads.push(thread);
                Ok(())
            }
            Err(refused) => {
                self.thread_left();
                Err(refused)
            }
        }
    }

    fn monitor(self: Arc<Self>) {
        let local = H::Local::default();
        let (mut idle_looks, mut last_polls) = (0, 0);
        loop {
            let polls = self.polls.load(Relaxed);
            let unpolled = last_polls == polls;
            let (duty, pause) = self.duty(&mut idle_looks, unpolled);
            match duty {
                Duty::Nothing => {}
                Duty::Wake(wake) => self.start_woken(Some(wake)),
                Duty::Serve => {
                    let mut found = self.take_all_due();
                    if unpolled {
                        found.append(&mut self.look_at_poller(&local));
                    }
                    self.inject(found);
                }
                Duty::SleepForGood => self.monitor_note.sleep(),
                Duty::End => break,
            }
            // Its own look is none of an M.
            last_polls = if unpolled { self.polls.load(Relaxed) } else { polls };
            let _woken = self.monitor_note.sleep_until(&self.host, self.host.now().saturating_add(pause));
        }
        self.thread_left();
    }

    /// What is to be done now, and when to look again.
    fn duty(&self, idle_looks: &mut u32, unpolled: bool) -> (Duty<H>, Duration) {
        let mut central = self.central.lock();
        if self.is_stopping() {
            return (Duty::End, LOOK);
        }
        if central.monitor == Monitor::Called {
            self.monitor_note.clear();
            central.monitor = Monitor::Looking;
        }
        let all_idle = central.idle_ps.len() == self.ps.len();
        *idle_looks = if all_idle { *idle_looks + 1 } else { 0 };
        if *idle_looks >= PATIENCE {
            *idle_looks = 0;
            central.monitor = Monitor::Asleep;
            return (Duty::SleepForGood, LOOK);
        }
        if central.idle_ps.is_empty() {
            return (Duty::Serve, LOOK);
        }
        let pause = if all_idle { LOOK } else { SOON };
        if central.poller != Poller::Nobody || !unpolled || !self.census.claim_spinning() {
            return (Duty::Nothing, pause);
        }
        let p = self.pidleget(&mut central).expect("duty: a P is idle, under the lock");
        let wake = self.startm(&mut central, p, Spinning::Yes);
        (wake.map_or(Duty::Serve, Duty::Wake), pause)
    }
}
