//! A goroutine's stack is reserved at the spawn, taken at the first run, and given back at the end. This file also says what an
//! M does if the host has no stack in spite of the reservation.
//!
//! The host keeps to its reservations as long as there is memory for page tables. So this is for a host that lacks such memory,
//! and for a host that can't ask the kernel beforehand, such as that of the `generator` backend:
//!
//! ```text
//!   M of a goroutine without a stack       M of a goroutine that ends          M that idles a P
//!
//!   W1  the goroutine to `stackless`       R1  the stack to the P's cache      I1  `stackless` not empty?
//!   W2  `stacks_wanted` := true            R2  `stacks_wanted`?  empty the         empty the P's cache: was a
//!   W3  empty the caches of idle Ps            cache, all try again                stack there?  all try again
//!   W4  ask once more: got a stack?
//!       put it back; all try again
//!   W5  else tell the operator, once, and call the monitor
//!
//!   monitor, 1 and 10 ms after it has seen `stacks_wanted`, and then every 100 ms:  L1  all try again
//! ```
//! No other M may touch the cache of a busy P, and nothing orders R1 and R2 against W2 and W4: so a stack might lie in that
//! cache, and R2 might have missed W2. The next goroutine that ends on that P sees W2, or the P becomes idle (I1).
//!
//! * I1, W1 and W3 are each under the central lock. If I1 comes before W1, W3 finds the P idle and empties its cache; if W1
//!   comes before I1, I1 finds the goroutine in `stackless`.
//! * If there are no caches, as on the `generator` backend, R1 and W4 both take the host's lock: if R1 comes first, W4 finds
//!   the stack; if W4 comes first, R2 sees W2.
//!
//! W4 puts back only the stack. The goroutine, which might already run on another M, keeps its reservation, and gives that back
//! at its end: if the host counted fewer reservations than there are, the count would wrap, and the host would refuse spawns
//! for good.
//!
//! If the missing resource comes back without the end of a goroutine, as memory for page tables does, only L1 asks again. While
//! the monitor sees `stacks_wanted`, it does not sleep for good; W5 comes after W2, so a monitor that has missed the word is
//! called, and looks again before it sleeps for good.
//!
//! A goroutine waits for a stack for as long as it takes, even if no goroutine has a stack that could come back: plain threads
//! and other processes use the memory, too. Such a goroutine is runnable, so the judge of deadlocks takes it for awake. *Not
//! done*: letting all of these goroutines try again when an M idles the last busy P. They would be refused again, and that M
//! would idle its P again, without end. Checked by `models/stacks.rs`.

use crate::g::GRef;
use crate::g::list::GList;
use crate::host::{Host, Stack};
use crate::m::M;
use crate::p::P;
use crate::prim::Relaxed;
use crate::prim::hooks::*;
use crate::sched::watch::told::Refusal;
use crate::sched::{Central, Sched};
use gmp_timers::Nanos;
use std::io;
use std::time::Duration;

/// L1: the pauses after which the waiting goroutines try again; the last one repeats.
const LOOKS: [Duration; 3] =
    [Duration::from_millis(1), Duration::from_millis(10), Duration::from_millis(100)];
/// If no goroutine has waited for this long, the looks begin anew.
const OVER: Duration = Duration::from_secs(1);

/// The monitor's state for L1, and for L1 of `sched/calls.rs`.
#[derive(Default)]
pub(crate) struct StackWatch {
    /// When all try again; `None` while no goroutine waits.
    due: Option<Nanos>,
    /// How many looks there were, and when the last one was.
    looks: usize,
    last: Option<Nanos>,
}

impl StackWatch {
    /// Returns `true` if the last look has found waiting goroutines, or calls.
    pub(crate) fn waits(&self) -> bool {
        self.due.is_some()
    }

    /// Makes a look of the monitor, which has read `wanted`. Returns how soon it has to look again; zero: all are to try again
    /// now.
    pub(crate) fn look(&mut self, wanted: bool, now: Nanos) -> Option<Duration> {
        if !wanted {
            self.due = None;
            return None;
        }
        if self.due.is_none() && self.last.is_none_or(|last| now.saturating_since(last) >= OVER) {
            self.looks = 0;
        }
        let due = *self.due.get_or_insert_with(|| now.saturating_add(LOOKS[self.looks.min(LOOKS.len() - 1)]));
        let left = due.saturating_since(now);
        if left.is_zero() {
            *self = StackWatch { due: None, looks: self.looks + 1, last: Some(now) };
        }
        Some(left)
    }
}

