//! Sends back the bytes that come over TLS, with rustls as it is. Each connection has one goroutine or two.
//!
//! openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -keyout key.pem -out cert.pem
//! cargo run --release --bin tls_echo -- --cert cert.pem --key key.pem
//!
//! listening on 127.0.0.1:7443, SIGINT or SIGTERM ends it
//! 127.0.0.1:40822: received corrupt message of type InvalidContentType
//! served 3 connections, 0 cut off; 1 handshakes failed; 1,048,590 bytes
//!
//! openssl s_client -connect 127.0.0.1:7443 -CAfile cert.pem
//! curl --insecure https://127.0.0.1:7443/hello
//!
//! A client that announces HTTP by ALPN gets its request back as a document.

mod halves;

use gmp::net::TcpStream;
use gmp_interop::{Args, serve};
use halves::Halves;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, ErrorKind, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const HELP: &str = "\
Sends back what comes over TLS. SIGINT or SIGTERM ends it.

  --listen ADDR      where to listen; default 127.0.0.1:7443, port 0 takes a free one
  --cert FILE        its certificates, as PEM; default cert.pem
  --key FILE         the private key, as PEM; default key.pem
  --owned            one goroutine reads and writes by turns, over rustls' StreamOwned; else one reads while another writes
  --handshake MS     how long a handshake may take; default 5,000
  --idle MS          how long a client may be silent, or not take what it is sent; default 60,000
  --help             this
";
/// The most bytes of one read, which are the most that one TLS record holds.
const CHUNK: usize = 16 << 10;
/// How many chunks can wait for their writer before the reader waits for it.
const CHUNKS: usize = 4;
const LONGEST_REQUEST: usize = 16 << 10;

struct Echo {
    config: Arc<ServerConfig>,
    owned: bool,
    handshake: Duration,
    idle: Duration,
    failed: AtomicU64,
    bytes: AtomicU64,
}

impl Echo {
    fn serve_one(&self, stream: &TcpStream) -> io::Result<()> {
        let mut session = ServerConnection::new(Arc::clone(&self.config)).map_err(io::Error::other)?;
        stream.set_deadline(Some(Instant::now() + self.handshake))?;
        if let Err(refused) = session.complete_io(&mut &*stream) {
            self.failed.fetch_add(1, Relaxed);
            return Err(refused);
        }
        stream.set_deadline(None)?;
        stream.set_read_timeout(Some(self.idle))?;
        stream.set_write_timeout(Some(self.idle))?;
        let http = session.alpn_protocol() == Some(b"http/1.1");
        if http || self.owned {
            let mut tls = StreamOwned::new(session, stream);
            let done = if http { document(&mut tls) } else { self.by_turns(&mut tls) };
            // The close_notify goes out also after an error: a client that still listens learns that nothing was cut off.
            tls.conn.send_close_notify();
            done.and(tls.flush())
        } else {
            self.both_at_once(&Halves::new(session, stream))
        }
    }

    /// Serves a connection with one goroutine, which waits to read or to write.
    fn by_turns(&self, tls: &mut (impl Read + Write)) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK];
        loop {
            let got = tls.read(&mut chunk).or_else(unless_cut_off)?;
            if got == 0 {
                return Ok(());
            }
            tls.write_all(&chunk[..got])?;
            tls.flush()?;
            self.bytes.fetch_add(got as u64, Relaxed);
        }
    }

    /// Serves a connection with a goroutine that reads while another writes: a client that sends for a long time before it
    /// reads stops only itself.
    fn both_at_once(&self, tls: &Halves<'_>) -> io::Result<()> {
        let (chunks, to_write) = gmp::chan::bounded::<Vec<u8>>(CHUNKS);
        gmp::scope(|scope| {
            let writer = scope.go(|| {
                for chunk in to_write {
                    tls.write_all(&chunk)?;
                    self.bytes.fetch_add(chunk.len() as u64, Relaxed);
                }
                tls.close()
            });
            let read = loop {
                let mut chunk = vec![0; CHUNK];
                match tls.read(&mut chunk).or_else(unless_cut_off) {
                    Ok(0) => break Ok(()),
                    Ok(got) => chunk.truncate(got),
                    Err(broken) => break Err(broken),
                }
                // The writer has failed, and returns the reason.
                if chunks.send(chunk).is_err() {
                    break Ok(());
                }
            };
            drop(chunks);
            let written = writer.join().map_err(io::Error::other)?;
            read.and(written)
        })
    }
}

/// Turns rustls' error for a stream that ends without a close_notify into the end. An echo has lost nothing by that.
fn unless_cut_off(broken: io::Error) -> io::Result<usize> {
    if broken.kind() == ErrorKind::UnexpectedEof { Ok(0) } else { Err(broken) }
}

/// Sends the request back as a document.
fn document(tls: &mut (impl Read + Write)) -> io::Result<()> {
    let (mut request, mut chunk) = (Vec::new(), [0; 1024]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let got = tls.read(&mut chunk)?;
        if got == 0 || request.len() > LONGEST_REQUEST {
            return Err(io::Error::new(ErrorKind::InvalidData, "no request of HTTP, or a long one"));
        }
        request.extend_from_slice(&chunk[..got]);
    }
    let length = request.len();
    let kind = "Content-Type: text/plain\r\nConnection: close";
    write!(tls, "HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {length}\r\n\r\n")?;
    tls.write_all(&request)
}

fn config(cert: PathBuf, key: PathBuf) -> io::Result<Arc<ServerConfig>> {
    let certs = CertificateDer::pem_file_iter(&cert).and_then(Iterator::collect::<Result<_, _>>);
    let certs = certs.map_err(|wrong| io::Error::other(format!("{}: {wrong}", cert.display())))?;
    let key = PrivateKeyDer::from_pem_file(&key)
        .map_err(|wrong| io::Error::other(format!("{}: {wrong}", key.display())))?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(certs, key);
    let mut config = config.map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn run() -> io::Result<()> {
    let mut args = Args::new(HELP);
    let listen: String = args.value("--listen").unwrap_or("127.0.0.1:7443".into());
    let cert = args.value("--cert").unwrap_or("cert.pem".into());
    let key = args.value("--key").unwrap_or("key.pem".into());
    let owned = args.flag("--owned");
    let handshake = Duration::from_millis(args.value("--handshake").unwrap_or(5_000));
    let idle = Duration::from_millis(args.value("--idle").unwrap_or(60_000));
    args.finish();
    let (failed, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let echo = Arc::new(Echo { config: config(cert, key)?, owned, handshake, idle, failed, bytes });
    let served = serve(&listen, {
        let echo = Arc::clone(&echo);
        move |stream, _| {
            let peer = stream.peer_addr().map_or("?".into(), |peer| peer.to_string());
            if let Err(broken) = echo.serve_one(stream) {
                eprintln!("{peer}: {broken}");
            }
        }
    })?;
    let (failed, bytes) = (echo.failed.load(Relaxed), echo.bytes.load(Relaxed));
    println!("served {served}; {failed} handshakes failed; {bytes} bytes");
    Ok(())
}

fn main() -> ExitCode {
    gmp_interop::main("tls_echo", run)
}
