//! The lines that the protocols need, by name.
//!
//! This is one long file because it is one table: a name that stands twice in an enum does not compile, and a reader of a
//! protocol finds its mutants side by side.

/// The mutants: each switches off or weakens, in a model, one line of shipped code that a protocol needs. loom must fail
/// without that line; the lists in `models/*.rs` say in which model.
///
/// Grouped by protocol: by the module of models that must find the mutant, or by the folder of the line.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
#[cfg_attr(
    any(feature = "generator", not(target_arch = "x86_64")),
    allow(dead_code, reason = "the backend `generator` does without some of the files")
)]
pub enum Mutant {
    // Submitting, and going idle (`models/submit_vs_idle.rs`).
    /// A submitter makes a goroutine the next of its P and wakes no M.
    SubmitNoWake,
    /// `wakep` wakes no M.
    WakepWakesNobody,
    /// A submitter looks for an idle P before it makes its goroutine the next of its P.
    SubmitWakeFirst,
    /// The same, for several goroutines that a notifier readies together.
    SubmitEachWakesFirst,
    /// A submitter that finds only the blocked poller does not break its wait.
    SubmitNoBreak,
    /// A submitter that makes a goroutine the next of its P reads the census without SubmitFence.
    SubmitNoFence,
    /// The same, for several goroutines that a notifier readies together.
    SubmitEachNoFence,
    /// `wakep` reads the census without SubmitFence.
    WakepNoFence,
    /// An M that gives up looks at the queues without IdleFence.
    IdleNoFence,
    /// An M that gives up does not look again.
    IdleNoRecheck,
    /// An M that gives up looks again before it has given up.
    IdleLooksFirst,
    /// An M that gives up looks again only if it spun.
    IdleOnlySpinnersLook,
    /// An M gives up although the global queue is not empty.
    IdleSkipsGlobal,
    /// An M that sees work after giving up searches without being counted.
    RecheckDoesNotSpin,
    /// An M that stops spinning because it found work wakes no M.
    SpinnerWakesNobody,
    /// An M that stops spinning because it found work looks for more before it leaves the count.
    SpinnerLooksFirst,
    /// An M that stops spinning because it found work leaves the count, and looks for more without SpinnerFence.
    SpinnerNoFence,
    /// An M that stops spinning because it found work does not look at the global queue.
    SpinnerSkipsGlobal,
    /// An M that looks at the queues of others is not counted as spinning.
    ThiefDoesNotSpin,
    /// A submitter that finds no idle P after all leaves the count of spinning Ms after the lock.
    WakepUndoesLate,
    /// An M that sees work after giving up takes a P although it was given one.
    RecheckTakesAnyP,
    /// A starter whose thread was refused wakes no M for the work that was left to the new M.
    RefusedStartWakesNobody,
    /// A refused thread begins no pause.
    RefusedThreadIsAskedForAgain,
    /// No thread is asked for in the pause after a refused one, although no M lives.
    PauseWithoutAnM,
    /// The monitor does not ask for the threads that a pause has kept from work.
    PauseStrandsItsWork,
    /// An M that stands by leaves the claim to spin to an M that is being started.
    StartKeepsItsClaim,
    /// An M that goes to the poller leaves the claim to spin to an M that is being started.
    PollerLeavesTheClaim,
    /// An M that sleeps on its note leaves the claim to spin to an M that is being started.
    NoteLeavesTheClaim,
    /// A new M whose claim to spin was taken over does not count itself.
    RelievedStartCountsNot,
    /// A starter that found no M for a P leaves it in the count of spinning Ms.
    TakeBackLeaksSpinning,
    /// A starter that found no M takes a claim to spin out of the count that another M has taken over.
    TakeBackTakesTwice,
    /// An M that gives up changes the census after the lock.
    CensusAfterTheLock,
    /// A submitter that finds no idle P after all stays in the count of spinning Ms.
    WakepLeaksSpinning,
    /// An M that is started to spin does not know that it counts.
    StartForgetsSpinning,
    /// The end of a runtime looks at the queues without StopFence.
    StopNoFence,
    /// A submitter on no M wakes no M.
    InjectWakesNobody,
    /// A plain thread that spawns wakes no M.
    SpawnOutsideWakesNobody,
    /// An owner that spills into the global queue does not publish the queue's length.
    SpillKeepsTheLength,
    /// An M that gives up reads the mask of idle Ps before it idles its P.
    MaskReadEarly,
    /// An M that was summoned and finds no P leaves the count of spinning Ms after the lock.
    SummonedInVainEndsLate,
    /// An M that was summoned and finds no P stands by in another critical section.
    SummonedInVainStandsByLate,
    /// An M that was summoned and finds no P stands by although the runtime ends.
    SummonedInVainIgnoresTheEnd,
    /// An M that was summoned and finds no P goes into the poller without SummonedInVainFence.
    SummonedInVainNoFence,
    /// `Runq::push_next` queues the displaced G after SubmitFence, as a plain store after x86's exchange would.
    DisplacedAfterFence,
    /// A thief leaves runnext alone.
    RunnextNeverStolen,
    /// `Runq::is_empty` looks at the ring only.
    EmptyIgnoresRunnext,
    /// An M without a P goes to sleep beside an idle P, for which no M was found, and beside a goroutine in the global queue.
    StopmSkipsGlobal,
    /// An M without a P that is about to sleep beside an idle P does not look at the queues of the Ps.
    StopmSkipsRings,
    /// An M without a P that is about to sleep beside an idle P looks at the queues of the Ps without StopmFence.
    StopmNoFence,

    // Jobs (`models/jobs.rs`).
    /// A forker reads the census without SubmitFence.
    JobNoFence,
    /// A forker takes any record that stands in the slot for its own.
    JobWithdrawnByPlace,
    /// An owner puts a job into the slot before the bottom, even if that slot is full.
    JobsTrimmedBlindly,
    /// An M that gives up does not look at jobs.
    JobsUnseenAtTheLastLook,
    /// An M that gives up looks at the jobs of Ps that an M holds.
    JobsOfTheIdleUnseen,
    /// A visit leaves the jobs where they are.
    VisitLeavesJobs,
    /// A taker settles a record without Release.
    JobSettleRelaxed,
    /// A taker settles a record without Acquire.
    JobSettleLooksRelaxed,
    /// A forker reads without Acquire that its record is settled.
    JobEndLooksRelaxed,
    /// A forker says without Release that it waits.
    JobWaitRelaxed,
    /// A forker sleeps without looking whether its record was settled meanwhile.
    JobWaitsBlindly,
    /// A taker wakes no forker.
    JobSettledInSilence,
    /// A forker whose `a` has unwound leaves its record to others.
    UnwindingLeavesTheJob,
    /// A forker offers its record and wakes no M.
    ForkWakesNobody,
    /// A goroutine of `go_lifo` is put among the jobs, and no M is woken.
    LifoWakesNobody,
    /// A taker that can't run a job keeps the record.
    JobKeptFromItsForker,
    /// The end of a runtime leaves jobs in their slots.
    JobsForgottenAtTheEnd,
    /// An M that gives up, and a thief, pass over the jobs of Ps that have retired.
    JobsOfTheRetiredUnseen,
    /// A thief passes over the jobs of Ps that have retired.
    JobsOfTheRetiredLeft,
    /// A P goes without an M, and its jobs are left to Ms that have nothing else to do.
    LeftJobsUnnoted,
    /// A visit takes a job that another P has left only if its own P has no job.
    LeftJobsComeLast,
    /// An M says that a P has gone without an M, and left jobs, before the P counts as idle.
    LeftJobsNotedFirst,
    /// An M says without Release that a P has gone without an M, and left jobs.
    LeftJobsNotedRelaxed,
    /// A visit asks without Acquire whether a P has left jobs.
    LeftJobsTakenRelaxed,
    /// A visit takes one of the jobs that were left, and leaves the others.
    LeftJobsOnlyOne,
    /// A visit queues a job, and wakes no M.
    QueuedJobWakesNobody,
    /// The ender does not ask whether a job is about to become a goroutine.
    EndOverlooksStarting,
    /// A thief does not say that a job is about to become a goroutine.
    StolenJobStartsUnseen,
    /// An M that has taken a job at a visit no longer says that the job is about to become a goroutine.
    QueuedJobStartsUnseen,
    /// An M says without Release that a job has become a goroutine.
    StartingEndsRelaxed,
    /// The ender asks without Acquire whether a job is about to become a goroutine.
    EndLooksForStartingRelaxed,
    /// The goroutine of a job is `Normal`, whatever the class of its forker.
    JobForgetsTheClass,
    /// A job of a goroutine below `Normal` goes before goroutines of `Low`: both looks at its class, each of which suffices.
    JobsOfTheLowerGoFirst,
    // The slots of jobs (`models/jobs_slots.rs`).
    /// An owner puts a job in without Release.
    JobPutInRelaxed,
    /// A taker takes a job without Acquire.
    JobTakeLooksRelaxed,
    /// A taker acquires by its look, and not by the exchange that takes the job.
    JobTakenByItsLook,
    /// A taker takes a job without Release.
    JobTakeRelaxed,
    /// A forker reads without Acquire that its record was taken.
    JobWithdrawLooksRelaxed,
    // Classes: the class of one goroutine (`models/class.rs`).
    /// A setter of a class stores the life of the goroutine, in place of an exchange.
    ClassByStore,
    /// A setter of a class does not see that the goroutine has ended.
    ClassAfterTheEnd,

