//! Goroutines that never yield, goroutines that block their threads, and an echo server, in one runtime with two Ps.
//!
//! cargo run --release --example blocking_call
//!
//! an echo server, procs = 2, 4 clients, 1 s each
//!                                   requests        p50        p99
//! alone                               108599     33.0µs    123.0µs
//! beside 2 hogs and 100 sleepers       40487     46.0µs    598.0µs
//! the same, GMPDEBUG=handoff=0             0          -          -
//! 100 × 20 blocking sleeps of 1 ms: 100 threads 27.4ms, marked 25.3ms (0.92), unmarked 47.1ms (1.72)
//!
//! A hog spins for ever. A sleeper calls `std::thread::sleep`, unmarked, for ever. Without hand-off each of them keeps its P,
//! and two are enough to stop all other goroutines: any answers came before they had begun. The status is 1 if the server stood
//! still beside them, or did not stand still without hand-off.

use gmp::Runtime;
use gmp::net::{TcpListener, TcpStream};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const PROCS: usize = 2;
const SLEEPERS: usize = 100;
const CLIENTS: usize = 4;
const TIME: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn runtime() -> io::Result<Runtime> {
    // SAFETY: no goroutine here keeps a thread-bound value across a call that may park.
    unsafe { Runtime::builder().procs(PROCS).build() }
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut bytes = [0; 64];
    loop {
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            n => stream.write_all(&bytes[..n])?,
        }
    }
}

/// Runs on a plain thread: sends a number and waits for it to come back, again and again. Returns how long each round trip
/// took.
fn client(server: SocketAddr) -> io::Result<Vec<Duration>> {
    let mut stream = std::net::TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIME))?;
    let (start, mut took) = (Instant::now(), Vec::new());
    while start.elapsed() < TIME {
        let (sent, question) = (Instant::now(), (took.len() as u64).to_le_bytes());
        stream.write_all(&question)?;
        let mut answer = [0; 8];
        match stream.read_exact(&mut answer) {
            Ok(()) => took.push(sent.elapsed()),
            // There is no server to answer.
            Err(late) if matches!(late.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            Err(other) => return Err(other),
        }
        assert_eq!(question, answer, "the server echoes what it was sent");
    }
    Ok(took)
}

/// The server under load, beside `PROCS` hogs and the sleepers or alone: prints how many requests, and two quantiles in µs.
fn measure(beside: bool) -> io::Result<()> {
    let runtime = runtime()?;
    let over = Arc::new(AtomicBool::new(false));
    let listener = runtime.run(|| TcpListener::bind("127.0.0.1:0"))?;
    let server = listener.local_addr()?;
    runtime.go(move || {
        while let Ok((stream, _)) = listener.accept() {
            let _nodelay = stream.set_nodelay(true);
            gmp::go(move || echo(stream));
        }
    });
    if beside {
        for n in 0..PROCS + SLEEPERS {
            let over = Arc::clone(&over);
            runtime.go(move || {
                while !over.load(Relaxed) {
                    if n < PROCS {
                        std::hint::spin_loop();
                    } else {
                        thread::sleep(MS);
                    }
                }
            });
        }
    }
    let clients: Vec<_> = (0..CLIENTS).map(|_| thread::spawn(move || client(server))).collect();
    let mut took = Vec::new();
    for client in clients {
        took.extend(client.join().expect("a client does not panic")?);
    }
    over.store(true, Relaxed);
    took.sort();
    let at = |percent: usize| took.get(took.len() * percent / 100).map_or(0, Duration::as_micros);
    println!("{} {} {}", took.len(), at(50), at(99));
    Ok(())
}

/// Runs `measure` in a process of its own; prints its row, and returns how many requests there were.
fn row(title: &str, what: &str, debug: &str) -> io::Result<usize> {
    let mut child = Command::new(std::env::current_exe()?);
    let output = child.args(["measure", what]).env("GMPDEBUG", debug).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let fields: Vec<usize> = text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    let [requests, p50, p99] = fields[..] else {
        return Err(io::Error::other(format!("{title}: {}", String::from_utf8_lossy(&output.stderr))));
    };
    let time = |micros: usize| match requests {
        0 => "-".to_owned(),
        _ => format!("{:.1?}", Duration::from_micros(micros as u64)),
    };
    println!("{title:31} {requests:10} {:>10} {:>10}", time(p50), time(p99));
    Ok(requests)
}

/// Returns how long it takes a hundred sleepers to sleep twenty times, all at the same time.
fn sleeps(spawn: impl Fn() -> Box<dyn FnOnce()>) -> Duration {
    let start = Instant::now();
    let all: Vec<_> = (0..SLEEPERS).map(|_| spawn()).collect();
    all.into_iter().for_each(|join| join());
    start.elapsed()
}

fn twenty(sleep: impl Fn()) {
    (0..20).for_each(|_| sleep());
}

fn compare_sleeps() -> io::Result<()> {
    let threads = sleeps(|| {
        let thread = thread::spawn(|| twenty(|| thread::sleep(MS)));
        Box::new(|| thread.join().expect("a sleep does not panic"))
    });
    let goroutines = |sleep: fn()| -> io::Result<Duration> {
        let go = || -> Box<dyn FnOnce()> {
            let sleeper = gmp::go(move || twenty(sleep));
            Box::new(|| sleeper.join().expect("a sleep does not panic"))
        };
        Ok(runtime()?.run(|| sleeps(go)))
    };
    let marked = goroutines(|| gmp::blocking(|| thread::sleep(MS)))?;
    let unmarked = goroutines(|| thread::sleep(MS))?;
    let ratio = |time: Duration| time.as_secs_f64() / threads.as_secs_f64();
    println!(
        "{SLEEPERS} × 20 blocking sleeps of 1 ms: {SLEEPERS} threads {threads:.1?}, marked {marked:.1?} ({:.2}), unmarked \
         {unmarked:.1?} ({:.2})",
        ratio(marked),
        ratio(unmarked)
    );
    Ok(())
}

fn show() -> io::Result<bool> {
    println!("an echo server, procs = {PROCS}, {CLIENTS} clients, {TIME:?} each");
    println!("{:31} {:>10} {:>10} {:>10}", "", "requests", "p50", "p99");
    let alone = row("alone", "alone", "")?;
    let beside = row("beside 2 hogs and 100 sleepers", "beside", "")?;
    let without = row("the same, GMPDEBUG=handoff=0", "beside", "handoff=0")?;
    compare_sleeps()?;
    Ok(alone > 0 && beside > 100 * without)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => show(),
        ["measure", "alone"] => measure(false).map(|()| true),
        ["measure", "beside"] => measure(true).map(|()| true),
        _ => {
            eprintln!("blocking_call: takes no arguments");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("blocking_call: the server should stand still without hand-off, and only then");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("blocking_call: {error}");
            ExitCode::FAILURE
        }
    }
}
