//! Forwards a TCP port: whoever connects to this program talks to the target.
//!
//! cargo run --release --example port_forward -- --to localhost:22
//!
//! listening on 127.0.0.1:8022, forwards to localhost:22, Ctrl-C ends it
//! 3 connections, at most 2 at once: 3 finished, 0 broken, 0 idle, 0 too old, 0 without the target, 0 cut off; ..
//!
//! ssh -p 8022 127.0.0.1
//!
//! A connection is a goroutine that dials the target and then copies, a second one that copies the other way
//! (`gmp::io::copy_bidirectional`), and a third that ends both when nothing moves (`forward.rs`). The end of one direction is
//! handed on as the end of that direction; every other end is handed on as a reset (`tcp.rs`).
//!
//! How many: beyond the limit a connection is not accepted, and waits in the kernel's queue. Accepting it to refuse it would
//! take a protocol that both sides know, and this program knows none. When the queue is full, too, the kernel makes a client
//! try again after a second.
//!
//! How it ends: SIGINT or SIGTERM ends the context `stop`, under which the accept loop waits. The connections go on for a
//! while; the context `cut`, under which all of a connection runs, then cuts off those that are open.

mod forward;
mod tcp;

use forward::{Counts, Forwarder, Why};
use gmp::Runtime;
use gmp::context::{self, Context};
use gmp::net::{ListenConfig, TcpListener};
use gmp::signal::{SIGINT, SIGTERM};
use gmp::sync::Semaphore;
use std::io;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const HELP: &str = "\
Forwards a TCP port to a target. Ctrl-C ends it.

port_forward --to HOST:PORT [--listen ADDR] [--connections N] [--backlog N]
             [--dial-ms MS] [--idle-ms MS] [--lifetime-ms MS] [--grace-ms MS]

  --to HOST:PORT    the target; a name is looked up for each connection
  --listen ADDR     default 127.0.0.1:8022, port 0 takes a free one
  --connections N   at once, with two descriptors each; more wait until one ends; default 400
  --backlog N       how many wait, as far as the kernel allows; default 1024
  --dial-ms MS      how long the target may take to answer; default 10000
  --idle-ms MS      how long a connection may be without a byte that moves; default 300000
  --lifetime-ms MS  how long a connection may be open; default 86400000, a day
  --grace-ms MS     how long the stop waits for connections to end; default 600
  --help            this

Status: 0; 1 when the address can't be had; 2 for a wrong argument.
";

/// How long the program waits for room in a full table of descriptors.
const PAUSE: Duration = Duration::from_millis(50);
/// How long connections that were cut off get to end. Only one whose name is being looked up takes longer than a moment.
const CUT: Duration = Duration::from_millis(100);

struct Options {
    help: bool,
    to: String,
    listen: String,
    connections: usize,
    backlog: usize,
    dial: Duration,
    idle: Duration,
    lifetime: Duration,
    grace: Duration,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Options {
            help: false,
            to: String::new(),
            listen: "127.0.0.1:8022".to_owned(),
            connections: 400,
            backlog: 1024,
            dial: Duration::from_secs(10),
            idle: Duration::from_secs(300),
            lifetime: Duration::from_secs(86_400),
            grace: Duration::from_millis(600),
        };
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or(format!("{flag}: a value is missing"));
            match flag.as_str() {
                "--help" | "-h" => options.help = true,
                "--to" => options.to = target(&flag, value()?)?,
                "--listen" => options.listen = value()?,
                "--connections" => options.connections = number(&flag, &value()?, 100_000)?,
                "--backlog" => options.backlog = number(&flag, &value()?, 100_000)?,
                "--dial-ms" => options.dial = millis(&flag, &value()?)?,
                "--idle-ms" => options.idle = millis(&flag, &value()?)?,
                "--lifetime-ms" => options.lifetime = millis(&flag, &value()?)?,
                "--grace-ms" => options.grace = millis(&flag, &value()?)?,
                unknown => return Err(format!("unknown argument {unknown:?}")),
            }
        }
        if options.to.is_empty() && !options.help {
            return Err("--to is missing".to_owned());
        }
        Ok(options)
    }
}

