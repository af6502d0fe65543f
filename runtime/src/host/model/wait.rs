//! A wait in a model's own protocol: [`park`] parks as every blocking operation of gmp does.

use super::ModelHost;
use crate::sched::park::{Commit, WaitReason};
use crate::wait::waiter::{self, How, Woke};

/// A goroutine or thread in one of its waits, as [`park`] hands it to `publish`.
#[derive(Clone)]
pub struct Waiter(waiter::Waiter<ModelHost>);

impl Waiter {
    /// Returns `true` if the caller has won the right, and the duty, to call [`ready`](Self::ready); `false`, without any
    /// effect, if another was first or the wait is over.
    #[must_use]
    pub fn claim(&self) -> bool {
        self.0.claim()
    }

    /// Lets the owner go on. Only after a won claim.
    pub fn ready(self) {
        self.0.claimed().ready();
    }

    /// Claims the wait and readies its owner. Returns `false` if another waker was first.
    pub fn wake(self) -> bool {
        self.0.wake()
    }
}

/// How [`park`] ended.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Parked {
    /// A waker has claimed the wait and readied it.
    Readied,
    /// `publish` refused, and the wait was not published.
    Refused,
}

/// Parks the calling goroutine, or thread, as every blocking operation of gmp does. `publish` puts the [`Waiter`]
/// where wakers find it, most often by unlocking a queue; it runs on the M when the caller's context is saved. If
/// `publish` returns `false`, the caller is not parked.
pub fn park(publish: impl FnOnce(Waiter) -> bool) -> Parked {
    let mut wait = waiter::Wait::<ModelHost>::begin();
    let waiter = Waiter(wait.waiter());
    let commit = move || if publish(waiter) { Commit::Park } else { Commit::Refuse };
    match wait.park(How::new(WaitReason::Model), commit) {
        Woke::Readied => Parked::Readied,
        Woke::Refused => Parked::Refused,
        woke => unreachable!("park: nobody interrupts a model's own wait ({woke:?})"),
    }
}
