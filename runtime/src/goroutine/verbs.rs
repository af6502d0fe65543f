//! Verbs beside [`go`](crate::go) and [`yield_now`](crate::yield_now): where a new goroutine stands, and which one runs next.
//!
//! `docs/choosing.md` says when which is worth its price. What each does is in `sched/run/place.rs`, `sched/run/mail.rs` and
//! `sched/run/turn.rs`.

use super::{Builder, JoinHandle, accepted, here, spawn_in, yield_as};
use crate::host::Active;
use crate::m::M;
use crate::runtime::Handle;
use crate::sched::park::{Seldom, Yield};
use crate::sched::run::place::Place;
use std::fmt;
use std::io;
use std::panic::Location;

/// As [`go`](crate::go), for a goroutine that is to have its turn in the order of the whole runtime: behind all that stand in
/// the global queue, and before what is started by `go_fair` later. Does not block.
///
/// `go` favours the caller's P and what is in its cache: the new goroutine is the next to run there. `go_fair` favours no
/// P: the order is about first in, first out, over all Ps, and the goroutine runs on whichever P comes first. Use `go_fair`
/// for work whose result a user or a client waits for, beside work that can wait: a request beside a computation that
/// starts thousands of goroutines.
///
/// The goroutine runs even when every P is in user code that neither parks nor yields: the monitor takes a P from a goroutine
/// that has run for a time slice of some 10 ms, and hands the P to another thread.
///
/// It costs more than `go`: the lock of the global queue, here and where the goroutine is taken. In a tree of goroutines that
/// start others all of a level are alive before the first of the next one: use [`join`](crate::join) or
/// [`go_lifo`](crate::go_lifo) there. Under the [policies](crate::policy) with one queue `go` does the same as `go_fair`.
/// [`Builder::fair`] is the same with a name or a stack size.
///
/// ```
/// use gmp::chan;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (sender, order) = chan::unbounded();
///         for n in 0..3 {
///             let sender = sender.clone();
///             gmp::go_fair(move || sender.send(n));
///         }
///         drop(sender);
///         let mut all: Vec<_> = order.iter().collect();
///         // On one P the order is exact.
///         all.sort();
///         assert_eq!(all, [0, 1, 2]);
///     })
/// }
/// ```
///
/// # Panics
/// As [`go`](crate::go).
#[track_caller]
pub fn go_fair<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let sched = here("go_fair", "gmp::run, Runtime::go_fair or Handle::go_fair");
    accepted("go_fair", spawn_in(sched, Builder::new().fair(), Location::caller(), f))
}

/// A hint where a goroutine should run: on a certain P, whose cache has what the goroutine will touch.
///
/// [`Builder::affinity`] and [`JoinHandle::set_affinity`] take it. The goroutine is put in the mailbox of that P, and the
/// thread that holds the P looks there before it looks for work in the global queue or on other Ps. The P is no promise: while
/// it is busy, a thread that finds nothing else to do takes the goroutine after some microseconds, and what stands in the
/// mailbox of a P that goes out of use goes to the global queue. So a wrong hint delays the goroutine for a moment, and loses
/// nothing.
///
/// A P is no CPU. The thread that holds a P mostly stays where it is while it has work, and
/// [`RuntimeBuilder::cpu_sets`](crate::RuntimeBuilder::cpu_sets) has it stay. The hint is a number: in another runtime it names
/// the P of that number. Under the [policies](crate::policy) with one queue it has no effect.
///
/// ```
/// use gmp::{Affinity, Builder};
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         // The first sweep is without a hint; each piece says where it ran.
///         let mut places = [Affinity::default(); 4];
///         for _sweep in 0..3 {
///             let pieces = places.map(|place| Builder::new().affinity(place).go(Affinity::of_current));
///             for (place, piece) in places.iter_mut().zip(pieces) {
///                 *place = piece.unwrap().join().unwrap();
///             }
///         }
///         assert!(places.iter().all(|place| *place != Affinity::default()));
///     })
/// }
/// ```
#[derive(Copy, Clone, Eq, Hash, PartialEq)]
pub struct Affinity(u32);

/// The number of no P.
const NOWHERE: u32 = u32::MAX;

impl Affinity {
    /// Returns the hint for the P on which the caller runs. On a thread that has none, and in [`blocking`](crate::blocking),
    /// the hint may name no P.
    ///
    /// That is the P of this moment: the goroutine may go on on another one after each call that parks.
    pub fn of_current() -> Self {
        Affinity(M::<Active>::current().and_then(M::p).map_or(NOWHERE, |p| p.id))
    }

