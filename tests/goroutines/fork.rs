//! Fork-join: both branches run, once, wherever they run; the forker goes on when both are over; and few goroutines live at
//! once.

mod ends;

use common::bolt::bolted;
use common::policies::policies;
use common::probe::Probe;
use common::{PROCS, effort, everywhere, runtime, until, watched};
use gmp::context::{Context, ContextError};
use gmp::sync::Event;
use gmp::{
    Builder, Priority, Runtime, chan, fork_scope, go, go_lifo, goexit, join, num_goroutines, yield_now,
};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

fn sum(numbers: &[u64], leaf: usize) -> u64 {
    if numbers.len() <= leaf {
        return numbers.iter().sum();
    }
    let (left, right) = numbers.split_at(numbers.len() / 2);
    let (left, right) = join(|| sum(left, leaf), || sum(right, leaf));
    left + right
}

fn merge_sort(numbers: &mut [u32], spare: &mut [u32]) {
    if numbers.len() <= 32 {
        return numbers.sort_unstable();
    }
    let middle = numbers.len() / 2;
    let ((left, right), (spare_left, spare_right)) =
        (numbers.split_at_mut(middle), spare.split_at_mut(middle));
    join(|| merge_sort(left, spare_left), || merge_sort(right, spare_right));
    let (mut from_left, mut from_right) = (left.iter().peekable(), right.iter().peekable());
    for to in &mut *spare {
        let left_first = match (from_left.peek(), from_right.peek()) {
            (Some(left), Some(right)) => left <= right,
            (left, _) => left.is_some(),
        };
        *to = *if left_first { from_left.next() } else { from_right.next() }.expect("as many as there are");
    }
    numbers.copy_from_slice(spare);
}

/// Fails when a branch is lost or runs twice, or its result is not seen.
#[test]
fn trees_of_joins_add_up_and_sort() {
    everywhere(|rt| {
        rt.run(|| {
            let numbers: Vec<u64> = (0..20_000).collect();
            let mut shuffled: Vec<u32> = (0..10_000_u32).map(|n| n.wrapping_mul(0x9e37_79b9) >> 8).collect();
            for leaf in [1, 7, 1000] {
                assert_eq!(sum(&numbers, leaf), 199_990_000);
            }
            let mut sorted = shuffled.clone();
            sorted.sort_unstable();
            let mut spare = vec![0; shuffled.len()];
            merge_sort(&mut shuffled, &mut spare);
            assert_eq!(shuffled, sorted);
            // A goroutine that was made for a branch ends after its forker was told.
            until(|| num_goroutines() == 1);
        });
    });
}

/// Several trees at once, whose goroutines park, yield and block in their branches. Fails by a hang when a wake-up is lost.
#[test]
fn trees_whose_branches_park_add_up() {
    fn tree(depth: u32, ran: &AtomicUsize) {
        if depth == 0 {
            match ran.fetch_add(1, SeqCst) % 7 {
                0 => yield_now(),
                1 => gmp::time::sleep(Duration::from_micros(20)),
                2 => gmp::blocking(thread::yield_now),
                _ => {}
            }
            return;
        }
        join(|| tree(depth - 1, ran), || tree(depth - 1, ran));
    }
    everywhere(|rt| {
        rt.run(|| {
            for _ in 0..effort() {
                let trees: Vec<_> = (0..4)
                    .map(|_| {
                        go(|| {
                            let ran = AtomicUsize::new(0);
                            tree(9, &ran);
                            assert_eq!(ran.into_inner(), 512);
                        })
                    })
                    .collect();
                trees.into_iter().for_each(|tree| tree.join().unwrap());
            }
            // A goroutine that was made for a branch ends after its forker was told.
            until(|| num_goroutines() == 1);
        });
    });
}

/// The highest number of goroutines that was seen.
#[derive(Clone, Default)]
struct Peak(Arc<AtomicUsize>);

impl Peak {
    fn look(&self) {
        self.0.fetch_max(num_goroutines(), SeqCst);
    }
    fn seen(&self) -> usize {
        self.0.load(SeqCst)
    }
}

const DEPTH: usize = 10;

