//! Echo servers that are no runtime: one thread, one epoll, a read and a write for each event; or a thread for each connection.

use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;

pub struct Epoll(RawFd);

impl Epoll {
    pub fn new() -> Self {
        // SAFETY: it takes no pointer.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(epoll >= 0, "epoll_create1: {}", std::io::Error::last_os_error());
        Epoll(epoll)
    }

    pub fn watch(&self, fd: RawFd, events: i32) {
        let mut event = libc::epoll_event { events: events as u32, u64: fd as u64 };
        // SAFETY: the kernel reads the event.
        let done = unsafe { libc::epoll_ctl(self.0, libc::EPOLL_CTL_ADD, fd, &mut event) };
        assert_eq!(done, 0, "epoll_ctl: {}", std::io::Error::last_os_error());
    }

    pub fn wait<'a>(&self, events: &'a mut [libc::epoll_event]) -> &'a [libc::epoll_event] {
        // SAFETY: the kernel writes so many events at most.
        let count = unsafe { libc::epoll_wait(self.0, events.as_mut_ptr(), events.len() as i32, -1) };
        &events[..usize::try_from(count).expect("epoll_wait")]
    }
}

pub fn tcp() -> ! {
    let listener = listen();
    serve(listener.as_raw_fd(), || {
        let (stream, _) = listener.accept().expect("accept");
        stream.set_nodelay(true).expect("a TCP socket");
        stream.into()
    })
}

/// A thread for each connection, on the least stack that a runtime of threads would give it.
pub fn thread_each() -> ! {
    peer_common::many_descriptors();
    let listener = listen();
    loop {
        let (mut stream, _) = listener.accept().expect("accept");
        stream.set_nodelay(true).expect("a TCP socket");
        let serve = move || {
            let mut buffer = [0; 64];
            while matches!(stream.read(&mut buffer), Ok(got @ 1..) if stream.write_all(&buffer[..got]).is_ok())
            {
            }
        };
        std::thread::Builder::new().stack_size(64 << 10).spawn(serve).expect("a thread");
    }
}

fn listen() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    peer_common::widen(&listener);
    println!("{}", listener.local_addr().expect("it is bound").port());
    listener
}

pub fn unix() -> ! {
    let path = peer_common::socket_path();
    let listener = UnixListener::bind(&path).expect("a path");
    println!("{}", path.display());
    serve(listener.as_raw_fd(), || listener.accept().expect("accept").0.into())
}

fn serve(listener: RawFd, accept: impl Fn() -> OwnedFd) -> ! {
    peer_common::many_descriptors();
    let (epoll, mut streams) = (Epoll::new(), HashMap::<RawFd, File>::new());
    epoll.watch(listener, libc::EPOLLIN);
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 1024];
    let mut buffer = [0; 4096];
    loop {
        for event in epoll.wait(&mut events) {
            let fd = event.u64 as RawFd;
            if fd == listener {
                let stream = accept();
                epoll.watch(stream.as_raw_fd(), libc::EPOLLIN);
                streams.insert(stream.as_raw_fd(), stream.into());
            } else if !answer(streams.get_mut(&fd).expect("one of ours"), &mut buffer) {
                streams.remove(&fd);
            }
        }
    }
}

/// False: the connection has ended.
fn answer(stream: &mut File, buffer: &mut [u8]) -> bool {
    matches!(stream.read(buffer), Ok(got @ 1..) if stream.write_all(&buffer[..got]).is_ok())
}

/// With an edge for what has come, as the runtimes have it: the last call before each wait gets nothing.
pub fn udp() -> ! {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_nonblocking(true).expect("a socket");
    println!("{}", socket.local_addr().expect("it is bound").port());
    let epoll = Epoll::new();
    epoll.watch(socket.as_raw_fd(), libc::EPOLLIN | libc::EPOLLET);
    let mut events = [libc::epoll_event { events: 0, u64: 0 }];
    let mut buffer = [0; 4096];
    loop {
        epoll.wait(&mut events);
        loop {
            match socket.recv_from(&mut buffer) {
                Ok((got, from)) => {
                    socket.send_to(&buffer[..got], from).expect("a datagram is sent");
                }
                Err(none) if none.kind() == ErrorKind::WouldBlock => break,
                Err(refused) => panic!("{refused}"),
            }
        }
    }
}
