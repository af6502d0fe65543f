//! The futures of `broadcast` and `watch`: dropped at each of the points at which they wait, and many at once.

use super::{Wakes, parks, poll};
use crate::share;
use common::crew::{each, everyone, join_all, on_thread};
use common::random::Random;
use common::watched;
use gmp::block_on;
use gmp::chan::broadcast::{self, RecvError, TryRecvError};
use gmp::chan::{self, watch};
use gmp::context::ContextError;
use gmp::time::timeout_async;
use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

type Boxed<F> = Pin<Box<F>>;

/// A future that waits, and has been polled once.
fn waits<F: Future>(future: F, wakes: &Arc<Wakes>) -> Boxed<F> {
    let mut future = Box::pin(future);
    assert!(poll(future.as_mut(), wakes).is_pending(), "there is nothing yet");
    future
}

/// Returns what one poll of a future returns, and drops the future.
fn at_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Fails when a message is lost with the future, or comes twice; when a task is woken after the drop, or not woken before.
#[test]
fn a_broadcast_receive_that_is_dropped_has_seen_nothing() {
    let wakes = Wakes::new();
    let (sender, mut receiver) = broadcast::channel(2);
    // Never polled, and waiting.
    drop(receiver.recv_async());
    drop(waits(receiver.recv_async(), &wakes));
    sender.send(1).unwrap();
    assert_eq!((wakes.take(), Arc::strong_count(&wakes)), (0, 1));
    drop(receiver.recv_async());
    assert_eq!(at_once(receiver.recv_async()), Poll::Ready(Ok(1)));
    // Told of a message.
    let receive = waits(receiver.recv_async(), &wakes);
    sender.send(2).unwrap();
    assert_eq!(wakes.take(), 1);
    drop(receive);
    assert_eq!((receiver.recv(), receiver.try_recv()), (Ok(2), Err(TryRecvError::Empty)));
    // Told of one, which is gone by now.
    let receive = waits(receiver.recv_async(), &wakes);
    (3..=5).for_each(|n| assert_eq!(sender.send(n), Ok(1)));
    assert_eq!(wakes.take(), 1);
    drop(receive);
    assert_eq!(at_once(receiver.recv_async()), Poll::Ready(Err(RecvError::Lagged(1))));
    assert_eq!((receiver.recv(), receiver.recv()), (Ok(4), Ok(5)));
    // Ended, and polled again after that.
    let mut receive = waits(receiver.recv_async(), &wakes);
    sender.send(6).unwrap();
    assert_eq!(poll(receive.as_mut(), &wakes), Poll::Ready(Ok(6)));
    assert!(poll(receive.as_mut(), &wakes).is_pending());
    sender.send(7).unwrap();
    assert_eq!(poll(receive.as_mut(), &wakes), Poll::Ready(Ok(7)));
    drop(receive);
    assert_eq!((receiver.try_recv(), wakes.take()), (Err(TryRecvError::Empty), 2));
    // Told of the end.
    let receive = waits(receiver.recv_async(), &wakes);
    drop(sender);
    assert_eq!(wakes.take(), 1);
    drop(receive);
    assert_eq!(block_on(receiver.recv_async()), Err(RecvError::Closed));
    assert_eq!(Arc::strong_count(&wakes), 1);
}

/// A message whose clone waits until the messages may be cloned.
struct Slow {
    number: u32,
    begun: chan::Sender<()>,
    ends: chan::Receiver<()>,
}

impl Clone for Slow {
    fn clone(&self) -> Self {
        self.begun.send(()).unwrap();
        assert!(self.ends.recv().is_err());
        Slow { number: self.number, begun: self.begun.clone(), ends: self.ends.clone() }
    }
}

