//! Values are dropped once: those in the buffer, those that are given back, and those of goroutines that panic or never
//! wake.

use crate::{every_kind, share};
use common::crew::{each, everyone, join_all};
use common::probe::Probe;
use common::random::Random;
use gmp::chan::{TrySendError, bounded, unbounded};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Fails when a value is leaked or dropped twice.
#[test]
fn what_nobody_received_is_dropped_with_the_channel() {
    everyone(|crew| {
        crew.run(|| {
            for sender_first in [true, false] {
                for (s, r) in every_kind() {
                    let drops = Arc::new(AtomicUsize::new(0));
                    let left = s.capacity().unwrap_or(300);
                    (0..left).for_each(|_| s.send(Probe(Arc::clone(&drops))).unwrap());
                    // The slots in use are not the first ones.
                    for _ in 0..left / 2 {
                        drop(r.recv().unwrap());
                        s.send(Probe(Arc::clone(&drops))).unwrap();
                    }
                    assert_eq!(drops.load(SeqCst), left / 2);
                    if sender_first {
                        drop(s);
                        assert_eq!(drops.load(SeqCst), left / 2);
                        drop(r);
                        assert_eq!(drops.load(SeqCst), left / 2 + left);
                    } else {
                        drop(r);
                        drop(s.send(Probe(Arc::clone(&drops))).unwrap_err());
                        drop(s);
                        assert_eq!(drops.load(SeqCst), left / 2 + left + 1);
                    }
                    assert_eq!(Arc::strong_count(&drops), 1);
                }
            }
        });
    });
}

/// Fails by a leak when a send puts its value into a channel that the last receiver is just taking down.
#[test]
fn the_last_receiver_goes_while_values_come() {
    everyone(|crew| {
        for round in 0..share(5000, 5) {
            for (s, r) in every_kind() {
                let drops = Arc::new(AtomicUsize::new(0));
                let theirs = Arc::clone(&drops);
                let sender = crew.go(move || {
                    let mut made = 1;
                    while s.send(Probe(Arc::clone(&theirs))).is_ok() {
                        made += 1;
                    }
                    made
                });
                let mut random = Random::new(round);
                r.iter().take(random.below(4) as usize).for_each(drop);
                random.pause(200);
                drop(r);
                assert_eq!(sender.join(), drops.load(SeqCst));
            }
        }
    });
}

/// Fails if an unwinding drops more than the value and the handles of its own frames.
#[test]
fn a_receiver_that_panics_loses_only_what_it_received() {
    everyone(|crew| {
        for (s, r) in every_kind() {
            let drops = Arc::new(AtomicUsize::new(0));
            let theirs = Arc::clone(&drops);
            let sender = crew.go(move || {
                (0..20).for_each(|_| s.send(Probe(Arc::clone(&theirs))).unwrap());
            });
            let receiver = crew.go(move || {
                let mut left = 20;
                while left > 0 {
                    let unwound = catch_unwind(AssertUnwindSafe(|| {
                        for (count, probe) in r.iter().enumerate() {
                            if count == 2 {
                                resume_unwind(Box::new(()));
                            }
                            drop(probe);
                        }
                    }));
                    left -= if unwound.is_err() { 3 } else { left };
                }
                assert!(r.recv().is_err());
            });
            sender.join();
            receiver.join();
            assert_eq!(drops.load(SeqCst), 20);
        }
    });
}

/// Fails by a hang when the handle of a member that panicked lives on.
#[test]
fn a_panic_drops_the_handles_of_its_frames() {
    everyone(|crew| {
        for (s, r) in every_kind::<u8>() {
            let end = crew.go(move || {
                catch_unwind(AssertUnwindSafe(move || {
                    let _handle = s;
                    resume_unwind(Box::new(()))
                }))
            });
            assert!(r.recv().is_err());
            let _unwound: Result<(), _> = end.join();
        }
    });
}

/// A value that panics as it is dropped.
struct Bomb(Arc<AtomicUsize>);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0.fetch_add(1, SeqCst) == 1 {
            resume_unwind(Box::new(()));
        }
    }
}

