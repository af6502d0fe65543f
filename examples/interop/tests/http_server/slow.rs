//! Slow clients, and the end of the server while they are connected.

use crate::client::{Client, get, with};
use crate::{Site, content, totals};
use harness::{LIMIT, STOP_LIMIT, eventually, everywhere};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Instant;

/// Sends `piece` again and again until the server ends the connection.
fn drip(client: &mut Client, piece: &[u8]) {
    let start = Instant::now();
    // The server can have closed the connection in between; then the answer has come.
    while client.stream().write_all(piece).is_ok() && !has_answer(client) {
        assert!(start.elapsed() < LIMIT, "the server listens for ever");
    }
}

/// Returns `true` if the client can read something within some milliseconds.
fn has_answer(client: &Client) -> bool {
    let stream = client.stream();
    stream.set_read_timeout(Some(std::time::Duration::from_millis(10))).expect("a valid time");
    let got = stream.peek(&mut [0]).is_ok();
    stream.set_read_timeout(Some(LIMIT)).expect("a valid time");
    got
}

/// Fails if a client that sends a byte now and then keeps its connection, or if it delays another client.
#[test]
fn slow_heads_and_bodies_are_given_up() {
    everywhere(|procs| {
        let site = Site::with(procs, &["--head", "200", "--body", "300"]);
        let mut head = Client::new(&site);
        head.send("GET / HTTP/1.1\r\nHost: x\r\n");
        let mut body = Client::new(&site);
        body.send(with("POST", "/api/echo", &["Content-Length: 1000000"]));
        let mut chunked = Client::new(&site);
        chunked.send(with("POST", "/api/echo", &["Transfer-Encoding: chunked"]));
        Client::new(&site).expect_alive();
        for (client, piece) in
            [(&mut head, &b"a: b\r\n"[..]), (&mut body, b"1"), (&mut chunked, b"1\r\n1\r\n")]
        {
            drip(client, piece);
            let answer = client.answer();
            assert_eq!((answer.status, answer.closes()), (408, true), "{piece:?}");
        }
        drop((head, body, chunked));
        site.stop();
    });
}

/// Fails if a connection without a request stays, or receives bytes that could be taken for an answer.
#[test]
fn idle_connections_are_closed_without_a_word() {
    everywhere(|procs| {
        let site = Site::with(procs, &["--idle", "100"]);
        let (mut new, mut used) = (Client::new(&site), Client::new(&site));
        used.expect_alive();
        new.expect_end();
        used.expect_end();
        site.stop();
    });
}

/// Fails if idle connections delay the end, or if the server does not answer a request that has begun.
#[test]
fn the_end_finishes_what_is_under_way() {
    everywhere(|procs| {
        let site = Site::start(procs);
        let mut idle: Vec<_> = (0..50).map(|_| Client::new(&site)).collect();
        idle.iter_mut().step_by(2).for_each(Client::expect_alive);
        let mut head = Client::new(&site);
        head.expect_alive();
        head.send("GET /hello.txt HTTP/1.1\r\nHo");
        let mut body = Client::new(&site);
        body.expect_alive();
        body.send(with("POST", "/api/echo", &["Content-Length: 4", "Expect: 100-continue"]));
        assert_eq!(body.answer().status, 100);
        // Both requests have begun: the server has read what their clients sent.
        let at = site.server.signal();
        idle.iter_mut().for_each(Client::expect_end);
        head.send("st: x\r\n\r\n");
        body.send("true");
        for (client, text) in [(&mut head, "hello, world\n"), (&mut body, "true")] {
            let answer = client.answer();
            assert_eq!((answer.status, answer.text(), answer.closes()), (200, text, true));
            client.expect_end();
            client.stream().shutdown(Shutdown::Both).expect("it is connected");
        }
        totals(&site.server.stopped(at), 0);
    });
}

/// Fails if clients that never finish their requests, or never read, delay the end for longer than a second.
#[test]
fn the_end_does_not_wait_for_clients_that_never_finish() {
    everywhere(|procs| {
        let site = Site::with(procs, &["--grace", "300"]);
        site.scratch.file("www/long", content(64 << 20));
        let mut head = Client::new(&site);
        head.expect_alive();
        head.send("GET /hello.txt HTTP/1.1\r\n");
        let mut body = Client::new(&site);
        body.send(with("POST", "/api/echo", &["Content-Length: 4", "Expect: 100-continue"]));
        assert_eq!(body.answer().status, 100);
        let mut reader = Client::new(&site);
        reader.send(get("/long"));
        eventually("the answer has begun", || has_answer(&reader));
        let at = site.server.signal();
        let (_, requests) = totals(&site.server.stopped(at), 3);
        assert_eq!(requests, 4);
        assert!(at.elapsed() < STOP_LIMIT);
        let mut got = Vec::new();
        let _cut_off = reader.stream().take(64 << 20).read_to_end(&mut got);
        assert!(got.len() < 64 << 20, "the whole file fits between");
    });
}

/// Fails if waiting for bytes that never come keeps a processor busy.
#[test]
fn clients_that_wait_cost_nothing() {
    everywhere(|procs| {
        let site = Site::start(procs);
        let mut clients: Vec<_> = (0..200).map(|_| Client::new(&site)).collect();
        clients.iter_mut().for_each(|client| client.send("GET /"));
        clients[0].send(" HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(clients[0].answer().status, 404);
        let before = site.server.cpu_ticks();
        let half_a_second = Instant::now();
        eventually("half a second has passed", || half_a_second.elapsed().as_millis() > 500);
        let used = site.server.cpu_ticks() - before;
        assert!(used <= 5, "{used} hundredths of a second in half a second");
        drop(clients);
        site.stop();
    });
}
