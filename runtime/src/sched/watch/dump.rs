//! What all goroutines are doing, as text.
//!
//! The dump holds a G that is parked or queued by the scan bit while it reads the G and its stack; an M that would run the G
//! meanwhile leaves that to the dump (`wait/status.rs`). The dump takes no lock and allocates nothing until it lets go: the
//! frames go into a space that it has brought along, as addresses. They get their names when no G is held (`names.rs`). A
//! running G is not read by other threads, as it may end at any moment: its thread is asked where it is (`running.rs`), but
//! only in a dump that the program or a user has asked for.
//!
//! How long a goroutine has waited is told by a time that it noted when it parked. That time is a word of the runtime, the
//! *coarse time*: a reading of the clock takes longer than the atomics of a park and its wake-up together
//! (`docs/performance.md`, "Cost model"). Ms that come back from a sleep bring the word up to date, and so does the monitor,
//! which looks every few milliseconds as long as a P is held: so the word is right to some 10 ms.
//!
//! Checked by `models/park.rs`.

mod names;
mod running;
mod text;

use crate::g::pool::GPool;
use crate::g::{GRef, Name};
use crate::host::{Asked, Frames, Host, Stack};
use crate::prim::hooks::*;
use crate::runtime::knobs::Sigquit;
use crate::runtime::priority::Priority;
use crate::sched::Sched;
use crate::sched::park::WaitReason;
use crate::sched::watch::deadlock::Runtimes;
use crate::wait::status::{Status, Then};
use gmp_timers::Nanos;
use names::Names;
use running::Runs;
use std::collections::HashMap;
use std::panic::Location;
use std::time::Duration;

/// What is read of a held G, except for its frames.
struct Held {
    id: u64,
    name: Option<Name>,
    site: &'static Location<'static>,
    status: Status,
    reason: WaitReason,
    since: Nanos,
    class: Priority,
    started: bool,
    depth: Option<usize>,
    touched: Option<usize>,
}

/// What a goroutine was doing.
struct Seen {
    id: u64,
    name: Option<Name>,
    does: Does,
    waited: Duration,
    depth: Option<usize>,
    touched: Option<usize>,
}

/// What a goroutine's status was when its frames were read.
#[derive(Copy, Clone, Eq, PartialEq, Hash)]
enum State {
    Waits(WaitReason),
    Runnable,
    Runs,
}

/// What goroutines have in common that are shown as one group.
#[derive(Copy, Clone, Eq, PartialEq, Hash)]
struct Does {
    state: State,
    class: Priority,
    started: bool,
    /// The index of its stack in `Snapshot`.
    stack: usize,
    site: &'static Location<'static>,
}

/// What the goroutines of a runtime were doing.
#[derive(Default)]
struct Snapshot {
    /// By their numbers.
    seen: Vec<Seen>,
    /// Goroutines that run, and of which only the number is known; with the reason, if there is one to tell.
    unseen: Vec<(u64, Option<&'static str>)>,
    /// Each different stack once, as return addresses, innermost first.
    stacks: Vec<Box<[usize]>>,
    known: HashMap<Box<[usize]>, usize>,
    /// A line for each kind of calls that are under way in the runtime's lines.
    lines: Vec<String>,
}

impl Snapshot {
    /// Returns the index of this stack.
    fn stack(&mut self, frames: &Frames) -> usize {
        let pcs = frames.pcs();
        self.known.get(pcs).copied().unwrap_or_else(|| {
            self.stacks.push(pcs.into());
            self.known.insert(pcs.into(), self.stacks.len() - 1);
            self.stacks.len() - 1
        })
    }

    /// Adds a goroutine that was held.
    fn add(&mut self, held: Held, frames: &Frames, now: Nanos) {
        let stack = self.stack(frames);
        let waits = held.status == Status::Waiting;
        let state = if waits { State::Waits(held.reason) } else { State::Runnable };
        self.seen.push(Seen {
            id: held.id,
            name: held.name,
            does: Does { state, class: held.class, started: held.started, stack, site: held.site },
            waited: now.saturating_since(held.since),
            depth: held.depth,
            touched: held.touched,
        });
    }

