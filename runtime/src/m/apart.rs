//! A woken M that waits for its waker's CPU.
//!
//! *The problem.* The kernel has a woken thread run on an idle CPU if it finds one, and else on the CPU on which the thread ran
//! last. In a virtual machine the kernel often finds none: where the host tells which virtual CPUs it does not run, a CPU that
//! has halted is among them, and so does not count as idle. If an M fell asleep on the CPU on which its waker now runs, the
//! kernel queues the M there. The M waits for the end of the waker's time slice, some milliseconds, while other CPUs are idle.
//! Then both sleep on this CPU again, and the next wake finds the same state: a burst of goroutines takes as long on two Ps as
//! on one.
//!
//! *The obvious way* is to bind each M to a CPU. Then no M can give way to another process, and what the program starts on
//! such a thread has one CPU, too. *To take the waker's CPU from the thread at the wake* is too soon: for a burst of some
//! microseconds the other CPU costs more than it helps, and mostly the waker goes to sleep and leaves its CPU to the thread.
//!
//! *Here* the owner of a P remembers the M that it has woken last. If that M has not come after [`PATIENCE`], then the owner
//! forbids the thread the CPU on which the owner runs. If the thread is queued there, the kernel moves it to another CPU at
//! once. The M allows its thread the CPU again before it does anything else:
//!
//! ```text
//!   M without work                                 owner of a P
//!
//!   K1  stands by on its note
//!   K2  lock: it sleeps; sleeps                    O1  takes the M out of its idle spot; remembers that the M is awaited;
//!                                                      wakes it, and goes on
//!   K3  comes.  lock: it sleeps no more;           O2  at a look (`run/help.rs`): lock: the M sleeps still, and is awaited?
//!       gives the thread back what was kept            forbids the owner's CPU, and keeps what the thread had
//! ```
//! A thread that does anything but sleep has all its CPUs: O2 changes only the CPUs of an M between K2 and K3, and K3 is behind
//! each O2 for this M, by the lock. So nothing that the thread starts inherits the set, and O2 names no thread that has ended.
//! `awaited` is a hint. An owner that goes on late may set it after the M's next K2. Then O2 may change an M that no owner
//! awaits, and the M sleeps with one CPU fewer until K3. An M that waits for its bound goroutine, and the M in the poller, do
//! not come to K2.
//!
//! An M that has come on another CPU falls asleep there, so the next wakes have nothing to do. A thread that waits for a third
//! CPU, on which another process runs, stays where it is; the owner can't know that. O2 needs a look: an owner whose goroutine
//! does not yield makes none, and its M waits for the kernel. Not done where Ps are bound to CPUs (`bound.rs`), nor with
//! `GMPDEBUG=helping=0`, as O2 is a part of the look around.
//!
//! *The price.* The kernel's set names CPUs. What K3 gives back are the CPUs that the thread had at O2: one that is plugged in
//! later, or that the cgroup gets later, is not among them. If the program gives the thread other CPUs between O2 and K3,
//! these stay, unless they are just those that O2 has left.
//!
//! Checked by `models/apart.rs`; `docs/performance.md` has figures.

use crate::host::Host;
use crate::m::M;
use crate::p::P;
use crate::prim::hooks::*;
use crate::prim::{AtomicBool, AtomicPtr, AtomicU64, Mutex, Rank, Relaxed, event};
use crate::runtime::cpu_sets::CpuSet;
use crate::sched::Sched;
use gmp_timers::Nanos;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::time::Duration;

/// How long an owner waits for the M that it has woken, at least; and at most for as long again, to its next look. About what
/// it costs to wake a CPU that has halted, and to bring the caches there.
const PATIENCE: Duration = Duration::from_micros(50);

/// For a system call: the thread that makes it.
const CALLER: u32 = 0;

/// Whether an M sleeps and is awaited, and what an owner has taken from its thread.
pub(crate) struct Apart {
    /// A hint.
    awaited: AtomicBool,
    state: Mutex<State>,
}

struct State {
    sleeps: bool,
    /// What the thread could use before it was forbidden a CPU, and after that.
    kept: Option<Box<(CpuSet, CpuSet)>>,
}

/// The M that a P's owner has woken last. Hints: an owner may have lost the P by the time it writes them.
pub(crate) struct Sent<H: Host> {
    m: AtomicPtr<M<H>>,
    /// When the owner first looked after that M, in nanoseconds; zero before.
    since: AtomicU64,
}

