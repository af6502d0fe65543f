//! The port forwarder as the world sees it: between clients and a target that are the test's own.

use crate::echo::clients::{connect, content, expect, expect_end, fill, reset};
use crate::program::Program;
use common::descriptors::allow_descriptors;
use common::example::{LIMIT, at_once, example, refusal};
use common::loopback::{Hole, refusing};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

const PROCS: [&str; 2] = ["1", "4"];
/// More than all the buffers of a forwarded connection hold.
static LONG: LazyLock<Vec<u8>> = LazyLock::new(|| content(1, 0, 64 << 20));

/// Returns a target of the test's own, and its address.
fn target() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let addr = listener.local_addr().expect("it listens");
    (listener, addr)
}

fn start_to(procs: &str, to: &str, args: &[&str]) -> (Program, SocketAddr) {
    start_within(procs, to, args, None)
}

/// Starts the forwarder with at most so many descriptors.
fn start_within(procs: &str, to: &str, args: &[&str], descriptors: Option<u64>) -> (Program, SocketAddr) {
    let mut command = example("port_forward");
    command.args(["--listen", "127.0.0.1:0", "--to", to]).args(args).env("GMPMAXPROCS", procs);
    Program::server(command, descriptors)
}

fn start(procs: &str, to: SocketAddr, args: &[&str]) -> (Program, SocketAddr) {
    start_to(procs, &to.to_string(), args)
}

/// Accepts the forwarder's connection, at the target.
#[track_caller]
fn accept(listener: &TcpListener) -> TcpStream {
    let mut entry = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    let ready = unsafe { libc::poll(&raw mut entry, 1, LIMIT.as_millis() as libc::c_int) };
    assert_eq!(ready, 1, "nothing has come within {LIMIT:?}");
    let (stream, _) = listener.accept().expect("the forwarder connects");
    stream.set_read_timeout(Some(LIMIT)).expect("a valid time");
    stream.set_write_timeout(Some(LIMIT)).expect("a valid time");
    stream
}

/// Returns a client, and the target's end of its connection.
#[track_caller]
fn pair(addr: SocketAddr, listener: &TcpListener) -> (TcpStream, TcpStream) {
    (connect(addr), accept(listener))
}

/// Reads to the reset, and returns what came before.
#[track_caller]
fn until_reset(mut stream: &TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let end = stream.read_to_end(&mut all).expect_err("a reset, and no proper end");
    assert_eq!(end.kind(), ErrorKind::ConnectionReset, "{end}");
    all
}

/// Connects a client whose connection is reset at once, perhaps before the client knows that it has one.
#[track_caller]
fn turned_away(addr: SocketAddr) {
    match TcpStream::connect(addr) {
        Ok(client) => assert_eq!(until_reset(&client), b""),
        Err(reset) => assert_eq!(reset.kind(), ErrorKind::ConnectionReset, "{reset}"),
    }
}

#[track_caller]
fn stop(program: Program) -> String {
    program.signal(libc::SIGTERM);
    let said = program.end();
    assert_eq!(said.len(), 1, "{said:?}");
    said.into_iter().next().expect("one line")
}

/// Waits until all that was written to `stream` has arrived in the peer's kernel.
#[track_caller]
fn delivered(stream: &TcpStream) {
    let begun = Instant::now();
    loop {
        let mut left: libc::c_int = 0;
        // SAFETY: the kernel writes one number.
        assert_eq!(unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut left) }, 0);
        if left == 0 {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "{left} bytes are not taken");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Fails when the end of one direction is the end of both, by a lost byte, or by a wrong total.
#[test]
fn each_direction_ends_by_itself() {
    let long = content(0, 0, 3 << 20);
    let bytes = ["the last word".len(), long.len()];
    for (procs, client_first) in PROCS.into_iter().flat_map(|procs| [(procs, true), (procs, false)]) {
        let (listener, to) = target();
        let (program, addr) = start(procs, to, &[]);
        let (client, target) = pair(addr, &listener);
        let (first, second) = if client_first { (&client, &target) } else { (&target, &client) };
        (&*first).write_all(b"the last word").expect("it is open");
        first.shutdown(Shutdown::Write).expect("it is open");
        expect(second, b"the last word");
        expect_end(second);
        thread::scope(|scope| {
            scope.spawn(|| {
                (&*second).write_all(&long).expect("it is open");
                second.shutdown(Shutdown::Write).expect("it is open");
            });
            expect(first, &long);
            expect_end(first);
        });
        let [there, back] = if client_first { bytes } else { [bytes[1], bytes[0]] };
        assert_eq!(
            stop(program),
            format!(
                "1 connections, at most 1 at once: 1 finished, 0 broken, 0 idle, 0 too old, \
                 0 without the target, 0 cut off; {there} bytes there, {back} back"
            )
        );
    }
}

