//! The echo server as the world sees it: another process, with clients that are not ours.
//!
//! Every test ends within `example::LIMIT` for each of its steps. Connections are checked by contents that depend on the
//! connection and the message.

pub mod clients;
pub mod server;

use clients::{content, converse, exchange, expect, expect_end, fill, reset, send_with_end};
use common::example::{example, output, refusal};
use server::{Server, Totals, eventually};
use std::io::Write;
use std::net::{Shutdown, TcpListener};
use std::process::Command;
use std::thread;
use std::time::Duration;

const PROCS: [usize; 2] = [1, 4];
/// How long activity is measured. No test waits for something by this time.
const OVER: Duration = Duration::from_secs(1);
/// More than the buffers of two sockets hold.
const LONG: usize = 64 << 20;

/// Fails by a wrong byte, by a time-out, or by totals that are not what was sent.
fn std_clients(procs: usize, connections: usize, rounds: usize) {
    let server = Server::start(procs);
    converse(server.addr(), 4.min(connections), connections, rounds, 64);
    let Totals { connections: served, messages, bytes } = server.stop();
    assert_eq!((served, bytes), (connections as u64, (connections * rounds * 64) as u64));
    assert!(messages > 0);
}

#[test]
fn one_std_client_gets_every_byte_back() {
    for procs in PROCS {
        std_clients(procs, 1, 1000);
    }
}

#[test]
fn std_clients_get_every_byte_back_on_64_connections() {
    for procs in PROCS {
        std_clients(procs, 64, 50);
    }
}

#[test]
fn std_clients_get_every_byte_back_on_1000_connections() {
    for procs in PROCS {
        std_clients(procs, 1000, 10);
    }
}

/// Fails by what the script says, or by totals that are not what was sent.
fn python_client(procs: usize, connections: usize, rounds: usize) {
    let server = Server::start(procs);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/examples/echo/client.py");
    let args = [server.addr().to_string(), connections.to_string(), rounds.to_string(), "100".to_owned()];
    let (status, _, complaint) = output(Command::new("python3").arg(script).args(args));
    assert_eq!(status, Some(0), "{complaint}");
    let totals = server.stop();
    assert_eq!((totals.connections, totals.bytes), (connections as u64, (connections * rounds * 100) as u64));
}

#[test]
fn a_python_client_gets_every_byte_back() {
    for procs in PROCS {
        python_client(procs, 1, 200);
        python_client(procs, 64, 20);
    }
    python_client(4, 1000, 5);
}

/// Fails by an error on the stream, a byte too few, or no end.
#[test]
fn a_client_that_ends_its_direction_gets_everything_back_and_then_the_end() {
    for procs in PROCS {
        let server = Server::start(procs);
        let (stream, message) = (server.connect(), content(0, 0, 4 << 20));
        thread::scope(|scope| {
            scope.spawn(|| {
                (&stream).write_all(&message).expect("the server reads");
                stream.shutdown(Shutdown::Write).expect("it is connected");
            });
            expect(&stream, &message);
            expect_end(&stream);
        });
        assert_eq!(server.stop().bytes, message.len() as u64);
    }
}

/// Fails by a time-out when the server saw the data, took the socket for empty, and waits for an event that has passed.
#[test]
fn an_end_in_the_segment_of_the_last_data_is_not_missed() {
    for procs in PROCS {
        let server = Server::start(procs);
        for number in 0..200 {
            // Half of the connections find the server in `accept`, half of them in `read`.
            let stream = server.connect();
            if number % 2 == 0 {
                exchange(&stream, 0, number, 20);
            }
            let last = content(1, number, 20);
            send_with_end(&stream, &last);
            expect(&stream, &last);
            expect_end(&stream);
        }
        assert_eq!(server.stop().bytes, 100 * 20 + 200 * 20);
    }
}

/// Fails when a connection that is gone keeps its descriptor, or when another one suffers.
#[test]
fn a_reset_ends_its_connection_and_no_other() {
    for procs in PROCS {
        let server = Server::start(procs);
        let bystander = server.connect();
        exchange(&bystander, 0, 0, 64);
        let before = server.sockets();
        for number in 1..=50 {
            reset(server.connect());
            // This reset comes while the server waits for the next message.
            let stream = server.connect();
            exchange(&stream, 1, number, 64);
            reset(stream);
            // This reset comes when the server has got data, is on its way to the data, or has lost them with the reset.
            let stream = server.connect();
            (&stream).write_all(&content(2, number, 64)).expect("room for a small message");
            reset(stream);
            exchange(&bystander, 0, number, 64);
        }
        // This reset comes while the server waits for room to write.
        let stuck = server.connect();
        fill(&stuck, &content(3, 0, LONG));
        reset(stuck);
        eventually("the server closes what was reset", || server.sockets() == before);
        exchange(&bystander, 0, 51, 64);
        server.stop();
    }
}

/// Fails by a time-out: with one P, a write that blocks its thread would block all goroutines.
#[test]
fn a_client_that_does_not_read_holds_up_nobody_else() {
    for procs in PROCS {
        let server = Server::start(procs);
        let (slow, long) = (server.connect(), content(0, 0, LONG));
        let sent = fill(&slow, &long);
        let others: Vec<_> = (0..8).map(|_| server.connect()).collect();
        for number in 0..50 {
            for (connection, stream) in others.iter().enumerate() {
                exchange(stream, 1 + connection, number, 64);
            }
        }
        // Nothing was lost meanwhile.
        slow.shutdown(Shutdown::Write).expect("it is connected");
        expect(&slow, &long[..sent]);
        expect_end(&slow);
        assert_eq!(server.stop().bytes, (sent + 8 * 50 * 64) as u64);
    }
}