/// Fails if a value is dropped twice after another's drop has unwound through the channel, or the process aborts.
#[test]
fn a_value_whose_drop_panics_is_dropped_once() {
    everyone(|crew| {
        crew.run(|| {
            for (s, r) in [bounded(4), unbounded()] {
                let drops = Arc::new(AtomicUsize::new(0));
                (0..4).for_each(|_| assert!(s.send(Bomb(Arc::clone(&drops))).is_ok()));
                let first = catch_unwind(AssertUnwindSafe(|| drop(r)));
                let second = catch_unwind(AssertUnwindSafe(|| drop(s)));
                assert!(first.is_err() || second.is_err());
                assert!((2..=4).contains(&drops.load(SeqCst)));
            }
        });
    });
}

/// Fails by a deadlock when values are dropped under a lock of the channel.
#[test]
fn a_value_may_use_its_channel_as_it_is_dropped() {
    struct Asks(gmp::chan::Sender<Option<Asks>>, Arc<AtomicUsize>);
    impl Drop for Asks {
        fn drop(&mut self) {
            self.1.fetch_add(1, SeqCst);
            assert!(matches!(self.0.try_send(None), Err(TrySendError::Disconnected(None))));
            assert!(!self.0.close());
            self.0.clone().len();
        }
    }
    everyone(|crew| {
        crew.run(|| {
            for (s, r) in [bounded(4), unbounded()] {
                let drops = Arc::new(AtomicUsize::new(0));
                (0..4).for_each(|_| assert!(s.send(Some(Asks(s.clone(), Arc::clone(&drops)))).is_ok()));
                drop(r);
                assert_eq!(drops.load(SeqCst), 4);
            }
        });
    });
}

/// The last senders lie in their own channel, and go while the last receiver does. Fails when a channel is used after it was
/// freed, or is never freed. The first value's drop unwinds, too.
#[test]
fn the_last_sender_may_lie_in_its_channel() {
    struct Holds {
        _sender: gmp::chan::Sender<Holds>,
        _bomb: Numbered,
        _more: gmp::chan::Sender<Holds>,
    }
    everyone(|crew| {
        crew.run(|| {
            for (count, (s, r)) in [(1, bounded(1)), (3, bounded(3)), (100, unbounded())] {
                let drops = Arc::new(AtomicUsize::new(0));
                for number in 0..count {
                    let bomb = Numbered(number, Arc::clone(&drops));
                    assert!(s.send(Holds { _sender: s.clone(), _bomb: bomb, _more: s.clone() }).is_ok());
                }
                drop(s);
                let other = r.clone();
                drop(r);
                assert_eq!(drops.load(SeqCst), 0);
                let unwound = catch_unwind(AssertUnwindSafe(|| drop(other)));
                assert_eq!(unwound.unwrap_err().downcast_ref(), Some(&0_usize));
                assert_eq!((drops.load(SeqCst), Arc::strong_count(&drops)), (count, 1));
            }
        });
    });
}

/// All ends are cloned and dropped at the same time, while values lie in the channel. Fails when a value is dropped twice or
/// never, or a channel is used after it was freed.
#[test]
fn all_ends_go_at_the_same_time() {
    everyone(|crew| {
        for round in 0..share(5000, 5) {
            for (s, r) in every_kind() {
                let drops = Arc::new(AtomicUsize::new(0));
                let left = s.capacity().unwrap_or(3);
                (0..left).for_each(|_| s.send(Probe(Arc::clone(&drops))).unwrap());
                let (more, again) = (s.clone(), r.clone());
                let mut random = Random::new(round);
                let [mut one, mut two] = [Random::new(round + 1), Random::new(round + 2)];
                let others = [
                    crew.go(move || {
                        one.pause(100);
                        drop((more.clone(), more));
                    }),
                    crew.go(move || {
                        two.pause(100);
                        drop((again.clone(), again));
                    }),
                ];
                random.pause(100);
                drop(s);
                random.pause(10);
                drop(r);
                others.into_iter().for_each(|other| other.join());
                assert_eq!((drops.load(SeqCst), Arc::strong_count(&drops)), (left, 1));
            }
        }
    });
}

