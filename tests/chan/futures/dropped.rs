//! Every operation is dropped at each of the points at which it may wait: no message is lost, none comes twice, and their order
//! stays.

use super::{Receives, Wakes, offers, poll, waits, withdraws};
use crate::every_kind;
use common::probe::Probe;
use gmp::chan::{PollReceiver, Receiver, Select, Sender, TryRecvError, bounded, unbounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};

fn left(receiver: &Receiver<u32>) -> Vec<u32> {
    receiver.try_iter().collect()
}

/// Fails when a message is lost, or the dropped future still keeps one from others.
#[test]
fn a_receive_that_is_dropped_takes_nothing_with_it() {
    for (s, r) in every_kind() {
        let wakes = Wakes::new();
        // Never polled.
        drop(r.recv_async());
        // Waiting.
        drop(waits(&r, &wakes));
        // Ended, by a message.
        let mut receive = waits(&r, &wakes);
        s.try_send(1).unwrap();
        assert_eq!(poll(receive.as_mut(), &wakes), Poll::Ready(Ok(1)));
        drop(receive);
        // Woken by a message, with more of them behind it.
        let receive = waits(&r, &wakes);
        wakes.take();
        s.try_send(2).unwrap();
        assert_eq!(wakes.take(), 1);
        let more = u32::from(s.try_send(3).is_ok());
        assert_eq!(r.try_recv(), if more == 1 { Ok(2) } else { Err(TryRecvError::Empty) });
        drop(receive);
        assert_eq!(left(&r), [2 + more]);
        // Woken by the end.
        let receive = waits(&r, &wakes);
        s.close();
        assert_eq!(wakes.take(), 1);
        drop(receive);
        assert_eq!(r.try_recv(), Err(TryRecvError::Disconnected));
    }
}

/// Fails when the message that comes back waits behind a later one, or stays where it is.
#[test]
fn what_a_dropped_receive_was_woken_for_goes_to_the_next_receiver() {
    for (s, r) in every_kind() {
        let [first, second, third] = [(); 3].map(|()| Wakes::new());
        let [one, mut two, mut three] = [&first, &second, &third].map(|wakes| waits(&r, wakes));
        s.try_send(1).unwrap();
        assert_eq!([&first, &second, &third].map(|wakes| wakes.take()), [1, 0, 0]);
        drop(one);
        assert_eq!([&second, &third].map(|wakes| wakes.take()), [1, 0]);
        s.try_send(2).unwrap();
        assert_eq!([&second, &third].map(|wakes| wakes.take()), [0, 1]);
        // The future that is polled first gets the first message.
        assert_eq!(poll(three.as_mut(), &third), Poll::Ready(Ok(1)));
        assert_eq!(poll(two.as_mut(), &second), Poll::Ready(Ok(2)));
        assert!(r.is_empty());
    }
}

/// Fails when a receiver is told of the end while a message may still come back, or is never told.
#[test]
fn a_closed_channel_ends_when_the_last_message_was_taken() {
    for taken in [true, false] {
        for (s, r) in every_kind() {
            let [first, second] = [(); 2].map(|()| Wakes::new());
            let mut one = waits(&r, &first);
            let mut two = waits(&r, &second);
            s.try_send(1).unwrap();
            drop(s);
            assert_eq!(r.try_recv(), Err(TryRecvError::Empty));
            assert_eq!(second.take(), 0, "the message may come back");
            if taken {
                assert_eq!(poll(one.as_mut(), &first), Poll::Ready(Ok(1)));
                assert_eq!(second.take(), 1);
                assert!(poll(two.as_mut(), &second).map(|got| got.is_err()).is_ready());
            } else {
                drop(one);
                assert_eq!(second.take(), 1);
                assert_eq!(poll(two.as_mut(), &second), Poll::Ready(Ok(1)));
            }
            assert_eq!(r.try_recv(), Err(TryRecvError::Disconnected));
        }
    }
}

/// Fails when a message is both sent and dropped, or neither; or when it is dropped other than once.
#[test]
fn a_send_that_is_dropped_has_sent_its_message_or_drops_it() {
    for (s, r) in every_kind() {
        let (wakes, drops) = (Wakes::new(), Arc::new(AtomicUsize::new(0)));
        let probe = || Probe(Arc::clone(&drops));
        // Never polled.
        drop(s.send_async(probe()));
        assert_eq!(drops.swap(0, SeqCst), 1);
        let Some(capacity) = s.capacity() else {
            let mut send = Box::pin(s.send_async(probe()));
            assert!(poll(send.as_mut(), &wakes).is_ready());
            drop(send);
            assert_eq!((r.len(), drops.load(SeqCst)), (1, 0));
            continue;
        };
        (0..capacity).for_each(|_| s.try_send(probe()).unwrap());
        // Waiting.
        drop(offers(&s, probe(), &wakes));
        assert_eq!((wakes.take(), drops.swap(0, SeqCst)), (0, 1));
        // Sent, and not polled since.
        let send = offers(&s, probe(), &wakes);
        drop(r.try_recv().unwrap());
        assert_eq!((wakes.take(), drops.swap(0, SeqCst)), (1, 1));
        drop(send);
        assert_eq!((r.len(), drops.load(SeqCst)), (capacity, 0));
        // Ended.
        let mut send = offers(&s, probe(), &wakes);
        drop(r.try_recv().unwrap());
        assert!(poll(send.as_mut(), &wakes).is_ready());
        drop(send);
        assert_eq!((r.len(), drops.swap(0, SeqCst)), (capacity, 1));
        // Refused, and not polled since.
        let send = offers(&s, probe(), &wakes);
        wakes.take();
        r.close();
        assert_eq!((wakes.take(), drops.load(SeqCst)), (1, 0));
        drop(send);
        assert_eq!(drops.swap(0, SeqCst), 1);
        // The error holds the message.
        drop((s, r));
        assert_eq!((drops.load(SeqCst), Arc::strong_count(&drops)), (capacity, 1));
    }
}

