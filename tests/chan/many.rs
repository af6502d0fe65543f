//! What an operation costs beside many receivers.

use common::cpu::thread_time;
use gmp::chan::broadcast;
use std::time::Duration;

fn cost(f: impl FnOnce()) -> Duration {
    let before = thread_time();
    f();
    thread_time() - before
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
    assert!(last < 5 * first + Duration::from_millis(20), "{last:?} of the last, {first:?} of the first");
}
