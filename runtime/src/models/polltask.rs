//! Tasks that poll a socket: no event, close or end of the runtime is missed, beside whatever else uses the socket.
//!
//! *The mutants* take out the order in which a task keeps its waker and says that it waits, the look after that, the turns by
//! which a mark is taken once, and the wakes of poller, closer and ender.

use super::caught;
use super::cover::{Handle, PollDesc, Socket};
use crate::model::{Model, Mutant, Parts, at_rest, done};
use crate::net::desc::Turn;
use crate::{JoinHandle, Runtime, block_on, net};
use gmp_netpoll::Readiness;
use loom::cell::UnsafeCell;
use loom::sync::Notify;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// The bytes that the kernel holds for readers, and whether the stream has ended. The kernel orders nothing: the protocol has
/// to do that.
#[derive(Default)]
struct Kernel {
    bytes: AtomicUsize,
    ended: AtomicBool,
}

impl Kernel {
    fn read(&self, len: usize) -> io::Result<usize> {
        let bytes = self.bytes.load(Relaxed);
        match bytes.min(len) {
            0 if self.ended.load(Relaxed) => Ok(0),
            0 => Err(io::ErrorKind::WouldBlock.into()),
            got => {
                self.bytes.fetch_sub(got, Relaxed);
                Ok(got)
            }
        }
    }
}

/// Returns a socket, and its kernel.
fn silent() -> (Arc<Socket>, Arc<Kernel>) {
    (Arc::new(Socket::new()), Arc::new(Kernel::default()))
}

/// Starts a goroutine that uses the socket.
fn go_with(
    runtime: &Runtime,
    (socket, kernel): &(Arc<Socket>, Arc<Kernel>),
    body: impl FnOnce(&Socket, &Kernel) + Send + 'static,
) -> JoinHandle<()> {
    let (socket, kernel) = (Arc::clone(socket), Arc::clone(kernel));
    runtime.go(move || body(&socket, &kernel))
}

/// Makes this many bytes come, and tells the poller.
fn comes(runtime: &Runtime, kernel: &Kernel, bytes: usize) {
    kernel.bytes.fetch_add(bytes, Relaxed);
    Handle::of(runtime).deliver(Readiness::READABLE);
}

/// Reads at most `len` bytes, as a goroutine that polls.
fn polled_read(socket: &Socket, kernel: &Kernel, len: usize) -> io::Result<usize> {
    block_on(poll_fn(|cx| socket.poll_read(cx, len, || kernel.read(len))))
}

/// A waker of another executor, whose thread sleeps in `until_woken`.
struct Foreign(Notify);

impl Foreign {
    fn new() -> Arc<Self> {
        Arc::new(Foreign(Notify::new()))
    }

    fn until_woken(&self) {
        self.0.wait();
    }

    /// Polls once, for at most `len` bytes.
    fn poll(self: &Arc<Self>, socket: &Socket, kernel: &Kernel, len: usize) -> Poll<io::Result<usize>> {
        let waker = Waker::from(Arc::clone(self));
        socket.poll_read(&mut Context::from_waker(&waker), len, || kernel.read(len))
    }
}

impl Wake for Foreign {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

/// Makes the runtime's poller watch the socket for a task, which is told that there is no data.
fn watch_for_a_task(runtime: &Runtime, (socket, kernel): &(Arc<Socket>, Arc<Kernel>)) {
    let (socket, kernel) = (Arc::clone(socket), Arc::clone(kernel));
    runtime.run(move || {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(socket.poll_read(&mut cx, 8, || kernel.read(8)).is_pending());
    });
}

/// Two pieces come, each with its event, beside the polls of a goroutine. Fails by deadlock when an event is missed between a
/// system call and the end of its poll, or when the goroutine does not see the bytes that came before the event.
#[test]
fn a_task_sees_what_comes_beside_its_polls() {
    Model::new().preemptions(2).check("task_event", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let both = silent();
        watch_for_a_task(&runtime, &both);
        loom::explore();
        let reader = go_with(&runtime, &both, |socket, kernel| {
            assert_eq!(polled_read(socket, kernel, 1).unwrap(), 1);
            assert_eq!(polled_read(socket, kernel, 1).unwrap(), 1);
            done();
        });
        for _ in 0..2 {
            comes(&runtime, &both.1, 1);
        }
        reader.join().unwrap();
    });
}

