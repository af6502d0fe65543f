//! The answers.

use gmp::fs::File;
use gmp::fs::unix::FileExt;
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime};

/// The most bytes of a file that one write sends. The first piece goes out together with the head.
const PIECE: u64 = 64 << 10;
/// How long the client has to take a piece.
const PIECE_LIMIT: Duration = Duration::from_secs(10);

pub struct Response {
    pub status: u16,
    headers: Vec<(&'static str, String)>,
    content: Content,
}

enum Content {
    None,
    Bytes(Vec<u8>),
    File(File, Range<u64>),
}

impl Response {
    pub fn empty(status: u16) -> Self {
        Response { status, headers: Vec::new(), content: Content::None }
    }

    pub fn bytes(status: u16, kind: &str, bytes: Vec<u8>) -> Self {
        let headers = vec![("Content-Type", kind.to_owned())];
        Response { status, headers, content: Content::Bytes(bytes) }
    }

    pub fn text(status: u16, text: &str) -> Self {
        Response::bytes(status, "text/plain; charset=utf-8", format!("{text}\n").into_bytes())
    }

    pub fn file(status: u16, file: File, part: Range<u64>) -> Self {
        Response { status, headers: Vec::new(), content: Content::File(file, part) }
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Writes the answer, without the content for HEAD. After an error the connection is unusable.
    pub fn write(self, stream: &gmp::net::TcpStream, only_head: bool, keep_alive: bool) -> io::Result<()> {
        let length = match &self.content {
            Content::None => 0,
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::File(_, part) => part.end - part.start,
        };
        let mut out = Vec::with_capacity(256 + if only_head { 0 } else { length.min(PIECE) } as usize);
        let date = httpdate::fmt_http_date(SystemTime::now());
        write!(out, "HTTP/1.1 {} {}\r\nDate: {date}\r\n", self.status, reason(self.status))?;
        for (name, value) in &self.headers {
            write!(out, "{name}: {value}\r\n")?;
        }
        if !matches!(self.status, 204 | 304) {
            write!(out, "Content-Length: {length}\r\n")?;
        }
        out.extend_from_slice(if keep_alive { b"\r\n" } else { b"Connection: close\r\n\r\n" });
        let send = |piece: &[u8]| {
            stream.set_write_deadline(Some(Instant::now() + PIECE_LIMIT))?;
            (&mut &*stream).write_all(piece)
        };
        match self.content {
            _ if only_head => send(&out),
            Content::None => send(&out),
            Content::Bytes(bytes) if bytes.len() as u64 <= PIECE => {
                out.extend_from_slice(&bytes);
                send(&out)
            }
            Content::Bytes(bytes) => {
                send(&out)?;
                bytes.chunks(PIECE as usize).try_for_each(send)
            }
            Content::File(file, mut part) => loop {
                let head = out.len();
                out.resize(head + PIECE.min(part.end - part.start) as usize, 0);
                // A file that has become shorter ends the connection, because the head with the length is out already.
                file.read_exact_at(&mut out[head..], part.start)?;
                send(&out)?;
                part.start += (out.len() - head) as u64;
                if part.is_empty() {
                    return Ok(());
                }
                out.clear();
            },
        }
    }
}

/// Makes the answer to a malformed head.
impl From<httparse::Error> for Response {
    fn from(wrong: httparse::Error) -> Self {
        match wrong {
            httparse::Error::TooManyHeaders => Response::text(431, "too many headers"),
            httparse::Error::Version => Response::text(505, "this is HTTP/1.1"),
            wrong => Response::text(400, &wrong.to_string()),
        }
    }
}

/// Makes the answer to an error of reading a request, or of the operating system.
impl From<io::Error> for Response {
    fn from(wrong: io::Error) -> Self {
        match (wrong.kind(), wrong.raw_os_error()) {
            (ErrorKind::InvalidData, _) => Response::text(400, &wrong.to_string()),
            (ErrorKind::UnexpectedEof, _) => Response::text(400, "the request is not complete"),
            (ErrorKind::TimedOut, _) => Response::text(408, "the request took too long"),
            (ErrorKind::FileTooLarge, _) => Response::text(413, "the body is too long"),
            (_, Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => {
                Response::text(503, "too much is open").with("Retry-After", "1")
            }
            (ErrorKind::StorageFull | ErrorKind::QuotaExceeded, _) => Response::text(507, "there is no room"),
            _ => Response::text(500, "that went wrong"),
        }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        304 => "Not Modified",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        422 => "Unprocessable Content",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "",
    }
}
