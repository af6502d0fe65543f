//! Unix sockets: what they have beyond TCP, and where the kernel reports less of them.

use common::cpu::thread_time;
use common::crew::{each, everyone, join_all};
use common::{child, everywhere, until};
use gmp::net::unix::SocketAddr;
use gmp::net::{UnixDatagram, UnixListener, UnixStream};
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Seek, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

static MADE: AtomicUsize = AtomicUsize::new(0);

pub(super) fn name() -> String {
    format!("gmp-unix-{}-{}", std::process::id(), MADE.fetch_add(1, SeqCst))
}

pub(super) fn abstract_name() -> SocketAddr {
    SocketAddr::from_abstract_name(name()).unwrap()
}

/// A path that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        Scratch(std::env::temp_dir().join(name()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The path is not there if no socket was bound to it.
        let _gone = std::fs::remove_file(&self.0);
    }
}

/// Fails when an address is not the bound one, or a peer without an address has one.
#[test]
fn addresses_are_those_of_std() {
    everyone(|crew| {
        crew.run(|| {
            let path = Scratch::new();
            let listener = UnixListener::bind(&path.0).unwrap();
            assert_eq!(listener.local_addr().unwrap().as_pathname(), Some(&*path.0));
            assert_eq!(UnixListener::bind(&path.0).unwrap_err().kind(), ErrorKind::AddrInUse);
            let near = UnixStream::connect(&path.0).unwrap();
            assert_eq!(near.peer_addr().unwrap().as_pathname(), Some(&*path.0));
            let (far, peer) = listener.accept().unwrap();
            assert!(peer.is_unnamed() && near.local_addr().unwrap().is_unnamed());
            drop((near, far));

            // Clients that are bound, to a path and to a name of the greatest length.
            let long = SocketAddr::from_abstract_name([b'n'; 107]).unwrap();
            let mine = Scratch::new();
            let client = |bind: &SocketAddr| {
                let socket = std::os::unix::net::UnixDatagram::from(stream_socket());
                // Connects by std's datagram type, as std's streams have no bind.
                bind_to(&socket, bind);
                socket.connect(&path.0).unwrap();
                listener.accept().unwrap().1
            };
            let at_path = SocketAddr::from_pathname(&mine.0).unwrap();
            assert_eq!(client(&at_path).as_pathname(), Some(&*mine.0));
            assert_eq!(client(&long).as_abstract_name(), Some(&[b'n'; 107][..]));
            assert!(client(&abstract_name()).as_abstract_name().is_some());

            let refused = UnixStream::connect(std::env::temp_dir().join(name())).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::NotFound);
            let refused = UnixStream::connect_addr(&abstract_name()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        });
    });
}

fn stream_socket() -> OwnedFd {
    // SAFETY: no pointers; the descriptor is new.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd)
    }
}

/// `bind` or `connect`.
type ByAddress = unsafe extern "C" fn(libc::c_int, *const libc::sockaddr, libc::socklen_t) -> libc::c_int;

pub(super) fn bind_to(socket: &impl AsRawFd, addr: &SocketAddr) {
    call_with(socket, addr, libc::bind);
}

pub(super) fn call_with(socket: &impl AsRawFd, addr: &SocketAddr, call: ByAddress) {
    call_with_name(
        socket,
        &match (addr.as_pathname(), addr.as_abstract_name()) {
            (Some(path), _) => path.to_str().unwrap().as_bytes().to_vec(),
            (_, Some(name)) => [b"\0", name].concat(),
            _ => unreachable!("an address with a name"),
        },
        call,
    );
}

