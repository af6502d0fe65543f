//! As much of HTTP/1.1 (RFC 9112) as a server of files needs: requests without a body in, answers of a known length out.

use super::Server;
use super::files::{Found, Page};
use gmp::net::TcpStream;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Bytes of a request's line and headers.
const MOST_HEAD: u64 = 16 << 10;
/// For how long, and for how many bytes, the server reads from a client whose connection ends.
const LINGER: Duration = Duration::from_millis(400);
const MOST_LINGER: u64 = 1 << 20;
/// A file of at most this length is sent with its head, in one system call.
const SMALL: u64 = 16 << 10;

/// The parts of a request on which the answer depends.
#[derive(Default)]
struct Request {
    method: String,
    target: String,
    range: Option<String>,
    keep: bool,
}

/// Why there is no request, and what to tell the client, if anything.
enum NoRequest {
    /// The end between two requests, or an error of the connection.
    Over,
    Refused(&'static str),
}

impl From<io::Error> for NoRequest {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::TimedOut => NoRequest::Refused("408 Request Timeout"),
            ErrorKind::InvalidData => NoRequest::Refused("400 Bad Request"),
            _ => NoRequest::Over,
        }
    }
}

/// Answers one request after the other, until the client ends the connection, is too slow, or the server stops.
pub fn converse(server: &Server, stream: &TcpStream) -> io::Result<()> {
    stream.set_write_timeout(Some(server.idle))?;
    let mut reader = BufReader::new(stream);
    loop {
        // One limit for a whole head: a byte now and then does not keep a connection.
        stream.set_read_deadline(Some(Instant::now() + server.idle))?;
        // The server's stop ends this wait only.
        let waited = server.stop.run(|| reader.fill_buf().map(<[u8]>::is_empty));
        let (Ok(Ok(false)), None) = (waited, server.stop.err()) else { return Ok(()) };
        match read_request(&mut reader) {
            Ok(mut request) => {
                server.counts.requests.fetch_add(1, Relaxed);
                request.keep &= server.stop.err().is_none();
                if !answer(server, stream, &request)? {
                    return linger(stream, reader);
                }
            }
            Err(NoRequest::Over) => return Ok(()),
            Err(NoRequest::Refused(status)) => {
                respond(stream, status, &["Connection: close"], status.as_bytes(), true)?;
                return linger(stream, reader);
            }
        }
    }
}

/// Reads what the client still sends, within limits: a close with unread bytes resets the connection, and the client might lose
/// the answer.
fn linger(stream: &TcpStream, reader: BufReader<&TcpStream>) -> io::Result<()> {
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.set_read_deadline(Some(Instant::now() + LINGER))?;
    io::copy(&mut reader.take(MOST_LINGER), &mut io::sink()).map(drop)
}

fn read_request(reader: &mut impl BufRead) -> Result<Request, NoRequest> {
    let mut head = reader.take(MOST_HEAD);
    let mut line = String::new();
    let mut next = |line: &mut String| -> Result<(), NoRequest> {
        line.clear();
        head.read_line(line)?;
        match line.strip_suffix('\n') {
            Some(text) => {
                line.truncate(text.trim_end_matches('\r').len());
                Ok(())
            }
            None if head.limit() == 0 => Err(NoRequest::Refused("431 Request Header Fields Too Large")),
            None => Err(NoRequest::Over),
        }
    };
    const MALFORMED: NoRequest = NoRequest::Refused("400 Bad Request");

    next(&mut line)?;
    let [method, target, version] = Vec::from_iter(line.split(' '))[..] else { return Err(MALFORMED) };
    let mut request = Request { method: method.to_owned(), target: target.to_owned(), ..Request::default() };
    request.keep = match version {
        "HTTP/1.1" => true,
        "HTTP/1.0" => false,
        _ => return Err(NoRequest::Refused("505 HTTP Version Not Supported")),
    };
    let needs_host = request.keep;
    let (mut hosts, mut conditional, mut closes) = (0, false, false);
    loop {
        next(&mut line)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or(MALFORMED)?;
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "host" => hosts += 1,
            "connection" => {
                for token in value.split(',').map(str::trim) {
                    closes |= token.eq_ignore_ascii_case("close");
                    request.keep |= token.eq_ignore_ascii_case("keep-alive");
                }
            }
            "range" => request.range = Some(value.to_owned()),
            // Files have no tags here, so no tag can match.
            "if-range" => conditional = true,
            "content-length" if value == "0" => {}
            "content-length" | "transfer-encoding" => {
                return Err(NoRequest::Refused("413 Content Too Large"));
            }
            name if name.is_empty() || name.contains([' ', '\t']) => return Err(MALFORMED),
            _ => {}
        }
    }
    if needs_host && hosts != 1 {
        return Err(MALFORMED);
    }
    // `close` counts anywhere in the lists, whatever else they have.
    request.keep &= !closes;
    if conditional {
        request.range = None;
    }
    Ok(request)
}

