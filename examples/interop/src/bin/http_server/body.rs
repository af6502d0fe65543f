//! The body of a request. It is read when the handler asks for it.

use crate::input::Input;
use crate::request::{Framing, Request, has_bare_line_feed};
use std::io::{self, ErrorKind, Read, Write};

/// The most bytes of a body.
pub const MOST: u64 = 10 << 20;
/// The most bytes of a line with a chunk's size and extensions, and of all trailers.
const MOST_LINE: usize = 4 << 10;

pub struct Body<'a, 'i> {
    input: &'a mut Input<'i>,
    left: Left,
    /// How many more bytes the body may have.
    allowed: u64,
    expects_continue: bool,
}

#[derive(Clone, Copy)]
enum Left {
    /// This many bytes of a body whose length is known.
    Length(u64),
    /// This many bytes of a chunk, and then an end of line.
    Chunk(u64),
    /// The size of a chunk comes next.
    Size,
    Nothing,
}

impl<'a, 'i> Body<'a, 'i> {
    pub fn new(input: &'a mut Input<'i>, request: &Request) -> Self {
        let left = match request.framing {
            Framing::Length(0) => Left::Nothing,
            Framing::Length(bytes) => Left::Length(bytes),
            Framing::Chunked => Left::Size,
        };
        let expects_continue = request.expects_continue && input.buffered().is_empty();
        Body { input, left, allowed: MOST, expects_continue }
    }

    /// Reads the whole body. The kind of an error determines the answer.
    pub fn whole(&mut self) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        self.read_to_end(&mut all)?;
        Ok(all)
    }

    /// Returns `true` if the next request follows. If the handler has left bytes of the body unread, this method does not wait
    /// for those that have not come yet.
    pub fn is_over(&mut self) -> bool {
        if let Left::Length(bytes) = self.left
            && bytes <= self.input.buffered().len() as u64
        {
            self.input.consume(bytes as usize);
            self.left = Left::Nothing;
        }
        matches!(self.left, Left::Nothing)
    }

    /// Reads a chunk's size and, behind the last chunk, the trailers.
    fn next_chunk(&mut self) -> io::Result<u64> {
        let (length, size) = self.parse(|text| match httparse::parse_chunk_size(text) {
            // The parser reads a size without digits as zero, and accepts line feeds in an extension.
            _ if !text.first().is_none_or(u8::is_ascii_hexdigit) => Err(bad("no chunk size")),
            Ok(httparse::Status::Complete((length, _)))
                if text[..length - 2].iter().any(u8::is_ascii_control) =>
            {
                Err(bad("a chunk extension with control characters"))
            }
            Ok(httparse::Status::Complete(found)) => Ok(Some(found)),
            Ok(httparse::Status::Partial) => Ok(None),
            Err(_) => Err(bad("no chunk size")),
        })?;
        self.input.consume(length);
        if size == 0 {
            let length = self.parse(|text| {
                let mut trailers = [httparse::EMPTY_HEADER; 16];
                match httparse::parse_headers(text, &mut trailers) {
                    // The parser reads a bare line feed as the end of a line. Other parsers might not.
                    Ok(httparse::Status::Complete((length, _))) if has_bare_line_feed(&text[..length]) => {
                        Err(bad("a line without a carriage return"))
                    }
                    Ok(httparse::Status::Complete((length, _))) => Ok(Some(length)),
                    Ok(httparse::Status::Partial) => Ok(None),
                    Err(_) => Err(bad("no trailers")),
                }
            })?;
            self.input.consume(length);
        }
        Ok(size)
    }

    /// Calls `parser` again with more bytes until it has found something.
    fn parse<T>(&mut self, parser: impl Fn(&[u8]) -> io::Result<Option<T>>) -> io::Result<T> {
        loop {
            match parser(self.input.buffered())? {
                Some(found) => return Ok(found),
                None if self.input.buffered().len() > MOST_LINE => return Err(bad("a line is too long")),
                None => self.input.need()?,
            }
        }
    }
}

impl Read for Body<'_, '_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let Left::Length(bytes) = self.left
            && bytes > self.allowed
        {
            return Err(ErrorKind::FileTooLarge.into());
        }
        if self.expects_continue && !matches!(self.left, Left::Nothing) {
            self.expects_continue = false;
            self.input.stream().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        if let Left::Size = self.left {
            self.left = match self.next_chunk()? {
                0 => Left::Nothing,
                size if size > self.allowed => return Err(ErrorKind::FileTooLarge.into()),
                size => Left::Chunk(size),
            };
        }
        let (Left::Length(left) | Left::Chunk(left)) = self.left else { return Ok(0) };
        let most = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let got = self.input.read(&mut buf[..most])?;
        if got == 0 && most > 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.allowed -= got as u64;
        self.left = match (self.left, left - got as u64) {
            (Left::Length(_), 0) => Left::Nothing,
            (Left::Length(_), left) => Left::Length(left),
            (_, 0) => {
                let ends = self.parse(|text| Ok(text.get(..2).map(|end| end == b"\r\n")))?;
                if !ends {
                    return Err(bad("a chunk that is longer than its size"));
                }
                self.input.consume(2);
                Left::Size
            }
            (_, left) => Left::Chunk(left),
        };
        Ok(got)
    }
}

fn bad(text: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}
