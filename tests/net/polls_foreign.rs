//! Polls by tasks of other executors, whose wakers may block, panic, or close the socket.

use super::polls::{echo, go_until_it_waits, net_pair, poll_once, read, write_all};
use common::loopback::pair;
use common::seccomp::refuse_here;
use common::talk::pattern;
use common::within::within;
use common::{child, everywhere, runtime, until, watched};
use gmp::go;
use gmp::net::{UnixStream, is_closed};
use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// An executor of one task, on a plain thread that belongs to no runtime.
struct Sleeper(Thread, AtomicBool);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.1.store(true, SeqCst);
        self.0.unpark();
    }
}

fn run_elsewhere<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let sleeper = Arc::new(Sleeper(thread::current(), AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&sleeper));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        while !sleeper.1.swap(false, SeqCst) {
            thread::park();
        }
    }
}

/// The waker of a task that a close wakes waits until the peer has seen the end, and until the closer has returned. Fails by a
/// hang.
#[test]
fn a_waker_may_wait_for_the_closer() {
    struct Talks(UnixStream, gmp::chan::Sender<usize>);
    impl Wake for Talks {
        fn wake(self: Arc<Self>) {
            let end = (&self.0).read(&mut [0]).unwrap();
            self.1.send(end).unwrap();
        }
    }
    everywhere(|rt| {
        for closes_on_thread in [false, true] {
            rt.run(move || {
                let (near, far) = UnixStream::pair().unwrap();
                let (sender, receiver) = gmp::chan::bounded(0);
                let waker = Waker::from(Arc::new(Talks(far, sender)));
                assert!(near.poll_read(&mut Context::from_waker(&waker), &mut [0]).is_pending());
                let close = move || {
                    near.close().unwrap();
                    receiver.recv().unwrap()
                };
                let end = if closes_on_thread {
                    gmp::blocking(|| thread::spawn(close).join().unwrap())
                } else {
                    close()
                };
                assert_eq!(end, 0);
            });
        }
    });
}