    // Classes: which goroutine runs next, and which is forgotten (`models/classes.rs`).
    /// An M that gives up, and every check whether a P has work, leave out the batch of the P.
    BatchUnseen,
    /// `has_work`, by whose answer an M sleeps or a P goes idle, looks at the ring before the batch.
    BatchReadLast,
    /// A thief takes nothing from a batch.
    BatchNeverStolen,
    /// A thief asks twice of which class the first goroutine of its new batch is.
    BatchReadsTheClassTwice,
    /// A thief that takes several of a batch does not tell its own P that they stand there.
    StolenBatchUnalerted,
    /// A P that retires keeps its batch.
    RetireKeepsTheBatch,
    /// A starter that found no M for a P leaves the P its batch.
    TakeBackKeepsTheBatch,
    /// A goroutine that is put into the global queue stands there as if it were `Normal`.
    PushForgetsTheClass,
    /// An M that asks whether others wait passes over the queues of the classes.
    OthersOfClassesUnseen,
    /// An M that puts a goroutine into the queue of its class, and takes a job, wakes no M.
    JobBeforeTheYielderUnseen,
    /// An M that has queued a goroutine of a class, and then finds another one for its ring, wakes no M.
    FoundBesideAClassInSilence,
    /// An M that is called reads without Acquire that it is called.
    CalledInTheDark,
    /// The end of a runtime calls the Ms without Release.
    EndCallsInTheDark,
    /// No owner is called for a goroutine in the queue of a class.
    AttentionNotCalled,
    /// An owner whose batch goes back into its queue wakes no M.
    BatchGoesBackInSilence,
    /// An owner that runs a goroutine of `High` first queues the goroutine that a visit has found, and wakes no M.
    BehindHighInSilence,
    /// An owner that has no goroutine above `Low`, and takes from another P, wakes no M.
    LookBeyondWakesNobody,
    /// A goroutine of a class yields, and its M, which takes another goroutine, wakes no other M.
    ClassYieldsInSilence,

    // Mailboxes (`models/mail.rs`).
    /// A spawner that names a place wakes no M.
    SentWakesNobody,
    /// An M that gives up takes the global queue for empty beside mail.
    MailUncounted,
    /// A thief leaves mail to the owner of the mailbox.
    MailNeverStolen,
    /// A P for which there may be no further thread keeps its mail.
    MailStaysAtTheLimit,
    /// A P whose thread is refused keeps its mail.
    MailStaysWithoutAThread,
    /// A P that goes out of use keeps its mail.
    ShrinkKeepsTheMail,
    /// A submitter mails goroutines to a P that has gone out of use, and at the end of the runtime to any P.
    HintsOutliveTheirPs,

    // A turn that is given to one goroutine (`models/turn.rs`).
    /// An owner moves goroutines in its ring without a claim.
    PickUnclaimed,
    /// An owner claims a part of its own ring without Release.
    PickClaimRelaxed,
    /// An owner that has moved goroutines in its ring releases its claim without Release.
    PickRelaxed,
    /// An owner wakes no M for the goroutines that it had in hand while it picked one out.
    PickWakesNobody,

    // The queue of a P (`models/runq.rs`).
    /// An owner moves its ring's tail on without Release.
    RingTailStoreRelaxed,
    /// An owner that moves a displaced goroutine into its ring moves the tail on without Release.
    DisplacedTailRelaxed,
    /// As `DisplacedTailRelaxed`, for several goroutines together.
    NextEachTailRelaxed,
    /// A thief reads the tail without Acquire.
    RingTailLoadRelaxed,
    /// A thief reads the tail before the heads.
    RingTailReadFirst,
    /// A thief reads the heads without Acquire.
    RingHeadLoadRelaxed,
    /// `Runq::pop` stores the heads instead of exchanging them.
    RingHeadStore,
    /// `Runq::pop` moves the heads without Release.
    RingPopRelaxed,
    /// The owner looks without Acquire whether a slot is free.
    RingPushHeadRelaxed,
    /// The owner of a full ring takes half of it without Release.
    RingSpillRelaxed,
    /// An owner that keeps the older half of a full ring appends that half only after the newer half has gone.
    RingTurnsLate,
    /// An owner that takes a G moves the thief's head although a thief copies.
    RingClaimForgotten,
    /// An owner that fills its ring counts the slots from which a thief copies as room.
    RoomFromReal,
    /// A thief claims without Release.
    RingClaimRelaxed,
    /// A thief gives its claim back without Release.
    RingReleaseRelaxed,
    /// `Runq::drain` ends when it meets a thief.
    DrainLeavesToTheThief,
    /// A thief computes the room in its own ring from the position at which Gs can be taken.
    StealReckonsFromReal,
    /// A thief takes more than its own ring has room for.
    StealBeyondTheRoom,
    /// `Runq::push_next` publishes its G without Release.
    RunnextPutRelaxed,
    /// `Runq::push_next_each` publishes its last G without Release.
    NextEachPutRelaxed,
    /// `Runq::pop_next` stores null instead of exchanging.
    RunnextTakenByStore,
    /// `Runq::pop_next` takes without Release.
    RunnextPopRelaxed,
    /// A thief takes runnext without Acquire.
    RunnextStealRelaxed,
    /// `Runq::is_empty` reads the tail before runnext, and not again after it.
    EmptyTailReadFirst,
    /// `Runq::is_empty` reads the heads without Acquire.
    EmptyHeadRelaxed,
    /// `Runq::is_empty` reads runnext without Acquire.
    EmptyNextRelaxed,

    // Help between busy Ps (`models/help.rs`).
    /// A busy P takes nothing from a P whose goroutines wait.
    HelpsNobody,
    /// A helper that has put goroutines into its own queue wakes no M.
    HelpWakesNobody,

    // Visits to the global queue (`models/visits.rs`).
    /// An M that takes a goroutine from the global queue at a visit wakes no M for the goroutines that it overtakes.
    TurnWakesNobody,
    /// An M that finds goroutines in the poller at a visit queues them globally, and wakes no M.
    VisitQueuesInSilence,
    /// An M that runs an arrival before the goroutines in its queue wakes no M for these.
    ArrivalWakesNobody,
    /// An M that runs an arrival in a turn of `Normal` wakes no M for the goroutines in its queue.
    ArrivalInTurnWakesNobody,
    /// An arrival goes before a sleeper, which goes to the ring's end.
    ArrivalPutsOffTheSleeper,
    /// An M that is about to sleep does not see arrivals.
    ArrivalsUnseen,
    /// An M that runs a sleeper before the goroutines in its queue wakes no M for these.
    SleeperWakesNobody,
    /// An M looks for waiting goroutines in its ring alone, under a policy by which all stand in the global queue.
    OnlyQueueUnseen,
    /// An M queues a sleeper that was to go first, because another goroutine goes before it, and wakes no M.
    SleeperQueuedInSilence,
    /// Sleepers that become arrivals are queued, and no M is woken.
    SleeperArrivesInSilence,
    /// An M that queues a sleeper, or a goroutine that it has found in the poller, behind another goroutine wakes no M.
    FoundBesideTheRingInSilence,
    /// An M that has moved goroutines at the end of a round wakes no M for these.
    RoundWakesNobody,
    /// An M that submits no goroutine, and finds its ring full, wakes no M for the goroutines that go to the global queue. Of
    /// all callers of `spill_and_wake`, the models have a goroutine that yields, and the end of a slice.
    SpillWakesNobody,

    // How many Ps there are (`models/procs.rs`).
    /// An M goes idle with a surplus P, also when the runtime ends.
    IdleKeepsTheSurplus,
    /// A bound goroutine that yields keeps a surplus P.
    YieldKeepsTheSurplus,
    /// A starter that found no M for a surplus P makes the P idle.
    TakeBackKeepsTheSurplus,
    /// A P that retires keeps its queue.
    RetireKeepsTheQueue,
    /// An M gives a P up that is no longer surplus.
    LeaveSurplusBlindly,
    /// An M that leaves a surplus P asks for no idle one.
    LeaveSurplusAsksForNone,
    /// An M that has got another P for a surplus one searches without being counted.
    LeaveSurplusDoesNotSpin,
    /// An M that leaves a surplus P and gets no other stays in the count of spinning Ms.
    LeaveSurplusLeaksSpinning,
    /// An M that gives a surplus P away wakes no M for the P's goroutines.
    HandoffpRetiresQuietly,
    /// A change of the number of Ps sets the number in one critical section and the Ps in another.
    ProcsInTwoSections,
    /// A change to fewer Ps leaves the idle ones.
    ShrinkKeepsTheIdle,
    /// A change to more Ps wakes no M.
    GrowWakesNobody,
    /// The number of Ps can be set when no P is wanted any more, because the runtime ends.
    ProcsSetAfterTheEnd,

