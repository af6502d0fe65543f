//! What an operation costs beside many receivers.

use common::cpu::cost;
use gmp::chan::{Receiver, broadcast, unbounded};
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

/// Returns the futures of `count` receives, all of which wait.
fn waiting(receiver: &Receiver<usize>, count: usize) -> Vec<Pin<Box<impl Future>>> {
    let mut futures: Vec<_> = (0..count).map(|_| Box::pin(receiver.recv_async())).collect();
    for future in &mut futures {
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    futures
}

/// Fails if a message that a dropped future gives back has all waiting receivers looked at.
#[test]
fn a_message_that_comes_back_costs_the_same_beside_many_receivers() {
    const WOKEN: usize = 2_000;
    let of_drops = |behind: usize| {
        let (sender, receiver) = unbounded();
        let woken = waiting(&receiver, WOKEN);
        let _others = waiting(&receiver, behind);
        (0..WOKEN).for_each(|message| sender.send(message).unwrap());
        cost(|| drop(woken))
    };
    let (alone, beside) = (of_drops(0), of_drops(20_000));
    assert!(beside < 20 * alone + Duration::from_millis(20), "{beside:?} beside others, {alone:?} alone");
}

/// Fails if a receiver's bell is looked for among the bells of all receivers.
#[test]
fn a_bell_costs_the_same_beside_many_bells() {
    const FEW: usize = 500;
    let sender = broadcast::Sender::new(2);
    let mut receivers: Vec<_> = (0..40 * FEW).map(|_| sender.subscribe()).collect();
    let bells: Vec<_> = receivers.iter_mut().map(broadcast::Receiver::bell).collect();
    // After the first of two messages each receiver rings its bell.
    (0..2).for_each(|message| assert!(sender.send(message).is_ok()));
    let receives = |receiver: &mut broadcast::Receiver<i32>| assert_eq!(receiver.try_recv(), Ok(0));
    let first = cost(|| receivers[..FEW].iter_mut().for_each(receives));
    let last = cost(|| receivers[39 * FEW..].iter_mut().for_each(receives));
    assert!(bells.iter().all(|bell| bell.len() == 1));
    assert!(last < 5 * first + Duration::from_millis(5), "{last:?} of the last, {first:?} of the first");
}
