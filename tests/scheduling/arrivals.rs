//! Arrivals, which are goroutines that are readied from outside of all Ps, beside goroutines that keep a ring full.

use crate::measure::{alone, percentile, spin_for};
use common::{effort, runtime, until, watched};
use gmp::net::TcpStream;
use gmp::sync::Event;
use gmp::time::{sleep, sleep_until};
use gmp::{Builder, Priority, Runtime, chan, go, go_fair, yield_now};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// `SIZE` goroutines, each of which computes for some time, and yields; while the crowd `hurries`, each only yields.
#[derive(Default)]
struct Crowd {
    over: AtomicBool,
    hurries: AtomicBool,
    turns: AtomicUsize,
}

impl Crowd {
    const SIZE: usize = 100;
    const EACH: Duration = Duration::from_micros(100);

    fn compute(rt: &Runtime) -> Arc<Self> {
        Self::of(rt, Self::EACH)
    }

    /// Starts goroutines that compute for `each` at a time.
    fn of(rt: &Runtime, each: Duration) -> Arc<Self> {
        let this = Arc::new(Crowd::default());
        for _ in 0..Self::SIZE {
            let crowd = Arc::clone(&this);
            drop(rt.go(move || {
                while !crowd.over.load(SeqCst) {
                    if !crowd.hurries.load(SeqCst) {
                        spin_for(each);
                    }
                    crowd.turns.fetch_add(1, SeqCst);
                    yield_now();
                }
            }));
        }
        until(|| this.turns() > Self::SIZE);
        this
    }

    /// Starts two goroutines that wake each other: each stands in `runnext` alone.
    fn exchange(rt: &Runtime) -> Arc<Self> {
        let this = Arc::new(Crowd::default());
        let ((ping, pinged), (pong, ponged)) = (chan::bounded::<()>(0), chan::bounded::<()>(0));
        drop(rt.go(move || pinged.iter().all(|()| pong.send(()).is_ok())));
        let crowd = Arc::clone(&this);
        drop(rt.go(move || {
            while !crowd.over.load(SeqCst) {
                ping.send(()).unwrap();
                ponged.recv().unwrap();
                crowd.turns.fetch_add(1, SeqCst);
            }
        }));
        until(|| this.turns() > Self::SIZE);
        this
    }

    fn turns(&self) -> usize {
        self.turns.load(SeqCst)
    }

    /// Makes the turns short for a while, and then long all at once.
    fn slow_down(&self) {
        self.hurries.store(true, SeqCst);
        let begin = self.turns();
        until(|| self.turns() >= begin + 50 * Self::SIZE);
        self.hurries.store(false, SeqCst);
    }
}

/// Returns how many turns of the crowd pass before a goroutine reads a message: over a socket, and from a thread. `prepare` is
/// called before each message.
fn waits(rt: &Runtime, crowd: &Arc<Crowd>, times: usize, prepare: impl Fn()) -> [Vec<usize>; 2] {
    let (heard, hears) = std::sync::mpsc::channel();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut near = listener.accept().unwrap().0;
    let (seen, hear) = (Arc::clone(crowd), heard.clone());
    let reader = rt.go(move || {
        while far.read(&mut [0]).unwrap() == 1 {
            hear.send(seen.turns()).unwrap();
        }
    });
    let (sender, receiver) = chan::bounded::<()>(1);
    let seen = Arc::clone(crowd);
    let receives = rt.go(move || {
        for () in receiver {
            heard.send(seen.turns()).unwrap();
        }
    });
    let during = |send: &mut dyn FnMut()| {
        prepare();
        let before = crowd.turns();
        send();
        hears.recv().unwrap() - before
    };
    let events = (0..times).map(|_| during(&mut || near.write_all(&[1]).unwrap())).collect();
    let messages = (0..times).map(|_| during(&mut || sender.send(()).unwrap())).collect();
    near.shutdown(std::net::Shutdown::Both).unwrap();
    drop(sender);
    reader.join().unwrap();
    receives.join().unwrap();
    [events, messages]
}