    // An M's note (`models/note.rs`).
    /// `Note::wake` publishes its word without Release.
    NoteWakeRelaxed,
    /// `Note::sleep` reads its word without Acquire.
    NoteSleepRelaxed,
    /// `Note::sleep_until` reads its word without Acquire.
    NoteSleepUntilRelaxed,
    /// `Note::wake` wakes before it stores the word.
    NoteWakeBeforeStore,

    // The window: leaving the runtime, retaking and handing off a P (`models/window.rs`, `models/handoffp.rs`).
    /// An M that gives a P away and makes it idle looks at the queues without HandoffpFence.
    HandoffpNoFence,
    /// An M that gives a P away and makes it idle counts the P after the lock.
    HandoffpCountsLate,
    /// An M that gives a P away and makes it idle does not look at the queues.
    HandoffpNoRecheck,
    /// A P is given up without Release.
    GiveUpRelaxed,
    /// A goroutine that comes back looks for an idle P in one critical section and is queued in another.
    ExitInTwoSections,
    /// An M enters the runtime without EntryBarrier.
    WindowNoEntryBarrier,
    /// An M enters without EntryFence where RetakeBarrier is a fence of the retaker alone.
    WindowNoEntryFence,
    /// A retaker goes on without RetakeBarrier.
    WindowNoRetakeBarrier,
    /// An M enters quickly although its lease says that it fences, as `membarrier` was refused.
    WindowStaysQuick,
    /// A retaker whose `membarrier` was refused only fences, also for an M that enters quickly.
    RetakeTakesAllForFenced,
    /// A retaker goes on to demand a P while it waits for a visit.
    VisitDemands,
    /// A retaker takes the P although the M is inside.
    WindowBlind,
    /// An M that finds its P requested goes in without taking the request back.
    WindowEnterBlind,
    /// An M that finds its P demanded withdraws the demand, as it withdraws a request.
    WindowNeverCedes,
    /// A retaker whose exchange fails reads the word without Acquire.
    CededUnseen,
    /// A retaker leaves a P that was ceded where it is.
    RetakeForgetsTheCeded,
    /// An M that gives its P up keeps the generation.
    WindowSameGeneration,
    /// A retaker judges a lease without Acquire.
    JudgeRelaxed,
    /// A retaker keeps the P that it took from all Ms.
    RetakeKeepsP,
    /// A retaker gives the P up only when the next M may already hold it.
    RetakeGivesUpLate,
    /// An M leaves the runtime without Release.
    WindowLeaveRelaxed,
    /// A retaker looks without Acquire whether the M is inside.
    WindowLookRelaxed,
    /// A retaker leaves the thread from which it has taken the P bound to that P's CPUs.
    RetakeKeepsTheCpus,
    /// A retaker gives a thread its own CPUs back although it has acquired another P meanwhile.
    UnbindLooksAtNoLease,
    /// An M that gives its P away to block its thread leaves the thread bound to the P's CPUs.
    BlockingKeepsTheCpus,
    /// An owner forbids its CPU to the thread of an M that has come.
    ForbidsAnMThatCame,
    /// A woken M does not allow its thread the CPU that was forbidden.
    WokenStaysForbidden,
    /// An M that has come asks for the CPUs that it had, and so never gets one that comes later.
    WokenLacksWhatComes,
    /// A starter does not count the threads that were asked for and have not started.
    LimitForgetsTheAsked,
    /// An M gives a P away as an idle one although its queue is not empty.
    HandoffpSkipsQueue,
    /// An M that gives a P away summons no M although goroutines stand in the global queue.
    HandoffpSkipsGlobal,
    /// A goroutine that comes back overtakes those in the global queue.
    ExitOvertakes,

    // Goroutines that are about to block, on an M without a P (`models/blockers.rs`).
    /// An M queues a blocker, and does not wake the M that it has chosen.
    BlockerWakesNobody,
    /// An M that queues a blocker leaves it to an M that is being started, although another M sleeps.
    BlockerAwaitsTheStart,
    /// An M that stands by leaves the blockers to an M that is being started.
    SleeperLeavesTheBlockers,
    /// An M queues a blocker although there is no M for it.
    BlockerQueuedAtTheLimit,
    /// An M that takes a blocker sends no M for those that are left.
    BlockerLeavesTheRest,
    /// An M that has come for the blockers still counts as on its way after it has looked.
    BlockerCountedOnLate,
    /// Blockers for which no thread can be had stay where they are.
    BlockersStay,
    /// An M that sends blockers back to the global queue does not look for an idle P afterwards.
    BlockersGoBackUnseen,
    /// An M that takes a P instead of a blocker puts the blocker into the global queue, and does not publish its length.
    BlockerInTheQueueUnseen,
    /// An M that sees work, and is sent for a blocker meanwhile, summons no other M.
    SentLeavesTheWork,

    // Bound goroutines, and threads that end (`models/locked.rs`).
    /// Any M runs a goroutine that is bound to another.
    BoundRunsAnywhere,
    /// An M brings a P to the M of a bound goroutine, and does not wake it.
    BoundNotWoken,
    /// An M whose goroutine was brought before it waited overlooks the assignment.
    BoundOverlooksAssignment,
    /// An M keeps its P while it waits for its goroutine.
    BoundKeepsItsP,
    /// An M waits for its goroutine although the runtime ends.
    BoundIgnoresTheEnd,
    /// An M brings a goroutine to its M although the runtime ends.
    BoundBroughtAtTheEnd,
    /// An M at the limit of threads wakes the M of a queued goroutine that a dump holds.
    BoundRescuedHeld,
    /// An M at the limit of threads does not look whether an M waits for a goroutine that is queued.
    BoundNotRescued,
    /// The end of a runtime wakes no M that waits for its goroutine.
    StopForgetsTheBound,
    /// An M that was not needed ends although another M has just taken it to wake it.
    IdleEndsBlindly,
    /// An M whose bound goroutine ends keeps its P, and looks for work with it.
    EndKeepsItsP,
    /// A thread that ends does not look whether a goroutine waits for a place among the threads.
    EndLooksAtNoQueue,
    /// A thread that ends does not look whether a job waits.
    EndLooksAtNoJobs,
    /// An M that queues its bound goroutine behind the goroutine that the yield has found wakes no M.
    BoundYieldsInSilence,
    /// An M that has given its P to the M of a bound goroutine stands by without a look at the global queue.
    BringerSkipsGlobal,

    // The poller (`models/poll.rs`).
    /// The M in the poller does not say that it is there.
    PollerSaysNothing,
    /// The M that waited for a timer does not run it.
    PollerRunsNoTimers,
    /// An M that arms the earliest timer does not break the poller's wait.
    TimerNoBreak,
    /// A busy M at its visits serves no timers of idle Ps.
    VisitLeavesTimers,
    /// The monitor sends no M to the poller.
    MonitorSendsNobody,
    /// A busy M that swallowed a break does not pass it on.
    SwallowedBreakKept,
    /// An M that comes back from the poller by an event looks for no P that was left for it.
    AssignmentOnlyByBreak,
    /// An M drops the goroutines that it found in the poller when no P is idle.
    PollResultsDropped,
    /// An M that has found goroutines in the poller, or among the timers, wakes no M.
    FoundWakesNobody,
    /// An M that has found goroutines of classes in the poller, or among the timers, wakes no M.
    FoundOfClassesWakesNobody,
    /// An M that saves a sleeper beside other goroutines sends no M to the poller.
    ArmSendsNobody,
    /// An M that saves a sleeper beside other goroutines, as the runtime ends, sets these aside under the lock of a wait queue.
    ArmSetsAside,
    /// The poller's M does not look at the timers before it waits.
    PollerSkipsTimers,

