//! The hand-off word of a P: it says, without a lock, whether an M still holds the P.
//!
//! A P is idle, held by one M, or about to be taken from an M that does not come back to the runtime. The word
//! holds a generation, how the holder of that generation enters the runtime, and one of four states:
//!
//! | state | meaning |
//! | --- | --- |
//! | Idle | the holder of this generation keeps the P, or no M holds it |
//! | Requested | a retaker looks whether the holder is inside the runtime; a holder that enters withdraws the request |
//! | Demanded | as Requested, but a holder that enters with the goroutine of the word's tick *cedes* the P: sets Taken |
//! | Taken | the holder of this generation has lost the P |
//!
//! *The obvious way* has no Demanded: a holder that enters before R3 keeps its P. But R1 to R3 take microseconds, in which a
//! goroutine that forks or spawns enters again and again: its M would always enter before R3, and keep the P for ever. So a
//! retaker demands a P whose goroutine has run for a time slice while others waited, and a surplus P
//! (`sched/threads/retake.rs`). A holder that cedes its P goes on like a holder whose P was taken just before it entered; so a
//! holder can cede at any entry. The retaker's exchange at R3 finds Taken, and the retaker hands the P on. A demand ends with
//! R3, and names the tick of the P at which the goroutine began: the next goroutine of the same lease withdraws the demand,
//! because the retaker has not judged that goroutine. The word has 16 bits of the tick. No M can use a ceded P before the
//! retaker's R3. So a retaker whose barrier might take long first *downgrades* the demand: it changes Demanded to Requested.
//!
//! An M or a retaker that gives a P up, in any way, moves the word to (generation + 1, Idle) before another M can see that P;
//! an M that acquires the P moves the word on once more, and remembers that value, its lease. So an M that was away for long
//! finds another generation than that of its lease, and knows that the P is lost, however often the P has changed hands since.
//! And a retaker that judged an idle P finds that the P has been acquired.
//!
//! How a holder enters ([`Entries`]) is fixed for the whole lease when the holder acquires the P. A retaker reads it in the
//! same word that it exchanges, so both sides use the same barrier, whatever the kernel refuses in between.
//!
//! `m/mod.rs` has the order of events of both sides; `sched/threads/retake.rs` says which M a retaker chooses, and why. Checked
//! by `models/window.rs`.

use crate::prim::hooks::*;
use crate::prim::{AcqRel, Acquire, AtomicU64, Relaxed, Release};
use std::cell::Cell;

const STATE: u64 = 0b11;
const IDLE: u64 = 0;
const REQUESTED: u64 = 1;
const TAKEN: u64 = 2;
const DEMANDED: u64 = 3;
/// `Entries::Quick`. While no M holds the P, this bit is as the last holder left it.
const QUICK: u64 = 4;
/// Of `DEMANDED`: the lower half of the P's tick.
const TICK: u64 = 0xffff * TICK_STEP;
const TICK_STEP: u64 = 8;
const STEP: u64 = 0x1_0000 * TICK_STEP;
/// The bits that are not the lease: the state, and the tick of a demand.
const ASKED: u64 = STATE | TICK;

/// How the holder of a P enters the runtime.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Entries {
    /// By a store and a load. A retaker makes the M's thread pass a barrier.
    Quick,
    /// By a store and a load with a fence between them. A retaker fences, too.
    Fenced,
}

/// What a retaker asks of a holder that enters while the retaker looks.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Ask {
    /// Nothing: a holder that comes back keeps the P.
    IfAway,
    /// To give the P up, if the goroutine that began at this tick of the P still runs.
    InAnyCase(u32),
}

impl Ask {
    fn state(self) -> u64 {
        match self {
            Ask::IfAway => REQUESTED,
            Ask::InAnyCase(tick) => DEMANDED | (u64::from(tick) * TICK_STEP) & TICK,
        }
    }
}

/// The value of the word that an M remembers when it acquires a P, and a retaker when it judges the holder: the lease's
/// generation, Idle.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Lease(u64);

impl Lease {
    /// Returns how the holder enters.
    pub(crate) fn entries(self) -> Entries {
        if self.0 & QUICK == 0 { Entries::Fenced } else { Entries::Quick }
    }
}

