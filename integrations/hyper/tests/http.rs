//! hyper's servers and clients over gmp. Each test holds for several numbers of Ps, and where goroutines migrate at each park.

use gmp::context::Context;
use gmp::net::{TcpListener, TcpStream, UnixStream};
use gmp::sync::{Barrier, Event};
use gmp::{JoinHandle, Runtime, block_on, go};
use gmp_hyper::{GmpExecutor, GmpIo, GmpTimer, offload, serve_until};
use http_body_util::{BodyExt, Channel, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn as client;
use hyper::rt::{Executor, Timer};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
/// A test that hangs for this long is reported and ended.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs `property` on the first goroutine of a fresh runtime of each size.
#[track_caller]
fn everywhere(property: impl Fn() + Send + Sync + 'static) {
    let property = Arc::new(property);
    for procs in [1, 2, 4] {
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        let runtime = unsafe { Runtime::builder().procs(procs).build() }.unwrap();
        let (ended, ends) = mpsc::channel();
        let property = Arc::clone(&property);
        let runtime = Arc::new(runtime);
        let runs = Arc::clone(&runtime);
        let thread = thread::spawn(move || {
            runs.run(move || property());
            ended.send(()).unwrap();
        });
        if ends.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("hangs with {procs} Ps:\n{}", runtime.dump());
            std::process::abort();
        }
        thread.join().unwrap();
    }
}

type Answer<B> = Result<Response<B>, Infallible>;

/// Sends the body back as it arrives.
async fn echo(request: Request<Incoming>) -> Answer<Incoming> {
    Ok(Response::new(request.into_body()))
}

/// An HTTP/1 server for one connection.
fn serve_one<F, B>(
    answer: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
) -> (SocketAddr, JoinHandle<hyper::Result<()>>)
where
    F: Future<Output = Answer<B>> + Send + 'static,
    B: hyper::body::Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>, Data: Send> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serves = go(move || {
        let stream = listener.accept().unwrap().0;
        stream.set_nodelay(true).unwrap();
        block_on(
            http1::Builder::new().timer(GmpTimer).serve_connection(GmpIo::new(stream), service_fn(answer)),
        )
    });
    (address, serves)
}

/// Reads one answer by hand: its head, and its body, whose length the head tells.
fn read_answer(stream: &mut impl Read) -> (String, Vec<u8>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    (head, body)
}

/// Fails by a wrong body, or when the connection ends between two requests.
#[test]
fn a_connection_serves_many_requests() {
    everywhere(|| {
        let (address, serves) = serve_one(|request| async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            Ok(Response::new(Full::<Bytes>::from(body)))
        });
        let mut stream = TcpStream::connect(address).unwrap();
        for n in 0..50 {
            let body = vec![n as u8; n * 37];
            write!(&stream, "POST / HTTP/1.1\r\nhost: here\r\ncontent-length: {}\r\n\r\n", body.len())
                .unwrap();
            stream.write_all(&body).unwrap();
            assert_eq!(read_answer(&mut stream).1, body);
        }
        drop(stream);
        serves.join().unwrap().unwrap();
    });
}

/// Twenty requests come at once; their answers come in the same order. Fails by a hang when bytes that were read already wait
/// for an event.
#[test]
fn requests_that_come_at_once_are_answered_in_order() {
    everywhere(|| {
        let (address, serves) = serve_one(|request: Request<Incoming>| async move {
            // For every second request, another goroutine gets a turn.
            if request.uri().path().ends_with('1') {
                gmp::time::sleep(MS);
            }
            Ok(Response::new(request.uri().path().to_owned()))
        });
        let mut stream = TcpStream::connect(address).unwrap();
        let all: String = (0..20).map(|n| format!("GET /{n} HTTP/1.1\r\nhost: here\r\n\r\n")).collect();
        stream.write_all(all.as_bytes()).unwrap();
        for n in 0..20 {
            assert_eq!(read_answer(&mut stream).1, format!("/{n}").into_bytes());
        }
        drop(stream);
        serves.join().unwrap().unwrap();
    });
}