fn joins(depth: usize, peak: &Peak) {
    if depth == 0 {
        return peak.look();
    }
    join(|| joins(depth - 1, peak), || joins(depth - 1, peak));
}

type Start = fn(Box<dyn FnOnce() + Send>) -> gmp::JoinHandle<()>;

fn goroutines(depth: usize, peak: &Peak, start: Start) {
    if depth == 0 {
        return peak.look();
    }
    let children = [(); 2].map(|()| {
        let peak = peak.clone();
        start(Box::new(move || goroutines(depth - 1, &peak, start)))
    });
    children.into_iter().for_each(|child| child.join().unwrap());
}

/// In a tree of joins the peak of live goroutines is O(depth) for each P, however wide the tree is.
#[test]
fn a_tree_of_joins_has_as_many_goroutines_as_it_is_deep() {
    everywhere(|rt| {
        let (peak, procs) = (Peak::default(), rt.run(gmp::procs));
        let seen = peak.clone();
        rt.run(move || joins(DEPTH, &seen));
        // A fork that no other M takes makes no goroutine.
        let most = if procs == 1 { 1 } else { procs * (DEPTH + 1) };
        println!("procs {procs}: {} of {} leaves", peak.seen(), 1 << DEPTH);
        assert!(peak.seen() <= most, "{} goroutines at procs {procs}", peak.seen());
    });
}

/// A tree of a lower class whose leaves let others run goes on with the goroutines that it has; visits begin one of its
/// branches now and then. Fails when each look makes one more goroutine of the tree.
#[test]
fn a_tree_of_a_lower_class_is_not_begun_breadth_first() {
    everywhere(|rt| {
        let procs = rt.run(gmp::procs);
        let [normal, low] = [Priority::Normal, Priority::Low].map(|class| {
            let peak = Peak::default();
            let seen = peak.clone();
            let tree = move || {
                let root = Builder::new().priority(class).go(move || yielding_joins(DEPTH, &seen));
                root.unwrap().join().unwrap();
            };
            rt.run(tree);
            peak.seen()
        });
        println!("procs {procs}: {normal} in Normal, {low} in Low, of {} leaves", 1 << DEPTH);
        assert!(low <= 1 << (DEPTH - 1), "{low} goroutines at procs {procs}");
    });
}

fn yielding_joins(depth: usize, peak: &Peak) {
    if depth == 0 {
        peak.look();
        return yield_now();
    }
    join(|| yielding_joins(depth - 1, peak), || yielding_joins(depth - 1, peak));
}

/// In a fork-join tree the peak of live goroutines is O(depth) with `go_lifo`, and O(width) with `go`, which is first in, first
/// out.
#[test]
fn go_lifo_is_depth_first_and_go_is_breadth_first() {
    watched(1, || {
        let rt = runtime(1);
        let starts: [Start; 2] = [go_lifo, go];
        let peaks = starts.map(|start| {
            let peak = Peak::default();
            let look = peak.clone();
            rt.run(move || goroutines(DEPTH, &look, start));
            peak.seen()
        });
        println!("go_lifo {}, go {}, of {} leaves", peaks[0], peaks[1], 1 << DEPTH);
        // On a busy machine a visit, which comes by time, begins another branch beside the deepest.
        assert!(peaks[0] <= 4 * (DEPTH + 1), "go_lifo: {peaks:?}");
        assert!(peaks[1] >= 1 << (DEPTH - 3), "go: {peaks:?}");
    });
    everywhere(|rt| {
        let (peak, procs) = (Peak::default(), rt.run(gmp::procs));
        let seen = peak.clone();
        rt.run(move || goroutines(DEPTH, &seen, go_lifo));
        assert!(peak.seen() <= 4 * procs * (DEPTH + 1), "{} goroutines at procs {procs}", peak.seen());
    });
}

/// A P takes its own newest branch first.
#[test]
fn the_newest_of_the_own_runs_first() {
    watched(1, || {
        runtime(1).run(|| {
            let order = Arc::new(std::sync::Mutex::new(Vec::new()));
            let all: Vec<_> = (0..5)
                .map(|n| {
                    let order = Arc::clone(&order);
                    go_lifo(move || order.lock().unwrap().push(n))
                })
                .collect();
            all.into_iter().for_each(|one| one.join().unwrap());
            assert_eq!(*order.lock().unwrap(), [4, 3, 2, 1, 0]);
        });
    });
}

