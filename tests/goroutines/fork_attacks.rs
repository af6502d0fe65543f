//! Fork-join in unusual places: in destructors, in bound goroutines, nested, beyond the room for jobs, and beside events that
//! end or move the forker meanwhile.

use common::policies::policies;
use common::probe::Probe;
use common::random::Random;
use common::{PROCS, child, effort, everywhere, runtime, until, watched};
use gmp::context::Context;
use gmp::sync::Event;
use gmp::{
    Builder, Priority, Runtime, fork_scope, go, go_lifo, goexit, join, lock_os_thread, num_goroutines, scope,
    unlock_os_thread, yield_now,
};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

/// Forks a branch that is begun elsewhere, as the forker's own branch waits for it.
fn taken<T: Send>(b: impl FnOnce() -> T + Send) -> T {
    let event = Event::new();
    let own = || event.wait();
    join(own, || {
        event.notify_one();
        b()
    })
    .1
}

/// A value whose drop panics with a value whose drop panics.
struct Nested;
struct Payload;

impl Drop for Nested {
    fn drop(&mut self) {
        std::panic::panic_any(Payload);
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        panic!("the payload");
    }
}

/// A scope's function panics, and the drop of a branch that has not begun panics twice over. Fails when those panics unwind the
/// scope, and leave the oldest branch, which borrows, in its slot; and, for `join`, by the end of the process.
#[test]
fn a_branch_whose_drop_panics_twice_leaves_no_other_behind() {
    everywhere(|rt| {
        rt.run(|| {
            for _ in 0..effort() {
                let (drops, nested) = (Arc::new(AtomicUsize::new(0)), Nested);
                let ended = catch_unwind(AssertUnwindSafe(|| {
                    fork_scope(|s| {
                        let probe = Probe(Arc::clone(&drops));
                        s.fork(move || drop(probe));
                        s.fork(move || drop(nested));
                        panic!("the function");
                    })
                }));
                let payload = ended.expect_err("the function panics");
                assert_eq!(payload.downcast_ref(), Some(&"the function"));
                assert_eq!(drops.load(SeqCst), 1, "a branch is left");
                let nested = Nested;
                let ended = catch_unwind(AssertUnwindSafe(|| join(|| panic!("a"), move || drop(nested))));
                assert_eq!(ended.expect_err("a panics").downcast_ref(), Some(&"a"));
            }
        });
    });
}

/// Forks as it is dropped.
struct Forks {
    ran: Arc<AtomicUsize>,
    panics: bool,
}

impl Drop for Forks {
    fn drop(&mut self) {
        assert!(thread::panicking());
        let ran = &self.ran;
        let forks = || {
            taken(|| ran.fetch_add(1, SeqCst));
            join(|| ran.fetch_add(1, SeqCst), || ran.fetch_add(1, SeqCst));
            fork_scope(|s| {
                for _ in 0..3 {
                    s.fork(|| {
                        ran.fetch_add(1, SeqCst);
                    });
                }
                yield_now();
            });
            if self.panics {
                taken(|| resume_unwind(Box::new("within")));
            }
        };
        let ended = catch_unwind(AssertUnwindSafe(forks));
        assert_eq!(ended.is_err(), self.panics);
        assert!(thread::panicking());
    }
}

/// A destructor forks while its goroutine unwinds. Fails by a branch that is lost, by the end of the process, or by another
/// panic than the first.
#[test]
fn a_destructor_forks_while_its_goroutine_unwinds() {
    everywhere(|rt| {
        rt.run(|| {
            for panics in [false, true] {
                let ran = Arc::new(AtomicUsize::new(0));
                let forks = Forks { ran: Arc::clone(&ran), panics };
                let ended = go(move || {
                    let _forks = forks;
                    resume_unwind(Box::new("first"));
                });
                assert_eq!(ended.join().unwrap_err().into_panic().downcast_ref(), Some(&"first"));
                assert_eq!(ran.load(SeqCst), 6);
            }
        });
    });
}

