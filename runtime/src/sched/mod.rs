//! The scheduler: one value, everything that a runtime is, above the line.
//!
//! | file | concept |
//! | --- | --- |
//! | `run/schedule` | an M's loop; finding the next goroutine; running it |
//! | `run/wake` | making a goroutine runnable; why no wake-up is lost |
//! | `run/spin` | which Ms look for work, and the look after giving up |
//! | `run/census` | nmspinning and npidle in one word |
//! | `run/look` | when a busy M looks elsewhere |
//! | `run/arrivals` | which goroutines that were readied from outside run before a ring |
//! | `run/round` | how goroutines that yield give way to those in the global queue |
//! | `run/turn` | `yield_to`: a turn that is given to one goroutine |
//! | `run/help` | work of other Ps that waits too long |
//! | `run/steal`, `run/nap` | work of other Ps; when a thief waits before it looks |
//! | `run/jobs` | forks: what is put aside for Ms that have nothing else to do |
//! | `run/place`, `run/mail` | where a new goroutine stands; goroutines that are to run on a certain P |
//! | `run/inject`, `run/globq` | new goroutines; the global queue |
//! | `run/spree` | a spawner that has lost its P, and takes an idle one |
//! | `run/classes`, `run/class_queues` | goroutines of other classes than `Normal` |
//! | `run/idle`, `run/idle_set`, `run/mask` | idle Ps, Ms that stand by |
//! | `threads/newm`, `threads/mexit` | starting threads, ending them |
//! | `threads/procs`, `threads/ps` | how many Ps there are, and changing that; where they lie |
//! | `park` | how a goroutine leaves its M, and the commit hook |
//! | `switch` | the user's functions around each switch of a goroutine |
//! | `poll` | the poller: which M waits in it, breaking the wait |
//! | `timers` | which goroutine sleeps until when; what is due |
//! | `timers/callback` | timers that call a function |
//! | `timers/timer_thread` | the callbacks that no runtime runs |
//! | `threads/blocking` | giving a P away, and coming back without one |
//! | `threads/callers` | a goroutine that is about to block goes to an M without a P |
//! | `threads/retake` | taking a P from an M that does not come back |
//! | `threads/locked` | goroutines that are bound to an M |
//! | `threads/bound` | the Ms that wait for such goroutines |
//! | `threads/attach` | a thread of the program as an M |
//! | `stacks` | a stack for each goroutine, reserved at its spawn |
//! | `watch/trim` | unused stacks go back to the system |
//! | `watch/dump` | what all goroutines are doing |
//! | `watch/sysmon` | the monitor, backstop of the poller |
//! | `watch/deadlock` | whether all goroutines of the process are asleep |
//! | `watch/quit` | which monitor answers SIGQUIT |
//! | `watch/trace` | what `GMPDEBUG=schedtrace` prints |
//! | `watch/told` | what the system has refused |
//! | `watch/ending` | for which goroutines the end waits, told to the operator |
//! | `stop` | the end of a runtime |
//! | `process` | what all runtimes of the process share |
//!
//! The order of the locks is in `prim/lock.rs`.
//!
//! A submitter on an M queues a goroutine at that M's P without a lock; by the census and two fences an M that goes idle
//! and a submitter can't miss each other (`wake`). Which Ps are idle, which Ms stand by and which M waits in the poller
//! changes under one lock, `central`. `docs/go-names.md` has Go's names for all of these.

#[cfg(gmp_loom)]
mod mutants;
pub(crate) mod park;
pub(crate) mod poll;
mod process;
pub(crate) mod run;
mod stacks;
mod stop;
pub(crate) mod switch;
pub(crate) mod threads;
pub(crate) mod timers;
pub(crate) mod watch;

