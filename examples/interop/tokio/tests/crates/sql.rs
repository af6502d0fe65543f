use crate::support::{everywhere, many, peer_of_child};
use harness::{peer, postgres};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::SqlitePoolOptions;
use std::time::Duration;

/// SQLite has threads of its own, which wake goroutines. Fails if a row is lost, or a connection of the pool.
#[test]
fn sqlx_on_sqlite_counts_every_row() {
    everywhere("", |_| {
        let opening = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:");
        let pool = gmp::block_on(opening).expect("it is in memory");
        gmp::block_on(sqlx::query("create table said (who integer, what text)").execute(&pool))
            .expect("a table");
        let theirs = pool.clone();
        many(20, move |n| {
            for round in 0..10 {
                let mut transaction = gmp::block_on(theirs.begin()).expect("a connection comes free");
                let what = format!("{n} says {round}");
                let insert = sqlx::query("insert into said values (?, ?)").bind(n as i64).bind(&what);
                gmp::block_on(insert.execute(&mut *transaction)).expect("a row");
                gmp::yield_now();
                if round % 2 == 0 {
                    gmp::block_on(transaction.commit()).expect("it is kept");
                } else {
                    // The drop rolls the transaction back and returns its connection to the pool.
                    drop(transaction);
                }
            }
        });
        let count: (i64, i64) =
            gmp::block_on(sqlx::query_as("select count(*), count(distinct what) from said").fetch_one(&pool))
                .expect("a count");
        assert_eq!(count, (100, 100));
        gmp_tokio::run(async move { pool.close().await });
    });
}

#[track_caller]
fn beside_postgres<F: FnOnce(String) + Send>(f: F) {
    if peer_of_child().is_some() {
        return everywhere("", f);
    }
    let (initdb, server) = (peer!("initdb"), peer!("postgres"));
    let database = postgres(&initdb, &server);
    everywhere(&format!("postgres://gmp@{}/postgres", database.addr()), f);
}

/// Fails when an update is lost or counted twice, and by tokio's panic where a transaction that was dropped is taken back.
#[test]
fn sqlx_on_postgresql_keeps_what_was_committed() {
    beside_postgres(|url| {
        let pool = gmp::block_on(PgPoolOptions::new().max_connections(8).connect(&url)).expect("it listens");
        let table = format!("counts{}", std::process::id());
        let create = format!("create table {table} (name text primary key, count bigint not null)");
        gmp::block_on(sqlx::query(&create).execute(&pool)).expect("a table");
        let (theirs, of) = (pool.clone(), table.clone());
        many(20, move |n| {
            let add = format!(
                "insert into {of} as old values ($1, 1) on conflict (name) do update set count = old.count + 1 \
                 returning count"
            );
            for round in 0..10 {
                let mut transaction = gmp::block_on(theirs.begin()).expect("a connection comes free");
                let own: i64 = gmp::block_on(
                    sqlx::query_scalar(&add).bind(format!("own {n}")).fetch_one(&mut *transaction),
                )
                .expect("a count");
                assert_eq!(own, round / 2 + 1, "two of three are its own");
                gmp::yield_now();
                if round % 2 == 1 {
                    gmp::block_on(transaction.commit()).expect("it is kept");
                } else {
                    drop(transaction);
                }
                // The future runs as a task, with clones of what it needs.
                let (pool, add) = (theirs.clone(), add.clone());
                let shared = gmp_tokio::run(async move {
                    sqlx::query_scalar::<_, i64>(&add).bind("shared").fetch_one(&pool).await
                });
                assert!(shared.is_ok_and(|count| (1..=200).contains(&count)));
            }
        });
        let sum = format!("select sum(count)::bigint from {table}");
        let sum: i64 = gmp::block_on(sqlx::query_scalar(&sum).fetch_one(&pool)).expect("a sum");
        assert_eq!(sum, 20 * 5 + 200);
        gmp::block_on(pool.close());
    });
}

/// Fails if a limit of ours does not end a query, or costs the pool its connection; PostgreSQL ends the query some time later.
#[test]
fn a_query_that_a_limit_ends_gives_its_connection_up() {
    beside_postgres(|url| {
        let options: PgConnectOptions = url.parse().expect("a URL");
        let options = options.options([("statement_timeout", "300ms")]);
        let opening = PgPoolOptions::new().max_connections(2).connect_with(options);
        let pool = gmp::block_on(opening).expect("it listens");
        many(6, move |n| {
            let late = gmp::time::timeout(Duration::from_millis(50), || {
                gmp::block_on(sqlx::query("select pg_sleep(600)").execute(&pool)).is_ok()
            });
            assert!(late.is_err());
            let pool = pool.clone();
            let answer = gmp_tokio::run(async move {
                sqlx::query_scalar::<_, i32>("select $1 + 1").bind(n as i32).fetch_one(&pool).await
            });
            assert_eq!(answer.expect("a connection is left"), n as i32 + 1);
        });
    });
}
