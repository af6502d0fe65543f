//! Polls of sockets: a task is told of each event, whatever else uses the socket, and takes no data that it does not return.

use common::gate::Gate;
use common::loopback::{listen, pair};
use common::talk::pattern;
use common::within::within;
use common::{child, dumps, everywhere, runtime, until};
use gmp::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixStream, is_closed};
use gmp::{JoinHandle, block_on, go};
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{self, Shutdown};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::thread::{self};
use std::time::Duration;

/// The calls that all streams have.
pub(super) trait Stream: Send + Sync + 'static {
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>>;
    fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>>;
    fn end(&self);
}

macro_rules! stream {
    ($name:ident) => {
        impl Stream for $name {
            fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
                $name::poll_read(self, cx, buf)
            }
            fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                $name::poll_write(self, cx, buf)
            }
            fn end(&self) {
                self.shutdown(Shutdown::Write).unwrap();
            }
        }
    };
}

stream!(TcpStream);
stream!(UnixStream);

pub(super) async fn read(stream: &impl Stream, buf: &mut [u8]) -> io::Result<usize> {
    poll_fn(|cx| stream.poll_read(cx, buf)).await
}

pub(super) async fn write_all(stream: &impl Stream, mut buf: &[u8]) -> io::Result<()> {
    while !buf.is_empty() {
        let sent = poll_fn(|cx| stream.poll_write(cx, buf)).await?;
        buf = &buf[sent..];
    }
    Ok(())
}

pub(super) async fn read_to_end(stream: &impl Stream, room: usize) -> io::Result<Vec<u8>> {
    let (mut all, mut buf) = (Vec::new(), vec![0; room]);
    loop {
        match read(stream, &mut buf).await? {
            0 => return Ok(all),
            got => all.extend(&buf[..got]),
        }
    }
}

/// Polls both futures until both are ready.
async fn both<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut first, mut second) = (None, None);
    poll_fn(|cx| {
        if first.is_none()
            && let Poll::Ready(output) = one.as_mut().poll(cx)
        {
            first = Some(output);
        }
        if second.is_none()
            && let Poll::Ready(output) = other.as_mut().poll(cx)
        {
            second = Some(output);
        }
        if first.is_some() && second.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (first.unwrap(), second.unwrap())
}

/// Runs the future in a goroutine's `block_on`, and returns when the goroutine has been told to wait.
pub(super) fn go_until_it_waits<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let waits = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&waits);
    let handle = go(move || {
        let mut future = pin!(future);
        block_on(poll_fn(|cx| {
            let polled = future.as_mut().poll(cx);
            if polled.is_pending() {
                tells.store(true, SeqCst);
            }
            polled
        }))
    });
    gmp_until(|| waits.load(SeqCst) || handle.is_finished());
    handle
}

/// Blocks the goroutine until the condition holds.
pub(super) fn gmp_until(reached: impl Fn() -> bool) {
    while !reached() {
        gmp::time::sleep(Duration::from_micros(200));
    }
}

/// Polls once, by a task whose wakes do nothing.
pub(super) fn poll_once<T>(poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    poll(&mut Context::from_waker(Waker::noop()))
}

/// Sends all data back, in pieces of up to `room` bytes.
pub(super) async fn echo(stream: &impl Stream, room: usize) -> io::Result<()> {
    let mut buf = vec![0; room];
    loop {
        match read(stream, &mut buf).await? {
            0 => break,
            got => write_all(stream, &buf[..got]).await?,
        }
    }
    stream.end();
    Ok(())
}