use crate::g::GRef;
use crate::g::list::GList;
use crate::g::pool::GPool;
use crate::host::Host;
use crate::m::M;
use crate::m::note::Note;
use crate::os::signal::registry::catch_quit;
use crate::p::P;
use crate::prim::{
    Arc, AtomicBool, AtomicI64, AtomicU32, AtomicU64, CachePadded, Mutex, Rank, Relaxed, SingleWriterByte,
    SingleWriterWord, Weak,
};
use crate::runtime::cpu_sets::CpuSets;
use crate::runtime::knobs::{Knobs, Sigquit};
use crate::runtime::lines::Lines;
use crate::runtime::policy::Policy;
use crate::runtime::thread_start::{ThreadStarts, UntilTheEnd};
use crate::sched::poll::{NO_POLLER, PollTable, PollerSpot};
use crate::sched::run::census::Census;
use crate::sched::run::class_queues::WaitingClasses;
use crate::sched::run::classes::ONE_QUEUE;
use crate::sched::run::globq::{GlobalLen, GlobalQueue};
use crate::sched::run::idle_set::IdleSet;
use crate::sched::run::mask::Mask;
use crate::sched::stacks::Stacks;
use crate::sched::switch::{AtSwitch, Duties};
use crate::sched::threads::bound::BoundMs;
use crate::sched::threads::callers::CallerM;
use crate::sched::threads::ps::Ps;
use crate::sched::watch::sysmon::Monitor;
use crate::sched::watch::told::Told;
use std::io;
use std::ptr::NonNull;
use std::time::Duration;

pub(crate) use process::Shared;
pub use stop::Report;
pub use watch::told::Refused;

/// The settings of a runtime, as the builder has checked them.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// How many Ps there are at the start.
    pub(crate) procs: u32,
    /// The number of Ps follows the machine's, from which `procs` was taken.
    pub(crate) procs_follow: bool,
    /// Bytes of stack of a goroutine that asks for no size.
    pub(crate) stack_size: u32,
    /// The most threads that the runtime may have.
    pub(crate) max_threads: u32,
    /// The most file calls that are under way at once.
    pub(crate) max_file_calls: usize,
    /// The most name look-ups that are under way at once.
    pub(crate) max_lookups: usize,
    /// How long a thread without work stays; `None` is for ever.
    pub(crate) keep_alive: Option<Duration>,
    /// How long the end of the runtime waits when the program does not say.
    pub(crate) end_limit: Duration,
    /// What the runtime's threads are called, followed by their number.
    pub(crate) thread_name: String,
    /// What each thread of an M calls first. `Sched::thread_starts` takes it.
    pub(crate) thread_starts: ThreadStarts,
    /// How goroutines are queued and taken. Read in cold places only.
    pub(crate) policy: Policy,
    /// `policy` keeps all goroutines in the global queue.
    pub(crate) has_one_queue: bool,
    /// In so many goroutines one is of a lower class, while such ones wait: see `run/classes`.
    pub(crate) low_share: u32,
    /// The CPUs to which Ps are bound, if they are. Read for each P that is acquired or given away.
    pub(crate) cpu_sets: Option<CpuSets>,
    /// What `GMPDEBUG` says.
    pub(crate) knobs: Knobs,
}

