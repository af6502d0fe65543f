//! Wakers of `block_on` that foreign threads call, against parks, limits and ends.

use crate::support::{Random, everywhere, join_all, share};
use common::futures::Signal;
use common::{PROCS, runtime, watched};
use gmp::context::Context;
use gmp::sync::Event;
use gmp::{block_on, time};
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

const GIVERS: usize = 8;
/// The number of wakes at each number of Ps.
const WAKES: usize = 100_000;

/// A goroutine that waits for what the givers give, and for other things in between.
#[derive(Default)]
struct Owner {
    /// The signals of the givers, each with a wake.
    signal: Signal,
    /// The event that only the partner gives; `asked` asks for it, and `answers` counts it.
    event: Event,
    asked: Event,
    answers: AtomicUsize,
    taken: AtomicUsize,
    /// All has been given.
    over: AtomicBool,
}

impl Owner {
    fn take(&self) {
        block_on(self.signal.take());
        self.taken.fetch_add(1, SeqCst);
    }

    fn runs(&self, mut random: Random) {
        let mut rounds = 0;
        while !self.over.load(SeqCst) || self.signal.is_given() {
            match random.below(8) {
                // A limit ends the wait, or a wake that comes beside it.
                0..3 => {
                    let limit = Duration::from_nanos(random.below(40_000));
                    let _ended = time::timeout(limit, || self.take());
                }
                // Another goroutine ends the wait.
                3 => {
                    let (context, cancel) = Context::background().with_cancel();
                    let cancels = gmp::go(move || cancel.cancel());
                    let _ended = context.run(|| self.take());
                    cancels.join().unwrap();
                }
                // Another wait, beside wakes that come late.
                4 => {
                    rounds += 1;
                    self.asked.notify_one();
                    self.event.wait();
                    assert_eq!(
                        self.answers.load(SeqCst),
                        rounds,
                        "a late wake has ended a wait for an event"
                    );
                }
                5 => {
                    let (begin, pause) = (Instant::now(), random.micros(50));
                    time::sleep(pause);
                    assert!(begin.elapsed() >= pause, "a late wake has ended a sleep");
                }
                // A wake that was meant for an earlier wait does not end this one.
                6 => {
                    let (begin, limit) = (Instant::now(), random.micros(50));
                    let ended = time::timeout(limit, || block_on(pending::<()>()));
                    assert!(ended.is_err() && begin.elapsed() >= limit);
                }
                _ => (0..1 + random.below(20)).for_each(|_| {
                    if self.signal.is_given() {
                        self.take();
                    }
                }),
            }
            random.pause(60);
        }
    }

    /// Answers each question, after a while.
    fn partner(&self, mut random: Random) {
        loop {
            self.asked.wait();
            // The owner has ended.
            if self.taken.load(SeqCst) == usize::MAX {
                return;
            }
            random.pause(200);
            self.answers.fetch_add(1, SeqCst);
            self.event.notify_one();
        }
    }
}

/// Fails by a hang when a wake is lost, so that a signal is not taken; by an assertion when a wake ends a wait for something
/// else; by the count when a signal is taken twice.
#[test]
fn wakes_against_parks_limits_and_cancels() {
    everywhere(|rt| {
        let owners: Arc<Vec<Owner>> = Arc::new((0..4).map(|_| Owner::default()).collect());
        let goroutines: Vec<_> = (0..owners.len())
            .flat_map(|at| {
                let [mine, partners] = [(); 2].map(|()| Arc::clone(&owners));
                let runs = rt.go(move || {
                    mine[at].runs(Random::new(at));
                    let taken = mine[at].taken.swap(usize::MAX, SeqCst);
                    mine[at].asked.notify_one();
                    taken
                });
                let answers = rt.go(move || {
                    partners[at].partner(Random::new(100 + at));
                    0
                });
                [runs, answers]
            })
            .collect();
        // `share` divides by the numbers of Ps, too.
        let each = share(WAKES * PROCS.len(), GIVERS);
        let givers: Vec<_> = (0..GIVERS)
            .map(|giver| {
                let owners = Arc::clone(&owners);
                thread::spawn(move || {
                    let mut random = Random::new(200 + giver);
                    for _ in 0..each {
                        random.pick(&owners).signal.give();
                        random.pause(300);
                    }
                })
            })
            .collect();
        givers.into_iter().for_each(|giver| giver.join().unwrap());
        owners.iter().for_each(|owner| owner.over.store(true, SeqCst));
        let taken: usize = join_all(goroutines).into_iter().sum();
        assert_eq!(taken, each * GIVERS);
    });
}

/// Wakers are called while their runtime ends, and after that. Fails by a report that is not clean, by a hang, or by a crash.
#[test]
fn wakes_against_the_end_of_the_runtime() {
    for procs in PROCS {
        for round in 0..share(400, 1) {
            watched(procs, || {
                let rt = runtime(procs);
                let signals: Arc<Vec<Signal>> = Arc::new((0..8).map(|_| Signal::new()).collect());
                for at in 0..signals.len() {
                    let signals = Arc::clone(&signals);
                    drop(rt.go(move || {
                        loop {
                            block_on(signals[at].take());
                        }
                    }));
                }
                let over = Arc::new(AtomicBool::new(false));
                let givers: Vec<_> = (0..2)
                    .map(|giver| {
                        let (signals, over) = (Arc::clone(&signals), Arc::clone(&over));
                        thread::spawn(move || {
                            let mut random = Random::new(1000 * round + giver);
                            while !over.load(SeqCst) {
                                random.pick(&signals).give();
                                random.pause(2_000);
                            }
                            signals.iter().for_each(Signal::give);
                        })
                    })
                    .collect();
                common::until(|| signals.iter().all(Signal::is_awaited));
                // Now and then the end has no time: then the goroutines are left behind.
                let limit = if round % 4 == 3 { Duration::ZERO } else { Duration::from_secs(30) };
                let report = rt.shutdown(limit);
                over.store(true, SeqCst);
                givers.into_iter().for_each(|giver| giver.join().unwrap());
                assert!(limit.is_zero() || report.is_clean(), "{report:?}");
            });
        }
    }
}
