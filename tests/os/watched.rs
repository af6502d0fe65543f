//! Values whose descriptor another library made.

use common::bolt::bolted;
use common::child;
use common::crew::{Crew, everyone, on_thread};
use common::gate::Gate;
use gmp::io::Watched;
use gmp::net::UdpSocket;
use gmp::net::unix::UnixStream;
use std::fs::File;
use std::io::{ErrorKind, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream as UnixStreamOfStd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

pub(super) fn flags(fd: &impl AsRawFd) -> i32 {
    // SAFETY: no pointers.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) }
}

pub(super) fn read(pipe: &Watched<PipeReader>) -> std::io::Result<Vec<u8>> {
    let mut buffer = [0; 16];
    let len = pipe.read_with(|mut pipe| pipe.read(&mut buffer))?;
    Ok(buffer[..len].to_vec())
}

/// Fails when a mode was changed: other users of the open file would see that.
#[test]
fn the_mode_stays_what_it_was() {
    everyone(|crew: &Crew<'_>| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let before = flags(&reader);
        let reader = Arc::new(Watched::new(reader));
        let same = Arc::clone(&reader);
        let reads = crew.go(move || read(&same).unwrap());
        reads.until_it_waits();
        assert_eq!(flags(&*reader), before);
        writer.write_all(b"hello").unwrap();
        assert_eq!(reads.join(), b"hello");
        let inner = Arc::into_inner(reader).unwrap().into_inner();
        assert_eq!(flags(&inner), before);
    });
}

/// Fails when only one of two values is told of an event.
#[test]
fn one_descriptor_is_watched_once() {
    let rt = common::runtime(2);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let first = Arc::new(Watched::new(reader.try_clone().unwrap()));
    let same = Arc::clone(&first);
    let reads = rt.go(move || read(&same).unwrap());
    common::until(|| common::dumps::read(&rt.dump()).iter().any(|g| g.1.starts_with("IO wait")));
    let refused = rt
        .go({
            let first = Arc::clone(&first);
            // `first` keeps its descriptor open.
            move || Watched::new(first.as_fd()).read_with(|_| Err::<(), _>(ErrorKind::WouldBlock.into()))
        })
        .join()
        .unwrap()
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    assert!(refused.to_string().contains("watched already"), "{refused}");
    // A duplicate is another descriptor.
    let twin = Watched::new(reader);
    writer.write_all(b"one").unwrap();
    assert_eq!(reads.join().unwrap(), b"one");
    writer.write_all(b"two").unwrap();
    assert_eq!(rt.go(move || read(&twin).unwrap()).join().unwrap(), b"two");
}

/// A runtime leaves a reader behind that waits for its descriptor, after the reader's function has released the I/O lock of
/// another descriptor. Fails by a hang when the reader therefore keeps its own I/O lock.
#[test]
fn a_reader_that_is_left_behind_holds_nobody_up() {
    for procs in common::PROCS {
        common::watched(procs, || {
            let (reader, mut writer) = std::io::pipe().unwrap();
            // SAFETY: no pointers.
            let set =
                unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, flags(&reader) | libc::O_NONBLOCK) };
            assert_eq!(set, 0);
            let (reader, first) = (Arc::new(Watched::new(reader)), common::runtime(procs));
            let same = Arc::clone(&reader);
            let left = first.go(move || {
                let (near, _far) = UnixStream::pair().unwrap();
                bolted(|| {
                    let read = same.read_with(|mut pipe| {
                        (&near).write_all(b"x")?;
                        pipe.read(&mut [0; 16])
                    });
                    drop(read);
                });
            });
            common::until(|| common::dumps::read(&first.dump()).iter().any(|g| g.1.starts_with("IO wait")));
            drop(left);
            first.shutdown(Duration::from_secs(5));
            let (second, same) = (common::runtime(procs), Arc::clone(&reader));
            let reads = second.go(move || read(&same).unwrap());
            writer.write_all(b"hello").unwrap();
            assert_eq!(reads.join().unwrap(), b"hello");
            reader.close().unwrap();
        });
    }
}

