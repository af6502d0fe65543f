//! Rows whose goroutines talk by TCP. One thread has both sides of a connection around one epoll; at two Ps there are two such
//! threads, or, where main alone asks, the server has the second one.
//!
//! What a side asks the kernel for: a connection is registered when it has to wait for the first time, for edges; a call is
//! made only where it may find something. A call that did less than it was asked for has taken all there was, or all the room,
//! and the next edge tells of more. A side that has sent its message knows that there is nothing to receive yet.

use crate::echo::Epoll;
use peer_common::Found;
use peer_common::shapes::{LARGE, SMALL, block, median_micros, repeated};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

pub fn blocking_handlers(n: u64) -> Found {
    let pool = Pool::of(32);
    let mut server = Loop::new(SMALL).serving(Some(pool));
    repeated(n, |n| server.closed_loop(server.address(), 32, n))
}

pub fn large_messages(threads: u64, n: u64) -> Found {
    by_shares(threads, LARGE, n, |own, n| own.closed_loop(own.address(), 8 / threads, n / threads))
}

pub fn short_connections(threads: u64, n: u64) -> Found {
    by_shares(threads, SMALL, n, |own, n| {
        let address = own.address();
        (0..16 / threads).for_each(|_| own.ask(Asks { address, ids: 0..n / 16, anew: true }));
        own.until_through();
    })
}

/// Each thread has both sides of its share of the connections around an epoll of its own, so that the threads never meet.
fn by_shares(threads: u64, message: usize, n: u64, talk: impl Fn(&mut Loop, u64) + Sync) -> Found {
    let mut own: Vec<_> = (0..threads).map(|_| Loop::new(message).serving(None)).collect();
    repeated(n, |n| {
        let (first, others) = own.split_first_mut().expect("one thread at least");
        std::thread::scope(|scope| {
            others.iter_mut().for_each(|own| drop(scope.spawn(|| talk(own, n))));
            talk(first, n);
        });
    })
}

pub fn idle_bursts(threads: u64, n: u64) -> Found {
    let mut server = Loop::new(SMALL).serving(None);
    let address = server.address();
    let mut streams: Vec<_> = (0..1000).map(|_| connect(address)).collect();
    server.until(|server| server.served == 1000);
    let mut server = if threads == 1 {
        Some(server)
    } else {
        std::thread::spawn(move || server.until(|_| false));
        None
    };
    let mut buffer = [0; SMALL];
    let burst = |round: u64| {
        std::thread::sleep(Duration::from_millis(2));
        // Others each time.
        let of_burst = |i: u64| ((round * 7 + i * 10) % 1000) as usize;
        let start = Instant::now();
        for i in 0..100 {
            buffer[0] = i as u8;
            streams[of_burst(i)].write_all(&buffer).unwrap();
        }
        if let Some(server) = &mut server {
            server.answers = 0;
            server.until(|server| server.answers == 100);
        }
        for i in 0..100 {
            streams[of_burst(i)].read_exact(&mut buffer).unwrap();
            assert_eq!(buffer[0], i as u8);
        }
        start.elapsed()
    };
    median_micros((0..n + n / 10).map(burst).skip(n as usize / 10).collect())
}

/// Over loopback the handshake is over when the call returns: nothing waits.
fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// What a client still has to ask: on one connection, or on a new one each time.
struct Asks {
    address: SocketAddr,
    ids: Range<u64>,
    anew: bool,
}

/// One side of a connection, and how far it has come with its message.
struct Side {
    stream: TcpStream,
    buffer: Vec<u8>,
    at: usize,
    sends: bool,
    /// A client's.
    asks: Option<Asks>,
}

enum Went {
    /// It waits for the next edge.
    Waits,
    /// The server has the whole message.
    Received,
    /// The server has sent the whole answer, and waits.
    Answered,
    /// The client has its last answer on this connection, or the server has come to its end.
    Over,
}

impl Side {
    fn new(stream: TcpStream, message: usize, asks: Option<Asks>) -> Side {
        let mut side = Side { stream, buffer: vec![0; message], at: 0, sends: asks.is_some(), asks };
        side.mark();
        side
    }

