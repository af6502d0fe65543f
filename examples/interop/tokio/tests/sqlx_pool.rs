//! `sqlx_pool`, beside a real PostgreSQL.

use harness::{Example, LIMIT, Peer, everywhere, example, peer, postgres, run};
use sqlx::postgres::PgPoolOptions;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// How many clients there are at once.
const MANY: usize = 100;

fn url(addr: SocketAddr) -> String {
    format!("postgres://gmp@{addr}/postgres")
}

fn start(database: &Peer, procs: usize, options: &[&str]) -> Example {
    let mut command = example!("sqlx_pool");
    command.args(["--listen", "127.0.0.1:0", "--database", &url(database.addr())]);
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

/// Fails when a client gets the answer of another client, when a count is lost, when PostgreSQL has more connections than the
/// pool may open, or when each client takes a thread.
#[test]
fn each_client_has_its_own_answers_from_a_few_connections() {
    let (initdb, program) = (peer!("initdb"), peer!("postgres"));
    everywhere(|procs| {
        let database = postgres(&initdb, &program);
        let server = start(&database, procs, &["--pool", "4"]);
        let clients: Vec<_> = (0..MANY).map(|_| Client::new(&server)).collect();
        let counts: Vec<_> = thread::scope(|scope| {
            let count = |(number, mut client): (usize, Client)| {
                scope.spawn(move || {
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
        assert!(threads < MANY / 4, "{threads} threads");
        let mut times = BTreeMap::new();
        counts.iter().for_each(|(shared, _)| *times.entry(*shared).or_insert(0) += 1);
        assert!(times.into_iter().eq((1..=MANY as u64).map(|count| (count, 1))), "each count was given once");
        let opened = on_a_reactor_of_its_own(async {
            let pool = PgPoolOptions::new().max_connections(1).connect(&url(database.addr())).await?;
            let others = "select count(*) from pg_stat_activity where backend_type = 'client backend' \
                          and pid <> pg_backend_pid()";
            sqlx::query_scalar::<_, i64>(others).fetch_one(&pool).await
        });
        assert!((1..=4).contains(&opened.expect("it answers")), "connections of the pool");
        drop(counts);
        let said = server.terminate();
        assert!(said.contains(&format!("served {MANY} connections, 0 cut off")), "{said}");
    });
}

fn on_a_reactor_of_its_own<T>(future: impl Future<Output = T>) -> T {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build();
    tokio.expect("a reactor starts").block_on(future)
}

/// Fails when a client waits for PostgreSQL, or for a connection, longer than its patience; when the pool loses a connection
/// because of that; or when a stop waits for the waiting clients.
#[test]
fn a_deadline_ends_the_wait_for_a_row_and_the_wait_for_a_connection() {
    const CLIENTS: usize = 10;
    let (initdb, program) = (peer!("initdb"), peer!("postgres"));
    everywhere(|procs| {
        let database = postgres(&initdb, &program);
        let server = start(&database, procs, &["--pool", "2", "--patience", "500"]);
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client::new(&server)).collect();
        assert_eq!(clients[0].says("held"), "1");
        on_a_reactor_of_its_own(async {
            let pool = PgPoolOptions::new().max_connections(1).connect(&url(database.addr())).await?;
            let mut holds = pool.begin().await?;
            sqlx::query("update counts set count = 10 where name = 'held'").execute(&mut *holds).await?;
            // Clients that have a connection wait for the row, the others for a connection.
            let late = |client: &mut Client| {
                assert_eq!(client.says("held"), "error: context deadline exceeded");
            };
            thread::scope(|scope| clients.iter_mut().for_each(|client| drop(scope.spawn(|| late(client)))));
            holds.commit().await?;
            Ok::<(), sqlx::Error>(())
        })
        .expect("it answers");
        let mut client = Client::new(&server);
        // The first query can still find the connections busy with queries that were given up.
        harness::eventually("a connection is free again", || client.says("free").parse::<u64>().is_ok());
        // PostgreSQL can have carried out the queries that were given up on those two connections.
        let held: u64 = client.says("held").parse().expect("a count");
        assert!((11..=13).contains(&held), "{held}");

        // The end of the server ends all waits, however long they could last.
        let patient = start(&database, procs, &["--pool", "2", "--patience", "600000"]);
        let mut waiting: Vec<_> = (0..CLIENTS).map(|_| Client::new(&patient)).collect();
        on_a_reactor_of_its_own(async {
            let pool = PgPoolOptions::new().max_connections(2).connect(&url(database.addr())).await?;
            let mut holds = pool.begin().await?;
            sqlx::query("update counts set count = 20 where name = 'held'").execute(&mut *holds).await?;
            for client in &mut waiting {
                client.0.get_mut().write_all(b"held\n").expect("the server listens");
            }
            let waiters =
                "select count(*) from pg_stat_activity where usename = 'gmp' and wait_event_type = 'Lock'";
            let (start, mut waiting) = (Instant::now(), 0);
            while waiting < 2 {
                assert!(start.elapsed() < LIMIT, "{waiting} wait for the row");
                tokio::time::sleep(Duration::from_millis(2)).await;
                // The query runs outside of the transaction, in which it would see the same result each time.
                waiting = sqlx::query_scalar::<_, i64>(waiters).fetch_one(&pool).await?;
            }
            let said = patient.terminate();
            assert!(said.contains(&format!("served {CLIENTS} connections, 0 cut off")), "{said}");
            Ok::<(), sqlx::Error>(())
        })
        .expect("it answers");
        drop(clients);
        server.terminate();
    });
}

/// Fails by a hang, or when the message does not say where PostgreSQL should be.
#[test]
fn a_postgresql_that_is_not_there_is_an_error() {
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
    let refused = run(example!("sqlx_pool").args(["--patience", "100", "--database", &url(nobody)]));
    assert_eq!(refused.status, Some(1), "{refused:?}");
    assert!(refused.stderr.contains(&url(nobody)), "{refused:?}");
}
