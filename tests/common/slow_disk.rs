//! A slow disk: a seccomp supervisor holds the calls on some files.

use crate::seccomp::{asked, goes_on, install, jump, statement};
use std::collections::VecDeque;
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Descriptors from here on are on the slow disk.
const FIRST: libc::c_int = 900;
/// The end of the path of a file that takes long to open.
pub const SLOW: &str = ".slow";

/// When a held call goes on.
#[derive(Clone, Copy)]
pub enum Hold {
    /// After this time.
    For(Duration),
    /// In groups of `step`, the oldest first. A group goes on when `full` calls are held, or the last of `all` has come, and
    /// [`Held::beat`] was called since the last call came or the last group went on.
    Steps { step: usize, full: usize, all: usize },
}

/// What the supervisor has held.
#[derive(Default)]
pub struct Held {
    now: AtomicUsize,
    most: AtomicUsize,
    count: AtomicUsize,
    beats: AtomicUsize,
}

impl Held {
    /// Says that the caller has gone on.
    pub fn beat(&self) {
        self.beats.fetch_add(1, SeqCst);
    }

    /// Returns how many calls were held since the last look, and how many of them at once.
    pub fn count_and_most(&self) -> (usize, usize) {
        (self.count.swap(0, SeqCst), self.most.swap(0, SeqCst))
    }
}

/// From here on, on this thread and those that it starts: `pread64`, `read` and `fsync` of a file [`on_it`], and `openat` of a
/// path that ends with [`SLOW`], are held. A read of such a file that would not wait finds nothing, and no path is in the
/// kernel's cache: `openat2` finds none.
#[track_caller]
pub fn begin(hold: Hold) -> Arc<Held> {
    let nr = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    // The lower halves of the arguments, on machines whose lower half comes first.
    let arg = |nth| (std::mem::offset_of!(libc::seccomp_data, args) + nth * size_of::<u64>()) as u32;
    let load = |at| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at);
    let answer = |what| statement(libc::BPF_RET | libc::BPF_K, what);
    let from = |jt, jf| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16,
        jt,
        jf,
        k: FIRST as u32,
    };
    let either = |k, jt, jf| libc::sock_filter { jf, ..jump(k, jt, 0) };
    let program = [
        load(nr),
        jump(libc::SYS_openat2 as u32, 14, 0),
        jump(libc::SYS_openat as u32, 12, 0),
        jump(libc::SYS_preadv2 as u32, 6, 0),
        jump(libc::SYS_pread64 as u32, 3, 0),
        jump(libc::SYS_read as u32, 2, 0),
        jump(libc::SYS_fsync as u32, 1, 0),
        answer(libc::SECCOMP_RET_ALLOW),
        // A call that may wait.
        load(arg(0)),
        from(5, 4),
        // A call that may not.
        load(arg(0)),
        from(0, 2),
        load(arg(5)),
        either(libc::RWF_NOWAIT as u32, 2, 1),
        answer(libc::SECCOMP_RET_ALLOW),
        answer(libc::SECCOMP_RET_USER_NOTIF),
        answer(libc::SECCOMP_RET_ERRNO | libc::EAGAIN as u32),
    ];
    let (give, take) = channel();
    let held = Arc::new(Held::default());
    let tally = Arc::clone(&held);
    // The thread starts before the filter is there, so that the filter does not hold the thread's own calls.
    thread::spawn(move || supervise(&take.recv().expect("the filter is there"), hold, &tally));
    let listener = install(&program, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
    // SAFETY: the kernel has just made the descriptor.
    give.send(unsafe { OwnedFd::from_raw_fd(listener as libc::c_int) }).expect("the supervisor is there");
    held
}

/// Returns the same open file, on the slow disk.
#[track_caller]
pub fn on_it(file: &File) -> OwnedFd {
    // SAFETY: no pointers.
    let fd = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, FIRST) };
    assert!(fd >= FIRST, "{}", std::io::Error::last_os_error());
    // SAFETY: the kernel has just made the descriptor.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn supervise(listener: &OwnedFd, hold: Hold, tally: &Held) {
    // In the order in which they came: of calls that are held for the same time, the first is due first.
    let mut waiting: VecDeque<(Instant, u64)> = VecDeque::new();
    let mut beats = 0;
    loop {
        let (due, limit) = match hold {
            Hold::For(time) => {
                let due = waiting.iter().take_while(|(came, _)| came.elapsed() >= time).count();
                let next = waiting.get(due).map(|(came, _)| time.saturating_sub(came.elapsed()));
                (due, next.map_or(-1, |wait| wait.as_millis() as libc::c_int + 1))
            }
            Hold::Steps { step, full, all } => {
                let is_last = !waiting.is_empty() && tally.count.load(SeqCst) == all;
                let is_complete = waiting.len() >= full || is_last;
                let due = is_complete && tally.beats.load(SeqCst) != beats;
                (if due { step.min(waiting.len()) } else { 0 }, if is_complete { 1 } else { -1 })
            }
        };
        if due > 0 {
            beats = tally.beats.load(SeqCst);
        }
        for (_, id) in waiting.drain(..due) {
            tally.now.fetch_sub(1, SeqCst);
            goes_on(listener, id);
        }
        let mut entry = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        if unsafe { libc::poll(&raw mut entry, 1, limit) } <= 0 || entry.revents & libc::POLLIN == 0 {
            continue;
        }
        let Some(asked) = asked(listener) else { continue };
        let is_slow = match libc::c_long::from(asked.data.nr) {
            libc::SYS_openat => {
                // SAFETY: the caller is a thread of this process, which waits in the call.
                let path = unsafe { CStr::from_ptr(asked.data.args[1] as *const libc::c_char) };
                path.to_bytes().ends_with(SLOW.as_bytes())
            }
            _ => true,
        };
        if is_slow {
            tally.count.fetch_add(1, SeqCst);
            tally.most.fetch_max(tally.now.fetch_add(1, SeqCst) + 1, SeqCst);
            waiting.push_back((Instant::now(), asked.id));
            beats = tally.beats.load(SeqCst);
        } else {
            goes_on(listener, asked.id);
        }
    }
}
