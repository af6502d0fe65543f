//! `tls_echo`, driven by `openssl s_client`, by `curl`, and by clients that break off.

use harness::{Example, LIMIT, Program, Scratch, certificate, everywhere, example, peer, run};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

/// A server with its certificate.
struct Server {
    example: Example,
    cert: PathBuf,
    _scratch: Scratch,
}

impl Server {
    fn start(openssl: &Program, procs: usize, options: &[&str]) -> Self {
        let scratch = Scratch::new();
        let (cert, key) = certificate(openssl, &scratch);
        let mut command = example!("tls_echo");
        command.args(["--listen", "127.0.0.1:0", "--cert"]).arg(&cert).arg("--key").arg(key).args(options);
        Server { example: Example::start(&mut command, procs), cert, _scratch: scratch }
    }

    /// Connects a client of rustls.
    fn client(&self) -> StreamOwned<ClientConnection, TcpStream> {
        client(&self.cert, self.example.connect())
    }

    /// Checks that the server still serves a client, whatever other clients have done.
    fn serves(&self) {
        let mut client = self.client();
        client.write_all(b"are you there?").expect("the server goes on");
        let mut answer = [0; 14];
        client.read_exact(&mut answer).expect("the server goes on");
        assert_eq!(&answer, b"are you there?");
        client.conn.send_close_notify();
        client.flush().expect("the server listens");
        assert_eq!(client.read(&mut answer).expect("the end is told"), 0);
    }
}

fn client(cert: &Path, stream: TcpStream) -> StreamOwned<ClientConnection, TcpStream> {
    let session = ClientConnection::new(trusting(cert), ServerName::try_from("localhost").expect("a name"));
    StreamOwned::new(session.expect("a configuration"), stream)
}

fn trusting(cert: &Path) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(cert).expect("PEM")).expect("a certificate");
    Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _it_has_ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn s_client(openssl: &Program, server: &Server, options: &[&str]) -> Killed {
    let mut command = openssl.command();
    command.args(["s_client", "-brief", "-verify_return_error", "-verify_hostname", "localhost", "-CAfile"]);
    command.arg(&server.cert).args(["-connect", &server.example.addr().to_string()]).args(options);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Killed(command.spawn().expect("openssl runs"))
}

/// Sends a line by s_client, and checks that it comes back.
fn says(child: &mut Killed, stdout: &mut impl BufRead, line: &str) {
    let stdin = child.0.stdin.as_mut().expect("piped");
    stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush()).expect("s_client runs");
    let mut answer = String::new();
    stdout.read_line(&mut answer).expect("a pipe");
    assert_eq!(answer, line);
}

#[test]
fn s_client_has_its_lines_back_by_each_version_of_tls() {
    let openssl = peer!("openssl");
    everywhere(|procs| {
        for options in [&[][..], &["--owned"]] {
            let server = Server::start(&openssl, procs, options);
            for version in ["-tls1_2", "-tls1_3"] {
                let mut client = s_client(&openssl, &server, &[version]);
                let mut stdout = BufReader::new(client.0.stdout.take().expect("piped"));
                says(&mut client, &mut stdout, "hello\n");
                if version == "-tls1_3" {
                    // These commands of s_client ask for new keys for its own direction, and for both. A line that came with
                    // the command would be lost.
                    let mut stderr = BufReader::new(client.0.stderr.take().expect("piped"));
                    for command in ["k\n", "K\n"] {
                        let stdin = client.0.stdin.as_mut().expect("piped");
                        stdin.write_all(command.as_bytes()).expect("it runs");
                        let mut told = String::new();
                        while !told.contains("KEYUPDATE") {
                            told.clear();
                            assert_ne!(stderr.read_line(&mut told).expect("a pipe"), 0, "s_client has ended");
                        }
                        says(&mut client, &mut stdout, "hello with other keys\n");
                    }
                }
                says(&mut client, &mut stdout, &("x".repeat(10_000) + "\n"));
                drop(client.0.stdin.take());
                let mut rest = String::new();
                stdout.read_to_string(&mut rest).expect("a pipe");
                assert_eq!(rest, "", "nothing more comes");
            }
            let said = server.example.terminate();
            assert!(said.contains("served 2 connections, 0 cut off; 0 handshakes failed"), "{said}");
        }
    });
}

