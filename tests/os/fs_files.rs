//! Open files: the results are those of std's files, on goroutines and plain threads.

use super::fs::in_rooms;
use common::child;
use common::crew::{each, everyone, join_all};
use common::room::Room;
use common::talk::pattern;
use gmp::fs::unix::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use gmp::fs::{self, File, FileTimes, OpenOptions, TryLockError};
use std::io::ErrorKind::{AlreadyExists, InvalidInput, NotFound, StorageFull, UnexpectedEof};
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Fails when bytes differ, or the position is wrong.
#[test]
fn reads_and_writes_move_the_position_and_seeks_set_it() {
    in_rooms(|room| {
        let mut file = File::create_new(room.join("file")).unwrap();
        file.write_all(b"0123456789").unwrap();
        assert_eq!(file.stream_position().unwrap(), 10);
        assert_eq!(file.read(&mut [0; 4]).unwrap(), 0);
        assert_eq!(file.seek(SeekFrom::Start(2)).unwrap(), 2);
        let mut four = [0; 4];
        file.read_exact(&mut four).unwrap();
        assert_eq!(&four, b"2345");
        assert_eq!(file.seek(SeekFrom::Current(-1)).unwrap(), 5);
        file.write_all(b"xx").unwrap();
        assert_eq!(file.seek(SeekFrom::End(-4)).unwrap(), 6);
        let mut rest = String::from("and ");
        assert_eq!(file.read_to_string(&mut rest).unwrap(), 4);
        assert_eq!(rest, "and x789");
        file.rewind().unwrap();
        let mut all = Vec::new();
        assert_eq!(file.read_to_end(&mut all).unwrap(), 10);
        assert_eq!(all, b"01234xx789");
        assert_eq!(file.seek(SeekFrom::Current(-100)).unwrap_err().kind(), InvalidInput);
        assert_eq!(file.stream_position().unwrap(), 10);
        // A write beyond the end leaves a hole.
        file.seek(SeekFrom::End(3)).unwrap();
        file.write_all(b"!").unwrap();
        assert_eq!(fs::read(room.join("file")).unwrap(), b"01234xx789\0\0\0!");
        assert_eq!(file.read(&mut []).unwrap() + file.write(&[]).unwrap(), 0);
        file.flush().unwrap();
    });
}

/// Fails when the position has moved, or by bytes of another place.
#[test]
fn an_offset_does_not_touch_the_position() {
    in_rooms(|room| {
        let mut file = File::create_new(room.join("file")).unwrap();
        file.write_all(b"0123456789").unwrap();
        file.seek(SeekFrom::Start(7)).unwrap();
        let mut bytes = [0; 4];
        assert_eq!(file.read_at(&mut bytes, 1).unwrap(), 4);
        assert_eq!(&bytes, b"1234");
        assert_eq!(file.read_at(&mut bytes, 8).unwrap(), 2);
        assert_eq!(&bytes[..2], b"89");
        assert_eq!(file.read_at(&mut bytes, 10).unwrap(), 0);
        assert_eq!(file.read_at(&mut bytes, 1 << 40).unwrap(), 0);
        assert_eq!(file.read_at(&mut [], 3).unwrap(), 0);
        assert_eq!(file.read_at(&mut bytes, u64::MAX).unwrap_err().kind(), InvalidInput);
        assert_eq!(file.read_at(&mut bytes, 1 << 63).unwrap_err().kind(), InvalidInput);
        assert_eq!(file.write_at(b"x", u64::MAX).unwrap_err().kind(), InvalidInput);
        assert_eq!(file.read_exact_at(&mut bytes, 8).unwrap_err().kind(), UnexpectedEof);
        assert_eq!(file.write_at(b"ab", 2).unwrap(), 2);
        file.write_all_at(b"end", 12).unwrap();
        assert_eq!(file.stream_position().unwrap(), 7);
        assert_eq!(fs::read(room.join("file")).unwrap(), b"01ab456789\0\0end");
    });
}

