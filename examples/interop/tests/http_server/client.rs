//! A client that sends exactly the bytes of a test.

use crate::Site;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

pub struct Client {
    stream: TcpStream,
    input: BufReader<TcpStream>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    pub fn closes(&self) -> bool {
        self.header("connection") == Some("close")
    }

    pub fn text(&self) -> &str {
        str::from_utf8(&self.body).expect("text")
    }
}

impl Client {
    pub fn new(site: &Site) -> Self {
        let stream = site.server.connect();
        let input = BufReader::new(stream.try_clone().expect("a socket"));
        Client { stream, input }
    }

    /// Returns the socket, for calls that this client has no method for.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Reads an answer with a body, or an interim one.
    #[track_caller]
    pub fn answer(&mut self) -> Answer {
        self.answer_to("GET")
    }

    #[track_caller]
    pub fn answer_to(&mut self, method: &str) -> Answer {
        let first = self.line();
        let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status in {first:?}"));
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("no header: {line:?}"));
            headers.push((name.to_owned(), value.to_owned()));
        }
        let mut answer = Answer { status, headers, body: Vec::new() };
        let length = answer.header("content-length").map(|length| length.parse().expect("a number"));
        match length {
            None => assert!(matches!(status, 100 | 204 | 304), "no length: {answer:?}"),
            Some(_) if method == "HEAD" => {}
            Some(length) => {
                answer.body = vec![0; length];
                self.input.read_exact(&mut answer.body).expect("the body comes");
            }
        }
        answer
    }

    #[track_caller]
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.input.read_line(&mut line).expect("a line comes");
        line.strip_suffix("\r\n").unwrap_or_else(|| panic!("no line: {line:?}")).to_owned()
    }

    /// Sends the bytes and reads an answer.
    #[track_caller]
    pub fn ask(&mut self, bytes: impl AsRef<[u8]>) -> Answer {
        self.send(bytes);
        self.answer()
    }

    /// Checks that the stream ends here, without an error.
    #[track_caller]
    pub fn expect_end(&mut self) {
        let mut rest = Vec::new();
        self.input.read_to_end(&mut rest).expect("the end, and no reset");
        assert!(rest.is_empty(), "nobody asked for {:?}", String::from_utf8_lossy(&rest));
    }

    /// Checks that the connection still serves requests.
    #[track_caller]
    pub fn expect_alive(&mut self) {
        let answer = self.ask(get("/hello.txt"));
        assert_eq!((answer.status, answer.text()), (200, "hello, world\n"));
    }
}

pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")
}

/// Makes a request with these headers in addition.
pub fn with(method: &str, path: &str, headers: &[&str]) -> String {
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n")
}

pub fn post(path: &str, body: &str) -> String {
    with("POST", path, &[&format!("Content-Length: {}", body.len())]) + body
}