/// Fails when an arrival waits for a hundred turns of goroutines in the ring. The test counts turns, not time.
#[test]
fn an_arrival_waits_for_few_turns_beside_a_long_ring() {
    let _alone = alone();
    for procs in [1, 2] {
        watched(procs, || {
            let rt = runtime(procs);
            let crowd = Crowd::compute(&rt);
            let [events, messages] = waits(&rt, &crowd, 50, || ());
            crowd.over.store(true, SeqCst);
            for (of, waits) in [("event", events), ("message", messages)] {
                let (usual, most) = (percentile(&waits, 50), percentile(&waits, 90));
                println!("procs = {procs}, {of}: p50 {usual}, p90 {most}, worst {}", percentile(&waits, 100));
                // Several Ps may have to look before one finds the arrival, and the kernel may keep the thread that counts from
                // its core.
                assert!(usual <= Crowd::SIZE / 10, "procs = {procs}, {of}: p50 {usual}, p90 {most}");
            }
            until(|| rt.num_goroutines() == 0);
        });
    }
}

/// Returns how many turns of the crowd pass from the first turn that begins after a time until a goroutine that sleeps until
/// then runs: for each of `many` goroutines that sleep until the same time, `times` times.
fn waits_of_sleepers(rt: &Runtime, many: usize, times: usize, crowd: &Arc<Crowd>) -> Vec<usize> {
    let during = |_| {
        let due = Instant::now() + Duration::from_millis(20);
        let sleeper = |_| {
            let seen = Arc::clone(crowd);
            rt.go(move || {
                sleep_until(due);
                seen.turns()
            })
        };
        let sleepers = Vec::from_iter((0..many).map(sleeper));
        while Instant::now() < due {
            thread::sleep(Duration::from_micros(100));
        }
        let before = crowd.turns();
        sleepers.into_iter().map(|sleeper| sleeper.join().unwrap().saturating_sub(before)).collect::<Vec<_>>()
    };
    (0..times).flat_map(during).collect()
}

/// Fails when sleepers that are due together wait for a hundred turns of goroutines in the ring. The test counts turns, not
/// time.
#[test]
fn sleepers_that_are_due_together_wait_for_few_turns_beside_a_long_ring() {
    let _alone = alone();
    // With two Ps the crowd would have turns while the kernel keeps the M that has the sleepers in its P's heap from its core.
    watched(1, || {
        let rt = runtime(1);
        let crowd = Crowd::compute(&rt);
        let waits = waits_of_sleepers(&rt, 20, 20, &crowd);
        crowd.over.store(true, SeqCst);
        let (usual, most) = (percentile(&waits, 50), percentile(&waits, 90));
        println!("p50 {usual}, p90 {most}, worst {}", percentile(&waits, 100));
        assert!(usual <= Crowd::SIZE / 10, "p50 {usual}, p90 {most}");
        until(|| rt.num_goroutines() == 0);
    });
}

/// Goroutines that sleep again and again, and compute for as long as a turn of the ring in between. Fails when they leave the
/// ring much less than half of the time. The test counts turns, not time.
#[test]
fn a_flood_of_sleepers_leaves_the_ring_about_half() {
    const TURNS: usize = 2000;
    let _alone = alone();
    watched(1, || {
        let rt = runtime(1);
        let crowd = Crowd::compute(&rt);
        let flood = Arc::new(AtomicUsize::new(0));
        let begin = crowd.turns();
        for _ in 0..Crowd::SIZE {
            let (crowd, flood) = (Arc::clone(&crowd), Arc::clone(&flood));
            drop(rt.go(move || {
                while !crowd.over.load(SeqCst) {
                    sleep(Duration::from_micros(100));
                    spin_for(Crowd::EACH);
                    flood.fetch_add(1, SeqCst);
                }
            }));
        }
        until(|| crowd.turns() + flood.load(SeqCst) >= begin + TURNS);
        let (ring, flood) = (crowd.turns() - begin, flood.load(SeqCst));
        crowd.over.store(true, SeqCst);
        println!("{ring} turns of the ring, {flood} of the sleepers");
        // The sleepers themselves start by and by, from the global queue.
        assert!(ring >= TURNS / 4 && flood >= TURNS / 8, "{ring} turns of the ring, {flood} of the sleepers");
        until(|| rt.num_goroutines() == 0);
    });
}

