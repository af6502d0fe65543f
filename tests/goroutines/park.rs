//! `park`, `park_timeout` and `Unparker`: one token each, of goroutines and plain threads alike.

use common::crew::everyone;
use common::{dumps, everywhere, until};
use gmp::context::{Context, ContextError};
use gmp::{Unparker, park, park_timeout, park_until, unparker};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const FAR: Duration = Duration::from_secs(3600);

/// Fails by a hang when a token that was given before the wait is lost; or when two calls give two tokens, so that a wait ends
/// at once.
#[test]
fn a_token_given_before_ends_one_wait() {
    everyone(|crew| {
        crew.run(|| {
            let own = unparker();
            own.unpark();
            own.clone().unpark();
            park();
            let begin = Instant::now();
            park_timeout(Duration::from_millis(2));
            assert!(begin.elapsed() >= Duration::from_millis(2), "there were two tokens");
            let deadline = Instant::now() + Duration::from_millis(1);
            park_until(deadline);
            assert!(Instant::now() >= deadline);
            own.unpark();
            park_timeout(FAR);
            assert!(own.same(&unparker()));
        });
    });
}

/// Two members hand a number to each other, by park and unpark alone. Fails by a hang when a token is lost, or by the number
/// when a write before it is not seen.
#[test]
fn two_take_turns() {
    const ROUNDS: usize = 2_000;
    everyone(|crew| {
        let (turn, number) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let seats: Arc<[Mutex<Option<Unparker>>; 2]> = Arc::default();
        let players: Vec<_> = (0..2)
            .map(|me| {
                let (turn, number, seats) = (Arc::clone(&turn), Arc::clone(&number), Arc::clone(&seats));
                crew.go(move || {
                    *seats[me].lock().unwrap() = Some(unparker());
                    for round in 0..ROUNDS {
                        // Relaxed: the token orders the accesses, but for those of the first round, which need no order.
                        while turn.load(Relaxed) % 2 != me {
                            match round % 3 {
                                0 => park_timeout(FAR),
                                _ => park(),
                            }
                        }
                        assert_eq!(number.fetch_add(1, Relaxed) % 2, me);
                        turn.fetch_add(1, Relaxed);
                        let other = seats[1 - me].lock().unwrap().clone();
                        if let Some(other) = other {
                            other.unpark();
                        }
                    }
                })
            })
            .collect();
        players.into_iter().for_each(|player| player.join());
        assert_eq!(number.load(Relaxed), 2 * ROUNDS);
    });
}

/// Tokens come beside limits. Fails by a hang when a token is lost with a wait that has timed out.
#[test]
fn a_wait_that_times_out_leaves_the_token() {
    everyone(|crew| {
        let (sends, tells) = mpsc::channel();
        let given = Arc::new(AtomicUsize::new(0));
        let gives = Arc::clone(&given);
        let owner = crew.go(move || {
            sends.send(unparker()).unwrap();
            for round in 1..=500 {
                while given.load(Relaxed) < round {
                    park_timeout(Duration::from_nanos((round * 37 % 5000) as u64));
                }
                // The token may be there still, from this round or the one before.
                park_timeout(Duration::ZERO);
            }
            given.store(usize::MAX, Relaxed);
        });
        let giver = crew.go(move || {
            let owner: Unparker = tells.recv().unwrap();
            while gives.load(Relaxed) < 500 {
                gives.fetch_add(1, Relaxed);
                owner.unpark();
                gmp::yield_now();
            }
        });
        giver.join();
        owner.join();
    });
}

/// Fails by a hang when a context does not end the wait, or by the outcome when the wait that was ended takes a token that is
/// given later.
#[test]
fn a_context_ends_the_wait_which_takes_no_later_token() {
    everyone(|crew| {
        let (context, cancel) = Context::background().with_cancel();
        let (sends, tells) = mpsc::channel();
        let owner = crew.go(move || {
            sends.send(unparker()).unwrap();
            let ended = context.run(|| {
                loop {
                    park();
                }
            });
            // The park below takes the token that is given after the end.
            sends.send(unparker()).unwrap();
            park();
            ended
        });
        tells.recv().unwrap();
        cancel.cancel();
        tells.recv().unwrap().unpark();
        assert_eq!(owner.join(), Err::<(), _>(ContextError::Canceled));
    });
}

/// The token and the end of the context come together. Fails by a hang when the wait that the context ended has taken the
/// token.
#[test]
fn a_wait_that_a_context_ends_leaves_the_token() {
    everyone(|crew| {
        for round in 0..100 {
            let (context, cancel) = Context::background().with_cancel();
            let (sends, tells) = mpsc::channel();
            let owner = crew.go(move || {
                sends.send(unparker()).unwrap();
                if context.run(park).is_err() {
                    park();
                }
            });
            let unparker = tells.recv().unwrap();
            if round % 2 == 0 {
                cancel.cancel();
                unparker.unpark();
            } else {
                unparker.unpark();
                cancel.cancel();
            }
            owner.join();
        }
    });
}

/// Fails by a hang, a crash, or by a token of the goroutine that had the same memory before.
#[test]
fn a_token_of_an_ended_goroutine_goes_to_no_other() {
    everywhere(|rt| {
        for _ in 0..100 {
            let late = rt.go(unparker).join().unwrap();
            late.unpark();
            let next = rt.go(|| park_timeout(Duration::from_micros(100)));
            late.unpark();
            next.join().unwrap();
            assert!(!late.same(&rt.go(unparker).join().unwrap()));
        }
    });
}

/// Fails by the text when a dump does not say that a goroutine waits in `park`.
#[test]
fn a_dump_names_the_wait() {
    everywhere(|rt| {
        let (sends, tells) = mpsc::channel();
        let owner = rt.go(move || {
            sends.send(unparker()).unwrap();
            park();
        });
        let id = owner.id().get();
        until(|| dumps::read(&rt.dump()).iter().any(|g| g.0 == id && g.1.starts_with("park")));
        tells.recv().unwrap().unpark();
        owner.join().unwrap();
    });
}

/// Fails by a hang when the end of the runtime does not end the wait.
#[test]
fn the_end_of_the_runtime_ends_the_wait() {
    everywhere(|rt| {
        let owner = rt.go(|| {
            loop {
                park();
            }
        });
        drop(owner);
        rt.run(|| (0..20).for_each(|_| gmp::yield_now()));
        let report = rt.shutdown(Duration::from_secs(60));
        assert_eq!(report.goroutines_left(), 0, "{report:?}");
    });
}
