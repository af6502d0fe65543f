//! Options that are set before a socket listens or connects: the tests read each option back from the kernel, and check the
//! errors of refused ones.

use common::crew::{Member, everyone, on_thread};
use common::loopback::{Hole, listen, refusing};
use common::{runtime, until, watched};
use gmp::context::{Context, ContextError};
use gmp::net::{DialConfig, ListenConfig, TcpListener, TcpStream};
use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const LO: &str = "127.0.0.1:0";
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The option's value, as bytes.
fn raw_option(socket: &impl AsFd, level: i32, name: i32) -> Vec<u8> {
    let mut value = [0_u8; 256];
    let mut len = value.len() as libc::socklen_t;
    let (fd, at) = (socket.as_fd().as_raw_fd(), value.as_mut_ptr().cast());
    // SAFETY: the buffer is as long as `len` says, and both live through the call.
    assert_eq!(unsafe { libc::getsockopt(fd, level, name, at, &raw mut len) }, 0);
    value[..len as usize].to_vec()
}

fn option(socket: &impl AsFd, level: i32, name: i32) -> i32 {
    i32::from_ne_bytes(raw_option(socket, level, name).try_into().expect("an int"))
}

fn socket_option(socket: &impl AsFd, name: i32) -> i32 {
    option(socket, libc::SOL_SOCKET, name)
}

fn tcp_option(socket: &impl AsFd, name: i32) -> i32 {
    option(socket, libc::IPPROTO_TCP, name)
}

fn device(socket: &impl AsFd) -> String {
    let name = raw_option(socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE);
    String::from_utf8(name).unwrap().trim_end_matches('\0').to_owned()
}

/// Returns the idle time, the interval and the count; `None` if keepalive is off.
fn keepalive(socket: &impl AsFd) -> Option<[i32; 3]> {
    let values = [libc::TCP_KEEPIDLE, libc::TCP_KEEPINTVL, libc::TCP_KEEPCNT];
    (socket_option(socket, libc::SO_KEEPALIVE) != 0).then(|| values.map(|name| tcp_option(socket, name)))
}

/// Returns the greatest length of a listener's queue. The kernel has that length in the field in which a connection has its
/// acknowledged segments.
fn backlog(listener: &TcpListener) -> u32 {
    let info = raw_option(listener, libc::IPPROTO_TCP, libc::TCP_INFO);
    let at = std::mem::offset_of!(libc::tcp_info, tcpi_sacked);
    u32::from_ne_bytes(info[at..at + 4].try_into().unwrap())
}

fn longest() -> u32 {
    std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap()
}

/// Returns `true` if the descriptor is non-blocking and closed on exec, as every socket of the library is.
fn is_ours(socket: &impl AsFd) -> bool {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: no pointers.
    let (mode, flags) = unsafe { (libc::fcntl(fd, libc::F_GETFL), libc::fcntl(fd, libc::F_GETFD)) };
    mode & libc::O_NONBLOCK != 0 && flags & libc::FD_CLOEXEC != 0
}

/// Asserts that the error has this kind and this text, and the kernel's error as its source.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: io::Result<T>, kind: ErrorKind, text: &str, errno: i32) {
    let refused = result.unwrap_err();
    assert_eq!((refused.kind(), &refused.to_string()[..]), (kind, text));
    let source = refused.get_ref().and_then(|step| step.source()).expect("the kernel's error");
    assert_eq!(source.downcast_ref().and_then(io::Error::raw_os_error), Some(errno));
}

