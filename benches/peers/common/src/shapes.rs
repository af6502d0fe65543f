//! What the programs of `shapes.md` share: how they repeat, what they compute between two waits, their sizes.

use crate::Found;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// How often `n` operations are run after the warm-up.
pub const REPETITIONS: usize = 5;

/// The median of what repetitions of `n` operations took: nanoseconds for each.
pub fn repeated(n: u64, run: impl FnMut(u64)) -> Found {
    repeated_by(n, n, run)
}

/// As `repeated`, for `of` operations that are run by `n`.
pub fn repeated_by(n: u64, of: u64, mut run: impl FnMut(u64)) -> Found {
    measured(n, |n| {
        let start = Instant::now();
        run(n);
        start.elapsed().as_nanos() as f64 / of as f64
    })
}

/// As `repeated`, of the process's CPU time.
pub fn repeated_cpu(n: u64, mut run: impl FnMut(u64)) -> Found {
    measured(n, |n| {
        let before = crate::cpu();
        run(n);
        (crate::cpu() - before) / n as f64
    })
}

/// The median of the figures of the repetitions.
pub fn measured(n: u64, mut figure: impl FnMut(u64) -> f64) -> Found {
    figure((n / 10).max(1));
    median((0..REPETITIONS).map(|_| figure(n)).collect())
}

pub fn median(mut figures: Vec<f64>) -> Found {
    figures.sort_by(f64::total_cmp);
    Found::new(figures[figures.len() / 2])
}

/// The median, in microseconds.
pub fn median_micros(took: Vec<Duration>) -> Found {
    median(took.into_iter().map(|took| took.as_nanos() as f64 / 1e3).collect())
}

/// What a program computes between two waits: so many steps.
#[inline(never)]
pub fn work(steps: u64, seed: u64) -> u64 {
    let mut pick = Pick(seed | 1);
    (0..steps).for_each(|_| {
        pick.draw();
    });
    black_box(pick.0)
}

/// Numbers in no order, the same each time (Marsaglia's xorshift); never zero.
#[derive(Clone, Copy, Debug)]
pub struct Pick(pub u64);

impl Pick {
    /// The one with this number: the first numbers of neighbours are far from each other.
    pub fn of(number: u64) -> Pick {
        Pick((number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }
}

pub const MS: Duration = Duration::from_millis(1);

/// What backends answer, added up: each works on a number of its own.
pub fn sum_of_work(backends: u64, steps: u64) -> u64 {
    (0..backends).map(|backend| work(steps, backend)).fold(0, u64::wrapping_add)
}

/// A message that goes from one member of a graph to another: what it draws by, and how many hops are left.
#[derive(Clone, Copy, Debug)]
pub struct Hop {
    pub pick: Pick,
    pub left: u64,
}

impl Hop {
    /// A member ends with it.
    pub const STOP: Hop = Hop { pick: Pick(1), left: 0 };
}

/// How many bytes the messages of the servers have.
pub const SMALL: usize = 64;
pub const LARGE: usize = 256 << 10;

/// How long a handler's call blocks its thread.
pub fn block() {
    std::thread::sleep(Duration::from_micros(100));
}

/// What one request of `mixed` brings with it.
pub fn is_each(id: u64, nth: u64) -> bool {
    id % nth == nth - 1
}

/// How many pages a crawl finds: a tree of eights, four levels below the first.
pub const PAGES: u64 = 1 + 8 + 64 + 512 + 4096;

/// The children of a page.
pub fn children(page: u64) -> impl Iterator<Item = u64> {
    (page * 8 + 1..page * 8 + 9).take_while(|&child| child < PAGES)
}
