//! Calls by which a goroutine gives its turn ([`yield_now`], [`yield_to`]) or its P ([`blocking`]) to others.

use super::JoinHandle;
use super::own_frame::in_own_frame;
use crate::host::Active;
use crate::m::Window;
use crate::sched::Sched;
use crate::sched::park::{Seldom, Yield};
use crate::sched::run::spawn_burst;
use crate::sched::switch::{self, Duties};
use crate::wait::interrupt;

/// Lets other goroutines run first: the calling goroutine goes to the end of the queue, or is unwound if the runtime has begun
/// to end. Blocks the goroutine until its next turn. On a plain thread the call is [`std::thread::yield_now`].
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let other = gmp::go(|| 1);
///         while !other.is_finished() {
///             gmp::yield_now();
///         }
///         assert_eq!(other.join().unwrap(), 1);
///     })
/// }
/// ```
///
/// # Unwinds
/// When the goroutine's runtime ends; see [`migration`](crate::migration#what-may-unwind).
#[doc(alias = "Gosched")]
pub fn yield_now() {
    yield_as(|| Yield::Requeue);
}

/// `what`: which goroutine is to run instead.
#[inline(always)]
fn yield_as(what: impl FnOnce() -> Yield) {
    let Some(window) = Window::<Active>::enter() else { return std::thread::yield_now() };
    let duties = window.m().sched().duties();
    if !duties.are_none() {
        return yield_with_duties(window, duties, what);
    }
    window.suspend(what());
}

/// The rest of `yield_as` when the runtime ends, or when functions of [`hooks`](crate::hooks) are registered.
#[cold]
#[inline(never)]
fn yield_with_duties(window: Window<Active>, duties: Duties, what: impl FnOnce() -> Yield) {
    drop(window);
    if duties.ends() {
        interrupt::end_here::<Active>();
    }
    let_run(what);
}

/// Puts the calling goroutine at the end of the queue, with the functions of [`hooks`](crate::hooks) around that. Never
/// unwinds.
pub(crate) fn let_others_run() {
    let_run(|| Yield::Requeue);
}

fn let_run(what: impl FnOnce() -> Yield) {
    switch::suspend::<Active>();
    // A plain thread leaves the choice to the kernel.
    if let Some(window) = Window::<Active>::enter() {
        window.suspend(what());
    }
    switch::resume::<Active>();
}

/// As [`yield_now`], and the goroutine of `to` runs next, before the others in the queue, if it is runnable and stands in the
/// queue or the mailbox of the caller's P. Otherwise, and on a plain thread, the call is a `yield_now`: `yield_to` looks on no
/// other P, and wakes no goroutine that waits. Blocks the goroutine until its next turn, and no other one.
///
/// The goroutine runs within the caller's time slice: two goroutines that yield to each other have 16 turns in a row, and then
/// go to the end of the queue like all others, so that they starve none. A timer that is due, or the P's periodic look at other
/// queues, can make another goroutine run before.
///
/// A goroutine that the caller has just woken or started stands first in the queue anyway. So does a goroutine whose join,
/// whose wait for the last `done` of a [`WaitGroup`](crate::sync::WaitGroup), or whose receive from a channel without a buffer
/// is over: there a wait, or `yield_now`, is enough. `yield_to` is for a goroutine that stands further behind: the call looks
/// through the whole queue, 256 goroutines at most, and moves those that stand before that goroutine.
///
/// A goroutine of another class than [`Normal`](crate::Priority::Normal) is not found: it stands in the queue of its class,
/// which all Ps share. A caller of class [`High`](crate::Priority::High) runs again before a `Normal` goroutine that it yields
/// to. Under the [policies](crate::policy) with one queue each `yield_to` is a `yield_now`.
///
/// ```
/// use gmp::chan;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let runtime = unsafe { gmp::Runtime::builder().procs(1).build()? };
/// let order = runtime.run(|| {
///     let (sender, order) = chan::unbounded();
///     let spawn = |name| {
///         let sender = sender.clone();
///         gmp::go(move || sender.send(name))
///     };
///     let [_first, second, _third] = ["first", "second", "third"].map(spawn);
///     gmp::yield_to(&second);
///     drop(sender);
///     Vec::from_iter(order.iter())
/// });
/// assert_eq!(order[0], "second");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Unwinds
/// When the goroutine's runtime ends; see [`migration`](crate::migration#what-may-unwind).
pub fn yield_to<T>(to: &JoinHandle<T>) {
    yield_as(|| Yield::Seldom(Seldom::Turn(to.g().to_raw().cast_const().cast())));
}

/// Runs `f`, which blocks the thread, and lets the other goroutines run meanwhile: the calling goroutine runs `f` without a P,
/// and takes a P again afterwards, for which it may park. If no goroutine waits for the P, `f` runs on the same thread. If
/// others wait, the thread runs them, and `f` runs on another thread: so `blocking` may park before `f` as well. A goroutine
/// that is [locked to its thread](crate::lock_os_thread) stays there. On a plain thread, and when the goroutine has no P, the
/// call just runs `f`. The latter is so inside another `blocking`, until the outer `f` has parked for the first time: from then
/// on the goroutine has a P again, and an inner `blocking` gives that P away. `f` needs to be neither `Send` nor `'static`.
///
/// A blocking call without `blocking` stalls other goroutines for a short time only: the monitor finds the thread blocked, and
/// retakes the P. With `blocking` the others are not stalled at all. So use `blocking` for calls that block for longer than
/// some 10 µs, the cost of waking another thread for the P: a file, a name look-up, a lock of std, a long computation. `f` may
/// do everything that a goroutine may. If `f` parks, the goroutine first takes a P, and keeps that P from then on. Until then
/// `f` runs without a P, and goroutines that `f` starts or wakes go through the global queue.
///
/// At [`max_threads`](crate::RuntimeBuilder::max_threads) there may be no thread to take the P: then an `f` that waits for
/// another goroutine waits for ever. As `blocking` may park before `f` and on return, [`migration`](crate::migration)'s
/// contract holds for the values that `f` captures and for the value that it returns. After a panic in `f` the goroutine goes
/// on without a P until the next call that parks.
///
/// # Unwinds
/// When a wait of `f` is ended from outside; see [`migration`](crate::migration#what-may-unwind). The wait for a P is never
/// ended.
///
/// # Panics
/// When `f` panics.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let text = unsafe { gmp::run(|| gmp::blocking(|| std::fs::read_to_string("/proc/self/comm"))) };
/// assert!(text.is_ok());
/// ```
#[doc(alias = "entersyscall")]
#[inline]
pub fn blocking<R>(f: impl FnOnce() -> R) -> R {
    // Inlined into the caller, in whose frame the closure was built: one call further it would be copied.
    let left = leave_p_to_block();
    let value = in_own_frame(f);
    if left {
        come_back_for_p();
    }
    value
}

/// Takes the P, if any, from the calling goroutine, which is about to block its thread. Returns `true` if there was one.
fn leave_p_to_block() -> bool {
    let Some(window) = Window::<Active>::enter_with_p() else {
        spawn_burst::goes_on_without_p::<Active>();
        return false;
    };
    if window.m().sched().wants_p_of(&window) {
        window.suspend(Yield::Seldom(Seldom::Call));
        // If no M could take over the goroutine, it is back here with a P, which it gives away below.
        Sched::<Active>::step_aside();
    } else {
        window.m().sched().entersyscallblock(&window);
        drop(window);
    }
    true
}

/// Takes a P again; the calling goroutine may park for it.
fn come_back_for_p() {
    drop(Window::<Active>::enter());
}
