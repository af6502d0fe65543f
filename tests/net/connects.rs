//! A storm of connects loses no connection between the kernel's queue and the goroutine that serves it.

use common::child;
use common::descriptors::allow_descriptors;
use common::loopback::{Hole, listen};
use common::talk::echo;
use common::{effort, runtime, until, watched};
use gmp::net::{DialConfig, TcpListener, TcpStream};
use gmp::{go, yield_now};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{self, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

/// The number of connects is several times the number of clients that connect at once. The queue is fullest at the start.
const CONNECTS: usize = 5_000;
const AT_ONCE: usize = 1_000;
/// An address has 28,000 ports for its clients, and a port can't be used again for a minute after its connection.
const SOURCES: usize = 32;

/// Returns how many connections the kernel has dropped at this listener, also those for which its queue had no room.
/// `ListenOverflows` counts the latter for all listeners of the machine together, and other tests and programs change that
/// count.
fn dropped(listener: &TcpListener) -> u32 {
    /// The index of the drops in `SO_MEMINFO`, and the length of `SO_MEMINFO`; libc has no names for them.
    const DROPS: usize = 8;
    const LENGTH: usize = 9;
    let mut info = [0_u32; LENGTH];
    let mut length = size_of_val(&info) as libc::socklen_t;
    let (fd, at) = (listener.as_raw_fd(), info.as_mut_ptr());
    // SAFETY: the kernel writes no more than `length` bytes to `info`, and how many it wrote to `length`.
    let done =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, at.cast(), &raw mut length) };
    assert_eq!(done, 0, "SO_MEMINFO: {}", std::io::Error::last_os_error());
    assert!(length as usize > DROPS * size_of::<u32>(), "SO_MEMINFO has {length} bytes");
    info[DROPS]
}

/// Returns how many connections may wait in a queue, at most.
fn longest_queue() -> usize {
    let text = fs::read_to_string("/proc/sys/net/core/somaxconn").expect("/proc is mounted");
    text.trim().parse().expect("a number")
}

/// Checks the counter that the storm relies on. Fails if the kernel does not count a connection for which the queue has no
/// room.
#[test]
fn a_connection_that_finds_the_queue_full_is_counted_at_its_listener() {
    let hole = Hole::new();
    let before = dropped(&hole.listener);
    let late = net::TcpStream::connect_timeout(&hole.addr, Duration::from_millis(50)).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    assert!(dropped(&hole.listener) > before, "still {before}");
    let (listener, addr) = listen();
    let _near = net::TcpStream::connect(addr).expect("the queue has room");
    assert_eq!(dropped(&listener), 0);
}

/// Fails by a count if one of the first thousand connections, which are not accepted yet, finds no room in the queue, or if
/// later ones come faster than they are accepted. Fails by a wrong answer or a hang if an accepted connection is not served.
#[test]
fn a_storm_of_connects_loses_none() {
    allow_descriptors(2 * AT_ONCE as u64 + 1_000);
    let at_once = AT_ONCE.min(longest_queue());
    for procs in [1, 4] {
        watched(procs, || runtime(procs).run(move || storm(at_once)));
    }
}

/// Fails when a goroutine whose connects are made at once gives no turn away: the goroutine that accepts would wait until the
/// queue of the listener is full.
#[test]
fn connects_give_turns_away() {
    const CONNECTS: usize = 16;
    child::without_retakes("connects_give_turns_away", || {
        runtime(1).run(|| {
            let (_listener, addr) = listen();
            let turns = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&turns);
            go(move || {
                loop {
                    counted.fetch_add(1, SeqCst);
                    yield_now();
                }
            });
            let streams: Vec<_> =
                (0..CONNECTS).map(|_| TcpStream::connect(addr).expect("it listens")).collect();
            // Not a turn for each: a policy may choose the caller again.
            assert!(turns.load(SeqCst) > 0, "no turn beside {} connects", streams.len());
        });
    });
}

