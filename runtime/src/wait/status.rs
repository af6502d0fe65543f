//! The word of a goroutine, or a plain thread, that can wait: status, scan bit, claim and wait number in one atomic.
//!
//! ```text
//!            spawn            run               park
//!    Idle ─────────▶ Runnable ───▶ Running ──────────────▶ Waiting
//!      ▲                ▲  ▲          │ │ ▲                  │  │
//!      │                │  └── yield ─┘ │ └─── cancel_park ──┘  │
//!      │                └───────────────┼── ready ──────────────┘
//!      └────────────── finish ──────────┘
//! ```
//!
//! A *wait* has a number and is open until exactly one thread claims it: a waker (a counterpart, a timer, the poller or a
//! closer), or the wait's *owner*, the goroutine or thread that waits. With a separate claim flag beside the status, a late
//! waker could end the owner's next wait. So status, claim and number share one word. The order of events:
//!
//! 1. the owner opens the wait: `begin_wait` gives the number under which the owner stands in queues;
//! 2. the M saves the owner's context, stores Waiting (`park`), and only then publishes (the commit hook);
//! 3. a waker wins `claim`, one CAS from (number, open) to (number, claimed); all later claims fail;
//! 4. the same waker calls `ready`, and the owner runs again.
//!
//! A *nudge* makes the owner look again and claims nothing: a deadline was moved, or a context is done. The owner wakes with
//! the wait open and its records in all queues. The owner either sleeps on (`park_again`, which refuses if a ready or another
//! nudge came meanwhile), or claims the wait itself, by the same CAS as any waker.
//!
//! ```text
//!   Waiting ── nudge ──▶ Runnable ── run ──▶ Running: looks ── park_again ──▶ Waiting
//!                                                      └───── claim: won? leave : the winner readies the owner
//! ```
//!
//! The **scan bit** holds a Waiting or Runnable G in place (Go's `_Gscan`): the *holder*, a dump, reads the stack while the bit
//! is set. A waker that would queue a held G, or an M that would run one, sets `DEFERRED` instead. The holder queues such a G
//! when it clears the bit (`unhold`). A thread that frees a G that never ran waits for the holder (`discard`).
//!
//! At the **end of a runtime** no M runs a parked or queued goroutine again. The ender claims such a goroutine's open wait
//! (`seize`, `seize_queued`), and then runs its abandon hook, which reads the owner's record. If a waker was faster, the record
//! belongs to that waker until `ready`. After the `ready` of a parked goroutine the waker queues it, and finds the end. But the
//! `ready` of a goroutine that a nudge has queued would leave the goroutine to its queue, which the ender has emptied. So
//! `seize_queued` parks that goroutine again:
//!
//! ```text
//!   waker                                    ender
//!
//!   claim                                    takes the goroutine out of its queue
//!   hand over: write to the record           `seize_queued`: claimed, and not readied?  Waiting
//!   `ready`: Waiting?  queue the goroutine                   else: claims an open wait; runs the hook
//! ```
//! If `ready` comes first, the hook finds what the waker has handed over; if `seize_queued` does, the waker queues the
//! goroutine, and then does the ender's part itself (`sched/stop.rs`).
//!
//! Invariants:
//! 1. Only the owner (or the M that runs the owner) writes the status of a Running word. Other threads change such a word only
//!    by a CAS, which fails without an open wait: a claim or a nudge names the wait's number, a `ready` follows a claim, and
//!    `nudge_any` needs a wait that was saved. So the owner can use plain stores while no other thread knows the number, and
//!    again once the wait is claimed and readied; in between the owner uses exchanges.
//! 2. Runnable → Running is won by one M, which alone touches the G's stack until that M stores a new status.
//! 3. A wait number is never used twice, not even by the next goroutine in the same G.
//! 4. `CLAIMED` is set at most once a wait. A waker that has set it calls `ready` exactly once. No `ready` follows in three
//!    cases: the owner has claimed its own wait, and ends it by `close_wait`; the ender has claimed the wait for the owner
//!    (`claim_for_end`); the ender has claimed the wait of a goroutine that is left behind (`seize`, `seize_queued`).
//!
//! Checked by `models/park.rs`; nudges by `models/interrupt.rs`; the transitions at the end of a runtime by
//! `models/shutdown.rs`, and beside a waker by `models/event.rs` and `models/io_lock.rs`. The tests below go through the
//! transitions one by one.

