//! What all goroutines are doing, as text.
//!
//! A G that is parked or queued is held where it is by the scan bit while it is read; whoever would run it
//! meanwhile leaves that to the holder (`status.rs`). The holder takes no lock and allocates nothing until it
//! lets go. A running G is not read, only counted: it may end at any moment.
//!
//! Checked by `tests/loom_park.rs`.

use crate::g::GRef;
use crate::gpool::GPool;
use crate::host::{Host, Stack};
use crate::prim::Arc;
use crate::sched::Sched;
use crate::sched::park::WaitReason;
use crate::status::{Status, Then};
use std::fmt::Write;
use std::panic::Location;

/// What is read of a held G.
struct Seen {
    id: u64,
    name: Option<Arc<str>>,
    site: &'static Location<'static>,
    status: Status,
    reason: WaitReason,
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
        let mut text = format!("{} goroutines, {running} of them running\n", seen.len() + running);
        for g in seen {
            let name = g.name.map(|name| format!(" '{name}'")).unwrap_or_default();
            let state = match g.status {
                Status::Waiting => g.reason.as_str(),
                _ => "runnable",
            };
            let depth = g.depth.map(|bytes| format!(", {bytes} bytes of stack")).unwrap_or_default();
            let _infallible =
                writeln!(text, "\ngoroutine {}{name} [{state}{depth}]\nspawned at {}", g.id, g.site);
        }
        text
    }

    /// Holds `g`, if it can be, and reads it.
    fn see(&self, g: GRef<H>) -> Option<Seen> {
        let status = g.word.hold()?;
        // SAFETY: a held G is on no M, and none resumes it before `unhold`.
        let depth = g.stack.with(|stack| unsafe { (*stack).as_ref() }.and_then(H::Stack::depth));
        let seen = g.with_birth(|birth| Seen {
            id: g.id(),
            name: birth.name.clone(),
            site: birth.site,
            status,
            reason: g.reason.get(),
            depth,
        });
        if g.word.unhold() == Then::Queue {
            self.submit(g);
        }
        Some(seen)
    }
}
