//! No goroutine waits behind one that does not yield while another P is at work: the `transfer` benchmark of CforAll.
//!
//! Some goroutines take turns as leaders. The leader does not yield before all others have acknowledged it, so goroutines in
//! the queue of its P need the help of another P; and goroutines on the other P always yield, so that P never lacks work. A
//! scheduler that only steals when it has nothing to do never ends the first round.
//!
//! The kernel has a say: a goroutine whose thread was preempted acknowledges when the thread is back. So where the leaders spin
//! for longer than they do on a quiet machine, as many plain threads as there are Ps spin in the same run, and note the gaps of
//! their clocks. Each attempt may fail on a machine that others use too; all of them in a row may not.

use crate::measure::{alone, percentile};
use common::child;
use common::cpu::process_time;
use common::policies::policies;
use common::{effort, runtime, watched};
use gmp::sync::Event;
use gmp::{Runtime, yield_now};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// With `MANY` goroutines the global queue is never empty either.
const FEW: usize = 20;
const MANY: usize = 600;
const ROUNDS: usize = if cfg!(debug_assertions) { 50 } else { 100 };
/// The rounds of a test that only asks for an end: a leader without help spins for ever in the first of them.
const ROUNDS_TO_END: usize = if cfg!(debug_assertions) { 10 } else { 20 };
const ATTEMPTS: usize = 8;
const MS: Duration = Duration::from_millis(1);
const NO_LEADER: usize = usize::MAX;
const OVER: usize = usize::MAX;
const NO_END: i32 = 77;

/// How the others wait for the next leader (`-e` of the thesis).
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Others {
    Yield,
    Park,
}

struct Transfer {
    others: Others,
    rounds: usize,
    /// How many leaders there have been; each goroutine acknowledges each number once.
    round: AtomicUsize,
    acknowledged: AtomicUsize,
    next: AtomicUsize,
    calls: Vec<Event>,
    took: Mutex<Vec<Duration>>,
}

impl Transfer {
    fn lead(&self, me: usize) {
        self.acknowledged.store(0, SeqCst);
        let start = Instant::now();
        let round = self.round.fetch_add(1, SeqCst) + 1;
        if self.others == Others::Park {
            self.call_all(me);
        }
        while self.acknowledged.load(SeqCst) < self.calls.len() - 1 {
            std::hint::spin_loop();
        }
        self.took.lock().unwrap().push(start.elapsed());
        if round == self.rounds {
            self.round.store(OVER, SeqCst);
            return self.call_all(me);
        }
        // Some order without a pattern, in which no goroutine follows itself.
        let next = (me + 1 + round * 7 % (self.calls.len() - 1)) % self.calls.len();
        self.next.store(next, SeqCst);
        self.calls[next].notify_one();
    }

    fn call_all(&self, me: usize) {
        self.calls.iter().enumerate().filter(|(who, _)| *who != me).for_each(|(_, call)| call.notify_one());
    }

    fn take_part(&self, me: usize) {
        let mut seen = 0;
        loop {
            let round = self.round.load(SeqCst);
            if round == OVER {
                return;
            }
            if round != seen {
                seen = round;
                self.acknowledged.fetch_add(1, SeqCst);
            } else if self.next.compare_exchange(me, NO_LEADER, SeqCst, SeqCst).is_ok() {
                self.lead(me);
                seen += 1;
                continue;
            }
            match self.others {
                Others::Yield => yield_now(),
                Others::Park => self.calls[me].wait(),
            }
        }
    }
}

/// Returns how long each leader spun.
fn transfer(procs: usize, goroutines: usize, others: Others) -> Vec<Duration> {
    transfer_in(&runtime(procs), goroutines, others, ROUNDS)
}

fn transfer_in(rt: &Runtime, goroutines: usize, others: Others, rounds: usize) -> Vec<Duration> {
    let transfer = Arc::new(Transfer {
        others,
        rounds,
        round: AtomicUsize::new(0),
        acknowledged: AtomicUsize::new(0),
        next: AtomicUsize::new(0),
        calls: (0..goroutines).map(|_| Event::new()).collect(),
        took: Mutex::default(),
    });
    let all: Vec<_> = (0..goroutines)
        .map(|me| {
            let transfer = Arc::clone(&transfer);
            rt.go(move || transfer.take_part(me))
        })
        .collect();
    all.into_iter().for_each(|one| one.join().unwrap());
    let took = std::mem::take(&mut *transfer.took.lock().unwrap());
    assert_eq!(took.len(), rounds);
    took
}

