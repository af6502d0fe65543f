//! Deadlock: no goroutine runs, and nothing that is under way could make a goroutine run.
//!
//! While a thread or goroutine is inside `run`, the monitor of a runtime whose Ps are all idle looks for a deadlock: at once,
//! and 1, 10, 100 ms and 1 s later ([`LOOKS`]). If an M has held a P meanwhile, the looks begin anew. After these looks the
//! monitor can sleep without a limit. The monitor of the runtime that falls asleep last finds the others asleep.
//!
//! While a timer is armed, only the last of these looks judges. A judgement counts the threads of the process by a system call
//! under the locks of all runtimes, and a program that sleeps again and again would pay for that each time.
//!
//! *Asleep*, for all runtimes of the process at one moment:
//!
//! 1. all Ps are idle, and every thread of the runtimes that has not left is the monitor, an M in a list of those that stand by
//!    or wait for their bound goroutine, or the M in the poller; no thread is about to be started;
//! 2. no timer is armed, no monitor is serving timers, and the timer thread has no callback to fire and fires none;
//! 3. every goroutine is parked, in a wait that no waker has claimed or nudged, and no goroutine and no task waits for a
//!    descriptor (`net/desc/tasks.rs`);
//! 4. each plain thread inside `run` waits for a goroutine that has not ended;
//! 5. the process has no other threads: the kernel's count is that of the threads in 1, 2 and 4. Other threads could do
//!    anything. `GMPDEBUG=deadlock=always` leaves this condition out;
//! 6. no receiver listens for signals ([`Listens`]), and no call waits for a thread (`sched/calls.rs`).
//!
//! **Why no deadlock is reported too early.** The *judge* is a monitor. The judge takes, in this order, the lock of the list of
//! runtimes, the timer thread's lock, and the lock of each scheduler, and holds them together. The first lock excludes other
//! judges, and no other thread holds two schedulers' locks. An M that stands by does nothing but look until it has its
//! scheduler's central lock, or a waker that holds that lock has taken it out of its idle spot. The M in the poller takes the
//! lock when it comes back. So if condition 1 holds under the locks, no M does anything, and the judge sees all that the Ms did
//! before. The remaining cases:
//!
//! * the M in the poller might have come back and carry goroutines that it found. Their waits were claimed, which condition 3
//!   sees. A goroutine whose event is in the kernel, or was reported to the M and not looked at, still waits for a descriptor.
//!   The M might also carry the waker of a task, which it took under the lock of the poller's table: `serving` says so from
//!   that section on, until there is a goroutine, or a call of `sched/calls.rs`, that calls the waker. The judge looks at the
//!   table first, then at `serving`, and then at the goroutines;
//! * an M between standing by and its sleep looks at the queues, which are empty because all Ps are idle, and at the jobs, at
//!   which the judge looks as well;
//! * another monitor might carry a callback that it took from a heap: `serving` says so from before that monitor takes the
//!   callback until the callback is a goroutine. For goroutines that it found in the poller the first case holds;
//! * the timer thread says under its lock what it is about to do;
//! * a thread inside `run` might have been woken: then the goroutine for which the thread waits has ended, and was no longer
//!   live when that goroutine's M gave up;
//! * other threads: the kernel counted the threads while no thread of the library was awake to start one, and there are no
//!   other threads.
//!
//! With no thread awake nothing changes any more: the state that the judge sees holds at one moment, and then for ever. The
//! kernel's count can be too high by a thread that has ended and is not gone yet: the next look finds it gone.
//!
//! **Not noticed**: goroutines that wait for each other while any other goroutine, timer, descriptor or foreign thread could
//! still do something; a deadlock in a program that keeps a socket in which a task's waker is left, because the future was
//! dropped, or because an event came just when the poll stored the waker; and a deadlock that arises only when a foreign
//! thread, a callback outside of a runtime, or a thread that calls foreign wakers, ends more than a second after the last
//! goroutine fell asleep: by then no monitor looks any more.
//!
//! Under the lock of `Runtimes` the judge takes the timer thread's lock, all `central`s by their places, and then those of
//! heaps, pollers' tables and pools: the order of `prim/lock.rs`.
//!
//! Checked by `models/deadlock.rs` (1 to 3, for one runtime) and `tests/deadlock/`.