/// Fails when parts are filled in the wrong order, or when a call with more parts than the kernel takes is an error.
#[test]
fn several_parts_are_read_and_written_at_once() {
    in_rooms(|room| {
        let mut file = File::create_new(room.join("file")).unwrap();
        let parts = [IoSlice::new(b"one"), IoSlice::new(b""), IoSlice::new(b"two")];
        assert_eq!(file.write_vectored(&parts).unwrap(), 6);
        file.rewind().unwrap();
        let (mut first, mut second) = ([0; 2], [0; 8]);
        let mut parts = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!((&file).read_vectored(&mut parts).unwrap(), 6);
        assert_eq!((&first, &second[..4]), (b"on", &b"etwo"[..]));
        assert_eq!(file.read_vectored(&mut []).unwrap(), 0);
        let many: Vec<_> = std::iter::repeat_n(IoSlice::new(b"z"), 2000).collect();
        let wrote = file.write_vectored(&many).unwrap();
        assert!((1..=2000).contains(&wrote));
        file.seek(SeekFrom::Start(6)).unwrap();
        let mut bytes = vec![0; 2000];
        let mut parts: Vec<_> = bytes.chunks_mut(1).map(IoSliceMut::new).collect();
        assert!((1..=wrote).contains(&file.read_vectored(&mut parts).unwrap()));
    });
}

/// Fails when a file is opened although it must not be, or in another state than the options ask for.
#[test]
fn a_file_is_opened_as_the_options_say() {
    in_rooms(|room| {
        let path = room.join("file");
        let open = |options: &mut OpenOptions| options.open(&path);
        assert_eq!(open(OpenOptions::new().read(true)).unwrap_err().kind(), NotFound);
        assert_eq!(open(OpenOptions::new().write(true)).unwrap_err().kind(), NotFound);
        assert_eq!(open(&mut OpenOptions::new()).unwrap_err().kind(), InvalidInput);
        assert_eq!(open(OpenOptions::new().read(true).truncate(true)).unwrap_err().kind(), InvalidInput);
        let mut file = open(OpenOptions::new().write(true).create_new(true).mode(0o640)).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o640);
        file.write_all(b"first").unwrap();
        assert_eq!(file.read(&mut [0]).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert_eq!(open(OpenOptions::new().write(true).create_new(true)).unwrap_err().kind(), AlreadyExists);
        assert_eq!(File::create_new(&path).unwrap_err().kind(), AlreadyExists);
        let mut read_only = File::open(&path).unwrap();
        assert_eq!(read_only.write(b"x").unwrap_err().raw_os_error(), Some(libc::EBADF));
        // Without truncation the contents stay.
        open(OpenOptions::new().write(true).create(true).truncate(false)).unwrap().write_all(b"F").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"First");
        assert_eq!(File::create(&path).unwrap().metadata().unwrap().len(), 0);
        std::os::unix::fs::symlink(&path, room.join("link")).unwrap();
        let refused = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(room.join("link"));
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ELOOP));
        let folder = File::open(room).unwrap();
        assert!(folder.metadata().unwrap().is_dir());
        assert_eq!((&folder).read(&mut [0]).unwrap_err().raw_os_error(), Some(libc::EISDIR));
    });
}

/// Four members write to one file, each by a handle of its own. Fails when an entry is lost, torn, or overwritten.
#[test]
fn what_is_appended_goes_to_the_end() {
    const LINES: usize = 100;
    everyone(|crew| {
        let room = Arc::new(Room::new());
        let writers = each(crew, 4, {
            let room = Arc::clone(&room);
            move |writer| {
                let mut log = OpenOptions::new().append(true).create(true).open(room.join("log")).unwrap();
                // The position does not matter.
                log.seek(SeekFrom::Start(0)).unwrap();
                for number in 0..LINES {
                    let line = format!("{writer} {number} {}\n", "x".repeat(writer * 1000));
                    assert_eq!(log.write(line.as_bytes()).unwrap(), line.len());
                }
            }
        });
        join_all(writers);
        let text = crew.run(move || fs::read_to_string(room.join("log")).unwrap());
        let mut next = [0; 4];
        for line in text.lines() {
            let mut words = line.split(' ');
            let mut number = || words.next().unwrap().parse::<usize>().unwrap();
            let (writer, number) = (number(), number());
            assert_eq!(number, next[writer]);
            assert_eq!(words.next().unwrap().len(), writer * 1000);
            next[writer] += 1;
        }
        assert_eq!(next, [LINES; 4]);
    });
}

