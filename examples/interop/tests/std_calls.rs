//! `std_calls`: crates that open std's own sockets, in 200 goroutines that wait at once.

use harness::{Peer, Program, eventually, everywhere, example, peer, postgres};
use std::io::Read;
use std::net::SocketAddr;
use std::process::{Child, Stdio};

const MANY: usize = 200;

fn redis(program: &Program) -> Peer {
    Peer::start(|_, addr: SocketAddr| {
        let mut command = program.command();
        command.args(["--bind", "127.0.0.1", "--save", "", "--port", &addr.port().to_string()]);
        command
    })
}

/// A running `std_calls`, which ends with its test.
struct Calls(Child);

impl Drop for Calls {
    fn drop(&mut self) {
        let _it_has_ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

impl Calls {
    fn start(procs: usize, arguments: &[&str]) -> Self {
        let mut command = example!("std_calls");
        command.env("GMPMAXPROCS", procs.to_string()).args(arguments).stdout(Stdio::piped());
        Calls(command.spawn().expect("it runs"))
    }

    fn threads(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/task", self.0.id())).map_or(0, Iterator::count)
    }

    /// Returns what the program prints at its end.
    #[track_caller]
    fn done(mut self) -> String {
        let mut said = String::new();
        self.0.stdout.take().expect("piped").read_to_string(&mut said).expect("a pipe");
        assert!(self.0.wait().expect("our child").success(), "{said}");
        println!("{said}");
        said
    }
}

/// Fails when a call is lost, when goroutines wait one after another, or when there are many more threads than calls.
#[test]
fn two_hundred_wait_for_redis_by_the_crate_unchanged() {
    let program = peer!("redis-server");
    everywhere(|procs| {
        let redis = redis(&program);
        let client = redis::Client::open(format!("redis://{}/", redis.addr())).expect("an address");
        let mut operator = client.get_connection().expect("Redis listens");
        let calls = Calls::start(procs, &["--redis", &redis.addr().to_string(), "BLPOP", "go", "0"]);
        let all_wait = format!("blocked_clients:{MANY}\r\n");
        eventually("all of them wait in Redis", || {
            let told: String = redis::cmd("INFO").arg("clients").query(&mut operator).expect("it answers");
            told.contains(&all_wait)
        });
        let threads = calls.threads();
        println!("at {procs}: {MANY} wait for Redis, {threads} threads");
        assert!((MANY..MANY + 50).contains(&threads), "{threads}");
        let words: Vec<_> = (0..MANY).map(|number| number.to_string()).collect();
        let _length: usize =
            redis::cmd("RPUSH").arg("go").arg(words).query(&mut operator).expect("it answers");
        let said = calls.done();
        assert!(said.starts_with(&format!("{MANY} of {MANY} done, ")), "{said}");
    });
}

#[test]
fn two_hundred_wait_for_postgres_by_the_crate_unchanged() {
    let (initdb, program) = (peer!("initdb"), peer!("postgres"));
    everywhere(|procs| {
        let postgres = postgres(&initdb, &program);
        let config = format!("host=127.0.0.1 port={} user=gmp dbname=postgres", postgres.addr().port());
        let mut operator = None;
        // PostgreSQL's port answers before PostgreSQL takes connections.
        eventually("PostgreSQL is ready", || {
            operator = ::postgres::Client::connect(&config, ::postgres::NoTls).ok();
            operator.is_some()
        });
        let mut operator = operator.expect("it is ready");
        operator.simple_query("select pg_advisory_lock(1)").expect("it answers");
        let calls = Calls::start(procs, &["--postgres", &config, "select pg_advisory_lock_shared(1)"]);
        eventually("all of them wait for the lock", || {
            let sql = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
            let count: i64 = operator.query_one(sql, &[]).expect("it answers").get(0);
            count == MANY as i64
        });
        let threads = calls.threads();
        println!("at {procs}: {MANY} wait for PostgreSQL, {threads} threads");
        assert!((MANY..MANY + 50).contains(&threads), "{threads}");
        operator.simple_query("select pg_advisory_unlock(1)").expect("it answers");
        let said = calls.done();
        assert!(said.starts_with(&format!("{MANY} of {MANY} done, ")), "{said}");
    });
}

#[test]
fn two_hundred_look_names_up() {
    everywhere(|procs| {
        let said = Calls::start(procs, &["--names", "localhost", "--rounds", "10"]).done();
        assert!(said.starts_with(&format!("{0} of {0} done, ", 10 * MANY)), "{said}");
        let threads = said.split(' ').nth(4).and_then(|word| word.parse::<usize>().ok()).expect("a number");
        assert!(threads < MANY + 50, "{said}");
    });
}
