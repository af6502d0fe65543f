//! Every way to ready a goroutine respects its class. Goroutines of three classes wait in the same way, on one P, beside
//! `Normal` goroutines that are always ready; the tests check which one runs first.

use crate::measure::alone;
use Priority::{High, Low, Normal};
use common::{child, watched};
use gmp::net::UnixStream;
use gmp::policy::WorkStealing;
use gmp::sync::{Event, WaitGroup};
use gmp::time::sleep_until;
use gmp::{Builder, JoinHandle, Priority, Runtime, blocking, go, yield_now};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// How many `Normal` goroutines are ready all the time.
const READY: usize = 50;
/// After so many goroutines an M looks into the poller and the global queue.
const VISIT: usize = 61;
const ROUNDS: usize = 20;

/// The waiting goroutines, in the order in which a goroutine of their P readies them. Any of them that was queued as `Normal`
/// would be put into `runnext`, and the next one would push it to the end of the ring.
const ON_ITS_P: [Priority; 5] = [High, Normal, Low, Normal, Normal];
/// The same for goroutines that are readied from elsewhere: as `Normal` ones they would be queued, and would run, in this
/// order.
const FROM_ELSEWHERE: [Priority; 5] = [Normal, Normal, High, Low, Normal];

/// The events before a waiting goroutine goes on.
#[derive(Debug)]
struct Ran {
    class: Priority,
    /// Turns of the crowd.
    turns: usize,
    /// How many of the crowd have ended.
    ended: usize,
}

/// One P with its goroutines.
struct Scene {
    waiting: WaitGroup,
    ran: Mutex<Vec<Ran>>,
    turns: AtomicUsize,
    ended: AtomicUsize,
    /// The crowd, the goroutines that are always ready, is to end.
    over: AtomicBool,
}

impl Scene {
    /// Starts a goroutine for each class, which calls `wait` with its place in `classes`. Returns when all of them wait: each
    /// runs up to its wait before the caller's next turn.
    fn start<W: FnOnce() + Send + 'static>(
        self: &Arc<Self>,
        classes: [Priority; 5],
        mut wait: impl FnMut(usize) -> W,
    ) -> Vec<JoinHandle<()>> {
        self.waiting.add(classes.len() as isize);
        let start = |(at, class)| {
            let (this, wait) = (Arc::clone(self), wait(at));
            let waits = move || {
                this.waiting.done();
                wait();
                this.note(class);
            };
            Builder::new().priority(class).go(waits).expect("there is room for a stack")
        };
        let all = classes.into_iter().enumerate().map(start).collect();
        self.waiting.wait();
        all
    }

    fn note(&self, class: Priority) {
        let (turns, ended) = (self.turns.load(SeqCst), self.ended.load(SeqCst));
        let mut ran = self.ran.lock().unwrap();
        ran.push(Ran { class, turns, ended });
        // The Low goroutine runs when the crowd has ended.
        if ran.iter().filter(|it| it.class != Low).count() == 4 {
            self.over.store(true, SeqCst);
        }
    }

    /// Starts the `Normal` goroutines that are always ready. The caller keeps the P.
    fn crowd(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let each = |_| {
            let this = Arc::clone(self);
            go(move || {
                while !this.over.load(SeqCst) {
                    this.turns.fetch_add(1, SeqCst);
                    yield_now();
                }
                this.ended.fetch_add(1, SeqCst);
            })
        };
        (0..READY).map(each).collect()
    }
}

/// `scene` starts the goroutines that wait and the crowd, readies the former, and returns all of them without giving any a
/// turn. Fails when more than one `Normal` goroutine of those that are readied together runs before the High one, or when the
/// crowd has more than `most` turns before it; and when any `Normal` goroutine runs after the Low one.
fn in_order_of_classes(test: &str, most: usize, scene: impl Fn(&Arc<Scene>) -> Vec<JoinHandle<()>> + Sync) {
    // The goroutine that has the P is to keep it until it parks.
    child::without_retakes(test, || {
        let _alone = alone();
        // The kernel decides whether the P's M, another M, or the monitor readies them.
        watched(1, || (0..ROUNDS).for_each(|_| on_one_p(most, &scene)));
    });
}

fn on_one_p(most: usize, scene: &(impl Fn(&Arc<Scene>) -> Vec<JoinHandle<()>> + Sync)) {
    // With this share no turn of the Low goroutine is due before the others have run.
    let builder = Runtime::builder().procs(1).stack_size(64 << 10).low_share(u32::MAX);
    // SAFETY: no goroutine here keeps a thread-bound value across a blocking call.
    let rt = unsafe { builder.policy(WorkStealing::new()).build() }.expect("a runtime starts");
    let at_work = Arc::new(Scene {
        waiting: WaitGroup::new(),
        ran: Mutex::default(),
        turns: AtomicUsize::new(0),
        ended: AtomicUsize::new(0),
        over: AtomicBool::new(false),
    });
    rt.run(|| scene(&at_work).into_iter().for_each(|one| one.join().unwrap()));
    let ran = at_work.ran.lock().unwrap();
    let [high, low] = [High, Low].map(|class| ran.iter().position(|it| it.class == class).unwrap());
    println!("{ran:?}");
    assert!(high <= 1 && ran[high].turns <= most, "the High one: {ran:?}");
    assert!(low == ran.len() - 1 && ran[low].ended == READY, "the Low one: {ran:?}");
}

