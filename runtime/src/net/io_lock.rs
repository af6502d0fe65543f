//! The I/O lock: one direction of a socket belongs to one goroutine or thread at a time, in the order in which they came
//! (Go's fdMutex).
//!
//! ```text
//!   Free ⇄ Held ⇄ Queued        word: 0 · 1 · 2
//! ```
//! Free ⇄ Held is one exchange on either side. A second comer locks the queue, moves Held to Queued, and waits in the
//! queue. The holder's exchange Held → Free then fails, and the holder locks the queue too and hands the I/O lock to
//! the first waiter. The word is Queued as long as a record is queued, so no operation overtakes a waiter.
//!
//! A time limit, a close, a moved deadline, and a context end the wait for an I/O lock, as they end any wait. A waiter
//! that leaves the queue without the lock takes its record out. If that was the last record, the waiter moves Queued
//! back to Held, so that the holder need not lock the queue. An I/O lock is handed only to a waiter whose wait was
//! claimed, so never to a waiter that has given up. A waiter woken by a deadline that has since moved keeps its place,
//! under a new wait number. If the lock was handed to a later waiter in between, the woken waiter rejoins the queue at
//! the front.
//!
//! A holder that *rests* has the I/O lock but is in no system call: the holder is parked, or is about to check whether
//! to go on.
//!
//! ```text
//!   holder:  H1 it has the lock; resting := false · H2 IoLockFence · H3 closed?  leave : system calls
//!   closer:  C1 closed := true                    · C2 SocketFence · C3 Free, or resting?  on : wait for the lock, in front
//! ```
//! One of the fences comes first: H3 sees C1, or C3 sees H1 and the closer gets the lock when the system call is
//! over. So a closer waits for system calls and for threads in `poll(2)`, but never for a goroutine that is parked or
//! waits for a P.
//!
//! A goroutine notes the I/O lock that it holds as its abandon hook. If the runtime ends and leaves the goroutine parked in the
//! middle of an operation, the hook releases the lock, so that other runtimes and threads can go on using the socket. A
//! function of the program's may wait, and take and release other locks, whose hooks take the place of this lock's hook: while
//! such a function runs, a standing hook stands for the lock (`apart`). The function may have lent the socket's value to
//! goroutines that run on. So the standing hook notes the descriptor as lent out before it releases the lock, and a closer that
//! then gets the lock leaves the value to the drop of the socket: the frame that was left behind borrows the socket for good.
//!
//! Invariants: `resting` is false while the word is Free, and true when the lock is handed to a waiter, until that
//! waiter goes on. A record's fields are touched under the queue's lock, or after a won claim.
//!
//! Checked by `models/io_lock.rs`.

use crate::g::GRef;
use crate::host::Host;
use crate::m::M;
use crate::net::fd::Users;
use crate::prim::hooks::*;
use crate::prim::{
    AcqRel, Acquire, AtomicBool, AtomicU32, Mutex, Ordering, Rank, Relaxed, Release, UnsafeCell, fence,
    fence_after_exchange,
};
use crate::sched::park::{Commit, WaitReason};
use crate::sched::switch;
use crate::wait::abandon::{AbandonHook, StandingHook};
use crate::wait::interrupt::{Interrupt, OnInterrupt};
use crate::wait::queue::{Node, Queue};
use crate::wait::waiter::{How, UpgradedWaiter, Wait, Waiter, Woke};
use gmp_timers::Nanos;
use std::ptr::NonNull;

const FREE: u32 = 0;
const HELD: u32 = 1;
const QUEUED: u32 = 2;

/// A waiter for the lock.
struct Record<H: Host> {
    waiter: UnsafeCell<Waiter<H>>,
    /// Whether the owner was handed the lock. Written by the holder that has claimed the wait, read by the owner
    /// afterwards.
    handed: UnsafeCell<bool>,
}

impl<H: Host> Record<H> {
    fn of(wait: &Wait<H>) -> Node<Self> {
        Node::new(Record { waiter: UnsafeCell::new(wait.waiter()), handed: UnsafeCell::new(false) })
    }
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

/// Why a waiter did not get the lock.
#[derive(Debug)]
pub(crate) enum Denied<E> {
    /// The error of `look`.
    Look(E),
    /// The waiter was interrupted, and has left the queue.
    Interrupted(Interrupt),
}

/// The caller's hold of the lock. The drop hands the lock to the first waiter, or frees the lock.
pub(crate) struct Holder<'a, H: Host> {
    io_lock: &'a IoLock<H>,
    /// The goroutine that holds the lock; `None` for a plain thread.
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

