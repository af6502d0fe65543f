//! The monitor: a thread without a P, the backstop of the poller (Go's `sysmon`).
//!
//! An M that comes back from the poller takes a P and runs what it found. Until it, or another, goes idle again,
//! nobody waits in the poller; when its goroutine runs for long, sockets and timers would wait for it although a P
//! is idle. So the monitor looks every [`LOOK`]:
//!
//! * a P is idle, and nobody is in the poller: it wakes an M, which finds nothing to run and goes there;
//! * no P is idle, and nobody has polled since its last look: it polls, and queues what it finds.
//!
//! When all Ps were idle for some looks it sleeps for good; whoever takes a P out of the idle list wakes it. So an
//! idle process makes no system call. In a model there is no monitor: it would hide what is missing elsewhere.

use crate::host::Host;
use crate::note::Note;
use crate::p::P;
use crate::prim::{Arc, Relaxed};
use crate::sched::poll::Poller;
use crate::sched::wake::Wake;
use crate::sched::{Central, Sched, Stage};
use std::io;
use std::ptr::NonNull;
use std::time::Duration;

/// Between two looks. Go's for a network that nobody polls.
const LOOK: Duration = Duration::from_millis(10);
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
    Wake(Option<Wake<H>>),
    Poll,
    SleepForGood,
    End,
}

impl<H: Host> Central<H> {
    /// Takes a P out of the idle list, and sees to it that somebody watches over what is done with it.
    pub(crate) fn take_idle_p(&mut self, monitor: &Note<H>) -> Option<NonNull<P>> {
        let p = self.idle_ps.pop()?;
        if self.monitor == Monitor::Asleep {
            self.call_monitor(monitor);
        }
        Some(p)
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
            let unpolled = std::mem::replace(&mut last_polls, polls) == polls;
            match self.duty(&mut idle_looks, unpolled) {
                Duty::Nothing => {}
                Duty::Wake(wake) => self.start_woken(wake),
                Duty::Poll => {
                    self.look_at_poller(&local);
                    self.run_timers();
                }
                Duty::SleepForGood => self.monitor_note.sleep(),
                Duty::End => break,
            }
            let _woken = self.monitor_note.sleep_until(&self.host, self.host.now().saturating_add(LOOK));
        }
        self.thread_left();
    }

    fn duty(&self, idle_looks: &mut u32, unpolled: bool) -> Duty<H> {
        let mut central = self.central.lock();
        if central.stage == Stage::Stopping {
            return Duty::End;
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
            Duty::SleepForGood
        } else if central.idle_ps.is_empty() {
            if unpolled { Duty::Poll } else { Duty::Nothing }
        } else if central.poller == Poller::Nobody {
            Duty::Wake(self.wakep(&mut central))
        } else {
            Duty::Nothing
        }
    }
}
