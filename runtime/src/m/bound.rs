//! The CPUs of an M's thread, if Ps are bound to CPUs (`RuntimeBuilder::cpu_sets`).
//!
//! *The set follows the P.* An M that acquires a P gives its thread the P's set, unless the thread already has that set. A
//! thread that loses the P, and goes on with the user's code, gets back the set from before. A thread that sleeps without a P
//! keeps the set: a sleeper uses no CPU, and the next P is mostly the last one.
//!
//! An M sets the CPUs of its own thread, but an M that does not come back to the runtime can't. So the monitor, which has taken
//! the P, sets that thread's CPUs from outside, and at the same moment the M might come back, acquire another P, and set the
//! CPUs itself:
//!
//! ```text
//!   M that comes back                              monitor
//!
//!   B1  acquires a P                               L1  takes the P of the lease that it has judged
//!   B2  lock: notes the new lease,                 L2  lock: is that lease still the one that is noted?
//!       gives the thread the P's set                   then notes none, and gives the thread its own set
//! ```
//! If B2 comes first, L2 finds another lease, and does nothing; if L2 comes first, B2 finds the thread with the thread's own
//! set, and sets the P's set again. Both system calls are made under the lock, so that their order is that of the notes. The
//! lock also keeps the monitor from a thread that has ended, whose number might be that of another process by then: before the
//! thread ends, the M notes that there is no lease.
//!
//! *What the program sets stays.* A goroutine can set the CPUs of its thread, above all a goroutine that is bound to that
//! thread. So each change first reads the thread's set; if that is not the set that the runtime has noted, the runtime makes no
//! change. Once the program has put back the set that it found, the runtime's changes take effect again.
//!
//! Without `cpu_sets` the lock is not taken: there remains one look at the settings for each P that is acquired, given away or
//! taken.
//!
//! Checked by `models/bound.rs`.

use crate::host::Host;
use crate::m::M;
use crate::m::handoff::Lease;
use crate::prim::hooks::*;
use crate::prim::{Mutex, Rank};
use crate::runtime::cpu_sets::{CpuSet, CpuSets};
use crate::sched::Sched;
use crate::sched::watch::told::Refusal;
use std::io;

/// The CPUs that an M's thread was given.
pub(crate) struct Bound(Mutex<State>);

struct State {
    /// The set that the thread had before the first change; `None` before that change.
    own: Option<Box<CpuSet>>,
    /// The number of the set that the thread was given; `None`: the thread's own set.
    given: Option<u32>,
    /// The P to which the thread's set belongs, and the lease. `None`: no P, or the thread sleeps.
    lease: Option<(u32, Lease)>,
}

impl Bound {
    pub(crate) fn new() -> Self {
        Bound(Mutex::new(Rank::Bound, State { own: None, given: None, lease: None }))
    }
}

impl State {
    /// Gives the thread set number `to`, or the thread's own set, unless the program has set another one meanwhile.
    fn change<H: Host>(
        &mut self,
        sets: &CpuSets,
        to: Option<u32>,
        local: &H::Local,
        thread: u32,
    ) -> io::Result<()> {
        if self.given == to {
            return Ok(());
        }
        let now = H::affinity(local, thread)?;
        let own = **self.own.get_or_insert_with(|| Box::new(now));
        let set = |number: Option<u32>| number.map_or(own, |number| *sets.set(number));
        if now != set(self.given) {
            return Ok(());
        }
        H::set_affinity(local, thread, &set(to))?;
        self.given = to;
        Ok(())
    }
}

/// For a system call: the thread that makes it.
pub(super) const CALLER: u32 = 0;

impl<H: Host> M<H> {
    /// For the M's own thread, after the M has acquired a P: gives the thread the P's CPUs, if Ps are bound to CPUs, and shows
    /// the thread's CPU, if there are several caches.
    #[inline]
    pub(crate) fn go_where_the_p_belongs(&self) {
        if self.sched().config.cpu_sets.is_some() || H::has_several_caches() {
            self.take_place();
        }
    }

    #[cold]
    fn take_place(&self) {
        let (Some(p), Some(lease)) = (self.p(), self.lease.get()) else { return };
        if let Some(sets) = &self.sched().config.cpu_sets {
            self.bind(sets, Some((p.id, lease)));
        }
        // For thieves and helpers, which prefer their own cache.
        p.queue_age.show_cpu(H::cpu());
    }

    /// B2, for an M that holds the P with this number by this lease; `None`: gives the thread's own set back.
    #[cold]
    fn bind(&self, sets: &CpuSets, lease: Option<(u32, Lease)>) {
        let mut state = self.bound.0.lock();
        state.lease = lease;
        let changed = state.change::<H>(sets, lease.map(|(p, _)| sets.of_p(p)), &self.local, CALLER);
        drop(state);
        self.sched().tell_unbound(changed);
    }

    /// For the own thread of an M that has given up the P, before the user's code runs, or the M ends: gives the thread's own
    /// set back.
    #[inline]
    pub(crate) fn go_where_the_thread_belongs(&self) {
        if let Some(sets) = &self.sched().config.cpu_sets {
            self.bind(sets, None);
        }
    }

    /// For models: returns the CPUs of the thread.
    #[cfg(all(test, gmp_loom))]
    pub(crate) fn cpus(&self) -> CpuSet {
        let _looks = self.bound.0.lock();
        H::affinity(&self.local, CALLER).expect("cpus: a model's host tells them")
    }

    /// For the M's own thread, which ends, or is no longer an M: gives the thread's own set back, and forgets that set.
    pub(crate) fn forget_cpus(&self) {
        if let Some(sets) = &self.sched().config.cpu_sets {
            self.bind(sets, None);
            *self.bound.0.lock() = State { own: None, given: None, lease: None };
        }
    }
}

/// Returns the CPUs for a thread that the caller starts for the whole process; `None` stands for the CPUs of the caller. An M's
/// CPUs might be those of a P.
pub(crate) fn cpus_of_the_process<H: Host>() -> Option<CpuSet> {
    M::<H>::current()?.sched().config.cpu_sets.as_ref().map(|sets| sets.base)
}

impl<H: Host> Sched<H> {
    /// Gives the calling thread, which begins, the CPUs of the thread that built the runtime: the kernel has given it those of
    /// the starter, which might be those of a P.
    pub(crate) fn begin_where_the_runtime_was_built(&self, m: &M<H>) {
        if let Some(sets) = &self.config.cpu_sets {
            self.tell_unbound(H::set_affinity(&m.local, CALLER, &sets.base));
        }
    }

    /// L2, for the monitor, which has taken P number `p` from `m`.
    #[inline]
    pub(crate) fn unbind_from(&self, m: &M<H>, p: u32, judged: Lease) {
        let Some(sets) = &self.config.cpu_sets else { return };
        let mut state = m.bound.0.lock();
        let is_noted = state.lease == Some((p, judged));
        mutant!(UnbindLooksAtNoLease: let is_noted = true);
        if is_noted {
            state.lease = None;
            let changed = state.change::<H>(sets, None, &m.local, m.thread());
            drop(state);
            self.tell_unbound(changed);
        }
    }

    pub(crate) fn tell_unbound(&self, changed: io::Result<()>) {
        if let Err(refused) = changed {
            self.tell_refused(Refusal::Affinity, || {
                format!("a thread's CPUs can't be read or set ({refused}): it keeps those that it has")
            });
        }
    }
}
