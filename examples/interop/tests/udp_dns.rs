//! `udp_dns`, the library's own example, asked by `dig`, by datagrams and over TCP.

use harness::dns::{A, CNAME, Message, NXDOMAIN, QUESTION, Resolver, TXT, record, soa, wire};
use harness::{Example, Program, eventually, everywhere, example, peer, run};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

fn start(resolver: &Resolver, procs: usize) -> Example {
    let mut command = example!("udp_dns");
    command.args(["--listen", "127.0.0.1:0", "--upstream", &resolver.addr.to_string()]);
    Example::start(&mut command, procs)
}

/// Runs dig without the machine's settings, and returns its output.
fn dig(program: &Program, server: &Example, args: &[&str]) -> String {
    let port = server.addr().port().to_string();
    run(program.command().args(["-r", "@127.0.0.1", "-p", &port, "+tries=1", "+time=10"]).args(args)).good()
}

/// Fails when dig does not understand an answer, when the resolver is asked again for an answer that is in the cache, or when a
/// TTL does not count down.
#[test]
fn dig_is_answered_and_the_second_time_from_the_cache() {
    let program = peer!("dig");
    everywhere(|procs| {
        let counts = Arc::new(Mutex::new(BTreeMap::new()));
        let asked_for = Arc::clone(&counts);
        let resolver = Resolver::start(move |asked| {
            *asked_for.lock().expect("no panic").entry(asked.query.name.clone()).or_insert(0) += 1;
            let answer = asked.answer();
            asked.send(&match (asked.query.name.as_str(), asked.query.kind) {
                ("www.example.", A) => answer
                    .with(0, record(QUESTION, CNAME, 900, &wire("host.example")))
                    .with(0, record(&wire("host.example"), A, 60, &[192, 0, 2, 7])),
                ("none.example.", A) => answer.rcode(NXDOMAIN).with(1, soa("example", 900, 30)),
                _ => answer.rcode(NXDOMAIN),
            });
        });
        let server = start(&resolver, procs);
        let short = || dig(&program, &server, &["+short", "www.example", "A"]);
        assert_eq!((short(), short()), ("host.example.\n192.0.2.7\n".to_owned(), short()));
        // The queries spell the name in another way, with and without EDNS, and over a connection.
        for options in [&["+noedns"][..], &["+tcp"], &["+bufsize=4096", "+nocookie"], &["+tcp", "+noedns"]] {
            let said = dig(&program, &server, &[options, &["WWW.Example", "A"]].concat());
            assert!(said.contains("status: NOERROR") && said.contains(";WWW.Example."), "{said}");
            assert!(said.contains("ANSWER: 2,") && !said.to_lowercase().contains("warning"), "{said}");
            assert_eq!(said.contains("EDNS: version: 0"), !options.contains(&"+noedns"), "{said}");
        }
        eventually("the TTL falls", || {
            let said = dig(&program, &server, &["+noall", "+answer", "host.example", "www.example", "A"]);
            let ttl = said.lines().find(|line| line.contains("192.0.2.7")).expect("the address");
            ttl.split_whitespace().nth(1).and_then(|ttl| ttl.parse::<u32>().ok()).expect("a TTL") < 60
        });
        for _ in 0..2 {
            let said = dig(&program, &server, &["none.example", "A"]);
            assert!(said.contains("status: NXDOMAIN") && said.contains("AUTHORITY: 1,"), "{said}");
        }
        let counts = counts.lock().expect("no panic");
        assert_eq!((counts["www.example."], counts["none.example."]), (1, 1));
        drop(server.terminate());
    });
}

/// Fails if dig, told that the answer was truncated, does not get the whole answer from the same address.
#[test]
fn dig_asks_again_over_tcp_for_a_long_answer() {
    let program = peer!("dig");
    everywhere(|procs| {
        let over_tcp = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&over_tcp);
        let resolver = Resolver::start(move |asked| match asked.over_tcp() {
            false => asked.send(&Message { flags: [0x83, 0x80], ..asked.answer() }),
            true => {
                count.fetch_add(1, SeqCst);
                let text = |number: u8| [&[100][..], &[number; 100]].concat();
                let records = (b'a'..=b'z').map(|number| record(QUESTION, TXT, 900, &text(number)));
                asked.send(&records.fold(asked.answer(), |answer, record| answer.with(0, record)));
            }
        });
        let server = start(&resolver, procs);
        for _ in 0..2 {
            let said = dig(&program, &server, &["long.example", "TXT"]);
            assert!(
                said.contains("Truncated, retrying in TCP mode") && said.contains("ANSWER: 26,"),
                "{said}"
            );
            assert!(said.contains(&"m".repeat(100)), "{said}");
        }
        let said = dig(&program, &server, &["+ignore", "long.example", "TXT"]);
        assert!(said.contains("flags: qr tc rd ra;") && said.contains("ANSWER: 0,"), "{said}");
        assert_eq!(over_tcp.load(SeqCst), 1, "what was fetched is kept");
        let said = server.terminate();
        assert!(said.starts_with("5 queries, 2 over TCP: 4 from the cache, 1 asked, "), "{said}");
    });
}

/// Fails if one of many queries is lost; dig has all of them under way on one connection.
#[test]
fn dig_keeps_its_connection_for_many_questions() {
    const MANY: usize = 40;
    let program = peer!("dig");
    everywhere(|procs| {
        let resolver = Resolver::start(|asked| asked.send_address(900, [192, 0, 2, 9]));
        let server = start(&resolver, procs);
        let names = Vec::from_iter((0..MANY).map(|number| format!("n{number}.example")));
        let mut args = vec!["+tcp", "+keepopen", "+short"];
        args.extend(names.iter().map(String::as_str));
        assert_eq!(dig(&program, &server, &args), "192.0.2.9\n".repeat(MANY));
        let said = server.terminate();
        assert!(said.starts_with("40 queries, 40 over TCP: 0 from the cache, 40 asked, "), "{said}");
    });
}
