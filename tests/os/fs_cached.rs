//! Reads for which the goroutine keeps its P: their bytes are in the page cache, or always in memory.
//!
//! The tests see a hand-off at one P, beside a queued goroutine: a reader that gives its P away lets that goroutine run. The
//! monitor takes no P meanwhile.

use common::room::Room;
use common::{child, runtime, skipped};
use gmp::fs::unix::{FileExt, OpenOptionsExt};
use gmp::fs::{File, OpenOptions};
use std::io::{IoSliceMut, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const LEN: usize = 10_000;
/// The longest buffer for which a read is tried without waiting, as the documentation of `fs` says.
const LONGEST: usize = 256 << 10;

/// Returns in how many of `rounds` calls of `read` another goroutine has run.
fn handed_off(rounds: usize, mut read: impl FnMut()) -> usize {
    let mut count = 0;
    for _ in 0..rounds {
        let ran = Arc::new(AtomicBool::new(false));
        let runs = Arc::clone(&ran);
        let other = gmp::go(move || runs.store(true, SeqCst));
        read();
        count += usize::from(ran.load(SeqCst));
        other.join().unwrap();
    }
    count
}

/// Returns `true` if the kernel reads files of this folder without waiting, once their bytes are in its cache.
fn knows_nowait(folder: &Path) -> bool {
    let path = folder.join("asked");
    std::fs::write(&path, "x").unwrap();
    let file = std::fs::File::open(path).unwrap();
    let mut byte = [0; 1];
    let part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: one part, which may be written to.
    unsafe { libc::preadv2(file.as_raw_fd(), &raw const part, 1, 0, libc::RWF_NOWAIT) == 1 }
}

fn written(path: PathBuf) -> PathBuf {
    std::fs::write(&path, vec![b'x'; LEN]).unwrap();
    path
}

type Reads = fn(&File);

/// The reads, each of a file whose position is at the start.
const READS: [(&str, Reads); 8] = [
    ("at an offset", |file| assert_eq!(file.read_at(&mut [0; 100], 7).unwrap(), 100)),
    ("up to the end", |file| assert_eq!(file.read_at(&mut [0; 100], LEN as u64 - 1).unwrap(), 1)),
    ("at the end", |file| assert_eq!(file.read_at(&mut [0; 100], LEN as u64).unwrap(), 0)),
    ("through the position", |mut file| assert_eq!(file.read(&mut [0; 100]).unwrap(), 100)),
    ("into the longest buffer", |mut file| assert_eq!(file.read(&mut vec![0; LONGEST]).unwrap(), LEN)),
    ("of nothing", |mut file| assert_eq!(file.read(&mut []).unwrap(), 0)),
    ("in parts", |mut file| {
        let (mut one, mut two) = ([0; 100], [0; 100]);
        let mut parts = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        assert_eq!(file.read_vectored(&mut parts).unwrap(), 200);
    }),
    ("of all", |mut file| assert_eq!(file.read_to_end(&mut Vec::new()).unwrap(), LEN)),
];

/// Fails when a read gives its P away: on a disk whose file system can say what is in the cache, and in memory, where only the
/// first read of the first file may.
#[test]
fn a_cached_read_costs_no_hand_off() {
    const ROUNDS: usize = 20;
    child::without_retakes("a_cached_read_costs_no_hand_off", || {
        runtime(1).run(|| {
            for room in Room::of_each_kind() {
                let in_memory = room.starts_with("/dev/shm");
                if !in_memory && !knows_nowait(&room) {
                    skipped(format_args!("{} can't say what is in the cache", room.display()));
                    continue;
                }
                let first = File::open(written(room.join("first"))).unwrap();
                let asked = handed_off(1, || assert_eq!(first.read_at(&mut [0], 0).unwrap(), 1));
                assert!(asked <= usize::from(in_memory), "{asked}");
                let later = File::open(written(room.join("later"))).unwrap();
                // std has opened this handle, so the library has not looked at it.
                let given = File::from(std::fs::File::open(room.join("later")).unwrap());
                handed_off(1, || assert_eq!(given.read_at(&mut [0], 0).unwrap(), 1));
                let clone = given.try_clone().unwrap();
                for (how, read) in READS {
                    for file in [&first, &later, &given, &clone] {
                        let seek = || {
                            let mut file = file;
                            file.seek(SeekFrom::Start(0)).unwrap();
                        };
                        let count = handed_off(ROUNDS, || {
                            seek();
                            read(file);
                        });
                        assert_eq!(count, 0, "{how}, in {}", room.display());
                    }
                }
            }
        });
    });
}

/// Returns `true` if the kernel opens what it has in its cache, and nothing else (since Linux 5.12).
fn opens_what_is_cached() -> bool {
    // SAFETY: zeros are no flags.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    (how.flags, how.resolve) = ((libc::O_PATH | libc::O_CLOEXEC) as u64, libc::RESOLVE_CACHED);
    let (at, size) = (&raw const how, size_of_val(&how));
    // SAFETY: both live through the call, which makes a descriptor.
    unsafe {
        let opened = libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, c"/".as_ptr(), at, size);
        opened >= 0 && libc::close(opened as libc::c_int) == 0
    }
}