/// Many connections echo at once, each with pieces of its own size. Fails by a hang, or by bytes of another connection.
#[test]
fn many_tasks_echo_at_the_same_time() {
    fn all<S: Stream>(pairs: impl Iterator<Item = (S, S)>) {
        let serving: Vec<_> = pairs
            .enumerate()
            .flat_map(|(n, (near, far))| {
                let echoes = go(move || block_on(echo(&far, 1 + n * 37 % 3000)).unwrap());
                let talks = go(move || {
                    block_on(async {
                        for round in 0..10 {
                            let sent = pattern(n * 10 + round, 1 + (n * 131 + round * 977) % 5000);
                            let mut back = vec![0; sent.len()];
                            let mut filled = 0;
                            write_all(&near, &sent).await.unwrap();
                            while filled < back.len() {
                                filled += read(&near, &mut back[filled..]).await.unwrap();
                            }
                            assert!(back == sent, "connection {n}, round {round}");
                        }
                    });
                });
                [echoes, talks]
            })
            .collect();
        serving.into_iter().for_each(|one| one.join().unwrap());
    }
    everywhere(|rt| {
        rt.run(|| {
            all((0..32).map(|_| pair()));
            all((0..32).map(|_| UnixStream::pair().unwrap()));
        });
    });
}

/// One goroutine polls both directions of a stream, with more data under way than the kernel has room for. Fails by a hang when
/// a poll of one direction waits for the other.
#[test]
fn both_directions_go_on_in_one_goroutine() {
    everywhere(|rt| {
        rt.run(|| {
            let (near, far) = pair();
            let echoes = go(move || block_on(echo(&far, 1000)).unwrap());
            let sent = pattern(7, 3 << 20);
            let (wrote, got) = block_on(both(
                async {
                    let wrote = write_all(&near, &sent).await;
                    near.end();
                    wrote
                },
                read_to_end(&near, 700),
            ));
            wrote.unwrap();
            assert!(got.unwrap() == sent);
            echoes.join().unwrap();
        });
    });
}

/// Reads into slices, and into uninitialised bytes. Fails when a byte is wrong.
#[test]
fn slices_and_uninitialised_bytes_are_filled_in_order() {
    everywhere(|rt| {
        rt.run(|| {
            let (near, far) = UnixStream::pair().unwrap();
            let (tcp_near, tcp_far) = pair();
            block_on(async {
                let parts = [IoSlice::new(b"he"), IoSlice::new(b"llo")];
                assert_eq!(poll_fn(|cx| near.poll_write_vectored(cx, &parts)).await.unwrap(), 5);
                assert_eq!(poll_fn(|cx| tcp_near.poll_write_vectored(cx, &parts)).await.unwrap(), 5);
                let (mut one, mut two) = ([0; 3], [0; 8]);
                for slot in 0..2 {
                    let mut bufs = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
                    let got = poll_fn(|cx| match slot {
                        0 => far.poll_read_vectored(cx, &mut bufs),
                        _ => tcp_far.poll_read_vectored(cx, &mut bufs),
                    });
                    assert_eq!(got.await.unwrap(), 5);
                    assert_eq!((&one, &two[..2]), (b"hel", &b"lo"[..]));
                }
                write_all(&near, b"again").await.unwrap();
                write_all(&tcp_near, b"again").await.unwrap();
                for slot in 0..2 {
                    let mut room = [const { MaybeUninit::uninit() }; 16];
                    let got = poll_fn(|cx| match slot {
                        0 => far.poll_read_uninit(cx, &mut room),
                        _ => tcp_far.poll_read_uninit(cx, &mut room),
                    });
                    let got = got.await.unwrap();
                    // SAFETY: as many bytes were initialised.
                    let text: Vec<u8> =
                        room[..got].iter().map(|byte| unsafe { byte.assume_init() }).collect();
                    assert_eq!(text, b"again");
                }
                assert_eq!(read(&far, &mut []).await.unwrap(), 0, "no room, no wait");
            });
        });
    });
}

/// A goroutine waits in `read`, and a task polls; two bytes come at once, one for each. Fails by a hang when the task waits for
/// the goroutine, or only one of the two is told of an event.
#[test]
fn a_goroutine_and_a_task_read_one_stream() {
    everywhere(|rt| {
        rt.run(|| {
            let (mut near, far) = pair();
            let far = Arc::new(far);
            for _ in within(Duration::from_millis(300), 500) {
                let (theirs, ours) = (Arc::clone(&far), Arc::clone(&far));
                let waits = go(move || (&*theirs).read_exact(&mut [0]).unwrap());
                let polls = go(move || assert_eq!(block_on(read(&*ours, &mut [0])).unwrap(), 1));
                near.write_all(b"ab").unwrap();
                waits.join().unwrap();
                polls.join().unwrap();
            }
        });
    });
}