/// The client sends more than all buffers in between hold, and reads the answer at the same time. Fails by a hang when the
/// server's reads wait for its writes, or the other way round.
#[test]
fn a_body_goes_both_ways_at_once() {
    const PIECE: usize = 10_000;
    const PIECES: usize = 800;
    everywhere(|| {
        let (address, serves) = serve_one(echo);
        let stream = Arc::new(TcpStream::connect(address).unwrap());
        let writes = go({
            let stream = Arc::clone(&stream);
            move || {
                let mut stream = &*stream;
                stream
                    .write_all(b"POST / HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n")
                    .unwrap();
                for n in 0..PIECES {
                    write!(stream, "{PIECE:x}\r\n").unwrap();
                    stream.write_all(&[n as u8; PIECE]).unwrap();
                    stream.write_all(b"\r\n").unwrap();
                }
                stream.write_all(b"0\r\n\r\n").unwrap();
            }
        });
        let mut reads = std::io::BufReader::new(&*stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            std::io::BufRead::read_line(&mut reads, &mut line).unwrap();
        }
        let mut body = Vec::new();
        loop {
            line.clear();
            std::io::BufRead::read_line(&mut reads, &mut line).unwrap();
            let length = usize::from_str_radix(line.trim(), 16).unwrap();
            let begin = body.len();
            body.resize(begin + length + 2, 0);
            reads.read_exact(&mut body[begin..]).unwrap();
            body.truncate(begin + length);
            if length == 0 {
                break;
            }
        }
        assert!(
            body.len() == PIECE * PIECES
                && body.chunks(PIECE).enumerate().all(|(n, piece)| piece == [n as u8; PIECE])
        );
        writes.join().unwrap();
        drop(reads);
        drop(stream);
        serves.join().unwrap().unwrap();
    });
}

/// hyper's client sends a piece when the previous one has come back. Fails by a hang.
#[test]
fn a_client_and_a_server_talk_within_one_body() {
    everywhere(|| {
        let (address, serves) = serve_one(echo);
        let io = GmpIo::new(TcpStream::connect(address).unwrap());
        let (mut sender, connection) = block_on(client::http1::handshake(io)).unwrap();
        let drives = go(move || block_on(connection));
        block_on(async {
            let (mut pieces, body) = Channel::<Bytes, Infallible>::new(1);
            let request =
                Request::builder().method(Method::POST).uri("/").header("host", "here").body(body).unwrap();
            let mut answer = sender.send_request(request).await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK);
            for n in 0..100 {
                let sent = Bytes::from(vec![n; 1 + usize::from(n)]);
                pieces.send_data(sent.clone()).await.unwrap();
                let mut got = Vec::new();
                while got.len() < sent.len() {
                    let frame = answer.frame().await.expect("the body goes on").unwrap();
                    got.extend(frame.into_data().unwrap());
                }
                assert_eq!(got, sent);
            }
            drop(pieces);
            assert!(answer.frame().await.is_none());
        });
        drop(sender);
        drives.join().unwrap().unwrap();
        serves.join().unwrap().unwrap();
    });
}

/// After an upgrade the stream is gmp's again, for calls that block, and the bytes that hyper has read come first. Fails by the
/// bytes.
#[test]
fn an_upgraded_connection_is_a_stream_again() {
    everywhere(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (heard, hears) = gmp::chan::bounded(1);
        let serves = go(move || {
            let answer = move |mut request: Request<Incoming>| {
                let heard = heard.clone();
                go(move || {
                    let upgraded = block_on(hyper::upgrade::on(&mut request)).unwrap();
                    let parts = upgraded.downcast::<GmpIo<TcpStream>>().unwrap();
                    let mut stream = parts.io.into_inner();
                    let mut text = parts.read_buf.to_vec();
                    stream.read_to_end(&mut text).unwrap();
                    stream.write_all(b"bye").unwrap();
                    heard.send(text).unwrap();
                });
                async {
                    let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
                    Ok::<_, Infallible>(
                        response.header("upgrade", "talk").body(Empty::<Bytes>::new()).unwrap(),
                    )
                }
            };
            let io = GmpIo::new(listener.accept().unwrap().0);
            block_on(http1::Builder::new().serve_connection(io, service_fn(answer)).with_upgrades())
        });
        let mut stream = TcpStream::connect(address).unwrap();
        // The first words come with the head.
        stream
            .write_all(b"GET / HTTP/1.1\r\nhost: here\r\nconnection: upgrade\r\nupgrade: talk\r\n\r\nfirst ")
            .unwrap();
        assert!(read_answer(&mut stream).0.starts_with("http/1.1 101"));
        stream.write_all(b"second").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!((&*text, &*hears.recv().unwrap()), ("bye", &b"first second"[..]));
        serves.join().unwrap().unwrap();
    });
}

