//! How long a wait lasts when nothing happens.

use gmp_netpoll::{Events, Key, Poller, Timeout, WaitCall, Woken};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

fn lasted(poller: &Poller, timeout: Timeout) -> Duration {
    let mut events = Events::with_capacity(1);
    let start = Instant::now();
    assert_eq!(poller.wait(&mut events, timeout).expect("a wait"), Woken::No);
    let lasted = start.elapsed();
    assert!(events.is_empty());
    lasted
}

fn pollers() -> [Poller; 3] {
    [WaitCall::EpollPwait2, WaitCall::Ppoll, WaitCall::EpollPwait]
        .map(|call| Poller::with_wait_call(call).expect("a poller"))
}

/// Fails when a wait is rounded down, to a coarser unit or to the clock's tick.
#[test]
fn a_wait_is_never_early() {
    for poller in pollers() {
        for micros in [1, 10, 99, 100, 999, 1_001, 1_500, 9_999] {
            let dur = Duration::from_micros(micros);
            for _ in 0..10 {
                let lasted = lasted(&poller, Timeout::After(dur));
                assert!(lasted >= dur, "{:?}: {dur:?} lasted {lasted:?}", poller.wait_call());
            }
        }
        let long = Duration::new(1, 1);
        assert!(lasted(&poller, Timeout::After(long)) >= long, "seconds count, too");
    }
}

/// Fails when waits are rounded up to milliseconds: then none of the waits is shorter. Other load hardly disturbs the shortest
/// of many waits.
#[test]
fn a_wait_is_not_rounded_up_to_milliseconds() {
    for poller in pollers().into_iter().filter(|poller| poller.wait_call() != WaitCall::EpollPwait) {
        let shortest = (0..100).map(|_| lasted(&poller, Timeout::After(Duration::from_micros(20)))).min();
        assert!(shortest < Some(Duration::from_micros(900)), "{:?}: {shortest:?}", poller.wait_call());
    }
}

/// Fails by a hang.
#[test]
fn a_look_does_not_wait() {
    for poller in pollers() {
        lasted(&poller, Timeout::Zero);
        lasted(&poller, Timeout::After(Duration::ZERO));
    }
}

/// Fails when a wait repeats the report of the wait before.
#[test]
fn a_wait_for_nothing_empties_the_buffer() {
    for poller in pollers() {
        let (near, _far) = UnixStream::pair().expect("a pair");
        poller.add(near.as_fd(), Key { index: 0, generation: 0 }).expect("added");
        let mut events = Events::with_capacity(1);
        assert_eq!(poller.wait(&mut events, Timeout::Zero).expect("a look"), Woken::No);
        assert!(!events.is_empty(), "writable at once");
        let millisecond = Timeout::After(Duration::from_millis(1));
        assert_eq!(poller.wait(&mut events, millisecond).expect("a wait"), Woken::No);
        assert!(events.is_empty(), "{:?}: {events:?}", poller.wait_call());
    }
}
