//! The example `hyper_server`, driven from outside.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
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
        // Built beside the tests of its package: `target/PROFILE/examples/`, and this is `target/PROFILE/deps/`.
        let mut program: PathBuf = std::env::current_exe().unwrap();
        program.pop();
        program.pop();
        program.push("examples/hyper_server");
        let mut command = Command::new(program);
        command.args(["--listen", "127.0.0.1:0"]).args(args).env("GMPMAXPROCS", procs).stdout(Stdio::piped());
        let mut process = command.spawn().expect("the example was built with the tests");
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect("it says where").to_owned();
        Server { process, address }
    }

    /// Sends SIGTERM, and returns how it ended, and how long that took.
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

/// Fails by an answer, by the status of the end, or by an end that a client holds up: a second, and as much again for a busy
/// machine.
#[test]
fn it_serves_and_ends_within_a_second_of_sigterm() {
    for procs in ["1", "2", "4"] {
        let server = Server::start(procs, &[]);
        // One says nothing, one has half a request, the others ask.
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

/// Fails by what curl says of it.
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
