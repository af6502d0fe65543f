//! The pool of a runtime's Gs (Go's `gfget`, `gfput`, `allgs`).
//!
//! Memory grows by chunks and is kept, so that a waker can read a G's word through an out-of-date record. The first chunks are
//! allocated; from [`BOXED`] on they are cut from regions of 2 MiB. An allocator might grow by a few pages at a time, with a
//! system call each time, as glibc's does on all threads but main's. The regions use small pages. With huge pages, by
//! `madvise`, a tree of a million goroutines took 5 % less time, but a `go` that was the first to touch a region waited, with
//! the pool locked, for tens of milliseconds until the kernel had found and cleared 2 MiB.
//!
//! Free Gs are held by an array of pointers, and not in a list through the Gs: of a million Gs the next one is not in the
//! cache, and an M that walked along a list would wait for the memory at each G. Taking a G prefetches the next one.
//!
//! The pool outlives its runtime as long as a G is out: a G that was left behind, or a G whose handle the program still has.
//! The thread that brings the last G back frees the pool.

use crate::g::{G, GRef};
use crate::host::Host;
use crate::prim::{CachePadded, Mutex, MutexGuard, Rank, SingleWriterWord, UnsafeCell, Weak, capacity};
use crate::sched::Sched;
use std::ptr::NonNull;

/// How many chunks come before the first region: a small program needs none.
const BOXED: usize = 64;
/// Bytes of a region.
const REGION: usize = 2 << 20;

/// Where the memory of a chunk comes from.
#[derive(Copy, Clone)]
enum Origin {
    Boxed,
    Region,
}

struct Stock<H: Host> {
    chunks: Vec<(NonNull<[G<H>]>, Origin)>,
    regions: Vec<NonNull<u8>>,
    /// Bytes of the last region that are in use.
    used: usize,
    free: Vec<GRef<H>>,
    out: usize,
    closed: bool,
}

impl<H: Host> Drop for Stock<H> {
    fn drop(&mut self) {
        for (chunk, place) in self.chunks.drain(..) {
            match place {
                // SAFETY: the chunk came from a box, and no G of it is out when the pool goes.
                Origin::Boxed => drop(unsafe { Box::from_raw(chunk.as_ptr()) }),
                // SAFETY: `grow` made the Gs, and no G of the chunk is out when the pool goes.
                Origin::Region => unsafe { chunk.as_ptr().drop_in_place() },
            }
        }
        for region in self.regions.drain(..) {
            // SAFETY: `cut` has mapped the region, and nothing lies there any more.
            unsafe { H::unmap(region, REGION) };
        }
    }
}

impl<H: Host> Stock<H> {
    /// Makes one more chunk.
    fn grow(&mut self) -> NonNull<[G<H>]> {
        let cut = if self.chunks.len() < BOXED { None } else { self.cut() };
        let (chunk, place) = match cut {
            Some(first) => {
                for at in 0..capacity::G_CHUNK {
                    // SAFETY: `cut` has returned room for this many.
                    unsafe { first.add(at).write(G::new()) };
                }
                (NonNull::slice_from_raw_parts(first, capacity::G_CHUNK), Origin::Region)
            }
            None => {
                let chunk: Box<[G<H>]> = (0..capacity::G_CHUNK).map(|_| G::new()).collect();
                (NonNull::from(Box::leak(chunk)), Origin::Boxed)
            }
        };
        self.chunks.push((chunk, place));
        chunk
    }

    fn live(&self) -> impl Iterator<Item = GRef<H>> {
        // SAFETY: chunks live as long as the pool.
        let all = self.chunks.iter().flat_map(|(chunk, _)| unsafe { chunk.as_ref() });
        all.filter(|g| g.is_live()).map(GRef::new)
    }

    /// Returns room for a chunk in a region; `None` if the host has none.
    fn cut(&mut self) -> Option<NonNull<G<H>>> {
        let bytes = capacity::G_CHUNK * size_of::<G<H>>();
        if self.regions.is_empty() || self.used + bytes > REGION {
            self.regions.push(H::map(REGION)?);
            self.used = 0;
        }
        let region = *self.regions.last()?;
        // SAFETY: `used` is below the region's end. The region starts at a page, and the size of a G is a multiple of its
        // alignment.
        let place = unsafe { region.add(self.used) }.cast();
        self.used += bytes;
        Some(place)
    }
}

