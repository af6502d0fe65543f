//! The two parties of a G, the M and the handle: the last of them gives the G back. `g/mod.rs` has the protocol;
//! `models/join.rs` checks it.

use super::GRef;
use super::root::call_undisturbed;
use crate::g::pool::GPool;
use crate::g::task::Failure;
use crate::host::Host;
use crate::m::M;
use crate::prim::hooks::*;
use crate::prim::{Acquire, Relaxed, Release, relax};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

pub(super) const HANDLE: u32 = 1;
pub(super) const LIVE: u32 = 2;
pub(super) const OUTCOME: u32 = 4;
/// Not part of that protocol: `num_goroutines` counts the goroutine. Set only at the beginning.
pub(super) const COUNTS: u32 = 8;
/// The owner of the handle waits, with its record at `joiner`, or has left a hook there.
pub(super) const WAITER: u32 = 16;
/// The goroutine has ended, or the runtime has.
pub(super) const DONE: u32 = 32;
/// Together with DONE: the runtime has ended, not the goroutine.
const LEFT: u32 = 64;
/// Not part of that protocol: the goroutine's class, see `class.rs`.
pub(super) const CLASS: u32 = 128 | 256;
/// Not part of that protocol: one more than the number of the P that the goroutine's hint names, see `class.rs`. There are at
/// most 1024 Ps.
pub(super) const HINT: u32 = 0x7ff << 9;

/// Why a goroutine will never run again.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum End {
    /// The goroutine has ended; the outcome says how.
    Ended,
    /// The runtime ended first and left the goroutine behind.
    Left,
}

/// The value of the G's `life` at one moment.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Life(pub(super) u32);

impl Life {
    /// Returns why the goroutine will never run again; `None` if it might still run.
    #[inline]
    pub(crate) fn end(self) -> Option<End> {
        let end = if self.0 & LEFT == 0 { End::Ended } else { End::Left };
        (self.0 & DONE != 0).then_some(end)
    }

    /// Returns `true` if the goroutine has not ended and a hook was left at it. For the handle's owner, which does not wait.
    #[inline]
    pub(crate) fn has_hook(self) -> bool {
        self.0 & (WAITER | DONE) == WAITER
    }

    /// As `has_hook`; also returns `true` while the hook is being called.
    pub(crate) fn has_hook_or_calls(self) -> bool {
        self.0 & WAITER != 0
    }
}

/// Does the M's part of a goroutine's end, after the last switch: tells the joiner and lets the G go. The stack has been taken
/// back, and the word is Idle.
pub(crate) fn finish<H: Host>(g: GRef<H>) {
    // Cleared here, where the birth is in the cache. SAFETY: a running goroutine reads its birth, and so does a dump that holds
    // the G; a G with an Idle word neither runs nor can be held.
    g.birth.with_mut(|birth| unsafe { *birth = None });
    // Acquire: all that the handle's owner did with the G comes before the G's next goroutine: partner `give_handle_back`. Also
    // acquires the joiner's record: partner `wait_for_end`.
    let look = Acquire.unless(LiveRelaxed);
    // A guess would save this look, but would take one more exchange if the handle is gone, or never existed.
    let mut life = g.life.load(look);
    loop {
        // A joiner that `mark_left` has told might be gone, and its handle too, before `mark_left` has cleared WAITER.
        let told = (life & WAITER != 0).unless(EndForgetsTheTeller);
        if life & HANDLE == 0 && !told {
            // The M has the G to itself. Release: partner `is_live`. No model has this Release, for the reason that
            // `StatusWord::finish` gives.
            g.life.store(life & !LIVE, Release);
            return release(g);
        }
        let next = match life & (WAITER | DONE) {
            0 | DONE => life & !LIVE | DONE,
            WAITER => life | DONE,
            _ => {
                // `mark_left` is about to clear WAITER.
                relax();
                life = g.life.load(look);
                continue;
            }
        };
        // Release: publishes all that the goroutine did, and what the M did with the G, to the handle's owner: partners `life`
        // and `look_for_drop`. Acquire: has to be the exchange's own, as in `mark_left`: since the look the owner might have
        // taken the hook back, and left another under the same bits; partner `wait_for_end`.
        let both = both(Acquire.unless(EndTakesAnOldHook), Release.unless(EndRelaxed));
        match g.life.compare_exchange(life, next, both, look) {
            Ok(_) if next & LIVE == 0 => return,
            Ok(_) => break,
            Err(now) => life = now,
        }
    }
    g.tell();
    // Release: the record was read: partner `wait_no_more`. Acquire: all that the handle's owner did: partners
    // `give_handle_back` and `wait_for_end`.
    if g.life.fetch_and(
        !(WAITER | LIVE),
        both(Acquire.unless(ToldWithoutAcquire), Release.unless(ToldWithoutRelease)),
    ) & HANDLE
        == 0
    {
        release(g);
    }
}

