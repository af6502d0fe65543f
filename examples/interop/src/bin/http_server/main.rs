//! Serves files and a JSON API over HTTP/1.1, in plain blocking code on `httparse` and `serde_json`. Each connection has a
//! goroutine.
//!
//! cargo run --release --bin http_server -- --root .
//!
//! listening on http://127.0.0.1:8080, SIGINT or SIGTERM ends it
//! served 64 connections, 301,172 requests
//!
//! curl http://127.0.0.1:8080/README.md
//! curl -d '{"numbers": [1, 2, 3]}' http://127.0.0.1:8080/api/sum
//!
//! The calls are `/api/time`, `/api/echo` and `/api/sum`. With `--writable`, PUT makes files.

mod api;
mod body;
mod files;
mod input;
mod request;
mod response;
mod server;

use files::Files;
use gmp::Runtime;
use gmp::net::TcpListener;
use gmp::signal::{self, SIGINT, SIGTERM};
use server::{Limits, Server};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

const HELP: &str = "\
A server for files and a JSON API. SIGINT or SIGTERM ends it.

  --listen ADDR   where to listen; default 127.0.0.1:8080, port 0 takes a free one
  --root DIR      the folder whose files it serves; default the current one
  --writable      PUT makes files, of up to 10 MiB
  --idle MS       how long a connection may be without a request; default 60,000
  --head MS       how long the head of a request may take; default 5,000
  --body MS       how long its body may take; default 30,000
  --grace MS      how long requests that are under way are given at the end; default 700
  --debug         adds /api/panic, which panics
  --help          this
";

struct Options {
    help: bool,
    listen: String,
    root: PathBuf,
    writable: bool,
    debug: bool,
    limits: Limits,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let ms = Duration::from_millis;
        let limits = Limits { idle: ms(60_000), head: ms(5_000), body: ms(30_000), grace: ms(700) };
        let (listen, root) = ("127.0.0.1:8080".to_owned(), PathBuf::from("."));
        let mut options = Options { help: false, listen, root, writable: false, debug: false, limits };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} needs a value"));
            let time = |text: String| text.parse().map(ms).map_err(|_| format!("{arg}: {text} is no number"));
            match arg.as_str() {
                "--help" => options.help = true,
                "--writable" => options.writable = true,
                "--debug" => options.debug = true,
                "--listen" => options.listen = value()?,
                "--root" => options.root = value()?.into(),
                "--idle" => options.limits.idle = time(value()?)?,
                "--head" => options.limits.head = time(value()?)?,
                "--body" => options.limits.body = time(value()?)?,
                "--grace" => options.limits.grace = time(value()?)?,
                unknown => return Err(format!("unknown argument {unknown:?}")),
            }
        }
        Ok(options)
    }
}

fn serve(options: &Options) -> io::Result<()> {
    let signals = signal::notify(&[SIGINT, SIGTERM])?;
    // SAFETY: the goroutines of these files keep nothing of a thread across a call that parks.
    let runtime = unsafe { Runtime::builder().build()? };
    let files = Files::new(&options.root, options.writable)?;
    let listener = TcpListener::bind(&options.listen)?;
    println!("listening on http://{}, SIGINT or SIGTERM ends it", listener.local_addr()?);
    let server = Server::new(listener, files, options.limits, options.debug);
    let accepting = runtime.go({
        let server = Arc::clone(&server);
        move || server.serve()
    });

    let _which = signals.recv();
    // A second signal kills the process.
    drop(signals);
    let (connections, requests, cut) = server.stop();
    accepting.join().map_err(io::Error::other)?;
    println!("served {connections} connections, {requests} requests; {cut} connections were cut off");
    Ok(())
}

fn main() -> ExitCode {
    let args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    let done = match Options::parse(args) {
        Ok(options) if options.help => {
            print!("{HELP}");
            Ok(())
        }
        Ok(options) => serve(&options),
        Err(wrong) => {
            eprintln!("http_server: {wrong}; --help tells which there are");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("http_server: {wrong}");
            ExitCode::FAILURE
        }
    }
}