use crate::g::GRef;
use crate::host::Host;
use crate::m::M;
use crate::m::note::Note;
use crate::prim::hooks::*;
use crate::prim::{Acquire, Arc, AtomicU64, Mutex, Rank, Relaxed, Release, Weak};
use crate::sched::calls::calls_wait;
use crate::sched::watch::dump::{Wanted, dump_all};
use crate::sched::{Central, Sched};
use gmp_timers::Nanos;
use std::marker::PhantomData;
use std::time::Duration;

/// When to look, after all Ps of a runtime have become idle.
const LOOKS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
];

/// The runtimes of the process, and the callers that are inside `run`. The host keeps one value of this type.
pub(crate) struct Runtimes<H: Host> {
    known: Mutex<Known<H>>,
    /// How often a [`Listens`] has ended, or `judge_anew` was called.
    silences: AtomicU64,
}

struct Known<H: Host> {
    /// The runtimes that have started and not begun to end.
    all: Vec<Weak<Sched<H>>>,
    callers: Vec<Caller<H>>,
    tickets: u64,
    /// How many `Listens` there are.
    listens: usize,
    /// A deadlock was found; from then on no judge reports another.
    reported: bool,
}

/// A thread or goroutine inside `run`.
struct Caller<H: Host> {
    ticket: u64,
    does: Doing<H>,
    /// The caller is a plain thread, and no goroutine.
    thread: bool,
}

/// What a caller of `run` is doing.
pub(crate) enum Doing<H: Host> {
    /// The caller has not begun to wait, or no longer waits.
    Awake,
    /// The caller waits for this goroutine, and keeps its handle until it sets another value.
    WaitsFor(GRef<H>),
    /// The caller waits for ever.
    WaitsForEver,
}