/// Joins, fork scopes and scopes nest, and borrow from all levels.
#[test]
fn joins_in_fork_scopes_in_scopes_borrow_from_all_of_them() {
    everywhere(|rt| {
        let sum = rt.run(|| {
            let sum = AtomicU64::new(0);
            scope(|outer| {
                for n in 0..8 {
                    let sum = &sum;
                    outer.go(move || {
                        let mut parts = [0; 16];
                        fork_scope(|s| {
                            for (at, part) in parts.iter_mut().enumerate() {
                                s.fork(move || {
                                    let here = (n, at as u64);
                                    let both = join(
                                        || if at % 3 == 0 { taken(|| here.0) } else { here.0 },
                                        || {
                                            let mut inner = [0, 0];
                                            let [first, second] = &mut inner;
                                            scope(|s| {
                                                s.go(|| *first = here.1);
                                                fork_scope(|s| s.fork(|| *second = 1));
                                            });
                                            inner[0] + inner[1]
                                        },
                                    );
                                    *part = both.0 + both.1;
                                });
                            }
                        });
                        sum.fetch_add(parts.iter().sum(), SeqCst);
                    });
                }
            });
            sum.into_inner()
        });
        assert_eq!(sum, 28 * 16 + 8 * (120 + 16));
    });
}

/// A scope has far more branches than a P has room for jobs. Fails by a branch that is lost or runs twice, or by a hang.
#[test]
fn a_fork_scope_has_room_for_any_number_of_branches() {
    const MANY: usize = 5000;
    everywhere(|rt| {
        // The scope's function waits for no branch, for the first, for the last, or for one beyond the room.
        for awaited in [None, Some(0), Some(MANY - 1), Some(200)] {
            rt.run(move || {
                let (ran, event) = (AtomicUsize::new(0), Event::new());
                let mut parts = vec![0_u8; MANY];
                fork_scope(|s| {
                    for (n, part) in parts.iter_mut().enumerate() {
                        let (ran, event) = (&ran, &event);
                        s.fork(move || {
                            *part += 1;
                            ran.fetch_add(1, SeqCst);
                            if awaited == Some(n) {
                                event.notify_one();
                            }
                        });
                    }
                    if awaited.is_some() {
                        event.wait();
                    }
                });
                assert_eq!(ran.into_inner(), MANY);
                assert!(parts.into_iter().all(|part| part == 1));
                until(|| num_goroutines() == 1);
            });
        }
    });
}

/// The forker is bound to its thread. Fails by a hang, when the forker goes on on another thread or runs its own branch there,
/// or when a branch that is begun elsewhere is not.
#[test]
fn a_bound_goroutine_forks() {
    fn tree(depth: u32) -> u64 {
        if depth == 0 {
            return 1;
        }
        let both = join(|| tree(depth - 1), || tree(depth - 1));
        both.0 + both.1
    }
    everywhere(|rt| {
        rt.run(|| {
            let forkers = (0..3).map(|_| {
                go(|| {
                    lock_os_thread();
                    let here = thread::current().id();
                    for _ in 0..10 {
                        assert_eq!(tree(8), 256);
                        assert_eq!(taken(|| 7), 7);
                        // A branch that is begun elsewhere is on a goroutine that is not bound. The forker's own branch runs
                        // on the forker's thread: without a wait, and after one.
                        let (own, elsewhere) = {
                            let (event, id) = (Event::new(), || thread::current().id());
                            let waits = || {
                                let before = id();
                                event.wait();
                                [before, id()]
                            };
                            join(waits, || {
                                event.notify_one();
                                id()
                            })
                        };
                        assert_eq!(own, [here; 2]);
                        assert_ne!(elsewhere, here);
                        yield_now();
                        fork_scope(|s| {
                            s.fork(|| assert_eq!(tree(4), 16));
                            gmp::time::sleep(Duration::from_micros(50));
                            s.fork(|| assert_eq!(tree(4), 16));
                        });
                        assert_eq!(thread::current().id(), here);
                    }
                    unlock_os_thread();
                })
            });
            Vec::from_iter(forkers).into_iter().for_each(|one| one.join().unwrap());
        });
    });
}

/// How the branches of a random tree end, and what they do before.
struct Storm {
    random: Mutex<Random>,
    /// Branches that were made, and branches that were dropped, whether they were called or not.
    made: AtomicUsize,
    gone: Arc<AtomicUsize>,
    /// A forker's frame has gone before a branch that borrows from it.
    torn: AtomicBool,
}

