//! The functions run around each switch, and around nothing else: a thread-local that they carry along is the goroutine's own.

use common::child;
use common::{PROCS, runtime, until, watched};
use gmp::context::Context;
use gmp::net::{TcpListener, TcpStream};
use gmp::sync::{Condvar, Event, Mutex, RwLock, Semaphore, WaitGroup};
use gmp::{JoinHandle, blocking, chan, go, park, scope, select, time, unparker, yield_now};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::{Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);

thread_local! {
    /// What belongs to the goroutine that runs on this thread.
    static CARRIED: Cell<u64> = const { Cell::new(0) };
}

gmp::local! {
    static PUT_BY: Cell<u64> = Cell::new(0);
    static SUSPENDED_ON: Cell<Option<ThreadId>> = Cell::new(None);
    static SUSPENDS: Cell<u64> = Cell::new(0);
    static RESUMES: Cell<u64> = Cell::new(0);
}

#[inline(never)]
fn carried() -> u64 {
    CARRIED.get()
}

#[inline(never)]
fn carry(value: u64) {
    CARRIED.set(value);
}

#[inline(never)]
fn here() -> ThreadId {
    thread::current().id()
}

fn suspend() {
    assert!(gmp::current().is_some());
    SUSPENDED_ON.set(Some(here()));
    PUT_BY.set(CARRIED.take());
    SUSPENDS.set(SUSPENDS.get() + 1);
}

fn resume() {
    assert_eq!(CARRIED.replace(PUT_BY.take()), 0, "another goroutine has left something on this thread");
    RESUMES.set(RESUMES.get() + 1);
}

/// Returns how often the calling goroutine was suspended, and resumed.
fn calls() -> (u64, u64) {
    (SUSPENDS.get(), RESUMES.get())
}

/// Calls `f`, which may park, and then checks that the thread's variable is the caller's.
#[track_caller]
fn keeps<R>(f: impl FnOnce() -> R) -> R {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mine = NEXT.fetch_add(1, SeqCst);
    let before = carried();
    carry(mine);
    let value = f();
    assert_eq!(carried(), mine);
    let (suspended, resumed) = calls();
    assert_eq!(suspended, resumed);
    carry(before);
    value
}

/// Runs `f` in processes of its own, with the functions registered. In the first one every park resumes on another thread.
#[track_caller]
fn with_hooks(test: &str, f: impl Fn(usize)) {
    if child::is_child() {
        gmp::hooks::register(suspend, resume);
        for procs in PROCS {
            watched(procs, || f(procs));
        }
    } else {
        child::passes(test, &[("GMPDEBUG", "migrate=1")]);
        child::passes(test, &[]);
    }
}

fn all(joined: impl IntoIterator<Item = JoinHandle<()>>) {
    joined.into_iter().for_each(|one| one.join().unwrap());
}

/// Fails if a way to park has no functions around it, has them on the wrong thread, or has only one of them.
#[test]
fn a_thread_local_that_is_carried_along_is_the_goroutines_own() {
    with_hooks("a_thread_local_that_is_carried_along_is_the_goroutines_own", |procs| {
        let rt = runtime(procs);
        rt.run(|| all((0..8).map(|n| go(move || (0..20).for_each(|round| every_kind(n, round))))));
        rt.run(|| all((0..4).map(|_| go(sockets))));
        assert!(rt.shutdown_timeout(MINUTE));
    });
}