/// Fails when a length, a time or a mode is not kept.
#[test]
fn what_is_set_is_told() {
    in_rooms(|room| {
        let path = room.join("file");
        let file = File::create_new(&path).unwrap();
        file.set_len(5).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [0; 5]);
        file.write_all_at(b"abcde", 0).unwrap();
        file.set_len(2).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"ab");
        file.set_len(1 << 40).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1 << 40);
        assert_eq!(file.set_len(u64::MAX).unwrap_err().kind(), InvalidInput);
        file.set_len(0).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o604)).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o604);
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        file.set_modified(at).unwrap();
        assert_eq!(file.metadata().unwrap().modified().unwrap(), at);
        let later = at + Duration::from_secs(5);
        file.set_times(FileTimes::new().set_accessed(later).set_modified(later)).unwrap();
        let told = file.metadata().unwrap();
        assert_eq!((told.accessed().unwrap(), told.modified().unwrap()), (later, later));
        file.sync_all().unwrap();
        file.sync_data().unwrap();
        gmp::fs::unix::fchown(&file, None, None).unwrap();
    });
}

/// Fails when handles have positions of their own, or when a conversion changes the descriptor.
#[test]
fn handles_share_the_open_file_and_go_to_std_and_back() {
    in_rooms(|room| {
        let mut file = File::create_new(room.join("file")).unwrap();
        let mut twin = file.try_clone().unwrap();
        assert_ne!(file.as_raw_fd(), twin.as_raw_fd());
        file.write_all(b"one").unwrap();
        assert_eq!(twin.stream_position().unwrap(), 3);
        twin.write_all(b"two").unwrap();
        drop(file);
        let number = twin.as_raw_fd();
        let mut std_file = std::fs::File::from(twin);
        assert_eq!(std_file.as_raw_fd(), number);
        std_file.rewind().unwrap();
        let mut file = File::from(std_file);
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "onetwo");
        let fd = File::from(OwnedFd::from(file)).into_raw_fd();
        // SAFETY: the descriptor was just given away.
        let file = unsafe { File::from_raw_fd(fd) };
        assert_eq!(file.metadata().unwrap().len(), 6);
        assert!(format!("{file:?}").contains(&format!("fd: {number}")));
    });
}

/// Fails when two handles have one lock, or when a lock can't be taken any more.
#[test]
fn locks_exclude_and_are_waited_for() {
    everyone(|crew| {
        let room = Arc::new(Room::new());
        let path = room.join("file");
        let first = File::create(&path).unwrap();
        let second = File::open(&path).unwrap();
        first.lock_shared().unwrap();
        second.try_lock_shared().unwrap();
        assert!(matches!(first.try_lock(), Err(TryLockError::WouldBlock)));
        first.unlock().unwrap();
        second.unlock().unwrap();
        first.lock().unwrap();
        assert!(matches!(second.try_lock_shared(), Err(TryLockError::WouldBlock)));
        let waits = crew.go(move || {
            second.lock().unwrap();
            second.unlock().unwrap();
            second.lock_shared().unwrap();
        });
        // Other members use files meanwhile.
        assert!(crew.run(move || fs::exists(room.join("file")).unwrap()));
        drop(first);
        waits.join();
    });
}

/// Many members read one file: by offset, all at once, and by the position. Fails when bytes are lost, or are another reader's.
#[test]
fn a_hundred_share_a_file() {
    const LEN: usize = 100 * 1000;
    everyone(|crew| {
        let room = Room::new();
        let (path, bytes) = (room.join("file"), Arc::new(pattern(5, LEN)));
        std::fs::write(&path, &*bytes).unwrap();
        let file = Arc::new(File::open(&path).unwrap());
        let by_offset = each(crew, 100, {
            let (file, bytes) = (Arc::clone(&file), Arc::clone(&bytes));
            move |reader| {
                let mut part = vec![0; 1000];
                for round in 0..10 {
                    let at = (reader + round * 7) % 100 * 1000;
                    file.read_exact_at(&mut part, at as u64).unwrap();
                    assert!(part == bytes[at..at + 1000]);
                }
            }
        });
        let by_position = each(crew, 100, move |_| {
            let mut part = vec![0; 1000];
            let len = (&*file).read(&mut part).unwrap();
            part.truncate(len);
            part
        });
        join_all(by_offset);
        let mut parts = join_all(by_position);
        // Each byte was read once: the parts are the file, in some order.
        parts.sort();
        let mut expected: Vec<_> = bytes.chunks(1000).map(<[u8]>::to_vec).collect();
        expected.sort();
        assert!(parts == expected);
    });
}

