//! The cells of `benches/scale`, "Tails", on gmp: a server that is probed beside something.

use crate::serve;
use gmp::net::{TcpListener, TcpStream};
use gmp::{go, time, yield_now};
use peer_common::scale::{PROBES, STAMP, percentiles, since};
use peer_common::{Args, Found};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub fn run(args: &Args) -> Option<Found> {
    let beside = args.workload.strip_prefix("tail_")?;
    peer_common::many_descriptors();
    let (probed, busy) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    println!("{} {}", probed.local_addr().unwrap().port(), busy.local_addr().unwrap().port());
    go(move || {
        loop {
            let (stream, _) = busy.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            go(move || serve::<4096>(stream));
        }
    });
    let each = args.n(50_000) / PROBES as u64;
    let streams: Vec<_> = (0..PROBES).map(|_| probed.accept().unwrap().0).collect();
    let probes: Vec<_> = streams.into_iter().map(|stream| go(move || probe(stream, each))).collect();
    begin(beside);
    Some(percentiles(probes.into_iter().flat_map(|probe| probe.join().unwrap()).collect()))
}

fn probe(mut stream: TcpStream, n: u64) -> Vec<u64> {
    let mut stamp = [0; STAMP];
    let next = |_| {
        stream.read_exact(&mut stamp).unwrap();
        since(stamp)
    };
    (0..n).map(next).collect()
}

fn compute(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn block() {
    std::thread::sleep(Duration::from_millis(1));
}

/// Starts so many that do this for ever.
fn always(goroutines: usize, it: impl Fn() + Copy + Send + 'static) {
    for _ in 0..goroutines {
        go(move || {
            loop {
                it();
            }
        });
    }
}

fn begin(beside: &str) {
    match beside {
        // The connections are the load's.
        "alone" | "connections" => (),
        "compute" => always(100, || {
            compute(Duration::from_micros(100));
            yield_now();
        }),
        "storm" => (0..2).for_each(|_| storm()),
        "timers" => always(100, || time::sleep(Duration::from_millis(10))),
        "hog" => always(1, std::hint::spin_loop),
        "blocking" => always(1, || {
            block();
            yield_now();
        }),
        "blocking_marked" => always(1, || gmp::blocking(block)),
        _ => panic!("{beside}: no such cell"),
    }
}

fn storm() {
    let live = Arc::new(AtomicU64::new(0));
    go(move || {
        loop {
            if live.load(Relaxed) >= 1500 {
                yield_now();
                continue;
            }
            live.fetch_add(1, Relaxed);
            let ends = Arc::clone(&live);
            go(move || {
                compute(Duration::from_micros(2));
                ends.fetch_sub(1, Relaxed);
            });
        }
    });
}
