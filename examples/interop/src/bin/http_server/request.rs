//! The head of a request, and the facts that follow from it. The parser refuses every head that two readers could understand
//! differently: a proxy before this server might have seen another request in it.

use crate::input::MOST_HEADERS;
use crate::response::Response;

pub struct Request<'h> {
    pub method: &'h str,
    /// The path as the client has sent it, without the query.
    pub path: &'h str,
    /// The query with its question mark, or nothing.
    pub query: &'h str,
    /// The decoded segments of the path, without empty ones. None of them leads up or holds a separator.
    pub segments: Vec<String>,
    headers: Vec<httparse::Header<'h>>,
    pub framing: Framing,
    pub keep_alive: bool,
    /// `true` if the client waits for a `100 Continue` before it sends the body.
    pub expects_continue: bool,
}

/// How the reader knows the end of the body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Framing {
    Length(u64),
    Chunked,
}

impl<'h> Request<'h> {
    pub fn parse(head: &'h [u8]) -> Result<Self, Response> {
        let bad = |text: &str| Err(Response::text(400, text));
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut parsed = httparse::Request::new(&mut headers);
        parsed.parse(head)?;
        let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
            return bad("an incomplete head");
        };
        // The parser reads a bare line feed as the end of a line. Other parsers might not.
        if has_bare_line_feed(head) {
            return bad("a line without a carriage return");
        }
        let headers = parsed.headers.to_vec();
        let (path, query) = path_and_query(target);
        let Some(segments) = segments(path) else { return bad("not a path") };
        let mut request = Request {
            method,
            path,
            query,
            segments,
            headers,
            framing: Framing::Length(0),
            keep_alive: false,
            expects_continue: false,
        };
        let hosts = request.all("host").count();
        if hosts > 1 || hosts == 0 && version == 1 {
            return bad("one Host header is needed");
        }
        request.framing = request.framing_of(version)?;
        request.keep_alive = version == 1 && !request.tokens("connection").any(|token| token == b"close");
        request.expects_continue = match request.one("expect") {
            Some(expected) if expected.eq_ignore_ascii_case(b"100-continue") => version == 1,
            Some(_) => return Err(Response::text(417, "100-continue is all that may be expected")),
            None => false,
        };
        Ok(request)
    }

    fn framing_of(&self, version: u8) -> Result<Framing, Response> {
        let bad = |text: &str| Err(Response::text(400, text));
        let (mut lengths, mut codings) = (self.all("content-length"), self.all("transfer-encoding"));
        match (lengths.next(), codings.next()) {
            (None, None) => Ok(Framing::Length(0)),
            (Some(_), Some(_)) => bad("both Content-Length and Transfer-Encoding"),
            (Some(_), None) if lengths.next().is_some() => bad("more than one Content-Length"),
            // A text with a sign, a list, or white space inside is not a number.
            (Some(length), None) if length.is_empty() || !length.iter().all(u8::is_ascii_digit) => {
                bad("Content-Length is no number")
            }
            (Some(length), None) => {
                match str::from_utf8(length).ok().and_then(|digits| digits.parse().ok()) {
                    Some(length) => Ok(Framing::Length(length)),
                    None => Err(Response::text(413, "the body is too long")),
                }
            }
            (None, Some(_)) if version == 0 => bad("Transfer-Encoding with HTTP/1.0"),
            (None, Some(coding)) if codings.next().is_some() || !coding.eq_ignore_ascii_case(b"chunked") => {
                Err(Response::text(501, "chunked is the one transfer coding here"))
            }
            (None, Some(_)) => Ok(Framing::Chunked),
        }
    }

    /// Returns the values of the headers of this name.
    fn all(&self, name: &'static str) -> impl Iterator<Item = &'h [u8]> + '_ {
        let named = self.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        named.map(|header| header.value.trim_ascii())
    }

    /// Returns the value of the header of this name.
    pub fn one(&self, name: &'static str) -> Option<&'h [u8]> {
        self.all(name).next()
    }

    /// Returns the members of the list that the headers of this name form, in lower case.
    pub fn tokens(&self, name: &'static str) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.all(name)
            .flat_map(|value| value.split(|&byte| byte == b','))
            .map(|token| token.trim_ascii().to_ascii_lowercase())
    }
}

/// Returns `true` if the text has a line feed without a carriage return before it.
pub fn has_bare_line_feed(text: &[u8]) -> bool {
    text.iter().enumerate().any(|(at, &byte)| byte == b'\n' && (at == 0 || text[at - 1] != b'\r'))
}

/// Returns the segments of a path, or `None` if the text is not a path or leads out of the folder.
fn segments(path: &str) -> Option<Vec<String>> {
    let path = path.strip_prefix('/')?;
    let decoded = path.split('/').filter(|segment| !segment.is_empty()).map(decode);
    let segments: Vec<_> = decoded.collect::<Option<_>>()?;
    let leads_out = |one: &String| one == "." || one == ".." || one.contains(['/', '\\', '\0']);
    (!segments.iter().any(leads_out)).then_some(segments)
}

/// Returns the path of a target, and the query with its `?`. A client of a proxy gives the scheme and the host before them.
fn path_and_query(target: &str) -> (&str, &str) {
    let target = target.split('#').next().unwrap_or_default();
    let (target, default) = match target.split_at_checked("http://".len()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http://") => {
            (&rest[rest.find(['/', '?']).unwrap_or(rest.len())..], "/")
        }
        _ => (target, ""),
    };
    let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
    (if path.is_empty() { default } else { path }, query)
}

/// Decodes percent encoding. Returns `None` if the result is not text.
fn decode(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first == b'%' {
            let (digits, behind) = rest.split_at_checked(2)?;
            let digits = str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = behind;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails when a slash of the query is taken for the beginning of the path.
    #[test]
    fn a_target_has_a_path_and_a_query() {
        for (target, parts) in [
            ("/a/b?c=/d", ("/a/b", "?c=/d")),
            ("http://host/a?b", ("/a", "?b")),
            ("HTTP://host:80/a", ("/a", "")),
            ("http://host?b=/c", ("/", "?b=/c")),
            ("http://host#/a", ("/", "")),
            ("http://host", ("/", "")),
            ("/http://host", ("/http://host", "")),
            ("?a", ("", "?a")),
            ("*", ("*", "")),
        ] {
            assert_eq!(path_and_query(target), parts, "{target}");
        }
    }
}
