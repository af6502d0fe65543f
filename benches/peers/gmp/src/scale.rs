//! The curves of `benches/scale` on gmp.

use gmp::chan::{Receiver, Select, Sender, bounded};
use gmp::sync::WaitGroup;
use gmp::{JoinHandle, go, time, yield_now};
use peer_common::scale::{self, Lines};
use peer_common::shapes::Pick;
use peer_common::{Args, Found, sum_below};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

pub fn run(args: &Args) -> Option<Found> {
    let (size, n) = (args.size.unwrap_or(10), args.n(100_000));
    Some(match args.workload.as_str() {
        "scale_yield" => yields(size, n),
        "scale_ping_pong" => ping_pong(size, n),
        "scale_parked_one" => parked(size, n, on_one),
        "scale_parked_own" => parked(size, n, on_their_own),
        "scale_timer_stop" => timer_stop(size, n),
        "scale_timer_fire" => timer_fire(size, n),
        "scale_select" => select(size, n),
        "scale_select_dynamic" => select_dynamic(size, n),
        "scale_channels" => channels(size, n),
        "scale_procs_yield" => yields(2 * args.procs as u64, n),
        "scale_procs_transfer" => transfer(2 * args.procs as u64, n),
        _ => return None,
    })
}

fn sum_of(handles: Vec<JoinHandle<u64>>) -> u64 {
    handles.into_iter().map(|handle| handle.join().unwrap()).sum()
}

fn yields(size: u64, n: u64) -> Found {
    let (lines, rounds) = (Lines::new(size), scale::rounds(n, size));
    let each = |_| {
        let lines = Arc::clone(&lines);
        go(move || {
            lines.arrive();
            while !lines.open() {
                yield_now();
            }
            (0..rounds).for_each(|_| yield_now());
            lines.leave();
            rounds
        })
    };
    let handles = (0..size).map(each).collect();
    assert_eq!(sum_of(handles), size * rounds);
    lines.per_op(size * rounds)
}

fn ping_pong(size: u64, n: u64) -> Found {
    let pairs = (size / 2).max(1);
    let (lines, rounds) = (Lines::new(pairs), scale::rounds(n, pairs));
    let each = |_| {
        let ((ping, pinged), (pong, ponged)) = (bounded(0), bounded(0));
        let lines = Arc::clone(&lines);
        let other = go(move || pinged.iter().for_each(|i: u64| pong.send(i + 1).unwrap()));
        let one = go(move || {
            lines.arrive();
            while !lines.open() {
                yield_now();
            }
            let mut sum = 0;
            for i in 0..rounds {
                ping.send(i).unwrap();
                sum += ponged.recv().unwrap();
            }
            lines.leave();
            sum
        });
        (one, other)
    };
    let (ones, others): (Vec<_>, Vec<_>) = (0..pairs).map(each).unzip();
    assert_eq!(sum_of(ones), pairs * (sum_below(rounds) + rounds));
    others.into_iter().for_each(|other| other.join().unwrap());
    lines.per_op(pairs * rounds)
}

/// Those that wait, and how the one with a number is sent to.
type Waiting = (Vec<JoinHandle<u64>>, Box<dyn Fn(u64)>);

fn on_one(size: u64, arrived: &Arc<AtomicU64>) -> Waiting {
    let (sender, receiver) = bounded(0);
    let each = |_| wait(receiver.clone(), arrived);
    ((0..size).map(each).collect(), Box::new(move |i| sender.send(i).unwrap()))
}

fn on_their_own(size: u64, arrived: &Arc<AtomicU64>) -> Waiting {
    let each = |_| {
        let (sender, receiver) = bounded(0);
        (wait(receiver, arrived), sender)
    };
    let (handles, senders): (_, Vec<Sender<u64>>) = (0..size).map(each).unzip();
    (handles, Box::new(move |i| senders[i as usize].send(i).unwrap()))
}

fn wait(receiver: Receiver<u64>, arrived: &Arc<AtomicU64>) -> JoinHandle<u64> {
    let arrived = Arc::clone(arrived);
    go(move || {
        arrived.fetch_add(1, Relaxed);
        receiver.recv().unwrap()
    })
}

fn parked(size: u64, n: u64, begin: fn(u64, &Arc<AtomicU64>) -> Waiting) -> Found {
    let (mut create, mut wake, rounds) = (Duration::ZERO, Duration::ZERO, scale::rounds(n, size));
    for _ in 0..rounds {
        let arrived = Arc::new(AtomicU64::new(0));
        let start = Instant::now();
        let (handles, send) = begin(size, &arrived);
        while arrived.load(SeqCst) < size {
            yield_now();
        }
        let created = Instant::now();
        (0..size).for_each(&send);
        assert_eq!(sum_of(handles), sum_below(size));
        create += created - start;
        wake += created.elapsed();
    }
    scale::created_and_woken(create, wake, size * rounds)
}

