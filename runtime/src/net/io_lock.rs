//! The I/O lock: one direction of a socket belongs to one goroutine or thread at a time, in the order in which they came
//! (Go's fdMutex).
//!
//! ```text
//!   Free ⇄ Held ⇄ Queued        word: 0 · 1 · 2
//! ```
//! Free ⇄ Held is one exchange on either side. Whoever comes second locks the queue, moves Held to Queued and waits
//! there; the holder, whose exchange Held → Free then fails, locks the queue too and hands the lock to the first in
//! it. The word is Queued as long as a record is queued, so nobody overtakes.
//!
//! Waiting for an I/O lock is a wait like any other: a time limit, a close, a deadline that was moved, a context end it.
//! Whoever leaves the queue without the lock takes its record out, and moves Queued back to Held when it was the last, so
//! that the holder need not look.
//! An I/O lock is handed only to a waiter whose wait could be claimed, so none gets it that has given up. A waiter that was
//! woken by a time limit which has moved on meanwhile keeps its place, under the number of a new wait; had a hand-over
//! passed it by in between, it waits at the front.
//!
//! A holder that *rests* has its I/O lock and is in no system call: it is parked, or about to look whether it may go on.
//!
//! ```text
//!   holder:  H1 it has the lock; resting := false · H2 IoLockFence · H3 closed?  leave : system calls
//!   closer:  C1 closed := true                    · C2 SocketFence · C3 Free, or resting?  on : wait for the lock, in front
//! ```
//! One of the fences comes first: H3 sees C1, or C3 sees H1 and the closer gets the lock when the system call is over.
//! So a close waits for system calls and threads in `poll(2)`, and for no goroutine that sleeps, or that waits for a P.
//!
//! A goroutine notes the I/O lock that it holds in its G. When its runtime ends and leaves it parked in the middle of an
//! operation, the lock is released for it, so that the socket lives on for others.
//!
//! Invariants: `resting` is false while the word is Free, and set for whoever is handed the lock. A record's fields are
//! touched under the queue's lock, or after a won claim.
//!
//! Checked by `models/io_lock.rs`.

use crate::g::GRef;
use crate::host::Host;
use crate::m::M;
use crate::prim::hooks::*;
use crate::prim::{
    AcqRel, Acquire, AtomicBool, AtomicU32, Mutex, Ordering, Rank, Relaxed, Release, UnsafeCell, fence,
    fence_after_exchange,
};
use crate::sched::park::{Commit, WaitReason};
use crate::wait::abandon::AbandonHook;
use crate::wait::interrupt::{Interrupt, OnInterrupt};
use crate::wait::queue::{Node, Queue};
use crate::wait::waiter::{How, UpgradedWaiter, Wait, Waiter, Woke};
use gmp_timers::Nanos;
use std::ptr::NonNull;

const FREE: u32 = 0;
const HELD: u32 = 1;
const QUEUED: u32 = 2;

/// One that waits for the lock.
struct Record<H: Host> {
    waiter: UnsafeCell<Waiter<H>>,
    /// Written by whoever has claimed the wait, read by its owner afterwards.
    handed: UnsafeCell<bool>,
}

type Waiters<H> = Queue<Record<H>>;

/// The lock of one direction.
#[repr(C)]
pub(crate) struct IoLock<H: Host> {
    hook: AbandonHook,
    word: AtomicU32,
    resting: AtomicBool,
    waiters: Mutex<Waiters<H>>,
}

/// Why somebody does not get the lock.
#[derive(Debug)]
pub(crate) enum Denied<E> {
    /// What its look says.
    Look(E),
    /// It was interrupted, and has left the queue.
    Interrupted(Interrupt),
}

/// The caller has the lock; dropping this hands it on.
pub(crate) struct Holder<'a, H: Host> {
    io_lock: &'a IoLock<H>,
    /// The goroutine that holds it, if it is one.
    g: Option<GRef<H>>,
}

/// How the lock was got.
enum Got {
    Free,
    Handed,
}

