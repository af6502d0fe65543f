//! [`Host`], played: a thread is a loom thread, a note's sleep a mutex and a condition variable.

use super::barrier::{REFUSED, RETAKER, Retaker, Switches};
use super::search::{MACHINE, SWITCH_HOOKS, THREADS_REFUSED};
use super::stack::{PANIC, stacks};
use super::world::{CLOCK, LONG, ModelHost, origin};
use super::{ModelStack, StackCache, schedule, stage};
use crate::host::{
    Answer, Bar, Clock, Frames, Host, Interest, Interrupts, Lack, Poll, Process, Stacks, Symbol, Threads,
    entry,
};
use crate::m::M;
use crate::prim::{Arc, AtomicU32, Ordering, UnsafeCell, fence};
use crate::runtime::cpu_sets::{CPUS, CpuSet};
use crate::sched::Shared;
use crate::stack::switch::{Coro, Home};
use crate::wait::interrupt::is_interrupt;
use gmp_netpoll::{Key, Readiness, Timeout, Woken};
use gmp_timers::Nanos;
use loom::sync::{Condvar, Mutex};
use std::any::Any;
use std::cell::{Cell, OnceCell};
use std::io;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// The state for a note's sleeper.
#[derive(Debug)]
pub struct SleepState {
    lock: Mutex<()>,
    woken: Condvar,
    /// How many sleep there. loom does not see this field, which is read and written under the lock.
    sleepers: std::sync::atomic::AtomicUsize,
}

impl Default for SleepState {
    fn default() -> Self {
        SleepState { lock: Mutex::new(()), woken: Condvar::new(), sleepers: Default::default() }
    }
}

/// The state of an M.
pub struct Local {
    pub(super) home: Home,
    pub(super) panic: Cell<Option<Box<dyn Any + Send>>>,
    pub(super) switches: Switches,
    /// The CPUs for which the M's thread has asked. A thread that reads or changes the set holds a lock: loom checks that.
    cpus: UnsafeCell<CpuSet>,
    /// The CPU on which the thread runs: the first one of the set that the thread has given itself.
    cpu: Cell<Option<u32>>,
}

impl Default for Local {
    fn default() -> Self {
        Local {
            home: Home::new(),
            panic: Cell::new(None),
            switches: Switches::new(),
            cpus: UnsafeCell::new(CpuSet::EMPTY),
            cpu: Cell::new(None),
        }
    }
}

impl AsRef<Home> for Local {
    #[inline(always)]
    fn as_ref(&self) -> &Home {
        &self.home
    }
}

loom::thread_local! {
    static CURRENT: Cell<*const ()> = Cell::new(std::ptr::null());
    static THREAD_FRAME: Cell<*const ()> = Cell::new(std::ptr::null());
    static THREAD_TOKEN: OnceCell<Arc<dyn Any + Send + Sync>> = OnceCell::new();
}

loom::lazy_static! {
    // The runtimes of a model are not judged together: each `run` takes the lock for itself, and `models::cover` asks
    // one runtime with `is_asleep`.
    static ref SHARED: Shared<ModelHost> = Shared::new(None, None);
}

impl Threads for ModelHost {
    type Local = Local;
    type SleepState = SleepState;
    type Thread = loom::thread::JoinHandle<()>;
    type ThreadId = loom::thread::ThreadId;

    fn thread_id() -> Self::ThreadId {
        loom::thread::current().id()
    }

    fn start(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Self::Thread> {
        if THREADS_REFUSED.get() {
            schedule::add(format_args!("is refused {name}"));
            return Err(io::ErrorKind::WouldBlock.into());
        }
        schedule::add(format_args!("starts {name}"));
        Ok(loom::thread::spawn(body))
    }

    // No model starts such a thread: the code that does waits in system calls.
    fn spawn(_name: &str, _stack: Option<usize>, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        std::thread::Builder::new().spawn(body).map(drop)
    }

    fn spawn_scoped<'s>(
        scope: &'s Scope<'s, '_>,
        _name: &str,
        body: impl FnOnce() + Send + 's,
    ) -> io::Result<()> {
        std::thread::Builder::new().spawn_scoped(scope, body).map(drop)
    }