/// As the test above, but the reader is left behind in its function, which waits after it has released a lock, and the I/O lock
/// of another descriptor.
#[test]
fn a_readers_function_that_is_left_behind_holds_nobody_up() {
    for procs in common::PROCS {
        common::watched(procs, || {
            let (reader, mut writer) = std::io::pipe().unwrap();
            writer.write_all(b"hello").unwrap();
            let (reader, first) = (Arc::new(Watched::new(reader)), common::runtime(procs));
            let same = Arc::clone(&reader);
            let left = first.go(move || {
                let (near, _far) = UnixStream::pair().unwrap();
                let (sender, receiver) = gmp::chan::bounded(0);
                bolted(|| {
                    let waits = same.read_with(|_| {
                        (&near).write_all(b"x")?;
                        let sender = sender.clone();
                        gmp::go(move || sender.send(()).unwrap());
                        receiver.recv().unwrap();
                        gmp::time::sleep(Duration::MAX);
                        Ok(())
                    });
                    drop(waits);
                });
            });
            common::until(|| common::dumps::read(&first.dump()).iter().any(|g| g.1.starts_with("sleep")));
            drop(left);
            first.shutdown(Duration::from_secs(5));
            let (second, same) = (common::runtime(procs), Arc::clone(&reader));
            assert_eq!(second.go(move || read(&same).unwrap()).join().unwrap(), b"hello");
            reader.close().unwrap();
        });
    }
}

/// A socket of the library in a `Watched` is closed underneath. Fails by a panic of the close or the drop, when a reader still
/// waits after the close, or when a value is not dropped.
#[test]
fn a_descriptor_that_is_closed_underneath_is_let_go() {
    common::everywhere(|rt| {
        let socket = || Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let never = |_: &Arc<UdpSocket>| Err::<(), _>(ErrorKind::WouldBlock.into());
        let (first, second) = (socket(), socket());
        let watched = Arc::new(Watched::new(Arc::clone(&first)));
        let same = Arc::clone(&watched);
        let reads = rt.go(move || same.read_with(never).unwrap_err());
        common::until(|| common::dumps::read(&rt.dump()).iter().any(|g| g.1.starts_with("IO wait")));
        first.close().unwrap();
        watched.close().unwrap();
        assert!(gmp::net::is_closed(&reads.join().unwrap()));
        drop(watched);

        let same = Arc::clone(&second);
        rt.run(move || {
            let watched = Watched::new(Arc::clone(&same));
            watched.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            assert_eq!(watched.read_with(never).unwrap_err().kind(), ErrorKind::TimedOut);
            same.close().unwrap();
            drop(watched);
        });
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 1));
    });
}

/// A value that reports its drop.
struct Told(PipeReader, Arc<AtomicBool>);

impl AsFd for Told {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.1.store(true, SeqCst);
    }
}

