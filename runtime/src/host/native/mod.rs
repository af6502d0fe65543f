//! The operating system: Linux threads, stacks, the context switch, the clock, the poller.
//!
//! Below the line: this code takes no decision of the scheduler. What the scheduler needs of an OS or a CPU is in this folder,
//! in `stack/` (the context switch, the memory of stacks), in `prim/native.rs` and `prim/buckets.rs` (locks that sleep, pauses)
//! and in `gmp_netpoll::Poller`. The system calls of files, processes, signals and sockets are in `os/` and `net/sys.rs`.

mod affinity;
mod aside;
mod barrier;
#[cfg(gmp_bench)]
pub(crate) mod bench;
mod clock;
mod current;
mod debugger;
mod end;
mod frames;
mod hook;
mod mask;
mod objects;
mod quit;
mod shared;
mod signals;
mod slack;
mod stack;
mod stderr;
mod symbols;
mod thread;
mod topology;
mod watch;

#[cfg(all(target_arch = "x86_64", not(feature = "generator")))]
mod overflow;
#[cfg(all(target_arch = "x86_64", not(feature = "generator")))]
mod sample;
#[cfg(all(target_arch = "x86_64", not(feature = "generator")))]
mod segment;
#[cfg(any(feature = "generator", not(target_arch = "x86_64")))]
mod without_frames;

use crate::host::{
    Answer, Bar, Clock, Frames, Host, Interest, Interrupts, Lack, Poll, Process, Stacks, Symbol, Threads,
    entry,
};
use crate::prim::{Acquire, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Relaxed, Release, settle_pause};
use crate::runtime::cpu_sets::CpuSet;
use crate::sched::Shared;
use crate::stack::pool::{StackCache, StackPool};
use crate::stack::switch::{Coro, Home};
pub(crate) use barrier::pass_by_all;
use gmp_netpoll::{Events, Key, Poller, Readiness, Timeout, Woken};
use gmp_timers::Nanos;
use mask::Mask;
use signals::SignalStack;
pub(crate) use stack::NativeStack;
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::Scope;
use std::time::{Duration, Instant};
use stderr::{remark, say, tell};
use watch::Watched;
#[cfg(any(feature = "generator", not(target_arch = "x86_64")))]
use without_frames::{overflow, sample, segment};

/// Whether `settle` was called in this process.
static SETTLED: AtomicBool = AtomicBool::new(false);

/// Returns a seed that differs for each thread, and is never zero.
fn seed() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) as u32 | 1
}

