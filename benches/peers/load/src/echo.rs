//! One thread, one epoll, a closed loop: each connection has one message under way.

use crate::process::Process;
use crate::{Epoll, Events, SIZE, connect, set_nonblocking};
use peer_common::Found;
use std::fs::File;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

pub struct Load {
    streams: Vec<File>,
    sent: Vec<Instant>,
    got: Vec<usize>,
    took: Vec<u32>,
    epoll: Epoll,
}

pub fn run(address: &str, server: &Process, count: usize, seconds: Duration) -> Found {
    let mut load = Load::new(address, count);
    load.warm_up(seconds);
    load.measure(server, seconds)
}

impl Load {
    pub fn new(address: &str, count: usize) -> Load {
        let streams: Vec<_> = (0..count).map(|_| connect(address)).collect();
        let epoll = Epoll::new();
        for (at, stream) in streams.iter().enumerate() {
            set_nonblocking(stream);
            epoll.watch(stream, libc::EPOLLIN, at);
        }
        let (sent, got) = (vec![Instant::now(); streams.len()], vec![0; streams.len()]);
        Load { streams, sent, got, took: Vec::new(), epoll }
    }

    /// Begins the loop, and goes on for a fifth of the time.
    pub fn warm_up(&mut self, seconds: Duration) {
        for at in 0..self.streams.len() {
            self.send(at);
        }
        self.drive(Instant::now() + seconds / 5);
        self.took.clear();
    }

    /// CPU time of the server for 10^6 requests, in seconds; how many a second; their times, in microseconds.
    pub fn measure(&mut self, server: &Process, seconds: Duration) -> Found {
        let (before, start) = (server.cpu_time(), Instant::now());
        self.drive(start + seconds);
        let (used, took) = (server.cpu_time() - before, start.elapsed());
        let silent = self.sent.iter().filter(|sent| sent.elapsed() > seconds).count();
        assert_eq!(silent, 0, "so many connections had no answer all the time");
        let times = &mut self.took;
        times.sort_unstable();
        let count = times.len();
        assert!(count > 100, "{count} answers in {took:?}");
        let micros = |at: usize| f64::from(times[at]) / 1e3;
        let (p50, p99) = (micros(count / 2), micros(count * 99 / 100));
        // ns a request are CPU seconds for a milliard: s for 10^6 requests are thousandths of that.
        Found::new(used as f64 / count as f64 / 1e3)
            .with("rate", count as f64 / took.as_secs_f64())
            .with("p50", p50)
            .with("p99", p99)
            .with("tail", p99 / p50)
    }

    fn send(&mut self, at: usize) {
        self.sent[at] = Instant::now();
        self.streams[at].write_all(&[at as u8; SIZE]).expect("64 bytes fit into an empty socket");
    }

    fn drive(&mut self, until: Instant) {
        let mut events = Events::new();
        while Instant::now() < until {
            self.epoll.wait(&mut events).for_each(|at| self.receive(at));
        }
    }

    fn receive(&mut self, at: usize) {
        let mut buffer = [0; SIZE];
        let got = self.streams[at].read(&mut buffer[self.got[at]..]).expect("the server answers");
        assert!(got > 0, "the server closed connection {at}");
        assert!(buffer[self.got[at]..][..got].iter().all(|&byte| byte == at as u8), "a wrong answer");
        self.got[at] += got;
        if self.got[at] == SIZE {
            self.got[at] = 0;
            self.took.push(self.sent[at].elapsed().as_nanos() as u32);
            self.send(at);
        }
    }
}