mod word;

use crate::prim::hooks::*;
use crate::prim::{Acquire, AtomicU64, Ordering, Relaxed, Release, relax};
pub(crate) use word::{Again, Asleep, CancelPark, Doing, Run, Status, Then, WaitNumber, Why};
use word::{
    CLAIMED, CLAIMED_FOR_END, DEFERRED, KNOWN, NUDGED, NUMBER, OF_A_WAIT, OPEN, READY, REFUSED, SAVED, SCAN,
    TIMED, Word,
};

/// The word itself. See the module's header.
#[derive(Debug)]
pub(crate) struct StatusWord(AtomicU64);

impl StatusWord {
    pub(crate) fn new(status: Status) -> Self {
        StatusWord(AtomicU64::new(status as u64))
    }

    #[inline(always)]
    fn load(&self, ordering: Ordering) -> Word {
        Word(self.0.load(ordering))
    }

    /// Changes the word by `step` until the CAS succeeds; `step` returns the new word and the answer.
    fn update<T>(&self, ordering: Ordering, mut step: impl FnMut(Word) -> (Option<Word>, T)) -> T {
        let mut seen = self.load(Relaxed);
        loop {
            let (next, answer) = step(seen);
            let Some(next) = next else { return answer };
            // Relaxed: after a failed exchange comes another one, or an answer that depends only on the word.
            match self.0.compare_exchange_weak(seen.0, next.0, ordering, Relaxed) {
                Ok(_) => return answer,
                Err(now) => seen = Word(now),
            }
        }
    }

    /// Idle → Runnable, by the spawner, which took the G from the pool.
    pub(crate) fn spawn(&self) {
        let word = self.load(Relaxed);
        word.assert(word.is(Status::Idle), "spawn: the G is in use");
        // Release: partner the Acquire in `hold`. A dump might still have a reference to this G from the goroutine that used
        // the G before. (All other threads get the G from a run queue.)
        self.0.store(word.with_status(Status::Runnable).0, Release.unless(SpawnRelaxed));
    }

    /// Runnable → Running, by the M that took the G from a queue.
    #[inline]
    pub(crate) fn run(&self) -> Run {
        // Acquire: a holder has read the stack before `unhold`, the partner. Release: a holder that finds DEFERRED, in
        // `unhold`, queues the G after this M, and must see that this M has taken the G out.
        self.update(both(Acquire.unless(RunWithoutAcquire), Release.unless(RunHeldWithoutRelease)), |word| {
            word.assert(word.is(Status::Runnable), "run: the G is not runnable");
            if word.has(SCAN) {
                (Some(word.set(DEFERRED)), Run::Held)
            } else {
                (Some(word.with_status(Status::Running)), Run::Go)
            }
        })
    }

    /// Running → Runnable, by the M, after the save. The caller queues the G.
    #[inline]
    pub(crate) fn requeue(&self) {
        let word = self.load(Relaxed);
        word.assert(word.is(Status::Running), "requeue: the G is not running");
        // Release: publishes the saved context: partners the next `run`, and `hold` of a dump.
        let release = Release.unless(RequeueRelaxed);
        if (word.has(OPEN) && !word.has(READY)).unless(RequeueStores) {
            // The goroutine came back without a P in the middle of a wait, and other threads know the number.
            self.update(release, |word| (Some(word.with_status(Status::Runnable)), ()));
        } else {
            self.0.store(word.with_status(Status::Runnable).0, release);
        }
    }

