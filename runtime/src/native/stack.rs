//! Where the stacks of goroutines come from: slots of power-of-two size in big mappings, each with a guard
//! page.
//!
//! ```text
//!   slab, 64 MiB reserved                                          issued    guarded        slots
//!   | guard | usable | guard | usable | .. | guard | usable | guard | .. | .. | no guard yet |
//!   ^ base           ^ a slot of its class's size           ^ bump: next fresh slot
//! ```
//!
//! take: T1 the stack given back last, of its class · T2 the next guarded slot of the slab in use · T3 guard
//! the next 64 slots · T4 map a slab.
//!
//! A stack's *size* is that of its slot: a power of two from 16 KiB to 64 MiB, to which a request is rounded
//! up. One page of it is the guard, and stacks begin up to 1,920 bytes below
//! their tops (`start`), so a goroutine of 64 KiB has 58 to 60 KiB to use. Only pages that it touches take
//! memory, and a slab is `MAP_NORESERVE`: it takes address space.
//!
//! Guards: `MADV_GUARD_INSTALL` (Linux 6.13) marks page-table entries: no mapping is split, so their number is
//! not limited. Where the kernel has it not, or the memory is locked (it says EINVAL to both), `mprotect`; that
//! costs two mappings each out of `vm.max_map_count`, of which an eighth is left to the rest of the process.
//! Both in batches, so that a small program guards 64 stacks and not a slab of them.
//!
//! Invariants: a slot is in exactly one of: not issued, a free list, a `StackMem`. `Slab::live` counts its
//! `StackMem`s that were not given back, and a slab with one is never unmapped: a parked goroutine's stack is
//! never freed. Free stacks are reused last in, first out: their pages are hot.

use std::fmt;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

/// The smallest stack; requests below it are rounded up.
pub(crate) const MIN_STACK: usize = 16 << 10;
/// The biggest stack; requests above it are an error.
pub(crate) const MAX_STACK: usize = 64 << 20;

const PAGE: usize = 4096;
/// A slab: at least one slot of any class.
const SLAB: usize = MAX_STACK;
/// A slab is made smaller down to this where the address space is short: what is left then is the program's.
const LEAST_SLAB: usize = 1 << 20;
/// Slots guarded at a time.
const BATCH: usize = 64;
/// Not in libc 0.2 yet.
const MADV_GUARD_INSTALL: libc::c_int = 102;

/// Guards made by `mprotect` in this process, two mappings each.
static MPROTECTED: AtomicUsize = AtomicUsize::new(0);

/// How a guard page is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    /// `MADV_GUARD_INSTALL`, and `Mprotect` where the kernel refuses it.
    Light,
    Mprotect,
}

/// A size class, as the logarithm of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class(u8);

impl Class {
    const FIRST: u8 = MIN_STACK.trailing_zeros() as u8;
    const COUNT: usize = (MAX_STACK / MIN_STACK).trailing_zeros() as usize + 1;

    fn of(size: usize) -> io::Result<Class> {
        if size > MAX_STACK {
            let text = format!("a stack of {}: the biggest is {}", Bytes(size), Bytes(MAX_STACK));
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(Class(size.max(MIN_STACK).next_power_of_two().trailing_zeros() as u8))
    }

    fn bytes(self) -> usize {
        1 << self.0
    }

    fn index(self) -> usize {
        (self.0 - Class::FIRST) as usize
    }
}

/// A stack that is out of its pool. It has no `Drop`: one that is not given back is leaked, and stays mapped.
#[derive(Debug)]
pub(crate) struct StackMem {
    top: NonNull<u8>,
    slab: u32,
    class: Class,
}

// SAFETY: it is memory that nobody else refers to, as a Box is.
unsafe impl Send for StackMem {}

impl StackMem {
    /// The end of the stack, from which it grows downwards; page-aligned.
    pub(crate) fn top(&self) -> *mut u8 {
        self.top.as_ptr()
    }

