//! The scheduler: one value that holds everything of a runtime above the line.
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
//! | `run/jobs` | forks: work that is put aside for Ms that have nothing else to do |
//! | `run/place`, `run/mail` | where a new goroutine stands; goroutines that are to run on a certain P |
//! | `run/spawn` | new goroutines |
//! | `run/inject`, `run/globq` | goroutines that move to and from the global queue; that queue |
//! | `run/gqueue` | the array of which queues of many goroutines are made |
//! | `run/spawn_burst` | a spawner that has lost its P, and takes an idle one |
//! | `run/classes`, `run/class_queues` | goroutines of other classes than `Normal` |
//! | `run/idle`, `run/idle_set`, `run/mask` | idle Ps, Ms that stand by |
//! | `threads/newm`, `threads/mexit` | starting threads, ending them |
//! | `threads/procs`, `threads/ps` | how many Ps there are, and changing that number; where the Ps lie in memory |
//! | `park` | how a goroutine leaves its M, and the commit hook |
//! | `switch` | the user's functions around each switch of a goroutine |
//! | `poll` | the poller: which M waits in it, breaking the wait |
//! | `poll/table` | the descriptors that the poller watches |
//! | `timers` | which goroutine sleeps until when; which timers are due |
//! | `timers/heap` | a heap of timers, with its lock |
//! | `timers/callback` | timers that call a function |
//! | `timers/timer_thread` | the callbacks that no runtime runs |
//! | `threads/blocking` | giving a P away, and coming back without one |
//! | `threads/blockers` | a goroutine that is about to block goes to an M without a P |
//! | `threads/retake` | taking a P from an M that does not come back |
//! | `threads/locked` | goroutines that are bound to an M |
//! | `threads/bound` | the Ms that wait for such goroutines |
//! | `threads/attach` | a thread of the program as an M |
//! | `stacks` | a stack for each goroutine, reserved at its spawn |
//! | `watch/trim` | unused stacks go back to the system |
//! | `watch/coarse` | the time that a park records |
//! | `watch/dump` | what all goroutines are doing |
//! | `watch/sysmon` | the monitor, backstop of the poller |
//! | `watch/deadlock` | whether all goroutines of the process are asleep |
//! | `watch/quit` | which monitor answers SIGQUIT |
//! | `watch/trace` | what `GMPDEBUG=schedtrace` prints |
//! | `watch/told` | refusals of the system, reported on standard error |
//! | `watch/ending` | for which goroutines the end waits, reported on standard error |
//! | `stop` | the end of a runtime |
//! | `process` | what all runtimes of the process share |
//! | `lasting` | pointers to Ps and Ms |
//!
//! The order of the locks is in `prim/lock.rs`.
//!
//! A submitter on an M queues a goroutine at that M's P without a lock; the census and two fences ensure that an M that goes
//! idle and a submitter can't miss each other (`wake`). Which Ps are idle, which Ms stand by and which M waits in the poller
//! changes under one lock, `central`. `docs/go-names.md` has Go's names for all of these.

pub(crate) mod calls;
pub(crate) mod lasting;
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
use crate::sched::lasting::{MRef, PRef};
use crate::sched::poll::{NO_POLLER, PollTable, PollerSpot};
use crate::sched::run::census::Census;
use crate::sched::run::class_queues::WaitingClasses;
use crate::sched::run::classes::ONE_QUEUE;
use crate::sched::run::globq::{GlobalLen, GlobalQueue};
use crate::sched::run::idle_set::IdleSet;
use crate::sched::run::mask::Mask;
use crate::sched::switch::{AtSwitch, Duties};
use crate::sched::threads::blockers::BlockerM;
use crate::sched::threads::bound::BoundMs;
use crate::sched::threads::ps::Ps;
use crate::sched::watch::sysmon::Monitor;
use crate::sched::watch::told::Told;
use gmp_timers::Nanos;
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
    /// How goroutines are queued and taken.
    pub(crate) policy: Policy,
    /// While goroutines of lower classes wait, one in this many goroutines is of a lower class: see `run/classes`.
    pub(crate) low_share: u32,
    /// The CPUs to which Ps are bound, if any. Read whenever a P is acquired or given away.
    pub(crate) cpu_sets: Option<CpuSets>,
    /// What `GMPDEBUG` says.
    pub(crate) knobs: Knobs,
}

