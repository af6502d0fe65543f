//! A rate limiter: a bucket of tokens that fills at a steady rate, like Go's `x/time/rate`.
//!
//! *Exact.* The bucket is one number: the moment at which it is full again, in *shares* of a nanosecond. A nanosecond has as
//! many shares as tokens come in a period, and a token takes as many shares as the period has nanoseconds. So three tokens a
//! second are three tokens a second after a year, too: only the time that a caller has to wait is rounded.
//!
//! *Fair.* Waiters are in the queue of a `Semaphore`, first in, first out. Only the first waiter has its tokens, on credit, and
//! sleeps until they are there: if it wakes late, the next one is no later for that. Nobody gets past the waiters, neither by
//! `allow` nor by `reserve`. The obvious way gives each waiter its tokens as it comes, and then a waiter that gives up leaves a
//! hole: the waiters behind it wait as long as if it had gone on.
//!
//! *Ended from outside.* A wait under a context or a `time::timeout` that is over unwinds, and gives its tokens back.

use gmp::sync::{Mutex, Semaphore};
use gmp::time;
use std::mem;
use std::time::{Duration, Instant};

/// A number of tokens in each period.
#[derive(Copy, Clone, Debug)]
pub struct Rate {
    pub tokens: u32,
    pub period: Duration,
}

pub struct Limiter {
    state: Mutex<State>,
    /// Held by the first waiter.
    turn: Semaphore,
}

struct State {
    bucket: Bucket,
    waiting: usize,
}

/// Tokens that were taken before they are there.
#[must_use = "the tokens are taken"]
pub struct Reservation {
    /// How long the caller has to wait before it acts.
    pub delay: Duration,
    cost: u128,
    full: u128,
}

impl Limiter {
    /// Makes a limiter with a full bucket, which has room for `burst` tokens.
    pub fn new(rate: Rate, burst: u32) -> Self {
        let state = State { bucket: Bucket::new(rate, burst, Instant::now()), waiting: 0 };
        Limiter { state: Mutex::new(state), turn: Semaphore::new(1) }
    }

    /// Takes `tokens` if they are there and nobody waits; returns `false` otherwise, also if the bucket has no room for so
    /// many. Does not block.
    pub fn allow(&self, tokens: u32) -> bool {
        let mut state = self.state.lock();
        state.waiting == 0
            && state.bucket.has_room(tokens)
            && state.bucket.take(Instant::now(), tokens).is_ok()
    }

    /// Takes `tokens` on credit, for a caller that comes back after the delay; `None` while others wait. Does not block.
    ///
    /// # Panics
    /// If there is no room for so many in the bucket: they would never be there.
    pub fn reserve(&self, tokens: u32) -> Option<Reservation> {
        let mut state = self.state.lock();
        state.bucket.assert_room(tokens);
        (state.waiting == 0).then(|| state.bucket.reserve(Instant::now(), tokens))
    }

    /// Gives the tokens back, unless others were reserved or taken since: their delays counted on these tokens.
    pub fn cancel(&self, reservation: Reservation) {
        self.state.lock().bucket.cancel(reservation);
    }

    /// Takes `tokens`. Parks the goroutine until they are there, and earlier waiters have theirs.
    ///
    /// # Panics
    /// As [`reserve`](Self::reserve).
    pub fn wait(&self, tokens: u32) {
        let mut state = self.state.lock();
        state.bucket.assert_room(tokens);
        if state.waiting == 0 && state.bucket.take(Instant::now(), tokens).is_ok() {
            return;
        }
        state.waiting += 1;
        drop(state);
        // Dropped last: nobody gets past in between.
        let _waits = Waits(self);
        let _turn = self.turn.acquire_guard(1).expect("nobody closes it");
        let reservation = self.state.lock().bucket.reserve(Instant::now(), tokens);
        let delay = reservation.delay;
        // Dropped first: tokens that are given back are there for the next waiter.
        let credit = Credit { limiter: self, reservation: Some(reservation) };
        time::sleep(delay);
        mem::forget(credit);
    }

    /// Returns how many goroutines wait at this moment.
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting
    }
}

/// Counts a waiter.
struct Waits<'a>(&'a Limiter);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

/// The tokens of the first waiter, which are given back if the wait is unwound. Nobody else takes any meanwhile.
struct Credit<'a> {
    limiter: &'a Limiter,
    reservation: Option<Reservation>,
}

impl Drop for Credit<'_> {
    fn drop(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            self.limiter.cancel(reservation);
        }
    }
}

/// The arithmetic, at the times that the caller gives.
pub struct Bucket {
    rate: Rate,
    burst: u32,
    begin: Instant,
    /// When the bucket is full again, in shares since the beginning.
    full: u128,
}

impl Bucket {
    /// Makes a bucket that is full at `now`.
    pub fn new(rate: Rate, burst: u32, now: Instant) -> Self {
        assert!(rate.tokens > 0 && !rate.period.is_zero(), "{rate:?} is no rate");
        Bucket { rate, burst, begin: now, full: 0 }
    }

    fn has_room(&self, tokens: u32) -> bool {
        tokens <= self.burst
    }

    fn assert_room(&self, tokens: u32) {
        assert!(self.has_room(tokens), "{tokens} tokens of a bucket that has room for {}", self.burst);
    }

    fn cost(&self, tokens: u32) -> u128 {
        // 2^32 times 2^94 at most.
        u128::from(tokens) * self.rate.period.as_nanos()
    }

    fn shares(&self, at: Instant) -> u128 {
        at.saturating_duration_since(self.begin).as_nanos() * u128::from(self.rate.tokens)
    }

    /// Returns when the bucket would be full without `tokens`, and how long after `now` it has them.
    fn without(&self, now: Instant, tokens: u32) -> (u128, Duration) {
        self.assert_room(tokens);
        let now = self.shares(now);
        let full = self.full.max(now).saturating_add(self.cost(tokens));
        let short = (full - now).saturating_sub(self.cost(self.burst));
        // Rounded up: not a nanosecond too early.
        let nanos = short.div_ceil(u128::from(self.rate.tokens));
        let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
        (full, Duration::new(seconds, (nanos % 1_000_000_000) as u32))
    }

    /// Takes the tokens, or returns how long it takes until they are there.
    pub fn take(&mut self, now: Instant, tokens: u32) -> Result<(), Duration> {
        match self.without(now, tokens) {
            (full, Duration::ZERO) => {
                self.full = full;
                Ok(())
            }
            (_, short) => Err(short),
        }
    }

    pub fn reserve(&mut self, now: Instant, tokens: u32) -> Reservation {
        let (full, delay) = self.without(now, tokens);
        self.full = full;
        Reservation { delay, cost: self.cost(tokens), full }
    }

    pub fn cancel(&mut self, reservation: Reservation) {
        if self.full == reservation.full {
            self.full -= reservation.cost;
        }
    }
}
