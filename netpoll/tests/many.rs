//! A thousand descriptors in one poller. This test runs alone in its process: it needs most of the usual 1,024 descriptors.

use gmp_netpoll::{Events, Key, Poller, Readiness, Timeout, Woken};
use std::collections::HashMap;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

const PAIRS: u32 = 480;

/// Returns all reports that are pending, fetched through a buffer that is much smaller.
fn drain(poller: &Poller) -> HashMap<Key, Readiness> {
    let mut events = Events::with_capacity(64);
    let mut all = HashMap::new();
    loop {
        assert_eq!(poller.wait(&mut events, Timeout::Zero).expect("a look"), Woken::No);
        if events.is_empty() {
            return all;
        }
        assert!(events.iter().len() <= 64);
        for event in events.iter() {
            assert_eq!(all.insert(event.key, event.readiness), None, "reported twice: {event:?}");
        }
    }
}

/// Fails when an event is lost because the buffer is full, is reported twice, or under another key.
#[test]
fn each_of_many_is_reported_once_under_its_own_key() {
    let poller = Poller::new().expect("a poller");
    let mut pairs: Vec<_> = (0..PAIRS).map(|_| UnixStream::pair().expect("a pair")).collect();
    let near_key = |index| Key { index, generation: index ^ 0xffff };
    let far_key = |index| Key { index: index + PAIRS, generation: 0 };
    for (index, (near, far)) in (0..).zip(&pairs) {
        poller.add(near.as_fd(), near_key(index)).expect("added");
        poller.add(far.as_fd(), far_key(index)).expect("added");
    }
    let first = drain(&poller);
    assert_eq!(first.len(), 2 * PAIRS as usize);
    assert!(first.values().all(|readiness| *readiness == Readiness::WRITABLE));

    let third = |index: &u32| index.is_multiple_of(3);
    for index in (0..PAIRS).filter(third) {
        pairs[index as usize].1.write_all(b"x").expect("written");
    }
    let both = Readiness::READABLE | Readiness::WRITABLE;
    let expected: HashMap<_, _> = (0..PAIRS).filter(third).map(|index| (near_key(index), both)).collect();
    assert_eq!(drain(&poller), expected);

    for (near, far) in &pairs {
        poller.remove(near.as_fd()).and_then(|()| poller.remove(far.as_fd())).expect("removed");
    }
    pairs.iter_mut().for_each(|(_, far)| far.write_all(b"y").expect("written"));
    assert_eq!(drain(&poller), HashMap::new());
}
