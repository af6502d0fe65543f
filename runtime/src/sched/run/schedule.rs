//! An M's loop: find a goroutine, run the goroutine until it gives the M back, do what it asks for.

use crate::g::GRef;
use crate::host::Host;
use crate::m::M;
use crate::p::P;
use crate::prim::hooks::*;
use crate::sched::Sched;
use crate::sched::park::{Said, Seldom, Yield};
use crate::sched::run::classes::Heeded;
use crate::sched::run::globq::Dice;
use crate::sched::run::look::First;
use crate::sched::threads::mexit::Whose;
use crate::wait::status::Run;

impl<H: Host> Sched<H> {
    /// The body of an M's thread. Returns when the M, or the runtime, ends.
    pub(crate) fn mstart(&self, m: &M<H>) {
        self.begin_where_the_runtime_was_built(m);
        // The user's code, on a thread that is not an M yet: `runtime/thread_start.rs`.
        let guards = self.thread_starts.get().call_on_m::<H>();
        if let Some(seed) = self.config.policy.seed() {
            // The same seed on each M: timing can decide which M gets the only P.
            H::seed_random(Dice::new(seed).next() as u32 | 1);
        }
        self.serve(m);
        self.mexit(m, Whose::Runtime(guards));
    }

    /// The M's loop. A function of its own, so that no value of `mstart` that has to be dropped is live during the loop.
    #[inline(never)]
    fn serve(&self, m: &M<H>) {
        M::set_current(Some(m));
        self.thread_begins(m);
        self.refresh_coarse_clock();
        self.take_first_assignment(m);
        while let Some(g) = self.find_runnable(m) {
            self.execute(m, g);
        }
    }

    /// Returns the next goroutine for this M. The M sleeps until there is one. Returns `None` if the M, or the runtime, ends.
    #[doc(alias = "findRunnable")]
    fn find_runnable(&self, m: &M<H>) -> Option<GRef<H>> {
        loop {
            let Some(p) = m.p().filter(|p| !self.is_called(p)) else {
                match self.heed(m) {
                    Heeded::LooksAgain => continue,
                    Heeded::Ends => return None,
                    Heeded::Runs(g) => {
                        self.reset_spinning(m);
                        return Some(g);
                    }
                }
            };
            let tick = p.next_tick();
            let mut found = None;
            if !p.timers.is_empty() || p.poll_schedule.is_due(tick) {
                found = self.look_before_the_queue(m, p, tick);
            }
            if found.is_none() {
                found = self.runqget(p);
            }
            if found.is_none() {
                found = self.globrunqget(p, true).or_else(|| self.look_elsewhere(m, p));
            }
            if found.is_some() {
                self.reset_spinning(m);
                return found;
            }
            self.go_idle(m);
        }
    }

    /// Returns the goroutine that runs at this tick before those in the queue of `p`, if there is one.
    #[inline(never)]
    pub(super) fn look_before_the_queue(&self, m: &M<H>, p: &P<H>, tick: u32) -> Option<GRef<H>> {
        let sleeper = self.run_own_timers(m, p, tick);
        let due = p.poll_schedule.is_due(tick);
        // An arrival that went first would send the sleeper to the ring's end.
        let first = if sleeper.is_none() { First::Any } else { First::NoArrival };
        let found = if due { self.look_elsewhere_when_due(m, p, tick, first) } else { None };
        match sleeper {
            Some(sleeper) => Some(self.put_off_the_queue(p, sleeper, found)),
            None => found,
        }
    }

