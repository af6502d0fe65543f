//! `GMPDEBUG=migrate=1`: every park resumes on another thread, and programs that keep the contract do not notice.

use common::child;
use common::example::{example, output, refusal};
use common::futures::Signal;
use common::{everywhere, runtime, until, watched};
use gmp::context::Context;
use gmp::net::TcpListener;
use gmp::sync::{Barrier, Condvar, Event, Mutex, RwLock, Semaphore, WaitGroup};
use gmp::time::sleep;
use gmp::{Runtime, block_on, blocking, chan, go, lock_os_thread, select, unlock_os_thread, yield_now};
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const MIGRATE: [(&str, &str); 1] = [("GMPDEBUG", "migrate=1")];
/// With no P retaken, the goroutine that is to wait is alone on its P, and what it waits for has not happened yet.
const MIGRATE_BY_PARKS: [(&str, &str); 1] = [("GMPDEBUG", "migrate=1,handoff=0")];

#[inline(never)]
fn tid() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
}

/// Each parks once: no other goroutine runs before the park, so what it waits for happens only then.
const PARKS: [(&str, fn()); 18] = [
    ("yield", yield_now),
    ("sleep", || sleep(MS / 10)),
    ("join", || drop(go(|| ()).join())),
    ("receive", || {
        let (sender, receiver) = chan::bounded(1);
        let _sends = go(move || sender.send(1));
        assert_eq!(receiver.recv(), Ok(1));
    }),
    ("send", || {
        let (sender, receiver) = chan::bounded(0);
        let _receives = go(move || receiver.recv());
        sender.send(1).unwrap();
    }),
    ("select", || {
        let ((sender, receiver), (_open, silent)) = (chan::bounded(1), chan::bounded::<u8>(0));
        let _sends = go(move || sender.send(1));
        select! {
            recv(receiver) -> one => assert_eq!(one, Ok(1)),
            recv(silent) -> _ => unreachable!("nobody sends there"),
        }
    }),
    ("lock", || {
        let lock = Arc::new(Mutex::new(0));
        let (held, theirs) = (lock.lock(), Arc::clone(&lock));
        let waits = go(move || *theirs.lock() += 1);
        drop(held);
        drop(waits.join());
    }),
    ("condvar", || {
        let pair = Arc::new((Mutex::new(()), Condvar::new()));
        let mut held = pair.0.lock();
        let theirs = Arc::clone(&pair);
        let _notifies = go(move || theirs.1.notify_one());
        pair.1.wait(&mut held);
    }),
    ("rwlock", || {
        let lock = Arc::new(RwLock::new(0));
        let (held, theirs) = (lock.write(), Arc::clone(&lock));
        let waits = go(move || *theirs.read());
        drop(held);
        assert_eq!(waits.join().unwrap(), 0);
    }),
    ("event", || {
        let event = Arc::new(Event::new());
        let theirs = Arc::clone(&event);
        let _notifies = go(move || theirs.notify_one());
        event.wait();
    }),
    ("future", || {
        let signal = Arc::new(Signal::default());
        let theirs = Arc::clone(&signal);
        let _gives = go(move || theirs.give());
        block_on(signal.take());
    }),
    // The future is ready once the goroutine is on another thread. After two turns for others the goroutine may be back on its
    // thread, so one poll may not be enough.
    ("future that wakes itself", || {
        let (before, mut polls) = (tid(), 0);
        block_on(poll_fn(|cx| {
            polls += 1;
            if tid() != before || polls > 100 {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
    }),
    ("waitgroup", || {
        let group = WaitGroup::new();
        group.go(|| ());
        group.wait();
    }),
    ("semaphore", || {
        let semaphore = Arc::new(Semaphore::new(1));
        semaphore.acquire(1);
        let theirs = Arc::clone(&semaphore);
        let _releases = go(move || theirs.release(1));
        semaphore.acquire(1);
    }),
    ("barrier", || {
        let barrier = Arc::new(Barrier::new(2));
        let theirs = Arc::clone(&barrier);
        let _arrives = go(move || theirs.wait().is_leader());
        barrier.wait();
    }),
    ("scope", || {
        gmp::scope(|s| {
            s.go(|| ());
        })
    }),
    ("context", || {
        let (ctx, _cancel) = Context::background().with_timeout(MS / 10);
        ctx.run(|| Event::new().wait()).unwrap_err();
    }),
    ("socket", || {
        // The address is no text, which might be a name: the lookup of a name is a blocking call, after which the goroutine is
        // on another thread.
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let mut there = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut here = listener.accept().unwrap().0;
        let _writes = go(move || there.write_all(b"x"));
        here.read_exact(&mut [0]).unwrap();
    }),
];

/// Fails if a goroutine is found on the same thread after a park.
#[test]
fn every_park_resumes_on_another_thread() {
    if !child::is_child() {
        child::passes("every_park_resumes_on_another_thread", &MIGRATE_BY_PARKS);
        return;
    }
    watched(1, || {
        runtime(1).run(|| {
            for _ in 0..20 {
                for (name, park) in PARKS {
                    let before = tid();
                    park();
                    assert_ne!(tid(), before, "{name}");
                }
            }
        });
    });
    everywhere(|rt| {
        let yielders: Vec<_> = (0..10)
            .map(|_| {
                rt.go(|| {
                    for _ in 0..50 {
                        let before = tid();
                        yield_now();
                        assert_ne!(tid(), before);
                        let before = tid();
                        sleep(MS / 20);
                        assert_ne!(tid(), before);
                    }
                })
            })
            .collect();
        yielders.into_iter().for_each(|one| one.join().unwrap());
        assert!(rt.shutdown(Duration::from_secs(20)).is_clean());
    });
}

/// Fails when a locked goroutine moves, or when a goroutine does not move after the unlock.
#[test]
fn a_locked_goroutine_stays_on_its_thread() {
    if !child::is_child() {
        child::passes("a_locked_goroutine_stays_on_its_thread", &MIGRATE);
        return;
    }
    watched(1, || {
        runtime(1).run(|| {
            for (name, park) in PARKS {
                lock_os_thread();
                let before = tid();
                park();
                assert_eq!(tid(), before, "{name}");
                unlock_os_thread();
                park();
                assert_ne!(tid(), before, "{name}");
            }
        });
    });
}

/// There is no other thread. Fails by a hang when the goroutine waits for one.
#[test]
fn with_one_thread_a_goroutine_stays_there() {
    if !child::is_child() {
        child::passes("with_one_thread_a_goroutine_stays_there", &MIGRATE);
        return;
    }
    watched(1, || {
        // SAFETY: the goroutines keep nothing of a thread.
        let rt = unsafe { Runtime::builder().procs(2).max_threads(1).build() }.unwrap();
        rt.run(|| PARKS.iter().for_each(|(_, park)| park()));
    });
}

/// Goroutines that come back from blocking calls move, too, and so does a hog. Fails by a hang, or by an unclean end.
#[test]
fn blocking_calls_and_hogs_wander() {
    if !child::is_child() {
        child::passes("blocking_calls_and_hogs_wander", &MIGRATE);
        return;
    }
    everywhere(|rt| {
        let stop = Arc::new(AtomicBool::new(false));
        let hog = rt.go({
            let stop = Arc::clone(&stop);
            move || {
                while !stop.load(SeqCst) {
                    std::hint::spin_loop();
                }
            }
        });
        let all: Vec<_> = (0..20)
            .map(|n| {
                rt.go(move || {
                    for round in 0..10 {
                        match (n + round) % 3 {
                            0 => blocking(|| std::thread::sleep(MS / 4)),
                            1 => std::thread::sleep(MS / 4),
                            _ => yield_now(),
                        }
                    }
                })
            })
            .collect();
        until(|| all.iter().all(|one| one.is_finished()));
        stop.store(true, SeqCst);
        hog.join().unwrap();
        assert!(rt.shutdown(Duration::from_secs(20)).is_clean());
    });
}

/// Whole programs run and end as they do without the knob. Fails by another output, or none.
#[test]
fn the_examples_do_not_notice() {
    let programs: [(&str, &[&str]); 5] = [
        ("ring", &["--goroutines", "100", "--laps", "10", "--procs", "2"]),
        ("sieve", &["100"]),
        ("pipeline", &[]),
        ("worker_pool", &[]),
        ("philosophers", &[]),
    ];
    for (name, args) in programs {
        let run = |knobs| output(example(name).args(args).env("GMPDEBUG", knobs));
        let (plain, wandering) = (run(""), run("migrate=1"));
        assert_eq!(wandering.0, plain.0, "{name}: {}{}", wandering.1, wandering.2);
        assert_eq!(wandering.1.lines().count(), plain.1.lines().count(), "{name}: {}", wandering.1);
    }
    assert!(refusal("ring", &["--laps", "0"], 2).contains("--laps"));
}
