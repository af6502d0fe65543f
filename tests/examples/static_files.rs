//! The server of files as the world sees it: another process, driven over plain sockets.

use crate::program::Program;
use common::example::{LIMIT, example, refusal};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

const PROCS: [&str; 2] = ["1", "4"];
/// More than the buffers of two sockets hold.
const LARGE: usize = 16 << 20;

/// A folder with a root in it, and a secret beside the root. `Drop` removes the folder.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("gmp-static-{}-{name}", std::process::id()));
        let root = dir.join("root");
        fs::create_dir_all(root.join("sub")).expect("a temporary folder");
        fs::create_dir_all(dir.join("root-beside")).expect("a temporary folder");
        let files = [
            ("root/index.html", "<p>home</p>"),
            ("root/sub/index.html", "<p>sub</p>"),
            ("root/a b.txt", "spaced"),
            ("root/digits.txt", "0123456789"),
            ("root/empty.txt", ""),
            ("secret.txt", "secret"),
            ("root-beside/secret.txt", "secret"),
        ];
        files.iter().for_each(|(file, text)| fs::write(dir.join(file), text).expect("it is written"));
        fs::write(root.join("large.bin"), &*LARGE_FILE).expect("it is written");
        symlink(dir.join("secret.txt"), root.join("out.txt")).expect("a link");
        symlink(dir.join("root-beside"), root.join("beside")).expect("a link");
        symlink("digits.txt", root.join("in.txt")).expect("a link");
        let fifo = std::ffi::CString::new(root.join("fifo").into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY: a path that ends in a zero.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        Folder(dir)
    }

    fn serve(&self, procs: &str, args: &[&str]) -> (Program, String) {
        let mut command = example("static_files");
        command.arg("--root").arg(self.0.join("root")).args(["--listen", "127.0.0.1:0"]).args(args);
        let program = Program::start(command.env("GMPMAXPROCS", procs));
        let addr = program.listening().to_string();
        (program, addr)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _it_is_temporary = fs::remove_dir_all(&self.0);
    }
}

static LARGE_FILE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    (0..LARGE as u32 / 4).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect()
});

fn connect(addr: &str) -> TcpStream {
    let stream = TcpStream::connect(addr).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    stream
}

/// Reads a byte at a time: the bytes behind the head belong to the body or to the next answer.
fn head(mut stream: &TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap_or_else(|broken| {
            panic!("{broken} after {:?}", String::from_utf8_lossy(&head));
        });
        head.push(byte[0]);
    }
    String::from_utf8(head).expect("text")
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Reads an answer, and returns its status, its head and its body.
fn answer(mut stream: &TcpStream) -> (u16, String, Vec<u8>) {
    let head = head(stream);
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let length = header(&head, "Content-Length").and_then(|length| length.parse().ok()).expect("a length");
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("all of the body");
    (status, head, body)
}

fn ask(mut stream: &TcpStream, path: &str, headers: &str) -> (u16, String, Vec<u8>) {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\n{headers}\r\n").expect("it is sent");
    answer(stream)
}

/// Fails by a wrong status, a wrong byte, or a connection that is not kept.
#[test]
fn files_are_served_over_one_kept_connection() {
    for procs in PROCS {
        let folder = Folder::new(&format!("files-{procs}"));
        let (program, addr) = folder.serve(procs, &[]);
        let stream = connect(&addr);
        for (path, kind, body) in [
            ("/", "text/html; charset=utf-8", "<p>home</p>"),
            ("/sub/", "text/html; charset=utf-8", "<p>sub</p>"),
            ("/sub/../digits.txt?", "", ""),
            ("/a%20b.txt", "text/plain; charset=utf-8", "spaced"),
            ("/digits.txt?v=1", "text/plain; charset=utf-8", "0123456789"),
            ("/sub/.//index.html", "text/html; charset=utf-8", "<p>sub</p>"),
            ("/in.txt", "text/plain; charset=utf-8", "0123456789"),
            ("/empty.txt", "text/plain; charset=utf-8", ""),
        ] {
            let (status, head, got) = ask(&stream, path, "");
            if kind.is_empty() {
                assert_eq!(status, 403, "{path}");
                continue;
            }
            assert_eq!((status, header(&head, "Content-Type")), (200, Some(kind)), "{path}");
            assert_eq!(String::from_utf8_lossy(&got), body, "{path}");
        }
        assert!(ask(&stream, "/large.bin", "").2 == *LARGE_FILE);
        let (status, moved, _) = ask(&stream, "//sub?v=1", "");
        assert_eq!((status, header(&moved, "Location")), (301, Some("/sub/?v=1")));

        (&stream).write_all(b"HEAD /large.bin HTTP/1.1\r\nHost: test\r\n\r\n").expect("it is sent");
        let alone = head(&stream);
        assert_eq!(header(&alone, "Content-Length"), Some(&*LARGE.to_string()), "{alone}");
        // These requests come in a row, without waiting; the one after them ends the connection.
        let row = "GET /digits.txt HTTP/1.1\r\nHost: test\r\n\r\n".repeat(20);
        (&stream).write_all(row.as_bytes()).expect("it is sent");
        (0..20).for_each(|_| assert_eq!(answer(&stream).2, b"0123456789"));
        assert_eq!(ask(&stream, "/", "Connection: close\r\n").0, 200);
        assert_eq!((&stream).read(&mut [0]).expect("an end, no error"), 0);

        program.signal(libc::SIGTERM);
        let said = program.end();
        assert_eq!(said, ["served 32 requests on 1 connections, at most 1 at once, 0 cut off"]);
    }
}

