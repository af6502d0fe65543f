//! How times are measured, and judged on a shared machine: by quantiles.

use common::child;
use std::collections::HashSet;
use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The result of `alone`; the fields stand in the order in which they are to be dropped.
pub struct Alone {
    _builds: Option<File>,
    _process: MutexGuard<'static, ()>,
}

/// Gives the process to the caller until the caller drops the result. No other build of these tests measures meanwhile:
/// `./test` runs two builds side by side. A caller that waits here costs no CPU time.
pub fn alone() -> Alone {
    static PROCESS: Mutex<()> = Mutex::new(());
    // A test that fails while it holds the lock leaves nothing broken behind it.
    let process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    // The lock of a child's parent covers the child.
    let builds = (!child::is_child()).then(|| {
        let file = File::create(concat!(env!("CARGO_TARGET_TMPDIR"), "/measures"))
            .expect("cargo has made the folder");
        file.lock().expect("a file can be locked");
        file
    });
    Alone { _builds: builds, _process: process }
}

/// Returns `true` if the machine has nothing else to do, as `GMP_QUIET=1` says: then the bounds in time are judged, on as many
/// Ps as there are cores, and there are more samples. `./test scheduling_timing` sets it.
pub fn is_quiet() -> bool {
    std::env::var_os("GMP_QUIET").is_some_and(|value| value == "1")
}

/// As `is_quiet`, for a test on `procs` Ps.
pub fn is_quiet_on(procs: usize) -> bool {
    is_quiet() && std::thread::available_parallelism().is_ok_and(|cores| procs <= cores.get())
}

/// How long a goroutine may keep its P while others wait, and how long after that the monitor may look: `threads.md`.
pub const SLICE: Duration = Duration::from_millis(10);
pub const LOOK: Duration = Duration::from_millis(5);

#[inline(never)]
pub fn thread_id() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
}

/// Returns how often a thread of the process has gone to sleep.
pub fn sleeps() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the call fills the struct, which consists of plain numbers.
    unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()), 0);
        usage.assume_init().ru_nvcsw
    }
}

/// Returns the value below which `percent` of a hundred values lie.
pub fn percentile<T: Copy + Ord>(values: &[T], percent: usize) -> T {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

pub fn median<T: Copy + Ord>(values: &[T]) -> T {
    percentile(values, 50)
}

/// Keeps the caller's thread, as code that computes does.
pub fn spin_for(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// A meeting of members that are to run at the same moment, each on a thread of its own.
pub struct Meeting {
    size: usize,
    waiting: AtomicUsize,
    begun: OnceLock<Instant>,
    arrived: AtomicUsize,
    arrivals: Mutex<Vec<(i32, Duration)>>,
}

impl Meeting {
    /// The time that the slowest machine needs to run the threads of all members.
    const MEETING_LIMIT: Duration = Duration::from_secs(5);

    pub fn of(size: usize) -> Arc<Self> {
        let arrivals = Mutex::new(Vec::with_capacity(size));
        let [waiting, arrived] = [(); 2].map(|()| AtomicUsize::new(0));
        Arc::new(Meeting { size, waiting, begun: OnceLock::new(), arrived, arrivals })
    }

    /// Says that the caller is about to wait for the beginning.
    pub fn announce(&self) {
        self.waiting.fetch_add(1, SeqCst);
    }

    /// Returns `true` if all members but the one that begins have announced themselves.
    pub fn is_awaited(&self) -> bool {
        self.waiting.load(SeqCst) == self.size - 1
    }

    pub fn begin(&self) {
        self.begin_at(Instant::now());
    }

    /// Sets the beginning of the meeting: no member comes before it.
    pub fn begin_at(&self, time: Instant) {
        self.begun.set(time).expect("a meeting begins once");
    }

    pub fn has_begun(&self) -> bool {
        self.begun.get().is_some()
    }

    /// Arrives, and keeps the thread until all members are there.
    pub fn attend(&self) {
        let begun = self.begun.get().expect("it has begun");
        let arrival = (thread_id(), begun.elapsed());
        self.arrivals.lock().unwrap().push(arrival);
        self.arrived.fetch_add(1, SeqCst);
        while self.arrived.load(SeqCst) < self.size && begun.elapsed() < Self::MEETING_LIMIT {
            std::hint::spin_loop();
        }
    }

    /// Returns how long each member but the first took to arrive. Fails when members had to share threads.
    #[track_caller]
    pub fn waits(&self) -> Vec<Duration> {
        let mut arrivals = self.arrivals.lock().unwrap().clone();
        arrivals.sort_by_key(|(_, after)| *after);
        let threads = HashSet::<i32>::from_iter(arrivals.iter().map(|(thread, _)| *thread));
        assert_eq!(threads.len(), self.size, "threads that ran at the same time: {arrivals:?}");
        arrivals.iter().skip(1).map(|(_, after)| *after).collect()
    }
}
