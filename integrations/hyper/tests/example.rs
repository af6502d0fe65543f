//! The example `hyper_server`, driven from outside.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(procs: &str, args: &[&str]) -> Self {
        Server::start_by(procs, args, |_| {})
    }

    /// Starts the server after `set` has changed its command.
    fn start_by(procs: &str, args: &[&str], set: impl FnOnce(&mut Command)) -> Self {
        // The example is built beside the tests of its package, in `target/PROFILE/examples/`; this test is in
        // `target/PROFILE/deps/`.
        let mut program: PathBuf = std::env::current_exe().unwrap();
        program.pop();
        program.pop();
        program.push("examples/hyper_server");
        let mut command = Command::new(program);
        command.args(["--listen", "127.0.0.1:0"]).args(args).env("GMPMAXPROCS", procs).stdout(Stdio::piped());
        set(&mut command);
        let mut process = command.spawn().expect("the example was built with the tests");
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect("it says where").to_owned();
        Server { process, address }
    }

    /// Sends SIGTERM, and returns how the process ended, and how long that took.
    fn stop(mut self) -> (ExitStatus, Duration) {
        let start = Instant::now();
        // SAFETY: the child was not waited for.
        assert_eq!(unsafe { libc::kill(self.process.id() as i32, libc::SIGTERM) }, 0);
        let status = self.process.wait().unwrap();
        (status, start.elapsed())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended_already = self.process.kill();
        let _status = self.process.wait();
    }
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET /api/time HTTP/1.1\r\nhost: here\r\n\r\n").unwrap();
    let mut answer = String::new();
    while !answer.ends_with('}') {
        let mut buf = [0; 512];
        let got = stream.read(&mut buf).unwrap();
        assert_ne!(got, 0, "{answer}");
        answer.push_str(std::str::from_utf8(&buf[..got]).unwrap());
    }
    answer
}

/// Fails by a wrong answer, by the exit status, or when a client holds up the end for longer than a second, and as much again
/// for a busy machine.
#[test]
fn it_serves_and_ends_within_a_second_of_sigterm() {
    for procs in ["1", "2", "4"] {
        let server = Server::start(procs, &[]);
        // One client says nothing, one has sent half a request, the others ask.
        let _silent = connect(&server);
        let mut half = connect(&server);
        half.write_all(b"GET /api/ti").unwrap();
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let mut stream = connect(&server);
                thread::spawn(move || {
                    for _ in 0..100 {
                        let answer = ask(&mut stream);
                        assert!(
                            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(r#""unix_ms":"#),
                            "{answer}"
                        );
                    }
                    stream
                })
            })
            .collect();
        let clients: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        let (status, took) = server.stop();
        assert!(status.success(), "{status}, signal {:?}", status.signal());
        assert!(took < 2 * Duration::from_secs(1), "{took:?}");
        for mut client in clients {
            assert_eq!(client.read(&mut [0]).unwrap(), 0, "in order");
        }
    }
}

