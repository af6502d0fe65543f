//! The host of the models: loom's threads under the shipped scheduler. Present under the cfg `gmp_loom` only.
//!
//! Everything above the line is the code that ships; goroutines run on real stacks, switched by the real
//! assembly, inside loom's threads. Only the world is played:
//!
//! * a thread is a loom thread; the M of a thread is a `loom::thread_local!`, set when the M starts;
//! * a note's sleep state is a mutex and a condition variable; a timed sleep lasts until it is ended;
//! * the poller is a list of posted events and one break, which whoever looks first takes, as in the kernel. A
//!   wait of less than [`LONG`] is over at once, and the clock has then moved on by it; a longer one lasts until
//!   something is posted. So a break that is missing is a deadlock.
//!
//! A panic in a goroutine is a failed model: loom reports a deadlock, or two accesses that nothing orders, by a
//! panic wherever it finds them. It is carried to the M and goes on there.
//!
//! What no model sees: real thread-locals (all Ms share one OS thread), the panic count of a thread, time.
//!
//! # A model of your own
//!
//! A model is a test that loom runs once for each schedule that matters. It fails in the first one in which anything
//! panics, all threads wait for ever, or two accesses to a `loom::cell::UnsafeCell` are ordered by nothing; the events
//! of that schedule are printed before the panic's message.
//!
//! ```ignore
//! use gmp::model::{Model, at_rest, done};
//!
//! #[test]
//! fn what_a_goroutine_returns_is_joined() {
//!     Model::new().check("what_a_goroutine_returns_is_joined", || {
//!         let runtime = at_rest::<1>();
//!         assert_eq!(runtime.go(|| 1).join().unwrap(), 1);
//!         done();
//!     });
//! }
//! ```
//! **Running it.** The file begins with `#![cfg(gmp_loom)]`, and the build sets that cfg: here by `cargo loom`, an alias
//! in `.cargo/config.toml`; elsewhere by `RUSTFLAGS="--cfg gmp_loom" cargo test --release`, with a target directory of
//! its own and loom among the dev-dependencies. `tests/loom_user.rs` is a whole example: a mailbox, and how the
//! wake-up that a wrong version of it loses is shown to be found.
//!
//! **What a model may use.** All of gmp: [`go`](crate::go), [`JoinHandle::join`](crate::JoinHandle::join),
//! [`yield_now`](crate::yield_now), [`blocking`](crate::blocking), `sync`, `time::sleep`. What is to be checked is built
//! from loom's atomics, cells, `Mutex` and `Condvar`, and from [`park`] and [`Waiter`]: std's are invisible to loom, and
//! a thread that blocks in one blocks the whole model. A condition is waited for in a `Condvar` or a [`Flag`], never in a
//! loop that does not yield. Schedules must depend on loom alone: no clock, no addresses, no randomness, no hash map.
//!
//! **Its size.** loom has five threads: the model's own, and up to four more for Ms and for those that the model
//! starts. `procs(1).max_threads(1)` is the smallest runtime. Two threads that race over some twenty steps are a few
//! hundred executions; a third multiplies that by a hundred. [`Model::check`] prints the number; a sudden fall means
//! that the model has gone blind.
//!
//! **The stage.** The search begins where it matters: [`at_rest`] gives a runtime whose Ms sleep; [`runtime`] one whose
//! way there is not searched, until `loom::explore()`; [`together`] and [`together_with_us`] have goroutines begin at one
//! moment; [`done`] ends the search when the property has held, so that the end of the runtime costs nothing. Whoever knows
//! that it has held says so, in a goroutine most often, and with [`Parts`] the last of several: behind a join loom would
//! search, too, how the Ms go idle while the joiner is woken, up to a hundred times as many executions. The
//! bound counts preemptions, and whoever runs first when the search begins needs none: let it be the one who is to
//! be early. loom tries another order of two steps where it sees that they touch the same thing, and remembers one earlier
//! access of each thing only; a reader that comes first may hide behind the writer's own look. When a mutant that must
//! be found is not, begin with the other thread.
//!
//! **What it can't see.** Above: real thread-locals, time. Memory that is not in a loom cell: a race on it passes. That a
//! store and a later load change places on the machine, unless both sides have a `fence(SeqCst)`: loom shows its absence,
//! but takes SeqCst *accesses* for AcqRel. A load that is satisfied before an earlier one. So show of each line that a
//! protocol needs that the model fails without it.

