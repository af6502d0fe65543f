//! The point at which loom's search begins: a runtime at rest, or goroutines that occupy an M each and go on together.
//!
//! loom's search grows with each step to be weighed. How a runtime starts is the subject of few models; the others
//! bring a runtime to the point in question unexplored, and search from there.

use crate::{JoinHandle, Runtime};
use loom::sync::{Condvar, Mutex};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Returns a runtime with `procs` Ps and at most `threads` threads. loom's search pauses here, until `loom::explore`.
///
/// # Panics
/// If the numbers are out of range.
pub fn runtime(procs: usize, threads: usize) -> Runtime {
    loom::stop_exploring();
    // SAFETY: the goroutines keep nothing of a thread.
    unsafe { Runtime::builder().procs(procs).max_threads(threads).build() }.expect("a model's runtime starts")
}

/// Returns a runtime that has been at work, and whose Ms all sleep. loom's search goes on from here.
pub fn at_rest<const N: usize>() -> Runtime {
    let runtime = runtime(N, N);
    fall_asleep::<N>(&runtime);
    loom::explore();
    runtime
}

/// A flag that says once that an event has happened. The waiter is a thread, so a goroutine that waits keeps its M and its P
/// meanwhile.
#[derive(Clone, Default)]
pub struct Flag(Arc<(Mutex<bool>, Condvar)>);

impl Flag {
    /// Says that the event has happened.
    pub fn raise(&self) {
        *self.0.0.lock().expect("no panic under a model's lock") = true;
        self.0.1.notify_all();
    }

    /// Blocks the thread until `raise` was called.
    pub fn wait_on_thread(&self) {
        let mut raised = self.0.0.lock().expect("no panic under a model's lock");
        while !*raised {
            raised = self.0.1.wait(raised).expect("no panic under a model's lock");
        }
    }
}

thread_local! {
    /// How many threads of this execution sleep on a note or in the poller, and were not woken yet.
    static ASLEEP: Cell<usize> = const { Cell::new(0) };
    /// With how many of them loom's search ends, and the flag that is raised then.
    static REST: RefCell<Option<(usize, Flag)>> = const { RefCell::new(None) };
}

/// Called as an execution begins.
pub(super) fn begin() {
    ASLEEP.set(0);
    REST.set(None);
}

/// Called by a thread that is about to sleep, under the lock that its waker takes. loom does not see the count.
pub(super) fn falls_asleep() {
    ASLEEP.set(ASLEEP.get() + 1);
    if let Some((_, flag)) = REST.with_borrow_mut(|rest| rest.take_if(|(count, _)| *count == ASLEEP.get())) {
        done();
        flag.raise();
    }
}

/// Called by a thread that wakes `count` sleepers, under their lock.
pub(super) fn are_woken(count: usize) {
    ASLEEP.set(ASLEEP.get() - count);
}

/// Makes loom's search end as soon as `threads` threads sleep, on notes or in the poller, and none of them was woken. Returns a
/// flag that is raised then. A caller that waits for the flag takes no part in the search before, as a joiner would.
#[cfg(test)]
pub(crate) fn done_at_rest(threads: usize) -> Flag {
    let flag = Flag::default();
    REST.set(Some((threads, flag.clone())));
    flag
}

/// The body of a goroutine, which begins when all Ms are at work.
pub type Body = Box<dyn FnOnce() + Send>;

/// Starts a goroutine for each body, each on an M of its own. The bodies begin when all Ms are at work, and loom's search
/// begins with them: other models check how the runtime gets to this point. The caller only joins the goroutines.
pub fn together<const N: usize>(runtime: &Runtime, bodies: [Body; N]) -> [JoinHandle<()>; N] {
    gather(runtime, bodies, &Arc::default(), N, loom::explore)
}

/// Like [`together`], but the caller goes on at the same moment as the bodies. In the first schedule the caller runs first: a
/// schedule in which the caller is interrupted costs a preemption, a schedule in which the others are late does not.
pub fn together_with_us<const N: usize>(runtime: &Runtime, bodies: [Body; N]) -> [JoinHandle<()>; N] {
    let meeting = Arc::new(Meeting::default());
    let handles = gather(runtime, bodies, &meeting, N + 1, || ());
    meeting.join_last(N + 1);
    handles
}

fn gather<const N: usize>(
    runtime: &Runtime,
    bodies: [Body; N],
    meeting: &Arc<Meeting>,
    size: usize,
    then: fn(),
) -> [JoinHandle<()>; N] {
    bodies.map(|body| {
        let meeting = Arc::clone(meeting);
        runtime.go(move || {
            meeting.join(size, then);
            body();
        })
    })
}

/// Makes the runtime start its `N` Ms, and waits until they sleep, all before loom's search begins.
///
/// # Panics
/// If a goroutine of the model panics.
pub fn fall_asleep<const N: usize>(runtime: &Runtime) {
    let bodies: [Body; N] = std::array::from_fn(|_| -> Body { Box::new(|| ()) });
    for handle in gather(runtime, bodies, &Arc::default(), N, || ()) {
        handle.join().expect("it only meets the others");
    }
    while !is_asleep(runtime) {
        loom::thread::yield_now();
    }
}

/// Returns `true` if all Ms stand by, and one of them is in the poller.
fn is_asleep(runtime: &Runtime) -> bool {
    let sched = runtime.sched();
    sched.host.is_poller_occupied() && sched.procs_are_idle()
}

/// A place where threads wait for each other.
#[derive(Default)]
struct Meeting {
    arrived: Mutex<usize>,
    one_more: Condvar,
    complete: Condvar,
}

impl Meeting {
    fn join(&self, size: usize, then: fn()) {
        let mut arrived = self.arrived.lock().expect("no panic under a model's lock");
        *arrived += 1;
        self.one_more.notify_all();
        if *arrived == size {
            then();
            self.complete.notify_all();
        }
        while *arrived < size {
            arrived = self.complete.wait(arrived).expect("no panic under a model's lock");
        }
    }

    /// Waits until all others are there. loom's search begins with the caller.
    fn join_last(&self, size: usize) {
        let mut arrived = self.arrived.lock().expect("no panic under a model's lock");
        while *arrived < size - 1 {
            arrived = self.one_more.wait(arrived).expect("no panic under a model's lock");
        }
        *arrived = size;
        loom::explore();
        self.complete.notify_all();
    }
}

/// Ends the search at this point: the property has held. The end of the runtime is not searched; other models do so.
pub fn done() {
    loom::stop_exploring();
}

/// A property of several parts: it has held when all parts have. loom does not see the count, so the count orders
/// nothing.
#[derive(Clone)]
pub struct Parts(Arc<AtomicUsize>);

impl Parts {
    /// Makes a property of `count` parts.
    pub fn of(count: usize) -> Self {
        Parts(Arc::new(AtomicUsize::new(count)))
    }

    /// Says that one part has held; after the last part, calls [`done`].
    pub fn held(&self) {
        if self.0.fetch_sub(1, Relaxed) == 1 {
            done();
        }
    }
}