/// The state that the central lock protects.
pub(crate) struct Central<H: Host> {
    /// The global run queue.
    globq: GlobalQueue<H>,
    /// Goroutines that wait for a stack to come back.
    stackless: GList<H>,
    /// Goroutines that are about to block their thread, and wait for an M without a P; see `threads/blockers`.
    blockers: GList<H>,
    /// Whether an M is on its way for the blockers.
    blocker_m: BlockerM,
    /// Goroutines that no M will run, because the runtime ends.
    aside: GList<H>,
    /// The threads that are setting goroutines aside; `true` if the thread has queued more goroutines meanwhile. See `stop`.
    aside_by: Vec<(H::ThreadId, bool)>,
    idle: IdleSet<H>,
    /// Ps that no M can take: see `procs`.
    retired_ps: Vec<PRef<H>>,
    /// The wanted number of Ps; after the runtime has begun to end, the number that was wanted then.
    procs: u32,
    /// The number of Ps follows the machine's, because the program has not set one.
    procs_follow: bool,
    /// Ms that wait for the goroutines that are bound to them; see `locked`.
    bound_ms: BoundMs<H>,
    poller: PollerSpot<H>,
    /// Every M that was ever made. Ms are freed only with the scheduler: a retaker might read them.
    ms: Vec<MRef<H>>,
    /// The Ms without a thread; see `mexit`.
    spare_ms: Vec<MRef<H>>,
    /// How many Ms are threads of the program; see `attach`. These Ms do not count towards `max_threads`.
    attached: u32,
    /// The monitor's thread.
    monitor_thread: Option<H::Thread>,
    /// Threads of Ms that have ended, or are about to.
    ended: Vec<H::Thread>,
    /// The number of threads that have not left, plus that of starts that are under way.
    alive: u32,
    /// The ender no longer waits for any M.
    ender_left: bool,
    /// Ms that a `Wake` is on its way to start.
    asked_for: u32,
    /// Ms that are being started: their threads have not yet taken their assignments.
    starting: u32,
    /// An M that is being started counts in `nmspinning`; see `newm`.
    start_claims: bool,
    /// A thread was refused: until this time the runtime asks for no thread; then the monitor looks whether a thread is needed.
    /// See `newm`.
    pause_until: Option<Nanos>,
    monitor: Monitor,
    /// A goroutine that was seen waiting for a descriptor; see `deadlock`.
    waits_for_io: Option<GRef<H>>,
    /// The operator was told that as many threads as are allowed are in use.
    limit_told: bool,
}

impl<H: Host> Central<H> {
    fn new(config: &Config, idle_ps: Vec<PRef<H>>) -> Self {
        let (procs, procs_follow) = (config.procs, config.procs_follow);
        Central {
            globq: GlobalQueue::new(config.policy, config.knobs.helping),
            stackless: GList::new(),
            blockers: GList::new(),
            blocker_m: BlockerM::None,
            aside: GList::new(),
            aside_by: Vec::new(),
            idle: IdleSet::of(idle_ps),
            retired_ps: Vec::new(),
            procs,
            procs_follow,
            bound_ms: BoundMs::new(),
            poller: PollerSpot::new(),
            ms: Vec::new(),
            spare_ms: Vec::new(),
            attached: 0,
            monitor_thread: None,
            ended: Vec::new(),
            alive: 0,
            ender_left: false,
            asked_for: 0,
            starting: 0,
            start_claims: false,
            pause_until: None,
            monitor: Monitor::Looking,
            waits_for_io: None,
            limit_told: false,
        }
    }
}

