//! Deadlines and timeouts of sockets hold for goroutines and plain threads, in every operation, and an operation that gives up
//! loses no byte.

use common::crew::{CREWS, each, everyone, join_all};
use common::loopback::{listen, pair};
use common::within::within;
use common::{effort, until};
use gmp::net::TcpStream;
use std::fmt::Debug;
use std::io::{self, ErrorKind, Read, Write};
use std::net;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(3);
/// Longer than any test, so that this limit ends no wait.
const LONG: Duration = Duration::from_secs(3600);

/// How long each crew may race.
const RACE: Duration = Duration::from_secs(1);

fn races(count: u32) -> u32 {
    // `count` is for all crews together.
    count * effort() / CREWS as u32 / if cfg!(debug_assertions) { 4 } else { 1 }
}

#[track_caller]
fn timed_out<T: Debug>(result: io::Result<T>) {
    let refused = result.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TimedOut);
    assert!(refused.to_string().contains("deadline"), "{refused}");
}

/// Asserts that the operation ends by `TimedOut`, and not long before its time is over. The time began a little before this
/// call.
#[track_caller]
fn lasts<T: Debug>(operation: impl FnOnce() -> io::Result<T>) {
    let start = Instant::now();
    timed_out(operation());
    assert!(start.elapsed() >= SHORT / 2, "{:?}", start.elapsed());
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + SHORT)
}

/// Writes until nothing more fits, and returns the number of bytes.
fn fill(stream: &TcpStream) -> usize {
    let (mut stream, mut total) = (stream, 0);
    stream.set_write_deadline(soon()).unwrap();
    loop {
        match stream.write(&[7; 1 << 16]) {
            Ok(wrote) => total += wrote,
            Err(full) => {
                assert_eq!(full.kind(), ErrorKind::TimedOut);
                stream.set_write_deadline(None).unwrap();
                return total;
            }
        }
    }
}

/// Fails by a hang, when a call ends too early, or by another error.
#[test]
fn every_operation_ends_at_its_deadline() {
    everyone(|crew| {
        crew.run(|| {
            let (mut near, far) = pair();
            near.set_read_deadline(soon()).unwrap();
            lasts(|| near.read(&mut [0; 8]));
            near.set_deadline(soon()).unwrap();
            lasts(|| near.read_vectored(&mut [io::IoSliceMut::new(&mut [0; 8])]));
            near.set_read_deadline(soon()).unwrap();
            lasts(|| near.peek(&mut [0; 8]));
            near.set_read_timeout(Some(SHORT)).unwrap();
            near.set_read_deadline(None).unwrap();
            lasts(|| near.read_to_end(&mut Vec::new()));
            lasts(|| near.peek(&mut [0; 8]));
            fill(&near);
            near.set_write_deadline(soon()).unwrap();
            // There is new room as long as the kernel moves the written bytes.
            lasts(|| -> io::Result<()> {
                loop {
                    assert!(near.write(&[0; 8])? > 0);
                }
            });
            near.set_deadline(None).unwrap();
            near.set_write_timeout(Some(SHORT)).unwrap();
            lasts(|| -> io::Result<()> {
                loop {
                    assert!(near.write_vectored(&[io::IoSlice::new(&[0; 8])])? > 0);
                }
            });
            drop(far);
            let (listener, _) = listen();
            listener.set_deadline(soon()).unwrap();
            lasts(|| listener.accept());
            listener.set_deadline(soon()).unwrap();
            lasts(|| listener.incoming().next().unwrap());
        });
    });
}

/// Returns a listener whose queue is full, so that no client can connect to it.
fn deaf() -> (net::TcpListener, Vec<net::TcpStream>) {
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let addr = listener.local_addr().unwrap();
    let fill = || net::TcpStream::connect_timeout(&addr, Duration::from_millis(100)).ok();
    let full = std::iter::from_fn(fill).collect();
    (listener, full)
}

/// Fails by a hang, or when a connection that was given up counts as a success.
#[test]
fn connect_timeout_gives_up() {
    let (listener, _full) = deaf();
    let addr = listener.local_addr().unwrap();
    everyone(|crew| {
        crew.run(move || {
            lasts(|| TcpStream::connect_timeout(&addr, SHORT));
            let zero = TcpStream::connect_timeout(&addr, Duration::ZERO).unwrap_err();
            assert_eq!(zero.kind(), ErrorKind::InvalidInput);
            let (open, addr) = listen();
            let near = TcpStream::connect_timeout(&addr, LONG).unwrap();
            let mut far = open.accept().unwrap().0;
            (&near).write_all(b"there").unwrap();
            far.read_exact(&mut [0; 5]).unwrap();
            assert_eq!(near.read_timeout().unwrap(), None);
            drop(open);
            let refused = TcpStream::connect_timeout(&addr, LONG).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        });
    });
}

