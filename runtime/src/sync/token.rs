//! The token that [`park`](crate::park) takes and [`Unparker::unpark`](crate::Unparker::unpark) gives.
//!
//! The token lies under the lock of a wait queue. A giver notifies the waiter, or leaves the token; so a token that is given
//! before the wait ends the wait at once. The token is left only if no waiter can be notified, so a waiter that times out or is
//! interrupted leaves the token for the next wait.
//!
//! Checked by `models/token.rs`.

use crate::host::Active;
use crate::prim::hooks::*;
use crate::prim::{Arc, Mutex, Rank};
use crate::sched::park::WaitReason;
use crate::sync::wait_queue::{HasWaitQueue, Position, WaitQueue, wait_in};
use crate::wait::waiter::{How, Wait};
use gmp_timers::Nanos;

pub(crate) struct Token(Mutex<State>);

struct State {
    given: bool,
    /// The owner, while it waits.
    waiters: WaitQueue<()>,
}

impl HasWaitQueue for State {
    type Want = ();
    fn waiters(&mut self, _want: &()) -> &mut WaitQueue<()> {
        &mut self.waiters
    }
}

impl Token {
    pub(crate) fn new() -> Self {
        Token(Mutex::new(Rank::WaitQueue, State { given: false, waiters: WaitQueue::new() }))
    }

    /// Waits for the token, until `until` at most, and takes the token. Returns `false` if the token did not come by then. An
    /// interrupt unwinds. The caller's `Arc` is dropped here: a throw stops at each frame that has a value to drop.
    pub(crate) fn park(self: Arc<Self>, until: Option<Nanos>) -> bool {
        let wait = Wait::begin();
        let mut state = self.0.lock();
        if std::mem::take(&mut state.given) {
            drop(state);
            wait.withdraw();
            return true;
        }
        let how = How::new(WaitReason::Park).until(until);
        let waited = wait_in(wait, &self.0, state, ((), Position::Back), how).map_err(|left| left.by);
        match waited {
            Ok(()) => true,
            Err(by) => {
                drop(self);
                by.is_some_and(|interrupt| interrupt.throw::<Active>())
            }
        }
    }

    /// Gives the token, if it is not there already.
    pub(crate) fn unpark(&self) {
        let mut state = self.0.lock();
        mutant!(TokenGoesWithTheWait: keep queued = !state.waiters.is_empty());
        let notified = state.waiters.notify_one();
        if notified.is_none() {
            mutant!(TokenGoesWithTheWait: if queued == Some(true) { return });
            unless!(TokenNotKept, state.given = true);
        }
        mutant!(TokenGivenTwice: state.given = true);
        drop(state);
        if let Some(waiter) = notified {
            waiter.ready();
        }
    }
}
