//! The tasks that a look at the poller has found: their wakers are collected under the table's lock, and called after that.

use super::{Waker, call, discard};
use crate::g::list::GList;
use crate::g::{self, Birth};
use crate::goroutine::waker::cell_of;
use crate::host::{Active, Host};
use crate::sched::Sched;
use crate::wait::status::Then;
use std::any::Any;
use std::marker::PhantomData;
use std::panic::Location;

/// Wakers to be called. Most looks find none, or one; programs without tasks pay for the mark that there are none.
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

    /// Wakes the tasks, on an M that is in the scheduler, or on the monitor, with none of our locks held. Goroutines of `sched`
    /// that wait in `block_on` are appended to `found`, as those are that wait for the descriptor; and for each other waker one
    /// of the library's, that calls it.
    #[inline(always)]
    pub(crate) fn wake<H: Host>(self, sched: &Sched<H>, found: &mut GList<H>) {
        if !matches!(self, FoundTasks::None) {
            self.wake_some(sched, found);
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_some<H: Host>(self, sched: &Sched<H>, found: &mut GList<H>) {
        match self {
            FoundTasks::None => {}
            FoundTasks::One(waker) => wake_all(sched, [waker], found),
            FoundTasks::Many(wakers) => wake_all(sched, wakers, found),
        }
    }
}

/// Wakers that are not called any more. The drop discards them: the value stands outside of the locks, and of what a waker's
/// drop may wait for.
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
        match std::mem::replace(&mut self.0, FoundTasks::None) {
            FoundTasks::None => {}
            FoundTasks::One(waker) => discard::<H>(Some(waker)),
            FoundTasks::Many(wakers) => wakers.into_iter().for_each(|waker| discard::<H>(Some(waker))),
        }
    }
}

fn wake_all<H: Host>(sched: &Sched<H>, wakers: impl IntoIterator<Item = Waker>, found: &mut GList<H>) {
    for waker in wakers {
        match cell_of(&waker) {
            Some(cell) => cell.wake_by(|waiter| {
                // There is one host.
                let ours = (found as &mut dyn Any).downcast_mut::<GList<Active>>();
                match (waiter.g(), ours) {
                    (Some(g), Some(found))
                        if g.home().as_ptr().cast::<()>() == (&raw const *sched).cast() =>
                    {
                        if g.word.ready() == Then::Queue {
                            // SAFETY: the wait was claimed, and `ready` has found the goroutine saved; the caller
                            // queues it.
                            unsafe { g.fetch_frames() };
                            found.push(g);
                        }
                    }
                    _ => waiter.ready(),
                }
            }),
            // A waker may block: one goroutine for several would have the others wait for that.
            None => found.append(&mut caller_of(sched, waker)),
        }
    }
}

/// A goroutine that calls the waker, or none: without a stack, and when the runtime ends, a thread calls it.
pub(super) fn caller_of<H: Host>(sched: &Sched<H>, waker: Waker) -> GList<H> {
    let birth = Birth { name: None, stack_size: sched.config.stack_size, site: Location::caller() };
    let mut call = Call::<H>(Some(waker), PhantomData);
    // SAFETY: the body owns what it uses.
    match unsafe { sched.make_counting(false, birth, move || call.arrive()) } {
        Ok(g) => {
            g::drop_handle(g);
            GList::one(g)
        }
        // The drop of the closure has seen to the waker.
        Err(_refused) => GList::new(),
    }
}

/// The call of a waker on the way to its goroutine. If that never runs, the drop has a thread make the call.
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

/// Wakes tasks from where no user's code may run: those in `block_on` here, others by a thread.
pub(crate) fn wake_aside<H: Host>(mut wakers: Vec<Waker>) {
    wakers.retain(|waker| match cell_of(waker) {
        Some(cell) => {
            cell.wake();
            false
        }
        None => true,
    });
    // Each by itself: one that blocks holds up no other.
    wakers.into_iter().for_each(|waker| H::run_aside(move || call::<H>(waker)));
}
