//! One socket used by several goroutines, threads and runtimes: the calls take turns, and none takes another's data.

use common::crew::{Member, on_thread};
use common::loopback::{listen, pair};
use common::talk::{echo, ping};
use common::{everywhere, runtime, until};
use gmp::net::{TcpStream, UnixStream};
use gmp::{go, yield_now};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

/// Fails by a hang when a connection wakes the waiter, which accepts it, and no waiter accepts the next one.
#[test]
fn several_accept_on_one_listener_and_each_connection_is_taken_once() {
    everywhere(|rt| {
        let (listener, addr) = listen();
        let listener = Arc::new(listener);
        let accept = |times: usize| {
            let listener = Arc::clone(&listener);
            move || {
                let tag = |_| {
                    let mut tag = [0; 2];
                    listener.accept().unwrap().0.read_exact(&mut tag).unwrap();
                    u16::from_ne_bytes(tag)
                };
                (0..times).map(tag).collect::<Vec<_>>()
            }
        };
        let goroutines: Vec<_> = (0..8).map(|_| rt.go(accept(20))).collect();
        let threads: Vec<_> = (0..2).map(|_| thread::spawn(accept(20))).collect();
        for tag in 0..200_u16 {
            TcpStream::connect(addr).unwrap().write_all(&tag.to_ne_bytes()).unwrap();
        }
        let on_goroutines = goroutines.into_iter().flat_map(|one| one.join().unwrap());
        let mut tags: Vec<_> = on_goroutines.collect();
        tags.extend(threads.into_iter().flat_map(|one| one.join().unwrap()));
        tags.sort();
        assert_eq!(tags, Vec::from_iter(0..200));
    });
}

