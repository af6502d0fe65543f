//! An echo server that is no runtime: one thread, one epoll, a read and a write for each event.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

struct Epoll(RawFd);

impl Epoll {
    fn new() -> Self {
        // SAFETY: it takes no pointer.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(epoll >= 0, "epoll_create1: {}", std::io::Error::last_os_error());
        Epoll(epoll)
    }

    fn watch(&self, fd: RawFd) {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: fd as u64 };
        // SAFETY: the kernel reads the event.
        let done = unsafe { libc::epoll_ctl(self.0, libc::EPOLL_CTL_ADD, fd, &mut event) };
        assert_eq!(done, 0, "epoll_ctl: {}", std::io::Error::last_os_error());
    }

    fn wait<'a>(&self, events: &'a mut [libc::epoll_event]) -> &'a [libc::epoll_event] {
        // SAFETY: the kernel writes so many events at most.
        let count = unsafe { libc::epoll_wait(self.0, events.as_mut_ptr(), events.len() as i32, -1) };
        &events[..usize::try_from(count).expect("epoll_wait")]
    }
}

pub fn serve() -> ! {
    peer_common::many_descriptors();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    println!("{}", listener.local_addr().expect("it is bound").port());
    let (epoll, mut streams) = (Epoll::new(), HashMap::<RawFd, TcpStream>::new());
    epoll.watch(listener.as_raw_fd());
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 1024];
    let mut buffer = [0; 4096];
    loop {
        for event in epoll.wait(&mut events) {
            let fd = event.u64 as RawFd;
            if fd == listener.as_raw_fd() {
                let (stream, _) = listener.accept().expect("accept");
                stream.set_nodelay(true).expect("a TCP socket");
                epoll.watch(stream.as_raw_fd());
                streams.insert(stream.as_raw_fd(), stream);
            } else if !answer(streams.get_mut(&fd).expect("one of ours"), &mut buffer) {
                streams.remove(&fd);
            }
        }
    }
}

/// False: the connection has ended.
fn answer(stream: &mut TcpStream, buffer: &mut [u8]) -> bool {
    matches!(stream.read(buffer), Ok(got @ 1..) if stream.write_all(&buffer[..got]).is_ok())
}
