//! `close` of a socket ends every wait and happens once, and the descriptor is free when `close` returns.

use common::child;
use common::crew::{CREWS, Crew, Member, each, everyone, join_all};
use common::dumps;
use common::loopback::{listen, pair};
use common::writer::written;
use common::{effort, everywhere, runtime, until, watched};
use gmp::net::{TcpListener, TcpStream, is_closed};
use std::fmt::Debug;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{self, Shutdown};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

fn races(count: u32) -> u32 {
    // `count` is for all crews together.
    count * effort() / CREWS as u32 / if cfg!(debug_assertions) { 4 } else { 1 }
}

#[track_caller]
fn closed<T: Debug>(result: io::Result<T>) {
    let refused = result.unwrap_err();
    assert!(is_closed(&refused), "{refused:?}");
    assert_eq!(refused.kind(), ErrorKind::NotConnected);
    assert_eq!(refused.to_string(), "the handle was closed");
}

fn is_open(fd: RawFd) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

/// Returns what a descriptor names, or `None` for a free number. A file through which the runtime watches a thread counts as
/// none: each M opens one when its thread starts, at any moment and at the lowest free number, and closes it when the thread
/// ends.
fn named_by(entry: impl AsRef<Path>) -> Option<PathBuf> {
    let name = match fs::read_link(entry) {
        Ok(name) => name,
        Err(refused) if refused.kind() == ErrorKind::NotFound => return None,
        Err(refused) => panic!("what a descriptor names: {refused}"),
    };
    (!name.ends_with("syscall") && !name.ends_with("stat")).then_some(name)
}

/// Returns `true` if the number names something else than the file by which an M is watched.
fn is_taken(fd: RawFd) -> bool {
    named_by(format!("/proc/self/fd/{fd}")).is_some()
}

/// Returns how many descriptors the process has open.
fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| named_by(entry.unwrap().path())).count()
}

/// Starts `count` members that call `f`, one after the other, and returns them when all wait.
fn waiting<'a>(
    crew: &Crew<'a>,
    count: usize,
    f: impl Fn() -> io::Result<usize> + Clone + Send + 'static,
) -> Vec<Member<'a, io::Result<usize>>> {
    (0..count)
        .map(|_| {
            let member = crew.go(f.clone());
            member.until_it_waits();
            member
        })
        .collect()
}

/// Fails by a hang when a waiter in the poller, in `poll(2)` or in the queue of the I/O lock is not told of the close; or by
/// another error. Runs in a process of its own: until it calls exec, the child of another test has each descriptor, too, and
/// keeps the listener's address.
#[test]
fn a_close_ends_every_wait() {
    if !child::is_child() {
        child::passes("a_close_ends_every_wait", &[]);
        return;
    }
    everyone(|crew| {
        let (near, far) = pair();
        let near = Arc::new(near);
        let same = Arc::clone(&near);
        let mut all = waiting(crew, 3, move || (&*same).read(&mut [0; 8]));
        let same = Arc::clone(&near);
        all.extend(waiting(crew, 1, move || same.peek(&mut [0; 8])));
        let same = Arc::clone(&near);
        all.extend(waiting(crew, 2, move || (&*same).write_all(&vec![0; 64 << 20]).map(|()| 0)));
        crew.run(move || near.close().unwrap());
        join_all(all).into_iter().for_each(closed);
        let mut taken = Vec::new();
        // The peer's stream ends, or is reset, as the bytes that the peer had sent were not read.
        let _reset = (&far).read_to_end(&mut taken);

        // An address of its own: at 127.0.0.1 another test may be given the port while it is free.
        let listener = Arc::new(TcpListener::bind("127.0.0.2:0").unwrap());
        let addr = listener.local_addr().unwrap();
        let same = Arc::clone(&listener);
        let all = waiting(crew, 3, move || same.accept().map(|_| 0));
        let same = Arc::clone(&listener);
        let looping = crew.go(move || {
            let mut incoming = same.incoming();
            let last = incoming.next().unwrap();
            (last.map(drop), incoming.next().is_none())
        });
        looping.until_it_waits();
        listener.close().unwrap();
        join_all(all).into_iter().for_each(closed);
        let (last, ended) = looping.join();
        closed(last);
        assert!(ended);
        // The listener's port is free.
        drop(TcpListener::bind(addr).unwrap());
    });
}

