//! `reqwest_crawler`, on a site of a thousand pages.

use harness::{everywhere, example, run};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

const PAGES: usize = 1_000;

#[derive(Default)]
struct State {
    /// How often each path was asked for.
    asked: BTreeMap<String, usize>,
    under_way: usize,
    most: usize,
}

/// The test's own server, with a thread for each connection. It counts what other servers do not count.
struct Site {
    addr: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Site {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let site = Site {
            addr: listener.local_addr().expect("bound"),
            state: Arc::new(Mutex::new(State::default())),
        };
        let state = Arc::clone(&site.state);
        // The thread ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state) = (stream.expect("a connection"), Arc::clone(&state));
                thread::spawn(move || serve(&stream, &state));
            }
        });
        site
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.addr)
    }

    /// Returns the counts since the last call.
    fn counted(&self) -> State {
        std::mem::take(&mut *self.state.lock().expect("nobody panics under it"))
    }
}

/// Serves requests until the client goes.
fn serve(mut stream: &TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut lines = BufReader::new(stream).lines();
    loop {
        let first = lines.next()?.ok()?;
        while !lines.next()?.ok()?.is_empty() {}
        let path = first.split(' ').nth(1)?.trim_start_matches('/').to_owned();
        {
            let mut state = state.lock().expect("nobody panics under it");
            *state.asked.entry(path.clone()).or_insert(0) += 1;
            state.under_way += 1;
            state.most = state.most.max(state.under_way);
        }
        // Other requests can come meanwhile, if the limit lets them.
        thread::yield_now();
        let (status, body) = match path.parse() {
            Ok(page) if page < PAGES => ("200 OK", text(page)),
            _ if path == "never" => ("", String::new()),
            _ if path == "folder" => ("301 Moved Permanently\r\nLocation: /folder/", String::new()),
            _ if path == "folder/" => {
                ("200 OK", "<a href=\"page\">on</a><a href=\"/folder\">here</a>".into())
            }
            _ if path == "folder/page" => ("200 OK", "<a href=\".\">back</a>".into()),
            _ => ("404 Not Found", String::new()),
        };
        state.lock().expect("nobody panics under it").under_way -= 1;
        if status.is_empty() {
            // The server waits until the client has lost its patience and goes.
            lines.next();
            return None;
        }
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all([head.as_bytes(), body.as_bytes()].concat().as_slice()).ok()?;
    }
}

/// Returns a page with links to two others, back, to itself, and away.
fn text(page: usize) -> String {
    let on = [2 * page + 1, 2 * page + 2].into_iter().filter(|&on| on < PAGES);
    let on: String = on.map(|on| format!("<a href=\"/{on}\">on</a>")).collect();
    let last = if page == PAGES - 1 { "<a href=\"nowhere\">broken</a>" } else { "" };
    format!(
        "{on}{last}<a href=\"/0#top\">back</a><a href=\"{page}\">here</a><a href=\"http://127.0.0.2:1/\">away</a>"
    )
}

/// Fails when a page is fetched twice or never, when a broken link is not reported, when more requests are under way than may
/// be, or by a hang when all requests wait for each other.
#[test]
fn a_thousand_pages_are_fetched_once_each_and_so_many_at_once() {
    let site = Site::new();
    let bytes: usize = (0..PAGES).map(|page| text(page).len()).sum();
    everywhere(|procs| {
        for at_once in [1, 16] {
            let mut command = example!("reqwest_crawler");
            command.args(["--at-once", &at_once.to_string(), &site.url("0")]);
            let said = run(command.env("GMPMAXPROCS", procs.to_string())).good();
            let broken = site.url("nowhere");
            assert!(
                said.contains(&format!("broken: {broken}: HTTP status client error (404 Not Found)")),
                "{said}"
            );
            assert!(said.ends_with(&format!("\n{PAGES} pages, {bytes} bytes, 1 broken links\n")), "{said}");
            let counted = site.counted();
            assert_eq!(counted.asked.len(), PAGES + 1);
            assert!(counted.asked.values().all(|&times| times == 1), "{:?}", counted.asked);
            assert!(counted.most <= at_once, "{} at once, not {at_once}", counted.most);
        }
    });
}

/// Fails when a link is resolved against the page that was redirected, or when the target page is fetched again under its own
/// name.
#[test]
fn links_of_a_moved_page_are_relative_to_its_new_place() {
    let site = Site::new();
    everywhere(|procs| {
        let mut command = example!("reqwest_crawler");
        // The crawl fetches one page at a time: it knows the page behind the redirection when it finds the link back to it.
        command.args(["--at-once", "1", &site.url("folder")]);
        let said = run(command.env("GMPMAXPROCS", procs.to_string())).good();
        assert!(said.starts_with("2 pages, ") && said.ends_with(", 0 broken links\n"), "{said}");
        let asked: Vec<_> = site.counted().asked.into_iter().collect();
        assert_eq!(
            asked,
            [("folder", 1), ("folder/", 1), ("folder/page", 1)].map(|(path, times)| (path.to_owned(), times))
        );
    });
}

/// Fails by a hang, or when an error does not name the page.
#[test]
fn a_page_that_never_comes_is_a_broken_link() {
    let site = Site::new();
    everywhere(|procs| {
        let mut command = example!("reqwest_crawler");
        command.args(["--patience", "100", &site.url("never")]);
        let said = run(command.env("GMPMAXPROCS", procs.to_string())).good();
        assert!(said.starts_with(&format!("broken: {}: ", site.url("never"))), "{said}");
        assert!(said.ends_with("\n0 pages, 0 bytes, 1 broken links\n"), "{said}");
    });
}

/// Fails by a panic, or when the message does not name the wrong argument.
#[test]
fn what_is_no_url_is_refused() {
    let refused = run(example!("reqwest_crawler").arg("no url"));
    assert_eq!(refused.status, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("no url: "), "{refused:?}");
    let refused = run(&mut example!("reqwest_crawler"));
    assert!(refused.status == Some(1) && refused.stderr.contains("one URL"), "{refused:?}");
}