#[test]
fn curl_gets_its_request_back() {
    let (openssl, curl) = (peer!("openssl"), peer!("curl"));
    everywhere(|procs| {
        let server = Server::start(&openssl, procs, &[]);
        let port = server.example.addr().port();
        let url = format!("https://localhost:{port}/of?many=[1-20]");
        let mut command = curl.command();
        command.args(["-sSf", "--parallel", "--resolve", &format!("localhost:{port}:127.0.0.1"), "--cacert"]);
        let text = run(command.arg(&server.cert).arg(url)).good();
        for number in 1..=20 {
            assert!(text.contains(&format!("GET /of?many={number} HTTP/1.1\r\n")), "{number}: {text}");
        }
        let distrusts = run(curl.command().args(["-sS", &format!("https://127.0.0.1:{port}/")]));
        assert_eq!(distrusts.status, Some(60), "curl was not told to trust: {distrusts:?}");
        let said = server.example.terminate();
        assert!(said.contains("served 21 connections, 0 cut off; 1 handshakes failed"), "{said}");
    });
}

/// Fails by a hang, if the reader and the writer wait for each other; and by wrong bytes, if their records get mixed.
#[test]
fn a_client_that_sends_and_receives_at_once_has_all_its_bytes_back() {
    const LENGTH: usize = 6 << 20;
    let openssl = peer!("openssl");
    everywhere(|procs| {
        let server = Server::start(&openssl, procs, &[]);
        let mut client = s_client(&openssl, &server, &["-nocommands"]);
        let sent = Arc::new(pattern(LENGTH));
        let writer = thread::spawn({
            let (mut stdin, sent) = (client.0.stdin.take().expect("piped"), Arc::clone(&sent));
            move || stdin.write_all(&sent).map(|()| stdin)
        });
        let mut came = vec![0; LENGTH];
        client.0.stdout.as_mut().expect("piped").read_exact(&mut came).expect("all comes back");
        assert!(came == *sent, "the bytes are the same");
        drop(writer.join().expect("no panic").expect("all was sent"));
        let said = server.example.terminate();
        assert!(said.contains(&format!("{LENGTH} bytes")), "{said}");
    });
}

/// Runs 40 clients. Half of them read only after they have sent more than all buffers on the way hold except the client's own.
#[test]
fn many_clients_have_their_own_bytes_back() {
    let openssl = peer!("openssl");
    everywhere(|procs| {
        let server = Server::start(&openssl, procs, &[]);
        thread::scope(|scope| {
            for number in 0..40 {
                let (cert, stream) = (&server.cert, server.example.connect());
                scope.spawn(move || {
                    let mut client = client(cert, stream);
                    let sent = pattern(20_000 + 1_000 * number);
                    client.write_all(&sent).expect("the server takes it");
                    let mut came = vec![0; sent.len()];
                    client.read_exact(&mut came).expect("the server sends it");
                    assert!(came == sent, "client {number}");
                });
            }
        });
        // The clients have gone without a close_notify.
        let said = server.example.terminate();
        assert!(said.contains("served 40 connections, 0 cut off; 0 handshakes failed"), "{said}");
    });
}

