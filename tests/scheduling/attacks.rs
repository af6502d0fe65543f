//! A storm of all verbs and classes; and, one by one, cases in which goroutines are queued where no M comes to them, while
//! others are always ready.

use common::probe::Probe;
use common::random::Random;
use common::{effort, until, watched, watched_telling};
use gmp::context::Context;
use gmp::net::unix::UnixStream;
use gmp::policy::{Policy, WorkStealing};
use gmp::sync::{Event, Mutex as GMutex, Semaphore};
use gmp::{
    Affinity, Builder, JoinHandle, Priority, Runtime, chan, fork_scope, go, go_fair, go_lifo, goexit, join,
    lock_os_thread, select, unlock_os_thread, yield_now, yield_to,
};
use std::io::{Read, Write};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const CLASSES: [Priority; 4] = [Priority::High, Priority::Normal, Priority::Low, Priority::Background];
const MICRO: Duration = Duration::from_micros(1);
/// The limit: a starved goroutine takes longer, one that is only late does not.
const LATE: Duration = Duration::from_secs(20);

fn runtime(procs: usize) -> Runtime {
    // SAFETY: no goroutine of these tests keeps a thread-bound value across a blocking call.
    unsafe { Runtime::builder().procs(procs).stack_size(64 << 10).build() }.expect("a runtime starts")
}

fn stealing(procs: usize) -> Runtime {
    // SAFETY: as in `runtime`.
    unsafe { Runtime::builder().procs(procs).stack_size(64 << 10).policy(WorkStealing::new()).build() }
        .expect("a runtime starts")
}

fn spawn<T: Send + 'static>(class: Priority, f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().priority(class).go(f).expect("there is room for a stack")
}

fn join_all(all: impl IntoIterator<Item = JoinHandle<()>>) {
    all.into_iter().for_each(|one| one.join().unwrap());
}

/// Waits until no goroutine is left, and none is counted in a class.
fn rest(rt: &Runtime) {
    let begun = Instant::now();
    let loads = || CLASSES.map(|class| rt.handle().class_load(class).waiting);
    while rt.num_goroutines() > 0 || loads() != [0; 4] {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{} {:?}\n{}",
            rt.num_goroutines(),
            loads(),
            rt.dump()
        );
        thread::sleep(Duration::from_micros(100));
    }
}

struct World {
    made: AtomicUsize,
    gone: Arc<AtomicUsize>,
    live: AtomicUsize,
    handles: Mutex<Vec<Arc<JoinHandle<()>>>>,
    places: Mutex<Vec<Affinity>>,
    lock: GMutex<u64>,
    permits: Semaphore,
    sender: chan::Sender<u64>,
    receiver: chan::Receiver<u64>,
    stop: AtomicBool,
    max_procs: usize,
    other: gmp::Handle,
}

impl World {
    fn new(max_procs: usize, other: gmp::Handle) -> Arc<Self> {
        let (sender, receiver) = chan::bounded(1);
        Arc::new(World {
            made: AtomicUsize::new(0),
            gone: Arc::default(),
            live: AtomicUsize::new(0),
            handles: Mutex::default(),
            places: Mutex::default(),
            lock: GMutex::new(0),
            permits: Semaphore::new(2),
            sender,
            receiver,
            stop: AtomicBool::new(false),
            max_procs,
            other,
        })
    }

    fn probe(&self) -> Probe {
        self.made.fetch_add(1, SeqCst);
        Probe(Arc::clone(&self.gone))
    }

    fn some_handle(&self, random: &mut Random) -> Option<Arc<JoinHandle<()>>> {
        let handles = self.handles.lock().unwrap();
        (!handles.is_empty()).then(|| Arc::clone(random.pick(&handles)))
    }

    fn some_place(&self, random: &mut Random) -> Affinity {
        let places = self.places.lock().unwrap();
        if places.is_empty() { Affinity::default() } else { *random.pick(&places) }
    }
}

