//! The one door to private parts, for the models. Present under the cfg `gmp_loom` only.
//!
//! Each type here is a thin cover of the shipped one of the same name.

use crate::g::list::GList;
use crate::g::{Birth, G, GRef};
use crate::goroutine::JoinHandle;
use crate::host::{Active, Host};
use crate::m::handoff::Judged;
use crate::m::{M, Window};
use crate::net::desc::{Direction, PollDesc as Desc, Waited};
use crate::net::io_lock::{Holder, IoLock as Inner, socket_fence};
use crate::net::socket::{ShortRead, Socket as Sock};
use crate::p::P;
use crate::p::runq::{Runq as Queue, StealNext};
use crate::prim::{Arc, AtomicBool, Relaxed, UnsafeCell};
use crate::runtime::{Report, Runtime};
use crate::sched::Sched;
use crate::sched::park::{Commit, WaitReason};
use crate::sched::timers::callback::{Guard, RunMode, call_at};
use crate::sched::timers::shared::Counted;
use crate::sched::watch::deadlock::{Verdict, judge};
use crate::sched::watch::quit::Heard;
use crate::wait::waiter::{How, Wait, Waiter, Woke};
use gmp_netpoll::Readiness;
use gmp_timers::Nanos;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::panic::Location;
use std::ptr::NonNull;
use std::time::Duration;

/// `note.rs`.
pub struct Note(crate::m::note::Note<Active>);

impl Default for Note {
    fn default() -> Self {
        Self::new()
    }
}

impl Note {
    /// Not woken.
    pub fn new() -> Self {
        Note(crate::m::note::Note::new())
    }
    /// Blocks the thread until the wake.
    pub fn sleep(&self) {
        self.0.sleep();
    }
    /// The same, or until so many nanoseconds of the model's clock; false when nobody woke it.
    pub fn sleep_until(&self, until: u64) -> bool {
        self.0.sleep_until(Nanos::from_nanos(until))
    }
    /// Ends the sleep.
    pub fn wake(&self) {
        self.0.wake();
    }
    /// Between two uses.
    pub fn clear(&self) {
        self.0.clear();
    }
}

/// `shared.rs`.
pub struct Shared<T>(crate::sched::timers::shared::Shared<T>);

