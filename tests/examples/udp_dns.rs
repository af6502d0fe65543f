//! The DNS forwarder as the world sees it: between clients and a resolver that are the test's own.

use crate::program::Program;
use common::dns::{
    A, Asked, CNAME, Message, NXDOMAIN, QUESTION, Received, Resolver, SERVFAIL, TXT, opt, read_message,
    record, soa, wire, write_message,
};
use common::example::{LIMIT, example, refusal};
use common::random::Random;
use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
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

/// With at most so many descriptors.
fn start_within(
    procs: &str,
    upstream: SocketAddr,
    args: &[&str],
    descriptors: Option<u64>,
) -> (Program, SocketAddr) {
    let mut command = example("udp_dns");
    command.args(["--listen", "127.0.0.1:0", "--upstream", &upstream.to_string()]);
    command.args(args).env("GMPMAXPROCS", procs);
    if let Some(most) = descriptors {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: between fork and exec the closure makes one system call, and reads errno if it failed.
        unsafe {
            command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
    }
    let program = Program::start(&mut command);
    let addr = program.listening();
    (program, addr)
}

/// A resolver that answers every question with one address, and counts.
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
        let length = self.0.recv(&mut buffer).expect("an answer");
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

/// Asks over a connection that there is.
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

/// Fails by a second question upstream, by a TTL that stays or that goes on below its end, or by another client's spelling.
#[test]
fn answers_are_kept_while_their_ttls_count_down() {
    for procs in PROCS {
        let (resolver, count) = addresses(3);
        let (program, addr) = start(procs, &resolver, &[]);
        let (client, other) = (Client::new(addr), Client::new(addr));
        let begun = Instant::now();
        let mut seen = BTreeSet::new();
        while count.load(SeqCst) < 2 {
            for (client, name) in [(&client, "www.example.org"), (&other, "WWW.eXample.ORG")] {
                let answer = client.ask(name);
                assert_eq!(answer.name, format!("{name}."));
                let [record] = &answer.records[..] else { panic!("{answer:?}") };
                assert_eq!((record.kind, &record.data[..]), (A, &ADDRESS[..]));
                seen.insert(record.ttl);
            }
            assert!(begun.elapsed() < LIMIT, "it is kept for ever");
            thread::sleep(Duration::from_millis(20));
        }
        assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
        assert!(seen.len() > 1 && seen.is_subset(&BTreeSet::from([1, 2, 3])), "{seen:?}");
        // Another type, and another class, are other questions.
        client.ask_with(&Message::query(1, "www.example.org", TXT));
        assert_eq!(count.load(SeqCst), 3);
        let said = stop(program);
        assert!(said.contains(", 0 over TCP: ") && said.contains(" 3 asked, 0 shared, 0 failed, "), "{said}");
    }
}

/// Fails by an answer that is kept without a time of its own, or not kept for its time.
#[test]
fn that_there_is_no_such_thing_is_kept_as_long_as_the_soa_says() {
    for procs in PROCS {
        let count = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&count);
        let resolver = Resolver::start(move |asked| {
            counts.fetch_add(1, SeqCst);
            let answer = asked.answer();
            let cname = record(QUESTION, CNAME, 900, &wire("gone.example"));
            asked.send(&match asked.query.name.split('.').next().expect("a label") {
                "none" => answer.rcode(NXDOMAIN).with(1, soa("example", 900, 2)),
                "empty" => answer.with(1, soa("example", 2, 900)),
                "alias" => answer.rcode(NXDOMAIN).with(0, cname).with(1, soa("example", 900, 2)),
                "lasting" => answer.rcode(NXDOMAIN).with(1, soa("example", u32::MAX >> 1, u32::MAX)),
                "unknown" => answer.rcode(NXDOMAIN),
                "referral" => answer.with(1, record(QUESTION, 2, 900, &wire("ns.example"))),
                "now" => answer.with(0, record(QUESTION, A, 0, &ADDRESS)),
                "mixed" => {
                    let short = record(QUESTION, A, 0, &ADDRESS);
                    answer.with(0, record(QUESTION, A, 900, &ADDRESS)).with(0, short)
                }
                "negative" => answer.with(0, record(QUESTION, A, 1 << 31, &ADDRESS)),
                name => panic!("{name}"),
            });
        });
        let (program, addr) = start(procs, &resolver, &[]);
        let client = Client::new(addr);
        let asked_by = |name: &str| {
            let before = count.load(SeqCst);
            (client.ask(name), count.load(SeqCst) - before)
        };
        for (name, rcode) in [("none", NXDOMAIN), ("empty", 0), ("alias", NXDOMAIN)] {
            let begun = Instant::now();
            let (answer, asked) = asked_by(name);
            assert_eq!((answer.rcode(), asked), (rcode, 1), "{name}");
            assert_eq!(answer.records.last().expect("the SOA").ttl, 2, "{name}");
            loop {
                let (answer, asked) = asked_by(name);
                assert_eq!(answer.rcode(), rcode);
                assert!(begun.elapsed() < LIMIT, "{name} is kept for ever");
                if asked == 1 {
                    break;
                }
                thread::sleep(Duration::from_millis(20));
            }
            assert!(begun.elapsed() >= Duration::from_secs(2), "{name}: {:?}", begun.elapsed());
        }
        assert_eq!(asked_by("lasting").0.records[0].ttl, 10_800);
        assert_eq!(asked_by("lasting").1, 0);
        for name in ["unknown", "referral", "now", "mixed", "negative"] {
            for _ in 0..3 {
                assert_eq!(asked_by(name).1, 1, "{name}");
            }
        }
        stop(program);
    }
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
        // Datagrams are taken in their order.
        let last = Client::new(addr);
        last.send(&Message::query(1, "last.example", A).bytes());
        let (first, second) = (next(&asked), next(&asked));
        assert_eq!(BTreeSet::from([&first.query.name[..], &second.query.name]).len(), 2);
        // Whoever comes too late for the flight finds the answer in the cache.
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

/// Fails by no answer, by one that comes before all tries, or by a question that is asked again at once after a failure.
#[test]
fn a_silent_resolver_is_asked_again_and_then_given_up() {
    for procs in PROCS {
        let (resolver, asked) = Resolver::new();
        let (program, addr) = start(procs, &resolver, &["--tries", "3", "--timeout-ms", "500"]);
        let client = Client::new(addr);
        client.send(&Message::query(1, "late.example", A).bytes());
        let tries = [next(&asked), next(&asked), next(&asked)];
        assert!(
            tries.iter().all(|again| (again.query.id, again.from()) == (tries[0].query.id, tries[0].from()))
        );
        // An answer to any of them is one.
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
    }
}

/// Fails by a wait for a port that nobody has.
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

/// Fails by an answer that somebody else has made, or by a wait that such an answer ends.
#[test]
fn what_is_not_the_answer_is_not_believed() {
    for procs in PROCS {
        let (resolver, asked) = Resolver::new();
        let (program, addr) = start(procs, &resolver, &["--timeout-ms", "60000", "--tries", "1"]);
        let client = Client::new(addr);
        client.send(&Message::query(1, "true.example", A).bytes());
        let asked_for = next(&asked);
        let false_one = asked_for.answer().with(0, record(QUESTION, A, 900, &[6, 6, 6, 6]));
        // From another port of the same host.
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

        // Very many of them: the question goes on over a connection.
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

/// Fails by an answer that lacks records and does not say so, or by one that can't be had in whole.
#[test]
fn a_truncated_answer_is_fetched_over_tcp_and_handed_on_by_size() {
    for procs in PROCS {
        let ways = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&ways);
        let resolver = Resolver::start(move |asked| {
            seen.lock().expect("no panic").push(asked.over_tcp());
            let count = asked.query.name.split('.').next().and_then(|label| label.parse().ok());
            let mut answer = asked.answer();
            match asked.over_tcp() {
                true => {
                    let text = record(QUESTION, TXT, 900, &[&[99][..], &[b'x'; 99]].concat());
                    answer.sections[0] = vec![text; count.expect("a number")];
                }
                false => answer.flags[0] |= 2,
            }
            asked.send(&answer);
        });
        let (program, addr) = start(procs, &resolver, &[]);
        let client = Client::new(addr);
        for (count, size, whole) in [
            (3, None, true),
            (8, None, false),
            (8, Some(100), false),
            (8, Some(1232), true),
            (12, Some(1232), false),
            (12, Some(65_535), false),
        ] {
            let mut query = Message::query(count as u16, &format!("{count}.example"), TXT);
            if let Some(size) = size {
                query = query.with(2, opt(size, 0, &[]));
            }
            let answer = client.ask_with(&query);
            let most = size.map_or(512, |size: u16| size.clamp(512, 1232));
            assert!(answer.length <= most.into(), "{count} {size:?}: {} bytes", answer.length);
            let records = answer.records.iter().filter(|record| record.kind == TXT).count();
            let expected = if whole { (count, false) } else { (0, true) };
            assert_eq!((records, answer.is_truncated()), expected, "{count} {size:?}");
            assert_eq!(answer.edns().is_some(), size.is_some());
        }
        for count in [3, 12, 500] {
            let query = Message::query(7, &format!("{count}.example"), TXT);
            let answer = ask_over(&connect(addr), &query);
            assert_eq!((answer.records.len(), answer.is_truncated()), (count, false));
        }
        // Each but the longest was asked for once, by both ways.
        let expected = [false, true].repeat(4);
        assert_eq!(*ways.lock().expect("no panic"), expected);
        stop(program);
    }
}

/// Fails by an option that goes to somebody else's hop, or by a resolver without EDNS that is no resolver.
#[test]
fn edns_is_between_neighbours() {
    for procs in PROCS {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sees = Arc::clone(&seen);
        let resolver = Resolver::start(move |asked| {
            let edns = asked.query.edns().cloned();
            // Before the answer, with which the client goes on.
            sees.lock().expect("no panic").push((asked.query.name.clone(), edns.clone(), asked.query.flags));
            let answer = asked.answer().with(0, record(QUESTION, A, 900, &ADDRESS));
            let cookie = [0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
            asked.send(&match (asked.query.name.as_str(), &edns) {
                ("old.example.", Some(_)) => asked.answer().rcode(FORMERR),
                ("older.example.", Some(_)) => {
                    Message { question: Vec::new(), ..asked.answer() }.rcode(NOTIMP)
                }
                (_, Some(_)) => answer
                    .with(2, opt(4096, 0x8000, &cookie))
                    .with(2, record(&wire("more.example"), A, 9, &ADDRESS)),
                (_, None) => answer,
            });
        });
        let (program, addr) = start(procs, &resolver, &[]);
        let client = Client::new(addr);
        let plain = Message::query(1, "any.example", A);
        let answer = client.ask_with(&plain);
        assert_eq!((answer.edns(), answer.records.len()), (None, 1));
        // Options of the client, the bit for signatures, and a query that is to be answered unchecked and not recursively.
        let subnet = [0, 8, 0, 7, 0, 1, 24, 0, 192, 0, 2];
        let answer = client.ask_with(&plain.clone().with(2, opt(4096, 0x8000, &subnet)));
        let edns = answer.edns().expect("as the client");
        assert_eq!((edns.class, edns.ttl, &edns.data[..], answer.records.len()), (1232, 0x8000, &[][..], 2));
        let unchecked = Message { flags: [0, 0x30], ..plain.clone() };
        client.send(&unchecked.bytes());
        assert_eq!(client.receive().flags, [0x80, 0x90]);
        for name in ["old.example", "older.example"] {
            assert_eq!(client.ask_with(&Message::query(1, name, A)).records.len(), 1);
        }
        let version = client.ask_with(&plain.clone().with(2, opt(4096, 1 << 16, &[])));
        assert_eq!((version.rcode(), version.edns().expect("as the client").ttl), (0, 1 << 24));
        client.send(&plain.with(2, opt(4096, 0, &[])).with(2, opt(4096, 0, &[])).bytes());
        assert_eq!(client.receive().rcode(), FORMERR);

        let seen = seen.lock().expect("no panic");
        let ours = |fields: u32| Some((1232, fields, Vec::new()));
        let seen = seen.iter().map(|(name, edns, flags)| {
            (name.as_str(), edns.clone().map(|edns| (edns.class, edns.ttl, edns.data)), *flags)
        });
        let expected = [
            ("any.example.", ours(0), [1, 0]),
            ("any.example.", ours(0x8000), [1, 0]),
            ("any.example.", ours(0), [0, 0x10]),
            ("old.example.", ours(0), [1, 0]),
            ("old.example.", None, [1, 0]),
            ("older.example.", ours(0), [1, 0]),
            ("older.example.", None, [1, 0]),
        ];
        assert_eq!(Vec::from_iter(seen), expected);
        stop(program);
    }
}

/// Fails by a hang, an end, or an answer that is none of these.
#[test]
fn what_is_no_query_is_told_so_or_dropped() {
    for procs in PROCS {
        let (resolver, _) = addresses(900);
        let (program, addr) = start(procs, &resolver, &[]);
        let client = Client::new(addr);
        let good = Message::query(7, "good.example", A);
        let with = |question: &[u8]| Message { question: question.to_vec(), ..good.clone() }.bytes();
        let mut no_answer = good.bytes();
        no_answer[2] |= 0x80;
        for dropped in [&[][..], &[0; 11], &no_answer, b"GET / HTTP"] {
            client.send(dropped);
        }
        let long = [&[63][..], &[b'a'; 63]].concat().repeat(4);
        // 300 pointers, each to the one before, where records begin at 30 and their data 12 bytes later.
        let chain =
            (0..300).map(|at: u16| (0xc000 | if at == 0 { 12 } else { 42 + 2 * (at - 1) }).to_be_bytes());
        let chain = record(QUESTION, TXT, 0, &Vec::from_iter(chain).concat());
        let at_its_end = |hops: u16| record(&(0xc000 | (42 + 2 * hops)).to_be_bytes(), TXT, 0, &[]);
        let refused: Vec<(Vec<u8>, u8)> = vec![
            (good.clone().with(2, chain.clone()).with(2, at_its_end(299)).bytes(), FORMERR),
            (vec![0, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0], FORMERR),
            (vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0], FORMERR),
            (vec![0, 7, 1, 0, 0, 1, 255, 255, 255, 255, 255, 255], FORMERR),
            (vec![0, 7, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0], FORMERR),
            (vec![0, 7, 0x28, 0, 0, 1, 0, 0, 0, 0, 0, 0], NOTIMP),
            // A name that is a pointer to itself, to the header, to behind it; a ring of two.
            (with(&[0xc0, 12, 0, 1, 0, 1]), FORMERR),
            (with(&[0xc0, 0, 0, 1, 0, 1]), FORMERR),
            (with(&[0xc0, 18, 0, 1, 0, 1, 0, 0]), FORMERR),
            (with(&[1, b'a', 0xc0, 16, 0xc0, 12, 0, 1, 0, 1]), FORMERR),
            // A label of a kind that is none, one that goes on behind the end, a name that is too long.
            (with(&[0x40, 0, 0, 1, 0, 1]), FORMERR),
            (with(&[20, b'a', 0, 0, 1, 0, 1]), FORMERR),
            (with(&[&long[..], &[0, 0, 1, 0, 1]].concat()), FORMERR),
            (with(&wire("good.example")), FORMERR),
            ([&good.bytes()[..], &[0]].concat(), FORMERR),
            (good.clone().with(2, record(&[0xc0, 30], A, 0, &[])).bytes(), FORMERR),
            (good.clone().with(2, opt(4096, 0, &[0; 9])).bytes()[..45].to_vec(), FORMERR),
            (Message::query(7, "good.example", 252).bytes(), NOTIMP),
            (Message::query(7, "good.example", 251).bytes(), NOTIMP),
        ];
        for (message, code) in &refused {
            client.send(message);
            let answer = client.receive();
            assert_eq!((answer.id, answer.rcode(), answer.flags[0] >> 7), (7, *code, 1), "{message:?}");
        }
        client.ask_with(&good.clone().with(2, chain).with(2, at_its_end(100)));
        // The longest name, and the shortest.
        let longest = format!("{}.{}.{}.{}", "a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(61));
        assert_eq!(client.ask(&longest).rcode(), 0);
        assert_eq!(client.ask("").rcode(), 0);

        // Whatever: each of them is answered or dropped, and the next client is served.
        let mut random = Random::new(procs.len());
        let noise = Client::new(addr);
        for number in 0..3000 {
            if number % 50 == 0 {
                // All before it is taken, else the kernel would drop some.
                assert_eq!(client.ask_with(&good).records[0].data, ADDRESS);
            }
            let mut message = good.clone().with(2, opt(4096, 0, &[])).bytes();
            for _ in 0..=random.below(4) {
                let at = random.below(message.len() as u64) as usize;
                message[at] = random.bits() as u8;
            }
            message.truncate(random.below(2 * message.len() as u64) as usize);
            noise.send(&message);
        }
        assert_eq!(client.ask_with(&good).records[0].data, ADDRESS);

        // Over TCP too; what is behind a length that is too short can't be found any more.
        let stream = connect(addr);
        for (message, code) in &refused {
            write_message(&stream, message);
            let answer = Received::parse(&read_message(&stream).expect("an answer"));
            assert_eq!(answer.rcode(), *code);
        }
        write_message(&stream, &[]);
        assert_eq!(ask_over(&stream, &good).records[0].data, ADDRESS);
        stop(program);
    }
}

/// Fails by a cache, or a process, that grows with what is asked.
#[test]
fn a_flood_of_names_fills_the_cache_and_no_more() {
    const MANY: usize = 4000;
    for procs in PROCS {
        let resolver = Resolver::start(|asked| {
            let text = record(QUESTION, TXT, 9000, &[&[200][..], &[b'x'; 200]].concat().repeat(4));
            asked.send(&asked.answer().with(0, text));
        });
        let (program, addr) = start(procs, &resolver, &["--entries", "100"]);
        let client = Client::new(addr);
        let resident = || {
            let status = fs::read_to_string(format!("/proc/{}/status", program.id())).expect("it runs");
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line of it");
            line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number")
        };
        let flood = |from: usize| {
            (from..from + MANY).for_each(|number| {
                client.ask_with(&Message::query(1, &format!("n{number}.example"), TXT));
            });
        };
        flood(0);
        let before = resident();
        flood(MANY);
        let after = resident();
        // All answers together have 6 MiB.
        assert!(after < before + 2048, "{before} KiB, then {after} KiB");
        let said = stop(program);
        assert!(
            said.contains("at most 100 kept") && said.contains(&format!(" {} asked", 2 * MANY)),
            "{said}"
        );
    }
}

/// Fails by a query above the limit that waits, or by one that the cache can answer and that waits with it.
#[test]
fn above_the_limit_of_queries_the_next_one_is_told() {
    for procs in PROCS {
        let (resolver, asked) = Resolver::new();
        let (program, addr) = start(procs, &resolver, &["--queries", "2", "--timeout-ms", "60000"]);
        let client = Client::new(addr);
        // Over TCP: there the room is given back before the answer is sent.
        let stream = connect(addr);
        write_message(&stream, &Message::query(1, "kept.example", A).bytes());
        next(&asked).send_address(900, ADDRESS);
        read_message(&stream).expect("an answer");

        let waiting = [Client::new(addr), Client::new(addr)];
        for (number, client) in (0..).zip(&waiting) {
            client.send(&Message::query(number, &format!("w{number}.example"), A).bytes());
        }
        let under_way = [next(&asked), next(&asked)];
        assert_eq!(client.ask("third.example").rcode(), SERVFAIL);
        assert_eq!(client.ask("kept.example").records[0].data, ADDRESS);
        // Over TCP it waits in line.
        write_message(&stream, &Message::query(9, "fourth.example", A).bytes());
        under_way.iter().for_each(|asked| asked.send_address(900, ADDRESS));
        waiting.iter().for_each(|client| assert_eq!(client.receive().rcode(), 0));
        next(&asked).send_address(900, ADDRESS);
        assert_eq!(Received::parse(&read_message(&stream).expect("an answer")).id, 9);
        let said = stop(program);
        assert!(said.contains(" 1 from the cache, 4 asked, 0 shared, 0 failed, 1 turned away; "), "{said}");
    }
}

/// Fails by an answer that waits for an earlier one, by a connection that is not kept, or by one that is kept for ever.
#[test]
fn a_connection_has_many_queries_under_way() {
    for procs in PROCS {
        let (resolver, asked) = Resolver::new();
        let (program, addr) =
            start(procs, &resolver, &["--idle-ms", "1500", "--connections", "2", "--timeout-ms", "60000"]);
        let stream = connect(addr);
        let slow = Message::query(1, "slow.example", A);
        // In pieces, and two in one.
        let slow_bytes = slow.bytes();
        let length = (slow_bytes.len() as u16).to_be_bytes();
        for piece in [&length[..1], &length[1..], &slow_bytes[..9], &slow_bytes[9..]] {
            (&stream).write_all(piece).expect("it is open");
        }
        let under_way = next(&asked);
        let quick = Message::query(2, "quick.example", A).bytes();
        let twice = [&[0, quick.len() as u8][..], &quick].concat().repeat(2);
        (&stream).write_all(&twice).expect("it is open");
        next(&asked).send_address(900, ADDRESS);
        for _ in 0..2 {
            assert_eq!(Received::parse(&read_message(&stream).expect("an answer")).id, 2);
        }
        // The end of the queries is not the end of the answers.
        stream.shutdown(Shutdown::Write).expect("it is open");
        under_way.send_address(900, ADDRESS);
        assert_eq!(Received::parse(&read_message(&stream).expect("an answer")).id, 1);
        assert_eq!((&stream).read(&mut [0]).expect("an end, no error"), 0);

        // Silent ones, and one with half a query, lose their places.
        let silent = [connect(addr), connect(addr)];
        (&silent[1]).write_all(&quick[..5]).expect("it is open");
        let third = connect(addr);
        assert_eq!(ask_over(&third, &slow).records[0].data, ADDRESS);
        silent.iter().for_each(|mut stream| match stream.read(&mut [0]) {
            Ok(0) => {}
            Err(reset) if reset.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("{other:?}"),
        });
        let said = stop(program);
        assert!(said.starts_with("4 queries, 4 over TCP: "), "{said}");
    }
}

/// Fails by a client that does not read its answers and has others wait for theirs.
#[test]
fn a_client_that_does_not_read_is_alone_with_that() {
    for procs in PROCS {
        let resolver = Resolver::start(|asked| match asked.over_tcp() {
            false => asked.send(&Message { flags: [0x83, 0x80], ..asked.answer() }),
            true => {
                let text = record(QUESTION, TXT, 0, &[&[255][..], &[b'x'; 255]].concat().repeat(240));
                asked.send(&asked.answer().with(0, text));
            }
        });
        let (program, addr) = start(procs, &resolver, &["--queries", "4", "--idle-ms", "60000"]);
        let stuck = connect(addr);
        stuck.set_write_timeout(Some(Duration::from_millis(300))).expect("a valid time");
        let query = Message::query(1, "long.example", TXT).bytes();
        let one = [&[0, query.len() as u8][..], &query].concat();
        // Until the server reads no more of them.
        while (&stuck).write_all(&one.repeat(100)).is_ok() {}
        let others = Client::new(addr);
        for number in 0..20 {
            let answer = others.ask_with(&Message::query(number, &format!("n{number}.example"), TXT));
            assert!(answer.is_truncated() && answer.rcode() == 0, "{answer:?}");
        }
        stop(program);
    }
}

/// Fails by a client that is not told, or by an answer that comes in time and is lost.
#[test]
fn the_stop_answers_what_is_under_way() {
    for procs in PROCS {
        let (resolver, asked) = Resolver::new();
        let (program, addr) = start(procs, &resolver, &["--timeout-ms", "60000", "--grace-ms", "60000"]);
        let client = Client::new(addr);
        let stream = connect(addr);
        client.send(&Message::query(1, "one.example", A).bytes());
        let by_datagram = next(&asked);
        write_message(&stream, &Message::query(2, "two.example", A).bytes());
        let over_tcp = next(&asked);
        program.signal(libc::SIGTERM);
        let begun = Instant::now();
        // The stop has begun when nobody is accepted any more.
        while TcpStream::connect(addr).is_ok() {
            assert!(begun.elapsed() < LIMIT, "it listens");
            thread::sleep(Duration::from_millis(2));
        }
        [by_datagram, over_tcp].iter().for_each(|asked| asked.send_address(900, ADDRESS));
        assert_eq!(client.receive().records[0].data, ADDRESS);
        assert_eq!(Received::parse(&read_message(&stream).expect("an answer")).rcode(), 0);
        assert_eq!((&stream).read(&mut [0]).expect("an end, no error"), 0);
        assert!(program.end()[0].contains(" 2 asked, 0 shared, 0 failed, "));

        let (program, addr) = start(procs, &resolver, &["--timeout-ms", "60000", "--grace-ms", "50"]);
        let (client, stream) = (Client::new(addr), connect(addr));
        client.send(&Message::query(1, "one.example", A).bytes());
        write_message(&stream, &Message::query(2, "one.example", A).bytes());
        write_message(&stream, &Message::query(3, "two.example", A).bytes());
        let _under_way = [next(&asked), next(&asked)];
        program.signal(libc::SIGTERM);
        assert_eq!(client.receive().rcode(), SERVFAIL);
        for _ in 0..2 {
            assert_eq!(Received::parse(&read_message(&stream).expect("an answer")).rcode(), SERVFAIL);
        }
        assert!(program.end()[0].contains(" 3 failed, "));
    }
}

/// Fails by a server that listens to a signal only where it has nothing to do.
#[test]
fn the_stop_is_heard_in_a_flood() {
    for procs in PROCS {
        let (resolver, _) = addresses(900);
        let (program, addr) = start(procs, &resolver, &[]);
        let is_over = AtomicUsize::new(0);
        thread::scope(|scope| {
            for number in 0..2 {
                let is_over = &is_over;
                scope.spawn(move || {
                    let (client, query) =
                        (Client::new(addr), Message::query(number, "flood.example", A).bytes());
                    // When the server has gone the kernel refuses.
                    while is_over.load(SeqCst) == 0 {
                        let _refused = client.0.send(&query);
                    }
                });
            }
            // A flood that fills the kernel's queue has the client ask again.
            let client = Client::new(addr);
            client.0.set_read_timeout(Some(Duration::from_millis(100))).expect("a valid time");
            let query = Message::query(1, "other.example", A).bytes();
            let begun = Instant::now();
            while client.0.send(&query).and_then(|_| client.0.recv(&mut [0; 512])).is_err() {
                assert!(begun.elapsed() < LIMIT, "it does not answer");
            }
            program.signal(libc::SIGTERM);
            let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| program.end()));
            is_over.store(1, SeqCst);
            assert_eq!(status.expect("it ends").len(), 1);
        });
    }
}

/// Fails by a question that goes round for ever.
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

/// Fails by an end of the forwarder, or by a client that comes later and is not served.
#[test]
fn a_full_table_of_descriptors_is_survived() {
    for procs in PROCS {
        let (resolver, asked) = Resolver::new();
        let (program, addr) =
            start_within(procs, resolver.addr, &["--timeout-ms", "1500", "--tries", "1"], Some(24));
        let clients = Vec::from_iter((0..40).map(|number| (number, Client::new(addr))));
        for (number, client) in &clients {
            client.send(&Message::query(*number, &format!("n{number}.example"), A).bytes());
        }
        // All are told: those without a socket, and those without an answer.
        clients.iter().for_each(|(_, client)| assert_eq!(client.receive().rcode(), SERVFAIL));
        while !program.complaint().contains("Too many open files") {}
        assert!(asked.try_iter().count() < 40);
        let client = Client::new(addr);
        client.send(&Message::query(1, "later.example", A).bytes());
        next(&asked).send_address(900, ADDRESS);
        assert_eq!(client.receive().records[0].data, ADDRESS);
        stop(program);
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
