//! Starting Ms: a thread for each.
//!
//! *The problem.* A new M that is summoned counts in `nmspinning` before it has a thread (C1 and C2 of `run/wake.rs`), so that
//! one thread is started for many submissions. While it counts, submitters and the monitor leave all to it. But its thread
//! calls the user's functions first (`runtime/thread_start.rs`), which may take long, and meanwhile other Ms go to sleep.
//! *The obvious way*, not to count an M that is being started, has each submission start one more. *Here* an M that stands by
//! takes the claim over: submitters then find that M.
//!
//! ```text
//!   M that stands by                               new M
//!
//!   K1  lock: stands by;  a start claims?          N1  the user's functions
//!       that claim leaves the count                N2  lock: the start claims still?  the claim is the M's now;
//!   K2  goes on as after its I1, its D2,               no: counts itself
//!       or `mput`                                  N3  as from D1 on
//! ```
//! *No wake-up is lost.* At K1 the M that stands by removes the new M's claim from the count, in the section in which I1 or D2
//! removes the M's own claim, or in that of `mput`. The proof of I1 and D2 therefore covers both claims. A submitter that left
//! its goroutine to the new M's claim read the count before K1. Its SubmitFence then comes before the fence of K2, after which
//! the M that stands by sees the goroutine; or, at D2, no P is idle. A submitter that reads the count after K1 finds an M that
//! stands by. N2 only adds to the count, and D1 and D2 follow.
//!
//! Invariants: `start_claims` says that one claim in `nmspinning` is that of an M that is being started; there is one at most,
//! as a claim is made where none counts. Whichever new M comes first takes it. While it is set no M stands by, as a submitter
//! would have taken that M.
//!
//! Checked by `models/summons.rs`.

use crate::host::{Host, Interrupts, Lack};
use crate::m::{Assignment, M};
use crate::prim::hooks::*;
use crate::prim::{MutexGuard, event};
use crate::sched::watch::told::Refusal;
use crate::sched::{Central, Sched};
use std::io;
use std::ptr::NonNull;

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
        let _counted = self.count_refused(Refusal::Thread);
        let mut central = self.central.lock();
        self.take_back(&mut central, assignment);
        let first = !std::mem::replace(&mut central.warned, true);
        let count = central.living();
        let rescued = self.rescue(&mut central);
        mutant!(MailStaysWithoutAThread: drop(central); return self.start_woken(rescued));
        self.forward_mail_of_the_idle(&mut central);
        let somebody = central.idle.has_m() || central.poller.blocked().is_some();
        drop(central);
        self.start_woken(rescued);
        if first {
            let most = self.config.max_threads;
            H::warn(&format!(
                "cannot start thread {} of at most {most}: {refused}; going on with those that run",
                count + 1
            ));
        }
        if somebody {
            // Submitters left their goroutines to the M that was summoned; or an M that gave up has seen work and found no
            // idle P, as this assignment held it.
            mutant!(RefusedStartWakesNobody: return);
            self.wakep();
        }
    }

    /// There is no M for a P for which goroutines wait: tells the operator, once. While an M is being started not all are in
    /// use: that one comes.
    pub(crate) fn warn_at_the_limit(&self, mut central: MutexGuard<'_, Central<H>>) {
        let all_are_in_use = central.asked_for + central.starting == 0;
        let first = all_are_in_use && !std::mem::replace(&mut central.warned, true);
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

    /// K1, by an M that stands by from here on, under the lock.
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

    /// The calling thread begins to be `m`.
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

    /// The caller has counted the M in `asked_for`.
    fn spawn_m(&self, assignment: Assignment<H>) -> Result<(), (io::Error, Assignment<H>)> {
        let this = self.arc().expect("spawn_m: its caller holds the scheduler");
        let mut central = self.central.lock();
        central.asked_for -= 1;
        if self.is_stopping() {
            self.take_back(&mut central, assignment);
            return Ok(());
        }
        debug_assert!(central.living() < self.config.max_threads, "spawn_m: more threads than there may be");
        let (there, life) = self.take_record(&mut central);
        // SAFETY: Ms live as long as their scheduler, which `this` holds.
        let m = unsafe { there.as_ref() };
        let name = format!("{}{}", self.config.thread_name, m.id);
        m.assign(Some(assignment));
        let raw = Handed(there);
        // Once for the M, and once for this start: the ender waits until the thread's handle is kept.
        central.alive += 2;
        central.starting += 1;
        drop(central);

        let started = H::start(&name, move || {
            let raw = raw;
            // SAFETY: Ms live as long as their scheduler, which `this` holds.
            this.mstart(unsafe { raw.0.as_ref() });
        });
        let result = match started {
            Ok(thread) => {
                self.central.lock().keep_thread(m, life, thread);
                Ok(())
            }
            Err(refused) => {
                let assignment =
                    m.take_back_assignment().expect("spawn_m: what was left for an M that did not start");
                let mut central = self.central.lock();
                central.spare_ms.push(there);
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

/// A pointer to an M on the way to the M's own thread.
struct Handed<H: Host>(NonNull<M<H>>);
// SAFETY: an M is Sync, so the thread to which the pointer goes may use it.
unsafe impl<H: Host> Send for Handed<H> {}
