//! Parks against readies: a wake-up meets a goroutine, or a thread, at each step of its way to sleep.

use crate::support::{Random, everywhere, join_all, share};
use common::until;
use gmp::go;
use gmp::sync::Event;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

/// Two members that take turns.
#[derive(Default)]
struct Pair {
    events: [Event; 2],
    turns: AtomicUsize,
}

impl Pair {
    /// Plays one side of the pair, `rounds` times.
    fn play(&self, me: usize, rounds: usize, mut random: Random) {
        for round in 0..rounds {
            // The first member begins without a wait.
            if round + me > 0 {
                self.events[me].wait();
            }
            assert_eq!(self.turns.fetch_add(1, SeqCst), 2 * round + me, "woken when it was not its turn");
            random.pause(60);
            self.events[1 - me].notify_one();
            random.pause(60);
        }
    }
}

/// A ready comes while the goroutine is on its way into its park. Fails by a hang, or when a turn is taken twice, because one
/// notification wakes two times.
#[test]
fn goroutines_that_wake_each_other_take_turns() {
    everywhere(|rt| {
        let pairs = 2 * rt.procs();
        let rounds = share(1_000_000, 2 * pairs);
        let players: Vec<_> = (0..pairs)
            .flat_map(|number| {
                let pair = Arc::new(Pair::default());
                [0, 1].map(|me| {
                    let pair = Arc::clone(&pair);
                    rt.go(move || pair.play(me, rounds, Random::new(2 * number + me)))
                })
            })
            .collect();
        join_all(players);
    });
}

/// The same between a goroutine and a plain thread, which parks and is readied in another way.
#[test]
fn a_goroutine_and_a_thread_that_wake_each_other_take_turns() {
    everywhere(|rt| {
        let rounds = share(100_000, 4);
        let players: Vec<_> = (0..2)
            .map(|number| {
                let (pair, theirs) = (Arc::new(Pair::default()), number % 2);
                let goroutine = rt.go({
                    let pair = Arc::clone(&pair);
                    move || pair.play(1 - theirs, rounds, Random::new(number))
                });
                (goroutine, thread::spawn(move || pair.play(theirs, rounds, Random::new(2 + number))))
            })
            .collect();
        for (goroutine, thread) in players {
            goroutine.join().unwrap();
            thread.join().unwrap();
        }
    });
}

/// A member of a ring: the tokens that were passed to it, and what tells it so.
#[derive(Default)]
struct Member {
    inbox: AtomicUsize,
    filled: Event,
}

/// Fails by a hang when a token lies in an inbox whose owner sleeps; or by a count when one was passed on twice.
#[test]
fn tokens_go_round_in_rings() {
    const MEMBERS: usize = 7;
    const TOKENS: usize = 3;
    everywhere(|rt| {
        let rings = rt.procs();
        let passes = share(1_000_000, rings * MEMBERS) / TOKENS * TOKENS;
        let members: Vec<_> = (0..rings)
            .flat_map(|number| {
                let ring: Arc<[Member; MEMBERS]> = Arc::default();
                (0..MEMBERS).map(move |me| (Arc::clone(&ring), number, me))
            })
            .map(|(ring, number, me)| {
                rt.go(move || {
                    let mut random = Random::new(number * MEMBERS + me);
                    let (mine, next) = (&ring[me], &ring[(me + 1) % MEMBERS]);
                    let pass = |tokens| {
                        for _ in 0..tokens {
                            next.inbox.fetch_add(1, SeqCst);
                            next.filled.notify_one();
                        }
                    };
                    let (mut heard, mut passed) = (0, 0);
                    if me == 0 {
                        pass(TOKENS);
                        passed = TOKENS;
                    }
                    while heard < passes {
                        mine.filled.wait();
                        let tokens = mine.inbox.swap(0, SeqCst);
                        heard += tokens;
                        random.pause(60);
                        // The first member takes out the tokens that it has put in.
                        let on = tokens.min(passes - passed);
                        passed += on;
                        pass(on);
                    }
                    assert_eq!((heard, passed), (passes, passes));
                })
            })
            .collect();
        join_all(members);
    });
}

/// Fails by a hang when a notification that meets another one, or a waiter that comes, wakes no waiter; or by a count when more
/// waits have ended than notifications were given.
#[test]
fn many_notifiers_of_one_event_are_all_heard() {
    #[derive(Default)]
    struct Board {
        news: Event,
        letters: Mutex<Vec<Arc<Event>>>,
        notified: AtomicUsize,
        woken: AtomicUsize,
        answered: AtomicUsize,
        over: AtomicBool,
    }
    const READERS: usize = 3;
    const GOROUTINES: usize = 6;
    const THREADS: usize = 2;
    everywhere(|rt| {
        let each = share(400_000, GOROUTINES + THREADS);
        let board = Arc::new(Board::default());
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                let board = Arc::clone(&board);
                rt.go(move || {
                    while !board.over.load(SeqCst) {
                        board.news.wait();
                        board.woken.fetch_add(1, SeqCst);
                        for letter in std::mem::take(&mut *board.letters.lock().unwrap()) {
                            board.answered.fetch_add(1, SeqCst);
                            letter.notify_one();
                        }
                    }
                })
            })
            .collect();
        let write = |seed| {
            let board = Arc::clone(&board);
            move || {
                let (mut random, answer) = (Random::new(seed), Arc::new(Event::new()));
                for _ in 0..each {
                    board.letters.lock().unwrap().push(Arc::clone(&answer));
                    board.notified.fetch_add(1, SeqCst);
                    board.news.notify_one();
                    random.pause(100);
                    answer.wait();
                }
            }
        };
        let goroutines: Vec<_> = (0..GOROUTINES).map(|seed| rt.go(write(seed))).collect();
        let threads: Vec<_> = (0..THREADS).map(|seed| thread::spawn(write(GOROUTINES + seed))).collect();
        join_all(goroutines);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(board.answered.load(SeqCst), each * (GOROUTINES + THREADS));
        let (woken, notified) = (board.woken.load(SeqCst), board.notified.load(SeqCst));
        assert!(woken <= notified, "{notified} notifications have ended {woken} waits");
        board.over.store(true, SeqCst);
        until(|| {
            board.news.notify_one();
            readers.iter().all(|reader| reader.is_finished())
        });
    });
}

/// Fails by a hang when one of the members that are woken together is forgotten.
#[test]
fn all_waiters_are_woken_together() {
    const WAITERS: usize = 50;
    everywhere(|rt| {
        let rounds = share(200_000, WAITERS);
        rt.run(|| {
            let (gate, passed) = (Arc::new(Event::new()), Arc::new(AtomicUsize::new(0)));
            let waiters: Vec<_> = (0..WAITERS)
                .map(|_| {
                    let (gate, passed) = (Arc::clone(&gate), Arc::clone(&passed));
                    go(move || {
                        for round in 0..rounds {
                            gate.wait();
                            passed.fetch_add(1, SeqCst);
                            // No member takes part twice.
                            until(|| passed.load(SeqCst) >= (round + 1) * WAITERS);
                        }
                    })
                })
                .collect();
            for round in 1..=rounds {
                until(|| {
                    gate.notify_all();
                    passed.load(SeqCst) >= round * WAITERS
                });
            }
            join_all(waiters);
            assert_eq!(passed.load(SeqCst), rounds * WAITERS);
        });
    });
}
