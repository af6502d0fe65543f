//! Goroutines that talk by sockets, both sides in one runtime.

use gmp::net::{TcpListener, TcpStream};
use gmp::{go, time};
use peer_common::Found;
use peer_common::shapes::{LARGE, MS, SMALL, block, median_micros, repeated};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Instant;

/// A server with a goroutine for each connection, each with a buffer for a message; gives its address.
fn server(message: usize, before_answer: impl Fn() + Copy + Send + 'static) -> SocketAddr {
    peer_common::many_descriptors();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    go(move || {
        loop {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            go(move || {
                let mut buffer = vec![0; message];
                while stream.read_exact(&mut buffer).is_ok() {
                    before_answer();
                    stream.write_all(&buffer).unwrap();
                }
            });
        }
    });
    address
}

fn client(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn ask(stream: &mut TcpStream, buffer: &mut [u8], i: u64) {
    let last = buffer.len() - 1;
    (buffer[0], buffer[last]) = (i as u8, !i as u8);
    stream.write_all(buffer).unwrap();
    buffer[0] = 0;
    stream.read_exact(buffer).unwrap();
    assert_eq!((buffer[0], buffer[last]), (i as u8, !i as u8));
}

/// So many connections, each in a closed loop.
fn closed_loop(address: SocketAddr, connections: u64, message: usize, n: u64) {
    let talk = |_| {
        go(move || {
            let (mut stream, mut buffer) = (client(address), vec![0; message]);
            (0..n / connections).for_each(|i| ask(&mut stream, &mut buffer, i));
        })
    };
    let clients: Vec<_> = (0..connections).map(talk).collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
}

pub fn blocking_handlers(n: u64) -> Found {
    let address = server(SMALL, || gmp::blocking(block));
    repeated(n, |n| closed_loop(address, 32, SMALL, n))
}

pub fn large_messages(n: u64) -> Found {
    let address = server(LARGE, || ());
    repeated(n, |n| closed_loop(address, 8, LARGE, n))
}

pub fn idle_bursts(n: u64) -> Found {
    let address = server(SMALL, || ());
    let mut streams: Vec<_> = (0..1000).map(|_| client(address)).collect();
    let mut buffer = [0; SMALL];
    let burst = |round: u64| {
        time::sleep(2 * MS);
        // Others each time.
        let of_burst = |i: u64| ((round * 7 + i * 10) % 1000) as usize;
        let start = Instant::now();
        for i in 0..100 {
            buffer[0] = i as u8;
            streams[of_burst(i)].write_all(&buffer).unwrap();
        }
        for i in 0..100 {
            streams[of_burst(i)].read_exact(&mut buffer).unwrap();
            assert_eq!(buffer[0], i as u8);
        }
        start.elapsed()
    };
    median_micros((0..n + n / 10).map(burst).skip(n as usize / 10).collect())
}

pub fn short_connections(n: u64) -> Found {
    let address = server(SMALL, || ());
    repeated(n, |n| {
        let talk = |_| go(move || (0..n / 16).for_each(|i| ask(&mut client(address), &mut [0; SMALL], i)));
        let clients: Vec<_> = (0..16).map(talk).collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
    })
}
