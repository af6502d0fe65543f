//! `with_stack`: a second stack under the same goroutine, or thread, while a function runs.
//!
//! ```text
//!   own stack                            second stack (a `StackMem`, from the runtime's pool)
//!   | ..                    |            | start                        |
//!   | frame of `call_on`    |            | return into `cross`          |
//!   |   Entered             | <- outer   | frame of `shim`              |
//!   | frame of `cross`: rbp |            | frames of f; may park here,  |
//!   |                       |            | and enter a third stack      |
//! ```
//! C1 take a stack · C2 make its `Segment` the innermost · C3 rsp := start, call f · C4 rsp := rbp · C5 make the outer
//! `Segment` the innermost again · C6 give the stack back.
//!
//! C5 and C6 are a destructor in a frame of the outer stack: a panic, `goexit` and an end from outside unwind from the second
//! stack to the first as through any call, and run that destructor, too. To that end the table of `cross` says where its
//! caller's frame is: at rbp, which each function that `cross` calls preserves. `cross` has no exception table, so a throw
//! passes through it.
//!
//! A park on the second stack is like any other: the switch saves one stack pointer, wherever that points
//! (`stack/switch.rs`). So the goroutine may continue on another M, and the chain of segments must not be the thread's:
//! the chain begins at a word in the frame of `g::root`, which `Task::mark` points to. A plain thread has a
//! thread-local for its chain.
//!
//! Invariants: a goroutine's frames lie on its own stack and those of its segments, each called from the next one in the chain.
//! A `Segment` lives in a frame of the next outer stack. A goroutine that is left behind never gets to C6: it keeps all its
//! stacks.

use super::overflow;
use super::signals::SignalStack;
use crate::m::M;
use crate::stack::annotate;
use crate::stack::pool::{Class, Extent, GUARD, PAGE, StackCache, StackMem, StackPool};
use std::arch::naked_asm;
use std::cell::Cell;
use std::io;
use std::iter;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::OnceLock;

/// A stack that the goroutine or thread has entered and not left.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) extent: Extent,
    /// The segment from which this one was entered; null if that was the goroutine's, or the thread's, own stack.
    pub(super) outer: *const Segment,
}

std::thread_local! {
    /// The innermost segment of a thread that runs no goroutine.
    static INNERMOST: Cell<*const Segment> = const { Cell::new(ptr::null()) };
}

/// The stacks of plain threads, and those of the panic hook, which are kept: see `prepare`. A panic takes one of the hook's
/// stacks when too little stack may be left to map one, so plain threads have a pool of their own. No monitor trims these
/// pools: the pages below the uppermost `KEPT` bytes of a stack go back to the kernel when its user leaves.
static OF_THREADS: OnceLock<StackPool> = OnceLock::new();
static OF_HOOK: OnceLock<StackPool> = OnceLock::new();
const KEPT: usize = 256 << 10;

fn pool_of(pool: &'static OnceLock<StackPool>) -> &'static StackPool {
    pool.get_or_init(|| StackPool::small(GUARD))
}

/// Makes stacks of `size` bytes ready for `call_on_stock`. If there is no memory now, `call_on_stock` finds none.
pub(super) fn prepare(size: usize) {
    let pool = pool_of(&OF_HOOK);
    if Entered::new(pool, size).is_ok() {
        pool.keep(size);
    }
}

/// Calls `f` on a stack of at least `size` bytes, the guard page included. On a goroutine the stack is from `pool`,
/// its runtime's.
///
/// # Errors
/// Those of `StackPool::reserve` and `StackPool::take_one`; then nothing is reserved or taken.
pub(super) fn call_on(pool: Option<&StackPool>, size: usize, f: &mut dyn FnMut()) -> io::Result<()> {
    overflow::install();
    let entered = Entered::new(pool.unwrap_or_else(|| pool_of(&OF_THREADS)), size)?;
    entered.call(f);
    Ok(())
}

/// Does the same as `call_on`, on a stack that is ready. The call takes little stack itself.
///
/// # Errors
/// When no stack is ready.
pub(super) fn call_on_stock(size: usize, f: &mut dyn FnMut()) -> io::Result<()> {
    let pool = pool_of(&OF_HOOK);
    pool.reserve_of_stock(size)?;
    let entered = Entered::reserved(pool, size)?;
    entered.call(f);
    Ok(())
}

type Shim = unsafe extern "C-unwind" fn(*mut ());

/// The outermost frame on the second stack.
///
/// # Safety
/// `f` points to a `&mut dyn FnMut()`.
unsafe extern "C-unwind" fn shim(f: *mut ()) {
    // SAFETY: by this function's contract.
    (unsafe { &mut *f.cast::<&mut dyn FnMut()>() })();
}

/// C3 and C4: calls `shim(f)` with the stack pointer at `start`.
///
/// # Safety
/// Below `start`, which is 16-aligned, is a stack that is not in use. `shim` may be called with `f`.
#[unsafe(naked)]
unsafe extern "C-unwind" fn cross(start: *mut u8, f: *mut (), shim: Shim) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp", // from here on the caller is found by rbp, wherever rsp points
        "mov rsp, rdi",
        "mov rdi, rsi",
        "call rdx",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "ret",
        ".cfi_endproc",
    )
}

/// C2; C5 and C6 when dropped.
struct Entered<'a> {
    pool: &'a StackPool,
    stack: ManuallyDrop<StackMem>,
    told: ManuallyDrop<annotate::Stack>,
    segment: Segment,
    /// A signal stack for a plain thread whose own is too small.
    signals: SignalStack,
}