/// Fails when a read returns data in spite of the deadline, or when the data is lost afterwards.
#[test]
fn a_past_deadline_wins_over_what_is_ready() {
    everyone(|crew| {
        crew.run(|| {
            let (mut near, mut far) = pair();
            for past in [Instant::now(), Instant::now() - Duration::from_millis(1)] {
                far.write_all(b"ready").unwrap();
                assert_eq!(near.peek(&mut [0; 8]).unwrap(), 5);
                near.set_deadline(Some(past)).unwrap();
                for _ in 0..3 {
                    timed_out(near.read(&mut [0; 8]));
                    timed_out(near.peek(&mut [0; 8]));
                    timed_out(near.write(b"room"));
                }
                // A read into an empty buffer needs no data, and so does not time out.
                assert_eq!(near.read(&mut []).unwrap(), 0);
                near.set_deadline(None).unwrap();
                assert_eq!(near.read(&mut [0; 8]).unwrap(), 5);
            }
            let (listener, addr) = listen();
            let _client = net::TcpStream::connect(addr).unwrap();
            listener.set_deadline(Some(Instant::now())).unwrap();
            timed_out(listener.accept());
            listener.set_deadline(None).unwrap();
            listener.accept().unwrap();
        });
    });
}

/// Returns `true` if a read would find something now. The socket is not touched.
fn readable(socket: &impl AsRawFd) -> bool {
    let mut asked = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the call gets one struct, which it fills.
    unsafe { libc::poll(&raw mut asked, 1, 0) == 1 }
}

/// The timeout is over before the first system call, as on a machine whose CPUs are busy. Fails when a call that need not wait
/// ends by the timeout, also after a read that has emptied the socket, and a `send_to`; or by a hang.
#[test]
fn a_timeout_ends_waits_alone() {
    everyone(|crew| {
        crew.run(|| {
            let over = Some(Duration::from_nanos(1));
            let (mut near, mut far) = pair();
            near.set_write_timeout(over).unwrap();
            // A wait, by which the socket comes to the poller: only then a read that follows may trust what the last one found.
            near.set_read_timeout(Some(SHORT)).unwrap();
            timed_out(near.read(&mut [0; 8]));
            near.set_read_timeout(over).unwrap();
            for _ in 0..3 {
                timed_out(near.read(&mut [0; 8]));
                far.write_all(b"xy").unwrap();
                let come = || near.peek(&mut [0; 8]).is_ok_and(|came| came == 2);
                until(come);
                assert_eq!(near.read(&mut [0; 8]).unwrap(), 2);
                // The read has emptied the socket, so that the next one may wait before its call.
                far.write_all(b"xy").unwrap();
                until(|| readable(&near));
                assert_eq!(near.read(&mut [0; 8]).unwrap(), 2);
                assert_eq!(near.write(b"z").unwrap(), 1);
                far.read_exact(&mut [0]).unwrap();
            }
            let socket = gmp::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(socket.local_addr().unwrap()).unwrap();
            socket.set_read_timeout(over).unwrap();
            timed_out(socket.recv(&mut [0; 8]));
            socket.set_write_timeout(over).unwrap();
            socket.send(b"xyz").unwrap();
            until(|| readable(&socket));
            assert_eq!(socket.recv(&mut [0; 8]).unwrap(), 3);
            let unconnected = gmp::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            unconnected.set_write_timeout(over).unwrap();
            assert_eq!(unconnected.send_to(b"xyz", unconnected.local_addr().unwrap()).unwrap(), 3);
        });
    });
}

