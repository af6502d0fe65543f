//! Fork-join, depth first: [`join`], [`fork_scope`]; and [`go_lifo`], which starts goroutines in that order.
//!
//! `sched/run/jobs.rs` has the part of the other Ms. This file has the forker's way through F1 to F6 of
//! `sched/run/jobs/record.rs`: as long as no other M takes the record, a fork is a call.

use super::own_frame::{caught, in_own_frame, throw_again};
use super::{FROM_A_THREAD, JoinHandle, accepted, here, plain};
use crate::g::call_undisturbed;
use crate::host::{Active, Process};
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
use std::panic::Location;
use std::ptr::NonNull;

/// Runs `a`, and `b` after `a`, or beside `a` if another thread of the runtime has nothing else to do. Returns both values.
/// rayon's `join`, for goroutines. Blocks the goroutine until `b` is over, if another thread has begun `b`.
///
/// `b` costs no goroutine as long as no thread takes it: a record of `b` lies on the caller's stack meanwhile. When `a` is over
/// and the record is still there, `b` is a plain call, and the fork has cost two atomic exchanges. Otherwise `b` runs on a
/// goroutine that was made for `b`, with a stack as large as the caller's. A thread takes the oldest record of another P, and
/// the newest record of its own P when the goroutines there wait in the middle of `a`. So a tree of joins has about as many
/// live goroutines as it is deep, times the number of Ps, however wide it is. A theft costs as much as a spawn by
/// [`go`](crate::go): cut the work into leaves that take longer than that.
///
/// Both may park. If `a` waits for something that `b` does, `b` begins as soon as a P has nothing else to run. On a plain
/// thread, and in a function of [`hooks`](crate::hooks), `join` calls `a` and then `b`, and such an `a` waits for ever. Such an
/// `a` also waits for ever if there is no stack for a goroutine of `b`, since `b` then runs after `a`.
///
/// On a goroutine of its own, `b` has that goroutine's variables ([`local!`](crate::local!)), its [`current`](crate::current),
/// and no [`Context`](crate::context::Context) that covers the caller: pass the context on, as to any goroutine. `b` may borrow
/// from the caller: `join` neither returns nor unwinds before `b` is over, or is certain not to begin.
///
/// The algorithm is work stealing of children, as in Cilk-5 and rayon, with oneTBB's rule "own newest, others' oldest".
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
/// When `a` panics: then `b` is dropped if no thread has begun it, and waited for otherwise; no interrupt ends a wait in that
/// drop, as in destructors that run while a panic unwinds. When `b` panics, on whichever goroutine it ran. If both do, with the
/// panic of `a`. A [`goexit`](crate::goexit) in `b` ends the caller.
#[track_caller]
#[inline]
pub fn join<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB + Send,
    RB: Send,
{
    match enter() {
        Some(window) => join_in(window, Location::caller(), a, b),
        None => {
            let left = a();
            (left, b())
        }
    }
}

/// Returns the forker's window. A forker that has lost its P takes one first. `None` on a plain thread, and in a function of
/// `gmp::hooks`.
#[inline]
fn enter() -> Option<Window<Active>> {
    Window::enter_with_p().or_else(come_back)
}

#[cold]
fn come_back() -> Option<Window<Active>> {
    let m = M::<Active>::current()?;
    m.g()?;
    if switch::is_in_hook(m) { None } else { Window::enter() }
}

/// Does F1 to F3; `not_alone` does the rest.
#[inline]
fn join_in<A, B, RA, RB>(window: Window<Active>, site: &'static Location<'static>, a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB,
{
    let record = Record::<Active, B, RB>::new(Some(window.g()), site, b);
    // Nothing here unwinds, or moves the record, before the record is the caller's again.
    let slot = Sched::offer(window, record.name());
    let mut left = None;
    let ran = Active::catch(|| left = Some(in_own_frame(a)));
    mutant!(UnwindingLeavesTheJob: if let Err(payload) = ran { throw_again(payload) });
    // SAFETY: once.
    match (unsafe { record.withdraw(slot) }, ran, left) {
        (Some(b), Ok(()), Some(left)) => (left, in_own_frame(b)),
        (b, ran, left) => not_alone(&record, b, ran, left),
    }
}

/// Ends a join whose record another M has taken, or whose `a` has unwound.
#[cold]
#[inline(never)]
fn not_alone<B, RA, RB>(
    record: &Record<Active, B, RB>,
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
        call_undisturbed::<Active>(|| drop(settled));
        throw_again(payload);
    }
    let left = left.expect("join: `a` has returned");
    match settled {
        Ok(Ok(right)) => (left, right),
        Ok(Err(payload)) => pass_on::<Active>(payload),
        Err(b) => {
            end_if_ending::<Active>();
            (left, in_own_frame(b))
        }
    }
}

type Closure = Box<dyn FnOnce() + Send>;

