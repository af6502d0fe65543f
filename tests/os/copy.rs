//! Copies between sockets, pipes and files.

use common::crew::{Crew, everyone};
use common::random::Random;
use common::talk::pattern;
use gmp::io::{CopyError, PipeReader, PipeWriter, copy};
use gmp::net::{TcpStream, UnixStream};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// A file without a name.
fn file(append: bool) -> File {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let name = format!("gmp-copy-{}-{}", std::process::id(), MADE.fetch_add(1, SeqCst));
    let path = std::env::temp_dir().join(name);
    let mut options = OpenOptions::new();
    let file = options.read(true).write(!append).append(append).create_new(true).open(&path).unwrap();
    fs::remove_file(path).unwrap();
    file
}

#[derive(Copy, Clone, Debug, PartialEq)]
enum Kind {
    Tcp,
    Unix,
    Pipe,
    File,
    /// A file of `gmp::fs`.
    Ours,
    /// A file that is opened for appending.
    Log,
    /// A reader or writer of another library.
    Watched,
}
use Kind::{Log, Ours, Pipe, Tcp, Unix, Watched};

/// The source of a copy.
enum From {
    Tcp(TcpStream),
    Unix(UnixStream),
    Pipe(PipeReader),
    File(File),
    Ours(gmp::fs::File),
    Watched(gmp::io::Watched<io::PipeReader>),
}

/// The sink of a copy.
enum To {
    Tcp(TcpStream),
    Unix(UnixStream),
    Pipe(PipeWriter),
    File(File),
    Ours(gmp::fs::File),
    Watched(gmp::io::Watched<io::PipeWriter>),
}

fn run(from: &From, to: &To) -> Result<u64, CopyError> {
    macro_rules! to {
        ($from:expr) => {
            match to {
                To::Tcp(to) => copy($from, to),
                To::Unix(to) => copy($from, &to),
                To::Pipe(to) => copy($from, to),
                To::File(to) => copy($from, to),
                To::Ours(to) => copy($from, to),
                To::Watched(to) => copy($from, to),
            }
        };
    }
    match from {
        From::Tcp(from) => to!(from),
        From::Unix(from) => to!(from),
        From::Pipe(from) => to!(from),
        From::File(from) => to!(from),
        From::Ours(from) => to!(from),
        From::Watched(from) => to!(from),
    }
}

type Feeds = Box<dyn FnOnce(&[u8]) -> io::Result<()> + Send>;
type Drains = Box<dyn FnOnce() -> Vec<u8> + Send>;

/// Writes all of `bytes` in pieces of random length.
fn write_pieces(mut to: impl Write, bytes: &[u8]) -> io::Result<()> {
    let mut random = Random::new(bytes.len());
    let mut rest = bytes;
    while !rest.is_empty() {
        let most = *random.pick(&[1, 100, 5_000, 100_000]);
        let (piece, after) = rest.split_at(rest.len().min(1 + random.below(most) as usize));
        to.write_all(piece)?;
        rest = after;
    }
    Ok(())
}

/// Reads to the end, in pieces of random length.
fn read_pieces(mut from: impl Read) -> Vec<u8> {
    let (mut random, mut got) = (Random::new(7), Vec::new());
    loop {
        let at = got.len();
        let most = *random.pick(&[1, 100, 5_000, 100_000]);
        got.resize(at + 1 + random.below(most) as usize, 0);
        let len = from.read(&mut got[at..]).unwrap();
        got.truncate(at + len);
        if len == 0 {
            return got;
        }
    }
}

