//! Who waits: what stands in a queue, and how it is woken.
//!
//! A [`Waiter`] names a goroutine or a plain thread together with the number of its wait. Whoever finds one in a
//! queue claims it; exactly one claim of a wait wins, and the winner must ready it. Nobody else may touch the
//! record's other fields, except under the lock of the queue in which it was found.
//!
//! Only the owner unlinks its records, so a record may lie on its owner's stack. What keeps the memory behind a
//! Waiter mapped: a G is type-stable as long as its pool lives (`g.rs`, invariant 3), and a parked G's pool
//! lives; a thread's parker is counted. A claim under an old number fails and touches nothing else.
//!
//! A [`Wait`] is the owner's side: it opens the wait, gives out its Waiter, and blocks the caller, a goroutine
//! or a thread, until it was readied:
//!
//! ```text
//! let wait = Wait::begin();            // the number is drawn
//! let mut queue = lock.lock();         // … the lock is held …
//! queue.push(wait.waiter());
//! wait.park(reason, move || { drop(queue); Commit::Park });   // the M unlocks, after the save
//! ```
//!
//! A task's `Waker` will be the third kind, beside these two, for whoever awaits a goroutine.

use crate::g::GRef;
use crate::host::Host;
use crate::m::Window;
use crate::note::Note;
use crate::prim::Arc;
use crate::sched::park::{Commit, WaitReason};
use crate::sched::{park, wake};
use crate::status::{Run, Status, StatusWord, Then, WaitNumber, Woke};

/// Where a plain thread waits: its claim word, and the note it sleeps on.
pub(crate) struct Parker<H: Host> {
    word: StatusWord,
    note: Note<H>,
}

impl<H: Host> Parker<H> {
    fn new() -> Arc<Self> {
        let word = StatusWord::new(Status::Idle);
        word.spawn();
        // A thread is never in a run queue; it counts as running from the start, also while it sleeps.
        let ran = word.run();
        debug_assert_eq!(ran, Run::Go);
        Arc::new(Parker { word, note: Note::new() })
    }
}

/// Who waits, and in which of its waits.
pub(crate) enum Waiter<H: Host> {
    /// A goroutine.
    G(GRef<H>, WaitNumber),
    /// A thread outside of any runtime.
    Thread(Arc<Parker<H>>, WaitNumber),
}

impl<H: Host> Clone for Waiter<H> {
    fn clone(&self) -> Self {
        match self {
            Waiter::G(g, number) => Waiter::G(*g, *number),
            Waiter::Thread(parker, number) => Waiter::Thread(Arc::clone(parker), *number),
        }
    }
}

impl<H: Host> Waiter<H> {
    /// True for the one who wins the right, and the duty, to call `ready`.
    #[must_use]
    pub(crate) fn claim(&self) -> bool {
        match self {
            Waiter::G(g, number) => g.word.claim(*number),
            Waiter::Thread(parker, number) => parker.word.claim(*number),
        }
    }

    /// Lets the owner go on. Only after a won `claim`.
    pub(crate) fn ready(self) {
        match self {
            Waiter::G(g, _) => wake::goready(g),
            Waiter::Thread(parker, _) => {
                let then = parker.word.ready();
                debug_assert_eq!(then, Then::Leave, "a thread is in no run queue");
                parker.note.wake();
            }
        }
    }

    /// Claims and readies. False when somebody else was first.
    pub(crate) fn wake(self) -> bool {
        let won = self.claim();
        if won {
            self.ready();
        }
        won
    }
}

/// One wait of the caller, from its opening to its end.
pub(crate) enum Wait<H: Host> {
    /// On a goroutine, inside the runtime.
    G(Window<H>, WaitNumber),
    /// On a plain thread.
    Thread(Arc<Parker<H>>, WaitNumber),
}

impl<H: Host> Wait<H> {
    /// Opens a wait of the caller, whichever it is.
    pub(crate) fn begin() -> Self {
        match Window::enter() {
            Some(window) => {
                let number = window.g().word.begin_wait();
                Wait::G(window, number)
            }
            None => {
                let parker = Parker::new();
                let number = parker.word.begin_wait();
                Wait::Thread(parker, number)
            }
        }
    }

    /// The record's part that others claim.
    pub(crate) fn waiter(&self) -> Waiter<H> {
        match self {
            Wait::G(window, number) => Waiter::G(window.g(), *number),
            Wait::Thread(parker, number) => Waiter::Thread(Arc::clone(parker), *number),
        }
    }

    /// Blocks the caller until its Waiter was readied, or `commit` refuses. `commit` publishes the Waiter, most
    /// often by unlocking its queue; it runs when the caller can be resumed, on the M.
    pub(crate) fn park(self, reason: WaitReason, commit: impl FnOnce() -> Commit) -> Woke {
        match self {
            Wait::G(window, number) => park::gopark(window, number, reason, commit),
            Wait::Thread(parker, number) => {
                match commit() {
                    Commit::Park => parker.note.sleep(),
                    Commit::Refuse => {}
                }
                parker.word.end_wait(number)
            }
        }
    }

    /// Gives the wait up before it was published.
    pub(crate) fn withdraw(self) {
        match self {
            Wait::G(window, number) => {
                let woke = window.g().word.end_wait(number);
                debug_assert_eq!(woke, Woke::Refused, "withdraw: somebody knew the wait");
            }
            Wait::Thread(..) => {}
        }
    }
}
