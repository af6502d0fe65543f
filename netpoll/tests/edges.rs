//! What real sockets report, and when: the edges on which the runtime's reads and writes rest.

use gmp_netpoll::{Event, Events, Key, Poller, Readiness, Timeout, WaitCall, Woken};
use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

type Outcome = Result<(), Box<dyn Error>>;

const KEY: Key = Key { index: 1, generation: 1 };
const LONG: Timeout = Timeout::After(Duration::from_secs(20));

fn pollers() -> io::Result<[Poller; 2]> {
    Ok([Poller::with_wait_call(WaitCall::EpollPwait2)?, Poller::with_wait_call(WaitCall::Ppoll)?])
}

/// A connected pair on the loopback, non-blocking at the near end.
fn tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let far = TcpStream::connect(listener.local_addr()?)?;
    let (near, _) = listener.accept()?;
    near.set_nonblocking(true)?;
    Ok((near, far))
}

fn look(poller: &Poller) -> io::Result<Vec<Event>> {
    let mut events = Events::with_capacity(16);
    assert_eq!(poller.wait(&mut events, Timeout::Zero)?, Woken::No);
    Ok(events.iter().collect())
}

/// Waits until the reports about `KEY` have named all of `wanted`, and returns all they named.
fn await_all(poller: &Poller, wanted: Readiness) -> io::Result<Readiness> {
    let mut events = Events::with_capacity(16);
    let mut seen = Readiness::EMPTY;
    while !seen.contains(wanted) {
        assert_eq!(poller.wait(&mut events, LONG)?, Woken::No);
        assert!(!events.is_empty(), "no more events; seen {seen:?}, wanted {wanted:?}");
        for event in events.iter() {
            assert_eq!(event.key, KEY);
            seen |= event.readiness;
        }
    }
    Ok(seen)
}

/// Fails without `EPOLLRDHUP`: the one edge then says only READABLE, and nothing causes the second read.
#[test]
fn data_and_the_end_come_as_one_edge_that_shows_both() -> Outcome {
    for poller in pollers()? {
        let (mut near, mut far) = tcp_pair()?;
        poller.add(near.as_fd(), KEY)?;
        assert!(!await_all(&poller, Readiness::WRITABLE)?.wakes_reader());

        far.write_all(b"last words")?;
        far.shutdown(Shutdown::Write)?;
        // A second poller sees both arrive, so the first report of the poller under test is about both.
        let witness = Poller::new()?;
        witness.add(near.as_fd(), KEY)?;
        await_all(&witness, Readiness::READABLE | Readiness::READ_HUP)?;

        let [edge] = look(&poller)?[..] else { panic!("not one event") };
        assert!(edge.readiness.contains(Readiness::READABLE | Readiness::READ_HUP), "{edge:?}");
        assert!(
            !edge.readiness.intersects(Readiness::HUP | Readiness::ERROR),
            "only half is closed: {edge:?}"
        );
        assert!(!edge.readiness.sticky().short_read_drains());

        let mut buffer = [0; 64];
        assert_eq!(near.read(&mut buffer)?, b"last words".len(), "a short read");
        assert_eq!(look(&poller)?, [], "the end has no edge of its own");
        assert_eq!(near.read(&mut buffer)?, 0);
    }
    Ok(())
}

#[test]
fn a_reset_wakes_both_sides() -> Outcome {
    for poller in pollers()? {
        let (mut near, far) = tcp_pair()?;
        poller.add(near.as_fd(), KEY)?;
        await_all(&poller, Readiness::WRITABLE)?;

        near.write_all(b"never read")?;
        // The far end closes with bytes that have arrived and were not read, which makes the close a reset.
        far.peek(&mut [0])?;
        drop(far);

        let seen = await_all(&poller, Readiness::HUP | Readiness::ERROR)?;
        assert!(seen.wakes_reader() && seen.wakes_writer());
        assert!(!seen.sticky().short_read_drains());
        let reset = near.read(&mut [0; 8]).expect_err("the connection was reset");
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    }
    Ok(())
}

/// Fails if a level-triggered registration repeats a report, or if a second edge is lost.
#[test]
fn each_change_is_reported_once() -> Outcome {
    for poller in pollers()? {
        let (near, mut far) = UnixStream::pair()?;
        poller.add(near.as_fd(), KEY)?;
        assert_eq!(look(&poller)?, [Event { key: KEY, readiness: Readiness::WRITABLE }], "ready when added");
        assert_eq!(look(&poller)?, []);
        for _ in 0..2 {
            far.write_all(b"more")?;
            let both = Readiness::READABLE | Readiness::WRITABLE;
            assert_eq!(look(&poller)?, [Event { key: KEY, readiness: both }]);
            assert_eq!(look(&poller)?, [], "unread, and not reported again");
        }
    }
    Ok(())
}

