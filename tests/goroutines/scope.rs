//! Goroutines that borrow: the scope is left only when all of them have ended, however it is left.

use common::{effort, everywhere, runtime, until, watched};
use gmp::sync::Event;
use gmp::{Affinity, Builder, JoinError, Priority, Scope, ScopedJoinHandle, go, goexit, yield_now};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Fails if a value is lost, or the scope returns before all have ended.
#[test]
fn goroutines_borrow_and_change_what_is_outside() {
    everywhere(|rt| {
        rt.run(|| {
            let mut parts = vec![0_u64; 64];
            let words = ["a".to_owned(), "bb".to_owned()];
            let lengths = gmp::scope(|s| {
                for (n, part) in parts.iter_mut().enumerate() {
                    s.go(move || {
                        yield_now();
                        *part = n as u64;
                    });
                }
                let handles: Vec<_> = words.iter().map(|word| s.go(|| (&word[..], word.len()))).collect();
                handles.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
            });
            assert_eq!(lengths, [("a", 1), ("bb", 2)]);
            assert_eq!(parts.iter().sum::<u64>(), 63 * 32);
        });
    });
}

/// Fails when a goroutine of a builder is not one of the scope, or lacks a setting of the builder; by a hang when a refused
/// goroutine stays in the count; or when the handle changes nothing.
#[test]
fn a_builder_starts_goroutines_of_a_scope() {
    everywhere(|rt| {
        rt.run(|| {
            let words = ["a".to_owned(), "bb".to_owned()];
            let (event, who) = (Event::new(), Mutex::new(Vec::new()));
            gmp::scope(|s| {
                let named = Builder::new().name("named").stack_size(256 << 10).priority(Priority::Low);
                let waits = named.go_scoped(s, || {
                    event.wait();
                    let name = gmp::current().and_then(|g| g.name().map(str::to_owned));
                    who.lock().unwrap().push((name, gmp::priority(), words[1].len()));
                });
                let waits = waits.unwrap();
                assert!(waits.set_priority(Priority::High) && waits.set_affinity(Affinity::of_current()));
                let refused = Builder::new().stack_size(1).go_scoped(s, || words.len());
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
                event.notify_one();
            });
            assert_eq!(*who.lock().unwrap(), [(Some("named".to_owned()), Priority::High, 2)]);
        });
    });
}

fn tree<'scope>(s: &'scope Scope<'scope, '_>, left: u32, count: &'scope AtomicUsize) {
    count.fetch_add(1, SeqCst);
    if left > 0 {
        for _ in 0..3 {
            s.go(move || {
                yield_now();
                tree(s, left - 1, count);
            });
        }
    }
}

/// Fails if a goroutine that another one of the scope has started is not waited for.
#[test]
fn goroutines_of_a_scope_may_start_more() {
    everywhere(|rt| {
        rt.run(|| {
            let count = AtomicUsize::new(0);
            gmp::scope(|s| tree(s, 5, &count));
            assert_eq!(count.load(SeqCst), (3_usize.pow(6) - 1) / 2);
        });
    });
}

#[test]
fn a_panic_that_nobody_joins_panics_the_scope_and_one_that_is_joined_does_not() {
    everywhere(|rt| {
        rt.run(|| {
            let ended = AtomicUsize::new(0);
            let fails = || -> u32 {
                yield_now();
                resume_unwind(Box::new("child"))
            };
            let joined = gmp::scope(|s| s.go(fails).join().unwrap_err().into_panic());
            assert_eq!(joined.downcast_ref(), Some(&"child"));
            let late = |early: bool| {
                catch_unwind(AssertUnwindSafe(|| {
                    gmp::scope(|s| {
                        let child = s.go(fails);
                        s.go(|| {
                            (0..20).for_each(|_| yield_now());
                            ended.fetch_add(1, SeqCst);
                        });
                        if !early {
                            until(|| child.is_finished());
                        }
                        drop(child);
                        5
                    })
                }))
            };
            for early in [true, false] {
                let payload = late(early).unwrap_err();
                assert_eq!(payload.downcast_ref(), Some(&"a scoped goroutine panicked"));
            }
            assert_eq!(ended.load(SeqCst), 2);
            // The body's own panic goes first.
            let body = catch_unwind(AssertUnwindSafe(|| {
                gmp::scope(|s| {
                    s.go(fails);
                    resume_unwind(Box::new("body"))
                })
            }));
            assert_eq!(body.unwrap_err().downcast_ref(), Some(&"body"));
            // A goexit is no panic.
            gmp::scope(|s| {
                s.go(|| goexit());
                assert!(s.go(|| -> () { goexit() }).join().unwrap_err().is_goexit());
            });
        });
    });
}

