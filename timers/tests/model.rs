//! The heap against a list that is searched from end to end: after any sequence of calls, both give the same answers.

use gmp_timers::{Handle, Heap, Nanos};

/// Marsaglia's xorshift64: the same sequence for the same seed, on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) % bound
    }
}

struct Known {
    due: Nanos,
    turn: u64,
    id: u64,
    handle: Handle,
}

/// Makes each change in the heap and in the list.
struct Pair {
    heap: Heap<u64>,
    list: Vec<Known>,
    stale: Vec<Handle>,
    calls: u64,
}

impl Pair {
    fn insert(&mut self, due: Nanos) {
        self.calls += 1;
        let handle = self.heap.insert(due, self.calls);
        self.list.push(Known { due, turn: self.calls, id: self.calls, handle });
    }

    fn remove(&mut self, at: usize) {
        let known = self.list.swap_remove(at);
        assert_eq!(self.heap.remove(known.handle), Some(known.id));
        self.stale.push(known.handle);
    }

    fn reset(&mut self, at: usize, due: Nanos) {
        self.calls += 1;
        assert!(self.heap.reset(self.list[at].handle, due));
        (self.list[at].due, self.list[at].turn) = (due, self.calls);
    }

    fn earliest(&self) -> Option<usize> {
        (0..self.list.len()).min_by_key(|&at| (self.list[at].due, self.list[at].turn))
    }

    fn pop_due(&mut self, now: Nanos) -> bool {
        let Some(at) = self.earliest().filter(|&at| self.list[at].due <= now) else {
            assert_eq!(self.heap.pop_due(now), None);
            return false;
        };
        let known = self.list.swap_remove(at);
        assert_eq!(self.heap.pop_due(now), Some((known.due, known.id)));
        self.stale.push(known.handle);
        true
    }

    /// Uses old handles and new ones, and among them handles of slots that are used again.
    fn touch_stale(&mut self, random: &mut Random) {
        if let Some(last) = self.stale.len().checked_sub(1) {
            let handle = self.stale[random.below(self.stale.len() as u64) as usize];
            assert_eq!(self.heap.remove(handle), None);
            assert!(!self.heap.reset(self.stale[last], Nanos::ZERO));
        }
    }

    fn compare(&mut self, early: bool) {
        let earliest = self.earliest().map(|at| self.list[at].due);
        assert_eq!((self.heap.len(), self.heap.is_empty()), (self.list.len(), self.list.is_empty()));
        assert_eq!(self.heap.next_due().is_none(), earliest.is_none());
        assert!(self.heap.next_due() <= earliest);
        if early && let Some(before) = earliest.and_then(|due| due.as_nanos().checked_sub(1)) {
            assert_eq!(self.heap.pop_due(Nanos::from_nanos(before)), None);
            assert_eq!(self.heap.next_due(), earliest);
        }
    }
}

/// `crowd` is roughly the number of timers. Due times are at most `spread` ahead; a small `spread` makes many of them equal.
fn run(seed: u64, crowd: u64, spread: u64, calls: u64) {
    let mut random = Random(seed);
    let mut pair = Pair { heap: Heap::new(), list: Vec::new(), stale: Vec::new(), calls: 0 };
    let mut now = 1_000;
    for call in 0..calls {
        let some = random.below(pair.list.len().max(1) as u64) as usize;
        // Fills up to the crowd, then thins out, then fills up again.
        let filling = (call / (4 * crowd)).is_multiple_of(2);
        let due = match random.below(50) {
            0 => Nanos::MAX,
            1 => Nanos::ZERO,
            _ => Nanos::from_nanos(now + random.below(spread)),
        };
        match random.below(10) {
            0..4 if filling => pair.insert(due),
            0 => pair.insert(due),
            4..6 if !pair.list.is_empty() => pair.remove(some),
            6..8 if !pair.list.is_empty() => pair.reset(some, due),
            8 => {
                now += random.below(spread / 8 + 2);
                while pair.pop_due(Nanos::from_nanos(now)) {}
            }
            9 => pair.touch_stale(&mut random),
            _ => {}
        }
        pair.compare(random.below(16) == 0);
    }
    let mut rest = Vec::new();
    for (due, id) in pair.heap.drain() {
        let at = pair.earliest().expect("the heap had more timers than were inserted");
        let known = pair.list.swap_remove(at);
        assert_eq!((due, id), (known.due, known.id));
        rest.push(known.handle);
    }
    assert_eq!((pair.list.len(), pair.heap.len(), pair.heap.next_due()), (0, 0, None));
    pair.insert(Nanos::from_nanos(now));
    for handle in rest {
        assert_eq!(pair.heap.remove(handle), None);
    }
    assert!(pair.pop_due(Nanos::from_nanos(now)));
}

/// Fails when an answer differs from the list's: a timer is lost, early, late, repeated or out of order; a stale handle has an
/// effect; `next_due` is past the earliest timer, or is inexact after a call of `pop_due` that came too early.
#[test]
fn any_sequence_of_calls_answers_as_a_plain_list_does() {
    for seed in 1..=60 {
        run(seed * 0x9E37_79B9, 1 + seed * 3 % 40, 1 + seed % 50, 2_000);
    }
}

/// As above, with enough dead entries to be compacted, while blocks come and go.
#[test]
fn a_crowd_of_timers_answers_as_a_plain_list_does() {
    for (seed, spread) in [(7, 100_000), (8, 3_000), (9, 20)] {
        run(seed, 1_500, spread, 16_000);
    }
}
