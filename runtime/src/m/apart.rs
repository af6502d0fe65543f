//! A woken M that waits for its waker's CPU.
//!
//! *The problem.* The kernel runs a woken thread on an idle CPU if it finds one, and otherwise on the CPU on which the thread
//! ran last. In a virtual machine the kernel often finds none: the host reports to the guest which virtual CPUs it is not
//! running, and the kernel does not count those as idle. A halted CPU is among them. If an M fell asleep on the CPU on which
//! its waker now runs, the kernel queues the M there. The M waits for the end of the waker's time slice, some milliseconds,
//! while other CPUs are idle. Later both threads fall asleep on this CPU again, and the next wake-up finds the same state: a
//! burst of goroutines takes as long on two Ps as on one.
//!
//! *The obvious way* is to bind each M to a CPU. Then no M can give way to another process, and a thread or process that the
//! program starts from such a thread has only one CPU, too. *Forbidding the thread the waker's CPU at each wake-up* would be
//! too early. For a burst of some microseconds the move to another CPU costs more than it gains, and mostly the waker soon
//! falls asleep and leaves its CPU to the thread.
//!
//! *Here* the owner of a P remembers the M that it has woken last. If that M has not run after [`PATIENCE`], the owner takes
//! its own CPU out of the affinity mask of the M's thread. If the thread is queued there, the kernel moves it to another CPU at
//! once. When the M runs, it first restores its thread's mask:
//!
//! ```text
//!   M without work                                 owner of a P
//!
//!   K1  stands by on its note
//!   K2  lock: `sleeps` := true; sleeps             O1  takes the M out of its idle spot; remembers that the M is awaited;
//!                                                      wakes it, and goes on
//!   K3  wakes.  lock: `sleeps` := false;           O2  at a look around (`run/look.rs`): lock: `sleeps`, and `awaited`?
//!       restores the mask that O2 kept                 takes the owner's CPU out of the mask, and keeps the old one
//! ```
//! *K3 asks for all CPUs.* The kernel keeps the mask for which a thread has asked, and leaves out the CPUs that are not plugged
//! in or not in the cgroup. O2 reads what is left of that mask. A thread that asks for this rest never gets a CPU that comes
//! later, and neither do the threads and processes that it starts, while the number of Ps follows the machine. So K3 asks for
//! all CPUs, and reads the mask. If the mask is the rest that O2 has read, K3 is done. If the mask has more CPUs, the program,
//! or its parent process, has given the thread fewer, and K3 asks for the rest.
//!
//! A thread that does anything but sleep has its own mask: O2 changes the mask of an M only between K2 and K3, and because of
//! the lock K3 restores whatever an O2 has changed. So no thread or process that this thread starts inherits the changed mask,
//! and O2 never names a thread that has ended. `awaited` is a hint. An owner that was delayed in O1 might set `awaited` after
//! the M's next K2. Then O2 can change the mask of an M that no owner awaits, and the M sleeps with one CPU fewer until K3. An
//! M that waits for its bound goroutine, and the M in the poller, do not come to K2.
//!
//! An M that was moved to another CPU falls asleep there, so O2 has nothing to do for the next wake-ups. An M whose thread
//! waits for a third CPU, on which another process runs, is not moved: the owner can't know of that. O2 is part of a look
//! around: an owner whose goroutine does not yield makes no look, and the M that it has woken waits until the kernel moves it.
//! O1 and O2 are not done if Ps are bound to CPUs (`bound.rs`), and O2 not with `GMPDEBUG=helping=0`, under which no M looks
//! around.
//!
//! *The price.* If a CPU is plugged in, or added to the cgroup, between O2 and K3, the mask that K3 reads has more CPUs than
//! the mask that O2 has read. So K3 asks for the CPUs of O2's mask, and the thread never runs on the new CPU. If the thread's
//! own set covers all CPUs that there are at K3, the thread keeps the mask of all CPUs: then it may run on CPUs that come
//! later, even if the program had left these out. If the program gives the thread other CPUs between O2 and K3, these stay,
//! unless they are exactly those that O2 has left. A thread to which the program has given fewer CPUs may run on others for a
//! moment, at K3.
//!
//! Checked by `models/apart.rs`; `docs/experiments.md` has figures.

use crate::host::Host;
use crate::m::M;
use crate::m::bound::CALLER;
use crate::p::P;
use crate::prim::hooks::*;
use crate::prim::{AtomicBool, AtomicPtr, AtomicU64, Mutex, Rank, Relaxed, event};
use crate::runtime::cpu_sets::CpuSet;
use crate::sched::Sched;
use gmp_timers::Nanos;
use std::io;
use std::ptr::null_mut;
use std::time::Duration;

/// An owner waits at least this long for the M that it has woken, and at most about twice as long, until its next look around.
/// This time is about the cost of waking a halted CPU and filling its caches.
const PATIENCE: Duration = Duration::from_micros(50);

/// Whether an M sleeps and is awaited, and the mask that an owner has changed.
pub(crate) struct Apart {
    /// A hint.
    awaited: AtomicBool,
    state: Mutex<State>,
}

struct State {
    sleeps: bool,
    /// The thread's affinity mask before and after O2; `None` if there is nothing to restore.
    kept: Option<Box<(CpuSet, CpuSet)>>,
}

/// The M that a P's owner has woken last. Hints: an owner might have lost the P by the time of the write.
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
    /// K2. For the M's own thread.
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
    pub(crate) fn await_m(&self, p: &P<H>, m: &M<H>) {
        if self.config.cpu_sets.is_none() {
            // Relaxed: hints.
            m.apart.awaited.store(true, Relaxed);
            p.sent.since.store(0, Relaxed);
            p.sent.m.store(std::ptr::from_ref(m).cast_mut(), Relaxed);
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

/// Gives the calling thread, that of `m`, the mask `had`, unless the program has set another one meanwhile.
#[cold]
fn allow<H: Host>(m: &M<H>, had: &CpuSet, has: &CpuSet) -> io::Result<()> {
    if H::affinity(&m.local, CALLER)? != *has {
        return Ok(());
    }
    unless!(WokenLacksWhatComes, H::set_affinity(&m.local, CALLER, &CpuSet::ALL)?);
    if H::affinity(&m.local, CALLER)? == *had {
        return Ok(());
    }
    H::set_affinity(&m.local, CALLER, had)
}