/// Another receiver is cloning the message. Fails when a poll blocks; when a task is not woken when its turn comes; or when a
/// message is lost with the future whose turn it was.
#[test]
fn a_broadcast_receive_awaits_its_turn() {
    for dropped in [None, Some(false), Some(true)] {
        let wakes = Wakes::new();
        let (sender, mut receiver) = broadcast::channel(2);
        let mut other = receiver.clone();
        let ((begun, begins), (end, ends)) = (chan::unbounded(), chan::bounded(0));
        assert!(sender.send(Slow { number: 7, begun, ends }).is_ok());
        let theirs = on_thread(move || other.recv().map(|message| message.number));
        begins.recv().unwrap();
        let mut receive = waits(receiver.recv_async(), &wakes);
        if dropped == Some(false) {
            drop(receive);
            drop(end);
            assert_eq!(theirs.join(), Ok(7));
            assert_eq!(wakes.take(), 0);
        } else {
            drop(end);
            assert_eq!(theirs.join(), Ok(7));
            assert_eq!(wakes.take(), 1);
            if dropped.is_none() {
                let received = poll(receive.as_mut(), &wakes);
                assert!(matches!(received, Poll::Ready(Ok(Slow { number: 7, .. }))));
            }
            drop(receive);
        }
        let left = receiver.try_recv().map(|message| message.number);
        assert_eq!(left, if dropped.is_some() { Ok(7) } else { Err(TryRecvError::Empty) });
        assert!(sender.is_empty());
    }
}

