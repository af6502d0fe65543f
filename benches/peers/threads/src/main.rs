//! The floors: std's threads and mutex, crossbeam's channels, rayon, the kernel's own sleep, one thread around an epoll; and
//! those of the shapes (`floors`).
//!
//! `peer-threads costs` prints what a few things cost that every runtime is made of, in nanoseconds. `peer-threads distance`
//! tells how far the first core and the last are apart.

mod costs;
mod echo;
mod floors;

use peer_common::{Args, CUTOFF, Found};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::time::{Duration, Instant};

fn main() {
    let args = Args::from_env();
    let n = |default| args.n(default);
    let found = match args.workload.as_str() {
        "ping_pong" => peer_common::timed(n(100_000), ping_pong),
        "buffered_1x1" => peer_common::timed(n(4_000_000), |n| buffered(1, n)),
        "buffered_4x4" => peer_common::timed(n(2_000_000), |n| buffered(4, n)),
        "mutex_1" => peer_common::timed(n(20_000_000), |n| mutex(1, n)),
        "mutex_8" => peer_common::timed(n(8_000_000), |n| mutex(8, n)),
        "oversleep" => oversleep(n(2_000)),
        "parked" | "parked_own" => parked(n(1_000_000)),
        "echo" => echo::tcp(),
        "small_echo" => echo::thread_each(),
        "unix_echo" => echo::unix(),
        "udp_echo" => echo::udp(),
        "costs" => return costs::print(),
        "distance" => costs::distance(),
        "blocking_marked" => blocking_marked(args.procs),
        "cached_files" => cached_files(n(4_000_000)),
        "merge_sort" => merge_sort(n(1_000_000), args.procs),
        _ => floors::run(&args).unwrap_or_else(|| args.unknown()),
    };
    found.print();
}

fn ping_pong(n: u64) {
    let ((ping, pinged), (pong, ponged)) = (crossbeam_channel::bounded(0), crossbeam_channel::bounded(0));
    std::thread::scope(|scope| {
        scope.spawn(move || pinged.iter().for_each(|i: u64| pong.send(i + 1).unwrap()));
        for i in 0..n {
            ping.send(i).unwrap();
            assert_eq!(ponged.recv(), Ok(i + 1));
        }
        drop(ping);
    });
}

fn buffered(each: u64, n: u64) {
    let (sender, receiver) = crossbeam_channel::bounded::<u64>(128);
    let sum: u64 = std::thread::scope(|scope| {
        for _ in 0..each {
            let sender = sender.clone();
            scope.spawn(move || (0..n / each).for_each(|i| sender.send(i).unwrap()));
        }
        let receive = |_| {
            let receiver = receiver.clone();
            scope.spawn(move || receiver.iter().sum::<u64>())
        };
        let receivers: Vec<_> = (0..each).map(receive).collect();
        drop((sender, receiver));
        receivers.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(sum, each * peer_common::sum_below(n / each));
}

/// A hundred threads, of which only so many may be outside of their sleeps: what a runtime does when a call is marked, without
/// the runtime.
fn blocking_marked(procs: usize) -> Found {
    peer_common::exact_timers();
    let (free, came_free) = (Mutex::new(procs), Condvar::new());
    let give = || {
        *free.lock().unwrap() += 1;
        came_free.notify_one();
    };
    let take = || {
        let mut free = came_free.wait_while(free.lock().unwrap(), |free| *free == 0).unwrap();
        *free -= 1;
    };
    let all_there = Barrier::new(101);
    std::thread::scope(|scope| {
        let sleeper = || {
            all_there.wait();
            take();
            for _ in 0..20 {
                give();
                std::thread::sleep(Duration::from_millis(1));
                take();
            }
            give();
            all_there.wait();
        };
        (0..100).for_each(|_| drop(scope.spawn(sleeper)));
        all_there.wait();
        let start = Instant::now();
        all_there.wait();
        Found::new(start.elapsed().as_secs_f64() * 1e3)
    })
}

fn mutex(threads: u64, n: u64) {
    let count = Arc::new(Mutex::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..n / threads).for_each(|_| *count.lock().unwrap() += 1));
        }
    });
    assert_eq!(*count.lock().unwrap(), n / threads * threads);
}

