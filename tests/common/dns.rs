//! A resolver that a test controls, and DNS messages, made and read by other code than the code under test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{self, Receiver};
use std::thread;

pub const A: u16 = 1;
pub const CNAME: u16 = 5;
pub const SOA: u16 = 6;
pub const TXT: u16 = 16;
pub const OPT: u16 = 41;

pub const SERVFAIL: u8 = 2;
pub const NXDOMAIN: u8 = 3;
/// A pointer to the question's name, as the name of a record.
pub const QUESTION: &[u8] = &[0xc0, 12];

/// Returns a name as it stands in a message.
pub fn wire(name: &str) -> Vec<u8> {
    let labels = name.split('.').filter(|label| !label.is_empty());
    let labels = labels.flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
    labels.chain([0]).collect()
}

pub fn record(name: &[u8], kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u16).to_be_bytes();
    [name, &kind.to_be_bytes(), &[0, 1], &ttl.to_be_bytes(), &length, data].concat()
}

pub fn soa(name: &str, ttl: u32, minimum: u32) -> Vec<u8> {
    let numbers = [7, 3600, 600, 86_400, minimum].map(u32::to_be_bytes).concat();
    record(&wire(name), SOA, ttl, &[wire("ns.example"), wire("root.example"), numbers].concat())
}

/// `fields` has the upper part of the code, the version, and the flags.
pub fn opt(size: u16, fields: u32, options: &[u8]) -> Vec<u8> {
    let length = (options.len() as u16).to_be_bytes();
    [&[0], &OPT.to_be_bytes()[..], &size.to_be_bytes(), &fields.to_be_bytes(), &length, options].concat()
}

/// A message in its parts.
#[derive(Clone, Debug, Default)]
pub struct Message {
    pub id: u16,
    pub flags: [u8; 2],
    pub question: Vec<u8>,
    /// Answers, authorities, additional records.
    pub sections: [Vec<Vec<u8>>; 3],
}

impl Message {
    /// Returns a question as most clients ask it.
    pub fn query(id: u16, name: &str, kind: u16) -> Self {
        let question = [wire(name), kind.to_be_bytes().to_vec(), vec![0, 1]].concat();
        Message { id, flags: [1, 0], question, ..Message::default() }
    }

    pub fn with(mut self, section: usize, record: Vec<u8>) -> Self {
        self.sections[section].push(record);
        self
    }

    pub fn rcode(mut self, code: u8) -> Self {
        self.flags[1] = self.flags[1] & 0xf0 | code;
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let questions = [0, !self.question.is_empty() as u8];
        let counts = self.sections.each_ref().map(|records| (records.len() as u16).to_be_bytes());
        let head = [&self.id.to_be_bytes()[..], &self.flags, &questions, &counts.concat()].concat();
        [head, self.question.clone(), self.sections.concat().concat()].concat()
    }
}

/// What a record of an answer says.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub section: usize,
    pub kind: u16,
    /// What stands in the place of the class; with EDNS the size.
    pub class: u16,
    pub ttl: u32,
    pub data: Vec<u8>,
}

/// A message that was received.
#[derive(Clone, Debug)]
pub struct Received {
    pub id: u16,
    pub flags: [u8; 2],
    /// The question's name as it was spelt, with points, and its type.
    pub name: String,
    pub kind: u16,
    pub question: Vec<u8>,
    pub records: Vec<Record>,
    pub length: usize,
}

impl Received {
    /// Reads a message. Panics if it is malformed anywhere, to its last byte.
    #[track_caller]
    pub fn parse(message: &[u8]) -> Self {
        let u16_at = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
        let name_end = |mut at: usize| loop {
            match message[at] {
                0 => return at + 1,
                0xc0.. => return at + 2,
                label => at += 1 + usize::from(label),
            }
        };
        let (mut at, mut name, mut kind) = (12, String::new(), 0);
        if u16_at(4) == 1 {
            let end = name_end(12);
            let mut label = 12;
            while message[label] > 0 {
                let next = label + 1 + usize::from(message[label]);
                name += &String::from_utf8_lossy(&message[label + 1..next]);
                name.push('.');
                label = next;
            }
            kind = u16_at(end);
            at = end + 4;
        }
        let question = message[12..at].to_vec();
        let mut records = Vec::new();
        for section in 0..3 {
            for _ in 0..u16_at(6 + 2 * section) {
                let fields = name_end(at);
                let data = fields + 10..fields + 10 + usize::from(u16_at(fields + 8));
                at = data.end;
                records.push(Record {
                    section,
                    kind: u16_at(fields),
                    class: u16_at(fields + 2),
                    ttl: u32::from(u16_at(fields + 4)) << 16 | u32::from(u16_at(fields + 6)),
                    data: message[data].to_vec(),
                });
            }
        }
        assert_eq!(at, message.len(), "bytes behind the message");
        let flags = [message[2], message[3]];
        Received { id: u16_at(0), flags, name, kind, question, records, length: message.len() }
    }

