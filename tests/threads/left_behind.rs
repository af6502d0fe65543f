//! Goroutines that a runtime leaves behind when it ends hold up no other goroutine or thread.

use common::bolt::bolted;
use common::child;
use common::{PROCS, everywhere, runtime, until, watched};
use gmp::go;
use gmp::net::{TcpListener, TcpStream};
use gmp::time::sleep;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Fails by a hang when the goroutine that was left in `accept` keeps the I/O lock, so that no other goroutine can accept.
#[test]
fn a_listener_outlives_the_runtime_that_was_accepting_on_it() {
    for procs in PROCS {
        watched(procs, || {
            let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
            let addr = listener.local_addr().unwrap();
            let first = runtime(procs);
            let waiting = Arc::new(AtomicUsize::new(0));
            for _ in 0..3 {
                let (listener, waiting) = (Arc::clone(&listener), Arc::clone(&waiting));
                drop(first.go(move || {
                    waiting.fetch_add(1, SeqCst);
                    bolted(|| listener.accept().map(drop))
                }));
            }
            until(|| waiting.load(SeqCst) == 3);
            assert!(!first.shutdown_timeout(Duration::from_secs(5)));

            let second = runtime(procs);
            let accepting = second.go({
                let listener = Arc::clone(&listener);
                move || listener.accept().map(drop)
            });
            let stream = TcpStream::connect(addr).unwrap();
            accepting.join().unwrap().unwrap();
            drop(stream);
            // A plain thread can accept, too.
            let stream = TcpStream::connect(addr).unwrap();
            listener.accept().unwrap();
            drop(stream);
        });
    }
}

/// A thread waits behind a goroutine that is left. Fails by a hang when the I/O lock is not handed on.
#[test]
fn a_thread_in_line_behind_a_goroutine_that_is_left_gets_its_turn() {
    watched(1, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = Arc::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let (mut peer, _) = listener.accept().unwrap();
        let rt = runtime(1);
        drop(rt.go({
            let stream = Arc::clone(&stream);
            move || bolted(|| (&*stream).read(&mut [0; 8]).map(drop))
        }));
        // This goroutine is queued behind the reader: when it has run, the reader holds the I/O lock.
        rt.run(|| ());
        let thread = std::thread::spawn({
            let stream = Arc::clone(&stream);
            move || {
                let mut buf = [0; 8];
                let got = (&*stream).read(&mut buf).unwrap();
                buf[..got].to_vec()
            }
        });
        rt.shutdown(Duration::from_secs(5));
        peer.write_all(b"late").unwrap();
        assert_eq!(thread.join().unwrap(), b"late");
    });
}

/// Joins when it is dropped, as a guard might.
struct JoinsOnDrop(Option<gmp::JoinHandle<()>>);

impl Drop for JoinsOnDrop {
    fn drop(&mut self) {
        if let Some(handle) = self.0.take() {
            let _ended_either_way = handle.join();
        }
    }
}

/// The runtime ends with a limit of zero, so no goroutine is unwound. Fails by a hang when shutdown drops the closure before it
/// has told the joiners of the sleeper.
#[test]
fn shutdown_survives_a_closure_whose_drop_joins() {
    for procs in PROCS {
        watched(procs, || {
            let rt = runtime(procs);
            let sleeper = rt.go(|| sleep(Duration::from_secs(3600)));
            // These goroutines keep every P, so that the next goroutine does not start before the end.
            let gate = Arc::new(AtomicUsize::new(0));
            for _ in 0..procs {
                let gate = Arc::clone(&gate);
                drop(rt.go(move || {
                    gate.fetch_add(1, SeqCst);
                    until(|| gate.load(SeqCst) > 1000);
                }));
            }
            until(|| gate.load(SeqCst) == procs);
            let guard = JoinsOnDrop(Some(sleeper));
            drop(rt.go(move || drop(guard)));
            let opener = std::thread::spawn({
                let gate = Arc::clone(&gate);
                move || gate.fetch_add(1000, SeqCst)
            });
            rt.shutdown(Duration::ZERO);
            opener.join().unwrap();
        });
    }
}

/// Keeps the caller's thread, and its P, until the flag is set.
fn stay_until(flag: &AtomicBool) {
    while !flag.load(SeqCst) {
        std::thread::yield_now();
    }
}

