use crate::support::{everywhere, many, peer_of_child};
use harness::{Peer, peer};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Client};
use std::net::SocketAddr;
use std::time::Duration;

fn connect(url: &str) -> MultiplexedConnection {
    let client = Client::open(url).expect("an address");
    gmp_tokio::run(async move { client.get_multiplexed_async_connection().await }).expect("Redis listens")
}

#[track_caller]
fn beside_redis<F: FnOnce(String) + Send>(f: F) {
    if peer_of_child().is_some() {
        return everywhere("", f);
    }
    let program = peer!("redis-server");
    let redis = Peer::start(|_, addr: SocketAddr| {
        let mut command = program.command();
        command.args(["--bind", "127.0.0.1", "--save", "", "--port", &addr.port().to_string()]);
        command
    });
    everywhere(&format!("redis://{}/", redis.addr()), f);
}

/// All goroutines share one connection. Fails when a count is lost, or when an answer is another goroutine's.
#[test]
fn goroutines_share_a_connection_to_redis() {
    beside_redis(|url| {
        let connection = connect(&url);
        let key = format!("shared {}", std::process::id());
        let (theirs, shared) = (key.clone(), connection.clone());
        many(20, move |n| {
            let mut connection = shared.clone();
            for round in 0..20 {
                let own = format!("own {} {n}", std::process::id());
                let () = gmp::block_on(connection.set(&own, round)).expect("Redis answers");
                gmp::yield_now();
                let seen: u32 = gmp::block_on(connection.get(&own)).expect("Redis answers");
                assert_eq!(seen, round);
                let (mut connection, key) = (connection.clone(), theirs.clone());
                let count = gmp_tokio::run(async move { connection.incr::<_, _, u32>(key, 1).await });
                assert!(count.is_ok_and(|count| (1..=400).contains(&count)));
            }
        });
        let mut connection = connection;
        assert_eq!(gmp::block_on(connection.get::<_, u32>(key)).expect("Redis answers"), 400);
    });
}

/// Fails if a message is lost on its way from one goroutine through Redis to another that waits for it; or if a wait that is
/// ended from outside breaks the connection.
#[test]
fn blocking_commands_wait_on_goroutines() {
    beside_redis(|url| {
        let list = format!("list {}", std::process::id());
        let (theirs, to) = (list.clone(), url.clone());
        let pops = gmp::go(move || {
            let mut connection = connect(&to);
            let waited = gmp::time::timeout(Duration::from_millis(20), || {
                gmp::block_on(connection.blpop::<_, (String, u32)>("nothing", 0.0)).is_ok()
            });
            assert!(waited.is_err(), "nothing comes there");
            // Redis still has that command before all others of its connection, so the test needs another connection.
            let mut connection = connect(&to);
            (0..20)
                .map(|_| {
                    gmp::block_on(connection.blpop::<_, (String, u32)>(&theirs, 0.0)).expect("it comes").1
                })
                .collect::<Vec<_>>()
        });
        let mut connection = connect(&url);
        for n in 0..20 {
            let _: u32 = gmp::block_on(connection.rpush(&list, n)).expect("Redis answers");
            gmp::yield_now();
        }
        assert_eq!(pops.join().expect("it ends"), (0..20).collect::<Vec<_>>());
    });
}
