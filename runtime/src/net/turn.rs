//! One direction of a socket belongs to one goroutine or thread at a time, in the order in which they came
//! (Go's fdMutex).
//!
//! ```text
//!   Free ⇄ Held ⇄ Queued        word: 0 · 1 · 2
//! ```
//! Free ⇄ Held is one exchange on either side. Whoever comes second locks the line, moves Held to Queued and
//! stands there; the holder, whose exchange Held → Free then fails, locks the line too and hands the turn to
//! the first in it. The word is Queued as long as a record stands in the line, so nobody overtakes.
//!
//! Waiting for a turn is a wait like any other: a time limit, a close, a deadline that was moved, a context end it.
//! Whoever leaves the line without the turn takes its record out, and moves Queued back to Held when it was the last, so
//! that the holder need not look.
//! A turn is given only to one whose wait could be claimed, so nobody gets it who has given up. Who was called by a time
//! limit that has been moved on meanwhile stands where it stood, with the number of a new wait; had a hand-over passed it
//! by in between, at the front.
//!
//! A holder that *rests* has its turn and is in no system call: it is parked, or about to look whether it may go on.
//!
//! ```text
//!   holder:  H1 it has the turn; resting := false · H2 fence · H3 closed?  leave : system calls
//!   closer:  C1 closed := true                    · C2 fence · C3 Free, or resting?  on : wait for the turn, in front
//! ```
//! One of the fences comes first: H3 sees C1, or C3 sees H1 and the closer gets the turn when the system call is over.
//! So a close waits for system calls and threads in `poll(2)`, and for no goroutine that sleeps, or that waits for a P.
//!
//! A goroutine notes the turn that it holds in its G. When its runtime ends and leaves it parked in the middle of an
//! operation, the turn is given up for it, so that the socket lives on for others.
//!
//! Invariants: `resting` is false while the word is Free, and set for whoever is handed the turn. A record's fields are
//! touched under the line's lock, or after a won claim.
//!
//! Checked by `models/turn.rs`.

use crate::g::GRef;
use crate::host::Host;
use crate::m::M;
use crate::prim::{
    AcqRel, Acquire, AtomicBool, AtomicU32, Mutant, Mutex, Ordering, Relaxed, Release, UnsafeCell, fence,
    fence_after_exchange, mutated, order, unless,
};
use crate::sched::park::{Commit, WaitReason};
use crate::wait::debt::Debt;
use crate::wait::interrupt::{Ends, Interrupt};
use crate::wait::queue::{Node, Queue};
use crate::wait::waiter::{How, Kept, Wait, Waiter, Woke};
use gmp_timers::Nanos;
use std::ptr::NonNull;

const FREE: u32 = 0;
const HELD: u32 = 1;
const QUEUED: u32 = 2;

/// One who stands in line.
struct Record<H: Host> {
    waiter: UnsafeCell<Waiter<H>>,
    /// Written by whoever has claimed the wait, read by its owner afterwards.
    handed: UnsafeCell<bool>,
}

type Line<H> = Queue<Record<H>>;

/// The turn of one direction.
#[repr(C)]
pub(crate) struct Turn<H: Host> {
    debt: Debt,
    word: AtomicU32,
    resting: AtomicBool,
    line: Mutex<Line<H>>,
}

/// Why somebody does not get a turn.
#[derive(Debug)]
pub(crate) enum Denied<E> {
    /// What its look says.
    Look(E),
    /// It was interrupted, and has left the line.
    Interrupted(Interrupt),
}

/// The caller has the turn; dropping it hands it on.
pub(crate) struct Holder<'a, H: Host> {
    turn: &'a Turn<H>,
    /// The goroutine that holds it, if it is one.
    g: Option<GRef<H>>,
}

/// How a turn was got.
enum Got {
    Free,
    Handed,
}

impl<H: Host> Turn<H> {
    pub(crate) fn new() -> Self {
        Turn {
            debt: Debt::new(Self::give_up),
            word: AtomicU32::new(FREE),
            resting: AtomicBool::new(false),
            line: Mutex::new(Queue::new()),
        }
    }

