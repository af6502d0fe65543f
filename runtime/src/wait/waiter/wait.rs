//! The owner's side of a wait: opening the wait, and blocking until the wait is over.

use super::{Parker, Waiter};
use crate::g::{self, GRef};
use crate::host::Host;
use crate::m::{M, Window};
use crate::prim::hooks::*;
use crate::prim::{Arc, Relaxed};
use crate::sched::park::{Commit, Hook, WaitReason, Yield};
use crate::sched::timers::WaitTimer;
use crate::sched::{Sched, park, switch};
use crate::wait::abandon::AbandonHook;
use crate::wait::interrupt::{self, Interrupt, Masked, OnInterrupt, PendingInterrupts};
use crate::wait::status::{StatusWord, Then, WaitNumber, Why};
use gmp_timers::Nanos;
use std::mem::ManuallyDrop;

/// How to wait.
#[derive(Copy, Clone)]
pub(crate) struct How {
    pub(crate) reason: WaitReason,
    /// The time limit.
    pub(crate) until: Option<Nanos>,
    pub(crate) ends: OnInterrupt,
    /// Whether a nudge returns to the caller.
    pub(crate) looks: bool,
}

impl How {
    /// Returns a way to wait without a limit, whose interrupts unwind.
    pub(crate) fn new(reason: WaitReason) -> Self {
        How { reason, until: None, ends: OnInterrupt::Unwinding, looks: false }
    }

    pub(crate) fn until(self, until: Option<Nanos>) -> Self {
        How { until, ..self }
    }

    pub(crate) fn ends(self, ends: OnInterrupt) -> Self {
        How { ends, ..self }
    }

    pub(crate) fn looking(self) -> Self {
        How { looks: true, ..self }
    }
}

/// Why a parked owner runs again.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Woke {
    /// A waker has claimed the wait, a counterpart or the time limit. The wait is over.
    Readied,
    /// The commit hook refused. The wait is over.
    Refused,
    /// Another thread has changed a condition that the owner has to check. The wait is open.
    Nudged,
    /// The owner has claimed the wait, which is over, and has to leave the queues and unwind, or return an error.
    Interrupted(Interrupt),
}

/// One wait of the caller, from the opening to the end.
pub(crate) struct Wait<H: Host> {
    who: Who<H>,
    number: WaitNumber,
    /// The limit for which the timer is armed.
    until: Option<Nanos>,
    timer: Option<WaitTimer<H>>,
    masked: Masked,
}

enum Who<H: Host> {
    /// A goroutine, which is inside the runtime until the park.
    G(GRef<H>, Option<Window<H>>),
    /// A plain thread.
    Thread(Arc<Parker<H>>),
}

/// A wait that was opened, for `Wait::of`. Smaller than a `Wait`, for handing on.
pub(crate) struct Opened<H: Host> {
    who: Who<H>,
    number: WaitNumber,
}

impl<H: Host> Opened<H> {
    #[inline(always)]
    fn on_goroutine(window: Window<H>) -> Self {
        let g = window.g();
        let number = g.word.begin_wait();
        Opened { who: Who::G(g, Some(window)), number }
    }

    /// Opens a wait in which the calling thread sleeps, even below a goroutine.
    #[cold]
    pub(crate) fn on_thread() -> Self {
        let parker = if M::<H>::current().is_none() { Parker::of_thread() } else { Parker::new() };
        let number = parker.word.begin_wait();
        Opened { who: Who::Thread(parker), number }
    }
}

impl<H: Host> Wait<H> {
    /// Opens a wait of the caller, a goroutine or a plain thread.
    #[inline]
    pub(crate) fn begin() -> Self {
        Self::of(Self::open())
    }

    /// As `begin`, for `of`.
    #[inline]
    pub(crate) fn open() -> Opened<H> {
        Window::enter().map_or_else(Opened::on_thread, Opened::on_goroutine)
    }

    /// As `open`, for a caller that holds a lock. Returns `None` if the caller would have to park for a P first.
    #[inline(always)]
    pub(crate) fn try_open() -> Option<Opened<H>> {
        match M::current() {
            None => Some(Opened::on_thread()),
            Some(m) => Window::enter_on(m).map(Opened::on_goroutine),
        }
    }

