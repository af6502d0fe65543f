//! Servers that get no stack for one more connection.

use crate::echo::clients::connect;
use crate::echo::server::eventually;
use crate::program::{Program, limit};
use common::example::example;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// With stacks of this size the address space has room for some of them, and for all else that a process maps.
const STACK: &str = "64M";
const ADDRESS_SPACE: u64 = 2 << 30;
const CONNECTIONS: usize = 60;

/// Returns `true` if the server answers, and goes on with the connection. A connection that it closes has an end, or is reset.
#[track_caller]
fn is_served(mut stream: &TcpStream, asks: &[u8]) -> bool {
    let got = stream.write_all(asks).and_then(|()| stream.read(&mut [0; 4 << 10]));
    assert!(!got.as_ref().is_err_and(|broken| broken.kind() == ErrorKind::WouldBlock), "it is not closed");
    matches!(got, Ok(1..))
}

/// Fails when the server ends, or ends a connection that it has served, as it can't have one more goroutine; or when it serves
/// no client afterwards.
#[track_caller]
fn outlives_a_refusal(name: &str, args: &[&str], asks: &[u8]) {
    for procs in ["1", "4"] {
        let mut command = example(name);
        command.args(["--listen", "127.0.0.1:0"]).args(args);
        command.env("GMPMAXPROCS", procs).env("GMPSTACK", STACK);
        limit(&mut command, libc::RLIMIT_AS, ADDRESS_SPACE);
        let (program, addr): (Program, SocketAddr) = Program::server(command, None);
        let streams: Vec<_> = (0..CONNECTIONS).map(|_| connect(addr)).collect();
        let (served, closed): (Vec<_>, Vec<_>) = streams.iter().partition(|stream| is_served(stream, asks));
        assert!(!served.is_empty() && !closed.is_empty(), "{} of {CONNECTIONS} were served", served.len());
        assert!(served.iter().all(|stream| is_served(stream, asks)), "those that were served go on");
        drop(streams);
        eventually("another one is served", || is_served(&connect(addr), asks));
        program.signal(libc::SIGTERM);
        program.end();
    }
}

#[test]
fn the_echo_server_closes_what_gets_no_stack() {
    outlives_a_refusal("echo_server", &[], b"hello");
}

#[test]
fn the_server_of_files_closes_what_gets_no_stack() {
    let args = ["--root", env!("CARGO_MANIFEST_DIR")];
    outlives_a_refusal("static_files", &args, b"HEAD /Cargo.toml HTTP/1.1\r\nHost: test\r\n\r\n");
}
