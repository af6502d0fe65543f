//! A caching forwarder for DNS: clients ask it, over UDP and TCP, and it asks one resolver.
//!
//! cargo run --release --example udp_dns -- --upstream 9.9.9.9
//!
//! listening on 127.0.0.1:5300, asks 9.9.9.9:53, Ctrl-C ends it
//! 3 queries, 0 over TCP: 1 from the cache, 2 asked, 0 shared, 0 failed, 0 turned away; 0 malformed; ..
//!
//! dig -p 5300 @127.0.0.1 example.org
//!
//! One goroutine receives datagrams, and answers at once the queries that the cache can answer (`cache.rs`). Each other query
//! is a goroutine, which waits for the upstream (`upstream.rs`), or for another goroutine that has asked the same; `server.rs`
//! has both, and TCP. `message.rs` knows the format.
//!
//! The program believes an answer from the upstream's address, to the port and with the number that were chosen at random for
//! this question, which repeats the question. The answer is kept for this question alone; additional records are passed on, and
//! answer no other question.
//!
//! How it ends: SIGINT or SIGTERM ends the context `stop`, under which the program waits for queries. Queries under way have a
//! while for their answers; then the context `cut` ends them, and their clients are told that there is no answer.

mod cache;
mod message;
mod server;
mod upstream;

use cache::Cache;
use gmp::Runtime;
use gmp::context::{self, Context};
use gmp::net::{TcpListener, UdpSocket};
use gmp::signal::{SIGINT, SIGTERM};
use gmp::sync::{Semaphore, SingleFlight};
use server::{Complaints, Counts, Server};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use upstream::Upstream;

const HELP: &str = "\
Answers DNS queries from a cache, or by asking an upstream resolver. Ctrl-C ends it.

udp_dns --upstream ADDR [--listen ADDR] [--entries N] [--queries N] [--connections N]
        [--tries N] [--timeout-ms MS] [--idle-ms MS] [--grace-ms MS]

  --upstream ADDR   the address of the resolver, with its port if that is not 53
  --listen ADDR     for UDP and TCP; default 127.0.0.1:5300, port 0 takes a free one
  --entries N       answers in the cache; default 10000
  --queries N       that wait for the upstream at once; one more is told of a failure; default 500
  --connections N   over TCP at once; more wait until one ends; default 100
  --tries N         how often the upstream is asked; default 3
  --timeout-ms MS   how long each try waits; default 1000
  --idle-ms MS      how long a connection may be silent; default 10000
  --grace-ms MS     how long the stop waits for queries that are under way; default 600
  --help            this

Status: 0; 1 when the address can't be had; 2 for a wrong argument.
";

/// How often the program tries to bind two sockets to the port that the kernel has given the first one.
const PORTS: usize = 10;
/// How long it may take to tell clients that their queries were given up.
const CUT: Duration = Duration::from_millis(100);

struct Options {
    help: bool,
    upstream: Option<SocketAddr>,
    listen: String,
    entries: usize,
    queries: usize,
    connections: usize,
    tries: usize,
    timeout: Duration,
    idle: Duration,
    grace: Duration,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Options {
            help: false,
            upstream: None,
            listen: "127.0.0.1:5300".to_owned(),
            entries: 10_000,
            queries: 500,
            connections: 100,
            tries: 3,
            timeout: Duration::from_secs(1),
            idle: Duration::from_secs(10),
            grace: Duration::from_millis(600),
        };
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or(format!("{flag}: a value is missing"));
            match flag.as_str() {
                "--help" | "-h" => options.help = true,
                "--upstream" => options.upstream = Some(resolver(&flag, &value()?)?),
                "--listen" => options.listen = value()?,
                "--entries" => options.entries = number(&flag, &value()?, 10_000_000)?,
                "--queries" => options.queries = number(&flag, &value()?, 100_000)?,
                "--connections" => options.connections = number(&flag, &value()?, 100_000)?,
                "--tries" => options.tries = number(&flag, &value()?, 100)?,
                "--timeout-ms" => options.timeout = millis(&flag, &value()?)?,
                "--idle-ms" => options.idle = millis(&flag, &value()?)?,
                "--grace-ms" => options.grace = millis(&flag, &value()?)?,
                unknown => return Err(format!("unknown argument {unknown:?}")),
            }
        }
        if options.upstream.is_none() && !options.help {
            return Err("--upstream is missing".to_owned());
        }
        Ok(options)
    }
}

