//! The switch over the crate `generator`: for architectures that `switch.rs` does not support, and on x86-64 as a cross-check.
//!
//! The interface is the same. These differences all come from that crate:
//! - Each stack is a mapping of its own, split by the guard page (which comes on top of the size), made by `Coro::new`
//!   and unmapped by `retire`. So a process has `vm.max_map_count` / 2 goroutines at most.
//! - The crate panics when the kernel refuses a stack; `Coro::new` catches that (the hook has printed it by then). A goroutine
//!   that waits for its stack asks again and again: after a refusal, `Coro::new` asks the kernel itself beforehand until a
//!   stack was made.
//! - The crate's handlers for SIGSEGV and SIGBUS are installed by the first `Coro::new`, and the crate's panic hook
//!   goes around the user's at the first resume in the process.
//! - An overflow leaves the goroutine without unwinding it and comes out of `resume` as a panic, on which the process aborts.
//! - Dropping a suspended generator resumes it with a panic, on the thread that drops it. So a Coro keeps the generator in
//!   `ManuallyDrop`, and only `retire` drops it.
//! - Such an overflow is reported in the crate's words: no goroutine, no spawn site, no frames.
//! - `with_stack` is an inner generator (`call_on`): a panic inside is caught at the generator's edge and goes on outside, so a
//!   backtrace ends there.
//! - No goroutine or plain thread is unwound from outside: the look at the frames (`native/frames`) forbids each throw, as a
//!   walk over that crate's stacks might not end. The end of a context, of a runtime, or a `goexit` that was caught reaches
//!   only calls that return an error for it (`OnInterrupt::Returning`); all other calls wait on, the send of a promise among
//!   them. A runtime that ends leaves all parked goroutines behind.
//! - The panic hook runs on the stack of the goroutine that panics (`native/hook.rs`). A panic with less stack left than the
//!   hook takes, some 30 KiB for std's with a backtrace, is an overflow and ends the process.
//! - A dump shows no frames.
//! - The crate's look-up of the current context reads a thread-local, the address of which a compiler may keep across
//!   the switch: `suspend` reaches it through one `#[inline(never)]` function, which returns after every switch.

use std::cell::{Cell, UnsafeCell};
use std::io;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use super::{Entry, MAX_STACK, MIN_STACK};
use crate::host::native::Native;
use crate::m::M;
use ::generator::{Gn, LocalGenerator, Scope};

use crate::host::Frames;

/// The crate guards a stack by one page, whatever the runtime asks for.
pub(crate) const GUARD: usize = 4 << 10;

/// The yielder, by which a goroutine yields and receives words. It lies on the goroutine's own stack.
type Yielder = Scope<'static, 'static, usize, usize>;

/// The goroutine that an M runs now; one for each M.
#[derive(Debug)]
pub(crate) struct Home {
    /// Where to find that goroutine's yielder.
    link: Cell<*const Cell<*mut Yielder>>,
}

impl Home {
    pub(crate) const fn new() -> Home {
        Home { link: Cell::new(ptr::null()) }
    }

    /// No tool learns of this backend's stacks.
    pub(crate) fn begun() {}

    /// Does the same as `begun`.
    pub(crate) fn end(&self) {}
}

/// The stacks of one runtime: only a count, as the crate maps the stacks itself.
#[derive(Debug)]
pub(crate) struct StackPool {
    in_use: AtomicUsize,
    max_bytes: usize,
    /// The kernel has refused the last stack.
    short: AtomicBool,
}

impl StackPool {
    /// `max_bytes` limits the stacks that are out at a time.
    pub(crate) fn new(max_bytes: Option<usize>, _guard: usize) -> StackPool {
        StackPool {
            in_use: AtomicUsize::new(0),
            max_bytes: max_bytes.unwrap_or(usize::MAX),
            short: AtomicBool::new(false),
        }
    }

    /// Counts a stack for `Coro::new`. Errors: `InvalidInput` above MAX_STACK, `QuotaExceeded` at the pool's limit.
    pub(crate) fn reserve(&self, _cache: Option<&mut StackCache>, size: usize) -> io::Result<()> {
        let (size, max) = (rounded(size)?, self.max_bytes);
        let fits = |used: usize| used.checked_add(size).filter(|&sum| sum <= max);
        // Relaxed: the count orders nothing.
        self.in_use.fetch_update(Relaxed, Relaxed, fits).map(drop).map_err(|used| {
            let text = format!("a stack of {size} bytes: {used} are in use, the runtime's limit is {max}");
            io::Error::new(io::ErrorKind::QuotaExceeded, text)
        })
    }

