//! Starting Ms: a thread for each.

use crate::host::Host;
use crate::m::{Gift, M, Spinning};
use crate::sched::Sched;
use crate::sched::poll::Poller;
use std::io;
use std::ptr::NonNull;

impl<H: Host> Sched<H> {
    /// The first M, without which nothing would ever run.
    pub(crate) fn start_first(&self) -> io::Result<()> {
        let mut central = self.central.lock();
        let p = self.pidleget(&mut central).expect("start_first: there is at least one P");
        central.asked_for += 1;
        drop(central);
        self.spawn_m(Gift { p, spinning: Spinning::No }).map_err(|(refused, gift)| {
            self.take_back(&mut self.central.lock(), gift);
            io::Error::new(refused.kind(), format!("cannot start the runtime's first thread: {refused}"))
        })
    }

    /// Starts a new M. When the world refuses, the P is idle again, and its work waits for the Ms that exist.
    pub(crate) fn newm(&self, gift: Gift<H>) {
        let Err((refused, gift)) = self.spawn_m(gift) else { return };
        let mut central = self.central.lock();
        self.take_back(&mut central, gift);
        let first = !std::mem::replace(&mut central.warned, true);
        let count = central.ms.len();
        let somebody = !central.idle_ms.is_empty() || matches!(central.poller, Poller::Blocked(_));
        drop(central);
        if first {
            let most = self.config.max_threads;
            H::warn(&format!(
                "cannot start thread {} of at most {most}: {refused}; going on with those that run",
                count + 1
            ));
        }
        if somebody {
            // An M that gave up meanwhile has seen work and found no idle P, as this gift held it.
            self.wakep();
        }
    }

    /// The place for it was kept in `asked_for`.
    fn spawn_m(&self, gift: Gift<H>) -> Result<(), (io::Error, Gift<H>)> {
        let this = self.arc().expect("spawn_m: whoever starts an M holds its scheduler");
        let (p, spinning) = (gift.p, gift.spinning);
        let mut central = self.central.lock();
        central.asked_for -= 1;
        if self.is_stopping() {
            self.take_back(&mut central, gift);
            return Ok(());
        }
        let m = Box::new(M::new(central.ms.len() as u32, self));
        let name = format!("{}{}", self.config.thread_name, m.id);
        m.give(Some(gift));
        let there = NonNull::from(Box::leak(m));
        let raw = Handed(there);
        central.ms.push(there);
        // Once for the M, and once for this start: the runtime does not end before the thread is on the list.
        central.alive += 2;
        drop(central);

        let started = self.host.start(&name, move || {
            let raw = raw;
            // SAFETY: Ms live as long as their scheduler, which `this` holds.
            this.mstart(unsafe { raw.0.as_ref() });
        });
        let result = match started {
            Ok(thread) => {
                self.central.lock().threads.push(thread);
                Ok(())
            }
            Err(refused) => {
                self.central.lock().ms.retain(|&m| m != there);
                // SAFETY: nobody has seen it: not the thread that was refused, and it is off the list.
                drop(unsafe { Box::from_raw(there.as_ptr()) });
                self.thread_left();
                Err((refused, Gift { p, spinning }))
            }
        };
        self.thread_left();
        result
    }
}

/// A pointer to an M on its way to the M's own thread.
struct Handed<H: Host>(NonNull<M<H>>);
// SAFETY: an M is Sync.
unsafe impl<H: Host> Send for Handed<H> {}