/// Fails when an option is not set, or is set without a request.
#[test]
fn what_a_listener_is_told_the_kernel_knows() {
    let plain = ListenConfig::new().listen(LO).unwrap();
    let same = TcpListener::bind(LO).unwrap();
    for listener in [&plain, &same] {
        assert!(is_ours(listener));
        assert_eq!(socket_option(listener, libc::SO_REUSEADDR), 1);
        assert_eq!(socket_option(listener, libc::SO_REUSEPORT), 0);
        assert_eq!(tcp_option(listener, libc::TCP_NODELAY), 0);
        assert_eq!((keepalive(listener), device(listener)), (None, String::new()));
        assert_eq!(backlog(listener), longest());
    }

    let listener =
        ListenConfig::new().reuse_addr(false).backlog(7).device("lo").nodelay(true).listen(LO).unwrap();
    assert!(is_ours(&listener));
    assert_eq!(socket_option(&listener, libc::SO_REUSEADDR), 0);
    assert_eq!(tcp_option(&listener, libc::TCP_NODELAY), 1);
    assert_eq!((backlog(&listener), device(&listener)), (7, "lo".to_owned()));
    let longer = ListenConfig::new().backlog(u32::MAX).listen(LO).unwrap();
    assert_eq!(backlog(&longer), longest());

    // The times are rounded up, as the kernel refuses zero.
    let idle = Duration::from_millis(1);
    let asking = ListenConfig::new().keepalive(idle, MINUTE + idle, 3).listen(LO).unwrap();
    assert_eq!(keepalive(&asking), Some([1, 61, 3]));
}

/// Fails when a connection lacks an option of its listener.
#[test]
fn what_a_listener_has_its_connections_have() {
    everyone(|crew| {
        let listener = ListenConfig::new().nodelay(true).keepalive(MINUTE, MINUTE, 5).listen(LO).unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = crew.run(move || listener.accept().unwrap().0);
        assert!(stream.nodelay().unwrap());
        assert_eq!(keepalive(&stream), Some([60, 60, 5]));
    });
}

/// Fails when a second listener is refused although both share the port, or is accepted although one does not, or when a
/// listener gets no connection.
#[test]
fn listeners_may_share_a_port_if_each_says_so() {
    let shared = ListenConfig::new().reuse_port(true);
    let one = shared.listen(LO).unwrap();
    let addr = one.local_addr().unwrap();
    let two = shared.listen(addr).unwrap();
    assert_eq!([&one, &two].map(|listener| socket_option(listener, libc::SO_REUSEPORT)), [1, 1]);
    let text = format!("binding to {addr}: Address already in use (os error 98)");
    refused(ListenConfig::new().listen(addr), ErrorKind::AddrInUse, &text, libc::EADDRINUSE);
    // The kernel chooses the listener by the client's port. With 64 clients, one listener gets none once in 2^63 times.
    let clients: Vec<_> = (0..64).map(|_| std::net::TcpStream::connect(addr).unwrap()).collect();
    let now = Instant::now() + MINUTE;
    for listener in [&one, &two] {
        listener.set_deadline(Some(now)).unwrap();
        listener.accept().unwrap();
    }
    drop(clients);

    let one = shared.bind_udp(LO).unwrap();
    let two = shared.bind_udp(one.local_addr().unwrap()).unwrap();
    assert_eq!([&one, &two].map(|socket| socket_option(socket, libc::SO_REUSEPORT)), [1, 1]);
}

/// Fails when IPv4 is refused although it should be served, or served although it should not.
#[test]
fn the_dual_stack_is_what_was_asked_for() {
    for only in [false, true] {
        let listener = ListenConfig::new().only_v6(only).listen("[::]:0").unwrap();
        assert_eq!(option(&listener, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY), i32::from(only));
        let port = listener.local_addr().unwrap().port();
        // Another listener may have the port in IPv4, so the test checks which client comes to this one first.
        let by_v4 = std::net::TcpStream::connect(("127.0.0.1", port));
        assert!(only || by_v4.is_ok());
        let _by_v6 = std::net::TcpStream::connect(("::1", port)).unwrap();
        let first = listener.accept().unwrap().1.ip().to_string();
        assert_eq!(first, if only { "::1" } else { "::ffff:127.0.0.1" });
        // The option has no effect on an address of IPv4.
        ListenConfig::new().only_v6(only).listen(LO).unwrap();
        let udp = ListenConfig::new().only_v6(only).bind_udp("[::]:0").unwrap();
        assert_eq!(option(&udp, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY), i32::from(only));
    }
}

