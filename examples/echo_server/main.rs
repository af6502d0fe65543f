//! An echo server in plain blocking code (`server.rs`): a goroutine for each connection.
//!
//! cargo run --release --example echo_server -- --demo
//!
//! starts the server on a free port, drives it for three seconds from 64 connections of its own (`load.rs`), and checks every
//! byte that comes back:
//!
//! 64 connections to 127.0.0.1:43217, each sends 64 bytes and waits for them to come back
//!   1.0 s  245,325 requests/s
//!   2.0 s  258,495 requests/s
//!   3.0 s  254,732 requests/s
//! 758,644 requests in 3.00s, every byte right
//! 252,776 requests/s
//! latency  p50 238.6µs  p99 337.9µs  p99.9 4.3ms  max 16.3ms
//!
//!     10µs │▍                                              0.44 %
//!     11µs │███▏                                           4.17 %
//!     12µs ┊▎                                              0.24 %
//!    220µs │████████████████████████████████████████████  59.66 %  p50
//!    240µs │██████████████▌                               19.53 %
//!    270µs │████████▉                                     11.95 %
//!    300µs │██▏                                            2.82 %
//!    330µs │▍                                              0.48 %  p99
//!    360µs │▏                                              0.17 %
//!    390µs ┊▎                                              0.21 %
//!    3.9ms │▎                                              0.26 %  p99.9
//!    4.3ms ┊▏                                              0.06 %
//!
//! procs 2, threads 4, CPU time 3.40s (user 615.64ms, system 2.79s)
//!
//! cargo run --release --example echo_server
//!
//! serves until Ctrl-C, and then prints what it did:
//!
//! listening on 127.0.0.1:7777, Ctrl-C ends it
//! served 192 connections, 2,107,980 messages, 134,910,720 bytes
//!
//! `echo_client` drives it from another process. `gmp::migration` says what a goroutine must not do.

mod histogram;
mod load;
mod server;

use gmp::Runtime;
use gmp::net::TcpListener;
use gmp::signal::{self, SIGINT, SIGTERM};
use load::{Load, explained, grouped, value};
use server::Server;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

const HELP: &str = "\
An echo server on goroutines. Ctrl-C ends it.

echo_server [--listen ADDR] [--procs N] [--corrupt]
echo_server --demo [--connections N] [--size BYTES] [--seconds S] [..]

  --listen ADDR     where to listen; default 127.0.0.1:7777, port 0 takes a free one
  --procs N         how many goroutines may run at the same time; default GMPMAXPROCS or all processors
  --demo            drives itself on a free port, and tells how fast it was
  --connections N   of the demo; default 64
  --size BYTES      of the demo's messages; default 64
  --seconds S       of the demo; default 3
  --corrupt         the server flips one bit of the first message, to see the clients' check fail
  --help            this

Status: 0; 1 when the address can't be had, or the demo found a wrong byte; 2 for a wrong argument.
";

/// How long open connections get at the end, before and after they are cut off.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Options {
    help: bool,
    demo: bool,
    corrupt: bool,
    listen: Option<String>,
    procs: Option<usize>,
    load: Load,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Options::default();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--help" | "-h" => options.help = true,
                "--demo" => options.demo = true,
                "--corrupt" => options.corrupt = true,
                "--listen" => options.listen = Some(value("--listen", &mut args)?),
                "--procs" => options.procs = Some(value("--procs", &mut args)?),
                flag if options.load.take_flag(flag, &mut args)? => {}
                unknown => return Err(format!("unknown argument {unknown:?}")),
            }
        }
        if !options.demo && options.load != Load::default() {
            return Err("--connections, --size and --seconds belong to --demo".to_owned());
        }
        Ok(options)
    }

    fn listen(&self, default: &str) -> io::Result<TcpListener> {
        let addr = self.listen.as_deref().unwrap_or(default);
        TcpListener::bind(addr).map_err(|refused| explained(&refused, &format!("cannot listen on {addr}")))
    }

    fn runtime(&self) -> io::Result<Runtime> {
        let mut builder = Runtime::builder();
        if let Some(procs) = self.procs {
            builder = builder.procs(procs);
        }
        // SAFETY: the goroutines of these files keep nothing of a thread across a call that parks.
        unsafe { builder.build() }
    }
}

/// Serves until Ctrl-C, or `kill`.
fn serve(options: &Options) -> io::Result<()> {
    let signals = signal::notify(&[SIGINT, SIGTERM])?;
    let runtime = options.runtime()?;
    let listener = options.listen("127.0.0.1:7777")?;
    println!("listening on {}, Ctrl-C ends it", listener.local_addr()?);
    let server = Server::new(listener, options.corrupt);
    let accepting = runtime.go({
        let server = Arc::clone(&server);
        move || server.serve()
    });

    signals.recv().map_err(io::Error::other)?;
    // A second Ctrl-C does not wait for the connections.
    drop(signals);
    let (totals, left) = server.close(CLOSE_LIMIT);
    accepting.join().map_err(io::Error::other)?;
    println!(
        "served {} connections, {} messages, {} bytes",
        grouped(totals.connections),
        grouped(totals.messages),
        grouped(totals.bytes)
    );
    match left {
        0 => Ok(()),
        left => Err(io::Error::other(format!("{left} connections did not end"))),
    }
}

/// Server and clients in one process.
fn demo(options: &Options) -> io::Result<()> {
    let runtime = options.runtime()?;
    let listener = options.listen("127.0.0.1:0")?;
    let addr = listener.local_addr()?.to_string();
    let Load { connections, size, .. } = options.load;
    println!("{connections} connections to {addr}, each sends {size} bytes and waits for them to come back");
    let server = Server::new(listener, options.corrupt);
    let accepting = runtime.go({
        let server = Arc::clone(&server);
        move || server.serve()
    });

    let report = options.load.run(&runtime, &addr)?;
    println!("{report}");

    let (totals, _) = server.close(CLOSE_LIMIT);
    accepting.join().map_err(io::Error::other)?;
    let sent = report.latency.total() * size as u64;
    if totals.bytes != sent {
        return Err(io::Error::other(format!("{sent} bytes were sent, and the server saw {}", totals.bytes)));
    }
    Ok(())
}

fn main() -> ExitCode {
    let args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    let done = match Options::parse(args) {
        Ok(options) if options.help => {
            print!("{HELP}");
            Ok(())
        }
        Ok(options) if options.demo => demo(&options),
        Ok(options) => serve(&options),
        Err(wrong) => {
            eprintln!("echo_server: {wrong}; --help tells which there are");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("echo_server: {wrong}");
            ExitCode::FAILURE
        }
    }
}
