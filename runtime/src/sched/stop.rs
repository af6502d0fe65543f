//! The end of a runtime: goroutines are unwound where they park, as far as time allows; then the Ms leave.
//!
//! ```text
//!   ender                                          M
//!
//!   E1  lock: `ENDS` is added                      M1  the goroutine is Waiting (K1 of `park.rs`)
//!   E2  sweep: read the word of each goroutine     M2  the commit hook
//!       that sleeps and can be interrupted         M3  no goroutine at hand
//!   E3  read which goroutines the Ms have at       M4  lock: puts its P down; `ENDS`?
//!       hand                                           alarm for the ender
//!   E4  those of E2 that are not among them:
//!       claim the wait and make them Runnable,
//!       if the word is as in E2 (less a hold)
//!   E5  queue these, all at once; does one run,
//!       or is about to, or has begun since E2?
//!       sleep, sweep again;  none: step 2
//! ```
//! 1. **Goroutines are unwound.** The Ms go on as before. A goroutine that is interrupted (E4) finds its wait claimed for
//!    itself, checks whether its stack can be unwound, leaves its queues and throws (`wait/interrupt.rs`). The wait is claimed
//!    from E4 on, so goroutines that are unwound and release something (a lock, a channel's last sender) can't wake this
//!    goroutine, which would then go on as if nothing had happened. A goroutine that can't be unwound stays where it is for
//!    good, and is counted (`Wait::stay`): its joiner gets an error and its abandon hooks are run at once.
//!
//!    A goroutine that runs goes on until it parks or yields. Then it looks at `ENDS`, and interrupts itself. That look has no
//!    fence and is a hint: if the goroutine has not seen E1, a later sweep finds it asleep. There are three cases. The
//!    goroutine's M goes on with other goroutines, and the ender sweeps again when these have parked. Or the M idles or retires
//!    its P (M4), and sees E1. Or the M has done so before E1, and E2 sees M1. So the M that puts the last P down alarms the
//!    ender after the last park, and the ender sweeps once more. (The ender also sweeps now and then without an alarm: for
//!    goroutines that never stop running, and for those that run without a P.)
//!
//!    M3 comes after M2, and E3 after E2. So if a goroutine is asleep at E2 and on no M at E3, its commit hook has
//!    finished, and the next M to run the goroutine sees the hook's writes (for instance its timer's position).
//!
//!    E2 takes a snapshot of the live goroutines, and looks at each. A goroutine that has not seen E1 might spawn another after
//!    the snapshot, and might have ended when the ender looks at it. So before step 2 the ender takes a second snapshot, which
//!    must hold only goroutines that have slept since the looks at the first one: the ender's thread would drop the closure of
//!    a goroutine that is queued at step 2, and has no time limit there. A thread that is no M (`Handle`) is in no snapshot.
//!    Such a thread looks at `ENDS` once more, in the critical section in which it queues a new goroutine. Either the thread
//!    finds E1 there, and drops the closure itself; or that section comes before E1, and the first snapshot has the goroutine.
//!    The thread counts the goroutine in the same section: so a goroutine that it drops is not counted as left. As late as step
//!    2 only an M without a goroutine can queue a new goroutine: for the firing of a callback, or for a function that a context
//!    calls after its end. If such a goroutine is dropped, the timer thread makes its call: the ender starts no threads for
//!    these calls, because there might be thousands.
//!
//!    The ender never interrupts a goroutine that (a) is unwinding, (b) is dropping its closure in `g::root`, (c) is in a short
//!    internal wait, or waits for the main goroutine of another runtime, which borrows the waiter's frames
//!    (`OnInterrupt::Never`). The ender waits for these, within its limit. Nor does the ender interrupt a goroutine that waits
//!    for its scope (`OnInterrupt::WithOthers`), because the children borrow the parent's frames: the parent goes on when the
//!    ender has ended the children, and is left behind if one of them is. The ender does not wait for the parent.
//!
//!    A goroutine that never ran does not start: the closure is dropped, on a goroutine's stack, because the drop might park. A
//!    `go` from E1 on drops the closure at once. A goroutine that catches the unwinding is unwound again, three times in all,
//!    and is then left behind.
//! 2. **Ms take no more work.** No P is `wanted`, and that is never undone (`is_stopping`); the ender wakes the Ms that stand
//!    by, and every M leaves when it next looks for work. A submitter that queues a goroutine from here on finds `wanted` zero
//!    after SubmitFence (`sched/run/wake.rs`), and sets the queued goroutines aside.
//! 3. **Goroutines that are parked or queued do not run again.** Their waits are claimed, so that no waker hands them anything;
//!    their joiners get the error that the runtime ended, and their abandon hooks are run (`wait/abandon.rs`): an I/O lock goes
//!    to the next waiter. A goroutine whose wait a waker has claimed, and not yet readied, is left to that waker, parked or
//!    queued (`wait/status.rs`): the waker queues it, finds `wanted` zero, and sets it aside. The thread that runs these hooks
//!    holds no lock of `sync`, because they take such locks, and calls no waker of a task, because the waker might wait for the
//!    ender's caller: a thread aside calls it, or the call waits for such a thread (`sched/calls.rs`). Callbacks that are armed
//!    go to the timer thread (`sched/timers/timer_thread.rs`). Tasks that wait for a descriptor are woken
//!    (`net/desc/tasks.rs`).
//! 4. **The ender waits for the last M**, for a limited time. A goroutine that does not come back to the runtime keeps its M;
//!    the goroutine is left behind, with everything that it refers to. Then the ender joins the threads, within what is left of
//!    that time: the destructors of thread-locals run after a thread has left, and can wait for anything, even for a lock that
//!    the ender's caller holds.
//! 5. **Step 3 once more**, for goroutines that have run since. Goroutines that never ran are dropped. The others stay parked,
//!    and are counted: their stacks, and all that lies there, are leaked, because other goroutines might still refer to values
//!    there. An M that leaves later does step 3 for the goroutines that it has parked or queued since.
//!
//! If the limit is zero, or nothing can be unwound (`panic = "abort"`, the `generator` backend), the end begins with step 2. A
//! goroutine that ends its own runtime does E1 and leaves the rest to a thread.
//!
//! Checked by `models/shutdown.rs`; the later steps also by `models/submit_vs_idle.rs` and `models/locked.rs`.

