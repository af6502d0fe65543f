//! The pool of goroutines' stacks: slots of power-of-two size in big mappings (`slab`), each with a guard (`guard`).
//!
//! ```text
//!   spawn      reserve: P1 one in the P's magazine · P2 a batch from the pool, which assures more slots, or maps a slab
//!   first run  take:    T1 of the P's magazine · T2 a batch from the pool: of the free, of those at rest, fresh ones;
//!                       in a storm with reservations for the whole batch, and the top pages of the fresh (`populate`)
//!   exit       give:    G1 to the P's magazine, with the reservation · G2 when that is full, half of it to the pool
//!   no run yet put_back:   to the pool, without the reservation
//! ```
//! A **reservation** is a slot for a goroutine that was accepted. P2 asks the kernel for all that it may refuse, address space
//! and mappings, so that a refusal is an error of the spawn; a reserved stack is there. What remains is memory: pages, as a
//! goroutine touches them, and a part of a page table for each light guard, which is made in T2. So a burst of goroutines that
//! run after each other on a few stacks makes only a few guards.
//!
//! ```text
//!              T2              T1                     give                G2
//!   fresh ─────────▶ magazine ─────▶ out (goroutine) ───▶ magazine ─────────────▶ free, last in first out
//!                       ▲                                                          │ │
//!                       └───────────────────────── T2 ─────────────────────────────┘ │ not needed for a while (`trim`)
//!                       └──────── T2 ──────── at rest, its pages are the kernel's ◀──┘
//! ```
//! A **magazine** (Bonwick's word) holds the stacks and reservations of one class that a P keeps; the P's **stack cache** has a
//! magazine for each class. The cache belongs to the P's owner, so P1, T1 and G1 take no lock; a batch takes the pool's lock.
//! When the P is idle, a holder of the central lock may empty the cache (`sched/watch/trim.rs`).
//!
//! A stack's *size* is that of the slot: a power of two from 16 KiB to 64 MiB, to which a request is rounded up. One page of
//! the slot belongs to the guard, the rest of which lies below the slot; and stacks begin up to 1,920 bytes below their tops
//! (`start`), so a goroutine of 64 KiB has 58 to 60 KiB to use. Only pages that the goroutine touches take memory; a slab,
//! which is `MAP_NORESERVE`, takes address space.
//!
//! | where the machine is short | what happens |
//! | --- | --- |
//! | the user's own limit, `max_bytes` | an error of the spawn; exact: counted at each spawn and end, and only then |
//! | address space (`ulimit -v`), data (`ulimit -d`) | slabs get smaller, down to 1 MiB; then an error of the spawn, with an eighth left for the rest of the process |
//! | memory that may be reserved (`vm.overcommit_memory = 2`) | the same, and nothing is left |
//! | mappings (`vm.max_map_count`) | light guards need none; those by `mprotect` end at a budget, by an error of the spawn |
//! | page tables, for light guards; mappings, where memory is locked after the reservation | the goroutine waits for a stack to come back (`sched/stacks.rs`) |
//! | `mlockall` | guards by `mprotect`; a slab is resident as a whole, and where `RLIMIT_MEMLOCK` forbids that, smaller; then an error of the spawn |
//!
//! Invariants:
//! 1. A slot is in exactly one of: fresh, a magazine, free, at rest, a `StackMem` that is out.
//! 2. For each class, assured slots >= reservations, those of goroutines and those in magazines. `trim` keeps that invariant
//!    too.
//! 3. No magazine has more stacks than reservations. With 2: an M with a reservation that finds no stack in the P's magazine
//!    finds one in the pool. For there are as many slots as reservations, and other magazines have no more of the slots than of
//!    the reservations. T2 takes reservations in a storm only for slots that were assured and not reserved.
//! 4. `Slab::out` counts the slab's stacks that are not in the pool; a slab with such a stack is never unmapped. So a parked
//!    goroutine's stack is never freed, nor are its pages taken.

mod guard;
mod populate;
mod slab;
#[cfg(all(test, not(gmp_loom)))]
mod tests;
mod trim;

mod class;

pub(crate) use class::*;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::{MAX_GUARD, MAX_STACK, MIN_STACK};
use crate::prim::{CachePadded, HostMutex as Mutex, Rank};

use guard::Guard;
use slab::{SLAB, Slab};