/// What lies under the scheduler's lock.
pub(crate) struct Central<H: Host> {
    /// The global run queue.
    globq: GlobalQueue<H>,
    /// Goroutines that wait for a stack to come back.
    stackless: GList<H>,
    /// Goroutines that are about to block their thread, and wait for an M without a P; see `threads/callers`.
    callers: GList<H>,
    /// Whether an M is on its way for the callers.
    caller_m: CallerM,
    /// Goroutines that no M will run, as the runtime ends.
    aside: GList<H>,
    idle: IdleSet<H>,
    /// Ps that no M may take: see `procs`.
    retired_ps: Vec<NonNull<P<H>>>,
    /// How many Ps there are to be, or were to be when the runtime began to end.
    procs: u32,
    /// The number of Ps follows the machine's, as the program has not set one.
    procs_follow: bool,
    /// Ms that wait for the goroutines that are bound to them; see `locked`.
    bound_ms: BoundMs<H>,
    poller: PollerSpot<H>,
    /// Every M that was ever made. They stay until the scheduler goes: a retaker may read them.
    ms: Vec<NonNull<M<H>>>,
    /// The Ms without a thread; see `mexit`.
    spare_ms: Vec<NonNull<M<H>>>,
    /// How many Ms are threads of the program; see `attach`. They do not count towards `max_threads`.
    attached: u32,
    /// Threads that are no Ms.
    threads: Vec<H::Thread>,
    /// Threads of Ms that have ended, or are about to.
    ended: Vec<H::Thread>,
    /// Threads that have not left, and starts that are under way.
    alive: u32,
    /// The ender waits for no M any more.
    ender_left: bool,
    /// Ms that a `Wake` is on its way to start.
    asked_for: u32,
    /// Ms that are being started: their threads have not come for what was assigned.
    starting: u32,
    /// An M that is being started counts in `nmspinning`; see `newm`.
    start_claims: bool,
    monitor: Monitor,
    /// A goroutine that was seen waiting for a descriptor; see `deadlock`.
    waits_for_io: Option<GRef<H>>,
    /// An M could not be started, and the operator was told.
    warned: bool,
}

// SAFETY: the pointers name Ps and Ms of the same scheduler, which outlive it and are Sync.
unsafe impl<H: Host> Send for Central<H> {}

impl<H: Host> Central<H> {
    fn new(config: &Config, idle_ps: Vec<NonNull<P<H>>>) -> Self {
        let (procs, procs_follow) = (config.procs, config.procs_follow);
        Central {
            globq: GlobalQueue::new(config.policy, config.knobs.helping),
            stackless: GList::new(),
            callers: GList::new(),
            caller_m: CallerM::None,
            aside: GList::new(),
            idle: IdleSet::of(idle_ps),
            retired_ps: Vec::new(),
            procs,
            procs_follow,
            bound_ms: BoundMs::new(),
            poller: PollerSpot::new(),
            ms: Vec::new(),
            spare_ms: Vec::new(),
            attached: 0,
            threads: Vec::new(),
            ended: Vec::new(),
            alive: 0,
            ender_left: false,
            asked_for: 0,
            starting: 0,
            start_claims: false,
            monitor: Monitor::Looking,
            waits_for_io: None,
            warned: false,
        }
    }
}