/// Fails when the later of the two limits holds, when a timeout does not begin anew, or when a timeout that std refuses is
/// accepted.
#[test]
fn the_earlier_of_deadline_and_timeout_counts() {
    everyone(|crew| {
        crew.run(|| {
            let (mut near, mut far) = pair();
            for (deadline, timeout) in [(SHORT, LONG), (LONG, SHORT)] {
                near.set_read_deadline(Some(Instant::now() + deadline)).unwrap();
                near.set_read_timeout(Some(timeout)).unwrap();
                assert_eq!(near.read_timeout().unwrap(), Some(timeout));
                assert_eq!(near.write_timeout().unwrap(), None);
                lasts(|| near.read(&mut [0; 8]));
            }
            near.set_read_deadline(None).unwrap();
            // The timeout holds for each read, and not for the sum of the waits.
            for _ in 0..4 {
                lasts(|| near.read(&mut [0; 8]));
                far.write_all(b"x").unwrap();
                near.set_read_timeout(Some(LONG)).unwrap();
                near.read_exact(&mut [0]).unwrap();
                near.set_read_timeout(Some(SHORT)).unwrap();
            }
            for timeout in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
                let zero = timeout(&near, Some(Duration::ZERO)).unwrap_err();
                assert_eq!(zero.kind(), ErrorKind::InvalidInput);
            }
            assert_eq!(near.read_timeout().unwrap(), Some(SHORT));
            near.set_read_timeout(Some(Duration::MAX)).unwrap();
            assert!(near.read_timeout().unwrap() > Some(LONG));
            near.set_write_timeout(Some(LONG)).unwrap();
            assert_eq!(near.write_timeout().unwrap(), Some(LONG));
            near.set_read_timeout(None).unwrap();
            assert_eq!(near.read_timeout().unwrap(), None);
            let far_off = Instant::now().checked_add(Duration::from_secs(1 << 40));
            near.set_deadline(far_off).unwrap();
            far.write_all(b"x").unwrap();
            near.read_exact(&mut [0]).unwrap();
        });
    });
}

/// Fails by a hang when a waiter in the pollDesc's slot, in `poll(2)` or in the queue of the I/O lock is not told of the
/// deadline.
#[test]
fn a_deadline_that_is_set_reaches_all_waiters() {
    everyone(|crew| {
        for _ in 0..4 {
            let (near, far) = pair();
            let near = Arc::new(near);
            let read = |near: Arc<TcpStream>| move || (&*near).read(&mut [0; 8]);
            let first = crew.go(read(Arc::clone(&near)));
            first.until_it_waits();
            let second = crew.go(read(Arc::clone(&near)));
            second.until_it_waits();
            let third = crew.go(read(Arc::clone(&near)));
            third.until_it_waits();
            // First a deadline that ends no wait.
            near.set_read_deadline(Some(Instant::now() + LONG)).unwrap();
            near.set_write_deadline(Some(Instant::now())).unwrap();
            near.set_deadline(Some(Instant::now())).unwrap();
            join_all(vec![first, second, third]).into_iter().for_each(timed_out);
            near.set_deadline(None).unwrap();
            (&far).write_all(b"more").unwrap();
            assert_eq!((&*near).read(&mut [0; 8]).unwrap(), 4);
        }
    });
}

/// Fails by `TimedOut` at the time that no longer holds, or by a hang.
#[test]
fn a_deadline_that_is_moved_on_no_longer_ends_a_wait() {
    everyone(|crew| {
        for later in [None, Some(LONG)] {
            let (near, far) = pair();
            let near = Arc::new(near);
            let ends = Instant::now() + Duration::from_millis(20);
            near.set_read_deadline(Some(ends)).unwrap();
            let read = |near: Arc<TcpStream>| move || (&*near).read(&mut [0; 4]);
            let [first, second] = [(); 2].map(|()| crew.go(read(Arc::clone(&near))));
            near.set_read_deadline(later.map(|later| Instant::now() + later)).unwrap();
            // The member may have been late, and may have given up already; from here on it may not.
            let in_time = Instant::now() < ends;
            until(|| Instant::now() > ends + SHORT);
            (&far).write_all(b"12345678").unwrap();
            for got in [first.join(), second.join()] {
                assert!(!in_time || got.is_ok(), "{got:?}");
            }
        }
    });
}

/// Fails when an operation in the queue of the I/O lock ends with the operations before it instead of at its own deadline, or
/// takes data that is theirs.
#[test]
fn an_operation_in_the_queue_ends_at_its_own_deadline() {
    everyone(|crew| {
        for _ in 0..3 {
            let (near, far) = pair();
            let near = Arc::new(near);
            let read = |near: Arc<TcpStream>| move || (&*near).read(&mut [0; 4]);
            let first = crew.go(read(Arc::clone(&near)));
            first.until_it_waits();
            let last = crew.go(read(Arc::clone(&near)));
            last.until_it_waits();
            near.set_read_timeout(Some(2 * SHORT)).unwrap();
            let slow = crew.go(read(Arc::clone(&near)));
            let quick = crew.go(read(Arc::clone(&near)));
            timed_out(quick.join());
            timed_out(slow.join());
            (&far).write_all(b"1234").unwrap();
            assert_eq!(first.join().unwrap(), 4);
            (&far).write_all(b"5678").unwrap();
            assert_eq!(last.join().unwrap(), 4);
        }
    });
}