/// A head that does not end. Fails by a hang when the timer does not wake the connection.
#[test]
fn a_head_that_is_too_slow_ends_the_connection() {
    everywhere(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serves = go(move || {
            let io = GmpIo::new(listener.accept().unwrap().0);
            let mut server = http1::Builder::new();
            server.timer(GmpTimer).header_read_timeout(60 * MS);
            block_on(server.serve_connection(io, service_fn(echo)))
        });
        let mut stream = TcpStream::connect(address).unwrap();
        // One whole head, and one that is late.
        stream.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").unwrap();
        assert!(read_answer(&mut stream).0.starts_with("http/1.1 200"));
        let start = Instant::now();
        stream.write_all(b"GET / HTT").unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
        assert!(start.elapsed() >= 50 * MS, "{:?}", start.elapsed());
        assert!(serves.join().unwrap().unwrap_err().is_timeout());
    });
}

/// A service that blocks its goroutine in each way. Fails by a hang, or by the sum.
#[test]
fn a_service_may_block_its_goroutine() {
    everywhere(|| {
        let (numbers, takes) = gmp::chan::bounded(0);
        let gives = go(move || (0..20).for_each(|n| numbers.send(n).unwrap()));
        let (address, serves) = serve_one(move |_| {
            let takes = takes.clone();
            async move {
                gmp::time::sleep(MS / 10);
                let number: i32 = takes.recv().unwrap();
                let double = gmp::blocking(|| 2 * number);
                // A goroutine, and `block_on` within `block_on`.
                let thrice = block_on(offload(move || double + number)).unwrap();
                Ok(Response::new(thrice.to_string()))
            }
        });
        let mut stream = TcpStream::connect(address).unwrap();
        for n in 0..20 {
            stream.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").unwrap();
            assert_eq!(read_answer(&mut stream).1, (3 * n).to_string().into_bytes());
        }
        drop(stream);
        serves.join().unwrap().unwrap();
        gives.join().unwrap();
    });
}

/// Fails by a hang when the end of the context leaves the connection open.
#[test]
fn the_end_of_a_context_closes_its_connections() {
    everywhere(|| {
        let (context, cancel) = Context::background().with_cancel();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut clients: Vec<_> =
            (0..8).map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap()).collect();
        let serves: Vec<_> = clients
            .iter()
            .map(|_| {
                let io = GmpIo::new(listener.accept().unwrap().0);
                context.go(move || block_on(http1::Builder::new().serve_connection(io, service_fn(echo))))
            })
            .collect();
        for client in &mut clients {
            client.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").unwrap();
            assert!(read_answer(client).0.starts_with("http/1.1 200"));
        }
        cancel.cancel();
        for client in &mut clients {
            assert_eq!(client.read(&mut [0]).unwrap(), 0);
        }
        for one in serves {
            assert!(one.join().unwrap().is_err(), "it was ended");
        }
    });
}