use crate::g::list::GList;
use crate::g::{self, G, GRef};
use crate::host::Host;
use crate::m::M;
use crate::prim::hooks::*;
use crate::prim::{Ordering, Relaxed, event, fence, when_weighed};
use crate::sched::switch::Duties;
use crate::sched::watch::ending::Patience;
use crate::sched::watch::told::{Refusal, Refused};
use crate::sched::{Central, Sched};
use crate::wait::abandon::AbandonHook;
use crate::wait::interrupt::OnInterrupt;
use crate::wait::status::{Asleep, Doing, Then};
use crate::wait::task::wake_aside;
use gmp_timers::Nanos;
use std::ptr::NonNull;
use std::time::Duration;

/// The first pause after which the ender sweeps without an alarm.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
/// The longest such pause, unless a sweep itself takes long.
const OFTEN: Duration = Duration::from_millis(10);
/// The part of the limit that step 1 leaves to the Ms; less if the limit is short.
const FOR_MS: Duration = Duration::from_millis(500);
const PART_FOR_MS: u32 = 4;
/// How long the threads that have left can take to end before the ender reports how many have not ended.
const FOR_THREADS: Duration = Duration::from_millis(10);

/// What was left when a runtime ended. If one of the runtime's own goroutines has called
/// [`Runtime::shutdown`](crate::Runtime::shutdown), which then does not wait: what was there when the end began.
///
/// ```
/// use std::time::Duration;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let runtime = unsafe { gmp::Runtime::builder().build()? };
/// runtime.go(|| gmp::time::sleep(Duration::from_secs(3600)));
/// let report = runtime.shutdown(Duration::from_secs(3));
/// assert_eq!((report.goroutines_left(), report.threads_left()), (0, 0));
/// assert!(report.is_clean());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    goroutines: usize,
    threads: usize,
    refusals: usize,
    refused: Refused,
}