/// Fails by a byte that was not asked for, or by another answer than RFC 9110 has.
#[test]
fn a_range_is_the_bytes_that_were_asked_for() {
    for procs in PROCS {
        let folder = Folder::new(&format!("range-{procs}"));
        let (program, addr) = folder.serve(procs, &[]);
        let stream = connect(&addr);
        for (range, body, told) in [
            ("bytes=0-0", "0", "bytes 0-0/10"),
            ("bytes=3-5", "345", "bytes 3-5/10"),
            ("bytes=7-", "789", "bytes 7-9/10"),
            ("bytes=7-99", "789", "bytes 7-9/10"),
            ("bytes=-2", "89", "bytes 8-9/10"),
            ("bytes=-99", "0123456789", "bytes 0-9/10"),
        ] {
            let (status, head, got) = ask(&stream, "/digits.txt", &format!("Range: {range}\r\n"));
            assert_eq!((status, header(&head, "Content-Range")), (206, Some(told)), "{range}");
            assert_eq!(String::from_utf8_lossy(&got), body, "{range}");
        }
        for range in ["bytes=10-", "bytes=-0", "bytes=99-100"] {
            let (status, head, _) = ask(&stream, "/digits.txt", &format!("Range: {range}\r\n"));
            assert_eq!((status, header(&head, "Content-Range")), (416, Some("bytes */10")), "{range}");
        }
        // Several ranges, one the wrong way round, no numbers, another unit, and a condition that can't hold: the answer is the
        // whole file.
        for header in [
            "bytes=0-1,3-4",
            "bytes=5-3",
            "bytes=a-b",
            "bytes=+1-2",
            "lines=1-2",
            "bytes=0-1\r\nIf-Range: \"x\"",
        ] {
            let (status, _, got) = ask(&stream, "/digits.txt", &format!("Range: {header}\r\n"));
            assert_eq!((status, got.len()), (200, 10), "{header}");
        }
        let (status, _, got) = ask(&stream, "/large.bin", &format!("Range: bytes=1000001-{}\r\n", LARGE - 2));
        assert!(status == 206 && got == LARGE_FILE[1_000_001..LARGE - 1]);
        program.signal(libc::SIGTERM);
        program.end();
    }
}

/// Fails by a byte of the secret.
#[test]
fn nothing_outside_of_the_root_is_served() {
    for procs in PROCS {
        let folder = Folder::new(&format!("outside-{procs}"));
        let (program, addr) = folder.serve(procs, &[]);
        let stream = connect(&addr);
        for (path, status) in [
            ("/../secret.txt", 403),
            ("/sub/../../secret.txt", 403),
            ("/%2e%2e/secret.txt", 403),
            ("/..%2fsecret.txt", 403),
            ("/sub%2f%2e%2e/%2E%2E%2Fsecret.txt", 403),
            ("/out.txt", 403),
            ("/beside/secret.txt", 403),
            ("/beside/", 403),
            ("/%252e%252e/secret.txt", 404),
            ("/..\\secret.txt", 404),
            ("//etc/passwd", 404),
            ("/fifo", 404),
            ("/nothing", 404),
            ("/digits.txt/", 404),
            ("/digits.txt/more", 404),
            ("/%00", 400),
            ("/%zz", 400),
            ("/%f", 400),
            ("secret.txt", 400),
            ("http://elsewhere/", 400),
        ] {
            let (got, _, body) = ask(&stream, path, "");
            assert_eq!(got, status, "{path}: {}", String::from_utf8_lossy(&body));
        }
        program.signal(libc::SIGTERM);
        program.end();
    }
}