/// One request is under way when the server has to stop, and one connection has no request. Fails when the answer is cut off,
/// or by a hang when one of the connections stays.
#[test]
fn a_server_that_stops_answers_what_was_asked() {
    everywhere(|| {
        let (stops, cancel) = Context::background().with_cancel();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, goes_on) = (Arc::new(Event::new()), Arc::new(Event::new()));
        let [mut busy, mut idle] = [(); 2].map(|()| TcpStream::connect(address).unwrap());
        let serves: Vec<_> = (0..2)
            .map(|_| {
                let (stops, io) = (stops.clone(), GmpIo::new(listener.accept().unwrap().0));
                let (asked, goes_on) = (Arc::clone(&asked), Arc::clone(&goes_on));
                go(move || {
                    let answer = move |_: Request<Incoming>| {
                        let (asked, goes_on) = (Arc::clone(&asked), Arc::clone(&goes_on));
                        async move {
                            asked.notify_one();
                            // The service does not block, so the connection can see the stop.
                            offload(move || goes_on.wait()).await.unwrap();
                            Ok::<_, Infallible>(Response::new("done".to_owned()))
                        }
                    };
                    let connection = http1::Builder::new().serve_connection(io, service_fn(answer));
                    block_on(serve_until(connection, &stops))
                })
            })
            .collect();
        busy.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").unwrap();
        asked.wait();
        cancel.cancel();
        assert_eq!(idle.read(&mut [0]).unwrap(), 0);
        goes_on.notify_one();
        let (head, body) = read_answer(&mut busy);
        assert!(head.contains("connection: close") && body == b"done", "{head}");
        assert_eq!(busy.read(&mut [0]).unwrap(), 0);
        serves.into_iter().for_each(|one| one.join().unwrap().unwrap());
    });
}

/// A client and a server of HTTP/2 over a Unix stream. Returns the client, and a handle to join the server's goroutine.
fn over_http2<F, B>(
    answer: impl Fn(Request<Incoming>) -> F + Send + Sync + Clone + 'static,
) -> (client::http2::SendRequest<Full<Bytes>>, JoinHandle<hyper::Result<()>>)
where
    F: Future<Output = Answer<B>> + Send + 'static,
    B: hyper::body::Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>, Data: Send> + Send + 'static,
{
    let (near, far) = UnixStream::pair().unwrap();
    let serves = go(move || {
        let mut server = http2::Builder::new(GmpExecutor);
        server.timer(GmpTimer).max_concurrent_streams(200);
        block_on(server.serve_connection(GmpIo::new(far), service_fn(answer)))
    });
    let (sender, connection) = block_on(client::http2::handshake(GmpExecutor, GmpIo::new(near))).unwrap();
    GmpExecutor.execute(async { connection.await.unwrap() });
    (sender, serves)
}

/// The client may leave while the server still announces a larger window.
fn ends_with_its_client(serves: JoinHandle<hyper::Result<()>>) {
    if let Err(error) = serves.join().unwrap() {
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert!(source.is_some_and(|source| source.kind() == io::ErrorKind::BrokenPipe), "{error:?}");
    }
}

fn post(body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post("http://here/").body(Full::new(body.into())).unwrap()
}

/// A hundred requests, each of which is answered when all have come. Fails by a hang when one stream waits for another.
#[test]
fn a_hundred_streams_are_served_at_once() {
    everywhere(|| {
        let barrier = Arc::new(Barrier::new(100));
        let (sender, serves) = over_http2(move |request: Request<Incoming>| {
            let barrier = Arc::clone(&barrier);
            async move {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                offload(move || barrier.wait().is_leader()).await.unwrap();
                Ok(Response::new(Full::<Bytes>::from(body)))
            }
        });
        let asks: Vec<_> = (0..100_usize)
            .map(|n| {
                let mut sender = sender.clone();
                go(move || {
                    block_on(async {
                        let answer = sender.send_request(post(n.to_string())).await.unwrap();
                        let body = answer.into_body().collect().await.unwrap().to_bytes();
                        assert_eq!(body, n.to_string());
                    });
                })
            })
            .collect();
        asks.into_iter().for_each(|one| one.join().unwrap());
        drop(sender);
        ends_with_its_client(serves);
    });
}