impl<H: Host> IoLock<H> {
    pub(crate) fn new() -> Self {
        IoLock {
            hook: AbandonHook::new(Self::give_up),
            word: AtomicU32::new(FREE),
            resting: AtomicBool::new(false),
            waiters: Mutex::new(Rank::IoLock, Queue::new()),
        }
    }

    /// Blocks the calling goroutine or thread until it has the I/O lock, or until `look` gives an error. `look` also tells
    /// until when to wait; it is asked again after each `nudge`, and runs under the queue's lock. Who has the lock looks
    /// once more before its system call.
    pub(crate) fn take<E>(
        &self,
        look: impl Fn() -> Result<Option<Nanos>, E>,
    ) -> Result<Holder<'_, H>, Denied<E>> {
        let g = M::current().and_then(M::g);
        // Acquire: what the last holder did in this direction: partners `pass` and `hand_over`. For loom, IoLockFence says as
        // much.
        let got = match self.word.compare_exchange(FREE, HELD, Acquire, Relaxed) {
            Ok(_) => Got::Free,
            Err(_) => self.wait_in_queue(&look)?,
        };
        let holder = Holder { io_lock: self, g };
        match got {
            Got::Free => {
                // IoLockFence. SeqCst: a store of the word, then a load of what was changed; partner: `socket_fence`.
                unless!(IoLockTakeNoFence, fence_after_exchange());
                if let Some(g) = g {
                    self.note_holder(g);
                }
            }
            Got::Handed => holder.go_on(),
        }
        Ok(holder)
    }

    /// Notes which goroutine holds the lock, for the end of the runtime.
    fn note_holder(&self, g: GRef<H>) {
        // Relaxed: read with the goroutine's wait claimed, or by itself.
        g.on_abandon.store((&raw const *self).cast_mut().cast(), Relaxed);
    }

    #[cold]
    fn wait_in_queue<E>(&self, look: &impl Fn() -> Result<Option<Nanos>, E>) -> Result<Got, Denied<E>> {
        let mut wait = Wait::begin();
        let record =
            Node::new(Record { waiter: UnsafeCell::new(wait.waiter()), handed: UnsafeCell::new(false) });
        let node = NonNull::from(&record);
        let mut waiters = self.waiters.lock();
        let mut again = false;
        loop {
            let until = match look() {
                Ok(until) => until,
                Err(denied) => {
                    self.leave(&mut waiters, node);
                    drop(waiters);
                    wait.withdraw();
                    return Err(Denied::Look(denied));
                }
            };
            if !waiters.contains(node) {
                if self.is_free_after_all() {
                    drop(waiters);
                    wait.withdraw();
                    return Ok(Got::Free);
                }
                // SAFETY: it stands in no queue; it leaves this one below, or was taken out by whoever has claimed the
                // wait, before this frame goes.
                unsafe { if again { waiters.push_front(node) } else { waiters.push_back(node) } }
            }
            if again {
                let waiter = wait.waiter();
                // SAFETY: under the lock.
                record.value.waiter.with_mut(|slot| unsafe { *slot = waiter });
            }
            let how = How::new(WaitReason::IoLock).until(until).ends(OnInterrupt::Returning).looking();
            mutant!(IoLockWaitersMasked: let how = How { looks: false, ..how });
            match wait.park(how, move || {
                drop(waiters);
                Commit::Park
            }) {
                // By a hand-over, or the time limit.
                Woke::Readied => {}
                // Somebody may be faster; then as above.
                Woke::Nudged => {
                    let _mine = wait.claim();
                }
                Woke::Interrupted(why) => {
                    self.leave(&mut self.waiters.lock(), node);
                    return Err(Denied::Interrupted(why));
                }
                Woke::Refused => unreachable!("wait_in_queue: the hook does not refuse"),
            }
            // SAFETY: the wait is over; whoever has claimed it wrote before it readied us.
            if record.value.handed.with(|handed| unsafe { *handed }) {
                return Ok(Got::Handed);
            }
            again = true;
            drop(wait);
            wait = Wait::begin();
            waiters = self.waiters.lock();
        }
    }

    /// Under the lock, the queue being empty or the word Queued: makes it Queued, or takes the lock (true).
    fn is_free_after_all(&self) -> bool {
        loop {
            // Under the lock the word leaves Queued only by us; Free and Held change without it.
            match self.word.compare_exchange(HELD, QUEUED, Relaxed, Relaxed) {
                Ok(_) | Err(QUEUED) => return false,
                Err(_) => {
                    // Acquire: as in `take`, with the same partners.
                    if self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok() {
                        return true;
                    }
                }
            }
        }
    }

    /// Under the lock: takes the record out, if it still stands there. The last one has nobody wait.
    fn leave(&self, waiters: &mut Waiters<H>, node: NonNull<Node<Record<H>>>) {
        // SAFETY: the record is the caller's, and stands in this queue or in none.
        let stood = unsafe { waiters.remove(node) };
        if stood && waiters.is_empty() {
            // Only to spare the holder a look at the empty queue. Relaxed: nobody has to be told.
            let was = self.word.compare_exchange(QUEUED, HELD, Relaxed, Relaxed);
            debug_assert!(was.is_ok(), "leave: the word of a line is Queued ({was:?})");
        }
    }

    #[cold]
    fn hand_over(&self) {
        let mut waiters = self.waiters.lock();
        let next = loop {
            match waiters.pop_front() {
                Some(first) => {
                    mutant!(IoLockNoHandOver: continue);
                    // SAFETY: it stood in the queue, whose lock is held.
                    let record = unsafe { &first.as_ref().value };
                    // SAFETY: as above; the copy outlives the record.
                    let waiter = record.waiter.with(|waiter| unsafe { (*waiter).clone() });
                    if may_be_handed(&waiter) {
                        // SAFETY: the claim was won, so the owner does not leave before the `ready` below.
                        record.handed.with_mut(|handed| unsafe { *handed = true });
                        break Some(waiter);
                    }
                }
                None => break None,
            }
        };
        if let Some(Waiter::G(g, _)) = &next {
            self.note_holder(*g);
        }
        // Relaxed: who takes the lock, or looks for a rest, comes after the word's Release, or the lock.
        self.resting.store(next.is_some(), Relaxed);
        let word = match (&next, waiters.is_empty()) {
            (Some(_), false) => QUEUED,
            (Some(_), true) => HELD,
            (None, _) => FREE,
        };
        mutant!(IoLockForgetsTheRest: let word = if word == QUEUED { HELD } else { word });
        // Release: partner `take`. With somebody claimed the lock is not free in between.
        self.word.store(word, Release);
        drop(waiters);
        if let Some(next) = next {
            mutant!(IoLockHandedBlindly: if !next.claim() { return });
            next.ready();
        }
    }

    fn pass(&self) {
        // Release: the next holder sees what was done in this direction: partner `take`.
        if self.word.compare_exchange(HELD, FREE, Release.unless(IoLockPassRelaxed), Relaxed).is_err() {
            self.hand_over();
        }
    }

    /// Nobody has the lock: whoever takes it later sees what the caller wrote before its fence (`socket_fence`).
    pub(crate) fn is_free(&self) -> bool {
        // Acquire: what the last holder did: partners `pass` and `hand_over`.
        self.word.load(Acquire) == FREE
    }

    /// Nudges every waiter.
    pub(crate) fn nudge_waiters(&self) {
        let waiters = self.waiters.lock();
        let kept: Vec<UpgradedWaiter<H>> = waiters
            .iter()
            // SAFETY: they stand in the queue, whose lock is held.
            .map(|node| unsafe { node.as_ref() }.value.waiter.with(|waiter| unsafe { (*waiter).upgrade() }))
            .collect();
        drop(waiters);
        // Not under the lock: what is kept may be the last of a runtime.
        kept.iter().for_each(UpgradedWaiter::nudge);
    }

    /// C3: blocks the closer until no system call is under way in this direction. It has marked, and fenced, before.
    pub(crate) fn wait_idle(&self) {
        let mut wait = Wait::begin();
        let record =
            Node::new(Record { waiter: UnsafeCell::new(wait.waiter()), handed: UnsafeCell::new(false) });
        let mut waiters = self.waiters.lock();
        loop {
            // Acquire: what was done in the last system call: partners `pass` and `hand_over`.
            match self.word.compare_exchange(HELD, QUEUED, Relaxed, Acquire) {
                Err(FREE) => {
                    drop(waiters);
                    return wait.withdraw();
                }
                Ok(_) | Err(QUEUED) => break,
                Err(_) => {}
            }
        }
        // Acquire: partner `rest`.
        let rests = self.resting.load(Acquire.unless(IoLockRestLooksRelaxed));
        mutant!(IoLockCloserDoesNotWait: let rests = true);
        if rests {
            if waiters.is_empty() {
                let _was_queued = self.word.compare_exchange(QUEUED, HELD, Relaxed, Relaxed);
            }
            drop(waiters);
            return wait.withdraw();
        }
        let node = NonNull::from(&record);
        // SAFETY: it stands in no queue, and is taken out by whoever hands the lock over, before this frame goes.
        unsafe { waiters.push_front(node) };
        let handed = wait.park(How::new(WaitReason::IoLock).ends(OnInterrupt::Never), move || {
            drop(waiters);
            Commit::Park
        });
        debug_assert!(handed == Woke::Readied, "wait_idle: {handed:?}");
        // Nobody makes a system call any more: the lock goes on at once.
        drop(Holder { io_lock: self, g: M::current().and_then(M::g) });
    }

    /// Releases the lock of a goroutine that will not run again.
    ///
    /// # Safety
    /// `hook` is an I/O lock's.
    unsafe fn give_up(hook: *const AbandonHook) {
        mutant!(IoLockLeftBehind: return);
        // SAFETY: by this function's contract. The lock lies in a socket that the goroutine borrows, and it is left in
        // the middle of that borrow, which therefore never ends.
        let io_lock = unsafe { &*hook.cast::<Self>() };
        // Relaxed: as in `Holder::drop`.
        io_lock.resting.store(false, Relaxed);
        io_lock.pass();
    }
}