std::thread_local! {
    /// For threads that are no Ms: see `Threads::thread_frame`.
    static THREAD_FRAME: Cell<*const ()> = const { Cell::new(std::ptr::null()) };
    static THREAD_TOKEN: OnceCell<Arc<dyn Any + Send + Sync>> = const { OnceCell::new() };
    static DICE: Cell<u32> = Cell::new(seed());
    /// See `Threads::thread_id`; zero before its first call.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// The functions around the switches of goroutines.
static SWITCH_HOOKS: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// How many descriptors one poll reports at most: as many goroutines as fit into the first cache, with their frames and the
/// data that the kernel has for them (`docs/experiments.md`).
const EVENTS: usize = 32;

/// The operating system as one runtime uses it.
pub(crate) struct Native {
    poller: Poller,
    stacks: StackPool,
}

/// The host's state for an M. Only the M's thread uses it, except for `watched`, which any thread may ask.
pub(crate) struct Local {
    pub(crate) home: Home,
    events: RefCell<Events>,
    signals: SignalStack,
    mask: Mask,
    watched: Watched,
    own_stack: sample::OwnStack,
}

impl Default for Local {
    fn default() -> Self {
        Local {
            home: Home::new(),
            events: RefCell::new(Events::with_capacity(EVENTS)),
            signals: SignalStack::new(),
            mask: Mask::new(),
            watched: Watched::default(),
            own_stack: sample::OwnStack::new(),
        }
    }
}

impl AsRef<Home> for Local {
    #[inline(always)]
    fn as_ref(&self) -> &Home {
        &self.home
    }
}

impl Native {
    /// # Errors
    /// When the kernel refuses the poller's descriptors.
    pub(crate) fn new(max_stack_bytes: Option<usize>, guard: usize) -> io::Result<Self> {
        // This maps stacks: before there is a second thread, as the kernel would then interrupt another CPU.
        hook::install();
        overflow::install();
        barrier::register();
        Ok(Native { poller: Poller::new()?, stacks: StackPool::new(max_stack_bytes, guard) })
    }

    /// Waits until there is an event, or until `limit`.
    fn wait_for(&self, events: &mut Events, limit: Duration) -> io::Result<Woken> {
        let (until, mut left) = (clock::now().saturating_add(limit), limit);
        loop {
            let asked = |asked| self.poller.wait(events, Timeout::After(asked));
            let woken = slack::wait(left, slack::By::Poll, asked)?;
            left = until.saturating_since(clock::now());
            if woken == Woken::Yes || !events.is_empty() || left.is_zero() {
                return Ok(woken);
            }
        }
    }
}

impl Threads for Native {
    type Local = Local;
    type SleepState = ();
    type Thread = std::thread::JoinHandle<()>;
    type ThreadId = u64;

    // Not std's, which panics after the destructors of the thread's locals have run, as in the destructor of a key of the C
    // library.
    fn thread_id() -> Self::ThreadId {
        static LAST: AtomicU64 = AtomicU64::new(0);
        NUMBER.with(|own| {
            if own.get() == 0 {
                // Relaxed: only the value counts.
                own.set(LAST.fetch_add(1, Relaxed) + 1);
            }
            own.get()
        })
    }

    fn start(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Self::Thread> {
        thread::start(name, body)
    }

    fn spawn(name: &str, stack: Option<usize>, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        // Otherwise the look for this thread's room would take the room of one that is starting.
        thread::await_starts(Duration::from_millis(10));
        thread::spawn(name, stack, body).map(drop)
    }

    fn spawn_scoped<'s>(
        scope: &'s Scope<'s, '_>,
        name: &str,
        body: impl FnOnce() + Send + 's,
    ) -> io::Result<()> {
        thread::spawn_scoped(scope, name, body).map(drop)
    }

    fn is_own(thread: &Self::Thread) -> bool {
        thread::is_own(thread)
    }

    fn join(thread: Self::Thread, until: Nanos) -> Result<(), Self::Thread> {
        thread::join(thread, until)
    }

    fn run_aside(f: impl FnOnce() + Send + 'static, refused: fn()) -> Result<(), u64> {
        shared::aside().run(Box::new(f), refused)
    }

    fn take_back_aside(number: u64) -> Option<Box<dyn FnOnce() + Send>> {
        shared::aside().take_back(number)
    }

    fn waits_aside() -> bool {
        shared::aside().calls_wait()
    }

    fn ask_aside() -> io::Result<()> {
        shared::aside().ask_again()
    }

    fn with_room<R: Send>(f: impl FnOnce() -> R + Send) -> Option<R> {
        let on_goroutine = !Self::current().is_null();
        if on_goroutine { thread::run_beside(f) } else { Some(f()) }
    }

    fn sleep((): &(), word: &AtomicU32, expected: u32, limit: Option<Duration>) {
        match limit {
            None => thread::futex_wait(word, expected, None),
            Some(limit) => {
                slack::wait(limit, slack::By::Futex, |asked| thread::futex_wait(word, expected, Some(asked)));
            }
        }
    }

    fn wake((): &(), word: &AtomicU32) {
        thread::futex_wake(word);
    }

    fn threads() -> Option<u32> {
        thread::count()
    }

    #[inline(always)]
    fn current() -> *const () {
        current::get()
    }

    fn set_current(m: *const (), before: Option<&Local>, now: Option<&Local>) {
        if let Some(before) = before {
            before.mask.close();
            before.signals.take_back();
        }
        current::set(m);
        if let Some(now) = now {
            now.signals.lend_unless(signals::ROOM);
        }
    }

    #[inline(never)]
    fn thread_frame() -> *const () {
        THREAD_FRAME.get()
    }

    #[inline(never)]
    fn set_thread_frame(frame: *const ()) {
        THREAD_FRAME.set(frame);
    }

    #[inline(never)]
    fn thread_token(make: fn() -> Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn Any + Send + Sync>> {
        THREAD_TOKEN.try_with(|token| Arc::clone(token.get_or_init(make))).ok()
    }

    #[inline(never)]
    fn random() -> u32 {
        // Marsaglia's xorshift, with one state for each thread.
        let mut x = DICE.get();
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        DICE.set(x);
        x
    }

    fn seed_random(seed: u32) {
        DICE.set(seed);
    }

    fn cpu() -> u32 {
        topology::cpu()
    }

    fn cache_of(cpu: u32) -> u32 {
        topology::cache_of(cpu)
    }

    #[inline]
    fn has_several_caches() -> bool {
        topology::has_several_caches()
    }

    fn own_affinity() -> io::Result<CpuSet> {
        affinity::get(0)
    }

    fn affinity(_local: &Local, thread: u32) -> io::Result<CpuSet> {
        affinity::get(thread)
    }

    fn set_affinity(_local: &Local, thread: u32, cpus: &CpuSet) -> io::Result<()> {
        affinity::set(thread, cpus)
    }

    fn set_own_affinity(cpus: &CpuSet) -> io::Result<()> {
        affinity::set(0, cpus)
    }

    fn try_affinity(cpus: &CpuSet) -> io::Result<CpuSet> {
        affinity::on_trial(cpus)
    }

    fn prepare() {
        frames::prepare();
        thread::await_starts(Duration::from_secs(1));
    }

    fn settle() {
        // Relaxed: each settled value says by itself whether it is there.
        if !SETTLED.swap(true, Relaxed) {
            topology::prepare();
            settle_pause();
        }
    }

    fn is_settled() -> bool {
        // Relaxed: as above.
        SETTLED.load(Relaxed)
    }

    fn parallelism() -> Result<usize, usize> {
        topology::parallelism()
    }

    #[inline]
    fn heavy_barrier_exists() -> bool {
        barrier::exists()
    }

    fn heavy_barrier() -> io::Result<()> {
        barrier::heavy()
    }

    fn slow_barrier(local: &Local, thread: u32) -> bool {
        local.watched.is_off_cpu() || barrier::visit_cpus_of(thread)
    }

    fn thread_begins(local: &Local, interrupts: Interrupts) -> (u32, Lack) {
        local.own_stack.begin();
        local.mask.open(interrupts);
        local.watched.begin()
    }

    fn thread_ends(local: &Local) {
        local.watched.end();
    }

    fn cpu_time(thread: u32) -> Option<Duration> {
        watch::cpu_time(thread)
    }

    fn is_blocked(local: &Local) -> io::Result<bool> {
        local.watched.is_blocked()
    }
}

impl Clock for Native {
    #[inline]
    fn now() -> Nanos {
        clock::now()
    }

    fn nanos(at: Instant) -> Nanos {
        clock::nanos(at)
    }

    fn instant(at: Nanos) -> Instant {
        clock::instant(at)
    }
}

impl Poll for Native {
    fn poll<T>(
        &self,
        local: &Local,
        wait: Timeout,
        begin: impl FnOnce() -> T,
        mut found: impl FnMut(&mut T, Key, Readiness),
    ) -> io::Result<Woken> {
        let mut events = local.events.borrow_mut();
        let woken = match wait {
            Timeout::After(limit) => self.wait_for(&mut events, limit)?,
            Timeout::Zero | Timeout::Forever => self.poller.wait(&mut events, wait)?,
        };
        if !events.is_empty() {
            let mut begun = begin();
            for event in events.iter() {
                found(&mut begun, event.key, event.readiness);
            }
        }
        Ok(woken)
    }

    fn break_poll(&self) -> io::Result<()> {
        self.poller.wake()
    }

    fn watch(&self, fd: RawFd, key: Key, interest: Interest) -> io::Result<()> {
        // SAFETY: the socket that asks owns the descriptor and outlives the call.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        match interest {
            Interest::Reads => self.poller.add_for_reads(fd, key),
            Interest::Both => self.poller.add(fd, key),
        }
    }

    fn watch_writes(&self, fd: RawFd, key: Key) -> io::Result<()> {
        // SAFETY: as in `watch`.
        self.poller.add_writes(unsafe { BorrowedFd::borrow_raw(fd) }, key)
    }

    fn unwatch(&self, fd: RawFd) -> io::Result<()> {
        // SAFETY: as in `watch`; a number that is no descriptor any more is refused.
        self.poller.remove(unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

impl Stacks for Native {
    type Stack = NativeStack;
    type StackCache = StackCache;

    #[inline]
    fn reserve_stack(&self, cache: Option<&mut StackCache>, size: usize) -> io::Result<()> {
        self.stacks.reserve(cache, size)
    }

    #[inline]
    fn new_stack(&self, cache: &mut StackCache, size: usize) -> io::Result<NativeStack> {
        Ok(NativeStack { coro: Coro::new(&self.stacks, cache, size, entry::<Native>)? })
    }

    #[inline]
    fn retire(&self, cache: &mut StackCache, stack: NativeStack) {
        stack.coro.retire(&self.stacks, cache);
    }

    fn put_back(&self, stack: NativeStack) {
        stack.coro.put_back(&self.stacks);
    }

    fn empty(&self, cache: &mut StackCache) -> bool {
        self.stacks.empty(cache)
    }

    fn age_stacks(&self) -> bool {
        self.stacks.age()
    }

    fn trim_some(&self) -> bool {
        self.stacks.trim_some()
    }

    fn map(bytes: usize) -> Option<NonNull<u8>> {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return None;
        }
        NonNull::new(at.cast())
    }

    unsafe fn unmap(at: NonNull<u8>, bytes: usize) {
        // SAFETY: by this function's contract.
        unsafe { libc::munmap(at.as_ptr().cast(), bytes) };
    }

    fn call_on(here: Option<&Self>, size: usize, f: &mut dyn FnMut()) -> io::Result<()> {
        segment::call_on(here.map(|host| &host.stacks), size, f)
    }

    fn least_left(address: usize) -> usize {
        segment::least_left(address)
    }

    fn left() -> Option<usize> {
        overflow::left()
    }
}

impl Process for Native {
    const MONITORED: bool = true;
    const SEES_RUNNING: bool = cfg!(all(target_arch = "x86_64", not(feature = "generator")));

    type Shared = Shared<Native>;

    fn shared() -> &'static Shared<Native> {
        shared::shared()
    }

    #[inline(always)]
    fn has_switch_hooks() -> bool {
        // Relaxed: the functions are read by `switch_hooks`. During a registration the answer is a guess.
        !SWITCH_HOOKS.load(Relaxed).is_null()
    }

    fn switch_hooks() -> *const () {
        // Acquire: the list: partner `set_switch_hooks`.
        SWITCH_HOOKS.load(Acquire)
    }

    fn set_switch_hooks(before: *const (), now: *const ()) -> bool {
        // Release: partner `switch_hooks`.
        SWITCH_HOOKS.compare_exchange(before.cast_mut(), now.cast_mut(), Release, Relaxed).is_ok()
    }

    fn quit_handler() -> Option<usize> {
        Some(quit::handler())
    }

    #[inline(never)]
    fn is_panicking() -> bool {
        std::thread::panicking()
    }

    #[inline(always)]
    fn unwinds() -> bool {
        // One load of a global, as long as no thread unwinds.
        std::thread::panicking()
    }

    fn may_unwind_to(mark: *const ()) -> Result<(), Bar> {
        if mark.is_null() { Err(Bar::NO_CATCHER) } else { frames::may_unwind_to(mark) }
    }

    #[inline(always)]
    fn throw<T: Any + Send>(payload: Box<T>) -> ! {
        frames::throw(payload)
    }

    fn is_first_refusal() -> bool {
        static TOLD: AtomicBool = AtomicBool::new(false);
        // Relaxed: the flag publishes nothing.
        !TOLD.swap(true, Relaxed)
    }

    fn can_unwind() -> bool {
        frames::CAN_UNWIND
    }

    fn catch(f: impl FnOnce()) -> std::thread::Result<()> {
        catch_unwind(AssertUnwindSafe(f))
    }

    fn symbols(pc: usize, each: &mut dyn FnMut(Symbol<'_>)) {
        symbols::of(pc, each);
    }

    fn frames_here(frames: &mut Frames) {
        sample::walk_here(frames);
    }

    fn ask(threads: &[u32], heard: &mut dyn FnMut(usize, Answer)) {
        sample::ask(threads, heard);
    }

    fn show(pool: *const (), gs: NonNull<()>) {
        debugger::show(pool.cast(), gs.cast());
    }

    fn hide(pool: *const ()) {
        debugger::hide(pool.cast());
    }

    fn warn(what: &str) {
        remark(&format!("gmp: {what}\n"));
    }

    fn trace(text: &str) {
        remark(text);
    }

    fn print(text: &str) {
        tell(text);
    }

    fn give_up(text: &str) -> ! {
        Self::print(text);
        // Not `std::process::exit`, which runs exit handlers and flushes standard output: either may wait for a lock of a
        // thread that will never run. A report must not hang. Go's exit runs nothing either. SAFETY: the call does not return,
        // and no thread is left that could miss anything.
        unsafe { libc::_exit(2) }
    }

    fn fatal(why: &str) -> ! {
        say(format_args!("fatal error: {why}"));
        std::process::abort()
    }
}

impl Host for Native {}