fn source(kind: Kind) -> (From, Feeds) {
    match kind {
        Tcp => {
            let (near, far) = common::loopback::pair();
            (From::Tcp(near), Box::new(move |bytes| write_pieces(&far, bytes)))
        }
        Unix => {
            let (near, far) = UnixStream::pair().unwrap();
            (From::Unix(near), Box::new(move |bytes| write_pieces(&far, bytes)))
        }
        Pipe => {
            let (reader, writer) = gmp::io::pipe().unwrap();
            (From::Pipe(reader), Box::new(move |bytes| write_pieces(&writer, bytes)))
        }
        Watched => {
            let (reader, writer) = io::pipe().unwrap();
            let writer = PipeWriter::from(writer);
            (
                From::Watched(gmp::io::Watched::new(reader)),
                Box::new(move |bytes| write_pieces(&writer, bytes)),
            )
        }
        Kind::File | Ours | Log => {
            let mut file = file(kind == Log);
            let same = file.try_clone().unwrap();
            // The copy does not begin at the start of the file.
            file.write_all(b"before").unwrap();
            let write = move |bytes: &[u8]| {
                (&same).write_all(bytes)?;
                (&same).seek(SeekFrom::Start(6)).map(drop)
            };
            let from = if kind == Ours { From::Ours(file.into()) } else { From::File(file) };
            (from, Box::new(write))
        }
    }
}

fn sink(kind: Kind) -> (To, Drains) {
    match kind {
        Tcp => {
            let (near, far) = common::loopback::pair();
            (To::Tcp(near), Box::new(move || read_pieces(&far)))
        }
        Unix => {
            let (near, far) = UnixStream::pair().unwrap();
            (To::Unix(near), Box::new(move || read_pieces(&far)))
        }
        Pipe => {
            let (reader, writer) = gmp::io::pipe().unwrap();
            (To::Pipe(writer), Box::new(move || read_pieces(&reader)))
        }
        Watched => {
            let (reader, writer) = io::pipe().unwrap();
            let reader = PipeReader::from(reader);
            (To::Watched(gmp::io::Watched::new(writer)), Box::new(move || read_pieces(&reader)))
        }
        Kind::File | Ours | Log => {
            let mut file = file(kind == Log);
            let same = file.try_clone().unwrap();
            file.write_all(b"before").unwrap();
            let read = move || {
                (&same).seek(SeekFrom::Start(0)).unwrap();
                let mut got = Vec::new();
                (&same).read_to_end(&mut got).unwrap();
                assert_eq!(got.drain(..6).as_slice(), b"before");
                got
            };
            let to = if kind == Ours { To::Ours(file.into()) } else { To::File(file) };
            (to, Box::new(read))
        }
    }
}

/// A source file is complete before the copy, and a sink file is read after it; other ends are written and read beside the
/// copy.
fn is_file(kind: Kind) -> bool {
    matches!(kind, Kind::File | Ours | Log)
}

fn copies(crew: &Crew<'_>, from: Kind, to: Kind, len: usize) {
    let ((source, feed), (sink, drain)) = (source(from), sink(to));
    let bytes = Arc::new(pattern(len, len));
    let fed = Arc::clone(&bytes);
    let feed = move || feed(&fed).unwrap();
    let feeder = match is_file(from) {
        true => {
            crew.run(feed);
            None
        }
        false => Some(crew.go(feed)),
    };
    let (drains, later) = if is_file(to) { (None, Some(drain)) } else { (Some(crew.go(drain)), None) };
    let copied = crew.run(move || run(&source, &sink)).unwrap();
    if let Some(feeder) = feeder {
        feeder.join();
    }
    let got = match (drains, later) {
        (Some(drains), _) => drains.join(),
        (_, later) => crew.run(later.expect("one of them")),
    };
    assert_eq!(copied, len as u64, "{from:?} to {to:?}");
    assert!(got == *bytes, "{from:?} to {to:?}: {} of {len} bytes, or other ones", got.len());
}

const SOURCES: [Kind; 6] = [Tcp, Unix, Pipe, Kind::File, Ours, Watched];
const SINKS: [Kind; 7] = [Tcp, Unix, Pipe, Kind::File, Ours, Log, Watched];
/// Lengths: nothing, a part of a buffer, and enough for the kernel to move it.
const LENS: [usize; 4] = [0, 100, 150_000, 1_000_003];

/// Fails when a byte is lost, copied twice or copied to a wrong place, or by a hang.
#[test]
fn each_source_to_each_sink() {
    everyone(|crew| {
        for from in SOURCES {
            for to in SINKS {
                for len in LENS {
                    copies(crew, from, to, len);
                }
            }
        }
    });
}

