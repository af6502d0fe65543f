//! The poller: which M waits there, what that M finds, and how the wait is broken.
//!
//! At most one M blocks in the poller, without a P; busy Ms, and the monitor, only look. The blocked M's wait ends by a
//! descriptor, by the time of the earliest timer, or by a *break*:
//!
//! ```text
//!   Nobody ──(an M stands by)──▶ Blocked(m) ──(a break is sent: work, with an assignment; an earlier timer)──▶ Broken(m)
//!      ▲                            │                                                                     │
//!      └───────────────── m comes back, for any reason ─────────────────────────────────────────────────┘
//! ```
//! The state changes under the scheduler's lock, so one break is sent at most. A break is an edge in the kernel, which the
//! first M that polls consumes. A busy M that consumes a break while another M is in the poller sends another break.
//!
//! A goroutine that goes to sleep may set a timer that is earlier than the end of the poller's wait. To ask for that end
//! under the lock would have each sleep take the lock. `poll_until` tells without the lock how long the wait is to last:
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
//! Where the kernel refuses all calls that wait, or a break, waits are short. Refused waits find no event: after each such
//! wait every goroutine that waits for a socket is readied, and makes its system call again.
//!
//! Checked by `models/poll.rs`.

use crate::g::list::GList;
use crate::host::{Broken, Host, PollWait};
use crate::m::M;
use crate::net::desc::PollDesc;
use crate::prim::hooks::*;
use crate::prim::{
    Arc, AtomicU32, AtomicU64, CachePadded, Mutex, MutexGuard, Ordering, Rank, Relaxed, Release, event, fence,
};
use crate::sched::watch::told::Refusal;
use crate::sched::{Central, Sched};
use crate::wait::task::FoundTasks;
use gmp_netpoll::{Key, Readiness};
use gmp_timers::Nanos;
use std::collections::{HashMap, hash_map};
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::task::Waker;
use std::time::Duration;

/// `poll_until` while no M waits: no timer is earlier.
pub(crate) const NO_POLLER: u64 = 0;
/// `poll_until` of a wait without a time limit.
const FOREVER: u64 = u64::MAX;

/// How long a wait lasts that no break can end, or that sees no event.
const BLIND: Duration = Duration::from_millis(1);

/// Which M is in the poller.
#[derive(Debug)]
pub(crate) enum Poller<H: Host> {
    /// No M.
    Nobody,
    /// An M that waits, or is about to.
    Blocked(NonNull<M<H>>),
    /// An M that will come back soon, as the wait was broken.
    Broken(NonNull<M<H>>),
}

impl<H: Host> Clone for Poller<H> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<H: Host> Copy for Poller<H> {}
impl<H: Host> PartialEq for Poller<H> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Poller::Nobody, Poller::Nobody) => true,
            (Poller::Blocked(a), Poller::Blocked(b)) | (Poller::Broken(a), Poller::Broken(b)) => a == b,
            _ => false,
        }
    }
}

/// The place of the M in the poller, under the scheduler's lock. This file alone fills and empties it, with `poll_until`.
pub(crate) struct PollerSpot<H: Host>(Poller<H>);

impl<H: Host> PollerSpot<H> {
    pub(crate) fn new() -> Self {
        PollerSpot(Poller::Nobody)
    }

    pub(crate) fn get(&self) -> Poller<H> {
        self.0
    }

    /// The M that waits, or is about to, and that no break was sent.
    pub(crate) fn blocked(&self) -> Option<NonNull<M<H>>> {
        if let Poller::Blocked(m) = self.0 { Some(m) } else { None }
    }
}

impl<H: Host> Sched<H> {
    /// B1: `m` is the M that waits from here on. Under the lock.
    pub(crate) fn enter_poller(&self, m: &M<H>, central: &mut Central<H>) {
        central.poller.0 = Poller::Blocked(NonNull::from(m));
        mutant!(PollerSaysNothing: return);
        self.poll_until.swap(FOREVER, Relaxed);
    }

    /// The M that was to wait is taken back, before the wait has begun. Under the lock.
    pub(crate) fn leave_poller(&self, central: &mut Central<H>) {
        central.poller.0 = Poller::Nobody;
        self.nobody_waits();
    }

    /// The M that waits is to come back; the caller breaks the wait after the lock. Under the lock.
    pub(crate) fn expel_poller(&self, central: &mut Central<H>) {
        if let Some(m) = central.poller.blocked() {
            central.poller.0 = Poller::Broken(m);
            self.nobody_waits();
        }
    }

    /// Under the lock.
    fn nobody_waits(&self) {
        // Release: partner `call_is_next`: a spinner that has seen the poller under the lock, and so wakes none (L3 of
        // `run/spin.rs`), has left the census.
        self.poll_until.swap(NO_POLLER, Release);
    }

