//! The end of a runtime ends every kind of wait, and drops the values on the stack.

use super::{Counts, HOUR, MS, ends_clean};
use common::everywhere;
use gmp::chan::{self, Sender};
use gmp::context::Context;
use gmp::net::{TcpListener, TcpStream};
use gmp::sync::{Barrier, Condvar, Event, Mutex, Once, RwLock, Semaphore, WaitGroup};
use gmp::time::sleep;
use gmp::{JoinHandle, Runtime, select};
use std::io::{Read, Write};
use std::sync::Arc;

/// Starts goroutines that wait in one way, and returns how many there are.
type Kind = fn(&Counts, &Runtime) -> usize;

const KINDS: [(&str, Kind); 20] = [
    ("sleep", |counts, rt| one(counts.go(rt, || sleep(HOUR)))),
    ("receive", |counts, rt| {
        let (tx, rx) = chan::bounded::<u32>(1);
        // The sender lies on the stack of the waiter.
        one(counts.go(rt, move || (rx.recv(), tx)))
    }),
    ("send", |counts, rt| {
        let (tx, rx) = chan::bounded(0);
        one(counts.go(rt, move || (tx.send(vec![1]), rx)))
    }),
    ("receive within an hour", |counts, rt| {
        let (tx, rx) = chan::bounded::<u32>(1);
        one(counts.go(rt, move || (rx.recv_timeout(HOUR), tx)))
    }),
    ("never", |counts, rt| one(counts.go(rt, || chan::never::<u32>().recv()))),
    ("after", |counts, rt| one(counts.go(rt, || chan::after(HOUR).recv()))),
    ("select", |counts, rt| {
        let ((tx, rx), (full, left)) = (chan::bounded::<u32>(1), chan::bounded(0));
        one(counts.go(rt, move || {
            select! {
                recv(rx) -> _ => {}
                send(full, 1) -> _ => {}
                recv(chan::after(HOUR)) -> _ => {}
            }
            drop((tx, left));
        }))
    }),
    ("event", |counts, rt| one(counts.go(rt, || Event::new().wait()))),
    ("mutex", |counts, rt| {
        let lock = Arc::new(Mutex::new(0));
        let holds = holder(counts, rt, Arc::clone(&lock), |lock| drop((lock.lock(), sleep(HOUR))));
        holds + three(|| counts.go(rt, with(&lock, |lock| drop(lock.lock()))))
    }),
    ("rwlock", |counts, rt| {
        let lock = Arc::new(RwLock::new(0));
        let holds = holder(counts, rt, Arc::clone(&lock), |lock| drop((lock.read(), sleep(HOUR))));
        let writes = one(counts.go(rt, with(&lock, |lock| drop(lock.write()))));
        // Readers wait behind the writer.
        counts.all_begun(rt, 2);
        holds + writes + three(|| counts.go(rt, with(&lock, |lock| drop(lock.read()))))
    }),
    ("condvar", |counts, rt| {
        let pair = Arc::new((Mutex::new(()), Condvar::new()));
        three(|| counts.go(rt, with(&pair, |(lock, condvar)| condvar.wait(&mut lock.lock()))))
    }),
    ("once", |counts, rt| {
        let once = Arc::new(Once::new());
        let calls = holder(counts, rt, Arc::clone(&once), |once| once.call_once(|| sleep(HOUR)));
        calls + two(|| counts.go(rt, with(&once, |once| once.call_once_force(|_| sleep(HOUR)))))
    }),
    ("barrier", |counts, rt| {
        let barrier = Arc::new(Barrier::new(4));
        three(|| counts.go(rt, with(&barrier, |barrier| _ = barrier.wait())))
    }),
    ("wait group", |counts, rt| {
        let group = WaitGroup::new();
        group.add(1);
        let group = Arc::new(group);
        three(|| counts.go(rt, with(&group, |group| group.wait())))
    }),
    ("semaphore", |counts, rt| {
        let semaphore = Arc::new(Semaphore::new(1));
        assert!(semaphore.try_acquire(1));
        let acquires = three(|| counts.go(rt, with(&semaphore, |semaphore| semaphore.acquire(1))));
        acquires
            + one(counts.go(
                rt,
                with(&semaphore, |semaphore| {
                    let _granted = semaphore.acquire_ctx(&Context::background(), 1);
                }),
            ))
    }),
    ("join", |counts, rt| {
        let sleeps = counts.go(rt, || sleep(HOUR));
        let joins = counts.go(rt, move || sleeps.join());
        2 + one(counts.go(rt, move || joins.join()))
    }),
    ("under a context", |counts, rt| {
        one(counts.go(rt, || {
            let (ctx, _cancel) = Context::background().with_timeout(HOUR);
            ctx.run(|| ctx.with_cancel().0.run(|| sleep(HOUR)))
        }))
    }),
    ("locked to its thread", |counts, rt| {
        three(|| {
            counts.go(rt, || {
                gmp::lock_os_thread();
                sleep(HOUR);
            })
        })
    }),
    ("accept, in line", |counts, rt| {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        three(|| counts.go(rt, with(&listener, |listener| drop(listener.accept()))))
    }),
    ("read and write, in line", |counts, rt| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = Arc::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let (peer, _) = listener.accept().unwrap();
        let reads = two(|| counts.go(rt, with(&stream, |stream| drop((&*stream).read(&mut [0; 8])))));
        let writes = one(counts.go(
            rt,
            with(&stream, move |stream| {
                let _open = &peer;
                while (&*stream).write(&[0; 1 << 16]).is_ok() {}
            }),
        ));
        reads + writes
    }),
];

