//! Connections over the loopback.

use gmp::net::{TcpListener, TcpStream};
use std::net::SocketAddr;

pub fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("it is bound");
    (listener, addr)
}

/// Both ends of a connection.
pub fn pair() -> (TcpStream, TcpStream) {
    let (listener, addr) = listen();
    let near = TcpStream::connect(addr).expect("the kernel takes the connection");
    let far = listener.accept().expect("it is there").0;
    for end in [&near, &far] {
        // Else an answer in two parts waits 40 ms for the delayed ACK of its first.
        end.set_nodelay(true).expect("it is a TCP stream");
    }
    (near, far)
}
