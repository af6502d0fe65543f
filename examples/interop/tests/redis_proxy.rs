//! `redis_proxy`, between a real Redis and the crate `redis`, `redis-cli`, and rude peers.

use harness::{Example, LIMIT, Peer, Program, eventually, everywhere, example, peer, run};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

fn redis(program: &Program) -> Peer {
    Peer::start(|_, addr: SocketAddr| {
        let mut command = program.command();
        command.args(["--bind", "127.0.0.1", "--save", "", "--port", &addr.port().to_string()]);
        command
    })
}

fn start(to: SocketAddr, procs: usize, options: &[&str]) -> Example {
    let mut command = example!("redis_proxy");
    command.args(["--listen", "127.0.0.1:0", "--to", &to.to_string()]);
    Example::start(command.args(options), procs)
}

/// Makes the listener of a test's own server, and returns it with its address.
fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let addr = listener.local_addr().expect("it listens");
    (listener, addr)
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().expect("the proxy connects");
    stream.set_read_timeout(Some(LIMIT)).expect("a valid time");
    stream.set_write_timeout(Some(LIMIT)).expect("a valid time");
    stream
}

fn all(mut stream: &TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("it ends");
    all
}

/// Returns the most memory that the process had at once, in KiB.
fn peak(server: &Example) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line of it");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Fails when a client gets the answer of another client, or when each client takes a thread.
#[test]
fn clients_of_the_crate_have_their_own_answers() {
    const CLIENTS: usize = 60;
    let program = peer!("redis-server");
    everywhere(|procs| {
        let redis = redis(&program);
        let server = start(redis.addr(), procs, &[]);
        let client = redis::Client::open(format!("redis://{}/", server.addr())).expect("an address");
        let connections: Vec<_> =
            (0..CLIENTS).map(|_| client.get_connection().expect("the proxy accepts")).collect();
        assert!(server.threads() < CLIENTS / 2, "{} threads", server.threads());
        thread::scope(|scope| {
            for (number, mut connection) in connections.into_iter().enumerate() {
                scope.spawn(move || {
                    let mut asked = redis::pipe();
                    let value = format!("{number}").repeat(1_000 * (number + 1));
                    asked.cmd("SET").arg(format!("own{number}")).arg(&value).ignore();
                    asked.cmd("INCR").arg("all").ignore().cmd("GET").arg(format!("own{number}"));
                    for _ in 0..20 {
                        let (came,): (String,) = asked.query(&mut connection).expect("it is answered");
                        assert!(came == value, "client {number}");
                    }
                });
            }
        });
        let mut connection = client.get_connection().expect("the proxy accepts");
        let count: usize = redis::cmd("GET").arg("all").query(&mut connection).expect("it is answered");
        assert_eq!(count, 20 * CLIENTS);
        drop(connection);
        let said = server.terminate();
        assert!(
            said.contains(&format!("served {} connections, 0 cut off; 0 refused", CLIENTS + 1)),
            "{said}"
        );
    });
}

#[test]
fn redis_cli_is_answered() {
    let (program, cli) = (peer!("redis-server"), peer!("redis-cli"));
    everywhere(|procs| {
        let redis = redis(&program);
        let server = start(redis.addr(), procs, &[]);
        let port = server.addr().port().to_string();
        let ask = |words: &[&str]| run(cli.command().args(["-p", &port]).args(words)).good();
        assert_eq!(ask(&["SET", "a", "b"]), "OK\n");
        assert_eq!(ask(&["GET", "a"]), "b\n");
        assert_eq!(ask(&["-r", "500", "INCR", "n"]).lines().last(), Some("500"));
        server.terminate();
    });
}

/// Fails if the end of one direction ends both.
#[test]
fn each_direction_ends_by_itself() {
    const LENGTH: usize = 1 << 20;
    let program = peer!("redis-server");
    everywhere(|procs| {
        let redis = redis(&program);
        let server = start(redis.addr(), procs, &[]);
        let mut client = server.connect();
        client.write_all(b"SET half close\r\nGET half\r\n").expect("the proxy listens");
        client.shutdown(Shutdown::Write).expect("it is open");
        assert_eq!(all(&client), b"+OK\r\n$5\r\nclose\r\n");
        server.terminate();

        // The client ends first and then gets the whole of a long answer. Then the server ends first.
        let (listener, addr) = listener();
        let server = start(addr, procs, &[]);
        for client_first in [true, false] {
            let client = server.connect();
            let peer = accept(&listener);
            let (first, second) = if client_first { (&client, &peer) } else { (&peer, &client) };
            (&mut &*first).write_all(b"the last word").expect("it is open");
            first.shutdown(Shutdown::Write).expect("it is open");
            assert_eq!(all(second), b"the last word");
            {
                let long: Vec<u8> = (0..LENGTH).map(|at| (at % 251) as u8).collect();
                thread::scope(|scope| {
                    scope.spawn(|| {
                        (&mut &*second).write_all(&long).expect("the proxy listens");
                        second.shutdown(Shutdown::Write).expect("it is open");
                    });
                    assert!(all(first) == long, "all of it");
                });
            }
        }
        let said = server.terminate();
        assert!(said.contains("served 2 connections, 0 cut off; 0 refused"), "{said}");
    });
}