/// A runtime.
pub(crate) struct Sched<H: Host> {
    pub(crate) host: H,
    pub(crate) config: Config,
    /// No other scheduler of the process has this number, also after this one's end.
    pub(crate) number: u64,
    /// By itself, as is what Ms without work, or with a batch to fetch, write: what stands beside is read for each goroutine.
    central: CachePadded<Mutex<Central<H>>>,
    /// Read at each submission, written when an M begins or ends to spin or sleep.
    census: CachePadded<Census>,
    /// The runtime ends: no M takes work any more. Set once, under the lock.
    stopping: AtomicBool,
    /// What each goroutine that parks or yields has to do besides; see `switch`.
    at_switch: AtSwitch,
    /// How long the M in the poller waits; see `poll`. By itself: written by each M that goes to the poller.
    poll_until: CachePadded<AtomicU64>,
    /// How many goroutines are in the global queue; see `inject`. By itself: written whenever that changes.
    globq_len: CachePadded<GlobalLen>,
    /// Of which classes goroutines wait in the queues of the classes.
    waiting_classes: WaitingClasses,
    /// Whether some goroutines are queued globally wherever they come from: see `run/classes`. Written under the lock.
    detours: SingleWriterByte,
    /// `wanted`, or zero while goroutines stand in the queues of the classes: see `run/classes`. Written under the lock.
    attention: AtomicU32,
    idle_mask: Mask,
    timer_mask: Mask,
    /// A job was put in; see `run/jobs`. Set before SubmitFence, and never taken back.
    forks: AtomicBool,
    /// A P that no M has may have jobs; see `run/jobs`.
    left_jobs: AtomicBool,
    /// How many jobs are on the way from a slot to a goroutine.
    starting: CachePadded<AtomicU32>,
    /// How many Ps there are to be; none when the runtime ends. See `procs`. Written under the lock.
    wanted: AtomicU32,
    /// When the machine was last asked for the number of Ps.
    procs_read: AtomicU64,
    ps: Ps<H>,
    pool: NonNull<GPool<H>>,
    pub(crate) descs: PollTable<H>,
    next_id: CachePadded<AtomicU64>,
    stacks: Stacks,
    /// Goroutines made, less those dropped, by threads that are no M; the others count at their Ms.
    live: AtomicI64,
    /// How many goroutines were not unwound, as an unwinding might have ended the process.
    refusals: AtomicU64,
    /// Counts the looks at the poller, for the monitor.
    polls: CachePadded<AtomicU64>,
    /// How many threads without an M serve timers; see `deadlock`.
    serving: AtomicU64,
    /// See `dump`.
    coarse_now: SingleWriterWord,
    told: Told,
    pub(crate) thread_starts: UntilTheEnd,
    /// Where goroutines wait for their turn to block a thread.
    pub(crate) lines: Lines,
    pub(crate) monitor_note: Note<H>,
    /// The ender sleeps here; an alarm has the ender look again.
    ender: Note<H>,
}

// SAFETY: `pool` is made for sharing; the rest is Sync.
unsafe impl<H: Host> Send for Sched<H> {}
// SAFETY: as for `Send`.
unsafe impl<H: Host> Sync for Sched<H> {}

impl<H: Host> Sched<H> {
    /// Makes a runtime and starts the first M.
    ///
    /// # Errors
    /// The host's, when the host refuses the thread.
    pub(crate) fn start(host: H, config: Config) -> io::Result<Arc<Self>> {
        let sched = Arc::new_cyclic(|weak| {
            // Not below the frame of `new`, which is large in a debug build: a goroutine may start a runtime.
            let ps = Self::new_ps(weak, &config);
            Self::new(weak, host, config, ps)
        });
        // The first M's thread starts meanwhile, on another CPU. It finds no goroutine before this function has returned.
        if let Err(refused) = sched.start_first().map(|()| H::prepare()).and_then(|()| sched.start_monitor())
        {
            sched.stop(Duration::ZERO);
            return Err(refused);
        }
        if sched.config.knobs.sigquit != Sigquit::Off {
            catch_quit::<H>();
        }
        if let Some(runtimes) = &H::shared().runtimes {
            runtimes.begin(&sched);
        }
        if H::has_switch_hooks() {
            // `register` may have looked for runtimes before this one was known.
            sched.at_switch.add(Duties::HOOKS);
        }
        Ok(sched)
    }

    /// Returns the Ps, and which are idle: all.
    fn new_ps(weak: &Weak<Self>, config: &Config) -> (Ps<H>, Vec<NonNull<P<H>>>) {
        let ps = Ps::new();
        let mut idle: Vec<_> =
            (0..config.procs).map(|_| ps.push(|id| P::new(id, weak, config.policy))).collect();
        // The P with the lowest number is taken first.
        idle.reverse();
        (ps, idle)
    }

