//! UDP sockets: datagrams are whole, and have their sender's address.

use common::crew::{each, everyone, join_all};
use common::everywhere;
use gmp::net::UdpSocket;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::{self, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

fn bound() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap();
    (socket, addr)
}

/// Fails when a datagram is joined with another, cut without need, or lost.
#[test]
fn datagrams_stay_whole() {
    everyone(|crew| {
        let ((near, here), (far, there)) = (bound(), bound());
        let receives = crew.go(move || {
            let mut buffer = vec![0; 1 << 16];
            let mut sizes = Vec::new();
            loop {
                let (len, from) = far.recv_from(&mut buffer).unwrap();
                assert_eq!(from, here);
                assert!(buffer[..len].iter().all(|&byte| byte == len as u8));
                sizes.push(len);
                if len == 1 {
                    return sizes;
                }
                far.send_to(&[], from).unwrap();
            }
        });
        crew.run(move || {
            for len in [0, 5, 1472, 60_000, 1] {
                assert_eq!(near.send_to(&vec![len as u8; len], there).unwrap(), len);
                if len != 1 {
                    // An empty datagram is a datagram, and not the end of the data.
                    assert_eq!(near.recv(&mut [0; 8]).unwrap(), 0);
                }
            }
        });
        assert_eq!(receives.join(), [0, 5, 1472, 60_000, 1]);
    });
}

/// Fails when the rest of a datagram comes with the next receive, or when a peek takes it.
#[test]
fn what_does_not_fit_is_cut_off() {
    everyone(|crew| {
        crew.run(|| {
            let ((near, here), (far, there)) = (bound(), bound());
            near.connect(there).unwrap();
            near.send(b"long one").unwrap();
            near.send(b"next").unwrap();
            let mut buffer = [0; 4];
            assert_eq!(far.peek_from(&mut buffer).unwrap(), (4, here));
            assert_eq!(far.recv_from(&mut buffer).unwrap(), (4, here));
            assert_eq!(&buffer, b"long");
            assert_eq!(far.recv(&mut buffer).unwrap(), 4);
            assert_eq!(&buffer, b"next");
            let refused = near.send(&vec![0; 70_000]).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EMSGSIZE));
        });
    });
}

/// Fails when two receivers get one datagram, or when no receiver does.
#[test]
fn of_several_receivers_each_gets_whole_datagrams() {
    const EACH: usize = 16;
    everyone(|crew| {
        let ((near, _), (far, there)) = (bound(), bound());
        let far = Arc::new(far);
        let same = Arc::clone(&far);
        let receivers = each(crew, 4, move |_| {
            let mut got = Vec::new();
            let mut buffer = [0; 16];
            loop {
                let len = same.recv(&mut buffer).unwrap();
                match len {
                    8 => got.push(usize::from_ne_bytes(buffer[..8].try_into().unwrap())),
                    _ => return got,
                }
            }
        });
        crew.run(move || {
            // The receiver's buffer holds all of these.
            for number in 0..4 * EACH {
                near.send_to(&number.to_ne_bytes(), there).unwrap();
            }
            (0..4).for_each(|_| assert_eq!(near.send_to(b"end", there).unwrap(), 3));
        });
        let mut got: Vec<_> = join_all(receivers).into_iter().flatten().collect();
        got.sort_unstable();
        assert_eq!(got, (0..4 * EACH).collect::<Vec<_>>());
        drop(far);
    });
}

/// Fails when std's socket does not see an option, or a group does not get its datagrams.
#[test]
fn options_are_those_of_std() {
    everyone(|crew| {
        crew.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_broadcast(true).unwrap();
            socket.set_ttl(9).unwrap();
            socket.set_multicast_loop_v4(true).unwrap();
            socket.set_multicast_ttl_v4(3).unwrap();
            assert!(socket.broadcast().unwrap() && socket.multicast_loop_v4().unwrap());
            assert_eq!((socket.ttl().unwrap(), socket.multicast_ttl_v4().unwrap()), (9, 3));
            assert!(socket.take_error().unwrap().is_none());
            assert_eq!(socket.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);

            let (group, host) = (Ipv4Addr::new(239, 255, 77, 1), Ipv4Addr::LOCALHOST);
            socket.join_multicast_v4(&group, &host).unwrap();
            assert_eq!(
                socket.join_multicast_v4(&group, &host).unwrap_err().raw_os_error(),
                Some(libc::EADDRINUSE)
            );
            socket.leave_multicast_v4(&group, &host).unwrap();
            assert!(socket.leave_multicast_v4(&group, &host).is_err());
        });
    });
}