    pub fn rcode(&self) -> u8 {
        self.flags[1] & 15
    }

    pub fn is_truncated(&self) -> bool {
        self.flags[0] & 2 != 0
    }

    pub fn edns(&self) -> Option<&Record> {
        self.records.iter().find(|record| record.kind == OPT)
    }
}

enum Way {
    Datagram(Arc<UdpSocket>, SocketAddr),
    Stream(TcpStream),
}

/// A question that has come to the resolver.
pub struct Asked {
    pub query: Received,
    way: Way,
}

impl Asked {
    pub fn over_tcp(&self) -> bool {
        matches!(self.way, Way::Stream(_))
    }

    /// Returns the sender of the question.
    pub fn from(&self) -> SocketAddr {
        match &self.way {
            Way::Datagram(_, from) => *from,
            Way::Stream(stream) => stream.peer_addr().expect("it is connected"),
        }
    }

    /// Returns an answer without records.
    pub fn answer(&self) -> Message {
        let question = self.query.question.clone();
        Message { id: self.query.id, flags: [0x81, 0x80], question, ..Message::default() }
    }

    /// Sends an answer to the client, which may have gone.
    pub fn send(&self, message: &Message) {
        self.send_bytes(&message.bytes());
    }

    pub fn send_bytes(&self, bytes: &[u8]) {
        match &self.way {
            Way::Datagram(socket, from) => drop(socket.send_to(bytes, from)),
            Way::Stream(stream) => {
                let length = (bytes.len() as u16).to_be_bytes();
                drop((&mut &*stream).write_all(&[&length, bytes].concat()));
            }
        }
    }

    /// Answers with one address, as a resolver would.
    pub fn send_address(&self, ttl: u32, address: [u8; 4]) {
        self.send(&self.answer().with(0, record(QUESTION, A, ttl, &address)));
    }
}

/// A resolver on a free port, by UDP and over TCP, whose questions the test answers, or does not.
pub struct Resolver {
    pub addr: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl Resolver {
    pub fn new() -> (Self, Receiver<Asked>) {
        let (socket, listener) = std::iter::repeat_with(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
            let listener = TcpListener::bind(socket.local_addr().expect("it is bound"));
            listener.map(|listener| (Arc::new(socket), listener))
        })
        .find_map(Result::ok)
        .expect("a port that is free for both");
        let addr = listener.local_addr().expect("it is bound");
        let is_over = Arc::new(AtomicBool::new(false));
        let (asks, asked) = mpsc::channel();
        thread::spawn({
            let (asks, is_over) = (asks.clone(), Arc::clone(&is_over));
            move || {
                let mut buffer = [0; 4096];
                while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                    if is_over.load(SeqCst) {
                        return;
                    }
                    let query = Received::parse(&buffer[..length]);
                    let _nobody_listens =
                        asks.send(Asked { query, way: Way::Datagram(Arc::clone(&socket), from) });
                }
            }
        });
        thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    if is_over.load(SeqCst) {
                        return;
                    }
                    let asks = asks.clone();
                    thread::spawn(move || {
                        while let Some(message) = read_message(&stream) {
                            let way = Way::Stream(stream.try_clone().expect("a descriptor"));
                            let query = Received::parse(&message);
                            let _nobody_listens = asks.send(Asked { query, way });
                        }
                    });
                }
            }
        });
        (Resolver { addr, is_over }, asked)
    }

    /// Starts a resolver whose answers `answer` gives.
    pub fn start(mut answer: impl FnMut(Asked) + Send + 'static) -> Self {
        let (resolver, asked) = Resolver::new();
        thread::spawn(move || asked.into_iter().for_each(&mut answer));
        resolver
    }
}

impl Drop for Resolver {
    /// A last message tells the resolver's threads that it is over.
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
        let woken = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(&[], self.addr));
        let _gone_already = (woken, TcpStream::connect(self.addr));
    }
}

/// Returns the next message over TCP, or `None` at the end, and at an error.
pub fn read_message(mut stream: &TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut message).ok()?;
    Some(message)
}

pub fn write_message(mut stream: &TcpStream, message: &[u8]) {
    let length = (message.len() as u16).to_be_bytes();
    stream.write_all(&[&length, message].concat()).expect("the server reads");
}