/// Fails by a use of freed memory when the scope is left before the goroutines that borrow.
#[test]
fn all_are_waited_for_in_every_way_out() {
    everywhere(|rt| {
        let ways: [fn(); 3] = [|| (), || resume_unwind(Box::new(1)), || goexit()];
        for way in ways {
            let ended = Arc::new(AtomicUsize::new(0));
            let theirs = Arc::clone(&ended);
            let parent = rt.go(move || {
                let data = vec![7_usize; 1000];
                gmp::scope(|s| {
                    for chunk in data.chunks(100) {
                        let ended = &theirs;
                        s.go(move || {
                            (0..10).for_each(|_| yield_now());
                            ended.fetch_add(chunk.iter().sum(), SeqCst);
                        });
                    }
                    way();
                });
            });
            drop(parent.join());
            assert_eq!(ended.load(SeqCst), 7000);
        }
    });
}

/// Touches what it borrows when it is dropped.
struct Touches<'a>(&'a Mutex<Vec<u32>>, u32);

impl Drop for Touches<'_> {
    fn drop(&mut self) {
        yield_now();
        self.0.lock().unwrap().push(self.1);
    }
}

/// Fails if the scope is left while a value without a joiner is still to be dropped, or is not dropped.
#[test]
fn values_that_nobody_joins_are_dropped_before_the_scope_is_left() {
    everywhere(|rt| {
        for round in 0..effort() * 20 {
            rt.run(|| {
                let drops = Mutex::new(Vec::new());
                gmp::scope(|s| {
                    let kept = s.go(|| Touches(&drops, 1));
                    drop(s.go(|| Touches(&drops, 2)));
                    let taken = s.go(|| Touches(&drops, 3)).join();
                    if round % 2 == 0 {
                        until(|| kept.is_finished());
                    }
                    drop(taken);
                });
                let mut drops = drops.into_inner().unwrap();
                drops.sort_unstable();
                assert_eq!(drops, [1, 2, 3]);
            });
        }
    });
}

/// Fails if a join by a sibling, or by a plain thread, does not work, or if a goroutine that a thread starts does not run in
/// the scope's runtime.
#[test]
fn handles_and_the_scope_itself_go_to_others() {
    everywhere(|rt| {
        rt.run(|| {
            let sum = AtomicUsize::new(0);
            gmp::scope(|s| {
                let first = s.go(|| 1);
                let second = s.go(move || first.join().unwrap() + 1);
                let third = gmp::blocking(|| {
                    thread::scope(|t| {
                        t.spawn(|| s.go(move || second.join().unwrap() + 1).join().unwrap()).join().unwrap()
                    })
                });
                sum.store(third, SeqCst);
            });
            assert_eq!(sum.load(SeqCst), 3);
        });
    });
}

const SOON: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

