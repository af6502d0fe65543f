//! Tasks that talk by sockets, both sides in one runtime.

use super::{in_each, repeated};
use peer_common::Found;
use peer_common::shapes::{LARGE, MS, SMALL, block, median_micros};
use std::net::SocketAddr;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A server with a task for each connection, each with a buffer for a message; gives its address.
async fn server<F>(message: usize, before_answer: impl Fn() -> F + Copy + Send + Sync + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send,
{
    peer_common::many_descriptors();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(async move {
                let mut buffer = vec![0; message];
                while stream.read_exact(&mut buffer).await.is_ok() {
                    before_answer().await;
                    stream.write_all(&buffer).await.unwrap();
                }
            });
        }
    });
    address
}

async fn nothing() {}

async fn client(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

async fn ask(stream: &mut TcpStream, buffer: &mut [u8], i: u64) {
    let last = buffer.len() - 1;
    (buffer[0], buffer[last]) = (i as u8, !i as u8);
    stream.write_all(buffer).await.unwrap();
    buffer[0] = 0;
    stream.read_exact(buffer).await.unwrap();
    assert_eq!((buffer[0], buffer[last]), (i as u8, !i as u8));
}

/// So many connections, each in a closed loop.
async fn closed_loop(address: SocketAddr, connections: u64, message: usize, n: u64) {
    in_each(connections, |_| async move {
        let (mut stream, mut buffer) = (client(address).await, vec![0; message]);
        for i in 0..n / connections {
            ask(&mut stream, &mut buffer, i).await;
        }
    })
    .await;
}

pub async fn blocking_handlers(n: u64) -> Found {
    let address = server(SMALL, || async { tokio::task::spawn_blocking(block).await.unwrap() }).await;
    repeated(n, |n| closed_loop(address, 32, SMALL, n)).await
}

pub async fn large_messages(n: u64) -> Found {
    let address = server(LARGE, nothing).await;
    repeated(n, |n| closed_loop(address, 8, LARGE, n)).await
}

pub async fn idle_bursts(n: u64) -> Found {
    let address = server(SMALL, nothing).await;
    let mut streams = Vec::new();
    for _ in 0..1000 {
        streams.push(client(address).await);
    }
    let (mut buffer, mut took) = ([0; SMALL], Vec::new());
    for round in 0..n + n / 10 {
        tokio::time::sleep(2 * MS).await;
        // Others each time.
        let of_burst = |i: u64| ((round * 7 + i * 10) % 1000) as usize;
        let start = Instant::now();
        for i in 0..100 {
            buffer[0] = i as u8;
            streams[of_burst(i)].write_all(&buffer).await.unwrap();
        }
        for i in 0..100 {
            streams[of_burst(i)].read_exact(&mut buffer).await.unwrap();
            assert_eq!(buffer[0], i as u8);
        }
        took.push(start.elapsed());
    }
    median_micros(took.split_off(n as usize / 10))
}

pub async fn short_connections(n: u64) -> Found {
    let address = server(SMALL, nothing).await;
    let storm = |n| {
        in_each(16, move |_| async move {
            for i in 0..n / 16 {
                ask(&mut client(address).await, &mut [0; SMALL], i).await;
            }
        })
    };
    repeated(n, storm).await
}