    // Timers and callbacks (`models/timer.rs`).
    /// An M that arms a timer looks at the poller without TimerFence.
    TimerNoFence,
    /// The poller waits until the first P's timer, which need not be the earliest.
    PollerTakesTheFirstTimer,
    /// An M notes the place of a timer after it has unlocked the heap.
    AlarmNotedLate,
    /// An M that fires a callback leaves it armed.
    FiringStaysArmed,
    /// An M takes a callback out of its heap in one critical section and disarms it in another.
    FiringInTwoSections,
    /// A caller that moves a callback to an earlier time does not wake the M in the poller.
    CallMovedInSilence,
    /// A setter of a callback sends no M to the poller where there is none.
    CallSendsNobody,
    /// A timer channel that gets another due time wakes no waiter that watches the channel.
    TickMovesNoWatcher,
    /// A receiver of a time queues its record after another section than that in which it has read the time.
    TickReceiveQueuesLate,
    /// A receiver that leaves the queue of a timer channel nudges no other.
    TurnEndsInSilence,
    /// A goroutine that its runtime leaves behind stays in the queue of a timer channel.
    TurnLeftBehind,
    /// A caller puts a callback into its P's heap after it has left the P.
    CallLeavesThePEarly,
    /// The same, for a callback that the goroutine has just made.
    NewCallLeavesThePEarly,
    /// A caller that puts a callback into the heap of an idle P leaves the P among those without timers.
    CallUnmasked,
    /// A caller puts a callback into another P's heap without the central lock.
    CallWithoutTheLock,
    /// The end of a runtime does not tell the timer thread of its callbacks.
    OrphansForgotten,
    /// The end of a runtime leaves its heaps as if it had not ended.
    OrphanStaysHome,
    /// The end of a runtime loses a firing whose goroutine never ran.
    UnrunFiringLost,
    /// A call is left to the timer thread, which sleeps on.
    LeftInSilence,
    /// A thread that leaves a call makes it, where the timer thread is refused.
    LeaverCalls,
    /// The timer thread calls the waker of a task itself.
    TimerThreadCallsWakers,
    /// The monitor asks for no timer thread for calls that wait.
    MonitorLeavesCalls,
    /// The monitor asks for no timer thread for heaps that wait.
    MonitorLeavesTimers,
    /// The monitor starts a timer thread for calls that wait, beside one that is there.
    LookStartsAnother,
    /// A callback thread finds that no call waits, and is counted out in another critical section.
    CallbackThreadEndsLate,
    /// A callback thread that was refused stays in the count.
    RefusedCallerStaysCounted,
    /// The timer thread decides to end, and says in another critical section that it has ended.
    TimerThreadEndsLate,
    /// The timer thread looks at its heaps, and says in another critical section how long it sleeps.
    TimerThreadLooksEarly,
    /// A caller that stops the last callback lets the timer thread sleep on.
    TimerThreadNotTold,
    /// After a refused start of the timer thread, only an earlier callback asks for it again.
    TimerThreadRefusedForGood,
    /// The judge of a deadlock overlooks that the timer thread makes a call.
    TimerThreadFiresUnseen,

    // Owners of a shared value (`models/shared.rs`).
    /// An owner that finds itself the only one does not acquire what the others did.
    SharedAloneRelaxed,
    /// The last owner to go does not acquire what the others did.
    SharedNoAcquire,
    /// An owner that goes does not release what it did.
    SharedNoRelease,

    // The wait of a goroutine: park, run, ready, and a dump's hold (`models/park.rs`).
    /// `Sched::park` runs the commit hook before the status is Waiting.
    ParkStatusAfterCommit,
    /// A parker stores its status without Release.
    ParkStatusRelaxed,
    /// An M whose commit hook refuses resumes a G that a dump holds.
    CancelParkIgnoresScan,
    /// An M makes a G that yields runnable without Release.
    RequeueRelaxed,
    /// `StatusWord::run`, meeting a held G, leaves it to the holder without Release.
    RunHeldWithoutRelease,
    /// A dump holds a G that another dump holds.
    HoldTwice,
    /// A dump that lets a G go leaves the DEFERRED mark.
    UnholdKeepsDeferred,
    /// `StatusWord::run` takes a G without Acquire.
    RunWithoutAcquire,
    /// `StatusWord::cancel_park` takes a G back without Acquire.
    CancelParkWithoutAcquire,
    /// `StatusWord::cancel_park` leaves a G to its holder without Release.
    CancelParkWithoutRelease,
    /// `StatusWord::ready` changes the word without Release.
    ReadyRelaxed,
    /// A dump reads a G and its stack after it has let the G go.
    DumpLetsGoFirst,
    /// A dump holds a G without Acquire.
    HoldRelaxed,
    /// A dump lets a G go without Acquire.
    UnholdWithoutAcquire,
    /// A dump lets a G go without Release.
    UnholdWithoutRelease,
    /// A spawner makes a G runnable for the first time without Release.
    SpawnRelaxed,
    /// `StatusWord::claim` compares no wait number.
    ClaimAnyWait,
    /// A readier that meets the scan bit leaves no mark for the holder.
    ReadyIgnoresScan,

    // Parking with functions around the switch (`models/switch.rs`).
    /// A goroutine that publishes its wait by itself does not look saved to an interrupter.
    AnnounceUnsaved,
    /// A goroutine that publishes its wait by itself does not look for an interrupt.
    AnnounceForgetsInterrupts,

    // Interrupts, nudges and cancellation (`models/interrupt.rs`).
    /// A goroutine that comes back without a P in the middle of a wait stores its word instead of exchanging it.
    RequeueStores,
    /// A wait under several contexts asks for the end of the innermost alone.
    OuterFramesIgnored,
    /// An owner sleeps on although a nudge has come.
    ParkAgainBlind,
    /// An owner sleeps on without Release.
    ParkAgainRelaxed,
    /// A nudger changes the word without Release.
    NudgeRelaxed,
    /// A nudger that meets the scan bit leaves no mark for the holder.
    NudgeIgnoresScan,
    /// An owner takes a nudge without Acquire.
    LookRelaxed,
    /// An owner reads without Acquire why it runs again.
    WhyRelaxed,
    /// A nudger that comes while the commit hook runs leaves no mark.
    EarlyNudgeLost,
    /// A nudger that comes while the commit hook runs leaves a mark only if the owner sleeps.
    EarlyNudgeToSleepersOnly,
    /// A nudger queues a goroutine without Acquire.
    NudgeWithoutAcquire,
    /// A canceller queues a goroutine without Acquire.
    NudgeAnyRelaxed,
    /// An M says without Release that its commit hook is over.
    KnownRelaxed,
    /// An owner finds without Acquire that its context is done.
    DoneRelaxed,
    /// An owner whose commit hook has refused closes its wait without a claim, beside its timer.
    RefusedClosesBlindly,
    /// As `RefusedClosesBlindly`, where the hook runs on the owner's own stack.
    CommitClosesBlindly,
    /// A readier queues a goroutine without Acquire.
    ReadyWithoutAcquire,
    /// An M queues a goroutine that was interrupted as it parked behind others, and does not resume it at once.
    InterruptedIsQueued,
    /// A parker does not look whether its context is done.
    InterruptNotSeen,
    /// A parker looks whether its context is done without ParkFence.
    ParkNoFence,
    /// A canceller looks for sleepers without CancelFence.
    CancelNoFence,
    /// `Note::alarm` changes the word without Release.
    AlarmRelaxed,
    /// `Note::doze` takes the word without Acquire.
    DozeRelaxed,
    /// An owner whose wait has ended leaves its timer in the heap.
    AlarmStaysArmed,
    /// Every claim says that the wait's timer has made it.
    ClaimLooksTimed,

    // The end of a goroutine: outcome, joiner, handle (`models/join.rs`).
    /// A dropper of a handle looks without Acquire whether there is an outcome.
    HandleLooksRelaxed,
    /// A dropper of a handle that has met the end of the goroutine looks again without Acquire.
    HandleLooksAgainRelaxed,
    /// The outcome of a goroutine that never ran is published without Release.
    UnrunOutcomeRelaxed,
    /// The end of a goroutine wakes no joiner.
    JoinNoWake,
    /// A joiner looks whether its goroutine is done only before it announces itself.
    JoinNoRecheck,
    /// A joiner announces itself without Release.
    JoinRelaxed,
    /// A joiner looks without Acquire whether its goroutine is done.
    JoinLooksRelaxed,
    /// An interrupted joiner does not wait for the M that is about to wake it.
    JoinEndsEarly,
    /// A hook that is left after the end is not called.
    EndHookForgotten,
    /// The M that ends a goroutine does not see that the handle's owner has taken its hook back, and has left another one.
    EndTakesAnOldHook,
    /// The end of a goroutine wakes no task that awaits the handle.
    EndHookWakesNoTask,
    /// The owner of a handle leaves a hook while an earlier one is called, as the goroutine has ended.
    HookWrittenAtTheEnd,
    /// A poll of a handle leaves the waker of an earlier poll at the goroutine.
    EndHookKeepsTheOldWaker,
    /// A handle that is dropped leaves its waker at the goroutine.
    EndHookKeepsItsWaker,
    /// An interrupted joiner waits without Acquire for the M that is about to wake it.
    JoinEndsRelaxed,
    /// An M says without Release that a goroutine has ended.
    EndRelaxed,
    /// An M that ends a goroutine does not wait for the ender, which has told the joiner, although the joiner may be gone by
    /// now.
    EndForgetsTheTeller,
    /// An M that has told the joiner lets the goroutine go without Acquire.
    ToldWithoutAcquire,
    /// An M that has told the joiner lets the goroutine go without Release.
    ToldWithoutRelease,
    /// The end of a runtime reads without Acquire the joiner of a goroutine that it leaves.
    LeftWithoutAcquire,
    /// A goroutine publishes its outcome without Release.
    OutcomeRelaxed,
    /// A dropper of a handle gives it back without Release.
    HandleRelaxed,
    /// A dropper of a handle gives it back before it has dropped the outcome.
    HandleGoesFirst,
    /// An M looks without Acquire for other parties of a goroutine that has ended.
    LiveRelaxed,

