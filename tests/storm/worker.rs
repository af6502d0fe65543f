//! A worker of the storm: a goroutine, or a plain thread, that does one operation after the other.

use crate::ledger::{Aligned, Large, Probe, Small, isolated};
use crate::watch::{self, Watched};
use crate::world::World;
use crate::{channels, lives, locks, odd, selects, sockets, timers};
use common::random::Random;
use gmp::context::{Cancel, Context};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    Goroutine,
    Thread,
}

pub struct Operation {
    pub name: &'static str,
    /// How often it comes, compared with the others.
    weight: u64,
    run: fn(&mut Worker),
}

const fn op(name: &'static str, weight: u64, run: fn(&mut Worker)) -> Operation {
    Operation { name, weight, run }
}

/// Operations whose weight is small start threads, cost milliseconds, or change what all others meet.
pub static OPERATIONS: &[Operation] = &[
    op("chan_send", 600, channels::send::<Small>),
    op("chan_recv", 600, channels::recv::<Small>),
    op("chan_try", 400, channels::tries::<Small>),
    op("chan_ended", 400, channels::ended::<Small>),
    op("chan_large", 200, channels::send::<Large>),
    op("chan_large_recv", 200, channels::recv::<Large>),
    op("chan_large_ended", 100, channels::ended::<Large>),
    op("chan_aligned", 100, channels::tries::<Aligned>),
    op("chan_aligned_ended", 100, channels::ended::<Aligned>),
    op("chan_passing", 200, channels::passing),
    op("chan_empty", 200, channels::messages_without_size),
    op("chan_huge", 5, channels::huge),
    op("select_dynamic", 400, selects::dynamic::<Small>),
    op("select_large", 200, selects::dynamic::<Large>),
    op("select_limited", 400, selects::limited::<Small>),
    op("select_promise", 400, selects::promise::<Small>),
    op("select_promise_aligned", 100, selects::promise::<Aligned>),
    op("select_ready", 100, selects::ready::<Small>),
    op("lock_mutex", 200, locks::mutex),
    op("lock_mutex_unlocked", 50, locks::unlocked),
    op("lock_rwlock", 200, locks::rwlock),
    op("lock_semaphore", 150, locks::semaphore),
    op("lock_condvar", 200, locks::condvar),
    op("lock_barrier", 100, locks::barrier),
    op("lock_waitgroup", 100, locks::wait_group),
    op("lock_event", 100, locks::event),
    op("lock_once", 50, locks::once),
    op("lock_single_flight", 50, locks::single_flight),
    op("lock_errgroup", 20, locks::err_group),
    op("spawn_join", 300, lives::join),
    op("spawn_detached", 200, lives::detached),
    op("spawn_fails", 100, lives::fails),
    op("spawn_goexit", 100, lives::goexit),
    op("spawn_scope", 100, lives::scope),
    op("spawn_crowd", 1, lives::crowd),
    op("spawn_locals", 50, lives::locals),
    op("timer_callback", 200, timers::callback),
    op("timer_channel", 200, timers::channel),
    op("timer_ticker", 50, timers::ticker),
    op("timer_context", 100, timers::context),
    op("timer_sleep", 300, timers::sleep),
    op("socket_talk", 300, sockets::talk),
    op("socket_silence", 100, sockets::silence),
    op("socket_accept", 50, sockets::accept),
    op("socket_close", 30, sockets::close),
    op("odd_blocking", 50, odd::blocking),
    op("odd_unmarked", 10, odd::unmarked),
    op("odd_hog", 1, odd::hog),
    op("odd_locked", 20, odd::locked),
    op("odd_locked_for_good", 3, odd::locked_for_good),
    op("odd_with_stack", 30, odd::with_stack),
    op("odd_procs", 10, odd::procs),
    op("odd_dump", 1, odd::dump),
    op("odd_runtime", 1, odd::runtime),
    op("odd_yield", 300, odd::yields),
];

/// Returns the operations whose names begin like this; all of them if no name is given.
pub fn chosen(beginnings: &[String]) -> Result<Vec<usize>, String> {
    let chosen: Vec<_> = (0..OPERATIONS.len())
        .filter(|&index| {
            let name = OPERATIONS[index].name;
            beginnings.is_empty() || beginnings.iter().any(|text| name.starts_with(text.as_str()))
        })
        .collect();
    if chosen.is_empty() { Err(format!("no operation begins with {beginnings:?}")) } else { Ok(chosen) }
}

/// Cancels when it is dropped, also by the end of a runtime.
struct Cancels(Cancel);