    fn new(
        weak: &Weak<Self>,
        host: H,
        mut config: Config,
        (ps, idle_ps): (Ps<H>, Vec<NonNull<P<H>>>),
    ) -> Self {
        let procs = config.procs;
        let central = Central::new(&config, idle_ps);
        let detours = if config.has_one_queue { ONE_QUEUE } else { 0 };
        let lines = Lines::new(config.max_file_calls, config.max_lookups);
        let thread_starts = UntilTheEnd::new(std::mem::take(&mut config.thread_starts));
        Sched {
            host,
            config,
            number: H::shared().number_sched(),
            central: CachePadded::new(Mutex::new(Rank::Central, central)),
            census: CachePadded::new(Census::new(procs)),
            stopping: AtomicBool::new(false),
            at_switch: AtSwitch::new(),
            poll_until: CachePadded::new(AtomicU64::new(NO_POLLER)),
            globq_len: CachePadded::new(GlobalLen::new(detours != 0)),
            waiting_classes: WaitingClasses::new(),
            detours: SingleWriterByte::new(detours),
            attention: AtomicU32::new(procs),
            idle_mask: Mask::new(procs),
            timer_mask: Mask::new(0),
            forks: AtomicBool::new(false),
            left_jobs: AtomicBool::new(false),
            starting: CachePadded::new(AtomicU32::new(0)),
            wanted: AtomicU32::new(procs),
            procs_read: AtomicU64::new(H::now().as_nanos()),
            ps,
            pool: GPool::new(weak.clone()),
            descs: PollTable::new(),
            next_id: CachePadded::new(AtomicU64::new(1)),
            stacks: Stacks::new(),
            live: AtomicI64::new(0),
            refusals: AtomicU64::new(0),
            polls: CachePadded::new(AtomicU64::new(0)),
            serving: AtomicU64::new(0),
            coarse_now: SingleWriterWord::new(H::now().as_nanos()),
            told: Told::new(),
            thread_starts,
            lines,
            monitor_note: Note::new(),
            ender: Note::new(),
        }
    }

    /// How often the central lock was taken, goroutines were stolen, and an M was woken by an M.
    #[cfg(gmp_policies)]
    pub(crate) fn counters(&self) -> [u64; 3] {
        let of = |f: fn(&P<H>) -> u64| self.ps.iter().map(|p| f(p)).sum();
        let thefts = of(|p| p.thefts.load(Relaxed));
        [self.central.taken(), thefts, of(|p| p.wakes())]
    }

    /// How many goroutines have not ended.
    pub(crate) fn num_goroutines(&self) -> usize {
        let central = self.central.lock();
        // SAFETY: Ms live as long as their scheduler.
        let counted: i64 = central.ms.iter().map(|m| unsafe { m.as_ref() }.live()).sum();
        // Relaxed: a sum, exact for what the caller was told of. Others begin and end meanwhile.
        (self.live.load(Relaxed) + counted).max(0) as usize
    }

    /// Returns `true` if the runtime ends. Exact under the lock; Relaxed elsewhere, ordered by SubmitFence
    /// (`wake.rs`) where that matters.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// Returns `true` if the runtime has begun to end, and goroutines end where they park. Exact under the lock;
    /// elsewhere a hint, as goroutines that did not see the flag are found by the sweeps of `stop`.
    #[inline(always)]
    pub(crate) fn is_ending(&self) -> bool {
        self.duties().ends()
    }

    /// Returns what a goroutine that parks or yields now has to do besides.
    #[inline(always)]
    pub(crate) fn duties(&self) -> Duties {
        self.at_switch.read()
    }

    /// For models: returns `true` if no M has a P, or spins, or was summoned.
    #[cfg(gmp_loom)]
    pub(crate) fn procs_are_idle(&self) -> bool {
        let central = self.central.lock();
        self.all_idle(&central) && self.census.read().nmspinning() == 0
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
        for p in self.ps.iter() {
            p.with_stack_cache(|cache| self.host.empty(cache));
        }
        // SAFETY: once, and no handle to this scheduler is left that could spawn.
        unsafe { GPool::close(self.pool) };
        for m in std::mem::take(&mut self.central.lock().ms) {
            // SAFETY: each M came from a box, and the M's thread, which held this scheduler, has left.
            drop(unsafe { Box::from_raw(m.as_ptr()) });
        }
    }
}