impl<T> Shared<T> {
    /// Both owners of a new value.
    pub fn two(value: T) -> [Self; 2] {
        crate::sched::timers::shared::Shared::two(Counted::boxed(value)).map(Shared)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// `sched/watch/quit.rs`, between two who could answer.
pub struct Quit {
    quit: crate::sched::watch::quit::Quit<Answerer>,
    both: [Answerer; 2],
}

struct Answerer {
    lives: UnsafeCell<()>,
    woken: AtomicBool,
}

// SAFETY: `lives` is empty; loom checks the order of its accesses.
unsafe impl Sync for Answerer {}

impl Default for Quit {
    fn default() -> Self {
        Self::new()
    }
}

impl Quit {
    /// Nobody is there.
    pub fn new() -> Self {
        let answerer = || Answerer { lives: UnsafeCell::new(()), woken: AtomicBool::new(false) };
        Quit { quit: crate::sched::watch::quit::Quit::new(), both: [answerer(), answerer()] }
    }
    fn wake(answerer: &Answerer) {
        answerer.lives.with(|_| ());
        answerer.woken.store(true, Relaxed);
    }
    /// What the handler does. True: somebody will answer.
    pub fn ask(&self) -> bool {
        self.quit.ask(Self::wake) == Heard::Yes
    }
    /// What a monitor does that goes on after its answers. How many they were.
    pub fn answer(&self) -> u32 {
        let mut answers = 0;
        while self.quit.take() {
            self.quit.begin();
            answers += 1;
            self.quit.end();
        }
        answers
    }
    /// This one is to answer from now on. Not moved while it is there.
    pub fn set(&self, who: usize) {
        // SAFETY: both live as long as the model.
        unsafe { self.quit.set(&raw const self.both[who], Self::wake) };
    }
    /// This one's memory goes.
    pub fn gone(&self, who: usize) {
        self.both[who].lives.with_mut(|_| ());
    }
    /// Returns `true` if it has an alarm to hear.
    pub fn is_woken(&self, who: usize) -> bool {
        self.both[who].woken.load(Relaxed)
    }
}

/// Gs that only stand in queues, told by their numbers.
#[derive(Clone)]
pub struct Gs(Arc<[G<Active>]>);

impl Gs {
    /// So many.
    pub fn new(count: usize) -> Self {
        Gs((0..count).map(|_| G::new()).collect())
    }
    fn put(&self, number: usize) -> GRef<Active> {
        let g = GRef::new(&self.0[number]);
        // An exclusive access, here and in `took`: loom fails the execution where the two are not ordered.
        g.set_next(None);
        g
    }
    fn took(&self, g: GRef<Active>) -> usize {
        g.set_next(None);
        self.0.iter().position(|it| GRef::new(it) == g).expect("took: one of these Gs")
    }
    fn all(&self, mut list: GList<Active>) -> Vec<usize> {
        std::iter::from_fn(|| list.pop()).map(|g| self.took(g)).collect()
    }
}

/// `runq.rs`. Only the model's owner of the queue calls what is the owner's.
pub struct Runq {
    queue: Queue<Active>,
    gs: Gs,
}

impl Runq {
    /// Empty, and its positions wrap after two Gs.
    pub fn new(gs: &Gs) -> Self {
        Runq { queue: Queue::starting_at(u32::MAX - 1), gs: gs.clone() }
    }
    /// Owner. What does not fit is returned.
    #[must_use]
    pub fn push_next(&self, number: usize) -> Vec<usize> {
        self.spilt(self.queue.push_next(self.gs.put(number), || ()))
    }
    /// Owner. What does not fit is returned.
    #[must_use]
    pub fn push(&self, number: usize) -> Vec<usize> {
        self.spilt(self.queue.push(self.gs.put(number)))
    }
    fn spilt(&self, g: Option<GRef<Active>>) -> Vec<usize> {
        let mut out = Vec::new();
        if let Some(g) = g {
            self.queue.spill(g, |g| out.push(self.gs.took(g)));
        }
        out
    }
    /// Owner. What does not fit is returned: the newer half of a full ring.
    #[must_use]
    pub fn push_keeping_older(&self, number: usize) -> Vec<usize> {
        let mut out = Vec::new();
        if let Some(g) = self.queue.push(self.gs.put(number)) {
            let _gone = self.queue.spill_newer(g, |g| out.push(self.gs.took(g)));
        }
        out
    }
    /// Owner. All of the ring, unless a thief is in it.
    #[must_use]
    pub fn take_all(&self) -> Vec<usize> {
        self.queue.take_all().into_iter().flatten().map(|g| self.gs.took(g)).collect()
    }
    /// Owner. What does not fit is returned.
    #[must_use]
    pub fn push_batch(&self, numbers: &[usize]) -> Vec<usize> {
        let mut list = GList::new();
        numbers.iter().for_each(|&number| list.push(self.gs.put(number)));
        self.queue.push_batch(&mut list);
        self.gs.all(list)
    }
    /// Owner.
    pub fn pop_next(&self) -> Option<usize> {
        self.queue.pop_next().map(|g| self.gs.took(g))
    }
    /// Owner.
    pub fn pop(&self) -> Option<usize> {
        self.queue.pop().map(|g| self.gs.took(g))
    }
    /// Anybody.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
    /// Owner of `self`. With runnext, when the ring has nothing.
    pub fn steal_from(&self, victim: &Self) -> Option<usize> {
        self.queue.steal_from(&victim.queue, StealNext::IfLeft(&|| 0)).map(|g| self.gs.took(g))
    }
    /// Anybody.
    pub fn drain(&self) -> Vec<usize> {
        let mut out = Vec::new();
        self.queue.drain(|g| out.push(self.gs.took(g)));
        out
    }
}

/// `net/desc.rs`, the reading side.
pub struct PollDesc(Desc<Active>);

impl Default for PollDesc {
    fn default() -> Self {
        Self::new()
    }
}

impl PollDesc {
    /// No event.
    pub fn new() -> Self {
        PollDesc(Desc::new())
    }
    /// Parks the calling goroutine until an event, or a look; true for an event, which it takes.
    pub fn wait(&self) -> bool {
        self.wait_unless(|| false)
    }
    /// As `wait`, for an owner that looks once more between its announcement and its park.
    pub fn wait_unless(&self, closed: impl FnOnce() -> bool) -> bool {
        self.wait_until(|| if closed() { None } else { Some(None) })
    }
    /// As `wait_unless`, with the end of the wait, in nanoseconds of the model's clock. The event stays.
    pub fn give_up_at(&self, until: u64) -> bool {
        let waited = self.0.wait(Wait::begin(), Direction::Read, || Some(Some(Nanos::from_nanos(until))));
        waited == Waited::Ready
    }
    fn wait_until(&self, look: impl FnOnce() -> Option<Option<Nanos>>) -> bool {
        let event = self.0.wait(Wait::begin(), Direction::Read, look) == Waited::Ready;
        if event {
            self.0.clear(Direction::Read);
        }
        event
    }
    /// The poller's part, on a thread of the model's own.
    pub fn event(&self, runtime: &Handle, readiness: Readiness) {
        let mut found = GList::new();
        self.0.unblock(readiness, &mut found);
        runtime.0.inject(found);
    }
    /// What close does.
    pub fn look(&self, runtime: &Handle) {
        let mut found = GList::new();
        if let Some(g) = self.0.look(Direction::Read) {
            found.push(g);
        }
        runtime.0.inject(found);
    }
}

/// `net/io_lock.rs`.
pub struct IoLock(Inner<Active>);

impl Default for IoLock {
    fn default() -> Self {
        Self::new()
    }
}

impl IoLock {
    /// Free.
    pub fn new() -> Self {
        IoLock(Inner::new())
    }
    /// Blocks the caller until it has the lock; dropping what it gives hands it on.
    ///
    /// # Panics
    /// If it is interrupted.
    pub fn take(&self) -> impl Drop + '_ {
        self.take_unless(|| false).expect("take: nothing is in the way")
    }
    /// As `take`, unless `closed`, which is asked again after each nudge.
    pub fn take_unless(&self, closed: impl Fn() -> bool) -> Option<HeldIoLock<'_>> {
        self.take_by(|| if closed() { Err(()) } else { Ok(None) })
    }
    /// As `take`, until so many nanoseconds of the model's clock.
    pub fn take_before(&self, until: u64) -> Option<HeldIoLock<'_>> {
        let until = Nanos::from_nanos(until);
        self.take_by(move || if Active::now() < until { Ok(Some(until)) } else { Err(()) })
    }
    fn take_by(&self, look: impl Fn() -> Result<Option<Nanos>, ()>) -> Option<HeldIoLock<'_>> {
        self.0.take(look).ok().map(HeldIoLock)
    }
    /// What a close, or a setter of a deadline, does after it has marked.
    pub fn nudge_all(&self) {
        socket_fence();
        if !self.0.is_free() {
            self.0.nudge_waiters();
        }
    }
    /// Blocks the closer, which has marked and fenced, until no system call is under way.
    pub fn wait_idle(&self) {
        self.0.wait_idle();
    }
}

