//! The bytes that have come on a connection and are not used yet.

use crate::response::Response;
use gmp::net::TcpStream;
use std::io::{self, ErrorKind, Read};

/// The longest head of a request: its first line and its headers.
const MOST_HEAD: usize = 16 << 10;
pub const MOST_HEADERS: usize = 64;
const PIECE: usize = 4 << 10;

pub struct Input<'a> {
    stream: &'a TcpStream,
    buf: Vec<u8>,
    /// Where the unused bytes begin.
    start: usize,
}

impl<'a> Input<'a> {
    pub fn new(stream: &'a TcpStream) -> Self {
        Input { stream, buf: Vec::new(), start: 0 }
    }

    pub fn stream(&self) -> &'a TcpStream {
        self.stream
    }

    pub fn buffered(&self) -> &[u8] {
        &self.buf[self.start..]
    }

    pub fn consume(&mut self, bytes: usize) {
        self.start += bytes;
    }

    /// Waits for more bytes, and appends them to those that are there. Returns 0 when the peer has ended the stream.
    pub fn fill(&mut self) -> io::Result<usize> {
        self.buf.drain(..self.start);
        self.start = 0;
        let old = self.buf.len();
        self.buf.resize(old + PIECE, 0);
        let got = self.stream.read(&mut self.buf[old..]);
        self.buf.truncate(old + *got.as_ref().unwrap_or(&0));
        got
    }

    /// Does the same as `fill`, but the end of the stream is an error, because a message is not complete.
    pub fn need(&mut self) -> io::Result<()> {
        match self.fill()? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Waits for the rest of a request's head and takes the head.
    pub fn head(&mut self) -> Result<Vec<u8>, Response> {
        loop {
            let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
            let parsed = httparse::Request::new(&mut headers).parse(self.buffered());
            match parsed.map_err(Response::from)? {
                httparse::Status::Complete(length) if length <= MOST_HEAD => {
                    let head = self.buffered()[..length].to_vec();
                    self.consume(length);
                    return Ok(head);
                }
                httparse::Status::Partial if self.buffered().len() <= MOST_HEAD => self.need()?,
                _ => return Err(Response::text(431, "the head of the request is too long")),
            }
        }
    }
}

/// Reads the bytes that are there first, and then from the socket without the buffer.
impl Read for Input<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let got = match self.buffered() {
            [] => return (&mut &*self.stream).read(buf),
            mut there => there.read(buf)?,
        };
        self.consume(got);
        Ok(got)
    }
}
