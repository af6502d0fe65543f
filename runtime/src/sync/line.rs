//! Standing in line: what the types of this folder share.
//!
//! A [`Line`] lies in a state under a `prim::Mutex`. Who has to wait queues a record that lies on its own stack, and the
//! lock is let go once it is saved ([`stand`]). Whoever has something to give *calls*: takes the first record out under the
//! lock, claims its wait, and readies it after the lock.
//!
//! Exactly one of these ends a wait:
//! * it was called: what the caller has written into the record or the state is the owner's;
//! * its time limit, or an interrupt, claimed it first. Then no call can be won any more, and [`stand`] returns with the
//!   lock held and the record out of the line: the owner passes on, under that lock, what its place held back.
//!
//! Who can't be called was interrupted, timed out, or left behind by its runtime: it is the next one's turn. One who is left
//! behind does not come to leave the line; others do it for it ([`Lines::settle`]), as its debt.

use crate::host::Active;
use crate::prim::{Mutex, MutexGuard};
use crate::sched::park::Commit;
use crate::wait::debt::Debt;
use crate::wait::interrupt::Interrupt;
use crate::wait::queue::{Node, Queue};
use crate::wait::waiter::{How, Wait, Waiter, Woke};
use std::cell::Cell;
use std::ptr::NonNull;

/// One who stands in line, and what for.
#[repr(C)]
pub(super) struct Record<W> {
    debt: Debt,
    pub(super) want: W,
    waiter: Waiter<Active>,
    called: Cell<bool>,
}

/// Those who wait, first come first served.
pub(super) struct Line<W>(Queue<Record<W>>);

impl<W> Line<W> {
    pub(super) const fn new() -> Self {
        Line(Queue::new())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().count()
    }

    /// What the first one wants who might be called. Takes out those before it who can't be.
    pub(super) fn first(&mut self) -> Option<&W> {
        while let Some(first) = self.0.front() {
            // SAFETY: the line is locked, and it stands there.
            let record = unsafe { &first.as_ref().value };
            if record.waiter.is_open() {
                return Some(&record.want);
            }
            self.0.pop_front();
        }
        None
    }

    /// Calls the first one who can be; `called` readies it later.
    pub(super) fn call<'a>(&mut self, called: &'a mut Called<W>) -> Option<&'a Record<W>> {
        self.call_if(called, |_want| true)
    }

    /// The same, if what that one wants is right; nobody is called before it.
    pub(super) fn call_if<'a>(
        &mut self,
        called: &'a mut Called<W>,
        right: impl Fn(&W) -> bool,
    ) -> Option<&'a Record<W>> {
        while self.first().is_some_and(&right) {
            let first = self.0.pop_front()?;
            // SAFETY: as in `first`. Once it is claimed it stays, until it is readied.
            let record = unsafe { &first.as_ref().value };
            if record.waiter.claim() {
                record.called.set(true);
                // SAFETY: it stands in no queue, and stays until it is taken out of this one and readied.
                unsafe { called.0.push_back(first) };
                return Some(record);
            }
        }
        None
    }

    /// Calls everybody, and says how many that were.
    pub(super) fn call_all(&mut self, called: &mut Called<W>) -> usize {
        std::iter::from_fn(|| self.call(called).map(|_record| ())).count()
    }
}

/// Those who were called and do not know yet.
#[must_use]
pub(super) struct Called<W>(Queue<Record<W>>);

impl<W> Called<W> {
    pub(super) fn new() -> Self {
        Called(Queue::new())
    }

    /// Lets them go on. After the lock.
    pub(super) fn ready(mut self) {
        while let Some(first) = self.0.pop_front() {
            // SAFETY: its wait is claimed, so it stays until it is readied.
            unsafe { &first.as_ref().value }.waiter.ready();
        }
    }
}

/// Where to stand.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Place {
    Front,
    Back,
}

/// A state with a line in it.
pub(super) trait Lines {
    type Want;
    /// The line of those who want this.
    fn line(&mut self, want: &Self::Want) -> &mut Line<Self::Want>;
    /// One who wanted this was left behind by its runtime. `called`: what it was called to is to be passed on; otherwise, what
    /// its place held back. By default nothing is.
    fn settle(_want: &Self::Want, _called: bool) {}
}

/// # Safety
/// `debt` is that of a record of a line of `S`, whose owner never runs again.
unsafe fn pay<S: Lines>(debt: *const Debt) {
    // SAFETY: by this function's contract. The record lies on a stack that is left as it is.
    let record = unsafe { &*debt.cast::<Record<S::Want>>() };
    S::settle(&record.want, record.called.get());
}

/// Left the line without having been called.
pub(super) struct Left<'a, S> {
    /// The lock of the line. Under it, the owner passes on what it held back.
    pub(super) state: MutexGuard<'a, S>,
    /// Nothing: the time limit.
    pub(super) by: Option<Interrupt>,
}

/// Stands in line until called. `state` is the guard of `lock`, taken after `wait` began. Gives back what was wanted, with
/// what the caller has written there.
pub(super) fn stand<'a, S: Lines>(
    mut wait: Wait<Active>,
    lock: &'a Mutex<S>,
    mut state: MutexGuard<'a, S>,
    (want, place): (S::Want, Place),
    how: How,
) -> Result<S::Want, Left<'a, S>> {
    let debt = Debt::new(pay::<S>);
    let record = Node::new(Record { debt, want, waiter: wait.waiter(), called: Cell::new(false) });
    let node = NonNull::from(&record);
    wait.owes((&raw const record.value).cast());
    let line = &mut state.line(&record.value.want).0;
    // SAFETY: it is taken out below, or was by whoever has claimed the wait, before this frame goes.
    unsafe {
        match place {
            Place::Front => line.insert_before(node, line.front()),
            Place::Back => line.push_back(node),
        }
    }
    let woke = wait.park(how, move || {
        drop(state);
        Commit::Park
    });
    wait.owes(std::ptr::null());
    if record.value.called.get() {
        return Ok(record.value.want);
    }
    let mut state = lock.lock();
    // SAFETY: it stands in this line, or somebody has found it claimed and taken it out.
    unsafe { state.line(&record.value.want).0.remove(node) };
    let by = match woke {
        Woke::Interrupted(why) => Some(why),
        _ => None,
    };
    Err(Left { state, by })
}
