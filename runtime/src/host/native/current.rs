//! The M of the calling thread: a thread-local that goroutines read, by value.
//!
//! A compiler may keep the *address* of a thread-local in a register, and a goroutine that parks may wake on another
//! thread, whose variable is elsewhere. So no address of the variable is ever computed in Rust: on x86-64 the
//! variable is defined in assembly and read by one volatile instruction; elsewhere it is behind functions that are
//! never inlined.
//!
//! This is the only thread-local that code inlined into goroutines reads. The others have other arguments:
//!
//! | thread-local | why no address of it is used after a park |
//! | --- | --- |
//! | `THREAD_FRAME`, `THREAD_TOKEN`, `DICE` of `native/mod.rs` | their functions are never inlined, and park nowhere; `seed_random` is for the beginning of an M, on the stack of its thread |
//! | `INNERMOST` of `segment.rs` | as above; besides, only threads that run no goroutine use it |
//! | `OWN` of `slack.rs` | used in waits of the thread itself: by an M's loop and by plain threads, on stacks that stay with their thread |
//! | `QUIET_UNLOCKS` of `prim/buckets.rs`, `RANKS` of `prim/native.rs` | their functions are never inlined, and park nowhere |
//! | those that `local!` declares | used on plain threads only: a goroutine's values lie in its own memory |
//! | the one of the crate `generator` | reached through one function that is never inlined: `stack/generator.rs` |
//!
//! The access is `initial-exec`, which works in executables and in libraries that are loaded at start; in executables the
//! linker turns it into a load relative to `fs`.

#[cfg(target_arch = "x86_64")]
mod imp {
    use core::arch::{asm, global_asm};

    // Hidden: each library that contains this crate has its own variable; the version in the name keeps two versions
    // of the crate apart.
    global_asm!(
        ".pushsection .tbss.gmp_0_1_current_m,\"awT\",@nobits",
        ".hidden gmp_0_1_current_m",
        ".globl gmp_0_1_current_m",
        ".type gmp_0_1_current_m,@object",
        ".size gmp_0_1_current_m,8",
        ".p2align 3",
        "gmp_0_1_current_m:",
        ".zero 8",
        ".popsection",
    );

    #[inline(always)]
    pub(crate) fn get() -> *const () {
        let m: *const ();
        // SAFETY: reads eight bytes of this thread's own variable. Neither `pure` nor `nomem`: a second read is
        // another read, since a park may lie between.
        unsafe {
            asm!(
                "mov {m}, qword ptr [rip + gmp_0_1_current_m@gottpoff]",
                "mov {m}, qword ptr fs:[{m}]",
                m = out(reg) m,
                options(nostack, preserves_flags, readonly),
            );
        }
        m
    }

    pub(crate) fn set(m: *const ()) {
        // SAFETY: writes eight bytes of this thread's own variable.
        unsafe {
            asm!(
                "mov {at}, qword ptr [rip + gmp_0_1_current_m@gottpoff]",
                "mov qword ptr fs:[{at}], {m}",
                at = out(reg) _,
                m = in(reg) m,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod imp {
    use std::cell::Cell;

    thread_local! {
        static CURRENT: Cell<*const ()> = const { Cell::new(std::ptr::null()) };
    }

    #[inline(never)]
    pub(crate) fn get() -> *const () {
        std::hint::black_box(CURRENT.get())
    }

    #[inline(never)]
    pub(crate) fn set(m: *const ()) {
        CURRENT.set(std::hint::black_box(m));
    }
}

pub(crate) use imp::{get, set};

#[cfg(test)]
mod tests {
    #[test]
    fn each_thread_has_its_own() {
        let here = 1_u8;
        super::set((&raw const here).cast());
        std::thread::scope(|s| {
            s.spawn(|| assert!(super::get().is_null()));
        });
        assert_eq!(super::get(), (&raw const here).cast());
        super::set(std::ptr::null());
        assert!(super::get().is_null());
    }
}