/// A runtime.
pub(crate) struct Sched<H: Host> {
    pub(crate) host: H,
    pub(crate) config: Config,
    /// No other scheduler of the process ever has this number, not even after the end of this one.
    pub(crate) number: u64,
    /// Padded, like each field that Ms write when they have no work or fetch a batch: the neighbouring fields are read for each
    /// goroutine.
    central: CachePadded<Mutex<Central<H>>>,
    /// Read at each submission, written when an M begins or ends to spin or sleep.
    census: CachePadded<Census>,
    /// The additional duties of each goroutine that parks or yields; see `switch`.
    at_switch: AtSwitch,
    /// Until when the M in the poller waits; see `poll`. Padded: each M that goes to the poller writes it.
    poll_until: CachePadded<AtomicU64>,
    /// How many goroutines are in the global queue; see `run/globq`. Padded: written whenever that number changes.
    pub(crate) globq_len: CachePadded<GlobalLen>,
    /// The classes whose queues have waiting goroutines.
    waiting_classes: WaitingClasses,
    /// Whether some goroutines are queued globally wherever they come from: see `run/classes`. Written under the lock.
    detours: SingleWriterByte,
    /// `wanted`, or zero while goroutines stand in the queues of the classes: see `run/classes`. Written under the lock.
    attention: AtomicU32,
    idle_mask: Mask,
    timer_mask: Mask,
    /// A job was ever put in; see `run/jobs`. Set before SubmitFence, and never cleared.
    forks: AtomicBool,
    /// A P that no M holds might have jobs; see `run/jobs`.
    left_jobs: AtomicBool,
    /// How many jobs are on the way from a slot to a goroutine.
    starting_jobs: CachePadded<AtomicU32>,
    /// The wanted number of Ps; zero from step 2 of `stop` on, when the runtime ends. See `procs`. Written under the lock.
    wanted: AtomicU32,
    ps: Ps<H>,
    pool: NonNull<GPool<H>>,
    pub(crate) descs: PollTable<H>,
    next_id: CachePadded<AtomicU64>,
    /// Goroutines wait for a stack; see `stacks`.
    stacks_wanted: AtomicBool,
    /// Goroutines that threads that are no M have made, less those that such threads have dropped. Ms count their own.
    live: AtomicI64,
    /// How many goroutines were not unwound, because unwinding might have ended the process.
    refusals: AtomicU64,
    /// Counts the looks at the poller, for the monitor.
    polls: CachePadded<AtomicU64>,
    /// How many threads without an M serve timers; see `deadlock`.
    serving: AtomicU64,
    /// Nanoseconds; see `watch/coarse`.
    coarse_now: SingleWriterWord,
    told: Told,
    pub(crate) thread_starts: UntilTheEnd,
    /// Where goroutines wait for their turn to block a thread.
    pub(crate) lines: Lines,
    pub(crate) monitor_note: Note<H>,
    /// The ender sleeps here; an alarm makes it look again.
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
    /// The host's, when the host refuses the thread; and if there is no memory for the Ps.
    pub(crate) fn start(host: H, config: Config) -> io::Result<Arc<Self>> {
        let ps = Ps::new()?;
        let sched = Arc::new_cyclic(|weak| {
            // Made here and not inside `new`, whose frame is large in a debug build: a goroutine can start a runtime.
            let idle_ps = Self::make_ps(&ps, weak, &config);
            Self::new(weak, host, config, (ps, idle_ps))
        });
        // The first M's thread starts meanwhile, on another CPU. That M finds no goroutine before this function has returned.
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
            // `register` might have looked for runtimes before this one was known.
            sched.at_switch.add(Duties::HOOKS);
        }
        Ok(sched)
    }

    /// Makes the first Ps. Returns the list of idle Ps, which has all of them.
    fn make_ps(ps: &Ps<H>, weak: &Weak<Self>, config: &Config) -> Vec<PRef<H>> {
        let mut idle: Vec<_> =
            (0..config.procs).map(|_| ps.push(|id| P::new(id, weak, config.policy))).collect();
        // The P with the lowest number is taken first.
        idle.reverse();
        idle
    }

    fn new(weak: &Weak<Self>, host: H, mut config: Config, (ps, idle_ps): (Ps<H>, Vec<PRef<H>>)) -> Self {
        let procs = config.procs;
        let central = Central::new(&config, idle_ps);
        let detours = if config.policy.has_one_queue() { ONE_QUEUE } else { 0 };
        let lines = Lines::new(config.max_file_calls, config.max_lookups);
        let thread_starts = UntilTheEnd::new(std::mem::take(&mut config.thread_starts));
        Sched {
            host,
            config,
            number: H::shared().number_sched(),
            central: CachePadded::new(Mutex::new(Rank::Central, central)),
            census: CachePadded::new(Census::new(procs)),
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
            starting_jobs: CachePadded::new(AtomicU32::new(0)),
            wanted: AtomicU32::new(procs),
            ps,
            pool: GPool::new(weak.clone()),
            descs: PollTable::new(),
            next_id: CachePadded::new(AtomicU64::new(1)),
            stacks_wanted: AtomicBool::new(false),
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

    /// Returns how often the central lock was taken, goroutines were stolen, and an M was woken by an M.
    #[cfg(gmp_policies)]
    pub(crate) fn counters(&self) -> [u64; 3] {
        let of = |f: fn(&P<H>) -> u64| self.ps.iter().map(|p| f(p)).sum();
        let thefts = of(|p| p.thefts.load(Relaxed));
        [self.central.taken(), thefts, of(|p| p.wakes())]
    }

    /// Returns the pool of the Gs of this scheduler only; `G::is_of` compares it.
    #[inline(always)]
    pub(crate) fn pool(&self) -> NonNull<GPool<H>> {
        self.pool
    }

    fn gs(&self) -> &GPool<H> {
        // SAFETY: only the drop of the scheduler closes the pool.
        unsafe { self.pool.as_ref() }
    }

    /// Returns a handle to this scheduler that does not keep it alive.
    pub(crate) fn weak(&self) -> &Weak<Self> {
        self.gs().sched()
    }

    /// Returns a counted handle to this scheduler; `None` while the last one is dropped.
    pub(crate) fn arc(&self) -> Option<Arc<Self>> {
        self.weak().upgrade()
    }

    /// Returns how many goroutines have not ended.
    pub(crate) fn num_goroutines(&self) -> usize {
        let central = self.central.lock();
        let counted: i64 = central.ms.iter().map(|m| m.live()).sum();
        // Relaxed: the sum includes every begin and end that the caller knows of. Other goroutines begin and end meanwhile.
        (self.live.load(Relaxed) + counted).max(0) as usize
    }

    /// Returns `true` if the runtime is ending and Ms take no more work. Exact under the lock; elsewhere the load is Relaxed,
    /// and SubmitFence (`wake.rs`) orders it where that matters.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.wanted.load(Relaxed) == 0
    }

    /// Returns `true` if the runtime has begun to end, and goroutines end where they park. Exact under the lock; elsewhere a
    /// hint, because the sweeps of `stop` find the goroutines that did not see the flag.
    #[inline(always)]
    pub(crate) fn is_ending(&self) -> bool {
        self.duties().ends()
    }

    /// Returns the additional duties of a goroutine that parks or yields now.
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

    /// Returns the scheduler of the calling goroutine, which lives as long as the goroutine runs; `None` on a thread that is no
    /// M.
    pub(crate) fn current<'a>() -> Option<&'a Self> {
        // A goroutine can change its M, never its scheduler.
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
        // SAFETY: `close` is called once, and no handle to this scheduler is left that could spawn.
        unsafe { GPool::close(self.pool) };
        for m in std::mem::take(&mut self.central.lock().ms) {
            // SAFETY: `take_record` has put the M into a box, and its thread, which held this scheduler, has left.
            unsafe { m.free() };
        }
    }
}
