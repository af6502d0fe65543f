//! Pipes.

use common::crew::everyone;
use gmp::io::{PipeReader, PipeWriter, pipe};
use gmp::process::{ChildStderr, ChildStdin, ChildStdout};
use std::fmt::Debug;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Fails when a byte is lost or overtaken while the pipe is full, or an end does not come.
#[test]
fn what_is_written_is_read() {
    const LEN: usize = 1 << 20;
    everyone(|crew| {
        let (mut reader, mut writer) = pipe().unwrap();
        let writes = crew.go(move || {
            let bytes = common::talk::pattern(7, LEN);
            let (first, second) = bytes.split_at(LEN / 2);
            let parts = [IoSlice::new(&first[..10]), IoSlice::new(&first[10..20])];
            let wrote = writer.write_vectored(&parts).unwrap();
            writer.write_all(&first[wrote..]).unwrap();
            let mut twin = writer.try_clone().unwrap();
            drop(writer);
            twin.write_all(second).unwrap();
        });
        let got = crew.run(move || {
            let mut got = vec![0; 12];
            let (first, second) = got.split_at_mut(5);
            let len = reader.read_vectored(&mut [IoSliceMut::new(first), IoSliceMut::new(second)]).unwrap();
            got.truncate(len);
            reader.read_to_end(&mut got).unwrap();
            got
        });
        assert!(got == common::talk::pattern(7, LEN));
        writes.join();
    });
}

/// Fails by a signal, or by another error.
#[test]
fn a_pipe_without_a_reader_is_an_error() {
    everyone(|crew| {
        crew.run(|| {
            let (reader, mut writer) = pipe().unwrap();
            reader.close().unwrap();
            assert!(gmp::net::is_closed(&(&reader).read(&mut [0]).unwrap_err()));
            assert_eq!(writer.write(b"anybody?").unwrap_err().kind(), ErrorKind::BrokenPipe);
        });
    });
}

/// Returns `true` if calls on this end wait in the kernel.
fn blocks(end: &impl AsRawFd) -> bool {
    // SAFETY: no pointers.
    let mode = unsafe { libc::fcntl(end.as_raw_fd(), libc::F_GETFL) };
    assert!(mode >= 0, "{}", std::io::Error::last_os_error());
    mode & libc::O_NONBLOCK == 0
}

/// Fails when std's code can't use an end, or when the library can't take the end back.
#[test]
fn ends_go_to_std_and_come_back() {
    everyone(|crew| {
        crew.run(|| {
            let (reader, writer) = pipe().unwrap();
            let (mut reader, mut writer) =
                (std::io::PipeReader::from(reader), std::io::PipeWriter::from(writer));
            assert!(blocks(&reader) && blocks(&writer));
            writer.write_all(b"std").unwrap();
            let mut got = [0; 3];
            reader.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"std");
            let (reader, writer) = (PipeReader::from(reader), PipeWriter::from(writer));
            drop(OwnedFd::from(writer));
            assert_eq!((&reader).read(&mut [0]).unwrap(), 0);
        });
    });
}

/// Fails to compile when an end of the library lacks a trait that std's ends have.
#[test]
fn ends_have_the_traits_of_std() {
    trait OfAll: AsFd + AsRawFd + IntoRawFd + From<OwnedFd> + Into<OwnedFd> + Into<Stdio> + Debug {}
    impl<T: AsFd + AsRawFd + IntoRawFd + From<OwnedFd> + Into<OwnedFd> + Into<Stdio> + Debug> OfAll for T {}
    fn of_all<T: OfAll + Send + Sync + Unpin + UnwindSafe + RefUnwindSafe>() {}
    fn of_pipes<T: FromRawFd>() {}
    of_all::<std::io::PipeReader>();
    of_all::<std::io::PipeWriter>();
    of_all::<std::process::ChildStdin>();
    of_all::<std::process::ChildStdout>();
    of_all::<std::process::ChildStderr>();
    of_pipes::<std::io::PipeReader>();
    of_pipes::<std::io::PipeWriter>();
    of_all::<PipeReader>();
    of_all::<PipeWriter>();
    of_all::<ChildStdin>();
    of_all::<ChildStdout>();
    of_all::<ChildStderr>();
    of_pipes::<PipeReader>();
    of_pipes::<PipeWriter>();
}

