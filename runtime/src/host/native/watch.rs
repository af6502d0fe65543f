//! What a thread of this process is doing, as another thread sees it.
//!
//! A file of `/proc` says whether a thread is blocked. The thread opens the file when it begins to be an M, and the monitor
//! reads it at offset 0 as often as it wants to know: no descriptor is needed when a thread blocks, which may be the moment at
//! which the process has none left. The thread opens the file as `/proc/thread-self/..`, which names the calling thread
//! whatever its number is in that `/proc`: a `/proc` that was mounted in another pid namespace has other numbers than `gettid`.
//! Only if that file is not kept is the thread's folder read, by which the monitor opens the file later.
//!
//! The Ms of a process keep a quarter of `RLIMIT_NOFILE` at most, and none of its last quarter: there are as many Ms as
//! goroutines that block their threads, and the program comes first where descriptors are short. The monitor looks only at Ms
//! that hold a P, so of thousands of Ms it looks at no more than there are Ps. For an M without a descriptor the monitor opens
//! the file at each look, which is two system calls more, and keeps the descriptor once there is room. While the process has no
//! descriptor left at all, the monitor can't see whether such an M is blocked. An M whose thread uses hardly any CPU then
//! counts as one that the kernel keeps from running: the monitor retakes its P after 40 ms (`STARVED_LIMIT` of `retake.rs`). A
//! message reports the first M without a descriptor.

use crate::host::Lack;
use crate::prim::{Mutex, Rank};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Returns the kernel's number of the calling thread.
pub(super) fn number() -> u32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() as u32 }
}

