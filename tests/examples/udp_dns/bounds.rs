//! How the forwarder bears nonsense, floods, many queries at once, clients that do not read, and its own stop.

use super::*;

/// Fails when the forwarder hangs, ends, or answers with another code.
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
        // Each of the 300 pointers leads to the one before. The records begin at 30, and their data 12 bytes later.
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
            // A name that is a pointer to itself, to the header, or to the bytes behind the name; and a ring of two pointers.
            (with(&[0xc0, 12, 0, 1, 0, 1]), FORMERR),
            (with(&[0xc0, 0, 0, 1, 0, 1]), FORMERR),
            (with(&[0xc0, 18, 0, 1, 0, 1, 0, 0]), FORMERR),
            (with(&[1, b'a', 0xc0, 16, 0xc0, 12, 0, 1, 0, 1]), FORMERR),
            // A label of a kind that does not exist, a label that goes on behind the end, and a name that is too long.
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

        // The forwarder answers or drops each damaged message, and serves the next client.
        let mut random = Random::new(procs.len());
        let noise = Client::new(addr);
        for number in 0..3000 {
            if number % 50 == 0 {
                // An answer here means that the forwarder has taken all messages before; otherwise the kernel would drop some.
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

        // The same over TCP. A message behind a length that is too short can't be found any more.
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

/// Fails by a cache, or a process, that grows with the number of names.
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

/// Fails when a query above the limit waits, or when a query that the cache can answer waits with it.
#[test]
fn above_the_limit_of_queries_the_next_one_is_told() {
    for procs in PROCS {
        let (resolver, asked) = Resolver::new();
        let (program, addr) = start(procs, &resolver, &["--queries", "2", "--timeout-ms", "60000"]);
        let client = Client::new(addr);
        // Over TCP the forwarder gives the room back before it sends the answer.
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
        // Over TCP the query waits in line.
        write_message(&stream, &Message::query(9, "fourth.example", A).bytes());
        under_way.iter().for_each(|asked| asked.send_address(900, ADDRESS));
        waiting.iter().for_each(|client| assert_eq!(client.receive().rcode(), 0));
        next(&asked).send_address(900, ADDRESS);
        assert_eq!(Received::parse(&read_message(&stream).expect("an answer")).id, 9);
        let said = stop(program);
        assert!(said.contains(" 1 from the cache, 4 asked, 0 shared, 0 failed, 1 turned away; "), "{said}");
    }
}

/// Fails when an answer waits for an earlier one, when a connection is not kept, or when one is kept for ever.
#[test]
fn a_connection_has_many_queries_under_way() {
    for procs in PROCS {
        let (resolver, asked) = Resolver::new();
        let (program, addr) =
            start(procs, &resolver, &["--idle-ms", "1500", "--connections", "2", "--timeout-ms", "60000"]);
        let stream = connect(addr);
        let slow = Message::query(1, "slow.example", A);
        // One query comes in pieces, and then two queries in one piece.
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

        // A silent connection, and one with half a query, lose their places.
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

/// Fails when a client that does not read its answers makes others wait for theirs.
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
        // The loop ends when the server reads no more queries of this client.
        while (&stuck).write_all(&one.repeat(100)).is_ok() {}
        let others = Client::new(addr);
        for number in 0..20 {
            let answer = others.ask_with(&Message::query(number, &format!("n{number}.example"), TXT));
            assert!(answer.is_truncated() && answer.rcode() == 0, "{answer:?}");
        }
        stop(program);
    }
}

/// Fails when a client gets no answer, or when an answer that comes in time is lost.
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
        // The stop has begun when the server accepts no more connections.
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
        // The next question shows that the server has read this query. After the stop has begun the server reads no datagram.
        client.send(&Message::query(1, "one.example", A).bytes());
        let _first = next(&asked);
        // The server has read this query, too, when it asks for the one behind. This query's goroutine may begin after the
        // grace.
        write_message(&stream, &Message::query(2, "one.example", A).bytes());
        write_message(&stream, &Message::query(3, "two.example", A).bytes());
        let _second = next(&asked);
        program.signal(libc::SIGTERM);
        assert_eq!(client.receive().rcode(), SERVFAIL);
        for _ in 0..2 {
            assert_eq!(Received::parse(&read_message(&stream).expect("an answer")).rcode(), SERVFAIL);
        }
        let said = program.end();
        assert!(said[0].contains(" 3 failed, "), "{said:?}");
    }
}

/// Fails when the server hears a signal only while it has nothing to do.
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
                    // The kernel refuses the datagram when the server has gone.
                    while is_over.load(SeqCst) == 0 {
                        let _refused = client.0.send(&query);
                    }
                });
            }
            // The client asks again if the flood has filled the kernel's queue.
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

/// Fails when the forwarder ends, or when it does not serve a client that comes later.
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
        // Each client gets an answer: with or without a socket for its question, and though the resolver is silent.
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