/// A reader's function lends the value to a goroutine of its scope, which blocks its thread as their runtime ends. The reader
/// is left behind, and its goroutine uses the value. Fails when the close drops the value meanwhile.
#[test]
fn a_value_that_is_lent_by_a_left_reader_stays() {
    for procs in common::PROCS {
        common::watched(procs, || {
            let (reader, mut writer) = std::io::pipe().unwrap();
            writer.write_all(b"hello").unwrap();
            let dropped = Arc::new(AtomicBool::new(false));
            let watched = Arc::new(Watched::new(Told(reader, Arc::clone(&dropped))));
            let (lent, is_lent) = std::sync::mpsc::channel();
            let (go_on, goes_on) = std::sync::mpsc::channel::<()>();
            let (read, is_read) = std::sync::mpsc::channel();
            let (rt, same) = (common::runtime(procs), Arc::clone(&watched));
            drop(rt.go(move || {
                let uses = move |value: &Told| {
                    lent.send(()).unwrap();
                    goes_on.recv().unwrap();
                    let mut buffer = [0; 16];
                    let len = (&value.0).read(&mut buffer).unwrap();
                    read.send((value.1.load(SeqCst), buffer[..len].to_vec())).unwrap();
                };
                let mut uses = Some(uses);
                let _left = same.read_with(|value| {
                    let uses = uses.take().unwrap();
                    gmp::scope(|scope| drop(scope.go(move || uses(value))));
                    Ok(())
                });
            }));
            is_lent.recv().unwrap();
            assert!(!rt.shutdown(Duration::from_millis(50)).is_clean());
            watched.close().unwrap();
            assert!(!dropped.load(SeqCst), "the value is in use");
            go_on.send(()).unwrap();
            assert_eq!(is_read.recv().unwrap(), (false, b"hello".to_vec()));
        });
    }
}

/// Fails by a hang when a goroutine that was left behind in a call of `with`, or one that has returned from such a call, counts
/// as a user for ever; or when the value is dropped although a goroutine that was left behind has it.
#[test]
fn a_look_that_is_left_behind_holds_no_close_up() {
    for procs in common::PROCS {
        common::watched(procs, || {
            let dropped = Arc::new(AtomicBool::new(false));
            let told = Told(std::io::pipe().unwrap().0, Arc::clone(&dropped));
            let (watched, rt) = (Arc::new(Watched::new(told)), common::runtime(procs));
            let same = Arc::clone(&watched);
            rt.run(move || {
                // These calls end: by a return, one within the other, and by a panic.
                let waits = || {
                    gmp::time::sleep(Duration::from_micros(1));
                    Ok(())
                };
                same.with(|_| same.with(|_| waits())).unwrap();
                let panics = || same.with(|_| -> std::io::Result<()> { panic!("in the look") });
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).unwrap_err();
            });
            let same = Arc::clone(&watched);
            let left = rt.go(move || {
                bolted(|| {
                    let waits = || {
                        gmp::time::sleep(Duration::MAX);
                        Ok(())
                    };
                    drop(same.with(|_| same.with(|_| waits())));
                });
            });
            common::until(|| common::dumps::read(&rt.dump()).iter().any(|g| g.1.starts_with("sleep")));
            drop(left);
            rt.shutdown(Duration::from_secs(5));
            watched.close().unwrap();
            assert!(!dropped.load(SeqCst), "the value is in use");
        });
    }
}

/// A value closes its own descriptor, and the kernel gives the number to a socket. Fails by a time-out when a drop, a close or
/// a write of the value changes what the poller does for the socket.
#[test]
fn the_number_of_a_descriptor_that_was_closed_underneath_is_the_next_ones() {
    /// Returns the number of a descriptor that the test closes.
    struct Closes(RawFd);
    impl AsFd for Closes {
        fn as_fd(&self) -> BorrowedFd<'_> {
            // SAFETY: there is always a descriptor of that number.
            unsafe { BorrowedFd::borrow_raw(self.0) }
        }
    }
    if !child::is_child() {
        // Other tests would take the number.
        child::passes("the_number_of_a_descriptor_that_was_closed_underneath_is_the_next_ones", &[]);
        return;
    }
    enum After {
        Drop,
        Close,
        Write,
    }
    for after in [After::Drop, After::Close, After::Write] {
        let rt = common::runtime(1);
        let (value, _peer) = UnixStreamOfStd::pair().unwrap();
        value.set_nonblocking(true).unwrap();
        let number = value.as_raw_fd();
        let watched = Watched::new(Closes(number));
        let never = |_: &Closes| Err::<(), _>(ErrorKind::WouldBlock.into());
        watched.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let watched = rt.run(move || {
            assert_eq!(watched.read_with(never).unwrap_err().kind(), ErrorKind::TimedOut);
            watched
        });
        let (near, mut far) = UnixStream::pair().unwrap();
        // `dup2` replaces the descriptor in one step: other threads open files now and then.
        std::mem::forget(value);
        // SAFETY: the number was `value`'s, which is forgotten, and names a descriptor of its own from here on.
        let near = unsafe {
            assert_eq!(libc::dup2(near.as_raw_fd(), number), number);
            UnixStream::from(OwnedFd::from_raw_fd(number))
        };
        near.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let reads = rt.go(move || (&near).read(&mut [0]).map_err(|refused| refused.kind()));
        common::until(|| common::dumps::read(&rt.dump()).iter().any(|g| g.1.starts_with("IO wait")));
        let watched = rt.run(move || {
            match after {
                After::Drop => {
                    drop(watched);
                    return None;
                }
                After::Close => watched.close().unwrap(),
                After::Write => {
                    let refused = watched.write_with(never).unwrap_err();
                    assert_eq!(refused.kind(), ErrorKind::NotFound, "{refused}");
                }
            }
            Some(watched)
        });
        far.write_all(b"x").unwrap();
        assert_eq!(reads.join().unwrap(), Ok(1));
        drop(watched);
    }
}

