//! Rows that had a goal before they had a program.

use gmp::chan::{Sender, bounded};
use gmp::sync::WaitGroup;
use gmp::{go, time, yield_now};
use peer_common::Found;
use peer_common::shapes::{MS, Pick, median_micros};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

pub fn select_128(n: u64) {
    let ((a, from_a), (b, from_b)) = (bounded(128), bounded(128));
    let send = |sender: Sender<u64>| move || (0..n / 2).for_each(|i| sender.send(i).unwrap());
    // Both stay open: the one that is done first must not be ready for ever.
    let senders = [go(send(a.clone())), go(send(b.clone()))];
    let mut sum = 0;
    for _ in 0..n / 2 * 2 {
        gmp::select! {
            recv(from_a) -> i => sum += i.unwrap(),
            recv(from_b) -> i => sum += i.unwrap(),
        }
    }
    assert_eq!(sum, 2 * peer_common::sum_below(n / 2));
    senders.into_iter().for_each(|handle| handle.join().unwrap());
}

pub fn random_sleeps(n: u64) -> Found {
    let run = |n| {
        let start = Instant::now();
        let sleeper = |number| {
            go(move || {
                let mut pick = Pick::of(number);
                (0..10).for_each(|_| time::sleep(Duration::from_micros(1000 + pick.below(9001))));
            })
        };
        let sleepers: Vec<_> = (0..n).map(sleeper).collect();
        sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
        start.elapsed()
    };
    run(n / 10);
    Found::new(run(n).as_secs_f64() * 1e3)
}

pub fn rings(procs: usize, rounds: u64) -> f64 {
    const MEMBERS: usize = 8;
    let count = 4 * procs;
    let (through, ends) = bounded(count);
    let start = Instant::now();
    let ring = |_| {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..MEMBERS).map(|_| bounded::<u64>(1)).unzip();
        let first = senders[0].clone();
        for (member, receiver) in receivers.into_iter().enumerate() {
            let (next, through) = (senders[(member + 1) % MEMBERS].clone(), through.clone());
            go(move || {
                for round in 0..rounds {
                    assert_eq!(receiver.recv(), Ok(round));
                    match (member + 1 == MEMBERS, round + 1 == rounds) {
                        (false, _) => next.send(round).unwrap(),
                        (true, false) => next.send(round + 1).unwrap(),
                        (true, true) => through.send(start.elapsed()).unwrap(),
                    }
                }
            });
        }
        first
    };
    let firsts: Vec<_> = (0..count).map(ring).collect();
    let start_of_all = start.elapsed();
    firsts.iter().for_each(|first| first.send(0).unwrap());
    let mut took: Vec<Duration> = ends.iter().take(count).map(|end| end - start_of_all).collect();
    took.sort();
    took[count - 1].as_secs_f64() / took[0].as_secs_f64()
}

pub fn thread_submit(n: u64) -> Found {
    let (handle, (done, ended)) = (gmp::handle(), bounded(1));
    let submits = std::thread::spawn(move || {
        let slots: Arc<[AtomicU64]> = (0..n).map(|_| AtomicU64::new(0)).collect();
        for i in 0..n as usize {
            std::thread::sleep(2 * MS);
            let (slots, start) = (Arc::clone(&slots), Instant::now());
            let submitted = handle.go(move || slots[i].store(start.elapsed().as_nanos() as u64, SeqCst));
            drop(submitted.expect("the runtime runs"));
        }
        std::thread::sleep(20 * MS);
        let took = slots.iter().map(|slot| Duration::from_nanos(slot.load(SeqCst))).collect();
        done.send(took).unwrap();
    });
    let took: Vec<Duration> = ended.recv().unwrap();
    submits.join().unwrap();
    assert!(took.iter().all(|took| !took.is_zero()), "one did not start");
    median_micros(took)
}

pub fn spawn_wait(n: u64) {
    static SUM: AtomicU64 = AtomicU64::new(0);
    SUM.store(0, Relaxed);
    let all = WaitGroup::new();
    for i in 0..n {
        all.go(move || {
            SUM.fetch_add(i, Relaxed);
        });
    }
    all.wait();
    assert_eq!(SUM.load(Relaxed), peer_common::sum_below(n));
}

pub fn parked_own(n: u64) -> Found {
    let arrived = Arc::new(AtomicU64::new(0));
    let clock = peer_common::Clock::new();
    let park = |_| {
        let (sender, receiver) = bounded::<()>(0);
        let arrived = Arc::clone(&arrived);
        let handle = go(move || {
            arrived.fetch_add(1, Relaxed);
            assert!(receiver.recv().is_err());
        });
        (sender, handle)
    };
    let parked: Vec<_> = (0..n).map(park).collect();
    while arrived.load(SeqCst) < n {
        yield_now();
    }
    let found = clock.per_op(n);
    for (sender, handle) in parked {
        drop(sender);
        handle.join().unwrap();
    }
    found
}
