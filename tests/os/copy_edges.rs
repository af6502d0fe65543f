//! Copies at the limits of what the kernel moves: urgent bytes, short pipes, a source that is its own sink.

use common::crew::{Crew, everyone};
use common::room::Room;
use common::talk::pattern;
use common::until;
use gmp::context::{Context, ContextError};
use gmp::io::{CopyError, PipeReader, PipeWriter, Sink, Source, copy, copy_bidirectional};
use gmp::net::{UnixStream, is_closed};
use std::error::Error;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Enough bytes for the kernel to move them.
const MUCH: usize = 200_000;

fn send_urgent(stream: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: the byte lives through the call.
    let sent = unsafe { libc::send(stream.as_raw_fd(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) };
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Checks what the sink gets when an urgent byte is sent into the source between two halves.
fn passes_an_urgent_byte<S>(crew: &Crew<'_>, (near, far): (S, S), end: fn(&S), end_follows: bool)
where
    S: Source + AsRawFd + Send + 'static,
    for<'a> &'a S: Write,
{
    let (reader, writer) = gmp::io::pipe().unwrap();
    let copies = crew.go(move || copy(&near, &writer).unwrap());
    let reads = crew.go(move || {
        let mut got = vec![0; 2 * MUCH];
        (&reader).read_exact(&mut got).unwrap();
        (got, reader)
    });
    let far = crew.run(move || {
        (&far).write_all(&pattern(1, MUCH)).unwrap();
        send_urgent(&far).unwrap();
        (&far).write_all(&pattern(2, MUCH)).unwrap();
        if end_follows {
            end(&far);
        }
        far
    });
    let (got, _reader) = reads.join();
    assert!(got[..MUCH] == pattern(1, MUCH) && got[MUCH..] == pattern(2, MUCH));
    drop(far);
    assert_eq!(copies.join(), 2 * MUCH as u64);
}

/// The kernel moves nothing at an urgent byte, and the data behind that byte makes no event. Fails by a hang, or when the
/// urgent byte counts as an orderly end.
#[test]
fn an_urgent_byte_stops_no_copy() {
    everyone(|crew| {
        for end_follows in [false, true] {
            let end = |far: &gmp::net::TcpStream| far.shutdown(Shutdown::Write).unwrap();
            passes_an_urgent_byte(crew, common::loopback::pair(), end, end_follows);
            let (here, _there) = UnixStream::pair().unwrap();
            if send_urgent(&here).is_err() {
                common::skipped("this kernel knows no urgent data on Unix sockets");
                continue;
            }
            let end = |far: &UnixStream| far.shutdown(Shutdown::Write).unwrap();
            passes_an_urgent_byte(crew, UnixStream::pair().unwrap(), end, end_follows);
        }
    });
}

/// Returns a pipe that holds one page.
fn short_pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = gmp::io::pipe().unwrap();
    // SAFETY: no pointers.
    let held = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    assert_eq!(held, 4096);
    (reader, writer)
}

/// Copies bytes that one member writes, while another member reads the copy.
fn carries<F, T, I, O>(crew: &Crew<'_>, (mut input, from): (I, F), (to, mut output): (T, O))
where
    F: Source + Send + 'static,
    T: Sink + Send + 'static,
    I: Write + Send + 'static,
    O: Read + Send + 'static,
{
    let feeds = crew.go(move || input.write_all(&pattern(3, MUCH)).unwrap());
    let copies = crew.go(move || copy(&from, &to).unwrap());
    let got = crew.run(move || {
        let mut got = Vec::new();
        output.read_to_end(&mut got).unwrap();
        got
    });
    feeds.join();
    assert_eq!(copies.join(), MUCH as u64);
    assert!(got == pattern(3, MUCH), "{} of {MUCH} bytes, or other ones", got.len());
}

/// Fails by a hang, or when a byte is lost or copied twice.
#[test]
fn a_pipe_of_one_page_will_do() {
    everyone(|crew| {
        let ((from, input), (output, to)) = (short_pipe(), short_pipe());
        carries(crew, (input, from), (to, output));
        let ((near, far), (output, to)) = (common::loopback::pair(), short_pipe());
        carries(crew, (far, near), (to, output));
        let ((from, input), (near, far)) = (short_pipe(), UnixStream::pair().unwrap());
        carries(crew, (input, from), (near, far));
    });
}

/// The kernel gives a user with many pipes only short ones, also for the pipe inside a copy. Fails by a hang, or when a byte is
/// lost.
#[test]
fn a_user_with_many_pipes_copies_as_well() {
    if !common::child::is_child() {
        common::child::passes("a_user_with_many_pipes_copies_as_well", &[]);
        return;
    }
    // The bound on a user's pipes does not hold for root.
    // SAFETY: no pointers.
    if unsafe { libc::geteuid() == 0 && libc::setuid(54_321) != 0 } {
        panic!("{}", io::Error::last_os_error());
    }
    let soft = std::fs::read_to_string("/proc/sys/fs/pipe-user-pages-soft").unwrap();
    let most = soft.trim().parse::<usize>().unwrap() / 16 + 1;
    let mut pipes = Vec::new();
    let is_short = |pipe: &(io::PipeReader, io::PipeWriter)| {
        // SAFETY: no pointers.
        unsafe { libc::fcntl(pipe.0.as_raw_fd(), libc::F_GETPIPE_SZ) < 65_536 }
    };
    while !pipes.last().is_some_and(is_short) {
        assert!(pipes.len() <= most, "no pipe is short");
        match io::pipe() {
            Ok(pipe) => pipes.push(pipe),
            Err(refused) => {
                common::skipped(format_args!("{} pipes, and {refused}", pipes.len()));
                return;
            }
        }
    }
    everyone(|crew| {
        let ((near, far), (to, end)) = (common::loopback::pair(), UnixStream::pair().unwrap());
        carries(crew, (far, near), (to, end));
        let ((from, input), (output, to)) = (gmp::io::pipe().unwrap(), gmp::io::pipe().unwrap());
        carries(crew, (input, from), (to, output));
    });
}

/// Fails by a hang when one half waits for the other's lock, or when a byte does not come back.
#[test]
fn a_stream_may_be_both_ends() {
    everyone(|crew| {
        for len in [5, 1_000_003] {
            let (near, far) = common::loopback::pair();
            let copies = crew.go(move || {
                let copied = copy(&near, &near).unwrap();
                near.shutdown(Shutdown::Write).unwrap();
                copied
            });
            let far = Arc::new(far);
            let same = Arc::clone(&far);
            let says = crew.go(move || {
                (&*same).write_all(&pattern(1, len)).unwrap();
                same.shutdown(Shutdown::Write).unwrap();
            });
            let got = crew.run(move || {
                let mut got = Vec::new();
                (&*far).read_to_end(&mut got).unwrap();
                got
            });
            says.join();
            assert!(got == pattern(1, len));
            assert_eq!(copies.join(), len as u64);
        }
    });
}

/// Bytes that are written to one end of a connection come out of the other, and the copy writes them to the first end again.
/// Fails by a hang when the bytes go round for ever, when a byte is lost, or when an error is lost.
#[test]
fn both_ends_of_one_connection_are_a_ring() {
    everyone(|crew| {
        let (one, other) = UnixStream::pair().unwrap();
        let (one, other) = (Arc::new(one), Arc::new(other));
        (&*other).write_all(b"round").unwrap();
        let (from, to) = (Arc::clone(&one), Arc::clone(&other));
        let copies = crew.go(move || copy(&*from, &*to).unwrap_err());
        // The five bytes go round all the time.
        crew.run({
            let one = Arc::clone(&one);
            move || one.close().unwrap()
        });
        let failed = copies.join();
        assert!(is_closed(failed.error()) || failed.kind() == ErrorKind::BrokenPipe, "{failed}");
        assert_eq!((failed.copied() + failed.undelivered().len() as u64) % 5, 0, "{failed}");
    });
}

/// Ends a copy whose sink is full.
type End = fn(&UnixStream, &UnixStream) -> io::Result<()>;

/// The most bytes that a copy has taken from its source and not yet given to its sink: they are in a pipe, or in a buffer.
const COPY_HOLDS: usize = 64 << 10;

/// Gives the sink so short a buffer that a writer waits after some thousand bytes.
fn hold_little(sink: &impl AsRawFd) {
    let few: libc::c_int = 4096;
    let (at, len) = ((&raw const few).cast(), size_of_val(&few) as libc::socklen_t);
    // SAFETY: the option's value lives through the call.
    let set = unsafe { libc::setsockopt(sink.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, at, len) };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
}

/// Returns how many bytes can be read.
fn unread(source: &impl AsRawFd) -> usize {
    let mut len: libc::c_int = 0;
    // SAFETY: the number lives through the call.
    let told = unsafe { libc::ioctl(source.as_raw_fd(), libc::FIONREAD, &raw mut len) };
    assert_eq!(told, 0, "{}", io::Error::last_os_error());
    usize::try_from(len).expect("a length")
}

/// Copies `len` bytes between two pairs, and calls `ends` to end the copy when the sink is full. Returns the error, the bytes
/// that the sink's peer has received, and the bytes that are left in the source.
fn stopped(crew: &Crew<'_>, len: usize, ends: End) -> (CopyError, Vec<u8>, Vec<u8>) {
    let ((input, from), (to, output)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
    let (from, to) = (Arc::new(from), Arc::new(to));
    let (here, there) = (Arc::clone(&from), Arc::clone(&to));
    let (context, cancel) = Context::background().with_cancel();
    // Before the copy begins, the source has more bytes than the sink and the copy can hold: so the copy's first wait is for
    // the sink.
    hold_little(&to);
    let feeds = crew.go(move || (&input).write_all(&pattern(1, len)).map_err(|failed| failed.kind()));
    until(|| unread(&from) >= 2 * COPY_HOLDS);
    let copies =
        crew.go(move || context.run(|| copy(&*here, &*there).unwrap_err()).expect("nothing is unwound"));
    copies.until_it_waits();
    let twin = from.try_clone().unwrap();
    if ends(&from, &to).is_err() {
        cancel.cancel();
    }
    let failed = copies.join();
    drop(to);
    let got = crew.run(move || {
        let mut got = Vec::new();
        (&output).read_to_end(&mut got).unwrap();
        got
    });
    let rest = crew.run(move || {
        let mut rest = Vec::new();
        (&twin).read_to_end(&mut rest).unwrap();
        rest
    });
    feeds.join().unwrap();
    (failed, got, rest)
}

/// Fails when a byte is in none, or in more than one, of the sink, the error, and the source.
#[test]
fn whatever_ends_a_copy_no_byte_is_lost() {
    const LEN: usize = 1_000_003;
    everyone(|crew| {
        let by_close: End = |_, to| to.close();
        let by_deadline: End = |_, to| to.set_write_deadline(Some(Instant::now()));
        let by_context: End = |_, _| Err(ErrorKind::Other.into());
        for (ends, is_it) in [
            (by_close, (|failed| is_closed(failed)) as fn(&io::Error) -> bool),
            (by_deadline, |failed| failed.kind() == ErrorKind::TimedOut),
            (by_context, |failed| {
                failed.get_ref().and_then(|inner| inner.downcast_ref()) == Some(&ContextError::Canceled)
            }),
        ] {
            let (failed, mut got, rest) = stopped(crew, LEN, ends);
            assert!(is_it(failed.error()), "{failed}");
            assert_eq!(got.len() as u64, failed.copied());
            assert!(!failed.undelivered().is_empty(), "the sink was full: {failed}");
            // `source` returns the reason, and the error's text does not repeat it.
            let source = failed.source().and_then(|why| why.downcast_ref::<io::Error>()).unwrap();
            assert!(is_it(source) && !failed.to_string().contains(&source.to_string()), "{failed}");
            let told = failed.undelivered().to_vec();
            let (copied, undelivered, why) = failed.into_parts();
            assert!(is_it(&why) && copied == got.len() as u64 && undelivered == told);
            got.extend(undelivered);
            got.extend(rest);
            assert!(got == pattern(1, LEN), "{} of {LEN} bytes, or other ones", got.len());
        }
    });
}

/// The messages of a SOCK_SEQPACKET socket stay separate, and the kernel does not splice them. Fails by a hang, or by an early
/// end.
#[test]
fn a_stream_of_another_kind_is_copied() {
    everyone(|crew| {
        let (mut fds, kind) = ([0; 2], libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC);
        // SAFETY: room for two descriptors.
        assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) }, 0);
        // SAFETY: both descriptors are new, and nothing else owns them.
        let [near, far] = fds.map(|fd| UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) }));
        let (reader, writer) = gmp::io::pipe().unwrap();
        let copies = crew.go(move || copy(&near, &writer).unwrap());
        let reads = crew.go(move || {
            let mut got = Vec::new();
            (&reader).read_to_end(&mut got).unwrap();
            got
        });
        crew.run(move || {
            // Each message fills the copy's buffer, or a part of it.
            for len in [32 << 10, 32 << 10, 1000, 32 << 10, 5] {
                assert_eq!((&far).write(&vec![7; len]).unwrap(), len);
            }
        });
        assert_eq!(reads.join().len(), copies.join() as usize);
    });
}