/// Checks the form of an address. The name is looked up only when a client comes.
fn target(flag: &str, text: String) -> Result<String, String> {
    let is_one = text.rsplit_once(':').is_some_and(|(host, port)| {
        // An IPv6 address has colons, and is in brackets.
        let host = !host.is_empty() && (host.starts_with('[') || !host.contains(':'));
        host && port.parse::<u16>().is_ok_and(|port| port != 0)
    });
    if is_one { Ok(text) } else { Err(format!("{flag}: {text:?} is not HOST:PORT")) }
}

fn number(flag: &str, text: &str, most: usize) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| (1..=most).contains(number))
        .ok_or_else(|| format!("{flag}: {text:?} is not a number from 1 to {most}"))
}

fn millis(flag: &str, text: &str) -> Result<Duration, String> {
    number(flag, text, 1_000_000_000).map(|millis| Duration::from_millis(millis as u64))
}

/// Reports an error once, and again if another error came in between: a target that is down for an hour is one line, and not
/// one line for each client.
#[derive(Default)]
struct Complaints(Mutex<String>);

impl Complaints {
    fn tell(&self, wrong: String) {
        let mut last = self.0.lock().expect("nobody panics under the lock");
        if *last != wrong {
            eprintln!("port_forward: {wrong}");
            *last = wrong;
        }
    }
}

/// Accepts until `stop` is done. Returns how many connections there were, and how many of them at once.
fn accept(
    forwarder: &Arc<Forwarder>,
    listener: &TcpListener,
    room: &Arc<Semaphore>,
    stop: &Context,
) -> [usize; 2] {
    let complaints = Arc::new(Complaints::default());
    let capacity = room.available_permits();
    let (mut all, mut most) = (0, 0);
    while let Ok(permit) = room.acquire_owned_ctx(stop, 1) {
        match stop.run(|| listener.accept()) {
            Ok(Ok((client, _))) => {
                all += 1;
                most = most.max(capacity - room.available_permits());
                let (forwarder, complaints_too) = (Arc::clone(forwarder), Arc::clone(&complaints));
                let serve = move || {
                    let _place = permit;
                    if let Err(refused) = forwarder.serve(client) {
                        complaints_too.tell(format!("cannot reach {}: {refused}", forwarder.target));
                    }
                };
                if let Err(refused) = gmp::Builder::new().go(serve) {
                    complaints.tell(format!("cannot serve a connection: {refused}"));
                }
            }
            Ok(Err(refused)) if stop.err().is_none() => {
                // Mostly EMFILE: the connection waits in the kernel until there is room. Accepting again at once would spin.
                complaints.tell(format!("cannot accept: {refused}; trying again"));
                gmp::time::sleep(PAUSE);
            }
            _ => break,
        }
    }
    [all, most]
}

fn serve(options: &Options) -> io::Result<()> {
    let (cut, cut_off) = Context::background().with_cancel();
    let (stop, _cancel) = context::with_signals(&cut, &[SIGINT, SIGTERM])?;
    let listener =
        ListenConfig::new().backlog(options.backlog as u32).listen(&options.listen).map_err(|refused| {
            io::Error::new(refused.kind(), format!("cannot listen on {}: {refused}", options.listen))
        })?;
    println!("listening on {}, forwards to {}, Ctrl-C ends it", listener.local_addr()?, options.to);
    let forwarder = Arc::new(Forwarder {
        target: options.to.clone(),
        dial: options.dial,
        idle: options.idle,
        lifetime: options.lifetime,
        cut,
        counts: Counts::default(),
    });
    let room = Arc::new(Semaphore::new(options.connections));
    let [all, most] = accept(&forwarder, &listener, &room, &stop);

    // From now on the kernel refuses new clients, and resets those that wait in its queue.
    drop(listener);
    // All of the room is free when the last connection has ended.
    let _too_late = room.acquire_guard_timeout(options.connections, options.grace).map(drop);
    cut_off.cancel_with(Why::Stop);
    let _looks_a_name_up = room.acquire_guard_timeout(options.connections, CUT).map(drop);
    println!("{all} connections, at most {most} at once: {}", forwarder.counts);
    Ok(())
}

fn main() -> ExitCode {
    let args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("port_forward: {wrong}; --help tells which there are");
            return ExitCode::from(2);
        }
    };
    if options.help {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    // SAFETY: the goroutines of these files keep nothing of a thread across a call that parks.
    let runtime = unsafe { Runtime::builder().shutdown_timeout(CUT).build() };
    match runtime.and_then(|runtime| runtime.run(move || serve(&options))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("port_forward: {wrong}");
            ExitCode::FAILURE
        }
    }
}
