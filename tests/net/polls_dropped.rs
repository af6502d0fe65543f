//! Dropped polls of sockets: a future that was told to wait, and is dropped, has taken no data, and keeps no data from other
//! readers or writers. The tests count all connections, datagrams and bytes, between whole calls of a task and of a goroutine.

use super::polls::{Stream, gmp_until, poll_once, read, read_to_end};
use super::unix::abstract_name;
use common::everywhere;
use common::loopback::{listen, pair};
use common::talk::pattern;
use gmp::net::{TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};
use gmp::{block_on, go};
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

/// Counts the wakes of a task that no longer polls.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// When a future that was told to wait is dropped.
#[derive(Copy, Clone)]
enum Dropped {
    /// Before the event. The event finds the waker of the goroutine's own `block_on`.
    AtOnce,
    /// After its waker, one of another executor, was called. The task leaves the event to the others.
    WhenWoken,
}
use Dropped::{AtOnce, WhenWoken};

/// Polls a future once. Returns its output if it was ready; or calls `meanwhile` and drops the future.
fn poll_and_drop<T>(
    future: impl Future<Output = T>,
    dropped: Dropped,
    meanwhile: impl FnOnce(),
) -> Option<T> {
    match dropped {
        AtOnce => {
            let mut future = Box::pin(future);
            let polled = block_on(poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))));
            drop(future);
            if let Poll::Ready(output) = polled {
                return Some(output);
            }
            meanwhile();
        }
        WhenWoken => {
            let (wakes, mut future) = (Arc::new(Wakes::default()), pin!(future));
            let waker = Waker::from(Arc::clone(&wakes));
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Some(output);
            }
            meanwhile();
            gmp_until(|| wakes.0.load(SeqCst) > 0);
        }
    }
    None
}

/// Clients connect while accepts are dropped. Fails when a connection is lost with a dropped future, or by a hang when an event
/// is lost.
#[test]
fn a_dropped_accept_takes_no_connection() {
    const CLIENTS: usize = 40;
    fn all<S: Read, C: Write + Send + 'static>(
        poll: impl Fn(&mut Context<'_>) -> Poll<io::Result<S>>,
        accept: impl Fn() -> io::Result<S>,
        connect: impl Fn() -> C + Clone + Send + 'static,
    ) {
        for first in [AtOnce, WhenWoken] {
            let (connect, mut clients) = (connect.clone(), None);
            // Each client sends its number.
            let come = move || {
                let client = |n: usize| {
                    let mut client = connect();
                    client.write_all(&[n as u8]).unwrap();
                    gmp::yield_now();
                    client
                };
                (0..CLIENTS).map(client).collect::<Vec<_>>()
            };
            assert!(poll_and_drop(poll_fn(&poll), first, || clients = Some(go(come))).is_none());
            let (mut came, mut turns) = (Vec::new(), (0..4).cycle());
            while came.len() < CLIENTS {
                let accepted = match turns.next().unwrap() {
                    0 => poll_and_drop(poll_fn(&poll), AtOnce, || ()),
                    1 => Some(block_on(poll_fn(&poll))),
                    2 => poll_and_drop(poll_fn(&poll), WhenWoken, || ()),
                    _ => Some(accept()),
                };
                if let Some(stream) = accepted {
                    let mut byte = [0];
                    stream.unwrap().read_exact(&mut byte).unwrap();
                    came.push(usize::from(byte[0]));
                }
            }
            came.sort_unstable();
            assert!(came.iter().copied().eq(0..CLIENTS), "{came:?}");
            assert!(poll_once(&poll).is_pending(), "one more");
            drop(clients.unwrap().join().unwrap());
        }
    }
    everywhere(|rt| {
        rt.run(|| {
            let (tcp, addr) = listen();
            all(
                |cx| tcp.poll_accept(cx).map_ok(|(stream, _)| stream),
                || tcp.accept().map(|(stream, _)| stream),
                move || TcpStream::connect(addr).unwrap(),
            );
            let name = abstract_name();
            let unix = UnixListener::bind_addr(&name).unwrap();
            all(
                |cx| unix.poll_accept(cx).map_ok(|(stream, _)| stream),
                || unix.accept().map(|(stream, _)| stream),
                move || UnixStream::connect_addr(&name).unwrap(),
            );
        });
    });
}