/// There is no stack for a stream. Fails when the whole connection ends, or when the client never hears of that stream again.
#[test]
fn a_stream_that_gets_no_stack_is_reset_and_the_others_are_served() {
    const STREAMS: usize = 30;
    // A separate runtime for the server: with stacks for its first goroutine, the connection's, and a few more.
    let builder = Runtime::builder().procs(2).stack_size(256 << 10).max_stack_bytes(10 * (256 << 10));
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let small = Arc::new(unsafe { builder.build() }.unwrap());
    everywhere(move || {
        let (near, far) = UnixStream::pair().unwrap();
        let (closed, opens) = Context::background().with_cancel();
        let serves = small.go(move || {
            let answer = move |_: Request<Incoming>| {
                let opened = closed.ended();
                async move {
                    let _canceled = opened.await;
                    Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
                }
            };
            let mut server = http2::Builder::new(GmpExecutor);
            block_on(server.timer(GmpTimer).serve_connection(GmpIo::new(far), service_fn(answer)))
        });
        let (sender, connection) = block_on(client::http2::handshake(GmpExecutor, GmpIo::new(near))).unwrap();
        GmpExecutor.execute(async { connection.await.unwrap() });
        let refused = Arc::new(AtomicUsize::new(0));
        let asks: Vec<_> = (0..STREAMS)
            .map(|_| {
                let (mut sender, refused, opens) = (sender.clone(), Arc::clone(&refused), opens.clone());
                go(move || {
                    let answered = block_on(sender.send_request(post("x"))).is_ok();
                    // The first refused request releases the others: by then as many requests have come as there are stacks.
                    if !answered {
                        refused.fetch_add(1, SeqCst);
                        opens.cancel();
                    }
                })
            })
            .collect();
        asks.into_iter().for_each(|one| one.join().unwrap());
        assert!((1..STREAMS).contains(&refused.load(SeqCst)), "{refused:?} of {STREAMS}");
        // Stacks are free again when the goroutines of those answers have ended; the connection is still the same.
        let (mut last, start) = (sender.clone(), Instant::now());
        while let Err(refused) = block_on(last.send_request(post("x"))) {
            assert!(start.elapsed() < LIMIT / 2, "{refused}");
            gmp::time::sleep(MS);
        }
        drop((sender, last));
        ends_with_its_client(serves);
    });
}

/// Bodies larger than the windows of their streams and of their connection, on many streams. Fails by a hang when a window that
/// opens wakes no task, or by the bytes.
#[test]
fn large_bodies_go_both_ways_on_many_streams() {
    everywhere(|| {
        let (sender, serves) = over_http2(echo);
        let asks: Vec<_> = (0..10_u8)
            .map(|n| {
                let mut sender = sender.clone();
                go(move || {
                    block_on(async {
                        let sent = Bytes::from(vec![n; 400_000]);
                        let answer = sender.send_request(post(sent.clone())).await.unwrap();
                        assert!(answer.into_body().collect().await.unwrap().to_bytes() == sent);
                    });
                })
            })
            .collect();
        asks.into_iter().for_each(|one| one.join().unwrap());
        drop(sender);
        ends_with_its_client(serves);
    });
}

/// A peer that has begun, and then says nothing. Fails by a hang when the pings of HTTP/2 have no clock.
#[test]
fn a_silent_peer_of_http2_is_left() {
    everywhere(|| {
        let (mut near, far) = UnixStream::pair().unwrap();
        let serves = go(move || {
            let mut server = http2::Builder::new(GmpExecutor);
            server.timer(GmpTimer).keep_alive_interval(20 * MS).keep_alive_timeout(20 * MS);
            block_on(server.serve_connection(GmpIo::new(far), service_fn(echo)))
        });
        // The preface, and settings without a setting.
        near.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
        near.read_to_end(&mut Vec::new()).unwrap();
        assert!(serves.join().unwrap().is_err());
    });
}

/// An HTTP/2 server has to stop while a request is under way. Fails when that request ends with an error, or by a hang.
#[test]
fn a_server_of_http2_stops_in_order() {
    everywhere(|| {
        let (stops, cancel) = Context::background().with_cancel();
        let (near, far) = UnixStream::pair().unwrap();
        let (asked, goes_on) = (Arc::new(Event::new()), Arc::new(Event::new()));
        let serves = go({
            let (asked, goes_on) = (Arc::clone(&asked), Arc::clone(&goes_on));
            move || {
                let answer = move |_: Request<Incoming>| {
                    let (asked, goes_on) = (Arc::clone(&asked), Arc::clone(&goes_on));
                    async move {
                        asked.notify_one();
                        offload(move || goes_on.wait()).await.unwrap();
                        Ok::<_, Infallible>(Response::new("done".to_owned()))
                    }
                };
                let server = http2::Builder::new(GmpExecutor);
                block_on(serve_until(server.serve_connection(GmpIo::new(far), service_fn(answer)), &stops))
            }
        });
        let (mut sender, connection) =
            block_on(client::http2::handshake(GmpExecutor, GmpIo::new(near))).unwrap();
        let drives = go(move || block_on(connection));
        let asks = go(move || {
            block_on(async {
                let answer = sender.send_request(post("")).await.unwrap();
                answer.into_body().collect().await.unwrap().to_bytes()
            })
        });
        asked.wait();
        cancel.cancel();
        goes_on.notify_one();
        assert_eq!(asks.join().unwrap(), "done");
        // Each side may have tried to send a frame after the other had gone.
        let _ended = (serves.join().unwrap(), drives.join().unwrap());
    });
}

