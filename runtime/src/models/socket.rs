//! A socket's read against a kernel that the model plays: no data and no end of the stream is missed, although a
//! short read spares the system call that would say `EAGAIN`.
//!
//! *Left out*: the order of waiters (`models/io_lock.rs`). *The mutants* take out the order of clear and system call, the
//! conditions under which a short read counts as drained, the watch before the wait that follows such a read, the watch for
//! writes, the wakes of a close and of a deadline, and the orderings of the count of users.

use super::caught;
use super::cover::{Handle, Socket};
use crate::model::{Flag, Model, Mutant, at_rest, done, note, runtime};
use gmp_netpoll::Readiness;
use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::io;
use std::sync::Arc;

/// The bytes that the kernel holds for the reader, and whether the stream has ended.
#[derive(Default)]
struct Kernel {
    bytes: usize,
    ended: bool,
}

impl Kernel {
    fn read(&mut self, len: usize) -> io::Result<usize> {
        match self.bytes.min(len) {
            0 if self.ended => Ok(0),
            0 => Err(io::ErrorKind::WouldBlock.into()),
            got => {
                self.bytes -= got;
                Ok(got)
            }
        }
    }
}

/// Reads with a buffer that is never full, to the end of the stream or until there were `most` bytes.
fn read_to_end(socket: &Socket, kernel: &Mutex<Kernel>, most: usize) -> usize {
    let mut total = 0;
    while total < most {
        let got = socket.read(8, || {
            let got = kernel.lock().unwrap().read(8);
            note(&format!("the kernel gives {got:?}"));
            got
        });
        match got.unwrap() {
            0 => return total,
            got => total += got,
        }
    }
    total
}

/// Whether the reader already waits when the sender begins. If it does, the search needs one preemption less.
#[derive(Copy, Clone, Eq, PartialEq)]
enum Begun {
    Yes,
    No,
}

/// Makes a goroutine read while the model's own thread plays the kernel and the M that comes back from the poller.
fn exchange(
    name: &str,
    most: usize,
    begun: Begun,
    send: impl Fn(&Mutex<Kernel>, &Handle) + Send + Sync + 'static,
) {
    Model::new().check(name, move || {
        let runtime = if begun == Begun::Yes { runtime(1, 1) } else { at_rest::<1>() };
        let kernel = Arc::new(Mutex::new(Kernel::default()));
        let reader = runtime.go({
            let kernel = Arc::clone(&kernel);
            move || {
                let total = read_to_end(&Socket::new(), &kernel, most);
                done();
                total
            }
        });
        if begun == Begun::Yes {
            // There is one M and one queue: once this goroutine has run, the reader, which came first, has parked.
            runtime.run(|| ());
            loom::explore();
        }
        send(&kernel, &Handle::of(&runtime));
        assert_eq!(reader.join().unwrap(), 2);
    });
}

/// Fails by deadlock when the reader takes the event of the second piece for that of the first.
#[test]
fn a_second_piece_arrives_after_a_short_read() {
    exchange("pieces", 2, Begun::Yes, |kernel, poller| {
        for _ in 0..2 {
            kernel.lock().unwrap().bytes += 1;
            poller.deliver(Readiness::READABLE);
        }
    });
}

/// Reads at most two bytes, on a goroutine of the model.
fn read_two(socket: &Socket, kernel: &Mutex<Kernel>) -> io::Result<usize> {
    socket.read(2, || kernel.lock().unwrap().read(2))
}

/// Reads one byte, which drains the socket, while `more` bytes come: their event stays in the slot. The reader itself plays the
/// kernel.
fn drain_as_more_come(socket: &Socket, kernel: &Mutex<Kernel>, handle: &Handle, more: usize) {
    let mut calls = 0;
    let got = socket.read(2, || {
        let mut kernel = kernel.lock().unwrap();
        let got = kernel.read(2);
        calls += 1;
        // The first call has the socket watched, the second one reads.
        kernel.bytes += if calls == 1 { 1 } else { more };
        handle.deliver(Readiness::READABLE);
        got
    });
    assert_eq!((got.unwrap(), calls), (1, 2));
}

