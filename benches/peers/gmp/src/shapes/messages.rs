//! Goroutines that send each other messages.

use gmp::chan::{Receiver, Sender, bounded};
use gmp::{go, time};
use peer_common::shapes::{Hop, MS, Pick, work};
use peer_common::sum_below;
use std::sync::Arc;

/// So many members with room for so many messages each, of which so many are under way.
pub fn graph(members: u64, room: usize, messages: u64, hops: u64) {
    let (boxes, mails): (Vec<_>, Vec<_>) = (0..members).map(|_| bounded::<Hop>(room)).unzip();
    let boxes: Arc<[Sender<Hop>]> = boxes.into();
    let (done, ends) = bounded(messages as usize);
    let member = |mail: Receiver<Hop>| {
        let (boxes, done) = (Arc::clone(&boxes), done.clone());
        go(move || {
            let mut count = 0_u64;
            for mut hop in &mail {
                if hop.left == 0 {
                    break;
                }
                count += 1;
                hop.left -= 1;
                if hop.left == 0 {
                    done.send(()).unwrap();
                } else {
                    boxes[hop.pick.below(members) as usize].send(hop).unwrap();
                }
            }
            count
        })
    };
    let all: Vec<_> = mails.into_iter().map(member).collect();
    let each = (hops / messages).max(1);
    for message in 0..messages {
        let mut pick = Pick::of(message);
        boxes[pick.below(members) as usize].send(Hop { pick, left: each }).unwrap();
    }
    ends.iter().take(messages as usize).for_each(drop);
    boxes.iter().for_each(|mailbox| mailbox.send(Hop::STOP).unwrap());
    let count: u64 = all.into_iter().map(|member| member.join().unwrap()).sum();
    assert_eq!(count, each * messages);
}

pub fn owner(n: u64) {
    const CALLERS: u64 = 16;
    let (to_owner, calls) = bounded::<(u64, Sender<u64>)>(64);
    let owner = go(move || {
        let mut sum = 0;
        for (number, answer) in &calls {
            sum += number;
            answer.send(sum).unwrap();
        }
        sum
    });
    let call = |_| {
        let to_owner = to_owner.clone();
        go(move || {
            let (answer, answers) = bounded(1);
            let mut last = 0;
            for number in 0..n / CALLERS {
                to_owner.send((number, answer.clone())).unwrap();
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

struct Message {
    number: u64,
    _rest: [u64; 7],
}

pub fn pub_sub(n: u64) {
    let (fast, from_fast): (Vec<_>, Vec<_>) = (0..FAST).map(|_| bounded::<Arc<Message>>(64)).unzip();
    let (slow, from_slow): (Vec<_>, Vec<_>) = (0..SLOW).map(|_| bounded::<Arc<Message>>(64)).unzip();
    let take = |messages: Receiver<Arc<Message>>| {
        go(move || messages.iter().map(|message| message.number).sum::<u64>())
    };
    let take_slowly = |messages: Receiver<Arc<Message>>| {
        go(move || {
            let mut got = 0;
            while messages.recv().is_ok() {
                got += 1 + messages.try_iter().count() as u64;
                time::sleep(MS);
            }
            got
        })
    };
    let fast_ones: Vec<_> = from_fast.into_iter().map(take).collect();
    let slow_ones: Vec<_> = from_slow.into_iter().map(take_slowly).collect();
    let mut lost = 0;
    for number in 0..n {
        let message = Arc::new(Message { number, _rest: [number; 7] });
        fast.iter().for_each(|member| assert!(member.send(Arc::clone(&message)).is_ok()));
        lost += slow.iter().filter(|member| member.try_send(Arc::clone(&message)).is_err()).count() as u64;
    }
    drop((fast, slow));
    assert!(fast_ones.into_iter().all(|member| member.join().unwrap() == sum_below(n)));
    let got: u64 = slow_ones.into_iter().map(|member| member.join().unwrap()).sum();
    assert_eq!(got + lost, SLOW * n);
}

pub fn pipeline(n: u64) {
    let (source, mut last) = bounded(16);
    for (steps, goroutines) in [(20, 1), (100, 1), (400, 4), (50, 1)] {
        let (out, next) = bounded(16);
        for _ in 0..goroutines {
            let (input, out) = (last.clone(), out.clone());
            go(move || {
                for item in &input {
                    work(steps, item);
                    out.send(item).unwrap();
                }
            });
        }
        last = next;
    }
    go(move || (0..n).for_each(|item| source.send(item).unwrap()));
    assert_eq!(last.iter().sum::<u64>(), sum_below(n));
}

pub fn large_values(n: u64) {
    let (sender, receiver) = bounded::<[u64; 128]>(16);
    let sending = go(move || (0..n).for_each(|i| sender.send([i; 128]).unwrap()));
    assert_eq!(receiver.iter().map(|value| value[127]).sum::<u64>(), sum_below(n));
    sending.join().unwrap();
}

pub fn worker_pool(n: u64) {
    let ((to_workers, jobs), (result, results)) = (bounded(64), bounded(64));
    for _ in 0..8 {
        let (jobs, result) = (jobs.clone(), result.clone());
        go(move || {
            for job in &jobs {
                work(100, job);
                result.send(job).unwrap();
            }
        });
    }
    drop((jobs, result));
    go(move || (0..n).for_each(|job| to_workers.send(job).unwrap()));
    assert_eq!(results.iter().sum::<u64>(), sum_below(n));
}