/// The Gs of one runtime.
pub(crate) struct GPool<H: Host> {
    /// The runtime whose goroutines these are. Weak: a G that was left behind must keep alive only the memory that a late waker
    /// looks at, not threads and descriptors.
    sched: Weak<Sched<H>>,
    /// Padded: `sched` is read at each wake and end of a goroutine, and the lock is written for each batch of Gs.
    stock: CachePadded<Mutex<Stock<H>>>,
}

impl<H: Host> GPool<H> {
    pub(crate) fn new(sched: Weak<Sched<H>>) -> NonNull<Self> {
        let (chunks, regions) = (Vec::new(), Vec::new());
        let stock = Stock { chunks, regions, used: 0, free: Vec::new(), out: 0, closed: false };
        let pool = Box::new(GPool { sched, stock: CachePadded::new(Mutex::new(Rank::GPool, stock)) });
        NonNull::from(Box::leak(pool))
    }

    pub(crate) fn sched(&self) -> &Weak<Sched<H>> {
        &self.sched
    }

    /// Takes a G that holds no goroutine.
    ///
    /// # Safety
    /// The pool is not closed yet.
    pub(crate) unsafe fn get(this: NonNull<Self>) -> GRef<H> {
        // SAFETY: by this function's contract.
        let mut stock = unsafe { Self::stock_of(this, 1) };
        stock.out += 1;
        let g = stock.free.pop().expect("get: there is one");
        g.place.touch();
        g
    }

    /// Puts `count` Gs into `taken`.
    ///
    /// # Safety
    /// As `get`.
    unsafe fn get_batch(this: NonNull<Self>, count: usize, taken: &mut Vec<GRef<H>>) {
        // SAFETY: by this function's contract.
        let mut stock = unsafe { Self::stock_of(this, count) };
        stock.out += count;
        let rest = stock.free.len() - count;
        taken.extend(stock.free.drain(rest..).inspect(|g| g.place.touch()));
    }

    /// Returns the stock, locked, with at least `count` free Gs.
    ///
    /// # Safety
    /// As `get`.
    unsafe fn stock_of<'a>(this: NonNull<Self>, count: usize) -> MutexGuard<'a, Stock<H>> {
        // SAFETY: by this function's contract.
        let mut stock = unsafe { this.as_ref() }.stock.lock();
        while stock.free.len() < count {
            let chunk = stock.grow();
            // SAFETY: `grow` has just made the chunk, and the chunk's Gs are handed out below, under this lock.
            for g in unsafe { chunk.as_ref() } {
                g.belongs_to(this);
                stock.free.push(GRef::new(g));
            }
            H::show(this.as_ptr().cast_const().cast(), chunk.cast());
        }
        stock
    }

    /// # Safety
    /// All Gs in `gs` came from `this` and have no party left.
    pub(crate) unsafe fn put(this: NonNull<Self>, gs: impl ExactSizeIterator<Item = GRef<H>>) {
        // SAFETY: the pool lives while one of its Gs is out (`g/mod.rs`, invariant 3), and these are out.
        unsafe {
            Self::change(this, |stock| {
                stock.out -= gs.len();
                stock.free.extend(gs.inspect(|g| g.place.touch()));
            });
        }
    }

    /// Calls `f`, and frees the pool if it is closed, and all Gs are back.
    ///
    /// # Safety
    /// The pool lives, and the caller uses it no longer.
    unsafe fn change(this: NonNull<Self>, f: impl FnOnce(&mut Stock<H>)) {
        // SAFETY: by this function's contract.
        let mut stock = unsafe { this.as_ref() }.stock.lock();
        f(&mut stock);
        let last = stock.closed && stock.out == 0;
        drop(stock);
        if last {
            // SAFETY: the pool is closed, and all Gs are back: no GRef and no other pointer to the pool is left.
            drop(unsafe { Box::from_raw(this.as_ptr()) });
        }
    }

    /// Closes the pool, because the runtime has ended. The pool's memory is freed when the last G comes back.
    ///
    /// # Safety
    /// Called once; no `get` follows.
    pub(crate) unsafe fn close(this: NonNull<Self>) {
        // SAFETY: a pool that is not closed lives.
        unsafe { Self::change(this, |stock| stock.closed = true) };
    }

    /// Returns the first goroutine that has not ended and for which `f` returns `true`. Calls `f` under the pool's lock: `f`
    /// takes no lock.
    pub(crate) fn find_live(&self, mut f: impl FnMut(GRef<H>) -> bool) -> Option<GRef<H>> {
        self.stock.lock().live().find(|&g| f(g))
    }