/// Futures are made, polled once, and dropped at each turn, between whole reads of a task and of a goroutine. Fails when a byte
/// is lost with a dropped future, or by a hang when an event is lost.
#[test]
fn a_dropped_read_takes_nothing_with_it() {
    everywhere(|rt| {
        rt.run(|| {
            for first in [AtOnce, WhenWoken] {
                let (near, far) = pair();
                let sent = pattern(11, 20_000);
                let (near, mut writes) = (Arc::new(near), None);
                let write = {
                    let (sent, near) = (sent.clone(), Arc::clone(&near));
                    move || {
                        for piece in sent.chunks(97) {
                            (&*near).write_all(piece).unwrap();
                            gmp::yield_now();
                        }
                        near.shutdown(Shutdown::Write).unwrap();
                    }
                };
                let (mut got, mut buf) = (Vec::<u8>::new(), [0; 64]);
                let begin = || writes = Some(go(write));
                assert!(poll_and_drop(read(&far, &mut buf), first, begin).is_none());
                for turn in 0.. {
                    // Only a poll that is ready has taken bytes.
                    let read = match turn % 4 {
                        0 => poll_and_drop(read(&far, &mut buf), AtOnce, || ()),
                        1 => Some(block_on(read(&far, &mut buf))),
                        2 => poll_and_drop(read(&far, &mut buf), WhenWoken, || ()),
                        _ => Some((&far).read(&mut buf)),
                    };
                    match read.map(Result::unwrap) {
                        Some(0) => break,
                        Some(read) => got.extend(&buf[..read]),
                        None => {}
                    }
                }
                assert!(got == sent, "{} of {}", got.len(), sent.len());
                writes.unwrap().join().unwrap();
            }
        });
    });
}

/// Writes that find no room are dropped, before the peer reads and while it does. Fails when a dropped future has written a
/// byte, or by a hang when no writer is told of room any more.
#[test]
fn a_dropped_write_has_written_nothing() {
    const LONG: usize = 8 << 20;
    fn all<S: Stream>((near, far): (S, S), first: Dropped)
    where
        for<'a> &'a S: Write,
    {
        let (near, sent) = (&near, &pattern(5, LONG)[..]);
        let write = |at: usize| poll_fn(move |cx| near.poll_write(cx, &sent[at..]));
        let reads = move || block_on(read_to_end(&far, 3000)).unwrap();
        let (mut at, mut reads, mut reader) = (0, Some(reads), None);
        // The first poll that finds no room starts the peer's reads.
        while reader.is_none() {
            let begin = || reader = Some(go(reads.take().unwrap()));
            if let Some(wrote) = poll_and_drop(write(at), first, begin) {
                at += wrote.unwrap();
                assert!(at < LONG, "there is too much room");
            }
        }
        let (mut turns, mut output) = ((0..4).cycle(), near);
        while at < LONG {
            let wrote = match turns.next().unwrap() {
                0 => poll_and_drop(write(at), AtOnce, || ()),
                1 => Some(block_on(write(at))),
                2 => poll_and_drop(write(at), WhenWoken, || ()),
                _ => Some(output.write(&sent[at..])),
            };
            at += wrote.map_or(0, Result::unwrap);
        }
        near.end();
        let got = reader.unwrap().join().unwrap();
        assert!(got == sent, "{} of {LONG}", got.len());
    }
    everywhere(|rt| {
        rt.run(|| {
            for first in [AtOnce, WhenWoken] {
                all(pair(), first);
                all(UnixStream::pair().unwrap(), first);
            }
        });
    });
}

