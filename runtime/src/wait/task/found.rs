//! The tasks that a look at the poller has found: their wakers are collected under the table's lock, and called after it.

use super::{Waker, call, discard, wake_elsewhere};
use crate::g::list::GList;
use crate::g::{Birth, GRef};
use crate::goroutine::waker::cell_of;
use crate::host::{Active, Host};
use crate::prim::hooks::*;
use crate::sched::Sched;
use crate::sched::calls::run_aside;
use crate::sched::watch::deadlock::Serving;
use crate::wait::status::Then;
use std::any::Any;
use std::marker::PhantomData;
use std::panic::Location;

/// Wakers to be called.
pub(crate) enum FoundTasks {
    None,
    One(Waker),
    Many(Vec<Waker>),
}

impl FoundTasks {
    #[cold]
    pub(crate) fn push(&mut self, waker: Waker) {
        *self = match std::mem::replace(self, FoundTasks::None) {
            FoundTasks::None => FoundTasks::One(waker),
            FoundTasks::One(first) => FoundTasks::Many(vec![first, waker]),
            FoundTasks::Many(mut all) => {
                all.push(waker);
                FoundTasks::Many(all)
            }
        }
    }

    #[inline]
    fn for_each(self, mut f: impl FnMut(Waker)) {
        match self {
            FoundTasks::None => {}
            FoundTasks::One(waker) => f(waker),
            FoundTasks::Many(wakers) => wakers.into_iter().for_each(f),
        }
    }

    /// Wakes the tasks, on any thread, but calls foreign wakers as the function `wake_elsewhere` does.
    pub(crate) fn wake_elsewhere<H: Host>(self) {
        self.for_each(wake_elsewhere::<H>);
    }
}

/// The wakers that a look at the poller has taken out of the table, and not called yet. The table no longer shows them, and no
/// goroutine shows them yet, so `Serving` tells the judge of deadlocks that there is something. Most looks find no task, or
/// one; programs without tasks pay only for the mark that there is none.
pub(crate) struct Carried<'s, H: Host>(Option<(FoundTasks, Option<Serving<'s, H>>)>);

impl<'s, H: Host> Carried<'s, H> {
    pub(crate) fn nothing() -> Self {
        Carried(None)
    }

    /// Under the table's lock, in the section in which the waker was taken.
    #[cold]
    pub(crate) fn push(&mut self, sched: &'s Sched<H>, waker: Waker) {
        let (tasks, _) = self.0.get_or_insert_with(|| {
            let serving = Some(Serving::begin(sched));
            mutant!(CarriedTasksUnseen: let serving = { drop(serving); None });
            (FoundTasks::None, serving)
        });
        tasks.push(waker);
    }

    /// Wakes the tasks, on an M that is in the scheduler, or on the monitor, which holds none of the library's locks. Appends
    /// to `found` the goroutines of `sched` that wait in `block_on`, like those that wait for the descriptor, and for each
    /// other waker a goroutine of the library, which calls it.
    #[inline(always)]
    pub(crate) fn wake(self, sched: &Sched<H>, found: &mut GList<H>) {
        if self.0.is_some() {
            self.wake_some(sched, found);
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_some(self, sched: &Sched<H>, found: &mut GList<H>) {
        let Some((tasks, serving)) = self.0 else { return };
        tasks.for_each(|waker| wake_found(sched, waker, found));
        // Each is a goroutine that is awake by now, or a call for a thread.
        drop(serving);
    }
}

/// Wakers that are no longer called. Dropping this value discards them: the value outlives the locks, and all else for which
/// the drop of a waker might wait.
pub(crate) struct Discarded<H: Host>(FoundTasks, PhantomData<H>);

impl<H: Host> Discarded<H> {
    pub(crate) fn new() -> Self {
        Discarded(FoundTasks::None, PhantomData)
    }

    pub(crate) fn add(&mut self, wakers: impl IntoIterator<Item = Waker>) {
        wakers.into_iter().for_each(|waker| self.0.push(waker));
    }
}

impl<H: Host> Drop for Discarded<H> {
    #[inline]
    fn drop(&mut self) {
        std::mem::replace(&mut self.0, FoundTasks::None).for_each(|waker| discard::<H>(Some(waker)));
    }
}

fn wake_found<H: Host>(sched: &Sched<H>, waker: Waker, found: &mut GList<H>) {
    match cell_of(&waker) {
        Some(cell) => cell.wake_by(|waiter| {
            // There is one host.
            let ours = (found as &mut dyn Any).downcast_mut::<GList<Active>>();
            match (waiter.g(), ours) {
                (Some(g), Some(found)) if g.home().as_ptr().cast::<()>() == (&raw const *sched).cast() => {
                    if g.word.ready() == Then::Queue {
                        // SAFETY: the wait was claimed, and `ready` has found the goroutine saved; the caller queues it.
                        unsafe { g.fetch_frames() };
                        found.push(g);
                    }
                }
                _ => waiter.claimed().ready(),
            }
        }),
        // A waker can block, so each waker has a goroutine of its own: with one goroutine for several the others would wait.
        None => caller_of(sched, waker).into_iter().for_each(|g| found.push(g)),
    }
}

/// Returns a goroutine that calls the waker. Returns `None` if there is no stack, or the runtime ends: then a thread calls the
/// waker.
pub(super) fn caller_of<H: Host>(sched: &Sched<H>, waker: Waker) -> Option<GRef<H>> {
    let birth = Birth { name: None, stack_size: sched.config.stack_size, site: Location::caller() };
    let mut call = Call::<H>(Some(waker), PhantomData);
    // If that is refused, the drop of the closure passes the waker on.
    // SAFETY: the body owns all that it uses.
    unsafe { sched.make_detached(false, birth, move || call.arrive()) }.ok()
}

/// The call of a waker on the way to its goroutine. If that goroutine never runs, the drop of this value lets a thread make the
/// call.
struct Call<H: Host>(Option<Waker>, PhantomData<H>);

impl<H: Host> Call<H> {
    fn arrive(&mut self) {
        if let Some(waker) = self.0.take() {
            call::<H>(waker);
        }
    }
}

impl<H: Host> Drop for Call<H> {
    fn drop(&mut self) {
        if let Some(waker) = self.0.take() {
            wake_aside::<H>(vec![waker]);
        }
    }
}

/// Wakes tasks for a caller that may not run the user's code: wakes those in `block_on` here, others by a thread.
pub(crate) fn wake_aside<H: Host>(mut wakers: Vec<Waker>) {
    wakers.retain(|waker| match cell_of(waker) {
        Some(cell) => {
            cell.wake();
            false
        }
        None => true,
    });
    // One call for each waker, so that a waker that blocks does not hold up the others.
    wakers.into_iter().for_each(|waker| run_aside::<H>(move || call::<H>(waker)));
}
