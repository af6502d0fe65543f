//! The shapes of `shapes.md` on tokio.

mod locks;
mod messages;
mod requests;
mod rows;
mod sockets;
mod times;

use peer_common::shapes::{PAGES, REPETITIONS, median};
use peer_common::{Args, Found};
use std::time::Instant;

pub async fn run(args: &Args) -> Option<Found> {
    let n = |default| args.n(default);
    Some(match args.workload.as_str() {
        "fan_out" => repeated(n(5_000), requests::fan_out).await,
        "hedged" => repeated(n(20_000), requests::hedged).await,
        "deadline" => repeated(n(32_000), requests::deadline).await,
        "request_tree" => repeated(n(2_000), requests::request_tree).await,
        "abort" => repeated(n(20_000), requests::abort).await,
        "errgroup" => repeated(n(2_000), requests::errgroup).await,
        "spawn_chain" => repeated(n(100_000), requests::spawn_chain).await,
        "crawl" => repeated_by(n(4), n(4) * PAGES, requests::crawl).await,
        "mixed" => repeated(n(40_000), requests::mixed).await,
        "actors" => repeated(n(400_000), |n| messages::graph(1000, 256, 200, n)).await,
        "random_wakes" => repeated(n(300_000), |n| messages::graph(1000, 8, 8, n)).await,
        "owner" => repeated(n(200_000), messages::owner).await,
        "pub_sub" => repeated_by(n(10_000), n(10_000) * messages::FAST, messages::pub_sub).await,
        "pipeline" => repeated(n(50_000), messages::pipeline).await,
        "large_values" => repeated(n(200_000), messages::large_values).await,
        "worker_pool" => repeated(n(200_000), messages::worker_pool).await,
        "single_flight" => repeated(n(640_000), locks::single_flight).await,
        "lock_short" => repeated(n(300_000), locks::lock_short).await,
        "lock_convoy" => repeated(n(100_000), locks::lock_convoy).await,
        "rw_mostly" => repeated(n(500_000), locks::rw_mostly).await,
        "barrier" => repeated(n(20_000), locks::barrier).await,
        "rate_limit" => repeated_cpu(n(20_000), times::rate_limit).await,
        "timers_moved" => repeated(n(400_000), times::timers_moved).await,
        "heartbeats" => repeated_cpu(n(15_000), times::heartbeats).await,
        "bursts" => times::bursts(n(50)).await,
        "blocking_handlers" => sockets::blocking_handlers(n(1_600)).await,
        "large_messages" => sockets::large_messages(n(400)).await,
        "idle_bursts" => sockets::idle_bursts(n(50)).await,
        "short_connections" => sockets::short_connections(n(1_000)).await,
        "select_128" => repeated(n(1_000_000), rows::select_128).await,
        "random_sleeps" => rows::random_sleeps(n(100_000)).await,
        "rings" => rows::rings(args.procs, n(10_000)).await,
        "spawn_wait" => crate::timed(n(1_000_000), rows::spawn_wait).await,
        "parked_own" => rows::parked_own(n(1_000_000)).await,
        _ => return None,
    })
}

pub use rows::thread_submit;

/// As those of `peer_common`, for what is waited for.
async fn measured<F: Future<Output = f64>>(n: u64, figure: impl Fn(u64) -> F) -> Found {
    figure((n / 10).max(1)).await;
    let mut figures = Vec::new();
    for _ in 0..REPETITIONS {
        figures.push(figure(n).await);
    }
    median(figures)
}

async fn repeated<F: Future<Output = ()>>(n: u64, run: impl Fn(u64) -> F) -> Found {
    repeated_by(n, n, run).await
}

async fn repeated_by<F: Future<Output = ()>>(n: u64, of: u64, run: impl Fn(u64) -> F) -> Found {
    measured(n, async |n| {
        let start = Instant::now();
        run(n).await;
        start.elapsed().as_nanos() as f64 / of as f64
    })
    .await
}

async fn repeated_cpu<F: Future<Output = ()>>(n: u64, run: impl Fn(u64) -> F) -> Found {
    measured(n, async |n| {
        let before = peer_common::cpu();
        run(n).await;
        (peer_common::cpu() - before) / n as f64
    })
    .await
}

/// Runs it in so many tasks, and waits for them.
async fn in_each<F: Future<Output = ()> + Send + 'static>(tasks: u64, each: impl Fn(u64) -> F) {
    let handles: Vec<_> = (0..tasks).map(|number| tokio::spawn(each(number))).collect();
    for handle in handles {
        handle.await.unwrap();
    }
}
