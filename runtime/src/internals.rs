//! The one door to private parts, for the models. Present under the cfg `gmp_loom` only.
//!
//! Each type here is a thin cover of the shipped one of the same name.

use crate::g::{Birth, G, GRef};
use crate::glist::GList;
use crate::goroutine::JoinHandle;
use crate::handoff::Judged;
use crate::host::Active;
use crate::m::{M, Window};
use crate::net::desc::{Direction, PollDesc as Desc, Waited};
use crate::net::socket::{ShortRead, Socket as Sock};
use crate::net::turn::{Holder, Turn as Line};
use crate::p::P;
use crate::prim::Arc;
use crate::runq::{Runq as Queue, StealNext};
use crate::sched::Sched;
use crate::sched::park::WaitReason;
use crate::waiter::Wait;
use gmp_netpoll::Readiness;
use std::fs::File;
use std::io;
use std::panic::Location;
use std::ptr::NonNull;

/// `note.rs`.
pub struct Note(crate::note::Note<Active>);

impl Default for Note {
    fn default() -> Self {
        Self::new()
    }
}

impl Note {
    /// Not woken.
    pub fn new() -> Self {
        Note(crate::note::Note::new())
    }
    /// Blocks the thread until the wake.
    pub fn sleep(&self) {
        self.0.sleep();
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
        self.gs.all(self.queue.push_next(self.gs.put(number)))
    }
    /// Owner. What does not fit is returned.
    #[must_use]
    pub fn push(&self, number: usize) -> Vec<usize> {
        self.gs.all(self.queue.push(self.gs.put(number)))
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
        self.queue.steal_from(&victim.queue, StealNext::Yes).map(|g| self.gs.took(g))
    }
    /// Anybody.
    pub fn drain(&self) -> Vec<usize> {
        let mut list = GList::new();
        self.queue.drain_into(&mut list);
        self.gs.all(list)
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
    /// Parks the calling goroutine until an event, or a look; true for an event.
    pub fn wait(&self) -> bool {
        self.0.wait(Wait::begin(), Direction::Read) == Waited::Ready
    }
    /// As `wait`, for an owner that looks once more between its announcement and its park.
    pub fn wait_unless(&self, closed: impl FnOnce() -> bool) -> bool {
        self.0.wait_unless(Wait::begin(), Direction::Read, closed) == Waited::Ready
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
        self.0.look(&mut found);
        runtime.0.inject(found);
    }
}

/// `net/turn.rs`.
pub struct Turn(Line<Active>);

impl Default for Turn {
    fn default() -> Self {
        Self::new()
    }
}

impl Turn {
    /// Free.
    pub fn new() -> Self {
        Turn(Line::new())
    }
    /// Blocks the caller until it has the turn; dropping what it gives hands it on.
    pub fn take(&self) -> impl Drop + '_ {
        let holder: Holder<'_, Active> = self.0.take();
        holder
    }
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
        let g = unsafe { self.0.make(birth, f) };
        Made { g, handle: JoinHandle::of(g) }
    }
    /// Queues them in one submission, as one look at the poller may find several. Gives their handles.
    pub fn inject<const N: usize>(&self, made: [Made; N]) -> [JoinHandle<()>; N] {
        let mut list = GList::new();
        made.iter().for_each(|made| list.push(made.g));
        self.0.inject(list);
        made.map(|made| made.handle)
    }
    /// Whether an M waits in the poller.
    pub fn somebody_polls(&self) -> bool {
        self.0.host.somebody_polls()
    }
    /// A look at the poller that does not wait, as a busy M takes it now and then. Called on a goroutine.
    pub fn look_at_poller(&self) {
        let m = M::<Active>::current().expect("look_at_poller: on a goroutine");
        let found = self.0.look_at_poller(&m.local);
        self.0.inject(found);
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

/// An M and the P that it holds, for a thread that plays the retaker.
pub struct Held {
    sched: Arc<Sched<Active>>,
    m: NonNull<M<Active>>,
    p: NonNull<P<Active>>,
    judged: Judged,
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
        Held { sched, m: NonNull::from(m), p: NonNull::from(p), judged: p.handoff.judge() }
    }

    /// Judges the P anew, whoever has it by now, or nobody.
    pub fn judge_again(&mut self) {
        // SAFETY: `sched` keeps it.
        self.judged = unsafe { self.p.as_ref() }.handoff.judge();
    }

    /// R1 to R3 of `m.rs`; true: the P was taken, and is idle now.
    pub fn retake(self) -> bool {
        // SAFETY: `sched` keeps both.
        let (m, p) = unsafe { (self.m.as_ref(), self.p.as_ref()) };
        let taken = p.handoff.retake(self.judged, || m.is_inside());
        if taken {
            p.owner.touch();
            p.handoff.give_up();
            self.sched.handoffp(self.p);
        }
        taken
    }
}

/// A runtime call that only enters and leaves. Called on a goroutine.
pub fn touch_window() {
    drop(Window::<Active>::enter().expect("touch_window: on a goroutine"));
}

/// A wait of the calling goroutine that nothing ends but the end of its runtime.
pub fn park_for_ever() {
    let wait = Wait::<Active>::begin();
    let _never = wait.park(WaitReason::Model, || crate::sched::park::Commit::Park);
}