use crate::g::{self, GRef};
use crate::host::{Answer, Bar, Broken, Frames, Host, Lack, PollWait, Said, Stack, Symbol};
use crate::m::note::Note;
use crate::m::{M, Window};
use crate::prim::{AtomicU32, Ordering, fence};
use crate::sched::park::{Commit, WaitReason, Yield};
use crate::sched::timers::timer_thread::TimerThread;
use crate::sched::watch::deadlock::Runtimes;
use crate::sched::watch::quit::Quit;
use crate::stack::switch::{Coro, End, Home};
use crate::wait::interrupt::{Frame, is_interrupt};
use crate::wait::waiter::{self, How, Woke};
use gmp_netpoll::{Key, Readiness};
use gmp_timers::Nanos;
use loom::sync::{Condvar, Mutex};
use std::any::Any;
use std::cell::Cell;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Once, OnceLock};
use std::time::{Duration, Instant};

pub use crate::prim::Mutant;
pub(crate) use crate::stack::pool::{GUARD, MAX_GUARD, MAX_STACK, MIN_STACK};
pub use stage::{Body, Flag, Parts, at_rest, done, fall_asleep, runtime, together, together_with_us};

mod stage;

/// From this length on a timed wait in the poller lasts until it is ended.
pub const LONG: Duration = Duration::from_secs(1000);

/// One model: how far loom explores it, and what is known of it afterwards.
#[derive(Clone, Debug)]
pub struct Model {
    preemptions: Option<usize>,
    max_branches: usize,
    retaker: Retaker,
    helpers: bool,
    refusals: u32,
    weighs: bool,
}

/// Who may take a P from a running goroutine.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Retaker {
    /// Nobody.
    None,
    /// A thread of the model, over a host that has a barrier for all threads.
    Heavy,
    /// A thread of the model, over a host that has none.
    Fences,
    /// A thread of the model, over a host that refuses the barrier when it is asked for one.
    Refused,
}