/// Returns how long a thread of this process has been on a CPU.
pub(crate) fn cpu_time(thread: u32) -> Option<Duration> {
    // The clock of a thread, as the kernel numbers them: the complement of the thread's number, shifted by three bits,
    // which say that the clock is one thread's (4) and counts what the scheduler counts (2).
    let clock = (!thread << 3 | 0b110) as libc::clockid_t;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    Some(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// The monitor's means to look at one M's thread. Empty while the M has no thread.
#[derive(Debug)]
pub(crate) struct Watched(Mutex<Option<Thread>>);

impl Default for Watched {
    fn default() -> Self {
        Watched(Mutex::new(Rank::ThreadWatch, None))
    }
}

#[derive(Debug)]
enum Thread {
    Open(Kept),
    /// The thread's folder, under the name that this `/proc` has for it. An error if no `/proc` is mounted, or that of a pid
    /// namespace in which this process is not.
    Closed(Result<PathBuf, i32>),
}

const OWN_FOLDER: &str = "/proc/thread-self";

impl Thread {
    /// Makes the value for the calling thread. It keeps no file open.
    fn closed() -> Thread {
        let name = std::fs::read_link(OWN_FOLDER);
        let folder = name.map(|name| Path::new("/proc").join(name));
        Thread::Closed(folder.map_err(|refused| refused.raw_os_error().unwrap_or(libc::ENOENT)))
    }

    fn kept(&self) -> Option<&Kept> {
        match self {
            Thread::Open(kept) => Some(kept),
            Thread::Closed(_) => None,
        }
    }
}

/// A file that stays open, and its slot in the share of the Ms.
#[derive(Debug)]
struct Kept {
    source: Source,
    _place: KeptSlot,
}

/// One of the descriptors that the process's Ms may keep.
#[derive(Debug)]
struct KeptSlot;

/// How many of these slots are taken.
static KEPT_SLOTS: AtomicU64 = AtomicU64::new(0);

impl KeptSlot {
    /// Takes a slot, of at most `most`. Returns `None` if all are taken.
    fn take(most: u64) -> Option<KeptSlot> {
        // Relaxed: the count guards nothing else.
        let more = |places: u64| (places < most).then_some(places + 1);
        KEPT_SLOTS.fetch_update(Relaxed, Relaxed, more).is_ok().then(|| KeptSlot)
    }
}

impl Drop for KeptSlot {
    fn drop(&mut self) {
        KEPT_SLOTS.fetch_sub(1, Relaxed);
    }
}

/// A file that says whether a thread is blocked.
#[derive(Debug)]
struct Source {
    file: File,
    kind: Kind,
}

#[derive(Copy, Clone, Debug)]
enum Kind {
    /// "running", or the number of the system call and its arguments, or -1 for a thread that waits elsewhere: in a
    /// page fault.
    Syscall,
    /// The thread's state, after its name. For kernels without `syscall`, and for a process that is not dumpable, whose
    /// `syscall` only root may open.
    Stat,
}

impl Watched {
    /// The calling thread begins to be an M: opens the file that says whether the thread is blocked. Returns the thread's
    /// number, and whether the M goes without the file for want of a descriptor.
    pub(crate) fn begin(&self) -> (u32, Lack) {
        let opened = Source::open(Path::new(OWN_FOLDER)).map(Source::keep);
        let (thread, lack) = match opened.map_err(|refused| refused.raw_os_error()) {
            Ok(Some(kept)) => (Thread::Open(kept), Lack::No),
            Ok(None) | Err(Some(libc::EMFILE | libc::ENFILE)) => (Thread::closed(), Lack::Yes),
            // The first look returns the error.
            Err(_) => (Thread::closed(), Lack::No),
        };
        *self.0.lock() = Some(thread);
        (number(), lack)
    }

    /// The thread is no M any more, or the monitor must not look at it again. Closes the file that was opened.
    pub(crate) fn end(&self) {
        *self.0.lock() = None;
    }

    /// Returns `true` if the thread waits for something in the kernel. A thread that waits only for a CPU does not.
    ///
    /// # Errors
    /// When the state is not known.
    pub(crate) fn is_blocked(&self) -> io::Result<bool> {
        let mut this = self.0.lock();
        // The M has no thread any more.
        let Some(thread) = &mut *this else { return Ok(false) };
        let folder = match thread {
            Thread::Open(kept) => return kept.source.is_blocked(),
            Thread::Closed(folder) => {
                folder.as_ref().map_err(|&refused| io::Error::from_raw_os_error(refused))?
            }
        };
        let source = Source::open(folder)?;
        let said = source.is_blocked();
        if let Some(kept) = source.keep() {
            *thread = Thread::Open(kept);
        }
        said
    }

    /// Returns `true` if the thread was off its CPU at a moment since this was called, and so has passed a full
    /// barrier since. The kernel describes a system call only of a thread that it has found switched out, under the
    /// lock of that thread's run queue.
    pub(crate) fn is_off_cpu(&self) -> bool {
        let this = self.0.lock();
        let kept = this.as_ref().and_then(Thread::kept);
        // Not `stat`: a thread that is still on its CPU stores the state that `stat` shows.
        kept.is_some_and(|Kept { source, .. }| {
            matches!(source.kind, Kind::Syscall) && source.is_blocked().unwrap_or(false)
        })
    }
}

impl Source {
    fn open(folder: &Path) -> io::Result<Self> {
        let syscall = File::open(folder.join("syscall")).map(|file| Source { file, kind: Kind::Syscall });
        syscall.or_else(|_| Ok(Source { file: File::open(folder.join("stat"))?, kind: Kind::Stat }))
    }

    /// Keeps the file open if the process has a quarter of its descriptors left besides this one, and the Ms keep less than
    /// their quarter; else closes it.
    fn keep(self) -> Option<Kept> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the call writes the struct that we pass.
        let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0;
        let quarter = limit.rlim_cur / 4;
        // The kernel gives the lowest free number.
        let leaves_room = known && (self.file.as_raw_fd() as libc::rlim_t) < limit.rlim_cur - quarter;
        let place = if leaves_room { KeptSlot::take(quarter)? } else { return None };
        Some(Kept { source: self, _place: place })
    }

    fn is_blocked(&self) -> io::Result<bool> {
        let mut text = [0; 512];
        let len = match self.file.read_at(&mut text, 0) {
            Ok(len) => len,
            // The thread has ended.
            Err(refused) if refused.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
            Err(refused) => return Err(refused),
        };
        self.kind.says(&text[..len]).ok_or_else(|| io::Error::other("what it says is not understood"))
    }
}

impl Kind {
    fn says(self, text: &[u8]) -> Option<bool> {
        match self {
            Kind::Syscall => match text.first()? {
                b'r' => Some(false),
                b'0'..=b'9' | b'-' => Some(true),
                _ => None,
            },
            Kind::Stat => {
                // The state follows the name, which is in parentheses and may contain some.
                let name_ends = text.iter().rposition(|&byte| byte == b')')?;
                text.get(name_ends + 2).map(|state| matches!(state, b'S' | b'D'))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint;
    use std::os::fd::FromRawFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::mpsc::channel;
    use std::thread;

    /// Waits until `what` returns `true`: the test's own thread may be ahead of the one that it watches.
    fn until(what: impl Fn() -> bool) {
        while !what() {
            thread::yield_now();
        }
    }

    /// Starts a thread that has begun as an M's and goes on with `then`, and returns its number, too. The thread has sent
    /// its messages before `then`.
    fn watched<'s>(scope: &'s thread::Scope<'s, '_>, then: impl FnOnce() + Send + 's) -> (Arc<Watched>, u32) {
        let (say, hear) = channel();
        let watched = Arc::new(Watched::default());
        let own = Arc::clone(&watched);
        scope.spawn(move || {
            say.send(own.begin().0).unwrap();
            drop(say);
            then();
        });
        let number = hear.recv().unwrap();
        // Disconnected when the thread goes on.
        hear.recv().unwrap_err();
        (watched, number)
    }

    #[test]
    fn a_thread_that_waits_is_blocked_and_uses_no_cpu() {
        let (end, ended) = channel::<()>();
        thread::scope(|s| {
            let (watched, number) = watched(s, move || ended.recv().unwrap_or_default());
            until(|| watched.is_blocked().unwrap());
            let before = cpu_time(number).unwrap();
            assert_eq!(cpu_time(number).unwrap(), before);
            drop(end);
        });
    }

    #[test]
    fn threads_that_run_or_would_run_are_not_blocked() {
        let end = AtomicBool::new(false);
        thread::scope(|s| {
            // More threads than there are CPUs, so that only some of them run.
            for _ in 0..2 * thread::available_parallelism().unwrap().get() {
                let (watched, number) = watched(s, || {
                    while !end.load(Relaxed) {
                        hint::spin_loop();
                    }
                });
                let before = cpu_time(number).unwrap();
                for _ in 0..100 {
                    assert!(!watched.is_blocked().unwrap());
                }
                until(|| cpu_time(number).unwrap() > before);
            }
            end.store(true, Relaxed);
        });
    }

    /// Fails by an error for a thread that has ended, which the operator would be told.
    #[test]
    fn of_a_thread_that_is_not_there_nothing_is_known() {
        let (watched, gone) = thread::scope(|s| watched(s, || ()));
        until(|| cpu_time(gone).is_none());
        until(|| !watched.is_blocked().unwrap());
        watched.end();
        assert!(!watched.is_blocked().unwrap());
    }

    /// Fails if a look opens a descriptor where it may not, or one is kept from a process that has none left.
    #[test]
    fn a_look_needs_no_descriptor_of_its_own_and_the_last_quarter_is_left_alone() {
        let (end, ended) = channel::<()>();
        thread::scope(|s| {
            let (watched, thread) = watched(s, move || ended.recv().unwrap_or_default());
            let number =
                || watched.0.lock().as_ref().unwrap().kept().map(|kept| kept.source.file.as_raw_fd());
            let kept = number().unwrap();
            until(|| watched.is_blocked().unwrap());
            assert_eq!(number(), Some(kept));
            let closed = Thread::Closed(Ok(format!("/proc/self/task/{thread}").into()));
            let Some(Thread::Open(Kept { source, .. })) = watched.0.lock().replace(closed) else {
                panic!("just seen")
            };
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: the call writes the struct that we pass.
            assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
            let edge = (limit.rlim_cur - limit.rlim_cur / 4) as libc::c_int;
            // SAFETY: the number is not in use: descriptors are given from the lowest on. Its `File` closes it.
            let high = unsafe {
                File::from_raw_fd(libc::fcntl(source.file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, edge))
            };
            let high = Source { file: high, kind: source.kind };
            assert!(source.keep().is_some() && high.keep().is_none());
            // What was closed is opened again, as there is room.
            assert!(number().is_none());
            assert!(watched.is_blocked().unwrap() && number().is_some());
            drop(end);
        });
    }

    /// Fails where the look misreads the state of a thread whose name has parentheses, or a file of another form.
    #[test]
    fn each_file_is_read_for_what_it_says() {
        assert_eq!(Kind::Syscall.says(b"running\n"), Some(false));
        assert_eq!(Kind::Syscall.says(b"202 0x1 0x2\n"), Some(true));
        assert_eq!(Kind::Syscall.says(b"-1 0x1 0x2\n"), Some(true));
        assert_eq!(Kind::Syscall.says(b"hello"), None);
        assert_eq!(Kind::Syscall.says(b""), None);
        assert_eq!(Kind::Stat.says(b"17 (a) S (b) R 1 2"), Some(false));
        assert_eq!(Kind::Stat.says(b"17 (a) R (b) S 1 2"), Some(true));
        assert_eq!(Kind::Stat.says(b"17 a"), None);
    }
}
