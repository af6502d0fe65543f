//! The values that all runtimes of the process share.

use crate::host::Host;
use crate::m::note::Note;
use crate::prim::{AtomicU64, Relaxed};
use crate::sched::timers::timer_thread::TimerThread;
use crate::sched::watch::deadlock::Runtimes;
use crate::sched::watch::quit::Quit;

/// The values that the runtimes of a process share. The host keeps the only value of this type.
pub(crate) struct Shared<H: Host> {
    /// The timer thread, which runs the callbacks that no runtime runs.
    pub(crate) timer_thread: TimerThread<H>,
    /// The runtimes of the process, for looks at all of them together.
    pub(crate) runtimes: Option<Runtimes<H>>,
    /// Which monitor answers SIGQUIT.
    pub(crate) quit: Quit<Note<H>>,
    /// How many schedulers were made.
    scheds: AtomicU64,
}

impl<H: Host> Shared<H> {
    /// `parents` are the values of the process of which this one is a forked child.
    pub(crate) fn new(runtimes: Option<Runtimes<H>>, parents: Option<&Self>) -> Self {
        // Relaxed: a number. The schedulers of the parent are not taken for the child's own.
        let scheds = AtomicU64::new(parents.map_or(0, |parents| parents.scheds.load(Relaxed)));
        Shared { timer_thread: TimerThread::new(), runtimes, quit: Quit::new(), scheds }
    }

    /// Returns a number that no other scheduler of the process gets.
    pub(crate) fn number_sched(&self) -> u64 {
        // Relaxed: a unique number, which orders nothing.
        self.scheds.fetch_add(1, Relaxed)
    }
}