fn every_kind(n: u64, round: u64) {
    keeps(yield_now);
    keeps(|| time::sleep(MS / 10));
    let (sender, receiver) = chan::bounded(0);
    let other = go(move || keeps(|| sender.send(n)));
    assert_eq!(keeps(|| receiver.recv()), Ok(n));
    keeps(|| other.join()).unwrap().unwrap();
    let (sender, receiver) = chan::bounded(1);
    let other = go(move || (0..10).for_each(|n| keeps(|| sender.send(n)).unwrap()));
    assert_eq!(keeps(|| receiver.iter().sum::<u64>()), 45);
    keeps(|| other.join()).unwrap();
    let (done, ticks) = (chan::after(2 * MS), chan::tick(MS));
    keeps(|| {
        select! {
            recv(done) -> _ => {},
            recv(ticks) -> _ => {},
        }
    });
    let (mutex, event) = (Arc::new((Mutex::new(0), Condvar::new(), RwLock::new(0))), Arc::new(Event::new()));
    let (semaphore, group) = (Arc::new(Semaphore::new(1)), WaitGroup::new());
    for _ in 0..3 {
        let (mutex, event, semaphore) = (Arc::clone(&mutex), Arc::clone(&event), Arc::clone(&semaphore));
        group.go(move || {
            keeps(|| {
                let mut held = mutex.0.lock();
                yield_now();
                *held += 1;
            });
            mutex.1.notify_all();
            keeps(|| {
                let mut held = mutex.2.write();
                yield_now();
                *held += 1;
            });
            keeps(|| {
                let _permit = semaphore.acquire_guard(1);
                yield_now();
            });
            event.notify_one();
        });
    }
    keeps(|| {
        let mut held = mutex.0.lock();
        while *held < 3 {
            mutex.1.wait(&mut held);
        }
    });
    keeps(|| event.wait());
    keeps(|| group.wait());
    assert_eq!(keeps(|| *mutex.2.read()), 3);
    keeps(|| scope(|scope| (0..2).for_each(|_| drop(scope.go(|| keeps(yield_now))))));
    let waker = unparker();
    let other = go(move || keeps(|| waker.unpark()));
    keeps(park);
    keeps(|| other.join()).unwrap();
    keeps(|| blocking(|| thread::sleep(MS / 10)));
    keeps(|| gmp::block_on(pending(40, |waker| waker.wake_by_ref())));
    keeps(|| {
        gmp::block_on(pending(4, |waker| {
            let waker = waker.clone();
            drop(go(move || waker.wake()));
        }))
    });
    if round.is_multiple_of(10) {
        // The call is unmarked, and long enough for the P to go.
        keeps(|| {
            thread::sleep(15 * MS);
            yield_now();
        });
        keeps(|| gmp::with_stack(64 << 10, || keeps(yield_now)));
        keeps(|| {
            gmp::lock_os_thread();
            yield_now();
            gmp::unlock_os_thread();
            yield_now();
        });
    }
    assert!(keeps(|| time::timeout(MS, || Event::new().wait())).is_err());
    assert!(keeps(|| Context::background().with_timeout(MS).0.run(|| chan::never::<()>().recv())).is_err());
    // Parks while the goroutine unwinds.
    struct Parks;
    impl Drop for Parks {
        fn drop(&mut self) {
            keeps(|| time::sleep(MS / 10));
            keeps(yield_now);
        }
    }
    let unwound = keeps(|| {
        catch_unwind(AssertUnwindSafe(|| {
            let _parks = Parks;
            std::panic::resume_unwind(Box::new(()));
        }))
    });
    assert!(unwound.is_err());
}

/// Is ready at the poll of this number, and makes `wake` arrange the next poll until then.
fn pending(mut polls: u32, wake: impl Fn(&Waker)) -> impl Future<Output = ()> {
    poll_fn(move |cx| {
        polls -= 1;
        if polls == 0 {
            return Poll::Ready(());
        }
        wake(cx.waker());
        Poll::Pending
    })
}

fn sockets() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = go(move || {
        let (mut stream, _) = keeps(|| listener.accept()).unwrap();
        let mut bytes = [0; 4];
        for _ in 0..50 {
            keeps(|| stream.read_exact(&mut bytes)).unwrap();
            keeps(|| stream.write_all(&bytes)).unwrap();
        }
    });
    let mut stream = keeps(|| TcpStream::connect(address)).unwrap();
    let mut bytes = [0; 4];
    for _ in 0..50 {
        keeps(|| stream.write_all(b"ping")).unwrap();
        keeps(|| stream.read_exact(&mut bytes)).unwrap();
    }
    keeps(|| stream.set_read_timeout(Some(MINUTE))).unwrap();
    keeps(|| server.join()).unwrap();
    assert!(keeps(|| stream.read(&mut bytes)).is_ok(), "the end of the stream");
}

