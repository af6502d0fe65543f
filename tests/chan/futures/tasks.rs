//! Many at once: foreign threads, goroutines and selects, with futures that are dropped anywhere.

use super::{Wakes, parks, poll};
use crate::{every_kind, share};
use common::crew::{each, everyone, join_all, on_thread};
use common::random::{Random, rounds};
use common::watched;
use gmp::chan::{Receiver, Sender, bounded, never};
use gmp::{block_on, select};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::{Duration, Instant};

/// Receives, after dropping a few receives at a random number of polls, some of them beside the wake.
async fn receives_in_the_end<T>(receiver: &Receiver<T>, random: &mut Random) -> Option<T> {
    loop {
        let mut polls = random.below(4);
        let mut receive = pin!(receiver.recv_async());
        let got = poll_fn(|cx| match receive.as_mut().poll(cx) {
            Poll::Ready(got) => Poll::Ready(Some(got)),
            Poll::Pending if polls == 0 => Poll::Ready(None),
            Poll::Pending => {
                polls -= 1;
                if polls.is_multiple_of(2) {
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }
        });
        // The drop comes at the end of this scope, perhaps during a delivery.
        match got.await {
            Some(got) => return got.ok(),
            None => random.pause(20),
        }
    }
}

/// Sends a message, or drops the send on the way: then the message may or may not have been sent.
async fn sends_or_drops(sender: &Sender<usize>, message: usize, random: &mut Random) -> bool {
    let mut polls = random.below(3);
    let mut send = pin!(sender.send_async(message));
    poll_fn(|cx| match send.as_mut().poll(cx) {
        Poll::Ready(sent) => {
            sent.unwrap();
            Poll::Ready(true)
        }
        Poll::Pending if polls == 0 => Poll::Ready(false),
        Poll::Pending => {
            polls -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Eight threads of another executor, four on each side. Fails by a hang, or by a count.
#[test]
fn foreign_threads_hand_a_hundred_thousand_messages_on() {
    const SIDE: usize = 4;
    let messages = rounds(100_000) / SIDE;
    watched(1, || {
        for (s, r) in [bounded(0), bounded(1), bounded(16)] {
            let receivers: Vec<_> = (0..SIDE)
                .map(|_| {
                    let r = r.clone();
                    on_thread(move || {
                        parks(async {
                            let (mut sum, mut last) = (0, [0; SIDE]);
                            while let Ok((sender, message)) = r.recv_async().await {
                                assert!(message > last[sender], "{message} after {}", last[sender]);
                                last[sender] = message;
                                sum += message;
                            }
                            sum
                        })
                    })
                })
                .collect();
            let senders: Vec<_> = (0..SIDE)
                .map(|me| {
                    let s = s.clone();
                    on_thread(move || {
                        parks(async {
                            for message in 1..=messages {
                                s.send_async((me, message)).await.unwrap();
                            }
                        });
                    })
                })
                .collect();
            drop(s);
            join_all(senders);
            assert_eq!(join_all(receivers).iter().sum::<usize>(), SIDE * messages * (messages + 1) / 2);
        }
    });
}

/// All kinds at once. Fails when a message is lost, comes twice, or overtakes an earlier one of its sender; or by a hang.
#[test]
fn futures_that_are_dropped_anywhere_lose_nothing_among_others() {
    const SENDERS: usize = 4;
    const RECEIVERS: usize = 4;
    everyone(|crew| {
        for (s, r) in every_kind() {
            let messages = share(40_000, 5 * SENDERS);
            let seen: Arc<Vec<AtomicUsize>> =
                Arc::new((0..SENDERS * messages).map(|_| AtomicUsize::new(0)).collect());
            let senders = each(crew, SENDERS, move |me| {
                let mut random = Random::new(me);
                let mut unknown = Vec::new();
                for number in 0..messages {
                    let message = me * messages + number;
                    match (me + number) % 4 {
                        0 => s.send(message).unwrap(),
                        1 => block_on(s.send_async(message)).unwrap(),
                        2 => select! {
                            send(s, message) -> sent => sent.unwrap(),
                            recv(never::<()>()) -> _ => unreachable!(),
                        },
                        _ => {
                            if !block_on(sends_or_drops(&s, message, &mut random)) {
                                unknown.push(message);
                            }
                        }
                    }
                    random.pause(20);
                }
                unknown
            });
            let counts = Arc::clone(&seen);
            let receivers = each(crew, RECEIVERS, move |me| {
                let (mut random, mut last) = (Random::new(10 + me), [None; SENDERS]);
                loop {
                    let got = match random.below(4) {
                        0 => r.recv().ok(),
                        1 => block_on(r.recv_async()).ok(),
                        2 => select! {
                            recv(r) -> got => got.ok(),
                            recv(never::<()>()) -> _ => unreachable!(),
                        },
                        _ => block_on(receives_in_the_end(&r, &mut random)),
                    };
                    let Some(message) = got else { break };
                    counts[message].fetch_add(1, SeqCst);
                    let sender = message / messages;
                    assert!(last[sender] < Some(message), "{message} after {:?}", last[sender]);
                    last[sender] = Some(message);
                    random.pause(20);
                }
            });
            let mut unknown = join_all(senders).concat();
            unknown.sort_unstable();
            join_all(receivers);
            for (message, seen) in seen.iter().enumerate() {
                let seen = seen.load(SeqCst);
                assert!(
                    seen == 1 || seen == 0 && unknown.binary_search(&message).is_ok(),
                    "{message}: {seen}"
                );
            }
        }
    });
}

/// A slow task beside fast receivers that block. Fails when the task gets no message, or hardly any.
#[test]
fn a_slow_task_gets_its_share_beside_receivers_that_block() {
    const FAST: usize = 2;
    everyone(|crew| {
        for (s, r) in [bounded(0), bounded(4)] {
            let theirs = r.clone();
            let fast = each(crew, FAST, move |_| theirs.iter().count());
            let sender = crew.go(move || {
                // The send fails when the slow receiver has had enough.
                let mut sent = 0_usize;
                while s.send(sent).is_ok() {
                    sent += 1;
                }
                sent
            });
            let slow = on_thread(move || {
                let wakes = Wakes::new();
                let (mut got, start) = (0, Instant::now());
                while got < 20 && start.elapsed() < Duration::from_secs(30) {
                    let mut receive = pin!(r.recv_async());
                    while poll(receive.as_mut(), &wakes).is_pending() {
                        // Polls late each time.
                        std::thread::sleep(Duration::from_micros(200));
                    }
                    got += 1;
                }
                r.close();
                got
            });
            assert_eq!(slow.join(), 20);
            sender.join();
            join_all(fast);
        }
    });
}