fn one(_goroutine: JoinHandle<()>) -> usize {
    1
}

fn two(mut go: impl FnMut() -> JoinHandle<()>) -> usize {
    one(go()) + one(go())
}

fn three(mut go: impl FnMut() -> JoinHandle<()>) -> usize {
    two(&mut go) + one(go())
}

fn with<T, F>(shared: &Arc<T>, f: F) -> impl FnOnce() + Send + use<T, F>
where
    T: Send + Sync + 'static,
    F: FnOnce(&T) + Send,
{
    let shared = Arc::clone(shared);
    move || f(&shared)
}

/// Starts a goroutine that is parked in `f` before the others come.
fn holder<T: Send + Sync + 'static>(counts: &Counts, rt: &Runtime, shared: Arc<T>, f: fn(&T)) -> usize {
    let holds = one(counts.go(rt, move || f(&shared)));
    counts.all_begun(rt, 1);
    holds
}

/// Fails by a count of drops, when a wait ends as if nothing had happened, or when a goroutine is left behind.
#[test]
fn each_kind_of_wait_is_unwound() {
    for (name, kind) in KINDS {
        everywhere(|rt| {
            let counts = Counts::default();
            let expected = kind(&counts, &rt);
            counts.all_begun(&rt, expected);
            let report = rt.shutdown(super::SHUTDOWN_LIMIT);
            assert!(report.is_clean(), "{name}: {report:?}");
            counts.all_unwound(expected);
        });
    }
}

/// Goroutines of each kind wait in one runtime, whose drop unwinds them within its limit.
#[test]
fn all_of_them_at_once_are_unwound_by_a_drop() {
    everywhere(|rt| {
        let all: Vec<_> = KINDS
            .iter()
            .map(|(_, kind)| {
                let counts = Counts::default();
                let expected = kind(&counts, &rt);
                (counts, expected)
            })
            .collect();
        for (counts, expected) in &all {
            counts.all_begun(&rt, *expected);
        }
        drop(rt);
        for (counts, expected) in all {
            counts.all_unwound(expected);
        }
    });
}

/// A goroutine in a call that blocks its thread is not unwound there, but at its next park. Fails when a goroutine is left
/// behind, or goes on.
#[test]
fn a_goroutine_is_unwound_where_it_parks_after_a_blocking_call() {
    everywhere(|rt| {
        let counts = Counts::default();
        let _blocks = counts.go(&rt, || {
            gmp::blocking(|| std::thread::sleep(20 * MS));
            sleep(HOUR);
        });
        let _unmarked = counts.go(&rt, || {
            std::thread::sleep(20 * MS);
            sleep(HOUR);
        });
        common::until(|| counts.begun.load(std::sync::atomic::Ordering::SeqCst) == 2);
        ends_clean(rt);
        counts.all_unwound(2);
    });
}

/// A thread waits for a message, or for the end of a goroutine. Fails by a hang.
#[test]
fn a_plain_thread_hears_of_what_is_unwound() {
    everywhere(|rt| {
        let counts = Counts::default();
        let (tx, rx) = chan::bounded::<u32>(0);
        let sends = counts.go(&rt, move || {
            sleep(HOUR);
            drop::<Sender<u32>>(tx);
        });
        counts.all_begun(&rt, 1);
        let receives = std::thread::spawn(move || rx.recv());
        let joins = std::thread::spawn(move || sends.join());
        ends_clean(rt);
        assert!(receives.join().unwrap().is_err());
        assert!(joins.join().unwrap().unwrap_err().is_shutdown());
        counts.all_unwound(1);
    });
}