/// A forker's frame, from which its branches borrow.
struct Frame<'a> {
    storm: &'a Storm,
    inside: AtomicUsize,
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        if self.inside.load(SeqCst) != 0 {
            self.storm.torn.store(true, SeqCst);
        }
    }
}

/// Counts a branch as inside until it ends, perhaps by an unwinding.
struct Inside<'a>(&'a AtomicUsize);

impl<'a> Inside<'a> {
    fn of(frame: &'a Frame<'_>) -> Self {
        frame.inside.fetch_add(1, SeqCst);
        Inside(&frame.inside)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Storm {
    fn new(seed: u64) -> Self {
        let (made, torn) = (AtomicUsize::new(0), AtomicBool::new(false));
        Storm { random: Mutex::new(Random::of_seed(seed)), made, gone: Arc::default(), torn }
    }

    fn below(&self, count: u64) -> u64 {
        self.random.lock().unwrap().below(count)
    }

    fn probe(&self) -> Probe {
        self.made.fetch_add(1, SeqCst);
        Probe(Arc::clone(&self.gone))
    }

    fn act(&self, gently: bool) {
        match self.below(if gently { 20 } else { 24 }) {
            0 => yield_now(),
            1 => gmp::time::sleep(Duration::from_micros(self.below(50))),
            2 => gmp::blocking(thread::yield_now),
            3 => {
                let (ctx, cancel) = Context::background().with_cancel();
                cancel.cancel();
                let _ended = ctx.run(|| taken(|| self.below(2)));
            }
            4 => drop(gmp::set_priority(
                [Priority::High, Priority::Normal, Priority::Low][self.below(3) as usize],
            )),
            5 => drop(go_lifo(|| 1).join()),
            6 => {
                let (ctx, _cancel) =
                    Context::background().with_timeout(Duration::from_micros(self.below(100)));
                let _ended = ctx.run(|| join(|| Event::new().wait(), || self.below(2)));
            }
            20 | 21 => resume_unwind(Box::new("storm")),
            22 => goexit(),
            _ => {}
        }
    }

    fn tree(&self, depth: u32) {
        if depth == 0 {
            return self.act(false);
        }
        let frame = Frame { storm: self, inside: AtomicUsize::new(0) };
        let branch = |probe: Probe| {
            let frame = &frame;
            move || {
                let (_probe, _inside) = (probe, Inside::of(frame));
                frame.storm.act(true);
                frame.storm.tree(depth - 1);
            }
        };
        let forks = || match self.below(4) {
            0 => fork_scope(|s| {
                for _ in 0..self.below(4) {
                    s.fork(branch(self.probe()));
                }
                self.act(true);
                s.fork(branch(self.probe()));
            }),
            1 => taken(branch(self.probe())),
            _ => drop(join(branch(self.probe()), branch(self.probe()))),
        };
        // The forker catches the end of its branches now and then.
        if self.below(3) == 0 {
            match catch_unwind(AssertUnwindSafe(forks)) {
                // An exit, or the end of the runtime, goes on: the end leaves a goroutine that catches it again and again.
                Err(payload) if !payload.is::<&str>() => resume_unwind(payload),
                _ => {}
            }
        } else {
            forks();
        }
    }
}

/// Trees whose branches park, move, block, panic, exit and are canceled at random. Fails when a closure is lost, when a forker
/// unwinds under its branches, or by a hang; the test prints its seed.
#[test]
fn whatever_branches_do_none_is_lost_and_none_outlives_its_forker() {
    for seed in 0..4 * u64::from(effort()) {
        everywhere(|rt| {
            println!("seed {seed}");
            rt.run(|| {
                let storms = (0..6).map(|n| {
                    let storm = Arc::new(Storm::new(seed * 100 + n));
                    let runs = Arc::clone(&storm);
                    (storm, go(move || runs.tree(6)))
                });
                for (storm, tree) in Vec::from_iter(storms) {
                    let _ended = tree.join();
                    assert!(!storm.torn.load(SeqCst), "a forker's frame went before its branches");
                    assert_eq!(storm.gone.load(SeqCst), storm.made.load(SeqCst), "a closure is lost");
                }
                until(|| num_goroutines() == 1);
            });
        });
    }
}

/// As the test above, while the number of Ps changes, under each policy.
#[test]
fn whatever_branches_do_ps_may_come_and_go() {
    for policy in policies() {
        println!("{policy}");
        watched(4, || {
            // SAFETY: no goroutine of these tests keeps a thread-bound value across a blocking call.
            let rt = unsafe { Runtime::builder().procs(4).stack_size(64 << 10).policy(policy).build() }
                .expect("a runtime starts");
            let storms: Vec<_> = (0..6)
                .map(|n| {
                    let storm = Arc::new(Storm::new(n));
                    let runs = Arc::clone(&storm);
                    (storm, rt.go(move || (0..5).for_each(|_| runs.tree(5))))
                })
                .collect();
            for n in 0.. {
                if storms.iter().all(|(_, tree)| tree.is_finished()) {
                    break;
                }
                rt.set_procs([1, 4, 2, 3][n % 4]);
                thread::sleep(Duration::from_micros(300));
            }
            for (storm, tree) in storms {
                let _ended = tree.join();
                assert!(!storm.torn.load(SeqCst), "a forker's frame went before its branches");
                assert_eq!(storm.gone.load(SeqCst), storm.made.load(SeqCst), "a closure is lost");
            }
        });
    }
}

/// The runtime ends in the middle of trees. Fails by a hang, by a report that is not clean, or when a closure is lost.
#[test]
fn the_end_of_the_runtime_in_the_middle_of_trees_loses_nothing() {
    for (procs, round) in PROCS.into_iter().flat_map(|procs| (0..3).map(move |round| (procs, round))) {
        watched(procs, || {
            let rt = runtime(procs);
            let storms: Vec<_> = (0..4).map(|n| Arc::new(Storm::new(round * 10 + n))).collect();
            let begun = Arc::new(AtomicUsize::new(0));
            for storm in &storms {
                let (storm, begun) = (Arc::clone(storm), Arc::clone(&begun));
                drop(rt.go(move || {
                    begun.fetch_add(1, SeqCst);
                    loop {
                        let storm = Arc::clone(&storm);
                        let ended = go(move || storm.tree(5)).join();
                        // The goroutine was not started, as the runtime has begun to end. Without this break the loop would no
                        // longer park.
                        if ended.is_err_and(|ended| ended.is_shutdown()) {
                            break;
                        }
                    }
                }));
            }
            until(|| begun.load(SeqCst) == 4);
            thread::sleep(Duration::from_millis(5 * round));
            let report = rt.shutdown(Duration::from_secs(20));
            assert!(report.is_clean(), "{report:?} at procs {procs}");
            for storm in storms {
                assert!(!storm.torn.load(SeqCst), "a forker's frame went before its branches");
                assert_eq!(storm.gone.load(SeqCst), storm.made.load(SeqCst), "a closure is lost");
            }
        });
    }
}

/// Fails by the order when the branch of a `Background` forker goes before a `Low` goroutine, or when the branch of a `High`
/// forker, which is begun as a record, goes behind one; or when a branch that has begun has another class than its forker.
#[test]
fn a_branch_is_of_its_forkers_class_wherever_it_runs() {
    child::in_order("a_branch_is_of_its_forkers_class_wherever_it_runs", || watched(1, branches_of_classes));
}

fn branches_of_classes() {
    runtime(1).run(|| {
        for (class, expected) in [
            // An M looks at a record after the goroutines that are `Normal`.
            (Priority::High, ["normal", "branch", "low"]),
            (Priority::Normal, ["normal", "branch", "low"]),
            (Priority::Background, ["normal", "low", "branch"]),
        ] {
            let order = Arc::new(Mutex::new(Vec::new()));
            let notes = |name: &'static str| {
                let order = Arc::clone(&order);
                move || order.lock().unwrap().push(name)
            };
            let [low, normal, branch] = ["low", "normal", "branch"].map(notes);
            let forker = move || {
                let event = Event::new();
                let own = || {
                    drop(Builder::new().priority(Priority::Low).go(low).unwrap());
                    drop(go(normal));
                    event.wait();
                };
                join(own, || {
                    branch();
                    event.notify_one();
                    assert_eq!(gmp::priority(), class);
                });
            };
            Builder::new().priority(class).go(forker).unwrap().join().unwrap();
            until(|| order.lock().unwrap().len() == 3);
            assert_eq!(*order.lock().unwrap(), expected, "{class}");
        }
    });
}
