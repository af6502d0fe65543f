//! `hello-tokio P`: starts a runtime of so many workers, has one task add, stops, and says how many nanoseconds that took.

use std::time::Instant;

fn main() {
    let workers = std::env::args().nth(1).map_or(1, |workers| workers.parse().expect("a number of workers"));
    let start = Instant::now();
    let rt = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .expect("a runtime");
    let task = rt.spawn(async { (1..=100).sum() });
    let sum: u64 = rt.block_on(task).expect("no panic");
    drop(rt);
    println!("{sum} {}", start.elapsed().as_nanos());
}