/// Each a thread, and `pread`.
fn cached_files(n: u64) -> Found {
    use std::os::unix::fs::FileExt;
    peer_common::many_descriptors();
    let files = peer_common::cached_files();
    let read = |file: &std::fs::File, reads| {
        peer_common::read_pages(reads, |page, at| assert_eq!(file.read_at(page, at).unwrap(), page.len()));
    };
    peer_common::timed_with_cpu(n, |n| {
        let reads = n / files.len() as u64;
        std::thread::scope(|scope| {
            for file in &files {
                scope.spawn(move || read(file, reads));
            }
        });
    })
}

fn oversleep(n: u64) -> Found {
    peer_common::exact_timers();
    let sleep = |_| {
        let start = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        start.elapsed()
    };
    peer_common::oversleep((0..n).map(sleep).collect())
}

/// What a stack must cost: 64 KiB of address space as gmp lays them out, with guards of 16 KiB, 64 in a call, and the first
/// touch of its uppermost page.
fn parked(n: u64) -> Found {
    const PAGE: usize = 4 << 10;
    const SLAB: usize = 64 << 20;
    const GUARD: usize = 16 << 10;
    const APART: usize = (64 << 10) - PAGE + GUARD;
    const BATCH: usize = 64;
    const MADV_GUARD_INSTALL: libc::c_int = 102;
    const PIDFD_SELF: libc::c_int = -10000;
    let before = peer_common::resident();
    let clock = peer_common::Clock::new();
    let mut left = n as usize;
    while left > 0 {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, which stays.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), SLAB, prot, flags, -1, 0) }.cast::<u8>();
        assert_ne!(base.cast(), libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        // SAFETY: within that mapping.
        unsafe { libc::madvise(base.cast(), SLAB, libc::MADV_NOHUGEPAGE) };
        let slots = left.min(SLAB / APART);
        for first in (0..slots).step_by(BATCH) {
            let batch = BATCH.min(slots - first);
            let mut guards = [libc::iovec { iov_base: base.cast(), iov_len: GUARD }; BATCH];
            for (slot, guard) in guards[..batch].iter_mut().enumerate() {
                guard.iov_base = base.wrapping_add((first + slot) * APART).cast();
            }
            let places = guards.as_ptr();
            // SAFETY: within that mapping; the kernel reads the array.
            let made = unsafe {
                libc::syscall(libc::SYS_process_madvise, PIDFD_SELF, places, batch, MADV_GUARD_INSTALL, 0)
            };
            assert_eq!(made, (batch * GUARD) as i64, "{}", std::io::Error::last_os_error());
            for slot in first..first + batch {
                // SAFETY: the last word of a slot, within that mapping.
                unsafe { base.add((slot + 1) * APART - 8).cast::<u64>().write_volatile(1) };
            }
        }
        left -= slots;
    }
    let found = clock.per_op(n);
    let bytes = peer_common::resident() - before;
    found.with("bytes", bytes as f64 / n as f64)
}

fn merge_sort(n: u64, procs: usize) -> Found {
    fn sort(numbers: &mut [u64], space: &mut [u64]) {
        if numbers.len() <= CUTOFF {
            return peer_common::sort_leaf(numbers);
        }
        let middle = numbers.len() / 2;
        let (left, right) = numbers.split_at_mut(middle);
        let (left_space, right_space) = space.split_at_mut(middle);
        rayon::join(|| sort(left, left_space), || sort(right, right_space));
        space.copy_from_slice(numbers);
        peer_common::merge(space, middle, numbers);
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(procs).build().unwrap();
    pool.install(|| peer_common::timed_sort(n, sort))
}