/// Both ends of a pair drop sends that find no room, and receives that find nothing. Fails when a datagram is lost or sent
/// twice, or by a hang.
#[test]
fn dropped_sends_and_receives_lose_and_double_no_datagram() {
    // More datagrams than there is room for.
    const COUNT: usize = 600;
    fn receive_all(far: &UnixDatagram) {
        let (mut next, mut turns, mut buf) = (0_usize, (0..6).cycle(), [0; 16]);
        while next < COUNT {
            let got = match turns.next().unwrap() {
                0 => poll_and_drop(poll_fn(|cx| far.poll_recv(cx, &mut buf)), AtOnce, || ()),
                1 => Some(block_on(poll_fn(|cx| far.poll_recv(cx, &mut buf)))),
                2 => poll_and_drop(poll_fn(|cx| far.poll_recv(cx, &mut buf)), WhenWoken, || ()),
                3 => Some(far.recv(&mut buf)),
                n => {
                    let receive = poll_fn(|cx| far.poll_recv_from(cx, &mut buf));
                    let got = poll_and_drop(receive, if n == 4 { AtOnce } else { WhenWoken }, || ());
                    got.map(|got| got.map(|(len, _)| len))
                }
            };
            if let Some(got) = got {
                assert_eq!(buf[..got.unwrap()], next.to_le_bytes());
                next += 1;
            }
        }
        assert!(poll_once(|cx| far.poll_recv(cx, &mut buf)).is_pending(), "one more");
    }
    everywhere(|rt| {
        rt.run(|| {
            for first in [AtOnce, WhenWoken] {
                let (near, far) = UnixDatagram::pair().unwrap();
                let near = &near;
                let send = |n: usize| poll_fn(move |cx| near.poll_send(cx, &n.to_le_bytes()));
                let (mut next, mut receives) = (0, None);
                let mut begin = Some(move || receive_all(&far));
                while receives.is_none() {
                    let begins = || receives = Some(go(begin.take().unwrap()));
                    if let Some(sent) = poll_and_drop(send(next), first, begins) {
                        assert_eq!(sent.unwrap(), 8);
                        next += 1;
                        assert!(next < COUNT, "there is too much room");
                    }
                }
                let mut turns = (0..4).cycle();
                while next < COUNT {
                    let sent = match turns.next().unwrap() {
                        0 => poll_and_drop(send(next), AtOnce, || ()),
                        1 => Some(block_on(send(next))),
                        2 => poll_and_drop(send(next), WhenWoken, || ()),
                        _ => Some(near.send(&next.to_le_bytes())),
                    };
                    next += usize::from(sent.is_some_and(|sent| sent.unwrap() == 8));
                }
                receives.unwrap().join().unwrap();
            }
        });
    });
}

/// The same with UDP, one datagram at a time. The kernel drops datagrams for which there is no room, so over the loopback no
/// send waits. Fails when a datagram is lost with a dropped receive, or comes twice.
#[test]
fn a_dropped_receive_takes_no_datagram_of_udp() {
    everywhere(|rt| {
        rt.run(|| {
            let (near, far) =
                (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
            let to = far.local_addr().unwrap();
            near.connect(to).unwrap();
            far.connect(near.local_addr().unwrap()).unwrap();
            for round in 0_usize..120 {
                let (sent, mut buf) = (round.to_le_bytes(), [0; 16]);
                let send = || {
                    let polled = match round % 3 {
                        0 => poll_and_drop(poll_fn(|cx| near.poll_send(cx, &sent)), AtOnce, || ()),
                        1 => poll_and_drop(poll_fn(|cx| near.poll_send_to(cx, &sent, to)), AtOnce, || ()),
                        _ => Some(near.send(&sent)),
                    };
                    assert_eq!(polled.expect("there is room").unwrap(), 8);
                };
                let dropped = if round % 2 == 0 { AtOnce } else { WhenWoken };
                let nothing = match round / 2 % 2 {
                    0 => poll_and_drop(poll_fn(|cx| far.poll_recv(cx, &mut buf)), dropped, send).is_none(),
                    _ => {
                        poll_and_drop(poll_fn(|cx| far.poll_recv_from(cx, &mut buf)), dropped, send).is_none()
                    }
                };
                assert!(nothing, "round {round}");
                let got = match round / 4 % 3 {
                    0 => block_on(poll_fn(|cx| far.poll_recv(cx, &mut buf))),
                    1 => block_on(poll_fn(|cx| far.poll_recv_from(cx, &mut buf))).map(|(len, _)| len),
                    _ => far.recv(&mut buf),
                };
                assert_eq!(buf[..got.unwrap()], sent);
            }
            assert!(poll_once(|cx| far.poll_recv(cx, &mut [0; 16])).is_pending(), "one more");
        });
    });
}