/// The data comes at about the time at which the read gives up. Fails by a hang when the event is lost with that read, or when
/// a short read counts as the end of the data that came with the event.
#[test]
fn no_byte_is_lost_to_a_read_that_gives_up() {
    everyone(|crew| {
        let (near, far) = pair();
        let near = Arc::new(near);
        let count = races(8000);
        let sender = crew.go(move || {
            let mut far = far;
            for byte in 0..count {
                (0..byte % 5 * 200).for_each(|_| std::hint::spin_loop());
                far.write_all(&[byte as u8]).unwrap();
                far.read_exact(&mut [0]).unwrap();
            }
        });
        let reader = crew.go(move || {
            let (mut near, mut gave_up) = (&*near, 0);
            for byte in 0..count {
                let mut got = [0; 2];
                loop {
                    let patience = Duration::from_micros(u64::from(byte * 7 % 60));
                    near.set_read_deadline(Some(Instant::now() + patience)).unwrap();
                    match near.read(&mut got) {
                        Ok(1) => break,
                        Ok(much) => panic!("{much} bytes"),
                        Err(late) => assert_eq!(late.kind(), ErrorKind::TimedOut),
                    }
                    gave_up += 1;
                    if gave_up % 3 == 0 {
                        near.set_read_deadline(None).unwrap();
                        assert_eq!(near.read(&mut got).unwrap(), 1);
                        break;
                    }
                }
                assert_eq!(got[0], byte as u8);
                near.write_all(&[0]).unwrap();
            }
        });
        sender.join();
        reader.join();
    });
}

/// A write that gives up returns the number of bytes that it has written. Fails by a hang, or when a byte is lost or doubled.
#[test]
fn a_write_that_gives_up_has_written_what_it_says() {
    everyone(|crew| {
        let (near, far) = pair();
        let wrote = fill(&near);
        let more = crew.go(move || {
            let mut near = near;
            near.write_all(&[8; 1 << 18]).unwrap();
        });
        let all = crew.go(move || {
            let (mut far, mut all) = (far, Vec::new());
            far.read_to_end(&mut all).unwrap();
            all
        });
        more.join();
        let all = all.join();
        assert_eq!(all.len(), wrote + (1 << 18));
        assert!(all[..wrote].iter().all(|byte| *byte == 7) && all[wrote..].iter().all(|byte| *byte == 8));
    });
}

/// A member sets the deadline to now, and takes it away again, while others read. Fails by a hang when a reader sleeps through
/// the last change, or through the data; or when a byte is lost.
#[test]
fn setters_and_readers_race() {
    everyone(|crew| {
        let (near, far) = pair();
        let near = Arc::new(near);
        let stop = Arc::new(AtomicBool::new(false));
        let total = Arc::new(AtomicUsize::new(0));
        let readers = each(crew, 4, {
            let (near, stop, total) = (Arc::clone(&near), Arc::clone(&stop), Arc::clone(&total));
            move |_| {
                while !stop.load(SeqCst) {
                    match (&*near).read(&mut [0; 2]) {
                        Ok(got) => total.fetch_add(got, SeqCst),
                        Err(late) if late.kind() == ErrorKind::TimedOut => 0,
                        Err(refused) => panic!("{refused}"),
                    };
                    gmp::yield_now();
                }
            }
        });
        let setter = crew.go({
            let near = Arc::clone(&near);
            move || {
                for round in within(RACE, races(5200) as usize) {
                    near.set_read_deadline(Some(Instant::now())).unwrap();
                    near.set_read_deadline(soon().filter(|_| round % 3 == 0)).unwrap();
                    gmp::yield_now();
                }
                near.set_read_deadline(None).unwrap();
            }
        });
        let mut sent = 0;
        for _ in within(RACE, races(5200) as usize) {
            (&far).write_all(b"x").unwrap();
            sent += 1;
            gmp::yield_now();
        }
        setter.join();
        until(|| total.load(SeqCst) == sent);
        stop.store(true, SeqCst);
        near.set_read_deadline(Some(Instant::now())).unwrap();
        join_all(readers);
    });
}