/// Fails when the copy by buffer does not continue where the kernel has stopped, or from the start if the kernel has refused.
#[test]
fn what_the_kernel_refuses_goes_through_a_buffer() {
    const MOVES: [libc::c_long; 3] = [libc::SYS_splice, libc::SYS_sendfile, libc::SYS_copy_file_range];
    if !common::child::is_child() {
        for refused in ["moves", "moves and looks", "pipes", "files"] {
            let name = "what_the_kernel_refuses_goes_through_a_buffer";
            common::child::passes(name, &[("GMP_TEST_REFUSED", refused)]);
        }
        return;
    }
    let refused = std::env::var("GMP_TEST_REFUSED").unwrap();
    match refused.as_str() {
        "moves" => common::seccomp::refuse(&MOVES, libc::EINVAL),
        "moves and looks" => {
            let [splice, sendfile, range] = MOVES;
            common::seccomp::refuse(&[splice, sendfile, range, libc::SYS_preadv2], libc::ENOSYS);
        }
        // As CIFS answers to a length beyond the end of the file.
        "files" => common::seccomp::refuse(&[libc::SYS_copy_file_range], libc::EIO),
        _ => common::seccomp::refuse(&[libc::SYS_pipe2], libc::EMFILE),
    }
    let is_left_out = |kind| match refused.as_str() {
        "files" => !is_file(kind),
        "pipes" => matches!(kind, Pipe | Watched),
        _ => false,
    };
    everyone(|crew| {
        for from in SOURCES.into_iter().filter(|&kind| !is_left_out(kind)) {
            for to in SINKS.into_iter().filter(|&kind| !is_left_out(kind)) {
                copies(crew, from, to, 500_003);
            }
        }
    });
}

/// Fails by an error, or when a byte is missing or comes twice, if the kernel has copied a part of a file and then refuses.
#[test]
fn a_refusal_after_the_first_part_of_a_file_costs_no_byte() {
    // More than the kernel is asked for at once.
    const LEN: usize = (16 << 20) + 300_001;
    if !common::child::is_child() {
        for refused in [libc::EIO, libc::EINVAL, libc::EXDEV] {
            let name = "a_refusal_after_the_first_part_of_a_file_costs_no_byte";
            common::child::passes(name, &[("GMP_TEST_REFUSED", &refused.to_string())]);
        }
        return;
    }
    let refused = std::env::var("GMP_TEST_REFUSED").unwrap().parse().unwrap();
    let (bytes, mut source, mut sink) = (pattern(1, LEN), file(false), file(false));
    source.write_all(&bytes).unwrap();
    source.rewind().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&calls);
    let refuses = move || counts.fetch_add(1, SeqCst) > 0;
    common::seccomp::refuse_while([libc::SYS_copy_file_range, libc::SYS_copy_file_range], refused, refuses);
    let copied = copy(&source, &sink).unwrap();
    assert_eq!((copied, calls.load(SeqCst)), (LEN as u64, 2));
    let mut got = Vec::new();
    sink.rewind().unwrap();
    sink.read_to_end(&mut got).unwrap();
    assert!(got == bytes);
}

fn limit(to: &To, at: Option<Instant>) {
    match to {
        To::Tcp(to) => to.set_write_deadline(at),
        To::Unix(to) => to.set_write_deadline(at),
        To::Pipe(to) => to.set_write_deadline(at),
        To::Watched(to) => to.set_write_deadline(at),
        To::File(_) | To::Ours(_) => panic!("a file has no limits"),
    }
    .unwrap();
}

