//! Verbs beside [`go`](crate::go) that say where a new goroutine is queued, and where a readied one.
//!
//! `docs/choosing.md` says when each is worth its price. The queueing is in `sched/run/place.rs` and `sched/run/mail.rs`.
//! `yield_to` is in `turns.rs`.

use super::{Builder, JoinHandle, accepted, here, spawn_in};
use crate::host::Active;
use crate::m::M;
use crate::runtime::Handle;
use crate::sched::run::place::Place;
use std::fmt;
use std::io;
use std::panic::Location;

/// As [`go`](crate::go), for a goroutine that has its turn in the order of the whole runtime: behind all goroutines in the
/// global queue, and before those that `go_fair` starts later. Does not block.
///
/// `go` favours the caller's P and its cache: the new goroutine is the next to run there. `go_fair` favours no P: the order is
/// about first in, first out, over all Ps, and the first P that comes to the goroutine runs it. Use `go_fair` for work whose
/// result a user or a client waits for, beside work that can wait: a request beside a computation that starts thousands of
/// goroutines.
///
/// The goroutine runs even when every P is in user code that neither parks nor yields: the monitor takes a P from a goroutine
/// that has run for a time slice of some 10 ms, and hands the P to another thread.
///
/// `go_fair` costs more than `go`: the lock of the global queue, once to queue the goroutine and once to take it. In a tree of
/// goroutines that start others, all goroutines of a level are alive before the first of the next level: use
/// [`join`](crate::join) or [`go_lifo`](crate::go_lifo) there. Under the [policies](crate::policy) with one queue `go` does the
/// same as `go_fair`. [`Builder::fair`] does the same for a goroutine with a name or a stack size.
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

/// A hint where a goroutine should run: on a certain P, whose cache holds the data that the goroutine will touch.
///
/// [`Builder::affinity`] and [`JoinHandle::set_affinity`] take it. The goroutine is put in the mailbox of that P, and the
/// thread that holds the P looks there before it looks for work in the global queue or on other Ps. The hint is no promise:
/// while that P is busy, a thread that finds nothing else to do takes the goroutine after some microseconds, and the mailbox of
/// a P that goes out of use is emptied into the global queue. So a wrong hint delays the goroutine for a moment, and has no
/// other cost.
///
/// A P is no CPU. A thread that holds a P and has work mostly stays on one CPU, and
/// [`RuntimeBuilder::cpu_sets`](crate::RuntimeBuilder::cpu_sets) makes it stay. The hint is a number: in another runtime it
/// names the P of that number. Under the [policies](crate::policy) with one queue the hint has no effect.
///
/// ```
/// use gmp::{Affinity, Builder};
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         // The first sweep has no hint; each piece returns where it ran.
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
    /// Returns the hint for the P on which the caller runs. On a thread that has no P, and in [`blocking`](crate::blocking),
    /// the hint may name no P.
    ///
    /// The hint names the P of this moment: the goroutine can resume on another P after each call that parks.
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
    /// Gives the goroutine its turn in the order of the whole runtime, as [`go_fair`] does. Of this call and
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

    /// Gives a hint where the goroutine should run: see [`Affinity`], which has an example. The hint holds for the goroutine's
    /// first turn; after a park the goroutine resumes on its waker's P, unless [`JoinHandle::set_affinity`] says otherwise. Of
    /// this call and [`fair`](Self::fair) the last one counts.
    pub fn affinity(mut self, place: Affinity) -> Self {
        self.place = place.place();
        self
    }
}

impl<T> JoinHandle<T> {
    /// Changes where the goroutine should run, from the next time that it is queued: on the P that the hint names, whatever P
    /// its waker runs on. `Affinity::default()`, the hint that names no P, takes that back. Returns `false` if the goroutine or
    /// its runtime has ended. Does not block.
    ///
    /// As a rule a goroutine resumes on its waker's P, where the data that the waker hands over is in the cache. A hint is for
    /// a goroutine whose own data is larger than what it is handed, such as the keeper of a table. A waker on another P puts
    /// the goroutine into the mailbox of the P that the hint names, under the lock of the global queue, and wakes a thread for
    /// that P if idle; [`Affinity`] says when another P takes the goroutine.
    ///
    /// The hint has no effect on a goroutine of another class than [`Normal`](crate::Priority::Normal), on one that is locked
    /// to its thread, and under the [policies](crate::policy) with one queue. A goroutine that comes back from a blocking call
    /// resumes on any idle P.
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
    /// As [`go`](Self::go), for a goroutine that has its turn in the order of the whole runtime: see
    /// [`go_fair`](crate::go_fair). On a thread that does not belong to the runtime `go` does the same. Does not block.
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
