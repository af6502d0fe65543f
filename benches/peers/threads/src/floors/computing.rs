//! Rows whose goroutines compute, under a lock or between two meetings.

use super::by;
use super::clock::{self, MS};
use super::shared::{Locked, Meeting, sleep_while, wake};
use peer_common::Found;
use peer_common::shapes::{Pick, median_micros, work};
use std::collections::{HashMap, VecDeque};
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::{Duration, Instant};

pub fn lock_short(threads: u64, n: u64) {
    let count = Mutex::new(0);
    by(threads, 64, |_| {
        for i in 0..n / 64 {
            let mut count = count.lock().unwrap();
            work(50, i);
            *count += 1;
            drop(count);
            work(200, i);
        }
    });
    assert_eq!(*count.lock().unwrap(), n / 64 * 64);
}

pub fn rw_mostly(threads: u64, n: u64) {
    let count = RwLock::new(0);
    by(threads, 32, |_| {
        for i in 0..n / 32 {
            if i % 100 == 99 {
                *count.write().unwrap() += 1;
            } else {
                let count = count.read().unwrap();
                work(30, *count);
            }
        }
    });
    assert_eq!(*count.read().unwrap(), n / 32 / 100 * 32);
}

pub fn barrier(threads: u64, n: u64) {
    let (meeting, count) = (Meeting::of(threads), AtomicU64::new(0));
    let members = 8 / threads;
    by(threads, threads, |_| {
        for phase in 0..n {
            for _ in 0..members {
                work(500, phase);
                count.fetch_add(1, Relaxed);
            }
            meeting.wait();
            (0..members).for_each(|_| assert!(count.load(Relaxed) >= 8 * (phase + 1)));
        }
    });
}

/// What the threads of a burst share. `turn` counts the bursts, and the second thread sleeps until it changes.
#[derive(Default)]
struct Burst {
    turn: AtomicU32,
    next: AtomicU64,
    sum: AtomicU64,
    left: AtomicU64,
}

impl Burst {
    const OF: u64 = 500;
    /// So many at a time, that the threads seldom meet.
    const SHARE: u64 = 4;

    fn take_part(&self) {
        loop {
            let first = self.next.fetch_add(Self::SHARE, Relaxed);
            if first >= Self::OF {
                return;
            }
            for i in first..first + Self::SHARE {
                work(1000, i);
                self.sum.fetch_add(i, Relaxed);
            }
            // SeqCst: the sum is seen by the thread that waits for the last one.
            self.left.fetch_sub(Self::SHARE, SeqCst);
        }
    }

    fn help(&self) {
        let mut seen = 0;
        loop {
            while self.turn.load(SeqCst) == seen {
                sleep_while(&self.turn, seen);
            }
            seen = self.turn.load(SeqCst);
            self.take_part();
        }
    }
}

pub fn bursts(threads: u64, n: u64) -> Found {
    let burst: &Burst = Box::leak(Box::<Burst>::default());
    burst.next.store(Burst::OF, SeqCst);
    (1..threads).for_each(|_| drop(std::thread::spawn(move || burst.help())));
    let one = |_| {
        std::thread::sleep(Duration::from_millis(2));
        burst.sum.store(0, Relaxed);
        let start = Instant::now();
        burst.left.store(Burst::OF, SeqCst);
        burst.next.store(0, SeqCst);
        if threads > 1 {
            burst.turn.fetch_add(1, SeqCst);
            wake(&burst.turn, 1);
        }
        burst.take_part();
        while burst.left.load(SeqCst) > 0 {
            std::hint::spin_loop();
        }
        assert_eq!(burst.sum.load(Relaxed), peer_common::sum_below(Burst::OF));
        start.elapsed()
    };
    median_micros((0..n + n / 10).map(one).skip(n as usize / 10).collect())
}

