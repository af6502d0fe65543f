//! Coroutines that send each other messages. Its channels have no bound: senders never wait.

use crate::go;
use may::coroutine;
use may::sync::{mpmc, mpsc};
use peer_common::shapes::{Hop, MS, Pick, work};
use peer_common::sum_below;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// So many members, between which so many messages are under way.
pub fn graph(members: u64, messages: u64, hops: u64) {
    let (boxes, mails): (Vec<_>, Vec<_>) = (0..members).map(|_| mpsc::channel::<Hop>()).unzip();
    let boxes: Arc<[mpsc::Sender<Hop>]> = boxes.into();
    let (done, ends) = mpsc::channel();
    let member = |mail: mpsc::Receiver<Hop>| {
        let (boxes, done) = (Arc::clone(&boxes), done.clone());
        go(move || {
            let mut count = 0_u64;
            for mut hop in mail.iter() {
                if hop.left == 0 {
                    break;
                }
                count += 1;
                hop.left -= 1;
                if hop.left == 0 {
                    done.send(()).unwrap();
                } else {
                    assert!(boxes[hop.pick.below(members) as usize].send(hop).is_ok());
                }
            }
            count
        })
    };
    let all: Vec<_> = mails.into_iter().map(member).collect();
    let each = (hops / messages).max(1);
    for message in 0..messages {
        let mut pick = Pick::of(message);
        assert!(boxes[pick.below(members) as usize].send(Hop { pick, left: each }).is_ok());
    }
    ends.iter().take(messages as usize).for_each(drop);
    boxes.iter().for_each(|mailbox| assert!(mailbox.send(Hop::STOP).is_ok()));
    let count: u64 = all.into_iter().map(|member| member.join().unwrap()).sum();
    assert_eq!(count, each * messages);
}

pub fn owner(n: u64) {
    const CALLERS: u64 = 16;
    let (to_owner, calls) = mpsc::channel::<(u64, mpsc::Sender<u64>)>();
    let owner = go(move || {
        let mut sum = 0;
        for (number, answer) in calls.iter() {
            sum += number;
            answer.send(sum).unwrap();
        }
        sum
    });
    let call = |_| {
        let to_owner = to_owner.clone();
        go(move || {
            let (answer, answers) = mpsc::channel();
            let mut last = 0;
            for number in 0..n / CALLERS {
                assert!(to_owner.send((number, answer.clone())).is_ok());
                let sum = answers.recv().unwrap();
                assert!(sum >= last);
                last = sum;
            }
        })
    };
    let callers: Vec<_> = (0..CALLERS).map(call).collect();
    drop(to_owner);
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    assert_eq!(owner.join().unwrap(), CALLERS * sum_below(n / CALLERS));
}

pub const FAST: u64 = 28;
const SLOW: u64 = 4;
const ROOM: usize = 64;

struct Message {
    number: u64,
    _rest: [u64; 7],
}

/// How many a slow one has not taken yet is counted beside its channel.
pub fn pub_sub(n: u64) {
    let (fast, from_fast): (Vec<_>, Vec<_>) = (0..FAST).map(|_| mpsc::channel::<Arc<Message>>()).unzip();
    let (slow, from_slow): (Vec<_>, Vec<_>) = (0..SLOW).map(|_| mpsc::channel::<Arc<Message>>()).unzip();
    let waiting: Arc<[AtomicUsize]> = (0..SLOW).map(|_| AtomicUsize::new(0)).collect();
    let take = |messages: mpsc::Receiver<Arc<Message>>| {
        go(move || messages.iter().map(|message| message.number).sum::<u64>())
    };
    let take_slowly = |(member, messages): (usize, mpsc::Receiver<Arc<Message>>)| {
        let waiting = Arc::clone(&waiting);
        go(move || {
            let mut got = 0;
            while messages.recv().is_ok() {
                let taken = 1 + messages.try_iter().count();
                waiting[member].fetch_sub(taken, Relaxed);
                got += taken as u64;
                coroutine::sleep(MS);
            }
            got
        })
    };
    let fast_ones: Vec<_> = from_fast.into_iter().map(take).collect();
    let slow_ones: Vec<_> = from_slow.into_iter().enumerate().map(take_slowly).collect();
    let mut lost = 0;
    for number in 0..n {
        let message = Arc::new(Message { number, _rest: [number; 7] });
        fast.iter().for_each(|member| assert!(member.send(Arc::clone(&message)).is_ok()));
        for (member, waiting) in slow.iter().zip(&*waiting) {
            if waiting.load(Relaxed) < ROOM {
                waiting.fetch_add(1, Relaxed);
                assert!(member.send(Arc::clone(&message)).is_ok());
            } else {
                lost += 1;
            }
        }
    }
    drop((fast, slow));
    assert!(fast_ones.into_iter().all(|member| member.join().unwrap() == sum_below(n)));
    let got: u64 = slow_ones.into_iter().map(|member| member.join().unwrap()).sum();
    assert_eq!(got + lost, SLOW * n);
}

pub fn pipeline(n: u64) {
    let ((source, first), (to_second, second), (to_four, four)) =
        (mpsc::channel(), mpsc::channel(), mpmc::channel());
    let ((to_last, last), (to_sink, sink)) = (mpsc::channel(), mpsc::channel());
    go(move || {
        for item in first.iter() {
            work(20, item);
            to_second.send(item).unwrap();
        }
    });
    go(move || {
        for item in second.iter() {
            work(100, item);
            to_four.send(item).unwrap();
        }
    });
    for _ in 0..4 {
        let (four, to_last) = (four.clone(), to_last.clone());
        go(move || {
            for item in four.iter() {
                work(400, item);
                to_last.send(item).unwrap();
            }
        });
    }
    drop(to_last);
    go(move || {
        for item in last.iter() {
            work(50, item);
            to_sink.send(item).unwrap();
        }
    });
    go(move || (0..n).for_each(|item| source.send(item).unwrap()));
    assert_eq!(sink.iter().sum::<u64>(), sum_below(n));
}

pub fn large_values(n: u64) {
    let (sender, receiver) = mpsc::channel::<[u64; 128]>();
    let sending = go(move || (0..n).for_each(|i| sender.send([i; 128]).unwrap()));
    assert_eq!(receiver.iter().map(|value| value[127]).sum::<u64>(), sum_below(n));
    sending.join().unwrap();
}

pub fn worker_pool(n: u64) {
    let ((to_workers, jobs), (result, results)) = (mpmc::channel(), mpsc::channel());
    for _ in 0..8 {
        let (jobs, result) = (jobs.clone(), result.clone());
        go(move || {
            for job in jobs.iter() {
                work(100, job);
                result.send(job).unwrap();
            }
        });
    }
    drop((jobs, result));
    go(move || (0..n).for_each(|job| to_workers.send(job).unwrap()));
    assert_eq!(results.iter().sum::<u64>(), sum_below(n));
}
