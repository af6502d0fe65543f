//! Timers that call a function.
//!
//! ```text
//!              set                      due: popped under the heap's lock, called after it
//!   idle ─────────────▶ armed ──────────────────────────────────────────────────▶ idle, and one firing under way
//!    ▲                  │   ▲│
//!    └───── stop ───────┘   └┘ set: moves it
//! ```
//! A [`Callback`] belongs to one heap for life: the heap of the P on which the callback was made, or that of the timer thread
//! if there was no runtime. `handle` says whether the callback is armed; like the heap, it is protected by the heap's lock. So
//! a pop, a stop and a move happen one after the other, in the order in which they get the lock:
//!
//! * `stop` and `set` return `true` if the callback was armed. Then the firing for which it was armed has not begun, and never
//!   happens.
//! * each pop is one firing, and disarms. A callback fires once for each setting.
//!
//! A firing runs in a goroutine of its own, which the M that popped it makes; or, with [`RunMode::Wakes`], at once, on the
//! stack of the M or thread that popped it. `Wakes` is for the library's own callbacks, which do not park, and neither run nor
//! drop the user's code. No lock is held during a firing, so it may wake goroutines, set and stop timers, and take a lock under
//! which other code does that. A firing whose goroutine did not run before the runtime ended goes to the timer thread, like a
//! callback that is still armed.
//!
//! Memory: one allocation for callback and timer together. The heap is one of the owners of an armed callback, so dropping a
//! [`Guard`] disarms nothing; the user's closure is dropped by the owner of the guard or by the goroutine of the last firing,
//! never under a lock, nor on an M's own stack.
//!
//! Not done: putting a callback that is set again into the heap of the caller's P, as Go does. Then a stop would need a lock of
//! the callback's own to find the heap. The price here: on a P other than that of the callback's heap, setting a callback that
//! is not armed takes the central lock; moving or stopping a callback does not.
//!
//! Checked by `models/timer.rs`.

use crate::g::{Birth, GRef};
use crate::host::Host;
use crate::m::M;
use crate::prim::hooks::*;
use crate::prim::{Arc, UnsafeCell};
use crate::sched::Sched;
use crate::sched::timers::shared::{Counted, Shared};
use crate::sched::timers::timer_thread::Call;
use crate::sched::timers::{Locked, Set, Timers};
use gmp_timers::{Handle, Nanos};
use std::panic::Location;

/// Where a callback runs.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum RunMode {
    /// In a new goroutine; from the timer thread, on a callback thread.
    Goroutine,
    /// As `Goroutine`, for the end of a context: `num_goroutines` does not count the goroutine, and the timer thread has the
    /// call made aside, because the functions on all callback threads might wait for it.
    Uncounted,
    /// On the stack of the M, or of the timer thread, that pops the callback; if the monitor pops it, in a goroutine, as for
    /// `Uncounted`. Only for callbacks that neither park nor run the user's code, except by waking a task: an M leaves the
    /// task's waker to a goroutine, and the timer thread to another thread (`wait/task.rs`).
    Wakes,
}

/// A callback and the timer for it.
pub(crate) struct Callback<H: Host, F: ?Sized = dyn Fn() + Send + Sync> {
    timers: Arc<Timers<H>>,
    /// Armed: the place in the heap of `timers`. Under that heap's lock.
    handle: UnsafeCell<Option<Handle>>,
    site: &'static Location<'static>,
    run: RunMode,
    f: F,
}

// SAFETY: only a holder of that heap's lock (`Locked`) touches `handle`; the rest is read only.
unsafe impl<H: Host, F: ?Sized + Send + Sync> Send for Callback<H, F> {}
// SAFETY: as for `Send`.
unsafe impl<H: Host, F: ?Sized + Send + Sync> Sync for Callback<H, F> {}

