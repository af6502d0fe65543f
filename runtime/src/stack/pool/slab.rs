//! One mapping full of slots.
//!
//! ```text
//!   | guard | usable | guard | usable | .. | guard | usable | guard | .. | .. | no guard yet |
//!   ^ base           ^ the next slot                  issued ^     guarded ^            slots ^
//! ```
//! A slot has the size of the class, one page of guard included; the rest of a larger guard lies below the slot, and so takes
//! nothing of the usable part. The *stride* is the distance between two slots.
//!
//! Guards are made a batch at a time: the first before a reservation counts on the slab. If all of these are light guards,
//! which the kernel refuses only for want of memory, the reservations may count on every slot, and the other guards are made
//! when their slots are needed. Guards by `mprotect` come out of a budget, so there a reservation counts only on slots with a
//! guard.
//!
//! The first batch is small, and each is as large as all before it, up to `BATCH`: a guard takes its part of a page table,
//! which the kernel finds and clears, and a small program needs few. A slab of few slots is guarded at once: taking a stack for
//! the panic hook must not need such a call (`host/native/segment.rs`).

use std::fmt;
use std::io;
use std::ptr::{self, NonNull};

use super::guard::{self, Guard, Row};
use super::{BATCH, Bytes, Class, FIRST_BATCH, PAGE, StackMem};

/// A slab: at least one slot of any class.
pub(super) const SLAB: usize = super::MAX_STACK;
/// The least size of a slab where the address space is short: the rest is left to the program.
const LEAST_SLAB: usize = 1 << 20;
/// Not in libc 0.2 yet.
const MADV_DONTNEED_LOCKED: libc::c_int = 24;
/// How many bytes of slots one call of `return_pages` handles, if a slot is not larger: the pool is locked meanwhile.
const STINT: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Slab {
    pub(super) base: NonNull<u8>,
    pub(super) class: Class,
    /// The bytes of each guard.
    guard: usize,
    slots: usize,
    /// Slots with a guard page, from the base upwards.
    pub(super) guarded: usize,
    /// Slots that a reservation may count on: those with a guard, or all.
    pub(super) assured: usize,
    /// Slots that have been handed out at least once.
    pub(super) issued: usize,
    /// Stacks that are not in the pool.
    pub(super) out: usize,
    /// Free slots at rest, and those of them that still have pages.
    resting: Slots,
    dirty: Slots,
    /// Whether the slab is in the list of slabs to trim.
    pub(super) listed: bool,
    /// How many guards by `mprotect` the slab has, for `guard::forget`.
    mprotected: usize,
}

// SAFETY: a slab owns the mapping as a Box owns memory.
unsafe impl Send for Slab {}