    // The end of a runtime (`models/shutdown.rs`).
    /// `StatusWord::is_asleep` and `doing` look at the status only.
    SleeperMarksIgnored,
    /// `StatusWord::is_asleep` and `doing` take a goroutine for awake that was nudged and does not listen.
    NudgedSleepersAwake,
    /// `StatusWord::doing` reads the word without Acquire.
    DoingRelaxed,
    /// The end of a runtime does not claim the wait of a goroutine that is parked.
    SeizeLeavesOpen,
    /// An M that leaves when the ender has gone leaves the waits open of the goroutines that it has parked meanwhile.
    LateParksOpen,
    /// An M that leaves when the ender has gone leaves the goroutines that it has queued meanwhile in their queues.
    LateQueuedStays,
    /// The end of a runtime does not claim the wait of a goroutine that was queued in the middle of it.
    SeizeQueuedLeavesOpen,
    /// The end of a runtime runs the abandon hook of a queued goroutine beside the waker that has claimed its wait.
    SeizeQueuedPassesTheWaker,
    /// The end of a runtime leaves a queued goroutine to the waker that has claimed its wait, and does not park it again.
    SeizeQueuedStaysRunnable,
    /// The end of a runtime takes its own claim of a queued goroutine's wait for a waker's.
    SeizeQueuedAwaitsTheEnder,
    /// The end of a runtime takes a goroutine that was readied in a queue without Acquire.
    SeizeQueuedWithoutAcquire,
    /// The end of a runtime lets a goroutine that it has taken out of a queue go without Release.
    SeizeQueuedWithoutRelease,
    /// The end of a runtime drops a goroutine that never ran although a dump holds it.
    DiscardIgnoresScan,
    /// The end of a runtime drops a goroutine that never ran, and that a dump has held, without Acquire.
    DiscardWithoutAcquire,
    /// The end of the runtime looks without Acquire whether a G is live.
    LiveLooksRelaxed,
    /// The end of a runtime interrupts a goroutine whose commit hook is not over.
    ShutdownCallsEarly,
    /// The end of a runtime interrupts a goroutine that has gone on since it was seen asleep.
    ShutdownCallsBlindly,
    /// The end of a runtime does not look again whether the goroutines that it saw asleep have slept on.
    ShutdownTrustsOneLook,
    /// The end of a runtime does not look for goroutines that were started after its snapshot.
    ShutdownTrustsOneSnapshot,
    /// A thread that is no M queues a new goroutine without a look, under the lock, whether the runtime ends.
    SpawnLooksOnce,
    /// A spawner that has lost its P takes an idle one although others wait for it.
    SpawnerOvertakes,
    /// A spawner that has lost its P takes an idle one while its M counts as outside of the runtime.
    SpawnerComesInLate,
    /// A thread that is no M drops the closure of a goroutine as the runtime ends, and does not tell the ender.
    UnrunNotTold,
    /// A thread that is no M drops the closure of a goroutine as the runtime ends, and counts the goroutine as live meanwhile.
    UnrunIsCounted,
    /// A thread that is no M queues a new goroutine before it is counted.
    SpawnedOutsideCountsLate,
    /// A spawner on an M queues a new goroutine before it is counted.
    SpawnedCountsLate,
    /// The end of a runtime reads which goroutines the Ms have at hand before it looks for those that sleep.
    ShutdownReadsHandsFirst,
    /// An M shows without Release which goroutine it runs.
    SetAfterRelaxed,
    /// The end of a runtime reads without Acquire which goroutine an M runs.
    PeekAfterRelaxed,
    /// An M that puts its P down does not tell the ender.
    ShutdownNotTold,
    /// A goroutine that queues another one on its own P as the runtime ends does not set the other one aside.
    SubmitLeavesTheEnd,
    /// An M that gives a P away as the runtime ends leaves the P its queue.
    HandoffpAtTheEndKeepsTheQueue,
    /// A thread that sets goroutines aside does not look for those that their hooks have queued meanwhile.
    AsideLooksOnce,
    /// The end of a runtime leaves the goroutines in mailboxes.
    StopForgetsTheMail,
    /// The end of a runtime leaves the goroutines in the queues of the classes.
    StopForgetsTheClasses,
    /// The end of a runtime leaves the goroutines in the batches of Ps.
    StopForgetsTheBatches,
    /// The end of a runtime does not look for goroutines that wait for a stack.
    StopForgetsTheStackless,
    /// The end of a runtime does not look for blockers.
    StopForgetsTheBlockers,
    /// A goroutine that starts another when no M takes work any more does not drop the closure.
    LateSpawnKeepsItsClosure,

    // Deadlock (`models/deadlock.rs`).
    /// The judge of a deadlock does not ask whether all Ps are idle and all Ms stand by.
    DeadlockIgnoresThreads,
    /// The judge does not ask whether all goroutines are parked.
    DeadlockIgnoresGs,
    /// The judge does not ask whether a timer is armed.
    DeadlockIgnoresTimers,
    /// The judge does not ask whether a task waits for a descriptor.
    DeadlockIgnoresTasks,
    /// An M that has taken the waker of a task out of the poller's table does not say so.
    CarriedTasksUnseen,
    /// The judge does not ask whether an M serves timers.
    DeadlockIgnoresServing,
    /// An M stops serving timers without Release.
    ServingEndsRelaxed,
    /// The judge asks without Acquire whether an M serves timers.
    ServingLooksRelaxed,
    /// The judge looks at the Ms in one critical section and at the goroutines in another.
    DeadlockUnlocksBetween,

    // SIGQUIT (`models/quit.rs`).
    /// A handler of SIGQUIT looks without QuitAskFence for the monitor that answers.
    QuitAskNoFence,
    /// A handler of SIGQUIT that leaves does not say so by Release.
    QuitLeaveRelaxed,
    /// A handler of SIGQUIT reads without Acquire which monitor answers.
    QuitAskRelaxed,
    /// A setter of the monitor that answers SIGQUIT looks for handlers without QuitSetFence.
    QuitSetNoFence,
    /// A setter of the monitor that answers SIGQUIT stores it without Release.
    QuitSetRelaxed,
    /// A setter of the monitor that answers SIGQUIT waits without Acquire until no handler looks.
    QuitWaitsRelaxed,
    /// A setter of the monitor that answers SIGQUIT does not tell it that a SIGQUIT came.
    QuitSetForgets,
    /// Each monitor that sees the question of a SIGQUIT answers it.
    QuitTakenByBoth,
    /// A monitor takes the question of a SIGQUIT without Acquire.
    QuitTakeRelaxed,
    /// A monitor that has answered a SIGQUIT does not say so by Release.
    QuitEndRelaxed,

    // Asking a thread where it is (`models/ask.rs`).
    /// An asker does not say by Release that it has read the last answer.
    AskRelaxed,
    /// A handler takes a question up without Acquire.
    AskLooksRelaxed,
    /// A handler does not say by Release that it has answered.
    AnswerRelaxed,
    /// An asker finds an answer without Acquire.
    AnswerLooksRelaxed,
    /// An asker withdraws its question by a store, also from a handler that has taken the question up.
    WithdrawStores,

    // Caches of stacks, and goroutines that wait for one (`models/trim.rs`, `models/stacks.rs`).
    /// The trim empties the stack caches of Ps that an M holds, too.
    TrimEmptiesBusyCaches,
    /// An M that makes its P idle keeps stacks in the P's cache for which goroutines wait.
    IdlePKeepsStacks,
    /// A goroutine that finds no stack says so only after it has asked for the last time.
    StackWantedLate,
    /// An M that asks once more for a stack gives the stack back together with its reservation.
    AskedForIsRetired,
    /// The monitor has no goroutine that waits for a stack ask again.
    MonitorLeavesStackless,

