//! A server of others, on a free port, with a folder of its own.

use crate::{LIMIT, Scratch};
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a peer has to end its own children before the harness kills all of them.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often the harness starts a peer that ends at once. Another process can have taken the port.
const STARTS: usize = 3;

/// A server of others.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    addr: SocketAddr,
    scratch: Scratch,
    end_by: libc::c_int,
}

impl Peer {
    /// Starts the command that `command` makes for an empty folder and a free port of 127.0.0.1, in that folder, and waits
    /// until the port answers. The server must stay in the foreground. Panics with the server's output if the port never
    /// answers.
    #[track_caller]
    pub fn start(command: impl Fn(&Scratch, SocketAddr) -> Command) -> Self {
        for _ in 1..STARTS {
            if let Ok(peer) = Self::try_start(&command) {
                return peer;
            }
        }
        Self::try_start(&command).unwrap_or_else(|said| panic!("the peer ended: {said}"))
    }

    /// Sets the signal that ends the server, for a server that waits for its clients after SIGTERM. The server can have several
    /// processes, so the harness sends SIGKILL late.
    pub fn ended_by(mut self, signal: libc::c_int) -> Self {
        self.end_by = signal;
        self
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns what the server has printed up to now, on stdout and stderr.
    pub fn said(&self) -> String {
        said(&self.scratch)
    }

    fn try_start(command: impl Fn(&Scratch, SocketAddr) -> Command) -> Result<Self, String> {
        let scratch = Scratch::new();
        let addr = free_addr();
        let mut command = command(&scratch, addr);
        let output = File::create(scratch.join("said")).expect("the folder is ours");
        let child = command
            .current_dir(scratch.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a file"))
            .stderr(output)
            .spawn()
            .unwrap_or_else(|refused| panic!("cannot start {:?}: {refused}", command.get_program()));
        let mut peer = Peer { child, addr, scratch, end_by: libc::SIGTERM };
        let start = Instant::now();
        loop {
            let answers = TcpStream::connect_timeout(&addr, LIMIT).is_ok();
            // This check comes second: the process that answers can be another one that took the port.
            if let Some(status) = peer.child.try_wait().expect("it is our child") {
                return Err(format!("{status}: {}", peer.said()));
            }
            if answers {
                return Ok(peer);
            }
            assert!(start.elapsed() < LIMIT, "{:?} does not answer: {}", command.get_program(), peer.said());
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Peer {
    /// Ends the server and its child processes: first the server by its signal, then the whole group.
    fn drop(&mut self) {
        let pid = self.child.id() as libc::pid_t;
        let start = Instant::now();
        // SAFETY: our own child, not reaped yet: the number is its own.
        unsafe { libc::kill(pid, self.end_by) };
        while start.elapsed() < PATIENCE && self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            thread::sleep(Duration::from_millis(2));
        }
        // SAFETY: this is the child's group, which has the child's number. The kernel does not give the number away as long as
        // a member lives.
        unsafe { libc::kill(-pid, libc::SIGKILL) };
        let _reaped = self.child.wait();
    }
}

/// Returns an address of 127.0.0.1 whose port no process uses at this moment.
fn free_addr() -> SocketAddr {
    let taken = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    taken.expect("a port is free")
}

fn said(scratch: &Scratch) -> String {
    let bytes = fs::read(scratch.join("said")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
