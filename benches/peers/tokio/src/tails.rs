//! The cells of `benches/scale`, "Tails", on tokio: a server that is probed beside something.

use crate::{MS, serve};
use peer_common::scale::{PROBES, STAMP, percentiles, since};
use peer_common::{Args, Found};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;

pub async fn run(args: &Args) -> Option<Found> {
    let beside = args.workload.strip_prefix("tail_")?;
    peer_common::many_descriptors();
    let (probed, busy) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    println!("{} {}", probed.local_addr().unwrap().port(), busy.local_addr().unwrap().port());
    tokio::spawn(async move {
        loop {
            let (stream, _) = busy.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(serve::<_, 4096>(stream));
        }
    });
    let each = args.n(50_000) / PROBES as u64;
    let mut streams = Vec::new();
    for _ in 0..PROBES {
        streams.push(probed.accept().await.unwrap().0);
    }
    let probes: Vec<_> = streams.into_iter().map(|stream| tokio::spawn(probe(stream, each))).collect();
    begin(beside);
    let mut waits = Vec::new();
    for probe in probes {
        waits.extend(probe.await.unwrap());
    }
    Some(percentiles(waits))
}

async fn probe(mut stream: TcpStream, n: u64) -> Vec<u64> {
    let (mut stamp, mut waits) = ([0; STAMP], Vec::new());
    for _ in 0..n {
        stream.read_exact(&mut stamp).await.unwrap();
        waits.push(since(stamp));
    }
    waits
}

fn compute(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Starts so many that do this for ever.
fn always<F: Future<Output = ()> + Send>(tasks: usize, it: impl Fn() -> F + Copy + Send + 'static) {
    for _ in 0..tasks {
        tokio::spawn(async move {
            loop {
                it().await;
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
            yield_now()
        }),
        "storm" => (0..2).for_each(|_| storm()),
        "timers" => always(100, || tokio::time::sleep(10 * MS)),
        "hog" => always(1, || {
            std::hint::spin_loop();
            std::future::ready(())
        }),
        "blocking" => always(1, || {
            std::thread::sleep(MS);
            yield_now()
        }),
        "blocking_marked" => {
            always(1, || async { tokio::task::spawn_blocking(|| std::thread::sleep(MS)).await.unwrap() })
        }
        _ => panic!("{beside}: no such cell"),
    }
}

fn storm() {
    let live = Arc::new(AtomicU64::new(0));
    tokio::spawn(async move {
        loop {
            if live.load(Relaxed) >= 1500 {
                yield_now().await;
                continue;
            }
            live.fetch_add(1, Relaxed);
            let ends = Arc::clone(&live);
            tokio::spawn(async move {
                compute(Duration::from_micros(2));
                ends.fetch_sub(1, Relaxed);
            });
        }
    });
}
