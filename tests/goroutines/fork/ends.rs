//! The ways out of a branch. However the forker goes on, the borrows of its branches have ended before.

use super::*;

/// How a branch ends.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Way {
    Returns,
    Panics,
    Exits,
}

impl Way {
    fn go(self, name: &'static str) -> &'static str {
        match self {
            Way::Returns => name,
            Way::Panics => resume_unwind(Box::new(name)),
            Way::Exits => goexit(),
        }
    }
}

/// Tries each way out of either branch. The forker runs the second branch itself, or the second branch is begun elsewhere, and
/// is over before the forker comes or is waited for. Fails when the forker goes on before the branches that borrow from it are
/// over, or ends otherwise than the first of the branches that do not return.
#[test]
fn in_each_way_out_nothing_borrows_any_more() {
    const WAYS: [Way; 3] = [Way::Returns, Way::Panics, Way::Exits];
    #[derive(Copy, Clone, Debug, Eq, PartialEq)]
    enum When {
        Never,
        Before,
        Late,
    }
    everywhere(|rt| {
        for (a, b) in WAYS.into_iter().flat_map(|a| WAYS.map(|b| (a, b))) {
            for when in [When::Never, When::Before, When::Late] {
                let forker = move || {
                    let (begun, over, drops) =
                        (AtomicBool::new(false), AtomicBool::new(false), Arc::new(AtomicUsize::new(0)));
                    let probe = Probe(Arc::clone(&drops));
                    let forks = || {
                        join(
                            || {
                                match when {
                                    When::Never => {}
                                    When::Before => until(|| over.load(SeqCst)),
                                    When::Late => until(|| begun.load(SeqCst)),
                                }
                                a.go("a")
                            },
                            || {
                                let probe = probe;
                                begun.store(true, SeqCst);
                                if when == When::Late {
                                    (0..10).for_each(|_| yield_now());
                                }
                                over.store(true, SeqCst);
                                drop(probe);
                                b.go("b")
                            },
                        )
                    };
                    let ended = catch_unwind(AssertUnwindSafe(forks));
                    assert_eq!(begun.load(SeqCst), over.load(SeqCst), "{a:?} {b:?} {when:?}");
                    assert_eq!(drops.load(SeqCst), 1, "{a:?} {b:?} {when:?}");
                    match ended {
                        Ok(both) => both,
                        Err(payload) => resume_unwind(payload),
                    }
                };
                let ended = rt.run(move || go(forker).join());
                let first = if a == Way::Returns { (b, "b") } else { (a, "a") };
                match (first.0, ended) {
                    (Way::Returns, ended) => assert_eq!(ended.unwrap(), ("a", "b")),
                    (Way::Panics, ended) => {
                        assert_eq!(ended.unwrap_err().into_panic().downcast_ref(), Some(&first.1));
                    }
                    (Way::Exits, ended) => assert!(ended.unwrap_err().is_goexit(), "{a:?} {b:?} {when:?}"),
                }
            }
        }
    });
}

/// A context ends while the forker is parked in its own branch, and while it waits for the other one. Fails when the wait for
/// the other branch is ended.
#[test]
fn an_interrupt_ends_the_own_branch_and_not_the_wait_for_the_other() {
    everywhere(|rt| {
        rt.run(|| {
            for in_the_own in [true, false] {
                let (ctx, cancel) = Context::background().with_cancel();
                let (begun, go_on) = (Arc::new(AtomicBool::new(false)), Arc::new(Event::new()));
                let over = Arc::new(AtomicBool::new(false));
                let forker = go({
                    let (begun, go_on, over) = (Arc::clone(&begun), Arc::clone(&go_on), Arc::clone(&over));
                    move || {
                        let ended = ctx.run(|| {
                            join(
                                || {
                                    until(|| begun.load(SeqCst));
                                    if in_the_own {
                                        Event::new().wait();
                                    }
                                },
                                || {
                                    begun.store(true, SeqCst);
                                    go_on.wait();
                                    over.store(true, SeqCst);
                                },
                            );
                        });
                        assert!(over.load(SeqCst), "the forker has gone on while its branch ran");
                        ended
                    }
                });
                until(|| begun.load(SeqCst));
                cancel.cancel();
                (0..20).for_each(|_| yield_now());
                assert!(!forker.is_finished());
                go_on.notify_one();
                let ended = forker.join().unwrap();
                assert_eq!(ended, if in_the_own { Err(ContextError::Canceled) } else { Ok(()) });
            }
        });
    });
}

/// The runtime ends while forkers are parked in their own branches, wait for the other one, or run. Fails by a hang, or when
/// one of them is not unwound.
#[test]
fn the_end_of_the_runtime_unwinds_forkers() {
    for procs in PROCS {
        watched(procs, || {
            let rt = runtime(procs);
            let drops = Arc::new(AtomicUsize::new(0));
            let begun = Arc::new(AtomicUsize::new(0));
            for way in 0..3 {
                for _ in 0..5 {
                    let (probe, begun) = (Probe(Arc::clone(&drops)), Arc::clone(&begun));
                    drop(rt.go(move || {
                        let _probe = probe;
                        let park = || {
                            begun.fetch_add(1, SeqCst);
                            Event::new().wait();
                        };
                        match way {
                            0 => drop(join(park, || ())),
                            1 => drop(join(|| until(|| begun.load(SeqCst) >= 10), park)),
                            _ => fork_scope(|s| {
                                s.fork(park);
                                s.fork(park);
                            }),
                        }
                    }));
                }
            }
            until(|| begun.load(SeqCst) >= 15);
            let report = rt.shutdown(Duration::from_secs(20));
            assert_eq!(drops.load(SeqCst), 15, "{report:?} at procs {procs}");
            assert!(report.is_clean(), "{report:?}");
        });
    }
}

/// Forkers that can't be unwound are left, in their own branch and in the wait for the other one. Fails by a hang, or by a use
/// of freed memory.
#[test]
fn a_forker_that_is_left_keeps_what_its_branch_borrows() {
    for procs in PROCS {
        watched(procs, || {
            let rt = runtime(procs);
            let begun = Arc::new(AtomicUsize::new(0));
            for other in [false, true] {
                let begun = Arc::clone(&begun);
                drop(rt.go(move || {
                    let value = vec![7; 100];
                    let park = || {
                        begun.fetch_add(1, SeqCst);
                        bolted(|| Event::new().wait());
                        value.len()
                    };
                    match other {
                        false => join(park, || value.len()),
                        true => join(
                            || 0,
                            || {
                                until(|| begun.load(SeqCst) > 0);
                                park()
                            },
                        ),
                    }
                }));
            }
            until(|| begun.load(SeqCst) == 2);
            let report = rt.shutdown(Duration::from_secs(2));
            assert!(report.goroutines_left() >= 2, "{report:?}");
        });
    }
}

/// Fails when a branch outlives the scope, or the scope ends with another panic than the first.
#[test]
fn a_fork_scope_unwinds_when_all_that_was_begun_is_over() {
    everywhere(|rt| {
        for way in 0..3 {
            let ended = rt.run(move || {
                let (begun, over) = (AtomicUsize::new(0), AtomicUsize::new(0));
                let ended = catch_unwind(AssertUnwindSafe(|| {
                    fork_scope(|s| {
                        for n in 0..10 {
                            let (begun, over) = (&begun, &over);
                            s.fork(move || {
                                begun.fetch_add(1, SeqCst);
                                (0..3).for_each(|_| yield_now());
                                over.fetch_add(1, SeqCst);
                                if way == 1 && n == 5 {
                                    resume_unwind(Box::new("branch"));
                                }
                            });
                        }
                        (0..way).for_each(|_| yield_now());
                        if way == 0 {
                            resume_unwind(Box::new("body"));
                        }
                    })
                }));
                assert_eq!(begun.load(SeqCst), over.load(SeqCst));
                ended.map_err(|payload| *payload.downcast_ref::<&str>().unwrap())
            });
            let expected = [Err("body"), Err("branch"), Ok(())];
            assert_eq!(ended, expected[way]);
        }
    });
}

/// Sleeps in its drop, and counts.
struct Slow(Arc<AtomicUsize>);

impl Drop for Slow {
    fn drop(&mut self) {
        gmp::time::sleep(Duration::from_millis(1));
        self.0.fetch_add(1, SeqCst);
    }
}

fn four_slow(dropped: &Arc<AtomicUsize>) -> [Slow; 4] {
    [(); 4].map(|()| Slow(Arc::clone(dropped)))
}

/// An interrupt unwinds the forker. Fails when it also ends the waits in the drops of its branches, so that these stop in the
/// middle.
#[test]
fn branches_are_dropped_undisturbed() {
    everywhere(|rt| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let slow = four_slow(&dropped);
        let ended = rt.run(|| {
            let (context, cancel) = Context::background().with_cancel();
            context.run(|| {
                fork_scope(|s| {
                    slow.into_iter().for_each(|slow| s.fork(move || drop(slow)));
                    cancel.cancel();
                    Event::new().wait();
                });
            })
        });
        assert_eq!(ended, Err(ContextError::Canceled));
        assert_eq!(dropped.load(SeqCst), 4);
    });
}