/// Fails by EBADF, by an end of the stream, or by a success.
#[test]
fn every_method_says_that_the_socket_was_closed() {
    everyone(|crew| {
        crew.run(|| {
            let (mut near, _far) = pair();
            // The error of a close replaces that of a past deadline.
            near.set_deadline(Some(Instant::now())).unwrap();
            near.close().unwrap();
            closed(near.close());
            closed(near.read(&mut [0; 8]));
            closed(near.read(&mut []));
            closed(near.read_to_end(&mut Vec::new()));
            closed(near.read_vectored(&mut [io::IoSliceMut::new(&mut [0; 8])]));
            closed(near.peek(&mut [0; 8]));
            closed(near.write(b"x"));
            closed(near.write_all(b"x"));
            closed(near.write_vectored(&[io::IoSlice::new(b"x")]));
            closed(near.peer_addr());
            closed(near.local_addr());
            closed(near.shutdown(Shutdown::Both));
            closed(near.try_clone());
            closed(near.nodelay());
            closed(near.set_nodelay(true));
            closed(near.ttl());
            closed(near.set_ttl(1));
            closed(near.take_error());
            closed(near.set_deadline(None));
            closed(near.set_read_deadline(None));
            closed(near.set_write_deadline(None));
            closed(near.set_read_timeout(None));
            closed(near.set_write_timeout(Some(Duration::ZERO)));
            closed(near.read_timeout());
            closed(near.write_timeout());
            assert_eq!(near.as_raw_fd(), -1);
            assert_eq!(format!("{near:?}"), "Closed");

            let (listener, _) = listen();
            listener.close().unwrap();
            closed(listener.close());
            closed(listener.accept());
            closed(listener.local_addr());
            closed(listener.try_clone());
            closed(listener.ttl());
            closed(listener.set_ttl(1));
            closed(listener.take_error());
            closed(listener.set_deadline(None));
            closed(listener.incoming().next().unwrap());
            assert_eq!(listener.incoming().count(), 1);
            assert_eq!(listener.as_raw_fd(), -1);
        });
    });
    let dead = || {
        let (near, _) = pair();
        near.close().unwrap();
        AssertUnwindSafe(near)
    };
    let near = dead();
    assert!(catch_unwind(|| near.as_fd().as_raw_fd()).is_err());
    let near = dead();
    assert!(catch_unwind(move || { near }.0.into_raw_fd()).is_err());
    let near = dead();
    assert!(catch_unwind(move || OwnedFd::from({ near }.0)).is_err());
    let near = dead();
    assert!(catch_unwind(move || net::TcpStream::from({ near }.0)).is_err());
}

/// Several members close while others read, write and accept. Fails by a hang, when two closes, or none, return that they
/// closed the socket, or when an operation under way returns another error.
#[test]
fn of_several_closes_one_is_the_one() {
    everyone(|crew| {
        for round in 0..races(800) {
            let (near, far) = pair();
            let near = Arc::new(near);
            let begin = Arc::new(AtomicBool::new(false));
            let users = each(crew, 4, {
                let (near, begin) = (Arc::clone(&near), Arc::clone(&begin));
                move |user| {
                    until(|| begin.load(SeqCst));
                    let refused = loop {
                        let done = match user % 4 {
                            0 => (&*near).read(&mut [0; 8]),
                            1 => (&*near).write(&[0; 8]),
                            2 => near.nodelay().map(|_| 1),
                            _ => near.set_read_deadline(None).map(|()| 1),
                        };
                        match done {
                            Ok(1..) => gmp::yield_now(),
                            Ok(_) => panic!("an end of the stream"),
                            Err(refused) => break refused,
                        }
                    };
                    assert!(is_closed(&refused), "{refused}");
                }
            });
            let closers = each(crew, 3, {
                let (near, begin) = (Arc::clone(&near), Arc::clone(&begin));
                move |closer| {
                    until(|| begin.load(SeqCst));
                    (0..closer as u32 * round % 50).for_each(|_| std::hint::spin_loop());
                    near.close()
                }
            });
            begin.store(true, SeqCst);
            (&far).write_all(b"something").unwrap();
            let (won, lost): (Vec<_>, Vec<_>) = join_all(closers).into_iter().partition(Result::is_ok);
            assert_eq!(won.len(), 1);
            lost.into_iter().for_each(closed);
            join_all(users);
        }
    });
}

