//! Goroutines' beginnings and ends: joined, forgotten, failing, by themselves, in a scope, and more of them than a ring holds.
//! Plain threads start them through the runtime, while there is one.

use crate::ledger::{Deliberate, fail_deliberately};
use crate::worker::Worker;
use gmp::{JoinError, JoinHandle, yield_now};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// More than a ring, and the share of the global queue that fits beside it.
const CROWD: u64 = if cfg!(debug_assertions) { 700 } else { 2000 };

impl Worker {
    fn go<T: Send + 'static>(&mut self, f: impl FnOnce() -> T + Send + 'static) -> Option<JoinHandle<T>> {
        if self.is_goroutine() { Some(gmp::go(f)) } else { Some(self.world.runtime()?.go(f)) }
    }
}

/// Returns `true` if the goroutine's runtime has ended before the goroutine.
fn ended_with_its_runtime<T>(result: &Result<T, JoinError>) -> bool {
    result.as_ref().is_err_and(JoinError::is_shutdown)
}

pub fn join(w: &mut Worker) {
    let (probe, pause, yields) = (w.world.book.probe(), w.random.micros(60), w.random.one_in(2));
    let handle = w.go(move || {
        if yields {
            yield_now()
        } else {
            gmp::time::sleep(pause)
        }
        probe
    });
    let Some(handle) = handle else { return };
    if w.random.one_in(2) {
        // A joiner that was interrupted does not get the value; nor does any other.
        w.ended(|_| drop(handle.join()));
    } else {
        let result = handle.join();
        assert!(result.is_ok() || ended_with_its_runtime(&result));
    }
}

pub fn detached(w: &mut Worker) {
    for _ in 0..1 + w.random.below(20) {
        let (probe, pause) = (w.world.book.probe(), w.random.micros(100));
        drop(w.go(move || {
            gmp::time::sleep(pause);
            probe
        }));
    }
}

pub fn fails(w: &mut Worker) {
    let (probe, pause) = (w.world.book.probe(), w.random.micros(40));
    let handle = w.go(move || {
        let _probe = probe;
        gmp::time::sleep(pause);
        fail_deliberately();
    });
    let Some(handle) = handle else { return };
    let result = handle.join();
    assert!(ended_with_its_runtime(&result) || result.unwrap_err().into_panic().is::<Deliberate>());
}

pub fn goexit(w: &mut Worker) {
    let (probe, pause) = (w.world.book.probe(), w.random.micros(40));
    let handle = w.go(move || {
        struct Parks(Duration);
        impl Drop for Parks {
            fn drop(&mut self) {
                gmp::time::sleep(self.0);
            }
        }
        let (_probe, _parks) = (probe, Parks(pause));
        gmp::time::timeout(Duration::from_secs(3600), || gmp::goexit())
    });
    let Some(handle) = handle else { return };
    let result = handle.join();
    assert!(ended_with_its_runtime(&result) || result.unwrap_err().is_goexit());
}

/// The goroutines of a scope borrow, one of them may fail, and the goroutine that waits for them may be interrupted meanwhile.
pub fn scope(w: &mut Worker) {
    if !w.is_goroutine() {
        return;
    }
    let (pause, fails) = (w.random.micros(60), w.random.one_in(4));
    let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    struct Ends<'a>(&'a AtomicU64);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let probe = w.world.book.probe();
    w.ended(|_| {
        gmp::scope(|s| {
            for number in 0..3 {
                let (begun, ended, probe) = (&begun, &ended, &probe);
                begun.fetch_add(1, SeqCst);
                let ends = Ends(ended);
                let handle = s.go(move || {
                    let (_ends, _probe) = (ends, probe);
                    gmp::time::sleep(pause);
                    if fails && number == 2 {
                        fail_deliberately();
                    }
                });
                // A goroutine that fails is joined, else the scope would panic.
                if number == 2 {
                    drop(handle.join());
                }
            }
        });
    });
    assert_eq!(begun.load(SeqCst), ended.load(SeqCst), "goroutines that outlive their scope");
}

/// Starts more goroutines than a ring holds, which yield. There is one such crowd at a time.
pub fn crowd(w: &mut Worker) {
    if w.world.crowded.swap(true, SeqCst) {
        return;
    }
    let yields = w.random.below(20);
    let handles: Vec<_> = (0..CROWD)
        .map_while(|_| {
            let probe = w.world.book.probe();
            w.go(move || {
                (0..yields).for_each(|_| yield_now());
                probe
            })
        })
        .collect();
    for handle in handles {
        let result = handle.join();
        assert!(result.is_ok() || ended_with_its_runtime(&result));
    }
    w.world.crowded.store(false, SeqCst);
}

gmp::local! {
    static NUMBER: Cell<u64> = Cell::new(0);
}

/// Each goroutine has its own variable, wherever it goes on.
pub fn locals(w: &mut Worker) {
    for _ in 0..4 {
        let (number, pause) = (1 + w.random.below(1000), w.random.micros(40));
        drop(w.go(move || {
            assert_eq!(NUMBER.replace(number), 0);
            gmp::time::sleep(pause);
            assert_eq!(NUMBER.get(), number);
        }));
    }
}
