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
use crate::runq::GList;
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

    /// Gets a P for an M without one: an idle one at once (Go's `acquirep`), else it sleeps until one is left for it.
    /// False: the runtime ends.
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
                let most = self.config.max_threads;
                H::warn(&format!(
                    "cannot start thread {} of at most {most}: {refused}; going on with those that run",
                    count + 1
                ));
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
        let there = NonNull::from(Box::leak(m));
        let raw = Handed(there);
        central.ms.push(there);
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
                self.central.lock().ms.retain(|&m| m != there);
                // SAFETY: nobody has seen it: not the thread that was refused, and it is off the list.
                drop(unsafe { Box::from_raw(there.as_ptr()) });
                self.thread_left();
                Err(refused)
            }
        };
        self.thread_left();
        result
    }
}

impl<H: Host> Sched<H> {
    /// `g` got no stack. It tries again when one came back since `returned` was read, or waits until one does.
    /// When none is out none ever will, and the process ends.
    pub(crate) fn wait_for_stack(&self, g: GRef<H>, returned: u64, refused: &io::Error) {
        g.word.requeue();
        let mut central = self.central.lock();
        // Relaxed, here and below: both counts change under this lock where that matters. `out` rises without it,
        // for an attempt like this one, which then comes here too.
        let out = self.stacks.out.fetch_sub(1, Relaxed) - 1;
        if self.stacks.returned.load(Relaxed) != returned {
            central.runq.push(g);
        } else if out > 0 {
            central.stackless.push(g);
        } else {
            drop(central);
            H::fatal(&format!("no stack for a goroutine, and none in use that could come back: {refused}"));
        }
    }

    /// A stack came back: those who wait for one may try again, all of them, since sizes differ.
    pub(crate) fn stack_came_back(&self) {
        let mut central = self.central.lock();
        self.stacks.out.fetch_sub(1, Relaxed);
        self.stacks.returned.fetch_add(1, Relaxed);
        if central.stackless.is_empty() {
            return;
        }
        let mut waiting = std::mem::replace(&mut central.stackless, GList::new());
        central.runq.append(&mut waiting);
        let wake = self.wakep(&mut central);
        drop(central);
        self.start_woken(wake);
    }
}

/// A pointer to an M on its way to the M's own thread.
struct Handed<H: Host>(NonNull<M<H>>);
// SAFETY: an M is Sync.
unsafe impl<H: Host> Send for Handed<H> {}