impl<'a> Entered<'a> {
    fn new(pool: &'a StackPool, size: usize) -> io::Result<Self> {
        pool.reserve(None, size)?;
        Entered::reserved(pool, size)
    }

    fn reserved(pool: &'a StackPool, size: usize) -> io::Result<Self> {
        let stack = match pool.take_one(size) {
            Ok(stack) => stack,
            Err(refused) => {
                let mut cache = StackCache::default();
                pool.give_reservation(&mut cache, Class::of(size)?);
                pool.empty(&mut cache);
                return Err(refused);
            }
        };
        let segment = Segment { extent: stack.extent(), outer: innermost() };
        let told = ManuallyDrop::new(annotate::Stack::new(stack.top(), stack.bytes()));
        Ok(Entered { pool, stack: ManuallyDrop::new(stack), told, segment, signals: SignalStack::new() })
    }

    /// C3 and C4, once the value is where it stays.
    fn call(&self, f: &mut dyn FnMut()) {
        self.publish();
        let mut f = f;
        let _told = annotate::Call::begin(&self.told);
        // SAFETY: `start` is the upper end of a stack that is ours alone until this value is dropped, and aligned; `shim`
        // gets what it expects, which lives longer than the call.
        unsafe { cross(self.stack.start(), (&raw mut f).cast(), shim) };
    }

    /// C2, once the value is where it stays.
    fn publish(&self) {
        if self.segment.outer.is_null() && chain_of_goroutine().is_none() {
            self.signals.lend_unless(overflow::HANDLER);
        }
        set_innermost(&raw const self.segment);
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        set_innermost(self.segment.outer);
        self.signals.take_back();
        // SAFETY: this is the drop: neither field is used again.
        let (stack, told) =
            unsafe { (ManuallyDrop::take(&mut self.stack), ManuallyDrop::take(&mut self.told)) };
        told.retire();
        let mut cache = StackCache::default();
        // SAFETY: the function has returned or unwound: no frame is left there.
        unsafe {
            if [&OF_THREADS, &OF_HOOK]
                .map(OnceLock::get)
                .into_iter()
                .flatten()
                .any(|pool| ptr::eq(self.pool, pool))
            {
                return_pages(&stack);
            }
            self.pool.give(&mut cache, stack);
        }
        self.pool.empty(&mut cache);
    }
}

/// Gives the pages below the uppermost `KEPT` bytes back to the kernel; if memory is locked they stay.
///
/// # Safety
/// No frame is on the stack any more.
unsafe fn return_pages(stack: &StackMem) {
    if let Some(bytes) = stack.bytes().checked_sub(PAGE + KEPT) {
        let from = stack.top().wrapping_sub(KEPT + bytes);
        // SAFETY: the bytes belong to the caller's slot, without its guard; by this function's contract nothing reads them.
        unsafe { libc::madvise(from.cast(), bytes, libc::MADV_DONTNEED) };
    }
}

/// Returns the word at which the chain of the calling goroutine begins; `None` outside a goroutine.
fn chain_of_goroutine<'a>() -> Option<&'a Cell<*const Segment>> {
    let g = M::<super::Native>::current().and_then(M::g)?;
    // SAFETY: null, or the word that `g::root` keeps for the host as long as it runs, on the goroutine's own stack. Pointers to
    // all sized types have the same layout.
    unsafe { g.mark().cast::<Cell<*const Segment>>().as_ref() }
}

/// Returns the innermost segment of the calling goroutine, or thread. Never inlined: the function reads the value of a
/// thread-local, and no caller keeps its address.
#[inline(never)]
fn innermost() -> *const Segment {
    chain_of_goroutine().map_or_else(|| INNERMOST.get(), Cell::get)
}

/// Returns the segments of the calling goroutine, or thread, the innermost first.
pub(super) fn chain<'a>() -> impl Iterator<Item = &'a Segment> {
    // SAFETY: a segment of the caller's own chain is on a stack that the caller has not left.
    iter::successors(unsafe { innermost().as_ref() }, |segment| unsafe { segment.outer.as_ref() })
}

#[inline(never)]
fn set_innermost(segment: *const Segment) {
    match chain_of_goroutine() {
        Some(first) => first.set(segment),
        None => INNERMOST.set(segment),
    }
}

/// Tells the caller's stacks apart: returns a number for the stack that holds `address`, 0 for the caller's own.
pub(super) fn stack_of(address: usize) -> usize {
    chain().find(|segment| segment.extent.holds(address)).map_or(0, |segment| segment.extent.top)
}

/// Returns how many bytes are left of the fullest of the caller's stacks, the guards not counted: those of its segments, and
/// its own, which goes on at the outermost `Segment`, in the frame that has entered it. A plain thread's own stack does not
/// count. `address` lies in the caller's frame. Never inlined, as `innermost`.
#[inline(never)]
pub(super) fn least_left(address: usize) -> usize {
    let (mut least, mut at) = (usize::MAX, address);
    for inner in chain() {
        least = least.min(at.saturating_sub(inner.extent.usable()));
        at = ptr::from_ref(inner).addr();
    }
    let own = overflow::own_stack(M::<super::Native>::current().and_then(M::g));
    own.map_or(least, |own| least.min(at.saturating_sub(own.usable())))
}
