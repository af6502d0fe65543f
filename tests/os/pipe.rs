//! Pipes.

use common::crew::everyone;
use gmp::io::{PipeReader, PipeWriter, pipe};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};

/// Fails by a byte that is lost or overtaken while the pipe is full, or by an end that does not come.
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

/// Fails by an end that std's code can't use, or that does not come back.
#[test]
fn ends_go_to_std_and_come_back() {
    everyone(|crew| {
        crew.run(|| {
            let (reader, writer) = pipe().unwrap();
            let (mut reader, mut writer) = (
                std::io::PipeReader::try_from(reader).unwrap(),
                std::io::PipeWriter::try_from(writer).unwrap(),
            );
            for fd in [reader.as_raw_fd(), writer.as_raw_fd()] {
                // SAFETY: no pointers.
                assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFL) } & libc::O_NONBLOCK, 0);
            }
            writer.write_all(b"std").unwrap();
            let mut got = [0; 3];
            reader.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"std");
            let (reader, writer) =
                (PipeReader::try_from(reader).unwrap(), PipeWriter::try_from(writer).unwrap());
            drop(OwnedFd::from(writer));
            assert_eq!((&reader).read(&mut [0]).unwrap(), 0);
        });
    });
}
