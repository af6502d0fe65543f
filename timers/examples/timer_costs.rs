//! Measures the cost of the calls, in nanoseconds, among 1, 1,000 and 100,000 timers.
//!
//! `cargo run --release -p gmp-timers --example timer_costs`
//!
//! Prints one line for each pattern, for example (2-core Ice Lake VM):
//! ```text
//! ns a round, among so many timers                   1    1000  100000
//! insert behind all, remove it                    13.6    13.7    13.7
//! insert before all, remove it                    18.5    43.0    75.6
//! insert anywhere, remove any                     29.0    39.9    63.9
//! reset any to later                              11.1     5.4    14.6
//! pop_due, insert anywhere                        16.6    44.0   122.3
//! ```

use gmp_timers::{Handle, Heap, Nanos};
use std::hint::black_box;
use std::time::Instant;

/// The other timers are due within this minute.
const SPREAD: u64 = 60_000_000_000;
const ROUNDS: u64 = 2_000_000;
const OTHERS: [usize; 3] = [1, 1_000, 100_000];

struct Bench {
    heap: Heap<[usize; 2]>,
    handles: Vec<Handle>,
    random: u64,
    now: u64,
}

impl Bench {
    fn new(others: usize) -> Bench {
        let mut bench =
            Bench { heap: Heap::new(), handles: Vec::new(), random: 88_172_645_463_325_252, now: 0 };
        for _ in 0..others {
            let due = bench.random_due();
            bench.handles.push(bench.heap.insert(due, [0; 2]));
        }
        bench
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn random_due(&mut self) -> Nanos {
        Nanos::from_nanos(self.now + self.random() % SPREAD)
    }

    /// Makes a timeout that is seldom needed behind all others, and stops it at once.
    fn far(&mut self) {
        self.now += 1;
        let handle = self.heap.insert(Nanos::from_nanos(self.now + SPREAD), [1; 2]);
        black_box(self.heap.remove(black_box(handle)));
    }

    /// Makes a short wait before all others, and cancels it at once.
    fn near(&mut self) {
        let handle = self.heap.insert(Nanos::ZERO, [1; 2]);
        black_box(self.heap.remove(black_box(handle)));
    }

    /// Makes a timer anywhere, and stops another one. That leaves dead entries that have to be compacted.
    fn replace(&mut self) {
        let due = self.random_due();
        self.handles.push(self.heap.insert(due, [1; 2]));
        let at = self.random() as usize % self.handles.len();
        black_box(self.heap.remove(self.handles.swap_remove(at)));
    }

    /// Pushes a deadline ahead, as before each read of a connection.
    fn push_ahead(&mut self) {
        self.now += 1_000;
        let at = self.random() as usize % self.handles.len();
        let due = Nanos::from_nanos(self.now + SPREAD);
        black_box(self.heap.reset(self.handles[at], due));
    }

    /// Ends a sleep, and begins the next one.
    fn fire(&mut self) {
        if let Some((due, value)) = self.heap.pop_due(Nanos::MAX) {
            self.now = due.as_nanos();
            let due = self.random_due();
            self.heap.insert(due, black_box(value));
        }
    }
}

/// Prints a row of the table. It is generic, so that no indirect call is measured with each round.
fn measure(name: &str, round: impl Fn(&mut Bench)) {
    print!("{name:<44}");
    for others in OTHERS {
        let mut bench = Bench::new(others);
        (0..ROUNDS / 10).for_each(|_| round(&mut bench));
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| round(&mut bench));
        print!("{:>8.1}", start.elapsed().as_nanos() as f64 / ROUNDS as f64);
    }
    println!();
}

fn main() {
    let [few, some, many] = OTHERS;
    println!("{:<44}{few:>8}{some:>8}{many:>8}", "ns a round, among so many timers");
    measure("insert behind all, remove it", Bench::far);
    measure("insert before all, remove it", Bench::near);
    measure("insert anywhere, remove any", Bench::replace);
    measure("reset any to later", Bench::push_ahead);
    measure("pop_due, insert anywhere", Bench::fire);
}