/// Each goroutine waits as `wait` says, for an event of its own, and all the events come at once.
fn in_order_by_events<W: FnOnce() + Send + 'static>(
    test: &str,
    wait: impl Fn(Arc<[Event; 5]>, usize) -> W + Sync,
) {
    in_order_of_classes(test, 0, |scene| {
        let events = Arc::new([(); 5].map(|()| Event::new()));
        let waiting = scene.start(ON_ITS_P, |at| wait(Arc::clone(&events), at));
        let ready = scene.crowd();
        events.iter().for_each(Event::notify_one);
        waiting.into_iter().chain(ready).collect()
    });
}

#[test]
fn of_goroutines_that_an_event_readies_the_high_one_runs_first_and_the_low_one_last() {
    let test = "of_goroutines_that_an_event_readies_the_high_one_runs_first_and_the_low_one_last";
    in_order_by_events(test, |events, at| move || events[at].wait());
}

/// The goroutines that are joined are High, and end one after the other.
#[test]
fn of_goroutines_that_a_join_readies_the_high_one_runs_first_and_the_low_one_last() {
    let test = "of_goroutines_that_a_join_readies_the_high_one_runs_first_and_the_low_one_last";
    in_order_by_events(test, |events, at| {
        let ends = Builder::new().priority(High).go(move || events[at].wait());
        let ends = ends.expect("there is room for a stack");
        move || ends.join().unwrap()
    });
}

#[test]
fn of_sleepers_that_are_due_the_high_one_runs_first_and_the_low_one_last() {
    let test = "of_sleepers_that_are_due_the_high_one_runs_first_and_the_low_one_last";
    in_order_of_classes(test, 2 * VISIT, |scene| {
        let mut before = Duration::from_millis(1);
        let (due, waiting) = loop {
            let due = Instant::now() + before;
            let waiting = scene.start(FROM_ELSEWHERE, |at| {
                let due = due + Duration::from_nanos(at as u64);
                move || sleep_until(due)
            });
            // All goroutines have come to their sleep before its end.
            if Instant::now() < due {
                break (due, waiting);
            }
            waiting.into_iter().for_each(|one| one.join().unwrap());
            scene.ran.lock().unwrap().clear();
            scene.over.store(false, SeqCst);
            before *= 2;
        };
        let ready = scene.crowd();
        while Instant::now() < due + Duration::from_micros(1) {
            std::hint::spin_loop();
        }
        waiting.into_iter().chain(ready).collect()
    });
}

#[test]
fn of_goroutines_that_the_poller_finds_the_high_one_runs_first_and_the_low_one_last() {
    let test = "of_goroutines_that_the_poller_finds_the_high_one_runs_first_and_the_low_one_last";
    in_order_of_classes(test, 2 * VISIT, |scene| {
        let pairs = [(); 5].map(|()| UnixStream::pair().expect("descriptors are left"));
        let (near, far): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let mut near = near.into_iter();
        let waiting = scene.start(FROM_ELSEWHERE, |_| {
            let mut stream = near.next().expect("one for each");
            move || stream.read_exact(&mut [0]).unwrap()
        });
        let ready = scene.crowd();
        // None of these writes waits, as there is room.
        far.iter().for_each(|mut stream| stream.write_all(b"x").unwrap());
        waiting.into_iter().chain(ready).collect()
    });
}

#[test]
fn of_goroutines_back_from_a_blocking_call_the_high_one_runs_first_and_the_low_one_last() {
    let test = "of_goroutines_back_from_a_blocking_call_the_high_one_runs_first_and_the_low_one_last";
    in_order_of_classes(test, 0, |scene| {
        let (gates, mut blocked): (Vec<_>, Vec<_>) = (0..5).map(|_| mpsc::channel::<()>()).unzip();
        let waiting = scene.start(FROM_ELSEWHERE, |_| {
            let gate = blocked.remove(0);
            move || blocking(|| gate.recv().unwrap())
        });
        let ready = scene.crowd();
        let handle = gmp::handle();
        let queued =
            || -> usize { [High, Normal, Low].map(|class| handle.class_load(class).waiting).iter().sum() };
        // The goroutines return one after the other.
        for (at, gate) in gates.iter().enumerate() {
            gate.send(()).unwrap();
            while queued() <= READY + at {
                std::hint::spin_loop();
            }
        }
        waiting.into_iter().chain(ready).collect()
    });
}