    #[inline(always)]
    pub(crate) fn of(opened: Opened<H>) -> Self {
        let Opened { who, number } = opened;
        Wait { who, number, until: None, timer: None, masked: Masked::new() }
    }

    /// Returns the part of the record that wakers claim.
    #[inline]
    pub(crate) fn waiter(&self) -> Waiter<H> {
        match &self.who {
            Who::G(g, _) => Waiter::G(*g, self.number),
            Who::Thread(parker) => Waiter::Parker(Arc::clone(parker), self.number),
        }
    }

    /// Returns the goroutine that waits, and the number of the wait.
    pub(crate) fn goroutine(&self) -> Option<(GRef<H>, WaitNumber)> {
        match &self.who {
            Who::G(g, _) => Some((*g, self.number)),
            Who::Thread(_) => None,
        }
    }

    /// Sets the hook that is run if the owner never runs again; null for none. Does nothing for a plain thread, which
    /// always runs again.
    pub(crate) fn on_abandon(&self, hook: *const AbandonHook) {
        if let Who::G(g, _) = &self.who {
            // Relaxed: the reader has claimed the goroutine's wait, or has taken the goroutine out of a queue, or is the
            // goroutine itself.
            g.on_abandon.store(hook.cast_mut(), Relaxed);
        }
    }

    /// Blocks the caller. `commit` publishes the Waiter, most often by unlocking a queue; `commit` runs when the caller can be
    /// resumed, on the M. Called once for each wait.
    #[inline]
    pub(crate) fn park(&mut self, how: How, commit: impl FnOnce() -> Commit) -> Woke {
        match &mut self.who {
            Who::G(g, window) => {
                let g = *g;
                let window = window.take().expect("park: once for each wait");
                let duties = window.m().sched().duties();
                let commit = ManuallyDrop::new(commit);
                if !duties.are_none() && duties.calls_hooks() {
                    return self.park_with_hooks(g, window, how, Hook::new(&commit));
                }
                let pending = g.pending_interrupts(duties);
                g.interrupt_policy.set(how.ends, pending.listens::<H>(how.ends));
                match how.until {
                    None => park::gopark(window, self.number, how.reason, Hook::new(&commit)),
                    Some(due) => {
                        self.until = how.until;
                        let timer: *const WaitTimer<H> = self.timer.insert(WaitTimer::new());
                        let commit = ManuallyDrop::into_inner(commit);
                        park::gopark_until(window, self.number, how.reason, (due, timer), commit);
                    }
                }
                match g.word.why(self.number) {
                    Why::Readied => {
                        // This is the only timer of the wait. After a nudge there might have been others.
                        match &self.timer {
                            Some(timer) if g.word.was_timed() => timer.fired(),
                            Some(timer) => timer.disarm(),
                            None => {}
                        }
                        Woke::Readied
                    }
                    why => Self::arrive(self.settle(g, how, why)),
                }
            }
            Who::Thread(_) => match commit() {
                Commit::Park => self.doze(how),
                Commit::Refuse => {
                    self.close();
                    Woke::Refused
                }
            },
        }
    }

    /// As `park`, for a goroutine whose switches have functions around them: see `sched/switch.rs`.
    #[cold]
    #[inline(never)]
    fn park_with_hooks(&mut self, g: GRef<H>, window: Window<H>, how: How, hook: Hook) -> Woke {
        let sched = window.m().sched();
        if H::is_panicking() {
            // As in `attend`.
            g.interrupt_policy.set(OnInterrupt::Never, false);
        } else {
            let pending = g.pending_interrupts(sched.duties());
            g.interrupt_policy.set(how.ends, pending.listens::<H>(how.ends));
        }
        park::note(&window, how.reason);
        let listens = g.interrupt_policy.listens();
        g.word.announce(self.number);
        let interrupted = listens && interrupt::is_interrupted(g, sched.is_ending());
        mutant!(AnnounceForgetsInterrupts: let interrupted = false);
        if let Some(due) = how.until {
            self.until = how.until;
            let timer: *const WaitTimer<H> = self.timer.insert(WaitTimer::new());
            sched.arm(window.p(), timer, due, (g, self.number));
        }
        // SAFETY: `park` has made the hook of a closure in its frame, and does nothing else with either. The goroutine calls
        // the hook itself instead of being suspended.
        let committed = unsafe { hook.call() };
        if committed == Commit::Park && listens {
            let then = g.word.make_known(self.number, interrupted);
            debug_assert_eq!(then, Then::Leave, "park_with_hooks: the owner is awake");
        }
        drop(window);
        mutant!(CommitClosesBlindly: if committed == Commit::Refuse { self.close(); return Self::arrive(Woke::Refused) });
        let woke = match committed {
            Commit::Park => {
                self.suspend_again(g);
                let why = g.word.why(self.number);
                self.settle(g, how, why)
            }
            Commit::Refuse if self.timer.is_none() => {
                self.close();
                Woke::Refused
            }
            // The timer might have claimed the wait all the same.
            Commit::Refuse if self.claim_or_sleep() => Woke::Refused,
            Commit::Refuse => Woke::Readied,
        };
        Self::arrive(woke)
    }

