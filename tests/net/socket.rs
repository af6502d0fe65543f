//! A socket from its creation to its close: the calls that std has, their errors, and the state of the descriptor.

use common::child;
use common::loopback::{listen, pair};
use common::{everywhere, runtime, until, watched};
use gmp::io::Watched;
use gmp::net::{PollStream, TcpListener, TcpStream, UnixStream};
use gmp::{go, yield_now};
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

fn is_blocking(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) & libc::O_NONBLOCK == 0 }
}

/// Returns the CPU time that the process has used so far.
fn cpu_time() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: it fills the struct, of plain numbers.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    let time = |val: libc::timeval| Duration::new(val.tv_sec as u64, val.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Makes the close of the socket send a reset instead of an end.
fn reset_at_close(socket: impl AsFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = size_of_val(&linger) as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: a valid struct of that size.
    let set =
        unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), size) };
    assert_eq!(set, 0);
}

/// Fails by a hang, or when a stream is returned that does not work.
#[test]
fn a_refused_connection_is_an_error_of_its_kind() {
    let dead = net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let connect = move || {
        for _ in 0..50 {
            assert_eq!(TcpStream::connect(dead).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        }
        let (listener, addr) = listen();
        let second = TcpStream::connect(&[dead, addr][..]).unwrap();
        assert_eq!(second.peer_addr().unwrap(), addr);
        assert_eq!(TcpStream::connect(&[][..]).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(TcpListener::bind(addr).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(listener);
    };
    watched(0, connect);
    everywhere(|rt| rt.run(connect));
}

/// Fails by a hang, or when a reset looks like an orderly end.
#[test]
fn a_reset_is_an_error_to_readers_and_writers() {
    everywhere(|rt| {
        for round in 0..400_usize {
            let (listener, addr) = listen();
            let far = net::TcpStream::connect(addr).unwrap();
            let stream = Arc::new(listener.accept().unwrap().0);
            reset_at_close(&far);
            let about_to = Arc::new(AtomicBool::new(false));
            let goroutine = rt.go({
                let (stream, about_to) = (Arc::clone(&stream), Arc::clone(&about_to));
                move || {
                    about_to.store(true, SeqCst);
                    let mut buffer = vec![0; 1 << 16];
                    loop {
                        let done = match round % 2 {
                            0 => (&*stream).read(&mut buffer),
                            _ => (&*stream).write(&buffer),
                        };
                        match done {
                            Ok(0) => panic!("an end in order"),
                            Ok(_) => {}
                            Err(reset) => return reset.kind(),
                        }
                    }
                }
            });
            until(|| about_to.load(SeqCst));
            (0..round % 4 * 100).for_each(|_| std::hint::spin_loop());
            if round % 3 == 0 {
                (&far).write_all(b"data before it").unwrap();
            }
            drop(far);
            let kind = goroutine.join().unwrap();
            let known = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
            assert!(known.contains(&kind), "{kind:?}");
        }
    });
}

/// Accepts until the full table of descriptors has refused `times` times. Returns the connections that got a descriptor: a
/// number is free if a thread of the runtime had a file open for a moment while the table was filled, as the monitor has when
/// it looks at the machine.
fn until_refused(listener: &TcpListener, mut times: usize) -> Vec<TcpStream> {
    let mut accepted = Vec::new();
    while times > 0 {
        match listener.accept() {
            Ok((stream, _)) => accepted.push(stream),
            Err(refused) => {
                assert_eq!(refused.raw_os_error(), Some(libc::EMFILE));
                times -= 1;
            }
        }
    }
    accepted
}

/// Fails by CPU time when a connection that can't be accepted is reported again and again; by a hang when that connection is
/// not reported again once there is room.
#[test]
fn a_full_descriptor_table_is_an_error_of_accept_and_does_not_last() {
    if !child::is_child() {
        child::passes("a_full_descriptor_table_is_an_error_of_accept_and_does_not_last", &[]);
        return;
    }
    let limit = libc::rlimit { rlim_cur: 100, rlim_max: 100 };
    // SAFETY: a valid struct.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    everywhere(|rt| {
        let (listener, addr) = listen();
        let listener = Arc::new(listener);
        // Three clients wait when the table is full; one more connects afterwards.
        let mut clients: Vec<_> = (0..3).map(|_| net::TcpStream::connect(addr).unwrap()).collect();
        let fill = || std::iter::from_fn(|| std::fs::File::open("/dev/null").ok());
        let mut full: Vec<_> = fill().collect();
        let mut early = rt.run(|| until_refused(&listener, 100));
        // An M that starts may take the free number.
        clients.push(loop {
            drop(full.pop().expect("not all of a hundred are the threads'"));
            match net::TcpStream::connect(addr) {
                Ok(client) => break client,
                Err(refused) => assert_eq!(refused.raw_os_error(), Some(libc::EMFILE)),
            }
        });
        full.extend(fill());
        let before = cpu_time();
        early.extend(rt.run(|| {
            gmp::time::sleep(Duration::from_millis(100));
            until_refused(&listener, 1)
        }));
        let used = cpu_time() - before;
        assert!(used < Duration::from_millis(60), "{used:?} of CPU time in 100 ms without work");
        drop(full);
        let late = rt.run(|| (early.len()..4).map(|_| listener.accept().unwrap().0).collect::<Vec<_>>());
        for (client, mut stream) in clients.into_iter().zip(early.into_iter().chain(late)) {
            drop(client);
            assert_eq!(rt.run(|| stream.read(&mut [0]).unwrap()), 0);
        }
    });
}

/// `poll(2)` refuses more descriptors than the process may open. Fails when the library calls only `poll(2)`: then each wait of
/// a plain thread, and of a goroutine for a descriptor in blocking mode, ends by an error.
#[test]
fn a_process_that_may_open_no_more_files_waits_as_ever() {
    if !child::is_child() {
        child::passes("a_process_that_may_open_no_more_files_waits_as_ever", &[]);
        return;
    }
    let may_open = |most: u64| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the limits live through the calls.
        unsafe {
            assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
            let before = std::mem::replace(&mut limit.rlim_cur, most);
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
            before
        }
    };
    let waits = |near: &mut TcpStream| {
        near.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        assert_eq!(near.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
        near.set_read_timeout(None).unwrap();
    };
    for most in [1, 0] {
        watched(1, || {
            let rt = runtime(1);
            for has_wake_fd in [true, false] {
                let ((mut near, mut far), (reader, mut writer)) = (pair(), std::io::pipe().unwrap());
                if has_wake_fd {
                    waits(&mut near);
                }
                let pipe = Watched::new(reader);
                let before = may_open(most);
                waits(&mut near);
                let writes = std::thread::spawn(move || {
                    far.write_all(b"x").unwrap();
                    far
                });
                assert_eq!(near.read(&mut [0]).unwrap(), 1);
                // The buffer fills up, and has room again later.
                let fills = std::thread::spawn(move || near.write_all(&[0; 16 << 20]).unwrap());
                let mut far = writes.join().unwrap();
                far.read_exact(&mut vec![0; 16 << 20]).unwrap();
                fills.join().unwrap();
                let read = || pipe.read_with(|mut pipe| pipe.read(&mut [0; 2]));
                pipe.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
                assert_eq!(rt.run(read).unwrap_err().kind(), ErrorKind::TimedOut);
                writer.write_all(b"x").unwrap();
                assert_eq!(rt.run(read).unwrap(), 1);
                may_open(before);
            }
        });
    }
}

/// A read into an empty buffer has nothing to wait for. Fails by a hang.
#[test]
fn a_read_into_no_room_returns_at_once() {
    let check = || {
        let (mut near, far) = pair();
        assert_eq!(near.read(&mut []).unwrap(), 0);
        assert_eq!(near.read_vectored(&mut []).unwrap(), 0);
        assert_eq!(near.read_vectored(&mut [IoSliceMut::new(&mut [])]).unwrap(), 0);
        assert_eq!(near.write(&[]).unwrap(), 0);
        drop(far);
    };
    watched(0, check);
    everywhere(|rt| rt.run(check));
}

#[test]
fn vectored_reads_and_writes_use_all_buffers() {
    let check = || {
        let (mut near, mut far) = pair();
        for _ in 0..20 {
            let bufs = [b"ab".as_slice(), b"", b"cde"].map(IoSlice::new);
            assert_eq!(near.write_vectored(&bufs).unwrap(), 5);
            let (mut head, mut tail) = ([0; 1], [0; 9]);
            let bufs = &mut [IoSliceMut::new(&mut head), IoSliceMut::new(&mut tail)];
            assert_eq!(far.read_vectored(bufs).unwrap(), 5);
            assert_eq!((&head, &tail[..4]), (b"a", b"bcde".as_slice()));
        }
    };
    watched(0, check);
    everywhere(|rt| rt.run(check));
}

/// The kernel takes 1024 buffers in a call. Fails by a hang when a read that fills these counts as a short read.
#[test]
fn more_buffers_than_a_call_takes_hide_nothing() {
    fn check<S: PollStream + Sync>(near: S, far: S)
    where
        for<'a> &'a S: Read + Write,
    {
        let bytes = (0..2000).map(|at| at as u8).collect::<Vec<_>>();
        let vectored = |polls: bool| {
            let mut got = [0; 1500];
            let mut bufs = got.chunks_mut(1).map(IoSliceMut::new).collect::<Vec<_>>();
            let len = match polls {
                false => (&near).read_vectored(&mut bufs).unwrap(),
                true => gmp::block_on(poll_fn(|cx| near.poll_read_vectored(cx, &mut bufs))).unwrap(),
            };
            got[..len].to_vec()
        };
        for polls in [false, true, false, true] {
            gmp::scope(|scope| {
                let reads = scope.go(|| {
                    let mut all = vectored(polls);
                    while all.len() < bytes.len() {
                        let mut rest = [0; 2000];
                        let len = match polls {
                            false => (&near).read(&mut rest).unwrap(),
                            true => gmp::block_on(poll_fn(|cx| near.poll_read(cx, &mut rest))).unwrap(),
                        };
                        all.extend_from_slice(&rest[..len]);
                    }
                    all
                });
                yield_now();
                (&far).write_all(&bytes).unwrap();
                assert_eq!(reads.join().unwrap(), bytes);
            });
        }
    }
    everywhere(|rt| {
        rt.run(|| {
            let (near, far) = pair();
            check(near, far);
            let (near, far) = UnixStream::pair().unwrap();
            check(near, far);
        });
    });
}

/// Fails when a call of std that should block does not, or when a call of the library blocks the thread.
#[test]
fn sockets_turn_into_stds_and_back() {
    everywhere(|rt| {
        rt.run(|| {
            let (listener, addr) = listen();
            assert!(!is_blocking(listener.as_fd()));
            let listener = net::TcpListener::from(listener);
            assert!(is_blocking(listener.as_fd()));
            let listener = TcpListener::from(listener);
            let client = go(move || TcpStream::connect(addr).unwrap());
            let (stream, from) = listener.accept().unwrap();
            let client = client.join().unwrap();
            assert_eq!(client.local_addr().unwrap(), from);
            assert!(!is_blocking(stream.as_fd()) && !is_blocking(client.as_fd()));

            // The socket is registered in the poller, then becomes std's, then the library's again.
            let same = go(move || {
                let mut stream = stream;
                stream.read_exact(&mut [0; 2]).map(|()| stream)
            });
            yield_now();
            (&client).write_all(b"ab").unwrap();
            let stream = net::TcpStream::from(same.join().unwrap().unwrap());
            assert!(is_blocking(stream.as_fd()));
            (&client).write_all(b"cd").unwrap();
            (&stream).read_exact(&mut [0; 2]).unwrap();
            let fd = TcpStream::from(stream).into_raw_fd();
            // SAFETY: it has just been given up by its owner.
            let mut stream = unsafe { TcpStream::from_raw_fd(fd) };
            assert!(!is_blocking(stream.as_fd()));
            assert_eq!(stream.as_raw_fd(), fd);
            let echoing = go(move || {
                let mut all = String::new();
                stream.read_to_string(&mut all).map(|_| all)
            });
            // The goroutine waits, which registers the socket again.
            (0..5).for_each(|_| yield_now());
            (&client).write_all(b"ef").unwrap();
            let owned = OwnedFd::from(client);
            assert!(!is_blocking(owned.as_fd()));
            drop(owned);
            assert_eq!(echoing.join().unwrap().unwrap(), "ef");
        });
    });
}

/// A descriptor comes in the mode that its last owner gave it. Fails when a socket blocks its thread.
#[test]
fn any_descriptor_becomes_a_socket_that_does_not_block() {
    use gmp::net::{UdpSocket, UnixDatagram, UnixListener, UnixStream};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net as unix;
    let tcp = net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = net::TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
    let udp = net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let name = unix::SocketAddr::from_abstract_name(format!("gmp-owned-{}", std::process::id())).unwrap();
    let listener = unix::UnixListener::bind_addr(&name).unwrap();
    let (stream, _peer) = unix::UnixStream::pair().unwrap();
    let (datagram, _peer) = unix::UnixDatagram::pair().unwrap();

    fn becomes<S: AsFd + From<OwnedFd>>(owned: impl Into<OwnedFd>) -> S {
        let owned = owned.into();
        let number = owned.as_raw_fd();
        assert!(is_blocking(owned.as_fd()));
        let socket = S::from(owned);
        assert_eq!((socket.as_fd().as_raw_fd(), is_blocking(socket.as_fd())), (number, false));
        socket
    }
    becomes::<TcpListener>(tcp);
    becomes::<UdpSocket>(udp);
    becomes::<UnixListener>(listener);
    becomes::<UnixStream>(stream);
    becomes::<UnixDatagram>(datagram);
    let client: TcpStream = becomes(client);
    for quick in [false, true] {
        client.set_quickack(quick).unwrap();
        assert_eq!(client.quickack().unwrap(), quick);
    }
}

#[test]
fn incoming_gives_one_connection_after_the_other() {
    everywhere(|rt| {
        rt.run(|| {
            let (listener, addr) = listen();
            let clients = go(move || {
                for n in 0..30_u8 {
                    TcpStream::connect(addr).unwrap().write_all(&[n]).unwrap();
                }
            });
            for (n, stream) in listener.incoming().take(30).enumerate() {
                let mut said = Vec::new();
                stream.unwrap().read_to_end(&mut said).unwrap();
                assert_eq!(said, [n as u8]);
            }
            clients.join().unwrap();
        });
    });
}

#[test]
fn options_and_addresses_are_those_of_the_socket() -> io::Result<()> {
    let (listener, addr) = listen();
    let near = TcpStream::connect(addr)?;
    let (far, from) = listener.accept()?;
    assert_eq!((near.peer_addr()?, near.local_addr()?), (addr, from));
    assert_eq!((far.peer_addr()?, far.local_addr()?), (from, addr));
    for nodelay in [true, false] {
        near.set_nodelay(nodelay)?;
        assert_eq!(near.nodelay()?, nodelay);
    }
    near.set_ttl(33)?;
    listener.set_ttl(44)?;
    assert_eq!((near.ttl()?, listener.ttl()?), (33, 44));
    assert!(near.take_error()?.is_none() && listener.take_error()?.is_none());
    let (near, far) = (format!("{near:?}"), format!("{far:?}"));
    assert!(near.starts_with(&format!("TcpStream {{ addr: {from}, peer: {addr}, fd: ")), "{near}");
    assert!(far.starts_with(&format!("TcpStream {{ addr: {addr}, peer: {from}, fd: ")), "{far}");
    let text = format!("{listener:?}");
    assert!(text.starts_with(&format!("TcpListener {{ addr: {addr}, fd: ")), "{text}");
    Ok(())
}

#[test]
fn ipv6_works_as_ipv4() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        // This machine has no IPv6.
        return;
    };
    let listener = Arc::new(listener);
    everywhere(|rt| {
        let listener = Arc::clone(&listener);
        rt.run(|| {
            let addr = listener.local_addr().unwrap();
            let client = go(move || TcpStream::connect(addr).map(|stream| stream.local_addr().unwrap()));
            let (stream, from) = listener.accept().unwrap();
            assert_eq!(client.join().unwrap().unwrap(), from);
            assert_eq!(stream.peer_addr().unwrap(), from);
        });
    });
}

