//! Calls crates that open std's own sockets in goroutines, and shows how many threads that takes and how it affects the other
//! goroutines.
//!
//! cargo run --release --bin std_calls -- --redis 127.0.0.1:6379 --calls 100 --rounds 20 BLPOP nothing 0.1
//!
//! 2000 of 2000 done, 105 threads at most
//! a sleep of 5 ms beside them, 388 times: p50 5.07 ms, p99 5.31 ms, most 5.9 ms
//!
//! Only the crate itself ends such a call: the goroutine notices a context that is done, or a deadline, after the call.

use gmp::Runtime;
use gmp::time::sleep;
use gmp_interop::{Args, main as run_main};
use redis::ConnectionLike;
use std::error::Error;
use std::io;
use std::net::ToSocketAddrs;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const HELP: &str = "\
std_calls (--redis ADDR WORD .. | --postgres CONFIG SQL | --names NAME) [--calls COUNT] [--rounds COUNT] [--limit MS]
  Makes the same call in many goroutines at once, each on a connection of its own.
  --redis     a command of Redis, by the crate redis
  --postgres  a query, by the crate postgres
  --names     the addresses of a name, by std
  --calls     how many goroutines (200)
  --rounds    how often each calls (1)
  --limit     how long 99 of 100 sleeps of 5 ms beside them may take: a status of 1 when they take longer
";
const NAP: Duration = Duration::from_millis(5);

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

enum Call {
    Redis(String, Vec<String>),
    Postgres(String, String),
    Names(String),
}

impl Call {
    /// Opens a connection and makes calls on it.
    fn make(&self, rounds: usize) -> Result<usize> {
        match self {
            Call::Redis(addr, words) => {
                let mut connection = redis::Client::open(format!("redis://{addr}/"))?.get_connection()?;
                let mut command = redis::Cmd::new();
                command.arg(words);
                (0..rounds).try_for_each(|_| connection.req_command(&command).map(drop))?;
            }
            Call::Postgres(config, sql) => {
                let mut client = postgres::Client::connect(config, postgres::NoTls)?;
                (0..rounds).try_for_each(|_| client.simple_query(sql).map(drop))?;
            }
            Call::Names(name) => {
                for _ in 0..rounds {
                    if (name.as_str(), 80).to_socket_addrs()?.next().is_none() {
                        return Err("a name without an address".into());
                    }
                }
            }
        }
        Ok(rounds)
    }
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// Sleeps again and again until `over` is set. Returns how long each sleep took, in order, and the most threads that there
/// were.
fn naps(over: &AtomicBool) -> (Vec<Duration>, usize) {
    let (mut took, mut most) = (Vec::new(), 0);
    while !over.load(Relaxed) {
        let start = Instant::now();
        sleep(NAP);
        took.push(start.elapsed());
        most = most.max(threads());
    }
    took.sort();
    (took, most)
}

fn run() -> io::Result<()> {
    let mut args = Args::new(HELP);
    let redis = args.value::<String>("--redis");
    let postgres = args.value::<String>("--postgres");
    let names = args.value::<String>("--names");
    let calls = args.value("--calls").unwrap_or(200);
    let rounds = args.value("--rounds").unwrap_or(1);
    let limit = args.value("--limit").map(Duration::from_millis);
    let rest = args.rest();
    args.finish();
    let call = match (redis, postgres, names) {
        (Some(addr), None, None) => Call::Redis(addr, rest),
        (None, Some(config), None) => Call::Postgres(config, rest.join(" ")),
        (None, None, Some(name)) => Call::Names(name),
        _ => return Err(io::Error::other("one of --redis, --postgres and --names is needed")),
    };
    // SAFETY: a goroutine stays on one thread during a call that blocks, and each call here ends before the next begins, so the
    // thread's state is the crates' own during a call. docs/crates.md says how that was checked.
    let runtime = unsafe { Runtime::builder().build()? };
    let (call, over) = (Arc::new(call), Arc::new(AtomicBool::new(false)));
    let napping = runtime.go({
        let over = Arc::clone(&over);
        move || naps(&over)
    });
    let start = |_| {
        let call = Arc::clone(&call);
        runtime.go(move || call.make(rounds))
    };
    let calling: Vec<_> = (0..calls).map(start).collect();
    let mut done = 0;
    for call in calling {
        match call.join().map_err(io::Error::other)? {
            Ok(rounds) => done += rounds,
            Err(refused) => eprintln!("{refused}"),
        }
    }
    over.store(true, Relaxed);
    let (took, most) = napping.join().map_err(io::Error::other)?;
    let at = |share: usize| took[(took.len() * share / 100).min(took.len() - 1)];
    println!("{done} of {} done, {most} threads at most", calls * rounds);
    let (count, p50, p99, longest) = (took.len(), at(50), at(99), at(100));
    println!("a sleep of 5 ms beside them, {count} times: p50 {p50:.2?}, p99 {p99:.2?}, most {longest:.2?}");
    match limit {
        Some(limit) if p99 > limit => Err(io::Error::other(format!("p99 is more than {limit:?}"))),
        _ => Ok(()),
    }
}

fn main() -> ExitCode {
    run_main("std_calls", run)
}
