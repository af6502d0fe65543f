//! Streams over broadcast and watch channels, on goroutines and under the executor of the futures crates.

use futures_core::{FusedStream, Stream};
use futures_executor::block_on as elsewhere;
use futures_util::StreamExt;
use futures_util::future::{FutureExt, join};
use gmp::chan::{broadcast, watch};
use gmp_futures::{BroadcastStream, Lagged, WatchStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Wake, Waker};
use std::thread;

fn nobody() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Fails when a message is lost, doubled or out of order, or by a hang.
#[test]
fn each_stream_sees_each_message() {
    let (sender, receiver) = broadcast::channel(1000);
    let streams = [BroadcastStream::new(receiver.clone()), BroadcastStream::from(receiver)];
    let sees = streams.map(|stream| thread::spawn(move || elsewhere(stream.collect::<Vec<_>>())));
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    unsafe {
        gmp::run(move || {
            let third = BroadcastStream::new(sender.subscribe());
            let third = gmp::go(move || gmp::block_on(third.collect::<Vec<_>>()));
            for n in 0..1000 {
                sender.send(n).unwrap();
            }
            drop(sender);
            assert_eq!(third.join().unwrap(), Vec::from_iter((0..1000).map(Ok)));
        });
    }
    for all in sees {
        assert_eq!(all.join().unwrap(), Vec::from_iter((0..1000).map(Ok)));
    }
}

/// Fails when the stream does not tell how many messages it has missed, or ends because of that.
#[test]
fn a_stream_that_lags_goes_on() {
    let (sender, receiver) = broadcast::channel(2);
    let mut stream = BroadcastStream::new(receiver);
    assert!(stream.poll_next_unpin(&mut nobody()).is_pending());
    for n in 1..=5 {
        sender.send(n).unwrap();
    }
    drop(sender);
    elsewhere(async {
        let first = stream.next().await;
        assert_eq!(first, Some(Err(Lagged(3))));
        assert_eq!(Lagged(3).to_string(), "messages that the stream has missed: 3");
        assert_eq!((stream.next().await, stream.next().await), (Some(Ok(4)), Some(Ok(5))));
        assert!(!stream.is_terminated());
        assert_eq!((stream.next().await, stream.next().await), (None, None));
        assert!(stream.is_terminated());
    });
}

/// One stream is dropped while it waits and a message is on its way. Fails when the other stream misses the message, or hangs.
#[test]
fn a_stream_that_is_dropped_takes_nothing_with_it() {
    let (sender, receiver) = broadcast::channel(4);
    let (mut stays, mut goes) = (BroadcastStream::new(receiver.clone()), BroadcastStream::new(receiver));
    assert!(goes.next().now_or_never().is_none());
    assert!(stays.next().now_or_never().is_none());
    sender.send("kept").unwrap();
    drop(goes);
    assert_eq!(elsewhere(stays.next()), Some(Ok("kept")));
}

/// Counts the wakes of a task.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A stream is dropped after it was notified of a value that it has not seen: before it looks, or after it has looked while a
/// sender held the value. Fails when the other stream misses the value or hangs, or when a clone or a receiver stays.
#[test]
fn a_watching_stream_that_is_dropped_when_it_was_told_takes_nothing_with_it() {
    for looks in [false, true] {
        let (level, receiver) = watch::channel(Arc::new(0));
        let (mut stays, mut goes) =
            (WatchStream::of_changes(receiver.clone()), WatchStream::of_changes(receiver));
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut cx = Context::from_waker(&waker);
        assert!(goes.poll_next_unpin(&mut cx).is_pending());
        assert!(stays.next().now_or_never().is_none());
        let value = Arc::new(1);
        level.send(Arc::clone(&value)).unwrap();
        assert!(wakes.0.load(SeqCst) > 0, "it was told");
        if looks {
            let changed = level.send_if_modified(|_| goes.poll_next_unpin(&mut cx).is_ready());
            assert!(!changed, "the sender is at the value");
        }
        drop(goes);
        assert_eq!((Arc::strong_count(&value), level.receiver_count()), (2, 1));
        assert_eq!(elsewhere(stays.next()).as_deref(), Some(&1));
        drop(level);
        assert_eq!((elsewhere(stays.next()), stays.is_terminated()), (None, true));
        assert_eq!(Arc::strong_count(&value), 1);
    }
}

/// Fails when a value is seen twice, when the last one is not seen, or by a hang.
#[test]
fn a_watching_stream_ends_with_the_last_value() {
    let (level, receiver) = watch::channel(0);
    let streams = [WatchStream::new(receiver.clone()), WatchStream::of_changes(receiver)];
    let [all, changes] = streams.map(|stream| thread::spawn(move || elsewhere(stream.collect::<Vec<_>>())));
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    unsafe {
        gmp::run(move || {
            let third = WatchStream::from(level.subscribe());
            let third = gmp::go(move || gmp::block_on(third.collect::<Vec<_>>()));
            (1..=1000).for_each(|n| level.send(n).unwrap());
            drop(level);
            let third = third.join().unwrap();
            assert!(third.is_sorted_by(|a, b| a < b) && third.last() == Some(&1000), "{third:?}");
        });
    }
    for seen in [all, changes].map(|seen| seen.join().unwrap()) {
        assert!(seen.is_sorted_by(|a, b| a < b) && seen.last() == Some(&1000), "{seen:?}");
    }
}