/// Fails when the opening of a file gives its P away although the kernel has the path in its cache (since Linux 5.12).
#[test]
fn a_cached_path_is_opened_without_a_hand_off() {
    child::without_retakes("a_cached_path_is_opened_without_a_hand_off", || {
        if !opens_what_is_cached() {
            return skipped("the kernel can't say what path is in its cache");
        }
        runtime(1).run(|| {
            let room = Room::new();
            if !knows_nowait(&room) {
                return skipped(format_args!("{} can't say what is in the cache", room.display()));
            }
            let path = written(room.join("file"));
            let count =
                handed_off(20, || assert_eq!(File::open(&path).unwrap().read(&mut [0; 100]).unwrap(), 100));
            assert_eq!(count, 0);
        });
    });
}

/// The opening of a file waits until the holder of a lease on it has given the lease back. Fails when that wait keeps the P,
/// and ends only with the lease's time, or when the open file is left in a mode that std's is not in.
#[test]
fn a_wait_for_a_lease_is_handed_off() {
    child::without_retakes("a_wait_for_a_lease_is_handed_off", || {
        let room = Room::new();
        let path = written(room.join("file"));
        let holder = std::fs::File::open(&path).unwrap();
        // SAFETY: no pointers. The kernel asks for the lease by a signal whose default action ends the process.
        let lease = move |to: libc::c_int| unsafe {
            libc::signal(libc::SIGIO, libc::SIG_IGN);
            libc::fcntl(holder.as_raw_fd(), libc::F_SETLEASE, to) == 0
        };
        if !lease(libc::F_WRLCK) {
            return skipped("the file system knows no leases");
        }
        runtime(1).run(|| {
            let gives_back = gmp::go(move || assert!(lease(libc::F_UNLCK)));
            let opened = File::open(&path).unwrap();
            assert!(gives_back.is_finished());
            gives_back.join().unwrap();
            // SAFETY: no pointers.
            let flags = |file: &dyn AsRawFd| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
            let cached = File::open(&path).unwrap();
            let stds = std::fs::File::open(&path).unwrap();
            assert_eq!([flags(&opened), flags(&cached)], [flags(&stds); 2]);
        });
    });
}

/// Memory with the alignment that `O_DIRECT` needs.
#[repr(align(4096))]
struct Aligned([u8; 4096]);

/// The kernel accepts a read past its cache with `RWF_NOWAIT`, and waits all the same. Fails when such a read keeps its P while
/// the disk works.
#[test]
fn a_read_past_the_cache_is_handed_off() {
    const ROUNDS: usize = 20;
    child::without_retakes("a_read_past_the_cache_is_handed_off", || {
        let room = Room::new();
        let path = written(room.join("file"));
        let direct = |path: &Path| OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
        let mut bytes = Aligned([0; 4096]);
        if direct(&path).and_then(|file| file.read_at(&mut bytes.0, 0)).is_err() {
            skipped("the file system knows no O_DIRECT");
            return;
        }
        runtime(1).run(|| {
            let opened = direct(&path).unwrap();
            let options =
                std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
            let given = File::from(options);
            let clone = given.try_clone().unwrap();
            for file in [&opened, &given, &clone] {
                let count = handed_off(ROUNDS, || {
                    assert_eq!(file.read_at(&mut bytes.0, 4096).unwrap(), 4096);
                    assert_eq!(bytes.0, [b'x'; 4096]);
                    let mut file = file;
                    file.seek(SeekFrom::Start(0)).unwrap();
                    assert_eq!(file.read(&mut bytes.0).unwrap(), 4096);
                });
                assert!(count > ROUNDS / 2, "{count} of {ROUNDS}");
                assert_eq!(file.read_at(&mut bytes.0, 8192).unwrap(), LEN - 8192);
            }
        });
    });
}

/// Fails when a read keeps its P although the kernel can't say whether the read waits, or when this test does not see a
/// hand-off.
#[test]
fn a_read_that_may_wait_is_handed_off() {
    const ROUNDS: usize = 20;
    child::without_retakes("a_read_that_may_wait_is_handed_off", || {
        runtime(1).run(|| {
            for round in 0..3 {
                let limits = File::open("/proc/self/limits").unwrap();
                let count = handed_off(ROUNDS, || assert_eq!(limits.read_at(&mut [0; 10], 0).unwrap(), 10));
                assert!(count > ROUNDS / 2, "{count} of {ROUNDS}, round {round}");
            }
            // A read that is too long to be tried first.
            for room in Room::of_each_kind() {
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create_new(true)
                    .open(room.join("long"))
                    .unwrap();
                let mut all = vec![0; LONGEST + 1];
                file.set_len(all.len() as u64).unwrap();
                let count =
                    handed_off(ROUNDS, || assert_eq!(file.read_at(&mut all, 0).unwrap(), LONGEST + 1));
                assert!(count > ROUNDS / 2, "{count} of {ROUNDS}, in {}", room.display());
            }
        });
    });
}