/// A fork of a scope: a record in a box of its own.
struct Forked {
    record: NonNull<Record<Active, Closure, ()>>,
    /// A slot of a P, which lives as long as the runtime of the forker.
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
/// of `f` when all of these closures are over. [`join`] for any number of branches. Blocks the goroutine until the branches
/// that other threads have begun are over.
///
/// When `f` has returned, the caller calls the branches that no thread has taken, the newest first. A [`scope`](crate::scope)
/// makes a goroutine of each branch at once; this call makes one only of a branch that another thread has taken, or that finds
/// no room: a P has room for 128. So fork ranges, and halves of them, rather than thousands of branches. The text of [`join`]
/// holds here too: a plain thread calls all branches itself, in that order.
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
/// When a wait of `f` or of a branch is ended from outside; see [`migration`](crate::migration#what-may-unwind). The wait for
/// branches that were begun is not ended, as in [`join`].
///
/// # Panics
/// When `f` or a branch panics: with the first of these panics. Branches that no thread has begun are then dropped, as in
/// [`join`].
pub fn fork_scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope ForkScope<'scope, 'env>) -> T,
{
    let scope = ForkScope { forked: RefCell::new(Vec::new()), scope: PhantomData, env: PhantomData };
    let (value, unwinding) = match caught(|| f(&scope)) {
        Ok(value) => (Some(value), None),
        Err(payload) => (None, Some(Unwinding::Own(payload))),
    };
    match (settle_all(&scope.forked, unwinding), value) {
        (None, Some(value)) => value,
        (Some(Unwinding::Elsewhere(payload)), _) => pass_on::<Active>(payload),
        (Some(Unwinding::Own(payload)), _) => throw_again(payload),
        (None, None) => unreachable!("fork_scope: the function has neither returned nor unwound"),
    }
}

/// Does F3 to F6 for all branches, the newest first. Returns why the scope unwinds, if it does: the first reason.
fn settle_all(forked: &RefCell<Vec<Forked>>, mut unwinding: Option<Unwinding>) -> Option<Unwinding> {
    loop {
        let Some(Forked { record, slot }) = forked.borrow_mut().pop() else { return unwinding };
        // SAFETY: `fork` made the record, and it belongs to this call alone, or to a taker that settles it.
        let there = unsafe { record.as_ref() };
        // SAFETY: once for each record.
        let (settled, came_back) = match unsafe { there.withdraw(slot) } {
            Some(f) => (Err(f), false),
            // SAFETY: once, after `withdraw`.
            None => (unsafe { there.settled() }, there.has_forker()),
        };
        // SAFETY: `fork` made the box; no other M knows of the record now. Its closure and its result were moved out.
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
                unwinding = caught(call).err().map(Unwinding::Own);
            }
            // A panic of these drops gives way to the one that is under way. Nothing unwinds here, not even the drop of its
            // payload: other records may still be in their slots.
            (settled, false) => in_own_frame(|| call_undisturbed::<Active>(|| drop(settled))),
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
    /// wait for `f`; but a goroutine that has lost its P because it ran for long waits here for a P, and can resume on another
    /// thread. A branch that forks opens a scope of its own.
    ///
    /// # Unwinds
    /// Never: the wait for a P does not unwind.
    #[track_caller]
    pub fn fork<F>(&'scope self, f: F)
    where
        F: FnOnce() + Send + 'scope,
    {
        let f: Box<dyn FnOnce() + Send + 'scope> = Box::new(f);
        // SAFETY: the closure is called, or dropped, before 'scope ends: `fork_scope` settles all records however its function
        // ends, and a goroutine that never gets there keeps what the closure borrows alive.
        let f = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + 'scope>, Closure>(f) };
        let window = enter();
        let forker = window.as_ref().map(Window::g);
        // Outside of the window: the allocator is user code.
        drop(window);
        let record = NonNull::from(Box::leak(Box::new(Record::new(forker, Location::caller(), f))));
        let mut forked = self.forked.borrow_mut();
        forked.push(Forked { record, slot: None });
        if forker.is_some() {
            let window = enter().expect("fork: a forker stays a goroutine");
            // SAFETY: the record stays until settled.
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

/// As [`go`](crate::go), depth first: of the goroutines that `go_lifo` has started on a P, this P runs the newest first, after
/// its other ready goroutines, and another P takes the oldest. Does not block.
///
/// For trees of goroutines whose parents join their children: with `go`, which is first in, first out, all goroutines of a
/// level are alive before one of the next level begins; with `go_lifo` about as many are alive on each P as the tree is deep.
/// If a parent only waits for two or more closures, [`join`] and [`fork_scope`] do without most of the goroutines. A goroutine
/// that was started by `go_lifo` and has parked is queued like any other when it is ready again.
///
/// A P that always has other work queues its oldest such goroutine behind that work, at each 61st goroutine or after half a
/// millisecond. On a P without other work newer ones go first: if new ones never cease, the oldest waits until another P takes
/// it. The goroutine has no name, the runtime's stack size and the class `Normal`; [`Builder`](crate::Builder) sets none of
/// these for it.
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
    // SAFETY: `f` borrows nothing that ends.
    let spawned = unsafe { sched.spawn_lifo(plain(sched), f) };
    accepted("go_lifo", spawned.map(JoinHandle::of))
}
