//! Starting Ms, each on a thread of its own.
//!
//! *The problem.* A new M that is summoned counts in `nmspinning` before it has a thread (C1 and C2 of `run/wake.rs`), so that
//! one thread is started for many submissions. While that M counts, submitters and the monitor leave all work to it. But the
//! new M's thread calls the user's functions first (`runtime/thread_start.rs`), which can take long, and meanwhile other Ms go
//! to sleep. *The obvious way* is not to count an M that is being started; then each submission starts one more M. *Here* an M
//! that stands by takes the claim over: submitters then find that M.
//!
//! ```text
//!   M that stands by                               new M
//!
//!   K1  lock: stands by;  `start_claims`?          N1  the user's functions
//!       clears it, and `nmspinning` -= 1           N2  lock: `start_claims`?  clears it: the claim is this M's now;
//!   K2  goes on as after its I1, its D2,               no: counts itself
//!       after `mput`                               N3  goes on with D1
//! ```
//! *No wake-up is lost.* At K1 the M that stands by removes the new M's claim from the count, in the section in which I1 or D2
//! removes its own claim, or in that of `mput`. The proof of I1 and D2 therefore covers both claims. A submitter that left its
//! goroutine to the new M's claim has read the count before K1. Then its SubmitFence comes before the fence of K2, and the look
//! after that fence finds the goroutine; at D2 no P is idle, and no look is needed. A submitter that reads the count after K1
//! finds an M that stands by. N2 only adds to the count, and D1 and D2 follow.
//!
//! Invariants: `start_claims` says that one claim in `nmspinning` is that of an M that is being started; there is at most one,
//! because a claim is made only while none counts. The new M that comes first takes the claim. While `start_claims` is set no M
//! stands by: a submitter would have taken that M.
//!
//! **A refused thread.** The system might refuse a thread, and then mostly does so again at the next start: a limit of the user
//! or of the cgroup was met. *The obvious way*, to ask anew at each submission that finds an idle P, makes each submission cost
//! what a start costs, some eleven system calls, for as long as the limit is met. *Here* a refusal begins a pause of
//! [`AFTER_A_REFUSAL`], in which no M may be started, as at `max_threads`:
//!
//! ```text
//!   starter                                        submitter
//!
//!   F1  the thread is refused                      S3, C1
//!   F2  lock: undoes the assignment;               C2  lock: no M, and a pause?  undoes C1
//!       `pause_until` := now + AFTER_A_REFUSAL
//!   F3  an M stands by?  S2 and S3                 monitor
//!   F4  tells the operator, once
//!                                                  G1  lock: is the pause over?  clears `pause_until`
//!                                                  G2  a P is idle, and work waits?  summons an M
//! ```
//! *No wake-up is lost.* In the pause the state is that of `max_threads`, whose argument holds (`run/wake.rs`): an M lives, and
//! looks before it sleeps. Where none lives there is no pause. That matters for the last M, whose thread ends: that M hands its
//! P on after it has left the count, and then that M, or the next submitter, starts a thread.
//!
//! *Nothing waits for longer than the pause* for a thread that could be had. Each submitter that C2 leaves without an M has
//! read the clock in the pause, under the lock. So the submitter's section comes before that of G1, and at G2 the monitor sees
//! the work. If that thread is refused, too, the next pause begins at F2. A start that succeeds does not end the pause: its M
//! may have come for a blocker, and take nothing else.
//!
//! Checked by `models/summons.rs`, a refused thread also by `models/submit_vs_idle.rs`.

use crate::host::{Host, Interrupts, Lack};
use crate::m::{Assignment, M};
use crate::prim::hooks::*;
use crate::prim::{MutexGuard, event};
use crate::sched::watch::told::Refusal;
use crate::sched::{Central, Sched};
use gmp_timers::Nanos;
use std::io;
use std::time::Duration;

/// How long the runtime asks for no thread after a refused one. A thread that the system would no longer refuse comes later by
/// at most this and the time between two looks of the monitor. A refusal takes some 50 µs, half a percent of this time.
pub(crate) const AFTER_A_REFUSAL: Duration = Duration::from_millis(10);