fn child_of(world: &Arc<World>, random: &mut Random, depth: u32) -> Option<JoinHandle<()>> {
    let (probe, seed) = (world.probe(), random.bits());
    let inner = Arc::clone(world);
    let f = move || {
        let _probe = probe;
        inner.live.fetch_add(1, SeqCst);
        let mut random = Random::of_seed(seed);
        work(&inner, &mut random, depth);
        inner.live.fetch_sub(1, SeqCst);
    };
    let class = *random.pick(&CLASSES);
    match random.below(8) {
        0 => Some(go(f)),
        1 => Some(go_lifo(f)),
        2 => Some(go_fair(f)),
        3 => Builder::new().affinity(world.some_place(random)).go(f).ok(),
        4 => {
            let context = Context::background().with_priority(class);
            drop(context.go(f));
            None
        }
        5 => Builder::new().inherit_priority().go(f).ok(),
        _ => Builder::new().priority(class).go(f).ok(),
    }
}

fn tree(depth: u32, random: &mut Random) -> u64 {
    if depth == 0 {
        match random.below(12) {
            0 => yield_now(),
            1 => gmp::time::sleep(MICRO * 10),
            2 => gmp::blocking(thread::yield_now),
            3 => drop(gmp::set_priority(*random.pick(&CLASSES))),
            _ => {}
        }
        return 1;
    }
    let (a, b) = (random.bits(), random.bits());
    let both = join(
        move || tree(depth - 1, &mut Random::of_seed(a)),
        move || tree(depth - 1, &mut Random::of_seed(b)),
    );
    both.0 + both.1
}

fn work(world: &Arc<World>, random: &mut Random, depth: u32) {
    for _ in 0..1 + random.below(8) {
        if world.stop.load(SeqCst) {
            return;
        }
        step(world, random, depth);
    }
}

fn step(world: &Arc<World>, random: &mut Random, depth: u32) {
    match random.below(29) {
        0 | 1 => yield_now(),
        2 => gmp::time::sleep(random.micros(100)),
        3 => gmp::blocking(|| thread::sleep(MICRO)),
        4 | 5 => drop(gmp::set_priority(*random.pick(&CLASSES))),
        6..=8 if depth > 0 => {
            let kids: Vec<_> =
                (0..random.below(4)).filter_map(|_| child_of(world, random, depth - 1)).collect();
            for kid in kids {
                match random.below(4) {
                    0 => drop(kid),
                    1 => world.handles.lock().unwrap().push(Arc::new(kid)),
                    2 => drop(gmp::block_on(kid)),
                    _ => drop(kid.join()),
                }
            }
        }
        9 => assert_eq!(tree(4, random), 16),
        10 => {
            let mut sums = [0_u64; 6];
            fork_scope(|s| {
                for (n, sum) in sums.iter_mut().enumerate() {
                    s.fork(move || *sum = n as u64);
                    if n == 3 {
                        yield_now();
                    }
                }
            });
            assert_eq!(sums.iter().sum::<u64>(), 15);
        }
        11 | 12 => {
            if let Some(to) = world.some_handle(random) {
                yield_to(&to);
            }
        }
        13 => {
            if let Some(to) = world.some_handle(random) {
                let _maybe = to.set_priority(*random.pick(&CLASSES));
            }
        }
        14 => {
            let place = world.some_place(random);
            if let Some(to) = world.some_handle(random) {
                let _maybe = to.set_affinity(place);
            }
        }
        15 => {
            let mut places = world.places.lock().unwrap();
            if places.len() < 32 {
                places.push(Affinity::of_current());
            }
        }
        16 => {
            let mut held = world.lock.lock();
            *held += 1;
            if random.one_in(3) {
                yield_now();
            }
        }
        17 => drop(world.sender.send_timeout(1, random.micros(200))),
        18 => drop(world.receiver.recv_timeout(random.micros(200))),
        19 => {
            let limit = random.micros(100);
            select! {
                recv(world.receiver) -> _ => {},
                send(world.sender, 2) -> _ => {},
                default(limit) => {},
            }
        }
        20 => {
            let limit = random.micros(200);
            let (context, _cancel) = Context::background().with_timeout(limit);
            let (a, b) = (random.bits(), limit);
            let _ended = context.run(|| {
                join(
                    || Event::new().wait(),
                    || {
                        if a % 2 == 0 {
                            gmp::time::sleep(b)
                        }
                    },
                )
            });
        }
        21 => {
            lock_os_thread();
            yield_now();
            if random.one_in(2) {
                gmp::time::sleep(MICRO);
            }
            if !random.one_in(8) {
                unlock_os_thread();
            }
        }
        22 => {
            let _late_or_not = gmp::block_on(gmp::time::timeout_async(MICRO * 50, async {
                let _held = world.lock.lock_async().await;
                world.receiver.recv_async().await
            }));
        }
        23 => {
            if let (Ok((mut a, mut b)), class) = (UnixStream::pair(), *random.pick(&CLASSES)) {
                let echo = Builder::new().priority(class).go(move || {
                    let mut byte = [0];
                    b.read_exact(&mut byte).unwrap();
                    b.write_all(&byte).unwrap();
                });
                if let Ok(echo) = echo {
                    let _ended = a.write_all(b"x").and_then(|()| a.read_exact(&mut [0]));
                    drop(a);
                    drop(echo.join());
                }
            }
        }
        24 => {
            let ends = random.below(3);
            let class = *random.pick(&CLASSES);
            let kid = spawn(class, move || match ends {
                0 => resume_unwind(Box::new("on purpose")),
                1 => goexit(),
                _ => {}
            });
            drop(kid.join());
        }
        25 => {
            let done = Arc::new(Event::new());
            let rings = Arc::clone(&done);
            let _timer = gmp::time::after_func(random.micros(100), move || rings.notify_one());
            done.wait();
        }
        26 => drop(gmp::set_procs(1 + random.below(world.max_procs as u64) as usize)),
        27 => {
            let class = *random.pick(&CLASSES);
            if let Ok(there) = Builder::new().priority(class).go_in(&world.other, || {
                yield_now();
                gmp::priority()
            }) {
                yield_to(&there);
                let _maybe = there.set_affinity(Affinity::of_current());
                assert_eq!(there.join().unwrap(), class);
            }
        }
        28 => {
            gmp::time::timeout(random.micros(50), || {
                world.permits.acquire(1);
                yield_now();
                world.permits.release(1);
            })
            .unwrap_or(());
        }
        _ => {}
    }
}