/// The watch begins beside the event. Fails by deadlock when the event is missed.
#[test]
fn a_task_sees_what_comes_as_the_watch_begins() {
    Model::new().preemptions(2).check("task_watch", || {
        let runtime = at_rest::<1>();
        let both = silent();
        let reader = go_with(&runtime, &both, |socket, kernel| {
            assert_eq!(polled_read(socket, kernel, 8).unwrap(), 1);
            done();
        });
        comes(&runtime, &both.1, 1);
        reader.join().unwrap();
    });
}

/// A goroutine has had the socket watched, so events are reported, and not marked for tasks. Fails by deadlock when the first
/// task and the poller miss each other.
#[test]
fn the_first_task_sees_an_event_that_comes_unmarked() {
    Model::new().check("first_task", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let both = silent();
        runtime.run({
            let (socket, handle) = (Arc::clone(&both.0), Handle::of(&runtime));
            move || {
                let mut calls = 0;
                let got = socket.read(1, || {
                    calls += 1;
                    match calls {
                        // This call has the socket watched.
                        1 => {
                            handle.deliver(Readiness::READABLE);
                            Err(io::ErrorKind::WouldBlock.into())
                        }
                        _ => Ok(1),
                    }
                });
                assert_eq!(got.unwrap(), 1);
            }
        });
        loom::explore();
        let reader = go_with(&runtime, &both, |socket, kernel| {
            assert_eq!(polled_read(socket, kernel, 8).unwrap(), 1);
            done();
        });
        comes(&runtime, &both.1, 1);
        reader.join().unwrap();
    });
}

/// A thread of another executor polls a socket that the runtime's poller watches. Fails by deadlock when the task's waker is
/// lost, or is taken before it is kept.
#[test]
fn a_foreign_task_is_woken() {
    Model::new().preemptions(2).check("foreign_task", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let both = silent();
        watch_for_a_task(&runtime, &both);
        loom::explore();
        let theirs = both.clone();
        let reader = loom::thread::spawn(move || {
            let (socket, kernel) = theirs;
            let task = Foreign::new();
            loop {
                match task.poll(&socket, &kernel, 8) {
                    Poll::Pending => task.until_woken(),
                    Poll::Ready(got) => break assert_eq!(got.unwrap(), 1),
                }
            }
            done();
        });
        comes(&runtime, &both.1, 1);
        reader.join().unwrap();
    });
}

/// A goroutine and a task each want one of the two bytes that come with one event. Fails by deadlock when only one of the two
/// is told of the event.
#[test]
fn a_goroutine_and_a_task_in_one_direction_are_both_woken() {
    Model::new().preemptions(2).check("task_beside_goroutine", || {
        let runtime = at_rest::<1>();
        let both = silent();
        let parts = Parts::of(2);
        let read = |how: fn(&Socket, &Kernel) -> io::Result<usize>| {
            let ((socket, kernel), parts) = (both.clone(), parts.clone());
            move || {
                assert_eq!(how(&socket, &kernel).unwrap(), 1);
                parts.held();
            }
        };
        let task = runtime.go(read(|socket, kernel| polled_read(socket, kernel, 1)));
        let waits = runtime.go(read(|socket, kernel| socket.read(1, || kernel.read(1))));
        comes(&runtime, &both.1, 2);
        task.join().unwrap();
        waits.join().unwrap();
    });
}

/// The second of two tasks takes the event and a part of the bytes, while the first has just seen the socket empty. The first
/// task itself plays the second task, the kernel and the poller at that moment. Fails by a poll that waits although a byte is
/// there.
#[test]
fn a_task_that_saw_the_socket_empty_in_the_past_does_not_say_so() {
    Model::new().check("task_turns", || {
        let runtime = at_rest::<1>();
        let handle = Handle::of(&runtime);
        runtime.run(move || {
            let (socket, kernel) = (Socket::new(), Kernel::default());
            let mut cx = Context::from_waker(Waker::noop());
            let mut poll =
                |len, call: &mut dyn FnMut() -> io::Result<usize>| socket.poll_read(&mut cx, len, call);
            assert!(poll(8, &mut || kernel.read(8)).is_pending());
            kernel.bytes.store(1, Relaxed);
            handle.deliver(Readiness::READABLE);
            let first = socket.poll_read(&mut Context::from_waker(Waker::noop()), 8, || {
                let got = kernel.read(8);
                kernel.bytes.store(3, Relaxed);
                handle.deliver(Readiness::READABLE);
                assert_eq!(poll(2, &mut || kernel.read(2)).map(Result::unwrap), Poll::Ready(2));
                got
            });
            assert_eq!(first.map(Result::unwrap), Poll::Ready(1));
            assert_eq!(poll(8, &mut || kernel.read(8)).map(Result::unwrap), Poll::Ready(1));
        });
        done();
    });
}