/// In every second round a connection comes when the listener is closed. Fails by a hang.
#[test]
fn a_close_ends_the_waits_in_accept() {
    everyone(|crew| {
        for round in 0..races(1300) {
            let (listener, addr) = listen();
            let listener = Arc::new(listener);
            let accepting = each(crew, 3, {
                let listener = Arc::clone(&listener);
                move |_| {
                    loop {
                        match listener.accept() {
                            Ok(_) => {}
                            Err(refused) => return assert!(is_closed(&refused), "{refused}"),
                        }
                    }
                }
            });
            if round % 2 == 0 {
                drop(net::TcpStream::connect(addr).unwrap());
            }
            (0..round % 10).for_each(|_| gmp::yield_now());
            crew.run(move || listener.close().unwrap());
            join_all(accepting);
        }
    });
}

/// Fails when right after the close the descriptor is open or its number taken, or when a descriptor stays open. Runs in a
/// process of its own: other tests would take the numbers.
#[test]
fn the_descriptor_is_free_when_close_returns() {
    if !child::is_child() {
        child::passes("the_descriptor_is_free_when_close_returns", &[]);
        return;
    }
    let work = |crew: &Crew<'_>, counts: bool| {
        for round in 0..races(520) {
            let (near, far) = pair();
            let near = Arc::new(near);
            let same = Arc::clone(&near);
            let reader = crew.go(move || (&*same).read(&mut [0; 8]));
            let same = Arc::clone(&near);
            let writer = crew.go(move || (&*same).write_all(&[0; 1 << 16]));
            if round % 2 == 0 {
                reader.until_it_waits();
            }
            let fd = near.as_raw_fd();
            near.close().unwrap();
            assert!(!is_taken(fd));
            closed(reader.join());
            let _may_have_been_through = writer.join();
            assert_eq!(near.as_raw_fd(), -1);
            // The wake fds of plain threads are closed as well: only the peer's is open.
            let before = descriptors();
            drop(near);
            assert!(!counts || descriptors() == before);
            drop(far);
        }
    };
    everyone(|crew| {
        // After this, the files that a runtime and std open once are open, and those that a young runtime reads are closed.
        work(crew, false);
        let before = descriptors();
        work(crew, true);
        assert_eq!(descriptors(), before);
        let (near, _far) = pair();
        let fd = near.as_raw_fd();
        near.close().unwrap();
        // The next files get the lowest free numbers; an M may take one first.
        let mut next = Vec::new();
        while next.iter().all(|file: &fs::File| file.as_raw_fd() < fd) {
            next.push(fs::File::open("/dev/null").unwrap());
        }
        assert!(next.iter().any(|file| file.as_raw_fd() == fd) || !is_taken(fd));
    });
}

/// A connect that gets no answer gives up. Fails when a descriptor stays open.
#[test]
fn a_connect_that_times_out_leaves_no_descriptor() {
    if !child::is_child() {
        child::passes("a_connect_that_times_out_leaves_no_descriptor", &[]);
        return;
    }
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let addr = listener.local_addr().unwrap();
    let patience = Duration::from_millis(100);
    let _full: Vec<_> =
        std::iter::from_fn(|| net::TcpStream::connect_timeout(&addr, patience).ok()).collect();
    everyone(|crew| {
        let connect = move || TcpStream::connect_timeout(&addr, Duration::from_millis(1)).map(drop);
        assert_eq!(crew.run(connect).unwrap_err().kind(), ErrorKind::TimedOut);
        let before = descriptors();
        for _ in 0..3 {
            assert_eq!(crew.run(connect).unwrap_err().kind(), ErrorKind::TimedOut);
        }
        assert_eq!(descriptors(), before);
    });
}

/// Fails when the peer sees an end, or the clone returns an error.
#[test]
fn a_clone_lives_on() {
    everyone(|crew| {
        crew.run(|| {
            let (near, mut far) = pair();
            let mut clone = near.try_clone().unwrap();
            near.close().unwrap();
            far.write_all(b"1234").unwrap();
            clone.read_exact(&mut [0; 4]).unwrap();
            clone.write_all(b"5678").unwrap();
            far.read_exact(&mut [0; 4]).unwrap();
            clone.close().unwrap();
            assert_eq!(far.read(&mut [0; 4]).unwrap(), 0);
            let (listener, addr) = listen();
            let clone = listener.try_clone().unwrap();
            listener.close().unwrap();
            let client = net::TcpStream::connect(addr).unwrap();
            assert_eq!(clone.accept().unwrap().1, client.local_addr().unwrap());
        });
    });
}

