//! A server for the files below a folder, over HTTP/1.1, in blocking code and without other crates than gmp.
//!
//! cargo run --release --example static_files -- --root target/doc
//!
//! listening on 127.0.0.1:8080, Ctrl-C ends it
//! served 41 requests on 6 connections, at most 6 at once, 0 cut off
//!
//! What it knows: GET and HEAD, kept connections, pipelined requests, one range of bytes. `http.rs` reads the head of a request
//! and answers it; `files.rs` finds the file, and nothing outside the folder: not by `..`, not percent-encoded, and not by a
//! symbolic link.
//!
//! How it ends: SIGINT or SIGTERM ends the context `stop`, under which the accept loop waits, and each connection that has no
//! request in hand. The other connections answer their requests, and end. The context `cut`, under which all of a connection
//! runs, cuts off those that have not ended after a while.

mod files;
mod http;

use files::Root;
use gmp::Runtime;
use gmp::context::{self, Cancel, Context};
use gmp::net::{TcpListener, TcpStream};
use gmp::signal::{SIGINT, SIGTERM};
use gmp::sync::{OwnedSemaphorePermit, Semaphore, WaitGroup};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

const HELP: &str = "\
Serves the files below a folder over HTTP/1.1. Ctrl-C ends it.

static_files [--root DIR] [--listen ADDR] [--connections N] [--idle-ms MS] [--grace-ms MS]

  --root DIR        default the working directory
  --listen ADDR     default 127.0.0.1:8080, port 0 takes a free one
  --connections N   at once; more wait until one ends; default 1000
  --idle-ms MS      how long a client may take for a request, and to take a part of an answer; default 10000
  --grace-ms MS     how long the stop waits for answers that are under way; default 600
  --help            this

Status: 0; 1 when the folder or the address can't be had; 2 for a wrong argument.
";

/// How long the server waits for room in a full table of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

struct Options {
    help: bool,
    root: PathBuf,
    listen: String,
    connections: usize,
    idle: Duration,
    grace: Duration,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Options {
            help: false,
            root: PathBuf::from("."),
            listen: "127.0.0.1:8080".to_owned(),
            connections: 1000,
            idle: Duration::from_secs(10),
            grace: Duration::from_millis(600),
        };
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or(format!("{flag}: a value is missing"));
            match flag.as_str() {
                "--help" | "-h" => options.help = true,
                "--root" => options.root = value()?.into(),
                "--listen" => options.listen = value()?,
                "--connections" => options.connections = number(&flag, &value()?, 100_000)?,
                "--idle-ms" => options.idle = millis(&flag, &value()?)?,
                "--grace-ms" => options.grace = millis(&flag, &value()?)?,
                unknown => return Err(format!("unknown argument {unknown:?}")),
            }
        }
        Ok(options)
    }
}

fn number(flag: &str, text: &str, most: usize) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| (1..=most).contains(number))
        .ok_or_else(|| format!("{flag}: {text:?} is not a number from 1 to {most}"))
}

fn millis(flag: &str, text: &str) -> Result<Duration, String> {
    number(flag, text, 3_600_000).map(|millis| Duration::from_millis(millis as u64))
}

/// The state that the connections share.
pub struct Server {
    root: Root,
    idle: Duration,
    /// Ends the waits for a next request.
    stop: Context,
    /// Ends a connection, wherever it waits.
    cut: Context,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    requests: AtomicUsize,
    connections: AtomicUsize,
    open: AtomicUsize,
    most: AtomicUsize,
}

/// One connection, counted as long as it is open.
struct Open {
    server: Arc<Server>,
    _room: OwnedSemaphorePermit,
}

impl Open {
    fn new(server: Arc<Server>, room: OwnedSemaphorePermit) -> Self {
        let Counts { connections, open, most, .. } = &server.counts;
        connections.fetch_add(1, Relaxed);
        most.fetch_max(open.fetch_add(1, Relaxed) + 1, Relaxed);
        Open { server, _room: room }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.server.counts.open.fetch_sub(1, Relaxed);
    }
}

/// Accepts until `stop` is done. A connection for which there is no room waits in the kernel.
fn accept(server: &Arc<Server>, listener: &TcpListener, room: &Arc<Semaphore>, connections: &WaitGroup) {
    let mut told = None;
    while let Ok(permit) = room.acquire_owned_ctx(&server.stop, 1) {
        match server.stop.run(|| listener.accept()) {
            Ok(Ok((stream, _))) => {
                told = None;
                let open = Open::new(Arc::clone(server), permit);
                // If no goroutine can be started, the connection is closed.
                let serve = move || serve_one(&open.server, stream);
                let _refused = gmp::Builder::new().go_counted(connections, serve);
            }
            Ok(Err(refused)) if server.stop.err().is_none() => {
                // Mostly EMFILE: the connection waits in the kernel until there is room. Accepting again at once would spin.
                if told != refused.raw_os_error() {
                    eprintln!("static_files: cannot accept: {refused}; trying again");
                    told = refused.raw_os_error();
                }
                gmp::time::sleep(PAUSE);
            }
            _ => return,
        }
    }
}

/// Closes the stream, so that a connection that counts as ended is closed.
fn serve_one(server: &Server, stream: TcpStream) {
    let _only_slower_without = stream.set_nodelay(true);
    // The client is gone, too slow, or cut off: nobody is left to be told of an error.
    let _ended = server.cut.run(|| http::converse(server, &stream));
}

fn serve(options: &Options) -> io::Result<()> {
    let (cut, cut_off): (Context, Cancel) = Context::background().with_cancel();
    let (stop, _cancel) = context::with_signals(&cut, &[SIGINT, SIGTERM])?;
    let refused =
        |refused: io::Error, what: &str| io::Error::new(refused.kind(), format!("{what}: {refused}"));
    let root = Root::open(&options.root)
        .map_err(|error| refused(error, &format!("cannot serve {}", options.root.display())))?;
    let listener = TcpListener::bind(&options.listen)
        .map_err(|error| refused(error, &format!("cannot listen on {}", options.listen)))?;
    println!("listening on {}, Ctrl-C ends it", listener.local_addr()?);
    let server = Arc::new(Server { root, idle: options.idle, stop, cut, counts: Counts::default() });
    let connections = WaitGroup::new();
    accept(&server, &listener, &Arc::new(Semaphore::new(options.connections)), &connections);

    // The kernel refuses new clients from now on.
    drop(listener);
    let (grace, _cancel) = Context::background().with_timeout(options.grace);
    let _too_late = grace.run(|| connections.wait());
    let left = server.counts.open.load(Relaxed);
    cut_off.cancel_with("the server stops");
    connections.wait();
    let Counts { requests, connections, most, .. } = &server.counts;
    println!(
        "served {} requests on {} connections, at most {} at once, {left} cut off",
        requests.load(Relaxed),
        connections.load(Relaxed),
        most.load(Relaxed)
    );
    Ok(())
}

fn main() -> ExitCode {
    let args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("static_files: {wrong}; --help tells which there are");
            return ExitCode::from(2);
        }
    };
    if options.help {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    // SAFETY: the goroutines of these files keep nothing of a thread across a call that parks.
    let runtime = unsafe { Runtime::builder().build() };
    match runtime.and_then(|runtime| runtime.run(move || serve(&options))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("static_files: {wrong}");
            ExitCode::FAILURE
        }
    }
}
