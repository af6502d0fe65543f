use crate::support::{everywhere, many};
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixStream};

/// Fails when a message is lost or mixed up, or by a hang: goroutines that migrate poll the two ends.
#[test]
fn sockets_of_tokio_on_goroutines_echo() {
    everywhere(|| {
        let listener = gmp::block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let addr = listener.local_addr().unwrap();
        let server = gmp::go(move || {
            let serve = |mut stream: TcpStream| {
                move || {
                    let mut bytes = [0; 64];
                    loop {
                        let got = gmp::block_on(stream.read(&mut bytes)).unwrap();
                        if got == 0 {
                            return;
                        }
                        gmp::block_on(stream.write_all(&bytes[..got])).unwrap();
                    }
                }
            };
            let connections: Vec<_> =
                (0..20).map(|_| gmp::go(serve(gmp::block_on(listener.accept()).unwrap().0))).collect();
            connections.into_iter().for_each(|one| one.join().unwrap());
        });
        many(20, move |n| {
            let mut stream = gmp::block_on(TcpStream::connect(addr)).unwrap();
            for round in 0..50 {
                let said = format!("{n} says {round}");
                let mut heard = vec![0; said.len()];
                gmp::block_on(async {
                    stream.write_all(said.as_bytes()).await.unwrap();
                    stream.read_exact(&mut heard).await.unwrap();
                });
                assert_eq!(heard, said.as_bytes());
            }
        });
        server.join().unwrap();
    });
}

/// As above, for tasks of the reactor; the halves of a stream are in two tasks.
#[test]
fn sockets_of_tokio_as_tasks_echo() {
    everywhere(|| {
        let listener = gmp_tokio::run(TcpListener::bind("127.0.0.1:0")).unwrap();
        let addr = listener.local_addr().unwrap();
        let server = gmp::go(move || {
            for _ in 0..20 {
                let (stream, _) = gmp::block_on(listener.accept()).unwrap();
                tokio::spawn(async move {
                    let (mut input, mut output) = stream.into_split();
                    tokio::io::copy(&mut input, &mut output).await
                });
            }
        });
        let heard = many(20, move |n| {
            gmp_tokio::run(async move {
                let (input, mut output) = TcpStream::connect(addr).await.unwrap().into_split();
                let writes = tokio::spawn(async move {
                    for round in 0..50 {
                        output.write_all(format!("{n} says {round}\n").as_bytes()).await.unwrap();
                    }
                });
                let (mut lines, mut heard) = (BufReader::new(input).lines(), 0);
                while let Some(line) = lines.next_line().await.unwrap() {
                    assert_eq!(line, format!("{n} says {heard}"));
                    heard += 1;
                }
                writes.await.unwrap();
                heard
            })
        });
        assert_eq!(heard, [50; 20]);
        server.join().unwrap();
    });
}

/// Fails if another kind of socket needs more than the context.
#[test]
fn datagrams_and_local_streams_arrive() {
    everywhere(|| {
        let (one, two) = UnixStream::pair().unwrap();
        let (mut one, mut two) = (one, two);
        let reads = gmp::go(move || {
            let mut text = String::new();
            gmp::block_on(two.read_to_string(&mut text)).unwrap();
            text
        });
        gmp::block_on(one.write_all(b"over there")).unwrap();
        drop(one);
        assert_eq!(reads.join().unwrap(), "over there");

        let socket = Arc::new(gmp::block_on(UdpSocket::bind("127.0.0.1:0")).unwrap());
        let addr = socket.local_addr().unwrap();
        let theirs = Arc::clone(&socket);
        let reads = gmp::go(move || {
            let mut bytes = [0; 16];
            let (got, _) = gmp::block_on(theirs.recv_from(&mut bytes)).unwrap();
            bytes[..got].to_vec()
        });
        assert_eq!(gmp::block_on(socket.send_to(b"datagram", addr)).unwrap(), 8);
        assert_eq!(reads.join().unwrap(), b"datagram");
    });
}
