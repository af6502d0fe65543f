#![cfg(not(gmp_loom))]
//! Sockets in goroutines: every byte arrives once, in order, and nobody waits for what has come already.

#[path = "common/child.rs"]
mod child;
mod common;

use common::{PROCS, everywhere, runtime, until, watched};
use gmp::net::{TcpListener, TcpStream};
use gmp::{go, yield_now};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{self, Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("it is bound");
    (listener, addr)
}

/// Both ends of a connection.
fn pair() -> (TcpStream, TcpStream) {
    let (listener, addr) = listen();
    let near = TcpStream::connect(addr).expect("the kernel takes the connection");
    let far = listener.accept().expect("it is there").0;
    for end in [&near, &far] {
        // Else an answer in two parts waits 40 ms for the delayed ACK of its first.
        end.set_nodelay(true).expect("it is a TCP stream");
    }
    (near, far)
}

/// One end in the runtime's hands, the other in std's.
fn pair_with_std() -> (TcpStream, net::TcpStream) {
    let (listener, addr) = listen();
    let far = net::TcpStream::connect(addr).expect("the kernel takes the connection");
    (listener.accept().expect("it is there").0, far)
}

/// Its close sends a reset instead of an end.
fn reset_at_close(socket: impl AsFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = size_of_val(&linger) as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: a valid struct of that size.
    let set =
        unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), size) };
    assert_eq!(set, 0);
}

fn is_blocking(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) & libc::O_NONBLOCK == 0 }
}

/// Bytes that differ from place to place and from stream to stream.
fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31) ^ at >> 8 ^ seed.wrapping_mul(97)) as u8).collect()
}

/// Sends back what comes, to the end.
fn echo(mut stream: TcpStream, buffer: usize) {
    let mut buffer = vec![0; buffer];
    loop {
        match stream.read(&mut buffer).expect("the client ends in order") {
            0 => return,
            got => stream.write_all(&buffer[..got]).expect("the client reads"),
        }
    }
}

/// Fails by a hang, or by a byte of another connection.
#[test]
fn many_connections_are_echoed_at_the_same_time() {
    everywhere(|rt| {
        rt.run(|| {
            let (listener, addr) = listen();
            let server = go(move || {
                let serving: Vec<_> = (0..64)
                    .map(|n| {
                        let (stream, _) = listener.accept().unwrap();
                        go(move || echo(stream, 1 + n * 37 % 3000))
                    })
                    .collect();
                serving.into_iter().for_each(|one| one.join().unwrap());
            });
            let clients: Vec<_> = (0..64_usize)
                .map(|n| {
                    go(move || {
                        let mut stream = TcpStream::connect(addr).unwrap();
                        for round in 0..10 {
                            let sent = pattern(n * 10 + round, 1 + (n * 131 + round * 977) % 5000);
                            stream.write_all(&sent).unwrap();
                            let mut back = vec![0; sent.len()];
                            stream.read_exact(&mut back).unwrap();
                            assert!(back == sent, "connection {n}, round {round}");
                        }
                    })
                })
                .collect();
            clients.into_iter().for_each(|client| client.join().unwrap());
            server.join().unwrap();
        });
    });
}

/// Fails by a hang: a writer that was taken a part from does not hear of the room that comes later.
#[test]
fn a_writer_waits_for_a_slow_reader() {
    everywhere(|rt| {
        rt.run(|| {
            let (mut near, mut far) = pair();
            let sent = Arc::new(pattern(1, 6 << 20));
            let wanted = Arc::clone(&sent);
            let writer = go(move || near.write_all(&sent).map(|()| drop(near)));
            let (mut at, mut buffer) = (0, vec![0; 50_000]);
            for size in (1..).map(|n| 1 + n * 7919 % 50_000) {
                let got = far.read(&mut buffer[..size]).unwrap();
                if got == 0 {
                    break;
                }
                assert!(buffer[..got] == wanted[at..at + got], "at {at}");
                at += got;
                (0..size % 5).for_each(|_| yield_now());
            }
            assert_eq!(at, wanted.len());
            writer.join().unwrap().unwrap();
        });
    });
}