    /// Lets the owner's call go on with `woke`.
    #[inline]
    fn arrive(woke: Woke) -> Woke {
        // After a nudge the caller, which is the library's code, looks, and ends the wait by another call.
        if woke != Woke::Nudged {
            switch::resume::<H>();
        }
        woke
    }

    /// Sleeps on after a look, perhaps with another limit.
    pub(crate) fn park_again(&mut self, how: How) -> Woke {
        Self::arrive(self.sleep_on(how))
    }

    fn sleep_on(&mut self, how: How) -> Woke {
        match &self.who {
            Who::G(g, _) => {
                let g = *g;
                if how.until != self.until {
                    // Otherwise the old timer would end the wait early, and the caller would have to check its limit again.
                    self.disarm();
                    self.until = how.until;
                    if let Some(due) = how.until {
                        let timer: *const WaitTimer<H> = self.timer.insert(WaitTimer::new());
                        let window = Window::<H>::enter().expect("park_again: a goroutine runs on an M");
                        // The timer can fire at once; the goroutine then finds that before it sleeps.
                        window.m().sched().arm(window.p(), timer, due, (g, self.number));
                    }
                }
                self.suspend_again(g);
                let why = g.word.why(self.number);
                self.settle(g, how, why)
            }
            Who::Thread(_) => self.doze(how),
        }
    }

    /// After a look: ends the wait, unless a waker has claimed it. Returns `true` if the owner has claimed the wait, which is
    /// then over: the owner leaves the queues. Returns `false` if a waker was faster; that waker has readied the owner by now.
    #[must_use]
    pub(crate) fn claim(&mut self) -> bool {
        let mine = self.claim_or_sleep();
        switch::resume::<H>();
        mine
    }

    fn claim_or_sleep(&mut self) -> bool {
        if self.word().claim(self.number) {
            self.close();
            return true;
        }
        match &self.who {
            Who::G(g, _) => {
                let g = *g;
                while g.word.why(self.number) != Why::Readied {
                    self.suspend_again(g);
                }
            }
            Who::Thread(parker) => {
                while parker.word.why(self.number) != Why::Readied {
                    parker.note().doze(None);
                }
            }
        }
        self.disarm();
        false
    }

    /// Gives the wait up, unpublished.
    #[inline]
    pub(crate) fn withdraw(self) {
        self.word().close_wait(self.number);
    }

    fn word(&self) -> &StatusWord {
        match &self.who {
            Who::G(g, _) => &g.word,
            Who::Thread(parker) => &parker.word,
        }
    }

    fn suspend_again(&self, g: GRef<H>) {
        switch::suspend::<H>();
        // This can itself park for a P, with this wait open.
        let window = Window::<H>::enter().expect("suspend_again: a goroutine runs on an M");
        debug_assert!(window.g() == g, "suspend_again: not its own goroutine");
        window.suspend(Yield::ParkAgain(self.number));
    }

    /// Takes the timer out: the wait is over, or has another limit now.
    #[inline]
    fn disarm(&self) {
        if let Some(timer) = &self.timer {
            timer.disarm();
        }
    }

    /// Closes the wait, which the owner has claimed, or which was not published.
    fn close(&self) {
        self.word().close_wait(self.number);
        self.disarm();
    }