/// Returns the longest gap that `threads` plain threads see, which do nothing but look at the clock. A leader waits for the
/// last of all Ms, so no shorter gap would tell.
fn kernels_gap(threads: usize) -> Duration {
    const OBSERVED: Duration = Duration::from_millis(200);
    let watch = || {
        let (start, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
        while start.elapsed() < OBSERVED {
            let now = Instant::now();
            longest = longest.max(now - last);
            last = now;
        }
        longest
    };
    let gaps: Vec<_> = thread::scope(|s| {
        let watching: Vec<_> = (0..threads).map(|_| s.spawn(watch)).collect();
        watching.into_iter().map(|one| one.join().unwrap()).collect()
    });
    gaps.into_iter().max().unwrap_or_default()
}

/// Checks that the leaders are acknowledged as soon as the kernel lets the other goroutines run. Fails by a hang, or in every
/// attempt by longer waits.
fn acknowledged_in_time() {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let few =
        [2, 4, 8].into_iter().flat_map(|procs| [(procs, FEW, Others::Yield), (procs, FEW, Others::Park)]);
    for (procs, goroutines, others) in few.chain([(2, MANY, Others::Yield)]) {
        // With more Ps than cores, the threads take turns of 4 ms or more even on a quiet machine. The turns of many goroutines
        // take a millisecond or more by themselves; without help they waited for 150 ms.
        let alone = if goroutines > FEW { 16 * MS } else { MS };
        let quiet = if procs <= cores { alone } else { 8 * MS };
        let held = (0..ATTEMPTS).any(|_| {
            let took = watched(procs, || transfer(procs, goroutines, others));
            let p99 = percentile(&took, 99);
            // A look takes longer than the rounds.
            let gap = if p99 <= quiet { Duration::ZERO } else { kernels_gap(procs) };
            println!(
                "transfer, {goroutines} goroutines, the others {others:?}, procs {procs}: p50 {:?}, p99 {p99:?}, worst {:?}; the kernel's gap {gap:?}",
                percentile(&took, 50),
                percentile(&took, 100),
            );
            p99 <= (2 * gap).max(quiet)
        });
        assert!(held, "{goroutines} goroutines, the others {others:?}, procs {procs}");
    }
}

#[test]
fn a_leader_that_does_not_yield_is_acknowledged() {
    let _alone = alone();
    acknowledged_in_time();
}

/// The same, but no P is ever taken from its M.
#[test]
fn without_hand_off_it_is_acknowledged_too() {
    const NAME: &str = "without_hand_off_it_is_acknowledged_too";
    if child::is_child() {
        return acknowledged_in_time();
    }
    let _alone = alone();
    child::passes(NAME, &[("GMPDEBUG", "handoff=0")]);
}

/// Shows that the tests above need helping. Fails when the program ends without helping, as nothing else could end it; with
/// helping it ends after a small part of `LIMIT`.
#[test]
fn without_helping_the_first_rounds_do_not_end() {
    const NAME: &str = "without_helping_the_first_rounds_do_not_end";
    const LIMIT: Duration = Duration::from_millis(400);
    if child::is_child() {
        // The time that the process computes, of all its threads.
        drop(thread::spawn(|| {
            while process_time() < LIMIT {
                thread::sleep(5 * MS);
            }
            std::process::exit(NO_END);
        }));
        transfer(2, FEW, Others::Yield);
        return;
    }
    let _alone = alone();
    let ended = child::run(NAME, &[("GMPDEBUG", "handoff=0,helping=0")]);
    assert_eq!(ended.status.code(), Some(NO_END), "{ROUNDS} rounds ended: {ended:?}");
}

/// Under every policy all leaders are acknowledged, and the figures are printed. Fails by a hang. Only the default policy
/// promises how long a leader spins; another policy may leave it to the monitor, which takes a P after 10 ms.
#[test]
fn transfer_under_every_policy() {
    let _alone = alone();
    let rounds = ROUNDS_TO_END * effort() as usize;
    for policy in policies() {
        for others in [Others::Yield, Others::Park] {
            // SAFETY: the goroutines keep nothing of a thread.
            let rt =
                unsafe { Runtime::builder().procs(2).stack_size(64 << 10).policy(policy).build() }.unwrap();
            let took = watched(2, || transfer_in(&rt, FEW, others, rounds));
            let [p50, p99, worst] = [50, 99, 100].map(|percent| percentile(&took, percent));
            println!(
                "transfer, {policy}, the others {others:?}, procs 2: p50 {p50:?}, p99 {p99:?}, worst {worst:?}"
            );
        }
    }
}
