//! Load for an echo server from another process: a goroutine for each connection.
//!
//! cargo run --release --example echo_server        # in one terminal
//! cargo run --release --example echo_client        # in another
//!
//!   1.0 s  222,287 requests/s
//!   2.0 s  249,035 requests/s
//!   3.0 s  245,386 requests/s
//! 716,970 requests in 3.00s, every byte right
//! 238,813 requests/s
//! latency  p50 247.8µs  p99 569.3µs  p99.9 2.1ms  max 14.4ms
//!
//!    4.7µs │▏                                              0.01 %
//!    5.6µs │█▌                                             2.31 %
//!    6.8µs ┊▏                                              0.04 %
//!     10µs │▎                                              0.25 %
//!     12µs │▌                                              0.67 %
//!     15µs ┊▏                                              0.08 %
//!    120µs │▏                                              0.18 %
//!    150µs ┊▏                                              0.12 %
//!    220µs │████████████████████████████████████████████  72.82 %  p50
//!    270µs │███████▊                                      12.74 %
//!    330µs │██▋                                            4.26 %
//!    390µs │██▋                                            4.16 %
//!    470µs │▉                                              1.30 %
//!    560µs │▍                                              0.59 %  p99
//!    680µs │▏                                              0.16 %
//!    820µs ┊▎                                              0.31 %  p99.9
//!
//! procs 2, threads 3, CPU time 1.58s (user 306.23ms, system 1.27s)

#[path = "echo_server/histogram.rs"]
mod histogram;
#[path = "echo_server/load.rs"]
mod load;

use gmp::Runtime;
use load::{Load, value};
use std::io;
use std::process::ExitCode;

const HELP: &str = "\
Load for an echo server: messages that wait for their echo, every byte of which is looked at.

echo_client [--connect ADDR] [--connections N] [--size BYTES] [--seconds S] [--procs N]

  --connect ADDR    the server; default 127.0.0.1:7777
  --connections N   default 64
  --size BYTES      of a message; default 64
  --seconds S       default 3
  --procs N         how many goroutines may run at the same time; default GMPMAXPROCS or all processors
  --help            this

Status: 0; 1 when a connection was refused or broke, or a byte was wrong; 2 for a wrong argument.
";

struct Options {
    help: bool,
    connect: String,
    procs: Option<usize>,
    load: Load,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let connect = "127.0.0.1:7777".to_owned();
        let mut options = Options { help: false, connect, procs: None, load: Load::default() };
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--help" | "-h" => options.help = true,
                "--connect" => options.connect = value("--connect", &mut args)?,
                "--procs" => options.procs = Some(value("--procs", &mut args)?),
                flag if options.load.take_flag(flag, &mut args)? => {}
                unknown => return Err(format!("unknown argument {unknown:?}")),
            }
        }
        Ok(options)
    }
}

fn drive(options: &Options) -> io::Result<()> {
    let mut builder = Runtime::builder();
    if let Some(procs) = options.procs {
        builder = builder.procs(procs);
    }
    // SAFETY: the goroutines of these files keep nothing of a thread across a call that parks.
    let runtime = unsafe { builder.build()? };
    println!("{}", options.load.run(&runtime, &options.connect)?);
    Ok(())
}

fn main() -> ExitCode {
    let args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("echo_client: {wrong}; --help tells which there are");
            return ExitCode::from(2);
        }
    };
    if options.help {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    match drive(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("echo_client: {wrong}");
            ExitCode::FAILURE
        }
    }
}