impl<H: Host> Sched<H> {
    /// Reserves a stack for a goroutine that is about to be made; `p` is the P of the calling M, if any.
    ///
    /// # Errors
    /// If no stack can be reserved. The error says which limit was met. A runtime that ends returns no error: it takes every
    /// goroutine and runs none.
    #[inline]
    pub(crate) fn reserve_stack(&self, p: Option<&P<H>>, size: usize) -> io::Result<()> {
        self.ask_for_reservation(p, size).or_else(|_| self.insist_on_reservation(p, size))
    }

    #[inline]
    fn ask_for_reservation(&self, p: Option<&P<H>>, size: usize) -> io::Result<()> {
        match p {
            Some(p) => p.with_stack_cache(|cache| self.host.reserve_stack(Some(cache), size)),
            None => self.host.reserve_stack(None, size),
        }
    }

    /// Asks again, after emptying the caches of idle Ps, and the caller's cache of the other sizes.
    #[cold]
    fn insist_on_reservation(&self, p: Option<&P<H>>, size: usize) -> io::Result<()> {
        if self.is_ending() {
            return Ok(());
        }
        self.free_stack_cache(p);
        self.ask_for_reservation(p, size)
    }

    fn free_stack_cache(&self, p: Option<&P<H>>) {
        if let Some(p) = p {
            p.with_stack_cache(|cache| self.host.empty(cache));
        }
        self.empty_idle_stack_caches();
    }

    /// `Stacks::call_on`, for a goroutine of the scheduler `here` or a plain thread.
    pub(crate) fn call_on(here: Option<&Self>, size: usize, f: &mut dyn FnMut()) -> io::Result<()> {
        H::call_on(here.map(|sched| &sched.host), size, f).or_else(|refused| {
            let sched = here.ok_or(refused)?;
            let inside = M::current_of(sched).and_then(M::look_in);
            sched.free_stack_cache(inside.as_ref().map(|inside| inside.p));
            drop(inside);
            H::call_on(Some(&sched.host), size, f)
        })
    }

    /// Gives `g` a stack before the first run. Returns `false` if the host has no stack now; then `g` waits until one comes
    /// back.
    #[inline]
    pub(crate) fn provide_stack(&self, m: &M<H>, g: GRef<H>) -> bool {
        // SAFETY: `run` returned Go, so this M alone has the stack (wait/status.rs, invariant 2).
        if g.stack.with(|stack| unsafe { (*stack).is_some() }) {
            return true;
        }
        let size = g.with_birth(|birth| birth.stack_size as usize);
        let p = m.p().expect("provide_stack: an M begins a goroutine with a P");
        match p.with_stack_cache(|cache| self.host.new_stack(cache, size)) {
            Ok(fresh) => {
                if self.config.knobs.stack_use {
                    fresh.coro().forget();
                }
                // SAFETY: `run` returned Go, so this M alone has the stack (wait/status.rs, invariant 2).
                g.stack.with_mut(|stack| unsafe { *stack = Some(fresh) });
                true
            }
            Err(refused) => {
                self.wait_for_stack(p, g, size, &refused);
                false
            }
        }
    }

    /// Puts the stack of a goroutine that has ended into the stack cache of the P. If goroutines wait for a stack, empties that
    /// cache into the host, and lets all of them try again, because sizes differ.
    #[inline]
    pub(crate) fn retire_stack(&self, m: &M<H>, stack: H::Stack) {
        let p = m.p().expect("retire_stack: a goroutine ends inside the runtime");
        p.with_stack_cache(|cache| self.host.retire(cache, stack));
        if self.stacks_wanted.load(Relaxed) {
            p.with_stack_cache(|cache| self.host.empty(cache));
            self.try_again();
        }
    }

