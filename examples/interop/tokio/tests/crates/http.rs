use crate::support::{everywhere, many};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use reqwest::Client;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::net::TcpListener;

/// Answers with the path and the body.
async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.uri().path() == "/never" {
        std::future::pending::<()>().await;
    }
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    Ok(Response::new(Full::new([path.as_bytes(), b" ", &body].concat().into())))
}

/// Starts hyper's server as tasks of the reactor. It counts its connections.
fn server() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = gmp_tokio::run(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
    let (addr, accepted) = (listener.local_addr().expect("bound"), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&accepted);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, SeqCst);
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(http.serve_connection(TokioIo::new(stream), service_fn(echo)));
        }
    });
    (addr, accepted)
}

fn client() -> Client {
    Client::builder().no_proxy().build().expect("a client needs nothing from outside")
}

/// Fails when an answer is another request's, when a request is lost, by tokio's panic where a connection goes back to the
/// pool, or when the pool keeps no connection.
#[test]
fn reqwest_has_its_four_hundred_answers_from_hyper() {
    everywhere("", |_| {
        let (addr, accepted) = server();
        let client = client();
        many(20, move |n| {
            for round in 0..20 {
                let url = format!("http://{addr}/{n}/{round}");
                let body = format!("body {n} {round}").repeat(1 + n * 100);
                let expected = format!("/{n}/{round} {body}");
                let said = if round % 2 == 0 {
                    // The goroutine polls the futures itself: they borrow, and the goroutine parks between two polls.
                    let sent = gmp::block_on(client.post(&url).body(body).send()).expect("it answers");
                    gmp::yield_now();
                    gmp::block_on(sent.text()).expect("a body")
                } else {
                    let client = client.clone();
                    gmp_tokio::run(async move { client.post(&url).body(body).send().await?.text().await })
                        .expect("it answers")
                };
                assert!(said == expected, "{n} {round}: {} of {} bytes", said.len(), expected.len());
            }
        });
        let accepted = accepted.load(SeqCst);
        assert!(accepted < 200, "{accepted} connections for 400 requests");
    });
}

/// Fails if a limit of ours does not end a request, or breaks the client; and if reqwest's own does not work on a goroutine.
#[test]
fn a_request_without_an_answer_is_ended_by_either_limit() {
    everywhere("", |_| {
        let (addr, _) = server();
        let client = client();
        many(10, move |n| {
            let never = format!("http://{addr}/never");
            let soon = Duration::from_millis(20);
            let polled = gmp::time::timeout(soon, || gmp::block_on(client.get(&never).send()).is_ok());
            assert!(polled.is_err());
            let request = client.get(&never).send();
            assert!(gmp::time::timeout(soon, || gmp_tokio::run(request).is_ok()).is_err());
            let own = gmp::block_on(client.get(&never).timeout(soon).send());
            assert!(own.expect_err("it is over").is_timeout());
            let said =
                gmp::block_on(async { client.get(format!("http://{addr}/{n}")).send().await?.text().await });
            assert_eq!(said.expect("it answers"), format!("/{n} "));
        });
    });
}
