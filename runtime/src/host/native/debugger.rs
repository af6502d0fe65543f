//! The data that `tools/gmp-gdb.py` reads from a process, running or dead: where the Gs are, and where in a G its fields are.
//!
//! A release build has no type information, and a stopped process can't be asked. So this table has one word for each fact, in
//! an order on which the script relies. The chunks of all pools are in one list, which only a debugger reads.

use super::{Native, NativeStack};
use crate::g::pool::GPool;
use crate::g::{Birth, G};
use crate::prim::capacity::G_CHUNK;
use crate::prim::{Mutex, Rank};
use crate::sched::park::WaitReason;
use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst, compiler_fence};

/// The script finds the table by this name. All offsets are from the beginning of a G.
#[repr(C)]
struct Table {
    /// The order of these words.
    version: usize,
    chunks: AtomicPtr<Chunk>,
    chunks_len: AtomicUsize,
    gs_in_a_chunk: usize,
    size_of_g: usize,
    /// `StatusWord`: its lowest three bits.
    word: usize,
    id: usize,
    /// `Option<Name>`.
    name: usize,
    /// A byte, the index of a text in `reasons`.
    reason: usize,
    /// Null while the goroutine has no stack.
    stack_top: usize,
    /// The saved stack pointer; `usize::MAX` if the backend does not give it.
    sp: usize,
    reasons: *const &'static str,
    reasons_len: usize,
}

// SAFETY: the table points to constants and atomics only.
unsafe impl Sync for Table {}

// `used`: as far as the compiler sees, the table is only written.
#[used]
static TABLE: Table = Table {
    version: 2,
    chunks: AtomicPtr::new(ptr::null_mut()),
    chunks_len: AtomicUsize::new(0),
    gs_in_a_chunk: G_CHUNK,
    size_of_g: size_of::<G<Native>>(),
    word: offset_of!(G<Native>, word),
    id: offset_of!(G<Native>, id),
    // A Birth always has a site, whose niche an `Option<Birth>` uses to be `None`.
    name: offset_of!(G<Native>, birth) + offset_of!(Birth, name),
    reason: offset_of!(G<Native>, reason),
    stack_top: offset_of!(G<Native>, stack) + TOP,
    sp: SP.saturating_add(offset_of!(G<Native>, stack)),
    reasons: WaitReason::TEXTS.as_ptr(),
    reasons_len: WaitReason::TEXTS.len(),
};

/// In a NativeStack: a word that is null in no stack, and the saved stack pointer.
#[cfg(all(target_arch = "x86_64", not(feature = "generator")))]
const TOP: usize = offset_of!(NativeStack, coro.stack.top);
#[cfg(all(target_arch = "x86_64", not(feature = "generator")))]
const SP: usize = offset_of!(NativeStack, coro.sp);
#[cfg(any(feature = "generator", not(target_arch = "x86_64")))]
const TOP: usize = offset_of!(NativeStack, coro.link);
#[cfg(any(feature = "generator", not(target_arch = "x86_64")))]
const SP: usize = usize::MAX;

/// Gs in a row, and the pool that owns them.
#[repr(C)]
struct Chunk {
    gs: *const G<Native>,
    pool: *const GPool<Native>,
}

// SAFETY: an address, which only a debugger follows.
unsafe impl Send for Chunk {}

static CHUNKS: Mutex<Vec<Chunk>> = Mutex::new(Rank::Debugger, Vec::new());

/// Adds a chunk that a pool has got to the list.
pub(super) fn show(pool: *const GPool<Native>, gs: NonNull<G<Native>>) {
    change(|chunks| chunks.push(Chunk { gs: gs.as_ptr(), pool }));
}

/// Takes the chunks of a pool off the list, when the pool is closed.
pub(super) fn hide(pool: *const GPool<Native>) {
    change(|chunks| chunks.retain(|chunk| chunk.pool != pool));
}

fn change(f: impl FnOnce(&mut Vec<Chunk>)) {
    let mut chunks = CHUNKS.lock();
    // Relaxed, all of them: a debugger stops the threads, and reads what they have executed. The list is empty while the Vec
    // may move.
    TABLE.chunks_len.store(0, Relaxed);
    // SeqCst: for the compiler. A debugger is no thread, and needs no partner.
    compiler_fence(SeqCst);
    f(&mut chunks);
    TABLE.chunks.store(chunks.as_mut_ptr(), Relaxed);
    // SeqCst: for the compiler. A debugger is no thread, and needs no partner.
    compiler_fence(SeqCst);
    TABLE.chunks_len.store(chunks.len(), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::g::GRef;

    /// Fails if the script would take a goroutine without a stack for one with a stack.
    #[cfg(all(target_arch = "x86_64", not(feature = "generator")))]
    #[test]
    fn without_a_stack_its_top_is_null() {
        assert_eq!(size_of::<Option<NativeStack>>(), size_of::<NativeStack>());
        let none: Option<NativeStack> = None;
        // SAFETY: None is told by a word that is null in no stack, and the top is the only such word: it is
        // initialized.
        let top = unsafe { (&raw const none).byte_add(TOP).cast::<usize>().read() };
        assert_eq!(top, 0);
    }

    /// Fails if the Gs of a living pool are not in the list, or those of a closed pool still are.
    #[test]
    fn the_gs_of_the_pools_that_live_are_shown() {
        let shown = |g: GRef<Native>| {
            let at = g.to_raw().addr();
            CHUNKS.lock().iter().any(|chunk| {
                let first = chunk.gs.addr();
                (first..first + G_CHUNK * TABLE.size_of_g).contains(&at)
            })
        };
        let pool = GPool::new(crate::prim::Weak::new());
        // SAFETY: the pool is not closed yet; the G goes back to the pool before it is.
        let g = unsafe { GPool::get(pool) };
        assert!(shown(g));
        // SAFETY: the G came from the pool, which is closed after the G's return.
        unsafe {
            GPool::put(pool, std::iter::once(g));
            GPool::close(pool);
        }
        assert!(CHUNKS.lock().iter().all(|chunk| !ptr::eq(chunk.pool, pool.as_ptr())));
    }
}