/// Returns `true` if the connection goes on.
fn answer(server: &Server, stream: &TcpStream, request: &Request) -> io::Result<bool> {
    let with_body = match request.method.as_str() {
        "GET" => true,
        "HEAD" => false,
        _ => {
            let headers = ["Allow: GET, HEAD", connection(request)];
            respond(stream, "405 Method Not Allowed", &headers, b"405 Method Not Allowed", true)?;
            return Ok(request.keep);
        }
    };
    let tell = |status: &str, more: &str| {
        let headers = [connection(request), more];
        respond(stream, status, &headers, status.as_bytes(), with_body).map(|()| request.keep)
    };
    match server.root.find(&request.target) {
        Ok(Found::Page(page)) => send(stream, request, page, with_body),
        Ok(Found::Folder) => {
            let (path, query) = match request.target.split_once('?') {
                Some((path, query)) => (path, format!("?{query}")),
                None => (request.target.as_str(), String::new()),
            };
            // Two slashes at the beginning would name another host.
            tell("301 Moved Permanently", &format!("Location: /{}/{query}", path.trim_matches('/')))
        }
        Ok(Found::Nothing) => tell("404 Not Found", ""),
        Ok(Found::Outside) => tell("403 Forbidden", ""),
        Ok(Found::Malformed) => tell("400 Bad Request", ""),
        Err(refused) => {
            eprintln!("static_files: {}: {refused}", request.target);
            tell("500 Internal Server Error", "")
        }
    }
}

fn connection(request: &Request) -> &'static str {
    if request.keep { "Connection: keep-alive" } else { "Connection: close" }
}

/// An answer that is not a file.
fn respond(
    stream: &TcpStream,
    status: &str,
    headers: &[&str],
    text: &[u8],
    with_body: bool,
) -> io::Result<()> {
    let mut out = head(status, headers, "text/plain; charset=utf-8", text.len() as u64);
    if with_body {
        out.extend_from_slice(text);
    }
    (&mut &*stream).write_all(&out)
}

fn head(status: &str, headers: &[&str], kind: &str, length: u64) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nContent-Type: {kind}\r\n");
    for header in headers.iter().filter(|header| !header.is_empty()) {
        text.push_str(header);
        text.push_str("\r\n");
    }
    text.push_str("X-Content-Type-Options: nosniff\r\n\r\n");
    text.into_bytes()
}

/// Sends the file, or the requested range of it. Returns `true` if the connection goes on.
fn send(mut stream: &TcpStream, request: &Request, page: Page, with_body: bool) -> io::Result<bool> {
    let Page { mut file, length, kind } = page;
    let range =
        request.range.as_deref().filter(|_| with_body).map_or(Range::Whole, |text| range(text, length));
    let (from, to) = match range {
        Range::Whole => (0, length),
        Range::Part(from, to) => (from, to),
        Range::Outside => {
            let headers = [connection(request), &format!("Content-Range: bytes */{length}")];
            let status = "416 Range Not Satisfiable";
            return respond(stream, status, &headers, status.as_bytes(), true).map(|()| request.keep);
        }
    };
    let part = format!("Content-Range: bytes {from}-{}/{length}", to.saturating_sub(1));
    let (status, part) = match range {
        Range::Part(..) => ("206 Partial Content", part.as_str()),
        _ => ("200 OK", ""),
    };
    let mut out = head(status, &[connection(request), "Accept-Ranges: bytes", part], kind, to - from);
    if !with_body {
        return stream.write_all(&out).map(|()| request.keep);
    }
    if from > 0 {
        file.seek(SeekFrom::Start(from))?;
    }
    let mut body = file.take(to - from);
    let sent = if to - from <= SMALL {
        let sent = body.read_to_end(&mut out)?;
        stream.write_all(&out)?;
        sent as u64
    } else {
        stream.write_all(&out)?;
        io::copy(&mut body, &mut stream)?
    };
    // If the file has become shorter, the client learns that by the end of the connection.
    Ok(request.keep && sent == to - from)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Range {
    Whole,
    /// From the first byte up to, but without, the second.
    Part(u64, u64),
    Outside,
}

/// Returns the one range of a `Range` header. Several ranges, and a header that is not understood, are answered with the whole
/// file, as RFC 9110 allows.
fn range(text: &str, length: u64) -> Range {
    let parsed = || {
        let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
        let number =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?;
        Some(match (first, last) {
            ("", last) => match number(last)? {
                0 => Range::Outside,
                _ if length == 0 => Range::Outside,
                count => Range::Part(length.saturating_sub(count), length),
            },
            (first, last) => {
                let from = number(first)?;
                let last = if last.is_empty() { u64::MAX } else { number(last)? };
                match from {
                    _ if last < from => return None,
                    from if from >= length => Range::Outside,
                    from => Range::Part(from, last.saturating_add(1).min(length)),
                }
            }
        })
    };
    parsed().unwrap_or(Range::Whole)
}
