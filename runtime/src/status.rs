//! The word of one who may run and wait: status, scan bit, claim and wait number in one atomic.
//!
//! ```text
//!            spawn            run               park
//!    Idle ─────────▶ Runnable ───▶ Running ──────────────▶ Waiting
//!      ▲                ▲  ▲          │ │ ▲                  │  │
//!      │                │  └── yield ─┘ │ └──── call_off ────┘  │
//!      │                └───────────────┼── ready ──────────────┘
//!      └────────────── finish ──────────┘
//! ```
//!
//! A *wait* has a number and is open to be claimed by exactly one: a counterpart, a timer, the poller, a close,
//! its own owner. In order:
//!
//! 1. the owner opens the wait: `begin_wait` gives the number under which it stands in queues;
//! 2. the M saves the owner's context, stores Waiting (`park`), and only then publishes (the commit hook);
//! 3. somebody wins `claim`, one CAS from (number, open) to (number, claimed); all later ones fail;
//! 4. the same somebody calls `ready`, and the owner runs again.
//!
//! Because status and claim share the word, the one who claims knows whether the owner sleeps, and a late ready
//! can't wake a later wait: it would need the old number.
//!
//! The **scan bit** holds a Waiting or Runnable G where it is (Go's `_Gscan`): a dump reads its stack meanwhile.
//! Whoever would queue or run a held G sets `OWED` instead; the holder, clearing the bit, then queues it.
//!
//! Invariants:
//! 1. Only the owner (or the M that runs it) writes the status of a Running word. Others write it with a CAS
//!    that names the wait's number, and fail on a word without an open wait.
//! 2. Runnable → Running is won by one M, which alone touches the G's stack until it stores a new status.
//! 3. A wait number is never used twice, not even by the next goroutine in the same G.
//! 4. `CLAIMED` is set at most once a wait, and exactly one `ready` follows it; none after `seize`, by which a runtime
//!    that ends claims what it leaves behind.
//!
//! Checked by `tests/loom_park.rs`; the tests below go through the transitions one by one.

use crate::prim::{AcqRel, Acquire, AtomicU64, Mutant, Ordering, Relaxed, Release, mutated, order};

const STATUS: u64 = 0b111;
const SCAN: u64 = 1 << 3;
const OWED: u64 = 1 << 4;
const OPEN: u64 = 1 << 5;
const CLAIMED: u64 = 1 << 6;
const READY: u64 = 1 << 7;
const NUMBER: u32 = 8;

/// What a G is doing. Go's names without the underscore.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Status {
    /// In the pool: it holds no goroutine.
    Idle = 0,
    /// In a run queue, or on its way into one.
    Runnable = 1,
    /// On an M.
    Running = 2,
    /// Parked; somebody will ready it.
    Waiting = 3,
}

/// The number of one wait. Never used twice by the same word.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct WaitNumber(u64);

impl WaitNumber {
    /// For a queue record made of atomics (pollDesc's).
    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }
    pub(crate) fn from_bits(bits: u64) -> Self {
        WaitNumber(bits)
    }
}

/// What was in the word at one moment.
#[derive(Copy, Clone, Eq, PartialEq)]
struct Word(u64);

impl Word {
    fn status(self) -> Status {
        match self.0 & STATUS {
            0 => Status::Idle,
            1 => Status::Runnable,
            2 => Status::Running,
            3 => Status::Waiting,
            other => unreachable!("status: no such status ({other})"),
        }
    }
    fn has(self, bits: u64) -> bool {
        self.0 & bits == bits
    }
    fn number(self) -> WaitNumber {
        WaitNumber(self.0 >> NUMBER)
    }
    /// Open and not yet claimed under `number`.
    fn open(self, number: WaitNumber) -> bool {
        self.has(OPEN) && !self.has(CLAIMED) && (self.number() == number || mutated(Mutant::ClaimAnyWait))
    }
    fn with_status(self, status: Status) -> Word {
        Word(self.0 & !STATUS | status as u64)
    }
    fn set(self, bits: u64) -> Word {
        Word(self.0 | bits)
    }
    fn clear(self, bits: u64) -> Word {
        Word(self.0 & !bits)
    }
}

impl std::fmt::Debug for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} wait {}", self.status(), self.number().0)?;
        for (bit, name) in
            [(SCAN, "scan"), (OWED, "owed"), (OPEN, "open"), (CLAIMED, "claimed"), (READY, "ready")]
        {
            if self.has(bit) {
                write!(f, " {name}")?;
            }
        }
        Ok(())
    }
}

/// What came of `run`.
#[derive(Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Run {
    /// This M alone runs the G now.
    Go,
    /// A dump holds it; the holder queues it again.
    Held,
}