    /// Blocks the calling goroutine or thread until it has the I/O lock, or until `look` returns an error. `look` also
    /// returns until when to wait; `look` is called again after each nudge, and runs under the queue's lock. A caller
    /// that gets the lock calls `look` once more before its system call.
    #[inline]
    pub(crate) fn take<E>(
        &self,
        look: impl Fn() -> Result<Option<Nanos>, E>,
    ) -> Result<Holder<'_, H>, Denied<E>> {
        let m = M::<H>::current();
        if let Some(m) = m
            && m.bars_windows()
        {
            // Even if the lock is free: a goroutine has one abandon hook, and here that is the hook of the wait that it is in.
            switch::refuse_in_hook(m, "what may park");
        }
        let g = m.and_then(M::g);
        // Acquire: what the last holder did in this direction: partners `pass` and `hand_over`. In loom, IoLockFence orders as
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

    /// Makes the lock the abandon hook of the holding goroutine.
    fn note_holder(&self, g: GRef<H>) {
        // Relaxed: read with the goroutine's wait claimed, or by the goroutine itself.
        g.on_abandon.store((&raw const *self).cast_mut().cast(), Relaxed);
    }

    #[cold]
    #[inline(never)]
    fn wait_in_queue<E>(&self, look: &impl Fn() -> Result<Option<Nanos>, E>) -> Result<Got, Denied<E>> {
        let mut wait = Wait::begin();
        let record = Record::of(&wait);
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
                // SAFETY: the record stands in no queue. Before this frame ends the record is out of this queue:
                // `leave` takes it out below, or the holder that has claimed the wait does.
                unsafe { if again { waiters.push_front(node) } else { waiters.push_back(node) } }
            }
            if again {
                let waiter = wait.waiter();
                // SAFETY: the queue's lock is held.
                record.value.waiter.with_mut(|slot| unsafe { *slot = waiter });
            }
            let how = How::new(WaitReason::IoLock).until(until).ends(OnInterrupt::Returning).looking();
            mutant!(IoLockWaitersMasked: let how = How { looks: false, ..how });
            match wait.park(how, move || {
                drop(waiters);
                Commit::Park
            }) {
                // Woken by a hand-over, or by the time limit.
                Woke::Readied => {}
                // A hand-over, or the time limit, may claim the wait before this does; then as above.
                Woke::Nudged => {
                    let _mine = wait.claim();
                }
                Woke::Interrupted(why) => {
                    self.leave(&mut self.waiters.lock(), node);
                    return Err(Denied::Interrupted(why));
                }
                Woke::Refused => unreachable!("wait_in_queue: the hook does not refuse"),
            }
            // SAFETY: the wait is over; the holder that claimed the wait wrote `handed` before readying this waiter.
            if record.value.handed.with(|handed| unsafe { *handed }) {
                return Ok(Got::Handed);
            }
            again = true;
            drop(wait);
            wait = Wait::begin();
            waiters = self.waiters.lock();
        }
    }

    /// Under the queue's lock, with the queue empty or the word Queued: makes the word Queued, or takes a free lock and
    /// returns `true`.
    fn is_free_after_all(&self) -> bool {
        loop {
            // The word leaves Queued only under the queue's lock, which is held; Free and Held change without that
            // lock.
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

    /// Under the queue's lock: takes the record out, if still there. If no record is left, moves Queued back to Held.
    fn leave(&self, waiters: &mut Waiters<H>, node: NonNull<Node<Record<H>>>) {
        // SAFETY: the record is the caller's, and stands in this queue or in none.
        let stood = unsafe { waiters.remove(node) };
        if stood && waiters.is_empty() {
            // This only spares the holder the lock of an empty queue. Relaxed: nothing is published by it.
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
                    // SAFETY: the record stood in the queue, whose lock is held.
                    let record = unsafe { &first.as_ref().value };
                    // SAFETY: the queue's lock is held, in which the record stood; the copy outlives the record.
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
            unless!(IoLockHandedUnnoted, self.note_holder(*g));
        }
        let rests = next.is_some();
        mutant!(IoLockFreeAtRest: let rests = true);
        // Relaxed: a taker of the lock, or a closer that looks for a rest, comes after the word's Release, or the lock.
        self.resting.store(rests, Relaxed);
        let word = match (&next, waiters.is_empty()) {
            (Some(_), false) => QUEUED,
            (Some(_), true) => HELD,
            (None, _) => FREE,
        };
        mutant!(IoLockForgetsTheRest: let word = if word == QUEUED { HELD } else { word });
        // Release: partner `take`. With a waiter claimed the lock is not free in between.
        self.word.store(word, Release.unless(IoLockHandOverRelaxed));
        drop(waiters);
        if let Some(next) = next {
            mutant!(IoLockHandedBlindly: if !next.claim() { return });
            next.claimed().ready();
        }
    }

    fn pass(&self) {
        // Release: the next holder sees what was done in this direction: partner `take`.
        if self.word.compare_exchange(HELD, FREE, Release.unless(IoLockPassRelaxed), Relaxed).is_err() {
            self.hand_over();
        }
    }

    /// Returns `true` if no operation holds the lock: an operation that takes the lock later sees what the caller wrote
    /// before the caller's `socket_fence`.
    pub(crate) fn is_free(&self) -> bool {
        // Acquire: what the last holder did: partners `pass` and `hand_over`. No model has this: a closer comes to `wait_idle`
        // next, which acquires the same, and a setter of a deadline reads nothing.
        self.word.load(Acquire) == FREE
    }

    /// Calls `f`, a function of the program's, which may wait, and may lend what it is given. The caller holds this lock, and
    /// does not rest; `users` are the socket's.
    pub(crate) fn apart<R>(&self, users: &Users, f: impl FnOnce() -> R) -> R {
        let Some(g) = M::<H>::current().and_then(M::g) else { return f() };
        let stands = Stands { hook: StandingHook::new(Stands::<H>::give_up), io_lock: self, users };
        // Relaxed: as in `note_holder`. One hook releases the lock, and no more than one.
        g.on_abandon.store(std::ptr::null_mut(), Relaxed);
        let _holds_again = HoldsAgain { io_lock: self, g };
        // SAFETY: the hook is the first field of a `Stands`, as `Stands::give_up` expects; `stands` is dropped later.
        let _noted = unsafe { StandingHook::note_here((&raw const stands).cast()) };
        f()
    }

    /// Nudges every waiter.
    pub(crate) fn nudge_waiters(&self) {
        let waiters = self.waiters.lock();
        let kept: Vec<UpgradedWaiter<H>> = waiters
            .iter()
            // SAFETY: the records stand in the queue, whose lock is held.
            .map(|node| unsafe { node.as_ref() }.value.waiter.with(|waiter| unsafe { (*waiter).upgrade() }))
            .collect();
        drop(waiters);
        // Nudged without the lock: an upgraded waiter may be the last reference to a runtime.
        kept.iter().for_each(UpgradedWaiter::nudge);
    }

    /// C3: blocks the closer until no system call is under way in this direction. The closer has set the closed bit,
    /// and fenced, before.
    pub(crate) fn wait_idle(&self) {
        let mut wait = Wait::begin();
        let record = Record::of(&wait);
        let mut waiters = self.waiters.lock();
        loop {
            // Acquire: what was done in the last system call: partners `pass` and `hand_over`.
            let acquire = Acquire.unless(IoLockCloserLooksRelaxed);
            match self.word.compare_exchange(HELD, QUEUED, Relaxed, acquire) {
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
            let is_last = waiters.is_empty();
            mutant!(IoLockCloserForgetsTheLine: let is_last = true);
            if is_last {
                let _was_queued = self.word.compare_exchange(QUEUED, HELD, Relaxed, Relaxed);
            }
            drop(waiters);
            return wait.withdraw();
        }
        let node = NonNull::from(&record);
        // SAFETY: the record stands in no queue, and the holder that hands the lock over takes it out before this
        // frame ends.
        unsafe { waiters.push_front(node) };
        let handed = wait.park(How::new(WaitReason::IoLock).ends(OnInterrupt::Never), move || {
            drop(waiters);
            Commit::Park
        });
        debug_assert!(handed == Woke::Readied, "wait_idle: {handed:?}");
        // No system call begins any more, so the closer passes the lock on at once.
        drop(Holder { io_lock: self, g: M::current().and_then(M::g) });
    }

    /// Releases the lock of a goroutine that will not run again.
    ///
    /// # Safety
    /// `hook` is that of an I/O lock whose holder never runs again.
    unsafe fn give_up(hook: *const AbandonHook) {
        mutant!(IoLockLeftBehind: return);
        // SAFETY: by this function's contract. The lock lies in a socket that the goroutine borrows, and a goroutine
        // that never runs again never ends that borrow.
        let io_lock = unsafe { &*hook.cast::<Self>() };
        // Relaxed: before the word's Release.
        unless!(IoLockLeftAtRest, io_lock.resting.store(false, Relaxed));
        io_lock.pass();
    }
}

/// Stands for the abandon hook of an I/O lock whose holder is in a function of the program's.
#[repr(C)]
struct Stands<'a, H: Host> {
    hook: StandingHook,
    io_lock: &'a IoLock<H>,
    users: &'a Users,
}

impl<H: Host> Stands<'_, H> {
    /// # Safety
    /// `hook` is that of a `Stands` whose goroutine never runs again.
    unsafe fn give_up(hook: *const AbandonHook) {
        // SAFETY: by this function's contract: the frame that has the value stays.
        let it = unsafe { &*hook.cast::<Self>() };
        // Before the lock's Release, whose partner is the closer's `wait_idle`: the closer looks at the mark after that.
        it.users.lend();
        // SAFETY: by this function's contract.
        unsafe { IoLock::<H>::give_up((&raw const *it.io_lock).cast()) };
    }
}

