//! The members of a test: goroutines, plain threads, or both.

use common::{PROCS, runtime, watched};
use gmp::Runtime;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

/// Returns this number of rounds, or a tenth of it in a debug build.
pub fn rounds(base: usize) -> usize {
    if cfg!(debug_assertions) { base / 10 } else { base }
}

/// Starts `goroutines` goroutines of `rt`, and `threads` plain threads, which call `f` with their number, and waits for all.
pub fn cast(
    rt: &Runtime,
    goroutines: usize,
    threads: usize,
    f: impl Fn(usize) + Send + Sync + Clone + 'static,
) {
    let handles: Vec<_> = (0..goroutines)
        .map(|number| {
            let f = f.clone();
            rt.go(move || f(number))
        })
        .collect();
    let others: Vec<_> = (goroutines..goroutines + threads)
        .map(|number| {
            let f = f.clone();
            thread::spawn(move || f(number))
        })
        .collect();
    handles.into_iter().for_each(|handle| handle.join().expect("no panic in a goroutine"));
    others.into_iter().for_each(|other| other.join().expect("no panic in a thread"));
}

/// Makes each member of the cast call `counts` with its number and that of the round. Returns how often `counts` returned
/// `true`.
pub fn count(
    rt: &Runtime,
    (goroutines, threads): (usize, usize),
    rounds: usize,
    counts: impl Fn(usize, usize) -> bool + Send + Sync + 'static,
) -> usize {
    let shared = Arc::new((counts, AtomicUsize::new(0)));
    let theirs = Arc::clone(&shared);
    cast(rt, goroutines, threads, move |number| {
        let counted = (0..rounds).filter(|&round| (theirs.0)(number, round)).count();
        theirs.1.fetch_add(counted, Relaxed);
    });
    shared.1.load(Relaxed)
}

/// Checks that the property holds for goroutines alone, for threads alone, and for both, at each number of Ps.
#[track_caller]
pub fn with_every_cast(property: impl Fn(&Runtime, usize, usize)) {
    for procs in PROCS {
        for (goroutines, threads) in [(6, 0), (0, 4), (4, 2)] {
            watched(procs, || property(&runtime(procs), goroutines, threads));
        }
    }
}
