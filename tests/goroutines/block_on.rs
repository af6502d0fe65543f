//! `block_on`: any thread can wake the goroutine or thread that waits, and a wake ends no other wait; what a poll may do. Ends
//! from outside are in `block_on_ends.rs`.

use common::child;
use common::crew::{everyone, join_all};
use common::futures::{Signal, own_waker, turns};
use common::{dumps, everywhere, runtime, until, watched};
use gmp::chan::{TryRecvError, bounded};
use gmp::sync::Event;
use gmp::{block_on, blocking, go, lock_os_thread, scope, unlock_os_thread, with_stack};
use std::cell::{Cell, RefCell};
use std::future::{poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Fails by the output, or by a second poll.
#[test]
fn a_ready_future_is_polled_once() {
    everyone(|crew| {
        crew.run(|| {
            let mut polls = 0;
            let output = block_on(poll_fn(|_| {
                polls += 1;
                Poll::Ready(7)
            }));
            assert_eq!((output, polls), (7, 1));
            assert_eq!(block_on(async { ready(1).await + ready(2).await }), 3);
        });
    });
}

/// Two callers hand a number to each other by their futures alone. Fails by a hang when a wake is lost, or by the number when a
/// write before the wake is not seen.
#[test]
fn two_take_turns() {
    const ROUNDS: usize = 1_000;
    everyone(|crew| {
        let (signals, number) =
            (Arc::new([Signal::default(), Signal::default()]), Arc::new(AtomicUsize::new(0)));
        signals[0].give();
        let players = [0, 1].map(|me| {
            let (signals, number) = (Arc::clone(&signals), Arc::clone(&number));
            crew.go(move || {
                for round in 0..ROUNDS {
                    block_on(signals[me].take());
                    // Relaxed: the wake orders the accesses.
                    assert_eq!(number.load(Relaxed), 2 * round + me);
                    number.store(2 * round + me + 1, Relaxed);
                    signals[1 - me].give();
                }
            })
        });
        join_all(players.into());
    });
}

/// A future that is woken in each of its polls waits for a turn of another goroutine: one that is queued, one that sleeps, one
/// that waits for a socket. Fails by a hang when the future keeps the P.
#[test]
fn a_future_that_wakes_itself_lets_others_run() {
    fn until_set(set: &AtomicBool) {
        block_on(poll_fn(|cx| {
            cx.waker().wake_by_ref();
            if set.load(SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        }));
    }
    const SETTERS: [fn(); 3] = [
        || (),
        || gmp::time::sleep(MS / 10),
        || {
            use std::io::{Read, Write};
            let listener = gmp::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let mut there = gmp::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut here = listener.accept().unwrap().0;
            let _writes = go(move || there.write_all(b"x"));
            here.read_exact(&mut [0]).unwrap();
        },
    ];
    // No P is retaken: only its own turns take the P from a goroutine.
    child::without_retakes("a_future_that_wakes_itself_lets_others_run", || {
        everywhere(|rt| {
            for waits in SETTERS {
                let set = Arc::new(AtomicBool::new(false));
                // As many waiters as there are Ps, so that no P is free.
                let waiters: Vec<_> = (0..rt.procs())
                    .map(|_| {
                        let set = Arc::clone(&set);
                        rt.go(move || until_set(&set))
                    })
                    .collect();
                let sets = rt.go(move || {
                    waits();
                    set.store(true, SeqCst);
                });
                waiters.into_iter().chain([sets]).for_each(|one| one.join().unwrap());
            }
        });
    });
}

/// Fails by the turns when a goroutine that wakes itself takes many for each turn of the other.
#[test]
fn two_that_wake_themselves_take_turns() {
    child::without_retakes("two_that_wake_themselves_take_turns", || {
        watched(1, || {
            let rt = runtime(1);
            let polls = rt.run(|| {
                let polls = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
                let players = [0, 1].map(|me| {
                    let polls = Arc::clone(&polls);
                    go(move || {
                        block_on(poll_fn(|cx| {
                            polls[me].fetch_add(1, SeqCst);
                            cx.waker().wake_by_ref();
                            if polls.iter().any(|polls| polls.load(SeqCst) > 1_000) {
                                return Poll::Ready(());
                            }
                            Poll::Pending
                        }));
                    })
                });
                players.into_iter().for_each(|player| player.join().unwrap());
                [0, 1].map(|me| polls[me].load(SeqCst))
            });
            assert!(polls[0].abs_diff(polls[1]) < 100, "{polls:?}");
        });
    });
}

/// Fails by a hang or by the number when the outer call's wake is lost with the inner call.
#[test]
fn a_call_inside_a_poll_has_a_waker_of_its_own() {
    everyone(|crew| {
        let (outer, inner) = (Arc::new(Signal::default()), Arc::new(Signal::default()));
        let (gives_outer, gives_inner) = (Arc::clone(&outer), Arc::clone(&inner));
        let owner = crew.go(move || {
            let mut polls = 0;
            block_on(async {
                let mut first = std::pin::pin!(outer.take());
                poll_fn(|cx| {
                    polls += 1;
                    let polled = first.as_mut().poll(cx);
                    let mine = block_on(poll_fn(|inner| Poll::Ready(inner.waker().will_wake(cx.waker()))));
                    assert!(!mine, "two calls at a time have the same waker");
                    if polls == 1 {
                        // Ends after the outer signal was given.
                        block_on(async {
                            inner.take().await;
                            block_on(turns(3));
                        });
                    }
                    polled
                })
                .await;
            });
            polls
        });
        until(|| gives_inner.is_awaited());
        gives_outer.give();
        gives_inner.give();
        assert_eq!(owner.join(), 2);
    });
}

/// Fails when a goroutine has a different waker each time, or two goroutines have the same one.
#[test]
fn a_goroutine_keeps_its_waker() {
    everywhere(|rt| {
        let [one, other] = [(); 2].map(|()| {
            rt.go(|| {
                let first = own_waker();
                let _nested = block_on(poll_fn(|cx| {
                    assert!(cx.waker().will_wake(&first));
                    Poll::Ready(own_waker())
                }));
                assert!(own_waker().will_wake(&first));
                first
            })
        });
        assert!(!one.join().unwrap().will_wake(&other.join().unwrap()));
    });
}

/// A poll may do what any other code of the caller may. Fails by a hang or a panic.
#[test]
fn a_poll_may_park_spawn_and_join() {
    everywhere(|rt| {
        let doubled = rt.run(|| {
            block_on(async {
                let (sender, receiver) = bounded(0);
                drop(go(move || sender.send(20)));
                let received = receiver.recv().unwrap();
                block_on(turns(2));
                gmp::time::sleep(MS / 10);
                gmp::yield_now();
                let joined = go(move || {
                    block_on(async {
                        turns(1).await;
                        received
                    })
                })
                .join()
                .unwrap();
                blocking(|| block_on(turns(2)));
                turns(1).await;
                with_stack(256 << 10, || block_on(turns(2)));
                received + joined
            })
        });
        assert_eq!(doubled, 40);
    });
}

/// Waits in each of the places from which a goroutine may call. Fails by a hang.
#[test]
fn a_goroutine_waits_wherever_it_is() {
    const PLACES: [fn(&dyn Fn()); 4] = [
        |waits| blocking(waits),
        |waits| with_stack(256 << 10, waits),
        |waits| {
            lock_os_thread();
            waits();
            unlock_os_thread();
        },
        |waits| {
            scope(|s| {
                s.go(|| ());
                waits();
            });
        },
    ];
    everywhere(|rt| {
        for place in PLACES {
            let signal = Arc::new(Signal::default());
            let theirs = Arc::clone(&signal);
            let waits = rt.go(move || place(&|| block_on(theirs.take())));
            until(|| signal.is_awaited());
            signal.give();
            waits.join().unwrap();
        }
    });
}

/// The future is polled on the caller's stack. Fails to compile, or by the output.
#[test]
fn a_future_may_borrow_and_need_not_be_send() {
    everyone(|crew| {
        crew.run(|| {
            let (shared, text) = (Rc::new(Cell::new(1)), String::from("mine"));
            let mut parts = Vec::new();
            let future = async {
                let held = RefCell::new(Rc::clone(&shared));
                turns(3).await;
                held.borrow().set(2);
                parts.push(text.as_str());
                held.into_inner().get()
            };
            assert_eq!(block_on(future), 2);
            assert_eq!((parts, shared.get()), (vec!["mine"], 2));
        });
    });
}

/// Fails by the number, or when a future is dropped twice or never.
#[test]
fn a_panic_in_a_poll_passes_through() {
    struct Dropped(Rc<Cell<u32>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            // During the unwinding a wait is like any other.
            block_on(turns(3));
        }
    }
    everyone(|crew| {
        crew.run(|| {
            let drops = Rc::new(Cell::new(0));
            let held = Dropped(Rc::clone(&drops));
            let caught = catch_unwind(AssertUnwindSafe(|| {
                block_on(async {
                    let _held = held;
                    turns(2).await;
                    std::panic::resume_unwind(Box::new(7_u32));
                });
            }));
            assert_eq!(caught.unwrap_err().downcast_ref(), Some(&7_u32));
            assert_eq!(drops.get(), 1);
            block_on(turns(2));
        });
    });
}

/// The drop of a future that is ready panics. Fails by the outcome.
#[test]
fn a_panic_in_the_drop_passes_through() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            block_on(turns(1));
            std::panic::resume_unwind(Box::new(8_u32));
        }
    }
    struct Ready(Bomb);
    impl Future for Ready {
        type Output = String;
        fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> Poll<String> {
            Poll::Ready("dropped as well".to_owned())
        }
    }
    everyone(|crew| {
        crew.run(|| {
            let caught = catch_unwind(|| block_on(Ready(Bomb)));
            assert_eq!(caught.unwrap_err().downcast_ref(), Some(&8_u32));
            block_on(turns(2));
        });
    });
}