impl Apart {
    pub(crate) fn new() -> Self {
        Apart {
            awaited: AtomicBool::new(false),
            state: Mutex::new(Rank::Apart, State { sleeps: false, kept: None }),
        }
    }
}

impl<H: Host> Sent<H> {
    pub(crate) fn new() -> Self {
        Sent { m: AtomicPtr::new(null_mut()), since: AtomicU64::new(0) }
    }
}

impl<H: Host> M<H> {
    /// K2. The M's own.
    pub(crate) fn falls_asleep(&self) {
        // Relaxed: a hint.
        self.apart.awaited.store(false, Relaxed);
        self.apart.state.lock().sleeps = true;
    }

    /// The rest of O2, for an owner that runs on CPU `here`.
    fn forbid(&self, here: u32) -> io::Result<()> {
        // Relaxed: a hint.
        if !self.apart.awaited.load(Relaxed) {
            return Ok(());
        }
        let mut state = self.apart.state.lock();
        let sleeps = state.sleeps;
        mutant!(ForbidsAnMThatCame: let sleeps = true);
        if !sleeps || state.kept.is_some() {
            return Ok(());
        }
        let had = H::affinity(&self.local, self.thread())?;
        let Some(has) = had.but(here as usize) else { return Ok(()) };
        event(format_args!("forbids the thread of M{} CPU {here}", self.id));
        H::set_affinity(&self.local, self.thread(), &has)?;
        state.kept = Some(Box::new((had, has)));
        Ok(())
    }
}

impl<H: Host> Sched<H> {
    /// O1, for the owner of `p`, which has taken `m` out of its idle spot and is about to wake it.
    pub(crate) fn await_m(&self, p: &P<H>, m: NonNull<M<H>>) {
        if self.config.cpu_sets.is_none() {
            // SAFETY: Ms live as long as their scheduler.
            let awaited = &unsafe { m.as_ref() }.apart.awaited;
            // Relaxed: hints.
            awaited.store(true, Relaxed);
            p.sent.since.store(0, Relaxed);
            p.sent.m.store(m.as_ptr(), Relaxed);
        }
    }

    /// O2, at a look of the owner of `p`.
    #[inline]
    pub(crate) fn look_after_the_sent(&self, p: &P<H>, now: Nanos) {
        // Relaxed: a hint.
        let sent = p.sent.m.load(Relaxed);
        // SAFETY: Ms live as long as their scheduler.
        if let Some(m) = unsafe { sent.as_ref() } {
            self.look_after(p, m, now);
        }
    }

    #[cold]
    fn look_after(&self, p: &P<H>, m: &M<H>, now: Nanos) {
        // Relaxed, here and below: hints.
        match p.sent.since.load(Relaxed) {
            0 => p.sent.since.store(now.as_nanos(), Relaxed),
            since if now.saturating_since(Nanos::from_nanos(since)) < PATIENCE => {}
            _ => {
                p.sent.m.store(null_mut(), Relaxed);
                self.tell_unbound(m.forbid(H::cpu()));
            }
        }
    }

    /// For models: O2, as if the M had been awaited for long.
    #[cfg(all(test, gmp_loom))]
    pub(crate) fn forbid_the_sent(&self, p: &P<H>) {
        // Relaxed: a hint.
        let sent = p.sent.m.load(Relaxed);
        // SAFETY: Ms live as long as their scheduler.
        if let Some(m) = unsafe { sent.as_ref() } {
            self.tell_unbound(m.forbid(H::cpu()));
        }
    }

    /// K3, for an M that was woken, or is to end.
    pub(crate) fn come(&self, m: &M<H>) {
        let mut state = m.apart.state.lock();
        state.sleeps = false;
        if let Some(kept) = state.kept.take() {
            unless!(WokenStaysForbidden, self.tell_unbound(allow(m, &kept.0, &kept.1)));
        }
    }
}

/// Gives the calling thread, that of `m`, what it `had`, unless the program has given it something else meanwhile.
#[cold]
fn allow<H: Host>(m: &M<H>, had: &CpuSet, has: &CpuSet) -> io::Result<()> {
    if H::affinity(&m.local, CALLER)? != *has {
        return Ok(());
    }
    H::set_affinity(&m.local, CALLER, had)
}
