//! The contract under which a runtime is started: what code that runs in goroutines must not do.
//!
//! A goroutine can resume on another thread after every call that may park it. Rust has no trait for "my stack may move to
//! another thread", so the compiler can't check this: starting a runtime ([`run`](crate::run),
//! [`RuntimeBuilder::build`](crate::RuntimeBuilder::build)) is `unsafe`, and so is
//! [`Runtime::run_locked`](crate::Runtime::run_locked). The caller promises the following for all code that runs in the
//! runtime. The calls that this code makes are safe, except the `force_unlock`s of [`sync`](crate::sync).
//!
//! # The contract
//!
//! Across a call that may park:
//!
//! 1. **Keep nothing that belongs to a thread**: no reference out of a `thread_local!`, no `!Send` guard or handle of a thread
//!    (a `std::sync::MutexGuard`, tokio's `EnterGuard`, tracing's `Entered`), nothing that shares state with a thread-local
//!    (`rand`'s `ThreadRng` is an `Rc` of one). State that functions of [`hooks`](crate::hooks) carry along may be kept:
//!    `gmp-tracing` does so with spans. With `gmp-tokio` the runtime's threads enter a context of tokio before they run any
//!    goroutine; a goroutine that enters one itself leaves it before it parks.
//! 2. **A function that uses a `thread_local!` itself does not also park.** The compiler may compute the thread-local's address
//!    once and use it on both sides of the park. Put the use into a function of its own, `#[inline(never)]`. Uses that are
//!    inlined from std count too.
//!
//!    What counts is the function [after inlining](#after-inlining): a `next_id` that uses a thread-local and does not park
//!    breaks the contract if it is inlined into a loop that parks. So each function that uses a `thread_local!` is
//!    `#[inline(never)]`, or is called by no function that parks.
//! 3. **Expect an unwinding.** Every call that may park may also unwind, with destructors and without a panic: [what may
//!    unwind](#what-may-unwind). Unsafe code that has broken an invariant restores the invariant before such a call, or by a
//!    destructor. This includes calls whose counterparts elsewhere never unwind: `lock` of `parking_lot`, `recv` of crossbeam.
//! 4. **Leave the floating-point control registers as they were found**: mxcsr and the x87 control word, which hold the
//!    rounding mode, the masks of exceptions, and whether denormals are zero. A switch saves neither: the next goroutine on
//!    that thread sees what this one has set, and the setting may be gone when this one resumes. The [example](#floating-point)
//!    shows both.
//!
//! And at any time:
//!
//! 5. **No frame beyond the guard.** A function that does not probe its stack has a frame no larger than the guard below each
//!    stack, 16 KiB unless [`guard_size`](crate::RuntimeBuilder::guard_size) says otherwise, or is called where the stack has
//!    room for the frame. All Rust code probes. C code does so with `-fstack-clash-protection`, which is the default of some
//!    distributions but not of the compilers. A C function without probes and with a buffer of 100 kB in its frame can write
//!    into the stack of another goroutine, and nothing detects it. Call such a function inside of
//!    [`with_stack`](crate::with_stack), or on a stack that is large enough
//!    ([`Builder::stack_size`](crate::Builder::stack_size)); `gcc -Wframe-larger-than=16384` finds such functions.
//! 6. **Leave nothing of a goroutine in a `thread_local!`**: a goroutine that has put a `!Send` value into such a variable
//!    takes it out again before it parks or ends. Otherwise the next goroutine on the thread would find the value, while the
//!    first one resumes on another thread. If the value is a guard of a [`ReentrantMutex`](crate::sync::ReentrantMutex), which
//!    the first goroutine has still locked, both can reach the mutex's value. A goroutine that is bound to its thread may park
//!    meanwhile; it takes the value out before it is unbound or ends.
//!
//! If something that belongs to a thread has to be kept, [`lock_os_thread`](crate::lock_os_thread) binds the goroutine to its
//! thread: until [`unlock_os_thread`](crate::unlock_os_thread) clauses 1, 2 and 4 do not apply to the goroutine. The
//! goroutine's waits may still unwind, and the limit on frames is the same.
//!
//! To find a breach, run with `GMPDEBUG=migrate=1` in the environment: every park resumes on another thread, if the runtime may
//! have one, so a fault that shows once in a while shows at once. The price is some 10 µs a park.
//!
//! The library's own guards belong to no thread: a goroutine may hold guards of [`sync`](crate::sync) across a park.
//! [`local!`](crate::local!) declares variables of the goroutine, in place of a `thread_local!`.
//!
//! Fine, because nothing of a thread is kept across the park:
//!
//! ```
//! use std::cell::Cell;
//! thread_local! { static SEEN: Cell<u32> = const { Cell::new(0) } }
//!
//! #[inline(never)]
//! fn count() {
//!     SEEN.set(SEEN.get() + 1);
//! }
//!
//! // SAFETY: `count` uses the thread-local and does not park; the closure parks and does not use it.
//! unsafe {
//!     gmp::run(|| {
//!         for _ in 0..3 {
//!             count();
//!             gmp::yield_now();
//!         }
//!     })
//! }
//! ```
//!
//! Breaks the contract, because the same function uses the thread-local and parks. With optimisation the second
//! turn of the loop may push into the first thread's vector, while that thread does the same:
//!
//! ```no_run
//! use std::cell::RefCell;
//! thread_local! { static LOG: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) } }
//!
//! fn wrong() {
//!     loop {
//!         LOG.with(|log| log.borrow_mut().push(1));
//!         gmp::yield_now();
//!     }
//! }
//! ```
//!
//! # After inlining
//!
//! Nothing in the source of this loop uses a thread-local, yet the loop breaks the contract: with optimisation `next_id` is
//! inlined into it.
//!
//! ```no_run
//! use std::cell::Cell;
//! thread_local! { static COUNTER: Cell<u64> = const { Cell::new(0) } }
//!
//! // Wrong without `#[inline(never)]`.
//! fn next_id() -> u64 {
//!     COUNTER.with(|counter| {
//!         counter.set(counter.get() + 1);
//!         counter.get()
//!     })
//! }
//!
//! fn sends(numbers: gmp::chan::Sender<u64>) {
//!     while numbers.send(next_id()).is_ok() {}
//! }
//! ```
//!
//! The same holds for a method that is called implicitly: a `Drop` of a value in a function that parks, a `Clone`, an
//! iterator's `next`, an operator; and for a closure that a function of std or of another crate calls for a caller that parks,
//! as `Iterator::map` does. The message of a send in [`select!`](crate::select) is computed by the function around the macro.
//!
//! *The library keeps the code that it calls apart from its own parks*: the future of [`block_on`](crate::block_on), its drop
//! included, and the closure that is given to a call that may park (a condition of a [`Condvar`](crate::sync::Condvar),
//! [`scope`](crate::scope()), [`blocking`](crate::blocking), [`join`](crate::join()),
//! [`OnceLock::get_or_init`](crate::sync::OnceLock::get_or_init)) are called in a function that does not park and is not
//! inlined. Code that is inlined into such a future or closure may use thread-locals, as crates do in their futures, as long as
//! no call in the future's or closure's *own* code parks: an `.await` is no such call, a `lock` of [`sync`](crate::sync) is
//! one. Methods of the caller's types that the library calls otherwise, such as `Clone`, `Hash`, `AsFd` and the iterator of a
//! `ToSocketAddrs`, fall under the paragraph above.
//!
//! Fine, because the C function's large frame has its own stack:
//!
//! ```no_run
//! unsafe extern "C" {
//!     /// Of a library in C; 100 kB of buffers lie in its frame.
//!     fn parse(text: *const u8, len: usize) -> i32;
//! }
//!
//! fn parsed(text: &[u8]) -> i32 {
//!     // SAFETY: `parse` reads `len` bytes, and has 256 KiB of stack.
//!     gmp::with_stack(256 << 10, || unsafe { parse(text.as_ptr(), text.len()) })
//! }
//! ```
//!
//! # What may park
//!
//! A call may park if it waits, or if it gives the goroutine's P away or takes one again: a goroutine that has run for long may
//! have lost its P, and waits for another. All of these calls have a section "Unwinds". They are:
//!
//! * [`yield_now`](crate::yield_now) and [`yield_to`](crate::yield_to); [`park`](crate::park()),
//!   [`park_timeout`](crate::park_timeout) and [`park_until`](crate::park_until); [`block_on`](crate::block_on);
//!   [`JoinHandle::join`](crate::JoinHandle::join), [`join_timeout`](crate::JoinHandle::join_timeout),
//!   [`join_deadline`](crate::JoinHandle::join_deadline) and [`ScopedJoinHandle::join`](crate::ScopedJoinHandle::join);
//!   [`Runtime::run`](crate::Runtime::run) and [`run_locked`](crate::Runtime::run_locked); [`join`](crate::join()),
//!   [`fork_scope`](crate::fork_scope) and [`ForkScope::fork`](crate::ForkScope::fork); the return of
//!   [`scope`](crate::scope()); the beginning and the return of [`blocking`](crate::blocking);
//! * in [`chan`](crate::chan) sends, receives, iterators and selects; the receives of [`broadcast`](crate::chan::broadcast),
//!   including [`try_recv`](crate::chan::broadcast::Receiver::try_recv), which locks the message; in
//!   [`watch`](crate::chan::watch) the calls that read or write the value (`borrow`, `borrow_and_update`, `send`,
//!   `send_modify`, `send_if_modified`, `send_replace`) and those that wait (`changed`, `wait_for`); `closed` in both;
//! * in [`sync`](crate::sync) every call that locks or relocks (`bump`, `unlocked`), waits, acquires, or runs a closure for
//!   others that wait, as the access to a [`LazyLock`](crate::sync::LazyLock) does; a spawn in a full
//!   [`ErrGroup`](crate::sync::ErrGroup), also by [`Builder::go_grouped`](crate::Builder::go_grouped);
//! * the sleeps of [`time`](crate::time);
//! * the operations of [`net`](crate::net) that wait, including `close`, and those that may look a name up: `lookup`, `bind`,
//!   `connect`, `send_to`;
//! * every call in [`fs`](crate::fs) that asks the file system: reads, also of cached data, writes, locks, and all calls that
//!   take a path;
//! * in [`io`](crate::io) reads, writes and copies: of [`stdin`](crate::io::stdin), pipes, and [`Watched`](crate::io::Watched)
//!   descriptors;
//! * in [`process`](crate::process) the start of a child and the waits for its end (`spawn`, `status`, `output`, `wait`,
//!   `wait_timeout`, `wait_deadline`, `wait_with_output`), its pipes, and `exec`, before the attempt and after one that
//!   has failed;
//! * the receives and iterators of a [`Receiver`](crate::signal::Receiver) of [`signal`](crate::signal).
//!
//! [`Context::run`](crate::context::Context::run), [`time::timeout`](crate::time::timeout) and
//! [`timeout_until`](crate::time::timeout_until) park if the function that they call parks.
//!
//! Never: a call whose documentation says that it does not block, such as [`go`](crate::go), [`current`](crate::current),
//! [`unpark`](crate::Unparker::unpark), `try_send` and `try_recv` of [`Sender`](crate::chan::Sender) and
//! [`Receiver`](crate::chan::Receiver), `try_lock`, dropping a guard, `close` of a channel, notifications, setting and stopping
//! timers, [`Cancel::cancel`](crate::context::Cancel::cancel), [`abort`](crate::AbortHandle::abort), dropping a `JoinHandle`,
//! binding a socket to an address that is no name, [`with_stack`](crate::with_stack) itself. Some of these calls wake tasks of
//! other executors by calling their wakers: if such a `Waker` can park, for example because it takes a lock of
//! [`sync`](crate::sync), count these calls among the calls that may park.
//!
//! # What may unwind
//!
//! Each call that may park has a section "Unwinds", which says "Never" if nothing from outside ends a wait of that call. The
//! wait is ended from outside, and the call unwinds,
//!
//! * when a [`Context`](crate::context::Context) under which the caller runs is done
//!   ([`Context::run`](crate::context::Context::run), [`time::timeout`](crate::time::timeout)). Calls of [`net`](crate::net),
//!   [`fs`](crate::fs), [`io`](crate::io) and [`process`](crate::process) that return an [`io::Error`](std::io::Error) return
//!   one then, with the [`ContextError`](crate::context::ContextError) inside, of kind `TimedOut`, or `Other` for a cancel;
//!   three calls of a semaphore return the context's error: [`acquire_ctx`](crate::sync::Semaphore::acquire_ctx),
//!   [`acquire_guard_ctx`](crate::sync::Semaphore::acquire_guard_ctx) and
//!   [`acquire_owned_ctx`](crate::sync::Semaphore::acquire_owned_ctx);
//! * when the goroutine is aborted ([`AbortHandle::abort`](crate::AbortHandle::abort)): it runs under a context, and the same
//!   calls return an error;
//! * when the goroutine's runtime ends ([`Runtime::shutdown`](crate::Runtime::shutdown), `drop`, the return of
//!   [`run`](crate::run));
//! * when the goroutine has called [`goexit`](crate::goexit), and has caught the unwinding.
//!
//! Plain threads are interrupted by contexts only. A wait continues if the caller is already unwinding, or if a panic could not
//! pass, as below a function of C. Code that computes and calls that do not block are never interrupted.
//!
//! This is sound with a lock that never unwinds, and wrong here: if the wait for the lock is ended, the vector is dropped
//! twice.
//!
//! ```no_run
//! use gmp::sync::Mutex;
//!
//! fn append(slot: &mut Vec<u8>, last: &Mutex<u8>) {
//!     // SAFETY: wrong. The value is in two places while `lock` may unwind.
//!     let mut moved = unsafe { std::ptr::read(slot) };
//!     moved.push(*last.lock());
//!     // SAFETY: as above.
//!     unsafe { std::ptr::write(slot, moved) };
//! }
//! ```
//!
//! Right: the call that may unwind comes first.
//!
//! ```
//! use gmp::context::{Context, ContextError};
//! use gmp::sync::Mutex;
//! use std::sync::Arc;
//!
//! fn append(slot: &mut Vec<u8>, last: &Mutex<u8>) {
//!     let last = last.lock();
//!     // SAFETY: the value is in two places until the write. `push` may panic: not with room for one more.
//!     unsafe {
//!         slot.reserve(1);
//!         let mut moved = std::ptr::read(slot);
//!         moved.push(*last);
//!         std::ptr::write(slot, moved);
//!     }
//! }
//!
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call; `append` is whole where it may unwind.
//! unsafe {
//!     gmp::run(|| {
//!         let last = Arc::new(Mutex::new(7));
//!         let held = last.lock();
//!         let (context, cancel) = Context::background().with_cancel();
//!         let theirs = Arc::clone(&last);
//!         let waits = gmp::go(move || {
//!             let mut slot = vec![1, 2, 3];
//!             let ended = context.run(|| append(&mut slot, &theirs));
//!             (ended, slot)
//!         });
//!         gmp::yield_now();
//!         cancel.cancel();
//!         assert_eq!(waits.join().unwrap(), (Err(ContextError::Canceled), vec![1, 2, 3]));
//!         drop(held);
//!     })
//! }
//! ```
//!
//! # Floating point
//!
//! A goroutine that parks leaves its setting to others. Here a goroutine sets denormals to be treated as zero, and parks; the
//! next goroutine on that thread computes with that setting, and the first one finds the setting that the next has left:
//!
//! ```
//! # #[cfg(target_arch = "x86_64")]
//! # {
//! use std::arch::asm;
//!
//! const DENORMALS_ARE_ZERO: u32 = 1 << 6;
//!
//! fn mxcsr() -> u32 {
//!     let mut value = 0_u32;
//!     // SAFETY: stores the register to the variable.
//!     unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut value, options(nostack)) };
//!     value
//! }
//!
//! /// # Safety
//! /// Rust code has the register as it was at the start of the program: no code that computes may run meanwhile.
//! unsafe fn set_mxcsr(value: u32) {
//!     // SAFETY: by this function's contract.
//!     unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const value, options(nostack)) };
//! }
//!
//! // SAFETY: NOT kept: the register is changed across `yield_now`. Nothing here computes with floating-point numbers.
//! let runtime = unsafe { gmp::Runtime::builder().procs(1).build()? };
//! let shown = || {
//!     let usual = mxcsr() & !DENORMALS_ARE_ZERO;
//!     let other = gmp::go(move || {
//!         let seen = mxcsr();
//!         // SAFETY: the register is as it was before.
//!         unsafe { set_mxcsr(usual) };
//!         seen
//!     });
//!     // SAFETY: none: this is the breach.
//!     unsafe { set_mxcsr(usual | DENORMALS_ARE_ZERO) };
//!     gmp::yield_now();
//!     let (own, seen) = (mxcsr(), other.join().unwrap());
//!     // The other goroutine had the setting of this one, which this one has lost.
//!     seen & DENORMALS_ARE_ZERO != 0 && own & DENORMALS_ARE_ZERO == 0
//! };
//! // The machine may have kept this thread from running for so long that another thread has taken the P.
//! assert!((0..9).any(|_| runtime.run(shown)));
//! # }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Call a C library that changes the rounding mode, and restore the mode, between two parks:
//!
//! ```no_run
//! unsafe extern "C" {
//!     fn fegetround() -> i32;
//!     fn fesetround(mode: i32) -> i32;
//!     fn sum_upwards(values: *const f64, count: usize) -> f64;
//! }
//! const UPWARD: i32 = 0x800;
//!
//! fn upper_bound(values: &[f64]) -> f64 {
//!     // SAFETY: the C function reads this many values. No Rust code computes, and no call parks, with the other mode.
//!     unsafe {
//!         let before = fegetround();
//!         fesetround(UPWARD);
//!         let sum = sum_upwards(values.as_ptr(), values.len());
//!         fesetround(before);
//!         sum
//!     }
//! }
//! ```
//!
//! A [`yield_now`](crate::yield_now) between the two calls of `fesetround` breaks the contract: other goroutines round upwards
//! from then on, on that thread.
//!
//! # std's own thread-locals
//!
//! * `RandomState::new`, so `HashMap::new`: the keys lie in a thread-local. In a dynamic library, split a loop that makes maps
//!   and parks into two functions; in an executable the same code was seen to be right.
//! * `println!` and `eprintln!`, and locking and unlocking a `std::sync::Mutex` between two parks, are fine in a function that
//!   parks: std accesses its thread-locals in functions of their own.
//! * `std::thread::scope` with a park inside: the scope's threads unpark the thread that opened the scope, while the goroutine
//!   has moved to another thread.
//! * Not fine: printing a value whose `Display` parks, or `io::stdout().lock()` across a park. Standard output is locked by the
//!   thread, so other goroutines that print block their threads meanwhile, and the lock is released on another thread. Format
//!   into a `String` first; `docs/threads.md` of the sources, "Standard output", has other ways.
//! * `std::thread::panicking` counts per thread, and is still right: a goroutine that parks in a destructor while unwinding (a
//!   panic, `goexit`, a context that is done, the end of the runtime) keeps its thread until the unwinding is over, and no
//!   other goroutine runs there.
//!
//! Nothing is promised for dynamic libraries (`cdylib`, `dylib`): there the compiler computes addresses of thread-locals more
//! eagerly.
//!
//! # `panic = "abort"` and `fork`
//!
//! With `panic = "abort"` a goroutine's panic ends the process, as everywhere. Nothing can be unwound: when a runtime ends,
//! goroutines that are parked are left where they are, their destructors don't run, and their stacks are leaked. A context and
//! an [`abort`](crate::AbortHandle::abort) end only the waits of calls that can return an error.
//!
//! Keep unwind tables, the default on Linux: dumps read frames by them, and the switch of stacks has entries in them. With `-C
//! force-unwind-tables=no` and without debug information the compiler refuses these entries: "this directive must appear
//! between .cfi_startproc and .cfi_endproc directives". Leave that flag out, or set `debug = "line-tables-only"` in the
//! profile.
//!
//! After `fork` the child has one thread and none of the runtime's: that thread may only `exec` or `_exit`. In a child of a
//! process whose runtimes have all ended, timers, contexts, receivers of signals and dropped [`Child`](crate::process::Child)s
//! that the child makes are served, as the library starts the threads for these anew. But a lock that another thread of the
//! parent holds at the moment of the fork stays locked in the child. In a child without a runtime of its own SIGQUIT asks for
//! no dump, but ends the process as usual. A server that forks its workers should use this library in the workers only.
//!
//! # The `generator` backend
//!
//! Stacks are switched by the `generator` crate on other architectures than x86-64, and with the feature `generator`.
//! Panics and [`goexit`](crate::goexit) unwind there as elsewhere. But neither a goroutine nor a plain thread is
//! unwound from outside:
//!
//! * When a context is done, a wait under it ([`Context::run`](crate::context::Context::run),
//!   [`time::timeout`](crate::time::timeout)) continues to its own end, except in the calls that can return an error. So does a
//!   wait of a goroutine that has caught a `goexit`.
//! * An [`abort`](crate::AbortHandle::abort), too, ends only the waits of those calls. A goroutine that has not begun drops its
//!   closure unrun.
//! * When a runtime ends, goroutines that are parked are left where they are, as with `panic = "abort"`.
//!
//! A panic needs more stack there: the panic hook runs on the goroutine's stack, and std's hook takes some 30 KiB of it for a
//! backtrace. If less is left, the panic overflows the stack, which ends the process. The report of an overflow lacks the
//! goroutine's number, name and frames. Dumps have no frames.
