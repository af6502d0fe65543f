//! The Ms that wait for the goroutines that are bound to them, each with its goroutine: `locked.rs` says when they wait.
//!
//! Invariants, under the central lock: an M is in the list once at most; an M in the list has no assignment, and a note that is
//! not woken. The finder that takes an M out assigns a P and wakes the note; the ender assigns nothing and wakes the note. So
//! an M is woken once for each wait.

use crate::g::GRef;
use crate::host::Host;
use crate::m::M;
use crate::sched::lasting::MRef;

/// See the module's header.
pub(crate) struct BoundMs<H: Host>(Vec<(MRef<H>, GRef<H>)>);

impl<H: Host> BoundMs<H> {
    pub(crate) fn new() -> Self {
        BoundMs(Vec::new())
    }

    /// A2: `m` waits for `g` from here on.
    pub(crate) fn enter(&mut self, m: &M<H>, g: GRef<H>) {
        let m = MRef::of(m);
        debug_assert!(self.0.iter().all(|&(other, _)| other != m), "enter: M{} waits already", m.id);
        self.0.push((m, g));
    }

    /// F3: takes `m` out; the caller wakes `m`. Returns `false` if `m` does not wait yet.
    #[must_use]
    pub(crate) fn take(&mut self, m: MRef<H>) -> bool {
        let place = self.0.iter().position(|&(other, _)| other == m);
        place.map(|place| self.0.remove(place)).is_some()
    }

    /// At the end of the runtime: takes all Ms out; the caller wakes them.
    pub(crate) fn take_all(&mut self) -> Vec<MRef<H>> {
        self.0.drain(..).map(|(m, _)| m).collect()
    }

    /// Returns the M that waits for `g`, if there is one.
    pub(crate) fn of(&self, g: GRef<H>) -> Option<MRef<H>> {
        self.0.iter().find(|(_, bound)| *bound == g).map(|&(m, _)| m)
    }

    /// Returns `true` if one of the goroutines might be in a queue.
    pub(crate) fn any_is_runnable(&self) -> bool {
        self.0.iter().any(|(_, g)| g.word.is_runnable())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
