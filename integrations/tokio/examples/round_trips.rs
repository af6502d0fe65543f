//! Measures the cost of a round trip to an echo server, for each way in which a goroutine can make it.
//!
//! `cargo run --release -p gmp-tokio --example round_trips -- [WAY] [COUNT]`, in `integrations/`. The server is a process of
//! its own, whose CPU time is not counted. Under `strace -f -c` a single WAY shows its system calls.

use gmp_tokio::Reactor;
use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const SIZE: usize = 64;
type RoundTrips = fn(SocketAddr, u32);

/// The ways, by the names that the program takes.
const WAYS: [(&str, RoundTrips); 4] = [
    // A socket of gmp: the goroutine makes plain reads and writes.
    ("gmp", |addr, count| {
        let mut stream = gmp::net::TcpStream::connect(addr).expect("the server listens");
        stream.set_nodelay(true).expect("a socket");
        let mut bytes = [1; SIZE];
        for _ in 0..count {
            stream.write_all(&bytes).expect("the server reads");
            stream.read_exact(&mut bytes).expect("the server answers");
        }
    }),
    // A socket of tokio: the goroutine polls each round trip.
    ("block_on", |addr, count| {
        let mut stream = gmp::block_on(connect(addr));
        for _ in 0..count {
            gmp::block_on(round_trip(&mut stream));
        }
    }),
    // A socket of tokio: the reactor polls each round trip, which a goroutine joins.
    ("run", |addr, count| {
        let mut stream = gmp_tokio::run(connect(addr));
        for _ in 0..count {
            stream = gmp_tokio::run(async move {
                round_trip(&mut stream).await;
                stream
            });
        }
    }),
    // A socket of tokio: all round trips are one task.
    ("task", |addr, count| {
        gmp_tokio::run(async move {
            let mut stream = connect(addr).await;
            for _ in 0..count {
                round_trip(&mut stream).await;
            }
        });
    }),
];

async fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).await.expect("the server listens");
    stream.set_nodelay(true).expect("a socket");
    stream
}

async fn round_trip(stream: &mut TcpStream) {
    let mut bytes = [1; SIZE];
    stream.write_all(&bytes).await.expect("the server reads");
    stream.read_exact(&mut bytes).await.expect("the server answers");
}

/// Serves one connection after the other, until its standard input ends.
fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    println!("{}", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            stream.set_nodelay(true).expect("a socket");
            let mut bytes = [0; SIZE];
            while stream.read_exact(&mut bytes).and_then(|()| stream.write_all(&bytes)).is_ok() {}
        }
    });
    let _end = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Returns the CPU time of this process, and how often one of its threads went to sleep.
fn used() -> (Duration, i64) {
    // SAFETY: all zeros is a value of this structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a place for the answer.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) }, 0);
    let time = |of: libc::timeval| Duration::new(of.tv_sec as u64, of.tv_usec as u32 * 1000);
    (time(usage.ru_utime) + time(usage.ru_stime), usage.ru_nvcsw)
}

fn main() -> std::io::Result<()> {
    let mut args = env::args().skip(1);
    let way = args.next().unwrap_or("all".to_owned());
    if way == "--serve" {
        serve();
        return Ok(());
    }
    let count: u32 = args.next().map_or(Ok(20_000), |count| count.parse()).expect("COUNT is a number");
    let mut server = Command::new(env::current_exe()?)
        .arg("--serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("piped")).read_line(&mut line)?;
    let addr: SocketAddr = line.trim().parse().expect("an address");

    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let reactor = Reactor::new(tokio);
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let runtime = unsafe { reactor.install(gmp::Runtime::builder().procs(1)).build()? };
    println!("{:10} {:>10} {:>10} {:>10}   a round trip, of {count}", "way", "µs", "µs of CPU", "sleeps");
    for (name, round_trips) in WAYS.into_iter().filter(|(name, _)| way == "all" || way == *name) {
        let (start, (cpu, sleeps)) = (Instant::now(), used());
        runtime.run(|| round_trips(addr, count));
        let (took, now) = (start.elapsed(), used());
        let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(count);
        let slept = (now.1 - sleeps) as f64 / f64::from(count);
        println!("{name:10} {:10.2} {:10.2} {slept:10.2}", each(took), each(now.0 - cpu));
    }
    drop(server.stdin.take());
    server.wait()?;
    Ok(())
}