/// Fails by a proper end, by which the other side would take a part for the whole.
#[test]
fn a_reset_is_handed_on_as_a_reset() {
    for procs in PROCS {
        let (listener, to) = target();
        let (program, addr) = start(procs, to, &[]);
        for by_client in [true, false] {
            let (client, target) = pair(addr, &listener);
            let (by, to) = if by_client { (client, target) } else { (target, client) };
            (&by).write_all(b"before").expect("it is open");
            expect(&to, b"before");
            reset(by);
            assert_eq!(until_reset(&to), b"");
        }
        let said = stop(program);
        assert!(said.contains(" 0 finished, 2 broken, "), "{said}");
    }
}

/// A server that refuses an upload answers, and closes with bytes unread, which is a reset. Fails when the answer is lost with
/// that reset.
#[test]
fn what_was_said_before_a_reset_arrives() {
    for procs in PROCS {
        let (listener, to) = target();
        let (program, addr) = start(procs, to, &[]);
        for by_client in [true, false] {
            let (client, target) = pair(addr, &listener);
            let (by, to) = if by_client { (client, target) } else { (target, client) };
            // Bytes that `by` does not read, and will not.
            fill(&to, &LONG);
            let answer = content(2, 0, 150 << 10);
            (&by).write_all(&answer).expect("it is open");
            delivered(&by);
            reset(by);
            assert!(until_reset(&to) == answer, "all of it, and nothing else");
        }
        let said = stop(program);
        assert!(said.contains(" 0 finished, 2 broken, "), "{said}");
    }
}

/// Fails by a proper end, by a line for each client, or by an end of the forwarder.
#[test]
fn a_target_that_refuses_is_told_once() {
    for procs in PROCS {
        let refusing = refusing();
        let (program, addr) = start(procs, refusing, &[]);
        for _ in 0..3 {
            turned_away(addr);
        }
        let complaint = program.complaint();
        assert!(complaint.contains(&format!("cannot reach {refusing}: Connection refused")), "{complaint}");

        // Once the target listens it is reached.
        let listener = TcpListener::bind(refusing).expect("nobody else has taken it");
        let (client, target) = pair(addr, &listener);
        drop(target);
        expect_end(&client);
        drop(client);
        let said = stop(program);
        assert!(said.starts_with("4 connections, ") && said.contains(": 1 finished, 0 broken, "), "{said}");
        assert!(said.contains(" 3 without the target, 0 cut off; 0 bytes there, 0 back"), "{said}");
    }
}

#[test]
fn the_target_is_dialled_by_its_name() {
    for procs in PROCS {
        let (listener, to) = target();
        let (program, addr) = start_to(procs, &format!("localhost:{}", to.port()), &[]);
        let (client, target) = pair(addr, &listener);
        (&client).write_all(b"hello").expect("it is open");
        expect(&target, b"hello");
        drop((client, target));
        stop(program);

        let (program, addr) = start_to(procs, "no-such-host.invalid:1", &[]);
        turned_away(addr);
        let complaint = program.complaint();
        assert!(complaint.contains("cannot reach no-such-host.invalid:1: "), "{complaint}");
        stop(program);
    }
}

/// Fails by a client that waits for a target which never answers.
#[test]
fn a_target_that_does_not_answer_is_given_up() {
    for procs in PROCS {
        let hole = Hole::new();
        let (program, addr) = start(procs, hole.addr, &["--dial-ms", "200"]);
        turned_away(addr);
        let complaint = program.complaint();
        assert!(complaint.contains("has passed"), "{complaint}");
        // A stop in the middle of a dial does not wait for the dial.
        let client = connect(addr);
        let said = stop(program);
        until_reset(&client);
        assert!(
            said.contains(" 1 without the target, ") || said.contains(" 2 without the target, "),
            "{said}"
        );
    }
}

/// Fails when a silent connection is kept, or one in which only buffers fill; or when one ends although bytes move in one
/// direction.
#[test]
fn what_does_not_move_is_ended() {
    LazyLock::force(&LONG);
    at_once(PROCS, |procs| {
        let (listener, to) = target();
        let (program, addr) = start(procs, to, &["--idle-ms", "1500"]);
        let (client, target) = pair(addr, &listener);
        assert_eq!((until_reset(&client), until_reset(&target)), (vec![], vec![]));

        // One side speaks, a byte at a time, for far longer than the limit.
        let (client, target) = pair(addr, &listener);
        let begun = Instant::now();
        let mut sent = 0_u8;
        while begun.elapsed() < Duration::from_millis(4000) {
            (&target).write_all(&[sent]).expect("it is open");
            expect(&client, &[sent]);
            sent += 1;
            thread::sleep(Duration::from_millis(50));
        }
        drop(target);
        expect_end(&client);
        drop(client);

        // This target takes the connection, and nothing else.
        let (client, target) = pair(addr, &listener);
        fill(&client, &LONG);
        until_reset(&client);
        drop(target);
        let said = stop(program);
        assert!(said.contains(" 1 finished, 0 broken, 2 idle, 0 too old, "), "{said}");
    });
}