    #[cold]
    fn wait_for_stack(&self, p: &P<H>, g: GRef<H>, size: usize, refused: &io::Error) {
        g.word.requeue();
        let mut central = self.central.lock();
        central.stackless.push(g);
        unless!(StackWantedLate, self.stacks_wanted.store(true, Relaxed));
        drop(central);
        self.empty_idle_stack_caches();
        let again = p.with_stack_cache(|cache| {
            let again = self.host.new_stack(cache, size);
            mutant!(AskedForIsRetired: return again.map(|there_is_one| self.host.retire(cache, there_is_one)));
            again.map(|there_is_one| self.host.put_back(there_is_one))
        });
        mutant!(StackWantedLate: self.stacks_wanted.store(true, Relaxed));
        if again.is_ok() {
            return self.try_again();
        }
        if !self.is_stopping() {
            self.tell_refused(Refusal::Stack, || {
                format!("a goroutine waits for its stack, and asks again ten times a second: {refused}")
            });
        }
        self.central.lock().call_monitor(&self.monitor_note);
    }

    /// I1: called when `p`, the caller's P or one that no M holds, is about to be idle. If the P's cache had a stack, moves the
    /// goroutines that wait for one to the global queue; the caller wakes an M for them. Under the lock.
    #[inline]
    pub(crate) fn offer_stacks(&self, central: &mut Central<H>, p: &P<H>) {
        mutant!(IdlePKeepsStacks: return);
        if !central.stackless.is_empty() {
            self.offer_stacks_of(central, p);
        }
    }

    #[cold]
    fn offer_stacks_of(&self, central: &mut Central<H>, p: &P<H>) {
        let there = p.with_stack_cache(|cache| self.host.empty(cache));
        if there {
            self.stacks_wanted.store(false, Relaxed);
            central.globq.append(&mut central.stackless);
            self.publish_len(central);
        }
    }

    /// For models: returns `true` if a goroutine waits for a stack.
    #[cfg(all(test, gmp_loom))]
    pub(crate) fn wants_stacks(&self) -> bool {
        self.stacks_wanted.load(Relaxed)
    }

    /// For models: makes the monitor's first looks, the last of which lets all try again.
    #[cfg(all(test, gmp_loom))]
    pub(crate) fn look_as_monitor(&self) {
        let mut watch = StackWatch::default();
        if let Some(left) = self.watch_stackless(&mut watch, Nanos::ZERO) {
            let _soon = self.watch_stackless(&mut watch, Nanos::ZERO.saturating_add(left));
        }
    }

    /// L1. Returns how soon the monitor has to look again; `None` while no goroutine waits.
    pub(crate) fn watch_stackless(&self, watch: &mut StackWatch, now: Nanos) -> Option<Duration> {
        mutant!(MonitorLeavesStackless: return None);
        // Relaxed: W5 follows.
        let left = watch.look(self.stacks_wanted.load(Relaxed), now)?;
        if left.is_zero() {
            // An M whose goroutine is refused again calls the monitor.
            self.try_again();
            return None;
        }
        Some(left)
    }

    #[cold]
    fn try_again(&self) {
        let mut central = self.central.lock();
        self.stacks_wanted.store(false, Relaxed);
        let waiting = std::mem::replace(&mut central.stackless, GList::new());
        drop(central);
        self.inject(waiting);
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    /// Fails if looks come late, or too often, or go on when no goroutine waits.
    #[test]
    fn they_try_again_after_1_and_10_ms_and_then_every_100() {
        let (mut watch, mut now) = (StackWatch::default(), Nanos::ZERO);
        let mut after = |wanted, passed: u64| {
            now = now.saturating_add(Duration::from_millis(passed));
            watch.look(wanted, now).map(|left| left.as_millis())
        };
        assert_eq!(after(false, 5), None);
        assert_eq!((after(true, 0), after(true, 1)), (Some(1), Some(0)));
        // No goroutine seems to wait until they are refused again.
        assert_eq!((after(false, 0), after(true, 1)), (None, Some(10)));
        assert_eq!((after(true, 9), after(true, 1)), (Some(1), Some(0)));
        for _ in 0..3 {
            assert_eq!((after(true, 0), after(true, 100)), (Some(100), Some(0)));
        }
        assert_eq!((after(false, 0), after(true, 999)), (None, Some(100)));
        assert_eq!((after(false, 0), after(true, 1)), (None, Some(1)));
    }
}
