//! `ws_chat`, driven by tungstenite's own client and by Python's websockets.

use harness::{Example, Program, everywhere, example, peer, run};
use std::net::TcpStream;
use std::thread;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Error, Message, WebSocket};

type Client = WebSocket<TcpStream>;

fn start(procs: usize, options: &[&str]) -> Example {
    Example::start(example!("ws_chat").args(["--listen", "127.0.0.1:0"]).args(options), procs)
}

fn try_join(server: &Example, path: &str) -> Result<Client, String> {
    let url = format!("ws://{}{path}", server.addr());
    tungstenite::client(url, server.connect())
        .map(|(client, _)| client)
        .map_err(|refused| refused.to_string())
}

fn join(server: &Example, name: &str) -> Client {
    let mut client = try_join(server, &format!("/chat/{name}")).expect("the server greets");
    assert_eq!(hears(&mut client), format!("* {name} joined"));
    client
}

#[track_caller]
fn hears(client: &mut Client) -> String {
    match client.read().expect("the server speaks") {
        Message::Text(text) => text.to_string(),
        other => panic!("no text: {other:?}"),
    }
}

fn say(client: &mut Client, text: &str) {
    client.send(Message::text(text)).expect("the server listens");
}

/// Returns the code and the reason of the close frame with which the server ends the connection.
#[track_caller]
fn closed(client: &mut Client) -> (CloseCode, String) {
    loop {
        match client.read().expect("the end is told") {
            Message::Close(Some(frame)) => return (frame.code, frame.reason.to_string()),
            Message::Close(None) => panic!("no reason"),
            _ => {}
        }
    }
}

/// Fails when a message is lost, comes twice, or is seen in different orders by two members.
#[test]
fn all_members_hear_the_same() {
    const MEMBERS: usize = 20;
    const EACH: usize = 50;
    everywhere(|procs| {
        // The queues have room for all messages, so that no member is slow only because of the machine's scheduling.
        let server = start(procs, &["--waiting", "2000"]);
        let mut members: Vec<_> = (0..MEMBERS).map(|number| join(&server, &format!("m{number}"))).collect();
        // Each member hears of all members who came later.
        for (number, member) in members.iter_mut().enumerate() {
            (number + 1..MEMBERS).for_each(|later| assert_eq!(hears(member), format!("* m{later} joined")));
        }
        let heard: Vec<Vec<String>> = thread::scope(|scope| {
            let talk = |(number, mut member): (usize, Client)| {
                scope.spawn(move || {
                    let mut heard = Vec::new();
                    for round in 0..EACH {
                        say(&mut member, &round.to_string());
                        // Each member reads until its own message has come back, so that no member is far ahead of the room.
                        let own = format!("m{number}: {round}");
                        while heard.last() != Some(&own) {
                            heard.push(hears(&mut member));
                        }
                    }
                    while heard.len() < MEMBERS * EACH {
                        heard.push(hears(&mut member));
                    }
                    (heard, member)
                })
            };
            let talking: Vec<_> = members.into_iter().enumerate().map(talk).collect();
            // The members leave when all of them have heard all messages.
            let done: Vec<_> =
                talking.into_iter().map(|member| member.join().expect("it is heard")).collect();
            done.into_iter().map(|(heard, _)| heard).collect()
        });
        for other in &heard[1..] {
            assert!(heard[0] == *other, "the same messages in the same order");
        }
        for number in 0..MEMBERS {
            let of_one = format!("m{number}: ");
            let said: Vec<_> = heard[0].iter().filter_map(|text| text.strip_prefix(&of_one)).collect();
            assert!(said.into_iter().eq((0..EACH).map(|round| round.to_string())), "in its own order");
        }
        let said = server.terminate();
        assert!(said.contains(&format!("served {MEMBERS} connections, 0 cut off")), "{said}");
        assert!(said.contains(" 0 members too slow"), "{said}");
    });
}

/// Makes the room speak until the slow member, which does not read, has to go. Two other members hear each message before the
/// next is sent.
fn speak_until_it_is_too_slow(server: &Example) -> usize {
    let (mut speaker, mut other) = (join(server, "speaker"), join(server, "other"));
    assert_eq!(hears(&mut speaker), "* other joined");
    let filler = "x".repeat(32 << 10);
    for round in 0..2_000 {
        say(&mut speaker, &format!("{round} {filler}"));
        let own = format!("speaker: {round} ");
        for member in [&mut speaker, &mut other] {
            let text = hears(member);
            if !text.starts_with(&own) {
                assert_eq!(text, "* slow left: too slow", "round {round}");
                return round;
            }
        }
    }
    panic!("nobody has to go");
}