/// Fails when a byte is in none, or in more than one, of the sink, the error, and the source.
#[test]
fn a_sink_that_stops_costs_no_byte() {
    everyone(|crew| {
        for from in [Tcp, Unix, Pipe, Kind::File] {
            for to in [Tcp, Unix, Pipe, Watched] {
                if to == Tcp && from != Tcp && from != Kind::File {
                    continue;
                }
                // More than the sink's buffers hold.
                let len = if to == Tcp { 8 << 20 } else { 700_000 };
                let ((source, feed), (sink, drain)) = (source(from), sink(to));
                let feeder = match is_file(from) {
                    true => {
                        crew.run(move || feed(&pattern(1, len)).unwrap());
                        None
                    }
                    false => Some(crew.go(move || feed(&pattern(1, len)).unwrap())),
                };
                // The sink is full before its deadline: nothing reads from its peer.
                limit(&sink, Some(Instant::now() + Duration::from_millis(10)));
                let (source, failed) = crew.run(move || {
                    let failed = run(&source, &sink).unwrap_err();
                    (source, failed)
                });
                assert_eq!(failed.kind(), ErrorKind::TimedOut, "{from:?} to {to:?}: {failed}");
                let mut got = crew.run(drain);
                assert_eq!(got.len() as u64, failed.copied(), "{from:?} to {to:?}: {failed}");
                got.extend(failed.into_undelivered());
                let rest = crew.run(move || match &source {
                    From::Tcp(from) => read_pieces(from),
                    From::Unix(from) => read_pieces(from),
                    From::Pipe(from) => read_pieces(from),
                    From::File(from) => read_pieces(from),
                    From::Ours(from) => read_pieces(from),
                    From::Watched(_) => unreachable!("not in the list"),
                });
                got.extend(rest);
                assert!(got == pattern(1, len), "{from:?} to {to:?}: {} bytes", got.len());
                if let Some(feeder) = feeder {
                    feeder.join();
                }
            }
        }
    });
}

/// Fails by another error, by a signal, or by a hang.
#[test]
fn a_sink_without_a_reader_is_an_error() {
    everyone(|crew| {
        for from in SOURCES {
            for to in [Tcp, Unix, Pipe, Watched] {
                for len in [100, 500_003] {
                    let ((source, feed), (sink, drain)) = (source(from), sink(to));
                    // The reader is dropped with the copy.
                    let feeds = move || drop(feed(&pattern(1, len)));
                    let feeder = match is_file(from) {
                        true => {
                            crew.run(feeds);
                            None
                        }
                        false => Some(crew.go(feeds)),
                    };
                    drop(drain);
                    let failed = crew.run(move || {
                        let failed = run(&source, &sink);
                        drop(source);
                        failed
                    });
                    if let Some(feeder) = feeder {
                        feeder.join();
                    }
                    match failed {
                        Err(failed) => assert!(
                            matches!(failed.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset),
                            "{from:?} to {to:?}: {failed}"
                        ),
                        // The kernel takes the bytes before it learns that the peer is closed.
                        Ok(copied) => assert!(to == Tcp && copied == 100, "{from:?} to {to:?}: {copied}"),
                    }
                }
            }
        }
    });
}

/// Fails when the reset looks like an orderly end, by a wrong count, or by a hang.
#[test]
fn a_source_that_is_reset_ends_the_copy() {
    everyone(|crew| {
        for len in [100, 500_003] {
            let (near, far) = common::loopback::pair();
            let (reader, writer) = gmp::io::pipe().unwrap();
            let copies = crew.go(move || copy(&near, &writer));
            // All bytes are through when the reset comes.
            let got = crew.run(move || {
                (&far).write_all(&pattern(1, len)).unwrap();
                far
            });
            let far = got;
            let got = crew.run(move || {
                let mut got = vec![0; len];
                (&reader).read_exact(&mut got).unwrap();
                let linger = libc::linger { l_onoff: 1, l_linger: 0 };
                let (at, size) = ((&raw const linger).cast(), size_of_val(&linger) as libc::socklen_t);
                // SAFETY: the option's value lives through the call.
                let set =
                    unsafe { libc::setsockopt(far.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, at, size) };
                assert_eq!(set, 0);
                drop(far);
                assert_eq!((&reader).read(&mut [0]).unwrap(), 0);
                got
            });
            let failed = copies.join().unwrap_err();
            assert_eq!(failed.kind(), ErrorKind::ConnectionReset);
            assert_eq!((failed.copied(), failed.undelivered()), (len as u64, &b""[..]));
            assert!(got == pattern(1, len));
        }
    });
}

