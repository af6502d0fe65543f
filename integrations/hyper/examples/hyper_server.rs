//! Serves the time over HTTP, with hyper on goroutines.
//!
//! ```sh
//! cd integrations
//! cargo run --release --example hyper_server -- --listen 127.0.0.1:8080
//! curl http://127.0.0.1:8080/api/time
//! ```
//! With `--http2` the server speaks only HTTP/2 (`curl --http2-prior-knowledge`). After SIGTERM or SIGINT it answers the
//! requests that have come, for at most half a second, and ends.
//!
//! The limits of time are `--head-ms` for the head of a request of HTTP/1, and for the first request of HTTP/2, 30 s if not
//! given; `--idle-ms` for a client of HTTP/2 between its requests, 60 s if not given; and `--body-ms` for a body, 10 s if not
//! given. If a client takes longer for its body, the server answers without the missing part. The server drops a client of
//! HTTP/2 earlier if the client does not answer the question whether it is there. If no goroutine can be started for a client,
//! its connection is closed.

use gmp::context::{Context, with_signals};
use gmp::net::{TcpListener, TcpStream};
use gmp::signal::{SIGINT, SIGTERM};
use gmp::sync::WaitGroup;
use gmp::time::timeout_async;
use gmp_hyper::{GmpExecutor, GmpIo, GmpTimer, Graceful, serve_until};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long connections have to end when the server stops.
const GRACE: Duration = Duration::from_millis(500);
/// How long the server waits for room in a full table of descriptors.
const PAUSE: Duration = Duration::from_millis(50);
/// After so much silence the server asks a client of HTTP/2 whether it is there. The client has as long to answer.
const SILENCE: Duration = Duration::from_secs(20);

/// How long a client may take.
#[derive(Copy, Clone, Debug)]
struct Limits {
    head: Duration,
    idle: Duration,
    body: Duration,
}

/// The requests of a connection of HTTP/2, for the limit between two of them.
#[derive(Debug)]
struct Requests {
    /// How many requests are being answered.
    open: usize,
    /// When the last answer was ready.
    answered: Option<Instant>,
}

impl Requests {
    fn new() -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Requests { open: 0, answered: None }))
    }

    fn one(requests: &Arc<Mutex<Self>>) -> Open {
        requests.lock().unwrap().open += 1;
        Open(Arc::clone(requests))
    }
}

/// A request, counted until its answer is ready, or given up.
struct Open(Arc<Mutex<Requests>>);

impl Drop for Open {
    fn drop(&mut self) {
        let mut requests = self.0.lock().unwrap();
        requests.open -= 1;
        requests.answered = Some(Instant::now());
    }
}

#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Version {
    Http1,
    Http2,
}

#[derive(Serialize)]
struct Time {
    unix_ms: u128,
    http: String,
}

