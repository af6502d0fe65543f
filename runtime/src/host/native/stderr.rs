//! Standard error, as the host writes to it.
//!
//! *The problem.* There might be no reader. Then a pipe is full, and a write to it waits: for ever, if the descriptor blocks.
//! *Here* `poll` says before each write whether there is room, and the writer waits for room for a limited time. The writer of
//! a remark, without which everything goes on, waits for [`A_MOMENT`]: that thread may be the ender of a runtime, the monitor,
//! or an M for which others wait. A line that was not written is counted, and the next line that is written begins with that
//! count. The writer of a dump, or of the reason why the process ends, waits for [`NOBODY_READS`].
//!
//! At most [`PIPE_BUF`](libc::PIPE_BUF) bytes are written at once, as a pipe has room for so many if `poll` sees room. Two
//! cases are left, in which a write that blocks waits for a reader: another writer takes this room between the two calls; and a
//! terminal says that it has room if it has room for one byte.
//!
//! Not through std: the part of the program that hangs, and that a report is about, may hold the lock of std's `Stderr`; and
//! `eprintln!` would panic if the write failed.

use crate::prim::{AtomicBool, AtomicU64, Relaxed};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::time::{Duration, Instant};

/// How long a report waits for a reader, for each of its pieces.
pub(super) const NOBODY_READS: Duration = Duration::from_secs(5);
/// How long the writer of a line that is no report waits for a reader.
const A_MOMENT: Duration = Duration::from_millis(10);
/// The time from a write for which there was no room after all to the next look.
const AGAIN: Duration = Duration::from_millis(1);

/// Writes the reason why the process ends, as a line.
pub(super) fn say(what: fmt::Arguments<'_>) {
    tell(&format!("{what}\n"));
}

/// Writes a report. After a report that was given up, this does not wait for a reader until another report is taken whole.
pub(super) fn tell(text: &str) {
    /// The last report was given up.
    static GIVEN_UP: AtomicBool = AtomicBool::new(false);
    // Relaxed: a hint.
    let patience = if GIVEN_UP.load(Relaxed) { Duration::ZERO } else { NOBODY_READS };
    GIVEN_UP.store(!write(text, patience), Relaxed);
}

/// Writes a line without which everything goes on, and before it how many such lines were lost since the last written one.
/// After a line that was lost, this does not wait for a reader.
pub(super) fn remark(line: &str) {
    /// How many lines were not written since the last one that was.
    static LOST: AtomicU64 = AtomicU64::new(0);
    // Relaxed: a count.
    match LOST.swap(0, Relaxed) {
        0 if write(line, A_MOMENT) => {}
        0 => _ = LOST.fetch_add(1, Relaxed),
        lost => {
            let text =
                format!("gmp: not written before, as nobody read standard error: {lost} lines\n{line}");
            if !write(&text, Duration::ZERO) {
                LOST.fetch_add(lost + 1, Relaxed);
            }
        }
    }
}

/// Writes a text in pieces, and waits for a reader before each, for at most `patience`. Returns `false` if this gave up.
fn write(text: &str, patience: Duration) -> bool {
    // SAFETY: the descriptor belongs to standard error as long as the process lives; `ManuallyDrop` keeps it open.
    let stderr = ManuallyDrop::new(unsafe { File::from_raw_fd(libc::STDERR_FILENO) });
    let mut rest = text.as_bytes();
    let mut until = Instant::now() + patience;
    while !rest.is_empty() {
        if !has_room(until) {
            return false;
        }
        match (&*stderr).write(first_piece(rest)) {
            Ok(0) => return false,
            Ok(written) => {
                rest = &rest[written..];
                until = Instant::now() + patience;
            }
            Err(interrupted) if interrupted.kind() == io::ErrorKind::Interrupted => {}
            Err(full) if full.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                std::thread::sleep(AGAIN);
            }
            Err(_nobody_listens) => return false,
        }
    }
    true
}

/// Returns as much of a text as is written at once: whole lines, unless a line is too long, so that no other writer's text
/// comes into a line.
fn first_piece(text: &[u8]) -> &[u8] {
    if text.len() <= libc::PIPE_BUF {
        return text;
    }
    let most = &text[..libc::PIPE_BUF];
    most.iter().rposition(|&byte| byte == b'\n').map_or(most, |end| &most[..=end])
}

/// Waits until a write would not block. Returns `false` if that is not so by `until`. If `poll` is refused, the result is
/// `true`, and nobody knows. A signal handler may call this: it only reads the clock, and calls `poll`.
pub(super) fn has_room(until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut entry = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
        // SAFETY: one entry, which the kernel writes.
        let polled = unsafe { libc::poll(&raw mut entry, 1, left.as_millis() as libc::c_int) };
        if polled >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return polled != 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails when a pipe might have no room for a piece, or when a line is torn without need.
    #[test]
    fn a_text_is_written_in_pieces_of_whole_lines() {
        let lines = "0123456789\n".repeat(1000);
        let mut rest = lines.as_bytes();
        while !rest.is_empty() {
            let piece = first_piece(rest);
            assert!(piece.len() <= libc::PIPE_BUF && piece.ends_with(b"\n"), "{}", piece.len());
            rest = &rest[piece.len()..];
        }
        let long = "0".repeat(libc::PIPE_BUF + 1);
        assert_eq!(first_piece(long.as_bytes()).len(), libc::PIPE_BUF);
    }
}