    #[cold]
    fn settle(&mut self, g: GRef<H>, how: How, mut why: Why) -> Woke {
        loop {
            match why {
                Why::Readied => {
                    self.disarm();
                    return Woke::Readied;
                }
                Why::Refused => {
                    // The timer might have claimed the wait all the same.
                    mutant!(RefusedClosesBlindly: { self.close(); return Woke::Refused });
                    if self.timer.is_none() {
                        self.close();
                        return Woke::Refused;
                    }
                    return if self.claim_or_sleep() { Woke::Refused } else { Woke::Readied };
                }
                Why::Nudged => {
                    // Read here: the goroutine might run on another M now.
                    let sched = Sched::<H>::current().expect("settle: a goroutine runs on an M");
                    if let Some(woke) = self.look(g.pending_interrupts(sched.duties()), how) {
                        return woke;
                    }
                }
                Why::ClaimedForEnd => return self.end(),
                Why::Nothing => unreachable!("settle: a goroutine runs again for no reason"),
            }
            self.suspend_again(g);
            why = g.word.why(self.number);
        }
    }

    /// The runtime ends, and the wait is claimed for that: unwinds the owner if that is possible; otherwise never returns.
    #[cold]
    fn end(&mut self) -> Woke {
        if !Interrupt::Shutdown.may_throw::<H>() {
            self.stay();
        }
        self.close();
        Woke::Interrupted(Interrupt::Shutdown)
    }

    /// The runtime ends, and the owner, whose wait no waker has claimed, can't be unwound: the owner stays parked for good, as
    /// if the last step of the end had left it behind. The owner's records stay in their queues.
    pub(crate) fn stay(&mut self) -> ! {
        let Who::G(g, window) = &mut self.who else { unreachable!("stay: called on a thread") };
        let g = *g;
        if let Some(window) = window.take() {
            drop(window);
            let claimed = g.word.claim(self.number);
            debug_assert!(claimed, "stay: nobody knows of the wait");
        }
        g.interrupt_policy.set(OnInterrupt::WithOthers, false);
        g.reason.set(WaitReason::End);
        // Before the goroutine's locks and its joiner go to others.
        switch::suspend::<H>();
        AbandonHook::run_of(g);
        g::mark_left(g);
        loop {
            self.suspend_again(g);
        }
    }

    /// Makes the look that a nudge asks for.
    fn look(&mut self, pending: PendingInterrupts, how: How) -> Option<Woke> {
        if pending.ends && pending.listens::<H>(how.ends) {
            return Some(if self.word().claim(self.number) {
                self.end()
            } else {
                let _readied = self.claim_or_sleep();
                Woke::Readied
            });
        }
        if pending.listens::<H>(how.ends)
            && let Some(interrupt) = pending.interrupt::<H>(how.ends, &mut self.masked)
        {
            return Some(if self.claim_or_sleep() { Woke::Interrupted(interrupt) } else { Woke::Readied });
        }
        how.looks.then_some(Woke::Nudged)
    }

    fn doze(&mut self, how: How) -> Woke {
        let pending = PendingInterrupts::of_thread::<H>();
        let Who::Thread(parker) = &self.who else { unreachable!("doze: called on a goroutine") };
        let parker = Arc::clone(parker);
        let mut until = how.until;
        loop {
            match parker.word.why(self.number) {
                Why::Readied => return Woke::Readied,
                // A thread under a context looks at each wake.
                Why::Nothing if pending.frame.is_null() => {}
                Why::Nothing => {
                    if let Some(woke @ (Woke::Interrupted(_) | Woke::Readied)) = self.look(pending, how) {
                        return woke;
                    }
                }
                Why::Nudged => {
                    if let Some(woke) = self.look(pending, how) {
                        return woke;
                    }
                }
                Why::Refused => unreachable!("doze: a thread's hook refuses before"),
                Why::ClaimedForEnd => unreachable!("doze: a thread is of no runtime that could end"),
            }
            if !parker.note().doze(until) {
                if parker.word.claim(self.number) {
                    // The time limit has come: for the owner that is the same as a waker's ready.
                    parker.word.close_wait(self.number);
                    return Woke::Readied;
                }
                mutant!(ThreadLimitLeavesEarly: return Woke::Readied);
                // A waker was faster, and readies the thread.
                until = None;
            }
        }
    }
}
