//! A conversation by lines.

use gmp::net::TcpStream;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

/// The longest line, with its end.
const MOST_LINE: u64 = 16 << 10;
/// How long, and for how many bytes, a client is listened to whose line was too long.
const LINGER: Duration = Duration::from_millis(400);
const MOST_LINGER: u64 = 1 << 20;

/// Answers each line of `client`, until the client ends. One that takes longer than `idle` for a line, or for its answer, is
/// ended, and so is one whose line is too long, which it is told.
pub fn answer_lines(
    mut client: &TcpStream,
    idle: Duration,
    mut answer: impl FnMut(&str) -> String,
) -> io::Result<()> {
    client.set_write_timeout(Some(idle))?;
    let mut reader = BufReader::new(client);
    let mut line = Vec::new();
    loop {
        // One limit for a whole line: a byte now and then does not keep a connection.
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
                // It was told: whether it then ends in time is its own affair.
                let _ended = io::copy(&mut reader.take(MOST_LINGER), &mut io::sink());
                return Ok(());
            }
            // The last line may have no end.
            text => {
                let text = text.unwrap_or(&line);
                let text = str::from_utf8(text.strip_suffix(b"\r").unwrap_or(text));
                let text = text.map_err(|wrong| io::Error::new(ErrorKind::InvalidData, wrong))?;
                client.write_all(answer(text).as_bytes())?;
            }
        }
    }
}