/// Fails when an end keeps its blocking mode, so that its calls wait in the kernel, or when a byte does not come.
#[test]
fn ends_are_made_of_descriptors() {
    everyone(|crew| {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut reader = ChildStdout::from(OwnedFd::from(reader));
        let mut writer = ChildStdin::from(OwnedFd::from(writer));
        assert!(!blocks(&reader) && !blocks(&writer));
        let reads = crew.go(move || {
            let mut byte = [0];
            reader.read_exact(&mut byte).unwrap();
            (byte[0], reader.into_raw_fd())
        });
        let writes = crew.go(move || {
            writer.write_all(b"1").unwrap();
            writer.into_raw_fd()
        });
        let ((one, reader), writer) = (reads.join(), writes.join());
        assert_eq!(one, b'1');
        for end in [reader, writer] {
            // SAFETY: no pointers.
            assert_eq!(unsafe { libc::fcntl(end, libc::F_SETFL, 0) }, 0);
        }
        assert!(blocks(&reader) && blocks(&writer));
        // SAFETY: both numbers were given away.
        let (mut reader, mut writer) =
            unsafe { (PipeReader::from_raw_fd(reader), PipeWriter::from_raw_fd(writer)) };
        assert!(!blocks(&reader) && !blocks(&writer));
        let reads = crew.go(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            text
        });
        writer.write_all(b"23").unwrap();
        drop(writer);
        assert_eq!(reads.join(), "23");
    });
}

/// Fails when a limit does not end a call, or ends a call at the other end.
#[test]
fn an_end_has_the_limits_of_its_direction() {
    everyone(|crew| {
        crew.run(|| {
            let (mut reader, mut writer) = pipe().unwrap();
            let short = Some(Duration::from_millis(1));
            reader.set_read_timeout(short).unwrap();
            assert_eq!(reader.read_timeout().unwrap(), short);
            let late = reader.read(&mut [0]).unwrap_err();
            assert_eq!(late.kind(), ErrorKind::TimedOut);
            assert_eq!(late.to_string(), "the deadline or timeout of this operation has passed");
            writer.set_write_timeout(short).unwrap();
            assert_eq!(writer.write_timeout().unwrap(), short);
            assert_eq!(writer.write_all(&[7; 1 << 22]).unwrap_err().kind(), ErrorKind::TimedOut);
            writer.set_write_timeout(None).unwrap();
            reader.set_deadline(Some(Instant::now())).unwrap();
            assert_eq!(reader.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
            // A read into no room asks for nothing.
            assert_eq!(reader.read(&mut []).unwrap(), 0);
            reader.set_deadline(None).unwrap();
            assert!(reader.read(&mut vec![0; 1 << 20]).unwrap() > 1);
            writer.set_deadline(Some(Instant::now())).unwrap();
            assert_eq!(writer.write(&[7]).unwrap_err().kind(), ErrorKind::TimedOut);
            writer.set_deadline(None).unwrap();
            assert_eq!(writer.write(&[7]).unwrap(), 1);
        });
    });
}

/// Fails when the text speaks of a socket, or when the error's kind is wrong.
#[test]
fn a_closed_end_says_so() {
    let (reader, writer) = pipe().unwrap();
    reader.close().unwrap();
    let refused = [(&reader).read(&mut [0]).unwrap_err(), reader.close().unwrap_err()];
    for refused in refused {
        assert!(gmp::io::is_closed(&refused));
        assert_eq!(refused.to_string(), "the handle was closed");
    }
    assert!(!gmp::io::is_closed(&(&writer).write(&[0]).unwrap_err()));
}
