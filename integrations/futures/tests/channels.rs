//! Streams and sinks over channels, on goroutines and under the executor of the futures crates.

use futures_core::FusedStream;
use futures_executor::block_on as elsewhere;
use futures_util::future::{FutureExt, join};
use futures_util::{SinkExt, StreamExt, pin_mut, stream};
use gmp::chan::{Receiver, Sender, bounded, unbounded};
use gmp_futures::{ReceiverStream, SenderSink};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Waker};
use std::thread;

fn every_kind<T>() -> [(Sender<T>, Receiver<T>); 4] {
    [bounded(0), bounded(1), bounded(64), unbounded()]
}

/// Fails when a message is lost or out of order, or by a hang.
#[test]
fn a_sink_feeds_a_stream_of_the_same_task() {
    for (s, r) in every_kind() {
        let mut sink = SenderSink::new(s);
        let mut stream = ReceiverStream::new(r);
        elsewhere(async {
            let sends = async {
                let mut numbers = stream::iter((0..1000).map(Ok));
                sink.send_all(&mut numbers).await.unwrap();
                sink.close().await.unwrap();
                assert!(sink.sender().is_none());
                assert_eq!(sink.send(7).await.unwrap_err().into_inner(), 7);
            };
            let receives = async {
                for n in 0..1000 {
                    assert_eq!(stream.next().await, Some(n));
                    assert!(!stream.is_terminated());
                }
                assert_eq!((stream.next().await, stream.is_terminated()), (None, true));
            };
            join(sends, receives).await;
        });
    }
}

/// The other executor polls one end, and a goroutine blocks at the other; and the other way round.
#[test]
fn goroutines_that_block_are_at_the_other_end() {
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    unsafe {
        gmp::run(|| {
            for (s, r) in every_kind() {
                let sends = gmp::go(move || (0..1000).for_each(|n| s.send(n).unwrap()));
                let sum = thread::spawn(move || {
                    elsewhere(ReceiverStream::new(r).fold(0, async |sum, n: u64| sum + n))
                });
                sends.join().unwrap();
                assert_eq!(gmp::blocking(|| sum.join().unwrap()), 499_500);
            }
            for (s, r) in every_kind() {
                let sum = gmp::go(move || r.iter().sum::<u64>());
                thread::spawn(move || {
                    elsewhere(stream::iter((0..1000).map(Ok)).forward(SenderSink::from(s))).unwrap();
                });
                assert_eq!(sum.join().unwrap(), 499_500);
            }
        });
    }
}

/// Fails when a message is lost with the stream.
#[test]
fn a_stream_that_is_dropped_or_stopped_leaves_its_message() {
    for (s, r) in every_kind() {
        let mut stream = ReceiverStream::from(r.clone());
        assert_eq!(stream.next().now_or_never(), None);
        s.try_send(1).unwrap();
        assert!(r.try_recv().is_err(), "it is kept for the stream");
        stream.stop();
        assert_eq!(r.try_recv(), Ok(1));
        assert_eq!(stream.next().now_or_never(), None);
        s.try_send(2).unwrap();
        drop(stream);
        let stream = ReceiverStream::from(r);
        assert_eq!(stream.into_inner().try_recv(), Ok(2));
    }
}

/// Fails when a message is sent although its sink was dropped, or when the error does not return the message.
#[test]
fn a_sink_sends_its_message_or_gives_it_back() {
    let (s, r) = bounded(0);
    let mut sink = SenderSink::new(s);
    assert!(sink.feed(1).now_or_never().is_some_and(|fed| fed.is_ok()));
    assert!(sink.flush().now_or_never().is_none());
    assert_eq!(sink.take_back(), Some(1));
    assert!(sink.flush().now_or_never().is_some_and(|flushed| flushed.is_ok()));
    assert!(sink.send(2).now_or_never().is_none(), "it is on its way");
    r.close();
    let flushed = sink.flush();
    pin_mut!(flushed);
    let polled = flushed.poll_unpin(&mut Context::from_waker(Waker::noop()));
    assert_eq!(polled.map_err(|error| error.into_inner()), std::task::Poll::Ready(Err(2)));
}

/// A message, whose drops are counted.
struct Counted(usize, Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, SeqCst);
    }
}

/// A sink that has filled its channel, and has one more message on its way.
fn full(capacity: usize, drops: &Arc<AtomicUsize>) -> (SenderSink<Counted>, Receiver<Counted>) {
    let (s, r) = bounded(capacity);
    let mut sink = SenderSink::new(s);
    for n in 0..=capacity {
        assert!(sink.feed(Counted(n, Arc::clone(drops))).now_or_never().is_some_and(|fed| fed.is_ok()));
    }
    assert!(sink.flush().now_or_never().is_none(), "it is on its way");
    (sink, r)
}

/// Fails when a message is sent although its sink was dropped, or when the message is not dropped with the sink, or dropped
/// twice.
#[test]
fn a_sink_that_is_dropped_drops_the_message_that_waits() {
    for capacity in [0, 1, 3] {
        let drops = Arc::new(AtomicUsize::new(0));
        let (sink, r) = full(capacity, &drops);
        drop(sink);
        assert_eq!(drops.load(SeqCst), 1);
        // The sink has dropped its sender.
        assert!(r.iter().map(|message| message.0).eq(0..capacity));
        assert_eq!(drops.load(SeqCst), capacity + 1);

        // The close has ended the wait, and the sink has not seen that.
        let drops = Arc::new(AtomicUsize::new(0));
        let (sink, r) = full(capacity, &drops);
        r.close();
        drop(sink);
        assert_eq!(drops.load(SeqCst), 1);
        assert!(r.iter().map(|message| message.0).eq(0..capacity));
        assert_eq!(drops.load(SeqCst), capacity + 1);
    }
}

/// A receiver takes the message, and no poll of the sink sees that. Fails when the sink drops the message nevertheless, or when
/// the message is lost.
#[test]
fn a_sink_that_is_dropped_leaves_the_message_that_was_taken() {
    for capacity in [0, 1, 3] {
        let drops = Arc::new(AtomicUsize::new(0));
        let (sink, r) = full(capacity, &drops);
        let first = r.try_recv().unwrap();
        drop(sink);
        assert_eq!((first.0, drops.load(SeqCst)), (0, 0));
        drop(first);
        assert!(r.iter().map(|message| message.0).eq(1..=capacity));
        assert_eq!(drops.load(SeqCst), capacity + 1);
    }
}

/// A thread receives while the sink is dropped. Fails when both drop the message, or neither.
#[test]
fn a_sink_that_is_dropped_beside_a_receiver_has_sent_or_not() {
    for round in 0..300 {
        let drops = Arc::new(AtomicUsize::new(0));
        let (sink, r) = full(0, &drops);
        let receives = thread::spawn(move || r.recv().is_ok_and(|message| message.0 == 0));
        (0..round % 100).for_each(|_| thread::yield_now());
        drop(sink);
        let _received: bool = receives.join().unwrap();
        assert_eq!(drops.load(SeqCst), 1, "round {round}");
    }
}