/// A full read follows a short one. Fails by deadlock when the next read waits for an event, which the full read has taken,
/// although a byte is left.
#[test]
fn what_a_full_read_leaves_is_read_at_once() {
    Model::new().check("full_read", || {
        let runtime = at_rest::<1>();
        let handle = Handle::of(&runtime);
        runtime.run(move || {
            let (socket, kernel) = (Socket::new(), Mutex::new(Kernel::default()));
            drain_as_more_come(&socket, &kernel, &handle, 3);
            assert_eq!(read_two(&socket, &kernel).unwrap(), 2);
            assert_eq!(read_two(&socket, &kernel).unwrap(), 1);
        });
        done();
    });
}

/// A deadline passes while a drained read has found an event in the slot, and has made no system call yet. Fails by deadlock
/// when the next read waits for another event, as the read that gave up has taken the first one.
#[test]
fn an_event_outlives_the_read_that_found_it_and_gave_up() {
    Model::new().check("deadline_vs_kept_event", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let (socket, kernel) = (Arc::new(Socket::new()), Arc::new(Mutex::new(Kernel::default())));
        let handle = Handle::of(&runtime);
        runtime.run({
            let (socket, kernel) = (Arc::clone(&socket), Arc::clone(&kernel));
            move || drain_as_more_come(&socket, &kernel, &handle, 1)
        });
        loom::explore();
        let reader = runtime.go({
            let socket = Arc::clone(&socket);
            move || {
                let first = read_two(&socket, &kernel);
                let got = first.or_else(|gave_up| {
                    assert_eq!(gave_up.kind(), io::ErrorKind::TimedOut);
                    socket.set_expired(false).unwrap();
                    read_two(&socket, &kernel)
                });
                assert_eq!(got.unwrap(), 1);
                done();
            }
        });
        socket.set_expired(true).unwrap();
        reader.join().unwrap();
    });
}

/// The worst moment for an event: the system call has returned, and the reader has not acted on the result. loom's bounded
/// search was not seen to reach this moment, so the reader itself plays the kernel and the poller there. Fails by deadlock when
/// the event is lost.
#[test]
fn an_event_right_after_a_short_read_is_kept() {
    Model::new().check("event_after_read", || {
        let runtime = at_rest::<1>();
        let handle = Handle::of(&runtime);
        let total = runtime.run(move || {
            let (socket, mut kernel, mut calls) = (Socket::new(), Kernel::default(), 0);
            let mut read = || {
                socket.read(8, || {
                    let got = kernel.read(8);
                    calls += 1;
                    // After the call that has the socket watched, and after the first call that has read bytes.
                    if calls <= 2 {
                        kernel.bytes += 1;
                        handle.deliver(Readiness::READABLE);
                    }
                    got
                })
            };
            read().unwrap() + read().unwrap()
        });
        assert_eq!(total, 2);
        done();
    });
}

/// The first read is short, and the poller does not watch the socket yet. Fails when the second read makes its system call
/// before there is an event.
#[test]
fn a_short_first_read_drains_as_well() {
    Model::new().check("short_first_read", || {
        let runtime = runtime(1, 1);
        let kernel = Arc::new(Mutex::new(Kernel { bytes: 1, ended: false }));
        let calls = Arc::new(AtomicUsize::new(0));
        let reader = runtime.go({
            let (kernel, calls) = (Arc::clone(&kernel), Arc::clone(&calls));
            move || {
                let socket = Socket::new();
                for _ in 0..2 {
                    let got = socket.read(2, || {
                        calls.fetch_add(1, Relaxed);
                        kernel.lock().unwrap().read(2)
                    });
                    assert_eq!(got.unwrap(), 1);
                }
                done();
            }
        });
        // The reader has parked.
        runtime.run(|| ());
        assert_eq!(calls.load(Relaxed), 1);
        loom::explore();
        kernel.lock().unwrap().bytes = 1;
        Handle::of(&runtime).deliver(Readiness::READABLE);
        reader.join().unwrap();
        assert_eq!(calls.load(Relaxed), 2);
    });
}