/// A thread that comes for work takes the branch that was forked first.
#[test]
fn a_thief_takes_the_oldest() {
    watched(2, || {
        runtime(2).run(|| {
            let [first, second, looked] = [(); 3].map(|()| AtomicBool::new(false));
            join(
                || {
                    join(
                        || {
                            until_on_thread(|| first.load(SeqCst) || second.load(SeqCst));
                            assert!(!second.load(SeqCst), "the newer one was taken first");
                            looked.store(true, SeqCst);
                        },
                        || second.store(true, SeqCst),
                    );
                },
                || {
                    first.store(true, SeqCst);
                    // If this branch ended here, its thread would take the other one, too.
                    until_on_thread(|| looked.load(SeqCst));
                },
            );
        });
    });
}

/// Keeps the P until `reached` holds.
fn until_on_thread(mut reached: impl FnMut() -> bool) {
    while !reached() {
        thread::yield_now();
    }
}

/// Fails by a hang when a branch for which the forker's own branch waits is not begun.
#[test]
fn a_branch_begins_while_the_forker_is_parked_in_its_own() {
    everywhere(|rt| {
        rt.run(|| {
            for _ in 0..50 * effort() {
                let ((there, hears), (back, answer)) = (chan::bounded(0), chan::bounded(0));
                let both = join(
                    || {
                        there.send(1).unwrap();
                        answer.recv().unwrap()
                    },
                    || {
                        let got = hears.recv().unwrap();
                        back.send(got + 1).unwrap();
                        got
                    },
                );
                assert_eq!(both, (2, 1));
            }
        });
    });
}

/// More forkers are parked than a P has room for jobs. Fails by a hang when a forker that finds no room forgets its branch.
#[test]
fn more_forkers_may_wait_than_there_is_room_for() {
    const MANY: usize = 500;
    everywhere(|rt| {
        rt.run(|| {
            let go_on = Arc::new(Event::new());
            let forkers: Vec<_> = (0..MANY)
                .map(|n| {
                    let go_on = Arc::clone(&go_on);
                    go(move || {
                        let event = Event::new();
                        let all = || {
                            event.wait();
                            go_on.wait();
                            n
                        };
                        join(all, || {
                            event.notify_one();
                            n
                        })
                    })
                })
                .collect();
            until(|| num_goroutines() == MANY + 1);
            go_on.notify_all();
            until(|| {
                go_on.notify_all();
                forkers.iter().all(|one| one.is_finished())
            });
            for (n, forker) in forkers.into_iter().enumerate() {
                assert_eq!(forker.join().unwrap(), (n, n));
            }
        });
    });
}

/// Joins nest deeper than a P has room for jobs.
#[test]
fn a_chain_of_joins_may_be_long() {
    fn chain(left: usize) -> usize {
        if left == 0 {
            return 0;
        }
        let (rest, one) = join(|| chain(left - 1), || 1);
        rest + one
    }
    everywhere(|rt| {
        let deep = rt.run(|| Builder::new().stack_size(4 << 20).go(|| chain(1000)).unwrap().join().unwrap());
        assert_eq!(deep, 1000);
    });
}

/// Fails by a hang when no other thread begins the branch of a forker that blocks its thread, marked or not.
#[test]
fn a_branch_begins_while_the_forker_blocks_its_thread() {
    everywhere(|rt| {
        rt.run(|| {
            for marked in [true, false] {
                let ran = AtomicBool::new(false);
                let waits = || {
                    let wait = || {
                        while !ran.load(SeqCst) {
                            thread::sleep(Duration::from_micros(100))
                        }
                    };
                    if marked { gmp::blocking(wait) } else { wait() }
                };
                join(waits, || ran.store(true, SeqCst));
            }
        });
    });
}

