//! A goroutine that leaves its M while it unwinds comes back to that M, as std counts panics per thread.

use common::everywhere;
use gmp::context::{Context, ContextError};
use gmp::sync::{Event, Mutex};
use gmp::{JoinHandle, Runtime, blocking, chan, go, goexit, time::sleep, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// Returns `true` if the calling thread panics. Asks std anew at each call.
#[inline(never)]
fn panicking() -> bool {
    thread::panicking()
}

#[inline(never)]
fn tid() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
}

/// What a destructor does.
type Act = fn(&Shared);

#[derive(Default)]
struct Shared {
    lock: Mutex<u32>,
    dropped: AtomicUsize,
}

/// Acts in its drop, in the middle of an unwinding.
struct Acts(Arc<Shared>, Act);

impl Drop for Acts {
    fn drop(&mut self) {
        assert!(panicking(), "the drop begins");
        let own = tid();
        for _ in 0..3 {
            (self.1)(&self.0);
            // An assertion that fails here aborts the process, as it should.
            assert!(panicking(), "the goroutine goes on on another thread");
            assert_eq!(tid(), own);
        }
        self.0.dropped.fetch_add(1, SeqCst);
    }
}

const ACTS: [Act; 8] = [
    |_| sleep(MS / 4),
    |_| yield_now(),
    |shared| {
        let mut held = shared.lock.lock();
        *held += 1;
        yield_now();
    },
    // The goroutine gives its P away, and comes back without one when all are in use.
    |_| blocking(|| thread::sleep(MS / 2)),
    |_| {
        let (sender, receiver) = chan::bounded(0);
        drop(go(move || sender.send(1)));
        assert_eq!(receiver.recv(), Ok(1));
    },
    |_| go(|| assert!(!panicking())).join().unwrap(),
    // The monitor takes the goroutine's P, if others want it.
    |_| {
        thread::sleep(12 * MS);
        yield_now();
    },
    |_| {
        spin(12 * MS);
        yield_now();
    },
];

fn spin(dur: Duration) {
    let start = Instant::now();
    while start.elapsed() < dur {
        std::hint::spin_loop();
    }
}

/// How a goroutine comes to unwind.
const WAYS: [fn(Acts); 4] = [
    |_acts| resume_unwind(Box::new("unwinds")),
    |_acts| goexit(),
    |acts| {
        let (ctx, cancel) = Context::background().with_cancel();
        cancel.cancel();
        let unwound = ctx.run(|| {
            let _acts = acts;
            Event::new().wait();
        });
        assert_eq!(unwound, Err(ContextError::Canceled));
    },
    |acts| {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _acts = acts;
            resume_unwind(Box::new("caught"));
        }));
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"caught"));
    },
];

/// Parks in some ways, and asserts that no thread on which it runs panics.
fn looks_on(shared: &Shared) {
    assert!(!panicking(), "a goroutine begins on a thread that unwinds");
    for _ in 0..4 {
        yield_now();
        assert!(!panicking());
        sleep(MS / 8);
        assert!(!panicking());
        *shared.lock.lock() += 1;
        assert!(!panicking());
        blocking(|| ());
        assert!(!panicking());
    }
}

/// Starts `size` goroutines that panic or exit, and as many that only look on.
fn crowd(rt: &Runtime, shared: &Arc<Shared>, size: usize) -> [Vec<JoinHandle<()>>; 2] {
    let panics = |n: usize| {
        rt.go(move || {
            assert!(!panicking());
            yield_now();
            assert!(!panicking());
            if n.is_multiple_of(2) {
                resume_unwind(Box::new(n));
            }
            goexit();
        })
    };
    let looks = || {
        let shared = Arc::clone(shared);
        rt.go(move || looks_on(&shared))
    };
    [(0..size).map(panics).collect(), (0..size).map(|_| looks()).collect()]
}