/// Fails if a call that does not wait is a switch, if a switch has the functions twice, or if a goroutine begins or ends with
/// one.
#[test]
fn what_does_not_wait_is_no_switch_and_a_wait_is_one() {
    with_hooks("what_does_not_wait_is_no_switch_and_a_wait_is_one", |procs| {
        runtime(procs).run(|| {
            assert_eq!(calls(), (0, 0));
            let (sender, receiver) = chan::bounded(4);
            let (mutex, event) = (Mutex::new(0), Event::new());
            for _ in 0..4 {
                sender.send(1).unwrap();
                assert_eq!(receiver.recv(), Ok(1));
                *mutex.lock() += 1;
                event.notify_one();
                event.wait();
                drop(go(|| ()));
                assert!(receiver.try_recv().is_err());
            }
            assert_eq!(calls(), (0, 0));
            yield_now();
            assert_eq!(calls(), (1, 1));
            time::sleep(MS);
            assert_eq!(calls(), (2, 2));
            assert!(receiver.recv_timeout(MS).is_err());
            assert_eq!(calls(), (3, 3));
            // The call blocks its thread, and waits for a P at most.
            blocking(|| assert_eq!(calls(), (3, 3)));
            assert!(calls() == (3, 3) || calls() == (4, 4), "{:?}", calls());
        });
    });
}

/// Fails if the pair that was registered last is not the innermost, or if a pair that came during a wait resumes alone.
#[test]
fn pairs_nest_and_a_pair_that_comes_during_a_wait_is_called_from_the_next_on() {
    const TEST: &str = "pairs_nest_and_a_pair_that_comes_during_a_wait_is_called_from_the_next_on";
    if !child::is_child() {
        child::passes(TEST, &[]);
        return;
    }
    static LOG: std::sync::Mutex<Vec<&str>> = std::sync::Mutex::new(Vec::new());
    fn note(what: &'static str) -> impl Fn() + Send + Sync + 'static {
        move || {
            if gmp::current().is_some_and(|g| g.name() == Some("noted")) {
                LOG.lock().unwrap().push(what);
            }
        }
    }
    runtime(2).run(|| {
        let (event, waits) = (Arc::new(Event::new()), Arc::new(AtomicBool::new(false)));
        let noted = gmp::Builder::new().name("noted").go({
            let (event, waits) = (Arc::clone(&event), Arc::clone(&waits));
            move || {
                waits.store(true, SeqCst);
                event.wait();
                assert!(LOG.lock().unwrap().is_empty(), "resumed by what did not suspend");
                yield_now();
                waits.store(false, SeqCst);
                event.wait();
                LOG.lock().unwrap().push("goes on");
            }
        });
        let asleep = |until_is: bool| {
            until(|| waits.load(SeqCst) == until_is);
            until(|| gmp::dump().contains("'noted' [event"));
        };
        asleep(true);
        gmp::hooks::register(note("suspend 1"), note("resume 1"));
        event.notify_one();
        asleep(false);
        assert_eq!(*LOG.lock().unwrap(), ["suspend 1", "resume 1", "suspend 1"]);
        gmp::hooks::register(note("suspend 2"), note("resume 2"));
        event.notify_one();
        noted.unwrap().join().unwrap();
        assert_eq!(LOG.lock().unwrap()[3..], ["resume 1", "goes on"]);
        LOG.lock().unwrap().clear();
        gmp::Builder::new().name("noted").go(yield_now).unwrap().join().unwrap();
        assert_eq!(*LOG.lock().unwrap(), ["suspend 2", "suspend 1", "resume 1", "resume 2"]);
    });
}

/// Functions register others, from suspend and from resume. Fails if that hangs or is refused, if the new pair takes part in
/// the switch that is under way, or if it does not in the next one.
#[test]
fn a_pair_that_a_function_registers_is_called_from_the_next_switch_on() {
    const TEST: &str = "a_pair_that_a_function_registers_is_called_from_the_next_switch_on";
    if !child::is_child() {
        child::passes(TEST, &[("GMPDEBUG", "migrate=1")]);
        child::passes(TEST, &[]);
        return;
    }
    static LOG: std::sync::Mutex<Vec<&str>> = std::sync::Mutex::new(Vec::new());
    fn note(what: &'static str) -> bool {
        let noted = gmp::current().is_some_and(|g| g.name() == Some("noted"));
        if noted {
            LOG.lock().unwrap().push(what);
        }
        noted
    }
    /// Registers two others when it is called for the first time by the goroutine that is noted.
    fn noting(
        what: &'static str,
        suspend: &'static str,
        resume: &'static str,
    ) -> impl Fn() + Send + Sync + 'static {
        let registered = AtomicBool::new(false);
        move || {
            if note(what) && !registered.swap(true, SeqCst) {
                let calls = |what: &'static str| {
                    move || {
                        note(what);
                    }
                };
                gmp::hooks::register(calls(suspend), calls(resume));
            }
        }
    }
    gmp::hooks::register(
        noting("suspend 1", "suspend 2", "resume 2"),
        noting("resume 1", "suspend 3", "resume 3"),
    );
    let mut rounds = Vec::new();
    for procs in PROCS {
        let rt = runtime(procs);
        rt.run(|| {
            let noted = gmp::Builder::new().name("noted").go(|| (0..2).for_each(|_| time::sleep(MS)));
            noted.unwrap().join().unwrap();
            all((0..4).map(|_| go(|| (0..10).for_each(|_| yield_now()))));
        });
        rounds.append(&mut LOG.lock().unwrap());
    }
    let next = ["suspend 3", "suspend 2", "suspend 1", "resume 1", "resume 2", "resume 3"];
    let rest =
        rounds.strip_prefix(&["suspend 1", "resume 1"]).expect("the first switch has the first pair alone");
    assert!(rest.len() >= 5 * next.len() && rest.chunks(next.len()).all(|round| round == next), "{rounds:?}");
}

