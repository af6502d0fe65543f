//! The server example as a child process, and what the kernel tells of it.

use super::clients::connect;
use crate::program::Program;
use common::descriptors::allow_descriptors;
use common::example::{LIMIT, example};
use std::ffi::OsStr;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// Descriptors that the largest test needs, in this process and in the server.
const DESCRIPTORS: u64 = 2048;

/// What the server says at its end.
#[derive(Debug, PartialEq)]
pub struct Totals {
    pub connections: u64,
    pub messages: u64,
    pub bytes: u64,
}

/// What the kernel says about the server.
#[derive(Copy, Clone, Debug)]
pub struct Activity {
    /// Hundredths of a second on a processor.
    pub ticks: u64,
    /// How often one of the server's threads went to sleep.
    pub sleeps: u64,
}

/// The server, listening on a free port of its own.
pub struct Server {
    program: Program,
    addr: SocketAddr,
}

impl Server {
    /// Starts the server with this many Ps.
    pub fn start(procs: usize) -> Self {
        Self::start_with(procs, &[] as &[&str], None)
    }

    /// Starts the server with more arguments, and at most this many descriptors.
    pub fn start_with(procs: usize, args: &[impl AsRef<OsStr>], descriptors: Option<u64>) -> Self {
        allow_descriptors(DESCRIPTORS);
        let mut command = example("echo_server");
        command.args(["--listen", "127.0.0.1:0"]).args(args).env("GMPMAXPROCS", procs.to_string());
        let (program, addr) = Program::server(command, descriptors);
        Server { program, addr }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn connect(&self) -> TcpStream {
        connect(self.addr)
    }

    /// Returns the next line on the server's stderr.
    pub fn complaint(&self) -> String {
        self.program.complaint()
    }

    fn proc(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.program.id()))
    }

    /// Returns how many sockets the server has open.
    pub fn sockets(&self) -> usize {
        self.program.sockets()
    }

    pub fn activity(&self) -> Activity {
        let stat = fs::read_to_string(self.proc("stat")).expect("it runs");
        // The second field is a name in parentheses; utime and stime are the 14th and the 15th.
        let (_, after_name) = stat.rsplit_once(") ").expect("a name in parentheses");
        let ticks =
            after_name.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum();
        let sleeps = fs::read_dir(self.proc("task"))
            .expect("it runs")
            .filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok())
            .filter_map(|status| {
                status.split_once("\nvoluntary_ctxt_switches:")?.1.lines().next()?.trim().parse::<u64>().ok()
            })
            .sum();
        Activity { ticks, sleeps }
    }

    pub fn signal(&self, signal: libc::c_int) {
        self.program.signal(signal);
    }

    /// Ends the server by SIGINT.
    pub fn stop(self) -> Totals {
        self.signal(libc::SIGINT);
        self.end()
    }

    /// Waits for the server's end, and asserts that it succeeded.
    pub fn end(self) -> Totals {
        let said = self.program.end();
        let line = said.iter().find(|line| line.starts_with("served")).expect("it tells its totals");
        let mut numbers = line.split(' ').filter_map(|word| word.replace(',', "").parse().ok());
        let mut next = || numbers.next().unwrap_or_else(|| panic!("three numbers in {line:?}"));
        Totals { connections: next(), messages: next(), bytes: next() }
    }
}

/// Polls until `done` returns `true`: there is no event to wait for.
#[track_caller]
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
