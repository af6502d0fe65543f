//! The clients' side: queries by datagrams and over TCP, and their answers.

use super::cache::Cache;
use super::message::{Answer, Key, NoQuery, Query, SERVER_FAILURE};
use super::upstream::{Upstream, read_message, write_message};
use gmp::context::Context;
use gmp::net::{TcpListener, TcpStream, UdpSocket};
use gmp::sync::{Mutex, OwnedSemaphorePermit, Semaphore, SingleFlight};
use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A longer query is malformed.
const MOST_QUERY: usize = 4 << 10;
/// How many queries of one connection are under way. The next one waits.
const MOST_PIPELINED: usize = 16;
/// The longest message over TCP.
const MOST_TCP: usize = u16::MAX as usize;
/// How long the server waits for room in a full table of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

pub struct Server {
    pub upstream: Upstream,
    pub cache: Cache,
    /// Equal questions that come while the first one is under way wait for its answer.
    pub flights: SingleFlight<Key, Arc<Answer>>,
    /// For queries that the cache can't answer.
    pub room: Arc<Semaphore>,
    /// For connections.
    pub places: Arc<Semaphore>,
    /// How long a connection may be silent, and take for a query or for an answer.
    pub idle: Duration,
    /// When this is done, the server takes no more queries.
    pub stop: Context,
    /// When this is done, queries under way are given up.
    pub cut: Context,
    pub counts: Counts,
    pub complaints: Complaints,
}

#[derive(Default)]
pub struct Counts {
    queries: AtomicU64,
    over_tcp: AtomicU64,
    cached: AtomicU64,
    asked: AtomicU64,
    shared: AtomicU64,
    failed: AtomicU64,
    turned_away: AtomicU64,
    malformed: AtomicU64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { queries, over_tcp, cached, asked, shared, failed, turned_away, malformed } = self;
        let all = [queries, over_tcp, cached, asked, shared, failed, turned_away, malformed];
        let [queries, over_tcp, cached, asked, shared, failed, turned_away, malformed] =
            all.map(|count| count.load(Relaxed));
        write!(f, "{queries} queries, {over_tcp} over TCP: {cached} from the cache, {asked} asked, ")?;
        write!(f, "{shared} shared, {failed} failed, {turned_away} turned away; {malformed} malformed")
    }
}

fn count(of: &AtomicU64) {
    of.fetch_add(1, Relaxed);
}

/// Reports an error once, and again if another error came in between.
#[derive(Default)]
pub struct Complaints(std::sync::Mutex<String>);

impl Complaints {
    pub fn tell(&self, wrong: String) {
        let mut last = self.0.lock().expect("nobody panics under the lock");
        if *last != wrong {
            eprintln!("udp_dns: {wrong}");
            *last = wrong;
        }
    }
}

/// A client's connection. It ends when its reader and its last answer have ended.
struct Connection {
    stream: TcpStream,
    /// One answer after the other.
    writing: Mutex<()>,
    pipeline: Arc<Semaphore>,
    _place: OwnedSemaphorePermit,
}

impl Server {
    /// Blocks the goroutine until there is an answer, which may say that there is none.
    fn resolve(&self, key: &Key) -> Arc<Answer> {
        let mut is_first = false;
        let (answer, _) = self.flights.work(key, || {
            is_first = true;
            // Another flight may have landed just now.
            if let Some(answer) = self.cache.get(key) {
                count(&self.counts.cached);
                return answer;
            }
            count(&self.counts.asked);
            let asked = self.cut.run(|| self.upstream.ask(key)).unwrap_or_else(|done| Err(done.into()));
            let answer = Arc::new(asked.unwrap_or_else(|failed| {
                if self.cut.err().is_none() {
                    self.complaints.tell(format!("no answer from {}: {failed}", self.upstream.addr));
                }
                Answer::failure(key, SERVER_FAILURE)
            }));
            self.cache.put(key, &answer);
            answer
        });
        if !is_first {
            count(&self.counts.shared);
        }
        answer
    }

    /// Parses a query. If the message is no query, sends the answer that says so by `tell`.
    fn query(&self, message: &[u8], tell: impl FnOnce(&[u8])) -> Option<Query> {
        match Query::parse(message) {
            Ok(query) => {
                count(&self.counts.queries);
                return Some(query);
            }
            Err(NoQuery::Refused(answer)) => tell(&answer),
            Err(NoQuery::Ignored) => {}
        }
        count(&self.counts.malformed);
        None
    }

    /// Answers datagrams until `stop` is done.
    pub fn serve_udp(self: &Arc<Self>, socket: &Arc<UdpSocket>) {
        let mut buffer = vec![0; MOST_QUERY];
        // Asked each time: a context ends waits, and if the next datagram is there already, nothing waits.
        while self.stop.err().is_none() {
            match self.stop.run(|| socket.recv_from(&mut buffer)) {
                Ok(Ok((length, from))) => self.take(socket, &buffer[..length], from),
                Ok(Err(broken)) if self.stop.err().is_none() => {
                    self.complaints.tell(format!("cannot receive: {broken}; trying again"));
                    gmp::time::sleep(PAUSE);
                }
                _ => return,
            }
        }
    }

