//! The switch hooks: the user's code around each switch away from a goroutine, on that goroutine's stack.
//!
//! A hook can run for long, allocate and take locks of std, so it must run neither in a window, nor under the lock of the queue
//! in which the goroutine waits, nor on the M's stack. But only under that lock does a goroutine know that it has to park. So
//! if hooks are registered, a goroutine publishes its wait by itself, as a plain thread does, and sleeps later:
//!
//! ```text
//!   goroutine, without hooks                       goroutine, with hooks
//!
//!   open the wait, queue the record                open the wait, queue the record
//!   suspend ── the M: K1 Waiting                   announces: Running, as if saved            (`StatusWord::announce`)
//!                     P2, P3 interrupted?          P2, P3 interrupted?
//!                     K2 commit hook               commit hook: the record is published
//!                                                  leave the window; the functions for suspend
//!                                                  suspend ── the M: Waiting, unless something has come (`park_again`)
//!   is resumed                                     is resumed; .. ; the functions for resume
//! ```
//! From the publishing on the goroutine is in the state of a goroutine that was nudged and looks: awake, in a wait that others
//! know (`wait/status.rs`). A waker that comes meanwhile marks the word, and `park_again` finds the mark. An interrupt that
//! comes between P3 and `make_known` leaves a mark too, since the word says `SAVED`.
//!
//! A goroutine that yields, or that comes back without a P, holds no lock and has published no wait: it calls the functions
//! before it enters the window in which it suspends itself.
//!
//! | `Hooked` | the goroutine | then |
//! | --- | --- | --- |
//! | Here | runs | `suspend`, just before the first switch of a call: Leaving |
//! | Leaving | calls the functions for suspend | Away |
//! | Away | switches, perhaps several times, and runs only the library's code | the call is over: Returning |
//! | Returning | calls the functions for resume | Here |
//!
//! While it is *Leaving* or *Returning* the goroutine stays on its M, and can't enter a window. The M clears the lease with
//! which an entry compares the P's hand-off word (`M::bar_windows`). So each entry takes the slow path, which refuses the entry
//! before a wait is opened. Entries of other goroutines pay nothing for that. A call that never parks goes on as if the M had
//! no P.
//!
//! The first switch of a call settles which functions are called: functions that are registered later, for example by one of
//! these functions, are not called for the resume alone. A goroutine that its runtime leaves behind is not resumed.
//!
//! A goroutine learns *whether there are functions* from the word that it reads at each switch anyway, to see whether its
//! runtime ends ([`AtSwitch`]). So `register` notes this in each runtime, and a runtime that starts looks by itself, once
//! `register` can find that runtime.
//!
//! Checked by `models/switch.rs`.

use crate::g::GRef;
use crate::host::Host;
use crate::m::M;
use crate::prim::{Arc, AtomicU32, Relaxed};
use crate::sched::Sched;
use crate::sched::watch::deadlock::Runtimes;
use std::cell::Cell;

type Function = dyn Fn() + Send + Sync;

/// A pair of functions.
#[derive(Clone)]
struct Pair {
    suspend: Arc<Function>,
    resume: Arc<Function>,
}

/// All registered pairs, in their order. A list is never changed or freed: another list takes its place.
pub(crate) struct Hooks(Vec<Pair>);

/// The additional duties of a runtime's goroutines at each switch: one word, so that a switch without duties reads it once. Not
/// a single-writer word: a model has to see that the word decides.
pub(crate) struct AtSwitch(AtomicU32);

/// The duties that a read of [`AtSwitch`] has found.
#[derive(Copy, Clone)]
pub(crate) struct Duties(u32);

impl Duties {
    /// The runtime has begun to end: goroutines are unwound; see `sched/stop.rs`. Added under the lock, before
    /// the scheduler `is_stopping`.
    pub(crate) const ENDS: Duties = Duties(1);
    /// There are switch hooks.
    pub(crate) const HOOKS: Duties = Duties(2);

    #[inline(always)]
    pub(crate) fn are_none(self) -> bool {
        self.0 == 0
    }

    #[inline(always)]
    pub(crate) fn ends(self) -> bool {
        self.0 & Self::ENDS.0 != 0
    }

    #[inline(always)]
    pub(crate) fn calls_hooks(self) -> bool {
        self.0 & Self::HOOKS.0 != 0
    }
}

impl AtSwitch {
    pub(crate) fn new() -> Self {
        AtSwitch(AtomicU32::new(0))
    }

    #[inline(always)]
    pub(crate) fn read(&self) -> Duties {
        // Relaxed: for the end, exact under the lock; otherwise a hint. The functions are read through `switch_hooks`.
        Duties(self.0.load(Relaxed))
    }

    /// Adds `duty`, which is never taken back.
    pub(crate) fn add(&self, duty: Duties) {
        // Relaxed: as in `read`.
        self.0.fetch_or(duty.0, Relaxed);
    }
}

/// Where a goroutine stands between the functions.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Hooked {
    Here,
    Leaving,
    Away,
    Returning,
}

/// The goroutine's own part, in the frame of `root`.
pub(crate) struct Switching {
    hooked: Cell<Hooked>,
    /// The functions that were called for suspend.
    hooks: Cell<Option<&'static Hooks>>,
}

impl Switching {
    pub(crate) fn new() -> Self {
        Switching { hooked: Cell::new(Hooked::Here), hooks: Cell::new(None) }
    }
}