thread_local! {
    /// That of the model which this OS thread explores.
    static RETAKER: Cell<Retaker> = const { Cell::new(Retaker::None) };
    /// Over a host that refuses it: the barrier was asked for in this execution.
    static REFUSED: Cell<bool> = const { Cell::new(false) };
    /// Whether its busy Ps help each other.
    static HELPERS: Cell<bool> = const { Cell::new(false) };
    /// So many more thieves find that what they look at does not hold still.
    static REFUSALS: Cell<u32> = const { Cell::new(0) };
    /// Whether it weighs which goroutine others see an M run.
    static WEIGHS: Cell<bool> = const { Cell::new(false) };
    /// In this execution no thread can be started any more.
    static THREADS_REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// Returns `true` if what a thief looks at holds still.
pub(crate) fn stays_the_same() -> bool {
    let left = REFUSALS.get();
    REFUSALS.set(left.saturating_sub(1));
    left == 0
}

/// Returns `true` if a retaker relies on it that each entry into the runtime is a barrier.
pub(crate) fn relies_on_entries() -> bool {
    RETAKER.get() == Retaker::Heavy
}

/// The kernel may switch the calling thread out here, in which it passes a barrier: it does where another thread waits for
/// that. Anywhere, in truth; a model has such points in the windows, and where it says so.
pub(crate) fn switch_point() {
    if RETAKER.get() == Retaker::Refused {
        // SAFETY: the current M lives as long as its thread.
        let m = unsafe { ModelHost::current().as_ref() };
        m.inspect(|m| m.local.switches.may_pass());
    }
}

/// The barriers which others wait for one M to pass.
#[derive(Debug)]
struct Switches {
    asked: AtomicU32,
    passed: AtomicU32,
}

impl Switches {
    fn new() -> Self {
        Switches { asked: AtomicU32::new(0), passed: AtomicU32::new(0) }
    }

    /// The M's thread.
    fn may_pass(&self) {
        // Acquire: partner `wait_for_one`; what the asker did before is seen from here on.
        let asked = self.asked.load(crate::prim::Acquire);
        if self.passed.load(crate::prim::Relaxed) != asked {
            // SeqCst: the barrier for which a retaker asks, on the M's thread: partner EntryBarrier.
            fence(Ordering::SeqCst);
            // Release: partner `wait_for_one`.
            self.passed.store(asked, crate::prim::Release);
        }
    }

    fn wait_for_one(&self) {
        let asked = self.asked.load(crate::prim::Relaxed) + 1;
        // Release: partner `may_pass`.
        self.asked.store(asked, crate::prim::Release);
        // Acquire: partner `may_pass`; what that thread did before is seen.
        while self.passed.load(crate::prim::Acquire) != asked {
            loom::thread::yield_now();
        }
    }
}

pub(crate) fn weighs_single_writers() -> bool {
    WEIGHS.get()
}

pub(crate) fn has_helpers() -> bool {
    HELPERS.get()
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    /// Two preemptions; three when the environment has `GMP_LOOM_FULL`.
    pub fn new() -> Self {
        let preemptions = if std::env::var_os("GMP_LOOM_FULL").is_some() { 3 } else { 2 };
        Model {
            preemptions: Some(preemptions),
            max_branches: 20_000,
            retaker: Retaker::None,
            helpers: false,
            refusals: 0,
            weighs: false,
        }
    }

    /// Explores all schedules with at most so many preemptions.
    pub fn preemptions(mut self, bound: usize) -> Self {
        self.preemptions = Some(bound);
        self
    }

    /// Explores all schedules.
    pub fn unbounded(mut self) -> Self {
        self.preemptions = None;
        self
    }

    /// A thread of the model plays a retaker, which takes Ps away from running goroutines.
    pub fn with_retaker(mut self) -> Self {
        self.retaker = Retaker::Heavy;
        self
    }

    /// As `with_retaker`, over a host that has no barrier for all threads.
    pub fn with_retaker_that_fences(mut self) -> Self {
        self.retaker = Retaker::Fences;
        self
    }

    /// As `with_retaker`, over a host that refuses the barrier from the first time on.
    pub fn with_retaker_that_is_refused(mut self) -> Self {
        self.retaker = Retaker::Refused;
        self
    }

    /// Busy Ps help each other, before each goroutine and whatever their ages.
    pub fn with_helpers(mut self) -> Self {
        self.helpers = true;
        self
    }

    /// The first so many thieves of each execution find that the owner of what they would take is at work.
    pub fn with_refusals(mut self, count: u32) -> Self {
        self.refusals = count;
        self
    }

    /// Which goroutine others see an M run is a choice of loom's, too, among what the orderings permit. Others
    /// believe what was written last.
    pub fn weighing_single_writers(mut self) -> Self {
        self.weighs = true;
        self
    }

    /// Runs `f` in every schedule within the bounds, prints how many there were, and returns that. When the environment has
    /// `GMP_LOOM_MOST`, no bound is above that number: what fails with few preemptions is so found before those with more.
    ///
    /// # Panics
    /// In the first schedule in which `f`, or anything that it started, panics, blocks for ever, or makes two
    /// accesses that nothing orders. The events of that schedule are printed before.
    pub fn check(&self, name: &str, f: impl Fn() + Send + Sync + 'static) -> usize {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let previous = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                schedule::print();
                previous(info);
            }));
        });
        let start = Instant::now();
        let mut builder = loom::model::Builder::new();
        let most = std::env::var("GMP_LOOM_MOST")
            .map_or(usize::MAX, |text| text.parse().expect("GMP_LOOM_MOST is a number"));
        let preemptions = self.preemptions.map(|bound| bound.min(most));
        builder.preemption_bound = preemptions;
        builder.max_branches = self.max_branches;
        // Either would end the search early and call it a success.
        builder.max_duration = None;
        builder.max_permutations = None;
        schedule::reset();
        RETAKER.set(self.retaker);
        HELPERS.set(self.helpers);
        WEIGHS.set(self.weighs);
        let refusals = self.refusals;
        builder.check(move || {
            schedule::begin();
            REFUSALS.set(refusals);
            REFUSED.set(false);
            THREADS_REFUSED.set(false);
            f();
        });
        let executions = schedule::reset();
        let bound = preemptions.map_or("unbounded".to_owned(), |bound| format!("bound {bound}"));
        println!("model {name}: {executions} executions, {bound}, {:.2} s", start.elapsed().as_secs_f64());
        executions
    }
}