/// An I/O lock that is held.
pub struct HeldIoLock<'a>(Holder<'a, Active>);

impl HeldIoLock<'_> {
    /// No system call is under way.
    pub fn rest(&self) {
        self.0.rest();
    }
    /// After a rest, before a look.
    pub fn go_on(&self) {
        self.0.go_on();
    }
}

impl Drop for HeldIoLock<'_> {
    fn drop(&mut self) {}
}

/// `net/socket.rs`, over a kernel that the model plays.
pub struct Socket(Sock<File>);

impl Socket {
    /// Watched from the first wait on.
    ///
    /// # Panics
    /// If `/dev/null` can't be opened.
    pub fn new() -> Self {
        Socket(Sock::new(File::open("/dev/null").expect("a descriptor to stand for the socket")))
    }
    /// A stream's read of at most `len` bytes, by `call`.
    ///
    /// # Errors
    /// Those of `call`, except `WouldBlock`.
    pub fn read(&self, len: usize, mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        self.0.run_read(ShortRead::Drained, len, |_| call())
    }
    /// A call without an I/O lock.
    ///
    /// # Errors
    /// Those of `call`, and of a closed socket.
    pub fn with(&self, call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.0.with(|_| call())
    }
    /// Closes it.
    ///
    /// # Errors
    /// When it was closed before.
    pub fn close(&self) -> io::Result<()> {
        self.0.close()
    }
    /// Sets the read deadline: it has passed, or there is none.
    ///
    /// # Errors
    /// When it was closed before.
    pub fn set_expired(&self, expired: bool) -> io::Result<()> {
        self.0.set_deadline(Direction::Read, expired.then(|| Active::instant(Nanos::ZERO)))
    }
}

impl Default for Socket {
    fn default() -> Self {
        Self::new()
    }
}

/// A runtime's scheduler, for what the model's own threads do to it.
#[derive(Clone)]
pub struct Handle(Arc<Sched<Active>>);