/// The presence of a caller in `run`, which begins before the caller's goroutine is spawned, because a deadlock is reported
/// only while a caller is there, and the goroutine can fall asleep at once. Dropped when the caller leaves.
pub(crate) struct Presence<H: Host>(Option<(&'static Runtimes<H>, u64)>);

impl<H: Host> Presence<H> {
    /// The calling thread or goroutine is inside `run` from here on.
    pub(crate) fn begin() -> Self {
        Self::of(M::<H>::current().is_none())
    }

    /// The calling thread is about to be an M, and counts as one until `ends_as_m`.
    pub(crate) fn begin_as_m() -> Self {
        Self::of(false)
    }

    /// The calling thread is no longer an M.
    pub(crate) fn ends_as_m(&self) {
        self.with(|caller| caller.thread = true);
    }

    fn of(thread: bool) -> Self {
        let Some(runtimes) = &H::shared().runtimes else { return Presence(None) };
        let mut known = runtimes.known.lock();
        known.tickets += 1;
        let ticket = known.tickets;
        known.callers.push(Caller { ticket, does: Doing::Awake, thread });
        Presence(Some((runtimes, ticket)))
    }

    pub(crate) fn set(&self, does: Doing<H>) {
        self.with(|caller| caller.does = does);
    }

    fn with(&self, f: impl FnOnce(&mut Caller<H>)) {
        if let Some((runtimes, ticket)) = self.0 {
            let mut known = runtimes.known.lock();
            let caller = known.callers.iter_mut().find(|caller| caller.ticket == ticket);
            f(caller.expect("with: the caller is inside `run`"));
        }
    }
}

impl<H: Host> Drop for Presence<H> {
    fn drop(&mut self) {
        if let Some((runtimes, ticket)) = self.0 {
            runtimes.known.lock().callers.retain(|caller| caller.ticket != ticket);
        }
    }
}

/// While this value lives the process is not asleep, because a signal from outside might wake a goroutine.
pub(crate) struct Listens<H: Host>(PhantomData<fn(H)>);

impl<H: Host> Listens<H> {
    pub(crate) fn begin() -> Self {
        if let Some(runtimes) = &H::shared().runtimes {
            runtimes.known.lock().listens += 1;
        }
        Listens(PhantomData)
    }
}

impl<H: Host> Drop for Listens<H> {
    fn drop(&mut self) {
        if let Some(runtimes) = &H::shared().runtimes {
            let mut known = runtimes.known.lock();
            known.listens -= 1;
            // Relaxed: the alarms publish the count.
            runtimes.silences.fetch_add(1, Relaxed);
            // All runtimes might have been asleep for longer than a monitor looks.
            let scheds: Vec<_> = known.all.iter().filter_map(Weak::upgrade).collect();
            drop(known);
            scheds.iter().for_each(|sched| sched.monitor_note.alarm());
        }
    }
}

/// The judge's verdict.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Verdict {
    /// No goroutine will ever run; this many are left.
    Asleep(usize),
    /// A goroutine or thread is awake, or might be.
    Awake,
    /// No goroutine is awake, but a timer or the poller will wake one: then the monitor begins again.
    Waits,
    /// No caller is inside `run`, or a deadlock was already reported.
    NobodyAsks,
}

impl<H: Host> Default for Runtimes<H> {
    fn default() -> Self {
        let known = Known { all: Vec::new(), callers: Vec::new(), tickets: 0, listens: 0, reported: false };
        Runtimes { known: Mutex::new(Rank::Runtimes, known), silences: AtomicU64::new(0) }
    }
}

impl<H: Host> Known<H> {
    /// Names the monitor of the oldest runtime as the one that answers SIGQUIT.
    fn name_answering_monitor(&self) {
        let oldest = self.all.first().and_then(Weak::upgrade);
        let note = oldest.map_or(std::ptr::null(), |sched| &raw const sched.monitor_note);
        // SAFETY: a scheduler lives until it has left this list, and its leaving calls this function again.
        unsafe { H::shared().quit.set(note, Note::alarm) };
    }
}

impl<H: Host> Runtimes<H> {
    /// A runtime has started.
    pub(crate) fn begin(&self, sched: &Arc<Sched<H>>) {
        let mut known = self.known.lock();
        known.all.push(Arc::downgrade(sched));
        known.name_answering_monitor();
    }

    /// A runtime begins to end: from here on its threads count as foreign ones.
    pub(crate) fn end(&self, sched: &Sched<H>) {
        let mut known = self.known.lock();
        known.all.retain(|known| !std::ptr::eq(known.as_ptr(), sched));
        known.name_answering_monitor();
    }

    /// Makes monitors judge anew, because the reason for which the process counted as awake is gone.
    pub(crate) fn judge_anew(&self) {
        // Relaxed: read by the monitor that calls this; the other monitors look by themselves when an M takes a P.
        self.silences.fetch_add(1, Relaxed);
    }

    /// Calls `f` with each runtime that has started and not begun to end, under the lock of the list: so no thread drops one
    /// meanwhile.
    pub(crate) fn for_each(&self, f: impl Fn(&Sched<H>)) {
        let known = self.known.lock();
        known.all.iter().filter_map(Weak::upgrade).for_each(|sched| f(&sched));
    }

    /// Returns all runtimes that have started and not begun to end, in the order of their starts.
    pub(crate) fn all(&self) -> Vec<Arc<Sched<H>>> {
        self.known.lock().all.iter().filter_map(Weak::upgrade).collect()
    }

    fn judge(&self, ignores_others: bool) -> Verdict {
        let mut known = self.known.lock();
        if known.callers.is_empty() || known.reported {
            return Verdict::NobodyAsks;
        }
        if known.listens > 0 || calls_wait::<H>() {
            return Verdict::Awake;
        }
        // The runtimes live: an ender first takes its runtime off the list, for which it needs the lock.
        let scheds: Vec<_> = known.all.iter().filter_map(Weak::upgrade).collect();
        let (_frozen, timer_threads) = match H::shared().timer_thread.freeze() {
            Ok(still) => still,
            Err(verdict) => return verdict,
        };
        let verdict = judge(&scheds, |sleepers| {
            let waits = |caller: &Caller<H>| match caller.does {
                Doing::Awake => false,
                Doing::WaitsFor(main) => main.is_live(),
                Doing::WaitsForEver => true,
            };
            let threads = known.callers.iter().filter(|caller| caller.thread).count() as u32;
            known.callers.iter().all(waits)
                && (ignores_others || H::threads() == Some(sleepers + timer_threads + threads))
        });
        known.reported = matches!(verdict, Verdict::Asleep(_));
        verdict
    }
}

/// Judges conditions 1 to 3 of all `scheds` at one moment. At that moment `nobody_else`, which gets the number of their
/// threads, judges conditions 4 and 5.
pub(crate) fn judge<H: Host>(scheds: &[Arc<Sched<H>>], nobody_else: impl FnOnce(u32) -> bool) -> Verdict {
    let mut scheds: Vec<_> = scheds.iter().collect();
    scheds.sort_unstable_by_key(|sched| sched.central.place());
    let lock_all = || scheds.iter().map(|sched| sched.central.lock()).collect::<Vec<_>>();
    let mut centrals = lock_all();
    let sleepers: Option<u32> =
        scheds.iter().zip(&centrals).map(|(sched, central)| sched.sleepers(central)).sum();
    mutant!(DeadlockUnlocksBetween: drop(centrals); centrals = lock_all());
    if !sleepers.is_some_and(nobody_else) {
        return Verdict::Awake;
    }
    let mut goroutines = 0;
    for (sched, central) in scheds.iter().zip(&mut centrals) {
        match sched.all_wait(central) {
            Verdict::Asleep(count) => goroutines += count,
            other => return other,
        }
    }
    Verdict::Asleep(goroutines)
}

impl<H: Host> Sched<H> {
    /// Returns `true` if no M holds a P. Under the lock.
    pub(crate) fn all_idle(&self, central: &Central<H>) -> bool {
        central.idle.num_ps() as u64 == self.census.read().nlive()
    }

    /// Condition 1: returns how many threads there are, if all of them sleep.
    fn sleepers(&self, central: &Central<H>) -> Option<u32> {
        if central.poller.is_broken() {
            // The M in the poller has an assignment, or there is an earlier timer. No model has this: a P that was assigned is
            // not idle, a timer stands in its heap, and an M that is summoned in vain stands by again.
            return None;
        }
        let waits = usize::from(central.poller.blocked().is_some());
        let standing_by = (central.idle.num_ms() + central.bound_ms.len() + waits) as u32;
        let threads = standing_by + u32::from(H::MONITORED);
        let none_else = central.alive == threads && central.asked_for == 0;
        let asleep = self.all_idle(central) && none_else;
        mutant!(DeadlockIgnoresThreads: let asleep = true);
        (asleep && central.globq.is_empty() && !self.jobs_somewhere()).then_some(threads)
    }

    /// Conditions 2 and 3, after condition 1 and under the same locks.
    fn all_wait(&self, central: &mut Central<H>) -> Verdict {
        if let Some(g) = central.waits_for_io
            && g.is_live()
            && g.word.is_asleep()
            && g.waits_for_io()
        {
            return Verdict::Waits;
        }
        let armed = self.ps.iter().any(|p| p.timers.lock().len() > 0);
        if armed.unless(DeadlockIgnoresTimers) {
            return Verdict::Waits;
        }
        if self.descs.keeps_a_waker().unless(DeadlockIgnoresTasks) {
            return Verdict::Waits;
        }
        // Acquire: partner the end of `Serving`. If a heap was found empty under its lock, `Serving` of the monitor that
        // emptied that heap began before, and this load sees it. So did `Serving` of a thread that has taken the last waker
        // out of the table.
        if (self.serving.load(Acquire.unless(ServingLooksRelaxed)) > 0).unless(DeadlockIgnoresServing) {
            return Verdict::Awake;
        }
        let (mut count, mut verdict) = (0, None);
        let waits_for_io = self.gs().find_live(|g| {
            count += 1;
            if (!g.word.is_asleep()).unless(DeadlockIgnoresGs) {
                verdict = Some(Verdict::Awake);
            } else if g.waits_for_io() {
                // The goroutine was asleep a moment ago; the M in the poller might have found it meanwhile.
                verdict = Some(Verdict::Waits);
            }
            verdict.is_some()
        });
        if verdict == Some(Verdict::Waits) {
            // Most programs that wait for descriptors do so all the time, often with the same goroutine: that makes the next
            // look short.
            central.waits_for_io = waits_for_io;
        }
        verdict.unwrap_or(Verdict::Asleep(count))
    }
}

/// While this value lives, a callback might be out of its heap, or a waker out of the poller's table, and not yet be a
/// goroutine.
pub(crate) struct Serving<'a, H: Host>(&'a Sched<H>);