/// What happened in the execution that loom runs now, for the report of the one that fails. All threads of a
/// model share one OS thread, so it lies in a thread-local of std's.
mod schedule {
    use crate::host::Host;
    use std::cell::RefCell;
    use std::fmt::Write;
    use std::ptr::NonNull;

    #[derive(Default)]
    struct Log {
        execution: usize,
        events: String,
    }

    thread_local! {
        static LOG: RefCell<Log> = RefCell::default();
    }

    /// Between two models. How many executions there were.
    pub(super) fn reset() -> usize {
        LOG.take().execution
    }

    pub(super) fn begin() {
        LOG.with_borrow_mut(|log| {
            log.execution += 1;
            log.events.clear();
        });
    }

    pub(super) fn add(what: std::fmt::Arguments<'_>) {
        let m = NonNull::new(super::ModelHost::current().cast_mut());
        LOG.with_borrow_mut(|log| {
            let _infallible = match m {
                // SAFETY: the current M lives as long as its thread.
                Some(m) => writeln!(log.events, "  M{}: {what}", unsafe { m.as_ref() }.id),
                None => writeln!(log.events, "  {:?}: {what}", loom::thread::current().id()),
            };
        });
    }

    pub(super) fn print() {
        let log = LOG.take();
        if !log.events.is_empty() {
            eprintln!("the schedule of execution {}:\n{}", log.execution, log.events);
        }
    }
}

/// A goroutine or thread in one of its waits, as [`park`] hands it out.
#[derive(Clone)]
pub struct Waiter(waiter::Waiter<ModelHost>);

impl Waiter {
    /// True for the one who wins the right, and the duty, to call [`ready`](Self::ready). False, and without any
    /// effect, when another was first or the wait is over.
    #[must_use]
    pub fn claim(&self) -> bool {
        self.0.claim()
    }

    /// Lets the owner go on. Only after a won claim.
    pub fn ready(self) {
        self.0.ready();
    }

    /// Claims and readies; false when another was first.
    pub fn wake(self) -> bool {
        self.0.wake()
    }
}

/// How [`park`] ended.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Parked {
    /// Somebody has claimed the wait and readied it.
    Readied,
    /// `publish` refused, and nobody knew of the wait.
    Refused,
}

/// Parks the calling goroutine, or thread, as every blocking operation of gmp does: `publish` puts the [`Waiter`]
/// where others find it, most often by unlocking a queue; it runs on the M, when the caller's context is saved.
/// With `false` it calls the park off.
pub fn park(publish: impl FnOnce(Waiter) -> bool) -> Parked {
    let mut wait = waiter::Wait::<ModelHost>::begin();
    let waiter = Waiter(wait.waiter());
    let commit = move || if publish(waiter) { Commit::Park } else { Commit::Refuse };
    match wait.park(How::new(WaitReason::Model), commit) {
        Woke::Readied => Parked::Readied,
        Woke::Refused => Parked::Refused,
        woke => unreachable!("park: nobody interrupts a model's own wait ({woke:?})"),
    }
}

/// The host refuses each start of an M's thread, from here to the end of the execution.
pub fn refuse_threads() {
    THREADS_REFUSED.set(true);
}

/// From here on the host has so many stacks for the runtime, besides those in use; and the Ps have caches of them, or none.
pub fn limit_stacks(runtime: &crate::Runtime, count: usize, cached: bool) {
    let host = &runtime.sched().host;
    host.world().stacks = count;
    host.caches_stacks.store(cached, std::sync::atomic::Ordering::Relaxed);
    host.short_of_stacks.store(true, std::sync::atomic::Ordering::Relaxed);
}