impl Report {
    /// Returns how many goroutines had not ended. Their stacks are leaked.
    pub fn goroutines_left(&self) -> usize {
        self.goroutines
    }

    /// Returns how many threads were not gone in time. Each of them has a goroutine that did not come back to the runtime; or,
    /// if no thread has such a goroutine, each still runs the destructors of its `thread_local!`s.
    pub fn threads_left(&self) -> usize {
        self.threads
    }

    /// Returns how often, in the runtime's life, one of its goroutines should have been unwound, by the end of a context, by
    /// the end of the runtime, or by [`goexit`](crate::goexit), but was not, because a panic there might have ended the
    /// process. That goroutine goes on waiting. The first case in a process is reported on standard error, with the frame for
    /// which the goroutine was not unwound; `GMPDEBUG=refusals=all` reports all of them, see
    /// [`RuntimeBuilder`](crate::RuntimeBuilder). A goroutine with less than 12 KiB left on its present stack, including the
    /// guard page, is counted but not reported; a plain thread in [`with_stack`](crate::with_stack) is neither counted nor
    /// reported.
    ///
    /// ```
    /// use gmp::time;
    /// use std::time::Duration;
    ///
    /// // No panic may leave it.
    /// extern "C" fn called_by_c() {
    ///     time::sleep(Duration::from_millis(30));
    /// }
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().build()? };
    /// let call = || std::hint::black_box(called_by_c as extern "C" fn())();
    /// let ended = runtime.run(|| time::timeout(Duration::from_millis(1), call));
    /// // It slept to the end.
    /// assert_eq!(ended, Ok(()));
    /// let report = runtime.shutdown(Duration::from_secs(3));
    /// assert!(report.is_clean());
    /// assert_eq!(report.unwinds_refused(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn unwinds_refused(&self) -> usize {
        self.refusals
    }

    /// Returns how often, in the runtime's life, the system refused a request that the runtime could do without.
    pub fn refused(&self) -> Refused {
        self.refused
    }

    /// Returns `true` if all goroutines and all threads have ended.
    pub fn is_clean(&self) -> bool {
        self.goroutines == 0 && self.threads == 0
    }
}

impl<H: Host> Central<H> {
    /// The calling thread begins to set goroutines aside. Returns `false` if it is already doing that: then the outer call
    /// looks once more.
    fn begins_aside(&mut self) -> bool {
        let this = H::thread_id();
        let outer = self.aside_by.iter_mut().find(|(thread, _)| *thread == this);
        match outer {
            Some((_, again)) => {
                *again = true;
                false
            }
            None => {
                self.aside_by.push((this, false));
                true
            }
        }
    }

    /// The calling thread has set aside the goroutines that it took. Returns `true` if it has queued more goroutines meanwhile.
    fn ends_aside(&mut self) -> bool {
        let this = H::thread_id();
        let at = self.aside_by.iter().position(|(thread, _)| *thread == this);
        self.aside_by.swap_remove(at.expect("ends_aside: the thread has begun")).1
    }
}

impl<H: Host> Sched<H> {
    /// Ends the runtime and waits for its threads, at most for `limit`.
    pub(crate) fn stop(&self, limit: Duration) -> Report {
        let until = H::after(limit);
        let unwinds = H::can_unwind() && !limit.is_zero();
        let mut patience = Patience::of::<H>(limit);
        if M::<H>::current_of(self).is_some() {
            // A goroutine of the same runtime can't wait for the M that runs it.
            return self.stop_from_inside(unwinds.then_some(limit));
        }
        if unwinds {
            self.unwind_goroutines(limit, &mut patience);
        }
        self.leave(until, &mut patience)
    }