impl<H: Host> Callback<H> {
    /// Makes a callback. Returns an owner for the guard and one for the heap.
    fn new(
        timers: &Arc<Timers<H>>,
        site: &'static Location<'static>,
        run: RunMode,
        f: impl Fn() + Send + Sync + 'static,
    ) -> [Shared<Self>; 2] {
        Shared::two(Counted::boxed(Callback {
            timers: Arc::clone(timers),
            handle: UnsafeCell::new(None),
            site,
            run,
            f,
        }))
    }

    #[inline]
    pub(crate) fn handle(&self, _lock: &Locked<'_, H>) -> Option<Handle> {
        // SAFETY: the caller holds the lock of the heap in which this callback stands.
        self.handle.with(|handle| unsafe { *handle })
    }

    #[inline]
    pub(crate) fn set_handle(&self, _lock: &Locked<'_, H>, to: Option<Handle>) {
        // SAFETY: the caller holds the lock of the heap in which this callback stands.
        self.handle.with_mut(|handle| unsafe { *handle = to });
    }

    pub(crate) fn run(&self) -> RunMode {
        self.run
    }

    pub(crate) fn call(&self) {
        (self.f)();
    }

    /// Announces a callback that is the earliest of its heap, or that might be the first since a thread for the heap was
    /// refused.
    #[inline]
    fn announce_if(&self, earlier: bool, orphaned: bool, due: Nanos) {
        if earlier || orphaned && H::shared().timer_thread.was_refused() {
            self.announce(orphaned, due);
        }
    }

    /// Tells the M in the poller, or the timer thread, of an earlier timer. After the locks, and outside of the window.
    #[cold]
    fn announce(&self, orphaned: bool, due: Nanos) {
        if orphaned {
            return H::shared().timer_thread.keep(&self.timers);
        }
        // If the home is gone, the callback was left to the timer thread meanwhile, and that thread was told.
        self.at_home(|sched| sched.call_is_next(due));
    }

    /// Calls `f` with the scheduler that has the callback's heap, if that scheduler is still there.
    fn at_home<R>(&self, f: impl FnOnce(&Sched<H>) -> R) -> Option<R> {
        let home = self.timers.home();
        match M::<H>::current() {
            Some(m) if std::ptr::eq(m.sched(), home.as_ptr()) => Some(f(m.sched())),
            _ => home.upgrade().map(|sched| f(&sched)),
        }
    }
}

/// The right to stop and to set a callback. Dropping it does neither.
pub(crate) struct Guard<H: Host>(Shared<Callback<H>>);

impl<H: Host> Guard<H> {
    /// Returns `true` if the callback was armed: then the firing for which it was armed does not happen.
    pub(crate) fn stop(&self) -> bool {
        let call = &self.0;
        let mut locked = call.timers.lock();
        let Some(share) = locked.take(call) else { return false };
        let last = locked.is_orphaned() && call.timers.is_empty();
        drop(locked);
        drop(share);
        if last {
            H::shared().timer_thread.look_again();
        }
        true
    }

    /// Arms the callback, or moves it to another time if armed. Returns `true` if the callback was armed before.
    pub(crate) fn set(&self, due: Nanos) -> bool {
        let call = &self.0;
        let mut locked = call.timers.lock();
        let set = if let Some(handle) = call.handle(&locked) {
            // The heap has an entry, so the mask has its P.
            let set = locked.reset(handle, due);
            drop(locked);
            set
        } else {
            self.arm(locked, due)
        };
        call.announce_if(set.earlier, set.orphaned, due);
        set.armed
    }

    /// For a callback that is not armed.
    fn arm(&self, mut locked: Locked<'_, H>, due: Nanos) -> Set {
        let (call, timers) = (&self.0, &self.0.timers);
        // As long as this M holds the P, the mask has the P.
        let inside = M::<H>::current().and_then(M::look_in);
        let own = inside.as_ref().is_some_and(|inside| Arc::ptr_eq(&inside.p.timers, timers));
        mutant!(CallLeavesThePEarly: let inside = { drop(inside); None });
        if own || locked.is_orphaned() {
            let set = locked.set(due, call);
            drop(locked);
            drop(inside);
            set
        } else {
            drop(locked);
            drop(inside);
            self.set_from_afar(due)
        }
    }

