//! How the servers among the examples stop. The tests find them in the tree.

use crate::program::Program;
use common::example::{LIMIT, example};
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// The arguments of a server that has no `--listen ADDR`, or needs more. `TARGET` stands for an address that takes connections.
const ARGS: &[(&str, &[&str])] = &[
    ("process_pool", &[]),
    ("port_forward", &["--listen", "127.0.0.1:0", "--to", "TARGET"]),
    ("udp_dns", &["--listen", "127.0.0.1:0", "--upstream", "TARGET"]),
];
/// These examples bind sockets, and end by themselves.
const NO_SERVERS: &[&str] = &["blocking_call"];
/// How long a stop may take; and how often it is tried, as other tests run beside it.
const STOP: Duration = Duration::from_secs(1);
const TRIES: usize = 4;

/// Returns each example's name, with all of its text.
fn examples() -> BTreeMap<String, String> {
    fn sources(path: &Path) -> Vec<PathBuf> {
        if path.is_file() {
            return vec![path.to_owned()];
        }
        let entries = fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry").path());
        entries.flat_map(|entry| sources(&entry)).collect()
    }
    let all = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples")).expect("the examples");
    let paths = all.map(|entry| entry.expect("an entry").path());
    paths
        .filter(|path| path.extension().is_some_and(|it| it == "rs") || path.join("main.rs").is_file())
        .map(|path| {
            let name = path.file_stem().expect("a name").to_str().expect("text").to_owned();
            let sources =
                sources(&path).into_iter().filter(|file| file.extension().is_some_and(|it| it == "rs"));
            let texts = sources.map(|file| fs::read_to_string(file).expect("a source"));
            (name, texts.collect())
        })
        .collect()
}

fn binds_tcp(text: &str) -> bool {
    text.contains("TcpListener::bind(") || text.contains("ListenConfig::new(")
}

fn servers() -> BTreeMap<String, String> {
    examples().into_iter().filter(|(_, text)| text.contains("SIGTERM")).collect()
}

/// Fails when an example binds a socket and does not listen to signals; or when a row of these tests names no example.
#[test]
fn what_serves_listens_to_signals() {
    let (all, servers) = (examples(), servers());
    assert!(
        ["echo_server", "port_forward", "process_pool", "static_files"]
            .iter()
            .all(|&name| servers.contains_key(name))
    );
    for (name, text) in &all {
        let binds = text.contains("::bind(") || binds_tcp(text);
        assert!(
            !binds || servers.contains_key(name) || NO_SERVERS.contains(&name.as_str()),
            "{name} binds a socket: it is to stop by SIGINT and SIGTERM, or stands in NO_SERVERS"
        );
    }
    let rows = ARGS.iter().map(|row| row.0).chain(NO_SERVERS.iter().copied());
    rows.for_each(|name| assert!(all.contains_key(name), "no example is called {name}"));
}

/// Fails when a server goes on for a second, ends with another status than 0, or does not end its connections.
#[test]
fn each_server_stops_within_a_second_and_tells_its_connections() {
    for (name, text) in servers() {
        for (procs, signal) in
            ["1", "4"].into_iter().flat_map(|procs| [(procs, libc::SIGINT), (procs, libc::SIGTERM)])
        {
            let mut tries = Vec::new();
            while tries.len() < TRIES && tries.last().is_none_or(|took| *took >= STOP) {
                tries.push(stop(&name, &text, procs, signal));
            }
            assert!(
                tries.last().is_some_and(|took| *took < STOP),
                "{name}, {procs} Ps, signal {signal}: {tries:?}"
            );
        }
    }
}

/// Starts a server, gives it something to do, and stops it; returns how long the stop took.
fn stop(name: &str, text: &str, procs: &str, signal: libc::c_int) -> Duration {
    // The kernel takes the connections: no code accepts them here.
    let target = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let target = (target.local_addr().expect("it listens").to_string(), target);
    let mut command = example(name);
    match ARGS.iter().find(|row| row.0 == name) {
        Some((_, args)) => {
            command.args(args.iter().map(|&arg| if arg == "TARGET" { target.0.as_str() } else { arg }))
        }
        None => command.args(["--listen", "127.0.0.1:0"]),
    };
    let mut program = Program::start(command.env("GMPMAXPROCS", procs).stdin(Stdio::piped()));
    let mut input = program.child.0.stdin.take().expect("piped");
    let connections = if binds_tcp(text) {
        let addr = program.listening();
        connected(&program, addr)
    } else if text.contains("UdpSocket::bind(") {
        program.listening();
        Vec::new()
    } else {
        input.write_all(b"upper case\n").expect("it reads");
        assert_eq!(program.line(), "1: CASE", "{name}");
        Vec::new()
    };

    let signalled = Instant::now();
    program.signal(signal);
    for mut stream in connections {
        // The server may echo the byte; then comes the end, or a reset if the byte was to go elsewhere.
        match stream.read_to_end(&mut Vec::new()) {
            Ok(_) => {}
            Err(reset) if reset.kind() == ErrorKind::ConnectionReset => {}
            Err(silence) => panic!("{name}, {procs} Ps, signal {signal}: {silence}"),
        }
    }
    program.end();
    signalled.elapsed()
}

/// Returns connections that the server has accepted: some silent, and one in the middle of its request.
fn connected(program: &Program, addr: SocketAddr) -> Vec<TcpStream> {
    let before = program.sockets();
    let streams = Vec::from_iter((0..4).map(|_| TcpStream::connect(addr).expect("it listens")));
    streams.iter().for_each(|stream| stream.set_read_timeout(Some(LIMIT)).expect("a limit"));
    (&streams[3]).write_all(b"G").expect("room for a byte");
    let start = Instant::now();
    while program.sockets() < before + streams.len() {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: it accepts");
        thread::sleep(Duration::from_millis(2));
    }
    streams
}
