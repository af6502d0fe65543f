//! One runtime, from its beginning to its end, and what is left of it.

use crate::heap;
use crate::sockets;
use crate::watch;
use crate::worker::{Kind, Worker};
use crate::world::World;
use common::random::Random;
use gmp::chan::bounded;
use gmp::{JoinHandle, Runtime};
use std::cell::Cell;
use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const THREADS: usize = 3;
/// The longest time that a shutdown may take, or that goroutines may need to end by themselves.
const ROUND_LIMIT: Duration = Duration::from_secs(40);
/// From the end of this round on allocated memory may not grow.
const WARM: usize = 4;
/// The growth that is allowed: tables that grow with the most there ever was, the names of functions for a dump.
const SLACK: isize = 4 << 20;
const RESIDENT_SLACK: usize = 64 << 20;

pub struct Plan {
    pub procs: usize,
    pub seed: u64,
    pub length: Duration,
}

/// How the runtime ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// After all goroutines have ended.
    Joined,
    /// In the middle of the storm.
    Shutdown,
    /// While the goroutines are about to end by themselves.
    Race,
    /// One of the runtime's own goroutines drops it, in the middle of the storm.
    FromInside,
}

/// The rounds so far, and the memory that they left.
pub struct Course {
    choice: Arc<[usize]>,
    rounds: Cell<usize>,
    /// The most after a round of the warm-up: bytes and blocks on the heap, bytes of memory.
    most: Cell<(isize, isize, usize)>,
}

impl Course {
    pub fn new(choice: Vec<usize>) -> Self {
        Course { choice: choice.into(), rounds: Cell::new(0), most: Cell::default() }
    }

    /// Runs a round. Ends the process when something was lost, or is left.
    pub fn round(&self, plan: &Plan) {
        let before = (entries("/proc/self/task"), entries("/proc/self/fd"));
        let (mut random, operations) = (Random::of_seed(plan.seed), watch::operations());
        let end = *random.pick(&[End::Joined, End::Shutdown, End::Race, End::FromInside]);
        watch::round(format!("storm --procs {} --seed {}: a round that ends {end:?}", plan.procs, plan.seed));
        watch::stage("begins");
        let messages = self.storm(plan, &mut random, end);
        watch::stage("looks for what is left");
        comes_to(before.0, "threads", || entries("/proc/self/task"));
        comes_to(before.1, "descriptors", || entries("/proc/self/fd"));
        // The names of functions that dumps have read: how many stay depends on which objects were asked for last.
        backtrace::clear_symbol_cache();
        let (bytes, blocks) = heap::live();
        println!(
            "  {:3}: {end:?}, {} operations, {messages} messages; {bytes} bytes in {blocks} blocks, {} MiB resident",
            self.rounds.get(),
            watch::operations() - operations,
            heap::resident() >> 20,
        );
        self.does_not_grow((bytes, blocks, heap::resident()));
    }

    fn does_not_grow(&self, (bytes, blocks, resident): (isize, isize, usize)) {
        let most = self.most.get();
        if self.rounds.replace(self.rounds.get() + 1) < WARM {
            self.most.set((most.0.max(bytes), most.1.max(blocks), most.2.max(resident)));
        } else {
            assert!(
                bytes <= most.0 + SLACK,
                "{bytes} bytes are allocated after a round, {} were at first",
                most.0
            );
            assert!(
                blocks <= most.1 + SLACK / 256,
                "{blocks} blocks are allocated, {} were at first",
                most.1
            );
            assert!(
                resident <= 2 * most.2 + RESIDENT_SLACK,
                "{resident} bytes of memory outside of the allocator, {} at first",
                most.2
            );
        }
    }