/// Fails when an arrival waits for more goroutines than there are between two visits because the goroutines before it were much
/// shorter. Where a short turn takes longer than about half a microsecond, as in a build without optimisation, it may pass
/// anyway. The test counts turns, not time.
#[test]
fn an_arrival_waits_for_few_turns_when_turns_become_long() {
    /// The number of goroutines from one visit to the next.
    const VISIT: usize = 61;
    let _alone = alone();
    watched(1, || {
        let rt = runtime(1);
        let crowd = Crowd::compute(&rt);
        let [events, messages] = waits(&rt, &crowd, 20, || crowd.slow_down());
        crowd.over.store(true, SeqCst);
        for (of, waits) in [("event", events), ("message", messages)] {
            let most = percentile(&waits, 75);
            println!("{of}: p50 {}, p75 {most}, worst {}", percentile(&waits, 50), percentile(&waits, 100));
            // Not all waits, and a few turns more: the kernel may keep the thread that counts from its core.
            assert!(most <= VISIT + VISIT / 4, "{of}: {waits:?}");
        }
        until(|| rt.num_goroutines() == 0);
    });
}

/// An arrival and a goroutine that it readies wake each other beside a ring of long goroutines. Fails when the two wait for a
/// round of the ring, because time that the ring has used ends their slice. The test counts turns, not time.
#[test]
fn an_arrival_and_its_partner_go_on_beside_a_long_ring() {
    let _alone = alone();
    watched(1, || {
        let rt = runtime(1);
        let crowd = Crowd::of(&rt, Duration::from_millis(1));
        let ((ask, asked), (answer, answered)) = (chan::bounded::<()>(0), chan::bounded::<()>(0));
        let partner = rt.go(move || asked.iter().all(|()| answer.send(()).is_ok()));
        let (sender, receiver) = chan::bounded::<()>(1);
        let (heard, hears) = std::sync::mpsc::channel();
        let seen = Arc::clone(&crowd);
        let arrives = rt.go(move || {
            for () in receiver {
                let before = seen.turns();
                for _ in 0..2 {
                    ask.send(()).unwrap();
                    answered.recv().unwrap();
                }
                heard.send(seen.turns() - before).unwrap();
            }
        });
        let during = |_| {
            // Until the goroutine waits: otherwise it goes on with the next message within its slice.
            let begin = crowd.turns();
            until(|| crowd.turns() > begin + 2);
            sender.send(()).unwrap();
            hears.recv().unwrap()
        };
        let waits = Vec::from_iter((0..20).map(during));
        drop(sender);
        crowd.over.store(true, SeqCst);
        arrives.join().unwrap();
        partner.join().unwrap();
        println!("p50 {}, worst {}", percentile(&waits, 50), percentile(&waits, 100));
        assert!(percentile(&waits, 75) <= Crowd::SIZE / 10, "{waits:?}");
        until(|| rt.num_goroutines() == 0);
    });
}

/// The ring is empty whenever the M looks, so it has no turn that could end. Fails by a hang.
#[test]
fn two_that_wake_each_other_leave_arrivals_their_turns() {
    let _alone = alone();
    for procs in [1, 2] {
        watched(procs, || {
            let rt = runtime(procs);
            let crowd = Crowd::exchange(&rt);
            let [events, messages] = waits(&rt, &crowd, 50, || ());
            crowd.over.store(true, SeqCst);
            for (of, waits) in [("event", events), ("message", messages)] {
                println!(
                    "procs = {procs}, {of}: p50 {}, worst {}",
                    percentile(&waits, 50),
                    percentile(&waits, 100)
                );
            }
            until(|| rt.num_goroutines() == 0);
        });
    }
}

/// Works for some tens of microseconds. As a unit of work it measures time whatever else the machine does.
fn work() {
    let steps = if cfg!(debug_assertions) { 2_000 } else { 30_000 };
    for step in 0..steps {
        std::hint::black_box(step);
    }
}

/// More arrivals than can be run: a plain thread sends to each of many goroutines in turn, and each of these waits for the next
/// message after it has done its work.
struct Flood {
    over: Arc<AtomicBool>,
    feeder: JoinHandle<()>,
}

impl Flood {
    const RECEIVERS: usize = 300;

    fn of(rt: &Runtime, works: impl Fn() + Clone + Send + 'static) -> Self {
        Self::counted(rt, Arc::default(), works)
    }

