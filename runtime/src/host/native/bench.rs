//! The bare switch, for the benches.

use crate::stack::End;
use crate::stack::pool::{GUARD, StackCache, StackPool};
use crate::stack::switch::{self, Coro, Home};
use std::ptr::{from_ref, with_exposed_provenance};

/// A stack whose function switches back whenever it is resumed.
pub struct Switch {
    /// `None` once the stack is retired.
    coro: Option<Coro>,
    /// Boxed, as the coroutine keeps the address.
    home: Box<Home>,
    pool: StackPool,
    cache: StackCache,
}

/// The word of the last resume, on which the entry returns.
const END: usize = 0;

/// The first resume's word is the address of the home.
unsafe extern "C" fn bounce(home: usize) -> End {
    let home: *const Home = with_exposed_provenance(home);
    // SAFETY: all resumes are from this home, which `Switch` keeps.
    while unsafe { switch::suspend(home, 0) } != END {}
    End { home, word: END }
}

impl Default for Switch {
    fn default() -> Self {
        Self::new()
    }
}

impl Switch {
    /// Returns a stack whose function has been resumed once.
    ///
    /// # Panics
    /// If there is no memory for a stack.
    pub fn new() -> Self {
        let (pool, mut cache) = (StackPool::new(None, GUARD), StackCache::default());
        pool.reserve(None, 0).expect("there is no limit");
        let coro = Coro::new(&pool, &mut cache, 0, bounce).expect("a stack");
        let mut switch = Switch { coro: Some(coro), home: Box::new(Home::new()), pool, cache };
        switch.round_trip();
        switch
    }

    /// Switches to the other stack and back.
    #[inline(always)]
    pub fn round_trip(&mut self) {
        self.resume(from_ref(&*self.home).expose_provenance());
    }

    #[inline(always)]
    fn resume(&mut self, word: usize) {
        let coro = self.coro.as_ref().expect("resume: it is there until the drop");
        // SAFETY: the entry has not returned, END is the drop's; nothing else is resumed with this home.
        unsafe { coro.resume(&self.home, word) };
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.resume(END);
        if let Some(coro) = self.coro.take() {
            coro.retire(&self.pool, &mut self.cache);
        }
        self.pool.empty(&mut self.cache);
    }
}

/// Returns how often threads other than the monitor called the futex to sleep or to wake.
#[cfg(gmp_policies)]
pub(crate) fn futex_calls() -> u64 {
    super::thread::FUTEX_CALLS.load(std::sync::atomic::Ordering::Relaxed)
}