    // Channels (`models/chan.rs`).
    /// A holder that gives a reserved slot back offers it to no waiter.
    ChanReservedNotOffered,
    /// A message that passes a reserved place leaves the place to no waiter.
    ChanFilledNotOffered,
    /// A receiver looks in one critical section and waits in the queue in another.
    ChanRecvQueuesLate,
    /// A sender looks in one critical section and waits in the queue in another.
    ChanSendQueuesLate,
    /// A close wakes no receiver.
    ChanCloseForgetsReceivers,
    /// A close wakes no sender.
    ChanCloseForgetsSenders,
    /// A receiver that makes room moves no waiting sender up.
    ChanNobodyMovesUp,
    /// A thread whose limit has passed does not wait for the waker that was faster.
    ThreadLimitLeavesEarly,
    /// A sender hands a message to a receiver whose wait it has not claimed.
    ChanServesWithoutClaim,
    /// A select readies the sender that promised it a message before the select is asleep.
    PromiseAskedTooEarly,
    /// A sender withdraws a promise, and does not tell the receiver.
    PromiseWithdrawnSilently,
    /// A receiver that has returned to its queue ignores a message that came while it woke.
    ReturnedIgnoresItsSlot,
    /// No watcher is told of a message that comes into the buffer by a promise, or from a sender that waited.
    ChanLateMessageTellsNobody,
    /// A sender that waits moves up into a place that is reserved.
    ChanFillsReservedPlaces,
    /// A send goes to a receiver that waits for a promised message, past the promise.
    ChanSendPassesAPromise,
    /// A promised message comes into a channel whose last receiver has gone.
    ChanFilledForNobody,
    /// The last receiver says that it has gone after it has emptied the buffer.
    LastReceiverMarksLate,
    /// The last promise of a closed channel is kept, and receivers wait on.
    ChanFilledEndsNobody,
    /// The last promise of a closed channel is withdrawn, and receivers wait on.
    ChanGivenBackEndsNobody,
    /// A receiver that let the lock go to come back to a P waits without another look.
    ChanRecvOpensBlindly,
    /// A sender that let the lock go to come back to a P waits without another look.
    ChanSendOpensBlindly,

    // Tasks that wait for a channel (`models/chan_task.rs`).
    /// A future that was granted a message is dropped, and does not give the message back.
    TaskKeepsItsGrant,
    /// A send future that finds no room does not queue its record: no receiver finds the message.
    TaskSendKeepsItsMessage,
    /// A send future that is dropped drops its message, though a receiver has it.
    TaskKeepsWhatWasSent,
    /// A message that was given back is not offered to the waiters.
    GivenBackToNobody,
    /// The last message, given back by a task and taken at once, does not tell the others that the channel is drained.
    GivenBackEndsNobody,
    /// A message that was given back is not told to those that watch.
    GivenBackInSilence,
    /// A closed channel counts as drained, though a granted message may come back.
    GrantedIsDrained,
    /// A task that takes the last message of a closed channel tells no waiter.
    GrantEndsNobody,
    /// A promised message is granted on a closed channel.
    GrantedBehindTheEnd,
    /// A message goes to a goroutine past those that are granted to tasks.
    ChanHandsPastTheGranted,
    /// A select finds no message that was given back to a channel without a buffer.
    GivenBackIsPassed,

    // Promises of a channel (`models/promise.rs`).
    /// A sender gives a promised message to a receiver whose wait another waker has claimed.
    PromiseKeptWithoutClaim,
    /// A sender whose receiver has left gives the promised message back to its caller.
    PromiseNotSentOn,
    /// A receiver that is interrupted already asks the sender that it has claimed.
    PromiseAskedForNobody,
    /// A receiver that is interrupted already does not ready the sender that it has claimed.
    PromiseLetGoSilently,
    /// The end of a runtime withdraws no promise of a goroutine that it leaves behind.
    StandingHooksForgotten,
    /// A sender puts its message into the slot of a receiver that has come back to its place, and was left behind there.
    ReturnedServedWhenLeft,
    /// A sender puts a promised message into the slot of a select that was left behind on its way to look.
    PromiseKeptToTheLeft,
    /// A sender puts a promised message into the slot of a receiver that was left behind, and has parked for it since.
    PromiseKeptToTheLate,
    /// A message is promised to a receiver that is awake.
    PromiseToOneAwake,
    /// A receiver whose promise is withdrawn is not served in its place until it comes itself.
    PromiseHoldsOn,
    /// A receiver that came back to its place, and is then promised a message, is served in that place as well.
    ReturnedNotHeld,
    /// A send goes to a receiver that is back in its place, past a select that waits to send.
    ChanSendOvertakes,
    /// An end of a channel that is not the last of its kind goes without Release.
    EndGoesRelaxed,
    /// The last end of a kind finds without Acquire that it is the last.
    LastEndLooksRelaxed,
    /// The last end of a kind goes without Release.
    LastPartyGoesRelaxed,
    /// The last end of all frees the channel without Acquire.
    LastPartyFreesRelaxed,
    /// A receiver that gives up leaves its record among the receivers to which a message was promised.
    PromiseLeavesItsPartner,

    // Select (`models/select.rs`).
    /// A select looks in one critical section and waits in the queue in another.
    SelectQueuesLate,
    /// A select whose chosen arm was claimed elsewhere waits without a look at its other arms.
    SelectLooksOnce,
    /// A select that has seen a message without the lock takes the arm, whether the message is still there or not.
    SelectTrustsItsGlance,
    /// A send that needs no wait wakes no watcher of messages.
    ChanRoomPassesWatchers,
    /// A select that offers a message wakes no watcher of senders.
    SelectOffersInSilence,
    /// A select that asks for a message wakes no watcher of receivers.
    SelectAsksInSilence,
    /// A receive that begins to wait wakes no watcher of receivers.
    ReceiveComesInSilence,
    /// A send that begins to wait wakes no watcher of senders.
    SendComesInSilence,
    /// A future that begins to wait for a message wakes no watcher of receivers.
    TaskReceivesInSilence,
    /// A future that begins to wait for a receiver wakes no watcher of senders.
    TaskSendsInSilence,
    /// A receive that makes room wakes no watcher of room.
    ChanRoomTellsNobody,
    /// A close wakes no watcher of room.
    ChanEndTellsNoSendWatcher,
    /// The end of a channel wakes no watcher of messages.
    ChanEndTellsNoReceiveWatcher,

    // Broadcast and watch channels (`models/several.rs`).
    /// A receiver that begins to wait does not look again under the lock.
    SeveralLooksOnce,
    /// A future that begins to wait does not look again under the lock.
    SeveralTaskLooksOnce,
    /// A sender tells only the first of the waiting receivers of a new message or value.
    SeveralTellsOne,
    /// A receiver counts a broadcast message as seen before it unlocks the node.
    BroadcastSeenEarly,
    /// A receiver that has seen a broadcast message does not look whether the message has been removed.
    BroadcastSeesNoRemoval,
    /// A receiver of a broadcast channel that has had the lock of a message, and has not seen it, does not clear it.
    BroadcastLeavesUntidy,
    /// A clone of a receiver that lags keeps the block with the message for which the clone is not counted.
    BroadcastLaggardKeepsItsBlock,
    /// A clone of a receiver is not counted for the messages in the ring.
    BroadcastCloneUncounted,
    /// The head passes one message, although all receivers have seen several.
    BroadcastPassesOne,
    /// The last receiver to see a broadcast message does not clear it.
    BroadcastLastClearsNothing,
    /// The end of a channel tells no receiver that waits.
    SeveralEndTellsNoReceiver,
    /// A close tells no sender that waits for the last receiver.
    SeveralEndTellsNoSender,
    /// The bells of a channel stay open when the channel is closed.
    BellsOutliveTheEnd,
    /// A sender counts its value only after the receivers have been told.
    WatchCountsLate,
    /// A sender counts its value, and tells of it, after the receivers were told of the end.
    WatchCountsAfterTheEnd,
    /// A receiver asks for a new message or value before its bell stands in the list.
    BellHangsLate,
    /// A select that keeps a place, and takes another arm, leaves its record in that place.
    SelectKeepsItsPlace,

    // Mutex (`models/mutex.rs`).
    /// A locker takes a mutex without Acquire.
    MutexLockRelaxed,
    /// A locker that has waited, or spun, takes a mutex without Acquire.
    MutexTakeRelaxed,
    /// A locker that has the lock of the queue takes a mutex without Acquire.
    MutexRecheckRelaxed,
    /// A holder lets a mutex go without Release.
    MutexUnlockRelaxed,
    /// A fair unlock without a queue lets the lock go without Release.
    MutexFairRelaxed,
    /// A hand-over that finds no waiter lets the lock go without Release.
    MutexHandsRelaxed,
    /// A waiter that was notified to try a mutex, and comes too late, leaves its mark as it goes back.
    MutexWokenStays,
    /// A waiter that was notified to try a mutex, and comes too late, keeps its mark while it parks for a P.
    MutexWokenParks,
    /// A holder that is to hand a mutex over lets it go.
    MutexNoHandOver,
    /// The end of a runtime loses the notification of a waiter of a mutex.
    MutexLeftBehind,
    /// An unlock notifies a waiter although another one has done so meanwhile.
    MutexCallsTwo,
    /// A caller passes on, without the lock of the queue, that a waiter of a mutex was notified to try.
    MutexSettlesWithoutTheLock,

    // Condvar (`models/condvar.rs`).
    /// A waiter of a Condvar unlocks the mutex before it has locked the queue.
    CondvarUnlocksFirst,
    /// A waiter of a Condvar unlocks the mutex without Release.
    MutexTellsRelaxed,