fn main() -> ExitCode {
    let (mut address, mut version) = ("127.0.0.1:8080".to_owned(), Version::Http1);
    let mut limits = Limits {
        head: Duration::from_secs(30),
        idle: Duration::from_secs(60),
        body: Duration::from_secs(10),
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match &*arg {
            "--listen" => match args.next() {
                Some(given) => address = given,
                None => return usage(),
            },
            "--http2" => version = Version::Http2,
            "--head-ms" | "--idle-ms" | "--body-ms" => {
                let given = args.next().and_then(|given| given.parse().ok());
                let Some(ms) = given.filter(|&ms| ms > 0) else { return usage() };
                let limit = match &*arg {
                    "--head-ms" => &mut limits.head,
                    "--idle-ms" => &mut limits.idle,
                    _ => &mut limits.body,
                };
                *limit = Duration::from_millis(ms);
            }
            _ => return usage(),
        }
    }
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    match unsafe { gmp::run(|| serve(&address, version, limits)) } {
        Ok(()) => ExitCode::SUCCESS,
        Err(refused) => {
            eprintln!("hyper_server: {refused}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: hyper_server [--listen ADDRESS] [--http2] [--head-ms MS] [--idle-ms MS] [--body-ms MS]"
    );
    ExitCode::from(2)
}

fn serve(address: &str, version: Version, limits: Limits) -> io::Result<()> {
    let (stops, _cancel) = with_signals(&Context::background(), &[SIGINT, SIGTERM])?;
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    let (lives, ends_all) = Context::background().with_cancel();
    let connections = WaitGroup::new();
    let mut told = None;
    while stops.err().is_none() {
        // The end of the context ends the wait with an error.
        match stops.run(|| listener.accept()) {
            Ok(Ok((stream, _peer))) => {
                told = None;
                let (stops, lives) = (stops.clone(), lives.clone());
                // If no goroutine can be started, the connection is closed.
                let _refused = gmp::Builder::new().go_counted(&connections, move || {
                    // The end of this context closes the connection, wherever it is.
                    let _ended = lives.run(|| connection(stream, version, limits, &stops));
                });
            }
            // There are too many descriptors: there will be fewer in a moment.
            Ok(Err(refused)) if stops.err().is_none() => {
                if told != refused.raw_os_error() {
                    eprintln!("hyper_server: accept: {refused}; trying again");
                    told = refused.raw_os_error();
                }
                gmp::time::sleep(PAUSE);
            }
            Ok(Err(_)) | Err(_) => {}
        }
    }
    drop(listener);
    let in_time = gmp::time::timeout(GRACE, || connections.wait());
    ends_all.cancel();
    if in_time.is_err() {
        connections.wait();
    }
    Ok(())
}

fn connection(stream: TcpStream, version: Version, limits: Limits, stops: &Context) {
    let _only_slower = stream.set_nodelay(true);
    let io = GmpIo::new(stream);
    let requests = Requests::new();
    let service = service_fn(|request| {
        let open = Requests::one(&requests);
        async move {
            let _counted = open;
            answer(request, limits.body).await
        }
    });
    let _the_client_has_gone = match version {
        Version::Http1 => {
            let mut server = http1::Builder::new();
            let connection =
                server.timer(GmpTimer).header_read_timeout(limits.head).serve_connection(io, service);
            gmp::block_on(serve_until(connection, stops))
        }
        Version::Http2 => {
            let mut server = http2::Builder::new(GmpExecutor);
            server.timer(GmpTimer).keep_alive_interval(SILENCE).keep_alive_timeout(SILENCE);
            let connection = server.serve_connection(io, service);
            gmp::block_on(while_it_asks(connection, &requests, limits, stops))
        }
    };
}

/// Serves a connection of HTTP/2 until it ends, or for as long as its client sends requests. hyper has no limit for that.
async fn while_it_asks(
    connection: impl Graceful,
    requests: &Mutex<Requests>,
    limits: Limits,
    stops: &Context,
) -> hyper::Result<()> {
    let (stops, idle) = stops.with_cancel();
    let mut served = pin!(serve_until(connection, &stops));
    let mut until = Instant::now() + limits.head;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        // The first request can be answered, and the limit for the next one over, before the limit of the head is over.
        if let Ok(ended) = timeout_async(left.min(limits.idle), served.as_mut()).await {
            return ended;
        }
        let now = requests.lock().unwrap();
        if now.open > 0 {
            until = Instant::now() + limits.idle;
        } else if let Some(answered) = now.answered {
            until = answered + limits.idle;
        }
    }
    // The client learns that it must send its requests over another connection.
    idle.cancel();
    let _in_order = timeout_async(GRACE, served).await;
    Ok(())
}

/// How many bytes the server reads of a request's body that it does not want, so that the client has sent the body before the
/// answer comes.
const MOST_UNREAD: usize = 64 << 10;

async fn answer(request: Request<Incoming>, limit: Duration) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(match (request.uri().path(), request.method()) {
        ("/api/time", &Method::GET) => time(),
        ("/api/time", &Method::HEAD) => without_body(time()),
        ("/api/time", _) => {
            // A client that is answered while it still sends might take the end of the HTTP/2 stream for a failure.
            let unwanted = Limited::new(request.into_body(), MOST_UNREAD).collect();
            let _whole_or_not = timeout_async(limit, unwanted).await;
            let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            response
        }
        _ => empty(StatusCode::NOT_FOUND),
    })
}

fn time() -> Response<Full<Bytes>> {
    let now = SystemTime::now();
    let unix_ms = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let told = Time { unix_ms, http: httpdate::fmt_http_date(now) };
    let text = serde_json::to_vec(&told).expect("two fields are JSON");
    let mut response = Response::new(Full::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns the answer to HEAD. hyper's HTTP/2 would send the body.
fn without_body(mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    let length = std::mem::take(response.body_mut()).size_hint().exact().expect("it is whole");
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    response
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}