/// Fails when an offset has only 32 bits.
#[test]
fn a_file_may_be_long() {
    const END: u64 = (4 << 30) + 100_000;
    everyone(|crew| {
        for begin in [(2 << 30) - 300_000, (4 << 30) - 300_000] {
            for to in [Unix, Pipe, Kind::File] {
                let mut long = file(false);
                long.set_len(END).unwrap();
                let bytes = pattern(3, 600_000.min((END - begin) as usize));
                long.seek(SeekFrom::Start(begin)).unwrap();
                long.write_all(&bytes).unwrap();
                long.set_len(begin + bytes.len() as u64).unwrap();
                long.seek(SeekFrom::Start(begin)).unwrap();
                let (sink, drain) = sink(to);
                let source = From::File(long);
                let copies = move || {
                    assert_eq!(run(&source, &sink).unwrap(), bytes.len() as u64);
                    bytes
                };
                let (bytes, got) = if is_file(to) {
                    (crew.run(copies), crew.run(drain))
                } else {
                    let drains = crew.go(drain);
                    (crew.run(copies), drains.join())
                };
                assert!(got == bytes, "{to:?} from {begin}: {} bytes", got.len());
            }
        }
    });
}

/// Fails when a descriptor stays open, or when bytes wait behind one.
#[test]
fn descriptors_beside_the_bytes_are_dropped() {
    everyone(|crew| {
        let (near, far) = UnixStream::pair().unwrap();
        let (to, end) = UnixStream::pair().unwrap();
        let (reader, passed) = gmp::io::pipe().unwrap();
        let copies = crew.go(move || copy(&near, &to));
        let drains = crew.go(move || read_pieces(&end));
        crew.run(move || {
            for _ in 0..4 {
                far.send_with_fds(&[IoSlice::new(b"and a pipe")], &[passed.as_fd()]).unwrap();
                (&far).write_all(&pattern(1, 200_000)).unwrap();
            }
        });
        assert_eq!(copies.join().unwrap(), 4 * 200_010);
        assert_eq!(drains.join().len(), 4 * 200_010);
        // The pipe ends, so no duplicate of its writing end is open.
        assert_eq!(crew.run(move || (&reader).read(&mut [0])).unwrap(), 0);
    });
}

/// Fails when several copies through one stream mix the bytes of a read, or lose some.
#[test]
fn several_copies_have_one_sink() {
    const EACH: usize = 100_000;
    everyone(|crew| {
        let (reader, writer) = gmp::io::pipe().unwrap();
        let writer = Arc::new(writer);
        let copies: Vec<_> = (0..4_u8)
            .map(|number| {
                let writer = Arc::clone(&writer);
                crew.go(move || {
                    let (source, feed) = source(Kind::File);
                    feed(&vec![number; EACH]).unwrap();
                    let From::File(source) = source else { unreachable!("a file") };
                    copy(&source, &writer).unwrap()
                })
            })
            .collect();
        drop(writer);
        let got = crew.run(move || read_pieces(&reader));
        for copy in copies {
            assert_eq!(copy.join(), EACH as u64);
        }
        for number in 0..4 {
            assert_eq!(got.iter().filter(|&&byte| byte == number).count(), EACH);
        }
    });
}

/// Fails when a context that is done does not end the copy.
#[test]
fn a_context_ends_a_copy_of_files() {
    everyone(|crew| {
        crew.run(|| {
            let (context, cancel) = gmp::context::Context::background().with_cancel();
            let From::File(source) = source(Kind::File).0 else { unreachable!("a file") };
            cancel.cancel();
            let failed = context.run(|| copy(&source, &file(false)).unwrap_err()).unwrap();
            let inner = failed.error().get_ref().and_then(|inner| inner.downcast_ref());
            assert_eq!(inner, Some(&gmp::context::ContextError::Canceled));
        });
    });
}

#[test]
fn files_of_the_kernel_are_copied() {
    everyone(|crew| {
        crew.run(|| {
            for path in ["/proc/self/maps", "/proc/version"] {
                let (to, drain) = sink(Kind::File);
                let copied = run(&From::File(File::open(path).unwrap()), &to).unwrap();
                let got = drain();
                assert!(copied > 0 && got.len() as u64 == copied, "{path}");
            }
            assert!(copy(&File::open("/").unwrap(), &file(false)).is_err());
        });
    });
}