/// Fails by deadlock when the reader misses the end of the stream after a short read.
#[test]
fn a_piece_and_the_end_arrive() {
    exchange("piece_then_end", 3, Begun::Yes, |kernel, poller| {
        kernel.lock().unwrap().bytes += 2;
        poller.deliver(Readiness::READABLE);
        kernel.lock().unwrap().ended = true;
        poller.deliver(Readiness::READABLE | Readiness::READ_HUP);
    });
}

/// Data and the end come as one event: the read that takes the data is short, and no further event will come. Fails by deadlock
/// when the reader waits for one.
#[test]
fn data_and_the_end_in_one_event_arrive() {
    exchange("data_with_fin", 3, Begun::No, |kernel, poller| {
        *kernel.lock().unwrap() = Kernel { bytes: 2, ended: true };
        poller.deliver(Readiness::READABLE | Readiness::READ_HUP);
    });
}

/// A read has the poller watch the socket for reads alone; then a write has to wait. Fails by deadlock when the poller is not
/// told to watch for writes, or tells of room only if the room comes later.
#[test]
fn room_that_comes_as_a_write_asks_for_it_is_seen() {
    Model::new().check("room", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let (socket, room) = (Arc::new(Socket::new()), Arc::new(Mutex::new(0)));
        let handle = Handle::of(&runtime);
        handle.fill();
        runtime.run({
            let (socket, handle) = (Arc::clone(&socket), Handle::of(&runtime));
            move || {
                let (mut kernel, mut calls) = (Kernel::default(), 0);
                let got = socket.read(8, || {
                    calls += 1;
                    if calls == 2 {
                        kernel.bytes = 1;
                    }
                    let got = kernel.read(8);
                    handle.deliver(Readiness::READABLE);
                    got
                });
                assert_eq!((got.unwrap(), calls), (1, 2));
            }
        });
        loom::explore();
        let writer = runtime.go({
            let (socket, room) = (Arc::clone(&socket), Arc::clone(&room));
            move || {
                let sent = socket.write(|| match std::mem::take(&mut *room.lock().unwrap()) {
                    0 => Err(io::ErrorKind::WouldBlock.into()),
                    room => Ok(room),
                });
                assert_eq!(sent.unwrap(), 2);
                done();
            }
        });
        *room.lock().unwrap() = 2;
        handle.deliver(Readiness::WRITABLE);
        writer.join().unwrap();
    });
}

/// The writes of a Unix socket end beside a write that finds no room. Fails by deadlock when the writer is not told, or when
/// the end of the writes and the writer's watch miss each other.
#[test]
fn the_end_of_writes_wakes_a_writer_that_waits_for_room() {
    Model::new().check("end_of_writes", || {
        let runtime = at_rest::<1>();
        let handle = Handle::of(&runtime);
        handle.fill();
        // The flag orders nothing: the protocol has to do that.
        let (socket, ended) = (Arc::new(Socket::new()), Arc::new(AtomicBool::new(false)));
        let writer = runtime.go({
            let (socket, ended) = (Arc::clone(&socket), Arc::clone(&ended));
            move || {
                let sent = socket.write(|| match ended.load(Relaxed) {
                    false => Err(io::ErrorKind::WouldBlock.into()),
                    true => Err(io::ErrorKind::BrokenPipe.into()),
                });
                assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
                done();
            }
        });
        socket
            .end_writes(|| {
                ended.store(true, Relaxed);
                Ok(())
            })
            .unwrap();
        writer.join().unwrap();
    });
}

/// A descriptor that a close takes away.
struct Descriptor(UnsafeCell<()>);

// SAFETY: the socket orders the accesses; loom checks that it does.
unsafe impl Send for Descriptor {}
// SAFETY: as for `Send`.
unsafe impl Sync for Descriptor {}

impl Descriptor {
    fn new() -> Arc<Self> {
        Arc::new(Descriptor(UnsafeCell::new(())))
    }
    fn call(&self) -> io::Result<usize> {
        self.0.with(|_| ());
        Err(io::ErrorKind::WouldBlock.into())
    }
    fn closed(&self) {
        self.0.with_mut(|_| ());
    }
}

