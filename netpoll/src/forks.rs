//! To which process a value belongs.
//!
//! A forked child that never calls exec has a copy of its parent's memory, but not its threads, and shares the open files. So a
//! value that describes threads or open files has a [`ProcessMark`], and the child makes that value anew.
//!
//! The number of the process is a word of a page that the kernel fills with zeros in a child (`MADV_WIPEONFORK`, Linux 4.14).
//! A process that finds zero takes the next number. The child has the zero before it runs any code, so a signal handler and a
//! handler of `pthread_atfork` see it too. Where the kernel refuses the advice, a handler of `pthread_atfork` stores the zero.
//!
//! Put aside: the process's id. It costs a system call a look, and a parent and its child may have the same id, if each is the
//! first process of a PID namespace.

use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64};

/// The word with the number of this process; zero in a child that has no number yet.
static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
/// The last number that this process or one before it in the line of forks has taken.
static LAST: AtomicU64 = AtomicU64::new(0);
/// The word where no page is wiped.
static UNWIPED: AtomicU64 = AtomicU64::new(0);

/// The process to which a value belongs. A forked child has a copy of its parent's marks, which are not of this process there.
///
/// A child by vfork(2) has its parent's memory, and is not told from its parent. Where the kernel refuses `MADV_WIPEONFORK`,
/// nor is a child by _Fork(3) or clone(2), nor code that runs in a child before this library's handler of `pthread_atfork`.
///
/// ```
/// use gmp_netpoll::ProcessMark;
///
/// static OWNER: ProcessMark = ProcessMark::none();
/// assert!(!OWNER.is_of_this_process());
/// OWNER.renew();
/// assert!(OWNER.is_of_this_process());
/// ```
#[derive(Debug)]
pub struct ProcessMark(AtomicU64);

impl ProcessMark {
    /// Returns the mark of no process.
    pub const fn none() -> Self {
        ProcessMark(AtomicU64::new(0))
    }

    /// Returns the mark of this process.
    pub fn of_this_process() -> Self {
        ProcessMark(AtomicU64::new(number()))
    }

    /// From here on the mark is that of this process.
    pub fn renew(&self) {
        // Relaxed: a mark publishes nothing; the value that has the mark is published by other means.
        self.0.store(number(), Relaxed);
    }

    /// Returns `true` if the mark is that of this process. The first call of a method in the program makes system calls; later
    /// a signal handler may call this one.
    pub fn is_of_this_process(&self) -> bool {
        // Relaxed: as in `renew`.
        self.0.load(Relaxed) == number()
    }
}

#[inline]
fn number() -> u64 {
    // Acquire: partner `word`. SAFETY: null, or a word that is never freed.
    let word = unsafe { WORD.load(Acquire).as_ref() }.unwrap_or_else(word);
    // Relaxed: only the value counts.
    match word.load(Relaxed) {
        0 => take_number(word),
        number => number,
    }
}

/// Takes a number that no mark of this process, and none that was copied from its parent, has.
#[cold]
fn take_number(word: &AtomicU64) -> u64 {
    // Counted up first: a child that is forked between the two lines takes another number. Relaxed: only the values count.
    let next = LAST.fetch_add(1, Relaxed) + 1;
    // Another thread, or a signal handler, may have taken one: then that is the number.
    word.compare_exchange(0, next, Relaxed, Relaxed).map_or_else(|number| number, |_zero| next)
}

/// Makes the word, without a lock: another thread may fork meanwhile, and its child would find the lock taken for good.
#[cold]
fn word() -> &'static AtomicU64 {
    let page = wiped();
    let word = page.unwrap_or_else(|| {
        // Fails for want of memory alone; then a child is not told from its parent. A second call, of another thread, does no
        // harm.
        // SAFETY: the function may be called in a child.
        _ = unsafe { libc::pthread_atfork(None, None, Some(wipe)) };
        &UNWIPED
    });
    // Release: partner `number`. Acquire: the word of the thread that came first: partner this Release.
    match WORD.compare_exchange(ptr::null_mut(), ptr::from_ref(word).cast_mut(), Release, Acquire) {
        Ok(_null) => word,
        Err(first) => {
            if let Some(page) = page {
                // SAFETY: the page that this call has mapped; no other thread has seen it.
                unsafe { libc::munmap(ptr::from_ref(page).cast_mut().cast(), LEN) };
            }
            // SAFETY: not null, and never freed.
            unsafe { &*first }
        }
    }
}

extern "C" fn wipe() {
    // Relaxed: the child has this thread alone.
    UNWIPED.store(0, Relaxed);
}

/// The length of the page's mapping, which the kernel rounds up.
const LEN: usize = size_of::<AtomicU64>();

/// Maps the page; `None` if the kernel refuses the page or the advice.
fn wiped() -> Option<&'static AtomicU64> {
    /// No advice has this number. An emulator that ignores all advice takes it.
    const UNKNOWN: libc::c_int = -1;
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, which replaces none.
    let page = unsafe { libc::mmap(ptr::null_mut(), LEN, access, kind, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the advice is about the page above, which nothing else uses.
    let advise = |advice| unsafe { libc::madvise(page, LEN, advice) } == 0;
    if advise(UNKNOWN) || !advise(libc::MADV_WIPEONFORK) {
        // SAFETY: the page above; no reference to it exists.
        unsafe { libc::munmap(page, LEN) };
        return None;
    }
    // SAFETY: a page of zeros, aligned to more than the word is. Only `word` unmaps it, and then uses the reference no more.
    Some(unsafe { &*page.cast() })
}
