//! Copies in both directions.

use common::child;
use common::crew::{Crew, everyone};
use common::mappings::{AllMappings, most_mappings};
use common::talk::pattern;
use gmp::context::{Context, ContextError};
use gmp::io::copy_bidirectional;
use gmp::net::{TcpStream, UnixStream, is_closed};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn whole(mut from: impl Read) -> Vec<u8> {
    let mut got = Vec::new();
    from.read_to_end(&mut got).unwrap();
    got
}

/// Returns a client, the two ends between which a proxy copies, and a server.
fn chain() -> (TcpStream, TcpStream, UnixStream, UnixStream) {
    let ((client, a), (b, server)) = (common::loopback::pair(), UnixStream::pair().unwrap());
    (client, a, b, server)
}

/// Fails when a byte is lost in either direction, when an end is not passed on, or when it is passed on too early.
#[test]
fn each_direction_ends_by_itself() {
    everyone(|crew| {
        for (request, answer) in [(0, 0), (5, 300_000), (300_000, 5), (1_000_003, 1_000_007)] {
            let (client, a, b, server) = chain();
            let proxy = crew.go(move || copy_bidirectional(&a, &b).map_err(|failed| failed.to_string()));
            let server = crew.go(move || {
                let got = whole(&server);
                (&server).write_all(&pattern(2, answer)).unwrap();
                got
            });
            let client = crew.go(move || {
                (&client).write_all(&pattern(1, request)).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
                whole(&client)
            });
            assert!(server.join() == pattern(1, request));
            assert!(client.join() == pattern(2, answer));
            assert_eq!(proxy.join(), Ok((request as u64, answer as u64)));
        }
    });
}

/// Fails by SIGABRT: std ends the process if the kernel refuses a mapping that std makes when a thread starts.
#[test]
fn a_second_thread_for_which_there_are_too_few_mappings_is_refused() {
    const NAME: &str = "a_second_thread_for_which_there_are_too_few_mappings_is_refused";
    if !child::is_child() {
        return drop(child::passes(NAME, &[]));
    }
    let Some(most) = most_mappings() else { return };
    // Both directions have ended.
    let copies = || {
        let [a, b] = [(); 2].map(|()| UnixStream::pair().unwrap().0);
        copy_bidirectional(&a, &b)
    };
    assert_eq!(copies().unwrap(), (0, 0));
    let mut full = AllMappings::begin(most);
    let refused = copies().unwrap_err().error().to_string();
    let enough = (1..100).find(|_| {
        full.give_one_back();
        (0..20).all(|_| copies().is_ok())
    });
    assert!(enough.is_some());
    assert!(refused.contains("the second direction can't be started: no room"), "{refused}");
}

/// Fails when one direction waits for the other.
#[test]
fn both_directions_go_on_at_once() {
    everyone(|crew| {
        let (client, a, b, server) = chain();
        let proxy = crew.go(move || copy_bidirectional(&a, &b).unwrap());
        let server = crew.go(move || {
            let mut byte = [0];
            for _ in 0..200 {
                (&server).read_exact(&mut byte).unwrap();
                (&server).write_all(&[!byte[0]]).unwrap();
            }
        });
        crew.run(move || {
            let mut byte = [0];
            for number in 0..200 {
                (&client).write_all(&[number]).unwrap();
                (&client).read_exact(&mut byte).unwrap();
                assert_eq!(byte, [!number]);
            }
        });
        server.join();
        assert_eq!(proxy.join(), (200, 200));
    });
}

/// Starts a proxy between streams that stay silent, calls `happen`, and returns how the proxy ended.
fn ends(
    crew: &Crew<'_>,
    happen: impl FnOnce(&TcpStream, &UnixStream, TcpStream) + Send + 'static,
) -> (gmp::io::BidirectionalError, UnixStream) {
    let (client, a, b, server) = chain();
    let (a, b) = (Arc::new(a), Arc::new(b));
    let (at_a, at_b) = (Arc::clone(&a), Arc::clone(&b));
    (&client).write_all(b"from a").unwrap();
    (&server).write_all(b"from b!").unwrap();
    let proxy = crew.go(move || copy_bidirectional(&a, &b));
    let server = crew.run(move || {
        (&server).read_exact(&mut [0; 6]).unwrap();
        (&client).read_exact(&mut [0; 7]).unwrap();
        happen(&at_a, &at_b, client);
        server
    });
    (proxy.join().unwrap_err(), server)
}