/// Fails by a hang when the shutdown, for want of a thread, calls the waker, in which a closer waits for the shutdown; or when
/// no thread calls the waker once threads can be had again.
#[test]
fn a_waker_that_a_shutdown_leaves_may_close_the_socket() {
    const NAME: &str = "a_waker_that_a_shutdown_leaves_may_close_the_socket";
    struct Closes(Arc<UnixStream>, Arc<Mutex<Option<thread::ThreadId>>>);
    impl Wake for Closes {
        fn wake(self: Arc<Self>) {
            self.0.close().unwrap();
            *self.1.lock().unwrap() = Some(thread::current().id());
        }
    }
    if !child::is_child() {
        // Another test's thread might make the call.
        child::passes(NAME, &[]);
        return;
    }
    everywhere(|rt| {
        rt.run(|| {
            let (near, _far) = UnixStream::pair().unwrap();
            let (near, by) = (Arc::new(near), Arc::new(Mutex::new(None)));
            let waker = Waker::from(Arc::new(Closes(Arc::clone(&near), Arc::clone(&by))));
            // The socket takes no more bytes.
            while near.poll_write(&mut Context::from_waker(&waker), &[0; 4096]).is_ready() {}
            let shuts_down = move || {
                refuse_here(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
                near.shutdown(Shutdown::Write).unwrap();
                until(|| by.lock().unwrap().is_some());
                assert_ne!(*by.lock().unwrap(), Some(thread::current().id()));
                assert!(is_closed(&near.close().unwrap_err()));
            };
            gmp::blocking(|| thread::spawn(shuts_down).join().unwrap());
        });
    });
}

/// Eight threads with executors of their own talk over sockets that a runtime's poller watches. Fails by a hang when a foreign
/// waker is lost, or when a byte is wrong.
#[test]
fn threads_of_other_executors_are_told() {
    const THREADS: usize = 8;
    everywhere(|rt| {
        let streams: Vec<_> = rt.run(|| {
            let make = |_| {
                let (near, far) = pair();
                // From here on the runtime's poller watches both ends.
                for end in [&near, &far] {
                    assert!(poll_once(|cx| end.poll_read(cx, &mut [0])).is_pending());
                }
                (near, far)
            };
            (0..THREADS / 2).map(make).collect()
        });
        let threads: Vec<_> = streams
            .into_iter()
            .enumerate()
            .flat_map(|(n, (near, far))| {
                let echoes = thread::spawn(move || run_elsewhere(echo(&far, 100)).unwrap());
                let talks = thread::spawn(move || {
                    run_elsewhere(async {
                        for round in within(Duration::from_millis(500), 1000) {
                            let sent = pattern(n + round, 1 + round % 300);
                            let mut back = vec![0; sent.len()];
                            let mut filled = 0;
                            write_all(&near, &sent).await.unwrap();
                            while filled < back.len() {
                                filled += read(&near, &mut back[filled..]).await.unwrap();
                            }
                            assert!(back == sent, "thread {n}, round {round}");
                        }
                    });
                });
                [echoes, talks]
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Fails by a hang when a foreign task is not told that its runtime has ended, or when a poll waits although no poller would
/// wake the task.
#[test]
fn a_foreign_task_is_told_that_no_runtime_watches() {
    watched(1, || {
        let (near, mut far) = net_pair();
        let Poll::Ready(Err(nobody)) = poll_once(|cx| near.poll_read(cx, &mut [0])) else {
            panic!("who would wake it?")
        };
        assert_eq!(nobody.kind(), ErrorKind::Unsupported);
        assert!(nobody.to_string().contains("gmp::block_on"), "{nobody}");

        let rt = runtime(1);
        let near = Arc::new(near);
        let theirs = Arc::clone(&near);
        rt.run(move || assert!(poll_once(|cx| theirs.poll_read(cx, &mut [0])).is_pending()));
        let (theirs, polls) = (Arc::clone(&near), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&polls);
        let waits = thread::spawn(move || {
            run_elsewhere(poll_fn(|cx| {
                counted.fetch_add(1, SeqCst);
                theirs.poll_read(cx, &mut [0])
            }))
        });
        until(|| polls.load(SeqCst) > 0);
        assert!(rt.shutdown(Duration::from_secs(5)).is_clean());
        assert_eq!(waits.join().unwrap().unwrap_err().kind(), ErrorKind::Unsupported);
        // A call that need not wait needs no poller.
        far.write_all(b"x").unwrap();
        until(|| match poll_once(|cx| near.poll_read(cx, &mut [0])) {
            Poll::Ready(Ok(1)) => true,
            Poll::Ready(Err(nobody)) => nobody.kind() != ErrorKind::Unsupported,
            other => panic!("{other:?}"),
        });
    });
}

/// A socket goes from one runtime to another, and the first runtime ends while a task of the second waits. Fails by a hang.
#[test]
fn a_socket_outlives_the_runtime_that_polled_it_first() {
    watched(1, || {
        let (near, mut far) = net_pair();
        let near = Arc::new(near);
        for _ in 0..3 {
            let (first, second) = (runtime(1), runtime(1));
            let (here, there) = (Arc::clone(&near), Arc::clone(&near));
            let first_waits = first.run(|| go_until_it_waits(async move { read(&*here, &mut [0]).await }));
            let waits = second.run(|| go_until_it_waits(async move { read(&*there, &mut [0]).await }));
            assert!(first.shutdown(Duration::from_secs(5)).is_clean());
            assert!(first_waits.join().unwrap_err().is_shutdown());
            far.write_all(b"x").unwrap();
            assert_eq!(waits.join().unwrap().unwrap(), 1);
        }
    });
}

/// A thread polls, and a goroutine closes the socket, at all distances in time. Fails by a hang when the close does not tell a
/// task that polls at the same time, or by a wrong error.
#[test]
fn a_close_beside_the_polls_of_a_thread_is_told() {
    everywhere(|rt| {
        for round in within(Duration::from_millis(300), 300) {
            let near = rt.run(|| {
                let (near, far) = UnixStream::pair().unwrap();
                assert!(poll_once(|cx| near.poll_read(cx, &mut [0])).is_pending());
                (Arc::new(near), far)
            });
            let (near, far) = near;
            let theirs = Arc::clone(&near);
            let polls = thread::spawn(move || run_elsewhere(read(&*theirs, &mut [0])));
            let closes = rt.go(move || {
                (0..round % 50).for_each(|_| gmp::yield_now());
                near.close().unwrap();
            });
            assert!(is_closed(&polls.join().unwrap().unwrap_err()), "round {round}");
            closes.join().unwrap();
            drop(far);
        }
    });
}

/// A waker of another executor may do anything that a goroutine may. Fails by a hang, or by an assertion of the library, when
/// such a waker is called inside the poller, or under a lock.
#[test]
fn a_foreign_waker_may_block() {
    struct Talks(gmp::chan::Sender<()>, Arc<UnixStream>);
    impl Wake for Talks {
        fn wake(self: Arc<Self>) {
            // Uses the socket again, and waits until a goroutine receives.
            assert!(matches!(poll_once(|cx| self.1.poll_read(cx, &mut [0])), Poll::Ready(Ok(1))));
            self.0.send(()).unwrap();
        }
    }
    everywhere(|rt| {
        rt.run(|| {
            let (mut near, far) = UnixStream::pair().unwrap();
            let far = Arc::new(far);
            let (sender, receiver) = gmp::chan::bounded(0);
            for _ in 0..50 {
                let waker = Waker::from(Arc::new(Talks(sender.clone(), Arc::clone(&far))));
                assert!(far.poll_read(&mut Context::from_waker(&waker), &mut [0]).is_pending());
                near.write_all(b"x").unwrap();
                receiver.recv().unwrap();
            }
        });
    });
}

/// One look at the poller finds two tasks. The waker of one waits until the waker of the other was called, whichever comes
/// first. Fails by a hang.
#[test]
fn a_waker_that_blocks_holds_no_other_up() {
    enum Talks {
        Waits(gmp::chan::Receiver<()>, gmp::chan::Sender<()>),
        Tells(gmp::chan::Sender<()>),
    }
    impl Wake for Talks {
        fn wake(self: Arc<Self>) {
            match &*self {
                Talks::Waits(told, done) => {
                    told.recv().unwrap();
                    done.send(()).unwrap();
                }
                Talks::Tells(tell) => tell.send(()).unwrap(),
            }
        }
    }
    everywhere(|rt| {
        for first_waits in [true, false] {
            rt.run(move || {
                let ((tell, told), (done, is_done)) = (gmp::chan::bounded(0), gmp::chan::bounded(1));
                let mut talks = [Talks::Waits(told, done), Talks::Tells(tell)];
                if !first_waits {
                    talks.reverse();
                }
                let mut pairs = talks.map(|talks| {
                    let (near, far) = UnixStream::pair().unwrap();
                    let waker = Waker::from(Arc::new(talks));
                    assert!(far.poll_read(&mut Context::from_waker(&waker), &mut [0]).is_pending());
                    (near, far)
                });
                pairs.iter_mut().for_each(|(near, _far)| near.write_all(b"x").unwrap());
                is_done.recv().unwrap();
            });
        }
    });
}

/// What the last waker of a task does when it is dropped.
type Goes = Box<dyn FnOnce() + Send>;

struct AsItGoes(Mutex<Option<Goes>>);

impl Wake for AsItGoes {
    fn wake(self: Arc<Self>) {}
}

impl Drop for AsItGoes {
    fn drop(&mut self) {
        self.0.get_mut().unwrap().take().unwrap()();
    }
}

/// Polls by a task that finds nothing to read, and is dropped: only its waker stays in the socket.
fn leave(near: &UnixStream, goes: impl FnOnce() + Send + 'static) {
    let waker = Waker::from(Arc::new(AsItGoes(Mutex::new(Some(Box::new(goes))))));
    assert!(near.poll_read(&mut Context::from_waker(&waker), &mut [0]).is_pending());
}

/// Fails by a hang when the drop of a socket drops the waker before it closes the descriptor: the waker waits for the peer to
/// see the end.
#[test]
fn a_socket_is_closed_before_its_wakers_go() {
    everywhere(|rt| {
        rt.run(|| {
            let ((near, far), (tell, told)) = (UnixStream::pair().unwrap(), gmp::chan::bounded(1));
            leave(&near, move || tell.send((&far).read(&mut [0]).unwrap()).unwrap());
            drop(near);
            assert_eq!(told.recv(), Ok(0));
        });
    });
}

/// Fails by the panic, or by a hang when the descriptor stays open.
#[test]
fn a_waker_that_panics_as_it_goes_leaves_no_descriptor_open() {
    fn panics() {
        resume_unwind(Box::new("as it goes"))
    }
    everywhere(|rt| {
        rt.run(move || {
            let (near, mut far) = UnixStream::pair().unwrap();
            leave(&near, panics);
            // Replaces the first waker.
            leave(&near, panics);
            drop(near);
            assert_eq!(far.read(&mut [0]).unwrap(), 0);
        });
    });
}

/// The context that covers the caller ends the wait in a waker's drop. Fails by a hang when that wait unwinds, and the
/// unwinding skips the close of the descriptor.
#[test]
fn a_waker_that_waits_as_it_goes_leaves_no_descriptor_open() {
    everywhere(|rt| {
        rt.run(|| {
            let (near, mut far) = UnixStream::pair().unwrap();
            let ((tell, told), (done, is_done)) = (gmp::chan::bounded(0), gmp::chan::bounded(1));
            leave(&near, move || done.send(told.recv()).unwrap());
            let (ctx, cancel) = gmp::context::Context::background().with_cancel();
            let drops = go(move || {
                ctx.run(|| {
                    cancel.cancel();
                    drop(near);
                })
            });
            assert_eq!(far.read(&mut [0]).unwrap(), 0);
            tell.send(()).unwrap();
            assert_eq!(is_done.recv(), Ok(Ok(())));
            assert_eq!(drops.join().unwrap(), Ok(()));
        });
    });
}