/// What the word says to the M that enters the runtime.
#[derive(Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Entry {
    /// The M still has the P.
    In,
    /// The P was taken away.
    Lost,
}

/// Which lease has the P: see the module's header.
#[derive(Debug)]
pub(crate) struct HandoffWord(AtomicU64);

impl HandoffWord {
    pub(crate) fn new() -> Self {
        HandoffWord(AtomicU64::new(IDLE))
    }

    /// Acquires the P. Returns the new lease, which the acquirer remembers. The lease has a new generation, so the request of a
    /// retaker that judged an idle P fails.
    pub(crate) fn take_up(&self, entries: Entries) -> Lease {
        let word = self.0.load(Relaxed);
        let quick = if entries == Entries::Quick { QUICK } else { 0 };
        let fresh = ((word & !(ASKED | QUICK)) + STEP) | quick;
        // A swap and not a store, as in `give_up`. Release: partner `judge`, which reads the holder after this. Acquire:
        // partner the exchanges of `give_up` and of a retaker. No model has either: the exchange continues the release sequence
        // of the last `give_up`, so a retaker that reads it finds this holder or none, and no older one; what was done to the P
        // before is visible by the central lock, or by the assignment.
        self.0.swap(fresh, AcqRel);
        Lease(fresh)
    }

    /// Returns how often the P was acquired and given up: for a trace, and for the monitor, which asks whether an M has held
    /// the P.
    pub(crate) fn changes(&self) -> u64 {
        self.0.load(Relaxed) / STEP
    }

    /// Returns `true` if the M of `lease` holds the P, and no retaker asks for it: one load. Relaxed: the barriers on both
    /// sides order the look, not the load (`Window::enter`, `Sched::retake`).
    #[inline(always)]
    pub(crate) fn is_held(&self, lease: Lease) -> bool {
        self.0.load(Relaxed) == lease.0
    }

    /// The rest of an entry that found the word changed. `tick` is that of the P, as the M knows it.
    #[cold]
    pub(crate) fn enter(&self, lease: Lease, tick: u32) -> Entry {
        loop {
            let word = self.0.load(Relaxed);
            if word == lease.0 {
                return Entry::In;
            }
            if word & !ASKED != lease.0 || word & STATE == TAKEN {
                return Entry::Lost;
            }
            mutant!(WindowEnterBlind: return Entry::In);
            let cedes = word == lease.0 | Ask::InAnyCase(tick).state();
            mutant!(WindowNeverCedes: let cedes = false);
            let (next, entry) = if cedes { (lease.0 | TAKEN, Entry::Lost) } else { (lease.0, Entry::In) };
            // AcqRel: partners are R1 of this request and of the next, which sees that this M was inside; and R3 of this
            // request, which fails after this exchange: that tells the retaker, which then sees what was done to a P that was
            // ceded. No model has that Release, because EntryBarrier is a fence there.
            if self.0.compare_exchange(word, next, AcqRel, Relaxed).is_ok() {
                return entry;
            }
        }
    }

    /// Gives the P up, which changes hands or becomes idle: from here on no old lease counts.
    pub(crate) fn give_up(&self) {
        let word = self.0.load(Relaxed);
        let next = (word & !ASKED) + STEP;
        mutant!(WindowSameGeneration: let next = word & !ASKED);
        // A swap and not a store: a retaker's CAS can come at the same time, and one of the two has to see the other. Release:
        // partners `judge`, and the next `take_up`. Acquire: partner R3, after which the retaker gives the P up. No model has
        // the Acquire: the giver is the holder, or has taken the P from one that it saw leave (`is_inside`).
        self.0.swap(next, both(Acquire, Release.unless(GiveUpRelaxed)));
    }
}

/// The retaker's side. A word has one retaker at a time.
impl HandoffWord {
    /// Returns the lease that a retaker is about to judge. After this the retaker reads which M is the holder.
    pub(crate) fn judge(&self) -> Lease {
        // Acquire: partner `take_up`. The holder that is read next is the one of this lease, or a later one; in the second case
        // the exchange of R1 fails.
        Lease(self.0.load(Acquire.unless(JudgeRelaxed)) & !ASKED)
    }