    /// The cache is empty.
    pub(crate) fn empty(&self, _cache: &mut StackCache) -> bool {
        false
    }

    /// Returns `false`: the pool keeps nothing that could age.
    pub(crate) fn age(&self) -> bool {
        false
    }

    /// Returns `false`: the pool keeps nothing that could be trimmed.
    pub(crate) fn trim_some(&self) -> bool {
        false
    }
}

/// What a P keeps: nothing.
#[derive(Debug, Default)]
pub(crate) struct StackCache;

/// Returns a request's bytes, rounded up to a power of two.
fn rounded(size: usize) -> io::Result<usize> {
    if size > MAX_STACK {
        let text = format!("a stack of {size} bytes: the biggest is {MAX_STACK}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(size.max(MIN_STACK).next_power_of_two())
}

/// Returns an error if the kernel has no stack of `size` bytes now: the mapping, split by its guard.
fn look_for(size: usize) -> io::Result<()> {
    let (bytes, prot) = (size + GUARD, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping, which is not used, and is unmapped at once.
    unsafe {
        let at = libc::mmap(ptr::null_mut(), bytes, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let split = match libc::mprotect(at, GUARD, libc::PROT_NONE) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        libc::munmap(at, bytes);
        split
    }
}

/// A goroutine's stack and the point at which it goes on.
///
/// Dropping a suspended Coro frees nothing, by design: the frames may be referred to from elsewhere. The stack is
/// leaked, and counts as in use in the pool.
#[derive(Debug)]
#[must_use = "dropping a Coro leaks its stack: retire it"]
pub(crate) struct Coro {
    generator: UnsafeCell<ManuallyDrop<LocalGenerator<'static, usize, usize>>>,
    /// A Box that `retire` frees. The goroutine writes the link before the entry begins; null before.
    pub(crate) link: *mut Cell<*mut Yielder>,
    size: usize,
}

// SAFETY: the crate keeps all of a suspended generator on the generator's own stack, handles included, so they move
// together. Whether the frames there may move is the contract under which a runtime is started.
unsafe impl Send for Coro {}

impl Coro {
    /// Makes the stack of `size` bytes that was reserved; `entry` runs there at the first resume.
    ///
    /// Errors: `OutOfMemory` with the crate's text when the kernel refuses; the reservation stands.
    pub(crate) fn new(
        pool: &StackPool,
        _cache: &mut StackCache,
        size: usize,
        entry: Entry,
    ) -> io::Result<Coro> {
        let size = rounded(size)?;
        let refused = |why: &dyn std::fmt::Display| {
            let limits = "RLIMIT_AS, RLIMIT_STACK, vm.max_map_count or vm.overcommit_memory";
            let text = format!("a stack of {size} bytes, which {limits} may limit: {why}");
            io::Error::new(io::ErrorKind::OutOfMemory, text)
        };
        // Relaxed: a hint, which saves a message.
        if pool.short.load(Relaxed) {
            look_for(size).map_err(|why| refused(&why))?;
        }
        let link: *mut Cell<*mut Yielder> = Box::into_raw(Box::new(Cell::new(ptr::null_mut())));
        let body = move |mut scope: Scope<'_, '_, usize, usize>| {
            // SAFETY: only `retire` frees this cell, after the generator has ended.
            unsafe { (*link).set((&raw mut scope).cast()) };
            let word = scope.get_yield().expect("Coro::resume sends a word each time");
            // SAFETY: this is the first resume, on the stack that was made for this entry.
            unsafe { entry(word).word }
        };
        // The crate counts in words; an odd number of them would touch the whole stack.
        let words = size / size_of::<usize>();
        match catch_unwind(AssertUnwindSafe(|| Gn::<usize>::new_scoped_opt_local(words, body))) {
            Ok(generator) => {
                // Relaxed, both here: a hint. The look spares other Ps' caches the store.
                if pool.short.load(Relaxed) {
                    pool.short.store(false, Relaxed);
                }
                Ok(Coro { generator: UnsafeCell::new(ManuallyDrop::new(generator)), link, size })
            }
            Err(payload) => {
                // SAFETY: the cell was made above, and the body that knew it is gone.
                drop(unsafe { Box::from_raw(link) });
                // Relaxed: as above.
                pool.short.store(true, Relaxed);
                let why = payload.downcast_ref::<String>().map_or("refused", String::as_str);
                Err(refused(&why))
            }
        }
    }

    /// Runs the goroutine until it suspends or the entry returns, and returns the word of either.
    ///
    /// # Safety
    /// The entry has not returned yet. `home` is the calling M's own. Meanwhile nothing else is resumed with that home, and no
    /// other M resumes this coroutine.
    #[inline(always)]
    pub(crate) unsafe fn resume(&self, home: &Home, word: usize) -> usize {
        home.link.set(self.link);
        // SAFETY: by this function's contract; elsewhere only those that own the Coro use the generator.
        let generator = unsafe { &mut *self.generator.get() };
        match catch_unwind(AssertUnwindSafe(|| generator.raw_send(Some(word)))) {
            Ok(answer) => answer.expect("Coro::resume: its entry has returned"),
            // The crate's handler has reported the overflow on stderr; there are frames on that stack that were not unwound.
            Err(_overflow) => process::abort(),
        }
    }

    /// Does nothing: the crate does not say where the frames are.
    pub(crate) fn fetch(&self) {}

    /// Returns `None`: the crate does not say how many bytes of a stack are in use.
    pub(crate) fn depth(&self) -> Option<usize> {
        None
    }

    /// Returns the same as `depth`.
    pub(crate) fn touched(&self) -> Option<usize> {
        None
    }

    /// Does nothing: each stack is a fresh mapping.
    pub(crate) fn forget(&self) {}

    /// Reads none: the crate does not say where it keeps a saved context.
    ///
    /// # Safety
    /// None is needed here.
    pub(crate) unsafe fn frames(&self, _frames: &mut Frames) {}

    /// Gives the stack back, and its reservation: the entry has returned, or never began.
    pub(crate) fn retire(self, pool: &StackPool, _cache: &mut StackCache) {
        let size = self.size;
        self.put_back(pool);
        pool.in_use.fetch_sub(size, Relaxed);
    }

    /// Does the same as `retire`, but the reservation remains.
    pub(crate) fn put_back(mut self, _pool: &StackPool) {
        // SAFETY: `new` made the cell, which is freed below.
        let never_began = unsafe { (*self.link).get().is_null() };
        assert!(self.generator.get_mut().is_done() || never_began, "Coro::retire: it is suspended");
        // SAFETY: `self` is not used after this; the frames that could read the cell are gone, see the
        // assertion.
        drop(unsafe { Box::from_raw(self.link) });
        // SAFETY: `self` is not used after this.
        let generator = unsafe { ManuallyDrop::take(self.generator.get_mut()) };
        // If a stack was used to the last word without an overflow, the crate panics here, after the hook's message; the memory
        // goes back all the same.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(generator)));
    }
}

/// Goes back to the M that resumed this goroutine, whose `resume` returns `word`. Returns the word of the next
/// resume, possibly on another thread.
///
/// # Safety
/// Called on a goroutine's stack; `home` is the one of the M that runs it now, and is not used after the
/// switch: that M may be gone by then. What the frames here keep across the call may be used on another thread.
#[inline(never)]
pub(crate) unsafe fn suspend(home: *const Home, word: usize) -> usize {
    // SAFETY: the caller's M waits in `resume`, which stored the link; the body stored the yielder, which lives
    // as long as the entry runs, and only the goroutine itself uses it.
    unsafe { yield_by((*(*home).link.get()).get(), word) }
}

/// Calls `f` on a stack of `size` bytes, that of a generator inside the goroutine's: this function passes the inner generator's
/// words on, outwards and back, at each suspension. On a goroutine the stack is from `pool`; a plain thread does not suspend.
///
/// # Errors
/// Those of `StackPool::reserve` and `Coro::new`.
pub(crate) fn call_on(pool: Option<&StackPool>, size: usize, f: &mut dyn FnMut()) -> io::Result<()> {
    let of_threads = StackPool::new(None, GUARD);
    let pool = pool.unwrap_or(&of_threads);
    let link = M::<Native>::current().filter(|m| m.g().is_some()).map(|m| m.local.home.link.get());
    // SAFETY: the link of the calling goroutine stays as long as the goroutine runs: see `retire`.
    let link = link.map(|link| unsafe { &*link });
    let outer = link.map(Cell::get);
    let caught = Cell::new(Ok(()));
    let size = rounded(size)?;
    pool.reserve(None, size)?;
    let body = |mut scope: Scope<'_, '_, usize, usize>| {
        let _first_word = scope.get_yield();
        if let Some(link) = link {
            link.set((&raw mut scope).cast());
        }
        caught.set(catch_unwind(AssertUnwindSafe(f)));
        0
    };
    let words = size / size_of::<usize>();
    let made = catch_unwind(AssertUnwindSafe(|| Gn::<usize>::new_scoped_opt_local(words, body)));
    let Ok(inner) = made else {
        pool.in_use.fetch_sub(size, Relaxed);
        return Err(io::Error::new(io::ErrorKind::OutOfMemory, format!("a stack of {size} bytes: refused")));
    };
    // A goroutine that is left behind keeps the inner generator: see the module's header.
    let mut inner = ManuallyDrop::new(inner);
    let mut word = 0;
    loop {
        let said = send(&mut inner, word);
        if inner.is_done() {
            break;
        }
        let outer = outer.expect("call_on: a plain thread does not suspend");
        // SAFETY: as in `suspend`; the inner generator has suspended, so this is the goroutine's innermost one again.
        word = unsafe { yield_by(outer, said) };
    }
    if let (Some(link), Some(outer)) = (link, outer) {
        link.set(outer);
    }
    // SAFETY: the inner generator has ended, and is not used after this.
    let ended = unsafe { ManuallyDrop::take(&mut inner) };
    // As in `retire`.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(ended)));
    pool.in_use.fetch_sub(size, Relaxed);
    caught.replace(Ok(())).or_else(|payload| resume_unwind(payload))
}

/// Not known, and not needed: nothing is unwound from outside on this backend.
pub(crate) fn least_left(_address: usize) -> usize {
    usize::MAX
}

/// A function apart from `call_on`, which may continue on other threads.
#[inline(never)]
fn send(inner: &mut LocalGenerator<'_, usize, usize>, word: usize) -> usize {
    match catch_unwind(AssertUnwindSafe(|| inner.raw_send(Some(word)))) {
        Ok(said) => said.expect("send: it has returned"),
        // As in `Coro::resume`.
        Err(_overflow) => process::abort(),
    }
}

/// # Safety
/// The yielder is that of the generator that runs here, or of one around that generator.
#[inline(never)]
unsafe fn yield_by(yielder: *mut Yielder, word: usize) -> usize {
    // SAFETY: by this function's contract.
    unsafe { &mut *yielder }.yield_(word).expect("Coro::resume sends a word each time")
}

/// No mark is ever compared on this backend.
pub(crate) fn stack_of(_address: usize) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::End;
    use crate::stack::tests::{child, end, is_child, leave, resume_from, started};
    use std::hint::black_box;
    use std::os::unix::process::ExitStatusExt;
    use std::panic;
    use std::thread;

    /// Fails by a wrong word or sum, or a panic that is not caught: something of a suspended goroutine stayed with the
    /// thread.
    #[test]
    fn a_goroutine_resumed_on_100_threads_keeps_its_words_its_floats_and_its_unwinding() {
        extern "C" fn wander(mut home: usize) -> End {
            let mut sum = black_box(0.25);
            for i in 0..100 {
                let caught = panic::catch_unwind(|| {
                    let home = leave(home, i);
                    panic::resume_unwind(Box::new(home))
                });
                home = *caught.unwrap_err().downcast().unwrap();
                sum += i as f64;
            }
            end(home, (sum * 4.0) as usize)
        }
        let pool = StackPool::new(None, GUARD);
        let mut coro = started(&pool, 64 << 10, wander).unwrap();
        for i in 0..=100 {
            let run = || resume_from(&mut coro, &Home::new());
            let word = thread::scope(|scope| scope.spawn(run).join().unwrap());
            assert_eq!(word, if i < 100 { i } else { 4950 * 4 + 1 });
        }
        coro.retire(&pool, &mut StackCache);
        assert_eq!(pool.in_use.load(Relaxed), 0);
    }

    extern "C" fn park_once(home: usize) -> End {
        let value = black_box(Cell::new(7));
        let home = leave(home, ptr::from_ref(&value).addr());
        end(home, value.get())
    }

    /// Fails by a fault, a panic on this thread, or a stack that no longer counts.
    #[test]
    fn a_suspended_coro_that_is_dropped_leaks_its_stack() {
        let pool = StackPool::new(Some(64 << 10), GUARD);
        let mut coro = started(&pool, 64 << 10, park_once).unwrap();
        let value = resume_from(&mut coro, &Home::new()) as *const usize;
        drop(coro);
        // SAFETY: the frame of `park_once` was leaked with the stack.
        assert_eq!(unsafe { value.read_volatile() }, 7);
        assert_eq!(started(&pool, 0, park_once).unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
    }

    /// Fails by a count that is less than none: the goroutine, which has not run, gives its reservation back at its end.
    #[test]
    fn a_stack_that_is_put_back_leaves_its_reservation() {
        extern "C" fn at_once(home: usize) -> End {
            end(home, 7)
        }
        let pool = StackPool::new(Some(64 << 10), GUARD);
        started(&pool, 64 << 10, at_once).unwrap().put_back(&pool);
        assert_eq!(pool.in_use.load(Relaxed), 64 << 10);
        let mut coro = Coro::new(&pool, &mut StackCache, 64 << 10, at_once).unwrap();
        assert_eq!(resume_from(&mut coro, &Home::new()), 7);
        coro.retire(&pool, &mut StackCache);
        assert_eq!(pool.in_use.load(Relaxed), 0);
        started(&pool, 64 << 10, at_once).unwrap().retire(&pool, &mut StackCache);
    }

    /// Fails if a stack that never ran cannot go back, or one with frames in use can.
    #[test]
    #[should_panic(expected = "Coro::retire: it is suspended")]
    fn only_a_suspended_coro_cannot_be_retired() {
        let pool = StackPool::new(None, GUARD);
        started(&pool, 0, park_once).unwrap().retire(&pool, &mut StackCache);
        let mut coro = started(&pool, 0, park_once).unwrap();
        resume_from(&mut coro, &Home::new());
        coro.retire(&pool, &mut StackCache);
    }

    /// Fails by an abort: the crate panics where the kernel refuses.
    #[test]
    fn a_stack_that_the_kernel_refuses_is_an_error() {
        if !is_child() {
            let output =
                child(module_path!(), "a_stack_that_the_kernel_refuses_is_an_error").output().unwrap();
            assert!(output.status.success(), "{output:?}");
            return;
        }
        let limit = libc::rlimit { rlim_cur: 8 << 20, rlim_max: 8 << 20 };
        // SAFETY: the call reads the struct that we pass.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_STACK, &limit) }, 0);
        let pool = StackPool::new(None, GUARD);
        let error = started(&pool, MAX_STACK, park_once).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        let text = error.to_string();
        assert!(
            text.starts_with("a stack of 67108864 bytes, which ") && text.contains(": failed to alloc"),
            "{text}"
        );
        // The reservation stands: the goroutine waits for a stack to come back.
        assert_eq!(pool.in_use.load(Relaxed), MAX_STACK);
    }

    /// Fails by another end of the child: a hang, or a panic in the child's scheduler.
    #[test]
    fn an_overflow_aborts() {
        #[inline(never)]
        fn exhaust(depth: usize) -> usize {
            let frame = black_box([depth; 64]);
            if black_box(false) { 0 } else { exhaust(depth + 1) + frame[depth % 64] }
        }
        extern "C" fn overflow(home: usize) -> End {
            end(home, exhaust(0))
        }
        if is_child() {
            let mut coro = started(&StackPool::new(None, GUARD), 64 << 10, overflow).unwrap();
            resume_from(&mut coro, &Home::new());
            return;
        }
        let output = child(module_path!(), "an_overflow_aborts").output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("has overflowed its stack"), "{output:?}");
    }
}