/// Two goroutines and a task read as much as they can of a long stream, until its end: with buffers that are seldom full, and
/// with buffers that always are. Fails by a hang when one of the readers is not told of a byte or of the end, or by the count.
#[test]
fn goroutines_and_a_task_share_a_stream_to_its_end() {
    const BYTES: usize = 200_000;
    fn reads(far: &TcpStream, room: usize) -> usize {
        let (mut far, mut count, mut buf) = (far, 0, vec![0; room]);
        loop {
            match far.read(&mut buf).unwrap() {
                0 => return count,
                got => count += got,
            }
        }
    }
    everywhere(|rt| {
        for room in [9000, 3] {
            rt.run(move || {
                let (near, far) = pair();
                let [one, two, three] = [(); 3].map({
                    let far = Arc::new(far);
                    move |()| Arc::clone(&far)
                });
                let readers = [
                    go(move || reads(&one, 9000)),
                    go(move || reads(&two, 3)),
                    go(move || block_on(read_to_end(&*three, room)).unwrap().len()),
                ];
                let mut left = BYTES;
                while left > 0 {
                    let piece = left.min(1 + left % 700);
                    (&near).write_all(&vec![7; piece]).unwrap();
                    left -= piece;
                    gmp::yield_now();
                }
                near.shutdown(Shutdown::Write).unwrap();
                let counts = readers.map(|reader| reader.join().unwrap());
                assert_eq!(counts.iter().sum::<usize>(), BYTES, "{counts:?}");
            });
        }
    });
}