/// Fails when the proxy stores the bytes that one side does not take, or when that side delays other clients.
#[test]
fn a_side_that_does_not_read_stops_the_sender() {
    const CHUNK: usize = 64 << 10;
    const FAR_TOO_MUCH: usize = 256 << 20;
    let program = peer!("redis-server");
    everywhere(|procs| {
        for client_sends in [true, false] {
            let (listener, addr) = listener();
            let server = start(addr, procs, &[]);
            let client = server.connect();
            let peer = accept(&listener);
            let before = peak(&server);
            let (sends, reads) = if client_sends { (client, peer) } else { (peer, client) };
            let chunk = vec![7; CHUNK];
            // The client sends as much as the kernel's buffers hold. Then the proxy takes no more.
            sends.set_nonblocking(true).expect("a socket");
            let (mut sent, mut refused) = (0, 0);
            while refused < 200 {
                match (&mut &sends).write(&chunk) {
                    Ok(taken) => (sent, refused) = (sent + taken, 0),
                    Err(full) if full.kind() == std::io::ErrorKind::WouldBlock => {
                        refused += 1;
                        thread::sleep(std::time::Duration::from_millis(1));
                    }
                    Err(broken) => panic!("{broken}"),
                }
                assert!(sent < FAR_TOO_MUCH, "nobody is stopped");
            }
            // The proxy serves another client meanwhile.
            let other = server.connect();
            let other_peer = accept(&listener);
            (&mut &other).write_all(b"hello").expect("the proxy listens");
            other.shutdown(Shutdown::Write).expect("it is open");
            assert_eq!(all(&other_peer), b"hello");
            drop((other, other_peer));
            assert!(peak(&server) < before + (2 << 10), "{} KiB after {before}", peak(&server));
            sends.shutdown(Shutdown::Write).expect("it is open");
            let came = all(&reads);
            assert!(came.len() == sent && came.iter().all(|&byte| byte == 7), "{} of {sent}", came.len());
            drop((sends, reads));
            server.terminate();
        }

        // Redis sends long answers to a client that reads late.
        let redis = redis(&program);
        let server = start(redis.addr(), procs, &[]);
        let mut client = server.connect();
        let asked = ["SETRANGE long 8388607 x\r\n", &"GET long\r\n".repeat(8)].concat();
        client.write_all(asked.as_bytes()).expect("the proxy listens");
        let length = ":8388608\r\n".len() + 8 * ("$8388608\r\n".len() + (8 << 20) + 2);
        let came = std::io::copy(&mut (&client).take(length as u64), &mut std::io::sink());
        assert_eq!(came.expect("all of it comes"), length as u64);
        drop(client);
        assert!(peak(&server) < 32 << 10, "{} KiB", peak(&server));
        server.terminate();
    });
}

#[test]
fn one_client_more_than_the_most_is_refused_until_another_goes() {
    let program = peer!("redis-server");
    everywhere(|procs| {
        let redis = redis(&program);
        let server = start(redis.addr(), procs, &["--most", "2"]);
        let ping = |mut client: &TcpStream| {
            let mut answer = [0; 7];
            let asked = client.write_all(b"PING\r\n").and_then(|()| client.read_exact(&mut answer));
            asked.is_ok() && &answer == b"+PONG\r\n"
        };
        let (first, second) = (server.connect(), server.connect());
        assert!(ping(&first) && ping(&second));
        let third = server.connect();
        third.shutdown(Shutdown::Write).expect("it is open");
        assert_eq!(all(&third), b"-ERR too many clients\r\n");
        assert!(ping(&first) && ping(&second), "the others stay");
        drop((first, third));
        eventually("a place is free", || ping(&server.connect()));
        drop(second);
        let said = server.terminate();
        assert!(!said.contains("; 0 refused"), "{said}");
    });
}

