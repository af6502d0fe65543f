//! The DNS forwarder as the world sees it: between clients and a resolver that are the test's own.

mod answers;
mod bounds;

use crate::program::Program;
use common::dns::{
    A, Asked, CNAME, Message, NXDOMAIN, QUESTION, Received, Resolver, SERVFAIL, TXT, opt, read_message,
    record, soa, wire, write_message,
};
use common::example::{LIMIT, at_once, example, refusal};
use common::random::Random;
use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const PROCS: [&str; 2] = ["1", "4"];
const ADDRESS: [u8; 4] = [192, 0, 2, 7];
const FORMERR: u8 = 1;
const NOTIMP: u8 = 4;

fn start(procs: &str, resolver: &Resolver, args: &[&str]) -> (Program, SocketAddr) {
    start_within(procs, resolver.addr, args, None)
}

/// Starts the forwarder, with at most `descriptors` descriptors if a number is given.
fn start_within(
    procs: &str,
    upstream: SocketAddr,
    args: &[&str],
    descriptors: Option<u64>,
) -> (Program, SocketAddr) {
    let mut command = example("udp_dns");
    command.args(["--listen", "127.0.0.1:0", "--upstream", &upstream.to_string()]);
    command.args(args).env("GMPMAXPROCS", procs);
    Program::server(command, descriptors)
}

/// Starts a resolver that answers every question with one address; returns it with the count of its answers.
fn addresses(ttl: u32) -> (Resolver, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&count);
    let resolver = Resolver::start(move |asked| {
        counts.fetch_add(1, SeqCst);
        asked.send_address(ttl, ADDRESS);
    });
    (resolver, count)
}

/// A client with a socket of its own.
struct Client(UdpSocket);

impl Client {
    fn new(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        socket.connect(server).expect("an address");
        socket.set_read_timeout(Some(LIMIT)).expect("a valid time");
        Client(socket)
    }

    fn send(&self, message: &[u8]) {
        self.0.send(message).expect("room for a datagram");
    }

    #[track_caller]
    fn receive(&self) -> Received {
        let mut buffer = [0; 65_535];
        let length = loop {
            match self.0.recv(&mut buffer) {
                // The kernel does not restart a call with a limit after a signal (signal(7)).
                Err(refused) if refused.kind() == ErrorKind::Interrupted => {}
                received => break received.expect("an answer"),
            }
        };
        Received::parse(&buffer[..length])
    }

    #[track_caller]
    fn ask_with(&self, query: &Message) -> Received {
        self.send(&query.bytes());
        let answer = self.receive();
        assert_eq!((answer.id, answer.flags[0] & 0xf9), (query.id, 0x81), "{answer:?}");
        assert_eq!(answer.question, query.question);
        answer
    }

    #[track_caller]
    fn ask(&self, name: &str) -> Received {
        self.ask_with(&Message::query(name.len() as u16 * 257, name, A))
    }
}

/// Asks over an existing connection.
#[track_caller]
fn ask_over(stream: &TcpStream, query: &Message) -> Received {
    write_message(stream, &query.bytes());
    let answer = Received::parse(&read_message(stream).expect("an answer"));
    assert_eq!((answer.id, &answer.question), (query.id, &query.question));
    answer
}

fn connect(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a valid time");
    stream.set_write_timeout(Some(LIMIT)).expect("a valid time");
    stream
}

#[track_caller]
fn next(asked: &Receiver<Asked>) -> Asked {
    asked.recv_timeout(LIMIT).expect("the forwarder asks")
}

#[track_caller]
fn stop(program: Program) -> String {
    program.signal(libc::SIGTERM);
    let said = program.end();
    assert_eq!(said.len(), 1, "{said:?}");
    said.into_iter().next().expect("one line")
}