/// Fails by a hang: one direction waits in the place of the other.
#[test]
fn both_directions_of_one_stream_are_used_at_the_same_time() {
    everywhere(|rt| {
        rt.run(|| {
            let (near, far) = pair();
            let busy: Vec<_> = [Arc::new(near), Arc::new(far)]
                .into_iter()
                .enumerate()
                .flat_map(|(end, stream)| {
                    let same = Arc::clone(&stream);
                    let writer = go(move || {
                        (&*stream).write_all(&pattern(end, 3 << 20)).unwrap();
                        stream.shutdown(Shutdown::Write).unwrap();
                    });
                    let reader = go(move || {
                        let mut all = Vec::new();
                        (&*same).read_to_end(&mut all).unwrap();
                        assert!(all == pattern(1 - end, 3 << 20));
                    });
                    [writer, reader]
                })
                .collect();
            busy.into_iter().for_each(|one| one.join().unwrap());
        });
    });
}

#[test]
fn a_half_closed_stream_still_answers() {
    everywhere(|rt| {
        rt.run(|| {
            for round in 0..100 {
                let (mut near, mut far) = pair();
                let server = go(move || {
                    let mut request = Vec::new();
                    far.read_to_end(&mut request).unwrap();
                    request.reverse();
                    far.write_all(&request).unwrap();
                });
                let request = pattern(round, 1000);
                near.write_all(&request).unwrap();
                near.shutdown(Shutdown::Write).unwrap();
                let mut answer = Vec::new();
                near.read_to_end(&mut answer).unwrap();
                assert!(answer.iter().rev().eq(&request));
                assert_eq!(near.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
                server.join().unwrap();
            }
        });
    });
}

/// Fails by a hang: data and the end come as one edge, the read that takes the data fills less than its buffer,
/// and the next one waits for another edge.
#[test]
fn an_end_that_comes_with_data_is_not_missed() {
    everywhere(|rt| {
        let (listener, addr) = listen();
        let peer = thread::spawn(move || {
            for round in 0..1500_usize {
                let mut far = net::TcpStream::connect(addr).unwrap();
                far.write_all(&[7; 40][..round % 40]).unwrap();
                match round % 4 {
                    // The reader is at the first part, or waits again, when the rest comes with the end.
                    0 => (0..round % 300).for_each(|_| std::hint::spin_loop()),
                    1 => thread::yield_now(),
                    2 => far.set_nodelay(true).unwrap(),
                    _ => {}
                }
                far.write_all(&[7; 2]).unwrap();
            }
        });
        rt.run(|| {
            for round in 0..1500_usize {
                let (mut stream, _) = listener.accept().unwrap();
                let reader = go(move || {
                    let (mut total, mut buffer) = (0, [0; 64]);
                    loop {
                        match stream.read(&mut buffer[..[64, 42, 1, 2][round / 4 % 4]]).unwrap() {
                            0 => break,
                            got => total += got,
                        }
                    }
                    // The end stays one.
                    assert_eq!(stream.read(&mut buffer).unwrap(), 0);
                    total
                });
                assert_eq!(reader.join().unwrap(), round % 40 + 2);
            }
        });
        peer.join().unwrap();
    });
}

/// Fails by a hang, or by an end that looks like one in order.
#[test]
fn a_reset_is_an_error_to_whoever_reads_or_writes() {
    everywhere(|rt| {
        for round in 0..400_usize {
            let (stream, far) = pair_with_std();
            let stream = Arc::new(stream);
            reset_at_close(&far);
            let about_to = Arc::new(AtomicBool::new(false));
            let goroutine = rt.go({
                let (stream, about_to) = (Arc::clone(&stream), Arc::clone(&about_to));
                move || {
                    about_to.store(true, SeqCst);
                    let mut buffer = vec![0; 1 << 16];
                    loop {
                        let done = match round % 2 {
                            0 => (&*stream).read(&mut buffer),
                            _ => (&*stream).write(&buffer),
                        };
                        match done {
                            Ok(0) => panic!("an end in order"),
                            Ok(_) => {}
                            Err(reset) => return reset.kind(),
                        }
                    }
                }
            });
            until(|| about_to.load(SeqCst));
            (0..round % 4 * 100).for_each(|_| std::hint::spin_loop());
            if round % 3 == 0 {
                (&far).write_all(b"data before it").unwrap();
            }
            drop(far);
            let kind = goroutine.join().unwrap();
            let known = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
            assert!(known.contains(&kind), "{kind:?}");
        }
    });
}

/// Fails by a hang: the goroutine whose own socket is shut down sleeps on.
#[test]
fn a_shutdown_wakes_who_waits_in_that_direction() {
    everywhere(|rt| {
        rt.run(|| {
            for round in 0..200 {
                let (near, far) = pair();
                let near = Arc::new(near);
                let same = Arc::clone(&near);
                let reader = go(move || (&*same).read(&mut [0; 16]));
                (0..round % 4).for_each(|_| yield_now());
                near.shutdown(Shutdown::Both).unwrap();
                assert_eq!(reader.join().unwrap().unwrap(), 0);
                drop(far);
            }
        });
    });
}

/// Fails by a hang, or by a stream that is none.
#[test]
fn a_refused_connection_is_an_error_of_its_kind() {
    let dead = net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let connect = move || {
        for _ in 0..50 {
            assert_eq!(TcpStream::connect(dead).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        }
        let (listener, addr) = listen();
        let second = TcpStream::connect(&[dead, addr][..]).unwrap();
        assert_eq!(second.peer_addr().unwrap(), addr);
        assert_eq!(TcpStream::connect(&[][..]).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(TcpListener::bind(addr).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(listener);
    };
    watched(0, connect);
    everywhere(|rt| rt.run(connect));
}

/// Fails by a hang: a connection wakes the one who waits, who takes it, and the next is nobody's.
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

/// Fails by a record that is torn or comes before its predecessor.
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

/// Fails by a hang: the turn is not handed on, or the data wakes one reader and the rest stays.
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

/// Says so many times something of `len` bytes and hears it back, with a buffer of `room` bytes.
fn ping(stream: &TcpStream, len: usize, room: usize, rounds: usize) {
    let mut stream = stream;
    let mut buffer = vec![0; room];
    for round in 0..rounds {
        let sent = pattern(round, len);
        stream.write_all(&sent).unwrap();
        let mut at = 0;
        while at < len {
            let most = room.min(len - at + room / 2);
            let got = stream.read(&mut buffer[..most]).unwrap();
            assert!(got > 0 && buffer[..got] == sent[at..at + got], "round {round}, at {at}");
            at += got;
        }
        assert_eq!(at, len);
    }
}

/// Fails by a hang: a read that fills its buffer, or does not, leaves the next one with a wrong idea of what the
/// kernel still has.
#[test]
fn buffers_of_every_size_see_every_byte() {
    everywhere(|rt| {
        rt.run(|| {
            let pinging: Vec<_> = [1, 2, 9, 10, 11, 4096]
                .into_iter()
                .flat_map(|near_room| [1, 9, 10, 4096].map(|far_room| (near_room, far_room)))
                .map(|(near_room, far_room)| {
                    let (near, far) = pair();
                    drop(go(move || echo(far, far_room)));
                    go(move || ping(&near, 10, near_room, 60))
                })
                .collect();
            pinging.into_iter().for_each(|one| one.join().unwrap());
        });
    });
}

/// Fails by a hang: what one kind of caller learnt about the socket is wrong for the next, a goroutine, a thread,
/// a goroutine of another runtime; or one that lasted no longer than its runtime.
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

/// Fails by a hang or a lost byte: two pollers report the same edge, and each is told of it once.
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

/// Fails by a hang: the M that came back from the poller runs a goroutine, and nobody waits in the poller,
/// although a P is idle.
#[test]
fn an_idle_p_serves_a_socket_while_a_goroutine_spins() {
    for procs in PROCS.into_iter().filter(|procs| *procs > 1) {
        watched(procs, || {
            let rt = runtime(procs);
            for _ in 0..20 {
                let [(first, mut to_first), (second, mut to_second)] = [(); 2].map(|()| pair_with_std());
                let [spins, stop] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
                let spinner = rt.go({
                    let (spins, stop, mut first) = (Arc::clone(&spins), Arc::clone(&stop), first);
                    move || {
                        first.read_exact(&mut [0]).unwrap();
                        spins.store(true, SeqCst);
                        while !stop.load(SeqCst) {
                            std::hint::spin_loop();
                        }
                    }
                });
                let stopper = rt.go(move || {
                    let mut second = second;
                    second.read_exact(&mut [0]).unwrap();
                    stop.store(true, SeqCst);
                });
                to_first.write_all(b"1").unwrap();
                until(|| spins.load(SeqCst));
                to_second.write_all(b"2").unwrap();
                stopper.join().unwrap();
                spinner.join().unwrap();
            }
        });
    }
}

/// Fails by a hang: an M that always finds work in its queue never looks at the poller.
#[test]
fn goroutines_that_yield_starve_no_socket_and_no_timer() {
    everywhere(|rt| {
        rt.run(|| {
            let stop = Arc::new(AtomicBool::new(false));
            let yielding: Vec<_> = (0..2 * gmp::procs())
                .map(|_| {
                    let stop = Arc::clone(&stop);
                    go(move || until(|| stop.load(SeqCst)))
                })
                .collect();
            let (near, far) = pair();
            drop(go(move || echo(far, 10)));
            ping(&near, 10, 10, 30);
            for _ in 0..10 {
                gmp::time::sleep(Duration::from_micros(300));
            }
            stop.store(true, SeqCst);
            yielding.into_iter().for_each(|one| one.join().unwrap());
        });
    });
}

/// CPU time of the process so far.
fn cpu_time() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: it fills the struct, of plain numbers.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    let time = |val: libc::timeval| Duration::new(val.tv_sec as u64, val.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Fails by CPU time: a connection that can't be taken is reported again and again; or by a hang: it is never
/// reported again when there is room.
#[test]
fn a_full_descriptor_table_is_an_error_of_accept_and_does_not_last() {
    if !child::is_child() {
        child::passes("a_full_descriptor_table_is_an_error_of_accept_and_does_not_last", &[]);
        return;
    }
    let limit = libc::rlimit { rlim_cur: 100, rlim_max: 100 };
    // SAFETY: a valid struct.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    everywhere(|rt| {
        let (listener, addr) = listen();
        let listener = Arc::new(listener);
        // Some wait when the table is full, one more connects afterwards.
        let mut clients: Vec<_> = (0..3).map(|_| net::TcpStream::connect(addr).unwrap()).collect();
        let mut full: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        let same = Arc::clone(&listener);
        rt.run(move || {
            for _ in 0..100 {
                let refused = same.accept().unwrap_err();
                assert_eq!(refused.raw_os_error(), Some(libc::EMFILE));
            }
        });
        full.pop();
        clients.push(net::TcpStream::connect(addr).unwrap());
        let before = cpu_time();
        let same = Arc::clone(&listener);
        rt.run(move || {
            gmp::time::sleep(Duration::from_millis(100));
            assert_eq!(same.accept().unwrap_err().raw_os_error(), Some(libc::EMFILE));
        });
        let used = cpu_time() - before;
        assert!(used < Duration::from_millis(60), "{used:?} of CPU time in 100 ms without work");
        drop(full);
        let accepted: Vec<_> = rt.run(|| (0..4).map(|_| listener.accept().unwrap().0).collect());
        for (client, mut stream) in clients.into_iter().zip(accepted) {
            drop(client);
            assert_eq!(rt.run(|| stream.read(&mut [0]).unwrap()), 0);
        }
    });
}

/// Fails by a hang: nothing is there to be read, and nothing was asked for.
#[test]
fn a_read_into_no_room_returns_at_once() {
    let check = || {
        let (mut near, far) = pair();
        assert_eq!(near.read(&mut []).unwrap(), 0);
        assert_eq!(near.read_vectored(&mut []).unwrap(), 0);
        assert_eq!(near.read_vectored(&mut [IoSliceMut::new(&mut [])]).unwrap(), 0);
        assert_eq!(near.write(&[]).unwrap(), 0);
        drop(far);
    };
    watched(0, check);
    everywhere(|rt| rt.run(check));
}

/// Fails by a byte that is gone after it was only looked at, or by a hang of the look.
#[test]
fn peek_waits_and_takes_nothing() {
    let check = || {
        let (near, mut far) = pair();
        for round in 0..20_u8 {
            far.write_all(&[round; 3]).unwrap();
            let mut seen = [0; 8];
            for _ in 0..2 {
                assert_eq!(near.peek(&mut seen).unwrap(), 3);
                assert_eq!(seen[..3], [round; 3]);
            }
            assert_eq!((&near).read(&mut seen).unwrap(), 3);
        }
        drop(far);
        assert_eq!(near.peek(&mut [0; 8]).unwrap(), 0);
        assert_eq!((&near).read(&mut [0; 8]).unwrap(), 0);
    };
    watched(0, check);
    everywhere(|rt| {
        rt.run(check);
        rt.run(|| {
            let (near, mut far) = pair();
            let looking = go(move || near.peek(&mut [0; 8]).map(|seen| (seen, near)));
            (0..5).for_each(|_| yield_now());
            far.write_all(b"ab").unwrap();
            let (seen, mut near) = looking.join().unwrap().unwrap();
            assert_eq!(seen, 2);
            near.read_exact(&mut [0; 2]).unwrap();
        });
    });
}

#[test]
fn vectored_reads_and_writes_use_all_buffers() {
    let check = || {
        let (mut near, mut far) = pair();
        for _ in 0..20 {
            let bufs = [b"ab".as_slice(), b"", b"cde"].map(IoSlice::new);
            assert_eq!(near.write_vectored(&bufs).unwrap(), 5);
            let (mut head, mut tail) = ([0; 1], [0; 9]);
            let bufs = &mut [IoSliceMut::new(&mut head), IoSliceMut::new(&mut tail)];
            assert_eq!(far.read_vectored(bufs).unwrap(), 5);
            assert_eq!((&head, &tail[..4]), (b"a", b"bcde".as_slice()));
        }
    };
    watched(0, check);
    everywhere(|rt| rt.run(check));
}

/// Fails by an end at the peer: the clone shares the descriptor of the original.
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

/// Fails by a call of std's that would block and does not, or by one of ours that blocks the thread.
#[test]
fn sockets_turn_into_stds_and_back() {
    everywhere(|rt| {
        rt.run(|| {
            let (listener, addr) = listen();
            assert!(!is_blocking(listener.as_fd()));
            let listener = net::TcpListener::from(listener);
            assert!(is_blocking(listener.as_fd()));
            let listener = TcpListener::from(listener);
            let client = go(move || TcpStream::connect(addr).unwrap());
            let (stream, from) = listener.accept().unwrap();
            let client = client.join().unwrap();
            assert_eq!(client.local_addr().unwrap(), from);
            assert!(!is_blocking(stream.as_fd()) && !is_blocking(client.as_fd()));

            // Registered in the poller, then std's, then ours again.
            let same = go(move || {
                let mut stream = stream;
                stream.read_exact(&mut [0; 2]).map(|()| stream)
            });
            yield_now();
            (&client).write_all(b"ab").unwrap();
            let stream = net::TcpStream::from(same.join().unwrap().unwrap());
            assert!(is_blocking(stream.as_fd()));
            (&client).write_all(b"cd").unwrap();
            (&stream).read_exact(&mut [0; 2]).unwrap();
            let fd = TcpStream::from(stream).into_raw_fd();
            // SAFETY: it has just been given up by its owner.
            let mut stream = unsafe { TcpStream::from_raw_fd(fd) };
            assert!(!is_blocking(stream.as_fd()));
            assert_eq!(stream.as_raw_fd(), fd);
            let echoing = go(move || {
                let mut all = String::new();
                stream.read_to_string(&mut all).map(|_| all)
            });
            // It waits, and is registered again.
            (0..5).for_each(|_| yield_now());
            (&client).write_all(b"ef").unwrap();
            let owned = OwnedFd::from(client);
            assert!(!is_blocking(owned.as_fd()));
            drop(owned);
            assert_eq!(echoing.join().unwrap().unwrap(), "ef");
        });
    });
}

#[test]
fn incoming_gives_one_connection_after_the_other() {
    everywhere(|rt| {
        rt.run(|| {
            let (listener, addr) = listen();
            let clients = go(move || {
                for n in 0..30_u8 {
                    TcpStream::connect(addr).unwrap().write_all(&[n]).unwrap();
                }
            });
            for (n, stream) in listener.incoming().take(30).enumerate() {
                let mut said = Vec::new();
                stream.unwrap().read_to_end(&mut said).unwrap();
                assert_eq!(said, [n as u8]);
            }
            clients.join().unwrap();
        });
    });
}

#[test]
fn options_and_addresses_are_those_of_the_socket() -> io::Result<()> {
    let (listener, addr) = listen();
    let near = TcpStream::connect(addr)?;
    let (far, from) = listener.accept()?;
    assert_eq!((near.peer_addr()?, near.local_addr()?), (addr, from));
    assert_eq!((far.peer_addr()?, far.local_addr()?), (from, addr));
    for nodelay in [true, false] {
        near.set_nodelay(nodelay)?;
        assert_eq!(near.nodelay()?, nodelay);
    }
    near.set_ttl(33)?;
    listener.set_ttl(44)?;
    assert_eq!((near.ttl()?, listener.ttl()?), (33, 44));
    assert!(near.take_error()?.is_none() && listener.take_error()?.is_none());
    let (near, far) = (format!("{near:?}"), format!("{far:?}"));
    assert!(near.starts_with(&format!("TcpStream {{ addr: {from}, peer: {addr}, fd: ")), "{near}");
    assert!(far.starts_with(&format!("TcpStream {{ addr: {addr}, peer: {from}, fd: ")), "{far}");
    let text = format!("{listener:?}");
    assert!(text.starts_with(&format!("TcpListener {{ addr: {addr}, fd: ")), "{text}");
    Ok(())
}

#[test]
fn ipv6_works_as_ipv4() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        // A machine without it.
        return;
    };
    let listener = Arc::new(listener);
    everywhere(|rt| {
        let listener = Arc::clone(&listener);
        rt.run(|| {
            let addr = listener.local_addr().unwrap();
            let client = go(move || TcpStream::connect(addr).map(|stream| stream.local_addr().unwrap()));
            let (stream, from) = listener.accept().unwrap();
            assert_eq!(client.join().unwrap().unwrap(), from);
            assert_eq!(stream.peer_addr().unwrap(), from);
        });
    });
}

/// Fails by a hang of the peer: the poller keeps a descriptor that its socket has given up.
#[test]
fn a_dropped_socket_is_closed_at_once() {
    everywhere(|rt| {
        rt.run(|| {
            for round in 0..200 {
                let (near, mut far) = pair();
                if round % 2 == 0 {
                    // Registered by a wait.
                    let mut near = near;
                    let waits = go(move || near.read(&mut [0; 4]).map(|_| near));
                    (0..3).for_each(|_| yield_now());
                    far.write_all(b"x").unwrap();
                    drop(waits.join().unwrap().unwrap());
                } else {
                    drop(near);
                }
                let ended = far.read(&mut [0; 4]);
                assert_eq!(ended.unwrap(), 0);
            }
        });
    });
}

/// Fails by a hang, or by bytes of a connection that is gone: an event of a closed descriptor is taken for one of
/// the next that has its number, or takes the place of that one's.
#[test]
fn an_event_of_a_closed_descriptor_means_nothing_to_the_next_one() {
    everywhere(|rt| {
        let (listener, addr) = listen();
        let listener = Arc::new(listener);
        let rounds = 640;
        let churning: Vec<_> = (0..4_usize)
            .map(|_| {
                let listener = Arc::clone(&listener);
                rt.go(move || {
                    let mut buffer = [0; 64];
                    for round in 0..rounds {
                        let (mut stream, _) = listener.accept().unwrap();
                        let mut tag = [0; 4];
                        stream.read_exact(&mut tag).unwrap();
                        stream.write_all(&tag).unwrap();
                        match round % 3 {
                            // With more data on its way.
                            0 => {}
                            // After some of it.
                            1 => drop(stream.read(&mut buffer[..1 + round % 8])),
                            // In the middle of a write.
                            _ => stream.write_all(&tag).unwrap_or_default(),
                        }
                    }
                })
            })
            .collect();
        let clients: Vec<_> = (0..4_usize)
            .map(|n| {
                rt.go(move || {
                    for round in 0..rounds {
                        let mut stream = TcpStream::connect(addr).unwrap();
                        let tag = ((n * rounds + round) as u32).to_ne_bytes();
                        stream.write_all(&tag).unwrap();
                        let mut back = [0; 4];
                        stream.read_exact(&mut back).unwrap();
                        assert_eq!(back, tag);
                        // The other side may be gone.
                        for _ in 0..round % 4 {
                            drop(stream.write(&[9; 30]));
                        }
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|one| one.join().unwrap());
        churning.into_iter().for_each(|one| one.join().unwrap());
    });
}
