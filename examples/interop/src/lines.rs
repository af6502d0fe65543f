//! A conversation in lines.

use gmp::net::TcpStream;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

/// The most bytes of a line, with its end.
const MOST_LINE: u64 = 16 << 10;
/// For how long, and for how many bytes, the server reads from a client whose line was too long.
const LINGER: Duration = Duration::from_millis(400);
const MOST_LINGER: u64 = 1 << 20;

/// Answers each line of `client` until the client ends. A client that takes longer than `idle` for a line, or for its answer,
/// is cut off. A client whose line is too long is told so and then cut off.
pub fn answer_lines(
    mut client: &TcpStream,
    idle: Duration,
    mut answer: impl FnMut(&str) -> String,
) -> io::Result<()> {
    client.set_write_timeout(Some(idle))?;
    let mut reader = BufReader::new(client);
    let mut line = Vec::new();
    loop {
        // A whole line has one limit: a client does not keep the connection by a byte now and then.
        client.set_read_deadline(Some(Instant::now() + idle))?;
        line.clear();
        let length = match reader.by_ref().take(MOST_LINE).read_until(b'\n', &mut line) {
            Err(late) if late.kind() == ErrorKind::TimedOut => return Ok(()),
            read => read?,
        };
        match line.strip_suffix(b"\n") {
            None if length == 0 => return Ok(()),
            None if length as u64 == MOST_LINE => {
                client.write_all(b"error: the line is too long\n")?;
                // A close that leaves bytes unread would be a reset, which takes the reason from the client.
                client.shutdown(Shutdown::Write)?;
                client.set_read_deadline(Some(Instant::now() + LINGER))?;
                // The client was told. The server does not care whether the client then ends in time.
                let _ended = io::copy(&mut reader.take(MOST_LINGER), &mut io::sink());
                return Ok(());
            }
            // The last line can lack an end.
            text => {
                let text = text.unwrap_or(&line);
                let text = str::from_utf8(text.strip_suffix(b"\r").unwrap_or(text));
                let text = text.map_err(|wrong| io::Error::new(ErrorKind::InvalidData, wrong))?;
                client.write_all(answer(text).as_bytes())?;
            }
        }
    }
}