fn call_with_name(socket: &impl AsRawFd, name: &[u8], call: ByAddress) {
    // SAFETY: all zeros is a valid address.
    let mut raw: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    raw.sun_family = libc::AF_UNIX as _;
    for (to, from) in raw.sun_path.iter_mut().zip(name) {
        *to = *from as _;
    }
    let len = std::mem::offset_of!(libc::sockaddr_un, sun_path) + name.len();
    // SAFETY: the address lives through the call.
    let done = unsafe { call(socket.as_raw_fd(), (&raw const raw).cast(), len as _) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// A read that ends at the message with the descriptor is short, and the data after it is there without another event. Fails by
/// a hang.
#[test]
fn a_short_read_does_not_drain_a_stream() {
    everyone(|crew| {
        let (near, far) = UnixStream::pair().unwrap();
        let reads = crew.go(move || {
            let mut got = Vec::new();
            let mut buffer = [0; 64];
            while !got.ends_with(b"end") {
                let len = (&far).read(&mut buffer).unwrap();
                assert!(len > 0);
                got.extend_from_slice(&buffer[..len]);
            }
            got
        });
        reads.until_it_waits();
        crew.run(move || {
            let file = File::open("/dev/null").unwrap();
            // All messages are there at once, and a read takes one of them.
            for part in [&b"one "[..], b"two ", b"three "] {
                near.send_with_fds(&[IoSlice::new(part)], &[file.as_fd()]).unwrap();
            }
            (&near).write_all(b"end").unwrap();
        });
        assert_eq!(reads.join(), b"one two three end");
    });
}

/// Fails when a descriptor is another file, is inherited by children, or comes with the wrong bytes.
#[test]
fn descriptors_come_with_their_bytes() {
    everyone(|crew| {
        crew.run(|| {
            let (near, far) = UnixStream::pair().unwrap();
            let path = Scratch::new();
            let mut file = File::options().read(true).write(true).create_new(true).open(&path.0).unwrap();
            file.write_all(b"contents").unwrap();
            let many = vec![file.as_fd(); 253];
            assert_eq!(near.send_with_fds(&[IoSlice::new(b"many")], &many).unwrap(), 4);
            (&near).write_all(b"none").unwrap();
            // The kernel takes 1024 buffers, and these have no byte.
            let mut late = vec![IoSlice::new(b""); 1024];
            late.push(IoSlice::new(b"x"));
            assert_eq!(near.send_with_fds(&late, &many).unwrap_err().kind(), ErrorKind::InvalidInput);
            let too_many = vec![file.as_fd(); 254];
            for (bufs, fds) in [(&b"x"[..], &too_many), (b"", &many)] {
                let refused = near.send_with_fds(&[IoSlice::new(bufs)], fds).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::InvalidInput);
            }

            let (mut bytes, mut fds) = ([0; 16], Vec::new());
            let got = far.recv_with_fds(&mut [IoSliceMut::new(&mut bytes)], &mut fds).unwrap();
            assert_eq!((&bytes[..got.len()], fds.len(), got.lost_fds()), (&b"many"[..], 253, false));
            // SAFETY: no pointers.
            let flags = unsafe { libc::fcntl(fds[0].as_raw_fd(), libc::F_GETFD) };
            assert_eq!(flags, libc::FD_CLOEXEC);
            let mut twin = File::from(fds.swap_remove(200));
            twin.rewind().unwrap();
            assert_eq!(std::io::read_to_string(&twin).unwrap(), "contents");
            fds.clear();
            let got = far.recv_with_fds(&mut [IoSliceMut::new(&mut bytes)], &mut fds).unwrap();
            assert_eq!((&bytes[..got.len()], fds.len()), (&b"none"[..], 0));
            drop(near);
            let got = far.recv_with_fds(&mut [IoSliceMut::new(&mut bytes)], &mut fds).unwrap();
            assert_eq!(got.len(), 0, "the end");
        });
    });
}

/// Fails when a part of a datagram is sent, or received, as if it was the whole.
#[test]
fn a_datagram_of_more_buffers_than_a_call_takes_is_refused() {
    everyone(|crew| {
        crew.run(|| {
            let (near, far) = UnixDatagram::pair().unwrap();
            let file = File::open("/dev/null").unwrap();
            for fds in [&[][..], &[file.as_fd()]] {
                let refused = near.send_with_fds(&vec![IoSlice::new(b"x"); 1025], fds).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::InvalidInput);
                assert!(
                    refused.to_string().contains("1025 buffers, a datagram has room for 1024"),
                    "{refused}"
                );
            }
            assert_eq!(near.send_with_fds(&vec![IoSlice::new(b"x"); 1024], &[]).unwrap(), 1024);
            let (mut bytes, mut fds) = ([0; 1025], Vec::new());
            let mut bufs = bytes.chunks_mut(1).map(IoSliceMut::new).collect::<Vec<_>>();
            assert_eq!(far.recv_with_fds(&mut bufs, &mut fds).unwrap_err().kind(), ErrorKind::InvalidInput);
            let got = far.recv_with_fds(&mut bufs[..1024], &mut fds).unwrap();
            assert_eq!((got.len(), got.is_cut()), (1024, false));
        });
    });
}

