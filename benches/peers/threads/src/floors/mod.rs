//! The floors of the shapes: each the cheapest program without a runtime that does a row's work in the row's unit, checks the
//! same sums, and is repeated in the same way. `shapes.md` says of each what it keeps and what it leaves out.
//!
//! At one P it is one thread, at two Ps two threads with the least hand-over that does the same; where there is no such
//! program, there is none here.

mod clock;
mod computing;
mod messages;
mod shared;
mod sockets;

use peer_common::shapes::{repeated, repeated_by, repeated_cpu};
use peer_common::{Args, Found};

pub fn run(args: &Args) -> Option<Found> {
    let n = |default| args.n(default);
    let threads = args.procs as u64;
    Some(match (args.workload.as_str(), args.procs) {
        ("abort", 1..) => repeated(n(20_000), |n| computing::unwound(threads, n)),
        ("barrier", 1..=2) => repeated(n(20_000), |n| computing::barrier(threads, n)),
        ("bursts", 1..=2) => computing::bursts(threads, n(50)),
        ("lock_short", 1..) => repeated(n(300_000), |n| computing::lock_short(threads, n)),
        ("rate_limit", 1..) => repeated_cpu(n(20_000), computing::rate_limit),
        ("rw_mostly", 1..) => repeated(n(500_000), |n| computing::rw_mostly(threads, n)),
        ("single_flight", 1) => repeated(n(640_000), computing::single_flight),
        ("pipeline", 1) => repeated(n(50_000), messages::pipeline),
        ("pipeline", 2) => repeated(n(50_000), messages::pipeline_by_two),
        ("pub_sub", 1) => repeated_by(n(10_000), n(10_000) * messages::FAST, messages::pub_sub),
        ("worker_pool", 1) => repeated(n(200_000), messages::worker_pool),
        ("blocking_handlers", 1) => sockets::blocking_handlers(n(1_600)),
        ("idle_bursts", 1..=2) => sockets::idle_bursts(threads, n(50)),
        ("large_messages", 1..=2) => sockets::large_messages(threads, n(400)),
        ("short_connections", 1..=2) => sockets::short_connections(threads, n(1_000)),
        _ => return None,
    })
}

/// Runs it for so many members, by this thread and as many others as make so many; each takes its share of the members.
fn by(threads: u64, members: u64, each: impl Fn(u64) + Sync) {
    let part = |first| (first..members).step_by(threads as usize).for_each(&each);
    std::thread::scope(|scope| {
        (1..threads).for_each(|other| drop(scope.spawn(move || part(other))));
        part(0);
    });
}