/// As `a_task_that_saw_the_socket_empty_in_the_past_does_not_say_so`, but the first task has found nothing, and was told
/// `Pending` last. Fails by a poll that waits although the second task has left a byte, and no event will tell of that.
#[test]
fn a_task_sees_what_another_has_left() {
    Model::new().check("task_left", || {
        let runtime = at_rest::<1>();
        let handle = Handle::of(&runtime);
        runtime.run(move || {
            let (socket, kernel) = (Socket::new(), Kernel::default());
            let poll = |len, call: &mut dyn FnMut() -> io::Result<usize>| {
                socket.poll_read(&mut Context::from_waker(Waker::noop()), len, call)
            };
            assert!(poll(8, &mut || kernel.read(8)).is_pending());
            let mut comes = true;
            // This event brings no bytes; it makes the first task call.
            handle.deliver(Readiness::READABLE);
            let first = poll(8, &mut || {
                let got = kernel.read(8);
                if std::mem::take(&mut comes) {
                    kernel.bytes.store(3, Relaxed);
                    handle.deliver(Readiness::READABLE);
                    assert_eq!(poll(2, &mut || kernel.read(2)).map(Result::unwrap), Poll::Ready(2));
                }
                got
            });
            assert_eq!(first.map(Result::unwrap), Poll::Ready(1));
        });
        done();
    });
}

/// A poll of a drained socket makes a system call only after an event. Fails by one call too many, or by a poll that waits
/// although a byte is there.
#[test]
fn a_drained_socket_is_not_asked_again_until_an_event() {
    Model::new().check("task_drained", || {
        let runtime = at_rest::<1>();
        let handle = Handle::of(&runtime);
        runtime.run(move || {
            let (socket, kernel, calls) = (Socket::new(), Kernel::default(), AtomicUsize::new(0));
            let poll = || {
                socket.poll_read(&mut Context::from_waker(Waker::noop()), 8, || {
                    calls.fetch_add(1, Relaxed);
                    kernel.read(8)
                })
            };
            assert!(poll().is_pending() && poll().is_pending());
            assert_eq!(calls.load(Relaxed), 1, "the second poll of a silent socket");
            kernel.bytes.store(1, Relaxed);
            handle.deliver(Readiness::READABLE);
            assert_eq!(poll().map(Result::unwrap), Poll::Ready(1));
            assert!(poll().is_pending());
            assert_eq!(calls.load(Relaxed), 2, "after a short read");
            kernel.bytes.store(1, Relaxed);
            handle.deliver(Readiness::READABLE);
            assert_eq!(poll().map(Result::unwrap), Poll::Ready(1));
        });
        done();
    });
}

/// Data and the end come as one event: the read that takes the data is short, and no further event will come. Fails by deadlock
/// when the task waits for one.
#[test]
fn a_task_sees_data_and_the_end_in_one_event() {
    Model::new().check("task_hup", || {
        let runtime = at_rest::<1>();
        let both = silent();
        let reader = go_with(&runtime, &both, |socket, kernel| {
            assert_eq!(polled_read(socket, kernel, 8).unwrap(), 2);
            assert_eq!(polled_read(socket, kernel, 8).unwrap(), 0);
            done();
        });
        runtime.run(|| ());
        both.1.bytes.store(2, Relaxed);
        both.1.ended.store(true, Relaxed);
        Handle::of(&runtime).deliver(Readiness::READABLE | Readiness::READ_HUP);
        reader.join().unwrap();
    });
}

