//! An example of ours as a child process that serves until SIGTERM.

use crate::LIMIT;
use common::example::Guard;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// How long an example may take to stop. Within that time it finishes its connections or tells them of the end.
pub const STOP_LIMIT: Duration = Duration::from_secs(1);

/// A running example that has printed where it listens.
pub struct Example {
    child: Guard,
    addr: SocketAddr,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl Example {
    /// Starts the example with this many Ps, and reads the first address of the first line that it prints.
    #[track_caller]
    pub fn start(command: &mut Command, procs: usize) -> Self {
        command.env("GMPMAXPROCS", procs.to_string()).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = Guard(child.unwrap_or_else(|refused| panic!("{command:?}: {refused}")));
        let (stdout, stderr) = (lines(child.0.stdout.take()), lines(child.0.stderr.take()));
        let Ok(first) = stdout.recv_timeout(LIMIT) else {
            // stderr can hold what a crate has printed, and the process can have ended.
            let said: Vec<_> = stderr.try_iter().collect();
            panic!("{command:?} does not say where it listens: {said:?}");
        };
        let addr = first.split([' ', ',', '/']).find_map(|word| word.parse().ok());
        let addr = addr.unwrap_or_else(|| panic!("no address in {first:?}"));
        Example { child, addr, stdout, stderr }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Returns the next line that the example prints.
    #[track_caller]
    pub fn line(&self) -> String {
        self.stdout.recv_timeout(LIMIT).expect("the example prints a line")
    }

    /// Returns the next line on the example's stderr.
    #[track_caller]
    pub fn complaint(&self) -> String {
        self.stderr.recv_timeout(LIMIT).expect("the example says something on stderr")
    }

    /// Connects to the example. Calls on the connection fail after `LIMIT` instead of hanging.
    #[track_caller]
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect_timeout(&self.addr, LIMIT).expect("the example accepts");
        stream.set_read_timeout(Some(LIMIT)).expect("a valid time");
        stream.set_write_timeout(Some(LIMIT)).expect("a valid time");
        stream.set_nodelay(true).expect("a socket");
        stream
    }

    /// Returns how many threads the example has.
    pub fn threads(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/task", self.pid())).map_or(0, Iterator::count)
    }

    /// Returns the CPU time that the example has used, in hundredths of a second.
    pub fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("it runs");
        // The second field is a name in parentheses; utime and stime are the 14th and the 15th.
        let (_, after_name) = stat.rsplit_once(") ").expect("a name in parentheses");
        after_name.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
    }

    /// Sends SIGTERM. `stopped` then checks how the example ends.
    pub fn signal(&self) -> Instant {
        self.signal_by(libc::SIGTERM)
    }

    /// Does the same as `signal` with another signal.
    pub fn signal_by(&self, signal: libc::c_int) -> Instant {
        // SAFETY: our own child, not reaped yet: the number is its own.
        assert_eq!(unsafe { libc::kill(self.pid() as libc::pid_t, signal) }, 0, "it runs");
        Instant::now()
    }

    /// Ends the example by SIGTERM: it must end within `STOP_LIMIT`, with status 0. Returns what it printed and the test has
    /// not read.
    #[track_caller]
    pub fn terminate(self) -> String {
        let at = self.signal();
        self.stopped(at)
    }

    /// Does the same as `terminate` for a signal that was sent already.
    #[track_caller]
    pub fn stopped(mut self, at: Instant) -> String {
        let status = self.child.wait();
        let took = at.elapsed();
        let said: Vec<_> = self.stderr.iter().collect();
        assert_eq!(status.code(), Some(0), "it ended with {status} after {took:?}, and said {said:?}");
        assert!(took < STOP_LIMIT, "the stop took {took:?}; it said {said:?}");
        self.stdout.iter().map(|line| line + "\n").collect()
    }
}

/// Returns the lines of a pipe. A thread reads them, so that the pipe never fills.
fn lines(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (line, lines) = mpsc::channel();
    let pipe = BufReader::new(pipe.expect("piped"));
    thread::spawn(move || pipe.lines().map_while(Result::ok).try_for_each(|text| line.send(text)));
    lines
}