/// Fails when an option is not set, when an option that a datagram socket lacks is not refused, or when a datagram does not
/// come.
#[test]
fn what_a_udp_socket_is_told_the_kernel_knows() {
    everyone(|crew| {
        let plain = ListenConfig::new().bind_udp(LO).unwrap();
        assert!(is_ours(&plain));
        for (socket, reuse) in [(&plain, 0), (&ListenConfig::new().reuse_addr(true).bind_udp(LO).unwrap(), 1)]
        {
            assert_eq!(socket_option(socket, libc::SO_REUSEADDR), reuse);
            assert_eq!(socket_option(socket, libc::SO_REUSEPORT), 0);
        }
        let bound = ListenConfig::new().device("lo").bind_udp(LO).unwrap();
        assert_eq!(device(&bound), "lo");
        plain.send_to(b"hello", bound.local_addr().unwrap()).unwrap();
        assert_eq!(crew.run(move || bound.recv(&mut [0; 16]).unwrap()), 5);

        let of_tcp = [
            ("backlog", ListenConfig::new().backlog(1)),
            ("keepalive", ListenConfig::new().keepalive(MINUTE, MINUTE, 1)),
            ("nodelay", ListenConfig::new().nodelay(true)),
        ];
        for (name, config) in of_tcp {
            let refused = config.bind_udp(LO).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput);
            assert_eq!(refused.to_string(), format!("bind_udp: the option {name} is for TCP only"));
        }
    });
}

/// Fails when the outcome is not that of the first address that can be bound, or else of the last address.
#[test]
fn the_first_address_that_can_be_bound_is() {
    let (_taken, addr) = listen();
    let free: SocketAddr = "127.0.0.3:0".parse().unwrap();
    let listener = ListenConfig::new().listen(&[addr, free, addr][..]).unwrap();
    assert_eq!(listener.local_addr().unwrap().ip(), free.ip());
    let nobody = ListenConfig::new().listen(&[][..]).unwrap_err();
    assert_eq!(nobody.kind(), ErrorKind::InvalidInput);
    // An address that is not this machine's, in TEST-NET-1.
    let text = "binding to 192.0.2.1:0: Cannot assign requested address (os error 99)";
    let far = [addr, "192.0.2.1:0".parse().unwrap()];
    refused(ListenConfig::new().listen(&far[..]), ErrorKind::AddrNotAvailable, text, libc::EADDRNOTAVAIL);
}

/// Fails when an option is not set on the stream that won, whether its address was tried first or later.
#[test]
fn what_a_dial_is_told_the_kernel_knows() {
    everyone(|crew| {
        let (listener, addr) = listen();
        let plain = DialConfig::new();
        let stream = crew.run(move || plain.connect(addr).unwrap());
        assert!(is_ours(&stream));
        assert_eq!([libc::SO_REUSEADDR, libc::SO_REUSEPORT].map(|name| socket_option(&stream, name)), [0, 0]);
        assert_eq!(tcp_option(&stream, libc::TCP_NODELAY), 0);
        assert_eq!((keepalive(&stream), device(&stream)), (None, String::new()));
        listener.accept().unwrap();

        let hole = Hole::new();
        let config = DialConfig::new()
            .local_addr("127.0.0.4:0".parse().unwrap())
            .reuse_addr(true)
            .reuse_port(true)
            .device("lo")
            .nodelay(true)
            .keepalive(MINUTE, 2 * MINUTE, 9)
            .stagger(Duration::ZERO);
        for addrs in [vec![addr], vec![refusing(), hole.addr, addr]] {
            let config = config.clone();
            let stream = crew.run(move || config.connect(&addrs[..]).unwrap());
            assert!(is_ours(&stream));
            assert_eq!(listener.accept().unwrap().1, stream.local_addr().unwrap());
            assert_eq!(stream.local_addr().unwrap().ip().to_string(), "127.0.0.4");
            assert_eq!(
                [libc::SO_REUSEADDR, libc::SO_REUSEPORT].map(|name| socket_option(&stream, name)),
                [1, 1]
            );
            assert_eq!(tcp_option(&stream, libc::TCP_NODELAY), 1);
            assert_eq!((keepalive(&stream), device(&stream)), (Some([60, 120, 9]), "lo".to_owned()));
            assert_eq!(hole.asking(), 0);
        }
    });
}

