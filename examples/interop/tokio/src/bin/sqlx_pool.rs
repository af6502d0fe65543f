//! Counts in PostgreSQL: a client sends names, one on each line, and gets back how often each was sent so far. Each client has
//! a goroutine on our sockets. All goroutines share a pool of `sqlx`. They poll its futures themselves, because the futures
//! borrow. The deadline of a context ends the wait for a connection and the wait for an answer.

use gmp::context::Context;
use gmp::net::TcpStream;
use gmp_interop::{Args, answer_lines, serve_in};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use std::io;
use std::process::ExitCode;
use std::time::Duration;

const HELP: &str = "\
sqlx_pool [--listen ADDR] [--database URL] [--pool COUNT] [--patience MS] [--idle MS]
  A client sends names, a line each, and has back how often each was sent so far. The counts are in the table `counts`.
  --database  where PostgreSQL is (postgres://postgres@127.0.0.1/postgres)
  --pool      how many connections to PostgreSQL there are at most (8)
  --patience  how long an answer may take, with the wait for a connection (5,000)
  --idle      how long a client may take for a line, or for its answer (600,000)
";

const TABLE: &str = "create table if not exists counts (name text primary key, count bigint not null)";
const COUNT: &str = "\
    insert into counts values ($1, 1) on conflict (name) do update set count = counts.count + 1 returning count";

/// Counts one more `name` and returns how many there are. The wait ends when `context` is done or the patience is over.
fn count(pool: &PgPool, context: &Context, patience: Duration, name: &str) -> Result<i64, String> {
    let (context, _cancel) = context.with_timeout(patience);
    let counting = || {
        let counted = gmp::block_on(sqlx::query_scalar(COUNT).bind(name).fetch_one(pool));
        counted.map_err(|refused| refused.to_string())
    };
    context.run(counting).map_err(|ended| ended.to_string())?
}

/// Answers each line of `client`.
fn answer(
    client: &TcpStream,
    idle: Duration,
    mut count: impl FnMut(&str) -> Result<i64, String>,
) -> io::Result<()> {
    answer_lines(client, idle, |name| match count(name) {
        Ok(times) => format!("{times}\n"),
        Err(refused) => format!("error: {}\n", refused.replace('\n', " ")),
    })
}

fn run() -> io::Result<()> {
    let mut args = Args::new(HELP);
    let listen: String = args.value("--listen").unwrap_or("127.0.0.1:7381".into());
    let database: String =
        args.value("--database").unwrap_or("postgres://postgres@127.0.0.1/postgres".into());
    let size = args.value("--pool").unwrap_or(8);
    let patience = Duration::from_millis(args.value("--patience").unwrap_or(5_000));
    let idle = Duration::from_millis(args.value("--idle").unwrap_or(600_000));
    args.finish();

    let reactor = gmp_tokio::Reactor::start()?;
    let pool = reactor.handle().block_on(async {
        // A connection whose query was given up goes back to the pool when PostgreSQL is done with the query, so the query has
        // a limit too. It is later than that of the context, which is the limit that clients are told of.
        let late = patience * 2;
        let limit = late.as_millis().to_string();
        let options = database.parse::<PgConnectOptions>()?.options([("statement_timeout", limit)]);
        // If no server listens, sqlx tries again for this long.
        let pool = PgPoolOptions::new().max_connections(size).acquire_timeout(late);
        let pool = pool.connect_with(options).await?;
        sqlx::query(TABLE).execute(&pool).await?;
        Ok(pool)
    });
    let pool = pool.map_err(|refused: sqlx::Error| io::Error::other(format!("{database}: {refused}")))?;
    let theirs = pool.clone();
    let served = serve_in(reactor.install(gmp::Runtime::builder()), &listen, move |stream, context| {
        if let Err(broken) = answer(stream, idle, |name| count(&theirs, context, patience, name)) {
            eprintln!("{broken}");
        }
    })?;
    // The pool tells PostgreSQL that its clients go. The program waits for that no longer than a stop may take.
    let closing = async { tokio::time::timeout(Duration::from_millis(200), pool.close()).await };
    let _at_once_if_not = reactor.handle().block_on(closing);
    println!("served {served}");
    Ok(())
}

fn main() -> ExitCode {
    gmp_interop::main("sqlx_pool", run)
}
