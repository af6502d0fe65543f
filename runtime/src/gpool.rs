//! Where Gs come from and go to: a pool for each runtime (Go's `gfget`, `gfput`, `allgs`).
//!
//! Memory grows by chunks and is kept, so that a G's word can be read through a record that is out of date. The pool
//! outlives its runtime as long as one of its Gs is out: one that was left behind, or one whose handle somebody
//! still has. Whoever brings the last one back frees it.

use crate::g::{Birth, G, GRef};
use crate::host::Host;
use crate::prim::{Mutex, Weak, capacity};
use crate::runq::GList;
use crate::sched::Sched;
use std::ptr::NonNull;

struct Stock<H: Host> {
    chunks: Vec<NonNull<[G<H>]>>,
    free: GList<H>,
    out: usize,
    closed: bool,
}

impl<H: Host> Drop for Stock<H> {
    fn drop(&mut self) {
        for chunk in self.chunks.drain(..) {
            // SAFETY: each came from a box, and no G of it is out when the pool goes.
            drop(unsafe { Box::from_raw(chunk.as_ptr()) });
        }
    }
}

/// The Gs of one runtime.
pub(crate) struct GPool<H: Host> {
    /// The runtime whose goroutines these are. Weak: a G that was left behind must not keep threads and
    /// descriptors alive, only the memory that a late waker looks at.
    sched: Weak<Sched<H>>,
    stock: Mutex<Stock<H>>,
}

impl<H: Host> GPool<H> {
    pub(crate) fn new(sched: Weak<Sched<H>>) -> NonNull<Self> {
        let stock = Stock { chunks: Vec::new(), free: GList::new(), out: 0, closed: false };
        let pool = Box::new(GPool { sched, stock: Mutex::new(stock) });
        NonNull::from(Box::leak(pool))
    }

    pub(crate) fn sched(&self) -> &Weak<Sched<H>> {
        &self.sched
    }

    /// Takes a G and makes it a goroutine-to-be with both parties alive.
    ///
    /// # Safety
    /// The pool is not closed yet.
    pub(crate) unsafe fn get(this: NonNull<Self>, id: u64, birth: Birth) -> GRef<H> {
        // SAFETY: by this function's contract.
        let pool = unsafe { this.as_ref() };
        let mut stock = pool.stock.lock();
        if stock.free.is_empty() {
            let chunk: Box<[G<H>]> = (0..capacity::G_CHUNK).map(|_| G::new()).collect();
            let chunk = NonNull::from(Box::leak(chunk));
            // SAFETY: nobody else knows the chunk yet.
            for g in unsafe { chunk.as_ref() } {
                g.belongs_to(this);
                stock.free.push(GRef::new(g));
            }
            stock.chunks.push(chunk);
        }
        let g = stock.free.pop().expect("get: a chunk has at least one G");
        stock.out += 1;
        drop(stock);
        g.begin(id, birth);
        g
    }

    /// # Safety
    /// `g` came from `this` and has no party left.
    pub(crate) unsafe fn put(this: NonNull<Self>, g: GRef<H>) {
        // SAFETY: invariant 3: `g` is still out.
        let pool = unsafe { this.as_ref() };
        let mut stock = pool.stock.lock();
        stock.free.push(g);
        stock.out -= 1;
        let last = stock.closed && stock.out == 0;
        drop(stock);
        if last {
            // SAFETY: closed and all back: no GRef and no other pointer to the pool is left.
            drop(unsafe { Box::from_raw(this.as_ptr()) });
        }
    }

    /// The runtime has ended. The memory goes with the last G.
    ///
    /// # Safety
    /// Called once; no `get` follows.
    pub(crate) unsafe fn close(this: NonNull<Self>) {
        // SAFETY: not closed yet, so it lives.
        let mut stock = unsafe { this.as_ref() }.stock.lock();
        stock.closed = true;
        let last = stock.out == 0;
        drop(stock);
        if last {
            // SAFETY: as in `put`.
            drop(unsafe { Box::from_raw(this.as_ptr()) });
        }
    }

    /// Calls `f` for each goroutine that has not ended.
    ///
    /// # Safety
    /// The pool is not closed yet.
    pub(crate) unsafe fn for_each_live(this: NonNull<Self>, mut f: impl FnMut(GRef<H>)) {
        // SAFETY: by this function's contract.
        let stock = unsafe { this.as_ref() }.stock.lock();
        let live: Vec<GRef<H>> = stock
            .chunks
            .iter()
            // SAFETY: chunks live as long as the pool.
            .flat_map(|chunk| unsafe { chunk.as_ref() })
            .filter(|g| g.is_live())
            .map(GRef::new)
            .collect();
        drop(stock);
        live.into_iter().for_each(&mut f);
    }
}