/// Fails when the local address is not the requested one, or when the error does not name the wrong family.
#[test]
fn a_local_address_serves_its_family_alone() {
    everyone(|crew| {
        let (_listener, good) = listen();
        let v6 = std::net::TcpListener::bind("[::1]:0").unwrap().local_addr().unwrap();
        let config = DialConfig::new().local_addr(LO.parse().unwrap());
        let text = format!("the local address 127.0.0.1:0 and the peer's {v6} are of two families");
        let alone = config.clone();
        let refused = crew.run(move || alone.connect(v6).unwrap_err());
        assert_eq!((refused.kind(), refused.to_string()), (ErrorKind::InvalidInput, text.clone()));
        let both = config.clone();
        assert_eq!(crew.run(move || both.connect(&[v6, good][..]).unwrap().peer_addr().unwrap()), good);
        // The answer of a peer counts for more than an address that was never asked, whichever comes last.
        for addrs in [[v6, refusing()], [refusing(), v6]] {
            let config = config.clone();
            let all = crew.run(move || config.connect(&addrs[..]).unwrap_err());
            assert!(all.to_string().contains(&text), "{all}");
            assert_eq!(all.kind(), ErrorKind::ConnectionRefused);
        }
    });
}

/// Fails by a wrong kind or text, or when the error has lost its cause.
#[test]
fn what_is_refused_is_told() {
    let (_listener, addr) = listen();
    let taken = TcpStream::connect(addr).unwrap();
    let local = taken.local_addr().unwrap();
    let in_use = format!("binding to {local}: Address already in use (os error 98)");
    let same = DialConfig::new().local_addr(local).connect(addr);
    refused(same, ErrorKind::AddrInUse, &in_use, libc::EADDRINUSE);

    let unknown = r#"the device "no-such-0": No such device (os error 19)"#;
    let kind = io::Error::from_raw_os_error(libc::ENODEV).kind();
    refused(ListenConfig::new().device("no-such-0").listen(LO), kind, unknown, libc::ENODEV);
    refused(ListenConfig::new().device("no-such-0").bind_udp(LO), kind, unknown, libc::ENODEV);
    refused(DialConfig::new().device("no-such-0").connect(addr), kind, unknown, libc::ENODEV);

    let never = "Keepalive { idle: 0ns, interval: 60s, count: 1 }: Invalid argument (os error 22)";
    let config = DialConfig::new().keepalive(Duration::ZERO, MINUTE, 1);
    refused(config.connect(addr), ErrorKind::InvalidInput, never, libc::EINVAL);
    let often = "Keepalive { idle: 60s, interval: 60s, count: 128 }: Invalid argument (os error 22)";
    let config = ListenConfig::new().keepalive(MINUTE, MINUTE, 128);
    refused(config.listen(LO), ErrorKind::InvalidInput, often, libc::EINVAL);
    // The peer's refusal is the kernel's own error, as without options.
    let nobody = DialConfig::new().nodelay(true).connect(refusing()).unwrap_err();
    assert_eq!(nobody.raw_os_error(), Some(libc::ECONNREFUSED));
}

/// Returns the port to which a socket of any kind is bound; 0 if the socket is not bound.
fn port(socket: BorrowedFd<'_>) -> u16 {
    UdpSocket::from(socket.try_clone_to_owned().unwrap()).local_addr().unwrap().port()
}

/// Sets a type of service for the socket's packets.
fn set_tos(socket: BorrowedFd<'_>, tos: i32) -> io::Result<()> {
    let (value, len) = ((&raw const tos).cast(), size_of_val(&tos) as libc::socklen_t);
    // SAFETY: the value is as long as told, and lives through the call.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_TOS, value, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Fails when a socket already has an address, later has another address than the requested one, or has lost an option.
#[test]
fn a_control_function_sees_each_socket_before_it_has_an_address() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = Arc::clone(&seen);
    let sets = move |socket: BorrowedFd<'_>, addr: &SocketAddr| {
        assert!(is_ours(&socket));
        sees.lock().unwrap().push((*addr, port(socket)));
        set_tos(socket, 0x10)
    };
    let tos = |socket: &dyn AsFd| option(&socket.as_fd(), libc::IPPROTO_IP, libc::IP_TOS);
    let asked = |addr: SocketAddr| assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), [(addr, 0)]);
    let config = ListenConfig::new().control(sets.clone());
    let lo = LO.parse().unwrap();
    assert_eq!(tos(&config.listen(lo).unwrap()), 0x10);
    asked(lo);
    assert_eq!(tos(&config.bind_udp(lo).unwrap()), 0x10);
    asked(lo);
    everyone(|crew| {
        let (listener, addr) = listen();
        let config = DialConfig::new().local_addr(lo).control(sets.clone());
        let stream = crew.run(move || config.connect(addr).unwrap());
        assert_eq!(tos(&stream), 0x10);
        assert_eq!(listener.accept().unwrap().1, stream.local_addr().unwrap());
        asked(addr);
    });
}