/// Runs `at_once` clients, each of which connects, has its number echoed, and disconnects, again and again.
fn storm(at_once: usize) {
    let connects = CONNECTS * effort() as usize;
    let (listener, addr) = listen();
    let listener = Arc::new(listener);
    let (begun, connected) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let client = |_| {
        let (begun, connected) = (Arc::clone(&begun), Arc::clone(&connected));
        go(move || {
            let mut answered = 0;
            loop {
                let number = begun.fetch_add(1, SeqCst);
                if number >= connects {
                    return answered;
                }
                ask(addr, number, &connected);
                answered += 1;
            }
        })
    };
    let clients: Vec<_> = (0..at_once).map(client).collect();
    // Either all first connections are in the queue at the same time, or the kernel has dropped one.
    until(|| connected.load(SeqCst) == at_once || dropped(&listener) > 0);
    assert_eq!(dropped(&listener), 0, "beside {} in the queue", connected.load(SeqCst));
    let accepting = go({
        let listener = Arc::clone(&listener);
        move || {
            let serving: Vec<_> = (0..connects)
                .map(|_| {
                    let (stream, _) = listener.accept().expect("one comes");
                    go(move || echo(stream, 64))
                })
                .collect();
            serving.into_iter().for_each(|one| one.join().expect("it ends in order"));
        }
    });
    let answered: usize = clients.into_iter().map(|client| client.join().expect("it was answered")).sum();
    accepting.join().expect("each was accepted");
    assert_eq!((answered, connected.load(SeqCst)), (connects, connects));
    assert_eq!(dropped(&listener), 0, "of {connects}");
}

fn ask(addr: SocketAddr, number: usize, connected: &AtomicUsize) {
    let source = SocketAddr::from(([127, 0, 0, 1 + (number % SOURCES) as u8], 0));
    let mut stream = DialConfig::new().local_addr(source).connect(addr).expect("it listens");
    connected.fetch_add(1, SeqCst);
    let (sent, mut got) = (number.to_ne_bytes(), [0; size_of::<usize>()]);
    stream.write_all(&sent).expect("it fits");
    stream.read_exact(&mut got).expect("the server answers");
    assert_eq!(got, sent, "connection {number} of {source}");
}

/// Fails when the error of a connect whose time has ended its wait comes only after another turn of the goroutine.
#[test]
fn a_connect_whose_time_is_over_does_not_yield() {
    child::without_retakes("a_connect_whose_time_is_over_does_not_yield", || {
        static SUSPENDS: AtomicUsize = AtomicUsize::new(0);
        gmp::hooks::register(|| _ = SUSPENDS.fetch_add(1, SeqCst), || {});
        runtime(1).run(|| {
            let (hole, before) = (Hole::new(), SUSPENDS.load(SeqCst));
            let over = TcpStream::connect_timeout(&hole.addr, Duration::from_millis(10)).unwrap_err();
            assert_eq!((over.kind(), SUSPENDS.load(SeqCst) - before), (ErrorKind::TimedOut, 1));
        });
    });
}

/// Fails when a goroutine goes on connecting although its runtime has begun to end: where a listener keeps up, the goroutine
/// waits for nothing else than its turn, and would outlive its runtime.
#[test]
fn a_connect_that_is_made_at_once_ends_with_the_runtime() {
    let listener = net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    let (begun, made) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let runtime = runtime(2);
    // One address, and two, of which the first one answers.
    for addrs in [vec![addr], vec![addr, addr]] {
        let (ends, begun, made) = (runtime.handle(), Arc::clone(&begun), Arc::clone(&made));
        drop(runtime.go(move || {
            begun.fetch_add(1, SeqCst);
            while !ends.is_ended() {
                thread::yield_now();
            }
            let _stream = TcpStream::connect(&*addrs).expect("it listens");
            made.fetch_add(1, SeqCst);
        }));
    }
    until(|| begun.load(SeqCst) == 2);
    drop(runtime);
    assert_eq!(made.load(SeqCst), 0);
    for _ in 0..2 {
        listener.accept().expect("each has connected");
    }
}
