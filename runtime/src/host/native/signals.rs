//! The alternate signal stack of a thread that runs goroutines, on which a handler runs when the stack is full.
//!
//! std gives its threads a signal stack of some 8 KiB, which a handler that walks frames would fill. An M has one of ours from
//! its first look for work to its last, even if its thread is the program's (`run_locked`); a plain thread inside `with_stack`
//! gets one if the handler of `overflow` would not fit on its own. Afterwards the previous signal stack is set again, and std
//! frees its own as usual.
//!
//! The kernel puts the registers on the signal stack before the handler runs: 1 KB on some processors, 3.5 with AVX-512,
//! 11 with AMX, which leaves nothing of std's 8 KiB. The auxiliary vector has the size.
//!
//! A signal stack of the program's stays if it is large enough, or if the program has set it in place of the lent one. If the
//! kernel has no memory, the thread goes on with the signal stack that it has. If the kernel refuses to restore the earlier
//! one, as in a sandbox that began meanwhile, the thread keeps the lent one: the kernel writes the next handler's frame there.

use super::thread::least_signal_stack;
use std::cell::Cell;
use std::ptr;

/// How much a handler may use, besides the kernel's frame.
pub(super) const ROOM: usize = 48 << 10;

/// The signal stack that was lent to a thread, if one was.
#[derive(Debug)]
pub(super) struct SignalStack {
    lent: Cell<Option<Lent>>,
}

#[derive(Clone, Copy, Debug)]
struct Lent {
    /// A guard page, and above it the stack.
    mapping: *mut libc::c_void,
    bytes: usize,
    guard: usize,
    before: libc::stack_t,
}

impl SignalStack {
    pub(super) const fn new() -> Self {
        SignalStack { lent: Cell::new(None) }
    }

    /// Lends a signal stack to the calling thread, unless the thread has one that holds `enough` bytes and the
    /// kernel's frame.
    pub(super) fn lend_unless(&self, enough: usize) {
        self.lend_for(least_signal_stack(), enough);
    }

    /// `frame` is how large the kernel's frame for a handler can be.
    fn lend_for(&self, frame: usize, enough: usize) {
        let Some(before) = exchange(None) else { return };
        if before.ss_flags & libc::SS_DISABLE == 0 && before.ss_size >= enough + frame {
            return;
        }
        let Some(lent) = Lent::map(before, frame) else { return };
        match exchange(Some(&lent.stack())) {
            Some(_before) => self.lent.set(Some(lent)),
            None => lent.unmap(),
        }
    }

    /// Takes back the signal stack that was lent. Called on the same thread.
    pub(super) fn take_back(&self) {
        let Some(lent) = self.lent.take() else { return };
        let is_gone = match exchange(None) {
            Some(now) if now.ss_sp == lent.stack().ss_sp => exchange(Some(&lent.before)).is_some(),
            Some(_the_programs_own) => true,
            // Refused. The lent stack may be this thread's for good.
            None => false,
        };
        if is_gone {
            lent.unmap();
        }
    }
}

/// `sigaltstack`: sets a signal stack and returns the previous one. `None` if the kernel refuses.
fn exchange(next: Option<&libc::stack_t>) -> Option<libc::stack_t> {
    let mut before = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
    let next = next.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the call reads and writes what we pass. A signal stack that is set stays mapped until another is set:
    // see `take_back`.
    let done = unsafe { libc::sigaltstack(next, &mut before) };
    (done == 0).then_some(before)
}

impl Lent {
    fn map(before: libc::stack_t, frame: usize) -> Option<Lent> {
        // SAFETY: the call only returns a number.
        let guard = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
        let bytes = guard + (ROOM + frame).next_multiple_of(guard);
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let mapping = unsafe { libc::mmap(ptr::null_mut(), bytes, prot, flags, -1, 0) };
        if mapping == libc::MAP_FAILED {
            return None;
        }
        let lent = Lent { mapping, bytes, guard, before };
        // SAFETY: the lowest page of the mapping just made.
        if unsafe { libc::mprotect(mapping, guard, libc::PROT_NONE) } != 0 {
            lent.unmap();
            return None;
        }
        Some(lent)
    }

    fn stack(&self) -> libc::stack_t {
        let ss_sp = self.mapping.wrapping_byte_add(self.guard);
        libc::stack_t { ss_sp, ss_flags: 0, ss_size: self.bytes - self.guard }
    }

    fn unmap(self) {
        // SAFETY: `map` has made the mapping, and no thread uses it as its signal stack.
        unsafe { libc::munmap(self.mapping, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn now() -> (usize, usize) {
        let now = exchange(None).expect("it only asks");
        (now.ss_sp.addr(), now.ss_size)
    }

    /// Fails if a thread keeps our signal stack, or loses its own: std unmaps the one that it knows when the thread
    /// ends.
    #[test]
    fn the_one_from_before_comes_back() {
        thread::spawn(|| {
            let (before, signals) = (now(), SignalStack::new());
            // Without a frame: with AMX the kernel's takes all of std's.
            signals.lend_for(0, 1);
            assert_eq!(now(), before, "std's is enough");
            signals.lend_unless(ROOM);
            let ours = now();
            assert!(ours.0 != before.0 && ours.1 >= ROOM);
            let second = SignalStack::new();
            second.lend_unless(ROOM);
            assert_eq!(now(), ours, "large enough");
            second.take_back();
            assert_eq!(now(), ours, "it was not the second's");
            signals.take_back();
            assert_eq!(now(), before);
        })
        .join()
        .unwrap();
    }

    /// Fails if the kernel's frame takes what the handler needs, on a processor with large ones (AVX-512, AMX): too little of
    /// std's signal stack is left there, or nothing.
    #[test]
    #[cfg(all(target_arch = "x86_64", not(feature = "generator")))]
    fn a_large_frame_of_the_kernel_is_reckoned_with() {
        use crate::host::native::overflow::HANDLER;
        thread::spawn(|| {
            let before = now();
            let exact = SignalStack::new();
            exact.lend_for(before.1 - HANDLER, HANDLER);
            assert_eq!(now(), before, "what the frame leaves is enough");
            // std's own signal stack has 8 KiB, or the size of this processor's frame where that is more.
            for left in [HANDLER - 1, 0] {
                let frame = before.1 - left;
                let signals = SignalStack::new();
                signals.lend_for(frame, HANDLER);
                assert!(now().0 != before.0 && now().1 >= ROOM + frame, "{frame}: {:?}", now());
                let second = SignalStack::new();
                second.lend_for(frame, ROOM);
                assert!(second.lent.get().is_none(), "the first is large enough for {frame}");
                signals.take_back();
                assert_eq!(now(), before);
            }
        })
        .join()
        .unwrap();
    }

    /// Fails if a thread loses the signal stack that the program has set meanwhile.
    #[test]
    fn the_programs_own_stays() {
        thread::spawn(|| {
            let (before, signals) = (exchange(None).expect("it only asks"), SignalStack::new());
            signals.lend_unless(ROOM);
            let own = Lent::map(before, 0).expect("there is memory");
            exchange(Some(&own.stack())).expect("the kernel takes it");
            signals.take_back();
            assert_eq!(now().0, own.stack().ss_sp.addr());
            exchange(Some(&before));
            own.unmap();
        })
        .join()
        .unwrap();
    }
}
