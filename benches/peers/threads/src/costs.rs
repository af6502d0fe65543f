//! What the floors of the cost model are made of.

use peer_common::Found;
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst, fence};
use std::time::{Duration, Instant};

const TIMES: u32 = 1_000_000;

pub fn print() {
    let (word, lock) = (AtomicU64::new(0), Mutex::new(0));
    let line = |what: &str, nanos: f64| println!("{nanos:8.1} ns  {what}");
    line(
        "an exchange that nobody else makes",
        each(TIMES, || {
            black_box(word.fetch_add(1, SeqCst));
        }),
    );
    line(
        "a store and a full fence",
        each(TIMES, || {
            word.store(1, Relaxed);
            fence(SeqCst);
        }),
    );
    line("lock and unlock", each(TIMES, || *lock.lock().expect("nobody panics") += 1));
    line("allocate and free 64 bytes", each(TIMES, || drop(black_box(Box::<[u8; 64]>::new_uninit()))));
    line(
        "read the clock",
        each(TIMES, || {
            black_box(Instant::now());
        }),
    );
    // SAFETY: it takes nothing and does nothing.
    line(
        "a system call",
        each(TIMES, || {
            black_box(unsafe { libc::syscall(libc::SYS_gettid) });
        }),
    );
    line("a cache line to another core and back", round_trip(TIMES));
    let (call, until_it_runs) = wake();
    line("the call that wakes a thread", call);
    line("until that thread runs", until_it_runs);
    line("the first touch of a page", touch());
}

fn each(times: u32, mut f: impl FnMut()) -> f64 {
    (0..times / 10).for_each(|_| f());
    let start = Instant::now();
    (0..times).for_each(|_| f());
    start.elapsed().as_nanos() as f64 / f64::from(times)
}

/// How long a cache line takes from the first core to the last and back; zero where there is one core, or threads can't be kept
/// on theirs.
pub fn distance() -> Found {
    const FEW: u32 = 20_000;
    let cpus = cpus();
    let (Some(first), Some(last)) = (cpus.first(), cpus.last()) else { return Found::new(0.0) };
    if first == last {
        return Found::new(0.0);
    }
    // Two threads that spin on one core take a time slice for each turn. What this thread may do the other one may, too.
    if !(run_on(*last) && run_on(*first)) {
        return Found::new(0.0);
    }
    Found::new(round_trip_to(FEW, || assert!(run_on(*last))))
}

/// The CPUs that this process may use.
fn cpus() -> Vec<usize> {
    let mut set = std::mem::MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: a set of no CPUs is all zeros, and the call writes into the set what fits there.
    let set = unsafe {
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr());
        set.assume_init()
    };
    // SAFETY: each number is below the set's size.
    (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

/// Keeps this thread on `cpu`. Returns `false` if that is refused.
fn run_on(cpu: usize) -> bool {
    let mut set = std::mem::MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: a set of no CPUs is all zeros; the number came from a set.
    unsafe {
        libc::CPU_SET(cpu, &mut *set.as_mut_ptr());
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set.as_ptr()) == 0
    }
}

fn round_trip(times: u32) -> f64 {
    round_trip_to(times, || ())
}

/// The other thread begins with `begin`.
fn round_trip_to(times: u32, begin: impl FnOnce() + Send) -> f64 {
    let (there, back) = (AtomicU64::new(0), AtomicU64::new(0));
    let wait = |word: &AtomicU64, for_what| while word.load(SeqCst) != for_what {};
    std::thread::scope(|scope| {
        scope.spawn(|| {
            begin();
            (1..=u64::from(times + times / 10)).for_each(|turn| {
                wait(&there, turn);
                back.store(turn, SeqCst);
            });
        });
        let mut turn = 0;
        each(times, || {
            turn += 1;
            there.store(turn, SeqCst);
            wait(&back, turn);
        })
    })
}

/// The medians of the call and of the time until the thread runs, which has slept for a while.
fn wake() -> (f64, f64) {
    const ROUNDS: u32 = 2_000;
    let (word, woke, start) = (AtomicU32::new(0), AtomicU64::new(0), Instant::now());
    let now = || start.elapsed().as_nanos() as u64;
    let (mut calls, mut runs) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                while word.load(SeqCst) != round {
                    // SAFETY: the word lives until the scope ends.
                    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, round - 1, 0) };
                }
                woke.store(now(), SeqCst);
            }
        });
        for round in 1..=ROUNDS {
            std::thread::sleep(Duration::from_micros(200));
            woke.store(0, SeqCst);
            let before = now();
            word.store(round, SeqCst);
            // SAFETY: as above.
            unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
            calls.push(now() - before);
            while woke.load(SeqCst) == 0 {
                std::hint::spin_loop();
            }
            runs.push(woke.load(SeqCst) - before);
        }
    });
    [calls, runs]
        .map(|mut times| {
            times.sort_unstable();
            times[times.len() / 2] as f64
        })
        .into()
}

fn touch() -> f64 {
    const PAGES: usize = 20_000;
    let bytes = PAGES * 4096;
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, of small pages.
    let base = unsafe {
        let base = libc::mmap(std::ptr::null_mut(), bytes, prot, flags, -1, 0);
        assert_ne!(base, libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
        libc::madvise(base, bytes, libc::MADV_NOHUGEPAGE);
        base.cast::<u8>()
    };
    let start = Instant::now();
    // SAFETY: each lies in the mapping.
    (0..PAGES).for_each(|page| unsafe { base.add(page * 4096).write_volatile(1) });
    let took = start.elapsed();
    // SAFETY: nobody uses it any more.
    unsafe { libc::munmap(base.cast(), bytes) };
    took.as_nanos() as f64 / PAGES as f64
}