impl Slab {
    /// Reserves a slab with guards of `guard` bytes, of at most `most` bytes if there is more than one slot; a smaller slab if
    /// the address space has no room. `mapped`: how much is mapped already, for the error.
    pub(super) fn map(class: Class, (guard, most): (usize, usize), mapped: usize) -> io::Result<Slab> {
        let stride = class.bytes() - PAGE + guard;
        let (whole, limit) = (|bytes: usize| (bytes / stride).max(1) * stride, Limit::read());
        let mut bytes = whole(most);
        let base = loop {
            let error = match limit.map(bytes) {
                Ok(base) => break base,
                Err(error) => error,
            };
            if bytes == whole(LEAST_SLAB) {
                let (of, slab, mapped) = (Bytes(class.bytes()), Bytes(bytes), Bytes(mapped));
                let text = format!(
                    "a stack of {of}: mmap of {slab}: {error}; {mapped} are mapped for stacks, {limit}"
                );
                return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
            }
            bytes = whole((bytes / 2).max(LEAST_SLAB));
        };
        // A kernel without huge pages answers EINVAL, and needs no advice. SAFETY: advice on the mapping just made,
        // which changes no content.
        unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_NOHUGEPAGE) };
        let slots = bytes / stride;
        Ok(Slab {
            base,
            class,
            guard,
            slots,
            guarded: 0,
            assured: 0,
            issued: 0,
            out: 0,
            resting: Slots::new(slots),
            dirty: Slots::new(slots),
            listed: false,
            mprotected: 0,
        })
    }

    /// Unmaps the slab.
    ///
    /// # Safety
    /// No stack of the slab is out, and none that is in the pool will be taken any more.
    pub(super) unsafe fn unmap(self) {
        // SAFETY: the slab owns this mapping; by the caller's contract no stack of it is in use. If the call is refused, the
        // mapping stays, with the guards.
        if unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes()) } == 0 {
            guard::forget(self.mprotected);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots * self.stride()
    }

    fn stride(&self) -> usize {
        self.class.bytes() - PAGE + self.guard
    }

    /// Returns `true` if a reservation may count on every slot.
    pub(super) fn is_assured(&self) -> bool {
        self.assured == self.slots
    }

    /// Lets reservations count on more slots. Returns how many more, at least one.
    pub(super) fn assure(&mut self, guard: Guard) -> io::Result<usize> {
        let before = self.assured;
        self.guard_batch(guard)?;
        let all = guard == Guard::Light && self.mprotected == 0;
        self.assured = if all { self.slots } else { self.guarded };
        Ok(self.assured - before)
    }

    /// Guards the next slots: a batch, or the rest of the slab, or as many as the kernel allows; at least one.
    fn guard_batch(&mut self, guard: Guard) -> io::Result<()> {
        let first = if self.slots <= 2 * FIRST_BATCH { self.slots } else { FIRST_BATCH };
        let batch = self.guarded.clamp(first, BATCH);
        let (stride, count) = (self.stride(), batch.min(self.slots - self.guarded));
        // SAFETY: `guarded` is below `slots`: the page lies inside of the mapping.
        let first = unsafe { self.base.add(self.guarded * stride) };
        let row = Row { first, bytes: self.guard, apart: stride, count };
        // SAFETY: the lowest pages of slots that were never issued, and the page above them: neither is in use.
        let made = unsafe { guard.install(row) }.map_err(|error| {
            let text = format!("a stack of {}: guard page: {error}", Bytes(self.class.bytes()));
            io::Error::new(io::ErrorKind::OutOfMemory, text)
        })?;
        self.guarded += made.guards;
        self.mprotected += made.mprotected;
        Ok(())
    }

    /// Takes out a slot that was never out before; `None` if all assured slots were. `index`: the slab's index in the pool.
    pub(super) fn issue(&mut self, index: usize, guard: Guard) -> io::Result<Option<StackMem>> {
        if self.issued == self.assured {
            return Ok(None);
        }
        if self.issued == self.guarded {
            self.guard_batch(guard)?;
        }
        self.issued += 1;
        Ok(Some(self.stack(index, self.issued - 1)))
    }

    fn stack(&self, index: usize, slot: usize) -> StackMem {
        // SAFETY: a slot's number is below `slots`, so this is the slot's end inside of the mapping, or the mapping's
        // end.
        let top = unsafe { self.base.add((slot + 1) * self.stride()) };
        StackMem { top, slab: index as u32, class: self.class, guard: (self.guard / PAGE) as u16 }
    }

    /// Returns the number of a stack's slot. Panics if the stack belongs to another slab.
    fn slot(&self, stack: &StackMem) -> usize {
        let offset = stack.top.addr().get().wrapping_sub(self.base.addr().get());
        assert!(
            (1..=self.bytes()).contains(&offset) && stack.class == self.class,
            "StackPool: not of this pool ({stack:?}, {self:?})"
        );
        offset / self.stride() - 1
    }

    /// Asserts that the stack is one of this slab.
    pub(super) fn owns(&self, stack: &StackMem) {
        self.slot(stack);
    }

    /// Puts a free stack to rest. The stack keeps its pages for now.
    pub(super) fn rest(&mut self, stack: StackMem) {
        let slot = self.slot(&stack);
        self.resting.insert(slot);
        self.dirty.insert(slot);
    }

    /// Takes out one of the stacks at rest; `None` if there is none.
    pub(super) fn rouse(&mut self, index: usize) -> Option<StackMem> {
        if self.resting.len == 0 {
            return None;
        }
        let slot = self.resting.first()?;
        self.resting.remove(slot);
        self.dirty.remove(slot);
        Some(self.stack(index, slot))
    }

    pub(super) fn resting(&self) -> usize {
        self.resting.len
    }

    /// Returns `true` if all stacks of the slab are at rest, or were never issued.
    pub(super) fn is_at_rest(&self) -> bool {
        self.resting.len == self.issued
    }

    /// Gives the kernel back pages of slots at rest: some runs of neighbours. Returns `true` if there are more.
    pub(super) fn return_pages(&mut self) -> bool {
        let stride = self.stride();
        let mut left = (STINT / stride).max(1);
        while left > 0 {
            let Some(first) = self.dirty.first() else { return false };
            let mut end = first;
            while end < self.slots && end - first < left && self.dirty.remove(end) {
                end += 1;
            }
            left -= end - first;
            let (from, bytes) = (
                self.base.as_ptr().wrapping_add(first * stride + self.guard),
                (end - first) * stride - self.guard,
            );
            // Guards stay guards. Locked memory needs the other advice, which Linux has from 5.18 on; if both are refused, the
            // pages stay.
            let _kept = [libc::MADV_DONTNEED, MADV_DONTNEED_LOCKED].into_iter().find(|&advice| {
                // SAFETY: slots at rest: no frame is on them, and a goroutine that gets one writes before any read.
                unsafe { libc::madvise(from.cast(), bytes, advice) == 0 }
            });
        }
        self.dirty.len > 0
    }
}

