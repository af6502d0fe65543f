//! `redis_count`, beside a real Redis.

use harness::{Example, Peer, Program, everywhere, example, peer};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;

/// The number of goroutines that use the crate's own sockets at once.
const MANY: usize = 200;

fn redis(program: &Program) -> Peer {
    Peer::start(|_, addr: SocketAddr| {
        let mut command = program.command();
        command.args(["--bind", "127.0.0.1", "--save", "", "--port", &addr.port().to_string()]);
        command
    })
}

fn start(redis: &Peer, procs: usize, options: &[&str]) -> Example {
    let mut command = example!("redis_count");
    command.args(["--listen", "127.0.0.1:0", "--redis", &redis.addr().to_string()]);
    Example::start(command.args(options), procs)
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn new(server: &Example) -> Self {
        Client(BufReader::new(server.connect()))
    }

    fn says(&mut self, name: &str) -> String {
        self.0.get_mut().write_all(format!("{name}\n").as_bytes()).expect("the server listens");
        let mut answer = String::new();
        self.0.read_line(&mut answer).expect("the server answers");
        answer.trim_end().to_owned()
    }
}

/// Fails when a client gets the answer of another client, when a count is lost, or when each client of our streams takes a
/// thread.
#[test]
fn each_client_has_its_own_answers() {
    let program = peer!("redis-server");
    everywhere(|procs| {
        for options in [&["--pool", "4"][..], &["--std"]] {
            let redis = redis(&program);
            let server = start(&redis, procs, options);
            let clients: Vec<_> = (0..MANY).map(|_| Client::new(&server)).collect();
            let counts: Vec<_> = thread::scope(|scope| {
                let count = |(number, mut client): (usize, Client)| {
                    scope.spawn(move || {
                        // The clients share some names, and each has one of its own.
                        let own: Vec<_> = (0..3).map(|_| client.says(&format!("own{number}"))).collect();
                        assert_eq!(own, ["1", "2", "3"]);
                        let shared: u64 = client.says("shared").parse().expect("a count");
                        (shared, client)
                    })
                };
                let counting: Vec<_> = clients.into_iter().enumerate().map(count).collect();
                counting.into_iter().map(|client| client.join().expect("it is answered")).collect()
            });
            let threads = server.threads();
            println!("{options:?} at {procs}: {MANY} clients, {threads} threads");
            if options == ["--pool", "4"] {
                assert!(threads < MANY / 4, "{threads} threads");
            }
            let mut times = BTreeMap::new();
            counts.iter().for_each(|(shared, _)| *times.entry(*shared).or_insert(0) += 1);
            assert!(
                times.into_iter().eq((1..=MANY as u64).map(|count| (count, 1))),
                "each count was given once"
            );
            drop(counts);
            let said = server.terminate();
            assert!(said.contains(&format!("served {MANY} connections, 0 cut off")), "{said}");
        }
    });
}

/// Fails if a broken connection stays in the pool, or if a place is lost with it.
#[test]
fn broken_connections_are_replaced() {
    let program = peer!("redis-server");
    everywhere(|procs| {
        let redis = redis(&program);
        let server = start(&redis, procs, &["--pool", "2"]);
        let mut client = Client::new(&server);
        for round in 1..=5 {
            assert_eq!(client.says(&format!("round{round}")), "1");
            let mut operator = TcpStream::connect(redis.addr()).expect("Redis listens");
            operator.write_all(b"CLIENT KILL TYPE normal SKIPME yes\r\n").expect("Redis listens");
            let mut answer = [0; 4];
            operator.read_exact(&mut answer).expect("Redis answers");
            assert_eq!(answer[0], b':', "a count of the killed");
            // The connection that was used is broken. The other place can have had a connection too.
            let answers: Vec<_> = (0..3).map(|_| client.says(&format!("round{round}"))).collect();
            assert!(
                answers.iter().filter(|answer| answer.starts_with("error: ")).count() <= 2,
                "{answers:?}"
            );
            assert!(answers[2].parse::<u64>().is_ok(), "{answers:?}");
        }
        drop(client);
        server.terminate();
    });
}

