//! `GMPDEBUG=migrate=1`: a future or a closure that uses a `thread_local!` and does not park finds its thread's variable,
//! though the call that got it parks. The tests can fail only with optimisation: then the compiler inlines the call, and the
//! future or closure, into one function, and computes the variable's address once.

use common::child;
use common::everywhere;
use common::futures::Signal;
use gmp::chan::watch;
use gmp::context::Context;
use gmp::io::Watched;
use gmp::sync::{Condvar, LazyLock, Mutex, Once, OnceLock, RwLock, SingleFlight};
use gmp::{block_on, blocking, go, yield_now};
use std::cell::Cell;
use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const ROUNDS: u32 = 50;
const LONG: Duration = Duration::from_secs(600);

thread_local! {
    static VARIABLE: Cell<[u64; 8]> = const { Cell::new([0; 8]) };
}

#[inline(never)]
fn address(variable: &Cell<[u64; 8]>) -> usize {
    black_box(variable.as_ptr() as usize)
}

#[inline(never)]
fn right_address() -> usize {
    black_box(VARIABLE.with(address))
}

/// Uses the thread-local during one call, and is inlined, like much code of other crates.
#[inline(always)]
fn look(wrong: &Cell<u32>) {
    let found = VARIABLE.with(address);
    wrong.set(wrong.get() + u32::from(found != right_address()));
}

/// Calls `look` when it is dropped.
struct Looks<'a>(&'a Cell<u32>);

impl Drop for Looks<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        look(self.0);
    }
}

#[inline(never)]
fn computes(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        spin_loop();
    }
}

/// Runs `f` beside a goroutine that calls `helps` again and again.
fn beside<R>(helps: impl Fn() + Send + 'static, f: impl FnOnce() -> R) {
    let over = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&over);
    let other = go(move || {
        while !theirs.load(SeqCst) {
            helps();
            yield_now();
        }
    });
    f();
    over.store(true, SeqCst);
    other.join().unwrap();
}

/// The condition of a loop that ends after some rounds.
#[inline(always)]
fn not_yet(rounds: &mut u32, wrong: &Cell<u32>) -> bool {
    look(wrong);
    *rounds += 1;
    *rounds < ROUNDS
}

/// Counts in its argument how often `look` has found a wrong address.
type Call = fn(&Cell<u32>);

