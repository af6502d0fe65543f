//! Fork-join, depth first: [`join`], [`fork_scope`]; and [`go_lifo`], for goroutines in that order.
//!
//! What these do with other Ms stands in `sched/run/jobs.rs`. Here is the forker's way through F1 to F6 of
//! `sched/run/jobs/record.rs`: as long as no other M takes the record, a fork is a call.

use super::own_frame::in_own_frame;
use super::{FROM_A_THREAD, JoinHandle, accepted, here};
use crate::g::{Birth, call_undisturbed};
use crate::host::{Active, Host};
use crate::m::{M, Window};
use crate::p::jobs::Slot;
use crate::prim::hooks::*;
use crate::sched::Sched;
use crate::sched::run::jobs::record::{Record, end_if_ending, pass_on};
use crate::sched::switch;
use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::ptr::NonNull;

/// Runs `a`, and `b` after it, or beside it where another thread of the runtime has nothing else to do. Returns both values.
/// rayon's `join`, for goroutines. Blocks the goroutine until `b` is over, if another thread has begun `b`.
///
/// `b` costs no goroutine as long as no thread takes it: a record of `b` lies on the caller's stack meanwhile. When `a` is over
/// and the record is still there, `b` is a plain call, and the fork has cost two atomic exchanges. Otherwise `b` runs on a
/// goroutine that was made for it, with a stack as large as the caller's. A thread takes the oldest record of another P, and
/// the newest one of its own P when the goroutines there wait in the middle of `a`: so a tree of joins has about as many live
/// goroutines as it is deep, times the number of Ps, however wide it is. A theft costs as much as a spawn by
/// [`go`](crate::go): cut the work into leaves that take longer than that.
///
/// Both may park. Where `a` waits for something that `b` does, `b` is begun as soon as a P has nothing else to run. On a plain
/// thread, and in a function of [`hooks`](crate::hooks), `join` calls `a` and then `b`, and such an `a` waits for ever; so it
/// does where no stack can be had for a goroutine of `b`, which then runs after `a`.
///
/// On a goroutine of its own, `b` has that goroutine's variables ([`local!`](crate::local!)), its [`current`](crate::current),
/// and no [`Context`](crate::context::Context) that covers the caller: pass the context on, as to any goroutine. `b` may
/// borrow from the caller: `join` never returns or unwinds before `b` is over, or is sure not to begin.
///
/// The algorithm is work stealing with steals of children, as in Cilk-5 and rayon, on oneTBB's rule "own newest, others'
/// oldest".
///
/// ```
/// fn sum(numbers: &[u64]) -> u64 {
///     if numbers.len() <= 1000 {
///         return numbers.iter().sum();
///     }
///     let (left, right) = numbers.split_at(numbers.len() / 2);
///     let (left, right) = gmp::join(|| sum(left), || sum(right));
///     left + right
/// }
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let numbers: Vec<u64> = (0..10_000).collect();
///         assert_eq!(sum(&numbers), 49_995_000);
///     })
/// }
/// ```
///
/// # Unwinds
/// When a wait of `a` or `b` is ended from outside; see [`migration`](crate::migration#what-may-unwind). The wait for a `b`
/// that another thread has begun is never ended, as in [`scope`](crate::scope); when the runtime ends, the caller is unwound
/// after `b`, and is left behind if `b` is.
///
/// # Panics
/// When `a` does: then `b` is dropped if no thread has begun it, and waited for otherwise; no interrupt ends a wait in that
/// drop, as none does in destructors that run while a panic unwinds. When `b` does, wherever it ran. If both do, with the panic
/// of `a`. A [`goexit`](crate::goexit) in `b` ends the caller.
#[track_caller]
#[inline]
pub fn join<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB + Send,
    RB: Send,
{
    match enter::<Active>() {
        Some(window) => join_in(window, Location::caller(), a, b),
        None => {
            let left = a();
            (left, b())
        }
    }
}

/// The window of a forker, which may have lost its P, and comes back for one. `None` where there is no goroutine, and in a
/// function of `gmp::hooks`.
#[inline]
fn enter<H: Host>() -> Option<Window<H>> {
    Window::enter_with_p().or_else(come_back)
}

#[cold]
fn come_back<H: Host>() -> Option<Window<H>> {
    let m = M::<H>::current()?;
    m.g()?;
    if switch::is_in_hook(m) { None } else { Window::enter() }
}

