//! Counts in Redis: a client sends names, one on each line, and gets back how often each was sent so far.
//!
//! The crate `redis` is bound to std's sockets. By default this program uses the crate's packing and its parser over our
//! streams, with a pool: a goroutine that waits for Redis, or for its turn, parks, and the deadline of its context ends the
//! wait. With `--std` the program uses the crate as it is: each of its calls blocks a thread, which the runtime replaces.

use gmp::chan::{self, Receiver, Sender};
use gmp::context::Context;
use gmp::net::TcpStream;
use gmp_interop::{Args, answer_lines, serve};
use redis::{Cmd, ConnectionLike, FromRedisValue, Parser, RedisResult, Value};
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

const HELP: &str = "\
redis_count [--listen ADDR] [--redis ADDR] [--pool COUNT] [--patience MS] [--idle MS] [--std]
  A client sends names, a line each, and has back how often each was sent so far.
  --pool      how many connections to Redis there are at most (8)
  --patience  how long an answer may take, with the wait for a connection (5,000)
  --idle      how long a client may take for a line, or for its answer (600,000)
  --std       the crate's own sockets, by a thread for each call, one connection for each client
";

/// A connection over our stream.
struct Connection {
    stream: TcpStream,
    parser: Parser,
}

impl Connection {
    fn open(redis: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(redis)?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, parser: Parser::new() })
    }

    /// Sends a command and returns the answer of Redis, which can be an error of Redis itself.
    fn ask(&mut self, cmd: &Cmd) -> RedisResult<Value> {
        (&self.stream).write_all(&cmd.get_packed_command())?;
        self.parser.parse_value(&self.stream)
    }
}

/// A fixed number of places, each with or without a connection. The goroutine that takes a place has its connection for itself.
struct Pool {
    redis: String,
    patience: Duration,
    give: Sender<Option<Connection>>,
    take: Receiver<Option<Connection>>,
}

impl Pool {
    fn new(redis: String, size: usize, patience: Duration) -> Self {
        let (give, take) = chan::bounded(size);
        (0..size).for_each(|_| drop(give.try_send(None)));
        Pool { redis, patience, give, take }
    }

    /// Does the same as `ask`, until `context` is done or the patience is over. The end of the context unwinds the wait,
    /// wherever the goroutine waits.
    fn query(&self, context: &Context, cmd: &Cmd) -> RedisResult<Value> {
        let (context, _cancel) = context.with_timeout(self.patience);
        context.run(|| self.ask(cmd)).map_err(io::Error::other)?
    }

    /// Waits for a place, and asks on its connection. A connection that breaks does not go back to the place, and the next
    /// caller opens another. The command is not repeated, because Redis can have carried it out.
    fn ask(&self, cmd: &Cmd) -> RedisResult<Value> {
        let mut place = Place { pool: self, connection: self.take.recv().expect("the pool has both ends") };
        // The connection is out of its place while an answer can be under way: unwinding leaves the place empty.
        let mut connection = match place.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.redis)?,
        };
        let answer = connection.ask(cmd)?;
        place.connection = Some(connection);
        answer.extract_error()
    }
}

/// A place that was taken. It goes back however its owner ends.
struct Place<'a> {
    pool: &'a Pool,
    connection: Option<Connection>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // The channel has room, because each place was taken out of it.
        let _given = self.pool.give.try_send(self.connection.take());
    }
}

/// Answers each line of `client`.
fn answer(
    client: &TcpStream,
    idle: Duration,
    mut ask: impl FnMut(&Cmd) -> RedisResult<Value>,
) -> io::Result<()> {
    answer_lines(client, idle, |name| {
        match ask(redis::cmd("INCR").arg(name)).and_then(|answer| Ok(u64::from_redis_value(answer)?)) {
            Ok(times) => format!("{times}\n"),
            Err(refused) => format!("error: {}\n", refused.to_string().replace('\n', " ")),
        }
    })
}

fn run() -> io::Result<()> {
    let mut args = Args::new(HELP);
    let listen: String = args.value("--listen").unwrap_or("127.0.0.1:7380".into());
    let redis: String = args.value("--redis").unwrap_or("127.0.0.1:6379".into());
    let size = args.value("--pool").unwrap_or(8);
    let patience = Duration::from_millis(args.value("--patience").unwrap_or(5_000));
    let idle = Duration::from_millis(args.value("--idle").unwrap_or(600_000));
    let std = args.flag("--std");
    args.finish();
    let pool = Pool::new(redis.clone(), size, patience);
    let served = serve(&listen, move |stream, context| {
        let ended = if std {
            let opened =
                redis::Client::open(format!("redis://{redis}/")).and_then(|client| client.get_connection());
            opened
                .map_err(io::Error::other)
                .and_then(|mut connection| answer(stream, idle, |cmd| connection.req_command(cmd)))
        } else {
            answer(stream, idle, |cmd| pool.query(context, cmd))
        };
        if let Err(broken) = ended {
            eprintln!("{broken}");
        }
    })?;
    println!("served {served}");
    Ok(())
}

fn main() -> ExitCode {
    gmp_interop::main("redis_count", run)
}