    // RwLock (`models/rwlock.rs`).
    /// A taker of an RwLock takes it without Acquire.
    RwLockTakeRelaxed,
    /// A taker that has the lock of the queues of an RwLock takes it without Acquire.
    RwLockRecheckRelaxed,
    /// A granter of an RwLock reads its word without Acquire.
    RwLockGrantRelaxed,
    /// A reader of an RwLock leaves without Release.
    RwLockReadRelaxed,
    /// A writer of an RwLock without waiters leaves without Release.
    RwLockWriteRelaxed,
    /// A writer of an RwLock for which others wait leaves without Release.
    RwLockWrittenRelaxed,
    /// The last reader of an RwLock wakes no waiter.
    RwLockLastReaderLeaves,
    /// A waiter that leaves the queue of an RwLock wakes none of the waiters that it held back.
    RwLockLeavesQuietly,
    /// The last reader of an RwLock does not wake the upgradable reader that waits for it.
    RwLockUpgradeForgotten,
    /// A granter of an RwLock lets readers in beside an upgrade.
    RwLockReadsBesideUpgrade,
    /// An upgrade of an RwLock that was granted to a goroutine which its runtime leaves behind stays granted.
    RwLockLeftKeepsTheGrant,
    /// An upgradable reader of an RwLock leaves without Release.
    RwLockUpgradableRelaxed,
    /// An upgradable reader of an RwLock wakes no waiter.
    RwLockUpgradableLeaves,
    /// A recursive reader of an RwLock takes it beside a granter.
    RwLockRecursiveBesideGrant,
    /// A reader of an RwLock that is notified to try takes that for a grant.
    RwLockTakesATryForAGrant,
    /// A granter of an RwLock has readers try although a writer waits.
    RwLockReadersTryBesideAWriter,
    /// The end of a runtime releases an RwLock that an abandoned reader was only notified to try.
    RwLockLeftTakesATryForAGrant,

    // Semaphore (`models/semaphore.rs`).
    /// A releaser of permits notifies no waiter.
    SemaphoreGrantsNobody,
    /// A waiter that leaves the queue of a semaphore wakes none of the waiters that it held back.
    SemaphoreLeavesQuietly,
    /// A request whose context ends beside the grant keeps the permits.
    SemaphoreKeepsTheGrant,
    /// The end of a runtime releases permits for a request that a close has refused.
    SemaphoreLeftTakesARefusalForAGrant,

    // WaitGroup (`models/waitgroup.rs`).
    /// The last `done` of a WaitGroup wakes no waiter.
    WaitGroupWakesNobody,
    /// A waiter for a WaitGroup looks at the count only before the waiter has the lock of the queue.
    WaitGroupNoRecheck,
    /// A waiter that has the lock of the queue finds a WaitGroup at zero without Acquire.
    WaitGroupRecheckRelaxed,
    /// A `done` of a WaitGroup counts down without Release.
    WaitGroupDoneRelaxed,
    /// A waiter finds a WaitGroup at zero without Acquire.
    WaitGroupLookRelaxed,
    /// A future finds a WaitGroup at zero, when it is polled first, without Acquire.
    WaitGroupPollRelaxed,
    /// The last `done` of a WaitGroup for which others wait counts down without Release.
    WaitGroupReachedRelaxed,
    /// The last `done` of a WaitGroup for which others wait counts down without Acquire.
    WaitGroupReachedLooksRelaxed,
    /// A waiter that is interrupted takes the mark of the others away.
    WaitGroupLeavesUnmarked,

    // Once (`models/once.rs`).
    /// A closure of a Once ends without Release.
    OnceDoneRelaxed,
    /// A closure of a Once ends, and notifies no waiter.
    OnceWakesNobody,
    /// A caller finds a Once done without Acquire.
    OnceLookRelaxed,
    /// A caller that would run a closure finds a Once done without Acquire.
    OnceCallLooksRelaxed,
    /// A closure of a Once begins without Acquire.
    OnceBeginsRelaxed,
    /// A waiter for a Once looks at it only before the waiter has the lock of the queue.
    OnceNoRecheck,
    /// A future that waits for a Once looks at it only before it has the lock of the queue.
    OncePollNoRecheck,

    // Barrier (`models/barrier.rs`).
    /// An interrupt unwinds a waiter that was counted when its round opened.
    BarrierUnwindsTheCounted,
    /// A barrier counts a waiter that its runtime has left behind.
    BarrierCountsTheLeft,

    // Event (`models/event.rs`).
    /// A notifier that finds no waiter leaves no permit.
    EventLeavesNoPermit,
    /// The one notification for a goroutine that is left behind in its wait is lost.
    EventStaysWithTheLeft,

    // ErrGroup (`models/group.rs`).
    /// A task of an ErrGroup that has ended is counted off before its permit is given back.
    ErrGroupCountsBeforeThePermit,
    /// A task without a result is counted off before it has said so.
    ErrGroupCountsBeforeItTells,
    /// A task that has failed is counted off before its error is noted.
    ErrGroupCountsBeforeTheError,

    // The token of `park` (`models/token.rs`).
    /// A giver that finds no waiter leaves no token.
    TokenNotKept,
    /// A giver that finds a waiter whose wait has just ended without the token leaves no token.
    TokenGoesWithTheWait,
    /// A token that has ended a wait is there for the next one.
    TokenGivenTwice,

    // Signals (`models/signal.rs`).
    /// A handler alarms the serving thread before the bit of the signal is set.
    SignalAfterAlarm,
    /// The serving thread takes the bits before the alarm.
    SignalLookBeforeDoze,
    /// The serving thread reads the bits, and clears them in a second step.
    SignalTakenInTwoSteps,

    // Futures (`models/block_on.rs`).
    /// An owner takes the wakes without Acquire.
    WakerTakeRelaxed,
    /// An owner publishes its wait without Release.
    WakerParkRelaxed,
    /// An owner parks although a wake has come.
    WakerParksBlindly,
    /// A commit hook writes into the owner's frame after it has published the wait.
    WakerNotesAPark,
    /// A wake finds a parked owner without Acquire.
    WakerFindsRelaxed,
    /// A wake is counted without Release.
    WakerWakesRelaxed,
    /// A waker looks whether the owner is parked before it counts its wake.
    WakerLooksFirst,
    /// A waker acts on an owner that is not parked.
    WakerActsUnasked,
    /// An owner that was interrupted leaves its wait to wakers.
    WakerLeavesParked,
    /// An owner that was interrupted does not wait for a waker that reads its wait.
    WakerLeavesBesideTheClaim,
    /// A waker that has lost the claim does not say so.
    WakerKeepsParked,
    /// A waker that has lost the claim says so without Release.
    WakerLosesRelaxed,

    // Contexts (`models/context.rs`).
    /// `Context::err` tells an error while the channel of the node may be open.
    ContextErrDoesNotWait,
    /// `Context::err` finds a node done without Acquire.
    ContextErrRelaxed,
    /// An ender says without Release that it has begun to end a node.
    ContextEndsRelaxed,
    /// A reader of a node that is done publishes the node's channel before it closes that.
    ContextShowsItsChannelOpen,
    /// A reader makes another channel of a node beside the one that another reader has made meanwhile.
    ContextMakesTwoChannels,
    /// A second canceller of a context does not look at the contexts below it.
    ContextSecondEndLeaves,
    /// An ender says that all nodes below are done before it has ended them.
    ContextSweptEarly,
    /// An ender says without Release that all nodes below are done.
    ContextSweptRelaxed,
    /// A second canceller finds without Acquire that all nodes below are done.
    ContextSweptLooksRelaxed,
    /// An ender passes without Acquire over a node below whose end another ender has made.
    ContextSweptPassesRelaxed,
    /// A second canceller ends the contexts below one that is done by its own verdict.
    ContextSecondEndTellsItsOwn,
    /// A dependent takes its place in the list of a node that is done.
    ContextAddsBlindly,
    /// A call that is asked for while an ender walks starts at once.
    ContextCallsInTheWalk,
    /// A caller that asks for a call looks whether the context is done before it takes the lock.
    ContextCallsAsksEarly,
    /// An ender readies the tasks that wait for the end, and wakes none.
    ContextWakesNoTask,
    /// An ender closes the channel of a node, and readies none of its receivers.
    ContextWakesNoReceiver,

