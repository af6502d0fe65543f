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
use std::io::{Cursor, Read, Write};
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

/// What reads, writes and renders.
fn files() {
    measure("rusqlite: a table, an index, a join", || {
        let database = rusqlite::Connection::open_in_memory().expect("SQLite is bundled");
        database
            .execute_batch("create table t (id integer primary key, n int); create index i on t (n)")
            .expect("SQL");
        for n in 0..100 {
            database.execute("insert into t (n) values (?1)", [n % 7]).expect("SQL");
        }
        let query = "with recursive c(x) as (select 1 union all select x + 1 from c where x < 9) \
            select n, count(*), (select max(n) from t u where u.id < t.id) from t join c on c.x = t.n group by n";
        let mut query = database.prepare(query).expect("SQL");
        let rows = query.query_map([], |row| row.get::<_, i64>(0)).expect("SQL");
        assert_eq!(rows.count(), 6);
    });
    measure("flate2: gzip, there and back", || {
        let text = b"hello, hello".repeat(5000);
        let mut packs = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packs.write_all(&text).expect("a vector grows");
        let (packed, mut back) = (packs.finish().expect("a vector grows"), Vec::new());
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut back).expect("it was packed");
        assert!(back == text);
    });
    measure("zip: an archive of one file, there and back", || {
        let mut packs = zip::ZipWriter::new(Cursor::new(Vec::new()));
        packs.start_file("a", zip::write::SimpleFileOptions::default()).expect("a name");
        packs.write_all(&b"text".repeat(999)).expect("a vector grows");
        let mut archive = zip::ZipArchive::new(packs.finish().expect("a vector grows")).expect("an archive");
        let mut text = String::new();
        archive.by_index(0).expect("a file").read_to_string(&mut text).expect("it was packed");
        assert_eq!(text.len(), 3996);
    });
    measure("image: a PNG, there, back, and resized", || {
        let picture = image::RgbaImage::from_fn(64, 64, |x, y| image::Rgba([x as u8, y as u8, 7, 255]));
        let mut file = Cursor::new(Vec::new());
        picture.write_to(&mut file, image::ImageFormat::Png).expect("a vector grows");
        let back = image::load_from_memory(file.get_ref()).expect("a PNG");
        black_box(back.resize(32, 32, image::imageops::FilterType::Lanczos3));
    });
    measure("minijinja: a template with a loop and filters", || {
        let template = "{% for n in all %}{% if n is odd %}{{ n|string|upper }}{% endif %}{% endfor %}";
        let text = minijinja::render!(template, all => [1, 2, 3]);
        assert_eq!(text, "13");
    });
    measure("csv: deserialize", || {
        let mut reader = csv::Reader::from_reader("a,b\n1,2\n3,4\n".as_bytes());
        assert_eq!(reader.deserialize::<(u32, u32)>().map(|row| row.expect("numbers").1).sum::<u32>(), 6);
    });
    measure("rand: the thread's generator, seeded", || {
        black_box(rand::random_range(1..=6));
    });
    measure("tracing: a span, an event, formatted", || {
        let subscriber = tracing_subscriber::fmt().with_writer(std::io::sink).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info_span!("outer", n = 1).in_scope(|| tracing::info!(answer = 42, "in a span"));
        });
    });
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
    files();
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