/// A goroutine has asked the poller for reads alone; then a task fills the socket. Fails by a hang when the task is not told of
/// room.
#[test]
fn a_task_that_fills_a_socket_hears_of_room() {
    everywhere(|rt| {
        rt.run(|| {
            let (near, mut far) = pair();
            near.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            // The read has waited, so the poller watches the socket.
            assert_eq!((&near).read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
            let sent = pattern(3, 6 << 20);
            let len = sent.len();
            let writes = go_until_it_waits(async move {
                write_all(&near, &sent).await.unwrap();
                near.end();
                near
            });
            let mut got = Vec::new();
            far.read_to_end(&mut got).unwrap();
            assert!(got.len() == len && got == pattern(3, len));
            drop(writes.join().unwrap());
        });
    });
}

/// Fails by a hang when a task waits through the close, or by a wrong error.
#[test]
fn a_close_ends_the_waits_of_tasks() {
    everywhere(|rt| {
        rt.run(|| {
            let (near, _far) = pair();
            let near = Arc::new(near);
            // The socket takes no more bytes.
            while poll_once(|cx| near.poll_write(cx, &[0; 4096])).is_ready() {}
            let (ours, theirs) = (Arc::clone(&near), Arc::clone(&near));
            let reads = go_until_it_waits(async move { read(&*ours, &mut [0]).await.unwrap_err() });
            let writes = go_until_it_waits(async move { write_all(&*theirs, &[0; 4096]).await.unwrap_err() });
            near.close().unwrap();
            assert!(is_closed(&reads.join().unwrap()) && is_closed(&writes.join().unwrap()));
            let Poll::Ready(Err(closed)) = poll_once(|cx| near.poll_read(cx, &mut [0])) else {
                panic!("it is closed")
            };
            assert!(is_closed(&closed));
        });
    });
}

/// A timeout or a deadline holds for calls that block, not for polls. Fails by an error.
#[test]
fn a_timeout_does_not_end_a_tasks_wait() {
    everywhere(|rt| {
        rt.run(|| {
            let (mut near, far) = pair();
            far.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            far.set_deadline(Some(std::time::Instant::now())).unwrap();
            let reads = go_until_it_waits(async move {
                let got = read(&far, &mut [0; 4]).await.unwrap();
                (got, far.set_deadline(None).is_ok())
            });
            gmp::time::sleep(Duration::from_millis(20));
            near.write_all(b"abc").unwrap();
            assert_eq!(reads.join().unwrap(), (3, true));
        });
    });
}

/// Fails by a hang when the task or the goroutine is not told, or when two callers get one connection, or none does.
#[test]
fn a_task_and_a_goroutine_accept_from_one_listener() {
    everywhere(|rt| {
        rt.run(|| {
            let (listener, addr) = listen();
            let (listener, count) = (Arc::new(listener), Arc::new(AtomicUsize::new(0)));
            let firsts: [Gate; 2] = Default::default();
            let accepts = [false, true].map(|polls| {
                let (listener, count) = (Arc::clone(&listener), Arc::clone(&count));
                let (mine, others) =
                    (firsts[usize::from(polls)].clone(), firsts[usize::from(!polls)].clone());
                go(move || {
                    let mut accepted = Vec::new();
                    loop {
                        let one = match polls {
                            true => block_on(poll_fn(|cx| listener.poll_accept(cx))),
                            false => listener.accept(),
                        };
                        match one {
                            Ok((stream, peer)) => {
                                assert_eq!(stream.peer_addr().unwrap(), peer);
                                accepted.push(peer);
                                count.fetch_add(1, SeqCst);
                                // Each takes its second connection only after the other has its first.
                                mine.open();
                                others.pass();
                            }
                            Err(refused) => {
                                assert!(is_closed(&refused), "{refused}");
                                return accepted;
                            }
                        }
                    }
                })
            });
            // Waits until both wait, so that neither finds a connection by its first call.
            until(|| {
                let dump = rt.dump();
                let seen = dumps::read(&dump);
                let waits = |id: u64| seen.iter().any(|g| g.0 == id && !g.1.starts_with("run"));
                accepts.iter().all(|one| waits(one.id().get()))
            });
            let clients = Vec::from_iter((0..64).map(|_| go(move || TcpStream::connect(addr).unwrap())));
            let clients = Vec::from_iter(clients.into_iter().map(|client| client.join().unwrap()));
            gmp_until(|| count.load(SeqCst) >= clients.len());
            listener.close().unwrap();
            let mut accepted = accepts.map(|one| one.join().unwrap()).concat();
            let mut connected = Vec::from_iter(clients.iter().map(|client| client.local_addr().unwrap()));
            accepted.sort_unstable();
            connected.sort_unstable();
            assert_eq!(accepted, connected);
        });
    });
}

/// Fails when a datagram is lost, or by a hang when a sender is not told of room.
#[test]
fn tasks_send_and_receive_datagrams() {
    const COUNT: usize = 300;
    everywhere(|rt| {
        rt.run(|| {
            let (near, far) = UnixDatagram::pair().unwrap();
            let sends = go(move || {
                block_on(async {
                    for n in 0..COUNT {
                        let sent = poll_fn(|cx| near.poll_send(cx, &n.to_le_bytes())).await;
                        assert_eq!(sent.unwrap(), 8);
                    }
                });
                near
            });
            block_on(async {
                for n in 0..COUNT {
                    let mut buf = [0; 16];
                    let got = match n % 2 {
                        0 => poll_fn(|cx| far.poll_recv(cx, &mut buf)).await.unwrap(),
                        _ => poll_fn(|cx| far.poll_recv_from(cx, &mut buf)).await.unwrap().0,
                    };
                    assert_eq!(buf[..got], n.to_le_bytes());
                }
            });
            drop(sends.join().unwrap());

            let (near, far) =
                (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
            let (from, to) = (near.local_addr().unwrap(), far.local_addr().unwrap());
            far.connect(from).unwrap();
            let echoes = go(move || {
                block_on(async {
                    for _ in 0..COUNT {
                        let mut buf = [0; 16];
                        let got = poll_fn(|cx| far.poll_recv(cx, &mut buf)).await.unwrap();
                        poll_fn(|cx| far.poll_send(cx, &buf[..got])).await.unwrap();
                    }
                });
            });
            block_on(async {
                for n in 0..COUNT {
                    let mut buf = [0; 16];
                    poll_fn(|cx| near.poll_send_to(cx, &n.to_le_bytes(), to)).await.unwrap();
                    let (got, by) = poll_fn(|cx| near.poll_recv_from(cx, &mut buf)).await.unwrap();
                    assert_eq!((&buf[..got], by), (&n.to_le_bytes()[..], to));
                }
            });
            echoes.join().unwrap();
        });
    });
}

/// Returns a socket of the library and one of std, made on a plain thread.
pub(super) fn net_pair() -> (TcpStream, net::TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let far = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (listener.accept().unwrap().0, far)
}

/// A task that waits for a socket waits for an event from outside the process. Fails by the death of the child, as by a
/// deadlock.
#[test]
fn a_task_that_polls_a_socket_is_no_deadlock() {
    if child::is_child() {
        let rt = runtime(1);
        let (near, mut far) = net_pair();
        let writes = thread::spawn(move || {
            thread::sleep(Duration::from_millis(300));
            far.write_all(b"x").unwrap();
            far
        });
        rt.run(move || assert_eq!(block_on(read(&near, &mut [0])).unwrap(), 1));
        drop(writes.join().unwrap());
        return;
    }
    child::passes("a_task_that_polls_a_socket_is_no_deadlock", &[("GMPDEBUG", "deadlock=always")]);
}

/// The same under a scheduler that moves goroutines at each park. Fails as the tests that it runs fail.
#[test]
fn polls_hold_where_goroutines_migrate() {
    if child::is_child() {
        many_tasks_echo_at_the_same_time();
        both_directions_go_on_in_one_goroutine();
        goroutines_and_a_task_share_a_stream_to_its_end();
        return;
    }
    child::passes("polls_hold_where_goroutines_migrate", &[("GMPDEBUG", "migrate=1")]);
}

/// The kernel reports no event to a task that waits for room, and an event without data to one that waits for datagrams. Fails
/// by a hang.
#[test]
fn a_shutdown_is_told_to_the_tasks_that_wait_at_unix_sockets() {
    static MUCH: [u8; 4 << 20] = [7; 4 << 20];
    everywhere(|rt| {
        rt.run(|| {
            for round in 0..20 {
                let (stream, _far_stream) = UnixStream::pair().unwrap();
                let (datagrams, _far_datagrams) = UnixDatagram::pair().unwrap();
                let near = Arc::new((stream, datagrams));
                let [writes, sends, receives] = [(); 3].map(|()| Arc::clone(&near));
                let writes = go(move || block_on(write_all(&writes.0, &MUCH)).unwrap_err());
                let sends = go(move || {
                    block_on(async {
                        loop {
                            if let Err(ended) = poll_fn(|cx| sends.1.poll_send(cx, &MUCH[..1000])).await {
                                break ended;
                            }
                        }
                    })
                });
                let receives =
                    go(move || block_on(poll_fn(|cx| receives.1.poll_recv(cx, &mut [0; 8]))).unwrap());
                (0..round).for_each(|_| gmp::yield_now());
                near.0.shutdown(Shutdown::Write).unwrap();
                near.1.shutdown(Shutdown::Write).unwrap();
                near.1.shutdown(Shutdown::Read).unwrap();
                for ended in [writes, sends] {
                    assert_eq!(ended.join().unwrap().kind(), ErrorKind::BrokenPipe);
                }
                assert_eq!(receives.join().unwrap(), 0);
                let again = block_on(poll_fn(|cx| near.1.poll_recv_from(cx, &mut [0; 8]))).unwrap();
                assert!(again.0 == 0 && again.1.is_unnamed());
            }
        });
    });
}