/// Fails by deadlock when the operation sleeps through the close, by a causality violation when the close takes the descriptor
/// away during the system call.
fn a_close_meets(name: &str, operation: fn(&Socket, &Descriptor) -> io::Result<usize>) {
    Model::new().check(name, move || {
        let runtime = at_rest::<1>();
        let (socket, descriptor) = (Arc::new(Socket::new()), Descriptor::new());
        let user = runtime.go({
            let (socket, descriptor) = (Arc::clone(&socket), Arc::clone(&descriptor));
            move || assert!(crate::net::is_closed(&operation(&socket, &descriptor).unwrap_err()))
        });
        socket.close().unwrap();
        descriptor.closed();
        user.join().unwrap();
        done();
    });
}

#[test]
fn a_close_ends_a_read() {
    a_close_meets("close_vs_read", |socket, descriptor| socket.read(8, || descriptor.call()));
}

#[test]
fn a_close_ends_a_write() {
    a_close_meets("close_vs_write", |socket, descriptor| socket.write(|| descriptor.call()));
}

/// Does the same as `a_close_meets` for a call without an I/O lock. Also checks that only one of two closes returns that it has
/// closed the socket.
#[test]
fn a_close_comes_after_all_calls_and_happens_once() {
    Model::new().preemptions(3).check("close_vs_users", || {
        let (socket, descriptor) = (Arc::new(Socket::new()), Descriptor::new());
        let user = loom::thread::spawn({
            let (socket, descriptor) = (Arc::clone(&socket), Arc::clone(&descriptor));
            move || socket.with(|| descriptor.call().map(drop)).unwrap_err().kind()
        });
        socket.close().unwrap();
        descriptor.closed();
        assert!(crate::net::is_closed(&socket.close().unwrap_err()));
        let expected = [io::ErrorKind::WouldBlock, io::ErrorKind::NotConnected];
        assert!(expected.contains(&user.join().unwrap()));
    });
}

/// The last of two calls wakes the closer. Fails by a causality violation when the closer then comes only after that call, and
/// not after the other.
#[test]
fn a_close_comes_after_both_of_two_calls() {
    Model::new().preemptions(3).check("close_vs_two_users", || {
        let (socket, descriptor) = (Arc::new(Socket::new()), Descriptor::new());
        let users = [(); 2].map(|()| {
            let (socket, descriptor) = (Arc::clone(&socket), Arc::clone(&descriptor));
            loom::thread::spawn(move || assert!(socket.with(|| descriptor.call().map(drop)).is_err()))
        });
        socket.close().unwrap();
        descriptor.closed();
        users.into_iter().for_each(|user| user.join().unwrap());
    });
}

/// A goroutine is left parked in a function to which the socket was lent, while a thread closes the socket. Fails by deadlock
/// when the closer waits for the goroutine, which never comes back.
#[test]
fn a_use_that_is_left_behind_is_given_up() {
    Model::new().check("use_left_behind", || {
        let runtime = runtime(1, 1);
        let socket = Arc::new(Socket::new());
        drop(runtime.go({
            let socket = Arc::clone(&socket);
            move || {
                socket.lend(|| {
                    super::cover::park_for_ever();
                    Ok(())
                })
            }
        }));
        // There is one M and one queue: once this goroutine has run, the other one is parked.
        runtime.run(|| ());
        loom::explore();
        let closer = loom::thread::spawn({
            let socket = Arc::clone(&socket);
            move || socket.close().unwrap()
        });
        super::cover::leave(runtime, std::time::Duration::from_secs(1));
        closer.join().unwrap();
        done();
    });
}