#[test]
fn clients_that_break_off_stop_only_themselves() {
    let openssl = peer!("openssl");
    everywhere(|procs| {
        let server = Server::start(&openssl, procs, &["--handshake", "300"]);
        let complains_of = |what: &str| {
            let complaint = server.example.complaint();
            assert!(what.split(" or ").any(|what| complaint.contains(what)), "{what:?}: {complaint:?}");
        };

        // This client does not speak TLS, and an alert comes back.
        let mut plain = server.example.connect();
        plain.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("it is accepted");
        let mut alert = Vec::new();
        plain.read_to_end(&mut alert).expect("the server ends it");
        assert_eq!(alert.first(), Some(&21), "an alert: {alert:?}");
        complains_of("corrupt message");

        // This client sends half of a greeting and then the end.
        let mut half = server.example.connect();
        half.write_all(&[22, 3, 1, 2, 0, 1, 0])
            .and_then(|()| half.shutdown(Shutdown::Write))
            .expect("a socket");
        complains_of("end of file");

        // This client sends half of a greeting and then nothing, until the time for a handshake is over.
        let mut silent = server.example.connect();
        silent.write_all(&[22, 3, 1, 2, 0, 1, 0]).expect("it is accepted");
        assert_eq!(silent.read(&mut [0; 8]).expect("the server ends it"), 0);
        complains_of("timeout");

        // This client resets the connection in the middle.
        let mut client = server.client();
        client.write_all(&pattern(100_000)).expect("the server takes it");
        client.read_exact(&mut [0; 1000]).expect("some comes back");
        reset(client.sock);
        // The complaint comes from the reader or from the writer.
        complains_of("reset or Broken pipe");

        // This client sends a record that was not sealed with the keys of the connection.
        let mut client = server.client();
        client
            .write_all(b"x")
            .and_then(|()| client.read_exact(&mut [0]))
            .expect("one byte goes there and back");
        client.sock.write_all(&[&[23, 3, 3, 0, 32][..], &[7; 32]].concat()).expect("a socket");
        let refused = client.read(&mut [0]).expect_err("an alert comes");
        assert!(refused.to_string().contains("BadRecordMac"), "{refused}");
        complains_of("decrypt");

        server.serves();
        let said = server.example.terminate();
        assert!(said.contains("served 6 connections, 0 cut off; 3 handshakes failed"), "{said}");
    });
}

/// Closes the connection with RST.
fn reset(stream: TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = size_of_val(&linger) as libc::socklen_t;
    // SAFETY: our own socket, and a value of the size that is given.
    let set = unsafe {
        libc::setsockopt(
            std::os::fd::AsRawFd::as_raw_fd(&stream),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size,
        )
    };
    assert_eq!(set, 0, "a socket has this option");
}

#[test]
fn connections_that_are_open_at_the_stop_are_told() {
    let openssl = peer!("openssl");
    everywhere(|procs| {
        for options in [&[][..], &["--owned"]] {
            let server = Server::start(&openssl, procs, options);
            let mut clients: Vec<_> = (0..10).map(|_| server.client()).collect();
            for client in &mut clients {
                client
                    .write_all(b"x")
                    .and_then(|()| client.read_exact(&mut [0]))
                    .expect("the server answers");
            }
            let at = server.example.signal();
            for client in &mut clients {
                // Without a close_notify this is an error.
                assert_eq!(client.read(&mut [0]).expect("the end is told"), 0);
            }
            let said = server.example.stopped(at);
            assert!(said.contains("served 10 connections, 0 cut off"), "{said}");
        }
    });
}

/// A client that sends and never takes the bytes that come back fills the buffers on the way. The server then waits for it, and
/// does not store more.
#[test]
fn a_client_that_does_not_read_is_cut_off_at_the_stop() {
    let openssl = peer!("openssl");
    everywhere(|procs| {
        let server = Server::start(&openssl, procs, &[]);
        let mut client = server.client();
        client.write_all(b"x").expect("the server answers");
        client.sock.set_write_timeout(Some(LIMIT / 100)).expect("a valid time");
        let chunk = pattern(16 << 10);
        let mut sent = 0;
        while client.write_all(&chunk).and_then(|()| client.flush()).is_ok() {
            sent += chunk.len();
            assert!(sent < 64 << 20, "nobody stops the client");
        }
        server.serves();
        let said = server.example.terminate();
        assert!(said.contains("served 2 connections, 1 cut off"), "{said}");
    });
}

#[test]
fn a_wrong_certificate_is_told() {
    let done = run(example!("tls_echo").args(["--cert", "/nowhere/cert.pem"]));
    assert_eq!((done.status, done.stdout.len()), (Some(1), 0), "{done:?}");
    assert!(done.stderr.contains("/nowhere/cert.pem"), "{}", done.stderr);
    let done = run(Command::new(env!("CARGO_BIN_EXE_tls_echo")).arg("--certificate"));
    assert!(done.status == Some(2) && done.stderr.contains("--certificate"), "{done:?}");
}
