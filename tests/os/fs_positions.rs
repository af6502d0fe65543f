//! Which bytes a read returns while others move the same position, the disk is slow, or the cache has only some of the bytes.

use common::child;
use common::crew::{each, everyone, join_all};
use common::random::Random;
use common::room::Room;
use common::slow_disk::{self, Hold};
use common::talk::pattern;
use common::{PROCS, runtime, watched};
use gmp::fs::unix::FileExt;
use gmp::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// Each try without a wait finds nothing in the cache, and the read that waits for the disk moves the position. Fails when two
/// readers get one part, or none does.
#[test]
fn readers_of_one_position_share_a_slow_file() {
    const NAME: &str = "readers_of_one_position_share_a_slow_file";
    const PART: usize = 64;
    const READERS: usize = 60;
    if !child::is_child() {
        child::passes(NAME, &[]);
        return;
    }
    let (room, bytes) = (Room::new(), Arc::new(pattern(7, READERS * PART)));
    std::fs::write(room.join("file"), &*bytes).unwrap();
    let opened = std::fs::File::open(room.join("file")).unwrap();
    let slow = Arc::new(File::from(slow_disk::on_it(&opened)));
    let held = slow_disk::begin(Hold::For(Duration::from_millis(2)));
    for procs in PROCS {
        watched(procs, || {
            (&*slow).seek(SeekFrom::Start(0)).unwrap();
            let rt = runtime(procs);
            let reads = |number: usize| {
                let slow = Arc::clone(&slow);
                rt.go(move || {
                    let mut part = [0; PART];
                    // Some of the readers read twice, as after a short read.
                    let (first, second) =
                        part.split_at_mut(if number.is_multiple_of(3) { PART / 2 } else { PART });
                    assert_eq!((&*slow).read(first).unwrap(), first.len());
                    let halves = (first.to_vec(), second.len());
                    (
                        halves.0,
                        (halves.1 > 0).then(|| {
                            let mut second = vec![0; PART / 2];
                            assert_eq!((&*slow).read(&mut second).unwrap(), second.len());
                            second
                        }),
                    )
                })
            };
            let readers: Vec<_> = (0..READERS).map(reads).collect();
            let mut parts = Vec::new();
            for reader in readers {
                let (first, second) = reader.join().unwrap();
                parts.extend([Some(first), second].into_iter().flatten());
            }
            // Each part is a piece of the file; without gaps they are the file.
            let place = |part: &Vec<u8>| bytes.windows(part.len()).position(|window| window == part).unwrap();
            parts.sort_by_key(place);
            assert!(parts.concat() == *bytes);
            let slow = Arc::clone(&slow);
            assert_eq!(rt.go(move || (&*slow).read(&mut [0; 8]).unwrap()).join().unwrap(), 0);
        });
    }
    assert!(held.count_and_most().0 >= READERS);
}

/// Makes the kernel drop a part of a file from its cache.
fn forget(file: &File, at: usize, len: usize) {
    // SAFETY: no pointers.
    let told =
        unsafe { libc::posix_fadvise(file.as_raw_fd(), at as i64, len as i64, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(told, 0);
}

/// The cache has some of the requested pages, and not others. Fails by bytes of another place, when a read at an offset is
/// short before the end, or by a wrong position.
#[test]
fn what_the_cache_has_in_part_is_read_in_full() {
    const PAGES: usize = 64;
    const PAGE: usize = 4096;
    const LEN: usize = PAGES * PAGE - 100;
    everyone(|crew| {
        let room = Room::new();
        let bytes = Arc::new(pattern(13, LEN));
        std::fs::write(room.join("file"), &*bytes).unwrap();
        let file = Arc::new(File::open(room.join("file")).unwrap());
        file.sync_all().unwrap();
        // SAFETY: no pointers. The kernel reads no pages ahead.
        assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) }, 0);
        join_all(each(crew, 3, move |number| {
            let mut random = Random::new(number);
            let own = file.metadata().unwrap().len() as usize;
            assert_eq!(own, LEN);
            for _ in 0..60 {
                let at = random.below(LEN as u64) as usize;
                let len = random.below(10 * PAGE as u64) as usize;
                forget(&file, at / PAGE * PAGE + 2 * PAGE, (len / 2).max(1));
                let mut part = vec![0; len];
                let read = file.read_at(&mut part, at as u64).unwrap();
                assert_eq!(read, len.min(LEN - at), "{len} at {at}");
                assert!(part[..read] == bytes[at..at + read]);
            }
        }));
        let file = Arc::new(File::open(room.join("file")).unwrap());
        crew.run(move || {
            let (mut all, mut part) = (Vec::new(), vec![0; 7 * PAGE + 5]);
            loop {
                forget(&file, all.len() / PAGE * PAGE + 3 * PAGE, PAGE);
                assert_eq!((&*file).stream_position().unwrap(), all.len() as u64);
                let read = (&*file).read(&mut part).unwrap();
                if read == 0 {
                    break;
                }
                all.extend_from_slice(&part[..read]);
            }
            assert_eq!(all.len(), LEN);
            assert!(all == pattern(13, LEN));
            // The same for a read up to the end of the file.
            (&*file).rewind().unwrap();
            forget(&file, 5 * PAGE, PAGES * PAGE);
            let mut all = Vec::new();
            (&*file).read_to_end(&mut all).unwrap();
            assert!(all == pattern(13, LEN));
        });
    });
}

/// A reader reads beside a writer that appends. Fails when the reader misses an entry, or has it twice, or not in its place.
#[test]
fn a_log_is_read_while_it_grows() {
    const ENTRIES: usize = 300;
    everyone(|crew| {
        let room = Arc::new(Room::new());
        let mut log = OpenOptions::new().read(true).append(true).create(true).open(room.join("log")).unwrap();
        let reader = File::open(room.join("log")).unwrap();
        let writes = crew.go(move || {
            for number in 0..ENTRIES {
                // The position does not matter to an entry.
                log.seek(SeekFrom::Start(number as u64 % 7)).unwrap();
                let entry = format!("{number:08}\n");
                assert_eq!(log.write(entry.as_bytes()).unwrap(), 9);
                assert_eq!(log.stream_position().unwrap(), 9 * (number as u64 + 1));
                let mut last = [0; 9];
                log.read_exact_at(&mut last, 9 * number as u64).unwrap();
                assert_eq!(last, entry.as_bytes());
            }
        });
        let text = crew.run(move || {
            let (mut text, mut part) = (Vec::new(), [0; 100]);
            while text.len() < 9 * ENTRIES {
                let read = (&reader).read(&mut part).unwrap();
                text.extend_from_slice(&part[..read]);
                if read == 0 {
                    gmp::time::sleep(Duration::from_micros(100));
                }
            }
            assert_eq!((&reader).read(&mut part).unwrap(), 0);
            String::from_utf8(text).unwrap()
        });
        writes.join();
        assert!(text.lines().enumerate().all(|(number, line)| line.parse() == Ok(number)));
    });
}