/// F1 to F3; the rest in `not_alone`.
#[inline]
fn join_in<H: Host, A, B, RA, RB>(window: Window<H>, site: &'static Location<'static>, a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB,
{
    let record = Record::<H, B, RB>::new(Some(window.g()), site, b);
    // Nothing here unwinds, or moves the record, before the record is the caller's again.
    let slot = Sched::offer(window, record.name());
    let mut left = None;
    let ran = H::catch(|| left = Some(in_own_frame(a)));
    mutant!(UnwindingLeavesTheJob: if let Err(payload) = ran { resume_unwind(payload) });
    // SAFETY: once.
    match (unsafe { record.withdraw(slot) }, ran, left) {
        (Some(b), Ok(()), Some(left)) => (left, in_own_frame(b)),
        (b, ran, left) => not_alone(&record, b, ran, left),
    }
}

/// The end of a join where another has taken the record, or `a` has unwound.
#[cold]
#[inline(never)]
fn not_alone<H: Host, B, RA, RB>(
    record: &Record<H, B, RB>,
    b: Option<B>,
    ran: Result<(), Box<dyn Any + Send>>,
    left: Option<RA>,
) -> (RA, RB)
where
    B: FnOnce() -> RB,
{
    // SAFETY: once, after `withdraw`.
    let settled = b.map_or_else(|| unsafe { record.settled() }, Err);
    if let Err(payload) = ran {
        // A panic of these drops gives way to the one that is under way.
        call_undisturbed::<H>(|| drop(settled));
        resume_unwind(payload);
    }
    let left = left.expect("join: `a` has returned");
    match settled {
        Ok(Ok(right)) => (left, right),
        Ok(Err(payload)) => pass_on::<H>(payload),
        Err(b) => {
            end_if_ending::<H>();
            (left, in_own_frame(b))
        }
    }
}

type Closure = Box<dyn FnOnce() + Send>;

/// A fork of a scope: a record in a box of its own.
struct Forked {
    record: NonNull<Record<Active, Closure, ()>>,
    /// Part of a P, which lives as long as the runtime of the forker.
    slot: Option<&'static Slot<Active>>,
}

/// Why a scope unwinds.
enum Unwinding {
    /// Of the forker's own stack.
    Own(Box<dyn Any + Send>),
    /// Of a job that ran elsewhere.
    Elsewhere(Box<dyn Any + Send>),
}

/// Runs `f`, which may [`fork`](ForkScope::fork) closures that borrow what lives longer than this call, and returns the value
/// of `f` when all of these are over. [`join`] for any number of branches. Blocks the goroutine, for branches that other
/// threads have begun.
///
/// When `f` has returned, the branches that no thread has taken are called here, the newest first. A
/// [`scope`](crate::scope) makes a goroutine of each branch at once; this call makes one for those alone that another thread
/// has taken, and for those that find no room: a P has room for 128. So fork ranges, and halves of them, rather than thousands
/// of branches. What is said of [`join`] holds here too: a plain thread calls all branches itself, in that order.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let mut squares = [1_u64, 2, 3, 4];
///         gmp::fork_scope(|s| {
///             for square in &mut squares {
///                 s.fork(|| *square *= *square);
///             }
///         });
///         assert_eq!(squares, [1, 4, 9, 16]);
///     })
/// }
/// ```
///
/// # Unwinds
/// When a wait of `f` or of a branch is ended from outside; see [`migration`](crate::migration#what-may-unwind). The wait
/// for branches that were begun is not, as in [`join`].
///
/// # Panics
/// When `f` does, or a branch: with the first of these panics. Branches that no thread has begun are dropped then, as in
/// [`join`].
pub fn fork_scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope ForkScope<'scope, 'env>) -> T,
{
    let scope = ForkScope { forked: RefCell::new(Vec::new()), scope: PhantomData, env: PhantomData };
    let (value, unwinding) = match catch_unwind(AssertUnwindSafe(|| in_own_frame(|| f(&scope)))) {
        Ok(value) => (Some(value), None),
        Err(payload) => (None, Some(Unwinding::Own(payload))),
    };
    match (settle_all(&scope.forked, unwinding), value) {
        (None, Some(value)) => value,
        (Some(Unwinding::Elsewhere(payload)), _) => pass_on::<Active>(payload),
        (Some(Unwinding::Own(payload)), _) => resume_unwind(payload),
        (None, None) => unreachable!("fork_scope: the function has neither returned nor unwound"),
    }
}