impl Drop for Cancels {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

pub struct Worker {
    pub me: usize,
    pub kind: Kind,
    pub random: Random,
    pub world: Arc<World>,
    /// A connection stays from one operation to the next.
    pub connection: Option<sockets::Connection>,
    choice: Arc<[usize]>,
    /// A worker that is left behind counts as alive.
    _probe: Probe,
}

impl Worker {
    pub fn new(me: usize, kind: Kind, seed: u64, world: &Arc<World>, choice: &Arc<[usize]>) -> Self {
        Worker {
            me,
            kind,
            random: Random::of_seed(seed ^ (me as u64) << 40),
            world: Arc::clone(world),
            connection: None,
            choice: Arc::clone(choice),
            _probe: world.book.probe(),
        }
    }

    pub fn work(mut self) {
        let _tells = Watched(self.me);
        while !self.world.stops() {
            self.step();
        }
    }

    /// Does one operation; a deliberate panic ends with it.
    fn step(&mut self) {
        let operation = self.choose();
        watch::begins(self.me, operation);
        isolated(|| (OPERATIONS[operation].run)(self));
    }

    fn choose(&mut self) -> usize {
        let all: u64 = self.choice.iter().map(|&index| OPERATIONS[index].weight).sum();
        let mut left = self.random.below(all);
        *self
            .choice
            .iter()
            .find(|&&index| match left.checked_sub(OPERATIONS[index].weight) {
                Some(rest) => {
                    left = rest;
                    false
                }
                None => true,
            })
            .expect("the sum of the weights is more than what is left")
    }

    pub fn is_goroutine(&self) -> bool {
        self.kind == Kind::Goroutine
    }

    /// Passes some time, awake or not.
    pub fn pause(&mut self) {
        match self.random.below(4) {
            0 => gmp::yield_now(),
            1 => {
                let until = Instant::now() + self.random.micros(20);
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
            }
            2 => gmp::time::sleep(self.random.micros(60)),
            _ => {}
        }
    }

    /// Runs an operation that may wait for ever, and makes a context end it, in one of the possible ways. Returns `None` if it
    /// was ended.
    pub fn ended<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let background = Context::background();
        let limit = self.random.micros(300);
        match self.random.below(7) {
            0 | 1 => gmp::time::timeout(limit, || f(self)).ok(),
            2 => {
                let (ctx, cancel) = background.with_cancel();
                let canceller = Cancels(cancel);
                self.meanwhile(move || {
                    let _canceller = canceller;
                    gmp::time::sleep(limit);
                });
                ctx.run(|| f(self)).ok()
            }
            // The context is over before the operation begins.
            3 => {
                let past = Instant::now().checked_sub(Duration::from_millis(1)).unwrap_or_else(Instant::now);
                let (ctx, _cancel) = background.with_deadline(past);
                ctx.run(|| f(self)).ok()
            }
            // The outer context ends first, or both end at once.
            4 => {
                let (outer, _cancel) = background.with_timeout(limit);
                let inner_limit = *self.random.pick(&[limit, Duration::from_secs(3600)]);
                let (inner, _cancel) = outer.with_timeout(inner_limit);
                outer.run(|| inner.run(|| f(self)).ok()).ok().flatten()
            }
            // A chain of contexts, and the one at its top is cancelled.
            5 => {
                let (top, cancel) = background.with_cancel();
                let depth = self.random.below(20);
                let chain: Vec<_> = (0..depth)
                    .scan(top.clone(), |last, number| {
                        let next = last.with_value(number).with_cancel();
                        *last = next.0.clone();
                        Some(next)
                    })
                    .collect();
                let ctx = chain.last().map_or(&top, |last| &last.0);
                let _timer = gmp::time::after_func(limit, move || cancel.cancel());
                ctx.run(|| f(self)).ok()
            }
            // The operation swallows the throw once; then it is thrown again.
            _ => gmp::time::timeout(limit, || {
                match std::panic::catch_unwind(|| gmp::time::sleep(Duration::from_secs(3600))) {
                    Ok(()) => panic!("an hour has passed"),
                    // The end of a runtime throws three times, and then leaves the goroutine where it is.
                    Err(payload) if self.world.runtime().is_none() => std::panic::resume_unwind(payload),
                    Err(_swallowed) => f(self),
                }
            })
            .ok(),
        }
    }

    /// Makes another goroutine or thread call `f`, without waiting for it.
    pub fn meanwhile(&mut self, f: impl FnOnce() + Send + 'static) {
        if self.is_goroutine() {
            drop(gmp::go(f));
        } else if let Some(runtime) = self.world.runtime() {
            drop(runtime.go(f));
        } else {
            drop(thread::spawn(f));
        }
    }
}