    /// `waiting` counts the messages that no receiver has begun to work on. It is zero for a while if the kernel keeps the
    /// thread that sends from its core.
    fn counted(rt: &Runtime, waiting: Arc<AtomicUsize>, works: impl Fn() + Clone + Send + 'static) -> Self {
        let senders: Vec<_> = (0..Self::RECEIVERS)
            .map(|_| {
                let ((sender, receiver), works) = (chan::bounded::<()>(1), works.clone());
                let waiting = Arc::clone(&waiting);
                let receives = move |()| {
                    waiting.fetch_sub(1, SeqCst);
                    works();
                };
                drop(rt.go(move || receiver.iter().for_each(receives)));
                sender
            })
            .collect();
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let feeder = thread::spawn(move || {
            for sender in senders.iter().cycle() {
                if ends.load(SeqCst) {
                    return;
                }
                waiting.fetch_add(1, SeqCst);
                sender.send(()).unwrap();
            }
        });
        Flood { over, feeder }
    }

    fn end(self) {
        self.over.store(true, SeqCst);
        self.feeder.join().unwrap();
    }
}

/// Fails when arrivals take nearly all of a P's time, or the ring does, in each of five spans. The test counts work, not time,
/// and only work beside arrivals that wait.
#[test]
fn a_flood_of_arrivals_leaves_the_ring_about_half() {
    let _alone = alone();
    // The second length is longer than the time between two visits.
    for long in [1, 30] {
        flood_beside_a_ring(long);
    }
}

/// Each arrival does `long` units of `work`, each goroutine of the ring does one at a time.
fn flood_beside_a_ring(long: usize) {
    const ALL: usize = 10_000;
    watched(1, || {
        let rt = runtime(1);
        let done: [Arc<AtomicUsize>; 2] = Default::default();
        let (over, waiting) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let [ring, arrivals] = done.each_ref().map(|done| {
            let (done, waiting) = (Arc::clone(done), Arc::clone(&waiting));
            move || {
                work();
                done.fetch_add(usize::from(waiting.load(SeqCst) >= 10), SeqCst);
            }
        });
        for _ in 0..20 {
            let (over, works) = (Arc::clone(&over), ring.clone());
            drop(rt.go(move || {
                while !over.load(SeqCst) {
                    works();
                    yield_now();
                }
            }));
        }
        let flood = Flood::counted(&rt, waiting, move || (0..long).for_each(|_| arrivals()));
        let now = || [&done[0], &done[1]].map(|done| done.load(SeqCst));
        let total = |[ring, arrivals]: [usize; 2]| ring + arrivals;
        // Some of the flood may have come into the ring while it was empty; those run in turn with its goroutines.
        until(|| now()[0] > ALL / 10 && now()[1] > Flood::RECEIVERS);
        // A thread that is kept from its core in a turn of the arrivals makes the ring's next turn as long: on a busy machine
        // one span may go wrong.
        let held = (0..5).any(|_| {
            let begin = now();
            until(|| total(now()) >= total(begin) + ALL);
            let end = now();
            let [ring, arrivals] = [0, 1].map(|of| end[of] - begin[of]);
            println!("arrivals of {long}: the ring has done {ring}, the arrivals {arrivals}");
            10 * ring >= 4 * ALL && 10 * arrivals >= ALL
        });
        over.store(true, SeqCst);
        flood.end();
        assert!(held, "arrivals of {long}");
        until(|| rt.num_goroutines() == 0);
    });
}

/// Fails by a whole ring of turns when an arrival that spawns a goroutine puts off the goroutine that was just readied; or by
/// more and more goroutines that arrivals have spawned and that get no turn.
#[test]
fn the_next_goroutine_goes_on_beside_arrivals_that_spawn() {
    let _alone = alone();
    watched(1, || {
        let rt = runtime(1);
        let crowd = Crowd::compute(&rt);
        let flood = Flood::of(&rt, || drop(go(work)));
        let waits = {
            let (crowd, ready) = (Arc::clone(&crowd), Arc::new(Event::new()));
            rt.go(move || {
                let mut waits = Vec::new();
                for _ in 0..30 {
                    // The goroutine goes to the ring's end, and computes, as one of the crowd.
                    yield_now();
                    spin_for(Crowd::EACH);
                    let (seen, tells) = (Arc::clone(&crowd), Arc::clone(&ready));
                    let before = crowd.turns();
                    let spawned = go(move || {
                        let waited = seen.turns() - before;
                        tells.notify_one();
                        waited
                    });
                    ready.wait();
                    waits.push(spawned.join().unwrap());
                }
                waits
            })
            .join()
            .unwrap()
        };
        let left = rt.num_goroutines();
        crowd.over.store(true, SeqCst);
        flood.end();
        let usual = percentile(&waits, 50);
        println!("goroutines at the end: {left}");
        assert!(left < 5_000, "{left} goroutines");
        println!("turns of the ring before the next goroutine: p50 {usual}, p90 {}", percentile(&waits, 90));
        assert!(usual <= Crowd::SIZE / 10, "{waits:?}");
        until(|| rt.num_goroutines() == 0);
    });
}