/// Fails if a goroutine that the end of its runtime unwinds is not resumed before its destructors run.
#[test]
fn a_goroutine_that_is_unwound_is_resumed_before() {
    with_hooks("a_goroutine_that_is_unwound_is_resumed_before", |procs| {
        struct Asks(u64, Arc<AtomicU64>);
        impl Drop for Asks {
            fn drop(&mut self) {
                assert_eq!(carried(), self.0);
                keeps(yield_now);
                self.1.fetch_add(1, SeqCst);
                carry(0);
            }
        }
        let rt = runtime(procs);
        let (asked, begun) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        for n in 1..=20 {
            let (asked, begun) = (Arc::clone(&asked), Arc::clone(&begun));
            drop(rt.go(move || {
                let _asks = Asks(n, asked);
                carry(n);
                begun.fetch_add(1, SeqCst);
                Event::new().wait();
            }));
        }
        until(|| begun.load(SeqCst) == 20);
        assert!(rt.shutdown_timeout(MINUTE));
        assert_eq!(asked.load(SeqCst), 20);
    });
}

/// Fails if waits of plain threads call the functions, which ask for a goroutine.
#[test]
fn plain_threads_have_none() {
    with_hooks("plain_threads_have_none", |procs| {
        let rt = runtime(procs);
        carry(7);
        let (sender, receiver) = chan::bounded(0);
        let sends = rt.go(move || (0..20).for_each(|n| keeps(|| sender.send(n)).unwrap()));
        assert_eq!(receiver.iter().sum::<u32>(), 190);
        time::sleep(MS);
        yield_now();
        sends.join().unwrap();
        assert_eq!((carried(), SUSPENDS.get()), (7, 0));
        carry(0);
    });
}

/// Wakers, limits and cancels meet goroutines that are about to switch. Fails by a lost message, a hang, or another goroutine's
/// thread-local.
#[test]
fn wakers_that_meet_a_goroutine_before_its_switch_are_not_lost() {
    with_hooks("wakers_that_meet_a_goroutine_before_its_switch_are_not_lost", |procs| {
        let rt = runtime(procs);
        let (sender, receiver) = chan::bounded(0);
        let received = Arc::new(AtomicU64::new(0));
        let receivers: Vec<_> = (0..4)
            .map(|_| {
                let (receiver, received) = (receiver.clone(), Arc::clone(&received));
                rt.go(move || {
                    loop {
                        let got = keeps(|| time::timeout(MS / 20, || receiver.recv()));
                        match got {
                            Ok(Ok(())) => received.fetch_add(1, SeqCst),
                            Ok(Err(_)) => break,
                            Err(_) => continue,
                        };
                    }
                })
            })
            .collect();
        drop(receiver);
        // Threads send, and goroutines.
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let sender = sender.clone();
                thread::spawn(move || (0..2_000).for_each(|_| sender.send(()).unwrap()))
            })
            .collect();
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let sender = sender.clone();
                rt.go(move || (0..2_000).for_each(|_| keeps(|| sender.send(())).unwrap()))
            })
            .collect();
        drop(sender);
        threads.into_iter().for_each(|one| one.join().unwrap());
        all(senders.into_iter().chain(receivers));
        assert_eq!(received.load(SeqCst), 8_000);
        assert!(rt.shutdown_timeout(MINUTE));
    });
}