/// Fails when the kernel gives a number to another file while a borrowed descriptor names it, or when the peer sees no end.
#[test]
fn a_descriptor_that_was_lent_out_stays_taken_and_is_dead() {
    everyone(|crew| {
        crew.run(|| {
            let (near, mut far) = pair();
            let lent = near.as_fd();
            near.close().unwrap();
            assert_eq!(far.read(&mut [0; 4]).unwrap(), 0);
            let mut byte = 0_u8;
            // SAFETY: one byte, that lives through the call.
            let got = unsafe { libc::read(lent.as_raw_fd(), (&raw mut byte).cast(), 1) };
            assert_eq!(got, -1);
            assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
            assert_eq!(near.as_raw_fd(), -1);
            let fd = lent.as_raw_fd();
            assert!(is_open(fd));
        });
    });
}

/// Opens files until the process may open no more.
fn fill_the_table() -> Vec<fs::File> {
    let few = libc::rlimit { rlim_cur: 100, rlim_max: 100 };
    // SAFETY: it reads the struct that we pass.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &few) }, 0);
    let mut files = Vec::new();
    open_the_rest(&mut files);
    files
}

/// Opens files until there is no free number. A number may be free again right after that: an M whose thread starts so late
/// opens a file and closes it at once, as the Ms keep none of the last quarter of the numbers.
fn open_the_rest(files: &mut Vec<fs::File>) {
    loop {
        match fs::File::open("/dev/null") {
            Ok(file) => files.push(file),
            Err(refused) => return assert_eq!(refused.raw_os_error(), Some(libc::EMFILE)),
        }
    }
}

/// Asserts, at a full table of descriptors, that the number of a closed socket stays taken. Fails when the next file that is
/// opened gets the number.
#[track_caller]
fn stays_taken(lent: RawFd, files: &mut Vec<fs::File>) {
    open_the_rest(files);
    let named = named_by(format!("/proc/self/fd/{lent}")).expect("the number is free");
    assert!(named.to_string_lossy().starts_with("socket:"), "the number went to {}", named.display());
}

/// Fails when the number is free: then the borrowed descriptor names the next file that is opened.
#[test]
fn a_lent_descriptor_stays_taken_at_a_full_table() {
    if !child::is_child() {
        child::passes("a_lent_descriptor_stays_taken_at_a_full_table", &[]);
        return;
    }
    runtime(2).run(|| {
        let (near, mut far) = pair();
        let lent = near.as_fd();
        let mut files = fill_the_table();
        near.close().unwrap();
        stays_taken(lent.as_raw_fd(), &mut files);
        // The connection has ended.
        assert_eq!(far.read(&mut [0; 4]).unwrap(), 0);
        drop(files);
    });
}

/// The same, but even the first loan happens at a full table. Fails as above, or when the peer never sees an end.
#[test]
fn a_descriptor_that_is_lent_at_a_full_table_stays_taken_until_the_socket_is_dropped() {
    const TEST: &str = "a_descriptor_that_is_lent_at_a_full_table_stays_taken_until_the_socket_is_dropped";
    if !child::is_child() {
        child::passes(TEST, &[]);
        return;
    }
    runtime(2).run(|| {
        let (near, mut far) = pair();
        let mut files = fill_the_table();
        let lent = near.as_fd().as_raw_fd();
        far.write_all(b"unread").unwrap();
        near.close().unwrap();
        // The peer sees the end at once, and not only when the socket is dropped. The end is a reset if a number was free after
        // all.
        far.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        match far.read(&mut [0; 4]) {
            Ok(read) => assert_eq!(read, 0),
            Err(reset) => assert_eq!(reset.kind(), ErrorKind::ConnectionReset),
        }
        stays_taken(lent, &mut files);
        closed((&near).read(&mut [0; 4]));
        assert_eq!(near.as_raw_fd(), -1);
        drop(near);
        assert!(!is_taken(lent));
        drop(files);
    });
}

