//! Where one request ends and the next begins.

use crate::client::{Client, get, post, with};
use crate::{Site, content};
use harness::everywhere;
use std::net::Shutdown;

/// Fails if requests that come together are answered out of order or incompletely, or if a request is lost between two pieces.
#[test]
fn pipelined_requests_are_answered_in_order() {
    everywhere(|procs| {
        let site = Site::start(procs);
        let mut client = Client::new(&site);
        let requests: String = (0..100)
            .map(|number| post("/api/sum", &format!("{{\"numbers\":[{number}]}}")) + &get("/hello.txt"))
            .collect();
        client.send(&requests);
        for number in 0..100 {
            assert_eq!(client.answer().text(), format!("{{\"sum\":{number},\"count\":1}}"));
            assert_eq!(client.answer().text(), "hello, world\n");
        }
        // The same requests come in pieces that end anywhere.
        for piece in requests.as_bytes()[..2000].chunks(7) {
            client.send(piece);
        }
        client.send(&requests.as_bytes()[2000..]);
        (0..200).for_each(|_| assert_eq!(client.answer().status, 200));
        // The second request closes the connection, so the server must not answer the bytes behind it.
        client.send(
            get("/hello.txt") + &with("GET", "/hello.txt", &["Connection: foo, Close"]) + &get("/hello.txt"),
        );
        assert!(!client.answer().closes());
        assert!(client.answer().closes());
        client.expect_end();
        drop(client);
        assert_eq!(site.stop(), (1, 402));
    });
}

