//! The shapes of `shapes.md` on may.

mod locks;
mod messages;
mod requests;
mod rows;
mod sockets;
mod times;

use peer_common::shapes::{PAGES, measured, repeated, repeated_by, repeated_cpu};
use peer_common::{Args, Found};

pub fn run(args: &Args) -> Option<Found> {
    let n = |default| args.n(default);
    Some(match args.workload.as_str() {
        "fan_out" => repeated(n(5_000), requests::fan_out),
        "hedged" => repeated(n(20_000), requests::hedged),
        "deadline" => repeated(n(32_000), requests::deadline),
        "request_tree" => repeated(n(2_000), requests::request_tree),
        "abort" => repeated(n(20_000), requests::abort),
        "errgroup" => repeated(n(2_000), requests::errgroup),
        "spawn_chain" => repeated(n(100_000), requests::spawn_chain),
        "crawl" => repeated_by(n(4), n(4) * PAGES, requests::crawl),
        "mixed" => repeated(n(40_000), requests::mixed),
        "actors" => repeated(n(400_000), |n| messages::graph(1000, 200, n)),
        "random_wakes" => repeated(n(300_000), |n| messages::graph(1000, 8, n)),
        "owner" => repeated(n(200_000), messages::owner),
        "pub_sub" => repeated_by(n(10_000), n(10_000) * messages::FAST, messages::pub_sub),
        "pipeline" => repeated(n(50_000), messages::pipeline),
        "large_values" => repeated(n(200_000), messages::large_values),
        "worker_pool" => repeated(n(200_000), messages::worker_pool),
        "single_flight" => repeated(n(640_000), locks::single_flight),
        "lock_short" => repeated(n(300_000), locks::lock_short),
        "lock_convoy" => repeated(n(100_000), locks::lock_convoy),
        "rw_mostly" => repeated(n(500_000), locks::rw_mostly),
        "barrier" => repeated(n(20_000), locks::barrier),
        "rate_limit" => repeated_cpu(n(20_000), times::rate_limit),
        "heartbeats" => repeated_cpu(n(15_000), times::heartbeats),
        "bursts" => times::bursts(n(50)),
        "blocking_handlers" => sockets::blocking_handlers(n(1_600)),
        "large_messages" => sockets::large_messages(n(400)),
        "idle_bursts" => sockets::idle_bursts(n(50)),
        "short_connections" => sockets::short_connections(n(1_000)),
        "select_128" => repeated(n(5_000), rows::select_128),
        "rings" => measured(n(10_000), |rounds| rows::rings(args.procs, rounds)),
        "thread_submit" => rows::thread_submit(n(150)),
        "spawn_wait" => peer_common::timed(n(100_000), rows::spawn_wait),
        _ => return None,
    })
}
