//! Clients made of std's sockets and threads.

use common::example::LIMIT;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;

/// Returns a connection whose calls fail, instead of hanging, after `LIMIT`.
pub fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&addr, LIMIT).expect("the server accepts");
    stream.set_read_timeout(Some(LIMIT)).expect("a valid time");
    stream.set_write_timeout(Some(LIMIT)).expect("a valid time");
    stream.set_nodelay(true).expect("a socket");
    stream
}

/// Returns `size` bytes that no other message of any connection has.
pub fn content(connection: usize, number: usize, size: usize) -> Vec<u8> {
    let mut state = ((connection as u64) << 32 | number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        // Marsaglia's xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_ne_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// Reads `expected`, and nothing else.
#[track_caller]
pub fn expect(mut stream: &TcpStream, expected: &[u8]) {
    let mut got = vec![0; expected.len()];
    stream.read_exact(&mut got).expect("the echo comes");
    if let Some(at) = (0..got.len()).find(|&at| got[at] != expected[at]) {
        panic!("byte {at} of {}: sent {}, got {}", got.len(), expected[at], got[at]);
    }
}

/// Asserts that the server has ended its direction, after everything else was read.
#[track_caller]
pub fn expect_end(mut stream: &TcpStream) {
    let got = stream.read(&mut [0; 16]).expect("the end of the stream, not an error");
    assert_eq!(got, 0, "bytes that nobody sent");
}

/// Sends one message and waits for its echo.
#[track_caller]
pub fn exchange(mut stream: &TcpStream, connection: usize, number: usize, size: usize) {
    let message = content(connection, number, size);
    stream.write_all(&message).expect("the server reads");
    expect(stream, &message);
}

/// Each of `threads` threads has its share of `connections`, and in each round sends on all of them before it reads
/// the first answer.
pub fn converse(addr: SocketAddr, threads: usize, connections: usize, rounds: usize, size: usize) {
    thread::scope(|scope| {
        for first in 0..threads {
            scope.spawn(move || {
                let mine: Vec<_> = (first..connections)
                    .step_by(threads)
                    .map(|connection| (connection, connect(addr)))
                    .collect();
                for number in 0..rounds {
                    for (connection, stream) in &mine {
                        (&*stream).write_all(&content(*connection, number, size)).expect("the server reads");
                    }
                    for (connection, stream) in &mine {
                        expect(stream, &content(*connection, number, size));
                    }
                }
            });
        }
    });
}

/// Writes `content` of one long message until no more fits, although the server had time to read: the server is blocked in its
/// own write. Returns the number of bytes.
pub fn fill(mut stream: &TcpStream, long: &[u8]) -> usize {
    stream.set_nonblocking(true).expect("a socket");
    let mut written = 0;
    loop {
        match stream.write(&long[written..]) {
            Ok(0) => panic!("the server took {written} bytes and wants more"),
            Ok(more) => written += more,
            Err(full) if full.kind() == ErrorKind::WouldBlock => {
                let mut entry = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
                // SAFETY: one valid entry.
                if unsafe { libc::poll(&raw mut entry, 1, 300) } == 0 {
                    break;
                }
            }
            Err(broken) => panic!("after {written} bytes: {broken}"),
        }
    }
    stream.set_nonblocking(false).expect("a socket");
    written
}

/// Sends `last` together with the end of the stream.
pub fn send_with_end(stream: &TcpStream, last: &[u8]) {
    // SAFETY: the descriptor is open and the slice is valid. MSG_MORE keeps the message back until the end is sent, too.
    let sent = unsafe { libc::send(stream.as_raw_fd(), last.as_ptr().cast(), last.len(), libc::MSG_MORE) };
    assert_eq!(sent, last.len() as isize, "a small message fits");
    stream.shutdown(std::net::Shutdown::Write).expect("it is connected");
}

/// Closes the connection by a reset.
pub fn reset(stream: TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = size_of::<libc::linger>() as libc::socklen_t;
    // SAFETY: the option's value is a `linger` of that size.
    let done = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size,
        )
    };
    assert_eq!(done, 0, "a socket");
}