    /// Where its first frame begins: up to 1,920 bytes below the top, aligned to a cache line pair.
    ///
    /// Slots lie a power of two apart. If all stacks began at their tops, those of parked goroutines would share a
    /// few sets of each cache; a thousand goroutines that take turns ran a quarter slower.
    pub(crate) fn start(&self) -> *mut u8 {
        const COLOURS: usize = 16;
        const APART: usize = 128;
        let slot = self.top.addr().get() / self.class.bytes();
        self.top().wrapping_sub(slot % COLOURS * APART)
    }
}

#[derive(Debug)]
struct Slab {
    base: NonNull<u8>,
    class: Class,
    slots: usize,
    /// Slots with a guard page, from the base upwards.
    guarded: usize,
    /// Slots that have been handed out at least once.
    issued: usize,
    /// Stacks that are out.
    live: usize,
    /// Guards that count in `MPROTECTED`.
    mprotected: usize,
}

// SAFETY: it owns its mapping as a Box owns memory.
unsafe impl Send for Slab {}

#[derive(Debug, Default)]
struct Shelf {
    free: Vec<StackMem>,
    /// The slab whose slots are being issued.
    filling: Option<usize>,
}

#[derive(Debug, Default)]
struct Inner {
    slabs: Vec<Slab>,
    shelves: [Shelf; Class::COUNT],
    /// Bytes of the slots that are out.
    in_use: usize,
}

/// The stacks of one runtime.
#[derive(Debug)]
pub(crate) struct StackPool {
    inner: Mutex<Inner>,
    max_bytes: usize,
    guard: Guard,
}

impl StackPool {
    /// `max_bytes` limits the stacks that are out at a time, each counted with its whole slot.
    /// Maps nothing yet.
    pub(crate) fn new(max_bytes: Option<usize>) -> StackPool {
        StackPool::with_guard(max_bytes, Guard::Light)
    }

    fn with_guard(max_bytes: Option<usize>, guard: Guard) -> StackPool {
        StackPool { inner: Mutex::default(), max_bytes: max_bytes.unwrap_or(usize::MAX), guard }
    }

