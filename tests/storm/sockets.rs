//! Connections over the loopback to an echo, with limits, contexts and closes in the middle of their calls.

use crate::worker::Worker;
use crate::world::World;
use gmp::net::{TcpListener, TcpStream, is_closed};
use gmp::sync::Semaphore;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Connections a second at most: a port is taken for a minute after its connection's end, and there are some 28,000.
const PACE: u64 = 150;

pub struct Sockets {
    listener: TcpListener,
    addr: SocketAddr,
    begin: Instant,
    connections: AtomicU64,
    /// At most so many connections are served at a time, whatever happens to their peers.
    at_once: Arc<Semaphore>,
}

impl Sockets {
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("it is bound");
        let at_once = Arc::new(Semaphore::new(200));
        Sockets { listener, addr, begin: Instant::now(), connections: AtomicU64::new(0), at_once }
    }

    /// Lets goroutines that accept, or wait for a peer that is gone, go on.
    pub fn close(&self) {
        // The listener may be closed already.
        let _either_way = self.listener.close();
    }

    fn may_connect(&self) -> bool {
        let most = 20 + self.begin.elapsed().as_millis() as u64 * PACE / 1000;
        self.connections.load(SeqCst) < most && self.connections.fetch_add(1, SeqCst) < most
    }
}

/// Serves until the listener is closed, each connection in a goroutine of its own.
pub fn serve(world: &Arc<World>) {
    loop {
        match world.sockets.listener.accept() {
            Ok((stream, _)) => {
                let at_once = Arc::clone(&world.sockets.at_once);
                if at_once.try_acquire(1) {
                    let probe = world.book.probe();
                    gmp::go(move || {
                        echo(&stream);
                        at_once.release(1);
                        probe
                    });
                }
            }
            Err(error) if is_closed(&error) => return,
            Err(_) if world.stops() => return,
            Err(_) => gmp::yield_now(),
        }
    }
}

fn echo(mut stream: &TcpStream) {
    let mut buf = [0; 512];
    // A client that is gone, or says nothing for long, is given up.
    if stream.set_read_timeout(Some(Duration::from_secs(2))).is_ok() {
        while let Ok(got @ 1..) = stream.read(&mut buf) {
            if stream.write_all(&buf[..got]).is_err() {
                break;
            }
        }
    }
}

/// A connection, and how many bytes were written and read: each byte is its place, modulo a prime.
pub struct Connection {
    stream: Arc<TcpStream>,
    written: usize,
    read: usize,
}

fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

impl Worker {
    fn connection(&mut self) -> Option<Connection> {
        if let Some(connection) = self.connection.take() {
            return Some(connection);
        }
        if !self.world.sockets.may_connect() {
            return None;
        }
        let addr = self.world.sockets.addr;
        let limit = self.random.micros(2000);
        let stream = match self.random.below(3) {
            0 => TcpStream::connect_timeout(&addr, limit + Duration::from_micros(1)).ok(),
            1 => self.ended(|_| TcpStream::connect(addr)).and_then(Result::ok),
            _ => TcpStream::connect(addr).ok(),
        }?;
        stream.set_nodelay(true).ok()?;
        Some(Connection { stream: Arc::new(stream), written: 0, read: 0 })
    }
}

/// Writes, reads what comes back, and keeps the connection for the next time if it is whole.
pub fn talk(w: &mut Worker) {
    let Some(mut connection) = w.connection() else { return };
    let stream = Arc::clone(&connection.stream);
    let mut buf = [0; 300];
    let length = 1 + w.random.below(buf.len() as u64) as usize;
    for (at, to) in buf[..length].iter_mut().enumerate() {
        *to = byte(connection.written + at);
    }
    let written = match w.ended(|_| (&*stream).write(&buf[..length])) {
        Some(Ok(written)) => written,
        // The context was there first, and nothing was written.
        Some(Err(_)) | None => 0,
    };
    connection.written += written;
    let limit = Duration::from_micros(1) + w.random.micros(400);
    if stream.set_read_timeout(Some(limit)).is_err() {
        return;
    }
    let got = if w.random.one_in(2) {
        (&*stream).read(&mut buf)
    } else {
        match w.ended(|_| (&*stream).read(&mut buf)) {
            Some(result) => result,
            None => Ok(0),
        }
    };
    let got = got.unwrap_or(0);
    for (at, &is) in buf[..got].iter().enumerate() {
        assert_eq!(is, byte(connection.read + at), "another byte comes back than was written");
    }
    connection.read += got;
    assert!(connection.read <= connection.written, "more comes back than was written");
    let waits = connection.written - connection.read;
    if waits < 20_000 && !w.random.one_in(100) {
        w.connection = Some(connection);
    }
}