thread_local! {
    /// The number of clones that are still to panic.
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

struct Panics(u32);

impl Clone for Panics {
    fn clone(&self) -> Self {
        if let Some(left) = PANICS.get().checked_sub(1) {
            PANICS.set(left);
            resume_unwind(Box::new("clone"));
        }
        Panics(self.0)
    }
}

/// Fails when a message is lost with the panic, or can't be cloned after it.
#[test]
fn a_broadcast_message_whose_clone_panics_is_received_again() {
    let (sender, mut receiver) = broadcast::channel(2);
    assert!(sender.send(Panics(7)).is_ok());
    PANICS.set(1);
    let mut receive = Box::pin(receiver.recv_async());
    let panics = catch_unwind(AssertUnwindSafe(|| poll(receive.as_mut(), &Wakes::new()).is_ready()));
    assert!(panics.is_err());
    assert!(matches!(poll(receive.as_mut(), &Wakes::new()), Poll::Ready(Ok(Panics(7)))));
    drop(receive);
    assert!(receiver.is_empty() && sender.is_empty());
}

/// Fails when a change is lost with the future, or is told twice; when a task is woken after the drop, or not woken before.
#[test]
fn a_watch_that_is_dropped_has_seen_nothing() {
    let wakes = Wakes::new();
    let (sender, mut receiver) = watch::channel(0);
    drop(receiver.changed_async());
    drop(waits(receiver.changed_async(), &wakes));
    sender.send(1).unwrap();
    assert_eq!((wakes.take(), Arc::strong_count(&wakes)), (0, 1));
    drop(receiver.changed_async());
    assert_eq!(at_once(receiver.changed_async()), Poll::Ready(Ok(())));
    // Told of a change.
    let changed = waits(receiver.changed_async(), &wakes);
    (2..=3).for_each(|n| sender.send(n).unwrap());
    assert_eq!(wakes.take(), 1);
    drop(changed);
    assert_eq!(receiver.has_changed(), Ok(true));
    // Ended, and polled again after that.
    let mut changed = Box::pin(receiver.changed_async());
    assert_eq!(poll(changed.as_mut(), &wakes), Poll::Ready(Ok(())));
    assert!(poll(changed.as_mut(), &wakes).is_pending());
    sender.send(4).unwrap();
    assert_eq!((wakes.take(), poll(changed.as_mut(), &wakes)), (1, Poll::Ready(Ok(()))));
    drop(changed);
    assert_eq!(receiver.has_changed(), Ok(false));
    // Told of the end.
    let changed = waits(receiver.changed_async(), &wakes);
    drop(sender);
    assert_eq!(wakes.take(), 1);
    drop(changed);
    assert_eq!(block_on(receiver.changed_async()), Err(watch::RecvError));
    assert_eq!(Arc::strong_count(&wakes), 1);
}

/// Fails when a value that the dropped future has not read counts as seen; or by a hang of a sender behind its read.
#[test]
fn a_wait_for_a_value_is_dropped_where_it_waits() {
    let wakes = Wakes::new();
    let (sender, mut receiver) = watch::channel(0);
    let mut asked = Vec::new();
    drop(receiver.wait_for_async(|_| unreachable!("it was never polled")));
    // While it waits for a change: the value that it has asked about is seen.
    drop(waits(
        receiver.wait_for_async(|n| {
            asked.push(*n);
            false
        }),
        &wakes,
    ));
    sender.send(1).unwrap();
    assert_eq!((wakes.take(), receiver.has_changed()), (0, Ok(true)));
    // Told of another one, and not polled since.
    let wait = waits(
        receiver.wait_for_async(|n| {
            asked.push(*n);
            false
        }),
        &wakes,
    );
    sender.send(2).unwrap();
    assert_eq!(wakes.take(), 1);
    drop(wait);
    assert_eq!((receiver.has_changed(), asked), (Ok(true), vec![0, 1]));
    // A sender holds the value: the future is dropped as it waits behind the sender, or when its turn has come.
    for polled in [false, true] {
        let ((inside, is_inside), (end, ends)) = (chan::bounded::<()>(0), chan::bounded::<()>(0));
        let sends = sender.clone();
        let writes = on_thread(move || {
            sends.send_modify(|n| {
                inside.send(()).unwrap();
                assert!(ends.recv().is_err());
                *n = 9;
            });
        });
        is_inside.recv().unwrap();
        let mut wait = waits(receiver.wait_for_async(|n| *n == 9), &wakes);
        drop(end);
        writes.join();
        assert_eq!(wakes.take(), 1, "the value may be read");
        if polled {
            let Poll::Ready(value) = poll(wait.as_mut(), &wakes) else { panic!("the value is right") };
            assert_eq!(value.as_deref(), Ok(&9));
            drop(value);
        }
        drop(wait);
        assert_eq!(receiver.has_changed(), Ok(!polled));
        sender.send(3).unwrap();
    }
    drop(sender);
    assert_eq!(block_on(receiver.wait_for_async(|n| *n == 4)).map(|n| *n), Err(watch::RecvError));
    assert_eq!(block_on(receiver.wait_for_async(|n| *n == 3)).map(|n| *n), Ok(3));
}

/// Fails when a sender's future misses the end, or is told of it while a receiver is left.
#[test]
fn the_senders_futures_are_told_when_the_last_receiver_goes() {
    let wakes = Wakes::new();
    let (sender, receiver) = broadcast::channel::<u32>(1);
    drop(sender.closed_async());
    drop(waits(sender.closed_async(), &wakes));
    let (gone, mut closed) = (waits(sender.closed_async(), &wakes), waits(sender.closed_async(), &wakes));
    let other = receiver.clone();
    drop(receiver);
    assert_eq!(wakes.take(), 0);
    drop(other);
    assert_eq!(wakes.take(), 2);
    drop(gone);
    // A receiver subscribes before the poll: the future checks again.
    let another = sender.subscribe();
    assert!(poll(closed.as_mut(), &wakes).is_pending());
    drop(another);
    assert_eq!((wakes.take(), poll(closed.as_mut(), &wakes)), (1, Poll::Ready(())));

    let (sender, receiver) = watch::channel(0);
    drop(waits(sender.closed_async(), &wakes));
    let mut closed = waits(sender.closed_async(), &wakes);
    drop(receiver);
    assert_eq!((wakes.take(), poll(closed.as_mut(), &wakes)), (1, Poll::Ready(())));
    let _receiver = sender.subscribe();
    let mut closed = waits(sender.closed_async(), &wakes);
    sender.close();
    assert_eq!((wakes.take(), poll(closed.as_mut(), &wakes)), (1, Poll::Ready(())));
}

/// Fails when a receiver is not told because one before it has gone.
#[test]
fn a_receiver_behind_a_dropped_one_is_told() {
    let [first, second] = [(); 2].map(|()| Wakes::new());
    let (sender, mut one) = broadcast::channel(1);
    let mut two = one.clone();
    let (goes, mut stays) = (waits(one.recv_async(), &first), waits(two.recv_async(), &second));
    sender.send(1).unwrap();
    drop(goes);
    assert_eq!((first.take(), second.take()), (1, 1));
    assert_eq!(poll(stays.as_mut(), &second), Poll::Ready(Ok(1)));
    let (sender, mut one) = watch::channel(0);
    let mut two = one.clone();
    let (goes, mut stays) = (waits(one.changed_async(), &first), waits(two.changed_async(), &second));
    sender.send(1).unwrap();
    drop(goes);
    assert_eq!((first.take(), second.take()), (1, 1));
    assert_eq!(poll(stays.as_mut(), &second), Poll::Ready(Ok(())));
}

/// Fails when a bell is silent although a dropped future has left a message behind.
#[test]
fn a_bell_rings_for_what_a_dropped_future_has_left() {
    let wakes = Wakes::new();
    let (sender, mut receiver) = broadcast::channel(4);
    let bell = receiver.bell();
    let receive = waits(receiver.recv_async(), &wakes);
    sender.send(1).unwrap();
    assert!(bell.try_recv().is_ok());
    drop(receive);
    assert!(bell.try_recv().is_ok());
    assert_eq!(at_once(receiver.recv_async()), Poll::Ready(Ok(1)));
    drop(waits(receiver.recv_async(), &wakes));
    assert!(bell.try_recv().is_err(), "there is nothing");

    let (sender, mut receiver) = watch::channel(0);
    let bell = receiver.bell();
    let changed = waits(receiver.changed_async(), &wakes);
    sender.send(1).unwrap();
    assert!(bell.try_recv().is_ok());
    drop(changed);
    assert!(bell.try_recv().is_ok());
    assert_eq!(at_once(receiver.changed_async()), Poll::Ready(Ok(())));
    drop(waits(receiver.wait_for_async(|_| false), &wakes));
    assert!(bell.try_recv().is_err(), "there is nothing");
}

/// Fails when a limit does not end the wait, or when a message that comes after the limit is lost.
#[test]
fn a_limit_ends_the_waits_of_futures() {
    const SOON: Duration = Duration::from_millis(1);
    everyone(|crew| {
        crew.run(|| {
            let late = Err(ContextError::DeadlineExceeded);
            let (sender, mut receiver) = broadcast::channel(4);
            assert_eq!(block_on(timeout_async(SOON, receiver.recv_async())).map(drop), late);
            assert_eq!(block_on(timeout_async(SOON, sender.closed_async())), late);
            sender.send(1).unwrap();
            assert_eq!(block_on(timeout_async(SOON, receiver.recv_async())), Ok(Ok(1)));
            let (sender, mut receiver) = watch::channel(0);
            assert_eq!(block_on(timeout_async(SOON, receiver.changed_async())).map(drop), late);
            assert_eq!(block_on(timeout_async(SOON, receiver.wait_for_async(|n| *n == 1))).map(drop), late);
            assert_eq!(block_on(timeout_async(SOON, sender.closed_async())), late);
            sender.send(1).unwrap();
            assert_eq!(block_on(timeout_async(SOON, receiver.changed_async())), Ok(Ok(())));
        });
    });
}

/// Polls a few times, some of them beside the wake, then drops the future. Returns `None` if it was not ready by then.
async fn gives_up<F: Future>(future: F, random: &mut Random) -> Option<F::Output> {
    let mut polls = random.below(4);
    let mut future = pin!(future);
    let ended = poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if polls == 0 => Poll::Ready(None),
        Poll::Pending => {
            polls -= 1;
            if polls.is_multiple_of(2) {
                cx.waker().wake_by_ref();
            }
            Poll::Pending
        }
    })
    .await;
    if ended.is_none() {
        random.pause(20);
    }
    ended
}

