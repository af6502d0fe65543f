//! The tasks that a look at the poller has found: their wakers are collected under the table's lock, and called after that.

use super::{Waker, call};
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
    /// that wait in `block_on` are appended to `found`, as those are that wait for the descriptor; and one more, of the
    /// library, that calls the wakers of others.
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

fn wake_all<H: Host>(sched: &Sched<H>, wakers: impl IntoIterator<Item = Waker>, found: &mut GList<H>) {
    let mut foreign = Vec::new();
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
            None => foreign.push(waker),
        }
    }
    if !foreign.is_empty() {
        found.append(&mut caller_of(sched, foreign));
    }
}

/// A goroutine that calls wakers, or none: without a stack, and when the runtime ends, a thread calls them.
pub(super) fn caller_of<H: Host>(sched: &Sched<H>, wakers: Vec<Waker>) -> GList<H> {
    let birth = Birth { name: None, stack_size: sched.config.stack_size, site: Location::caller() };
    let mut calls = Calls::<H>(wakers, PhantomData);
    // SAFETY: the body owns what it uses.
    match unsafe { sched.make_counting(false, birth, move || calls.arrive()) } {
        Ok(g) => {
            g::drop_handle(g);
            GList::one(g)
        }
        // The drop of the closure has seen to the wakers.
        Err(_refused) => GList::new(),
    }
}

/// Calls of wakers on the way to their goroutine. If that never runs, the drop has a thread make the calls.
struct Calls<H: Host>(Vec<Waker>, PhantomData<H>);

impl<H: Host> Calls<H> {
    fn arrive(&mut self) {
        while let Some(waker) = self.0.pop() {
            call::<H>(waker);
        }
    }
}

impl<H: Host> Drop for Calls<H> {
    fn drop(&mut self) {
        wake_aside::<H>(std::mem::take(&mut self.0));
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
    if !wakers.is_empty() {
        H::run_aside(move || wakers.into_iter().for_each(call::<H>));
    }
}