/// Fails when a datagram is cut, and the result does not say so.
#[test]
fn a_datagram_that_is_cut_says_so() {
    everyone(|crew| {
        crew.run(|| {
            let (near, far) = UnixDatagram::pair().unwrap();
            let file = File::open("/dev/null").unwrap();
            near.send_with_fds(&[IoSlice::new(b"long"), IoSlice::new(b" one")], &[file.as_fd()]).unwrap();
            near.send(b"").unwrap();
            let (mut bytes, mut fds) = ([0; 4], Vec::new());
            let got = far.recv_with_fds(&mut [IoSliceMut::new(&mut bytes)], &mut fds).unwrap();
            assert_eq!((&bytes, got.len(), got.is_cut(), fds.len()), (b"long", 4, true, 1));
            let got = far.recv_with_fds(&mut [IoSliceMut::new(&mut bytes)], &mut fds).unwrap();
            assert_eq!((got.len(), got.is_cut(), fds.len()), (0, false, 1));
        });
    });
}

/// Each failed call makes an event that does not tell of room. Fails when a sender makes its failed call again and again.
#[test]
fn sending_to_a_full_receiver_costs_little() {
    // Measures the thread's own time: the goroutine of a runtime with one P stays on its thread, or sleeps.
    let work = |sender: UnixDatagram, to: SocketAddr| {
        let begin = thread_time();
        while sender.send_to_addr(b"x", &to).is_ok() {}
        thread_time().saturating_sub(begin)
    };
    everyone(|crew| {
        let (receiver, sender) = (UnixDatagram::bind_addr(&abstract_name()), UnixDatagram::unbound());
        let (receiver, sender) = (receiver.unwrap(), sender.unwrap());
        let to = receiver.local_addr().unwrap();
        const WAIT: Duration = Duration::from_millis(100);
        sender.set_write_deadline(Some(Instant::now() + WAIT)).unwrap();
        let spent = crew.run(move || work(sender, to));
        assert!(spent < WAIT / 2, "{spent:?} of {WAIT:?}");
        drop(receiver);
    });
}

/// Fails when a datagram is lost or overtaken while the sender waits for room, or when a sender waits for ever.
#[test]
fn no_datagram_is_lost_to_a_full_receiver() {
    const EACH: usize = 50;
    everyone(|crew| {
        let receiver = UnixDatagram::bind_addr(&abstract_name()).unwrap();
        let to = receiver.local_addr().unwrap();
        let senders = each(crew, 2, move |sender| {
            let socket = UnixDatagram::unbound().unwrap();
            for number in 0..EACH {
                socket.send_to_addr(&[sender as u8, number as u8], &to).unwrap();
            }
        });
        let got = crew.run(move || {
            let mut next = [0; 2];
            let mut buffer = [0; 4];
            for _ in 0..2 * EACH {
                assert_eq!(receiver.recv(&mut buffer).unwrap(), 2);
                let [sender, number] = [buffer[0], buffer[1]].map(usize::from);
                assert_eq!(number, next[sender]);
                next[sender] += 1;
            }
            next
        });
        assert_eq!(got, [EACH; 2]);
        join_all(senders);
    });
}

/// Fails by an error although the listener is only busy, or when a client waits for ever.
#[test]
fn clients_wait_for_a_listener_whose_queue_is_full() {
    const CLIENTS: usize = 12;
    everyone(|crew| {
        let listener = UnixListener::bind_addr(&abstract_name()).unwrap();
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 1) }, 0);
        let to = listener.local_addr().unwrap();
        let connected = Arc::new(AtomicUsize::new(0));
        let told = Arc::clone(&connected);
        let clients = each(crew, CLIENTS, move |client| {
            let mut stream = UnixStream::connect_addr(&to).unwrap();
            told.fetch_add(1, SeqCst);
            stream.write_all(&[client as u8]).unwrap();
        });
        // As many as the queue holds.
        crew.run({
            let connected = Arc::clone(&connected);
            move || until(|| connected.load(SeqCst) >= 2)
        });
        let mut got = crew.run(move || {
            let streams = listener.incoming().take(CLIENTS).map(|stream| stream.unwrap());
            let mut byte = [0];
            streams.map(|mut stream| stream.read(&mut byte).map(|_| byte[0]).unwrap()).collect::<Vec<_>>()
        });
        got.sort_unstable();
        assert_eq!(got, (0..CLIENTS as u8).collect::<Vec<_>>());
        join_all(clients);
    });
}