fn builder_of(random: &mut Random, procs: usize) -> gmp::RuntimeBuilder {
    let mut builder = Runtime::builder().procs(procs).stack_size(64 << 10);
    if std::env::var("GMPDEBUG").is_err() {
        builder = match random.below(5) {
            0 => builder.policy(Policy::GlobalFifo),
            1 => builder.policy(Policy::Random(random.bits())),
            _ => builder,
        };
    }
    builder = match random.below(4) {
        0 => builder.low_share(4),
        1 => builder.low_share(3),
        _ => builder,
    };
    match random.below(4) {
        // With fewer threads some goroutines would wait for a thread for ever, behind `blocking` calls that wait.
        0 => builder.max_threads(12),
        1 => builder.thread_keep_alive(Duration::from_millis(1)),
        _ => builder,
    }
}

fn storm(seed: u64, procs: usize, ends_early: bool) {
    let mut random = Random::of_seed(seed);
    // SAFETY: as in `runtime`.
    let rt = unsafe { builder_of(&mut random, procs).build() }.expect("a runtime starts");
    let other = runtime(2);
    let world = World::new(8, other.handle());
    let seeds: Vec<_> = (0..8).map(|_| random.bits()).collect();
    let pause = random.below(3000);
    let (keeps, w) = (Arc::new(rt), Arc::clone(&world));
    let seen = Arc::downgrade(&keeps);
    let tell = move || {
        let tail = format!("seed {seed}, early {ends_early}, live {}\n", w.live.load(SeqCst));
        tail + &seen.upgrade().map_or_else(
            || "it was ending\n".to_owned(),
            |rt| {
                let h = rt.handle();
                let loads = CLASSES.map(|class| h.class_load(class));
                format!("loads {loads:?}\n{}", rt.dump())
            },
        )
    };
    watched_telling(procs, tell, move || {
        let rt = keeps;
        let roots: Vec<_> = seeds
            .into_iter()
            .map(|seed| {
                let world = Arc::clone(&world);
                rt.go(move || {
                    let mut random = Random::of_seed(seed);
                    for _ in 0..6 {
                        if let Some(kid) = child_of(&world, &mut random, 3) {
                            drop(kid.join());
                        }
                    }
                })
            })
            .collect();
        let over = AtomicBool::new(false);
        thread::scope(|threads| {
            // Beside the goroutines plain threads set classes, hints, and the number of Ps.
            for n in 0..2 {
                let (world, rt, over) = (&world, &rt, &over);
                threads.spawn(move || {
                    let mut random = Random::of_seed(seed ^ n);
                    while !over.load(SeqCst) {
                        if let Some(to) = world.some_handle(&mut random) {
                            let _maybe = to.set_priority(*random.pick(&CLASSES));
                            let place = world.some_place(&mut random);
                            let _maybe = to.set_affinity(place);
                        }
                        if random.one_in(16) {
                            rt.set_procs(1 + random.below(8) as usize);
                        }
                        let _loads = CLASSES.map(|class| rt.handle().class_load(class));
                        if random.one_in(64) {
                            let _dump = rt.dump();
                        }
                        thread::sleep(MICRO * 50);
                    }
                });
            }
            if ends_early {
                thread::sleep(MICRO * pause as u32);
            } else {
                for root in roots {
                    root.join().unwrap();
                }
                // Waits for the goroutines whose handles were dropped.
                rest(&rt);
            }
            over.store(true, SeqCst);
        });
        let rt = Arc::try_unwrap(rt).map_err(|_| ()).expect("nobody else keeps it");
        let report = rt.shutdown(Duration::from_secs(20));
        assert!(report.is_clean(), "seed {seed}, procs {procs}, early {ends_early}: {report:?}");
        world.handles.lock().unwrap().drain(..).for_each(|one| {
            if let Some(one) = Arc::into_inner(one) {
                drop(one.join());
            }
        });
        let begun = Instant::now();
        while world.made.load(SeqCst) != world.gone.load(SeqCst) {
            assert!(
                begun.elapsed() < Duration::from_secs(5),
                "seed {seed}, procs {procs}, early {ends_early}: {} made, {} gone",
                world.made.load(SeqCst),
                world.gone.load(SeqCst)
            );
            thread::yield_now();
        }
        drop(other);
    });
}

