//! What the forwarder answers: from the cache, by size, and between neighbours.

use super::*;

/// Fails by a second question upstream, by a TTL that does not change or that goes on below its end, or by an answer in another
/// client's spelling.
#[test]
fn answers_are_kept_while_their_ttls_count_down() {
    at_once(PROCS, |procs| {
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
    });
}

/// Fails when an answer without a TTL is kept, or an answer is not kept for its TTL.
#[test]
fn that_there_is_no_such_thing_is_kept_as_long_as_the_soa_says() {
    at_once(PROCS, |procs| {
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
        let kept = [("none", NXDOMAIN), ("empty", 0), ("alias", NXDOMAIN)].map(|(name, rcode)| {
            let begun = Instant::now();
            let (answer, asked) = asked_by(name);
            assert_eq!((answer.rcode(), asked), (rcode, 1), "{name}");
            assert_eq!(answer.records.last().expect("the SOA").ttl, 2, "{name}");
            (name, rcode, begun)
        });
        for (name, ..) in kept {
            assert_eq!(asked_by(name).1, 0, "{name} is not kept");
        }
        for (name, rcode, begun) in kept {
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
    });
}

/// Fails by an answer that lacks records and does not say so, or by an answer that can't be had in whole.
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
        // The resolver got each question once by datagram and once over TCP.
        let expected = [false, true].repeat(4);
        assert_eq!(*ways.lock().expect("no panic"), expected);
        stop(program);
    }
}

/// Fails when an option is passed to another hop, or when a resolver without EDNS can't be used.
#[test]
fn edns_is_between_neighbours() {
    for procs in PROCS {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sees = Arc::clone(&seen);
        let resolver = Resolver::start(move |asked| {
            let edns = asked.query.edns().cloned();
            // This comes before the answer, as the answer lets the client go on.
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
        // A query with an option of the client and the bit for signatures, and a query for an answer that is unchecked and not
        // recursive.
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