/// Fails when a connection stays for as long as its client sends a byte now and then.
#[test]
fn a_body_that_takes_too_long_is_waited_for_no_longer() {
    for procs in ["1", "4"] {
        let server = Server::start(procs, &["--body-ms", "200"]);
        let mut stream = connect(&server);
        stream.write_all(b"POST /api/time HTTP/1.1\r\nhost: here\r\ncontent-length: 60000\r\n\r\n").unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (start, mut answer) = (Instant::now(), [0; 12]);
        while stream.peek(&mut answer).is_err() {
            assert!(start.elapsed() < LIMIT, "the server listens for ever");
            // The server may have closed the connection meanwhile; the next peek shows that.
            let _closed = stream.write_all(b"x");
        }
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 405");
        assert!(ask(&mut connect(&server)).starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(server.stop().0.success());
    }
}

/// Fails when the server keeps a connection without a request for as long as the client is there.
#[test]
fn a_connection_without_a_request_is_closed() {
    for procs in ["1", "4"] {
        for args in [&["--head-ms", "200"][..], &["--head-ms", "200", "--http2"]] {
            let server = Server::start(procs, args);
            for said in [&b""[..], b"PRI * HT", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"] {
                let mut stream = connect(&server);
                stream.write_all(said).unwrap();
                // The client reads what hyper sends by itself; a reset at the end tells of bytes that hyper has not read.
                let ended = stream.read_to_end(&mut Vec::new()).map_err(|broken| broken.kind());
                assert!(matches!(ended, Ok(_) | Err(ErrorKind::ConnectionReset)), "{ended:?}, {args:?}");
            }
            assert!(server.stop().0.success());
        }
    }
}

/// Fails when a client of HTTP/2 stays long after its last request was answered; or when the server drops a client that still
/// asks.
#[test]
fn a_client_that_asks_no_more_is_ended() {
    for procs in ["1", "4"] {
        let server = Server::start(procs, &["--idle-ms", "300", "--http2"]);
        let mut stream = connect(&server);
        // The preface, and settings that say nothing.
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
        // For three times the limit, with a request every third of it.
        for id in (1..20).step_by(2) {
            // GET, http, the path, the host; the end of the headers and of the stream.
            let block = b"\x82\x86\x04\x09/api/time\x41\x04here";
            let mut frame = vec![0, 0, block.len() as u8, 1, 5, 0, 0, 0, id];
            frame.extend_from_slice(block);
            stream.write_all(&frame).unwrap();
            while next_frame(&mut stream).expect("it still asks") != (0, u32::from(id)) {}
            thread::sleep(Duration::from_millis(100));
        }
        // A GOAWAY comes, and then the end.
        let told: Vec<_> = std::iter::from_fn(|| next_frame(&mut stream)).collect();
        assert!(told.contains(&(7, 0)), "{told:?}");
        assert!(server.stop().0.success());
    }
}

/// Returns type and stream of the next frame, and drops its contents; `None` at the end.
fn next_frame(stream: &mut TcpStream) -> Option<(u8, u32)> {
    let mut head = [0; 9];
    let got = stream.read(&mut head).unwrap();
    if got == 0 {
        return None;
    }
    stream.read_exact(&mut head[got..]).unwrap();
    let [long, of, length, kind, _flags, id @ ..] = head;
    let length = u32::from_be_bytes([0, long, of, length]);
    std::io::copy(&mut stream.take(u64::from(length)), &mut std::io::sink()).unwrap();
    Some((kind, u32::from_be_bytes(id)))
}

/// Fails when the server ends, or ends a connection that it has served, because there is no stack for the next goroutine; or
/// when it serves no client afterwards.
#[test]
fn what_gets_no_stack_is_closed() {
    // With such large stacks the address space has room for a few, and for everything else that a process maps.
    let limit = libc::rlimit { rlim_cur: 2 << 30, rlim_max: 2 << 30 };
    for procs in ["1", "4"] {
        let server = Server::start_by(procs, &[], |command| {
            command.env("GMPSTACK", "64M");
            // SAFETY: between fork and exec the closure makes one system call, and reads errno if it failed.
            unsafe {
                command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_AS, &raw const limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                })
            };
        });
        let is_served = |mut stream: &TcpStream| {
            let sent = stream.write_all(b"GET /api/time HTTP/1.1\r\nhost: here\r\n\r\n");
            let got = sent.and_then(|()| stream.read(&mut [0; 4 << 10]));
            let hangs = got.as_ref().is_err_and(|broken| broken.kind() == ErrorKind::WouldBlock);
            assert!(!hangs, "it is not closed");
            matches!(got, Ok(1..))
        };
        let streams: Vec<_> = (0..60).map(|_| connect(&server)).collect();
        let (served, closed): (Vec<_>, Vec<_>) = streams.iter().partition(|stream| is_served(stream));
        assert!(!served.is_empty() && !closed.is_empty(), "{} were served", served.len());
        assert!(served.iter().all(|stream| is_served(stream)), "those that were served go on");
        drop(streams);
        let start = Instant::now();
        while !is_served(&connect(&server)) {
            assert!(start.elapsed() < LIMIT, "nobody is served afterwards");
        }
        assert!(server.stop().0.success());
    }
}

/// Fails when curl reports an error.
#[test]
fn curl_is_served_by_both_versions() {
    if Command::new("curl").arg("--version").output().is_err() {
        eprintln!("skipped: there is no curl");
        return;
    }
    for (ours, its, version) in
        [(&[][..], "--http1.1", "1.1"), (&["--http2"], "--http2-prior-knowledge", "2")]
    {
        let server = Server::start("2", ours);
        let url = |path: &str| format!("http://{}{path}", server.address);
        let curl = |args: &[&str]| {
            let done = Command::new("curl")
                .args([
                    "--silent",
                    "--show-error",
                    "--max-time",
                    "20",
                    its,
                    "--write-out",
                    " %{http_code} %{http_version}",
                ])
                .args(args)
                .output()
                .unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            String::from_utf8(done.stdout).unwrap()
        };
        let told = curl(&[&url("/api/time")]);
        assert!(told.ends_with(&format!(" 200 {version}")), "{told}");
        assert!(told.starts_with(r#"{"unix_ms":"#) && told.contains(r#""http":""#), "{told}");
        let head = curl(&["--head", &url("/api/time")]);
        assert!(
            head.contains("content-type: application/json") && head.contains("content-length: 6"),
            "{head}"
        );
        assert!(curl(&["--data", "x", &url("/api/time")]).ends_with(&format!(" 405 {version}")));
        assert!(curl(&[&url("/nothing")]).ends_with(&format!(" 404 {version}")));
        assert!(server.stop().0.success());
    }
}