/// Ps retire with jobs of `go_lifo`, and goroutines on the Ps that are left are always ready. Fails when the jobs have no turn
/// until those goroutines have ended.
#[test]
fn what_is_put_aside_on_a_p_that_retires_has_its_turn() {
    const EACH: usize = 3;
    for (procs, class) in [(2, Priority::Normal), (4, Priority::Normal), (4, Priority::High)] {
        watched(procs, || {
            let rt = stealing(procs);
            let (over, ran) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
            let (here, put) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let stays_until = |reached: &AtomicUsize, count: usize| {
                while reached.load(SeqCst) < count {
                    std::hint::spin_loop();
                }
            };
            let all = (0..procs).map(|_| {
                let [ran, here, put] = [&ran, &here, &put].map(Arc::clone);
                let over = Arc::clone(&over);
                rt.go(move || {
                    // No M looks for work while each P has one of these.
                    here.fetch_add(1, SeqCst);
                    stays_until(&here, procs);
                    for _ in 0..EACH {
                        let ran = Arc::clone(&ran);
                        drop(go_lifo(move || ran.fetch_add(1, SeqCst)));
                    }
                    put.fetch_add(1, SeqCst);
                    stays_until(&put, procs);
                    gmp::set_procs(1);
                    let busy = [(); 2].map(|()| {
                        let over = Arc::clone(&over);
                        spawn(class, move || until(|| over.load(SeqCst)))
                    });
                    until(|| over.load(SeqCst));
                    join_all(busy);
                })
            });
            let all = Vec::from_iter(all);
            let begun = Instant::now();
            until(|| ran.load(SeqCst) == EACH * procs || begun.elapsed() > LATE);
            let in_time = ran.load(SeqCst);
            over.store(true, SeqCst);
            join_all(all);
            assert_eq!(in_time, EACH * procs, "procs {procs}, beside {class} ones");
        });
    }
}