    #[cold]
    fn set_from_afar(&self, due: Nanos) -> Set {
        let call = &self.0;
        // A runtime that has ended has already left the heap to the timer thread.
        call.at_home(|sched| sched.set_from_afar(&call.timers, due, call))
            .unwrap_or_else(|| call.timers.lock().set(due, call))
    }

    /// Returns `true` if the callback is armed.
    pub(crate) fn is_armed(&self) -> bool {
        self.0.handle(&self.0.timers.lock()).is_some()
    }
}

/// Makes `f` be called at `due`, once, unless the guard stops the callback before. Does not block.
#[inline]
#[track_caller]
pub(crate) fn call_at<H: Host>(due: Nanos, run: RunMode, f: impl Fn() + Send + Sync + 'static) -> Guard<H> {
    let site = Location::caller();
    let m = M::<H>::current();
    let Some(inside) = m.and_then(M::look_in) else {
        let timers = match m {
            None => H::shared().timer_thread.own(),
            Some(m) => m.any_timers(),
        };
        let [call, _] = Callback::new(timers, site, run, f);
        let guard = Guard(call);
        guard.set(due);
        return guard;
    };
    let timers = &inside.p.timers;
    let [call, for_the_heap] = Callback::new(timers, site, run, f);
    mutant!(NewCallLeavesThePEarly: m.into_iter().for_each(M::leave));
    let mut locked = timers.lock();
    let earlier = locked.add(due, for_the_heap);
    let orphaned = locked.is_orphaned();
    drop(locked);
    drop(inside);
    call.announce_if(earlier, orphaned, due);
    Guard(call)
}

/// As `call_at`, for a callback of `sched`. Any thread may call this.
#[track_caller]
pub(crate) fn call_in<H: Host>(
    sched: &Sched<H>,
    due: Nanos,
    f: impl Fn() + Send + Sync + 'static,
) -> Guard<H> {
    // Any heap will do.
    let [call, _] = Callback::new(&sched.ps[0].timers, Location::caller(), RunMode::Goroutine, f);
    let guard = Guard(call);
    guard.set(due);
    guard
}

impl<H: Host> M<H> {
    /// Returns the heap for a callback that is made without a P: any heap will do, and this core used that of the last P most
    /// recently.
    #[cold]
    fn any_timers<'a>(&self) -> &'a Arc<Timers<H>> {
        self.last_p().map_or(&self.sched().ps[0].timers, |p| &p.get().timers)
    }
}

/// A firing on the way.
struct Firing<H: Host>(Option<Shared<Callback<H>>>);

impl<H: Host> Drop for Firing<H> {
    fn drop(&mut self) {
        // The goroutine was never run: the runtime ended, or had no stack. This thread must not make the call itself.
        if let Some(call) = self.0.take() {
            mutant!(UnrunFiringLost: return);
            H::shared().timer_thread.leave(Call::Timer(call));
        }
    }
}

impl<H: Host> Sched<H> {
    /// Makes the goroutine of one firing, runnable and in no queue. Returns `None` if there is no stack for it: then the timer
    /// thread runs the firing.
    pub(crate) fn make_firing(&self, call: Shared<Callback<H>>) -> Option<GRef<H>> {
        let birth = Birth { name: None, stack_size: self.config.stack_size, site: call.site };
        let counts = call.run() == RunMode::Goroutine;
        let mut firing = Firing(Some(call));
        let body = move || {
            if let Some(call) = firing.0.take() {
                call.call();
            }
        };
        // SAFETY: `body` owns all that it uses.
        unsafe { self.make_detached(counts, birth, body) }.ok()
    }
}
