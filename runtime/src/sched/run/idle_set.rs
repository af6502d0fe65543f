//! The idle Ps, and the Ms that sleep on their notes until a waker needs them. Under the central lock.
//!
//! Invariants: a P or an M is in the set at most once. No M holds a P that is in the set, and an M in the set holds no P. A
//! waker that takes an M out assigns a P or a summons to it, or sends it for the blockers (`threads/blockers.rs`), or assigns
//! nothing when the runtime ends; then the waker wakes the M once. Otherwise the M takes itself out.
//!
//! The census counts the idle Ps for readers without the lock. When the census changes, relative to this set, is part of the
//! protocols (`wake.rs`); so the callers change the census, and the masks (`run/idle.rs`).

use crate::host::Host;
use crate::m::M;
use crate::p::P;
use crate::sched::lasting::{MRef, PRef};

/// See the header.
pub(crate) struct IdleSet<H: Host> {
    /// The P that became idle last comes last, and is taken first.
    ps: Vec<PRef<H>>,
    /// The M that stood by last comes last, and is taken first.
    ms: Vec<MRef<H>>,
}

impl<H: Host> IdleSet<H> {
    /// Returns a set of these Ps, the last of which is taken first.
    pub(crate) fn of(ps: Vec<PRef<H>>) -> Self {
        IdleSet { ps, ms: Vec::new() }
    }

    pub(crate) fn has_p(&self) -> bool {
        !self.ps.is_empty()
    }

    pub(crate) fn num_ps(&self) -> usize {
        self.ps.len()
    }

    pub(crate) fn ps(&self) -> impl Iterator<Item = &PRef<H>> {
        self.ps.iter()
    }

    /// Puts in a P that no M holds.
    pub(crate) fn put_p(&mut self, p: PRef<H>) {
        debug_assert!(!self.ps.contains(&p), "put_p: the P is idle already");
        self.ps.push(p);
    }

    pub(crate) fn take_p(&mut self) -> Option<PRef<H>> {
        self.ps.pop()
    }

    /// Takes this P, if idle.
    pub(crate) fn take_this_p(&mut self, wanted: PRef<H>) -> Option<PRef<H>> {
        let at = self.ps.iter().position(|&p| p == wanted)?;
        Some(self.ps.remove(at))
    }

    /// Takes the Ps for which `is` returns `true`.
    pub(crate) fn take_ps(&mut self, is: impl Fn(&P<H>) -> bool) -> impl Iterator<Item = PRef<H>> {
        self.ps.extract_if(.., move |p| is(p))
    }

    pub(crate) fn has_m(&self) -> bool {
        !self.ms.is_empty()
    }

    pub(crate) fn num_ms(&self) -> usize {
        self.ms.len()
    }

    pub(crate) fn contains_m(&self, m: MRef<H>) -> bool {
        self.ms.contains(&m)
    }

    /// Puts in `m`, the caller, which then sleeps on the note.
    pub(crate) fn put_m(&mut self, m: &M<H>) {
        debug_assert!(m.p().is_none(), "put_m: an M that stands by holds no P");
        debug_assert!(!self.contains_m(MRef::of(m)), "put_m: the M stands by already");
        self.ms.push(MRef::of(m));
    }

    pub(crate) fn take_m(&mut self) -> Option<MRef<H>> {
        self.ms.pop()
    }

    /// Takes this M. Returns `false` if a waker has already taken it.
    pub(crate) fn take_this_m(&mut self, m: &M<H>) -> bool {
        let before = self.ms.len();
        self.ms.retain(|&other| other != MRef::of(m));
        self.ms.len() < before
    }

    pub(crate) fn take_ms(&mut self) -> Vec<MRef<H>> {
        std::mem::take(&mut self.ms)
    }
}
