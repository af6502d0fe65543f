//! The effect of crates on std's own sockets on other goroutines: on a quiet machine, 99 of 100 sleeps of 5 ms beside 100 such
//! calls take at most 10 ms.

use harness::{Peer, eventually, everywhere, example, peer, postgres, run};
use std::net::SocketAddr;

/// Runs the calls for several seconds, so that the common start of all calls is only a small part of the time.
fn bystanders_are_unharmed(procs: usize, arguments: &[&str]) {
    let mut command = example!("std_calls");
    command.env("GMPMAXPROCS", procs.to_string()).args(["--calls", "100", "--limit", "10"]).args(arguments);
    let done = run(&mut command);
    println!("at {procs}: {}", done.text());
    assert_eq!(done.status, Some(0), "{}", done.stderr);
}

#[test]
fn beside_redis() {
    let program = peer!("redis-server");
    everywhere(|procs| {
        let redis = Peer::start(|_, addr: SocketAddr| {
            let mut command = program.command();
            command.args(["--bind", "127.0.0.1", "--save", "", "--port", &addr.port().to_string()]);
            command
        });
        let addr = redis.addr().to_string();
        bystanders_are_unharmed(procs, &["--redis", &addr, "--rounds", "50", "BLPOP", "nothing", "0.1"]);
    });
}

#[test]
fn beside_postgres() {
    let (initdb, program) = (peer!("initdb"), peer!("postgres"));
    everywhere(|procs| {
        let postgres = postgres(&initdb, &program);
        let config = format!("host=127.0.0.1 port={} user=gmp dbname=postgres", postgres.addr().port());
        eventually("PostgreSQL is ready", || ::postgres::Client::connect(&config, ::postgres::NoTls).is_ok());
        bystanders_are_unharmed(procs, &["--postgres", &config, "--rounds", "50", "select pg_sleep(0.1)"]);
    });
}