/// Fails when the room waits for its slowest member, when that member hears only a part of the messages before it has to go, or
/// when the member is not told why.
#[test]
fn a_slow_member_goes_and_the_room_goes_on() {
    everywhere(|procs| {
        let server = start(procs, &["--waiting", "64", "--grace", "8000"]);
        let mut slow = join(&server, "slow");
        let rounds = speak_until_it_is_too_slow(&server);
        let mut next = 0;
        let (code, reason) = loop {
            match slow.read().expect("the end is told") {
                Message::Text(text) if text.starts_with("speaker: ") => {
                    assert!(text.starts_with(&format!("speaker: {next} ")), "{next}: {:.40}", text.as_str());
                    next += 1;
                }
                Message::Close(Some(frame)) => break (frame.code, frame.reason.to_string()),
                _ => {}
            }
        };
        assert_eq!((code, reason.as_str()), (CloseCode::Again, "64 messages were waiting for you"));
        assert!((64..=rounds + 1).contains(&next), "{next} of {rounds}");
        let said = server.terminate();
        assert!(said.contains(" 1 members too slow"), "{said}");
    });
}

/// Fails if a member that never reads keeps a goroutine and a connection.
#[test]
fn a_member_that_never_reads_is_cut_off_after_the_grace() {
    everywhere(|procs| {
        let server = start(procs, &["--waiting", "64", "--grace", "100"]);
        let mut slow = join(&server, "slow");
        speak_until_it_is_too_slow(&server);
        // When the server has given up, the end reaches the member behind the bytes in the member's own buffers. There is no
        // close frame, because the rest of a message is in its place.
        harness::eventually("the connection is closed", || server_sockets(&server) == 1);
        let broken = loop {
            match slow.read() {
                Ok(Message::Close(frame)) => panic!("it was told: {frame:?}"),
                Ok(_) => {}
                Err(broken) => break broken,
            }
        };
        assert!(matches!(broken, Error::Io(_) | Error::Protocol(_)), "{broken}");
        server.terminate();
    });
}

/// Fails if a member that takes no answers keeps its connection: its pings stop the reader, and the writer waits for the
/// member.
#[test]
fn a_member_that_pings_and_never_reads_is_disconnected() {
    // This is a ping of 125 bytes, masked with zeros.
    let ping = [&[0x89, 0x80 | 125, 0, 0, 0, 0][..], &[7; 125]].concat();
    let pings = ping.repeat(500);
    everywhere(|procs| {
        let server = start(procs, &["--idle", "300"]);
        let client = join(&server, "pings");
        let mut stream = client.get_ref();
        stream.set_nonblocking(true).expect("a socket");
        let mut at = 0;
        harness::eventually("the connection is closed", || {
            while let Ok(sent) = std::io::Write::write(&mut stream, &pings[at..]) {
                at = (at + sent) % pings.len();
            }
            server_sockets(&server) == 1
        });
        let said = server.terminate();
        assert!(said.contains("served 1 connections, 0 cut off"), "{said}");
    });
}

/// Returns how many TCP sockets the server has: the listener and those of the members.
fn server_sockets(server: &Example) -> usize {
    let fds = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs");
    let target = |fd: std::io::Result<std::fs::DirEntry>| std::fs::read_link(fd.ok()?.path()).ok();
    fds.filter_map(target).filter(|path| path.to_string_lossy().starts_with("socket:")).count()
}