    /// Does E1, and leaves the rest of the end, which may take `limit`, to a thread. If `limit` is `None`, or if no thread can
    /// be started, unwinds no goroutine, and waits for no M.
    #[cold]
    fn stop_from_inside(&self, limit: Option<Duration>) -> Report {
        if let (Some(limit), Some(this)) = (limit, self.arc()) {
            self.begin_to_end();
            let name = format!("{}end", self.config.thread_name);
            let ends = H::start(&name, move || {
                let until = H::after(limit);
                let mut patience = Patience::of::<H>(limit);
                this.unwind_goroutines(limit, &mut patience);
                let _nobody_asks = this.leave(until, &mut patience);
            });
            match ends {
                Ok(_detached) => {
                    let threads = self.central.lock().alive as usize;
                    return self.report(self.num_goroutines(), threads);
                }
                Err(refused) => {
                    let _counted = self.count_refused(Refusal::Thread);
                    // Told even after earlier refusals: this comes once, and everything that is left is left for this reason.
                    H::warn(&format!(
                        "a runtime that one of its goroutines ends leaves all others where they are: cannot start the thread \
                         that would unwind them: {refused}"
                    ));
                }
            }
        }
        self.begin_stop();
        let threads = self.forget_threads();
        let goroutines = self.leave_goroutines();
        self.thread_starts.end_aside::<H>();
        self.ask_for_callers();
        self.report(goroutines, threads)
    }

    /// Steps 2 to 5.
    pub(crate) fn leave(&self, until: Nanos, patience: &mut Patience) -> Report {
        self.begin_stop();
        let all = loop {
            if self.central.lock().alive == 0 {
                break true;
            }
            let over = !self.ender.doze(Some(patience.wakes(until))) && H::now() >= until;
            // Even when the time is over: on a busy machine the ender might not have run since the line was due.
            self.tell_awaited_goroutines(patience);
            if over {
                break self.central.lock().alive == 0;
            }
        };
        let late = if all { self.join_threads(until, patience) } else { 0 };
        self.tell_what_the_end_leaves(patience, late);
        let threads = self.forget_threads() + late;
        let goroutines = self.leave_goroutines();
        self.thread_starts.end::<H>();
        self.ask_for_callers();
        self.report(goroutines, threads)
    }

    /// Joins the threads, which have all left. Returns how many still run the destructors of their thread-locals when the time
    /// is over, and detaches these. The caller might be one of them, in such a destructor: that thread is detached at once, and
    /// counted.
    fn join_threads(&self, until: Nanos, patience: &mut Patience) -> usize {
        let threads = self.central.lock().take_threads();
        let all = threads.len();
        let mut threads: Vec<_> = threads.into_iter().filter(|thread| !H::is_own(thread)).collect();
        let own = all - threads.len();
        loop {
            // A line that was due when the last M left is printed only if the end of that M's thread takes longer than most.
            let wakes = patience.wakes(until).max(H::after(FOR_THREADS)).min(until);
            threads = threads.into_iter().filter_map(|thread| H::join(thread, wakes).err()).collect();
            if threads.is_empty() || H::now() >= until {
                return threads.len() + own;
            }
            patience.tell_threads::<H>(threads.len());
        }
    }

    /// Closes the descriptors of threads that have not come back. Returns how many threads there are. These threads themselves
    /// leave behind the goroutines that they park later (`leave_late`).
    fn forget_threads(&self) -> usize {
        let mut central = self.central.lock();
        central.ender_left = true;
        central.ms.iter().for_each(|m| H::thread_ends(&m.local));
        central.alive as usize
    }

    /// Counts a goroutine that was not unwound, because that might have ended the process.
    pub(crate) fn count_refusal(&self) {
        // Relaxed: a count.
        self.refusals.fetch_add(1, Relaxed);
    }

