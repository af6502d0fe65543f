//! The scheduler: one value, everything that a runtime is, above the line.
//!
//! | file | concept | Go |
//! | --- | --- | --- |
//! | `schedule` | an M's loop; finding the next goroutine; running it | `schedule`, `findRunnable`, `execute`, `mstart` |
//! | `park` | how a goroutine leaves its M, and the commit hook | `gopark`, `mcall`, `goexit0` |
//! | `wake` | making a goroutine runnable | `ready`, `goready`, `wakep` |
//! | `inject` | work from outside of an M | `newproc`, `injectglist`, `globrunqput` |
//! | `idle` | idle Ps, idle Ms, starting and stopping them | `pidleput`, `startm`, `stopm`, `mput` |
//! | `poll` | the poller: who waits in it, breaking the wait | `netpoll`, `netpollBreak` |
//! | `timers` | who sleeps until when | `runtime/time.go` |
//! | `blocking` | coming back without a P | `exitsyscall0` |
//! | `dump` | what all goroutines are doing | `traceback`, `_Gscan` |
//! | `sysmon` | the monitor, backstop of the poller | `sysmon` |
//! | `stop` | the end of a runtime | – |
//!
//! **Lock order**, outermost first: a socket's turn or registration · a joiner · `central` · the timers, the
//! poller's table, the pool of Gs. No lock is held while a goroutine's stack is switched, except those that the
//! commit hook releases.
//!
//! In this form all run queues are one, and everything that decides who sleeps lies under one lock, `central`:
//! then "nothing to do, so sleep" and "something to do, so wake" can't miss each other, because each is one
//! critical section (`idle`, `wake`).

mod blocking;
mod dump;
mod idle;
mod inject;
pub(crate) mod park;
pub(crate) mod poll;
mod schedule;
mod stop;
mod sysmon;
mod timers;
pub(crate) mod wake;

use crate::gpool::GPool;
use crate::host::Host;
use crate::m::M;
use crate::note::Note;
use crate::p::P;
use crate::prim::{Arc, AtomicU64, CachePadded, Mutex, Relaxed};
use crate::runq::GList;
use crate::sched::poll::{PollTable, Poller};
use crate::sched::sysmon::Monitor;
use crate::sched::timers::Timers;
use std::io;
use std::ptr::NonNull;
use std::time::Duration;

pub use stop::Report;

/// What the builder has settled.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// How many Ps there are.
    pub(crate) procs: u32,
    /// Bytes of stack of a goroutine that asks for no size of its own.
    pub(crate) stack_size: usize,
    /// The most threads that the runtime may have.
    pub(crate) max_threads: u32,
    /// What its threads are called, followed by their number.
    pub(crate) thread_name: String,
}

/// Whether new work is taken.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Stage {
    /// It is.
    Running,
    /// The runtime ends: Ms leave as soon as they look for work.
    Stopping,
}

/// What lies under the scheduler's lock.
pub(crate) struct Central<H: Host> {
    runq: GList<H>,
    /// Goroutines that wait for a stack to come back.
    stackless: GList<H>,
    idle_ps: Vec<NonNull<P>>,
    idle_ms: Vec<NonNull<M<H>>>,
    poller: Poller,
    stage: Stage,
    /// Every M that was ever made. They stay until the scheduler goes: a retaker may read them.
    ms: Vec<NonNull<M<H>>>,
    threads: Vec<H::Thread>,
    /// Threads that have not left, and starts that are under way.
    alive: u32,
    /// Ms that a `Wake` is on its way to start.
    asked_for: u32,
    monitor: Monitor,
    /// An M could not be started, and this was said.
    warned: bool,
}

// SAFETY: the pointers name Ps and Ms of the same scheduler, which outlive it and are Sync.
unsafe impl<H: Host> Send for Central<H> {}

/// What is known of the goroutines' stacks.
struct Stacks {
    /// In use, or being asked for.
    out: AtomicU64,
    /// How many came back, ever.
    returned: AtomicU64,
}

/// A runtime.
pub(crate) struct Sched<H: Host> {
    pub(crate) host: H,
    pub(crate) config: Config,
    central: Mutex<Central<H>>,
    ps: Box<[CachePadded<P>]>,
    pool: NonNull<GPool<H>>,
    timers: Timers<H>,
    pub(crate) descs: PollTable<H>,
    next_id: AtomicU64,
    stacks: Stacks,
    live: AtomicU64,
    /// Counts the looks at the poller, for the monitor.
    polls: AtomicU64,
    monitor_note: Note<H>,
    /// The last M that leaves wakes whoever waits for the runtime's end.
    all_left: Note<H>,
}

// SAFETY: `pool` is made for sharing; the rest is Sync by itself.
unsafe impl<H: Host> Send for Sched<H> {}
// SAFETY: as above.
unsafe impl<H: Host> Sync for Sched<H> {}

impl<H: Host> Sched<H> {
    /// Makes a runtime and starts its first M.
    ///
    /// # Errors
    /// The host's, when it refuses the thread.
    pub(crate) fn start(host: H, config: Config) -> io::Result<Arc<Self>> {
        let sched = Arc::new_cyclic(|weak| {
            let ps: Box<[_]> = (0..config.procs).map(|id| CachePadded::new(P::new(id))).collect();
            // The P with the lowest number is taken first.
            let idle_ps = ps.iter().rev().map(|p| NonNull::from(&**p)).collect();
            Sched {
                host,
                config,
                central: Mutex::new(Central {
                    runq: GList::new(),
                    stackless: GList::new(),
                    idle_ps,
                    idle_ms: Vec::new(),
                    poller: Poller::Nobody,
                    stage: Stage::Running,
                    ms: Vec::new(),
                    threads: Vec::new(),
                    alive: 0,
                    asked_for: 0,
                    monitor: Monitor::Looking,
                    warned: false,
                }),
                ps,
                pool: GPool::new(weak.clone()),
                timers: Timers::new(),
                descs: PollTable::new(),
                next_id: AtomicU64::new(1),
                stacks: Stacks { out: AtomicU64::new(0), returned: AtomicU64::new(0) },
                live: AtomicU64::new(0),
                polls: AtomicU64::new(0),
                monitor_note: Note::new(),
                all_left: Note::new(),
            }
        });
        if let Err(refused) = sched.start_first().and_then(|()| sched.start_monitor()) {
            sched.stop(Duration::ZERO);
            return Err(refused);
        }
        Ok(sched)
    }

    /// How many goroutines have not ended.
    pub(crate) fn num_goroutines(&self) -> usize {
        // Relaxed: a count, ordered by nothing.
        self.live.load(Relaxed) as usize
    }

    pub(crate) fn procs(&self) -> usize {
        self.ps.len()
    }

    /// The scheduler of the calling goroutine, which lives as long as the goroutine runs; `None` on other threads.
    pub(crate) fn current<'a>() -> Option<&'a Self> {
        // A goroutine may change its M, never its scheduler.
        M::current().map(M::sched)
    }
}

impl<H: Host> Drop for Sched<H> {
    fn drop(&mut self) {
        self.leave_goroutines();
        // SAFETY: once, and nobody can spawn any more.
        unsafe { GPool::close(self.pool) };
        for m in std::mem::take(&mut self.central.lock().ms) {
            // SAFETY: each came from a box, and its thread, which held this scheduler, has left.
            drop(unsafe { Box::from_raw(m.as_ptr()) });
        }
    }
}