/// Fails when a socket is made in spite of the refusal, when an address is not tried, or when an error is lost.
#[test]
fn a_control_function_refuses_an_address() {
    everyone(|crew| {
        let ((_bad, bad), (_good, good)) = (listen(), listen());
        let refuses = move |_: BorrowedFd<'_>, addr: &SocketAddr| match *addr == bad {
            true => Err(io::Error::from_raw_os_error(libc::EPERM)),
            false => Ok(()),
        };
        let dial = DialConfig::new().control(refuses);
        let [alone, both] = [(); 2].map(|()| dial.clone());
        let text = format!("the control function for {bad}: Operation not permitted (os error 1)");
        refused(crew.run(move || alone.connect(bad)), ErrorKind::PermissionDenied, &text, libc::EPERM);
        assert_eq!(crew.run(move || both.connect(&[bad, good][..])).unwrap().peer_addr().unwrap(), good);
        let all = [bad, bad];
        let refused_all = crew.run(move || dial.connect(&all[..])).unwrap_err();
        assert_eq!(refused_all.kind(), ErrorKind::PermissionDenied);
        assert!(refused_all.to_string().contains(&text), "{refused_all}");
    });
    let none: SocketAddr = LO.parse().unwrap();
    let config = ListenConfig::new().control(|_, _| Err(io::Error::from_raw_os_error(libc::EPERM)));
    let text = format!("the control function for {none}: Operation not permitted (os error 1)");
    refused(config.listen(none), ErrorKind::PermissionDenied, &text, libc::EPERM);
    refused(config.bind_udp(none), ErrorKind::PermissionDenied, &text, libc::EPERM);
}

/// Fails by a hang when the function parks while it holds something that the library needs; when an attempt stays open after a
/// panic; or when a panic is lost.
#[test]
fn a_control_function_may_park_and_panic() {
    everyone(|crew| {
        let hole = Hole::new();
        let (_listener, good) = listen();
        let waits = move |_: BorrowedFd<'_>, addr: &SocketAddr| {
            if *addr == good {
                let (sender, receiver) = gmp::chan::bounded(0);
                thread::spawn(move || sender.send(()));
                receiver.recv().unwrap();
            }
            Ok(())
        };
        let config = DialConfig::new().stagger(Duration::ZERO).control(waits);
        let addrs = [hole.addr, good];
        assert_eq!(crew.run(move || config.connect(&addrs[..]).unwrap().peer_addr().unwrap()), good);
        assert_eq!(hole.asking(), 0);

        let panics = move |_: BorrowedFd<'_>, addr: &SocketAddr| match *addr == good {
            true => resume_unwind(Box::new("why")),
            false => Ok(()),
        };
        let config = DialConfig::new().stagger(Duration::ZERO).control(panics);
        let dials = move || catch_unwind(AssertUnwindSafe(|| drop(config.connect(&addrs[..]))));
        assert_eq!(crew.run(dials).unwrap_err().downcast_ref(), Some(&"why"));
        assert_eq!(hole.asking(), 0);
    });
}

/// A refusal of this kind looks like that of a bind whose port another attempt has, after which the dial would try again. Fails
/// by the end of the time, or by another call of the function.
#[test]
fn an_address_that_a_control_function_says_is_in_use_is_refused() {
    everyone(|crew| {
        let (hole, (_bad, bad), (_good, good)) = (Hole::new(), listen(), listen());
        let asked = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&asked);
        let refuses = move |_: BorrowedFd<'_>, addr: &SocketAddr| match *addr == bad {
            true => {
                counts.fetch_add(1, SeqCst);
                Err(io::Error::from_raw_os_error(libc::EADDRINUSE))
            }
            false => Ok(()),
        };
        let config = DialConfig::new().stagger(Duration::ZERO).timeout(10 * SECOND).control(refuses);
        let addrs = [hole.addr, bad, good];
        assert_eq!(crew.run(move || config.connect(&addrs[..])).unwrap().peer_addr().unwrap(), good);
        assert_eq!(asked.load(SeqCst), 1);
    });
}