    fn report(&self, goroutines: usize, threads: usize) -> Report {
        // Relaxed: the ender has waited for those threads that have ended, which have counted.
        let refusals = self.refusals.load(Relaxed) as usize;
        Report { goroutines, threads, refusals, refused: self.refused() }
    }

    /// E1.
    fn begin_to_end(&self) {
        let _central = self.central.lock();
        self.at_switch.add(Duties::ENDS);
    }

    /// Step 1, in that step's part of `limit`.
    fn unwind_goroutines(&self, limit: Duration, patience: &mut Patience) {
        let until = H::after(limit - FOR_MS.min(limit / PART_FOR_MS));
        self.begin_to_end();
        let mut pause = FIRST_PAUSE;
        loop {
            let before = H::now();
            if self.sweep() {
                return;
            }
            let now = H::now();
            // With a million goroutines a sweep takes long, and the Ms need the time.
            pause = pause.max(now.saturating_since(before) * 4);
            if now >= until {
                event(format_args!("the end of the runtime waits no longer for its goroutines"));
                return;
            }
            let _told = self.ender.doze(Some(until.min(now.saturating_add(pause))));
            pause = OFTEN.min(pause * 2);
            self.tell_awaited_goroutines(patience);
        }
    }

    /// Interrupts every goroutine that sleeps and can be interrupted (E2 to E5). Returns `true` if there was no such
    /// goroutine, no goroutine ran at one moment, and none will: see `all_sleep_on`.
    pub(crate) fn sweep(&self) -> bool {
        let (mut asleep, mut with_others, mut quiet) = (Vec::new(), Vec::new(), true);
        mutant!(ShutdownReadsHandsFirst: keep before = self.at_hand());
        for g in self.gs().live() {
            match g.word.doing() {
                Doing::Ended => {}
                _ if g.is_left() => {}
                Doing::Runs => quiet = false,
                Doing::Sleeps(found) => match g.ends() {
                    OnInterrupt::WithOthers => with_others.push((g, found)),
                    OnInterrupt::Never => quiet = false,
                    OnInterrupt::Unwinding | OnInterrupt::Returning => asleep.push((g, found)),
                },
            }
        }
        if asleep.is_empty() {
            return quiet && self.all_sleep_on(&with_others);
        }
        let at_hand = self.at_hand();
        mutant!(ShutdownReadsHandsFirst: let at_hand = before.expect("read above"));
        let mut called = GList::new();
        for (g, found) in asleep {
            let free = !at_hand.contains(&g.get());
            mutant!(ShutdownCallsEarly: let free = true);
            if free && g.word.claim_for_end(&found) == Then::Queue {
                // For loom: the M that has parked the goroutine is done with the goroutine's stack, from which that M
                // has taken the hook.
                when_weighed(|| g.stack.with_mut(|_| ()));
                called.push(g);
            }
        }
        event(format_args!("the end of the runtime interrupts {called:?}"));
        self.inject(called);
        false
    }

    /// E2, again: returns `true` if the second snapshot consists of the goroutines in `asleep`, in the order of the pool, and
    /// each of them has slept on since the first look. (They wait as `OnInterrupt::WithOthers`.) Then no goroutine ran at the
    /// moment of the second snapshot.
    ///
    /// One look at each is not enough. A goroutine can be woken after the look at it, by a waker that ends before the look at
    /// the waker. And a goroutine that has not seen E1 can start another after the first snapshot, and end, or park, before the
    /// look at the starter. The started goroutine is in the second snapshot, unless it has ended as well. The ender sees its
    /// `life`: by the `Acquire` of `is_live` if the starter has ended, by that of `doing` if the starter has parked.
    fn all_sleep_on(&self, asleep: &[(GRef<H>, Asleep)]) -> bool {
        if self.jobs_are_starting() {
            return false;
        }
        let sleeps = |(g, found): &(GRef<H>, Asleep)| g.word.sleeps_still(found);
        mutant!(ShutdownTrustsOneSnapshot: return asleep.iter().all(sleeps));
        let (mut known, live) = (asleep.iter(), self.gs().live());
        let is_known = |&g: &GRef<H>| known.next().is_some_and(|it| it.0 == g && sleeps(it));
        live.iter().filter(|g| !g.is_left()).all(is_known) && known.next().is_none()
    }