    /// Blocks the calling goroutine or thread until it has the turn, or until `look` gives an error. `look` also tells
    /// until when to wait; it is asked again after each `nudge`, and runs under the line's lock. Who has the turn looks
    /// once more before its system call.
    pub(crate) fn take<E>(
        &self,
        look: impl Fn() -> Result<Option<Nanos>, E>,
    ) -> Result<Holder<'_, H>, Denied<E>> {
        let g = M::current().and_then(M::g);
        // Acquire: what the last holder did in this direction. For loom, H2 says as much.
        let got = match self.word.compare_exchange(FREE, HELD, Acquire, Relaxed) {
            Ok(_) => Got::Free,
            Err(_) => self.stand_in_line(&look)?,
        };
        let holder = Holder { turn: self, g };
        match got {
            Got::Free => {
                // H2. SeqCst: a store of the word, then a load of what was changed; partner: `fence_look`.
                unless(Mutant::TurnTakeNoFence, fence_after_exchange);
                if let Some(g) = g {
                    self.belongs_to(g);
                }
            }
            Got::Handed => holder.go_on(),
        }
        Ok(holder)
    }

    /// Notes whose turn it is, for the end of the runtime.
    fn belongs_to(&self, g: GRef<H>) {
        // Relaxed: read with the goroutine's wait claimed, or by itself.
        g.debt.store((&raw const *self).cast_mut().cast(), Relaxed);
    }

    #[cold]
    fn stand_in_line<E>(&self, look: &impl Fn() -> Result<Option<Nanos>, E>) -> Result<Got, Denied<E>> {
        let mut wait = Wait::begin();
        let record =
            Node::new(Record { waiter: UnsafeCell::new(wait.waiter()), handed: UnsafeCell::new(false) });
        let node = NonNull::from(&record);
        let mut line = self.line.lock();
        let mut again = false;
        loop {
            let until = match look() {
                Ok(until) => until,
                Err(denied) => {
                    self.leave(&mut line, node);
                    drop(line);
                    wait.withdraw();
                    return Err(Denied::Look(denied));
                }
            };
            if !line.contains(node) {
                if self.is_free_after_all() {
                    drop(line);
                    wait.withdraw();
                    return Ok(Got::Free);
                }
                // SAFETY: it stands in no queue; it leaves this one below, or was taken out by whoever has claimed the
                // wait, before this frame goes.
                unsafe { if again { line.push_front(node) } else { line.push_back(node) } }
            }
            if again {
                let waiter = wait.waiter();
                // SAFETY: under the lock.
                record.value.waiter.with_mut(|slot| unsafe { *slot = waiter });
            }
            let mut how = How::new(WaitReason::IoTurn).until(until).ends(Ends::Returning).looking();
            if mutated(Mutant::TurnLineIsDeaf) {
                how.looks = false;
            }
            match wait.park(how, move || {
                drop(line);
                Commit::Park
            }) {
                // By a hand-over, or the time limit.
                Woke::Readied => {}
                // Somebody may be faster; then as above.
                Woke::Look => {
                    let _mine = wait.claim();
                }
                Woke::Interrupted(why) => {
                    self.leave(&mut self.line.lock(), node);
                    return Err(Denied::Interrupted(why));
                }
                Woke::Refused => unreachable!("stand_in_line: the hook does not refuse"),
            }
            // SAFETY: the wait is over; whoever has claimed it wrote before it readied us.
            if record.value.handed.with(|handed| unsafe { *handed }) {
                return Ok(Got::Handed);
            }
            again = true;
            drop(wait);
            wait = Wait::begin();
            line = self.line.lock();
        }
    }

    /// Under the lock, the line being empty or Queued: makes it Queued, or takes the turn (true).
    fn is_free_after_all(&self) -> bool {
        loop {
            // Under the lock the word leaves Queued only by us; Free and Held change without it.
            match self.word.compare_exchange(HELD, QUEUED, Relaxed, Relaxed) {
                Ok(_) | Err(QUEUED) => return false,
                Err(_) => {
                    // Acquire: as in `take`.
                    if self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok() {
                        return true;
                    }
                }
            }
        }
    }

    /// Under the lock: takes the record out, if it still stands there. The last one has nobody wait.
    fn leave(&self, line: &mut Line<H>, node: NonNull<Node<Record<H>>>) {
        // SAFETY: the record is the caller's, and stands in this line or in none.
        let stood = unsafe { line.remove(node) };
        if stood && line.is_empty() {
            // Only to spare the holder a look at the empty line. Relaxed: nobody has to be told.
            let was = self.word.compare_exchange(QUEUED, HELD, Relaxed, Relaxed);
            debug_assert!(was.is_ok(), "leave: the word of a line is Queued ({was:?})");
        }
    }

    #[cold]
    fn hand_over(&self) {
        let mut line = self.line.lock();
        let next = loop {
            match line.pop_front() {
                Some(_first) if mutated(Mutant::TurnNoHandOver) => {}
                Some(first) => {
                    // SAFETY: it stood in the line, whose lock is held.
                    let record = unsafe { &first.as_ref().value };
                    // SAFETY: as above; the copy outlives the record.
                    let waiter = record.waiter.with(|waiter| unsafe { (*waiter).clone() });
                    if mutated(Mutant::TurnHandedBlindly) || waiter.claim() {
                        // SAFETY: the claim was won, so the owner does not leave before the `ready` below.
                        record.handed.with_mut(|handed| unsafe { *handed = true });
                        break Some(waiter);
                    }
                }
                None => break None,
            }
        };
        if let Some(Waiter::G(g, _)) = &next {
            self.belongs_to(*g);
        }
        // Relaxed: who takes the turn, or looks for a rest, comes after the word's Release, or the lock.
        self.resting.store(next.is_some(), Relaxed);
        // Release: see `take`. With somebody claimed the turn is not free in between.
        self.word.store(
            match (&next, line.is_empty()) {
                (Some(_), false) if !mutated(Mutant::TurnForgetsTheRest) => QUEUED,
                (Some(_), false) => HELD,
                (Some(_), true) => HELD,
                (None, _) => FREE,
            },
            Release,
        );
        drop(line);
        if let Some(next) = next
            && !(mutated(Mutant::TurnHandedBlindly) && next.claim())
        {
            next.ready();
        }
    }

    fn pass(&self) {
        // Release: the next holder sees what was done in this direction.
        if self.word.compare_exchange(HELD, FREE, order(Mutant::TurnPassRelaxed, Release), Relaxed).is_err() {
            self.hand_over();
        }
    }

    /// Nobody has the turn: whoever takes it later sees what the caller wrote before its fence (`fence_look`).
    pub(crate) fn is_free(&self) -> bool {
        // Acquire: what the last holder did.
        self.word.load(Acquire) == FREE
    }

    /// Has everybody in line look again.
    pub(crate) fn nudge_line(&self) {
        let line = self.line.lock();
        let kept: Vec<Kept<H>> = line
            .iter()
            // SAFETY: they stand in the line, whose lock is held.
            .map(|node| unsafe { node.as_ref() }.value.waiter.with(|waiter| unsafe { (*waiter).keep() }))
            .collect();
        drop(line);
        // Not under the lock: what is kept may be the last of a runtime.
        kept.iter().for_each(Kept::nudge);
    }

    /// C3: blocks the closer until no system call is under way in this direction. It has marked, and fenced, before.
    pub(crate) fn wait_idle(&self) {
        let mut wait = Wait::begin();
        let record =
            Node::new(Record { waiter: UnsafeCell::new(wait.waiter()), handed: UnsafeCell::new(false) });
        let mut line = self.line.lock();
        loop {
            // Acquire: what was done in the last system call.
            match self.word.compare_exchange(HELD, QUEUED, Relaxed, Acquire) {
                Err(FREE) => {
                    drop(line);
                    return wait.withdraw();
                }
                Ok(_) | Err(QUEUED) => break,
                Err(_) => {}
            }
        }
        // Acquire: pairs with `rest`.
        if self.resting.load(order(Mutant::TurnRestLooksRelaxed, Acquire))
            || mutated(Mutant::TurnCloserDoesNotWait)
        {
            if line.is_empty() {
                let _was_queued = self.word.compare_exchange(QUEUED, HELD, Relaxed, Relaxed);
            }
            drop(line);
            return wait.withdraw();
        }
        let node = NonNull::from(&record);
        // SAFETY: it stands in no queue, and is taken out by whoever hands the turn over, before this frame goes.
        unsafe { line.push_front(node) };
        let handed = wait.park(How::new(WaitReason::IoTurn).ends(Ends::Never), move || {
            drop(line);
            Commit::Park
        });
        debug_assert!(handed == Woke::Readied, "wait_idle: {handed:?}");
        // Nobody makes a system call any more: the turn goes on at once.
        drop(Holder { turn: self, g: M::current().and_then(M::g) });
    }

    /// Gives the turn up of a goroutine that will not run again.
    ///
    /// # Safety
    /// `debt` is a turn's.
    unsafe fn give_up(debt: *const Debt) {
        if mutated(Mutant::TurnLeftBehind) {
            return;
        }
        // SAFETY: by this function's contract. The turn lies in a socket that the goroutine borrows, and it is left in
        // the middle of that borrow, which therefore never ends.
        let turn = unsafe { &*debt.cast::<Self>() };
        // Relaxed: as in `Holder::drop`.
        turn.resting.store(false, Relaxed);
        turn.pass();
    }
}

