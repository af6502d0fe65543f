//! The signals that an M's thread lets through, whatever mask the thread has inherited.
//!
//! A program that reads its signals by sigwait(3) or a signalfd blocks all of them in `main`, and every thread inherits that.
//! The runtime needs two kinds of these signals. A fault whose signal is blocked ends the process by the kernel's default
//! action, without the report of an overflow (SIGSEGV), or in the middle of the report (SIGBUS, in a walk over frames). A
//! thread that blocks the signal by which dumps ask does not say where it is. So an M lets these signals through from its
//! beginning to its end, as Go's minit does with the signals of faults. All other signals stay as they were.
//!
//! The signal of dumps is let through only after its handler was installed: the signal's default action would end the program.
//! If the program has an action for this signal, or dumps must not interrupt threads (`dumpsignal=0`), it stays blocked, too. A
//! program that reads this very signal by sigwait needs one of the two.
//!
//! A thread of the program's that is an M for a time (`run_locked`) afterwards blocks again the signals that it has blocked
//! before. Changes that the program makes to other signals meanwhile stay.

use super::sample;
use crate::host::Interrupts;
use std::cell::Cell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

/// For an M: the signals that its thread had blocked, and lets through for now.
pub(super) struct Mask(Cell<Option<libc::sigset_t>>);

impl Mask {
    pub(super) const fn new() -> Self {
        Mask(Cell::new(None))
    }

    /// The calling thread begins to be the M's.
    pub(super) fn open(&self, interrupts: Interrupts) {
        let faults = [Some(libc::SIGSEGV), Some(libc::SIGBUS), None];
        let before = change(libc::SIG_UNBLOCK, &set_of(faults));
        let blocks = |signal: c_int| {
            // SAFETY: a set that `change` has filled, and a number that signals have.
            unsafe { libc::sigismember(&raw const before, signal) == 1 }
        };
        let wanted = match caught(interrupts, blocks) {
            None => faults,
            dumps => {
                change(libc::SIG_UNBLOCK, &set_of([dumps, None, None]));
                [faults[0], faults[1], dumps]
            }
        };
        let opened = wanted.map(|signal| signal.filter(|&signal| blocks(signal)));
        self.0.set(opened.iter().any(Option::is_some).then(|| set_of(opened)));
    }

    /// The calling thread, which is the thread of `open`, is no longer the M's.
    pub(super) fn close(&self) {
        if let Some(opened) = self.0.take() {
            change(libc::SIG_BLOCK, &opened);
        }
    }
}

/// Returns the signal of dumps, if the thread blocks it, and its handler is there to take it.
fn caught(interrupts: Interrupts, blocks: impl Fn(c_int) -> bool) -> Option<c_int> {
    let signal = sample::signal();
    let is_wanted = interrupts == Interrupts::Yes && blocks(signal);
    (is_wanted && sample::catch().is_ok()).then_some(signal)
}

/// Lets a signal through on the calling thread. A signal handler may call this.
pub(super) fn unblock(signal: c_int) {
    change(libc::SIG_UNBLOCK, &set_of([Some(signal), None, None]));
}

fn set_of(signals: [Option<c_int>; 3]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call fills the set; the others get numbers that signals have.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals.into_iter().flatten() {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// `pthread_sigmask`: returns the mask from before.
fn change(how: c_int, signals: &libc::sigset_t) -> libc::sigset_t {
    let mut before = set_of([None; 3]);
    // SAFETY: the call reads and writes the sets that we pass.
    unsafe { libc::pthread_sigmask(how, ptr::from_ref(signals), &raw mut before) };
    before
}