impl<H: Host> Central<H> {
    /// F2.
    fn begin_pause(&mut self) {
        mutant!(RefusedThreadIsAskedForAgain: return);
        self.pause_until = Some(H::after(AFTER_A_REFUSAL));
    }

    /// Returns `true` if the runtime asks for no thread, as one was refused a moment ago.
    pub(crate) fn is_pause(&self) -> bool {
        let lives = self.living() > 0;
        mutant!(PauseWithoutAnM: let lives = true);
        // Only after a refusal is the clock read.
        lives && self.pause_until.is_some_and(|until| H::now() < until)
    }

    /// G1. Returns `true` if a pause was over at `now`, and this call ends it: the work that it kept waiting may have a thread.
    pub(crate) fn end_pause(&mut self, now: Nanos) -> bool {
        self.pause_until.take_if(|until| *until <= now).is_some().unless(PauseStrandsItsWork)
    }
}

impl<H: Host> Sched<H> {
    /// Starts the first M, without which no goroutine would ever run.
    pub(crate) fn start_first(&self) -> io::Result<()> {
        let mut central = self.central.lock();
        let p = self.pidleget(&mut central).expect("start_first: there is at least one P");
        central.asked_for += 1;
        drop(central);
        self.spawn_m(Assignment::P(p)).map_err(|(refused, assignment)| {
            self.take_back(&mut self.central.lock(), assignment);
            io::Error::new(refused.kind(), format!("cannot start the runtime's first thread: {refused}"))
        })
    }

    /// Starts a new M. If the host refuses the thread, the P is idle again, and the work waits for the Ms that exist.
    pub(crate) fn newm(&self, assignment: Assignment<H>) {
        let Err((refused, assignment)) = self.spawn_m(assignment) else { return };
        let first = self.count_refused(Refusal::Thread);
        let mut central = self.central.lock();
        self.take_back(&mut central, assignment);
        central.begin_pause();
        let count = central.living();
        let rescued = self.rescue(&mut central);
        mutant!(MailStaysWithoutAThread: drop(central); return self.start_woken(rescued));
        self.forward_mail_of_the_idle(&mut central);
        let somebody = central.idle.has_m() || central.poller.blocked().is_some();
        drop(central);
        self.start_woken(rescued);
        if somebody.unless(RefusedStartWakesNobody) {
            // Submitters might have left their goroutines to the M that was summoned; or an M that gave up might have seen work
            // and found no idle P, because this assignment held it.
            self.wakep();
        }
        // Last, as this may take a while if nobody reads standard error.
        if first {
            let most = self.config.max_threads;
            H::warn(&format!(
                "cannot start thread {} of at most {most}: {refused}; going on with those that run: goroutines that \
                 block their thread, or never yield, may stall others",
                count + 1
            ));
        }
    }

    /// Called when goroutines wait for a P and there is no M for it: tells the operator, once, and moves the mail of idle Ps to
    /// the global queue. Tells nothing while an M is being started, or while the M in the poller is on its way out of a broken
    /// wait, as that M comes; nor in the pause after a refused thread, which the operator was told.
    pub(crate) fn warn_at_the_limit(&self, mut central: MutexGuard<'_, Central<H>>) {
        let is_the_limit = central.living() >= self.config.max_threads;
        let one_comes = central.asked_for + central.starting > 0 || central.poller.is_broken();
        let all_are_in_use = is_the_limit && !one_comes;
        let first = all_are_in_use && !std::mem::replace(&mut central.limit_told, true);
        mutant!(MailStaysAtTheLimit: return);
        self.forward_mail_of_the_idle(&mut central);
        drop(central);
        if first {
            let most = self.config.max_threads;
            H::warn(&format!(
                "all threads that a runtime may have are in use: goroutines wait for one (RuntimeBuilder::max_threads is {most})"
            ));
        }
    }

