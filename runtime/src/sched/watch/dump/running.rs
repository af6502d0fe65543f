//! Where running goroutines are: in a computation, or in a call that blocks their thread.
//!
//! A running G has no frames that another thread could read. So the dump interrupts the thread of its M, which says where it is
//! (`Process::ask`; `host/native/sample/`). The Ms show which M that is, but only as a place to ask: the thread says which
//! goroutine it was in, with the name and the spawn site, so nothing is read of a G that can end meanwhile.
//!
//! A goroutine can begin, park, or change its M in between. A goroutine that is not found where an M showed it is looked at
//! again: the dump holds a parked goroutine, forgets one that has ended, and asks for one that runs. A goroutine that switches
//! all the time can escape each of these looks, of which there are [`LOOKS`].
//!
//! The goroutine that asks for the dump reads its own frames.

use crate::g::GRef;
use crate::host::{Asked, Frames, Host};
use crate::m::M;
use crate::prim::relax;
use crate::sched::Sched;
use crate::sched::watch::dump::Snapshot;
use std::collections::HashMap;

/// How often the dump looks for a running goroutine.
const LOOKS: u32 = 8;

/// A goroutine that ran at the look.
pub(super) struct Runs<H: Host> {
    g: GRef<H>,
    id: u64,
    /// Why asking once more is useless.
    why: Option<&'static str>,
    seen: bool,
}

impl<H: Host> Runs<H> {
    /// `id` is the goroutine's number before the look. Since then the G might have become that of another goroutine.
    pub(super) fn new(g: GRef<H>, id: u64) -> Self {
        Runs { g, id, why: None, seen: false }
    }

    /// Returns what is known of the goroutine.
    pub(super) fn tell(&self) -> (u64, Option<&'static str>) {
        (self.id, self.why)
    }
}

impl<H: Host> Sched<H> {
    /// Adds to `all` what can be known of the goroutines in `running`, and takes the goroutines that were added out of
    /// `running`.
    pub(super) fn look_at_running(&self, running: &mut Vec<Runs<H>>, all: &mut Snapshot) {
        if let Some(own) = M::<H>::current_of(self).and_then(M::g) {
            running.retain(|runs| runs.g != own);
            let mut frames = Frames::new();
            H::frames_here(&mut frames);
            let asked = own.with_birth(|birth| {
                let (name, site) = (birth.name.clone(), birth.site);
                Asked { id: own.id(), name, site, frames }
            });
            all.add_running(asked, own.class());
        }
        if !running.is_empty() && self.config.knobs.dump_signal {
            // If no stack is large enough, only their numbers are told.
            let _no_room = H::with_room(|| self.ask_running(running, all));
        }
    }

    fn ask_running(&self, running: &mut Vec<Runs<H>>, all: &mut Snapshot) {
        for look in 0..LOOKS {
            if look > 0 {
                relax();
                running.retain(|runs| runs.why.is_some() || self.still_runs(runs, all));
            }
            let (threads, whose) = self.threads_of(running);
            if threads.is_empty() && running.iter().all(|runs| runs.why.is_some()) {
                return;
            }
            H::ask(&threads, &mut |at, answer| match answer {
                Ok(Some(asked)) => {
                    let found = running.iter_mut().find(|runs| runs.id == asked.id && !runs.seen);
                    if let Some(runs) = found {
                        runs.seen = true;
                        all.add_running(asked, runs.g.class());
                    }
                }
                Ok(None) => {}
                Err(why) => running[whose[at]].why = Some(why),
            });
            running.retain(|runs| !runs.seen);
        }
        for runs in running.iter_mut().filter(|runs| runs.why.is_none()) {
            runs.why = Some("on its way into a thread or out of one");
        }
    }

    /// Returns `true` if the goroutine still runs. Otherwise `all` has the goroutine, unless that has ended.
    fn still_runs(&self, runs: &Runs<H>, all: &mut Snapshot) -> bool {
        if !runs.g.is_live() || runs.g.id() != runs.id {
            return false;
        }
        let mut frames = Frames::new();
        let Some(held) = self.see(runs.g, &mut frames) else { return true };
        if held.id == runs.id {
            all.add(held, &frames, H::now());
        }
        false
    }

    /// Returns the threads that show one of these goroutines, and for each the index of that goroutine.
    fn threads_of(&self, running: &[Runs<H>]) -> (Vec<u32>, Vec<usize>) {
        let asked_for = running.iter().enumerate().filter(|(_, runs)| runs.why.is_none());
        let places: HashMap<_, _> = asked_for.map(|(at, runs)| (runs.g.get(), at)).collect();
        let central = self.central.lock();
        central.ms.iter().filter_map(|m| Some((m.thread(), *places.get(&m.shown_g()?)?))).unzip()
    }
}
