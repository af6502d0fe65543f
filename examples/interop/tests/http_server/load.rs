//! Many clients, more than there are descriptors, and clients that send anything.

use crate::client::{Client, get};
use crate::{Site, totals};
use harness::{Example, allow_descriptors, eventually, everywhere, example, peer, run};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::Stdio;

/// Fails when an answer is not 200, when a socket reports an error, or when the server has not counted a request.
#[test]
fn wrk_sees_no_error() {
    let wrk = peer!("wrk");
    everywhere(|procs| {
        let site = Site::start(procs);
        let mut answered = 0;
        for path in ["/hello.txt", "/api/time", "/numbers"] {
            let said = run(wrk.command().args(["-t2", "-c64", "-d1s", &site.url(path)])).good();
            assert!(!said.contains("Non-2xx") && !said.contains("Socket errors"), "{path}: {said}");
            let requests =
                said.lines().find_map(|line| line.split_once(" requests in ")?.0.trim().parse::<u64>().ok());
            answered += requests.unwrap_or_else(|| panic!("no number in {said}"));
        }
        assert!(answered >= 300, "{answered} requests in three seconds");
        let (connections, requests) = site.stop();
        // wrk opens one more connection to check that it can, and cuts off the requests that are under way when its time is
        // over.
        assert!((3 * 64..=3 * 65).contains(&connections), "{connections} connections");
        assert!(answered <= requests && requests <= answered + 3 * 64, "{answered} of {requests}");
    });
}

/// Fails if the server does not end within a second under load, or does not end with status 0.
#[test]
fn the_server_ends_under_load() {
    let wrk = peer!("wrk");
    everywhere(|procs| {
        let site = Site::start(procs);
        let mut load = wrk.command();
        let load = load.args(["-t2", "-c64", "-d2s", &site.url("/hello.txt")]).stdout(Stdio::null()).spawn();
        let mut load = load.expect("wrk starts");
        eventually("wrk has its connections", || sockets(&site.server) > 60);
        assert!(totals(&site.server.terminate(), 0).1 > 0);
        load.wait().expect("it is our child");
    });
}

/// Returns how many sockets the server has open.
fn sockets(server: &Example) -> usize {
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs");
    let leads_to = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    leads_to.filter(|path| path.to_string_lossy().starts_with("socket:")).count()
}

/// Fails if a full table of descriptors ends the server, makes it spin, or stays full for ever.
#[test]
fn more_connections_than_descriptors_wait_their_turn() {
    everywhere(|procs| {
        allow_descriptors(2048);
        let scratch = harness::Scratch::new();
        scratch.file("hello.txt", "hello, world\n");
        let mut command = example!("http_server");
        command.args(["--listen", "127.0.0.1:0", "--root"]).arg(scratch.path());
        let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
        // SAFETY: between fork and exec the closure makes one system call, and reads errno if it failed.
        unsafe {
            command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
        let site = Site { server: Example::start(&mut command, procs), scratch };
        let mut clients: Vec<_> = (0..100).map(|_| Client::new(&site)).collect();
        // The runtime can complain first that it has too few descriptors for its threads. A failure is the limit of
        // `complaint`.
        while !site.server.complaint().contains("cannot accept") {}
        // A thread that begins or ends has held a descriptor for a moment. The next connection takes that descriptor.
        eventually("there is no descriptor for the file", || {
            clients[0].send(get("/hello.txt"));
            let answer = clients[0].answer();
            assert!(answer.status == 200 || answer.header("retry-after") == Some("1"));
            answer.status == 503
        });
        let before = site.server.cpu_ticks();
        let start = std::time::Instant::now();
        eventually("half a second has passed", || start.elapsed().as_millis() > 500);
        let used = site.server.cpu_ticks() - before;
        assert!(used <= 10, "{used} hundredths of a second in half a second");
        // Each connection that ends makes room for a waiting one.
        clients.drain(..70);
        clients.iter_mut().for_each(Client::expect_alive);
        drop(clients);
        site.stop();
    });
}

/// Fails if random bytes end the server, hang it, or make it send an answer that is not HTTP.
#[test]
fn noise_is_answered_or_cut_off() {
    everywhere(|procs| {
        let site = Site::with(procs, &["--idle", "300", "--head", "300", "--body", "300", "--writable"]);
        let addr = site.server.addr();
        let pieces: &[&[u8]] = &[
            b"GET ",
            b"POST ",
            b"PUT ",
            b"/",
            b"/hello.txt",
            b"/api/echo",
            b"/..",
            b"%2e",
            b" HTTP/1.1",
            b" HTTP/1.0",
            b"\r\n",
            b"\n",
            b"\r",
            b"\r\n\r\n",
            b"Host: x\r\n",
            b"Content-Length: ",
            b"Transfer-Encoding: chunked\r\n",
            b"Range: bytes=",
            b"0",
            b"4",
            b"ffff",
            b"-",
            b":",
            b";",
            b" ",
            b"\0",
            b"\xff",
            b"true",
            b"Expect: 100-continue\r\n",
        ];
        let run = |seed: u64| {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            // Marsaglia's xorshift64.
            let mut next = move |below: usize| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as usize % below
            };
            for _ in 0..60 {
                let mut noise = if next(2) == 0 {
                    b"POST /api/echo HTTP/1.1\r\nHost: x\r\n".to_vec()
                } else {
                    Vec::new()
                };
                for _ in 0..next(40) {
                    match next(8) {
                        0 => noise.extend((0..next(200)).map(|_| next(256) as u8)),
                        _ => noise.extend_from_slice(pieces[next(pieces.len())]),
                    }
                }
                let mut stream = TcpStream::connect(addr).expect("the server accepts");
                stream.set_read_timeout(Some(harness::LIMIT)).expect("a valid time");
                // The server can have closed the connection already.
                let _cut_off = stream.write_all(&noise);
                match next(3) {
                    // The client leaves without reading the server's answer.
                    0 => continue,
                    1 => drop(stream.shutdown(Shutdown::Write)),
                    _ => {}
                }
                let mut said = Vec::new();
                let end = stream.read_to_end(&mut said);
                let good = said.is_empty() || said.starts_with(b"HTTP/1.1 ");
                assert!(
                    good,
                    "{:?} to {:?}",
                    String::from_utf8_lossy(&said),
                    String::from_utf8_lossy(&noise)
                );
                if let Err(broken) = end {
                    assert_eq!(broken.kind(), std::io::ErrorKind::ConnectionReset, "{noise:?}");
                }
            }
        };
        std::thread::scope(|scope| (0..8).for_each(|thread| drop(scope.spawn(move || run(thread + 1)))));
        Client::new(&site).expect_alive();
        eventually("all connections have ended", || sockets(&site.server) <= 1);
        site.stop();
    });
}