const HOUR: u64 = 3_600_000_000_000;

fn timer_stop(size: u64, n: u64) -> Found {
    let mut pick = Pick::of(size);
    let mut arm = || time::after_func(Duration::from_nanos(HOUR + pick.below(HOUR)), || ());
    let pending: Vec<_> = (0..size).map(|_| arm()).collect();
    let found = peer_common::timed(n, |n| (0..n).for_each(|_| assert!(arm().stop())));
    assert!(pending.iter().all(|timer| timer.stop()));
    found
}

fn timer_fire(size: u64, n: u64) -> Found {
    let (rounds, mut pick) = (scale::rounds(n, size), Pick::of(size));
    let fired = Arc::new(AtomicU64::new(0));
    let before = peer_common::cpu();
    for _ in 0..rounds {
        let group = WaitGroup::new();
        group.add(size as isize);
        for _ in 0..size {
            let due = Duration::from_nanos(scale::lead(size) + pick.below(scale::spread(size)));
            let (fired, group) = (Arc::clone(&fired), group.clone());
            time::after_func(due, move || {
                fired.fetch_add(1, Relaxed);
                group.done();
            });
        }
        group.wait();
    }
    assert_eq!(fired.load(SeqCst), size * rounds);
    Found::new((peer_common::cpu() - before) / (size * rounds) as f64)
}

/// Sends `n` numbers, each over one of these at random.
fn at_random(senders: Vec<Sender<u64>>, n: u64) -> JoinHandle<()> {
    go(move || {
        let mut pick = Pick::of(n);
        (0..n).for_each(|i| senders[pick.below(senders.len() as u64) as usize].send(i).unwrap());
        // All stay open: one that is closed would be ready for ever.
        std::mem::forget(senders);
    })
}

fn timed_select(size: u64, n: u64, take: impl Fn(&[Receiver<u64>], u64) -> u64) -> Found {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..size).map(|_| bounded(0)).unzip();
    let run = |n| {
        let sending = at_random(senders.clone(), n);
        assert_eq!(take(&receivers, n), sum_below(n));
        sending.join().unwrap();
    };
    run((n / 10).max(1));
    let start = Instant::now();
    run(n);
    peer_common::per_op(start.elapsed(), n * size)
}

fn select_dynamic(size: u64, n: u64) -> Found {
    timed_select(size, n, |receivers, n| {
        let mut select = Select::new();
        receivers.iter().for_each(|receiver| {
            select.recv(receiver);
        });
        let next = |_| {
            let chosen = select.select();
            let from = chosen.index();
            chosen.recv(&receivers[from]).unwrap()
        };
        (0..n).map(next).sum()
    })
}

macro_rules! arms {
    ($receivers:ident, $n:ident: $($arm:literal)*) => {
        (0..$n).map(|_| gmp::select! { $(recv($receivers[$arm]) -> i => i.unwrap(),)* }).sum()
    };
}

fn select(size: u64, n: u64) -> Found {
    timed_select(size, n, |from, n| match size {
        1 => arms!(from, n: 0),
        2 => arms!(from, n: 0 1),
        4 => arms!(from, n: 0 1 2 3),
        8 => arms!(from, n: 0 1 2 3 4 5 6 7),
        16 => arms!(from, n: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15),
        32 => {
            arms!(from, n: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
        }
        _ => panic!("{size} arms: no such select is written here"),
    })
}

fn channels(size: u64, n: u64) -> Found {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..size).map(|_| bounded(128)).unzip();
    peer_common::timed(n, |n| {
        let senders = senders.clone();
        let sending =
            go(move || (0..n).zip(senders.iter().cycle()).for_each(|(i, sender)| sender.send(i).unwrap()));
        let sum: u64 =
            (0..n).zip(receivers.iter().cycle()).map(|(_, receiver)| receiver.recv().unwrap()).sum();
        assert_eq!(sum, sum_below(n));
        sending.join().unwrap();
    })
}

fn transfer(size: u64, n: u64) -> Found {
    let round = Arc::new(AtomicU64::new(1));
    let acknowledged = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let each = |me| {
        let (round, acknowledged) = (Arc::clone(&round), Arc::clone(&acknowledged));
        go(move || {
            let (mut seen, mut led) = (0, 0);
            loop {
                let now = round.load(SeqCst);
                if now > n {
                    return led;
                }
                if now != seen {
                    seen = now;
                    if now % size == me {
                        while acknowledged.load(SeqCst) < size - 1 {
                            std::hint::spin_loop();
                        }
                        acknowledged.store(0, SeqCst);
                        round.store(now + 1, SeqCst);
                        led += 1;
                    } else {
                        acknowledged.fetch_add(1, SeqCst);
                    }
                }
                yield_now();
            }
        })
    };
    let handles = (0..size).map(each).collect();
    assert_eq!(sum_of(handles), n);
    Found::new(start.elapsed().as_nanos() as f64 / 1e3 / n as f64)
}