/// The size of a page, and of the smallest guard.
pub(crate) const PAGE: usize = 4096;
/// The guard of a stack, unless the program asks for another: see `docs/stacks.md`.
pub(crate) const GUARD: usize = 16 << 10;
/// The largest slab of a pool of which few stacks are used at a time, except for larger stacks.
#[cfg_attr(gmp_loom, allow(dead_code, reason = "the pool of plain threads"))]
const SMALL_SLAB: usize = 4 << 20;
/// Slots guarded at a time, at first and at most.
const FIRST_BATCH: usize = 8;
const BATCH: usize = 64;
/// The most stacks that a magazine gets from the pool at a time, and their bytes.
const HAND: usize = 32;
const HAND_BYTES: usize = 2 << 20;
/// There is a storm when so many batches are out of the pool: then a P takes whole batches, and fresh stacks get their top
/// pages beforehand. At most a batch for each P turns out not to be needed.
const STORM: usize = 32;

/// The stacks and reservations of a class that a P keeps.
#[derive(Debug, Default)]
struct Magazine {
    stacks: Vec<StackMem>,
    /// At least as many as stacks.
    reservations: usize,
}

/// The stacks that a P keeps. Its owner empties it into the pool before the drop.
#[derive(Debug, Default)]
pub(crate) struct StackCache([Magazine; Class::COUNT]);

/// The stacks of one class in the pool.
#[derive(Debug, Default)]
struct Stock {
    /// The stack that was given back last is at the end.
    free: VecDeque<StackMem>,
    /// The smallest length of `free` since `trim` looked last; and how many stacks, from the front, `trim` has found cold.
    low: usize,
    cold: usize,
    /// How many stacks are at rest, in their slabs; and the first slab that may have one of them.
    resting: usize,
    rests_from: usize,
    /// Slabs with slots that were never issued; more slots are assured from the last one.
    fresh: VecDeque<usize>,
    assured: usize,
    reserved: usize,
    /// How many assured slots stay mapped even if none is reserved.
    kept: usize,
    /// Stacks that are not in the pool, and how many slots were ever issued.
    out: usize,
    issued: usize,
}

#[derive(Debug, Default)]
struct Inner {
    /// The bytes of each guard, and of the largest slab.
    guard: usize,
    slab: usize,
    /// A stack names its slab by the index in this list, so a slab does not move; a slab that was unmapped leaves a gap.
    slabs: Vec<Option<Slab>>,
    stocks: [Stock; Class::COUNT],
    /// Slabs with something to trim.
    listed: Vec<usize>,
}

/// The stacks of one runtime.
#[derive(Debug)]
pub(crate) struct StackPool {
    /// In cache lines of its own: the other fields are read for each stack, and the lock is written for each batch of stacks.
    inner: Box<CachePadded<Mutex<Inner>>>,
    guard: Guard,
    /// The user's limit on the stacks of accepted goroutines; and their bytes, which are counted only if there is a limit.
    max_bytes: Option<usize>,
    accepted: AtomicUsize,
}

impl StackPool {
    /// `max_bytes` limits the stacks that are reserved or out at a time, each counted with the whole slot. Maps nothing yet.
    /// `guard`: how many bytes below each stack are its guard, at least.
    pub(crate) fn new(max_bytes: Option<usize>, guard: usize) -> StackPool {
        StackPool::with_guard(max_bytes, guard, Guard::Light)
    }

    /// Makes a pool of which few stacks are used at a time.
    #[cfg_attr(gmp_loom, allow(dead_code, reason = "the pool of plain threads"))]
    pub(crate) fn small(guard: usize) -> StackPool {
        let pool = StackPool::new(None, guard);
        pool.inner.lock().slab = SMALL_SLAB;
        pool
    }

    fn with_guard(max_bytes: Option<usize>, bytes: usize, guard: Guard) -> StackPool {
        let bytes = bytes.clamp(PAGE, MAX_GUARD).next_multiple_of(PAGE);
        let inner = Inner { guard: bytes, slab: SLAB, ..Inner::default() };
        // Boxed because a runtime is moved while it is made, and a debug build keeps a copy in each frame.
        let inner = Box::new(CachePadded::new(Mutex::new(Rank::Stacks, inner)));
        StackPool { inner, guard, max_bytes, accepted: AtomicUsize::new(0) }
    }