/// The owner still uses a descriptor that it lent. Fails when the number names another file after the close.
#[test]
fn a_borrowed_descriptor_stays_its_owners() {
    everyone(|crew| {
        crew.run(|| {
            let (mut reader, mut writer) = std::io::pipe().unwrap();
            let watched = Watched::new(&reader);
            assert_eq!(watched.as_fd().as_raw_fd(), reader.as_raw_fd());
            watched.close().unwrap();
            assert!(gmp::net::is_closed(&watched.read_with(|_| Ok(())).unwrap_err()));
            drop(watched);
            writer.write_all(b"hello").unwrap();
            let mut got = [0; 5];
            reader.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"hello");
        });
    });
}

/// A value that may take its time to return its descriptor.
struct Slow {
    pipe: PipeReader,
    /// Open if the value takes its time.
    is_slow: Gate,
    asked: Gate,
    tells: Gate,
    dropped: Gate,
}

impl AsFd for Slow {
    fn as_fd(&self) -> BorrowedFd<'_> {
        if self.is_slow.is_open() {
            let (tells, dropped) = (self.tells.clone(), self.dropped.clone());
            self.asked.open();
            tells.pass();
            assert!(!dropped.is_open(), "the value was dropped while it was asked");
        }
        self.pipe.as_fd()
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.dropped.open();
    }
}

/// Fails when a value is dropped while another member asks it for its number.
#[test]
fn a_close_waits_for_calls_that_ask_for_the_number() {
    everyone(|crew: &Crew<'_>| {
        let [is_slow, asked, tells, dropped] = std::array::from_fn(|_| Gate::default());
        let (pipe, _writer) = std::io::pipe().unwrap();
        let number = pipe.as_raw_fd();
        let slow = Slow {
            pipe,
            is_slow: is_slow.clone(),
            asked: asked.clone(),
            tells: tells.clone(),
            dropped: dropped.clone(),
        };
        let watched = Arc::new(Watched::new(slow));
        is_slow.open();
        let [asks, closes] = [(); 2].map(|()| Arc::clone(&watched));
        let asks = crew.go(move || asks.as_raw_fd());
        asked.pass();
        let closes = crew.go(move || closes.close());
        closes.until_it_waits();
        tells.open();
        assert_eq!(asks.join(), number);
        closes.join().unwrap();
        assert!(dropped.is_open());
        assert_eq!(watched.as_raw_fd(), -1);
    });
}