/// The function takes long to refuse an address, and meanwhile the first attempt is connected. Fails by another call of the
/// function, or by the end of the time, when the dial does not look at that attempt.
#[test]
fn an_attempt_that_a_control_function_holds_up_wins() {
    type Run<'a> = &'a dyn Fn(DialConfig, [SocketAddr; 4]) -> Member<'static, io::Result<TcpStream>>;
    let dials = |run: Run<'_>| {
        for limit in [None, Some(2 * SECOND)] {
            let (hole, asked) = (Arc::new(Hole::new()), Arc::new(AtomicUsize::new(0)));
            let (own, counts) = (Arc::clone(&hole), Arc::clone(&asked));
            let accepted = Mutex::new(Vec::new());
            let refuses = move |_: BorrowedFd<'_>, addr: &SocketAddr| {
                if *addr == own.addr {
                    return Ok(());
                }
                let begin = Instant::now();
                if counts.fetch_add(1, SeqCst) == 0 {
                    // The first attempt asks again after a second, and then there is room.
                    for _ in 0..2 {
                        accepted.lock().unwrap().push(own.listener.accept().unwrap());
                    }
                    until(|| begin.elapsed() > limit.unwrap_or_default());
                }
                Err(io::Error::from_raw_os_error(libc::EPERM))
            };
            let mut config = DialConfig::new().stagger(Duration::ZERO).control(refuses);
            if let Some(limit) = limit {
                config = config.timeout(limit);
            }
            let stream = run(config, [hole.addr, refusing(), refusing(), refusing()]).join().unwrap();
            assert_eq!((stream.peer_addr().unwrap(), asked.load(SeqCst)), (hole.addr, 1));
        }
    };
    watched(0, || dials(&|config, addrs| on_thread(move || config.connect(&addrs[..]))));
    watched(1, || dials(&|config, addrs| on_thread(move || runtime(1).run(|| config.connect(&addrs[..])))));
}

/// Fails when a stream is its own peer. The kernel makes such a connection if there is no listener, and the caller's own port
/// is the requested one. That can happen to clients of a port in the range from which the kernel takes the callers' ports.
#[test]
fn a_connection_to_itself_is_refused() {
    let free = std::net::TcpListener::bind("127.0.0.77:0").unwrap().local_addr().unwrap();
    let itself = DialConfig::new().local_addr(free).connect(free).unwrap_err();
    assert_eq!(itself.raw_os_error(), Some(libc::ECONNREFUSED));
}

/// Takes from the calling thread the right to bind ports below 1024, if the thread has it.
fn without_privileges() {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    // The sets are effective, permitted and inheritable, first their low halves, then their high halves.
    let (header, none) = (Header { version: 0x2008_0522, pid: 0 }, [0_u32; 6]);
    // SAFETY: both have the layout of version 3, and live through the call, which is about this thread alone.
    let set = unsafe { libc::syscall(libc::SYS_capset, &raw const header, &raw const none) };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
}

/// Fails by a text that does not say what is not permitted.
#[test]
fn a_port_without_permission_is_told() {
    let first = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
    if first.trim().parse::<u16>().unwrap() <= 1 {
        common::skipped("here everybody may bind port 1");
        return;
    }
    std::thread::spawn(|| {
        without_privileges();
        let text = "binding to 127.0.0.1:1: Permission denied (os error 13)";
        let kind = ErrorKind::PermissionDenied;
        refused(ListenConfig::new().listen("127.0.0.1:1"), kind, text, libc::EACCES);
        refused(ListenConfig::new().bind_udp("127.0.0.1:1"), kind, text, libc::EACCES);
        let config = DialConfig::new().local_addr("127.0.0.1:1".parse().unwrap());
        refused(config.connect(refusing()), kind, text, libc::EACCES);
    })
    .join()
    .unwrap();
}