    fn place(self) -> Place {
        if self.0 == NOWHERE { Place::Next } else { Place::Mail(self.0) }
    }
}

/// The hint that names no P, and has no effect.
impl Default for Affinity {
    fn default() -> Self {
        Affinity(NOWHERE)
    }
}

impl fmt::Debug for Affinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            NOWHERE => f.write_str("Affinity(none)"),
            p => write!(f, "Affinity(P{p})"),
        }
    }
}

impl Builder {
    /// The goroutine has its turn in the order of the whole runtime, as one of [`go_fair`]. Of this and
    /// [`affinity`](Self::affinity) the last one counts.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let answers = gmp::Builder::new().name("answers").fair().go(|| 42);
    ///         assert_eq!(answers.unwrap().join().unwrap(), 42);
    ///     })
    /// }
    /// ```
    pub fn fair(mut self) -> Self {
        self.place = Place::Shared;
        self
    }

    /// Gives a hint where the goroutine should run: see [`Affinity`], which has an example. It holds for the goroutine's first
    /// turn; where it goes on after a park is its waker's P, unless [`JoinHandle::set_affinity`] says otherwise. Of this and
    /// [`fair`](Self::fair) the last one counts.
    pub fn affinity(mut self, place: Affinity) -> Self {
        self.place = place.place();
        self
    }
}

impl<T> JoinHandle<T> {
    /// Changes where the goroutine should run, from the next time on that it is queued: on the P that the hint names, on
    /// whichever P its waker runs. The hint that names no P, `Affinity::default()`, takes that back. Returns `false` if the
    /// goroutine has ended, or its runtime has. Does not block.
    ///
    /// A goroutine goes on at its waker's P, as a rule: the data that the waker hands over is there. A hint is for one whose
    /// own data is larger than what it is handed, such as the keeper of a table. A waker on another P puts the goroutine into
    /// the mailbox of the P that the hint names, under the lock of the global queue, and wakes a thread for that P if it is
    /// idle; [`Affinity`] says when another P takes the goroutine.
    ///
    /// The hint has no effect on a goroutine of another class than [`Normal`](crate::Priority::Normal), on one that is locked
    /// to its thread, and under the [policies](crate::policy) with one queue. A goroutine that comes back from a blocking call
    /// goes on on whichever P is idle.
    ///
    /// ```
    /// use gmp::{Affinity, chan};
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (sender, work) = chan::bounded::<u64>(0);
    ///         let keeper = gmp::go(move || work.iter().sum::<u64>());
    ///         assert!(keeper.set_affinity(Affinity::of_current()));
    ///         (1..=4).for_each(|n| sender.send(n).unwrap());
    ///         drop(sender);
    ///         assert_eq!(keeper.join().unwrap(), 10);
    ///     })
    /// }
    /// ```
    pub fn set_affinity(&self, place: Affinity) -> bool {
        let Some(sched) = self.g().home().upgrade() else { return false };
        let p = (place.0 != NOWHERE).then_some(place.0);
        if p.is_some() {
            sched.use_hints();
        }
        self.g().set_hint(p)
    }
}

impl Handle {
    /// As [`go`](Self::go), for a goroutine that is to have its turn in the order of the whole runtime: see
    /// [`go_fair`](crate::go_fair). From a thread that is none of the runtime's `go` does the same. Does not block.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().build()? };
    /// assert_eq!(runtime.handle().go_fair(|| 1)?.join().unwrap(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`go`](Self::go).
    #[track_caller]
    pub fn go_fair<F, T>(&self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let site = Location::caller();
        spawn_in(&*self.sched("Handle::go_fair")?, Builder::new().fair(), site, f)
    }
}

/// As [`yield_now`](crate::yield_now), and the goroutine of `to` runs next, before the others in the queue, if it is runnable
/// and stands in the queue or the mailbox of the caller's P. Else, and on a plain thread, the call is a `yield_now`: `yield_to`
/// looks on no other P, and wakes no goroutine that waits. Blocks the goroutine until its next turn, and no other one.
///
/// The goroutine runs within the caller's time slice: two goroutines that yield to each other have 16 turns in a row, and then
/// go to the end of the queue like all others, so that they starve none. A timer that is due, or a look elsewhere, may have
/// another one run before.
///
/// What the caller has just woken or started stands first in the queue anyway. So does a goroutine whose join, whose wait for
/// the last `done` of a [`WaitGroup`](crate::sync::WaitGroup), or whose receive from a channel without a buffer is over: there
/// a wait, or `yield_now`, is enough. `yield_to` is for a goroutine that stands further behind: it looks through the whole
/// queue, 256 goroutines at most, and moves those that stand before that one.
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
