//! `GMPDEBUG=schedtrace=MS`, `scheddetail=1`: what the scheduler is doing, now and then, on standard error.
//!
//! The format is Go 1.27's. Fields without a counterpart here have the value that they have in Go when there is nothing to
//! report: `needspinning`, `gcwaiting`, `stopwait`, `mallocing`, `throwing`, `preemptoff`, `locks`, `dying`. The others:
//!
//! | field | here |
//! | --- | --- |
//! | `threads` | threads that have not left, including the monitor |
//! | `idlethreads` | Ms that sleep on their notes, without the M in the poller, as in Go |
//! | `runqueue` | the global queue, mailboxes, the queues of classes, and the blockers that wait for an M (`threads/blockers.rs`) |
//! | `[ … ]`, `runqsize` | each P's own queue, with its batch, without `runnext`, as in Go |
//! | `schedticks`, `schedtick` | goroutines that the P looked for, and nearly always found |
//! | `syscalltick` | how often the P was taken up and given up |
//! | P's `status` | 0 idle, 1 running |
//! | `gfreecnt` | Gs without a goroutine that the P keeps |
//! | M's `p`, `curg`, `spinning` | as the M left them: a P that was taken away meanwhile is shown until the M notices |
//! | M's `blocked` | the M sleeps on its note |
//! | G's `status` | 1 runnable, 2 running, 4 waiting, followed by the wait reason |
//!
//! The monitor holds the central lock while it copies the numbers of Ps and Ms, not while it makes the text. The monitor holds
//! a G by the scan bit, as a dump does. Of a running G the monitor shows the number and the M, which are words that any thread
//! can read.

use crate::g::GRef;
use crate::host::Host;
use crate::p::P;
use crate::runtime::load::Load;
use crate::sched::lasting::MRef;
use crate::sched::{Central, Sched};
use crate::wait::status::Status;
use gmp_timers::Nanos;
use std::fmt::Write;
use std::time::Duration;

/// When a monitor traced last.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    first: Option<Nanos>,
    next: Nanos,
}

/// A copy of what is shown of an M.
struct SeenM {
    id: u32,
    p: Option<u32>,
    /// Only compared.
    g: Option<*const ()>,
    spinning: bool,
    blocked: bool,
}

/// A copy of what is shown of a G.
struct SeenG {
    id: u64,
    at: *const (),
    status: u32,
    reason: &'static str,
}

/// Returns how many goroutines stand on `p`, without `runnext`.
fn own_len<H: Host>(p: &P<H>) -> u32 {
    p.runq.len() + p.batch.len()
}

impl<H: Host> Sched<H> {
    /// Prints a trace if it is time to; the monitor calls this at each of its looks. Returns the time to the next trace; `None`
    /// if `GMPDEBUG` asks for none.
    pub(crate) fn trace(&self, trace: &mut Trace, now: Nanos) -> Option<Duration> {
        let every = self.config.knobs.schedtrace?;
        let first = *trace.first.get_or_insert(now);
        if trace.next <= now {
            // A late trace does not move the later ones, unless it comes after the time of the next.
            let next = trace.next.max(first).saturating_add(every);
            trace.next = if next > now { next } else { now.saturating_add(every) };
            H::trace(&self.trace_text(now.saturating_since(first), self.config.knobs.scheddetail));
        }
        Some(trace.next.saturating_since(now))
    }

    fn trace_text(&self, since: Duration, detailed: bool) -> String {
        let central = self.central.lock();
        let seen = self.census.read();
        let mut text = format!(
            "SCHED {}ms: gomaxprocs={} idleprocs={} threads={} spinningthreads={} needspinning=0 idlethreads={} \
             runqueue={}",
            since.as_millis(),
            central.procs,
            seen.npidle(),
            central.alive,
            seen.nmspinning(),
            central.idle.num_ms(),
            central.globq.num_normal() + central.globq.classes.total() + central.blockers.len(),
        );
        let ms = if detailed { self.see_ms(&central) } else { Vec::new() };
        let bound = central.bound_ms.len();
        drop(central);
        if detailed {
            let _infallible = self.add_detail(&mut text, bound, &ms);
        } else {
            let join = |words: Vec<String>| words.join(" ");
            let lens = join(self.ps.iter().map(|p| own_len(p).to_string()).collect());
            let ticks = join(self.ps.iter().map(|p| p.tick().to_string()).collect());
            let _infallible = writeln!(text, " [ {lens} ] schedticks=[ {ticks} ]");
        }
        text
    }

    /// Returns the numbers of a trace, and those of the lines.
    pub(crate) fn load(&self) -> Load {
        let central = self.central.lock();
        let (seen, globq) = (self.census.read(), &central.globq);
        let mut load = Load {
            procs: central.procs as usize,
            idle_procs: seen.npidle() as usize,
            threads: central.alive as usize,
            idle_threads: central.idle.num_ms(),
            ready: globq.num_normal()
                + globq.classes.total()
                + central.blockers.len()
                + central.stackless.len(),
            ..Load::default()
        };
        drop(central);
        load.ready +=
            self.ps.iter().map(|p| own_len(p) as usize + usize::from(p.runq.has_next())).sum::<usize>();
        load.goroutines = self.num_goroutines();
        (load.file_calls, load.file_calls_in_line) = self.lines.files.tally();
        (load.lookups, load.lookups_in_line) = self.lines.lookups.tally();
        load
    }

