//! The load: connections that each send a message, wait for its echo, check every byte, and send the next.

use crate::histogram::Histogram;
use gmp::Runtime;
use gmp::net::TcpStream;
use std::fmt;
use std::io::{self, IsTerminal, Read, Write};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often the progress line is drawn.
const TICK: Duration = Duration::from_millis(100);
/// How long the last answers may take when the time is over.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// A client writes a whole message before it reads: more than this might not fit into the sockets' buffers, and
/// then each side would wait for the other to read.
const MAX_SIZE: usize = 64 << 10;

#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    pub connections: usize,
    pub size: usize,
    pub time: Duration,
}

impl Default for Load {
    fn default() -> Self {
        Load { connections: 64, size: 64, time: Duration::from_secs(3) }
    }
}

/// The state that the clients share with the thread that watches them.
struct Shared {
    stop: AtomicBool,
    answered: Box<[Answered]>,
}

/// Written by one client. On a cache line of its own: otherwise the clients would slow each other down.
#[repr(align(128))]
#[derive(Default)]
struct Answered(AtomicU64);

impl Load {
    /// Takes `flag` and its value from the command line, if it is a flag of the load.
    pub fn take_flag(&mut self, flag: &str, args: &mut impl Iterator<Item = String>) -> Result<bool, String> {
        match flag {
            "--connections" => self.connections = in_range(flag, value(flag, args)?, 1, 1_000_000)?,
            "--size" => self.size = in_range(flag, value(flag, args)?, 1, MAX_SIZE)?,
            "--seconds" => self.time = Duration::from_secs_f64(in_range(flag, value(flag, args)?, 0.1, 1e6)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Connects to `addr`, talks for the set time, and returns a report. Blocks the calling thread, which must be a plain one.
    ///
    /// # Errors
    /// A connection that was refused or broke, a missing answer, or a wrong byte.
    pub fn run(&self, runtime: &Runtime, addr: &str) -> io::Result<Report> {
        let cpu = cpu_time();
        let connecting: Vec<_> = (0..self.connections)
            .map(|_| {
                let addr = addr.to_owned();
                runtime.go(move || TcpStream::connect(&addr))
            })
            .collect();
        let mut streams = Vec::new();
        for connecting in connecting {
            let stream = connecting.join().map_err(io::Error::other)?;
            streams
                .push(stream.map_err(|refused| explained(&refused, &format!("cannot connect to {addr}")))?);
        }

        let answered = (0..self.connections).map(|_| Answered::default()).collect();
        let shared = Arc::new(Shared { stop: AtomicBool::new(false), answered });
        let (outcome, outcomes) = mpsc::channel();
        let start = Instant::now();
        for (connection, stream) in streams.into_iter().enumerate() {
            let (size, shared, outcome) = (self.size, Arc::clone(&shared), outcome.clone());
            let client = move || {
                let conversation = converse(&stream, connection, size, &shared);
                outcome.send(conversation).expect("who listens for it stays");
            };
            drop(runtime.go(client));
        }
        drop(outcome);

        let latency = self.watch(&shared, &outcomes, start)?;
        let [user, system] = cpu_time();
        Ok(Report {
            latency,
            took: start.elapsed(),
            procs: runtime.procs(),
            threads: std::fs::read_dir("/proc/self/task")?.count(),
            cpu: [user - cpu[0], system - cpu[1]],
        })
    }

    /// Shows the progress until every client has ended.
    fn watch(
        &self,
        shared: &Shared,
        outcomes: &mpsc::Receiver<io::Result<Histogram>>,
        start: Instant,
    ) -> io::Result<Histogram> {
        let mut latency = Histogram::new();
        let mut failed = None;
        let mut ended = 0;
        let mut progress = Progress::new(start);
        let mut tick = start + TICK;
        loop {
            match outcomes.recv_timeout(tick.saturating_duration_since(Instant::now())) {
                Ok(outcome) => {
                    ended += 1;
                    match outcome {
                        Ok(client) => latency.merge(&client),
                        Err(wrong) => {
                            failed.get_or_insert(wrong);
                            shared.stop.store(true, Relaxed);
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    progress.show(shared.answered.iter().map(|answered| answered.0.load(Relaxed)).sum());
                    tick += TICK;
                    if start.elapsed() >= self.time {
                        shared.stop.store(true, Relaxed);
                    }
                    if start.elapsed() >= self.time + ANSWER_LIMIT {
                        break;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        progress.wipe();
        match failed {
            Some(wrong) => Err(wrong),
            None if ended < self.connections => {
                let silent = self.connections - ended;
                Err(io::Error::other(format!(
                    "{silent} connections were not answered within {ANSWER_LIMIT:?}"
                )))
            }
            None => Ok(latency),
        }
    }
}

/// One connection's conversation. Runs in a goroutine of its own.
fn converse(
    mut stream: &TcpStream,
    connection: usize,
    size: usize,
    shared: &Shared,
) -> io::Result<Histogram> {
    stream.set_nodelay(true)?;
    let mut latency = Histogram::new();
    let (mut sent, mut got) = (vec![0; size], vec![0; size]);
    for number in 0.. {
        if shared.stop.load(Relaxed) {
            break;
        }
        let at = || format!("connection {connection}, message {number}");
        write_content(&mut sent, connection, number);

        let start = Instant::now();
        let echoed = stream.write_all(&sent).and_then(|()| stream.read_exact(&mut got));
        latency.record(start.elapsed());

        echoed.map_err(|broken| explained(&broken, &at()))?;
        if let Some(wrong) = (0..size).find(|&byte| sent[byte] != got[byte]) {
            let (sent, got) = (sent[wrong], got[wrong]);
            let text = format!("{}: byte {wrong} is wrong: sent {sent:#04x}, got {got:#04x}", at());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        shared.answered[connection].0.store(number + 1, Relaxed);
    }
    Ok(latency)
}

/// Writes bytes that no other message, of this connection or another, has in these places, except by chance.
fn write_content(message: &mut [u8], connection: usize, number: u64) {
    let mut word = (connection as u64) << 40 ^ number;
    for part in message.chunks_mut(8) {
        // Steele and Vigna's splitmix64.
        word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        part.copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes()[..part.len()]);
    }
}

/// The result of a load.
pub struct Report {
    pub latency: Histogram,
    took: Duration,
    procs: usize,
    threads: usize,
    cpu: [Duration; 2],
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { latency, took, procs, threads, cpu: [user, system] } = self;
        let requests = latency.total();
        let rate = (requests as f64 / took.as_secs_f64()) as u64;
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| latency.quantile(share));
        writeln!(f, "{} requests in {took:.2?}, every byte right", grouped(requests))?;
        writeln!(f, "{} requests/s", grouped(rate))?;
        writeln!(f, "latency  p50 {p50:.1?}  p99 {p99:.1?}  p99.9 {p999:.1?}  max {:.1?}", latency.max())?;
        writeln!(f, "\n{latency}")?;
        let cpu = *user + *system;
        write!(
            f,
            "procs {procs}, threads {threads}, CPU time {cpu:.2?} (user {user:.2?}, system {system:.2?})"
        )
    }
}

/// The progress line: redrawn in place on a terminal, printed once a second elsewhere.
struct Progress {
    on_terminal: bool,
    start: Instant,
    last: (Instant, u64),
    rates: Vec<u64>,
}

impl Progress {
    fn new(start: Instant) -> Self {
        Progress { on_terminal: io::stdout().is_terminal(), start, last: (start, 0), rates: Vec::new() }
    }

    fn show(&mut self, answered: u64) {
        let now = Instant::now();
        let (then, before) = self.last;
        if !self.on_terminal && now - then < 10 * TICK - TICK / 2 {
            return;
        }
        self.last = (now, answered);
        let rate = ((answered - before) as f64 / (now - then).as_secs_f64()) as u64;
        let elapsed = (now - self.start).as_secs_f64();
        if !self.on_terminal {
            println!("{elapsed:5.1} s  {} requests/s", grouped(rate));
            return;
        }
        self.rates.push(rate);
        let shown = &self.rates[self.rates.len().saturating_sub(40)..];
        let most = shown.iter().max().copied().unwrap_or(0).max(1);
        let line: String =
            shown.iter().filter_map(|rate| "▁▂▃▄▅▆▇█".chars().nth((rate * 7 / most) as usize)).collect();
        print!("\r\x1b[K{elapsed:5.1} s  {line}  {} requests/s", grouped(rate));
        let _it_is_only_a_show = io::stdout().flush();
    }

    fn wipe(&self) {
        if self.on_terminal {
            print!("\r\x1b[K");
        }
    }
}

/// Returns the CPU time that the process has used so far, in user mode and in the kernel.
fn cpu_time() -> [Duration; 2] {
    // SAFETY: all zeros is a valid `rusage`, and the call writes only to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    [usage.ru_utime, usage.ru_stime].map(|time| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000))
}

/// 1,234,567
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns `error` with the attempt in front.
pub fn explained(error: &io::Error, attempt: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{attempt}: {error}"))
}

/// Returns the value that follows `flag` on the command line.
pub fn value<T: FromStr>(flag: &str, args: &mut impl Iterator<Item = String>) -> Result<T, String>
where
    T::Err: fmt::Display,
{
    let text = args.next().ok_or_else(|| format!("{flag} needs a value"))?;
    text.parse().map_err(|wrong| format!("{flag} {text}: {wrong}"))
}

fn in_range<T: PartialOrd + fmt::Display>(flag: &str, value: T, least: T, most: T) -> Result<T, String> {
    if (&least..=&most).contains(&&value) {
        Ok(value)
    } else {
        Err(format!("{flag} {value}: not within {least}..={most}"))
    }
}