impl<H: Host> Holder<'_, H> {
    /// The system calls are over for now; the holder is about to wait.
    pub(crate) fn rest(&self) {
        // Release: partner `wait_idle`: what was done in them comes before the descriptor is closed.
        self.io_lock.resting.store(true, Release.unless(IoLockRestRelaxed));
    }

    /// H1 and IoLockFence: after a rest. The holder looks before its next system call.
    pub(crate) fn go_on(&self) {
        // An exchange, so that IoLockFence costs nothing more. AcqRel: on x86 it stands for H2
        // (`fence_after_exchange`), whose partner is SocketFence; where a fence follows nothing rests on it.
        self.io_lock.resting.swap(false, AcqRel);
        // SeqCst: partner SocketFence.
        unless!(IoLockGoesOnNoFence, fence_after_exchange());
    }
}

impl<H: Host> Drop for Holder<'_, H> {
    fn drop(&mut self) {
        if let Some(g) = self.g {
            // Relaxed: this goroutine runs, so nobody else looks.
            g.on_abandon.store(std::ptr::null_mut(), Relaxed);
        }
        if self.io_lock.resting.load(Relaxed) {
            // Relaxed: before the word's Release.
            self.io_lock.resting.store(false, Relaxed);
        }
        self.io_lock.pass();
    }
}

/// Claims the wait of the one that is to be the next holder.
fn may_be_handed<H: Host>(waiter: &Waiter<H>) -> bool {
    mutant!(IoLockHandedBlindly: return true);
    waiter.claim()
}

/// SocketFence: between what the caller has changed, closed or a deadline, and its look at who is to see it.
pub(crate) fn socket_fence() {
    // SeqCst: partner IoLockFence; and in `wake_fd.rs` each other's.
    fence(Ordering::SeqCst.unless(SocketNoFence));
}