impl<'a, H: Host> Serving<'a, H> {
    pub(crate) fn begin(sched: &'a Sched<H>) -> Self {
        // Relaxed: the lock of the heap that is popped next publishes the count, or that of the table, which the caller holds.
        sched.serving.fetch_add(1, Relaxed);
        Serving(sched)
    }
}

impl<H: Host> Drop for Serving<'_, H> {
    fn drop(&mut self) {
        // Release: the partner, `all_wait`, sees the goroutine that was made of the callback, or for the waker.
        self.0.serving.fetch_sub(1, Release.unless(ServingEndsRelaxed));
    }
}

/// The looks of one monitor.
#[derive(Debug, Default)]
pub(crate) struct DeadlockWatch {
    /// Since when the Ps were seen idle; `None` if they were not.
    since: Option<Nanos>,
    /// The value of `Sched::changes` at that time.
    changes: u64,
    /// How many of [`LOOKS`] were done.
    looks: usize,
}

impl DeadlockWatch {
    /// Returns `true` if a judgement is due when all Ps have been idle for `waited`. While a timer is armed (`timers`), only
    /// the last of the [`LOOKS`] judges.
    fn judges(&mut self, waited: Duration, timers: bool) -> bool {
        let due = LOOKS.iter().filter(|&&look| look <= waited).count();
        if due <= self.looks {
            return false;
        }
        let puts_off = timers && due < LOOKS.len();
        self.looks = if puts_off { LOOKS.len() - 1 } else { due };
        !puts_off
    }
}