/// Fails when a conversion loses a mode or a descriptor.
#[test]
fn a_socket_goes_to_std_and_comes_back() {
    everyone(|crew| {
        crew.run(|| {
            let (near, here) = bound();
            let twin = near.try_clone().unwrap();
            drop(near);
            let std = std::net::UdpSocket::from(twin);
            assert_eq!(std.local_addr().unwrap(), here);
            std.send_to(b"to myself", here).unwrap();
            let back = UdpSocket::from(std);
            let mut buffer = [0; 16];
            assert_eq!(back.recv_from(&mut buffer).unwrap(), (9, here));
            let _fd = OwnedFd::from(back);
        });
    });
}

/// Another holder shuts the reads of a socket down: before a receive, and while a receive waits. The kernel tells a call that
/// does not wait that there is no data yet. Fails by a hang of a goroutine, by a busy loop of a thread, or when the receive
/// ends in another way than std's.
#[test]
fn a_shutdown_by_another_holder_ends_the_receives_as_with_std() {
    type Receives = fn(&UdpSocket) -> io::Result<usize>;
    type OfStd = fn(&net::UdpSocket) -> io::Result<usize>;
    let ways: [(Receives, OfStd); 4] = [
        (|socket| socket.recv(&mut [0; 8]), |socket| socket.recv(&mut [0; 8])),
        (|socket| socket.peek(&mut [0; 8]), |socket| socket.peek(&mut [0; 8])),
        (|socket| Ok(socket.recv_from(&mut [0; 8])?.0), |socket| Ok(socket.recv_from(&mut [0; 8])?.0)),
        (|socket| Ok(socket.peek_from(&mut [0; 8])?.0), |socket| Ok(socket.peek_from(&mut [0; 8])?.0)),
    ];
    // A shutdown of a socket without a peer returns an error, and ends the reads all the same.
    // SAFETY: no pointers.
    let shut = |twin: &OwnedFd| _ = unsafe { libc::shutdown(twin.as_raw_fd(), libc::SHUT_RD) };
    everyone(|crew| {
        for (receives, of_std) in ways {
            let std = net::UdpSocket::bind("127.0.0.1:0").unwrap();
            shut(&std.as_fd().try_clone_to_owned().unwrap());
            let expected = of_std(&std).map_err(|ended| ended.kind());

            let ((socket, here), (other, _)) = (bound(), bound());
            let socket = Arc::new(socket);
            let twin = socket.as_fd().try_clone_to_owned().unwrap();
            let same = Arc::clone(&socket);
            let waits = crew.go(move || receives(&same));
            waits.until_it_waits();
            shut(&twin);
            assert_eq!(waits.join().map_err(|ended| ended.kind()), expected);
            // A later datagram is received.
            other.send_to(b"hello", here).unwrap();
            let later = crew.run(move || {
                [socket.recv(&mut [0; 8]), receives(&socket)].map(|got| got.map_err(|ended| ended.kind()))
            });
            assert_eq!(later, [Ok(5), expected]);
        }
    });
    everywhere(|rt| {
        let (socket, _) = bound();
        let socket = Arc::new(socket);
        let same = Arc::clone(&socket);
        let polls = rt.go(move || gmp::block_on(poll_fn(|cx| same.poll_recv(cx, &mut [0; 8]))));
        // The task waits now, or will wait later.
        rt.run(gmp::yield_now);
        shut(&socket.as_fd().try_clone_to_owned().unwrap());
        assert_eq!(polls.join().unwrap().unwrap(), 0);
        let again = rt.run(move || gmp::block_on(poll_fn(|cx| socket.poll_recv_from(cx, &mut [0; 8]))));
        assert_eq!(again.unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}