    /// A stack of at least `size` bytes, its guard page included.
    ///
    /// Errors name what was attempted and the limit that was met: `InvalidInput` above MAX_STACK,
    /// `QuotaExceeded` at the pool's own limit, `OutOfMemory` when the kernel refuses.
    pub(crate) fn take(&self, size: usize) -> io::Result<StackMem> {
        let class = Class::of(size)?;
        let mut inner = self.inner.lock();
        if class.bytes() > self.max_bytes.saturating_sub(inner.in_use) {
            let (of, used, max) = (Bytes(class.bytes()), Bytes(inner.in_use), Bytes(self.max_bytes));
            let text = format!("a stack of {of}: {used} of stacks are in use, the runtime's limit is {max}");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        let stack = match inner.shelves[class.index()].free.pop() {
            Some(stack) => stack,
            None => inner.issue(class, self.guard)?,
        };
        inner.in_use += class.bytes();
        inner.slabs[stack.slab as usize].live += 1;
        Ok(stack)
    }

    /// Takes a stack back; the next `take` of its class gets it. Panics if it is another pool's.
    ///
    /// # Safety
    /// Nothing refers to a frame on it any more.
    pub(crate) unsafe fn give(&self, stack: StackMem) {
        let inner = &mut *self.inner.lock();
        let slab = &mut inner.slabs[stack.slab as usize];
        let offset = stack.top.addr().get().wrapping_sub(slab.base.addr().get());
        assert!(offset <= slab.bytes(), "StackPool::give: not of this pool ({stack:?}, {slab:?})");
        slab.live -= 1;
        inner.in_use -= stack.class.bytes();
        inner.shelves[stack.class.index()].free.push(stack);
    }
}

impl Drop for StackPool {
    /// Unmaps the slabs to which every stack has come back; the others are leaked, for ever.
    fn drop(&mut self) {
        for slab in self.inner.get_mut().slabs.drain(..).filter(|slab| slab.live == 0) {
            // SAFETY: the slab owns this mapping, and no stack in it is out: the free ones die with the pool.
            let done = unsafe { libc::munmap(slab.base.as_ptr().cast(), slab.bytes()) };
            debug_assert_eq!(done, 0, "StackPool::drop: munmap of {slab:?}");
            // Relaxed: a count, it orders nothing.
            MPROTECTED.fetch_sub(slab.mprotected, Relaxed);
        }
    }
}

impl Inner {
    /// A slot that was never out before.
    fn issue(&mut self, class: Class, guard: Guard) -> io::Result<StackMem> {
        let index = match self.shelves[class.index()].filling {
            Some(index) if self.slabs[index].issued < self.slabs[index].slots => index,
            _ => {
                let mapped = self.slabs.iter().map(Slab::bytes).sum();
                self.slabs.push(Slab::map(class, mapped)?);
                self.shelves[class.index()].filling = Some(self.slabs.len() - 1);
                self.slabs.len() - 1
            }
        };
        let slab = &mut self.slabs[index];
        if slab.issued == slab.guarded {
            slab.guard_batch(guard)?;
        }
        slab.issued += 1;
        // SAFETY: `issued` is at most `slots`, so this is the end of a slot inside of the mapping, or the
        // mapping's end.
        let top = unsafe { slab.base.add(slab.issued * class.bytes()) };
        Ok(StackMem { top, slab: index as u32, class })
    }
}

impl Slab {
    /// Reserves a slab; a smaller one where the address space does not hold it any more.
    fn map(class: Class, mapped: usize) -> io::Result<Slab> {
        let mut bytes = SLAB;
        let base = loop {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
            // SAFETY: a new mapping, at an address of the kernel's choice.
            let base = unsafe { libc::mmap(ptr::null_mut(), bytes, prot, flags, -1, 0) };
            if base != libc::MAP_FAILED {
                break NonNull::new(base.cast::<u8>()).expect("Slab::map: mmap gave null");
            }
            let error = io::Error::last_os_error();
            if bytes == class.bytes().max(LEAST_SLAB) {
                let (of, slab, mapped) = (Bytes(class.bytes()), Bytes(bytes), Bytes(mapped));
                let limit = address_space_limit();
                let text = format!(
                    "a stack of {of}: mmap of {slab}: {error}; {mapped} are mapped for stacks, {limit}"
                );
                return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
            }
            bytes /= 2;
        };
        // A kernel without huge pages answers EINVAL, and needs no advice.
        // SAFETY: advice on the mapping just made; it changes no content.
        unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_NOHUGEPAGE) };
        Ok(Slab { base, class, slots: bytes / class.bytes(), guarded: 0, issued: 0, live: 0, mprotected: 0 })
    }