/// Fails by a byte that is lost, or by an end while a slow reader still takes bytes: its side moves, if nothing else does.
#[test]
fn a_slow_reader_gets_everything() {
    LazyLock::force(&LONG);
    at_once(PROCS, |procs| {
        let (listener, to) = target();
        let (program, addr) = start(procs, to, &["--idle-ms", "2000"]);
        let (client, target) = pair(addr, &listener);
        // The client has nothing to say.
        client.shutdown(Shutdown::Write).expect("it is open");
        let all = &LONG[..24 << 20];
        let mut got = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                (&target).write_all(all).expect("it is open");
                target.shutdown(Shutdown::Write).expect("it is open");
            });
            let mut piece = vec![0; 2 << 20];
            loop {
                thread::sleep(Duration::from_millis(150));
                let len = (&client).read(&mut piece).expect("it is open");
                got.extend_from_slice(&piece[..len]);
                if len == 0 {
                    break;
                }
            }
        });
        assert!(got == all, "{} of {} bytes", got.len(), all.len());
        drop((client, target));
        let said = stop(program);
        assert!(said.contains(" 1 finished, 0 broken, 0 idle, "), "{said}");
    });
}

/// Fails when a connection lives on because bytes move.
#[test]
fn a_connection_has_a_lifetime() {
    at_once(PROCS, |procs| {
        let (listener, to) = target();
        let (program, addr) = start(procs, to, &["--lifetime-ms", "500"]);
        let (client, target) = pair(addr, &listener);
        let begun = Instant::now();
        while (&client).write_all(b"on and on").is_ok() {
            if let Err(ended) = (&target).read(&mut [0; 9]) {
                assert_eq!(ended.kind(), ErrorKind::ConnectionReset);
                break;
            }
            assert!(begun.elapsed() < LIMIT, "it goes on");
            thread::sleep(Duration::from_millis(2));
        }
        drop((client, target));
        let said = stop(program);
        assert!(said.contains(" 0 finished, 0 broken, 0 idle, 1 too old, "), "{said}");
    });
}

/// Fails when a connection above the limit is forwarded, or when one is not forwarded once there is room.
#[test]
fn above_the_limit_the_next_connection_waits() {
    for procs in PROCS {
        let (listener, to) = target();
        let (program, addr) = start(procs, to, &["--connections", "2"]);
        let (first, second) = (pair(addr, &listener), pair(addr, &listener));
        let third = connect(addr);
        (&third).write_all(b"third").expect("the kernel takes it");
        listener.set_nonblocking(true).expect("a socket");
        assert_eq!(
            listener.accept().expect_err("the target hears nothing of it").kind(),
            ErrorKind::WouldBlock
        );
        for (number, (client, target)) in [&first, &second].into_iter().enumerate() {
            (&*client).write_all(&content(number, 0, 999)).expect("it is open");
            expect(target, &content(number, 0, 999));
        }
        assert_eq!(
            listener.accept().expect_err("the target hears nothing of it").kind(),
            ErrorKind::WouldBlock
        );
        listener.set_nonblocking(false).expect("a socket");
        drop(first);
        expect(&accept(&listener), b"third");
        drop((second, third));
        let said = stop(program);
        assert!(said.starts_with("3 connections, at most 2 at once: 3 finished, "), "{said}");
    }
}

/// Fails by bytes of another connection, or by one that is refused or lost.
#[test]
fn a_thousand_connections_at_once_and_a_hundred_that_wait() {
    const MANY: usize = 1000;
    const MORE: usize = 100;
    allow_descriptors(3 * MANY as u64);
    for procs in PROCS {
        let (listener, to) = target();
        let (program, addr) = start(procs, to, &["--connections", "1000"]);
        let serve = thread::spawn(move || {
            let mut streams = Vec::new();
            for _ in 0..MANY + MORE {
                let stream = accept(&listener);
                // Reads which client this is.
                let mut number = [0; 8];
                (&stream).read_exact(&mut number).expect("its number");
                (&stream).write_all(&content(usize::from_le_bytes(number), 0, 1000)).expect("it is open");
                stream.shutdown(Shutdown::Write).expect("it is open");
                streams.push(stream);
            }
        });
        let clients = Vec::from_iter((0..MANY + MORE).map(|number| {
            let client = connect(addr);
            (&client).write_all(&number.to_le_bytes()).expect("the kernel takes it");
            client
        }));
        for (number, client) in clients.into_iter().enumerate() {
            expect(&client, &content(number, 0, 1000));
            // The end of this connection makes room for one that waits.
            drop(client);
        }
        serve.join().expect("the target has served all");
        let said = stop(program);
        let most = said.split(' ').nth(4).and_then(|word| word.parse::<usize>().ok()).expect("a number");
        assert!(said.starts_with("1100 connections, at most ") && most <= MANY, "{said}");
        assert!(said.contains(" 0 without the target, 0 cut off; "), "{said}");
    }
}