/// Fails by a hang or a lost byte, whichever half ends first.
#[test]
fn halves_end_in_either_order() {
    everyone(|crew| {
        for server_first in [false, true] {
            let ((client, a), (b, server)) = (common::loopback::pair(), UnixStream::pair().unwrap());
            let proxy = crew.go(move || copy_bidirectional(&a, &b).unwrap());
            let says = |stream: &mut dyn Write, seed| stream.write_all(&pattern(seed, MUCH)).unwrap();
            let hears = |stream: &mut dyn Read, seed| {
                let mut got = Vec::new();
                stream.read_to_end(&mut got).unwrap();
                assert!(got == pattern(seed, MUCH), "{} bytes", got.len());
            };
            let at_server = crew.go(move || {
                if !server_first {
                    hears(&mut &server, 1);
                }
                says(&mut &server, 2);
                server.shutdown(Shutdown::Write).unwrap();
                if server_first {
                    hears(&mut &server, 1);
                }
            });
            crew.run(move || {
                if server_first {
                    hears(&mut &client, 2);
                }
                says(&mut &client, 1);
                client.shutdown(Shutdown::Write).unwrap();
                if !server_first {
                    hears(&mut &client, 2);
                }
            });
            at_server.join();
            assert_eq!(proxy.join(), (MUCH as u64, MUCH as u64));
        }
    });
}

