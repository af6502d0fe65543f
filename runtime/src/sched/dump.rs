//! What all goroutines are doing, as text.
//!
//! A G that is parked or queued is held where it is by the scan bit while it is read; whoever would run it
//! meanwhile leaves that to the holder (`status.rs`). The holder takes no lock and allocates nothing until it
//! lets go. A running G is not read, only counted: it may end at any moment.
//!
//! How long each has waited is told by a time that it noted when it parked. That is a word of the runtime, the *rough time*:
//! a clock for each park would be a tenth of its cost. Whoever comes back from a sleep brings it up to date, and the monitor,
//! which looks every few milliseconds as long as a P is held: so it is right to some 10 ms.
//!
//! Checked by `tests/loom_park.rs`.

use crate::g::GRef;
use crate::gpool::GPool;
use crate::host::{Host, Stack};
use crate::prim::Arc;
use crate::sched::Sched;
use crate::sched::park::WaitReason;
use crate::status::{Status, Then};
use gmp_timers::Nanos;
use std::fmt::Write;
use std::panic::Location;
use std::time::Duration;

/// What is read of a held G.
struct Seen {
    id: u64,
    name: Option<Arc<str>>,
    site: &'static Location<'static>,
    status: Status,
    reason: WaitReason,
    since: Nanos,
    depth: Option<usize>,
}

impl<H: Host> Sched<H> {
    /// One paragraph for each goroutine, oldest first.
    pub(crate) fn dump(&self) -> String {
        let mut seen = Vec::new();
        let mut running = 0;
        // SAFETY: the pool is closed when the scheduler is dropped.
        unsafe {
            GPool::for_each_live(self.pool, |g| match self.see(g) {
                Some(held) => seen.push(held),
                None => running += 1,
            });
        }
        seen.sort_by_key(|g| g.id);
        let now = H::now();
        let mut text = match (seen.len() + running, running) {
            (1, 0) => "1 goroutine, not running\n".to_owned(),
            (1, _) => "1 goroutine, running\n".to_owned(),
            (count, _) => format!("{count} goroutines, {running} of them running\n"),
        };
        for g in seen {
            let name = g.name.map(|name| format!(" '{name}'")).unwrap_or_default();
            let state = match g.status {
                Status::Waiting => {
                    format!("{}, {}", g.reason.as_str(), age(now.saturating_since(g.since)))
                }
                _ => "runnable".to_owned(),
            };
            let depth = g.depth.map(|bytes| format!(", {bytes} bytes of stack")).unwrap_or_default();
            let _infallible =
                writeln!(text, "\ngoroutine {}{name} [{state}{depth}]\nspawned at {}", g.id, g.site);
        }
        text
    }

    /// Holds `g`, if it can be, and reads it.
    fn see(&self, g: GRef<H>) -> Option<Seen> {
        self.with_held(g, |status| {
            // SAFETY: a held G is on no M, and none resumes it before `unhold`.
            let depth = g.stack.with(|stack| unsafe { (*stack).as_ref() }.and_then(H::Stack::depth));
            g.with_birth(|birth| Seen {
                id: g.id(),
                name: birth.name.clone(),
                site: birth.site,
                status,
                reason: g.reason.get(),
                since: g.since.get(),
                depth,
            })
        })
    }

    /// Calls `f` while `g` is held. `None`: it can't be, as it runs. `f` takes no lock and allocates nothing.
    pub(crate) fn with_held<R>(&self, g: GRef<H>, f: impl FnOnce(Status) -> R) -> Option<R> {
        let status = g.word.hold()?;
        let seen = f(status);
        if g.word.unhold() == Then::Queue {
            self.submit(g);
        }
        Some(seen)
    }

    /// What a park notes as its time: right to some 10 ms. Whoever comes back from a sleep, and the monitor, which looks
    /// as long as a P is held, bring it up to date.
    #[inline(always)]
    pub(crate) fn rough_time(&self) -> Nanos {
        Nanos::from_nanos(self.rough_time.get())
    }

    /// Brings the rough time up to date. A word that all Ps read: it is not written for less than a millisecond.
    pub(crate) fn tell_time(&self) {
        // A model's clock stands still.
        if H::MONITORED {
            self.it_is(H::now());
        }
    }

    /// The same for who has looked at the clock.
    pub(crate) fn it_is(&self, now: Nanos) {
        const STEP: u64 = 1_000_000;
        if now.as_nanos().saturating_sub(self.rough_time.get()) >= STEP {
            self.rough_time.set(now.as_nanos());
        }
    }
}

/// For people: two digits matter.
fn age(waited: Duration) -> String {
    match waited.as_secs() {
        0 => format!("{} ms", waited.as_millis() / 10 * 10),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} minutes", seconds / 60),
        seconds => format!("{} hours", seconds / 3600),
    }
}