/// Fails when a sleep is too short, or by a hang when a reset is not seen.
#[test]
fn sleeps_end_at_their_times_and_can_be_moved() {
    everywhere(|| {
        let start = Instant::now();
        block_on(GmpTimer.sleep(5 * MS));
        assert!(start.elapsed() >= 5 * MS);
        block_on(GmpTimer.sleep_until(start));

        // The wait is moved from an hour to some milliseconds after its first poll, and then to a later time.
        let mut sleep = GmpTimer.sleep(Duration::from_secs(3600));
        let mut polls = 0;
        let due = Instant::now() + 5 * MS;
        block_on(poll_fn(|cx| {
            let polled = sleep.as_mut().poll(cx);
            polls += 1;
            match polls {
                1 => GmpTimer.reset(&mut sleep, due),
                2 => assert!(polled.is_ready() && Instant::now() >= due),
                _ => unreachable!("it is not polled for nothing"),
            }
            polled
        }));
        let mut sleep: Pin<Box<dyn hyper::rt::Sleep>> = GmpTimer.sleep(2 * MS);
        let due = Instant::now() + 8 * MS;
        let mut first = true;
        block_on(poll_fn(|cx| {
            let polled = sleep.as_mut().poll(cx);
            if std::mem::take(&mut first) {
                GmpTimer.reset(&mut sleep, due);
                return Poll::Pending;
            }
            polled
        }));
        assert!(Instant::now() >= due);
        // A sleep that never ends, and is dropped.
        let mut never = GmpTimer.sleep(Duration::MAX);
        assert!(block_on(poll_fn(|cx| Poll::Ready(never.as_mut().poll(cx)))).is_pending());
    });
}

/// An offloaded call may panic, or end without a result. Fails by a hang, or by the kind of the error.
#[test]
fn an_offloaded_call_tells_how_it_ended() {
    everywhere(|| {
        let ended = block_on(offload(|| panic!("as it should"))).map(|never: ()| never).unwrap_err();
        assert!(ended.is_panic());
        let ended = block_on(offload(|| gmp::goexit())).map(|()| "it came back").unwrap_err();
        assert!(ended.is_goexit());
        let (sender, receiver) = gmp::chan::bounded(1);
        drop(offload(move || sender.send(7).unwrap()));
        assert_eq!(receiver.recv(), Ok(7));
    });
}

/// Futures run in goroutines, which the end of the runtime ends. Fails when a future is not dropped.
#[test]
fn the_end_of_a_runtime_drops_what_was_executed() {
    struct Drops(Arc<AtomicUsize>);
    impl Drop for Drops {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let runtime = unsafe { Runtime::builder().procs(2).build() }.unwrap();
    let drops = Arc::new(AtomicUsize::new(0));
    let theirs = Arc::clone(&drops);
    runtime.run(move || {
        for _ in 0..10 {
            let (drops, far) = (Drops(Arc::clone(&theirs)), UnixStream::pair().unwrap());
            GmpExecutor.execute(async move {
                let _drops = drops;
                poll_fn(|cx| far.0.poll_read(cx, &mut [0])).await.unwrap();
            });
        }
    });
    assert!(runtime.shutdown(Duration::from_secs(10)).is_clean());
    assert_eq!(drops.load(SeqCst), 10);
}

/// Runs the other tests in a process in which each park moves its goroutine to another thread. Fails as they do.
#[test]
fn all_holds_where_goroutines_migrate() {
    if std::env::var_os("GMPDEBUG").is_some() {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--skip", "all_holds_where_goroutines_migrate", "--test-threads", "2"])
        .env("GMPDEBUG", "migrate=1")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