/// What came of a `ready`, or of the end of a hold.
#[derive(Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Then {
    /// The word is Runnable now, and the caller is the one who queues its G.
    Queue,
    /// Nothing to do: the owner is awake, or somebody else queues it.
    Leave,
}

/// What came of calling a park off.
#[derive(Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum CallOff {
    /// Running again: the M resumes it at once.
    Resume,
    /// Somebody else has readied it, or holds it: the M takes other work.
    Gone,
}

/// How a wait ended, as its owner finds it.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Woke {
    /// Claimed and readied by another.
    Readied,
    /// Nobody knew of it: the commit hook refused.
    Refused,
}

/// AcqRel, less what a mutant takes away.
fn both(no_acquire: Mutant, no_release: Mutant) -> Ordering {
    if mutated(no_acquire) {
        Release
    } else if mutated(no_release) {
        Acquire
    } else {
        AcqRel
    }
}

/// The word itself. See the module's header.
#[derive(Debug)]
pub(crate) struct StatusWord(AtomicU64);

impl StatusWord {
    pub(crate) fn new(status: Status) -> Self {
        StatusWord(AtomicU64::new(status as u64))
    }

    fn load(&self, ordering: Ordering) -> Word {
        Word(self.0.load(ordering))
    }

    /// Changes the word by `step` until the CAS holds; `step` returns the new word and the answer.
    fn update<T>(&self, ordering: Ordering, mut step: impl FnMut(Word) -> (Option<Word>, T)) -> T {
        let mut seen = self.load(Relaxed);
        loop {
            let (next, answer) = step(seen);
            let Some(next) = next else { return answer };
            // Relaxed: a failed exchange is followed by another, or by an answer that rests on nothing but the word.
            match self.0.compare_exchange_weak(seen.0, next.0, ordering, Relaxed) {
                Ok(_) => return answer,
                Err(now) => seen = Word(now),
            }
        }
    }

    /// Idle → Runnable, by the one who took the G from its pool.
    pub(crate) fn spawn(&self) {
        let word = self.load(Relaxed);
        assert!(word.status() == Status::Idle, "spawn: the G is in use ({word:?})");
        // Relaxed: the run queue publishes the G, and before that its life does, to a dump.
        self.0.store(word.with_status(Status::Runnable).0, Relaxed);
    }

    /// Runnable → Running, by the M that took the G from a queue.
    #[inline]
    pub(crate) fn run(&self) -> Run {
        // Acquire: a holder has read the stack before its `unhold`. Release: a holder that finds itself owed queues the
        // G after us, and must see that we have taken it out.
        self.update(both(Mutant::RunWithoutAcquire, Mutant::RunHeldWithoutRelease), |word| {
            assert!(word.status() == Status::Runnable, "run: the G is not runnable ({word:?})");
            if word.has(SCAN) {
                (Some(word.set(OWED)), Run::Held)
            } else {
                (Some(word.with_status(Status::Running)), Run::Go)
            }
        })
    }

    /// Running → Runnable, by the M, after the save. The caller queues the G.
    #[inline]
    pub(crate) fn requeue(&self) {
        let word = self.load(Relaxed);
        assert!(word.status() == Status::Running, "requeue: the G is not running ({word:?})");
        // Release: publishes the saved context to the next `run`, and to a dump.
        self.0.store(word.with_status(Status::Runnable).0, order(Mutant::RequeueRelaxed, Release));
    }

    /// Running → Idle, by the M, after the last save.
    pub(crate) fn finish(&self) {
        let word = self.load(Relaxed);
        assert!(word.status() == Status::Running, "finish: the G is not running ({word:?})");
        // Relaxed: the G goes through `life` (`g.rs`) to whoever has it next.
        self.0.store(word.with_status(Status::Idle).clear(OPEN | CLAIMED | READY).0, Relaxed);
    }

    /// Runnable → Idle: the goroutine never ran and never will.
    pub(crate) fn discard(&self) {
        let word = self.load(Relaxed);
        assert!(word.status() == Status::Runnable, "discard: the G is not runnable ({word:?})");
        // Relaxed: as in `finish`.
        self.0.store(word.with_status(Status::Idle).clear(OPEN | CLAIMED | READY).0, Relaxed);
    }

    /// Opens the owner's next wait.
    #[inline]
    pub(crate) fn begin_wait(&self) -> WaitNumber {
        let word = self.load(Relaxed);
        debug_assert!(word.status() == Status::Running, "begin_wait: not running ({word:?})");
        debug_assert!(
            !word.has(OPEN) || word.has(READY),
            "begin_wait: the last wait is still open ({word:?})"
        );
        let number = WaitNumber((word.number().0 + 1) & (u64::MAX >> NUMBER));
        // Relaxed: a queue's lock, or the commit's Release, publishes the number together with the record.
        self.0.store(number.0 << NUMBER | OPEN | Status::Running as u64, Relaxed);
        number
    }