impl Handle {
    /// The scheduler of a runtime.
    pub fn of(runtime: &crate::Runtime) -> Self {
        Handle(runtime.sched())
    }
    /// Plays the kernel: an event of the one descriptor that is watched.
    pub fn post(&self, readiness: Readiness) {
        self.0.host.post(readiness);
    }
    /// Plays the kernel and the M that comes back from the poller: the event, if it is watched, is delivered by
    /// the calling thread.
    pub fn deliver(&self, readiness: Readiness) {
        let mut found = GList::new();
        for key in self.0.host.happen(readiness) {
            self.0.descs.unblock(key, readiness, &mut found);
        }
        self.0.inject(found);
    }
    /// A goroutine that is made and not queued yet.
    #[track_caller]
    pub fn make(&self, f: impl FnOnce() + Send + 'static) -> Made {
        let birth = Birth { name: None, stack_size: 1 << 16, site: Location::caller() };
        // SAFETY: the closure is 'static.
        let g = unsafe { self.0.make(birth, f) }.expect("make: a model has stacks");
        Made { g, handle: JoinHandle::of(g) }
    }
    /// Queues them in one submission, as one look at the poller may find several. Gives their handles.
    pub fn inject<const N: usize>(&self, made: [Made; N]) -> [JoinHandle<()>; N] {
        let mut list = GList::new();
        made.iter().for_each(|made| list.push(made.g));
        self.0.inject(list);
        made.map(|made| made.handle)
    }
    /// Queues them on the P of the calling goroutine and tells nobody: as if whoever was told had come a moment too early.
    ///
    /// # Panics
    /// Without a P, or when they do not fit.
    pub fn queue_in_silence<const N: usize>(&self, made: [Made; N]) {
        let inside = M::<Active>::current().and_then(M::look_in).expect("queue_in_silence: on a P");
        let mut list = GList::new();
        made.iter().for_each(|made| list.push(made.g));
        inside.p.owner.touch();
        inside.p.runq.push_batch(&mut list);
        assert!(list.is_empty(), "queue_in_silence: the ring is full");
    }
    /// Queues them globally, and tells nobody: they were announced when they were queued first.
    pub fn queue_globally_in_silence<const N: usize>(&self, made: [Made; N]) {
        let mut list = GList::new();
        made.iter().for_each(|made| list.push(made.g));
        self.0.globrunqput(list);
    }
    /// The next goroutine of the caller's P is preceded by an I/O lock. Called on a goroutine.
    ///
    /// # Panics
    /// Without a P.
    pub fn have_a_visit_come(&self) {
        let inside = M::<Active>::current().and_then(M::look_in).expect("have_a_visit_come: on a P");
        inside.p.poll_schedule.turn_comes_next(inside.p.tick());
    }
    /// How many Ps are in use, idle, retired; and the census agrees.
    pub fn count_ps(&self) -> [usize; 3] {
        self.0.count_ps()
    }
    /// Returns `true` if an M waits in the poller.
    pub fn somebody_polls(&self) -> bool {
        self.0.host.somebody_polls()
    }
    /// A look at the poller that does not wait, as a busy M takes it now and then. Called on a goroutine.
    pub fn poll_now(&self) {
        let m = M::<Active>::current().expect("poll_now: on a goroutine");
        let found = self.0.poll_now(&m.local);
        self.0.inject(found);
    }
    /// What a busy M does at a visit elsewhere. Called on a goroutine, with an empty global queue.
    pub fn visit_global_queue(&self) {
        let m = M::<Active>::current().expect("visit_global_queue: on a goroutine");
        self.0.visit_now(m);
    }
    /// One look of the monitor, for which nobody has polled for that long.
    pub fn monitor_looks(&self, unpolled: Duration) {
        self.0.tick_as_monitor(unpolled);
    }
    /// Returns `true` if anybody sleeps until a time.
    pub fn has_timers(&self) -> bool {
        self.0.earliest_timer().is_some()
    }
    /// The monitor's part when no P is idle.
    pub fn serve_timers(&self) {
        self.0.inject(self.0.take_all_due());
    }
    /// The monitor's part of a trim: what idle Ps have in their caches goes back.
    pub fn empty_idle_stack_caches(&self) {
        self.0.empty_idle_stack_caches();
    }
    /// What the judge of a deadlock says of this runtime.
    pub fn is_asleep(&self, nobody_else: impl FnOnce() -> bool) -> bool {
        let verdict = judge(std::slice::from_ref(&self.0), |_threads| nobody_else());
        matches!(verdict, Verdict::Asleep(_))
    }
    /// Reads all goroutines, as `Runtime::dump`.
    pub fn dump(&self) -> String {
        self.0.dump()
    }
}

/// A goroutine between its making and its submission.
pub struct Made {
    g: GRef<Active>,
    handle: JoinHandle<()>,
}