/// Fails if a value is handed to a goroutine that will never take it.
#[test]
fn the_end_of_a_runtime_takes_its_waiters_out_of_the_queues() {
    common::watched(1, || {
        for procs in common::PROCS {
            let rt = common::runtime(procs);
            let drops = Arc::new(AtomicUsize::new(0));
            let ((s, r), (full, rest)) = (bounded(0), bounded(1));
            full.send(Probe(Arc::clone(&drops))).unwrap();
            let waiters: Vec<_> = (0..4)
                .map(|way| {
                    let (r, full, drops) = (r.clone(), full.clone(), Arc::clone(&drops));
                    rt.go(move || match way % 2 {
                        0 => drop(r.recv()),
                        _ => drop(full.send(Probe(drops))),
                    })
                })
                .collect();
            common::until(|| {
                rt.dump().starts_with("4 goroutines, 0 of them") && !rt.dump().contains("[runnable")
            });
            drop(rt);
            assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap_err().is_shutdown()));
            assert!(s.try_send(1).is_err());
            drop(rest.recv().unwrap());
            assert!(rest.try_recv().is_err());
            assert!(drops.load(SeqCst) <= 3);
        }
    });
}

/// Fails by a wrong count: values without a size are still values.
#[test]
fn values_without_a_size_are_counted_and_dropped() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    #[repr(align(64))]
    struct Nothing;
    impl Drop for Nothing {
        fn drop(&mut self) {
            DROPS.fetch_add(1, SeqCst);
        }
    }
    everyone(|crew| {
        for (s, r) in every_kind() {
            let before = DROPS.load(SeqCst);
            let senders = each(crew, 2, move |_| (0..50).for_each(|_| assert!(s.send(Nothing).is_ok())));
            let received = crew.run(move || r.iter().count());
            join_all(senders);
            assert_eq!((received, DROPS.load(SeqCst) - before), (100, 100));
        }
    });
}

/// Fails if a big value, or one with a strict alignment, arrives damaged.
#[test]
fn big_and_aligned_values_arrive_whole() {
    #[repr(align(256))]
    struct Big([usize; 64]);
    everyone(|crew| {
        for (s, r) in every_kind() {
            let sender = crew.go(move || {
                (0..100).for_each(|round| assert!(s.send(Big(std::array::from_fn(|at| at ^ round))).is_ok()));
            });
            crew.run(move || {
                // By hand: in a debug build each adapter of an iterator copies it several times, on a stack of 64 KiB.
                for round in 0.. {
                    let Ok(big) = r.recv() else { break };
                    assert_eq!((&raw const big).addr() % 256, 0);
                    assert!(big.0.iter().enumerate().all(|(at, &word)| word == at ^ round));
                }
            });
            sender.join();
        }
    });
}

/// A value whose drop counts, and always panics with the value's number.
struct Numbered(usize, Arc<AtomicUsize>);

impl Drop for Numbered {
    fn drop(&mut self) {
        self.1.fetch_add(1, SeqCst);
        resume_unwind(Box::new(self.0));
    }
}

/// Fails by an abort when a second drop panics before the first panic was caught, as in std's own buffer.
#[test]
fn of_several_drops_that_panic_the_first_is_told() {
    everyone(|crew| {
        crew.run(|| {
            for (s, r) in [bounded(3), unbounded()] {
                let drops = Arc::new(AtomicUsize::new(0));
                (0..3).for_each(|number| assert!(s.send(Numbered(number, Arc::clone(&drops))).is_ok()));
                let unwound = catch_unwind(AssertUnwindSafe(|| drop(r)));
                assert_eq!(unwound.unwrap_err().downcast_ref(), Some(&0_usize));
                assert_eq!(drops.load(SeqCst), 3);
                assert!(s.is_closed());
            }
        });
    });
}

/// As above, but a panic drops the receiver, too.
#[test]
fn drops_that_panic_while_a_panic_unwinds_are_swallowed() {
    everyone(|crew| {
        crew.run(|| {
            let (s, r) = bounded(2);
            let drops = Arc::new(AtomicUsize::new(0));
            (0..2).for_each(|number| assert!(s.send(Numbered(number, Arc::clone(&drops))).is_ok()));
            let unwound = catch_unwind(AssertUnwindSafe(move || {
                let _receiver = r;
                resume_unwind(Box::new("the first"))
            }));
            let Err(payload) = unwound.map(|never: std::convert::Infallible| never);
            assert_eq!(payload.downcast_ref(), Some(&"the first"));
            assert_eq!(drops.load(SeqCst), 2);
        });
    });
}