    /// E3.
    fn at_hand(&self) -> Vec<NonNull<G<H>>> {
        self.central.lock().ms.iter().filter_map(|m| m.shown_g()).collect()
    }

    /// M4: called when a P is put down, under the lock. Alarms the ender, if the runtime ends.
    pub(crate) fn tell_the_end(&self) {
        if self.is_ending() {
            mutant!(ShutdownNotTold: return);
            self.ender.alarm();
        }
    }

    fn begin_stop(&self) {
        if let Some(runtimes) = &H::shared().runtimes {
            runtimes.end(self);
        }
        let mut central = self.central.lock();
        // Ms that stand by are taken out below, under the same lock; an M that would stand by later finds this first.
        self.at_switch.add(Duties::ENDS);
        self.no_p_is_wanted();
        // StopFence. SeqCst: a store that submissions load, then loads from the queues (`take_queued`) and from the lives of
        // Gs; partner: SubmitFence (`sched/run/wake.rs`). A submission need not take a lock, so no lock orders this.
        fence(Ordering::SeqCst.unless(StopNoFence));
        let mut idle = central.idle.take_ms();
        unless!(StopForgetsTheBound, idle.append(&mut central.bound_ms.take_all()));
        let blocked = central.poller.blocked().is_some();
        if blocked {
            self.expel_poller(&mut central);
        }
        central.call_monitor(&self.monitor_note);
        drop(central);
        for m in idle {
            // `m` stood by, and was taken out without an assignment.
            m.note.wake();
        }
        if blocked {
            self.break_poll();
        }
        self.leave_parked();
        self.leave_timers();
        self.set_queued_aside();
        // Each task that waits for a descriptor is polled again, and told that this runtime's poller watches nothing any more.
        unless!(TaskEndTellsNobody, wake_aside::<H>(self.descs.end()));
    }

    /// `m` leaves for good, and puts its P, if any, down.
    pub(crate) fn m_leaves(&self, m: &M<H>) {
        let mut central = self.central.lock();
        if m.p().is_some() {
            let p = m.release();
            // The P's queue might not be empty, but no M takes the P any more.
            central.idle.put_p(p);
            self.census.p_returned();
        }
        if m.spinning.replace(false) {
            self.census.end_spinning();
        }
    }

    /// Step 3 for the goroutines of an M that leaves after step 4, and has parked or queued them since. Such a goroutine ran on
    /// when the ender had gone. Whether it has parked since, or has come back without a P (`exitsyscall`), no waker may hand it
    /// anything.
    pub(crate) fn leave_late(&self) {
        let late = self.central.lock().ender_left;
        if late.unless(LateParksOpen) {
            self.leave_parked();
        }
        if late.unless(LateQueuedStays) {
            self.set_queued_aside();
            // This call also covers a goroutine whose spawner is just queueing it: that spawner calls `drop_set_aside` as well,
            // but might have found nothing there.
            self.drop_set_aside();
        }
    }

    /// A thread leaves, or the start of a thread is over.
    pub(crate) fn thread_left(&self) {
        let mut central = self.central.lock();
        central.alive -= 1;
        let last = central.alive == 0 && self.is_stopping();
        drop(central);
        if last {
            self.ender.alarm();
        }
    }