/// Receivers of all kinds at once. Fails when a message is missing, comes twice, or comes before an earlier one; or by a hang.
#[test]
fn receivers_of_all_kinds_see_each_message() {
    everyone(|crew| {
        let messages = share(20_000, 6);
        let (sender, receiver) = broadcast::channel(messages);
        let mut foreign = receiver.clone();
        let readers = each(crew, 4, move |me| {
            let (mut receiver, mut random) = (receiver.clone(), Random::new(me));
            for message in 0..=messages {
                let received = loop {
                    match random.below(3) {
                        0 => break receiver.recv(),
                        1 => break block_on(receiver.recv_async()),
                        _ => {
                            if let Some(ended) = block_on(gives_up(receiver.recv_async(), &mut random)) {
                                break ended;
                            }
                        }
                    }
                };
                assert_eq!(received, if message < messages { Ok(message) } else { Err(RecvError::Closed) });
            }
        });
        let outside = on_thread(move || {
            for message in 0..messages {
                assert_eq!(parks(foreign.recv_async()), Ok(message));
            }
            assert_eq!(parks(foreign.recv_async()), Err(RecvError::Closed));
        });
        let closes = sender.clone();
        let writer = crew.go(move || {
            for message in 0..messages {
                sender.send(message).unwrap();
                if message.is_multiple_of(16) {
                    gmp::yield_now();
                }
            }
            sender.close();
        });
        block_on(closes.closed_async());
        writer.join();
        join_all(readers);
        outside.join();
    });
}