    /// Waits until there is something to do. `m` has entered the poller and passed IdleFence or SummonedInVainFence. `m`
    /// comes back with a P, or without one when all are held; the goroutines that `m` found are queued.
    pub(crate) fn block_in_poller(&self, m: &M<H>) {
        let until = self.earliest_timer();
        mutant!(PollerSkipsTimers: let until = None);
        if let Some(until) = until {
            // Fails when the wait was broken already.
            let _broken = self.poll_until.compare_exchange(FOREVER, until.as_nanos(), Relaxed, Relaxed);
        }
        let wait = match until {
            None => PollWait::Forever,
            Some(due) => match due.saturating_since(H::now()) {
                left if left.is_zero() => PollWait::Never,
                left => PollWait::For(left),
            },
        };
        let mut found = GList::new();
        let ended_it = self.poll(&m.local, wait, &mut found);
        event(format_args!("comes from the poller, broken: {ended_it:?}"));
        self.refresh_coarse_clock();

        let mut central = self.central.lock();
        // The state decides, not the reason for which the wait ended: an event may have come at the same moment. The
        // break then ends the next wait, which returns at once.
        let was_broken = matches!(central.poller.get(), Poller::Broken(_));
        mutant!(AssignmentOnlyByBreak: let was_broken = was_broken && ended_it == Broken::Yes);
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
        if self.poll(local, PollWait::Never, &mut found) == Broken::Yes {
            // The break was meant for the M that waits, if there is one.
            let waiting = self.central.lock().poller.get() != Poller::Nobody;
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
    fn poll(&self, local: &H::Local, wait: PollWait, found: &mut GList<H>) -> Broken {
        let mut tasks = FoundTasks::None;
        // The table is locked once for all events.
        let lock = || self.descs.lock();
        let polled = self.host.poll(local, self.within_reach(wait), lock, |entries, key, readiness| {
            entries.unblock(key, readiness, found, &mut tasks);
        });
        tasks.wake(self, found);
        // Relaxed: a hint for the monitor; two Ms that count at once may count as one.
        self.polls.store(self.polls.load(Relaxed).wrapping_add(1), Relaxed);
        match polled {
            Ok(broken) => broken,
            Err(refused) => self.poll_blindly(wait, found, &refused),
        }
    }

    /// A wait that can't be broken is short.
    fn within_reach(&self, wait: PollWait) -> PollWait {
        match wait {
            PollWait::Never => PollWait::Never,
            PollWait::For(limit) if self.was_refused(Refusal::Break) => PollWait::For(limit.min(BLIND)),
            PollWait::Forever if self.was_refused(Refusal::Break) => PollWait::For(BLIND),
            wait => wait,
        }
    }

    /// The kernel refuses every call by which a poller waits: a sandbox, or the program has closed the epoll
    /// descriptor. Each goroutine that waits for a socket looks at that socket now and then instead. A break is not
    /// seen, so the wait is short.
    #[cold]
    fn poll_blindly(&self, wait: PollWait, found: &mut GList<H>, refused: &io::Error) -> Broken {
        self.tell_refused(Refusal::Poll, || {
            format!("the poller does not work any more ({refused}): sockets are looked at every {BLIND:?}")
        });
        let pause = match wait {
            PollWait::Never => Duration::ZERO,
            PollWait::For(limit) => limit.min(BLIND),
            PollWait::Forever => BLIND,
        };
        if !pause.is_zero() {
            // A sleep that is never woken.
            H::sleep(&H::SleepState::default(), &AtomicU32::new(0), 0, Some(pause));
        }
        let mut tasks = FoundTasks::None;
        self.descs.unblock_all(found, &mut tasks);
        tasks.wake(self, found);
        Broken::No
    }

    /// Ends the wait of the M in the poller. Where that is refused the M's next waits are short.
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
        // TimerFence. SeqCst: a store to a heap's `earliest`, then a load from here; partners: IdleFence in `go_idle` and
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

struct Entry<H: Host> {
    generation: u32,
    /// The number under which the descriptor is watched.
    fd: RawFd,
    desc: Option<Arc<PollDesc<H>>>,
}

pub(crate) struct Entries<H: Host> {
    all: Vec<Entry<H>>,
    free: Vec<u32>,
    /// The entries by their number, the last one behind; `None` until `heed_numbers`. There are several when a descriptor was
    /// closed underneath: the kernel has given its number to another, which is the last one.
    by_number: Option<HashMap<RawFd, Vec<Key>>>,
    /// Whether no M polls any more.
    is_over: bool,
}

/// The descriptors that a runtime's poller watches, by the index that the kernel hands back. The generation tells an
/// event of a descriptor that is gone from an event of the successor.
pub(crate) struct PollTable<H: Host> {
    /// In a cache line of its own: the lock is written for each event, and its neighbours are read at each look for work.
    entries: CachePadded<Mutex<Entries<H>>>,
    /// How many there are: a hint, read without the lock.
    watched: AtomicU64,
}

impl<H: Host> PollTable<H> {
    pub(crate) fn new() -> Self {
        PollTable {
            entries: CachePadded::new(Mutex::new(
                Rank::PollTable,
                Entries { all: Vec::new(), free: Vec::new(), by_number: None, is_over: false },
            )),
            watched: AtomicU64::new(0),
        }
    }

    /// Returns `true` if there is a descriptor. Relaxed: an M that misses a new descriptor meets it in the next look, or wait.
    #[inline]
    fn watches_any(&self) -> bool {
        self.watched.load(Relaxed) > 0
    }

    /// Which entry has a number last is known of all that are watched from here on. The caller is about to insert a descriptor
    /// that others may close; programs in which there is none do not pay for it.
    #[cold]
    pub(crate) fn heed_numbers(&self) {
        self.entries.lock().by_number.get_or_insert_default();
    }

    /// Calls `change`, which changes what the poller does with the number under which the entry was inserted, unless the number
    /// is that of another descriptor by now. Under the lock: an entry that is inserted meanwhile is watched after `change`.
    pub(crate) fn if_its_own<R>(&self, key: Key, change: impl FnOnce() -> R) -> Option<R> {
        let entries = self.entries.lock();
        let fd = entries.all[key.index as usize].fd;
        let of_number = entries.by_number.as_ref().and_then(|by_number| by_number.get(&fd));
        (of_number?.last() == Some(&key)).then(change)
    }

    /// Makes room for the descriptor `fd`, under the key that the poller is to report. Returns the key, and whether numbers are
    /// heeded, so that the watch has to claim the number.
    pub(crate) fn insert(&self, desc: Arc<PollDesc<H>>, fd: RawFd) -> (Key, bool) {
        let mut entries = self.entries.lock();
        if entries.is_over {
            // No task waits there yet, and `reset` has taken what an earlier one has left.
            let _none = desc.end_for_tasks();
        }
        let index = entries.free.pop().unwrap_or_else(|| {
            entries.all.push(Entry { generation: 0, fd, desc: None });
            (entries.all.len() - 1) as u32
        });
        let entry = &mut entries.all[index as usize];
        entry.desc = Some(desc);
        entry.fd = fd;
        self.watched.fetch_add(1, Relaxed);
        (Key { index, generation: entry.generation }, entries.by_number.is_some())
    }

    /// Calls `watch`, which has the poller watch the number under which the entry was inserted. If that succeeds the number is
    /// the entry's. Under the lock, so that no other entry's change of the number comes between.
    pub(crate) fn claim_number(&self, key: Key, watch: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut entries = self.entries.lock();
        watch()?;
        let fd = entries.all[key.index as usize].fd;
        entries.by_number.get_or_insert_default().entry(fd).or_default().push(key);
        Ok(())
    }

    /// Takes a descriptor off the table. Events that are still on their way find another generation.
    pub(crate) fn remove(&self, key: Key) {
        let mut entries = self.entries.lock();
        let entry = &mut entries.all[key.index as usize];
        assert!(entry.generation == key.generation, "remove: the descriptor is gone already ({key:?})");
        entry.generation = entry.generation.wrapping_add(1);
        let (gone, fd) = (entry.desc.take(), entry.fd);
        entries.free.push(key.index);
        if let Some(by_number) = &mut entries.by_number
            && let hash_map::Entry::Occupied(mut of_number) = by_number.entry(fd)
        {
            of_number.get_mut().retain(|&other| other != key);
            if of_number.get().is_empty() {
                of_number.remove();
            }
        }
        self.watched.fetch_sub(1, Relaxed);
        drop(entries);
        drop(gone);
    }

    /// Something may have happened to each descriptor: each parker makes its system call again.
    fn unblock_all(&self, found: &mut GList<H>, tasks: &mut FoundTasks) {
        let entries = self.entries.lock();
        for desc in entries.all.iter().filter_map(|entry| entry.desc.as_ref()) {
            desc.unblock(Readiness::READABLE | Readiness::WRITABLE, found, tasks);
        }
    }

    /// No M polls any more: returns the wakers of the tasks that would wait for ever. A task that comes later finds its
    /// descriptor over.
    pub(crate) fn end(&self) -> Vec<Waker> {
        let mut entries = self.entries.lock();
        entries.is_over = true;
        let descs = entries.all.iter().filter_map(|entry| entry.desc.as_ref());
        descs.flat_map(|desc| desc.end_for_tasks()).flatten().collect()
    }

    /// Locks the table, for the events of one look.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Entries<H>> {
        self.entries.lock()
    }
}

impl<H: Host> Entries<H> {
    /// Wakes the parkers that wait for this readiness; goroutines that become runnable go to `found`, the wakers of tasks to
    /// `tasks`.
    #[inline(always)]
    pub(crate) fn unblock(
        &self,
        key: Key,
        readiness: Readiness,
        found: &mut GList<H>,
        tasks: &mut FoundTasks,
    ) {
        if let Some(entry) = self.all.get(key.index as usize)
            && entry.generation == key.generation
            && let Some(desc) = &entry.desc
        {
            desc.unblock(readiness, found, tasks);
        }
    }
}
