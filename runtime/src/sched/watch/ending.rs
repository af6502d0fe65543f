//! The goroutines for which the end of a runtime waits, and those that it has left behind: a line for each case, for the
//! operator. If all goroutines have ended but threads have not, because destructors of their thread-locals take long, the line
//! has the number of these threads.
//!
//! The ender (`sched/stop.rs`) is silent for [`SOON`], and then reports once for which goroutines it waits. The ender holds and
//! reads a parked or queued goroutine, as a dump does. A running goroutine can't be read while it can end. But the monitor
//! takes its P after some milliseconds (`sched/threads/retake.rs`: the ender counts as waiting for the P). From then on the
//! goroutine can't enter the runtime, and so can't end, without the central lock. Holding that lock, the ender sees that the
//! goroutine's M is
//!
//! 1. outside of the runtime: so the ender sees all that the M has done inside before,
//! 2. the holder of no P: a P that the M acquired inside before would show,
//! 3. still outside: so the M has not entered between 1 and 2 and released its P inside. An M that is inside without a P needs
//!    the lock to get outside again,
//! 4. the M that shows this goroutine.
//!
//! Of all other running goroutines the ender reports only the number, and only when it has waited for [`LONG`]: most of them
//! are about to park. Some keep their Ps for good: with `handoff=0`, if the kernel refuses the retaker's barrier, and if
//! goroutines wait for a P and no more threads are available. The ender interrupts no thread: a line for which nobody has asked
//! must not make a system call fail.

use crate::g::{GRef, Name};
use crate::host::Host;
use crate::m::M;
use crate::sched::Sched;
use crate::wait::interrupt::OnInterrupt;
use crate::wait::status::{Doing, Status};
use gmp_timers::Nanos;
use std::fmt;
use std::panic::Location;
use std::time::Duration;

/// An end that takes no longer than this is not reported.
const SOON: Duration = Duration::from_millis(200);
/// After this time the report also counts goroutines that run on an M with a P.
const LONG: Duration = Duration::from_secs(1);
/// How many goroutines are listed with all that is known of them.
const LISTED: usize = 4;

/// How long an ender has been silent.
pub(crate) struct Patience {
    limit: Duration,
    begun: Nanos,
    /// When to report; `None` after the report, or if there is none.
    next: Option<Nanos>,
    told: bool,
}

impl Patience {
    /// Makes the patience of an end that begins now, and takes `limit` at most.
    pub(crate) fn of<H: Host>(limit: Duration) -> Self {
        // The end of a model's runtime is not reported, nor is an end whose limit is too short for that.
        let tells = H::MONITORED && limit > SOON;
        let begun = H::now();
        Patience { limit, begun, next: tells.then(|| begun.saturating_add(SOON)), told: false }
    }

    /// Returns when an ender that would sleep until `until` has to wake.
    pub(crate) fn wakes(&self, until: Nanos) -> Nanos {
        self.next.map_or(until, |next| until.min(next))
    }

    /// Tells the operator that only this many threads keep the ender, once the ender has waited long enough.
    pub(crate) fn tell_threads<H: Host>(&mut self, threads: usize) {
        if self.next.take_if(|next| H::now() >= *next).is_some() {
            self.told = true;
            H::warn(&format!("a runtime ends, and waits {:?} at most, for {}", self.limit, Threads(threads)));
        }
    }
}

/// A goroutine that has not ended.
struct Left {
    id: u64,
    birth: Option<(Option<Name>, &'static Location<'static>)>,
    does: &'static str,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "goroutine {}", self.id)?;
        if let Some((Some(name), _)) = &self.birth {
            write!(f, " '{name}'")?;
        }
        write!(f, " [{}]", self.does)?;
        match &self.birth {
            Some((_, site)) => write!(f, " created at {site}"),
            None => Ok(()),
        }
    }
}

/// Goroutines, of which the text names the first [`LISTED`] and counts the rest.
struct List(Vec<Left>);

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, left) in self.0.iter().take(LISTED).enumerate() {
            write!(f, "{}{left}", if at > 0 { ", " } else { "" })?;
        }
        match self.0.len().saturating_sub(LISTED) {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}

/// Threads that have left their runtime.
struct Threads(usize);

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => write!(f, "1 thread with destructors of its thread-locals"),
            more => write!(f, "{more} threads with destructors of their thread-locals"),
        }
    }
}