    /// Running → Idle, by the M, after the last save.
    pub(crate) fn finish(&self) {
        let word = self.load(Relaxed);
        word.assert(word.is(Status::Running), "finish: the G is not running");
        // Release: an ender that sees the end, in `doing`, its partner, sees which goroutines this one has woken
        // (`sleeps_still`). `life` (`g/mod.rs`) orders the G's next goroutine after this. No model has the Release: a waker
        // that queues the woken goroutine has passed S2, whose fence does the same; the Release is needed if a dump holds the
        // woken goroutine, and queues that goroutine later.
        self.0.store(word.with_status(Status::Idle).clear(OF_A_WAIT).0, Release);
    }

    /// Runnable → Idle: the goroutine never ran and never will. Waits for a dump that holds the goroutine: the dump reads
    /// what the caller is about to free, and clears its scan bit itself.
    pub(crate) fn discard(&self) {
        let gone = || {
            // Acquire: a holder has read the G before `unhold`, the partner.
            self.update(Acquire.unless(DiscardWithoutAcquire), |word| {
                word.assert(word.is(Status::Runnable), "discard: the G is not runnable");
                let held = word.has(SCAN).unless(DiscardIgnoresScan);
                if held {
                    (None, false)
                } else {
                    (Some(word.with_status(Status::Idle).clear(OF_A_WAIT)), true)
                }
            })
        };
        while !gone() {
            relax();
        }
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

    /// Running → Waiting, by the M, after the save and before the commit hook: the first park of this wait, when no other
    /// thread yet knows the wait's number. A plain store is enough.
    #[inline]
    pub(crate) fn park(&self, number: WaitNumber) {
        // Release: publishes the saved context to a dump: partner `hold`. For the claimer, the commit publishes the context
        // with the record.
        let release = Release.unless(ParkStatusRelaxed);
        self.0.store(number.0 << NUMBER | OPEN | SAVED | Status::Waiting as u64, release);
    }

    /// Called instead of `park`, by an owner that publishes the wait by itself and sleeps later, by `park_again`. No other
    /// thread yet knows the number.
    pub(crate) fn announce(&self, number: WaitNumber) {
        let saved = SAVED;
        mutant!(AnnounceUnsaved: let saved = 0);
        // Relaxed: the commit hook publishes the number with the record, and no thread reads the context of a Running word.
        self.0.store(number.0 << NUMBER | OPEN | saved | Status::Running as u64, Relaxed);
    }

    /// Waiting → Running, by the M whose commit hook refused, if no waker was faster.
    pub(crate) fn cancel_park(&self, number: WaitNumber) -> CancelPark {
        // Acquire: a holder has read the stack: partner `unhold`. Release: a holder that finds DEFERRED there makes the G run,
        // and the hook, which lay on the G's stack, was read before.
        self.update(
            both(Acquire.unless(CancelParkWithoutAcquire), Release.unless(CancelParkWithoutRelease)),
            |word| {
                // The wait was claimed although it was not published: by its timer, which readies the owner, or because the
                // runtime ends.
                if !word.open(number) {
                    return (None, CancelPark::Gone);
                }
                let refused = word.set(REFUSED);
                if word.has(SCAN).unless(CancelParkIgnoresScan) {
                    (Some(refused.set(DEFERRED)), CancelPark::Gone)
                } else {
                    (Some(refused.with_status(Status::Running)), CancelPark::Resume)
                }
            },
        )
    }

    /// Running → Waiting, by the M, after the save, in a wait that other threads know; refuses if a ready or nudge has come
    /// meanwhile.
    pub(crate) fn park_again(&self, number: WaitNumber) -> Again {
        // Release: as in `park`, with its partner, and for the M that runs the owner next. `why` acquires what a waker has
        // published meanwhile.
        self.update(Release.unless(ParkAgainRelaxed), |word| {
            debug_assert!(word.number() == number && word.has(OPEN), "park_again: not its wait ({word:?})");
            // `REFUSED` does not count: an owner that waits for the timer that has claimed a refused wait sleeps like any
            // other.
            let anything = word.0 & (READY | NUDGED) != 0;
            if anything.unless(ParkAgainBlind) {
                (None, Again::Awake)
            } else {
                (Some(word.with_status(Status::Waiting)), Again::Asleep)
            }
        })
    }

    /// Returns `true` if the owner is parked, and the wait is neither claimed, refused nor deferred. `NUDGED` on a Waiting word
    /// does not mean that the owner is awake. Either the commit hook is not over, and an M has the owner; or the owner listens
    /// for no interrupt in this wait, and the mark stays until the wait ends.
    pub(crate) fn is_asleep(&self) -> bool {
        // Acquire: partner `park`, which publishes the reason for which the owner waits. The reason is no cell of loom's, so no
        // model has this Acquire.
        Self::sleeps(self.load(Acquire))
    }

    fn sleeps(word: Word) -> bool {
        mutant!(SleeperMarksIgnored: let word = word.clear(DEFERRED | CLAIMED | READY | REFUSED));
        let awake = DEFERRED | CLAIMED | READY | REFUSED;
        mutant!(NudgedSleepersAwake: let awake = awake | NUDGED);
        word.status() == Status::Waiting && word.has(OPEN) && word.0 & awake == 0
    }

    /// Returns `true` if the owner is queued, or about to be, and no M has taken it since.
    pub(crate) fn is_runnable(&self) -> bool {
        // Relaxed: the caller holds the lock under which the owner was queued.
        self.load(Relaxed).status() == Status::Runnable
    }

    /// For the ender: returns what the owner is doing.
    pub(crate) fn doing(&self) -> Doing {
        // Acquire: partners `park`, which publishes how the wait can end and which M has parked the owner, and `finish`.
        match self.load(Acquire.unless(DoingRelaxed)) {
            word if word.status() == Status::Idle => Doing::Ended,
            word if Self::sleeps(word) => Doing::Sleeps(Asleep(word)),
            _ => Doing::Runs,
        }
    }

    /// Returns `true` if the word has not changed since it was `found`.
    pub(crate) fn sleeps_still(&self, found: &Asleep) -> bool {
        // Relaxed: `doing` has acquired the word with which this one is compared, and the end of the goroutine that woke this
        // one.
        mutant!(ShutdownTrustsOneLook: return true);
        self.load(Relaxed).clear(SCAN) == found.0.clear(SCAN)
    }

    /// The runtime ends: claims the wait for the owner, if the word is still as it was found, and makes the owner run and find
    /// the claim. The caller knows that the commit hook has returned.
    pub(crate) fn claim_for_end(&self, found: &Asleep) -> Then {
        // Relaxed: the word is unchanged since `doing` acquired it. An M that takes a held G out of a queue leaves the G to the
        // dump (`run`).
        self.update(Relaxed, |word| {
            if (word.clear(SCAN) != found.0.clear(SCAN)).unless(ShutdownCallsBlindly) {
                return (None, Then::Leave);
            }
            (Some(word.set(CLAIMED | CLAIMED_FOR_END).with_status(Status::Runnable)), Then::Queue)
        })
    }

    /// Makes the owner of a published wait look again.
    pub(crate) fn nudge(&self, number: WaitNumber) -> Then {
        // Release: publishes what the owner is to see: partners `why` and `look`. Acquire: as in `ready`, with the same
        // partners.
        self.update(both(Acquire.unless(NudgeWithoutAcquire), Release.unless(NudgeRelaxed)), |word| {
            if word.open(number) { Self::nudged(word) } else { (None, Then::Leave) }
        })
    }

    /// Called after the commit hook: from here on threads may nudge the owner. Carries out a nudge that came earlier. `nudged`:
    /// the caller saw at P3 (`interrupt.rs`) that the owner is interrupted.
    pub(crate) fn make_known(&self, number: WaitNumber, nudged: bool) -> Then {
        // Release: the hook has written where the owner's timer stands, and a thread that nudges the owner makes it run:
        // partners `nudge` and `nudge_any`. Acquire: as in `ready`, with the same partners. No model has this Acquire: there
        // the caller's ring is full, so that the caller writes the links of the owner, which was nudged by number meanwhile,
        // has run elsewhere, and sleeps on.
        self.update(both(Acquire, Release.unless(KnownRelaxed)), |word| {
            if !word.open(number) {
                return (None, Then::Leave);
            }
            let known = word.set(KNOWN);
            if nudged || word.has(NUDGED) { Self::nudged(known) } else { (Some(known), Then::Leave) }
        })
    }

    /// Makes the owner look again, whatever its wait. Does nothing to an owner that is not saved yet: after the save the
    /// owner's M looks at what the caller has written. The caller and the M each execute a fence in between (`interrupt.rs`).
    pub(crate) fn nudge_any(&self) -> Then {
        // Acquire: as in `ready`, with the same partners, and `make_known`. No Release: the caller's fence comes before.
        self.update(Acquire.unless(NudgeAnyRelaxed), |word| {
            // If the park was refused, the owner is about to close the wait, perhaps with a store, so a mark would be useless.
            // A mark would be harmless: without KNOWN it queues no goroutine, and the close clears it.
            if !word.has(OPEN | SAVED) || word.has(CLAIMED) || word.has(REFUSED) {
                (None, Then::Leave)
            } else if word.has(KNOWN) {
                Self::nudged(word)
            } else {
                mutant!(EarlyNudgeLost: return (None, Then::Leave));
                mutant!(EarlyNudgeToSleepersOnly: if word.status() != Status::Waiting { return (None, Then::Leave) });
                // The commit hook might still write to the owner's stack, so the owner is not queued here; `make_known` does
                // that after the hook. The owner might already be awake: `nudge` by number does not wait for the hook.
                (Some(word.set(NUDGED)), Then::Leave)
            }
        })
    }

    fn nudged(word: Word) -> (Option<Word>, Then) {
        let looks = word.set(NUDGED);
        match word.status() {
            Status::Waiting if !word.has(SCAN) => (Some(looks.with_status(Status::Runnable)), Then::Queue),
            Status::Waiting => {
                mutant!(NudgeIgnoresScan: return (Some(looks), Then::Leave));
                (Some(looks.set(DEFERRED)), Then::Leave)
            }
            // The owner is awake, and finds the mark before it sleeps on.
            _ => (Some(looks), Then::Leave),
        }
    }

    /// Returns why the owner runs again, and takes a nudge.
    #[inline]
    pub(crate) fn why(&self, number: WaitNumber) -> Why {
        // Acquire: all that `ready`, the partner, has published. Most often the owner gets that through a queue, or the note,
        // but not if it was awake.
        let word = self.load(Acquire.unless(WhyRelaxed));
        debug_assert!(word.number() == number, "why: not the owner's wait ({word:?})");
        if word.has(READY) { Why::Readied } else { self.look(word) }
    }

    #[cold]
    fn look(&self, mut word: Word) -> Why {
        loop {
            if word.has(READY) {
                return Why::Readied;
            }
            if word.has(REFUSED) {
                return Why::Refused;
            }
            if word.has(CLAIMED_FOR_END) {
                return Why::ClaimedForEnd;
            }
            if !word.has(NUDGED) {
                return Why::Nothing;
            }
            // Acquire: all that was written before the nudge: partner `nudge`; or, on failure, all that was published by then.
            let acquire = Acquire.unless(LookRelaxed);
            match self.0.compare_exchange(word.0, word.clear(NUDGED).0, acquire, acquire) {
                Ok(_) => return Why::Nudged,
                // `Nudged` would be a correct answer here, too: the owner would look once more, and then `park_again` would
                // refuse, or its claim would fail.
                Err(now) => word = Word(now),
            }
        }
    }

    /// Ends a wait that no other waker has claimed or will claim: a wait that was not published, or was claimed by the
    /// owner.
    pub(crate) fn close_wait(&self, number: WaitNumber) {
        let word = self.load(Relaxed);
        debug_assert!(word.number() == number && !word.has(READY), "close_wait: not its wait ({word:?})");
        // Relaxed: no other thread writes the word of a running owner now (invariant 1).
        self.0.store(word.clear(OF_A_WAIT).0, Relaxed);
    }

    /// (number, open) → (number, claimed). Returns `true` if the caller has won. A waker that has won has to wake the owner, by
    /// `ready`; an owner that has won calls `close_wait`, and no `ready` ever comes.
    #[inline]
    pub(crate) fn claim(&self, number: WaitNumber) -> bool {
        // Relaxed: the claim decides which waker wins, and orders nothing. The queue in which the waker found the record has
        // published what the owner wrote before the park; `ready` publishes the waker's writes to the owner.
        mutant!(ClaimLooksTimed: return self.claim_by_timer(number));
        self.claim_as(number, CLAIMED)
    }

    /// As `claim`, by the wait's timer, which the caller has taken out of its heap.
    #[inline]
    pub(crate) fn claim_by_timer(&self, number: WaitNumber) -> bool {
        self.claim_as(number, CLAIMED | TIMED)
    }

    #[inline(always)]
    fn claim_as(&self, number: WaitNumber, as_what: u64) -> bool {
        // Relaxed: see `claim`.
        self.update(
            Relaxed,
            |word| {
                if word.open(number) { (Some(word.set(as_what)), true) } else { (None, false) }
            },
        )
    }

    /// Returns `true` if the wait's timer has claimed the wait, and so stands in no heap. For the owner, whose wait is readied.
    #[inline]
    pub(crate) fn was_timed(&self) -> bool {
        // Relaxed: the claim came before the ready, which `why` has acquired.
        self.load(Relaxed).has(TIMED)
    }

    /// Returns `true` if a claim would succeed now.
    pub(crate) fn is_open(&self, number: WaitNumber) -> bool {
        // Relaxed: a guess, which only a claim confirms.
        self.load(Relaxed).open(number)
    }

    /// The end of the runtime: claims the wait of a parked owner, whatever its number, and never readies it. Returns `true` if
    /// the goroutine was parked; then no M runs that goroutine again.
    pub(crate) fn seize(&self) -> bool {
        // Acquire: the owner's hook, written before the park: partner `park`. No model has the Acquire: `run_of` takes the hook
        // by an exchange, which reads the latest value, and a model's hook is made of loom's words.
        self.update(Acquire, |word| match word.status() {
            Status::Waiting if !word.has(CLAIMED) => {
                mutant!(SeizeLeavesOpen: return (None, true));
                (Some(word.set(CLAIMED)), true)
            }
            _ => (None, false),
        })
    }

    /// As `seize`, for a runnable goroutine that the caller alone has to queue, and that no M will run: the caller has taken
    /// the goroutine out of a run queue for good, or has readied or nudged it and found that its scheduler had gone. The
    /// goroutine may be in the middle of an open wait: a nudge has made it runnable, or it came back without a P.
    ///
    /// Returns `false` if a waker has claimed that wait, and not yet readied the owner. That waker might be writing to the
    /// owner's record, so no abandon hook may run now. The owner is parked again, and the caller leaves the owner to the waker,
    /// which queues it, and finds that the runtime has ended.
    #[must_use]
    pub(crate) fn seize_queued(&self) -> bool {
        // Acquire: what a waker that found the owner queued has handed over: partner `ready`. Release: the caller, which has
        // taken the owner out of a queue, no longer uses the links: partner `ready`. Queue and nudge have published all else.
        let (acquire, release) =
            (Acquire.unless(SeizeQueuedWithoutAcquire), Release.unless(SeizeQueuedWithoutRelease));
        self.update(both(acquire, release), |word| {
            word.assert(word.is(Status::Runnable), "seize_queued: the G is not runnable");
            if !word.has(OPEN) {
                return (None, true);
            }
            // CLAIMED alone: by a waker, by an owner that has claimed its wait to `stay`, or by a `seize` while a dump held the
            // owner. The last two run the hook themselves, and no thread readies the owner.
            let hands_over = word.0 & (CLAIMED | READY | CLAIMED_FOR_END) == CLAIMED;
            mutant!(SeizeQueuedPassesTheWaker: let hands_over = false);
            mutant!(SeizeQueuedAwaitsTheEnder: let hands_over = word.has(CLAIMED) && !word.has(READY));
            if hands_over {
                mutant!(SeizeQueuedStaysRunnable: return (None, false));
                return (Some(word.with_status(Status::Waiting)), false);
            }
            mutant!(SeizeQueuedLeavesOpen: return (None, true));
            // A word that was readied is exchanged for itself: for the Acquire.
            (Some(word.set(CLAIMED)), true)
        })
    }

    /// Tells the owner of a claimed wait to go on.
    #[inline]
    pub(crate) fn ready(&self) -> Then {
        // Release: publishes what the waker hands over, to the holder that finds DEFERRED, and from the holder to the owner:
        // partners `unhold` and `why`. If no dump holds the G, the queue into which the caller puts the G publishes that, or
        // the note of a thread. Acquire: an owner that was nudged might have been in a queue since the caller learned of that
        // owner; the M that took the owner out there, by `run`, or the ender, by `seize_queued`, no longer uses the links.
        self.update(both(Acquire.unless(ReadyWithoutAcquire), Release.unless(ReadyRelaxed)), |word| {
            word.assert(
                word.has(CLAIMED) && !word.has(READY),
                "ready: the wait was not claimed, or readied twice",
            );
            if !word.is(Status::Waiting) {
                // A plain thread, which counts as Running even while it sleeps, or an owner that is awake.
                (Some(word.set(READY)), Then::Leave)
            } else if !word.has(SCAN) {
                (Some(word.with_status(Status::Runnable).set(READY)), Then::Queue)
            } else {
                mutant!(ReadyIgnoresScan: return (Some(word.set(READY)), Then::Leave));
                (Some(word.set(READY | DEFERRED)), Then::Leave)
            }
        })
    }

    /// Sets the scan bit on a Waiting or Runnable word, and returns the status; `None` for any other status. The caller holds
    /// the G until `unhold`. While another caller holds the G this call waits, no longer than it takes to read a G.
    pub(crate) fn hold(&self) -> Option<Status> {
        loop {
            // Acquire: the context that the M has saved: partners `park` and `requeue`.
            let held = self.update(Acquire.unless(HoldRelaxed), |word| match word.status() {
                Status::Waiting | Status::Runnable if word.has(SCAN).unless(HoldTwice) => (None, Err(())),
                status @ (Status::Waiting | Status::Runnable) => (Some(word.set(SCAN)), Ok(Some(status))),
                _ => (None, Ok(None)),
            });
            match held {
                Ok(held) => return held,
                Err(()) => relax(),
            }
        }
    }

    /// Clears the scan bit, and takes over the queueing that was deferred meanwhile.
    pub(crate) fn unhold(&self) -> Then {
        // Release: the stack was read before the next M runs on it: partners `run`, `cancel_park` and `discard`. Acquire: the M
        // or waker that has set DEFERRED has released the G: partners `run`, `cancel_park` and `ready`.
        self.update(
            both(Acquire.unless(UnholdWithoutAcquire), Release.unless(UnholdWithoutRelease)),
            |word| {
                assert!(word.has(SCAN), "unhold: not held ({word:?})");
                let free = word.clear(SCAN | DEFERRED);
                mutant!(UnholdKeepsDeferred: let free = word.clear(SCAN));
                if word.has(DEFERRED) {
                    (Some(free.with_status(Status::Runnable)), Then::Queue)
                } else {
                    (Some(free), Then::Leave)
                }
            },
        )
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests;