/// A set of slots.
#[derive(Debug)]
struct Slots {
    words: Box<[u64]>,
    len: usize,
}

impl Slots {
    fn new(slots: usize) -> Slots {
        Slots { words: vec![0; slots.div_ceil(64)].into(), len: 0 }
    }

    fn insert(&mut self, slot: usize) {
        let (word, bit) = (&mut self.words[slot / 64], 1 << (slot % 64));
        assert!(*word & bit == 0, "Slots::insert: slot {slot} is free twice");
        *word |= bit;
        self.len += 1;
    }

    /// Returns `false` if the slot was not in the set.
    fn remove(&mut self, slot: usize) -> bool {
        let (word, bit) = (&mut self.words[slot / 64], 1 << (slot % 64));
        let was_in = *word & bit != 0;
        *word &= !bit;
        self.len -= usize::from(was_in);
        was_in
    }

    fn first(&self) -> Option<usize> {
        let index = self.words.iter().position(|&word| word != 0)?;
        Some(index * 64 + self.words[index].trailing_zeros() as usize)
    }
}

/// The limit that is met first, of which an eighth is left to the rest of the process: a spawn can handle a refusal better than
/// the allocator and the threads can.
struct Limit {
    name: &'static str,
    /// `None`: neither limit is set.
    bytes: Option<usize>,
    /// How much of the limit slabs may still take. `None`: nobody knows, and the kernel is asked before each slab.
    left: Option<usize>,
}

impl Limit {
    /// Reads the limits on the address space, and on the process's private writable part of it.
    fn read() -> Limit {
        // `None` without /proc, and without a free descriptor.
        let statm = || std::fs::read_to_string("/proc/self/statm").ok();
        // The first field counts the pages of all mappings; the sixth those of the limit on data, and the main
        // thread's stack.
        let used = |field: usize| {
            let pages: usize = statm()?.split_whitespace().nth(field)?.parse().ok()?;
            Some(pages * PAGE)
        };
        let limits = [("RLIMIT_AS", libc::RLIMIT_AS, 0), ("RLIMIT_DATA", libc::RLIMIT_DATA, 5)];
        let limits = limits.into_iter().filter_map(|(name, resource, field)| {
            let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
            // SAFETY: the call writes the struct that we pass.
            unsafe { libc::getrlimit(resource, &mut limit) };
            // The file is read only if there is a limit: mostly there is none.
            (limit.rlim_cur != libc::RLIM_INFINITY).then(|| {
                let bytes = limit.rlim_cur as usize;
                let left = used(field).map(|used| (bytes - bytes / 8).saturating_sub(used));
                Limit { name, bytes: Some(bytes), left }
            })
        });
        let none = Limit { name: "RLIMIT_AS", bytes: None, left: Some(usize::MAX) };
        // If nobody knows what is left of either limit: the smaller one.
        limits.min_by_key(|limit| limit.left.or(limit.bytes)).unwrap_or(none)
    }

    fn map(&self, bytes: usize) -> io::Result<NonNull<u8>> {
        let has_room = match (self.left, self.bytes) {
            (Some(left), _) => bytes <= left,
            (None, limit) => may_map_more(bytes + limit.unwrap_or(0) / 8, self.name == "RLIMIT_DATA"),
        };
        if !has_room {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, prot, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(NonNull::new(base.cast::<u8>()).expect("Slab::map: mmap gave null"))
    }
}

/// Returns `true` if the kernel would grant the process `bytes` more: of memory, or of writable memory.
fn may_map_more(bytes: usize, writable: bool) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, which nothing uses. Before it is made writable it is unlocked, as `mlockall` may have locked it:
    // so no page of it is touched.
    unsafe {
        let at = libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0);
        if at == libc::MAP_FAILED {
            // EAGAIN: so much may not be locked. What the slab itself may lock is seen when it is mapped.
            return io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN);
        }
        // Memory counts as writable in the limit on data, and, if the kernel grants no more than there is, also there: so it is
        // made writable for that limit alone.
        let may = !writable || {
            libc::munlock(at, bytes);
            libc::mprotect(at, bytes, libc::PROT_READ | libc::PROT_WRITE) == 0
        };
        libc::munmap(at, bytes);
        may
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes {
            None => write!(f, "{} is unlimited", self.name),
            Some(bytes) => write!(f, "{} is {}, an eighth of it for the rest", self.name, Bytes(bytes)),
        }
    }
}
