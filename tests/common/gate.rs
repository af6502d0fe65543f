//! A gate that one goroutine or thread opens, and others pass.

use crate::until;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// A gate is opened once.
#[derive(Clone, Default)]
pub struct Gate(Arc<AtomicBool>);

impl Gate {
    pub fn open(&self) {
        self.0.store(true, SeqCst);
    }

    pub fn is_open(&self) -> bool {
        self.0.load(SeqCst)
    }

    /// Waits until the gate is open; on goroutines and threads.
    pub fn pass(&self) {
        until(|| self.is_open());
    }
}
