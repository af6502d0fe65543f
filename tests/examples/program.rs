//! An example that keeps running, as a child process: what it says, where it listens, and its end.

use common::example::{Guard, LIMIT};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

fn lines(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (line, lines) = mpsc::channel();
    let pipe = BufReader::new(pipe.expect("piped"));
    thread::spawn(move || pipe.lines().map_while(Result::ok).try_for_each(|text| line.send(text)));
    lines
}

/// Limits the process that `command` starts to `most` of `resource`.
pub fn limit(command: &mut Command, resource: libc::__rlimit_resource_t, most: u64) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: between fork and exec the closure makes one system call, and reads errno if it failed.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(resource, &raw const limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
}

pub struct Program {
    pub child: Guard,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl Program {
    pub fn start(command: &mut Command) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = Guard(child.expect("the example starts"));
        let (stdout, stderr) = (lines(child.0.stdout.take()), lines(child.0.stderr.take()));
        Program { child, stdout, stderr }
    }

    /// Starts a server, with at most `descriptors` descriptors if a number is given, and returns it with its address.
    pub fn server(mut command: Command, descriptors: Option<u64>) -> (Self, SocketAddr) {
        if let Some(most) = descriptors {
            limit(&mut command, libc::RLIMIT_NOFILE, most);
        }
        let program = Program::start(&mut command);
        let addr = program.listening();
        (program, addr)
    }

    /// Returns the next line on the program's stdout.
    #[track_caller]
    pub fn line(&self) -> String {
        self.stdout.recv_timeout(LIMIT).expect("the example says something")
    }

    /// Returns the next line on the program's stderr.
    #[track_caller]
    pub fn complaint(&self) -> String {
        self.stderr.recv_timeout(LIMIT).expect("the example says something on stderr")
    }

    /// Returns the address in the program's next line.
    #[track_caller]
    pub fn listening(&self) -> SocketAddr {
        let line = self.line();
        let addr = line.split([' ', ',']).find_map(|word| word.parse().ok());
        addr.unwrap_or_else(|| panic!("no address in {line:?}"))
    }

    pub fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// Returns how many sockets the program has open. Its threads have descriptors of their own, which come and go with them.
    pub fn sockets(&self) -> usize {
        let open = fs::read_dir(format!("/proc/{}/fd", self.id())).expect("it runs");
        let leads_to = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        leads_to.filter(|path| path.to_string_lossy().starts_with("socket:")).count()
    }

    #[track_caller]
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: our own child, not reaped yet.
        assert_eq!(unsafe { libc::kill(self.id() as libc::pid_t, signal) }, 0, "it runs");
    }

    /// Waits for the program's end, asserts that it succeeded, and returns the lines of its stdout that are left.
    #[track_caller]
    pub fn end(mut self) -> Vec<String> {
        let status = self.child.wait();
        let complaints: Vec<_> = self.stderr.iter().collect();
        assert_eq!(status.code(), Some(0), "it ended with {status}, and said {complaints:?}");
        self.stdout.iter().collect()
    }
}