/// Reads data that never comes, until a limit that is moved, a context, a shutdown or a close ends the read.
pub fn silence(w: &mut Worker) {
    let Some(connection) = w.connection() else { return };
    let stream = connection.stream;
    let limit = w.random.micros(300);
    let mut buf = [0; 64];
    match w.random.below(5) {
        0 => {
            let other = Arc::clone(&stream);
            w.meanwhile(move || {
                gmp::time::sleep(limit);
                drop(other.close());
            });
            // The echo gives up in two seconds if the connection is not closed.
            while matches!((&*stream).read(&mut buf), Ok(1..)) {}
        }
        1 => {
            let other = Arc::clone(&stream);
            w.meanwhile(move || {
                gmp::time::sleep(limit);
                drop(other.shutdown(Shutdown::Both));
            });
            while matches!((&*stream).read(&mut buf), Ok(1..)) {}
        }
        2 => {
            if stream.set_read_deadline(Some(Instant::now() + Duration::from_secs(3600))).is_err() {
                return;
            }
            let other = Arc::clone(&stream);
            w.meanwhile(move || {
                gmp::time::sleep(limit);
                drop(other.set_read_deadline(Some(Instant::now())));
            });
            while matches!((&*stream).read(&mut buf), Ok(1..)) {}
        }
        3 => {
            w.ended(|_| while matches!((&*stream).read(&mut buf), Ok(1..)) {});
        }
        // The deadline has passed before the read begins.
        _ => {
            let past = Instant::now().checked_sub(limit).unwrap_or_else(Instant::now);
            if stream.set_deadline(Some(past)).is_ok() {
                assert!((&*stream).read(&mut buf).is_err());
            }
        }
    }
}

/// Accepts on a listener to which few connect.
pub fn accept(w: &mut Worker) {
    let Ok(listener) = TcpListener::bind("127.0.0.1:0") else { return };
    let listener = Arc::new(listener);
    let limit = w.random.micros(300);
    match w.random.below(4) {
        0 => drop(w.ended(|_| listener.accept())),
        1 => {
            if listener.set_deadline(Some(Instant::now() + limit)).is_ok() {
                drop(listener.accept());
            }
        }
        2 => {
            let other = Arc::clone(&listener);
            w.meanwhile(move || {
                gmp::time::sleep(limit);
                drop(other.close());
            });
            if listener.set_deadline(Some(Instant::now() + Duration::from_secs(2))).is_ok() {
                drop(listener.accept());
            }
        }
        _ => {
            if !w.world.sockets.may_connect() {
                return;
            }
            let Ok(addr) = listener.local_addr() else { return };
            w.meanwhile(move || drop(TcpStream::connect_timeout(&addr, Duration::from_secs(2))));
            if listener.set_deadline(Some(Instant::now() + Duration::from_secs(2))).is_ok() {
                drop(listener.accept());
            }
        }
    }
}

/// Closes the connection beside a clone that reads.
pub fn close(w: &mut Worker) {
    let Some(connection) = w.connection() else { return };
    let Ok(other) = connection.stream.try_clone() else { return };
    let _timeout = other.set_read_timeout(Some(Duration::from_millis(2)));
    w.meanwhile(move || {
        let mut buf = [0; 64];
        while matches!((&other).read(&mut buf), Ok(1..)) {}
    });
    w.pause();
    drop(connection.stream.close());
}
