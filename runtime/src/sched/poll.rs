//! The poller: who waits in it, what it finds, and how its wait is broken.
//!
//! At most one M blocks in the poller, without a P; others only look. Its wait ends by a descriptor, by the time
//! of the earliest timer, or by a *break*. A break is sent, at most one at a time, by whoever finds the poller
//! `Blocked` under the scheduler's lock and has work for it, or a timer that is due before its wait would end:
//!
//! ```text
//!   Nobody ──(an M goes idle)──▶ Blocked{until} ──(a break is sent)──▶ Broken
//!      ▲                              │                                  │
//!      └──────────────── the M comes back, for any reason ───────────────┘
//! ```
//! The break is an edge in the kernel, and whoever looks first gets it. A busy M whose look gets it while
//! somebody still blocks passes it on. A break that comes after its M has left ends the next wait at once, which
//! costs one turn.
//!
//! Checked by `tests/loom_poll.rs`.

use crate::host::{Broken, Host, PollWait};
use crate::m::M;
use crate::net::desc::PollDesc;
use crate::prim::{Arc, Mutant, Mutex, MutexGuard, Relaxed, mutated, unless};
use crate::runq::GList;
use crate::sched::{Central, Sched};
use gmp_netpoll::{Key, Readiness};
use gmp_timers::Nanos;

/// Who waits in the poller.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Poller {
    /// Nobody.
    Nobody,
    /// An M, until this time or for ever.
    Blocked {
        /// When its wait ends by itself.
        until: Option<Nanos>,
    },
    /// An M that will come back soon: its wait was broken.
    Broken,
}

impl<H: Host> Sched<H> {
    /// Blocks in the poller, without a P, until there is something to do.
    pub(crate) fn block_in_poller(&self, m: &M<H>, mut central: MutexGuard<'_, Central<H>>) {
        let until = self.timers.next_due();
        central.poller = Poller::Blocked { until };
        drop(central);

        let wait = match until {
            None => PollWait::Forever,
            Some(due) => match due.saturating_since(self.host.now()) {
                left if left.is_zero() => PollWait::Never,
                left => PollWait::For(left),
            },
        };
        let mut found = GList::new();
        let _ended_it: Broken = self.poll(&m.local, wait, &mut found);

        let mut central = self.central.lock();
        central.poller = Poller::Nobody;
        if !(mutated(Mutant::PollResultsDropped) && central.idle_ps.is_empty()) {
            central.runq.append(&mut found);
        }
        let p = central.take_idle_p(&self.monitor_note);
        drop(central);
        // Without one, all Ps are held, and their Ms look at the queue before they sleep. `stopm` waits for one.
        if let Some(p) = p {
            m.acquire(p);
        }
    }

    /// Looks at the poller without waiting, and queues what it found. For a busy M, and for the monitor.
    pub(crate) fn look_at_poller(&self, local: &H::Local) {
        let mut found = GList::new();
        if self.poll(local, PollWait::Never, &mut found) == Broken::Yes {
            // It was meant for the one who waits, if there is one.
            let waiting = self.central.lock().poller != Poller::Nobody;
            if waiting {
                unless(Mutant::SwallowedBreakKept, || self.host.break_poll());
            }
        }
        self.submit(found);
    }

    fn poll(&self, local: &H::Local, wait: PollWait, found: &mut GList<H>) -> Broken {
        let polled = self.host.poll(local, wait, |key, readiness| self.descs.unblock(key, readiness, found));
        // Relaxed: a hint for the monitor; two that count at once may count as one.
        self.polls.store(self.polls.load(Relaxed).wrapping_add(1), Relaxed);
        match polled {
            Ok(broken) => broken,
            // Not refused by a full machine, which has no say in a wait: the descriptor is gone or not ours.
            Err(broken) => panic!("poll: the poller does not work any more: {broken}"),
        }
    }

    /// A timer has become the earliest: makes sure that the poller does not sleep past it.
    pub(crate) fn wake_poller_before(&self, due: Nanos) {
        let mut central = self.central.lock();
        if let Poller::Blocked { until } = central.poller
            && until.is_none_or(|until| due < until)
        {
            central.poller = Poller::Broken;
            drop(central);
            unless(Mutant::TimerNoBreak, || self.host.break_poll());
        }
    }
}

struct Entry<H: Host> {
    generation: u32,
    desc: Option<Arc<PollDesc<H>>>,
}

struct Entries<H: Host> {
    all: Vec<Entry<H>>,
    free: Vec<u32>,
}

/// The descriptors that a runtime's poller watches, by the index that the kernel hands back. The generation tells
/// an event of a descriptor that is gone from one of its successor.
pub(crate) struct PollTable<H: Host>(Mutex<Entries<H>>);

impl<H: Host> PollTable<H> {
    pub(crate) fn new() -> Self {
        PollTable(Mutex::new(Entries { all: Vec::new(), free: Vec::new() }))
    }

    /// Makes room for a descriptor, under the key that the poller is to report.
    pub(crate) fn insert(&self, desc: Arc<PollDesc<H>>) -> Key {
        let mut entries = self.0.lock();
        let index = entries.free.pop().unwrap_or_else(|| {
            entries.all.push(Entry { generation: 0, desc: None });
            (entries.all.len() - 1) as u32
        });
        let entry = &mut entries.all[index as usize];
        entry.desc = Some(desc);
        Key { index, generation: entry.generation }
    }

    /// Ends that. Events that are still on their way find another generation.
    pub(crate) fn remove(&self, key: Key) {
        let mut entries = self.0.lock();
        let entry = &mut entries.all[key.index as usize];
        assert!(entry.generation == key.generation, "remove: the descriptor is gone already ({key:?})");
        entry.generation = entry.generation.wrapping_add(1);
        let gone = entry.desc.take();
        entries.free.push(key.index);
        drop(entries);
        drop(gone);
    }

    /// Wakes who waits for what has happened; those who become runnable go to `found`.
    pub(crate) fn unblock(&self, key: Key, readiness: Readiness, found: &mut GList<H>) {
        let entries = self.0.lock();
        if let Some(entry) = entries.all.get(key.index as usize)
            && entry.generation == key.generation
            && let Some(desc) = &entry.desc
        {
            desc.unblock(readiness, found);
        }
    }
}
