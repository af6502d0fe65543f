//! Idle Ps and idle Ms: who goes to sleep, in which order, and who is started.
//!
//! An M that finds no work gives its P up and then, still under the lock under which it saw the queue empty,
//! becomes the one that blocks in the poller, if nobody does, or stands among the idle Ms. An M that has no P,
//! because others took them all while it waited in the poller, stands among the idle Ms as well.
//!
//! Invariants:
//! 1. An M in `idle_ms` holds no P and sleeps on its note, or is about to; whoever takes it out leaves it a P (or
//!    nothing, when the runtime ends) and wakes it once.
//! 2. A P is in `idle_ps`, or held by one M, or on its way to one inside a `Wake`.

use crate::g::GRef;
use crate::host::Host;
use crate::m::M;
use crate::p::P;
use crate::prim::{Mutant, MutexGuard, Relaxed, mutated};
use crate::sched::poll::Poller;
use crate::sched::{Central, Sched, Stage};
use std::io;
use std::ptr::NonNull;

impl<H: Host> Sched<H> {
    /// I3 and I4 of `wake.rs`: gives the P up and waits for work, in the poller or on the note. Returns with a P,
    /// or without one when the caller has to look again.
    pub(crate) fn go_idle<'a>(&'a self, m: &M<H>, mut central: MutexGuard<'a, Central<H>>) {
        if mutated(Mutant::IdleNoRecheck) {
            drop(central);
            central = self.central.lock();
        }
        let p = m.release();
        central.idle_ps.push(p);
        match central.poller {
            Poller::Nobody => self.block_in_poller(m, central),
            Poller::Blocked { .. } | Poller::Broken => {
                central.idle_ms.push(NonNull::from(m));
                drop(central);
                self.sleep_on_note(m);
            }
        }
    }

    /// Waits for a P. False: the runtime ends.
    pub(crate) fn stopm(&self, m: &M<H>) -> bool {
        let mut central = self.central.lock();
        if central.stage == Stage::Stopping {
            return false;
        }
        if let Some(p) = central.take_idle_p(&self.monitor_note) {
            drop(central);
            m.acquire(p);
            return true;
        }
        central.idle_ms.push(NonNull::from(m));
        drop(central);
        self.sleep_on_note(m);
        m.p().is_some()
    }

    /// Sleeps until somebody has left a P, or the runtime ends.
    fn sleep_on_note(&self, m: &M<H>) {
        m.note.sleep();
        m.note.clear();
        if let Some(p) = m.take_given() {
            m.acquire(p);
        }
    }

    /// Starts a new M for `p`. When the world refuses, the P goes back to the idle ones, and its work waits for
    /// the Ms that exist.
    #[doc(alias = "newm")]
    pub(crate) fn startm(&self, p: NonNull<P>) {
        if let Err(refused) = self.spawn_m(Some(p)) {
            let mut central = self.central.lock();
            central.idle_ps.push(p);
            let first = !std::mem::replace(&mut central.warned, true);
            let count = central.ms.len();
            drop(central);
            if first {
                eprintln!(
                    "gmp: cannot start thread {} of at most {}: {refused}; going on with those that run",
                    count + 1,
                    self.config.max_threads
                );
            }
        }
    }

    /// The first M, without which nothing would ever run.
    pub(crate) fn start_first(&self) -> io::Result<()> {
        self.spawn_m(None).map_err(|refused| {
            io::Error::new(refused.kind(), format!("cannot start the runtime's first thread: {refused}"))
        })
    }

    fn spawn_m(&self, p: Option<NonNull<P>>) -> io::Result<()> {
        let this = self.arc().expect("spawn_m: whoever starts an M holds its scheduler");
        let mut central = self.central.lock();
        // `wakep` has kept a place for an M that it asked for.
        central.asked_for -= u32::from(p.is_some());
        if central.stage == Stage::Stopping {
            central.idle_ps.extend(p);
            return Ok(());
        }
        let m = Box::new(M::new(central.ms.len() as u32, self));
        let name = format!("{}{}", self.config.thread_name, m.id);
        m.give(p);
        let raw = Handed(NonNull::from(&*m));
        let there = raw.0;
        central.ms.push(m);
        // Once for the M, and once for this start: the runtime does not end before the thread is on the list.
        central.alive += 2;
        drop(central);

        let started = self.host.start(&name, move || {
            let raw = raw;
            // SAFETY: Ms live as long as their scheduler, which `this` holds.
            this.mstart(unsafe { raw.0.as_ref() });
        });
        let result = match started {
            Ok(thread) => {
                self.central.lock().threads.push(thread);
                Ok(())
            }
            Err(refused) => {
                // Nobody has seen it.
                self.central.lock().ms.retain(|m| NonNull::from(&**m) != there);
                self.mexit();
                Err(refused)
            }
        };
        self.mexit();
        result
    }
}

impl<H: Host> Sched<H> {
    /// `g` has to wait for a stack to come back. When none is out, none ever will, and the process ends.
    pub(crate) fn wait_for_stack(&self, g: GRef<H>, refused: &io::Error) {
        let mut central = self.central.lock();
        // Relaxed: written under this lock where it falls, and it only rises for an attempt like this one's.
        let out = self.stacks_out.fetch_sub(1, Relaxed) - 1;
        if out == 0 {
            drop(central);
            H::fatal(&format!("no stack for the first goroutine: {refused}"));
        }
        g.word.requeue();
        central.stackless.push(g);
    }

    /// A stack came back: the goroutine that waits longest for one may try again.
    pub(crate) fn stack_came_back(&self) {
        let mut central = self.central.lock();
        self.stacks_out.fetch_sub(1, Relaxed);
        let Some(g) = central.stackless.pop() else { return };
        central.runq.push(g);
        let wake = self.wakep(&mut central);
        drop(central);
        self.start_woken(wake);
    }
}

/// A pointer to an M on its way to the M's own thread.
struct Handed<H: Host>(NonNull<M<H>>);
// SAFETY: an M is Sync.
unsafe impl<H: Host> Send for Handed<H> {}