/// Fails by a hang when the server reads a line without an end for ever, or waits for ever for the end of a line.
#[test]
fn a_line_has_an_end() {
    everywhere(|procs| {
        let mut command = example!("redis_count");
        let server = Example::start(command.args(["--listen", "127.0.0.1:0", "--idle", "500"]), procs);
        let says = |line: &[u8]| {
            let mut client = server.connect();
            client.write_all(line).expect("the server listens");
            let mut answer = String::new();
            client.read_to_string(&mut answer).expect("the server ends it");
            answer
        };
        assert_eq!(says(&[b'x'; 100_000]), "error: the line is too long\n");
        assert_eq!(says(b"half a line"), "");
        let said = server.terminate();
        assert!(said.contains("served 2 connections, 0 cut off"), "{said}");
    });
}

/// Fails when an error of Redis costs a connection, or reaches another client.
#[test]
fn an_error_of_redis_is_its_callers() {
    let program = peer!("redis-server");
    everywhere(|procs| {
        let redis = redis(&program);
        for options in [&["--pool", "1"][..], &["--std"]] {
            let server = start(&redis, procs, options);
            let mut operator = TcpStream::connect(redis.addr()).expect("Redis listens");
            operator.write_all(b"SET word abc\r\n").expect("Redis listens");
            operator.read_exact(&mut [0; 5]).expect("Redis answers");
            let mut client = Client::new(&server);
            let refused = client.says("word");
            assert!(refused.starts_with("error: ") && refused.contains("not an integer"), "{refused}");
            assert!(client.says(&format!("number{}", options.len())).parse::<u64>().is_ok());
            drop(client);
            server.terminate();
        }
    });
}

/// No server listens where Redis should be. Fails by a hang.
#[test]
fn a_redis_that_is_not_there_is_an_error() {
    everywhere(|procs| {
        let nobody =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
        let mut command = example!("redis_count");
        command.args(["--listen", "127.0.0.1:0", "--pool", "1", "--redis", &nobody.to_string()]);
        let server = Example::start(&mut command, procs);
        let mut client = Client::new(&server);
        for _ in 0..3 {
            let refused = client.says("x");
            assert!(refused.starts_with("error: "), "{refused}");
        }
        drop(client);
        server.terminate();
    });
}

/// Fails when a client waits for Redis, or for its turn, longer than its deadline; when an answer that comes too late goes to
/// another client; or when the deadline costs the pool a place.
#[test]
fn a_deadline_ends_the_wait_for_redis_and_the_wait_in_line() {
    const CLIENTS: usize = 20;
    let program = peer!("redis-server");
    everywhere(|procs| {
        let redis = redis(&program);
        let server = start(&redis, procs, &["--pool", "2", "--patience", "2000"]);
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client::new(&server)).collect();
        assert_eq!(clients[0].says("before"), "1");
        let mut operator = TcpStream::connect(redis.addr()).expect("Redis listens");
        let mut order = |words: &[u8]| {
            operator.write_all(words).expect("Redis listens");
            operator.read_exact(&mut [0; 5]).expect("Redis answers");
        };
        order(b"CLIENT PAUSE 600000 WRITE\r\n");
        let late = |client: &mut Client| {
            assert_eq!(client.says("late"), "error: context deadline exceeded");
        };
        thread::scope(|scope| clients.iter_mut().for_each(|client| drop(scope.spawn(|| late(client)))));
        order(b"CLIENT UNPAUSE\r\n");
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.says(&format!("own{number}")), "1");
        }

        // The end of the server ends all waits, however long they could last.
        let patient = start(&redis, procs, &["--pool", "2", "--patience", "600000"]);
        let mut waiting: Vec<_> = (0..CLIENTS).map(|_| Client::new(&patient)).collect();
        for (number, client) in waiting.iter_mut().enumerate() {
            assert_eq!(client.says(&format!("own{number}")), "2");
        }
        order(b"CLIENT PAUSE 600000 WRITE\r\n");
        for client in &mut waiting {
            client.0.get_mut().write_all(b"late\n").expect("the server listens");
        }
        let at = patient.signal();
        for client in &mut waiting {
            let mut told = String::new();
            client.0.read_line(&mut told).expect("an answer, or the end");
            assert!(told == "error: context canceled\n" || told.is_empty(), "{told}");
        }
        let said = patient.stopped(at);
        assert!(said.contains(&format!("served {CLIENTS} connections, 0 cut off")), "{said}");
        drop(clients);
        server.terminate();
    });
}