/// Fails when a record is torn or comes before its predecessor.
#[test]
fn small_writes_of_several_stay_whole_and_in_order() {
    everywhere(|rt| {
        let (near, mut far) = pair();
        let near = Arc::new(near);
        let write = |writer: u8| {
            let near = Arc::clone(&near);
            move || {
                for count in 0..100_u8 {
                    let record = [[writer, count]; 32].concat();
                    assert_eq!((&*near).write(&record).unwrap(), 64);
                    if count % 7 == writer % 7 {
                        yield_now();
                    }
                }
            }
        };
        let goroutines: Vec<_> = (0..8).map(|writer| rt.go(write(writer))).collect();
        let threads: Vec<_> = (8..10).map(|writer| thread::spawn(write(writer))).collect();
        rt.run(|| {
            let (mut next, mut record) = ([0; 10], [0; 64]);
            for _ in 0..1000 {
                far.read_exact(&mut record).unwrap();
                let [writer, count] = [record[0], record[1]];
                assert!(record.chunks(2).all(|chunk| chunk == [writer, count]), "{record:?}");
                assert_eq!(count, next[usize::from(writer)], "writer {writer}");
                next[usize::from(writer)] += 1;
            }
        });
        goroutines.into_iter().for_each(|one| one.join().unwrap());
        threads.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// Fails by a hang when the I/O lock is not handed on, or when the data wakes one reader, and the rest of the data stays.
#[test]
fn several_read_one_stream_and_each_byte_is_taken_once() {
    everywhere(|rt| {
        let (near, far) = pair();
        let (near, taken) = (Arc::new(near), Arc::new(AtomicUsize::new(0)));
        let read = || {
            let (near, taken) = (Arc::clone(&near), Arc::clone(&taken));
            move || {
                let (mut mine, mut buffer) = (Vec::new(), [0; 4]);
                loop {
                    let got = (&*near).read(&mut buffer).unwrap();
                    if got == 0 {
                        return mine;
                    }
                    taken.fetch_add(got, SeqCst);
                    mine.extend_from_slice(&buffer[..got]);
                }
            }
        };
        let goroutines: Vec<_> = (0..6).map(|_| rt.go(read())).collect();
        let threads: Vec<_> = (0..2).map(|_| thread::spawn(read())).collect();
        rt.run(|| {
            for chunk in Vec::from_iter(0..250_u8).chunks(5) {
                let before = taken.load(SeqCst);
                (&far).write_all(chunk).unwrap();
                until(|| taken.load(SeqCst) == before + 5);
            }
            far.shutdown(Shutdown::Write).unwrap();
        });
        let mut all: Vec<_> = goroutines.into_iter().flat_map(|one| one.join().unwrap()).collect();
        all.extend(threads.into_iter().flat_map(|one| one.join().unwrap()));
        all.sort();
        assert_eq!(all, Vec::from_iter(0..250));
    });
}

/// Each kind of caller leaves knowledge in the socket: a goroutine, a thread, a goroutine of another runtime, or one whose
/// runtime has ended. Fails by a hang when that knowledge is wrong for the next caller.
#[test]
fn a_stream_may_change_hands_between_threads_and_runtimes() {
    everywhere(|first| {
        let procs = first.procs();
        let second = runtime(procs);
        let (near, far) = pair();
        let server = second.go(move || echo(far, 7));
        for round in 0..40 {
            let (len, room) = (1 + round % 12, 1 + round % 13);
            first.run(|| ping(&near, len, room, 3));
            ping(&near, len, room, 2);
            second.run(|| ping(&near, len, room, 2));
            second.run(|| (&near).write_all(b"from the second").unwrap());
            first.run(|| (&near).read_exact(&mut [0; 15]).unwrap());
        }
        drop(first);
        for _ in 0..5 {
            let third = runtime(procs);
            third.run(|| ping(&near, 10, 11, 5));
            second.run(|| ping(&near, 10, 3, 5));
            ping(&near, 10, 11, 5);
        }
        drop(near);
        server.join().unwrap();
    });
}

/// A read waits, so the poller watches for reads; then writes wait, in one runtime after the other. Fails by a hang when the
/// next runtime's poller is not told to watch for writes, because the last runtime's poller did.
#[test]
fn writes_wait_where_only_reads_have_waited() {
    const LEN: usize = 1 << 20;
    everywhere(|first| {
        let procs = first.procs();
        let (near, far) = UnixStream::pair().unwrap();
        let far = Arc::new(far);
        let exchange = || {
            let moment = Some(Duration::from_millis(1));
            near.set_read_timeout(moment).unwrap();
            assert_eq!((&near).read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
            near.set_write_timeout(moment).unwrap();
            let mut sent = 0;
            let full = loop {
                match (&near).write(&[1; 4096]) {
                    Ok(count) => sent += count,
                    Err(full) => break full,
                }
            };
            assert_eq!(full.kind(), ErrorKind::TimedOut);
            near.set_write_timeout(None).unwrap();
            let far = Arc::clone(&far);
            let drain = go(move || {
                let mut buffer = [0; 1000];
                let mut left = sent + LEN;
                while left > 0 {
                    let room = left.min(1000);
                    left -= (&*far).read(&mut buffer[..room]).unwrap();
                }
            });
            (&near).write_all(&vec![2; LEN]).unwrap();
            drain.join().unwrap();
        };
        first.run(exchange);
        drop(first);
        for _ in 0..2 {
            runtime(procs).run(exchange);
        }
    });
}

/// Two pollers report the same edge, and each reports it once. Fails by a hang or a lost byte.
#[test]
fn a_stream_may_be_used_by_two_runtimes_and_a_thread_at_once() {
    everywhere(|first| {
        let second = runtime(first.procs());
        let (near, far) = pair();
        let near = Arc::new(near);
        let server = first.go(move || echo(far, 100));
        let write = || {
            let near = Arc::clone(&near);
            move || (0..200).for_each(|_| assert_eq!((&*near).write(&[1; 8]).unwrap(), 8))
        };
        let total = Arc::new(AtomicUsize::new(0));
        let read = || {
            let (near, total) = (Arc::clone(&near), Arc::clone(&total));
            move || {
                let mut buffer = [0; 5];
                loop {
                    match (&*near).read(&mut buffer).unwrap() {
                        0 => return,
                        got => total.fetch_add(got, SeqCst),
                    };
                }
            }
        };
        let writers = [first.go(write()), second.go(write())];
        let readers = [first.go(read()), second.go(read())];
        let reading = thread::spawn(read());
        writers.into_iter().for_each(|one| one.join().unwrap());
        until(|| total.load(SeqCst) == 2 * 200 * 8);
        near.shutdown(Shutdown::Write).unwrap();
        readers.into_iter().for_each(|one| one.join().unwrap());
        reading.join().unwrap();
        server.join().unwrap();
        assert_eq!(total.load(SeqCst), 2 * 200 * 8);
    });
}

/// Fails when the peer sees an end because the clone shares the descriptor of the original.
#[test]
fn a_clone_is_the_same_connection_and_lives_on() {
    everywhere(|rt| {
        rt.run(|| {
            let (near, mut far) = pair();
            let mut clone = near.try_clone().unwrap();
            assert_ne!(clone.as_raw_fd(), near.as_raw_fd());
            let reader = go(move || {
                let mut near = near;
                near.read_exact(&mut [0; 4]).unwrap();
            });
            far.write_all(b"1234").unwrap();
            reader.join().unwrap();
            clone.write_all(b"5678").unwrap();
            far.read_exact(&mut [0; 4]).unwrap();
            drop(clone);
            assert_eq!(far.read(&mut [0]).unwrap(), 0);
        });
        let (listener, addr) = listen();
        let clone = listener.try_clone().unwrap();
        drop(listener);
        rt.run(|| {
            let client = go(move || TcpStream::connect(addr).unwrap());
            clone.accept().unwrap();
            client.join().unwrap();
        });
    });
}

/// Fails by a hang when a call that its runtime unwound keeps the socket, or the event for which the call waited.
#[test]
fn a_socket_works_after_a_call_was_unwound() {
    everywhere(|rt| {
        let (near, far) = pair();
        let near = Arc::new(near);
        let reads = |rt: &gmp::Runtime| {
            let near = Arc::clone(&near);
            rt.go(move || (&*near).read(&mut [0; 8]))
        };
        let first = Member::Goroutine(&rt, reads(&rt));
        first.until_it_waits();
        let same = Arc::clone(&near);
        let in_line = on_thread(move || (&*same).read(&mut [0; 8]));
        in_line.until_it_waits();
        let Member::Goroutine(_, first) = first else { unreachable!("it was made as one") };
        rt.shutdown(Duration::from_secs(60));
        assert!(first.join().unwrap_err().is_shutdown());
        (&far).write_all(b"hello").unwrap();
        assert_eq!(in_line.join().unwrap(), 5);
        let another = runtime(1);
        let later = Member::Goroutine(&another, reads(&another));
        later.until_it_waits();
        (&far).write_all(b"bye").unwrap();
        assert_eq!(later.join().unwrap(), 3);
    });
}