/// As `a_task_sees_data_and_the_end_in_one_event`, but another task has read the data, in a short read. Fails by the assertion
/// when the second task trusts that read, because it does not see that the end came with the data.
#[test]
fn a_task_sees_the_end_that_came_with_what_another_has_read() {
    Model::new().check("task_hup_of_another", || {
        let (desc, taken) = (Arc::new(PollDesc::of_tasks()), Arc::new(AtomicBool::new(false)));
        let (theirs, seen) = (Arc::clone(&desc), Arc::clone(&taken));
        let second = loom::thread::spawn(move || {
            while !seen.load(Relaxed) {
                loom::thread::yield_now();
            }
            assert!(!theirs.has_a_task_wait(), "no further event will come");
        });
        let reports = Arc::clone(&desc);
        let poller = loom::thread::spawn(move || reports.report(Readiness::READABLE | Readiness::READ_HUP));
        while !desc.read_short() {
            loom::thread::yield_now();
        }
        taken.store(true, Relaxed);
        poller.join().unwrap();
        second.join().unwrap();
    });
}

/// Two events come one after the other, and a task takes one mark for both. Fails by the assertion when the task does not see
/// what the second event reports.
#[test]
fn a_task_that_takes_one_mark_for_two_events_sees_both() {
    Model::new().check("task_two_events", || {
        let (desc, come) = (Arc::new(PollDesc::of_tasks()), Arc::new(AtomicUsize::new(0)));
        let (theirs, comes) = (Arc::clone(&desc), Arc::clone(&come));
        let task = loom::thread::spawn(move || (theirs.begin_call(), come.load(Relaxed)));
        for n in [1, 2] {
            comes.store(n, Relaxed);
            desc.report(Readiness::READABLE);
        }
        let (turn, seen) = task.join().unwrap();
        if turn.is_some_and(|turn| turn != Turn::FIRST) && desc.begin_call() == turn {
            assert_eq!(seen, 2, "no mark is left");
        }
    });
}

/// The poller watches the socket for reads alone; then a task has to wait for room. Fails by deadlock when the poller is not
/// told to watch for writes, or tells of room only if the room comes later.
#[test]
fn a_task_sees_room_that_comes_as_it_asks() {
    Model::new().preemptions(2).check("task_room", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let both = silent();
        let (handle, room) = (Handle::of(&runtime), Arc::new(AtomicBool::new(false)));
        handle.fill();
        watch_for_a_task(&runtime, &both);
        loom::explore();
        let writer = runtime.go({
            let (socket, room) = (Arc::clone(&both.0), Arc::clone(&room));
            move || {
                let sent = block_on(poll_fn(|cx| {
                    socket.poll_write(cx, || match room.load(Relaxed) {
                        false => Err(io::ErrorKind::WouldBlock.into()),
                        true => Ok(2),
                    })
                }));
                assert_eq!(sent.unwrap(), 2);
                done();
            }
        });
        room.store(true, Relaxed);
        handle.deliver(Readiness::WRITABLE);
        writer.join().unwrap();
    });
}

/// The writes of a Unix socket end beside a task that finds no room. Fails by deadlock when the end of the writes and the
/// task's watch miss each other.
#[test]
fn a_task_that_waits_for_room_is_told_of_the_end_of_writes() {
    Model::new().preemptions(2).check("task_vs_end_of_writes", || {
        let runtime = at_rest::<1>();
        let both = silent();
        Handle::of(&runtime).fill();
        let writer = go_with(&runtime, &both, |socket, kernel| {
            let sent = block_on(poll_fn(|cx| {
                socket.poll_write(cx, || match kernel.ended.load(Relaxed) {
                    false => Err(io::ErrorKind::WouldBlock.into()),
                    true => Err(io::ErrorKind::BrokenPipe.into()),
                })
            }));
            assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
            done();
        });
        let ended = both.0.end_writes(|| {
            both.1.ended.store(true, Relaxed);
            Ok(())
        });
        ended.unwrap();
        writer.join().unwrap();
    });
}

/// A descriptor that a close takes away.
struct Descriptor(UnsafeCell<()>);

// SAFETY: the socket orders the accesses; loom checks that it does.
unsafe impl Send for Descriptor {}
// SAFETY: as for `Send`.
unsafe impl Sync for Descriptor {}