/// Time passes, and nobody is told.
pub fn pass(time: Duration) {
    let mut clock = CLOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    *clock = clock.saturating_add(time);
}

/// Adds what the scheduler says of itself.
pub(crate) fn note_event(what: std::fmt::Arguments<'_>) {
    schedule::add(what);
}

/// Adds a line to the schedule that is printed when this execution fails.
pub fn note(what: &str) {
    schedule::add(format_args!("{what}"));
}

#[derive(Debug, Default)]
struct World {
    broken: bool,
    /// Threads that block in the poller.
    polling: usize,
    /// The descriptors that the poller watches; a model has one at most.
    watched: Vec<Key>,
    /// All that was ever posted for it.
    level: Readiness,
    events: Vec<(Key, Readiness)>,
    /// Where they are limited: stacks that no goroutine and no cache has.
    stacks: usize,
}

/// The world of one runtime in a model.
#[derive(Debug)]
pub struct ModelHost {
    world: Mutex<World>,
    happened: Condvar,
    /// Whether stacks are limited. Set before the search begins; loom does not see it.
    short_of_stacks: std::sync::atomic::AtomicBool,
    /// Whether a limited one that comes back goes to a cache.
    caches_stacks: std::sync::atomic::AtomicBool,
}

/// A P's stacks.
#[derive(Default)]
pub struct StackCache {
    real: crate::stack::pool::StackCache,
    /// Where they are limited: those that lie here.
    spare: usize,
}

/// Where the sleeper of a note lies.
#[derive(Debug)]
pub struct SleepState {
    lock: Mutex<()>,
    woken: Condvar,
}

impl Default for SleepState {
    fn default() -> Self {
        SleepState { lock: Mutex::new(()), woken: Condvar::new() }
    }
}

/// What an M keeps.
pub struct Local {
    home: Home,
    panic: Cell<Option<Box<dyn Any + Send>>>,
    switches: Switches,
}

impl Default for Local {
    fn default() -> Self {
        Local { home: Home::new(), panic: Cell::new(None), switches: Switches::new() }
    }
}

loom::thread_local! {
    static CURRENT: Cell<*const ()> = Cell::new(std::ptr::null());
    static THREAD_FRAME: Cell<*const Frame> = Cell::new(std::ptr::null());
}

loom::lazy_static! {
    /// Stands still, except in the poller.
    static ref CLOCK: Mutex<Nanos> = Mutex::new(Nanos::ZERO);
    static ref TIMER_THREAD: TimerThread<ModelHost> = TimerThread::new();
    static ref QUIT: Quit<Note<ModelHost>> = Quit::new();
}

/// Where the clock begins, for what asks in std's terms.
fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

/// Stacks outlive the executions, so that each execution finds the ones of the last.
fn stacks() -> &'static crate::stack::pool::StackPool {
    static STACKS: OnceLock<crate::stack::pool::StackPool> = OnceLock::new();
    STACKS.get_or_init(|| crate::stack::pool::StackPool::new(None, crate::stack::pool::GUARD))
}

impl ModelHost {
    pub(crate) fn new(_max_stack_bytes: Option<usize>, _guard: usize) -> io::Result<Self> {
        Ok(ModelHost {
            world: Mutex::new(World::default()),
            happened: Condvar::new(),
            short_of_stacks: Default::default(),
            caches_stacks: Default::default(),
        })
    }