/// One side is reset when the other has sent all of its bytes. Fails when the proxy continues, or bytes are lost.
#[test]
fn a_reset_after_a_half_close_ends_both() {
    everyone(|crew| {
        let ((client, a), (b, server)) = (common::loopback::pair(), common::loopback::pair());
        let proxy = crew.go(move || copy_bidirectional(&a, &b).unwrap_err());
        let failed = crew.run(move || {
            (&client).write_all(&pattern(1, MUCH)).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            let mut got = Vec::new();
            (&server).read_to_end(&mut got).unwrap();
            assert!(got == pattern(1, MUCH));
            let linger = libc::linger { l_onoff: 1, l_linger: 0 };
            let (at, len) = ((&raw const linger).cast(), size_of_val(&linger) as libc::socklen_t);
            let fd = server.as_fd().as_raw_fd();
            // SAFETY: the option's value lives through the call.
            assert_eq!(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, at, len) }, 0);
            drop(server);
            client
        });
        let _client = failed;
        let failed = proxy.join();
        assert_eq!(failed.kind(), ErrorKind::ConnectionReset, "{failed}");
        assert_eq!((failed.copied(), failed.undelivered()), ((MUCH as u64, 0), (&b""[..], &b""[..])));
    });
}

/// The sink takes all bytes at once, so the copy never waits. Fails when the copy continues until the file has ended.
#[test]
fn a_context_ends_the_copy_of_a_long_file() {
    everyone(|crew| {
        let begin = Instant::now();
        let file = File::open("/dev/zero").unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        let drains = crew.go(move || {
            let mut buffer = vec![0; 1 << 20];
            while (&far).read(&mut buffer).unwrap() > 0 {}
        });
        let (context, _cancel) = Context::background().with_timeout(Duration::from_millis(20));
        let failed = crew.run(move || context.run(|| copy(&file, &near).unwrap_err()).unwrap());
        assert_eq!(failed.kind(), ErrorKind::TimedOut, "{failed}");
        drains.join();
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    });
}