/// Each calls `look` between two parks, of the call itself or of the loop around it.
const LOOKS: [(&str, Call); 20] = [
    ("block_on polls", |wrong| {
        let signal = Arc::new(Signal::new());
        let theirs = Arc::clone(&signal);
        beside(
            move || theirs.give(),
            || {
                block_on(async {
                    for _ in 0..ROUNDS {
                        signal.take().await;
                        look(wrong);
                    }
                })
            },
        );
    }),
    ("block_on drops the future", |wrong| {
        for _ in 0..ROUNDS {
            yield_now();
            let looks = Looks(wrong);
            block_on(async move { _ = &looks });
        }
    }),
    ("Condvar::wait_while", |wrong| {
        let pair = Arc::new((Mutex::new(0), Condvar::new()));
        let theirs = Arc::clone(&pair);
        let waits = || pair.1.wait_while(&mut pair.0.lock(), |rounds| not_yet(rounds, wrong));
        beside(move || _ = theirs.1.notify_all(), waits);
    }),
    ("Condvar::wait_while_for", |wrong| {
        let pair = Arc::new((Mutex::new(0), Condvar::new()));
        let theirs = Arc::clone(&pair);
        let waits = || pair.1.wait_while_for(&mut pair.0.lock(), |rounds| not_yet(rounds, wrong), LONG);
        beside(move || _ = theirs.1.notify_all(), waits);
    }),
    ("watch: wait_for", |wrong| {
        let (sender, mut receiver) = watch::channel(0);
        let mut rounds = 0;
        let waits = || drop(receiver.wait_for(|_| !not_yet(&mut rounds, wrong)).unwrap());
        beside(move || _ = sender.send(0), waits);
    }),
    ("watch: send_modify", |wrong| {
        let sender = watch::Sender::new(0);
        for _ in 0..ROUNDS {
            yield_now();
            sender.send_modify(|_| look(wrong));
        }
    }),
    ("Once::call_once", |wrong| {
        for _ in 0..ROUNDS {
            yield_now();
            Once::new().call_once(|| look(wrong));
        }
    }),
    ("OnceLock::get_or_init", |wrong| {
        for _ in 0..ROUNDS {
            yield_now();
            OnceLock::new().get_or_init(|| look(wrong));
        }
    }),
    ("LazyLock::force", |wrong| {
        for _ in 0..ROUNDS {
            yield_now();
            LazyLock::force(&LazyLock::new(|| look(wrong)));
        }
    }),
    ("SingleFlight::work", |wrong| {
        let flight = SingleFlight::new();
        for _ in 0..ROUNDS {
            yield_now();
            flight.work(&1, || look(wrong));
        }
    }),
    ("MutexGuard::unlocked", |wrong| {
        let lock = Mutex::new(());
        for _ in 0..ROUNDS {
            yield_now();
            gmp::sync::MutexGuard::unlocked(&mut lock.lock(), || look(wrong));
        }
    }),
    ("RwLockUpgradableReadGuard::with_upgraded", |wrong| {
        let lock = RwLock::new(());
        for _ in 0..ROUNDS {
            yield_now();
            lock.upgradable_read().with_upgraded(|()| look(wrong));
        }
    }),
    ("scope", |wrong| {
        for _ in 0..ROUNDS {
            yield_now();
            gmp::scope(|_| look(wrong));
        }
    }),
    ("fork_scope", |wrong| {
        for _ in 0..ROUNDS {
            yield_now();
            gmp::fork_scope(|_| look(wrong));
        }
    }),
    ("join", |wrong| {
        let (mut here, there) = (0, AtomicBool::new(false));
        for _ in 0..ROUNDS {
            yield_now();
            let aside = || {
                let wrong = Cell::new(0);
                look(&wrong);
                there.fetch_or(wrong.get() > 0, SeqCst);
            };
            gmp::join(|| look(wrong), aside);
            here += u32::from(there.swap(false, SeqCst));
        }
        wrong.set(wrong.get() + here);
    }),
    ("blocking", |wrong| {
        for _ in 0..ROUNDS {
            yield_now();
            blocking(|| look(wrong));
        }
    }),
    ("blocking, without a P", |wrong| {
        // There are more of these goroutines than Ps, so some wait for the P of this one, and the monitor takes it.
        let over = Arc::new(AtomicBool::new(false));
        let others = (0..gmp::procs() + 2).map(|_| {
            let over = Arc::clone(&over);
            go(move || {
                while !over.load(SeqCst) {
                    computes(Duration::from_micros(200));
                    yield_now();
                }
            })
        });
        let others: Vec<_> = others.collect();
        for _ in 0..20 {
            yield_now();
            computes(Duration::from_millis(30));
            blocking(|| look(wrong));
        }
        over.store(true, SeqCst);
        others.into_iter().for_each(|other| other.join().unwrap());
    }),
    ("Context::run", |wrong| {
        let (ends, _cancel) = Context::background().with_cancel();
        for context in [Context::background(), ends] {
            for _ in 0..ROUNDS {
                yield_now();
                context.run(|| look(wrong)).unwrap();
            }
        }
    }),
    ("with_stack", |wrong| {
        for _ in 0..ROUNDS {
            yield_now();
            gmp::with_stack(100_000, || look(wrong));
        }
    }),
    ("Watched::write_with", |wrong| {
        let (_reader, writer) = std::io::pipe().unwrap();
        let writer = Watched::new(writer);
        for _ in 0..ROUNDS {
            yield_now();
            let looks = |_: &_| {
                look(wrong);
                Ok(())
            };
            writer.write_with(looks).unwrap();
        }
    }),
];

/// Fails in an optimised build, by the names of the calls whose future or closure has used the variable of a thread that the
/// goroutine had left.
#[test]
fn what_a_call_is_given_finds_the_variable_of_its_thread() {
    if !child::is_child() {
        child::passes("what_a_call_is_given_finds_the_variable_of_its_thread", &[("GMPDEBUG", "migrate=1")]);
        return;
    }
    everywhere(|rt| {
        rt.run(|| {
            let of_each = LOOKS.map(|(name, looks)| {
                let wrong = Cell::new(0);
                looks(&wrong);
                (name, wrong.get())
            });
            let wrong: Vec<_> = of_each.into_iter().filter(|(_, wrong)| *wrong > 0).collect();
            assert_eq!(wrong, []);
        });
    });
}
