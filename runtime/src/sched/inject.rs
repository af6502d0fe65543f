//! Work from outside of an M: new goroutines, wherever they are made.

use crate::g::{self, Birth, GRef};
use crate::gpool::GPool;
use crate::host::Host;
use crate::prim::{Arc, Relaxed};
use crate::sched::Sched;

impl<H: Host> Sched<H> {
    /// Makes a goroutine of `f` and queues it. When the runtime ends already, `f` is dropped here, and whoever
    /// joins the goroutine hears so.
    ///
    /// # Safety
    /// What `f` borrows outlives the goroutine.
    #[doc(alias = "newproc")]
    pub(crate) unsafe fn spawn<F: FnOnce() -> T, T>(&self, birth: Birth, f: F) -> GRef<H> {
        // SAFETY: by this function's contract.
        let g = unsafe { self.make(birth, f) };
        if !self.submit_new(g) {
            self.live.fetch_sub(1, Relaxed);
            g::drop_unrun(g);
        }
        g
    }

    /// Makes a goroutine of `f`, runnable and in no queue yet.
    ///
    /// # Safety
    /// As `spawn`.
    pub(crate) unsafe fn make<F: FnOnce() -> T, T>(&self, birth: Birth, f: F) -> GRef<H> {
        // Relaxed: a number, ordered by nothing.
        let id = self.next_id.fetch_add(1, Relaxed);
        // SAFETY: the pool is closed when the scheduler is dropped.
        let g = unsafe { GPool::get(self.pool, id, birth) };
        // SAFETY: `g` is fresh from the pool; the borrows are this function's contract.
        unsafe { g.task.load(f) };
        g.word.spawn();
        // Relaxed: a count, ordered by nothing.
        self.live.fetch_add(1, Relaxed);
        g
    }

    /// A counted handle to this scheduler; `None` while its last one goes.
    pub(crate) fn arc(&self) -> Option<Arc<Self>> {
        // SAFETY: the pool lives as long as the scheduler.
        unsafe { self.pool.as_ref() }.sched().upgrade()
    }
}