/// Receivers of all kinds at once. Fails by a hang when a change is not told; or when the last value, or the order of the
/// values, is wrong.
#[test]
fn watches_of_all_kinds_see_the_last_value() {
    everyone(|crew| {
        let sends = share(20_000, 5);
        let (sender, receiver) = watch::channel(0);
        let mut foreign = receiver.clone();
        let readers = each(crew, 3, move |me| {
            let (mut receiver, mut random, mut last) = (receiver.clone(), Random::new(me), 0);
            loop {
                let changed = match random.below(3) {
                    0 => receiver.changed(),
                    1 => block_on(receiver.changed_async()),
                    _ => match block_on(gives_up(receiver.changed_async(), &mut random)) {
                        Some(changed) => changed,
                        None => continue,
                    },
                };
                let value = *receiver.borrow_and_update();
                assert!(value >= last, "it is older than the one before");
                last = value;
                if changed.is_err() {
                    return last;
                }
            }
        });
        let outside = on_thread(move || {
            (1..=8).for_each(|n| {
                assert!(parks(foreign.wait_for_async(|value| *value >= n * sends / 8)).is_ok())
            });
        });
        let writer = crew.go(move || {
            for n in 1..=sends {
                sender.send(n).unwrap();
                if n.is_multiple_of(16) {
                    gmp::yield_now();
                }
            }
        });
        writer.join();
        assert_eq!(join_all(readers), [sends; 3]);
        outside.join();
    });
}

/// Futures as fields: fails to compile when a type can't be named, or can't be sent.
#[test]
fn the_futures_have_names() {
    struct Waits<'a> {
        receives: Boxed<broadcast::futures::Recv<'a, u32>>,
        changed: Boxed<watch::futures::Changed<'a, u32>>,
        ends: (Boxed<broadcast::futures::Closed<'a, u32>>, Boxed<watch::futures::Closed<'a, u32>>),
        others: (Boxed<chan::futures::Recv<'a, u32>>, Boxed<chan::futures::Send<'a, u32>>),
    }
    fn is_sent<T: Send + Sync>(it: T) -> T {
        it
    }
    watched(1, || {
        let (news, mut reader) = broadcast::channel(1);
        let (level, mut seen) = watch::channel(0);
        let (sender, receiver) = chan::bounded(0);
        let mut waits = is_sent(Waits {
            receives: Box::pin(reader.recv_async()),
            changed: Box::pin(seen.changed_async()),
            ends: (Box::pin(news.closed_async()), Box::pin(level.closed_async())),
            others: (Box::pin(receiver.recv_async()), Box::pin(sender.send_async(1))),
        });
        let Waits { receives, changed, ends, others } = &waits;
        assert_eq!(
            format!("{receives:?} {changed:?} {ends:?} {others:?}"),
            "Recv { .. } Changed { .. } (Closed { .. }, Closed { .. }) (Recv { .. }, Send { .. })"
        );
        news.send(2).unwrap();
        level.send(3).unwrap();
        block_on(async {
            assert!(at_once(&mut waits.others.0).is_pending());
            assert_eq!((waits.others.1.await, waits.others.0.await), (Ok(()), Ok(1)));
            assert_eq!((waits.receives.await, waits.changed.await), (Ok(2), Ok(())));
            drop(waits.ends);
        });
        let (level, mut seen) = watch::channel(0);
        level.send(4).unwrap();
        let is_four: fn(&u32) -> bool = |n| *n == 4;
        let wait: watch::futures::WaitFor<'_, _, fn(&u32) -> bool> = is_sent(seen.wait_for_async(is_four));
        assert_eq!(block_on(wait).map(|n| *n), Ok(4));
    });
}
