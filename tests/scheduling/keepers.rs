//! Goroutines that keep their P for long, or enter the runtime again and again, delay no other.

use crate::measure::{SLICE, alone, is_quiet_on, median, percentile, spin_for};
use common::cpu::thread_time;
use common::{runtime, until, watched};
use gmp::net::{TcpListener, TcpStream};
use gmp::sync::Event;
use gmp::time::sleep;
use gmp::{Runtime, go};
use std::hint::spin_loop;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// A goroutine that keeps its P, and the time for which it has computed: a clock that stands still while other processes have
/// the goroutine's core.
#[derive(Default)]
struct Keeper {
    over: AtomicBool,
    nanos: AtomicU64,
    /// How late events of each kind were.
    delays: Mutex<Vec<(&'static str, Duration)>>,
}

impl Keeper {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(SeqCst))
    }

    /// Computes on the caller's thread for this much of its CPU time.
    fn compute(&self, time: Duration) {
        let begun = thread_time();
        while self.now() < time {
            spin_for(Duration::from_micros(20));
            self.nanos.store((thread_time() - begun).as_nanos() as u64, SeqCst);
        }
        self.over.store(true, SeqCst);
    }

    /// Notes by how much more than `expected` an event took that began at `begun`, unless the goroutine has yet to compute.
    fn late(&self, of: &'static str, begun: Duration, expected: Duration) {
        let now = self.now();
        if !now.is_zero() {
            let by = (now - begun).saturating_sub(expected);
            self.delays.lock().unwrap().push((of, by));
        }
    }
}

/// Runs events of each kind beside a goroutine that keeps its P.
fn others(rt: &Runtime, keeper: &Arc<Keeper>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut far = listener.accept().unwrap().0;
    near.set_nodelay(true).and(far.set_nodelay(true)).unwrap();
    drop(rt.go(move || {
        let mut byte = [0];
        while far.read(&mut byte).unwrap() == 1 {
            far.write_all(&byte).unwrap();
        }
    }));
    let keeper = Arc::clone(keeper);
    drop(rt.go(move || {
        while !keeper.over.load(SeqCst) {
            let begun = keeper.now();
            near.write_all(&[1]).unwrap();
            near.read_exact(&mut [0]).unwrap();
            keeper.late("socket", begun, Duration::ZERO);
            let begun = keeper.now();
            sleep(MS);
            keeper.late("timer", begun, MS);
            let (begun, seen) = (keeper.now(), Arc::clone(&keeper));
            go(move || seen.late("new goroutine", begun, Duration::ZERO)).join().unwrap();
        }
    }));
}

/// Fails by a delay as long as the goroutine computes, when sockets, timers or goroutines of its P wait for it.
#[test]
fn a_goroutine_that_keeps_its_p_delays_no_other() {
    const KEEPS: Duration = Duration::from_millis(100);
    let _alone = alone();
    let mut delays = Vec::new();
    for round in 0..5 {
        watched(2, || {
            let (rt, keeper) = (runtime(2), Arc::new(Keeper::default()));
            others(&rt, &keeper);
            // The goroutine begins at another moment each time.
            thread::sleep(round * 2 * MS);
            let call = Arc::new(Event::new());
            let (called, seen) = (Arc::clone(&call), Arc::clone(&keeper));
            let readied = rt.go(move || {
                called.wait();
                seen.now()
            });
            let keeps = Arc::clone(&keeper);
            let keeps = rt.go(move || {
                // All these goroutines stand in the queue of the P that this one keeps.
                let child = |_| {
                    let seen = Arc::clone(&keeps);
                    go(move || seen.now())
                };
                let children: Vec<_> = (0..10).map(child).collect();
                call.notify_one();
                keeps.compute(KEEPS);
                children.into_iter().map(|child| child.join().unwrap()).collect::<Vec<_>>()
            });
            while !keeper.over.load(SeqCst) {
                let (begun, seen) = (keeper.now(), Arc::clone(&keeper));
                rt.go(move || seen.late("submission", begun, Duration::ZERO)).join().unwrap();
                thread::sleep(MS);
            }
            delays.extend(keeps.join().unwrap().into_iter().map(|at| ("child", at)));
            delays.push(("readied", readied.join().unwrap()));
            until(|| rt.num_goroutines() == 0);
            delays.append(&mut keeper.delays.lock().unwrap());
        });
    }
    for of in ["socket", "timer", "new goroutine", "submission", "child", "readied"] {
        let these: Vec<_> = delays.iter().filter(|(what, _)| *what == of).map(|(_, delay)| *delay).collect();
        assert!(!these.is_empty(), "{of}: no event");
        // One round in five may have met the work of another process.
        let (usual, most, worst) = (median(&these), percentile(&these, 75), percentile(&these, 100));
        println!("{of}: {} times, median {usual:?}, p75 {most:?}, worst {worst:?}", these.len());
        assert!(usual < 10 * MS && most < 25 * MS, "{of}: median {usual:?}, p75 {most:?}, worst {worst:?}");
    }
}

/// Calls `enters` on each P, again and again, until a goroutine that a thread submits meanwhile has run. Returns how long that
/// goroutine waited.
fn wait_beside(procs: usize, enters: fn()) -> Duration {
    let (rt, over) = (runtime(procs), Arc::new(AtomicBool::new(false)));
    let begun = Arc::new(AtomicUsize::new(0));
    for _ in 0..procs {
        let (ended, begins) = (Arc::clone(&over), Arc::clone(&begun));
        drop(rt.go(move || {
            begins.fetch_add(1, SeqCst);
            while !ended.load(SeqCst) {
                enters();
            }
        }));
    }
    until(|| begun.load(SeqCst) == procs);
    let start = Instant::now();
    let wait = rt.go(move || start.elapsed()).join().unwrap();
    over.store(true, SeqCst);
    until(|| rt.num_goroutines() == 0);
    wait
}

/// A goroutine that forks without end is inside the runtime at each look of the monitor, or enters it while the monitor takes
/// its P. Fails by hundreds of milliseconds when the goroutine keeps the P; one that only computes delays others by a slice.
#[test]
fn a_goroutine_that_enters_again_and_again_delays_no_other() {
    const TIMES: usize = 11;
    let _alone = alone();
    let all: [(_, fn()); 3] = [
        ("join", || {
            let _: ((), ()) = gmp::join(|| (), || ());
        }),
        ("fork_scope", || gmp::fork_scope(|s| s.fork(|| ()))),
        ("go", || {
            if gmp::num_goroutines() < 100 {
                drop(go(|| ()));
            }
        }),
    ];
    for procs in [1, 2] {
        for (of, enters) in all {
            let waits: Vec<_> = watched(procs, || {
                (0..TIMES).map(|_| [spin_loop as fn(), enters].map(|of| wait_beside(procs, of))).collect()
            });
            let waits = [0, 1].map(|which| waits.iter().map(|waits| waits[which]).collect::<Vec<_>>());
            let usual = waits.each_ref().map(|waits| median(waits));
            let most = waits.each_ref().map(|waits| percentile(waits, 75));
            println!("procs = {procs}, beside one that computes, and {of}: median {usual:?}, p75 {most:?}");
            assert!(usual[1] < 3 * usual[0] + 3 * SLICE, "{of}: median {usual:?}");
            assert!(!is_quiet_on(procs) || most[1] < 2 * most[0] + 4 * SLICE, "{of}: p75 {most:?}");
        }
    }
}
