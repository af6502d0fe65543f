//! Sockets as the readers and writers of the futures crates, with 1, 2 and 4 Ps.

use futures_executor::block_on as elsewhere;
use futures_util::future::{Either, join, select};
use futures_util::io::copy;
use futures_util::{AsyncReadExt, AsyncWriteExt, FutureExt};
use gmp::net::{PollStream, TcpListener, TcpStream, UnixStream};
use gmp_futures::GmpIo;
use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::pin::pin;
use std::task::Poll;

/// More bytes than the kernel buffers, so that each end has to wait for the other.
const LONG: usize = 3 << 20;

fn everywhere(f: impl Fn() + Send + Sync) {
    for procs in [1, 2, 4] {
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        let rt = unsafe { gmp::Runtime::builder().procs(procs).build() }.unwrap();
        rt.run(&f);
    }
}

fn tcp() -> (GmpIo<TcpStream>, GmpIo<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near.into(), listener.accept().unwrap().0.into())
}

fn unix() -> (GmpIo<UnixStream>, GmpIo<UnixStream>) {
    let (near, far) = UnixStream::pair().unwrap();
    (near.into(), far.into())
}

/// A sequence in which a misplaced byte shows.
fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn cross<S: PollStream>((near, far): (GmpIo<S>, GmpIo<S>)) {
    let both = |io: GmpIo<S>| {
        gmp::block_on(async {
            let mut heard = Vec::new();
            let writes = async {
                let mut output = &io;
                output.write_all(&bytes(LONG)).await.unwrap();
                output.close().await.unwrap();
                // A second close does nothing.
                output.close().await.unwrap();
                assert_eq!(output.write(b"late").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
            };
            let (_, got) = join(writes, (&mut &io).read_to_end(&mut heard)).await;
            assert_eq!(got.unwrap(), LONG);
            assert!(heard == bytes(LONG));
        });
    };
    let other = gmp::go(move || both(far));
    both(near);
    other.join().unwrap();
}

/// Fails when a byte is lost; or by a hang when one direction holds up the other, or the end of one ends both.
#[test]
fn both_directions_are_full_at_once() {
    everywhere(|| {
        cross(tcp());
        cross(unix());
    });
}

/// Fails by a hang when a handle that is dropped closes the stream, or when the last handle does not.
#[test]
fn the_handles_of_a_stream_belong_to_two_goroutines() {
    everywhere(|| {
        let (near, far) = tcp();
        let (mut input, mut output) = (near.clone(), near);
        let writes = gmp::go(move || {
            gmp::block_on(output.write_all(&bytes(LONG))).unwrap();
            let output = output.into_inner().unwrap_err();
            gmp::block_on(async { (&mut &output).close().await }).unwrap();
        });
        let echoes = gmp::go(move || gmp::block_on(copy(&far, &mut &far)).unwrap());
        let mut heard = Vec::new();
        gmp::block_on(input.read_to_end(&mut heard)).unwrap();
        assert!(heard == bytes(LONG));
        writes.join().unwrap();
        assert_eq!(echoes.join().unwrap(), LONG as u64);
        let _stream: TcpStream = input.into_inner().unwrap();
    });
}

/// A read is dropped after each poll that found nothing. Fails when a byte is lost with such a future.
#[test]
fn a_read_that_is_dropped_in_the_middle_has_taken_nothing() {
    everywhere(|| {
        let (mut near, mut far) = unix();
        let writes = gmp::go(move || {
            for byte in bytes(2_000) {
                gmp::block_on(far.write_all(&[byte])).unwrap();
                gmp::yield_now();
            }
        });
        let (mut heard, mut dropped) = (Vec::new(), 0);
        gmp::block_on(async {
            loop {
                let mut buf = [0; 3];
                let mut polled = false;
                // Ready at its second poll.
                let gives_up = poll_fn(|cx| match std::mem::replace(&mut polled, true) {
                    true => Poll::Ready(()),
                    false => {
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    }
                });
                match select(near.read(&mut buf), pin!(gives_up)).await {
                    Either::Left((got, _)) => match got.unwrap() {
                        0 => break,
                        got => heard.extend_from_slice(&buf[..got]),
                    },
                    Either::Right(((), _)) => dropped += 1,
                }
            }
        });
        assert!(heard == bytes(2_000));
        assert!(dropped > 0);
        writes.join().unwrap();
    });
}

/// Writes that find no room are dropped, before the peer reads and while it does. Fails when a dropped future has sent a byte,
/// or by a hang when the task is no longer told of room.
#[test]
fn a_write_that_is_dropped_in_the_middle_has_written_nothing() {
    // More bytes than the kernel accepts for a peer that does not read.
    const MORE: usize = 8 << 20;
    fn writes<S: PollStream>((mut near, mut far): (GmpIo<S>, GmpIo<S>)) {
        let (sent, mut at) = (bytes(MORE), 0);
        while let Some(wrote) = near.write(&sent[at..]).now_or_never() {
            at += wrote.unwrap();
            assert!(at < MORE, "there is too much room");
        }
        let reads = gmp::go(move || {
            let mut heard = Vec::new();
            gmp::block_on(far.read_to_end(&mut heard)).unwrap();
            heard
        });
        while at < MORE {
            if let Some(wrote) = near.write(&sent[at..]).now_or_never() {
                at += wrote.unwrap();
            }
            at += gmp::block_on(near.write(&sent[at..])).unwrap();
        }
        gmp::block_on(near.close()).unwrap();
        assert!(reads.join().unwrap() == sent);
    }
    everywhere(|| {
        writes(tcp());
        writes(unix());
    });
}

/// Fails by a hang when the poller wakes the task that is gone.
#[test]
fn a_task_elsewhere_takes_over() {
    everywhere(|| {
        let (mut near, mut far) = tcp();
        assert!(gmp::block_on(async { near.read(&mut [0]).now_or_never() }).is_none());
        let reads = std::thread::spawn(move || {
            let mut text = String::new();
            elsewhere(near.read_to_string(&mut text)).unwrap();
            text
        });
        gmp::block_on(far.write_all(b"over there")).unwrap();
        gmp::block_on(far.close()).unwrap();
        assert_eq!(gmp::blocking(|| reads.join().unwrap()), "over there");
    });
}

/// Fails when the pieces of a vectored call are taken one by one, out of order, or only the first is taken.
#[test]
fn vectored_calls_take_all_pieces() {
    everywhere(|| {
        let (mut near, mut far) = unix();
        let pieces = [IoSlice::new(b"one "), IoSlice::new(b""), IoSlice::new(b"two")];
        assert_eq!(gmp::block_on(near.write_vectored(&pieces)).unwrap(), 7);
        let (mut one, mut two) = ([0; 2], [0; 10]);
        let mut rooms = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        assert_eq!(gmp::block_on(far.read_vectored(&mut rooms)).unwrap(), 7);
        assert_eq!((&one, &two[..5]), (b"on", &b"e two"[..]));
    });
}