/// A P, and who was judged to have it, for a thread that plays the retaker.
pub struct Held {
    sched: Arc<Sched<Active>>,
    p: NonNull<P<Active>>,
    judged: Option<(Judged, NonNull<M<Active>>)>,
}

// SAFETY: Ms and Ps are Sync, and live as long as their scheduler.
unsafe impl Send for Held {}

impl Held {
    /// The calling goroutine's.
    ///
    /// # Panics
    /// On a plain thread.
    pub fn current() -> Self {
        let m = M::<Active>::current().expect("current: on a goroutine");
        let p = m.p().expect("current: its M holds a P");
        let sched = m.sched().arc().expect("current: its runtime is alive");
        let mut held = Held { sched, p: NonNull::from(p), judged: None };
        held.judge_again();
        held
    }

    fn p(&self) -> &P<Active> {
        // SAFETY: `sched` keeps it.
        unsafe { self.p.as_ref() }
    }

    /// Judges the P anew, whoever has it by now, or nobody.
    pub fn judge_again(&mut self) {
        self.judged = Sched::judge(self.p()).map(|(judged, m)| (judged, NonNull::from(m)));
    }

    /// R1 to R3 of `m/mod.rs`; true: the P was taken, and handed on.
    pub fn retake(self) -> bool {
        // SAFETY: `sched` keeps it.
        self.judged.is_some_and(|(judged, m)| self.sched.retake(self.p(), unsafe { m.as_ref() }, judged))
    }
}

/// The number of the P that the calling goroutine's M holds.
///
/// # Panics
/// On a plain thread, and without a P.
pub fn p_number() -> u32 {
    M::<Active>::current().and_then(M::p).expect("p_number: on a goroutine whose M holds a P").id
}

/// A runtime call that only enters and leaves. Called on a goroutine.
pub fn touch_window() {
    drop(Window::<Active>::enter().expect("touch_window: on a goroutine"));
}

/// The kernel may switch the calling thread out here; see `Model::with_retaker_that_is_refused`.
pub fn switch_point() {
    crate::model::switch_point();
}

/// `sched/timers/callback.rs`: a callback that runs on the stack of whoever finds it due.
pub struct InlineCall(Guard<Active>);

impl InlineCall {
    /// Armed for `dur` from now.
    pub fn after(dur: Duration, f: impl Fn() + Send + Sync + 'static) -> Self {
        InlineCall(call_at(Active::now().saturating_add(dur), RunMode::Inline, f))
    }
    /// True: it was armed.
    pub fn stop(&self) -> bool {
        self.0.stop()
    }
    /// True: it was armed.
    pub fn reset(&self, dur: Duration) -> bool {
        self.0.set(Active::now().saturating_add(dur))
    }
}

/// Waits for the end of the timers' thread.
pub fn timer_thread_ends() {
    while Active::timer_thread().threads() > 0 {
        loom::thread::yield_now();
    }
}

/// Ends a runtime as one does in which nothing can be unwound: steps 2 to 5 of `sched/stop.rs`.
pub fn leave(runtime: Runtime, limit: Duration) -> Report {
    runtime.leave(limit)
}

/// Somebody who waits and looks, for those who nudge.
#[derive(Clone)]
pub struct Looker(Waiter<Active>);

impl Looker {
    /// Has it look again.
    pub fn nudge(&self) {
        self.0.nudge();
    }
    /// Ends its wait; false when it has ended.
    pub fn wake(&self) -> bool {
        self.0.wake()
    }
}

/// Waits until somebody wakes the caller, then false; or until `seen`, asked at each nudge, has it end the wait, then true.
pub fn park_looking(publish: impl FnOnce(Looker), mut seen: impl FnMut() -> bool) -> bool {
    let how = How::new(WaitReason::Model).looking();
    let mut wait = Wait::<Active>::begin();
    let looker = Looker(wait.waiter());
    let mut woke = wait.park(how, move || {
        publish(looker);
        Commit::Park
    });
    loop {
        match woke {
            Woke::Readied => return false,
            Woke::Nudged if seen() => return wait.claim(),
            Woke::Nudged => woke = wait.park_again(how),
            Woke::Interrupted(why) => why.throw::<Active>(),
            Woke::Refused => unreachable!("park_looking: its hook does not refuse"),
        }
    }
}

/// A wait of the calling goroutine that nothing ends but the end of its runtime.
pub fn park_for_ever() {
    let mut wait = Wait::<Active>::begin();
    if let Woke::Interrupted(why) = wait.park(How::new(WaitReason::Model), || Commit::Park) {
        why.throw::<Active>();
    }
}