    fn world(&self) -> loom::sync::MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn is_short_of_stacks(&self) -> bool {
        self.short_of_stacks.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns `true` if a thread blocks in the poller.
    pub(crate) fn somebody_polls(&self) -> bool {
        self.world().polling > 0
    }

    /// Plays the kernel: something has happened to the descriptor. Gives the keys under which it is watched.
    #[cfg(test)]
    pub(crate) fn happen(&self, readiness: Readiness) -> Vec<Key> {
        schedule::add(format_args!("the kernel has {readiness:?}"));
        let mut world = self.world();
        world.level |= readiness;
        world.watched.clone()
    }

    /// The same, for the poller to find.
    #[cfg(test)]
    pub(crate) fn post(&self, readiness: Readiness) {
        schedule::add(format_args!("the kernel posts {readiness:?}"));
        let mut world = self.world();
        world.level |= readiness;
        let posted: Vec<_> = world.watched.iter().map(|&key| (key, readiness)).collect();
        world.events.extend(posted);
        self.happened.notify_all();
    }
}

impl Host for ModelHost {
    type Stack = ModelStack;
    type SleepState = SleepState;
    type Local = Local;
    type Thread = loom::thread::JoinHandle<()>;
    type StackCache = StackCache;
    // A backstop would hide what is missing elsewhere.
    const MONITORED: bool = false;
    const SEES_RUNNING: bool = false;