/// Fails when a client waits beyond its deadline, or the deadline stays with its stream.
#[test]
fn a_deadline_ends_the_wait_for_a_listener_whose_queue_is_full() {
    everyone(|crew| {
        crew.run(|| {
            let listener = UnixListener::bind_addr(&abstract_name()).unwrap();
            // SAFETY: no pointers.
            assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 1) }, 0);
            let to = listener.local_addr().unwrap();
            let mut streams = Vec::new();
            let (begun, refused) = loop {
                let begun = Instant::now();
                match UnixStream::connect_addr_deadline(&to, begun + Duration::from_millis(200)) {
                    Ok(stream) => streams.push(stream),
                    Err(refused) => break (begun, refused),
                }
            };
            assert_eq!(refused.kind(), ErrorKind::TimedOut);
            assert!(begun.elapsed() >= Duration::from_millis(200) && !streams.is_empty());
            // The deadline of the first stream has passed.
            (&streams[0]).write_all(b"hello").unwrap();
            let late = UnixStream::connect_addr_deadline(&to, Instant::now()).unwrap_err();
            assert_eq!(late.kind(), ErrorKind::TimedOut);
            let nobody = UnixStream::connect_deadline(
                std::env::temp_dir().join(name()),
                Instant::now() + Duration::from_secs(3600),
            );
            assert_eq!(nobody.unwrap_err().kind(), ErrorKind::NotFound);
        });
    });
}

/// Fails when the stream returns this process's number for the peer's. Both processes belong to the same user.
#[test]
fn a_stream_knows_its_peer() {
    const NAME: &str = "a_stream_knows_its_peer";
    const LISTENER: &str = "LISTENER";
    // SAFETY: no pointers.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let of_peer = |stream: &UnixStream| {
        let peer = stream.peer_cred().unwrap();
        assert_eq!((peer.uid(), peer.gid()), (uid, gid));
        peer.pid()
    };
    if child::is_child() {
        let listener = SocketAddr::from_abstract_name(std::env::var(LISTENER).unwrap()).unwrap();
        let near = UnixStream::connect_addr(&listener).unwrap();
        assert_eq!(of_peer(&near), Some(std::os::unix::process::parent_id()));
        // Waits until the peer has read this process's number.
        assert_eq!((&near).read(&mut [0]).unwrap(), 0);
        return;
    }
    let listener = UnixListener::bind_addr(&abstract_name()).unwrap();
    let addr = listener.local_addr().unwrap();
    let name = str::from_utf8(addr.as_abstract_name().unwrap()).unwrap();
    let mut peer = child::command(NAME).env(LISTENER, name).stdout(Stdio::null()).spawn().unwrap();
    listener.set_deadline(Some(Instant::now() + Duration::from_secs(60))).unwrap();
    let (far, _) = listener.accept().unwrap();
    assert_eq!(of_peer(&far), Some(peer.id()));
    drop(far);
    assert!(peer.wait().unwrap().success());

    let (near, _far) = UnixStream::pair().unwrap();
    assert_eq!(of_peer(&near), Some(std::process::id()));
    near.close().unwrap();
    assert!(gmp::net::is_closed(&near.peer_cred().unwrap_err()));
    // SAFETY: no pointers.
    let alone = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    // SAFETY: the descriptor is new, and nothing else owns it.
    let alone = UnixStream::from(unsafe { OwnedFd::from_raw_fd(alone) });
    assert_eq!(alone.peer_cred().unwrap_err().kind(), ErrorKind::NotConnected);
}