/// Fails by a second question upstream, or by a client that is not answered.
#[test]
fn equal_questions_under_way_are_asked_once() {
    const CLIENTS: u16 = 50;
    for procs in PROCS {
        let (resolver, asked) = Resolver::new();
        let (program, addr) = start(procs, &resolver, &["--timeout-ms", "60000"]);
        let clients = Vec::from_iter((0..CLIENTS).map(|id| (id, Client::new(addr))));
        for (id, client) in &clients {
            let name = if id % 2 == 0 { "same.example" } else { "SAME.example" };
            client.send(&Message::query(*id, name, A).bytes());
        }
        // The forwarder takes datagrams in their order.
        let last = Client::new(addr);
        last.send(&Message::query(1, "last.example", A).bytes());
        let (first, second) = (next(&asked), next(&asked));
        assert_eq!(BTreeSet::from([&first.query.name[..], &second.query.name]).len(), 2);
        // A client that comes too late for the flight finds the answer in the cache.
        [first, second].iter().for_each(|asked| asked.send_address(900, ADDRESS));
        for (id, client) in &clients {
            let answer = client.receive();
            assert_eq!((answer.id, answer.name.starts_with("SAME")), (*id, id % 2 == 1));
            assert_eq!(answer.records[0].data, ADDRESS);
        }
        last.receive();
        assert!(asked.try_recv().is_err(), "asked again");
        let said = stop(program);
        assert!(said.contains(" 2 asked, ") && said.contains(" shared, 0 failed, "), "{said}");
    }
}

/// Fails by no answer, by an answer before all tries, or when a question is asked again at once after a failure.
#[test]
fn a_silent_resolver_is_asked_again_and_then_given_up() {
    at_once(PROCS, |procs| {
        let (resolver, asked) = Resolver::new();
        let (program, addr) = start(procs, &resolver, &["--tries", "3", "--timeout-ms", "500"]);
        let client = Client::new(addr);
        client.send(&Message::query(1, "late.example", A).bytes());
        let tries = [next(&asked), next(&asked), next(&asked)];
        assert!(
            tries.iter().all(|again| (again.query.id, again.from()) == (tries[0].query.id, tries[0].from()))
        );
        // An answer to any of the tries counts.
        tries[0].send_address(9, ADDRESS);
        assert_eq!(client.receive().records[0].data, ADDRESS);

        let begun = Instant::now();
        assert_eq!(client.ask("never.example").rcode(), SERVFAIL);
        assert!(begun.elapsed() >= Duration::from_millis(1500), "{:?}", begun.elapsed());
        assert_eq!(client.ask("never.example").rcode(), SERVFAIL);
        assert_eq!(asked.try_iter().count(), 3);
        assert!(program.complaint().contains("no answer from"));
        let said = stop(program);
        assert!(
            said.contains("3 queries, 0 over TCP: 1 from the cache, 2 asked, 0 shared, 1 failed, "),
            "{said}"
        );
    });
}

/// Fails by a wait for an answer from a port that is closed.
#[test]
fn a_resolver_that_is_not_there_is_told_at_once() {
    for procs in PROCS {
        let gone = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
        let (program, addr) = start_within(procs, gone, &["--timeout-ms", "60000"], None);
        assert_eq!(Client::new(addr).ask("any.example").rcode(), SERVFAIL);
        let complaint = program.complaint();
        assert!(complaint.contains("Connection refused"), "{complaint}");
        stop(program);
    }
}

/// Fails when a forged answer is taken, or ends the wait.
#[test]
fn what_is_not_the_answer_is_not_believed() {
    for procs in PROCS {
        let (resolver, asked) = Resolver::new();
        let (program, addr) = start(procs, &resolver, &["--timeout-ms", "60000", "--tries", "1"]);
        let client = Client::new(addr);
        client.send(&Message::query(1, "true.example", A).bytes());
        let asked_for = next(&asked);
        let false_one = asked_for.answer().with(0, record(QUESTION, A, 900, &[6, 6, 6, 6]));
        // This message comes from another port of the same host.
        let elsewhere = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        elsewhere.send_to(&false_one.bytes(), asked_for.from()).expect("room for a datagram");
        let question = |name: &str, kind: u16| Message::query(0, name, kind).question;
        let looping = record(&[0xc0, 33], A, 900, &[6, 6, 6, 6]);
        let mut forward = false_one.clone();
        forward.sections[0][0][1] = 60;
        let strange = [
            Message { id: false_one.id ^ 1, ..false_one.clone() }.bytes(),
            Message { flags: [1, 0x80], ..false_one.clone() }.bytes(),
            Message { flags: [0xa1, 0x80], ..false_one.clone() }.bytes(),
            Message { question: question("fals.example", A), ..false_one.clone() }.bytes(),
            Message { question: question("true.example", TXT), ..false_one.clone() }.bytes(),
            Message { question: Vec::new(), ..false_one.clone() }.bytes(),
            false_one.bytes()[..40].to_vec(),
            [&false_one.bytes()[..], &[0]].concat(),
            asked_for.answer().with(0, looping).bytes(),
            forward.bytes(),
            asked_for.answer().with(0, record(QUESTION, CNAME, 9, &[0xc0, 42])).bytes(),
            Vec::new(),
            vec![0; 11],
        ];
        strange.iter().for_each(|message| asked_for.send_bytes(message));
        asked_for.send_address(900, ADDRESS);
        assert_eq!(client.receive().records[0].data, ADDRESS);
        assert_eq!(client.ask("true.example").records[0].data, ADDRESS);

        // After very many false messages the question goes on over a connection.
        client.send(&Message::query(2, "flood.example", A).bytes());
        let asked_for = next(&asked);
        for id in 1..=20 {
            let false_one = asked_for.answer().with(0, record(QUESTION, A, 900, &[6, 6, 6, 6]));
            asked_for.send(&Message { id: false_one.id ^ id, ..false_one });
        }
        let again = next(&asked);
        assert!(again.over_tcp() && again.query.name == "flood.example.");
        again.send_address(900, ADDRESS);
        assert_eq!(client.receive().records[0].data, ADDRESS);
        let said = stop(program);
        assert!(said.ends_with(&format!(" {} messages not believed", strange.len() + 20)), "{said}");
    }
}

