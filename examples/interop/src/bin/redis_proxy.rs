//! Stands before a Redis and serves up to a given number of clients. Each client has a connection of its own and two
//! goroutines.
//!
//! cargo run --release --bin redis_proxy -- --to 127.0.0.1:6379
//!
//! listening on 127.0.0.1:7381, SIGINT or SIGTERM ends it
//! served 4 connections, 0 cut off; 1 refused; 57 bytes there, 1,021 back
//!
//! redis-cli -p 7381 ping
//!
//! `gmp::io::copy_bidirectional` has a goroutine for each direction, and stores no more than a pipe holds: a side that does not
//! read stops only the side that sends to it. The end of one direction is passed on as an end of that direction: the bytes that
//! are still under way in the other direction arrive.
//!
//! Silence does not end a connection: the proxy cannot tell a client that has nothing to say from a client that waits in a
//! `BLPOP`, or for messages of its subscriptions. The kernel finds a client or a server that is gone without a word, because it
//! probes a silent peer (TCP keepalive).

use gmp::net::TcpStream;
use gmp_interop::{Args, serve};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

const HELP: &str = "\
Stands before a Redis, or another server that sends nothing by itself. SIGINT or SIGTERM ends it.

  --listen ADDR      where to listen; default 127.0.0.1:7381, port 0 takes a free one
  --to ADDR          where the server is; default 127.0.0.1:6379
  --most COUNT       how many clients there are at most; one more is refused, and told why; default 1,000
  --connect MS       how long the server may take to accept; default 2,000
  --idle MS          how long a side may leave what it is sent; default 60,000. After as much silence, in whole seconds, the
                     kernel asks a side whether it is still there. One that is there may be silent for ever
  --help             this
";

struct Proxy {
    to: SocketAddr,
    most: usize,
    connect: Duration,
    idle: Duration,
    open: AtomicUsize,
    refused: AtomicU64,
    there: AtomicU64,
    back: AtomicU64,
}

/// For how long, and for how many bytes, the proxy reads from a client that it has refused.
const LINGER: Duration = Duration::from_millis(400);
const MOST_LINGER: u64 = 1 << 20;

/// One of the places for clients.
struct Place<'a>(&'a Proxy);

impl<'a> Place<'a> {
    fn take(proxy: &'a Proxy) -> Option<Self> {
        let one_more = |open| (open < proxy.most).then_some(open + 1);
        // Relaxed: only the number itself matters.
        proxy.open.fetch_update(Relaxed, Relaxed, one_more).ok().map(|_| Place(proxy))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

impl Proxy {
    fn serve_one(&self, client: &TcpStream) -> io::Result<()> {
        client.set_write_timeout(Some(self.idle))?;
        let Some(place) = Place::take(self) else { return self.refuse(client, "too many clients") };
        let server = match TcpStream::connect_timeout(&self.to, self.connect) {
            Ok(server) => server,
            Err(refused) => {
                // Another client can come while this client takes the reason.
                drop(place);
                let _gone_itself = self.refuse(client, "the server is not there");
                return Err(refused);
            }
        };
        server.set_nodelay(true)?;
        server.set_write_timeout(Some(self.idle))?;
        // Neither side has a read timeout: a client that waits is silent, and so is the server for which it waits.
        for end in [client, &server] {
            ask_when_silent(end, self.idle)?;
        }
        let copied = gmp::io::copy_bidirectional(client, &server);
        let (there, back) = match &copied {
            Ok(bytes) => *bytes,
            Err(broken) => broken.copied(),
        };
        self.there.fetch_add(there, Relaxed);
        self.back.fetch_add(back, Relaxed);
        copied.map(drop).map_err(io::Error::from)
    }

    fn refuse(&self, mut client: &TcpStream, why: &str) -> io::Result<()> {
        self.refused.fetch_add(1, Relaxed);
        client.write_all(format!("-ERR {why}\r\n").as_bytes())?;
        client.shutdown(Shutdown::Write)?;
        // A close that leaves bytes unread would be a reset, which takes the reason from the client. All bytes have one limit:
        // a client does not keep the connection by a byte now and then.
        client.set_read_deadline(Some(Instant::now() + LINGER))?;
        // The client has the reason. The proxy does not care whether the client then ends in time.
        let _ended = io::copy(&mut client.take(MOST_LINGER), &mut io::sink());
        Ok(())
    }
}

/// Makes the kernel probe a peer that has been silent for `silence`, and end the connection after three probes without an
/// answer, ten seconds apart. Sent bytes must not stay without an acknowledgement for longer than that either, because the
/// kernel does not probe while they do.
fn ask_when_silent(stream: &TcpStream, silence: Duration) -> io::Result<()> {
    // The kernel accepts only these numbers.
    let seconds = silence.as_secs().clamp(1, 32_767) as libc::c_int;
    let in_all = (seconds + 3 * 10) * 1000;
    for (level, option, value) in [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 10),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, in_all),
    ] {
        let length = size_of_val(&value) as libc::socklen_t;
        let from = (&raw const value).cast();
        // SAFETY: the kernel reads a whole `c_int`.
        if unsafe { libc::setsockopt(stream.as_raw_fd(), level, option, from, length) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn run() -> io::Result<()> {
    let mut args = Args::new(HELP);
    let listen: String = args.value("--listen").unwrap_or("127.0.0.1:7381".into());
    let to = args.value("--to").unwrap_or(SocketAddr::from(([127, 0, 0, 1], 6379)));
    let most = args.value("--most").unwrap_or(1_000);
    let connect = Duration::from_millis(args.value("--connect").unwrap_or(2_000));
    let idle = Duration::from_millis(args.value("--idle").unwrap_or(60_000));
    args.finish();
    let (open, refused) = (AtomicUsize::new(0), AtomicU64::new(0));
    let (there, back) = (AtomicU64::new(0), AtomicU64::new(0));
    let proxy = Arc::new(Proxy { to, most, connect, idle, open, refused, there, back });
    let served = serve(&listen, {
        let proxy = Arc::clone(&proxy);
        move |client, _| {
            if let Err(broken) = proxy.serve_one(client) {
                eprintln!("{broken}");
            }
        }
    })?;
    let count = |number: &AtomicU64| number.load(Relaxed);
    let (refused, there, back) = (count(&proxy.refused), count(&proxy.there), count(&proxy.back));
    println!("served {served}; {refused} refused; {there} bytes there, {back} back");
    Ok(())
}

fn main() -> ExitCode {
    gmp_interop::main("redis_proxy", run)
}