#[test]
fn what_is_wrong_is_told_and_the_others_stay() {
    everywhere(|procs| {
        let server = start(procs, &["--handshake", "200"]);
        let mut witness = join(&server, "witness");
        let mut left = |name: &str, why: &str| {
            assert_eq!(hears(&mut witness), format!("* {name} joined"));
            assert_eq!(hears(&mut witness), format!("* {name} left: {why}"));
        };

        let mut client = join(&server, "binary");
        client.send(Message::binary(vec![1, 2, 3])).expect("the server listens");
        assert_eq!(closed(&mut client), (CloseCode::Unsupported, "text only".into()));
        left("binary", "text only");

        let mut client = join(&server, "long");
        client.send(Message::text("x".repeat(70_000))).expect("the server listens");
        assert_eq!(closed(&mut client), (CloseCode::Size, "more than 65536 bytes".into()));
        left("long", "more than 65536 bytes");

        let mut client = join(&server, "unmasked");
        std::io::Write::write_all(client.get_mut(), &[0x81, 2, b'h', b'i']).expect("the server listens");
        assert_eq!(closed(&mut client).0, CloseCode::Protocol);
        let mut rest = || (hears(&mut witness), hears(&mut witness));
        let (joined, gone) = rest();
        assert!(joined == "* unmasked joined" && gone.starts_with("* unmasked left: "), "{gone}");

        // One member closes its connection and is answered, and another goes without a close.
        let mut client = join(&server, "polite");
        client.close(None).expect("the server listens");
        while client.read().is_ok() {}
        drop(join(&server, "abrupt"));
        let mut heard: Vec<_> = (0..4).map(|_| hears(&mut witness)).collect();
        heard.sort();
        assert_eq!(
            heard,
            ["* abrupt joined", "* abrupt left: gone", "* polite joined", "* polite left: gone"]
        );

        assert!(try_join(&server, "/elsewhere").is_err_and(|refused| refused.contains("404")));
        // This client sends half a greeting.
        let mut silent = server.connect();
        std::io::Write::write_all(&mut silent, b"GET /chat/silent HTTP/1.1\r\n").expect("the server listens");
        assert_eq!(std::io::Read::read(&mut silent, &mut [0; 8]).expect("the server ends it"), 0);

        say(&mut witness, "still here");
        assert_eq!(hears(&mut witness), "witness: still here");
        server.terminate();
    });
}

#[test]
fn members_are_told_that_the_server_stops() {
    everywhere(|procs| {
        let server = start(procs, &[]);
        let mut members: Vec<_> = (0..10).map(|number| join(&server, &format!("m{number}"))).collect();
        let at = server.signal();
        for member in &mut members {
            assert_eq!(closed(member), (CloseCode::Away, "the server stops".into()));
        }
        let said = server.stopped(at);
        assert!(said.contains("served 10 connections, 0 cut off"), "{said}");
    });
}

const PYTHON: &str = r#"
import asyncio, sys, websockets
from websockets.exceptions import ConnectionClosed

url = "ws://%s/chat/" % sys.argv[1]

async def closed(ws):
    try:
        while True:
            await ws.recv()
    except ConnectionClosed as closed:
        return closed.rcvd.code

async def main():
    async with websockets.connect(url + "ada") as ada:
        # The answer to a handshake comes before its member is in the room: bob could be there first.
        assert await ada.recv() == "* ada joined"
        async with websockets.connect(url + "bob") as bob:
            assert await ada.recv() == "* bob joined"
            assert await bob.recv() == "* bob joined"
            await talk(ada, bob)
    async with websockets.connect(url + "eve") as eve:
        assert await eve.recv() == "* eve joined"
        await eve.close(1000, "enough")
        assert eve.close_code == 1000
    print("all well")

async def talk(ada, bob):
    for round in range(100):
        text = "%d, \u00e9\u4e2d\U0001f642" % round
        # In one frame, and in several.
        await ada.send(text if round % 2 else list(text))
        for ws in ada, bob:
            heard = await ws.recv()
            assert heard == "ada: " + text, heard
        await asyncio.wait_for(await bob.ping(), 10)
    await bob.send(b"bytes")
    assert await closed(bob) == 1003
    assert await ada.recv() == "* bob left: text only"
    await ada.send("x" * 70000)
    assert await closed(ada) == 1009

# Ends before the test gives up, and says which call waits.
asyncio.run(asyncio.wait_for(main(), 25))
"#;

#[test]
fn python_talks_to_it() {
    let python: Program = peer!(python "websockets");
    everywhere(|procs| {
        let server = start(procs, &[]);
        let mut command = python.command();
        command.args(["-c", PYTHON, &server.addr().to_string()]);
        assert_eq!(run(&mut command).good(), "all well\n");
        let said = server.terminate();
        assert!(said.contains("served 3 connections, 0 cut off"), "{said}");
    });
}