    /// Adds a goroutine that was interrupted.
    fn add_running(&mut self, asked: Asked, class: Priority) {
        let stack = self.stack(&asked.frames);
        self.seen.push(Seen {
            id: asked.id,
            name: asked.name,
            does: Does { state: State::Runs, class, started: true, stack, site: asked.site },
            waited: Duration::ZERO,
            depth: None,
            touched: None,
        });
    }
}

/// For what a dump is wanted.
#[derive(Copy, Clone, Eq, PartialEq)]
pub(crate) enum Wanted {
    /// By a call, or by SIGQUIT: threads may be interrupted.
    ByUser,
    /// By the runtime itself, which ends the process.
    ByRuntime,
}

/// What the goroutines of all runtimes are doing.
pub(crate) fn dump_all<H: Host>(wanted: Wanted) -> String {
    let all = H::shared().runtimes.as_ref().map(Runtimes::all).unwrap_or_default();
    let snapshots: Vec<_> = all.iter().map(|sched| sched.snapshot_all(wanted)).collect();
    tell::<H>(&snapshots)
}

impl<H: Host> Sched<H> {
    /// The monitor's: M1 of `quit.rs`.
    pub(crate) fn answer_quit(&self) {
        let quit = &H::shared().quit;
        while quit.take() {
            if self.config.knobs.sigquit != Sigquit::Dump {
                // As Go's programs end. `Off`: another runtime of the process was built under another `GMPDEBUG`.
                H::give_up(&format!("SIGQUIT: quit\n\n{}", dump_all::<H>(Wanted::ByUser)));
            }
            quit.begin();
            H::print(&format!("SIGQUIT: dump\n\n{}", dump_all::<H>(Wanted::ByUser)));
            quit.end();
        }
    }
}

fn tell<H: Host>(snapshots: &[Snapshot]) -> String {
    let tell = |names: &mut Names<H>| match snapshots {
        [] => "no runtime\n".to_owned(),
        [only] => only.tell(names),
        several => {
            let count = several.len();
            let texts = several.iter().enumerate();
            let texts = texts.map(|(at, it)| format!("runtime {} of {count}: {}", at + 1, it.tell(names)));
            texts.collect::<Vec<_>>().join("\n")
        }
    };
    // If there is no place with enough stack, the frames stay numbers.
    H::with_room(|| tell(&mut Names::new())).unwrap_or_else(|| tell(&mut Names::nobody_knows()))
}

impl<H: Host> Sched<H> {
    /// Returns a paragraph for each group of goroutines that do the same at the same place, oldest first.
    pub(crate) fn dump(&self) -> String {
        tell::<H>(&[self.snapshot_all(Wanted::ByUser)])
    }

    fn snapshot_all(&self, wanted: Wanted) -> Snapshot {
        let (mut all, mut running) = (Snapshot::default(), Vec::new());
        let now = H::now();
        let see = |g: GRef<H>| {
            let (mut frames, id) = (Frames::new(), g.id());
            match self.see(g, &mut frames) {
                Some(held) => all.add(held, &frames, now),
                None => running.push(Runs::new(g, id)),
            }
        };
        // SAFETY: the pool is closed when the scheduler is dropped.
        unsafe { GPool::for_each_live(self.pool, see) };
        if H::SEES_RUNNING && wanted == Wanted::ByUser {
            self.look_at_running(&mut running, &mut all);
        }
        all.unseen.extend(running.iter().map(Runs::tell));
        all.lines = self.lines.tell();
        all.seen.sort_unstable_by_key(|g| g.id);
        all.unseen.sort_unstable();
        all
    }

    /// Holds `g`, if it does not run, and reads it.
    fn see(&self, g: GRef<H>, frames: &mut Frames) -> Option<Held> {
        self.with_held(g, |status| {
            let (started, depth, touched) = g.stack.with(|stack| {
                // SAFETY: a held G is on no M, and none resumes it before `unhold`.
                let Some(stack) = (unsafe { (*stack).as_ref() }) else { return (false, None, None) };
                // SAFETY: a held G is on no M, and none resumes it before `unhold`.
                unsafe { stack.frames(frames) };
                let touched = if self.config.knobs.stack_use { stack.touched() } else { None };
                (true, stack.depth(), touched)
            });
            g.with_birth(|birth| Held {
                id: g.id(),
                name: birth.name.clone(),
                site: birth.site,
                status,
                reason: g.reason.get(),
                since: g.since.get(),
                class: g.class(),
                started,
                depth,
                touched,
            })
        })
    }

    /// Calls `f` while `g` is held. `None` if `g` runs, and can't be held. `f` takes no lock and allocates nothing.
    pub(crate) fn with_held<R>(&self, g: GRef<H>, f: impl FnOnce(Status) -> R) -> Option<R> {
        let status = g.word.hold()?;
        mutant!(DumpLetsGoFirst: self.let_go(g); return Some(f(status)));
        let seen = f(status);
        self.let_go(g);
        Some(seen)
    }

    fn let_go(&self, g: GRef<H>) {
        if g.word.unhold() == Then::Queue {
            self.submit(g);
        }
    }

    /// Returns the time that a park notes: right to some 10 ms. Ms that come back from a sleep, and the monitor, which looks as
    /// long as a P is held, bring that time up to date.
    #[inline(always)]
    pub(crate) fn coarse_now(&self) -> Nanos {
        Nanos::from_nanos(self.coarse_now.get())
    }

    /// Brings the coarse time up to date. All Ps read that word, so it is written once a millisecond at most.
    pub(crate) fn refresh_coarse_clock(&self) {
        // A model's clock stands still.
        if H::MONITORED {
            self.set_coarse_clock(H::now());
        }
    }

    /// As `refresh_coarse_clock`, for a caller that has looked at the clock.
    pub(crate) fn set_coarse_clock(&self, now: Nanos) {
        const STEP: u64 = 1_000_000;
        if now.as_nanos().saturating_sub(self.coarse_now.get()) >= STEP {
            self.coarse_now.set(now.as_nanos());
        }
    }
}