    // Tasks that wait (`models/task.rs`).
    /// A poll looks whether the wait is over before it keeps its waker.
    TaskLooksFirst,
    /// A poll does not keep its waker.
    TaskKeepsTheOldWaker,
    /// A notifier calls the waker before it readies the task.
    TaskIsCalledEarly,
    /// A future that is dropped does not wait for the ready of the notifier that has claimed its wait.
    TaskLeavesBesideTheReady,
    /// A future that was notified is dropped, and does not pass the notification on.
    EventForgetsItsNotification,
    /// A notifier of several tasks calls the waker of one before it has readied the next.
    NotifiedCallsInBetween,
    /// A change of a `watch` calls the waker of a task that waits to read the value, before it has readied the receivers that
    /// wait for the change.
    WatchCallsInBetween,
    /// A request for permits that was granted is dropped, and keeps them.
    SemaphoreDropsTheGrant,
    /// A request for permits is dropped, and wakes none of the waiters that it held back.
    SemaphoreDropsQuietly,
    /// A future that was woken for the lock, or was handed it, is dropped, and notifies no waiter.
    MutexDropsTheCall,
    /// A future that was granted the lock is dropped, and keeps it.
    RwLockDropsTheGrant,
    /// A future is dropped, and grants the lock to no waiter that it held back.
    RwLockDropsQuietly,
    /// A future that has arrived is dropped, and still counts.
    BarrierDropsTheCounted,
    /// A future that sleeps and is given another time leaves its timer as it was.
    SleepKeepsItsTimer,
    /// A future that sleeps and was woken early does not set its timer again.
    SleepEndsEarly,

    // The slot of a descriptor (`models/polldesc.rs`).
    /// A commit that finds an event parks the owner all the same.
    PollCommitIgnored,
    /// A commit publishes the owner without Release.
    PollCommitRelaxed,
    /// An unblocker reads the owner without Acquire.
    PollUnblockRelaxed,
    /// An exchange of a slot publishes nothing: it is without Release.
    PollExchangeRelaxed,
    /// An exchange of a slot is without Acquire.
    PollExchangeLooksRelaxed,
    /// An exchange of a slot that has failed reads the slot without Acquire.
    PollRetryRelaxed,
    /// An unblocker that would not change the slot does not write it.
    PollLookSparesTheExchange,
    /// An owner that gives up takes the event out of the slot.
    PollLeaveForgetsTheEvent,
    /// An owner that gives up leaves its ticket in the slot.
    PollLeavesItsTicket,
    /// An owner whose time limit fires does not wait for its commit.
    PollNoGate,
    /// An owner that finds an event takes it before it knows that a system call follows.
    PollTakesTheEvent,

    // Tasks at a descriptor (`models/polltask.rs`).
    /// The poller wakes the task that waits, and does not mark the event.
    TaskEventUnmarked,
    /// The poller marks an event without Release.
    TaskMarksRelaxed,
    /// A task takes the mark of an event without Acquire.
    TaskBeginsRelaxed,
    /// A task that begins a call looks at the marks without Acquire.
    TaskLooksRelaxed,
    /// A task that finds the socket drained reads without Acquire which events have come.
    TaskTrustsRelaxed,
    /// A task that takes the mark of an event begins no other turn.
    TaskKeepsItsTurn,
    /// A task waits although another one has taken the mark of an event since its call.
    TaskWaitsInAnotherTurn,
    /// A task that has kept its waker does not look whether an event has come.
    TaskDoesNotLookAgain,
    /// The first task of a direction does not exchange the slot.
    TaskFirstUseUnordered,
    /// The first task in a direction exchanges the slot without Release.
    TaskFirstUseRelaxed,
    /// The first task in a direction exchanges the slot without Acquire.
    TaskFirstUseLooksRelaxed,
    /// A task that has drained the socket waits for an event although it has seen the peer's end.
    TaskTrustsAfterHup,
    /// A task says that it waits before it has kept its waker.
    TaskWaitsBeforeItsWaker,
    /// The poller takes no waker.
    TaskWakerForgotten,
    /// A task that comes after the runtime has ended does not see that it has ended.
    TaskMissesTheEnd,
    /// The end of a runtime wakes no task.
    TaskEndTellsNobody,
    /// A closer wakes no task.
    TaskCloseTellsNobody,
    /// A task that waits to write does not have the poller watch for writes a descriptor that is watched for reads.
    TaskWatchesReadsAlone,
    /// A task that has its descriptor watched to write does not look whether writes have ended meanwhile.
    TaskMissesTheShutdown,

    // The I/O lock (`models/io_lock.rs`).
    /// A holder of an I/O lock passes it on without Release.
    IoLockPassRelaxed,
    /// A closer finds an I/O lock free without Acquire.
    IoLockCloserLooksRelaxed,
    /// A holder that hands an I/O lock over forgets the other waiters.
    IoLockForgetsTheRest,
    /// The end of a runtime leaves an I/O lock with its abandoned goroutine.
    IoLockLeftBehind,
    /// The end of a runtime lets an I/O lock go that still says that its holder rests.
    IoLockLeftAtRest,
    /// A goroutine that has let an I/O lock go keeps the abandon hook that releases the lock.
    IoLockKeepsItsHook,
    /// A holder hands the I/O lock over to no waiter.
    IoLockNoHandOver,
    /// A taker of a free I/O lock looks whether the socket is closed without IoLockFence.
    IoLockTakeNoFence,
    /// A holder that goes on after a rest looks whether the socket is closed without IoLockFence.
    IoLockGoesOnNoFence,
    /// A goroutine that begins to rest does not note again which I/O lock it holds.
    IoLockRestsUnnoted,
    /// A holder begins to rest without Release.
    IoLockRestRelaxed,
    /// A closer looks without Acquire whether the holder rests.
    IoLockRestLooksRelaxed,
    /// A closer does not wait for the holder's system call.
    IoLockCloserDoesNotWait,
    /// A waiter for an I/O lock hears no nudge.
    IoLockWaitersMasked,
    /// A holder hands an I/O lock to a waiter whose wait it has not claimed.
    IoLockHandedBlindly,
    /// A holder that finds no waiter for the I/O lock frees it without Release.
    IoLockHandOverRelaxed,
    /// A closer that does not wait for a resting holder forgets the waiters in the queue.
    IoLockCloserForgetsTheLine,
    /// An I/O lock that is handed to a goroutine is not noted as what that goroutine holds.
    IoLockHandedUnnoted,
    /// An I/O lock that becomes free, as no waiter in its queue can be claimed, counts as at rest.
    IoLockFreeAtRest,
    /// A closer, or a setter of a deadline, looks for owners without SocketFence.
    SocketNoFence,

    // Sockets: drained reads, users, close (`models/socket.rs`).
    /// A socket empties the event slot after its system call instead of before it.
    SocketClearsLate,
    /// A drained read empties the event slot instead of waiting for an event there.
    SocketDrainedClears,
    /// A reader takes a short read for drained although it has seen the peer's end.
    SocketTrustsAfterHup,
    /// An unblocker sets the sticky part of an event after it has woken the owner.
    PollSeenLate,
    /// A closer, or a setter of a deadline, does not wake the parker in the slot.
    SocketLooksAtNoSlot,
    /// A closer, or the setter of a deadline, does not nudge those that wait for the I/O lock.
    SocketLeavesTheLine,
    /// A closer waits for reads only.
    SocketCloseForgetsWrites,
    /// A socket that was drained once stays drained, whatever a later read gets.
    SocketStaysDrained,
    /// The read after a short one makes its system call at once if the poller does not watch the socket yet.
    SocketAsksUnwatched,
    /// A read that fills its buffer counts as short.
    SocketFullReadDrains,
    /// A writer that waits does not have the poller watch for writes a descriptor that is watched for reads.
    SocketWatchesReadsAlone,
    /// The end of the writes of a Unix socket makes no event for the goroutines that wait for room.
    SocketEndsInSilence,
    /// The end of the writes of a Unix socket is marked only after the goroutines that wait for room were told.
    SocketMarksTheEndLate,
    /// A writer that has its descriptor watched does not look whether writes have ended meanwhile.
    SocketMissesTheEnd,
    /// A writer looks whether writes have ended before it has its descriptor watched.
    SocketLooksBeforeItWatches,
    /// A closer looks without Acquire whether the descriptor is used.
    UsersIdleRelaxed,
    /// A user of the descriptor leaves without Release.
    UsersLeaveRelaxed,
    /// The last user of a closed descriptor leaves without Acquire of what the others have released.
    UsersLastLooksRelaxed,
    /// The last user of a closed descriptor does not wake the closer.
    UsersLastIsSilent,
    /// The end of a runtime leaves a use of the descriptor with its abandoned goroutine.
    UsersLeftBehind,

    // Locks that are released by a store (`models/store_lock.rs`).
    /// A lock is taken without Acquire.
    StoreLockTakenRelaxed,
    /// A lock is released without Release.
    StoreLockFreedRelaxed,
    /// A thread that lets a lock go wakes no sleeper.
    StoreLockWakesNobody,
    /// A thread that lets a lock go beside sleepers looks into the lock's bucket without a fence.
    StoreLockWakesNoFence,
    /// A sleeper has no other thread pass a barrier.
    StoreLockSleepsNoBarrier,
    /// A sleeper that leaves out the barrier does not fence either.
    StoreLockSleepsNoFence,
    /// A sleeper that has had all threads pass a barrier does not release that for others.
    StoreLockPassedRelaxed,
    /// A thread that takes PASSED back forgets a sleeper that comes just then.
    StoreLockForgetsASleeper,
}