    /// Reserves a stack of at least `size` bytes, the guard page included, for a `take` on any P. `cache`: that of the caller's
    /// P, if any.
    ///
    /// Errors name what was attempted and the limit that was met: `InvalidInput` above MAX_STACK,
    /// `QuotaExceeded` at the pool's own limit, `OutOfMemory` when the kernel refuses.
    #[inline]
    pub(crate) fn reserve(&self, cache: Option<&mut StackCache>, size: usize) -> io::Result<()> {
        let class = Class::of(size)?;
        self.accept(class)?;
        let mut magazine = cache.map(|cache| &mut cache.0[class.index()]);
        if let Some(magazine) = &mut magazine
            && magazine.reservations > magazine.stacks.len()
        {
            magazine.reservations -= 1;
            return Ok(());
        }
        self.reserve_from_pool(class, magazine)
    }

    /// Does the same as `reserve`, on no P, for a stack that is in the pool: nothing is mapped. The call itself takes little
    /// stack.
    #[cfg_attr(gmp_loom, allow(dead_code, reason = "the pool of plain threads"))]
    pub(crate) fn reserve_of_stock(&self, size: usize) -> io::Result<()> {
        let class = Class::of(size)?;
        self.accept(class)?;
        let stock = &mut self.inner.lock().stocks[class.index()];
        if stock.assured == stock.reserved {
            self.unaccept(class);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        stock.reserved += 1;
        Ok(())
    }

    /// Keeps mapped what is mapped now for stacks of at least `size` bytes, for `reserve_of_stock`.
    #[cfg_attr(gmp_loom, allow(dead_code, reason = "the pool of plain threads"))]
    pub(crate) fn keep(&self, size: usize) {
        let Ok(class) = Class::of(size) else { return };
        let stock = &mut self.inner.lock().stocks[class.index()];
        stock.kept = stock.assured;
    }

    #[cold]
    fn reserve_from_pool(&self, class: Class, magazine: Option<&mut Magazine>) -> io::Result<()> {
        let count = if magazine.is_some() { 2 * class.batch() } else { 1 };
        let reserve = || self.inner.lock().reserve(class, count, self.guard);
        let reserved = reserve().or_else(|_| {
            self.trim_all();
            reserve()
        });
        let reserved = reserved.inspect_err(|_| self.unaccept(class))?;
        if let Some(magazine) = magazine {
            magazine.reservations += reserved - 1;
        }
        Ok(())
    }

    /// Takes the stack of at least `size` bytes that was reserved.
    ///
    /// # Errors
    /// No stack was reserved, or there is no memory for the guard.
    #[inline]
    pub(crate) fn take(&self, cache: &mut StackCache, size: usize) -> io::Result<StackMem> {
        let class = Class::of(size)?;
        let magazine = &mut cache.0[class.index()];
        match magazine.stacks.pop() {
            Some(stack) => Ok(stack),
            None => self.take_from_pool(class, magazine),
        }
    }

    /// Does the same as `take`, on no P.
    ///
    /// # Errors
    /// As `take`.
    #[cfg_attr(gmp_loom, allow(dead_code, reason = "a second stack"))]
    pub(crate) fn take_one(&self, size: usize) -> io::Result<StackMem> {
        let class = Class::of(size)?;
        self.inner.lock().take_reserved(class, self.guard)
    }

    #[cold]
    fn take_from_pool(&self, class: Class, magazine: &mut Magazine) -> io::Result<StackMem> {
        let mut inner = self.inner.lock();
        let stock = &inner.stocks[class.index()];
        let (issued, storm) = (stock.issued, stock.out >= STORM * class.batch());
        if storm {
            // A spawner on another P, or on none, leaves no reservations in this magazine.
            let more = class.batch().saturating_sub(magazine.reservations + 1);
            magazine.reservations += inner.reserve_of_stock(class, more);
        }
        // First one stack for each reservation in the magazine, then the caller's. If the caller's can't be made, as there is
        // no memory for its guard, the caller gets one of the others.
        let more = (0..magazine.reservations.min(class.batch() - 1))
            .map_while(|_| inner.take(class, self.guard).ok()?);
        magazine.stacks.extend(more);
        let stack = inner.take_reserved(class, self.guard);
        let stack = stack.or_else(|refused| magazine.stacks.pop().ok_or(refused))?;
        let issued = inner.stocks[class.index()].issued - issued;
        drop(inner);
        if storm && issued > 1 {
            // The fresh ones were taken last.
            populate::tops(magazine.stacks.iter().rev().take(issued - 1).chain([&stack]));
        }
        Ok(stack)
    }

    /// Takes a stack back, with the reservation. Panics if the stack belongs to another pool.
    ///
    /// # Safety
    /// Nothing refers to a frame there any more.
    #[inline]
    pub(crate) unsafe fn give(&self, cache: &mut StackCache, stack: StackMem) {
        let class = stack.class;
        cache.0[class.index()].stacks.push(stack);
        self.give_reservation(cache, class);
    }

    /// Takes back a stack that was meant for a goroutine, without the reservation, which the goroutine keeps. The stack does
    /// not go into a magazine, which would then have more stacks than reservations. Panics if the stack belongs to another
    /// pool.
    ///
    /// # Safety
    /// As `give`.
    #[cold]
    pub(crate) unsafe fn put_back(&self, stack: StackMem) {
        self.inner.lock().give(stack);
    }

    /// Takes back a reservation: that of a stack, which is in the magazine by now, or one that `take` could not keep.
    #[inline]
    pub(crate) fn give_reservation(&self, cache: &mut StackCache, class: Class) {
        self.unaccept(class);
        let magazine = &mut cache.0[class.index()];
        magazine.reservations += 1;
        if magazine.stacks.len() >= 2 * class.batch() || magazine.reservations >= 4 * class.batch() {
            self.give_to_pool(class, magazine);
        }
    }

    #[cold]
    fn give_to_pool(&self, class: Class, magazine: &mut Magazine) {
        let inner = &mut *self.inner.lock();
        // The coldest go.
        let go = magazine.stacks.len().saturating_sub(class.batch());
        magazine.stacks.drain(..go).for_each(|stack| inner.give(stack));
        let go = magazine.reservations.saturating_sub(2 * class.batch());
        inner.take_back(class.index(), go);
        magazine.reservations -= go;
    }

    /// Gives back all that is in the cache. Returns `true` if there were stacks, not only reservations.
    pub(crate) fn empty(&self, cache: &mut StackCache) -> bool {
        let mut inner = None;
        let there = cache.0.iter().any(|magazine| !magazine.stacks.is_empty());
        for (index, magazine) in
            cache.0.iter_mut().enumerate().filter(|(_, magazine)| magazine.reservations > 0)
        {
            let inner = inner.get_or_insert_with(|| self.inner.lock());
            std::mem::take(&mut magazine.stacks).into_iter().for_each(|stack| inner.give(stack));
            inner.take_back(index, std::mem::take(&mut magazine.reservations));
        }
        there
    }

    #[inline]
    fn accept(&self, class: Class) -> io::Result<()> {
        match self.max_bytes {
            None => Ok(()),
            Some(max) => self.accept_within(max, class),
        }
    }

    fn accept_within(&self, max: usize, class: Class) -> io::Result<()> {
        let fits = |used: usize| used.checked_add(class.bytes()).filter(|&sum| sum <= max);
        // Relaxed: a count, it orders nothing.
        self.accepted.fetch_update(Relaxed, Relaxed, fits).map(drop).map_err(|used| {
            let (of, used, max) = (Bytes(class.bytes()), Bytes(used), Bytes(max));
            let text = format!("a stack of {of}: {used} of stacks are in use, the runtime's limit is {max}");
            io::Error::new(io::ErrorKind::QuotaExceeded, text)
        })
    }

    fn unaccept(&self, class: Class) {
        if self.max_bytes.is_some() {
            // Relaxed: a count, it orders nothing.
            self.accepted.fetch_sub(class.bytes(), Relaxed);
        }
    }
}

impl Drop for StackPool {
    /// Unmaps the slabs to which every stack has come back; leaks the others for ever.
    fn drop(&mut self) {
        for slab in self.inner.lock().slabs.drain(..).flatten().filter(|slab| slab.out == 0) {
            // SAFETY: no stack of the slab is out, and the free ones die with the pool.
            unsafe { slab.unmap() };
        }
    }
}

impl Inner {
    /// P2: takes at least one reservation and at most `count`, and returns how many.
    fn reserve(&mut self, class: Class, count: usize, guard: Guard) -> io::Result<usize> {
        let stock = &self.stocks[class.index()];
        if stock.assured == stock.reserved {
            self.assure_more(class, guard)?;
        }
        Ok(self.reserve_of_stock(class, count))
    }