/// Fails by a hang, a crash, or the flag when a wake that comes after its call has returned ends a wait for something else.
#[test]
fn a_late_wake_ends_no_other_wait() {
    const ROUNDS: usize = 100;
    everyone(|crew| {
        let (event, set) = (Arc::new(Event::new()), Arc::new(AtomicUsize::new(0)));
        let (sends, wakers) = bounded(1);
        let (acks, acked) = bounded(1);
        let (waits_for, sees) = (Arc::clone(&event), Arc::clone(&set));
        let owner = crew.go(move || {
            for round in 1..=ROUNDS {
                sends.send(own_waker()).unwrap();
                waits_for.wait();
                assert_eq!(sees.load(SeqCst), round, "a late wake has ended another wait");
                acks.send(()).unwrap();
            }
        });
        let waker = thread::spawn(move || {
            let mut last: Option<Waker> = None;
            loop {
                match wakers.try_recv() {
                    Ok(next) => last = Some(next),
                    Err(TryRecvError::Empty) => last.iter().for_each(Waker::wake_by_ref),
                    Err(TryRecvError::Disconnected) => return,
                }
                thread::yield_now();
            }
        });
        for round in 1..=ROUNDS {
            thread::yield_now();
            set.store(round, SeqCst);
            event.notify_one();
            acked.recv().unwrap();
        }
        owner.join();
        waker.join().unwrap();
    });
}

