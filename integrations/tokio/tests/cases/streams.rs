//! Streams of gmp as tokio's traits.

use crate::support::{MINUTE, everywhere, many};
use futures_util::{SinkExt, StreamExt};
use gmp::net::{PollStream, TcpListener, TcpStream, UnixStream};
use gmp_tokio::GmpIo;
use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, copy};
use tokio_util::bytes::Bytes;
use tokio_util::codec::{Framed, LengthDelimitedCodec};

/// More bytes than the kernel buffers, so that each end has to wait for the other.
const LONG: usize = 3 << 20;

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

/// Each end writes and reads everything in one task; the half-close of the peer ends the reading.
fn cross<S: PollStream>((mut near, mut far): (GmpIo<S>, GmpIo<S>)) {
    let both = |io: &mut GmpIo<S>| {
        let (mut input, mut output) = io.split();
        gmp::block_on(async {
            let mut heard = Vec::new();
            let writes = async {
                output.write_all(&bytes(LONG)).await.unwrap();
                output.shutdown().await.unwrap();
                // A second shutdown does nothing.
                output.shutdown().await.unwrap();
                assert_eq!(output.write(b"late").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
            };
            let (_, got) = tokio::join!(writes, input.read_to_end(&mut heard));
            assert_eq!(got.unwrap(), LONG);
            assert!(heard == bytes(LONG));
        });
    };
    let other = gmp::go(move || both(&mut far));
    both(&mut near);
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

fn halves<S: PollStream + std::fmt::Debug>((near, far): (GmpIo<S>, GmpIo<S>)) {
    let (mut input, mut output) = near.into_split();
    let writes = gmp::go(move || {
        gmp::block_on(output.write_all(&bytes(LONG))).unwrap();
        // The drop of `output` tells the peer.
    });
    let echoes = gmp::go(move || {
        let (mut input, mut output) = far.into_split();
        let copied = gmp::block_on(copy(&mut input, &mut output)).unwrap();
        // The reading half is dropped first, and closes nothing.
        drop(input);
        gmp::block_on(output.write_all(b"end")).unwrap();
        copied
    });
    let mut heard = Vec::new();
    gmp::block_on(input.read_to_end(&mut heard)).unwrap();
    assert!(heard.strip_suffix(b"end") == Some(&bytes(LONG)[..]));
    writes.join().unwrap();
    assert_eq!(echoes.join().unwrap(), LONG as u64);
}

/// Fails by a hang when the peer never reads the end; or by a lost byte when the drop of a reading half closes the socket.
#[test]
fn the_halves_of_a_stream_belong_to_two_goroutines() {
    everywhere(|| {
        halves(tcp());
        halves(unix());
    });
}

/// Fails if halves of two streams are put together, or if the writing side of a reunited stream was ended.
#[test]
fn halves_are_put_together_again() {
    everywhere(|| {
        let ((near, mut far), (other, _kept)) = (unix(), unix());
        let ((input, output), (strange, forgotten)) = (near.into_split(), other.into_split());
        let error = input.reunite(forgotten).unwrap_err();
        assert!(error.to_string().contains("not of one stream"), "{error}");
        let gmp_tokio::ReuniteError(input, forgotten) = error;
        forgotten.forget();
        drop(strange);
        let mut near = input.reunite(output).unwrap();
        gmp::block_on(near.write_all(b"still open")).unwrap();
        let _stream: UnixStream = near.into_inner();
        let mut said = [0; 10];
        gmp::block_on(far.read_exact(&mut said)).unwrap();
        assert_eq!(&said, b"still open");
    });
}

/// Fails by a hang when the forgotten half ends the stream, or when the stream does not end with the other half.
#[test]
fn a_forgotten_half_leaves_its_side_open() {
    everywhere(|| {
        let (near, mut far) = tcp();
        let (input, output) = near.into_split();
        gmp::block_on(far.write_all(b"x")).unwrap();
        output.forget();
        let mut said = [0];
        assert!(
            pin!(far.read(&mut said)).poll(&mut Context::from_waker(Waker::noop())).is_pending(),
            "the end was written"
        );
        drop(input);
        // Either a reset, as a byte was left unread, or the end.
        assert!(matches!(gmp::block_on(far.read(&mut said)), Ok(0) | Err(_)));
    });
}

/// Reads are dropped at each await point while the peer writes byte by byte. Fails when a byte is lost with such a future.
#[test]
fn a_read_that_is_dropped_in_the_middle_has_taken_nothing() {
    everywhere(|| {
        let (mut near, far) = tcp();
        let (_input, mut output) = far.into_split();
        let writes = gmp::go(move || {
            for byte in bytes(2_000) {
                gmp::block_on(output.write_all(&[byte])).unwrap();
                gmp::yield_now();
            }
        });
        let mut heard = Vec::new();
        gmp::block_on(async {
            let mut dropped = 0;
            loop {
                let mut buf = [0; 3];
                tokio::select! {
                    biased;
                    // Ready at its second poll, so the read is dropped after a poll that found nothing.
                    () = tokio::task::yield_now(), if dropped % 2 == 1 => dropped += 1,
                    got = near.read(&mut buf) => match got.unwrap() {
                        0 => break,
                        got => {
                            heard.extend_from_slice(&buf[..got]);
                            dropped += 1;
                        }
                    },
                }
            }
        });
        assert!(heard == bytes(2_000));
        writes.join().unwrap();
    });
}

/// Writes that find no room are dropped, before the peer reads and while it does. Fails when a dropped future has sent a byte,
/// or by a hang when the task is no longer told of room.
#[test]
fn a_write_that_is_dropped_in_the_middle_has_written_nothing() {
    // More bytes than the kernel accepts for a peer that does not read.
    const MORE: usize = 8 << 20;
    fn once<S: PollStream>(near: &mut GmpIo<S>, bytes: &[u8]) -> Option<usize> {
        match pin!(near.write(bytes)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(wrote) => Some(wrote.unwrap()),
            Poll::Pending => None,
        }
    }
    fn writes<S: PollStream>((mut near, mut far): (GmpIo<S>, GmpIo<S>)) {
        let (sent, mut at) = (bytes(MORE), 0);
        while let Some(wrote) = once(&mut near, &sent[at..]) {
            at += wrote;
            assert!(at < MORE, "there is too much room");
        }
        let reads = gmp::go(move || {
            let mut heard = Vec::new();
            gmp::block_on(far.read_to_end(&mut heard)).unwrap();
            heard
        });
        while at < MORE {
            at += once(&mut near, &sent[at..]).unwrap_or(0);
            at += gmp::block_on(near.write(&sent[at..])).unwrap();
        }
        gmp::block_on(near.shutdown()).unwrap();
        assert!(reads.join().unwrap() == sent);
    }
    everywhere(|| {
        writes(tcp());
        writes(unix());
    });
}

/// Fails by a hang when the waker of a dropped read, whose task is gone, is woken in place of the present task's.
#[test]
fn another_task_takes_the_place_of_a_dropped_read() {
    everywhere(|| {
        let (mut near, mut far) = tcp();
        let mut byte = [0];
        let first = pin!(near.read(&mut byte)).poll(&mut Context::from_waker(Waker::noop()));
        assert!(first.is_pending());
        let waits = gmp::go(move || {
            let mut byte = [0];
            gmp::block_on(near.read_exact(&mut byte)).unwrap();
            (byte[0], near)
        });
        gmp::yield_now();
        gmp::block_on(far.write_all(&[7])).unwrap();
        let (byte, near) = waits.join().unwrap();
        assert_eq!(byte, 7);
        // A task of tokio takes over; it may, as a goroutine has polled the stream before.
        let task = tokio::spawn(async move {
            let mut near = near;
            let mut text = String::new();
            near.read_to_string(&mut text).await.map(|_| text)
        });
        gmp::block_on(far.write_all(b"to the task")).unwrap();
        drop(far);
        assert_eq!(gmp::block_on(task).unwrap().unwrap(), "to the task");
    });
}

/// A codec of tokio-util at both ends, with writes that are vectored or not. Fails by a torn frame.
#[test]
fn frames_of_a_codec_arrive_whole() {
    everywhere(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = gmp::go(move || {
            let serves: Vec<_> = (0..10)
                .map(|_| {
                    let stream = listener.accept().unwrap().0;
                    gmp::go(move || {
                        let framed = Framed::new(GmpIo::new(stream), LengthDelimitedCodec::new());
                        let (sink, frames) = framed.split();
                        gmp::block_on(frames.map(|frame| frame.map(|frame| frame.freeze())).forward(sink))
                    })
                })
                .collect();
            serves.into_iter().for_each(|one| one.join().unwrap().unwrap());
        });
        many(10, move |n| {
            let stream = TcpStream::connect(address).unwrap();
            let mut framed = Framed::new(GmpIo::new(stream), LengthDelimitedCodec::new());
            for round in 0..40 {
                let frame = bytes(round * round * 40 + n);
                gmp::block_on(framed.send(Bytes::from(frame.clone()))).unwrap();
                let back = gmp::block_on(framed.next()).unwrap().unwrap();
                assert!(back == frame, "{n}, {round}");
            }
        });
        server.join().unwrap();
    });
}

/// Fails if the pieces of a vectored write are sent one by one, out of order, or only the first is sent.
#[test]
fn a_vectored_write_takes_all_pieces() {
    everywhere(|| {
        let (near, mut far) = unix();
        let mut near = pin!(near);
        assert!(near.is_write_vectored());
        let pieces = [IoSlice::new(b"one "), IoSlice::new(b""), IoSlice::new(b"two")];
        let sent = gmp::block_on(poll_fn(|cx| near.as_mut().poll_write_vectored(cx, &pieces))).unwrap();
        assert_eq!(sent, 7);
        let mut text = [0; 7];
        gmp::block_on(far.read_exact(&mut text)).unwrap();
        assert_eq!(&text, b"one two");
    });
}

/// Fails if a read overwrites the filled part of a buffer, or if a read into a buffer without room waits.
#[test]
fn a_read_fills_what_is_free() {
    everywhere(|| {
        let (near, mut far) = tcp();
        let mut near = pin!(near);
        let mut room = [std::mem::MaybeUninit::uninit(); 6];
        let mut buf = ReadBuf::uninit(&mut room);
        buf.put_slice(b"ab");
        gmp::block_on(far.write_all(b"cdefgh")).unwrap();
        let mut read = |buf: &mut ReadBuf<'_>| gmp::block_on(poll_fn(|cx| near.as_mut().poll_read(cx, buf)));
        while buf.remaining() > 0 {
            read(&mut buf).unwrap();
        }
        assert_eq!(buf.filled(), b"abcdef");
        read(&mut buf).unwrap();
        assert_eq!(buf.filled(), b"abcdef");
        let mut rest = [0; 8];
        let mut buf = ReadBuf::new(&mut rest);
        read(&mut buf).unwrap();
        assert_eq!((buf.filled(), buf.initialized().len()), (&b"gh"[..], 8));
    });
}

/// A stream always has bytes. Fails by a hang when it keeps the reactor's only thread, so that the second task never runs.
#[test]
fn a_stream_takes_its_part_of_the_budget() {
    everywhere(|| {
        let (mut near, _far) = unix();
        // The poller of the goroutine's runtime wakes the task from here on.
        assert!(pin!(near.read(&mut [0])).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let reactor = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let rounds = gmp::blocking(move || {
            reactor.block_on(async move {
                let (told, mut heard) = tokio::sync::oneshot::channel();
                let other = tokio::spawn(async move { told.send(()).unwrap() });
                let reads = tokio::spawn(async move {
                    let mut rounds = 0;
                    while heard.try_recv().is_err() {
                        // The write of no bytes is ready each time.
                        let nothing = near.write(&[]).await.unwrap();
                        assert_eq!(nothing, 0);
                        rounds += 1;
                    }
                    rounds
                });
                // The reader may get its first turn before the other task.
                let rounds = reads.await.unwrap();
                other.await.unwrap();
                rounds
            })
        });
        assert!(rounds < 1_000_000, "{rounds}");
    });
}

/// Fails if a connection that the peer has reset can't be ended in order.
#[test]
fn the_end_of_a_broken_connection_is_no_error() {
    everywhere(|| {
        let (mut near, mut far) = tcp();
        gmp::block_on(near.write_all(b"unread")).unwrap();
        gmp::block_on(far.write_all(b"unread")).unwrap();
        let mut byte = [0];
        gmp::block_on(far.read_exact(&mut byte)).unwrap();
        // The far end closes with unread bytes, which causes a reset.
        drop(far);
        let start = std::time::Instant::now();
        let mut rest = Vec::new();
        // The near end reads the bytes, and then the reset or the end.
        let _error = gmp::block_on(near.read_to_end(&mut rest));
        while gmp::block_on(near.write(b"more")).is_ok() {
            assert!(start.elapsed() < MINUTE);
        }
        gmp::block_on(near.shutdown()).unwrap();
    });
}

/// Fails if the read returns an error whose text is of no help, or waits for ever.
#[test]
fn a_stream_that_no_poller_watches_says_so() {
    everywhere(|| {
        let (mut near, _far) = tcp();
        let refused = gmp_tokio::run(async move { near.read(&mut [0]).await }).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert!(refused.to_string().contains("poll it on a goroutine first"), "{refused}");
    });
}

/// The types can be stored and moved like any stream.
#[test]
fn the_types_are_what_a_stream_is() {
    fn is<T: AsyncWrite + Send + Sync + Unpin + 'static>(_: &T) {}
    let (near, _far) = unix();
    is(&near);
    let (input, output) = near.into_split();
    is(&output);
    let mut input = input;
    let polled =
        Pin::new(&mut input).poll_read(&mut Context::from_waker(Waker::noop()), &mut ReadBuf::new(&mut []));
    assert!(matches!(polled, Poll::Ready(Ok(()))));
}