/// Which goroutines are listed.
#[derive(Copy, Clone, Eq, PartialEq)]
enum Which {
    /// Those that the ender can't interrupt, and waits for.
    Awaited,
    All,
}

impl<H: Host> Sched<H> {
    /// Tells the operator which goroutines the ender waits for, once the ender has waited long enough.
    pub(crate) fn tell_awaited_goroutines(&self, patience: &mut Patience) {
        if patience.next.is_none_or(|next| H::now() < next) {
            return;
        }
        let awaited = self.left(Which::Awaited);
        let long = H::now().saturating_since(patience.begun) >= LONG.min(patience.limit / 2);
        let awaited: Vec<_> = awaited.into_iter().filter(|left| long || left.birth.is_some()).collect();
        if awaited.is_empty() {
            // With very many goroutines the unwinding itself takes so long.
            patience.next = Some(H::after(SOON));
        } else {
            (patience.next, patience.told) = (None, true);
            H::warn(&format!(
                "a runtime ends, and waits {:?} at most, for {}",
                patience.limit,
                List(awaited)
            ));
        }
    }

    /// Reports which goroutines are left behind, and how many threads, if the ender has reported that it waits. Called before
    /// the goroutines are marked as left.
    pub(crate) fn tell_what_the_end_leaves(&self, patience: &Patience, threads: usize) {
        if patience.told {
            let left = self.left(Which::All);
            let goroutines = (!left.is_empty()).then(|| List(left).to_string());
            let threads = (threads > 0).then(|| Threads(threads).to_string());
            let all: Vec<_> = goroutines.into_iter().chain(threads).collect();
            if !all.is_empty() {
                H::warn(&format!("a runtime has ended, and left {}", all.join(", and ")));
            }
        }
    }

    fn left(&self, which: Which) -> Vec<Left> {
        let (mut left, mut running) = (Vec::new(), Vec::new());
        for g in self.gs().live() {
            let id = g.id();
            let held = self.with_held(g, |status| {
                // SAFETY: a held G is on no M.
                let started = g.stack.with(|stack| unsafe { (*stack).is_some() });
                let does = match (status, g.ends()) {
                    (Status::Waiting, OnInterrupt::Never) => g.reason.get().as_str(),
                    (Status::Waiting, _) if which == Which::All => g.reason.get().as_str(),
                    // A goroutine that never ran is dropped.
                    (Status::Runnable, _) if which == Which::All && started => "runnable",
                    _ => return None,
                };
                let birth = g.with_birth(|birth| (birth.name.clone(), birth.site));
                Some(Left { id: g.id(), birth: Some(birth), does })
            });
            match held {
                Some(seen) => left.extend(seen.filter(|_| which == Which::All || !g.is_left())),
                None if matches!(g.word.doing(), Doing::Runs) => running.push((g, id)),
                None => {}
            }
        }
        left.extend(running.into_iter().filter_map(|(g, id)| self.running(g, id)));
        left.sort_unstable_by_key(|g| g.id);
        left
    }

    /// Returns what is known of a goroutine that ran a moment ago; `None` if it has ended.
    fn running(&self, g: GRef<H>, id: u64) -> Option<Left> {
        let central = self.central.lock();
        let on = central.ms.iter().copied().find(|m| m.shown_g() == Some(g.get()));
        let birth = on.filter(|m| self.stays_outside(m, g)).map(|_| {
            // The goroutine does not end while this thread holds the lock: see the module's header.
            (g.id(), g.with_birth(|birth| (birth.name.clone(), birth.site)))
        });
        drop(central);
        let does = match on {
            Some(m) if H::is_blocked(&m.local).unwrap_or(false) => "blocks its thread",
            _ => "running",
        };
        match birth {
            Some((id, birth)) => Some(Left { id, birth: Some(birth), does }),
            None => (g.is_live() && g.id() == id).then_some(Left { id, birth: None, does }),
        }
    }

    /// 1 to 4. Under the central lock.
    fn stays_outside(&self, m: &M<H>, g: GRef<H>) -> bool {
        !m.is_inside()
            && !self.ps.iter().any(|p| p.holder().is_some_and(|holder| std::ptr::eq(holder, m)))
            && !m.is_inside()
            && m.shown_g() == Some(g.get())
    }
}