/// Called when the runtime has ended first, and the goroutine stays parked: tells the joiner, once.
pub(crate) fn mark_left<H: Host>(g: GRef<H>) {
    // Relaxed: no data is read before the exchange, which confirms this value.
    let mut life = g.life.load(Relaxed);
    loop {
        // The goroutine has ended, the M has the G to itself, or the joiner was already told.
        if life & LIVE == 0 || life & (HANDLE | WAITER) == 0 || life & DONE != 0 {
            return;
        }
        // Acquire: the joiner's record: partner `wait_for_end`. The Acquire has to be the exchange's own: since the look the
        // goroutine might have ended, and the G might hold another goroutine with the same bits, whose joiner waits by another
        // record. Release: a joiner that finds LEFT in `life`, the partner, sees all that came before the end of the runtime.
        // No model needs the Release: by now that end has executed its fences, which publish the same.
        let both = both(Acquire.unless(LeftWithoutAcquire), Release);
        match g.life.compare_exchange(life, life | DONE | LEFT, both, Relaxed) {
            Ok(_) => break,
            Err(now) => life = now,
        }
    }
    if life & WAITER != 0 {
        g.tell();
        // Release: the record was read: partners `wait_no_more`, of a joiner that takes the record back, and `finish`. No model
        // has this: that joiner unwinds during the end of the runtime, and loom's threads share one count of panics, which its
        // locks take for poison; the M reads nothing that this has touched.
        let was = g.life.fetch_and(!WAITER, Release);
        debug_assert!(was & LIVE != 0, "mark_left: its M has let it go");
    }
}

/// Ends a goroutine that never ran: drops the closure here, on the calling thread.
pub(crate) fn drop_unrun<H: Host>(g: GRef<H>) {
    // SAFETY: the caller took the G from a queue, or never queued it; the goroutine did not run.
    call_undisturbed::<H>(|| unsafe { g.task.discard() });
    // SAFETY: the closure is gone, the space is empty.
    unsafe { g.task.fail(Failure::Shutdown) };
    // Release: as in `root`, with the same partners.
    if g.life.fetch_or(OUTCOME, Release.unless(UnrunOutcomeRelaxed)) & HANDLE == 0 {
        // SAFETY: as in `root`.
        unsafe { g.task.forget() };
    }
    g.word.discard();
    finish(g);
}

/// Ends the handle's party, whether the outcome was taken or not.
///
/// An outcome is dropped before the bit is cleared: after that the M can free the G, and another goroutine can use that G.
pub(crate) fn drop_handle<H: Host>(g: GRef<H>) {
    give_handle_back(g, false, look_for_drop(g));
}

/// Returns the life for `give_handle_back` of a handle that is dropped.
#[inline]
pub(crate) fn look_for_drop<H: Host>(g: GRef<H>) -> Life {
    // Acquire: the outcome: partner `root`; and all that the goroutine did: partner `finish`.
    Life(g.life.load(Acquire.unless(HandleLooksRelaxed)))
}

/// As `drop_handle`, for an owner that has `seen` the life. `taken` is `true` if there was an outcome, and the caller has moved
/// it out.
#[inline]
pub(crate) fn give_handle_back<H: Host>(g: GRef<H>, taken: bool, seen: Life) {
    // A joiner that comes second: no outcome, and no M.
    if seen.0 & LIVE == 0 && (taken || seen.0 & OUTCOME == 0) {
        release(g);
    } else {
        give_handle_back_first(g, taken, seen);
    }
}

/// As `give_handle_back`, for a handle whose goroutine might not have ended, or with an outcome.
fn give_handle_back_first<H: Host>(g: GRef<H>, mut taken: bool, seen: Life) {
    // Release: the outcome is gone before the M frees the G: partner `finish`.
    let release_order = Release.unless(HandleRelaxed);
    // Acquire: as in `look_for_drop`, with the same partners.
    let look = Acquire.unless(HandleLooksAgainRelaxed);
    let Life(mut life) = seen;
    let mut dropped = Ok(());
    loop {
        debug_assert!(life & HANDLE != 0, "drop_handle: dropped twice");
        if (life & OUTCOME != 0 && !taken).unless(HandleGoesFirst) {
            // SAFETY: OUTCOME is set and HANDLE too, so the right to the outcome is the handle's, which this caller owns.
            dropped = catch_unwind(AssertUnwindSafe(|| unsafe { g.task.forget() }));
            taken = true;
        }
        if life & LIVE == 0 {
            release(g);
            break;
        }
        // There is no outcome to drop: a goroutine that sets OUTCOME later finds the handle gone.
        match g.life.compare_exchange(life, life & !HANDLE, release_order, look) {
            Ok(_) => break,
            Err(now) => life = now,
        }
    }
    mutant!(HandleGoesFirst: super::mutants::forget_late(g, life, taken));
    if let Err(payload) = dropped {
        resume_unwind(payload);
    }
}

/// Gives a G without parties back to the pool.
pub(super) fn release<H: Host>(g: GRef<H>) {
    let pool = g.pool.get().expect("release: the G was never taken from a pool");
    let here = M::current().filter(|m| g.is_of(m.sched())).and_then(M::look_in);
    match here {
        // SAFETY: `g` came from `pool`, which lives while `g` is out (`g/mod.rs`, invariant 3), and has no party left.
        Some(inside) => unsafe { inside.p.free_gs.put(pool, g) },
        // SAFETY: `g` came from `pool`, and has no party left. The pool may be gone when `put` returns.
        None => unsafe { GPool::put(pool, std::iter::once(g)) },
    }
}