/// F3 to F6 for all branches, the newest first. Returns why the scope unwinds, if it does: the first reason.
fn settle_all(forked: &RefCell<Vec<Forked>>, mut unwinding: Option<Unwinding>) -> Option<Unwinding> {
    loop {
        let Some(Forked { record, slot }) = forked.borrow_mut().pop() else { return unwinding };
        // SAFETY: `fork` made the record, which is this call's alone, or that of a taker, which settles it.
        let there = unsafe { record.as_ref() };
        // SAFETY: once for each record.
        let (settled, came_back) = match unsafe { there.withdraw(slot) } {
            Some(f) => (Err(f), false),
            // SAFETY: once, after `withdraw`.
            None => (unsafe { there.settled() }, there.has_forker()),
        };
        // SAFETY: of `fork`; no other M knows of the record any more. Its closure and its result were moved out.
        drop(unsafe { Box::from_raw(record.as_ptr()) });
        match (settled, unwinding.is_none()) {
            (Ok(Ok(())), _) => {}
            (Ok(Err(payload)), true) => unwinding = Some(Unwinding::Elsewhere(payload)),
            (Err(f), true) => {
                let call = || {
                    if came_back {
                        end_if_ending::<Active>();
                    }
                    f();
                };
                unwinding = catch_unwind(AssertUnwindSafe(call)).err().map(Unwinding::Own);
            }
            // A panic of these drops gives way to the one that is under way. Nothing unwinds here, not even the drop of its
            // payload: other records may still be in their slots.
            (settled, false) => call_undisturbed::<Active>(|| drop(settled)),
        }
    }
}

/// A scope, in which closures are forked that may borrow values from outside of the scope; see [`fork_scope`].
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (mut evens, mut odds) = (0, 0);
///         gmp::fork_scope(|s| {
///             s.fork(|| evens = (0..100).filter(|n| n % 2 == 0).sum());
///             s.fork(|| odds = (0..100).filter(|n| n % 2 == 1).sum());
///         });
///         assert_eq!((evens, odds), (2450, 2500));
///     })
/// }
/// ```
pub struct ForkScope<'scope, 'env: 'scope> {
    /// The newest is the last.
    forked: RefCell<Vec<Forked>>,
    /// Invariant, as std's: else `'scope` could shrink, and a branch borrow what the scope's body owns.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope> ForkScope<'scope, '_> {
    /// Puts `f` aside, to be called when the scope's function is over, unless another thread has taken it by then. Does not
    /// wait for `f`; but a goroutine that has lost its P, as it ran for long, waits here for a P, and may go on on another
    /// thread. Branches fork in scopes of their own.
    ///
    /// # Unwinds
    /// Never: the wait for a P does not unwind.
    #[track_caller]
    pub fn fork<F>(&'scope self, f: F)
    where
        F: FnOnce() + Send + 'scope,
    {
        let f: Box<dyn FnOnce() + Send + 'scope> = Box::new(f);
        // SAFETY: the closure is called, or dropped, before 'scope ends: `fork_scope` settles all records in whatever way its
        // function ends, and a goroutine that never gets there keeps what the closure borrows.
        let f = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + 'scope>, Closure>(f) };
        let window = enter::<Active>();
        let forker = window.as_ref().map(Window::g);
        // The allocator, and the list, are the user's code.
        drop(window);
        let record = NonNull::from(Box::leak(Box::new(Record::new(forker, Location::caller(), f))));
        let mut forked = self.forked.borrow_mut();
        forked.push(Forked { record, slot: None });
        if forker.is_some() {
            let window = enter::<Active>().expect("fork: a forker stays a goroutine");
            // SAFETY: the record stays until it is settled.
            let name = unsafe { record.as_ref() }.name();
            if let Some(last) = forked.last_mut() {
                last.slot = Sched::offer(window, name);
            }
        }
    }
}

impl fmt::Debug for ForkScope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForkScope").field("forked", &self.forked.borrow().len()).finish_non_exhaustive()
    }
}

/// As [`go`](crate::go), depth first: of the goroutines that were started so on one P, that P runs the newest first, after
/// those that are ready there otherwise, and another P takes the oldest. Does not block.
///
/// For trees of goroutines whose parents join their children: with `go`, which is first in, first out, all goroutines of a
/// level are alive before one of the next begins; here about as many as the tree is deep, for each P. Where a parent only
/// waits for two or more closures, [`join`] and [`fork_scope`] do without most of the goroutines. A goroutine that was
/// started by `go_lifo` and has parked is queued like any other when it is ready again.
///
/// A P that has other work all the time queues the oldest one behind that work, at each 61st goroutine or after half a
/// millisecond. But on a P that comes to them, newer ones go first: a chain that never ends keeps the oldest waiting, for
/// another P. The goroutine has no name, the runtime's stack size and the class `Normal`; [`Builder`](crate::Builder) sets none
/// of these for it.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let leaves = [1, 2, 3].map(|leaf| gmp::go_lifo(move || leaf * leaf));
///         assert_eq!(leaves.map(|leaf| leaf.join().unwrap()), [1, 4, 9]);
///     })
/// }
/// ```
///
/// # Panics
/// As [`go`](crate::go).
#[track_caller]
pub fn go_lifo<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let sched = here("go_lifo", FROM_A_THREAD);
    let birth = Birth { name: None, stack_size: sched.config.stack_size, site: Location::caller() };
    // SAFETY: `f` borrows nothing that ends.
    let spawned = unsafe { sched.spawn_lifo(birth, f) };
    accepted("go_lifo", spawned.map(JoinHandle::of))
}