    fn now() -> Nanos {
        *CLOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn nanos(at: Instant) -> Nanos {
        Nanos::ZERO.saturating_add(at.saturating_duration_since(origin()))
    }

    fn instant(at: Nanos) -> Instant {
        origin() + at.saturating_since(Nanos::ZERO)
    }

    fn cpu() -> u32 {
        // Each M has its own.
        // SAFETY: the current M lives as long as its thread.
        unsafe { Self::current().as_ref() }.map_or(0, |m| m.id)
    }

    fn cache_of(_cpu: u32) -> u32 {
        0
    }

    fn parallelism() -> usize {
        2
    }

    fn start(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Self::Thread> {
        if THREADS_REFUSED.get() {
            schedule::add(format_args!("is refused {name}"));
            return Err(io::ErrorKind::WouldBlock.into());
        }
        schedule::add(format_args!("starts {name}"));
        Ok(loom::thread::spawn(body))
    }

    fn join(thread: Self::Thread) {
        if let Err(payload) = thread.join() {
            resume_unwind(payload);
        }
    }

    fn run_aside(f: impl FnOnce() + Send + 'static) {
        drop(loom::thread::spawn(f));
    }

    fn with_room<R: Send>(f: impl FnOnce() -> R + Send) -> Option<R> {
        Some(f())
    }

    fn sleep(sleep_state: &SleepState, word: &AtomicU32, expected: u32, _limit: Option<Duration>) {
        let mut guard = sleep_state.lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Acquire: partners `Note::wake` and `Note::alarm`.
        while word.load(crate::prim::Acquire) == expected {
            schedule::add(format_args!("sleeps on a note"));
            guard = sleep_state.woken.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    fn wake(sleep_state: &SleepState, _word: &AtomicU32) {
        schedule::add(format_args!("wakes whoever sleeps on a note"));
        let _held = sleep_state.lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        sleep_state.woken.notify_all();
    }

    fn timer_thread() -> &'static TimerThread<Self> {
        &TIMER_THREAD
    }

    fn runtimes() -> Option<&'static Runtimes<Self>> {
        // A lock around every `run`, for what `models::cover` asks with `is_asleep` of one runtime.
        None
    }

    fn quit() -> &'static Quit<Note<Self>> {
        &QUIT
    }

    fn catch_quit() {}

    fn threads() -> Option<u32> {
        None
    }

    fn current() -> *const M<Self> {
        CURRENT.try_with(Cell::get).map_or(std::ptr::null(), <*const ()>::cast)
    }

    fn set_current(m: *const M<Self>) {
        CURRENT.with(|current| current.set(m.cast()));
    }

    fn random() -> u32 {
        // A model's schedule depends on loom alone.
        0
    }

    fn thread_frame() -> *const Frame {
        THREAD_FRAME.try_with(Cell::get).unwrap_or(std::ptr::null())
    }

    fn set_thread_frame(frame: *const Frame) {
        THREAD_FRAME.with(|current| current.set(frame));
    }

    fn is_panicking() -> bool {
        // All of a model's threads share one OS thread, which panics when the model has failed.
        std::thread::panicking()
    }

    fn unwinds() -> bool {
        false
    }

    fn may_unwind_to(mark: *const ()) -> Result<(), Bar> {
        if mark.is_null() { Err(Bar::NO_CATCHER) } else { Ok(()) }
    }

    fn is_first_refusal() -> bool {
        false
    }

    fn can_unwind() -> bool {
        true
    }

    fn heavy_barrier_exists() -> bool {
        match RETAKER.get() {
            Retaker::None | Retaker::Heavy => true,
            Retaker::Fences => false,
            Retaker::Refused => !REFUSED.get(),
        }
    }

    fn heavy_barrier() -> io::Result<()> {
        if RETAKER.get() == Retaker::Refused {
            REFUSED.set(true);
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // SeqCst: partner EntryBarrier, which is a fence in models where this is asked for.
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn slow_barrier(local: &Local, _thread: u32) -> bool {
        local.switches.wait_for_one();
        true
    }

    fn thread_begins(_local: &Local) -> (u32, Lack) {
        (0, Lack::No)
    }

    fn thread_ends(_local: &Local) {}

    fn cpu_time(_thread: u32) -> Option<Duration> {
        None
    }

    fn is_blocked(_local: &Local) -> io::Result<bool> {
        Ok(false)
    }

    fn frames_here(_frames: &mut Frames) {}

    fn ask(_threads: &[u32], _heard: &mut dyn FnMut(usize, Answer)) {}

    fn symbols(_pc: usize, _each: &mut dyn FnMut(Symbol<'_>)) {}

    fn catch(f: impl FnOnce()) -> std::thread::Result<()> {
        let Err(payload) = catch_unwind(AssertUnwindSafe(f)) else { return Ok(()) };
        if is_interrupt(&*payload) {
            return Err(payload);
        }
        // SAFETY: the current M lives as long as its thread.
        match unsafe { Self::current().as_ref() } {
            None => resume_unwind(payload),
            Some(m) => {
                m.local.panic.set(Some(payload));
                // SAFETY: a goroutine calls this on its own stack, and is never resumed.
                unsafe { crate::stack::switch::suspend(&raw const m.local.home, PANIC) };
                unreachable!("catch: a goroutine whose model has failed was resumed")
            }
        }
    }

    fn warn(what: &str) {
        schedule::add(format_args!("warns: {what}"));
    }

    fn print(text: &str) {
        schedule::add(format_args!("prints: {text}"));
    }

    fn give_up(text: &str) -> ! {
        panic!("{text}")
    }

    fn fatal(why: &str) -> ! {
        panic!("fatal error: {why}")
    }

    fn poll(
        &self,
        _local: &Local,
        wait: PollWait,
        mut found: impl FnMut(Key, Readiness),
    ) -> io::Result<Broken> {
        let mut world = self.world();
        let blocks = match wait {
            PollWait::Never => false,
            PollWait::For(limit) => limit >= LONG,
            PollWait::Forever => true,
        };
        schedule::add(format_args!("looks at the poller, {wait:?}"));
        while blocks && !world.broken && world.events.is_empty() {
            world.polling += 1;
            world = self.happened.wait(world).unwrap_or_else(std::sync::PoisonError::into_inner);
            world.polling -= 1;
        }
        if let PollWait::For(limit) = wait
            && !blocks
        {
            let mut now = CLOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *now = now.saturating_add(limit);
        }
        let broken = std::mem::take(&mut world.broken);
        let events = std::mem::take(&mut world.events);
        drop(world);
        schedule::add(format_args!("comes back from the poller: broken {broken}, events {events:?}"));
        events.into_iter().for_each(|(key, readiness)| found(key, readiness));
        Ok(if broken { Broken::Yes } else { Broken::No })
    }

    fn break_poll(&self) -> io::Result<()> {
        schedule::add(format_args!("breaks the poller's wait"));
        self.world().broken = true;
        self.happened.notify_all();
        Ok(())
    }

    fn watch(&self, _fd: RawFd, key: Key) -> io::Result<()> {
        let mut world = self.world();
        world.watched.push(key);
        // The kernel reports at once what is so already.
        let level = world.level | Readiness::WRITABLE;
        world.events.push((key, level));
        self.happened.notify_all();
        Ok(())
    }

    fn unwatch(&self, _fd: RawFd) -> io::Result<()> {
        self.world().watched.clear();
        Ok(())
    }

    fn reserve_stack(&self, cache: Option<&mut StackCache>, size: usize) -> io::Result<()> {
        stacks().reserve(cache.map(|cache| &mut cache.real), size)
    }

    fn new_stack(&self, cache: &mut StackCache, size: usize) -> io::Result<ModelStack> {
        if self.is_short_of_stacks() {
            let take = |from: &mut usize| from.checked_sub(1).map(|left| *from = left);
            take(&mut cache.spare)
                .or_else(|| take(&mut self.world().stacks))
                .ok_or(io::ErrorKind::OutOfMemory)?;
        }
        Ok(ModelStack { coro: Coro::new(stacks(), &mut cache.real, size, entry)? })
    }

    fn retire(&self, cache: &mut StackCache, stack: ModelStack) {
        if self.is_short_of_stacks() && self.caches_stacks.load(std::sync::atomic::Ordering::Relaxed) {
            cache.spare += 1;
        } else if self.is_short_of_stacks() {
            self.world().stacks += 1;
        }
        stack.coro.retire(stacks(), &mut cache.real);
    }

    fn empty(&self, cache: &mut StackCache) -> bool {
        let there = stacks().empty(&mut cache.real);
        if !self.is_short_of_stacks() {
            return there;
        }
        let spare = std::mem::take(&mut cache.spare);
        self.world().stacks += spare;
        spare > 0
    }

    fn age_stacks(&self) -> bool {
        stacks().age()
    }

    fn trim_some(&self) -> bool {
        stacks().trim_some()
    }

    fn call_on(_here: Option<&Self>, _size: usize, f: &mut dyn FnMut()) -> io::Result<()> {
        // What a model runs does not go deep.
        f();
        Ok(())
    }

    fn left_of_calls(address: usize) -> (usize, usize) {
        (usize::MAX, address)
    }

    unsafe fn suspend(m: &M<Self>, what: Yield) {
        let what = ManuallyDrop::new(what);
        // SAFETY: as in the native host.
        unsafe {
            crate::stack::switch::suspend(&raw const m.local.home, (&raw const what).expose_provenance())
        };
    }
}

/// A word that is neither `Said::EXIT` nor a pointer to a `Yield`.
const PANIC: usize = 1;

/// A real stack.
pub struct ModelStack {
    coro: Coro,
}

// SAFETY: a suspended stack belongs to whoever holds this value.
unsafe impl Send for ModelStack {}

impl Stack<ModelHost> for ModelStack {
    unsafe fn resume(&mut self, m: &M<ModelHost>, g: GRef<ModelHost>) -> Said {
        schedule::add(format_args!("resumes {g:?}"));
        let word = g.to_raw().expose_provenance();
        // SAFETY: the caller won the right to run this goroutine, which has not ended, on `m`.
        match unsafe { self.coro.resume(&m.local.home, word) } {
            Said::EXIT => {
                schedule::add(format_args!("{g:?} has ended"));
                Said::of(Said::EXIT)
            }
            PANIC => {
                let payload = m.local.panic.take().expect("resume: a panic has a payload");
                resume_unwind(payload)
            }
            said => {
                schedule::add(format_args!("{g:?} is saved"));
                Said::of(said)
            }
        }
    }

    fn depth(&self) -> Option<usize> {
        self.coro.depth()
    }

    unsafe fn frames(&self, frames: &mut Frames) {
        // SAFETY: by this function's contract.
        unsafe { self.coro.frames(frames) };
    }
}

unsafe extern "C" fn entry(word: usize) -> End {
    crate::stack::annotate::begun();
    // SAFETY: `resume` passed the goroutine, whose M holds it.
    let g = unsafe { GRef::<ModelHost>::from_raw(std::ptr::with_exposed_provenance_mut(word)) };
    g::root(g);
    let window = Window::<ModelHost>::enter().expect("entry: a goroutine runs on an M");
    let home = &raw const window.m().local.home;
    crate::stack::annotate::end(&window.m().local.home.told);
    std::mem::forget(window);
    End { home, word: Said::EXIT }
}