/// Fails by another status, when an answer is lost with a reset, or when a connection stays open.
#[test]
fn what_is_no_request_is_refused_and_ends_its_connection() {
    for procs in PROCS {
        let folder = Folder::new(&format!("refused-{procs}"));
        let (program, addr) = folder.serve(procs, &[]);
        let long = format!("GET / HTTP/1.1\r\nHost: test\r\nX: {}\r\n\r\n", "x".repeat(20_000));
        for (request, status) in [
            ("nonsense\r\n\r\n", 400),
            ("GET  / HTTP/1.1\r\nHost: test\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: test\r\nno colon\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost : test\r\n\r\n", 400),
            ("GET / HTTP/2.0\r\nHost: test\r\n\r\n", 505),
            ("GET / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhello", 413),
            ("GET / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
            (&long, 431),
        ] {
            let stream = connect(&addr);
            (&stream).write_all(request.as_bytes()).expect("it is sent");
            assert_eq!(answer(&stream).0, status, "{request:?}");
            assert_eq!((&stream).read(&mut [0]).expect("an end, no error"), 0, "{request:?}");
        }
        let stream = connect(&addr);
        (&stream).write_all(b"DELETE / HTTP/1.1\r\nHost: test\r\n\r\n").expect("it is sent");
        let (status, allowed, _) = answer(&stream);
        assert_eq!((status, header(&allowed, "Allow")), (405, Some("GET, HEAD")));
        assert_eq!(ask(&stream, "/", "").0, 200);
        program.signal(libc::SIGTERM);
        program.end();
    }
}

/// The server has not read the requests behind the last one. Fails when a reset ends the connection, as the last answer may be
/// lost with it.
#[test]
fn a_close_does_not_reset_a_client_that_has_sent_more() {
    for procs in PROCS {
        let folder = Folder::new(&format!("more-{procs}"));
        let (program, addr) = folder.serve(procs, &[]);
        let stream = connect(&addr);
        let last = "GET /digits.txt HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
        // More than the server's buffer holds.
        let more = "GET / HTTP/1.1\r\nHost: test\r\n\r\n".repeat(5_000);
        (&stream).write_all([last, &more].concat().as_bytes()).expect("it is sent");
        assert_eq!(answer(&stream).2, b"0123456789");
        assert_eq!((&stream).read(&mut [0]).expect("an end, no error"), 0);
        program.signal(libc::SIGTERM);
        assert_eq!(program.end(), ["served 1 requests on 1 connections, at most 1 at once, 0 cut off"]);
    }
}

/// Sends the head of a request a byte at a time, until an answer comes.
fn trickle(mut stream: &TcpStream) {
    let start = Instant::now();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: ").expect("it is sent");
    stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a pace");
    while let Err(none) = stream.peek(&mut [0]) {
        assert_eq!(none.kind(), ErrorKind::WouldBlock);
        assert!(start.elapsed() < LIMIT, "each byte gives the client more time");
        stream.write_all(b"x").expect("it is sent");
    }
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
}

/// Fails when a silent client keeps its place, or a client that sends only half a request, or its request a byte at a time.
#[test]
fn idle_and_slow_clients_are_ended() {
    for procs in PROCS {
        let folder = Folder::new(&format!("idle-{procs}"));
        let (program, addr) = folder.serve(procs, &["--idle-ms", "500", "--connections", "2"]);
        let (silent, slow) = (connect(&addr), connect(&addr));
        (&slow).write_all(b"GET / HTTP/1.1\r\nHost:").expect("it is sent");
        assert_eq!((&silent).read(&mut [0]).expect("an end, no error"), 0);
        assert_eq!(answer(&slow).0, 408);
        // These clients take the place of one of them.
        let slower = connect(&addr);
        trickle(&slower);
        assert_eq!(answer(&slower).0, 408);
        assert_eq!(ask(&connect(&addr), "/", "").0, 200);

        // This client reads the head of the answer, and no more.
        let stuck = connect(&addr);
        (&stuck).write_all(b"GET /large.bin HTTP/1.1\r\nHost: test\r\n\r\n").expect("it is sent");
        head(&stuck);
        let others = [connect(&addr), connect(&addr)];
        others.iter().for_each(|other| assert_eq!(ask(other, "/", "Connection: close\r\n").0, 200));
        program.signal(libc::SIGTERM);
        let said = program.end();
        assert!(said[0].contains("at most 2 at once"), "{said:?}");
    }
}

/// Fails when a connection is kept although its client has ended it, or is not kept although it could be.
#[test]
fn the_header_of_the_connection_is_a_list() {
    for procs in PROCS {
        let folder = Folder::new(&format!("list-{procs}"));
        let (program, addr) = folder.serve(procs, &[]);
        for (headers, kept) in [
            ("", "keep-alive"),
            ("Connection: TE\r\n", "keep-alive"),
            ("Connection: Close\r\n", "close"),
            ("Connection: close, TE\r\n", "close"),
            ("Connection: TE ,close\r\n", "close"),
            ("Connection: close\r\nConnection: keep-alive\r\n", "close"),
            ("Connection: keep-alive, close\r\n", "close"),
        ] {
            let (status, head, _) = ask(&connect(&addr), "/", headers);
            assert_eq!((status, header(&head, "Connection")), (200, Some(kept)), "{headers:?}");
        }
        for (headers, kept) in [("", "close"), ("Connection: TE, Keep-Alive\r\n", "keep-alive")] {
            let stream = connect(&addr);
            write!(&stream, "GET / HTTP/1.0\r\n{headers}\r\n").expect("it is sent");
            assert_eq!(header(&answer(&stream).1, "Connection"), Some(kept), "{headers:?}");
        }
        program.signal(libc::SIGTERM);
        program.end();
    }
}

/// Fails when a third connection is served beside two, or is not served after one of them.
#[test]
fn above_the_limit_of_connections_the_next_one_waits() {
    for procs in PROCS {
        let folder = Folder::new(&format!("limit-{procs}"));
        let (program, addr) = folder.serve(procs, &["--connections", "2"]);
        let [first, second, third] = [connect(&addr), connect(&addr), connect(&addr)];
        assert_eq!((ask(&first, "/", "").0, ask(&second, "/", "").0), (200, 200));
        (&third).write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").expect("it is sent");
        third.set_read_timeout(Some(Duration::from_millis(50))).expect("a limit");
        let waits = (&third).read(&mut [0]).expect_err("nothing has come");
        assert_eq!(waits.kind(), ErrorKind::WouldBlock);
        drop(first);
        third.set_read_timeout(Some(LIMIT)).expect("a limit");
        assert_eq!(answer(&third).0, 200);
        program.signal(libc::SIGTERM);
        assert_eq!(program.end(), ["served 3 requests on 3 connections, at most 2 at once, 0 cut off"]);
    }
}

/// Fails when the stop cuts an answer short, or waits for a connection without a request.
#[test]
fn the_stop_lets_answers_end() {
    for procs in PROCS {
        let folder = Folder::new(&format!("stop-{procs}"));
        let (program, addr) = folder.serve(procs, &["--grace-ms", "60000"]);
        let [reads, idle] = [connect(&addr), connect(&addr)];
        assert_eq!(ask(&idle, "/", "").0, 200);
        (&reads).write_all(b"GET /large.bin HTTP/1.1\r\nHost: test\r\n\r\n").expect("it is sent");
        head(&reads);
        program.signal(libc::SIGTERM);
        assert_eq!((&idle).read(&mut [0]).expect("an end, no error"), 0);
        let mut body = vec![0; LARGE];
        (&reads).read_exact(&mut body).expect("all of the body");
        assert!(body == *LARGE_FILE);
        assert_eq!((&reads).read(&mut [0]).expect("an end, no error"), 0);
        assert_eq!(program.end(), ["served 2 requests on 2 connections, at most 2 at once, 0 cut off"]);
    }
}

/// Fails when a client that does not read holds up the end.
#[test]
fn the_stop_cuts_off_a_client_that_does_not_read() {
    for procs in PROCS {
        let folder = Folder::new(&format!("cut-{procs}"));
        let (program, addr) = folder.serve(procs, &["--grace-ms", "100", "--idle-ms", "3600000"]);
        let stuck = connect(&addr);
        (&stuck).write_all(b"GET /large.bin HTTP/1.1\r\nHost: test\r\n\r\n").expect("it is sent");
        head(&stuck);
        program.signal(libc::SIGTERM);
        assert_eq!(program.end(), ["served 1 requests on 1 connections, at most 1 at once, 1 cut off"]);
    }
}

#[test]
fn what_the_server_of_files_cannot_do_is_one_line_and_a_status() {
    for (args, status, word) in [
        (&["--root", "/nonexistent"][..], 1, "/nonexistent"),
        (&["--root", "/dev/null"], 1, "/dev/null"),
        (&["--listen", "nonsense"], 1, "nonsense"),
        (&["--connections", "0"], 2, "100000"),
        (&["--idle-ms"], 2, "--idle-ms"),
        (&["--loud"], 2, "--loud"),
    ] {
        let line = refusal("static_files", args, status);
        assert!(line.contains(word), "{line}");
    }
}
