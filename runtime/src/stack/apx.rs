//! Refuses builds for processors with APX, whose registers r16 to r31 the switch would lose.
//!
//! Each call may destroy r16 to r31, and the compiler knows that of calls. An asm block has to list them, but rustc has no
//! names for them yet, and `clobber_abi("sysv64")` leaves them out. So if the compiler uses these registers, it prefers them
//! for what is in use across a switch, and the next goroutine overwrites them, without any report.
//!
//! On a stable compiler there is no cfg for APX (`apxf`), though `-C target-cpu`, also with `native`, is enough to enable it.
//! So this file refuses AVX-512 with SM4, for which a stable compiler does have cfgs: of the processors that the compiler
//! knows, those with APX have both, and no others do. This file does not see a build that adds APX by `-C target-feature` to
//! another processor; there a stable compiler warns.
//!
//! With the `generator` backend the switch is a call.
//!
//! `tests/stacks/apx.rs` checks this file, which it compiles alone.

#[cfg(any(target_feature = "apxf", all(target_feature = "avx512f", target_feature = "sm4")))]
compile_error!(
    "gmp's context switch would lose the registers r16 to r31 of APX, which this target-cpu has: build for one without APX, \
     as by `-C target-cpu=x86-64-v4`, or with gmp's feature `generator`."
);