/// Fails by deadlock when the task waits through the close, by a causality violation when the close takes the descriptor away
/// during the system call.
#[test]
fn a_close_ends_the_wait_of_a_task() {
    Model::new().check("close_vs_task", || {
        let runtime = at_rest::<1>();
        let (socket, descriptor) = (Arc::new(Socket::new()), Arc::new(Descriptor(UnsafeCell::new(()))));
        let reader = runtime.go({
            let (socket, descriptor) = (Arc::clone(&socket), Arc::clone(&descriptor));
            move || {
                let read = poll_fn(|cx| {
                    socket.poll_read(cx, 8, || {
                        descriptor.0.with(|_| ());
                        Err(io::ErrorKind::WouldBlock.into())
                    })
                });
                assert!(net::is_closed(&block_on(read).unwrap_err()));
                done();
            }
        });
        socket.close().unwrap();
        descriptor.0.with_mut(|_| ());
        reader.join().unwrap();
    });
}

/// A foreign task waits for the poller of a runtime that ends. Fails by deadlock when the task goes on waiting.
#[test]
fn the_end_of_the_runtime_is_told_to_a_task() {
    Model::new().preemptions(2).check("task_vs_end", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let both = silent();
        watch_for_a_task(&runtime, &both);
        // The handle keeps the scheduler, whose drop would end the watch as well.
        let _handle = Handle::of(&runtime);
        loom::explore();
        let theirs = both.clone();
        let reader = loom::thread::spawn(move || {
            let (socket, kernel) = theirs;
            let task = Foreign::new();
            loop {
                match task.poll(&socket, &kernel, 8) {
                    Poll::Pending => task.until_woken(),
                    Poll::Ready(got) => {
                        break assert_eq!(got.unwrap_err().kind(), io::ErrorKind::Unsupported);
                    }
                }
            }
        });
        assert!(runtime.shutdown(Duration::from_secs(1)).is_clean());
        reader.join().unwrap();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::TaskEventUnmarked, "a_task_sees_what_comes_beside_its_polls"),
            (Mutant::TaskEventUnmarked, "a_drained_socket_is_not_asked_again_until_an_event"),
            (Mutant::TaskMarksRelaxed, "a_task_sees_what_comes_beside_its_polls"),
            (Mutant::TaskLooksRelaxed, "a_task_sees_the_end_that_came_with_what_another_has_read"),
            (Mutant::TaskBeginsRelaxed, "a_task_that_takes_one_mark_for_two_events_sees_both"),
            (Mutant::TaskTrustsRelaxed, "a_task_sees_the_end_that_came_with_what_another_has_read"),
            (Mutant::TaskDoesNotLookAgain, "a_task_sees_what_comes_beside_its_polls"),
            (Mutant::TaskDoesNotLookAgain, "a_task_sees_what_comes_as_the_watch_begins"),
            (Mutant::TaskDoesNotLookAgain, "a_goroutine_and_a_task_in_one_direction_are_both_woken"),
            (Mutant::TaskWakerForgotten, "a_task_sees_what_comes_beside_its_polls"),
            (Mutant::TaskWaitsBeforeItsWaker, "a_foreign_task_is_woken"),
            (Mutant::TaskFirstUseUnordered, "the_first_task_sees_an_event_that_comes_unmarked"),
            (Mutant::TaskFirstUseRelaxed, "the_first_task_sees_an_event_that_comes_unmarked"),
            (Mutant::TaskFirstUseLooksRelaxed, "the_first_task_sees_an_event_that_comes_unmarked"),
            (Mutant::TaskKeepsItsTurn, "a_task_that_saw_the_socket_empty_in_the_past_does_not_say_so"),
            (Mutant::TaskWaitsInAnotherTurn, "a_task_sees_what_another_has_left"),
            (Mutant::TaskTrustsAfterHup, "a_task_sees_data_and_the_end_in_one_event"),
            (Mutant::TaskWatchesReadsAlone, "a_task_sees_room_that_comes_as_it_asks"),
            (Mutant::TaskMissesTheShutdown, "a_task_that_waits_for_room_is_told_of_the_end_of_writes"),
            (Mutant::TaskCloseTellsNobody, "a_close_ends_the_wait_of_a_task"),
            (Mutant::TaskEndTellsNobody, "the_end_of_the_runtime_is_told_to_a_task"),
            (Mutant::TaskMissesTheEnd, "the_end_of_the_runtime_is_told_to_a_task"),
        ],
    );
}