/// An address, not a name: there is no resolver yet to look it up.
fn resolver(flag: &str, text: &str) -> Result<SocketAddr, String> {
    let with_port = text.parse().ok().filter(|addr: &SocketAddr| addr.port() != 0);
    let alone = || text.parse().ok().map(|ip: IpAddr| SocketAddr::from((ip, 53)));
    with_port.or_else(alone).ok_or_else(|| format!("{flag}: {text:?} is no address"))
}

fn number(flag: &str, text: &str, most: usize) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| (1..=most).contains(number))
        .ok_or_else(|| format!("{flag}: {text:?} is not a number from 1 to {most}"))
}

fn millis(flag: &str, text: &str) -> Result<Duration, String> {
    number(flag, text, 3_600_000).map(|millis| Duration::from_millis(millis as u64))
}

/// One port for both: a client whose answer was truncated asks again at the same address.
fn bind(listen: &str) -> io::Result<(UdpSocket, TcpListener)> {
    let mut tries = 0;
    loop {
        tries += 1;
        let socket = UdpSocket::bind(listen)?;
        match TcpListener::bind(socket.local_addr()?) {
            Ok(listener) => return Ok((socket, listener)),
            Err(taken) if taken.kind() == ErrorKind::AddrInUse && tries < PORTS => {}
            Err(refused) => return Err(refused),
        }
    }
}

fn serve(options: &Options) -> io::Result<()> {
    let upstream = options.upstream.expect("it was asked for");
    let (cut, cut_off) = Context::background().with_cancel();
    let (stop, _cancel) = context::with_signals(&cut, &[SIGINT, SIGTERM])?;
    let (socket, listener) = bind(&options.listen).map_err(|refused| {
        io::Error::new(refused.kind(), format!("cannot listen on {}: {refused}", options.listen))
    })?;
    println!("listening on {}, asks {upstream}, Ctrl-C ends it", socket.local_addr()?);
    let server = Arc::new(Server {
        upstream: Upstream {
            addr: upstream,
            timeout: options.timeout,
            tries: options.tries,
            strange: AtomicU64::new(0),
        },
        cache: Cache::new(options.entries),
        flights: SingleFlight::new(),
        room: Arc::new(Semaphore::new(options.queries)),
        places: Arc::new(Semaphore::new(options.connections)),
        idle: options.idle,
        stop,
        cut,
        counts: Counts::default(),
        complaints: Complaints::default(),
    });
    let socket = Arc::new(socket);
    gmp::scope(|s| {
        // Each of the two ends with `stop`.
        s.go(|| server.serve_tcp(&listener));
        server.serve_udp(&socket);
    });

    // The kernel refuses new connections from now on.
    drop(listener);
    // All is free when the last query is answered, and the last connection has ended.
    let ended_by = |until: Instant| {
        let queries = server.room.acquire_guard_deadline(options.queries, until).map(drop);
        let connections = server.places.acquire_guard_deadline(options.connections, until).map(drop);
        queries.is_ok() && connections.is_ok()
    };
    if !ended_by(Instant::now() + options.grace) {
        cut_off.cancel_with("the forwarder stops");
        let _a_client_that_does_not_read = ended_by(Instant::now() + CUT);
    }
    println!(
        "{}; at most {} kept, {} messages not believed",
        server.counts,
        server.cache.fullest(),
        server.upstream.strange.load(Relaxed)
    );
    Ok(())
}

fn main() -> ExitCode {
    let args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("udp_dns: {wrong}; --help tells which there are");
            return ExitCode::from(2);
        }
    };
    if options.help {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    // SAFETY: the goroutines of these files keep nothing of a thread across a call that parks.
    let runtime = unsafe { Runtime::builder().shutdown_timeout(CUT).build() };
    match runtime.and_then(|runtime| runtime.run(move || serve(&options))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("udp_dns: {wrong}");
            ExitCode::FAILURE
        }
    }
}