/// Returns a file of `len` bytes, in memory.
fn file_of(len: u64) -> File {
    // SAFETY: the name lives through the call.
    let fd = unsafe { libc::memfd_create(c"copied".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the kernel has just made the descriptor.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(len).unwrap();
    file
}

/// If the sink takes all bytes at once, a call that sends much of a slow file lasts as long as the file takes, and neither a
/// limit nor a close of the sink ends the call. Fails by the error with which the kernel here answers such a call.
#[test]
fn no_call_sends_much_of_a_file() {
    const NAME: &str = "no_call_sends_much_of_a_file";
    const LEN: u64 = 5 << 20;
    if !common::child::is_child() {
        common::child::passes(NAME, &[]);
        return;
    }
    common::seccomp::refuse_above(libc::SYS_sendfile, 3, 1 << 20, libc::EIO);
    everyone(|crew| {
        // In the first round the file's holes are not in memory.
        let file = file_of(LEN);
        for _ in 0..2 {
            let (near, far) = UnixStream::pair().unwrap();
            let drains = crew.go(move || io::copy(&mut &far, &mut io::sink()).unwrap());
            let again = file.try_clone().unwrap();
            let copied = crew.run(move || {
                (&again).rewind().unwrap();
                copy(&again, &near).map_err(|failed| failed.to_string())
            });
            assert_eq!((copied, drains.join()), (Ok(LEN), LEN));
        }
    });
}

/// There is always room, so the copy never waits, and its context ends during the first call that sends. Fails when the copy
/// succeeds.
#[test]
fn a_context_ends_a_copy_between_two_sends() {
    const NAME: &str = "a_context_ends_a_copy_between_two_sends";
    const ROOM: libc::c_int = 1 << 20;
    if !common::child::is_child() {
        common::child::passes(NAME, &[]);
        return;
    }
    let (context, cancel) = Context::background().with_cancel();
    common::seccomp::precede(libc::SYS_sendfile, move || cancel.cancel());
    let (_reader, writer) = gmp::io::pipe().unwrap();
    // SAFETY: no pointers.
    let held = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, ROOM) };
    assert_eq!(held, ROOM, "{}", io::Error::last_os_error());
    let file = file_of(ROOM as u64 / 2);
    let failed = context.run(|| copy(&file, &writer).unwrap_err()).expect("nothing is unwound");
    let ended = failed.error().get_ref().and_then(|inner| inner.downcast_ref());
    assert_eq!(ended, Some(&ContextError::Canceled), "{failed}");
    assert!(failed.copied() > COPY_HOLDS as u64, "the kernel has sent nothing: {failed}");
}