/// A select chooses to send to a future that waits.
fn promised<'a>(s: &'a Sender<u32>, select: &mut Select<'a>) -> gmp::chan::SelectedOperation<'a> {
    select.send(s);
    select.try_select().expect("a receive waits")
}

/// Fails when a message is lost with the future, or when a sender is told that its message was not sent although it was.
#[test]
fn a_receive_that_was_promised_a_message_is_dropped() {
    for (s, r) in every_kind() {
        // Before the message is there: on a channel with room it goes into the buffer.
        let wakes = Wakes::new();
        let receive = waits(&r, &wakes);
        let mut select = Select::new();
        let operation = promised(&s, &mut select);
        drop(receive);
        let room = s.capacity() != Some(0);
        assert_eq!(operation.send(&s, 1).is_ok(), room);
        assert_eq!((wakes.take(), left(&r)), (0, if room { vec![1] } else { vec![] }));
        // When it is there.
        let receive = waits(&r, &wakes);
        let mut select = Select::new();
        promised(&s, &mut select).send(&s, 2).unwrap();
        assert_eq!(wakes.take(), 1);
        drop(receive);
        assert_eq!(left(&r), [2]);
        // When it will not come.
        let receive = waits(&r, &wakes);
        assert!(withdraws(&s));
        assert_eq!(wakes.take(), 1);
        drop(receive);
        assert!(s.try_send(3).is_ok() == room);
        assert_eq!(left(&r), if room { vec![3] } else { vec![] });
        // When the channel is closed before it is there.
        let mut receive = waits(&r, &wakes);
        let mut select = Select::new();
        let operation = promised(&s, &mut select);
        s.close();
        assert_eq!(operation.send(&s, 4).unwrap_err().into_inner(), 4);
        assert_eq!(wakes.take(), 1);
        assert!(poll(receive.as_mut(), &wakes).map(|got| got.is_err()).is_ready());
    }
}

/// Fails when a receive sleeps on although there is a message, or loses its place.
#[test]
fn a_receive_whose_promise_was_withdrawn_goes_on_from_its_place() {
    for (s, r) in every_kind() {
        let [first, second] = [(); 2].map(|()| Wakes::new());
        let mut one = waits(&r, &first);
        let mut two = waits(&r, &second);
        assert!(withdraws(&s));
        assert_eq!([first.take(), second.take()], [1, 0]);
        assert!(poll(one.as_mut(), &first).is_pending());
        s.try_send(1).unwrap();
        assert_eq!([first.take(), second.take()], [1, 0]);
        assert_eq!(poll(one.as_mut(), &first), Poll::Ready(Ok(1)));
        s.try_send(2).unwrap();
        assert_eq!(poll(two.as_mut(), &second), Poll::Ready(Ok(2)));
        // While a woken receive is not polled, a message goes into the buffer, or is refused: none is lost with the receive.
        let mut one = waits(&r, &first);
        assert!(withdraws(&s));
        let sent = s.try_send(3).is_ok();
        assert_eq!(sent, s.capacity() != Some(0));
        assert_eq!(poll(one.as_mut(), &first).is_ready(), sent);
    }
}

/// Fails when a message stays where the next receive does not look, or comes after the message of a sender that waits.
#[test]
fn a_message_that_comes_back_without_a_buffer_is_the_next_one() {
    let (s, r) = bounded(0);
    let wakes = Wakes::new();
    let receive = waits(&r, &wakes);
    s.try_send(1).unwrap();
    assert!(r.is_empty(), "it is kept for the future");
    let mut later = offers(&s, 2, &wakes);
    drop(receive);
    assert_eq!((r.len(), r.is_full()), (1, true));
    assert!(s.try_send(3).is_err());
    assert_eq!(left(&r), [1, 2]);
    assert!(poll(later.as_mut(), &wakes).is_ready());
    assert!(r.is_empty());
}

/// Fails when a leaked future leaks more than its own message: another message, or the channel's memory.
#[test]
fn a_future_that_is_leaked_takes_one_message_with_it() {
    let drops = Arc::new(AtomicUsize::new(0));
    let (s, r) = unbounded();
    let receive: Receives<'_, Probe> = waits(&r, &Wakes::new());
    std::mem::forget(receive);
    (0..3).for_each(|_| s.try_send(Probe(Arc::clone(&drops))).unwrap());
    assert_eq!(r.try_iter().count(), 2);
    drop((s, r));
    assert_eq!((drops.load(SeqCst), Arc::strong_count(&drops)), (3, 1));
}

/// Fails when a message stays with the receiver that has stopped.
#[test]
fn a_polled_receiver_that_stops_leaves_its_message() {
    for (s, r) in every_kind() {
        let mut polled = PollReceiver::new(r.clone());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(polled.poll_recv(&mut cx).is_pending());
        s.try_send(1).unwrap();
        assert_eq!(r.try_recv(), Err(TryRecvError::Empty));
        polled.stop();
        assert_eq!(r.try_recv(), Ok(1));
        assert!(polled.poll_recv(&mut cx).is_pending());
        s.try_send(2).unwrap();
        assert_eq!(polled.into_inner().try_recv(), Ok(2));
        let mut polled = PollReceiver::new(r.clone());
        assert!(polled.poll_recv(&mut cx).is_pending());
        s.try_send(3).unwrap();
        drop(polled);
        assert_eq!(r.try_recv(), Ok(3));
    }
}