    /// Decides which goroutine runs before the queue of `p`: `found`, if there is one, and then `sleeper` goes to the ring's
    /// end; otherwise `sleeper`.
    #[cold]
    fn put_off_the_queue(&self, p: &P<H>, sleeper: GRef<H>, found: Option<GRef<H>>) -> GRef<H> {
        let first = match found {
            Some(found) => {
                p.owner.touch();
                if let Some(sleeper) = p.runq.push(sleeper) {
                    self.spill_and_wake(p, sleeper);
                }
                mutant!(SleeperQueuedInSilence: return found);
                found
            }
            None => sleeper,
        };
        // After a yield or a look elsewhere no M was woken for a goroutine that was alone in the ring, because this M was to
        // run that goroutine at once. Now another goroutine goes first.
        if self.others_wait(p) {
            mutant!(SleeperWakesNobody: return first);
            self.wakep();
        }
        first
    }

    /// For an M that has no P, or a surplus P: takes another P, or waits for one.
    #[cold]
    #[inline(never)]
    pub(super) fn change_p(&self, m: &M<H>) -> Heeded<H> {
        if self.is_stopping() {
            return Heeded::Ends;
        }
        match m.p() {
            Some(_) => self.leave_surplus(m),
            None if m.ends.get() => return Heeded::Ends,
            None if m.spinning.own() => self.come_for_p(m),
            None => return self.stopm(m),
        }
        Heeded::LooksAgain
    }

    /// Returns the first goroutine of the P's own queue. The goroutine in `runnext` was readied by a goroutine that ran on this
    /// P, and runs within the present time slice: two goroutines that wake each other keep the P, and their data stays in that
    /// core's cache. When the slice has ended, the goroutine in `runnext` goes to the end of the ring like any other.
    #[inline]
    pub(crate) fn runqget(&self, p: &P<H>) -> Option<GRef<H>> {
        p.owner.touch();
        if let Some(next) = p.runq.pop_next() {
            if p.inherit_slice() {
                return Some(next);
            }
            if let Some(next) = p.runq.push(next) {
                self.spill_and_wake(p, next);
            }
        } else {
            p.begin_slice();
        }
        p.runq.pop()
    }

    /// As `runqget`, after a look that may have found goroutines. Under a policy with one queue these stand in that queue.
    #[cold]
    #[inline(never)]
    pub(crate) fn runqget_found(&self, p: &P<H>) -> Option<GRef<H>> {
        self.runqget(p)
            .or_else(|| if self.config.policy.has_one_queue() { self.globrunqget_one(p, true) } else { None })
    }

    /// For the owner of `p`: returns `true` if goroutines wait for their turn on `p`: in its queue, among its jobs, in a
    /// mailbox, in the queue of a class, or in the only queue. A hint.
    pub(crate) fn others_wait(&self, p: &P<H>) -> bool {
        mutant!(OnlyQueueUnseen: return !p.runq.is_empty());
        let of_classes = self.waiting_classes.any().unless(OthersOfClassesUnseen);
        let found_own = self.has_work(p) || !p.jobs.is_empty() || self.globq_len.has_mail() || of_classes;
        found_own || self.config.policy.has_one_queue() && self.globq_len.for_all() > 0
    }

    /// Looks for a goroutine among the jobs of `p`, in the poller, in the queues of other Ps, and in all mailboxes. If all
    /// other Ps are idle, their queues are empty, and the M waits in the poller next: a poll before that would be a wasted
    /// system call.
    #[inline(always)]
    pub(super) fn look_elsewhere(&self, m: &M<H>, p: &P<H>) -> Option<GRef<H>> {
        let busy = self.census.read().nbusy();
        if busy == 1 && !self.has_forked() && !self.globq_len.has_mail() {
            return None;
        }
        self.search_elsewhere(m, p)
    }

    /// As `look_elsewhere`, if there is a place to look at.
    #[inline(never)]
    fn search_elsewhere(&self, m: &M<H>, p: &P<H>) -> Option<GRef<H>> {
        if let Some(g) = self.take_own_job(p) {
            return Some(g);
        }
        if self.census.read().nbusy() == 1 && !self.jobs_somewhere() {
            return self.steal_mail(p);
        }
        if self.nobody_polls() {
            let found = self.poll_now(&m.local);
            self.submit_found(m, found);
            self.run_unserved_timers(m);
            if let Some(g) = self.runqget_found(p) {
                return Some(g);
            }
        }
        self.steal_work(m, p).or_else(|| self.steal_mail(p))
    }