    /// Leaves behind all goroutines that are left when no M takes work any more. Returns how many stay behind.
    pub(crate) fn leave_goroutines(&self) -> usize {
        self.leave_parked();
        self.set_queued_aside();
        for g in self.gs().live() {
            g.leave();
            g::mark_left(g);
        }
        // Only now: dropping a closure might wait.
        self.drop_set_aside();
        self.num_goroutines()
    }

    /// Leaves all parked goroutines behind: no M runs them again. All waits are claimed before a joiner is told. Otherwise each
    /// goroutine would wake its joiner, and the joiner would wake its own joiner. In the end all of them would be left all the
    /// same: a woken goroutine is set aside, and its abandon hook hands on what it was given. The two loops only avoid that
    /// chain.
    fn leave_parked(&self) {
        let mut parked = self.gs().live();
        parked.retain(|g| g.word.seize());
        for g in parked {
            g::mark_left(g);
            AbandonHook::run_of(g);
        }
    }

    /// Sets aside the queued goroutines, which no M will run because the runtime ends. Tells their joiners. The closures are
    /// dropped later, because no user's code may run here.
    ///
    /// A hook can ready another goroutine of this runtime, which has a hook in its turn: for example, a notification can go
    /// through a queue of thousands. The submission of that goroutine calls this function again, on the same thread and the
    /// same stack, which might be small. The inner call returns at once, and the outer one looks once more.
    #[cold]
    pub(crate) fn set_queued_aside(&self) {
        while let Some(mut queued) = self.take_queued() {
            let mut aside = GList::new();
            while let Some(g) = queued.pop() {
                // Before a joiner is told: see `leave_parked`. If a waker has claimed the wait and not readied the goroutine,
                // that waker queues it again.
                if g.word.seize_queued() {
                    g::mark_left(g);
                    AbandonHook::run_of(g);
                    aside.push(g);
                }
            }
            let mut central = self.central.lock();
            central.aside.append(&mut aside);
            if !central.ends_aside().unless(AsideLooksOnce) {
                return;
            }
        }
    }

    /// Drops the closures of the goroutines that were set aside. Runs the user's code.
    #[cold]
    pub(crate) fn drop_set_aside(&self) {
        let mut aside = std::mem::replace(&mut self.central.lock().aside, GList::new());
        while let Some(g) = aside.pop() {
            self.drop_if_unrun(g);
        }
    }

    /// Takes all queued goroutines. Takes none, and returns `None`, inside another call of `set_queued_aside` on this thread.
    fn take_queued(&self) -> Option<GList<H>> {
        let mut queued = GList::new();
        let mut central = self.central.lock();
        if !central.begins_aside() {
            return None;
        }
        let lists = &mut *central;
        unless!(StopForgetsTheMail, lists.globq.forward_mail(0));
        let of_classes = std::iter::from_fn(|| lists.globq.classes.pop_any());
        unless!(StopForgetsTheClasses, of_classes.for_each(|g| queued.push(g)));
        while let Some(g) = lists.globq.pop_of(true) {
            queued.push(g);
        }
        unless!(StopForgetsTheStackless, queued.append(&mut lists.stackless));
        unless!(StopForgetsTheBlockers, queued.append(&mut lists.blockers));
        self.publish_len(&central);
        drop(central);
        self.ps.iter().for_each(|p| p.runq.drain(|g| queued.push(g)));
        for p in self.ps.iter().filter(|p| self.has_batch(p)) {
            unless!(StopForgetsTheBatches, p.batch.drain(|g| queued.push(g)));
        }
        self.take_jobs(&mut queued);
        Some(queued)
    }

    /// Drops the closure of a goroutine that was taken out of a queue, if the goroutine never ran.
    fn drop_if_unrun(&self, g: GRef<H>) {
        // SAFETY: `g` stood in a queue, so no M runs `g`, and this caller has taken it out.
        if g.stack.with(|stack| unsafe { (*stack).is_none() }) {
            self.count_live_outside(-i64::from(g.counts()));
            g::drop_unrun(g);
        }
    }
}