/// Adds a pair behind the registered ones.
pub(crate) fn register<H: Host>(
    suspend: impl Fn() + Send + Sync + 'static,
    resume: impl Fn() + Send + Sync + 'static,
) {
    let pair = Pair { suspend: Arc::new(suspend), resume: Arc::new(resume) };
    loop {
        let before = H::switch_hooks();
        // SAFETY: the host keeps what this function has given it, which is never freed.
        let mut pairs =
            unsafe { before.cast::<Hooks>().as_ref() }.map_or_else(Vec::new, |hooks| hooks.0.clone());
        pairs.push(pair.clone());
        let fresh = Box::into_raw(Box::new(Hooks(pairs)));
        if H::set_switch_hooks(before, fresh.cast()) {
            return tell_runtimes::<H>();
        }
        // SAFETY: no other thread has seen `fresh`.
        drop(unsafe { Box::from_raw(fresh) });
    }
}

/// Tells all runtimes that there are functions. The caller's own runtime might not be in the list: a runtime that has begun to
/// end, or that is a model's, is not.
fn tell_runtimes<H: Host>() {
    let all = H::shared().runtimes.as_ref().map(Runtimes::all).unwrap_or_default();
    for sched in all.iter().map(Arc::as_ref).chain(Sched::<H>::current()) {
        sched.at_switch.add(Duties::HOOKS);
    }
}

/// Returns `true` if the calling goroutine is in one of the functions.
#[cold]
pub(crate) fn is_in_hook<H: Host>(m: &M<H>) -> bool {
    let switching = m.g().and_then(GRef::switching);
    switching.is_some_and(|switching| matches!(switching.hooked.get(), Hooked::Leaving | Hooked::Returning))
}

/// Returns `true` if the functions were not yet called for a switch in the present call of the goroutine.
pub(crate) fn is_here<H: Host>(m: &M<H>) -> bool {
    let switching = m.g().and_then(GRef::switching);
    switching.is_some_and(|switching| switching.hooked.get() == Hooked::Here)
}

/// Ends the process if the calling goroutine is in one of the functions, where `call` is refused.
#[cold]
#[inline(never)]
pub(crate) fn refuse_in_hook<H: Host>(m: &M<H>, call: &str) {
    if is_in_hook(m) {
        H::fatal(&format!(
            "a function of gmp::hooks has called {call}, in the middle of a switch. It must not: have it use try_lock, try_send \
             and the like, or a lock of std that is held for a short time, or leave the work to a goroutine or a thread"
        ));
    }
}

/// Called just before a switch of the calling goroutine, which is in no window and holds no lock: calls the functions for
/// suspend, unless that was done for an earlier switch of the same call.
#[inline]
pub(crate) fn suspend<H: Host>() {
    if H::has_switch_hooks() {
        call_for_suspend::<H>();
    }
}

/// As `suspend`, if there are functions.
#[cold]
#[inline(never)]
pub(crate) fn call_for_suspend<H: Host>() {
    let Some((m, g, switching)) = here::<H>() else { return };
    if switching.hooked.get() != Hooked::Here {
        return;
    }
    // SAFETY: as in `register`.
    let hooks = unsafe { H::switch_hooks().cast::<Hooks>().as_ref() };
    switching.hooks.set(hooks);
    switching.hooked.set(Hooked::Leaving);
    m.bar_windows();
    let suspends = hooks.iter().flat_map(|hooks| hooks.0.iter().rev()).map(|pair| &pair.suspend);
    call::<H>(g, "suspend", suspends);
    m.admit_windows();
    switching.hooked.set(Hooked::Away);
}

/// Called when the call of the calling goroutine makes no more switches: calls the functions for resume, if those for suspend
/// were called. The caller is in no window and holds no lock.
#[inline]
pub(crate) fn resume<H: Host>() {
    if H::has_switch_hooks() {
        call_for_resume::<H>();
    }
}

/// As `resume`, if there are functions.
#[cold]
#[inline(never)]
pub(crate) fn call_for_resume<H: Host>() {
    let Some((m, g, switching)) = here::<H>() else { return };
    if switching.hooked.get() != Hooked::Away {
        return;
    }
    let hooks = switching.hooks.take();
    switching.hooked.set(Hooked::Returning);
    m.bar_windows();
    call::<H>(g, "resume", hooks.iter().flat_map(|hooks| hooks.0.iter()).map(|pair| &pair.resume));
    m.admit_windows();
    switching.hooked.set(Hooked::Here);
}

/// Returns the calling goroutine, its M, and its part; `None` on plain threads, and after the goroutine's own code has ended.
fn here<'a, H: Host>() -> Option<(&'a M<H>, GRef<H>, &'a Switching)> {
    let m = M::<H>::current()?;
    let g = m.g()?;
    Some((m, g, g.switching()?))
}

/// Calls the functions. A panic out of one of them can't go on: the wait is already published, or the wait is over, and what it
/// brought would be lost.
fn call<'a, H: Host>(g: GRef<H>, what: &str, functions: impl Iterator<Item = &'a Arc<Function>>) {
    for function in functions {
        if let Err(payload) = H::catch(|| function()) {
            // Dropping the payload might unwind from here, before the process ends.
            std::mem::forget(payload);
            H::fatal(&format!(
                "a function of gmp::hooks for {what} has panicked or unwound, at a switch of goroutine {}. It must not: have it \
                 catch what may panic",
                g.id()
            ));
        }
    }
}
