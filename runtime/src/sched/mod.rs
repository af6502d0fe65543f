//! The scheduler: one value, everything that a runtime is, above the line.
//!
//! | file | concept | Go |
//! | --- | --- | --- |
//! | `schedule` | an M's loop; finding the next goroutine; running it | `schedule`, `findRunnable`, `execute`, `mstart`, `runqget` |
//! | `wake` | making a goroutine runnable; why no wake-up is lost | `ready`, `goready`, `wakep`, `startm`, `injectglist` |
//! | `spin` | who looks for work, and the look after giving up | `resetspinning`, `becomeSpinning`, `checkRunqsNoP` |
//! | `census` | nmspinning and npidle in one word | `sched.nmspinning`, `sched.npidle` |
//! | `steal` | work of other Ps | `stealWork`, `runqsteal` |
//! | `inject` | new goroutines; the global queue | `newproc`, `globrunqput`, `globrunqgetbatch` |
//! | `idle`, `mask` | idle Ps, Ms that stand by | `pidleput`, `pidleget`, `mput`, `stopm`, `idlepMask`, `timerpMask` |
//! | `newm` | starting threads | `newm` |
//! | `park` | how a goroutine leaves its M, and the commit hook | `gopark`, `mcall`, `goexit0` |
//! | `poll` | the poller: who waits in it, breaking the wait | `netpoll`, `netpollBreak`, `wakeNetPoller` |
//! | `timers` | who sleeps until when | `runtime/time.go` |
//! | `blocking` | giving a P away, and coming back without one | `handoffp`, `entersyscallblock`, `exitsyscall0` |
//! | `stacks` | waiting for a stack | – |
//! | `dump` | what all goroutines are doing | `traceback`, `_Gscan` |
//! | `sysmon` | the monitor, backstop of the poller | `sysmon` |
//! | `stop` | the end of a runtime | – |
//!
//! **Lock order**, outermost first: a socket's turn or registration · a joiner · `central` · a P's timers, the
//! poller's table, the pool of Gs. No lock is held while a goroutine's stack is switched, except those that the
//! commit hook releases.
//!
//! A goroutine that one readies on an M is queued at that M's P without a lock; the census and two fences see to it that
//! an M which goes idle and a submission can't miss each other (`wake`). Who is idle, who stands by and who waits in
//! the poller changes under one lock, `central`.

mod blocking;
mod census;
mod dump;
mod idle;
mod inject;
mod mask;
mod newm;
pub(crate) mod park;
pub(crate) mod poll;
mod schedule;
mod spin;
mod stacks;
mod steal;
mod stop;
mod sysmon;
pub(crate) mod timers;
pub(crate) mod wake;

use crate::glist::GList;
use crate::gpool::GPool;
use crate::host::Host;
use crate::m::M;
use crate::note::Note;
use crate::p::P;
use crate::prim::{Arc, AtomicBool, AtomicI64, AtomicU64, CachePadded, Mutex, Relaxed};
use crate::sched::census::Census;
use crate::sched::mask::Mask;
use crate::sched::poll::{NOBODY, PollTable, Poller};
use crate::sched::stacks::Stacks;
use crate::sched::sysmon::Monitor;
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

/// What lies under the scheduler's lock.
pub(crate) struct Central<H: Host> {
    /// The global run queue.
    globq: GList<H>,
    /// Goroutines that wait for a stack to come back.
    stackless: GList<H>,
    /// Goroutines that nobody will run, as the runtime ends.
    aside: GList<H>,
    idle_ps: Vec<NonNull<P<H>>>,
    idle_ms: Vec<NonNull<M<H>>>,
    poller: Poller<H>,
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

/// A runtime.
pub(crate) struct Sched<H: Host> {
    pub(crate) host: H,
    pub(crate) config: Config,
    central: Mutex<Central<H>>,
    /// Read at each submission, written when an M begins or ends to spin or sleep.
    census: CachePadded<Census>,
    /// The runtime ends: no M takes work any more. Set once, under the lock.
    stopping: AtomicBool,
    /// How long the M in the poller waits; see `poll`.
    poll_until: AtomicU64,
    /// How many stand in the global queue; see `inject`.
    globq_len: AtomicU64,
    idle_mask: Mask,
    timer_mask: Mask,
    ps: Box<[CachePadded<P<H>>]>,
    pool: NonNull<GPool<H>>,
    pub(crate) descs: PollTable<H>,
    next_id: AtomicU64,
    stacks: Stacks,
    /// Goroutines made, less those dropped, by threads that are no M; the others count at their Ms.
    live: AtomicI64,
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
            let procs = config.procs;
            let ps: Box<[_]> = (0..procs).map(|id| CachePadded::new(P::new(id))).collect();
            // The P with the lowest number is taken first.
            let idle_ps = ps.iter().rev().map(|p| NonNull::from(&**p)).collect();
            Sched {
                host,
                config,
                central: Mutex::new(Central {
                    globq: GList::new(),
                    stackless: GList::new(),
                    aside: GList::new(),
                    idle_ps,
                    idle_ms: Vec::new(),
                    poller: Poller::Nobody,
                    ms: Vec::new(),
                    threads: Vec::new(),
                    alive: 0,
                    asked_for: 0,
                    monitor: Monitor::Looking,
                    warned: false,
                }),
                census: CachePadded::new(Census::new(procs)),
                stopping: AtomicBool::new(false),
                poll_until: AtomicU64::new(NOBODY),
                globq_len: AtomicU64::new(0),
                idle_mask: Mask::new(0, procs),
                timer_mask: Mask::new(procs, procs),
                ps,
                pool: GPool::new(weak.clone()),
                descs: PollTable::new(),
                next_id: AtomicU64::new(1),
                stacks: Stacks::new(),
                live: AtomicI64::new(0),
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
        let central = self.central.lock();
        // SAFETY: Ms live as long as their scheduler.
        let counted: i64 = central.ms.iter().map(|m| unsafe { m.as_ref() }.live()).sum();
        // Relaxed: a sum, exact for what the caller was told of. Others begin and end while it is taken.
        (self.live.load(Relaxed) + counted).max(0) as usize
    }

    /// Whether the runtime ends. Exact under the lock; Relaxed elsewhere, ordered by S2 of `wake` where that matters.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    pub(crate) fn procs(&self) -> usize {
        self.ps.len()
    }

    /// For models: nobody runs or looks for anything.
    #[cfg(gmp_loom)]
    pub(crate) fn procs_are_idle(&self) -> bool {
        self.central.lock().idle_ps.len() == self.ps.len()
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
        // SAFETY: the pool is closed only below.
        self.ps.iter().for_each(|p| unsafe { p.free_gs.empty(self.pool) });
        // SAFETY: once, and nobody can spawn any more.
        unsafe { GPool::close(self.pool) };
        for m in std::mem::take(&mut self.central.lock().ms) {
            // SAFETY: each came from a box, and its thread, which held this scheduler, has left.
            drop(unsafe { Box::from_raw(m.as_ptr()) });
        }
    }
}