/// Fails by a port or a number that could be guessed from the last one.
#[test]
fn each_question_has_a_port_and_a_number_of_its_own() {
    const MANY: usize = 200;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = Arc::clone(&seen);
    let resolver = Resolver::start(move |asked| {
        sees.lock().expect("no panic").push((asked.query.id, asked.from().port()));
        asked.send_address(0, ADDRESS);
    });
    let (program, addr) = start("4", &resolver, &[]);
    let client = Client::new(addr);
    (0..MANY).for_each(|number| drop(client.ask(&format!("n{number}.example"))));
    stop(program);
    let seen = seen.lock().expect("no panic");
    let ids = BTreeSet::from_iter(seen.iter().map(|asked| asked.0));
    let ports = BTreeSet::from_iter(seen.iter().map(|asked| asked.1));
    assert!(ids.len() > MANY * 9 / 10 && ports.len() > MANY * 9 / 10, "{} {}", ids.len(), ports.len());
    let in_a_row = seen.windows(2).filter(|pair| pair[0].0.abs_diff(pair[1].0) < 100).count();
    assert!(in_a_row < MANY / 10, "{in_a_row}");
}

/// Fails when a question goes round for ever.
#[test]
fn a_forwarder_that_asks_itself_gives_up() {
    for procs in PROCS {
        // An address of this process alone: a port that is free there stays free until the program has it.
        let [_, a, b, c] = std::process::id().to_be_bytes();
        let alone = Ipv4Addr::new(127, a | 64, b, c);
        let addr = UdpSocket::bind((alone, 0)).and_then(|socket| socket.local_addr()).expect("a port");
        let mut command = example("udp_dns");
        let itself = addr.to_string();
        command.args(["--listen", &itself, "--upstream", &itself, "--timeout-ms", "100"]);
        let program = Program::start(command.env("GMPMAXPROCS", procs));
        program.listening();
        assert_eq!(Client::new(addr).ask("any.example").rcode(), SERVFAIL);
        let said = stop(program);
        assert!(said.contains(" 1 asked, "), "{said}");
    }
}

#[test]
fn what_the_dns_forwarder_cannot_do_is_one_line_and_a_status() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let taken = taken.local_addr().map(|addr| (addr.to_string(), taken)).expect("it is bound");
    for (args, status, word) in [
        (&["--upstream", "127.0.0.1", "--listen", &taken.0][..], 1, "in use"),
        (&["--upstream", "127.0.0.1", "--listen", "nonsense"], 1, "nonsense"),
        (&[], 2, "--upstream"),
        (&["--upstream", "localhost"], 2, "localhost"),
        (&["--upstream", "127.0.0.1:0"], 2, "no address"),
        (&["--upstream", "127.0.0.1", "--entries", "0"], 2, "10000000"),
        (&["--idle-ms"], 2, "--idle-ms"),
        (&["--loud"], 2, "--loud"),
    ] {
        let line = refusal("udp_dns", args, status);
        assert!(line.contains(word), "{args:?}: {line}");
    }
}
