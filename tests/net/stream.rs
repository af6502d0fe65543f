//! The two ends of a stream: every byte arrives once, in order, and no read waits for data that has already come.

use common::loopback::{listen, pair};
use common::talk::{echo, pattern, ping};
use common::{PROCS, everywhere, runtime, until, watched};
use gmp::net::TcpStream;
use gmp::{go, yield_now};
use std::io::{ErrorKind, Read, Write};
use std::net::{self, Shutdown};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

/// Returns one end as a socket of the library, and the other as one of std.
fn pair_with_std() -> (TcpStream, net::TcpStream) {
    let (listener, addr) = listen();
    let far = net::TcpStream::connect(addr).expect("the kernel takes the connection");
    (listener.accept().expect("it is there").0, far)
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

/// Fails by a hang when the kernel has taken a part of a write, and the writer is not told of the room that comes later.
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

/// Fails by a hang when a wait in one direction takes the place of a wait in the other.
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

/// Data and the end come as one edge, and the read that takes the data fills less than its buffer. Fails by a hang when the
/// next read waits for another edge.
#[test]
fn an_end_that_comes_with_data_is_not_missed() {
    everywhere(|rt| {
        let (listener, addr) = listen();
        let peer = thread::spawn(move || {
            for round in 0..1500_usize {
                let mut far = net::TcpStream::connect(addr).unwrap();
                far.write_all(&[7; 40][..round % 40]).unwrap();
                match round % 4 {
                    // When the rest comes with the end, the reader reads the first part, or waits again.
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
                    // A second read returns the end, too.
                    assert_eq!(stream.read(&mut buffer).unwrap(), 0);
                    total
                });
                assert_eq!(reader.join().unwrap(), round % 40 + 2);
            }
        });
        peer.join().unwrap();
    });
}

/// Fails by a hang when the goroutine whose own socket is shut down still sleeps.
#[test]
fn a_shutdown_wakes_waiters_in_that_direction() {
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

/// Fails when a peek takes a byte, or by a hang of the peek.
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

/// Fails by a hang when a read that fills its buffer, or does not, leaves a wrong note of whether the kernel has more data.
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

/// Fails by a hang when the M that came back from the poller runs a goroutine, and no M waits in the poller, although a P is
/// idle.
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

/// Fails by a hang when an M that always finds work in its queue never looks at the poller.
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