/// Returns `true` if a write to the descriptor would wait.
fn is_full(sink: &impl AsRawFd) -> bool {
    let mut asked = libc::pollfd { fd: sink.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one entry, which lives through the call.
    let polled = unsafe { libc::poll(&raw mut asked, 1, 0) };
    assert!(polled >= 0, "{}", io::Error::last_os_error());
    asked.revents & libc::POLLOUT == 0
}

/// A pipe that is given as a file is full, and is none of the library's own pipes, whose writes wait. Fails by `WouldBlock`.
#[test]
fn a_full_pipe_that_came_as_a_file_is_waited_for() {
    everyone(|crew| {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let (pipe, is_over) = (writer.try_clone().unwrap(), Arc::new(AtomicBool::new(false)));
        let feeds = crew.go(move || (&far).write_all(&pattern(1, 5 * MUCH)).unwrap());
        let copies = crew.go({
            let is_over = Arc::clone(&is_over);
            move || {
                let copied = copy(&near, &File::from(OwnedFd::from(writer)));
                is_over.store(true, SeqCst);
                copied.map_err(|failed| failed.to_string())
            }
        });
        // Reads only the bytes of a full pipe, until the copy is over.
        let reads = std::thread::spawn(move || {
            let mut got = Vec::new();
            let mut part = vec![0; 16 << 10];
            loop {
                until(|| is_over.load(SeqCst) || is_full(&pipe));
                let left = unread(&reader);
                if is_over.load(SeqCst) && left == 0 {
                    return got;
                }
                let len = reader.read(&mut part[..left.min(16 << 10)]).unwrap();
                got.extend_from_slice(&part[..len]);
            }
        });
        assert_eq!(copies.join(), Ok(5 * MUCH as u64));
        feeds.join();
        assert!(reads.join().unwrap() == pattern(1, 5 * MUCH));
    });
}

/// The socket has no data for a moment, and the pipe has room. Fails by a hang when the copy waits for the pipe.
#[test]
fn a_silent_socket_that_came_as_a_file_is_waited_for() {
    everyone(|crew| {
        let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
        let (reader, writer) = gmp::io::pipe().unwrap();
        let copies = crew.go(move || copy(&File::from(OwnedFd::from(near)), &writer).unwrap());
        let reads = crew.go(move || {
            let mut got = vec![0; MUCH];
            (&reader).read_exact(&mut got).unwrap();
            (got, reader)
        });
        far.write_all(&pattern(1, MUCH)).unwrap();
        // All bytes are through, so the copy looks for more, and the pipe is empty.
        let (got, reader) = reads.join();
        assert!(got == pattern(1, MUCH));
        far.write_all(b"and the end").unwrap();
        drop(far);
        let rest = crew.run(move || {
            let mut rest = Vec::new();
            (&reader).read_to_end(&mut rest).unwrap();
            rest
        });
        assert_eq!(copies.join(), MUCH as u64 + 11);
        assert_eq!(rest, b"and the end");
    });
}

/// The kernel reads such a file only into memory that begins at a block, and only from the beginning of a block on. Fails when
/// the copy reads the file into other memory, or goes on where the sink has taken less than a block.
#[test]
fn a_file_that_bypasses_the_cache_is_copied() {
    fn goes<T: Sink + Send + 'static>(crew: &Crew<'_>, file: File, (to, mut output): (T, impl Read)) {
        let copies = crew.go(move || copy(&file, &to).map_err(|failed| failed.to_string()));
        let (mut got, mut part) = (Vec::new(), [0; 10_007]);
        while let len @ 1.. = output.read(&mut part).unwrap() {
            got.extend_from_slice(&part[..len]);
        }
        assert_eq!(copies.join(), Ok(5 * MUCH as u64));
        assert!(got == pattern(1, 5 * MUCH));
    }
    let room = Room::new();
    let path = room.join("direct");
    std::fs::write(&path, pattern(1, 5 * MUCH)).unwrap();
    let open = || File::options().read(true).custom_flags(libc::O_DIRECT).open(&path);
    if let Err(refused) = open() {
        return common::skipped(format_args!("no file bypasses the cache: {refused}"));
    }
    everyone(|crew| {
        goes(crew, open().unwrap(), common::loopback::pair());
        goes(crew, open().unwrap(), UnixStream::pair().unwrap());
        let (reader, writer) = gmp::io::pipe().unwrap();
        goes(crew, open().unwrap(), (writer, reader));
    });
}