    fn is_own(thread: &Self::Thread) -> bool {
        thread.thread().id() == loom::thread::current().id()
    }

    fn join(thread: Self::Thread, _until: Nanos) -> Result<(), Self::Thread> {
        // No thread of a model is late: what comes after its body ends by itself.
        thread.join().map_err(|payload| resume_unwind(payload))
    }

    // Never refused: asking again decides no race above the line, and the timer thread's queue has a model.
    fn run_aside(f: impl FnOnce() + Send + 'static, _refused: fn()) -> Result<(), u64> {
        drop(loom::thread::spawn(f));
        Ok(())
    }

    fn take_back_aside(_number: u64) -> Option<Box<dyn FnOnce() + Send>> {
        None
    }

    fn waits_aside() -> bool {
        false
    }

    fn ask_aside() -> io::Result<()> {
        Ok(())
    }

    fn with_room<R: Send>(f: impl FnOnce() -> R + Send) -> Option<R> {
        Some(f())
    }

    fn sleep(sleep_state: &SleepState, word: &AtomicU32, expected: u32, _limit: Option<Duration>) {
        let mut guard = sleep_state.lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Acquire: partners `Note::wake` and `Note::alarm`.
        while word.load(crate::prim::Acquire) == expected {
            schedule::add(format_args!("sleeps on a note"));
            sleep_state.sleepers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            stage::falls_asleep();
            guard = sleep_state.woken.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    fn wake(sleep_state: &SleepState, _word: &AtomicU32) {
        schedule::add(format_args!("wakes whoever sleeps on a note"));
        let _held = sleep_state.lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        stage::are_woken(sleep_state.sleepers.swap(0, std::sync::atomic::Ordering::Relaxed));
        sleep_state.woken.notify_all();
    }

    fn threads() -> Option<u32> {
        None
    }

    fn current() -> *const () {
        CURRENT.try_with(Cell::get).unwrap_or(std::ptr::null())
    }

    fn set_current(m: *const (), _before: Option<&Local>, _now: Option<&Local>) {
        CURRENT.with(|current| current.set(m));
    }

    fn thread_frame() -> *const () {
        THREAD_FRAME.try_with(Cell::get).unwrap_or(std::ptr::null())
    }

    fn set_thread_frame(frame: *const ()) {
        THREAD_FRAME.with(|current| current.set(frame));
    }

    fn thread_token(make: fn() -> Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn Any + Send + Sync>> {
        THREAD_TOKEN.try_with(|token| Arc::clone(token.get_or_init(make))).ok()
    }

    fn random() -> u32 {
        // A model's schedule depends on loom alone.
        0
    }

    fn seed_random(_seed: u32) {}

    fn cpu() -> u32 {
        // Each M has a CPU of its own, until its thread chooses.
        M::<Self>::current().map_or(0, |m| m.local.cpu.get().unwrap_or(m.id))
    }

    fn cache_of(_cpu: u32) -> u32 {
        0
    }

    fn has_several_caches() -> bool {
        false
    }

    fn prepare() {}

    fn settle() {}

    fn is_settled() -> bool {
        true
    }

    fn own_affinity() -> io::Result<CpuSet> {
        Ok(CpuSet::EMPTY)
    }

    fn affinity(local: &Local, _thread: u32) -> io::Result<CpuSet> {
        // SAFETY: the caller holds the lock of `m/bound.rs`, or has the M alone, as in `m/apart.rs`.
        let asked = local.cpus.with(|cpus| unsafe { *cpus });
        let machine = MACHINE.get();
        Ok(CpuSet(std::array::from_fn(|word| asked.0[word] & machine.0[word])))
    }

    fn set_affinity(local: &Local, thread: u32, cpus: &CpuSet) -> io::Result<()> {
        schedule::add(format_args!("gives a thread CPUs {cpus}"));
        // SAFETY: as in `affinity`; or the thread has just begun.
        local.cpus.with_mut(|own| unsafe { *own = *cpus });
        if thread == 0 {
            local.cpu.set((0..CPUS as u32).find(|&cpu| cpus.has(cpu as usize)));
        }
        Ok(())
    }

    fn set_own_affinity(_: &CpuSet) -> io::Result<()> {
        Ok(())
    }

    fn try_affinity(cpus: &CpuSet) -> io::Result<CpuSet> {
        Ok(*cpus)
    }

    fn parallelism() -> Result<usize, usize> {
        Ok(2)
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
        // SeqCst: partner EntryBarrier, which is a fence in the models that ask for this.
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn slow_barrier(local: &Local, _thread: u32) -> bool {
        local.switches.wait_for_one();
        true
    }

    fn thread_begins(_local: &Local, _interrupts: Interrupts) -> (u32, Lack) {
        (0, Lack::No)
    }

    fn thread_ends(_local: &Local) {}

    fn cpu_time(_thread: u32) -> Option<Duration> {
        None
    }

    fn is_blocked(_local: &Local) -> io::Result<bool> {
        Ok(false)
    }
}

impl Clock for ModelHost {
    fn now() -> Nanos {
        *CLOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn nanos(at: Instant) -> Nanos {
        Nanos::ZERO.saturating_add(at.saturating_duration_since(origin()))
    }

    fn instant(at: Nanos) -> Instant {
        origin() + at.saturating_since(Nanos::ZERO)
    }
}

impl Poll for ModelHost {
    fn poll<T>(
        &self,
        _local: &Local,
        wait: Timeout,
        begin: impl FnOnce() -> T,
        mut found: impl FnMut(&mut T, Key, Readiness),
    ) -> io::Result<Woken> {
        let mut world = self.world();
        let blocks = match wait {
            Timeout::Zero => false,
            Timeout::After(limit) => limit >= LONG,
            Timeout::Forever => true,
        };
        schedule::add(format_args!("looks at the poller, {wait:?}"));
        while blocks && !world.broken && world.events.is_empty() {
            world.polling += 1;
            world.dozing += 1;
            stage::falls_asleep();
            world = self.happened.wait(world).unwrap_or_else(std::sync::PoisonError::into_inner);
            world.polling -= 1;
        }
        if let Timeout::After(limit) = wait
            && !blocks
        {
            let mut now = CLOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *now = now.saturating_add(limit);
        }
        let broken = std::mem::take(&mut world.broken);
        let events = std::mem::take(&mut world.events);
        drop(world);
        schedule::add(format_args!("comes back from the poller: broken {broken}, events {events:?}"));
        if !events.is_empty() {
            let mut begun = begin();
            events.into_iter().for_each(|(key, readiness)| found(&mut begun, key, readiness));
        }
        Ok(if broken { Woken::Yes } else { Woken::No })
    }

    fn break_poll(&self) -> io::Result<()> {
        schedule::add(format_args!("breaks the poller's wait"));
        let mut world = self.world();
        world.broken = true;
        world.wakes_all();
        drop(world);
        self.happened.notify_all();
        Ok(())
    }

    fn watch(&self, _fd: RawFd, key: Key, interest: Interest) -> io::Result<()> {
        let mut world = self.world();
        world.watched.push((key, interest));
        self.report(&mut world, key);
        Ok(())
    }

    fn watch_writes(&self, _fd: RawFd, key: Key) -> io::Result<()> {
        let mut world = self.world();
        let watched = world.watched.iter_mut().find(|(watched, _)| *watched == key);
        watched.expect("watch_writes: the descriptor is watched").1 = Interest::Both;
        self.report(&mut world, key);
        Ok(())
    }

    fn unwatch(&self, _fd: RawFd) -> io::Result<()> {
        self.world().watched.clear();
        Ok(())
    }
}

impl Stacks for ModelHost {
    type Stack = ModelStack;
    type StackCache = StackCache;

    fn reserve_stack(&self, cache: Option<&mut StackCache>, size: usize) -> io::Result<()> {
        stacks().reserve(cache.map(|cache| &mut cache.real), size)?;
        self.reserved.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    fn new_stack(&self, cache: &mut StackCache, size: usize) -> io::Result<ModelStack> {
        if self.is_short_of_stacks() {
            let take = |from: &mut usize| from.checked_sub(1).map(|left| *from = left);
            take(&mut cache.spare)
                .or_else(|| take(&mut self.world().stacks))
                .ok_or(io::ErrorKind::OutOfMemory)?;
        }
        Ok(ModelStack { coro: Coro::new(stacks(), &mut cache.real, size, entry::<Self>)? })
    }

    fn retire(&self, cache: &mut StackCache, stack: ModelStack) {
        let reserved = self.reserved.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        assert_ne!(reserved, 0, "retire: no goroutine has a reservation");
        if self.is_short_of_stacks() && self.caches_stacks.load(std::sync::atomic::Ordering::Relaxed) {
            cache.spare += 1;
        } else if self.is_short_of_stacks() {
            self.world().stacks += 1;
        }
        stack.coro.retire(stacks(), &mut cache.real);
    }

    fn put_back(&self, stack: ModelStack) {
        self.world().stacks += 1;
        stack.coro.put_back(stacks());
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
        // A model's functions need little stack.
        f();
        Ok(())
    }

    fn least_left(_address: usize) -> usize {
        usize::MAX
    }

    fn left() -> Option<usize> {
        None
    }
}

impl Process for ModelHost {
    // A monitor would hide that a wake-up is missing.
    const MONITORED: bool = false;

    const SEES_RUNNING: bool = false;

    type Shared = Shared<ModelHost>;

    fn shared() -> &'static Shared<ModelHost> {
        &SHARED
    }

    fn has_switch_hooks() -> bool {
        !SWITCH_HOOKS.get().is_null()
    }

    fn switch_hooks() -> *const () {
        SWITCH_HOOKS.get()
    }

    fn set_switch_hooks(_before: *const (), now: *const ()) -> bool {
        SWITCH_HOOKS.set(now);
        true
    }

    fn quit_handler() -> Option<usize> {
        None
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

    fn throw<T: Any + Send>(payload: Box<T>) -> ! {
        resume_unwind(payload)
    }

    fn is_first_refusal() -> bool {
        false
    }

    fn can_unwind() -> bool {
        true
    }

    fn catch(f: impl FnOnce()) -> std::thread::Result<()> {
        let Err(payload) = catch_unwind(AssertUnwindSafe(f)) else { return Ok(()) };
        if is_interrupt(&*payload) {
            return Err(payload);
        }
        match M::<Self>::current() {
            None => resume_unwind(payload),
            Some(m) => {
                m.local.panic.set(Some(payload));
                // SAFETY: a goroutine calls this on its own stack, and is never resumed.
                unsafe { crate::stack::switch::suspend(&raw const m.local.home, PANIC) };
                unreachable!("catch: a goroutine whose model has failed was resumed")
            }
        }
    }

    fn symbols(_pc: usize, _each: &mut dyn FnMut(Symbol<'_>)) {}

    fn frames_here(_frames: &mut Frames) {}

    fn ask(_threads: &[u32], _heard: &mut dyn FnMut(usize, Answer)) {}

    fn warn(what: &str) {
        schedule::add(format_args!("warns: {what}"));
    }

    fn trace(text: &str) {
        schedule::add(format_args!("traces: {text}"));
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
}

impl Host for ModelHost {}