/// Fails when bytes are lost from a file that does not tell its length, that tells too small a length, or that has more bytes
/// than are read from the cache.
#[test]
fn what_is_read_to_the_end_is_all() {
    in_rooms(|room| {
        let bytes = pattern(9, 3 << 20);
        for len in [0, 1, 31, 32, 33, 4095, 4096, 4097, 300 << 10, 3 << 20] {
            std::fs::write(room.join("file"), &bytes[..len]).unwrap();
            let mut file = File::open(room.join("file")).unwrap();
            let mut got = b"before".to_vec();
            assert_eq!(file.read_to_end(&mut got).unwrap(), len);
            assert!(got[6..] == bytes[..len]);
        }
    });
    everyone(|crew| {
        crew.run(|| {
            let mut text = String::new();
            File::open("/proc/self/maps").unwrap().read_to_string(&mut text).unwrap();
            assert!(text.lines().count() > 3 && text.ends_with('\n'));
            let mut limits = Vec::new();
            File::open("/proc/self/limits").unwrap().read_to_end(&mut limits).unwrap();
            assert_eq!(limits, std::fs::read("/proc/self/limits").unwrap());
            let mut odd = String::from("as it was");
            let zeros = File::open("/dev/zero").unwrap();
            assert_eq!((&zeros).take(5).read_to_string(&mut odd).unwrap(), 5);
            let room = Room::new();
            std::fs::write(room.join("odd"), b"a\xff").unwrap();
            let refused = File::open(room.join("odd")).unwrap().read_to_string(&mut odd).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::InvalidData);
            assert_eq!(odd, "as it was\0\0\0\0\0");
        });
    });
}

/// Fails when the error is not the device's, or when a failed write counts as made.
#[test]
fn devices_are_files() {
    everyone(|crew| {
        crew.run(|| {
            let full = OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
            assert_eq!((&full).write(b"x").unwrap_err().kind(), StorageFull);
            assert_eq!(fs::write("/dev/full", "x").unwrap_err().kind(), StorageFull);
            let mut zeros = [1; 100];
            (&full).read_exact(&mut zeros).unwrap();
            assert_eq!(zeros, [0; 100]);
            let mut null = OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
            null.write_all(b"gone").unwrap();
            assert_eq!(null.read_to_end(&mut Vec::new()).unwrap(), 0);
            assert_eq!(null.read_at(&mut zeros, 5).unwrap(), 0);
            let mut random = [0; 64];
            File::open("/dev/urandom").unwrap().read_exact(&mut random).unwrap();
            assert_ne!(random, [0; 64]);
        });
    });
}

/// Fails by another error, or when descriptors do not come back. The test uses goroutines: the runtime continues without
/// descriptors.
#[test]
fn a_full_table_of_descriptors_is_an_error() {
    if child::is_child() {
        let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
        // SAFETY: the limits are read during the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
        for procs in [1, 4] {
            common::runtime(procs).run(|| {
                for _ in 0..3 {
                    let mut files = Vec::new();
                    let mut is_refused = |call: &dyn Fn(&File) -> io::Result<()>| {
                        let refused = loop {
                            match File::open("/proc/self/comm") {
                                Ok(file) => files.push(file),
                                Err(refused) => break refused,
                            }
                        };
                        assert_eq!(refused.raw_os_error(), Some(libc::EMFILE));
                        assert!(files.len() > 10);
                        call(&files[0]).is_err_and(|refused| refused.raw_os_error() == Some(libc::EMFILE))
                    };
                    // Several tries: a thread of the runtime that had a file open for a moment when the table was filled leaves
                    // room.
                    assert!((0..5).any(|_| is_refused(&|file| file.try_clone().map(drop))));
                    assert!((0..5).any(|_| is_refused(&|_| fs::read("/proc/self/comm").map(drop))));
                    assert!((0..5).any(|_| is_refused(&|_| fs::read_dir("/proc/self").map(drop))));
                    drop(files);
                    assert!(!fs::read("/proc/self/comm").unwrap().is_empty());
                }
            });
        }
        return;
    }
    child::passes("a_full_table_of_descriptors_is_an_error", &[]);
}
