//! Tasks that send each other messages.

use peer_common::shapes::{Hop, MS, Pick, work};
use peer_common::sum_below;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// So many members with room for so many messages each, of which so many are under way.
pub async fn graph(members: u64, room: usize, messages: u64, hops: u64) {
    let (boxes, mails): (Vec<_>, Vec<_>) = (0..members).map(|_| mpsc::channel::<Hop>(room)).unzip();
    let boxes: Arc<[mpsc::Sender<Hop>]> = boxes.into();
    let (done, mut ends) = mpsc::channel(messages as usize);
    let member = |mut mail: mpsc::Receiver<Hop>| {
        let (boxes, done) = (Arc::clone(&boxes), done.clone());
        tokio::spawn(async move {
            let mut count = 0_u64;
            while let Some(mut hop) = mail.recv().await {
                if hop.left == 0 {
                    break;
                }
                count += 1;
                hop.left -= 1;
                if hop.left == 0 {
                    done.send(()).await.unwrap();
                } else {
                    assert!(boxes[hop.pick.below(members) as usize].send(hop).await.is_ok());
                }
            }
            count
        })
    };
    let all: Vec<_> = mails.into_iter().map(member).collect();
    let each = (hops / messages).max(1);
    for message in 0..messages {
        let mut pick = Pick::of(message);
        assert!(boxes[pick.below(members) as usize].send(Hop { pick, left: each }).await.is_ok());
    }
    for _ in 0..messages {
        ends.recv().await.unwrap();
    }
    for mailbox in boxes.iter() {
        assert!(mailbox.send(Hop::STOP).await.is_ok());
    }
    let mut count = 0;
    for member in all {
        count += member.await.unwrap();
    }
    assert_eq!(count, each * messages);
}

pub async fn owner(n: u64) {
    const CALLERS: u64 = 16;
    let (to_owner, mut calls) = mpsc::channel::<(u64, oneshot::Sender<u64>)>(64);
    let owner = tokio::spawn(async move {
        let mut sum = 0;
        while let Some((number, answer)) = calls.recv().await {
            sum += number;
            answer.send(sum).unwrap();
        }
        sum
    });
    super::in_each(CALLERS, |_| {
        let to_owner = to_owner.clone();
        async move {
            let mut last = 0;
            for number in 0..n / CALLERS {
                let (answer, answered) = oneshot::channel();
                to_owner.send((number, answer)).await.unwrap();
                let sum = answered.await.unwrap();
                assert!(sum >= last);
                last = sum;
            }
        }
    })
    .await;
    drop(to_owner);
    assert_eq!(owner.await.unwrap(), CALLERS * sum_below(n / CALLERS));
}

pub const FAST: u64 = 28;
const SLOW: u64 = 4;

struct Message {
    number: u64,
    _rest: [u64; 7],
}

pub async fn pub_sub(n: u64) {
    let (fast, from_fast): (Vec<_>, Vec<_>) = (0..FAST).map(|_| mpsc::channel::<Arc<Message>>(64)).unzip();
    let (slow, from_slow): (Vec<_>, Vec<_>) = (0..SLOW).map(|_| mpsc::channel::<Arc<Message>>(64)).unzip();
    let take = |mut messages: mpsc::Receiver<Arc<Message>>| {
        tokio::spawn(async move {
            let mut sum = 0;
            while let Some(message) = messages.recv().await {
                sum += message.number;
            }
            sum
        })
    };
    let take_slowly = |mut messages: mpsc::Receiver<Arc<Message>>| {
        tokio::spawn(async move {
            let mut got = 0;
            while messages.recv().await.is_some() {
                got += 1;
                while messages.try_recv().is_ok() {
                    got += 1;
                }
                tokio::time::sleep(MS).await;
            }
            got
        })
    };
    let fast_ones: Vec<_> = from_fast.into_iter().map(take).collect();
    let slow_ones: Vec<_> = from_slow.into_iter().map(take_slowly).collect();
    let mut lost = 0;
    for number in 0..n {
        let message = Arc::new(Message { number, _rest: [number; 7] });
        for member in &fast {
            assert!(member.send(Arc::clone(&message)).await.is_ok());
        }
        lost += slow.iter().filter(|member| member.try_send(Arc::clone(&message)).is_err()).count() as u64;
    }
    drop((fast, slow));
    for member in fast_ones {
        assert_eq!(member.await.unwrap(), sum_below(n));
    }
    let mut got = 0;
    for member in slow_ones {
        got += member.await.unwrap();
    }
    assert_eq!(got + lost, SLOW * n);
}

pub async fn pipeline(n: u64) {
    let stage = |steps, mut input: mpsc::Receiver<u64>, room: mpsc::Sender<u64>| {
        tokio::spawn(async move {
            while let Some(item) = input.recv().await {
                work(steps, item);
                room.send(item).await.unwrap();
            }
        });
    };
    let ((source, first), (to_second, second)) = (mpsc::channel(16), mpsc::channel(16));
    let ((to_four, four), (to_last, last), (to_sink, mut sink)) =
        (async_channel::bounded(16), mpsc::channel(16), mpsc::channel(16));
    stage(20, first, to_second);
    let mut input: mpsc::Receiver<u64> = second;
    tokio::spawn(async move {
        while let Some(item) = input.recv().await {
            work(100, item);
            to_four.send(item).await.unwrap();
        }
    });
    for _ in 0..4 {
        let (four, to_last) = (four.clone(), to_last.clone());
        tokio::spawn(async move {
            while let Ok(item) = four.recv().await {
                work(400, item);
                to_last.send(item).await.unwrap();
            }
        });
    }
    drop(to_last);
    stage(50, last, to_sink);
    tokio::spawn(async move {
        for item in 0..n {
            source.send(item).await.unwrap();
        }
    });
    let mut sum = 0;
    while let Some(item) = sink.recv().await {
        sum += item;
    }
    assert_eq!(sum, sum_below(n));
}

pub async fn large_values(n: u64) {
    let (sender, mut receiver) = mpsc::channel::<[u64; 128]>(16);
    let sending = tokio::spawn(async move {
        for i in 0..n {
            assert!(sender.send([i; 128]).await.is_ok());
        }
    });
    let mut sum = 0;
    while let Some(value) = receiver.recv().await {
        sum += value[127];
    }
    assert_eq!(sum, sum_below(n));
    sending.await.unwrap();
}

pub async fn worker_pool(n: u64) {
    let (to_workers, jobs) = async_channel::bounded(64);
    let (result, mut results) = mpsc::channel(64);
    for _ in 0..8 {
        let (jobs, result) = (jobs.clone(), result.clone());
        tokio::spawn(async move {
            while let Ok(job) = jobs.recv().await {
                work(100, job);
                result.send(job).await.unwrap();
            }
        });
    }
    drop((jobs, result));
    tokio::spawn(async move {
        for job in 0..n {
            to_workers.send(job).await.unwrap();
        }
    });
    let mut sum = 0;
    while let Some(job) = results.recv().await {
        sum += job;
    }
    assert_eq!(sum, sum_below(n));
}