    /// Running → Waiting, by the M, after the save and before the commit hook: the first park of this wait, when
    /// nobody else knows its number yet. A plain store is enough.
    #[inline]
    pub(crate) fn park(&self, number: WaitNumber) {
        // Release: publishes the saved context to a dump. For the claimer, the commit publishes it with the record.
        let release = order(Mutant::ParkStatusRelaxed, Release);
        self.0.store(number.0 << NUMBER | OPEN | Status::Waiting as u64, release);
    }

    /// Waiting → Running, by the M whose commit hook refused, if nobody was faster.
    pub(crate) fn call_off(&self, number: WaitNumber) -> CallOff {
        // Acquire: a holder has read the stack. Release: a holder that is owed has the G run, and the hook, which
        // lay on its stack, was read before.
        self.update(both(Mutant::CallOffWithoutAcquire, Mutant::CallOffWithoutRelease), |word| {
            // Claimed before anybody knew the wait: its runtime ends, and has seized it.
            if word.status() != Status::Waiting || word.number() != number || word.has(CLAIMED) {
                (None, CallOff::Gone)
            } else if word.has(SCAN) && !mutated(Mutant::CallOffIgnoresScan) {
                (Some(word.set(OWED)), CallOff::Gone)
            } else {
                (Some(word.with_status(Status::Running)), CallOff::Resume)
            }
        })
    }

    /// (number, open) → (number, claimed): true for the one who may now wake the owner, and has to.
    #[inline]
    pub(crate) fn claim(&self, number: WaitNumber) -> bool {
        // Relaxed: it decides who, and orders nothing. What the owner wrote before it parked came with the record, from
        // the queue in which the claimer found it; what the claimer knows goes to the owner with `ready`.
        self.update(
            Relaxed,
            |word| {
                if word.open(number) { (Some(word.set(CLAIMED)), true) } else { (None, false) }
            },
        )
    }

    /// The end of the runtime: a parked owner's wait is claimed, whatever its number, and never readied. True:
    /// the goroutine is parked, and none will run it again.
    pub(crate) fn seize(&self) -> bool {
        // Acquire: which turn it holds, written before it parked.
        self.update(Acquire, |word| match word.status() {
            Status::Waiting if !word.has(CLAIMED) => (Some(word.set(CLAIMED)), true),
            _ => (None, false),
        })
    }

    /// Says to the owner of a claimed wait that it may go on.
    #[inline]
    pub(crate) fn ready(&self) -> Then {
        // Release: to the holder that is owed, and from it to the owner: what the claimer handed over. Where nobody
        // holds the G, the queue into which the caller puts it publishes that, or the note of a thread.
        self.update(order(Mutant::ReadyRelaxed, Release), |word| {
            assert!(
                word.has(CLAIMED) && !word.has(READY),
                "ready: the wait was not claimed, or readied twice ({word:?})"
            );
            match word.status() {
                Status::Waiting if !word.has(SCAN) => {
                    (Some(word.with_status(Status::Runnable).set(READY)), Then::Queue)
                }
                Status::Waiting if mutated(Mutant::ReadyIgnoresScan) => (Some(word.set(READY)), Then::Leave),
                Status::Waiting => (Some(word.set(READY | OWED)), Then::Leave),
                // A plain thread, which runs also while it sleeps.
                _ => (Some(word.set(READY)), Then::Leave),
            }
        })
    }

    /// Ends a wait, for the owner that runs again.
    pub(crate) fn end_wait(&self, number: WaitNumber) -> Woke {
        // Relaxed: the owner runs, so what `ready` published came with the queue, or the note.
        let word = self.load(Relaxed);
        debug_assert!(word.number() == number, "end_wait: not the owner's wait ({word:?})");
        if word.has(READY) {
            return Woke::Readied;
        }
        assert!(!word.has(CLAIMED), "end_wait: the wait is claimed, and the owner runs ({word:?})");
        // Nobody knows the number, so nobody else writes the word of a running owner (invariant 1).
        self.0.store(word.clear(OPEN).0, Relaxed);
        Woke::Refused
    }

    /// Sets the scan bit on a Waiting or Runnable word, and tells which. The caller holds it until `unhold`.
    pub(crate) fn hold(&self) -> Option<Status> {
        // Acquire: what the M has saved, released by `park` or `requeue`.
        self.update(order(Mutant::HoldRelaxed, Acquire), |word| match word.status() {
            status @ (Status::Waiting | Status::Runnable) if !word.has(SCAN) => {
                (Some(word.set(SCAN)), Some(status))
            }
            _ => (None, None),
        })
    }

