//! The HTTP server of the page `http` on hyper and tokio: HTTP/1.1, a task for each connection.
//!
//! `peer-hyper http --procs P` prints its port, and serves `/api/time`.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use peer_common::Args;
use serde::Serialize;
use std::convert::Infallible;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;

#[derive(Serialize)]
struct Time {
    unix_ms: u128,
    http: String,
}

fn main() {
    let args = Args::from_env();
    if args.workload != "http" {
        args.unknown();
    }
    peer_common::many_descriptors();
    let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(args.procs).enable_all().build();
    rt.expect("a runtime").block_on(async { tokio::spawn(serve()).await.unwrap() });
}

async fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        tokio::spawn(async move {
            // With a timer a request's head has 30 s to come.
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service_fn(answer));
            let _the_client_has_gone = connection.await;
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(match (request.uri().path(), request.method()) {
        ("/api/time", &Method::GET | &Method::HEAD) => time(),
        ("/api/time", _) => {
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
    let text = serde_json::to_vec(&Time { unix_ms, http: httpdate::fmt_http_date(now) }).unwrap();
    let mut response = Response::new(Full::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}