    /// K1, for an M that stands by from here on. Under the lock.
    pub(crate) fn take_claim_over(&self, central: &mut Central<H>) {
        mutant!(StartKeepsItsClaim: return);
        if std::mem::take(&mut central.start_claims) {
            event(format_args!("takes the claim of a start over"));
            self.census.end_spinning();
        }
    }

    /// N2: `m`, which is new, takes its assignment.
    pub(crate) fn take_first_assignment(&self, m: &M<H>) {
        let mut central = self.central.lock();
        central.starting -= 1;
        if m.is_summoned() && !std::mem::take(&mut central.start_claims) {
            unless!(RelievedStartCountsNot, self.census.begin_spinning());
        }
        drop(central);
        m.take_assignment();
    }

    /// Sets the calling thread up as that of `m`.
    pub(crate) fn thread_begins(&self, m: &M<H>) {
        let interrupts = if self.config.knobs.dump_signal { Interrupts::Yes } else { Interrupts::No };
        let (thread, lack) = H::thread_begins(&m.local, interrupts);
        m.set_thread(thread);
        if lack == Lack::Yes {
            self.tell_refused(Refusal::Descriptor, || {
                "there are too few descriptors to keep one for each thread: whether a goroutine blocks its thread is then read \
                 from a file that is opened for each look (RLIMIT_NOFILE)"
                    .to_owned()
            });
        }
    }

    /// Starts the thread of a new M, which the caller has counted in `asked_for`.
    fn spawn_m(&self, assignment: Assignment<H>) -> Result<(), (io::Error, Assignment<H>)> {
        let this = self.arc().expect("spawn_m: its caller holds the scheduler");
        let mut central = self.central.lock();
        central.asked_for -= 1;
        if self.is_stopping() {
            self.take_back(&mut central, assignment);
            return Ok(());
        }
        debug_assert!(central.living() < self.config.max_threads, "spawn_m: more threads than there may be");
        let (m, life) = self.take_record(&mut central);
        let name = format!("{}{}", self.config.thread_name, m.id);
        m.assign(assignment);
        // Counted once for the M, and once for this start: the ender waits until the thread's handle is kept.
        central.alive += 2;
        central.starting += 1;
        drop(central);

        let started = H::start(&name, move || this.mstart(&m));
        let result = match started {
            Ok(thread) => {
                self.central.lock().keep_thread(&m, life, thread);
                Ok(())
            }
            Err(refused) => {
                let assignment =
                    m.take_back_assignment().expect("spawn_m: what was left for an M that did not start");
                let mut central = self.central.lock();
                central.spare_ms.push(m);
                central.starting -= 1;
                drop(central);
                self.thread_left();
                Err((refused, assignment))
            }
        };
        self.thread_left();
        result
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;
    use crate::host::Active;
    use crate::{Runtime, go};

    /// Fails if the operator is told that all threads are in use while one of them is on its way out of the poller, or is not
    /// told when it is so.
    #[test]
    fn a_thread_that_comes_from_the_poller_is_not_in_use() {
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        let runtime = unsafe { Runtime::builder().procs(2).max_threads(2).build() }.unwrap();
        let told = runtime.run(|| {
            let sched = M::<Active>::current().and_then(|m| m.sched().arc()).expect("it has a runtime");
            // The second thread runs this one, and goes to the poller.
            drop(go(|| ()));
            let locked_when = |holds: fn(&Central<Active>) -> bool| loop {
                let central = sched.central.lock();
                if holds(&central) {
                    break central;
                }
                drop(central);
                crate::yield_now();
            };
            let mut central = locked_when(|central| central.poller.blocked().is_some());
            sched.expel_poller(&mut central);
            sched.warn_at_the_limit(central);
            let comes = sched.central.lock().limit_told;
            sched.break_poll();
            sched.warn_at_the_limit(locked_when(|central| !central.poller.is_broken()));
            [comes, sched.central.lock().limit_told]
        });
        assert_eq!(told, [false, true]);
    }
}
