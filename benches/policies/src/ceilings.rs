//! What `ceilings` runs: `gmp-ceilings SCENARIO` does many operations at two Ps, and prints how often, for 1000 of them,
//! threads of the process called the futex for the runtime, but for the monitor, and goroutines were stolen.
//!
//! The counts depend on who is faster, and on what else the machine does. So none of them is exact.

use gmp::chan::{Sender, bounded};
use gmp::go;
use std::time::Duration;

fn main() {
    let scenario = std::env::args().nth(1).expect("gmp-ceilings SCENARIO");
    let (work, operations): (fn(u64), u64) = match scenario.as_str() {
        "ping_pong" => (ping_pong, 100_000),
        "pairs" => (pairs, 320_000),
        "select_128" => (select_128, 500_000),
        "spawn_storm" => (spawn_storm, 200_000),
        "sleepers" => (sleepers, 20_000),
        "submit" => (submit, 1_000),
        _ => panic!("there is no scenario {scenario:?}"),
    };
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let runtime = unsafe { gmp::Runtime::builder().procs(2).build() }.expect("a runtime");
    // The threads are there, and the stacks.
    runtime.run(move || work(operations / 10));
    let seen = || (gmp::bench::futex_calls(), gmp::bench::counters(&runtime)[1]);
    let before = seen();
    runtime.run(move || work(operations));
    let after = seen();
    let per_1000 = |count: u64| 1000.0 * count as f64 / operations as f64;
    println!("{:.3} {:.3}", per_1000(after.0 - before.0), per_1000(after.1 - before.1));
    // How a runtime ends is nothing that is counted.
    std::process::exit(0);
}

/// Round trips over two channels without a buffer.
fn ping_pong(n: u64) {
    let ((ping, pinged), (pong, ponged)) = (bounded(0), bounded(0));
    let other = go(move || pinged.iter().for_each(|i: u64| pong.send(i).unwrap()));
    for i in 0..n {
        ping.send(i).unwrap();
        assert_eq!(ponged.recv(), Ok(i));
    }
    drop(ping);
    other.join().unwrap();
}

/// The same by 32 pairs at once.
fn pairs(n: u64) {
    let pairs: Vec<_> = (0..32).map(|_| go(move || ping_pong(n / 32))).collect();
    pairs.into_iter().for_each(|pair| pair.join().unwrap());
}

/// Numbers over two channels with room for 128, each with a sender of its own.
fn select_128(n: u64) {
    let ((a, from_a), (b, from_b)) = (bounded(128), bounded(128));
    let send = |sender: Sender<u64>| move || (0..n / 2).for_each(|i| sender.send(i).unwrap());
    // Both stay open: the one that is done first must not be ready for ever.
    let senders = [go(send(a.clone())), go(send(b.clone()))];
    let mut sum = 0;
    for _ in 0..n {
        gmp::select! {
            recv(from_a) -> i => sum += i.unwrap(),
            recv(from_b) -> i => sum += i.unwrap(),
        }
    }
    assert_eq!(sum, n / 2 * (n / 2 - 1));
    senders.into_iter().for_each(|sender| sender.join().unwrap());
}

/// In bursts of 1000, each joined.
fn spawn_storm(n: u64) {
    for _ in 0..n / 1000 {
        let burst: Vec<_> = (0..1000_u64).map(|i| go(move || i)).collect();
        assert_eq!(burst.into_iter().map(|one| one.join().unwrap()).sum::<u64>(), 499_500);
    }
}

/// A thousand that sleep a few milliseconds at a time.
fn sleepers(n: u64) {
    let sleeper = |i: u64| {
        move || {
            for round in 0..n / 1000 {
                gmp::time::sleep(Duration::from_micros(1000 + (i * 37 + round * 101) % 4000));
            }
        }
    };
    let sleepers: Vec<_> = (0..1000_u64).map(|i| go(sleeper(i))).collect();
    sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
}

/// A plain thread submits one after the other and joins each, so that the runtime is idle in between, or about to be.
fn submit(n: u64) {
    let handle = gmp::handle();
    let thread = std::thread::spawn(move || {
        (0..n).for_each(|i| assert_eq!(handle.go(move || i).unwrap().join().unwrap(), i))
    });
    gmp::blocking(|| thread.join()).unwrap();
}