/// The same with a listener, which then takes no connections. Fails when a client connects.
#[test]
fn a_listener_that_is_lent_at_a_full_table_ends_at_its_close() {
    if !child::is_child() {
        child::passes("a_listener_that_is_lent_at_a_full_table_ends_at_its_close", &[]);
        return;
    }
    runtime(2).run(|| {
        let (listener, addr) = listen();
        let mut files = fill_the_table();
        let lent = listener.as_fd().as_raw_fd();
        listener.close().unwrap();
        stays_taken(lent, &mut files);
        // Frees some numbers: one for the connection, and the others for an M that may start now.
        files.truncate(files.len() - 10);
        assert_eq!(net::TcpStream::connect(addr).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        drop(files);
    });
}

/// A connection that has other descriptors, or may have them, continues when one of these is closed. Fails when another
/// descriptor sees an end.
#[test]
fn a_connection_with_other_descriptors_goes_on_when_one_is_closed_at_a_full_table() {
    const TEST: &str = "a_connection_with_other_descriptors_goes_on_when_one_is_closed_at_a_full_table";
    if !child::is_child() {
        child::passes(TEST, &[]);
        return;
    }
    runtime(2).run(|| {
        let (near, mut far) = pair();
        let clone = near.try_clone().unwrap();
        let (third, mut fourth) = pair();
        let third = net::TcpStream::from(third);
        let (mut elsewhere, third) = (third.try_clone().unwrap(), TcpStream::from(third));
        let files = fill_the_table();
        for (closes, goes_on, peer) in [
            (&near, &mut (&clone) as &mut dyn Read, &mut far),
            (&third, &mut elsewhere as &mut dyn Read, &mut fourth),
        ] {
            let _lent = closes.as_fd();
            closes.close().unwrap();
            peer.write_all(b"1234").unwrap();
            let mut got = [0; 4];
            until(|| match goes_on.read(&mut got) {
                Ok(read) => read == 4,
                Err(refused) => {
                    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
                    false
                }
            });
            assert_eq!(&got, b"1234");
        }
        drop(files);
    });
}

/// Fails by a hang when the close waits for a goroutine that can't run, as its runtime has no P for it.
#[test]
fn a_close_waits_for_no_goroutine_that_sleeps() {
    watched(1, || {
        for closer_is_goroutine in [true, false] {
            let (busy, other) = (runtime(1), runtime(1));
            let (near, _far) = pair();
            let near = Arc::new(near);
            let read = |near: Arc<TcpStream>| move || (&*near).read(&mut [0; 8]);
            let readers = [(); 3].map(|()| busy.go(read(Arc::clone(&near))));
            until(|| {
                let dump = busy.dump();
                let does = |state| dumps::read(&dump).iter().filter(|g| g.1.starts_with(state)).count();
                (does("IO wait, read"), does("IO wait, turn")) == (1, 2)
            });
            let (spins, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let hog = busy.go({
                let (spins, stop) = (Arc::clone(&spins), Arc::clone(&stop));
                move || {
                    spins.store(true, SeqCst);
                    while !stop.load(SeqCst) {
                        std::hint::spin_loop();
                    }
                }
            });
            until(|| spins.load(SeqCst));
            let fd = near.as_raw_fd();
            match closer_is_goroutine {
                true => other.run(|| near.close()).unwrap(),
                false => near.close().unwrap(),
            }
            let _others_may_have_taken_it = is_open(fd);
            stop.store(true, SeqCst);
            hog.join().unwrap();
            readers.into_iter().for_each(|reader| closed(reader.join().unwrap()));
        }
    });
}

/// Fails by a hang when a goroutine that its runtime left behind keeps the I/O lock; or by a crash when the socket keeps an
/// address that is gone.
#[test]
fn a_socket_that_outlived_runtimes_is_closed() {
    everywhere(|rt| {
        let procs = rt.procs();
        let (near, far) = pair();
        let near = Arc::new(near);
        let left = rt.go({
            let near = Arc::clone(&near);
            move || (&*near).read(&mut [0; 8]).map(drop)
        });
        until(|| rt.dump().contains("IO wait, read"));
        drop(rt);
        drop(left);
        // More runtimes than slots for them: each takes the slot of a runtime that has ended.
        for _ in 0..10 {
            let next = runtime(procs);
            let same = Arc::clone(&near);
            let reader = next.go(move || (&*same).read(&mut [0; 8]));
            until(|| next.dump().contains("IO wait, read"));
            (&far).write_all(b"x").unwrap();
            assert_eq!(reader.join().unwrap().unwrap(), 1);
        }
        let live = [runtime(procs), runtime(procs)];
        let readers = [0, 1].map(|at: usize| {
            let same = Arc::clone(&near);
            live[at].go(move || (&*same).read(&mut [0; 8]))
        });
        let same = Arc::clone(&near);
        let writer = live[0].go(move || (&*same).write_all(&vec![0; 64 << 20]));
        (0..3).for_each(|_| gmp::yield_now());
        near.close().unwrap();
        readers.into_iter().for_each(|reader| closed(reader.join().unwrap()));
        closed(writer.join().unwrap());
    });
}

/// Fails by a hang when the socket is in use while its `Debug` text is written.
#[test]
fn a_writer_of_the_text_may_close_the_socket() {
    everywhere(|rt| {
        rt.run(|| {
            let (near, _far) = pair();
            let text = written(&near, || drop(near.close()));
            assert!(text.starts_with("TcpStream"), "{text}");
            assert_eq!(format!("{near:?}"), "Closed");
        });
    });
}