/// Fails if bytes of a body are taken for a request, or if the border of a chunk is lost.
#[test]
fn chunked_bodies_end_where_they_end() {
    everywhere(|procs| {
        let site = Site::start(procs);
        let mut client = Client::new(&site);
        let head = with("POST", "/api/sum", &["Transfer-Encoding: Chunked"]);
        let body = "5;a=b;c=\"d\"\r\n{\"num\r\n00c\r\nbers\":[1,2]}\r\n0\r\nTrailer: x\r\nOther: y\r\n\r\n";
        let answer = client.ask(format!("{head}{body}"));
        assert_eq!(answer.text(), r#"{"sum":3,"count":2}"#);
        // The body comes byte by byte, with the next request behind it.
        for byte in format!("{head}{body}{}", get("/hello.txt")).as_bytes() {
            client.send([*byte]);
        }
        assert_eq!(client.answer().text(), r#"{"sum":3,"count":2}"#);
        assert_eq!(client.answer().text(), "hello, world\n");
        // No handler reads this body. The server skips the bytes that are there.
        let unread = with("GET", "/hello.txt", &["Content-Length: 5"]) + "GET /";
        assert!(!client.ask(&unread).closes());
        client.expect_alive();
        // The server does not wait for bytes that are not there.
        let answer = client.ask(with("GET", "/hello.txt", &["Content-Length: 5"]));
        assert_eq!((answer.status, answer.closes()), (200, true));
        client.expect_end();
        drop(client);
        site.stop();
    });
}

/// Fails if the server does not tell the client to go on, tells it twice, or tells it although the answer is known.
#[test]
fn a_client_that_asks_first_is_told() {
    everywhere(|procs| {
        let site = Site::start(procs);
        let expecting = |path: &str, length: usize| {
            with("POST", path, &["Expect: 100-continue", &format!("Content-Length: {length}")])
        };
        let mut client = Client::new(&site);
        assert_eq!(client.ask(expecting("/api/echo", 4)).status, 100);
        assert_eq!(client.ask("true").text(), "true");
        // The body has come already, so the server sends no `100 Continue`.
        assert_eq!(client.ask(expecting("/api/echo", 4) + "true").text(), "true");
        let answer = client.ask(expecting("/api/nothing", 4));
        assert_eq!((answer.status, answer.closes()), (404, true));
        client.expect_end();
        client = Client::new(&site);
        let answer = client.ask(expecting("/api/echo", (10 << 20) + 1));
        assert_eq!((answer.status, answer.closes()), (413, true));
        client.expect_end();
        client = Client::new(&site);
        assert_eq!(client.ask(with("GET", "/hello.txt", &["Expect: the worst"])).status, 417);
        client.expect_end();
        drop(client);
        site.stop();
    });
}

/// Fails if the server serves a request that two readers could understand differently, if the connection goes on after such a
/// request, or if the answer is lost with the bytes that the client has sent behind the request.
#[test]
fn what_is_ambiguous_or_malformed_ends_the_connection() {
    let chunked = |body: &str| with("POST", "/api/echo", &["Transfer-Encoding: chunked"]) + body;
    let long = "x".repeat(20_000);
    let cases = [
        // These cases are about the choice of the framing.
        (
            400,
            with("POST", "/api/echo", &["Content-Length: 4", "Transfer-Encoding: chunked"])
                + "4\r\ntrue\r\n0\r\n\r\n",
        ),
        (400, with("POST", "/api/echo", &["Transfer-Encoding: chunked", "Content-Length: 4"]) + "true"),
        (400, with("POST", "/api/echo", &["Content-Length: 4", "Content-Length: 4"]) + "true"),
        (400, with("POST", "/api/echo", &["Content-Length: 4", "content-length: 5"]) + "true"),
        (400, with("POST", "/api/echo", &["Content-Length: 4, 4"]) + "true"),
        (400, with("POST", "/api/echo", &["Content-Length: +4"]) + "true"),
        (400, with("POST", "/api/echo", &["Content-Length: -4"]) + "true"),
        (400, with("POST", "/api/echo", &["Content-Length: 0x4"]) + "true"),
        (400, with("POST", "/api/echo", &["Content-Length: 4 4"]) + "true"),
        (400, with("POST", "/api/echo", &["Content-Length:"]) + "true"),
        (413, with("POST", "/api/echo", &["Content-Length: 99999999999999999999"]) + "true"),
        (413, with("POST", "/api/echo", &["Content-Length: 18446744073709551615"]) + "true"),
        (501, with("POST", "/api/echo", &["Transfer-Encoding: gzip, chunked"])),
        (501, with("POST", "/api/echo", &["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"])),
        (501, with("POST", "/api/echo", &["Transfer-Encoding: \"chunked\""])),
        (400, with("POST", "/api/echo", &["Transfer-Encoding\t: chunked"])),
        (400, with("POST", "/api/echo", &["Transfer-Encoding : chunked"])),
        (400, with("POST", "/api/echo", &["Transfer-Encoding:\x0bchunked"])),
        (400, "POST /api/echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned()),
        // These cases are about chunks.
        (400, chunked("\r\n\r\n")),
        (400, chunked(" 4\r\ntrue\r\n0\r\n\r\n")),
        (400, chunked("0x4\r\ntrue\r\n0\r\n\r\n")),
        (400, chunked("-1\r\ntrue\r\n0\r\n\r\n")),
        (400, chunked("+4\r\ntrue\r\n0\r\n\r\n")),
        (400, chunked("4 4\r\ntrue\r\n0\r\n\r\n")),
        (400, chunked("4\ntrue\n0\n\n")),
        (400, chunked("4;a\nb\r\ntrue\r\n0\r\n\r\n")),
        (400, chunked("4\r\ntrue0\r\n\r\n")),
        (400, chunked("3\r\ntrue\r\n0\r\n\r\n")),
        (400, chunked("10000000000000000\r\ntrue\r\n")),
        (413, chunked("ffffffffffffffff\r\ntrue\r\n")),
        (400, chunked("4\r\ntrue\r\n0\r\nno trailer\r\n\r\n")),
        (400, chunked("4\r\ntrue\r\n0\r\n\n")),
        (400, chunked("4\r\ntrue\r\n0\r\nA: b\n\r\n")),
        (400, chunked(&format!("4;{long}\r\ntrue\r\n0\r\n\r\n"))),
        (400, chunked(&format!("4\r\ntrue\r\n0\r\nLong: {long}\r\n\r\n"))),
        // These cases are about heads.
        (400, with("GET", "/hello.txt", &["Folded: a", " b"])),
        (400, with("GET", "/hello.txt", &["No colon"])),
        (400, with("GET", "/hello.txt", &[": no name"])),
        (400, with("GET", "/hello.txt", &["Nul: \0"])),
        (400, "GET /hello.txt HTTP/1.1\nHost: x\n\n".to_owned()),
        (400, "GET /hello.txt HTTP/1.1\r\nHost: x\nA: b\r\n\r\n".to_owned()),
        (400, "GET /hello.txt HTTP/1.1\r\n\r\n".to_owned()),
        (400, "GET /hello.txt HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n".to_owned()),
        (400, "GET hello.txt HTTP/1.1\r\nHost: x\r\n\r\n".to_owned()),
        (400, "GET  HTTP/1.1\r\nHost: x\r\n\r\n".to_owned()),
        (400, "\x16\x03\x01\x02\0\x01\0\x01\u{fc}\x03\x03 hello of TLS".to_owned()),
        (505, "GET / HTTP/2.0\r\nHost: x\r\n\r\n".to_owned()),
        (505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned()),
        (431, with("GET", "/hello.txt", &[&format!("Long: {long}")])),
        (431, format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n")),
        (431, with("GET", "/hello.txt", &["A: b"; 100])),
    ];
    everywhere(|procs| {
        let site = Site::start(procs);
        for (status, request) in &cases {
            let mut client = Client::new(&site);
            client.expect_alive();
            // The server must not answer the smuggled request.
            client.send(format!("{request}{}", get("/smuggled")));
            let answer = client.answer();
            let shown = &request[..request.len().min(200)];
            assert_eq!((answer.status, answer.closes()), (*status, true), "{shown:?}: {answer:?}");
            client.expect_end();
        }
        let requests = 2 * cases.len() as u64;
        assert_eq!(site.stop(), (cases.len() as u64, requests));
    });
}

/// Fails if a client that ends its stream in the middle of a request hangs the server, or gets no error.
#[test]
fn a_request_that_ends_early_is_told() {
    everywhere(|procs| {
        let site = Site::start(procs);
        for part in
            ["GET /hel", "GET / HTTP/1.1\r\nHost: x\r\n", &with("POST", "/api/echo", &["Content-Length: 9"])]
        {
            let mut client = Client::new(&site);
            client.send(part);
            client.stream().shutdown(Shutdown::Write).expect("it is connected");
            assert_eq!(client.answer().status, 400, "{part:?}");
            client.expect_end();
        }
        // A client that ends its half of the stream behind a whole request gets its answer.
        let mut client = Client::new(&site);
        client.send(get("/numbers"));
        client.stream().shutdown(Shutdown::Write).expect("it is connected");
        assert!(client.answer().body == content(300_000));
        client.expect_end();
        drop(client);
        site.stop();
    });
}

#[test]
fn http_1_0_and_absolute_targets_are_served() {
    everywhere(|procs| {
        let site = Site::start(procs);
        let mut client = Client::new(&site);
        assert_eq!(
            client.ask("\r\nGET http://x/hello.txt?a=../..#b HTTP/1.1\r\nHost: x\r\n\r\n").text(),
            "hello, world\n"
        );
        let answer = client.ask("GET /hello.txt HTTP/1.0\r\n\r\n");
        assert_eq!((answer.text(), answer.closes()), ("hello, world\n", true));
        client.expect_end();
        drop(client);
        site.stop();
    });
}
