//! Threads that end: those that have been idle for a while, and threads whose bound goroutine ends with them.
//!
//! An M sleeps on its note for `keep_alive` at most. After that time the M removes itself from the idle set, under the lock,
//! unless it is the last M other than attached threads: that M sleeps on without a limit. If a waker has already removed the M
//! from the idle set, a wake is on the way, and the M sleeps on until the wake comes:
//!
//! ```text
//!   idle M                                         waker
//!
//!   E1  `keep_alive` is over                       W1  lock: takes the M out of the idle set,
//!   E2  lock: in the idle set, not the last?            and assigns it a P, a summons, or nothing
//!       out of it, and it ends;                    W2  wakes the M
//!       no: sleeps until W2
//! ```
//! While a thread counts towards `max_threads` (`living`), that limit can keep a waker from starting another thread, and then
//! the waker finds no M for the work. So an ending M first leaves that count, and then, in the same critical section, checks
//! the global queue, where that work is, and the jobs. Only after that does the M give the P of its ended goroutine to others.
//!
//! The M that waits in the poller does not end. A waker takes the M that fell asleep last, so the Ms at the other end of the
//! list are the ones that are not needed.
//!
//! The record of an M stays after the thread has ended, because a retaker can read the record at any time, and because the
//! record counts goroutines: the record is `spare`, and the next thread that is started gets it. So there are as many records
//! as there were threads at one time. A thread's handle lies in the M's record; a thread that ends puts its handle into
//! `ended`, and joins the threads whose handles are there, except those that still run destructors of thread-locals, or are
//! about to be gone. So two kinds of handles are left in `ended`: those of threads that were late, and those of the threads
//! that ended last, at the same time. Every other thread is joined soon.
//!
//! Invariants: a spare M is in no list of Ms that wait, holds no P and no assignment. `alive` counts a thread until its last
//! step, so that the ender also waits for threads that are about to end.
//!
//! Checked by `models/locked.rs` and, at `max_threads`, `models/summons.rs`.

use crate::host::Host;
use crate::m::M;
use crate::prim::event;
use crate::prim::hooks::*;
use crate::runtime::thread_start::ThreadGuards;
use crate::sched::lasting::MRef;
use crate::sched::{Central, Sched};

/// Whose thread the ending M runs on.
pub(crate) enum Whose<H: Host> {
    /// The runtime's; with the values that the user's functions have returned at its beginning.
    Runtime(ThreadGuards<H>),
    /// The program's, which goes on: see `sched/threads/attach.rs`.
    Program,
}

/// Names one start of a thread, because records are used again.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Life(u32);

impl<H: Host> Sched<H> {
    /// Sleeps until a waker has given `m` an assignment, or the runtime ends, or `keep_alive` is over: then `m` has to end.
    pub(crate) fn sleep_on_note(&self, m: &M<H>) {
        m.falls_asleep();
        let is_needed = self.is_needed(m);
        self.come(m);
        if is_needed {
            m.note.clear();
            self.refresh_coarse_clock();
            m.take_assignment();
        } else {
            m.ends.set(true);
        }
    }

    /// E1 and E2. Returns `true` if `m` was woken.
    fn is_needed(&self, m: &M<H>) -> bool {
        if let Some(limit) = self.config.keep_alive
            && !m.note.sleep_until(H::after(limit))
        {
            let mut central = self.central.lock();
            // The last M stays, so that the next submitter starts no thread. No wake-up depends on that: a submitter that finds
            // no M starts one, and an M stands by on its note only if another M, which is no attached thread, polls, works, or
            // hands its P on as it ends. So no model has a mutant of this line.
            let ends = central.living() > 1 && central.idle.take_this_m(m);
            mutant!(IdleEndsBlindly: let ends = central.living() > 1);
            if ends {
                event(format_args!("was not needed, and ends"));
                return false;
            }
        }
        m.note.sleep();
        true
    }

    /// Ends the thread of `m`. At the end of the runtime a P that the M still holds stays idle. A P that an ended goroutine has
    /// left to the M goes to another M. Only then are the guards dropped, which runs the user's code, and only after that does
    /// the thread leave the count of threads for which the ender waits.
    pub(crate) fn mexit(&self, m: &M<H>, whose: Whose<H>) {
        self.m_leaves(m);
        m.forget_cpus();
        M::<H>::set_current(None);
        H::thread_ends(&m.local);
        let mut central = self.central.lock();
        let stopping = self.is_stopping();
        // At the end of the runtime the ender joins these threads.
        let before = if stopping { Vec::new() } else { std::mem::take(&mut central.ended) };
        let own = m.handle.take();
        central.ended.extend(own);
        let p = m.parting_p.take();
        central.spare_ms.push(MRef::of(m));
        central.attached -= u32::from(matches!(whose, Whose::Program));
        m.life.set(m.life.get() + 1);
        let waited_for = !stopping && (!central.globq.is_empty() || self.jobs_somewhere());
        mutant!(EndLooksAtNoQueue: let waited_for = false);
        mutant!(EndLooksAtNoJobs: let waited_for = !stopping && !central.globq.is_empty());
        drop(central);
        // From here on the record might be another thread's.
        if let Some(p) = p {
            self.handoffp(p);
        } else if waited_for {
            self.wakep();
        }
        if let Whose::Runtime(guards) = whose {
            drop(guards);
        }
        self.join_ended(before);
        if stopping {
            self.leave_late();
        }
        self.thread_left();
    }

    /// Joins threads that have ended, without waiting. Leaves a thread that still runs the program's destructors to the thread
    /// that ends next.
    fn join_ended(&self, threads: Vec<H::Thread>) {
        if threads.is_empty() {
            return;
        }
        let until = H::now();
        let late: Vec<_> = threads.into_iter().filter_map(|thread| H::join(thread, until).err()).collect();
        if !late.is_empty() {
            self.central.lock().ended.extend(late);
        }
    }

    /// Returns `true` if one more thread is allowed, and no thread was refused a moment ago.
    pub(crate) fn may_start(&self, central: &Central<H>) -> bool {
        let asked_for = central.asked_for;
        mutant!(LimitForgetsTheAsked: let asked_for = 0);
        central.living() + asked_for < self.config.max_threads && !central.is_pause()
    }

    /// Takes a record for a thread that is about to start, or to become an M for a while. Returns the record, and the name of
    /// this life of it.
    pub(crate) fn take_record(&self, central: &mut Central<H>) -> (MRef<H>, Life) {
        let m = central.spare_ms.pop().unwrap_or_else(|| {
            let fresh = MRef::boxed(Box::new(M::new(central.ms.len() as u32, self)));
            central.ms.push(fresh);
            fresh
        });
        m.ends.set(false);
        (m, Life(m.life.get()))
    }
}

impl<H: Host> Central<H> {
    /// Returns the number of Ms that have a thread of the runtime's, or are about to get one.
    pub(crate) fn living(&self) -> u32 {
        (self.ms.len() - self.spare_ms.len()) as u32 - self.attached
    }

    /// Puts the handle of a thread where other threads find it to join that thread.
    pub(crate) fn keep_thread(&mut self, m: &M<H>, life: Life, thread: H::Thread) {
        if m.life.get() == life.0 {
            m.handle.set(Some(thread));
        } else {
            self.ended.push(thread);
        }
    }

    /// Takes the handles of all threads, for the ender.
    pub(crate) fn take_threads(&mut self) -> Vec<H::Thread> {
        let mut all: Vec<_> = self.monitor_thread.take().into_iter().collect();
        all.append(&mut self.ended);
        all.extend(self.ms.iter().filter_map(|m| m.handle.take()));
        all
    }
}