/// SIGPIPE has its default action, as in a program whose `main` is not Rust's. Fails by the signal, which ends the process.
#[test]
fn writing_to_a_closed_peer_is_an_error_and_no_signal() {
    if !child::is_child() {
        child::passes("writing_to_a_closed_peer_is_an_error_and_no_signal", &[]);
        return;
    }
    // SAFETY: nothing else in this process relies on the action.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    everyone(|crew| {
        crew.run(|| {
            let (near, far) = UnixStream::pair().unwrap();
            let file = File::open("/dev/null").unwrap();
            drop(far);
            let bytes = [IoSlice::new(b"anybody?")];
            assert_eq!((&near).write(b"anybody?").unwrap_err().kind(), ErrorKind::BrokenPipe);
            assert_eq!((&near).write_vectored(&bytes).unwrap_err().kind(), ErrorKind::BrokenPipe);
            let refused = near.send_with_fds(&bytes, &[file.as_fd()]).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::BrokenPipe);
            let (near, _far) = common::loopback::pair();
            near.shutdown(Shutdown::Write).unwrap();
            assert_eq!((&near).write(b"anybody?").unwrap_err().kind(), ErrorKind::BrokenPipe);
            assert_eq!((&near).write_vectored(&bytes).unwrap_err().kind(), ErrorKind::BrokenPipe);
            let (near, far) = UnixDatagram::pair().unwrap();
            far.shutdown(Shutdown::Both).unwrap();
            assert_eq!(near.send(b"anybody?").unwrap_err().kind(), ErrorKind::BrokenPipe);
            assert_eq!(near.send_with_fds(&bytes, &[]).unwrap_err().kind(), ErrorKind::BrokenPipe);
        });
    });
}

/// The bytes of a write for which no socket has room.
static MUCH: [u8; 4 << 20] = [7; 4 << 20];

/// The kernel tells a call that does not wait that there is no data yet, and still reports the socket as ready. Fails by a hang
/// of a goroutine, by a busy loop of a thread, or when a datagram is lost that was sent before the shutdown.
#[test]
fn a_shutdown_ends_the_receives_of_datagrams() {
    everyone(|crew| {
        let (near, far) = UnixDatagram::pair().unwrap();
        let near = Arc::new(near);
        let same = Arc::clone(&near);
        let receives = crew.go(move || same.recv(&mut [0; 8]));
        receives.until_it_waits();
        near.shutdown(Shutdown::Read).unwrap();
        assert_eq!(receives.join().unwrap(), 0);
        crew.run(move || {
            let (mut bytes, mut fds) = ([0; 8], Vec::new());
            assert_eq!(near.recv(&mut bytes).unwrap(), 0);
            let (len, from) = near.recv_from(&mut bytes).unwrap();
            assert!(len == 0 && from.is_unnamed());
            let got = near.recv_with_fds(&mut [IoSliceMut::new(&mut bytes)], &mut fds).unwrap();
            assert_eq!((got.len(), got.is_cut(), got.lost_fds(), fds.len()), (0, false, false, 0));

            near.send(b"one").unwrap();
            far.shutdown(Shutdown::Read).unwrap();
            assert_eq!(near.send(b"two").unwrap_err().kind(), ErrorKind::BrokenPipe);
            assert_eq!([(); 2].map(|()| far.recv(&mut bytes).unwrap()), [3, 0]);
        });
    });
}

/// A shutdown ends the writes of a writer that waits for room, and the kernel reports no event. The shutdown comes beside the
/// writer's first wait, or before it. Fails by a hang.
#[test]
fn a_shutdown_ends_the_wait_for_room() {
    type Writes = fn(&UnixStream, &UnixDatagram) -> io::Error;
    let ways: [Writes; 2] = [
        |mut stream, _| stream.write_all(&MUCH).unwrap_err(),
        |_, datagrams| {
            std::iter::repeat_with(|| datagrams.send(&MUCH[..1000])).find_map(Result::err).unwrap()
        },
    ];
    everyone(|crew| {
        for (round, writes) in (0..20).flat_map(|round| ways.map(|writes| (round, writes))) {
            let (stream, _far_stream) = UnixStream::pair().unwrap();
            let (datagrams, _far_datagrams) = UnixDatagram::pair().unwrap();
            let near = Arc::new((stream, datagrams));
            let same = Arc::clone(&near);
            let writer = crew.go(move || writes(&same.0, &same.1));
            match round {
                0 => writer.until_it_waits(),
                round => std::thread::sleep(Duration::from_micros(10 * round)),
            }
            near.0.shutdown(Shutdown::Write).unwrap();
            near.1.shutdown(Shutdown::Write).unwrap();
            assert_eq!(writer.join().kind(), ErrorKind::BrokenPipe);
        }
    });
}

