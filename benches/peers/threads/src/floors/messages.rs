//! Rows whose goroutines send each other messages. One thread does what each of them would do, until a ring is full or empty.

use super::clock::{self, MS};
use super::shared::Ring;
use peer_common::shapes::work;
use peer_common::sum_below;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

pub const FAST: u64 = 28;
const SLOW: u64 = 4;

struct Message {
    number: u64,
    _rest: [u64; 7],
}

/// The publisher fills the rings, then each member empties its own; the slow ones when their millisecond is over.
pub fn pub_sub(n: u64) {
    const ROOM: u64 = 64;
    let rings =
        |members| -> Vec<Ring<Arc<Message>>> { (0..members).map(|_| Ring::new(ROOM as usize)).collect() };
    let (mut fast, mut slow) = (rings(FAST), rings(SLOW));
    let (mut sums, mut got, mut lost, mut due) = ([0; FAST as usize], 0, 0, 0);
    let take = |slow: &mut [Ring<Arc<Message>>]| -> u64 {
        slow.iter_mut().map(|member| std::iter::from_fn(|| member.pop()).count() as u64).sum()
    };
    peer_common::exact_timers();
    for number in 0..n {
        let message = Arc::new(Message { number, _rest: [number; 7] });
        fast.iter_mut().for_each(|member| assert!(member.push(Arc::clone(&message))));
        lost += slow.iter_mut().map(|member| u64::from(!member.push(Arc::clone(&message)))).sum::<u64>();
        drop(message);
        if number % ROOM == ROOM - 1 || number + 1 == n {
            for (member, sum) in fast.iter_mut().zip(&mut sums) {
                *sum += std::iter::from_fn(|| member.pop()).map(|message| message.number).sum::<u64>();
            }
            if clock::now() >= due {
                got += take(&mut slow);
                due = clock::now() + MS;
            }
        }
    }
    // A slow one that got something sleeps once more before it finds the end.
    loop {
        clock::sleep_until(due);
        let taken = take(&mut slow);
        if taken == 0 {
            break;
        }
        got += taken;
        due = clock::now() + MS;
    }
    assert!(sums.iter().all(|&sum| sum == sum_below(n)));
    assert_eq!(got + lost, SLOW * n);
}

const ROOM: usize = 16;

pub fn pipeline(n: u64) {
    const STAGES: [u64; 4] = [20, 100, 400, 50];
    let mut rings: [Ring<u64>; 5] = std::array::from_fn(|_| Ring::new(ROOM));
    let (mut next, mut sum, mut got) = (0, 0, 0);
    while got < n {
        while next < n && rings[0].push(next) {
            next += 1;
        }
        for (stage, steps) in STAGES.into_iter().enumerate() {
            while let Some(item) = rings[stage].pop() {
                work(steps, item);
                assert!(rings[stage + 1].push(item), "it has been emptied");
            }
        }
        while let Some(item) = rings[4].pop() {
            sum += item;
            got += 1;
        }
    }
    assert_eq!(sum, sum_below(n));
}

/// What the two threads of a pipeline share: items before their 400 steps, and after them.
#[derive(Default)]
struct Middle {
    before: VecDeque<u64>,
    after: VecDeque<u64>,
}

/// One thread does the first stages, the other one the last; the 400 steps between them are done by either: by the first one
/// when the second has enough to do.
pub fn pipeline_by_two(n: u64) {
    let rings = Mutex::<Middle>::default();
    let lock = || -> MutexGuard<'_, Middle> { rings.lock().unwrap() };
    let first = || {
        for item in 0..n {
            work(20, item);
            work(100, item);
            while !push(&mut lock().before, item) {
                help(&lock);
            }
        }
        while help(&lock) {}
    };
    let last = || {
        let (mut sum, mut got) = (0, 0);
        while got < n {
            let mut rings = lock();
            let done = rings.after.pop_front();
            let item = done.or_else(|| rings.before.pop_front());
            drop(rings);
            let Some(item) = item else {
                std::hint::spin_loop();
                continue;
            };
            if done.is_none() {
                work(400, item);
            }
            work(50, item);
            sum += item;
            got += 1;
        }
        assert_eq!(sum, sum_below(n));
    };
    std::thread::scope(|scope| {
        scope.spawn(first);
        last();
    });
}

/// False: all have been taken.
fn help<'a>(lock: &impl Fn() -> MutexGuard<'a, Middle>) -> bool {
    let taken = lock().before.pop_front();
    let Some(item) = taken else { return false };
    work(400, item);
    while !push(&mut lock().after, item) {
        std::hint::spin_loop();
    }
    true
}

fn push(ring: &mut VecDeque<u64>, item: u64) -> bool {
    let fits = ring.len() < ROOM;
    if fits {
        ring.push_back(item);
    }
    fits
}

pub fn worker_pool(n: u64) {
    let (mut jobs, mut results) = (Ring::new(64), Ring::new(64));
    let (mut next, mut sum, mut got) = (0, 0, 0);
    while got < n {
        while next < n && jobs.push(next) {
            next += 1;
        }
        while let Some(job) = jobs.pop() {
            work(100, job);
            assert!(results.push(job), "it has been emptied");
        }
        while let Some(result) = results.pop() {
            sum += result;
            got += 1;
        }
    }
    assert_eq!(sum, sum_below(n));
}
