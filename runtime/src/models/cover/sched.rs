//! The covers of the scheduler, of a P and of its window.

use crate::g::list::GList;
use crate::g::{Birth, GRef};
use crate::goroutine::JoinHandle;
use crate::host::{Active, Threads};
use crate::m::handoff::{Ask, Lease};
use crate::m::{M, Window};
use crate::p::jobs::Entry;
use crate::prim::Arc;
use crate::runtime::cpu_sets::CpuSet;
use crate::runtime::priority::Priority;
use crate::sched::Sched;
use crate::sched::lasting::{MRef, PRef};
use crate::sched::run::place::Place;
use crate::sched::watch::deadlock::{Verdict, judge};
use crate::wait::task::Carried;
use gmp_netpoll::Readiness;
use std::panic::Location;
use std::time::Duration;

/// A runtime's scheduler, for the actions of the model's own threads.
#[derive(Clone)]
pub struct Handle(pub(super) Arc<Sched<Active>>);

impl Handle {
    /// The scheduler of a runtime.
    pub fn of(runtime: &crate::Runtime) -> Self {
        Handle(runtime.sched())
    }
    /// Blocks the calling thread until the M that was sent to the poller waits there.
    pub fn await_poller(&self) {
        while !self.is_poller_occupied() {
            loom::thread::yield_now();
        }
    }
    /// Blocks the calling thread until an M stands by on its note.
    pub fn await_m_on_note(&self) {
        while !self.0.has_m_on_note() {
            loom::thread::yield_now();
        }
    }
    /// Plays the kernel: an event of the one watched descriptor.
    pub fn post(&self, readiness: Readiness) {
        self.0.host.post(readiness);
    }
    /// Plays the kernel: the descriptor has no room to write until an event says so.
    pub fn fill(&self) {
        self.0.host.fill();
    }
    /// Plays the kernel and the M that comes back from the poller: if the descriptor is watched, the calling thread
    /// delivers the event.
    pub fn deliver(&self, readiness: Readiness) {
        let (mut found, mut tasks) = (GList::new(), Carried::nothing());
        for (key, readiness) in self.0.host.happen(readiness) {
            let entries = self.0.descs.lock();
            entries.unblock(key, readiness, &mut found, &mut |waker| tasks.push(&self.0, waker));
        }
        tasks.wake(&self.0, &mut found);
        self.0.inject(found);
    }
    /// Does E2 to E5 of the end of a runtime, once.
    pub fn sweep(&self) {
        let _done = self.0.sweep();
    }
    /// Makes a goroutine, and does not queue it yet.
    #[track_caller]
    pub fn make(&self, f: impl FnOnce() + Send + 'static) -> Made {
        let birth = Birth { name: None, stack_size: 1 << 16, site: Location::caller() };
        // SAFETY: the closure is 'static.
        let g = unsafe { self.0.make(birth, f) }.expect("make: a model has stacks");
        Made { g, handle: JoinHandle::of(g) }
    }
    /// Queues goroutines in one submission, as one poll may find several. Returns their handles.
    pub fn inject<const N: usize>(&self, made: [Made; N]) -> [JoinHandle<()>; N] {
        let mut list = GList::new();
        made.iter().for_each(|made| list.push(made.g));
        self.0.inject(list);
        made.map(|made| made.handle)
    }
    /// Queues goroutines on the P of the calling goroutine and wakes no M: as if an M was woken, and looked a moment too
    /// early.
    ///
    /// # Panics
    /// Without a P, or if the goroutines do not fit.
    pub fn queue_in_silence<const N: usize>(&self, made: [Made; N]) {
        drop(self.queue_in_silence_for(made));
    }
    /// As `queue_in_silence`. Returns their handles.
    ///
    /// # Panics
    /// As `queue_in_silence`.
    pub fn queue_in_silence_for<const N: usize>(&self, made: [Made; N]) -> [JoinHandle<()>; N] {
        let inside = M::<Active>::current().and_then(M::look_in).expect("queue_in_silence: on a P");
        let mut list = GList::new();
        made.iter().for_each(|made| list.push(made.g));
        inside.p.owner.touch();
        inside.p.runq.push_batch(&mut list);
        assert!(list.is_empty(), "queue_in_silence: the ring is full");
        drop(inside);
        made.map(|made| made.handle)
    }
    /// As `queue_in_silence`, as the next one of that P: displaces the one before into the ring.
    ///
    /// # Panics
    /// As `queue_in_silence`.
    pub fn queue_next_in_silence(&self, made: Made) {
        let inside = M::<Active>::current().and_then(M::look_in).expect("queue_next_in_silence: on a P");
        inside.p.owner.touch();
        let left = inside.p.runq.push_next(made.g, || ());
        assert!(left.is_none(), "queue_next_in_silence: the ring is full");
    }
    /// Mails a goroutine to the P with that number, as its spawn does. Called on a goroutine.
    pub fn mail(&self, p: u32, made: Made) -> JoinHandle<()> {
        let m = M::<Active>::current().expect("mail: on a goroutine");
        self.0.submit_at(m, made.g, Place::Mail(p));
        made.handle
    }
    /// Gives a goroutine the hint that names the P with that number.
    pub fn hint(&self, p: u32, made: &Made) {
        self.0.use_hints();
        assert!(made.g.set_hint(Some(p)), "hint: it has not run");
    }
    /// As `hint`, for the calling goroutine.
    ///
    /// # Panics
    /// On a plain thread.
    pub fn hint_own(&self, p: u32) {
        self.0.use_hints();
        let g = M::<Active>::current().and_then(M::g).expect("hint_own: on a goroutine");
        assert!(g.set_hint(Some(p)), "hint_own: it runs");
    }
    /// Says that goroutines have classes from now on.
    pub fn use_classes(&self) {
        self.0.use_classes();
    }
    /// Queues goroutines of a class in one submission. Returns their handles.
    pub fn inject_of<const N: usize>(&self, class: Priority, made: [Made; N]) -> [JoinHandle<()>; N] {
        self.use_classes();
        made.iter().for_each(|made| assert!(made.g.set_class(class), "inject_of: it has not run"));
        self.inject(made)
    }
    /// As `queue_globally_in_silence`, into the queue of a class.
    pub fn queue_of_class_in_silence<const N: usize>(&self, class: Priority, made: [Made; N]) {
        self.use_classes();
        made.iter()
            .for_each(|made| assert!(made.g.set_class(class), "queue_of_class_in_silence: it has not run"));
        self.queue_globally_in_silence(made);
    }
    /// As `queue_in_silence`, into the batch of the caller's P, which is empty.
    ///
    /// # Panics
    /// Without a P.
    pub fn fill_batch_in_silence<const N: usize>(&self, class: Priority, made: [Made; N]) {
        drop(self.fill_batch_in_silence_for(class, made));
    }
    /// As `fill_batch_in_silence`. Returns their handles.
    ///
    /// # Panics
    /// As `fill_batch_in_silence`.
    pub fn fill_batch_in_silence_for<const N: usize>(
        &self,
        class: Priority,
        made: [Made; N],
    ) -> [JoinHandle<()>; N] {
        self.use_classes();
        let inside = M::<Active>::current().and_then(M::look_in).expect("fill_batch_in_silence: on a P");
        inside.p.owner.touch();
        let mut all = made.iter();
        inside.p.batch.fill(class, || {
            let g = all.next()?.g;
            assert!(g.set_class(class), "fill_batch_in_silence: it has not run");
            Some(g)
        });
        inside.p.settle_alert();
        drop(inside);
        made.map(|made| made.handle)
    }
    /// Queues goroutines globally, and wakes no M: as if their submitter had woken one when they were first queued.
    pub fn queue_globally_in_silence<const N: usize>(&self, made: [Made; N]) {
        let mut list = GList::new();
        made.iter().for_each(|made| list.push(made.g));
        self.0.globrunqput(list);
    }
    /// As `queue_globally_in_silence`, among the arrivals.
    pub fn queue_arrival_in_silence(&self, made: Made) {
        let mut list = GList::new();
        list.push(made.g);
        self.0.put_arrivals(list);
    }
    /// Puts a goroutine among the jobs of the caller's P, and wakes no M: as if an M was woken, and looked a moment too early.
    ///
    /// # Panics
    /// Without a P, or if there is no room.
    pub fn put_job_in_silence(&self, made: Made) {
        let inside = M::<Active>::current().and_then(M::look_in).expect("put_job_in_silence: on a P");
        inside.p.owner.touch();
        let slot = self.0.put_in(inside.p, Entry::Goroutine(made.g));
        assert!(slot.is_some(), "put_job_in_silence: there is room");
    }
    /// Submits goroutines of a class as those that the calling M has found in the poller, or among the timers.
    ///
    /// # Panics
    /// Outside of a P.
    pub fn find<const N: usize>(&self, class: Priority, made: [Made; N]) {
        self.use_classes();
        let mut found = GList::new();
        for made in made {
            assert!(made.g.set_class(class), "find: it has not run");
            found.push(made.g);
        }
        self.0.submit_found(M::<Active>::current().expect("find: on an M"), found);
    }
    /// Takes the oldest job, calls `between` before it makes a goroutine of that, and queues the goroutine.
    ///
    /// # Panics
    /// If there is no job.
    pub fn take_a_job(&self, between: impl FnMut()) {
        let g = self.0.take_job_and_pause(between).expect("take_a_job: there is one");
        self.0.inject(GList::one(g));
    }
    /// Returns `true` if no M holds a P, and one waits in the poller.
    pub fn has_all_asleep(&self) -> bool {
        self.is_poller_occupied() && self.0.procs_are_idle()
    }
    /// Makes the caller's M make a visit before its next goroutine. Called on a goroutine.
    ///
    /// # Panics
    /// Without a P.
    pub fn have_a_visit_come(&self) {
        let inside = M::<Active>::current().and_then(M::look_in).expect("have_a_visit_come: on a P");
        inside.p.poll_schedule.turn_comes_next(inside.p.tick());
    }
    /// From now on no sleeper goes before the goroutines in the queue of the caller's P. Called on a goroutine.
    ///
    /// # Panics
    /// Without a P.
    pub fn have_no_sleeper_go_first(&self) {
        let inside = M::<Active>::current().and_then(M::look_in).expect("have_no_sleeper_go_first: on a P");
        inside.p.poll_schedule.no_sleeper_comes_next(inside.p.tick());
    }
    /// Makes an arrival go before the next goroutine of the caller's P. Called on a goroutine.
    ///
    /// # Panics
    /// Without a P.
    pub fn have_an_arrival_go_first(&self) {
        let inside = M::<Active>::current().and_then(M::look_in).expect("have_an_arrival_go_first: on a P");
        inside.p.poll_schedule.arrival_comes_next(inside.p.tick());
    }
    /// Makes the next turn on the caller's P one of `Normal`, if goroutines of other classes wait. Called on a goroutine.
    ///
    /// # Panics
    /// Without a P.
    pub fn have_a_turn_of_normal_come(&self) {
        let inside = M::<Active>::current().and_then(M::look_in).expect("have_a_turn_of_normal_come: on a P");
        inside.p.batch.turns.normal_comes_next(self.0.config.low_share);
    }
    /// Returns how many Ps are in use, idle, retired; asserts that the census agrees.
    pub fn count_ps(&self) -> [usize; 3] {
        self.0.count_ps()
    }
    /// S2 and S3 of a submission, after `queue_in_silence`.
    pub fn wake(&self) {
        self.0.wakep();
    }
    /// Returns `true` if an M waits in the poller.
    pub fn is_poller_occupied(&self) -> bool {
        self.0.host.is_poller_occupied()
    }
    /// Polls without waiting, as a busy M does now and then. Called on a goroutine.
    pub fn poll_now(&self) {
        let m = M::<Active>::current().expect("poll_now: on a goroutine");
        let found = self.0.poll_now(&m.local);
        self.0.inject(found);
    }
    /// Does a busy M's visit without the look at the poller. Called on a goroutine, with an empty global queue.
    pub fn visit_global_queue(&self) {
        let m = M::<Active>::current().expect("visit_global_queue: on a goroutine");
        self.0.visit_now(m);
    }
    /// Makes one look of the monitor, which has seen no M poll for `unpolled`.
    pub fn monitor_looks(&self, unpolled: Duration) {
        self.0.tick_as_monitor(unpolled);
    }
    /// Returns `true` if a goroutine waits for a stack.
    pub fn wants_stacks(&self) -> bool {
        self.0.wants_stacks()
    }
    /// Makes the monitor's first looks for goroutines that wait for a stack, the last of which makes them ask again.
    pub fn monitor_looks_for_stacks(&self) {
        self.0.look_as_monitor();
    }
    /// Returns `true` if a goroutine sleeps until a time.
    pub fn has_timers(&self) -> bool {
        self.0.earliest_timer().is_some()
    }
    /// Does the monitor's part when no P is idle.
    pub fn serve_timers(&self) {
        self.0.inject(self.0.take_all_due());
    }
    /// Does the monitor's part of a trim: gives back what idle Ps have in their caches.
    pub fn empty_idle_stack_caches(&self) {
        self.0.empty_idle_stack_caches();
    }
    /// Returns what the judge of a deadlock says of this runtime.
    pub fn is_asleep(&self, nobody_else: impl FnOnce() -> bool) -> bool {
        let verdict = judge(std::slice::from_ref(&self.0), |_threads| nobody_else());
        matches!(verdict, Verdict::Asleep(_))
    }
    /// Returns `true` if the runtime and all of its threads have gone.
    pub fn is_alone(&self) -> bool {
        Arc::strong_count(&self.0) == 1
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

/// A P, and a judged lease of it, for a thread that plays the retaker.
pub struct Held {
    sched: Arc<Sched<Active>>,
    p: PRef<Active>,
    judged: Option<(Lease, MRef<Active>)>,
    tick: u32,
}

impl Held {
    /// Returns the P of the calling goroutine's M, and its lease.
    ///
    /// # Panics
    /// On a plain thread.
    pub fn current() -> Self {
        let m = M::<Active>::current().expect("current: on a goroutine");
        let p = m.p().expect("current: its M holds a P");
        let sched = m.sched().arc().expect("current: its runtime is alive");
        let mut held = Held { sched, p: PRef::of(p), judged: None, tick: 0 };
        held.judge_again();
        held
    }

    /// Judges the P anew: by now another M may hold it, or none.
    pub fn judge_again(&mut self) {
        self.judged = Sched::judge(&self.p).map(|(judged, m)| (judged, MRef::of(m)));
        self.tick = self.p.tick();
    }

    fn ask(self, ask: Ask) -> bool {
        self.judged.is_some_and(|(judged, m)| self.sched.retake(&self.p, (judged, &m), ask))
    }

    /// R1 to R3 of `m/mod.rs`. Returns `true` if the P was taken, and handed on.
    pub fn retake(self) -> bool {
        self.ask(Ask::IfAway)
    }

    /// As `retake`, for a goroutine that has had its time: it gives the P up if it enters meanwhile.
    pub fn demand(self) -> bool {
        let ask = Ask::InAnyCase(self.tick);
        self.ask(ask)
    }

    /// As `demand`, for a holder that enters in between, as soon as `tell` was called.
    pub fn demand_beside_an_entry(self, tell: impl FnOnce()) -> bool {
        let (judged, m) = self.judged.expect("demand_beside_an_entry: the P is held");
        let answered = || {
            tell();
            while self.p.handoff.is_asked() {
                loom::thread::yield_now();
            }
        };
        let ask = Ask::InAnyCase(self.tick);
        self.sched.retake_and_pause(&self.p, (judged, &m), ask, answered)
    }
}

/// Returns the number of the P that the calling goroutine's M holds.
///
/// # Panics
/// On a plain thread, and without a P.
pub fn p_number() -> u32 {
    M::<Active>::current().and_then(M::p).expect("p_number: on a goroutine whose M holds a P").id
}

/// Returns the CPUs that the caller's thread was given, as the kernel shows them. Called on a goroutine.
pub fn cpus() -> String {
    M::<Active>::current().expect("cpus: on a goroutine").cpus().to_string()
}

/// Gives the caller's thread these CPUs; it runs on the first of them. Called on a goroutine.
pub fn give_cpus(cpus: &[usize]) {
    let mut set = CpuSet::EMPTY;
    cpus.iter().for_each(|&cpu| set.add(cpu));
    let m = M::<Active>::current().expect("give_cpus: on a goroutine");
    Active::set_affinity(&m.local, 0, &set).expect("give_cpus: a model's host refuses none");
}

/// The owner of the caller's P forbids its CPU to the M that it has woken last, if that has not come. Called on a goroutine.
pub fn forbid_the_sent() {
    let window = Window::<Active>::enter().expect("forbid_the_sent: on a goroutine");
    window.m().sched().forbid_the_sent(window.p());
}

/// A runtime call that only enters and leaves. Called on a goroutine.
pub fn touch_window() {
    drop(Window::<Active>::enter().expect("touch_window: on a goroutine"));
}

/// As `crate::blocking`, but the goroutine never becomes a blocker: it gives its P away, if it has one, and stays on its
/// thread.
pub fn blocking_here<R>(f: impl FnOnce() -> R) -> R {
    let Some(window) = Window::<Active>::enter_with_p() else { return f() };
    window.m().sched().entersyscallblock(&window);
    drop(window);
    let value = f();
    drop(Window::<Active>::enter());
    value
}

/// A point at which the kernel may switch the calling thread out; see `Model::with_retaker_that_is_refused`.
pub fn switch_point() {
    crate::model::switch_point();
}