/// A goroutine comes back from a blocking call when its runtime has ended without it, and another goroutine keeps the only P.
/// Fails by a hang when the first goroutine stays in a queue for good, and the `Once` whose closure it runs is not poisoned.
#[test]
fn a_once_is_poisoned_by_a_goroutine_that_comes_back_too_late() {
    watched(1, || {
        let rt = runtime(1);
        let once = Arc::new(gmp::sync::Once::new());
        let [away, back, kept, over] = [(); 4].map(|()| Arc::new(AtomicBool::new(false)));
        drop(rt.go({
            let (once, away, back) = (Arc::clone(&once), Arc::clone(&away), Arc::clone(&back));
            move || {
                once.call_once(|| {
                    gmp::blocking(|| {
                        away.store(true, SeqCst);
                        stay_until(&back);
                    });
                    gmp::park();
                });
            }
        }));
        until(|| away.load(SeqCst));
        drop(rt.go({
            let (kept, over) = (Arc::clone(&kept), Arc::clone(&over));
            move || {
                kept.store(true, SeqCst);
                stay_until(&over);
            }
        }));
        until(|| kept.load(SeqCst));
        assert!(rt.shutdown(Duration::ZERO).threads_left() >= 2);
        back.store(true, SeqCst);
        assert!(catch_unwind(AssertUnwindSafe(|| once.call_once(|| ()))).is_err(), "the closure did not end");
        over.store(true, SeqCst);
    });
}

/// The peer sends a byte of urgent data between ordinary bytes. A read ends, short, at the mark of the urgent byte, with more
/// data behind it. Fails by a hang when the short read is taken for the end of the data.
#[test]
fn urgent_data_hides_nothing_behind_it() {
    everywhere(|rt| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        for _ in 0..20 {
            let peer = std::net::TcpStream::connect(addr).unwrap();
            let (stream, _) = listener.accept().unwrap();
            let reader = rt.go(move || {
                let (mut stream, mut all) = (stream, Vec::new());
                while all.len() < 6 {
                    let mut buf = [0; 64];
                    let got = stream.read(&mut buf).unwrap();
                    assert!(got > 0, "the peer has not closed");
                    all.extend_from_slice(&buf[..got]);
                }
                all
            });
            (&peer).write_all(b"abc").unwrap();
            urgent(&peer);
            (&peer).write_all(b"def").unwrap();
            assert_eq!(reader.join().unwrap(), b"abcdef");
        }
    });
}

fn urgent(stream: &std::net::TcpStream) {
    use std::os::fd::AsRawFd;
    // SAFETY: one byte that lives through the call.
    let sent = unsafe { libc::send(stream.as_raw_fd(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) };
    assert_eq!(sent, 1);
}

/// Runs in a child process whose standard error is a pipe without a reader. Fails by SIGABRT when the hook panics.
#[test]
fn a_panic_is_survived_when_nobody_reads_standard_error() {
    use std::process::Stdio;
    const NAME: &str = "a_panic_is_survived_when_nobody_reads_standard_error";
    if child::is_child() {
        let rt = runtime(1);
        assert!(rt.go(|| panic!("nobody hears this")).join().unwrap_err().is_panic());
        return;
    }
    let mut child = child::command(NAME)
        // std's own hook ignores the error; the variable makes it print as little as it can.
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    assert!(child.wait().unwrap().success());
}

/// Fails by a stack overflow when each joiner that is told tells the next one, and by time when the end takes quadratic time.
#[test]
fn a_long_chain_of_joiners_is_told_without_recursion() {
    watched(2, || {
        let rt = runtime(2);
        rt.run(|| {
            let mut last = go(|| bolted(|| gmp::sync::Event::new().wait()));
            for _ in 0..20_000 {
                let before = last;
                last = go(move || drop(bolted(|| before.join())));
            }
            (0..50).for_each(|_| gmp::yield_now());
        });
        let start = Instant::now();
        let report = rt.shutdown(Duration::from_secs(20));
        assert!(report.goroutines_left() > 0 && report.threads_left() == 0, "{report:?}");
        assert!(start.elapsed() < Duration::from_secs(5), "the end took {:?}", start.elapsed());
    });
}