    /// Clears the scan bit, and takes over what was owed meanwhile.
    pub(crate) fn unhold(&self) -> Then {
        // Release: the stack was read before the next M runs on it. Acquire: whoever owes us has let go of the G.
        self.update(both(Mutant::UnholdWithoutAcquire, Mutant::UnholdWithoutRelease), |word| {
            assert!(word.has(SCAN), "unhold: not held ({word:?})");
            let free = word.clear(SCAN | OWED);
            if word.has(OWED) {
                (Some(free.with_status(Status::Runnable)), Then::Queue)
            } else {
                (Some(free), Then::Leave)
            }
        })
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    fn running() -> StatusWord {
        let word = StatusWord::new(Status::Idle);
        word.spawn();
        assert_eq!(word.run(), Run::Go);
        word
    }

    fn waiting() -> (StatusWord, WaitNumber) {
        let word = running();
        let number = word.begin_wait();
        word.park(number);
        (word, number)
    }

    /// Fails if two claims of one wait both win, or a claim under an old number does.
    #[test]
    fn a_wait_is_claimed_once_and_only_under_its_own_number() {
        let (word, first) = waiting();
        assert!(word.claim(first));
        assert!(!word.claim(first));
        assert_eq!(word.ready(), Then::Queue);
        assert_eq!(word.run(), Run::Go);
        assert_eq!(word.end_wait(first), Woke::Readied);
        let second = word.begin_wait();
        word.park(second);
        assert!(!word.claim(first));
        assert!(word.claim(second));
    }

    #[test]
    fn a_commit_that_refuses_resumes_the_owner() {
        let (word, number) = waiting();
        assert_eq!(word.call_off(number), CallOff::Resume);
        assert_eq!(word.end_wait(number), Woke::Refused);
        assert!(!word.claim(number), "the wait is over");
        assert_ne!(word.begin_wait(), number);
    }

    /// Fails if a G that is held when its commit is refused is lost.
    #[test]
    fn a_refused_commit_that_meets_a_hold_leaves_the_owner_to_the_holder() {
        let (word, number) = waiting();
        assert_eq!(word.hold(), Some(Status::Waiting));
        assert_eq!(word.call_off(number), CallOff::Gone);
        assert_eq!(word.unhold(), Then::Queue);
        assert_eq!(word.run(), Run::Go);
        assert_eq!(word.end_wait(number), Woke::Refused);
    }

    /// Fails if a held G is queued twice or never.
    #[test]
    fn whoever_ends_a_hold_queues_what_was_readied_meanwhile() {
        let (word, number) = waiting();
        assert_eq!(word.hold(), Some(Status::Waiting));
        assert_eq!(word.hold(), None, "one holder at a time");
        assert!(word.claim(number));
        assert_eq!(word.ready(), Then::Leave);
        assert_eq!(word.load(Acquire).status(), Status::Waiting);
        assert_eq!(word.unhold(), Then::Queue);
        assert_eq!(word.run(), Run::Go);
        assert_eq!(word.end_wait(number), Woke::Readied);
    }

    #[test]
    fn a_held_runnable_g_is_left_by_the_m_that_takes_it() {
        let word = StatusWord::new(Status::Idle);
        word.spawn();
        assert_eq!(word.hold(), Some(Status::Runnable));
        assert_eq!(word.run(), Run::Held);
        assert_eq!(word.unhold(), Then::Queue);
        assert_eq!(word.run(), Run::Go);
        assert_eq!(word.hold(), None, "a running G is not held");
    }

    #[test]
    fn a_hold_that_nothing_met_leaves_no_trace() {
        let (word, number) = waiting();
        assert_eq!(word.hold(), Some(Status::Waiting));
        assert_eq!(word.unhold(), Then::Leave);
        assert!(word.claim(number));
        assert_eq!(word.ready(), Then::Queue);
    }

    /// Fails if the next goroutine in a recycled G can be claimed through a record of the last one.
    #[test]
    fn a_recycled_word_does_not_answer_to_old_numbers() {
        let (word, old) = waiting();
        assert!(word.claim(old));
        assert_eq!(word.ready(), Then::Queue);
        assert_eq!(word.run(), Run::Go);
        word.finish();
        word.spawn();
        assert_eq!(word.run(), Run::Go);
        assert!(!word.claim(old));
        let fresh = word.begin_wait();
        word.park(fresh);
        assert!(!word.claim(old));
        assert!(word.claim(fresh));
    }
}
