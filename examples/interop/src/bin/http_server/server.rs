//! The connections. Each has a goroutine with blocking code.

use crate::api;
use crate::body::Body;
use crate::files::Files;
use crate::input::Input;
use crate::request::Request;
use crate::response::Response;
use gmp::net::{TcpListener, TcpStream, is_closed};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::Shutdown;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long the server waits for room in a full table of descriptors.
const PAUSE: Duration = Duration::from_millis(50);
/// For how long, and for how many bytes, the server reads from a client whose connection ends. Without that, a client that
/// still sends would lose the answer.
const LINGER: Duration = Duration::from_secs(1);
const MOST_LINGER: usize = 16 << 20;

/// How long a client may take.
#[derive(Clone, Copy)]
pub struct Limits {
    /// The limit until the next request begins.
    pub idle: Duration,
    pub head: Duration,
    pub body: Duration,
    /// The limit for all requests that are under way when the server stops.
    pub grace: Duration,
}

pub struct Server {
    listener: TcpListener,
    files: Files,
    limits: Limits,
    debug: bool,
    stopping: AtomicBool,
    open: Mutex<BTreeMap<u64, Arc<Connection>>>,
    one_ended: Condvar,
    connections: AtomicU64,
    requests: AtomicU64,
}

struct Connection {
    stream: TcpStream,
    /// `true` while the connection is between two requests. The code that changes the flag, or reads it to stop the server,
    /// holds the lock while it sets the deadline.
    idle: Mutex<bool>,
}

impl Server {
    pub fn new(listener: TcpListener, files: Files, limits: Limits, debug: bool) -> Arc<Self> {
        Arc::new(Server {
            listener,
            files,
            limits,
            debug,
            stopping: AtomicBool::new(false),
            open: Mutex::default(),
            one_ended: Condvar::new(),
            connections: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        })
    }

    /// Accepts until `stop`.
    pub fn serve(self: &Arc<Self>) {
        let mut told = None;
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    told = None;
                    let server = Arc::clone(self);
                    // If no goroutine can be started, the connection is closed.
                    let _refused = gmp::Builder::new().go(move || server.serve_one(stream));
                }
                Err(refused) if is_closed(&refused) => return,
                Err(refused) => {
                    // Usually EMFILE: the connection waits in the kernel until there is room. Accepting again at once would
                    // spin.
                    if told != refused.raw_os_error() {
                        eprintln!("http_server: cannot accept: {refused}; trying again");
                        told = refused.raw_os_error();
                    }
                    gmp::time::sleep(PAUSE);
                }
            }
        }
    }

    fn serve_one(&self, stream: TcpStream) {
        let connection = Arc::new(Connection { stream, idle: Mutex::new(false) });
        let number = self.connections.fetch_add(1, Relaxed);
        {
            let mut open = lock(&self.open);
            if self.stopping.load(Relaxed) {
                return;
            }
            open.insert(number, Arc::clone(&connection));
        }
        let _only_slower_without = connection.stream.set_nodelay(true);
        let _the_client_has_gone = self.converse(&connection);
        lock(&self.open).remove(&number);
        self.one_ended.notify_one();
    }

    /// Answers one request after the other, until one of the two sides ends the connection.
    fn converse(&self, connection: &Connection) -> io::Result<()> {
        let stream = &connection.stream;
        let mut input = Input::new(stream);
        while self.await_request(connection, &mut input)? {
            self.requests.fetch_add(1, Relaxed);
            let (response, only_head, keep_alive) = match input.head() {
                Ok(head) => {
                    stream.set_read_deadline(Some(Instant::now() + self.limits.body))?;
                    self.respond(&head, &mut input)
                }
                Err(refusal) => (refusal, false, false),
            };
            let keep_alive = keep_alive && !self.stopping.load(Relaxed);
            response.write(stream, only_head, keep_alive)?;
            if !keep_alive {
                stream.shutdown(Shutdown::Write)?;
                return linger(stream);
            }
        }
        Ok(())
    }

    /// Waits for the first bytes of a request. Returns `false` if the server will answer no more request.
    fn await_request(&self, connection: &Connection, input: &mut Input) -> io::Result<bool> {
        let begin = |idle: &mut bool| {
            *idle = false;
            connection.stream.set_read_deadline(Some(Instant::now() + self.limits.head))
        };
        if !input.buffered().is_empty() {
            return begin(&mut lock(&connection.idle)).map(|()| true);
        }
        {
            let mut idle = lock(&connection.idle);
            if self.stopping.load(Relaxed) {
                return Ok(false);
            }
            *idle = true;
            connection.stream.set_read_deadline(Some(Instant::now() + self.limits.idle))?;
        }
        let got = input.fill();
        begin(&mut lock(&connection.idle))?;
        Ok(got? > 0)
    }

    /// Returns the answer to a request, then whether the answer goes without its content, and whether another request may
    /// follow.
    fn respond(&self, head: &[u8], input: &mut Input) -> (Response, bool, bool) {
        let request = match Request::parse(head) {
            Ok(request) => request,
            Err(refusal) => return (refusal, false, false),
        };
        let mut body = Body::new(input, &request);
        let only_head = request.method == "HEAD";
        match catch_unwind(AssertUnwindSafe(|| self.handle(&request, &mut body))) {
            Ok(Ok(response) | Err(response)) => (response, only_head, request.keep_alive && body.is_over()),
            // The end of the runtime is not a panic.
            Err(payload) if gmp::is_interrupt(&*payload) => resume_unwind(payload),
            Err(_) => (Response::text(500, "the handler has panicked"), only_head, false),
        }
    }

    fn handle(&self, request: &Request, body: &mut Body) -> Result<Response, Response> {
        match request.segments.split_first() {
            Some((first, [name])) if first == "api" => api::answer(name, request, body, self.debug),
            _ => self.files.answer(request, body),
        }
    }

    /// Ends the server from a plain thread, and returns how many connections and requests it has served and how many
    /// connections were cut off. The server accepts no more connections and ends those without a request. It answers a request
    /// that has begun, with `Connection: close`, if that takes no longer than the grace.
    pub fn stop(&self) -> (u64, u64, usize) {
        {
            let open = lock(&self.open);
            self.stopping.store(true, Relaxed);
            for connection in open.values() {
                let idle = lock(&connection.idle);
                if *idle {
                    let _it_is_gone_already = connection.stream.set_read_deadline(Some(Instant::now()));
                }
            }
        }
        let _nobody_else_does = self.listener.close();
        let wait = |open, limit| {
            let some = |open: &mut BTreeMap<_, _>| !open.is_empty();
            self.one_ended.wait_timeout_while(open, limit, some).expect("nobody panics under the lock").0
        };
        let open = wait(lock(&self.open), self.limits.grace);
        let cut = open.len();
        for connection in open.values() {
            let _it_is_gone_already = connection.stream.shutdown(Shutdown::Both);
        }
        drop(wait(open, PAUSE));
        (self.connections.load(Relaxed), self.requests.load(Relaxed), cut)
    }
}

/// Reads the client's bytes until the end of the stream.
fn linger(mut stream: &TcpStream) -> io::Result<()> {
    stream.set_read_deadline(Some(Instant::now() + LINGER))?;
    let (mut piece, mut left) = ([0; 4 << 10], MOST_LINGER);
    loop {
        match stream.read(&mut piece)? {
            0 => return Ok(()),
            got if got > left => return Ok(()),
            got => left -= got,
        }
    }
}

/// Takes the lock. No goroutine holds it across a call that parks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics under the lock")
}