/// Makes the close of `stream` a reset.
fn resets_on_close(stream: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let (at, len) = ((&raw const linger).cast(), size_of_val(&linger) as libc::socklen_t);
    // SAFETY: the option's value lives through the call.
    let set = unsafe { libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, at, len) };
    assert_eq!(set, 0);
}

/// Fails when the other direction continues, or by a wrong error or count.
#[test]
fn an_error_of_one_direction_ends_both() {
    everyone(|crew| {
        let (failed, _) = ends(crew, |a, _, _client| a.close().unwrap());
        assert!(is_closed(failed.error()), "{failed}");
        assert_eq!(failed.copied(), (6, 7));

        let (failed, _) = ends(crew, |_, b, _client| {
            b.set_read_deadline(Some(Instant::now())).unwrap();
        });
        assert_eq!(failed.kind(), ErrorKind::TimedOut, "{failed}");
        assert_eq!(failed.copied(), (6, 7));

        let (failed, server) = ends(crew, |_, _, client| {
            resets_on_close(&client);
        });
        assert_eq!(failed.kind(), ErrorKind::ConnectionReset, "{failed}");
        assert_eq!((failed.copied(), failed.undelivered()), ((6, 7), (&b""[..], &b""[..])));
        // Both ends were dropped with the proxy.
        assert_eq!(crew.run(move || whole(&server)), b"");
    });
}