    fn see_ms(&self, central: &Central<H>) -> Vec<SeenM> {
        let see = |&m: &MRef<H>| SeenM {
            id: m.id,
            p: m.shown_p().map(|p| p.id),
            g: m.shown_g().map(|g| g.as_ptr().cast_const().cast()),
            spinning: m.spinning.peek(),
            blocked: central.idle.contains_m(m),
        };
        central.ms.iter().map(see).collect()
    }

    /// The lines of all Ps, Ms and Gs.
    fn add_detail(&self, text: &mut String, bound: usize, ms: &[SeenM]) -> std::fmt::Result {
        let nil = || "nil".to_owned();
        let number = |number: Option<u64>| number.map_or_else(nil, |number| number.to_string());
        writeln!(text, " gcwaiting=false nmidlelocked={bound} stopwait=0 sysmonwait=false")?;
        for p in self.ps.iter() {
            let idle = self.idle_mask.has(p.id);
            let m = ms.iter().find(|m| !idle && m.p == Some(p.id)).map(|m| u64::from(m.id));
            writeln!(
                text,
                "  P{}: status={} schedtick={} syscalltick={} m={} runqsize={} gfreecnt={} timerslen={}",
                p.id,
                u32::from(!idle),
                p.tick(),
                p.handoff.changes(),
                number(m),
                own_len(p),
                p.free_gs.shown_len(),
                p.timers.lock().len(),
            )?;
        }
        let gs = self.see_gs();
        let id_of = |at: *const ()| gs.iter().find(|g| g.at == at).map(|g| g.id);
        for m in ms {
            writeln!(
                text,
                "  M{}: p={} curg={} mallocing=0 throwing=0 preemptoff= locks=0 dying=0 spinning={} blocked={} \
                 lockedg=nil",
                m.id,
                number(m.p.map(u64::from)),
                number(m.g.and_then(id_of)),
                m.spinning,
                m.blocked,
            )?;
        }
        for g in &gs {
            let m = ms.iter().find(|m| m.g == Some(g.at)).map(|m| u64::from(m.id));
            let (m, status) = (number(m), g.status);
            writeln!(text, "  G{}: status={status}({}) m={m} lockedm=nil", g.id, g.reason)?;
        }
        Ok(())
    }

    fn see_gs(&self) -> Vec<SeenG> {
        let see = |g: GRef<H>| {
            let held = self.with_held(g, |status| match status {
                Status::Waiting => (4, g.reason.get().as_str()),
                _ => (1, ""),
            });
            let (status, reason) = held.unwrap_or((2, ""));
            SeenG { id: g.id(), at: g.to_raw().cast_const().cast(), status, reason }
        };
        let mut gs: Vec<_> = self.gs().live().into_iter().map(see).collect();
        gs.sort_by_key(|g| g.id);
        gs
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;
    use crate::{Builder, Priority, Runtime};
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::{Mutex, mpsc};

    /// Fails if a trace leaves out goroutines that the owner of a P has taken into its batch.
    #[test]
    fn goroutines_in_a_batch_are_counted() {
        const COUNT: usize = 40;
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        let runtime = unsafe { Runtime::builder().procs(1).build() }.unwrap();
        let sched = runtime.handle().sched("trace").unwrap();
        let first = std::sync::Arc::new(Mutex::new(None));
        runtime.run(|| {
            let all = (0..COUNT).map(|_| {
                let (sched, first) = (sched.clone(), first.clone());
                let look = move || {
                    first.lock().unwrap().get_or_insert_with(|| sched.trace_text(Duration::ZERO, false));
                };
                Builder::new().priority(Priority::Low).go(look).unwrap()
            });
            Vec::from_iter(all).into_iter().for_each(|one| one.join().unwrap());
        });
        let text = first.lock().unwrap().take().expect("one has looked");
        assert_eq!(number(&text, "runqueue=") + number(&text, " [ "), COUNT - 1, "{text}");
    }

    /// Fails if a trace leaves out goroutines that wait for an M to make their blocking call.
    #[test]
    fn a_blocker_is_counted() {
        // If a busy machine stops this thread for long and the monitor takes the P first, the blocker has an M at once.
        let texts = Vec::from_iter((0..10).map(|_| trace_beside_a_blocker()));
        let counted = |text: &String| (number(text, "runqueue="), number(text, " [ ")) == (1, 0);
        assert!(texts.iter().any(counted), "{texts:?}");
    }

    /// Returns a trace by the only goroutine that runs, while another is about to block its thread, and its M has not begun.
    fn trace_beside_a_blocker() -> String {
        let (ms, (released, release)) = (AtomicU32::new(0), mpsc::channel::<()>());
        let release = Mutex::new(release);
        // The second M. An M that was started for the P must not wait for good.
        let starts = move || {
            if ms.fetch_add(1, Relaxed) == 1 {
                let _released = release.lock().unwrap().recv_timeout(Duration::from_secs(1));
            }
        };
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        let runtime = unsafe { Runtime::builder().procs(1).on_thread_start(starts).build() }.unwrap();
        let sched = runtime.handle().sched("trace").unwrap();
        runtime.run(|| {
            let looks = crate::go(move || {
                let text = sched.trace_text(Duration::ZERO, false);
                drop(released);
                text
            });
            // The goroutine that was spawned last runs first.
            let calls = crate::go(|| crate::blocking(|| ()));
            calls.join().unwrap();
            looks.join().unwrap()
        })
    }

    fn number(text: &str, after: &str) -> usize {
        let rest = text.split(after).nth(1).and_then(|rest| rest.split_whitespace().next());
        rest.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{after}: {text}"))
    }
}
