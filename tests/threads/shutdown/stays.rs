//! A goroutine that can't be unwound stays where it is, and none of its values is dropped.

use super::{Counts, HOUR, MS, SHUTDOWN_LIMIT, ends_clean};
use common::bolt::bolted;
use common::{everywhere, runtime, until, watched};
use gmp::time::sleep;
use gmp::{chan, go, goexit, scope, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The ender does not wait for a goroutine that stays. Fails by an abort, by a drop, or by the time.
#[test]
fn below_a_function_of_c_nothing_is_unwound() {
    everywhere(|rt| {
        let (stay, go) = (Counts::default(), Counts::default());
        let stays = stay.go(&rt, || bolted(|| sleep(HOUR)));
        let goes = go.go(&rt, || sleep(HOUR));
        // The destructor of this goroutine joins the one that stays.
        let waits = go.go(&rt, move || {
            struct Joins(Option<gmp::JoinHandle<()>>);
            impl Drop for Joins {
                fn drop(&mut self) {
                    assert!(self.0.take().unwrap().join().unwrap_err().is_shutdown());
                }
            }
            let _joins = Joins(Some(stays));
            sleep(HOUR);
        });
        stay.all_begun(&rt, 1);
        go.all_begun(&rt, 2);
        let begun = Instant::now();
        let report = rt.shutdown(HOUR);
        assert!(begun.elapsed() < SHUTDOWN_LIMIT);
        assert_eq!((report.goroutines_left(), report.threads_left()), (1, 0));
        assert_eq!(stay.dropped.load(SeqCst), 0);
        go.all_unwound(2);
        assert!(goes.join().unwrap_err().is_shutdown());
        assert!(waits.join().unwrap_err().is_shutdown());
    });
}

/// The children of a scope borrow from the frames of its body. Fails when a value is freed under a child that is left behind.
#[test]
fn the_parent_of_a_child_that_stays_stays() {
    everywhere(|rt| {
        let (parent, child, sibling) = (Counts::default(), Counts::default(), Counts::default());
        let freed = Arc::new(AtomicUsize::new(0));
        let _parent = parent.go(&rt, {
            let (child, sibling) = (child.clone(), sibling.clone());
            let freed = Arc::clone(&freed);
            move || {
                let borrowed = super::Probe(freed);
                scope(|s| {
                    s.go(|| {
                        let _own = child.begin();
                        let _borrowed = &borrowed;
                        bolted(|| sleep(HOUR));
                    });
                    s.go(|| {
                        let _own = sibling.begin();
                        let _borrowed = &borrowed;
                        sleep(HOUR);
                    });
                    // The parent is unwound from here, and then waits for both children.
                    sleep(HOUR);
                });
            }
        });
        parent.all_begun(&rt, 1);
        child.all_begun(&rt, 1);
        sibling.all_begun(&rt, 1);
        let begun = Instant::now();
        let report = rt.shutdown(HOUR);
        assert!(begun.elapsed() < SHUTDOWN_LIMIT);
        assert_eq!((report.goroutines_left(), report.threads_left()), (2, 0));
        sibling.all_unwound(1);
        assert_eq!(freed.load(SeqCst), 0);
        assert_eq!(parent.dropped.load(SeqCst) + child.dropped.load(SeqCst), 0);
    });
}

/// Fails when the parent does not wait for its children, or when the value that they borrow is dropped before they are.
#[test]
fn children_are_unwound_before_their_parent() {
    everywhere(|rt| {
        let (parent, children) = (Counts::default(), Counts::default());
        let _parent = parent.go(&rt, {
            let children = children.clone();
            move || {
                struct Last(Arc<AtomicUsize>);
                impl Drop for Last {
                    fn drop(&mut self) {
                        assert_eq!(self.0.load(SeqCst), 8, "a child lives");
                    }
                }
                let borrowed = Last(Arc::clone(&children.dropped));
                scope(|s| {
                    for n in 0..8 {
                        let (borrowed, children) = (&borrowed, &children);
                        s.go(move || {
                            let _own = children.begin();
                            let _borrowed = &borrowed;
                            if n % 2 == 0 {
                                sleep(HOUR)
                            } else {
                                scope(|s| s.go(|| sleep(HOUR)).join()).unwrap()
                            }
                        });
                    }
                });
            }
        });
        children.all_begun(&rt, 8);
        parent.all_begun(&rt, 1);
        ends_clean(rt);
        parent.all_unwound(1);
        children.all_unwound(8);
    });
}

/// Fails by the time, or when the end does not make its three throws.
#[test]
fn the_end_throws_three_times_at_a_catcher() {
    everywhere(|rt| {
        let counts = Counts::default();
        let caught = Arc::new(AtomicUsize::new(0));
        let _stubborn = counts.go(&rt, {
            let caught = Arc::clone(&caught);
            move || loop {
                let thrown = catch_unwind(AssertUnwindSafe(|| sleep(HOUR)));
                caught.fetch_add(usize::from(thrown.is_err()), SeqCst);
            }
        });
        counts.all_begun(&rt, 1);
        let begun = Instant::now();
        assert_eq!(rt.shutdown(HOUR).goroutines_left(), 1);
        assert!(begun.elapsed() < SHUTDOWN_LIMIT);
        assert_eq!((caught.load(SeqCst), counts.dropped.load(SeqCst)), (3, 0));
    });
}

/// A goroutine that goes on after each of its exits does not end. Fails by the time, when the end waits for that goroutine as
/// for one that ends.
#[test]
fn a_goroutine_that_has_caught_many_exits_stays() {
    watched(1, || {
        let (rt, counts) = (runtime(1), Counts::default());
        let _stubborn = counts.go(&rt, || {
            for _ in 0..256 {
                assert!(catch_unwind(|| goexit()).is_err());
            }
            sleep(HOUR);
        });
        counts.all_begun(&rt, 1);
        let begun = Instant::now();
        assert_eq!(rt.shutdown(HOUR).goroutines_left(), 1);
        assert!(begun.elapsed() < SHUTDOWN_LIMIT);
    });
}

/// A goroutine that catches the throw and returns has ended. Fails when its value is lost.
#[test]
fn a_catcher_of_a_throw_may_return() {
    everywhere(|rt| {
        let begun = Arc::new(AtomicBool::new(false));
        let returns = rt.go({
            let begun = Arc::clone(&begun);
            move || {
                begun.store(true, SeqCst);
                catch_unwind(|| sleep(HOUR)).is_err()
            }
        });
        until(|| begun.load(SeqCst));
        ends_clean(rt);
        assert!(returns.join().unwrap());
    });
}

/// One goroutine yields in a loop, and two others wake each other. Fails by the time.
#[test]
fn an_endless_loop_is_unwound_where_it_yields_or_parks() {
    everywhere(|rt| {
        let counts = Counts::default();
        let _yields = counts.go(&rt, || {
            loop {
                yield_now();
            }
        });
        let (ping, from_ping) = chan::bounded(0);
        let (pong, from_pong) = chan::bounded(0);
        let _one = counts.go(&rt, move || while ping.send(()).is_ok() && from_pong.recv().is_ok() {});
        let _two = counts.go(&rt, move || while from_ping.recv().is_ok() && pong.send(()).is_ok() {});
        until(|| counts.begun.load(SeqCst) == 3);
        ends_clean(rt);
        assert_eq!(counts.dropped.load(SeqCst), 3);
    });
}

/// Without time nothing is unwound. Fails by a drop.
#[test]
fn in_no_time_all_are_left() {
    everywhere(|rt| {
        let counts = Counts::default();
        let left = counts.go(&rt, || sleep(HOUR));
        counts.all_begun(&rt, 1);
        assert_eq!(rt.shutdown(Duration::ZERO).goroutines_left(), 1);
        assert!(left.join().unwrap_err().is_shutdown());
        assert_eq!(counts.dropped.load(SeqCst), 0);
    });
}

/// A goroutine that never comes back costs the whole limit, and no more. Fails when a sleeper is left behind because of it.
#[test]
fn a_goroutine_that_never_parks_keeps_no_other_from_being_unwound() {
    watched(2, || {
        let rt = runtime(2);
        let counts = Counts::default();
        let stop = Arc::new(AtomicBool::new(false));
        let spins = rt.go({
            let (stop, counts) = (Arc::clone(&stop), counts.clone());
            move || {
                drop(counts.begin());
                while !stop.load(SeqCst) {
                    std::hint::spin_loop();
                }
            }
        });
        for _ in 0..10 {
            let _sleeps = counts.go(&rt, || sleep(HOUR));
        }
        until(|| counts.begun.load(SeqCst) == 11);
        let report = rt.shutdown(500 * MS);
        assert!(report.goroutines_left() >= 1);
        assert!(spins.is_finished());
        stop.store(true, SeqCst);
        counts.all_unwound(11);
    });
}

/// A destructor calls `go` in its runtime, which has begun to end. Fails when the closure runs, or is not dropped.
#[test]
fn go_in_a_runtime_that_ends_drops_its_closure() {
    everywhere(|rt| {
        let counts = Counts::default();
        let ran = Arc::new(AtomicBool::new(false));
        struct Spawns(Counts, Arc<AtomicBool>);
        impl Drop for Spawns {
            fn drop(&mut self) {
                let (own, ran) = (self.0.begin(), Arc::clone(&self.1));
                let never = go(move || {
                    let _own = own;
                    ran.store(true, SeqCst);
                });
                assert!(never.is_finished());
                assert!(never.join().unwrap_err().is_shutdown());
            }
        }
        let _spawns = counts.go(&rt, {
            let (counts, ran) = (counts.clone(), Arc::clone(&ran));
            move || {
                let _spawns = Spawns(counts, ran);
                sleep(HOUR);
            }
        });
        counts.all_begun(&rt, 1);
        ends_clean(rt);
        counts.all_unwound(2);
        assert!(!ran.load(SeqCst));
    });
}
