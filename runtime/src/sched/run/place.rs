//! Where a new goroutine stands: the places between which the spawning functions choose.
//!
//! | place | chosen by | when the goroutine runs |
//! | --- | --- | --- |
//! | `Next` | `go` | next on the spawner's P, within the spawner's time slice |
//! | `Shared` | `go_fair`, and any spawn without a P | after the goroutines that already stood in the global queue |
//! | `Mail` | `Builder::affinity` | when the named P has an empty ring: `mail.rs` |
//! | `Line` | `Builder::priority`, `Context::with_priority` | when no goroutine of a higher class waits: `classes.rs` |
//!
//! A new place is one more variant, and one more arm of [`put_at`](Sched::put_at) or [`submit_at`](Sched::submit_at).
//!
//! *`Shared` needs no protocol of its own.* S1 is under the central lock, as for a thread that is no M, and S2 and S3 follow
//! (`wake.rs`). A busy M comes to the global queue at its visits. If an M does not come back because its goroutine neither
//! parks nor yields, the monitor takes the P after a time slice, for the goroutines that stand there (`threads/retake.rs`).

use crate::g::GRef;
use crate::host::Host;
use crate::m::M;
use crate::prim::event;
use crate::prim::hooks::*;
use crate::runtime::priority::Priority;
use crate::sched::{Central, Sched};

/// See the header.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum Place {
    /// Before all others of the spawner's P.
    #[default]
    Next,
    /// The end of the global queue.
    Shared,
    /// The mailbox of the P with this number.
    Mail(u32),
    /// The queue of this class, which is not `Normal`.
    Line(Priority),
}

impl<H: Host> Sched<H> {
    /// S1 to S3 for `g`, which was just made, on the thread of `m`, one of this scheduler's Ms.
    #[inline(always)]
    pub(crate) fn submit_at(&self, m: &M<H>, g: GRef<H>, place: Place) {
        match place {
            Place::Next => self.submit_on_or(m, g, |g| self.send(g, Place::Shared)),
            Place::Shared | Place::Mail(_) | Place::Line(_) => self.send_from(m, g, place),
        }
    }

    /// As `send`, on the thread of `m`, on whose P the arrivals might have their turn.
    #[cold]
    #[inline(never)]
    fn send_from(&self, m: &M<H>, g: GRef<H>, place: Place) {
        if place == Place::Shared
            && let Some(inside) = m.look_in()
        {
            inside.p.owner.touch();
            inside.p.poll_schedule.arrivals.note_queued(0, 1);
        }
        self.send(g, place);
    }

    /// S1 to S3, through the lock.
    #[cold]
    #[inline(never)]
    pub(crate) fn send(&self, g: GRef<H>, place: Place) {
        let mut central = self.central.lock();
        self.put_at(&mut central, g, place);
        drop(central);
        mutant!(SentWakesNobody: return);
        self.wakep();
    }

    /// S1 of a submission that goes through the lock. The caller wakes an M, after the lock. Under a policy with one queue
    /// there are no mailboxes.
    pub(crate) fn put_at(&self, central: &mut Central<H>, g: GRef<H>, place: Place) {
        event(format_args!("queues {g:?} globally: {place:?}"));
        match place {
            Place::Mail(p) if p < central.procs && !self.config.policy.has_one_queue() => {
                central.globq.mail.put(p, g);
            }
            Place::Line(class) => {
                // Before another thread sees the goroutine.
                self.begin_classes(central);
                let _lives = g.set_class(class);
                central.globq.push(g);
            }
            _ => central.globq.push(g),
        }
        self.publish_len(central);
    }
}
