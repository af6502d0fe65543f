//! UDP sockets: datagrams are whole, and have their sender's address.

use common::crew::{each, everyone, join_all};
use gmp::net::UdpSocket;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

fn bound() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap();
    (socket, addr)
}

/// Fails by a datagram that is joined with another, cut without need, or lost.
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
                    // An empty datagram is one, not the end of anything.
                    assert_eq!(near.recv(&mut [0; 8]).unwrap(), 0);
                }
            }
        });
        assert_eq!(receives.join(), [0, 5, 1472, 60_000, 1]);
    });
}

/// Fails by a datagram whose rest comes with the next receive, or by a peek that takes it.
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

/// Fails by a datagram that two of them get, or none.
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
            // Few at a time: the receiver's buffer holds them.
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

/// Fails by an option that std's socket does not see, or by a group without its datagrams.
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

/// Fails by a mode or a descriptor that a conversion loses.
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