    /// Runs the storm, and returns how many messages there were.
    fn storm(&self, plan: &Plan, random: &mut Random, end: End) -> u64 {
        let builder = Runtime::builder().procs(plan.procs).stack_size(256 << 10);
        // SAFETY: no goroutine of the storm keeps a thread-bound value across a blocking call.
        let runtime = Arc::new(unsafe { builder.build() }.expect("a runtime starts"));
        let world = Arc::new(World::new(plan.procs, &runtime));
        let seed = random.bits();
        let worker = |me, kind| Worker::new(me, kind, seed, &world, &self.choice);
        let goroutines = 6 + random.below(20) as usize;
        let threads: Vec<_> = (1..=THREADS)
            .map(|me| {
                let worker = worker(me, Kind::Thread);
                // A debug build has large frames.
                thread::Builder::new()
                    .stack_size(4 << 20)
                    .spawn(move || worker.work())
                    .expect("a thread starts")
            })
            .collect();
        let mut handles: Vec<_> = (1..=goroutines)
            .map(|number| {
                let worker = worker(THREADS + number, Kind::Goroutine);
                runtime.go(move || worker.work())
            })
            .collect();
        let server = Arc::clone(&world);
        handles.push(runtime.go(move || sockets::serve(&server)));
        thread::sleep(plan.length);
        if self.rounds.get() < WARM {
            // Allocates the memory in which the names of functions are kept.
            drop(gmp::dump());
        }

        watch::stage("ends");
        // Workers that still have the runtime let it go.
        world.forget_runtime();
        let runtime = sole(runtime);
        let join_all = |handles: Vec<JoinHandle<()>>| {
            for handle in handles {
                if let Err(error) = handle.join() {
                    assert!(error.is_shutdown(), "a worker has ended: {error:?}");
                }
            }
        };
        let stop = || {
            world.stop();
            world.sockets.close();
        };
        match end {
            End::Joined => {
                stop();
                join_all(handles);
                until("its goroutines end", || runtime.num_goroutines() == 0);
                assert!(runtime.shutdown(ROUND_LIMIT).is_clean());
            }
            End::Shutdown => {
                let report = runtime.shutdown(ROUND_LIMIT);
                assert!(report.is_clean(), "{report:?}");
                join_all(handles);
            }
            End::Race => {
                stop();
                let report = runtime.shutdown(ROUND_LIMIT);
                assert!(report.is_clean(), "{report:?}");
                join_all(handles);
            }
            End::FromInside => {
                let (gives, takes) = bounded::<Runtime>(0);
                handles.push(runtime.go(move || drop(takes.recv())));
                gives.send(runtime).expect("it waits for it");
                join_all(handles);
            }
        }
        watch::stage("joins threads");
        stop();
        for thread in threads {
            thread.join().unwrap_or_else(|_| panic!("a thread has failed"));
        }
        watch::stage("counts");
        until("each timer fires once", || world.timers.have_fired());
        world.empty();
        until("what was made is dropped", || world.book.is_closed());
        until("what counts it is dropped", || Arc::strong_count(&world.book) == 1);
        world.balances();
        world.book.messages()
    }
}

/// Waits until the caller has the only reference.
fn sole(mut runtime: Arc<Runtime>) -> Runtime {
    loop {
        match Arc::try_unwrap(runtime) {
            Ok(sole) => return sole,
            Err(shared) => runtime = shared,
        }
        thread::yield_now();
    }
}

fn entries(folder: &str) -> usize {
    fs::read_dir(folder).expect("/proc is mounted").count()
}

/// Waits for something that is to happen by itself. Panics if it does not in `ROUND_LIMIT`.
fn until(what: &str, reached: impl Fn() -> bool) {
    assert!(is_reached(reached), "not in {ROUND_LIMIT:?}: {what}");
}

/// Waits, for `ROUND_LIMIT` at most. Returns `false` if that was too short.
fn is_reached(reached: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !reached() {
        if start.elapsed() > ROUND_LIMIT {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

fn comes_to(expected: usize, what: &str, count: impl Fn() -> usize) {
    if !is_reached(|| count() == expected) {
        assert_eq!(count(), expected, "{what}, before the round and after it");
    }
}