/// The return, or the unwind, from the program's function.
struct HoldsAgain<'a, H: Host> {
    io_lock: &'a IoLock<H>,
    g: GRef<H>,
}

impl<H: Host> Drop for HoldsAgain<'_, H> {
    fn drop(&mut self) {
        self.io_lock.note_holder(self.g);
    }
}

impl<H: Host> Holder<'_, H> {
    /// The holder rests: the system calls are over, and the holder is about to wait.
    pub(crate) fn rest(&self) {
        if let Some(g) = self.g {
            // The operation's function may have waited, or held another lock, and has taken the hook of that back.
            unless!(IoLockRestsUnnoted, self.io_lock.note_holder(g));
        }
        // Release: partner `wait_idle`: what was done in the system calls comes before the descriptor is closed.
        self.io_lock.resting.store(true, Release.unless(IoLockRestRelaxed));
    }

    /// H1 and IoLockFence, after a rest. The holder calls `look` before its next system call.
    pub(crate) fn go_on(&self) {
        // An exchange, so that IoLockFence costs nothing more. AcqRel: on x86 the exchange stands for H2
        // (`fence_after_exchange`), whose partner is SocketFence; where a fence follows, nothing depends on this ordering.
        self.io_lock.resting.swap(false, AcqRel);
        // SeqCst: partner SocketFence.
        unless!(IoLockGoesOnNoFence, fence_after_exchange());
    }
}

impl<H: Host> Drop for Holder<'_, H> {
    fn drop(&mut self) {
        if let Some(g) = self.g {
            // Relaxed: this goroutine runs, so no thread reads the hook.
            unless!(IoLockKeepsItsHook, g.on_abandon.store(std::ptr::null_mut(), Relaxed));
        }
        if self.io_lock.resting.load(Relaxed) {
            // Relaxed: before the word's Release. No model has this: the holder is the closer, which `hand_over` has left at
            // rest, and no call follows; or a wait unwinds, by a failed assertion.
            self.io_lock.resting.store(false, Relaxed);
        }
        self.io_lock.pass();
    }
}

/// Claims the wait of the waiter that is to be the next holder.
fn may_be_handed<H: Host>(waiter: &Waiter<H>) -> bool {
    mutant!(IoLockHandedBlindly: return true);
    waiter.claim()
}

/// SocketFence: between the caller's change (closed, or a deadline) and the caller's look for the operations that must see the
/// change.
pub(crate) fn socket_fence() {
    // SeqCst: partner IoLockFence; and in `wake_fd.rs` each other's.
    fence(Ordering::SeqCst.unless(SocketNoFence));
}