/// Foreign threads call and drop wakers when the goroutine has ended, and when its runtime has. Fails by a crash, or by a
/// count.
#[test]
fn a_waker_outlives_its_goroutine_and_its_runtime() {
    for procs in common::PROCS {
        watched(procs, || {
            let rt = runtime(procs);
            let wakers: Vec<_> = (0..20).map(|_| rt.go(own_waker).join().unwrap()).collect();
            // Other goroutines have the same memory by now.
            let next: Vec<_> = (0..20)
                .map(|_| {
                    let (signal, begun) = (Arc::new(Signal::default()), Arc::new(Signal::default()));
                    let (takes, begins) = (Arc::clone(&signal), Arc::clone(&begun));
                    let handle = rt.go(move || {
                        let mut polls = 0;
                        let mut taken = Box::pin(takes.take());
                        block_on(poll_fn(|cx| {
                            polls += 1;
                            begins.give();
                            taken.as_mut().poll(cx)
                        }));
                        polls
                    });
                    (handle, signal, begun)
                })
                .collect();
            next.iter().for_each(|(_, _, begun)| until(|| begun.is_given()));
            let wakes = |wakers: &[Waker]| {
                let clones = wakers.to_vec();
                thread::spawn(move || clones.into_iter().for_each(Waker::wake)).join().unwrap();
                wakers.iter().for_each(Waker::wake_by_ref);
            };
            wakes(&wakers);
            for (handle, signal, _) in next {
                signal.give();
                assert_eq!(handle.join().unwrap(), 2, "a waker of another goroutine has woken it");
            }
            assert!(rt.shutdown(Duration::from_secs(20)).is_clean());
            wakes(&wakers);
            drop(thread::spawn(move || drop(wakers)).join());
        });
    }
}