    /// After R1, if the barrier might take long: turns a demand into a request, so that a holder that enters from here on keeps
    /// the P. Returns `false` if the holder has already withdrawn the demand, ceded the P or given it up.
    fn downgrade(&self, idle: u64, asked: &Cell<u64>) -> bool {
        // Relaxed: the exchange continues the release sequence of R1, and R3 reads again what the holder has answered.
        let downgraded = self.0.compare_exchange(asked.get(), idle | REQUESTED, Relaxed, Relaxed).is_ok();
        if downgraded {
            asked.set(idle | REQUESTED);
        }
        downgraded
    }

    /// For models: returns `true` if the retaker waits at R3, and the holder has not answered.
    #[cfg(all(test, gmp_loom))]
    pub(crate) fn is_asked(&self) -> bool {
        matches!(self.0.load(Relaxed) & STATE, REQUESTED | DEMANDED)
    }

    /// R1 to R3 of `m/mod.rs`. Returns `true` if the P now belongs to the retaker, which calls `give_up` before it hands the P
    /// on.
    ///
    /// `barrier` executes RetakeBarrier, and returns `false` if that was not possible. The argument of `barrier` calls
    /// `downgrade`, for a barrier that might take long.
    pub(crate) fn retake(
        &self,
        judged: Lease,
        ask: Ask,
        barrier: impl FnOnce(&dyn Fn() -> bool) -> bool,
        is_inside: impl FnOnce() -> bool,
    ) -> bool {
        let idle = judged.0;
        let asked = Cell::new(idle | ask.state());
        // R1. AcqRel: partners `take_up`, and the exchange of `enter` that withdraws the request. The exchange names the
        // generation that was judged: another lease needs another judgement. No model has either: `judge` has acquired the
        // lease, and RetakeBarrier, a fence in a model, comes between this and all that is read next.
        if self.0.compare_exchange(idle, asked.get(), AcqRel, Relaxed).is_err() {
            return false;
        }
        // RetakeBarrier. Between the request above and the look at `in_runtime`; partners: EntryBarrier and EntryFence.
        let seen = barrier(&|| self.downgrade(idle, &asked));
        // R3. A failed exchange means that the holder has come back, has ceded the P, or has given it up.
        let inside = !seen || is_inside().unless(WindowBlind);
        let next = if inside { idle } else { idle | TAKEN };
        // AcqRel: partners `enter` and `give_up`: of their exchange and this one, the later one fails or sees the other. No
        // model has either: `is_inside`, which saw the holder leave, acquires what it did, and the P goes on by `give_up`.
        // Acquire on failure: partner the exchange of `enter` that cedes.
        let before = self.0.compare_exchange(asked.get(), next, AcqRel, Acquire.unless(CededUnseen));
        mutant!(RetakeForgetsTheCeded: return before.is_ok() && next != idle);
        match before {
            Ok(_) => next != idle,
            Err(word) => word == idle | TAKEN,
        }
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_holder_finds_its_p_lost_however_often_it_has_changed_hands() {
        let word = HandoffWord::new();
        let first = word.take_up(Entries::Quick);
        assert!(word.is_held(first));
        word.give_up();
        assert!(!word.is_held(first));
        assert_eq!(word.enter(first, 7), Entry::Lost);
        let second = word.take_up(Entries::Quick);
        assert_eq!(word.enter(first, 7), Entry::Lost);
        assert_eq!(word.enter(second, 7), Entry::In);
    }

    #[test]
    fn a_holder_that_enters_in_time_withdraws_the_request() {
        let word = HandoffWord::new();
        let held = word.take_up(Entries::Quick);
        let comes_back = || {
            assert!(!word.is_held(held));
            assert_eq!(word.enter(held, 7), Entry::In);
            false
        };
        assert!(!word.retake(word.judge(), Ask::IfAway, |_| true, comes_back));
        assert!(word.is_held(held));
    }

    /// Fails if a goroutine that enters often keeps its P for ever, by withdrawing each request in time.
    #[test]
    fn a_holder_that_enters_cedes_a_p_that_is_demanded() {
        let word = HandoffWord::new();
        let held = word.take_up(Entries::Quick);
        let enters = |tick, entry| {
            let word = &word;
            move |_: &dyn Fn() -> bool| {
                assert!(!word.is_held(held));
                assert_eq!(word.enter(held, tick), entry);
                true
            }
        };
        // A goroutine other than the one that was judged keeps the P, even if it has left again.
        for inside in [true, false] {
            let asked = Ask::InAnyCase(7);
            assert!(!word.retake(word.judge(), asked, enters(8, Entry::In), || inside));
            assert!(word.is_held(held));
        }
        let asked = Ask::InAnyCase(0x1_0007);
        assert!(word.retake(word.judge(), asked, enters(0x1_0007, Entry::Lost), || true));
        assert_eq!(word.enter(held, 0x1_0007), Entry::Lost);
        let changes = word.changes();
        word.give_up();
        let next = word.take_up(Entries::Quick);
        assert_eq!((word.changes(), word.enter(next, 7)), (changes + 2, Entry::In));
    }

    /// Fails if a holder that has been inside all the time loses the P that it uses, or loses it later, when no retaker asks
    /// for it any more.
    #[test]
    fn a_demand_ends_with_the_look() {
        let word = HandoffWord::new();
        let held = word.take_up(Entries::Quick);
        assert!(!word.retake(word.judge(), Ask::InAnyCase(7), |_| true, || true));
        assert!(word.is_held(held));
        assert!(word.retake(word.judge(), Ask::InAnyCase(7), |_| true, || false), "the holder is away");
    }

    /// Fails if a holder gives up a P that no M can use before a long barrier, or loses a P that it has kept.
    #[test]
    fn a_retaker_that_relents_leaves_the_p_to_a_holder_that_enters() {
        let word = HandoffWord::new();
        let held = word.take_up(Entries::Quick);
        let asked = Ask::InAnyCase(7);
        let downgrades_first = |downgrade: &dyn Fn() -> bool| {
            assert!(downgrade());
            assert_eq!(word.enter(held, 7), Entry::In);
            true
        };
        assert!(!word.retake(word.judge(), asked, downgrades_first, || false));
        assert!(word.is_held(held));
        let relents_late = |downgrade: &dyn Fn() -> bool| {
            assert_eq!(word.enter(held, 7), Entry::Lost);
            downgrade()
        };
        assert!(word.retake(word.judge(), asked, relents_late, || true), "it was ceded");
        word.give_up();
        word.take_up(Entries::Quick);
        assert!(word.retake(word.judge(), asked, |downgrade| downgrade(), || false), "the holder is away");
    }

    /// Fails if a retaker takes a holder that fences for one that doesn't, or the other way round.
    #[test]
    fn how_a_holder_enters_is_known_as_long_as_it_holds_the_p() {
        let word = HandoffWord::new();
        for entries in [Entries::Quick, Entries::Fenced, Entries::Fenced, Entries::Quick, Entries::Quick] {
            let held = word.take_up(entries);
            assert_eq!((held.entries(), word.judge().entries()), (entries, entries));
            let changes = word.changes();
            assert!(!word.retake(word.judge(), Ask::IfAway, |_| true, || true), "the holder is inside");
            assert!(word.is_held(held));
            word.give_up();
            assert!(!word.is_held(held));
            assert_eq!(word.changes(), changes + 1);
        }
    }

    #[test]
    fn a_retaker_takes_a_p_whose_holder_is_away_and_no_other() {
        let word = HandoffWord::new();
        let held = word.take_up(Entries::Quick);
        let judged = word.judge();
        assert!(!word.retake(judged, Ask::IfAway, |_| true, || true), "the holder is inside");
        assert!(
            !word.retake(judged, Ask::IfAway, |_| false, || false),
            "nobody can tell where the holder is"
        );
        assert_eq!(word.enter(held, 7), Entry::In);
        assert!(word.retake(judged, Ask::IfAway, |_| true, || false));
        assert_eq!(word.enter(held, 7), Entry::Lost);
        word.give_up();
        let next = word.take_up(Entries::Quick);
        assert!(!word.retake(judged, Ask::IfAway, |_| true, || false), "another lease was judged");
        assert_eq!(word.enter(next, 7), Entry::In);
    }
}
