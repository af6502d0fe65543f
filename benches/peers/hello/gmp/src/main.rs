//! `hello-gmp P`: starts a runtime of so many Ps, has one goroutine add, stops, and says how many nanoseconds that took.

use std::time::Instant;

fn main() {
    let procs = std::env::args().nth(1).map_or(1, |procs| procs.parse().expect("a number of Ps"));
    let start = Instant::now();
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let rt = unsafe { gmp::Runtime::builder().procs(procs).build() }.expect("a runtime");
    let sum: u64 = rt.go(|| (1..=100).sum()).join().expect("no panic");
    drop(rt);
    println!("{sum} {}", start.elapsed().as_nanos());
}
