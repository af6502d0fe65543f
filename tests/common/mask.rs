//! The signals that the calling thread blocks, and those that wait for it.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

fn set_of(signals: &[c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call fills the set; the others refuse a number that no signal has.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Blocks these signals, too, or lets them through: `SIG_BLOCK`, `SIG_UNBLOCK`. Returns what was blocked before.
pub fn change(how: c_int, signals: &[c_int]) -> Vec<c_int> {
    let (signals, mut before) = (set_of(signals), set_of(&[]));
    // SAFETY: the call reads and writes what we pass.
    assert_eq!(unsafe { libc::pthread_sigmask(how, &raw const signals, &raw mut before) }, 0);
    // SAFETY: a set that the call has filled.
    (1..=libc::SIGRTMAX())
        .filter(|&signal| unsafe { libc::sigismember(&raw const before, signal) } == 1)
        .collect()
}

pub fn blocked() -> Vec<c_int> {
    change(libc::SIG_BLOCK, &[])
}

/// Blocks all signals, as a program does that reads them by sigwait(3) or a signalfd.
pub fn block_all() {
    change(libc::SIG_BLOCK, &Vec::from_iter(1..=libc::SIGRTMAX()));
}

/// Takes a signal that waits for the calling thread, which blocks it. Returns `true` if there was one.
pub fn take(signal: c_int) -> bool {
    let (set, now) = (set_of(&[signal]), libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: the call reads what we pass.
    unsafe { libc::sigtimedwait(&raw const set, ptr::null_mut(), &raw const now) == signal }
}