/// Fails when the present value is no item of the first stream, or is an item of the second.
#[test]
fn what_a_watching_stream_begins_with() {
    let (level, receiver) = watch::channel("first");
    let (mut all, mut changes) = (WatchStream::new(receiver.clone()), WatchStream::of_changes(receiver));
    assert_eq!(all.next().now_or_never(), Some(Some("first")));
    assert!(all.next().now_or_never().is_none());
    assert!(changes.next().now_or_never().is_none());
    elsewhere(async {
        level.send("second").unwrap();
        assert_eq!(join(all.next(), changes.next()).await, (Some("second"), Some("second")));
        drop(level);
        assert_eq!((all.next().await, all.is_terminated()), (None, true));
        assert_eq!((changes.next().await, changes.is_terminated()), (None, true));
    });
}

/// The first clone of each value panics.
#[derive(Debug)]
struct Fragile(u32, Arc<AtomicBool>);

impl Fragile {
    fn new(value: u32) -> Self {
        Fragile(value, Arc::default())
    }
}

impl Clone for Fragile {
    fn clone(&self) -> Self {
        assert!(self.1.swap(true, SeqCst), "the first clone of {}", self.0);
        Fragile(self.0, Arc::clone(&self.1))
    }
}

/// Returns the next value, after one panic.
fn second_try<S: Stream<Item = T> + Unpin, T>(stream: &mut S) -> Option<T> {
    assert!(
        catch_unwind(AssertUnwindSafe(|| stream.next().now_or_never())).is_err(),
        "no clone has panicked"
    );
    elsewhere(stream.next())
}

/// Fails when a message, or a value, is lost with the panic, or when the panic ends the stream. The stream waits for the second
/// of each.
#[test]
fn a_clone_that_panics_loses_nothing() {
    let (sender, receiver) = broadcast::channel(4);
    let mut stream = BroadcastStream::new(receiver);
    for n in 1..=2 {
        assert!(stream.next().now_or_never().is_none());
        sender.send(Fragile::new(n)).unwrap();
        assert_eq!(second_try(&mut stream).unwrap().unwrap().0, n);
    }
    let (level, receiver) = watch::channel(Fragile::new(1));
    let mut stream = WatchStream::new(receiver);
    assert_eq!(second_try(&mut stream).unwrap().0, 1);
    assert!(stream.next().now_or_never().is_none());
    level.send(Fragile::new(2)).unwrap();
    drop(level);
    assert_eq!(second_try(&mut stream).unwrap().0, 2);
    assert!(elsewhere(stream.next()).is_none());
}

/// A sender holds the value while a stream, which was told of a change, is polled. Fails by a hang when the poll blocks; or
/// when the change is lost.
#[test]
fn a_watching_stream_waits_for_a_sender_without_a_block() {
    let (level, receiver) = watch::channel(0);
    let mut stream = WatchStream::new(receiver);
    let (begins, begun) = gmp::chan::bounded(0);
    let (goes_on, go_on) = gmp::chan::bounded(0);
    let changes = thread::spawn(move || {
        level.send_modify(|value| {
            begins.send(()).unwrap();
            go_on.recv().unwrap();
            *value = 7;
        });
        level
    });
    begun.recv().unwrap();
    assert!(stream.poll_next_unpin(&mut nobody()).is_pending());
    goes_on.send(()).unwrap();
    assert_eq!(elsewhere(stream.next()), Some(7));
    drop(changes.join().unwrap());
    elsewhere(async { while stream.next().await.is_some_and(|value| value == 7) {} });
}

/// A message that tells when it is being cloned, and then waits for a go-ahead.
struct Slow(gmp::chan::Sender<()>, gmp::chan::Receiver<()>, Arc<AtomicBool>);

impl Clone for Slow {
    fn clone(&self) -> Self {
        if self.2.swap(false, SeqCst) {
            self.0.send(()).unwrap();
            self.1.recv().unwrap();
        }
        Slow(self.0.clone(), self.1.clone(), Arc::clone(&self.2))
    }
}

/// Another receiver is cloning a message while a stream is polled. Fails by a hang when the poll blocks; or when the message is
/// lost.
#[test]
fn a_stream_waits_for_another_receivers_clone_without_a_block() {
    let (sender, mut receiver) = broadcast::channel(2);
    let mut stream = BroadcastStream::new(receiver.clone());
    let (begins, begun) = gmp::chan::bounded(0);
    let (goes_on, go_on) = gmp::chan::bounded(0);
    sender.send(Slow(begins, go_on, Arc::new(AtomicBool::new(true)))).map_err(drop).unwrap();
    let clones = thread::spawn(move || receiver.recv().is_ok());
    begun.recv().unwrap();
    for _ in 0..2 {
        assert!(stream.poll_next_unpin(&mut nobody()).is_pending());
    }
    goes_on.send(()).unwrap();
    assert!(elsewhere(stream.next()).is_some_and(|found| found.is_ok()));
    assert!(clones.join().unwrap());
    drop(sender);
    assert!(elsewhere(stream.next()).is_none());
}

/// A task's waker changes while a wait is under way. Fails by a hang when the old waker is woken.
#[test]
fn the_last_waker_is_woken() {
    let (sender, receiver) = broadcast::channel(4);
    let (level, seen) = watch::channel(0);
    let (mut news, mut levels) = (BroadcastStream::new(receiver), WatchStream::of_changes(seen));
    assert!(news.poll_next_unpin(&mut nobody()).is_pending());
    assert!(levels.poll_next_unpin(&mut nobody()).is_pending());
    let both = thread::spawn(move || {
        elsewhere(async {
            let both = join(news.next(), levels.next()).await;
            (both.0.unwrap().unwrap(), both.1.unwrap())
        })
    });
    sender.send(1).unwrap();
    level.send(2).unwrap();
    assert_eq!(both.join().unwrap(), (1, 2));
}

#[test]
fn streams_go_to_other_threads_and_need_no_pin() {
    fn is<T: Send + Unpin>() {}
    is::<BroadcastStream<String>>();
    is::<WatchStream<String>>();
}