    fn take(self: &Arc<Self>, socket: &Arc<UdpSocket>, message: &[u8], from: SocketAddr) {
        // A client that can't be reached asks again, or does not.
        let send = |answer: &[u8]| drop(socket.send_to(answer, from));
        let Some(query) = self.query(message, send) else { return };
        if let Some(answer) = self.cache.get(&query.key) {
            count(&self.counts.cached);
            return send(&answer.to(&query, query.most));
        }
        // A client whose datagram had to wait in line would give up before its answer: better to tell it at once.
        let Ok(permit) = self.room.try_acquire_owned(1) else {
            count(&self.counts.turned_away);
            return send(&Answer::failure(&query.key, SERVER_FAILURE).to(&query, query.most));
        };
        let (server, socket) = (Arc::clone(self), Arc::clone(socket));
        let serve = move || {
            let _permit = permit;
            let answer = server.answered(&query.key);
            let _unreachable = socket.send_to(&answer.to(&query, query.most), from);
        };
        if let Err(refused) = gmp::Builder::new().go(serve) {
            self.complaints.tell(format!("cannot serve a query: {refused}"));
        }
    }

    fn answered(&self, key: &Key) -> Arc<Answer> {
        let answer = self.resolve(key);
        if answer.is_failure() {
            count(&self.counts.failed);
        }
        answer
    }

    /// Accepts until `stop` is done. A connection for which there is no place waits in the kernel.
    pub fn serve_tcp(self: &Arc<Self>, listener: &TcpListener) {
        while let Ok(place) = self.places.acquire_owned_ctx(&self.stop, 1) {
            match self.stop.run(|| listener.accept()) {
                Ok(Ok((stream, _))) => {
                    let pipeline = Arc::new(Semaphore::new(MOST_PIPELINED));
                    let connection =
                        Arc::new(Connection { stream, writing: Mutex::new(()), pipeline, _place: place });
                    let server = Arc::clone(self);
                    // The client is gone, or too slow: nobody is left to be told of an error.
                    let serve = move || drop(server.converse(&connection));
                    if let Err(refused) = gmp::Builder::new().go(serve) {
                        self.complaints.tell(format!("cannot serve a connection: {refused}"));
                    }
                }
                Ok(Err(refused)) if self.stop.err().is_none() => {
                    // Mostly EMFILE: the connection waits in the kernel until there is room.
                    self.complaints.tell(format!("cannot accept: {refused}; trying again"));
                    gmp::time::sleep(PAUSE);
                }
                _ => return,
            }
        }
    }

    /// Takes one query after the other, and does not wait for the answers, which are sent in the order in which they come (RFC
    /// 7766). Ends if the client ends the connection, is silent or too slow, and with `stop`.
    fn converse(self: &Arc<Self>, connection: &Arc<Connection>) -> io::Result<()> {
        let stream = &connection.stream;
        stream.set_write_timeout(Some(self.idle))?;
        let _only_slower_without = stream.set_nodelay(true);
        let mut reader = BufReader::new(stream);
        loop {
            // One limit for a whole query: a byte now and then does not keep a connection.
            stream.set_read_deadline(Some(Instant::now() + self.idle))?;
            let waited = self.stop.run(|| reader.fill_buf().map(<[u8]>::is_empty));
            let (Ok(Ok(false)), None) = (waited, self.stop.err()) else { return Ok(()) };
            let message = read_message(&mut reader)?;
            let Some(query) = self.query(&message, |answer| connection.send(answer)) else { continue };
            count(&self.counts.over_tcp);
            let Ok(turn) = connection.pipeline.acquire_owned_ctx(&self.stop, 1) else { return Ok(()) };
            let (server, connection) = (Arc::clone(self), Arc::clone(connection));
            let serve = move || {
                let _turn = turn;
                let answer = server.for_connection(&query.key);
                connection.send(&answer.to(&query, MOST_TCP));
            };
            if let Err(refused) = gmp::Builder::new().go(serve) {
                self.complaints.tell(format!("cannot serve a query: {refused}"));
            }
        }
    }

    /// Answers a query of a connection, which waits in line for room: its connection then waits, too. The room is free again
    /// before the answer is sent, which may take long with a slow client.
    fn for_connection(&self, key: &Key) -> Arc<Answer> {
        if let Some(answer) = self.cache.get(key) {
            count(&self.counts.cached);
            return answer;
        }
        match self.room.acquire_owned_ctx(&self.cut, 1) {
            Ok(_permit) => self.answered(key),
            // Given up, as all queries that are under way then.
            Err(_) => {
                count(&self.counts.failed);
                Arc::new(Answer::failure(key, SERVER_FAILURE))
            }
        }
    }
}

impl Connection {
    fn send(&self, answer: &[u8]) {
        let _one = self.writing.lock();
        if write_message(&mut &self.stream, answer).is_err() {
            // Ends the reader, and the goroutines that wait to write.
            let _gone_already = self.stream.shutdown(Shutdown::Both);
        }
    }
}
