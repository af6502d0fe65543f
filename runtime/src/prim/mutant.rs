//! The lines that the protocols need, by name.

/// What may be switched off or weakened in a model, by name. Each is a line of shipped code that a protocol
/// needs, and loom must fail when it is gone; the lists in `models/*.rs` hold it to that.
// Outside of models most of them stand in `mutant!` alone, which names nothing then.
#[allow(dead_code)]
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Mutant {
    /// `Note::wake` publishes its word without Release.
    NoteWakeRelaxed,
    /// `Note::sleep` reads its word without Acquire.
    NoteSleepRelaxed,
    /// `Note::sleep_until` reads its word without Acquire.
    NoteSleepUntilRelaxed,
    /// `Note::wake` wakes before it stores the word.
    NoteWakeBeforeStore,
    /// `execute` runs the commit hook before the status is Waiting.
    ParkStatusAfterCommit,
    /// A park stores its status without Release.
    ParkStatusRelaxed,
    /// A commit hook that refuses resumes a G that a dump holds.
    CancelParkIgnoresScan,
    /// The trim empties the stack caches of Ps that are held.
    TrimEmptiesBusyCaches,
    /// A P that becomes idle keeps stacks in its cache for which goroutines wait.
    IdlePKeepsStacks,
    /// A goroutine that finds no stack ends the process although a busy P may have one in its cache.
    StacksOfBusyPsForgotten,
    /// A goroutine that finds no stack says so when it has asked for the last time.
    StackWantedLate,
    /// A yield makes its G runnable without Release.
    RequeueRelaxed,
    /// `execute`, meeting a held G, leaves it to the holder without Release.
    RunHeldWithoutRelease,
    /// A goroutine that comes back without a P in the middle of a wait stores its word instead of exchanging it.
    RequeueStores,
    /// A dump holds a G that another one holds.
    HoldTwice,
    /// A dump that lets a G go leaves the mark of who would have queued it.
    UnholdKeepsDeferred,
    /// `StatusWord::is_asleep` and `doing` look at the status only.
    SleeperMarksIgnored,
    /// `StatusWord::doing` is no Acquire.
    DoingRelaxed,
    /// The end of a runtime does not claim the wait of who is parked.
    SeizeLeavesOpen,
    /// The same of who was queued in the middle of a wait.
    SeizeQueuedLeavesOpen,
    /// `StatusWord::run` is no Acquire.
    RunWithoutAcquire,
    /// `StatusWord::cancel_park` is no Acquire.
    CancelParkWithoutAcquire,
    /// `StatusWord::cancel_park` is no Release.
    CancelParkWithoutRelease,
    /// `StatusWord::ready` is no Release.
    ReadyRelaxed,
    /// An owner sleeps on although something has come.
    ParkAgainBlind,
    /// An owner sleeps on without Release.
    ParkAgainRelaxed,
    /// A nudge is no Release.
    NudgeRelaxed,
    /// A nudge that meets the scan bit leaves no mark for the holder.
    NudgeIgnoresScan,
    /// An owner takes a nudge without Acquire.
    LookRelaxed,
    /// An owner reads without Acquire why it runs again.
    WhyRelaxed,
    /// A nudge that comes while the commit hook runs leaves no mark.
    EarlyNudgeLost,
    /// The same, when another nudge has woken the owner meanwhile.
    EarlyNudgeToSleepersOnly,
    /// A nudge queues a goroutine without Acquire.
    NudgeWithoutAcquire,
    /// A ready queues a goroutine without Acquire.
    ReadyWithoutAcquire,
    /// A park does not look whether its context is done.
    InterruptNotSeen,
    /// A park looks without a fence whether its context is done.
    ParkNoFence,
    /// A context that is done looks without a fence for who sleeps.
    CancelNoFence,
    /// `Note::alarm` is no Release.
    AlarmRelaxed,
    /// `Note::doze` is no Acquire.
    DozeRelaxed,
    /// A wait that ended leaves its timer in the heap.
    AlarmStaysArmed,
    /// A place that was promised and is free again is offered to nobody.
    ChanReservedNotOffered,
    /// A receiver looks in one critical section and waits in the queue in another.
    ChanRecvQueuesLate,
    /// A sender looks in one critical section and waits in the queue in another.
    ChanSendQueuesLate,
    /// A select looks in one critical section and waits in the queue in another.
    SelectQueuesLate,
    /// A select whose chosen arm went elsewhere waits, whatever its other arms are.
    SelectLooksOnce,
    /// A close wakes no receiver.
    ChanCloseForgetsReceivers,
    /// A close wakes no sender.
    ChanCloseForgetsSenders,
    /// A receive that makes room has no sender move up.
    ChanNobodyMovesUp,
    /// A message goes to a receiver whose wait was not claimed.
    ChanServesWithoutClaim,
    /// A select readies who promised it a message before it is asleep.
    PromiseAskedTooEarly,
    /// A message that was promised is given to a receiver whose wait somebody else has claimed.
    PromiseKeptWithoutClaim,
    /// A message that was promised to a receiver that has left is given back to its sender.
    PromiseNotSentOn,
    /// A promise is withdrawn and its receiver is not told.
    PromiseWithdrawnSilently,
    /// Nobody withdraws what a goroutine has promised that is left behind by its runtime.
    StandingHooksForgotten,
    /// A receiver that was returned takes no message that came while it woke.
    ReturnedIgnoresItsSlot,
    /// A handler of SIGQUIT looks without a fence for who answers.
    QuitAskNoFence,
    /// A handler of SIGQUIT that leaves does not say so by Release.
    QuitLeaveRelaxed,
    /// Who names who answers SIGQUIT looks without a fence for handlers.
    QuitSetNoFence,
    /// Who answers SIGQUIT from now on is not told that it came.
    QuitSetForgets,
    /// Each monitor that sees the question of a SIGQUIT answers it.
    QuitTakenByBoth,
    /// Whoever asks a thread where it is does not say by Release that the last answer was read.
    AskRelaxed,
    /// A handler that has answered where its thread is does not say so by Release.
    AnswerRelaxed,
    /// A question is withdrawn by a store, also from a handler that has taken it up.
    WithdrawStores,
    /// A dump reads a G and its stack when it has let it go.
    DumpLetsGoFirst,
    /// A dump holds a G without Acquire.
    HoldRelaxed,
    /// A goroutine that never ran is dropped although a dump holds it.
    DiscardIgnoresScan,
    /// A dump lets a G go without Acquire.
    UnholdWithoutAcquire,
    /// A dump lets a G go without Release.
    UnholdWithoutRelease,
    /// The end of the runtime looks without Acquire whether a G is live.
    LiveLooksRelaxed,
    /// A handle that goes looks without Acquire whether there is an outcome.
    HandleLooksRelaxed,
    /// An M that makes idle the P that it gives away looks at the queues without a fence.
    HandoffpNoFence,
    /// A P that is given away and idle is counted after the lock.
    HandoffpCountsLate,
    /// An M that makes idle the P that it gives away does not look at the queues.
    HandoffpNoRecheck,
    /// A goroutine that comes back looks for an idle P in one critical section and is queued in another.
    ExitInTwoSections,
    /// The M in the poller does not say so.
    PollerSaysNothing,
    /// The M that waited for a timer does not run it.
    PollerRunsNoTimers,
    /// An I/O lock is passed on without Release.
    IoLockPassRelaxed,
    /// A G becomes runnable for the first time without Release.
    SpawnRelaxed,
    /// `StatusWord::claim` compares no wait number.
    ClaimAnyWait,
    /// A ready that meets the scan bit leaves no mark.
    ReadyIgnoresScan,
    /// A pollDesc's park goes on although its commit failed.
    PollCommitIgnored,
    /// pollDesc: the commit publishes the waiter without Release.
    PollCommitRelaxed,
    /// A socket empties the event slot after its system call instead of before it.
    SocketClearsLate,
    /// A drained read empties the event slot instead of waiting for what comes into it.
    SocketDrainedClears,
    /// A short read counts as drained although the peer's end was seen.
    SocketTrustsAfterHup,
    /// pollDesc: an event sets its sticky part after it has woken the owner.
    PollSeenLate,
    /// pollDesc: an unblock without Acquire reads who waits.
    PollUnblockRelaxed,
    /// pollDesc: an unblock that would not change the slot does not write it.
    PollLookSparesTheExchange,
    /// A goroutine's end does not look for the one who joins it.
    JoinNoWake,
    /// `join` looks whether its goroutine is done only before it announces itself.
    JoinNoRecheck,
    /// `join` announces itself without Release.
    JoinRelaxed,
    /// `join` looks without Acquire whether its goroutine is done.
    JoinLooksRelaxed,
    /// An interrupted `join` does not wait for whoever is about to wake it.
    JoinEndsEarly,
    /// An interrupted `join` waits for that without Acquire.
    JoinEndsRelaxed,
    /// An M says without Release that a goroutine has ended.
    EndRelaxed,
    /// An M does not wait for who has told, beside it, a joiner that is gone by now.
    EndForgetsTheTeller,
    /// An M that has told the joiner lets the goroutine go without Acquire.
    ToldWithoutAcquire,
    /// The same, without Release.
    ToldWithoutRelease,
    /// The end of a runtime reads without Acquire who joins a goroutine that it leaves.
    LeftWithoutAcquire,
    /// A goroutine publishes its outcome without Release.
    OutcomeRelaxed,
    /// A handle goes without Release.
    HandleRelaxed,
    /// A handle goes before it has dropped the outcome.
    HandleGoesFirst,
    /// An M looks without Acquire who else has a goroutine that has ended.
    LiveRelaxed,
    /// A submission queues its goroutine and wakes nobody.
    SubmitNoWake,
    /// A submission looks for an idle P before it queues its goroutine.
    SubmitWakeFirst,
    /// A submission that finds only the blocked poller does not break its wait.
    SubmitNoBreak,
    /// A timer that is now the earliest does not break the poller's wait.
    TimerNoBreak,
    /// A busy M at its visits serves no timers of idle Ps.
    VisitLeavesTimers,
    /// A visit that takes one of the global queue tells nobody of those before whom it goes.
    TurnWakesNobody,
    /// The monitor sends nobody to the poller.
    MonitorSendsNobody,
    /// A look of a busy M that swallowed a break does not pass it on.
    SwallowedBreakKept,
    /// An M that comes back from the poller by an event looks for no P that was left for it.
    AssignmentOnlyByBreak,
    /// What the poller found is dropped when no P is idle.
    PollResultsDropped,
    /// An M enters the runtime without EntryBarrier.
    WindowNoEntryBarrier,
    /// Where RetakeBarrier is a fence of the retaker alone, an entry has no EntryFence.
    WindowNoEntryFence,
    /// A retaker goes on without RetakeBarrier.
    WindowNoRetakeBarrier,
    /// An M enters quickly although its lease says that it fences, as `membarrier` was refused.
    WindowStaysQuick,
    /// A retaker whose `membarrier` was refused only fences, also for an M that enters quickly.
    RetakeTakesAllForFenced,
    /// A retaker takes the P although the M is inside.
    WindowBlind,
    /// An M that finds its P requested goes in without taking the request back.
    WindowEnterBlind,
    /// A P that is given up keeps its generation.
    WindowSameGeneration,
    /// A retaker judges a lease without Acquire.
    JudgeRelaxed,
    /// A P that was taken is handed to nobody.
    RetakeKeepsP,
    /// An M leaves the runtime without Release.
    WindowLeaveRelaxed,
    /// A retaker looks without Acquire whether the M is inside.
    WindowLookRelaxed,
    /// A notification that nobody waits for leaves no permit.
    EventLeavesNoPermit,
    /// An I/O lock that is handed over forgets the other waiters.
    IoLockForgetsTheRest,
    /// The I/O lock of an abandoned goroutine stays with it.
    IoLockLeftBehind,
    /// A submission reads the census without SubmitFence.
    SubmitNoFence,
    /// An M that gives up looks at the queues without IdleFence.
    IdleNoFence,
    /// An M that gives up does not look again.
    IdleNoRecheck,
    /// An M that gives up looks again before it has given up.
    IdleLooksFirst,
    /// Only an M that spun looks again.
    IdleOnlySpinnersLook,
    /// An M gives up although the global queue is not empty.
    IdleSkipsGlobal,
    /// An M that sees work after giving up searches without being counted.
    RecheckDoesNotSpin,
    /// An M that stops spinning because it found work wakes nobody.
    SpinnerWakesNobody,
    /// A submission that found no idle P after all leaves the count of spinning Ms after the lock.
    WakepUndoesLate,
    /// An M that sees work after giving up takes a P although it was given one.
    RecheckTakesAnyP,
    /// A start that was refused wakes nobody for what was left to the new M.
    RefusedStartWakesNobody,
    /// A P for which no M was found stays in the count of spinning Ms.
    TakeBackLeaksSpinning,
    /// An M that gives up changes the census after the lock.
    CensusAfterTheLock,
    /// A submission that found no idle P after all stays in the count of spinning Ms.
    WakepLeaksSpinning,
    /// An M that is started to spin does not know that it counts.
    StartForgetsSpinning,
    /// The end of a runtime reads which goroutines the Ms have at hand before it looks who sleeps.
    ShutdownReadsHandsFirst,
    /// An M shows without Release which goroutine it runs.
    SetAfterRelaxed,
    /// The end of a runtime reads without Acquire which goroutine an M runs.
    PeekAfterRelaxed,
    /// The end of a runtime interrupts a goroutine whose commit hook is not over.
    ShutdownCallsEarly,
    /// The end of a runtime interrupts a goroutine that has gone on since it was seen asleep.
    ShutdownCallsBlindly,
    /// The end of a runtime does not look again whether those slept on that it saw asleep with others.
    ShutdownTrustsOneLook,
    /// The end of a runtime does not look for goroutines that were started after its snapshot.
    ShutdownTrustsOneSnapshot,
    /// An M that puts its P down does not tell who ends the runtime.
    ShutdownNotTold,
    /// The end of a runtime looks at the queues without a fence.
    StopNoFence,
    /// What comes from outside wakes nobody.
    InjectWakesNobody,
    /// What an M has found in the poller, or among the timers, wakes nobody.
    FoundWakesNobody,
    /// What a full ring can't hold goes into the global queue, whose length stays.
    SpillKeepsTheLength,
    /// A P that is given away as the runtime ends keeps its queue.
    HandoffpAtTheEndKeepsTheQueue,
    /// Threads that were asked for do not count until they are started.
    LimitForgetsTheAsked,
    /// The mask of idle Ps is read before the P is given up.
    MaskReadEarly,
    /// A new timer looks at the poller without a fence.
    TimerNoFence,
    /// The poller waits until the first P's timer, which need not be the earliest.
    PollerTakesTheFirstTimer,
    /// A goroutine that begins to sleep beside others sends nobody to the poller.
    ArmSendsNobody,
    /// The poller's M does not look at the timers before it waits.
    PollerSkipsTimers,
    /// A P that is handed off is idle although its queue is not empty.
    HandoffpSkipsQueue,
    /// No M is summoned for a P that is given away although goroutines stand in the global queue.
    HandoffpSkipsGlobal,
    /// A goroutine that comes back overtakes those in the global queue.
    ExitOvertakes,
    /// An M that was summoned and finds no P leaves the count of spinning Ms after the lock.
    SummonedInVainEndsLate,
    /// The same M stands by in another critical section.
    SummonedInVainStandsByLate,
    /// The same M stands by although the runtime ends.
    SummonedInVainIgnoresTheEnd,
    /// The same M goes into the poller without a fence.
    SummonedInVainNoFence,
    /// The first waiter for an I/O lock is not handed it.
    IoLockNoHandOver,
    /// A ring's tail moves on without Release.
    RingTailStoreRelaxed,
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
    /// An owner that keeps the older half of a full ring appends it when the newer one has gone.
    RingTurnsLate,
    /// An owner that takes a G moves the thief's head although a thief copies.
    RingClaimForgotten,
    /// A thief claims without Release.
    RingClaimRelaxed,
    /// A thief gives its claim back without Release.
    RingReleaseRelaxed,
    /// A thief reckons the room in its own ring from where Gs can be taken.
    StealReckonsFromReal,
    /// A thief takes more than its own ring has room for.
    StealBeyondTheRoom,
    /// `Runq::push_next` publishes its G without Release.
    RunnextPutRelaxed,
    /// `Runq::push_next` queues the displaced G after the submission's fence, as a plain store after x86's exchange would.
    DisplacedAfterFence,
    /// `Runq::pop_next` stores null instead of exchanging.
    RunnextTakenByStore,
    /// `Runq::pop_next` takes without Release.
    RunnextPopRelaxed,
    /// A thief takes runnext without Acquire.
    RunnextStealRelaxed,
    /// A thief leaves runnext alone.
    RunnextNeverStolen,
    /// `Runq::is_empty` looks at the ring only.
    EmptyIgnoresRunnext,
    /// `Runq::is_empty` reads the tail before runnext, and not again after it.
    EmptyTailReadFirst,
    /// `Runq::is_empty` reads the heads without Acquire.
    EmptyHeadRelaxed,
    /// `Runq::is_empty` reads runnext without Acquire.
    EmptyNextRelaxed,
    /// The place of a timer is noted after the heap's lock.
    AlarmNotedLate,
    /// A callback that fires stays armed.
    FiringStaysArmed,
    /// A callback that fires is taken out of its heap in one critical section and disarmed in another.
    FiringInTwoSections,
    /// A callback that was moved to an earlier time is told to nobody.
    CallMovedInSilence,
    /// A callback is put into a heap of the caller's when the P was left already.
    CallLeavesThePEarly,
    /// A callback is put into the heap of an idle P, which stays among those without timers.
    CallUnmasked,
    /// A callback is put into another P's heap without the scheduler's lock.
    CallWithoutTheLock,
    /// The callbacks of a runtime that ends are told to nobody.
    OrphansForgotten,
    /// A heap whose runtime has ended goes on as if it had not.
    OrphanStaysHome,
    /// A firing whose goroutine never ran is lost.
    UnrunFiringLost,
    /// The timer thread ends after it has said so.
    TimerThreadEndsLate,
    /// The timer thread looks at its heaps, and says in another critical section how long it sleeps.
    TimerThreadLooksEarly,
    /// The last callback goes, and the timer thread sleeps on.
    TimerThreadNotTold,

    /// Who takes a free I/O lock looks without a fence whether the socket is closed.
    IoLockTakeNoFence,
    /// Who goes on after a rest does.
    IoLockGoesOnNoFence,
    /// A holder begins to rest without Release.
    IoLockRestRelaxed,
    /// A closer looks without Acquire whether the holder rests.
    IoLockRestLooksRelaxed,
    /// A closer does not wait for the holder's system call.
    IoLockCloserDoesNotWait,
    /// No waiter for an I/O lock hears a nudge.
    IoLockWaitersMasked,
    /// An I/O lock is handed to a waiter that may have given up.
    IoLockHandedBlindly,
    /// An owner that gives up takes the event with it.
    PollLeaveForgetsTheEvent,
    /// An owner that gives up leaves its ticket in the slot.
    PollLeavesItsTicket,
    /// An owner whose time limit fires does not wait for its commit.
    PollNoGate,
    /// A close, or a setter of a deadline, looks without a fence for who is there.
    SocketNoFence,
    /// A close, or a setter of a deadline, wakes nobody in the slot.
    SocketLooksAtNoSlot,
    /// A closer looks without Acquire whether the descriptor is used.
    UsersIdleRelaxed,
    /// A user of the descriptor leaves without Release.
    UsersLeaveRelaxed,
    /// The last user of a closed descriptor wakes nobody.
    UsersLastIsSilent,

    /// A mutex is taken without Acquire.
    MutexLockRelaxed,
    /// A mutex is let go without Release.
    MutexUnlockRelaxed,
    /// A waiter that was notified to try a mutex, and comes too late, leaves its mark as it goes back.
    MutexWokenStays,
    /// A mutex is let go where it is to be handed over.
    MutexNoHandOver,
    /// What a waiter of a mutex was notified of is lost with its runtime.
    MutexLeftBehind,
    /// A Condvar lets the mutex go before it has the lock of its queue.
    CondvarUnlocksFirst,
    /// An RwLock is taken without Acquire.
    RwLockTakeRelaxed,
    /// An RwLock is granted without Acquire.
    RwLockGrantRelaxed,
    /// A reader goes without Release.
    RwLockReadRelaxed,
    /// A writer for which nobody waits goes without Release.
    RwLockWriteRelaxed,
    /// The last reader wakes nobody.
    RwLockLastReaderLeaves,
    /// Who leaves the queue of an RwLock lets nobody go on whom it held back.
    RwLockLeavesQuietly,
    /// A release notifies nobody.
    SemaphoreGrantsNobody,
    /// Who leaves the queue of a semaphore lets nobody go on whom it held back.
    SemaphoreLeavesQuietly,
    /// A WaitGroup that reaches zero wakes nobody.
    WaitGroupWakesNobody,
    /// Who waits for a WaitGroup looks at its count only before it has the lock of the queue.
    WaitGroupNoRecheck,
    /// A WaitGroup counts down without Release.
    WaitGroupDoneRelaxed,
    /// A WaitGroup is found at zero without Acquire.
    WaitGroupLookRelaxed,
    /// A Once is done without Release.
    OnceDoneRelaxed,
    /// A Once is found done without Acquire.
    OnceLookRelaxed,
    /// Who waits for a Once looks at it only before it has the lock of the queue.
    OnceNoRecheck,
    /// `Context::err` tells an error while the channel of the node may be open.
    ContextErrDoesNotWait,
    /// The channel of a node that is done is shown before it is closed.
    ContextShowsItsChannelOpen,
    /// Who ends a context that another is about to end does not look at those below it.
    ContextSecondEndLeaves,
    /// A waiter that was counted when its round opened is unwound by its interrupt.
    BarrierUnwindsTheCounted,
    /// A waiter that its runtime has left behind stays in the count.
    BarrierCountsTheLeft,
    /// A deadlock's judge does not ask for all Ps to be idle and all Ms to stand by.
    DeadlockIgnoresThreads,
    /// It asks for no goroutine to be parked.
    DeadlockIgnoresGs,
    /// It does not ask whether a timer is armed.
    DeadlockIgnoresTimers,
    /// It does not ask whether timers are being served.
    DeadlockIgnoresServing,
    /// What serves timers ends without Release.
    ServingEndsRelaxed,
    /// It looks at the Ms in one critical section and at the goroutines in another.
    DeadlockUnlocksBetween,

    /// Any M runs a goroutine that is bound to another.
    BoundRunsAnywhere,
    /// The M to which a goroutine is bound is brought a P, and not woken.
    BoundNotWoken,
    /// An M whose goroutine was brought before it waited does not see it.
    BoundOverlooksAssignment,
    /// An M keeps its P while it waits for its goroutine.
    BoundKeepsItsP,
    /// An M waits for its goroutine although the runtime ends.
    BoundIgnoresTheEnd,
    /// A goroutine is brought to its M although the runtime ends.
    BoundBroughtAtTheEnd,
    /// At the limit of threads an M is woken for a queued goroutine that a dump holds.
    BoundRescuedHeld,
    /// At the limit of threads nobody looks whether an M waits for a goroutine that is queued.
    BoundNotRescued,
    /// The end of a runtime wakes no M that waits for its goroutine.
    StopForgetsTheBound,
    /// An M that nobody has needed ends although it was just taken to be woken.
    IdleEndsBlindly,
    /// An M whose bound goroutine ends keeps its P, and looks for work with it.
    EndKeepsItsP,
    /// A thread that ends does not look whether somebody waited for a place among the threads.
    EndLooksAtNoQueue,

    /// A busy P takes nothing from one whose goroutines wait.
    HelpsNobody,
    /// A helper that has put goroutines into its own queue tells nobody.
    HelpWakesNobody,

    /// An M goes idle with a surplus P, which then is idle; also when the runtime ends.
    IdleKeepsTheSurplus,
    /// A bound goroutine that yields keeps a surplus P.
    YieldKeepsTheSurplus,
    /// A surplus P for which no M was found is idle.
    TakeBackKeepsTheSurplus,
    /// A P that retires keeps its queue.
    RetireKeepsTheQueue,
    /// An M gives a P up that is surplus no more.
    LeaveSurplusBlindly,
    /// An M that leaves a surplus P asks for no idle one.
    LeaveSurplusAsksForNone,
    /// An M that has got another P for a surplus one searches without being counted.
    LeaveSurplusDoesNotSpin,
    /// An M that leaves a surplus P and gets no other stays in the count of spinning Ms.
    LeaveSurplusLeaksSpinning,
    /// A surplus P is given away, and its goroutines are told to nobody.
    HandoffpRetiresQuietly,
    /// How many Ps there are to be changes in one critical section, the Ps in another.
    ProcsInTwoSections,
    /// Fewer Ps: idle ones stay.
    ShrinkKeepsTheIdle,
    /// More Ps: nobody is told.
    GrowWakesNobody,

    /// An M without a P goes to sleep beside an idle one, for which no M was found, although a goroutine stands in the global
    /// queue.
    StopmSkipsGlobal,
    /// The same, when it has given its P to the M of a bound goroutine.
    BringerSkipsGlobal,

    /// Who finds itself the only owner of a shared value does not look at what the others did.
    SharedAloneRelaxed,
    /// The last owner to go does not look at what the others did.
    SharedNoAcquire,
    /// An owner that goes tells the others nothing of what it did.
    SharedNoRelease,
}