/// One thread at any number of Ps, since what counts is CPU time.
pub fn rate_limit(n: u64) {
    peer_common::exact_timers();
    let permits = AtomicU64::new(0);
    let (mut left, mut i, mut next) = (n / 100 * 100, 0, clock::now());
    while left > 0 {
        next += MS;
        clock::sleep_until(next);
        let given = left.min(200);
        permits.fetch_add(given, SeqCst);
        for _ in 0..given {
            permits.fetch_sub(1, SeqCst);
            work(50, i);
            i += 1;
        }
        left -= given;
    }
    assert_eq!(permits.load(SeqCst), 0);
}

type Cell = Arc<OnceLock<u64>>;

/// A caller of a cache, between two look-ups.
struct Caller {
    pick: Pick,
    left: u64,
}

/// A value that comes when its millisecond is over, and the callers that wait for it: the one that loads it, and others.
struct Load {
    due: u64,
    key: u64,
    cell: Cell,
    callers: Vec<usize>,
}

/// Each caller looks up until a value is not there, and goes on when it is; the thread sleeps when all callers wait.
pub fn single_flight(n: u64) {
    peer_common::exact_timers();
    let mut cache = Locked::new(HashMap::new());
    let mut callers: Vec<_> = (0..64).map(|caller| Caller { pick: Pick::of(caller), left: n / 64 }).collect();
    let mut ready: VecDeque<usize> = (0..64).collect();
    // All take as long, so the first one is due first.
    let mut loads = VecDeque::<Load>::new();
    let mut loaded = 0;
    while !(ready.is_empty() && loads.is_empty()) {
        if let Some(number) = ready.pop_front() {
            if let Some((key, cell)) = look_up(&mut cache, &mut callers[number]) {
                match loads.iter_mut().find(|load| load.key == key) {
                    Some(load) => load.callers.push(number),
                    None => {
                        loaded += 1;
                        loads.push_back(Load { due: clock::now() + MS, key, cell, callers: vec![number] });
                    }
                }
            }
        } else {
            clock::wait_until(loads[0].due);
        }
        if let Some(load) = loads.pop_front_if(|load| load.due <= clock::now()) {
            load.cell.set(load.key + 7).expect("it is loaded once");
            ready.extend(&load.callers);
        }
    }
    assert_eq!(loaded, cache.with(|cells| cells.len() as u64));
    assert!(callers.iter().all(|caller| caller.left == 0));
}

/// Looks up until the caller has to wait for a value, which it has got when it looks up again, or is through.
fn look_up(cache: &mut Locked<HashMap<u64, Cell>>, caller: &mut Caller) -> Option<(u64, Cell)> {
    while caller.left > 0 {
        caller.left -= 1;
        let key = caller.pick.below(1000);
        // One look for what is there, which nearly all is.
        match cache.with(|cells| cells.get(&key).and_then(|cell| cell.get().copied())) {
            Some(value) => assert_eq!(value, key + 7),
            None => return Some((key, cache.with(|cells| Arc::clone(cells.entry(key).or_default())))),
        }
    }
    None
}

/// What the end of a goroutine that is unwound must cost: a throw through as many frames as gmp has between the place of the
/// throw and the one that catches, of which one drops a value. No wait, no stack of its own, and no look whether the throw may
/// pass.
pub fn unwound(threads: u64, n: u64) {
    struct Ended;
    #[inline(never)]
    fn receive() -> u64 {
        resume_unwind(Box::new(Ended));
    }
    let receiver = Arc::new(());
    by(threads, n, |_| {
        let receiver = Arc::clone(&receiver);
        let mut goroutine = Some(move || {
            let received = black_box(receive as fn() -> u64)();
            drop(receiver);
            received
        });
        let mut goroutine = || goroutine.take().map(|goroutine| goroutine());
        let goroutine: &mut dyn FnMut() -> Option<u64> = black_box(&mut goroutine);
        let ended = catch_unwind(AssertUnwindSafe(goroutine));
        assert!(ended.is_err_and(|payload| payload.is::<Ended>()));
    });
    assert_eq!(Arc::strong_count(&receiver), 1);
}