/// Fails by deadlock when the reader sleeps on although its deadline was moved to now, or although data came after the deadline
/// was removed again.
#[test]
fn a_deadline_that_is_moved_ends_a_read_and_loses_no_data() {
    Model::new().check("deadline_vs_read", || {
        let runtime = runtime(1, 1);
        let (socket, kernel) = (Arc::new(Socket::new()), Arc::new(Mutex::new(Kernel::default())));
        let reader = runtime.go({
            let (socket, kernel) = (Arc::clone(&socket), Arc::clone(&kernel));
            move || {
                let first = socket.read(8, || kernel.lock().unwrap().read(8));
                assert_eq!(first.unwrap_err().kind(), io::ErrorKind::TimedOut);
                socket.set_expired(false).unwrap();
                assert_eq!(socket.read(8, || kernel.lock().unwrap().read(8)).unwrap(), 1);
                done();
            }
        });
        // The reader has parked.
        runtime.run(|| ());
        loom::explore();
        socket.set_expired(true).unwrap();
        kernel.lock().unwrap().bytes += 1;
        Handle::of(&runtime).deliver(Readiness::READABLE);
        reader.join().unwrap();
    });
}

/// A thread waits for the I/O lock of another one, which is in a call, and a deadline is set that has passed. Fails by deadlock
/// when the waiter does not hear of the deadline: the call ends only after that.
#[test]
fn a_deadline_reaches_a_waiter_behind_a_call() {
    Model::new().check("deadline_vs_line", || {
        let socket = Arc::new(Socket::new());
        let (inside, over) = (Flag::default(), Flag::default());
        let first = loom::thread::spawn({
            let (socket, inside, over) = (Arc::clone(&socket), inside.clone(), over.clone());
            move || {
                let got = socket.read(8, || {
                    inside.raise();
                    over.wait_on_thread();
                    Ok(1)
                });
                assert_eq!(got.unwrap(), 1);
            }
        });
        inside.wait_on_thread();
        let theirs = Arc::clone(&socket);
        let second = loom::thread::spawn(move || {
            let late = theirs.read(8, || Ok(1)).unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        });
        socket.set_expired(true).unwrap();
        second.join().unwrap();
        over.raise();
        first.join().unwrap();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::SocketClearsLate, "an_event_right_after_a_short_read_is_kept"),
            (Mutant::SocketClearsLate, "a_second_piece_arrives_after_a_short_read"),
            (Mutant::SocketDrainedClears, "an_event_right_after_a_short_read_is_kept"),
            (Mutant::SocketTrustsAfterHup, "data_and_the_end_in_one_event_arrive"),
            (Mutant::SocketLeavesTheLine, "a_deadline_reaches_a_waiter_behind_a_call"),
            (Mutant::SocketLooksAtNoSlot, "a_close_ends_a_read"),
            (Mutant::SocketCloseForgetsWrites, "a_close_ends_a_write"),
            (Mutant::SocketStaysDrained, "what_a_full_read_leaves_is_read_at_once"),
            (Mutant::SocketAsksUnwatched, "a_short_first_read_drains_as_well"),
            (Mutant::SocketFullReadDrains, "what_a_full_read_leaves_is_read_at_once"),
            (Mutant::PollTakesTheEvent, "an_event_outlives_the_read_that_found_it_and_gave_up"),
            (Mutant::SocketWatchesReadsAlone, "room_that_comes_as_a_write_asks_for_it_is_seen"),
            (Mutant::SocketEndsInSilence, "the_end_of_writes_wakes_a_writer_that_waits_for_room"),
            (Mutant::SocketMissesTheEnd, "the_end_of_writes_wakes_a_writer_that_waits_for_room"),
            (Mutant::SocketMarksTheEndLate, "the_end_of_writes_wakes_a_writer_that_waits_for_room"),
            (Mutant::SocketLooksBeforeItWatches, "the_end_of_writes_wakes_a_writer_that_waits_for_room"),
            (Mutant::UsersIdleRelaxed, "a_close_comes_after_all_calls_and_happens_once"),
            (Mutant::UsersLeaveRelaxed, "a_close_comes_after_all_calls_and_happens_once"),
            (Mutant::UsersLastLooksRelaxed, "a_close_comes_after_both_of_two_calls"),
            (Mutant::UsersLastIsSilent, "a_close_comes_after_all_calls_and_happens_once"),
            (Mutant::UsersLeftBehind, "a_use_that_is_left_behind_is_given_up"),
            (Mutant::PollSeenLate, "data_and_the_end_in_one_event_arrive"),
            (Mutant::PollSeenLate, "a_piece_and_the_end_arrive"),
        ],
    );
}
