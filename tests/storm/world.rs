//! What the workers of a round share.

use crate::channels::{Channels, Passing};
use crate::ledger::Book;
use crate::locks::Locks;
use crate::sockets::Sockets;
use crate::timers::Timers;
use gmp::Runtime;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak};

pub struct World {
    pub procs: usize,
    pub book: Arc<Book>,
    pub channels: Channels,
    pub passing: Passing,
    pub locks: Locks,
    pub timers: Timers,
    pub sockets: Sockets,
    /// A crowd of goroutines is under way.
    pub crowded: AtomicBool,
    /// For plain threads, which can't start a goroutine otherwise.
    runtime: Mutex<Weak<Runtime>>,
    stop: AtomicBool,
}

impl World {
    pub fn new(procs: usize, runtime: &Arc<Runtime>) -> Self {
        World {
            procs,
            book: Arc::default(),
            channels: Channels::new(),
            passing: Passing::new(),
            locks: Locks::new(),
            timers: Timers::default(),
            sockets: Sockets::new(),
            crowded: AtomicBool::new(false),
            runtime: Mutex::new(Arc::downgrade(runtime)),
            stop: AtomicBool::new(false),
        }
    }

    pub fn stop(&self) {
        self.stop.store(true, SeqCst);
    }

    pub fn stops(&self) -> bool {
        self.stop.load(SeqCst)
    }

    pub fn runtime(&self) -> Option<Arc<Runtime>> {
        self.runtime.lock().unwrap().upgrade()
    }

    /// Hides the runtime, which is about to end.
    pub fn forget_runtime(&self) {
        *self.runtime.lock().unwrap() = Weak::new();
    }

    /// Receives what is left, after all workers have ended.
    pub fn empty(&self) {
        self.channels.drain();
        self.passing.clear();
    }

    /// Asserts, after `empty`, that nothing was lost on the way.
    #[track_caller]
    pub fn balances(&self) {
        self.locks.balance();
        self.book.balances();
        assert_eq!(Arc::strong_count(&self.book), 1, "somebody has kept the book");
    }
}