    /// Guards the next slots: a batch, or what is left of the slab, or as many as the kernel lets; at least one.
    fn guard_batch(&mut self, mut guard: Guard) -> io::Result<()> {
        let begin = self.guarded;
        while self.guarded < self.slots.min(begin + BATCH) {
            // SAFETY: `guarded` is below `slots`: the page lies inside of the mapping.
            let page = unsafe { self.base.add(self.guarded * self.class.bytes()) };
            let made = match guard {
                Guard::Light => light_guard(page),
                Guard::Mprotect => mprotect_guard(page).inspect(|()| self.mprotected += 1),
            };
            match made {
                Ok(()) => self.guarded += 1,
                Err(error) if guard == Guard::Light && error.raw_os_error() == Some(libc::EINVAL) => {
                    guard = Guard::Mprotect;
                }
                // What has its guard can be used; the next batch meets the error again.
                Err(_) if self.guarded > begin => break,
                Err(error) => {
                    let text =
                        format!("a stack of {}: guard page: {guard:?}: {error}", Bytes(self.class.bytes()));
                    return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
                }
            }
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.slots * self.class.bytes()
    }
}

/// A guard that splits no mapping.
fn light_guard(page: NonNull<u8>) -> io::Result<()> {
    // SAFETY: the page is the lowest of a slot that was never issued, nobody uses it.
    match unsafe { libc::madvise(page.as_ptr().cast(), PAGE, MADV_GUARD_INSTALL) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A guard that splits its mapping, within the budget of the process.
fn mprotect_guard(page: NonNull<u8>) -> io::Result<()> {
    let max = max_map_count();
    let budget = (max - max / 8) / 2;
    // Relaxed: a count, it orders nothing.
    if MPROTECTED.fetch_add(1, Relaxed) >= budget {
        MPROTECTED.fetch_sub(1, Relaxed);
        return Err(io::Error::other(format!(
            "{budget} guards, of two mappings each, are all that vm.max_map_count = {max} allows; \
             from Linux 6.13 on a guard needs no mapping"
        )));
    }
    // SAFETY: as in `light_guard`.
    if unsafe { libc::mprotect(page.as_ptr().cast(), PAGE, libc::PROT_NONE) } != 0 {
        let error = io::Error::last_os_error();
        MPROTECTED.fetch_sub(1, Relaxed);
        return Err(io::Error::other(format!("{error}; vm.max_map_count = {max}")));
    }
    Ok(())
}

fn max_map_count() -> usize {
    static MAX: OnceLock<usize> = OnceLock::new();
    // Without /proc: the kernel's default.
    *MAX.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
        text.trim().parse().unwrap_or(65530)
    })
}

fn address_space_limit() -> String {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: it writes the struct that we pass.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) };
    match limit.rlim_cur {
        libc::RLIM_INFINITY => "RLIMIT_AS is unlimited".to_string(),
        bytes => format!("RLIMIT_AS is {}", Bytes(bytes as usize)),
    }
}

