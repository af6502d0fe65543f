//! `fetch`, against nginx, with and without TLS, and against servers that are late.

use harness::{Done, LIMIT, Peer, Program, Scratch, certificate, everywhere, example, peer, run};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::thread;

const MANY: usize = 200;

fn nginx(program: &Program, tls: Option<(&Path, &Path)>) -> Peer {
    Peer::start(|scratch, addr| {
        for number in 0..MANY {
            scratch.file(&format!("www/{number}"), content(number));
        }
        let config = scratch.file("nginx.conf", config(scratch, addr, tls));
        let mut command = program.command();
        command.arg("-e").arg(scratch.join("error.log")).arg("-c").arg(config);
        command
    })
}

fn config(scratch: &Scratch, addr: SocketAddr, tls: Option<(&Path, &Path)>) -> String {
    let folder = scratch.path().display();
    let tls = tls.map(|(cert, key)| {
        format!("ssl_certificate {}; ssl_certificate_key {};", cert.display(), key.display())
    });
    let how = if tls.is_some() { "ssl" } else { "" };
    format!(
        "daemon off; worker_processes 1; pid {folder}/pid; events {{ worker_connections 1024; }}
         http {{ access_log {folder}/access.log; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
                fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
                log_format main '$connection $request_uri';
                server {{ listen {addr} {how}; root {folder}/www; {}
                          access_log {folder}/access.log main; }} }}",
        tls.unwrap_or_default()
    )
}

/// Returns the content of a document. Each document has another length, up to 400 KB.
fn content(number: usize) -> Vec<u8> {
    (0..number * 2_011).map(|at| (at * 31 + number) as u8).collect()
}

fn sum(content: &[u8]) -> String {
    use std::hash::{DefaultHasher, Hasher};
    let mut sum = DefaultHasher::new();
    sum.write(content);
    format!("200 {} bytes, sum {:016x} ", content.len(), sum.finish())
}

fn fetch(procs: usize, options: &[&str], urls: &[String]) -> Done {
    run(example!("fetch").env("GMPMAXPROCS", procs.to_string()).args(options).args(urls))
}

fn all_are_right(said: &str) {
    for number in 0..MANY {
        let told = said.lines().find(|line| line.ends_with(&format!("/{number}"))).unwrap_or("");
        assert!(told.starts_with(&sum(&content(number))), "{number}: {told:?}");
    }
    assert!(said.ends_with(&format!("fetched {MANY}, 0 failed\n")), "{said}");
}

/// Fails when a document is another URL's or is cut off, or when the pool does not use a connection again.
#[test]
fn nginx_serves_two_hundred_goroutines() {
    let program = peer!("nginx");
    everywhere(|procs| {
        for options in [&["--rounds", "3"][..], &["--rounds", "3", "--std"]] {
            let nginx = nginx(&program, None);
            let urls: Vec<_> = (0..MANY).map(|number| format!("http://{}/{number}", nginx.addr())).collect();
            all_are_right(&fetch(procs, options, &urls).good());
            let missing = fetch(procs, options, &[format!("http://{}/missing", nginx.addr())]).good();
            assert!(missing.starts_with("404 "), "{missing}");
            // One goroutine after another fetches the document over one connection.
            let again = fetch(procs, &["--rounds", "50"], &urls[7..8]).good();
            assert!(again.starts_with(&sum(&content(7))), "{again}");
            let log = std::fs::read_to_string(nginx.scratch().join("access.log")).expect("a log");
            let last: Vec<_> = log.lines().rev().take(50).collect();
            assert!(last.len() == 50 && last.iter().all(|line| *line == last[0]), "{last:?}");
        }
    });
}

#[test]
fn nginx_serves_them_by_tls() {
    let (program, openssl) = (peer!("nginx"), peer!("openssl"));
    everywhere(|procs| {
        let scratch = Scratch::new();
        let (cert, key) = certificate(&openssl, &scratch);
        let nginx = nginx(&program, Some((&cert, &key)));
        let port = nginx.addr().port();
        let urls: Vec<_> = (0..MANY).map(|number| format!("https://localhost:{port}/{number}")).collect();
        let root = cert.display().to_string();
        all_are_right(&fetch(procs, &["--root", &root, "--timeout", "60000"], &urls).good());
        // Without `--root`, no client trusts the certificate.
        let distrusts = fetch(procs, &[], &urls[..1]).good();
        assert!(distrusts.starts_with("error: ") && distrusts.contains("ertificate"), "{distrusts}");
    });
}

/// Runs a server that reads a request on each of `MANY` connections before it answers the first, so all of them wait at once.
/// Returns how many threads the client has then.
fn threads_of_a_waiting_client(procs: usize, options: &[&str]) -> usize {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let addr = listener.local_addr().expect("it listens");
    let urls: Vec<_> = (0..MANY).map(|number| format!("http://{addr}/{number}")).collect();
    let mut command = example!("fetch");
    command.env("GMPMAXPROCS", procs.to_string()).args(["--timeout", "60000"]).args(options).args(&urls);
    let child = command.stdout(Stdio::piped()).spawn().expect("it runs");
    let pid = child.id();
    let asked = |stream: TcpStream| {
        stream.set_read_timeout(Some(LIMIT)).expect("a valid time");
        let mut lines = BufReader::new(stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert_ne!(lines.read_line(&mut line).expect("a request"), 0, "the client has ended it");
        }
        lines.into_inner()
    };
    let waiting: Vec<_> =
        listener.incoming().take(MANY).map(|stream| asked(stream.expect("it asks"))).collect();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    for mut stream in waiting {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
            .expect("it listens");
    }
    let done = child.wait_with_output().expect("it ends");
    assert!(
        String::from_utf8_lossy(&done.stdout).ends_with(&format!("fetched {MANY}, 0 failed\n")),
        "{done:?}"
    );
    threads
}

/// Fails when each goroutine that waits on our sockets takes a thread.
#[test]
fn waiting_takes_a_thread_by_std_and_none_by_ours() {
    everywhere(|procs| {
        let (ours, std) =
            (threads_of_a_waiting_client(procs, &[]), threads_of_a_waiting_client(procs, &["--std"]));
        println!("at {procs}: {MANY} wait, {ours} threads over ours, {std} over std's");
        assert!(ours < MANY / 4, "{ours}");
        assert!((MANY..2 * MANY).contains(&std), "{std}");
    });
}

#[test]
fn a_server_that_is_late_or_not_there_is_an_error() {
    everywhere(|procs| {
        // This server accepts connections only into its backlog, and never answers.
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let url = format!("http://{}/", silent.local_addr().expect("it listens"));
        let late = fetch(procs, &["--timeout", "200"], &[url.clone(), url.clone()]).good();
        assert!(
            late.starts_with("error: timeout: global ") && late.ends_with("fetched 0, 2 failed\n"),
            "{late}"
        );
        drop(silent);
        let gone = fetch(procs, &[], &[url]).good();
        assert!(gone.starts_with("error: io: Connection refused"), "{gone}");

        // The answer is cut off.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let url = format!("http://{}/", listener.local_addr().expect("it listens"));
        let cut = thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("it asks");
                let mut asked = BufReader::new(stream.try_clone().expect("a socket")).lines();
                while asked.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").expect("it listens");
            });
            fetch(procs, &[], &[url]).good()
        });
        assert!(cut.starts_with("error: ") && cut.ends_with("fetched 0, 1 failed\n"), "{cut}");
    });
}
