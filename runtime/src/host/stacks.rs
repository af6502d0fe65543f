//! Stacks: memory for them, and running a goroutine on one.

use super::Threads;
use crate::stack::switch::{self, Coro, Home};
use std::io;
use std::ptr::NonNull;

/// The word with which a goroutine that has ended leaves its stack.
pub(crate) const EXIT: usize = 0;

/// A goroutine's stack with its suspended context.
pub(crate) trait Stack<L>: Send {
    /// Runs `g`, the goroutine whose stack this is, on the M of the calling thread until `g` yields. `local` is that M's.
    /// Returns the word with which the goroutine has suspended itself, or `EXIT`.
    ///
    /// # Safety
    /// The caller won `StatusWord::run`, so that no other thread resumes or reads this stack; the goroutine has not ended. (The
    /// reference is shared, because the goroutine itself may look where its stack lies.)
    unsafe fn resume(&self, local: &L, g: *mut ()) -> usize;

    /// Returns the context, which both hosts have.
    fn coro(&self) -> &Coro;
}

/// The stacks of one runtime.
pub(crate) trait Stacks: Threads {
    /// A goroutine's stack with its suspended context.
    type Stack: Stack<Self::Local>;
    /// The stacks that a P keeps. The P's owner empties the cache into the host before the cache is dropped.
    type StackCache: Default + Send;
    /// Reserves a stack of at least `size` bytes; `cache` is that of the caller's P, if it has one. An error says which
    /// limit was met.
    fn reserve_stack(&self, cache: Option<&mut Self::StackCache>, size: usize) -> io::Result<()>;
    /// Returns a stack that was reserved, on which the root of a goroutine waits for its first resume.
    fn new_stack(&self, cache: &mut Self::StackCache, size: usize) -> io::Result<Self::Stack>;
    /// Takes back the stack of a goroutine that has ended, and its reservation.
    fn retire(&self, cache: &mut Self::StackCache, stack: Self::Stack);
    /// Takes back a stack of `new_stack` on which nothing has run. Its reservation remains: the goroutine takes a stack later.
    fn put_back(&self, stack: Self::Stack);
    /// Takes all stacks out of the cache. Returns `true` if there was one.
    fn empty(&self, cache: &mut Self::StackCache) -> bool;
    /// Says that a period has passed: stacks that were not needed in it may be trimmed. Returns `false` if no stack is left
    /// that could ever be trimmed.
    fn age_stacks(&self) -> bool;
    /// Trims some of these stacks. Returns `false` if none is left.
    fn trim_some(&self) -> bool;
    /// Returns fresh memory for Gs, from a page's start; `None` if there is none: then the caller asks the allocator.
    fn map(_bytes: usize) -> Option<NonNull<u8>> {
        None
    }
    /// Gives memory of `map` back.
    ///
    /// # Safety
    /// `map` has returned this address for this size, and nothing uses the memory any more.
    unsafe fn unmap(_at: NonNull<u8>, _bytes: usize) {}
    /// Calls `f` on another stack, of at least `size` bytes. `here` is the host of the calling goroutine, `None` on a plain
    /// thread. An unwinding passes through.
    fn call_on(here: Option<&Self>, size: usize, f: &mut dyn FnMut()) -> io::Result<()>;
    /// Returns the free bytes of the fullest of the caller's stacks, the guards not counted: the goroutine's own, and those
    /// that `call_on` has put under the caller, a goroutine or a plain thread, whose outer frames lie on the stacks from which
    /// they were called. `address` lies in the caller's frame. `usize::MAX` if the host does not know, as for a plain thread's
    /// own stack.
    fn least_left(address: usize) -> usize;
    /// Returns the free bytes of the stack on which the caller, a goroutine, runs; `None` if the host does not know.
    fn left() -> Option<usize>;
    /// Called on a goroutine's stack: gives the M of `local` back to its scheduler, whose resume returns `word`. Returns
    /// when the goroutine is resumed, perhaps on another M.
    ///
    /// # Safety
    /// The caller is a goroutine that runs on the M of `local`, its current M. `word` is not `EXIT`, and the scheduler
    /// knows how to read it.
    #[inline(always)]
    unsafe fn suspend(local: &Self::Local, word: usize) {
        let home: *const Home = local.as_ref();
        // SAFETY: the caller runs on the M of `local`, and nothing here uses `local` afterwards.
        unsafe { switch::suspend(home, word) };
    }
}