    /// Of the next message, the first byte and the last.
    fn mark(&mut self) {
        if let Some(asks) = &self.asks {
            let last = self.buffer.len() - 1;
            (self.buffer[0], self.buffer[last]) = (asks.ids.start as u8, !asks.ids.start as u8);
        }
    }

    fn waits_for(&self) -> i32 {
        if self.sends { libc::EPOLLOUT } else { libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLERR }
    }

    fn go_on(&mut self) -> Went {
        loop {
            let rest = &mut self.buffer[self.at..];
            let done = if self.sends { send(&self.stream, rest) } else { receive(&self.stream, rest) };
            match done {
                None => return Went::Waits,
                Some(0) => {
                    assert!(self.asks.is_none(), "the server has come to its end before its client");
                    return Went::Over;
                }
                Some(count) => self.at += count,
            }
            if self.at < self.buffer.len() {
                return Went::Waits;
            }
            self.at = 0;
            self.sends = !self.sends;
            let Some(asks) = &mut self.asks else {
                return if self.sends { Went::Received } else { Went::Answered };
            };
            if !self.sends {
                self.buffer[0] = 0;
                return Went::Waits;
            }
            let (id, last) = (asks.ids.next().expect("it asked"), self.buffer.len() - 1);
            assert_eq!((self.buffer[0], self.buffer[last]), (id as u8, !id as u8));
            if asks.anew || asks.ids.is_empty() {
                return Went::Over;
            }
            self.mark();
        }
    }
}

/// Nothing: there is none yet. Zero: the other side is through.
fn receive(stream: &TcpStream, buffer: &mut [u8]) -> Option<usize> {
    // SAFETY: the call writes into the buffer.
    let got = unsafe {
        libc::recv(stream.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT)
    };
    at_once(got)
}

/// Nothing: there is no room.
fn send(stream: &TcpStream, buffer: &[u8]) -> Option<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the call reads the buffer.
    let sent = unsafe { libc::send(stream.as_raw_fd(), buffer.as_ptr().cast(), buffer.len(), flags) };
    at_once(sent)
}

fn at_once(done: isize) -> Option<usize> {
    if done < 0 {
        let error = std::io::Error::last_os_error();
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
        return None;
    }
    Some(done as usize)
}

/// An epoll, and the connections that it is asked about, by their descriptors.
struct Loop {
    epoll: Epoll,
    events: Vec<libc::epoll_event>,
    listener: Option<TcpListener>,
    pool: Option<Arc<Pool>>,
    message: usize,
    sides: Vec<Option<Side>>,
    /// Clients that are not through.
    clients: u64,
    /// Connections that were accepted.
    served: u64,
    /// Answers that were sent.
    answers: u64,
}

impl Loop {
    fn new(message: usize) -> Loop {
        peer_common::many_descriptors();
        Loop {
            epoll: Epoll::new(),
            events: vec![libc::epoll_event { events: 0, u64: 0 }; 1024],
            listener: None,
            pool: None,
            message,
            sides: Vec::new(),
            clients: 0,
            served: 0,
            answers: 0,
        }
    }

    fn serving(self, pool: Option<Arc<Pool>>) -> Loop {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        peer_common::widen(&listener);
        listener.set_nonblocking(true).unwrap();
        self.epoll.watch(listener.as_raw_fd(), libc::EPOLLIN | libc::EPOLLET);
        Loop { listener: Some(listener), pool, ..self }
    }

    fn address(&self) -> SocketAddr {
        self.listener.as_ref().expect("it serves").local_addr().unwrap()
    }

    fn closed_loop(&mut self, address: SocketAddr, connections: u64, n: u64) {
        (0..connections).for_each(|_| self.ask(Asks { address, ids: 0..n / connections, anew: false }));
        self.until_through();
    }

    fn ask(&mut self, asks: Asks) {
        if !asks.ids.is_empty() {
            self.clients += 1;
            self.begin(connect(asks.address), Some(asks));
        }
    }