/// Both directions of a copy wait for the socket that is reset. The kernel reports a reset once, so the second direction reads
/// zero bytes. Fails when the client sees an orderly end.
#[test]
fn a_reset_that_ends_a_write_is_no_end_for_the_reader() {
    everyone(|crew| {
        for _ in 0..10 {
            let ((client, a), (b, server)) = (common::loopback::pair(), common::loopback::pair());
            let proxy = crew.go(move || (copy_bidirectional(&a, &b).map(drop), a, b));
            // The server reads nothing, so the proxy comes to wait for room.
            client.set_write_timeout(Some(Duration::from_millis(30))).unwrap();
            let fills = crew.go(move || {
                while (&client).write(&[7; 64 << 10]).is_ok() {}
                client
            });
            let client = fills.join();
            resets_on_close(&server);
            drop(server);
            let (failed, _a, _b) = proxy.join();
            // The first direction gives the error: the kernel reports the reset to one direction, and refuses the write of the
            // other.
            let failed = failed.unwrap_err().kind();
            assert!(matches!(failed, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{failed}");
            let silent = crew.run(move || {
                client.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
                (&client).read(&mut [0])
            });
            assert_eq!(silent.map_err(|silent| silent.kind()), Err(ErrorKind::TimedOut));
        }
    });
}

/// This side has ended its writes before the copy begins, so the kernel is done with the connection when the peer's end comes.
/// Fails when the copy takes that end for a reset.
#[test]
fn a_stream_whose_writes_have_ended_before_ends_properly() {
    everyone(|crew| {
        let ((client, a), (b, server)) = (common::loopback::pair(), common::loopback::pair());
        a.shutdown(Shutdown::Write).unwrap();
        let proxy = crew.go(move || (copy_bidirectional(&a, &b).map_err(|failed| failed.to_string()), a, b));
        (&client).write_all(b"last words").unwrap();
        assert_eq!((&client).read(&mut [0]).unwrap(), 0);
        drop(client);
        assert_eq!(whole(&server), b"last words");
        drop(server);
        assert_eq!(proxy.join().0, Ok((10, 0)));
    });
}

/// The context ends while both directions wait, and while the caller waits for the other direction. Fails when a proxy
/// continues or unwinds, or by another error.
#[test]
fn a_context_ends_both() {
    everyone(|crew| {
        for half in [false, true] {
            let (client, a, b, server) = chain();
            let (context, cancel) = Context::background().with_cancel();
            let proxy =
                crew.go(move || context.run(|| copy_bidirectional(&a, &b)).expect("nothing is unwound"));
            if half {
                // Ends the direction from `b`, which is the caller's own.
                server.shutdown(Shutdown::Write).unwrap();
                let client = &client;
                assert_eq!(whole(client), b"");
            }
            proxy.until_it_waits();
            cancel.cancel();
            let failed = proxy.join().unwrap_err();
            let inner = failed.error().get_ref().and_then(|inner| inner.downcast_ref());
            assert_eq!(inner, Some(&ContextError::Canceled), "{failed}");
            drop((client, server));
        }
    });
}

/// Fails when bytes are neither delivered nor reported.
#[test]
fn what_was_not_delivered_is_told() {
    everyone(|crew| {
        let (client, a, b, server) = chain();
        b.set_write_timeout(Some(Duration::from_millis(10))).unwrap();
        let sends = crew.go(move || (&client).write_all(&pattern(1, 8 << 20)).is_err());
        let (failed, rest) = crew.run(move || {
            let failed = copy_bidirectional(&a, &b).unwrap_err();
            let mut rest = Vec::new();
            drop(b);
            a.set_read_deadline(Some(Instant::now() + Duration::from_secs(60))).unwrap();
            (&a).read_to_end(&mut rest).unwrap();
            (failed, rest)
        });
        assert!(!sends.join());
        let mut got = crew.run(move || whole(&server));
        assert_eq!((failed.kind(), failed.copied()), (ErrorKind::TimedOut, (got.len() as u64, 0)));
        assert_eq!(
            failed.to_string(),
            format!("the copies failed after {} bytes one way and 0 the other", got.len())
        );
        let undelivered = failed.undelivered().0.to_vec();
        let ([(copied, from_a), (_, from_b)], error) = failed.into_parts();
        assert_eq!((copied, &from_a, error.kind()), (got.len() as u64, &undelivered, ErrorKind::TimedOut));
        assert!(from_b.is_empty());
        got.extend(from_a);
        got.extend(rest);
        assert!(got == pattern(1, 8 << 20), "{}", got.len());
    });
}

/// Fails by a panic, by a hang, or when the call has taken a byte.
#[test]
fn without_a_second_goroutine_nothing_is_copied() {
    const STACK: usize = 256 << 10;
    for procs in [1, 4] {
        let runtime = gmp::Runtime::builder().procs(procs).stack_size(STACK).max_stack_bytes(STACK);
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        let runtime = unsafe { runtime.build() }.unwrap();
        runtime.run(|| {
            let (client, a, b, _server) = chain();
            (&client).write_all(b"hello").unwrap();
            let failed = copy_bidirectional(&a, &b).unwrap_err();
            assert_eq!(failed.kind(), ErrorKind::QuotaExceeded, "{failed}");
            let told = failed.error().to_string();
            assert!(
                told.starts_with("copy_bidirectional: the second direction can't be started: "),
                "{told}"
            );
            assert_eq!((failed.copied(), failed.undelivered()), ((0, 0), (&[][..], &[][..])));
            let mut got = [0; 5];
            (&a).read_exact(&mut got).unwrap();
            assert_eq!(&got, b"hello");
        });
    }
}

/// The program itself closes the sink. Fails when the copy reports a reset instead of the close.
#[test]
fn a_sink_that_was_closed_here_is_told_as_closed() {
    everyone(|crew| {
        let (client, a, b, server) = chain();
        let (a, b) = (Arc::new(a), Arc::new(b));
        let (at_a, at_b) = (Arc::clone(&a), Arc::clone(&b));
        let proxy = crew.go(move || copy_bidirectional(&*at_a, &*at_b));
        crew.run(move || {
            // One direction is over when the client sees the end.
            drop(server);
            assert_eq!(whole(&client), b"");
            b.close().unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            drop(a);
        });
        let failed = proxy.join().unwrap_err();
        assert!(is_closed(failed.error()), "{failed}");
    });
}