/// Fails when the handle or the outcome is lost with a limit that has passed, when no join is told of the end, when the channel
/// of the end stays open, or when the outcome is there twice.
#[test]
fn a_join_with_a_limit_takes_the_outcome_once() {
    type Join = fn(&mut ScopedJoinHandle<'_, usize>, Duration) -> Option<Result<usize, JoinError>>;
    let joins: [Join; 2] = [
        |handle, limit| handle.join_timeout(limit),
        |handle, limit| handle.join_deadline(Instant::now() + limit),
    ];
    everywhere(|rt| {
        rt.run(|| {
            let (words, told) = (["a".to_owned(), "bb".to_owned()], Event::new());
            for join in joins {
                let ends = gmp::scope(|s| {
                    let mut waits = s.go(|| {
                        told.wait();
                        words.len()
                    });
                    let ends = waits.done();
                    assert!(join(&mut waits, SOON).is_none() && !waits.is_finished() && !ends.is_closed());
                    told.notify_one();
                    assert_eq!(join(&mut waits, LONG).unwrap().unwrap(), 2);
                    assert!(waits.is_finished());
                    assert!(catch_unwind(AssertUnwindSafe(|| join(&mut waits, SOON))).is_err());
                    assert!(catch_unwind(AssertUnwindSafe(|| waits.done())).is_err());
                    assert!(catch_unwind(AssertUnwindSafe(|| waits.join())).is_err());
                    ends
                });
                assert!(ends.recv().is_err());
            }
        });
    });
}

/// Fails when a panic that a join with a limit has returned also panics the scope, or when a panic after the limit does not.
#[test]
fn a_panic_is_joined_by_the_call_that_returns_it() {
    everywhere(|rt| {
        rt.run(|| {
            let told = Event::new();
            let fails = || -> u32 {
                told.wait();
                resume_unwind(Box::new("child"))
            };
            let error = gmp::scope(|s| {
                let mut child = s.go(fails);
                assert!(child.join_timeout(SOON).is_none());
                told.notify_one();
                child.join_timeout(LONG).unwrap().unwrap_err()
            });
            assert_eq!(error.into_panic().downcast_ref(), Some(&"child"));
            let unjoined = catch_unwind(AssertUnwindSafe(|| {
                gmp::scope(|s| {
                    assert!(s.go(fails).join_timeout(SOON).is_none());
                    told.notify_one();
                });
            }));
            assert_eq!(unjoined.unwrap_err().downcast_ref(), Some(&"a scoped goroutine panicked"));
        });
    });
}

#[test]
fn scopes_nest_and_may_be_empty() {
    everywhere(|rt| {
        rt.run(|| {
            assert_eq!(gmp::scope(|_| 3), 3);
            let inner = gmp::scope(|s| {
                let child = s.go(|| gmp::scope(|t| t.go(gmp::num_goroutines).join().unwrap()));
                child.join().unwrap()
            });
            assert_eq!(inner, 3);
            assert_eq!(gmp::num_goroutines(), 1);
        });
    });
}

#[test]
fn on_a_plain_thread_it_panics() {
    let caught = catch_unwind(|| gmp::scope(|_| ())).unwrap_err();
    assert_eq!(
        caught.downcast_ref(),
        Some(&"scope: not called on a goroutine; a thread has std::thread::scope, or Runtime::run")
    );
}

/// Fails if the parent goes on after its runtime has unwound its children, or has not started them.
#[test]
fn when_the_runtime_ends_the_parent_goes_with_its_children() {
    everywhere(|rt| {
        let (went_on, started) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (tell, begun) = (Arc::clone(&went_on), Arc::clone(&started));
        let parent = rt.go(move || {
            let (never, data) = (Event::new(), vec![1_u8; 100]);
            gmp::scope(|s| {
                for _ in 0..10 {
                    s.go(|| {
                        begun.fetch_add(1, SeqCst);
                        never.wait();
                        assert_eq!(data.len(), 100);
                    });
                }
            });
            tell.store(true, SeqCst);
        });
        until(|| started.load(SeqCst) > 3);
        assert!(rt.shutdown_timeout(Duration::from_secs(20)));
        assert!(parent.join().unwrap_err().is_shutdown());
        assert!(!went_on.load(SeqCst));
    });
}

/// The last child ends while the parent begins to wait. Fails by a hang or a crash.
#[test]
fn the_last_child_races_with_the_parents_wait() {
    for procs in [2, 4] {
        let rt = runtime(procs);
        watched(procs, || {
            rt.run(|| {
                for round in 0..effort() * 20_000 {
                    let mut there = 0;
                    gmp::scope(|s| {
                        s.go(|| there = round);
                        if round % 3 == 0 {
                            yield_now();
                        }
                    });
                    assert_eq!(there, round);
                }
                go(|| ()).join().unwrap();
            });
        });
    }
}