    /// Takes at most `count` reservations of assured slots, and returns how many.
    fn reserve_of_stock(&mut self, class: Class, count: usize) -> usize {
        let stock = &mut self.stocks[class.index()];
        let reserved = count.min(stock.assured - stock.reserved);
        stock.reserved += reserved;
        reserved
    }

    /// Takes reservations back, perhaps more than were taken: a runtime that ends accepts goroutines without a reservation.
    fn take_back(&mut self, stock: usize, reservations: usize) {
        let reserved = &mut self.stocks[stock].reserved;
        *reserved = reserved.saturating_sub(reservations);
    }

    /// Assures the class of more slots, on which reservations may count.
    fn assure_more(&mut self, class: Class, guard: Guard) -> io::Result<()> {
        let last = self.stocks[class.index()].fresh.back().copied();
        let index = match last.filter(|&index| !self.slab(index).is_assured()) {
            Some(index) => index,
            None => self.map(class)?,
        };
        self.stocks[class.index()].assured += self.slab(index).assure(guard)?;
        Ok(())
    }

    fn map(&mut self, class: Class) -> io::Result<usize> {
        let mapped = self.slabs.iter().flatten().map(Slab::bytes).sum();
        let slab = Slab::map(class, (self.guard, self.slab), mapped)?;
        let index = self.slabs.iter().position(Option::is_none).unwrap_or_else(|| {
            self.slabs.push(None);
            self.slabs.len() - 1
        });
        self.slabs[index] = Some(slab);
        self.stocks[class.index()].fresh.push_back(index);
        Ok(index)
    }