fn unwinds_with(rt: &Runtime, act: usize, way: usize, crowded: usize) {
    let shared = Arc::new(Shared::default());
    let unwinding: Vec<_> = (0..4)
        .map(|_| {
            let acts = Acts(Arc::clone(&shared), ACTS[act]);
            rt.go(move || {
                assert!(!panicking());
                WAYS[way](acts);
                // The goroutine is free again: it may move to any thread, and unwinds on none.
                assert!(!panicking());
                yield_now();
                assert!(!panicking());
            })
        })
        .collect();
    let [panic, look] = crowd(rt, &shared, crowded);
    for goroutine in unwinding {
        let end = goroutine.join();
        match way {
            0 => assert_eq!(end.unwrap_err().into_panic().downcast_ref(), Some(&"unwinds")),
            1 => assert!(end.unwrap_err().is_goexit()),
            _ => end.unwrap(),
        }
    }
    assert!(panic.into_iter().all(|goroutine| goroutine.join().is_err()));
    look.into_iter().for_each(|goroutine| goroutine.join().unwrap());
    assert_eq!(shared.dropped.load(SeqCst), 4);
    assert!(!panicking());
}

/// Fails by an abort of the process, or an assertion, when a thread's count of panics is another goroutine's: the destructor
/// continues on a thread that does not unwind, or another goroutine runs on the thread that does.
#[test]
fn destructors_park_while_their_goroutine_unwinds() {
    everywhere(|rt| {
        // The last two acts take long, and longer on a busy machine; `destructors_lose_their_p` has them.
        for act in 0..6 {
            for way in 0..WAYS.len() {
                unwinds_with(&rt, act, way, 25);
            }
        }
        assert!(rt.shutdown(Duration::from_secs(20)).is_clean());
    });
}

/// The same, beside a hundred others that panic at the same time.
#[test]
fn destructors_park_in_a_crowd() {
    everywhere(|rt| unwinds_with(&rt, 0, 0, 100));
}

/// The same, but the P is taken away: the goroutine comes back without one, and its M waits for the goroutine.
#[test]
fn destructors_lose_their_p() {
    everywhere(|rt| {
        for act in 6..ACTS.len() {
            for way in 0..WAYS.len() {
                unwinds_with(&rt, act, way, 10);
            }
        }
    });
}

/// An unwinding inside a destructor of another unwinding, each of which parks. Fails by an abort.
#[test]
fn an_unwinding_within_an_unwinding_parks_too() {
    struct Nested(Arc<Shared>);
    impl Drop for Nested {
        fn drop(&mut self) {
            let own = tid();
            let inner = catch_unwind(AssertUnwindSafe(|| {
                let _acts = Acts(Arc::clone(&self.0), |_| sleep(MS / 4));
                resume_unwind(Box::new("inner"));
            }));
            assert_eq!(inner.unwrap_err().downcast_ref(), Some(&"inner"));
            assert!(panicking());
            yield_now();
            assert!(panicking());
            assert_eq!(tid(), own);
        }
    }
    everywhere(|rt| {
        let shared = Arc::new(Shared::default());
        let nested: Vec<_> = (0..20)
            .map(|_| {
                let shared = Arc::clone(&shared);
                rt.go(move || {
                    let _nested = Nested(shared);
                    resume_unwind(Box::new("outer"));
                })
            })
            .collect();
        let [panic, look] = crowd(&rt, &shared, 20);
        assert!(nested.into_iter().chain(panic).all(|goroutine| goroutine.join().is_err()));
        look.into_iter().for_each(|goroutine| goroutine.join().unwrap());
        assert_eq!(shared.dropped.load(SeqCst), 20);
    });
}

/// The runtime ends while a destructor is parked in an unwinding. Fails by a hang.
#[test]
fn a_runtime_ends_in_the_middle_of_an_unwinding() {
    everywhere(|rt| {
        let shared = Arc::new(Shared::default());
        let parked: Vec<_> = (0..3)
            .map(|_| {
                let acts = Acts(Arc::clone(&shared), |shared| {
                    shared.dropped.fetch_add(1, SeqCst);
                    Event::new().wait();
                });
                rt.go(move || {
                    let _acts = acts;
                    goexit()
                })
            })
            .collect();
        common::until(|| shared.dropped.load(SeqCst) == 3);
        // The end waits for them, as long as there is time.
        let report = rt.shutdown(200 * MS);
        assert_eq!(report.goroutines_left(), 3);
        assert!(
            parked.into_iter().all(|goroutine: JoinHandle<()>| goroutine.join().unwrap_err().is_shutdown())
        );
    });
}