/// Prints in the biggest unit that loses nothing.
struct Bytes(usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes != 0 && bytes.is_multiple_of(1 << 20) => write!(f, "{} MiB", bytes >> 20),
            bytes if bytes != 0 && bytes.is_multiple_of(1 << 10) => write!(f, "{} KiB", bytes >> 10),
            bytes => write!(f, "{bytes} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::process::Command;

    /// True in a process of its own, where this test runs alone; else runs it there, and it must pass.
    fn alone(test: &str) -> bool {
        let child = std::env::var_os("GMP_TEST_CHILD").is_some();
        if !child {
            let path = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args([&path, "--exact", "--nocapture"]).env("GMP_TEST_CHILD", "1");
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        child
    }

    fn write_through(stack: &StackMem) {
        let bytes = stack.class.bytes() - PAGE;
        // SAFETY: the usable part of a stack that is out of its pool.
        unsafe { stack.top().wrapping_sub(bytes).write_bytes(0xA5, bytes) };
    }

    /// The kernel's mappings that overlap the slab, and how many of them cannot be read.
    fn mappings(base: usize, bytes: usize) -> (usize, usize) {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let ours = maps.lines().filter(|line| {
            let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            let address = |text| usize::from_str_radix(text, 16).unwrap();
            address(from) < base + bytes && base < address(to)
        });
        ours.fold((0, 0), |(all, closed), line| (all + 1, closed + usize::from(line.contains("---p"))))
    }

    fn extent(pool: &StackPool) -> (usize, usize) {
        let inner = pool.inner.lock();
        (inner.slabs[0].base.addr().get(), inner.slabs[0].bytes())
    }

    /// Fails by an off-by-one in the classes: too small a stack, or one class above what fits.
    #[test]
    fn sizes_are_rounded_up_to_a_class() {
        let class = |size| Class::of(size).unwrap();
        assert_eq!(class(0).bytes(), MIN_STACK);
        assert_eq!(class(MIN_STACK + 1).bytes(), 2 * MIN_STACK);
        assert_eq!(class(64 << 10).bytes(), 64 << 10);
        assert_eq!((class(MAX_STACK).bytes(), class(MAX_STACK).index()), (MAX_STACK, Class::COUNT - 1));
        let error = StackPool::new(None).take(MAX_STACK + 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(error.to_string(), "a stack of 67108865 bytes: the biggest is 64 MiB");
    }

    /// Fails by a fault, or by one stack's bytes in another: slots overlap, or lie outside of their slab.
    #[test]
    fn stacks_of_all_classes_can_be_written_and_do_not_overlap() {
        let pool = StackPool::new(None);
        let mut stacks: Vec<StackMem> =
            (0..Class::COUNT).map(|i| pool.take(MIN_STACK << i).unwrap()).collect();
        stacks.extend((0..200).map(|_| pool.take(64 << 10).unwrap()));
        let mut tops: Vec<_> = stacks.iter().map(|stack| (stack.top().addr(), stack.class.bytes())).collect();
        tops.sort();
        assert!(tops.windows(2).all(|pair| pair[0].0 + pair[1].1 <= pair[1].0));
        stacks.iter().filter(|stack| stack.class.bytes() <= 1 << 20).for_each(write_through);
    }

    /// Fails if a hot stack is left lying while a colder one is taken.
    #[test]
    fn the_stack_given_back_last_is_taken_first() {
        let pool = StackPool::new(None);
        let [a, b] = [(); 2].map(|()| pool.take(64 << 10).unwrap());
        let tops = [a.top(), b.top()];
        // SAFETY: nothing ever ran on them.
        unsafe {
            pool.give(b);
            pool.give(a);
        }
        assert_eq!([(); 2].map(|()| pool.take(64 << 10).unwrap().top()), tops);
    }

    /// Fails if the limit counts what was given back, forgets what is out, or has no text.
    #[test]
    fn the_limit_is_on_the_stacks_that_are_out() {
        let pool = StackPool::new(Some(128 << 10));
        let first = pool.take(64 << 10).unwrap();
        let _second = pool.take(64 << 10).unwrap();
        let error = pool.take(1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
        assert_eq!(
            error.to_string(),
            "a stack of 16 KiB: 128 KiB of stacks are in use, the runtime's limit is 128 KiB"
        );
        // SAFETY: nothing ever ran on it.
        unsafe { pool.give(first) };
        pool.take(16 << 10).unwrap();
    }

    /// Fails if a slab outlives its pool, or dies while one of its stacks is out.
    #[test]
    fn a_dropped_pool_unmaps_what_came_back_and_leaks_what_did_not() {
        if !alone("a_dropped_pool_unmaps_what_came_back_and_leaks_what_did_not") {
            return;
        }
        for leak in [false, true] {
            let pool = StackPool::new(None);
            let [stack, other] = [(); 2].map(|()| pool.take(64 << 10).unwrap());
            write_through(&stack);
            // SAFETY: nothing ever ran on them.
            unsafe { pool.give(other) };
            let kept = leak.then_some(stack.top());
            if !leak {
                // SAFETY: as above.
                unsafe { pool.give(stack) };
            }
            let (base, bytes) = extent(&pool);
            assert_eq!(bytes, SLAB);
            drop(pool);
            match kept {
                // SAFETY: this stack is out, so its slab was leaked.
                Some(top) => assert_eq!(unsafe { top.sub(1).read_volatile() }, 0xA5),
                None => assert_eq!(mappings(base, bytes).0, 0),
            }
        }
    }

    /// Fails if a slot has no guard, or one that covers more than its lowest page.
    #[test]
    fn every_stack_ends_at_a_guard_page_of_either_kind() {
        let (_reader, writer) = std::io::pipe().unwrap();
        // SAFETY: the kernel reads the byte for us, and says EFAULT where that cannot be.
        let readable = |byte: *mut u8| unsafe { libc::write(writer.as_raw_fd(), byte.cast(), 1) } == 1;
        for guard in [Guard::Light, Guard::Mprotect] {
            let pool = StackPool::with_guard(None, guard);
            for _ in 0..2 * BATCH + 1 {
                let lowest = pool.take(64 << 10).unwrap().top().wrapping_sub((64 << 10) - PAGE);
                let around = [lowest, lowest.wrapping_sub(1), lowest.wrapping_sub(PAGE)];
                assert_eq!(around.map(readable), [true, false, false], "{guard:?}");
            }
        }
    }

    /// Fails if a batch guards another number of slots than it says. By `mprotect` the guards are visible.
    #[test]
    fn guards_are_made_in_batches() {
        let pool = StackPool::with_guard(None, Guard::Mprotect);
        let stacks: Vec<StackMem> = (0..BATCH).map(|_| pool.take(64 << 10).unwrap()).collect();
        let (base, bytes) = extent(&pool);
        assert_eq!(mappings(base, bytes).1, BATCH);
        stacks.iter().for_each(write_through);
        let next = pool.take(64 << 10).unwrap();
        assert_eq!(mappings(base, bytes).1, 2 * BATCH);
        assert_eq!(next.top().addr(), base + (BATCH + 1) * (64 << 10));
    }

    /// Fails by an abort, or by an error that does not name the limit.
    #[test]
    fn address_space_that_runs_out_is_an_error_that_names_the_limit() {
        if !alone("address_space_that_runs_out_is_an_error_that_names_the_limit") {
            return;
        }
        let status = fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = status.split(' ').next().unwrap().parse().unwrap();
        let bytes = pages * PAGE as u64 + (100 << 20);
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: it reads the struct that we pass.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
        let pool = StackPool::new(None);
        let mut taken = 0;
        let error = loop {
            match pool.take(64 << 10) {
                Ok(_leaked) => taken += 1,
                Err(error) => break error,
            }
        };
        assert!((98 * 16..=100 * 16).contains(&taken), "{taken}");
        let text = error.to_string();
        assert!(text.starts_with("a stack of 64 KiB: mmap of 1 MiB: "), "{text}");
        assert!(text.contains("mapped for stacks, RLIMIT_AS is "), "{text}");
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    }

    /// Fails by an error that does not name the limit, or if the program is left without mappings.
    #[test]
    fn guards_by_mprotect_end_at_a_budget_of_mappings() {
        if !alone("guards_by_mprotect_end_at_a_budget_of_mappings") {
            return;
        }
        let pools = [(); 2].map(|()| StackPool::with_guard(None, Guard::Mprotect));
        let mut taken = Vec::new();
        let error = loop {
            match pools[taken.len() / 1000 % 2].take(0) {
                Ok(stack) => taken.push(stack),
                Err(error) => break error,
            }
        };
        let max = max_map_count();
        assert!(taken.len() <= (max - max / 8) / 2, "{}", taken.len());
        assert!(taken.len() > (max - max / 8) / 2 - 2 * BATCH, "{}", taken.len());
        assert!(error.to_string().contains(&format!("vm.max_map_count = {max}")), "{error}");
        std::thread::spawn(|| ()).join().unwrap();
    }

    /// Fails by an error: the kernel has no light guards for locked memory.
    #[test]
    fn locked_memory_is_guarded_by_mprotect() {
        if !alone("locked_memory_is_guarded_by_mprotect") {
            return;
        }
        // SAFETY: a mode of this process, for mappings to come.
        assert_eq!(unsafe { libc::mlockall(libc::MCL_FUTURE | libc::MCL_ONFAULT) }, 0);
        let pool = StackPool::new(None);
        write_through(&pool.take(64 << 10).unwrap());
        let (base, bytes) = extent(&pool);
        assert!(mappings(base, bytes).1 > 0);
    }
}