/// The kernel takes a path that fills the address; std makes no such path. Fails by an error that loses the connection.
#[test]
fn a_peer_with_the_longest_path_is_accepted() {
    everyone(|crew| {
        crew.run(|| {
            let listener = UnixListener::bind_addr(&abstract_name()).unwrap();
            let mut path = std::env::temp_dir().join(name()).into_os_string().into_string().unwrap();
            path.extend(std::iter::repeat_n('l', 108 - path.len()));
            let path = Scratch(PathBuf::from(path));
            let socket = std::os::unix::net::UnixDatagram::from(stream_socket());
            call_with_name(&socket, path.0.to_str().unwrap().as_bytes(), libc::bind);
            socket.connect_addr(&listener.local_addr().unwrap()).unwrap();
            let (stream, peer) = listener.accept().unwrap();
            assert_eq!(peer.as_pathname(), Some(&*path.0));
            assert_eq!(stream.peer_addr().unwrap().as_pathname(), Some(&*path.0));
        });
    });
}

/// A read into an empty buffer has nothing to wait for. Fails by a hang, or when descriptors are lost with such a read.
#[test]
fn a_read_into_no_room_returns_at_once() {
    everyone(|crew| {
        crew.run(|| {
            let (near, far) = UnixStream::pair().unwrap();
            assert_eq!((&near).read(&mut []).unwrap(), 0);
            assert_eq!((&near).read_vectored(&mut []).unwrap(), 0);
            assert_eq!((&near).read_vectored(&mut [IoSliceMut::new(&mut [])]).unwrap(), 0);
            far.send_with_fds(&[IoSlice::new(b"one")], &[io::stderr().as_fd()]).unwrap();
            assert_eq!((&near).read(&mut []).unwrap(), 0);
            let (mut bytes, mut fds) = ([0; 16], Vec::new());
            let got = near.recv_with_fds(&mut [IoSliceMut::new(&mut bytes)], &mut fds).unwrap();
            assert_eq!((got.len(), fds.len()), (3, 1));
            near.close().unwrap();
            assert!(gmp::net::is_closed(&(&near).read(&mut []).unwrap_err()));
        });
    });
}

/// Another holder shuts a listener down: before an accept, and while an accept waits. Fails by a hang of a goroutine, or by a
/// busy loop of a thread.
#[test]
fn a_shutdown_by_another_holder_ends_an_accept_as_with_std() {
    // SAFETY: no pointers.
    let shut = |twin: &OwnedFd| assert_eq!(unsafe { libc::shutdown(twin.as_raw_fd(), libc::SHUT_RD) }, 0);
    everyone(|crew| {
        let std = std::os::unix::net::UnixListener::bind_addr(&abstract_name()).unwrap();
        shut(&std.as_fd().try_clone_to_owned().unwrap());
        let expected = std.accept().unwrap_err().raw_os_error();

        let addr = abstract_name();
        let listener = Arc::new(UnixListener::bind_addr(&addr).unwrap());
        let twin = listener.as_fd().try_clone_to_owned().unwrap();
        let same = Arc::clone(&listener);
        let waits = crew.go(move || same.accept().unwrap_err().raw_os_error());
        waits.until_it_waits();
        shut(&twin);
        assert_eq!(waits.join(), expected);
        assert_eq!(crew.run(move || listener.accept().unwrap_err().raw_os_error()), expected);

        // A client that was in the queue before the shutdown is accepted.
        let addr = abstract_name();
        let listener = UnixListener::bind_addr(&addr).unwrap();
        let _client = std::os::unix::net::UnixStream::connect_addr(&addr).unwrap();
        shut(&listener.as_fd().try_clone_to_owned().unwrap());
        let ends = crew.run(move || {
            listener.accept().unwrap();
            listener.accept().unwrap_err().raw_os_error()
        });
        assert_eq!(ends, expected);
    });
    everywhere(|rt| {
        let listener = Arc::new(UnixListener::bind_addr(&abstract_name()).unwrap());
        let same = Arc::clone(&listener);
        let polls =
            rt.go(move || gmp::block_on(std::future::poll_fn(|cx| same.poll_accept(cx))).unwrap_err());
        rt.run(gmp::yield_now);
        shut(&listener.as_fd().try_clone_to_owned().unwrap());
        assert_eq!(polls.join().unwrap().raw_os_error(), Some(libc::EINVAL));
    });
}
