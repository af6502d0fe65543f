//! What all goroutines are doing, as text.
//!
//! While the dump reads a parked or queued G and its stack, it holds the G by the scan bit; a waker that would queue the G, or
//! an M that would run it, leaves the queueing to the dump (`wait/status.rs`). While it holds a G, the dump takes no lock and
//! allocates nothing: the frames go, as addresses, into a space that it has brought along. The frames get their names when no G
//! is held (`names.rs`). No other thread reads a running G, because it can end at any moment: the dump asks the G's thread
//! where it is (`running.rs`), but only if the program or a user has asked for the dump.
//!
//! The coarse time (`coarse.rs`) that a goroutine recorded when it parked shows how long it has waited.
//!
//! Checked by `models/park.rs`.

mod names;
mod running;
mod text;

use crate::g::{GRef, Name};
use crate::host::{Asked, Frames, Host, Stack};
use crate::prim::hooks::*;
use crate::runtime::knobs::Sigquit;
use crate::runtime::priority::Priority;
use crate::sched::Sched;
use crate::sched::calls::run_aside_or_here;
use crate::sched::park::WaitReason;
use crate::sched::watch::deadlock::{Listens, Runtimes};
use crate::wait::status::{Status, Then};
use gmp_timers::Nanos;
use names::Names;
use running::Runs;
use std::collections::HashMap;
use std::panic::Location;
use std::time::Duration;

/// A copy of what is shown of a held G, except for its frames.
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

/// The status of a goroutine when its frames were read.
#[derive(Copy, Clone, Eq, PartialEq, Hash)]
enum State {
    Waits(WaitReason),
    Runnable,
    Runs,
}

/// What the goroutines of one group have in common.
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
    /// Running goroutines of which only the number is known, each with the reason, if there is one to tell.
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

/// Who wants a dump.
#[derive(Copy, Clone, Eq, PartialEq)]
pub(crate) enum Wanted {
    /// A call, or SIGQUIT: the dump may interrupt threads.
    ByUser,
    /// The runtime itself, which ends the process.
    ByRuntime,
}

/// What the goroutines of all runtimes are doing.
pub(crate) fn dump_all<H: Host>(wanted: Wanted) -> String {
    let all = H::shared().runtimes.as_ref().map(Runtimes::all).unwrap_or_default();
    let snapshots: Vec<_> = all.iter().map(|sched| sched.snapshot_all(wanted)).collect();
    tell::<H>(&snapshots)
}

impl<H: Host> Sched<H> {
    /// For the monitor: M1 of `quit.rs`.
    pub(crate) fn answer_quit(&self) {
        if !H::shared().quit.take() {
            return;
        }
        if self.config.knobs.sigquit != Sigquit::Dump {
            // As Go's programs end. `Off`: another runtime of the process was built under another `GMPDEBUG`.
            H::give_up(&format!("SIGQUIT: quit\n\n{}", dump_all::<H>(Wanted::ByUser)));
        }
        H::shared().quit.begin();
        // The program goes on meanwhile, and the monitor has other things to do.
        run_aside_or_here::<H>(answer_and_go_on::<H>);
    }
}

/// The rest of M2, and M3, of `quit.rs`: naming the frames can take long, and the printing can wait for a reader.
fn answer_and_go_on<H: Host>() {
    // A live thread of no runtime keeps the judge of deadlocks from a verdict, and can outlive the judge's looks: the end of
    // this value makes the judge look again.
    let _listens = Listens::<H>::begin();
    let quit = &H::shared().quit;
    loop {
        H::print(&format!("SIGQUIT: dump\n\n{}", dump_all::<H>(Wanted::ByUser)));
        quit.end();
        if !quit.take() {
            return;
        }
        quit.begin();
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
    // If no stack is large enough, the frames stay numbers.
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
        self.gs().live().into_iter().for_each(|g| self.see_into(g, &mut all, &mut running, now));
        if H::SEES_RUNNING && wanted == Wanted::ByUser {
            self.look_at_running(&mut running, &mut all);
        }
        all.unseen.extend(running.iter().map(Runs::tell));
        all.lines = self.lines.tell();
        all.seen.sort_unstable_by_key(|g| g.id);
        all.unseen.sort_unstable();
        all
    }

    /// Adds `g` to `all`, or to `running`. Not inlined: the `Frames` are off the stack when `look_at_running` needs the room.
    #[inline(never)]
    fn see_into(&self, g: GRef<H>, all: &mut Snapshot, running: &mut Vec<Runs<H>>, now: Nanos) {
        let (mut frames, id) = (Frames::new(), g.id());
        match self.see(g, &mut frames) {
            Some(held) => all.add(held, &frames, now),
            None => running.push(Runs::new(g, id)),
        }
    }

    /// Holds `g`, if it does not run, and reads it.
    fn see(&self, g: GRef<H>, frames: &mut Frames) -> Option<Held> {
        self.with_held(g, |status| {
            let (started, depth, touched) = g.stack.with(|stack| {
                // SAFETY: a held G is on no M, and none resumes it before `unhold`.
                let Some(stack) = (unsafe { (*stack).as_ref() }) else { return (false, None, None) };
                // SAFETY: a held G is on no M, and none resumes it before `unhold`.
                unsafe { stack.coro().frames(frames) };
                let touched = if self.config.knobs.stack_use { stack.coro().touched() } else { None };
                (true, stack.coro().depth(), touched)
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

    /// Calls `f` while `g` is held. Returns `None` if `g` runs, and can't be held. `f` takes no lock and allocates nothing.
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
}