/// As before, but on the one P that is left a goroutine computes, and waits for the job of the other P. Fails when the job has
/// no turn, because no M looks for it, and the monitor takes the P from no M.
#[test]
fn what_is_put_aside_on_a_p_that_retires_has_its_turn_beside_a_busy_goroutine() {
    watched(2, || {
        let rt = stealing(2);
        let (met, ran) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let both = [(); 2].map(|()| {
            let (met, ran) = (Arc::clone(&met), Arc::clone(&ran));
            rt.go(move || {
                // Each goroutine has a P.
                met.fetch_add(1, SeqCst);
                while met.load(SeqCst) < 2 {
                    std::hint::spin_loop();
                }
                if format!("{:?}", Affinity::of_current()) == "Affinity(P0)" {
                    let begun = Instant::now();
                    while !ran.load(SeqCst) && begun.elapsed() < LATE {
                        std::hint::spin_loop();
                    }
                    return begun.elapsed() < LATE;
                }
                let put_aside = go_lifo(move || ran.store(true, SeqCst));
                gmp::set_procs(1);
                put_aside.join().unwrap();
                true
            })
        });
        for in_time in both.map(|one| one.join().unwrap()) {
            assert!(in_time);
        }
    });
}

/// A goroutine blocks its thread again and again, each time for less than the monitor's pause. Fails when a Background
/// goroutine has no turn until the first one has ended, although the process sleeps meanwhile.
#[test]
fn a_background_goroutine_runs_beside_a_thread_that_blocks_again_and_again() {
    watched(1, || {
        stealing(1).run(|| {
            let background = spawn(Priority::Background, || ());
            let begun = Instant::now();
            while !background.is_finished() && begun.elapsed() < LATE {
                thread::sleep(Duration::from_millis(1));
            }
            assert!(background.is_finished());
            background.join().unwrap();
        });
    });
}

/// The P that a hint names has no thread, and no more threads are allowed; goroutines on the other P are always ready. Fails
/// when a goroutine in the mailbox has no turn until those have ended.
#[test]
fn mail_for_a_p_without_a_thread_has_its_turn() {
    // A hint for each P, from another runtime.
    let (places, met) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    stealing(2).run(|| {
        gmp::scope(|scope| {
            for _ in 0..2 {
                scope.go(|| {
                    met.fetch_add(1, SeqCst);
                    while met.load(SeqCst) < 2 {
                        std::hint::spin_loop();
                    }
                    places.lock().unwrap().push(Affinity::of_current());
                });
            }
        });
    });
    watched(2, || {
        let builder = Runtime::builder().procs(2).max_threads(1).policy(WorkStealing::new());
        // SAFETY: as in `runtime`.
        let rt = unsafe { builder.build() }.unwrap();
        rt.run(|| {
            let over = Arc::new(AtomicBool::new(false));
            let busy = [(); 2].map(|()| {
                let over = Arc::clone(&over);
                go(move || until(|| over.load(SeqCst)))
            });
            let places = places.lock().unwrap().clone();
            let mailed = Vec::from_iter(
                places.into_iter().map(|place| Builder::new().affinity(place).go(|| ()).unwrap()),
            );
            let begun = Instant::now();
            let ran = || mailed.iter().all(|one| one.is_finished());
            until(|| ran() || begun.elapsed() > LATE);
            let in_time = ran();
            over.store(true, SeqCst);
            join_all(busy.into_iter().chain(mailed));
            assert!(in_time);
        });
    });
}

/// Goroutines of all classes, started by all verbs, do everything that a goroutine may do, while their classes, hints and the
/// number of Ps change. Fails by a hang, when a closure is lost, or by a count that is not zero at rest; the output has the
/// seed.
#[test]
fn whatever_goroutines_of_classes_do_none_is_lost() {
    for (seed, procs) in (0..u64::from(effort())).flat_map(|seed| [2, 4].map(|procs| (seed, procs))) {
        storm(seed, procs, false);
    }
}

/// As the test above, but the runtime ends in the middle. Fails by a report that is not clean, too.
#[test]
fn whatever_goroutines_of_classes_do_the_end_of_the_runtime_loses_none() {
    for (seed, procs) in (0..u64::from(effort())).flat_map(|seed| [1, 2, 4, 8].map(|procs| (seed, procs))) {
        storm(seed, procs, true);
    }
}