/// A forker gives its P away in its own branch. Another goroutine comes back from a blocking call to that P, and computes,
/// before the thread that is to look for work there has begun. Fails when the forker's other branch is not begun meanwhile.
#[test]
fn a_branch_begins_beside_a_goroutine_that_comes_back_to_the_forkers_p() {
    const LATE: Duration = Duration::from_secs(20);
    watched(1, || {
        let (starts, computes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let builder = Runtime::builder().procs(1).on_thread_start({
            let (starts, computes) = (Arc::clone(&starts), Arc::clone(&computes));
            move || {
                // The first thread runs the forker, the second one makes the call of the other goroutine.
                if starts.fetch_add(1, SeqCst) == 2 {
                    until_on_thread(|| computes.load(SeqCst));
                }
            }
        });
        // SAFETY: the goroutines keep nothing of a thread.
        let rt = unsafe { builder.build() }.expect("a runtime starts");
        let in_time = rt.run(move || {
            let (begun, ran) = (Instant::now(), Arc::new(AtomicBool::new(false)));
            let (calls, comes_back) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let other = go({
                let (calls, comes_back, ran) =
                    (Arc::clone(&calls), Arc::clone(&comes_back), Arc::clone(&ran));
                move || {
                    gmp::blocking(|| {
                        calls.store(true, SeqCst);
                        until_on_thread(|| comes_back.load(SeqCst));
                    });
                    computes.store(true, SeqCst);
                    until_on_thread(|| ran.load(SeqCst) || begun.elapsed() > LATE);
                    ran.load(SeqCst)
                }
            });
            until(|| calls.load(SeqCst));
            join(
                || {
                    gmp::blocking(|| {
                        comes_back.store(true, SeqCst);
                        until_on_thread(|| ran.load(SeqCst) || begun.elapsed() > LATE);
                    });
                },
                || ran.store(true, SeqCst),
            );
            other.join().unwrap()
        });
        assert!(in_time);
    });
}

/// A forker that has given its P away takes a P again, so that other Ms can help.
#[test]
fn a_join_in_a_blocking_call_is_one_like_any_other() {
    everywhere(|rt| {
        rt.run(|| {
            let event = Event::new();
            gmp::blocking(|| join(|| event.wait(), || event.notify_one()));
        });
    });
}

/// A branch that is begun elsewhere has a stack as large as the forker's.
#[test]
fn a_branch_has_as_much_stack_as_its_forker() {
    #[inline(never)]
    fn use_stack(left: usize) -> usize {
        let frame = std::hint::black_box([left as u8; 1024]);
        if left == 0 { frame[0].into() } else { use_stack(left - 1) + usize::from(frame[7] == left as u8) }
    }
    everywhere(|rt| {
        let deep = || {
            let event = Event::new();
            let both = join(
                || event.wait(),
                || {
                    let used = use_stack(500);
                    event.notify_one();
                    used
                },
            );
            both.1
        };
        assert_eq!(rt.run(move || Builder::new().stack_size(4 << 20).go(deep).unwrap().join().unwrap()), 500);
    });
}

/// A goroutine that `go_lifo` has started, and a branch, get their turns beside goroutines that keep the queue of their P busy.
#[test]
fn jobs_get_their_turn_beside_goroutines_that_yield_for_ever() {
    everywhere(|rt| {
        rt.run(|| {
            let over = Arc::new(AtomicBool::new(false));
            let yields = || {
                let over = Arc::clone(&over);
                go(move || until(|| over.load(SeqCst)))
            };
            let busy: Vec<_> = (0..3 * gmp::procs()).map(|_| yields()).collect();
            let lifo = go_lifo(|| 1);
            until(|| lifo.is_finished());
            let ran = AtomicBool::new(false);
            join(|| until(|| ran.load(SeqCst)), || ran.store(true, SeqCst));
            over.store(true, SeqCst);
            busy.into_iter().for_each(|one| one.join().unwrap());
        });
    });
}

/// The number of Ps changes under a tree. Fails by a hang when a job stays on a P that has retired.
#[test]
fn jobs_outlive_their_ps() {
    watched(4, || {
        let rt = runtime(4);
        let over = Arc::new(AtomicBool::new(false));
        let trees: Vec<_> = (0..4)
            .map(|_| {
                let over = Arc::clone(&over);
                rt.go(move || {
                    let numbers: Vec<u64> = (0..2000).collect();
                    let mut rounds = 0_usize;
                    while !over.load(SeqCst) {
                        let event = Event::new();
                        let both = join(
                            || event.wait(),
                            || {
                                event.notify_one();
                                sum(&numbers, 10)
                            },
                        );
                        assert_eq!(both.1, 1_999_000);
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        for n in 0..200 * effort() as usize {
            rt.set_procs([1, 4, 2, 3][n % 4]);
            thread::sleep(Duration::from_micros(200));
        }
        over.store(true, SeqCst);
        assert!(trees.into_iter().all(|tree| tree.join().unwrap() > 0));
    });
}

/// Checks forks under each policy, those with one queue among them.
#[test]
fn forks_hold_under_every_policy() {
    for (policy, procs) in policies().into_iter().flat_map(|policy| [(policy, 1), (policy, 3)]) {
        println!("{policy}, procs {procs}");
        watched(procs, || {
            // SAFETY: no goroutine of these tests keeps a thread-bound value across a blocking call.
            let rt = unsafe { Runtime::builder().procs(procs).stack_size(64 << 10).policy(policy).build() }
                .expect("a runtime starts");
            let peak = Peak::default();
            let seen = peak.clone();
            rt.run(move || {
                let numbers: Vec<u64> = (0..5000).collect();
                assert_eq!(sum(&numbers, 3), 12_497_500);
                joins(DEPTH, &seen);
                goroutines(6, &Peak::default(), go_lifo);
                let event = Event::new();
                join(|| event.wait(), || event.notify_one());
                let lifo = go_lifo(|| 1);
                until(|| lifo.is_finished());
            });
            assert!(peak.seen() <= procs * (DEPTH + 1), "{} goroutines", peak.seen());
        });
    }
}

/// On a plain thread the branches are plain calls, in the documented order.
#[test]
fn on_a_thread_the_branches_are_calls() {
    let order = std::sync::Mutex::new(Vec::new());
    let note = |n: u32| order.lock().unwrap().push(n);
    assert_eq!(join(|| note(1), || note(2)), ((), ()));
    fork_scope(|s| {
        s.fork(|| note(5));
        s.fork(|| note(4));
        note(3);
    });
    assert_eq!(*order.lock().unwrap(), [1, 2, 3, 4, 5]);
    let second = AtomicBool::new(false);
    let panics = || join(|| resume_unwind(Box::new("a")), || second.store(true, SeqCst));
    assert_eq!(catch_unwind(AssertUnwindSafe(panics)).unwrap_err().downcast_ref(), Some(&"a"));
    assert!(!second.load(SeqCst));
    assert!(catch_unwind(|| go_lifo(|| ())).is_err());
}

/// Some branches of a scope are begun elsewhere, and some are not. Fails when a branch is lost, or outlives the scope.
#[test]
fn all_branches_of_a_fork_scope_are_over_when_it_returns() {
    everywhere(|rt| {
        rt.run(|| {
            for _ in 0..20 * effort() {
                let mut parts = vec![0_u64; 300];
                let value = fork_scope(|s| {
                    for (n, part) in parts.iter_mut().enumerate() {
                        s.fork(move || {
                            if n % 50 == 0 {
                                yield_now();
                            }
                            *part = n as u64;
                        });
                    }
                    yield_now();
                    7
                });
                assert_eq!((value, parts.iter().sum::<u64>()), (7, 299 * 150));
            }
        });
    });
}

/// Closures and values may be large, have no size, or own something.
#[test]
fn branches_of_any_size_bring_their_values() {
    everywhere(|rt| {
        rt.run(|| {
            let large = [3_u8; 4000];
            let event = Event::new();
            let taken = join(
                || event.wait(),
                || {
                    event.notify_one();
                    large
                },
            );
            assert_eq!(taken.1.iter().map(|&n| usize::from(n)).sum::<usize>(), 12_000);
            let owned = join(|| "a".to_owned(), || vec!["b".to_owned(); 3]);
            assert_eq!((owned.0, owned.1.concat()), ("a".to_owned(), "bbb".to_owned()));
        });
    });
}