/// Fails by an end of the forwarder, or by a client that comes later and is not served.
#[test]
fn a_full_table_of_descriptors_is_survived() {
    for procs in PROCS {
        let (listener, to) = target();
        let (program, addr) = start_within(procs, &to.to_string(), &[], Some(24));
        let clients = Vec::from_iter((0..40).map(|_| connect(addr)));
        while !program.complaint().contains("Too many open files") {}
        drop(clients);
        let answers = thread::spawn(move || {
            let is_answered = |stream: TcpStream| {
                let mut said = Vec::new();
                let mut byte = [0];
                while said.len() < 12 && matches!((&stream).read(&mut byte), Ok(1)) {
                    said.push(byte[0]);
                }
                said == b"the last one" && (&stream).write_all(b"is served").is_ok()
            };
            while !is_answered(accept(&listener)) {}
        });
        // A client that comes while the table is still full of the others is reset.
        let is_served = |client: TcpStream| {
            let mut answer = [0; 9];
            (&client).write_all(b"the last one").is_ok()
                && (&client).read_exact(&mut answer).is_ok()
                && &answer == b"is served"
        };
        let begun = Instant::now();
        while !is_served(connect(addr)) {
            assert!(begun.elapsed() < LIMIT, "nobody is served any more");
        }
        answers.join().expect("the target has answered");
        stop(program);
    }
}

/// Fails when the stop cuts short a connection that ends in time, or leaves one without telling it.
#[test]
fn the_stop_lets_connections_end_and_cuts_off_the_rest() {
    for procs in PROCS {
        let (listener, to) = target();
        let (program, addr) = start(procs, to, &["--grace-ms", "60000"]);
        let (ends, idle) = (pair(addr, &listener), pair(addr, &listener));
        (&ends.0).write_all(b"question").expect("it is open");
        program.signal(libc::SIGTERM);
        let begun = Instant::now();
        // The stop has begun when no connection is accepted any more.
        while TcpStream::connect(addr).is_ok() {
            assert!(begun.elapsed() < LIMIT, "it listens");
            thread::sleep(Duration::from_millis(2));
        }
        expect(&ends.1, b"question");
        (&ends.1).write_all(b"answer").expect("it is open");
        expect(&ends.0, b"answer");
        ends.0.shutdown(Shutdown::Write).expect("it is open");
        drop(ends.1);
        expect_end(&ends.0);
        // With the listener go the connections that were not accepted.
        drop((idle, listener));
        let said = program.end();
        assert!(said[0].contains(": 2 finished, ") && said[0].contains(" 0 cut off; "), "{said:?}");

        let (listener, to) = target();
        let (program, addr) = start(procs, to, &["--grace-ms", "50"]);
        let (client, target) = pair(addr, &listener);
        fill(&client, &LONG);
        program.signal(libc::SIGTERM);
        let said = program.end();
        until_reset(&client);
        until_reset(&target);
        assert!(said[0].contains(" 1 cut off; "), "{said:?}");
    }
}

#[test]
fn what_the_forwarder_cannot_do_is_one_line_and_a_status() {
    let (_listener, taken) = target();
    let taken = taken.to_string();
    for (args, status, word) in [
        (&["--to", "127.0.0.1:1", "--listen", &taken][..], 1, "in use"),
        (&["--to", "127.0.0.1:1", "--listen", "nonsense"], 1, "nonsense"),
        (&["--to", "127.0.0.1:1", "--listen", "no-such-host.invalid:1"], 1, "no-such-host.invalid"),
        (&[], 2, "--to"),
        (&["--to", "127.0.0.1"], 2, "HOST:PORT"),
        (&["--to", ":1"], 2, "HOST:PORT"),
        (&["--to", "::1:1"], 2, "HOST:PORT"),
        (&["--to", "host:0"], 2, "HOST:PORT"),
        (&["--to", "host:65536"], 2, "HOST:PORT"),
        (&["--to", "host:1", "--connections", "0"], 2, "100000"),
        (&["--to", "host:1", "--idle-ms"], 2, "--idle-ms"),
        (&["--loud"], 2, "--loud"),
    ] {
        let line = refusal("port_forward", args, status);
        assert!(line.contains(word), "{args:?}: {line}");
    }
}