    fn slab(&mut self, index: usize) -> &mut Slab {
        self.slabs[index].as_mut().expect("StackPool: a slab with stacks is mapped")
    }

    /// T2: takes the stack that was given back last, else one at rest, else a fresh one; `None` if the class has none.
    fn take(&mut self, class: Class, guard: Guard) -> io::Result<Option<StackMem>> {
        let stock = &mut self.stocks[class.index()];
        let stack = if let Some(stack) = stock.free.pop_back() {
            stock.low = stock.low.min(stock.free.len());
            stock.cold = stock.cold.min(stock.free.len());
            stack
        } else if stock.resting > 0 {
            stock.resting -= 1;
            self.rouse(class)
        } else if let Some(stack) = self.issue(class, guard)? {
            stack
        } else {
            return Ok(None);
        };
        self.slab(stack.slab as usize).out += 1;
        self.stocks[class.index()].out += 1;
        Ok(Some(stack))
    }

    fn take_reserved(&mut self, class: Class, guard: Guard) -> io::Result<StackMem> {
        self.take(class, guard)?.ok_or_else(|| {
            io::Error::other(format!("a stack of {}: it was not promised", Bytes(class.bytes())))
        })
    }

    /// Takes a stack at rest, from the slab that was mapped first, so that the other slabs can be unmapped.
    fn rouse(&mut self, class: Class) -> StackMem {
        let from = &mut self.stocks[class.index()].rests_from;
        let slabs = self.slabs.iter_mut().enumerate().skip(*from);
        let of_class = slabs.filter_map(|(index, slab)| Some((index, slab.as_mut()?)));
        let (index, stack) = of_class
            .filter(|(_, slab)| slab.class == class)
            .find_map(|(index, slab)| Some((index, slab.rouse(index)?)))
            .expect("StackPool::take: the stacks at rest are in their slabs");
        *from = index;
        stack
    }

    /// Takes a stack that was never out before; `None` if the slabs of the class have none.
    fn issue(&mut self, class: Class, guard: Guard) -> io::Result<Option<StackMem>> {
        while let Some(&index) = self.stocks[class.index()].fresh.front() {
            let slab = self.slab(index);
            if let Some(stack) = slab.issue(index, guard)? {
                self.stocks[class.index()].issued += 1;
                return Ok(Some(stack));
            }
            if !slab.is_assured() {
                break;
            }
            self.stocks[class.index()].fresh.pop_front();
        }
        Ok(None)
    }

    fn give(&mut self, stack: StackMem) {
        let slab = self.slab(stack.slab as usize);
        slab.owns(&stack);
        slab.out -= 1;
        let stock = &mut self.stocks[stack.class.index()];
        stock.out -= 1;
        stock.free.push_back(stack);
    }
}

/// A number of bytes, printed in the biggest unit that loses nothing.
pub(crate) struct Bytes(pub(crate) usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes != 0 && bytes.is_multiple_of(1 << 20) => write!(f, "{} MiB", bytes >> 20),
            bytes if bytes != 0 && bytes.is_multiple_of(1 << 10) => write!(f, "{} KiB", bytes >> 10),
            bytes => write!(f, "{bytes} bytes"),
        }
    }
}
