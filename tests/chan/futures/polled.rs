//! The halves that a task polls.

use super::{Wakes, parks};
use crate::every_kind;
use gmp::chan::{PollReceiver, PollSender, bounded, never, never_sender};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

/// Fails when a message is lost, or a wait never ends.
#[test]
fn a_polled_sender_feeds_a_polled_receiver() {
    const MESSAGES: u32 = 1000;
    for (s, r) in every_kind() {
        let sends = thread::spawn(move || {
            let (mut s, mut next) = (PollSender::new(s), 0);
            parks(poll_fn(|cx| {
                // One task sends all messages; each poll goes on where the last one left off.
                while next < MESSAGES {
                    match s.poll_ready(cx) {
                        Poll::Ready(ready) => ready.unwrap(),
                        Poll::Pending => return Poll::Pending,
                    }
                    s.start_send(next).unwrap();
                    next += 1;
                }
                s.poll_ready(cx)
            }))
            .unwrap();
        });
        let mut r = PollReceiver::from(r);
        for message in 0..MESSAGES {
            assert_eq!(parks(poll_fn(|cx| r.poll_recv(cx))), Ok(message));
        }
        assert!(parks(poll_fn(|cx| r.poll_recv(cx))).is_err());
        sends.join().unwrap();
    }
}

/// Fails when a message is sent although it was taken back, or when a message is lost.
#[test]
fn a_message_on_its_way_is_taken_back_or_was_sent() {
    let (s, r) = bounded(1);
    let mut s = PollSender::new(s);
    let wakes = Wakes::new();
    let waker = Waker::from(Arc::clone(&wakes));
    let mut cx = Context::from_waker(&waker);
    for n in 1..=2 {
        assert_eq!(s.poll_ready(&mut cx), Poll::Ready(Ok(())));
        s.start_send(n).unwrap();
    }
    assert_eq!((s.poll_ready(&mut cx), r.len()), (Poll::Pending, 1));
    assert_eq!((s.take_back(), s.take_back()), (Some(2), None));
    s.start_send(3).unwrap();
    assert!(s.poll_ready(&mut cx).is_pending());
    wakes.take();
    assert_eq!((r.recv(), wakes.take(), s.take_back()), (Ok(1), 1, None));
    assert_eq!(r.try_recv(), Ok(3));
    // On its way when the channel is closed.
    s.start_send(4).unwrap();
    s.start_send(5).unwrap();
    r.close();
    assert_eq!(s.poll_ready(&mut cx).map_err(|error| error.into_inner()), Poll::Ready(Err(5)));
    assert_eq!(s.poll_ready(&mut cx), Poll::Ready(Ok(())));
    assert_eq!(s.start_send(6).unwrap_err().into_inner(), 6);
    let (s, on_its_way) = s.into_inner();
    assert_eq!((s.is_closed(), on_its_way), (true, None));
    // Dropped.
    let (s, r) = bounded(0);
    let mut s = PollSender::from(s);
    s.start_send(7).unwrap();
    drop(s);
    assert!(r.recv().is_err());
}

#[test]
#[should_panic(expected = "start_send: a message is on its way; poll_ready comes first")]
fn a_polled_sender_has_room_for_one() {
    let (s, _r) = bounded(0);
    let mut s = PollSender::new(s);
    s.start_send(1).unwrap();
    let _panics = s.start_send(2);
}

#[test]
fn disabled_halves_are_never_ready() {
    let mut cx = Context::from_waker(Waker::noop());
    let (mut s, mut r) = (PollSender::new(never_sender::<u32>()), PollReceiver::new(never::<u32>()));
    assert!(s.poll_ready(&mut cx).is_pending() && r.poll_recv(&mut cx).is_pending());
}