    fn begin(&mut self, stream: TcpStream, asks: Option<Asks>) {
        let side = Side::new(stream, self.message, asks);
        let fd = side.stream.as_raw_fd();
        if let Some(side) = self.go_on(side) {
            // Small messages always have room.
            let room = if self.message == LARGE { libc::EPOLLOUT } else { 0 };
            self.epoll.watch(fd, libc::EPOLLIN | room | libc::EPOLLET);
            let at = fd as usize;
            if at >= self.sides.len() {
                self.sides.resize_with(at + 1, || None);
            }
            self.sides[at] = Some(side);
        }
    }

    fn edge(&mut self, fd: RawFd, of: i32) {
        if self.listener.as_ref().is_some_and(|listener| listener.as_raw_fd() == fd) {
            return self.accept();
        }
        // What has ended may have had an edge before.
        let Some(side) = self.sides[fd as usize].take_if(|side| of & side.waits_for() != 0) else { return };
        // Not if it has ended: a new one may have its descriptor.
        if let Some(side) = self.go_on(side) {
            self.sides[fd as usize] = Some(side);
        }
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.as_ref().expect("it serves").accept() {
            stream.set_nodelay(true).unwrap();
            self.served += 1;
            self.begin(stream, None);
        }
    }

    /// Gives it back if it waits.
    fn go_on(&mut self, mut side: Side) -> Option<Side> {
        loop {
            match side.go_on() {
                Went::Waits => return Some(side),
                Went::Received => {
                    if let Some(pool) = &self.pool {
                        // The pool's thread answers.
                        pool.put(side.stream.as_raw_fd(), &side.buffer);
                        side.sends = false;
                        return Some(side);
                    }
                }
                Went::Answered => {
                    self.answers += 1;
                    return Some(side);
                }
                Went::Over => {
                    let Side { stream, asks, .. } = side;
                    drop(stream);
                    if let Some(asks) = asks {
                        self.clients -= 1;
                        self.ask(asks);
                    }
                    return None;
                }
            }
        }
    }

    fn until_through(&mut self) {
        self.until(|clients| clients.clients == 0);
    }

    fn until(&mut self, is_so: impl Fn(&Loop) -> bool) {
        let mut events = std::mem::take(&mut self.events);
        while !is_so(self) {
            for event in self.epoll.wait(&mut events) {
                self.edge(event.u64 as RawFd, event.events as i32);
            }
        }
        self.events = events;
    }
}

/// Threads that block for a request and then answer it themselves: there is no way back to the loop.
struct Pool {
    jobs: Mutex<Jobs>,
    more: Condvar,
}

struct Jobs {
    waiting: VecDeque<(RawFd, [u8; SMALL])>,
    /// Threads that sleep and have not been woken.
    idle: usize,
}

impl Pool {
    fn of(threads: usize) -> Arc<Pool> {
        let jobs = Mutex::new(Jobs { waiting: VecDeque::with_capacity(threads), idle: 0 });
        let pool = Arc::new(Pool { jobs, more: Condvar::new() });
        for _ in 0..threads {
            let pool = Arc::clone(&pool);
            std::thread::spawn(move || pool.work());
        }
        pool
    }

    fn put(&self, fd: RawFd, message: &[u8]) {
        let mut jobs = self.jobs.lock().unwrap();
        jobs.waiting.push_back((fd, message.try_into().expect("small messages")));
        let wakes = jobs.idle > 0;
        jobs.idle -= usize::from(wakes);
        drop(jobs);
        if wakes {
            self.more.notify_one();
        }
    }

    fn work(&self) {
        loop {
            let mut jobs = self.jobs.lock().unwrap();
            let (fd, message) = loop {
                if let Some(job) = jobs.waiting.pop_front() {
                    break job;
                }
                jobs.idle += 1;
                jobs = self.more.wait(jobs).unwrap();
            };
            drop(jobs);
            block();
            // SAFETY: the call reads the array.
            let sent = unsafe { libc::send(fd, message.as_ptr().cast(), SMALL, libc::MSG_NOSIGNAL) };
            assert_eq!(sent, SMALL as isize, "{}", std::io::Error::last_os_error());
        }
    }
}