/// Fails if a refused client keeps a place or a connection by sending a byte now and then.
#[test]
fn a_refused_client_that_goes_on_keeps_nothing() {
    let program = peer!("redis-server");
    everywhere(|procs| {
        let redis = redis(&program);
        let server = start(redis.addr(), procs, &["--most", "1", "--connect", "1000"]);
        let ping = |mut client: &TcpStream| {
            let mut answer = [0; 7];
            let asked = client.write_all(b"PING\r\n").and_then(|()| client.read_exact(&mut answer));
            asked.is_ok() && &answer == b"+PONG\r\n"
        };
        let first = server.connect();
        assert!(ping(&first));
        let mut refused = server.connect();
        assert_eq!(all(&refused), b"-ERR too many clients\r\n");
        drop(first);
        // Each check sends a byte.
        let mut served = None;
        eventually("a place is free", || {
            let _it_may_be_ended_already = refused.write_all(b"x");
            let client = server.connect();
            served = ping(&client).then_some(client);
            served.is_some()
        });
        eventually("the refused one is ended", || refused.write_all(b"x").is_err());
        drop(served);
        server.terminate();
    });
}

#[test]
fn a_server_that_is_not_there_or_goes_is_told() {
    let program = peer!("redis-server");
    everywhere(|procs| {
        let (free, nobody) = listener();
        drop(free);
        let server = start(nobody, procs, &[]);
        let client = server.connect();
        client.shutdown(Shutdown::Write).expect("it is open");
        assert_eq!(all(&client), b"-ERR the server is not there\r\n");
        assert!(server.complaint().contains("refused"));
        server.terminate();

        // Redis ends in the middle of the connections: the clients read the end.
        let redis = redis(&program);
        let server = start(redis.addr(), procs, &[]);
        let mut client = server.connect();
        client.write_all(b"PING\r\n").expect("the proxy listens");
        client.read_exact(&mut [0; 7]).expect("it is answered");
        drop(redis);
        assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)), "the end");
        server.terminate();
    });
}

/// Fails when a read limit ends a client that has sent a command, or subscribed, and only waits.
#[test]
fn a_client_that_waits_for_longer_than_the_idle_limit_is_answered() {
    let program = peer!("redis-server");
    everywhere(|procs| {
        let redis = redis(&program);
        let server = start(redis.addr(), procs, &["--idle", "100"]);
        let (mut pops, mut hears) = (server.connect(), server.connect());
        let comes = |mut from: &TcpStream, expected: &str| {
            let mut came = vec![0; expected.len()];
            from.read_exact(&mut came).unwrap_or_else(|broken| panic!("{broken}, and not {expected:?}"));
            assert_eq!(String::from_utf8_lossy(&came), expected);
        };
        pops.write_all(b"BLPOP list 0\r\n").expect("the proxy listens");
        hears.write_all(b"SUBSCRIBE news\r\n").expect("the proxy listens");
        comes(&hears, "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
        thread::sleep(std::time::Duration::from_millis(500));
        let mut other = TcpStream::connect(redis.addr()).expect("Redis listens");
        other.write_all(b"RPUSH list x\r\nPUBLISH news y\r\n").expect("Redis listens");
        comes(&pops, "*2\r\n$4\r\nlist\r\n$1\r\nx\r\n");
        comes(&hears, "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\ny\r\n");
        pops.write_all(b"PING\r\n").expect("the proxy listens");
        comes(&pops, "+PONG\r\n");
        drop((pops, hears));
        let said = server.terminate();
        assert!(said.contains("served 2 connections, 0 cut off; 0 refused"), "{said}");
    });
}

/// Before the stop, the clients get the answers of Redis to their commands. The stop ends the waiting clients without a
/// message.
#[test]
fn clients_are_ended_at_the_stop() {
    let program = peer!("redis-server");
    everywhere(|procs| {
        let redis = redis(&program);
        let server = start(redis.addr(), procs, &[]);
        let mut clients: Vec<_> = (0..10).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.write_all(b"PING\r\n").expect("the proxy listens");
            client.read_exact(&mut [0; 7]).expect("it is answered");
        }
        clients[0].write_all(b"BLPOP nothing 0\r\n").expect("the proxy listens");
        let at = server.signal();
        for client in &clients {
            assert_eq!(all(client), b"", "an end without a word");
        }
        let said = server.stopped(at);
        assert!(said.contains("served 10 connections, 0 cut off"), "{said}");
    });
}