/// Fails when a function that a signal has ended is called again, and the caller is never told of the signal.
#[test]
fn an_end_by_a_signal_is_told() {
    everyone(|crew| {
        crew.run(|| {
            let pipe = |blocks: bool| {
                let (reader, mut writer) = std::io::pipe().unwrap();
                writer.write_all(b"hello").unwrap();
                let mode = if blocks { 0 } else { libc::O_NONBLOCK };
                // SAFETY: no pointers.
                let set = unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, flags(&reader) | mode) };
                assert_eq!(set, 0);
                OwnedFd::from(reader)
            };
            let disk = File::open(std::env::current_exe().unwrap()).unwrap();
            for fd in [pipe(false), pipe(true), OwnedFd::from(disk)] {
                let (watched, mut calls) = (Watched::new(fd), 0);
                let mut call = |_: &OwnedFd| {
                    calls += 1;
                    if calls == 1 { Err(ErrorKind::Interrupted.into()) } else { Ok(()) }
                };
                assert_eq!(watched.read_with(&mut call).unwrap_err().kind(), ErrorKind::Interrupted);
                watched.read_with(&mut call).unwrap();
                assert_eq!(calls, 2);
            }
            let (near, _far) = UnixStreamOfStd::pair().unwrap();
            let ended = Watched::new(near).write_with(|_| Err::<(), _>(ErrorKind::Interrupted.into()));
            assert_eq!(ended.unwrap_err().kind(), ErrorKind::Interrupted);
        });
    });
}

/// Fails by an error for a file that epoll does not take; or by an endless wait, in which a thread uses a whole CPU.
#[test]
fn a_regular_file_is_read_as_well() {
    everyone(|crew| {
        crew.run(|| {
            let file = Watched::new(File::open("/proc/self/cmdline").unwrap());
            let mut text = Vec::new();
            let file_of = |text: &mut Vec<u8>| {
                let mut buffer = [0; 64];
                let len = file.read_with(|mut file| file.read(&mut buffer)).unwrap();
                text.extend_from_slice(&buffer[..len]);
                len
            };
            while file_of(&mut text) > 0 {}
            assert_eq!(text, std::fs::read("/proc/self/cmdline").unwrap());
            // A file on a disk, which the kernel refuses to watch.
            let file = Watched::new(File::open(std::env::current_exe().unwrap()).unwrap());
            let mut magic = [0; 4];
            file.read_with(|mut file| file.read_exact(&mut magic)).unwrap();
            assert_eq!(&magic, b"\x7fELF");
            let never = file.read_with(|_| Err::<(), _>(ErrorKind::WouldBlock.into())).unwrap_err();
            assert_eq!(never.kind(), ErrorKind::Unsupported, "{never}");
        });
    });
}

/// Makes a call on the only P's thread; the call lasts until another goroutine has run. Returns `true` if one could run.
fn others_run_during(
    rt: &gmp::Runtime,
    call: impl FnOnce(&dyn Fn() -> bool) -> bool + Send + 'static,
) -> bool {
    let (tell, told) = std::sync::mpsc::channel();
    let (began, begins) = std::sync::mpsc::channel();
    let calls = rt.go(move || {
        call(&|| {
            began.send(()).unwrap();
            told.recv_timeout(std::time::Duration::from_secs(2)).is_ok()
        })
    });
    begins.recv().unwrap();
    let tells = rt.go(move || tell.send(()));
    let run = calls.join().unwrap();
    assert_eq!(tells.join().unwrap().is_ok(), run);
    run
}

fn set_blocking(fd: &impl AsRawFd, blocks: bool) {
    let mode = if blocks { 0 } else { libc::O_NONBLOCK };
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, mode) }, 0);
}

/// Another user of the open file makes it blocking during the wait. Fails when a goroutine has to wait for the reader.
#[test]
fn the_mode_may_change_during_a_wait() {
    child::without_retakes("the_mode_may_change_during_a_wait", || {
        let rt = common::runtime(1);
        let (reader, mut writer) = std::io::pipe().unwrap();
        set_blocking(&reader, false);
        let shared = reader.try_clone().unwrap();
        let reader = Watched::new(reader);
        let run = others_run_during(&rt, move |others_run| {
            let mut waited = false;
            let during = reader.read_with(|_| {
                if waited {
                    return Ok(others_run());
                }
                waited = true;
                set_blocking(&shared, true);
                writer.write_all(b"!").unwrap();
                Err(ErrorKind::WouldBlock.into())
            });
            during.unwrap()
        });
        assert!(run);
    });
}