/// Fails when a thread of the server polls for work every now and then.
#[test]
fn idle_connections_cost_no_processor_time() {
    for procs in PROCS {
        let server = Server::start(procs);
        let idle: Vec<_> = (0..100).map(|_| server.connect()).collect();
        for (connection, stream) in idle.iter().enumerate() {
            exchange(stream, connection, 0, 64);
        }
        let before = server.activity();
        thread::sleep(OVER);
        let after = server.activity();
        // A tick may end in any interval, and there are some last looks after the last work.
        assert!(after.ticks - before.ticks <= 1, "{before:?}, a second later {after:?}");
        assert!(after.sleeps - before.sleeps <= 20, "{before:?}, a second later {after:?}");
        for (connection, stream) in idle.iter().enumerate() {
            exchange(stream, connection, 1, 64);
        }
        server.stop();
    }
}

/// Fails by an error or an end instead of the echo, or by a status that is not 0. `stops.rs` checks how long a stop takes.
#[test]
fn what_was_sent_before_the_signal_is_answered() {
    let both = |procs| [(procs, libc::SIGINT), (procs, libc::SIGTERM)];
    for (procs, signal) in PROCS.into_iter().flat_map(both) {
        let server = Server::start(procs);
        let streams: Vec<_> = (0..20).map(|_| server.connect()).collect();
        for (connection, stream) in streams.iter().enumerate() {
            exchange(stream, connection, 0, 64);
        }
        for (connection, mut stream) in streams.iter().enumerate() {
            stream.write_all(&content(connection, 1, 64)).expect("room for a small message");
        }
        server.signal(signal);
        for (connection, stream) in streams.iter().enumerate() {
            expect(stream, &content(connection, 1, 64));
            expect_end(stream);
        }
        let totals = server.end();
        assert_eq!((totals.connections, totals.bytes), (20, 20 * 2 * 64));
    }
}

/// Fails when a server does not end, or ends with an error.
#[test]
fn a_client_that_does_not_read_does_not_hold_up_the_end() {
    for procs in PROCS {
        let server = Server::start(procs);
        let stuck = server.connect();
        fill(&stuck, &content(0, 0, LONG));
        assert_eq!(server.stop().connections, 1);
    }
}

/// Fails when the server ends, spins, drops a waiting client, or never accepts again.
#[test]
fn a_full_table_of_descriptors_delays_new_connections_only() {
    for procs in PROCS {
        let server = Server::start_with(procs, &[] as &[&str], Some(24));
        let mut streams: Vec<_> = (0..40).map(|_| server.connect()).collect();
        for (connection, mut stream) in streams.iter().enumerate() {
            stream.write_all(&content(connection, 0, 64)).expect("room for a small message");
        }
        // Before that the server's runtime may tell that a thread does without a descriptor.
        while !server.complaint().contains("Too many open files") {}

        for (connection, stream) in streams.iter().take(8).enumerate() {
            expect(stream, &content(connection, 0, 64));
            exchange(stream, connection, 1, 64);
        }
        let before = server.activity();
        thread::sleep(OVER);
        let after = server.activity();
        assert!(after.ticks - before.ticks <= 10, "{before:?}, a second later {after:?}");

        // The last connection is served as soon as there is room.
        let last = streams.pop().expect("there are 40");
        drop(streams);
        expect(&last, &content(39, 0, 64));
        exchange(&server.connect(), 40, 0, 64);
        server.stop();
    }
}

/// Fails by another status, by silence, or by a panic's many lines.
#[test]
fn what_cannot_be_done_is_one_line_and_a_status() {
    let server = Server::start(1);
    let taken = server.addr().to_string();
    let line = refusal("echo_server", &["--listen", &taken], 1);
    assert!(line.contains(&taken) && line.contains("in use"), "{line}");
    let line = refusal("echo_server", &["--listen", "nonsense"], 1);
    assert!(line.contains("nonsense"), "{line}");
    let line = refusal("echo_server", &["--procs", "0"], 1);
    assert!(line.contains("procs: 0"), "{line}");
    let line = refusal("echo_server", &["--loud"], 2);
    assert!(line.contains("--loud"), "{line}");
    let line = refusal("echo_client", &["--size"], 2);
    assert!(line.contains("--size"), "{line}");

    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let nobody = nobody.expect("a free port").to_string();
    let line = refusal("echo_client", &["--connect", &nobody], 1);
    assert!(line.contains(&nobody) && line.contains("refused"), "{line}");
}

/// Fails when a right byte is called wrong, or when the one wrong byte of `--corrupt` is not seen.
#[test]
fn the_demo_and_the_client_find_every_byte_right_or_fail() {
    for procs in ["1", "4"] {
        let demo = ["--demo", "--seconds", "0.3", "--procs", procs];
        let (status, report, complaint) = output(example("echo_server").args(demo));
        assert_eq!(status, Some(0), "{complaint}");
        assert!(report.contains("every byte right") && report.contains("p99.9"), "{report}");
        let wrong = output(example("echo_server").args(demo).arg("--corrupt"));
        assert!(wrong.0 == Some(1) && wrong.2.contains("is wrong"), "{wrong:?}");
    }
    for (args, expected) in [(&[] as &[&str], 0), (&["--corrupt"], 1)] {
        let server = Server::start_with(2, args, None);
        let to = server.addr().to_string();
        let load = ["--connect", &to, "--connections", "10", "--size", "65536", "--seconds", "0.3"];
        let (status, report, complaint) = output(example("echo_client").args(load));
        assert_eq!(status, Some(expected), "{report}{complaint}");
        server.stop();
    }
}