/// One goroutine of the highest class is always ready, two that yield keep the ring full, and there are always arrivals. Fails
/// by a hang when the arrivals, or the goroutines of the ring, get none of their class's turns.
#[test]
fn arrivals_and_a_ring_have_their_turns_beside_a_higher_class() {
    const TURNS: usize = 100;
    let _alone = alone();
    watched(1, || {
        let rt = runtime(1);
        let over = Arc::new(AtomicBool::new(false));
        let [arrivals, ring]: [Arc<AtomicUsize>; 2] = Default::default();
        let count = Arc::clone(&arrivals);
        let flood = Flood::of(&rt, move || _ = count.fetch_add(1, SeqCst));
        for class in [Priority::High, Priority::Normal, Priority::Normal] {
            let (over, ring) = (Arc::clone(&over), Arc::clone(&ring));
            let yields = move || {
                while !over.load(SeqCst) {
                    work();
                    ring.fetch_add(usize::from(class == Priority::Normal), SeqCst);
                    yield_now();
                }
            };
            rt.run(|| drop(Builder::new().priority(class).go(yields).unwrap()));
        }
        let done = || [&arrivals, &ring].map(|count| count.load(SeqCst));
        let begin = done();
        until(|| std::iter::zip(begin, done()).all(|(begin, now)| now >= begin + TURNS));
        over.store(true, SeqCst);
        flood.end();
        until(|| rt.num_goroutines() == 0);
    });
}

/// Arrivals spawn more than one goroutine each, by `go` and by `go_fair`, beside a ring that computes and without one. Fails by
/// more and more goroutines that wait for a turn.
#[test]
fn what_arrivals_spawn_does_not_become_more_and_more() {
    let _alone = alone();
    let few = || (0..2).for_each(|_| drop(go(work)));
    let many = || (0..16).for_each(|_| drop(go(|| spin_for(Duration::from_micros(4)))));
    let fair = || (0..2).for_each(|_| drop(go_fair(work)));
    let spawns: [(&str, usize, fn()); 3] =
        [("two", 2, few), ("sixteen", 16, many), ("two by go_fair", 2, fair)];
    for (name, each, spawn) in spawns {
        for beside in [true, false] {
            // The arrivals spawn twice as many goroutines as may be alive, and four times as many where the number has grown
            // without the bound `MOST_ADDED`.
            let arrivals = match (each, beside) {
                (2, _) => 10_000,
                (_, true) => 12_000,
                (_, false) => 6_000,
            };
            watched(1, || {
                let rt = runtime(1);
                let crowd = if beside { Crowd::compute(&rt) } else { Arc::default() };
                let count = Arc::new(AtomicUsize::new(0));
                let counts = Arc::clone(&count);
                let flood = Flood::of(&rt, move || {
                    spawn();
                    counts.fetch_add(1, SeqCst);
                });
                let mut most = 0;
                until(|| {
                    most = most.max(rt.num_goroutines());
                    count.load(SeqCst) >= arrivals * effort() as usize
                });
                println!("{name}, beside a ring: {beside}: {most} goroutines at most");
                crowd.over.store(true, SeqCst);
                flood.end();
                let bound = Crowd::SIZE + Flood::RECEIVERS * (2 * each + 1) + 2048 * each + 4096;
                assert!(
                    most <= bound,
                    "{name}, beside a ring: {beside}: {most} goroutines, the bound is {bound}"
                );
                until(|| rt.num_goroutines() == 0);
            });
        }
    }
}