/// A file on a disk blocks in each mode. Fails when a goroutine has to wait for the reader.
#[test]
fn a_regular_file_blocks_in_every_mode() {
    child::without_retakes("a_regular_file_blocks_in_every_mode", || {
        let rt = common::runtime(1);
        for blocks in [true, false] {
            let file = File::open(std::env::current_exe().unwrap()).unwrap();
            set_blocking(&file, blocks);
            let file = Watched::new(file);
            let read = move |others_run: &dyn Fn() -> bool| file.read_with(|_| Ok(others_run())).unwrap();
            assert!(others_run_during(&rt, read), "blocks: {blocks}");
        }
    });
}

/// A message queue looks like a regular file. Fails by an error, or when no event ends a read.
#[test]
fn a_message_queue_is_waited_for() {
    let name = std::ffi::CString::new(format!("/gmp-{}", std::process::id())).unwrap();
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_NONBLOCK;
    // SAFETY: a name, a mode, and null for the default sizes.
    let queue = unsafe { libc::mq_open(name.as_ptr(), flags, 0o600, std::ptr::null_mut::<libc::mq_attr>()) };
    if queue < 0 {
        return common::skipped(format!("no message queue: {}", std::io::Error::last_os_error()));
    }
    // SAFETY: the name lives through the call; nothing else owns the descriptor.
    let queue = unsafe {
        libc::mq_unlink(name.as_ptr());
        OwnedFd::from_raw_fd(queue)
    };
    let sends = queue.try_clone().unwrap();
    let rt = common::runtime(1);
    let queue = Watched::new(queue);
    let reads = rt.go(move || {
        let mut message = vec![0_u8; 8192];
        let read = queue.read_with(|queue| {
            let (to, room) = (message.as_mut_ptr().cast(), message.len());
            // SAFETY: the buffer is as long as told.
            match unsafe { libc::mq_receive(queue.as_raw_fd(), to, room, std::ptr::null_mut()) } {
                -1 => Err(std::io::Error::last_os_error()),
                len => Ok(len as usize),
            }
        });
        read.map(|len| message[..len].to_vec())
    });
    common::until(|| common::dumps::read(&rt.dump()).iter().any(|g| g.1.starts_with("IO wait")));
    // SAFETY: five bytes, which live through the call.
    assert_eq!(unsafe { libc::mq_send(sends.as_raw_fd(), c"hello".as_ptr(), 5, 0) }, 0);
    assert_eq!(reads.join().unwrap().unwrap(), b"hello");
}

/// The kernel says that the descriptor is ready, and the call finds nothing, as with a file that reports changes while there
/// are none. Fails when a thread runs all the time.
#[test]
fn a_thread_pauses_while_a_ready_descriptor_has_nothing_for_it() {
    const WAIT: Duration = Duration::from_millis(300);
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"x").unwrap();
    for fd in [OwnedFd::from(reader), OwnedFd::from(File::open("/proc/self/mounts").unwrap())] {
        set_blocking(&fd, false);
        let waits = on_thread(move || {
            let (watched, mut calls) = (Watched::new(fd), 0);
            watched.set_read_timeout(Some(WAIT)).unwrap();
            let never = watched.read_with(|_| {
                calls += 1;
                Err::<(), _>(ErrorKind::WouldBlock.into())
            });
            assert_eq!(never.unwrap_err().kind(), ErrorKind::TimedOut);
            calls
        });
        // One call each 10 ms, and a few more in the beginning.
        let calls = waits.join();
        assert!(calls < 100, "{calls} calls");
    }
}
