//! Channels under load: a million messages over each kind of channel, and each is received once.

use crate::support::{everywhere, share};
use gmp::Runtime;
use gmp::chan::{Receiver, Sender, bounded, unbounded};
use gmp::select;
use std::thread;

type Kind = fn() -> (Sender<usize>, Receiver<usize>);
const KINDS: [Kind; 4] = [|| bounded(0), || bounded(1), || bounded(128), unbounded];

#[track_caller]
fn of_each_kind(property: impl Fn(&Runtime, Kind)) {
    everywhere(|rt| KINDS.into_iter().for_each(|kind| property(rt, kind)));
}

/// Waits for a member.
type Join<T> = Box<dyn FnOnce() -> T>;

fn go<T: Send + 'static>(rt: &Runtime, on_thread: bool, f: impl FnOnce() -> T + Send + 'static) -> Join<T> {
    if on_thread {
        let handle = thread::spawn(f);
        Box::new(|| handle.join().expect("no panic"))
    } else {
        let handle = rt.go(f);
        Box::new(|| handle.join().expect("no panic"))
    }
}

/// Makes the senders send `each` messages each, and the receivers share them. If `mixed`, every second member of each side is a
/// plain thread.
fn load(rt: &Runtime, kind: Kind, [senders, receivers]: [usize; 2], each: usize, mixed: bool) {
    let (s, r) = kind();
    let senders: Vec<_> = (0..senders)
        .map(|me| {
            let s = s.clone();
            go(rt, mixed && me % 2 == 0, move || (0..each).for_each(|n| s.send(me * each + n).unwrap()))
        })
        .collect();
    drop(s);
    let all = senders.len() * each;
    let receivers: Vec<_> = (0..receivers)
        .map(|me| {
            let r = r.clone();
            go(rt, mixed && me % 2 == 1, move || {
                r.iter().fold((0, 0), |(count, sum), n| (count + 1, sum + n))
            })
        })
        .collect();
    senders.into_iter().for_each(|join| join());
    let (count, sum) = receivers
        .into_iter()
        .map(|join| join())
        .fold((0, 0), |(count, sum), (n, more)| (count + n, sum + more));
    assert_eq!((count, sum), (all, all * all.saturating_sub(1) / 2));
}

/// Fails by a hang, or by a sum that is off.
#[test]
fn a_million_messages_from_one_to_one() {
    of_each_kind(|rt, kind| load(rt, kind, [1, 1], share(1_000_000, 1), false));
}

/// Fails by a hang, or by a sum that is off.
#[test]
fn a_million_messages_from_four_to_four() {
    of_each_kind(|rt, kind| load(rt, kind, [4, 4], share(1_000_000, 4), false));
}

/// The same between goroutines and plain threads, which wake each other through the kernel.
#[test]
fn messages_between_goroutines_and_threads() {
    of_each_kind(|rt, kind| {
        load(rt, kind, [1, 1], share(40_000, 1), true);
        load(rt, kind, [4, 4], share(100_000, 4), true);
    });
}

/// Fails by a hang, or when a message is lost between two channels.
#[test]
fn a_million_messages_through_selects() {
    of_each_kind(|rt, kind| {
        let each = share(1_000_000, 4);
        let [(s1, r1), (s2, r2)] = [kind(), kind()];
        // A closed channel would be ready for a receiver whose share is in the other channel.
        let open = (s1.clone(), s2.clone());
        let senders = [(s1.clone(), s2.clone()), (s2, s1)].map(|(a, b)| {
            rt.go(move || {
                for n in 0..2 * each {
                    select! {
                        send(a, n) -> sent => sent.unwrap(),
                        send(b, n) -> sent => sent.unwrap(),
                    }
                }
            })
        });
        let receivers = [(r1.clone(), r2.clone()), (r2, r1)].map(|(a, b)| {
            rt.go(move || {
                let take = |_| select! { recv(a) -> n => n.unwrap(), recv(b) -> n => n.unwrap() };
                (0..2 * each).map(take).sum::<usize>()
            })
        });
        senders.into_iter().for_each(|sender| sender.join().expect("no panic"));
        let sums = receivers.map(|receiver| receiver.join().expect("no panic"));
        drop(open);
        assert_eq!(sums[0] + sums[1], 2 * each * (2 * each).saturating_sub(1));
    });
}