/// A goroutine ends while another thread drops, or calls, its waker. Fails by a crash, at least under a memory checker.
#[test]
fn a_waker_is_dropped_as_its_goroutine_ends() {
    everywhere(|rt| {
        let (sends, wakers) = bounded::<Waker>(16);
        let dropper = thread::spawn(move || {
            wakers.iter().enumerate().for_each(|(at, waker)| match at % 2 {
                0 => drop(waker),
                _ => waker.wake(),
            });
        });
        let goroutines: Vec<_> = (0..500)
            .map(|_| {
                let sends = sends.clone();
                rt.go(move || sends.send(own_waker()).unwrap())
            })
            .collect();
        goroutines.into_iter().for_each(|one| one.join().unwrap());
        drop(sends);
        dropper.join().unwrap();
    });
}

/// A future may compare, clone and wrap the waker of our call, like any other. Fails by a hang.
#[test]
fn a_waker_may_be_wrapped() {
    struct Counts(AtomicUsize, Waker);
    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
            self.1.wake_by_ref();
        }
    }
    everyone(|crew| {
        let signal = Arc::new(Signal::default());
        let takes = Arc::clone(&signal);
        let owner = crew.go(move || {
            let mut taken = Box::pin(takes.take());
            let mut counts = None;
            block_on(poll_fn(|cx| {
                let counts =
                    counts.get_or_insert_with(|| Arc::new(Counts(AtomicUsize::new(0), cx.waker().clone())));
                let waker = Waker::from(Arc::clone(counts));
                taken.as_mut().poll(&mut std::task::Context::from_waker(&waker))
            }));
            counts.map_or(0, |counts| counts.0.load(SeqCst))
        });
        until(|| signal.is_awaited());
        signal.give();
        assert_eq!(owner.join(), 1);
    });
}

gmp::local! {
    static COUNT: Cell<u32> = Cell::new(0);
    static WAITS_AT_THE_END: Waits = Waits(Cell::new(None));
}

/// Waits when it is dropped, and then counts.
struct Waits(Cell<Option<Arc<AtomicUsize>>>);

impl Drop for Waits {
    fn drop(&mut self) {
        block_on(turns(2));
        let _ended = own_waker();
        self.0.take().inspect(|count| {
            count.fetch_add(1, SeqCst);
        });
    }
}

/// Fails by the values, or when a wait in a destructor does not return.
#[test]
fn a_poll_sees_the_variables_of_its_goroutine() {
    everywhere(|rt| {
        let ended = Arc::new(AtomicUsize::new(0));
        let goroutines: Vec<_> = (0..8)
            .map(|number| {
                let ended = Arc::clone(&ended);
                rt.go(move || {
                    COUNT.set(number);
                    WAITS_AT_THE_END.with(|waits| waits.0.set(Some(ended)));
                    block_on(async {
                        for _ in 0..20 {
                            COUNT.set(COUNT.get() + 1);
                            turns(1).await;
                        }
                    });
                    assert_eq!(COUNT.get(), number + 20);
                })
            })
            .collect();
        goroutines.into_iter().for_each(|one| one.join().unwrap());
        assert_eq!(ended.load(SeqCst), 8);
    });
}

/// Fails by the text when a dump does not say that a goroutine waits in `block_on`.
#[test]
fn a_dump_names_the_wait() {
    everywhere(|rt| {
        let signal = Arc::new(Signal::default());
        let takes = Arc::clone(&signal);
        let owner = rt.go(move || block_on(takes.take()));
        let id = owner.id().get();
        until(|| dumps::read(&rt.dump()).iter().any(|g| g.0 == id && g.1.starts_with("future")));
        signal.give();
        owner.join().unwrap();
    });
}

/// Runs all tests of this file and of `block_on_ends.rs` where every park resumes on another thread. Fails when one of them
/// fails.
#[test]
fn all_of_it_holds_when_goroutines_wander() {
    if std::env::var_os("GMPDEBUG").is_some() {
        return;
    }
    let mut tests = Command::new(std::env::current_exe().unwrap());
    tests.args(["block_on", "--skip", "all_of_it_holds"]).env("GMPDEBUG", "migrate=1");
    let output = tests.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("test block_on_ends::"), "{said}");
}
