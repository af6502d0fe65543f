//! What the benches share.

use criterion::Criterion;
use gmp::Runtime;
use std::time::{Duration, Instant};

#[cfg(not(gmp_bench))]
compile_error!(
    "the cfg gmp_bench is missing: run `cargo bench` in benches/, whose .cargo/config.toml sets it, without a RUSTFLAGS in the environment."
);

/// Measurements that are short: all files together take less than two minutes. Criterion's own options say otherwise.
pub fn criterion() -> Criterion {
    Criterion::default()
        .sample_size(50)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .nresamples(10_000)
        .configure_from_args()
}

/// A runtime with so many Ps.
pub fn runtime(procs: usize) -> Runtime {
    // SAFETY: no goroutine of the benches keeps a thread-bound value across a blocking call.
    unsafe { Runtime::builder().procs(procs).build() }.expect("a runtime")
}

/// Measures `work`, which does so many operations, on the main goroutine of a runtime with so many Ps.
///
/// What `work` does before the first operation is in the time, and is lost among some thousands of them.
pub fn on_goroutine(criterion: &mut Criterion, name: &str, procs: usize, work: impl Fn(u64) + Sync) {
    let runtime = runtime(procs);
    criterion.bench_function(&format!("{name}, procs {procs}"), |bencher| {
        bencher.iter_custom(|n| {
            runtime.run(|| {
                let start = Instant::now();
                work(n);
                start.elapsed()
            })
        });
    });
}