    /// Returns the goroutines that have not ended.
    pub(crate) fn live(&self) -> Vec<GRef<H>> {
        self.stock.lock().live().collect()
    }
}

impl<H: Host> Drop for GPool<H> {
    fn drop(&mut self) {
        H::hide(std::ptr::from_ref(self).cast());
    }
}

/// The free Gs that a P keeps, so that a goroutine's birth and end take no lock (Go's `p.gFree`). Used by the P's owner.
pub(crate) struct FreeGs<H: Host> {
    list: UnsafeCell<Vec<GRef<H>>>,
    len: SingleWriterWord,
}

impl<H: Host> FreeGs<H> {
    pub(crate) fn new() -> Self {
        FreeGs {
            list: UnsafeCell::new(Vec::with_capacity(2 * capacity::G_BATCH)),
            len: SingleWriterWord::new(0),
        }
    }

    /// For a trace: returns how many Gs there are.
    pub(crate) fn shown_len(&self) -> u64 {
        self.len.get()
    }

    /// Owner: takes a G that holds no goroutine.
    ///
    /// # Safety
    /// As [`GPool::get`].
    #[inline]
    pub(crate) unsafe fn get(&self, pool: NonNull<GPool<H>>) -> GRef<H> {
        self.list.with_mut(|free| {
            // SAFETY: the owner's call (p/mod.rs, invariant 3).
            let free = unsafe { &mut *free };
            if free.is_empty() {
                // SAFETY: by this function's contract.
                unsafe { GPool::get_batch(pool, capacity::G_BATCH, free) };
            }
            self.len.set(free.len() as u64 - 1);
            let g = free.pop().expect("get: a batch has at least one G");
            if let Some(next) = free.last() {
                next.fetch();
            }
            g.place.touch();
            g
        })
    }

    /// Owner: gives a G without parties back.
    ///
    /// # Safety
    /// As [`GPool::put`].
    #[inline]
    pub(crate) unsafe fn put(&self, pool: NonNull<GPool<H>>, g: GRef<H>) {
        self.list.with_mut(|free| {
            // SAFETY: the owner's call (p/mod.rs, invariant 3).
            let free = unsafe { &mut *free };
            g.place.touch();
            free.push(g);
            if free.len() == 2 * capacity::G_BATCH {
                // The Gs that were used last stay: they are in this core's cache.
                // SAFETY: by this function's contract.
                unsafe { GPool::put(pool, free.drain(..capacity::G_BATCH)) };
            }
            self.len.set(free.len() as u64);
        });
    }

    /// Gives all Gs back, at the end.
    ///
    /// # Safety
    /// As [`GPool::put`], and the P no longer has an owner.
    pub(crate) unsafe fn empty(&self, pool: NonNull<GPool<H>>) {
        self.list.with_mut(|free| {
            // SAFETY: by this function's contract.
            unsafe { GPool::put(pool, (*free).drain(..)) };
        });
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;
    use crate::host::Active;
    use crate::wait::status::Doing;
    use std::collections::BTreeSet;

    /// Fails if Gs that are cut from regions overlap, or are no Gs; crashes if a region goes before them or with them.
    #[test]
    fn each_g_has_a_place_of_its_own_on_both_sides_of_the_first_region() {
        let pool = GPool::<Active>::new(Weak::new());
        let count = 3 * REGION / size_of::<G<Active>>();
        assert!(count > BOXED * capacity::G_CHUNK);
        for _ in 0..2 {
            let mut batch = Vec::new();
            // SAFETY: not closed yet.
            unsafe { GPool::get_batch(pool, count, &mut batch) };
            let mut places = BTreeSet::new();
            for g in &batch {
                assert!(places.insert(g.to_raw().addr()));
                assert!(matches!(g.word.doing(), Doing::Ended) && !g.is_live());
            }
            let apart =
                places.iter().zip(places.iter().skip(1)).all(|(a, b)| b - a >= size_of::<G<Active>>());
            assert!(apart && places.iter().all(|at| at.is_multiple_of(align_of::<G<Active>>())));
            // SAFETY: not closed yet.
            let regions = unsafe { pool.as_ref() }.stock.lock().regions.len();
            assert_eq!(regions, 3, "the second round needs no more");
            // SAFETY: no G has a party.
            unsafe { GPool::put(pool, batch.into_iter()) };
        }
        // SAFETY: once, and nothing follows.
        unsafe { GPool::close(pool) };
    }
}