#[test]
fn room_to_write_is_an_edge_after_the_peer_has_read() -> Outcome {
    for poller in pollers()? {
        let (mut near, mut far) = tcp_pair()?;
        poller.add(near.as_fd(), KEY)?;
        let mut sent = 0;
        let full = loop {
            match near.write(&[7; 64 << 10]) {
                Ok(count) => sent += count,
                Err(full) => break full,
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        look(&poller)?;

        let mut buffer = vec![0; sent];
        far.read_exact(&mut buffer)?;
        assert!(await_all(&poller, Readiness::WRITABLE)?.wakes_writer());
        assert!(near.write(b"x")? == 1);
    }
    Ok(())
}

/// Fails when room to write is an event: there is room again after each datagram.
#[test]
fn a_registration_for_reads_reports_reads_alone() -> Outcome {
    for poller in pollers()? {
        let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
        near.set_nonblocking(true)?;
        poller.add_for_reads(near.as_fd(), KEY)?;
        for _ in 0..3 {
            near.send_to(b"ask", far.local_addr()?)?;
            assert_eq!(look(&poller)?, [], "nothing to read");
            far.send_to(b"answer", near.local_addr()?)?;
            assert_eq!(look(&poller)?, [Event { key: KEY, readiness: Readiness::READABLE }]);
        }
        poller.add_writes(near.as_fd(), KEY)?;
        let both = Readiness::READABLE | Readiness::WRITABLE;
        assert_eq!(look(&poller)?, [Event { key: KEY, readiness: both }], "what is there, and was reported");
        assert_eq!(look(&poller)?, []);
        poller.remove(near.as_fd())?;
        poller.add_writes(near.as_fd(), KEY).expect_err("it is not registered");
    }
    Ok(())
}

/// Fails when a descriptor that is registered for reads alone gets no report of the end, or of a reset.
#[test]
fn a_registration_for_reads_reports_the_end() -> Outcome {
    for poller in pollers()? {
        let (mut near, far) = tcp_pair()?;
        poller.add_for_reads(near.as_fd(), KEY)?;
        near.write_all(b"never read")?;
        far.peek(&mut [0])?;
        drop(far);
        let seen = await_all(&poller, Readiness::HUP | Readiness::ERROR | Readiness::READ_HUP)?;
        assert!(seen.wakes_reader() && seen.wakes_writer());
    }
    Ok(())
}

/// The poller reports room that came before the watch for writes. Fails when the wait finds no event.
#[test]
fn room_from_before_the_watch_for_writes_is_reported() -> Outcome {
    for poller in pollers()? {
        let (mut near, mut far) = tcp_pair()?;
        poller.add_for_reads(near.as_fd(), KEY)?;
        let mut sent = 0;
        while let Ok(count) = near.write(&[7; 64 << 10]) {
            sent += count;
        }
        far.read_exact(&mut vec![0; sent])?;
        poller.add_writes(near.as_fd(), KEY)?;
        assert!(await_all(&poller, Readiness::WRITABLE)?.wakes_writer());
        assert!(near.write(b"x")? == 1);
    }
    Ok(())
}

#[test]
fn an_event_of_an_earlier_use_is_told_by_its_generation() -> Outcome {
    for poller in pollers()? {
        let later = Key { generation: KEY.generation + 1, ..KEY };
        let (near, mut far) = UnixStream::pair()?;
        poller.add(near.as_fd(), KEY)?;
        far.write_all(b"old")?;
        let fetched = look(&poller)?;
        poller.remove(near.as_fd())?;
        drop(near);

        let (again, mut far) = UnixStream::pair()?;
        poller.add(again.as_fd(), later)?;
        far.write_all(b"new")?;
        assert_eq!(fetched.iter().map(|event| event.key).collect::<Vec<_>>(), [KEY]);
        assert_eq!(look(&poller)?.iter().map(|event| event.key).collect::<Vec<_>>(), [later]);
    }
    Ok(())
}

#[test]
fn after_remove_a_descriptor_is_silent() -> Outcome {
    for poller in pollers()? {
        let (near, mut far) = UnixStream::pair()?;
        poller.add(near.as_fd(), KEY)?;
        far.write_all(b"pending")?;
        poller.remove(near.as_fd())?;
        far.write_all(b"and later")?;
        assert_eq!(look(&poller)?, []);
        poller.add(near.as_fd(), KEY)?;
        assert_eq!(look(&poller)?.len(), 1, "what is there already is reported to who adds it again");
    }
    Ok(())
}

/// The reason for "remove before close": the registration lives as long as the last duplicate, and can't be removed any more.
#[test]
fn a_duplicate_keeps_a_closed_descriptor_reporting() -> Outcome {
    for poller in pollers()? {
        let (near, mut far) = UnixStream::pair()?;
        poller.add(near.as_fd(), KEY)?;
        look(&poller)?;
        let duplicate = near.try_clone()?;
        drop(near);
        far.write_all(b"x")?;
        assert_eq!(look(&poller)?.len(), 1);
        assert_eq!(poller.remove(duplicate.as_fd()).unwrap_err().kind(), ErrorKind::NotFound);
    }
    Ok(())
}

#[test]
fn a_refused_registration_says_what_was_attempted() -> Outcome {
    for poller in pollers()? {
        let (near, _far) = UnixStream::pair()?;
        poller.add(near.as_fd(), KEY)?;
        let twice = poller.add(near.as_fd(), KEY).expect_err("registered already");
        assert_eq!(twice.kind(), ErrorKind::AlreadyExists);
        assert!(twice.to_string().starts_with("cannot register descriptor "), "{twice}");

        let file = std::fs::File::open("/proc/self/exe")?;
        let regular = poller.add(file.as_fd(), KEY).expect_err("epoll watches no regular file");
        assert_eq!(regular.kind(), ErrorKind::PermissionDenied);

        let (stranger, _) = UnixStream::pair()?;
        let unknown = poller.remove(stranger.as_fd()).expect_err("never registered");
        assert_eq!(unknown.kind(), ErrorKind::NotFound);
        assert!(unknown.to_string().starts_with("cannot deregister descriptor "), "{unknown}");
    }
    Ok(())
}