impl<H: Host> Holder<'_, H> {
    /// The system calls are over for now; the holder is about to wait.
    pub(crate) fn rest(&self) {
        // Release: pairs with `wait_idle`: what was done in them comes before the descriptor is closed.
        self.turn.resting.store(true, order(Mutant::TurnRestRelaxed, Release));
    }

    /// H1 and H2: after a rest. The holder looks before its next system call.
    pub(crate) fn go_on(&self) {
        // An exchange, so that H2 costs nothing more. AcqRel: on x86 it stands for H2 (`fence_after_exchange`); where a fence
        // follows nothing rests on it.
        self.turn.resting.swap(false, AcqRel);
        // SeqCst: partner C2.
        unless(Mutant::TurnGoesOnNoFence, fence_after_exchange);
    }
}

impl<H: Host> Drop for Holder<'_, H> {
    fn drop(&mut self) {
        if let Some(g) = self.g {
            // Relaxed: this goroutine runs, so nobody else looks.
            g.debt.store(std::ptr::null_mut(), Relaxed);
        }
        if self.turn.resting.load(Relaxed) {
            // Relaxed: before the word's Release.
            self.turn.resting.store(false, Relaxed);
        }
        self.turn.pass();
    }
}

/// C2: between what the caller has changed, closed or a deadline, and its look at who is to see it.
pub(crate) fn fence_look() {
    // SeqCst: partner H2; and B2 and R2 of `bell.rs` are each other's.
    unless(Mutant::SocketLookNoFence, || fence(Ordering::SeqCst));
}
