//! How much of a goroutine's stack ordinary crates use: a line for each, in this build.
//!
//!     cargo run --manifest-path benches/depths/Cargo.toml            # debug
//!     cargo run --release --manifest-path benches/depths/Cargo.toml
//!
//! Each runs on a goroutine of its own with 8 MiB of stack, which then parks; a dump under `GMPDEBUG=stackuse=1` tells what
//! was touched, in whole pages. The first run of each counts, with all that is made once.

use gmp::net::{TcpListener, TcpStream};
use gmp::sync::Event;
use gmp::{Builder, go};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

const KIB: usize = 1 << 10;

/// Runs `f` on a goroutine of its own, and prints how much of its stack it has touched.
fn measure(name: &str, f: impl FnOnce() + Send + 'static) {
    let (done, end) = (Arc::new(Event::new()), Arc::new(Event::new()));
    let goroutine = Builder::new().name("measured").stack_size(8192 * KIB).go({
        let (done, end) = (Arc::clone(&done), Arc::clone(&end));
        move || {
            f();
            done.notify_one();
            end.wait();
        }
    });
    let goroutine = goroutine.expect("there is room for a stack");
    done.wait();
    let touched = loop {
        let dump = gmp::dump();
        let line = dump.lines().find(|line| line.contains("'measured' [event"));
        let bytes =
            line.and_then(|line| line.split_once(" touched")?.0.rsplit_once(' ')?.1.parse::<usize>().ok());
        if let Some(bytes) = bytes {
            break bytes;
        }
        // It is about to park.
        gmp::yield_now();
    };
    end.notify_one();
    goroutine.join().expect("what is measured does not panic");
    println!("{name:<48} {:>5} KiB", touched / KIB);
}

#[derive(Debug, Deserialize, Serialize)]
struct Record {
    id: u64,
    name: String,
    tags: Vec<String>,
    inner: Option<Box<Record>>,
}

fn record(depth: usize) -> Record {
    let inner = (depth > 0).then(|| Box::new(record(depth - 1)));
    Record { id: depth as u64, name: format!("record {depth}"), tags: vec!["a".into(), "b".into()], inner }
}

/// A server that answers `requests` requests of HTTP/1.1 with a text of JSON.
fn http(requests: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    go(move || {
        for _ in 0..requests {
            let (stream, _) = listener.accept().expect("a client");
            let (mut stream, mut request, mut byte) = (&stream, Vec::new(), [0]);
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("a request") > 0 {
                request.push(byte[0]);
            }
            let text = r#"{"id":1,"name":"n","tags":["t"],"inner":null}"#;
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                text.len()
            );
            stream.write_all((head + text).as_bytes()).expect("the client reads");
        }
    });
    address
}

/// Configurations of both ends, with a certificate of our own.
fn tls() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let certificate: CertificateDer<'static> = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).expect("a root");
    let server = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key);
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    (Arc::new(server.expect("a server's configuration")), Arc::new(client))
}

fn main() {
    if std::env::var_os("GMPDEBUG").is_none() {
        use std::os::unix::process::CommandExt;
        let own = std::env::current_exe().expect("the program has a path");
        panic!("{}", std::process::Command::new(own).env("GMPDEBUG", "stackuse=1").exec());
    }
    println!("{}", if cfg!(debug_assertions) { "debug" } else { "release" });
    // SAFETY: what is called here keeps no thread-bound value across a blocking call of gmp's.
    unsafe { gmp::run(run) }
}

fn run() {
    measure("nothing", || ());
    measure("println!", || println!("{}", black_box(1.5)));
    measure("HashMap, format!, String", || {
        let map: std::collections::HashMap<_, _> = (0..100).map(|n| (n, format!("{n:?}"))).collect();
        black_box(map);
    });
    measure("serde_json: to_string, from_str of a struct", || {
        let text = serde_json::to_string(&record(3)).expect("a text");
        black_box(serde_json::from_str::<Record>(&text).expect("a record"));
    });
    measure("serde_json: Value, 100 arrays deep", || {
        let text = "[".repeat(100) + &"]".repeat(100);
        black_box(serde_json::from_str::<serde_json::Value>(&text).expect("a value").to_string());
    });
    measure("regex: compile, match", || {
        let dates = regex::Regex::new(r"(?i)\b(\d{4})-(\d{2})-(\d{2})T[\p{L}\d:]+(?:\s|$)").expect("a regex");
        assert!(dates.is_match("at 2026-01-31T10:20:30 or so"));
    });
    measure("regex: 50 groups deep", || {
        let deep = "(a|".repeat(50) + "b" + &")".repeat(50);
        assert!(regex::Regex::new(&deep).expect("a regex").is_match("b"));
    });
    measure("rcgen: a certificate; rustls: configurations", || drop(tls()));
    let (server, client) = tls();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (served, serves) = (Arc::new(Event::new()), Arc::new(Event::new()));
    go({
        let serves = Arc::clone(&serves);
        move || {
            serves.wait();
            let stream = TcpStream::connect(address).expect("the server");
            let name = ServerName::try_from("localhost").expect("a name");
            let connection = ClientConnection::new(client, name).expect("a connection");
            let mut stream = StreamOwned::new(connection, stream);
            stream.write_all(b"ping").expect("the server reads");
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).expect("an answer");
            served.notify_one();
        }
    });
    measure("rustls: server, handshake and echo", move || {
        serves.notify_one();
        let (stream, _) = listener.accept().expect("a client");
        let mut stream = StreamOwned::new(ServerConnection::new(server).expect("a connection"), stream);
        let mut text = [0; 4];
        stream.read_exact(&mut text).expect("a text");
        stream.write_all(&text).expect("the client reads");
    });
    let (server, client) = tls();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    go(move || {
        let (stream, _) = listener.accept().expect("a client");
        let mut stream = StreamOwned::new(ServerConnection::new(server).expect("a connection"), stream);
        let mut text = [0; 4];
        stream.read_exact(&mut text).expect("a text");
        stream.write_all(&text).expect("the client reads");
    });
    measure("rustls: client, handshake and echo", move || {
        let stream = TcpStream::connect(address).expect("the server");
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = ClientConnection::new(client, name).expect("a connection");
        let mut stream = StreamOwned::new(connection, stream);
        stream.write_all(b"ping").expect("the server reads");
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).expect("an answer");
    });
    let address = http(2);
    measure("ureq: an agent with TLS, get over HTTP", move || {
        let agent = ureq::agent();
        let mut answer = agent.get(format!("http://{address}/")).call().expect("an answer");
        black_box(answer.body_mut().read_to_string().expect("a text"));
    });
    measure("reqwest: blocking client, get and json", move || {
        let client = reqwest::blocking::Client::new();
        let answer = client.get(format!("http://{address}/")).send().expect("an answer");
        black_box(answer.json::<Record>().expect("a record"));
    });
}