impl<H: Host> Sched<H> {
    /// Looks for a deadlock, for the monitor, outside of all locks. Returns the time to the next look; `None` if no further
    /// look is needed. Does not return if all goroutines are asleep.
    pub(crate) fn watch_for_deadlock(
        &self,
        deadlock_watch: &mut DeadlockWatch,
        now: Nanos,
    ) -> Option<Duration> {
        let runtimes = H::shared().runtimes.as_ref()?;
        if !self.all_idle(&self.central.lock()) {
            deadlock_watch.since = None;
            return None;
        }
        let changes = self.changes();
        let since = match deadlock_watch.since {
            Some(since) if changes == deadlock_watch.changes => since,
            _ => {
                *deadlock_watch = DeadlockWatch { since: Some(now), changes, looks: 0 };
                now
            }
        };
        let waited = now.saturating_since(since);
        if deadlock_watch.judges(waited, self.has_timers()) {
            match runtimes.judge(self.config.knobs.deadlock_always) {
                Verdict::Asleep(goroutines) => report::<H>(goroutines),
                Verdict::Awake => {}
                Verdict::Waits | Verdict::NobodyAsks => deadlock_watch.looks = LOOKS.len(),
            }
        }
        LOOKS.get(deadlock_watch.looks).map(|&look| look.saturating_sub(waited))
    }

    /// Returns `true` if a timer is armed on a P; then this runtime is not asleep. A hint.
    fn has_timers(&self) -> bool {
        self.ps.iter().any(|p| !p.timers.is_empty())
    }

    /// Returns `true` if the watch has looked at all [`LOOKS`] since an M had a P. Under the lock, with all Ps idle.
    pub(crate) fn is_watched(&self, deadlock_watch: &DeadlockWatch) -> bool {
        H::shared().runtimes.is_none()
            || deadlock_watch.since.is_some()
                && deadlock_watch.changes == self.changes()
                && deadlock_watch.looks == LOOKS.len()
    }

    /// Returns a number that grows when an M takes a P, when a receiver of signals goes, and when no call waits for a thread
    /// any more. The ticks of the Ps would not do: a bound goroutine that comes back from a blocking call to a P that was idle
    /// can park without a tick, because its M looks for no other goroutine.
    fn changes(&self) -> u64 {
        // Relaxed: `Listens` alarms the monitor after it has counted.
        let silences = H::shared().runtimes.as_ref().map_or(0, |runtimes| runtimes.silences.load(Relaxed));
        self.ps.iter().map(|p| p.handoff.changes()).sum::<u64>() + silences
    }
}

fn report<H: Host>(goroutines: usize) -> ! {
    // The texts are Go's.
    let what = if goroutines == 0 {
        "no goroutines (main called runtime.Goexit) - deadlock!"
    } else {
        "all goroutines are asleep - deadlock!"
    };
    H::give_up(&format!("fatal error: {what}\n\n{}", dump_all::<H>(Wanted::ByRuntime)))
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    /// Fails if each of a program's short sleeps makes the monitor count the threads, or if the last look does not judge: then
    /// a foreign thread that stops the timer and ends leaves a deadlock that no one notices.
    #[test]
    fn beside_an_armed_timer_the_last_look_judges() {
        let judged = |timers| {
            let mut watch = DeadlockWatch::default();
            LOOKS.map(|look| watch.judges(look, timers))
        };
        assert_eq!(judged(false), [true; LOOKS.len()]);
        assert_eq!(judged(true), [false, false, false, false, true]);
    }
}