    /// Runs `g` until it parks, yields or ends.
    fn execute(&self, m: &M<H>, g: GRef<H>) {
        if g.word.run() == Run::Held {
            return;
        }
        if g.ties.are_some() && !self.may_run(m, g) {
            return;
        }
        if !self.provide_stack(m, g) {
            return;
        }
        m.set_g(Some(g));
        loop {
            let said = self.resume(m, g);
            let goes_on = if H::unwinds() {
                self.obey_bound(m, g, said)
            } else {
                // SAFETY: `g` has just suspended itself with this word, and stays suspended until this M resumes it.
                self.obey(m, g, unsafe { said.read() })
            };
            if !goes_on {
                break;
            }
        }
        m.set_g(None);
    }

    /// Does what `g` has asked for. Returns `true` if `g` is to be resumed at once; otherwise `g` no longer belongs to the M.
    #[inline(always)]
    fn obey(&self, m: &M<H>, g: GRef<H>, said: Yield) -> bool {
        match said {
            Yield::Park(number, hook) => self.park(g, number, hook),
            Yield::ParkAgain(number) => self.park_again(g, number),
            Yield::Requeue => {
                self.requeue(m, g);
                false
            }
            Yield::Return => self.exitsyscall(m, g),
            Yield::Exit => {
                self.goexit0(m, g);
                false
            }
            // No second `Tie` comes out of this: `attend` resumes `g` itself until `g` says something else.
            Yield::Seldom(said) => self.obey_seldom(m, g, said),
        }
    }

    /// As `obey`, for a `g` that has bound itself to `m`, gives its turn to another goroutine, or is about to block.
    #[cold]
    #[inline(never)]
    fn obey_seldom(&self, m: &M<H>, g: GRef<H>, said: Seldom) -> bool {
        match said {
            Seldom::Tie => {
                let said = self.attend(m, g, Yield::Seldom(Seldom::Tie));
                said.is_some_and(|later| self.obey(m, g, later))
            }
            Seldom::Turn(to) => {
                self.requeue_behind(m, g, to);
                false
            }
            Seldom::Call => self.queue_blocker(m, g),
        }
    }

    /// As `obey`, for a `g` that unwinds, and is bound to `m` until that is over.
    #[cold]
    #[inline(never)]
    fn obey_bound(&self, m: &M<H>, g: GRef<H>, said: Said) -> bool {
        // SAFETY: as in `execute`.
        let said = unsafe { said.read() };
        self.attend(m, g, said).is_some_and(|later| self.obey(m, g, later))
    }

    /// Queues `g`, which yields, at the end of its P's own queue; the goroutines in the global queue run before the second turn
    /// that `g` has from now on (`round.rs`). If the ring has room for `g`, no M is woken: this M takes another goroutine of
    /// the same P, for which the submitter of that goroutine has done S3; and an M that gives up, and finds that goroutine
    /// gone, sees `g` (`has_work`). If the ring is full, the caller does S2 and S3 for the goroutines that go to the global
    /// queue (`inject.rs`).
    #[doc(alias = "goschedImpl")]
    #[inline(always)]
    pub(super) fn requeue(&self, m: &M<H>, g: GRef<H>) {
        let p = m.p().expect("requeue: a goroutine yields inside the runtime");
        g.word.requeue();
        p.owner.touch();
        let elsewhere = self.globq_len.look();
        if !elsewhere.is_nothing() && elsewhere.has_detours() && self.requeue_by_class(p, g) {
            return;
        }
        match p.runq.push(g) {
            None if elsewhere.is_nothing() || !elsewhere.is_for_all() => return,
            None => {}
            // Goroutines that do not fit go to the global queue.
            Some(g) => self.spill_and_wake(p, g),
        }
        p.poll_schedule.note_yield(|| (p.tick(), p.runq.ends()));
    }
}