/// Fails when a dial continues, by another error, or when an attempt is left.
#[test]
fn a_dial_ends_with_its_time_and_with_its_context() {
    everyone(|crew| {
        let (one, other, (_listener, good)) = (Hole::new(), Hole::new(), listen());
        let addrs = [one.addr, other.addr];
        let short = Duration::from_millis(5);
        let config = DialConfig::new().stagger(Duration::ZERO);
        let past = Instant::now();
        for (config, at_least) in [
            (config.clone().timeout(short), short),
            (config.clone().timeout(short).deadline(past + 60 * MINUTE), short),
            (config.clone().timeout(MINUTE).deadline(past), Duration::ZERO),
        ] {
            for addrs in [&addrs[..1], &addrs] {
                let (config, addrs, begin) = (config.clone(), addrs.to_vec(), Instant::now());
                let ended = crew.run(move || config.connect(&addrs[..]).unwrap_err());
                assert_eq!(ended.kind(), ErrorKind::TimedOut, "{ended}");
                assert!(begin.elapsed() >= at_least);
                assert_eq!((one.asking(), other.asking()), (0, 0));
            }
        }
        let never = config.clone().timeout(Duration::ZERO);
        assert_eq!(crew.run(move || never.connect(good).unwrap_err()).kind(), ErrorKind::InvalidInput);

        let (context, cancel) = Context::background().with_cancel();
        let config = config.timeout(60 * MINUTE).context(&context);
        let in_time = config.clone();
        assert_eq!(crew.run(move || in_time.connect(good).unwrap().peer_addr().unwrap()), good);
        for addrs in [&addrs[..1], &addrs] {
            let (config, addrs) = (config.clone(), addrs.to_vec());
            let (context, cancel) = context.with_cancel();
            let config = config.context(&context);
            let dial = crew.go(move || config.connect(&addrs[..]).unwrap_err());
            dial.until_it_waits();
            cancel.cancel();
            canceled(&dial.join());
            assert_eq!((one.asking(), other.asking()), (0, 0));
        }
        // The error comes also where the call would not have to wait.
        cancel.cancel();
        canceled(&crew.run(move || config.connect(good).unwrap_err()));
    });
}

/// Fails when the error says that the control function refused the address, rather than that the context is done.
#[test]
fn a_context_that_ends_a_wait_in_the_control_function_ends_the_call() {
    everyone(|crew| {
        let ((_one, first), (_other, second)) = (listen(), listen());
        let (nothing, _writer) = gmp::io::pipe().unwrap();
        let nothing = Arc::new(nothing);
        let unwelcome = SocketAddr::new([127, 0, 0, 9].into(), 1);
        let control = move |_: BorrowedFd<'_>, addr: &SocketAddr| match addr.ip() == unwelcome.ip() {
            true => Err(ErrorKind::PermissionDenied.into()),
            false => (&*nothing).read(&mut [0]).map(drop),
        };
        let (dials, listens) =
            (DialConfig::new().control(control.clone()), ListenConfig::new().control(control));
        for addrs in [&[first][..], &[first, second], &[unwelcome, first]] {
            let (dials, listens) = (dials.clone(), listens.clone());
            let (context, cancel) = Context::background().with_cancel();
            let (dials, to) = (dials.context(&context), addrs.to_vec());
            let dial = crew.go(move || dials.connect(&to[..]).unwrap_err());
            let own = addrs.iter().map(|addr| SocketAddr::new(addr.ip(), 0)).collect::<Vec<_>>();
            let listen = crew.go(move || context.run(|| listens.listen(&own[..]).unwrap_err()).unwrap());
            dial.until_it_waits();
            listen.until_it_waits();
            cancel.cancel();
            canceled(&dial.join());
            canceled(&listen.join());
        }
        // A context of the function's own refuses the address alone.
        let own = |_: BorrowedFd<'_>, _: &SocketAddr| Err(ContextError::Canceled.into());
        let refused = crew.run(move || DialConfig::new().control(own).connect(first).unwrap_err());
        assert!(refused.to_string().contains("the control function"), "{refused}");
    });
}

#[track_caller]
fn canceled(refused: &io::Error) {
    let inner = refused.get_ref().and_then(|inner| inner.downcast_ref());
    assert_eq!(inner, Some(&ContextError::Canceled), "{refused:?}");
}