/// Fails when a goroutine is left behind because the drops of its branches, or of closures that no longer start, have used up
/// its throws.
#[test]
fn drops_at_the_end_of_a_runtime_are_undisturbed() {
    for spawns in [false, true] {
        everywhere(|rt| {
            let (dropped, ends) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
            let (slow, sees, handle) = (four_slow(&dropped), Arc::clone(&ends), rt.handle());
            let begun = Arc::new(AtomicBool::new(false));
            let begins = Arc::clone(&begun);
            drop(rt.go(move || {
                begins.store(true, SeqCst);
                // If the goroutine yielded, the end would unwind it there.
                while !sees.load(SeqCst) {
                    thread::yield_now();
                }
                if spawns {
                    slow.into_iter().for_each(|slow| drop(gmp::go(move || drop(slow))));
                } else {
                    fork_scope(|s| {
                        slow.into_iter().for_each(|slow| s.fork(move || drop(slow)));
                        Event::new().wait();
                    });
                }
                Event::new().wait();
            }));
            until(|| begun.load(SeqCst));
            let ender = thread::spawn(move || rt.shutdown(Duration::from_secs(20)));
            until(|| handle.go(|| ()).is_err());
            ends.store(true, SeqCst);
            let report = ender.join().unwrap();
            assert!(report.is_clean(), "{report:?}");
            assert_eq!(dropped.load(SeqCst), 4);
        });
    }
}