/// Fails by a hang of the peer when the poller keeps a descriptor that its socket has given up.
#[test]
fn a_dropped_socket_is_closed_at_once() {
    everywhere(|rt| {
        rt.run(|| {
            for round in 0..200 {
                let (near, mut far) = pair();
                if round % 2 == 0 {
                    // A wait registers the socket.
                    let mut near = near;
                    let waits = go(move || near.read(&mut [0; 4]).map(|_| near));
                    (0..3).for_each(|_| yield_now());
                    far.write_all(b"x").unwrap();
                    drop(waits.join().unwrap().unwrap());
                } else {
                    drop(near);
                }
                let ended = far.read(&mut [0; 4]);
                assert_eq!(ended.unwrap(), 0);
            }
        });
    });
}

/// Fails by a hang, or by bytes of a closed connection, when an event of a closed descriptor counts as an event of the next
/// descriptor with its number, or replaces one.
#[test]
fn an_event_of_a_closed_descriptor_means_nothing_to_the_next_one() {
    everywhere(|rt| {
        let (listener, addr) = listen();
        let listener = Arc::new(listener);
        let rounds = 640;
        let churning: Vec<_> = (0..4_usize)
            .map(|_| {
                let listener = Arc::clone(&listener);
                rt.go(move || {
                    let mut buffer = [0; 64];
                    for round in 0..rounds {
                        let (mut stream, _) = listener.accept().unwrap();
                        let mut tag = [0; 4];
                        stream.read_exact(&mut tag).unwrap();
                        stream.write_all(&tag).unwrap();
                        match round % 3 {
                            // While more data is on its way.
                            0 => {}
                            // After a part of the data.
                            1 => drop(stream.read(&mut buffer[..1 + round % 8])),
                            // In the middle of a write.
                            _ => stream.write_all(&tag).unwrap_or_default(),
                        }
                    }
                })
            })
            .collect();
        let clients: Vec<_> = (0..4_usize)
            .map(|n| {
                rt.go(move || {
                    for round in 0..rounds {
                        let mut stream = TcpStream::connect(addr).unwrap();
                        let tag = ((n * rounds + round) as u32).to_ne_bytes();
                        stream.write_all(&tag).unwrap();
                        let mut back = [0; 4];
                        stream.read_exact(&mut back).unwrap();
                        assert_eq!(back, tag);
                        // The server may have closed the connection.
                        for _ in 0..round % 4 {
                            drop(stream.write(&[9; 30]));
                        }
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|one| one.join().unwrap());
        churning.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// Fails when the error is not the kernel's, by a hang, or when a descriptor stays open.
#[test]
fn a_kernel_without_files_or_ports_is_an_error_of_the_call() {
    const TEST: &str = "a_kernel_without_files_or_ports_is_an_error_of_the_call";
    if !child::is_child() {
        child::passes(TEST, &[("LACKS", "files")]);
        child::passes(TEST, &[("LACKS", "ports")]);
        return;
    }
    let (listener, addr) = listen();
    let listener = Arc::new(listener);
    let _client = net::TcpStream::connect(addr).unwrap();
    let lacks_files = std::env::var("LACKS").unwrap() == "files";
    let errno = if lacks_files {
        let calls = [libc::SYS_socket, libc::SYS_socketpair, libc::SYS_accept4, libc::SYS_pipe2];
        common::seccomp::refuse(&calls, libc::ENFILE);
        libc::ENFILE
    } else {
        common::seccomp::refuse(&[libc::SYS_connect, libc::SYS_bind], libc::EADDRNOTAVAIL);
        libc::EADDRNOTAVAIL
    };
    everywhere(|rt| {
        let same = Arc::clone(&listener);
        rt.run(move || {
            let sockets = || {
                let all = std::fs::read_dir("/proc/self/fd").unwrap();
                let to = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
                to.filter(|to| to.to_string_lossy().starts_with("socket:")).count()
            };
            let is = |error: std::io::Error| assert_eq!(error.raw_os_error(), Some(errno), "{error}");
            let before = sockets();
            for _ in 0..20 {
                is(gmp::net::TcpStream::connect(addr).unwrap_err());
                is(gmp::net::TcpListener::bind("127.0.0.1:0").unwrap_err());
                is(gmp::net::UdpSocket::bind("127.0.0.1:0").unwrap_err());
                if lacks_files {
                    is(same.accept().unwrap_err());
                    is(gmp::net::UnixStream::pair().unwrap_err());
                    is(gmp::io::pipe().unwrap_err());
                }
            }
            assert_eq!(sockets(), before);
        });
    });
}

/// Fails when a call waits for ever, or for a wrong time, because the timeouts of std's socket are lost.
#[test]
fn the_timeouts_of_stds_sockets_come_along() {
    const READS: Option<Duration> = Some(Duration::from_secs(3));
    const WRITES: Option<Duration> = Some(Duration::from_secs(4));
    macro_rules! come_along {
        ($std:expr, $ours:ty) => {{
            let std = $std;
            std.set_read_timeout(READS).unwrap();
            std.set_write_timeout(WRITES).unwrap();
            let twin = std.try_clone().unwrap();
            let socket = <$ours>::from(std);
            assert_eq!((socket.read_timeout().unwrap(), socket.write_timeout().unwrap()), (READS, WRITES));
            let socket = <$ours>::from(OwnedFd::from(twin));
            assert_eq!((socket.read_timeout().unwrap(), socket.write_timeout().unwrap()), (READS, WRITES));
        }};
    }
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    come_along!(net::TcpStream::connect(listener.local_addr().unwrap()).unwrap(), TcpStream);
    come_along!(net::UdpSocket::bind("127.0.0.1:0").unwrap(), gmp::net::UdpSocket);
    come_along!(std::os::unix::net::UnixStream::pair().unwrap().0, UnixStream);
    come_along!(std::os::unix::net::UnixDatagram::unbound().unwrap(), gmp::net::UnixDatagram);

    // A timeout for one direction alone, and a descriptor without timeouts.
    let socket = net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_write_timeout(WRITES).unwrap();
    let socket = gmp::net::UdpSocket::from(socket);
    assert_eq!((socket.read_timeout().unwrap(), socket.write_timeout().unwrap()), (None, WRITES));
    let pipe = UnixStream::from(OwnedFd::from(io::pipe().unwrap().0));
    assert_eq!((pipe.read_timeout().unwrap(), pipe.write_timeout().unwrap()), (None, None));

    everywhere(|rt| {
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        near.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let late = rt.run(move || watched(0, || UnixStream::from(near).read(&mut [0]).unwrap_err()));
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        // Only the kernel knows the timeout of a listener. The timeout holds for each accept.
        let nobody_comes = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let time = libc::timeval { tv_sec: 0, tv_usec: 20_000 };
        let (fd, len) = (nobody_comes.as_raw_fd(), size_of_val(&time) as libc::socklen_t);
        // SAFETY: a valid struct of that size.
        let set = unsafe {
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const time).cast(), len)
        };
        assert_eq!(set, 0);
        let listener = TcpListener::from(nobody_comes);
        let late = rt.run(move || watched(0, || [(); 2].map(|()| listener.accept().unwrap_err().kind())));
        assert_eq!(late, [ErrorKind::TimedOut; 2]);
    });
}
