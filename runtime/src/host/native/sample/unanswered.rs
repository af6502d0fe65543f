//! The threads that have our signal pending, so that no second one is queued behind it.
//!
//! The kernel queues each real-time signal that it takes, and a thread that has blocked the signal, or waits where no signal
//! reaches it, takes none of them. All queued signals of all the user's processes count against `RLIMIT_SIGPENDING`. So the
//! asker remembers a thread whose question was withdrawn, and asks it through its slot alone as long as the kernel says that
//! the signal is pending there: the handler of that signal answers any question that it then finds. The question is in the slot
//! before the asker looks, so a signal that the asker has seen pending finds the question.
//!
//! *A word for each thread that the handler clears* would need no file, but would be wrong for a thread that takes the signal
//! without a handler (`sigtimedwait`), or that has got the number of an ended one. If `/proc` does not say whether the signal
//! is pending, the asker sends another signal; if only the descriptor for the look is missing, it sends none.

use super::signal;
use std::fs;
use std::io;

const NO_ROOM: &str = "no signal can be queued for its thread (RLIMIT_SIGPENDING)";
const REFUSED: &str = "the system lets no signal through to its thread";

/// The asker's list of threads that have not answered.
pub(super) struct Unanswered(Vec<u32>);

/// The fate of a signal.
pub(super) enum Sent {
    /// The signal, or an earlier one, is on its way.
    Yes,
    /// The thread has ended.
    Gone,
    /// The thread can't be asked.
    Refused(&'static str),
}

impl Unanswered {
    pub(super) const fn new() -> Self {
        Unanswered(Vec::new())
    }

    /// A3. The question is in its slot.
    pub(super) fn send(&mut self, thread: u32) -> Sent {
        if let Some(at) = self.0.iter().position(|&other| other == thread) {
            if is_pending(thread) {
                return Sent::Yes;
            }
            self.0.swap_remove(at);
        }
        match tgkill(thread, signal()) {
            Ok(()) => Sent::Yes,
            Err(libc::EAGAIN) => Sent::Refused(NO_ROOM),
            Err(libc::ESRCH) => Sent::Gone,
            Err(_) => Sent::Refused(REFUSED),
        }
    }

    /// Notes that the signal was sent, and the question withdrawn.
    pub(super) fn note(&mut self, thread: u32) {
        if !self.0.contains(&thread) {
            self.0.push(thread);
        }
    }

    pub(super) fn forget_ended(&mut self) {
        self.0.retain(|&thread| tgkill(thread, 0) != Err(libc::ESRCH));
    }
}

/// Sends a signal to a thread of this process; 0 only asks whether that is possible.
fn tgkill(thread: u32, signal: i32) -> Result<(), i32> {
    // SAFETY: no pointers. The handler is installed.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
    if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)) }
}

/// Returns whether the signal waits for this thread.
fn is_pending(thread: u32) -> bool {
    match fs::read(format!("/proc/self/task/{thread}/status")) {
        Ok(status) => shows_pending(&status, signal()),
        Err(refused) => matches!(refused.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)),
    }
}

fn shows_pending(status: &[u8], signal: i32) -> bool {
    let mut lines = status.split(|&byte| byte == b'\n');
    let pending = lines.find_map(|line| line.strip_prefix(b"SigPnd:\t"));
    let pending = pending.and_then(|digits| u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
    pending.is_some_and(|pending| pending >> (signal - 1) & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails where the line is not found, or another signal's bit is taken for ours.
    #[test]
    fn the_bit_of_the_signal_counts() {
        let status =
            b"Name:\t\xff(S) SigPnd:\nSigQ:\t3/100\nSigPnd:\t0000000000000801\nShdPnd:\t00000000ffffffff\n";
        assert_eq!(
            [1, 2, 11, 12, 13, 32].map(|signal| shows_pending(status, signal)),
            [true, false, false, true, false, false]
        );
        assert!(!shows_pending(b"", 1) && !shows_pending(b"SigPnd:\tnone\n", 1));
    }
}
