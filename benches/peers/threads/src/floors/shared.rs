//! What the floors have in place of a runtime's channels and barriers.

use std::collections::VecDeque;
use std::sync::atomic::{
    AtomicBool, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst,
};

/// What one thread uses alone, and yet pays for a lock: an exchange that takes it and a store that gives it back, which knows
/// of no waiters.
pub struct Locked<T> {
    held: AtomicBool,
    value: T,
}

impl<T> Locked<T> {
    pub fn new(value: T) -> Self {
        Locked { held: AtomicBool::new(false), value }
    }

    #[inline]
    pub fn with<R>(&mut self, act: impl FnOnce(&mut T) -> R) -> R {
        assert!(!self.held.swap(true, Acquire), "one thread alone uses it");
        let done = act(&mut self.value);
        self.held.store(false, Release);
        done
    }
}

/// A channel's queue.
pub struct Ring<T> {
    room: usize,
    items: Locked<VecDeque<T>>,
}

impl<T> Ring<T> {
    pub fn new(room: usize) -> Self {
        Ring { room, items: Locked::new(VecDeque::with_capacity(room)) }
    }

    /// False: there is no room, and the item is gone.
    #[inline]
    pub fn push(&mut self, item: T) -> bool {
        let room = self.room;
        self.items.with(|items| {
            let fits = items.len() < room;
            if fits {
                items.push_back(item);
            }
            fits
        })
    }

    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.items.with(VecDeque::pop_front)
    }
}

/// A barrier of threads with a core each: a thread that waits looks for some time before it sleeps.
pub struct Meeting {
    of: u32,
    arrived: AtomicU32,
    /// How often all have met.
    met: AtomicU32,
    asleep: AtomicU32,
}

impl Meeting {
    pub fn of(threads: u64) -> Self {
        let none = || AtomicU32::new(0);
        Meeting { of: threads as u32, arrived: none(), met: none(), asleep: none() }
    }

    pub fn wait(&self) {
        // Longer than a sleep and a wake of the other one take: else a single sleep makes the two sleep by turns.
        const LOOKS: u32 = 2_000;
        // Relaxed: it changes when all have arrived, and so not before this thread has.
        let met = self.met.load(Relaxed);
        // SeqCst: what each wrote before it came is seen by all that leave, by way of the last one.
        if self.arrived.fetch_add(1, SeqCst) + 1 == self.of {
            // Before `met`: only then another round begins.
            self.arrived.store(0, Relaxed);
            // SeqCst: either this sees the sleeper, or the sleeper's call sees the new count.
            self.met.store(met + 1, SeqCst);
            if self.asleep.load(SeqCst) > 0 {
                wake(&self.met, i32::MAX);
            }
            return;
        }
        for _ in 0..LOOKS {
            if self.met.load(SeqCst) != met {
                return;
            }
            std::hint::spin_loop();
        }
        self.asleep.fetch_add(1, SeqCst);
        while self.met.load(SeqCst) == met {
            sleep_while(&self.met, met);
        }
        self.asleep.fetch_sub(1, SeqCst);
    }
}

pub fn wake(word: &AtomicU32, threads: i32) {
    // SAFETY: the word lives as long as the call.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, threads)
    };
}

/// Sleeps if it is still this.
pub fn sleep_while(word: &AtomicU32, this: u32) {
    // SAFETY: the word lives as long as the call.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, this, 0)
    };
}
